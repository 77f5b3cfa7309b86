"""The command line says what the code says, and starts nothing that cannot be run."""

import json
import re
import shutil
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from federations import losing
from rich.cells import cell_len
from typer.testing import CliRunner

import flwr_causal
from benchmarks import scenario
from flwr_causal import CausalGraph, command_line
from flwr_causal.app import methods
from flwr_causal.command_line import app
from flwr_causal.data.dictionary.entries import Dictionary
from flwr_causal.errors import DataError
from flwr_causal.party.record import PartyRecord
from flwr_causal.reports.described import described
from flwr_causal.reports.edges import compared
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate
from flwr_causal.simulations.engines import agreement_of, sources_of
from flwr_causal.simulations.relay import Relay
from flwr_causal.testing import report


def call(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture
def files(tmp_path):
    """Three parties' rows of a chain x -> y -> z, as files."""
    rng = np.random.default_rng(0)
    for name in "abc":
        x = rng.normal(size=60)
        y = 1.5 * x + rng.normal(size=60)
        z = 1.5 * y + rng.normal(size=60)
        pd.DataFrame({"x": x, "y": y, "z": z}).to_csv(tmp_path / f"{name}.csv", index=False)
    return [tmp_path / f"{name}.csv" for name in "abc"]


def test_help_fits_a_screen():
    commands = ("methods", "options", "check", "run", "report", "compare", "new", "check-method")
    commands += ("record", "forget", "doctor", "deploy", "reproduce")
    for command in ([], *([one] for one in commands)):
        shown = call(*command, "--help")
        assert shown.exit_code == 0
        assert len(shown.stdout.splitlines()) <= 40, command
    assert all(one in call("--help").stdout for one in commands)
    assert call("--version").stdout.strip() == flwr_causal.__version__


def test_methods_say_what_docstrings_and_contracts_say():
    found = json.loads(call("methods", "--json").stdout)
    assert [one["id"] for one in found] == list(methods.METHODS)
    for one in found:
        strategy = methods.find(one["id"]).strategy
        assert one["summary"] in " ".join(strategy.__doc__.split())
        assert [e["name"] for e in one["exchanges"]] == [
            e.name for e in strategy.contract.exchanges
        ]
        leaves = [item["meaning"] for e in one["exchanges"] for item in e["leaves"]]
        assert leaves == [i.meaning for e in strategy.contract.exchanges for i in e.returns]
    text = call("methods").stdout
    assert all(one in text for one in methods.METHODS)
    most = {one["id"]: one["exchanges_at_most"] for one in found}
    assert most["moments"] == 1
    assert most["fedges"] == 101
    assert text.count("exchanges at most: 1\n") == 1


def test_methods_that_do_not_say_how_many_exchanges_they_make():
    several = methods.build("moments", {"missing_values": "em"})
    assert described(several)["exchanges_at_most"] is None
    assert "sums" in call("methods", "moments").stdout


@pytest.mark.parametrize("method", methods.OWN_METHODS)
def test_options_are_the_fields_of_the_dataclass(method):
    kind = methods.find(method).strategy.options_type
    rows = json.loads(call("options", method, "--json").stdout)
    assert {row["name"]: row["default"] for row in rows} == {
        one.name: one.default for one in fields(kind)
    }
    assert all(row["meaning"] for row in rows)
    text = call("options", method).stdout
    assert all(f"{row['name']}  " in text for row in rows)


def test_an_unknown_method_is_an_error_of_usage():
    shown = call("options", "momints")
    assert shown.exit_code == 2
    assert "There is no method 'momints'" in shown.stderr
    assert "notears-admm" in shown.stderr


def test_run_writes_its_results_and_prints_them(files, tmp_path):
    out = tmp_path / "out"
    shown = call("run", "moments", *files, "-o", "least-effect=0.2", "--output-dir", out)
    assert shown.exit_code == 0, shown.stderr
    run = Run.load(out)
    assert run.config["least_effect"] == 0.2
    assert str(run) in shown.stdout
    assert str(out) in shown.stdout
    found = json.loads(call("run", "moments", *files, "--seed", 3, "--json").stdout)
    assert found["config"]["seed"] == 3
    assert {frozenset((e["cause"], e["effect"])) for e in found["edges"]} >= {
        frozenset("xy"),
        frozenset("yz"),
    }


def test_one_command_makes_a_page(files, tmp_path):
    out = tmp_path / "out"
    shown = call("run", "moments", *files, "--output-dir", out)
    page = out / "report.html"
    assert str(page) in shown.stdout
    assert "2 edges among 3 variables" in page.read_text(encoding="utf-8")
    other = tmp_path / "other.html"
    assert call("report", out, "--output", other).exit_code == 0
    assert other.read_text(encoding="utf-8") == page.read_text(encoding="utf-8")
    # The page of an earlier run must not pass for that of a later one.
    Run.load(out).save(out)
    assert not page.exists()
    assert call("report", out).stdout.strip() == str(page)
    assert page.exists()
    assert call("report", tmp_path / "nothing").exit_code == 2
    both = tmp_path / "both.html"
    assert call("compare", out, out, "--output", both).exit_code == 0
    assert "2 common edges" in both.read_text(encoding="utf-8")


def test_a_run_equals_that_of_python(files):
    found = json.loads(
        call("run", "moments", *files, "-o", "moments.solver=dagma", "--json").stdout
    )
    run = flwr_causal.simulate("moments", files, solver="dagma")
    expected = [list(edge) for edge in run.graph.marked_edges()]
    assert [list(edge.values()) for edge in found["edges"]] == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["-o", "sparsty=1"], "Did you mean 'sparsity'"),
        (["-o", "sparsity"], "is no KEY=VALUE"),
        (["-o", "seed=1", "-o", "seed=2"], "given twice"),
        (["-o", "max_rounds=many"], "The option 'max_rounds' is 'many'"),
        (["-o", "truth=x"], "has no option 'truth'"),
        (["--engine", "cloud"], "cloud"),
    ],
)
def test_wrong_options_start_nothing(files, tmp_path, monkeypatch, given, words):
    monkeypatch.setattr(command_line, "simulate", None)
    out = tmp_path / "out"
    shown = call("run", "moments", *files, *given, "--output-dir", out)
    assert shown.exit_code == 2
    assert words in shown.stderr
    assert not out.exists()


