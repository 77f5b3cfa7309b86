"""Checks of a linear solver's arguments, and the causal graph of its solution.

The graph of a solution has the edges above a threshold and the required edges, without cycles; its
weights may be refitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.graphs.acyclicity import break_cycles
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.limits import check_deadline
from flwr_causal.core.linear.determined import regular
from flwr_causal.core.linear.moments import (
    SampleMoments,
    as_moments,
    distinct,
    moments_of_variables,
)
from flwr_causal.core.linear.regression import refit as least_squares_weights
from flwr_causal.core.linear.regression import regress
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray


# Weight of an edge whose strength is 0 (a required edge): a weight of 0 would mean no edge.
LEAST_WEIGHT = 1e-12


def edge_masks(knowledge: Knowledge | EdgeMasks | None, names: tuple[str, ...]) -> EdgeMasks:
    """Return the masks of allowed and required edges; for None all edges are allowed.

    Raises
    ------
    ConfigError
        If the knowledge names a variable that is not among ``names``, or states lagged edges.
    """
    if isinstance(knowledge, EdgeMasks):
        return knowledge
    return (Knowledge() if knowledge is None else knowledge).masks(names)


def check_at_least_zero(**options: float) -> None:
    """Raise a ConfigError that names the option if one is negative, infinite or NaN."""
    for name, value in options.items():
        if not (np.isfinite(value) and value >= 0):
            raise ConfigError(f"{name} must be a number of at least 0, got {value}")


def check_sparsity(sparsity: float | FloatArray, num_variables: int) -> None:
    """Raise a ConfigError unless ``sparsity`` is a number or ``(d, d)``, finite and at least 0."""
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
) -> tuple[list[SampleMoments], EdgeMasks]:
    """Check a linear solver's arguments; return each variable's moments and the masks of edges.

    Parameters
    ----------
    moments_or_data
        ``SampleMoments``, a list of them for each variable, an ``(n, d)`` array or a data frame.
    sparsity
        L1 penalty, a number or ``(d, d)``.
    knowledge
        Background knowledge, or None.
    **at_least_zero
        Further options, which must be finite and at least 0.

    Raises
    ------
    DataError
        If the data are not a table of finite numbers, or a second moment is missing.
    ConfigError
        If an option is out of range, or the knowledge does not fit the variables.
    """
    check_at_least_zero(**at_least_zero)
    given = moments_or_data
    listed = isinstance(given, list | tuple) and all(
        isinstance(own, SampleMoments) for own in given
    )
    moments = list(given) if listed and given else [as_moments(given)]
    for own in distinct(moments)[0]:
        check_sparsity(sparsity, own.d)
        own.require_complete()
    masks = edge_masks(knowledge, moments[0].names)
    return moments if listed else [regular(moments[0], masks.required)] * moments[0].d, masks


def refit_required(
    moments: SampleMoments | Sequence[SampleMoments],
    weights: FloatArray,
    adjacency: BoolArray,
    required: BoolArray,
) -> FloatArray:
    """Return the weights with least-squares weights for all variables with a required parent."""
    result, own = weights.copy(), moments_of_variables(moments, weights.shape[1])
    for child in np.flatnonzero(required.any(axis=0)):
        parents = np.flatnonzero(adjacency[:, child])
        result[:, child] = 0.0
        result[parents, child] = regress(own[child].second, parents, int(child))[0]
    return result


def edges_above(
    weights: FloatArray, threshold: float | FloatArray, required: ArrayLike
) -> BoolArray:
    """Return the DAG of the edges above a threshold and the required edges, ``(d, d)``.

    Parameters
    ----------
    weights
        ``(d, d)`` weights; the weakest edges on cycles are removed.
    threshold
        Threshold of the absolute weight: a number, or ``(d, 1)`` with one number for each cause.
    required
        ``(d, d)`` mask of edges that the result has whatever their weight.
    """
    must = np.asarray(required, dtype=bool)
    strong = np.where(np.abs(weights) > threshold, weights, 0.0)
    strong = np.where(must & (strong == 0), 1.0, strong)
    return np.asarray((break_cycles(strong, must) != 0) | must)


def edge_weights(adjacency: BoolArray, strengths: FloatArray) -> FloatArray:
    """Return ``(d, d)`` weights: an edge's strength, `LEAST_WEIGHT` if it is 0, and 0 elsewhere."""
    return np.where(adjacency, np.where(strengths == 0, LEAST_WEIGHT, strengths), 0.0)


def refit_support(
    moments: SampleMoments | Sequence[SampleMoments],
    adjacency: BoolArray,
    threshold: float | FloatArray,
    required: BoolArray,
) -> FloatArray:
    """Refit a graph, and remove edges whose least-squares weight is not above the threshold.

    In a penalised solution an edge can exceed the threshold because another edge is missing or
    shrunk; its least-squares weight may be below the threshold. Refit and removal are repeated
    until no edge is removed.

    Parameters
    ----------
    moments
        Moments of the data, or one for each variable.
    adjacency
        ``(d, d)`` DAG, or ``(m, d)`` with lags.
    threshold
        See :func:`edges_above`.
    required
        Mask of edges that are not removed.

    Returns
    -------
    Least-squares weights of the remaining edges.
    """
    while True:
        check_deadline()
        weights = least_squares_weights(moments, adjacency)
        kept = adjacency & ((np.abs(weights) > threshold) | required)
        if np.array_equal(kept, adjacency):
            return weights
        adjacency = kept


def finish(
    moments: SampleMoments | Sequence[SampleMoments],
    raw_weights: FloatArray,
    *,
    threshold: float | FloatArray,
    masks: EdgeMasks,
    refit: bool = False,
) -> CausalGraph:
    """Return the causal graph of a solution, which is a DAG for any weights.

    Parameters
    ----------
    moments
        Moments of the data, or one for each variable, for the refit.
    raw_weights
        ``(d, d)`` solution; entries that are not allowed are set to 0.
    threshold
        Edges of absolute weight at most this are removed unless required: a number, or ``(d, 1)``
        with one number for each cause.
    masks
        Allowed and required edges. Required edges are never removed, and a variable with a required
        parent gets the least-squares weights of all its parents in the final graph.
    refit
        Whether to give all variables their least-squares weights, and to remove the edges that are
        not above the threshold with them (see :func:`refit_support`). Default: False.
    """
    raw = np.where(masks.allowed, raw_weights, 0.0)
    required = np.asarray(masks.required, dtype=bool)
    adjacency = edges_above(raw, threshold, required)
    weights = np.where(adjacency, raw, 0.0)
    if refit:
        weights = refit_support(moments, adjacency, threshold, required)
    else:
        weights = refit_required(moments, weights, adjacency, required)
    names = moments_of_variables(moments, 1)[0].names
    return CausalGraph(names=names, weights=weights, raw_weights=raw, required=required)
