"""Where the confidence of replicates is shown."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from flwr_causal.core.graphs.doubt import doubtful_edges
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.reports.edges import compared, describe_graph
from flwr_causal.reports.graph_files import read_edges, write_all, write_edge_csv

CHAIN = CausalGraph(("a", "b", "c"), np.eye(3, k=1), lagged=np.eye(3)[None])


def test_edges_are_printed_and_written_with_their_confidence(tmp_path):
    other = CausalGraph(("a", "b", "c"), np.eye(3, k=-1))
    found = CHAIN.with_confidence([CHAIN, CHAIN, other, other])
    lines = describe_graph(found)
    assert lines[1] == "  a -> b  +1.000  confidence 0.50"
    assert sum("confidence 0.50" in line for line in lines) == 5
    assert not any("confidence" in line for line in describe_graph(CHAIN))
    write_edge_csv(found, tmp_path / "edges.csv")
    back = read_edges(tmp_path / "edges.csv", found.names)
    np.testing.assert_array_equal(np.diagonal(back.lagged_confidence[0]), 0.5)
    assert {value for pair in compared([found]) for value in pair.confidences} == {0.5}


def test_of_an_undirected_edge_the_confidence_is_that_of_the_adjacency():
    graph = CHAIN.summary(self_loops=False)
    graph = CausalGraph(graph.names, graph.weights).to_cpdag()
    none = CausalGraph(graph.names, np.zeros((3, 3)))
    found = graph.with_confidence([graph, graph, graph, none])
    assert found.confidence[0, 1] == pytest.approx(0.375)
    assert found.confidence_of(1, 0) == found.marked_confidences()[0] == pytest.approx(0.75)


def test_agreement_of_the_parties_survives_every_format(tmp_path):
    graph = CausalGraph(("a", "b", "c"), np.eye(3, k=1)).to_cpdag()
    shares = np.where(graph.adjacency, 0.25, 0.0)
    graph = replace(graph, party_agreement=shares)
    json_file, graphml, _, table = write_all(graph, tmp_path)
    for back in (
        CausalGraph.load(json_file),
        CausalGraph.from_networkx(nx.read_graphml(graphml)),
        read_edges(table, graph.names),
    ):
        np.testing.assert_array_equal(back.party_agreement, shares)
        assert back.confidence is None
    assert not any("confidence" in line for line in describe_graph(graph))
    # It is in no doubt by it, and the strongest edges are by it.
    assert doubtful_edges(graph) == doubtful_edges(replace(graph, party_agreement=None))
    first = np.zeros((3, 3))
    first[1, 2] = first[2, 1] = 0.5
    ((*edge, _),) = replace(graph, party_agreement=shares + first).strongest(1).marked_edges()
    assert edge == ["b", "--", "c"]