@pytest.mark.parametrize("bad", ["text", "nothing", "no file"])
def test_bad_data_train_nothing(files, tmp_path, monkeypatch, bad):
    monkeypatch.setattr(command_line, "simulate", None)
    if bad == "text":
        files[1].write_text("x,y,z\n1,one,2\n3,two,4\n")
    elif bad == "nothing":
        files[1].write_text("")
    else:
        files[1].unlink()
    out = tmp_path / "out"
    shown = call("run", "moments", *files, "--output-dir", out)
    assert shown.exit_code == 2
    assert files[1].name in shown.stderr
    assert "party 1" not in shown.stderr.replace("party 1 (b.csv)", "")
    assert files[0].name not in shown.stderr or bad == "text"  # the text names the others' kind
    assert not out.exists()


def test_a_run_that_fails_has_status_1(files, monkeypatch):
    def fail(*given, **options):
        raise flwr_causal.FederationError("too few parties replied")

    monkeypatch.setattr(command_line, "simulate", fail)
    shown = call("run", "moments", *files)
    assert shown.exit_code == 1
    assert shown.stderr == "Error: too few parties replied\n"


def test_check_says_what_each_method_would_say(files):
    found = json.loads(call("check", *files, "--json").stdout)
    assert {row["column"] for row in found["columns"]} == {"x", "y", "z"}
    assert found["methods"]["moments"]["usable"]
    assert found["methods"]["moments"]["columns"] == ["x", "y", "z"]
    text = call("check", *files, "-m", "moments", "-m", "lingam").stdout
    assert "moments, lingam: usable" in text
    files[1].write_text("x,y,z\n1,one,2\n3,two,4\n")
    shown = call("check", *files, "-m", "moments")
    assert shown.exit_code == 2
    assert "not usable" in shown.stdout
    assert "column 'y'" in shown.stdout
    files[1].write_text("x,y,z\n1,,2\n3,4,4\n5,6,7\n")
    shown = call("check", *files, "-m", "moments").stdout
    assert "moments: usable\n  Assumed missing_values='em'" in shown
    shown = call("check", *files, "-m", "moments", "-o", "strict=true").stdout
    assert shown.endswith("Options are given as -o missing_values=em\n")
    shown = call("check", *files, "-m", "moments", "-o", "missing_values=drop")
    assert shown.exit_code == 0
    assert "1 of 3 rows have missing or infinite values" in shown.stdout


