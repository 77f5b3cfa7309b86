"""How often intervals of total effects contain the truth: with the true graph, and after a search.

Random DAGs of 10 variables, each pair joined with probability 1/4, absolute weights from 0.2 to 1,
noise of standard deviation 0.7 to 1.4: Gaussian, or exponential, which directs all edges. Counted
are the pairs with a true effect that is not 0.
"""

import logging

import numpy as np
from tables import print_table

from flwr_causal.core.linear.model import fit
from flwr_causal.data.read.sachs import TARGETS, condition_parties, read_sachs
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


# The reagents that inhibit (-1) or activate (+1) one measured protein, their baseline, and the
# protein (Sachs et al. 2005, table 1).
REAGENTS = {
    "cd3_cd28+aktinhib": ("akt", -1, "cd3_cd28"),
    "cd3_cd28+g0076": ("pkc", -1, "cd3_cd28"),
    "cd3_cd28+psitect": ("pip2", -1, "cd3_cd28"),
    "cd3_cd28+u0126": ("mek", -1, "cd3_cd28"),
    "pma": ("pkc", 1, "cd3_cd28"),
    "b2camp": ("pka", 1, "cd3_cd28"),
}


def sachs(folder):
    """Total effects along the 17 edges of the literature, and what reagents do.

    Effects are in standard deviations of log(x + 10). A reagent's column is the change of the
    effect's mean by an activation of the cause, or minus that by an inhibition.
    """
    data = read_sachs(folder, edges=17, log=True, standardize=True)
    parties = condition_parties(data)
    targets = {k: TARGETS[name] for k, name in enumerate(parties) if name in TARGETS}
    cells = [parties["cd3_cd28"].iloc[k::4] for k in range(4)]
    observed = simulate("moments", cells, progress=False)
    acted = simulate("moments", list(parties.values()), interventions=targets, progress=False)
    edges = data.truth.reordered(observed.model.names)
    models = [fit(run.model.sample_moments, edges.adjacency) for run in (observed, acted)]
    means = {name: table.mean() for name, table in parties.items()}
    rows = []
    for cause, effect, _ in edges.edges():
        seen = [
            f"{sign * float(means[name][effect] - means[base][effect]):+.2f} ({name})"
            for name, (target, sign, base) in REAGENTS.items()
            if target == cause
        ]
        found = [model.total_effect(cause, effect) for model in models]
        cell = [
            f"{one.value:+.2f} ({one.interval[0]:+.2f} to {one.interval[1]:+.2f})" for one in found
        ]
        place = edges.names.index(cause), edges.names.index(effect)
        has = "yes" if observed.graph.adjacency[place] else "no"
        rows.append((f"{cause} -> {effect}", *cell, has, ", ".join(seen)))
    header = ("edge", "853 cells", "7466 cells, 9 conditions", "found in 853", "reagents")
    print_table("Sachs: total effects if the 17 edges are right", header, rows)
    for name, model in zip(("853 cells", "7466 cells"), models, strict=True):
        print(f"{name}, the 17 edges. Fit: {model.fit_check().summary()}")
    print(f"853 cells, the graph of moments. Fit: {observed.fit_check().summary()}")
    for edge in observed.doubtful_edges():
        print(edge)
