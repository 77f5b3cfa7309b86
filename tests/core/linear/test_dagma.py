"""DAGMA on moments: units, large problems, and the accuracy of the default sparsity."""

import numpy as np
import pytest
from small_graphs import h_logdet
from sweeps import sweep

from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.edge_problem import SparseProblem
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.notears import notears
from flwr_causal.core.linear.selection import default_sparsity, typical_variance
from flwr_causal.errors import ConfigError


def simulated(seed, d, n):
    """Erdos-Renyi graph of d edges, coefficients of size 0.5 to 2, unit noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.triu_indices(d, 1)
    pick = rng.choice(len(rows), size=d, replace=False)
    order = rng.permutation(d)
    weights = np.zeros((d, d))
    sizes = rng.uniform(0.5, 2.0, d) * rng.choice([-1.0, 1.0], d)
    weights[order[rows[pick]], order[columns[pick]]] = sizes
    X = np.linalg.solve((np.eye(d) - weights).T, rng.standard_normal((n, d)).T).T
    return SampleMoments.from_rows(X), weights


def by_default(moments):
    return default_sparsity(moments.n, moments.d, typical_variance(moments))


def distance(one, two):
    """Structural Hamming distance, a reversed edge counted once."""
    differs = (one != 0) != (two != 0)
    return int(np.triu(differs | differs.T).sum())


@pytest.mark.slow
@pytest.mark.parametrize("unit", sweep([0.25, 1000.0, 3.7], kept=[1000.0]))
def test_the_unit_of_all_variables_does_not_matter(unit):
    for seed in range(3):
        moments, _ = simulated(seed, 12, 40)
        other = moments.scaled(unit)
        graph = dagma(moments, sparsity=by_default(moments))
        again = dagma(other, sparsity=by_default(other))
        np.testing.assert_array_equal(again.adjacency, graph.adjacency)
        np.testing.assert_allclose(again.weights, graph.weights, atol=1e-9)


@pytest.mark.slow
def test_order_of_the_variables_does_not_matter():
    moments, _ = simulated(1, 45, 150)  # above the limit: the active set
    order = np.random.default_rng(0).permutation(45)
    graph = dagma(moments, sparsity=by_default(moments))
    permuted = dagma(moments.subset(order), sparsity=by_default(moments))
    np.testing.assert_array_equal(permuted.adjacency, graph.adjacency[np.ix_(order, order)])
    assert permuted.names == tuple(moments.names[j] for j in order)


@pytest.mark.slow
def test_default_sparsity_recovers_the_simulations_of_the_papers():
    total = 0
    for seed in range(300, 305):
        moments, truth = simulated(seed, 20, 256)
        total += distance(dagma(moments, sparsity=by_default(moments)).weights, truth)
    assert total <= 6


@pytest.mark.slow
def test_active_set_is_stationary_and_as_good_as_all_edges():
    moments, truth = simulated(7, 45, 150)
    sparsity = by_default(moments)
    active = dagma(moments, sparsity=sparsity, all_edges=False, refit=False)
    dense = dagma(moments, sparsity=sparsity, all_edges=True, refit=False)
    allowed = ~np.eye(45, dtype=bool)
    problem = SparseProblem(moments.second, allowed, ~allowed & False, sparsity, False)

    def objective(graph):
        residual = np.eye(45) - graph.raw_weights
        loss = 0.5 * np.trace(residual.T @ moments.second @ residual)
        return loss + sparsity * np.abs(graph.raw_weights).sum()

    # no edge left at zero wants to be used: the condition of the problem over all edges
    assert problem.violations(active.raw_weights).max() <= 0.05 * sparsity
    assert objective(active) == pytest.approx(objective(dense), rel=1e-2)
    for graph in (active, dense):
        assert h_logdet(graph.raw_weights, 0.7)[0] < 1e-2
        assert is_acyclic(graph.weights)
    # two minima of about the same depth may differ in a few edges
    assert distance(active.weights, truth) <= distance(dense.weights, truth) + 2


def test_knowledge_in_the_active_set():
    moments, truth = simulated(3, 45, 150)
    names = moments.names
    (i, j), (k, m) = np.argwhere(truth)[:2]
    knowledge = Knowledge(required=((names[j], names[i]),), forbidden=((names[k], names[m]),))
    graph = dagma(moments, sparsity=by_default(moments), knowledge=knowledge)
    assert graph.adjacency[j, i]
    assert not graph.adjacency[k, m]
    assert graph.raw_weights[k, m] == 0
    assert is_acyclic(graph.adjacency)


def test_tiny_problems():
    one = dagma(np.arange(5.0)[:, None])
    assert one.num_edges == 0
    constant = dagma(np.ones((4, 3)))
    assert constant.num_edges == 0
    single_row = dagma(np.array([[1.0, 2.0]]))
    assert single_row.num_edges == 0


@pytest.mark.parametrize("solver", [dagma, pytest.param(notears, marks=pytest.mark.slow)])
@pytest.mark.parametrize("all_edges", [True, False])
def test_a_sparsity_for_each_edge(solver, all_edges):
    moments, _ = simulated(2, 8, 200)
    uniform = np.full((8, 8), 0.1)
    options = {"refit": False, "all_edges": all_edges}
    one = solver(moments, sparsity=0.1, **options)
    np.testing.assert_array_equal(
        solver(moments, sparsity=uniform, **options).raw_weights, one.raw_weights
    )
    priced_out = uniform.copy()
    i, j = np.argwhere(one.raw_weights)[0]
    priced_out[i, j] = 1e3
    other = solver(moments, sparsity=priced_out, **options)
    assert other.raw_weights[i, j] == 0
    assert np.count_nonzero(other.raw_weights)


@pytest.mark.parametrize("solver", [dagma, notears])
def test_a_sparsity_that_fits_no_edge_is_refused(solver):
    moments, _ = simulated(2, 4, 50)
    for sparsity in (-0.1, np.nan, np.inf, np.full((4, 4), -1.0)):
        with pytest.raises(ConfigError, match="sparsity must be at least 0 and finite"):
            solver(moments, sparsity=sparsity)
    with pytest.raises(ConfigError, match=r"a number or have shape \(4, 4\), got \(4,\)"):
        solver(moments, sparsity=np.ones(4))
