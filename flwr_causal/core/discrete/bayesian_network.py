"""Discrete Bayesian networks: a DAG and, for each variable, a table of probabilities.

``tables[j]`` has one axis for each parent of j, in the order of ``parents[j]``, and a last axis for
the states of j, over which it sums to 1. Given the DAG, the counts of each variable with its
parents are all that fitting needs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_causal.core.discrete.discrete import MAX_STATES, DiscreteTable
from flwr_causal.core.discrete.probability_tables import (
    check_parents,
    checked_table,
    family_counts,
    parent_matrix,
    posterior_mean,
    table_shape,
)
from flwr_causal.core.discrete.recoding import codes_of
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.checked_arrays import distinct_names
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

FloatArray = NDArray[np.float64]

__all__ = ["BayesianNetwork", "family_counts", "fit"]

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
        ``tables[j][states of the parents..., state]`` is the probability of the state given those
        of the parents: non-negative, the last axis sums to 1.

    Raises
    ------
    DataError
        If something does not fit; the message names the variable.
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
                    f"variable {name!r} has {len(own)} states, some perhaps twice: expected "
                    f"different ones, at least 1 and at most {MAX_STATES}"
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

    @property
    def graph(self) -> CausalGraph:
        """The DAG, each edge of weight 1."""
        return CausalGraph(self.names, parent_matrix(self.parents).astype(np.float64))

    @property
    def num_parameters(self) -> int:
        """Number of free probabilities: a row of r states has r - 1 of them."""
        return sum(table.size - table[..., 0].size for table in self.tables)

    def log_likelihood(self, frame: Any) -> FloatArray:
        """Natural logarithm of the probability of each row.

        Parameters
        ----------
        frame : DataFrame, array of shape (n, d), or DiscreteTable
            Columns are found by name, in any order, and others are passed over; the columns of an
            array are in the network's order. The weights of a table of categories are not applied.

        Returns
        -------
        ndarray of float64, shape (n,)
            Minus infinity for a row that the network holds impossible.

        Raises
        ------
        DataError
            If a variable is missing, or a value is none of its states.
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
        """Draw rows as a table of categories, whose states are the network's.

        Raises
        ------
        ConfigError
            If ``num_rows`` is negative.
        """
        if num_rows < 0:
            raise ConfigError(f"the number of rows is {num_rows}: it must not be negative")
        rng = np.random.default_rng(seed)
        codes = np.zeros((len(self.names), num_rows), dtype=np.uint8)
        for j in topological_order(parent_matrix(self.parents)):
            cumulative = np.cumsum(self.tables[j], axis=-1)
            # Divided by its last element it ends in exactly 1, which no draw reaches, and an
            # impossible last state begins there: no state of probability 0 is ever drawn.
            cumulative /= cumulative[..., -1:]
            bounds = cumulative[tuple(codes[list(self.parents[j])])]
            codes[j] = (rng.random((num_rows, 1)) >= bounds).sum(axis=-1)
        return DiscreteTable(self.names, self.states, codes)

    def sample(
        self, num_rows: int, seed: int | Sequence[int] | np.random.Generator | None = None
    ) -> pd.DataFrame:
        """Draw independent rows; the same seed gives the same rows.

        Parameters
        ----------
        num_rows : int
            n, 0 or more.
        seed : int, sequence of int, or Generator, optional
            Default: other rows every time.

        Returns
        -------
        DataFrame
            n rows of states, as texts, in the network's order of variables.

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
            As the network has them.
        counts : sequence of array_like
            ``counts[j]`` has the shape of ``tables[j]``: how often each state of j was seen with
            each configuration of its parents, as `family_counts` returns it, summed over parties.
        equivalent_sample_size : float
            Weight of the BDeu prior in rows: with q parent configurations and r states,
            ``equivalent_sample_size / (q r)`` is added to each count (posterior mean). With 0 the
            tables are the relative frequencies (maximum likelihood), and uniform where a
            configuration was never seen.

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
        """Write JSON; numbers survive exactly."""
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
        """Read what :meth:`save` wrote; a DataError if it is something else."""
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
        The rows.
    adjacency : array_like, shape (d, d)
        Non-zero at ``[i, j]`` where i causes j; acyclic; in the table's order.
    equivalent_sample_size : float, default 1.0
        As in :meth:`BayesianNetwork.from_counts`; 1 is the default of the search for the graph.

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
