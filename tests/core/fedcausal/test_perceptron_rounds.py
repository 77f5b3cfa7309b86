"""The federated rounds with perceptrons: FedCausal's and NOTEARS-MLP-ADMM's."""

import dataclasses

import numpy as np
import paper_admm
import pytest
import scipy.optimize
from neural_rows import NONLINEAR_TRUTH, nonlinear_rows

from flwr_causal.core.consensus import perceptrons as admm
from flwr_causal.core.consensus.admm import multiplier_after
from flwr_causal.core.consensus.schedules import Schedule, fast_schedule, growing_schedule
from flwr_causal.core.fedcausal import perceptrons as rounds
from flwr_causal.core.fedcausal.penalties import Penalties
from flwr_causal.core.graphs.acyclicity import break_cycles, h_exponential, is_acyclic
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.nonlinear.notears_mlp import acyclicity, free_parameters, minimise
from flwr_causal.core.nonlinear.perceptrons import Network, SquaredLoss
from flwr_causal.errors import ConfigError


def problem_of(d=4, hidden=(4,), knowledge=None, **options):
    masks = (knowledge or Knowledge()).masks([f"x{k}" for k in range(d)])
    return rounds.PerceptronProblem(Network(d, hidden), masks, **options)


def mean_of(uploads):
    sent = [[part for part in upload if part is not None] for upload in uploads]
    return rounds.Upload(*(np.mean(parts, axis=0) for parts in zip(*sent, strict=True)))


def one_round(problem, losses, state, memories):
    replies = [
        rounds.client_step(problem, loss, memory, state.broadcast)
        for loss, memory in zip(losses, memories, strict=True)
    ]
    state, info = rounds.server_step(state, mean_of([upload for _, upload in replies]), problem)
    return state, info, [memory for memory, _ in replies]


def run(problem, parties, limit=100):
    pytest.importorskip("torch")
    losses = [SquaredLoss(rows, problem.network) for rows in parties]
    state, memories = rounds.init(problem), [None] * len(parties)
    for _ in range(limit):
        state, info, memories = one_round(problem, losses, state, memories)
        reason = rounds.finished(state, info, problem)
        if reason:
            break
    return state, info, memories, reason


def graph_of(state, threshold=0.3):
    return break_cycles(np.where(state.strengths > threshold, state.strengths, 0.0)) != 0


def random_upload(problem, seed, scale=1.0):
    """What parties might send: their first layers or the squared norms of these."""
    rng = np.random.default_rng(seed)
    network = problem.network
    theta = scale * rng.standard_normal(network.size)
    theta = np.where(free_parameters(network, problem.masks), theta, 0.0)
    layers = problem.averaging == "layers"
    norms = network.squared_norms(theta)
    return rounds.Upload(network.first(theta)) if layers else rounds.Upload(norms, norms)


