"""LearnSPN: structure that is there, distributions that sum to one, and odd tables."""

import numpy as np
import pandas as pd
import pytest
from circuit_cases import domain_of, plain_density, worlds
from scipy.stats import norm

from flwr_causal.core.circuits.learners.spn.learn_spn import LearnSPN, learn_spn
from flwr_causal.core.circuits.learners.spn.leaves import LeafFit
from flwr_causal.core.circuits.learners.spn.splits import Indicators, cluster_rows
from flwr_causal.core.circuits.leaves.elliptical import Elliptical
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian, Histogram
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.errors import ConfigError, DataError


def mixed_table(n, seed):
    """A hidden kind rules three columns, two others depend on each other, one on nothing."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, n)
    weather = rng.integers(0, 2, n)
    return pd.DataFrame(
        {
            "size": rng.normal(2.0 * kind, 0.5),
            "colour": np.array(["blue", "green", "red"])[
                np.where(rng.random(n) < 0.8, kind, rng.integers(0, 3, n))
            ],
            "price": np.exp(rng.normal(kind, 0.3)),
            "rain": np.where(weather, "yes", "no"),
            "wind": rng.normal(3.0 * weather, 1.0),
            "alone": rng.normal(size=n),
        }
    )


def assert_same(first, second):
    one, other = first.to_arrays(), second.to_arrays()
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[key], other[key]) for key in one)


def independent(frame, **options):
    """Columns that are independent of each other, with the same leaves."""
    return learn_spn(frame, split_rows=float("inf"), blocks=False, **options)


def test_independent_groups_are_the_factors_of_the_root():
    circuit = learn_spn(mixed_table(1500, 0), blocks=False)
    names = circuit.domain.names
    assert isinstance(circuit.root, Product)
    assert [[names[j] for j in child.scope] for child in circuit.root.children] == [
        ["size", "colour", "price"],
        ["rain", "wind"],
        ["alone"],
    ]


@pytest.mark.slow
def test_held_out_rows_are_likelier_than_under_independent_columns():
    """By 1.86 to 1.98 nats a row, 1.73 to 2.07 for 40 seeds; the truth is 2.13 to 2.17 better."""
    for seed in range(3):
        train, test = mixed_table(1500, seed), mixed_table(1000, 100 + seed)
        better = learn_spn(train, seed=seed).log_likelihood(test).mean()
        assert better - independent(train).log_likelihood(test).mean() > 1.7


@pytest.mark.parametrize("options", [{}, {"em_steps": 3}, {"correlation": 0.1}, {"target": "b"}])
def test_worlds_sum_to_one_and_marginals_are_sums(options):
    rng = np.random.default_rng(1)
    sizes = (2, 3, 2, 2)
    values = worlds(sizes)[rng.choice(24, 800, p=rng.dirichlet(np.ones(24)))]
    domain = domain_of(sizes)
    circuit = LearnSPN(**options, split_rows=30).learn(domain, values)
    densities = np.exp(circuit.log_likelihood(worlds(sizes)))

    assert circuit.num_nodes > 20
    assert densities.sum() == pytest.approx(1, abs=1e-12)
    assert densities == pytest.approx(
        [plain_density(circuit.root, world) for world in worlds(sizes)], abs=1e-12
    )
    pair = np.full((1, 4), np.nan)
    pair[0, [1, 3]] = 2, 0
    chosen = (worlds(sizes)[:, 1] == 2) & (worlds(sizes)[:, 3] == 0)
    assert np.exp(circuit.log_likelihood(pair))[0] == pytest.approx(densities[chosen].sum())
    shares = [(values == world).all(axis=1).mean() for world in worlds(sizes)]
    assert np.abs(densities - shares).sum() < 0.25  # up to 0.19; of independent columns 0.7


def test_the_density_of_a_number_integrates_to_one():
    circuit = learn_spn(mixed_table(600, 3)[["size", "colour"]])
    grid = np.linspace(-30, 40, 70_001)
    frame = pd.DataFrame({"size": grid})
    assert np.trapezoid(np.exp(circuit.log_likelihood(frame)), grid) == pytest.approx(1, abs=1e-3)


def test_the_same_seed_gives_the_same_circuit_in_any_order_of_rows():
    frame = mixed_table(700, 4)
    first = learn_spn(frame, seed=5, em_steps=2)
    assert_same(first, learn_spn(frame, seed=5, em_steps=2))
    shuffled = frame.sample(frac=1, random_state=0)
    assert_same(first, learn_spn(shuffled, seed=5, em_steps=2))


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("options", [{}, {"blocks": False}, {"target": "colour", "em_steps": 2}])
def test_weights_of_rows_are_repetitions(options):
    frame = mixed_table(300, 6)
    weights = np.random.default_rng(0).integers(0, 3, 300)
    repeated = frame.loc[np.repeat(frame.index, weights)]
    domain = learn_spn(frame).domain
    weighted = learn_spn(frame, domain=domain, row_weights=weights, **options)
    assert_same(weighted, learn_spn(repeated, domain=domain, **options))


def test_a_block_is_learned_where_numbers_depend_strongly_and_not_elsewhere():
    """A line in three dimensions, turned by a class: 3.1 nats a row better than without."""
    rng = np.random.default_rng(7)

    def table(n):
        label = rng.integers(0, 2, n)
        x = rng.normal(size=n)
        sign = np.where(label, 1.0, -1.0)
        return pd.DataFrame(
            {
                "a": x,
                "label": np.array(["down", "up"])[label],
                "b": sign * x + 0.1 * rng.normal(size=n),
                "c": 2 * x + 3 + 0.1 * rng.normal(size=n),
                "colour": np.array(["blue", "green", "red"])[rng.integers(0, 3, n)],
                "apart": rng.normal(size=n),
            }
        )

    train, test = table(500), table(500)
    with_block = learn_spn(train)
    without = learn_spn(train, blocks=False)
    blocks = [leaf for leaf in with_block.layers.leaves if isinstance(leaf, Elliptical)]
    assert {leaf.scope for leaf in blocks} == {(0, 2, 3)}
    gain = with_block.log_likelihood(test).mean() - without.log_likelihood(test).mean()
    assert gain > 2.7
    assert (with_block.predict(test, "label") == test["label"]).mean() > 0.93

    plain = learn_spn(mixed_table(600, 8), blocks=True)
    assert_same(plain, learn_spn(mixed_table(600, 8), blocks=False))


def test_the_root_is_a_sum_over_the_states_of_the_target():
    frame = mixed_table(800, 9)
    frame.loc[::7, "colour"] = None
    circuit = learn_spn(frame, target="colour")
    known = frame["colour"].dropna()
    assert isinstance(circuit.root, Sum)
    assert circuit.root.weights == pytest.approx(
        known.value_counts(normalize=True).sort_index().to_numpy()
    )
    for state, child in enumerate(circuit.root.children):
        own = [leaf for leaf in child.children if leaf.scope == (1,)]
        assert own[0].probabilities.tolist() == np.eye(3)[state].tolist()
    test = mixed_table(1000, 10)
    assert (circuit.predict(test, "colour") == test["colour"]).mean() > 0.82  # 0.841


def test_missing_values_are_passed_over():
    frame = mixed_table(1500, 11)
    holes = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.2)
    test = mixed_table(800, 12)
    full, partial = learn_spn(frame), learn_spn(holes)
    assert partial.log_likelihood(test).mean() > full.log_likelihood(test).mean() - 0.25  # 0.18
    assert np.isfinite(partial.log_likelihood(holes)).all()
    nothing = pd.DataFrame({"size": [np.nan]})
    assert partial.log_likelihood(nothing) == pytest.approx([0.0], abs=1e-12)


def test_constant_columns_and_few_rows_make_leaves():
    frame = mixed_table(200, 13)
    frame["constant"], frame["word"] = 4.0, "same"
    circuit = learn_spn(frame)
    likely = circuit.marginal(["constant"]).log_likelihood(pd.DataFrame({"constant": [4.0, 5.0]}))
    assert likely[0] > 0 > likely[1]
    assert np.isfinite(likely).all()
    assert circuit.marginal(["word"]).log_likelihood(frame) == pytest.approx(np.zeros(200))

    one = learn_spn(frame.iloc[:1], em_steps=2)
    assert isinstance(one.root, Product)
    assert np.isfinite(one.log_likelihood(frame.iloc[:1])).all()
    many = learn_spn(frame.iloc[:7], clusters=20, split_rows=2)
    assert np.isfinite(many.log_likelihood(frame.iloc[:7])).all()
    alone = learn_spn(frame[["size"]])
    assert np.isfinite(alone.log_likelihood(frame)).all()


def test_rows_of_equal_codes_are_one_cluster():
    same = Indicators(np.ones((50, 2), dtype=np.float32), np.array([0, 1, 2]))
    labels = cluster_rows(same, np.ones(50), 3, np.random.default_rng(0))
    assert len(set(labels.tolist())) == 1


def test_clusters_do_not_depend_on_the_order_of_sums():
    """Rows of few codes are often as far from one mean as from another."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        rows = rng.integers(0, 2, (40, 6)).astype(np.float32)
        drawn = int(rng.integers(1000))

        def found(rows, weight, drawn=drawn):
            coded = Indicators(rows, np.arange(7))
            weights = np.full(40, weight)
            return cluster_rows(coded, weights, 3, np.random.default_rng(drawn)).tolist()

        expected = found(rows, 1.0)
        assert found(rows, 0.1) == expected
        assert found(rows[:, ::-1], 1.0) == expected


