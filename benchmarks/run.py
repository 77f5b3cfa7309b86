"""Measure time, memory, traffic and calibration, beside peers in the same process where they fit.

    python benchmarks/run.py --list
    python benchmarks/run.py "speed-*" --seeds 0-4 --output-dir measured
    python tools/figures.py --adopt measured/*.csv

Prints Markdown tables and writes result files (docs/results). One BLAS thread; seconds are CPU
seconds. Accuracy is measured by `flwr-causal reproduce`, not here.
"""

import argparse
import fnmatch
import os
import platform
import shlex
import sys
from datetime import date
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

from registry import BENCHMARKS, Setup

from flwr_causal.simulations.scenarios.files import MissingDataError
from flwr_causal.simulations.scenarios.results import MEASURED, FigureTable, machine

for module in ("speed", "processes", "circuits", "calibration", "real_tables"):
    import_module(module)
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


def measured(one, seeds, quick, data_dir):
    """Return a benchmark's result; its head says how it was made."""
    table = one.measure(Setup(read_seeds(seeds), quick, data_dir))
    words = ["python", "benchmarks/run.py", one.name, "--seeds", seeds]
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["*"], help="names or patterns; default: all")
    parser.add_argument("--list", action="store_true", help="show the names and end")
    parser.add_argument("--seeds", help="e.g. 0-4,3000-3004; default: each benchmark's own")
    parser.add_argument("--quick", action="store_true", help="small settings only")
    parser.add_argument("--data-dir", type=Path, help="as of `flwr-causal reproduce`")
    parser.add_argument("--output-dir", type=Path, help="for the result files")
    arguments = parser.parse_args()
    chosen = [n for n in BENCHMARKS if any(fnmatch.fnmatch(n, p) for p in arguments.names)]
    if not chosen:
        parser.error(f"no benchmark fits {' '.join(arguments.names)}: see --list")
    for one in map(BENCHMARKS.get, chosen):
        if arguments.list:
            print(f"{one.name}  {one.title}")
            continue
        try:
            seeds = arguments.seeds or one.seeds
            result = measured(one, seeds, arguments.quick, arguments.data_dir)
        except (ImportError, MissingDataError) as error:
            print(f"skipped: {one.name}: {error}", file=sys.stderr)
            continue
        text = "\n\n".join([f"### {one.title}", *result.notes, result.markdown()])
        print(f"\n{text}\n\n{result.head['command']}; {result.head['versions']}", flush=True)
        if arguments.output_dir is not None:
            arguments.output_dir.mkdir(parents=True, exist_ok=True)
            path = arguments.output_dir / f"{one.name}.csv"
            path.write_text(result.text(), encoding="utf-8")


if __name__ == "__main__":
    main()
