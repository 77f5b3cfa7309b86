"""Which cells of a table are missing together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, IntArray

#: Columns that are missing in this share of the rows in which another one is belong to its gap.
TOGETHER = 0.9
#: The most patterns that are counted.
MOST_PATTERNS = 256


def likely_patterns(both: IntArray) -> BoolArray:
    """Return patterns of gaps that rows may have, from how often two columns lack together.

    These are no gap at all, each column alone, each with all those that are missing where it is,
    and each pair that is missing together.

    Parameters
    ----------
    both : ndarray of int, shape (d, d)
        Rows in which two columns are missing; on the diagonal those in which one is.

    Returns
    -------
    ndarray of bool, shape (m, d)
        Different patterns, m <= MOST_PATTERNS; the most frequent ones of each sort first.
    """
    d = len(both)
    alone = np.diagonal(both)
    lacking = np.flatnonzero(alone)[np.argsort(-alone[alone > 0], kind="stable")]
    found = [np.zeros(d, dtype=np.bool_)]
    found += [both[k] >= TOGETHER * alone[k] for k in lacking.tolist()]
    found += [np.arange(d) == k for k in lacking.tolist()]
    first, second = np.triu_indices(d, 1)
    pairs = both[first, second]
    for place in np.argsort(-pairs, kind="stable").tolist():
        if pairs[place] == 0 or len(found) >= 2 * MOST_PATTERNS:
            break
        found.append(np.isin(np.arange(d), [first[place], second[place]]))
    different = dict.fromkeys(tuple(one.tolist()) for one in found)
    return np.array(list(different)[:MOST_PATTERNS], dtype=np.bool_).reshape(-1, d)


def pattern_counts(missing: BoolArray, patterns: BoolArray) -> IntArray:
    """Return how many rows have each of some patterns of gaps, shape (m,).

    Parameters
    ----------
    missing : ndarray of bool, shape (n, d)
    patterns : ndarray of bool, shape (m, d)
    """
    counts = np.zeros(len(patterns), dtype=np.int64)
    place = {np.packbits(one).tobytes(): k for k, one in enumerate(patterns)}
    some = missing.any(axis=1)
    packed, times = np.unique(np.packbits(missing[some], axis=1), axis=0, return_counts=True)
    for pattern, rows in zip(packed, times.tolist(), strict=True):
        if (own := place.get(pattern.tobytes())) is not None:
            counts[own] = rows
    none = place.get(np.packbits(np.zeros(missing.shape[1], dtype=np.bool_)).tobytes())
    if none is not None:
        counts[none] = int((~some).sum())
    return counts