def test_a_cluster_that_is_left_without_rows_moves_to_the_farthest_row():
    rows = np.repeat(np.eye(4, dtype=np.float32)[[0, 1]], (80, 1), axis=0)
    for drawn in range(5):
        labels = cluster_rows(
            Indicators(rows, np.arange(5)), np.ones(81), 2, np.random.default_rng(drawn)
        )
        assert labels[0] != labels[-1]
        assert len(set(labels[:-1].tolist())) == 1


def test_leaves_follow_the_shape_of_a_number_and_what_is_asked_for():
    rng = np.random.default_rng(14)
    frame = pd.DataFrame(
        {"bell": rng.normal(5, 2, 900), "corner": rng.exponential(3.0, 900), "zero": 0.0}
    )
    frame.loc[:100, "zero"] = rng.normal(size=101)

    def kinds(**options):
        return [type(leaf) for leaf in learn_spn(frame, split_rows=1e9, **options).layers.leaves]

    def by_column(circuit):
        return {leaf.column: leaf for leaf in circuit.layers.leaves}

    leaves = by_column(learn_spn(frame, split_rows=1e9))
    assert [type(leaves[j]) for j in range(3)] == [Gaussian, Histogram, Histogram]
    assert leaves[0].mean == pytest.approx(frame["bell"].mean(), abs=1e-9)
    assert leaves[0].sd == pytest.approx(frame["bell"].std(), rel=2e-3)
    assert set(kinds(leaves="gaussian")) == {Gaussian}
    assert set(kinds(leaves="histogram")) == {Histogram}