def test_check_says_once_what_several_methods_say_and_names_the_files(tmp_path):
    """As many lines as there are columns and different problems, not as methods."""
    files = []
    for k, name in enumerate(("north", "south", "west", "east")):
        rng = np.random.default_rng(k)
        frame = pd.DataFrame(rng.normal(size=(80, 6)).round(2), columns=[*"abcdef"])
        frame["sex"], frame["note"] = rng.choice(["m", "f"], 80), [f"n{row}" for row in range(80)]
        frame.loc[k, "a"] = np.nan
        frame = frame.rename(columns={"b": "B"}) if name == "east" else frame
        frame["c"] = (
            frame["c"].astype(object).mask(frame.index == 5, "<1") if k == 1 else frame["c"]
        )
        files.append(tmp_path / f"{name}.csv")
        frame.to_csv(files[-1], index=False)
    shown = call("check", *files)
    lines = " ".join(shown.stdout.split())
    assert not re.search(r"party '?\d", shown.stdout)
    for once in (
        "party 'east.csv', column 'b': missing, but there at",
        "south.csv: 80 rows",
        "category at south.csv",
        "not in east.csv",
    ):
        assert lines.count(once) == 1
    assert re.search(r"lingam.*: not usable, see \d", lines)
    assert shown.stdout == call("check", *files).stdout
    assert len(shown.stdout.splitlines()) < 130


def test_check_shows_stray_cells_and_the_texts_of_missing_values(files):
    rows = [f"{k},{'12,5' if k == 7 else k / 2},{k if k % 4 else 'NA'}" for k in range(20)]
    files[1].write_text("\n".join(["x,y,z", *rows]).replace("12,5", '"12,5"') + "\n")
    shown = call("check", *files, "-m", "moments")
    assert f"{files[1]}, column 'y': '12,5' in row 8 is no number" in shown.stdout
    assert f"{files[1]}, column 'z': missing values are 5 'NA'" in shown.stdout
    assert "1 of its values is no number" in " ".join(shown.stdout.split())
    stray = json.loads(call("check", *files, "-m", "moments", "--json").stdout)["stray"]
    assert stray == [{"table": str(files[1]), "column": "y", "row": 8, "value": "12,5"}]


def test_compare_names_the_edges_that_differ(tmp_path):
    bare = dict.fromkeys(("rounds", "bytes_sent", "bytes_received", "schema_bytes"), 0)
    first = CausalGraph.from_array([[0, 2, 0], [0, 0, 1.5], [0, 0, 0]], "abc")
    second = CausalGraph.from_array([[0, 3, 0], [0, 0, 0], [0, 0.5, 0]], "abc")
    for name, graph in (("one", first), ("two", second)):
        run = Run(graph=graph, history=[], seconds=0.0, stop_reason="", **bare)
        run.save(tmp_path / name)
    both = (tmp_path / "one", tmp_path / "two")
    found = json.loads(call("compare", *both, "--json").stdout)
    rows = found["edges"]
    subject = "largest change of the weight of a common edge: a -> b"
    values = {str(both[0]): "+2.000", str(both[1]): "+3.000"}
    assert found["changes"] == [{"subject": subject, "values": values}]
    assert [list(row["edges"].values()) for row in rows] == [["b -> c", "c -> b"]]
    assert [list(row["weights"].values()) for row in rows] == [[1.5, 0.5]]
    assert len(json.loads(call("compare", *both, "--all", "--json").stdout)["edges"]) == 2
    text = call("compare", *both).stdout
    assert "1 common edges, 1 pairs of variables that differ" in text
    assert "c -> b +0.500" in text
    assert "it is without" not in text
    replace(Run.load(tmp_path / "one"), lost={"north": 9}).save(tmp_path / "one")
    assert f"{tmp_path / 'one'}: Rely on this graph with these doubts: it is without north" in (
        call("compare", *both).stdout
    )
    assert call("compare", both[0]).exit_code == 2
    shown = call("compare", both[0], tmp_path / "none")
    assert shown.exit_code == 2
    assert "holds no run" in shown.stderr


