"""NOTEARS-MLP-ADMM: errors and CPU seconds, against the authors' program and pooled rows."""

import time

import numpy as np
from cases import perceptron_case, split
from public_code import NOTEARS_MLP_ADMM, POOLED_NOTEARS_MLP
from tables import mean_and_error, print_table, with_error

from flwr_causal.simulations import simulate

ROWS = 512
METHODS = {
    'model="mlp"': ("notears-admm", {"model": "mlp"}),
    'model="mlp", 60 rounds': ("notears-admm", {"model": "mlp", "max_rounds": 60}),
    'model="mlp", paper\'s schedule': ("notears-admm", {"model": "mlp", "schedule": "paper"}),
    'moments, model="additive"': ("moments", {"model": "additive"}),
}


def main(seeds, quick):
    """The cases of the public code's figures (its seeds are 0-2), and any others."""
    sizes = [key for key in NOTEARS_MLP_ADMM if key[0] == 10 or not quick]
    rows, totals = [], {name: [0.0, 0.0] for name in METHODS}
    for d, parties in sizes:
        public, pooled = NOTEARS_MLP_ADMM[d, parties], POOLED_NOTEARS_MLP[d]
        for name, (method, options) in METHODS.items():
            found = [measure(method, options, d, parties, seed) for seed in seeds]
            shd, error = mean_and_error([run.metrics["shd"] for run, _ in found])
            cpu = float(np.mean([seconds for _, seconds in found]))
            totals[name][0] += shd / public.shd / len(sizes)
            totals[name][1] += public.cpu_seconds / cpu / len(sizes)
            rows.append(
                [
                    d,
                    parties,
                    name,
                    with_error(shd, error),
                    f"{np.mean([run.metrics['tpr'] for run, _ in found]):.2f}",
                    f"{np.mean([run.metrics['fdr'] for run, _ in found]):.2f}",
                    max(run.rounds for run, _ in found),
                    f"{cpu:.1f}",
                ]
            )
        rows.append([d, parties, "public code", with_error(*public[:2]), "", "", 176, ""])
        rows[-1][-1] = f"{public.cpu_seconds:.1f}"
        rows.append([d, parties, "pooled NOTEARS-MLP", with_error(*pooled[:2]), "", "", "", ""])
        rows[-1][-1] = f"{pooled.cpu_seconds:.1f}"
    header = ("d", "K", "method", "SHD", "TPR", "FDR", "exchanges", "CPU s")
    print_table(f"Perceptrons, {ROWS} rows, {len(seeds)} seeds", header, rows)
    print_table(
        "Mean ratios to the public code",
        ("method", "SHD, ours / public", "CPU, public / ours"),
        [[name, f"{shd:.2f}", f"{cpu:.0f}"] for name, (shd, cpu) in totals.items()],
    )


def measure(method, options, d, parties, seed):
    rows, truth = perceptron_case(d, ROWS, seed)
    start = time.process_time()
    run = simulate(method, split(rows, parties), truth=truth, seed=seed, **options)
    return run, time.process_time() - start
