"""Bounds and contradictions of products of rows: which replies are let in, and which are not."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from federations import setup_for

from flwr_causal.core.series.design import lagged_rows
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import describe
from flwr_causal.protocol.contract import ReplyContext
from flwr_causal.protocol.options import SmallCounts
from flwr_causal.protocol.second_moments import (
    LAGS_ROOM,
    impossible_products,
    largest_sums,
    num_columns,
    num_sets,
    other_sums,
    sent_design,
)
from flwr_causal.strategies import Moments

RNG = np.random.default_rng(1)
#: Of a party, whose means are not the agreed ones.
TABLE = pd.DataFrame(RNG.normal(size=(50, 2)) * (1.0, 20.0) + (0.3, -5.0), columns=["a", "b"])
STATES = np.array(["u", "v", "w"])[RNG.integers(0, 3, 50)]


def setup_of(*, states=(), targets=(), small=None, missing="fail", **options):
    names = ("a", "b", "k") if states else ("a", "b")
    nan = (np.nan,) * bool(states)
    method = Moments(**{"center": "global", **options})
    return setup_for(
        [TABLE],
        names=names,
        num_rows=200,
        mean=np.array([0.0, -4.0, *nan]),
        variance=np.array([4.0, 900.0, *nan]),
        handling=Handling(missing_values=missing),
        options=method.client_options,
        states=states,
        targets=targets,
        small=small or SmallCounts(),
    )


KEPT = {"states": ((), (), ("u", "v", "w")), "text_columns": "keep"}
PHASE = {"center": "phase", "phase_column": "pulse", "order": 2}


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, 2),
        (KEPT, 4),
        ({"model": "curved"}, 6),
        ({"model": "additive"}, 10),
        ({"order": 2}, 6),
        (PHASE, 7),
        ({**KEPT, "order": 1}, 8),
        ({**KEPT, "model": "curved", "order": 1}, 16),
    ],
)
def test_the_number_of_columns_is_that_of_the_design(options, columns):
    setup = setup_of(**options)
    assert num_columns(setup) == sent_design(setup).size == columns
    assert largest_sums(setup).shape == (1 + columns, 1 + columns)
    # It is known before means and variances are.
    assert num_columns(replace(setup, mean=np.zeros(0), variance=np.zeros(0))) == columns


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ({}, [1, 1]),
        ({"standardize": True}, [2, 30]),
        (KEPT, [2, 30, 1]),
        ({"model": "curved"}, [2, 30]),
        ({"missing": "em"}, [2, 30]),
        ({"center": "party"}, [1, 1]),
        (PHASE, [1, 1]),
    ],
)
def test_units_of_the_partys_rows(options, scale):
    made = sent_design(setup_of(**options))
    np.testing.assert_array_equal(made.scale, scale)
    assert made.marked == (options is PHASE)


@pytest.mark.parametrize(
    ("options", "now"),
    [
        ({}, [2, 30]),
        ({"standardize": True}, [1, 1]),
        (KEPT, [1, 1, 1, 1]),
        ({"model": "curved"}, np.ones(6)),
    ],
)
def test_a_column_is_no_larger_than_its_deviation_over_all_rows(options, now):
    for order in (0, 2):
        own = np.concatenate([[1.0], now, *[LAGS_ROOM * np.asarray(now)] * order])
        bounds = largest_sums(setup_of(order=order, **options))
        np.testing.assert_allclose(bounds, np.outer(own, own))
    # The mark is 0 or 1.
    own = np.array([1, 1, 2, 30, *[LAGS_ROOM * 2, LAGS_ROOM * 30] * 2])
    np.testing.assert_allclose(largest_sums(setup_of(**PHASE)), np.outer(own, own))


def test_sets_of_rows():
    assert num_sets(setup_of()) == 1
    assert num_sets(setup_of(sparsity="held-out", solver="dagma")) == 2
    assert num_sets(setup_of(sparsity="held-out", solver="dagma", order=1)) == 5
    assert num_sets(setup_of(targets=((), ("a",), ("b",)), intervention_column="on")) == 3


def means_of(rows, sets=None, count=1):
    """The mean products of the rows [1, z] by set."""
    own = np.column_stack([np.ones(len(rows)), rows])
    sets = np.zeros(len(rows)) if sets is None else sets
    return np.array([own[sets == k].T @ own[sets == k] for k in range(count)]) / len(rows)


def known_of(setup, report=None, *, n=50, resampled=False):
    report = report or describe(TABLE, Handling(), sums=True)
    return ReplyContext({"n": n}, {}, setup, report, resampled)


def said(setup, moments, **options):
    return impossible_products({"moments": moments}, known_of(setup, **options))


def rows_of(setup):
    """The rows z of the party, with the state of each row if there are states."""
    made = sent_design(setup)
    parts = [
        one.columns(values)
        for one, values in zip(
            made.variables,
            (
                TABLE["a"].to_numpy(),
                TABLE["b"].to_numpy(),
                np.searchsorted(["u", "v", "w"], STATES),
            ),
            strict=False,
        )
    ]
    return np.column_stack(parts)


WRONG = "mean square of the column '{}' is not the one"


@pytest.mark.parametrize(
    "options",
    [{}, {"standardize": True}, KEPT, {"model": "curved"}, {"model": "additive"}],
    ids=str,
)
def test_products_are_those_of_the_report(options):
    setup = setup_of(**options)
    made, rows = sent_design(setup), rows_of(setup)
    sets = np.arange(50) % 2
    for moments in (means_of(rows), means_of(rows)[0]):
        assert said(setup, moments) == ""
    # A change of 1 % in the square of a number.
    for name, place in (("a", 0), ("b", made.widths[0])):
        for factor in (0.99, 1.01):
            wrong = means_of(rows)
            wrong[0, 1 + place, 1 + place] *= factor
            assert WRONG.format(name) in said(setup, wrong)
            assert said(setup, wrong, resampled=True) == ""
    # Folds count together; what follows them is of other rows.
    setup = replace(setup, options=replace(setup.options, num_folds=2))
    folds = means_of(rows, sets, 2)
    assert said(setup, folds) == ""
    assert said(setup, np.concatenate([folds, 3 * folds])) == ""
    assert said(setup, folds[:1]) != ""


def test_rows_begin_with_ones():
    setup = setup_of()
    moments = means_of(rows_of(setup))
    for ones in (0.5, 0.985, 1.015, 2.0):
        wrong = moments.copy()
        wrong[0, 0, 0] = ones
        assert "begin with 1" in said(setup, wrong)
        assert "begin with 1" in said(setup, wrong, resampled=True)
    for ones in (0.995, 1.005):
        moments[0, 0, 0] = ones
        assert said(setup, moments) == ""


def test_rows_of_few_may_be_missing_under_interventions():
    targets, suppressed = ((), ("a",)), SmallCounts(20, "suppress")
    sets = (np.arange(50) < 9).astype(int)
    for small, words in ((SmallCounts(), "begin with 1"), (suppressed, "")):
        setup = setup_of(targets=targets, intervention_column="on", small=small)
        moments = means_of(rows_of(setup), sets, 2)
        assert said(setup, moments) == ""
        moments[1] = 0
        found = said(setup, moments)
        assert words in found if words else found == ""
        # More than all rows are none of these.
        moments[0, 0, 0] = 1.2
        assert "begin with 1" in said(setup, moments)
    # Of folds there are no few.
    assert "begin with 1" in said(setup_of(small=suppressed), 0.8 * means_of(rows_of(setup)))


def test_products_of_states_are_counts():
    setup = setup_of(**KEPT)
    moments, words = means_of(rows_of(setup)), "the states of 'k' are not those of counts"
    assert said(setup, moments) == ""
    for places, change in (
        ([(3, 4), (4, 3)], 0.1),  # a row has two states
        ([(3, 3)], 0.1),  # more rows than the sum of the column
        ([(0, 3), (3, 0), (3, 3)], -0.6),  # fewer than none
        ([(0, 3), (3, 0), (3, 3)], 0.8),  # more than all
    ):
        wrong = moments.copy()
        for place in places:
            wrong[(0, *place)] += change
        assert words in said(setup, wrong)
        assert words in said(setup, wrong, resampled=True)


@pytest.mark.parametrize("center", ["series", "phase"])
def test_levels_of_series_are_not_those_of_the_report(center):
    """Squares are about other means, and a mark is before the columns."""
    setup = setup_of(**{**PHASE, "center": center})
    series, marks = TABLE.to_numpy(), np.arange(48) % 3 > 0
    z = lagged_rows([series - series.mean(axis=0) + 0.1], 2)
    z = np.column_stack([marks, z]) if center == "phase" else z
    assert said(setup, means_of(z)) == ""
    wrong = 1.5 * means_of(z)
    assert "begin with 1" in said(setup, wrong)
    about = setup_of(order=2)
    assert "mean square of the column" in said(about, means_of(lagged_rows([series], 2)))


# -- rows with missing cells -----------------------------------------------------------------------

GAPS = TABLE.mask(RNG.random(TABLE.shape) < 0.2)


def seen(rows, n):
    """Counts, sums and products of the rows in which two cells are seen."""
    marks, filled = (~np.isnan(rows)).astype(float), np.nan_to_num(rows)
    return {
        "counts": (marks.T @ marks)[None] / n,
        "products": (filled.T @ filled)[None] / n,
        "weights": np.ones(2),
    }


@pytest.mark.parametrize("states", [False, True])
def test_sums_over_seen_cells_are_those_of_the_report(states):
    setup = setup_of(missing="em", **(KEPT if states else {}))
    report = describe(GAPS, Handling(missing_values="em"), sums=True)
    z = ((GAPS - setup.mean[:2]) / (2.0, 30.0)).to_numpy()
    if states:
        codes = np.searchsorted(["u", "v", "w"], STATES)
        z = np.column_stack([z, codes == 0, codes == 1])
    arrays, known = seen(z, 50), known_of(setup, report)
    assert other_sums(arrays, known) == ""
    sets = {name: np.repeat(arrays[name] / 2, 2, axis=0) for name in ("counts", "products")}
    half = arrays | sets
    assert other_sums(half, known) == ""
    for place, name in enumerate("ab"):
        for factor in (0.98, 1.02):
            wrong = {key: own.copy() for key, own in arrays.items()}
            wrong["counts"][0, place, place] *= factor
            assert f"'{name}' has values in other rows" in other_sums(wrong, known)
            assert other_sums(wrong, replace(known, resampled=True)) == ""
            wrong = {key: own.copy() for key, own in arrays.items()}
            wrong["products"][0, place, place] *= factor
            assert WRONG.format(name) in other_sums(wrong, known)
    weighted = arrays | {"weights": np.array([1.1, 1.3])}
    assert "the rows have weights" in other_sums(weighted, known)
    more = arrays | {"counts": 2 * arrays["counts"]}
    assert "in more rows than there are" in other_sums(more, replace(known, resampled=True))
    without = replace(report, has_sums=False)
    assert other_sums(wrong, replace(known, report=without)) == ""


def test_a_share_of_a_secure_sum_bounds_what_was_seen():
    """Where parties are missing in the sum only more than all is contradicted."""
    setup = setup_of(missing="em")
    report = describe(GAPS, Handling(missing_values="em"), sums=True)
    arrays = seen(((GAPS - setup.mean) / (2.0, 30.0)).to_numpy(), 50)
    for factor, words in ((1.0, ""), (2.0, ""), (2.2, "has values in other rows")):
        own = arrays | {name: factor * arrays[name] for name in ("counts", "products")}
        found = other_sums(own, known_of(setup, report, n=25))
        assert words in found if words else found == ""


def test_a_column_that_the_party_lacks_has_no_cell():
    setup = setup_of(missing="em")
    report = describe(TABLE[["a"]], Handling(), sums=True)
    z = np.column_stack([(TABLE["a"] - 0.0) / 2.0, np.full(50, np.nan)])
    known = known_of(setup, report)
    assert other_sums(seen(z, 50), known) == ""
    z[0, 1] = 1.0
    assert "'b' has values in other rows" in other_sums(seen(z, 50), known)
