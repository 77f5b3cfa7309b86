"""The conditional Gaussian score against densities, and against the scores of its special cases."""

import numpy as np
import pandas as pd
import pytest
from category_federations import random_rows
from scipy.stats import multivariate_normal

from flwr_causal.core.discrete.families import empty_families, row_of
from flwr_causal.core.discrete.mixed_moments import (
    WEIGHT,
    FlatSums,
    MixedTable,
    as_mixed,
    flattened,
    impossible,
    mixed_sums,
    restored,
)
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.ges.mixed_gains import MixedTableGains, SummedMixedGains
from flwr_causal.core.ges.moment_gains import MomentGains
from flwr_causal.core.linear.moments import Moments
from flwr_causal.errors import DataError

CARDS = (3, 0, 2, 0, 0)
SETS = [(0, 1), (1, 2, 3), (0, 1, 2, 3, 4), (0, 2), (1, 4), ()]


def mixed_rows(n=400, seed=0, cards=CARDS):
    """Numbers that depend on the categories and on each other."""
    rng = np.random.default_rng(seed)
    cards = np.array(cards)
    codes = np.array([rng.integers(0, max(card, 1), n) for card in cards], dtype=np.uint8)
    values = rng.normal(size=(len(cards), n)) + 0.7 * codes.sum(axis=0)
    values = np.cumsum(values, axis=0) * (1 + codes[0])
    return MixedTable(cards, codes, np.where(cards[:, None] > 0, 0.0, values))


def parts_of(table, ends):
    return [
        MixedTable(table.cards, table.codes[:, a:b], table.values[:, a:b])
        for a, b in zip((0, *ends), (*ends, table.num_rows), strict=True)
    ]


def slow_log_likelihood(table, members):
    """Row by row, from the frequency and the shrunk covariance of the row's configuration."""
    categories = [k for k in members if table.cards[k]]
    numbers = [k for k in members if not table.cards[k]]
    total = 0.0
    overall = np.atleast_2d(np.cov(table.values[numbers], bias=True)) if numbers else None
    for cell in set(map(tuple, table.codes[categories].T)):
        inside = (cell == table.codes[categories].T).all(axis=1)
        n = inside.sum()
        total += n * np.log(n / table.num_rows)
        if numbers:
            rows = table.values[numbers][:, inside]
            own = np.atleast_2d(np.cov(rows, bias=True))
            shrunk = (n * own + WEIGHT * overall) / (n + WEIGHT)
            density = multivariate_normal(rows.mean(axis=1), shrunk)
            total += density.logpdf(rows.T).sum()
    return total


@pytest.mark.parametrize("members", SETS[:-1])
@pytest.mark.parametrize("n", [12, 400])
def test_the_likelihood_is_that_of_the_rows(members, n):
    table = mixed_rows(n)
    found = mixed_sums(table, members).log_likelihood()
    assert found == pytest.approx(slow_log_likelihood(table, members), rel=1e-8)


def test_parameters_are_counted_by_configuration():
    part = mixed_sums(mixed_rows(), (0, 1, 2, 3))
    # Six configurations: five probabilities, and each two means and three (co)variances.
    assert part.num_parameters() == 5 + 6 * (2 + 3)
    n = 400
    assert part.score() == pytest.approx(part.log_likelihood() - 0.5 * np.log(n) * 35)
    assert mixed_sums(mixed_rows(), ()).score() == 0.0


def test_without_some_members_it_is_the_smaller_set():
    table = mixed_rows(60)
    whole = mixed_sums(table, range(5))
    for members in SETS:
        part = whole.without([k for k in range(5) if k not in members])
        own = mixed_sums(table, members)
        assert (part.categories, part.numbers) == (own.categories, own.numbers)
        np.testing.assert_array_equal(part.counts, own.counts)
        np.testing.assert_allclose(part.products, own.products)
        assert part.log_likelihood() == pytest.approx(own.log_likelihood())


def test_sums_of_parties_are_those_of_all_rows():
    table = mixed_rows(90, seed=3)
    flat = [flattened([mixed_sums(p, own) for own in SETS]) for p in parts_of(table, (1, 30))]
    total = FlatSums(*(sum(own) for own in zip(*flat, strict=True)))
    for members, part in zip(SETS, restored(total, table.cards, SETS), strict=True):
        whole = mixed_sums(table, members)
        assert part.members == tuple(members)
        np.testing.assert_array_equal(part.counts, whole.counts)
        assert part.score() == pytest.approx(whole.score(), rel=1e-10)


def gain(source, d, y, given, x):
    families, row = row_of(empty_families(d), y, given)
    wanted = np.zeros((1, d), dtype=bool)
    wanted[0, x] = True
    source.fill(families, np.array([row]), wanted)
    return families.gains[row, x]


CASES = [(0, [], 1), (1, [0], 2), (3, [0, 2], 4), (4, [0, 1, 3], 2), (2, [1, 3, 4], 0)]


