"""Rows with missing cells, completed by draws from a Bayesian network given the seen cells.

The draws are exact: of each row the missing cells that depend on each other given its seen cells
are drawn together. Which state is drawn follows from the row's seen cells and a seed, so that rows
are completed alike at whatever place and party they are; equal rows are drawn evenly from their
common distribution.

References
----------
Celeux, G. & Diebolt, J. (1985). The SEM algorithm: a probabilistic teacher algorithm derived from
the EM algorithm for the mixture problem. Computational Statistics Quarterly 2.
Friedman, N. (1997). Learning belief networks in the presence of missing values and hidden
variables. ICML.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from flwr_causal.core.discrete.inference import ROWS, Factor, eliminate, given, product
from flwr_causal.core.graphs.edge_lists import families_of
from flwr_causal.core.graphs.equivalence import moralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

    Hashes = NDArray[np.uint64]

#: Largest number of joint states of cells that are drawn at once; more cells are drawn one part
#: after the other.
MOST_JOINT = 2**12
#: Largest number of entries of a table of joint probabilities by row.
MOST_ENTRIES = 2**22


def completed(
    codes: NDArray[np.uint8],
    seen: BoolArray,
    dag: BoolArray,
    tables: Sequence[FloatArray],
    seed: int,
) -> NDArray[np.uint8]:
    """Return the codes with a state drawn for each missing cell, shape (d, n).

    Parameters
    ----------
    codes : ndarray of uint8, shape (d, n)
    seen : ndarray of bool, shape (d, n)
        Which cells are not missing.
    dag : ndarray of bool, shape (d, d)
        Row causes column.
    tables : sequence of ndarray of float64
        Of each variable the probabilities, none of them 0; the axes are those of its parents,
        ascending, then its own.
    seed : int
        From 0 to 2^64 - 1; other seeds give other draws.

    Raises
    ------
    DataError
        If exact inference needs a table of more than 2^28 cells.
    """
    result = codes.copy()
    rows_of = _hashes(codes, seen, seed)
    sizes = {k: table.shape[-1] for k, table in enumerate(tables)}
    factors = [Factor((*own, k), tables[k]) for k, own in families_of(dag)]
    for members, rows in _components(seen, dag):
        concerned = [own for own in factors if not members.isdisjoint(own.variables)]
        known = {v for own in concerned for v in own.variables} - members
        for part in _parts(sorted(members), sizes):
            hidden, shape = members - known - set(part), [sizes[v] for v in part]
            most = max(1, MOST_ENTRIES // math.prod(shape))
            for own in np.split(rows, range(most, len(rows), most)):
                sizes[ROWS] = len(own)
                states = {v: result[v, own] for v in known}
                left = [given(factor, states, (ROWS,)) for factor in concerned]
                joint = product(eliminate(left, hidden, sizes), (ROWS, *part), sizes)
                cells = _drawn(joint.reshape(len(own), -1), _uniform(rows_of[own], part[0]))
                result[np.array(part)[:, None], own] = np.unravel_index(cells, shape)
            known |= set(part)
    return result


def _components(seen: BoolArray, dag: BoolArray) -> Iterator[tuple[set[int], IntArray]]:
    """Yield sets of variables, and the rows in which exactly these depend on each other.

    Missing cells of a row are linked where the moral graph joins their variables.
    """
    variables, rows = np.nonzero(~seen)
    number = np.zeros(seen.shape, dtype=np.int64)
    number[variables, rows] = np.arange(len(rows))
    links = [np.zeros((2, 0), dtype=np.int64)]
    for one, other in np.argwhere(np.triu(moralize(dag))):
        both = np.flatnonzero(~(seen[one] | seen[other]))
        links.append(np.stack([number[one, both], number[other, both]]))
    ends = np.concatenate(links, axis=1)
    graph = coo_array((np.ones(ends.shape[1]), tuple(ends)), shape=(len(rows), len(rows)))
    count, labels = connected_components(graph, directed=False)
    inside = np.zeros((count, len(seen)), dtype=np.bool_)
    inside[labels, variables] = True
    row_of = np.zeros(count, dtype=np.int64)
    row_of[labels] = rows
    sets, which = np.unique(np.packbits(inside, axis=1), axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=len(sets)))
    for packed, own in zip(sets, np.split(order, ends), strict=False):
        members = np.flatnonzero(np.unpackbits(packed, count=len(seen)))
        yield set(members.tolist()), row_of[own]


def _parts(members: Sequence[int], sizes: dict[int, int]) -> Iterator[list[int]]:
    """Divide variables into parts of at most MOST_JOINT joint states, or one variable."""
    part: list[int] = []
    cells = 1
    for v in members:
        if part and cells * sizes[v] > MOST_JOINT:
            yield part
            part, cells = [], 1
        part.append(v)
        cells *= sizes[v]
    yield part


def _drawn(joint: FloatArray, uniform: FloatArray) -> IntArray:
    """Return for each row the cell that a number in [0, 1) selects, shape (n,)."""
    cumulative = np.cumsum(joint, axis=1)
    below = cumulative <= (uniform * cumulative[:, -1])[:, None]
    return np.asarray(np.minimum(below.sum(axis=1), joint.shape[1] - 1))


def _mixed(values: Any) -> Hashes:
    """Return well mixed numbers (the finaliser of SplitMix64)."""
    result = np.array(values, dtype=np.uint64, ndmin=1) + np.uint64(0x9E3779B97F4A7C15)
    result = (result ^ (result >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    result = (result ^ (result >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return result ^ (result >> np.uint64(31))


def _hashes(codes: NDArray[np.uint8], seen: BoolArray, seed: int) -> Hashes:
    """Return a number for each row, shape (n,).

    It follows from the seed, the row's seen cells, and how many equal rows come before it.
    """
    found = np.full(codes.shape[1], seed, dtype=np.uint64)
    for row, known in zip(codes, seen, strict=True):
        found = _mixed(found ^ np.where(known, row.astype(np.uint64) + np.uint64(1), 0))
    order = np.argsort(found, kind="stable")
    ordered = found[order]
    repeats = np.empty(len(found), dtype=np.int64)
    repeats[order] = np.arange(len(found)) - np.searchsorted(ordered, ordered)
    return _mixed(found ^ _mixed(repeats))


def _uniform(hashes: Hashes, variable: int) -> FloatArray:
    """Return a number in [0, 1) for each row, shape (n,)."""
    # The upper 53 bits: a float64 has no more.
    bits = _mixed(hashes ^ _mixed(variable)) >> np.uint64(11)
    return np.asarray(bits * 2.0**-53)
