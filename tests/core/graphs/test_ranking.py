"""Areas under curves against their plain definitions; varsortability by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from small_graphs import CHAIN, matrix

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import auprc, auroc, binary_auroc, varsortability
from flwr_causal.errors import ConfigError, DataError


def plain_auroc(scores, labels):
    pairs = [(s, t) for s in scores[labels] for t in scores[~labels]]
    return sum((s > t) + 0.5 * (s == t) for s, t in pairs) / len(pairs)


def plain_average_precision(scores, labels):
    area, recall_before = 0.0, 0.0
    for cut in sorted(set(scores), reverse=True):
        chosen = scores >= cut
        recall = labels[chosen].sum() / labels.sum()
        area += (recall - recall_before) * labels[chosen].sum() / chosen.sum()
        recall_before = recall
    return area


@given(arrays(np.int64, (5, 5), elements=st.integers(0, 6)), arrays(bool, (5, 5)))
def test_areas_equal_the_plain_definitions_with_ties(scores, truth):
    off_diagonal = ~np.eye(5, dtype=bool)
    values, labels = scores[off_diagonal].astype(float), truth[off_diagonal]
    if labels.all() or not labels.any():
        assert np.isnan(auroc(scores, truth))
        return
    assert auroc(scores, truth) == pytest.approx(plain_auroc(values, labels), abs=1e-12)
    assert auprc(scores, truth) == pytest.approx(plain_average_precision(values, labels), abs=1e-12)


def test_areas_without_edges_or_with_bad_scores():
    assert np.isnan(auroc(np.ones((3, 3)), np.zeros((3, 3))))
    assert np.isnan(auprc(np.ones((3, 3)), np.zeros((3, 3))))
    for bad in (-CHAIN.astype(float), np.full((3, 3), np.nan)):
        with pytest.raises(DataError, match="finite and non-negative"):
            auroc(bad, CHAIN)
    with pytest.raises(DataError, match=r"scores have shape \(2, 2\)"):
        auprc(np.ones((2, 2)), CHAIN)


def test_a_graph_is_ranked_by_its_weights_before_the_threshold_and_over_lags():
    raw = np.where(CHAIN, -0.2, 0.1)
    graph = CausalGraph.from_array(np.zeros((3, 3)))
    graph = CausalGraph(graph.names, graph.weights, raw_weights=raw)
    assert auroc(graph, CHAIN) == 1
    lagged = np.zeros((1, 3, 3))
    lagged[0, 2, 0] = -5
    both = CausalGraph.from_array(CHAIN, lagged=lagged)
    assert auroc(both, both) == 1
    assert auroc(both, CHAIN) < 1


def test_the_diagonal_counts_neither_in_scores_nor_in_a_cyclic_truth():
    cycle = matrix(3, (0, 1), (1, 2), (2, 0)).astype(float)
    loops = np.diag([9.0, 0.0, 5.0])
    worst = 1 - cycle
    for scores, area in ((cycle, 1.0), (worst, 0.0)):
        for scored in (scores, scores + loops):
            for truth in (cycle, cycle + np.eye(3), CausalGraph.from_array(cycle + np.eye(3))):
                assert auroc(scored, truth) == area
    assert auprc(cycle + loops, cycle + np.eye(3)) == 1
    assert auprc(worst + loops, cycle) == auprc(worst, cycle) == 0.5
    lagged = np.zeros((2, 3, 3))
    lagged[1] = 4 * np.eye(3)
    own_past = CausalGraph.from_array(cycle, lagged=lagged, kind="summary")
    assert auroc(own_past, cycle) == auroc(cycle, own_past) == 1


@given(
    arrays(np.float64, (4, 4), elements=st.sampled_from([-0.5, -0.2, -0.1, 0.0, 0.1, 0.2, 0.9])),
    arrays(bool, (4, 4)),
)
def test_the_binary_score_is_the_area_of_the_cut_graph(weights, truth):
    chosen = (np.abs(weights) >= 0.2).astype(float)
    off_diagonal = ~np.eye(4, dtype=bool)
    if truth[off_diagonal].all():
        assert np.isnan(binary_auroc(weights, truth))
        return
    with_loops = truth | np.eye(4, dtype=bool)
    expected = plain_auroc(chosen.ravel(), with_loops.ravel())
    assert binary_auroc(weights, truth) == pytest.approx(expected, abs=1e-12)
    if truth[off_diagonal].any():
        expected = auroc(chosen, truth)
        alone = binary_auroc(weights, truth, count_diagonal=False)
        assert alone == pytest.approx(expected, abs=1e-12)
    else:
        assert np.isnan(binary_auroc(weights, truth, count_diagonal=False))


def test_the_binary_score_flatters_what_knows_only_of_its_own_past():
    # d true loops among d + 2 "edges" found, no false one: (3 / 5 + 1) / 2.
    assert binary_auroc(np.eye(3), CHAIN) == pytest.approx(0.8)
    assert binary_auroc(np.eye(3), CHAIN, count_diagonal=False) == 0.5
    assert binary_auroc(np.eye(3), CHAIN, threshold=1.1) == 0.5
    assert binary_auroc(np.zeros((3, 3)), CHAIN, threshold=0) == 0.5


def test_the_binary_score_adds_the_slices_of_a_graph_with_their_signs():
    lagged = np.zeros((2, 3, 3))
    lagged[0, 0, 1], lagged[1, 0, 1], lagged[1, 1, 2] = 0.15, 0.15, 0.15
    graph = CausalGraph.from_array(np.zeros((3, 3)), lagged=lagged)
    assert binary_auroc(graph, CHAIN, count_diagonal=False) == pytest.approx(0.75)
    against = CausalGraph.from_array(-0.3 * CHAIN, lagged=lagged)
    assert binary_auroc(against, CHAIN, count_diagonal=False) == 0.5
    assert binary_auroc(against, CHAIN, 0.1, count_diagonal=False) == 0.75
    named = CausalGraph(("b", "c", "a"), CHAIN.astype(float))
    same = CausalGraph(("a", "b", "c"), matrix(3, (1, 2), (2, 0)).astype(float))
    assert binary_auroc(named, same, count_diagonal=False) == 1


def test_the_binary_score_checks_its_input():
    for threshold in (-0.1, np.nan):
        with pytest.raises(ConfigError, match="threshold is"):
            binary_auroc(np.eye(3), CHAIN, threshold)
    with pytest.raises(DataError, match="not finite"):
        binary_auroc(np.full((3, 3), np.nan), CHAIN)
    with pytest.raises(DataError, match="2"):
        binary_auroc(np.eye(2), CHAIN)


def test_varsortability_by_hand():
    # Paths of one edge: 0-1, 1-2; of two: 0-2.
    assert varsortability(CHAIN, [1, 2, 3]) == 1
    assert varsortability(CHAIN, [3, 2, 1]) == 0
    assert varsortability(CHAIN, [1, 3, 2]) == pytest.approx(2 / 3)
    assert varsortability(CHAIN, [1, 1, 1]) == 0.5
    # The pair 0-2 counts at both lengths: 4 paths in all, of which 0-1 and 0-2 (twice) ascend.
    assert varsortability(CHAIN | matrix(3, (0, 2)), [1, 3, 2]) == pytest.approx(3 / 4)
    assert np.isnan(varsortability(np.zeros((2, 2)), [1, 2]))
    named = CausalGraph(("a", "b", "c"), CHAIN.astype(float))
    assert varsortability(named, [3, 1, 2], names=("c", "a", "b")) == 1


def test_varsortability_checks_its_input():
    with pytest.raises(DataError, match="one for each of 3"):
        varsortability(CHAIN, [1, 2])
    with pytest.raises(DataError, match="not negative"):
        varsortability(CHAIN, [1, 2, -1])
