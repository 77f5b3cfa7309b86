"""Whether a confidence is the share of edges that are right: calibration of replicates.

Counted are ordered pairs of variables; of categories, whose directions may be open, unordered ones,
and the truth is the adjacency. The expected calibration error is the mean distance, over ten bins
of the confidence weighted by their pairs, of the mean confidence from the share that is true: of
all pairs, and of those with a confidence above 0.
"""

import logging
import time
from functools import partial

import numpy as np
from tables import print_table

from flwr_causal.core.graphs.metrics import compare
from flwr_causal.data.synthetic.discrete import federated_discrete
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.simulations import simulate

REPLICATES, PARTIES = 100, 4
SURE = 0.85
BINS = 10


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


CASES = [
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


def main(seeds, quick):
    logging.disable(logging.WARNING)
    rows = []
    for name, make, method, options in CASES[::8] if quick else CASES:
        started, found, errors = time.process_time(), [], []
        for seed in seeds:
            parties, truth, lagged = make(seed)
            run = simulate(
                method, parties, replicates=REPLICATES, seed=seed, progress=False, **options
            )
            found.append(pairs_of(run, truth, lagged))
            errors.append([compare(truth, g)["shd"] for g in (run.graph, run.graph.averaged())])
        confidence, true = map(np.concatenate, zip(*found, strict=True))
        sure, some = confidence >= SURE, confidence > 0
        rows.append(
            [
                name,
                " ".join([method, *(f"{k}={v}" for k, v in options.items())]),
                f"{calibration_error(confidence, true):.3f}",
                f"{calibration_error(confidence[some], true[some]):.3f}",
                f"{true[sure].mean():.3f} of {sure.sum()}" if sure.any() else "none",
                f"{true[sure].sum() / true.sum():.2f}",
                "{:.1f}, {:.1f}".format(*np.mean(errors, axis=0)),
                f"{(time.process_time() - started) / len(list(seeds)):.1f}",
            ]
        )

    header = [
        *("case", "method", "error", "error, confidence > 0"),
        f"right of confidence >= {SURE}",
        *("share of the true edges", "SHD of the graph, of the averaged graph", "CPU s a run"),
    ]
    print_table(f"Calibration of {REPLICATES} replicates", header, rows)
