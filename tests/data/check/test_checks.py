import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal import simulate
from flwr_causal.data.check.agreement import agree, pool
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import describe, prepare
from flwr_causal.data.check.report import TableReport
from flwr_causal.errors import DataError


def table(seed=0, rows=6, names="abc"):
    values = np.random.default_rng(seed).standard_normal((rows, len(names)))
    return pd.DataFrame(values, columns=list(names))


def reports(tables, handling=None, *, sums=True):
    return {party: describe(frame, handling, sums=sums) for party, frame in tables.items()}


def problems(tables, handling=None, *, sums=True):
    """Return the lines of the error that the tables must lead to."""
    with pytest.raises(DataError) as caught:
        agree(reports(tables, handling, sums=sums), handling)
    text, _, options = str(caught.value).partition("\nSet ")
    assert bool(options) == bool(caught.value.settings)
    heading, *lines = text.split("\n  ")
    assert re.fullmatch(r"the parties' tables have \d+ problems?:", heading)
    return lines


def single_problem(tables, handling=None, **options):
    lines = problems(tables, handling, **options)
    assert len(lines) == 1, lines
    return lines[0]


# ---------------------------------------------------------------- what is agreed


def test_three_row_federation():
    first = pd.DataFrame({"x10": [1.0, 2.0], "x2": [0.0, 1.0]})
    second = pd.DataFrame({"x2": [5.0], "x10": [6.0]})
    agreement = agree(reports({"A": first, "B": second}), Handling(min_rows=1))
    assert agreement.names == ("x10", "x2")
    assert agreement.kinds == ("numeric", "numeric")
    assert agreement.rows == {"A": 2, "B": 1}
    assert agreement.n == 3
    np.testing.assert_allclose(agreement.mean, [3.0, 2.0], rtol=1e-15)
    np.testing.assert_allclose(agreement.variance, [14 / 3, 14 / 3], rtol=1e-15)
    assert agreement.warnings == ()
    assert agreement.dropped == {}


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=6).filter(lambda sizes: sum(sizes) > 1)


@given(
    sizes=SIZES,
    seed=st.integers(0, 2**32 - 1),
    offset=st.sampled_from([0.0, 1.0, -1e4, 1e8]),
    spread=st.sampled_from([1e-3, 1.0, 1e6]),
)
def test_pooled_moments_equal_those_of_all_rows(sizes, seed, offset, spread):
    rng = np.random.default_rng(seed)
    rows = offset + spread * rng.standard_normal((sum(sizes), 3))
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    tables = {str(k): pd.DataFrame(part, columns=list("abc")) for k, part in enumerate(parts)}
    agreement = agree(reports(tables), Handling(min_rows=1))
    # Taking the offset away is exact; numpy's own variance loses digits to it.
    plain = rows - offset
    np.testing.assert_allclose(agreement.mean, rows.mean(axis=0), rtol=1e-12, atol=1e-12 * spread)
    np.testing.assert_allclose(agreement.variance, plain.var(axis=0), rtol=1e-12)


