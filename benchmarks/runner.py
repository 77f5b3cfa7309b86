"""Compute the cells of a scenario, each once: a sweep that was killed goes on where it ended.

A finished cell is one file, written whole or not at all, whose name follows from all that decides
its figures. A sweep with other settings in the same directory therefore leaves it alone.
"""

from __future__ import annotations

import io
import json
import logging
import multiprocessing
import os
import platform
import re
import time
import warnings
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, fields
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from threadpoolctl import threadpool_limits

from benchmarks.baselines import BASELINES
from benchmarks.files import MissingDataError
from benchmarks.peers import PEERS
from benchmarks.results import machine
from benchmarks.scenario import Line, Point, Scenario, digest
from benchmarks.scores import check_metrics, measured
from benchmarks.world import LineResult, World
from benchmarks.worlds import world_of
from flwr_causal.app import methods
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.reports.trust import odd_parties_of
from flwr_causal.simulations.engines import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from flwr_causal.reports.run import Run


Engine = Literal["local", "ray"]
Record = dict[str, Any]

CELLS = "cells"
_CELL = re.compile(r"[0-9a-f]{24}\.(json|\d+\.partial)")
#: What is written beside `CELLS`.
OUTPUTS = (
    *("results.csv", "results.parquet", "figures.csv", "tables.md", "tables.tex"),
    *("plot.png", "plot.svg", "index.html"),
)
#: Distributions whose versions every result holds.
RECORDED = ("flwr-causal", "flwr", "numpy", "scipy")
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Group:
    """The unfinished lines of one run at one point; they share the data."""

    point: Point
    run: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Sweep:
    """A scenario and how it is run.

    Parameters
    ----------
    scenario : Scenario
    directory : Path
        For the results.
    runs : int
    engine : {"local", "ray"}
        Of federated methods.
    data_dir : Path or None
        Folder of data sets that are not in the repository.
    """

    scenario: Scenario
    directory: Path
    runs: int
    engine: Engine = "local"
    data_dir: Path | None = None

    def path_of(self, line: Line, point: Point, run: int) -> Path:
        """Return the file of a cell."""
        one = self.scenario
        options = line.options_at(point)
        figures = [line.kind, line.name, options, dict(one.data), one.split, dict(point)]
        rest = [one.seed_of(point, run), run, one.scale, sorted(one.metrics), self.engine]
        return self.directory / CELLS / f"{digest([figures, rest])}.json"

    def check(self) -> None:
        """Check that the files of results would replace files of a sweep only.

        Raises
        ------
        ConfigError
            Naming the files that are in the way.
        """
        cells = self.directory / CELLS
        if cells.is_dir() and all(_CELL.fullmatch(one.name) for one in cells.iterdir()):
            return
        if there := [name for name in OUTPUTS if os.path.lexists(self.directory / name)]:
            raise ConfigError(
                f"The directory '{self.directory}' holds {', '.join(there)}, and no cells of a "
                "sweep: give another directory, or move or rename what is there."
            )

    def groups(self) -> list[Group]:
        """Return the cells that are not computed yet, without lines whose packages are missing."""
        left = []
        lines = [line for line in self.scenario.lines if not lacking(line)]
        for point in self.scenario.grid:
            for run in range(self.runs):
                due = [line for line in lines if line.runs_at(point)]
                due = [line for line in due if not self.path_of(line, point, run).exists()]
                if due:
                    left.append(Group(point, run, tuple(due)))
        return left

    def records(self) -> Iterator[Record]:
        """Yield the records of the finished cells, in the order of points, lines and runs."""
        for point in self.scenario.grid:
            for line in self.scenario.lines:
                for run in range(self.runs):
                    path = self.path_of(line, point, run)
                    if path.exists():
                        # A label may have changed since: it decides no figure.
                        written = date.fromtimestamp(path.stat().st_mtime).isoformat()
                        record = json.loads(path.read_text("utf-8"))
                        yield {"date": written, **record, "line": line.label}


def lacking(line: Line) -> str:
    """Return the modules that a line needs and that are not installed; empty if none."""
    needs = list(line.needs)
    if line.kind == "peer":
        needs.append(PEERS[line.name].module)
    return ", ".join(name for name in needs if find_spec(name) is None)


def check(scenario: Scenario) -> None:
    """Check that all metrics of a scenario exist, and all lines but those that lack a package.

    Raises
    ------
    ConfigError
        If one does not; the message names it and what there is.
    """
    check_metrics(scenario.metrics)
    known = {"method": methods.METHODS, "baseline": BASELINES, "peer": PEERS}
    for line in scenario.lines:
        if line.name not in known[line.kind] and not lacking(line):
            raise ConfigError(
                f"scenario '{scenario.name}', [lines.{line.label}]: there is no {line.kind} "
                f"'{line.name}'. Known: {', '.join(known[line.kind])}."
            )


