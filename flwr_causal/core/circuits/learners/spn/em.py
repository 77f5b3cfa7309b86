"""Expectation maximisation of the weights and leaves of a circuit, for a given structure.

The expectation step is an upward pass and a downward pass of flows, the posterior probability that
a row passes through a node. The maximisation step has a closed form for each sum and each leaf: the
maximum a posteriori estimate from its sums over rows. Leaves have the priors of `leaves`; each sum
has the same number of pseudo rows, spread evenly over its children. No step decreases the sum of
log-likelihood and log prior.

References
----------
Peharz et al.: On the latent variable interpretation in sum-product networks, TPAMI 2017.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import xlogy

from flwr_causal.core.circuits import em
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.learners.spn.leaves import (
    MEAN_PSEUDO_ROWS,
    SPREAD_SHARE,
    location_and_spread,
    prior_masses,
    smoothed_normals,
    smoothed_tables,
    table_widths,
)
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian, Histogram
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.layers import Layers
    from flwr_causal.core.circuits.nodes import Leaf


#: Node values of a chunk of rows; every chunk visits every sum.
CHUNK = 2**20


class Improved(NamedTuple):
    """The result of EM.

    Parameters
    ----------
    circuit : Circuit
        Of the same structure.
    objective : ndarray of float64, shape (steps + 1,)
        Log-likelihood plus log prior, divided by the number of rows, before the first step and
        after each.
    log_likelihood : ndarray of float64, shape (steps + 1,)
        Log-likelihood alone, divided by the number of rows.
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
) -> Improved:
    """Improve the parameters of a circuit.

    Parameters
    ----------
    circuit : Circuit
        Leaves over several columns keep their parameters.
    data : DataFrame, or array of values of shape (n, d)
        A missing value is integrated out.
    steps : int, default 10
        Largest number of steps.
    row_weights : array_like, shape (n,), optional
        How often each row counts. Default 1.
    smoothing : float, default 2
        Pseudo rows of each leaf and each sum, as in `LearnSPN`; above 0, so that the variance of a
        normal leaf stays above 0.
    tolerance : float, default 1e-4
        In nats per row; EM ends after a step that gains less.

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
    likelihoods: list[float] = []
    updates = leaf_updates(circuit.layers.leaves, values, weights, smoothing)

    def expectation(circuit: Circuit, _: int) -> FlowSums:
        expected = _expectation(circuit.layers, values, weights, updates)
        likelihoods.append(expected.log_likelihood / total)
        return expected

    def objective(circuit: Circuit, expected: FlowSums) -> float:
        prior = _log_prior(circuit.layers, updates, smoothing)
        return float((expected.log_likelihood + prior) / total)

    def maximisation(circuit: Circuit, expected: FlowSums, _: int) -> Circuit:
        leaves = list(circuit.layers.leaves)
        for update, sums in zip(updates, expected.sums, strict=True):
            for number, leaf in zip(update.numbers, update.updated(sums), strict=True):
                leaves[number] = leaf
        mixed = [_smoothed_weights(flow, smoothing) for flow in expected.taken]
        return Circuit(circuit.domain, circuit.layers.rebuilt(leaves, mixed))

    found, objectives = em.local(
        circuit, expectation, maximisation, steps=steps, objective=objective, tolerance=tolerance
    )
    return Improved(found, np.array(objectives), np.array(likelihoods))


def checked_weights(given: ArrayLike | None, num_rows: int) -> FloatArray:
    """Return weights of rows, shape (n,); a DataError without rows or without positive weights."""
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


class FlowSums(NamedTuple):
    """The result of an expectation step.

    Parameters
    ----------
    log_likelihood : float
        Of all rows.
    taken : list of ndarray of float64, shape (children,)
        For each sum, the flow into each child.
    sums : list of ndarray of float64, shape (L, S)
        For each update of leaves.
    """

    log_likelihood: float
    taken: list[FloatArray]
    sums: list[FloatArray]


def _expectation(
    layers: Layers, values: FloatArray, weights: FloatArray, updates: Sequence[LeafUpdate]
) -> FlowSums:
    """Return the sums over rows from which weights and leaves follow."""
    likelihood = 0.0
    taken = [np.zeros(len(node.children)) for node in layers.sums]
    sums: list[FloatArray] = [np.zeros(()) for _ in updates]
    size = max(32, CHUNK // len(layers.nodes))
    for start in range(0, len(values), size):
        rows, counted = values[start : start + size], weights[start : start + size]
        densities = layers.upward(layers.leaf_values(rows))
        impossible = np.flatnonzero((densities[-1] == -np.inf) & (counted > 0))
        if len(impossible):
            raise DataError(
                f"row {start + impossible[0]} is impossible under the circuit: smooth its leaves, "
                "or leave the row out"
            )
        likelihood += float(counted @ np.where(counted > 0, densities[-1], 0.0))
        flows, parts = layers.flows(densities, counted)
        for sum_, part in zip(taken, parts, strict=True):
            sum_ += part
        for k, update in enumerate(updates):
            sums[k] = sums[k] + flows[update.numbers] @ update.features(rows)
    return FlowSums(likelihood, taken, sums)


def _smoothed_weights(flow: FloatArray, smoothing: float) -> FloatArray:
    smoothed = flow + smoothing / len(flow)
    return np.asarray(smoothed / smoothed.sum())


def _log_prior(layers: Layers, updates: Sequence[LeafUpdate], smoothing: float) -> float:
    leaves: Sequence[Leaf] = layers.leaves
    result = sum(update.log_prior([leaves[k] for k in update.numbers]) for update in updates)
    for node in layers.sums:
        result += float(xlogy(smoothing / len(node.weights), node.weights).sum())
    return result


# -- leaves over one column -----------------------------------------------------------------------


class LeafUpdate(NamedTuple):
    """Leaves of one kind over one column in EM.

    Parameters
    ----------
    numbers : ndarray of int, shape (L,)
        Numbers of the leaves in the circuit.
    features : callable
        Takes values (n, d) and returns the features (n, S) that are summed over rows, weighted by
        flows; 0 if missing.
    updated : callable
        Takes the sums (L, S) and returns the maximum a posteriori estimates of the leaves.
    log_prior : callable
        Takes the leaves and returns the logarithm of their prior, up to a constant.
    """

    numbers: IntArray
    features: Callable[[FloatArray], FloatArray]
    updated: Callable[[FloatArray], list[Leaf]]
    log_prior: Callable[[Sequence[Any]], float]


def _tables(
    numbers: Sequence[int],
    leaf: Categorical | Histogram,
    values: FloatArray,
    row_weights: FloatArray,
    smoothing: float,
) -> LeafUpdate:
    """Return the update of categories of one column, or of histograms with the same bins."""
    widths = table_widths(leaf)
    field = "masses" if isinstance(leaf, Histogram) else "probabilities"
    indicators = np.vstack((np.eye(len(widths)), np.zeros(len(widths))))

    def codes(values: FloatArray) -> IntArray:
        column = values[:, leaf.column]
        missing = np.isnan(column)
        if isinstance(leaf, Histogram):
            found = np.searchsorted(leaf.edges, column, side="right")
        else:
            found = np.where(missing, 0, column).astype(np.int64)
        return np.where(missing, len(widths), found)

    counts = np.bincount(codes(values), row_weights, minlength=len(indicators)).astype(np.float64)
    prior = prior_masses(counts[:-1], widths)

    def updated(sums: FloatArray) -> list[Leaf]:
        tables = smoothed_tables(sums, prior, smoothing)
        return [replace(leaf, **{field: table}) for table in tables]

    def log_prior(leaves: Sequence[Any]) -> float:
        """Return the log-likelihood of the pseudo rows."""
        tables = np.stack([getattr(one, field) for one in leaves])
        return float(smoothing * xlogy(prior, tables).sum())

    return LeafUpdate(np.array(numbers), lambda rows: indicators[codes(rows)], updated, log_prior)


def _normals(
    numbers: Sequence[int],
    column: int,
    values: FloatArray,
    row_weights: FloatArray,
    smoothing: float,
) -> LeafUpdate:
    """Return the update of normal distributions of one column."""
    known = ~np.isnan(values[:, column]) & (row_weights > 0)
    centre, spread = 0.0, 1.0
    if known.any():
        centre, spread = location_and_spread(values[known, column], row_weights[known])

    def features(values: FloatArray) -> FloatArray:
        z = (values[:, column] - centre) / spread
        known = ~np.isnan(z)
        z = np.where(known, z, 0.0)
        return np.column_stack((known, z, z**2))

    def updated(sums: FloatArray) -> list[Leaf]:
        means, variances = smoothed_normals(sums[:, 0], sums[:, 1], sums[:, 2], smoothing)
        return [
            Gaussian(column, centre + spread * mean, spread * sd)
            for mean, sd in zip(means.tolist(), np.sqrt(variances).tolist(), strict=True)
        ]

    def log_prior(leaves: Sequence[Any]) -> float:
        """Return the logarithm of the normal and inverse-gamma prior."""
        mean = (np.array([leaf.mean for leaf in leaves]) - centre) / spread
        sd = np.array([leaf.sd for leaf in leaves]) / spread
        pseudo = 0.5 * smoothing
        pull = MEAN_PSEUDO_ROWS * mean**2 + pseudo * SPREAD_SHARE**2
        return float((-0.5 * pull / sd**2 - pseudo * np.log(sd)).sum())

    return LeafUpdate(np.array(numbers), features, updated, log_prior)


def leaf_updates(
    leaves: Sequence[Leaf], values: FloatArray, row_weights: FloatArray, smoothing: float
) -> list[LeafUpdate]:
    """Return the updates of all leaves over one column; other leaves are not changed."""
    groups: dict[tuple[str, int, bytes], list[int]] = {}
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, Categorical | Histogram | Gaussian):
            bins = b""
            if isinstance(leaf, Histogram):
                bins = leaf.edges.tobytes() + np.float64(leaf.tail).tobytes()
            groups.setdefault((leaf.kind, leaf.column, bins), []).append(number)
    updates: list[LeafUpdate] = []
    for (_, column, _), numbers in groups.items():
        first = leaves[numbers[0]]
        if isinstance(first, Categorical | Histogram):
            updates.append(_tables(numbers, first, values, row_weights, smoothing))
        else:
            updates.append(_normals(numbers, column, values, row_weights, smoothing))
    return updates
