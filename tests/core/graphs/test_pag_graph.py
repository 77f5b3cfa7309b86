"""The kind "pag" of CausalGraph: what it holds, what it gives, what it refuses."""

import numpy as np
import pytest

from benchmarks.intervention_distance import sid, sid_bounds
from flwr_causal import CausalGraph, ConfigError, DataError
from flwr_causal.core.graphs.doubt import doubtful_edges
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.graphs.metrics import compare, structural_hamming_distance
from flwr_causal.reports.edges import describe_graph
from flwr_causal.reports.graph_files import read_edges, write_dot, write_edge_csv
from flwr_causal.reports.page.graph import graph_payload

NAMES = ("a", "b", "c", "e", "g")
# a o-> b <-> c <-o e, b -> g.
MARKS = np.zeros((5, 5), dtype=int)
for _i, _j, _at_j, _at_i in ((0, 1, 2, 3), (1, 2, 2, 2), (3, 2, 2, 3), (1, 4, 2, 1)):
    MARKS[_i, _j], MARKS[_j, _i] = _at_j, _at_i
LISTED = [("a", "o->", "b"), ("b", "<->", "c"), ("b", "->", "g"), ("e", "o->", "c")]


def pag(marks=MARKS):
    return CausalGraph.from_marks(marks, NAMES)


def listed(graph):
    return [edge[:3] for edge in graph.marked_edges()]


def hidden_dag():
    edges = np.zeros((6, 6))
    for cause, effect in ((0, 1), (5, 1), (5, 2), (3, 2), (1, 4)):
        edges[cause, effect] = 1
    return CausalGraph.from_array(edges, [*NAMES, "h"])


def test_each_edge_is_listed_once_with_its_marks():
    graph = pag()
    assert listed(graph) == LISTED
    assert graph.num_edges == 4
    np.testing.assert_array_equal(graph.adjacency, MARKS != 0)
    with pytest.raises(ValueError, match="read-only"):
        graph.marks[0, 1] = 1
    assert describe_graph(graph)[1:] == [f"  {a} {mark} {b}" for a, mark, b in LISTED]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({(0, 1): 1, (1, 0): 1}, "a and b has the marks 1 and 1"),
        ({(0, 1): 3, (1, 0): 1}, "b and a has the marks 3 and 1"),
        ({(0, 1): 0}, "a and b has the marks 3 and 0"),
        ({(0, 1): 4}, "a and b"),
        ({(2, 2): 2}, "c and c"),
    ],
)
def test_marks_that_are_none_of_a_pag_are_refused(change, message):
    marks = MARKS.copy()
    for place, mark in change.items():
        marks[place] = mark
    with pytest.raises(DataError, match=message):
        pag(marks)


def test_marks_belong_to_the_edges_and_to_no_lags():
    with pytest.raises(DataError, match="same edges"):
        CausalGraph(NAMES, np.zeros((5, 5)), kind="pag", marks=MARKS)
    with pytest.raises(DataError, match="no lags"):
        CausalGraph(NAMES, (MARKS != 0) * 1.0, kind="pag", marks=MARKS, lagged=np.zeros((1, 5, 5)))
    with pytest.raises(DataError, match="shape"):
        CausalGraph.from_array(np.zeros((2, 2)), kind="pag", marks=MARKS)


def test_files_and_networkx_return_the_same_graph(tmp_path):
    graph = pag()
    graph.save(tmp_path / "graph.json")
    assert CausalGraph.load(tmp_path / "graph.json").equals(graph)
    assert CausalGraph.from_networkx(graph.to_networkx()).equals(graph)
    write_edge_csv(graph, tmp_path / "edges.csv")
    back = read_edges(tmp_path / "edges.csv", NAMES)
    np.testing.assert_array_equal(back.marks, MARKS)
    write_dot(graph, tmp_path / "graph.dot")
    lines = (tmp_path / "graph.dot").read_text().splitlines()
    assert '  "a" -> "b" [dir=both, arrowtail=odot, arrowhead=normal];' in lines
    assert '  "b" -> "c" [dir=both, arrowtail=normal, arrowhead=normal];' in lines
    assert sum("->" in line for line in lines) == 4


