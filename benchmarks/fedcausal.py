"""FedCausal: parties with mechanisms of their own, of one kind, and nobody's; the protein data.

The settings are those of Yang et al. (AAAI 2024): ten parties with 200 rows each unless a row says
otherwise, Erdos-Renyi graphs with d edges. No public code exists; the paper's figures stand beside.
"""

from typing import NamedTuple

import numpy as np
from speed import cpu
from tables import mean_and_error, print_table, verdict, with_error

from flwr_causal.core.graphs.metrics import compare
from flwr_causal.core.linear.notears import notears
from flwr_causal.data.read.sachs import condition_parties, read_sachs, sampled_parties
from flwr_causal.simulations import simulate
from flwr_causal.simulations.nonlinear_scenarios import (
    NonlinearSetting,
    different_mechanisms,
    growing_parties,
    same_functions,
    uneven_parties,
)
from flwr_causal.simulations.scenarios.baselines import average, pooled
from flwr_causal.simulations.scenarios.world import World

HEADER = ("data", "d", "K", "method", "seeds", "SHD", "TPR", "FDR", "exchanges", "CPU s", "most")
DEFAULT = ("default", {})
EQUAL = ('noise="equal"', {"noise": "equal"})
GROUP = ('refine="none"', {"refine": "none"})
LINEAR = ('model="linear"', {"model": "linear"})
LINEAR_PAPER = ('"linear", schedule="paper"', {"model": "linear", "schedule": "paper"})
NO_ACYCLICITY = ('"linear", acyclic_server=False', {"model": "linear", "acyclic_server": False})
MLP = ('model="mlp"', {"model": "mlp"})
MLP_PAPER = ('"mlp", averaging="layers"', {"model": "mlp", "averaging": "layers"})
POOLED = ("pooled NOTEARS", None)
# Goals: SHD, exchanges and CPU seconds of a run.
GOAL_SHD, GOAL_EXCHANGES, GOAL_SECONDS = 3, 24, 10
GOAL_ABOVE_POOLED, GOAL_LINEAR_EXCHANGES, GOAL_LINEAR_SECONDS = 1, 16, 1
GOAL_LARGE_SECONDS, GOAL_ROWS_SECONDS = 120, 60
GOAL_ABOVE_PERCEPTRONS, GOAL_PERCEPTRON_SECONDS = 0, 120
# Sachs in Yang et al. (2024), table 2; 20 edges, 10 parties of 746 rows.
SACHS_PAPER = ("15", "0.450", "0.526", "19")  # SHD, TPR, FDR, NNZ
SACHS_UNITS = {
    "raw": {},
    "log(x + 10)": {"log": True},
    "standardised": {"standardize": True},
    "log, standardised": {"log": True, "standardize": True},
}
PARTY = {"center": "party"}
# Label, method, options, random splits at most.
SACHS_METHODS = (
    (LINEAR[0], "fedcausal", LINEAR[1], 3),
    (GROUP[0], "fedcausal", GROUP[1], 3),
    ("notears-admm", "notears-admm", {}, 3),
    ('notears-admm, center="party"', "notears-admm", PARTY, 3),
    ('moments, center="party"', "moments", PARTY, 3),
    ('moments, model="additive", center="party"', "moments", {"model": "additive", **PARTY}, 3),
    ("default", "fedcausal", {}, 1),
)


class Found(NamedTuple):
    shd: int
    tpr: float
    fdr: float
    exchanges: int
    seconds: float
    edges: int


def main(seeds, quick, names=None):
    """Print the tables of all parts, or of those that are named."""
    simulate("fedcausal", NonlinearSetting(5).data(0)[0])  # imports on first use
    for name, part in PARTS.items():
        if names is None or name in names:
            part(seeds, quick)


