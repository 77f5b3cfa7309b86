"""The linear methods outside the papers' simulators, and other programs on the same rows.

The peers run in this process, on all rows together (the paper's iteration: on the same parties).
"""

import logging
import os
import time
import warnings

import numpy as np
from beyond_cases import KINDS, MORE_KINDS, beyond_case
from cases import split
from pooled import DagmaLinear, peer_dagma
from speed import plain_module
from tables import mean_and_error, print_table, verdict, with_error

from flwr_causal.core.graphs.acyclicity import break_cycles
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.simulations import simulate

os.environ.setdefault("TQDM_DISABLE", "1")
try:
    from CausalDisco.baselines import r2_sort_regress, var_sort_regress
except ImportError as error:
    r2_sort_regress = var_sort_regress = None
    print(f"skipped: sorting ({error}); pip install CausalDisco")

# (d, n, K) -> number of seeds at most
SIZES = {(20, 256, 8): 1000, (10, 1000, 8): 5, (50, 500, 10): 3}
QUICK = {(10, 200, 4): 2}
# The paper's iteration needs a hundred times the time of our default.
PAPER_SEEDS = {10: 3, 20: 3, 50: 0}
DEFAULT, ADMM = "moments", "ADMM"
PAPER, PACKAGE = "paper's ADMM", "dagma package"
CUT = 0.3  # of all programs; sorting has fewer errors with it than as published
MORE_SEEDS = 5  # at most, of MORE_KINDS
# Goals at d = 20: mean SHD of a kind; ratio to the median of the peers; ADMM's ratio to moments.
GOALS = {"ER2": 4, "ER4": 20, "scale-free 2": 6}
GOAL_MEDIAN, GOAL_ADMM = 1.5, 1.2


def federated(method, **options):
    def estimate(parties):
        return simulate(method, parties, **options).graph.weights

    return estimate


def paper_admm(parties):
    """The paper's iteration and its schedule, cut; the weakest edges of cycles go."""
    weights, _ = plain_module().notears_admm(parties)
    return break_cycles(cut(weights))


def cut(weights):
    return np.where(np.abs(weights) > CUT, weights, 0.0)


def on_all_rows(estimate):
    return lambda parties: estimate(np.concatenate(parties))


# name -> parties to weights
OURS = {
    DEFAULT: federated("moments"),
    'moments, solver="dagma"': federated("moments", solver="dagma"),
    ADMM: federated("notears-admm"),
    "ADMM, max_rounds=20": federated("notears-admm", max_rounds=20),
}
PEERS = {PACKAGE: on_all_rows(peer_dagma), PAPER: paper_admm}
if DagmaLinear is None:
    del PEERS[PACKAGE]
if var_sort_regress is not None:
    PEERS["sort by variance"] = on_all_rows(lambda rows: cut(var_sort_regress(rows)))
    PEERS["sort by R2"] = on_all_rows(lambda rows: cut(r2_sort_regress(rows)))


def main(seeds, quick, names=None, modes=None):
    """``names``: the kinds; ``modes``: the columns; all by default."""
    logging.disable(logging.WARNING)  # the runs' doubts about units, once for each
    methods = {k: f for k, f in (OURS | PEERS).items() if modes is None or k in modes}
    for estimate in methods.values():  # imports on first use cost no method its time
        estimate(split(np.random.default_rng(0).standard_normal((40, 3)), 2))
    for size, most in (QUICK if quick else SIZES).items():
        groups = {KINDS: seeds[:most]}
        if size[0] == 20:
            groups[MORE_KINDS] = seeds[: min(most, MORE_SEEDS)]
        for group, some in groups.items():
            kinds = [kind for kind in group if names is None or kind.name in names]
            if kinds:
                report(size, some, kinds, measure(size, some, kinds, methods))


def measure(size, seeds, kinds, methods):
    """Name and kind to one :func:`once` for each seed."""
    found = {name: {} for name in methods}
    for kind in kinds:
        for name, estimate in methods.items():
            chosen = seeds[: PAPER_SEEDS[size[0]]] if name == PAPER else seeds
            found[name][kind] = [once(estimate, kind, size, seed) for seed in chosen]
    return {name: table for name, table in found.items() if table[kinds[0]]}


def report(size, seeds, kinds, found):
    d, n, num_parties = size
    measured = list(found)
    shd, classes, cpu = (
        {m: {kind: [one[i] for one in table[kind]] for kind in kinds} for m, table in found.items()}
        for i in range(3)
    )
    where = f"d = {d}, n = {n}, {num_parties} parties, seeds {list(seeds)}"
    if PAPER in measured:
        where += f" ({PAPER}: {list(seeds[: PAPER_SEEDS[d]])})"
    errors_table(f"Mean SHD ± standard error, {where}", shd, kinds, measured)
    rescaled = [kind for kind in kinds if kind.rescaled]
    if rescaled:
        print_table(
            f"The same between equivalence classes (CPDAGs), where scales hide the order, {where}",
            ("data", *measured),
            [
                [kind.name, *(with_error(*mean_and_error(classes[m][kind])) for m in measured)]
                for kind in rescaled
            ],
        )
    cpu_table(where, cpu, kinds, measured)
    if DEFAULT in measured and peers_of(measured):
        losses(where, shd, kinds, measured)
        goals(where, shd, kinds, measured)


