"""The page of a run: what it says, that it is safe and whole, and that old directories have one."""

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_graphs import full_graph

from flwr_causal.app.comparison import circuit_scores
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import Knowledge, in_words
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.core.nonlinear.heterogeneity import COLUMNS
from flwr_causal.errors import ConfigError
from flwr_causal.reports.edges import describe_graph
from flwr_causal.reports.page import template
from flwr_causal.reports.page.comparison import comparison_payload
from flwr_causal.reports.page.graph import graph_payload
from flwr_causal.reports.page.payload import edge_table, matrices, payload_of
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate

HOSTILE = "</script><img src=x onerror=alert(1)><!--"
SCRIPT = re.compile(r"<script[^>]*>(.*?)</script>", re.S)


def data_of(page):
    """The payload that a page holds, as a browser reads it."""
    return json.loads(SCRIPT.findall(page)[0])


def section(payload, name):
    return next((one for one in payload["sections"] if one["id"] == name), None)


def block(payload, name, kind):
    return next(one for one in section(payload, name)["blocks"] if one["kind"] == kind)


def test_the_page_says_what_the_run_says(admm_run):
    run = replace(
        admm_run,
        warnings=["Few rows: get more."],
        failures=[{"round": 2, "party": "party 1", "reason": "disk full"}],
    )
    payload = payload_of(run)
    assert payload["heading"] == f"{run.graph.num_edges} edges among 5 variables"
    for part in (run.stop_reason, "notears-admm", "3 parties", "240 rows", f"{run.rounds} exch"):
        assert part in payload["question"]
    assert payload["verdict"] == run.headline
    assert payload["verdict"].endswith("; 1 warning.")
    texts = json.dumps(section(payload, "trust"))
    assert "Few rows: get more." in texts
    assert "party 1 was left out of exchange 2: disk full" in texts
    edges = block(payload, "edges", "table")
    assert len(edges["rows"]) == run.graph.num_edges + run.metrics["missing"]
    deviations = dict(zip(run.graph.names, run.graph.deviations, strict=True))
    strengths = [abs(row[3]) * deviations[row[0]] / deviations[row[2]] for row in edges["rows"]]
    np.testing.assert_allclose(strengths, sorted(strengths, reverse=True))
    assert edges["caption"].startswith("All edges, strongest first by the weight in standard dev")
    parties = block(payload, "parties", "table")
    assert [row[:2] for row in parties["rows"]] == [list(one) for one in run.parties.items()]
    traffic = dict(zip(parties["columns"], zip(*parties["rows"], strict=True), strict=True))
    assert sum(traffic["bytes to it"]) == run.bytes_sent
    assert sum(traffic["bytes from it"]) == run.bytes_received
    records = block(payload, "exchanges", "table")
    assert len(records["rows"]) == run.rounds
    seconds = block(payload, "exchanges", "heat")
    assert len(seconds["cells"]) == 3 * run.rounds
    left = {row[0]: row[1] for row in block(payload, "privacy", "table")["rows"]}
    assert sum(left.values()) == run.rounds
    setup = json.dumps(section(payload, "setup"))
    for part in ("Ng & Zhang (2022). Towards", "max_rounds", run.versions["numpy"]):
        assert part in setup


def test_effects_and_probabilities_are_those_of_the_model():
    rng = np.random.default_rng(0)
    series = np.zeros((300, 2))
    for t in range(1, 300):
        series[t] = [0.5, 0.8] * series[t - 1, [0, 0]] + rng.normal(size=2)
    run = simulate("moments", [series], order=1)
    payload = payload_of(run)
    effects, responses = (b for b in section(payload, "effects")["blocks"] if b["kind"] == "table")
    lagged = {tuple(row[:2]): row for row in effects["rows"]}["x0[t-1]", "x1"]
    assert tuple(lagged[2:4]) == run.model.total_effect("x0", "x1", lag=1)[:2]
    assert lagged[2] == pytest.approx(0.8, abs=0.1)
    course = next(row[2:] for row in responses["rows"] if row[:2] == ["x0", "x1"])
    assert course == run.model.response({"x0": 1.0})["x1"].tolist()
    assert len(block(payload, "effects", "lines")["panels"]) == len(responses["rows"])

    frame = pd.DataFrame({"a": rng.choice(["n", "y"], 400), "b": rng.choice(["u", "v"], 400)})
    frame["c"] = np.where((frame["a"] == "y") & (rng.random(400) < 0.9), "s", "t")
    network = simulate("fedges", [frame]).model
    folded = section(payload_of(replace(run, model=network, graph=network.graph)), "tables")
    assert [one["kind"] for one in folded["blocks"]] == ["folded"] * 3
    for j, one in enumerate(folded["blocks"]):
        (table,) = one["blocks"]
        width = len(network.parents[j])
        assert len(table["rows"]) == network.tables[j][..., 0].size
        shares = [row[width + 1 :] for row in table["rows"]]
        np.testing.assert_array_equal(np.ravel(shares), network.tables[j].ravel())
        assert sum(row[width] for row in table["rows"]) == pytest.approx(400, abs=2)


