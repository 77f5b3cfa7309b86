"""DAGs as lists of edges, and what must come before what."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import dags, matrix

from flwr_causal.core.graphs.edge_lists import edges_of, families_of, matrix_of
from flwr_causal.core.graphs.knowledge import Knowledge


@given(st.integers(1, 6).flatmap(dags))
def test_there_and_back(dag):
    edges = edges_of(dag)
    assert edges.dtype == np.uint16
    assert edges.shape == (dag.sum(), 2)
    assert np.array_equal(matrix_of(edges, len(dag)), dag)
    assert edges.tolist() == sorted(edges.tolist())


def test_causes_come_first():
    assert edges_of(matrix(3, (2, 0))).tolist() == [[2, 0]]
    assert list(families_of(matrix(3, (2, 0), (1, 0)))) == [(0, (1, 2)), (1, ()), (2, ())]


def test_no_edges_travel_too():
    edges = edges_of(matrix(4))
    assert edges.shape == (0, 2)
    assert not matrix_of(edges, 4).any()


def test_without_knowledge_nothing_precedes():
    assert not Knowledge().precedence(["a", "b"]).any()


def test_tiers_and_required_edges_precede():
    knowledge = Knowledge(required=[("c", "a")], tiers=[("d",), ("b", "e"), ("a",)])
    before = knowledge.precedence(list("abcde"))
    found = {("abcde"[i], "abcde"[j]) for i, j in np.argwhere(before)}
    # A tier comes before every later one, not only before the next.
    assert found == {("c", "a"), ("d", "b"), ("d", "e"), ("d", "a"), ("b", "a"), ("e", "a")}
