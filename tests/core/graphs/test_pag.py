"""PAGs: Zhang's rules against all ancestral graphs of the same independences, and knowledge."""

from itertools import combinations, product

import networkx as nx
import numpy as np
import pytest

from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.graphs.pag.marks import (
    ARROW,
    CIRCLE,
    NONE,
    TAIL,
    ancestral_separators,
    directed_edges,
    is_ancestral,
    m_separated,
    mag,
    marks_of_dag,
)
from flwr_causal.core.graphs.pag.rules import Ancestry, member, oriented, pag_of_mag

KINDS = ((ARROW, TAIL), (TAIL, ARROW), (ARROW, ARROW))


def random_hidden_dag(rng, most_seen=5):
    """A DAG in a random order, and which of its variables are seen."""
    seen, hidden = int(rng.integers(3, most_seen + 1)), int(rng.integers(0, 4))
    size = seen + hidden
    upper = np.triu(rng.random((size, size)) < rng.uniform(0.2, 0.6), 1)
    order = rng.permutation(size)
    return upper[np.ix_(order, order)], rng.choice(size, seen, replace=False).tolist()


def independences(marks):
    d = len(marks)
    return [
        m_separated(marks, i, j, given)
        for i, j in combinations(range(d), 2)
        for size in range(d - 1)
        for given in combinations([k for k in range(d) if k not in (i, j)], size)
    ]


def unshielded_colliders(marks):
    d = range(len(marks))
    return {
        (a, b, c)
        for a, b, c in product(d, d, d)
        if a < c and marks[a, b] == ARROW == marks[c, b] and not marks[a, c]
    }


def equivalent_mags(marks):
    """All maximal ancestral graphs with the same independences, by trying every mark."""
    pairs = np.argwhere(np.triu(marks != NONE))
    wanted, colliders, found = independences(marks), unshielded_colliders(marks), []
    for kinds in product(KINDS, repeat=len(pairs)):
        other = np.zeros_like(marks)
        for (i, j), (at_j, at_i) in zip(pairs, kinds, strict=True):
            other[i, j], other[j, i] = at_j, at_i
        if unshielded_colliders(other) != colliders or not is_ancestral(other):
            continue
        if independences(other) == wanted:
            found.append(other)
    return found


def common_marks(mags):
    same = (np.array(mags) == mags[0]).all(axis=0)
    return np.where(same | (mags[0] == NONE), mags[0], CIRCLE)


def check_rules(seeds, most_edges):
    checked = 0
    for seed in seeds:
        dag, seen = random_hidden_dag(np.random.default_rng(seed))
        true = mag(dag, seen)
        if (true != NONE).sum() // 2 <= most_edges:
            np.testing.assert_array_equal(
                pag_of_mag(true), common_marks(equivalent_mags(true)), err_msg=f"seed {seed}"
            )
            checked += 1
    return checked


@pytest.mark.slow
def test_the_rules_find_the_marks_that_all_equivalent_graphs_share_and_no_others():
    assert check_rules(range(90), most_edges=6) > 60


@pytest.mark.nightly
def test_the_rules_on_denser_graphs():
    assert check_rules(range(1000, 1250), most_edges=8) > 220


def test_separation_in_a_dag_is_d_separation():
    rng = np.random.default_rng(0)
    for _ in range(40):
        dag, _ = random_hidden_dag(rng)
        graph, marks, d = nx.DiGraph(dag), marks_of_dag(dag), len(dag)
        for i, j in combinations(range(d), 2):
            given = {int(k) for k in rng.permutation(d)[: rng.integers(0, d)]} - {i, j}
            assert m_separated(marks, i, j, given) == nx.is_d_separator(graph, {i}, {j}, given)


def test_a_mag_has_the_independences_of_its_dag_among_the_variables_seen():
    rng = np.random.default_rng(1)
    for _ in range(40):
        dag, seen = random_hidden_dag(rng)
        true, full = mag(dag, seen), marks_of_dag(dag)
        assert is_ancestral(true)
        above = ancestors(dag)[np.ix_(seen, seen)]
        assert not (above & (true == ARROW).T).any()
        assert above[(true == TAIL).T].all()
        for i, j in combinations(range(len(seen)), 2):
            others = [k for k in range(len(seen)) if k not in (i, j)]
            for size in range(len(others) + 1):
                for given in combinations(others, size):
                    expected = m_separated(full, seen[i], seen[j], [seen[k] for k in given])
                    assert m_separated(true, i, j, given) == expected


