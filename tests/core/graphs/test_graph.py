"""The causal graph: what it accepts, how it is cut again, and the forms it takes."""

from dataclasses import replace
from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from small_graphs import CHAIN, NAMES, dags, full_graph, matrix

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.errors import ConfigError, DataError

# What it accepts


def test_arrays_are_read_only_copies_in_float64():
    given_weights = np.array([[0, 2], [0, 0]], dtype=np.float32)
    graph = CausalGraph(("a", "b"), given_weights)
    given_weights[0, 1] = 5
    assert graph.weights.dtype == np.float64
    assert graph.weights[0, 1] == 2
    with pytest.raises(ValueError, match="read-only"):
        graph.weights[0, 1] = 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"names": ("a", "b", "a")}, "names repeat: a"),
        ({"names": "abc"}, "names is the string 'abc'"),
        ({"names": ("a", "b")}, r"weights has shape \(3, 3\), expected \(2, 2\)"),
        ({"weights": np.full((3, 3), np.nan)}, "weights is not finite at x2 -> x2"),
        ({"raw_weights": matrix(3) + np.inf}, "raw_weights is not finite"),
        ({"confidence": np.zeros((2, 2))}, r"confidence has shape \(2, 2\)"),
        ({"required": np.zeros((3, 2))}, r"required has shape \(3, 2\)"),
        ({"lagged": np.zeros((2, 3, 2))}, "lagged has shape"),
        ({"raw_lagged": np.zeros((2, 3, 3))}, "raw_lagged is given without lagged"),
        (
            {"lagged": np.zeros((2, 3, 3)), "raw_lagged": np.zeros((1, 3, 3))},
            "raw_lagged has shape",
        ),
        ({"kind": "mag"}, "kind is 'mag'"),
        ({"kind": "pag"}, "marks belong to kind 'pag'"),
        ({"marks": np.zeros((3, 3))}, "marks belong to kind 'pag'"),
        ({"weights": [["a"] * 3] * 3}, "not a number"),
        ({"weights": None}, "weights is None"),
    ],
)
def test_what_does_not_fit_is_refused(fields, message):
    complete = {"names": NAMES, "weights": np.zeros((3, 3))}
    with pytest.raises(DataError, match=message):
        CausalGraph(**{**complete, **fields})


def test_the_place_of_a_bad_number_is_named():
    weights = np.zeros((3, 3))
    weights[0, 1] = np.inf
    with pytest.raises(DataError, match="x2 -> x10"):
        CausalGraph(NAMES, weights)
    lagged = np.zeros((2, 3, 3))
    lagged[1, 2, 0] = np.nan
    with pytest.raises(DataError, match="x1 -> x2"):
        CausalGraph(NAMES, np.zeros((3, 3)), lagged=lagged)


def test_from_array_names_by_number_and_refuses_what_is_not_square():
    assert CausalGraph.from_array(CHAIN).names == ("x0", "x1", "x2")
    assert CausalGraph.from_array(CHAIN, list(NAMES)).names == NAMES
    with pytest.raises(DataError, match="square"):
        CausalGraph.from_array(np.zeros((2, 3)))


def test_edges_counts_and_adjacency():
    graph = CausalGraph(NAMES, [[0, -0.5, 0], [0, 0, 0], [2, 0, 0]], required=matrix(3, (2, 1)))
    assert graph.edges() == [("x2", "x10", -0.5), ("x1", "x2", 2.0), ("x1", "x10", 0.0)]
    assert graph.num_edges == 3
    assert graph.lagged_edges() == []
    undirected = CausalGraph.from_array(CHAIN | CHAIN.T, kind="cpdag")
    assert undirected.num_edges == 2
    assert len(undirected.edges()) == 4
    assert CausalGraph.from_array(CHAIN | CHAIN.T, kind="summary").num_edges == 4


