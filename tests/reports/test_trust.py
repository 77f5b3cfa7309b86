"""The first line of a run: what it says of constructed facts, and that all places say the same."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import wishart
from typer.testing import CliRunner

from benchmarks.differ import differing_parties
from flwr_causal import Run, command_line, simulate
from flwr_causal.core.graphs.doubt import DoubtfulEdge
from flwr_causal.core.graphs.fit_check import FitCheck, check
from flwr_causal.core.graphs.fit_check import tests_table as table_of
from flwr_causal.core.graphs.independence import PairTest
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.core.linear.independence import NumberTests
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.reports.page.payload import payload_of
from flwr_causal.reports.summary import describe_run
from flwr_causal.reports.trust import Trust


def fit_with(p_value=0.5, estimate=0.01, whole=0.5):
    """A check of two independencies, one of which has this p-value and correlation."""
    found = table_of(
        PairTest("a", name, ("b",), value, 0.0, p)
        for name, value, p in (("c", estimate, p_value), ("d", 0.001, 0.9))
    )
    return FitCheck(found, found.drop(columns="given"), p_value=whole)


FITS = Trust(edges=4, fit=fit_with())
EDGE = DoubtfulEdge("a", "->", "b", 0.6, "direction", "both fit", "an intervention")


def test_a_graph_that_nothing_speaks_against():
    assert FITS.verdict == "no doubts"
    assert FITS.sentence == (
        "No test speaks against this graph (0 of 2 implied independencies fail, p = 0.5 for the "
        "graph as a whole)."
    )
    assert replace(FITS, doubtful=(EDGE._replace(doubt=0.1),)).sentence.endswith(
        "; none of 4 edges is in doubt."
    )
    assert Trust().sentence == "The run is complete."
    assert Trust(scores="accuracy 0.9", warnings=2).sentence == (
        "The run is complete; accuracy 0.9; 2 warnings."
    )


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({"status": "stopped"}, "the run is not complete (stopped)"),
        ({"fit": fit_with(1e-9, 0.2)}, "it does not fit the rows (1 of 2 implied independencies"),
        ({"fit": fit_with(whole=1e-5, estimate=0.08)}, "p = 1e-05 for the graph as a whole"),
        ({"fit": fit_with(1e-9, 0.2)}, "should be 0 is 0.20, of a and c"),
        ({"unsettled": (7, 40)}, "the rows do not settle the graph (7 of 40 edges left out)"),
        ({"differing": ("north (a -> b)", "south", "west")}, "north (a -> b), south and 1 more"),
    ],
)
def test_each_reason_not_to_rely_on_a_graph_is_named(facts, cause):
    found = replace(FITS, **facts)
    assert found.verdict == "do not rely"
    assert found.sentence.startswith("Do not rely on this graph: ")
    assert cause in found.sentence
    assert "in doubt" not in replace(found, doubtful=(EDGE,)).sentence
    assert replace(found, lost="without east").sentence.endswith("; it is without east.")


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({"fit": None}, "whether it fits the rows is not known"),
        ({"fit": fit_with(0.02)}, "its fit is in doubt (1 of 2 implied independencies fail"),
        ({"fit": fit_with(1e-9, 0.03)}, "its fit is in doubt"),
        ({"differing": ("north",), "guarded": True}, "parties differ: north"),
        ({"hidden": ("a <-> b",)}, "hidden common causes are likely (a <-> b)"),
        ({"lost": "without east (9 rows)"}, "it is without east (9 rows)"),
        ({"missing": "a and b are known together in 9% of the rows"}, "9% of the rows"),
        ({"doubtful": (EDGE,)}, "1 of 4 edges are in doubt: a -> b (direction)"),
    ],
)
def test_each_doubt_is_named(facts, cause):
    found = replace(FITS, **facts)
    assert found.verdict == "doubts"
    assert found.sentence.startswith("Rely on this graph with these doubts: ")
    assert cause in found.sentence


def pair_and(n, left_out, rng):
    """The check of b -> c alone on moments of n rows, where a and c have a partial correlation."""
    slope = left_out / np.sqrt(1 - left_out**2)
    mixing = np.array([[1, 0, 0], [0, 1, 0], [slope, 1, 1]])
    second = mixing @ wishart(n - 1, np.eye(3), seed=rng).rvs() @ mixing.T / n
    edges = np.zeros((3, 3), dtype=bool)
    edges[1, 2] = True
    return check(NumberTests(SampleMoments(n, np.zeros(3), second, tuple("abc")), 3), edges)


@pytest.mark.parametrize("n", [100, 100_000])
def test_right_graphs_are_hardly_ever_refused(n):
    rng = np.random.default_rng(n)
    fits = [pair_and(n, 0.0, rng) for _ in range(50)]
    refused = [Trust(edges=1, fit=one).verdict == "do not rely" for one in fits]
    assert sum(refused) <= 1  # of a level of 0.001, twice


@pytest.mark.parametrize(("n", "left_out", "refused"), [(100, 0.6, 1), (100_000, 0.08, 1)])
def test_a_missing_edge_is_found_in_few_rows_and_in_many(n, left_out, refused):
    rng = np.random.default_rng(n)
    fits = [pair_and(n, left_out, rng) for _ in range(10)]
    found = [Trust(edges=1, fit=one).verdict == "do not rely" for one in fits]
    assert np.mean(found) == refused


def test_many_rows_do_not_make_a_small_dependence_a_reason():
    fit = pair_and(100_000, 0.03, np.random.default_rng(1))
    assert fit.p_value < 1e-9
    assert Trust(edges=1, fit=fit).verdict == "doubts"


def contradicted():
    """Two tables of a chain, and knowledge that forbids one of its edges."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    x[:, 1] += 2 * x[:, 0]
    x[:, 2] += 2 * x[:, 1]
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    known = {"forbidden": [["b", "c"], ["c", "b"]]}
    return [frame[:300], frame[300:]], known