def test_compare_says_what_moved_between_a_run_and_its_repetition(tmp_path):
    bare = dict.fromkeys(("rounds", "bytes_sent", "bytes_received", "schema_bytes"), 0)
    one, two = (CausalGraph.from_array([[0, w], [0, 0]], "ab") for w in (0.5, -0.25))
    for name, graph, parties, warnings, sparsity in (
        ("one", one, {"north": 100, "south": 50}, ["column a is nearly constant"], "auto"),
        ("two", two, {"north": 120, "centre": 50}, [], 0.1),
    ):
        Run(
            graph=graph, history=[], seconds=0.0, stop_reason="", parties=parties,
            warnings=warnings, config={"sparsity": sparsity, "seed": 0, "output_dir": name}, **bare,
        ).save(tmp_path / name)  # fmt: skip
    page = tmp_path / "page.html"
    text = call("compare", tmp_path / "one", tmp_path / "two", "--output", page).stdout
    assert text.splitlines()[:8] == [
        "1 common edges, 0 pairs of variables that differ",
        "option sparsity: auto, 0.1",
        "rows of north: 100, 120",
        "rows of south: 50, -",
        "rows of centre: -, 50",
        "rows of all: 150, 170",
        "warning: column a is nearly constant: yes, -",
        "largest change of the weight of a common edge: a -> b: +0.500, -0.250",
    ]
    assert "What else differs" in page.read_text()
    same = call("compare", tmp_path / "one", tmp_path / "one").stdout
    assert "option" not in same
    assert "rows of" not in same
    assert "largest" not in same


def test_compare_says_that_dictionaries_differ(tmp_path):
    file, copy = tmp_path / "dictionary.toml", tmp_path / "copy.toml"
    text = "[columns.x0]\nkind = 'number'\n[columns.x1]\nkind = 'number'\n"
    file.write_text(text)
    copy.write_text(f"# the same\n{text}")
    rows = np.random.default_rng(0).normal(size=(60, 2))
    for name, given in (("one", file), ("two", copy)):
        simulate("moments", [rows], dictionary=str(given), output_dir=tmp_path / name)
    copy.write_text(f"{text}unit = 'kg'\n")
    simulate("moments", [rows], dictionary=str(copy), output_dir=tmp_path / "three")
    simulate("moments", [rows], output_dir=tmp_path / "four")
    assert "ictionar" not in call("compare", tmp_path / "one", tmp_path / "two").stdout
    first, changed = (Dictionary.read(one).digest[:12] for one in (file, copy))
    said = call("compare", tmp_path / "one", tmp_path / "three").stdout
    assert f"dictionaries differ, by digest: {first}, {changed}" in said
    said = call("compare", tmp_path / "one", tmp_path / "four").stdout
    assert f"dictionaries differ, by digest: {first}, -" in said


def test_pairs_of_lags_are_compared_apart():
    one = CausalGraph.from_array([[0, 1], [0, 0]], "ab", lagged=[[[0, 2.0], [0, 0]]])
    two = CausalGraph.from_array([[0, 0], [1, 0]], "ba")  # a -> b, in another order
    pairs = compared([one, two])
    assert [pair.edges for pair in pairs] == [("a[t-1] -> b", ""), ("a -> b", "a -> b")]
    assert [pair.differs for pair in pairs] == [True, False]


def test_check_shows_values_far_outside_on_the_partys_machine(files):
    rows = [f"{k % 7},{k * k % 11},{k % 5}" for k in range(40)]
    files[0].write_text("\n".join(["x,y,z", *rows, "1,-999,2", "2,-999,3"]) + "\n")
    found = json.loads(call("check", *files, "-m", "moments", "--json").stdout)
    far = {row["column"]: row["far_values"] for row in found["columns"] if row["far_values"]}
    assert far == {"y": "-999 (2 rows)"}
    (text,) = (one for one in found["methods"]["moments"]["warnings"] if "far outside" in one)
    assert "'y' (2 rows at party " in text


@pytest.mark.slow
def test_check_method_makes_its_own_tables(monkeypatch):
    monkeypatch.setattr(report, "FAULTS", report.FAULTS[:1])
    found = call("check-method", "moments", "--json")
    assert found.exit_code == 0
    results = json.loads(found.stdout)
    assert results["passed"]
    assert "runs" in [one["name"] for one in results["results"]]
    failed = report.Report("moments", (report.CheckResult("runs", "failed", "why"),))
    monkeypatch.setattr(command_line, "checks_of", lambda *given, **options: failed)
    shown = call("check-method", "moments")
    assert shown.exit_code == 1
    assert "runs  failed  why" in shown.stdout


@pytest.mark.parametrize("method", methods.OWN_METHODS)
def test_small_tables_suit_their_method(method):
    assert agreement_of(method, command_line._small_tables(method, {})).n > 0


