"""Additive effects from summed basis moments: gradients, the pooled answer, the linear case."""

import importlib
import itertools

import basis_moments
import numpy as np
import pytest
from small_graphs import h_logdet

from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.moments import SampleMoments, merge
from flwr_causal.core.nonlinear.additive import (
    additive,
    additive_problem,
    default_sparsity,
    follow_central_path,
    least_squares,
    objective,
    strengths,
    turning_loss,
)
from flwr_causal.core.nonlinear.basis import basis_rows, raw_basis
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.data.synthetic.nonlinear import federated_nonlinear, simulate_nonlinear
from flwr_causal.errors import ConfigError, DataError

module = importlib.import_module("flwr_causal.core.nonlinear.additive")
NAMES = tuple("abcdefghij")


def summed(parties, names=None, size=5):
    """Return the merged moments of the basis, of variables with one-letter names."""
    return basis_moments.summed(parties, names or NAMES[: np.shape(parties[0])[1]], size)


def chain_rows(n, seed=0):
    """Return rows of a -> b -> c with effects that have no linear trace in b."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(n)
    b = np.cos(2 * a) + 0.3 * rng.standard_normal(n)
    c = np.tanh(2 * b) + 0.3 * rng.standard_normal(n)
    return np.column_stack([a, b, c])


def free_masks(d):
    return EdgeMasks(~np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool))


# The basis


def test_basis_rows_are_the_agreed_functions_with_the_variable_first():
    rows = 5 + 3 * np.random.default_rng(0).standard_normal((40, 3))
    mean, scale = np.array([5.0, 4.0, 0.0]), np.array([3.0, 2.0, 0.0])
    for size in (1, 3, 5):
        found = basis_rows(rows, mean, scale, size).reshape(40, 3, size)
        np.testing.assert_allclose(found[:, :2, 0], rows[:, :2] - mean[:2])
        z = (rows[:, :2] - mean[:2]) / scale[:2]
        np.testing.assert_allclose(found[:, :2, 1:], raw_basis(z)[:, :, 1:size])
        assert not found[:, 2, 0].any()
        assert np.ptp(found[:, 2], axis=0).max() == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.ones((4, 2)), np.zeros(2), np.ones(2), 6), ConfigError, "size is 6"),
        ((np.ones((4, 2)), np.zeros(2), np.ones(2), 0), ConfigError, "give 1 to 5 functions"),
        ((np.ones((4, 2)), np.zeros(3), np.ones(2)), DataError, r"means \(3,\)"),
        ((np.ones((4, 2)), np.zeros(2), -np.ones(2)), DataError, "at least 0"),
    ],
)
def test_bad_bases_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        basis_rows(*arguments)


# The problem


def test_functions_of_a_variable_become_uncorrelated_with_unit_variance():
    rows = chain_rows(300)
    rows[:, 2] = np.sign(rows[:, 2])  # two values: the five functions have rank one
    problem = additive_problem(summed([rows]), 3)
    blocks = problem.gram.reshape(3, 5, 3, 5)
    np.testing.assert_allclose(blocks[0, :, 0], np.eye(5), atol=1e-6)
    np.testing.assert_allclose(blocks[1, :, 1], np.eye(5), atol=1e-6)
    np.testing.assert_allclose(np.linalg.eigvalsh(blocks[2, :, 2]), [0, 0, 0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(problem.variances * problem.unit**2, rows.var(axis=0))
    # All of a variable lies in the span of its own functions.
    own = problem.cross.reshape(3, 5, 3)[range(3), :, range(3)]
    np.testing.assert_allclose((own**2).sum(axis=1), problem.variances, rtol=1e-6)


def test_least_squares_is_that_of_the_rows(monkeypatch):
    """Against a regression on the functions' values; the strength is the effect's deviation."""
    monkeypatch.setattr(module, "RIDGE", 0.0)
    rng = np.random.default_rng(1)
    rows = chain_rows(200)
    rows[:, 2] += 0.5 * rows[:, 0] ** 2 + rng.standard_normal(200)
    problem = additive_problem(summed([rows]), 3)
    adjacency = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=bool)
    found = strengths(problem, least_squares(problem, adjacency))
    F = basis_rows(rows, rows.mean(axis=0), rows.std(axis=0)).reshape(200, 3, 5)
    F -= F.mean(axis=0)
    expected = np.zeros((3, 3))
    for child, parents in ((1, [0]), (2, [0, 1])):
        target = rows[:, child] - rows[:, child].mean()
        fit = np.linalg.lstsq(F[:, parents].reshape(200, -1), target, rcond=None)[0]
        effects = np.einsum("npq,pq->pn", F[:, parents], fit.reshape(-1, 5))
        expected[parents, child] = effects.std(axis=1) / target.std()
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_the_gradient_is_that_of_finite_differences(size):
    rng = np.random.default_rng(0)
    d = 4
    rows = rng.standard_normal((60, d)) @ rng.standard_normal((d, d))
    problem = additive_problem(summed([rows], size=size), d)
    free = rng.random((d, d)) < 0.8
    np.fill_diagonal(free, False)
    penalty = rng.uniform(0, 0.3, (d, d))
    start = 0.2 * rng.standard_normal((d, size, d)) * free[:, None, :]
    value, gradient = objective(start.ravel(), problem, free, penalty, 0.3, 0.9)
    assert value < module.INFEASIBLE

    def smooth(values):
        return objective(values, problem, free, penalty, 0.3, 0.9)[0]

    step = 1e-6
    numeric = np.array(
        [
            (smooth(start.ravel() + step * unit) - smooth(start.ravel() - step * unit)) / (2 * step)
            for unit in np.eye(start.size)
        ]
    )
    mask = np.broadcast_to(free[:, None, :], start.shape).ravel()
    np.testing.assert_allclose(gradient[mask], numeric[mask], atol=1e-7)
    assert not gradient[~mask].any()
    assert np.abs(numeric[mask]).min() > 1e-5
    far = objective(10 * start.ravel(), problem, free, penalty, 0.3, 0.9)
    assert far[0] == module.INFEASIBLE


def test_with_one_function_the_objective_is_the_linear_one(monkeypatch):
    """DAGMA's, at weights W, with the penalty in units of the causes' deviations."""
    monkeypatch.setattr(module, "RIDGE", 0.0)
    monkeypatch.setattr(module, "SMOOTHING", 1e-9)
    rng = np.random.default_rng(0)
    d = 5
    rows = rng.standard_normal((80, d)) @ rng.standard_normal((d, d))
    second = SampleMoments.from_rows(rows).second
    deviations = np.sqrt(np.diagonal(second))
    problem = additive_problem(summed([rows], size=1), d)
    W = 0.2 * rng.standard_normal((d, d))
    np.fill_diagonal(W, 0)
    values = (W * deviations[:, None] / problem.unit).reshape(d, 1, d)
    sparsity, mu, s = 0.3, 0.1, 0.9
    allowed = free_masks(d).allowed
    found, _ = objective(values.ravel(), problem, allowed, sparsity / problem.unit, mu, s)
    residual = rows - rows.mean(axis=0)
    residual = residual - residual @ W
    loss = 0.5 * (residual**2).mean(axis=0).sum()
    price = sparsity * (np.abs(W) * deviations[:, None]).sum()
    expected = mu * (loss + price) / problem.unit**2 + h_logdet(W, s)[0]
    assert found == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(
        strengths(problem, values), np.abs(W) * deviations[:, None] / deviations, rtol=1e-6
    )


@pytest.mark.parametrize("seed", range(3))
def test_with_one_function_the_graph_is_that_of_the_linear_solver(seed, monkeypatch):
    monkeypatch.setattr(module, "RIDGE", 0.0)
    tables, weights = federated_linear(8, 2000, 4, seed=seed)
    moments = summed(tables, size=1)
    pooled = merge(SampleMoments.from_rows(table.to_numpy()) for table in tables)
    deviations = np.sqrt(pooled.variances)
    penalty = 0.05 * np.repeat(deviations[:, None], 8, axis=1)
    linear = dagma(pooled, sparsity=penalty, threshold=0.2, refit=True)
    found = additive(moments, 8, sparsity=0.05, threshold=0.05)
    np.testing.assert_array_equal(found.adjacency, weights != 0)
    np.testing.assert_array_equal(linear.adjacency, weights != 0)
    expected = np.abs(linear.weights) * deviations[:, None] / deviations
    np.testing.assert_allclose(found.weights, expected, atol=1e-6)


def test_the_penalised_solution_satisfies_the_conditions_of_the_group_lasso():
    """With the order known the problem is convex, and acyclicity has no say."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([chain_rows(400), rng.standard_normal((400, 2))])
    problem = additive_problem(summed([rows]), 5)
    order = EdgeMasks(np.triu(np.ones((5, 5), dtype=bool), 1), np.zeros((5, 5), dtype=bool))
    sparsity = 0.1 * problem.unit
    C = follow_central_path(problem, order, sparsity, tolerance=1e-12)
    flat = C.reshape(25, 5)
    slope = (problem.cross - problem.gram @ flat - module.RIDGE * flat).reshape(5, 5, 5)
    norms = np.linalg.norm(C, axis=1)
    assert (norms > 0.1).sum() == 2
    for i, j in itertools.combinations(range(5), 2):
        pull = 0.1 * C[i, :, j] / np.hypot(norms[i, j], module.SMOOTHING)
        np.testing.assert_allclose(slope[i, :, j], pull, atol=2e-4)
        assert np.linalg.norm(slope[i, :, j]) <= 0.1002
    assert not norms[np.tril_indices(5)].any()


