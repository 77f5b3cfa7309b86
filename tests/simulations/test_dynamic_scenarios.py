"""The suites of the 2Dbn paper: their settings, their data, their metrics and baselines."""

import numpy as np
import pytest

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.errors import DataError
from flwr_causal.simulations import dynamic_scenarios as scenarios
from flwr_causal.simulations.dynamic_scenarios import DynamicSetting

BLOCK = {"shd", "tpr", "fdr"}


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
    "setting", [DynamicSetting(5, 30, 10), DynamicSetting(20, 256, 64), DynamicSetting(5, 40, 2, 3)]
)
def test_every_party_has_one_series_with_its_share_of_usable_rows(setting):
    parties, truth = scenarios.dynamic_data(setting, seed=1)
    rows = setting.num_rows // setting.num_parties + setting.order
    assert [party.shape for party in parties] == [
        (rows, setting.num_variables)
    ] * setting.num_parties
    assert truth.lagged.shape == (setting.order, *truth.weights.shape)


def test_other_numbers_of_parties_have_the_same_truth():
    few, many = (scenarios.dynamic_data(DynamicSetting(10, 256, K), seed=4)[1] for K in (2, 64))
    assert few.equals(many)


@pytest.fixture
def truth():
    lagged = np.zeros((1, 3, 3))
    lagged[0, 0, 0] = lagged[0, 0, 2] = 0.4
    return CausalGraph.from_array(np.array([[0, 0.5, 0], [0, 0, 0.5], [0, 0, 0]]), lagged=lagged)


def test_metrics_of_the_blocks_by_hand(truth):
    weights = np.array([[0, 0, 0], [1, 0, 1], [1, 0, 0]])  # one reversed, one right, one extra
    lagged = np.zeros((1, 3, 3))
    lagged[0, 0, 0] = lagged[0, 1, 2] = lagged[0, 2, 0] = 1  # one right, two extra, one missing
    estimate = CausalGraph.from_array(weights, lagged=lagged)
    metrics = scenarios.block_metrics(truth, estimate)
    assert metrics == {
        "W": {"shd": 2, "tpr": 0.5, "fdr": pytest.approx(2 / 3)},
        "A": {"shd": 3, "tpr": 0.5, "fdr": pytest.approx(2 / 3)},
    }
    perfect = {"shd": 0, "tpr": 1, "fdr": 0}
    assert scenarios.block_metrics(truth, truth) == {"W": perfect, "A": perfect}


def test_graphs_without_lags_have_no_metrics_of_blocks(truth):
    plain = CausalGraph.from_array(truth.weights)
    for pair in ((truth, plain), (plain, truth)):
        with pytest.raises(DataError, match="give both with `lagged`"):
            scenarios.block_metrics(*pair)
    with pytest.raises(DataError, match="truth has no lags"):
        scenarios.compare_baselines([], plain)


def total(metrics):
    return metrics["W"]["shd"] + metrics["A"]["shd"]


@pytest.mark.slow
def test_pooled_rows_show_what_short_series_cannot():
    parties, truth = scenarios.dynamic_data(DynamicSetting(6, 160, 20), seed=0)
    metrics = scenarios.compare_baselines(parties, truth)
    assert list(metrics) == ["Alldata", "Ave", "Best"]
    assert {frozenset(block) for graph in metrics.values() for block in graph.values()} == {
        frozenset(BLOCK)
    }
    assert total(metrics["Alldata"]) < min(total(metrics["Ave"]), total(metrics["Best"]))


@pytest.mark.parametrize("solver", ["dagma", "notears"])
def test_with_one_party_all_baselines_are_the_same_and_find_the_system(solver):
    parties, truth = scenarios.dynamic_data(DynamicSetting(5, 2000, 1), seed=4)
    metrics = scenarios.compare_baselines(parties, truth, solver=solver)
    assert metrics["Ave"] == metrics["Best"] == metrics["Alldata"]
    assert total(metrics["Alldata"]) == 0


@pytest.mark.slow
def test_several_series_of_a_party_are_never_joined_end_to_start():
    parties, truth = scenarios.dynamic_data(DynamicSetting(4, 240, 60, 2), seed=3)
    as_one = scenarios.compare_baselines([parties], truth)
    each = scenarios.compare_baselines(parties, truth)
    assert as_one["Alldata"] == each["Alldata"] == as_one["Best"]


def test_sparsity_and_threshold_reach_the_solver():
    parties, truth = scenarios.dynamic_data(DynamicSetting(4, 200, 2), seed=0)
    for options in ({"sparsity": 100.0}, {"threshold": 10.0}):
        metrics = scenarios.compare_baselines(parties, truth, **options)
        for graph in metrics.values():
            assert graph["W"] == {"shd": truth.num_edges, "tpr": 0, "fdr": 0}
            assert graph["A"] == {"shd": truth.num_lagged_edges, "tpr": 0, "fdr": 0}


def test_the_best_party_is_best_by_both_blocks():
    parties, truth = scenarios.dynamic_data(DynamicSetting(5, 60, 4), seed=1)
    alone = [total(scenarios.compare_baselines([p], truth)["Best"]) for p in parties]
    assert total(scenarios.compare_baselines(parties, truth)["Best"]) == min(alone)
    assert len(set(alone)) > 1