def test_a_member_of_a_pag_is_a_graph_of_its_class():
    rng = np.random.default_rng(2)
    for _ in range(100):
        dag, seen = random_hidden_dag(rng)
        pag = pag_of_mag(mag(dag, seen))
        one = member(pag)
        assert one is not None
        assert is_ancestral(one)
        np.testing.assert_array_equal(pag_of_mag(one), pag)


def test_marks_that_are_no_pag_have_no_member():
    square = np.array(
        [[0, 3, 0, 3], [3, 0, 3, 0], [0, 3, 0, 3], [3, 0, 3, 0]]
    )  # a circle of four edges without a chord, and no collider on it
    assert member(square) is None


def random_knowledge(rng, dag, seen):
    """Statements that are true of a DAG: some of its edges, and edges that it has not."""
    above, direct = ancestors(dag), dag[np.ix_(seen, seen)]
    true = above[np.ix_(seen, seen)]
    required = direct & (rng.random(direct.shape) < 0.3)
    allowed = true | (rng.random(direct.shape) < 0.5)
    np.fill_diagonal(allowed, False)
    return EdgeMasks(allowed & ~ancestors(required).T, required)


def test_true_knowledge_plants_no_false_marks_and_is_kept():
    rng, more = np.random.default_rng(3), 0
    for _ in range(300):
        dag, seen = random_hidden_dag(rng, most_seen=6)
        true, known = mag(dag, seen), Ancestry.of_masks(random_knowledge(rng, dag, seen))
        found = oriented(true != NONE, ancestral_separators(true), known)
        wrong = (found != true) & (found != CIRCLE)
        assert not wrong.any()
        adjacent = true != NONE
        assert (found[adjacent & known.no_causes.T] == ARROW).all()
        assert (found[adjacent & known.causes.T] == TAIL).all()
        more += int((found == CIRCLE).sum() < (pag_of_mag(true) == CIRCLE).sum())
    assert more > 50


def test_tiers_give_an_arrowhead_at_the_later_variable_and_no_tail():
    masks = Knowledge(tiers=[("a",), ("b",)]).masks(("a", "b"))
    joined = ~np.eye(2, dtype=bool)
    found = oriented(joined, np.zeros((2, 2, 2), dtype=bool), Ancestry.of_masks(masks))
    np.testing.assert_array_equal(found, [[NONE, ARROW], [CIRCLE, NONE]])


def test_an_edge_forbidden_both_ways_is_a_common_cause():
    masks = Knowledge(forbidden=[("a", "b"), ("b", "a")]).masks(("a", "b"))
    joined = ~np.eye(2, dtype=bool)
    found = oriented(joined, np.zeros((2, 2, 2), dtype=bool), Ancestry.of_masks(masks))
    np.testing.assert_array_equal(found, [[NONE, ARROW], [ARROW, NONE]])


def test_tiers_hold_through_variables_in_no_tier_too():
    knowledge = Knowledge(tiers=[("a",), ("b",)])
    known = Ancestry.of(knowledge, ("a", "b", "c"))
    expected = np.zeros((3, 3), dtype=bool)
    expected[1, 0] = True
    np.testing.assert_array_equal(known.no_causes, expected)
    assert not known.causes.any()
    assert not Ancestry.of(None, ("a", "b")).no_causes.any()


def test_a_forbidden_edge_says_nothing_where_a_path_of_other_edges_is_possible():
    masks = Knowledge(forbidden=[("a", "b")]).masks(("a", "b", "c"))
    assert not Ancestry.of_masks(masks).no_causes.any()


def test_directed_edges_are_those_with_a_tail_and_an_arrowhead():
    marks = np.array([[NONE, ARROW, ARROW], [TAIL, NONE, ARROW], [CIRCLE, ARROW, NONE]])
    expected = np.zeros((3, 3), dtype=bool)
    expected[0, 1] = True
    np.testing.assert_array_equal(directed_edges(marks), expected)