# The graph


def test_the_answer_is_that_of_the_pooled_rows_whatever_the_parties():
    parties, truth = federated_nonlinear(8, 1500, 5, mechanisms="add-gp", iid=True, seed=1)
    pooled = np.concatenate([party.to_numpy() for party in parties])
    reference = additive(summed([pooled]), 8, names=truth.names)
    for split in (parties, parties[::-1], [pooled[:3], pooled[3:]]):
        found = additive(summed(split), 8, names=truth.names)
        np.testing.assert_array_equal(found.adjacency, reference.adjacency)
        np.testing.assert_allclose(found.weights, reference.weights, atol=1e-8)
        np.testing.assert_allclose(found.raw_weights, reference.raw_weights, atol=1e-5)
    assert found.names == truth.names


def test_effects_without_a_linear_trace_are_found():
    rows = chain_rows(2000)
    found = additive(summed([rows]), 3, names=NAMES[:3])
    np.testing.assert_array_equal(np.argwhere(found.adjacency), [[0, 1], [1, 2]])
    effect = np.cos(2 * rows[:, 0])
    assert found.weights[0, 1] == pytest.approx(effect.std() / rows[:, 1].std(), abs=0.08)
    linear = additive(summed([rows], size=1), 3, names=NAMES[:3])
    assert not linear.adjacency[0, 1]
    assert not linear.adjacency[1, 0]


