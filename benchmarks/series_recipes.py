"""How to rank the effects of time series: recipes, compared on simulated systems only.

A recipe may depend on what users know without the graph: whether a known perturbation acted in some
rows, and how fast the series were sampled. Two kinds of systems, both with d^2 pairs to rank:

- *sampled as fast as effects act*: ten series of 21 steps, of which an unknown constant input acts
  on a third of the variables in the first half (gene expression after a perturbation);
- *sampled more slowly*: 20 steps of the system for each row, and measurement noise; 200 rows, cut
  over five parties (functional MRI).
"""

import numpy as np
from tables import print_table

from flwr_causal.core.graphs.metrics import auprc, auroc
from flwr_causal.simulations import simulate

PARTIES = 5
BASE = {"standardize": True, "sparsity": "held-out", "time_column": "time"}
PHASE = {"center": "phase", "perturbed_from": 0.0, "perturbed_to": 10.0}
PAST = {**BASE, "order": 1, "instantaneous": False}
BEST_ORDER = {"order": 3, "select_order": True}
NOW = {**BASE, "order": 1, "instantaneous": "auto"}
FAST_RECIPES = {
    "lasso, global means": PAST,
    "lasso, phases": {**PAST, **PHASE},
    "ridge, phases": {**PAST, **PHASE, "regression": "ridge"},
    "lasso, phases, order chosen": {**PAST, **PHASE, **BEST_ORDER},
    "ridge, phases, order chosen": {**PAST, **PHASE, **BEST_ORDER, "regression": "ridge"},
    "held-out, phases, order chosen": {**PAST, **PHASE, **BEST_ORDER, "regression": "held-out"},
}
SLOW_RECIPES = {
    "W + A": NOW,
    "ridge on the past": {**PAST, "regression": "ridge"},
    "partial correlation": {**NOW, "ranking": "partial-correlation"},
    "partial correlation + weights": {**NOW, "ranking": "partial-correlation+weights"},
}


def main(seeds, quick):
    table("sampled as fast as effects act, d = 60", fast_system, FAST_RECIPES, seeds, (60,))
    sizes = (5, 10) if quick else (5, 10, 15)
    table("sampled more slowly, d = 5, 10, 15", slow_system, SLOW_RECIPES, seeds, sizes)


def table(title, system, recipes, seeds, sizes):
    cases = [system(d, seed) for d in sizes for seed in seeds]
    rows = []
    for name, options in recipes.items():
        found = np.array([areas(parties, truth, options) for parties, truth in cases])
        means, errors = found.mean(axis=0), found.std(axis=0) / np.sqrt(max(len(found) - 1, 1))
        cells = (f"{m:.3f} ± {e:.3f}" for m, e in zip(means, errors, strict=True))
        rows.append((name, *cells))
    print_table(f"Systems {title}, seeds {list(seeds)}", ("recipe", "AUROC", "AUPR"), rows)


def areas(parties, truth, options):
    scores = simulate("moments", parties, **options).scores
    return auroc(scores, truth), auprc(scores, truth)


def edges(rng, d, mean_degree, *, acyclic):
    found = rng.random((d, d)) < mean_degree / d
    if acyclic:
        order = rng.permutation(d)
        found = np.triu(rng.random((d, d)) < 2 * mean_degree / d, 1)[np.ix_(order, order)]
    np.fill_diagonal(found, False)
    return found


def fast_system(d, seed, num_series=10, steps=21, perturbed=11):
    """Saturating effects of few regulators, with decay; two series a party."""
    rng = np.random.default_rng([17, d, seed])
    truth = edges(rng, d, 2.0, acyclic=False) & (rng.random(d) < 0.5)[:, None]
    weights = truth * rng.uniform(0.1, 0.4, (d, d)) * rng.choice([-1.0, 1.0], (d, d))
    series = []
    for _ in range(num_series):
        force = (rng.random(d) < 1 / 3) * rng.normal(0.0, 1.0, d)
        x, rows = rng.normal(0.0, 0.3, d), []
        for t in range(steps):
            rows.append(np.append(x + rng.normal(0.0, 0.05, d), t))
            force_now = force if t < perturbed else 0.0
            x = 0.5 * x + np.tanh(x) @ weights + force_now + rng.normal(0.0, 0.2, d)
        series.append(as_frame(np.array(rows)))
    return [series[k::PARTIES] for k in range(PARTIES)], truth


def slow_system(d, seed, num_rows=200, skipped=20):
    """A stable linear flow that is observed once in 20 steps, with noise."""
    rng = np.random.default_rng([18, d, seed])
    truth = edges(rng, d, 1.0, acyclic=True)
    weights = truth * rng.uniform(0.3, 0.6, (d, d))
    x, rows = np.zeros(d), []
    for t in range((num_rows + 20) * skipped):
        x = x + 0.2 * (x @ weights - x) + rng.normal(0.0, 1.0, d)
        if t % skipped == 0 and t >= 20 * skipped:
            rows.append(x.copy())
    values = np.array(rows)
    values += 0.1 * values.std(axis=0) * rng.normal(size=values.shape)
    values = np.column_stack([values, np.arange(num_rows)])
    return [as_frame(part) for part in np.array_split(values, PARTIES)], truth


def as_frame(rows):
    import pandas as pd

    return pd.DataFrame(rows, columns=[f"x{j}" for j in range(rows.shape[1] - 1)] + ["time"])
