"""The simulations of the papers: their settings, their data and their baselines.

Ng & Zhang (AISTATS 2022), section 6: linear systems on ER graphs with d edges, coefficients from
+-[0.5, 2], standard Gaussian noise; the rows are dealt out evenly. Each setting of a suite takes
one seed for each repetition:

>>> from flwr_causal.simulations import simulate
>>> for setting in growing_dimension():  # doctest: +SKIP
...     parties, truth = linear_data(setting, seed=0)
...     run = simulate("notears-admm", parties, truth=truth)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.core.linear import baselines
from flwr_causal.core.linear.moments import as_moments
from flwr_causal.data.partition import split_even
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.arrays import FloatArray

Metrics = dict[str, float | int | bool]

#: Numbers of parties in the suites whose rows are spread ever thinner (section 6.1 and Sachs).
PARTIES = (2, 4, 8, 16, 32, 64)
#: Rows that the paper draws from the 853 observational ones of Sachs et al. (2005), section 6.3.
SACHS_ROWS = 512


class Setting(NamedTuple):
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


def growing_dimension(
    dimensions: Sequence[int] = (10, 20, 50, 100), num_parties: int = 10
) -> tuple[Setting, ...]:
    """Return the settings of the paper's first suite: n = 3 d rows over ten parties."""
    return tuple(Setting(d, 3 * d, num_parties) for d in dimensions)


def growing_parties(
    dimensions: Sequence[int] = (10, 20, 50),
    parties: Sequence[int] = PARTIES,
    num_rows: int = 256,
) -> tuple[Setting, ...]:
    """Return the settings of the paper's second suite: 256 rows over 2 to 64 parties."""
    return tuple(Setting(d, num_rows, K) for d in dimensions for K in parties)


def linear_data(setting: Setting, seed: int) -> tuple[list[pd.DataFrame], FloatArray]:
    """Simulate the parties' tables and the true weights ``(d, d)`` of a setting.

    The rows of all parties together depend on d, n and the seed only, so that suites with different
    numbers of parties differ by how the rows are spread and by nothing else.

    Raises
    ------
    DataError
        If there are fewer rows than parties.
    """
    return federated_linear(setting.num_variables, setting.num_rows, setting.num_parties, seed=seed)


def real_data(
    frame: pd.DataFrame, num_parties: int, seed: int, num_rows: int | None = SACHS_ROWS
) -> list[pd.DataFrame]:
    """Draw rows of a table without replacement and deal them out evenly.

    Parameters
    ----------
    frame : DataFrame
    num_parties : int
    seed : int
        Chooses the rows and shuffles them.
    num_rows : int or None, default 512
        Rows to draw, the paper's number for the data of Sachs et al.; None: all of them.

    Raises
    ------
    DataError
        If the table has too few rows.
    """
    if num_rows is not None:
        if num_rows > len(frame):
            raise DataError(
                f"{num_rows} rows are to be drawn from a table of {len(frame)}; ask for fewer, or "
                "give num_rows=None for all"
            )
        drawn = np.random.default_rng(seed).choice(len(frame), num_rows, replace=False)
        frame = frame.iloc[drawn]
    return split_even(frame, num_parties, seed)


def compare_baselines(parties: Sequence[pd.DataFrame], truth: FloatArray) -> dict[str, Metrics]:
    """Return the metrics of the paper's baselines, by their names there.

    ``AllData`` is NOTEARS on the pooled rows; ``Voting``, ``Avg`` and ``Best`` put together what
    NOTEARS finds at each party alone. Voting and Avg may have cycles (``acyclic`` says so).
    """
    moments = [as_moments(party) for party in parties]
    graphs = baselines.alone(moments)
    true_graph = CausalGraph.from_array(truth, moments[0].names)
    estimates = {
        "AllData": baselines.all_data(moments),
        "Voting": baselines.voting(graphs),
        "Avg": baselines.average(graphs),
        "Best": baselines.best(graphs, true_graph),
    }
    return {name: compare(true_graph, graph) for name, graph in estimates.items()}
