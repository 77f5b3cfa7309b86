"""The two applications of the 2Dbn paper: gene regulation (DREAM4) and small brains (NetSim).

The data are not part of this package: give the folder with ``size100_1.npz`` to ``size100_5.npz``
and the one with ``sim1.npz`` to ``sim3.npz``. The truth is used for scoring only. AUROC and AUPR
are over ordered pairs of different variables, ties taken together.
"""

import time

import numpy as np
from tables import print_table, verdict

from flwr_causal.core.graphs.metrics import auprc, auroc, binary_auroc
from flwr_causal.data.read.dream4 import TIME, dream4_parties, read_dream4
from flwr_causal.data.read.netsim import PAPER_SUBJECTS, cut_series, read_netsim
from flwr_causal.simulations import simulate

# Chen, Ma & Yue (2024), section 5.
PARTIES = 5
PAPER_DREAM4 = {
    "AUROC": (0.64, 0.58, 0.60, 0.58, 0.62),
    "AUPR": (0.054, 0.032, 0.041, 0.034, 0.035),
}
PAPER_DREAM4_MEANS = (0.600, 0.040)
PAPER_NETSIM = {
    5: (0.70, 0.75, 0.76, 0.78, 0.70),
    10: (0.69, 0.77, 0.71, 0.69, 0.83),
    15: (0.68, 0.75, 0.71, 0.77, 0.77),
}
SIMULATION = {5: 1, 10: 2, 15: 3}
RAW_DREAM4 = {"time_column": TIME, "sparsity": 0.0025, "lagged_sparsity": 1.0}
ADMM_NETSIM = {"sparsity": 0.05, "lagged_sparsity": 0.2}  # lambda_W = 0.05, lambda_A = 0.01

# One exchange of sums. The perturbation of the first half of each series is an unknown constant.
PHASES = {"center": "phase", "perturbed_from": 0.0, "perturbed_to": 500.0}
PAST = {
    "time_column": TIME,
    "standardize": True,
    "instantaneous": False,
    "sparsity": "held-out",
    "order": 1,
}
UP_TO_3 = {**PAST, **PHASES, "order": 3, "select_order": True}
RECIPES = {
    "lasso, global centring, p = 1": PAST,
    "ridge, global centring, p = 1": {**PAST, "regression": "ridge"},
    "lasso, phases, p = 1": {**PAST, **PHASES},
    "ridge, phases, p = 1": {**PAST, **PHASES, "regression": "ridge"},
    "lasso, phases, p chosen": UP_TO_3,
    "ridge, phases, p chosen": {**UP_TO_3, "regression": "ridge"},
    "chosen by held-out error, phases, p chosen": {**UP_TO_3, "regression": "held-out"},
}
GOALS_DREAM4 = {
    "chosen by held-out error, phases, p chosen": (0.70, 0.21),
}

NOW_AND_PAST = {"order": 1, "standardize": True, "instantaneous": "auto", "sparsity": "held-out"}
NETSIM_RECIPES = {
    "|W| + |A|, instantaneous part by held-out error": NOW_AND_PAST,
    "ridge on the past": {
        "order": 1,
        "standardize": True,
        "instantaneous": False,
        "regression": "ridge",
    },
    "partial correlation": {**NOW_AND_PAST, "ranking": "partial-correlation"},
    "partial correlation + weights": {**NOW_AND_PAST, "ranking": "partial-correlation+weights"},
}
GOALS_NETSIM = {5: 0.82, 10: 0.89, 15: 0.90}


def main(dream4, netsim, quick):
    if dream4 is None:
        print("\nskipped: DREAM4 needs --dream4 FOLDER")
    else:
        networks = [read_dream4(dream4, number) for number in range(1, 3 if quick else 6)]
        dream4_as_the_paper(networks)
        dream4_recipes(networks)
    if netsim is None:
        print("\nskipped: NetSim needs --netsim FOLDER")
    else:
        sizes = (5,) if quick else tuple(SIMULATION)
        netsim_as_the_paper(netsim, sizes)
        netsim_recipes(netsim, sizes)
        netsim_subjects(netsim, sizes)


def dream4_as_the_paper(networks):
    """Raw data, sparsity 0.0025 for both blocks, |W| + |A|."""
    methods = {
        "2dbn, paper's schedule": ("2dbn", {"schedule": "paper", "refit": False, **RAW_DREAM4}),
        "2dbn, 25 rounds": ("2dbn", {"refit": False, "max_rounds": 25, **RAW_DREAM4}),
        "2dbn, 25 rounds, its own sparsity": ("2dbn", {"time_column": TIME}),
        "moments": ("moments", {"order": 1, **RAW_DREAM4}),
    }
    paper = [*map(pair, *PAPER_DREAM4.values())][: len(networks)]
    rows = [("paper", *paper, pair(*PAPER_DREAM4_MEANS), "", "", "")]
    for name, (method, options) in methods.items():
        found, means, rounds, seconds = dream4_runs(networks, method, options)
        met = verdict(np.all(np.round(means, 3) >= PAPER_DREAM4_MEANS))
        cells = (pair(*values) for values in found)
        rows.append((name, *cells, pair(*means), rounds, f"{seconds:.1f}", met))
    numbers = (f"network {k}" for k in range(1, len(networks) + 1))
    print_table(
        f"DREAM4, size 100, {PARTIES} parties, as in the paper: AUROC / AUPR (goal: the paper's)",
        ("method", *numbers, "mean", "exchanges", "CPU s", "met"),
        rows,
    )


