"""The causal graph as JSON and as a networkx graph, there and back."""

import json
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from small_graphs import CHAIN, NAMES, full_graph

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.errors import DataError


def test_json_keeps_every_bit(tmp_path):
    graph = full_graph()
    graph.save(tmp_path / "deep" / "graph.json")
    loaded = CausalGraph.load(tmp_path / "deep" / "graph.json")
    assert loaded.equals(graph)
    assert loaded.required.dtype == bool
    pattern = CausalGraph.from_array(CHAIN).to_cpdag()
    pattern.save(tmp_path / "cpdag.json")
    assert CausalGraph.load(tmp_path / "cpdag.json").equals(pattern)


@given(arrays(np.float64, (2, 2), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_json_keeps_any_float(tmp_path_factory, weights):
    path = tmp_path_factory.mktemp("g") / "graph.json"
    graph = CausalGraph(("a", 'é "b"'), weights)
    graph.save(path)
    assert CausalGraph.load(path).equals(graph)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no graph at"),
        ("{", "not JSON"),
        ("[]", "does not hold a graph"),
        ('{"format": "other"}', "not a graph saved by"),
        ('{"format": "flwr-causal-graph", "version": 99}', "version 99.*upgrade"),
        ('{"format": "flwr-causal-graph", "version": 1, "kind": "dag"}', "lacks names, weights"),
        (
            '{"format": "flwr-causal-graph", "version": 1, "kind": "dag", "names": ["a"],'
            ' "weights": [["b"]]}',
            "damaged",
        ),
    ],
)
def test_bad_files_are_named(tmp_path, text, message):
    path = tmp_path / "graph.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        CausalGraph.load(path)
    assert str(path) in str(caught.value)


def test_the_file_is_plain_json(tmp_path):
    full_graph().save(tmp_path / "graph.json")
    record = json.loads((tmp_path / "graph.json").read_text(), parse_constant=pytest.fail)
    assert record["names"] == list(NAMES)


def test_networkx_keeps_order_weights_and_isolated_nodes():
    graph = CausalGraph(
        ("x10", "alone", "x2"),
        [[0, 0, -0.25], [0, 0, 0], [0, 0, 0]],
        raw_weights=np.full((3, 3), 0.1),
        confidence=np.full((3, 3), 0.5),
    )
    converted = graph.to_networkx()
    assert type(converted) is nx.DiGraph
    assert list(converted) == ["x10", "alone", "x2"]
    assert converted.edges["x10", "x2"] == {
        "weight": -0.25,
        "lag": 0,
        "raw_weight": 0.1,
        "confidence": 0.5,
    }
    back = CausalGraph.from_networkx(converted)
    np.testing.assert_array_equal(back.weights, graph.weights)
    assert back.names == graph.names
    assert back.confidence[0, 2] == 0.5


def test_networkx_keeps_lags_required_edges_and_kind():
    graph = replace(full_graph(), raw_weights=None, raw_lagged=None, confidence=None)
    converted = graph.to_networkx()
    assert type(converted) is nx.MultiDiGraph
    assert CausalGraph.from_networkx(converted).equals(graph)
    pattern = CausalGraph.from_array(CHAIN).to_cpdag()
    assert CausalGraph.from_networkx(pattern.to_networkx()).equals(pattern)
    empty_lags = CausalGraph(NAMES, np.zeros((3, 3)), lagged=np.zeros((3, 3, 3)))
    assert CausalGraph.from_networkx(empty_lags.to_networkx()).equals(empty_lags)


def test_networkx_of_others():
    plain = nx.DiGraph([(1, 0), (0, 2)])
    graph = CausalGraph.from_networkx(plain)
    assert graph.names == ("1", "0", "2")
    assert graph.edges() == [("1", "0", 1.0), ("0", "2", 1.0)]
    assert CausalGraph.from_networkx(nx.path_graph(3)).kind == "cpdag"
    plain.edges[1, 0]["strength"] = 3
    assert CausalGraph.from_networkx(plain, weight="strength").weights[0, 1] == 3


def test_networkx_that_says_nothing_clear_is_refused():
    with pytest.raises(DataError, match="a -> b has weight 0"):
        CausalGraph.from_networkx(nx.DiGraph([("a", "b", {"weight": 0})]))
    with pytest.raises(DataError, match="a -> b occurs twice at lag 0"):
        CausalGraph.from_networkx(nx.MultiDiGraph([("a", "b"), ("a", "b")]))
    with pytest.raises(DataError, match=r"a -> b has lag 0\.5"):
        CausalGraph.from_networkx(nx.DiGraph([("a", "b", {"lag": 0.5})]))


@given(
    arrays(np.float64, (3, 3), elements=st.sampled_from([0, 0, 0.5, -1.5])),
    arrays(np.float64, (2, 3, 3), elements=st.sampled_from([0, 0, 0, 2, -0.25])),
    st.sampled_from(["dag", "summary"]),
)
def test_an_unrolled_graph_can_be_folded_again(weights, lagged, kind):
    graph = CausalGraph(("b", "a[t]", "c"), weights, lagged=lagged, kind=kind)
    slices = graph.unrolled()
    assert len(slices) == 9
    assert {slices.nodes[end]["lag"] for _, end in slices.edges} <= {0}
    assert slices.number_of_edges() == graph.num_edges + graph.num_lagged_edges
    assert CausalGraph.from_networkx(slices).equals(graph)


def test_without_lags_there_is_nothing_to_unroll():
    graph = CausalGraph.from_array(CHAIN)
    assert nx.utils.graphs_equal(graph.unrolled(), graph.to_networkx())


def test_an_unrolled_graph_with_an_edge_into_the_past_is_refused():
    slices = CausalGraph.from_array(CHAIN, lagged=np.ones((1, 3, 3))).unrolled()
    slices.add_edge("x0[t-1]", "x1[t-1]", weight=1.0)
    with pytest.raises(DataError, match=r"x0\[t-1\] -> x1\[t-1\] leads into the past"):
        CausalGraph.from_networkx(slices)
