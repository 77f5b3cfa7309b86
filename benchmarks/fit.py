"""How often tests of fit reject, and how often intervals by party contain the mean effect.

The systems are those of the suite `effects`, with exponential noise.
"""

import logging
from dataclasses import replace

import numpy as np
from effects import rows_of
from tables import print_table

from flwr_causal.core.linear.fit_check import check
from flwr_causal.core.linear.model import fit
from flwr_causal.core.linear.moments import Moments, merge
from flwr_causal.simulations import simulate

SIZES = (200, 1000)
SETS_PER_SEED = 16
# Parties, and the standard deviation of their effects about the mean.
PARTIES = ((3, 0.0), (3, 0.3), (6, 0.3), (12, 0.0), (12, 0.3), (30, 0.3))


def main(seeds, quick):
    logging.disable(logging.WARNING)  # single rows of exponential noise are warned of
    rejections(seeds, quick)
    by_party(seeds)


def rejections(seeds, quick):
    rows = []
    for n in SIZES[:1] if quick else SIZES:
        found = {}
        for seed in seeds:
            rng = np.random.default_rng(seed)
            for _ in range(SETS_PER_SEED):
                for name, one in checks(n, rng):
                    rejected = len(one.rejected) > 0, len(one.dependent_residuals) > 0
                    found.setdefault(name, []).append((*rejected, one.p_value < 0.05))
        for name, results in found.items():
            shares = (f"{share:.2f}" for share in np.mean(results, axis=0))
            rows.append((n, name, len(results), *shares))
    header = ("rows", "graph", "tests", "an independence fails", "residuals correlated", "p < 0.05")
    print_table("Share of samples in which a test rejects", header, rows)


def checks(n, rng):
    """Yield checks of one system: of its graph, and of others."""
    edges, total, table = rows_of(n, "exponential", rng)
    yield "the true one", check(Moments.from_rows(table), edges)
    i, j = rng.permutation(np.argwhere(edges))[0]
    lacking = edges.copy()
    lacking[i, j] = False
    yield "one edge missing", check(Moments.from_rows(table), lacking)
    noise = table @ np.linalg.inv(total)
    pairs = np.argwhere(np.triu(~edges, 1))
    noise[:, rng.permutation(pairs)[0]] += 0.7 * (rng.exponential(size=(n, 1)) - 1)
    yield "a hidden common cause of two variables", check(Moments.from_rows(noise @ total), edges)
    fresh = rng.permutation(table)
    for method in ("moments", "lingam"):
        run = simulate(method, np.array_split(fresh[: n // 2], 3), progress=False)
        if not np.array_equal(run.graph.adjacency, edges):
            yield f"{method}, wrong, on its own rows", run.fit_check()
            yield f"{method}, wrong, on other rows", run.fit_check(fresh[n // 2 :])


def by_party(seeds):
    rows = []
    for count, spread in PARTIES:
        hits = []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            for _ in range(10 * SETS_PER_SEED):
                model = of_parties(count, spread, rng)
                ends = [model.total_effect("x", "y", by_party=one).interval for one in (0, 1)]
                hits.append([(low <= 1 <= high, high - low) for low, high in ends])
        (classical, width), (clustered, wide) = np.mean(hits, axis=0)
        shares = f"{classical:.3f}", f"{clustered:.3f}"
        rows.append((count, spread, *shares, f"{width:.2f}", f"{wide:.2f}"))
    header = ("parties", "sd of effects", "classical", "by party", "width", "width by party")
    print_table("Intervals that contain the mean effect of parties of 60 rows", header, rows)


def of_parties(count, spread, rng):
    edges = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]])
    parties = {}
    for k in range(count):
        z, noise = rng.normal(size=60), rng.normal(size=(2, 60))
        x = 0.8 * z + noise[0]
        y = (1 + spread * rng.normal()) * x + z + noise[1]
        parties[str(k)] = Moments.from_rows(np.column_stack([z, x, y]), ("z", "x", "y"))
    return replace(fit(merge(parties.values()), edges), party_moments=parties)
