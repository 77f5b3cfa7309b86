"""Cut points from summed counts: as even as can be, and the same for every split of the rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.discrete.cut_points import (
    MAX_EXCHANGES,
    TOLERANCE,
    count_up_to,
    cut_points,
    finished,
    init,
    inside,
    second_search,
    step,
    thresholds,
)
from flwr_causal.errors import DataError


def agree_on(parts, num_bins, whole=None):
    """Run all exchanges over the parties' rows, moments pooled from the rows."""
    rows = np.concatenate(parts)
    state = init(rows.mean(axis=0), rows.var(axis=0), num_bins, len(rows), whole)
    while not finished(state):
        asked = thresholds(state)
        state = step(state, sum(count_up_to(part, asked) for part in parts))
    return state, cut_points(state)


def one_column(values, num_bins, whole=False):
    state, (cuts,) = agree_on([values[:, None]], num_bins, np.array([whole]))
    return state, cuts


def sample(kind, rows=4000, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "normal": rng.standard_normal(rows),
        "offset": 1e8 + rng.standard_normal(rows),
        "small": 1e-9 * rng.standard_normal(rows),
        "large": 1e140 * rng.standard_normal(rows),
        "uniform": rng.random(rows),
        "lognormal": np.exp(2 * rng.standard_normal(rows)),
        "cauchy": rng.standard_cauchy(rows),
        "pareto": rng.pareto(0.7, rows),
        "outlier": np.append(1e9, rng.standard_normal(rows - 1)),
    }[kind]


KINDS = [
    "normal",
    "offset",
    "small",
    "large",
    "uniform",
    "lognormal",
    "cauchy",
    "pareto",
    "outlier",
]