def compute(sweep: Sweep, jobs: int, progress: Callable[[int, int], None]) -> list[str]:
    """Compute the cells that are not finished.

    Parameters
    ----------
    sweep : Sweep
    jobs : int
        Processes; 1 computes in this one.
    progress : callable
        Is called with the numbers of finished cells and of all.

    Returns
    -------
    list of str
        Data that are not at hand, with where to get them, and points whose data cannot be made or
        dealt to parties, with the reason; their cells are left out.

    Raises
    ------
    ConfigError
        As `Sweep.check`.
    """
    sweep.check()
    (sweep.directory / CELLS).mkdir(parents=True, exist_ok=True)
    groups = sweep.groups()
    total = sum(len(group.lines) for group in groups)
    progress(0, total)
    absent: dict[str, None] = {}
    done = 0
    for finished, reason in _computed(sweep, groups, jobs):
        done += finished
        absent |= {reason: None} if reason else {}
        progress(done, total)
    return list(absent)


def _computed(sweep: Sweep, groups: Sequence[Group], jobs: int) -> Iterator[tuple[int, str]]:
    """Yield, as groups end, their numbers of cells and why they were skipped, if they were."""
    if jobs == 1 or len(groups) < 2:
        for group in groups:
            yield len(group.lines), work(sweep, group)
        return
    # Fresh processes: Ray and torch do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, one_thread) as pool:
        pending = {pool.submit(work, sweep, group): group for group in groups}
        try:
            while pending:
                ended, _ = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    yield len(pending.pop(future).lines), future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def one_thread() -> None:
    """Let the libraries of this process, and of those that it starts, take one thread each."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    threadpool_limits(1)


def work(sweep: Sweep, group: Group) -> str:
    """Compute the cells of a group, and write each as soon as it is there.

    Returns
    -------
    str
        Why there are no data; empty if there are.
    """
    try:
        world = world_of(sweep.scenario, group.point, group.run, sweep.data_dir)
    except MissingDataError as error:
        return str(error)
    except DataError as error:  # such as too few rows for so many parties
        at = ", ".join(f"{key} = {value}" for key, value in group.point.items())
        return f"{at}: {error}"
    for line in group.lines:
        record = _cell(sweep, line, group, world)
        _write(sweep.path_of(line, group.point, group.run), record)
    return ""


def _cell(sweep: Sweep, line: Line, group: Group, world: World) -> Record:
    scenario = sweep.scenario
    seed = scenario.seed_of(group.point, group.run)
    record: Record = {
        "scenario": scenario.name,
        "line": line.label,
        "point": dict(group.point),
        "run": group.run,
        "seed": seed,
        "scale": scenario.scale,
        "metrics": {},
        "error": "",
        "versions": versions_of(line),
        "machine": machine(),
        "date": date.today().isoformat(),
    }
    start = time.process_time()
    logging.disable(logging.WARNING)  # thousands of runs would each warn of their data
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of programs about their convergence
            options = line.options_at(group.point)
            outcome = _outcome(line, options, world, seed, sweep.engine, scenario.metrics)
            seconds = time.process_time() - start + outcome.shared_seconds
            record["metrics"] = measured(world, outcome, scenario.metrics)
    except ConfigError:
        raise  # an option that the method does not have: the scenario is wrong
    except Exception as error:  # a sweep of a night goes on; the table says what failed
        record["error"] = f"{type(error).__name__}: {error}"
        seconds = time.process_time() - start
    finally:
        logging.disable(logging.NOTSET)
    record["metrics"]["cpu_seconds"] = seconds
    return record


def _outcome(
    line: Line,
    options: dict[str, Any],
    world: World,
    seed: int,
    engine: Engine,
    metrics: Sequence[str],
) -> LineResult:
    if line.kind == "baseline":
        return BASELINES[line.name](world, **options)
    if line.kind == "peer":
        # Many print their progress.
        nowhere = io.StringIO()
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            return PEERS[line.name].run(world, **options)
    # Of a line, no option of the method: whether parties that a run names are left out.
    without = options.pop("without_odd_parties", False)
    taken = {field.name for field in fields(methods.find(line.name).strategy.options_type)}
    given = {name: value for name, value in world.options.items() if name in taken}
    run = simulate(
        line.name,
        world.parties,
        engine=engine,
        seed=seed,
        progress=False,
        **{**given, **options},
    )
    if without:
        run = _without_odd_parties(run)
    counts = {
        "exchanges": float(run.rounds),
        "kilobytes": (run.bytes_sent + run.bytes_received) / 1e3,
    }
    if "refused" in metrics:
        counts["refused"] = float(run.trust.verdict == "do not rely")
    graphs = () if run.graph is None else (run.graph,)
    return LineResult(graphs, run.scores, run.model, tuple(run.local_graphs.values()), counts)


def _without_odd_parties(run: Run) -> Run:
    """Return a run that is repeated without the parties that it, and the next ones, name."""
    left_out: list[str] = []
    found = run
    for _ in run.parties:
        odd = [party for party in odd_parties_of(found) if party not in left_out]
        if not odd or len(left_out) + len(odd) > len(run.parties) - 2:
            break
        left_out += odd
        found = run.without(*left_out)
    return found


def versions_of(line: Line) -> dict[str, str]:
    """Return the versions of what computes a line."""
    recorded = [*RECORDED, *([PEERS[line.name].distribution] if line.kind == "peer" else [])]
    found = {"python": platform.python_version()}
    for name in recorded:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def _write(path: Path, record: Record) -> None:
    """Write a record whole or not at all."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(record), encoding="utf-8")
    partial.replace(path)
