"""Whether a graph fits the rows: tests of the independencies that it implies, and their report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.doubt import EdgeTest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

#: A test rejects below this corrected p-value, in the words of a report.
LEVEL = 0.05
#: So many rejected pairs are printed of each kind.
MOST_PRINTED = 5


class PairTest(NamedTuple):
    """The test of one pair of variables.

    Attributes
    ----------
    first, second
        The variables, ``second`` not before ``first`` in the causal order.
    given
        The variables of the condition.
    estimate
        The correlation that the graph says is 0; of categories Cramér's V.
    statistic
        Student's t; of categories G, the likelihood ratio.
    p_value
        Of this test alone.
    """

    first: str
    second: str
    given: tuple[str, ...]
    estimate: float
    statistic: float
    p_value: float


@dataclass(frozen=True, eq=False, repr=False)
class FitCheck:
    """What speaks against a graph; see docs/effects.md for what it can and cannot tell.

    Attributes
    ----------
    independencies : DataFrame
        A row for each tested pair without an edge, the smallest p-values first: ``first``,
        ``second``, ``given`` (the parents of ``second``), ``estimate`` (the partial correlation; of
        categories Cramér's V), ``statistic`` (t, or G), ``p_value``, and ``corrected``: the p-value
        after Holm's correction for the number of rows of this table.
    residuals : DataFrame
        A row for each tested pair without an edge, with the same columns but ``given``:
        ``estimate`` is the correlation of the two variables' residuals. Residuals of two variables
        that are correlated have a common cause which the graph does not show, or lack an edge.
        Empty for categories, and where the rows are not the same for all variables.
    untested : int
        Pairs without an edge that could not be tested: moments or counts are unknown, or rows are
        too few.
    statistic, degrees, p_value : float, int, float; or None
        Likelihood ratio test of the graph against the same order with all edges, which has the
        chi-square distribution with so many degrees of freedom if the graph is right. None where
        moments are unknown or rows too few, and for categories.
    held_out_log_likelihood : float or None
        Mean log density of rows that the parameters were not fitted to, in nats a row. None where
        there are none.
    held_out_by : str
        What was held out, in words.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> check = simulate("moments", federated_linear(4, 400, 2)[0]).fit_check()
    >>> list(check.independencies.columns[:3])
    ['first', 'second', 'given']
    """

    independencies: pd.DataFrame
    residuals: pd.DataFrame
    untested: int = 0
    statistic: float | None = None
    degrees: int | None = None
    p_value: float | None = None
    held_out_log_likelihood: float | None = None
    held_out_by: str = ""

    @property
    def rejected(self) -> pd.DataFrame:
        """The rows of ``independencies`` whose corrected p-value is below 0.05."""
        return self.independencies[self.independencies["corrected"] < LEVEL]

    @property
    def dependent_residuals(self) -> pd.DataFrame:
        """The rows of ``residuals`` whose corrected p-value is below 0.05."""
        return self.residuals[self.residuals["corrected"] < LEVEL]

    def with_rows(self, log_likelihood: float) -> FitCheck:
        """Return the check with the mean log density of rows that were given."""
        by = "the rows that were given"
        return replace(self, held_out_log_likelihood=log_likelihood, held_out_by=by)

    def summary(self) -> str:
        """Return the check in one line."""
        said = []
        if len(self.independencies):
            tested = f"{len(self.rejected)} of {len(self.independencies)}"
            said.append(f"{tested} implied independencies fail")
        if self.p_value is not None:
            said.append(f"the graph as a whole has p = {self.p_value:.2g}")
        if self.held_out_log_likelihood is not None:
            said.append(
                f"held-out log-likelihood {self.held_out_log_likelihood:.4g} nats a row "
                f"({self.held_out_by})"
            )
        if self.untested:
            said.append(f"{self.untested} pairs could not be tested")
        return "; ".join(said) or "there is nothing to test"

    def __str__(self) -> str:
        lines = [f"Fit: {self.summary()}"]
        for row in self.rejected.head(MOST_PRINTED).to_dict("records"):
            given = f" given {', '.join(row['given'])}" if row["given"] else ""
            lines.append(
                f"  {row['first']} and {row['second']} are dependent{given} "
                f"({row['estimate']:+.2f}, corrected p = {row['corrected']:.1g})"
            )
        hidden = self.dependent_residuals.head(MOST_PRINTED).to_dict("records")
        if hidden:
            pairs = ", ".join(f"{row['first']} and {row['second']}" for row in hidden)
            lines.append(f"  Correlated residuals, perhaps of a hidden common cause: {pairs}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<FitCheck: {self.summary()}>"


#: Of a test the estimate, the statistic and the p-value.
Tested: TypeAlias = tuple[float, float, float]


def check_order(
    names: Sequence[str],
    edges: BoolArray,
    tests: Callable[[int, IntArray, IntArray], Iterable[Tested | None]],
    residuals: Iterable[PairTest] = (),
) -> FitCheck:
    """Test that each variable is independent, given its parents, of what comes before it.

    These statements, one for each pair without an edge, imply all others that the graph implies
    (Shipley 2000, A new inferential test for path models based on directed acyclic graphs,
    Structural Equation Modeling 7).

    Parameters
    ----------
    names : sequence of str
        The m variables.
    edges : ndarray of bool, shape (m, d)
        The parents of the first d variables, which form a DAG. The others, of the past, come before
        these, and are not tested.
    tests : callable
        ``(j, parents, others) -> tests`` of the independence of j and each of some others given the
        parents of j; None where it cannot be tested.
    residuals : iterable of PairTest, default ()
        Tests of the residuals.
    """
    before, found = before_each(edges), []
    for j in range(edges.shape[1]):
        parents, others = np.flatnonzero(edges[:, j]), np.flatnonzero(before[:, j] & ~edges[:, j])
        given = tuple(names[k] for k in parents.tolist())
        for i, tested in zip(others.tolist(), tests(j, parents, others), strict=True):
            if tested is not None:
                found.append(PairTest(names[i], names[j], given, *tested))
    untested = int((before & ~edges).sum()) - len(found)
    return FitCheck(tests_table(found), tests_table(residuals).drop(columns="given"), untested)


def before_each(edges: BoolArray) -> BoolArray:
    """Return the mask of the variables before each one in a causal order, ``(m, d)``.

    Variables of the past come before all others.
    """
    d = edges.shape[1]
    rank = np.empty(d, dtype=np.int64)
    rank[topological_order(edges[:d])] = np.arange(d)
    result = np.ones(edges.shape, dtype=bool)
    result[:d] = rank[:, None] < rank
    return result


def edge_tests(
    names: Sequence[str],
    edges: BoolArray,
    ratio: Callable[[int, int, IntArray], tuple[float, int, int]],
) -> list[EdgeTest]:
    """Test each edge given the other parents of its effect; edges without a test are left out.

    Parameters
    ----------
    names, edges
        As in :func:`check_order`.
    ratio : callable
        ``(i, j, others) -> (likelihood ratio, degrees, rows)`` of the dependence of j on i given
        others; with 0 degrees there is no test.
    """
    found = []
    for j, i in np.argwhere(edges.T).tolist():
        others = np.flatnonzero(edges[:, j])
        statistic, degrees, rows = ratio(i, j, others[others != i])
        if degrees:
            found.append(EdgeTest(names[i], names[j], statistic, degrees, rows))
    return found


def holm(p_values: FloatArray) -> FloatArray:
    """Return p-values corrected for their number by Holm's method, in the same order."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return corrected


def tests_table(tests: Iterable[PairTest]) -> pd.DataFrame:
    """Return tests as a table with corrected p-values, the smallest first."""
    import pandas as pd

    table = pd.DataFrame(list(tests), columns=list(PairTest._fields))
    table["corrected"] = holm(table["p_value"].to_numpy(dtype=np.float64))
    return table.sort_values("p_value", kind="stable", ignore_index=True)