def test_lagged_edges_count_lags_from_one():
    lagged = np.zeros((2, 3, 3))
    lagged[1, 2, 2] = 0.5
    graph = CausalGraph(NAMES, np.zeros((3, 3)), lagged=lagged)
    assert graph.lagged_edges() == [("x1", "x1", 2, 0.5)]
    assert graph.num_lagged_edges == 1

    assert CausalGraph(NAMES, np.zeros((3, 3)), lagged=np.zeros((0, 3, 3))).lagged is None


# Thresholds


def test_threshold_goes_back_to_the_raw_weights():
    raw = np.array([[0, 0.9, 0.2], [0, 0, -0.4], [0, 0, 0]])
    refitted = np.array([[0, 1.1, 0], [0, 0, -0.5], [0, 0, 0]])
    graph = CausalGraph(NAMES, refitted, raw_weights=raw)
    assert [edge[2] for edge in graph.threshold(0.1).edges()] == [1.1, 0.2, -0.5]
    assert [edge[2] for edge in graph.threshold(0.4).edges()] == [1.1]  # strictly more than
    assert graph.threshold(5).num_edges == 0
    assert graph.threshold(5).threshold(0.1).num_edges == 3
    np.testing.assert_array_equal(graph.threshold(0.4).raw_weights, raw)


def test_threshold_drops_the_weakest_edge_of_a_cycle_unless_it_is_required():
    raw = np.array([[0, 0.9, 0], [0, 0, 0.5], [0.7, 0, 0]])
    graph = CausalGraph(NAMES, np.zeros((3, 3)), raw_weights=raw)
    assert {edge[:2] for edge in graph.threshold(0.1).edges()} == {("x2", "x10"), ("x1", "x2")}
    kept = replace(graph, required=matrix(3, (1, 2))).threshold(0.1)
    assert {edge[:2] for edge in kept.edges()} == {("x2", "x10"), ("x10", "x1")}
    summary = replace(graph, kind="summary").threshold(0.1)
    assert summary.num_edges == 3
    assert not summary.is_acyclic()


def test_a_required_edge_of_weight_zero_stands_and_blocks_cycles():
    raw = np.array([[0, 0, 0], [0.9, 0, 0], [0, 0, 0]])
    graph = CausalGraph(NAMES, np.zeros((3, 3)), raw_weights=raw, required=matrix(3, (0, 1)))
    cut = graph.threshold(0.1)
    assert cut.edges() == [("x2", "x10", 0.0)]
    assert cut.is_acyclic()


@given(
    arrays(np.float64, (5, 5), elements=st.floats(-2, 2)),
    dags(5),
    st.floats(0, 1),
)
def test_a_cut_is_always_a_dag_of_strong_or_required_edges(raw, required, value):
    graph = CausalGraph.from_array(np.zeros((5, 5)))
    graph = replace(graph, raw_weights=raw, required=required)
    cut = graph.threshold(value)
    assert cut.is_acyclic()
    assert (cut.adjacency | ~required).all()
    assert not (cut.adjacency & ~required & (np.abs(raw) <= value)).any()
    assert cut.threshold(value).equals(cut)


def test_threshold_cuts_lags_by_their_raw_weights():
    raw = np.array([[[0.2, 0], [0, 0.8]]])
    graph = CausalGraph(
        ("a", "b"), np.zeros((2, 2)), lagged=np.where(raw > 0.5, 1.0, 0), raw_lagged=raw
    )
    assert graph.threshold(0.1).lagged.tolist() == [[[0.2, 0], [0, 1.0]]]
    assert graph.threshold(0.5).equals(graph)


@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf])
def test_a_bad_threshold_is_refused(value):
    with pytest.raises(ConfigError, match="threshold is"):
        CausalGraph.from_array(CHAIN).threshold(value)
    with pytest.raises(ConfigError, match="threshold is"):
        full_graph().threshold(0.1, lagged=value)