def test_a_scenario_is_copied_to_be_changed(tmp_path):
    mine = tmp_path / "mine.toml"
    assert str(mine) in call("reproduce", "ng2022-clients", "--copy", mine).stdout
    copied, original = scenario.find(str(mine)), scenario.find("ng2022-clients")
    assert copied.lines == original.lines
    assert copied.grid == original.grid
    shown = call("reproduce", "ng2022-clients", "--copy", mine)
    assert shown.exit_code == 2
    assert "exists already" in shown.stderr
    assert "ng2022-clients" in call("reproduce", "ng2022-client", "--copy", tmp_path / "b").stderr


# What a run says at its end, and where it does not come to its end.


def losing_the_last(monkeypatch):
    """Let the last of three parties answer no exchange."""
    simulated = command_line.simulate
    monkeypatch.setattr(
        command_line, "simulate", partial(simulated, wrap_grid=losing({(1, False): [2]}))
    )


@pytest.mark.parametrize("as_json", [False, True])
def test_a_run_without_all_parties_has_its_own_status(files, tmp_path, monkeypatch, as_json):
    losing_the_last(monkeypatch)
    command = ["run", "moments", *files, "--output-dir", tmp_path / "out"]
    shown = call(*command, *(["--json"] if as_json else []))
    assert shown.exit_code == command_line.NOT_ALL_PARTIES == 3
    said = "completed without party 2 (c.csv, 60 of 180 rows)"
    assert f"The run is {said}." in shown.stderr
    if as_json:
        assert json.loads(shown.stdout)["lost"] == {"party 2": 60}
    else:
        assert f"\nmoments, {said}: " in shown.stdout
    page = (tmp_path / "out" / "report.html").read_text()
    assert "without party 2 (c.csv, 60 of 180 rows)" in page
    monkeypatch.undo()
    assert call(*command).exit_code == 0


def test_the_files_of_the_parties_are_beside_their_names(files, tmp_path):
    call("run", "moments", *files, "--output-dir", tmp_path / "out")
    assert Run.load(tmp_path / "out").sources == {f"party {k}": f"{'abc'[k]}.csv" for k in range(3)}
    # Files of one name are told apart by their directories; tables in memory have none.
    (tmp_path / "other").mkdir()
    twin = shutil.copy(files[0], tmp_path / "other" / "a.csv")
    assert sources_of([files[0], twin]) == {"party 0": str(files[0]), "party 1": str(twin)}
    assert sources_of([files[0], pd.read_csv(files[1])]) == {"party 0": "a.csv"}


def test_messages_name_the_files_of_the_parties(files, tmp_path, caplog):
    table = pd.read_csv(files[1]).assign(x=lambda one: one["x"] * 1000)
    table.to_csv(files[1], index=False)
    run = simulate("moments", files, output_dir=tmp_path / "out")
    (warning,) = (text for text in run.warnings if "times at" in text)
    assert "'x' (" in warning
    assert "times at 'b.csv')" in warning
    assert warning in caplog.messages
    assert set(run.parties) == {"party 0", "party 1", "party 2"}
    assert Run.load(tmp_path / "out").warnings == run.warnings
    assert simulate("moments", files, output_dir=tmp_path / "out", resume=True).warnings == (
        run.warnings
    )
    assert warning in agreement_of("moments", files).warnings
    in_memory = simulate("moments", [pd.read_csv(file) for file in files]).warnings
    assert any("times at 'party 1')" in text for text in in_memory)
    table.iloc[0, 0] = np.inf
    table.to_csv(files[1], index=False)
    with pytest.raises(DataError, match=r"party 'b\.csv', column 'x': 1 infinite value"):
        simulate("moments", files)
    files[1].unlink()
    with pytest.raises(DataError, match=r"\nparty 1 \(b\.csv\): .*does not exist"):
        simulate("moments", files)


def test_an_interrupted_run_says_what_is_kept_and_how_it_goes_on(files, tmp_path, monkeypatch):
    simulated = command_line.simulate

    class Interrupted(Relay):
        def before(self, messages):
            if messages[0].metadata.group_id == "4":
                raise KeyboardInterrupt
            return messages

    monkeypatch.setattr(command_line, "simulate", partial(simulated, wrap_grid=Interrupted))
    place = tmp_path / "out"
    command = ["run", "notears-admm", *files, "-o", "max_rounds=6"]
    shown = call(*command, "--output-dir", place)
    assert shown.exit_code == 130
    assert f"Interrupted after 3 exchanges; what was done is kept in {place}." in shown.stderr
    assert "-o resume=true goes on" in shown.stderr
    assert f"flwr-causal forget {place}" in shown.stderr
    bare = call(*command)
    assert bare.exit_code == 130
    assert "Nothing was kept: with --output-dir DIR" in bare.stderr
    monkeypatch.undo()
    # As it says: the same command goes on from there, to the result of an undisturbed run.
    assert call(*command, "--output-dir", place, "-o", "resume=true").exit_code == 0
    whole = json.loads(call(*command, "--json").stdout)
    found = Run.load(place)
    assert found.rounds == whole["rounds"]
    assert [weight for *_, weight in found.graph.marked_edges()] == [
        edge["weight"] for edge in whole["edges"]
    ]