def dream4_recipes(networks):
    """What one exchange of sums tells with the penalties chosen by held-out error."""
    rows = []
    for name, options in RECIPES.items():
        found, means, _, seconds = dream4_runs(networks, "moments", options)
        goal = GOALS_DREAM4.get(name)
        met = verdict(np.all(np.round(means, 3) >= goal)) if goal else ""
        cells = (pair(*values) for values in found)
        rows.append(
            (name, *cells, pair(*means), f"{seconds:.1f}", pair(*goal) if goal else "", met)
        )
    numbers = (f"network {k}" for k in range(1, len(networks) + 1))
    print_table(
        f"DREAM4, size 100, {PARTIES} parties, one exchange: AUROC / AUPR",
        ("recipe", *numbers, "mean", "CPU s", "goal", "met"),
        rows,
    )


def dream4_runs(networks, method, options):
    """AUROC and AUPR of each network, their means, the exchanges and the mean CPU seconds."""
    found, rounds = [], set()
    start = time.process_time()
    for network in networks:
        run = simulate(method, dream4_parties(network, PARTIES), **options)
        found.append(areas(run, network.truth))
        rounds.add(run.rounds)
    seconds = (time.process_time() - start) / len(networks)
    return found, np.mean(found, axis=0), ", ".join(map(str, sorted(rounds))), seconds


def netsim_as_the_paper(folder, sizes):
    """The ADMM at the paper's penalties, scored as the paper does and as the literature does."""
    rows = []
    for d in sizes:
        data = read_netsim(folder / f"sim{SIMULATION[d]}.npz", PAPER_SUBJECTS[d])
        rows.append((d, "paper", *map(two, PAPER_NETSIM[d]), two(np.mean(PAPER_NETSIM[d])), "", ""))
        for name, schedule in (
            ("2dbn, paper's schedule", {"schedule": "paper"}),
            ("2dbn, 25 rounds", {"max_rounds": 25}),
        ):
            runs = [
                simulate("2dbn", cut_series(x, PARTIES), refit=False, **ADMM_NETSIM, **schedule)
                for x in data.subjects
            ]
            sums = [raw_sum(run.graph) for run in runs]
            binary = [binary_auroc(total, edges(data)) for total in sums]
            off = [binary_auroc(total, edges(data), count_diagonal=False) for total in sums]
            ranked = np.mean([areas(run, edges(data)) for run in runs], axis=0)
            cells = (*map(two, binary), two(np.mean(binary)))
            rows.append((d, name, *cells, two(np.mean(off)), pair(*ranked)))
        identity = [binary_auroc(np.eye(d), edges(data))] * len(data.subjects)
        cells = (*map(two, identity), two(np.mean(identity)))
        rows.append((d, "(the identity matrix)", *cells, "0.50", ""))
    print_table(
        f"NetSim, one subject cut into {PARTIES} parties, as in the paper: AUROC of W + A cut at "
        "0.2, made binary, diagonal counted; then off the diagonal, and ranked (AUROC / AUPR)",
        ("d", "method", *(f"{k}." for k in range(1, 6)), "mean", "off-diagonal", "ranked"),
        rows,
    )


def netsim_recipes(folder, sizes):
    """The paper's subjects, 200 steps cut over the parties, in one exchange."""
    rows = []
    for d in sizes:
        data = read_netsim(folder / f"sim{SIMULATION[d]}.npz", PAPER_SUBJECTS[d])
        for name, options in NETSIM_RECIPES.items():
            runs = [simulate("moments", cut_series(x, PARTIES), **options) for x in data.subjects]
            found = [areas(run, edges(data)) for run in runs]
            means = np.mean(found, axis=0)
            goal, met = "", ""
            if name == "partial correlation":
                goal, met = two(GOALS_NETSIM[d]), verdict(means[0] >= GOALS_NETSIM[d])
            rows.append((d, name, *(two(values[0]) for values in found), pair(*means), goal, met))
        rows.append((d, "(a perfect symmetric score)", *[""] * 5, pair(*symmetric(data)), "", ""))
    print_table(
        f"NetSim, one subject cut into {PARTIES} parties, one exchange: AUROC by subject, mean "
        "AUROC / AUPR, off the diagonal",
        ("d", "recipe", *(f"{k}." for k in range(1, 6)), "mean", "goal", "met"),
        rows,
    )


def netsim_subjects(folder, sizes):
    """Every subject a party, its series centred and scaled by itself."""
    rows = []
    for d in sizes:
        for subjects in (PAPER_SUBJECTS[d], None):
            data = read_netsim(folder / f"sim{SIMULATION[d]}.npz", subjects)
            parties = [(x - x.mean(axis=0)) / x.std(axis=0) for x in data.subjects]
            cells = [
                pair(*areas(simulate("moments", parties, **options), edges(data)))
                for options in NETSIM_RECIPES.values()
            ]
            rows.append((d, len(parties), *cells, pair(*symmetric(data))))
    print_table(
        "NetSim, subjects as parties, one exchange: AUROC / AUPR off the diagonal",
        ("d", "parties", *NETSIM_RECIPES, "(a perfect symmetric score)"),
        rows,
    )


def areas(run, truth):
    """AUROC and AUPR of a run's scores."""
    return auroc(run.scores, truth), auprc(run.scores, truth)


def edges(data):
    return np.asarray(data.truth.adjacency)


def symmetric(data):
    """What a score of the pairs that cannot tell directions may reach."""
    truth = edges(data)
    either = (truth | truth.T).astype(float)
    return auroc(either, truth), auprc(either, truth)


def raw_sum(graph):
    """W + A before the thresholds: opposite effects cancel, as in the paper's notebook."""
    return graph.raw_weights + graph.raw_lagged.sum(axis=0)


def two(value):
    return f"{value:.2f}"


def pair(roc, pr):
    return f"{roc:.3f} / {pr:.3f}"
