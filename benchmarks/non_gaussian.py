"""LiNGAM by the federation, and the lingam package on the pooled rows of the same tables.

Linear systems with independent non-Gaussian noise: two edges a variable (Erdos-Renyi or
scale-free), absolute coefficients from 0.5 to 2, noise of variance 1. Neither method looks at
units, but the threshold that is usual for the package's weights does.
"""

import logging
import warnings

import numpy as np
from cases import split
from speed import cpu
from tables import mean_and_error, print_table, verdict, with_error

from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.data.synthetic.linear import WEIGHT_RANGE
from flwr_causal.data.synthetic.random_graphs import random_graph, signed_weights
from flwr_causal.simulations import simulate

try:
    import lingam as peer
except ImportError as error:
    peer = None
    print(f"skipped: the lingam package cannot be imported ({error}), see benchmarks/README.md")

NUM_PARTIES = 5
SIZES = [(d, n) for d in (10, 20, 40) for n in (300, 1000, 5000)]
# The package needs up to half a minute for a table of 40 variables: so many seeds of each.
MOST_SEEDS = {
    (10, 5000): 5,
    (20, 300): 4,
    (20, 1000): 2,
    (20, 5000): 1,
    (40, 300): 1,
    (40, 1000): 1,
    (40, 5000): 1,
}
GRAPHS = ("er", "sf")
NOISE = {
    "exponential": lambda rng, n: rng.exponential(size=n) - 1,
    "uniform": lambda rng, n: rng.uniform(-np.sqrt(3), np.sqrt(3), n),
    "Laplace": lambda rng, n: rng.laplace(size=n) / np.sqrt(2),
    "Gumbel": lambda rng, n: (rng.gumbel(size=n) - np.euler_gamma) * np.sqrt(6) / np.pi,
}
MIXED = "mixed"
# Harder for LiNGAM: heavy tails, two modes, nearly Gaussian, Gaussian.
OTHER_NOISE = {
    "t, 2.5 degrees": lambda rng, n: rng.standard_t(2.5, n),
    "log-normal": lambda rng, n: rng.lognormal(0, 0.6, n) / 0.79,
    "two modes": lambda rng, n: (rng.choice((-1.5, 1.5), n) + rng.normal(size=n)) / 1.8,
    "chi-squared, 5 degrees": lambda rng, n: rng.chisquare(5, n) / np.sqrt(10),
    "triangular": lambda rng, n: (rng.uniform(-1, 1, n) + rng.uniform(-1, 1, n)) * np.sqrt(1.5),
    "Gaussian": lambda rng, n: rng.standard_normal(n),
}
TIMED = ("lingam",) if peer is None else ("lingam", "DirectLiNGAM")


def case(d, n, noise, graph, seed):
    """Rows (n, d) and true weights (d, d)."""
    rng = np.random.default_rng([9, d, n, seed, *map(ord, noise + graph)])
    errors, weights = sampled(random_graph(graph, d, 2 * d, 2, rng), n, noise, rng)
    return through(weights, errors), weights


def sampled(edges, n, noise, rng):
    """Noise (n, d), and weights of the edges."""
    d = len(edges)
    weights = edges * signed_weights(rng, *WEIGHT_RANGE, (d, d))
    kinds = rng.choice(list(NOISE), d) if noise == MIXED else [noise] * d
    errors = np.column_stack([{**NOISE, **OTHER_NOISE}[kind](rng, n) for kind in kinds])
    return errors, weights


def through(weights, errors):
    return np.linalg.solve((np.eye(len(weights)) - weights).T, errors.T).T


def federated(rows):
    run = simulate("lingam", split(rows, NUM_PARTIES))
    return {"lingam": run.graph.weights, "lingam above .3": above(run.graph.weights)}, run.rounds


def moments(rows):
    return {"moments": simulate("moments", split(rows, NUM_PARTIES)).graph.weights}, 1


def above(weights, limits=0.3):
    return np.where(np.abs(weights) > limits, weights, 0)


def direct(rows):
    """DirectLiNGAM: the weights of its adaptive lasso with the BIC, and those above 0.3.

    Its order and its lasso do not depend on units, so that other units change the weights only.
    """
    weights = peer.DirectLiNGAM().fit(rows).adjacency_matrix_.T
    spread = rows.std(axis=0)
    return {
        "DirectLiNGAM": weights,
        "DirectLiNGAM above .3": above(weights),
        "the same, standardised": above(weights, 0.3 * spread / spread[:, None]),
    }, 0


