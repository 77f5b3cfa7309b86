"""Discretised columns: which they are, how intervals are named, where rows fall."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.discrete import cut_points
from flwr_causal.core.discrete.cut_points import apply_cuts
from flwr_causal.data.check.agreement import agree, start_cuts, with_cuts
from flwr_causal.data.check.columns import interval_names
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import describe, prepare, prepare_states
from flwr_causal.data.check.report import TableReport
from flwr_causal.errors import DataError

BINS = Handling(
    text_columns="keep", constant_columns="keep", min_rows=1, max_states=8, discretize=3
)


def agreed(tables, handling=BINS):
    told = {}
    for party, frame in tables.items():
        report = describe(frame, handling, sums=handling.discretize > 0, states=True)
        told[party] = TableReport.from_dict(report.to_dict())
    return agree(told, handling)


@pytest.mark.parametrize(
    ("cuts", "names"),
    [
        ([], ("any value",)),
        ([3.2], ("<= 3.2", "> 3.2")),
        ([3.2, 7.1], ("<= 3.2", "3.2 to 7.1", "> 7.1")),
        ([-17.0, 25.0], ("<= -17", "-17 to 25", "> 25")),
        ([np.nextafter(7, 0)], ("< 7", ">= 7")),
        ([-1.5, np.nextafter(7, 0), 7.0], ("<= -1.5", "-1.5 to under 7", "7 to 7", "> 7")),
        ([0.1 + 0.2], ("<= 0.30000000000000004", "> 0.30000000000000004")),
    ],
)
def test_names_of_intervals(cuts, names):
    assert interval_names(np.array(cuts)) == names


@given(
    cuts=st.lists(st.floats(-1e6, 1e6), max_size=6, unique=True),
    values=st.lists(st.floats(-1e7, 1e7), max_size=20),
)
def test_every_value_falls_into_the_interval_that_holds_it(cuts, values):
    ends = np.unique(np.array(cuts, dtype=np.float64))
    names = interval_names(ends)
    assert len(set(names)) == len(names) == len(ends) + 1
    inside = np.array([*values, *ends.tolist()], dtype=np.float64)
    codes = apply_cuts(inside, ends)
    assert codes.dtype == np.uint8
    bounds = np.concatenate([[-np.inf], ends, [np.inf]])
    assert (bounds[codes] < inside).all()
    assert (inside <= bounds[codes + 1]).all()


def mixed(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "length": rng.standard_normal(rows),
            "code": rng.integers(0, 5, rows),
            "age": rng.integers(18, 90, rows),
            "half": rng.integers(0, 2, rows) / 2,
            "colour": rng.choice(["red", "green"], rows),
            "smokes": rng.random(rows) < 0.5,
        }
    )


def test_columns_that_are_discretised():
    agreement = agreed({"a": mixed(seed=0), "b": mixed(seed=1)})
    assert agreement.continuous == ("length", "age")
    assert agreement.whole == ("age",)
    assert agreement.states == (
        (),
        ("0", "1", "2", "3", "4"),
        (),
        ("0", "0.5"),
        ("green", "red"),
        ("False", "True"),
    )


def test_without_the_option_they_are_problems():
    with pytest.raises(DataError, match=r"column 'length': 70 different values.*discretize=5"):
        agreed({"a": mixed(70)}, Handling(text_columns="keep"))


@given(
    distinct=st.integers(1, 12),
    spacing=st.sampled_from([1.0, 0.5]),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_which_columns_does_not_depend_on_who_has_which_row(distinct, spacing, cuts, seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, distinct, 40) * spacing
    pooled = agreed({"all": pd.DataFrame({"v": values, "w": rng.integers(0, 2, 40)})})
    numbers = np.unique(values)
    whole = (numbers == np.floor(numbers)).all()
    expected = len(numbers) > 8 or (len(numbers) > 3 and not whole)
    assert pooled.continuous == (("v",) if expected else ())
    parts = np.split(np.arange(40), sorted(cuts))
    frame = pd.DataFrame({"v": values, "w": rng.integers(0, 2, 40)})
    handling = replace(BINS, min_rows=0)
    split = agreed({str(k): frame.iloc[part] for k, part in enumerate(parts)}, handling)
    assert (split.continuous, split.whole) == (pooled.continuous, pooled.whole)
    assert split.states[0] == pooled.states[0]


def exchange(tables, agreement):
    """Agree on the cut points as a strategy does, by counts only."""
    rows = [prepare(frame, agreement.continuous, BINS) for frame in tables.values()]
    state = start_cuts(agreement, BINS.discretize)
    while not cut_points.finished(state):
        asked = cut_points.thresholds(state)
        state = cut_points.step(state, sum(cut_points.count_up_to(r, asked) for r in rows))
    return dict(zip(agreement.continuous, cut_points.cut_points(state), strict=True))


def test_from_reports_to_codes():
    whole = mixed(300)
    tables = {"a": whole.iloc[:50], "b": whole.iloc[50:120], "c": whole.iloc[120:]}
    agreement = agreed(tables)
    cuts = exchange(tables, agreement)
    alone = {"all": whole}
    pooled = exchange(alone, agreed(alone))
    for name in agreement.continuous:
        np.testing.assert_array_equal(cuts[name], pooled[name])
    full = with_cuts(agreement, cuts)
    assert all(full.states)
    parts = [
        prepare_states(frame, agreement.names, agreement.states, BINS, cuts)
        for frame in tables.values()
    ]
    for table in parts:
        assert (table.names, table.states) == (full.names, full.states)
    together = np.concatenate([table.codes for table in parts], axis=1)
    # Filled-in states do as well as those with gaps.
    once = prepare_states(whole, full.names, full.states, BINS, cuts)
    np.testing.assert_array_equal(once.codes, together)
    assert np.bincount(once.codes[0]).tolist() == [100, 100, 100]
    age = full.names.index("age")
    low, high = cuts["age"]
    np.testing.assert_array_equal(once.codes[age], 0 + (whole.age > low) + (whole.age > high))
    assert full.states[age] == (f"<= {low:g}", f"{low:g} to {high:g}", f"> {high:g}")


def test_cut_points_need_sums_and_codes_need_cut_points():
    told = {"a": describe(mixed(), BINS, states=True)}
    agreement = agree(told, BINS)
    with pytest.raises(DataError, match="report the sums"):
        start_cuts(agreement, 3)
    with pytest.raises(DataError, match=r"'length' has no agreed states.*give its cut points"):
        prepare_states(mixed(), agreement.names, agreement.states, BINS)
    gap = mixed().assign(length=np.nan)
    cuts = {"length": np.zeros(1), "age": np.zeros(1)}
    with pytest.raises(DataError, match="'length' has missing or infinite values"):
        prepare_states(gap, agreement.names, agreement.states, BINS, cuts)
    words = mixed().assign(length="long")
    with pytest.raises(DataError, match="'length' is not numeric"):
        prepare_states(words, agreement.names, agreement.states, BINS, cuts)
