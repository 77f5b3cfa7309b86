"""A run replaces files of earlier runs only, and nobody but their owner can read what it writes."""

import dataclasses
import json
import os
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from flwr_causal import Run, simulate
from flwr_causal.core import files
from flwr_causal.errors import ConfigError
from flwr_causal.runtime import checkpoint
from flwr_causal.runtime.checkpoint import (
    NAMES,
    PAGE,
    RESULTS,
    CheckpointError,
    forget,
    mark_stopped,
    status_of,
)
from flwr_causal.simulations import Relay

rng = np.random.default_rng(0)
PARTIES = [rng.exponential(size=(60, 3)) @ np.triu(np.ones((3, 3))) for _ in range(3)]
COLUMNS = [pd.DataFrame({"id": range(60), f"x{k}": one[:, k]}) for k, one in enumerate(PARTIES)]


def contents(directory):
    return {
        path.relative_to(directory): path.read_bytes()
        for path in Path(directory).rglob("*")
        if path.is_file()
    }


class Interrupted(Relay):
    def before(self, messages):
        raise KeyboardInterrupt


class Never(Relay):
    def before(self, messages):
        raise AssertionError("a party was asked")


@pytest.fixture(scope="module")
def finished():
    return simulate("moments", PARTIES)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_the_users_own_is_in_the_way_before_training(name, tmp_path, finished):
    (tmp_path / name).write_text("my own")
    for write in (
        lambda: simulate("moments", PARTIES, output_dir=tmp_path, wrap_grid=Never),
        lambda: finished.save(tmp_path),
    ):
        with pytest.raises(ConfigError, match=rf"holds {name}, which no run.*another directory"):
            write()
    assert contents(tmp_path) == {Path(name): b"my own"}


@pytest.mark.parametrize("name", ["exchanges", "model", ".saving"])
def test_a_directory_of_the_users_own_is_in_the_way_too(name, tmp_path, finished):
    (tmp_path / name).mkdir()
    (tmp_path / name / "notes.txt").write_text("my own")
    with pytest.raises(CheckpointError, match=name):
        simulate("moments", PARTIES, output_dir=tmp_path)
    with pytest.raises(CheckpointError, match=name):
        finished.save(tmp_path)
    assert contents(tmp_path) == {Path(name, "notes.txt"): b"my own"}


def test_another_programs_run_file_is_in_the_way(tmp_path, finished):
    theirs = {"status": "completed", "rounds": 3, "config": {"method": "fedavg"}}
    named = {**theirs, "stop_reason": "", "bytes_sent": 0, "bytes_received": 0, "status": "done"}
    texts = ["[1, 2]", '{"status":', "[" * 100_000, *map(json.dumps, (theirs, named))]
    # One without a list of files would stand for all results.
    (tmp_path / "edges.csv").write_text("my own")
    for text in texts:
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"run\.json"):
            finished.save(tmp_path)
        assert (tmp_path / "run.json").read_text() == text
        assert (tmp_path / "edges.csv").read_text() == "my own"


def test_beside_an_earlier_run_a_file_of_the_users_own_stays(tmp_path, finished):
    simulate("moments", PARTIES, output_dir=tmp_path)
    (tmp_path / "answers.csv").write_text("my own")
    (tmp_path / "notes.txt").write_text("my own")
    for write in (finished.save, lambda place: simulate("moments", PARTIES, output_dir=place)):
        with pytest.raises(CheckpointError, match=r"holds answers\.csv,"):
            write(tmp_path)
    (tmp_path / "answers.csv").unlink()
    again = simulate("lingam", PARTIES, output_dir=tmp_path)
    np.testing.assert_array_equal(Run.load(tmp_path).graph.weights, again.graph.weights)
    assert (tmp_path / "notes.txt").read_text() == "my own"


def test_an_earlier_run_is_replaced_whole(tmp_path, finished):
    run = simulate("fedpc", [np.round(one) for one in PARTIES], output_dir=tmp_path)
    assert (tmp_path / "model").is_dir()
    run.report(tmp_path / PAGE)
    finished.save(tmp_path)
    there = {path.name for path in tmp_path.iterdir()}
    assert there == {"run.json", *json.loads((tmp_path / "run.json").read_text())["files"]}
    assert there.isdisjoint({"model", PAGE, ".saving", "exchanges"})


def test_the_files_of_an_earlier_version_are_those_of_a_run(tmp_path, finished):
    finished.save(tmp_path)
    about = json.loads((tmp_path / "run.json").read_text())
    del about["files"]
    (tmp_path / "run.json").write_text(json.dumps(about))
    (tmp_path / "answers.csv").write_text("of the earlier version")
    finished.save(tmp_path)
    assert not (tmp_path / "answers.csv").exists()


