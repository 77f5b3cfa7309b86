"""Protein signalling (Sachs et al. 2005): real rows, 17 edges that the literature agrees on.

The data are not part of this package: give the folder that holds ``sachs_observational_853.csv``
(853 rows, 11 proteins) and ``edges_dag_17.csv`` (source, target); for the conditions also
``sachs_all_7466.csv``, ``conditions.csv`` and ``edges_consensus_20.csv``.
"""

import numpy as np
import pandas as pd
from tables import print_table

from flwr_causal.core.graphs.equivalence import undirected_part
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import compare, varsortability
from flwr_causal.data.partition import split_even
from flwr_causal.data.read.sachs import ROWS_FILE, TARGETS, condition_parties, read_sachs
from flwr_causal.reports.graph_files import read_edges
from flwr_causal.simulations import simulate
from flwr_causal.simulations.linear_scenarios import SACHS_ROWS, sachs_parties

PARTIES = (4, 16)
METHODS = {
    "notears-admm": ("notears-admm", {}),
    "notears-admm, max_rounds=20": ("notears-admm", {"max_rounds": 20}),
    'notears-admm, sparsity="bic"': ("notears-admm", {"sparsity": "bic"}),
    "notears-admm, paper's schedule": ("notears-admm", {"schedule": "paper"}),
    "moments": ("moments", {}),
    "moments, polish, BIC": ("moments", {"polish": True}),
}
# The methods that use known interventions.
WITH_TARGETS = {
    "moments, ges": ("moments", {"solver": "ges"}),
    "moments, order": ("moments", {"solver": "order"}),
    "moments, dagma": ("moments", {"solver": "dagma"}),
    "notears-admm": ("notears-admm", {}),
}
# Units: the columns as measured, their logarithm, and the same with unit variance.
UNITS = {
    "raw": (lambda frame: frame, {}),
    "log(x + 10)": (lambda frame: np.log(frame + 10.0), {}),
    "raw, standardised": (lambda frame: frame, {"standardize": True}),
    "log, standardised": (lambda frame: np.log(frame + 10.0), {"standardize": True}),
}


def main(folder, seeds):
    frame = pd.read_csv(folder / "sachs_observational_853.csv").drop(
        columns="condition", errors="ignore"
    )
    truth = read_edges(folder / "edges_dag_17.csv", tuple(frame.columns))
    all_rows(frame, truth, seeds[0])
    samples(frame, truth, seeds)
    if (folder / ROWS_FILE).is_file():
        interventions(folder)


def all_rows(frame, truth, seed):
    """853 rows, shuffled by the seed and dealt out evenly."""
    rows = []
    for unit, (transform, unit_options) in UNITS.items():
        table = transform(frame)
        sortable = varsortability(truth.adjacency, table.var().to_numpy())
        for name, (method, options) in METHODS.items():
            for num_parties in PARTIES:
                parties = split_even(table, num_parties, seed)
                run = simulate(method, parties, truth=truth, **unit_options, **options)
                rows.append(
                    (
                        unit,
                        f"{sortable:.2f}",
                        name,
                        num_parties,
                        *described(run.metrics),
                        run.rounds,
                    )
                )
        empty = compare(truth, CausalGraph(truth.names, np.zeros((len(truth.names),) * 2)))
        rows.append((unit, f"{sortable:.2f}", "(no edges at all)", "", *described(empty), ""))
    print_table(
        f"Sachs, {len(frame)} rows, {truth.num_edges} true edges",
        ("units", "varsortability", "method", "K", "SHD", "TPR", "FDR", "edges", "exchanges"),
        rows,
    )


def interventions(folder):
    """All 7466 cells, nine conditions as parties: the recipe is in docs/figures.md."""
    rows = []
    for edges in (17, 20):
        data = read_sachs(folder, edges=edges, log=True)
        parties = condition_parties(data)
        targets = {k: TARGETS[name] for k, name in enumerate(parties) if name in TARGETS}
        every = list(parties.values())
        for name, (method, options) in WITH_TARGETS.items():
            for label, tables, stated in (
                ("with interventions", every, {"interventions": targets}),
                ("without", every, {}),
                ("observational condition", [parties["cd3_cd28"]], {}),
            ):
                run = simulate(method, tables, truth=data.truth, **options, **stated)
                rows.append((edges, name, label, *of_conditions(run, data.truth)))
    header = (
        "true edges",
        "method",
        "rows",
        "edges",
        "undirected",
        "SHD",
        "SHD of to_dag()",
        "SHD of CPDAGs",
    )
    shares = ("adjacency precision", "adjacency recall", "TPR", "FDR")
    print_table("Sachs, 7466 cells", (*header, *shares), rows)


def of_conditions(run, truth):
    found = run.metrics
    open_edges = int(undirected_part(run.graph.adjacency).sum()) // 2
    one = compare(truth, run.graph.to_dag())["shd"]
    pairs = (found["adjacency_precision"], found["adjacency_recall"])
    shares = (f"{share:.2f}" for share in (*pairs, found["tpr"], found["fdr"]))
    return run.graph.num_edges, open_edges, found["shd"], one, found["cpdag_shd"], *shares


def samples(frame, truth, seeds):
    """The paper's setting: 512 rows drawn anew for each seed."""
    rows = []
    for unit, (transform, unit_options) in UNITS.items():
        table = transform(frame)
        for name, (method, options) in METHODS.items():
            for num_parties in PARTIES:
                found = [
                    simulate(
                        method,
                        sachs_parties(table, num_parties, seed),
                        truth=truth,
                        **unit_options,
                        **options,
                    ).metrics
                    for seed in seeds
                ]
                means = {key: np.mean([m[key] for m in found]) for key in found[0]}
                rows.append((unit, name, num_parties, *described(means, 1)))
    print_table(
        f"Sachs, {SACHS_ROWS} of the rows, means over seeds {list(seeds)}",
        ("units", "method", "K", "SHD", "TPR", "FDR", "edges"),
        rows,
    )


def described(metrics, digits=0):
    return (
        f"{metrics['shd']:.{digits}f}",
        f"{metrics['tpr']:.2f}",
        f"{metrics['fdr']:.2f}",
        f"{metrics['num_edges']:.{digits}f}",
    )
