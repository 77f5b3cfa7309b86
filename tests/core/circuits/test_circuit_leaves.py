"""Leaves over numbers against quadrature, and every kind against its own definitions."""

from itertools import pairwise

import numpy as np
import pytest
from circuit_cases import random_elliptical, random_tree
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import dblquad, quad

from flwr_causal.core.circuits.leaves import elliptical, yeo_johnson
from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.leaves.elliptical import Elliptical
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian, Histogram
from flwr_causal.errors import ConfigError

HISTOGRAM = Histogram(0, [-1.0, 0.5, 0.8, 3.0], [0.1, 0.3, 0.2, 0.35, 0.05], 0.8)


def numeric_leaves():
    leaves = [Gaussian(0, 0.7, 1.3), HISTOGRAM]
    leaves.extend(
        Elliptical((0,), [0.3], [[0.6]], dof, [power], [1.7], 4.0)
        for power in (-1.0, 0.0, 0.5, 1.0, 2.0, 2.7)
        for dof in (np.inf, 4.5, 30.0)
    )
    return leaves


def pieces(leaf):
    """Points between which the density is smooth."""
    if isinstance(leaf, Histogram):
        return [-np.inf, *leaf.edges, np.inf]
    if isinstance(leaf, Elliptical):
        ends = leaf.scales[0] * leaf.reach[0]
        return [-np.inf, -ends, 0.0, ends, np.inf]
    return [-np.inf, leaf.mean, np.inf]


def integral(leaf, function):
    def integrand(x):
        return function(x) * np.exp(leaf.log_density(np.array([[x]])))[0]

    bounds = pieces(leaf)
    return sum(
        quad(integrand, low, high, epsabs=1e-12, epsrel=1e-11, limit=400)[0]
        for low, high in pairwise(bounds)
    )


@pytest.mark.few(7)
@pytest.mark.parametrize("leaf", numeric_leaves(), ids=lambda leaf: leaf.kind)
def test_densities_of_one_number_have_integral_one_and_the_moments_that_they_say(leaf):
    assert integral(leaf, lambda x: 1.0) == pytest.approx(1, abs=1e-8)
    mean, square = leaf.moments(np.array([[np.nan]]))
    assert mean[0, 0] == pytest.approx(integral(leaf, lambda x: x), rel=1e-7, abs=1e-7)
    assert square[0, 0] == pytest.approx(integral(leaf, lambda x: x * x), rel=1e-6)


@pytest.mark.few(8)
@pytest.mark.slow
@pytest.mark.parametrize("leaf", numeric_leaves(), ids=lambda leaf: leaf.kind)
def test_draws_follow_the_distribution_function(leaf):
    drawn = leaf.sample(np.full((4000, 1), np.nan), np.random.default_rng(0))[:, 0]
    points = np.quantile(drawn, [0.05, 0.5, 0.95])
    below = [integral(leaf, lambda x, point=point: float(x < point)) for point in points]
    # A share of 4,000 draws has a standard error of at most 0.008; the integrand has a jump.
    np.testing.assert_allclose(below, [0.05, 0.5, 0.95], atol=0.03)


@pytest.mark.parametrize("leaf", numeric_leaves(), ids=lambda leaf: leaf.kind)
def test_the_mode_is_the_highest_point(leaf):
    mode = leaf.mode(np.array([[np.nan], [0.25]]))
    assert mode[1, 0] == 0.25
    grid = np.linspace(-8, 8, 20_001)[:, None]
    assert leaf.log_density(mode)[0] >= leaf.log_density(grid).max() - 1e-9


def test_missing_values_are_integrated_out():
    for leaf in numeric_leaves():
        assert leaf.log_density(np.array([[np.nan]]))[0] == 0
        density = leaf.log_density(np.array([[0.4]]))[0]
        assert leaf.condition(np.array([0.4])) == (None, pytest.approx(density))
        assert leaf.condition(np.array([np.nan])) == (leaf, 0.0)