class TestParty:
    @pytest.fixture(autouse=True)
    def _torch(self):
        pytest.importorskip("torch")

    def test_first_layer_is_replaced_and_the_rest_kept(self):
        problem = problem_of(averaging="layers", max_iterations=10)
        losses = [SquaredLoss(nonlinear_rows(50, seed), problem.network) for seed in (0, 1)]
        state, _, memories = one_round(problem, losses, rounds.init(problem), [None, None])
        network = problem.network
        rests = [network.rest(memory.theta) for memory in memories]
        assert not np.allclose(rests[0], rests[1])
        for memory, rest in zip(memories, rests, strict=True):
            start = rounds.received(problem, memory, state.broadcast)
            np.testing.assert_array_equal(network.first(start), state.broadcast.shared)
            np.testing.assert_array_equal(network.rest(start), rest)
            assert not np.allclose(network.first(memory.theta), state.broadcast.shared)

    def test_factors_scale_the_own_blocks(self):
        problem = problem_of(max_iterations=10)
        losses = [SquaredLoss(nonlinear_rows(50, seed), problem.network) for seed in (0, 1)]
        state, _, memories = one_round(problem, losses, rounds.init(problem), [None, None])
        factors = state.broadcast.shared
        assert (factors[~np.eye(4, dtype=bool)] < 1).any()
        for memory in memories:
            start = rounds.received(problem, memory, state.broadcast)
            first = problem.network.first(memory.theta)
            for i, j in np.ndindex(4, 4):
                np.testing.assert_allclose(
                    problem.network.first(start)[j, :, i], factors[i, j] * first[j, :, i]
                )
            np.testing.assert_array_equal(
                problem.network.rest(start), problem.network.rest(memory.theta)
            )

    def test_a_party_that_lost_its_state_gets_the_norms_of_the_others(self):
        problem = problem_of(max_iterations=10)
        loss = SquaredLoss(nonlinear_rows(50, 0), problem.network)
        state, memories = rounds.init(problem), [None]
        for _ in range(2):
            state, _, memories = one_round(problem, [loss], state, memories)
        late = memories[0]._replace(iteration=0)
        for memory in (None, late):
            start = rounds.received(problem, memory, state.broadcast)
            np.testing.assert_allclose(
                np.sqrt(problem.network.squared_norms(start)), state.broadcast.norms, rtol=1e-12
            )
        # who missed rounds keeps the directions of its own blocks
        start = problem.network.first(rounds.received(problem, late, state.broadcast))
        own = problem.network.first(late.theta)
        assert (start * own >= 0).all()

    def test_it_minimises_equation_7(self):
        """Against the objective written out, with a generic solver on a smooth case."""
        problem = problem_of(hidden=(), sparsity=0.0, proximity=0.7, decay=0.2, max_iterations=2000)
        rows = nonlinear_rows(60, 1)
        loss = SquaredLoss(rows, problem.network)
        state = rounds.init(problem)
        sent = state.broadcast._replace(multiplier=0.4, penalty=1.3)
        near = problem.network.first(rounds.received(problem, None, sent))

        def objective(free):
            weights = np.zeros((4, 4))
            weights[~np.eye(4, dtype=bool)] = free[:12]
            residual = rows - rows @ weights - free[12:]
            h = h_exponential(weights)[0]
            distance = ((weights - near[:, 0, :].T) ** 2).sum()
            return (
                (residual**2).sum() / (2 * len(rows))
                + 0.7 * distance
                + 0.1 * (weights**2).sum()
                + 0.4 * h
                + 0.65 * h * h
            )

        generic = scipy.optimize.minimize(objective, np.zeros(16), options={"gtol": 1e-7})
        theta = rounds.client_step(problem, loss, None, sent)[0].theta
        weights = problem.network.first(theta)[:, 0, :].T
        found = np.concatenate([weights[~np.eye(4, dtype=bool)], problem.network.rest(theta)])
        assert objective(found) == pytest.approx(generic.fun, rel=1e-6)
        np.testing.assert_allclose(found, generic.x, atol=2e-3)


