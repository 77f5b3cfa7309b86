"""The compiled classes against the plain ones."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_search import all_classes, all_dags, told_apart
from small_graphs import dags, matrix, v_structures

from flwr_causal.core.ges.cpdag import class_of, graph_of, join, member_of, open_path, part
from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.acyclicity import is_acyclic


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_class_of_every_small_dag(size):
    for dag in all_dags(size):
        marks = equivalence.cpdag(dag)
        np.testing.assert_array_equal(class_of(dag), marks)
        np.testing.assert_array_equal(class_of(member_of(marks)), marks)


@given(dags(10))
def test_classes_and_members_of_larger_dags(dag):
    marks = class_of(dag)
    np.testing.assert_array_equal(marks, equivalence.cpdag(dag))
    member = member_of(marks)
    assert is_acyclic(member)
    np.testing.assert_array_equal(equivalence.cpdag(member), marks)


@given(dags(5), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6))
def test_partially_directed_graphs_have_a_member_where_the_plain_search_finds_one(dag, loosened):
    marks = dag.copy()
    for i, j in loosened:
        marks[j, i] |= marks[i, j]
    member, expected = member_of(marks), equivalence.consistent_extension(marks)
    assert (member is None) == (expected is None)
    if member is not None:
        assert is_acyclic(member)
        np.testing.assert_array_equal(member | member.T, marks | marks.T)
        assert not (member & ~marks).any()
        assert v_structures(member) == v_structures(marks)


def test_cycles_have_no_member():
    square = matrix(4, (0, 1), (1, 2), (2, 3), (3, 0))
    assert member_of(square) is None
    assert member_of(square | square.T) is None


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40))
def test_lists_stay_sorted_while_edges_come_and_go(pairs):
    marks = np.zeros((7, 7), dtype=bool)
    graph = graph_of(marks)
    for i, j in pairs:
        if i == j:
            continue
        (part if marks[i, j] else join)(graph, i, j)
        marks[i, j] = marks[j, i] = not marks[i, j]
        for node in range(7):
            beside = graph.lists[node, : graph.degrees[node]]
            np.testing.assert_array_equal(beside, np.flatnonzero(marks[node]))
    fresh = graph_of(np.triu(marks))
    np.testing.assert_array_equal(fresh.degrees, graph.degrees)
    for node in range(7):
        degree = graph.degrees[node]
        np.testing.assert_array_equal(fresh.lists[node, :degree], graph.lists[node, :degree])


@given(dags(7), st.sets(st.integers(1, 5), max_size=4))
def test_open_paths_are_those_of_the_graph_without_the_blocked_nodes(dag, blocked):
    graph = graph_of(dag)
    graph.work[0] = np.isin(np.arange(7), list(blocked))
    others = nx.from_numpy_array(graph.marks.astype(int), create_using=nx.DiGraph)
    others.remove_nodes_from(blocked)
    assert open_path(graph, 0, 6) == nx.has_path(others, 0, 6)


@pytest.mark.few(2)
@pytest.mark.parametrize("targets", [[{0}], [{1, 2}], [{0}, {3}], [{0, 1}, {1, 2}], [{0, 1, 2, 3}]])
def test_the_class_of_every_small_dag_under_interventions(targets):
    pairs = told_apart(4, targets)
    for marks, members in all_classes(4, pairs):
        for dag in members:
            np.testing.assert_array_equal(class_of(dag, pairs), marks)
        graph = graph_of(marks, pairs)
        assert any(np.array_equal(graph.dag, dag) for dag in members)


@given(dags(8), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_classes_of_larger_dags_under_interventions(dag, one, two):
    pairs = told_apart(8, [one, two])
    known = equivalence.cpdag(dag) & ~(dag.T & pairs)
    np.testing.assert_array_equal(class_of(dag, pairs), equivalence.meek(known))
