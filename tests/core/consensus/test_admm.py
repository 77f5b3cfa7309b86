"""The iteration against the paper's, written plainly, and against what must hold of it."""

import dataclasses

import numpy as np
import paper_admm
import pytest

from flwr_causal.core.consensus import admm
from flwr_causal.core.consensus.schedules import Schedule, fast_schedule, growing_schedule
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.linear.moments import data_scale


def linear_system(d, n, seed):
    """Rows of a sparse linear system with unit noise and its weights."""
    rng = np.random.default_rng([d, n, seed])
    order = rng.permutation(d)
    upper = np.triu(rng.random((d, d)) < 2 / d, 1)[np.ix_(order, order)]
    W = upper * rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1.0, 1.0], (d, d))
    X = rng.standard_normal((n, d)) @ np.linalg.inv(np.eye(d) - W)
    return X - X.mean(axis=0), W


def explicit_step(rows, n, weights, multiplier, penalty, d):
    """Eq. (10), solved as it stands."""
    m = rows.shape[1]
    S = rows.T @ rows / n
    return np.linalg.solve(S + penalty * np.eye(m), penalty * weights - multiplier + S[:, :d])


def start(problem, parties):
    n = sum(map(len, parties))
    d = problem.num_variables
    return (
        admm.init(problem),
        [None] * len(parties),
        [admm.local_problem(X.T @ X, n, d) for X in parties],
    )


def one_round(problem, state, memories, locals_):
    penalty, _, _, relaxation = problem.schedule.at(state.round)
    memories = [
        admm.client_step(local, memory, state.weights, penalty, state.round, relaxation)
        for local, memory in zip(locals_, memories, strict=True)
    ]
    mean = np.mean([memory.sent for memory in memories], axis=0)
    state, info = admm.server_step(state, mean, problem, len(memories))
    return state, memories, info


def run(problem, parties, rounds=None):
    state, memories, locals_ = start(problem, parties)
    for _ in range(problem.schedule.rounds if rounds is None else rounds):
        state, memories, info = one_round(problem, state, memories, locals_)
    return state, info


def fast_problem(parties, rounds, **fields):
    X = np.concatenate(parties)
    schedule = fast_schedule(rounds, len(parties), len(X), X.shape[1], data_scale(X.var(axis=0)))
    return admm.ServerProblem(schedule, X.shape[1], **fields)


# ------------------------------------------------------------------------------ client


@pytest.mark.parametrize("num_rows", [0, 1, 3, 6, 7, 40])
@pytest.mark.parametrize(("m", "d"), [(6, 6), (6, 3), (6, 2)])
@pytest.mark.parametrize("penalty", [1e-3, 0.7, 1e6])
def test_local_step_equals_the_explicit_solve(num_rows, m, d, penalty):
    rng = np.random.default_rng([num_rows, m, d])
    rows = rng.standard_normal((num_rows, m))
    weights, multiplier = rng.standard_normal((2, m, d))
    problem = admm.local_problem(rows.T @ rows, 50, d)
    step = admm.local_step(problem, weights, multiplier, penalty)
    expected = explicit_step(rows, 50, weights, multiplier, penalty, d)
    np.testing.assert_allclose(step, expected, rtol=1e-10, atol=1e-10)


def test_local_step_is_the_minimiser_of_the_augmented_loss():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((5, 8))
    weights, multiplier = rng.standard_normal((2, 8, 4))
    n, penalty = 30, 0.3
    B = admm.local_step(admm.local_problem(rows.T @ rows, n, 4), weights, multiplier, penalty)

    def loss(B):
        residual = rows[:, :4] - rows @ B
        return (
            np.sum(residual**2) / (2 * n)
            + np.sum(multiplier * (B - weights))
            + penalty / 2 * np.sum((B - weights) ** 2)
        )

    for index in np.ndindex(8, 4):
        shift = np.zeros((8, 4))
        shift[index] = 1e-4
        slope = (loss(B + shift) - loss(B - shift)) / 2e-4
        assert abs(slope) < 1e-7