def test_a_save_that_ends_halfway_leaves_no_foreign_files(tmp_path, finished, monkeypatch):
    dataclasses.replace(finished, graph=None, scores=None, model=None).save(tmp_path)
    replace = Path.replace

    def stopped(path, target):
        if path.name == "history.jsonl":  # graph.json is there already
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        finished.save(tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "graph.json").is_file()
    finished.save(tmp_path)
    np.testing.assert_array_equal(Run.load(tmp_path).graph.weights, finished.graph.weights)


def test_a_page_replaces_pages_only(tmp_path, finished):
    page = tmp_path / "page.html"
    page.write_text("<p>my own</p>")
    with pytest.raises(ConfigError, match=r"page\.html' already, which is no page"):
        finished.report(page)
    assert page.read_text() == "<p>my own</p>"
    page.unlink()
    finished.report(page)
    page.chmod(0o644)
    finished.report(page)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    (tmp_path / "run" / PAGE).mkdir(parents=True)
    with pytest.raises(ConfigError, match="no page"):
        finished.report(tmp_path / "run" / PAGE)


def test_a_link_is_replaced_and_not_what_it_names(tmp_path, finished):
    finished.save(tmp_path / "run")
    own = tmp_path / "own"
    own.mkdir()
    for name in ("graph.json", "model"):
        (own / name).write_text("my own")
        (tmp_path / "run" / name).unlink(missing_ok=True)
        (tmp_path / "run" / name).symlink_to(own / name)
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**about, "files": [*RESULTS]}))
    finished.save(tmp_path / "run")
    assert {(own / name).read_text() for name in ("graph.json", "model")} == {"my own"}
    assert not (tmp_path / "run" / "graph.json").is_symlink()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "exchanges").symlink_to(own)
    (own / ".written").touch()
    with pytest.raises(CheckpointError, match="exchanges"):
        simulate("moments", PARTIES, output_dir=tmp_path / "linked")


def test_what_no_run_has_written_is_not_removed(tmp_path, finished):
    finished.save(tmp_path)
    (tmp_path / "answers.csv").write_text("my own")
    (tmp_path / "exchanges").mkdir()
    checkpoint.remove(tmp_path, NAMES)
    assert {path.name for path in tmp_path.iterdir()} == {"answers.csv", "exchanges"}


def test_forgetting_deletes_what_runs_keep_and_nothing_else(tmp_path, finished):
    finished.save(tmp_path / "finished")
    (tmp_path / "finished" / "exchanges").mkdir()
    (tmp_path / "finished" / "exchanges" / "notes").write_text("my own")
    (tmp_path / "other" / "exchanges").mkdir(parents=True)
    (tmp_path / "other" / "exchanges" / "notes").write_text("my own")
    (tmp_path / "other" / "run.json").write_text('{"status": "done"}')
    (tmp_path / "releases").mkdir()
    (tmp_path / "releases" / "v1.json").write_text("{}")
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match="no run"):
        forget(tmp_path / "other")
    with pytest.raises(CheckpointError, match="no run"):
        forget(tmp_path / "releases")
    assert forget(tmp_path) == []
    with pytest.raises(KeyboardInterrupt):
        simulate("moments", PARTIES, output_dir=tmp_path / "own", wrap_grid=Interrupted)
    assert forget(tmp_path) == [tmp_path / "own" / "exchanges"]
    assert before.items() <= contents(tmp_path).items()
    mark_stopped(tmp_path / "other")
    assert status_of(tmp_path / "other") == ""
    assert before.items() <= contents(tmp_path).items()


