"""Tables for spreadsheets: no text in them is a formula, and all texts come back."""

import csv
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.spreadsheet import guarded, read_csv, unguarded, write_csv
from flwr_causal.reports.graph_files import read_edges, write_edge_csv

SIGNS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
texts = st.text(st.sampled_from(SIGNS + "'\" ab1.e,;\u200b\ufeff\u00a0"), max_size=6) | st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=6
)


def begins_a_formula(cell):
    """What a spreadsheet may do: leave out blanks and quotes, but not an apostrophe in front."""
    if cell.startswith("'"):
        return False
    stripped = cell.lstrip(" \"'\u200b\ufeff\u00a0\u2060")
    try:
        float(cell)
    except ValueError:
        return cell[:1] in SIGNS if cell[:1] else False or stripped[:1] in [*SIGNS]
    return False


@given(texts)
@example("'=a")
@example("''=a")
@example("-0.5")
@example("'-0.5")
@example("'\tb")
@example(" =a")
@example('"=a')
@example("'tis")
def test_a_guarded_text_is_no_formula_and_comes_back(text):
    assert unguarded(guarded(text)) == text
    assert guarded(text) in (text, f"'{text}")
    assert not begins_a_formula(guarded(text))


@pytest.mark.parametrize("text", ["-0.5", "+3", "1e-5", "-.5E+3", "a=b", "'tis"])
def test_numbers_and_harmless_texts_stay_as_they_are(text):
    assert guarded(text) == text


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("before", ["", " ", '"', "'", " ' ", "\ufeff", "\u200b", "\x01"])
def test_every_sign_is_guarded_after_what_a_spreadsheet_leaves_out(sign, before):
    assert guarded(f"{before}{sign}HYPERLINK(1)") == f"'{before}{sign}HYPERLINK(1)"


@given(
    st.lists(texts, min_size=2, max_size=2, unique=True), st.lists(texts, min_size=3, max_size=3)
)
def test_a_table_comes_back(tmp_path_factory, names, cells):
    path = tmp_path_factory.getbasetemp() / "table.csv"
    frame = pd.DataFrame({"text": cells, "number": [-0.5, 2.0, math.pi]})
    frame = frame.set_axis([f"={name}" for name in names], axis=1)
    write_csv(frame, path)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert not any(begins_a_formula(cell) for row in rows for cell in row)
    assert rows[1][1] == "-0.5"
    again = read_csv(path, dtype=str, keep_default_na=False)
    assert [*again.columns] == [*frame.columns]
    assert again.iloc[:, 0].tolist() == cells
    assert again.iloc[:, 1].map(float).tolist() == frame.iloc[:, 1].tolist()


def test_line_breaks_in_the_index_come_back(tmp_path):
    frame = pd.DataFrame({"weight": [1.5, 2.5]}, index=["a\rb", "=c"])
    write_csv(frame, tmp_path / "t.csv", index=True)
    found = read_csv(tmp_path / "t.csv", index_col=0)
    assert (list(found.index), list(found["weight"])) == (["a\rb", "=c"], [1.5, 2.5])


def test_kinds_of_columns_and_missing_values_stay(tmp_path):
    frame = pd.DataFrame(
        {
            "a": ["=1", None, "b"],
            "b": pd.Categorical(["-x", "y", "-x"]),
            "c": [1.5, np.nan, -np.inf],
            "d": [True, False, True],
            "e": pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"]),
            "f": pd.array(["@x", "y", "z"], dtype="string"),
        },
        index=["=r", "s", "'=t"],
    )
    before = frame.copy()
    write_csv(frame, tmp_path / "t.csv", index=True)
    pd.testing.assert_frame_equal(frame, before)
    assert "\n'=r," in (tmp_path / "t.csv").read_text()
    again = read_csv(tmp_path / "t.csv", index_col=0)
    assert [*again.index] == [*frame.index]
    assert again["a"].tolist()[::2] == ["=1", "b"]
    assert again["a"].isna().tolist() == [False, True, False]
    assert again["b"].tolist() == ["-x", "y", "-x"]
    assert again["c"].tolist()[::2] == [1.5, -np.inf]
    assert again["d"].tolist() == [True, False, True]
    assert again["e"].tolist() == ["2020-01-01", "2020-01-02", "2020-01-03"]
    assert again["f"].tolist() == ["@x", "y", "z"]


NAMES = ("=HYPERLINK(1)", "'=x", "-y", "'tis ")


def test_graphs_over_such_names_come_back(tmp_path):
    weights = np.triu(np.full((4, 4), -0.5), 1)
    graph = CausalGraph.from_array(weights, NAMES)
    write_edge_csv(graph, tmp_path / "edges.csv")
    again = read_edges(tmp_path / "edges.csv", NAMES)
    assert again.names == NAMES
    np.testing.assert_array_equal(again.weights, weights)
    lines = (tmp_path / "edges.csv").read_text().splitlines()
    assert lines[1].startswith("'=HYPERLINK(1),''=x,0,-0.5,")
    write_csv(pd.DataFrame(weights, NAMES, NAMES), tmp_path / "scores.csv", index=True)
    again = read_edges(tmp_path / "scores.csv", NAMES)
    np.testing.assert_array_equal(again.weights, weights)


def test_names_that_a_user_wrote_without_a_guard_are_found(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n=a, '=b \n 'tis , =a \n")
    graph = read_edges(tmp_path / "edges.csv", ["=a", "'=b", "'tis"])
    assert [(cause, effect) for cause, effect, _ in graph.edges()] == [
        ("=a", "'=b"),
        ("'tis", "=a"),
    ]
