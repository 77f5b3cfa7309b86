"""From a solver's raw weights to a causal graph: threshold, cycles, required edges, refit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.graphs.acyclicity import break_cycles
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.linear.model import refit as least_squares_weights
from flwr_causal.core.linear.model import regress
from flwr_causal.core.linear.moments import as_moments
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.linear.moments import Moments


# An edge that stands with a strength of zero (a required one) is stored with this.
LEAST_WEIGHT = 1e-12


def edge_masks(knowledge: Knowledge | EdgeMasks | None, names: tuple[str, ...]) -> EdgeMasks:
    """Return masks of allowed and required edges, ``(d, d)`` each; None allows all edges."""
    if isinstance(knowledge, EdgeMasks):
        return knowledge
    return (Knowledge() if knowledge is None else knowledge).masks(names)


def check_at_least_zero(**options: float) -> None:
    """Raise a ConfigError for a negative, infinite or missing (NaN) option."""
    for name, value in options.items():
        if not (np.isfinite(value) and value >= 0):
            raise ConfigError(f"{name} must be a number of at least 0, got {value}")


def check_sparsity(sparsity: float | FloatArray, num_variables: int) -> None:
    """Raise a ConfigError unless all penalties are finite, at least 0, and one or one per edge."""
    penalties = np.asarray(sparsity, dtype=np.float64)
    square = (num_variables, num_variables)
    if penalties.shape not in ((), square):
        raise ConfigError(
            f"sparsity must be a number or have shape {square}, got {penalties.shape}"
        )
    bad = ~(np.isfinite(penalties) & (penalties >= 0))
    if bad.any():
        raise ConfigError(f"sparsity must be at least 0 and finite, got {penalties[bad].flat[0]}")


def prepared(
    moments_or_data: Any,
    sparsity: float | FloatArray,
    knowledge: Knowledge | EdgeMasks | None,
    **at_least_zero: float,
) -> tuple[Moments, EdgeMasks]:
    """Return complete moments and the masks of a linear solver, its options checked.

    Raises
    ------
    DataError
        If the data are no table of finite numbers.
    ConfigError
        If an option is out of range or the knowledge contradicts itself or the names.
    """
    check_at_least_zero(**at_least_zero)
    moments = as_moments(moments_or_data)
    check_sparsity(sparsity, moments.d)
    moments.require_complete()
    return moments, edge_masks(knowledge, moments.names)


def refit_required(
    moments: Moments, weights: FloatArray, adjacency: BoolArray, required: BoolArray
) -> FloatArray:
    """Least-squares weights for every variable that has a required parent, others as they are."""
    result = weights.copy()
    for child in np.flatnonzero(required.any(axis=0)):
        parents = np.flatnonzero(adjacency[:, child])
        result[:, child] = 0.0
        result[parents, child] = regress(moments.second, parents, int(child))[0]
    return result


def standing_edges(
    weights: FloatArray, threshold: float | FloatArray, required: ArrayLike
) -> BoolArray:
    """Return the acyclic edges of the weights above a threshold, with all required ones.

    Parameters
    ----------
    weights
        ``(d, d)``; the weakest edges on cycles are left out.
    threshold
        For the absolute weight, a number or ``(d, 1)``.
    required
        ``(d, d)`` edges that stand whatever their weight, and take part in cycles even at zero.
    """
    must = np.asarray(required, dtype=bool)
    strong = np.where(np.abs(weights) > threshold, weights, 0.0)
    strong = np.where(must & (strong == 0), 1.0, strong)
    return np.asarray((break_cycles(strong, must) != 0) | must)


def standing_weights(adjacency: BoolArray, strengths: FloatArray) -> FloatArray:
    """Weights of the graph with these edges, ``(d, d)``; no strength of zero takes an edge away."""
    return np.where(adjacency, np.where(strengths == 0, LEAST_WEIGHT, strengths), 0.0)


def refit_support(
    moments: Moments, adjacency: BoolArray, threshold: float | FloatArray, required: BoolArray
) -> FloatArray:
    """Least-squares weights of a graph without the edges whose own weight is too small then.

    An edge may exceed the threshold in the penalised solution only because it stands in for
    another one; with its least-squares weight it does not. Removing edges never closes a cycle.
    """
    while True:
        weights = least_squares_weights(moments, adjacency)
        kept = adjacency & ((np.abs(weights) > threshold) | required)
        if np.array_equal(kept, adjacency):
            return weights
        adjacency = kept


def finish(
    moments: Moments,
    raw_weights: FloatArray,
    *,
    threshold: float | FloatArray,
    masks: EdgeMasks,
    refit: bool = False,
) -> CausalGraph:
    """Make the causal graph of a solution; the result is a DAG whatever the weights were.

    Parameters
    ----------
    moments
        Moments the solution was found on, for the refit.
    raw_weights
        ``(d, d)`` solution; entries that are not allowed are taken to be zero.
    threshold
        Edges of absolute weight at most this are dropped, unless required; ``(d, 1)`` for one value
        for each cause.
    masks
        Required edges survive threshold and the removal of cycles, and a variable with a required
        parent gets the least-squares weights of all its parents in the final graph.
    refit
        Give every variable its least-squares weights, and drop the edges that do not exceed the
        threshold with them (see :func:`refit_support`).
    """
    raw = np.where(masks.allowed, raw_weights, 0.0)
    required = np.asarray(masks.required, dtype=bool)
    adjacency = standing_edges(raw, threshold, required)
    weights = np.where(adjacency, raw, 0.0)
    if refit:
        weights = refit_support(moments, adjacency, threshold, required)
    else:
        weights = refit_required(moments, weights, adjacency, required)
    return CausalGraph(names=moments.names, weights=weights, raw_weights=raw, required=required)
