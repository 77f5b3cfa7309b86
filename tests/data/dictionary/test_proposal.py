"""Proposed dictionaries: what tables tell, what they cannot, and joined proposals."""

import re
import tomllib

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from flwr_causal.command_line import app
from flwr_causal.data.dictionary.entries import Dictionary
from flwr_causal.data.dictionary.proposal import labels, of_proposal, of_table, proposed
from flwr_causal.data.read.reading import Reading
from flwr_causal.data.read.tables import read_table, spelled_table
from flwr_causal.errors import DataError

ROWS = 60
RNG = np.random.default_rng(0)
COLUMNS = {
    "weight": RNG.normal(70, 9, ROWS).round(1),
    "visits": RNG.integers(0, 40, ROWS),
    "sex": np.arange(ROWS) % 2,
    "centre": np.arange(ROWS) % 3 + 1,
    "answer": np.where(np.arange(ROWS) % 3, "Yes", "no"),
    "zip": [f"0{1000 + k % 4}" for k in range(ROWS)],
    "patient": [f"P-{k}" for k in range(ROWS)],
    "number": np.arange(ROWS) + 500,
    "comment": [f"seen by nurse {k} at noon" for k in range(ROWS)],
    "diagnosis": [f"free text {k % 30} of a doctor" for k in range(ROWS)],
    "born": pd.date_range("1960-03-01", periods=ROWS).strftime("%Y-%m-%d"),
    "pressure": np.where(np.arange(ROWS) == 7, -999, RNG.normal(120, 9, ROWS).round(1)),
    "empty": np.full(ROWS, np.nan),
}
KINDS = {
    "weight": "number",
    "visits": "count",
    "sex": "category",
    "centre": "count",
    "answer": "category",
    "zip": "category",
    "patient": "id",
    "number": "id",
    "comment": "text",
    "diagnosis": "text",
    "born": "date",
    "pressure": "number",
}


def table(tmp_path, **columns):
    """What a file with these columns tells."""
    file = tmp_path / "own.csv"
    frame = pd.DataFrame(columns or COLUMNS)
    frame.to_csv(file, index=False)
    return of_table(read_table(file, Reading(categories=tuple(frame.columns))))


def test_a_table_tells_kinds_states_and_codes(tmp_path):
    found = table(tmp_path)
    assert {name: found[name].kind for name in KINDS} == KINDS
    assert found["sex"].states == ("0", "1")
    assert found["zip"].states == ("01000", "01001", "01002", "01003")
    assert found["pressure"].missing == ("-999",)
    assert (found["visits"].least, found["visits"].most) == (0.0, 40.0)
    text, questions = proposed({"north": found})
    shared = Dictionary.from_dict(tomllib.loads(text))
    assert {one.name for one in shared.used} == {
        name for name, kind in KINDS.items() if kind not in ("id", "text", "date")
    }
    asked = [line for line in text.splitlines() if line.startswith("# QUESTION: ")]
    assert len(asked) == questions
    for word in (
        "what do 0, 1 stand for?",
        "is -999 a missing value?",
        "a count, or codes of states",
    ):
        assert word in text
    # No id, no free text, no date, no number of the table but coarse ends of ranges.
    for value in ("P-7", "seen by", "free text 3 ", "1960", "507"):
        assert value not in text


@pytest.mark.parametrize("code", ["-9", "-99", "-999", "999", "9999", "-8"])
def test_codes_of_missing_values_are_far_outside(tmp_path, code):
    values = np.append(RNG.uniform(1, 5, ROWS).round(2), float(code))
    assert table(tmp_path, x=values)["x"].missing == (code,)
    assert table(tmp_path, x=np.arange(-1200.0, 1200.0, 0.5))["x"].missing == ()


def question(tmp_path, **parties):
    text, _ = proposed({k: table(tmp_path, **own) for k, own in parties.items()})
    return text


