"""FedCausal on linear effects with noise of any shape, and other programs on the same rows.

Ten parties of 150 rows, Erdos-Renyi graphs, absolute coefficients from 0.5 to 2, noise terms of one
scale; the coefficients are each party's own, or the same at all. DirectLiNGAM sees the pooled rows,
its version for several groups the parties with one causal order and coefficients of their own;
sorting is least squares on the pooled rows in the order of variances or of R2.
"""

import logging
import warnings
from typing import NamedTuple

import numpy as np
from speed import cpu
from tables import print_table, verdict

from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.data.synthetic.random_graphs import erdos_renyi, signed_weights
from flwr_causal.simulations import simulate

try:
    import lingam
except ImportError as error:
    lingam = None
    print(f"skipped: the lingam package cannot be imported ({error}), see benchmarks/README.md")
try:
    from CausalDisco.baselines import r2_sort_regress, var_sort_regress
except ImportError as error:
    r2_sort_regress = var_sort_regress = None
    print(f"skipped: sorting ({error}); pip install CausalDisco")

NUM_PARTIES, NUM_ROWS = 10, 150
CUT = 0.3  # of the peers' weights, whose least one is 0.5
NOISE = {
    "exponential": lambda rng, shape: rng.standard_exponential(shape) - 1,
    "t(2.5)": lambda rng, shape: rng.standard_t(2.5, shape),
    "Laplace": lambda rng, shape: rng.laplace(size=shape),
    "Gaussian": lambda rng, shape: rng.standard_normal(shape),
}


class Case(NamedTuple):
    """One kind of data; ``hidden`` variables each cause two of the others."""

    noise: str
    own: bool
    d: int
    edges: int
    hidden: int = 0

    def data(self, seed):
        """Tables of the parties, and the edges among the visible variables."""
        rng = np.random.default_rng([17, seed, *map(int, self[1:]), *map(ord, self.noise)])
        edges = np.zeros((self.d + self.hidden,) * 2, dtype=bool)
        edges[: self.d, : self.d] = erdos_renyi(self.d, self.edges, rng)
        for one in range(self.d, len(edges)):
            edges[one, rng.choice(self.d, 2, replace=False)] = True
        weights, tables = edges * signed_weights(rng, 0.5, 2.0, edges.shape), []
        for _ in range(NUM_PARTIES):
            if self.own:
                weights = edges * signed_weights(rng, 0.5, 2.0, edges.shape)
            errors = NOISE[self.noise](rng, (NUM_ROWS, len(edges)))
            rows = np.linalg.solve((np.eye(len(edges)) - weights).T, errors.T).T
            tables.append(rows[:, : self.d])
        return tables, edges[: self.d, : self.d]


SMALL = [Case(noise, own, 10, e) for noise in NOISE for own in (True, False) for e in (10, 20)]
LARGE = [Case(noise, own, 20, e) for noise in NOISE for own in (True, False) for e in (20,)]
DENSE = [Case(noise, False, 20, 40) for noise in ("exponential", "Laplace")]
HIDDEN = [Case("Gaussian", own, 10, 10, 3) for own in (True, False)]
# Goals: mean SHD by number of variables, noise that is not Gaussian.
GOALS = {10: 2, 20: 4}


def federated(method, **options):
    return lambda tables: simulate(method, tables, **options).graph.weights


def pooled(estimate):
    return lambda tables: cut(estimate(np.concatenate(tables)))


def cut(weights):
    return np.where(np.abs(weights) > CUT, weights, 0.0)


def of_groups(tables):
    """An edge where the mean of the parties' absolute weights is above the cut."""
    model = lingam.MultiGroupDirectLiNGAM().fit(tables)
    return cut(np.mean([np.abs(weights) for weights in model.adjacency_matrices_], axis=0)).T


DEFAULT, GROUP, LINGAM = "default", 'refine="none"', "DirectLiNGAM, pooled"
METHODS = {DEFAULT: federated("fedcausal"), GROUP: federated("fedcausal", refine="none")}
METHODS["our `lingam`"] = federated("lingam")
if lingam is not None:
    METHODS[LINGAM] = pooled(lambda rows: lingam.DirectLiNGAM().fit(rows).adjacency_matrix_.T)
    METHODS["DirectLiNGAM, groups"] = of_groups
if var_sort_regress is not None:
    METHODS["by variance"] = pooled(var_sort_regress)
    METHODS["by R2"] = pooled(r2_sort_regress)
# Half a minute and more for 20 variables.
SLOW = ("DirectLiNGAM, groups", LINGAM)


def main(seeds, quick, modes=None):
    """``modes``: the columns; all by default."""
    logging.disable(logging.WARNING)
    methods = {name: one for name, one in METHODS.items() if modes is None or name in modes}
    for estimate in methods.values():  # imports on first use cost no method its time
        estimate(Case("Laplace", True, 4, 3).data(0)[0])
    groups = {"d = 10": SMALL, "hidden causes of two variables each": HIDDEN}
    if not quick:
        groups |= {"d = 20": LARGE, "d = 20, dense": DENSE}
    for title, cases in groups.items():
        report(title, cases, seeds, methods)


def report(title, cases, seeds, methods):
    rows, lines, goals = [], [], []
    for case in cases:
        cells, seconds = {}, {}
        for name, estimate in methods.items():
            chosen = seeds[:1] if case.d > 10 and name in SLOW else seeds
            runs = [once(estimate, case, seed) for seed in chosen]
            cells[name], seconds[name] = zip(*runs, strict=True)
        words = (case.noise, "own" if case.own else "same", case.d, case.edges)
        rows.append([*words, *(", ".join(map(str, cells[name])) for name in methods)])
        lines.append([*words, *(f"{np.mean(seconds[name]):.1f}" for name in methods)])
        if DEFAULT in cells and case.hidden and GROUP in cells:
            goals.append((words, np.mean(cells[DEFAULT]), np.mean(cells[GROUP])))
        elif DEFAULT in cells and case.noise != "Gaussian":
            goals.append((words, np.mean(cells[DEFAULT]), GOALS[case.d]))
        print(rows[-1], flush=True)
    header = ("noise", "weights", "d", "edges", *methods)
    print_table(f"SHD by seed ({seeds}), linear effects, {title}", header, rows)
    print_table(f"CPU seconds, {title}", header, lines)
    print_table(
        f"Goals: mean SHD of the default, {title}",
        ("data", "SHD", "at most", "met"),
        [
            (" ".join(map(str, words)), f"{shd:.2f}", f"{goal:.2f}", verdict(shd <= goal))
            for words, shd, goal in goals
        ],
    )


def once(estimate, case, seed):
    """SHD, and CPU seconds."""
    tables, truth = case.data(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights, seconds = cpu(estimate, tables)
    return structural_hamming_distance(truth, weights != 0), seconds
