"""What a process computed from a party's rows, kept for the party's next message."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Context

T = TypeVar("T")
Key = tuple[int, int, str]

# A process may serve many simulated parties: the oldest entries make room.
LIMIT_BYTES = 256 * 2**20

_entries: OrderedDict[Key, tuple[Any, int]] = OrderedDict()


def cached(context: Context, name: str, compute: Callable[[], T]) -> T:
    """Return what was computed for this node and run before, or compute it.

    Unlike the memory in the context it is not stored with the run's state: it is cheaper to compute
    anew after a restart than to carry along in every round.

    Parameters
    ----------
    context : Context
        Tells the run and the node.
    name : str
        What is computed.
    compute : callable
        Computes it from the party's rows.
    """
    key = (context.run_id, context.node_id, name)
    if key in _entries:
        _entries.move_to_end(key)
        value: T = _entries[key][0]
        return value
    value = compute()
    _entries[key] = (value, _size(value))
    while len(_entries) > 1 and sum(size for _, size in _entries.values()) > LIMIT_BYTES:
        _entries.popitem(last=False)
    return value


def _size(value: object) -> int:
    if isinstance(value, list | tuple):
        return sum(_size(entry) for entry in value)
    # Arrays, and whatever else says how large it is.
    return int(getattr(value, "nbytes", sys.getsizeof(value)))
