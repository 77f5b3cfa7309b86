"""Doubts about a finished graph: each names edges or columns and the remedy."""

import numpy as np
import pytest

from flwr_causal.core.graphs.equivalence import cpdag, reversible
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.series.design import knowledge_masks
from flwr_causal.data.synthetic.random_graphs import random_graph
from flwr_causal.doubts.graphs import (
    determined_warning,
    direction_warning,
    majority_warning,
    plausible,
    tier_warning,
)
from flwr_causal.simulations import simulate

NAMES = ("a", "b", "c", "d")
# a -> b -> c, and d -> c: the edges into c are a v-structure, a - b is open.
GRAPH = CausalGraph(NAMES, np.array([[0, 2.0, 0, 0], [0, 0, -1, 0], [0] * 4, [0, 0, 0.5, 0]]))
FREE = Knowledge().masks(NAMES)
ALIKE = np.array([1.0, 1.2, 0.9, 1.1])
UNLIKE = np.array([1.0, 400.0, 0.9, 1.1])


def warned(graph=GRAPH, masks=FREE, noise=None, standardized=False):
    return direction_warning(graph, masks, noise, standardized=standardized)


# Directions.


def test_unlike_noise_names_columns_edges_and_remedies():
    (text,) = warned(noise=UNLIKE)
    assert "'b' is 21 times that of 'c'" in text
    assert "1 of 3 edges explains" in text
    assert "(a -> b; run.graph.to_cpdag()" in text
    assert "standardize=True" in text
    assert "tiers" in text


def test_noise_that_is_alike_bears_the_directions_out():
    assert warned(noise=ALIKE) == []
    assert warned() == []
    assert warned(CausalGraph(NAMES, np.zeros((4, 4))), noise=UNLIKE) == []


def test_a_variable_without_noise_does_not_count():
    assert warned(noise=ALIKE * [1, 0, 1, 1]) == []


def test_standardised_columns_leave_directions_open():
    (text,) = warned(noise=ALIKE, standardized=True)
    assert "a -> b" in text
    assert "standardize=True" not in text
    known = Knowledge(tiers=[("a",), ("b", "c", "d")]).masks(NAMES)
    assert warned(masks=known, standardized=True) == []


def test_what_other_evidence_decides_is_not_in_doubt():
    """a -> b is the one that the class leaves open; b -> c it decides anyway."""
    for mask, found in ((np.zeros((4, 4), bool), 0), (GRAPH.adjacency, 1)):
        texts = direction_warning(
            GRAPH, FREE, UNLIKE, standardized=False, undecided=mask
        ) + direction_warning(GRAPH, FREE, None, standardized=True, undecided=mask)
        assert len(texts) == 2 * found
        assert all("(a -> b; " in text for text in texts)
    assert (
        direction_warning(GRAPH, FREE, ALIKE, standardized=False, undecided=GRAPH.adjacency) == []
    )


def test_lags_decide_directions():
    """A lagged cause of a alone: a <- b would make a collider of it."""
    lagged = np.zeros((1, 4, 4))
    masks = knowledge_masks(None, NAMES, 1)
    without_lag = CausalGraph(NAMES, GRAPH.weights, lagged=lagged)
    assert "a -> b" in warned(without_lag, masks, standardized=True)[0]
    lagged[0, 3, 0] = 0.4
    assert warned(CausalGraph(NAMES, GRAPH.weights, lagged=lagged), masks, standardized=True) == []


@pytest.mark.parametrize("seed", range(20))
def test_reversible_edges_are_the_undirected_ones_of_the_class(seed):
    graph = random_graph("er", 7, 9, 1, seed)
    everything = ~np.eye(7, dtype=bool)
    marks = cpdag(graph)
    assert np.array_equal(reversible(graph, everything), graph & marks.T)
    # What is known of one edge may decide others, and never makes any of them open.
    open_edges = np.argwhere(graph & marks.T)
    if len(open_edges):
        i, j = open_edges[0]
        allowed = everything.copy()
        allowed[j, i] = False
        left = reversible(graph, allowed)
        assert not left[i, j]
        assert not (left & ~marks.T).any()


# Edges of next to no strength.


def test_edges_of_no_strength_are_left_out_and_named():
    weights = GRAPH.weights.copy()
    weights[0, 3], weights[2, 0] = 1e-12, -1e-9
    graph = CausalGraph(NAMES, weights, required=np.eye(4, k=-2, dtype=bool))
    left, (text,) = plausible(graph, 1.0, FREE._replace(required=graph.required))
    assert [edge[:2] for edge in left.edges()] == [
        ("a", "b"),
        ("b", "c"),
        ("c", "a"),  # required
        ("d", "b"),
        ("d", "c"),
    ]
    assert "1 edge of next to no strength is left out (a -> d)" in text
    assert "units" in text
    left, warnings = plausible(GRAPH, 1.0, FREE)
    assert left is GRAPH
    assert warnings == []


