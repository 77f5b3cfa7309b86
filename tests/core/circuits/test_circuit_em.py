"""EM: it climbs its objective, reaches what a generic optimiser reaches, and takes weights."""

import numpy as np
import pytest
from circuit_cases import domain_of, random_circuit
from scipy.optimize import minimize
from scipy.special import xlogy

from flwr_causal.core.circuits import em
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.learners.spn.em import expectation_maximisation
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.errors import ConfigError, DataError

KINDS = (2, 0, 3, 0)


def rows_of(circuit, n, seed, missing=0.0):
    values = circuit.encode(circuit.sample(n, seed))
    values[np.random.default_rng(seed).random(values.shape) < missing] = np.nan
    return values


@pytest.mark.parametrize("seed", range(6))
def test_no_step_lowers_the_objective(seed):
    truth, start = random_circuit(seed, KINDS), random_circuit(seed + 50, KINDS)
    values = rows_of(truth, 300, seed, missing=0.1)

    result = expectation_maximisation(start, values, steps=12, tolerance=0)

    assert (np.diff(result.objective) > -1e-10).all()
    assert result.objective[-1] > result.objective[0] + 0.01
    assert result.log_likelihood[-1] == pytest.approx(
        result.circuit.log_likelihood(values).mean(), abs=1e-10
    )
    assert result.circuit.num_nodes == start.num_nodes
    same = [
        old.arrays().keys() == new.arrays().keys()
        and all(np.array_equal(old.arrays()[key], new.arrays()[key]) for key in old.arrays())
        for old, new in zip(start.layers.leaves, result.circuit.layers.leaves, strict=True)
    ]
    assert not all(same)