def test_elliptical_densities_are_those_of_scipy():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(7, 3))
    normal = random_elliptical(rng, (0, 1, 2), transformed=False)
    expected = stats.multivariate_normal(normal.mean, normal.covariance).logpdf(rows)
    np.testing.assert_allclose(normal.log_density(rows), expected, rtol=1e-12)
    heavy = random_elliptical(rng, (0, 1, 2), 4.0, transformed=False)
    expected = stats.multivariate_t(heavy.mean, heavy.covariance * 0.5, df=4).logpdf(rows)
    np.testing.assert_allclose(heavy.log_density(rows), expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("dof", [pytest.param(np.inf, marks=pytest.mark.nightly), 3.5])
def test_two_transformed_numbers_against_quadrature(dof):
    rng = np.random.default_rng(2)
    leaf = random_elliptical(rng, (2, 5), dof)

    def density(y, x):
        return np.exp(leaf.log_density(np.array([[x, y]])))[0]

    # Integrals run over the transformed plane, a fixed distance from the centre.
    far = 12.0 if np.isinf(dof) else 400.0
    ends = yeo_johnson.inverse(
        leaf.mean + np.array([[-far], [far]]) * np.sqrt(np.diag(leaf.covariance)),
        leaf.powers,
        leaf.reach,
    )
    ends = ends * leaf.scales
    if np.isinf(dof):
        total = dblquad(density, *ends[:, 0], *ends[:, 1], epsabs=1e-5, epsrel=1e-5)[0]
        assert total == pytest.approx(1, abs=1e-4)
    for point in (-0.7, 0.4, 1.9):
        expected = sum(
            quad(lambda y: density(y, point), low, high, limit=400, epsabs=1e-12)[0]  # noqa: B023
            for low, high in ((-np.inf, 0), (0, np.inf))
        )
        row = np.array([[point, np.nan]])
        assert np.exp(leaf.log_density(row))[0] == pytest.approx(expected, rel=1e-6)
        first = leaf.restrict((2,))
        assert np.exp(first.log_density(row[:, :1]))[0] == pytest.approx(expected, rel=1e-6)
        for power, moment in ((1, leaf.moments(row)[0]), (2, leaf.moments(row)[1])):
            above = sum(
                quad(lambda y: y**power * density(y, point), low, high, limit=400)[0]  # noqa: B023
                for low, high in ((-np.inf, 0), (0, np.inf))
            )
            assert moment[0, 1] == pytest.approx(above / expected, rel=1e-5)


@given(st.integers(0, 10_000), st.sampled_from([np.inf, 2.5, 6.0]), st.booleans())
def test_conditionals_are_ratios_of_densities(seed, dof, transformed):
    rng = np.random.default_rng(seed)
    leaf = random_elliptical(rng, (1, 3, 4, 8), dof, transformed)
    rows = rng.normal(size=(6, 4))
    known = rng.random(4) < 0.5
    evidence = np.where(known, rows[0], np.nan)
    rest, density = leaf.condition(evidence)
    rows[:, known] = rows[0, known]
    assert density == pytest.approx(leaf.log_density(evidence[None])[0], abs=1e-10)
    if rest is None:
        assert known.all()
        return
    assert rest.dof == dof + known.sum()
    ratio = leaf.log_density(rows) - density
    np.testing.assert_allclose(rest.log_density(rows[:, ~known]), ratio, atol=1e-9)
    # What is filled in comes from the same conditional.
    np.testing.assert_allclose(
        leaf.moments(evidence[None])[0][0, ~known], rest.moments(rows[:1, ~known] * np.nan)[0][0]
    )


@pytest.mark.slow
def test_patterns_of_missing_values_do_not_mix():
    rng = np.random.default_rng(5)
    leaf = random_elliptical(rng, range(4), 5.0)
    rows = rng.normal(size=(60, 4))
    rows[rng.random(rows.shape) < 0.4] = np.nan
    together = leaf.log_density(rows)
    moments, modes = leaf.moments(rows), leaf.mode(rows)
    for k, row in enumerate(rows):
        np.testing.assert_allclose(leaf.log_density(row[None]), together[k], atol=1e-12)
        np.testing.assert_allclose(leaf.moments(row[None])[0][0], moments[0][k], rtol=1e-9)
        np.testing.assert_allclose(leaf.mode(row[None])[0], modes[k], rtol=1e-6, atol=1e-9)
        assert (
            leaf.log_density(modes[k : k + 1])[0] >= leaf.log_density(leaf.moments(row[None])[0])[0]
            or np.isnan(row).sum() == 0
        )


@pytest.mark.parametrize("dof", [np.inf, 6.0])
def test_conditional_draws_have_the_conditional_moments(dof):
    leaf = random_elliptical(np.random.default_rng(8), (0, 1, 2), dof)
    rows = np.tile([0.5, np.nan, np.nan], (200_000, 1))
    drawn = leaf.sample(rows, np.random.default_rng(1))
    first, second = (part[0] for part in leaf.moments(rows[:1]))
    sds = np.sqrt(second - first**2)
    assert (drawn[:, 0] == 0.5).all()
    assert np.abs(drawn.mean(axis=0) - first)[1:].max() < 0.012 * sds[1:].max()
    np.testing.assert_allclose(drawn[:, 1:].std(axis=0), sds[1:], rtol=0.02)


def test_the_mode_of_several_transformed_numbers_is_a_peak():
    rng = np.random.default_rng(4)
    for dof in (np.inf, 5.0):
        leaf = random_elliptical(rng, (0, 1, 2), dof)
        row = np.array([[0.3, np.nan, np.nan]])
        peak = leaf.mode(row)
        around = np.repeat(peak, 500, axis=0)
        around[:, 1:] += rng.normal(scale=0.2, size=(500, 2)) * rng.random((500, 1)) ** 3
        assert leaf.log_density(peak)[0] > leaf.log_density(around).max() - 1e-10


@given(st.floats(-8, 10), st.floats(1, 50), st.lists(st.floats(-200, 200), min_size=1, max_size=20))
def test_the_transform_and_its_inverse(power, reach, numbers):
    u = np.array(numbers)
    transformed, slopes = yeo_johnson.transform(u, power, reach)
    order = np.argsort(u)
    assert (np.diff(transformed[order]) >= 0).all()
    small = np.abs(u) < 5
    back = yeo_johnson.inverse(transformed, power, reach)
    # Towards the bound of an extreme transform neighbours are no longer told apart.
    limit = np.finfo(float).eps * (1 + np.abs(transformed)) / np.exp(slopes)
    np.testing.assert_array_less(np.abs(back - u), 1e-9 * (1 + np.abs(u)) + 50 * limit)
    step = 1e-6 * (1 + np.abs(u))
    above, below = (yeo_johnson.transform(u + s * step, power, reach)[0] for s in (1, -1))
    ratio = (above - below) / (2 * step * np.exp(slopes))
    inside = small & (np.abs(u) < reach - 1e-3)
    np.testing.assert_allclose(ratio[inside], 1, rtol=1e-3)
    if 0 <= power <= 2:
        within = np.abs(u) <= reach
        expected = [stats.yeojohnson(np.array([one]), power)[0] for one in u[within]]
        np.testing.assert_allclose(transformed[within], expected, rtol=1e-9, atol=1e-12)


def test_extreme_powers_lose_no_mass():
    """Without the line beyond the reach a fifth of this density would be missing."""
    leaf = Elliptical((0,), [0.1], [[0.03**2]], powers=[-8.0], reach=2.0)
    assert integral(leaf, lambda x: 1.0 if abs(x) < 2 else 0.0) < 0.81
    drawn = leaf.sample(np.full((20_000, 1), np.nan), np.random.default_rng(0))
    assert (drawn > 2).mean() == pytest.approx(stats.norm.sf(0.025 / 0.03), abs=0.01)


def test_leaves_together_are_leaves_alone():
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(40, 6))
    rows[:, 4:] = rng.integers(0, 3, (40, 2))
    rows[rng.random(rows.shape) < 0.3] = np.nan
    heavy = random_elliptical(rng, (0, 2), 5.0)
    same = Elliptical(
        (0, 2), heavy.mean + 1, heavy.covariance, np.inf, heavy.powers, heavy.scales, heavy.reach
    )
    kinds = [
        [Gaussian(1, 0.3, 0.6), Gaussian(0, 1.0, 2.0), Gaussian(1, -0.3, 1.6)],
        [HISTOGRAM, HISTOGRAM.moved([2]), Histogram(0, HISTOGRAM.edges, np.full(5, 0.2), 1.1)],
        [Categorical(4, [0.2, 0.3, 0.5]), Categorical(5, [1.0, 0, 0]), Categorical(4, [0, 0, 1])],
        [
            heavy,
            same,
            random_elliptical(rng, (1, 3), transformed=False),
            heavy.moved((2, 0)).moved((2, 0)),
            Elliptical((1, 3), [0.3, -4.0], [[2.0, 0.3], [0.3, 0.4]]),
        ],
        [
            random_tree(rng, (4, 5), {4: 3, 5: 3}),
            random_tree(rng, (4, 5), {4: 3, 5: 3}).restrict([5]),
        ],
    ]
    for leaves in kinds:
        together = type(leaves[0]).batch(leaves).log_density(rows)
        for leaf, row in zip(leaves, together, strict=True):
            expected = leaf.log_density(rows[:, list(leaf.scope)])
            np.testing.assert_allclose(row, expected, atol=1e-12)


