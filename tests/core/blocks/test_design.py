"""What a row becomes: columns by hand, and their sums against the covariances of pooled rows."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.blocks.design import (
    Category,
    Design,
    Number,
    design,
    functions_of,
    functions_of_rows,
    variables_from_plain,
    widths_of,
)
from flwr_causal.core.series.design import lagged_rows

#: A number, three states, two states, a number.
NAMES, STATES = ("a", "k", "b", "c"), ((), ("u", "v", "w"), ("no", "yes"), ())
MEAN, VARIANCE = np.array([2.0, np.nan, np.nan, -1.0]), np.array([4.0, np.nan, np.nan, 0.25])
#: The numbers of the states of k and b; a state is missing in the last row.
VALUES = np.array([[4.0, 0, 1, -1.0], [1.0, 2, 0, 0.0], [2.0, 1, 0, -2.0], [0.0, -1, 1, -0.5]])


def mixed(**options):
    return Design.of(NAMES, MEAN, VARIANCE, STATES, ("", "str", "bool", ""), **options)


def columns_at_t(made, values):
    """The columns of rows of numbers and of numbers of states, variable by variable."""
    parts = [one.columns(values[:, j]) for j, one in enumerate(made.variables)]
    return np.column_stack(parts)


def curves(z, functions):
    """Functions of standardised values, as the manual of the basis states them."""
    every = [
        z,
        np.tanh(1.5 * z),
        np.exp(-(z**2) / 2),
        np.tanh(2 * (z - 1)),
        np.tanh(2 * (z + 1)),
    ]
    return every[:functions]


def test_rows_by_hand():
    rows = columns_at_t(mixed(), VALUES)
    nan = np.nan
    # (a - 2) / 2; k = u, k = v; b = no; (c + 1) / 0.5.
    by_hand = [[1, 1, 0, 0, 0], [-0.5, 0, 0, 1, 2], [0, 0, 1, 1, -2], [-1, nan, nan, 0, 1]]
    np.testing.assert_allclose(rows, by_hand)
    rows = columns_at_t(mixed(standardized=False), VALUES)
    np.testing.assert_allclose(rows[:, [0, 4]], VALUES[:, [0, 3]] - [2, -1])


def test_functions_lie_side_by_side():
    rows = columns_at_t(mixed(functions=5), VALUES)
    z = np.array([1.0, -0.5, 0.0, -1.0])
    np.testing.assert_allclose(rows[:, :5], np.column_stack(curves(z, 5)))
    assert rows.shape == (4, 5 + 2 + 1 + 5)
    both = np.column_stack([z, 3 * z])
    expected = np.column_stack([*curves(z, 3), *curves(3 * z, 3)])
    np.testing.assert_allclose(functions_of_rows(both, 3), expected)
    assert functions_of_rows(both, 1) is both
    assert [functions_of(one) for one in ("linear", "curved", "additive")] == [1, 3, 5]


def test_names_widths_and_units():
    made = mixed(order=1)
    assert made.widths == [1, 2, 1, 1, 1, 2, 1, 1]
    assert made.columns == (
        *("a", "k=u", "k=v", "b=no", "c"),
        *("a[t-1]", "k[t-1]=u", "k[t-1]=v", "b[t-1]=no", "c[t-1]"),
    )
    assert mixed(functions=3).columns[:4] == ("a", "a (function 2)", "a (function 3)", "k=u")
    assert [one.name for one in made.blocks[4:]] == ["a[t-1]", "k[t-1]", "b[t-1]", "c[t-1]"]
    assert made.size == 10
    assert mixed(order=1, marked=True).size == 11
    assert mixed(order=1, marked=True).marked
    np.testing.assert_array_equal(made.scale, [2, 1, 1, 0.5])
    np.testing.assert_array_equal(mixed(standardized=False).scale, np.ones(4))
    np.testing.assert_array_equal(made.variables[0].units, [[2], [2]])
    np.testing.assert_array_equal(made.variables[3].units, [[-1], [0.5]])
    for one in (made.variables[1], Number("a", 3.0, 2.0, 2)):
        np.testing.assert_array_equal(one.units, [[0, 0], [1, 1]])
    assert made.variables[1].labels == ("u", "v", "w")
    assert widths_of(STATES, 3) == [3, 2, 1, 3] == mixed(functions=3).widths
    plain = [{"name": "a", "mean": 2.0, "scale": 2.0, "functions": 1}]
    plain.append({"name": "k", "states": ["u", "v", "w"], "values": "str"})
    assert variables_from_plain(plain) == made.variables[:2]


def test_names_that_occur_twice_are_numbered():
    clash = Design((Category("a", ("b", "c")), Number("a=b", 0.0, 1.0, 2)))
    assert clash.columns == ("a[0]", "a=b[0]", "a=b[1]")


def test_what_the_variables_are():
    numbers = Design.of(("a", "c"), MEAN[[0, 3]], VARIANCE[[0, 3]])
    curved = Design.of(("a", "c"), MEAN[[0, 3]], VARIANCE[[0, 3]], functions=2)
    assert (numbers.numbers, numbers.single) == (True, True)
    assert (curved.numbers, curved.single) == (True, False)
    # Two states are one column, too.
    two = Design.of(("a", "b"), MEAN[:2], VARIANCE[:2], ((), ("no", "yes")))
    assert (two.numbers, two.single) == (False, False)


@pytest.mark.parametrize("functions", [1, 3])
def test_rows_of_numbers_with_means_of_their_own(functions):
    made = Design.of(("a", "c"), MEAN[[0, 3]], VARIANCE[[0, 3]], functions=functions)
    own = made.with_means(np.array([1.0, 5.0]))
    for one, (first, second) in ((made, (2, -1)), (own, (1, 5))):
        z = [(VALUES[:, 0] - first) / 2, (VALUES[:, 3] - second) / 0.5]
        expected = np.column_stack([*curves(z[0], functions), *curves(z[1], functions)])
        np.testing.assert_allclose(one.rows_of(VALUES[:, [0, 3]]), expected, atol=1e-15)


def test_categories_have_no_means():
    made = mixed(order=1, marked=True, functions=2)
    own = made.with_means(np.array([1.0, 7.0, 8.0, 5.0]))
    assert own.variables[1:3] == made.variables[1:3]
    assert [own.variables[j].mean for j in (0, 3)] == [1, 5]
    assert (own.order, own.marked, own.widths) == (1, True, made.widths)
    np.testing.assert_array_equal(own.scale, made.scale)


def test_a_table_is_its_own_design():
    table = pd.DataFrame({"x": [1.0, 2.0, 6.0], "k": ["v", "u", "v"]})
    (x, k), rows = design(table)
    assert (x.mean, x.scale) == pytest.approx((3.0, np.sqrt(14 / 3)))
    assert k == Category("k", ("u", "v"))
    np.testing.assert_allclose(rows[:, 0], (table["x"] - 3) / np.sqrt(14 / 3))
    np.testing.assert_array_equal(rows[:, 1], [0, 1, 0])


def with_ones(rows):
    return np.column_stack([np.ones(len(rows)), rows])


def products(rows):
    return with_ones(rows).T @ with_ones(rows)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 2))
def test_sums_over_pieces_are_the_covariances_of_the_pooled_rows(seed, functions, order):
    """However rows, states and lags are split into pieces, and in whatever order."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(1, 5, size=rng.integers(1, 5))  # 1: a number, else the states
    states = tuple(tuple("pqrs"[:kind]) if kind > 1 else () for kind in kinds)
    names = tuple(f"x{j}" for j in range(len(kinds)))
    mean, variance = rng.normal(size=len(kinds)), rng.uniform(0.5, 4.0, len(kinds))
    made = Design.of(names, mean, variance, states, functions=functions, order=order)
    series = [
        np.column_stack([rng.integers(0, k, n) if k > 1 else rng.normal(3, 2, n) for k in kinds])
        for n in rng.integers(order + 2, 30, size=3)
    ]
    pooled = []
    for one in series:
        for t in range(order, len(one)):
            row = []
            for lag in range(order + 1):
                for j, own in enumerate(states):
                    value = one[t - lag, j]
                    if own:
                        row += [float(value == k) for k in range(len(own) - 1)]
                    else:
                        row += curves((value - mean[j]) / np.sqrt(variance[j]), functions)
            pooled.append(row)
    pooled, n = np.array(pooled), len(pooled)
    z = lagged_rows([columns_at_t(made, one) for one in series], order)[rng.permutation(n)]
    cuts = np.sort(rng.integers(0, n + 1, size=2))
    total = sum(products(z[i:j]) for i, j in pairwise((0, *cuts, n))) / n
    found = made.moments(total, n)
    assert found.n == n
    assert found.names == made.columns
    np.testing.assert_allclose(found.mean, pooled.mean(axis=0), atol=1e-12)
    covariance = np.cov(pooled, rowvar=False, bias=True).reshape(found.second.shape)
    np.testing.assert_allclose(found.second, covariance, atol=1e-10)
    assert len(found.mean) == made.size == sum(made.widths)