class TestServer:
    def test_layers_are_the_minimiser_of_equation_4(self):
        problem = problem_of(hidden=(3,), averaging="layers")
        state = rounds.init(problem)
        state = dataclasses.replace(
            state, broadcast=state.broadcast._replace(multiplier=0.5, penalty=2.0)
        )
        mean = random_upload(problem, 0, scale=0.4)
        network, size = problem.network, problem.network.first_size

        def objective(flat):
            theta = np.concatenate([flat, np.zeros(network.size - size)])
            h, slope = acyclicity(network, theta)
            away = network.first(theta) - mean.shared
            gradient = 2 * away + (0.5 + 2.0 * h) * slope
            return float((away**2).sum()) + 0.5 * h + h * h, gradient.ravel()

        generic = scipy.optimize.minimize(
            objective, mean.shared.ravel(), jac=True, options={"gtol": 1e-9}
        )
        after, info = rounds.server_step(state, mean, problem)
        np.testing.assert_allclose(after.broadcast.shared.ravel(), generic.x, atol=1e-5)
        found = np.concatenate([generic.x, np.zeros(network.size - size)])
        assert info.h == pytest.approx(acyclicity(network, found)[0], rel=1e-4)

    def test_norms_give_the_factors_of_the_same_problem(self):
        """For one party both ways to average are one."""
        norms, layers = (problem_of(averaging=way) for way in ("norms", "layers"))
        results = []
        for problem in (norms, layers):
            state = rounds.init(problem)
            sent = state.broadcast._replace(multiplier=0.5, penalty=2.0)
            state = dataclasses.replace(state, broadcast=sent)
            results.append(rounds.server_step(state, random_upload(problem, 1, 0.4), problem)[0])
        first, layer = random_upload(layers, 1, 0.4).shared, results[1].broadcast.shared
        scaled = first * norms.network.blocks(results[0].broadcast.shared)
        np.testing.assert_allclose(scaled, layer, rtol=1e-12)
        np.testing.assert_allclose(results[0].strengths, results[1].strengths, rtol=1e-12)

    def test_penalty_and_multiplier_follow_algorithm_1(self):
        problem = problem_of(penalties=Penalties(growth=7.0))
        mean = random_upload(problem, 2, scale=0.5)
        first, info = rounds.server_step(rounds.init(problem), mean, problem)
        assert 0 < info.h < info.mean_h
        # H starts at infinity: the first h is progress
        assert first.last_h == info.h
        assert first.broadcast.multiplier == pytest.approx(1.0 * info.mean_h)
        assert first.broadcast.penalty == 1.0
        assert first.broadcast.iteration == 1
        small = dataclasses.replace(first, last_h=1e-3 * info.h)
        second, _ = rounds.server_step(small, mean, problem)
        assert second.last_h == small.last_h
        assert second.broadcast.multiplier == first.broadcast.multiplier
        assert second.broadcast.penalty == 7.0

    def test_required_edges_are_not_shrunk(self):
        known = Knowledge(required=[("x0", "x1")], forbidden=[("x2", "x3")])
        problem = problem_of(knowledge=known)
        mean = random_upload(problem, 3, scale=1.0)
        state, _ = rounds.server_step(rounds.init(problem), mean, problem)
        factors = state.broadcast.shared
        assert factors[0, 1] == 1.0
        assert factors[1, 0] == factors[2, 3] == 0.0
        assert (factors[problem.masks.allowed & ~problem.masks.required] < 1).any()

    def test_finished(self):
        problem = problem_of(max_exchanges=5, patience=3)
        state, info = rounds.server_step(rounds.init(problem), random_upload(problem, 0), problem)
        assert rounds.finished(state, info, problem) is None
        assert "h = 0.0" in rounds.finished(state, info._replace(h=0.0), problem)
        stable = dataclasses.replace(state, stable_exchanges=3)
        assert "not changed for 3" in rounds.finished(stable, info, problem)
        patient = dataclasses.replace(problem, patience=0)
        assert rounds.finished(stable, info, patient) is None
        for change, reason in (({"iteration": 5}, "5 exchanges"), ({"penalty": 1e16}, "limit")):
            last = dataclasses.replace(state, broadcast=state.broadcast._replace(**change))
            assert reason in rounds.finished(last, info, problem)

    def test_the_outer_loop_ends_after_the_inner_one(self):
        """Line 15 of Algorithm 1 follows line 13."""
        problem = problem_of(max_exchanges=5, patience=0)
        state, info = rounds.server_step(rounds.init(problem), random_upload(problem, 0), problem)
        assert info.inner_done == 1
        assert rounds.finished(state, info._replace(h=0.0, inner_done=0), problem) is None

    def test_what_does_not_fit_is_refused(self):
        problem = problem_of()
        wrong = random_upload(problem_of(averaging="layers"), 0)
        with pytest.raises(ValueError, match="shape"):
            rounds.server_step(rounds.init(problem), wrong, problem)
        with pytest.raises(ConfigError, match="'norms', 'layers'"):
            problem_of(averaging="median")


class TestFedCausal:
    @pytest.mark.slow
    def test_mixed_mechanisms_share_one_graph(self):
        signs = [(1, 1, 1), (-1, 1, -1), (1, -1, -1), (-1, -1, 1)]
        # The loss has several minima, and rounding decides between them for some rows. For these
        # the least strength of an edge is .64, and the largest of the other pairs .08.
        parties = [nonlinear_rows(150, 10 + k, signs[k]) for k in range(4)]
        problem = problem_of(hidden=(10,), max_exchanges=8, patience=0)
        state, _, _, reason = run(problem, parties)
        np.testing.assert_array_equal(graph_of(state), NONLINEAR_TRUTH)
        assert "8 exchanges" in reason

    def test_opposite_effects_cancel_in_layers_but_not_in_norms(self):
        rng = np.random.default_rng(0)
        noise = rng.standard_normal((2, 200, 2))
        parties = [
            np.column_stack([e[:, 0], sign * 2 * e[:, 0] + e[:, 1]])
            for sign, e in zip((1, -1), noise, strict=True)
        ]
        norms = {}
        for averaging in rounds.AVERAGING:
            problem = problem_of(2, (), averaging=averaging, max_exchanges=5)
            norms[averaging] = run(problem, parties)[0].broadcast.norms[0, 1]
        assert norms["norms"] > 1.5
        assert norms["layers"] < 0.3

    @pytest.mark.parametrize("averaging", rounds.AVERAGING)
    def test_equal_parties_are_one(self, averaging):
        problem = problem_of(averaging=averaging, max_iterations=15, max_exchanges=3)
        rows = nonlinear_rows(80, 0)
        one, three = run(problem, [rows])[0], run(problem, [rows] * 3)[0]
        np.testing.assert_allclose(three.broadcast.shared, one.broadcast.shared, atol=1e-7)
        np.testing.assert_allclose(three.strengths, one.strengths, atol=1e-7)

    def test_order_of_parties_and_variables(self):
        problem = problem_of(max_iterations=8, max_exchanges=2)
        parties = [nonlinear_rows(60, k) for k in range(3)]
        order = np.array([2, 0, 3, 1])
        plain = run(problem, parties)[0].strengths
        reversed_ = run(problem, parties[::-1])[0].strengths
        np.testing.assert_allclose(reversed_, plain, atol=1e-7)
        permuted = run(problem, [rows[:, order] for rows in parties])[0].strengths
        np.testing.assert_allclose(permuted, plain[np.ix_(order, order)], atol=1e-7)

    def test_knowledge(self):
        known = Knowledge(required=[("x3", "x0")], forbidden=[("x0", "x1")])
        problem = problem_of(knowledge=known, max_iterations=30, max_exchanges=4)
        state, _, memories, _ = run(problem, [nonlinear_rows(80, k) for k in range(2)])
        assert state.strengths[0, 1] == state.strengths[0, 3] == 0
        for memory in memories:
            norms = problem.network.squared_norms(memory.theta)
            assert (norms[~problem.masks.allowed] == 0).all()


