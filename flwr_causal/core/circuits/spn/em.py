"""Expectation maximisation: better weights of the sums and better leaves for a given structure.

The expectation step is one evaluation upwards and one of flows downwards: the posterior
probability that a row came by a node. The maximisation step then has a closed form for each sum and
each leaf alone. With the priors of `leaf_updates`, and as many pseudo rows spread evenly over the
children of each sum, no step lowers the log-likelihood plus the log prior.

References
----------
Peharz et al.: On the latent variable interpretation in sum-product networks, TPAMI 2017.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import xlogy

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.spn.leaf_updates import leaf_updates
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.circuits.layers import Layers
    from flwr_causal.core.circuits.nodes import FloatArray, Leaf
    from flwr_causal.core.circuits.spn.leaf_updates import LeafUpdate

#: Values of nodes that are kept at once, in numbers: each chunk of rows visits every sum.
CHUNK = 2**20


class Improved(NamedTuple):
    """What EM returns.

    Parameters
    ----------
    circuit : Circuit
        Of the same structure.
    objective : ndarray of float64, shape (steps + 1,)
        Log-likelihood plus log prior over the number of rows, before the first step and after each.
    log_likelihood : ndarray of float64, shape (steps + 1,)
        Its first part alone.
    """

    circuit: Circuit
    objective: FloatArray
    log_likelihood: FloatArray


def expectation_maximisation(
    circuit: Circuit,
    data: Any,
    *,
    steps: int = 10,
    row_weights: ArrayLike | None = None,
    smoothing: float = 2.0,
    tolerance: float = 1e-4,
    leaves: bool = True,
) -> Improved:
    """Improve the parameters of a circuit.

    Parameters
    ----------
    circuit : Circuit
        Leaves over several columns keep their parameters.
    data : DataFrame, or array of values of shape (n, d)
        A missing value is integrated out.
    steps : int, default 10
        At most so many.
    row_weights : array_like, shape (n,), optional
        How many rows each stands for. Default 1.
    smoothing : float, default 2
        Pseudo rows of each leaf and each sum, as of `LearnSPN`; above 0, lest a normal leaf shrinks
        to a point.
    tolerance : float, default 1e-4
        Nats a row: a step that gains less is the last.
    leaves : bool, default True
        False: the weights of sums alone are improved.

    Returns
    -------
    Improved

    Raises
    ------
    DataError
        If there are no rows, or one is impossible under the circuit.
    ConfigError
        If an option is out of range.
    """
    if steps < 0 or not smoothing > 0 or not tolerance >= 0:
        raise ConfigError(
            "smoothing must be above 0, steps and tolerance not below it, got "
            f"{smoothing}, {steps} and {tolerance}"
        )
    values = circuit.domain.encode(data)
    weights = checked_weights(row_weights, len(values))
    total = weights.sum()
    objective: list[float] = []
    likelihood: list[float] = []
    updates = leaf_updates(circuit.layers.leaves, values, weights, smoothing) if leaves else []
    while True:
        layers = circuit.layers
        reached, taken, sums = _expectation(layers, values, weights, updates)
        prior = _log_prior(layers, updates, smoothing)
        likelihood.append(reached / total)
        objective.append((reached + prior) / total)
        gained = objective[-1] - objective[-2] if len(objective) > 1 else np.inf
        if len(objective) > steps or gained < tolerance:
            return Improved(circuit, np.array(objective), np.array(likelihood))
        improved = list(layers.leaves)
        for update, own in zip(updates, sums, strict=True):
            for number, leaf in zip(update.numbers, update.updated(own), strict=True):
                improved[number] = leaf
        mixed = [_smoothed_weights(flow, smoothing) for flow in taken]
        circuit = Circuit(circuit.domain, layers.rebuilt(improved, mixed))


def checked_weights(given: ArrayLike | None, num_rows: int) -> FloatArray:
    """Return weights of rows, shape (n,); a DataError if there is nothing to weigh or weigh by."""
    if num_rows == 0:
        raise DataError("there are no rows: a circuit is learned from at least one")
    if given is None:
        return np.ones(num_rows)
    weights = np.asarray(given, dtype=np.float64)
    if weights.shape != (num_rows,):
        raise DataError(f"{num_rows} rows need as many weights, got the shape {weights.shape}")
    if not np.isfinite(weights).all() or (weights < 0).any() or weights.sum() <= 0:
        raise DataError("weights of rows must be finite, not negative, and not all 0")
    return weights


def _expectation(
    layers: Layers, values: FloatArray, weights: FloatArray, updates: Sequence[LeafUpdate]
) -> tuple[float, list[FloatArray], list[FloatArray]]:
    """Return log-likelihood, flows into the children of sums, and the sums of each update."""
    likelihood = 0.0
    taken = [np.zeros(len(node.children)) for node in layers.sums]
    sums: list[FloatArray] = [np.zeros(()) for _ in updates]
    size = max(32, CHUNK // len(layers.nodes))
    for start in range(0, len(values), size):
        rows, own = values[start : start + size], weights[start : start + size]
        densities = layers.upward(layers.leaf_values(rows))
        impossible = np.flatnonzero((densities[-1] == -np.inf) & (own > 0))
        if len(impossible):
            raise DataError(
                f"row {start + impossible[0]} is impossible under the circuit: smooth its leaves, "
                "or leave the row out"
            )
        likelihood += float(own @ np.where(own > 0, densities[-1], 0.0))
        flows, parts = layers.flows(densities, own)
        for sum_, part in zip(taken, parts, strict=True):
            sum_ += part
        for k, update in enumerate(updates):
            sums[k] = sums[k] + flows[update.numbers] @ update.features(rows)
    return likelihood, taken, sums


def _smoothed_weights(flow: FloatArray, smoothing: float) -> FloatArray:
    smoothed = flow + smoothing / len(flow)
    return np.asarray(smoothed / smoothed.sum())


def _log_prior(layers: Layers, updates: Sequence[LeafUpdate], smoothing: float) -> float:
    leaves: Sequence[Leaf] = layers.leaves
    result = sum(update.log_prior([leaves[k] for k in update.numbers]) for update in updates)
    for node in layers.sums:
        result += float(xlogy(smoothing / len(node.weights), node.weights).sum())
    return result
