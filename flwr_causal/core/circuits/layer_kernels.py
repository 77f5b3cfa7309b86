"""Compiled steps of the layered evaluation.

Exponentials and logarithms are left to numpy between the steps, which takes several numbers at a
time; here whole rows of the arrays are gathered, compared and added while they are in the cache.

A layer's nodes stand in ``values`` from the row ``first`` on; the children of its k-th node are
``children[starts[k] : starts[k + 1]]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.core.compiled import compiled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray


@compiled
def multiply(values: FloatArray, first: int, starts: IntArray, children: IntArray) -> None:
    """Add the log densities of the factors of products."""
    for k in range(len(starts) - 1):
        own = values[first + k]
        own[:] = values[children[starts[k]]]
        for edge in range(starts[k] + 1, starts[k + 1]):
            child = values[children[edge]]
            for i in range(len(own)):
                own[i] += child[i]


@compiled
def compare(
    values: FloatArray,
    first: int,
    starts: IntArray,
    children: IntArray,
    log_weights: FloatArray,
    lowest: float,
    terms: FloatArray,
) -> None:
    """Put the largest term of each sum in its place, and the terms less it into ``terms``.

    The terms are the log weights plus the children's log densities. ``lowest`` stands for minus
    infinity, which less itself would be no number.
    """
    for k in range(len(starts) - 1):
        peak = values[first + k]
        peak[:] = lowest
        for edge in range(starts[k], starts[k + 1]):
            child, term, weight = values[children[edge]], terms[edge], log_weights[edge]
            for i in range(len(peak)):
                term[i] = child[i] + weight
                peak[i] = max(peak[i], term[i])
        for edge in range(starts[k], starts[k + 1]):
            term = terms[edge]
            for i in range(len(peak)):
                term[i] -= peak[i]


@compiled
def total(starts: IntArray, terms: FloatArray, totals: FloatArray) -> None:
    """Add the terms of each sum."""
    for k in range(len(starts) - 1):
        own = totals[k]
        own[:] = terms[starts[k]]
        for edge in range(starts[k] + 1, starts[k + 1]):
            term = terms[edge]
            for i in range(len(own)):
                own[i] += term[i]


@compiled
def shares(
    values: FloatArray,
    first: int,
    starts: IntArray,
    children: IntArray,
    log_weights: FloatArray,
    lowest: float,
    terms: FloatArray,
) -> None:
    """Put the log posterior probability of each child of each sum into ``terms``."""
    for k in range(len(starts) - 1):
        own = values[first + k]
        for edge in range(starts[k], starts[k + 1]):
            child, term, weight = values[children[edge]], terms[edge], log_weights[edge]
            for i in range(len(own)):
                term[i] = child[i] + weight - max(own[i], lowest)


@compiled
def spread(
    flows: FloatArray, first: int, starts: IntArray, children: IntArray, terms: FloatArray
) -> None:
    """Add the flow of each node to its children, of a sum in their shares, kept in ``terms``.

    Without any terms all of it goes to each child.
    """
    for k in range(len(starts) - 1):
        own = flows[first + k]
        for edge in range(starts[k], starts[k + 1]):
            child = flows[children[edge]]
            if len(terms) > 0:
                term = terms[edge]
                for i in range(len(own)):
                    term[i] *= own[i]
                    child[i] += term[i]
            else:
                for i in range(len(own)):
                    child[i] += own[i]


@compiled
def normal_densities(
    columns: FloatArray,
    column: IntArray,
    factor: FloatArray,
    shift: FloatArray,
    constant: FloatArray,
    result: FloatArray,
) -> None:
    """``constant - (factor x + shift)^2`` of each leaf's column, 0 where that is missing."""
    for k in range(len(column)):
        own, out = columns[column[k]], result[k]
        a, b, c = factor[k], shift[k], constant[k]
        for i in range(len(own)):
            standard = a * own[i] + b
            density = c - standard * standard
            out[i] = density if density == density else 0.0


@compiled
def looked_up(
    codes: NDArray[np.int32],
    row: IntArray,
    starts: IntArray,
    table: FloatArray,
    result: FloatArray,
) -> None:
    """Return the entry of each leaf's part of a table for the codes of its column."""
    for k in range(len(row)):
        own, out, start = codes[row[k]], result[k], starts[k]
        for i in range(len(own)):
            out[i] = table[start + own[i]]
