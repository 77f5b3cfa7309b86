"""The effect of a treatment on an outcome, first on the page of a run."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from flwr_causal import CausalGraph, Knowledge, command_line, simulate
from flwr_causal.errors import ConfigError
from flwr_causal.reports.asked import answer, asked_blocks, asked_of, objections
from flwr_causal.reports.page.payload import payload_of
from flwr_causal.reports.run import Run
from flwr_causal.reports.summary import describe_run

RNG = np.random.default_rng(0)
AGE = RNG.normal(60, 8, 900)
DOSE = 0.1 * AGE + RNG.normal(size=900)
RISK = AGE / 10 - DOSE / 2 + RNG.normal(size=900)
WARD = np.where(DOSE > 6, "medicine", "surgery")
TABLE = pd.DataFrame({"age": AGE, "dose": DOSE, "risk": RISK})
PARTIES = [TABLE[:300], TABLE[300:]]
TIERS = Knowledge(tiers=[["age"], ["dose"], ["risk"]])


def texts(blocks):
    return [block["text"] for block in blocks if block["kind"] == "text"]


@pytest.fixture(scope="module")
def run():
    return simulate("moments", PARTIES, knowledge=TIERS)


def test_a_linear_effect_is_that_of_the_pooled_regression(run):
    design = np.column_stack([np.ones(900), DOSE, AGE])
    expected = np.linalg.lstsq(design, RISK, rcond=None)[0][1]
    said, adjusted = texts(asked_blocks(run, "dose", "risk"))
    low, high = run.total_effect("dose", "risk").interval
    assert said == (
        f"dose raised by 1 changes risk by {expected:.3g} (95 % interval {low:.3g} to {high:.3g}) "
        "on average."
    )
    assert adjusted == "Adjusted for: age."
    assert answer(run, "dose", "risk") == [said]


def test_what_would_make_it_wrong_is_of_the_effect(run):
    *_, listed = asked_blocks(run, "dose", "risk")
    whole = "\n".join(listed["items"])
    assert "A common cause of dose and risk that is in no table" in whole
    assert "straight line" in whole
    run_lost = Run(**{**vars_of(run), "lost": {"north": 3}, "warnings": ["dose is odd", "x is"]})
    items = asked_blocks(run_lost, "dose", "risk")[-1]["items"]
    assert items[0] == "The result lacks north."
    assert "dose is odd" in items
    assert "x is" not in items


def vars_of(run):
    names = ("graph", "history", "rounds", "bytes_sent", "bytes_received", "schema_bytes")
    names += ("seconds", "stop_reason", "model", "config")
    return {name: getattr(run, name) for name in names}


def test_an_edge_in_doubt_on_the_way_is_named():
    chain = CausalGraph.from_array(np.diag([1.0, 1.0], 1), ("dose", "mid", "risk"))
    graph = replace(chain, confidence=np.diag([0.9, 0.4], 1))
    made = Run(graph, [], 1, 0, 0, 0, 0.0, "")
    # Without a model there is no effect, but the graph's doubts stand.
    items = objections(made, "dose", "risk")
    assert any(item.startswith("Edge in doubt: mid -> risk") for item in items)
    assert "adjacent with confidence 0.40" in items[0]
    assert any("risk acts on dose" in one for one in objections(made, "risk", "dose")) is False
    assert any("dose acts on risk" in one for one in objections(made, "risk", "dose"))


def test_an_effect_against_the_arrows_is_zero(run):
    said, adjusted = texts(asked_blocks(run, "risk", "dose"))
    assert said == "risk raised by 1 does not change dose, by the graph."
    assert "no directed path" in adjusted
    assert "In the graph dose acts on risk" in asked_blocks(run, "risk", "dose")[-1]["items"][0]


def test_open_directions_give_a_range():
    found = simulate("moments", PARTIES, solver="class")
    (said,) = answer(found, "dose", "risk")
    values = [one.value for one in found.total_effect("dose", "risk")]
    assert f"between {min(values):.3g} (" in said
    assert f"leaves open which of {len(values)} effects" in said


def test_categories_are_compared_with_the_first_state():
    table = TABLE.assign(ward=WARD).drop(columns=["dose"])
    known = Knowledge(tiers=[["age"], ["ward"], ["risk"]])
    found = simulate("moments", [table[:300], table[300:]], text_columns="keep", knowledge=known)
    (said,) = answer(found, "ward", "risk")
    effect = found.total_effect("ward", "risk", state="surgery", reference="medicine")
    assert said.startswith("ward set to surgery in place of medicine changes risk by")
    assert f"{effect.value:.3g} (95 %" in said


def test_a_network_says_probabilities():
    states = pd.DataFrame(
        {"tar": WARD, "ill": np.where(DOSE + RNG.normal(size=900) > 6, "yes", "no")}
    )
    known = Knowledge(tiers=[["tar"], ["ill"]])
    found = simulate("fedges", [states[:300], states[300:]], knowledge=known)
    (said,) = answer(found, "tar", "ill")
    effect = found.model.contrast("tar", "ill", "yes", state="surgery", reference="medicine")
    assert f"changes the probability of ill = yes by {effect.value:.3g} (95 % interval" in said


def test_series_have_an_effect_of_each_lag():
    x = np.random.default_rng(1).normal(size=(2, 200, 2))
    for t in range(1, 200):
        x[:, t, 1] += 0.8 * x[:, t - 1, 0]
    found = simulate("moments", list(x), order=1)
    said = answer(found, "x0", "x1")
    lagged = found.total_effect("x0", "x1", lag=1).value
    assert f"x0 raised by 1, 1 step before, changes x1 by {lagged:.3g}" in said[1]


@pytest.mark.parametrize(
    ("method", "options", "reason"),
    [
        ("moments", {"hidden_causes": True}, "a hidden common cause may act on"),
        ("fedpc", {}, "fedpc gives no model with total_effect"),
    ],
)
def test_an_effect_that_is_not_known_says_why(method, options, reason, tmp_path):
    parties = PARTIES if method == "moments" else [TABLE[:100], TABLE[100:200]]
    found = simulate(method, parties, **options)
    (block,) = asked_blocks(found, "dose", "risk")
    assert re.search(f"dose on risk is not known. The reason: .*{reason}", block["text"])
    assert found.page(tmp_path / "page.html", treatment="dose", outcome="risk").is_file()


def test_it_is_first_on_the_page(run, tmp_path, monkeypatch):
    payload = payload_of(run, ("dose", "risk"))
    assert [one["id"] for one in payload["first"]] == ["asked"]
    assert payload_of(run)["first"] == []
    assert asked_of(run) is None
    monkeypatch.chdir(tmp_path)
    page = run.page(treatment="dose", outcome="risk")
    assert "The effect of dose on risk" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"treatment": "dose"}, "outcome is missing"),
        ({"treatment": "dose", "outcome": "rsk"}, "outcome is 'rsk', which is no variable"),
        ({"treatment": "dose", "outcome": "dose"}, "are both 'dose'"),
    ],
)
def test_what_cannot_be_asked_is_refused(run, given, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        run.report(tmp_path / "page.html", **given)
    assert not (tmp_path / "page.html").exists()


DICTIONARY = """
[columns.age]
kind = "number"
tier = 1

