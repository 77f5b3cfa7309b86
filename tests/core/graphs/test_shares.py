"""Shares of replicates, the threshold of significant edges, and the averaged graph."""

import numpy as np
import pytest

from flwr_causal.core.graphs.doubt import doubtful_edges
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.shares import inclusion_threshold
from flwr_causal.errors import ConfigError


def graph(*edges, kind="dag", size=3, lagged=None):
    weights = np.zeros((size, size))
    for i, j in edges:
        weights[i, j] = 1.0
    return CausalGraph.from_array(weights, kind=kind, lagged=lagged)


def test_shares_count_directions_and_undirected_edges_half():
    replicates = [graph((0, 1)), graph((1, 0)), graph((0, 1), (1, 2))]
    found = graph((0, 1)).with_confidence(replicates)
    assert found.confidence[0, 1] == pytest.approx(2 / 3)
    assert found.confidence[1, 0] == pytest.approx(1 / 3)
    assert found.adjacency_confidence[1, 0] == pytest.approx(1)
    assert found.adjacency_confidence[1, 2] == found.confidence[1, 2] == pytest.approx(1 / 3)
    both = graph((0, 1), (1, 0), kind="cpdag")
    found = both.with_confidence([both, both, graph((0, 1), kind="cpdag")])
    assert found.confidence[0, 1] == pytest.approx(2 / 3)
    assert found.adjacency_confidence[0, 1] == 1


def test_shares_of_lagged_edges_and_of_replicates_with_fewer_lags():
    lagged = np.zeros((2, 3, 3))
    lagged[1, 0, 2] = lagged[0, 1, 1] = 1.0
    main = graph(lagged=lagged)
    found = main.with_confidence([main, graph(lagged=lagged[:1]), graph()])
    assert found.lagged_confidence[1, 0, 2] == pytest.approx(1 / 3)
    assert found.lagged_confidence[0, 1, 1] == pytest.approx(2 / 3)
    back = CausalGraph.from_networkx(found.to_networkx())
    np.testing.assert_array_equal(back.lagged_confidence, found.lagged_confidence)


def test_threshold_is_that_of_the_papers_example():
    # Scutari & Nagarajan (2013), section 3: of six edges the three above 0.3921 are significant.
    confidence = [0.0460, 0.2242, 0.3921, 0.7689, 0.8935, 0.9439]
    assert inclusion_threshold(np.array(confidence)) == 0.3921


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_threshold_is_the_least_distance_from_a_sure_graph(seed):
    rng = np.random.default_rng(seed)
    values = np.round(rng.beta(0.4, 0.6, size=rng.integers(3, 30)), 2)
    grid = np.linspace(0, 1, 20001)
    heights = np.searchsorted(np.sort(values), grid, side="right") / len(values)
    shares = np.linspace(0, 1, 2001)
    distances = np.abs(heights[None] - shares[:, None]).mean(axis=1)
    best = shares[distances <= distances.min() + 2e-4]
    possible = np.quantile(values, best, method="inverted_cdf")
    assert possible.min() <= inclusion_threshold(values) <= possible.max()


def test_averaged_graph_leaves_out_the_least_sure_edge_of_a_cycle():
    replicates = 9 * [graph((0, 1), (1, 2))] + 8 * [graph((2, 0))] + 3 * [graph((0, 2))]
    found = graph((0, 1)).with_confidence(replicates).averaged(0.1)
    assert [edge[:2] for edge in found.edges()] == [("x0", "x1"), ("x1", "x2")]
    assert found.weights[0, 1] == pytest.approx(9 / 20)
    required = CausalGraph(("x0", "x1", "x2"), np.eye(3, k=1), required=np.eye(3, k=2) > 0)
    assert required.with_confidence(replicates).averaged(1.0).adjacency.sum() == 1


def test_averaged_class_is_that_of_the_averaged_graph():
    chain, collider = graph((0, 1), (1, 2)), graph((0, 1), (2, 1))
    replicates = [*[chain.to_cpdag()] * 2, *[collider] * 3]
    found = collider.with_confidence(replicates).averaged()
    assert found.adjacency.sum() == 2
    found = chain.to_cpdag().with_confidence([chain.to_cpdag()] * 4).averaged()
    assert found.kind == "cpdag"
    assert found.adjacency.sum() == 4


def test_averaged_class_keeps_directions_of_background_knowledge():
    """Directed edges of a class that its v-structures do not imply are those of knowledge."""
    required = graph((0, 1), (1, 2), kind="cpdag")
    tiers = graph((0, 1), (0, 2), (1, 2), (2, 1), kind="cpdag")
    for one in (required, tiers):
        found = one.with_confidence([one] * 3).averaged()
        np.testing.assert_array_equal(found.adjacency, one.adjacency)


def test_sure_edges_are_in_the_averaged_graph_also_if_all_are_sure():
    full = graph((0, 1), (0, 2), (1, 2), lagged=np.ones((1, 3, 3)))
    found = full.with_confidence([full] * 3).averaged()
    np.testing.assert_array_equal(found.adjacency, full.adjacency)
    np.testing.assert_array_equal(found.lagged, full.lagged)


def test_without_replicates_there_is_no_threshold():
    with pytest.raises(ConfigError, match="replicates=100"):
        graph((0, 1)).averaged()
    for threshold in (2.0, "x"):
        with pytest.raises(ConfigError, match="from 0 to 1"):
            graph((0, 1)).with_confidence([graph((0, 1))]).averaged(threshold)


def test_sure_directions_that_the_rows_leave_open_are_doubtful():
    """Replicates repeat a method's choice of direction; a collider's directions are decided."""
    for edges, doubt in (([(0, 1)], 0.5), ([(0, 1), (2, 1)], 0.0)):
        one = graph(*edges)
        assert doubtful_edges(one.with_confidence([one] * 3))[0].doubt == doubt
