"""Series in a table: which rows they are, how they are cut, and what is wrong with them."""

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.data.check.handling import Handling
from flwr_causal.data.read.tables import read_table
from flwr_causal.data.roles import SERIES
from flwr_causal.data.series.series import (
    SeriesLayout,
    find_series,
    long_enough,
    read_times,
    time_step,
    usual_step,
)
from flwr_causal.errors import ConfigError, DataError

SPLIT = SeriesLayout(time_column="t", gaps="split")


def timed(times, ids=None):
    """A table whose variable counts the rows."""
    columns = {"t": times, "a": np.arange(len(times), dtype=float)}
    return pd.DataFrame(columns if ids is None else {"id": ids, **columns})


def found(frame, layout, **given):
    return [one.values[:, 0].tolist() for one in find_series(frame, layout, **given)]


def test_a_table_is_one_series_in_its_order():
    frame = pd.DataFrame({"b": [3.0, 1.0, 2.0], "a": [True, False, True], "note": ["u", "v", "w"]})
    (series,) = find_series(frame, SeriesLayout())
    assert series.names == ("b", "a")
    assert series.phase is None
    np.testing.assert_array_equal(series.values, [[3, 1], [1, 0], [2, 1]])
    assert series.rows.tolist() == [0, 1, 2]
    (chosen,) = find_series(frame, SeriesLayout(), names=["a"])
    assert chosen.names == ("a",)
    np.testing.assert_array_equal(chosen.values, [[1], [0], [1]])


def test_series_are_told_apart_by_ids_even_when_rows_are_interleaved():
    frame = timed([5, 1, 6, 2, 7], ids=["z", "a", "z", "a", "z"])
    layout = SeriesLayout(series_column="id", time_column="t")
    assert found(frame, layout) == [[0, 2, 4], [1, 3]]
    assert [one.names for one in find_series(frame, layout)] == [("a",)] * 2


def test_series_of_a_list_are_told_apart_without_being_named():
    frame = read_table([np.array([[1.0], [2.0]]), np.array([[3.0]])])
    assert found(frame, SeriesLayout()) == [[1, 2], [3]]
    assert find_series(frame, SeriesLayout())[0].names == ("x0",)
    # ids within the tables of a list name further series
    tables = [pd.DataFrame({"id": [1, 2, 1], "a": [1.0, 2.0, 3.0]})] * 2
    together = read_table(tables)
    assert SERIES in together
    assert found(together, SeriesLayout(series_column="id")) == [[1, 3], [2], [1, 3], [2]]


@given(
    ids=st.lists(st.integers(0, 3), min_size=1, max_size=25),
    holes=st.sets(st.integers(0, 24), max_size=6),
)
def test_cutting_is_that_of_a_plain_loop(ids, holes):
    frame = pd.DataFrame({"id": ids, "a": np.arange(len(ids), dtype=float)})
    frame.loc[[hole for hole in holes if hole < len(ids)], "a"] = np.nan
    expected = []
    for wanted in dict.fromkeys(ids):
        piece = []
        for row, own in enumerate(ids):
            if own != wanted:
                continue
            if row in holes:
                expected.append(piece)
                piece = []
            else:
                piece.append(row)
        expected.append(piece)
    layout = SeriesLayout(series_column="id", gaps="split")
    assert found(frame, layout) == [piece for piece in expected if piece]


def test_gaps_in_time_start_new_series_where_asked():
    frame = timed([1.0, 1.1, 1.2, 1.5, 1.6, 2.6])
    assert found(frame, SPLIT) == [[0, 1, 2], [3, 4], [5]]
    with pytest.raises(DataError, match=r"series 1 of 1, step 4 \(row 4 of the table\).*0\.3"):
        find_series(frame, SeriesLayout(time_column="t"))
    # the step is that of the whole table, not of each series
    two = timed([0, 2, 4, 0, 1, 2], ids=[1, 1, 1, 2, 2, 2])
    layout = SeriesLayout(series_column="id", time_column="t", gaps="split")
    assert found(two, layout) == [[0], [1], [2], [3, 4, 5]]
    # with one row each there is no step that could be unequal
    assert found(timed([3, 1], ids=[1, 2]), SeriesLayout(series_column="id", time_column="t")) == [
        [0],
        [1],
    ]


