"""What a circuit answers about rows, in values (see `domain`): densities, states, moments.

Evidence that a circuit holds impossible says nothing about the rest: for such a row the answers are
those without evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from flwr_causal.core.circuits.layers import Layers
    from flwr_causal.core.circuits.nodes import FloatArray


def state_probabilities(
    layers: Layers, values: FloatArray, column: int, num_states: int
) -> FloatArray:
    """Probability of each state of a column given the rest of the row, shape (n, states).

    Parameters
    ----------
    layers : Layers
    values : ndarray of float64, shape (n, d)
        What the column itself holds is passed over.
    column, num_states : int
    """
    own = layers.batches([k for k, leaf in enumerate(layers.leaves) if column in leaf.scope])
    others = layers.batches([k for k, leaf in enumerate(layers.leaves) if column not in leaf.scope])
    joint = np.empty((len(values), num_states))
    for rows in layers.chunks(len(values)):
        given = values[rows].copy()
        leaf_values = np.empty((len(layers.leaves), len(given)))
        for numbers, batch in others:
            leaf_values[numbers] = batch.log_density(given)
        for state in range(num_states):
            # Only the leaves that see the column change from state to state.
            given[:, column] = state
            for numbers, batch in own:
                leaf_values[numbers] = batch.log_density(given)
            joint[rows, state] = layers.upward(leaf_values)[-1]
    peaks = joint.max(axis=1, keepdims=True)
    impossible = ~np.isfinite(peaks[:, 0])
    joint = np.exp(joint - np.where(impossible[:, None], 0.0, peaks))
    if impossible.any():
        nothing = np.full((1, values.shape[1]), np.nan)
        joint[impossible] = state_probabilities(layers, nothing, column, num_states)
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


def column_moments(
    layers: Layers, values: FloatArray, column: int
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of a number given the row, both of shape (n,).

    Parameters
    ----------
    layers : Layers
    values : ndarray of float64, shape (n, d)
        A value that the column itself holds is its own mean.
    column : int
    """
    own = [k for k, leaf in enumerate(layers.leaves) if column in leaf.scope]
    means, variances = np.empty(len(values)), np.empty(len(values))
    for rows in layers.chunks(len(values)):
        given = values[rows]
        node_values = layers.upward(layers.leaf_values(given))
        impossible = ~np.isfinite(node_values[-1])
        if impossible.any():
            given = given.copy()
            given[impossible] = np.nan
            node_values = layers.upward(layers.leaf_values(given))
        flows = layers.flows(node_values)[0][own]
        first, second = np.zeros(flows.shape), np.zeros(flows.shape)
        for k, number in enumerate(own):
            leaf = layers.leaves[number]
            taken = np.flatnonzero(flows[k] > 0)
            if len(taken):
                position = leaf.scope.index(column)
                parts = leaf.moments(given[np.ix_(taken, np.array(leaf.scope))])
                first[k, taken], second[k, taken] = (part[:, position] for part in parts)
        mean = (flows * first).sum(axis=0)
        within = np.maximum(second - first**2, 0.0)
        means[rows] = mean
        variances[rows] = (flows * (within + (first - mean) ** 2)).sum(axis=0)
        present = ~np.isnan(values[rows, column])
        means[rows] = np.where(present, values[rows, column], means[rows])
        variances[rows] = np.where(present, 0.0, variances[rows])
    return means, variances
