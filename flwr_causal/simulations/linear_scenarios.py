"""The simulations of Ng & Zhang (AISTATS 2022), section 6: settings and data.

Linear systems on ER graphs with d edges, coefficients from +-[0.5, 2], standard Gaussian noise, and
rows that are split evenly. A setting is simulated once for each seed:

>>> from flwr_causal.simulations import simulate
>>> for setting in growing_dimension():  # doctest: +SKIP
...     parties, truth = setting.data(seed=0)
...     run = simulate("notears-admm", parties, truth=truth)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.partition import draw_rows, split_even
from flwr_causal.data.synthetic.linear import federated_linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

#: Numbers of parties in the suites with a fixed number of rows (section 6.1 and Sachs).
PARTIES = (2, 4, 8, 16, 32, 64)
#: Rows that the paper draws from the 853 observational ones of Sachs et al. (2005), section 6.3.
SACHS_ROWS = 512


class LinearSetting(NamedTuple):
    """One setting of a suite.

    Attributes
    ----------
    num_variables : int
        d.
    num_rows : int
        n, of all parties together.
    num_parties : int
        K.
    """

    num_variables: int
    num_rows: int
    num_parties: int

    def data(self, seed: int) -> tuple[list[pd.DataFrame], CausalGraph]:
        """Simulate the parties' tables and the true graph.

        The rows of all parties together depend only on d, n and the seed: settings with different
        numbers of parties split the same rows.

        Raises
        ------
        DataError
            If there are fewer rows than parties.
        """
        parties, weights = federated_linear(*self, seed=seed)
        return parties, CausalGraph.from_array(weights)


def growing_dimension(
    dimensions: Sequence[int] = (10, 20, 50, 100), num_parties: int = 10
) -> tuple[LinearSetting, ...]:
    """Return the settings of the paper's first suite: n = 3 d rows over ten parties."""
    return tuple(LinearSetting(d, 3 * d, num_parties) for d in dimensions)


def growing_parties(
    dimensions: Sequence[int] = (10, 20, 50),
    parties: Sequence[int] = PARTIES,
    num_rows: int = 256,
) -> tuple[LinearSetting, ...]:
    """Return the settings of the paper's second suite: 256 rows over 2 to 64 parties."""
    return tuple(LinearSetting(d, num_rows, K) for d in dimensions for K in parties)


def sachs_parties(frame: pd.DataFrame, num_parties: int, seed: int) -> list[pd.DataFrame]:
    """Draw 512 rows of a table at random and split them evenly, as in section 6.3.

    Parameters
    ----------
    frame : DataFrame
        The table; in the paper the 853 observational rows of Sachs et al. (2005).
    num_parties : int
        K.
    seed : int
        Seed of the choice and the order of the rows.

    Raises
    ------
    DataError
        If the table has too few rows.
    """
    return split_even(draw_rows(frame, SACHS_ROWS, seed), num_parties, seed)