@pytest.mark.parametrize("start", [0.0, 1.7e9])
def test_rounding_of_times_is_no_gap(start):
    times = start + np.arange(500) * 0.1
    assert len(find_series(timed(times), SeriesLayout(time_column="t"))) == 1
    times[250:] += 2e-2
    with pytest.raises(DataError, match="step 251"):
        find_series(timed(times), SeriesLayout(time_column="t"))


DAYS = ["2024-02-28", "2024-02-29", "2024-03-01", "2024-03-03"]


@pytest.mark.parametrize(
    "times",
    [
        DAYS,
        pd.to_datetime(DAYS),
        pd.to_datetime(DAYS).tz_localize("Europe/Zurich"),
        pd.PeriodIndex(DAYS, freq="D"),
        pd.to_timedelta([0, 1, 2, 4], unit="D"),
        [datetime.date.fromisoformat(day) for day in DAYS],
        [day + "T12:30:00+02:00" for day in DAYS],
        pd.Series([0, 1, 2, 4], dtype="Int64"),
    ],
)
def test_times_of_every_kind(times):
    assert found(timed(times), SPLIT) == [[0, 1, 2], [3]]
    with pytest.raises(DataError, match=r"step 4 .*is 2( days.*)? later .*step of the table"):
        find_series(timed(times), SeriesLayout(time_column="t"))


@pytest.mark.parametrize(
    "dates",
    [
        ["2023-11-15", "2023-12-15", "2024-01-15", "2024-03-15"],
        ["2023-11-30", "2023-12-31", "2024-01-31", "2024-03-31"],
    ],
)
def test_months_are_equal_steps(dates):
    assert found(timed(dates), SPLIT) == [[0, 1, 2], [3]]
    assert read_times(pd.Series(dates)).unit == "months"
    with pytest.raises(DataError, match=r"2 months later .* is 1 months"):
        find_series(timed(dates), SeriesLayout(time_column="t"))


@pytest.mark.parametrize("kind", [np.int64, np.float64, str])
def test_dates_in_digits_are_dates(kind):
    days = pd.Series(pd.date_range("2024-01-20", periods=50))
    digits = days.dt.strftime("%Y%m%d").astype(np.int64).astype(kind)
    np.testing.assert_array_equal(read_times(digits).values, read_times(days).values)
    if kind is not str:
        months = pd.Series([202311, 202312, 202401, 202403]).astype(kind)
        assert found(timed(months), SPLIT) == [[0, 1, 2], [3]]
        assert read_times(months).unit == "months"


@pytest.mark.parametrize(
    "numbers",
    [
        [20240131, 20240132],
        [20240131, 20240131.5],
        [202412, 202413],
        [202401, 20240102],
        [1900, 1901],
        [12345678, 12345679],
    ],
)
def test_other_numbers_are_no_dates(numbers):
    times = read_times(pd.Series(numbers))
    assert times.unit == ""
    np.testing.assert_array_equal(times.values, numbers)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([1, 2, 2], r"time of series 1 of 1, step 3 \(row 3.*the same as.*series_column"),
        ([1, 3, 2], r"time of series 1 of 1, step 3 \(row 3.*earlier than.*sort the rows"),
        ([1, None, 2], r"column 't' of times: 1 missing \(the first in row 2"),
        ([1, np.inf, 2], r"infinite in row 2"),
        (
            ["2024-01-01", "soon", "2024-01-03"],
            r"the time in row 2 of the table cannot be read.*2020-01-31",
        ),
        (["2024-01-01", "02/01/2024", "03/01/2024"], "in row 2"),
        ([True, False, True], "holds booleans"),
    ],
)
@pytest.mark.parametrize("gaps", ["fail", "split"])
def test_bad_times(times, words, gaps):
    with pytest.raises(DataError, match=words):
        find_series(timed(times), SeriesLayout(time_column="t", gaps=gaps))


def test_messages_name_series_by_position_never_by_id():
    frame = timed([1, 2, 7, 9, 8], ids=["ann", "ann", "bob", "eve", "eve"])
    with pytest.raises(DataError) as caught:
        find_series(frame, SeriesLayout(series_column="id", time_column="t"))
    assert "series 3 of 3, step 2 (row 5 of the table)" in str(caught.value)
    frame.loc[2, "a"] = np.nan
    frame["t"] = [1, 2, 7, 8, 9]
    with pytest.raises(DataError) as again:
        find_series(frame, SeriesLayout(series_column="id", time_column="t"))
    assert "column 'a': missing in series 2 of 3, step 1 (row 3 of the table)" in str(again.value)
    assert "gaps='split'" in str(again.value)
    for name in ("ann", "bob", "eve"):
        assert name not in str(caught.value) + str(again.value)


