"""The simulations of Chen, Ma & Yue (2024), section 4: settings, data and baselines.

Stationary linear systems with one lag, and n usable rows in independent series, one for each party.
A setting is simulated once for each seed:

>>> from flwr_causal.simulations import simulate
>>> for setting in growing_dimension():  # doctest: +SKIP
...     parties, truth = setting.data(seed=0)
...     run = simulate("2dbn", parties, truth=truth)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.core.linear.moments import Moments, merge
from flwr_causal.core.series.design import lagged_graph, lagged_names, lagged_rows, split_blocks
from flwr_causal.core.series.regression import dynotears
from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.errors import DataError
from flwr_causal.simulations.linear_scenarios import PARTIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.series.regression import SolverName

    Party = pd.DataFrame | Sequence[pd.DataFrame]

#: Sparsity of instantaneous and lagged weights that the authors of DYNOTEARS recommend (Pamfil et
#: al., 2020).
SPARSITY = 0.05
#: Threshold. The paper's is 0.3, the smallest weight in its data, but the L1 penalty shrinks some
#: weights below: the paper's code has SHD 19 in W at 0.3, and 4 at 0.15 (d = 20, n = 256, K = 8).
THRESHOLD = 0.15


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


def baselines(
    parties: Sequence[Party],
    truth: CausalGraph,
    *,
    solver: SolverName = "dagma",
    sparsity: float = SPARSITY,
    threshold: float = THRESHOLD,
) -> dict[str, CausalGraph]:
    """Return the graphs of the paper's baselines, by the paper's names.

    ``Alldata`` is DYNOTEARS on the rows of all series. ``Ave`` is the thresholded mean of the
    weights of DYNOTEARS on each party's rows; as in the paper, cycles are not removed. ``Best`` is
    the party's graph with the lowest SHD to the truth, instantaneous and lagged edges together.

    Parameters
    ----------
    parties : sequence of DataFrame, or of sequences of DataFrame
        The series of each party.
    truth : CausalGraph
        The true graph; its number of lags p is the order that is fitted.
    solver : {"dagma", "notears"}, default "dagma"
        The solver of DYNOTEARS' problem: the central path of DAGMA, or the augmented Lagrangian of
        the authors. The latter gives graphs of about the same quality and takes 3 to 20 times as
        long, longest if parties have fewer rows than variables.
    sparsity : float, default 0.05
        L1 penalty of instantaneous and lagged weights, in the units of the variables' variance.
    threshold : float, default 0.15
        Threshold of instantaneous and lagged weights.

    Raises
    ------
    DataError
        If the truth has no lags, or a series is too short for them.
    """
    if truth.lagged is None:
        raise DataError("the truth has no lags: give one with `lagged`")
    names, order = truth.names, len(truth.lagged)
    moments = [_moments(party, names, order) for party in parties]
    weights = [
        dynotears(of, len(names), sparsity, solver=solver) for of in (merge(moments), *moments)
    ]
    pooled, *alone = (
        lagged_graph(names, found, threshold_now=threshold, threshold_lagged=threshold)
        for found in weights
    )
    mean, lagged = split_blocks(np.mean(weights[1:], axis=0))
    return {
        "Alldata": pooled,
        # A summary graph keeps its cycles.
        "Ave": CausalGraph(names, mean, kind="summary", lagged=lagged).threshold(threshold),
        "Best": min(alone, key=lambda graph: _total_distance(truth, graph)),
    }


def _moments(party: Party, names: tuple[str, ...], order: int) -> Moments:
    """Return the moments of a party's lagged rows; no row has lags from another series."""
    series = [party] if isinstance(party, pd.DataFrame) else party
    rows = lagged_rows([one[list(names)].to_numpy(np.float64) for one in series], order)
    return Moments.from_rows(rows, lagged_names(names, order))


def _total_distance(truth: CausalGraph, graph: CausalGraph) -> float:
    """Return the SHD of the instantaneous and of the lagged edges together."""
    metrics = compare(truth, graph)
    return metrics["shd"] + metrics["lagged_shd"]