def one(setting, method, seed):
    """One method on one seed's parties."""
    parties, truth = setting.data(seed)
    if method is POOLED:
        rows = np.concatenate([party.to_numpy() for party in parties])
        graph, seconds = cpu(notears, rows)
        return described(compare(truth, graph), 0, seconds)
    return federated(parties, truth, method)


def federated(parties, truth, method, name="fedcausal"):
    run, seconds = cpu(simulate, name, parties, truth=truth, **method[1])
    return described(run.metrics, run.rounds, seconds)


def described(metrics, exchanges, seconds):
    values = (metrics[key] for key in ("shd", "tpr", "fdr"))
    return Found(*values, exchanges, seconds, metrics["num_edges"])


def measured(settings, methods, seeds):
    """Runs of every method on every setting, by both."""
    return {(s, m[0]): [one(s, m, seed) for seed in seeds] for s in settings for m in methods}


def peers(settings, solver, seeds):
    """Runs of NO-ALL and of NO-Avg on every setting, by both; the seconds are those of the two."""
    found = {}
    for setting in settings:
        for seed in seeds:
            tables, truth = setting.data(seed)
            graphs, seconds = cpu(paper_baselines, World(tables, truth), solver)
            for name, graph in graphs.items():
                runs = found.setdefault((setting, f"{name}, {solver}"), [])
                runs.append(described(compare(truth, graph), 0, seconds))
    return found


def paper_baselines(world, solver):
    """NO-ALL and NO-Avg; parties are centred by their own means."""
    both = pooled(world, solver), average(world, solver, weighted=True)
    return dict(zip(("NO-ALL", "NO-Avg"), (found.graphs[0] for found in both), strict=True))


def row(setting, method, runs):
    """One line of a table."""
    kind = setting.mechanisms[0] if len(setting.mechanisms) == 1 else "mixed"
    words = (kind, "iid" if setting.iid else "own", setting.sizes, setting.graph)
    data = ", ".join(word for word in words if word not in ("even", "er"))
    shd, tpr, fdr, exchanges, seconds, _ = zip(*runs, strict=True)
    return (
        data,
        setting.num_variables,
        setting.num_parties,
        method,
        len(runs),
        with_error(*mean_and_error(shd)),
        f"{np.mean(tpr):.3f}",
        f"{np.mean(fdr):.3f}",
        max(exchanges) or "",
        f"{np.mean(seconds):.2f}",
        f"{max(seconds):.2f}",
    )


def column(runs, field):
    return np.array([getattr(run, field) for run in runs])


def show(title, found):
    print_table(title, HEADER, [row(s, m, runs) for (s, m), runs in found.items()])


def above(found, setting, method, peer):
    """Mean SHD of a method above that of a peer, on the same seeds."""
    of_peer = column(found[setting, peer], "shd")
    return column(found[setting, method], "shd")[: len(of_peer)].mean() - of_peer.mean()


def goals(rows):
    """Table of (quantity, measured, goal), met where the measured one is at most the goal."""
    lines = [(what, f"{value:.4g}", goal, verdict(value <= goal)) for what, value, goal in rows]
    print_table("Goals", ("quantity, at most", "measured", "goal", "met"), lines)


def linear(seeds, quick):
    """Linear Gaussian rows, one system: the paper's linear model beside NOTEARS on all rows."""
    settings = same_functions("lg", (10, 20) if quick else (10, 20, 40))
    found = measured(settings, (LINEAR, POOLED), seeds)
    if not quick:
        found |= measured(same_functions("lg", (80,)), (LINEAR, POOLED), seeds[:4])
    found |= measured(settings[:2], (LINEAR_PAPER,), seeds[:2])
    show("Linear Gaussian, one system, linear model", found)
    ours = {s: runs for (s, method), runs in found.items() if method == LINEAR[0]}
    rows = []
    for s in ours:
        more = above(found, s, LINEAR[0], POOLED[0])
        rows.append((f"SHD above pooled NOTEARS, d = {s[0]}", more, GOAL_ABOVE_POOLED))
    exchanges = max(column(runs, "exchanges").max() for runs in ours.values())
    rows.append(("exchanges", exchanges, GOAL_LINEAR_EXCHANGES))
    seconds = column(ours[settings[1]], "seconds").max()
    goals([*rows, ("CPU s at d = 20", seconds, GOAL_LINEAR_SECONDS)])