def test_missing_and_infinite_values_within_a_series():
    frame = pd.DataFrame({"a": [1.0, 2, 3, 4, 5], "b": [1.0, 2, np.inf, 4, np.nan]})
    with pytest.raises(DataError, match=r"'b': infinite in series 1 of 1, step 3 .*2 such values"):
        find_series(frame, SeriesLayout())
    assert found(frame, SeriesLayout(gaps="split")) == [[1, 2], [4]]
    assert found(frame, SeriesLayout(), handling=Handling(missing_values="drop")) == [[1, 2], [4]]
    # the rows do not depend on which of the columns were agreed on
    assert found(frame, SeriesLayout(gaps="split"), names=["a"]) == [[1, 2], [4]]
    texts = frame.assign(b=["u", None, "v", "w", "x"])
    dropping = Handling(missing_values="drop", text_columns="drop")
    assert found(texts, SeriesLayout(), handling=dropping) == [[1, 2, 3, 4, 5]]
    # a gap in time and a missing row at the same place cut once
    both = timed([0, 1, 2, 5, 6])
    both.loc[2, "a"] = np.nan
    assert found(both, SPLIT) == [[0, 1], [3, 4]]


def test_phases():
    frame = timed([0.0, 50, 100, 150]).assign(pulse=[1, 1, 0, 0])
    by_column = find_series(frame, SeriesLayout(time_column="t", phase_column="pulse"))
    assert by_column[0].phase.tolist() == [True, True, False, False]
    assert by_column[0].names == ("a",)
    by_time = find_series(frame, SeriesLayout(time_column="t", perturbed=(50, 100)))
    assert by_time[0].phase.tolist() == [False, True, True, False]
    assert by_time[0].names == ("a", "pulse")
    booleans = frame.astype({"pulse": bool})
    assert find_series(booleans, SeriesLayout(phase_column="pulse"))[0].phase.tolist() == [
        1,
        1,
        0,
        0,
    ]
    dated = timed(pd.to_datetime(DAYS[:3]))
    with pytest.raises(DataError, match=r"'perturbed' is a range of numbers.*phase_column"):
        find_series(dated, SeriesLayout(time_column="t", perturbed=(0, 1)))


@pytest.mark.parametrize("values", [[0, 1, 2], [0, 1, None], ["no", "yes", "no"]])
def test_bad_phases(values):
    frame = timed([0, 1, 2]).assign(pulse=values)
    with pytest.raises(DataError, match=r"'pulse' of phases: neither true nor false.*row [13]"):
        find_series(frame, SeriesLayout(phase_column="pulse"))


@pytest.mark.parametrize(
    ("frame", "layout", "words"),
    [
        (timed([]), SeriesLayout(), "no rows"),
        (
            timed([1, 2]),
            SeriesLayout(series_column="who"),
            "series_column='who': .*missing.*has t, a",
        ),
        (
            timed([1, 2])[["t"]],
            SeriesLayout(time_column="T"),
            "time_column='T': .*missing.*mean 't'",
        ),
        (timed([]), SeriesLayout(time_column="when"), "time_column='when'"),
        (
            timed([1, 2], [1, None]),
            SeriesLayout(series_column="id", phase_column="p"),
            "phase_column=",
        ),
        (
            timed([1, 2]).assign(p=[5, 6]),
            SeriesLayout(time_column="when", phase_column="p"),
            "time_column='when': .*missing.*correct the option",
        ),
        (
            timed([1, 2]).set_axis(["t", "t"], axis=1),
            SeriesLayout(time_column="t"),
            "time_column='t': column 't' occurs 2 times.*rename",
        ),
        (timed([1, 2]), SeriesLayout(time_column="when"), "time_column='when'"),
        (timed([1, 2]), SeriesLayout(phase_column="p"), "phase_column='p'"),
        (
            timed([1, 2], [1, None]),
            SeriesLayout(series_column="id"),
            r"1 missing \(the first in row 2",
        ),
        (
            timed([1, 2])[["t"]],
            SeriesLayout(time_column="t"),
            "the table has no variable: its columns t are",
        ),
    ],
)
def test_tables_that_do_not_fit_the_layout(frame, layout, words):
    with pytest.raises(DataError, match=words):
        find_series(frame, layout)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": 0}, "order is 0"),
        ({"order": True}, "order is True"),
        ({"order": 1.5}, "order is 1.5"),
        ({"gaps": "drop"}, "gaps is 'drop'.*'fail' or 'split'"),
        ({"series_column": "a", "time_column": "a"}, "'a' has two roles"),
        ({"perturbed": (0, 1)}, "needs time_column"),
        ({"perturbed": (0, 1), "time_column": "t", "phase_column": "p"}, "no phase_column"),
        ({"perturbed": (1, 0), "time_column": "t"}, r"perturbed is \(1, 0\)"),
        ({"perturbed": (np.nan, 1), "time_column": "t"}, "perturbed is"),
        ({"perturbed": (1,), "time_column": "t"}, "perturbed is"),
    ],
)
def test_layouts_that_make_no_sense(options, words):
    with pytest.raises(ConfigError, match=words):
        SeriesLayout(**options)