@pytest.mark.parametrize("seed", range(8))
def test_verdicts_on_edges_are_those_of_the_metrics(seed):
    rng = np.random.default_rng(seed)
    names = tuple("abcdef")
    truth, found = (
        CausalGraph(names, np.triu(rng.normal(size=(6, 6)) * (rng.random((6, 6)) < 0.5), 1))
        for _ in range(2)
    )
    order = rng.permutation(6)
    found = CausalGraph(names, found.weights[np.ix_(order, order)], raw_weights=np.ones((6, 6)))
    counts = graph_payload(found, truth, None)["counts"]
    metrics = compare(truth, found)
    for verdict in ("missing", "extra", "reversed"):
        assert counts.get(verdict, 0) == metrics[verdict]
    right = metrics["num_edges"] - metrics["extra"] - metrics["reversed"]
    assert counts.get("right", 0) == right


def test_undirected_and_lagged_edges_are_judged():
    truth = CausalGraph.from_array([[0, 1, 0], [0, 0, 0], [0, 1, 0]], ("a", "b", "c"))
    open_edge = CausalGraph.from_array(
        [[0, 1, 0], [1, 0, 0], [0, 0, 0]], ("a", "b", "c"), kind="cpdag"
    )
    payload = graph_payload(open_edge, truth, None)
    assert payload["counts"] == {"open": 1, "missing": 1}
    assert [edge["mark"] for edge in payload["edges"]] == ["--", "->"]
    assert graph_payload(open_edge, open_edge, None)["counts"] == {"right": 1}

    lagged = np.zeros((2, 2, 2))
    lagged[0, 0, 0] = lagged[1, 0, 1] = 1.0
    found = CausalGraph(("a", "b"), np.zeros((2, 2)), lagged=lagged)
    moved = CausalGraph(("a", "b"), np.zeros((2, 2)), lagged=lagged[::-1])
    assert graph_payload(found, found, None)["counts"] == {"right": 2}
    assert graph_payload(found, moved, None)["counts"] == {"extra": 2, "missing": 2}
    # A truth without lags says nothing of a variable's own past.
    summary = CausalGraph.from_array([[0, 1], [0, 0]], ("a", "b"), kind="summary")
    assert graph_payload(found, summary, None)["counts"] == {"right": 1}


def test_all_lags_raw_weights_and_marks_are_on_the_page():
    graph = full_graph()
    payload = graph_payload(graph, None, Knowledge(tiers=[["x2"], ["x10", "x1"]]).to_dict())
    found = [edge for edge in payload["edges"] if edge["found"]]
    assert len(found) == graph.num_edges + graph.num_lagged_edges
    for edge in found:
        i, j, lag = edge["cause"], edge["effect"], edge["lag"]
        weights = graph.weights if not lag else graph.lagged[lag - 1]
        assert edge["weight"] == weights[i, j]
    assert [edge for edge in found if edge.get("required")] == [found[0]]
    shares = np.random.default_rng(1).random(graph.lagged.shape)
    for edge in graph_payload(replace(graph, lagged_confidence=shares), None, None)["edges"]:
        if edge["found"]:
            known = [graph.confidence, *shares][edge["lag"]]
            assert edge["confidence"] == known[edge["cause"], edge["effect"]]
    left_out = [abs(edge["raw"]) for edge in payload["edges"] if not edge["found"]]
    assert left_out == sorted(left_out, reverse=True)
    assert payload["forbidden"] == [[1, 0, 0], [2, 0, 0]]
    x = graph.names
    lag, i, j = np.argwhere(graph.lagged)[0].tolist()
    lagged = [(x[1], x[2]), (x[0], x[1], 2)]
    known = Knowledge(required_lagged=[(x[i], x[j], lag + 1)], forbidden_lagged=lagged)
    payload = graph_payload(replace(graph, required=None), None, known.to_dict())
    assert payload["forbidden"] == [[1, 2, 1], [0, 1, 2], [1, 2, 2]]
    required = [(e["cause"], e["effect"], e["lag"]) for e in payload["edges"] if "required" in e]
    assert required == [(i, j, lag + 1)]


