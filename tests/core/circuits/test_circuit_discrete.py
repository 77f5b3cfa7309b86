"""Every query of discrete circuits against the table of all worlds."""

import numpy as np
import pytest
from circuit_cases import domain_of, plain_density, random_circuit, random_tree, worlds
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.circuits.circuit import Circuit, moved
from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.leaves.univariate import Categorical
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.errors import ConfigError, DataError

STATES = (2, 3, 2, 2)


@st.composite
def circuits(draw):
    num_states = draw(st.lists(st.integers(2, 3), min_size=2, max_size=5))
    return random_circuit(draw(st.integers(0, 10_000)), tuple(num_states)), tuple(num_states)


def table_of(circuit, num_states):
    """Probability of every world by the definition of the nodes."""
    return np.array([plain_density(circuit.root, row) for row in worlds(num_states)])


def consistent(rows, evidence):
    known = ~np.isnan(evidence)
    return (rows[:, known] == evidence[known]).all(axis=1)


def all_evidence(num_states):
    """Every assignment of states or nothing to the variables."""
    shifted = worlds([count + 1 for count in num_states])
    return np.where(shifted == num_states, np.nan, shifted)


@given(circuits())
def test_worlds_sum_to_one_and_agree_with_the_definition(case):
    circuit, num_states = case
    densities = np.exp(circuit.log_likelihood(worlds(num_states)))
    assert densities.sum() == pytest.approx(1, abs=1e-10)
    np.testing.assert_allclose(densities, table_of(circuit, num_states), rtol=1e-10, atol=1e-14)


@given(circuits())
def test_every_marginal_is_the_sum_over_worlds(case):
    circuit, num_states = case
    rows, table = worlds(num_states), table_of(circuit, num_states)
    evidence = all_evidence(num_states)
    expected = np.array([table[consistent(rows, one)].sum() for one in evidence])
    np.testing.assert_allclose(np.exp(circuit.log_likelihood(evidence)), expected, atol=1e-10)
    for kept in range(1, 2 ** len(num_states)):
        columns = [j for j in range(len(num_states)) if kept >> j & 1]
        part = circuit.marginal(circuit.domain.names[j] for j in columns)
        assert part.root.scope == tuple(columns)
        seen = np.full(rows.shape, np.nan)
        seen[:, columns] = rows[:, columns]
        expected = [table[consistent(rows, one)].sum() for one in seen]
        np.testing.assert_allclose(np.exp(part.log_likelihood(rows)), expected, atol=1e-10)


