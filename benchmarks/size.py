"""Many rows, in pieces of a file, and many variables: peak memory and CPU seconds."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from memory import status_megabytes
from tables import print_table, verdict

ROWS, COLUMNS = 1_000_000, 20
SOURCES = ("CSV", "Parquet", "NPZ", "array in memory")
METHODS = ("moments", "notears-admm")
MOST_MEMORY, MOST_SECONDS = 1.3, 180
# Variables and rows of five parties.
MANY = ((200, 5000), (500, 10_000), (1000, 10_000))


def system(d, n, seed):
    """Rows (n, d) of a random DAG with 2 d edges on average and equal noise, and its weights."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    strength = rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1.0, 1.0], (d, d))
    weights = np.triu(strength * (rng.random((d, d)) < 4 / (d - 1)), 1)[np.ix_(order, order)]
    return rng.standard_normal((n, d)) @ np.linalg.inv(np.eye(d) - weights), weights


def main(quick):
    rows = ROWS // 10 if quick else ROWS
    with tempfile.TemporaryDirectory() as directory:
        paths = save(Path(directory), rows)
        found = [(m, s, in_new_process("rows", m, paths[s])) for m in METHODS for s in SOURCES]
    table = rows * COLUMNS * 8 / 2**20
    print_table(
        f"One party, n = {rows:,}, d = {COLUMNS}: a table of {table:.0f} MB. Peak resident memory "
        "above that before the run, with the array where it is in memory",
        ("method", "rows from", "MB", "times the table", "goal", "met", "CPU s", "SHD"),
        [
            (
                method,
                source,
                f"{one['megabytes']:.0f}",
                f"{one['megabytes'] / table:.2f}",
                MOST_MEMORY,
                verdict(one["megabytes"] <= MOST_MEMORY * table),
                f"{one['seconds']:.1f}",
                one["shd"],
            )
            for method, source, one in found
        ],
    )
    sizes = MANY[:1] if quick else MANY
    print_table(
        "moments, 5 parties, 2 d edges",
        ("d", "n", "CPU s", "goal", "met", "SHD", "peak of the process, MB"),
        [
            (
                d,
                n,
                f"{one['seconds']:.1f}",
                MOST_SECONDS,
                verdict(one["seconds"] <= MOST_SECONDS),
                one["shd"],
                f"{one['megabytes']:.0f}",
            )
            for d, n in sizes
            for one in [in_new_process("columns", d, n)]
        ],
    )


def save(directory, num_rows):
    """Write the rows in every format; return the paths by source."""
    rows, weights = system(COLUMNS, num_rows, 0)
    np.save(directory / "truth.npy", weights)
    frame = pd.DataFrame(rows, columns=[f"x{j}" for j in range(COLUMNS)])
    paths = [directory / name for name in ("t.csv", "t.parquet", "t.npz")]
    frame.to_csv(paths[0], index=False)
    frame.to_parquet(paths[1])
    np.savez(paths[2], X=rows)
    return dict(zip(SOURCES, (*paths, f"memory:{paths[2]}"), strict=True))


def in_new_process(*arguments):
    """What a fresh process reports: a peak never falls, so each case needs its own process."""
    command = [sys.executable, str(Path(__file__)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(method, parties, truth, before):
    from flwr_causal.simulations import simulate

    start = time.process_time()
    run = simulate(method, parties, truth=truth)
    return {
        "seconds": time.process_time() - start,
        "megabytes": status_megabytes("VmHWM") - before,
        "shd": run.metrics["shd"],
    }


def main_of_process(kind, first, second):
    from flwr_causal.simulations import simulate

    # Imports on first use, and the readers of files.
    small = pd.DataFrame(system(4, 60, 0)[0], columns=list("abcd"))
    with tempfile.TemporaryDirectory() as directory:
        small.to_parquet(Path(directory, "t.parquet"))
        simulate(first if kind == "rows" else "moments", [Path(directory, "t.parquet")])
    if kind == "columns":
        rows, truth = system(int(first), int(second), 0)
        parties = np.array_split(rows, 5)
        return report("moments", parties, truth, before=0)
    before = status_megabytes("VmHWM")
    path = Path(second.removeprefix("memory:"))
    truth = np.load(path.parent / "truth.npy")
    source = np.load(path)["X"] if second.startswith("memory:") else path
    return report(first, [source], truth, before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("rows", "columns"))
    parser.add_argument("first")
    parser.add_argument("second")
    print(json.dumps(main_of_process(**vars(parser.parse_args()))))
