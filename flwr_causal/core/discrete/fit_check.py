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

from flwr_causal.core.graphs.fit_check import check_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.fit_check import FitCheck, Tested

#: A test needs so many rows for each cell of its table.
ROWS_A_CELL = 5


def check(
    names: Sequence[str], edges: BoolArray, counts: Callable[[list[int]], FloatArray | None]
) -> FitCheck:
    """Test the independencies that a DAG implies.

    Parameters
    ----------
    names
        The d variables.
    edges
        ``(d, d)``.
    counts
        Returns the counts of some variables, an axis for each, or None where they are unknown.
    """

    def tests(j: int, parents: IntArray, others: IntArray) -> Iterator[Tested | None]:
        for i in others.tolist():
            yield _tested(counts([*parents.tolist(), i, j]))

    return check_order(names, edges, tests)


def _tested(table: FloatArray | None) -> Tested | None:
    """Test the independence of the last two axes; None where rows are too few."""
    if table is None or table.sum() < ROWS_A_CELL * table.size:
        return None
    statistic, degrees = likelihood_ratio(table)
    if not degrees:
        return None
    # The smaller number of states bounds the ratio, as in Cramér's V without strata.
    largest = table.sum() * (min(table.shape[-2:]) - 1)
    strength = float(np.sqrt(min(statistic / largest, 1.0)))
    return strength, statistic, p_value(statistic, degrees)


def edge_ratio(family: FloatArray, axis: int) -> tuple[float, int, int]:
    """Return the likelihood ratio of an edge given the other parents, its degrees and the rows.

    Parameters
    ----------
    family
        Counts, with an axis for each parent and a last one for the effect.
    axis
        Of the cause.
    """
    statistic, degrees = likelihood_ratio(np.moveaxis(family, axis, -2))
    return statistic, degrees, round(float(family.sum()))


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