@pytest.mark.slow
@given(circuits())
def test_every_conditional_is_a_ratio_of_sums(case):
    circuit, num_states = case
    rows, table = worlds(num_states), table_of(circuit, num_states)
    every = all_evidence(num_states)
    for evidence in every[: -1 : max(3, len(every) // 40)]:
        known = ~np.isnan(evidence)
        if known.all() or not known.any():
            continue
        given_ = {circuit.domain.names[j]: int(evidence[j]) for j in np.flatnonzero(known)}
        inside = consistent(rows, evidence)
        rest = circuit.conditional(given_)
        assert rest.root.scope == tuple(np.flatnonzero(~known).tolist())
        expected = table[inside] / table[inside].sum()
        np.testing.assert_allclose(np.exp(rest.log_likelihood(rows[inside])), expected, atol=1e-10)


@given(circuits())
def test_class_posteriors_and_moments_given_any_evidence(case):
    circuit, num_states = case
    rows, table = worlds(num_states), table_of(circuit, num_states)
    evidence = all_evidence(num_states)
    posterior = circuit.predict_proba(evidence, "a")
    mean, variance = circuit.moments("a", evidence)
    for one, shares, centre, spread in zip(evidence, posterior, mean, variance, strict=True):
        others = one.copy()
        others[0] = np.nan
        inside = consistent(rows, others)
        expected = np.bincount(rows[inside, 0].astype(int), table[inside], num_states[0])
        expected /= expected.sum()
        np.testing.assert_allclose(shares, expected, atol=1e-10)
        if not np.isnan(one[0]):
            expected = np.eye(num_states[0])[int(one[0])]
        states = np.arange(num_states[0])
        assert centre == pytest.approx(expected @ states, abs=1e-10)
        assert spread == pytest.approx(expected @ states**2 - (expected @ states) ** 2, abs=1e-10)


@given(circuits())
def test_max_product_is_the_best_choice_of_children_and_states(case):
    circuit, num_states = case
    rows = worlds(num_states)

    def best(node, row):
        """Max-product value of a complete row by its definition."""
        if isinstance(node, Sum):
            children = zip(node.weights, node.children, strict=True)
            return max(weight * best(child, row) for weight, child in children)
        if isinstance(node, Product):
            return np.prod([best(child, row) for child in node.children])
        return plain_density(node, row)

    values = np.array([best(circuit.root, row) for row in rows])
    evidence = all_evidence(num_states)[::2]
    layers = circuit.layers
    peaks = layers.peak_densities(evidence)
    filled = layers.mpe(evidence)
    for one, peak, row in zip(evidence, peaks, filled, strict=True):
        assert consistent(row[None], one)[0]
        assert not np.isnan(row).any()
        largest = values[consistent(rows, one)].max()
        assert np.exp(peak) == pytest.approx(largest, rel=1e-10)
        assert best(circuit.root, row) == pytest.approx(largest, rel=1e-10)


@pytest.mark.slow
def test_the_explanation_is_the_most_probable_world_of_a_selective_circuit():
    """A mixture over classes that are themselves a variable: one child is possible for a row."""
    rng = np.random.default_rng(3)
    parts = [
        Product([Categorical(0, np.eye(3)[k]), random_tree(rng, (1, 2, 3), (3, 2, 3, 2))])
        for k in range(3)
    ]
    circuit = Circuit(domain_of((3, 2, 3, 2)), Sum(parts, [0.2, 0.5, 0.3]))
    rows = worlds((3, 2, 3, 2))
    densities = circuit.log_likelihood(rows)
    for evidence in all_evidence((3, 2, 3, 2)):
        inside = consistent(rows, evidence)
        frame = circuit.mpe(circuit.domain.decode(evidence[None]))
        found = circuit.log_likelihood(frame)[0]
        assert found == pytest.approx(densities[inside].max(), rel=1e-12)
        assert consistent(frame.to_numpy(), evidence)[0]


def test_draws_have_the_frequencies_of_the_worlds():
    circuit = random_circuit(5, STATES)
    rows, table = worlds(STATES), table_of(circuit, STATES)
    # 200,000 draws: the standard error of a frequency is at most 0.0012.
    drawn = circuit.sample(200_000, seed=1).to_numpy()
    seen = np.array([(drawn == row).all(axis=1).mean() for row in rows])
    assert np.abs(seen - table).max() < 0.005
    given_ = circuit.sample(100_000, seed=2, given={"b": 2}).to_numpy()
    assert (given_[:, 1] == 2).all()
    inside = rows[:, 1] == 2
    seen = np.array([(given_ == row).all(axis=1).mean() for row in rows[inside]])
    assert np.abs(seen - table[inside] / table[inside].sum()).max() < 0.008


def test_the_same_seed_gives_the_same_draws_and_evidence_may_differ_from_row_to_row():
    circuit = random_circuit(7, STATES)
    evidence = all_evidence(STATES)
    first = circuit.sample(len(evidence), seed=4, given=evidence)
    assert first.equals(circuit.sample(len(evidence), seed=4, given=evidence))
    known = ~np.isnan(evidence)
    np.testing.assert_array_equal(first.to_numpy()[known], evidence[known])
    with pytest.raises(DataError, match="3 rows are to be drawn"):
        circuit.sample(3, given=evidence)


def test_trees_keep_hidden_variables_where_a_marginal_needs_them():
    tree = ChowLiuTree(
        (0, 1, 2, 3),
        (-1, 0, 0, 2),
        [
            [[0.3, 0.7]],
            [[0.9, 0.1], [0.2, 0.8]],
            [[0.5, 0.5], [0.1, 0.9]],
            [[0.6, 0.4], [0.3, 0.7]],
        ],
    )
    assert tree.restrict((0, 1)).hidden == 0  # what hangs below is dropped
    assert tree.restrict((1, 2)).hidden == 1
    part = tree.restrict((1, 3))
    assert (part.scope, part.hidden) == ((1, 3), 2)
    rest, density = part.condition(np.array([np.nan, 1.0]))
    joint = [
        [np.exp(tree.log_density(np.array([[np.nan, b, np.nan, d]])))[0] for d in (0, 1)]
        for b in (0, 1)
    ]
    assert density == pytest.approx(np.log(joint[0][1] + joint[1][1]))
    expected = np.log(np.array(joint)[:, 1]) - density
    np.testing.assert_allclose(rest.log_density(np.array([[0.0], [1.0]])), expected)
    assert part.mode(np.array([[np.nan, 0.0]])).shape == (1, 2)


def test_a_tree_of_many_variables_does_not_underflow():
    rng = np.random.default_rng(0)
    d = 1500
    tables = [[[1 - 1e-9, 1e-9]]] + [[[1 - 1e-9, 1e-9]] * 2] * (d - 1)
    tree = ChowLiuTree(range(d), (-1, *range(d - 1)), tables)
    rows = np.ones((2, d))
    rows[1, rng.integers(d, size=300)] = np.nan
    known = (~np.isnan(rows)).sum(axis=1)
    np.testing.assert_allclose(tree.log_density(rows), known * np.log(1e-9), rtol=1e-12)


def test_rows_together_are_rows_alone_in_trees_of_many_variables():
    """Two passes of different code: with beliefs row by row, and without for many rows."""
    rng = np.random.default_rng(1)
    num_states = tuple(rng.integers(2, 5, 60).tolist())
    trees = [random_tree(rng, range(60), num_states) for _ in range(2)]
    trees.append(trees[0].restrict(range(0, 60, 3)))
    trees.append(random_tree(rng, range(5, 20), num_states))
    assert trees[2].hidden > 0
    rows = np.column_stack([rng.integers(0, count, 300) for count in num_states]) + 0.0
    rows[:250][rng.random((250, 60)) < 0.3] = np.nan
    together = ChowLiuTree.batch(trees).log_density(rows)
    for tree, densities in zip(trees, together, strict=True):
        own = rows[:, list(tree.scope)]
        np.testing.assert_allclose(densities, tree._upward(tree._codes(own))[0], rtol=1e-11)
        np.testing.assert_allclose(tree.log_density(own), densities, rtol=1e-11)


def test_impossible_evidence():
    circuit = Circuit(
        domain_of((2, 2)),
        Sum(
            [
                Product([Categorical(0, [1, 0]), Categorical(1, [0.3, 0.7])]),
                Product([Categorical(0, [1, 0]), Categorical(1, [0.9, 0.1])]),
            ],
            [0.5, 0.5],
        ),
    )
    rows = np.array([[1.0, np.nan]])
    assert circuit.log_likelihood(rows)[0] == -np.inf
    with pytest.raises(DataError, match="row 0: its values are impossible"):
        circuit.predict_proba(rows, "b")
    with pytest.raises(DataError, match="row 0"):
        circuit.mpe(rows)
    with pytest.raises(DataError, match="row 0"):
        circuit.sample(1, given=rows)
    with pytest.raises(DataError, match="impossible"):
        circuit.conditional({"a": 1})


def test_evidence_drops_what_it_excludes():
    parts = [Product([Categorical(0, np.eye(2)[k]), Categorical(1, [0.2, 0.8])]) for k in (0, 1)]
    circuit = Circuit(domain_of((2, 2)), Sum(parts, [0.4, 0.6]))
    rest = circuit.conditional({"a": 1})
    assert rest.num_nodes == 1
    with pytest.raises(ConfigError, match="every variable"):
        circuit.conditional({"a": 1, "b": 0})


def test_moving_columns_permutes_the_distribution():
    circuit = random_circuit(11, STATES)
    new = {0: 3, 1: 0, 2: 2, 3: 5}
    root = moved(circuit.root, new)
    assert root.scope == (0, 2, 3, 5)
    rows = worlds(STATES)
    wide = np.full((len(rows), 6), np.nan)
    wide[:, [new[j] for j in range(4)]] = rows
    other = Circuit(domain_of((3, 2, 2, 2, 2, 2)), root)
    np.testing.assert_allclose(other.log_likelihood(wide), circuit.log_likelihood(rows), rtol=1e-12)