def mixed(seeds, quick):
    """Every party draws its mechanism."""
    settings = different_mechanisms((10, 20) if quick else (10, 20, 40))
    found = measured(settings, (DEFAULT, GROUP, LINEAR), seeds)
    show("Mechanisms of the parties' own (the paper at d = 40: 13.3, TPR .849, FDR .009)", found)
    runs, at = found[settings[-1], "default"], f"of the default at d = {settings[-1].num_variables}"
    goals(
        [
            (f"mean SHD {at}", column(runs, "shd").mean(), GOAL_SHD),
            (f"exchanges {at}", column(runs, "exchanges").max(), GOAL_EXCHANGES),
            (f"CPU s {at}, slowest run", column(runs, "seconds").max(), GOAL_SECONDS),
        ]
    )


def baselines(seeds, quick):
    """NOTEARS on the rows of all, and the mean of the weights that it finds alone."""
    settings = different_mechanisms((10, 20) if quick else (10, 20, 40))
    title = "Linear baselines, own mechanisms (the paper's MLP, d = 40: NO-Avg 107.1, NO-ALL 389.9)"
    show(title, peers(settings, "dagma-by-party", seeds))


def without_acyclicity(seeds, quick):
    """The paper's ablation NO-w/oAcy: a server that only averages."""
    own = different_mechanisms((10, 20) if quick else (10, 20, 40))
    found = measured((*own, *same_functions("lg", (20,))), (LINEAR, NO_ACYCLICITY), seeds)
    show(
        "Without acyclicity on the server (the paper's MLP at d = 40, own mechanisms: 20.7)", found
    )


def scale_free(seeds, quick):
    """Graphs with hubs."""
    d = (10 if quick else 20,)
    found = measured(different_mechanisms(d, graph="sf"), (DEFAULT, GROUP), seeds)
    settings = same_functions("lg", d, graph="sf")
    show("Scale-free graphs", found | measured(settings, (LINEAR, POOLED, EQUAL), seeds))


def linear_rows(seeds, quick):
    """Linear Gaussian rows and the default, which does not know that they are."""
    settings = same_functions("lg", (10, 20) if quick else (10, 20, 40))
    show("Linear Gaussian, one system, default", measured(settings, (DEFAULT, EQUAL), seeds))


def perceptrons(seeds, quick):
    """Functions that are perceptrons, of one system, beside perceptrons on all rows."""
    for s in same_functions("anm-mlp", (10,) if quick else (10, 20)):
        found = measured((s,), (DEFAULT, MLP, MLP_PAPER), seeds)
        found |= peers((s,), "notears-mlp", seeds)
        show("Perceptrons, one system", found)
        rows = []
        for name, _ in (DEFAULT, MLP):
            more = above(found, s, name, "NO-ALL, notears-mlp")
            rows.append((f"SHD above NO-ALL, {name}", more, GOAL_ABOVE_PERCEPTRONS))
        goals(rows)


def many_perceptrons(seeds, quick):
    """The same rows of many variables; the baselines on one seed."""
    settings = same_functions("anm-mlp", (20 if quick else 40,))
    found = measured(settings, (DEFAULT, MLP), seeds)
    show(
        "Perceptrons, one system, many variables", found | peers(settings, "notears-mlp", seeds[:1])
    )


