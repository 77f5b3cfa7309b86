"""Run measurements: a table in Markdown and a result file (benchmarks/results) of each.

One BLAS thread; seconds are CPU seconds.
"""

import fnmatch
import os
import platform
import shlex
import sys
from datetime import date
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.files import MissingDataError
from benchmarks.measure.registry import BENCHMARKS, Benchmark, Setup
from benchmarks.results import MEASURED, FigureTable, machine
from benchmarks.runner import one_thread
from flwr_causal.errors import ConfigError

for module in ("speed", "processes", "circuits", "calibration", "real_tables"):
    import_module(f"benchmarks.measure.{module}")
RECORDED = ("flwr-causal", "flwr", "numpy", "scipy")


def read_seeds(text):
    """``"0-4,3000"`` to ``[0, 1, 2, 3, 4, 3000]``."""
    seeds = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def versions_of(names):
    found = [f"python {platform.python_version()}"]
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def chosen(patterns: list[str]) -> list[Benchmark]:
    """The benchmarks that fit one of some names or patterns."""
    found = [BENCHMARKS[n] for n in BENCHMARKS if any(fnmatch.fnmatch(n, p) for p in patterns)]
    if not found:
        raise ConfigError(f"no benchmark fits {' '.join(patterns)}: see --list")
    return found


def result_of(one, seeds, quick, data_dir):
    """Return a benchmark's result; its head says how it was made."""
    table = one.measure(Setup(read_seeds(seeds), quick, data_dir))
    words = ["python", "-m", "benchmarks", "measure", one.name, "--seeds", seeds]
    head = {
        "name": one.name,
        "title": one.title,
        "command": shlex.join(words + ["--quick"] * quick),
        "date": date.today().isoformat(),
        "machine": f"{machine()}, load {os.getloadavg()[0]:.1f}",
        "versions": versions_of((*RECORDED, *one.versions)),
        "seeds": f"seeds {seeds}",
        "source": MEASURED,
    }
    rows = tuple(tuple(map(str, row)) for row in table.rows)
    return FigureTable(head, tuple(table.columns), rows, tuple(table.notes))


def measured(
    one: Benchmark, seeds: str, quick: bool, data_dir: Path | None, output_dir: Path | None
) -> None:
    """Print a benchmark's result, and write it into a directory where one is given."""
    one_thread()
    try:
        result = result_of(one, seeds, quick, data_dir)
    except (ImportError, MissingDataError) as error:
        print(f"skipped: {one.name}: {error}", file=sys.stderr)
        return
    text = "\n\n".join([f"### {one.title}", *result.notes, result.markdown()])
    print(f"\n{text}\n\n{result.head['command']}; {result.head['versions']}", flush=True)
    if output_dir is not None:
        output_dir.mkdir(parents=True, exist_ok=True)
        path = output_dir / f"{one.name}.csv"
        path.write_text(result.text(), encoding="utf-8")
