"""Worlds of numbers and categories, dense classes and missing cells."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.peers import _coded, _states
from benchmarks.real_tables import (
    MISSING,
    classes,
    incomplete,
    mixed,
    states,
)
from flwr_causal import ConfigError


def test_mixed_tables_have_the_edges_that_were_asked_for():
    world = mixed(1, 12, 20, 300)
    assert world.truth.num_edges == 20
    assert world.truth.is_acyclic()
    (table,) = world.parties
    assert tuple(table.columns) == world.truth.names
    kinds = {len(set(table[name])) if table[name].dtype == object else 0 for name in table}
    assert kinds <= {0, 2, 3, 4}


def test_states_are_of_equal_shares_and_every_second_column():
    (table,) = states(2, 6, 400, 4, nominal=True, curved=True).parties
    for j, name in enumerate(table):
        if j % 2:
            np.testing.assert_array_equal(np.unique(table[name], return_counts=True)[1], 100)
        else:
            assert table[name].dtype == np.float64


def test_classes_are_standardised_and_dense():
    worlds = [classes(seed, 20, 200, edges_per_node=4.0) for seed in range(10)]
    assert np.mean([world.truth.num_edges for world in worlds]) == pytest.approx(80, abs=8)
    np.testing.assert_allclose(worlds[0].parties[0].std(ddof=0), 1.0)


def test_the_rows_are_the_same_whatever_is_missing():
    size = {"num_variables": 10, "num_rows": 600, "num_parties": 5}
    worlds = {missing: incomplete(3, missing, share=0.2, **size) for missing in MISSING}
    whole = worlds["nothing"].pooled
    assert not whole.isna().any().any()
    for world in worlds.values():
        table = world.pooled[list(whole.columns)]
        np.testing.assert_array_equal(
            table.to_numpy()[table.notna()], whole.to_numpy()[table.notna()]
        )
        np.testing.assert_array_equal(world.truth.weights, worlds["nothing"].truth.weights)
    assert worlds["cells at random"].pooled.isna().mean().mean() == pytest.approx(0.2, abs=0.02)
    by_seen = worlds["cells by seen columns"].pooled.isna()
    assert not by_seen.iloc[:, :5].any().any()
    large = whole.iloc[:, 0] > whole.iloc[:, 0].mean()
    assert by_seen.iloc[:, 5][large].mean() > 2 * by_seen.iloc[:, 5][~large].mean()
    held = [set(table.columns) for table in worlds["columns"].parties]
    assert all(len(own) == 8 for own in held)
    assert min(sum(name in own for own in held) for name in whole) >= 2
    with pytest.raises(ConfigError, match="cells at random"):
        incomplete(3, "rows", share=0.2, **size)


def test_how_peers_are_given_categories():
    table = pd.DataFrame({"x": np.arange(20) / 3, "k": list("abca" * 5)})
    owners, rows = _coded(table, "one-hot")
    assert owners.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(rows[:4, 1:], [[1, 0], [0, 1], [0, 0], [1, 0]])
    owners, rows = _coded(table, "codes")
    assert owners.tolist() == [0, 1]
    assert rows[:4, 1].tolist() == [0, 1, 2, 0]
    cut = _states(table)
    assert sorted(set(cut["x"])) == ["0", "1", "2", "3"]
    assert cut["k"].tolist() == table["k"].tolist()