def test_it_reaches_what_a_generic_optimiser_reaches():
    """Two clusters of two binary columns and a number, five pseudo rows."""
    rng = np.random.default_rng(0)
    side = rng.random(400) < 0.35
    values = np.column_stack(
        (
            rng.random(400) < np.where(side, 0.9, 0.2),
            rng.random(400) < np.where(side, 0.3, 0.8),
            rng.normal(np.where(side, 2.0, -1.0), np.where(side, 0.5, 1.0)),
        )
    ).astype(float)
    smoothing = 5.0
    domain = domain_of((2, 2, 0))

    def circuit_of(vector):
        weight, *ps = 1 / (1 + np.exp(-vector[:5]))
        means, sds = vector[5:7], np.exp(vector[7:])
        tables = [Categorical(j // 2, [1 - p, p]) for j, p in enumerate(ps)]
        children = [
            Product([tables[k], tables[2 + k], Gaussian(2, means[k], sds[k])]) for k in range(2)
        ]
        return Circuit(domain, Sum(children, [weight, 1 - weight]))

    shares = [(values[:, j].sum() + 0.5) / (400 + 1.0) for j in (0, 1)]
    center, spread = values[:, 2].mean(), values[:, 2].std()

    def objective(vector):
        circuit = circuit_of(vector)
        weight, *ps = 1 / (1 + np.exp(-vector[:5]))
        prior = xlogy(smoothing / 2, [weight, 1 - weight]).sum()
        for k in range(2):
            for p, share in ((ps[k], shares[0]), (ps[2 + k], shares[1])):
                prior += smoothing * (share * np.log(p) + (1 - share) * np.log(1 - p))
            z, s = (vector[5 + k] - center) / spread, np.exp(vector[7 + k]) / spread
            # A tenth of a row at the mean of all, half the pseudo rows of .3 deviations.
            prior -= 0.5 * (0.1 * z**2 + smoothing / 2 * 0.09) / s**2 + smoothing / 2 * np.log(s)
        return -(circuit.log_likelihood(values).sum() + prior) / 400

    start = np.array([0.0, 0.5, -0.5, -0.5, 0.5, 1.0, -0.5, 0.0, 0.0])
    best = minimize(objective, start, method="BFGS", options={"gtol": 1e-6})

    found = expectation_maximisation(
        circuit_of(start), values, steps=500, smoothing=smoothing, tolerance=0
    )

    assert found.objective[-1] == pytest.approx(-best.fun, abs=1e-6)
    assert found.circuit.root.weights == pytest.approx(circuit_of(best.x).root.weights, abs=1e-3)


def test_weights_of_rows_are_repetitions():
    circuit = random_circuit(3, KINDS)
    values = rows_of(circuit, 60, 1)
    weights = np.random.default_rng(0).integers(0, 4, 60)

    weighted = expectation_maximisation(circuit, values, steps=4, row_weights=weights)
    repeated = expectation_maximisation(circuit, np.repeat(values, weights, axis=0), steps=4)

    assert weighted.objective == pytest.approx(repeated.objective, abs=1e-10)
    assert weighted.circuit.log_likelihood(values) == pytest.approx(
        repeated.circuit.log_likelihood(values), abs=1e-9
    )


def test_one_step_from_two_known_clusters_by_hand():
    """Clusters that a row is certain of: counts, and nothing else."""
    domain = domain_of((2, 3))
    children = [
        Product([Categorical(0, np.eye(2)[k]), Categorical(1, [0.2, 0.3, 0.5])]) for k in range(2)
    ]
    values = np.array([[0, 0], [0, 1], [1, 1], [0, 0]], dtype=float)
    small = 1e-9
    result = expectation_maximisation(
        Circuit(domain, Sum(children, [0.5, 0.5])), values, steps=1, smoothing=small
    ).circuit.root
    assert result.weights == pytest.approx([0.75, 0.25], abs=1e-8)
    assert result.children[0].children[1].probabilities == pytest.approx(
        [2 / 3, 1 / 3, 0], abs=1e-8
    )
    assert result.children[1].children[1].probabilities == pytest.approx([0, 1, 0], abs=1e-8)


def test_a_step_that_gains_little_is_the_last():
    circuit = random_circuit(4, KINDS)
    values = rows_of(circuit, 100, 2)
    patient = expectation_maximisation(circuit, values, steps=50, tolerance=0)
    hasty = expectation_maximisation(circuit, values, steps=50, tolerance=0.01)
    assert len(patient.objective) == 51
    assert len(hasty.objective) < 20
    assert np.diff(hasty.objective)[-1] < 0.01 <= np.diff(hasty.objective)[:-1].min()
    none = expectation_maximisation(circuit, values, steps=0)
    assert none.circuit is circuit
    assert len(none.objective) == 1


def test_what_cannot_be_learned_from_is_said():
    circuit = random_circuit(0, KINDS)
    values = rows_of(circuit, 5, 0)
    with pytest.raises(DataError, match="no rows"):
        expectation_maximisation(circuit, values[:0])
    with pytest.raises(DataError, match="as many weights"):
        expectation_maximisation(circuit, values, row_weights=[1.0])
    with pytest.raises(DataError, match="not all 0"):
        expectation_maximisation(circuit, values, row_weights=np.zeros(5))
    with pytest.raises(ConfigError, match="smoothing"):
        expectation_maximisation(circuit, values, smoothing=0)
    certain = Circuit(domain_of((2,)), Sum([Categorical(0, [1, 0])], [1]))
    with pytest.raises(DataError, match="row 1 is impossible"):
        expectation_maximisation(certain, np.array([[0.0], [1.0]]))


def halved(steps, **options):
    """Parameters 8, 4, 2, ...: each step halves them; the objective is minus the parameter."""
    asked = []

    def expectation(parameter, step):
        reply = yield parameter, step
        asked.append((parameter, step))
        return reply

    loop = em.expectation_maximisation(
        8.0, expectation, lambda own, counts, step: counts, steps=steps, **options
    )
    request = next(loop)
    try:
        while True:
            request = loop.send(request[0] / 2)
    except StopIteration as end:
        return end.value, asked


def test_the_loop_asks_once_a_step_and_once_more_for_the_last_objective():
    found, asked = halved(3)
    assert found == (1.0, ())
    assert asked == [(8.0, 0), (4.0, 1), (2.0, 2)]
    found, asked = halved(3, objective=lambda own, counts: -own)
    assert found == (1.0, (-8.0, -4.0, -2.0, -1.0))
    assert len(asked) == 4


def test_the_loop_ends_after_a_step_that_gains_less_than_the_tolerance():
    found, asked = halved(9, objective=lambda own, counts: -own, tolerance=1.5)
    assert found == (1.0, (-8.0, -4.0, -2.0, -1.0))
    assert len(asked) == 4
