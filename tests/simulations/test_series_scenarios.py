"""The suites of the 2Dbn paper: their settings, their data and baselines."""

import numpy as np
import pytest

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.errors import DataError
from flwr_causal.simulations import series_scenarios as scenarios
from flwr_causal.simulations.scenarios.baselines import BASELINES
from flwr_causal.simulations.scenarios.world import World
from flwr_causal.simulations.series_scenarios import SeriesSetting

NAMES = {"Alldata": "pooled", "Ave": "average", "Best": "best"}


def compared(parties, truth, **settings):
    world = World(parties, truth)
    graphs = {
        name: BASELINES[one](world, solver="dynotears", **settings) for name, one in NAMES.items()
    }
    return {name: compare(truth, found.graphs[0]) for name, found in graphs.items()}


def test_the_settings_are_those_of_the_paper():
    dimension = scenarios.growing_dimension()
    assert [tuple(s) for s in dimension] == [
        (5, 30, 10, 1),
        (10, 50, 10, 1),
        (15, 90, 10, 1),
        (20, 100, 10, 1),
    ]
    parties = scenarios.growing_parties()
    assert len(parties) == len(set(parties)) == 24
    assert {(s.num_variables, s.num_rows) for s in parties} == {
        (10, 256),
        (10, 512),
        (20, 256),
        (20, 512),
    }
    assert sorted({s.num_parties for s in parties}) == [2, 4, 8, 16, 32, 64]
    for setting in (*dimension, *parties):
        assert setting.num_rows % setting.num_parties == 0
        assert setting.order == 1


@pytest.mark.parametrize(
    "setting", [SeriesSetting(5, 30, 10), SeriesSetting(20, 256, 64), SeriesSetting(5, 40, 2, 3)]
)
def test_every_party_has_one_series_with_its_share_of_usable_rows(setting):
    parties, truth = setting.data(seed=1)
    rows = setting.num_rows // setting.num_parties + setting.order
    assert [party.shape for party in parties] == [
        (rows, setting.num_variables)
    ] * setting.num_parties
    assert truth.lagged.shape == (setting.order, *truth.weights.shape)


def test_other_numbers_of_parties_have_the_same_truth():
    few, many = (SeriesSetting(10, 256, K).data(seed=4)[1] for K in (2, 64))
    assert few.equals(many)


def test_baselines_need_a_truth_with_lags():
    plain = CausalGraph.from_array(np.array([[0, 0.5], [0, 0]]))
    with pytest.raises(DataError, match="truth has no lags"):
        compared([], plain)


def total(metrics):
    return metrics["shd"] + metrics["lagged_shd"]


@pytest.mark.slow
def test_pooled_rows_show_what_short_series_cannot():
    parties, truth = SeriesSetting(6, 160, 20).data(seed=0)
    metrics = compared(parties, truth)
    assert list(metrics) == ["Alldata", "Ave", "Best"]
    assert total(metrics["Alldata"]) < min(total(metrics["Ave"]), total(metrics["Best"]))


@pytest.mark.parametrize("solver", ["dagma", "notears"])
def test_with_one_party_all_baselines_are_the_same_and_find_the_system(solver):
    parties, truth = SeriesSetting(5, 2000, 1).data(seed=4)
    metrics = compared(parties, truth, path=solver)
    assert metrics["Ave"] == metrics["Best"] == metrics["Alldata"]
    assert total(metrics["Alldata"]) == 0


@pytest.mark.slow
def test_several_series_of_a_party_are_never_joined_end_to_start():
    parties, truth = SeriesSetting(4, 240, 60, 2).data(seed=3)
    as_one = compared([parties], truth)
    each = compared(parties, truth)
    assert as_one["Alldata"] == each["Alldata"] == as_one["Best"]


def test_sparsity_and_threshold_reach_the_solver():
    parties, truth = SeriesSetting(4, 200, 2).data(seed=0)
    for options in ({"sparsity": 100.0}, {"threshold": 10.0}):
        metrics = compared(parties, truth, **options)
        for graph in metrics.values():
            assert (graph["shd"], graph["tpr"], graph["fdr"]) == (truth.num_edges, 0, 0)
            assert (graph["lagged_shd"], graph["lagged_tpr"]) == (truth.num_lagged_edges, 0)


def test_the_best_party_is_best_by_both_blocks():
    parties, truth = SeriesSetting(5, 60, 4).data(seed=1)
    alone = [total(compared([p], truth)["Best"]) for p in parties]
    assert total(compared(parties, truth)["Best"]) == min(alone)
    assert len(set(alone)) > 1
