"""Tables of numbers and categories, dense classes, and tables with missing cells, with a truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.world import World
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.synthetic.random_graphs import random_graph
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr_causal.core.arrays import BoolArray, FloatArray

#: Numbers of states of the columns of `mixed`, 0 for numbers, and their probabilities.
KINDS, SHARES = (0, 2, 3, 4), (0.5, 0.2, 0.15, 0.15)
STATES = "abcdefgh"


def mixed_table(
    dag: BoolArray,
    n: int,
    rng: np.random.Generator,
    kinds: tuple[int, ...] = KINDS,
    shares: tuple[float, ...] | None = SHARES,
) -> pd.DataFrame:
    """Draw rows in which numbers are linear in their causes, categories softmax of them.

    Parameters
    ----------
    dag : ndarray of bool, shape (d, d)
        Upper triangular: causes come before effects.
    n : int
    rng : numpy.random.Generator
    kinds : tuple of int
        Numbers of states, from which that of each column is drawn; 0 for numbers.
    shares : tuple of float or None
        Their probabilities; None: equal ones.

    Returns
    -------
    DataFrame
        Columns v0, v1, ...; states are letters.
    """
    columns: dict[str, object] = {}
    features: list[FloatArray] = []
    for j in range(len(dag)):
        states = int(rng.choice(kinds, p=shares))
        causes = [features[i] for i in np.flatnonzero(dag[:, j])]
        if states == 0:
            value = rng.normal(size=n)
            for own in causes:
                sign = rng.choice([-1, 1], own.shape[1])
                value = value + own @ (rng.uniform(0.5, 1.5, own.shape[1]) * sign)
            value = (value - value.mean()) / value.std()
            columns[f"v{j}"] = value
            features.append(value[:, None])
        else:
            logits = np.tile(rng.normal(0, 0.3, states), (n, 1))
            for own in causes:
                logits = logits + own @ rng.normal(0, 1.5, (own.shape[1], states))
            drawn = (logits + rng.gumbel(size=(n, states))).argmax(axis=1)
            columns[f"v{j}"] = np.array(list(STATES))[drawn].astype(object)
            indicators = np.eye(states)[drawn]
            features.append((indicators - indicators.mean(axis=0))[:, :-1])
    return pd.DataFrame(columns)


def _shuffled(frame: pd.DataFrame, dag: BoolArray, rng: np.random.Generator) -> World:
    order = rng.permutation(len(dag))
    names = [str(frame.columns[k]) for k in order]
    truth = CausalGraph.from_array(dag[np.ix_(order, order)].astype(np.float64), names)
    return World([frame[names]], truth)


def mixed(seed: int, num_variables: int, num_edges: int, num_rows: int) -> World:
    """Numbers and categories, half of each: :func:`mixed_table` of a graph of so many edges."""
    rng = np.random.default_rng(seed)
    pairs = np.stack(np.triu_indices(num_variables, 1), axis=1)
    dag = np.zeros((num_variables,) * 2, dtype=np.bool_)
    dag[tuple(rng.choice(pairs, num_edges, replace=False).T)] = True
    return _shuffled(mixed_table(dag, num_rows, rng), dag, rng)


def states(
    seed: int,
    num_variables: int,
    num_rows: int,
    num_states: int,
    nominal: bool = False,
    curved: bool = False,
) -> World:
    """Every second variable is cut into states of equal shares; two edges for each variable.

    Parameters
    ----------
    num_states : int
    nominal : bool
        States are in no order, and each has an effect of its own; effects of numbers are
        hyperbolic tangents of them. Otherwise effects are linear, also of the states' numbers.
    curved : bool
        With ``nominal``: effects of numbers are cosines with a slope.
    """
    rng = np.random.default_rng(seed)
    adjacency = random_graph("er", num_variables, 2 * num_variables, 2, rng)
    rows, coded = np.zeros((num_rows, num_variables)), np.arange(num_variables) % 2 == 1
    for j in topological_order(adjacency):
        value = rng.normal(size=num_rows)
        for i in np.flatnonzero(adjacency[:, j]):
            if coded[i]:
                effects = rng.normal(size=num_states)
                effects = (effects - effects.mean()) / effects.std() * rng.uniform(0.6, 1.2)
                value += effects[rows[:, i].astype(np.int64)]
                continue
            cause = (rows[:, i] - rows[:, i].mean()) / rows[:, i].std()
            weight = rng.uniform(0.5, 1.2) * rng.choice([-1, 1])
            if curved:
                cause = 1.2 * (np.cos(2 * cause) + 0.3 * cause)
            elif nominal:
                cause = np.tanh(2 * cause)
            value += weight * cause
        if coded[j]:
            limits = np.quantile(value, np.arange(1, num_states) / num_states)
            order = rng.permutation(num_states) if nominal else np.arange(num_states)
            value = order[np.digitize(value, limits)].astype(np.float64)
        rows[:, j] = value
    truth = CausalGraph.from_array(adjacency.astype(np.float64))
    letters = np.array(list(STATES), dtype=object)
    frame = pd.DataFrame(
        {
            name: letters[rows[:, j].astype(np.int64)] if coded[j] else rows[:, j]
            for j, name in enumerate(truth.names)
        }
    )
    return World([frame], truth)


def _linear(
    rng: np.random.Generator,
    num_variables: int,
    edges_per_node: float,
    weights: tuple[float, float],
    noise: tuple[float, float],
) -> tuple[FloatArray, FloatArray]:
    """Return the weights of a random graph, and the noise's standard deviations."""
    shape = (num_variables, num_variables)
    dag = np.triu(rng.random(shape) < 2 * edges_per_node / (num_variables - 1), 1)
    order = rng.permutation(num_variables)
    drawn = rng.uniform(*weights, shape) * rng.choice([-1, 1], shape)
    return dag[np.ix_(order, order)] * drawn, rng.uniform(*noise, num_variables)


