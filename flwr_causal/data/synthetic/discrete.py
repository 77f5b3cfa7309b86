"""Random discrete Bayesian networks, and federations of tables that are sampled from one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.data.partition import split
from flwr_causal.data.synthetic.random_graphs import Seed, random_graph
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from flwr_causal.core.arrays import BoolArray


#: Smallest probability of a state given its parents: some hundred rows contain all states.
LEAST_PROBABILITY = 0.02


def random_network(
    num_variables: int,
    *,
    graph: str = "er",
    edges_per_variable: float = 1.5,
    num_states: tuple[int, int] = (2, 4),
    concentration: float = 0.5,
    max_parents: int = 4,
    seed: Seed = 0,
) -> BayesianNetwork:
    """Return a random network.

    Each row of a table is sampled from a symmetric Dirichlet distribution and then mixed with the
    uniform distribution, so that each state has a probability of at least 0.02.

    Parameters
    ----------
    num_variables : int
        d.
    graph : {"er", "sf"}, default "er"
        :func:`erdos_renyi`, or :func:`scale_free` (edges per variable rounded, at least 1).
    edges_per_variable : float, default 1.5
        Mean number of edges for each variable, 1 to 2 in the networks of the bnlearn repository. At
        most all pairs are joined.
    num_states : pair of int, default (2, 4)
        Least and largest number of states; uniform between them.
    concentration : float, default 0.5
        Parameter of the Dirichlet distribution. Small values give nearly deterministic rows, large
        values nearly uniform rows, whose edges are harder to find.
    max_parents : int, default 4
        Largest number of parents. A variable with more parents keeps this number of them, chosen at
        random, so that the graph has fewer edges.
    seed : int, sequence of int, or Generator

    Returns
    -------
    BayesianNetwork
        Variables ``x0``, ``x1``, ...; states ``s0``, ``s1``, ...

    Raises
    ------
    ConfigError
        An argument out of range.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.discrete import random_network
    >>> network = random_network(4, num_states=(2, 2), seed=0)
    >>> len(network.names), {len(states) for states in network.states}
    (4, {2})
    """
    low, high = num_states
    most = int(1 / LEAST_PROBABILITY) - 1
    if not 2 <= low <= high <= most:
        raise ConfigError(
            f"num_states is {num_states}: expected the least and the largest number, 2 to {most}"
        )
    if not (np.isfinite(concentration) and concentration > 0):
        raise ConfigError(f"concentration is {concentration}: expected a positive number")
    if max_parents < 1:
        raise ConfigError(f"max_parents is {max_parents}: expected 1 or more")
    rng = np.random.default_rng(seed)
    adjacency = _adjacency(num_variables, graph, edges_per_variable, rng)
    sizes = rng.integers(low, high, num_variables, endpoint=True)
    parents, tables = [], []
    for j in range(num_variables):
        own = np.flatnonzero(adjacency[:, j])
        if len(own) > max_parents:
            own = np.sort(rng.choice(own, max_parents, replace=False))
        rows = rng.dirichlet(np.full(sizes[j], concentration), size=tuple(sizes[own]))
        parents.append(tuple(own.tolist()))
        tables.append(LEAST_PROBABILITY + (1 - sizes[j] * LEAST_PROBABILITY) * rows)
    return BayesianNetwork(
        tuple(f"x{j}" for j in range(num_variables)),
        tuple(tuple(f"s{k}" for k in range(size)) for size in sizes),
        tuple(parents),
        tuple(tables),
    )


def federated_discrete(
    num_variables: int,
    num_rows: int,
    num_parties: int,
    graph: str = "er",
    seed: int = 0,
    *,
    edges_per_variable: float = 1.5,
    num_states: tuple[int, int] = (2, 4),
    concentration: float = 0.5,
    max_parents: int = 4,
    partition: str = "even",
) -> tuple[list[pd.DataFrame], BayesianNetwork]:
    """Simulate a federation whose tables come from one random network.

    The rows of all parties together are the same for every ``num_parties``.

    Parameters
    ----------
    num_variables : int
        d.
    num_rows : int
        n, of all parties together.
    num_parties : int
        K.
    graph : {"er", "sf"}
        As in :func:`random_network`, like the next four options.
    seed : int
        Everything follows from it.
    edges_per_variable, num_states, concentration, max_parents
        As in :func:`random_network`.
    partition : {"even", "uneven"}
        Sizes of the parties.

    Returns
    -------
    tables : list of DataFrame
        One a party; the states as texts.
    network : BayesianNetwork
        The truth.

    Raises
    ------
    ConfigError, DataError
        An argument out of range; fewer rows than the parties need.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.discrete import federated_discrete
    >>> tables, network = federated_discrete(4, 100, 2)
    >>> [table.shape for table in tables], list(tables[0]) == list(network.names)
    ([(50, 4), (50, 4)], True)
    """
    rng = np.random.default_rng(seed)
    network = random_network(
        num_variables,
        graph=graph,
        edges_per_variable=edges_per_variable,
        num_states=num_states,
        concentration=concentration,
        max_parents=max_parents,
        seed=rng,
    )
    rows = network.sample(num_rows, rng)
    # Rows are independent, so the uneven split's sizes need the seed and the order does not matter.
    parties = split(rows, num_parties, partition, seed=None if partition == "even" else seed)
    return parties, network


def _adjacency(
    num_variables: int, graph: str, edges_per_variable: float, rng: np.random.Generator
) -> BoolArray:
    """Draw the graph."""
    if not (np.isfinite(edges_per_variable) and edges_per_variable >= 0):
        raise ConfigError(f"edges_per_variable is {edges_per_variable}: expected a number from 0")
    num_edges = round(edges_per_variable * num_variables)
    return random_graph(graph, num_variables, num_edges, max(1, round(edges_per_variable)), rng)
