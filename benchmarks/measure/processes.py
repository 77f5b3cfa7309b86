"""Memory and Ray: what is measured needs a fresh process each, since a peak never falls."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measure.registry import Table, benchmark, linear_parties

FEW, MANY = 10, 1000
NUM_VARIABLES, ROWS_EACH = 50, 10
ROWS, COLUMNS = 1_000_000, 20
SOURCES = {"CSV": "t.csv", "Parquet": "t.parquet", "NPZ": "t.npz", "array in memory": "memory"}
RAY_PARTIES, RAY_SHAPE = (10, 50), (100, 10)
ROUND_PARTIES, ROUNDS = (100, 300), 6
SOLVED, SOLVED_TIMES = (600, 5), 20
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
EXCHANGES = 2  # of `moments`: the schema exchange and the moments


@benchmark("speed-memory", "Peak memory by number of parties", "0")
def memory(setup):
    rows = []
    for parties in (FEW, MANY // 5 if setup.quick else MANY):
        one = in_new_process("parties", parties)
        cells = (f"{one['before']:.0f}", f"{one['peak']:.0f}", one["rounds"])
        rows.append((f"{parties:,}", *cells, f"{one['seconds']:.1f}"))
    note = (
        f"NOTEARS-ADMM on the local engine, d = {NUM_VARIABLES}, {ROWS_EACH} rows a party; server "
        "and all parties in one process."
    )
    columns = ("parties", "after imports and data, MB", "peak, MB", "exchanges", "CPU s")
    return Table(columns, rows, (note,))


@benchmark("speed-size", "Files of a million rows: memory and CPU seconds", "0")
def size(setup):
    n = ROWS // 10 if setup.quick else ROWS
    megabytes = n * COLUMNS * 8 / 2**20
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        values = np.concatenate(linear_parties(COLUMNS, n, 1, 0)[0])
        frame = pd.DataFrame(values, columns=[f"x{j}" for j in range(COLUMNS)])
        frame.to_csv(Path(directory, "t.csv"), index=False)
        frame.to_parquet(Path(directory, "t.parquet"))
        np.savez(Path(directory, "t.npz"), X=values)
        for method in ("moments", "notears-admm"):
            for source, name in SOURCES.items():
                one = in_new_process("rows", method, str(Path(directory, name)))
                above = (one["peak"] - one["before"]) / megabytes
                rows.append((method, source, f"{above:.2f}", f"{one['seconds']:.1f}"))
    note = (
        f"One party with {n:,} rows of {COLUMNS} columns, {megabytes:.0f} MB. Memory is the peak "
        "above that before the run, with the array where it is in memory."
    )
    return Table(("method", "rows from", "memory, times the table", "CPU s"), rows, (note,))


@benchmark("speed-ray", "A process on Ray beside Flower's FedAvg", "0-2", ("ray",))
def ray(setup):
    in_new_process("ray", "moments", 2)  # compiles what is compiled
    rows = []
    for parties in RAY_PARTIES[:1] if setup.quick else RAY_PARTIES:
        # Alternating, so that both have the same load from other work.
        pairs = [[timed(which, parties) for which in ("fedavg", "moments")] for _ in setup.seeds]
        wall, seconds = np.median(pairs, axis=0).T
        ratios = ", ".join(f"{ours[0] / theirs[0]:.2f}" for theirs, ours in pairs)
        rows.append((parties, *(f"{x:.1f}" for x in wall), ratios, *(f"{x:.1f}" for x in seconds)))
    note = (
        "A process that starts Ray, runs `moments` (the schema exchange and one other) and ends, "
        "beside FedAvg with two rounds of an array of that size; medians of alternating pairs, CPU "
        "seconds of all processes together."
    )
    columns = ("parties", "FedAvg, s", "`moments`, s", "ratio of each pair")
    return Table((*columns, "FedAvg, CPU s", "`moments`, CPU s"), rows, (note,))


@benchmark("speed-threads", "Public solvers without a limit on BLAS threads: CPU seconds", "0")
def threads(setup):
    names = ("order_search", "dagma", "lingam")
    rows = []
    for name in names[:1] if setup.quick else names:
        found = in_new_process("threads", name)
        one, own, without = (found[key] for key in ("one", "own", "without"))
        cells = (f"{one:.2f}", f"{own:.2f}", f"{without:.2f}")
        rows.append((name, *cells, f"{own / one:.2f}", f"{without / one:.2f}"))
    note = (
        f"{SOLVED_TIMES} calls on {SOLVED[0]} rows of {SOLVED[1]} columns in a process with "
        f"{os.cpu_count()} BLAS threads, as many as processors: under a limit to one thread, as it "
        "is, and the function behind its own limit. The best of three turns."
    )
    columns = ("solver", "limit of one thread", "as it is", "without its own limit")
    return Table((*columns, "ratio as it is", "ratio without"), rows, (note,))


@benchmark("speed-import", "Import of the package beside that of the libraries it imports", "0-4")
def imports(setup):
    in_new_process("imports")  # writes what Python keeps of modules
    found = [in_new_process("imports") for _ in setup.seeds]
    alone, both = (min(one[key] for one in found) for key in ("libraries", "all"))
    row = (f"{alone:.2f}", f"{both:.2f}", f"{both / alone:.2f}")
    note = (
        "`from flwr_causal import simulate` in a fresh process, after all other modules that it "
        "imports; CPU seconds, the best of the runs."
    )
    return Table(("libraries", "all", "ratio"), [row], (note,))


@benchmark(
    "speed-ray-rounds", "Seconds of an exchange on Ray beside Flower's FedAvg", "0-1", ("ray",)
)
def ray_rounds(setup):
    rows = []
    for parties in ROUND_PARTIES[:1] if setup.quick else ROUND_PARTIES:
        pairs = []
        for _ in setup.seeds:  # alternating, so that both have the same load from other work
            one = [in_new_process("rounds", which, parties) for which in ("fedavg", "notears-admm")]
            pairs.append([[found[key] for key in ("wall", "cpu", "peak")] for found in one])
        ratios = ", ".join(f"{ours[1] / theirs[1]:.2f}" for theirs, ours in pairs)
        theirs, ours = np.median(pairs, axis=0)
        cells = [
            f"{one[k]:.{digits}f}" for k, digits in enumerate((2, 2, 0)) for one in (theirs, ours)
        ]
        rows.append((parties, *cells[:4], ratios, *cells[4:]))
    note = (
        f"Virtual parties with {RAY_SHAPE[0]} rows of {RAY_SHAPE[1]} columns on one machine: "
        f"NOTEARS-ADMM beside FedAvg with arrays of that size, {ROUNDS} exchanges each, without "
        "the first, which starts Ray's workers; medians over alternating pairs. CPU seconds of all "
        "processes together; the memory is the peak of the server's process."
    )
    columns = (
        "parties",
        "FedAvg, s",
        "`notears-admm`, s",
        "FedAvg, CPU s",
        "`notears-admm`, CPU s",
    )
    memory = ("FedAvg, MB", "`notears-admm`, MB")
    return Table((*columns, "ratio of CPU s of each pair", *memory), rows, (note,))


def in_new_process(*arguments):
    """Return what a fresh process of this file reports."""
    command = [sys.executable, "-m", __spec__.name, *map(str, arguments)]
    own = None
    if arguments[0] == "threads":
        own = {**os.environ, **dict.fromkeys(BLAS_THREADS, str(os.cpu_count()))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=own)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def timed(which, parties):
    """Return wall seconds of a process, and CPU seconds of it and all that it starts (Linux)."""
    command = [sys.executable, "-m", __spec__.name, "ray", which, str(parties)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = {}
    while process.poll() is None:
        seconds |= descendants(process.pid)
        time.sleep(0.1)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed")
    return time.perf_counter() - start, sum(seconds.values())


def descendants(root):
    """Return CPU seconds by id of a process and of all that it started."""
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


def peak():
    """Return the peak resident memory of this program in MB.

    ``getrusage`` would not do: its maximum is inherited from the process that started this one.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise KeyError("VmHWM")


