"""The joint group lasso."""

import dataclasses

import numpy as np
import pytest
import scipy.optimize
from mixed_parties import group_lasso, mixed_parties, no_knowledge

from flwr_causal.core.fedcausal import group
from flwr_causal.core.graphs.acyclicity import h_exponential, is_acyclic
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.nonlinear.basis import SIZE, basis_moments, prior_noise_scale
from flwr_causal.errors import ConfigError

ONE = mixed_parties(3, sizes=(300,))
SIX = mixed_parties(5)


def constant_schedule(rounds, rho_2=0.3, rho_1=1e-12):
    return group.group_schedule(
        rounds, consensus_penalty=(rho_2, rho_2), acyclicity_penalty=(rho_1, rho_1)
    )


@pytest.mark.parametrize("n", [30, 300])
def test_local_step_is_the_ridge_solution_without_the_own_variable(n):
    rows = ONE[1][0][:n]
    d = rows.shape[1]
    moments = basis_moments(rows)
    target = np.random.default_rng(4).standard_normal((d, SIZE, d))
    solution = group.local_step(group.local_problem(moments), target, 0.25)
    cross = moments.cross / prior_noise_scale(moments)
    for j in range(d):
        others = np.delete(np.arange(d * SIZE).reshape(d, SIZE), j, axis=0).ravel()
        gram = moments.gram[np.ix_(others, others)] + 0.25 * np.eye(len(others))
        right = cross[others, j] + 0.25 * target.reshape(-1, d)[others, j]
        expected = np.insert(np.linalg.solve(gram, right).reshape(d - 1, SIZE), j, 0.0, axis=0)
        np.testing.assert_allclose(solution[:, :, j], expected, atol=1e-9)
        assert (solution[j, :, j] == 0).all()


def test_multiplier_survives_the_growth_of_the_penalty():
    problem = group.local_problem(basis_moments(ONE[1][0]))
    d = problem.cross.shape[1]
    factors = np.random.default_rng(0).uniform(0, 1, (d, d))
    first = group.client_step([problem], None, np.zeros((d, d)), 0.1, 0)
    second = group.client_step([problem], first, factors, 0.4, 1)
    copy = factors[:, None, :] * first.formed
    unscaled = 0.1 * (first.formed - copy)  # rho U
    expected = group.local_step(problem, copy - unscaled / 0.4, 0.4) + unscaled / 0.4
    np.testing.assert_allclose(second.formed, expected, atol=1e-12)
    assert (second.penalty, second.iteration) == (0.4, 1)
    assert second.formed.dtype == np.float64


# The server's step


def test_server_step_minimises_over_all_blocks():
    """The factors against a generic solver of the problem in Z, two parties of unequal weight."""
    rng = np.random.default_rng(7)
    d, weights = 3, np.array([0.3, 0.7])
    blocks = rng.standard_normal((2, d, SIZE, d))
    blocks[:, np.arange(d), :, np.arange(d)] = 0
    mean = np.einsum("k,kibj->ij", weights, blocks**2)
    alpha, rho_1, rho_2, sparsity = 0.2, 0.5, 0.8, 0.3
    schedule = constant_schedule(2, rho_2, rho_1)
    schedule = dataclasses.replace(
        schedule, sparsity=(sparsity,) * 2, tolerance=1e-10, max_iterations=5000, resolution=0.0
    )
    problem = group.ServerProblem(schedule, no_knowledge(d))
    state = dataclasses.replace(group.init(d), multiplier=alpha)
    after, info = group.server_step(state, mean, problem)

    def objective(z):
        z = z.reshape(blocks.shape)
        norms = np.sqrt(np.einsum("k,kibj->ij", weights, z**2) + 1e-14)
        h, slope = h_exponential(norms)
        distance = np.einsum("k,kibj->", weights, (z - blocks) ** 2)
        value = sparsity * norms.sum() + alpha * h + rho_1 / 2 * h**2 + rho_2 / 2 * distance
        by_norm = (sparsity + (alpha + rho_1 * h) * slope) / norms
        gradient = z * by_norm[:, None, :] + rho_2 * (z - blocks)
        return value, (weights[:, None, None, None] * gradient).ravel()

    ours = (after.factors[:, None, :] * blocks).ravel()
    generic = scipy.optimize.minimize(
        objective, 0.9 * ours, jac=True, method="L-BFGS-B", options={"maxiter": 20000, "ftol": 0}
    )
    assert objective(ours)[0] <= generic.fun + 1e-6
    np.testing.assert_allclose(generic.x, ours, atol=2e-3)
    assert after.multiplier == pytest.approx(alpha + rho_1 * info.h)
    np.testing.assert_allclose(after.norms, after.factors * after.received, atol=1e-12)


