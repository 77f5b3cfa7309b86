"""The papers' suites: their settings, that their data are as the paper says, their baselines."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.errors import DataError
from flwr_causal.simulations import scenarios
from flwr_causal.simulations.scenarios import Setting


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


@pytest.mark.parametrize("setting", [Setting(10, 30, 10), Setting(20, 256, 64)])
def test_the_data_are_even_shares_of_a_system_with_d_edges(setting):
    parties, truth = scenarios.linear_data(setting, seed=1)
    sizes = [len(party) for party in parties]
    strengths = np.abs(truth[truth != 0])
    assert len(parties) == setting.num_parties
    assert sum(sizes) == setting.num_rows
    assert max(sizes) - min(sizes) <= 1
    assert len(strengths) == setting.num_variables
    assert strengths.min() >= 0.5
    assert strengths.max() <= 2.0


def test_the_noise_that_the_truth_leaves_is_standard_normal():
    parties, truth = scenarios.linear_data(Setting(5, 20000, 2), seed=3)
    rows = np.concatenate([party.to_numpy() for party in parties])
    noise = rows - rows @ truth
    np.testing.assert_allclose(np.cov(noise.T), np.eye(5), atol=0.04)


def test_other_numbers_of_parties_spread_the_same_rows():
    few, truth_few = scenarios.linear_data(Setting(10, 256, 2), seed=4)
    many, truth_many = scenarios.linear_data(Setting(10, 256, 64), seed=4)
    np.testing.assert_array_equal(truth_few, truth_many)
    pd.testing.assert_frame_equal(
        pd.concat(few, ignore_index=True), pd.concat(many, ignore_index=True)
    )


def test_more_parties_than_rows_is_an_error():
    with pytest.raises(DataError):
        scenarios.linear_data(Setting(10, 5, 10), seed=0)


@pytest.fixture
def table():
    return pd.DataFrame({"number": np.arange(100.0), "half": np.arange(100.0) / 2})


def test_drawn_rows_are_different_rows_of_the_table(table):
    parties = scenarios.real_data(table, 4, seed=0, num_rows=40)
    drawn = pd.concat(parties)
    assert [len(party) for party in parties] == [10] * 4
    assert drawn["number"].is_unique
    assert set(drawn["number"]) < set(table["number"])
    np.testing.assert_array_equal(drawn["half"], drawn["number"] / 2)


def test_the_seed_decides_which_rows_are_drawn(table):
    def numbers(seed):
        return [list(p["number"]) for p in scenarios.real_data(table, 4, seed, num_rows=40)]

    assert numbers(1) == numbers(1)
    assert numbers(1) != numbers(2)


def test_all_rows_are_dealt_out_where_no_number_is_given(table):
    parties = scenarios.real_data(table, 3, seed=0, num_rows=None)
    assert sorted(pd.concat(parties)["number"]) == list(table["number"])


def test_drawing_more_rows_than_there_are_names_both_numbers(table):
    with pytest.raises(DataError, match=r"512 rows .* of 100"):
        scenarios.real_data(table, 2, seed=0)


@pytest.mark.slow
def test_the_pooled_rows_show_what_parties_of_four_rows_cannot():
    parties, truth = scenarios.linear_data(Setting(5, 48, 12), seed=2)
    metrics = scenarios.compare_baselines(parties, truth)
    assert list(metrics) == ["AllData", "Voting", "Avg", "Best"]
    assert metrics["AllData"]["shd"] < min(metrics["Voting"]["shd"], metrics["Best"]["shd"])
    assert {m["num_true"] for m in metrics.values()} == {5}


def test_with_one_party_all_baselines_are_the_same():
    parties, truth = scenarios.linear_data(Setting(6, 120, 1), seed=0)
    metrics = scenarios.compare_baselines(parties, truth)
    assert metrics["Voting"] == metrics["Best"] == metrics["AllData"]
