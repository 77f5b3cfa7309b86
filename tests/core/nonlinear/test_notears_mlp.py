"""The perceptrons: their gradients, their special cases, and the pooled solver."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.optimize
from neural_rows import NONLINEAR_TRUTH, nonlinear_rows

from flwr_causal.core.devices import one_thread
from flwr_causal.core.graphs.acyclicity import h_exponential, is_acyclic
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.linear.notears import notears
from flwr_causal.core.nonlinear import notears_mlp as neural
from flwr_causal.core.nonlinear.perceptrons import Network, SquaredLoss
from flwr_causal.errors import ConfigError

NO_KNOWLEDGE = Knowledge()


def masks_of(d, knowledge=NO_KNOWLEDGE):
    return knowledge.masks([f"x{k}" for k in range(d)])


def numerical_gradient(function, theta, step=1e-6):
    return np.array(
        [
            (function(theta + step * e) - function(theta - step * e)) / (2 * step)
            for e in np.eye(len(theta))
        ]
    )


def plain_forward(network, theta, rows):
    """f_j(x) for one target after the other, as the paper writes it."""
    sizes = [int(np.prod(shape)) for shape in network.shapes]
    parts = np.split(theta, np.cumsum(sizes)[:-1])
    layers = [part.reshape(shape) for part, shape in zip(parts, network.shapes, strict=True)]
    columns = []
    for j in range(network.num_variables):
        value = rows
        for k in range(0, len(layers), 2):
            if k:
                value = 1 / (1 + np.exp(-value))
            value = value @ layers[k][j].T + layers[k + 1][j]
        columns.append(value[:, 0])
    return np.column_stack(columns)


@pytest.mark.parametrize("hidden", [(), (3,), (4, 2)])
class TestNetwork:
    def test_layout(self, hidden):
        network = Network(5, hidden)
        theta = np.arange(network.size, dtype=float)
        first, rest = network.first(theta), network.rest(theta)
        assert first.shape == network.first_shape == (5, (*hidden, 1)[0], 5)
        np.testing.assert_array_equal(network.join(first, rest), theta)
        norms = network.squared_norms(theta)
        assert norms[1, 3] == pytest.approx((first[3, :, 1] ** 2).sum())
        biases = 5 * (sum(hidden) + 1)
        assert network.is_weight.sum() == network.size - biases
        assert not network.rest(network.is_weight)[: 5 * (*hidden, 1)[0]].any()

    def test_own_input_starts_at_zero(self, hidden):
        network = Network(4, hidden)
        norms = network.squared_norms(network.initial(1))
        assert (np.diagonal(norms) == 0).all()
        assert (norms[~np.eye(4, dtype=bool)] > 0).all()


@pytest.mark.parametrize("hidden", [(), (3,), (4, 2)])
class TestSquaredLoss:
    @pytest.fixture(autouse=True)
    def _setting(self, hidden):
        pytest.importorskip("torch")
        rng = np.random.default_rng(0)
        self.network = Network(4, hidden)
        self.rows = rng.standard_normal((7, 4))
        self.theta = rng.standard_normal(self.network.size)

    def test_value(self):
        value = SquaredLoss(self.rows, self.network, num_rows=20)(self.theta)[0]
        residual = plain_forward(self.network, self.theta, self.rows) - self.rows
        assert value == pytest.approx(0.5 / 20 * (residual**2).sum(), rel=1e-13)

    def test_gradient(self):
        loss = SquaredLoss(self.rows, self.network)
        expected = numerical_gradient(lambda theta: loss(theta)[0], self.theta)
        np.testing.assert_allclose(loss(self.theta)[1], expected, atol=1e-7)

    def test_gradient_is_that_of_autograd(self):
        torch = pytest.importorskip("torch")
        theta = torch.tensor(self.theta, requires_grad=True)
        sizes = [int(np.prod(shape)) for shape in self.network.shapes]
        parts = [
            p.view(s) for p, s in zip(torch.split(theta, sizes), self.network.shapes, strict=True)
        ]
        value = torch.tensor(self.rows)[:, None, :].expand(-1, 4, -1)
        for k in range(0, len(parts), 2):
            value = value.sigmoid() if k else value
            value = torch.einsum("njk,juk->nju", value, parts[k]) + parts[k + 1]
        (0.5 * (value[:, :, 0] - torch.tensor(self.rows)).square().sum() / 7).backward()
        gradient = SquaredLoss(self.rows, self.network)(self.theta)[1]
        np.testing.assert_allclose(gradient, theta.grad.numpy(), rtol=1e-11, atol=1e-14)

    def test_squared_slopes(self):
        slopes = np.zeros((4, 4))
        step = 1e-6 * np.eye(4)
        for i in range(4):
            up, down = (
                plain_forward(self.network, self.theta, self.rows + sign * step[i])
                for sign in (1, -1)
            )
            slopes[i] = (((up - down) / 2e-6) ** 2).mean(axis=0)
        found = SquaredLoss(self.rows, self.network).squared_slopes(self.theta)
        np.testing.assert_allclose(found, slopes, rtol=1e-6, atol=1e-12)

    def test_batches_change_nothing(self):
        whole = SquaredLoss(self.rows, self.network)
        parts = SquaredLoss(
            self.rows, self.network, most_activations=3 * 4 * max(self.network.hidden, default=1)
        )
        assert len(parts._batches) > 1
        assert parts(self.theta)[0] == pytest.approx(whole(self.theta)[0], rel=1e-13)
        np.testing.assert_allclose(parts(self.theta)[1], whole(self.theta)[1], atol=1e-13)
        np.testing.assert_allclose(
            parts.squared_slopes(self.theta), whole.squared_slopes(self.theta), rtol=1e-12
        )

    def test_parties_add_up_to_the_pooled_rows(self):
        pooled = SquaredLoss(self.rows, self.network)
        parties = [SquaredLoss(r, self.network, num_rows=7) for r in np.split(self.rows, [3])]
        values, gradients = zip(*(party(self.theta) for party in parties), strict=True)
        assert sum(values) == pytest.approx(pooled(self.theta)[0], rel=1e-13)
        np.testing.assert_allclose(sum(gradients), pooled(self.theta)[1], atol=1e-13)
        slopes = [party.squared_slopes(self.theta) for party in parties]
        np.testing.assert_allclose(
            np.average(slopes, axis=0, weights=[3, 4]), pooled.squared_slopes(self.theta)
        )

    def test_single_precision(self):
        double = SquaredLoss(self.rows, self.network)(self.theta)
        single = SquaredLoss(self.rows, self.network, precision="float32")(self.theta)
        assert 0 < abs(single[0] - double[0]) < 1e-5 * double[0]
        assert single[1].dtype == np.float64
        np.testing.assert_allclose(single[1], double[1], atol=1e-4)


class TestObjective:
    @pytest.fixture(autouse=True)
    def _setting(self):
        pytest.importorskip("torch")
        rng = np.random.default_rng(3)
        self.network = Network(4, (3,))
        self.theta = 0.5 * rng.standard_normal(self.network.size)
        self.loss = SquaredLoss(rng.standard_normal((9, 4)), self.network)

    def test_acyclicity(self):
        h, gradient = neural.acyclicity(self.network, self.theta)
        norms = np.sqrt(self.network.squared_norms(self.theta))
        assert h == pytest.approx(h_exponential(norms)[0], rel=1e-12)
        expected = numerical_gradient(
            lambda theta: neural.acyclicity(self.network, theta)[0], self.theta
        )
        np.testing.assert_allclose(gradient, self.network.first(expected), atol=1e-6)

    def test_gradient(self):
        objective = neural.local_objective(self.loss, 0.3, 0.7, 1.9)
        expected = numerical_gradient(lambda theta: objective(theta)[0], self.theta)
        np.testing.assert_allclose(objective(self.theta)[1], expected, rtol=1e-5, atol=1e-5)

    def test_value(self):
        h = neural.acyclicity(self.network, self.theta)[0]
        weights = self.theta[self.network.is_weight]
        expected = self.loss(self.theta)[0] + 0.15 * weights @ weights + 0.7 * h + 0.95 * h * h
        assert neural.local_objective(self.loss, 0.3, 0.7, 1.9)(self.theta)[0] == pytest.approx(
            expected, rel=1e-13
        )


class TestMinimise:
    """Against closed forms: a separable quadratic."""

    target = np.array([3.0, -2.0, 0.05, -0.05, 1.0, 4.0])

    def objective(self, theta):
        away = theta - self.target
        return 0.5 * float(away @ away), away

    def test_soft_threshold_where_it_is_penalised(self):
        free = np.array([True] * 5 + [False])
        sparsity = np.array([0.1, 0.1, 0.1, 0.1, 0.0, 0.1])
        start = np.array([-1.0, 1.0, 1.0, 1.0, 0.0, 7.0])
        found = neural.minimise(self.objective, start, free, sparsity, gradient_tolerance=1e-9)
        np.testing.assert_allclose(found.theta, [2.9, -1.9, 0, 0, 1, 7], atol=1e-6)
        assert (found.theta[2:4] == 0).all()
        np.testing.assert_array_equal(start, [-1, 1, 1, 1, 0, 7])

    def test_without_penalty(self):
        found = neural.minimise(self.objective, np.zeros(6), np.ones(6, dtype=bool))
        np.testing.assert_allclose(found.theta, self.target, atol=1e-6)

    def test_iterations_are_limited(self):
        def valley(theta):
            return scipy.optimize.rosen(theta), scipy.optimize.rosen_der(theta)

        start, free = np.zeros(6), np.ones(6, dtype=bool)
        assert neural.minimise(valley, start, free, max_iterations=3).iterations == 3

    def test_steps_back_from_an_overflow(self):
        def steep(theta):
            value = np.exp(theta**2).sum() + ((theta - 2) ** 2).sum()
            return float(value), 2 * theta * np.exp(theta**2) + 2 * (theta - 2)

        found = neural.minimise(steep, np.full(2, 20.0), np.ones(2, dtype=bool))
        assert np.isfinite(found.theta).all()
        found = neural.minimise(steep, np.full(2, -0.5), np.ones(2, dtype=bool))
        np.testing.assert_allclose(steep(found.theta)[1], 0, atol=1e-4)


class TestNotearsMLP:
    @pytest.fixture(autouse=True)
    def _torch(self):
        pytest.importorskip("torch")

    @pytest.mark.slow
    def test_finds_mechanisms_without_a_linear_part(self):
        rows = nonlinear_rows(300, 0)
        graph = neural.notears_mlp(rows + 5.0, max_iterations=150)
        np.testing.assert_array_equal(graph.adjacency, NONLINEAR_TRUTH)
        assert graph.names == ("x0", "x1", "x2", "x3")
        assert (graph.weights >= 0).all()
        assert not np.array_equal(notears(rows).adjacency, NONLINEAR_TRUTH)

    def test_without_hidden_layers_it_is_notears(self):
        """Without decay the problems are one; both are solved to L-BFGS-B's usual accuracy."""
        rng = np.random.default_rng(1)
        W = np.zeros((5, 5))
        W[[0, 1, 0, 3], [1, 2, 3, 4]] = [1.5, -1.2, 0.8, -1.0]
        rows = rng.standard_normal((400, 5)) @ np.linalg.inv(np.eye(5) - W)
        linear = notears(rows, refit=False, sparsity=0.1)
        network = neural.notears_mlp(rows, hidden=(), decay=0.0, sparsity=0.1)
        np.testing.assert_array_equal(network.adjacency, W != 0)
        np.testing.assert_allclose(network.weights, np.abs(linear.weights), atol=0.01)

    def test_permuting_the_variables(self):
        """A long optimisation enlarges rounding; a few steps must agree to many digits."""
        rows = nonlinear_rows(100, 2)
        order = np.array([2, 0, 3, 1])
        thetas = []
        for columns in (np.arange(4), order):
            network = Network(4)
            loss = SquaredLoss(rows[:, columns], network)
            objective = neural.local_objective(loss, 0.01, 0.5, 1.0)
            penalty = neural.first_layer_sparsity(network, masks_of(4), 0.01)
            free = neural.free_parameters(network, masks_of(4))
            found = neural.minimise(objective, network.initial(0), free, penalty, 10).theta
            thetas.append((network.first(found), loss.squared_slopes(found)))
        (first, slopes), (permuted_first, permuted_slopes) = thetas
        np.testing.assert_allclose(permuted_first, first[order][:, :, order], atol=1e-8)
        np.testing.assert_allclose(permuted_slopes, slopes[np.ix_(order, order)], atol=1e-8)

    @pytest.mark.slow
    def test_knowledge(self):
        rows = nonlinear_rows(300, 0)
        known = Knowledge(forbidden=[("x0", "x1")], required=[("x3", "x0")])
        graph = neural.notears_mlp(rows, knowledge=known, max_iterations=100)
        assert graph.raw_weights[0, 1] == 0
        assert graph.adjacency[3, 0]
        assert is_acyclic(graph.adjacency)
        assert graph.adjacency[3, 2]

    def test_required_edges_bear_no_sparsity(self):
        network = Network(3, (2,))
        required = np.zeros((3, 3), dtype=bool)
        required[2, 0] = True
        masks = EdgeMasks(~np.eye(3, dtype=bool), required)
        penalty = neural.first_layer_sparsity(network, masks, 0.5)
        assert (network.first(penalty)[0, :, 2] == 0).all()
        assert (network.first(penalty)[2, :, 0] == 0.5).all()
        assert (network.rest(penalty) == 0).all()

    def test_cycles_are_broken_at_the_weakest_edge(self):
        strengths = np.array([[0, 0.9, 0], [0, 0, 0.5], [0.4, 0.2, 0]])
        graph = neural.strength_graph(("a", "b", "c"), strengths, 0.3, masks_of(3))
        np.testing.assert_array_equal(graph.weights, [[0, 0.9, 0], [0, 0, 0.5], [0, 0, 0]])
        np.testing.assert_array_equal(graph.raw_weights, strengths)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"sparsity": -1.0}, "sparsity"),
            ({"hidden": (0,)}, "hidden layer"),
            ({"precision": "half"}, "float32"),
            ({"device": "tpu"}, "device must be"),
        ],
    )
    def test_options_are_checked(self, options, message):
        with pytest.raises(ConfigError, match=message):
            neural.notears_mlp(np.eye(3), **options)

    def test_a_gpu_that_is_not_there(self):
        torch = pytest.importorskip("torch")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        with pytest.raises(ConfigError, match=f"torch finds {count} GPUs here"):
            neural.notears_mlp(np.eye(3), device=f"cuda:{count}")

    def test_threads_are_given_back(self):
        torch = pytest.importorskip("torch")
        before = torch.get_num_threads()
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == before


def test_missing_torch_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=r'pip install "flwr-causal\[torch\]"'):
        neural.notears_mlp(np.eye(3))


def test_torch_is_not_imported_before_it_is_used():
    code = (
        "import sys, flwr_causal.core.nonlinear.notears_mlp, "
        "flwr_causal.core.fedcausal.perceptrons, "
        "flwr_causal.core.consensus.perceptrons; print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False", result.stderr