def peers_of(measured):
    return [name for name in measured if name in PEERS]


def once(estimate, kind, size, seed):
    """SHD, SHD between the equivalence classes, CPU seconds."""
    d, n, num_parties = size
    rows, truth = beyond_case(kind, d, n, seed)
    parties = split(rows, num_parties)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the programs about their convergence
        start = time.process_time()
        weights = estimate(parties)
        seconds = time.process_time() - start
    of_classes = structural_hamming_distance(cpdag(truth != 0), cpdag(weights != 0))
    return structural_hamming_distance(truth, weights), of_classes, seconds


def median_of_peers(shd, kind, measured):
    return np.median([np.mean(shd[name][kind]) for name in peers_of(measured)])


def total(shd, kinds):
    """Sum over the kinds of the mean, and its standard error."""
    pairs = np.array([mean_and_error(shd[kind]) for kind in kinds])
    return pairs[:, 0].sum(), np.sqrt((pairs[:, 1] ** 2).sum())


def errors_table(title, shd, kinds, measured):
    compared = DEFAULT in measured and peers_of(measured)
    rows = []
    for kind in kinds:
        cells = [kind.name, *(with_error(*mean_and_error(shd[m][kind])) for m in measured)]
        if compared:
            median = median_of_peers(shd, kind, measured)
            cells += [f"{median:.1f}", ratio(np.mean(shd[DEFAULT][kind]), median)]
        rows.append(cells)
    cells = [f"sum of {len(kinds)}", *(with_error(*total(shd[m], kinds)) for m in measured)]
    if compared:
        medians = sum(median_of_peers(shd, kind, measured) for kind in kinds)
        cells += [f"{medians:.1f}", ratio(total(shd[DEFAULT], kinds)[0], medians)]
    more = ("median of the peers", f"{DEFAULT} / median") if compared else ()
    print_table(title, ("data", *measured, *more), [*rows, cells])


def ratio(ours, theirs):
    return f"{ours / theirs:.2f}" if theirs > 0 else "1.00" if ours == 0 else "inf"


def cpu_table(where, cpu, kinds, measured):
    means = {name: [np.mean(cpu[name][kind]) for kind in kinds] for name in measured}
    rows = [
        [kind.name, *(f"{means[name][i]:.2f}" for name in measured)] for i, kind in enumerate(kinds)
    ]
    if DEFAULT in measured:
        ours = sum(means[DEFAULT])
        rows.append(
            [f"sum / that of {DEFAULT}", *(f"{sum(means[m]) / ours:.2f}" for m in measured)]
        )
    print_table(
        f"CPU seconds of a run (all parties and the server), {where}", ("data", *measured), rows
    )


def losses(where, shd, kinds, measured):
    """Where some peer has fewer errors than the default, on the seeds that both have."""
    rows = []
    for kind in kinds:
        for peer in peers_of(measured):
            theirs = np.array(shd[peer][kind])
            ours = np.array(shd[DEFAULT][kind][: len(theirs)])
            if ours.mean() > theirs.mean():
                difference = with_error(*mean_and_error(ours - theirs))
                rows.append(
                    (kind.name, peer, f"{ours.mean():.1f}", f"{theirs.mean():.1f}", difference)
                )
    print_table(
        f"Where a peer is better than {DEFAULT}, on common seeds, {where}",
        ("data", "peer", DEFAULT, "the peer's", "difference ± standard error"),
        rows or [("nowhere", "", "", "", "")],
    )


def goals(where, shd, kinds, measured):
    ours, _ = total(shd[DEFAULT], kinds)
    rows = []
    for peer in peers_of(measured):
        theirs, _ = total(shd[peer], kinds)
        common = {kind: shd[DEFAULT][kind][: len(shd[peer][kind])] for kind in kinds}
        here, _ = total(common, kinds)
        rows.append(
            (
                f"{DEFAULT}, total",
                f"{here:.1f}",
                f"below {peer}: {theirs:.1f}",
                verdict(here < theirs),
            )
        )
    ratios = {
        kind.name: np.mean(shd[DEFAULT][kind]) / max(median_of_peers(shd, kind, measured), 1e-9)
        for kind in kinds
    }
    worst = max(ratios, key=ratios.get)
    rows.append(
        (
            f"{DEFAULT} / median of the peers, largest: {worst}",
            f"{ratios[worst]:.2f}",
            f"at most {GOAL_MEDIAN}",
            verdict(ratios[worst] <= GOAL_MEDIAN),
        )
    )
    for kind in kinds:
        if kind.name in GOALS and where.startswith("d = 20"):
            mean, goal = np.mean(shd[DEFAULT][kind]), GOALS[kind.name]
            rows.append(
                (f"{DEFAULT}, {kind.name}", f"{mean:.1f}", f"at most {goal}", verdict(mean <= goal))
            )
    for name in measured:
        if name.startswith(ADMM):
            theirs, _ = total(shd[name], kinds)
            rows.append(
                (
                    f"{name}, total / that of {DEFAULT}",
                    ratio(theirs, ours),
                    f"at most {GOAL_ADMM}",
                    verdict(theirs <= GOAL_ADMM * ours),
                )
            )
    print_table(f"Goals, {where}", ("quantity", "measured", "goal", "met"), rows)