def test_a_layout_takes_a_list_for_the_range():
    assert SeriesLayout(time_column="t", perturbed=[0, 5]) == SeriesLayout(
        time_column="t", perturbed=(0, 5)
    )


def test_series_that_are_too_short():
    frame = timed(range(9), ids=[1, 1, 2, 2, 2, 3, 4, 4, 4])
    series = find_series(frame, SeriesLayout(series_column="id"))
    used, warning = long_enough(series, 1)
    assert [one.rows.tolist() for one in used] == [[2, 3, 4], [6, 7, 8]]
    assert warning.startswith("2 of 4 series (3 steps in all) are shorter than the 3 steps")
    assert long_enough(used, 1)[1] == ""
    with pytest.raises(DataError, match=r"order 2 needs 4 steps.*longest of 4 has 3; lower"):
        long_enough(series, 2)
    with pytest.raises(DataError, match="longest of 0 has 0"):
        long_enough([], 1)


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "UTC", "Asia/Kolkata"])
@pytest.mark.parametrize("freq", ["D", "W", "MS"])
def test_days_of_a_time_zone_are_equal_steps(freq, zone, as_text):
    naive = pd.date_range("2024-01-01 06:30", periods=60, freq=freq)
    times = naive.tz_localize(zone)
    column = pd.Series(times.astype(str) if as_text else times)
    layout = SeriesLayout(time_column="t")
    assert found(timed(column), layout) == [[*range(60)]]
    assert time_step(timed(column), layout) == time_step(timed(naive), layout)
    # A missing day is a gap, also where clocks changed in between.
    kept = np.delete(np.arange(60), 20)
    assert found(timed(column.iloc[kept].reset_index(drop=True)), SPLIT) == [
        [*range(20)],
        [*range(20, 59)],
    ]


def test_hours_of_a_time_zone_are_those_that_have_passed():
    times = pd.date_range("2024-03-30", periods=60, freq="h", tz="Europe/Berlin")
    for column in (times, times.astype(str), times.map(lambda t: t.isoformat())):
        assert found(timed(pd.Series(column)), SeriesLayout(time_column="t")) == [[*range(60)]]


@pytest.mark.parametrize("start", [0.0, 1.7e9])
@pytest.mark.parametrize("share", [1e-4, 0.02, 0.045])
def test_jitter_is_no_gap(share, start):
    rng = np.random.default_rng(0)
    steps = np.arange(400) + rng.uniform(-share, share, 400)
    layout = SeriesLayout(time_column="t")
    assert found(timed(start + 60 * steps), layout) == [[*range(400)]]
    assert time_step(timed(start + 60 * steps), layout) == "60"
    # Rows are missing after row 149.
    late = np.r_[steps[:150], steps[150:] + 1]
    assert found(timed(start + 60 * late), SPLIT) == [[*range(150)], [*range(150, 400)]]
    with pytest.raises(DataError, match=r"step 151 .*later.*usual step of the table is (59|60)"):
        find_series(timed(start + 60 * late), layout)


def test_the_usual_step_is_the_smallest_unless_it_is_nearly_all_others():
    assert usual_step(np.array([1.0, 2.0, 2.0, 2.0])) == 1.0
    assert usual_step(np.array([0.3, 60.0, 60.0])) == 0.3
    assert usual_step(np.array([0.95, 1.0, 1.05, 1.0, 7.0])) == 1.0
    # Two steps, of which none is the other's jitter.
    assert usual_step(np.array([1.0, 1.2, 1.2, 1.2])) == 1.0
