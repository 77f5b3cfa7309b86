"""Discrete Bayesian networks: a DAG and, for each variable, a table of probabilities.

``tables[j]`` has one axis for each parent of j, in the order of ``parents[j]``, and a last axis for
the states of j, over which it sums to 1. Given the DAG, fitting needs only the counts of each
variable with its parents, which are summed over parties.

References
----------
Heckerman, Geiger & Chickering (1995). Learning Bayesian networks: the combination of knowledge and
statistical data. Machine Learning 20. (The BDeu prior and the posterior mean.)
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.discrete.discrete import MAX_STATES, DiscreteTable, as_discrete
from flwr_causal.core.graphs import notebook
from flwr_causal.core.graphs.acyclicity import is_acyclic, topological_order
from flwr_causal.core.graphs.graph import CausalGraph, distinct_names
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray

FORMAT = "flwr-causal bayesian network 1"


@dataclass(frozen=True, eq=False, repr=False)
class BayesianNetwork:
    """A joint distribution of d variables with finitely many states each.

    The tables are stored as read-only float64 copies.

    Parameters
    ----------
    names : tuple of str
        The d variables.
    states : tuple of tuple of str
        The states of each variable, in the order of its axes.
    parents : tuple of tuple of int
        The indices of each variable's parents, ascending; acyclic.
    tables : tuple of ndarray of float64
        ``tables[j][states of the parents..., state]`` is the probability of the state given the
        parents' states: non-negative, the last axis sums to 1.

    Raises
    ------
    DataError
        If names repeat, shapes do not fit, states repeat, parents form a cycle, or a table does not
        hold probabilities; the message names the variable.
    """

    names: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    parents: tuple[tuple[int, ...], ...]
    tables: tuple[FloatArray, ...]

    def __post_init__(self) -> None:
        names = distinct_names(self.names)
        parts = {"states": self.states, "parents": self.parents, "tables": self.tables}
        for part, values in parts.items():
            if len(values) != len(names):
                raise DataError(f"{len(values)} {part} for {len(names)} variables: give one each")
        states = tuple(tuple(str(state) for state in own) for own in self.states)
        parents = tuple(tuple(int(parent) for parent in own) for own in self.parents)
        for name, own in zip(names, states, strict=True):
            if not 1 <= len(own) <= MAX_STATES or len(set(own)) < len(own):
                raise DataError(
                    f"variable {name!r} has {len(own)} states: expected 1 to {MAX_STATES}, all "
                    "different"
                )
        check_parents(names, parents)
        tables = tuple(
            checked_table(name, table, table_shape(name, [len(states[k]) for k in (*own, j)]))
            for j, (name, own, table) in enumerate(zip(names, parents, self.tables, strict=True))
        )
        for field, value in (
            ("names", names),
            ("states", states),
            ("parents", parents),
            ("tables", tables),
        ):
            object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        num_edges = sum(len(own) for own in self.parents)
        return (
            f"<BayesianNetwork: {len(self.names)} variables, {num_edges} edges, "
            f"{self.num_parameters} parameters>"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the variables and their states, and the drawing."""
        listed = [(n, ", ".join(own)) for n, own in zip(self.names, self.states, strict=True)]
        states = notebook.table(("variable", "states"), listed, "variables")
        return notebook.section(repr(self), states + self.graph._repr_html_())

    @property
    def graph(self) -> CausalGraph:
        """The DAG, each edge of weight 1."""
        return CausalGraph(self.names, parent_matrix(self.parents).astype(np.float64))

    @property
    def num_parameters(self) -> int:
        """Number of free probabilities: r - 1 for each row of a table over r states."""
        return sum(table.size - table[..., 0].size for table in self.tables)

    def log_likelihood(self, frame: Any) -> FloatArray:
        """Return the natural logarithm of the probability of each row.

        Parameters
        ----------
        frame : DataFrame, array of shape (n, d), or DiscreteTable
            Columns are matched by name and may be in any order; other columns are ignored. The
            columns of an array are in the network's order. The weights of a `DiscreteTable` are
            ignored.

        Returns
        -------
        ndarray of float64, shape (n,)
            Minus infinity for a row of probability 0.

        Raises
        ------
        DataError
            If a variable is missing, or a value is not one of its states.
        """
        codes = codes_of(frame, self.names, self.states)
        total = np.zeros(codes.shape[1])
        for j, table in enumerate(self.tables):
            with np.errstate(divide="ignore"):
                logs = np.log(table)
            total += logs[tuple(codes[[*self.parents[j], j]])]
        return total

    def sample_table(
        self, num_rows: int, seed: int | Sequence[int] | np.random.Generator | None = None
    ) -> DiscreteTable:
        """Sample independent rows as a `DiscreteTable` with the network's states.

        Parameters and errors are those of `sample`.
        """
        if num_rows < 0:
            raise ConfigError(f"the number of rows is {num_rows}: it must not be negative")
        rng = np.random.default_rng(seed)
        codes = np.zeros((len(self.names), num_rows), dtype=np.uint8)
        for j in topological_order(parent_matrix(self.parents)):
            cumulative = np.cumsum(self.tables[j], axis=-1)
            # After the division the cumulative probabilities end in exactly 1, and the random
            # numbers are below 1: no state of probability 0 is sampled.
            cumulative /= cumulative[..., -1:]
            bounds = cumulative[tuple(codes[list(self.parents[j])])]
            codes[j] = (rng.random((num_rows, 1)) >= bounds).sum(axis=-1)
        return DiscreteTable(self.names, self.states, codes)

    def sample(
        self, num_rows: int, seed: int | Sequence[int] | np.random.Generator | None = None
    ) -> pd.DataFrame:
        """Sample independent rows; the same seed gives the same rows.

        Parameters
        ----------
        num_rows : int
            n, at least 0.
        seed : int, sequence of int, or numpy.random.Generator, optional
            Default: different rows with every call.

        Returns
        -------
        pandas.DataFrame
            n rows; the values are names of states, the columns in the network's order.

        Raises
        ------
        ConfigError
            If ``num_rows`` is negative.
        """
        import pandas as pd

        codes = self.sample_table(num_rows, seed).codes
        columns = {
            name: np.array(own, dtype=object)[row]
            for name, own, row in zip(self.names, self.states, codes, strict=True)
        }
        return pd.DataFrame(columns, columns=pd.Index(self.names))

    @classmethod
    def from_counts(
        cls,
        names: Sequence[str],
        states: Sequence[Sequence[str]],
        parents: Sequence[Sequence[int]],
        counts: Sequence[ArrayLike],
        *,
        equivalent_sample_size: float,
    ) -> BayesianNetwork:
        """Fit the probabilities of a given DAG to counts.

        Parameters
        ----------
        names, states, parents
            See the parameters of the class.
        counts : sequence of array_like
            ``counts[j]`` has the shape of ``tables[j]``: the number of rows with each state of j
            and each configuration of its parents. These are results of `family_counts`, summed over
            parties.
        equivalent_sample_size : float
            Weight of the BDeu prior in rows, see `posterior_mean`.

        Raises
        ------
        DataError
            If counts are negative, not finite, or of another shape.
        ConfigError
            If the equivalent sample size is negative or not finite.
        """
        if len(counts) != len(names):
            raise DataError(f"{len(counts)} counts for {len(names)} variables: give one each")
        tables = [
            posterior_mean(name, given, equivalent_sample_size)
            for name, given in zip(names, counts, strict=True)
        ]
        return cls(
            tuple(names),
            tuple(tuple(own) for own in states),
            tuple(tuple(own) for own in parents),
            tuple(tables),
        )

    def save(self, path: str | Path) -> None:
        """Write the network to a JSON file, without loss."""
        content = {
            "format": FORMAT,
            "names": list(self.names),
            "states": [list(own) for own in self.states],
            "parents": [list(own) for own in self.parents],
            "tables": [table.ravel().tolist() for table in self.tables],
        }
        Path(path).write_text(json.dumps(content), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> BayesianNetwork:
        """Return the network of a file that :meth:`save` wrote.

        Raises
        ------
        DataError
            If the file is not JSON, or holds no valid network.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{path} is not JSON ({error})") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise DataError(f"{path} does not hold a Bayesian network of this version ({FORMAT})")
        try:
            names, states, parents = (content[key] for key in ("names", "states", "parents"))
            tables = [
                np.array(flat, dtype=np.float64).reshape([len(states[k]) for k in (*parents[j], j)])
                for j, flat in enumerate(content["tables"])
            ]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise DataError(f"{path} holds a damaged network ({error}): save it again") from error
        return cls(tuple(names), tuple(states), tuple(parents), tuple(tables))


def fit(
    table: DiscreteTable, adjacency: ArrayLike, *, equivalent_sample_size: float = 1.0
) -> BayesianNetwork:
    """Fit the probabilities of a given DAG to rows.

    Parameters
    ----------
    table : DiscreteTable
        The data.
    adjacency : array_like, shape (d, d)
        The DAG: non-zero at ``[i, j]`` where i causes j, in the order of the table's variables.
    equivalent_sample_size : float, default 1.0
        Weight of the BDeu prior in rows, see `posterior_mean`. The default is that of
        `scores.TableGains`.

    Raises
    ------
    DataError
        If the adjacency has a directed cycle or another shape than the table.
    ConfigError
        If the equivalent sample size is negative or not finite.
    """
    mask = np.asarray(adjacency) != 0
    d = len(table.names)
    if mask.shape != (d, d):
        raise DataError(f"the adjacency has shape {mask.shape}, expected {(d, d)}")
    parents = [np.flatnonzero(mask[:, j]).tolist() for j in range(d)]
    check_parents(table.names, parents)
    counts = [family_counts(table, j, parents[j]) for j in range(d)]
    return BayesianNetwork.from_counts(
        table.names, table.states, parents, counts, equivalent_sample_size=equivalent_sample_size
    )


#: Largest distance from 1 of a sum of probabilities, for rounding errors.
ROW_TOLERANCE = 1e-9

#: Largest number of cells of a table (2 GiB).
MAX_CELLS = 2**28


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


def held_out_log_likelihood(counts: IntArray, equivalent_sample_size: float) -> float:
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
    if cells > MAX_CELLS:
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
    array = np.array(table, dtype=np.float64)
    if array.shape != shape:
        raise DataError(
            f"the table of {name!r} has shape {array.shape}: its parents and states give {shape}"
        )
    # Both comparisons are false for NaN, so that NaN is refused.
    if not ((array >= 0).all() and (np.abs(array.sum(axis=-1) - 1) <= ROW_TOLERANCE).all()):
        raise DataError(
            f"the table of {name!r} must hold probabilities that sum to 1 over the last axis"
        )
    array.flags.writeable = False
    return array


def codes_of(
    frame: Any, names: tuple[str, ...], states: tuple[tuple[str, ...], ...]
) -> NDArray[np.uint8]:
    """Return the codes of a table's values among given states.

    Parameters
    ----------
    frame : DataFrame, array of shape (n, d), or DiscreteTable
        Columns are matched by name and may be in any order; other columns are ignored. The columns
        of an array are in the order of ``names``.
    names : tuple of str
        The d variables.
    states : tuple of tuple of str
        The states of each variable.

    Returns
    -------
    ndarray of uint8, shape (d, n)
        The index of each value among the states of its variable.

    Raises
    ------
    DataError
        If a variable is missing, or a value is not one of its states.
    """
    if isinstance(frame, DiscreteTable):
        return _recoded(frame, names, states)
    if not hasattr(frame, "columns"):
        import pandas as pd

        array = np.asarray(frame)
        if array.ndim != 2 or array.shape[1] != len(names):
            raise DataError(f"expected an array of {len(names)} columns, got shape {array.shape}")
        frame = pd.DataFrame(array, columns=pd.Index(names))
    return as_discrete(frame, names, states).codes


def _recoded(
    table: DiscreteTable, names: tuple[str, ...], states: tuple[tuple[str, ...], ...]
) -> NDArray[np.uint8]:
    """Return the codes of a table whose variables and states may be in another order."""
    missing = [name for name in names if name not in table.names]
    if missing:
        raise DataError(f"the table has no column {missing[0]!r}")
    result = np.empty((len(names), table.codes.shape[1]), dtype=np.uint8)
    for j, (name, known) in enumerate(zip(names, states, strict=True)):
        position = {state: code for code, state in enumerate(known)}
        column = table.names.index(name)
        lookup = np.array([position.get(state, -1) for state in table.states[column]], dtype=int)
        codes = lookup[table.codes[column]]
        if (codes < 0).any():
            raise DataError(
                f"column {name!r} has a value that is not among its {len(known)} states: correct "
                "the value, or drop the row"
            )
        result[j] = codes
    return result
