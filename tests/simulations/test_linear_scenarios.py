"""The suites of the NOTEARS-ADMM paper: their settings, their data and baselines."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.graphs.metrics import compare
from flwr_causal.errors import DataError
from flwr_causal.simulations import linear_scenarios as scenarios
from flwr_causal.simulations.linear_scenarios import LinearSetting
from flwr_causal.simulations.scenarios.baselines import BASELINES
from flwr_causal.simulations.scenarios.world import World

NAMES = {"AllData": "pooled", "Voting": "voting", "Avg": "average", "Best": "best"}


def compared(parties, truth):
    world = World(parties, truth)
    graphs = {name: BASELINES[one](world, solver="notears") for name, one in NAMES.items()}
    return {name: compare(truth, found.graphs[0]) for name, found in graphs.items()}


def test_the_settings_are_those_of_the_paper():
    dimension = scenarios.growing_dimension()
    parties = scenarios.growing_parties()
    assert [tuple(s) for s in dimension] == [
        (10, 30, 10),
        (20, 60, 10),
        (50, 150, 10),
        (100, 300, 10),
    ]
    assert len(parties) == 18
    assert {s.num_rows for s in parties} == {256}
    assert sorted({s.num_parties for s in parties}) == [2, 4, 8, 16, 32, 64]
    assert len({*dimension, *parties}) == 22


@pytest.mark.parametrize("setting", [LinearSetting(10, 30, 10), LinearSetting(20, 256, 64)])
def test_the_data_are_even_shares_of_a_system_with_d_edges(setting):
    parties, truth = setting.data(seed=1)
    sizes = [len(party) for party in parties]
    strengths = np.abs(truth.weights[truth.adjacency])
    assert len(parties) == setting.num_parties
    assert sum(sizes) == setting.num_rows
    assert max(sizes) - min(sizes) <= 1
    assert len(strengths) == setting.num_variables
    assert strengths.min() >= 0.5
    assert strengths.max() <= 2.0


def test_the_noise_that_the_truth_leaves_is_standard_normal():
    parties, truth = LinearSetting(5, 20000, 2).data(seed=3)
    rows = np.concatenate([party.to_numpy() for party in parties])
    noise = rows - rows @ truth.weights
    np.testing.assert_allclose(np.cov(noise.T), np.eye(5), atol=0.04)


def test_other_numbers_of_parties_spread_the_same_rows():
    few, truth_few = LinearSetting(10, 256, 2).data(seed=4)
    many, truth_many = LinearSetting(10, 256, 64).data(seed=4)
    assert truth_few.equals(truth_many)
    pd.testing.assert_frame_equal(
        pd.concat(few, ignore_index=True), pd.concat(many, ignore_index=True)
    )


def test_more_parties_than_rows_is_an_error():
    with pytest.raises(DataError):
        LinearSetting(10, 5, 10).data(seed=0)


@pytest.fixture
def table():
    return pd.DataFrame({"number": np.arange(600.0), "half": np.arange(600.0) / 2})


def test_512_rows_are_drawn_and_dealt_out_evenly(table):
    parties = scenarios.sachs_parties(table, 4, seed=0)
    assert [len(party) for party in parties] == [128] * 4
    assert pd.concat(parties)["number"].is_unique


def test_the_seed_decides_which_rows_are_drawn(table):
    def numbers(seed):
        return [list(p["number"]) for p in scenarios.sachs_parties(table, 4, seed)]

    assert numbers(1) == numbers(1)
    assert numbers(1) != numbers(2)


@pytest.mark.slow
def test_the_pooled_rows_show_what_parties_of_four_rows_cannot():
    parties, truth = LinearSetting(5, 48, 12).data(seed=2)
    metrics = compared(parties, truth)
    assert list(metrics) == ["AllData", "Voting", "Avg", "Best"]
    assert metrics["AllData"]["shd"] < min(metrics["Voting"]["shd"], metrics["Best"]["shd"])
    assert {m["num_true"] for m in metrics.values()} == {5}


def test_with_one_party_all_baselines_are_the_same():
    parties, truth = LinearSetting(6, 120, 1).data(seed=0)
    metrics = compared(parties, truth)
    assert metrics["Voting"] == metrics["Best"] == metrics["AllData"]
