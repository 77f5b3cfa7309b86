"""Peak memory of a local run with 1,000 parties, each in a fresh process, against 10 parties."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from tables import print_table, verdict

NUM_VARIABLES, ROWS_EACH = 50, 10
MANY, FEW = 1000, 10
GOAL_MEGABYTES = 100


def main(quick):
    many = 200 if quick else MANY
    peaks = {number: measured(number) for number in (FEW, many)}
    difference = peaks[many]["peak"] - peaks[FEW]["peak"]
    print_table(
        f"Peak resident memory of notears-admm, local engine, d = {NUM_VARIABLES}, {ROWS_EACH} "
        "rows a party (server and all parties in one process)",
        (
            "parties",
            "after imports and data, MB",
            "peak, MB",
            "exchanges",
            "seconds",
            "ms per node and exchange",
        ),
        [
            (
                n,
                f"{p['before']:.0f}",
                f"{p['peak']:.0f}",
                p["rounds"],
                f"{p['seconds']:.1f}",
                f"{1e3 * p['seconds'] / n / p['rounds']:.2f}",
            )
            for n, p in peaks.items()
        ],
    )
    print_table(
        "Goal",
        ("quantity", "measured", "goal", "met"),
        [
            (
                f"peak with {many} parties above that with {FEW}",
                f"{difference:.0f} MB",
                f"{GOAL_MEGABYTES} MB",
                verdict(difference <= GOAL_MEGABYTES),
            )
        ],
    )


def measured(num_parties):
    """What a fresh process reports: a peak never falls, so each number needs its own process."""
    command = [sys.executable, str(Path(__file__)), str(num_parties)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def status_megabytes(field):
    """A field of Linux' process status: VmHWM is the peak of this program alone.

    ``getrusage`` would not do: its maximum is inherited from the process that started this one.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def run_and_report(num_parties):
    from cases import linear_case, split

    from flwr_causal.simulations import simulate

    rows, truth = linear_case(NUM_VARIABLES, ROWS_EACH * num_parties, 0)
    parties = split(rows, num_parties)
    simulate("notears-admm", split(rows[:100], 2), max_rounds=6)  # imports on first use
    before = status_megabytes("VmHWM")
    run = simulate("notears-admm", parties, truth=truth)
    report = {
        "before": before,
        "peak": status_megabytes("VmHWM"),
        "rounds": run.rounds,
        "seconds": run.seconds,
        "shd": run.metrics["shd"],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("num_parties", type=int)
    run_and_report(parser.parse_args().num_parties)
