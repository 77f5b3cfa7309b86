"""Known interventions: errors of the linear methods with ``interventions`` and without.

One party has observations. On each of the others one or two columns were set: to a level of their
own, one to three standard deviations of their noise away, with their noise around it. Two edges a
column in the mean, absolute weights of at most 1.5; noise of standard deviation 1, or from .5 to 2.
"""

import numpy as np
from tables import mean_and_error, print_table, with_error

from flwr_causal.core.ges.cpdag import class_of
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.interventions import distinguished_pairs
from flwr_causal.simulations import simulate

# Number of columns: rows of the first party, of each other one, and the number of these.
SIZES = {10: (200, 100, 4), 20: (400, 100, 8)}
METHODS = {
    'moments, solver="ges" (default)': ("moments", {"solver": "ges"}),
    'moments, solver="order"': ("moments", {"solver": "order"}),
    'moments, solver="dagma"': ("moments", {"solver": "dagma"}),
    "notears-admm": ("notears-admm", {}),
    "notears-admm, search=False": ("notears-admm", {"search": False}),
}
SERIES_SIZES = {5: (200, 100, 4), 10: (200, 100, 4)}
SERIES_METHODS = {
    "2dbn": ("2dbn", {}),
    'moments, order=1, solver="order"': ("moments", {"solver": "order", "order": 1}),
}
BURN_IN = 50
STABLE, LEAST = 0.85, 0.2


def main(seeds, quick):
    rows, series = [], []
    for equal in (True, False):
        for d in (10,) if quick else SIZES:
            rows += [
                (d, noise_of(equal), *measured(*one, d, equal, seeds)) for one in METHODS.items()
            ]
        for d in (5,) if quick else SERIES_SIZES:
            series += [
                (d, noise_of(equal), *measured_series(*one, d, equal, seeds))
                for one in SERIES_METHODS.items()
            ]
    header = ("d", "noise", "method")
    print_table(
        f"Known interventions, means over {len(seeds)} seeds",
        (*header, "SHD with", "without", "pairs wrong in the class with", "without"),
        rows,
    )
    print_table(
        f"Known interventions in series, means over {len(seeds)} seeds",
        (*header, "SHD of W with", "without", "errors of A with", "without"),
        series,
    )


def noise_of(equal):
    return "equal" if equal else "unequal"


def measured(name, method, d, equal, seeds):
    """Errors with interventions stated and without, also as classes that interventions tell."""
    found = {True: [], False: []}
    for seed in seeds:
        parties, stated, weights = case(d, seed, equal)
        acted = np.zeros((len(parties), d), dtype=bool)
        for party, names in stated.items():
            acted[party, [int(name[1:]) for name in names]] = True
        for use in found:
            run = run_of(method, parties, stated if use else None, weights)
            found[use].append((run.metrics["shd"], pairs_wrong(run.graph, weights, acted)))
    return name, *side_by_side(found)


def measured_series(name, method, d, equal, seeds):
    """Errors of W and of A with interventions stated and without."""
    found = {True: [], False: []}
    for seed in seeds:
        parties, stated, truth = series_case(d, seed, equal)
        for use in found:
            metrics = run_of(method, parties, stated if use else None, truth).metrics
            found[use].append((metrics["shd"], metrics["lagged_shd"]))
    return name, *side_by_side(found)


def run_of(method, parties, stated, truth):
    name, options = method
    given = {} if stated is None else {"interventions": stated}
    return simulate(name, parties, truth=truth, progress=False, **options, **given)


def side_by_side(found):
    columns = [np.array(found[use], dtype=float).T for use in (True, False)]
    return [
        with_error(*mean_and_error(values))
        for both in zip(*columns, strict=True)
        for values in both
    ]


def pairs_wrong(graph, weights, acted):
    """Pairs that differ from the class of the true graph: its edges that data can direct."""
    pairs = distinguished_pairs(acted)
    marks = graph.adjacency if graph.kind == "cpdag" else class_of(graph.adjacency, pairs)
    differ = marks != class_of(weights != 0, pairs)
    return int(np.triu(differ | differ.T, 1).sum())


def case(d, seed, equal):
    """Tables of the parties, the targets by party, and the true weights (d, d)."""
    observed, acted, count = SIZES[d]
    rng = np.random.default_rng([seed, d, 77])
    place = np.argsort(rng.permutation(d))
    edges = np.triu(rng.random((d, d)) < 4 / (d - 1), 1)[np.ix_(place, place)]
    weights = edges * rng.uniform(0.5, 1.5, (d, d)) * rng.choice([-1, 1], (d, d))
    spread = np.ones(d) if equal else rng.uniform(0.5, 2, d)

    def rows(n, targets=()):
        own = weights.copy()
        own[:, list(targets)] = 0
        noise = rng.normal(size=(n, d)) * spread
        for j in targets:
            level = rng.uniform(1, 3) * rng.choice([-1, 1])
            noise[:, j] = level * spread[j] + rng.normal(size=n) * spread[j]
        return noise @ np.linalg.inv(np.eye(d) - own)

    return *with_targets(rng, d, count, rows(observed), lambda own: rows(acted, own)), weights


def series_case(d, seed, equal):
    """Series of the parties, the targets by party at all steps, and the true graph."""
    observed, acted, count = SERIES_SIZES[d]
    rng = np.random.default_rng([seed, d, 88])
    order = rng.permutation(d)
    present = np.triu(rng.random((d, d)) < 2 / (d - 1), 1)
    weights = present * rng.uniform(0.4, 1.0, (d, d)) * rng.choice([-1, 1], (d, d))
    weights = weights[np.ix_(order, order)]
    past = (rng.random((d, d)) < 1.5 / d) * rng.uniform(0.3, 0.6, (d, d))
    past = past * rng.choice([-1, 1], (d, d))
    while np.abs(np.linalg.eigvals(past @ np.linalg.inv(np.eye(d) - weights))).max() >= STABLE:
        past = past * 0.9
    past = np.where(np.abs(past) < LEAST, 0, past)
    spread = np.ones(d) if equal else rng.uniform(0.5, 2, d)

    def series(length, targets=()):
        now, then, level = weights.copy(), past.copy(), np.zeros(d)
        now[:, list(targets)] = then[:, list(targets)] = 0
        for j in targets:
            level[j] = rng.uniform(1, 3) * rng.choice([-1, 1]) * spread[j]
        values, inverse = np.zeros((length + BURN_IN, d)), np.linalg.inv(np.eye(d) - now)
        for t in range(1, length + BURN_IN):
            values[t] = (values[t - 1] @ then + level + spread * rng.normal(size=d)) @ inverse
        return values[BURN_IN:]

    truth = CausalGraph([f"x{j}" for j in range(d)], weights, lagged=past[None])
    return *with_targets(rng, d, count, series(observed), lambda own: series(acted, own)), truth


def with_targets(rng, d, count, first, draw):
    """Return the tables of all parties, and the targets of those after the first."""
    parties, stated = [first], {}
    for party in range(1, count + 1):
        targets = rng.choice(d, rng.integers(1, 3), replace=False).tolist()
        parties.append(draw(targets))
        stated[party] = [f"x{j}" for j in targets]
    return parties, stated