def test_parties_that_write_differently_are_asked(tmp_path):
    sex = np.arange(ROWS) % 2
    text = question(
        tmp_path,
        north={
            "sex": sex,
            "w": RNG.uniform(50, 99, ROWS).round(2),
            "answer": np.where(sex, "y", "n"),
        },
        south={
            "sex": sex + 1,
            "w_g": RNG.uniform(50000, 99000, ROWS).round(1),
            "answer": np.where(sex, "Y", "n"),
        },
        west={
            "sex": np.where(sex, "male", "female"),
            "w": RNG.uniform(50000, 99000, ROWS).round(1),
        },
    )
    shared = Dictionary.from_dict(tomllib.loads(text))
    # Words, where some have them, are the states; another case is another spelling.
    assert shared.find("sex").state_names == ("female", "male")
    assert shared.find("answer").states == (("Y", ("y",)), ("n", ()))
    assert "0, 1 at north; 1, 2 at south; female, male at west" in text
    assert "missing at south: has it another name there (perhaps 'w_g' at south)?" in text
    assert "usual values at west are about" in text
    assert "w = {factor = 0.001}" in text
    assert "missing at west: has it another name there?" in text


def test_kinds_that_differ_are_asked(tmp_path):
    text = question(
        tmp_path,
        north={"x": RNG.normal(size=ROWS)},
        south={"x": np.where(np.arange(ROWS) % 2, "a", "b")},
    )
    assert "which kind is it? number at north, category at south" in text


def test_proposals_of_parties_join_as_their_tables_do(tmp_path):
    """But for usual values, which no proposal has: no table leaves its party."""
    own = {
        "north": table(tmp_path, sex=np.arange(ROWS) % 2, x=RNG.normal(size=ROWS)),
        "south": table(tmp_path, sex=np.arange(ROWS) % 2 + 1, y=RNG.integers(0, 99, ROWS)),
    }
    files = {}
    for party, one in own.items():
        (tmp_path / f"{party}.toml").write_text(proposed({party: one})[0])
        files[party] = of_proposal(tmp_path / f"{party}.toml")
    joined = Dictionary.from_dict(tomllib.loads(proposed(files)[0]))
    assert joined == Dictionary.from_dict(tomllib.loads(proposed(own)[0]))


def test_odd_names_are_quoted(tmp_path):
    text = question(
        tmp_path, north={'a "b" é.c': RNG.normal(size=ROWS), "x": RNG.normal(size=ROWS)}
    )
    assert Dictionary.from_dict(tomllib.loads(text)).used[0].name == 'a "b" é.c'


def test_files_are_called_by_their_short_names_where_these_differ():
    assert labels(["/a/north.csv", "/b/south.csv.gz"]) == ["north", "south"]
    assert labels(["/a/own.csv", "/b/own.csv"]) == ["/a/own.csv", "/b/own.csv"]


def spelled(tmp_path, text, description=""):
    """What a file, or a description of it, tells."""
    (tmp_path / "raw.csv").write_text(text, encoding="latin-1")
    (tmp_path / "raw.table.toml").write_text(f'file = "raw.csv"\n{description}')
    return of_table(spelled_table(tmp_path / "raw.table.toml"))


def test_a_described_table_with_decimal_commas_has_numbers(tmp_path):
    rows = [f"{k};{k + 0.25}".replace(".", ",") + f";m{'ä' * (k % 2)}" for k in range(40)]
    text = "\n".join(["visit;crp;sex", *rows])
    how = 'separator = ";"\ndecimal = ","\nencoding = "latin-1"\n'
    found = spelled(tmp_path, text, how)
    assert found["crp"].kind == "number"
    assert found["crp"].most == 40
    assert found["sex"].states == ("m", "mä")
    # From the command, too, which takes other files that end in .toml for proposals.
    result = CliRunner().invoke(app, ["dictionary", str(tmp_path / "raw.table.toml")])
    assert result.exit_code == 0, result.output
    assert '[columns.crp]\nkind = "number"' in result.output


def test_two_columns_of_one_name_are_named(tmp_path):
    with pytest.raises(DataError, match=r"raw\.table\.toml has several columns 'a': rename"):
        spelled(tmp_path, "a,b,a\n1,2,3\n")


@pytest.mark.parametrize(
    ("cells", "kind", "asked"),
    [
        ([f"{1000 + 37 * k:,}.5" for k in range(40)], "number", "marks between thousands"),
        ([f"{k % 28 + 1}.12.19{k % 5 + 60}" for k in range(40)], "date", "2024-01-31"),
        (["12/31/1960"] * 40, "date", "2024-01-31"),
        ([*["m", "f"] * 20, "see Dr. Smith"], "category", "of one row are not listed (1)"),
        ([*[""] * 30, *[f"fell on day {k}" for k in range(8)]], "text", "free text, or states?"),
        (["Ann Smith", "Bob Jones", "Eve Stone"], "text", "free text, or states?"),
        (["Ann Smith"], "text", "free text, or states?"),
        ((np.arange(40) * 7919 % 99991 + 10000).tolist(), "count", "a count, or ids?"),
    ],
)
def test_texts_of_single_rows_and_odd_spellings_are_asked_about(tmp_path, cells, kind, asked):
    found = table(tmp_path, own=cells, other=[1] * len(cells))
    assert found["own"].kind == kind
    assert asked in found["own"].question
    text, _ = proposed({"north": found})
    for value in set(map(str, cells)) - {"m", "f"}:
        assert not value or f'"{value}"' not in text


