"""Worlds with hidden common causes: what is seen, the truth, and how lines are compared with it."""

import numpy as np
import pytest

from benchmarks.hidden import hidden_categories, hidden_causes
from benchmarks.scenario import find, names
from benchmarks.scores import measured
from benchmarks.world import LineResult
from flwr_causal import CausalGraph, ConfigError, DataError
from flwr_causal.core.graphs.metrics import compare, structural_hamming_distance
from flwr_causal.core.graphs.pag.marks import ARROW, CIRCLE, TAIL
from flwr_causal.solvers import pag_search


@pytest.mark.parametrize(("kind", "hidden"), [("some", 0), ("some", 4), ("hubs", 3)])
def test_the_truth_is_the_pag_of_the_variables_that_are_seen(kind, hidden):
    world = hidden_causes(1, 8, hidden, 30000, kind)
    (table,) = world.parties
    assert world.truth.kind == "pag"
    assert world.truth.names == tuple(table.columns)
    assert table.shape == (30000, 8)
    again = hidden_causes(1, 8, hidden, 30000, kind)
    np.testing.assert_array_equal(again.parties[0], table)


@pytest.mark.parametrize(("network", "hidden"), [("random", 3), ("asia", 2), ("alarm", 0)])
def test_of_categories_too_and_columns_of_one_state_are_left_out(network, hidden):
    world = hidden_categories(1, None, network, hidden, 300)
    (table,) = world.parties
    assert world.truth.kind == "pag"
    assert world.truth.names == tuple(table.columns)
    assert table.nunique().min() > 1
    assert len(table) == 300
    again = hidden_categories(1, None, network, hidden, 300)
    assert again.parties[0].equals(table)


@pytest.mark.slow
def test_of_many_rows_the_search_finds_most_of_the_truth():
    found = [
        compare(world.truth, pag_search(world.parties[0]))["adjacency_f1"]
        for world in (hidden_causes(seed, 7, 2, 20000) for seed in range(5))
    ]
    assert np.mean(found) > 0.93


def test_an_unknown_kind_is_an_error():
    with pytest.raises(ConfigError, match="'some', 'hubs'"):
        hidden_causes(1, 8, 2, 100, "none")


def test_graphs_without_hidden_causes_are_compared_by_their_edges():
    # a o-> c <-o b in the true PAG.
    truth = CausalGraph.from_marks([[0, 0, ARROW], [0, 0, ARROW], [CIRCLE, CIRCLE, 0]], "abc")
    dag = CausalGraph.from_array([[0, 1, 1], [0, 0, 0], [0, 1, 0]], "abc")
    found = compare(truth, dag)
    assert found["extra"] == 1
    assert found["num_causes"] == 3
    assert found["wrong_causes"] == 2  # c -> b contradicts an arrowhead, a -> b is no edge
    assert found["mark_agreement"] == 0.25
    cpdag = CausalGraph.from_array([[0, 0, 1], [0, 0, 1], [1, 0, 0]], "abc", kind="cpdag")
    found = compare(truth, cpdag)
    assert found["num_causes"] == 1
    assert found["wrong_causes"] == 0
    assert found["mark_agreement"] == 0.5
    assert compare(truth, dag.reordered("cab")) == compare(truth, dag)
    with pytest.raises(DataError, match="no such distance"):
        structural_hamming_distance(truth, dag)


def test_scores_of_marks_are_metrics_of_scenarios():
    truth = CausalGraph.from_marks([[0, ARROW], [TAIL, 0]], "ab")
    world = hidden_causes(2, 2, 0, 50)
    line = LineResult((truth,))
    world = type(world)(world.parties, truth)
    wanted = ("mark_agreement", "num_causes", "wrong_causes", "adjacency_f1")
    expected = {"mark_agreement": 1, "num_causes": 1, "wrong_causes": 0, "adjacency_f1": 1}
    assert measured(world, line, wanted) == expected


@pytest.mark.parametrize("name", [one for one in names() if one.startswith("hidden-")])
def test_the_scenarios_have_the_peers_beside(name):
    labels = {line.label for line in find(name).lines}
    method = "fedges" if name == "hidden-categories" else "moments"
    assert {f"{method}, hidden causes", method, "Voting", "FCI"} <= labels
    assert method == "fedges" or "BOSS" in labels
