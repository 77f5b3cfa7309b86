"""Whether confidences, intervals and tests of fit are right as often as they say."""

import logging
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.files import located
from benchmarks.measure.registry import Table, benchmark
from benchmarks.readers.sachs import TARGETS, condition_parties, read_sachs
from flwr_causal.core.graphs.fit_check import check
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.core.linear.independence import NumberTests
from flwr_causal.core.linear.moments import SampleMoments, merge
from flwr_causal.core.systems.linear import fit
from flwr_causal.data.synthetic.discrete import federated_discrete
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.simulations import simulate

logging.disable(logging.WARNING)  # single rows of exponential noise are warned of
NUM_VARIABLES = 10
SETS_PER_SEED = 16
DRAWS = {
    "Gaussian": lambda rng, shape: rng.normal(size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1,
}
METHODS = ("moments", "lingam")
REPLICATES, PARTIES = 100, 4
SURE = 0.85
BINS = 10
# Parties, and the standard deviation of their effects about the mean.
DIFFERING = ((3, 0.0), (3, 0.3), (6, 0.3), (12, 0.0), (12, 0.3), (30, 0.3))
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


@benchmark("calibration-effects", "Intervals of total effects that contain the truth", "4000-4004")
def effects(setup):
    rows = []
    for noise in DRAWS:
        for n in (200, 1000) if setup.quick else (200, 1000, 5000):
            hits = {name: [] for name in ("true", *METHODS)}
            right = {name: [] for name in METHODS}
            for seed in setup.seeds:
                rng = np.random.default_rng(seed)
                for _ in range(SETS_PER_SEED):
                    edges, total, table = rows_of(n, noise, rng)
                    for method in METHODS:
                        run = simulate(method, np.array_split(table, 3), progress=False)
                        hits[method] += covered(run.model, total)
                        right[method].append(np.array_equal(run.graph.adjacency, edges))
                    hits["true"] += covered(fit(run.model.sample_moments, edges), total)
            shares = (percent(np.mean(found)) for found in (*hits.values(), *right.values()))
            rows.append((noise, f"{n:,}", *shares))
    columns = ("Noise", "Rows", "True graph", *(f"Found by `{m}`" for m in METHODS))
    return Table((*columns, *(f"Graph without an error: `{m}`" for m in METHODS)), rows)


def percent(share):
    return f"{100 * share:.0f} %"


@benchmark("calibration-effects-sachs", "Total effects in the cells of Sachs et al.", "0")
def effects_of_proteins(setup):
    """Total effects along the 17 edges of the literature, and what reagents do.

    Effects are in standard deviations of log(x + 10). A reagent's column is the change of the
    effect's mean by an activation of the cause, or minus that by an inhibition.
    """
    names = ("sachs_all_7466.csv", "conditions.csv", "edges_dag_17.csv")
    folder = located(setup.data_dir, "sachs", *names)
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
        changes = {
            name.rpartition("+")[2]: sign * float(means[name][effect] - means[base][effect])
            for name, (target, sign, base) in REAGENTS.items()
            if target == cause
        }
        found = [model.total_effect(cause, effect) for model in models]
        cell = [
            f"{one.value:+.2f} ({one.interval[0]:+.2f} to {one.interval[1]:+.2f})" for one in found
        ]
        rows.append(
            (
                f"{cause} → {effect}",
                *cell,
                ", ".join(f"{change:+.2f} ({name})" for name, change in changes.items()),
            )
        )
    columns = ("Edge", "853 cells, 95 % interval", "7,466 cells, 95 % interval", "Reagent")
    fits = [f"853 cells, the graph of `moments`: {observed.fit_check().summary()}"]
    for name, model in zip(("853", "7,466"), models, strict=True):
        fits.append(f"{name} cells, the 17 edges: {model.fit_check().summary()}")
    return Table(columns, rows, tuple(" ".join(one.split()) for one in fits))


def linear(graph, d, n, seed):
    """The papers' simulator: Erdos-Renyi or scale-free, linear, Gaussian noise of one variance."""
    frames, weights = federated_linear(d, n, PARTIES, graph=graph, seed=seed)
    return frames, weights != 0, None


def weak(d, n, seed):
    """Weights from 0.2 to 1 and noise of different variances, outside the papers' simulators."""
    rng = np.random.default_rng(seed)
    shape = (d, d)
    edges = np.triu(rng.random(shape) < 2 / d, 1)
    weights = edges * rng.uniform(0.2, 1, shape) * rng.choice([-1, 1], shape)
    noise = rng.normal(size=(n, d)) * rng.uniform(0.7, 1.4, d)
    return np.array_split(noise @ np.linalg.inv(np.eye(d) - weights), PARTIES), edges, None


def series(d, n, seed):
    """The simulator of the 2Dbn paper with one lag."""
    frames, truth = federated_dynamic(d, n, PARTIES, seed=seed)
    return frames, truth.adjacency, truth.lagged[:1] != 0


def categories(d, n, seed):
    """Random networks of categories."""
    frames, network = federated_discrete(d, n, PARTIES, seed=seed)
    return frames, network.graph.adjacency, None


REPLICATED = [
    *(
        (f"linear, {graph}, d = {d}, n = {n}", partial(linear, graph, d, n), method, options)
        for method, options in (("moments", {}), ("moments", {"solver": "ges"}))
        for graph in ("er", "sf")
        for d in (10, 20)
        for n in (256, 2000)
    ),
    *((f"weak effects, d = 10, n = {n}", partial(weak, 10, n), "moments", {}) for n in (256, 2000)),
    *(
        (f"series, d = 8, n = {n}", partial(series, 8, n), "moments", {"order": 1})
        for n in (300, 1000)
    ),
    *(
        (f"categories, d = {d}, n = {n}", partial(categories, d, n), "fedges", {})
        for d, n in ((10, 1000), (10, 5000), (20, 5000))
    ),
]


def calibration_error(confidence, true):
    """Return the expected calibration error."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return sum(
        (bins == k).mean() * abs(confidence[bins == k].mean() - true[bins == k].mean())
        for k in np.unique(bins)
    )


def pairs_of(run, truth, lagged):
    """Return the confidences of all possible edges, and which of these are true."""
    graph, d = run.graph, len(truth)
    if run.config["method"] == "fedges":
        upper = np.triu_indices(d, 1)
        return graph.adjacency_confidence[upper], (truth | truth.T)[upper]
    off = ~np.eye(d, dtype=bool)
    parts = [(graph.confidence[off], truth[off])]
    if lagged is not None:
        parts.append((graph.lagged_confidence.ravel(), lagged.ravel()))
    return tuple(map(np.concatenate, zip(*parts, strict=True)))


@benchmark(
    "calibration-confidence", "Whether confidences are shares of edges that are right", "0-2"
)
def confidence(setup):
    rows = []
    for name, make, method, options in REPLICATED[::8] if setup.quick else REPLICATED:
        found, errors = [], []
        for seed in setup.seeds:
            parties, truth, lagged = make(seed)
            options = {"replicates": REPLICATES, "progress": False, **options}
            run = simulate(method, parties, seed=seed, **options)
            found.append(pairs_of(run, truth, lagged))
            errors.append([compare(truth, g)["shd"] for g in (run.graph, run.graph.averaged())])
        sure_of, true = map(np.concatenate, zip(*found, strict=True))
        sure, some = sure_of >= SURE, sure_of > 0
        solver = f', `solver="{options["solver"]}"`' if "solver" in options else ""
        all_, positive = (calibration_error(sure_of[k], true[k]) for k in (sure_of >= 0, some))
        rows.append(
            (
                name,
                f"`{method}`{solver}",
                f"{all_:.3f} ({positive:.3f})",
                f"{true[sure].sum()} of {sure.sum()}",
                f"{true[sure].sum() / true.sum():.2f}",
                "{:.1f}, {:.1f}".format(*np.mean(errors, axis=0)),
            )
        )
    columns = ("Data", "Method", "Error", f"Right of those from {SURE} up")
    columns += (f"Share of the true edges with {SURE} or more",)
    return Table((*columns, "SHD of the graph, of the averaged graph"), rows)


@benchmark("calibration-fit", "Rejections of true and wrong graphs", "7100-7104")
def rejections(setup):
    found = {}
    for n in (200,) if setup.quick else (200, 1000):
        for seed in setup.seeds:
            rng = np.random.default_rng(seed)
            for _ in range(SETS_PER_SEED):
                for name, one in checks(n, rng):
                    rejected = len(one.rejected) > 0, len(one.dependent_residuals) > 0
                    found.setdefault((name, n), []).append((*rejected, one.p_value < 0.05))
    rows = [
        (name, f"{n:,}", len(results), *map(percent, np.mean(results, axis=0)))
        for (name, n), results in sorted(found.items(), key=lambda item: ORDER.index(item[0][0]))
    ]
    columns = ("Graph", "Rows", "Graphs", "Some independence fails", "Some residuals correlate")
    return Table((*columns, "`p_value` below 0.05"), rows)


ORDER = (
    "the true one",
    "one edge missing (weights from 0.2 to 1)",
    "a hidden common cause of two variables without an edge",
    *(
        f"found by `{method}`, wrong: on the {rows} half"
        for method in METHODS
        for rows in ("search's", "other")
    ),
)


def checks(n, rng):
    """Yield checks of one system: of its graph, and of others."""
    edges, total, table = rows_of(n, "exponential", rng)
    yield ORDER[0], check(NumberTests(SampleMoments.from_rows(table), edges.shape[1]), edges)
    i, j = rng.permutation(np.argwhere(edges))[0]
    lacking = edges.copy()
    lacking[i, j] = False
    yield ORDER[1], check(NumberTests(SampleMoments.from_rows(table), lacking.shape[1]), lacking)
    noise = table @ np.linalg.inv(total)
    pairs = np.argwhere(np.triu(~edges, 1))
    noise[:, rng.permutation(pairs)[0]] += 0.7 * (rng.exponential(size=(n, 1)) - 1)
    yield (
        ORDER[2],
        check(NumberTests(SampleMoments.from_rows(noise @ total), edges.shape[1]), edges),
    )
    fresh = rng.permutation(table)
    for k, method in enumerate(METHODS):
        run = simulate(method, np.array_split(fresh[: n // 2], 3), progress=False)
        if not np.array_equal(run.graph.adjacency, edges):
            yield ORDER[3 + 2 * k], run.fit_check()
            yield ORDER[4 + 2 * k], run.fit_check(fresh[n // 2 :])


@benchmark("calibration-by-party", "Intervals by party that contain the mean effect", "7100-7104")
def by_party(setup):
    """Classical intervals, and those that are clustered by party, of parties of 60 rows."""
    rows = []
    for count, spread in DIFFERING[:2] if setup.quick else DIFFERING:
        hits = []
        for seed in setup.seeds:
            rng = np.random.default_rng(seed)
            for _ in range(10 * SETS_PER_SEED):
                model = of_parties(count, spread, rng)
                ends = [model.total_effect("x", "y", by_party=one).interval for one in (0, 1)]
                hits.append([(low <= 1 <= high, high - low) for low, high in ends])
        cells = (f"{percent(share)}, {width:.2f}" for share, width in np.mean(hits, axis=0))
        rows.append((count, f"{spread:g}", *cells))
    columns = ("Parties", "Standard deviation of the effect between parties")
    return Table((*columns, "Classical", "By party"), rows)


def of_parties(count, spread, rng):
    edges = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]])
    parties = {}
    for k in range(count):
        z, noise = rng.normal(size=60), rng.normal(size=(2, 60))
        x = 0.8 * z + noise[0]
        y = (1 + spread * rng.normal()) * x + z + noise[1]
        parties[str(k)] = SampleMoments.from_rows(np.column_stack([z, x, y]), ("z", "x", "y"))
    return replace(fit(merge(parties.values()), edges), party_moments=parties)
