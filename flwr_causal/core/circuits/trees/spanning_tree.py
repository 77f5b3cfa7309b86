"""The heaviest spanning tree, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def heaviest_tree(gains: Floats) -> Ints:
    """Prim's algorithm for the spanning tree of the largest sum of gains; ties by index.

    Parameters
    ----------
    gains : ndarray, shape (d, d)
        Symmetric.

    Returns
    -------
    ndarray of int64, shape (d,)
        Parents; -1 for the root, which is the first.
    """
    d = len(gains)
    parents = np.full(d, -1)
    best = np.full(d, -np.inf)
    inside = np.zeros(d, np.bool_)
    newest = 0
    for _ in range(1, d):
        inside[newest] = True
        for j in range(d):
            if not inside[j] and gains[newest, j] > best[j]:
                best[j] = gains[newest, j]
                parents[j] = newest
        newest = -1
        for j in range(d):
            if not inside[j] and (newest < 0 or best[j] > best[newest]):
                newest = j
    return parents