def test_local_step_does_a_stack_at_once():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((4, 5))
    problem = admm.local_problem(rows.T @ rows, 20)
    weights, multiplier = rng.standard_normal((2, 3, 5, 5))
    stacked = admm.local_step(problem, weights, multiplier, 0.2)
    for i in range(3):
        single = admm.local_step(problem, weights[i], multiplier[i], 0.2)
        np.testing.assert_allclose(stacked[i], single, atol=1e-14)


def test_local_problem_is_the_spectrum_of_the_second_moments():
    rng = np.random.default_rng(2)
    for num_rows in (3, 9):
        rows = rng.standard_normal((num_rows, 5))
        ((basis, eigenvalues, effects),) = admm.local_problem(rows.T @ rows, 100)
        assert basis.shape == (5, min(num_rows, 5))
        np.testing.assert_allclose((basis * eigenvalues) @ basis.T, rows.T @ rows / 100, atol=1e-14)
        np.testing.assert_allclose(basis.T @ basis, np.eye(len(eigenvalues)), atol=1e-12)
        assert (eigenvalues >= 0).all()
        assert effects.tolist() == [0, 1, 2, 3, 4]


def test_multiplier_from_what_was_sent_equals_eq_7():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((6, 4))
    local = admm.local_problem(rows.T @ rows, 12)
    multiplier = np.zeros((4, 4))
    memory = None
    weights = rng.standard_normal((4, 4))
    for t, penalty in enumerate((0.5, 0.9, 0.2)):
        B = admm.local_step(local, weights, multiplier, penalty)
        memory = admm.client_step(local, memory, weights, penalty, t)
        np.testing.assert_allclose(memory.sent, B + multiplier / penalty, atol=1e-13)
        weights = rng.standard_normal((4, 4))
        multiplier = multiplier + penalty * (B - weights)
        np.testing.assert_allclose(
            admm.multiplier_after(memory, weights), multiplier, rtol=1e-12, atol=1e-13
        )
    assert (memory.penalty, memory.round) == (0.2, 2)


def test_client_without_memory_starts_from_a_zero_multiplier():
    weights = np.ones((2, 3, 3))
    np.testing.assert_array_equal(admm.multiplier_after(None, weights), np.zeros((2, 3, 3)))


def test_first_upload_reveals_the_second_moments():
    """What is sent hides nothing from a server that sees it alone: say so wherever it is used."""
    X, _ = linear_system(10, 128, 0)
    penalty = 1e-3
    local = admm.local_problem(X.T @ X, 256)
    sent = admm.client_step(local, None, np.zeros((10, 10)), penalty, 0).sent
    rebuilt = penalty * np.linalg.inv(np.eye(10) - sent) @ sent
    np.testing.assert_allclose(rebuilt, X.T @ X / 256, rtol=1e-8, atol=1e-8)


# ------------------------------------------------------------------------------ server


def test_mean_form_differs_from_the_sum_over_clients_by_a_constant():
    rng = np.random.default_rng(4)
    K, d, rho = 5, 7, 0.7
    Bs, betas = rng.standard_normal((2, K, d, d))
    M = np.mean(Bs + betas / rho, axis=0)
    differences = [
        paper_admm.server_objective(W, Bs, betas, 0.3, 0.2, rho)[0]
        - paper_admm.server_objective(W, [M], [np.zeros((d, d))], 0.3, 0.2, K * rho)[0]
        for W in rng.standard_normal((6, d, d))
    ]
    np.testing.assert_allclose(differences, differences[0], atol=1e-10)


