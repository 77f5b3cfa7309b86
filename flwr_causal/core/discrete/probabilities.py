"""Tables of probabilities of a variable given its parents: counts, estimates, checks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.arrays import frozen_floats
from flwr_causal.core.discrete import inference
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.discrete.discrete import DiscreteTable

#: Largest distance from 1 of a sum of probabilities, for rounding errors.
ROW_TOLERANCE = 1e-9


def drawn_states(log_probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a state for each row, (n,), from the logarithms of their probabilities, (n, k).

    The cumulative probabilities end in exactly 1, and random numbers are below it: no state of
    probability 0 is drawn.
    """
    cumulative = np.cumsum(np.exp(log_probabilities), axis=1)
    cumulative /= cumulative[:, -1:]
    below = rng.random((len(cumulative), 1)) >= cumulative
    return np.asarray(below.sum(axis=1))


def family_counts(table: DiscreteTable, child: int, parents: Sequence[int]) -> IntArray:
    """Count the rows with each state of a variable and each configuration of its parents.

    Parameters
    ----------
    table : DiscreteTable
        The data; rows are counted with their weights.
    child : int
        Index of the variable.
    parents : sequence of int
        Indices of its parents.

    Returns
    -------
    ndarray of int64
        One axis for each of ``parents``, in their order, and a last axis for ``child``.

    Raises
    ------
    DataError
        If a parent is given twice or is the child, or the array would have more than 2^28 cells.
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
    """Return the posterior mean probabilities, in the shape of the counts.

    Parameters
    ----------
    name : str
        The variable's name, for messages.
    counts : array_like
        Number of rows with each state (last axis) and each configuration of the parents.
    equivalent_sample_size : float
        Weight of the BDeu prior in rows: with q configurations and r states,
        ``equivalent_sample_size / (q r)`` is added to each count. With 0 the result is the relative
        frequencies (maximum likelihood), and uniform for a configuration without rows.

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


def held_out_log_likelihood(counts: IntArray | FloatArray, equivalent_sample_size: float) -> float:
    """Return the log-likelihood of a variable's rows, each under the table of all other rows.

    Each row is held out in turn: its probability is the posterior mean (`posterior_mean`) that
    follows from the counts without it. The counts of all rows suffice for this.

    Parameters
    ----------
    counts : ndarray of integers, shape (states of the parents..., r)
    equivalent_sample_size : float
        Weight of the prior in rows.

    Returns
    -------
    float
        In nats, the sum over all rows.
    """
    rows = counts.reshape(-1, counts.shape[-1])
    prior = equivalent_sample_size / rows.size
    totals = np.broadcast_to(rows.sum(axis=1, keepdims=True), rows.shape)[rows > 0]
    own = rows[rows > 0]
    probabilities = (own - 1 + prior) / (totals - 1 + prior * rows.shape[1])
    return float((own * np.log(probabilities)).sum())


def table_shape(name: str, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the table of a variable.

    Parameters
    ----------
    name : str
        The variable's name, for messages.
    sizes : sequence of int
        Number of states of each parent and, last, of the variable.

    Raises
    ------
    DataError
        If the table would have more than 2^28 cells.
    """
    cells = math.prod(sizes)
    if cells > inference.MAX_CELLS:
        raise DataError(
            f"the table of {name!r} with its {len(sizes) - 1} parents has {cells:.1e} cells: "
            "limit the number of parents, or merge states"
        )
    return tuple(sizes)


def parent_matrix(parents: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Return the adjacency matrix, shape ``(d, d)``."""
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
        raise DataError("the parents have a directed cycle: a Bayesian network needs a DAG")


def checked_table(name: str, table: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Return a read-only copy of a table of probabilities; a DataError if it is none."""
    array = frozen_floats(table)
    if array.shape != shape:
        raise DataError(
            f"the table of {name!r} has shape {array.shape}: its parents and states give {shape}"
        )
    # Both comparisons are false for NaN, so that NaN is refused.
    if not ((array >= 0).all() and (np.abs(array.sum(axis=-1) - 1) <= ROW_TOLERANCE).all()):
        raise DataError(
            f"the table of {name!r} must hold probabilities that sum to 1 over the last axis"
        )
    return array


def checked_sizes(
    names: Sequence[str], sizes: Sequence[ArrayLike] | None, tables: Sequence[FloatArray]
) -> tuple[FloatArray, ...] | None:
    """Return read-only copies of the numbers of rows of tables; a DataError if they are none."""
    if sizes is None:
        return None
    if len(sizes) != len(names):
        raise DataError(f"{len(sizes)} sample_sizes for {len(names)} variables: give one each")
    result = []
    for name, own, table in zip(names, sizes, tables, strict=True):
        array = frozen_floats(own)
        if array.shape != table.shape[:-1] or not (np.isfinite(array) & (array >= 0)).all():
            raise DataError(
                f"the sample_sizes of {name!r} must be numbers from 0 up of shape "
                f"{table.shape[:-1]}"
            )
        result.append(array)
    return tuple(result)
