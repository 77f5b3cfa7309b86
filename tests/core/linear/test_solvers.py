"""NOTEARS and DAGMA on moments: known answers, a convex special case, invariances, knowledge."""

import numpy as np
import pytest
import scipy.optimize as so

from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.notears import notears
from flwr_causal.core.linear.regression import refit
from flwr_causal.core.linear.solution import edges_above
from flwr_causal.core.systems.linear import LinearModel
from flwr_causal.errors import ConfigError, DataError

SOLVERS = pytest.mark.parametrize("solve", [notears, dagma])


def system(seed, d, num_edges, low=0.6, high=1.8):
    """A random linear system with unit noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.triu_indices(d, 1)
    picked = rng.choice(len(rows), num_edges, replace=False)
    order = rng.permutation(d)
    weights = np.zeros((d, d))
    sizes = rng.uniform(low, high, num_edges) * rng.choice([-1, 1], num_edges)
    weights[order[rows[picked]], order[columns[picked]]] = sizes
    names = tuple(f"x{j}" for j in range(d))
    return LinearModel(names, weights, np.zeros(d), np.ones(d))


def population(model, n=100_000):
    return SampleMoments(n, np.zeros(len(model.names)), model.covariance(), model.names)


def lasso(second, column, usable, sparsity):
    """Column of the penalised regression by a generic solver on positive and negative parts."""
    k = len(usable)
    gram, target = second[np.ix_(usable, usable)], second[usable, column]

    def objective(parts):
        w = parts[:k] - parts[k:]
        gradient = gram @ w - target
        value = 0.5 * w @ gram @ w - target @ w + sparsity * parts.sum()
        return value, np.concatenate([gradient + sparsity, sparsity - gradient])

    result = so.minimize(
        objective,
        np.zeros(2 * k),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * (2 * k),
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000},
    )
    return result.x[:k] - result.x[k:]


@pytest.mark.few(1)
@SOLVERS
def test_exact_moments_give_back_the_system(solve):
    for seed in range(5):
        model = system(seed, 8, 9)
        graph = solve(population(model), sparsity=0.01)
        np.testing.assert_array_equal(graph.adjacency, model.weights != 0)
        # least squares on the true parents: no trace of the shrinkage is left
        np.testing.assert_allclose(graph.weights, model.weights, atol=1e-8)


@SOLVERS
def test_a_known_order_makes_it_a_lasso(solve):
    """With only forward edges allowed h is zero and the problem convex, column by column."""
    d = 6
    model = system(3, d, 8)
    moments = SampleMoments.from_rows(model.sample(80, seed=1), model.names)
    names = moments.names
    backward = [(names[i], names[j]) for i in range(d) for j in range(i)]
    graph = solve(moments, sparsity=0.1, knowledge=Knowledge(forbidden=backward), refit=False)
    for j in range(1, d):
        expected = lasso(moments.second, j, np.arange(j), 0.1)
        np.testing.assert_allclose(graph.raw_weights[:j, j], expected, atol=2e-3)
        np.testing.assert_array_equal(graph.raw_weights[j:, j], 0.0)


@pytest.mark.few(1)
@SOLVERS
def test_rows_moments_and_split_rows_are_the_same_thing(solve):
    import pandas as pd

    model = system(5, 7, 8)
    rows = model.sample(120, seed=2)
    from_rows = solve(rows, sparsity=0.1)
    from_frame = solve(pd.DataFrame(rows, columns=list("abcdefg")), sparsity=0.1)
    from_moments = solve(SampleMoments.from_rows(rows + 50.0), sparsity=0.1)
    np.testing.assert_allclose(from_rows.raw_weights, from_frame.raw_weights, atol=1e-12)
    np.testing.assert_allclose(from_rows.raw_weights, from_moments.raw_weights, atol=1e-5)
    assert from_frame.names == tuple("abcdefg")


@pytest.mark.few(1)
@SOLVERS
def test_columns_in_another_order_permute_the_graph(solve):
    model = system(7, 8, 9)
    rows = model.sample(200, seed=3)
    order = np.random.default_rng(0).permutation(8)
    graph, permuted = solve(rows, sparsity=0.1), solve(rows[:, order], sparsity=0.1)
    np.testing.assert_array_equal(permuted.adjacency, graph.adjacency[np.ix_(order, order)])
    # The objective has flat directions near a DAG: inexact solves end within some hundredths.
    np.testing.assert_allclose(
        permuted.raw_weights, graph.raw_weights[np.ix_(order, order)], atol=0.1
    )


@pytest.mark.few(1)
@pytest.mark.slow
@SOLVERS
def test_always_a_dag_and_raw_weights_decide(solve):
    rng = np.random.default_rng(0)
    for _ in range(1 if solve is notears else 3):
        rows = rng.standard_normal((12, 8)) @ rng.standard_normal((8, 8))
        graph = solve(rows, sparsity=0.02, threshold=0.05, refit=False)
        assert is_acyclic(graph.adjacency)
        kept = graph.adjacency
        np.testing.assert_array_equal(graph.weights[kept], graph.raw_weights[kept])
        assert (np.abs(graph.raw_weights[kept]) > 0.05).all()
        refitted = solve(rows, sparsity=0.02, threshold=0.05)
        final = refitted.adjacency
        assert not (final & ~kept).any()
        np.testing.assert_allclose(refitted.weights, refit(SampleMoments.from_rows(rows), final))
        assert (np.abs(refitted.weights[final]) > 0.05).all()


@pytest.mark.few(1)
@SOLVERS
def test_knowledge_is_honoured_exactly(solve):
    model = system(11, 7, 8)
    rows = model.sample(300, seed=4)
    names = model.names
    true = [(names[i], names[j]) for i, j in np.argwhere(model.weights)]
    free = solve(rows, sparsity=0.1)
    i, j = np.argwhere(~free.adjacency & ~free.adjacency.T & ~np.eye(7, dtype=bool))[0]
    knowledge = Knowledge(required=[(names[i], names[j])], forbidden=true[:2])
    graph = solve(rows, sparsity=0.1, threshold=0.3, knowledge=knowledge)
    assert graph.adjacency[i, j]
    assert is_acyclic(graph.adjacency)
    for cause, effect in true[:2]:
        assert not graph.adjacency[names.index(cause), names.index(effect)]
        assert graph.raw_weights[names.index(cause), names.index(effect)] == 0.0
    # the required edge has the least-squares weight of its child's parents
    expected = refit(SampleMoments.from_rows(rows, names), graph.adjacency)
    np.testing.assert_allclose(graph.weights[:, j], expected[:, j])


@SOLVERS
def test_a_required_edge_against_the_data_breaks_the_others(solve):
    rng = np.random.default_rng(5)
    cause = rng.standard_normal(500)
    rows = np.column_stack([cause, 1.5 * cause + rng.standard_normal(500)])
    assert solve(rows, sparsity=0.05).edges()[0][:2] == ("x0", "x1")
    turned = solve(rows, sparsity=0.05, knowledge=Knowledge(required=[("x1", "x0")]))
    assert [edge[:2] for edge in turned.edges()] == [("x1", "x0")]


@SOLVERS
def test_tiers(solve):
    model = system(2, 6, 7)
    rows = model.sample(300, seed=0)
    tiers = Knowledge(tiers=[("x5", "x4"), ("x3", "x2"), ("x1", "x0")])
    graph = solve(rows, sparsity=0.05, threshold=0.1, knowledge=tiers)
    level = {"x5": 0, "x4": 0, "x3": 1, "x2": 1, "x1": 2, "x0": 2}
    assert graph.num_edges > 0
    assert all(level[cause] <= level[effect] for cause, effect, _ in graph.edges())


@pytest.mark.slow
def test_the_active_set_ends_in_a_point_of_the_full_problem():
    model = system(1, 30, 30)
    moments = SampleMoments.from_rows(model.sample(200, seed=0), model.names)
    dense = dagma(moments, sparsity=0.1, all_edges=True)
    active = dagma(moments, sparsity=0.1, all_edges=False)
    np.testing.assert_array_equal(active.adjacency, dense.adjacency)

    def loss(graph):
        residual = np.eye(30) - graph.raw_weights
        fit = 0.5 * np.sum(residual * (moments.second @ residual))
        return fit + 0.1 * np.abs(graph.raw_weights).sum()

    assert loss(active) == pytest.approx(loss(dense), rel=2e-3)


@SOLVERS
def test_a_constant_column_has_no_edges(solve):
    rows = system(4, 4, 4).sample(100, seed=0)
    graph = solve(np.insert(rows, 2, 7.0, axis=1), sparsity=0.05)
    assert not graph.adjacency[2].any()
    assert not graph.adjacency[:, 2].any()
    assert graph.num_edges > 0


@SOLVERS
def test_wrong_options_and_data(solve):
    rows = np.random.default_rng(0).standard_normal((20, 3))
    with pytest.raises(ConfigError, match="sparsity"):
        solve(rows, sparsity=-1.0)
    with pytest.raises(ConfigError, match="threshold"):
        solve(rows, threshold=-0.1)
    with pytest.raises(DataError, match="x2"):
        solve(np.where(np.arange(3) == 2, np.nan, rows))
    with pytest.raises(ConfigError, match="nobody"):
        solve(rows, knowledge=Knowledge(required=[("x0", "nobody")]))


def test_required_edges_take_part_in_cycles_even_without_a_weight():
    weights = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.9], [0.5, 0.0, 0.0]])
    required = np.zeros((3, 3), dtype=bool)
    required[0, 1] = True
    # 0 -> 1 is required, and 1 -> 2 -> 0 would close the cycle: its weakest other edge goes
    expected = np.zeros((3, 3), dtype=bool)
    expected[0, 1] = expected[1, 2] = True
    assert np.array_equal(edges_above(weights, 0.3, required), expected)
    by_cause = np.array([[0.3], [1.0], [0.3]])
    expected[1, 2], expected[2, 0] = False, True
    assert np.array_equal(edges_above(weights, by_cause, required), expected)
