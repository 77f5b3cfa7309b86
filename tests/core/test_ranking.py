"""Areas under curves against their plain definitions; varsortability by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from small_graphs import CHAIN, matrix

from flwr_causal.core.graph import CausalGraph
from flwr_causal.core.metrics import auprc, auroc, varsortability
from flwr_causal.errors import DataError


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


@settings(max_examples=100, deadline=None)
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