def test_lags_may_have_a_threshold_of_their_own():
    raw = np.array([[[0.2, 0], [0, 0.8]]])
    graph = CausalGraph(("a", "b"), [[0, 0.5], [0, 0]], lagged=raw)
    assert graph.threshold(0.6, lagged=0.1).num_edges == 0
    assert graph.threshold(0.6, lagged=0.1).num_lagged_edges == 2
    assert graph.threshold(0.1, lagged=0.6).num_edges == 1
    assert graph.threshold(0.1, lagged=0.6).num_lagged_edges == 1
    assert graph.threshold(0.6, lagged=0.6).equals(graph.threshold(0.6))


# Summary over lags


def test_a_summary_has_the_strongest_entry_of_any_slice():
    now = [[0, 0.5, 0], [0, 0, 0], [0, 0, 0]]
    lagged = np.zeros((2, 3, 3))
    lagged[0, 0, 1], lagged[1, 0, 1] = 0.2, -0.7
    lagged[0, 1, 0] = 0.3
    lagged[1, 2, 2] = -0.1
    graph = CausalGraph(NAMES, now, lagged=lagged)
    summary = graph.summary()
    assert summary.kind == "summary"
    assert summary.names == NAMES
    assert summary.lagged is None
    assert summary.raw_weights is None
    assert summary.edges() == [("x2", "x10", -0.7), ("x10", "x2", 0.3), ("x1", "x1", -0.1)]
    assert not summary.is_acyclic()
    assert graph.summary(self_loops=False).edges() == summary.edges()[:2]


@given(
    arrays(np.float64, (3, 3), elements=st.floats(-2, 2)),
    arrays(np.float64, (2, 3, 3), elements=st.floats(-2, 2)),
)
def test_a_summary_joins_what_any_slice_joins_and_raw_weights_come_along(now, lagged):
    np.fill_diagonal(now, 0)
    graph = CausalGraph(NAMES, now, lagged=lagged).threshold(0.5)
    graph = replace(graph, raw_weights=now, raw_lagged=lagged)
    summary = graph.summary()
    at_any_lag = (graph.lagged != 0).any(axis=0)
    np.testing.assert_array_equal(summary.adjacency, graph.adjacency | at_any_lag)
    largest = np.maximum(np.abs(now), np.abs(lagged).max(axis=0))
    np.testing.assert_array_equal(np.abs(summary.raw_weights), largest)
    np.testing.assert_array_equal(summary.threshold(1).adjacency, largest > 1)


def test_a_summary_keeps_required_edges_and_of_a_plain_graph_everything_but_confidence():
    graph = full_graph()
    assert graph.summary().adjacency[0, 1]
    np.testing.assert_array_equal(graph.summary().required, graph.required)
    assert graph.summary().confidence is None
    plain = CausalGraph(NAMES, CHAIN * 0.5, raw_weights=np.full((3, 3), 0.1))
    assert plain.summary().equals(replace(plain, kind="summary"))
    only_now = CausalGraph(NAMES, CHAIN * 0.5, raw_weights=CHAIN * 0.6, lagged=np.ones((1, 3, 3)))
    np.testing.assert_array_equal(only_now.summary().raw_weights, np.ones((3, 3)))
    with pytest.raises(DataError, match="CPDAG has no summary"):
        plain.to_cpdag().summary()


# Order, classes


def test_topological_order_is_by_name_and_cycles_are_errors():
    graph = CausalGraph(NAMES, matrix(3, (2, 0), (0, 1)).astype(float))
    assert graph.topological_order() == ["x1", "x2", "x10"]
    with pytest.raises(DataError, match="cycles"):
        CausalGraph.from_array(matrix(2, (0, 1), (1, 0))).topological_order()
    with pytest.raises(DataError, match="to_dag"):
        CausalGraph.from_array(CHAIN).to_cpdag().topological_order()


