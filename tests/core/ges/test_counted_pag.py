"""The search for a PAG from contingency tables: an oracle, invariance, knowledge, too few rows."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from flwr_causal.core.ges.counted_pag import SeparationTests
from flwr_causal.core.graphs.independence import largest_rejected
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.graphs.pag.marks import ARROW, NONE, TAIL, m_separated, mag, marks_of_dag
from flwr_causal.core.graphs.pag.rules import member, pag_of_mag
from flwr_causal.data.synthetic.discrete import random_network

ROWS = 10**9


def joint(network):
    """The joint probabilities of a network, an axis for each variable."""
    d = len(network.names)
    found = np.ones((1,) * d)
    for child, (parents, table) in enumerate(zip(network.parents, network.tables, strict=True)):
        axes = (*parents, child)
        spread = table.transpose(np.argsort(axes))
        shape = [1] * d
        for k in axes:
            shape[k] = len(network.states[k])
        found = found * spread.reshape(shape)
    return found


def world(seed, seen=5, hidden=2, states=(2, 3)):
    """Exact counts of the variables that are seen, a DAG with no false independence, the PAG."""
    rng = np.random.default_rng(seed)
    network = random_network(
        seen + hidden, edges_per_variable=1.4, num_states=states, concentration=1.0, seed=seed
    )
    full = np.zeros((seen + hidden,) * 2, dtype=bool)
    for child, parents in enumerate(network.parents):
        full[list(parents), child] = True
    able = np.argsort(-full.sum(axis=1), kind="stable")[:hidden].tolist()
    kept = [k for k in range(seen + hidden) if k not in able]
    counts = np.rint(joint(network).sum(axis=tuple(able)) * ROWS).astype(np.int64)
    order = rng.permutation(seen)
    dag = np.zeros((seen, seen), dtype=bool)
    for place, j in enumerate(order):
        for k in order[:place]:
            others = [kept[m] for m in order[:place] if m != k]
            dag[k, j] = not m_separated(marks_of_dag(full), kept[k], kept[j], others)
    return counts, dag, pag_of_mag(mag(full, kept))


def made(counts, dag, knowledge=None, rows=None):
    """All tests of a whole table."""
    names = tuple(f"x{k}" for k in range(len(dag)))
    cards = np.array(counts.shape)
    tests = SeparationTests(names, dag, cards, rows or int(counts.sum()), knowledge)
    while wanted := tests.next_level():
        for members in wanted:
            others = tuple(k for k in range(len(dag)) if k not in members)
            tests.learn(members, counts.sum(axis=others))
    return tests


#: Two of its variables are separated by no fewer than three others.
NEEDS_THREE = 34


@pytest.mark.few(20)
@pytest.mark.parametrize("seed", [seed for seed in range(60) if seed != NEEDS_THREE])
def test_exact_counts_give_the_true_graph_from_any_graph_without_false_independences(seed):
    counts, dag, true = world(seed)
    np.testing.assert_array_equal(made(counts, dag).graph().marks, true)


def test_an_edge_stays_whose_variables_three_others_separate():
    counts, dag, true = world(NEEDS_THREE)
    found = made(counts, dag).graph().marks
    assert [(i, j) for i, j in np.argwhere(np.triu(found != true)).tolist()] == [(0, 1)]
    assert found[0, 1] != NONE
    assert true[0, 1] == NONE


def test_the_score_missing_an_edge_does_not_hide_it():
    for seed in range(20):
        counts, dag, true = world(seed)
        edges = np.argwhere(dag & (true != NONE))
        cause, effect = edges[seed % len(edges)]
        dag[cause, effect] = False
        assert made(counts, dag).graph().marks[cause, effect] != NONE


@given(st.integers(0, 30), st.randoms())
def test_the_order_of_variables_does_not_matter(seed, draw):
    counts, dag, _ = world(seed)
    rows = np.random.default_rng(seed).multinomial(2000, (counts / counts.sum()).ravel())
    counts = rows.reshape(counts.shape)
    order = list(range(len(dag)))
    draw.shuffle(order)
    first = made(counts, dag).graph()
    other = made(counts.transpose(order), dag[np.ix_(order, order)]).graph()
    np.testing.assert_array_equal(other.marks, first.marks[np.ix_(order, order)])
    np.testing.assert_allclose(other.weights, first.weights[np.ix_(order, order)])


@pytest.mark.parametrize("seed", range(12))
def test_graphs_of_few_rows_are_those_of_an_ancestral_graph(seed):
    counts, dag, _ = world(seed, seen=7, hidden=3)
    rows = np.random.default_rng(seed).multinomial(400, (counts / counts.sum()).ravel())
    graph = made(rows.reshape(counts.shape), dag).graph()
    whole = member(graph.marks)
    assert whole is not None
    np.testing.assert_array_equal(pag_of_mag(whole), graph.marks)


def test_before_any_test_the_graph_is_that_of_the_score():
    _, dag, _ = world(3)
    tests = SeparationTests(tuple("abcde"), dag, np.full(5, 2), 1000)
    np.testing.assert_array_equal(tests.graph().marks, pag_of_mag(marks_of_dag(dag)))
    assert len(tests.next_level()) > 10
    np.testing.assert_array_equal(tests.graph().marks, pag_of_mag(marks_of_dag(dag)))


def test_a_level_that_is_cut_short_decides_no_pair_whose_tests_are_missing():
    counts, dag, _ = world(3)
    tests = SeparationTests(tuple("abcde"), np.zeros_like(dag), np.array(counts.shape), ROWS)
    members = tests.next_level()
    assert members == list(combinations(range(5), 2))
    tests.learn((0, 1), counts.sum(axis=(2, 3, 4)))
    edges = np.argwhere(np.triu(tests.graph().marks != NONE)).tolist()
    assert edges in ([], [[0, 1]])


def test_tables_of_fewer_than_ten_rows_a_cell_are_not_tested_and_the_score_has_the_say():
    counts, dag, _ = world(5, states=(3, 3))
    for rows in (269, 270):  # of three variables with three states there are 27 cells
        tests = SeparationTests(tuple("abcde"), dag, np.array(counts.shape), rows)
        assert max(map(len, tests.next_level())) == (3 if rows == 270 else 2)


def test_a_weight_is_the_strength_of_the_test_that_speaks_most_against_the_edge():
    counts = np.array([[30, 10], [20, 40]])
    graph = made(counts, np.array([[False, True], [False, False]])).graph()
    ratio = 2 * (counts * np.log(counts * 100 / np.outer([40, 60], [50, 50]))).sum()
    assert graph.weights[0, 1] == pytest.approx(np.sqrt(1 - np.exp(-ratio / 100)))


def test_rows_that_were_drawn_with_replacement_count_half():
    counts = np.array([[55, 45], [45, 55]])
    ratio = 2 * (counts * np.log(counts / 50)).sum()
    for drawn, halves in ((False, 1), (True, 2)):
        tests = SeparationTests(
            ("x0", "x1"), np.zeros((2, 2), bool), np.full(2, 2), 200, drawn=drawn
        )
        assert tests.next_level() == [(0, 1)]
        tests.learn((0, 1), counts)
        assert tests.found[0, 1].p == pytest.approx(chi2.sf(ratio / halves, 1))


def test_tiers_required_and_forbidden_edges_are_kept():
    for seed in range(12):
        counts, dag, _ = world(seed)
        upper = np.triu(dag | dag.T, 1)
        known = Knowledge(tiers=[("x0", "x1"), ("x2", "x3", "x4")])
        marks = made(counts, upper, known).graph().marks
        assert set(marks[:2, 2:].ravel()) <= {NONE, ARROW}
        i, j = np.argwhere(upper)[0]
        known = Knowledge(required=[(f"x{i}", f"x{j}")])
        graph = made(counts, upper, known).graph()
        assert (graph.marks[i, j], graph.marks[j, i]) == (ARROW, TAIL)
        assert graph.required[i, j]
        pairs = [(f"x{i}", f"x{j}"), (f"x{j}", f"x{i}")]
        others = [(f"x{k}", name) for k in range(5) for _, name in pairs if name != f"x{k}"]
        known = Knowledge(forbidden=[*pairs, *others])
        upper[i, j] = False
        graph = made(counts, np.zeros_like(dag), known).graph()
        assert (graph.marks[i, j], graph.marks[j, i]) in {(ARROW, ARROW), (NONE, NONE)}


def test_variables_that_knowledge_keeps_apart_may_have_a_common_cause():
    counts = np.array([[400, 100], [100, 400]])
    known = Knowledge(forbidden=[("x0", "x1"), ("x1", "x0")])
    marks = made(counts, np.zeros((2, 2), dtype=bool), known).graph().marks
    assert marks[0, 1] == marks[1, 0] == ARROW


def test_no_rejected_value_is_above_its_share():
    values = [0.01, 0.02, 0.03, 0.9, 0.04]
    assert largest_rejected(values, 0.05) == 0.04
    assert largest_rejected(values, 0.04) == -1.0
    assert largest_rejected([0.01, 0.5], 0.02) == 0.01
    assert largest_rejected([], 0.5) == -1.0


def test_among_many_independent_variables_few_pairs_are_joined():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (1000, 60))
    tests = SeparationTests(
        tuple(f"x{k:02}" for k in range(60)), np.zeros((60, 60), bool), np.full(60, 2), 1000
    )
    while wanted := tests.next_level():
        for members in wanted:
            cells = np.ravel_multi_index(tuple(rows[:, members].T), (2,) * len(members))
            shape = (2,) * len(members)
            tests.learn(members, np.bincount(cells, minlength=2 ** len(members)).reshape(shape))
    assert tests.graph().num_edges <= 2