def test_strength_is_relative_to_the_units():
    """A metre moves a price in cents by little or by much, as they vary."""
    spread = np.array([1e-9, 1.0, 1.0, 1.0])
    units = spread[:, None] / spread
    left, _ = plausible(GRAPH, units, FREE)
    assert np.argwhere(GRAPH.adjacency & ~left.adjacency).tolist() == [[0, 1]]
    spread = np.array([1e9, 1.0, 1.0, 1.0])
    assert plausible(GRAPH, spread[:, None] / spread, FREE) == (GRAPH, [])


def test_lagged_edges_of_no_strength():
    lagged = np.zeros((2, 4, 4))
    lagged[0, 1, 1], lagged[1, 2, 0], lagged[1, 3, 3] = 0.5, 1e-10, 1e-10
    graph = CausalGraph(NAMES, GRAPH.weights, lagged=lagged)
    masks = knowledge_masks(Knowledge(required_lagged=[("d", "d", 2)]), NAMES, 2)
    left, (text,) = plausible(graph, 1.0, masks)
    assert "1 edge of next to no strength is left out (c[t-2] -> a)" in text
    assert left.num_lagged_edges == 2
    assert np.array_equal(left.weights, graph.weights)


# Tiers.


def test_age_and_sex_as_effects_suggest_tiers():
    names = ("income", "Age", "sex", "native-country")
    weights = np.zeros((4, 4))
    weights[0, 1] = weights[2, 1] = 1
    (text,) = tier_warning(CausalGraph(names, weights))
    assert "income -> Age" in text
    assert "sex -> Age" not in text
    assert "tiers [['Age', 'sex', 'native-country'], [all other columns]]" in text
    assert tier_warning(CausalGraph(names, weights.T)) == []
    undirected = CausalGraph(names, weights + weights.T, kind="cpdag")
    assert tier_warning(undirected) == []
    assert tier_warning(CausalGraph(("income", "age_at_onset"), np.eye(2, k=1))) == []
    assert tier_warning(None) == []


# The class.


@pytest.mark.parametrize(("head", "two"), [(False, True), (False, False), (True, True)])
def test_an_accuracy_that_guessing_reaches(head, two):
    metrics = {"accuracy": 0.8, "majority": 0.8} | ({"auroc": 0.7} if two else {})
    (text,) = majority_warning(metrics, "test rows", head)
    assert "0.800" in text
    assert ("head=True" in text) == (not head)
    assert ("decision='macro-f1'" in text) == two
    assert majority_warning({**metrics, "accuracy": 0.81}, "test rows", head) == []
    assert majority_warning({"shd": 3}, "test rows", head) == []


# Combinations, where no party had rows enough to tell.


def test_what_others_determine_is_named():
    relations = [(3, [0, 1])]
    text, left = determined_warning(relations, NAMES, [3, 3])
    assert "'d' is a linear combination of 'a', 'b'" in text
    assert "Left out of the search" in left
    assert "'d'" in left
    assert determined_warning(relations, NAMES, [3, 30]) == [left]  # the second party has seen it
    mixed = determined_warning(relations, NAMES, [3, 30], [True, False, True, True])
    assert "'d' is a function of 'a', 'b'" in mixed[0]
    assert determined_warning([], NAMES, [3, 3]) == []


def test_a_search_over_orders_leaves_directions_in_doubt_only():
    rng = np.random.default_rng(0)
    cause = rng.normal(size=600)
    rows = np.column_stack([cause, 8 * cause + 20 * rng.normal(size=600)])
    (text,) = simulate("moments", [rows[:200], rows[200:]]).warnings
    assert text.startswith("The units of the columns may have decided directions")
    assert "x0 -> x1" in text
    assert "Sorting the columns by variance" in text
    (text,) = simulate("moments", [rows[:200], rows[200:]], solver="dagma").warnings
    assert text.startswith("The units of the columns may have decided edges and directions")
    assert "Sorting" not in text
    # Two causes that are independent determine the directions, whatever the noise.
    other = rng.normal(size=600)
    both = np.column_stack([cause, other, 8 * (cause + other) + 20 * rng.normal(size=600)])
    assert simulate("moments", [both[:200], both[200:]]).warnings == []