def test_leaves_of_many_patterns_and_rows_are_evaluated_in_parts(monkeypatch):
    """However many rows are worked on at once."""
    rng = np.random.default_rng(9)
    common = random_elliptical(rng, range(5), 4.0)
    leaves = [
        Elliptical(
            range(5),
            rng.normal(size=5),
            random_elliptical(rng, range(5)).covariance,
            *(common.dof, common.powers, common.scales, common.reach),
        )
        for _ in range(3)
    ]
    rows = rng.normal(size=(300, 5))
    rows[100:][rng.random((200, 5)) < 0.3] = np.nan
    expected = np.array([leaf.log_density(rows) for leaf in leaves])
    for cached in (1, 200, 2**14):
        monkeypatch.setattr(elliptical, "CACHED", cached)
        together = Elliptical.batch(leaves).log_density(rows)
        np.testing.assert_allclose(together, expected, atol=1e-11)


def test_parameters_are_finite_arrays_and_come_back():
    """The wire refuses infinite numbers; every digit of the others survives."""
    rng = np.random.default_rng(10)
    leaves = [
        *numeric_leaves(),
        random_elliptical(rng, (0, 2, 3), transformed=False),
        random_elliptical(rng, (0, 2, 3), 1 / 0.0205),
        Categorical(1, [0.1, 0.2, 0.7]),
        random_tree(rng, (0, 1, 2), (2, 3, 2)).restrict((1, 2)),
    ]
    for leaf in leaves:
        arrays = leaf.arrays()
        for array in arrays.values():
            assert np.isfinite(array).all()
        again = type(leaf).from_arrays(leaf.scope, arrays)
        values = rng.integers(0, 2, (20, len(leaf.scope))) + 0.0
        np.testing.assert_array_equal(again.log_density(values), leaf.log_density(values))
        assert again.num_states == leaf.num_states
        assert again.num_parameters == leaf.num_parameters