def test_classes_and_their_members():
    graph = CausalGraph(NAMES, CHAIN * 0.7)
    pattern = graph.to_cpdag()
    assert pattern.kind == "cpdag"
    assert pattern.names == NAMES
    np.testing.assert_array_equal(pattern.adjacency, CHAIN | CHAIN.T)
    assert set(np.unique(pattern.weights)) == {0.0, 1.0}
    assert pattern.is_acyclic()
    assert pattern.to_cpdag() is pattern
    dag = pattern.to_dag()
    assert dag.kind == "dag"
    assert dag.names == NAMES
    assert dag.to_cpdag().equals(pattern)
    assert graph.to_dag() is graph
    np.testing.assert_array_equal(graph.moral(), pattern.moral())


def test_graphs_without_a_class_or_a_member_say_why():
    with pytest.raises(DataError, match="cycles has no CPDAG"):
        CausalGraph.from_array(matrix(2, (0, 1), (1, 0))).to_cpdag()
    with pytest.raises(DataError, match="lags has no CPDAG"):
        full_graph().to_cpdag()
    square = matrix(4, (0, 1), (1, 2), (2, 3), (3, 0))
    with pytest.raises(DataError, match="not a CPDAG"):
        CausalGraph.from_array(square | square.T, kind="cpdag").to_dag()
    with pytest.raises(DataError, match="summary"):
        CausalGraph.from_array(square, kind="summary").to_dag()


def test_equality_looks_at_everything():
    graph = full_graph()
    assert graph.equals(full_graph())
    assert not graph.equals(replace(graph, names=("a", "b", "c")))
    assert not graph.equals(replace(graph, raw_weights=None))
    assert not replace(graph, raw_weights=None).equals(graph)
    assert not graph.equals(replace(graph, weights=graph.weights * (1 + 1e-15)))
    assert not graph.equals("graph")


def test_the_representation_is_short():
    assert repr(CausalGraph.from_array(CHAIN)) == "<CausalGraph dag: 3 variables, 2 edges>"
    assert "lagged" in repr(full_graph())


def test_a_threshold_leaves_undirected_edges_undirected():
    weights = np.array([[0, 0.5, 0], [0.2, 0, 0.1], [0, 0.2, 0]])
    graph = CausalGraph.from_array(weights, kind="cpdag").threshold(0.3)
    np.testing.assert_array_equal(graph.weights, [[0, 0.5, 0], [0.2, 0, 0], [0, 0, 0]])
    directed = CausalGraph.from_array(np.triu(weights), kind="cpdag").threshold(0.3)
    np.testing.assert_array_equal(directed.weights, [[0, 0.5, 0], [0, 0, 0], [0, 0, 0]])


def test_marked_edges_has_each_edge_once():
    marks = np.array([[0, 1, 1], [1, 0, 1], [0, 0, 0]])
    cpdag = CausalGraph.from_array(marks, "abc", kind="cpdag")
    assert cpdag.marked_edges() == [("a", "--", "b", 1), ("a", "->", "c", 1), ("b", "->", "c", 1)]
    lagged = CausalGraph.from_array([[0, 2], [0, 0]], "ab", lagged=[[[0.5, 0], [0, 0]]])
    assert lagged.marked_edges() == [("a", "->", "b", 2), ("a[t-1]", "->", "a", 0.5)]


@given(dags(6), st.integers(0, 3), st.integers(0, 12))
def test_parts_of_a_graph(adjacency, steps, count):
    d = len(adjacency)
    rng = np.random.default_rng(d)
    names = tuple(f"v{k}" for k in range(d))
    weights = np.where(adjacency, rng.normal(size=(d, d)), 0.0)
    graph = CausalGraph(names, weights, lagged=[np.where(rng.random((d, d)) < 0.1, 0.7, 0.0)])
    # Around a variable: networkx's shortest paths without directions, all edges among those near.
    whole = graph.to_networkx().to_undirected()
    near = nx.single_source_shortest_path_length(whole, names[0], cutoff=steps)
    around = graph.around(names[0], steps)
    assert around.names == tuple(name for name in names if name in near)
    assert around.marked_edges() == [
        edge for edge in graph.marked_edges() if {edge[0].split("[")[0], edge[2]} <= near.keys()
    ]
    # The strongest edges: those of a sorted list.
    edges = graph.marked_edges()
    kept = sorted(edges, key=lambda edge: -abs(edge[3]))[:count]
    strongest = graph.strongest(count)
    assert sorted(map(str, strongest.marked_edges())) == sorted(map(str, kept))
    assert set(strongest.names) == {name.split("[")[0] for edge in kept for name in edge[::2]}


