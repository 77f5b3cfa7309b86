"""The compiled classes against the plain ones."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_search import all_dags
from small_graphs import dags, matrix, v_structures

from flwr_causal.core.ges.class_kernels import (
    adjacency_lists,
    class_of,
    extend,
    join,
    member_of,
    open_path,
    part,
)
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


@given(dags(8))
def test_the_order_of_an_extension_puts_causes_first(dag):
    marks = equivalence.cpdag(dag)
    lists, degrees = adjacency_lists(marks)
    member = np.zeros_like(dag)
    found, order = extend(marks, lists, degrees, member)
    assert found
    assert sorted(order) == list(range(8))
    assert not np.tril(member[np.ix_(order, order)]).any()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40))
def test_lists_stay_sorted_while_edges_come_and_go(pairs):
    marks = np.zeros((7, 7), dtype=bool)
    lists, degrees = adjacency_lists(marks)
    for i, j in pairs:
        if i == j:
            continue
        (part if marks[i, j] else join)(lists, degrees, i, j)
        marks[i, j] = marks[j, i] = not marks[i, j]
        for node in range(7):
            np.testing.assert_array_equal(lists[node, : degrees[node]], np.flatnonzero(marks[node]))
    fresh, fresh_degrees = adjacency_lists(np.triu(marks))
    np.testing.assert_array_equal(fresh_degrees, degrees)
    for node in range(7):
        np.testing.assert_array_equal(fresh[node, : degrees[node]], lists[node, : degrees[node]])


@given(dags(7), st.sets(st.integers(1, 5), max_size=4))
def test_open_paths_are_those_of_the_graph_without_the_blocked_nodes(dag, blocked):
    marks = equivalence.cpdag(dag)
    lists, degrees = adjacency_lists(marks)
    closed = np.isin(np.arange(7), list(blocked))
    graph = nx.from_numpy_array(marks.astype(int), create_using=nx.DiGraph)
    graph.remove_nodes_from(blocked)
    assert open_path(marks, lists, degrees, 0, 6, closed) == nx.has_path(graph, 0, 6)
