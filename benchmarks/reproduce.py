"""``reproduce``: a scenario's cells, tables, plots and page in one directory."""

from __future__ import annotations

import fnmatch
import shlex
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks import plots, results, runner, scenario, tables
from benchmarks.baselines import ALWAYS
from benchmarks.page import write_page
from benchmarks.runner import Sweep
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.runner import Engine
    from benchmarks.scenario import Scenario

#: Characters of an error message that a note shows.
MESSAGE = 300
#: Data without a graph over numbers, where sorting by variance has no meaning.
NOT_SORTED = ("network", "tabular", "binary", "joint", "mnist")


class SweepReport(NamedTuple):
    """What a sweep left.

    Parameters
    ----------
    text : str
        The tables in Markdown.
    files : tuple of Path
    notes : tuple of str
        What was left out, and why.
    failed : int
        Cells that ended with an error.
    """

    text: str
    files: tuple[Path, ...]
    notes: tuple[str, ...]
    failed: int


def chosen(name: str) -> list[str]:
    """Return the scenarios that a name, a pattern such as ``hard-*`` or a path stands for.

    Raises
    ------
    ConfigError
        If a pattern fits no scenario.
    """
    if not any(sign in name for sign in "*?["):
        return [name]
    found = fnmatch.filter(scenario.names(), name)
    if not found:
        raise ConfigError(f"no scenario fits '{name}': see --list")
    return found


def prepared(
    name: str,
    scale: float = 1.0,
    methods: Sequence[str] = (),
    at: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Scenario:
    """Return a scenario by name or path, scaled, with the sorts and with its kept lines checked.

    Raises
    ------
    ConfigError
        If the scenario, a line or a point that is kept, or a metric does not exist.
    """
    found = scenario.find(name)
    if found.data["name"] not in NOT_SORTED:
        have = {line.name for line in found.lines}
        sorts = (scenario.Line(s, "baseline", s, {}) for s in ALWAYS if s not in have)
        found = replace(found, lines=(*found.lines, *sorts))
    found = found.with_lines(methods) if methods else found
    runner.check(found)
    return found.with_points(at).scaled(scale)


def reproduce(
    name: str,
    *,
    runs: int | None = None,
    scale: float = 1.0,
    engine: Engine = "local",
    jobs: int = 1,
    methods: Sequence[str] = (),
    at: Mapping[str, Sequence[str]] = MappingProxyType({}),
    output_dir: str | Path | None = None,
    data_dir: str | Path | None = None,
    progress: bool | None = None,
) -> SweepReport:
    """Run a scenario, or what is left of it, and write its tables, plots and page.

    Parameters
    ----------
    name : str
        A scenario by name, or the path of a TOML file.
    runs : int, optional
        Default: the scenario's.
    scale : float, default 1
        Multiplies numbers of rows, and keeps so large a share of the values of each coordinate.
    engine : {"local", "ray"}, default "local"
    jobs : int, default 1
        Processes.
    methods : sequence of str
        Only these lines, by label or by the name of the method.
    at : mapping of str to sequence of str
        Only the points where a coordinate has one of these values.
    output_dir : str or Path, optional
        Default: ``reproduced/NAME``. A sweep of this scenario that was ended goes on there.
    data_dir : str or Path, optional
        Folder of data that are not in the repository.
    progress : bool, optional
        Whether to show a bar with the remaining time. Default: in a terminal.

    Raises
    ------
    ConfigError
        If an argument or the scenario cannot be used.
    """
    if jobs < 1 or (runs is not None and runs < 1):
        raise ConfigError(f"--jobs is {jobs}, --runs {runs}: give whole numbers from 1 up")
    one = prepared(name, scale, methods, at)
    directory = Path(output_dir or Path("reproduced", one.name)).absolute()
    place = None if data_dir is None else Path(data_dir).expanduser().absolute()
    sweep = Sweep(one, directory, runs or one.runs, engine, place)
    with _bar(one.name, progress) as show:
        absent = runner.compute(sweep, jobs, show)
    return _report(sweep, absent, _command(name, sweep, methods, at))


def _command(
    name: str, sweep: Sweep, methods: Sequence[str], at: Mapping[str, Sequence[str]]
) -> str:
    """Return the command that computes the figures of a sweep."""
    words = ["flwr-causal", "reproduce", name, "--runs", str(sweep.runs)]
    scale = sweep.scenario.scale
    words += ["--scale", f"{scale:g}"] if scale < 1 else []
    words += ["--engine", sweep.engine] if sweep.engine != "local" else []
    words += ["--methods", ",".join(methods)] if methods else []
    words += [word for axis, kept in at.items() for word in ("--at", f"{axis}={','.join(kept)}")]
    return shlex.join(words)


def _report(sweep: Sweep, absent: Sequence[str], command: str) -> SweepReport:
    one, directory = sweep.scenario, sweep.directory
    records = list(sweep.records())
    notes = [f"skipped: {reason}" for reason in absent]
    lacking = {line.label: runner.lacking(line) for line in one.lines}
    notes += [
        f"skipped: {label} needs {missing}, which is not installed"
        for label, missing in lacking.items()
        if missing
    ]
    notes += [f"not run: {name}: {reason}" for name, reason in one.not_run.items()]
    failed = [record for record in records if record["error"]]
    notes += dict.fromkeys(f"failed: {r['line']}: {_short(r['error'])}" for r in failed)
    versions = {item for record in records for item in record["versions"].items()}
    notes.append("versions: " + ", ".join(f"{name} {number}" for name, number in sorted(versions)))
    found = tables.metric_tables(one, records)
    files = tables.write_tables(one, records, notes, sweep.runs, directory)
    if records:
        result = results.summary(one, records, found, sweep.runs, command)
        files.append(directory / results.FILE)
        files[-1].write_text(result.text(), encoding="utf-8")
    files += plots.write_plots(one, found, directory)
    files.append(write_page(one, found, notes, sweep.runs, directory))
    text = (directory / "tables.md").read_text(encoding="utf-8")
    return SweepReport(text, tuple(files), tuple(notes), len(failed))


def _short(message: str) -> str:
    """Return the beginning of a message in one line."""
    return " ".join(message.split())[:MESSAGE]


@contextmanager
def _bar(name: str, shown: bool | None) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of finished and all cells, which shows them and the remaining time."""
    console = Console(stderr=True)
    if not (console.is_terminal if shown is None else shown):
        yield lambda done, total: None
        return
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
