"""Graphs near the best Gaussian score, and the choice among them by likelihood."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds_of_blocks import mixed_table

from flwr_causal.core.blocks import logistic, near_ties
from flwr_causal.core.blocks import search as module
from flwr_causal.core.blocks.design import Category, column_names, design
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.order_search import order_score
from flwr_causal.core.linear.solution import edge_masks


def families_of_seed(seed, d=5):
    """Random families of each variable, the empty one among them, with random scores."""
    rng = np.random.default_rng(seed)
    families, scores = [], []
    for j in range(d):
        others = [k for k in range(d) if k != j]
        drawn = {tuple(k for k in others if rng.random() < 0.5) for _ in range(4)}
        own = sorted(drawn | {()})
        families.append(own)
        scores.append(rng.normal(size=len(own)) * 5)
    return families, scores


@given(st.integers(0, 10_000))
def test_the_best_graph_of_the_families_is_that_of_all_orders(seed):
    families, scores = families_of_seed(seed)
    d = len(families)
    best = -np.inf
    for order in permutations(range(d)):
        total = 0.0
        for at, j in enumerate(order):
            before = set(order[:at])
            fits = zip(families[j], scores[j], strict=True)
            total += max(score for own, score in fits if before.issuperset(own))
        best = max(best, total)
    dag = near_ties.best_dag(families, scores, np.zeros((d, d), dtype=bool))
    assert is_acyclic(dag)
    chosen = [families[j].index(tuple(np.flatnonzero(dag[:, j]))) for j in range(d)]
    assert sum(own[k] for own, k in zip(scores, chosen, strict=True)) == pytest.approx(best)


def test_a_start_whose_families_alone_are_left_stays():
    start = np.zeros((3, 3), dtype=bool)
    start[[0, 1], [1, 2]] = True
    families = [[()], [(0,)], [(1,)]]
    assert (near_ties.best_dag(families, [np.zeros(1)] * 3, start) == start).all()


def problem_of(frame, knowledge=None, least_effect=0.0):
    variables, rows = design(frame)
    moments = SampleMoments.from_rows(rows, column_names(variables))
    names = tuple(one.name for one in variables)
    masks = edge_masks(knowledge, names)
    widths = [one.width for one in variables]
    problem = module.BlockProblem.of(moments, widths, names, masks, least_effect=least_effect)
    return problem, variables, moments, rows, widths


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("within", [2.0, 20.0])
def test_families_are_those_of_graphs_near_the_best(within, monkeypatch):
    """Beside all orders: what the walk finds is near, and after many steps it finds all."""
    monkeypatch.setattr(module, "WITHIN", within)
    monkeypatch.setattr(module, "STEPS_PER_VARIABLE", 2000)
    frame, _ = mixed_table(5, 300, seed=4)
    problem, _, moments, _, widths = problem_of(frame)
    dag = problem.best().dag
    families = problem.near_families(dag)
    none = EdgeMasks(np.ones((5, 5), dtype=bool), np.zeros((5, 5), dtype=bool))
    costs = module.edge_costs(moments.n, widths)
    every = np.ones((5, 5), dtype=bool)
    back = np.ix_(np.argsort(problem.first), np.argsort(problem.first))
    along = [
        problem._orders._along(np.array(order), every, problem.costs.T.copy())[back]
        for order in permutations(range(5))
    ]
    scores = [
        order_score([moments] * 5, one, none, edge_cost=costs, widths=widths) for one in along
    ]
    near = [one for one, score in zip(along, scores, strict=True) if score < min(scores) + within]
    expected = [{tuple(np.flatnonzero(one[:, j]).tolist()) for one in near} for j in range(5)]
    assert max(map(len, expected)) > 1
    assert [set(sets) for sets in families] == expected
    for j, sets in enumerate(families):
        assert sets[0] == tuple(np.flatnonzero(dag[:, j]))
        assert len(set(sets)) == len(sets)


def test_graphs_near_the_best_respect_knowledge():
    frame, _ = mixed_table(6, 500, seed=1)
    names = list(frame.columns)
    allowed, required = ~np.eye(6, dtype=bool), np.zeros((6, 6), dtype=bool)
    required[0, 3] = required[3, 5] = True
    allowed[4, :] = False
    problem, *_ = problem_of(frame[names], EdgeMasks(allowed, required))
    for j, sets in enumerate(problem.near_families(problem.best().dag)):
        for own in sets:
            assert set(np.flatnonzero(required[:, j])) <= set(own)
            assert 4 not in own
            assert j not in {0: (), 3: (0,)}.get(j, ()) or own


def test_families_do_not_depend_on_the_order_of_columns():
    frame, _ = mixed_table(6, 500, seed=2)
    problem, *_ = problem_of(frame)
    names = list(frame.columns)
    turned, *_ = problem_of(frame[names[::-1]])
    one = problem.near_families(problem.best().dag)
    other = turned.near_families(turned.best().dag)

    def named(families, columns):
        return {
            columns[j]: {frozenset(columns[k] for k in own) for own in sets}
            for j, sets in enumerate(families)
        }

    assert named(one, names) == named(other, names[::-1])


def likelihoods(variables, moments, rows, families):
    members = [
        (j, own)
        for j, sets in enumerate(families)
        for own in sets
        if own and isinstance(variables[j], Category)
    ]
    fits = logistic.init(variables, moments, members)
    while any(not fit.finished for fit in fits):
        left = [k for k, fit in enumerate(fits) if not fit.finished]
        asked = [fits[k] for k in left]
        sums = logistic.sums_of_rows(
            [one.family for one in asked], rows, logistic.asked_weights(asked)
        )
        means = logistic.LogisticSums(*(one / len(rows) for one in sums))
        for k, fit in zip(left, logistic.server_step(asked, means, len(rows)), strict=True):
            fits[k] = fit
    return {key: len(rows) * fit.log_likelihood for key, fit in zip(members, fits, strict=True)}


def test_scores_are_likelihoods_of_rows_less_the_costs():
    frame, _ = mixed_table(5, 400, seed=6)
    problem, variables, moments, rows, widths = problem_of(frame)
    families = [[(), tuple(k for k in range(5) if k != j)] for j in range(5)]
    logs = likelihoods(variables, moments, rows, families)
    costs = problem.least_costs
    np.testing.assert_allclose(costs, module.edge_costs(400, widths))
    scores = near_ties.scores_of(variables, moments, families, costs, logs)
    for j, variable in enumerate(variables):
        others, own = families[j][1], _columns(widths, j)
        gain = scores[j][1] - scores[j][0] + costs[list(others), j].sum()
        if isinstance(variable, Category):
            counts = frame[variable.name].value_counts()
            alone = float((counts * np.log(counts / 400)).sum())
            assert gain == pytest.approx(logs[j, others] - alone)
        else:
            x = np.column_stack([np.ones(400), np.delete(rows, own, axis=1)])
            left = np.linalg.lstsq(x, rows[:, own], rcond=None)[1][0] / 400
            assert gain == pytest.approx(-200 * np.log(left / rows[:, own].var()))


def test_a_family_is_scored_by_the_rows_of_its_variable():
    """Under interventions each variable has moments of its own."""
    frame, _ = mixed_table(5, 400, seed=6)
    problem, variables, moments, rows, _ = problem_of(frame)
    families = [[(), tuple(k for k in range(5) if k != j)] for j in range(5)]
    own = [SampleMoments.from_rows(rows[40 * j :], moments.names) for j in range(5)]
    logs = likelihoods(variables, moments, rows, families)
    costs = problem.least_costs
    scores = near_ties.scores_of(variables, own, families, costs, logs)
    for j, part in enumerate(own):
        alone = near_ties.scores_of(variables, part, families, costs, logs)
        np.testing.assert_array_equal(scores[j], alone[j])
    assert (scores[4] != near_ties.scores_of(variables, moments, families, costs, logs)[4]).any()


def _columns(widths, j):
    first = sum(widths[:j])
    return list(range(first, first + widths[j]))


def test_least_effects_cost_what_they_gain():
    frame, _ = mixed_table(5, 4000, seed=6)
    problem, *_ = problem_of(frame, least_effect=0.3)
    assert problem.least_costs.min() == pytest.approx(-2000 * np.log(1 - 0.3**2))


def test_the_class_of_a_graph_has_the_strengths_of_the_search():
    frame, _ = mixed_table(8, 900, seed=3)
    problem, *_ = problem_of(frame)
    best = problem.best()
    again = problem.class_of(best.dag)
    assert (again.graph.adjacency == cpdag(best.dag)).all()
    joined = best.dag | best.dag.T
    np.testing.assert_allclose(again.graph.weights, best.graph.weights, atol=1e-12)
    np.testing.assert_allclose(
        np.maximum(again.strengths, again.strengths.T)[joined],
        np.maximum(best.strengths, best.strengths.T)[joined],
    )