@pytest.mark.parametrize(("y", "given", "x"), CASES)
def test_only_numbers_is_the_gaussian_bic(y, given, x):
    table = mixed_rows(300, cards=(0,) * 5)
    gaussian = MomentGains(Moments.from_rows(table.values.T, tuple("abcde")))
    expected = gain(gaussian, 5, y, given, x)
    # The ridge is a ten-thousandth of a millionth.
    assert gain(MixedTableGains(table), 5, y, given, x) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("y", "given", "x"), CASES)
def test_only_categories_is_the_multinomial_bic(y, given, x):
    rows = random_rows((2, 3, 4, 2, 3), 300, seed=1)
    table = MixedTable(rows.cardinalities, rows.codes, np.zeros(rows.codes.shape))
    expected = gain(TableGains(rows, "bic"), 5, y, given, x)
    assert gain(MixedTableGains(table), 5, y, given, x) == pytest.approx(expected)


@pytest.mark.parametrize(("y", "given", "x"), CASES)
def test_units_do_not_matter_and_a_gain_is_symmetric(y, given, x):
    table = mixed_rows(25, seed=5)
    scale = np.array([1.0, 1e4, 1.0, 1e-3, 7.0])[:, None]
    other = table._replace(values=table.values * scale + 3 * scale * (table.cards == 0)[:, None])
    one = gain(MixedTableGains(table), 5, y, given, x)
    assert gain(MixedTableGains(other), 5, y, given, x) == pytest.approx(one, abs=1e-4)
    assert gain(MixedTableGains(table), 5, x, given, y) == pytest.approx(one, abs=1e-8)


def test_a_server_knows_the_gains_within_a_set():
    table = mixed_rows(200)
    source = SummedMixedGains(table.cards, table.num_rows)
    source.learn_moments([mixed_sums(table, (0, 1, 2, 3))])
    rows = MixedTableGains(table)
    for y, given, x in ((0, [1, 2], 3), (3, [0, 1], 2)):
        assert gain(source, 5, y, given, x) == pytest.approx(gain(rows, 5, y, given, x))
    assert len(source.asked) == 0
    gain(source, 5, 0, [1], 4)
    assert len(source.asked) == 1
    assert source.moments([0, 4]) is None
    assert source.moments([2, 0]).categories == (0, 2)


def test_few_rows_and_collinear_numbers_have_finite_scores():
    table = mixed_rows(3)
    assert np.isfinite(mixed_sums(table, range(5)).score())
    table.values[4] = 2 * table.values[3]
    assert np.isfinite(mixed_sums(table, (0, 3, 4)).score())


def test_too_many_configurations_are_no_family():
    cards = (60, 60, 2, 0)
    rows = mixed_rows(50, cards=cards)
    assert gain(MixedTableGains(rows), 4, 3, [0, 1], 2) < -1e9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f, ""),
        (lambda f: f._replace(counts=f.counts[:-1]), "other sizes"),
        (lambda f: f._replace(counts=f.counts + 1), "rows, but the party reported 50"),
        (lambda f: f._replace(sums=f.sums + 1e4), "larger than their sums of squares"),
        (lambda f: f._replace(products=f.products - 1e4), "larger than their sums of squares"),
    ],
)
def test_impossible_sums_are_named(change, message):
    table = mixed_rows(50)
    flat = change(flattened([mixed_sums(table, own) for own in SETS[:-1]]))
    found = impossible(flat, table.cards, SETS[:-1], 50)
    assert message in found
    assert bool(found) == bool(message)


def test_columns_are_numbers_or_categories_as_their_values_say():
    n = 40
    frame = pd.DataFrame(
        {
            "ten": np.arange(n) % 10,
            "eleven": np.arange(n) % 11,
            "half": 0.5 * (np.arange(n) % 2),
            "same": 0.5,
            "text": np.array(["b", "a"])[np.arange(n) % 2],
            "flag": np.arange(n) % 3 == 0,
        }
    )
    names, table = as_mixed(frame)
    assert names == tuple(frame.columns)
    assert table.cards.tolist() == [10, 0, 0, 1, 2, 2]
    number = table.cards == 0
    np.testing.assert_allclose(table.values[number].mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(table.values[number].std(axis=1), 1)
    assert not table.codes[number].any()
    assert table.codes[4, :3].tolist() == [1, 0, 1]
    assert as_mixed(frame[["eleven", "half"]].to_numpy())[0] == ("x0", "x1")
    with pytest.raises(DataError, match="'eleven' has missing or infinite"):
        as_mixed(frame.assign(eleven=np.where(np.arange(n) == 3, np.nan, np.arange(n))))
    with pytest.raises(DataError, match="'text' has missing"):
        as_mixed(frame.assign(text=[None, *frame["text"][1:]]))
    with pytest.raises(DataError, match="no rows"):
        as_mixed(frame.iloc[:0])
    with pytest.raises(DataError, match="shape"):
        as_mixed(np.zeros(3))
