"""Decision trees as circuits: the tree's posterior, and a density that it has not."""

import numpy as np
import pandas as pd
import pytest
from circuit_cases import domain_of, mixture, plain_density, worlds
from sklearn.tree import DecisionTreeClassifier

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.decision_tree import DecisionTree, first_after, state_order
from flwr_causal.core.circuits.leaves.univariate import Categorical
from flwr_causal.core.circuits.nodes import Sum
from flwr_causal.errors import ConfigError, DataError


def numbers_and_class(n, seed, d=3):
    """Numbers a, b, ... and a class of three that two of them tell."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    label = (x[:, 0] > 0.3).astype(int) + ((x[:, 1] > 0) & (x[:, 0] > 0))
    label = np.where(rng.random(n) < 0.1, rng.integers(0, 3, n), label)
    return domain_of((0,) * d + (3,)), np.column_stack((x, label))


def mixed_table(n, seed):
    rng = np.random.default_rng(seed)
    town = rng.choice(list("abcdefgh"), n)
    size = rng.gamma(2.0, size=n)
    odd = np.isin(town, list("aceg"))
    rich = np.where(rng.random(n) < np.where(odd | (size > 3), 0.9, 0.1), "yes", "no")
    return pd.DataFrame({"town": town, "size": size, "rich": rich})


def learned(domain, values, target, **options):
    return DecisionTree(target, **options).learn(domain, values)


@pytest.mark.parametrize("options", [{}, {"max_depth": 3}, {"min_rows": 1}])
def test_the_posterior_of_complete_rows_is_that_of_the_tree(options):
    domain, values = numbers_and_class(600, 0)
    circuit = learned(domain, values, "d", class_smoothing=0.0, **options)
    tree = DecisionTreeClassifier(
        max_depth=options.get("max_depth"),
        min_samples_leaf=options.get("min_rows", 5),
        random_state=0,
    ).fit(values[:, :3], values[:, 3].astype(int))
    new = 2.0 * np.random.default_rng(1).normal(size=(2000, 3))
    rows = np.column_stack((new, np.full(2000, np.nan)))
    assert tree.get_n_leaves() > 5
    assert circuit.predict_proba(rows, "d") == pytest.approx(tree.predict_proba(new), abs=1e-12)
    assert np.isfinite(circuit.log_likelihood(rows)).all()


def test_rows_at_a_cut_lie_where_the_tree_compares_them():
    """Numbers that float32 tells apart barely, and float64 between them."""
    rng = np.random.default_rng(2)
    base, step = np.float32(1000.1), np.spacing(np.float32(1000.1))
    x = np.float64(base) + np.float64(step) * rng.integers(0, 6, 400)
    label = (np.round((x - np.float64(base)) / np.float64(step)) % 2).astype(int)
    domain = domain_of((0, 2))
    circuit = learned(domain, np.column_stack((x, label)), "b", class_smoothing=0.0)
    tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=0).fit(x[:, None], label)
    edges = first_after(np.unique(tree.tree_.threshold[tree.tree_.feature == 0]))
    assert len(edges) == 5
    near = np.concatenate((edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)))
    for new in (near, np.float64(base) + np.float64(step) * rng.uniform(-1, 7, 5000)):
        rows = np.column_stack((new, np.full(len(new), np.nan)))
        assert np.array_equal(circuit.predict_proba(rows, "b"), tree.predict_proba(new[:, None]))


def test_worlds_sum_to_one_and_missing_values_are_summed_out():
    rng = np.random.default_rng(3)
    sizes = (4, 3, 2, 5)
    values = worlds(sizes)[rng.choice(120, 700, p=rng.dirichlet(np.full(120, 0.5)))]
    circuit = learned(domain_of(sizes), values, "c")
    densities = np.exp(circuit.log_likelihood(worlds(sizes)))
    assert isinstance(circuit.root, Sum)
    assert densities.sum() == pytest.approx(1, abs=1e-12)
    plain = [plain_density(circuit.root, world) for world in worlds(sizes)]
    assert densities == pytest.approx(plain, abs=1e-13)

    given = np.full((1, 4), np.nan)
    given[0, [0, 3]] = 2, 4
    chosen = (worlds(sizes)[:, 0] == 2) & (worlds(sizes)[:, 3] == 4)
    sums = [densities[chosen & (worlds(sizes)[:, 2] == c)].sum() for c in (0, 1)]
    assert circuit.predict_proba(given, "c")[0] == pytest.approx(np.array(sums) / sum(sums))


@pytest.mark.slow
def test_the_density_of_numbers_integrates_to_one():
    domain, values = numbers_and_class(500, 4, d=2)
    circuit = learned(domain, values, "c")
    edges = np.unique(np.concatenate([np.ravel(leaf.edges) for leaf in histograms(circuit)]))
    grid = np.sort(np.concatenate((edges, np.nextafter(edges, -np.inf))))
    beyond = np.linspace(0, 40, 20_000)[1:]
    grid = np.concatenate((edges[0] - beyond[::-1], grid, edges[-1] + beyond))
    for c in range(3):
        rows = np.column_stack((grid, np.full(len(grid), np.nan), np.full(len(grid), c)))
        mass = np.trapezoid(np.exp(circuit.log_likelihood(rows)), grid)
        nothing = np.array([[np.nan, np.nan, c]])
        assert mass == pytest.approx(np.exp(circuit.log_likelihood(nothing))[0], abs=1e-5)
    a, b = np.meshgrid(np.linspace(-8, 8, 801), np.linspace(-8, 8, 801))
    rows = np.column_stack((a.ravel(), b.ravel(), np.full(a.size, np.nan)))
    assert np.exp(circuit.log_likelihood(rows)).sum() * 0.02**2 == pytest.approx(1, abs=0.02)


def histograms(circuit):
    return [leaf for leaf in circuit.layers.leaves if leaf.kind == "histogram"]


def test_the_boxes_share_the_rows_and_not_the_space():
    domain, values = numbers_and_class(400, 5)
    circuit = learned(domain, values, "d", class_smoothing=0.0)
    densities = np.array(
        [np.exp(Circuit(domain, c).log_likelihood(values)) for c in circuit.root.children]
    )
    assert ((densities > 0).sum(axis=0) == 1).all()
    shares = np.bincount(densities.argmax(axis=0)) / len(values)
    assert circuit.root.weights == pytest.approx(shares)
    assert shares.min() >= 5 / len(values)


def test_within_its_box_a_number_is_distributed_as_the_rows_there():
    """Two boxes of one number with a gap in the second: 3,000 rows, smoothing hardly matters."""
    rng = np.random.default_rng(6)
    low = rng.uniform(0, 1, 1000)
    high = np.concatenate((rng.uniform(1.5, 2, 500), rng.uniform(3, 4, 1500)))
    values = np.column_stack((np.concatenate((low, high)), np.repeat([0, 1], [1000, 2000])))
    circuit = learned(domain_of((0, 2)), values, "b", max_depth=1)
    grid = np.array([[0.5, np.nan], [1.75, np.nan], [3.5, np.nan]])
    assert np.exp(circuit.log_likelihood(grid)) == pytest.approx([1 / 3, 1 / 3, 1 / 2], rel=0.12)
    assert circuit.conditional({"b": 1}).log_likelihood(np.array([[0.5, np.nan]]))[0] < -8
    mean, _ = circuit.conditional({"b": 0}).moments("a", np.array([[np.nan, np.nan]]))
    assert mean[0] == pytest.approx(0.5, abs=0.03)


def test_one_cut_divides_states_however_they_are_named():
    """The states a, c, e, g are of one kind: depth 2 with the size tells all there is."""
    train, test = mixed_table(2000, 7), mixed_table(2000, 8)
    domain = Domain.from_frame(train)
    circuit = learned(domain, domain.encode(train), "rich", max_depth=2)
    right = circuit.predict(test, "rich") == test["rich"]
    assert right.mean() > 0.88  # 0.9 is the most there is
    order = state_order(domain.encode(train)[:, 0], domain.encode(train)[:, 2].astype(int), 8)
    kinds = [
        {"aceg".find(domain.variables[0].states[k]) >= 0 for k in np.flatnonzero(half)}
        for half in (order < 4, order >= 4)
    ]
    assert all(len(kind) == 1 for kind in kinds)
    assert kinds[0] != kinds[1]


def test_states_of_three_classes_are_ordered_along_their_shares():
    shares = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.2, 0.7, 0.1]])
    column = np.repeat(np.arange(4.0), 1000)
    labels = np.concatenate(
        [np.repeat(range(3), (1000 * row).round().astype(int)) for row in shares]
    )
    order = state_order(column, labels, 6)  # two states that no row has
    assert order[[0, 2, 4, 5, 3, 1]].tolist() in ([0, 1, 2, 3, 4, 5], [5, 4, 2, 3, 1, 0])


def test_a_state_and_a_class_that_no_row_has_are_possible():
    frame = mixed_table(500, 9)
    variables = list(Domain.from_frame(frame).variables)
    variables[0] = Variable("town", (*variables[0].states, "elsewhere"))
    variables[2] = Variable("rich", (*variables[2].states, "unknown"))
    domain = Domain(tuple(variables))
    circuit = learned(domain, domain.encode(frame), "rich")
    new = pd.DataFrame({"town": ["elsewhere"] * 2, "size": [0.5, 9.0], "rich": ["no", "unknown"]})
    assert np.isfinite(circuit.log_likelihood(new)).all()
    shares = circuit.predict_proba(new, "rich")
    assert shares.sum(axis=1) == pytest.approx([1, 1])
    assert (shares[:, 2] > 0).all()
    assert (shares[:, 2] < 0.01).all()


def test_class_smoothing_adds_as_many_rows_as_it_says():
    domain, values = numbers_and_class(300, 10)
    rows = np.column_stack((values[:, :3], np.full(300, np.nan)))
    exact = DecisionTree("d", class_smoothing=0.0)
    counts = exact.grow(domain, values).tree.tree_.n_node_samples
    tree = exact.grow(domain, values).tree
    n = counts[tree.apply(values[:, :3])][:, None]
    prior = (np.bincount(values[:, 3].astype(int)) + 1) / 303
    expected = (n * exact.learn(domain, values).predict_proba(rows, "d") + 3 * prior) / (n + 3)
    smoothed = learned(domain, values, "d", class_smoothing=3.0)
    assert smoothed.predict_proba(rows, "d") == pytest.approx(expected, abs=1e-12)


def test_one_class_and_constant_columns_make_one_leaf():
    domain = domain_of((0, 2, 2))
    values = np.column_stack((np.full(20, 7.0), np.ones(20), np.ones(20)))
    circuit = learned(domain, values, "c")
    assert {leaf.kind for leaf in circuit.layers.leaves} == {"histogram", "categorical"}
    assert not circuit.layers.sums
    assert circuit.predict(values, "c").tolist() == [1] * 20
    assert np.isfinite(circuit.log_likelihood(values)).all()
    one = learned(domain, values[:1], "c")
    assert np.isfinite(one.log_likelihood(values[:1])).all()


def test_intervals_are_cut_in_their_order():
    rng = np.random.default_rng(11)
    values = np.column_stack((rng.integers(0, 5, 300), np.zeros(300)))
    values[:, 1] = values[:, 0] >= 3
    domain = Domain((Variable("a", edges=(1.0, 2.0, 3.0, 4.0)), Variable("b", (0, 1))))
    circuit = learned(domain, values, "b", class_smoothing=0.0)
    assert len(circuit.root.children) == 2
    leaves = [leaf for leaf in circuit.layers.leaves if leaf.scope == (0,)]
    assert all(isinstance(leaf, Categorical) for leaf in leaves)
    assert sorted((leaf.probabilities > 0).tolist() for leaf in leaves) == [
        [False] * 3 + [True] * 2,
        [True] * 3 + [False] * 2,
    ]


def test_circuits_of_parties_mix_and_are_kept(tmp_path):
    domain, values = numbers_and_class(600, 12)
    parts = [learned(domain, part, "d") for part in np.array_split(values, 3)]
    mixed = mixture(parts, [200, 200, 200])
    new = numbers_and_class(1000, 13)[1]
    right = [(one.predict(new, "d") == new[:, 3]).mean() for one in (*parts, mixed)]
    assert right[-1] > np.mean(right[:-1]) + 0.01
    mixed.save(tmp_path)
    assert np.array_equal(Circuit.load(tmp_path).log_likelihood(new), mixed.log_likelihood(new))


def test_what_cannot_be_learned_is_said():
    domain, values = numbers_and_class(50, 14)
    with pytest.raises(ConfigError, match="name the target"):
        learned(domain, values, None)
    with pytest.raises(ConfigError, match="'a' is a number"):
        learned(domain, values, "a")
    with pytest.raises(ConfigError, match="a column beside the target"):
        learned(domain_of((2,)), values[:, 3:], "a")
    with pytest.raises(ConfigError, match="min_rows must be at least 1, got 0"):
        DecisionTree("d", min_rows=0)
    with pytest.raises(ConfigError, match="smoothing"):
        DecisionTree("d", smoothing=0.0)
    with pytest.raises(DataError, match="at least one row"):
        learned(domain, values[:0], "d")
    gaps = values.copy()
    gaps[3, 1] = np.nan
    with pytest.raises(DataError, match=r"'b' has missing values.*missing_values='drop'"):
        learned(domain, gaps, "d")
    with pytest.raises(DataError, match=r"'a' holds 1e\+39, too large"):
        learned(domain, np.where(np.arange(4) == 0, 1e39, values), "d")