def test_other_orders_and_parts_keep_the_marks():
    graph = pag()
    assert set(listed(graph.reordered(NAMES[::-1]))) == {
        *LISTED[:1],
        ("c", "<->", "b"),
        *LISTED[2:],
    }
    assert listed(graph.around("g")) == [("b", "->", "g")]
    weights = np.where(MARKS != 0, 0.1, 0.0)
    weights[1, 2] = weights[2, 1] = 0.9
    strong = CausalGraph(NAMES, weights, kind="pag", marks=MARKS).strongest(1)
    assert listed(strong) == [("b", "<->", "c")]


@pytest.mark.parametrize(
    "call",
    [
        lambda graph: graph.to_dag(),
        lambda graph: graph.to_cpdag(),
        lambda graph: graph.moral(),
        lambda graph: graph.threshold(0.1),
        lambda graph: graph.averaged(),
        lambda graph: graph.summary(),
        lambda graph: graph.topological_order(),
        lambda graph: structural_hamming_distance(graph, graph),
        lambda graph: sid(graph, graph),
        lambda graph: sid_bounds(hidden_dag().around("h", 9), graph),
    ],
)
def test_what_a_pag_does_not_have_is_an_error(call):
    with pytest.raises(DataError, match="PAG"):
        call(pag())


def test_an_effect_is_said_not_to_be_identified():
    with pytest.raises(DataError, match="effect of a on b is not identified"):
        pag().adjustment_set("a", "b")


def test_confidence_is_by_edge_and_by_mark():
    other = MARKS.copy()
    other[1, 0] = 2  # a <-> b
    other[3, 2] = other[2, 3] = 0
    graph = pag().with_confidence([pag(), pag(other), pag(), pag()])
    assert graph.confidence[0, 1] == 1.0
    assert graph.confidence[1, 0] == 0.75
    assert graph.confidence[2, 3] == 0.75
    assert graph.adjacency_confidence[0, 1] == 1.0
    assert graph.adjacency_confidence[2, 3] == 0.75
    assert graph.marked_confidences() == [1.0, 1.0, 1.0, 0.75]
    first, second = doubtful_edges(graph, count=2)
    assert {(first.cause, first.effect), (second.cause, second.effect)} == {("a", "b"), ("e", "c")}
    with pytest.raises(ConfigError, match="count"):
        doubtful_edges(graph, count=-1)


def test_the_true_pag_of_a_dag_with_hidden_variables():
    true = hidden_dag().to_pag(NAMES)
    assert listed(true) == LISTED
    assert pag().to_pag(NAMES[::-1]).names == NAMES[::-1]
    with pytest.raises(DataError, match="DAG without lags"):
        hidden_dag().to_cpdag().to_pag(NAMES)


def test_measures_against_the_true_pag():
    found = MARKS.copy()
    found[1, 0] = 1  # a -> b: claims more than is known
    found[1, 2], found[2, 1] = 2, 1  # b -> c: wrong
    found[3, 2] = found[2, 3] = 0
    found[0, 4], found[4, 0] = 2, 1  # a -> g: no such edge
    measured = compare(hidden_dag(), pag(found))
    assert measured["num_edges"] == measured["num_true"] == 4
    assert (measured["missing"], measured["extra"]) == (1, 1)
    assert measured["adjacency_f1"] == 0.75
    assert measured["num_causes"] == 4
    assert measured["wrong_causes"] == 2
    assert measured["mark_agreement"] == pytest.approx(4 / 6)
    assert compare(pag(), pag())["mark_agreement"] == 1
    payload = graph_payload(pag(found), hidden_dag(), None)
    verdicts = {
        (NAMES[edge["cause"]], edge["mark"], NAMES[edge["effect"]]): edge["truth"]
        for edge in payload["edges"]
    }
    assert verdicts == {
        ("a", "->", "b"): "open",
        ("b", "->", "c"): "reversed",
        ("b", "->", "g"): "right",
        ("a", "->", "g"): "extra",
        ("e", "o->", "c"): "missing",
    }


def test_required_edges_are_marked_so():
    graph = pag().with_knowledge(Knowledge(required=[("b", "g")]))
    assert graph.marked_required() == [False, False, True, False]


def test_it_is_drawn_with_heads_and_circles():
    pytest.importorskip("matplotlib")
    from matplotlib.patches import Circle, FancyArrowPatch

    axes = pag().draw(edge_labels=True)
    assert sum(isinstance(patch, FancyArrowPatch) for patch in axes.patches) == 4
    assert sum(isinstance(patch, Circle) for patch in axes.patches) == 2