def test_moved_leaves_sort_their_columns():
    rng = np.random.default_rng(7)
    leaf = random_elliptical(rng, (0, 1, 2), 5.0)
    moved = leaf.moved((4, 1, 3))
    assert moved.scope == (1, 3, 4)
    rows = rng.normal(size=(5, 3))
    np.testing.assert_allclose(moved.log_density(rows[:, [1, 2, 0]]), leaf.log_density(rows))
    assert Gaussian(0, 1.0, 2.0).moved([3]).scope == (3,)


def test_numbers_of_parameters():
    assert Gaussian(0, 0, 1).num_parameters == 2
    assert Categorical(0, [0.7, 0.3]).num_parameters == 1
    assert HISTOGRAM.num_parameters == 5
    assert Elliptical((0, 1), [0, 0], np.eye(2), 5.0, [1, 1]).num_parameters == 8
    tables = [[[0.5, 0.5]], [[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]]
    assert ChowLiuTree((0, 1), (-1, 0), tables).num_parameters == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian(0, 0.0, 0.0), "above 0"),
        (lambda: Gaussian(0, np.nan, 1.0), "finite"),
        (lambda: Categorical(2, [0.3, 0.3]), "column 2 must sum to 1"),
        (lambda: Categorical(2, [1.3, -0.3]), "negative"),
        (lambda: Histogram(0, [0, 1], [0.5, 0.5], 1.0), "need 3 masses"),
        (lambda: Histogram(0, [1, 0], [0.5, 0.5, 0], 1.0), "ascend"),
        (lambda: Elliptical((0, 1), [0, 0], [[1, 2], [2, 1]]), "positive definite"),
        (lambda: Elliptical((0, 1), [0, 0], [[1, 0.5], [0.2, 1]]), "symmetric"),
        (lambda: Elliptical((0,), [0], [[1]], 2.0), "above 2 dof"),
        (lambda: Elliptical((0,), [0], [[1]], scales=[1.0]), "give powers"),
        (lambda: Elliptical((1, 0), [0, 0], np.eye(2)), "ascending"),
        (lambda: Elliptical((0, 1), [0, 0, 0], np.eye(2)), "mean has the shape"),
        (lambda: ChowLiuTree((0, 1), (1, 0), [np.full((2, 2), 0.5)] * 2), "cycle"),
        (lambda: ChowLiuTree((0, 1), (-1, 0), [[[0.5, 0.5]], [[0.5, 0.5]]]), "1 rows for 2"),
        (lambda: ChowLiuTree((0, 1), (-1, 2), [[[0.5, 0.5]]] * 2), "positions from 0 to 1"),
        (lambda: ChowLiuTree((0, 1), (-1,), [[[0.5, 0.5]]]), "needs 2"),
    ],
)
def test_wrong_parameters_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_covariance_far_smaller_than_its_variances_may_differ_from_its_mirror_by_rounding():
    covariance = np.array([[8.6e-8, -2.9e-17], [-4.3e-17, 3.0e-7]])
    assert Elliptical((0, 1), np.zeros(2), covariance).covariance[0, 1] == pytest.approx(-3.6e-17)
    with pytest.raises(ConfigError, match="symmetric"):
        Elliptical((0, 1), np.zeros(2), np.array([[1.0, 0.1], [0.11, 1.0]]))
