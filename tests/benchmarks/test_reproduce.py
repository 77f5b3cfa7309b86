"""Scenarios: files that say what is wrong with them, sweeps that go on, tables that are right."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from entry_point_packages import declare_field, forget
from scipy.stats import chi2_contingency
from typer.testing import CliRunner

from benchmarks import (
    baselines,
    hard,
    joint,
    results,
    scenario,
    simulators,
    tables,
)
from benchmarks.reproduce import prepared, reproduce
from benchmarks.runner import OUTPUTS
from benchmarks.scores import measured
from benchmarks.world import LineResult, World
from benchmarks.worlds import WORLDS, world_of
from flwr_causal import command_line
from flwr_causal.command_line import app
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import varsortability
from flwr_causal.data.synthetic.nonlinear import PACKAGE_ROWS
from flwr_causal.errors import ConfigError

TINY = """
title = "tiny"
paper = "Nobody (2026)"
runs = 2
seed = 3
metrics = ["shd", "tpr", "sid", "effect_error"]
[data]
name = "linear"
num_rows = 60
[split]
[grid]
num_variables = 4
num_parties = [2, 3]
[lines]
moments = { method = "moments" }
voting = { baseline = "voting" }
absent = { baseline = "empty", needs = ["no_such_module"] }
[[figures]]
line = "theirs"
at = { num_parties = 3 }
shd = 1.5
[not-run]
FedDAG = "no public code"
"""


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def test_the_command_makes_tables_and_a_second_call_computes_nothing(tiny, tmp_path):
    out = tmp_path / "out"
    arguments = ["reproduce", str(tiny), "--output-dir", str(out)]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    cells = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    assert len(cells) == 2 * 2 * 4  # points, runs, lines with the two sorts
    frame = pd.read_csv(out / "results.csv")
    assert set(frame["line"]) == {"moments", "voting", *baselines.ALWAYS}
    mean = frame[(frame["line"] == "moments") & (frame["num_parties"] == 3)]["shd"].mean()
    shown = next(line for line in first.output.splitlines() if line.startswith("| 4 | 3 |"))
    assert float(shown.split("|")[3].split("[n=2]")[0]) == pytest.approx(mean, abs=0.006)
    assert "(1.5)" in shown
    for words in ("scale 1", "absent needs no_such_module", "FedDAG: no public code"):
        assert words in first.output
    for name in ("results.parquet", "tables.tex", "plot.png", "plot.svg", "index.html"):
        assert (out / name).stat().st_size > 0
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()} == cells


@pytest.mark.parametrize("name", OUTPUTS)
def test_results_replace_those_of_a_sweep_only(name, tiny, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("my own")
    for cells in (None, "notes.txt"):
        if cells:
            (out / "cells").mkdir()
            (out / "cells" / cells).touch()
        with pytest.raises(ConfigError, match=f"holds {name}, and no cells"):
            reproduce(str(tiny), output_dir=out)
        assert (out / name).read_text() == "my own"


@pytest.mark.nightly
def test_a_killed_sweep_goes_on_and_loses_nothing(tiny, tmp_path, monkeypatch):
    whole = reproduce(str(tiny), output_dir=tmp_path / "whole")
    replaced = os.replace
    written = []

    def killed_at_the_fifth(partial, path):
        written.append(path)
        if len(written) == 5:
            raise KeyboardInterrupt
        replaced(partial, path)

    monkeypatch.setattr(Path, "replace", killed_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        reproduce(str(tiny), output_dir=tmp_path / "killed")
    monkeypatch.undo()
    kept = {path.name for path in (tmp_path / "killed" / "cells").glob("*.json")}
    assert len(kept) == 4
    again = reproduce(str(tiny), output_dir=tmp_path / "killed")
    columns = ["line", "num_parties", "run", "seed", "shd", "tpr", "sid", "effect_error"]
    both = [pd.read_csv(report.files[0])[columns] for report in (whole, again)]
    pd.testing.assert_frame_equal(*both)


def test_seeds_follow_coordinates_and_parties_share_rows(tiny):
    one = prepared(str(tiny))
    few, many = one.grid
    assert one.seed_of(few, 1) == one.seed_of(dict(reversed(many.items())), 1)
    assert one.seed_of(few, 0) != one.seed_of(few, 1)
    assert one.seed_of({**few, "num_variables": 5}, 0) != one.seed_of(few, 0)
    pooled = [world_of(one, point, 0, None).pooled for point in one.grid]
    ordered = [frame.sort_values("x0", ignore_index=True) for frame in pooled]
    pd.testing.assert_frame_equal(*ordered)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("title =", "titel ="), "unknown key 'titel'. Did you mean 'title'"),
        (('title = "tiny"', ""), "lacks the key 'title'"),
        (("runs = 2", 'runs = "2"'), "'runs' is '2'"),
        (('"sid"', '"sidd"'), "'metrics' has 'sidd': choose of"),
        (('name = "linear"', 'name = "linaer"'), "no data 'linaer'. Known: linear"),
        (("num_rows = 60", "num_row = 60"), "do not take num_row; they take"),
        (('"voting"', '"votes"'), "there is no baseline 'votes'. Known: pooled"),
        (('method = "moments"', ""), "give exactly one of method, baseline, peer"),
        (('{ method = "moments"', '{ method = "moments", sparsty = 1'), "sparsty"),
        (("[grid]", "[grid"), "is no TOML"),
    ],
)
def test_errors_name_the_key_and_the_remedy(tiny, tmp_path, change, words):
    tiny.write_text(TINY.replace(*change))
    found = CliRunner().invoke(app, ["reproduce", str(tiny), "--output-dir", str(tmp_path)])
    assert found.exit_code == 2
    assert words in found.output


@pytest.mark.slow
def test_labels_with_commas_choose_lines(tiny, tmp_path):
    tiny.write_text(TINY.replace("voting =", '"voting, linear" ='))
    arguments = ["reproduce", str(tiny), "--runs", "1", "--output-dir", str(tmp_path / "out")]
    found = CliRunner().invoke(app, [*arguments, "--methods", "moments,voting, linear"])
    assert found.exit_code == 0, found.output
    assert "| moments | voting, linear | theirs |" in found.output
    assert "--methods 'moments,voting, linear'" in (tmp_path / "out" / "figures.csv").read_text()
    found = CliRunner().invoke(app, [*arguments, "--methods", "moments, voting, linear"])
    assert found.exit_code == 2
    assert "write a comma without a space" in " ".join(found.output.split())


def test_points_by_their_coordinates(tiny, tmp_path):
    out = str(tmp_path / "out")
    arguments = ["reproduce", str(tiny), "--runs", "1", "--output-dir", out, "--methods", "voting"]
    found = CliRunner().invoke(
        app, [*arguments, "--at", "num_parties=3", "--at", "num_variables=4"]
    )
    assert found.exit_code == 0, found.output
    (table,) = results.read(Path(out, "figures.csv")).metric_tables()[:1]
    assert [point["num_parties"] for point, _ in table.rows] == ["3"]
    assert "--at num_parties=3" in Path(out, "figures.csv").read_text()
    for at, words in (
        ("num_parties=5", "'num_parties': there is no '5'. Values: 2, 3"),
        ("parties=2", "no coordinate 'parties'. Its coordinates: num_variables, num_parties"),
        ("num_parties", "write AXIS=VALUE,VALUE"),
    ):
        refused = CliRunner().invoke(app, [*arguments, "--at", at])
        assert refused.exit_code == 2
        assert words in " ".join(refused.output.split())


def test_a_line_that_is_left_out_is_not_checked(tiny):
    tiny.write_text(TINY.replace('"voting"', '"votes"'))
    assert [line.label for line in prepared(str(tiny), methods=["moments"]).lines] == ["moments"]
    for methods in ([], ["votes"]):
        with pytest.raises(ConfigError, match="there is no baseline 'votes'"):
            prepared(str(tiny), methods=methods)


def test_names_of_scenarios_and_lines():
    with pytest.raises(ConfigError, match="Did you mean 'ng2022-clients'"):
        scenario.find("ng2022-client")
    with pytest.raises(ConfigError, match="has no line 'fastest'"):
        prepared("ng2022-clients", methods=["fastest"])
    listed = CliRunner().invoke(app, ["reproduce", "--list"]).output
    assert all(f"{name}  " in listed for name in scenario.names())


def test_an_installation_without_the_checkout_says_where_the_scenarios_are(tmp_path, monkeypatch):
    monkeypatch.setattr(command_line, "CHECKOUT", tmp_path)
    for given in (["--list"], ["hard-*", "--runs", "1"], ["--help"]):
        found = CliRunner().invoke(app, ["reproduce", *given])
        assert found.exit_code == 2
        assert "the folder 'benchmarks' of the repository" in " ".join(found.stderr.split())


@pytest.fixture
def field_methods(monkeypatch):
    declare_field(monkeypatch)
    yield
    forget()


@pytest.mark.usefixtures("field_methods")
@pytest.mark.parametrize("name", scenario.names())
def test_every_scenario_of_the_papers_can_be_read(name):
    one = prepared(name)
    assert one.grid
    assert one.data["name"] in WORLDS
    labels = [line.label for line in one.lines]
    for figure in one.figures:
        assert figure.values.keys() <= set(one.metrics)
        assert any(one.figure(figure.line, p, m) for p in one.grid for m in figure.values)
    # A paper-only column is meant, or what was measured before, not a label that was mistyped.
    unknown = {f.line for f in one.figures} - {*labels, "before", "goal"}
    assert all(name in one.not_run or "(paper)" in name for name in unknown), unknown
    small = one.scaled(0.2)
    assert 1 <= len(small.grid) <= len(one.grid)


def test_scale_shrinks_rows_and_lists_and_keeps_rows_for_all_parties():
    small = prepared("ng2022-clients", scale=0.2)
    assert [p["num_parties"] for p in small.grid] == [2, 4]
    assert {small.data_at(p)["num_rows"] for p in small.grid} == {round(0.2 * 256)}
    assert prepared("ng2022-clients", scale=0.01).data_at({"num_parties": 2})["num_rows"] == 8
    rows = prepared("ng2022-variables", scale=0.01).data_at({"num_variables": 20})
    assert rows["rows_per_variable"] * 20 == 40  # ten parties
    uneven = prepared("yang2024-uneven", scale=0.2)  # ten parties with packages of 50 rows
    assert uneven.data_at(uneven.grid[0])["num_rows"] == 10 * PACKAGE_ROWS
    sizes = [len(party) for party in world_of(uneven, uneven.grid[0], 0, None).parties]
    assert sizes == [PACKAGE_ROWS] * 10
    assert "scale 0.2 (at least 50 rows a party)" in tables.heading(uneven, 1)
    assert tables.heading(scenario.find("yang2024-uneven"), 1).endswith("scale 1")
    private = prepared("differential-privacy", scale=0.2)
    assert private.data_at({"num_variables": 10, "num_rows": 1000})["num_rows"] == 1000
    assert private.data_at({"num_variables": 10, "num_rows": 100000})["num_rows"] == 20000
    with pytest.raises(ConfigError, match="--scale is 2"):
        small.scaled(2)


def test_points_whose_rows_do_not_suffice_are_listed_and_the_others_run(tiny, tmp_path):
    tiny.write_text(TINY.replace("[2, 3]", "[2, 61]"))
    found = reproduce(str(tiny), output_dir=tmp_path / "out", methods=["sort-by-variance"])
    assert found.failed == 0
    (reason,) = (note for note in found.notes if note.startswith("skipped"))
    assert "num_parties = 61: 60 rows are too few for 61 parties" in reason
    assert set(pd.read_csv(tmp_path / "out" / "results.csv")["num_parties"]) == {2}


def test_missing_data_are_listed_and_skipped(tmp_path):
    path = tmp_path / "both.toml"
    path.write_text(
        'title = "t"\nmetrics = ["smhd"]\nruns = 1\n[data]\nname = "network"\nnum_rows = 50\n'
        '[split]\nnum_parties = 2\n[grid]\nnetwork = ["asia", "child"]\n'
        '[lines]\nnothing = { baseline = "empty" }\n'
    )
    (tmp_path / "child.bif.gz").write_bytes(b"another file")
    for folder, words in (("", "are not in the repository"), (tmp_path, "another SHA-256")):
        found = reproduce(str(path), output_dir=tmp_path / "out", data_dir=folder or None)
        assert words in found.text
        assert "bnlearn" in found.text
        assert "| asia | 10.0 [n=1] |" in found.text  # the moral graph of asia has ten edges


def test_entries_are_means_with_their_standard_errors():
    def record(run, shd, error=""):
        return {"line": "a", "point": {"d": 1}, "run": run, "metrics": {"shd": shd}, "error": error}

    one = scenario.read(
        'title = "t"\nmetrics = ["shd"]\n[data]\nname = "linear"\n[grid]\nd = 1\n'
        '[lines]\na = { method = "moments" }\n',
        "t",
    )
    values = [1.0, 2.0, 6.0, 3.0, 3.0]
    (table,) = tables.metric_tables(one, [record(run, shd) for run, shd in enumerate(values)])
    ((_, (entry,)),) = table.rows
    assert entry.mean == 3
    assert entry.error == pytest.approx(math.sqrt(3.5) / math.sqrt(5))
    assert "3.00 ± 0.84" in tables.markdown(table)
    assert r"3.00 $\pm$ 0.84" in tables.latex(table, "50 % of d_1")
    # The spread of a few equal runs is no error.
    (table,) = tables.metric_tables(one, [record(0, 0.0), record(1, 0.0)])
    assert table.rows[0][1][0].text() == "0.000 [n=2]"
    (table,) = tables.metric_tables(one, [record(0, 3.2e-11), record(1, 3.2e-11)])
    assert table.rows[0][1][0].text() == "3.2e-11 [n=2]"
    assert r"50 \% of d\_1" in tables.latex(table, "50 % of d_1")
    (table,) = tables.metric_tables(one, [record(0, 1.0), {**record(1, 0, "no"), "metrics": {}}])
    assert table.rows[0][1][0].text() == "1.00 [n=1] [1 failed]"


@pytest.mark.slow
def test_a_cell_is_a_record_of_its_own(tiny, tmp_path):
    report = reproduce(str(tiny), runs=1, methods=["moments"], output_dir=tmp_path / "out")
    cells = [json.loads(p.read_text()) for p in (tmp_path / "out" / "cells").iterdir()]
    assert {cell["line"] for cell in cells} == {"moments"}
    assert all("flwr" in cell["versions"] for cell in cells)
    assert report.failed == 0


def test_sorting_finds_the_graph_where_variances_grow_and_not_after_standardising():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 3))
    x[:, 1] += 2 * x[:, 0]
    x[:, 2] += 2 * x[:, 1]
    order = baselines._regressed(x, ("a", "b", "c"), x.var(axis=0))
    assert order.adjacency.tolist() == [[False, True, False], [False, False, True], [False] * 3]
    np.testing.assert_allclose(order.weights[order.adjacency], 2, atol=0.1)


@pytest.mark.slow
def test_options_of_some_points_are_those_of_their_cells(tiny, tmp_path):
    line = 'moments = { method = "moments", threshold = 0.3, settings = [ { at = { num_parties = 3 '
    tiny.write_text(TINY.replace('moments = { method = "moments"', line + "}, threshold = 9.0 } ]"))
    one = prepared(str(tiny))
    few, many = one.grid
    assert one.lines[0].options_at(few) == {"threshold": 0.3}
    assert one.lines[0].options_at(many) == {"threshold": 9.0}
    reproduce(str(tiny), output_dir=tmp_path / "out", methods=["moments"], runs=1)
    frame = pd.read_csv(tmp_path / "out" / "results.csv").set_index("num_parties")
    assert frame.loc[3, "tpr"] == 0 < frame.loc[2, "tpr"]


@pytest.mark.slow
def test_tables_say_what_the_order_of_variances_reveals(tiny, tmp_path):
    reproduce(str(tiny), output_dir=tmp_path / "out", runs=1)
    again = results.read(tmp_path / "out" / results.FILE)
    (world,) = (t for t in tables.with_world(again.metric_tables()) if t.metric == tables.WORLD)
    assert world.lines == ("varsortability", "r2_sortability")
    one = prepared(str(tiny))
    made = world_of(one, one.grid[0], 0, None)
    expected = varsortability(made.truth, made.pooled.var())
    assert world.rows[0][1][0].mean == pytest.approx(expected, rel=1e-4)
    assert tables.markdown(world) in (tmp_path / "out" / "tables.md").read_text("utf-8")
    assert tables.markdown(world) in again.markdown()


def test_rates_of_the_parties_own_graphs_are_means_over_the_parties():
    truth = CausalGraph.from_array([[0, 1], [0, 0]], ("a", "b"))
    empty = CausalGraph(("a", "b"), np.zeros((2, 2)))
    back = CausalGraph(("a", "b"), np.array([[0.0, 1.0], [1.0, 0.0]]), kind="summary")
    outcome = LineResult((back,), local=(truth, empty))
    found = measured(World([], truth), outcome, ("local_tpr", "local_fdr", "h"))
    assert found == {"local_tpr": 0.5, "local_fdr": 0.0, "h": pytest.approx(2 * np.cosh(1) - 2)}


def test_classes_are_voted_on_by_direction():
    names = ("a", "b", "c")
    line, fork = ([[0, 1, 0], [1, 0, 1], [0, 1, 0]], [[0, 1, 0], [0, 0, 0], [0, 0, 0]])
    graphs = [CausalGraph(names, np.array(g, float), kind="cpdag") for g in (line, fork, fork)]
    assert np.argwhere(baselines.voted(graphs).adjacency).tolist() == [[0, 1]]


@pytest.mark.parametrize("lie", hard.LIES)
def test_only_false_parties_have_other_tables(lie):
    honest = hard.false_parties(2, "none", 0, 5, 3000, 3)
    world = hard.false_parties(2, lie, 1, 5, 3000, 3)
    assert world.truth.equals(honest.truth)
    for told, true in zip(world.parties[:2], honest.parties[:2], strict=True):
        pd.testing.assert_frame_equal(told, true)
    told, true = world.parties[2].to_numpy(), honest.parties[2].to_numpy()
    differs = np.abs(np.corrcoef(told.T) - np.corrcoef(true.T)).max()
    assert differs == 0 if lie == "none" else differs > 0.3
    if lie != "noise":  # the same numbers, elsewhere or with other signs
        np.testing.assert_allclose(
            np.sort(np.abs(told), axis=None), np.sort(np.abs(true), axis=None)
        )
    with pytest.raises(ConfigError, match="no lie 'false'"):
        hard.false_parties(0, "false", 1, 5, 100, 3)


@pytest.mark.parametrize("kind", hard.KINDS)
def test_hard_worlds_have_acyclic_truths_over_their_columns(kind):
    world = hard.hard(1, kind, 6, 400)
    (frame,) = world.parties
    assert world.truth.is_acyclic()
    assert tuple(frame.columns) == world.truth.names
    assert frame.shape == (400, 6)
    if kind in ("standardised", "internal"):
        residual = frame.to_numpy() @ (np.eye(6) - world.truth.weights)
        np.testing.assert_allclose(frame.std(ddof=0), 1)
        # The stated weights leave uncorrelated noise.
        correlations = np.corrcoef(residual.T) - np.eye(6)
        assert np.abs(correlations).max() < 0.2


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", joint.KINDS)
def test_joint_tables_have_dependent_columns_and_rows_for_the_test(kind):
    world = joint.joint(3, kind, 4000, 500)
    (frame,) = world.parties
    assert (len(frame), len(world.test)) == (4000, 500)
    assert list(world.test.columns) == list(frame.columns)
    codes = np.column_stack(
        [
            pd.factorize(pd.qcut(own, 4))[0] if own.dtype.kind == "f" else pd.factorize(own)[0]
            for _, own in frame.items()
        ]
    )
    shared = [
        chi2_contingency(pd.crosstab(codes[:, i], codes[:, j])).pvalue
        for i, j in zip(*np.triu_indices(codes.shape[1], 1), strict=True)
    ]
    assert min(shared) < 1e-9
    assert not joint.joint(4, kind, 50, 5).parties[0].equals(joint.joint(5, kind, 50, 5).parties[0])


def test_an_unknown_kind_of_joint_tables_is_named():
    with pytest.raises(ConfigError, match="no kind 'round'"):
        joint.joint(0, "round")


def test_interventions_cut_the_causes_of_their_targets():
    world = hard.interventions(0, 5, 3000, 3)
    stated = world.options["interventions"]
    assert set(stated) == {1, 2}
    for party, (target,) in stated.items():
        frame = world.parties[party]
        causes = [n for n in world.truth.names if n != target]
        j = world.truth.names.index(target)
        parents = [
            causes_of
            for causes_of in causes
            if world.truth.adjacency[world.truth.names.index(causes_of), j]
        ]
        assert frame[target].mean() == pytest.approx(2, abs=0.1)
        assert all(abs(frame[target].corr(frame[p])) < 0.12 for p in parents)


def test_errors_by_party_are_of_its_own_graph_or_of_the_common_one():
    one, other = (
        CausalGraph.from_array(now, ("a", "b"), lagged=np.zeros((1, 2, 2)))
        for now in ([[0, 1], [0, 0]], [[0, 0], [0, 0]])
    )
    world = World([], one, own=(one, other))
    names = ("own_shd", "own_lagged_shd")
    found = measured(world, LineResult((one,)), names)
    assert found == {"own_shd": 0.5, "own_lagged_shd": 0.0}
    assert measured(world, LineResult((one,), local=(one, other)), names)["own_shd"] == 0.0
    assert measured(world, LineResult((other, one)), names)["own_shd"] == 1.0
    plain = CausalGraph(("a", "b"), np.zeros((2, 2)))
    assert measured(world, LineResult((plain,)), names) == {"own_shd": 0.5}


@pytest.mark.parametrize("differences", simulators.DIFFERENCES)
def test_series_of_parties_that_differ(differences):
    world = simulators.differing_series(0, 6, 50, 6, differences)
    assert [table.shape for table in world.parties] == [(51, 6)] * 6
    unlike = [
        int((own.adjacency != world.truth.adjacency).sum())
        + int(((own.lagged != 0) != (world.truth.lagged != 0)).sum())
        for own in world.own
    ]
    assert all(own.is_acyclic() for own in world.own)
    if differences == "all":
        assert unlike[0] == 0
        assert min(unlike[1:]) > 2
    else:
        # One edge less, and one more.
        some, every = [2, 0, 0, 2, 0, 0], [2] * 6
        assert unlike == {"none": [0] * 6, "some": some, "each": every}[differences]
    with pytest.raises(ConfigError, match="no differences 'few'"):
        simulators.differing_series(0, 6, 50, 6, "few")
