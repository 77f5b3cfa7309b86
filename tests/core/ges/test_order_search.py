"""The search for an order against the plain definition, and what it is for."""

import numpy as np
import pytest
from reference_search import random_dag

from flwr_causal.core.discrete.families import empty_families
from flwr_causal.core.ges.ges import ges
from flwr_causal.core.ges.linear_class import linear_class
from flwr_causal.core.ges.moment_gains import MomentGains
from flwr_causal.core.ges.order_search import best_order
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import Moments


def system_rows(d, edges, n, seed):
    rng = np.random.default_rng(seed)
    dag = random_dag(d, rng, edges / (d * (d - 1) / 2))
    weights = dag * rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1, 1], (d, d))
    return dag, rng.normal(size=(n, d)) @ np.linalg.inv(np.eye(d) - weights)


def with_parents(moments, parents, y):
    adjacency = np.zeros((moments.d, moments.d), dtype=bool)
    adjacency[list(parents), y] = True
    return gaussian_bic(moments, adjacency)


def parents_before(moments, before, y, limit):
    """Grow, then shrink, by the plain definition."""
    parents = set()
    for grow in (True, False):
        while not grow or len(parents) < limit:
            here = with_parents(moments, parents, y)
            others = set(before) - parents if grow else parents
            trials = {x: with_parents(moments, parents ^ {x}, y) for x in others}
            best = min(trials, key=trials.get, default=None)
            if best is None or trials[best] >= here - 1e-7:
                break
            parents ^= {best}
    return parents


def along(moments, order, allowed, limit):
    dag = np.zeros_like(allowed)
    for k, y in enumerate(order):
        before = [x for x in order[:k] if allowed[x, y]]
        dag[list(parents_before(moments, before, y, limit)), y] = True
    return dag


@pytest.mark.parametrize("seed", range(5))
def test_the_result_is_no_worse_than_one_move_from_the_start(seed):
    d = 6
    rng = np.random.default_rng(seed)
    moments = Moments.from_rows(system_rows(d, 9, 200, seed)[1])
    allowed = ~np.eye(d, dtype=bool)
    if seed % 2:
        allowed &= rng.random((d, d)) < 0.7
    limit = 2 if seed == 2 else d
    families = empty_families(d, 4, 2)
    dag, gain, families = best_order(MomentGains(moments), families, np.arange(d), allowed, limit)
    assert is_acyclic(dag)
    assert not (dag & ~allowed).any()
    assert dag.sum(axis=0).max() <= limit
    nothing = gaussian_bic(moments, np.zeros((d, d)))
    assert gain == pytest.approx(nothing - gaussian_bic(moments, dag), abs=1e-6)
    for y in range(d):
        others = [x for x in range(d) if x != y]
        for place in range(0, d, 2):
            moved = along(moments, [*others[:place], y, *others[place:]], allowed, limit)
            assert nothing - gaussian_bic(moments, moved) <= gain + 1e-6


def test_variables_outside_the_order_come_first_and_have_no_parents():
    moments = Moments.from_rows(system_rows(5, 8, 300, 1)[1])
    allowed = ~np.eye(5, dtype=bool)
    dag, _, _ = best_order(MomentGains(moments), empty_families(5), np.array([1, 3, 4]), allowed)
    assert not dag[:, [0, 2]].any()
    assert dag[[0, 2]].any()


def test_dense_systems_are_found_where_the_greedy_search_is_not():
    d = 15
    masks = EdgeMasks(~np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool))
    better = 0
    for seed in range(4):
        dag, rows = system_rows(d, 30, 2000, seed)
        moments = Moments.from_rows(rows)
        found = linear_class([moments] * d, masks, distinguished=np.zeros((d, d), dtype=bool))
        joined = found.marks | found.marks.T
        greedy = ges(moments, "gaussian-bic", turn=True).adjacency
        errors = [int((one != (dag | dag.T)).sum()) // 2 for one in (joined, greedy | greedy.T)]
        assert errors[0] <= errors[1]
        better += errors[0] < errors[1]
    assert better >= 2
