"""The simulations of Chen, Ma & Yue (2024), section 4: settings and data.

Stationary linear systems with one lag, and n usable rows in independent series, one for each party.
A setting is simulated once for each seed:

>>> from flwr_causal.simulations import simulate
>>> for setting in growing_dimension():  # doctest: +SKIP
...     parties, truth = setting.data(seed=0)
...     run = simulate("2dbn", parties, truth=truth)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.simulations.linear_scenarios import PARTIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.graphs.graph import CausalGraph


class SeriesSetting(NamedTuple):
    """One setting of a suite.

    Attributes
    ----------
    num_variables : int
        d.
    num_rows : int
        n, usable rows of all parties together.
    num_parties : int
        K.
    order : int
        p.
    """

    num_variables: int
    num_rows: int
    num_parties: int
    order: int = 1

    def data(self, seed: int) -> tuple[list[pd.DataFrame] | list[list[pd.DataFrame]], CausalGraph]:
        """Simulate one series for each party, and return the series and the true graph.

        The system depends only on d, p and the seed, not on the numbers of rows and parties.

        Raises
        ------
        DataError
            If there are fewer than two rows for a party.
        """
        d, num_rows, num_parties, order = self
        return federated_dynamic(d, num_rows, num_parties, order=order, seed=seed)


def growing_dimension(
    dimensions: Sequence[int] = (5, 10, 15, 20), num_parties: int = 10
) -> tuple[SeriesSetting, ...]:
    """Return the settings of section 4.1: n = 5 d rows, or 6 d for odd d, over ten parties.

    The paper uses 6 d where 5 d is not a multiple of ten, so that all parties have equally many
    rows.
    """
    return tuple(SeriesSetting(d, (6 if d % 2 else 5) * d, num_parties) for d in dimensions)


def growing_parties(
    dimensions: Sequence[int] = (10, 20),
    parties: Sequence[int] = PARTIES,
    rows: Sequence[int] = (256, 512),
) -> tuple[SeriesSetting, ...]:
    """Return the settings of section 4.2: 256 or 512 rows over 2 to 64 parties."""
    return tuple(SeriesSetting(d, n, K) for n in rows for d in dimensions for K in parties)
