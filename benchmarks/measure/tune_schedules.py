"""The search that found the default schedules of NOTEARS-ADMM.

    python -m benchmarks.measure.tune_schedules --rounds 39 --minutes 15

Simulates the papers' linear systems (ER graphs with d edges, coefficients from +-[0.5, 2], unit
Gaussian noise), runs the iteration with trial numbers and moves them towards fewer errors by a
small evolution strategy: each generation draws trials around the present centre and replaces it by
the mean of the best three. A trial is abandoned once it has made more errors than the third best.
The seeds searched on (100 and up) are not those that results are reported on (0 and up, 1000 and
up). Prints the best trial of each generation, and at the end the centre, for `TUNED` in
flwr_causal/core/consensus/schedules.py, with its errors on fresh seeds.
"""

import argparse
import time
from functools import cache

import numpy as np

from flwr_causal.core.consensus import admm
from flwr_causal.core.consensus.schedules import TUNED, Tuning, fast_schedule
from flwr_causal.core.graphs.acyclicity import break_cycles
from flwr_causal.core.linear.moments import data_scale

# (d, n, K) and its weight: how many settings of the papers' suites it stands for.
CASES = {
    (20, 60, 10): 1.2,
    (50, 256, 64): 2.0,
    (50, 256, 16): 2.0,
    (50, 150, 10): 2.2,
    (10, 30, 10): 1.2,
    (50, 256, 2): 2.0,
    (20, 256, 64): 2.0,
    (20, 256, 16): 2.0,
    (20, 256, 2): 2.0,
    (10, 256, 16): 4.0,
}
# Standard deviations of a trial's coordinates (see `coordinates`).
SPREAD = np.array([0.3, 0.4, 0.8, 1.0, 0.5, 0.12, 0.2, 0.3])
MAX_RELAXATION = 1.9


@cache
def paper_case(d, n, seed):
    """Rows ``(n, d)`` and weights ``(d, d)`` of a random linear system with exactly d edges."""
    rng = np.random.default_rng([1, d, n, seed])
    first, second = np.triu_indices(d, 1)
    picked = rng.choice(len(first), size=min(d, len(first)), replace=False)
    order = rng.permutation(d)
    edges = np.zeros((d, d))
    edges[order[first[picked]], order[second[picked]]] = 1.0
    weights = edges * rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1.0, 1.0], (d, d))
    noise = rng.standard_normal((n, d))
    return np.linalg.solve((np.eye(d) - weights).T, noise.T).T, weights


@cache
def local_problems(d, n, K, seed):
    """Clients' problems of equal sizes after global centring, and the scale of the data."""
    rows, _ = paper_case(d, n, seed)
    rows = rows[: n // K * K]
    rows = rows - rows.mean(axis=0)
    parties = np.split(rows, K)
    return [admm.local_problem(part.T @ part, len(rows)) for part in parties], data_scale(
        rows.var(axis=0)
    )


def iterate(locals_, schedule, d):
    """Run a whole schedule and return W."""
    problem = admm.ServerProblem(schedule, d)
    state = admm.init(problem)
    memories = [None] * len(locals_)
    while state.round < schedule.rounds:
        penalty, _, _, relaxation = schedule.at(state.round)
        memories = [
            admm.client_step(local, memory, state.weights, penalty, state.round, relaxation)
            for local, memory in zip(locals_, memories, strict=True)
        ]
        mean = np.mean([memory.sent for memory in memories], axis=0)
        state, _ = admm.server_step(state, mean, problem, len(locals_))
    return state.weights[0]


def structural_hamming_distance(truth, estimate):
    """Pairs of variables whose edge differs; a reversed edge counts once."""
    different = (truth != 0) != (estimate != 0)
    return int(np.triu(different | different.T).sum())


def errors(tuning, rounds, case, seed):
    """SHD of one run at threshold 0.3, cycles broken."""
    d, n, K = case
    locals_, scale = local_problems(d, n, K, seed)
    W = iterate(locals_, fast_schedule(rounds, K, n, d, scale, {rounds: tuning}), d)
    graph = break_cycles(np.where(np.abs(W) > 0.3, W, 0.0))
    return structural_hamming_distance(paper_case(d, n, seed)[1], graph)


def total_errors(tuning, rounds, seeds, limit=np.inf):
    """Weighted sum of mean SHDs; infinite once it exceeds the limit."""
    total = 0.0
    for case, weight in CASES.items():
        total += weight * np.mean([errors(tuning, rounds, case, seed) for seed in seeds])
        if total > limit:
            return np.inf
    return total


def coordinates(tuning):
    """Map a tuning to unconstrained coordinates: logarithms, logit of the relaxation."""
    logs = np.log(np.hstack([*tuning[:3], tuning.bend]))
    logit = np.log(tuning.relaxation / (MAX_RELAXATION - tuning.relaxation))
    return np.array([*logs, logit])


def from_coordinates(x):
    """Inverse of `coordinates`."""
    pairs = np.exp(x[:6]).reshape(3, 2)
    relaxation = MAX_RELAXATION / (1 + np.exp(-x[7]))
    ends = [(float(first), float(last)) for first, last in pairs]
    return Tuning(*ends, float(np.exp(x[6])), float(relaxation))


def search(start, rounds, minutes, seeds, seed=0, trials=8, parents=3):
    """Evolve a tuning; returns the last centre."""
    rng = np.random.default_rng(seed)
    centre, spread = coordinates(start), 1.0
    best = None
    clock = time.monotonic()
    generation = 0
    while time.monotonic() - clock < 60 * minutes:
        steps = spread * SPREAD * rng.standard_normal((trials, len(centre)))
        draws = [centre, *(centre + steps)] + ([] if best is None else [best])
        results = []
        for x in draws:
            limit = (
                sorted(r[0] for r in results)[parents - 1] if len(results) >= parents else np.inf
            )
            results.append((total_errors(from_coordinates(x), rounds, seeds, limit), x))
        results.sort(key=lambda result: result[0])
        best = results[0][1]
        centre = np.mean([x for _, x in results[:parents]], axis=0)
        spread = max(0.35, 0.93 * spread)
        print(generation, round(results[0][0], 1), from_coordinates(best), flush=True)
        generation += 1
    return from_coordinates(centre)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=39)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seeds", type=int, default=5, help="data sets per case")
    arguments = parser.parse_args()
    nearest = min(TUNED, key=lambda rounds: abs(np.log(rounds / arguments.rounds)))
    searched = range(100, 100 + arguments.seeds)
    found = search(TUNED[nearest], arguments.rounds, arguments.minutes, searched)
    print("centre", found)
    for seeds in (searched, range(1000, 1000 + arguments.seeds)):
        print(f"seeds {seeds}: weighted errors {total_errors(found, arguments.rounds, seeds):.1f}")


if __name__ == "__main__":
    main()
