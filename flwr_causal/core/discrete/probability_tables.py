"""Tables of probabilities and of counts: one axis for each parent, a last one for the child.

Given a DAG, the counts of each variable with its parents are all that fitting a Bayesian network
needs, and they add up over parties.

References
----------
Heckerman, Geiger & Chickering (1995). Learning Bayesian networks: the combination of knowledge and
statistical data. Machine Learning 20. (The BDeu prior and the posterior mean.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.discrete.discrete import DiscreteTable

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: How far from 1 the sum of a row may lie: rounding, and no more.
ROW_TOLERANCE = 1e-9
#: More cells than this would not fit into memory.
MAX_CELLS = 2**28


def family_counts(table: DiscreteTable, child: int, parents: Sequence[int]) -> IntArray:
    """Count the states of a variable with those of its parents; rows count as often as they stand.

    Returns
    -------
    ndarray of int64
        One axis for each of ``parents``, in their order, and a last one for ``child``.

    Raises
    ------
    DataError
        If a parent stands twice or is the child, or the array would not fit into memory.
    """
    family = [*parents, child]
    if len(set(family)) < len(family):
        raise DataError(f"the parents of {table.names[child]!r} must be different other variables")
    shape = table_shape(table.names[child], [len(table.states[k]) for k in family])
    cell = np.zeros(table.codes.shape[1], dtype=np.int64)
    for axis, size in zip(family, shape, strict=True):
        cell = cell * size + table.codes[axis]
    # Sums of whole numbers in float64 are exact up to 2**53 rows.
    counts = np.bincount(cell, weights=table.weights, minlength=math.prod(shape))
    return counts.astype(np.int64).reshape(shape)


def posterior_mean(name: str, counts: ArrayLike, equivalent_sample_size: float) -> FloatArray:
    """Return the probabilities that counts speak for, in the shape of the counts.

    Parameters
    ----------
    name : str
        The child, for messages.
    counts : array_like
        How often each state (last axis) was seen with each configuration of the parents.
    equivalent_sample_size : float
        Weight of the BDeu prior in rows: with q configurations and r states,
        ``equivalent_sample_size / (q r)`` is added to each count. With 0 the result is the relative
        frequencies, and uniform where a configuration was never seen.

    Raises
    ------
    DataError
        If counts are negative or not finite.
    ConfigError
        If the equivalent sample size is negative or not finite.
    """
    if not (np.isfinite(equivalent_sample_size) and equivalent_sample_size >= 0):
        raise ConfigError(
            f"equivalent_sample_size is {equivalent_sample_size}: expected a number from 0 up"
        )
    array = np.asarray(counts, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all() or (array < 0).any():
        raise DataError(f"the counts of {name!r} must be an array of numbers from 0 up")
    array = np.atleast_1d(array)
    smoothed = array + equivalent_sample_size / array.size
    total = smoothed.sum(axis=-1, keepdims=True)
    uniform = np.full_like(smoothed, 1.0 / array.shape[-1])
    result: FloatArray = np.divide(smoothed, total, out=uniform, where=total > 0)
    return result


def table_shape(name: str, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a variable's table from the numbers of states of its parents and its own.

    Raises
    ------
    DataError
        If the table would not fit into memory.
    """
    cells = math.prod(sizes)
    if cells > MAX_CELLS:
        raise DataError(
            f"the table of {name!r} with its {len(sizes) - 1} parents has {cells:.1e} numbers: "
            "limit the number of parents, or join states"
        )
    return tuple(sizes)


def parent_matrix(parents: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Return the ``(d, d)`` matrix of the edges."""
    result = np.zeros((len(parents), len(parents)), dtype=bool)
    for child, own in enumerate(parents):
        result[list(own), child] = True
    return result


def check_parents(names: Sequence[str], parents: Sequence[Sequence[int]]) -> None:
    """Raise a DataError if the parents are not ascending indices of a DAG."""
    for name, own in zip(names, parents, strict=True):
        if list(own) != sorted(set(own)) or any(not 0 <= i < len(names) for i in own):
            raise DataError(
                f"the parents of {name!r} are {list(own)}: expected different indices below "
                f"{len(names)}, ascending"
            )
    if not is_acyclic(parent_matrix(parents)):
        raise DataError("the parents of a Bayesian network form a DAG, these have a directed cycle")


def checked_table(name: str, table: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Return a read-only copy of a table of probabilities."""
    array = np.array(table, dtype=np.float64)
    if array.shape != shape:
        raise DataError(
            f"the table of {name!r} has shape {array.shape}, its parents and states give {shape}"
        )
    # Written so that a NaN fails.
    if not ((array >= 0).all() and (np.abs(array.sum(axis=-1) - 1) <= ROW_TOLERANCE).all()):
        raise DataError(
            f"the table of {name!r} must hold probabilities that sum to 1 over the last axis"
        )
    array.flags.writeable = False
    return array
