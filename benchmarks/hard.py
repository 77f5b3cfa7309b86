"""Worlds that are harder than the papers' simulators, each with a known truth.

A linear system with one thing changed at a time: ``kind`` says which. Two edges for each variable,
coefficients uniform on +-[0.5, 2] and standard Gaussian noise unless the kind says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.world import World
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.partition import even_sizes
from flwr_causal.data.synthetic.linear import SyntheticSystem, federated_linear, linear_system
from flwr_causal.data.synthetic.random_graphs import random_graph
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr_causal.core.arrays import FloatArray

    Maker = Callable[[np.random.Generator, int, int], tuple[pd.DataFrame, CausalGraph]]

#: Kinds that only change arguments of the linear simulator: graph, edges for each variable, bounds
#: of the noise's standard deviations, and its distribution.
LINEAR = {
    "plain": ("er", 2, (1.0, 1.0), "gaussian"),
    "unequal-noise": ("er", 2, (0.5, 2.0), "gaussian"),
    "very-unequal-noise": ("er", 2, (0.2, 5.0), "gaussian"),
    "gumbel": ("er", 2, (1.0, 1.0), "gumbel"),
    "exponential": ("er", 2, (1.0, 1.0), "exponential"),
    "uniform": ("er", 2, (1.0, 1.0), "uniform"),
    "dense": ("er", 4, (1.0, 1.0), "gaussian"),
    "scale-free": ("sf", 2, (1.0, 1.0), "gaussian"),
}
#: Share of the variables that "hidden" leaves out, and of the cells that "missing" leaves out.
HIDDEN, MISSING = 0.2, 0.1
#: Mean and standard deviation of a variable under an intervention.
UNDER_INTERVENTION = (2.0, 0.5)


def _linear_kind(kind: str) -> Maker:
    graph, edges, bounds, noise = LINEAR[kind]

    def make(rng: np.random.Generator, d: int, n: int) -> tuple[pd.DataFrame, CausalGraph]:
        adjacency = random_graph(graph, d, edges * d, edges, rng)
        system = linear_system(adjacency, rng, noise_scale=bounds)
        frame = system.sample(n, rng, noise)  # type: ignore[arg-type]
        return frame, CausalGraph.from_array(system.weights, list(frame.columns))

    return make


_plain = _linear_kind("plain")


def standardised(rng: np.random.Generator, d: int, n: int) -> tuple[pd.DataFrame, CausalGraph]:
    """Scale every column to mean 0 and variance 1: variances do not order causes before effects."""
    frame, truth = _plain(rng, d, n)
    scale = frame.std(ddof=0).to_numpy()
    weights = truth.weights * scale[:, None] / scale[None, :]
    scaled = pd.DataFrame((frame - frame.mean()) / scale, columns=frame.columns)
    return scaled, CausalGraph.from_array(weights, truth.names)


def internal(rng: np.random.Generator, d: int, n: int) -> tuple[pd.DataFrame, CausalGraph]:
    """Standardise every variable before it acts on others: neither variances nor R2 order them.

    Ormaniec, Sussex, Lorch, Scholkopf & Krause (2025), "Standardizing structural causal models".
    """
    adjacency = random_graph("er", d, 2 * d, 2, rng)
    weights = linear_system(adjacency, rng).weights.copy()
    rows = np.zeros((n, d))
    for j in topological_order(adjacency):
        values = rows @ weights[:, j] + rng.standard_normal(n)
        scale = values.std()
        rows[:, j] = (values - values.mean()) / scale
        weights[:, j] /= scale
    truth = CausalGraph.from_array(weights)
    return pd.DataFrame(rows, columns=list(truth.names)), truth


def hidden(rng: np.random.Generator, d: int, n: int) -> tuple[pd.DataFrame, CausalGraph]:
    """Leave out a fifth of the variables, those with the most effects first.

    The truth has an edge for every directed path whose inner variables are all hidden.
    """
    hidden_count = max(1, round(HIDDEN * d))
    frame, truth = _plain(rng, d + hidden_count, n)
    order = np.argsort(-truth.adjacency.sum(axis=1), kind="stable")
    left_out, kept = order[:hidden_count], np.sort(order[hidden_count:])
    weights = truth.weights
    inner = np.linalg.inv(np.eye(hidden_count) - weights[np.ix_(left_out, left_out)])
    through = weights[np.ix_(kept, left_out)] @ inner @ weights[np.ix_(left_out, kept)]
    names = [truth.names[k] for k in kept]
    projected = CausalGraph.from_array(weights[np.ix_(kept, kept)] + through, names)
    return frame[names], projected


def selection(rng: np.random.Generator, d: int, n: int) -> tuple[pd.DataFrame, CausalGraph]:
    """Keep the half of the rows in which the sum of two standardised variables is largest."""
    frame, truth = _plain(rng, d, 2 * n + 50)
    first, second = rng.choice(d, 2, replace=False)
    scores = frame / frame.std()
    kept = np.argsort(-(scores.iloc[:, first] + scores.iloc[:, second]).to_numpy())[:n]
    return frame.iloc[np.sort(kept)].reset_index(drop=True), truth


def missing(rng: np.random.Generator, d: int, n: int) -> tuple[pd.DataFrame, CausalGraph]:
    """Leave out a tenth of the cells at random."""
    frame, truth = _plain(rng, d, n)
    return frame.mask(rng.random(frame.shape) < MISSING), truth


def mixed(rng: np.random.Generator, d: int, n: int) -> tuple[pd.DataFrame, CausalGraph]:
    """Give every second variable two states; its effects see the states."""
    adjacency = random_graph("er", d, 2 * d, 2, rng)
    weights = linear_system(adjacency, rng).weights
    rows = np.zeros((n, d))
    for j in topological_order(adjacency):
        values = rows @ weights[:, j] + rng.standard_normal(n)
        rows[:, j] = values > np.median(values) if j % 2 else values
    truth = CausalGraph.from_array(adjacency.astype(np.float64))
    frame = pd.DataFrame(rows, columns=list(truth.names))
    return frame.astype({f"x{j}": np.int64 for j in range(1, d, 2)}), truth


KINDS: dict[str, Maker] = {
    **{kind: _linear_kind(kind) for kind in LINEAR},
    "standardised": standardised,
    "internal": internal,
    "hidden": hidden,
    "selection": selection,
    "missing": missing,
    "mixed": mixed,
}


def hard(seed: int, kind: str, num_variables: int, num_rows: int) -> World:
    """Rows of one of `KINDS` in one table, and the true graph."""
    if kind not in KINDS:
        raise ConfigError(f"the data 'hard' have no kind '{kind}': choose of {', '.join(KINDS)}")
    frame, truth = KINDS[kind](np.random.default_rng(seed), num_variables, num_rows)
    return World([frame], truth, options={"missing_values": "drop"} if kind == "missing" else {})


def interventions(
    seed: int, num_variables: int, num_rows: int, num_parties: int, known: bool = True
) -> World:
    """Parties that intervene: all but the first set one variable each, every party another one.

    ``known`` says whether methods get the list of targets.
    """
    rng = np.random.default_rng(seed)
    frame, truth = _plain(rng, num_variables, 1)
    targets = rng.permutation(num_variables)
    parties = []
    for party, rows in enumerate(even_sizes(num_rows, num_parties)):
        target = None if party == 0 else int(targets[party % num_variables])
        parties.append(
            _rows_under(truth.weights, target, rows, rng).set_axis(frame.columns, axis=1)
        )
    stated = {k: (truth.names[targets[k % num_variables]],) for k in range(1, num_parties)}
    return World(parties, truth, options={"interventions": stated} if known else {})


def _rows_under(
    weights: FloatArray, target: int | None, n: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Draw rows of a system in which one variable is set from outside."""
    if target is None:
        return SyntheticSystem(weights, np.ones(len(weights))).sample(n, rng)
    cut = weights.copy()
    cut[:, target] = 0.0
    noise = rng.standard_normal((n, len(weights)))
    mean, scale = UNDER_INTERVENTION
    noise[:, target] = mean + scale * noise[:, target]
    return pd.DataFrame(np.linalg.solve((np.eye(len(cut)) - cut).T, noise.T).T)


