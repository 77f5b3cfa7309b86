"""Whether rows of categories agree with a network's graph, from counts.

In a causal order each variable is independent, given its parents, of every variable before it that
is no parent. Each statement is tested by G, the likelihood ratio, over the tables of the two
variables for each configuration of the parents.

References
----------
Spirtes, P., Glymour, C. & Scheines, R. (2000). Causation, prediction, and search. Section 5.5.
(Degrees of freedom without the rows and columns of zeros.)
Tsamardinos, I., Brown, L. E. & Aliferis, C. F. (2006). The max-min hill-climbing Bayesian network
structure learning algorithm. Machine Learning 65. (Tests need five rows a cell.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.doubt import EdgeTest
from flwr_causal.core.graphs.fit_check import check_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.fit_check import FitCheck, Tested

#: A test needs so many rows for each cell of its table.
ROWS_A_CELL = 5


def check(
    names: Sequence[str],
    parents: Sequence[Sequence[int]],
    counts: Callable[[list[int]], FloatArray | None],
) -> FitCheck:
    """Test the independencies that a DAG implies.

    Parameters
    ----------
    names
        The d variables.
    parents
        Of each.
    counts
        Returns the counts of some variables, an axis for each, or None where they are unknown.
    """
    edges: BoolArray = np.zeros((len(names), len(names)), dtype=bool)
    for child, own in enumerate(parents):
        edges[list(own), child] = True

    def test(i: int, j: int, given: IntArray) -> Tested | None:
        table = counts([*given.tolist(), i, j])
        if table is None or table.sum() < ROWS_A_CELL * table.size:
            return None
        statistic, degrees = likelihood_ratio(table)
        if not degrees:
            return None
        # The smaller number of states bounds the ratio, as in Cramér's V without strata.
        largest = table.sum() * (min(table.shape[-2:]) - 1)
        strength = float(np.sqrt(min(statistic / largest, 1.0)))
        return strength, statistic, p_value(statistic, degrees)

    return check_order(names, edges, test)


def edge_tests(
    names: Sequence[str], parents: Sequence[Sequence[int]], counts: Sequence[FloatArray]
) -> list[EdgeTest]:
    """Test each edge given the other parents of its effect.

    Parameters
    ----------
    names, parents
        As in :func:`check`.
    counts
        For each variable an array with an axis for each parent and a last one for the variable.
    """
    found = []
    for j, table in enumerate(counts):
        for axis, i in enumerate(parents[j]):
            statistic, degrees = likelihood_ratio(np.moveaxis(table, axis, -2))
            if degrees:
                rows = round(float(table.sum()))
                found.append(EdgeTest(names[i], names[j], statistic, degrees, rows))
    return found


def likelihood_ratio(table: FloatArray) -> tuple[float, int]:
    """Return G and its degrees of freedom for the independence of the last two axes.

    Parameters
    ----------
    table
        Counts; the axes before the last two are the condition.
    """
    strata = np.asarray(table, dtype=np.float64).reshape(-1, *table.shape[-2:])
    rows, columns = strata.sum(axis=2), strata.sum(axis=1)
    total = strata.sum(axis=(1, 2))
    expected = rows[:, :, None] * columns[:, None, :]
    seen = strata > 0
    whole = np.broadcast_to(total[:, None, None], strata.shape)[seen]
    statistic = 2 * float((strata[seen] * np.log(strata[seen] * whole / expected[seen])).sum())
    free = ((rows > 0).sum(axis=1) - 1) * ((columns > 0).sum(axis=1) - 1)
    return max(statistic, 0.0), int(free[total > 0].sum())


def p_value(statistic: float, degrees: int) -> float:
    """Return the probability of a larger likelihood ratio under independence."""
    from scipy.special import chdtrc

    return float(chdtrc(degrees, statistic))
