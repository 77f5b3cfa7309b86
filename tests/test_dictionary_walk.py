"""docs/how_to/dictionary.md: from dirty tables of three hospitals to the right graph."""

import json
import re
import shlex
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
from dirty_hospitals import TRUTH, write_hospitals
from typer.testing import CliRunner

from flwr_causal.command_line import app
from flwr_causal.data.dictionary.entries import Dictionary
from flwr_causal.reports.run import Run

PAGE = Path(__file__).parents[1] / "docs" / "how_to" / "dictionary.md"
WALK = PAGE.read_text(encoding="utf-8").partition("\n## What the dictionary says")[0]
MOST_COMMANDS = 8


@pytest.fixture
def hospitals(tmp_path, monkeypatch):
    """A directory with the three tables, in which commands run as in a terminal of 100 columns."""
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def blocks():
    """The page's commands with what they print, and its files, in their order."""
    for language, text in re.findall(r"^```(console|toml)\n(.*?)^```$", WALK, re.S | re.M):
        if language == "toml":
            yield re.match(r"# (\S+\.toml)\n", text)[1], text
            continue
        for part in text.split("$ ")[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed.splitlines()


def call(command, *more):
    program, *arguments = shlex.split(command)
    assert program == "flwr-causal"
    return CliRunner().invoke(app, [*arguments, *more])


def files_of(directory):
    return {one.name: sha256(one.read_bytes()).hexdigest() for one in directory.glob("*.csv")}


def test_the_walk_of_the_page(hospitals):
    before, commands, statuses = files_of(hospitals), 0, []
    for what, content in blocks():
        if what.endswith(".toml") and " " not in what:
            (hospitals / what).write_text(content)
            continue
        commands += 1
        last = " run " in what
        result = call(what, *(["--output-dir", "result"] if last else []))
        statuses.append(result.exit_code)
        printed = result.output.splitlines()
        for line in content:
            assert line in printed, f"{what}\n{result.output}"
    assert commands <= MOST_COMMANDS
    # Each hospital's check finds something; all else succeeds.
    assert statuses == [0, 0, 0, 0, 2, 2, 2, 0]
    assert files_of(hospitals) == before
    run = Run.load(hospitals / "result")
    assert {(cause, effect) for cause, effect, *_ in run.graph.edges()} == TRUTH
    digest = Dictionary.read("dictionary.toml").digest
    assert json.loads(Path("result/run.json").read_text())["config"]["dictionary_digest"] == digest


def test_the_joined_proposal_has_what_the_page_shows(hospitals):
    pairs = list(blocks())
    for command, _ in pairs[:4]:
        assert call(command).exit_code == 0
    proposal = Path("proposal.toml").read_text()
    shown = re.search(r"```text\n(# QUESTION.*?)```", WALK, re.S)[1]
    for line in shown.splitlines():
        assert line.removesuffix("...") in proposal
    # It is a dictionary as it stands, and says nothing of single rows.
    joined = Dictionary.from_dict(tomllib.loads(proposal))
    assert joined.find("sex").state_names == ("female", "male")
    for word in ("N00", "W-1", "nurse", "9001", "2024", "412", "71,5"):
        assert word not in proposal
    again = call(pairs[3][0])
    assert again.exit_code == 2
    assert "proposal.toml exists already: name a new file" in again.output


def test_a_run_without_maps_ends_before_training_and_names_no_value(hospitals):
    for what, content in blocks():
        if what == "dictionary.toml":
            Path(what).write_text(content)
    (command,) = (what for what, _ in blocks() if " run " in what)
    result = call(re.sub(r" --map \S+", "", command), "--output-dir", "result")
    assert result.exit_code == 2
    said = ("column 'sex', 300 values", "column 'weight' is missing", "column 'age', 1 value: out")
    for k, (name, fault) in enumerate(zip(("north", "south", "west"), said, strict=True)):
        named = f"party {k} ({name}.csv)"
        assert f"{named}: the table does not fit the dictionary: {fault}" in result.output
    for hidden in ("412", "71,5", "w_g", "'None'", "row 51"):
        assert hidden not in result.output
    assert not (hospitals / "result").exists()


def test_with_the_maps_check_says_that_the_tables_fit(hospitals):
    for what, content in blocks():
        if what.endswith(".toml") and " " not in what:
            Path(what).write_text(content)
    digest = Dictionary.read("dictionary.toml").digest
    for name in ("north", "south", "west"):
        given = f"flwr-causal check {name}.csv -m moments -o dictionary=dictionary.toml"
        result = call(f"{given} -o missing_values=drop --map {name}.map.toml")
        assert result.exit_code == 0, result.output
        assert f"fit the dictionary, whose digest is {digest}" in result.output
        found = json.loads(call(f"{given} --json").output)
        assert found["faults"][0]["table"] == f"{name}.csv"
        assert all(one["values"] or not one["count"] for one in found["faults"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--map x.csv=a.toml", "--map x.csv=a.toml names no table: write --map north.csv=FILE"),
        ("--map a.toml", "names no table"),
        ("--map north.csv=a.toml --map north.csv=b.toml", "names a table twice"),
        ("-o dictionary=absent.toml", "The dictionary absent.toml cannot be read"),
    ],
)
def test_wrong_arguments_are_named(hospitals, given, words):
    result = call(f"flwr-causal check north.csv south.csv {given}")
    assert result.exit_code == 2
    assert words in result.output