[columns.dose]
kind = "number"
role = "treatment"
tier = 2

[columns.risk]
kind = "number"
role = "outcome"
tier = 3
"""


def test_roles_of_the_dictionary_ask_for_it(run, tmp_path):
    file = tmp_path / "dictionary.toml"
    file.write_text(DICTIONARY)
    found = simulate("moments", PARTIES, dictionary=str(file), output_dir=tmp_path / "run")
    loaded = Run.load(tmp_path / "run")
    assert asked_of(loaded) == asked_of(found) == ("dose", "risk")
    assert answer(loaded, "dose", "risk") == answer(run, "dose", "risk")
    assert answer(run, "dose", "risk")[0] in str(loaded)
    assert answer(run, "dose", "risk")[0] in describe_run(loaded)
    # What is given comes before them.
    assert asked_of(loaded, "age", "risk") == ("age", "risk")


def test_the_commands_take_it(tmp_path):
    files = []
    for number, party in enumerate(PARTIES):
        files.append(str(tmp_path / f"{number}.csv"))
        party.to_csv(files[-1], index=False)
    place = tmp_path / "run"
    asked = ["--treatment", "dose", "--outcome", "risk"]
    command = ["run", "moments", *files, "--output-dir", str(place), *asked]
    done = CliRunner().invoke(command_line.app, command)
    assert done.exit_code == 0
    assert "dose raised by 1" in done.stdout
    page = place / "report.html"
    assert "The effect of dose on risk" in page.read_text("utf-8")
    done = CliRunner().invoke(command_line.app, ["report", str(place)])
    assert "The effect of dose on risk" not in page.read_text("utf-8")
    CliRunner().invoke(command_line.app, ["report", str(place), *asked])
    assert "The effect of dose on risk" in page.read_text("utf-8")
    data = re.search(r'id="data">(.*?)</script>', page.read_text("utf-8"), re.S)[1]
    assert json.loads(data)["first"][0]["id"] == "asked"
