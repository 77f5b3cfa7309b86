"""Marginals and conditionals of a tensorised circuit as circuits of their own.

Evidence changes how likely each pair of a region's children is, so it goes into the weights; then
the columns that it was about are taken out, as those that nobody asks for are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.tensors.evaluation import TensorParameters, evaluated, root_terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.circuits.tensors.layout import TensorLayout

FloatArray = NDArray[np.float64]
Tensor = Any


def restricted(
    layout: TensorLayout, parameters: TensorParameters, columns: Sequence[int]
) -> tuple[TensorLayout, TensorParameters]:
    """Return the marginal of some columns, of which one at least is split into regions."""
    kept = np.isin(layout.regions, columns)
    target = layout.target if layout.target in columns else None
    smaller = replace(layout, regions=np.where(kept, layout.regions, -1), target=target)
    numbers = layout.indices(np.flatnonzero(np.isin(layout.numbers, columns)))
    states = layout.indices(np.flatnonzero(np.isin(layout.state_columns, columns)))
    if target is None:
        parameters = _without_classes(parameters)
    return smaller, parameters._replace(
        means=parameters.means[numbers],
        variances=parameters.variances[numbers],
        probabilities=parameters.probabilities[states],
    )


def over(
    layout: TensorLayout, parameters: TensorParameters, columns: Sequence[int]
) -> tuple[TensorLayout, TensorParameters]:
    """Return the same circuit whose column j is what was ``columns[j]``: all that it is over."""
    moved = layout.over(columns)
    numbers = np.searchsorted(layout.numbers, np.array(columns)[moved.numbers])
    states = [
        np.arange(len(layout.states))[layout.states_of[place]]
        for place in np.searchsorted(layout.categories, np.array(columns)[moved.categories])
    ]
    chosen = layout.indices(np.concatenate([np.zeros(0, dtype=np.int64), *states]))
    own = layout.indices(numbers)
    return moved, parameters._replace(
        means=parameters.means[own],
        variances=parameters.variances[own],
        probabilities=parameters.probabilities[chosen],
    )


def conditioned(
    layout: TensorLayout, parameters: TensorParameters, row: FloatArray
) -> tuple[TensorParameters, float]:
    """Return the parameters given a row (d,), NaN where it says nothing, and its log density.

    They are of the same layout: what the row holds is still to be taken out, see `restricted`.
    """
    rows = layout.rows(row[None])
    evaluation = evaluated(layout, parameters, rows)
    density = float(evaluation.joint.logsumexp(dim=0)[0])
    layers = []
    for weights, trace in zip(parameters.layers, evaluation.traces, strict=True):
        regions, replicas, _, k, _ = weights.shape
        left = trace.left.view(regions, replicas, 1, k, 1)
        right = trace.right.view(regions, replicas, 1, 1, k)
        pairs = weights * left * right
        layers.append(pairs / pairs.sum(dim=(3, 4), keepdim=True))
    root = root_terms(layout, parameters, rows, evaluation.traces[-1].values)[:, :, 0]
    root = (root - density).exp()
    return parameters._replace(layers=tuple(layers), root=root / root.sum()), density


def class_probabilities(parameters: TensorParameters) -> FloatArray:
    """Return the probability of each class, shape (C,)."""
    shares = parameters.root.sum(dim=1).double().cpu().numpy()
    return np.asarray(shares / shares.sum())


def _without_classes(parameters: TensorParameters) -> TensorParameters:
    """Return one root in place of one for each class."""
    replicas = parameters.root.sum(dim=0, keepdim=True)
    top = parameters.layers[-1]  # (1, R, C, K, K)
    shares = parameters.root.T / replicas.T.clamp(min=1e-30)  # (R, C)
    merged = (top * shares[None, :, :, None, None]).sum(dim=2, keepdim=True)
    totals = merged.sum(dim=(3, 4), keepdim=True)
    # Of a replica that cannot be it does not matter which pair is taken.
    merged = (merged + (totals == 0)).div(totals + (totals == 0) * merged[0, 0].numel())
    return parameters._replace(layers=(*parameters.layers[:-1], merged), root=replicas)
