"""Scores of structures, and the gains that a search asks for: from rows or from moments.

A score of a DAG is a sum over its families, ``sum_y s(y | Pa_y)``; all are log-probabilities or
penalised log-likelihoods in nats: higher is better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from flwr_causal.core.discrete import score_terms
from flwr_causal.core.discrete.count_kernels import family_score, fill_gains, rows_of
from flwr_causal.core.discrete.discrete import DiscreteTable, as_discrete
from flwr_causal.core.graphs.edge_lists import families_of
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.discrete.families import Families, Ints
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.linear.moments import Moments

    BoolMatrix = NDArray[np.bool_]

DiscreteScore = Literal["bdeu", "bic", "qnml"]
KINDS: dict[str, int] = {
    "bdeu": score_terms.BDEU,
    "bic": score_terms.BIC,
    "qnml": score_terms.QNML,
}

#: Cells are counted in 32 bits.
MOST_ROWS = 2**31 - 1


def check_score(score: str, equivalent_sample_size: float) -> None:
    """Raise a ConfigError for an unknown score or an impossible sample size."""
    if score not in KINDS:
        raise ConfigError(f"score is {score!r}: choose one of {', '.join(get_args(DiscreteScore))}")
    if not (np.isfinite(equivalent_sample_size) and equivalent_sample_size > 0):
        raise ConfigError(
            f"equivalent_sample_size is {equivalent_sample_size}: give a number above 0"
        )


class TableGains:
    """Gains counted from the rows of a discrete table.

    Parameters
    ----------
    table : DiscreteTable
    score : {"bdeu", "bic", "qnml"}
    equivalent_sample_size : float, default 1.0
        Of BDeu only (the default of the authors' program, Torrijos et al. 2024).

    Raises
    ------
    ConfigError
        For an unknown score or an impossible sample size.
    DataError
        For more rows than cells can count.
    """

    def __init__(
        self, table: DiscreteTable, score: str = "bdeu", equivalent_sample_size: float = 1.0
    ) -> None:
        check_score(score, equivalent_sample_size)
        if table.num_rows > MOST_ROWS:
            raise DataError(
                f"the table has {table.num_rows} rows, repeated ones counted: at most {MOST_ROWS} "
                "can be counted"
            )
        compressed = table.compressed()
        self.rows = rows_of(compressed)
        self.terms = score_terms.terms_of(KINDS[score], equivalent_sample_size, table.num_rows)

    @property
    def nbytes(self) -> int:
        """Memory of rows and bits."""
        return self.rows.codes.nbytes + self.rows.bits.nbytes + self.terms.tables.nbytes

    def enough(self, num_operators: int) -> bool:
        """Return False: rows answer everything."""
        return False

    def fill(self, families: Families, rows: Ints, wanted: BoolMatrix) -> None:
        """Count the wanted gains."""
        while (done := fill_gains(self.rows, self.terms, families, rows, wanted)) >= 0:
            self.terms = score_terms.more_tables(self.terms)
            rows, wanted = rows[done:], wanted[done:]

    def family_score(self, y: int, parents: Sequence[int]) -> float:
        """Return the local score s(y | parents) in nats."""
        members = np.asarray(parents, dtype=np.int32)
        while np.isnan(score := family_score(self.rows, self.terms, y, members)):
            self.terms = score_terms.more_tables(self.terms)
        return float(score)

    def graph_score(self, adjacency: BoolMatrix) -> float:
        """Return the score of a DAG, shape (d, d), in nats."""
        return sum(self.family_score(y, parents) for y, parents in families_of(adjacency))


class MomentGains:
    """Gains of the Gaussian BIC from second moments.

    ``s(y | S) = -n/2 log var(y | S) - |S| log(n) / 2``, so that the gain of x is
    ``-n/2 log(1 - r^2) - log(n) / 2`` with r the partial correlation of x and y given S.

    Parameters
    ----------
    moments : Moments
        n and the covariances of all variables.
    """

    def __init__(self, moments: Moments) -> None:
        self.n = moments.n
        # Correlations: what counts as linearly dependent must not depend on the units.
        spread = np.sqrt(np.diag(moments.second))
        spread[spread == 0.0] = 1.0
        self.correlation = moments.second / np.outer(spread, spread)

    def enough(self, num_operators: int) -> bool:
        """Return False: moments answer everything."""
        return False

    def fill(self, families: Families, rows: Ints, wanted: BoolMatrix) -> None:
        """Compute the wanted gains."""
        for row, mask in zip(rows, wanted, strict=True):
            y, size = int(families.owners[row]), int(families.sizes[row])
            gains = self._gains(y, families.members[row, :size])
            families.gains[row, mask] = gains[mask]

    def _gains(self, y: int, given: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the gain of every variable as a further parent of y, shape (d,)."""
        C = self.correlation
        if len(given):
            # lstsq, since parents may be linearly dependent.
            coefficients = np.linalg.lstsq(C[np.ix_(given, given)], C[given], rcond=None)[0]
            with_y = C[y] - C[y, given] @ coefficients
            variances = np.diag(C) - np.einsum("sj,sj->j", C[given], coefficients)
        else:
            with_y, variances = C[y], np.diag(C).copy()
        # What S determines already adds nothing.
        known = variances <= 1e-10 * np.diag(C)
        variances = np.where(known, 1.0, variances)
        squared = np.where(known | known[y], 0.0, with_y**2 / (variances * variances[y]))
        # A variable that determines y gains a lot, not without bound.
        squared = np.clip(squared, 0.0, 1.0 - 1e-12)
        return np.asarray(-0.5 * self.n * np.log1p(-squared) - 0.5 * np.log(self.n))


def score_graph(
    graph: CausalGraph,
    table: Any,
    score: DiscreteScore = "bdeu",
    equivalent_sample_size: float = 1.0,
) -> float:
    """Return the score of a graph on a table of categories, in nats; higher is better.

    Parameters
    ----------
    graph : CausalGraph
        A DAG, or a CPDAG: all members of a class have the same score.
    table : DiscreteTable, array of shape (n, d), or anything with ``.columns``
        Its columns are found by name.
    score : {"bdeu", "bic", "qnml"}, default "bdeu"
    equivalent_sample_size : float, default 1.0
        Of BDeu.

    Raises
    ------
    DataError
        If the table lacks a variable of the graph, or the graph has a cycle.
    """
    if not graph.is_acyclic():
        raise DataError("a graph with a cycle has no score: call threshold() to remove cycles")
    discrete = as_discrete(table)
    missing = [name for name in graph.names if name not in discrete.names]
    if missing:
        raise DataError(f"the table has no column {missing[0]!r}, which the graph has")
    order = [discrete.names.index(name) for name in graph.names]
    gains = TableGains(discrete.reordered(order), score, equivalent_sample_size)
    return gains.graph_score(graph.to_dag().adjacency)