@pytest.mark.parametrize("num_bins", [2, 5, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_cut_points_are_numpys_quantiles_within_the_tolerance(kind, num_bins):
    values = sample(kind)
    state, cuts = one_column(values, num_bins)
    shares = np.arange(1, num_bins) / num_bins
    allowed = TOLERANCE / num_bins + 1 / len(values)
    assert len(cuts) == num_bins - 1
    assert (np.quantile(values, shares - allowed) <= cuts).all()
    assert (cuts <= np.quantile(values, shares + allowed)).all()
    assert state.exchange < MAX_EXCHANGES


def test_two_or_three_exchanges_do_for_columns_without_far_outliers():
    exchanges = {kind: one_column(sample(kind), 5)[0].exchange for kind in KINDS}
    for kind in ("normal", "offset", "small", "large", "uniform", "lognormal", "cauchy"):
        assert exchanges[kind] <= 3, kind


def best_misses(values, num_bins):
    """For each quantile the fewest rows by which any cut at all misses it, by trying all."""
    counts = np.append(0, np.cumsum(np.unique(values, return_counts=True)[1]))
    targets = np.arange(1, num_bins) * len(values) / num_bins
    return np.abs(counts - targets[:, None]).min(axis=1), counts


WHOLE = {
    "uniform": lambda rng: rng.integers(0, 90, 3000),
    "far": lambda rng: rng.integers(-(10**9), 10**9, 3000),
    "poisson": lambda rng: rng.poisson(2.0, 3000),
    "large": lambda rng: rng.poisson(300.0, 3000),
    "skewed": lambda rng: np.floor(np.exp(3 * rng.standard_normal(3000))),
    "zeros": lambda rng: rng.integers(1, 200, 3000) * (rng.random(3000) < 0.3),
}


@pytest.mark.parametrize("num_bins", [2, 3, 5, 10])
@pytest.mark.parametrize("kind", WHOLE)
def test_whole_numbers_are_cut_as_evenly_as_any_cut_could(kind, num_bins):
    values = WHOLE[kind](np.random.default_rng(1)).astype(np.float64)
    _, cuts = one_column(values, num_bins, whole=True)
    assert (cuts == np.floor(cuts)).all()
    best, _ = best_misses(values, num_bins)
    targets = np.arange(1, num_bins) * len(values) / num_bins
    reached = np.append([0, len(values)], [(values <= cut).sum() for cut in cuts])
    missed = np.abs(reached - targets[:, None]).min(axis=1)
    allowed = max(0.5, TOLERANCE * len(values) / num_bins)
    assert (missed <= np.maximum(best, allowed) + 1e-9).all()


@pytest.mark.parametrize(
    ("shared", "share", "num_bins", "bins"),
    [(0.0, 0.6, 2, 2), (0.0, 0.7, 5, 3), (7.0, 0.99, 5, 2), (-2.5, 0.8, 4, 2), (1e6, 0.7, 3, 2)],
)
def test_a_value_that_many_rows_share_is_found_at_once(shared, share, num_bins, bins):
    rng = np.random.default_rng(3)
    values = shared + np.where(rng.random(4000) < share, 0.0, np.exp(rng.standard_normal(4000)))
    state, cuts = one_column(values, num_bins)
    assert state.exchange <= 3
    assert len(cuts) + 1 == bins
    # All rows with that value are in the first bin, and only they.
    assert (values <= cuts[0]).sum() == (values == shared).sum()


def test_no_bin_is_empty_and_cuts_are_different():
    rng = np.random.default_rng(0)
    for values in (
        np.round(rng.normal(0, 5, 800) * 2) / 2,
        np.round(rng.gamma(2, 10, 800), 1),
        np.where(rng.random(800) < 0.95, 3.3, rng.standard_normal(800)),
        np.array([1.5, 2.5]),
    ):
        for num_bins in (2, 4, 20):
            _, cuts = one_column(values, num_bins)
            assert (np.diff(cuts) > 0).all()
            sizes = np.bincount(np.searchsorted(cuts, values), minlength=len(cuts) + 1)
            assert (sizes > 0).all()


def test_a_constant_column_is_not_cut():
    _, cuts = one_column(np.full(50, 0.1), 4)
    assert cuts.shape == (0,)


def test_small_tables_are_cut_into_exact_bins():
    values = np.random.default_rng(5).standard_normal(40)
    _, cuts = one_column(values, 4)
    assert np.bincount(np.searchsorted(cuts, values)).tolist() == [10, 10, 10, 10]


def test_cut_points_are_short_numbers():
    _, cuts = one_column(sample("normal"), 5)
    assert max(len(repr(cut)) for cut in cuts.tolist()) <= 7


COLUMNS = st.sampled_from(["normal", "lognormal", "cauchy", "offset"])


@given(
    kinds=st.lists(COLUMNS, min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 300), max_size=5),
    num_bins=st.integers(2, 7),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_split_of_the_rows_does_not_matter(kinds, cuts, num_bins, seed):
    rows = np.stack([sample(kind, 300, seed + k) for k, kind in enumerate(kinds)], axis=1)
    rng = np.random.default_rng(seed)
    parts = np.split(rng.permutation(rows), sorted(cuts))
    _, pooled = agree_on([rows], num_bins)
    # The moments are rounded otherwise where they are pooled from parts.
    noise = 1 + 4e-16 * rng.standard_normal((2, rows.shape[1]))
    state = init(rows.mean(axis=0) * noise[0], rows.var(axis=0) * noise[1], num_bins, len(rows))
    while not finished(state):
        asked = thresholds(state)
        state = step(state, sum(count_up_to(part, asked) for part in parts))
    for one, other in zip(pooled, cut_points(state), strict=True):
        np.testing.assert_array_equal(one, other)


def test_columns_may_have_different_numbers_of_rows():
    """Where values are missing the bins are even in those that are there."""
    rng = np.random.default_rng(8)
    columns = [rng.normal(3.0, 1.0, 4000), rng.lognormal(0.0, 1.0, 300), rng.normal(0.0, 9.0, 11)]
    mean, variance = (np.array([f(c) for c in columns]) for f in (np.mean, np.var))
    rows = np.array([len(column) for column in columns])
    state = init(mean, variance, 4, rows)
    np.testing.assert_array_equal(state.targets, rows[:, None] / 4 * [1, 2, 3])
    while not finished(state):
        asked = thresholds(state)
        answers = [count_up_to(c[:, None], asked[j : j + 1])[0] for j, c in enumerate(columns)]
        state = step(state, np.array(answers))
    for column, cuts in zip(columns, cut_points(state), strict=True):
        sizes = np.bincount(np.searchsorted(cuts, column))
        assert len(sizes) == 4
        np.testing.assert_allclose(sizes, len(column) / 4, atol=2 * TOLERANCE * len(column) / 4 + 1)
    with pytest.raises(DataError, match="at least 1"):
        init(mean, variance, 4, np.array([4000, 0, 11]))
    counts = np.tile(rows[:, None], thresholds(init(mean, variance, 4, rows)).shape[1])
    counts[2] += 1
    with pytest.raises(DataError, match="must not descend"):
        step(init(mean, variance, 4, rows), counts)


def test_rows_that_a_lost_party_had_of_one_column_are_forgotten():
    rng = np.random.default_rng(2)
    columns = [[rng.normal(0, 1, 900), rng.normal(50, 3, 600)], [rng.normal(0, 1, 500), None]]
    mean = np.array([np.concatenate(columns[0]).mean(), columns[1][0].mean()])
    variance = np.array([np.concatenate(columns[0]).var(), columns[1][0].var()])
    state = init(mean, variance, 4, np.array([1500, 500]))
    while not finished(state):
        asked = thresholds(state)
        first = state.exchange < 1
        counts = [
            sum(
                count_up_to(part[:, None], asked[j : j + 1])[0]
                for part in (parts if first else parts[:1])
                if part is not None
            )
            for j, parts in enumerate(columns)
        ]
        state = step(state, np.array(counts), np.array([1500 if first else 900, 500]))
    for (kept, _), cuts in zip(columns, cut_points(state), strict=True):
        sizes = np.bincount(np.searchsorted(cuts, kept))
        np.testing.assert_allclose(sizes, len(kept) / 4, atol=2 * TOLERANCE * len(kept) / 4 + 1)


@pytest.mark.parametrize("exchange", [1, 2])
def test_a_party_that_is_lost_on_the_way_is_forgotten(exchange):
    rng = np.random.default_rng(2)
    stays, leaves = rng.normal(0, 1, (900, 1)), rng.normal(50, 3, (600, 1))
    rows = np.concatenate([stays, leaves])
    state = init(rows.mean(axis=0), rows.var(axis=0), 4, len(rows))
    while not finished(state):
        asked = thresholds(state)
        parts = [stays, leaves] if state.exchange < exchange else [stays]
        counts = sum(count_up_to(part, asked) for part in parts)
        state = step(state, counts, num_rows=sum(map(len, parts)))
    (cuts,) = cut_points(state)
    sizes = np.bincount(np.searchsorted(cuts, stays[:, 0]))
    np.testing.assert_allclose(sizes, 225, atol=225 * 2 * TOLERANCE)


def test_moments_that_do_not_fit_the_rows_only_cost_exchanges():
    values = np.random.default_rng(4).normal(1000.0, 1.0, (2000, 1))
    state = init(np.zeros(1), np.ones(1), 4, 2000)
    while not finished(state):
        state = step(state, count_up_to(values, thresholds(state)))
    (cuts,) = cut_points(state)
    np.testing.assert_allclose(cuts, np.quantile(values, [0.25, 0.5, 0.75]), atol=0.02)


def test_thresholds_ascend_and_a_step_changes_no_state():
    values = np.stack([sample("cauchy", 500), sample("uniform", 500)], axis=1)
    state = init(values.mean(axis=0), values.var(axis=0), 6, 500)
    while not finished(state):
        asked = thresholds(state)
        assert (np.diff(asked, axis=1) >= 0).all()
        assert np.isfinite(asked).all()
        later = step(state, count_up_to(values, asked))
        assert later.exchange == state.exchange + 1
        np.testing.assert_array_equal(thresholds(state), asked)
        state = later


def test_counts_are_of_rows_at_most_the_threshold():
    rows = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 6.0]])
    asked = np.array([[0.0, 1.0, 2.5], [4.0, 5.0, 9.0]])
    assert count_up_to(rows, asked).tolist() == [[0, 1, 2], [0, 2, 3]]
    assert count_up_to(rows[:0], asked).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_what_cannot_be_is_refused():
    with pytest.raises(DataError, match="report the sums"):
        init(np.array([np.nan]), np.array([1.0]), 3, 10)
    with pytest.raises(DataError, match="10 rows cannot be cut into 1 bins"):
        init(np.zeros(1), np.ones(1), 1, 10)
    state = init(np.zeros(1), np.ones(1), 3, 10)
    counts = np.zeros(thresholds(state).shape, dtype=np.int64)
    with pytest.raises(DataError, match="counts have shape"):
        step(state, counts[:, :-1])
    with pytest.raises(DataError, match="between 0 and 10"):
        step(state, counts + 11)
    falling = counts.copy()
    falling[0, 0] = 1
    with pytest.raises(DataError, match="must not descend"):
        step(state, falling)