@pytest.mark.few(2)
@pytest.mark.parametrize("mechanism", ["add-gp", "lg", "mim", "threshold", "multiplicative"])
def test_graphs_of_the_simulators_are_found(mechanism):
    """Measured mean SHD over these seeds: 0, 0, 0.75, 0.25, 0.25."""
    distances = []
    for seed in range(4):
        parties, truth = federated_nonlinear(10, 2000, 4, mechanisms=mechanism, iid=True, seed=seed)
        found = additive(summed(parties), 10, names=truth.names)
        assert found.is_acyclic
        distances.append(structural_hamming_distance(truth, found))
    assert np.mean(distances) <= 1.0


def test_variables_in_another_order_and_in_other_units_give_the_same_graph():
    rows = simulate_nonlinear(np.triu(np.ones((6, 6)), 1), 800, "mim", 0)
    reference = additive(summed([rows]), 6)
    order = np.random.default_rng(0).permutation(6)
    permuted = additive(summed([rows[:, order]]), 6)
    np.testing.assert_allclose(permuted.weights, reference.weights[np.ix_(order, order)], atol=1e-6)
    scaled = additive(summed([1e3 * rows - 5e4]), 6)
    np.testing.assert_allclose(scaled.weights, reference.weights, atol=1e-6)
    assert reference.adjacency.any()


def test_knowledge_is_honoured():
    rows = chain_rows(1000)
    moments, names = summed([rows]), NAMES[:3]
    known = Knowledge(forbidden=[("a", "b")], required=[("a", "c")])
    for refit in (True, False):
        found = additive(moments, 3, names=names, knowledge=known, refit=refit)
        assert found.raw_weights[0, 1] == 0
        assert not found.adjacency[0, 1]
        assert found.adjacency[0, 2]
        assert found.weights[0, 2] > 0
        assert found.is_acyclic
    tiers = Knowledge(tiers=[("c",), ("b",), ("a",)])
    found = additive(moments, 3, names=names, knowledge=tiers)
    assert not np.triu(found.adjacency).any()
    assert not np.triu(found.raw_weights).any()
    assert found.adjacency[2, 1]
    known = Knowledge(required=[("c", "a")])
    alone = additive(
        moments, 3, names=names, knowledge=Knowledge(required=[("c", "a")]), threshold=9
    )
    np.testing.assert_array_equal(np.argwhere(alone.adjacency), [[2, 0]])


def test_sparsity_threshold_and_refit():
    moments = summed([chain_rows(500)])
    assert not additive(moments, 3, sparsity=10).adjacency.any()
    loose = additive(moments, 3, sparsity=0, threshold=0)
    assert loose.num_edges == 3
    penalty = np.zeros((3, 3))
    penalty[0, 1] = 10
    assert not additive(moments, 3, sparsity=penalty).adjacency[0, 1]
    shrunk, fitted = (additive(moments, 3, sparsity=0.2, refit=refit) for refit in (False, True))
    assert shrunk.weights[0, 1] == shrunk.raw_weights[0, 1] < fitted.weights[0, 1]
    # Above the threshold in the penalised solution, below it as one of two parents.
    assert (fitted.weights[fitted.adjacency] > module.THRESHOLD).all()
    factor = default_sparsity(400, 10, 5, 3.0) / default_sparsity(100, 10, 5, 1.5)
    assert factor == pytest.approx(1)


