"""A JSON file and an NPZ file beside it: how circuits are kept in directories."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

Arrays = dict[str, NDArray[Any]]


def write_pair(
    directory: str | Path, name: str, plain: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write ``name.json`` (plain values) and ``name.npz`` (arrays); numbers survive exactly."""
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.json").write_text(json.dumps(plain), encoding="utf-8")
    np.savez_compressed(place / f"{name}.npz", **arrays)


def read_pair(directory: str | Path, name: str, form: str) -> tuple[dict[str, Any], Arrays]:
    """Return the plain values and the arrays that :func:`write_pair` wrote.

    Parameters
    ----------
    directory : str or Path
    name : str
    form : str
        What the values must have as their ``format``.

    Raises
    ------
    DataError
        If it is something else.
    """
    place = Path(directory)
    try:
        plain = json.loads((place / f"{name}.json").read_text(encoding="utf-8"))
        if not isinstance(plain, dict) or plain.get("format") != form:
            raise DataError(f"{place} does not hold a {name} of this version ({form})")
        with np.load(place / f"{name}.npz") as file:
            return plain, dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{place} does not hold a {name} ({error})") from error
