"""The paper's baselines: putting graphs together is checked on graphs written by hand."""

import numpy as np
import pytest

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear import baselines
from flwr_causal.core.linear.moments import Moments, merge
from flwr_causal.core.linear.notears import notears

NAMES = ("a", "b", "c")


def graph(edges, raw=None):
    """A graph over a, b, c from ``{(cause, effect): weight}``; ``raw`` before the threshold."""

    def matrix(entries):
        weights = np.zeros((3, 3))
        for (cause, effect), value in entries.items():
            weights[NAMES.index(cause), NAMES.index(effect)] = value
        return weights

    return CausalGraph(
        NAMES, matrix(edges), raw_weights=None if raw is None else matrix({**edges, **raw})
    )


def edges(found):
    return {(cause, effect): weight for cause, effect, weight in found.edges()}


def test_an_edge_needs_more_than_half_of_the_votes():
    both, one = graph({("a", "b"): 1.0, ("b", "c"): 0.5}), graph({("a", "b"): 2.0})
    assert edges(baselines.voting([both, one])) == {("a", "b"): 1.5}
    assert edges(baselines.voting([both, both, one])) == {
        ("a", "b"): pytest.approx(4 / 3),
        ("b", "c"): 0.5,
    }


def test_directions_are_voted_on_apart():
    graphs = [graph({("a", "b"): 1.0}), graph({("b", "a"): 1.0}), graph({("b", "a"): 1.0})]
    assert edges(baselines.voting(graphs)) == {("b", "a"): 1.0}


def test_votes_may_end_in_a_cycle_and_the_cycle_stays():
    graphs = [
        graph({("a", "b"): 1.0, ("b", "c"): 1.0}),
        graph({("b", "c"): 1.0, ("c", "a"): 1.0}),
        graph({("c", "a"): 1.0, ("a", "b"): 1.0}),
    ]
    found = baselines.voting(graphs)
    assert found.num_edges == 3
    assert not found.is_acyclic()


def test_the_average_is_that_of_the_weights_before_the_threshold():
    # 0.5 and a raw 0.2 that the party's own threshold cut: their mean 0.35 stands.
    graphs = [graph({("a", "b"): 0.5}, raw={}), graph({}, raw={("a", "b"): 0.2})]
    assert edges(baselines.average(graphs)) == {("a", "b"): pytest.approx(0.35)}


def test_opposite_signs_cancel_in_the_average():
    graphs = [graph({("a", "b"): 1.0}), graph({("a", "b"): -0.9})]
    assert baselines.average(graphs).num_edges == 0
    assert baselines.voting(graphs).num_edges == 1


def test_a_mean_at_the_threshold_is_cut():
    assert baselines.average([graph({("a", "b"): baselines.THRESHOLD})]).num_edges == 0


def test_the_best_party_is_the_one_nearest_to_the_truth():
    truth = graph({("a", "b"): 1.0, ("b", "c"): 1.0})
    near, far = graph({("a", "b"): 0.4}), graph({("b", "a"): 1.0, ("c", "b"): 1.0})
    assert baselines.best([far, near], truth) is near
    assert baselines.best([near, far], truth) is near


@pytest.fixture
def parties():
    """Three parties of a chain a -> b -> c, 60 rows each, at different levels."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, 60, 3))
    rows[..., 1] += 1.5 * rows[..., 0]
    rows[..., 2] -= 1.2 * rows[..., 1]
    return [Moments.from_rows(part, NAMES) for part in rows]


def test_all_data_is_notears_on_the_pooled_rows(parties):
    found = baselines.all_data(parties)
    pooled = notears(merge(parties), sparsity=0.1, threshold=0.3)
    np.testing.assert_array_equal(found.weights, pooled.weights)
    assert set(edges(found)) == {("a", "b"), ("b", "c")}


@pytest.mark.slow
def test_alone_is_notears_on_each_party_in_their_order(parties):
    found = baselines.alone(parties)
    assert len(found) == 3
    for own, moments in zip(found, parties, strict=True):
        np.testing.assert_array_equal(own.weights, notears(moments, sparsity=0.1).weights)
        assert own.raw_weights is not None


def test_a_column_that_is_constant_at_a_party_has_no_edges_there():
    rng = np.random.default_rng(1)
    a = rng.standard_normal(80)
    rows = np.column_stack([a, np.full(80, 7.0), 2.0 * a + rng.standard_normal(80)])
    (found,) = baselines.alone([Moments.from_rows(rows, NAMES)])
    assert set(edges(found)) == {("a", "c")}
    assert found.names == NAMES


@pytest.mark.parametrize("rows", [np.ones((1, 3)), np.ones((5, 3))])
def test_a_party_without_variation_finds_nothing(rows):
    (found,) = baselines.alone([Moments.from_rows(rows, NAMES)])
    assert found.num_edges == 0
