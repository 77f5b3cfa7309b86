"""Doubts about a finished graph: each names edges or columns and the remedy."""

import numpy as np
import pytest

from flwr_causal.core.blocks.design import Category, Number
from flwr_causal.core.ges.ancestral_search import HiddenCauses
from flwr_causal.core.graphs.equivalence import cpdag, reversible
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.series.design import knowledge_masks
from flwr_causal.data.check.rules import FactRule, told
from flwr_causal.data.synthetic.random_graphs import random_graph
from flwr_causal.doubts.graphs import RULES, doubts_of, plausible
from flwr_causal.simulations import simulate

NAMES = ("a", "b", "c", "d")
# a -> b -> c, and d -> c: the edges into c are a v-structure, a - b is open.
GRAPH = CausalGraph(NAMES, np.array([[0, 2.0, 0, 0], [0, 0, -1, 0], [0] * 4, [0, 0, 0.5, 0]]))
FREE = Knowledge().masks(NAMES)
ALIKE = np.array([1.0, 1.2, 0.9, 1.1])
UNLIKE = np.array([1.0, 400.0, 0.9, 1.1])


def warned(graph=GRAPH, masks=FREE, noise=None, standardized=False):
    return doubts_of(graph=graph, masks=masks, noise=noise, standardized=standardized)


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
        facts = {"graph": GRAPH, "masks": FREE, "undecided": mask}
        texts = doubts_of(noise=UNLIKE, standardized=False, **facts)
        texts += doubts_of(noise=None, standardized=True, **facts)
        assert len(texts) == 2 * found
        assert all("(a -> b; " in text for text in texts)
    assert doubts_of(noise=ALIKE, standardized=False, **facts) == []


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
    (text,) = doubts_of(final=CausalGraph(names, weights))
    assert "income -> Age" in text
    assert "sex -> Age" not in text
    assert "tiers [['Age', 'sex', 'native-country'], [all other columns]]" in text
    assert doubts_of(final=CausalGraph(names, weights.T)) == []
    undirected = CausalGraph(names, weights + weights.T, kind="cpdag")
    assert doubts_of(final=undirected) == []
    assert doubts_of(final=CausalGraph(("income", "age_at_onset"), np.eye(2, k=1))) == []
    assert doubts_of(final=None) == []


# The class.


@pytest.mark.parametrize(("head", "two"), [(False, True), (False, False), (True, True)])
def test_an_accuracy_that_guessing_reaches(head, two):
    metrics = {"accuracy": 0.8, "majority": 0.8} | ({"auroc": 0.7} if two else {})
    (text,) = doubts_of(metrics=metrics, judged="test rows", head=head)
    assert "0.800" in text
    assert ("head=True" in text) == (not head)
    assert ("decision='macro-f1'" in text) == two
    assert doubts_of(metrics={**metrics, "accuracy": 0.81}, judged="test rows", head=head) == []
    assert doubts_of(metrics={"shd": 3}, judged="test rows", head=head) == []


# Combinations, where no party had rows enough to tell.


def test_what_others_determine_is_named():
    relations = [(3, [0, 1])]
    text, left = doubts_of(relations=relations, names=NAMES, rows=[3, 3])
    assert "'d' is a linear combination of 'a', 'b'" in text
    assert "Left out of the search" in left
    assert "'d'" in left
    # The second party has seen it.
    assert doubts_of(relations=relations, names=NAMES, rows=[3, 30]) == [left]
    mixed = doubts_of(
        relations=relations, names=NAMES, rows=[3, 30], numbers=[True, False, True, True]
    )
    assert "'d' is a function of 'a', 'b'" in mixed[0]
    assert doubts_of(relations=[], names=NAMES, rows=[3, 3]) == []


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


# Every rule finds its case, and nothing in one without it.


def of_graph(weights=((0, 2.0), (0, 0)), names="ab", **further):
    graph = CausalGraph(tuple(names), np.array(weights))
    return {"graph": graph, "masks": Knowledge().masks(graph.names), **further}


