"""GES as it is called: options, invariances, knowledge, what is found and what is refused."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_search import random_dag, table_of
from small_graphs import matrix

from flwr_causal.core.discrete.discrete import as_discrete
from flwr_causal.core.discrete.scores import score_graph
from flwr_causal.core.ges.ges import ges
from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.data.synthetic.discrete import random_network
from flwr_causal.errors import ConfigError, DataError

SCORES = ["bdeu", "bic", "qnml"]


@cache
def network(seed=0, size=7):
    return random_network(size, seed=seed, edges_per_variable=1.6, num_states=(2, 3))


@cache
def frame(seed=0, num_rows=500, size=7):
    return network(seed, size).sample(num_rows, seed)


def same(one, two):
    assert one.kind == two.kind == "cpdag"
    assert one.names == two.names
    np.testing.assert_array_equal(one.adjacency, two.adjacency)


# --- exact scores ---------------------------------------------------------------------------------


def exact_table(net, num_rows=10**9):
    """Every cell of the joint distribution, weighed by its probability."""
    cards = [len(states) for states in net.states]
    codes = np.indices(cards).reshape(len(cards), -1)
    names = [list(states) for states in net.states]
    cells = pd.DataFrame(
        {
            name: np.array(own, dtype=object)[row]
            for name, own, row in zip(net.names, names, codes, strict=True)
        }
    )
    weights = np.round(num_rows * np.exp(net.log_likelihood(cells))).astype(np.int64)
    return table_of(codes, cards, weights)


@pytest.mark.parametrize("score", SCORES)
def test_the_class_of_a_network_is_found_from_its_exact_distribution(score):
    for seed in range(25):
        net = random_network(5, seed=seed, edges_per_variable=1.5, num_states=(2, 3))
        found = ges(exact_table(net), score)
        np.testing.assert_array_equal(found.adjacency, net.graph.to_cpdag().adjacency)


def test_graphs_of_five_variables_are_found_from_exact_covariances():
    rng = np.random.default_rng(1)
    for number in range(250):
        dag = random_dag(5, rng, 0.2 + 0.6 * (number % 10) / 10)
        weights = dag * rng.uniform(0.4, 1.5, (5, 5)) * rng.choice([-1, 1], (5, 5))
        mixing = np.linalg.inv(np.eye(5) - weights)
        covariance = mixing.T @ np.diag(rng.uniform(0.5, 2, 5)) @ mixing
        moments = SampleMoments(10**12, np.zeros(5), covariance, tuple("edcba"))
        np.testing.assert_array_equal(
            ges(moments, "gaussian-bic").adjacency, equivalence.cpdag(dag)
        )


@pytest.mark.slow
def test_more_rows_bring_the_graph_closer_to_the_truth():
    distances = [
        sum(
            structural_hamming_distance(
                network(seed).graph.to_cpdag(), ges(frame(seed, num_rows), "bic")
            )
            for seed in range(6)
        )
        for num_rows in (50, 20_000)
    ]
    assert distances[1] < distances[0] / 3


# --- what does not matter -------------------------------------------------------------------------


@given(st.permutations(range(8)), st.sampled_from(SCORES), st.booleans(), st.integers(0, 3))
def test_the_order_of_columns_does_not_matter(order, score, turn, seed):
    # A copy of a column makes gains that are equal exactly.
    rows = frame(seed, 200).assign(copy=frame(seed, 200)["x2"])
    names = list(rows.columns)
    one = ges(rows, score, turn=turn)
    two = ges(rows[[names[k] for k in order]], score, turn=turn)
    assert list(two.names) == [names[k] for k in order]
    np.testing.assert_array_equal(two.adjacency, one.adjacency[np.ix_(order, order)])


@settings(max_examples=10)
@given(st.permutations(range(6)), st.integers(0, 3))
def test_the_order_of_columns_does_not_matter_for_moments(order, seed):
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(rng.normal(size=(60, 6)) @ rng.normal(size=(6, 6)), columns=list("qazwsx"))
    one, two = ges(rows, "gaussian-bic"), ges(rows.iloc[:, order], "gaussian-bic")
    np.testing.assert_array_equal(two.adjacency, one.adjacency[np.ix_(order, order)])


def test_neither_the_order_of_rows_nor_names_of_states_matter():
    rows = frame(1)
    for score in SCORES:
        one = ges(rows, score)
        same(ges(rows.sample(frac=1.0, random_state=3), score), one)
        same(ges(rows.map(lambda state: {"s0": 7, "s1": 3, "s2": -1}[state]), score), one)


def test_repeated_rows_can_be_weighed():
    rows = as_discrete(frame(2, 300))
    weights = np.random.default_rng(0).integers(0, 6, 300)
    weighed = table_of(rows.codes, rows.cardinalities, weights)
    repeated = table_of(np.repeat(rows.codes, weights, axis=1), rows.cardinalities)
    for score in SCORES:
        same(ges(weighed, score), ges(repeated, score))
        same(ges(weighed.compressed(), score), ges(repeated, score))


def test_arrays_frames_and_tables_are_one():
    rows = frame(3)
    table = as_discrete(rows)
    expected = ges(table)
    same(ges(rows), expected)
    same(ges(table.codes.T), expected)  # x0, x1, ... are its names too


# --- start ----------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from(SCORES))
def test_a_dag_and_its_class_start_alike(seed, score):
    start = CausalGraph.from_array(
        random_dag(7, np.random.default_rng(seed), 0.3), [f"x{k}" for k in range(7)]
    )
    found = ges(frame(seed % 4), score, start=start)
    same(ges(frame(seed % 4), score, start=start.to_cpdag()), found)
    same(ges(frame(seed % 4), score, start=start.adjacency), found)
    same(ges(frame(seed % 4), score, start=start.to_cpdag().adjacency), found)
    before = score_graph(start, frame(seed % 4), score)
    assert score_graph(found, frame(seed % 4), score) >= before - 1e-6


@pytest.mark.parametrize("turn", [False, True])
def test_the_result_is_where_a_search_from_it_stays(turn):
    for seed in range(4):
        found = ges(frame(seed), turn=True)
        same(ges(frame(seed), start=found, turn=turn), found)


def test_variables_of_the_start_are_found_by_name():
    start = CausalGraph.from_array(random_dag(7, np.random.default_rng(1)), frame(1).columns)
    order = [3, 1, 6, 0, 2, 5, 4]
    moved = CausalGraph.from_array(
        start.adjacency[np.ix_(order, order)], [start.names[k] for k in order]
    )
    same(ges(frame(1), start=moved, max_edges=1), ges(frame(1), start=start, max_edges=1))


# --- limits ---------------------------------------------------------------------------------------


def test_at_most_so_many_edges_are_inserted():
    whole = ges(frame(0, 2000)).to_dag()
    num_edges = int(whole.adjacency.sum())
    assert num_edges > 4
    counts = [
        int(ges(frame(0, 2000), max_edges=k).to_dag().adjacency.sum())
        for k in range(1, num_edges + 3)
    ]
    assert counts == [min(k, num_edges) for k in range(1, num_edges + 3)]


@pytest.mark.few(1)
@pytest.mark.parametrize("limit", [1, 2])
def test_no_variable_gets_more_parents_than_allowed(limit):
    reached = 0
    for seed in range(8):
        for turn in (False, True):
            found = ges(frame(seed, 2000), max_parents=limit, turn=turn)
            most = int(found.to_dag().adjacency.sum(axis=0).max())
            assert most <= limit
            reached += most == limit
            free = ges(frame(seed, 2000), max_parents=7, turn=turn)
            same(free, ges(frame(seed, 2000), turn=turn))
    assert reached >= 12


def test_turning_finds_better_classes():
    gains = [
        score_graph(ges(rows, turn=True), rows) - score_graph(ges(rows), rows)
        for rows in (frame(seed, 150, 9) for seed in range(25))
    ]
    assert min(gains) > -1e-6
    assert max(gains) > 0.1


def test_the_sample_size_of_the_prior_counts():
    rows = frame(0, 200)
    sizes = [
        int(ges(rows, equivalent_sample_size=ess).to_dag().adjacency.sum())
        for ess in (1e-6, 1.0, 100.0)
    ]
    assert sizes[0] < sizes[1] < sizes[2]


# --- knowledge ------------------------------------------------------------------------------------


@st.composite
def knowledge(draw, names):
    order = draw(st.permutations(names))
    pairs = [(a, b) for k, a in enumerate(order) for b in order[k + 1 :]]
    required = draw(st.sets(st.sampled_from(pairs), max_size=3))
    others = [(a, b) for a in names for b in names if a != b and (a, b) not in required]
    forbidden = draw(st.sets(st.sampled_from(others), max_size=10))
    cuts = sorted(draw(st.sets(st.integers(1, len(names) - 1), max_size=2)))
    tiers = [order[i:j] for i, j in zip([0, *cuts], [*cuts, len(names)], strict=True)]
    listed = draw(st.booleans())
    return Knowledge(tuple(required), tuple(forbidden), tuple(map(tuple, tiers)) if listed else ())


@given(knowledge([f"x{k}" for k in range(7)]), st.integers(0, 3), st.booleans())
def test_knowledge_is_respected(known, seed, turn):
    found = ges(frame(seed), knowledge=known, turn=turn)
    masks = known.masks(found.names)
    assert not (equivalence.directed_part(found.adjacency) & ~masks.allowed).any()
    assert (equivalence.directed_part(found.adjacency) | ~masks.required).all()
    dag = found.to_dag().adjacency
    assert not (dag & ~masks.allowed).any()
    assert (dag | ~masks.required).all()
    # What is directed beyond the class follows from the knowledge.
    np.testing.assert_array_equal(equivalence.meek(found.adjacency), found.adjacency)
    marks = equivalence.cpdag(dag)
    assert not (found.adjacency & ~marks).any()
    np.testing.assert_array_equal(found.adjacency | found.adjacency.T, marks | marks.T)
    if not known:
        same(found, ges(frame(seed), turn=turn))


def test_no_knowledge_and_knowledge_that_says_nothing_new_change_nothing():
    for seed in range(4):
        free = ges(frame(seed))
        same(ges(frame(seed), knowledge=Knowledge()), free)
        one_tier = Knowledge(tiers=[tuple(frame(seed).columns)])
        same(ges(frame(seed), knowledge=one_tier), free)


def test_true_knowledge_helps():
    distances = np.zeros(3, dtype=int)
    for seed in range(8):
        truth = network(seed).graph
        order = truth.topological_order()
        edges = [tuple(edge[:2]) for edge in truth.edges()]
        statements = (
            None,
            Knowledge(tiers=[tuple(order[:3]), tuple(order[3:])]),
            Knowledge(required=edges[:3]),
        )
        for k, known in enumerate(statements):
            found = ges(frame(seed, 400), "bic", knowledge=known)
            distances[k] += structural_hamming_distance(truth, found.to_dag())
    assert distances[1] < distances[0]
    assert distances[2] < distances[0]


@pytest.mark.parametrize("turn", [False, True])
def test_a_start_that_agrees_with_the_knowledge(turn):
    reversible = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        order = rng.permutation(7)
        dag = np.zeros((7, 7), dtype=bool)
        dag[np.ix_(order, order)] = np.triu(rng.random((7, 7)) < 0.35, 1)
        names = [f"x{k}" for k in range(7)]
        in_order = [names[k] for k in order]
        edges = [(names[i], names[j]) for i, j in np.argwhere(dag)]
        known = Knowledge(required=edges[:2], tiers=[tuple(in_order[:4]), tuple(in_order[4:])])
        start = CausalGraph.from_array(dag, names)
        found = ges(frame(seed % 4), start=start, knowledge=known, turn=turn)
        same(
            ges(frame(seed % 4), start=start.to_cpdag(), knowledge=known, turn=turn),
            found,
        )
        masks = known.masks(names)
        assert not (found.to_dag().adjacency & ~masks.allowed).any()
        assert (found.to_dag().adjacency | ~masks.required).all()
        reversible += equivalence.undirected_part(start.to_cpdag().adjacency).any()
    assert reversible > 3


def test_required_edges_stand_though_nothing_speaks_for_them():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.integers(0, 2, (200, 4)), columns=list("abcd"))
    known = Knowledge(required=[("d", "a"), ("a", "b")])
    found = ges(rows, "bic", knowledge=known)
    assert {tuple(edge[:2]) for edge in found.to_dag().edges()} == {("d", "a"), ("a", "b")}
    assert equivalence.undirected_part(found.adjacency).sum() == 0


def test_a_start_against_the_knowledge_is_refused():
    rows = frame(0)
    forward = CausalGraph.from_array(matrix(7, (0, 1)), rows.columns)
    directed = CausalGraph.from_array(matrix(7, (0, 2), (1, 2)), rows.columns)
    found = ges(rows, start=forward, knowledge=Knowledge(required=[("x1", "x0")]))
    assert found.adjacency[1, 0]
    with pytest.raises(DataError, match="contradicts the background knowledge"):
        ges(rows, start=directed, knowledge=Knowledge(forbidden=[("x0", "x2")]))
    with pytest.raises(DataError, match="contradicts the background knowledge"):
        ges(rows, start=directed, knowledge=Knowledge(tiers=[("x2",), ("x0",)]))
    path = CausalGraph.from_array(matrix(7, (0, 2), (1, 2), (2, 3)), rows.columns)
    with pytest.raises(DataError, match="close a cycle"):
        ges(rows, start=path, knowledge=Knowledge(required=[("x3", "x0")]))
    with pytest.raises(ConfigError, match="'y'"):
        ges(rows, knowledge=Knowledge(required=[("x0", "y")]))


# --- large ----------------------------------------------------------------------------------------


def test_three_hundred_variables():
    rows = network(5, 300).sample_table(1500, 5)
    found = ges(rows)
    dag = found.to_dag().adjacency
    np.testing.assert_array_equal(equivalence.cpdag(dag), found.adjacency)
    truth = network(5, 300).graph
    joined, true = equivalence.skeleton(dag), equivalence.skeleton(truth.adjacency)
    assert (joined & true).sum() > 0.6 * true.sum()
    assert (joined & true).sum() > 0.7 * joined.sum()


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"score": "aic"}, ConfigError, "'aic'"),
        ({"equivalent_sample_size": 0}, ConfigError, "equivalent_sample_size is 0"),
        ({"equivalent_sample_size": -2.0}, ConfigError, "equivalent_sample_size is -2"),
        ({"max_edges": 0}, ConfigError, "max_edges is 0"),
        ({"max_edges": 1.5}, ConfigError, "max_edges is 1.5"),
        ({"max_edges": True}, ConfigError, "max_edges is True"),
        ({"max_edges": "many"}, ConfigError, "max_edges is 'many'"),
        ({"max_parents": 0}, ConfigError, "max_parents is 0"),
        ({"max_parents": float("nan")}, ConfigError, "max_parents is nan"),
        ({"start": matrix(7, (0, 1), (1, 2), (2, 0))}, DataError, "cycle"),
        ({"start": np.zeros((3, 3))}, DataError, r"shape \(3, 3\); the table has 7"),
        (
            {"start": CausalGraph.from_array(np.zeros((7, 7)), list("abcdefg"))},
            DataError,
            "other variables",
        ),
        # A chordless circle of undirected edges has no DAG without a v-structure.
        (
            {"start": (c := matrix(7, (0, 1), (1, 2), (2, 3), (3, 0))) | c.T},
            DataError,
            "no DAG",
        ),
    ],
)
def test_impossible_options(options, error, message):
    with pytest.raises(error, match=message):
        ges(frame(0), **options)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pd.DataFrame({"a": ["x", None, "y"]}), "'a' has missing values"),
        (np.array([[0.0, np.nan], [1.0, 2.0]]), "'x1' has missing values"),
        (np.zeros((0, 3)), "no rows"),
        (np.arange(600).reshape(300, 2), "'x0' has 300 different values"),
        (table_of(np.array([[0, 1]]), [3]), "'x0' has 3 states but there are 2 rows"),
        (np.arange(4), "shape"),
    ],
)
def test_tables_that_cannot_be_used(rows, message):
    with pytest.raises(DataError, match=message):
        ges(rows)


@pytest.mark.parametrize("rows", [np.array([[1.0, np.nan], [2.0, 1.0]]), [["a", "b"], ["c", "d"]]])
def test_moments_need_numbers(rows):
    with pytest.raises(DataError):
        ges(rows, "gaussian-bic")


def test_moments_must_be_complete():
    covariance = np.array([[1.0, np.nan], [np.nan, 1.0]])
    with pytest.raises(DataError, match="second moment of a and b is missing"):
        ges(SampleMoments(9, np.zeros(2), covariance, ("a", "b")), "gaussian-bic")


def test_columns_of_one_state_stay_alone():
    rows = frame(0).assign(same="always")
    for score in SCORES:
        found = ges(rows, score, turn=True)
        assert not found.adjacency[-1].any()
        assert not found.adjacency[:, -1].any()
        np.testing.assert_array_equal(
            found.adjacency[:-1, :-1], ges(frame(0), score, turn=True).adjacency
        )


def test_one_variable_and_one_row():
    assert not ges(np.array([[0], [1]])).adjacency.any()
    assert ges(np.array([[0, 0]])).names == ("x0", "x1")
    assert not ges(np.array([[0, 0]]), "qnml", turn=True).adjacency.any()
