"""CPU time: the core against the public code and the plain iteration, and the engine's price."""

import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import public_code
from cases import SETTINGS, linear_case, split
from core_loop import notears_admm
from tables import print_table, verdict

from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.simulations import simulate

GOAL_RATIO = 100
GOAL_ENGINE_MILLISECONDS = 1.0
# (method, d, n, K, goal in CPU seconds)
LARGE = (("moments", 500, 1500, 10, 30.0), ("notears-admm", 200, 2000, 10, 15.0))
PLAIN_SETTINGS = ((10, 30, 10), (20, 60, 10))
PLAIN = Path(__file__).parents[1] / "tests" / "helpers" / "paper_admm.py"


def main(seeds, quick):
    settings = [s for s in SETTINGS if s in public_code.NOTEARS_ADMM]
    if quick:
        settings = [s for s in settings if s[0] <= 20 and s[2] <= 16]
    core_and_engine(settings, seeds)
    if not quick:
        large()
    plain_iteration(PLAIN_SETTINGS[:1] if quick else PLAIN_SETTINGS)


def cpu(function, *arguments, **options):
    """Result and CPU seconds of a call."""
    start = time.process_time()
    result = function(*arguments, **options)
    return result, time.process_time() - start


def core_and_engine(settings, seeds):
    rows, ratios, overheads = [], {}, {}
    notears_admm(split(linear_case(10, 30, 0)[0], 10))
    simulate("notears-admm", split(linear_case(10, 30, 0)[0], 10))  # imports on first use
    for setting in settings:
        d, n, num_parties = setting
        core, engine, exchanges = [], [], []
        for seed in seeds:
            parties = split(linear_case(d, n, seed)[0], num_parties)
            (graph, rounds), seconds = cpu(notears_admm, parties)
            run, total = cpu(simulate, "notears-admm", parties)
            if not np.allclose(graph.weights, run.graph.weights, atol=1e-6):
                print(f"the core loop and the engine differ at {setting}, seed {seed}")
            core.append(seconds)
            engine.append(total)
            exchanges.append(rounds)
        public = public_code.NOTEARS_ADMM[setting].cpu_seconds
        ratios[setting] = public / np.mean(core)
        # the schema exchange counts as one more
        node_exchanges = num_parties * (np.mean(exchanges) + 1)
        overheads[setting] = 1e3 * (np.mean(engine) - np.mean(core)) / node_exchanges
        rows.append(
            (
                *setting,
                f"{public:.1f}",
                f"{np.mean(core):.3f}",
                f"{ratios[setting]:.0f}",
                f"{np.mean(exchanges):.1f}",
                f"{np.mean(engine):.3f}",
                f"{overheads[setting]:.2f}",
            )
        )
    print_table(
        "CPU seconds of one run: public code (197 rounds), core alone, local engine",
        (
            "d",
            "n",
            "K",
            "public code",
            "core",
            "ratio",
            "exchanges",
            "engine, all",
            "engine on top, ms per node and exchange",
        ),
        rows,
    )
    from_20 = [ratio for (d, _, _), ratio in ratios.items() if d >= 20]
    print_table(
        "Goals",
        ("quantity", "measured", "goal", "met"),
        [
            (
                "least ratio to the public code, d >= 20",
                f"{min(from_20):.0f}",
                GOAL_RATIO,
                verdict(min(from_20) >= GOAL_RATIO),
            ),
            (
                "engine on top, ms per node and exchange: mean over settings",
                f"{np.mean(list(overheads.values())):.2f}",
                GOAL_ENGINE_MILLISECONDS,
                verdict(np.mean(list(overheads.values())) <= GOAL_ENGINE_MILLISECONDS),
            ),
            (
                "the same: largest",
                f"{max(overheads.values()):.2f}",
                GOAL_ENGINE_MILLISECONDS,
                verdict(max(overheads.values()) <= GOAL_ENGINE_MILLISECONDS),
            ),
        ],
    )


def large():
    """Runs with many variables on the local engine."""
    rows = []
    for method, d, n, num_parties, goal in LARGE:
        data, truth = linear_case(d, n, 0)
        run, seconds = cpu(simulate, method, split(data, num_parties), truth=truth)
        rows.append(
            (
                method,
                d,
                n,
                num_parties,
                f"{seconds:.1f}",
                f"{goal:g}",
                verdict(seconds <= goal),
                run.metrics["shd"],
            )
        )
    print_table(
        "Many variables, CPU seconds of the whole run (one core)",
        ("method", "d", "n", "K", "CPU s", "goal", "met", "SHD"),
        rows,
    )


def plain_module():
    """The tests' plain implementation of the paper's iteration, which is no part of the package."""
    spec = spec_from_file_location("paper_admm", PLAIN)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain_iteration(settings):
    """The paper's own schedule: the plain implementation beside the package's."""
    plain = plain_module()
    rows = []
    for d, n, num_parties in settings:
        data, truth = linear_case(d, n, 0)
        parties = split(data, num_parties)
        (weights, rounds), seconds = cpu(plain.notears_admm, parties)
        options = {"schedule": "paper", "center": "party"}
        run, ours = cpu(simulate, "notears-admm", parties, truth=truth, **options)
        cut = np.where(np.abs(weights) > 0.3, weights, 0.0)
        plain_shd = structural_hamming_distance(truth, cut)
        rows.append(
            (
                d,
                n,
                num_parties,
                f"{seconds:.1f}",
                f"{ours:.2f}",
                f"{seconds / ours:.0f}",
                rounds,
                run.rounds,
                plain_shd,
                run.metrics["shd"],
                f"{np.abs(weights - run.graph.raw_weights).max():.1e}",
            )
        )
    print_table(
        "The paper's schedule, seed 0: the tests' plain implementation and schedule=\"paper\" on "
        "the local engine, CPU seconds",
        (
            "d",
            "n",
            "K",
            "plain",
            "engine, all",
            "ratio",
            "plain rounds",
            "rounds",
            "plain SHD",
            "SHD",
            "largest difference of a weight",
        ),
        rows,
    )