def test_a_value_that_many_rows_share_gets_a_bin_apart():
    """Nine of ten rows are 0: the others get bins of their own, as even as without these."""
    rng = np.random.default_rng(0)
    gains = np.where(rng.random(20000) < 0.9, 0.0, np.exp(rng.normal(5, 1, 20000)))
    debts = np.where(rng.random(20000) < 0.6, 7.5, rng.normal(7, 2, 20000))
    plain = rng.normal(size=20000)
    rows = np.column_stack([gains, debts, plain])

    def searched(state):
        while not finished(state):
            state = step(state, count_up_to(rows, thresholds(state)))
        return state

    first = searched(init(rows.mean(axis=0), rows.var(axis=0), 16, len(rows)))
    assert len(cut_points(first)[0]) <= 3
    second = second_search(first)
    assert second is not None
    cuts = cut_points(searched(second))
    assert [len(own) for own in cuts] == [15, 15, 15]
    bins = [np.bincount(np.searchsorted(c, r)) for c, r in zip(cuts, rows.T, strict=True)]
    assert bins[0].max() == (gains == 0).sum()
    assert abs(bins[1].max() - (debts == 7.5).sum()) < 30
    for own in bins[:2]:
        others = np.delete(own, own.argmax())
        assert others.max() < 1.3 * others.mean()
    assert bins[2].max() < 1.1 * bins[2].mean()


