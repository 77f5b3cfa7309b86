"""How a party gets back the memory that it had before a run was interrupted.

A party keeps some things between two exchanges (the multipliers of ADMM, its circuits) that never
leave it. When an interrupted run is resumed, the server sends each party, in one message, the
earlier requests of the exchanges that declare ``remembered``. The party answers them to itself, in
their order, and nothing leaves it.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.protocol import records
from flwr_causal.protocol.exchange import Exchange, Sent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flwr.app import RecordDict
    from numpy.typing import NDArray

REPLAY = Exchange(
    "replay",
    "earlier requests of an interrupted run, which the party answers to itself",
    sends=(
        Sent("archive", "the arrays of the requests, as bytes of one NPZ file", ("*",)),
        Sent("requests", "their plain values, as JSON"),
    ),
    weight="one",
    when="when a run is resumed",
)


def packed(contents: Sequence[RecordDict]) -> dict[str, Any]:
    """Return what REPLAY sends for earlier contents of messages, in their order."""
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


def unpacked(archive: NDArray[np.uint8], requests: str) -> Iterator[RecordDict]:
    """Return the contents that :func:`packed` took."""
    with np.load(BytesIO(archive.tobytes()), allow_pickle=False) as file:
        names: dict[str, list[str]] = {}
        for key in file.files:
            index, _, name = key.partition(" ")
            names.setdefault(index, []).append(name)
        for number, plain in enumerate(json.loads(requests)):
            arrays = {name: file[f"{number} {name}"] for name in names.get(str(number), [])}
            yield records.message_content(records.pack_arrays(arrays), plain)