def neural(seeds, quick):
    """The perceptron model where the parties' mechanisms are their own."""
    small, many = different_mechanisms((10, 20 if quick else 40))
    found = measured((small,), (MLP, MLP_PAPER), seeds) | peers((small,), "notears-mlp", seeds)
    found |= measured((many,), (MLP,), seeds[:2])
    show("Perceptron model, own mechanisms", found)
    seconds = column(found[many, MLP[0]], "seconds").max()
    goals([(f"CPU s at d = {many.num_variables}", seconds, GOAL_PERCEPTRON_SECONDS)])


def uneven(seeds, quick):
    """Parties of different sizes."""
    found = measured(uneven_parties((20 if quick else 40,)), (DEFAULT,), seeds)
    show("Uneven parties (the paper: 13.6, TPR .860, FDR .025)", found)


def numbers(seeds, quick):
    """Few and many parties, the same number of rows."""
    several = (8, 32) if quick else (8, 32, 2)
    own = [NonlinearSetting(20, 2048, num_parties) for num_parties in several]
    for settings in (own, growing_parties(parties=several, num_variables=20)):
        show("2048 rows over K parties", measured(settings, (DEFAULT,), seeds))


def other_mechanisms(seeds, quick):
    """What the kernel was not made for: parties' own functions of one kind."""
    kinds = ("mim", "threshold", "multiplicative")
    settings = [NonlinearSetting(10 if quick else 20, mechanisms=(kind,)) for kind in kinds]
    show("Other mechanisms", measured(settings, (DEFAULT, GROUP), seeds))


def large(seeds, quick):
    """Many variables, and many rows."""
    settings = different_mechanisms((40,) if quick else (100,))
    found = measured(settings, (DEFAULT,), seeds[:1])
    show("Many variables", found)
    seconds = found[settings[0], "default"][0].seconds
    rows = NonlinearSetting(10 if quick else 20, 20_000 if quick else 100_000)
    found = measured((rows,), (DEFAULT,), seeds[:1])
    show(f"{rows.num_rows} rows", found)
    of_rows = found[rows, "default"][0].seconds
    goals(
        [
            (f"CPU s at d = {settings[0][0]}", seconds, GOAL_LARGE_SECONDS),
            (f"CPU s of {rows.num_rows} rows", of_rows, GOAL_ROWS_SECONDS),
        ]
    )


# The cheap ones first.
PARTS = {
    "linear": linear,
    "mixed": mixed,
    "baselines": baselines,
    "without-acyclicity": without_acyclicity,
    "scale-free": scale_free,
    "large": large,
    "other": other_mechanisms,
    "linear-rows": linear_rows,
    "uneven": uneven,
    "numbers": numbers,
    # Those that need torch, and minutes for each seed.
    "mlp": neural,
    "mlp-rows": perceptrons,
    "mlp-rows-large": many_perceptrons,
}


def sachs(folder, seeds):
    """The paper's split of the 7466 cells, and one party for each of the nine conditions."""
    rows = [("ten random parts", "?", "the paper's", "?", *SACHS_PAPER, "", "")]
    for label, name, chosen, splits in SACHS_METHODS:
        for unit, options in SACHS_UNITS.items():
            data = read_sachs(folder, **options)
            by_seed = [sampled_parties(data, seed) for seed in seeds[:splits]]
            natural = [list(condition_parties(data).values())]
            for split, federations in (("ten random parts", by_seed), ("nine conditions", natural)):
                runs = [
                    federated(tables, data.truth, (label, chosen), name) for tables in federations
                ]
                shd, tpr, fdr, _, seconds, edges = map(np.mean, zip(*runs, strict=True))
                cells = (f"{shd:.1f}", f"{tpr:.3f}", f"{fdr:.3f}", f"{edges:.1f}")
                cells += (max(run.exchanges for run in runs), f"{seconds:.1f}")
                rows.append((split, unit, label, len(runs), *cells))
    header = ("parties", "units", "method", "runs", "SHD", "TPR", "FDR", "NNZ", "exchanges")
    print_table("Sachs, 7466 cells, 20 edges; means", (*header, "CPU s"), rows)