def report(method, parties):
    from flwr_causal.simulations import simulate

    before, start = peak(), time.process_time()
    run = simulate(method, parties)
    spent = time.process_time() - start
    return {"before": before, "peak": peak(), "rounds": run.rounds, "seconds": spent}


def of_parties(number):
    from flwr_causal.simulations import simulate

    parties, _ = linear_parties(NUM_VARIABLES, ROWS_EACH * number, number, 0)
    simulate("notears-admm", parties[:FEW], max_rounds=6)  # imports on first use
    return report("notears-admm", parties)


def of_rows(method, path):
    from flwr_causal.simulations import simulate

    with tempfile.TemporaryDirectory() as directory:
        small = Path(directory, "t.parquet")
        pd.DataFrame(linear_parties(4, 60, 1, 0)[0][0], columns=list("abcd")).to_parquet(small)
        simulate(method, [small])  # imports on first use, and the readers of files
    if not path.endswith("memory"):
        return report(method, [path])
    before = peak()
    found = report(method, [np.load(Path(path).with_name("t.npz"))["X"]])
    return {**found, "before": before}


def of_solver(name):
    from threadpoolctl import threadpool_limits

    from flwr_causal import solvers

    rows = np.concatenate(linear_parties(SOLVED[1], SOLVED[0], 1, 0)[0])
    solve = getattr(solvers, name)

    def seconds(call):
        start = time.process_time()
        for _ in range(SOLVED_TIMES):
            call(rows)
        return time.process_time() - start

    solve(rows)  # imports and compiling on first use
    found = []
    for _ in range(3):
        with threadpool_limits(1):
            one = seconds(solve)
        found.append((one, seconds(solve), seconds(solve.__wrapped__)))
    return dict(zip(("one", "own", "without"), np.min(found, axis=0).tolist(), strict=True))