#: What false parties do to their tables.
LIES = ("none", "signs", "noise", "columns")


def false_parties(
    seed: int, lie: str, num_false: int, num_variables: int, num_rows: int, num_parties: int
) -> World:
    """Parties of which the last ``num_false`` send the moments or weights of false tables.

    ``lie``: "none"; "signs" (every second column has the other sign); "noise" (independent numbers
    of the columns' scales); "columns" (the columns are those of other variables, as if they were
    mislabelled). False parties with "columns" or "signs" agree with each other.
    """
    if lie not in LIES:
        raise ConfigError(f"'false-parties' have no lie '{lie}': choose of {', '.join(LIES)}")
    parties, weights = federated_linear(num_variables, num_rows, num_parties, seed=seed)
    truth = CausalGraph.from_array(weights, list(parties[0].columns))
    rng = np.random.default_rng([seed, len(lie)])
    order = rng.permutation(num_variables)
    for k in range(num_parties - num_false, num_parties):
        table = parties[k].to_numpy()
        told = {
            "none": table,
            "signs": table * np.where(np.arange(num_variables) % 2, -1.0, 1.0),
            "noise": rng.standard_normal(table.shape) * table.std(axis=0),
            "columns": table[:, order],
        }[lie]
        parties[k] = pd.DataFrame(told, columns=parties[k].columns)
    return World(parties, truth)


HARD: dict[str, Callable[..., World]] = {
    "hard": hard,
    "interventions": interventions,
    "false-parties": false_parties,
}
