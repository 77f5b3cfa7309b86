"""Cache of what a party has computed for a run, in the memory of its process."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Context

T = TypeVar("T")
Key = tuple[int, int, Hashable]

# A process may serve many simulated parties: the oldest entries make room.
LIMIT_BYTES = 256 * 2**20


class _Cache:
    """Computed values with their sizes in bytes; the oldest are removed to make room."""

    def __init__(self) -> None:
        self.entries: OrderedDict[Key, tuple[Any, int]] = OrderedDict()
        self.size = 0

    def clear(self) -> None:
        self.entries.clear()
        self.size = 0

    def put(self, key: Key, value: Any, size: int) -> None:
        self.size += size - self.entries.get(key, (None, 0))[1]
        self.entries[key] = (value, size)
        while len(self.entries) > 1 and self.size > LIMIT_BYTES:
            self.size -= self.entries.popitem(last=False)[1][1]


_cache = _Cache()
_lock = Lock()


def cached(context: Context, name: Hashable, compute: Callable[[], T]) -> T:
    """Return the value that is stored for this node and run, or compute and store it.

    Unlike the memory in the context it is not stored with the run's state: it is cheaper to compute
    anew after a restart than to carry along in every round.

    Parameters
    ----------
    context : Context
        Tells the run and the node.
    name : hashable
        What is computed.
    compute : callable
        Computes it from the party's rows.
    """
    key = (context.run_id, context.node_id, name)
    with _lock:
        if key in _cache.entries:
            _cache.entries.move_to_end(key)
            known: T = _cache.entries[key][0]
            return known
    # Without the lock: other runs may go on, and what is computed may itself be cached here.
    value = compute()
    size = _size(value)
    with _lock:
        _cache.put(key, value, size)
    return value


def _size(value: object) -> int:
    if isinstance(value, list | tuple):
        return sum(_size(entry) for entry in value)
    if isinstance(value, pd.DataFrame):
        types = [*value.dtypes]
        # pandas counts by making a series of each column.
        if all(isinstance(one, np.dtype) and one.kind != "O" for one in types):
            return int(len(value) * sum(one.itemsize for one in types))
    # Arrays, and whatever else says how large it is.
    return int(getattr(value, "nbytes", sys.getsizeof(value)))