def of_imports():
    code = "import sys; from flwr_causal import simulate; print(*sys.modules)"
    listed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    names = [one for one in listed.stdout.split() if one.split(".")[0] != "flwr_causal"]
    # In a process of its own: this one has the benchmarks' imports.
    code = (
        "import sys, time\nfrom contextlib import suppress\nfrom importlib import import_module\n"
        "start = time.process_time()\n"
        "for name in sys.argv[1:]:\n"
        "    with suppress(ImportError):\n"
        "        import_module(name)\n"
        "alone = time.process_time() - start\n"
        "from flwr_causal import simulate\n"
        "print(alone, time.process_time() - start)\n"
    )
    command = [sys.executable, "-c", code, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(zip(("libraries", "all"), map(float, done.stdout.split()), strict=True))


def on_ray(which, parties):
    if which == "fedavg":
        fedavg(parties)
        return {}
    from flwr_causal import simulate

    rng = np.random.default_rng(0)
    tables = [rng.normal(size=RAY_SHAPE) for _ in range(parties)]
    run = simulate("moments", tables, engine="ray")
    if run.rounds + 1 != EXCHANGES:
        raise RuntimeError(f"{run.rounds} exchanges after the schema's")
    return {}


class TimedGrid:
    """A grid that notes when each exchange ends, by the clock and in CPU seconds of all processes.

    A round of FedAvg also has an exchange without messages, of the evaluation by no party.
    """

    def __init__(self, grid, ends):
        self.grid, self.ends = grid, ends

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        replies = list(self.grid.send_and_receive(messages, timeout=timeout))
        if messages:
            self.ends.append((time.perf_counter(), sum(descendants(os.getpid()).values())))
        return replies


def rounds(which, parties):
    """Return wall and CPU seconds of an exchange on Ray, and the peak memory of the server."""
    ends = []
    if which == "fedavg":
        fedavg(parties, ROUNDS, lambda grid: TimedGrid(grid, ends), RAY_SHAPE[1])
    else:
        from flwr_causal import simulate

        tables, _ = linear_parties(RAY_SHAPE[1], RAY_SHAPE[0] * parties, parties, 0)
        wrap = {"wrap_grid": lambda grid: TimedGrid(grid, ends), "early_stop": False}
        simulate(which, tables, engine="ray", max_rounds=ROUNDS, search=False, **wrap)
    ends = ends[-ROUNDS:]  # without the schema exchange
    wall, seconds = (np.subtract(ends[-1], ends[0]) / (ROUNDS - 1)).tolist()
    return {"wall": wall, "cpu": seconds, "peak": peak()}


def fedavg(parties, exchanges=EXCHANGES, wrap=lambda grid: grid, size=RAY_SHAPE[1] + 1):
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message, context):
        arrays = ArrayRecord(message.content["arrays"].to_numpy_ndarrays())
        metrics = MetricRecord({"num-examples": RAY_SHAPE[0]})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @server.main()
    def serve(grid, context):
        strategy = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=parties, min_available_nodes=parties
        )
        start = ArrayRecord([np.zeros((size, size))])
        strategy.start(wrap(grid), start, num_rounds=exchanges)

    one_cpu = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, parties, backend_config=one_cpu)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("parties", "rows", "ray", "rounds", "threads", "imports"))
    parser.add_argument("given", nargs="*")
    arguments = parser.parse_args()
    kind, given = arguments.kind, arguments.given
    if kind == "parties":
        found = of_parties(int(given[0]))
    elif kind == "threads":
        found = of_solver(given[0])
    elif kind == "imports":
        found = of_imports()
    elif kind == "rounds":
        found = rounds(given[0], int(given[1]))
    else:
        found = of_rows(*given) if kind == "rows" else on_ray(given[0], int(given[1]))
    print(json.dumps(found))
