"""Random acyclic graphs, and random weights. ``adjacency[i, j]`` is the edge i -> j."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IndexArray

Seed = int | Sequence[int] | np.random.Generator


def erdos_renyi(num_variables: int, num_edges: int, seed: Seed) -> BoolArray:
    """Draw a random acyclic graph with an exact number of edges.

    The pairs are chosen uniformly without replacement and oriented along a random order of the
    variables. "ER1" in the literature is ``num_edges = num_variables`` (Zheng et al. 2018, section
    5, ER-k has k d edges in the mean; here exactly).

    Parameters
    ----------
    num_variables : int
        d, 1 or more.
    num_edges : int
        0 to d (d - 1) / 2.
    seed : int, sequence of int, or Generator

    Returns
    -------
    bool array of shape (d, d)
        ``[i, j]`` is i -> j.

    Raises
    ------
    ConfigError
        More edges than pairs, or a number out of its range.
    """
    _check_size(num_variables)
    rows, columns = np.triu_indices(num_variables, 1)
    if not 0 <= num_edges <= len(rows):
        raise ConfigError(
            f"{num_edges} edges among {num_variables} variables: "
            f"an acyclic graph has between 0 and {len(rows)}"
        )
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(rows), size=num_edges, replace=False)
    return _oriented(rows[chosen], columns[chosen], num_variables, rng)


def scale_free(num_variables: int, edges_per_node: int, seed: Seed) -> BoolArray:
    """Draw a random acyclic graph with hubs (Barabasi & Albert 1999).

    Variables join one after another; each is paired with ``edges_per_node`` different earlier ones,
    chosen with probability proportional to their number of pairs so far (the first to join is
    paired with each of the ``edges_per_node`` founders). The pairs are then oriented along a
    random order that has nothing to do with the order of joining, so hubs have both causes and
    effects; Zheng et al. 2018 orient them from new to old instead, which makes every hub a sink.

    Parameters
    ----------
    num_variables : int
        d, 1 or more.
    edges_per_node : int
        m, 1 to d - 1 (0 if d is 1); the graph has m (d - m) edges.
    seed : int, sequence of int, or Generator

    Returns
    -------
    bool array of shape (d, d)
        ``[i, j]`` is i -> j.

    Raises
    ------
    ConfigError
        A number out of its range.
    """
    _check_size(num_variables)
    if not min(1, num_variables - 1) <= edges_per_node <= num_variables - 1:
        raise ConfigError(
            f"{edges_per_node} edges per node among {num_variables} variables: "
            f"give between 1 and {num_variables - 1}"
        )
    rng = np.random.default_rng(seed)
    pairs: list[tuple[int, int]] = []
    # Each variable is listed once for each of its pairs: a uniform draw from the list is
    # proportional to the number of pairs.
    ends: list[int] = []
    partners = list(range(edges_per_node))
    for newcomer in range(edges_per_node, num_variables):
        pairs += [(partner, newcomer) for partner in partners]
        ends += [end for partner in partners for end in (partner, newcomer)]
        drawn: dict[int, None] = {}
        while len(drawn) < edges_per_node:
            drawn[ends[rng.integers(len(ends))]] = None
        partners = list(drawn)
    rows, columns = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    return _oriented(rows, columns, num_variables, rng)


def random_graph(
    kind: str, num_variables: int, num_edges: int, edges_per_node: int, seed: Seed
) -> BoolArray:
    """Return a random graph of the given kind.

    Parameters
    ----------
    kind : {"er", "sf"}
        :func:`erdos_renyi`, or :func:`scale_free`.
    num_variables : int
        d.
    num_edges : int
        Number of edges of an Erdos-Renyi graph; at most all pairs are joined.
    edges_per_node : int
        Number of edges of a variable of a scale-free graph to earlier ones.
    seed : int, sequence of int, or Generator

    Returns
    -------
    bool array of shape (d, d)

    Raises
    ------
    ConfigError
        Another kind, or a number out of its range.
    """
    if kind == "er":
        num_pairs = num_variables * (num_variables - 1) // 2
        return erdos_renyi(num_variables, min(num_edges, num_pairs), seed)
    if kind == "sf":
        return scale_free(num_variables, edges_per_node, seed)
    raise ConfigError(f"graph is {kind!r}: choose 'er' (Erdos-Renyi) or 'sf' (scale-free)")


def acyclic_edges(adjacency: npt.ArrayLike) -> BoolArray:
    """Return the nonzero entries of the adjacency of an acyclic graph, shape (d, d).

    Raises
    ------
    ConfigError
        If the array is not square, or the graph has a directed cycle.
    """
    edges: BoolArray = np.asarray(adjacency) != 0
    if edges.ndim != 2 or edges.shape[0] != edges.shape[1] or not is_acyclic(edges):
        raise ConfigError(
            f"the adjacency, of shape {edges.shape}, is not that of an acyclic graph: "
            "give a (d, d) array with a nonzero [i, j] for i -> j, and no directed cycle"
        )
    return edges


def signed_weights(
    rng: np.random.Generator, low: float, high: float, shape: int | tuple[int, ...]
) -> FloatArray:
    """Draw weights of either sign whose absolute values are uniform between two bounds."""
    return np.asarray(rng.uniform(low, high, shape) * rng.choice([-1.0, 1.0], shape))


def _check_size(num_variables: int) -> None:
    if num_variables < 1:
        raise ConfigError(f"{num_variables} variables: a graph has at least one")


def _oriented(
    rows: IndexArray,
    columns: IndexArray,
    num_variables: int,
    rng: np.random.Generator,
) -> BoolArray:
    """Turn pairs (row < column) into edges along a random order of the variables."""
    order = rng.permutation(num_variables)
    adjacency = np.zeros((num_variables, num_variables), dtype=np.bool_)
    adjacency[order[rows], order[columns]] = True
    return adjacency
