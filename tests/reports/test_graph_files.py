"""Graphs as files for other tools, and truths from files."""

import gzip
import re
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.read.bif import write_bif
from flwr_causal.data.synthetic.discrete import random_network
from flwr_causal.errors import DataError
from flwr_causal.reports.graph_files import (
    read_edges,
    write_all,
    write_dot,
    write_edge_csv,
    write_graphml,
)

NAMES = ("x2", 'say "hi"', "a,b & <c>\\")


@pytest.fixture
def graph():
    weights = np.array([[0, -0.1 - 0.2, 0], [0, 0, 1 / 3], [0, 0, 0]])
    return CausalGraph(
        NAMES,
        weights,
        raw_weights=weights + 0.01,
        confidence=np.full((3, 3), 0.5),
        required=[[0, 0, 1], [0, 0, 0], [0, 0, 0]],
    )


@pytest.fixture
def pattern():
    return CausalGraph(
        ("a", "b", "c", "d"),
        np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]], dtype=float),
        kind="cpdag",
    )


@pytest.fixture
def lagged_graph():
    lagged = np.zeros((2, 2, 2))
    lagged[0, 0, 0], lagged[1, 1, 0] = 0.5, -0.25
    return CausalGraph(("a", "b"), [[0, 2], [0, 0]], lagged=lagged, raw_lagged=lagged * 2)


# Writing