def test_rounds_converge_to_the_joint_group_lasso():
    """The optimality conditions of the problem over all parties, with no acyclicity in it."""
    _, parties = mixed_parties(11, d=5, edges=5, sizes=(60, 120))
    state, problem, clients, _ = group_lasso(parties, constant_schedule(400))
    weights = np.array([1, 2]) / 3
    sparsity = problem.schedule.sparsity[0]
    gradients = []
    for rows, client in zip(parties, clients, strict=True):
        moments = basis_moments(rows)
        blocks = (state.factors[:, None, :] * client.formed).reshape(-1, 5)
        gradient = moments.gram @ blocks - moments.cross / prior_noise_scale(moments)
        gradients.append((blocks.reshape(5, SIZE, 5), gradient.reshape(5, SIZE, 5)))
    stands = state.norms > 1e-6
    assert 3 < stands.sum() < 15
    for blocks, gradient in gradients:
        balance = gradient + sparsity * blocks / np.maximum(state.norms, 1e-300)[:, None, :]
        assert np.abs(np.where(stands[:, None, :], balance, 0)).max() < 2e-3
    size = np.sqrt(
        sum(w * (g**2).sum(axis=1) for w, (_, g) in zip(weights, gradients, strict=True))
    )
    size[np.arange(5), np.arange(5)] = 0
    assert size[~stands].max() < sparsity * 1.01


# Whole runs


def test_finds_the_graph_of_mixed_mechanisms():
    graph, parties = SIX
    state, problem, _, info = group_lasso(parties, group.group_schedule(20))
    found = group.graph_of(state, problem)
    assert is_acyclic(found)
    assert (found != graph).sum() <= 2
    assert info.h < 1e-3
    assert group.finished(state, problem) == "the schedule's 20 iterations are done"


def test_order_of_parties_and_of_variables_do_not_matter():
    _, parties = SIX
    norms = group_lasso(parties)[0].norms
    np.testing.assert_allclose(group_lasso(parties[::-1])[0].norms, norms, atol=1e-5)
    order = np.random.default_rng(0).permutation(8)
    permuted = group_lasso([rows[:, order] for rows in parties])[0].norms
    np.testing.assert_allclose(permuted, norms[np.ix_(order, order)], atol=1e-5)


def test_equal_parties_are_as_one_and_units_do_not_matter():
    _, (rows,) = ONE
    norms = group_lasso([rows])[0].norms
    np.testing.assert_allclose(group_lasso([rows] * 3)[0].norms, norms, atol=1e-5)
    np.testing.assert_allclose(group_lasso([3.0 * rows + 5.0])[0].norms, norms, atol=1e-5)
    # a party of twice the rows weighs as two
    twice = group_lasso([np.tile(rows, (2, 1)), SIX[1][0]])[0].norms
    np.testing.assert_allclose(group_lasso([rows, rows, SIX[1][0]])[0].norms, twice, atol=1e-5)


@pytest.mark.slow
def test_a_party_that_lost_its_state_rejoins():
    _, parties = SIX
    schedule = constant_schedule(150)
    expected = group_lasso(parties, schedule)[0].norms
    lost = {(20, 0), (21, 0), (50, 3), (70, 1)}
    np.testing.assert_allclose(
        group_lasso(parties, schedule, lost=lost)[0].norms, expected, atol=5e-3
    )
    # in the few rounds of the default the graph stays the same
    state, problem, *_ = group_lasso(parties)
    shaken, *_ = group_lasso(parties, lost={(5, 2)})
    assert (group.graph_of(state, problem) == group.graph_of(shaken, problem)).all()


@pytest.mark.parametrize(("rounds", "last"), [(8, 5), (20, 20)])
def test_what_a_rejoining_party_sends_is_near_what_it_would_have_sent(rounds, last):
    _, parties = SIX
    full = group.group_schedule(rounds)
    schedule = dataclasses.replace(
        full,
        consensus_penalty=full.consensus_penalty[:last],
        acyclicity_penalty=full.acyclicity_penalty[:last],
        sparsity=full.sparsity[:last],
    )
    kept, rejoined = (
        np.sqrt(group_lasso(parties, schedule, lost=lost)[2][2].squared_norms)
        for lost in ((), {(last - 1, 2)})
    )
    assert np.linalg.norm(rejoined - kept) < 0.2 * np.linalg.norm(kept)  # from zero: .54 and .57


def test_knowledge_is_honoured():
    graph, parties = SIX
    d = len(graph)
    forbidden = tuple(np.argwhere(graph)[0])
    nothing = np.argwhere(~graph & ~graph.T & ~np.eye(d, dtype=bool))
    required = next(
        (i, j)
        for i, j in nothing
        if is_acyclic(graph | ((np.arange(d)[:, None] == i) & (np.arange(d) == j)))
    )
    masks = no_knowledge(d)
    masks.allowed[forbidden] = False
    masks.required[required] = True
    masks.allowed[required[::-1]] = False
    state, problem, *_ = group_lasso(parties, masks=EdgeMasks(*masks))
    assert state.norms[forbidden] == 0
    assert state.factors[forbidden] == 0
    assert state.norms[required] > 0  # not shrunk to nothing, though it means nothing
    found = group.graph_of(state, problem)
    assert found[required]
    assert not found[forbidden]
    assert is_acyclic(found)


def test_refusals():
    for arguments in ({"max_rounds": 1}, {"consensus_penalty": (0.0, 1.0)}, {"sparsity": -1.0}):
        with pytest.raises(ConfigError):
            group.group_schedule(**arguments)
    problem = group.ServerProblem(group.group_schedule(2), no_knowledge(3))
    with pytest.raises(ValueError, match="shape"):
        group.server_step(group.init(3), np.zeros((2, 2)), problem)
    done = dataclasses.replace(group.init(3), iteration=2)
    with pytest.raises(ValueError, match="ends after 2"):
        group.server_step(done, np.zeros((3, 3)), problem)