def test_the_scores_that_choose_a_leaf_are_those_of_refitted_leaves():
    """Both kinds, rows left out one by one; the bins and the prior stay those of all rows."""
    rng = np.random.default_rng(15)
    values = rng.gamma(2.0, size=(40, 1))
    domain = domain_of((0,))
    fit = LeafFit(domain, values, np.ones(40), 2.0, "auto")
    part = np.arange(5, 30)
    ((_, normal_score),) = fit._normals(part, np.array([0]))
    counts = np.bincount(
        fit.columns.codes(values[part])[:, 0], minlength=int(fit.columns.starts[-1])
    )
    expected = {"gaussian": 0.0, "histogram": 0.0}
    for kind in expected:
        fit.kind = kind
        for k in range(len(part)):
            (leaf,) = fit.leaves(np.delete(part, k), [0])
            expected[kind] += leaf.log_density(values[[part[k]]])[0]
    assert normal_score == pytest.approx(expected["gaussian"], abs=1e-9)
    assert fit._leave_one_out(0, counts) == pytest.approx(expected["histogram"], abs=1e-9)


def test_normal_leaves_are_as_wide_as_stated():
    """In units of their columns; what chooses the kind of a leaf is the density of that leaf."""
    values = np.column_stack([np.linspace(0, 1, 40), np.linspace(0, 100, 40)])
    domain = domain_of((0, 0))
    free, bound = (LeafFit(domain, values, np.ones(40), 2.0, "gaussian", least) for least in (0, 3))
    part = np.arange(12)
    for before, after in zip(free.leaves(part, [0, 1]), bound.leaves(part, [0, 1]), strict=True):
        assert after.mean == before.mean
        assert after.sd == max(before.sd, 3.0)
    (_, score), _ = bound._normals(part, np.arange(2))
    z = np.array([values[k, 0] - free.leaves(np.delete(part, k), [0])[0].mean for k in part])
    assert score == pytest.approx(norm(0, 3).logpdf(z).sum())


