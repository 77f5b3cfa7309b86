"""Calibration, discrete Gaussian, and the sensitivity of a release, against brute force."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from flwr_causal.core.privacy.calibration import (
    MARGIN,
    SCALES_SHARE,
    budget_of,
    delta_of,
    epsilon_of,
    noise_multiplier,
    rho_of,
)
from flwr_causal.core.privacy.discrete_gaussian import discrete_gaussian
from flwr_causal.core.privacy.release import (
    CONSTANT,
    STEPS,
    clipping_norm,
    noise_of,
    octaves_of,
    products_of,
    read,
    scales_of,
    sensitivity,
    steps_of_noise,
    variance_of_counts,
)
from flwr_causal.core.privacy.scales import (
    CATEGORY,
    Scaling,
    as_text,
    lacking_scales,
    number_columns,
    of_indicators,
    of_places,
    scales_by_column,
    stated_centers,
)
from flwr_causal.errors import ConfigError, DataError

# By the privacy loss distributions of dp-accounting 0.6.
NOISE = {
    (0.5, 1e-5): 7.0318267,
    (1.0, 1e-5): 3.7306316,
    (3.0, 1e-5): 1.3905935,
    (8.0, 1e-5): 0.6002291,
    (1.0, 1e-9): 5.4952662,
    (0.1, 1e-6): 36.3046904,
}
COMPOSED = {(12.0, 4.0, 1e-5): 0.9814682, (5.0, 1.0, 1e-6): 4.9969107}
below = Random(5).randrange


@pytest.mark.parametrize("guarantee", NOISE)
def test_the_noise_is_that_of_the_privacy_loss_distribution(guarantee):
    epsilon, delta = guarantee
    assert noise_multiplier(epsilon, delta) / MARGIN == pytest.approx(NOISE[guarantee], rel=1e-6)
    assert delta_of(NOISE[guarantee], epsilon) == pytest.approx(delta, rel=1e-4)


@pytest.mark.parametrize("mechanisms", COMPOSED)
def test_two_mechanisms_lose_what_their_composition_does(mechanisms):
    one, two, delta = mechanisms
    together = (1 / one**2 + 1 / two**2) ** -0.5
    assert delta_of(together, COMPOSED[mechanisms]) == pytest.approx(delta, rel=1e-4)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01, 0.5])
@pytest.mark.parametrize("rho", [1e-4, 0.03, 1.0, 60.0, 900.0])
def test_the_epsilon_of_a_composition_is_that_of_its_privacy_loss(rho, delta):
    """The loss is normal with mean rho and variance 2 rho; delta is its mean excess, by area."""
    epsilon = epsilon_of(rho, delta)
    losses = np.linspace(epsilon, max(epsilon, rho) + 14 * np.sqrt(2 * rho), 400_001)
    density = np.exp(-((losses - rho) ** 2) / (4 * rho)) / np.sqrt(4 * np.pi * rho)
    excess = np.trapezoid(-np.expm1(epsilon - losses) * density, losses)
    assert excess == pytest.approx(delta, rel=1e-5) or (epsilon == 0 and excess < delta)


def test_rho_adds_up_and_is_read_back():
    for epsilon, delta in ((0.5, 1e-5), (1.0, 1e-9), (8.0, 1e-5), (100.0, 1e-15), (1e-3, 0.5)):
        assert epsilon_of(rho_of(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-9)
    for one, two, delta in COMPOSED:
        rho = 1 / (2 * one**2) + 1 / (2 * two**2)
        assert epsilon_of(rho, delta) == pytest.approx(COMPOSED[one, two, delta], rel=1e-5)
    assert epsilon_of(0.0, 1e-5) == 0
    assert epsilon_of(np.inf, 1e-5) == np.inf
    assert epsilon_of(39.02, 1e-5) > 70  # one release of epsilon .001 and delta .99999


def test_tails_far_out_are_those_of_the_normal_distribution():
    for multiplier, epsilon in ((0.02, 1500.0), (0.05, 900.0), (30.0, 3.0), (0.02, 1000.0)):
        half, shift = 1 / (2 * multiplier), epsilon * multiplier
        exact = norm.sf(shift - half) - np.exp(epsilon + norm.logsf(half + shift))
        assert delta_of(multiplier, epsilon) == pytest.approx(exact, rel=1e-6, abs=1e-300)


def test_scales_and_release_share_one_budget():
    alone, both = budget_of(1.0, 1e-5, estimates=False), budget_of(1.0, 1e-5, estimates=True)
    assert alone.scales is None
    assert both.scales**-2 + both.release**-2 == pytest.approx(alone.release**-2)
    assert both.scales**-2 == pytest.approx(SCALES_SHARE * alone.release**-2)


def test_an_accountant_agrees():
    accountant = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    own = accountant.from_gaussian_mechanism(noise_multiplier(2.0, 1e-6))
    assert own.get_delta_for_epsilon(2.0) <= 1e-6


def test_delta_of_epsilon_0_is_the_total_variation():
    assert delta_of(1.0, 0.0) == pytest.approx(0.38292492)


@pytest.mark.parametrize("variance", [1, 7])
def test_the_discrete_gaussian_has_its_probabilities(variance):
    draws = np.array([discrete_gaussian(variance, below) for _ in range(4000)])
    support = np.arange(-40, 41)
    weights = np.exp(-(support**2) / (2 * variance))
    expected = 4000 * weights / weights.sum()
    counts = np.bincount(draws + 40, minlength=81)
    kept = expected > 5
    statistic = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    assert statistic < chi2.isf(1e-4, kept.sum() - 1)
    assert counts[~kept].sum() < 4 * expected[~kept].sum() + 10


def test_noise_off_the_diagonal_has_half_of_the_variance():
    variance = 10**12
    noise = noise_of(40, variance, below).astype(float)
    np.testing.assert_array_equal(noise, noise.T)
    off = noise[np.triu_indices(41, 1)]
    assert (off**2).mean() / variance == pytest.approx(1, abs=5 * np.sqrt(2 / len(off)))
    assert (np.diag(noise) ** 2).mean() / variance == pytest.approx(2, abs=2 * 5 * np.sqrt(2 / 41))


@pytest.mark.parametrize("parties", [1, 3, 10])
def test_shared_noise_adds_up_to_all_of_it(parties):
    one = steps_of_noise(5, 1.7, 1)
    assert one <= parties * steps_of_noise(5, 1.7, parties) < one + parties
    # The noise on the diagonal, whose sensitivity is that of the whole release.
    assert 2 * one >= (1.7 * STEPS) ** 2


ROWS = {
    "usual": lambda rng, d: rng.normal(size=d),
    "large": lambda rng, d: 1e6 * rng.normal(size=d),
    "huge": lambda rng, d: np.full(d, 1e300) * rng.choice([-1, 1], d),
    "one column": lambda rng, d: np.where(np.arange(d) == 0, 1e9, 0.0),
    "at the centre": lambda rng, d: np.full(d, 3.0),
    "infinite": lambda rng, d: np.where(np.arange(d) == d - 1, np.inf, 1.0),
    "missing": lambda rng, d: np.where(np.arange(d) == 0, np.nan, 1.0),
    "nearly infinite": lambda rng, d: np.full(d, np.finfo(float).max),
}


@pytest.mark.parametrize("d", [1, 4, 12])
@pytest.mark.parametrize("row", ROWS)
def test_no_row_changes_the_products_by_more_than_the_sensitivity(row, d):
    rng = np.random.default_rng(d)
    table, centers, scales = rng.normal(size=(50, d)), np.full(d, 3.0), rng.uniform(1e-3, 9, d)
    added = np.vstack([table, ROWS[row](rng, d)])
    change = products_of([added], centers, scales) - products_of([table], centers, scales)
    norm = np.linalg.norm(change)
    assert norm <= STEPS + 2 * (1 + d)
    if row in ("infinite", "missing"):
        assert norm == 0
    if row in ("huge", "one column", "large"):
        assert norm > 0.999 * STEPS  # the sensitivity is no larger than it must be
    if row == "at the centre":
        assert change[0, 0] == pytest.approx(STEPS * CONSTANT**2 / (1 + CONSTANT**2), abs=2)


def test_a_row_changes_one_count_of_each_column():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(30, 4))
    added = np.vstack([table, [1e300, 0.0, -1e-300, 5.0]])
    change = octaves_of([added]) - octaves_of([table])
    assert change.sum() == 4
    assert np.linalg.norm(change) == 2 <= np.sqrt(4)
    assert not (octaves_of([np.vstack([table, [np.nan, 1, 1, 1]])]) - octaves_of([table])).any()
    assert variance_of_counts(4, 3.0, 2) == 18


def test_without_noise_the_moments_are_those_of_the_rows():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3)) + [5.0, 0.0, -2.0]
    centers, scales = np.array([4.0, 0.0, -2.0]), np.full(3, 6.0)
    norms = np.linalg.norm((rows - centers) / scales, axis=1)
    assert (norms < clipping_norm(3)).all()
    products = products_of([rows[:100], rows[100:]], centers, scales)
    found = read(products, 0.0, centers, scales)
    assert found.rows == pytest.approx(400, rel=1e-6)
    assert found.effective_rows == pytest.approx(400, rel=1e-6)
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(found.second, np.cov(rows.T, bias=True), atol=1e-3)


def test_noise_makes_rows_worth_less_and_covariances_stay_positive():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(500, 6)) @ np.triu(rng.normal(size=(6, 6)))
    products, ones = products_of([rows], np.zeros(6), np.ones(6)), np.ones(6)
    worth = []
    for multiplier in (0.01, 0.1, 1.0):
        variance = steps_of_noise(6, multiplier, 1)
        found = read(products + noise_of(6, variance, below), variance, np.zeros(6), ones)
        floor = np.sqrt(6 * variance) * sensitivity(6) / STEPS / found.rows
        assert np.linalg.eigvalsh(found.second).min() >= 0.99 * floor
        worth.append(found.effective_rows)
    assert 500 > worth[0] > worth[1] > worth[2]


def test_more_noise_than_rows_is_an_error():
    products = products_of([np.ones((3, 2))], np.zeros(2), np.ones(2))
    with pytest.raises(DataError, match="no more than its noise: add rows, raise epsilon"):
        read(products, steps_of_noise(2, 20.0, 1), np.zeros(2), np.ones(2))


def test_scales_are_estimated_from_noisy_octaves():
    rng = np.random.default_rng(4)
    deviations = np.array([1e-7, 0.3, 1.0, 5e8])
    counts = octaves_of([rng.normal(size=(3000, 4)) * deviations])
    variance = 30**2
    noisy = counts + rng.normal(scale=30, size=counts.shape).astype(np.int64)
    estimated = scales_of(noisy, variance, "abcd")
    np.testing.assert_allclose(estimated, deviations, rtol=0.25)
    with pytest.raises(DataError, match="column 'b': the rows are too few to estimate its scale"):
        scales_of(np.vstack([noisy[0], noisy[1] // 1000]), variance, "ab")


@pytest.mark.parametrize(
    "stated",
    ["x=2, y = 10:3", '{"x": 2, "y": [10, 3]}', {"x": 2, "y": (10, 3.0)}],
)
def test_scales_are_stated_as_text_or_mapping(stated):
    assert scales_by_column(stated) == {"x": (0.0, 2.0), "y": (10.0, 3.0)}


@pytest.mark.parametrize(
    "stated",
    [
        *("x=1:2:auto", {"x": ("auto", 1)}, {"x": (1, "other")}),
        *("x", "x=0", "x=-1", "x=1:2:3", "x=nan", "x=inf", "x=nan:1", "x=inf:1", "[1]", "{"),
        *({"x": None}, {1: 2.0}, {"x": []}),
    ],
)
def test_scales_that_are_none_are_refused(stated):
    with pytest.raises(ConfigError, match=r"'scales' (is|has)"):
        scales_by_column(stated)


def test_a_scale_may_be_estimated_about_a_stated_centre():
    stated = scales_by_column("x=5:auto, y=2")
    assert (
        stated == scales_by_column({"x": (5, "auto"), "y": 2}) == scales_by_column(as_text(stated))
    )
    assert lacking_scales("xyz", stated) == ["x", "z"]
    assert stated_centers("xz", stated).tolist() == [5.0, 0.0]
    found = Scaling.of("xyz", stated, np.array([7.0, 8.0]))
    np.testing.assert_array_equal(found[:2], [[5, 0, 0], [7, 2, 8]])
    assert as_text({}) is None


def test_scales_that_are_stated_are_kept_and_the_others_estimated():
    stated = {"b": (10.0, 3.0)}
    assert Scaling.of(("a", "b", "c"), stated, None) is None
    found = Scaling.of(("a", "b", "c"), stated, np.array([2.0, 5.0]))
    np.testing.assert_array_equal(found[:2], [[0, 10, 0], [2, 3, 5]])
    np.testing.assert_array_equal(Scaling.of(("b",), stated, None)[:2], [[10], [3]])
    with pytest.raises(ValueError, match="shorter"):
        Scaling.of(("a", "b"), stated, np.zeros(0))
    assert scales_by_column(None) == scales_by_column("") == {}


def indicators(k):
    """The columns of all states of a category."""
    return np.eye(k)[:, :-1]


@pytest.mark.parametrize("k", range(2, 9))
def test_the_columns_of_a_category_have_the_smallest_largest_norm(k):
    center, scale = of_indicators(k)
    norms = (((indicators(k) - center) / scale) ** 2).sum(axis=1)
    assert norms.max() == pytest.approx(CATEGORY)
    for other in np.linspace(0, 1, 101):
        largest = ((indicators(k) - other) ** 2).sum(axis=1).max()
        assert largest >= CATEGORY * scale**2 - 1e-12


def test_places_give_scales():
    for k in (2, 3, 7):
        assert of_places(k) == pytest.approx((np.arange(k).mean(), np.arange(k).std()))


CELLS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.integers(-2, 6).map(float), st.just(0.5)
)


@given(data=st.data(), states=st.lists(st.sampled_from([0, 2, 3, 5]), min_size=1, max_size=5))
def test_no_row_of_numbers_and_states_changes_more_than_the_sensitivity(data, states):
    """Whatever a row holds, and whatever centres and scales a server sends."""
    w = sum(count - 1 if count else 1 for count in states)
    row = data.draw(st.lists(CELLS, min_size=len(states), max_size=len(states)))
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.integers(0, max(count, 5), 20) for count in states]).astype(float)
    honest = Scaling.of(
        [*map(str, range(len(states)))], {str(j): (0.5, 2.0) for j in range(9)}, None, states
    )
    centers = data.draw(st.sampled_from([honest.centers, np.full(w, -7.0), np.zeros(w)]))
    scales = data.draw(st.sampled_from([honest.scales, np.full(w, 1e-9), np.full(w, 1e6)]))
    before = products_of([table], centers, scales, states)
    after = products_of([np.vstack([table, row])], centers, scales, states)
    change = np.linalg.norm((after - before).astype(float))
    assert change <= STEPS + 2 * (1 + w)
    if not np.isfinite(row).all():
        assert change == 0


def test_the_sensitivity_is_attained_and_states_are_not_shortened():
    states = (0, 2, 3)
    scaling = Scaling.of("abc", {"a": (0.0, 1.0)}, None, states)
    row = np.array([[1e9, 0.0, 1.0]])
    products = products_of([row], *scaling)
    assert np.linalg.norm(products.astype(float)) > 0.999999 * STEPS
    constant = CONSTANT * clipping_norm(3)
    z = products[0, 1:] * sensitivity(3) / STEPS / constant
    (two, three) = of_indicators(2), of_indicators(3)
    expected = [(1 - two[0]) / two[1], (0 - three[0]) / three[1], (1 - three[0]) / three[1]]
    np.testing.assert_allclose(z[1:], expected, atol=1e-5)
    assert z[0] == pytest.approx(np.sqrt(clipping_norm(3) ** 2 - 2 * CATEGORY), abs=1e-5)


def table_of(rng, n, shares):
    """A number that depends on the state of a category of these shares."""
    codes = rng.choice(len(shares), n, p=shares)
    return np.column_stack([codes - 1 + rng.normal(size=n), codes]).astype(float)


def test_without_noise_the_moments_are_those_of_the_columns():
    rows, states = table_of(np.random.default_rng(1), 4000, (0.2, 0.3, 0.5)), (0, 3)
    scaling = Scaling.of("ab", {"a": (0.0, 3.0)}, None, states)
    found = read(products_of([rows], *scaling), 0.0, *scaling, names="ab")
    columns = np.column_stack([rows[:, 0], rows[:, 1] == 0, rows[:, 1] == 1])
    np.testing.assert_array_equal(number_columns(states, 3), [True, False, False])
    np.testing.assert_allclose(found.mean, columns.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(found.second, np.cov(columns.T, bias=True), atol=1e-3)
    assert found.effective_rows == pytest.approx(4000, rel=1e-6)


@pytest.mark.parametrize(
    ("shares", "kept"),
    [
        ((0.4, 0.6, 0, 0), [0]),
        ((0, 0, 0.5, 0.5), [2]),
        ((0.3, 0.7, 0, 0), [0]),
        ((0, 0.2, 0.3, 0.5), [1, 2]),
    ],
)
def test_states_without_rows_are_left_out_and_cost_no_effective_rows(shares, kept):
    rng, states, n = np.random.default_rng(5), (0, 4), 4000
    scaling = Scaling.of("ab", {"a": (0.0, 2.0)}, None, states)
    variance = steps_of_noise(4, 3.0, 1)
    products = products_of([table_of(rng, n, shares)], *scaling) + noise_of(4, variance, below)
    found = read(products, variance, *scaling, names="ab")
    assert np.flatnonzero(np.diagonal(found.second)[1:]).tolist() == kept
    few = np.array([share for share in shares if share])
    other = Scaling.of("ab", {"a": (0.0, 2.0)}, None, (0, len(few)))
    least = steps_of_noise(len(few), 3.0, 1)
    own = products_of([table_of(rng, n, few)], *other) + noise_of(len(few), least, below)
    expected = read(own, least, *other, names="ab").effective_rows
    assert 0.4 < found.effective_rows / expected < 2.5


def test_a_category_of_one_state_is_named():
    states = (0, 3)
    scaling = Scaling.of("ab", {"a": (0.0, 2.0)}, None, states)
    variance = steps_of_noise(3, 3.0, 1)
    rows = table_of(np.random.default_rng(5), 3000, (1.0, 0.0, 0.0))
    products = products_of([rows], *scaling) + noise_of(3, variance, below)
    with pytest.raises(DataError, match="column 'b': no two of its states can be told"):
        read(products, variance, *scaling, names="ab")
