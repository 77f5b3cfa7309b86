"""States in the schema exchange: what parties report, and what they agree on."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.contract.report import pack_states, unpack_states
from flwr_causal.core.discrete.discrete import as_discrete, sorted_states, state_name
from flwr_causal.core.options import from_plain, to_plain
from flwr_causal.data.check.agreement import agree
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import describe, prepare_states
from flwr_causal.data.check.report import TableReport
from flwr_causal.errors import ConfigError, DataError


def states_of(column):
    """Return the states that occur in a column without missing values, one value at a time."""
    return sorted_states(state_name(value) for value in column)


KEEP = Handling(text_columns="keep", constant_columns="keep", duplicate_columns="keep", min_rows=1)


def changed(**fields):
    return replace(KEEP, **fields)


def reports(tables, handling=KEEP):
    told = {}
    for party, frame in tables.items():
        report = describe(frame, handling, states=True)
        told[party] = TableReport.from_dict(report.to_dict())
        assert told[party] == report
    return told


def agreed(tables, handling=KEEP):
    return agree(reports(tables, handling), handling)


def single_problem(tables, handling=KEEP):
    with pytest.raises(DataError) as caught:
        agreed(tables, handling)
    _, *lines = str(caught.value).partition("\nSet ")[0].split("\n  ")
    assert len(lines) == 1, lines
    return lines[0]


def frame_of(**columns):
    return pd.DataFrame(columns)


# ---------------------------------------------------------------- one party


@pytest.mark.parametrize(
    ("values", "states"),
    [
        (["b", "a", "b"], ("a", "b")),
        ([10, 9, 9], ("9", "10")),
        (np.array([1, 0, 1], dtype=np.uint8), ("0", "1")),
        ([2**60 + 1, 2**60, 2**60], (str(2**60), str(2**60 + 1))),
        ([1.0, -0.0, 0.0], ("0", "1")),
        ([0.5, 1.0, 0.5], ("0.5", "1")),
        ([True, False, True], ("False", "True")),
        (pd.array([True, False, True], dtype="boolean"), ("False", "True")),
        (pd.array([1, 2, 1], dtype="Int64"), ("1", "2")),
        (pd.Categorical(["x", "y", "x"], categories=["z", "y", "x"]), ("x", "y")),
        (pd.Categorical([3, 1, 3]), ("1", "3")),
    ],
)
def test_states_of_a_column(values, states):
    frame = pd.DataFrame({"v": values})
    (column,) = describe(frame, KEEP, states=True).columns
    assert column.states == states == states_of(frame["v"])
    assert column.distinct == len(states)
    assert not column.hides_states
    table = prepare_states(frame, ["v"], [states], KEEP)
    assert table.states == (states,)
    np.testing.assert_array_equal(table.codes, as_discrete(frame).codes)


def test_only_those_who_ask_get_states():
    frame = frame_of(name=["alice", "bob", "bob"], x=[123456, 654321, 654321])
    plain = describe(frame, KEEP)
    assert "alice" not in repr(plain.to_dict())
    assert not plain.has_states
    assert agree({"a": plain}, KEEP).states == ()
    assert "alice" in repr(describe(frame, KEEP, states=True).to_dict())


def test_of_many_values_only_the_number_travels():
    frame = frame_of(name=[f"secret {k % 70}" for k in range(140)], x=np.arange(140) % 65 + 1000)
    report = describe(frame, KEEP, states=True)
    assert [c.distinct for c in report.columns] == [70, 65]
    assert all(c.hides_states and c.states == () for c in report.columns)
    text = repr(report.to_dict())
    assert "secret" not in text
    assert "1000" not in text
    few = describe(frame, changed(max_states=70), states=True)
    assert [len(c.states) for c in few.columns] == [70, 65]


def test_what_will_be_discretised_is_not_named():
    frame = frame_of(x=[0.5, 1.5, 2.5, 3.5, 3.5], y=[0.25, 0.5, 0.25, 0.5, 0.5], k=[1, 2, 3, 4, 4])
    columns = describe(frame, changed(discretize=3), states=True).columns
    assert [(c.distinct, len(c.states), c.whole) for c in columns] == [
        (4, 0, False),
        (2, 2, False),
        (4, 4, True),
    ]


def test_states_are_those_of_the_kept_rows():
    frame = frame_of(t=["u", "v", "w", "u"], x=[1.0, np.nan, 2.0, 1.0], b=[True, None, True, False])
    handling = changed(missing_values="drop")
    t, x, b = describe(frame, handling, states=True).columns
    assert (t.states, x.states, b.states) == (("u", "w"), ("1", "2"), ("False", "True"))
    table = prepare_states(frame, ["x", "t"], [("0", "1", "2"), ("u", "w")], handling)
    assert table.codes.tolist() == [[1, 2, 1], [0, 1, 0]]


def test_missing_and_infinite_values_are_no_states():
    frame = frame_of(t=["u", None, "v"], x=[1.0, np.nan, np.inf])
    t, x = describe(frame, KEEP, states=True).columns
    assert (t.states, x.states) == (("u", "v"), ("1",))
    with pytest.raises(DataError, match=r"'t': 1 missing value; .*\n.*'x': 1 missing value"):
        agreed({"a": frame})


def test_categories_of_dates_are_dates():
    day = pd.Series(pd.date_range("2020-01-01", periods=3)).astype("category")
    report = describe(frame_of(day=day), KEEP, states=True)
    assert (report.columns[0].kind, report.columns[0].states) == ("other", ())


def test_malformed_states_are_refused():
    plain = describe(frame_of(t=["u", "v", "u"]), KEEP, states=True).to_dict()
    for spoilt in ({"states": ["u"]}, {"num-states": [3]}, {"distinct": []}, {"num-states": [-1]}):
        with pytest.raises(DataError, match="malformed"):
            TableReport.from_dict({**plain, **spoilt})


@given(st.lists(st.lists(st.text(max_size=3), max_size=4).map(tuple), max_size=5).map(tuple))
def test_packing(states):
    assert unpack_states(*pack_states(states)) == states


# ---------------------------------------------------------------- all parties

VALUES = st.sampled_from(["red", "green", "1", "10", "9", "", "Ünï", "-2.5"])


@given(
    rows=st.lists(st.tuples(VALUES, st.integers(-3, 11), st.booleans()), min_size=1, max_size=25),
    cuts=st.lists(st.integers(0, 25), max_size=4),
)
def test_a_union_of_states_is_that_of_all_rows(rows, cuts):
    # Each twice, since a column in which no value occurs twice is refused.
    whole = pd.DataFrame(rows * 2, columns=["t", "k", "b"])
    handling = changed(min_rows=0)
    pooled = agreed({"all": whole}, handling)
    parts = np.split(np.arange(len(whole)), sorted(cuts))
    split = {str(k): whole.iloc[part] for k, part in enumerate(parts)}
    agreement = agreed(split, handling)
    assert agreement.states == pooled.states == tuple(states_of(whole[n]) for n in whole)
    assert agreement.kinds == pooled.kinds
    tables = [
        prepare_states(f, agreement.names, agreement.states, handling) for f in split.values()
    ]
    together = np.concatenate([table.codes for table in tables], axis=1)
    np.testing.assert_array_equal(together, as_discrete(whole).codes)
    assert [table.num_rows for table in tables] == list(agreement.rows.values())


def test_parties_that_know_different_states_and_orders_of_columns():
    a = frame_of(t=["x", "y", "x"], k=[1, 1, 1])
    b = frame_of(k=[10.0, 2.0, 2.0], t=["w", "w", "w"])
    agreement = agreed({"a": a, "b": b})
    assert agreement.names == ("t", "k")
    assert agreement.states == (("w", "x", "y"), ("1", "2", "10"))
    assert agreement.continuous == agreement.whole == ()
    table = prepare_states(b, agreement.names, agreement.states, KEEP)
    assert table.codes.tolist() == [[0, 0, 0], [2, 1, 1]]


def test_prepare_states_refuses():
    frame = frame_of(t=["x", "y"], n=["x", None], day=pd.date_range("2020-01-01", periods=2))
    for names, states, words in (
        (["z"], [("x",)], "'z' is missing in the table, which has t, n, day"),
        (["t"], [("x", "w")], "'t' has a value that is not among its 2 agreed states.*not change"),
        (["n"], [("x",)], "'n' has missing or infinite values.*missing_values='drop'"),
        (["day"], [("x",)], "'day' .* holds no categories"),
    ):
        with pytest.raises(DataError, match=words):
            prepare_states(frame, names, states, KEEP)
    doubled = pd.DataFrame([["x", "y"]], columns=["t", "t"])
    with pytest.raises(DataError, match="'t' is there 2 times"):
        prepare_states(doubled, ["t"], [("x", "y")], KEEP)


# ---------------------------------------------------------------- each problem


def ages(low, high):
    return pd.DataFrame({"age": np.tile(np.arange(low, high), 2), "k": 1})


def test_too_many_states_at_a_party():
    line = single_problem({"a": ages(0, 73), "b": ages(0, 5)})
    assert line.startswith("party 'a', column 'age': 73 different values, more than max_states=64;")
    for part in ("discretize=5", "equal frequency", "raise max_states", "drop it"):
        assert part in line
    line = single_problem({"a": ages(0, 73), "b": ages(0, 90), "c": ages(0, 70)})
    assert "party 'b'" in line
    assert "90 different values" in line
    assert "(too many at parties 'a', 'c' too)" in line
    assert agreed({"a": ages(0, 73)}, changed(max_states=73)).states[0][72] == "72"


def test_too_many_texts_cannot_be_discretised():
    names = pd.DataFrame({"who": [f"p{k % 300}" for k in range(600)]})
    line = single_problem({"a": names})
    assert "300 different values" in line
    assert "join values that belong together, or drop it" in line
    assert "discretize" not in line
    assert "raise" not in line
    assert "who" in single_problem({"a": names}, changed(discretize=4))


def test_too_many_states_in_all():
    line = single_problem({"a": ages(0, 40), "b": ages(40, 80)})
    assert line.startswith("all parties, column 'age': 80 different values in all, more than")
    assert "discretize=5" in line
    assert len(agreed({"a": ages(0, 40), "b": ages(40, 80)}, changed(max_states=80)).states[0])


def test_a_state_of_its_own_for_every_row():
    tables = {"a": frame_of(id=["p", "q"], k=[1, 1]), "b": frame_of(id=["r"], k=[2])}
    line = single_problem(tables)
    for part in ("all parties, column 'id'", "3 states for 3 rows", "drop it"):
        assert part in line
    assert agreed({"a": tables["a"]}).states[0] == ("p", "q")
    numbers = frame_of(v=np.arange(20), k=[1, 2] * 10)
    line = single_problem({"a": numbers})
    assert "drop it if it only numbers the rows, else set discretize=5 and max_states below" in line
    handling = changed(discretize=5, max_states=19)
    assert agreed({"a": numbers}, handling).continuous == ("v",)


@pytest.mark.parametrize(("count", "fine"), [(10, True), (11, False)])
def test_measurements_are_no_categories_and_are_not_named(count, fine):
    halves = frame_of(v=np.repeat(np.arange(count) + 0.5, 2))
    report = describe(halves, changed(), states=True)
    assert len(report.columns[0].states) == (count if fine else 0)
    if not fine:
        line = single_problem({"a": halves})
        assert "11 different values, not whole and more than 10" in line
        assert "discretize=5" in line
        assert "raise max_states" not in line


def test_dates_and_mixtures():
    day = pd.date_range("2020-01-01", periods=3)
    line = single_problem({"a": frame_of(day=day, k=[1, 2, 2])})
    for part in (
        "party 'a', column 'day'",
        "dates, a mixture, or codes",
        "option exclude",
    ):
        assert part in line
    mixture = pd.Series([1, "b", "b"], dtype=object)
    assert "'m'" in single_problem({"a": frame_of(m=mixture, k=[1, 2, 2])})


def test_numbers_here_and_text_or_booleans_there():
    a, b = frame_of(v=[0, 1, 1]), frame_of(v=["0", "1", "?"])
    line = single_problem({"a": a, "b": b})
    assert "party 'b', column 'v': holds text or categories, but numbers at party 'a'" in line
    line = single_problem({"a": a, "b": frame_of(v=[True, False, True])})
    assert "party 'b', column 'v': holds booleans, but numbers at party 'a'" in line
    assert "different states" in line


def test_ids_that_are_text_here_and_digits_there_are_offered_to_be_left_out():
    """They are no codes of a category; measurements as text are not offered to be left out."""
    ids = [f"P{k:03d}" for k in range(12)]
    fine = {"k": [1, 2, 2] * 4}
    mixed = {"a": frame_of(v=ids, **fine), "b": frame_of(v=range(501, 513), **fine)}
    line = single_problem(mixed)
    assert "party 'a', column 'v'" in line
    assert "leave it out with the option exclude" in line
    assert "row_id" in line
    assert "categories if" not in line
    for text, numbers in (
        (["x", "y", "y"] * 4, range(501, 513)),
        (ids, np.arange(12) + 0.3),
        ([*map(str, range(11)), "?"], range(501, 513)),
    ):
        line = single_problem({"a": frame_of(v=text, **fine), "b": frame_of(v=numbers, **fine)})
        assert "exclude" not in line
        assert "make it the same everywhere" in line


def test_an_empty_party():
    empty = frame_of(t=pd.Series([], dtype=object))
    line = single_problem({"a": frame_of(t=["x", "y", "x"]), "b": empty})
    assert "party 'b', all columns: the table has 0 rows; at least 1" in line


# ---------------------------------------------------------------- one state only


def test_one_state_at_all_parties():
    tables = {"a": frame_of(c=["x"] * 3, k=[1, 2, 2]), "b": frame_of(c=["x"] * 2, k=[1, 2])}
    agreement = agreed(tables)
    assert agreement.states == (("x",), ("1", "2"))
    (warning,) = agreement.warnings
    assert warning == (
        "column 'c' has one state only at all parties: it stays as an isolated node; "
        "constant_columns='fail' makes this an error"
    )
    line = single_problem(tables, changed(constant_columns="fail"))
    assert "all parties, column 'c': constant" in line
    dropped = agreed(tables, changed(constant_columns="drop"))
    assert (dropped.names, dropped.states) == (("k",), (("1", "2"),))
    assert dropped.dropped == {"c": "constant over all parties"}


def test_one_state_at_each_party_is_compared():
    tables = {"a": frame_of(site=["x"] * 3), "b": frame_of(site=["y"] * 2)}
    for how in ("keep", "fail", "drop"):
        agreement = agreed(tables, changed(constant_columns=how))
        assert agreement.states == (("x", "y"),)
        (warning,) = agreement.warnings
        assert "column 'site' has one state only at every party, and not the same one" in warning


def test_many_such_columns_make_one_warning_of_each_sort():
    rows = 8
    a = pd.DataFrame({f"c{k}": ["x"] * rows for k in range(30)})
    a = a.assign(**{f"s{k}": ["x"] * rows for k in range(20)})
    b = a.assign(**{f"s{k}": ["x", "y"] * 4 for k in range(20)})
    lone, some = agreed({"a": a, "b": b}).warnings
    assert lone.startswith("30 columns ('c0', 'c1', 'c2', 'c3', 'c4' and 25 more) have one state")
    assert "they stay as isolated nodes" in lone
    assert some.startswith("20 columns vary between parties, with one state only at some of them:")
    assert "'s0' at party 'a', " in some
    assert "and 15 more" in some


# ---------------------------------------------------------------- the handling


def test_policy():
    with pytest.raises(ConfigError, match="max_states is 1: give 2 to 256"):
        Handling(max_states=1)
    with pytest.raises(ConfigError, match="max_states is 257"):
        Handling(max_states=257)
    with pytest.raises(ConfigError, match="'max_states' is True; it must be a whole number"):
        Handling(max_states=True)
    with pytest.raises(ConfigError, match=r"discretize is 1: give 2 to 64 intervals.*or 0"):
        Handling(discretize=1)
    with pytest.raises(ConfigError, match="discretize is 9: give 2 to 8"):
        Handling(max_states=8, discretize=9)
    handling = Handling(max_states=63, discretize=5)
    assert from_plain(Handling, to_plain(handling)) == handling
