"""Systems of logarithms, as of laboratory values, and mistyped cells."""

from itertools import pairwise

import numpy as np
import pandas as pd

from flwr_causal.core.graphs.equivalence import cpdag


def amounts(seed, d=12, n=2500, edges=1.7):
    """A DAG of so many edges a variable, and five parties' rows; logarithms have linear effects."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    graph = np.zeros((d, d), dtype=bool)
    for i in range(d):
        later = order[i + 1 :]
        graph[order[i], later] = rng.random(len(later)) < 2 * edges / (d - 1)
    weights = graph * rng.uniform(0.5, 1.2, (d, d)) * rng.choice([-1, 1], (d, d))
    spread, rows = rng.uniform(0.5, 2, d), np.zeros((n, d))
    for j in order:
        rows[:, j] = rows @ weights[:, j] + spread[j] * rng.normal(size=n)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    table = pd.DataFrame(
        np.exp(rows * rng.uniform(0.5, 1.5, d)), columns=[f"x{j}" for j in range(d)]
    )
    ends = pairwise([0, 150, 500, 1000, 1400, n])
    return graph, [table.iloc[start:end].reset_index(drop=True) for start, end in ends]


def errors(edges, graph):
    """The number of pairs whose edge differs from that of the class of the true graph."""
    found = graph.adjacency
    found = found if graph.kind == "cpdag" else cpdag(found)
    wrong = cpdag(edges) != found
    return int(np.triu(wrong | wrong.T).sum())


def mistyped_cells(column, rng, share=0.02):
    """A column of which some cells are moved by 6 to 12 standard deviations."""
    hit = rng.random(len(column)) < share
    moved = rng.uniform(6, 12, len(column)) * rng.choice([-1, 1], len(column)) * column.std()
    return column + hit * moved
