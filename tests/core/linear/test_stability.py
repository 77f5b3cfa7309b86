"""Unstable edges: what comes back, hidden common causes, order of columns, knowledge."""

import numpy as np
import pytest

from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.linear import stability
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.order_search import MomentOrders, search_orders
from flwr_causal.core.linear.stability import (
    order_search,
    redrawn,
    unsettled,
    unstable_edges,
)
from flwr_causal.errors import ConfigError


def free(d):
    return EdgeMasks(~np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool))


def system(seed, d=10, hubs=0, n=2000):
    """Moments of a random system of d variables, and its DAG; hubs act on half of the others."""
    rng = np.random.default_rng(seed)
    size = d + hubs
    dag = np.triu(rng.random((size, size)) < 0.3, 1)
    dag[:, :hubs] = False
    dag[:hubs, hubs:] = rng.random((hubs, d)) < 0.5
    effects = dag * rng.uniform(0.5, 1.2, dag.shape) * rng.choice([-1, 1], dag.shape)
    rows = rng.normal(size=(n, size)) @ np.linalg.inv(np.eye(size) - effects)
    return SampleMoments.from_rows(rows[:, hubs:]), dag[hubs:, hubs:]


def found(moments, masks=None, least_share=0.4):
    masks = free(moments.d) if masks is None else masks
    dag = search_orders(moments, masks).best.adjacency
    own = {"least_share": least_share, "least_effect": 0.1}
    return dag, unstable_edges(moments, dag, masks, **own)


@pytest.mark.slow
def test_edges_of_systems_without_hidden_causes_stay():
    left_out = edges = 0
    for seed in range(10):
        dag, unstable = found(system(seed)[0])
        assert not (unstable & ~dag).any()
        left_out, edges = left_out + unstable.sum(), edges + dag.sum()
    assert left_out <= 0.02 * edges


@pytest.mark.slow
def test_of_systems_with_hidden_causes_edges_of_no_effect_are_left_out_more_often_than_others():
    left_out, edges = np.zeros(2), np.zeros(2)
    for seed in range(10):
        moments, true = system(seed, hubs=3)
        dag, unstable = found(moments)
        for k, kind in enumerate((true, ~true)):
            left_out[k] += (unstable & kind).sum()
            edges[k] += (dag & kind).sum()
    shares = left_out / edges
    assert shares[1] > 0.15
    assert shares[1] > 1.5 * shares[0]


def test_reversible_edges_of_a_class_are_no_reason_to_leave_them_out():
    # x -> y -> z: noise terms of one share, so that draws differ in the direction.
    rng = np.random.default_rng(2)
    x = rng.normal(size=3000)
    y = x + rng.normal(size=3000)
    rows = np.column_stack([x, y, y + rng.normal(size=3000)])
    moments = SampleMoments.from_rows(rows / rows.std(axis=0))
    dag, unstable = found(moments)
    assert cpdag(dag).sum() == 4
    assert not unstable.any()


def test_neither_the_order_of_the_columns_nor_the_split_of_the_rows_matters():
    moments, _ = system(3, hubs=3)
    dag, unstable = found(moments)
    assert unstable.any()
    order = np.random.default_rng(0).permutation(moments.d)
    other_dag, other = found(moments.subset(order.tolist()))
    np.testing.assert_array_equal(other_dag, dag[np.ix_(order, order)])
    np.testing.assert_array_equal(other, unstable[np.ix_(order, order)])
    rounded = SampleMoments(moments.n, moments.mean, moments.second * (1 + 1e-15), moments.names)
    np.testing.assert_array_equal(found(rounded)[1], unstable)


def test_required_edges_stay_and_a_share_of_0_keeps_all():
    moments, _ = system(3, hubs=3)
    dag, unstable = found(moments)
    assert not found(moments, least_share=0.0)[1].any()
    required = dag & unstable
    assert not (found(moments, EdgeMasks(~np.eye(10, dtype=bool), required))[1] & required).any()


def test_few_rows_dependent_columns_and_many_variables():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(8, 12))
    assert found(SampleMoments.from_rows(rows))[1].shape == (12, 12)
    twice = SampleMoments.from_rows(np.column_stack([rows[:, :3], rows[:, 0] + rows[:, 1]]))
    assert found(twice)[1].shape == (4, 4)
    many = 250  # more than are all candidates for parents of each other
    moments = SampleMoments(50, np.zeros(many), np.eye(many), tuple(f"x{k}" for k in range(many)))
    chain = np.eye(many, k=1, dtype=bool)
    own = {"least_share": 0.4, "least_effect": 0.1}
    assert unstable_edges(moments, chain, free(many), **own).sum() > 240
    few = moments.subset(range(5))
    assert unstable_edges(few, chain[:5, :5], free(5), **own).sum() == 4


def test_no_more_moments_are_drawn_than_can_change_something(monkeypatch):
    drawn = []

    def counted(moments, number):
        for one in redrawn(moments, number):
            drawn.append(one)
            yield one

    monkeypatch.setattr(stability, "redrawn", counted)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 3))
    rows[:, 1] += rows[:, 0]
    rows[:, 2] += rows[:, 1]
    # Each draw allows these edges: after four of ten they are stable.
    assert not found(SampleMoments.from_rows(rows))[1].any()
    assert len(drawn) == 4
    # And none allows an edge between independent columns: after seven it is unstable.
    drawn.clear()
    chain = np.eye(3, k=1, dtype=bool)
    moments = SampleMoments.from_rows(rng.normal(size=(2000, 3)))
    assert unstable_edges(moments, chain, free(3), least_share=0.4, least_effect=0.1).sum() == 2
    assert len(drawn) == 7


def test_the_short_search_respects_knowledge_and_finds_what_is_clear():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(5000, 8))
    for k in range(1, 8):
        rows[:, k] += rows[:, k - 1]
    moments = SampleMoments.from_rows(rows)
    chain = np.eye(8, k=1, dtype=bool)
    np.testing.assert_array_equal(MomentOrders([moments] * 8, free(8), 0.1).rough(moments), chain)
    required = np.zeros((8, 8), dtype=bool)
    required[7, 0] = True
    allowed = ~np.eye(8, dtype=bool)
    allowed[3, :] = False
    dag = MomentOrders([moments] * 8, EdgeMasks(allowed, required), 0.1).rough(moments)
    assert dag[7, 0]
    assert not dag[3].any()
    assert is_acyclic(dag)


@pytest.mark.parametrize(
    ("left_out", "edges", "rows", "told"),
    [(3, 20, 1000, True), (2, 20, 1000, False), (3, 20, 999, False), (0, 0, 5000, False)],
)
def test_many_unstable_edges_from_many_rows_are_told(left_out, edges, rows, told):
    assert unsettled(left_out, edges, rows) is told


def test_the_public_search_is_the_default_of_moments_and_leaves_out_unstable_edges():
    moments, _ = system(3, hubs=3)
    dag, unstable = found(moments)
    assert unstable.any()
    np.testing.assert_array_equal(order_search(moments).adjacency, dag & ~unstable)
    np.testing.assert_array_equal(order_search(moments, stability=0).adjacency, dag)
    with pytest.raises(ConfigError, match=r"stability is 1\.5"):
        order_search(moments, stability=1.5)
