"""What a tensorised circuit is trained from: first sums over rows, and first parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.circuits.tensors.einsum_network import EinsumNetwork
    from flwr_causal.core.circuits.tensors.layout import TensorLayout

FloatArray = NDArray[np.float64]
Arrays = dict[str, FloatArray]

#: Rows of each state that a unit's first probabilities are drawn about, in proportion to all rows.
CONCENTRATION = 4.0


def scale_sums(values: FloatArray, num_states: Sequence[int], origin: FloatArray) -> Arrays:
    """Return numbers of values, sums and squares about the origin, and rows of each state."""
    apart = np.nan_to_num(values - origin)
    states = [
        np.bincount(values[~np.isnan(values[:, j]), j].astype(np.int64), minlength=number)
        for j, number in enumerate(num_states)
        if number
    ]
    return {
        "rows": np.array([float(len(values))]),
        "counts": (~np.isnan(values)).sum(axis=0).astype(np.float64),
        "first": apart.sum(axis=0),
        "second": (apart * apart).sum(axis=0),
        "states": np.concatenate([np.zeros(0), *states]),
    }


def first_parameters(
    layout: TensorLayout, options: EinsumNetwork, seed: int, states: FloatArray
) -> Arrays:
    """Draw the first parameters about what the first sums say of each column.

    Parameters
    ----------
    layout : TensorLayout
    options : EinsumNetwork
    seed : int
    states : ndarray of float64
        Rows of each state, as `scale_sums` counts them.

    Returns
    -------
    dict of arrays
        As `parameter_arrays` writes them.
    """
    rng = np.random.default_rng([seed, 1])
    k, replicas = options.sums, layout.replicas
    arrays: Arrays = {"means": rng.normal(size=(len(layout.numbers), replicas, k))}
    arrays["variances"] = np.clip(np.ones_like(arrays["means"]), *options.variances)
    own = np.split(states, np.cumsum(layout.num_states)[:-1])  # nothing of a number
    drawn = [np.zeros((0, replicas, k))]
    for column in layout.categories.tolist():
        shares = (own[column] + 1.0) / (own[column] + 1.0).sum()
        weights = rng.gamma(CONCENTRATION * shares[:, None, None], size=(len(shares), replicas, k))
        weights += 1e-2 * shares[:, None, None]
        drawn.append(weights / weights.sum(axis=0))
    arrays["probabilities"] = np.concatenate(drawn)
    for level in range(layout.depth):
        regions = 2 ** (layout.depth - 1 - level)
        tops = layout.num_classes if regions == 1 else k
        weights = 0.01 + rng.random((regions, replicas, tops, k, k))
        arrays[f"layer.{level}"] = weights / weights.sum(axis=(3, 4), keepdims=True)
    classes = np.ones(1)
    if layout.target is not None:
        classes = own[layout.target] + options.smoothing
    root = np.repeat(classes[:, None], replicas, axis=1)
    arrays["root"] = root / root.sum()
    return arrays
