"""CPU seconds: the core against the engine and against a plain iteration; bytes on the wire."""

import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.files import network
from benchmarks.measure.registry import Table, benchmark, cpu, linear_parties
from benchmarks.peers import agrum_hill_climb
from flwr_causal.core.consensus import admm
from flwr_causal.core.consensus.schedules import fast_schedule
from flwr_causal.core.graphs.acyclicity import break_cycles
from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.core.linear.moments import SampleMoments, data_scale, merge
from flwr_causal.core.linear.solution import refit_support
from flwr_causal.simulations import simulate
from flwr_causal.solvers import ges, lingam, order_search
from flwr_causal.strategies.moments.solvers import ancestral

# (d, n, K)
SETTINGS = (
    *((10, 30, 10), (20, 60, 10), (50, 150, 10), (100, 300, 10)),
    *((d, 256, K) for d in (10, 20, 50) for K in (2, 8, 64)),
)
LARGE = (("moments", 200, 5000, 5), ("moments", 500, 1500, 10), ("notears-admm", 200, 2000, 10))
VERY_LARGE = ("moments", 1000, 10_000, 5)
# One of d, n, K at a time.
GROWING = {"d": (20, 40, 80, 160), "n": (2000, 8000, 32_000, 128_000), "K": (5, 20, 80, 320)}
START = {"d": 20, "n": 8000, "K": 5}
# (d, n, K)
SECURE_SETTINGS = ((20, 1000, 4), (20, 1000, 10), (100, 5000, 10), (100, 5000, 50), (20, 5000, 100))
WIRE_SETTINGS = ((10, 100, 5), (50, 100, 5), (100, 100, 5), (50, 1000, 5), (50, 100, 20))
THRESHOLD = 0.3
ADMM_ROUNDS = 40
# A measurement is the best of so many.
REPEATS = 2
# The tests' implementation of the paper's iteration: explicit inverses, a matrix exponential,
# L-BFGS-B with tight tolerances, no code of the package.
PLAIN = Path(__file__).parents[2] / "tests" / "helpers"


@benchmark("speed-engine", "NOTEARS-ADMM: CPU seconds of the core and of the local engine")
def engine(setup):
    admm_core(linear_parties(*SETTINGS[0], 0)[0])
    simulate("notears-admm", linear_parties(*SETTINGS[0], 0)[0])  # imports on first use
    rows = []
    for setting in SETTINGS[:2] if setup.quick else SETTINGS:
        found = []
        for seed in setup.seeds:
            parties, _ = linear_parties(*setting, seed)
            (weights, exchanges), seconds = cpu(admm_core, parties)
            run, total = cpu(simulate, "notears-admm", parties, search=False)
            if not np.allclose(weights, run.graph.weights, atol=1e-6):
                raise RuntimeError(f"core and engine differ at {setting}, seed {seed}")
            found.append((seconds, total, exchanges))
        seconds, total, exchanges = np.mean(found, axis=0)
        # The schema exchange counts as one more.
        each = 1e3 * (total - seconds) / setting[2] / (exchanges + 1)
        cells = (f"{seconds:.3f}", f"{exchanges:.1f}", f"{total:.3f}", f"{each:.2f}")
        rows.append((*setting, *cells))
    columns = ("d", "n", "K", "core", "exchanges", "engine, all")
    note = (
        "The core is the same mathematics in one loop, without Flower and messages; its weights "
        "are checked against the engine's. Without the search over orders that follows by default."
    )
    return Table((*columns, "engine on top, ms per party and exchange"), rows, (note,))


@benchmark("speed-plain", "The paper's algorithm beside a plain implementation, CPU seconds", "0")
def plain_iteration(setup):
    sys.path.append(str(PLAIN))
    from paper_admm import notears_admm as plain

    rows = []
    for d, n, num_parties in SETTINGS[:1] if setup.quick else SETTINGS[:2]:
        parties, truth = linear_parties(d, n, num_parties, setup.seeds[0])
        (weights, rounds), seconds = cpu(plain, parties)
        options = {"variant": "paper"}
        run, ours = cpu(simulate, "notears-admm", parties, truth=truth, **options)
        cut = np.where(np.abs(weights) > THRESHOLD, weights, 0.0)
        errors = structural_hamming_distance(truth, cut), run.metrics["shd"]
        difference = np.abs(weights - run.graph.raw_weights).max()
        times = (f"{seconds:.1f}", f"{ours:.2f}", f"{seconds / ours:.0f}")
        rows.append((d, n, num_parties, *times, rounds, run.rounds, *errors, f"{difference:.1e}"))
    columns = ("d", "n", "K", "plain", "engine, all", "ratio", "plain rounds", "rounds")
    return Table((*columns, "plain SHD", "SHD", "largest difference of a weight"), rows)


