"""Exact inference in discrete Bayesian networks: variable elimination over tables.

A factor is an array of non-negative numbers with an axis for each of its variables. Factors may
have a first axis of rows, so that the evidence of many rows is answered at once. Products are
scaled, row by row, so that many factors do not underflow: a result is known up to a positive factor
for each row.

References
----------
Koller, D. & Friedman, N. (2009). Probabilistic graphical models. Chapter 9.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flwr_causal.core.arrays import FloatArray

#: The axis of rows, in place of a variable's index. It sorts before all variables.
ROWS = -1

#: Largest number of cells of a product (2 GiB).
MAX_CELLS = 2**28


class Factor(NamedTuple):
    """A table over some variables.

    Attributes
    ----------
    variables
        Their indices, in the order of the axes; first `ROWS` if there is an axis of rows.
    values
        Not negative.
    """

    variables: tuple[int, ...]
    values: FloatArray


def given(factor: Factor, codes: Mapping[int, Any], axis: tuple[int, ...] = ()) -> Factor:
    """Return a factor at known states of some variables.

    Parameters
    ----------
    factor
        A table without an axis of rows.
    codes
        The state of each known variable: an integer, or one for each row.
    axis
        ``(ROWS,)`` if the states are given for each row.
    """
    known = [v for v in factor.variables if v in codes]
    if not known:
        return factor
    free = [v for v in factor.variables if v not in codes]
    order = [factor.variables.index(v) for v in (*known, *free)]
    values = factor.values.transpose(order)[tuple(codes[v] for v in known)]
    return Factor((*axis, *free), np.asarray(values, dtype=np.float64))


def product(
    factors: Iterable[Factor], variables: Sequence[int], sizes: Mapping[int, int]
) -> FloatArray:
    """Return the scaled product of factors, with an axis for each of ``variables``.

    Parameters
    ----------
    factors
        Over some of the variables each.
    variables
        The axes of the result.
    sizes
        Number of states of each variable, and of rows.

    Raises
    ------
    DataError
        If the product has more than 2^28 cells.
    """
    shape = [sizes[v] for v in variables]
    if math.prod(shape) > MAX_CELLS:
        raise DataError(
            f"exact inference needs a table of {math.prod(map(float, shape)):.1e} cells over "
            f"{len(shape)} variables: learn a network with fewer parents (max_parents)"
        )
    place = {v: k for k, v in enumerate(variables)}
    others = tuple(k for k, v in enumerate(variables) if v != ROWS)
    result = np.ones([1] * len(shape))
    for factor in factors:
        order = sorted(range(len(factor.variables)), key=lambda k: place[factor.variables[k]])
        own = [sizes[v] if v in factor.variables else 1 for v in variables]
        result = result * factor.values.transpose(order).reshape(own)
        largest = result.max(axis=others, keepdims=True)
        result = result / np.where(largest > 0, largest, 1.0)
    return np.broadcast_to(result, shape)


def eliminate(
    factors: Sequence[Factor], hidden: Iterable[int], sizes: Mapping[int, int]
) -> list[Factor]:
    """Sum variables out of a product of factors, in the order of the smallest tables.

    Returns
    -------
    list of Factor
        Their product is the sum of the product of ``factors`` over the hidden variables.

    Raises
    ------
    DataError
        If a table would have more than 2^28 cells.
    """
    left, pending = list(factors), set(hidden)
    while pending:
        scopes: dict[int, set[int]] = {v: set() for v in pending}
        for factor in left:
            for v in pending.intersection(factor.variables):
                scopes[v].update(factor.variables)
        nearest = min(
            pending, key=lambda v: (math.prod(sizes[k] for k in scopes[v] if k != ROWS), v)
        )
        pending.remove(nearest)
        bucket = [factor for factor in left if nearest in factor.variables]
        left = [factor for factor in left if nearest not in factor.variables]
        kept = tuple(sorted(scopes[nearest] - {nearest}))
        left.append(Factor(kept, product(bucket, (*kept, nearest), sizes).sum(axis=-1)))
    return left