@pytest.mark.few(2)
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_its_owner_can_read_what_a_run_writes(umask, tmp_path, monkeypatch):
    seen = set()

    def look(*_, **__):
        for path in tmp_path.rglob("*"):
            seen.add((path.is_dir(), stat.S_IMODE(path.lstat().st_mode)))

    real_replace, real_fsync = Path.replace, os.fsync
    monkeypatch.setattr(Path, "replace", lambda *given: (look(), real_replace(*given)))
    monkeypatch.setattr(os, "fsync", lambda *given: (look(), real_fsync(*given)))
    (tmp_path / "there").mkdir(mode=0o755)
    (tmp_path / "there").chmod(0o755)
    before = os.umask(umask)
    try:
        for place in ("new/run", "there"):
            options = {"epsilon": 1.0, "scales": "x0=3,x1=3,x2=3"}
            run = simulate("moments", PARTIES, output_dir=tmp_path / place, **options)
            run.report(tmp_path / place / PAGE)
        for name, tables in (("rows", PARTIES), ("columns", COLUMNS)):
            circuits = simulate("fedpc", tables, training="one-pass")
            circuits.model.save(tmp_path / "there" / f"{name}.json")
    finally:
        os.umask(before)
    look()
    open_to_others = {(folder, mode) for folder, mode in seen if mode & 0o077}
    assert open_to_others <= {(True, 0o755)}  # the directory that was there
    for path in tmp_path.rglob("*"):
        if path != tmp_path / "there":
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_checkpoints_of_an_earlier_version_are_closed_when_the_run_goes_on(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        simulate("moments", PARTIES, output_dir=tmp_path, wrap_grid=Interrupted)
    (tmp_path / "exchanges").chmod(0o755)
    simulate("moments", PARTIES, output_dir=tmp_path, resume=True)
    with pytest.raises(KeyboardInterrupt):
        simulate("moments", PARTIES, output_dir=tmp_path / "b", wrap_grid=Interrupted)
    (tmp_path / "b" / "exchanges").chmod(0o755)
    with pytest.raises(KeyboardInterrupt):
        simulate("moments", PARTIES, output_dir=tmp_path / "b", wrap_grid=Interrupted, resume=True)
    assert stat.S_IMODE((tmp_path / "b" / "exchanges").stat().st_mode) == 0o700


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    files.write(tmp_path / "a", "first")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write(tmp_path / "a", "second")
    assert contents(tmp_path) == {Path("a"): b"first"}


def test_what_lies_in_the_place_of_a_part_is_not_followed(tmp_path):
    (tmp_path / "own").write_text("my own")
    (tmp_path / ".a.part").symlink_to(tmp_path / "own")
    files.write(tmp_path / "a", "text")
    assert (tmp_path / "own").read_text() == "my own"
    assert (tmp_path / "a").read_text() == "text"


def test_names_of_results_are_all_that_a_run_writes(tmp_path, finished):
    finished.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= set(NAMES)
    assert checkpoint.own_files(tmp_path) == {
        *(path.name for path in tmp_path.iterdir()),
        ".saving",
    }


def test_a_file_in_the_path_of_a_directory_is_named_as_such(tmp_path):
    (tmp_path / "file").touch()
    for path in ("file/results", "file/further/results"):
        with pytest.raises(CheckpointError, match=r"cannot be written \(Not a directory\)"):
            simulate("moments", PARTIES, output_dir=tmp_path / path)


def test_a_list_of_files_that_is_none_makes_no_file_that_of_a_run(tmp_path, finished):
    finished.save(tmp_path)
    about = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**about, "files": "edges.csv graph.json"}))
    with pytest.raises(CheckpointError, match=r"holds graph\.json.*edges\.csv"):
        finished.save(tmp_path)


def test_what_a_link_in_the_place_of_a_result_names_stays(tmp_path, finished):
    """Neither deleted nor, with other permissions, opened or closed to others."""
    place, other = tmp_path / "run", tmp_path / "other"
    finished.save(place)
    other.mkdir(mode=0o755)
    (other / "notes.txt").write_text("my own")
    (other / "notes.txt").chmod(0o644)
    about = json.loads((place / "run.json").read_text())
    files_of_run = [*about["files"], "model"]
    (place / "run.json").write_text(json.dumps({**about, "files": files_of_run}))
    (place / "model").symlink_to(other)
    (place / "link").symlink_to(other / "notes.txt")
    files.protect(place)
    finished.save(place)
    assert not (place / "model").is_symlink()
    assert contents(other) == {Path("notes.txt"): b"my own"}
    assert stat.S_IMODE((other / "notes.txt").stat().st_mode) == 0o644
    assert stat.S_IMODE(other.stat().st_mode) == 0o755


# One run at a time.


def test_a_second_run_in_a_directory_is_refused_while_the_first_goes_on(tmp_path):
    refused = []

    class Second(Relay):
        def before(self, messages):
            for resume in (False, True):
                with pytest.raises(ConfigError, match=r"Another run uses .*output_dir"):
                    simulate("lingam", PARTIES, output_dir=tmp_path, resume=resume)
                refused.append(resume)
            return messages

    plain = simulate("moments", PARTIES)
    first = simulate("moments", PARTIES, output_dir=tmp_path, wrap_grid=Second)
    assert len(refused) == 4
    assert first.graph.equals(plain.graph)
    assert Run.load(tmp_path).graph.equals(plain.graph)
    assert simulate("lingam", PARTIES, output_dir=tmp_path).graph is not None


def test_a_run_that_ends_early_lets_its_directory_go(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        simulate("moments", PARTIES, output_dir=tmp_path, wrap_grid=Interrupted)
    with pytest.raises(ConfigError, match="seed"):
        simulate("moments", PARTIES, seed=5, output_dir=tmp_path, resume=True)
    assert simulate("moments", PARTIES, output_dir=tmp_path, resume=True).graph is not None
