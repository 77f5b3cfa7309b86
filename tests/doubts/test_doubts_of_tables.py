"""Doubts before the training name columns, parties and remedy; plain tables have none."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import flwr_causal.doubts.tables as doubts_module
from flwr_causal.data.check.agreement import agree
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import describe, repeated_rows
from flwr_causal.data.check.report import TableReport
from flwr_causal.data.check.rules import FactRule, told
from flwr_causal.data.series.levels import describe_series
from flwr_causal.data.series.series import SeriesLayout
from flwr_causal.doubts.tables import RULES, SAME_UNITS, Expected, doubts, facts_of
from flwr_causal.simulations import simulate
from flwr_causal.simulations.engines import agreement_of

LINEAR = Expected(
    SAME_UNITS, level_remedy="set center='party'", raw_units=True, columns=1, tails="ranks"
)


def tables(rows=60, parties=3, d=4, seed=0):
    rng = np.random.default_rng(seed)
    names = [f"c{j}" for j in range(d)]
    return {
        f"p{k}": pd.DataFrame(rng.normal(5.0, 2.0, (rows, d)), columns=names)
        for k in range(parties)
    }


def reported(given, handling=None, *, states=False):
    return {
        name: TableReport.from_dict(
            describe(frame, handling, sums=True, states=states, relations=not states).to_dict()
        )
        for name, frame in given.items()
    }


def warned(given, expected=LINEAR, handling=None, *, states=False):
    reports = reported(given, handling, states=states)
    return doubts(reports, agree(reports, handling), expected)


def the_only(given, *words, **options):
    (text,) = warned(given, **options)
    for word in words:
        assert word in text, (word, text)
    return text


@pytest.mark.few(7)
@pytest.mark.parametrize("rows", [2, 4, 8, 60])
@pytest.mark.parametrize("seed", range(5))
def test_rows_of_one_population_are_plausible(rows, seed):
    assert warned(tables(rows=rows, parties=max(3, 60 // rows), seed=seed)) == ()


@pytest.mark.parametrize("factor", [1000.0, 100.0, 10.0, 0.01])
def test_a_unit_of_its_own_at_one_party(factor):
    given = tables()
    given["p1"]["c2"] *= factor
    text = the_only(given, "'c2'", "'p1'", "one unit")
    assert "'p0'" not in text
    found = re.search(r"(1/)?([\d,]+) times|1/([\d,]+)", text)
    number = float((found[2] or found[3]).replace(",", ""))
    assert number == pytest.approx(max(factor, 1 / factor), rel=0.3)


def test_of_two_parties_the_one_of_larger_numbers_is_named():
    given = tables(parties=2)
    given["p0"]["c0"] *= 1000
    assert "at 'p1'" not in the_only(given, "times at 'p0'")


def test_mechanisms_of_their_own_may_change_the_spread():
    given = tables()
    given["p1"]["c2"] *= 20
    assert warned(given, Expected()) == ()
    given["p1"]["c2"] *= 20
    the_only(given, "'c2'", expected=Expected())


def test_a_level_of_its_own():
    given = tables()
    given["p2"]["c1"] += 40  # 32 + 1.8 x would be Fahrenheit
    the_only(given, "'c1'", "'p2'", "set center='party'")
    assert warned(given, Expected(SAME_UNITS)) == ()


def test_columns_of_very_different_units():
    given = {name: frame * [1, 1, 1000, 1] for name, frame in tables().items()}
    the_only(given, "'c2'", "standardize=True")
    assert warned(given, Expected(SAME_UNITS, columns=1)) == ()


def test_no_more_rows_than_columns():
    given = tables(rows=2, parties=2)
    the_only(given, "4 rows for 4 columns", "Add rows")
    assert warned({**given, **tables(rows=3, parties=1)}) == ()
    # With a lag twice as many numbers are fitted; own mechanisms need the rows at one party.
    the_only(
        tables(rows=3, parties=2), "6 rows for 8", "lags", expected=Expected(columns=1, lags=1)
    )
    own = Expected(columns=1, own_fits=True)
    the_only(tables(rows=4, parties=9), "largest party has 4 rows", expected=own)


def test_a_column_that_is_a_combination_of_others():
    given = {name: f.assign(total=f.c1 + f.c3, inch=f.c0 / 2.54) for name, f in tables().items()}
    total, inch = sorted(warned(given), key=lambda text: "'inch'" in text)
    assert "'total' is a linear combination of 'c1', 'c3'" in total
    assert "'inch' is a multiple of 'c0'" in inch
    assert "Leave one of them out" in total


def test_a_combination_at_some_parties_only_is_none():
    given = tables()
    given["p1"]["c3"] = given["p1"]["c1"] + given["p1"]["c2"]
    assert warned(given) == ()


def test_parties_of_few_rows_cannot_tell_of_combinations():
    given = tables(rows=5, parties=4)
    given = {name: f.assign(c3=f.c1 + f.c2) for name, f in given.items()}
    assert not any("combination" in text for text in warned(given))
    more = {name: f.assign(c3=f.c1 + f.c2) for name, f in tables(parties=1).items()}
    the_only({**given, "large": more["p0"]}, "combination")


def test_columns_are_matched_by_name():
    given = {name: f.assign(c3=f.c1 + f.c2) for name, f in tables().items()}
    given["p1"] = given["p1"][["c0", "c3", "c2", "c1"]]
    the_only(given, "'c3' is a linear combination of 'c1', 'c2'")


def test_a_single_row_that_has_most_of_the_variance():
    given = tables()
    given["p1"].loc[7, "c2"] = 60.0
    the_only(given, "'c2'", "party 'p1'", "missing", "logarithms")


def test_codes_of_missing_values():
    """Which value it is stays at the party; neither units nor single rows are named besides."""
    given = tables()
    given["p1"].loc[::9, "c2"] = -9999.0
    given["p2"].loc[[3], "c2"] = -9999.0
    given["p1"].loc[7, "c0"] = 999.0
    text = the_only(given, "'c2' (7 rows at party 'p1', 1 row at party 'p2')", "missing_values")
    assert "'c0' (1 row at party 'p1')" in text
    assert "-9999.0" not in text


def test_states_that_are_codes_are_named_once():
    given = tables()
    for frame in given.values():
        frame["c3"] = np.arange(60) % 3
        frame.loc[::10, "c3"] = -999
    given = {name: frame[["c3"]] for name, frame in given.items()}
    (text,) = warned(given, Expected(), states=True)
    assert "marks of missing values" in text


def test_tails_so_heavy_that_one_row_decides():
    given = tables(rows=300)
    for seed, frame in enumerate(given.values()):
        frame["c1"] = np.exp(4 * np.random.default_rng(seed).normal(size=300))
    assert any("'c1'" in text and "logarithms" in text for text in warned(given))


def test_a_rare_state_is_no_outlier():
    given = tables()
    given["p1"]["c0"] = (np.arange(60) == 3).astype(float)
    assert not any("single row" in text for text in warned(given))


def test_a_table_that_two_parties_have():
    given = {**tables(), "copy": tables()["p1"].sample(frac=1, random_state=0)}
    text = the_only(given, "'copy' and 'p1'", "one party")
    assert "p0" not in text
    changed = given["copy"].copy()
    changed.iloc[0, 0] += 0.01
    assert warned({**given, "copy": changed}) == ()


def test_time_steps_that_differ():
    """An hour at one party, a day at the others; the unit does not matter, nor the origin."""
    layout = SeriesLayout(time_column="t", order=1)
    days = pd.date_range("2020-01-01", periods=60)
    given = {name: frame.assign(t=days) for name, frame in tables().items()}
    given["p2"]["t"] = days.astype(str) + "T06:00"

    def texts():
        reports = {
            name: TableReport.from_dict(describe_series(frame, layout, sums=True).to_dict())
            for name, frame in given.items()
        }
        return doubts(reports, agree(reports), Expected(columns=2))

    assert texts() == ()
    given["p1"]["t"] = pd.date_range("2020-01-01", periods=60, freq="h")
    (text,) = texts()
    assert "0 days 01:00:00 at party 'p1'" in text
    assert "1 days 00:00:00 at parties 'p0', 'p2'" in text


def test_equal_counts_of_few_columns_are_chance():
    """A yes-or-no column is as often true at another party once in twenty pairs."""
    rng = np.random.default_rng(0)
    marks = pd.DataFrame(rng.integers(0, 2, (60, 3)), columns=list("abc"))
    other = pd.DataFrame({name: rng.permutation(marks[name]) for name in marks})
    assert warned({"p0": marks, "p1": other}) == ()
    many = pd.DataFrame(rng.integers(0, 2, (60, 12))).rename(columns=str)
    the_only({"p0": many, "p1": many.sample(frac=1, random_state=0)}, "'p1' and 'p0'")


@pytest.mark.parametrize("start", [0, 1, 5000])
def test_a_column_that_numbers_the_rows(start):
    given = {
        name: frame.assign(nr=np.random.default_rng(0).permutation(60) + start)
        for name, frame in tables().items()
    }
    texts = warned(given, Expected(SAME_UNITS))
    assert ["number the rows" in text and "'nr'" in text for text in texts] == [True]
    for frame in given.values():
        frame.loc[3, "nr"] += 1  # a count, with a value twice
    assert warned(given, Expected(SAME_UNITS)) == ()


DROP = Handling(missing_values="drop", discretize=5)


@pytest.mark.parametrize(("lost", "found"), [(1, True), (20, True), (21, False)])
def test_a_column_that_numbers_the_rows_of_which_some_are_dropped(lost, found):
    rng = np.random.default_rng(0)
    given = {party: f.assign(nr=rng.permutation(60) + 5000) for party, f in tables().items()}
    for frame in given.values():
        frame.loc[rng.permutation(60)[:lost], ["c0", "nr"]] = np.nan

    def named(given):
        texts = warned(given, Expected(SAME_UNITS), DROP, states=True)
        return any("number the rows" in text and "'nr'" in text for text in texts)

    assert named(given) == found
    # Different whole numbers with large gaps, as incomes.
    assert not named({party: f.assign(nr=2 * f["nr"]) for party, f in given.items()})
    for frame in given.values():
        first, second = frame.index[frame["nr"].notna()][:2]
        frame.loc[first, "nr"] = frame.loc[second, "nr"]  # a count, with a value twice
    assert not named(given)


@pytest.mark.parametrize(
    "name", ["id", "ID", "patient_id", "Patient ID", "patientId", "row_number"]
)
def test_a_column_whose_name_says_that_it_identifies(name):
    given = {party: f.rename(columns={"c2": name}) for party, f in tables().items()}
    the_only(given, repr(name), "identify")


@pytest.mark.parametrize("name", ["paid", "Covid", "acid", "grid", "idle", "madrid"])
def test_other_names_in_i_d(name):
    assert warned({party: f.rename(columns={"c2": name}) for party, f in tables().items()}) == ()


def categories():
    """Tables of two columns of states."""
    return {
        name: pd.DataFrame({"ill": ["yes", "no"] * 20, "sex": ["f", "m", "m", "f"] * 10})
        for name in ("north", "south", "west")
    }


KEEP = Handling(text_columns="keep", duplicate_columns="keep", missing_values="keep")


def only_of_states(given, *words):
    return the_only(given, *words, expected=Expected(), handling=KEEP, states=True)


def test_a_header_line_within_the_table():
    given = categories()
    given["south"] = pd.concat([given["south"], pd.DataFrame({"ill": ["ill"], "sex": ["Sex"]})])
    text = only_of_states(given, "'ill' (at party 'south')", "'sex' (at party 'south')", "header")
    assert "north" not in text


@pytest.mark.parametrize("mark", ["?", " ", "NA", "n/a", "NaN", "-", "#N/A", "-999", "Missing"])
def test_states_that_stand_for_missing_values(mark):
    given = categories()
    given["west"].loc[3, "sex"] = mark
    text = only_of_states(given, "'sex' (at party 'west')", "missing_values")
    assert "'ill'" not in text


def test_states_that_are_written_in_another_way():
    given = categories()
    given["west"]["sex"] = given["west"]["sex"].map({"f": "Frau", "m": "Mann"})
    text = only_of_states(given, "'sex' (at party 'west')", "Write them alike")
    assert "Frau" not in text
    # Wards of its own, or more states than elsewhere, are a party's right.
    given["west"]["sex"] = "unknown"
    assert not any("Write them" in one for one in warned(given, Expected(), KEEP, states=True))
    given["west"]["sex"] = ["w", "x", "y", "z"] * 10
    assert warned(given, Expected(), KEEP, states=True) == ()


@pytest.mark.parametrize(
    ("one", "other"), [("1", "1.0"), ("0", "-0.0"), ("1.5", "1,5"), ("7", "07")]
)
def test_numbers_as_text_in_two_spellings(one, other):
    given = {name: f.assign(sex=[one, "x"] * 20) for name, f in categories().items()}
    assert warned(given, Expected(), KEEP, states=True) == ()
    given["south"]["sex"] = [other, "x"] * 20
    only_of_states(given, "'sex'", "Write them alike")


@pytest.mark.parametrize("spelling", ["YES", "yes ", " Yes", "y es"])
def test_states_that_differ_in_case_or_blanks(spelling):
    given = categories()
    assert warned(given, Expected(), KEEP, states=True) == ()
    given["south"]["ill"] = [spelling, "no"] * 20
    text = only_of_states(given, "'ill'", "Write them alike")
    assert "'sex'" not in text
    assert all(f"'{party}'" in text for party in given)


@pytest.mark.parametrize(("codes", "own"), [((0, 1), (1, 2)), (("f", "m"), ("f", "w"))])
def test_a_state_that_one_party_alone_has(codes, own):
    def coded(values):
        return pd.DataFrame({"sex": [*values] * 20, "ill": [*"ynnn"] * 10})

    given = {name: coded(codes) for name in ("north", "south", "west")}
    assert warned(given, Expected(), KEEP, states=True) == ()
    given["west"] = coded(own)
    text = only_of_states(given, "'sex' (at party 'west')", "1 and 2 for 0 and 1")
    assert "'ill'" not in text
    # Of two parties nobody knows whose code is the other's.
    two = {name: given[name] for name in ("north", "west")}
    assert "(at parties 'north', 'west')" in only_of_states(two, "'sex'")


def test_numbers_that_are_categories_since_they_are_few():
    given = {
        name: f.assign(visits=[0, 1, 2, 3] * 10, old=[0, 1] * 20)
        for name, f in categories().items()
    }
    handling = replace(KEEP, discretize=5)

    def said(handling):
        reports = {name: describe(f, handling, sums=True, states=True) for name, f in given.items()}
        return doubts(reports, agree(reports, handling), Expected(nominal=True), handling)

    (text,) = said(handling)
    assert "categories without an order: 'visits'." in text
    assert said(replace(handling, categories="visits")) == said(KEEP) == ()
    numbers = replace(handling, numbers="visits")
    assert said(numbers) == ()
    reports = {name: describe(f, numbers, sums=True, states=True) for name, f in given.items()}
    assert agree(reports, numbers).continuous == ("visits",)


def test_codes_that_are_declared_need_no_other_spelling():
    given = {name: f.assign(sex=["7", "007"] * 20) for name, f in categories().items()}
    assert "categories" in only_of_states(given, "'sex'")
    reports = {name: describe(f, KEEP, states=True) for name, f in given.items()}
    handling = replace(KEEP, categories="sex")
    assert doubts(reports, agree(reports, handling), Expected(), handling) == ()


@pytest.mark.parametrize("shift", [1, -3, 1000])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_two_codes_that_are_others_at_one_party(shift, share):
    given = tables(rows=200)
    rng = np.random.default_rng(1)
    for frame in given.values():
        frame["sex"] = (rng.random(200) < share).astype(int)
    assert warned(given) == ()
    given["p1"]["sex"] += shift
    if shift == 1000:  # the levels lie far apart, too
        assert any("'sex' (at party 'p1')" in text for text in warned(given) if "codes" in text)
    else:
        found = [text for text in warned(given) if "two codes" in text]
        assert len(found) == 1
        assert "'sex' (at party 'p1')" in found[0]
    # Three codes, or fractions, are not judged by their mean.
    for values in (rng.integers(0, 3, 200), rng.random(200)):
        given["p1"]["sex"] = values
        assert not any("two codes" in text for text in warned(given))


@pytest.mark.parametrize("seed", range(20))
def test_the_same_tables_in_another_order_of_rows_are_found(seed):
    given = tables(parties=5, seed=seed)
    shuffled = np.random.default_rng(seed).permutation(len(given["p0"]))
    given |= {f"q{k}": given[f"p{k}"].iloc[shuffled] for k in (1, 3)}
    text = the_only(given, "'q1' and 'p1'", "'q3' and 'p3'")
    assert "p0" not in text


def test_tables_are_not_compared_in_pairs(monkeypatch):
    compared = []
    honest = doubts_module._same_sums
    monkeypatch.setattr(
        doubts_module, "_same_sums", lambda *pair: compared.append(pair) or honest(*pair)
    )
    given = tables(rows=20, parties=200)
    given["twice"] = given["p7"]
    the_only(given, "'twice' and 'p7'")
    assert len(compared) < len(given)
    # Of columns of one code in 20 rows many tables have the same sums, which says nothing.
    rng = np.random.default_rng(0)
    compared.clear()
    warned({f"p{k}": pd.DataFrame({"a": rng.integers(0, 2, 20)}) for k in range(100)})
    assert not compared


@pytest.mark.parametrize(("declared", "warned"), [(True, False), (False, True)])
def test_a_declared_intervention_is_no_other_unit(declared, warned):
    """It changes the column on which it acts, and what depends on it."""
    tables = []
    for k in range(3):
        rng = np.random.default_rng(k)
        x = rng.normal(size=300) * (300 if k == 2 else 1)
        frame = pd.DataFrame({"x": x, "y": 2 * x + rng.normal(size=300)})
        tables.append(frame.assign(do="x" if k == 2 else "") if declared else frame)
    options = {"intervention_column": "do"} if declared else {}
    run = simulate("moments", tables, **options)
    assert any("units of some columns" in text for text in run.warnings) == warned


COPIES = {0: False, 4: False, 6: True, 100: True}


@pytest.mark.parametrize(("copies", "told"), COPIES.items())
@pytest.mark.parametrize("method", ["moments", "fedpc", "notears-admm"])
def test_patients_who_are_in_a_table_twice_are_told(method, copies, told):
    tables = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=150)
        tables.append(pd.DataFrame({"x": x, "y": x + rng.normal(size=150)}))
    tables[1] = pd.concat([tables[1], tables[1].head(copies)])
    found = agreement_of(method, tables).warnings
    (warning,) = [text for text in found if "repeat an earlier row" in text] or [""]
    assert bool(warning) == told
    assert not told or "at party 'party 1':" in warning


def test_equal_rows_of_categories_and_of_parts_of_rows_are_no_copies():
    rng = np.random.default_rng(0)
    few = pd.DataFrame(rng.integers(0, 2, (300, 3)), columns=[*"abc"])
    assert not describe(few, states=True).repeats
    # The numbers repeat, and the texts differ.
    visits = pd.DataFrame({"x": np.repeat(rng.normal(size=100), 2), "day": ["a", "b"] * 100})
    assert not describe(visits, Handling(text_columns="keep")).repeats
    assert describe(visits.drop(columns="day")).repeats
    assert repeated_rows(visits) == 0
    assert repeated_rows(visits.assign(day="a")) == 100


@pytest.mark.parametrize(
    ("method", "options"),
    [("moments", {"text_columns": "keep"}), ("fedges", {"discretize": 3}), ("fedpc", {})],
)
def test_numbers_that_a_few_texts_make_categories_are_told(method, options):
    tables = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        frame = pd.DataFrame({"x": rng.normal(size=200), "code": rng.choice([*"12a"], 200)})
        frame["age"] = rng.integers(20, 60, 200).astype(object)
        frame.loc[:3, "age"] = "not known"
        frame["age"] = frame["age"].astype(str)
        tables.append(frame)
    for declared in ("", "age"):
        further = {"categories": declared} if declared else {}
        told = agreement_of(method, tables, **options, **further).warnings
        found = [text for text in told if "most of their values are numbers" in text]
        assert len(found) == (not declared)
        assert all("'age' (at parties" in text and "'code'" not in text for text in found)
        assert all("'unlabelled'" in text for text in found)


# Every rule finds its case, and does not find tables without it.


def changed(given, party="p1", **columns):
    """The tables with columns of one party computed anew."""
    return {
        name: frame.assign(**columns) if party in (name, None) else frame
        for name, frame in given.items()
    }


def of_tables(given, expected=LINEAR, handling=None, *, states=False):
    reports = reported(given, handling, states=states)
    return facts_of(reports, agree(reports, handling), expected, handling or Handling())


def of_states(expected=None, handling=KEEP, **columns):
    """Facts of three tables of two categories, of which one table has other columns."""
    given = changed(categories(), "west", **columns)
    return of_tables(given, expected or Expected(), handling, states=True)


def of_series(*frequencies):
    layout, days = SeriesLayout(time_column="t", order=1), pd.Timestamp("2020-01-01")
    reports = {
        name: describe_series(
            frame.assign(t=pd.date_range(days, periods=60, freq=step)), layout, sums=True
        )
        for (name, frame), step in zip(tables().items(), frequencies, strict=True)
    }
    return facts_of(reports, agree(reports), Expected(columns=2), Handling())


def of_levels(*flat):
    shares, differ = np.array([0.5, 0.1]), np.array([True, False])
    return {"names": "ab", "shares": shares, "differ": differ, "flat": flat, "whose": "parties"}


def of_numbers(visits, **options):
    handling = replace(KEEP, discretize=5, **options)
    given = {name: f.assign(visits=visits * 10) for name, f in categories().items()}
    return of_tables(given, Expected(nominal=True), handling, states=True)


def titled(rule):
    return rule.listed_as


OWN = Expected(columns=1, own_fits=True)
MANY = tables(rows=200)
CODES = [0, 1] * 100
SPREAD = [f"{k}.5" for k in range(38)]
#: By the message: the facts that a rule finds, and others in which there is nothing to find.
CASES = {
    "All parties together have": lambda: (
        of_tables(tables(rows=2, parties=2)),
        of_tables(tables(rows=3, parties=2)),
    ),
    "The largest party has": lambda: (
        of_tables(tables(rows=4), OWN),
        of_tables(tables(rows=5), OWN),
    ),
    "The units of some columns": lambda: (
        of_tables(changed(tables(), c2=lambda f: 30 * f.c2)),
        of_tables(changed(tables(), c2=lambda f: 3 * f.c2)),
    ),
    "The means of some columns": lambda: (
        of_tables(changed(tables(), c1=lambda f: f.c1 + 40)),
        of_tables(changed(tables(), c1=lambda f: f.c1 + 4)),
    ),
    "The levels of the parties (or series) differ": lambda: (of_levels(), of_levels("c")),
    "The levels of the ... differ": lambda: (of_levels("c"), of_levels()),
    "The standard deviation of column": lambda: (
        of_tables(changed(tables(), None, c2=lambda f: 1000 * f.c2)),
        of_tables(changed(tables(), None, c2=lambda f: 10 * f.c2)),
    ),
    "Column ... is ... of": lambda: (
        of_tables(changed(tables(), None, c3=lambda f: f.c1 + f.c2)),
        of_tables(changed(tables(), c3=lambda f: f.c1 + f.c2)),
    ),
    "Left out of the search": lambda: ({"left_out": ["c"]}, {"left_out": []}),
    "A single row": lambda: (
        of_tables(changed(tables(), c2=lambda f: f.c2.where(f.index != 7, 60.0))),
        of_tables(changed(tables(), c2=lambda f: f.c2.where(f.index != 7, 12.0))),
    ),
    "Some columns have values far outside": lambda: (
        of_tables(changed(tables(), c2=lambda f: f.c2.where(f.index != 3, -9999.0))),
        of_tables(tables()),
    ),
    "Some columns have a few values that lie apart": lambda: (
        of_tables(changed(MANY, c2=lambda f: f.c2 + 14 * (f.index % 50 == 3))),
        of_tables(MANY),
    ),
    "The time steps differ": lambda: (of_series("D", "h", "D"), of_series("D", "D", "D")),
    "The tables of some parties": lambda: (
        of_tables({**tables(), "copy": tables()["p1"]}),
        of_tables({**tables(), "other": tables(seed=1)["p1"]}),
    ),
    "Many rows repeat": lambda: (
        of_tables({**tables(), "p1": pd.concat([tables()["p1"], tables()["p1"].head(6)])}),
        of_tables({**tables(), "p1": pd.concat([tables()["p1"], tables()["p1"].head(4)])}),
    ),
    "Some columns seem to number": lambda: (
        of_tables(changed(tables(), None, c2=np.arange(60)[::-1])),
        of_tables(changed(tables(), None, c2=np.arange(60) ** 2)),
    ),
    "Some columns count as missing": lambda: (
        of_states(Expected(fewest=5), ill=None),
        of_states(Expected(fewest=5)),
    ),
    "Some columns have no value": lambda: (
        of_states(ill=None),
        of_states(),
    ),
    "Some columns have their own name": lambda: (
        of_states(sex=["f", "m", "m", "Sex"] * 10),
        of_states(),
    ),
    "Some states differ": lambda: (of_states(ill=["YES", "no"] * 20), of_states()),
    "Some states look like marks": lambda: (of_states(sex=["f", "m", "?", "f"] * 10), of_states()),
    "Some columns are taken as categories": lambda: (
        of_states(ill=["no", "?", *SPREAD]),
        of_states(ill=["no", "?"] * 20),
    ),
    "Some columns have at a party none": lambda: (of_states(sex=["w", "x"] * 20), of_states()),
    "Some columns have at a party a state": lambda: (
        of_states(sex=["f", "x"] * 20),
        of_states(sex=["w", "x"] * 20),
    ),
    "Some columns have two codes": lambda: (
        of_tables(changed(changed(MANY, None, c3=CODES), c3=lambda f: f.c3 + 1)),
        of_tables(changed(MANY, None, c3=CODES)),
    ),
    "Some columns of numbers have so few": lambda: (
        of_numbers([0, 1, 2, 3]),
        of_numbers([0, 1, 0, 1]),
    ),
}


@pytest.mark.parametrize("rule", [one for one in RULES if isinstance(one, FactRule)], ids=titled)
def test_each_rule_finds_its_case_and_no_other(rule):
    (case,) = [case for start, case in CASES.items() if rule.listed_as.startswith(start)]
    found, plain = case()
    assert len(told([rule], found)) == 1
    assert told([rule], plain) == []