def paper_schedule(max_rounds):
    return growing_schedule(max_rounds, **paper_admm.OF_PERCEPTRONS)


def admm_problem(d=4, hidden=(4,), knowledge=None, **options):
    masks = (knowledge or Knowledge()).masks([f"x{k}" for k in range(d)])
    options.setdefault("schedule", paper_schedule(10))
    return admm.ServerProblem(Network(d, hidden), masks, **options)


def admm_run(problem, parties, max_iterations=20, seed=0):
    pytest.importorskip("torch")
    n = sum(map(len, parties))
    losses = [SquaredLoss(rows, problem.network, num_rows=n) for rows in parties]
    free = free_parameters(problem.network, problem.masks)
    state, memories, reason = admm.init(problem, seed), [None] * len(parties), None
    while reason is None:
        penalty = problem.schedule.at(state.round).consensus_penalty
        memories = [
            admm.client_step(
                loss, free, memory, state.weights, penalty, state.round, max_iterations
            )
            for loss, memory in zip(losses, memories, strict=True)
        ]
        mean = np.mean([memory.sent for memory in memories], axis=0)
        state, info = admm.server_step(state, mean, problem, len(parties))
        reason = admm.finished(state, info, problem)
    slopes = [loss.squared_slopes(state.weights) * len(loss._batches[0]) / n for loss in losses]
    return state, np.sqrt(sum(slopes)), reason


