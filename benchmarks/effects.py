"""How often intervals of total effects contain the truth: with the true graph, and after a search.

Random DAGs of 10 variables, each pair joined with probability 1/4, absolute weights from 0.2 to 1,
noise of standard deviation 0.7 to 1.4: Gaussian, or exponential, which directs all edges. Counted
are the pairs with a true effect that is not 0.
"""

import logging

import numpy as np
from tables import print_table

from flwr_causal.core.linear.model import fit
from flwr_causal.simulations import simulate

NUM_VARIABLES = 10
SIZES = (200, 1000, 5000)
DRAWS = {
    "Gaussian": lambda rng, shape: rng.normal(size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1,
}
METHODS = ("moments", "lingam")
SETS_PER_SEED = 16


def rows_of(n, noise, rng):
    """Return a true DAG, its total effects, and rows."""
    shape = (NUM_VARIABLES, NUM_VARIABLES)
    edges = np.triu(rng.random(shape) < 0.25, 1)
    weights = edges * rng.uniform(0.2, 1, shape) * rng.choice([-1, 1], shape)
    total = np.linalg.inv(np.eye(NUM_VARIABLES) - weights)
    errors = DRAWS[noise](rng, (n, NUM_VARIABLES)) * rng.uniform(0.7, 1.4, NUM_VARIABLES)
    return edges, total, errors @ total


def covered(model, total):
    """Return for each effect that is not 0 whether its interval contains it."""
    names = model.names
    found = []
    for i, j in np.argwhere((total != 0) & ~np.eye(len(names), dtype=bool)):
        low, high = model.total_effect(names[i], names[j]).interval
        found.append(low <= total[i, j] <= high)
    return found


def main(seeds, quick):
    logging.disable(logging.WARNING)  # single rows of exponential noise are warned of
    rows = []
    for noise in DRAWS:
        for n in SIZES[:2] if quick else SIZES:
            hits = {name: [] for name in ("true", *METHODS)}
            right = dict.fromkeys(METHODS, 0)
            sets = 0
            for seed in seeds:
                rng = np.random.default_rng(seed)
                for _ in range(SETS_PER_SEED):
                    edges, total, table = rows_of(n, noise, rng)
                    sets += 1
                    for method in METHODS:
                        run = simulate(method, np.array_split(table, 3), progress=False)
                        hits[method] += covered(run.model, total)
                        right[method] += np.array_equal(run.graph.adjacency, edges)
                    hits["true"] += covered(fit(run.model.sample_moments, edges), total)
            shares = [f"{np.mean(hits[name]):.3f}" for name in hits]
            rows.append([noise, n, *shares, *(f"{right[m] / sets:.2f}" for m in METHODS)])
    header = ["noise", "rows", "true graph", *METHODS, *(f"{m}: graphs right" for m in METHODS)]
    print_table("Intervals of level 0.95 that contain the true effect", header, rows)
