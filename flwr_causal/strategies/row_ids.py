"""The hashes of ids by which rows of different parties are matched."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.protocol.replies import Replies


def hashes_of(parties: Sequence[str], replies: Replies) -> list[list[bytes]] | str:
    """Return by party the hash of each of its rows; in words, why there are none.

    Parameters
    ----------
    parties : sequence of str
        That were asked, in their order.
    replies : Replies
        To the exchange ``align``.
    """
    hashes = replies.of("hashes")
    silent = [name for name in parties if name not in hashes]
    if silent:
        return (
            f"there is no secret at {', '.join(silent)} under which ids are sent: start every "
            "SuperNode with --node-config \"row-secret-file='...'\", a file with the same text "
            "at all parties"
        )
    return [[row.tobytes() for row in own] for own in hashes.values()]