def test_other_commands_that_are_interrupted_have_the_status_of_it(monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line.registry, "find", interrupted)
    shown = call("methods", "moments")
    assert (shown.exit_code, shown.stderr) == (130, "Interrupted.\n")


@pytest.mark.parametrize("columns", [80, 200])
def test_tables_are_readable_at_the_width_of_the_terminal(tmp_path, monkeypatch, columns):
    """No word and no number is cut, and no line is wider than the terminal."""
    monkeypatch.setenv("COLUMNS", str(columns))
    names = [f"a long name of an array {k}" for k in range(4)]
    kept = PartyRecord(tmp_path / "record.jsonl")
    for number in range(3):
        kept.append(
            {
                "event": "sent",
                "run": 1234567890123456789,
                "method": "notears-admm",
                "exchange": "local-step",
                "number": number,
                "bytes": 123456,
                "arrays": [{"name": name, "shape": [100, 100]} for name in names],
            }
        )
    command = ["record", tmp_path / "record.jsonl"]
    for more in ([], ["--run", 1234567890123456789]):
        shown = call(*command, *more).stdout
        assert max(map(len, shown.splitlines())) <= columns
        assert "…" not in shown
        for word in ("123456", "local-step" if more else "1234567890123456789", names[3]):
            assert word in " ".join(shown.split())
    # A table that is narrow enough is one.
    table = tmp_path / "t.csv"
    pd.DataFrame({"x": range(9), "y": np.arange(9.0) ** 2}).to_csv(table, index=False)
    monkeypatch.chdir(tmp_path)
    shown = call("check", "t.csv", "-m", "moments").stdout.splitlines()
    assert shown[0].split()[:2] == ["table", "column"]
    assert shown[1].split()[:2] == ["t.csv", "x"]


def test_columns_of_a_table_stand_below_each_other(tmp_path, monkeypatch):
    """Also behind wide characters, and names in brackets or colons are printed as they are."""
    monkeypatch.setenv("COLUMNS", "200")
    names = ["[bold]", ":smile:", "年齢", "x"]
    path = tmp_path / "t.csv"
    pd.DataFrame(np.arange(36.0).reshape(9, 4) ** 2, columns=names).to_csv(path, index=False)
    monkeypatch.chdir(tmp_path)
    lines = call("check", "t.csv", "-m", "moments").stdout.splitlines()[:5]
    assert [line.split()[1] for line in lines] == ["column", *names]
    starts = {cell_len(line[: line.index(kind)]) for line in lines for kind in line.split()[2:3]}
    assert len(starts) == 1


def test_the_keys_of_a_run_config_are_checked():
    wrong = call("check-config", "method='fedges' fedges.max-egdes=10")
    assert wrong.exit_code == 2
    assert "Did you mean 'fedges.max-edges'?" in wrong.stderr
    assert call("check-config", "method='fedges' fedges.max-edges=10").exit_code == 0


def test_describe_prints_a_table_json_and_a_page(files, tmp_path):
    result = call("describe", *files, "--output", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "rows" in result.output
    assert (tmp_path / "page.html").is_file()
    result = call("describe", *files, "--json", "-o", "small_counts=report", "-o", "bins=8")
    found = json.loads(result.stdout)
    rows = pd.concat([pd.read_csv(path) for path in files])
    assert found["rows"] == len(rows)
    for column in found["columns"]:
        if column["kind"] == "number":
            assert column["mean"] == pytest.approx(rows[column["name"]].mean())
            assert len(column["below"]) == 9
    result = call("describe", *files, "-o", "binz=8")
    assert result.exit_code == 2
    assert "bins" in result.output


def test_check_names_all_files_that_cannot_be_read(files, tmp_path):
    semicolons = tmp_path / "lyon.csv"
    semicolons.write_text("x;y\n1,5;2\n")
    shown = call("check", files[0], semicolons, tmp_path / "none.csv")
    assert shown.exit_code == 2
    text = " ".join(shown.output.split())
    assert "lyon.csv is separated by semicolons" in text
    assert "none.csv" in text
