"""Whether a graph fits the rows: tests of the independencies that it implies, and their report.

The tests are those of :mod:`~flwr_causal.core.graphs.independence`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.doubt import EdgeTest
from flwr_causal.core.graphs.independence import PairTest, holm

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.graphs.independence import IndependenceTests

#: A test rejects below this corrected p-value, in the words of a report.
LEVEL = 0.05
#: So many rejected pairs are printed of each kind.
MOST_PRINTED = 5


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


def check(
    tests: IndependenceTests,
    edges: BoolArray,
    held_out: float | None = None,
    held_out_by: str = "",
) -> FitCheck:
    """Test that each variable is independent, given its parents, of what comes before it.

    These statements, one for each pair without an edge, imply all others that the graph implies
    (Shipley 2000, A new inferential test for path models based on directed acyclic graphs,
    Structural Equation Modeling 7).

    Parameters
    ----------
    tests : IndependenceTests
        Of the m variables.
    edges : ndarray of bool, shape (m, d)
        The parents of the first d variables, which form a DAG. The others, of the past, come before
        these, and are not tested.
    held_out, held_out_by
        See `FitCheck`.
    """
    before, names, found = before_each(edges), tests.names, []
    for j in range(edges.shape[1]):
        parents, others = np.flatnonzero(edges[:, j]), np.flatnonzero(before[:, j] & ~edges[:, j])
        given = tuple(names[k] for k in parents.tolist())
        for i, tested in zip(others.tolist(), tests.each(others, j, parents), strict=True):
            if tested is not None:
                found.append(PairTest(names[i], names[j], given, *tested[:3]))
    statistic, degrees, p_value = tests.whole_test(edges, before)
    return FitCheck(
        tests_table(found),
        tests_table(tests.residual_tests(edges, before)).drop(columns="given"),
        int((before & ~edges).sum()) - len(found),
        statistic=statistic,
        degrees=degrees,
        p_value=p_value,
        held_out_log_likelihood=held_out,
        held_out_by="" if held_out is None else held_out_by,
    )


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


def edge_tests(tests: IndependenceTests, edges: BoolArray) -> list[EdgeTest]:
    """Test each edge given the other parents of its effect; edges without a test are left out.

    Parameters
    ----------
    tests, edges
        As in :func:`check`.
    """
    found = []
    for j, i in np.argwhere(edges.T).tolist():
        others = np.flatnonzero(edges[:, j])
        test = tests.test(i, j, others[others != i])
        if test is not None:
            names = tests.names[i], tests.names[j]
            found.append(EdgeTest(*names, test.ratio, test.degrees, round(test.rows)))
    return found


def tests_table(tests: Iterable[PairTest]) -> pd.DataFrame:
    """Return tests as a table with corrected p-values, the smallest first."""
    import pandas as pd

    table = pd.DataFrame(list(tests), columns=list(PairTest._fields))
    table["corrected"] = holm(table["p_value"].to_numpy(dtype=np.float64))
    return table.sort_values("p_value", kind="stable", ignore_index=True)
