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

DISCRETE_SUITES = ("ges", "fedges", "fedges-public", "fedges-time")
DYNAMIC_SUITES = ("dynamic", "dynamic-time")
SUITES = (
    "rounds",
    "variants",
    "moments",
    "beyond",
    "interventions",
    "non-gaussian",
    "effects",
    "confidence",
    "fit",
    "perceptrons",
    "time",
    *DYNAMIC_SUITES,
    "series-recipes",
    "memory",
    "size",
    "wire",
    "ray",
    "sachs",
    "fedcausal",
    "fedcausal-noise",
    "fedcausal-sachs",
    "effects-sachs",
    "circuits-evaluation",
    "circuits-learning",
    "circuits-tensors",
    "fedpc",
    "fedges-adult",
    *DISCRETE_SUITES,
)


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
        help="folder with sachs_observational_853.csv and edges_dag_17.csv; for effects-sachs and "
        "fedcausal-sachs also sachs_all_7466.csv, conditions.csv, edges_consensus_20.csv; skipped "
        "without it",
    )
    parser.add_argument(
        "--samples",
        type=Path,
        help="folder with NAME_0.npz (X, edges); the discrete suites need this or --networks",
    )
    parser.add_argument(
        "--networks",
        type=Path,
        help="folder with NAME.bif or NAME.bif.gz, from which each seed draws 5000 rows",
    )
    parser.add_argument(
        "--names",
        type=lambda text: text.split(","),
        help="the networks to take, e.g. alarm,andes; each suite has its own default; in the "
        "suites fedcausal and fedpc their parts, e.g. linear,mixed or vertical,income, in the "
        "suite beyond the kinds of data, e.g. ER2,ER4",
    )
    parser.add_argument(
        "--modes",
        type=lambda text: text.split(";"),
        help="the modes to run in the suite fedges, e.g. 'driven;scores;exact, BIC', in the suite "
        "beyond the columns, e.g. 'moments;ADMM;dagma package'",
    )
    parser.add_argument(
        "--tabular",
        type=Path,
        help="folder with adult.csv.gz, for fedpc, fedges-adult and circuits-learning; for fedpc "
        "also give_me_some_credit.npz",
    )
    parser.add_argument(
        "--debd", type=Path, help="folder with nltcs.npz and so on, for circuits-..., fedpc"
    )
    parser.add_argument(
        "--images", type=Path, help="FILE.npz (x: images of bytes), for the suite circuits-tensors"
    )
    parser.add_argument(
        "--time-limit", type=float, default=120.0, help="seconds for each peer in the suite ges"
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
    elif name == "effects":
        import effects

        effects.main(seeds, quick)
    elif name == "confidence":
        import confidence

        confidence.main(seeds, quick)
    elif name == "fit":
        import fit

        fit.main(seeds, quick)
    elif name == "variants":
        import rounds

        rounds.variants(seeds, quick)
    elif name == "moments":
        import pooled

        pooled.main(seeds, quick)
    elif name == "beyond":
        import beyond

        beyond.main(seeds, quick, arguments.names, arguments.modes)
    elif name == "interventions":
        import interventions

        interventions.main(seeds, quick)
    elif name == "non-gaussian":
        import non_gaussian

        non_gaussian.main(seeds, quick)
    elif name == "perceptrons":
        import perceptrons

        perceptrons.main(seeds, quick)
    elif name == "time":
        import speed

        speed.main(seeds, quick)
    elif name in DYNAMIC_SUITES:
        import dynamic

        (dynamic.main if name == "dynamic" else dynamic.times)(seeds, quick)
    elif name == "series-recipes":
        import series_recipes

        series_recipes.main(seeds, quick)
    elif name == "memory":
        import memory

        memory.main(quick)
    elif name == "size":
        import size

        size.main(quick)
    elif name == "wire":
        import traffic

        traffic.main(quick)
    elif name == "ray":
        import ray_engine

        ray_engine.main(seeds, quick)
    elif name in DISCRETE_SUITES:
        measure_discrete(name, arguments)
    elif name == "fedcausal":
        import fedcausal

        fedcausal.main(seeds, quick, arguments.names)
    elif name == "fedcausal-noise":
        import fedcausal_noise

        fedcausal_noise.main(seeds, quick, arguments.modes)
    elif name == "circuits-evaluation":
        import circuits

        circuits.main(seeds, quick)
    elif name == "circuits-learning":
        import circuits_learning

        circuits_learning.main(arguments.tabular, arguments.debd, seeds, quick)
    elif name == "circuits-tensors":
        import circuits_tensors

        circuits_tensors.main(arguments.debd, arguments.images, seeds, quick)
    elif name == "fedpc":
        import fedpc

        fedpc.main(arguments.tabular, arguments.debd, seeds, quick, arguments.names)
    elif name == "fedges-adult" and arguments.tabular is None:
        print(f"\nskipped: {name} needs --tabular FOLDER")
    elif name == "fedges-adult":
        import fedges_modes

        fedges_modes.adult(arguments.tabular, seeds)
    elif arguments.sachs is None:
        print(f"\nskipped: {name} needs --sachs FOLDER")
    elif name == "fedcausal-sachs":
        import fedcausal

        fedcausal.sachs(arguments.sachs, seeds)
    elif name == "effects-sachs":
        import effects

        effects.sachs(arguments.sachs)
    else:
        import sachs

        sachs.main(arguments.sachs, seeds)


def measure_discrete(name, arguments):
    if arguments.samples is None and arguments.networks is None:
        print(f"\nskipped: {name} needs --samples FOLDER or --networks FOLDER")
        return
    import discrete_cases

    names = arguments.names or default_names(name, arguments.quick)
    cases = discrete_cases.read_cases(names, arguments.samples, arguments.networks, arguments.seeds)
    if name == "ges":
        import discrete_peers

        discrete_peers.main(cases, arguments.time_limit)
        return
    import fedges_modes

    if name == "fedges":
        quick = fedges_modes.QUICK if arguments.quick else None
        fedges_modes.main(cases, arguments.modes or quick)
    elif name == "fedges-public":
        fedges_modes.paper_loop(cases)
    else:
        fedges_modes.times(cases)


def default_names(name, quick):
    if quick:
        return ("alarm",)
    return {
        "ges": ("alarm", "andes", "pigs", "link", "munin"),
        "fedges": ("alarm", "hailfinder", "hepar2", "win95pts", "andes", "pigs"),
        "fedges-public": ("alarm", "hailfinder"),
        "fedges-time": ("alarm", "andes"),
    }[name]


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