def test_a_constant_variable_has_no_edges():
    rows = np.column_stack([chain_rows(300), np.full(300, 3.3)])
    found = additive(summed([rows[:100], rows[100:]]), 4)
    assert not found.adjacency[3].any()
    assert not found.adjacency[:, 3].any()
    assert found.adjacency[0, 1]
    with pytest.raises(DataError, match="all variables are constant"):
        additive(summed([np.ones((5, 3))]), 3)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_variables": 4}, DataError, "15 columns do not fit 4 variables"),
        ({"num_variables": 1}, DataError, "15 columns"),
        ({"sparsity": -1}, ConfigError, "sparsity"),
        ({"threshold": -1}, ConfigError, "threshold"),
        ({"tolerance": np.nan}, ConfigError, "tolerance"),
        ({"knowledge": Knowledge(required=[("x0", "q")])}, ConfigError, "q"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        additive(summed([chain_rows(50)]), **({"num_variables": 3} | options))


# The loss where an edge is turned


def losses(rows, edges, forbidden=()):
    d = rows.shape[1]
    adjacency, allowed = np.zeros((d, d), dtype=bool), ~np.eye(d, dtype=bool)
    for i, j in edges:
        adjacency[i, j] = True
    for i, j in forbidden:
        allowed[i, j] = False
    return turning_loss(summed([rows[::2], rows[1::2]]), adjacency, allowed, NAMES[:d])


def score_by_rows(rows, child, causes):
    """Return the best likelihood less the BIC's cost over linear and curved effects, by rows."""
    rows, n = rows - rows.mean(axis=0), len(rows)
    functions = raw_basis(rows / rows.std(axis=0))
    scores = []
    for curved in itertools.product([False, True], repeat=len(causes)):
        columns = [
            functions[:, i] if c else rows[:, [i]] for i, c in zip(causes, curved, strict=True)
        ]
        X = np.hstack([np.ones((n, 1)), *columns])
        left = rows[:, child] - X @ np.linalg.lstsq(X, rows[:, child], rcond=None)[0]
        scores.append(-(n * np.log((left**2).mean()) + (X.shape[1] - 1) * np.log(n)) / 2)
    return max(scores)


def test_the_loss_of_a_turned_edge_is_that_of_regressions_on_the_rows():
    rows = chain_rows(400)[:, 1:]
    loss = losses(rows, [(0, 1)])
    (kept, turned) = (
        score_by_rows(rows, i, ()) + score_by_rows(rows, j, (i,)) for i, j in ((0, 1), (1, 0))
    )
    assert loss[0, 1] == pytest.approx(kept - turned, abs=0.01)
    assert loss[0, 1] > 20
    assert losses(rows, [(1, 0)])[1, 0] == pytest.approx(turned - kept, abs=0.01)
    assert np.count_nonzero(loss) == 1


def test_in_a_chain_the_better_of_the_graphs_with_the_edge_turned_counts():
    """They are those of the same class, and of the edge alone, whose family has two causes."""
    rows = chain_rows(400, 3)
    kept = sum(score_by_rows(rows, *one) for one in ((0, ()), (1, (0,)), (2, (1,))))
    whole = sum(score_by_rows(rows, *one) for one in ((2, ()), (1, (2,)), (0, (1,))))
    alone = sum(score_by_rows(rows, *one) for one in ((0, ()), (1, (0, 2)), (2, ())))
    loss = losses(rows, [(0, 1), (1, 2)])
    assert loss[1, 2] == pytest.approx(kept - max(whole, alone), abs=0.01)


def test_linear_gaussian_effects_lose_nothing():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(800, 5))
    edges = [(0, 1), (1, 2), (1, 3), (0, 4), (1, 4)]
    for i, j in edges:
        rows[:, j] += rows[:, i]
    loss = losses(rows, edges)
    np.testing.assert_array_equal(loss, 0.0)


def test_the_loss_does_not_depend_on_the_order_of_columns_or_on_units():
    rows = chain_rows(500, 1)
    loss = losses(rows, [(0, 1), (1, 2)])
    place = [2, 0, 1]
    moved = losses(rows[:, place] * [3.0, 0.01, 200.0], [(1, 2), (2, 0)])
    np.testing.assert_allclose(moved, loss[np.ix_(place, place)], atol=0.01)
    assert (loss[[0, 1], [1, 2]] > 20).all()
    # What knowledge decides is not compared.
    assert losses(rows, [(0, 1), (1, 2)], forbidden=[(1, 0)])[0, 1] == 0