def test_one_sentence_at_all_places(tmp_path):
    parties, known = contradicted()
    (tmp_path / "known.json").write_text(json.dumps(known))
    files = []
    for k, part in enumerate(parties):
        files.append(str(tmp_path / f"{k}.csv"))
        part.to_csv(files[-1], index=False)
    option = f"knowledge={tmp_path / 'known.json'}"
    command = ["run", "moments", *files, "-o", option, "--output-dir", str(tmp_path / "out")]
    shown = CliRunner().invoke(command_line.app, command)
    assert shown.exit_code == 0, shown.output
    run = Run.load(tmp_path / "out")
    said = run.headline
    assert said.startswith("Do not rely on this graph: it does not fit the rows")
    assert shown.stdout.splitlines()[0] == said
    assert str(run).splitlines()[0] == describe_run(run)[0] == said
    assert payload_of(run)["verdict"] == said
    assert json.dumps(said)[1:-1] in (tmp_path / "out" / "report.html").read_text()
    strict = CliRunner().invoke(command_line.app, [*command, "--strict", "--json"])
    assert strict.exit_code == command_line.NOT_TO_RELY_ON == 4
    found = json.loads(strict.stdout)
    assert found["headline"] == said
    assert found["verdict"] == "do not rely"


def test_a_run_to_rely_on_is_a_success_with_strict(tmp_path):
    rng = np.random.default_rng(0)
    files = []
    for k in range(2):
        files.append(str(tmp_path / f"{k}.csv"))
        x = rng.normal(size=(300, 3))
        x[:, 1] += x[:, 0]
        pd.DataFrame(x, columns=["a", "b", "c"]).to_csv(files[-1], index=False)
    shown = CliRunner().invoke(command_line.app, ["run", "moments", *files, "--strict"])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith(("Rely on this graph", "No test speaks"))


def test_columns_that_are_seldom_seen_together_are_named():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    x[:, 2] += x[:, 1]
    x[:300, 0] = x[200:450, 1] = np.nan
    x[450:500, 1] = np.nan
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    run = simulate("moments", [frame[::2], frame[1::2]], missing_values="em")
    seen = (frame["a"].notna() & frame["b"].notna()).mean()
    assert f"a and b are known together in {seen:.0%} of the rows" in run.headline


@pytest.mark.nightly
def test_most_runs_of_many_errors_say_so_and_few_of_right_graphs():
    """Seeds that chose no limit; docs/how_to/interpret.md has the figures of more of them."""
    kinds = ("clean", "renamed", "redrawn", "large", "skewed", "mistyped", "zeros")
    said: dict[str, list[bool]] = {"wrong": [], "right": []}
    for kind in kinds:
        for seed in range(3000, 3012 if kind == "clean" else 3003):
            world = differing_parties(seed, kind, 12, 2500, 6)
            run = simulate("moments", world.parties, progress=False)
            errors = compare(world.truth, run.graph)["cpdag_shd"]
            refused = run.trust.verdict == "do not rely"
            if errors >= 9:
                said["wrong"].append(refused)
            elif not errors:
                said["right"].append(refused)
    assert len(said["wrong"]) > 10
    assert len(said["right"]) > 8
    assert np.mean(said["wrong"]) > 0.85
    assert np.mean(said["right"]) <= 0.1