def test_a_least_deviation_needs_normal_leaves():
    with pytest.raises(ConfigError, match="least_deviation=1 bounds normal leaves"):
        LearnSPN(leaves="histogram", least_deviation=1.0)
    with pytest.raises(ConfigError, match="does not hold in EM"):
        LearnSPN(em_steps=2, least_deviation=1.0)
    with pytest.raises(ConfigError, match="must be 0 or more"):
        LearnSPN(least_deviation=-1.0)


def test_smoothing_by_hand():
    """A mean is drawn a tenth of a row to that of all, two pseudo rows say what a category is."""
    values = np.array([[0.0, 0], [1, 0], [2, 1], [3, 1], [4, 1]])
    fit = LeafFit(domain_of((0, 2)), values, np.ones(5), 2.0, "gaussian")
    normal, category = fit.leaves(np.array([3, 4]), [0, 1])
    center, spread = 2.0, np.sqrt(2.0)
    mean = (3 + 4 + 0.1 * center) / 2.1
    scatter = (3 - mean) ** 2 + (4 - mean) ** 2 + 0.1 * (center - mean) ** 2
    assert isinstance(normal, Gaussian)
    assert normal.mean == pytest.approx(mean)
    assert normal.sd == pytest.approx(np.sqrt((scatter + (0.3 * spread) ** 2) / 3))
    assert isinstance(category, Categorical)
    prior = np.array([2.5, 3.5]) / 6
    assert category.probabilities == pytest.approx((np.array([0, 2]) + 2 * prior) / 4)


def test_arrays_have_names_and_a_domain_reads_them():
    rng = np.random.default_rng(16)
    array = np.column_stack((rng.normal(size=200), rng.integers(0, 2, 200)))
    circuit = learn_spn(array, categorical=["x1"])
    assert circuit.names == ("x0", "x1")
    assert circuit.domain.variables[1].states == (0.0, 1.0)
    same = learn_spn(array, domain=domain_of((0, 2)))
    assert same.log_likelihood(array) == pytest.approx(circuit.log_likelihood(array))
    expected = norm(array[:, 0].mean(), array[:, 0].std()).logpdf(array[:, 0]) - np.log(2)
    assert circuit.log_likelihood(array).mean() == pytest.approx(expected.mean(), abs=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_row": 3}, "no option 'min_row'"),
        ({"clusters": 1}, "clusters must be at least 2"),
        ({"smoothing": 0.0}, "smoothing"),
        ({"significance": 1.0}, "significance"),
        ({"correlation": 1.0}, "correlation"),
        ({"leaves": "normal"}, "auto, gaussian, histogram"),
        ({"target": "size"}, "'size' is a number"),
        ({"domain": domain_of((0,)), "categorical": ["size"]}, "either a domain"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ConfigError, match=message):
        learn_spn(mixed_table(50, 0), **options)


def test_tables_that_cannot_be_learned_from_are_named():
    frame = mixed_table(50, 0)
    domain = learn_spn(frame).domain
    with pytest.raises(DataError, match="no rows"):
        learn_spn(frame.iloc[:0], domain=domain)
    with pytest.raises(DataError, match="'size' is missing in every row"):
        learn_spn(frame.assign(size=np.nan))
    with pytest.raises(DataError, match="no variable 'shape'"):
        learn_spn(frame, target="shape")
    with pytest.raises(DataError, match="not negative"):
        learn_spn(frame, row_weights=-np.ones(50))
    with pytest.raises(DataError, match="missing in every row"):
        learn_spn(frame.assign(colour=None), domain=domain, target="colour")
    with pytest.raises(DataError, match="rows, columns"):
        learn_spn(np.ones(5))
