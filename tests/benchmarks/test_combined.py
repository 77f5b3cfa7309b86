"""Putting the parties' graphs together, checked on graphs written by hand."""

import numpy as np
import pytest

from benchmarks import combined
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.baselines import THRESHOLD

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
    assert edges(combined.voting([both, one])) == {("a", "b"): 1.5}
    assert edges(combined.voting([both, both, one])) == {
        ("a", "b"): pytest.approx(4 / 3),
        ("b", "c"): 0.5,
    }


def test_directions_are_voted_on_apart():
    graphs = [graph({("a", "b"): 1.0}), graph({("b", "a"): 1.0}), graph({("b", "a"): 1.0})]
    assert edges(combined.voting(graphs)) == {("b", "a"): 1.0}


def test_votes_may_end_in_a_cycle_and_the_cycle_stays():
    graphs = [
        graph({("a", "b"): 1.0, ("b", "c"): 1.0}),
        graph({("b", "c"): 1.0, ("c", "a"): 1.0}),
        graph({("c", "a"): 1.0, ("a", "b"): 1.0}),
    ]
    found = combined.voting(graphs)
    assert found.num_edges == 3
    assert not found.is_acyclic()


def test_the_average_is_that_of_the_weights_before_the_threshold():
    # 0.5 and a raw 0.2 that the party's own threshold cut: their mean 0.35 stands.
    graphs = [graph({("a", "b"): 0.5}, raw={}), graph({}, raw={("a", "b"): 0.2})]
    assert edges(combined.average(graphs)) == {("a", "b"): pytest.approx(0.35)}


def test_opposite_signs_cancel_in_the_average():
    graphs = [graph({("a", "b"): 1.0}), graph({("a", "b"): -0.9})]
    assert combined.average(graphs).num_edges == 0
    assert combined.voting(graphs).num_edges == 1


def test_a_mean_at_the_threshold_is_cut():
    assert combined.average([graph({("a", "b"): THRESHOLD})]).num_edges == 0


def test_the_best_party_is_the_one_nearest_to_the_truth():
    truth = graph({("a", "b"): 1.0, ("b", "c"): 1.0})
    near, far = graph({("a", "b"): 0.4}), graph({("b", "a"): 1.0, ("c", "b"): 1.0})
    assert combined.best([far, near], truth) is near
    assert combined.best([near, far], truth) is near
