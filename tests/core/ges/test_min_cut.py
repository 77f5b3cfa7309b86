"""Fusion by minimum cuts: against brute force over sets of edges, and a plain implementation."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from flwr_causal.core.ges.fusion import fuse, needed
from flwr_causal.core.ges.min_cut import minimum_cut, supported_by_cuts


def random_dag(rng, d, share):
    order = rng.permutation(d)
    dag = np.zeros((d, d), bool)
    dag[np.ix_(order, order)] = np.triu(rng.random((d, d)) < share, k=1)
    return dag


def cut_of(dag, x, y, given):
    size = len(dag)
    mask = np.isin(np.arange(size), list(given))
    cut, ancestors = np.empty((size * size, 2), np.int64), np.zeros(size, bool)
    room = (np.zeros((size, size), np.int64), np.zeros((4, size), np.int64))
    count = minimum_cut(dag, x, y, mask, ancestors, cut, *room)
    return {frozenset(pair) for pair in cut[:count].tolist()}, ancestors


def moral(dag, x, y, given):
    graph = nx.from_numpy_array(dag, create_using=nx.DiGraph)
    kept = {x, y, *given}.union(*(nx.ancestors(graph, v) for v in (x, y, *given)))
    married = nx.Graph(graph.subgraph(kept).to_undirected())
    for v in kept:
        married.add_edges_from(combinations(graph.predecessors(v), 2))
    return married, kept


@pytest.mark.slow
def test_it_is_the_smallest_set_of_edges_that_separates():
    rng = np.random.default_rng(0)
    sizes = set()
    for _ in range(150):
        dag = random_dag(rng, 5, 0.5)
        x, y, *others = rng.permutation(5).tolist()
        given = others[: rng.integers(3)]
        married, kept = moral(dag, x, y, given)
        married.remove_nodes_from(given)
        cut, ancestors = cut_of(dag, x, y, given)
        assert set(np.flatnonzero(ancestors).tolist()) == kept
        pairs = [tuple(pair) for pair in married.edges]

        def separates(chosen, x=x, y=y, married=married):
            rest = married.copy()
            rest.remove_edges_from(chosen)
            return not nx.has_path(rest, x, y)

        smallest = next(
            size
            for size in range(len(pairs) + 1)
            if any(separates(chosen) for chosen in combinations(pairs, size))
        )
        assert len(cut) == smallest
        assert separates([tuple(pair) for pair in cut])
        sizes.add(smallest)
    assert sizes >= {0, 1, 2, 3}


def test_no_cut_is_d_separation():
    rng = np.random.default_rng(1)
    for dag in [random_dag(rng, 4, 0.5) for _ in range(80)]:
        graph = nx.from_numpy_array(dag, create_using=nx.DiGraph)
        for x, y in combinations(range(4), 2):
            others = [v for v in range(4) if v not in (x, y)]
            for size in range(3):
                for given in combinations(others, size):
                    separated = nx.is_d_separator(graph, {x}, {y}, set(given))
                    assert (not cut_of(dag, x, y, given)[0]) == separated


def plain(fusion, graphs, least):
    """Deletion by a threshold, every cut by networkx's maximum flow, nothing kept."""
    kept, graphs = fusion.edges.tolist(), [graph.copy() for graph in graphs]

    def cuts_of(x, y):
        given = [cause for cause, effect in kept if effect == y and cause != x]
        found = []
        for dag in graphs:
            married, _ = moral(dag, x, y, given)
            married.remove_nodes_from(given)
            nx.set_edge_attributes(married, 1, "capacity")
            flow = nx.algorithms.flow.edmonds_karp(married, y, x)
            near = {y}
            stack = [y]
            while stack:
                u = stack.pop()
                for v, arc in flow[u].items():
                    if arc["capacity"] > arc["flow"] and v not in near:
                        near.add(v)
                        stack.append(v)
            found.append([(u, v) for u, v in married.edges if (u in near) != (v in near)])
        return found

    while kept:
        found = {(x, y): cuts_of(x, y) for x, y in kept}
        totals = {edge: sum(map(len, own)) for edge, own in found.items()}
        worst = min(totals, key=totals.get)
        if totals[worst] >= least:
            break
        for dag, cut in zip(graphs, found[worst], strict=True):
            for u, v in cut:
                dag[u, v] = dag[v, u] = False
        kept.remove(list(worst))
    return kept


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(12))
def test_it_is_the_greedy_deletion_with_each_threshold(seed):
    rng = np.random.default_rng(seed)
    common = random_dag(rng, 6, 0.4)
    graphs = [np.where(rng.random((6, 6)) < 0.3, random_dag(rng, 6, 0.3), common) for _ in range(4)]
    graphs = [g if nx.is_directed_acyclic_graph(nx.DiGraph(g)) else common for g in graphs]
    fusion = fuse(graphs, 6)
    found = supported_by_cuts(fusion, list(map(np.argwhere, graphs)))
    assert np.array_equal(found.edges, fusion.edges)
    for share in (0.25, 0.5, 0.75, 1.0):
        wanted = plain(fusion, graphs, needed(share, 4))
        assert found.keep(share).tolist() == wanted


def test_equal_graphs_are_kept():
    rng = np.random.default_rng(3)
    dag = random_dag(rng, 8, 0.4)
    found = supported_by_cuts(fuse([dag] * 3, 8), [np.argwhere(dag)] * 3)
    assert np.array_equal(found.edges, np.argwhere(dag))
    assert (found.support == 3).all()


def test_the_order_of_the_graphs_does_not_matter():
    rng = np.random.default_rng(4)
    graphs = [np.argwhere(random_dag(rng, 7, 0.3)) for _ in range(5)]
    one = supported_by_cuts(fuse(graphs, 7), graphs)
    two = supported_by_cuts(fuse(graphs[::-1], 7), graphs[::-1])
    assert np.array_equal(one.support, two.support)
