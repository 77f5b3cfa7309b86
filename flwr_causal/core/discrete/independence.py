"""Tests of the independence of categories, from counts.

The test is G, the likelihood ratio, over the tables of the two variables for each configuration of
the given ones.

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

from flwr_causal.core.graphs.independence import Independence, IndependenceTests

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.graphs.independence import Variables

#: A test needs so many rows for each cell of its table.
ROWS_A_CELL = 5


class CountTests(IndependenceTests):
    """Tests of categories.

    Parameters
    ----------
    names : sequence of str
        The d variables.
    counts : callable
        Returns the counts of some variables, an axis for each, or None where they are unknown.
    rows_a_cell : int, default 5
        There is no test of fewer rows for each cell of its table.
    """

    def __init__(
        self,
        names: Sequence[str],
        counts: Callable[[list[int]], FloatArray | None],
        rows_a_cell: int = ROWS_A_CELL,
    ) -> None:
        self.names, self.counts, self.rows_a_cell = names, counts, rows_a_cell

    def test(self, i: int, j: int, given: Variables) -> Independence | None:
        """Test whether i and j are independent in each configuration of others."""
        table = self.counts([*map(int, given), i, j])
        if table is None or table.sum() < self.rows_a_cell * table.size:
            return None
        return independence(table)


def independence(table: FloatArray | IntArray) -> Independence | None:
    """Test the independence of the last two axes; None where no degree of freedom is left.

    Parameters
    ----------
    table
        Counts; the axes before the last two are the condition.
    """
    ratio, degrees = likelihood_ratio(table)
    if not degrees:
        return None
    rows = float(table.sum())
    # The smaller number of states bounds the ratio, as in Cramér's V without strata.
    largest = rows * (min(table.shape[-2:]) - 1)
    return Independence.by_ratio(ratio, degrees, rows, float(np.sqrt(min(ratio / largest, 1.0))))


def likelihood_ratio(table: FloatArray | IntArray) -> tuple[float, int]:
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