def test_a_table_of_edges_has_what_is_known():
    graph = CausalGraph.from_array([[0, 1], [0, 0]], ("a", "b"))
    table = edge_table(graph_payload(graph, None, None))
    assert table["columns"] == ["cause", "", "effect", "weight"]
    assert table["rows"] == [["a", "->", "b", 1.0]]
    pattern = CausalGraph.from_array([[0, 1], [1, 0]], ("a", "b"), kind="cpdag")
    payload = graph_payload(pattern, graph, None)
    table = edge_table(payload)
    assert table["rows"] == [["a", "--", "b", "direction open"]]
    (adjacency,) = matrices(payload)
    assert sorted(adjacency["cells"]) == [[0, 1, 1.0], [1, 0, 1.0]]


def test_effects_of_edges_are_those_of_the_model(moments_run):
    rows = block(payload_of(moments_run), "effects", "table")["rows"]
    assert len(rows) == moments_run.graph.num_edges
    for cause, effect, value, error, low, high, _ in rows:
        found = moments_run.model.total_effect(cause, effect)
        assert (value, error, low, high) == (found.value, found.standard_error, *found.interval)
    assert section(payload_of(replace(moments_run, model=None)), "effects") is None


def test_hostile_names_stay_text(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    rows[:, 1] += 2 * rows[:, 0]
    run = simulate("moments", [pd.DataFrame(rows, columns=[HOSTILE, "{{data}}"])])
    run.warnings.append(f"the column {HOSTILE}")
    page = run.report(tmp_path / "deep" / "page.html").read_text(encoding="utf-8")
    assert "<img src=x" not in page
    assert len(SCRIPT.findall(page)) == 1 + len(template.LIBRARIES) + len(template._SCRIPTS)
    assert data_of(page)["graph"]["names"] == [HOSTILE, "{{data}}"]
    title = replace(run, config={"method": HOSTILE}).report(tmp_path / "title.html")
    assert "<img src=x" not in title.read_text(encoding="utf-8")


def test_the_page_requests_nothing(admm_run, tmp_path):
    page = admm_run.report(tmp_path / "page.html").read_text(encoding="utf-8")
    scripts = SCRIPT.findall(page)
    markup = SCRIPT.sub("", page)
    assert not re.search(r"https?:|src=|url\(|@import|<link", markup)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy
    assert policy.count("'sha256-") == len(scripts) - 1
    # A library that ended its own element would be cut there.
    for name in template.LIBRARIES:
        assert (
            "</script"
            not in (resources.files(template.__package__) / "libraries" / name).read_text()
        )


def test_numbers_that_are_not_finite_are_null():
    assert template.embedded({"a": [float("nan"), float("inf"), 1.5]}) == '{"a":[null,null,1.5]}'


@pytest.mark.slow
def test_a_circuit_has_marginals_and_moments_beside_the_data():
    rng = np.random.default_rng(0)
    frames = [
        pd.DataFrame({"x": rng.normal(3.0, 2.0, 80), "c": rng.choice(["a", "b"], 80)})
        for _ in range(2)
    ]
    run = simulate("fedpc", frames, target="c")
    run.metrics = circuit_scores(run.model, frames[0])
    payload = payload_of(run)
    scores, calibrated = (
        one for one in section(payload, "trust")["blocks"] if one["kind"] == "table"
    )
    assert ["accuracy", run.metrics["accuracy"]] in scores["rows"]
    assert sum(rows for *_, rows in calibrated["rows"]) == 80
    assert payload["graph"] is None
    assert payload["heading"] == "A joint distribution of 2 variables"
    number, category = block(payload, "distribution", "shapes")["panels"]
    x, density = np.array(number["points"]).T
    assert np.trapezoid(density, x) == pytest.approx(1.0, abs=0.02)
    assert sum(share for _, share in category["bars"]) == pytest.approx(1.0)
    (row,) = block(payload, "distribution", "table")["rows"]
    pooled = pd.concat(frames)["x"]
    assert row[1] == pytest.approx(pooled.mean())
    assert row[3] == pytest.approx(pooled.std(ddof=0))
    assert row[2] == pytest.approx(row[1], abs=0.2)
    assert row[4] == pytest.approx(row[3], abs=0.3)
    # Without a target the circuit knows numbers by their intervals.
    number, _ = block(payload_of(simulate("fedpc", frames)), "distribution", "shapes")["panels"]
    x, density = np.array(number["points"]).T
    outside = float(re.search(r"x \((\d+)% lie outside\)", number["name"])[1]) / 100
    assert number["steps"]
    assert np.diff(x) @ density[:-1] == pytest.approx(1.0 - outside, abs=0.006)
    assert ((pooled < x[0]) | (pooled > x[-1])).mean() == pytest.approx(outside, abs=0.05)


def test_who_disagrees_is_named(admm_run):
    rows = [("party 0", "x0", "x1", True, "absent", -4.0, 4.0, 0.1)]
    rows += [("party 1", "x0", "x1", True, "same", 9.0, -9.0, 0.5)]
    run = replace(admm_run, heterogeneity=pd.DataFrame(rows, columns=list(COLUMNS)))
    payload = payload_of(run)
    assert "1 of 2 parties disagree clearly" in json.dumps(section(payload, "trust"))
    heat = block(payload, "parties", "heat")
    assert heat["names"] == ["party 0", "party 1"]
    assert heat["across"] == ["x0 -> x1"]
    assert heat["cells"] == [[0, 0, -4.0], [1, 0, 9.0]]


def test_old_directories_have_a_page(admm_run, tmp_path):
    """Directories written before truth, columns and description were kept."""
    directory = admm_run.save(tmp_path / "run")
    content = json.loads((directory / "run.json").read_text())
    for name in ("about", "columns", "versions"):
        del content[name]
    (directory / "run.json").write_text(json.dumps(content))
    (directory / "truth.json").unlink()
    run = Run.load(directory)
    payload = payload_of(run)
    assert run.truth is None
    assert section(payload, "privacy") is None
    assert payload["graph"]["counts"] == {}
    assert "Versions" not in json.dumps(payload["sections"])
    assert run.report(tmp_path / "page.html").stat().st_size > 100_000


def test_a_failed_run_has_a_page(tmp_path):
    run = Run(None, [], 0, 0, 0, 0, 0.0, "", error="no quorum")
    payload = payload_of(run)
    assert "no quorum" in payload["question"]
    assert payload["verdict"] == "Do not rely on this result: the run is not complete (failed)."
    run.report(tmp_path / "page.html")


def test_without_the_files_the_error_says_where_to_make_it(admm_run, tmp_path, monkeypatch):
    monkeypatch.setattr(template, "_STYLE", "gone.css")
    with pytest.raises(ConfigError, match="flwr-causal report"):
        admm_run.report(tmp_path / "page.html")
    monkeypatch.undo()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        admm_run.report(tmp_path / "file" / "page.html")


def test_runs_are_compared(admm_run, moments_run):
    pair = admm_run, moments_run
    graph = CausalGraph.from_array(np.eye(5, k=1), admm_run.graph.names)
    turned = CausalGraph.from_array(np.eye(5, k=1).T * [1, 0, 0, 0, 0], admm_run.graph.names)
    payload = comparison_payload(("one", "two"), pair, (graph, turned))
    assert payload["heading"] == "0 common edges, 4 pairs of variables that differ"
    shares = {(e["cause"], e["effect"]): e["runs"] for e in payload["graph"]["edges"]}
    assert shares == dict.fromkeys([(0, 1), (1, 2), (2, 3), (3, 4), (1, 0)], 0.5)
    same = comparison_payload(("one", "two"), pair, (graph, graph))
    assert {edge["runs"] for edge in same["graph"]["edges"]} == {1.0}
    lossy = replace(admm_run, lost={"north": 9}, answered={})
    columns, rows = (
        block(
            comparison_payload(("one", "two"), (lossy, moments_run), (graph, graph)),
            "runs",
            "table",
        )[key]
        for key in ("columns", "rows")
    )
    place = columns.index("not of all parties")
    assert [row[place] for row in rows] == ["without north (9 of 249 rows)", None]
    template.rendered(same)


@pytest.mark.slow
def test_a_wheel_holds_the_files_of_the_page_and_nothing_beside_the_package(tmp_path):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", tmp_path, root]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    folder = root / "flwr_causal" / "reports" / "page"
    files = {
        file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in str(file)
    }
    assert {file.relative_to(root).as_posix() for file in files} <= held
    assert len(files) > len(template.LIBRARIES)
    assert all(name.startswith(("flwr_causal/", "flwr_causal-")) for name in held)


def test_licences_of_the_libraries_are_there():
    licences = resources.files(template.__package__) / "libraries" / "README.txt"
    for name in template.LIBRARIES:
        assert name in licences.read_text(encoding="utf-8")


def test_the_page_says_what_does_not_fit_and_who_differs():
    rng = np.random.default_rng(0)
    parts = []
    for k in range(3):
        x, y = rng.normal(size=(2, 300))
        z = 0.6 * x + (0.7 + 2.5 * (k == 1)) * y + rng.normal(size=300)
        parts.append(pd.DataFrame({"x": x, "y": y, "z": z}))
    run = simulate("moments", parts, solver="dagma", threshold=0.9)
    payload = payload_of(run)
    fit = section(payload, "fit")["blocks"]
    check = run.fit_check()
    assert len(check.rejected) > 0
    assert f"{len(check.rejected)} fail" in fit[0]["text"]
    assert fit[1]["rows"][0][:2] == check.rejected.iloc[0][["first", "second"]].tolist()
    assert fit[-1]["rows"][0][4] == run.doubtful_edges()[0].decided_by
    tables = [one for one in section(payload, "parties")["blocks"] if one["kind"] == "table"]
    unlike = next(one for one in tables if one["caption"].startswith("What differs"))
    assert unlike["rows"][0][0] == "party 1"
    assert run.influence["party 1"]["changes"]
    tables = [one for one in section(payload_of(run), "parties")["blocks"] if "rows" in one]
    without = next(one for one in tables if one["caption"] == "Without one party")
    assert ["party 1", ", ".join(run.influence["party 1"]["changes"])] in without["rows"]
    compared = comparison_payload(["a", "b"], [run, run], [run.graph] * 2)
    assert compared["sections"][0]["blocks"][0]["columns"][-1] == "fit"
    for of_run, by_run in ((fit[-1], "doubts"), (unlike, "parties")):
        (table,) = section(compared, by_run)["blocks"]
        assert table["columns"] == ["run", *of_run["columns"]]
        assert table["rows"] == [[name, *row] for name in "ab" for row in of_run["rows"]]
    (effects,) = section(payload, "effects")["blocks"]
    (table,) = section(compared, "effects")["blocks"]
    cause, effect, value, _, low, high, _ = effects["rows"][0]
    cell = f"{value:.3g} ({low:.3g} to {high:.3g})"
    assert table["rows"][0] == [cause, effect, cell, cell]
    json.dumps(payload, allow_nan=False)


def test_background_knowledge_is_stated_in_words():
    rows = np.random.default_rng(0).exponential(size=(300, 4)).cumsum(axis=1)
    table = pd.DataFrame(rows, columns=["age", "sex", "dose", "risk"])
    known = Knowledge(
        tiers=[["sex", "age"], ["dose", "risk"]],
        required=[("dose", "risk")],
        forbidden=[("age", "sex"), ("sex", "age")],
    )
    payload = payload_of(simulate("lingam", [table[:150], table[150:]], knowledge=known))
    options = dict(block(payload, "setup", "table")["rows"])
    assert options["knowledge"] == (
        "tier 1: sex, age; tier 2: dose, risk; required: dose -> risk; "
        "forbidden: age -> sex, sex -> age"
    )
    lags = Knowledge(required_lagged=[("a", "b", 2)], forbidden_lagged=[("b", "a")])
    assert in_words(lags) == (
        "required between steps: a -> b at lag 2; forbidden between steps: b -> a"
    )
    assert in_words(Knowledge()) == "none"


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("method", ["lingam", "moments", "notears-admm"])
def test_the_strongest_edges_do_not_depend_on_units(method):
    """In another unit of b the weights differ, and the order of the edges does not."""
    rng = np.random.default_rng(0)
    noise = rng.exponential(size=(900, 3))
    a = noise[:, 0]
    b = 2.0 * a + noise[:, 1]
    table = pd.DataFrame({"a": a, "b": b, "c": 0.3 * b + noise[:, 2]})
    options = {"standardize": True} if method == "notears-admm" else {}
    known = Knowledge(tiers=[["a"], ["b"], ["c"]])  # units alone may turn edges of `moments`
    orders, units = [], (1.0, 1e4, 1e-4)
    for unit in units:
        scaled = table.assign(b=table["b"] * unit)
        parts = [scaled[k : k + 300] for k in (0, 300, 600)]
        run = simulate(method, parts, knowledge=known, **options)
        edges = [row[:3] for row in block(payload_of(run), "edges", "table")["rows"]]
        effects = block(payload_of(run), "effects", "table")["rows"]
        listed = [line.split()[:3] for line in describe_graph(run.graph)[1:]]
        strongest = run.graph.strongest(1).marked_edges()
        assert [list(one[:3]) for one in strongest] == edges[:1] == listed[:1]
        assert listed == edges
        assert [row[:2] for row in effects] == [[edge[0], edge[2]] for edge in edges]
        assert run.graph.equals(CausalGraph.from_dict(run.graph.to_dict()))
        orders.append(edges)
    assert len(orders[0]) > 1
    assert orders[0][0] == ["a", "->", "b"]
    assert orders.count(orders[0]) == len(units)


# The first lines: what was found, then how far to trust it.


def run_of_a_wrong_graph():
    """A run whose graph lacks edges, so that independencies that it implies fail."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    x[:, 1] += 2 * x[:, 0]
    x[:, 2] += 2 * x[:, 1]
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    run = simulate(
        "moments",
        [frame[:300], frame[300:]],
        knowledge=Knowledge(forbidden=(("b", "c"), ("c", "b"))),
    )
    return replace(run, warnings=["Few rows."])


def test_the_first_line_says_what_speaks_against_the_graph():
    run = run_of_a_wrong_graph()
    failed = len(run.fit_check().rejected)
    assert failed
    verdict = payload_of(run)["verdict"]
    tested = len(run.fit_check().independencies)
    assert verdict.startswith(
        f"Do not rely on this graph: it does not fit the rows ({failed} of {tested} implied "
    )
    assert f"p = {run.fit_check().p_value:.2g}" in verdict
    assert verdict.endswith("1 warning.")
    # A party that is missing is in the heading and in the line.
    run = replace(run, lost={"north": 1749}, answered={"party 0": 1, "party 1": 1})
    payload = payload_of(run)
    assert payload["heading"].endswith("among 3 variables, without north (1,749 of 2,349 rows)")
    assert "; it is without north (1,749 of 2,349 rows); 1 warning." in payload["verdict"]
    assert ["north", 1749] in [row[:2] for row in block(payload, "parties", "table")["rows"]]


def test_doubtful_edges_are_named_in_the_first_line(moments_run):
    verdict = payload_of(moments_run)["verdict"]
    count = moments_run.graph.num_edges
    doubtful = [one for one in moments_run.doubtful_edges(count) if one.doubt >= 0.5]
    assert doubtful
    assert f"{len(doubtful)} of {count} edges are in doubt: " in verdict
    assert f"{doubtful[0].cause} {doubtful[0].mark} {doubtful[0].effect}" in verdict
    sure = replace(
        moments_run, graph=replace(moments_run.graph, required=moments_run.graph.adjacency)
    )
    assert "in doubt" not in payload_of(sure)["verdict"]


def test_the_first_line_says_where_nothing_tests_the_fit():
    """A graph that connects all pairs implies no independence."""
    states = np.random.default_rng(0).integers(0, 2, 300)
    table = pd.DataFrame({"a": states, "b": states}).astype(str)
    run = simulate("fedges", [table[:150], table[150:]])
    assert len(run.fit_check().independencies) == 0
    assert "doubts: whether it fits the rows is not known" in payload_of(run)["verdict"]


def test_agreement_of_the_parties_is_not_called_confidence():
    rng = np.random.default_rng(0)
    a = rng.choice(["n", "y"], 400)
    b = np.where(rng.random(400) < 0.8, a, "n")
    frame = pd.DataFrame({"a": a, "b": b})
    tables = [frame[:200], frame[200:]]
    run = simulate("fedges", tables)
    assert run.graph.confidence is None
    assert run.graph.party_agreement[0, 1] == 1
    payload = payload_of(run)
    assert "confidence" not in json.dumps(payload["graph"])
    assert payload["graph"]["share"]["name"] == "share of the parties that agree"
    table = block(payload, "edges", "table")
    assert table["columns"][-1] == "share of the parties that agree"
    assert table["rows"][0][-1] == 1
    texts = json.dumps(section(payload, "trust"))
    assert "Share of the parties that agree with an edge: lowest 1.00" in texts
    # With replicates there are both, under their names.
    both = payload_of(simulate("fedges", tables, replicates=3))
    assert block(both, "edges", "table")["columns"][-2:] == [
        "confidence",
        "share of the parties that agree",
    ]
    assert both["graph"]["share"]["key"] == "confidence"


def test_the_files_that_parties_read_are_beside_their_names(moments_run):
    assert "file" not in block(payload_of(moments_run), "parties", "table")["columns"]
    files = {name: f"{name[-1]}.csv" for name in moments_run.parties}
    table = block(payload_of(replace(moments_run, sources=files)), "parties", "table")
    assert table["columns"][:3] == ["party", "file", "rows"]
    assert [tuple(row[:2]) for row in table["rows"]] == list(files.items())


def test_wide_tables_scroll_and_say_so(admm_run, tmp_path):
    """A browser's test, which is slow, looks at it; this one holds its parts together."""
    page = admm_run.report(tmp_path / "page.html").read_text()
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    assert re.search(r"\.scroll \{ overflow: auto;[^}]*max-width: 100%", style)
    assert re.search(
        r"max-width: 36rem\) \{.*\.scroll tr > :first-child \{ position: sticky", style, re.S
    )
    assert "it scrolls sideways" in page


def test_the_page_of_a_description_has_columns_gaps_and_who_differs(tmp_path):
    rng = np.random.default_rng(0)
    parties = []
    for shift in (0.0, 0.0, 5.0):
        table = pd.DataFrame({"age": rng.normal(50 + shift, 5, 200), "dose": rng.poisson(3, 200)})
        table[f"ward{HOSTILE}"] = rng.choice(["a", HOSTILE], 200)
        table.loc[rng.random(200) < 0.2, "dose"] = np.nan
        parties.append(table)
    run = simulate("describe", parties)
    payload = payload_of(run)
    assert payload["heading"] == "600 rows of 3 columns"
    assert payload["question"].startswith("What do the parties' tables hold?")
    kinds = [one["kind"] for one in section(payload, "description")["blocks"]]
    assert kinds == ["text", "table", "shapes", "table", "heat", "table"]
    columns, patterns, differs = (
        one for one in section(payload, "description")["blocks"] if one["kind"] == "table"
    )
    assert columns["rows"][0][:4] == ["age", "number", 600, 0]
    assert len({len(row) for row in columns["rows"]} | {len(columns["columns"])}) == 1
    missing = sum(int(table["dose"].isna().sum()) for table in parties)
    assert patterns["rows"][:2] == [["none", 600 - missing], ["dose", missing]]
    assert differs["rows"][0][:3] == ["party 2", "age", "mean"]
    panels = block(payload, "description", "shapes")["panels"]
    rows = np.diff(run.model["age"].below).sum()
    assert sum(count for _, count in panels[0]["points"][:-1]) == rows
    page = run.report(tmp_path / "page.html").read_text()
    assert HOSTILE not in page
    json.dumps(data_of(page), allow_nan=False)