@given(st.integers(0, 10**6), st.booleans())
def test_moments_of_sets_are_about_one_mean(seed, marked):
    """With marks about the mean of the marked rows, from which the others do not differ."""
    rng = np.random.default_rng(seed)
    made = Design.of("ab", np.zeros(2), np.ones(2), order=1, marked=marked)
    n, sets = 60, rng.integers(0, 3, 60)
    sets[sets == 1] = 3  # set 1 is empty
    sets[:2] = 0, 2
    z, marks = rng.normal(2.0, 1.0, (n, 4)), np.ones(n)
    if marked:
        # None of set 3 has a mark.
        marks = np.where(sets == 3, 0.0, rng.integers(0, 2, n))
        marks[:2] = 1.0
        z[marks == 0] -= 2.0
    rows = np.column_stack([marks, z]) if marked else z
    several = np.array([products(rows[sets == k]) for k in range(4)]) / n
    present = [k for k in range(4) if (sets == k).any()]
    found = made.moments_of_sets(several, n)
    level = z[marks == 1].mean(axis=0)
    assert [one.n for one in found] == [(sets == k).sum() for k in present]
    for one, k in zip(found, present, strict=True):
        about = (z - np.outer(marks, level))[sets == k]
        np.testing.assert_allclose(one.mean, level, atol=1e-12)
        np.testing.assert_allclose(one.second, about.T @ about / len(about), atol=1e-11)
        np.testing.assert_array_equal(one.second, one.second.T)
        assert one.names == ("a", "b", "a[t-1]", "b[t-1]")
    # All rows are one set.
    about = z - np.outer(marks, level)
    one = made.moments(several.sum(axis=0), n)
    assert one.n == n
    np.testing.assert_allclose(one.second, about.T @ about / n, atol=1e-11)


def test_products_without_the_mark():
    rng = np.random.default_rng(0)
    z, marks = rng.normal(size=(20, 2)), rng.integers(0, 2, 20)
    marked = Design.of("ab", np.zeros(2), np.ones(2), marked=True)
    several = np.array([products(np.column_stack([marks, own])) for own in (z, 2 * z)])
    np.testing.assert_allclose(marked.without_mark(several[0]), products(z))
    expected = np.array([products(z), products(2 * z)])
    np.testing.assert_allclose(marked.without_mark(several), expected)
    plain = Design.of("ab", np.zeros(2), np.ones(2))
    assert plain.without_mark(expected) is expected