@pytest.mark.parametrize("sizes", [(20, 20, 20), (3, 50, 11, 4)])
def test_whole_rounds_equal_the_paper(sizes):
    X, _ = linear_system(6, sum(sizes), 1)
    parties = [part - part.mean(axis=0) for part in np.split(X, np.cumsum(sizes)[:-1])]
    expected = []
    paper_admm.notears_admm(
        parties,
        max_rounds=25,
        on_round=lambda t, W, Bs, betas, alpha: expected.append((W, Bs, alpha, betas)),
    )
    problem = admm.ServerProblem(growing_schedule(25, **paper_admm.CONSTANTS), 6)
    state, memories, locals_ = start(problem, parties)
    for t in range(25):
        state, memories, info = one_round(problem, state, memories, locals_)
        W, Bs, alpha, betas = expected[t]
        np.testing.assert_allclose(state.weights[0], W, atol=1e-6)
        assert state.multiplier[0] == pytest.approx(alpha, rel=1e-4, abs=1e-9)
        np.testing.assert_allclose(state.mean_multiplier[0], np.mean(betas, axis=0), atol=1e-6)
        assert info.consensus == pytest.approx(
            np.linalg.norm(np.mean(Bs, axis=0) - W), rel=1e-4, abs=1e-6
        )


@pytest.mark.slow
def test_paper_run_takes_197_rounds_and_ends_at_the_papers_solution():
    X, _ = linear_system(4, 60, 2)
    parties = [part - part.mean(axis=0) for part in np.split(X, 3)]
    expected, rounds = paper_admm.notears_admm(parties)
    problem = admm.ServerProblem(growing_schedule(200, **paper_admm.CONSTANTS), 4)
    state, memories, locals_ = start(problem, parties)
    reason = None
    while reason is None:
        state, memories, info = one_round(problem, state, memories, locals_)
        reason = admm.finished(state, info, problem)
    assert state.round == rounds == 197
    assert "197 rounds are done" in reason
    np.testing.assert_allclose(state.weights[0], expected, atol=1e-4)


@pytest.mark.few(2)
@pytest.mark.parametrize("sizes", [(200,), (50, 50, 50, 50), (3, 150, 47)])
@pytest.mark.parametrize("relaxation", [1.0, 1.5])
def test_fixed_point_solves_the_pooled_problem_however_rows_are_spread(sizes, relaxation):
    """First-order conditions of ``l(W) + lambda |W| + rho/2 h(W)^2`` on all rows together."""
    X, _ = linear_system(4, 200, 3)
    S, sparsity, rho = X.T @ X / 200, 0.1, 2.0
    rounds = 120
    schedule = Schedule(
        (3.0 / len(sizes),) * rounds, (rho,) * rounds, (sparsity,) * rounds, relaxation, 500, 1e-9
    )
    problem = admm.ServerProblem(schedule, 4)
    state, memories, locals_ = start(problem, np.split(X, np.cumsum(sizes)[:-1]))
    for _ in range(rounds):
        state, memories, info = one_round(problem, state, memories, locals_)
        state = dataclasses.replace(state, multiplier=np.zeros(1))
    W = state.weights[0]
    h, slope = paper_admm.h_function(W)
    gradient = S @ W - S + rho * h * slope
    off_diagonal = ~np.eye(4, dtype=bool)
    edges = W != 0
    assert 3 <= edges.sum() < 12
    assert info.consensus < 1e-3
    np.testing.assert_allclose(gradient[edges], -sparsity * np.sign(W[edges]), atol=3e-3)
    assert (np.abs(gradient[~edges & off_diagonal]) <= sparsity + 3e-3).all()


def test_order_of_clients_does_not_matter():
    X, _ = linear_system(7, 60, 5)
    parties = np.split(X, [5, 17, 40])
    problem = fast_problem(parties, 20)
    forward, backward = (run(problem, p)[0].weights for p in (parties, parties[::-1]))
    np.testing.assert_allclose(forward, backward, atol=1e-8)


def test_permuting_variables_permutes_the_result():
    X, _ = linear_system(7, 100, 6)
    order = np.random.default_rng(0).permutation(7)
    parties = np.split(X, 4)
    permuted = [part[:, order] for part in parties]
    W = run(fast_problem(parties, 20), parties)[0].weights[0]
    W_permuted = run(fast_problem(permuted, 20), permuted)[0].weights[0]
    np.testing.assert_allclose(W_permuted, W[np.ix_(order, order)], atol=1e-8)