@benchmark("speed-many-variables", "Many variables: CPU seconds of whole runs", "0")
def many_variables(setup):
    rows = []
    for method, d, n, num_parties in LARGE[:1] if setup.quick else (*LARGE, VERY_LARGE):
        parties, truth = linear_parties(d, n, num_parties, setup.seeds[0])
        run, seconds = cpu(simulate, method, parties, truth=truth)
        rows.append((method, d, n, num_parties, f"{seconds:.1f}", run.metrics["shd"]))
    note = "Erdos-Renyi graphs with d edges, noise of one variance."
    return Table(("method", "d", "n", "K", "CPU s", "SHD"), rows, (note,))


@benchmark("speed-exponents", "CPU seconds by d, n and K, with fitted exponents", "0")
def exponents(setup):
    rows = []
    for method in ("moments", "notears-admm", "lingam"):
        simulate(method, linear_parties(10, 200, 3, 0)[0])  # imports and compiling on first use
        for name, values in GROWING.items():
            values = values[:3] if setup.quick else values
            found = []
            for value in values:
                parties, _ = linear_parties(*{**START, name: value}.values(), setup.seeds[0])
                found.append(cpu(simulate, method, parties)[1])
            slope = np.polyfit(np.log(values), np.log(found), 1)[0]
            sizes = ", ".join(f"{value:,}".replace(",", " ") for value in values)
            rows.append((method, name, sizes, *(f"{x:.2f}" for x in found), f"{slope:.1f}"))
    columns = ("method", "growing", "values", "first", "second", "third", "fourth")
    note = (
        f"Otherwise d = {START['d']}, n = {START['n']} rows of all parties, K = {START['K']} "
        "parties; server and parties in one process. The exponent is the slope of the logarithms, "
        "by least squares."
    )
    return Table((*columns[: 3 + len(found)], "exponent"), rows, (note,))


@benchmark("speed-moments-core", "`moments`: CPU seconds of the core and of the local engine")
def one_exchange(setup):
    rows = []
    for setting in ((20, 1000, 10), (50, 1000, 10), (50, 1000, 100)):
        simulate("moments", linear_parties(*setting, 0)[0])
        found = []
        for seed in setup.seeds:
            parties, _ = linear_parties(*setting, seed)
            graph, seconds = cpu(order_search, np.concatenate(parties))
            run, total = cpu(simulate, "moments", parties)
            if not np.array_equal(graph.adjacency, run.graph.adjacency):
                raise RuntimeError(f"core and engine differ at {setting}, seed {seed}")
            found.append((seconds, total))
        seconds, total = np.mean(found, axis=0)
        rows.append((*setting, f"{seconds:.3f}", f"{total:.3f}", f"{total / seconds:.2f}"))
    note = "The core is `flwr_causal.solvers.order_search` on the rows of all parties in one array."
    return Table(("d", "n", "K", "core", "engine, all", "ratio"), rows, (note,))


@benchmark("speed-lingam", "`lingam`: CPU seconds of the core and of the local engine")
def non_gaussian(setup):
    simulate("lingam", linear_parties(8, 200, 3, 0)[0])
    rows = []
    for d in (20, 50) if setup.quick else (20, 50, 100):
        found = []
        for seed in setup.seeds:
            parties, truth = linear_parties(d, 1000, 8, seed)
            graph, seconds = cpu(lingam, np.concatenate(parties))
            _, total = cpu(simulate, "lingam", parties)
            errors = structural_hamming_distance(truth, graph.weights)
            found.append((seconds, total, errors))
        seconds, total, errors = np.mean(found, axis=0)
        rows.append((d, f"{seconds:.2f}", f"{total:.2f}", f"{errors:.1f}"))
    note = "1000 rows, 8 parties, Gaussian noise of one variance: no order is better by its noise."
    return Table(("d", "core", "engine, all", "SHD"), rows, (note,))


