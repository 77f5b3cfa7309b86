"""CPDAGs and extensions on every DAG of up to four nodes, and properties on larger ones."""

from collections import defaultdict
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import dags, matrix, v_structures

from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.acyclicity import ancestors, is_acyclic, topological_order


def all_dags(size):
    pairs = list(combinations(range(size), 2))
    for choice in product([0, 1, 2], repeat=len(pairs)):
        edges = [(i, j) if c == 1 else (j, i) for (i, j), c in zip(pairs, choice, strict=True) if c]
        dag = matrix(size, *edges)
        if is_acyclic(dag):
            yield dag


def class_key(dag):
    """Skeleton and v-structures, which decide the class (Verma & Pearl, 1990)."""
    skeleton = dag | dag.T
    colliders = {
        (i, k, j)
        for i, k, j in product(range(len(dag)), repeat=3)
        if i < j and dag[i, k] and dag[j, k] and not skeleton[i, j]
    }
    return skeleton.tobytes(), frozenset(colliders)


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def classes(request):
    groups = defaultdict(list)
    for dag in all_dags(request.param):
        groups[class_key(dag)].append(dag)
    return groups


def test_the_number_of_dags_and_classes_is_the_known_one():
    counts = {1: (1, 1), 2: (3, 2), 3: (25, 11), 4: (543, 185)}
    for size, expected in counts.items():
        dags_of_size = list(all_dags(size))
        assert (len(dags_of_size), len({class_key(dag) for dag in dags_of_size})) == expected


@pytest.mark.slow
def test_a_turned_edge_keeps_the_class_and_turns_as_few_other_edges_as_possible(classes):
    for members in classes.values():
        for dag in members:
            marks, order = equivalence.cpdag(dag), topological_order(dag)
            for i, j in np.argwhere(dag & marks.T):
                turned = equivalence.with_edge_turned(dag, marks, i, j, order)
                assert turned[j, i]
                assert class_key(turned) == class_key(dag)
                assert is_acyclic(turned)
                fewest = min((other ^ dag).sum() for other in members if other[j, i])
                assert (turned ^ dag).sum() == fewest


def test_the_cpdag_is_the_union_of_its_class(classes):
    seen = set()
    for members in classes.values():
        union = np.logical_or.reduce(members)
        for dag in members:
            np.testing.assert_array_equal(equivalence.cpdag(dag), union)
        seen.add(union.tobytes())
    assert len(seen) == len(classes)


def test_the_extension_of_a_cpdag_is_a_member_of_its_class(classes):
    for key, members in classes.items():
        extension = equivalence.consistent_extension(equivalence.cpdag(members[0]))
        assert is_acyclic(extension)
        assert class_key(extension) == key


def test_v_structures_and_moral_graph_are_those_of_the_class(classes):
    for (_, colliders), members in classes.items():
        expected = None
        for dag in members:
            assert set(v_structures(dag)) == colliders
            moral = equivalence.moralize(dag)
            expected = moral if expected is None else expected
            np.testing.assert_array_equal(moral, expected)
        np.testing.assert_array_equal(equivalence.moralize(equivalence.cpdag(members[0])), expected)


def test_background_knowledge_is_closed_by_the_rules_as_by_enumeration(classes):
    """Meek's completeness theorem, which needs the fourth rule.

    Fix one or two undirected edges: the rules must direct exactly what all remaining members of
    the class agree on.
    """
    for members in classes.values():
        pattern = equivalence.cpdag(members[0])
        free = np.argwhere(np.triu(equivalence.undirected_part(pattern)))
        known_sets = {
            tuple((i, j) if dag[i, j] else (j, i) for i, j in free[list(chosen)].tolist())
            for dag in members
            for count in (1, 2)
            for chosen in combinations(range(len(free)), count)
        }
        for known in known_sets:
            agreeing = [dag for dag in members if all(dag[edge] for edge in known)]
            marks = pattern.copy()
            for i, j in known:
                marks[j, i] = False
            np.testing.assert_array_equal(
                equivalence.meek(marks), np.logical_or.reduce(agreeing), err_msg=str(known)
            )


@given(dags(8))
def test_larger_classes_survive_the_way_there_and_back(dag):
    marks = equivalence.cpdag(dag)
    extension = equivalence.consistent_extension(marks)
    assert class_key(extension) == class_key(dag)
    np.testing.assert_array_equal(equivalence.cpdag(extension), marks)
    assert (marks | ~dag).all()


@given(dags(9))
def test_the_cpdag_is_the_v_structures_closed_under_the_rules(dag):
    marks = equivalence.skeleton(dag)
    for i, k, j in v_structures(dag):
        marks[k, i] = marks[k, j] = False
    np.testing.assert_array_equal(equivalence.cpdag(dag), equivalence.meek(marks))


def test_a_cyclic_graph_has_no_cpdag():
    with pytest.raises(ValueError, match="cycle"):
        equivalence.cpdag(matrix(3, (0, 1), (1, 2), (2, 0)))


@given(dags(6), st.permutations(range(6)))
def test_the_cpdag_does_not_depend_on_the_order_of_the_variables(dag, order):
    renamed = equivalence.cpdag(dag[np.ix_(order, order)])
    np.testing.assert_array_equal(renamed, equivalence.cpdag(dag)[np.ix_(order, order)])


def test_moral_graph_marries_all_parents():
    moral = equivalence.moralize(matrix(5, (0, 3), (1, 3), (2, 3), (3, 4)))
    apart = {(i, j) for i, j in combinations(range(5), 2) if not moral[i, j]}
    assert apart == {(0, 4), (1, 4), (2, 4)}
    np.testing.assert_array_equal(moral, moral.T)


def test_marks_without_an_extension():
    square = matrix(4, (0, 1), (1, 2), (2, 3), (3, 0))
    assert equivalence.consistent_extension(square | square.T) is None  # no chordless cycle
    assert equivalence.consistent_extension(square) is None  # a directed cycle


def test_rules_end_on_contradictory_marks():
    # 0 -> 1 - 2 <- 3 with 0, 2 and 1, 3 apart: the first rule directs 1 - 2 both ways.
    marks = matrix(4, (0, 1), (1, 2), (2, 1), (3, 2))
    closed = equivalence.meek(marks)
    assert closed[1, 2] != closed[2, 1]


def test_the_undirected_chain_extends_from_the_first_variable():
    chain = matrix(4, (0, 1), (1, 2), (2, 3))
    np.testing.assert_array_equal(equivalence.consistent_extension(chain | chain.T), chain)
    assert ancestors(chain)[0, 3]
