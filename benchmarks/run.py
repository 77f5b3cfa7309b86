"""Measure the package against the papers' public code and against peers, side by side.

    python benchmarks/run.py --suite all --seeds 0-4

Prints markdown tables. One BLAS thread; times are CPU seconds of this process, so that other load
on the machine hardly matters. See README.md for the suites.
"""

import argparse
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

SUITES = ("rounds", "variants", "moments", "time", "memory", "wire", "sachs")


def read_seeds(text):
    """``"0-4,3000"`` to ``[0, 1, 2, 3, 4, 3000]``."""
    seeds = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=(*SUITES, "all"), default="all")
    parser.add_argument("--seeds", type=read_seeds, default="0-4", help="e.g. 0-4,3000-3004")
    parser.add_argument("--quick", action="store_true", help="small settings only")
    parser.add_argument(
        "--sachs",
        type=Path,
        help="folder with sachs_observational_853.csv and "
        "edges_dag_17.csv; the suite sachs is skipped without it",
    )
    arguments = parser.parse_args()
    describe_machine()
    for name in SUITES if arguments.suite == "all" else (arguments.suite,):
        start = time.monotonic()
        measure(name, arguments)
        print(f"\n({name}: {time.monotonic() - start:.0f} s)", flush=True)


def measure(name, arguments):
    seeds, quick = arguments.seeds, arguments.quick
    # Imported here: a suite needs its peers only, and the memory suite starts light.
    if name == "rounds":
        import rounds

        rounds.main(seeds, quick)
    elif name == "variants":
        import rounds

        rounds.variants(seeds, quick)
    elif name == "moments":
        import pooled

        pooled.main(seeds, quick)
    elif name == "time":
        import speed

        speed.main(seeds, quick)
    elif name == "memory":
        import memory

        memory.main(quick)
    elif name == "wire":
        import traffic

        traffic.main(quick)
    elif arguments.sachs is None:
        print("\nskipped: sachs needs --sachs FOLDER")
    else:
        import sachs

        sachs.main(arguments.sachs, seeds)


def describe_machine():
    import numpy
    import scipy

    print(
        f"flwr-causal {version('flwr-causal')}, Python {platform.python_version()}, numpy "
        f"{numpy.__version__}, scipy {scipy.__version__}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}; {' '.join(sys.argv[1:])}"
    )


if __name__ == "__main__":
    main()
