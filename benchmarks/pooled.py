"""Moments against what the pooled rows show: our NOTEARS, the public code's, dagma from PyPI."""

import os
import time

import numpy as np
import public_code
from cases import SETTINGS, linear_case, split
from tables import mean_and_error, print_table, verdict, with_error

from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.notears import notears
from flwr_causal.simulations import simulate

os.environ.setdefault("TQDM_DISABLE", "1")
try:
    from dagma.linear import DagmaLinear
except ImportError as error:
    DagmaLinear = None
    print(f"skipped: dagma from PyPI cannot be imported ({error}); pip install dagma")

NUM_PARTIES = 10
# dagma's program needs seconds to minutes for a case: so many seeds by number of variables.
PEER_SEEDS = {10: 5, 20: 5, 50: 3, 100: 1}
GOAL_POLISHED = 0.5


def federated(**options):
    def estimate(rows):
        return simulate("moments", split(rows, NUM_PARTIES), **options).graph

    return estimate


def peer_dagma(rows):
    """The program of Bello et al. (2022) with its defaults; it centres the rows itself."""
    return DagmaLinear(loss_type="l2").fit(rows, lambda1=0.03, w_threshold=0.3)


# name -> rows to graph, on all rows together
METHODS = {
    "moments": federated(),
    "moments, polish, BIC": federated(polish=True),
    "moments, polish, equal variance": federated(polish=True, score="equal-variance"),
    "moments, standardize": federated(standardize=True),
    "our NOTEARS .1, pooled": lambda rows: notears(used(rows), sparsity=0.1),
    "our DAGMA .03, pooled": lambda rows: dagma(used(rows), sparsity=0.03),
}


def used(rows):
    """The rows that equal shares leave: all estimates are to see the same ones."""
    return np.concatenate(split(rows, NUM_PARTIES))


def main(seeds, quick):
    sizes = dict.fromkeys((d, n) for d, n, _ in SETTINGS)
    sizes = [size for size in sizes if not quick or size[0] <= 20]
    methods = {**METHODS, "PyPI dagma .03, pooled": lambda rows: peer_dagma(used(rows))}
    if DagmaLinear is None:
        del methods["PyPI dagma .03, pooled"]
    shd = {name: {} for name in methods}
    cpu = {name: {} for name in methods}
    rows = []
    for d, n in sizes:
        cells = [d, n]
        for name, estimate in methods.items():
            chosen = seeds[: PEER_SEEDS[d]] if name.startswith("PyPI") else seeds
            pairs = [timed(estimate, d, n, seed) for seed in chosen]
            shd[name][d, n] = [pair[0] for pair in pairs]
            cpu[name][d, n] = np.mean([pair[1] for pair in pairs])
            cells.append(with_error(*mean_and_error(shd[name][d, n])))
        figure = public_code.POOLED_NOTEARS[d, n]
        rows.append([*cells, f"{figure.shd:.1f} (from {figure.num_seeds})"])
    print_table(
        f"One exchange of sums ({NUM_PARTIES} parties), mean SHD ± standard error, "
        f"seeds {list(seeds)}",
        ("d", "n", *methods, "public NOTEARS .1, pooled (from so many seeds)"),
        rows,
    )
    print_table(
        "CPU seconds of the same",
        ("d", "n", *methods, "public NOTEARS .1"),
        [
            [
                d,
                n,
                *(f"{cpu[name][d, n]:.3f}" for name in methods),
                public_code.POOLED_NOTEARS[d, n].cpu_seconds,
            ]
            for d, n in sizes
        ],
    )
    goals(shd, sizes)


def timed(estimate, d, n, seed):
    rows, truth = linear_case(d, n, seed)
    start = time.process_time()
    graph = estimate(rows)
    seconds = time.process_time() - start
    return structural_hamming_distance(truth, graph), seconds


def goals(shd, sizes):
    total = {name: sum(np.mean(values) for values in table.values()) for name, table in shd.items()}
    ours = total["our NOTEARS .1, pooled"]
    public = sum(public_code.POOLED_NOTEARS[size].shd for size in sizes)
    equal_variance = shd["moments, polish, equal variance"]
    polished = np.mean([np.mean(equal_variance[size]) for size in sizes if size[1] == 256])
    moments = total["moments"]
    print_table(
        f"Goals, SHD summed over {len(sizes)} settings",
        ("quantity", "measured", "goal", "met"),
        [
            (
                "moments",
                f"{moments:.1f}",
                f"our pooled NOTEARS .1: {ours:.1f}",
                verdict(moments <= ours),
            ),
            (
                "moments",
                f"{moments:.1f}",
                f"public pooled NOTEARS .1: {public:.1f}",
                verdict(moments <= public),
            ),
            (
                "polish, equal variance: mean at n = 256",
                f"{polished:.2f}",
                f"below {GOAL_POLISHED}",
                verdict(polished < GOAL_POLISHED),
            ),
        ],
    )