@given(sizes=SIZES, seed=st.integers(0, 2**32 - 1), data=st.data())
def test_order_of_parties_matters_for_nothing_but_the_order_of_columns(sizes, seed, data):
    rng = np.random.default_rng(seed)
    names = ["x10", "x2", "x1"]
    tables = {
        f"party {k}": table(seed + k, size, names)[rng.permutation(names)]
        for k, size in enumerate(sizes)
    }
    handling = Handling(min_rows=1)
    order = data.draw(st.permutations(list(tables)))
    one = agree(reports(tables), handling)
    other = agree(reports({party: tables[party] for party in order}), handling)
    assert one.names == tuple(tables["party 0"].columns)
    assert other.names == tuple(tables[order[0]].columns)
    assert list(other.rows) == order
    assert other.rows == one.rows
    place = [other.names.index(name) for name in one.names]
    np.testing.assert_allclose(other.mean[place], one.mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(other.variance[place], one.variance, rtol=1e-12)


def test_agreement_survives_travel_and_matches_the_prepared_rows():
    handling = Handling(missing_values="drop", text_columns="drop", unshared_columns="drop")
    A = table(0, 8, "abc")
    A.loc[2, "b"] = np.nan
    A["t"] = "word"
    B = table(1, 5, "cxab")
    B.loc[0, "x"] = np.inf
    sent = {
        party: report.to_dict() for party, report in reports({"A": A, "B": B}, handling).items()
    }
    received = {party: TableReport.from_dict(plain) for party, plain in sent.items()}
    agreement = agree(received, handling)
    assert agreement.names == ("a", "b", "c")
    rows = [prepare(frame, agreement.names, handling) for frame in (A, B)]
    assert list(agreement.rows.values()) == [len(part) for part in rows] == [7, 4]
    np.testing.assert_allclose(agreement.mean, np.vstack(rows).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(agreement.variance, np.vstack(rows).var(axis=0), rtol=1e-12)
    assert set(agreement.dropped) == {"t", "x"}
    for party, count in (("A", "1 of 8 rows"), ("B", "1 of 5 rows")):
        assert any(f"'{party}'" in text and count in text for text in agreement.warnings)
    assert any("'x' is not used: not in the table of party 'A'" in w for w in agreement.warnings)


def test_without_sums_moments_are_unknown():
    agreement = agree(reports({"A": table(), "B": table(1)}, sums=False))
    assert np.isnan(agreement.mean).all()
    assert np.isnan(agreement.variance).all()


def test_booleans_are_numbers():
    A = pd.DataFrame({"a": [True, False, False]})
    B = pd.DataFrame({"a": [1, 0, 0]})
    assert agree(reports({"A": A, "B": A})).kinds == ("boolean",)
    agreement = agree(reports({"A": A, "B": B}))
    assert agreement.kinds == ("numeric",)
    np.testing.assert_allclose(agreement.mean, [1 / 3])
    np.testing.assert_allclose(agreement.variance, [2 / 9])


def test_pool_asks_only_those_who_have_a_column():
    told = reports({"A": table(0, 5, "ab"), "B": table(1, 4, "bc")})
    mean, variance = pool(told, ["a", "b", "c", "z"])
    np.testing.assert_allclose(mean[0], table(0, 5, "ab")["a"].mean())
    np.testing.assert_allclose(variance[2], table(1, 4, "bc")["c"].var(ddof=0))
    assert np.isnan(mean[3])
    assert np.isnan(variance[3])


def test_a_federation_of_one():
    frame = table()
    agreement = agree(reports({"only": frame}))
    np.testing.assert_allclose(agreement.variance, frame.to_numpy().var(axis=0), rtol=1e-14)


# ---------------------------------------------------------------- each problem


@pytest.mark.parametrize(
    ("value", "word"), [(np.nan, "2 missing values"), (np.inf, "2 infinite values")]
)
def test_missing_and_infinite_values(value, word):
    B = table(1)
    B.loc[[1, 3], "b"] = value
    line = single_problem({"A": table(), "B": B})
    for part in ("party 'B'", "column 'b'", word, "missing_values='drop'"):
        assert part in line
    handling = Handling(missing_values="drop")
    agreement = agree(reports({"A": table(), "B": B}, handling), handling)
    assert agreement.rows == {"A": 6, "B": 4}


def test_nothing_left_after_dropping_names_the_worst_column():
    B = table(1)
    B.loc[0, "a"] = np.nan
    B["c"] = np.nan
    line = single_problem({"A": table(), "B": B}, Handling(missing_values="drop"))
    for part in ("party 'B'", "column 'c'", "0 rows left", "6 of 6 rows", "remove the column"):
        assert part in line


@pytest.mark.parametrize(("rows", "word"), [(0, "0 rows"), (1, "1 row;")])
def test_too_few_rows(rows, word):
    line = single_problem({"A": table(), "B": table(1, rows)})
    for part in ("party 'B'", "all columns", word, "at least 2", "leave this party out"):
        assert part in line
    agreement = agree(reports({"A": table(), "B": table(1, rows)}), Handling(min_rows=rows))
    assert agreement.n == 6 + rows


def test_an_empty_csv_party_has_one_problem_not_one_for_every_column(tmp_path):
    empty = pd.DataFrame({name: pd.Series([], dtype=object) for name in "abc"})
    assert "0 rows" in single_problem({"A": table(), "B": empty})


def test_doubled_names():
    B = table(1)
    B.columns = ["a", "b", "a"]
    lines = problems({"A": table(), "B": B})
    assert "party 'B', column 'a': 2 columns have this name; rename or remove all but one" in lines
    assert len(lines) == 2  # and 'c' is missing
    # Doubled names have no remedy by an option.
    keep = Handling("drop", "keep", "keep", "keep", "keep", 0)
    assert "have this name" in single_problem({"A": table(), "B": B}, keep)


def test_a_column_that_one_party_lacks():
    tables = {"A": table(), "B": table(1), "C": table(2).drop(columns="b")}
    line = single_problem(tables)
    for part in ("party 'C'", "column 'b'", "missing", "parties 'A', 'B'", "add it"):
        assert part in line
    assert "unshared_columns='drop'" in line
    assert agree(reports(tables), Handling(unshared_columns="drop")).names == ("a", "c")
    kept = agree(reports(tables), Handling(unshared_columns="keep"))
    assert kept.names == ("a", "b", "c")
    expected = np.concatenate([tables["A"]["b"], tables["B"]["b"]])
    np.testing.assert_allclose(kept.mean[1], expected.mean())


def test_a_column_that_one_party_has_on_top():
    tables = {"A": table(), "B": table(1, names="abcz"), "C": table(2)}
    line = single_problem(tables)
    for part in ("party 'B'", "column 'z'", "not in the table of parties 'A', 'C'", "remove it"):
        assert part in line
    assert agree(reports(tables), Handling(unshared_columns="drop")).names == ("a", "b", "c")
    assert agree(reports(tables), Handling(unshared_columns="keep")).names == ("a", "b", "c", "z")


def test_a_misspelt_column_is_recognised():
    misspelt = table(2).rename(columns={"b": " B_"})
    line = single_problem({"A": table(), "B": table(1), "C": misspelt})
    assert line.startswith("party 'C', column 'b': missing")
    assert "rename its column ' B_'" in line
    lines = problems({"A": table(), "B": misspelt})
    assert "party 'A', column 'b': not in" in lines[0]
    assert "rename it to 'b'" in lines[1]


def test_text_columns():
    A, B = table().assign(t=list("xyzxyz")), table(1).assign(t=list("xyzxyz"))
    line = single_problem({"A": A, "B": B})
    assert line.startswith("parties 'A', 'B', column 't': not numeric, it holds text")
    assert "text_columns='drop'" in line
    assert line.endswith("moments with 'keep', fedges, fedpc (docs/choose.md)")
    for how, names in (("drop", "abc"), ("keep", "abct")):
        handling = Handling(text_columns=how)
        agreement = agree(reports({"A": A, "B": B}, handling), handling)
        assert agreement.names == tuple(names)
    assert agreement.kinds[-1] == "category"
    assert np.isnan(agreement.mean[-1])


def test_dates_are_not_numbers():
    A = table().assign(day=pd.date_range("2020-01-01", periods=6))
    line = single_problem({"A": A})
    assert "column 'day': not numeric, it holds neither numbers nor text" in line


@pytest.mark.parametrize("how", ["fail", "drop", "keep"])
def test_parties_that_disagree_on_a_type_fail_under_every_policy(how):
    B = table(1).assign(b=["1", "2", "n/a!", "4", "5", "6"])
    line = single_problem({"A": table(), "B": B}, Handling(text_columns=how))
    for part in ("party 'B'", "column 'b'", "text", "numbers at party 'A'", "the same everywhere"):
        assert part in line


def test_text_here_and_dates_there():
    A = pd.DataFrame({"t": ["x", "y"]})
    B = pd.DataFrame({"t": pd.date_range("2020-01-01", periods=2)})
    line = single_problem({"A": A, "B": B}, Handling(text_columns="keep"))
    assert "party 'B', column 't'" in line
    assert "text or categories at party 'A'" in line


def test_an_empty_column_is_of_no_type():
    A = pd.DataFrame({"t": ["x", "y"], "a": [1.0, 2.0]})
    B = pd.DataFrame({"t": [np.nan, np.nan], "a": [1.0, 4.0]})
    lines = problems({"A": A, "B": B}, Handling(text_columns="keep"))
    assert lines == [line for line in lines if "2 missing values" in line]


def test_constant_means_over_all_parties():
    constant = {"A": table().assign(b=0.1), "B": table(1, 5).assign(b=0.1)}
    line = single_problem(constant)
    for part in ("all parties", "column 'b'", "constant", "remove it", "constant_columns='drop'"):
        assert part in line
    dropped = agree(reports(constant), Handling(constant_columns="drop"))
    assert dropped.names == ("a", "c")
    assert dropped.dropped == {"b": "constant over all parties"}
    kept = agree(reports(constant), Handling(constant_columns="keep"))
    assert kept.variance[1] == 0.0
    assert kept.mean[1] == 0.1


def test_constant_at_one_party_is_a_warning():
    agreement = agree(reports({"A": table().assign(b=1.0), "B": table(1)}))
    assert agreement.names == ("a", "b", "c")
    (warning,) = agreement.warnings
    assert "'b'" in warning
    assert "party 'A'" in warning


def test_constant_at_every_party_but_different_is_a_warning():
    agreement = agree(reports({"A": table().assign(b=1.0), "B": table(1).assign(b=2.0)}))
    assert agreement.variance[1] == 0.25
    (warning,) = agreement.warnings
    assert "not the same one" in warning


def test_constant_text_is_not_compared_across_parties():
    handling = Handling(text_columns="keep")
    A = table().assign(t="x")
    (warning,) = agree(reports({"A": A, "B": A}), handling).warnings
    assert "'t'" in warning
    assert "not compared" in warning
    assert "constant" in single_problem({"A": A}, handling)


def test_single_rows_are_not_called_constant():
    tables = {str(k): table(k, 1) for k in range(3)}
    agreement = agree(reports({**tables, "more": table(5)}), Handling(min_rows=1))
    assert agreement.warnings == ()


def test_copies_must_agree_at_every_party():
    A, B = table(), table(1)
    A, B = A.assign(d=A["b"]), B.assign(d=B["b"])[["d", "c", "b", "a"]]
    line = single_problem({"A": A, "B": B})
    for part in ("all parties", "column 'd'", "'b'", "remove one", "duplicate_columns='drop'"):
        assert part in line
    assert agree(reports({"A": A, "B": B}), Handling(duplicate_columns="drop")).names == tuple(
        "abc"
    )
    assert agree(reports({"A": A, "B": B}), Handling(duplicate_columns="keep")).names == tuple(
        "abcd"
    )
    other = table(1, names="abcd")
    assert agree(reports({"A": A, "B": other})).names == tuple("abcd")
    # Equal to 'b' at A and to 'a' at B is no copy.
    assert agree(reports({"A": A, "B": B.assign(d=B["a"])})).names == tuple("abcd")


def test_constants_are_not_reported_as_copies_too():
    tables = {"A": table().assign(b=1.0, c=1.0), "B": table(1).assign(b=1.0, c=1.0)}
    assert all("constant" in line for line in problems(tables))


@pytest.mark.parametrize("values", [[1e300, -1e300], [1e23, -1e23], [1e23, 1e23 + 1e8]])
def test_overflow(values):
    line = single_problem({"A": table(), "B": table(1).assign(b=values * 3)})
    assert "party 'B', column 'b': values so large" in line
    assert "larger unit" in line


def test_no_column_left():
    handling = Handling(unshared_columns="drop", constant_columns="drop")
    line = single_problem(
        {"A": table(names="ac").assign(c=1.0), "B": table(names="bc").assign(c=1.0)}, handling
    )
    for part in ("no column is left", "'a' is not in the table of party 'B'", "'c' is constant"):
        assert part in line


def test_no_party():
    with pytest.raises(DataError, match="no party reported"):
        agree({})


def test_all_problems_at_once_up_to_twenty():
    bad = table(1)
    bad.loc[0, "a"] = np.nan
    lines = problems({"A": table().assign(t="x"), "B": bad.assign(t="x"), "C": table(0, 1)})
    found = [
        ("party 'C'", "1 row"),
        ("party 'C'", "missing"),
        ("party 'B'", "1 missing value"),
        ("parties 'A', 'B'", "text"),
    ]
    assert len(lines) == len(found)
    for line, (where, word) in zip(lines, found, strict=True):
        assert line.startswith(f"{where}, ")
        assert word in line
    many = {f"p{k}": table(k).rename(columns={"c": f"c{k}"}) for k in range(30)}
    lines = problems(many)
    assert len(lines) == 21
    assert lines[-1] == "... and 10 more"


def test_what_parties_and_columns_have_in_common_is_one_line():
    tables = {name: table(k).assign(t="x", u="y") for k, name in enumerate("ABCDE")}
    for k, frame in enumerate(tables.values()):
        frame.loc[: k - 1, "a"] = np.nan
    missing, text = problems(tables)
    assert missing.startswith("parties 'B', 'C', 'D' and 1 more, column 'a': 1, 2, 3 and 1 more ")
    assert " 1 more missing values; fill in" in missing
    assert text.startswith("parties 'A', 'B', 'C' and 2 more, columns 't', 'u': not numeric")


@pytest.mark.parametrize("other", ["dose (mg)", "dose [g]", "Dose (mg/l)"])
def test_a_name_with_a_unit_is_the_name_of_another_party(other):
    """Two variables of one quantity would both be taken as columns that parties lack."""
    frame = pd.DataFrame({"dose": np.arange(9.0), "x": np.arange(9.0) ** 2})
    renamed = frame.rename(columns={"dose": other})
    with pytest.raises(DataError, match="tables have 1 problem") as error:
        simulate("moments", [frame, frame, renamed])
    assert f"rename its column {other!r} (if what stands in brackets are units" in str(error.value)
    assert "unshared_columns" not in error.value.settings