def classes(seed: int, num_variables: int, num_rows: int, edges_per_node: float = 2.0) -> World:
    """Standardised rows of a linear system of weak and strong effects, of unequal noise."""
    rng = np.random.default_rng(seed)
    weights, noise = _linear(rng, num_variables, edges_per_node, (0.3, 1.2), (0.5, 2.0))
    errors = rng.normal(size=(num_rows, num_variables)) * noise
    rows = errors @ np.linalg.inv(np.eye(num_variables) - weights)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    truth = CausalGraph.from_array((weights != 0).astype(np.float64))
    return World([pd.DataFrame(rows, columns=list(truth.names))], truth)


#: What is missing in `incomplete`.
MISSING = ("nothing", "cells at random", "cells by seen columns", "columns")
#: Columns that a party lacks, of twenty.
LACKING = 0.2


def incomplete(
    seed: int,
    missing: str,
    num_variables: int,
    num_rows: int,
    num_parties: int,
    share: float = 0.0,
) -> World:
    """Linear rows of which cells are missing; the rows are the same whatever is missing.

    Parameters
    ----------
    missing : {"nothing", "cells at random", "cells by seen columns", "columns"}
        "cells by seen columns": a cell is missing more often where one of the first five columns
        is large, which are complete. "columns": every party lacks a fifth of the columns, each of
        which two parties or more hold, and cells are missing at random beside.
    share : float
        Of the cells, that are missing.
    """
    if missing not in MISSING:
        raise ConfigError(f"missing is {missing!r}: choose of {', '.join(MISSING)}")
    rng = np.random.default_rng(seed)
    weights, noise = _linear(rng, num_variables, 2.0, (0.5, 1.5), (0.7, 1.4))
    errors = rng.normal(size=(num_rows, num_variables)) * noise
    rows = errors @ np.linalg.inv(np.eye(num_variables) - weights)
    gaps = rng.random(rows.shape) < _probabilities(rows, missing, share)
    truth = CausalGraph.from_array(weights)
    frame = pd.DataFrame(np.where(gaps, np.nan, rows), columns=list(truth.names))
    tables = [
        frame.iloc[places].reset_index(drop=True)
        for places in np.array_split(np.arange(num_rows), num_parties)
    ]
    if missing == "columns":
        left_out = _lacking(rng, num_variables, num_parties)
        names = np.array(truth.names)
        tables = [
            table.drop(columns=names[own].tolist())
            for table, own in zip(tables, left_out, strict=True)
        ]
    return World(tables, truth)


def _probabilities(rows: FloatArray, missing: str, share: float) -> FloatArray:
    """Return how probable it is that each cell is missing."""
    if missing == "nothing":
        return np.zeros(rows.shape)
    if missing != "cells by seen columns":
        return np.full(rows.shape, share)
    complete = 5
    z = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    by_cause = 2 * share / (1 + np.exp(-2 * z[:, np.arange(rows.shape[1]) % complete]))
    by_cause[:, :complete] = 0.0
    return np.asarray(by_cause)


def _lacking(rng: np.random.Generator, num_variables: int, num_parties: int) -> list[list[int]]:
    """Draw which columns each party lacks, until two parties or more hold each column."""
    count = round(LACKING * num_variables)
    while True:
        drawn = [
            rng.choice(num_variables, count, replace=False).tolist() for _ in range(num_parties)
        ]
        lacked = np.bincount(np.concatenate(drawn), minlength=num_variables)
        if lacked.max() <= num_parties - 2:
            return drawn


REAL_TABLES: Mapping[str, Callable[..., World]] = {
    "mixed": mixed,
    "states": states,
    "classes": classes,
    "incomplete": incomplete,
}