def test_a_name_in_another_case_is_the_likely_one(tmp_path):
    north = table(tmp_path, Age=[30, 40] * 9, weight=[70.5, 80.5] * 9)
    south = table(tmp_path, age=[35, 45] * 9, weight=[70.5, 80.5] * 9, height=[1.5, 1.75] * 9)
    text, _ = proposed({"north": north, "south": south})
    assert "missing at south: has it another name there (perhaps 'age' at south)?" in text


def joined(tmp_path, **parties):
    """The dictionary of proposals that parties made of their own tables."""
    own = {}
    for party, columns in parties.items():
        (tmp_path / f"{party}.toml").write_text(question(tmp_path, **{party: columns}))
        own[party] = of_proposal(tmp_path / f"{party}.toml")
    return proposed(own)[0]


def test_joined_proposals_keep_ranges_and_ask_about_units(tmp_path):
    height = RNG.uniform(150, 190, ROWS)
    text = joined(
        tmp_path,
        north={"height": height.round(1), "age": RNG.integers(20, 90, ROWS)},
        south={"height": (height / 100).round(3), "age": RNG.integers(20, 90, ROWS)},
    )
    asked, _, rest = text.partition("[columns.height]")
    assert "values at north are about 100 times those at south" in asked
    own, _, age = rest.partition("[columns.age]")
    assert "# least = 1\n# most = 200" in own
    assert "QUESTION" not in own
    assert "# least = 20\n# most = 90" in age


def test_units_and_questions_of_proposals_are_kept(tmp_path):
    for party, unit in (("north", "cm"), ("south", "m")):
        few = question(tmp_path, **{party: {"w": np.arange(ROWS) / 4, "k": np.arange(ROWS) % 3}})
        (tmp_path / f"{party}.toml").write_text(few.replace('# unit = ""', f'unit = "{unit}"'))
    own = {party: of_proposal(tmp_path / f"{party}.toml") for party in ("north", "south")}
    text, _ = proposed(own)
    assert "which unit has it (cm at north, m at south)?" in text
    assert "a count, or codes of states? (at south)" in text
    assert 'unit = "cm"' in proposed({"north": own["north"]})[0]


WORDS = {
    "missing": (["yes", "no", "unk"], 'is unk a missing value\\? .* missing = \\["unk"\\]'),
    "order": (["low", "high", "middle"], 'states = \\["low", "middle", "high"\\]'),
    "ages": (["65+", "18-64", "<18"], 'states = \\["<18", "18-64", "65\\+"\\]'),
    "none": (["blue", "red", "none"], ""),
    "two": (["low", "high"], ""),
}


@pytest.mark.parametrize(("states", "asked"), WORDS.values(), ids=[*WORDS])
@pytest.mark.parametrize("join", [False, True])
def test_words_of_missing_values_and_of_an_order_are_asked(tmp_path, states, asked, join):
    columns = {"x": np.array(states)[np.arange(ROWS) % len(states)]}
    text = (joined if join else question)(tmp_path, north=columns)
    assert ("QUESTION" in text) == bool(asked)
    assert re.search(asked, text)


def test_a_text_for_a_missing_value_among_numbers_is_asked(tmp_path):
    values = np.where(np.arange(ROWS) % 9, RNG.normal(5, 1, ROWS).round(2).astype(str), "unk")
    text = question(tmp_path, north={"x": values})
    assert 'missing = ["unk"]' in text
    assert "check shows the party which" not in text


@pytest.mark.parametrize(
    ("texts", "asked"),
    [(["1.234", "5.678", "12.345"], False), (["1,234", "5,678"], True), (["1'234", "987"], True)],
)
def test_three_decimals_are_no_thousands(tmp_path, texts, asked):
    found = table(tmp_path, x=np.array(texts)[np.arange(ROWS) % len(texts)])["x"]
    assert (found.kind, "thousands" in found.question) == ("number", asked)