@pytest.mark.parametrize("factor", [1e-3, 1024.0])
def test_units_do_not_matter(factor):
    X, _ = linear_system(8, 120, 7)
    parties = np.split(X, 4)
    scaled = [factor * part for part in parties]
    W = run(fast_problem(parties, 39), parties)[0].weights
    W_scaled = run(fast_problem(scaled, 39), scaled)[0].weights
    np.testing.assert_allclose(W_scaled, W, atol=1e-8)


def test_default_schedule_recovers_an_easy_graph_that_no_party_finds_alone():
    X, truth = linear_system(10, 400, 8)
    parties = np.split(X, 40)
    state, info = run(fast_problem(parties, 39), parties)
    graph = np.abs(state.weights[0]) > 0.3
    np.testing.assert_array_equal(graph, truth != 0)
    assert is_acyclic(graph)
    assert info.h < 1e-3


def test_candidates_side_by_side_equal_separate_runs():
    X, _ = linear_system(6, 90, 9)
    parties = np.split(X, 3)
    factors = np.array([0.5, 1.0, 2.0])
    together = run(
        fast_problem(parties, 12, relative_sparsity=factors[:, None, None] * np.ones((6, 6))),
        parties,
    )[0]
    assert together.weights.shape == (3, 6, 6)
    for i, factor in enumerate(factors):
        alone = run(fast_problem(parties, 12, relative_sparsity=factor), parties)[0]
        np.testing.assert_allclose(together.weights[i], alone.weights[0], atol=1e-7)
        assert together.multiplier[i] == pytest.approx(alone.multiplier[0], rel=1e-6)


def test_resumed_run_is_the_same_run():
    X, _ = linear_system(6, 90, 10)
    parties = np.split(X, 3)
    problem = fast_problem(parties, 15)
    whole = run(problem, parties)[0]
    state, memories, locals_ = start(problem, parties)
    for t in range(15):
        if t == 7:  # all that is left is what was saved
            state = admm.ServerState(
                state.round,
                state.weights.copy(),
                state.multiplier.copy(),
                state.mean_multiplier.copy(),
                state.stable_rounds,
            )
        state, memories, _ = one_round(problem, state, memories, locals_)
    np.testing.assert_array_equal(state.weights, whole.weights)
    np.testing.assert_array_equal(state.multiplier, whole.multiplier)


def test_forbidden_edges_never_appear_and_required_ones_are_not_shrunk():
    X, truth = linear_system(8, 400, 11)
    parties = np.split(X, 4)
    causes, effects = np.nonzero(truth)
    allowed = np.ones((8, 8), dtype=bool)
    allowed[causes[0], effects[0]] = False
    exempt = np.ones((8, 8))
    exempt[causes[1], effects[1]] = 0.0
    heavy = {"relative_sparsity": 40.0 * exempt, "allowed": allowed}
    W = run(fast_problem(parties, 30, **heavy), parties)[0].weights[0]
    assert (W[~allowed] == 0).all()
    assert np.abs(W[causes[1], effects[1]]) > 0.4
    without = run(fast_problem(parties, 30, relative_sparsity=40.0), parties)[0].weights[0]
    assert np.abs(without[causes[1], effects[1]]) < np.abs(W[causes[1], effects[1]])


def test_lagged_design_recovers_both_matrices():
    rng = np.random.default_rng(12)
    d, T = 4, 3000
    W = np.zeros((d, d))
    W[0, 1], W[1, 2], W[3, 2] = 0.8, -0.7, 0.6
    A = np.diag([0.5, 0.4, 0.0, -0.5])
    A[2, 0] = 0.6
    inverse = np.linalg.inv(np.eye(d) - W)
    x = np.zeros((T, d))
    for t in range(1, T):
        x[t] = (x[t - 1] @ A + rng.standard_normal(d)) @ inverse
    rows = np.hstack([x[1:], x[:-1]])
    parties = np.array_split(rows - rows.mean(axis=0), 5)
    schedule = fast_schedule(39, 5, len(rows), d, data_scale(rows.var(axis=0)))
    state, _ = run(admm.ServerProblem(schedule, d, lags=1), parties)
    assert state.weights.shape == (1, 2 * d, d)
    np.testing.assert_array_equal(np.abs(state.weights[0, :d]) > 0.3, W != 0)
    np.testing.assert_array_equal(np.abs(state.weights[0, d:]) > 0.3, A != 0)
    np.testing.assert_allclose(state.weights[0, d:], A, atol=0.1)


