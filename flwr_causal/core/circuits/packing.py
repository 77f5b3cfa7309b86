"""Circuits as one array of bytes: as they travel, and as a party keeps them."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

Bytes = NDArray[np.uint8]


def packed(circuits: Sequence[Circuit], domain: Domain) -> Bytes:
    """Return circuits over a domain as the bytes of a compressed NPZ file, shape (m,)."""
    arrays = {
        f"{k}/{name}": array
        for k, circuit in enumerate(circuits)
        for name, array in circuit.to_arrays().items()
    }
    buffer = io.BytesIO()
    head = {"num": np.array(len(circuits)), "domain": np.array(json.dumps(domain.to_plain()))}
    np.savez_compressed(buffer, **head, **arrays)  # type: ignore[arg-type]
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def unpacked(data: Bytes) -> list[Circuit]:
    """Return the circuits that :func:`packed` wrote.

    Raises
    ------
    DataError
        If the bytes are something else.
    """
    try:
        with np.load(io.BytesIO(data.tobytes())) as file:
            arrays = dict(file)
        number = int(arrays.pop("num"))
        domain = Domain.from_plain(json.loads(str(arrays.pop("domain"))))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"these are no circuits ({error!r}): train them again") from error
    parts: list[dict[str, NDArray[np.generic]]] = [{} for _ in range(number)]
    for key, array in arrays.items():
        k, _, name = key.partition("/")
        parts[int(k)][name] = array
    return [Circuit.from_arrays(domain, part) for part in parts]
