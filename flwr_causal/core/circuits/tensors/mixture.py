"""Tensorised circuits of several parties as one: what a single pass makes of them.

Parties that learn with the same options have region graphs of the same depth and sums of the same
number. Their replicas side by side are then one tensorised circuit, whose root mixes the parties'
roots: the horizontal composition of Seng et al. (2025), with all queries at the price of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.tensors.circuit import TensorCircuit
from flwr_causal.core.circuits.tensors.evaluation import TensorParameters
from flwr_causal.core.circuits.tensors.layout import TensorLayout
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = NDArray[np.float64]


def mixed(circuits: Sequence[TensorCircuit], weights: Sequence[float]) -> TensorCircuit:
    """Return the mixture of circuits as one, on the first one's device and with its precision.

    Parameters
    ----------
    circuits : sequence of TensorCircuit
        Over the same domain, with the same target, depth and number of sums.
    weights : sequence of float
        Not negative, divided by their sum; in the paper the parties' numbers of rows.

    Raises
    ------
    ConfigError
        If circuits do not go together, or weights are none.
    """
    shares = np.asarray(weights, dtype=np.float64)
    if len(shares) != len(circuits) or not len(shares) or (shares < 0).any() or not shares.sum():
        raise ConfigError(
            f"{len(circuits)} circuits need as many weights, not negative and not all 0, got "
            f"{list(weights)}"
        )
    shares = shares / shares.sum()
    first = circuits[0]
    for number, other in enumerate(circuits):
        if _form(other) != _form(first):
            raise ConfigError(
                f"circuit {number} differs from the first in its variables, its target, its depth "
                "or its number of sums: let all parties learn with the same options"
            )
    widest = max(circuit.layout.regions.shape[2] for circuit in circuits)
    regions = [_widened(circuit.layout.regions, widest) for circuit in circuits]
    shift, scale = _common_scale([circuit.layout for circuit in circuits], shares)
    layout = TensorLayout(
        first.layout.num_states,
        np.concatenate(regions, axis=1),
        shift,
        scale,
        first.layout.target,
        first.layout.device,
        first.layout.precision,
    )
    parts = [_rescaled(circuit, layout) for circuit in circuits]
    levels = zip(*(circuit.parameters.layers for circuit in circuits), strict=True)
    layers = [np.concatenate([one.cpu().numpy() for one in level], axis=1) for level in levels]
    roots = [
        share * circuit.parameters.root.double().cpu().numpy()
        for share, circuit in zip(shares, circuits, strict=True)
    ]
    means, variances, probabilities = (
        layout.tensor(np.concatenate(units, axis=1)) for units in zip(*parts, strict=True)
    )
    parameters = TensorParameters(
        means,
        variances,
        probabilities,
        tuple(layout.tensor(weights) for weights in layers),
        layout.tensor(np.concatenate(roots, axis=1)),
    )
    return TensorCircuit(first.domain, layout, parameters)


def _form(circuit: TensorCircuit) -> tuple[object, ...]:
    """Return what circuits of a mixture have in common."""
    layout = circuit.layout
    return (
        circuit.domain,
        layout.target,
        layout.depth,
        tuple(layout.columns.tolist()),
        circuit.parameters.layers[0].shape[3],
    )


def _widened(regions: NDArray[np.int64], widest: int) -> NDArray[np.int64]:
    missing = widest - regions.shape[2]
    return np.pad(regions, ((0, 0), (0, 0), (0, missing)), constant_values=-1)


def _common_scale(
    layouts: Sequence[TensorLayout], shares: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and deviation of a column in the mixture of rows that were standardised apart."""
    shifts = np.stack([layout.shift for layout in layouts])
    scales = np.stack([layout.scale for layout in layouts])
    shift = shares @ shifts
    return shift, np.sqrt(shares @ (scales**2 + (shifts - shift) ** 2))


def _rescaled(circuit: TensorCircuit, layout: TensorLayout) -> tuple[FloatArray, ...]:
    """Means, variances and probabilities for values that are standardised as in the layout."""
    own, numbers = circuit.layout, circuit.layout.numbers
    ratio = (own.scale / layout.scale)[numbers, None, None]
    offset = ((own.shift - layout.shift) / layout.scale)[numbers, None, None]
    means, variances, probabilities = (
        units.double().cpu().numpy() for units in circuit.parameters[:3]
    )
    return means * ratio + offset, variances * ratio**2, probabilities