@benchmark("speed-ges", "GES on categories beside pyAgrum's hill climbing", "0", ("pyagrum",))
def categories(setup):
    import pyagrum  # noqa: F401

    rows = []
    for name in ("alarm",) if setup.quick else ("alarm", "andes", "pigs"):
        for seed in setup.seeds:
            world = network(seed, setup.data_dir, name)
            table = world.pooled.astype(str)
            ges(table.iloc[:500, :8])  # compiling on first use
            times = [cpu(ges, table)[1] for _ in range(3)]
            theirs = cpu(agrum_hill_climb, world)[1]
            ratio = f"{theirs / min(times):.0f}"
            rows.append((name, seed, f"{min(times):.3f}", f"{theirs:.1f}", ratio))
    note = "5000 rows of texts, BDeu with their defaults; the coding of the texts included."
    return Table(("network", "seed", "GES", "pyAgrum", "ratio"), rows, (note,))


@benchmark("speed-default", "`moments`: CPU seconds of the default beside `stability=0` and dagma")
def default(setup):
    simulate("moments", linear_parties(10, 200, 3, 0)[0])  # imports and compiling on first use
    rows = []
    for d in (20,) if setup.quick else (20, 50, 100):
        found = []
        for seed in setup.seeds:
            parties, truth = linear_parties(d, 1000, 8, seed)
            times = [
                min(cpu(simulate, "moments", parties, **options)[1] for _ in range(3))
                for options in ({}, {"stability": 0})
            ]
            run = simulate("moments", parties)
            errors = [structural_hamming_distance(truth, run.graph.weights)]
            try:
                from dagma.linear import DagmaLinear
            except ImportError:
                theirs, others = np.nan, np.nan
            else:
                rows_of_all = np.concatenate(parties)
                weights, theirs = cpu(DagmaLinear("l2").fit, rows_of_all, lambda1=0.02)
                others = structural_hamming_distance(truth, weights)
            found.append((*times, theirs, errors[0], others))
        whole, plain, theirs, errors, others = np.mean(found, axis=0)
        ratios = (f"{whole / plain:.2f}", f"{theirs / whole:.0f}")
        seconds = (f"{whole:.3f}", f"{plain:.3f}", f"{theirs:.1f}")
        rows.append((d, *seconds, *ratios, f"{errors:.1f}", f"{others:.1f}"))
    note = "1000 rows, 8 parties, whole runs of the local engine; dagma 1.1 on the pooled rows."
    columns = ("d", "default", "stability=0", "dagma", "by stability=0", "dagma by default")
    return Table((*columns, "SHD", "SHD of dagma"), rows, (note,))


@benchmark("speed-parties", "`moments` by number of parties, CPU seconds beside the core", "0")
def parties_in_one_process(setup):
    simulate("moments", linear_parties(10, 200, 3, 0)[0])  # imports and compiling on first use
    rows = []
    for d, n, counts in ((10, 20_000, (10, 100, 1000)), (50, 1000, (10, 100))):
        for num_parties in counts[:2] if setup.quick else counts:
            found = []
            for seed in setup.seeds:
                parties, _ = linear_parties(d, n, num_parties, seed)
                pooled = np.concatenate(parties)
                core = min(cpu(order_search, pooled, stability=0)[1] for _ in range(REPEATS))
                times = (cpu(simulate, "moments", parties, stability=0)[1] for _ in range(REPEATS))
                whole = cpu(simulate, "moments", parties)[1]
                with timed_calls(ancestral, "hidden_causes") as spent:
                    simulate("moments", parties, stability=0)
                found.append((core, min(times), sum(spent), whole))
            core, total, check, whole = np.mean(found, axis=0)
            seconds = (f"{x:.3f}" for x in (core, total, check, whole))
            ratios = (f"{total / core:.1f}", f"{(total - check) / core:.1f}")
            each = f"{1e3 * (total - check - core) / num_parties:.2f}"
            rows.append((d, n, num_parties, *seconds, *ratios, each))
    note = (
        f"The core is `order_search` on all rows in one array, with `stability=0`; the best of "
        f"{REPEATS} runs. The check for hidden common causes is a search of its own, which takes "
        "long where it suspects some: the last two columns are without it."
    )
    columns = ("d", "n", "K", "core", "engine, all", "check for hidden causes", "default options")
    further = ("engine, all, by core", "without the check", "on top, ms per party")
    return Table((*columns, *further), rows, (note,))