# ------------------------------------------------------------------------------ diagnostics


def test_consensus_residual_is_that_of_the_mean_also_when_relaxed():
    X, _ = linear_system(5, 60, 13)
    parties = np.split(X, 3)
    schedule = Schedule((0.5, 0.4, 0.3), (0.1, 1.0, 10.0), (0.02,) * 3, relaxation=1.5)
    problem = admm.ServerProblem(schedule, 5)
    state, memories, locals_ = start(problem, parties)
    for _ in range(3):
        penalty = schedule.at(state.round).consensus_penalty
        solutions = [
            admm.local_step(p, state.weights, admm.multiplier_after(m, state.weights), penalty)
            for p, m in zip(locals_, memories, strict=True)
        ]
        state, memories, info = one_round(problem, state, memories, locals_)
        expected = np.linalg.norm(np.mean(solutions, axis=0) - state.weights)
        assert info.consensus == pytest.approx(expected, rel=1e-9)


def test_changed_edges_and_stable_rounds_are_counted():
    schedule = Schedule((1.0,) * 4, (1e-3,) * 4, (0.0,) * 4)
    problem = admm.ServerProblem(schedule, 3)
    means = np.zeros((4, 1, 3, 3))
    means[0, 0, 0, 1] = means[1, 0, 0, 1] = means[2, 0, 0, 1] = 0.9
    means[2, 0, 1, 2] = means[3, 0, 1, 2] = -0.8
    state, seen = admm.init(problem), []
    for mean in means:
        state, info = admm.server_step(state, mean, problem, 1)
        seen.append((info.changed, state.stable_rounds, info.num_edges))
    assert seen == [(1, 0, 1), (0, 1, 1), (1, 0, 2), (1, 0, 1)]


def test_early_end_needs_all_three_signs_and_is_readable():
    schedule = Schedule((1.0,) * 50, (1.0,) * 50, (0.0,) * 50, patience=5)
    problem = admm.ServerProblem(schedule, 2)
    W = np.array([[[0.0, 1.0], [0.0, 0.0]]])
    good_state = admm.ServerState(20, W, np.ones(1), 0 * W, stable_rounds=5)
    good = admm.Info(1e-9, 1e-4, 0, 1, 1.0, 1.0, 0.0, 0)
    assert "has not changed for 5 rounds" in admm.finished(good_state, good, problem)
    assert "20 of 50" in admm.finished(good_state, good, problem)
    young = dataclasses.replace(good_state, stable_rounds=4)
    assert admm.finished(young, good, problem) is None
    assert admm.finished(good_state, good._replace(h=0.1), problem) is None
    assert admm.finished(good_state, good._replace(consensus=0.5), problem) is None
    never = dataclasses.replace(problem, schedule=dataclasses.replace(schedule, patience=0))
    assert admm.finished(good_state, good, never) is None


def test_wrong_shapes_and_too_many_rounds_are_refused():
    problem = admm.ServerProblem(Schedule((1.0,), (1.0,), (0.0,)), 3)
    state = admm.init(problem)
    with pytest.raises(ValueError, match="shape"):
        admm.server_step(state, np.zeros((3, 3)), problem, 1)
    state, _ = admm.server_step(state, np.zeros((1, 3, 3)), problem, 1)
    with pytest.raises(ValueError, match="ends after 1 round"):
        admm.server_step(state, np.zeros((1, 3, 3)), problem, 1)


