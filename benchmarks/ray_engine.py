"""A run on Flower's Ray engine beside plain FedAvg with as many messages, each in a fresh process.

FedAvg sends one array of the size of the parties' moments, by a client that returns it: what
remains is the price of Ray's start, its processes and their imports. Wall time is what users wait;
CPU seconds, of all processes together, do not depend on other load.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from tables import print_table, verdict

PARTIES = (10, 50)
NUM_VARIABLES, ROWS_EACH = 10, 100
EXCHANGES = 2  # of `moments`: the schema exchange and the moments
GOAL = 1.5


def main(seeds, quick):
    measured("ours", 2)  # compiles what is compiled
    rows = []
    for parties in PARTIES[:1] if quick else PARTIES:
        # Alternating, so that both have the same load from other work.
        runs = [{which: measured(which, parties) for which in ("fedavg", "ours")} for _ in seeds]
        wall, cpu = (median_pair(runs, key) for key in ("wall", "cpu"))
        ratio = np.median([run["ours"]["wall"] / run["fedavg"]["wall"] for run in runs])
        rows.append(
            (
                parties,
                *(f"{value:.1f}" for value in (*wall, *cpu)),
                f"{ratio:.2f}",
                f"{cpu[1] / cpu[0]:.2f}",
                verdict(ratio <= GOAL),
            )
        )
    print_table(
        f"Ray, {EXCHANGES} exchanges of a process that starts and ends, median of {len(seeds)} "
        "alternating runs",
        (
            "parties",
            "FedAvg, s",
            "moments, s",
            "FedAvg, CPU s",
            "moments, CPU s",
            "ratio, median of pairs",
            "ratio of CPU s",
            f"at most {GOAL}",
        ),
        rows,
    )


def median_pair(runs, key):
    return [float(np.median([run[which][key] for run in runs])) for which in ("fedavg", "ours")]


def measured(which, parties):
    """Wall seconds of a process, and CPU seconds of it and all processes that it starts."""
    command = [sys.executable, str(Path(__file__)), which, str(parties)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = {}
    while process.poll() is None:
        seconds |= descendants(process.pid)
        time.sleep(0.1)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed")
    return {"wall": time.perf_counter() - start, "cpu": sum(seconds.values())}


def descendants(root):
    """CPU seconds by id of a process and of all that it started (from Linux's /proc)."""
    parents, seconds = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        own = int(path.parent.name)
        parents[own] = int(fields[1])
        seconds[own] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found, grown = set(), {root} & parents.keys()
    while grown:
        found |= grown
        grown = {own for own, parent in parents.items() if parent in found} - found
    return {own: seconds[own] for own in found}


def run_ours(parties):
    from flwr_causal import simulate

    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(ROWS_EACH, NUM_VARIABLES)) for _ in range(parties)]
    run = simulate("moments", tables, engine="ray")
    if run.rounds + 1 != EXCHANGES:
        raise RuntimeError(f"{run.rounds} exchanges after the schema's")


def run_fedavg(parties):
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message, context):
        arrays = ArrayRecord(message.content["arrays"].to_numpy_ndarrays())
        metrics = MetricRecord({"num-examples": ROWS_EACH})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @server.main()
    def serve(grid, context):
        strategy = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=parties, min_available_nodes=parties
        )
        size = NUM_VARIABLES + 1
        strategy.start(grid, ArrayRecord([np.zeros((size, size))]), num_rounds=EXCHANGES)

    one_cpu = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, parties, backend_config=one_cpu)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=("fedavg", "ours"))
    parser.add_argument("parties", type=int)
    arguments = parser.parse_args()
    {"fedavg": run_fedavg, "ours": run_ours}[arguments.which](arguments.parties)
