"""Layers and mixed circuits: against plain recursion, quadrature and conditional circuits."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from circuit_cases import (
    MIXED,
    domain_of,
    mixed_rows,
    mixture,
    random_circuit,
    random_leaf,
    worlds,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp
from sweeps import sweep

from flwr_causal.core.circuits.circuit import Circuit, moved
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.layers import Layers
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian
from flwr_causal.core.circuits.nodes import Leaf, Product, Sum
from flwr_causal.errors import ConfigError, DataError


def recursive(node, values):
    """Log density of rows by one call for each node."""
    if isinstance(node, Leaf):
        return node.log_density(values[:, list(node.scope)])
    parts = np.array([recursive(child, values) for child in node.children])
    if isinstance(node, Product):
        return parts.sum(axis=0)
    with np.errstate(divide="ignore"):
        return logsumexp(parts + np.log(node.weights)[:, None], axis=0)


@given(st.integers(0, 10_000))
def test_layers_are_the_recursion(seed):
    circuit = random_circuit(seed, MIXED, depth=4)
    rows = mixed_rows(np.random.default_rng(seed), 50, MIXED)
    layers = circuit.layers
    assert len({id(node) for node in layers.nodes}) == len(layers.nodes)
    nodes = layers.upward(layers.leaf_values(rows))
    for node, values in zip(layers.nodes, nodes, strict=True):
        np.testing.assert_allclose(values, recursive(node, rows), atol=1e-9)
    np.testing.assert_array_equal(circuit.log_likelihood(rows), nodes[-1])


def test_sums_over_the_same_children_are_their_weighted_sums():
    """Also where a row is impossible, or all but impossible, under the children of a sum."""
    rng = np.random.default_rng(0)
    groups = []
    for column in (0, 1):
        own = [Gaussian(column, mean, 1.0) for mean in (0.0, 100.0, 1000.0)]
        weights = [*rng.dirichlet(np.ones(3), size=3), [1.0, 0.0, 0.0]]
        groups.append([Sum(own, row) for row in weights])
    pairs = [Product([left, right]) for left in groups[0] for right in groups[1]]
    tops = [Sum(pairs, rng.dirichlet(np.ones(len(pairs)))) for _ in range(2)]
    states = [Categorical(2, [1.0, 0.0]), Categorical(2, [0.5, 0.5])]
    joint = [Product(pair) for pair in zip(tops, states, strict=True)]
    circuit = Circuit(domain_of((0, 0, 2)), Sum(joint, [1.0, 0.0]))
    assert [layer.shared is not None for layer in circuit.layers.layers][:3] == [True, False, True]
    assert [layer.factored for layer in circuit.layers.layers] == [False, True, False, False, False]
    rows = np.array([[0.5, 99.0, 0.0], [1000.0, 0.0, 0.0], [1000.0, 0.0, 1.0], [np.nan] * 3])
    for few in (rows, rows[:1], rows[3:]):
        nodes = circuit.layers.upward(circuit.layers.leaf_values(few))
        for node, values in zip(circuit.layers.nodes, nodes, strict=True):
            np.testing.assert_allclose(values, recursive(node, few), rtol=1e-12, atol=1e-12)
        density = circuit.layers.log_densities(few)
        np.testing.assert_allclose(density, nodes[-1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kept", ["pairs", "one more parent", "not all pairs", "other factors"])
def test_products_of_pairs_are_left_out_only_where_nothing_else_has_them(kept):
    rng = np.random.default_rng(1)
    left, right = (
        [Gaussian(column, mean, 1.0) for mean in rng.normal(size=count)]
        for column, count in ((0, 3), (1, 2))
    )
    pairs = [Product([one, other]) for one in left for other in right]
    if kept == "not all pairs":
        pairs = pairs[:-1]
    if kept == "other factors":
        pairs[-1] = Product([left[-1], Gaussian(1, 9.0, 1.0)])
    children = [Sum(pairs, rng.dirichlet(np.ones(len(pairs)))) for _ in range(2)]
    if kept == "one more parent":
        children.append(Product([pairs[0]]))
    circuit = Circuit(domain_of((0, 0)), Sum(children, rng.dirichlet(np.ones(len(children)))))
    assert any(layer.factored for layer in circuit.layers.layers) == (kept == "pairs")
    rows = rng.normal(size=(5, 2))
    np.testing.assert_allclose(circuit.log_likelihood(rows), recursive(circuit.root, rows))


@given(st.integers(0, 10_000))
def test_flows_are_posterior_probabilities(seed):
    circuit = random_circuit(seed, MIXED, depth=4)
    layers = circuit.layers
    rng = np.random.default_rng(seed)
    rows = mixed_rows(rng, 20, MIXED)
    row_weights = rng.random(20)
    nodes = layers.upward(layers.leaf_values(rows))
    flows, taken = layers.flows(nodes, row_weights)
    for column in range(len(MIXED)):
        # Every row comes to exactly one leaf of a column.
        own = [k for k, leaf in enumerate(layers.leaves) if column in leaf.scope]
        np.testing.assert_allclose(flows[own].sum(axis=0), row_weights, atol=1e-10)
    for node, own in zip(layers.sums, taken, strict=True):
        assert own.sum() == pytest.approx(flows[layers.number[id(node)]].sum(), abs=1e-10)
    if layers.sums:
        # The derivative of the log-likelihood in a log weight is what flows into the child.
        step = 1e-6
        weights = [np.array(node.weights) for node in layers.sums]

        def moved(size):
            changed = [*weights[:-1], weights[-1] * np.exp(np.eye(len(weights[-1]))[0] * size)]
            free = changed[-1].sum()  # a sum's weights stay a distribution
            root = layers.rebuilt(weights=[*changed[:-1], changed[-1] / free])
            reach = flows[layers.number[id(layers.sums[-1])]].sum()
            return row_weights @ recursive(root, rows) + reach * np.log(free)

        derivative = (moved(step) - moved(-step)) / (2 * step)
        assert derivative == pytest.approx(taken[-1][0], abs=1e-5)


def test_shared_nodes_are_evaluated_once():
    rng = np.random.default_rng(0)
    left = Gaussian(0, 0.0, 1.0)
    rights = [random_leaf(rng, 1, 3) for _ in range(3)]
    root = Sum([Product([left, right]) for right in rights], [0.2, 0.3, 0.5])
    layers = Layers.of(root)
    assert (len(layers.leaves), len(layers.nodes)) == (4, 8)
    rows = mixed_rows(rng, 30, (0, 3))
    nodes = layers.upward(layers.leaf_values(rows))
    np.testing.assert_allclose(nodes[-1], recursive(root, rows), atol=1e-12)
    assert layers.flows(nodes)[0][layers.number[id(left)]] == pytest.approx(1)


def test_leaf_values_may_come_from_elsewhere():
    circuit = random_circuit(1, MIXED)
    rows = mixed_rows(np.random.default_rng(1), 30, MIXED)
    values = np.array(
        [leaf.log_density(rows[:, list(leaf.scope)]) for leaf in circuit.layers.leaves]
    )
    np.testing.assert_allclose(
        circuit.layers.upward(values)[-1], circuit.log_likelihood(rows), atol=1e-12
    )


@pytest.mark.slow
def test_a_deep_circuit_needs_no_recursion():
    node = Gaussian(0, 0.0, 1.0)
    for _ in range(3000):
        node = Sum([node, Gaussian(0, 0.0, 1.0)], [0.5, 0.5])
    circuit = Circuit(domain_of((0,)), node)
    expected = Gaussian(0, 0.0, 1.0).log_density(np.array([[0.3]]))
    np.testing.assert_allclose(circuit.log_likelihood(np.array([[0.3]])), expected, rtol=1e-12)
    assert circuit.sample(5, seed=0).shape == (5, 1)
    assert circuit.mpe(np.array([[np.nan]]))["a"][0] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", sweep([0, 1, 2, 5], [0]))
def test_mixed_circuits_against_quadrature(seed):
    """b is integrated over for every state of the others; the remaining numbers stay put."""
    circuit = random_circuit(seed, (2, 0, 3, 0))
    rows = worlds((2, 1, 3, 1))
    rows[:, 3] = 0.6

    def density(x, row, power=0):
        full = row.copy()
        full[1] = x
        return x**power * np.exp(circuit.log_likelihood(full[None]))[0]

    for row in rows:
        hole = row.copy()
        hole[1] = np.nan
        parts = []
        for power in (0, 1, 2):
            # Histograms jump at their edges, transforms bend at 0.
            bounds = [-np.inf, -1.0, 0.0, 0.3, 2.0, np.inf]
            parts.append(
                sum(
                    quad(density, low, high, (row, power), limit=200, epsabs=1e-11)[0]
                    for low, high in pairwise(bounds)
                )
            )
        marginal = np.exp(circuit.log_likelihood(hole[None]))[0]
        assert marginal == pytest.approx(parts[0], rel=1e-6)
        mean, variance = circuit.moments("b", hole[None])
        assert mean[0] == pytest.approx(parts[1] / parts[0], rel=1e-5, abs=1e-6)
        expected = parts[2] / parts[0] - (parts[1] / parts[0]) ** 2
        assert variance[0] == pytest.approx(expected, rel=1e-4)
        rest = circuit.conditional({"a": int(row[0]), "c": int(row[2]), "d": 0.6})
        assert np.exp(rest.log_likelihood(np.array([[np.nan, 0.4, np.nan, np.nan]])))[
            0
        ] == pytest.approx(density(0.4, row) / marginal, rel=1e-8)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [0, 3])
def test_draws_of_mixed_circuits_have_their_moments(seed):
    circuit = random_circuit(seed, MIXED)
    evidence = {"c": 1, "b": 0.3}
    drawn = circuit.sample(150_000, seed=1, given=evidence)
    assert (drawn["c"] == 1).all()
    assert (drawn["b"] == 0.3).all()
    row = np.array([[np.nan, 0.3, 1.0, np.nan, np.nan]])
    for name in ("a", "d", "e"):
        mean, variance = circuit.moments(name, row)
        sd = np.sqrt(variance[0])
        # Six standard errors of the mean.
        assert drawn[name].mean() == pytest.approx(mean[0], abs=6 * sd / np.sqrt(150_000))
        assert drawn[name].std() == pytest.approx(sd, rel=0.03)


@pytest.mark.slow
@given(st.integers(0, 10_000))
def test_answers_given_a_row_are_those_of_the_conditional_circuit(seed):
    """Density, moments and posteriors: by evidence in the row, and by the circuit given it."""
    circuit = random_circuit(seed, MIXED)
    rng = np.random.default_rng(seed)
    row = mixed_rows(rng, 1, MIXED, missing=0.5)[0]
    row[rng.integers(len(MIXED))] = np.nan
    if np.isnan(row).all():
        row[3] = 0.2
        row[0] = np.nan
    known = ~np.isnan(row)
    names = np.array(circuit.names)
    rest = circuit.conditional(dict(zip(names[known], row[known].tolist(), strict=True)))
    assert rest.names == tuple(names[~known])
    full = np.where(known, row, mixed_rows(rng, 8, MIXED, missing=0.0))
    expected = circuit.log_likelihood(full) - circuit.log_likelihood(row[None])
    np.testing.assert_allclose(rest.log_likelihood(full), expected, atol=1e-8)
    nothing = np.full((1, len(MIXED)), np.nan)
    for name in rest.names:
        np.testing.assert_allclose(
            rest.moments(name, nothing), circuit.moments(name, row[None]), rtol=1e-6, atol=1e-9
        )
        if MIXED[circuit.domain.index(name)]:
            np.testing.assert_allclose(
                rest.predict_proba(nothing, name), circuit.predict_proba(row[None], name), atol=1e-9
            )
        # The marginal of a conditional answers alike.
        np.testing.assert_allclose(
            rest.marginal([name]).moments(name, nothing), rest.moments(name, nothing), rtol=1e-6
        )


def test_rows_far_from_everything_keep_their_densities():
    """Their densities are below the smallest float by thousands of orders."""
    d = 400
    parts = [Product([Gaussian(j, mean, 0.5) for j in range(d)]) for mean in (0.0, 1.0)]
    circuit = Circuit(
        domain_of([2] + [0] * d), Product([Categorical(0, [0.5, 0.5]), *_moved(parts)])
    )
    rows = np.full((3, d + 1), 30.0)
    rows[:, 0] = [0, 1, np.nan]
    density = d * (-0.5 * 58.0**2 - np.log(0.5 * np.sqrt(2 * np.pi))) + np.log(0.75)
    expected = density + np.log([0.5, 0.5, 1.0])
    np.testing.assert_allclose(circuit.log_likelihood(rows), expected, rtol=1e-12)
    np.testing.assert_allclose(circuit.predict_proba(rows, "a"), 0.5)
    rows[:, 1] = np.nan
    mean, variance = circuit.moments("b", rows)
    np.testing.assert_allclose(mean, 1.0)
    np.testing.assert_allclose(variance, 0.25)


def _moved(parts):
    """One sum of the parts, a column further on."""
    return [moved(Sum(parts, [0.25, 0.75]), {j: j + 1 for j in range(len(parts[0].scope))})]


def test_shared_nodes_stay_shared_in_what_is_made_of_a_circuit():
    rng = np.random.default_rng(0)
    common = Sum([Gaussian(2, 0.0, 1.0), Gaussian(2, 2.0, 1.0)], [0.5, 0.5])
    parts = [Product([random_leaf(rng, 0, 2), random_leaf(rng, 1, 3), common]) for _ in range(4)]
    circuit = Circuit(domain_of((2, 3, 0)), Sum(parts, [0.1, 0.2, 0.3, 0.4]))
    assert circuit.num_nodes == 1 + 4 * 3 + 3
    assert circuit.marginal(["a", "c"]).num_nodes == 1 + 4 * 2 + 3
    assert circuit.conditional({"a": 1}).num_nodes == 1 + 4 * 2 + 3
    # Given c the shared part is gone; of the products the two leaves are left.
    assert circuit.conditional({"c": 0.1}).num_nodes == 1 + 4 * 3
    again = Circuit.from_arrays(circuit.domain, circuit.to_arrays())
    assert again.num_nodes == circuit.num_nodes


def test_no_rows_have_no_answers():
    circuit = random_circuit(4, MIXED)
    nothing = np.empty((0, len(MIXED)))
    assert circuit.log_likelihood(nothing).shape == (0,)
    assert circuit.predict_proba(nothing, "c").shape == (0, 3)
    assert circuit.predict(nothing, "c").shape == (0,)
    assert circuit.moments("b", nothing)[1].shape == (0,)
    assert circuit.mpe(nothing).shape == (0, 5)
    assert circuit.sample(0).shape == (0, 5)


def test_a_mixture_is_the_weighted_mean_of_densities():
    rng = np.random.default_rng(2)
    circuits = [random_circuit(seed, MIXED) for seed in (1, 2)]
    turned = Domain(circuits[0].domain.variables[::-1])
    circuits.append(Circuit(turned, random_circuit(3, MIXED).root_in(turned)))
    rows = mixed_rows(rng, 40, MIXED)
    mixed = mixture(circuits, [10, 30, 60])
    assert mixed.domain is circuits[0].domain
    frame = mixed.domain.decode(rows)
    shares = np.exp([circuit.log_likelihood(frame) for circuit in circuits])
    np.testing.assert_allclose(np.exp(mixed.log_likelihood(frame)), [0.1, 0.3, 0.6] @ shares)


def test_a_given_number_is_its_own_moment():
    circuit = random_circuit(4, MIXED)
    rows = mixed_rows(np.random.default_rng(2), 20, MIXED)
    mean, variance = circuit.moments("b", rows)
    known = ~np.isnan(rows[:, 1])
    np.testing.assert_array_equal(mean[known], rows[known, 1])
    assert (variance[known] == 0).all()
    assert (variance[~known] > 0).all()


def test_frames_are_read_by_name_and_labels_come_back_as_given():
    frame = pd.DataFrame({"y": ["no", "yes"] * 20, "x": np.r_[np.zeros(20), np.ones(20)]})
    domain = Domain.from_frame(frame)
    parts = [
        Product([Categorical(0, [0.9, 0.1]), Gaussian(1, 0.0, 1.0)]),
        Product([Categorical(0, [0.2, 0.8]), Gaussian(1, 3.0, 1.0)]),
    ]
    circuit = Circuit(domain, Sum(parts, [0.5, 0.5]))
    rows = pd.DataFrame({"other": [1, 2, 3], "x": [0.0, 3.0, np.nan], "y": ["no", None, "yes"]})
    density = circuit.log_likelihood(rows)
    np.testing.assert_allclose(density[2], np.log(0.45))
    np.testing.assert_allclose(circuit.anomaly_score(rows), -density)
    assert circuit.predict(rows, "y").tolist() == ["no", "yes", "no"]
    assert circuit.predict(rows[["x"]], "y", threshold=0.4).tolist() == ["no", "yes", "yes"]
    assert circuit.classes("y").tolist() == ["no", "yes"]
    filled = circuit.mpe(rows)
    assert filled["y"].tolist() == ["no", "yes", "yes"]
    assert filled["x"].tolist() == [0.0, 3.0, 3.0]
    assert circuit.marginal(["x"]).sample(4, seed=0).columns.tolist() == ["x"]
    with pytest.raises(DataError, match="'y' holds 'maybe'"):
        circuit.log_likelihood(pd.DataFrame({"y": ["maybe"]}))
    # What the target holds does not matter when it is asked for.
    assert circuit.predict(pd.DataFrame({"x": [0.0], "y": ["maybe"]}), "y").tolist() == ["no"]
    for call, error in (
        (lambda: circuit.predict_proba(rows, "x"), ConfigError),
        (lambda: circuit.moments("y", rows), ConfigError),
        (lambda: circuit.moments("z", rows), DataError),
        (lambda: circuit.marginal([]), ConfigError),
        (lambda: circuit.marginal(["x"]).conditional({"y": "no"}), DataError),
    ):
        with pytest.raises(error):
            call()


def test_nodes_check_their_children():
    with pytest.raises(ConfigError, match="one scope"):
        Sum([Gaussian(0, 0, 1), Gaussian(1, 0, 1)], [0.5, 0.5])
    with pytest.raises(ConfigError, match="3 weights"):
        Sum([Gaussian(0, 0, 1), Gaussian(0, 0, 1)], [0.5, 0.25, 0.25])
    with pytest.raises(ConfigError, match="must sum to 1"):
        Sum([Gaussian(0, 0, 1), Gaussian(0, 0, 1)], [0.5, 0.51])
    with pytest.raises(ConfigError, match="0 twice"):
        Product([Gaussian(0, 0, 1), Gaussian(0, 0, 1)])
    with pytest.raises(ConfigError, match="3 states for the variable 'a' of 2"):
        Circuit(domain_of((2,)), Categorical(0, [0.2, 0.3, 0.5]))
    with pytest.raises(ConfigError, match="not in the domain"):
        Circuit(domain_of((2,)), Gaussian(1, 0, 1))


def test_a_circuit_joins_another_domain_by_names():
    domain = Domain((Variable("x"), Variable("y", ("a", "b"))))
    root = Product([Gaussian(0, 1.0, 2.0), Categorical(1, [0.3, 0.7])])
    wide = Domain((Variable("y", ("a", "b")), Variable("z"), Variable("x")))
    circuit = Circuit(wide, Circuit(domain, root).root_in(wide))
    frame = pd.DataFrame({"x": [0.2], "y": ["b"]})
    np.testing.assert_allclose(
        circuit.log_likelihood(frame), Circuit(domain, root).log_likelihood(frame)
    )
    other = Domain((Variable("y", ("b", "a")), Variable("x")))
    with pytest.raises(ConfigError, match="'y' has other states"):
        Circuit(domain, root).root_in(other)
