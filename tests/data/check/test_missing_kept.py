"""Tables whose missing values stay: what parties report of the others, and how it is pooled."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.discrete.cut_points import count_up_to, cut_points, finished, step, thresholds
from flwr_causal.data.check.agreement import agree, start_cuts
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import complete_rows, describe
from flwr_causal.data.check.report import TableReport
from flwr_causal.errors import ConfigError, DataError

KEEP = Handling(missing_values="keep", text_columns="keep", min_rows=1)
NUMBERS = ["a", "b", "c"]


def with_states(**fields):
    return replace(KEEP, **fields)


def told(tables, handling=KEEP, *, states=False):
    """What the parties send, after its way."""
    return {
        party: TableReport.from_dict(describe(frame, handling, sums=True, states=states).to_dict())
        for party, frame in tables.items()
    }


def agreed(tables, handling=KEEP, *, states=False):
    return agree(told(tables, handling, states=states), handling)


def problem(tables, handling=KEEP, *, states=False):
    with pytest.raises(DataError) as caught:
        agreed(tables, handling, states=states)
    _, *lines = str(caught.value).partition("\nSet ")[0].split("\n  ")
    assert len(lines) == 1, lines
    return lines[0]


def holed(rows=300, seed=0):
    """Numbers far from zero, of which a tenth, a half and nearly all are missing."""
    rng = np.random.default_rng(seed)
    values = 1e6 + rng.normal(0, [1.0, 3.0, 0.2], (rows, 3))
    values[rng.random((rows, 3)) < [0.1, 0.5, 0.95]] = np.nan
    return pd.DataFrame(values, columns=NUMBERS)


def test_every_row_is_kept():
    frame = holed()
    assert complete_rows(frame, KEEP).all()
    report = describe(frame, KEEP, sums=True)
    assert (report.rows, report.dropped_rows) == (300, 0)
    assert [column.missing for column in report.columns] == frame.isna().sum().tolist()


def test_sums_are_those_of_what_is_there():
    report = describe(pd.DataFrame({"a": [1.0, np.nan, 4.0, np.nan]}), KEEP, sums=True)
    (column,) = report.columns
    assert column.mean + column.remainder / 2 == 2.5
    assert column.squares - column.remainder**2 / 2 == pytest.approx(4.5, rel=1e-15)


@pytest.mark.parametrize("cuts", [[], [150], [1, 2, 250], [40, 41, 42, 43, 290]], ids=str)
def test_means_and_variances_are_those_of_all_rows_together(cuts):
    frame = holed()
    edges = [0, *cuts, len(frame)]
    parts = [frame.iloc[a:b] for a, b in pairwise(edges)]
    # At parties of one row whole columns are missing.
    agreement = agreed({str(k): part for k, part in enumerate(parts)})
    assert agreement.n == 300
    np.testing.assert_allclose(agreement.mean, frame.mean(), rtol=1e-14)
    np.testing.assert_allclose(agreement.variance, frame.var(ddof=0), rtol=1e-8)


def test_a_column_of_one_value_and_holes_is_constant():
    frame = pd.DataFrame({"a": [0.1, np.nan, 0.1], "b": [1.0, 2.0, np.nan]})
    columns = describe(frame, KEEP, sums=True).columns
    assert [column.distinct_one for column in columns] == [True, False]
    assert columns[0].squares == 0.0
    assert "'a'" in problem({"A": frame, "B": frame.iloc[::-1]})
    # Of another value elsewhere it is none.
    agreement = agreed({"A": frame, "B": frame + 1.0})
    np.testing.assert_allclose(agreement.mean, [0.6, 2.0], rtol=1e-15)
    np.testing.assert_allclose(agreement.variance, [0.25, 0.5], rtol=1e-14)


def test_a_party_with_no_value_of_a_column_has_no_say_in_it():
    one = pd.DataFrame({"a": [3.0, 5.0], "b": [1.0, 2.0]})
    other = pd.DataFrame({"a": [np.nan, np.nan], "b": [3.0, 4.0]})
    for tables in ({"A": one, "B": other}, {"B": other, "A": one}):
        agreement = agreed(tables)
        assert agreement.mean.tolist() == [4.0, 2.5]
        assert agreement.variance.tolist() == [1.0, 1.25]


def test_infinite_values_still_fail():
    frame = pd.DataFrame({"a": [1.0, np.nan, 2.0], "b": [1.0, -np.inf, 2.0]})
    assert "column 'b': 1 infinite value" in problem({"A": frame})


def test_failing_is_the_default():
    frame = pd.DataFrame({"a": [1.0, np.nan, 2.0]})
    assert "column 'a': 1 missing value" in problem({"A": frame}, Handling())


# States of categories, and numbers that are cut into intervals.


STATES = with_states(discretize=8, number_states=8)


def test_that_a_value_is_missing_is_no_state_of_the_report():
    frame = pd.DataFrame(
        {"colour": ["red", None, "blue"], "rooms": [1.0, np.nan, 3.0], "size": [1.5, 2.5, np.nan]}
    )
    report = describe(frame, STATES, states=True, sums=True)
    assert [column.states for column in report.columns] == [("blue", "red"), ("1", "3"), ()]
    assert [column.missing for column in report.columns] == [1, 1, 1]
    agreement = agreed({"A": frame, "B": frame}, STATES, states=True)
    assert agreement.states[:2] == (("blue", "red"), ("1", "3"))
    assert agreement.continuous == ("size",)


@pytest.mark.parametrize("values", [[None, None], [np.nan, np.nan]], ids=str)
def test_a_column_that_is_empty_everywhere_is_a_problem(values):
    frame = pd.DataFrame({"a": [1, 2], "b": pd.Series(values, dtype=object)})
    line = problem({"A": frame, "B": frame}, STATES, states=True)
    assert line == "all parties, column 'b': no value at all, every one is missing; remove it"
    other = frame.assign(b=["x", "y"])
    assert agreed({"A": frame, "B": other}, STATES, states=True).states[1] == ("x", "y")


# Which numbers pass for states: see `Handling.number_states`.


def test_numbers_that_are_not_whole_are_never_named():
    halves = pd.DataFrame({"a": [0.5, 1.0, 0.5, 1.5]})
    report = describe(halves, STATES, states=True)
    assert (report.columns[0].distinct, report.columns[0].states) == (3, ())
    # Without number_states a few of them are.
    default = describe(halves, with_states(discretize=8), states=True)
    assert default.columns[0].states == ("0.5", "1", "1.5")
    tables = {"A": halves, "B": pd.DataFrame({"a": [1.0, 2.0]})}
    assert agreed(tables, STATES, states=True).continuous == ("a",)


def test_so_many_whole_numbers_pass_for_states():
    few, many = (pd.DataFrame({"a": [*range(size), 0]}) for size in (8, 9))
    assert len(describe(few, STATES, states=True).columns[0].states) == 8
    assert describe(many, STATES, states=True).columns[0].states == ()
    assert agreed({"A": few}, STATES, states=True).continuous == ()
    assert agreed({"A": many}, STATES, states=True).continuous == ("a",)
    # Few at each party, and more of all together.
    other = pd.DataFrame({"a": range(5, 10)})
    agreement = agreed({"A": few, "B": other}, STATES, states=True)
    assert agreement.continuous == ("a",)
    assert set(agreement.whole) == {"a"}


def test_text_is_named_up_to_the_most_states():
    frame = pd.DataFrame({"a": [f"t{k}" for k in range(40)]})
    assert len(describe(frame, STATES, states=True).columns[0].states) == 40


@pytest.mark.parametrize("value", [-1, 2.5, True])
def test_number_states_is_a_whole_number(value):
    with pytest.raises(ConfigError, match="'number_states' is"):
        Handling(number_states=value)


def test_intervals_are_even_in_what_is_there():
    """Columns of which other numbers of rows are missing get bins as even as each can have."""
    frame = holed(2000)
    parts = {str(k): frame.iloc[k::3] for k in range(3)}
    agreement = agreed(parts, STATES, states=True)
    present = frame.notna().sum().to_numpy()
    state = start_cuts(agreement, 4, present)
    while not finished(state):
        asked = thresholds(state)
        counts = np.zeros(asked.shape, dtype=np.int64)
        for part in parts.values():
            for j, name in enumerate(NUMBERS):
                known = part[[name]].dropna().to_numpy()
                counts[j] += count_up_to(known, asked[j : j + 1])[0]
        state = step(state, counts)
    for name, cuts, rows in zip(NUMBERS, cut_points(state), present, strict=True):
        sizes = np.bincount(np.searchsorted(cuts, frame[name].dropna()))
        assert len(sizes) == 4
        np.testing.assert_allclose(sizes, rows / 4, atol=0.02 * rows / 4 + 1)
