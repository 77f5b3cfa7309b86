"""How a party gets back the memory that it had before a run was interrupted.

A party keeps some things between two exchanges (the multipliers of ADMM, its circuits) that never
leave it. When an interrupted run is resumed, the server sends each party, in one message, the
earlier requests of the exchanges that declare ``remembered``. The party answers them to itself, in
their order, and nothing leaves it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.contract.exchange import Exchange, Sent
from flwr_causal.core.received import arrays_of, json_of
from flwr_causal.errors import FederationError
from flwr_causal.protocol import records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr.app import RecordDict
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays

REPLAY = Exchange(
    "replay",
    "earlier requests of an interrupted run, which the party answers to itself",
    sends=(
        Sent("archive", "the arrays of the requests, as bytes of one NPZ file", ("*",)),
        Sent("requests", "their plain values, as JSON"),
    ),
    weight="one",
    timing="when a run is resumed",
)


def packed(contents: Sequence[RecordDict]) -> dict[str, Any]:
    """Return the values of REPLAY for the contents of earlier messages, in their order."""
    arrays = {
        f"{index} {name}": array
        for index, content in enumerate(contents)
        for name, array in records.arrays_of(content).items()
    }
    plain = [records.config_of(content) for content in contents]
    return {
        "archive": np.frombuffer(records.npz(arrays), dtype=np.uint8),
        "requests": json.dumps(plain),
    }


def unpacked(archive: NDArray[np.uint8], requests: str) -> list[RecordDict]:
    """Return the contents that :func:`packed` took.

    Raises
    ------
    FederationError
        If the archive, which is not compressed, states more bytes than it has, or if archive and
        requests do not fit together.
    """
    try:
        data = archive.tobytes()
        plain, arrays = json_of(requests), arrays_of(data, len(data))
        if not (isinstance(plain, list) and all(isinstance(one, dict) for one in plain)):
            raise ValueError("the requests are no list of plain values")
        own: dict[str, Arrays] = {str(index): {} for index in range(len(plain))}
        for key, array in arrays.items():
            index, _, name = key.partition(" ")
            own[index][name] = array
        pairs = zip(own.values(), plain, strict=True)
        return [records.message_content(records.pack_arrays(one), values) for one, values in pairs]
    except (ValueError, TypeError, KeyError) as error:
        raise FederationError(
            f"The earlier requests of the run cannot be read ({error}): resume it with the same "
            "version of flwr-causal, or start anew without resume."
        ) from error