def ica(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = peer.ICALiNGAM(random_state=0).fit(rows)
    return {"ICA-LiNGAM": fit.adjacency_matrix_.T}, 0


PEERS = () if peer is None else (direct, ica)
ESTIMATORS = (federated, *PEERS, moments)


def measure(d, n, noises, seeds):
    """Rows of (SHD, CPU seconds, exchanges) by method and noise."""
    found = {}
    for noise in noises:
        for graph in GRAPHS:
            for seed in seeds:
                rows, truth = case(d, n, noise, graph, seed)
                for estimator in ESTIMATORS:
                    (results, exchanges), seconds = cpu(estimator, rows)
                    for name, weights in results.items():
                        distance = structural_hamming_distance(truth, weights)
                        found.setdefault((name, noise), []).append((distance, seconds, exchanges))
    return {key: np.array(values, dtype=float) for key, values in found.items()}


def main(seeds, quick):
    logging.disable(logging.WARNING)  # single rows of the t distribution are warned of
    simulate("lingam", split(case(10, 300, "uniform", "er", 0)[0], NUM_PARTIES))  # compiles
    noises = [*NOISE, MIXED]
    table, by_noise = [], {}
    for d, n in SIZES[:2] if quick else SIZES:
        found = measure(d, n, noises, seeds[: MOST_SEEDS.get((d, n))])
        methods = list(dict.fromkeys(name for name, _ in found))
        together = {name: np.concatenate([found[name, one] for one in noises]) for name in methods}
        table.append(
            [
                *(d, n, len(together["lingam"])),
                *(with_error(*mean_and_error(together[name][:, 0]), 2) for name in methods),
                f"{together['lingam'][:, 2].mean():.1f}",
                *(f"{together[name][:, 1].mean():.2f}" for name in methods if name in TIMED),
            ]
        )
        print(table[-1], flush=True)
        for (name, noise), values in found.items():
            by_noise.setdefault(name, {}).setdefault(noise, []).extend(values[:, 0])
    print_table(
        f"Linear non-Gaussian systems, {NUM_PARTIES} parties, mean SHD ± standard error over "
        f"{', '.join(noises)} noise, both graphs and up to {len(seeds)} seeds",
        ("d", "n", "tables", *methods, "exchanges", *(f"CPU s, {name}" for name in TIMED)),
        table,
    )
    totals = {name: {one: np.mean(by_noise[name][one]) for one in noises} for name in methods}
    print_table(
        "The same by noise, mean SHD over all tables",
        ("noise", *methods),
        [[one, *(f"{totals[name][one]:.2f}" for name in methods)] for one in noises],
    )
    if peer is not None:
        goals(totals)
    other(seeds, quick)
    series(seeds, quick)


def goals(totals):
    rows = []
    for noise, value in totals["lingam"].items():
        least = min(totals[one][noise] for one in totals if "LiNGAM" in one)
        rows.append((noise, f"{value:.2f}", f"{least:.2f}", verdict(value <= least)))
    print_table("Goals: no more errors than the package", ("noise", "SHD", "least", "met"), rows)


def other(seeds, quick):
    """Noise that LiNGAM is not made for, or hardly."""
    rows = []
    for d, n in ((10, 300), (20, 1000))[: 1 if quick else 2]:
        found = measure(d, n, OTHER_NOISE, seeds[:3])
        methods = list(dict.fromkeys(name for name, _ in found))
        for noise in OTHER_NOISE:
            cells = [mean_and_error(found[name, noise][:, 0]) for name in methods]
            rows.append([noise, d, n, *(with_error(*cell) for cell in cells)])
    print_table("Other noise, mean SHD ± standard error", ("noise", "d", "n", *methods), rows)


def lagged_case(d, steps, noise, seed):
    """One stationary series (steps, d), weights (d, d) and weights of lag 1 (d, d)."""
    rng = np.random.default_rng([10, d, steps, seed, *map(ord, noise)])
    while True:
        errors, now = sampled(random_graph("er", d, d, 1, rng), steps + 100, noise, rng)
        lagged = (rng.random((d, d)) < 1.5 / d) * signed_weights(rng, 0.2, 0.5, (d, d))
        reduced = np.linalg.inv(np.eye(d) - now)
        if np.abs(np.linalg.eigvals(lagged @ reduced)).max() < 0.9:
            break
    x = np.zeros((steps + 100, d))
    for t in range(1, len(x)):
        x[t] = (x[t - 1] @ lagged + errors[t]) @ reduced
    return x[100:], now, lagged


def series(seeds, quick):
    """VAR-LiNGAM with one lag, errors in the weights of both blocks."""
    rows = []
    for d, steps in ((5, 300), (5, 1000), (10, 300), (10, 1000))[: 1 if quick else 4]:
        errors = {}
        for noise in (*NOISE, MIXED):
            for seed in seeds[:3]:
                x, now, lagged = lagged_case(d, steps, noise, seed)
                run = simulate("lingam", [x], order=1)
                graphs = {"lingam": (run.graph.weights, run.graph.lagged[0])}
                run = simulate("moments", [x], order=1)
                graphs["moments"] = (run.graph.weights, run.graph.lagged[0])
                if peer is not None:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        fit = peer.VARLiNGAM(lags=1).fit(x - x.mean(axis=0))
                    graphs["VARLiNGAM"] = tuple(block.T for block in fit.adjacency_matrices_[:2])
                for name, (found_now, found_lagged) in graphs.items():
                    wrong = np.count_nonzero((found_lagged != 0) != (lagged != 0))
                    both = structural_hamming_distance(now, found_now), wrong
                    errors.setdefault(name, []).append(both)
        means = {name: np.mean(values, axis=0) for name, values in errors.items()}
        rows.append([d, steps, *("{:.2f} + {:.2f}".format(*pair) for pair in means.values())])
        names = list(means)
    print_table(
        "One series with one lag, mean errors without a lag + at lag 1", ("d", "T", *names), rows
    )
