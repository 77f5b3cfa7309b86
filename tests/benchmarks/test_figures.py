"""The manual shows the result files, and result files say how they were made."""

import math
import re

import pytest
from typer.testing import CliRunner

from benchmarks import figures, results, scenario, tables
from benchmarks.commands import app
from benchmarks.figures import DOCS, RESULTS
from benchmarks.reproduce import reproduce
from flwr_causal.errors import DataError

FOUND = figures.results()
PAGES = [
    path
    for path in sorted(DOCS.rglob("*.md"))
    if figures.MARK.search(path.read_text(encoding="utf-8"))
]
TINY = """
title = "tiny"
paper = "Nobody (2026)"
runs = 2
metrics = ["shd", "tpr"]
[data]
name = "linear"
num_rows = 60
[split]
[[grid]]
num_variables = 4
num_parties = [2, 3]
[[grid]]
num_variables = 5
num_parties = 2
[lines]
moments = { method = "moments" }
voting = { baseline = "voting", only = { num_variables = [5] } }
[[figures]]
line = "theirs"
at = { num_parties = 3 }
shd = 1.5
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_mark_of_a_page_becomes_a_table(page):
    text = page.read_text(encoding="utf-8")
    marks = list(figures.MARK.finditer(text))
    # Tables are made when the manual is built; a page has none of its own, and no other mark.
    assert not re.search(
        r"<!-- (results|table|worlds|paper|evidence|comparison)\b", figures.MARK.sub("", text)
    )
    assert page.parent != DOCS / "figures" or "|---" not in text.replace(" ", "")
    for mark in marks:
        assert not text[mark.end() :].lstrip().startswith("|"), "a table that is not made"
    made = figures.with_tables(text, FOUND)
    assert len(re.findall(r"^\| ?---", made, re.M)) >= len(marks)
    tables = re.findall(r"(?:^\|.*\n)+", made, re.M)
    cells = [{len(re.findall(r"(?<!\\)\|", row)) for row in one.splitlines()} for one in tables]
    assert all(len(each) == 1 for each in cells), "a row has other cells than the head"


def test_every_result_is_shown_and_a_mark_without_a_result_is_an_error():
    assert not figures.not_shown(FOUND)
    for mark in (
        "results none-*",
        "table hard-noise none",
        "worlds none",
        "paper none",
        "evidence no",
        "comparison none",
    ):
        with pytest.raises(DataError, match=r"no file of benchmarks|has no .no"):
            figures.with_tables(f"# A page\n\n<!-- {mark} -->\n", FOUND)


def test_every_comparison_is_shown_once():
    texts = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    shown = re.findall(r"^<!-- comparison (\S+) -->$", texts, re.M)
    assert sorted(shown) == sorted(path.stem for path in figures.COMPARISONS.glob("*.csv"))


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_files_are_as_they_are_written_and_name_their_scenario(path):
    result = results.read(path)
    assert result.text() == path.read_text(encoding="utf-8")
    if "axes" in result.head:
        assert result.name in scenario.names()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_every_file_comes_from_a_command_that_exists(path):
    head = results.read(path).head
    assert head["source"] == results.MEASURED
    command = "flwr-causal reproduce" if "axes" in head else "python -m benchmarks measure"
    assert head["command"].startswith(f"{command} {path.stem} ")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "tiny.toml").write_text(TINY)
    reproduce(str(folder / "tiny.toml"), output_dir=folder / "out")
    return folder


@pytest.mark.slow
def test_the_file_of_a_sweep_holds_its_tables(sweep):
    again = results.read(sweep / "out" / results.FILE)
    one = scenario.find(str(sweep / "tiny.toml"))
    shown = (sweep / "out" / "tables.md").read_text(encoding="utf-8")
    for table in tables.with_world(again.metric_tables()):
        assert tables.markdown(table) in shown
        assert set(table.axes) == set(one.axes)
    first = again.metric_tables()[0]
    paper = dict(zip(first.lines, first.rows[1][1], strict=True))["theirs"]
    assert paper.paper == 1.5
    assert math.isnan(paper.mean)
    assert "--runs 2" in again.head["command"]
    assert "numpy" in again.head["versions"]
    assert again.head["date"][:2] == "20"


def test_a_sweep_is_adopted_and_shown(sweep, tmp_path):
    target = results.adopted(sweep / "out", tmp_path, "a large machine")
    assert target == tmp_path / "tiny.csv"
    found = figures.results(tmp_path)
    page = "# A page\n\n<!-- results ti* -->\n\nby hand\n\n<!-- table tiny -->\n"
    text = figures.with_tables(page, found, "../results")
    whole, table = text.split("by hand")
    assert "### tiny" in whole
    assert "### tiny" not in table
    assert "(1.5)" in table
    assert "a large machine" in table
    assert "[File](../results/tiny.csv)" in table
    assert figures.not_shown(found) == ["tiny"]


def test_the_command_keeps_a_result_and_says_that_no_page_shows_it(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    done = CliRunner().invoke(app, ["adopt", str(sweep / "out"), "--machine", "a large machine"])
    assert done.exit_code == 0, done.output
    assert results.read(tmp_path / "tiny.csv").head["machine"] == "a large machine"
    assert "No page shows tiny" in done.output


def test_points_that_a_sweep_did_not_compute_keep_their_figures_and_say_so(tmp_path):
    def written(name, date, *lines):
        head = {"name": "ng2022-clients", "command": f"flwr-causal {name}", "date": date}
        head = dict.fromkeys(results.NEEDED, "M") | head | {"axes": "num_variables,num_parties"}
        columns = ("line", "num_variables", "num_parties", "runs", "failed", "shd", "shd error")
        rows = [(line, "10", k, "3", "0", f"{value}", "") for line, k, value in lines]
        path = tmp_path / f"{name}.csv"
        columns = (*columns, "shd paper")
        path.write_text(
            results.FigureTable(head, columns, tuple((*row, "") for row in rows)).text()
        )
        return path

    folder = tmp_path / "results"
    folder.mkdir()
    results.adopted(
        written("first", "2025", ("moments", "2", 1), ("Voting", "2", 2), ("gone", "2", 3)), folder
    )
    results.adopted(written("second", "2026", ("Avg", "2", 4), ("Voting", "4", 5)), folder)
    target = results.adopted(written("third", "2027", ("moments", "2", 6)), folder)
    found = results.read(target)
    shown = [(row[0], row[2], row[5]) for row in found.rows if row[3] != "0"]
    assert shown == [
        ("moments", "2", "6"),
        ("Voting", "2", "2"),
        ("Avg", "2", "4"),
        ("Voting", "4", "5"),
    ]
    assert found.notes == (
        "Figures of an earlier sweep: Voting (10, 2): `flwr-causal first`, 2025.",
        "Figures of an earlier sweep: Avg; Voting (10, 4): `flwr-causal second`, 2026.",
    )
    # What the paper states of the points stays, whatever a sweep computes.
    stated = {row[:3]: row[7] for row in found.rows if row[3] == "0"}
    assert stated["authors' program", "10", "2"] == "2.2"
    target = results.adopted(written("fourth", "2028", ("Avg", "2", 7), ("Voting", "2", 8)), folder)
    assert results.read(target).notes == (
        "Figures of an earlier sweep: moments: `flwr-causal third`, 2027.",
        "Figures of an earlier sweep: Voting (10, 4): `flwr-causal second`, 2026.",
    )


@pytest.mark.parametrize("name", [name for name in scenario.names() if name in FOUND])
def test_what_the_paper_states_stands_in_the_result(name):
    one = scenario.find(name)
    rows = [dict(zip(FOUND[name].columns, row, strict=True)) for row in FOUND[name].rows]
    for figure in one.figures:
        held = [row for row in rows if row["line"] == figure.line]
        held = [row for row in held if all(row[k] == str(v) for k, v in figure.at.items())]
        for metric, value in figure.values.items():
            if metric in one.metrics:
                assert any(float(row[f"{metric} paper"] or "nan") == value for row in held), figure


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("# date: ", "# dote: "), "'dote' is no key of a result file"),
        (("# machine: M\n", ""), "the head lacks machine"),
        (("1,2\n", "1\n"), "as many columns"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, change, words):
    head = dict.fromkeys(results.NEEDED, "M")
    text = results.FigureTable(head, ("a", "b"), (("1", "2"),)).text()
    path = tmp_path / "M.csv"
    path.write_text(text)
    assert results.read(path).markdown() == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    path.write_text(text.replace(*change))
    with pytest.raises(DataError, match=words):
        results.read(path)
    with pytest.raises(DataError, match=f"holds no {results.FILE}"):
        results.adopted(tmp_path, tmp_path)


def test_the_papers_page_names_lines_that_exist_and_every_scenario_of_a_paper():
    entries = [entry for paper in figures.experiments().values() for entry in paper]
    assert all("scenario" in entry or entry.get("remark") for entry in entries)
    measured = [entry for entry in entries if "scenario" in entry]
    for entry in measured:
        one = scenario.find(entry["scenario"])
        lines = {line.label for line in one.lines}
        assert {entry[key] for key in ("algorithm", "default") if key in entry} <= lines
        assert entry["metric"] in (*one.metrics, "cpu_seconds")
        assert any(figures._here(point, entry) for point in one.grid)
        assert entry.get("axis") in (None, *one.axes)
        stated = figures._stated(entry, entry["algorithm"])
        assert stated or entry.get("paper") or "the same" in entry["of"], entry["of"]
    # Sets of data that the papers do not have.
    others = {"seng2025-binary", "seng2025-mnist"}
    papers = {name for name in scenario.names() if scenario.find(name).paper}
    assert papers - others <= {entry["scenario"] for entry in measured}


@pytest.mark.parametrize(
    ("paper", "figures_", "tables_"),
    [
        ("ng2022", "1 2 3 4 5 6 7 8", ""),
        ("yang2024", "1 2 3 S1 S2", "1 2 S1 S2 S3"),
        ("chen2024", "1 2 3 4 5 6 7 8 9 10 11", "1 2 3 4 5"),
        ("torrijos2024", "1", "1 2 3"),
        ("seng2025", "1 2 3 4 5", "1 2 3 4 5 6"),
    ],
)
def test_every_figure_and_table_of_a_paper_has_a_row(paper, figures_, tables_):
    named = {"figure": set(), "table": set()}
    for entry in figures.experiments()[paper]:
        for kind, numbers in re.findall(
            r"(figure|table)s? ((?:S?\d+[ab]?(?: and )?)+)", entry["of"]
        ):
            named[kind] |= set(re.findall(r"S?\d+", numbers))
    assert named == {"figure": set(figures_.split()), "table": set(tables_.split())}


def test_a_paper_row_says_what_ran_what_is_stated_and_what_did_not_run():
    head = {"name": "ng2022-clients", "command": "flwr-causal reproduce ng2022-clients --runs 5"}
    columns = (
        "line",
        "num_variables",
        "num_parties",
        "runs",
        "failed",
        "tpr",
        "tpr error",
        "tpr paper",
    )
    rows = (
        ("NOTEARS-ADMM, the paper's", "20", "2", "4", "0", "0.9", "0.1", ""),
        ("NOTEARS-ADMM, the paper's", "20", "64", "5", "0", "0.8", "0.1", "0.78"),
        ("NOTEARS-ADMM, the paper's", "10", "64", "5", "0", "0.1", "0.1", ""),
    )
    result = results.FigureTable(head | {"axes": "num_variables,num_parties"}, columns, rows)
    entry = {
        "of": "section 6.2",
        "scenario": "ng2022-clients",
        "metric": "tpr",
        "at": {"num_variables": 20},
        "axis": "num_parties",
        "algorithm": "NOTEARS-ADMM, the paper's",
        "default": "NOTEARS-ADMM",
    }
    shown = figures.paper_table([entry], {"ng2022-clients": result})
    assert shown.splitlines()[2] == (
        "| section 6.2 | `tpr` by `num_parties` | `flwr-causal reproduce ng2022-clients --runs 5` "
        "| 4 to 5 | 64: 0.78 | 2: 0.900 [n=4]; 64: 0.800 ± 0.100 [n=5] | not run yet |  |  |  |"
    )
    (row,) = figures.paper_table([entry], {}).splitlines()[2:]
    assert "`flwr-causal reproduce ng2022-clients` |  | 64: 0.78 | not run yet | not run yet" in row


def test_a_paper_row_has_the_best_of_the_others_and_what_the_lines_cost():
    columns = ("line", "num_parties", "runs", "failed")
    for metric in ("shd", "exchanges", "cpu_seconds"):
        columns += (metric, f"{metric} error", f"{metric} paper")
    rows = (
        ("NOTEARS-ADMM, the paper's", "2", "10", "0", "3", "1", "", "40", "0", "", "2.5", "0", ""),
        ("NOTEARS-ADMM", "2", "10", "0", "1", "0.5", "", "33", "0", "", "0.5", "0", ""),
        ("moments", "2", "10", "0", "0", "0", "", "1", "0", "", "0.1", "0", ""),
        ("Voting", "2", "10", "0", "5", "1", "", "", "", "", "0.2", "0", ""),
        ("Avg", "2", "2", "0", "4", "1", "", "", "", "", "0.2", "0", ""),
        ("Best", "2", "10", "0", "1", "1", "", "", "", "", "0.2", "0", ""),
    )
    head = {"name": "ng2022-clients", "command": "flwr-causal reproduce ng2022-clients --runs 10"}
    result = results.FigureTable(head | {"axes": "num_parties"}, columns, rows)
    entry = {
        "of": "figure 6",
        "scenario": "ng2022-clients",
        "metric": "shd",
        "axis": "num_parties",
        "algorithm": "NOTEARS-ADMM, the paper's",
        "default": "NOTEARS-ADMM",
    }
    (row,) = figures.paper_table([entry], {"ng2022-clients": result}).splitlines()[2:]
    assert "| 2: Avg 4.00 [n=2] | 40; 2.5 \\| 33; 0.5 |" in row


def of_world(rows, name="hard-a", columns=("line", "kind", "num_variables", "shd", "cpdag_shd")):
    return results.FigureTable({"name": name}, columns, rows)


def test_the_table_of_worlds_takes_means_over_sizes_and_marks_failures():
    rows = (
        ("moments", "plain", "10", "2", "9"),
        ("moments", "plain", "20", "8", "9"),
        ("moments, GES", "plain", "10", "9", "6"),
        ("each-alone", "plain", "10", "30", "30"),
        ("sort-by-variance", "plain", "10", "30", "30"),
        ("lingam", "plain", "10", "", ""),
    )
    known = ("line", "known", "num_variables", "shd")
    other = of_world((("moments", "True", "10", "7"),), "hard-interventions", known)
    shown = figures.worlds([of_world(rows), other])
    assert "| world | moments | moments, GES | sort-by-variance |" in shown
    assert "| plain | 0.30 | **0.60** | **3.00** |" in shown
    assert "| interventions, known: True | **0.70** |  |  |" in shown
    assert shown.endswith(
        "The worst of our own: moments with interventions, known: True (0.7); "
        "moments, GES with plain (0.6); moments with plain (0.3)."
    )


def test_what_the_decision_table_says_of_worlds():
    found = FOUND
    names = figures.fitting("hard-*", list(found))
    errors = figures.errors_of([found[name] for name in names])
    # numbers in comparable units; in arbitrary units; noise that is not Gaussian
    assert errors["plain"]["moments"] <= errors["plain"]["moments, class"] < figures.BREAKS
    assert errors["standardised"]["moments, class"] < figures.BREAKS
    assert errors["standardised"]["moments, class"] <= errors["standardised"]["moments, GES"]
    assert all(errors[kind]["lingam"] < 0.1 for kind in ("gumbel", "exponential", "uniform"))


def test_what_the_page_of_evidence_says_in_words():
    rows = figures.evidence(FOUND)
    text = (DOCS / "figures" / "evidence.md").read_text(encoding="utf-8")
    assert {row.entry["page"] for row in rows} <= {p.stem for p in (DOCS / "figures").glob("*.md")}
    # A table for each kind; a world is told from the others by its words.
    assert {row.kind for row in rows} == set(re.findall(r"<!-- evidence (\w+) -->", text))
    worlds = [row.entry["world"] for row in rows]
    assert len(set(worlds)) == len(worlds)
    for row in rows:
        better = row.ours.mean < row.other.mean
        if row.entry["metric"] in ("adjacency_f1", "auroc", "accuracy", "log_likelihood"):
            better = row.ours.mean > row.other.mean
        assert better == (row.by > 0)
        assert row.kind != "ahead" or row.by > 2 * row.error
    failing = {row.entry["world"]: row for row in rows if row.kind == "none"}
    # Mistyped cells and zeros: 12 variables; both lines have more than one error for each.
    for world in ("1 % of cells mistyped", "half of the columns amounts, 60 % of them zero"):
        assert min(failing[world].ours.mean, failing[world].other.mean) > 12
    # Sachs: with 17 edges, `moments` is worse than a graph without edges.
    (sachs,) = [row for world, row in failing.items() if world.startswith("Sachs, nine")]
    assert (sachs.label, sachs.other.mean) == ("no edges", 17)
    assert sachs.ours.mean > 17
    # Intervals of effects in a graph that was found, where noise is Gaussian.
    table = FOUND["calibration-effects"]
    found = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    shares = [
        int(row[f"Found by `{method}`"].split()[0])
        for row in found
        for method in ("moments", "lingam")
        if row["Noise"] == "Gaussian"
    ]
    assert f"{min(shares)} to {max(shares)} % of the intervals" in text
    assert all(row["True graph"] in ("94 %", "95 %") for row in found)
    # Differential privacy: edges wrong at epsilon 1 with 1,000 rows, of 20 edges.
    one = _entries("differential-privacy", "shd", num_variables="20", num_rows="1000")
    entry = one["moments, secure, 1"]
    assert f"{entry.mean:.0f} wrong edges of 20 [n={entry.runs}]" in text
    # Hidden hubs: sorting misses fewer edges, and has more that are not there.
    extra = _entries("differ-hidden", "extra")
    assert extra["R2-sort"].mean > 10 * extra["moments, hidden causes"].mean
    # A vote of GES beside `fedges`, 5,000 rows.
    by = {}
    for network in ("asia", "child", "insurance", "alarm"):
        one = _entries("field-categories", "cpdag_shd", network=network, num_rows="5000")
        pair = one["GES, voting"], one["FedGES, scores"]
        by[network] = (pair[0].mean - pair[1].mean) / math.hypot(pair[0].error, pair[1].error)
    assert max(abs(by[network]) for network in ("asia", "insurance", "alarm")) < 2 < by["child"]
    # Perceptrons of 10 variables.
    one = _entries("tables-perceptrons", "shd")
    assert min(one, key=lambda line: one[line].mean) == "fedcausal"
    assert one["fedcausal"].mean > 0.5 * 10


def _entries(name, metric, **at):
    (table,) = [one for one in FOUND[name].metric_tables() if one.metric == metric]
    (values,) = [values for point, values in table.rows if at.items() <= point.items()]
    return dict(zip(table.lines, values, strict=True))