@contextmanager
def timed_calls(module, name):
    """Collect the CPU seconds of each call of a module's function."""
    spent, function = [], getattr(module, name)

    def timed(*arguments, **options):
        result, seconds = cpu(function, *arguments, **options)
        spent.append(seconds)
        return result

    setattr(module, name, timed)
    try:
        yield spent
    finally:
        setattr(module, name, function)


@benchmark("speed-traffic", "Bytes for each party and exchange", "0")
def traffic(setup):
    rows = []
    cases = (("notears-admm", "float64"), ("notears-admm", "float32"), ("moments", "float64"))
    for d, n, num_parties in WIRE_SETTINGS[:2] if setup.quick else WIRE_SETTINGS:
        parties, _ = linear_parties(d, n, num_parties, setup.seeds[0])
        for method, precision in cases:
            options = {"max_rounds": 10, "precision": precision} if method != "moments" else {}
            run = simulate(method, parties, **options)
            array = (4 if precision == "float32" else 8) * d * d
            up, down = (
                sorted({round(one[key] / num_parties) for one in run.history})
                for key in ("bytes_received", "bytes_sent")
            )
            cells = (" or ".join(map(str, bytes_)) for bytes_ in (up, down))
            schema = round(run.schema_bytes / num_parties)
            rows.append((method, precision, d, n, num_parties, array, *cells, schema))
    columns = ("method", "precision", "d", "n", "K", "array", "up", "down")
    return Table((*columns, "schema exchange, once"), rows)


@benchmark("speed-secure", "Secure sums: CPU seconds and bytes of whole runs of `moments`", "0")
def secure(setup):
    ways = ({}, {"secure_aggregation": True, "quorum": 1.0}, {"secure_aggregation": True})
    simulate("moments", linear_parties(*SECURE_SETTINGS[0], 0)[0], **ways[1])
    rows = []
    for setting in SECURE_SETTINGS[:2] if setup.quick else SECURE_SETTINGS:
        parties, _ = linear_parties(*setting, setup.seeds[0])
        found = [cpu(simulate, "moments", parties, **options) for options in ways]
        seconds = (f"{spent:.3f}" for _, spent in found)
        plain = found[0][0].bytes_received
        ratios = (f"{run.bytes_received / plain:.3f}" for run, _ in found[1:])
        rows.append((*setting, *seconds, *ratios))
    note = (
        "Server and all parties in one process. Keys are exchanged once in a run. Bytes from the "
        "parties, as a multiple of those without secure sums."
    )
    columns = ("d", "n", "K", "plain, CPU s", "`quorum=1`, CPU s", "default quorum, CPU s")
    return Table((*columns, "`quorum=1`, bytes", "default quorum, bytes"), rows, (note,))


def admm_core(parties):
    """NOTEARS-ADMM's default by the core alone; returns weights and number of exchanges."""
    n, d = sum(map(len, parties)), parties[0].shape[1]
    mean = sum(values.sum(axis=0) for values in parties) / n
    rows = [values - mean for values in parties]
    scale = data_scale(sum((values**2).sum(axis=0) for values in rows) / n)
    schedule = fast_schedule(ADMM_ROUNDS - 1, len(parties), n, d, scale)
    problem = admm.ServerProblem(schedule, d, threshold=THRESHOLD)
    locals_ = [admm.local_problem(part.T @ part, n, d) for part in rows]
    state, memories, reason = admm.init(problem), [None] * len(rows), None
    while reason is None:
        penalty, _, _, relaxation = problem.schedule.at(state.round)
        memories = [
            admm.client_step(local, memory, state.weights, penalty, state.round, relaxation)
            for local, memory in zip(locals_, memories, strict=True)
        ]
        mean = sum(memory.sent for memory in memories) / len(rows)
        state, info = admm.server_step(state, mean, problem, len(rows))
        reason = admm.finished(state, info, problem)
    raw = state.weights[0]
    kept = break_cycles(np.where(np.abs(raw) > THRESHOLD, raw, 0.0)) != 0
    names = tuple(f"x{j}" for j in range(d))
    pooled = merge(SampleMoments.from_rows(part, names, center=False) for part in rows)
    none = np.zeros((d, d), dtype=bool)
    return refit_support(pooled, kept, THRESHOLD, required=none), state.round + 1