def of_lags(weight):
    graph = CausalGraph(("a",), np.zeros((1, 1)), lagged=np.full((1, 1, 1), weight))
    return {"graph": graph, "n": 100}


def of_state(slope):
    """A number that moves the probability of a state by so much a standard deviation."""
    variables = (Number("x", 0.0, 1.0), Category("y", ("no", "yes")))
    second = np.array([[1.0, slope], [slope, 0.25]])
    moments = SampleMoments(1000, np.array([0.0, 0.5]), second, ("x", "y=yes"))
    return {"variables": variables, "moments": moments, "edges": np.array([[0, 1], [0, 0]], bool)}


def of_relation(rows):
    return {"relations": [(2, [0, 1])], "names": "abc", "rows": [rows]}


def of_hidden(likely):
    return {"hidden": HiddenCauses(3.0 if likely else 0.5, (("a", "b"),))}


def of_parties(count):
    odd = {f"p{k}": "the effect of 'a' on 'b' is 2" for k in range(count)}
    return {"odd": odd, "parties": [f"p{k}" for k in range(9)], "remedies": ["local_graphs=True"]}


ONE, NONE = np.array([[0, 1], [0, 0]], bool), np.zeros((2, 2), bool)
SKEWED = {"skewed": ["a"]}
AGES = np.array([[0, 1.0], [0, 0]])
GUESSED = {"judged": "test rows", "head": False}
#: By the message: the facts that a rule finds, and others in which there is nothing to find.
CASES = {
    "... of next to no strength": (of_graph(weak=ONE), of_graph()),
    "The units of the columns": (
        of_graph(noise=np.array([1.0, 99.0]), standardized=False),
        of_graph(noise=np.array([1.0, 2.0]), standardized=False),
    ),
    "With standardised columns": (of_graph(standardized=True), of_graph(standardized=False)),
    "The search for the causal order": ({"cut_after": 3}, {}),
    "The noise of": (
        of_graph(negentropies=np.array([1e-4, 1e-4]), n=100),
        of_graph(negentropies=np.array([1e-4, 0.1]), n=100),
    ),
    "Column ... is ... of": (of_relation(3), of_relation(30)),
    "Left out of the search": (of_relation(3), {**of_relation(3), "relations": []}),
    "Hidden common causes": (of_hidden(True), of_hidden(False)),
    "The graph does not fit": ({"p_value": 1e-9, **SKEWED}, {"p_value": 0.5, **SKEWED}),
    "The rows do not settle": (
        {"names": "ab", "edges": ONE, "unstable": ONE},
        {"names": "ab", "edges": ONE, "unstable": NONE},
    ),
    "The graph has": (
        {"final": CausalGraph(("income", "age"), AGES)},
        {"final": CausalGraph(("age", "income"), AGES)},
    ),
    "Intervals of effects": (of_state(0.25), of_state(0.05)),
    "The fitted system": (of_lags(0.99), of_lags(0.5)),
    "The regressions of": ({"unfinished": "a", "steps": 9}, {"unfinished": "", "steps": 9}),
    "Centres and scales": ({"unfit": ["a"]}, {"unfit": []}),
    "On ... the accuracy": (
        {"metrics": {"accuracy": 0.7, "majority": 0.8}, **GUESSED},
        {"metrics": {"accuracy": 0.9, "majority": 0.8}, **GUESSED},
    ),
    "... differs from": (of_parties(1), of_parties(0)),
    "... more parties": (of_parties(4), of_parties(3)),
}


def titled(rule):
    return rule.listed_as


@pytest.mark.parametrize("rule", [one for one in RULES if isinstance(one, FactRule)], ids=titled)
def test_each_rule_finds_its_case_and_no_other(rule):
    (case,) = [case for start, case in CASES.items() if rule.listed_as.startswith(start)]
    found, plain = case
    assert len(told([rule], found)) == 1
    assert told([rule], plain) == []