class TestConsensus:
    def test_the_new_multiplier_is_minus_the_slope_of_the_loss(self):
        """Stationarity of the local problem: grad loss + beta + rho (theta_k - theta) = 0."""
        pytest.importorskip("torch")
        network = Network(4, (3,))
        loss = SquaredLoss(nonlinear_rows(50, 0), network, num_rows=100)
        rng = np.random.default_rng(0)
        theta = 0.3 * rng.standard_normal(network.size)
        old = admm.ClientState(theta + 0.05 * rng.standard_normal(network.size), 0.2, 4)
        free = np.ones(network.size, dtype=bool)
        new = admm.client_step(loss, free, old, theta, 0.5, 5, 3000)
        assert (new.penalty, new.round) == (0.5, 5)
        solution = new.sent - multiplier_after(old, theta) / 0.5
        np.testing.assert_allclose(multiplier_after(new, theta), -loss(solution)[1], atol=1e-4)
        assert np.abs(multiplier_after(new, theta)).max() > 1e-2
        # who lost its state starts from a zero multiplier
        again = admm.client_step(loss, free, None, theta, 0.5, 5, 3000)
        np.testing.assert_allclose(0.5 * (again.sent - theta), -loss(again.sent)[1], atol=1e-4)

    @pytest.mark.parametrize("decay", [0.0, 0.3])
    def test_server_step_minimises_its_objective(self, decay):
        schedule = Schedule((0.2,), (1.5,), (0.05,))
        problem = admm_problem(hidden=(3,), schedule=schedule, decay=decay)
        network = problem.network
        state = dataclasses.replace(admm.init(problem), multiplier=np.array([0.4]))
        free = free_parameters(network, problem.masks)
        mean = np.where(free, 0.5 * np.random.default_rng(1).standard_normal(network.size), 0.0)
        sparsity = np.zeros(network.size)
        network.first(sparsity)[...] = 0.05

        def smooth(theta):
            h, slope = acyclicity(network, theta)
            away, shrunk = theta - mean, decay * network.is_weight * theta
            gradient = 0.6 * away + shrunk
            network.first(gradient)[...] += (0.4 + 1.5 * h) * slope
            value = 0.3 * away @ away + 0.5 * shrunk @ theta + 0.4 * h + 0.75 * h * h
            return float(value), gradient

        def objective(theta):
            return smooth(theta)[0] + sparsity @ np.abs(theta)

        generic = minimise(
            smooth, mean, free, sparsity, 5000, relative_decrease=1e-15, gradient_tolerance=1e-9
        ).theta
        after, info = admm.server_step(state, mean, problem, num_clients=3)
        assert objective(after.weights) == pytest.approx(objective(generic), rel=1e-8)
        np.testing.assert_allclose(after.weights, generic, atol=1e-4)
        assert after.multiplier == pytest.approx([0.4 + 1.5 * info.h])
        np.testing.assert_allclose(after.mean_multiplier, 0.2 * (mean - after.weights))

    def test_equal_parties_are_one(self):
        """K rho_2 is what counts: three copies with a third of the penalty."""
        rows = nonlinear_rows(60, 0)
        states = []
        for copies in (1, 3):
            schedule = Schedule((0.3 / copies,) * 3, (0.1,) * 3, (0.002,) * 3)
            problem = admm_problem(schedule=schedule)
            states.append(admm_run(problem, [rows] * copies, max_iterations=10)[0])
        np.testing.assert_allclose(states[1].weights, states[0].weights, atol=1e-6)

    @pytest.mark.slow
    def test_finds_the_graph_in_few_rounds(self):
        rows = nonlinear_rows(450, 0)
        schedule = fast_schedule(40, 3, 450, 4, 2.0, admm.NEURAL_TUNED)
        problem = admm_problem(hidden=(10,), schedule=schedule, decay=admm.NEURAL_DECAY)
        state, strengths, reason = admm_run(problem, np.array_split(rows, 3))
        assert state.round <= 40
        assert "40 rounds" in reason
        np.testing.assert_array_equal(strengths > 0.3, NONLINEAR_TRUTH)

    def test_knowledge(self):
        known = Knowledge(required=[("x3", "x0")], forbidden=[("x0", "x1")])
        # a sparsity that would remove every edge that bears it
        schedule = Schedule((0.1,) * 3, (0.1,) * 3, (1e3,) * 3)
        problem = admm_problem(schedule=schedule, knowledge=known)
        state, _, _ = admm_run(problem, [nonlinear_rows(60, 0)])
        norms = np.sqrt(problem.network.squared_norms(state.weights))
        assert norms[3, 0] > 0
        assert (norms[~problem.masks.required] == 0).all()
        assert is_acyclic(norms)

    def test_finished(self):
        problem = admm_problem(schedule=dataclasses.replace(paper_schedule(9), patience=4))
        state = dataclasses.replace(admm.init(problem), round=6, stable_rounds=4)
        info = admm.Info(0.0, 1e-3, 0, 3, 5)
        assert "converged after 6 of 9" in admm.finished(state, info, problem)
        assert admm.finished(state, info._replace(h=1.0), problem) is None
        assert admm.finished(state, info._replace(consensus=1.0), problem) is None
        assert "9 rounds" in admm.finished(dataclasses.replace(state, round=9), info, problem)

    def test_schedules(self):
        paper = paper_schedule(200)
        assert paper.rounds == 176
        assert tuple(paper.at(0)) == (0.1, 0.1, 0.001, 1.0)
        assert fast_schedule(30, 4, 100, 5, tunings=admm.NEURAL_TUNED).rounds == 30

    def test_what_does_not_fit_is_refused(self):
        problem = admm_problem(schedule=paper_schedule(1))
        state = admm.init(problem)
        with pytest.raises(ValueError, match="shape"):
            admm.server_step(state, np.zeros(3), problem, 2)
        state, _ = admm.server_step(state, state.weights, problem, 2)
        with pytest.raises(ValueError, match="1 rounds"):
            admm.server_step(state, state.weights, problem, 2)
