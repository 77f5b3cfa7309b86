"""Simulated linear systems with a known graph, as in the papers.

``weights[i, j]`` is the effect of i on j. Functions take a seed, or a ``numpy.random.Generator``
whose state they advance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from flwr_causal.data.partition import split
from flwr_causal.data.synthetic.random_graphs import (
    Seed,
    acyclic_edges,
    random_graph,
    signed_weights,
)
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr_causal.core.arrays import FloatArray


Noise = Literal["gaussian", "gumbel", "exponential", "uniform"]

#: Absolute coefficients are uniform between these (Ng & Zhang 2022, section 6.1, after Zheng et al.
#: 2018); signs are random.
WEIGHT_RANGE = (0.5, 2.0)
#: Noise of mean 0 and variance 1: (generator, shape) -> array.
STANDARD_NOISE: dict[str, Callable[[np.random.Generator, tuple[int, int]], FloatArray]] = {
    "gaussian": lambda rng, shape: rng.standard_normal(shape),
    "gumbel": lambda rng, shape: (rng.gumbel(size=shape) - np.euler_gamma) * np.sqrt(6.0) / np.pi,
    "exponential": lambda rng, shape: rng.standard_exponential(shape) - 1.0,
    "uniform": lambda rng, shape: rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), shape),
}


@dataclass(frozen=True, eq=False)
class SyntheticSystem:
    """The linear structural equations x_j = sum_i x_i weights[i, j] + e_j.

    Parameters
    ----------
    weights : float64 array of shape (d, d)
        Effects; row causes column, acyclic, exactly 0 where there is no edge.
    noise_scale : float64 array of shape (d,)
        Standard deviations of the noise e_j.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.data.synthetic.linear import SyntheticSystem
    >>> system = SyntheticSystem(np.array([[0.0, 2.0], [0.0, 0.0]]), np.array([1.0, 0.5]))
    >>> system.sample(100, seed=0).shape
    (100, 2)
    """

    weights: FloatArray
    noise_scale: FloatArray

    def sample(self, n: int, seed: Seed, noise: Noise = "gaussian") -> pd.DataFrame:
        """Draw independent rows.

        Parameters
        ----------
        n : int
            Rows.
        seed : int, sequence of int, or Generator
        noise : {"gaussian", "gumbel", "exponential", "uniform"}
            The noise's distribution, shifted and scaled to mean 0 and the system's standard
            deviations (unlike Zheng et al. 2018, whose Gumbel and exponential noise has a mean).

        Returns
        -------
        DataFrame
            n rows, columns ``x0``, ``x1``, ...

        Raises
        ------
        ConfigError
            Unknown noise, or a negative number of rows.
        """
        if noise not in get_args(Noise):
            raise ConfigError(f"noise is {noise!r}: choose one of {', '.join(get_args(Noise))}")
        if n < 0:
            raise ConfigError(f"the number of rows is {n}: it must not be negative")
        d = len(self.weights)
        E = STANDARD_NOISE[noise](np.random.default_rng(seed), (n, d)) * self.noise_scale
        X = np.linalg.solve((np.eye(d) - self.weights).T, E.T).T  # X (I - W) = E
        return pd.DataFrame(X, columns=pd.Index([f"x{j}" for j in range(d)]))


def linear_system(
    adjacency: npt.ArrayLike, seed: Seed, *, noise_scale: float | tuple[float, float] = 1.0
) -> SyntheticSystem:
    """Draw coefficients for a graph.

    Parameters
    ----------
    adjacency : array of shape (d, d)
        Nonzero at ``[i, j]`` where i causes j; acyclic.
    seed : int, sequence of int, or Generator
    noise_scale : float or pair of float
        Standard deviation of all noise, default 1 (Ng & Zhang 2022, section 6.1); or two bounds,
        between which the standard deviations of the variables are uniform.

    Returns
    -------
    LinearSystem

    Raises
    ------
    ConfigError
        If the adjacency is not a square matrix of a DAG, or the bounds are not positive and
        ascending.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.linear import linear_system
    >>> system = linear_system([[0, 1], [0, 0]], seed=0, noise_scale=2.0)
    >>> (system.weights != 0).astype(int).tolist(), system.noise_scale.tolist()
    ([[0, 1], [0, 0]], [2.0, 2.0])
    """
    edges = acyclic_edges(adjacency)
    d = len(edges)
    scales = noise_scale if isinstance(noise_scale, tuple) else (noise_scale, noise_scale)
    if not 0 < scales[0] <= scales[1]:
        raise ConfigError(f"noise_scale {noise_scale}: bounds must be positive, the lower first")
    rng = np.random.default_rng(seed)
    # Adding 0 turns the negative zeros of absent edges into positive ones.
    weights = edges * signed_weights(rng, *WEIGHT_RANGE, (d, d)) + 0.0
    scale = rng.uniform(*scales, d) if scales[0] < scales[1] else np.full(d, float(scales[0]))
    return SyntheticSystem(weights, scale)


def federated_linear(
    num_variables: int,
    num_rows: int,
    num_parties: int,
    graph: str = "er",
    seed: int = 0,
    *,
    edges_per_node: int = 1,
    noise: Noise = "gaussian",
    noise_scale: float | tuple[float, float] = 1.0,
    partition: str = "even",
) -> tuple[list[pd.DataFrame], FloatArray]:
    """Simulate a federation with a known truth: the setting of Ng & Zhang 2022, section 6.1.

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
        :func:`erdos_renyi` or :func:`scale_free`.
    seed : int
        Everything follows from it.
    edges_per_node : int
        Default 1: "ER1", d edges ("er": ``edges_per_node * d``, at most all pairs).
    noise, noise_scale
        As in :meth:`SyntheticSystem.sample` and :func:`linear_system`; default standard Gaussian.
    partition : {"even", "uneven"}
        Sizes of the parties.

    Returns
    -------
    tables : list of DataFrame
        One a party, variables ``x0``, ``x1``, ...
    weights : float64 array of shape (d, d)
        The truth.

    Raises
    ------
    ConfigError, DataError
        An argument out of range; fewer rows than the parties need.

    Examples
    --------
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> tables, weights = federated_linear(num_variables=3, num_rows=100, num_parties=4)
    >>> [len(table) for table in tables], list(tables[0]), weights.shape
    ([25, 25, 25, 25], ['x0', 'x1', 'x2'], (3, 3))
    """
    rng = np.random.default_rng(seed)
    num_edges = edges_per_node * num_variables
    adjacency = random_graph(graph, num_variables, num_edges, edges_per_node, rng)
    system = linear_system(adjacency, rng, noise_scale=noise_scale)
    rows = system.sample(num_rows, rng, noise)
    # Rows are independent, so the uneven split's sizes need the seed and the order does not matter.
    parties = split(rows, num_parties, partition, seed=None if partition == "even" else seed)
    return parties, system.weights