def test_parts_of_a_class_and_of_a_graph_with_everything():
    marks = np.array([[0, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0]])
    confidence = np.array([[0, 0.4, 0.6, 0], [0.9, 0, 0.7, 0], [0, 0, 0, 0], [0, 0, 0.1, 0]])
    cpdag = CausalGraph(tuple("abcd"), marks, kind="cpdag", confidence=confidence)
    one = cpdag.strongest(1)  # the undirected edge, whose surer direction has the most
    assert one.marked_edges() == [("a", "--", "b", 1.0)]
    np.testing.assert_array_equal(one.confidence, confidence[:2, :2])
    assert cpdag.strongest(3).names == ("a", "b", "c")
    graph = full_graph()
    assert graph.strongest(100).marked_edges() == graph.marked_edges()
    assert graph.strongest(0).names == ()
    with pytest.raises(DataError, match="no variable 'zz'"):
        graph.around("zz")
    for wrong in (lambda: graph.around(graph.names[0], -1), lambda: graph.strongest(-1)):
        with pytest.raises(ConfigError, match=r"expected 0, 1, 2"):
            wrong()


def test_knowledge_and_deviations_stay_with_their_variables(tmp_path):
    """In every part and order of the graph, and in its file."""
    rng = np.random.default_rng(0)
    graph = CausalGraph(
        ("a", "b", "c", "d"),
        np.triu(rng.normal(size=(4, 4)), 1),
        lagged=rng.normal(size=(2, 4, 4)),
        deviations=[1.0, 20.0, 300.0, 4.0],
    )
    known = Knowledge(tiers=[["a"], ["b", "c"]], required_lagged=[("b", "c", 2)])
    graph = graph.with_knowledge(known)
    graph.save(tmp_path / "graph.json")
    assert CausalGraph.load(tmp_path / "graph.json").equals(graph)
    moved = graph.reordered(("c", "a", "d", "b"))
    for own in (graph, moved, moved.around("c", 1), moved.strongest(3)):
        index = {name: k for k, name in enumerate(own.names)}
        masks = known.blocks(("a", "b", "c", "d"), 2)
        for i, j in permutations(own.names, 2):
            first = "abcd".index(i), "abcd".index(j)
            assert own.allowed[index[i], index[j]] == masks.allowed_now[first]
            place = (1, index[i], index[j])
            kept = (i, j) == ("b", "c") and own.lagged[place] != 0
            assert own.required_lagged[place] == kept
        expected = {"a": 1.0, "b": 20.0, "c": 300.0, "d": 4.0}
        assert [own.deviations[index[name]] for name in own.names] == [
            expected[name] for name in own.names
        ]
    edges = [edge[:3] for edge in graph.marked_edges()]
    strengths = dict(zip(edges, graph.marked_strengths(), strict=True))
    assert strengths["a", "->", "b"] == pytest.approx(abs(graph.weights[0, 1]) / 20)
    assert strengths["c[t-2]", "->", "a"] == pytest.approx(abs(graph.lagged[1, 2, 0]) * 300)
    kept = max(strengths, key=strengths.get)
    assert [edge[:3] for edge in graph.strongest(1).marked_edges()] == [kept]
    summary = graph.summary()
    assert summary.deviations.tolist() == graph.deviations.tolist()
    for wrong in ([1.0, 2.0], [1.0, 0.0, 1.0, 1.0], [1.0, np.nan, 1.0, 1.0]):
        with pytest.raises(DataError, match="deviations"):
            replace(graph, deviations=wrong)
    with pytest.raises(ConfigError, match="'x'"):
        graph.with_knowledge(Knowledge(required=[("a", "x")]))