def apart(values, num_bins=16, whole=False, parts=1):
    """The cut points of one column with shared values apart, and what is inside of the bins."""
    tables = np.array_split(np.asarray(values, dtype=np.float64)[:, None], parts)
    n = sum(map(len, tables))
    mean = sum(table.sum(axis=0) for table in tables) / n
    variance = sum(((table - mean) ** 2).sum(axis=0) for table in tables) / n

    def searched(state):
        while not finished(state):
            asked = thresholds(state)
            assert (np.diff(asked, axis=1) >= 0).all()
            state = step(state, sum(count_up_to(table, asked) for table in tables))
        return state

    state = searched(init(mean, variance, num_bins, n, np.array([whole]), apart=True))
    again = second_search(state)
    state = state if again is None else searched(again)
    return cut_points(state)[0], inside(state, mean, variance)[0]


def shares_of(values, cuts):
    return np.bincount(np.searchsorted(cuts, values), minlength=len(cuts) + 1) / len(values)


@pytest.mark.parametrize("turned", [1, -1])
@pytest.mark.parametrize(
    ("draw", "within"),
    [("normal", 0.02), ("exponential", 0.045), ("uniform", 0.012), ("laplace", 0.08)],
)
@pytest.mark.parametrize("num_bins", [8, 16, 32])
def test_means_of_the_outermost_bins_are_those_of_their_rows(draw, within, turned, num_bins):
    values = turned * getattr(np.random.default_rng(1), draw)(size=30_000)
    cuts, known = apart(values, num_bins)
    spread = values.std()
    low, high = known[0][0], known[-1][0]
    assert low == pytest.approx(values[values <= cuts[0]].mean(), abs=2 * within * spread)
    assert high == pytest.approx(values[values > cuts[-1]].mean(), abs=2 * within * spread)


IMPUTED = 29.69911764705882
GROUPS = np.random.default_rng(0).integers(0, 3, 3000)


def with_shared(value, share, rng, others):
    return np.where(rng.random(3000) < share, value, others)


