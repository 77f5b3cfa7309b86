"""Which cells of a table are missing together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def packed_patterns(missing: BoolArray) -> Counter[bytes]:
    """Return how many rows have each pattern of gaps that occurs, by the pattern's bits.

    Parameters
    ----------
    missing : ndarray of bool, shape (n, d)
    """
    some = missing.any(axis=1)
    packed, times = np.unique(np.packbits(missing[some], axis=1), axis=0, return_counts=True)
    found = Counter(dict(zip((one.tobytes() for one in packed), times.tolist(), strict=True)))
    found[_bits(np.zeros(missing.shape[1], dtype=np.bool_))] += int((~some).sum())
    return found


def unpacked_patterns(patterns: Mapping[bytes, int], d: int) -> tuple[BoolArray, IntArray]:
    """Return the patterns of :func:`packed_patterns` of d columns, (m, d), and their rows, (m,)."""
    bits = np.frombuffer(b"".join(patterns), dtype=np.uint8).reshape(len(patterns), -1)
    found = np.unpackbits(bits, axis=1, count=d) if d else np.zeros((len(patterns), 0))
    return found.astype(np.bool_), np.array(list(patterns.values()), dtype=np.int64)


def counts_of(patterns: Mapping[bytes, int], sought: BoolArray) -> IntArray:
    """Return how many rows have each of some patterns of gaps, shape (m,).

    Parameters
    ----------
    patterns : mapping of bytes to int
        Of :func:`packed_patterns`.
    sought : ndarray of bool, shape (m, d)
    """
    return np.array([patterns.get(_bits(one), 0) for one in sought], dtype=np.int64)


def _bits(pattern: BoolArray) -> bytes:
    return np.packbits(pattern).tobytes()
