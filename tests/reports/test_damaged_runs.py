"""Runs whose files were edited: they are shown, or refused by the name of the file."""

import copy
import json

import numpy as np
import pandas as pd
import pytest
from sweeps import sweep

from flwr_causal import simulate
from flwr_causal.errors import DataError
from flwr_causal.reports.page.payload import payload_of
from flwr_causal.reports.run import Run
from flwr_causal.reports.summary import describe_run

ABSENT = object()


def tables(parties=3):
    rng = np.random.default_rng(0)
    mixing = np.eye(3) + np.triu(np.full((3, 3), 0.5), 1)
    return [pd.DataFrame(rng.normal(size=(40, 3)) @ mixing, columns=list("abc"))] * parties


def shown(run):
    str(run)
    describe_run(run)
    json.dumps(run.summary(influence=False))
    payload_of(run)


def loaded_or_error(directory):
    try:
        return Run.load(directory)
    except DataError as error:
        return error


def places(value, before=()):
    """Of every entry, of lists of the first one."""
    entries = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, one in entries:
        yield (*before, key)
        if isinstance(one, dict | list):
            yield from places(one, (*before, key))


def others(content, place):
    """Values of other types."""
    for key in place:
        content = content[key]
    return ABSENT, None, 7 if isinstance(content, str) else "text"


def changed(content, place, value):
    edited = copy.deepcopy(content)
    holder = edited
    for key in place[:-1]:
        holder = holder[key]
    if value is ABSENT:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    return edited


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    truth = np.triu(np.ones((3, 3)), 1)
    options = {
        "plain": {"truth": truth},
        "private": {"epsilon": 1.0, "delta": 1e-5, "scales": dict.fromkeys("abc", 3.0)},
    }
    found = {name: simulate("moments", tables(), **own) for name, own in options.items()}
    found["plain"].failures.append({"round": 1, "party": "party 0", "reason": "gone"})
    found["plain"].influence = {
        "party 0": {
            "changed_edges": 1,
            "changes": ["a -> b vanishes"],
            "largest_change": 0.5,
            "distance": None,
        }
    }
    found["plain"].history[0] |= {"party_bytes_sent": {"party 0": 3, "party 1": 4}}
    return {
        name: run.save(tmp_path_factory.mktemp(name), influence=False)
        for name, run in found.items()
    }


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", sweep(["plain", "private"], ["plain"]))
@pytest.mark.parametrize("file", ["run.json", "history.jsonl", "graph.json"])
def test_an_edited_run_is_shown_or_refused_by_the_name_of_the_file(runs, name, file):
    path = runs[name] / file
    text = path.read_text()
    shown(Run.load(runs[name]))
    content = json.loads(text)
    # What the pages do not look into, and options, which are shown as they are.
    skipped = {"versions", "config"} if name == "plain" else {"versions", "config", "about"}
    refused = 0
    try:
        for place in places(content):
            if place[0] in skipped and len(place) > 1:
                continue
            for value in others(content, place):
                path.write_text(json.dumps(changed(content, place, value)) + "\n")
                run = loaded_or_error(runs[name])
                if isinstance(run, Run):
                    shown(run)
                else:
                    assert file in str(run), (place, value)
                    refused += 1
    finally:
        path.write_text(text)
    assert refused > 20


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("failures", 0, "round"), ABSENT, r"failures\[0\].round is missing"),
        (("failures", 0, "party"), 7, r"failures\[0\].party is no text"),
        (("influence", "party 0", "changes"), "x", "influence.party 0.changes is no list"),
        (("metrics", "shd"), "few", "metrics.shd is no number"),
        (("privacy",), {"epsilon": 1.0}, "privacy.against is missing"),
        (("rounds",), True, "rounds is no whole number"),
    ],
)
def test_the_place_is_named(runs, place, value, words):
    path = runs["plain"] / "run.json"
    text = path.read_text()
    try:
        path.write_text(json.dumps(changed(json.loads(text), place, value)))
        with pytest.raises(DataError, match=words):
            Run.load(runs["plain"])
    finally:
        path.write_text(text)


def test_a_record_that_is_no_record_is_named(runs):
    path = runs["plain"] / "history.jsonl"
    text = path.read_text()
    try:
        path.write_text(text + "3\n")
        with pytest.raises(DataError, match=r"history.jsonl.*history\[1\] is no table"):
            Run.load(runs["plain"])
    finally:
        path.write_text(text)