#: Kind -> values, whether they are whole, and the values that many rows share.
SHARED = {
    "zero inflated": lambda r: (with_shared(0.0, 0.6, r, r.exponential(100, 3000)), False, [0.0]),
    "whole": lambda r: (with_shared(0, 0.6, r, r.integers(1, 900, 3000)), True, [0.0]),
    "largest": lambda r: (with_shared(5.0, 0.4, r, -r.exponential(1, 3000)), False, [5.0]),
    "imputed": lambda r: (
        with_shared(29.699117647058, 0.2, r, r.normal(30, 13, 3000)),
        False,
        [29.699117647058],
    ),
    "three groups": lambda r: (
        np.where(GROUPS == 0, 1 / 3, np.where(GROUPS == 1, r.normal(size=3000), -np.pi)),
        False,
        [-np.pi, 1 / 3],
    ),
    "two values": lambda r: (with_shared(1 / 3, 0.5, r, 1 / 7), False, [1 / 7, 1 / 3]),
    "far": lambda r: (1e8 + with_shared(0.0, 0.6, r, r.exponential(1, 3000)), False, [1e8]),
    "nearly all": lambda r: (with_shared(7.3, 0.98, r, r.normal(size=3000)), False, [7.3]),
    "capped": lambda r: (np.minimum(r.exponential(1, 3000), 1.5), False, [1.5]),
}


@pytest.mark.parametrize("num_bins", [16, 32])
@pytest.mark.parametrize("kind", SHARED)
def test_a_value_that_many_rows_share_is_the_only_one_of_its_bin(kind, num_bins):
    values, whole, shared = SHARED[kind](np.random.default_rng(3))
    cuts, known = apart(values, num_bins, whole)
    shares = shares_of(values, cuts)
    assert (shares > 0).all()
    for value in shared:
        k = [mean for mean, _ in known].index(value)  # exactly
        assert known[k][1] == 0
        assert shares[k] == pytest.approx((values == value).mean(), abs=1e-12)


def test_a_bin_as_narrow_as_the_numbers_can_be_has_its_mean_within():
    """Of few rows with one decimal many values are shared, and bins lie between them."""
    for seed in range(20):
        values = np.round(np.random.default_rng(seed).normal(5.8, 0.8, 112), 1)
        cuts, known = apart(values, 16)
        means = np.array([mean for mean, _ in known])
        assert (np.append(-np.inf, cuts) < means).all()
        assert (means <= np.append(cuts, np.inf)).all()


MOMENTS = {**SHARED, **{k: lambda r, k=k: (sample(k, 3000), False, []) for k in KINDS}}
MOMENTS["counts"] = lambda r: (r.poisson(20, 3000), True, [])
MOMENTS["few counts"] = lambda r: (r.poisson(2, 3000), True, [])
MOMENTS["rounded"] = lambda r: (np.round(r.normal(size=3000), 1), False, [])


@pytest.mark.parametrize("kind", MOMENTS)
def test_bins_have_the_mean_and_variance_of_the_column(kind):
    values, whole, _ = MOMENTS[kind](np.random.default_rng(3))
    cuts, known = apart(values, 16, whole)
    shares, (means, deviations) = shares_of(values, cuts), np.array(known).T
    mean = shares @ means
    variance = shares @ (deviations**2 + (means - mean) ** 2)
    # Where both outermost bins hold one value, the bins between them cannot make up for it.
    assert mean == pytest.approx(values.mean(), abs=0.03 * values.std())
    assert variance == pytest.approx(values.var(), rel=0.05)
    bounds = np.concatenate(([-np.inf], cuts, [np.inf]))
    assert (bounds[:-1] < means).all()
    assert (means <= bounds[1:]).all()


@pytest.mark.parametrize("kind", ["zero inflated", "three groups", "lognormal", "counts"])
def test_shared_values_follow_from_the_split_of_no_row(kind):
    values, whole, _ = MOMENTS[kind](np.random.default_rng(3))
    (cuts, known), (others, again) = (apart(values, 16, whole, parts) for parts in (1, 7))
    np.testing.assert_array_equal(cuts, others)
    assert known == again


def test_what_few_rows_share_is_not_pinned_down():
    values = np.append(np.random.default_rng(0).normal(size=40), [np.pi] * 4)
    _, known = apart(values)
    assert all(deviation > 0 for _, deviation in known)


def test_a_constant_has_no_cut_and_its_own_mean():
    cuts, known = apart(np.full(50, 3.0))
    assert cuts.shape == (0,)
    assert known == ((3.0, 0.0),)