# ----------------------------------------------------------------------- interventions

# Per client: number of rows, mean of the noise, and the targets. The first variable has a client
# without rows on it, and the groups have means far from each other.
GROUPS = ((60, 0.0, ()), (30, 2.0, (0,)), (40, -3.0, (1, 2)))
ACTED = np.array([[j in targets for j in range(3)] for *_, targets in GROUPS])
FORWARD = np.array([[0, 1.2, -0.7], [0, 0, 0.9], [0, 0, 0]])


def rows_under_interventions(seed=0):
    rng = np.random.default_rng(seed)
    parties = []
    for n, level, targets in GROUPS:
        weights = FORWARD.copy()
        weights[:, list(targets)] = 0.0
        noise = rng.normal(size=(n, 3)) + 0.5
        noise[:, list(targets)] += level
        parties.append(noise @ np.linalg.inv(np.eye(3) - weights))
    return parties


def products_by_group(parties):
    """Each client's products of the rows [1, x], of which all are in one group."""
    extended = [np.column_stack([np.ones(len(rows)), rows]) for rows in parties]
    products = np.zeros((len(parties), len(GROUPS), 4, 4))
    for k, rows in enumerate(extended):
        products[k, k] = rows.T @ rows
    return products


def regressions_with_intercept(parties, causes):
    """Least squares of each variable on its causes and 1, on the rows in which it is no target."""
    found = np.zeros((4, 3))
    for j in range(3):
        own = np.concatenate(
            [rows for rows, acted in zip(parties, ACTED, strict=True) if not acted[j]]
        )
        design = np.column_stack([own[:, causes[:, j]], np.ones(len(own))])
        solution = np.linalg.lstsq(design, own[:, j], rcond=None)[0]
        found[:3][causes[:, j], j], found[3, j] = solution[:-1], solution[-1]
    return found


def test_a_clients_step_under_interventions_equals_the_explicit_solve():
    rng, n, penalty, unit = np.random.default_rng(5), 130, 0.3, 2.0
    weights, multiplier = rng.normal(size=(2, 4, 3))
    parties = rows_under_interventions()
    for k, (rows, products) in enumerate(zip(parties, products_by_group(parties), strict=True)):
        local = admm.interventional_problem(products, ACTED, n, unit)
        step = admm.local_step(local, weights, multiplier, penalty)
        design = np.column_stack([rows, np.full(len(rows), unit)])
        expected = explicit_step(design, n, weights, multiplier, penalty, 3)
        without_rows = weights - multiplier / penalty
        expected = np.where(ACTED[k], without_rows, expected)
        np.testing.assert_allclose(step, expected, atol=1e-12)


def test_the_rounds_find_each_regression_on_its_own_rows_with_one_intercept_for_all():
    """The order is known and nothing is shrunk: K clients find what one regression finds."""
    parties, unit = rows_under_interventions(), 2.0
    n, causes = sum(map(len, parties)), FORWARD != 0
    schedule = dataclasses.replace(fast_schedule(200, 3, n, 3), patience=0)
    problem = admm.ServerProblem(
        schedule, 3, relative_sparsity=0.0, allowed=causes, intercepts=True
    )
    state, memories = admm.init(problem), [None] * 3
    assert state.weights.shape == (1, 4, 3)
    locals_ = [
        admm.interventional_problem(products, ACTED, n, unit)
        for products in products_by_group(parties)
    ]
    for _ in range(200):
        state, memories, info = one_round(problem, state, memories, locals_)
    found = state.weights[0] * np.array([1.0, 1.0, 1.0, unit])[:, None]
    np.testing.assert_allclose(found, regressions_with_intercept(parties, causes), atol=1e-3)
    assert info.num_edges == 3
    # A mean for each group would lose what shifted means say: the weights would be others.
    apart = [rows - rows.mean(axis=0) for rows in parties]
    assert np.abs(regressions_with_intercept(apart, causes) - found)[:3].max() > 0.02