def test_write_all_names_its_files(tmp_path, graph):
    paths = write_all(graph, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [
        "graph.json",
        "graph.graphml",
        "graph.dot",
        "edges.csv",
    ]
    assert all(path.is_file() for path in paths)
    assert CausalGraph.load(paths[0]).equals(graph)


def test_graphml_reads_back_with_names_weights_and_isolated_nodes(tmp_path, graph):
    write_graphml(graph, tmp_path / "g.graphml")
    back = nx.read_graphml(tmp_path / "g.graphml")
    assert list(back) == list(NAMES)
    again = CausalGraph.from_networkx(back)
    np.testing.assert_array_equal(again.weights, graph.weights)
    np.testing.assert_array_equal(again.required, graph.required)
    assert back.edges[NAMES[0], NAMES[1]]["raw_weight"] == graph.raw_weights[0, 1]
    assert back.edges[NAMES[0], NAMES[2]]["required"] is True


def test_graphml_keeps_a_cpdag(tmp_path, pattern):
    write_graphml(pattern, tmp_path / "g.graphml")
    assert CausalGraph.from_networkx(nx.read_graphml(tmp_path / "g.graphml")).equals(pattern)


def test_graphml_unrolls_lags(tmp_path, lagged_graph):
    write_graphml(lagged_graph, tmp_path / "g.graphml")
    back = nx.read_graphml(tmp_path / "g.graphml")
    assert list(back) == ["a[t-2]", "b[t-2]", "a[t-1]", "b[t-1]", "a[t]", "b[t]"]
    assert {(u, v): data["weight"] for u, v, data in back.edges(data=True)} == {
        ("a[t]", "b[t]"): 2.0,
        ("a[t-1]", "a[t]"): 0.5,
        ("b[t-2]", "a[t]"): -0.25,
    }
    assert back.nodes["b[t-2]"] == {"variable": "b", "lag": 2}
    assert back.edges["b[t-2]", "a[t]"]["raw_weight"] == -0.5
    folded = CausalGraph.from_networkx(back)
    assert folded.equals(replace(lagged_graph, raw_lagged=None))


def test_a_graph_with_lags_survives_every_format(tmp_path):
    rng = np.random.default_rng(5)
    graph = CausalGraph.from_array(
        np.triu(rng.normal(size=(6, 6)) * (rng.random((6, 6)) < 0.5), 1),
        list("fbadce"),
        lagged=rng.normal(size=(3, 6, 6)) * (rng.random((3, 6, 6)) < 0.2),
    )
    graph = replace(graph, required=graph.weights > 0.5)
    assert graph.lagged.diagonal(axis1=1, axis2=2).any()
    json_file, graphml, _, table = write_all(graph, tmp_path)
    assert CausalGraph.load(json_file).equals(graph)
    assert CausalGraph.from_networkx(nx.read_graphml(graphml)).equals(graph)
    assert read_edges(table, graph.names).equals(graph)
    turned = read_edges(table, graph.names[::-1])
    np.testing.assert_array_equal(turned.lagged, graph.lagged[:, ::-1, ::-1])


@pytest.mark.parametrize("key", ["lagged", "A"])
def test_archives_may_hold_lags(tmp_path, key):
    now, lagged = np.array([[0, 1], [0, 0]]), np.array([[[0, 0], [2, 0]], [[3, 0], [0, 0]]])
    np.savez(tmp_path / "a.npz", **{"W": now, key: lagged, "names": np.array(["q", "p"])})
    graph = read_edges(tmp_path / "a.npz", ("p", "q"))
    assert graph.edges() == [("q", "p", 1.0)]
    assert graph.lagged_edges() == [("p", "q", 1, 2.0), ("q", "q", 2, 3.0)]
    np.savez(tmp_path / "b.npz", **{"W": now, key: lagged[0]})
    assert read_edges(tmp_path / "b.npz", ("p", "q")).lagged_edges() == [("q", "p", 1, 2.0)]
    np.savez(tmp_path / "c.npz", **{"W": now, key: np.zeros((1, 3, 3))})
    with pytest.raises(DataError, match=r"c\.npz: lagged has shape"):
        read_edges(tmp_path / "c.npz", ("p", "q"))


def test_one_matrix_called_a_is_the_graph(tmp_path):
    np.savez(tmp_path / "a.npz", A=np.array([[0, 1], [0, 0]]))
    graph = read_edges(tmp_path / "a.npz", ("p", "q"))
    assert graph.edges() == [("p", "q", 1.0)]
    assert graph.lagged is None


def dot_tokens(text):
    """Identifiers inside quotes and everything else, as Graphviz' lexer cuts them."""
    return re.findall(r'"(?:\\.|[^"\\])*"|->|[\w.=]+|[^\s\w"]', text)


def test_dot_quotes_names_and_labels_edges(tmp_path, graph):
    write_dot(graph, tmp_path / "g.dot")
    text = (tmp_path / "g.dot").read_text(encoding="utf-8")
    assert text.startswith("digraph causal_graph {\n")
    assert text.endswith("}\n")
    tokens = dot_tokens(text)
    quoted = ['"x2"', '"say \\"hi\\""', '"a,b & <c>\\\\"']
    for name in quoted:
        assert name in tokens
    assert tokens.count("->") == 3
    k = tokens.index("->")
    assert tokens[k - 1] == quoted[0]
    assert tokens[k + 1] == quoted[1]
    assert '"-0.3"' in tokens
    assert '"0.333"' in tokens


def test_dot_draws_an_undirected_edge_once_without_direction(tmp_path, pattern):
    write_dot(pattern, tmp_path / "g.dot")
    edges = [line.strip() for line in (tmp_path / "g.dot").read_text().splitlines() if "->" in line]
    assert edges == ['"a" -> "b" [dir=none];', '"d" -> "c";']


def test_dot_labels_a_cpdag_with_its_confidence(tmp_path, pattern):
    confidence = np.zeros((4, 4))
    confidence[0, 1], confidence[1, 0], confidence[3, 2] = 0.4, 0.6, 0.25
    write_dot(replace(pattern, confidence=confidence), tmp_path / "g.dot")
    edges = [line.strip() for line in (tmp_path / "g.dot").read_text().splitlines() if "->" in line]
    assert edges == ['"a" -> "b" [dir=none, label="0.6"];', '"d" -> "c" [label="0.25"];']


def test_a_cpdag_with_confidence_survives_every_format(tmp_path):
    pattern = random_network(12, seed=1).graph.to_cpdag()
    undirected = pattern.adjacency & pattern.adjacency.T
    assert undirected.any()
    assert (pattern.adjacency & ~undirected).any()
    confidence = np.where(pattern.adjacency, np.random.default_rng(0).random((12, 12)), 0.0)
    pattern = replace(pattern, confidence=confidence)
    json_file, graphml, _, table = write_all(pattern, tmp_path)
    assert CausalGraph.load(json_file).equals(pattern)
    assert CausalGraph.from_networkx(nx.read_graphml(graphml)).equals(pattern)
    assert CausalGraph.from_networkx(pattern.to_networkx()).equals(pattern)
    assert read_edges(table, pattern.names).equals(pattern)
    assert read_edges(json_file, pattern.names).equals(pattern)
    # In another order of the variables, as the data may have them.
    turned = read_edges(table, pattern.names[::-1])
    assert turned.kind == "cpdag"
    np.testing.assert_array_equal(turned.confidence, confidence[::-1, ::-1])
    np.testing.assert_array_equal(turned.moral(), pattern.moral()[::-1, ::-1])


def test_a_class_without_edges_stays_a_class(tmp_path):
    empty = CausalGraph.from_array(np.zeros((3, 3)), kind="cpdag")
    _, graphml, _, table = write_all(empty, tmp_path)
    assert read_edges(table, empty.names).equals(empty)
    assert CausalGraph.from_networkx(nx.read_graphml(graphml)).equals(empty)


def test_dot_puts_time_slices_in_columns(tmp_path, lagged_graph):
    write_dot(lagged_graph, tmp_path / "g.dot")
    text = (tmp_path / "g.dot").read_text()
    assert "rankdir=LR" in text
    assert '{ rank=same; "a[t]"; "b[t]"; }' in text
    assert text.count("rank=same") == 3
    assert '"b[t-2]" -> "a[t]" [label="-0.25"' in text


def test_edge_table_columns_and_round_trip(tmp_path, graph, lagged_graph, pattern):
    write_edge_csv(graph, tmp_path / "e.csv")
    table = pd.read_csv(tmp_path / "e.csv")
    assert list(table.columns) == [
        "source",
        "target",
        "lag",
        "weight",
        "raw_weight",
        "confidence",
        "required",
    ]
    assert table["required"].tolist() == [False, True, False]
    assert table["raw_weight"].tolist() == [
        graph.raw_weights[i, j] for i, j in [(0, 1), (0, 2), (1, 2)]
    ]
    back = read_edges(tmp_path / "e.csv", NAMES)
    np.testing.assert_array_equal(back.weights, graph.weights)
    np.testing.assert_array_equal(back.required, graph.required)

    write_edge_csv(lagged_graph, tmp_path / "l.csv")
    back = read_edges(tmp_path / "l.csv", ("a", "b"))
    np.testing.assert_array_equal(back.lagged, lagged_graph.lagged)
    np.testing.assert_array_equal(back.weights, lagged_graph.weights)

    write_edge_csv(pattern, tmp_path / "p.csv")
    assert "undirected" in pd.read_csv(tmp_path / "p.csv").columns
    back = read_edges(tmp_path / "p.csv", pattern.names)
    assert back.kind == "cpdag"
    np.testing.assert_array_equal(back.weights, pattern.weights)


def test_a_graph_without_edges_still_has_its_table(tmp_path):
    empty = CausalGraph.from_array(np.zeros((2, 2)))
    write_edge_csv(empty, tmp_path / "e.csv")
    assert len(pd.read_csv(tmp_path / "e.csv")) == 0
    assert read_edges(tmp_path / "e.csv", empty.names).num_edges == 0


# Reading


@pytest.mark.parametrize("header", ["source,target", "cause, effect", "from,to"])
def test_edges_by_name_in_the_order_of_the_data(tmp_path, header):
    path = tmp_path / "edges.csv"
    path.write_text(f"{header}\nraf,mek\nmek, erk\n")
    graph = read_edges(path, ("erk", "alone", "raf", "mek"))
    assert graph.names == ("erk", "alone", "raf", "mek")
    assert graph.edges() == [("raf", "mek", 1.0), ("mek", "erk", 1.0)]


def test_edges_with_weights_and_lags_compressed(tmp_path):
    path = tmp_path / "edges.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("target,weight,source,lag\nb,-2.5,a,0\na,,a,2\n")
    graph = read_edges(path, ("a", "b"))
    assert graph.edges() == [("a", "b", -2.5)]
    assert graph.lagged_edges() == [("a", "a", 2, 1.0)]


def test_names_that_look_like_missing_values_or_numbers(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("source,target\nNA,007\nnull,NA\n")
    assert read_edges(path, ("NA", "007", "null")).edges() == [
        ("NA", "007", 1.0),
        ("null", "NA", 1.0),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "0,1,0\n0,0,-2\n0,0,0\n",
        "a,b,c\n0,1,0\n0,0,-2\n0,0,0\n",
        ",a,b,c\na,0,1,0\nb,0,0,-2\nc,0,0,0\n",
        ",c,a,b\nc,0,0,0\na,0,0,1\nb,-2,0,0\n",
        ",a,b,c\n0,0,1,0\n1,0,0,-2\n2,0,0,0\n",
    ],
)
def test_matrices_with_and_without_names(tmp_path, text):
    path = tmp_path / "truth.csv"
    path.write_text(text)
    assert read_edges(path, ("a", "b", "c")).edges() == [("a", "b", 1.0), ("b", "c", -2.0)]


def test_an_undirected_edge_may_stand_in_one_row_or_two(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("source,target,undirected\na,b,true\nc,b,False\nd,c,TRUE\nc,d,TRUE\n")
    graph = read_edges(path, ("a", "b", "c", "d"))
    assert graph.kind == "cpdag"
    assert [edge[:2] for edge in graph.edges()] == [
        ("a", "b"),
        ("b", "a"),
        ("c", "b"),
        ("c", "d"),
        ("d", "c"),
    ]
    assert graph.num_edges == 3


@pytest.mark.parametrize("name", ["truth.bif", "truth.bif.gz"])
def test_the_graph_of_a_network_file(tmp_path, name):
    network = random_network(6, seed=0)
    write_bif(network, tmp_path / name)
    assert read_edges(tmp_path / name, network.names).equals(network.graph)
    turned = read_edges(tmp_path / name, network.names[::-1])
    np.testing.assert_array_equal(turned.weights, network.graph.weights[::-1, ::-1])
    with pytest.raises(DataError, match=rf"{name} names the variable 'x5'"):
        read_edges(tmp_path / name, network.names[:5])


def test_archives_and_saved_graphs(tmp_path):
    adjacency = np.array([[0, 1], [0, 0]], dtype=np.int8)
    np.savez(tmp_path / "a.npz", series=np.zeros((2, 5, 5)), adjacency=adjacency)
    assert read_edges(tmp_path / "a.npz", ("p", "q")).edges() == [("p", "q", 1.0)]
    np.savez(tmp_path / "b.npz", truth=adjacency, X=np.zeros((7, 2)), names=np.array(["q", "p"]))
    assert read_edges(tmp_path / "b.npz", ("p", "q")).edges() == [("q", "p", 1.0)]
    CausalGraph(("q", "p"), adjacency).to_cpdag().save(tmp_path / "c.json")
    loaded = read_edges(tmp_path / "c.json", ("p", "q"))
    assert loaded.names == ("p", "q")
    assert loaded.kind == "cpdag"


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("absent.csv", None, ["no graph at", "absolute"]),
        ("t.xlsx", "x", ["unknown suffix", ".csv"]),
        ("t.csv", "", ["cannot be read"]),
        ("t.csv", "source,target\na,zz\n", ["line 2", "'zz'", "not among a, b", "rename"]),
        ("t.csv", "source,target\na,a\n", ["line 2", "'a' causes itself"]),
        ("t.csv", "source,target,weight\na,b,heavy\n", ["line 2", "weight", "'heavy'"]),
        ("t.csv", "source,target,weight\na,b,nan\n", ["not finite", "a -> b"]),
        ("t.csv", "source,target,weight\na,b,0\n", ["a -> b has weight 0"]),
        ("t.csv", "source,target,lag\na,b,-1\n", ["lag -1"]),
        ("t.csv", "source,target\na,b\na,b\n", ["a -> b occurs twice"]),
        ("t.csv", "sauce,target\na,b\n", ["source and target"]),
        ("t.csv", "0,1,0\n0,0,1\n0,0,0\n", ["(3, 3)", "2 variables"]),
        ("t.csv", "a,z\n0,1\n0,0\n", ["'z'", "not among a, b"]),
        ("t.csv", "a\n0\n", ["lacks the variable 'b'"]),
        ("t.csv", "a,b\n0,x\n0,0\n", ["'x'", "numbers"]),
        ("t.csv", "a,b\n0,1\n0,0\n1,0\n1,0\n", ["4 by 2 numbers", "square"]),
        ("t.csv", "a,b\n0,inf\n0,0\n", ["not finite", "a -> b"]),
        ("t.csv", ",a,b\nb,0,1\na,0,0\n", ["row labels"]),
        ("t.npz", "no archive", ["not an NPZ"]),
        ("t.json", "{}", ["not a graph saved by"]),
        ("t.bif", "source,target\na,b\n", ["not a BIF file"]),
    ],
)
def test_bad_truths_name_file_thing_and_remedy(tmp_path, name, text, parts):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_edges(path, ("a", "b"))
    for part in [*parts, name]:
        assert part in str(caught.value)


def test_an_archive_without_a_matrix_lists_what_it_holds(tmp_path):
    np.savez(tmp_path / "a.npz", one=np.zeros((2, 2)), two=np.zeros((3, 3)))
    with pytest.raises(DataError, match=r"holds one, two.*'adjacency'"):
        read_edges(tmp_path / "a.npz", ("a", "b"))
