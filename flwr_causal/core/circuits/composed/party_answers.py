"""What a party answers from its own circuits, which stay with it.

A query of a composed circuit takes one or two exchanges. In the first every party sends, for rows
that all align by their ids, one log density a circuit (`log_densities`, or `peak_densities` for the
most probable explanation); the server's `Composition` turns them into a density, or says how much,
or whether, each circuit of each party has made the row. In the second the parties that hold what is
asked for send what their circuits say of it, weighed so (`weighed_moments`, `weighed_states`) or
filled in (`filled`). No circuit and no evidence goes to another party.

In all functions ``circuits`` are the party's outputs in their order, over one domain: the party's
own, and ``values`` has the shape (n, d) of it with NaN for what is missing, or not known at this
party.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.descent import most_probable, peak_values, sampled
from flwr_causal.core.circuits.queries import column_moments, state_probabilities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.circuits.circuit import Circuit

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def log_densities(circuits: Sequence[Circuit], values: FloatArray) -> FloatArray:
    """Return the log density of each row in each circuit, shape (n, circuits).

    Columns outside a circuit's scope are passed over. Of a row of which nothing is known it is 0.
    """
    return np.stack([circuit.layers.root_values(values) for circuit in circuits], axis=1)


def class_densities(circuits: Sequence[Circuit], values: FloatArray, column: int) -> FloatArray:
    """Return the log densities with each state of a class in turn, shape (states, n, circuits).

    Parameters
    ----------
    circuits, values
        The class itself is not read.
    column : int
        Of the class in the party's domain. A party that does not hold it answers
        ``log_densities(circuits, values)[None]``.
    """
    given = values.copy()
    answers = []
    for state in range(circuits[0].domain.num_states[column]):
        given[:, column] = state
        answers.append(log_densities(circuits, given))
    return np.stack(answers)


def peak_densities(circuits: Sequence[Circuit], values: FloatArray) -> FloatArray:
    """Return the log density of each circuit's best explanation of each row, (n, circuits)."""
    result = np.empty((len(values), len(circuits)))
    for k, circuit in enumerate(circuits):
        layers = circuit.layers
        for rows in layers.chunks(len(values)):
            peaks = peak_values(layers, values[rows])
            result[rows, k] = layers.upward(peaks, maximise=True)[-1]
    return result


def filled(
    circuits: Sequence[Circuit],
    values: FloatArray,
    chosen: BoolArray,
    rng: np.random.Generator | None = None,
) -> FloatArray:
    """Fill missing values of rows by the circuits that were chosen for them.

    Parameters
    ----------
    circuits, values
    chosen : ndarray of bool, shape (n, circuits)
        As `Composition.drawn` or `Composition.most_probable` says for this party.
    rng : Generator, optional
        Values are drawn given the others of the circuit's columns. Default: the most probable ones.

    Returns
    -------
    ndarray of float64, shape (n, d)
        What is still missing is filled by another holder of the column.
    """
    result = values.copy()
    for k, circuit in enumerate(circuits):
        place = np.ix_(np.flatnonzero(chosen[:, k]), np.array(circuit.root.scope))
        rows = values[chosen[:, k]]
        if len(rows):
            layers = circuit.layers
            full = most_probable(layers, rows) if rng is None else sampled(layers, rows, rng)
            result[place] = full[:, circuit.root.scope]
    return result


def weighed_moments(
    circuits: Sequence[Circuit], values: FloatArray, flows: FloatArray, column: int
) -> FloatArray:
    """Return this party's part of the mean of a number and of its square, shape (2, n).

    Parameters
    ----------
    circuits, values
    flows : ndarray of float64, shape (n, circuits)
        Of `Composition.flows`.
    column : int
        In the party's domain.

    Returns
    -------
    ndarray of float64, shape (2, n)
        The parts of all holders add up to the mean and the mean square given what is known.
    """
    result = np.zeros((2, len(values)))
    for k, circuit in enumerate(circuits):
        if column in circuit.root.scope:
            mean, variance = column_moments(circuit.layers, values, column)
            result += flows[:, k] * np.stack((mean, variance + mean**2))
    return result


def weighed_states(
    circuits: Sequence[Circuit], values: FloatArray, flows: FloatArray, column: int
) -> FloatArray:
    """Return this party's part of the probability of each state of a column, shape (n, states).

    Parameters
    ----------
    circuits, values
        The column itself must be missing, here and where the flows come from.
    flows : ndarray of float64, shape (n, circuits)
        Of `Composition.flows`.
    column : int
        In the party's domain.
    """
    states = int(circuits[0].domain.num_states[column])
    result = np.zeros((len(values), states))
    for k, circuit in enumerate(circuits):
        if column in circuit.root.scope:
            own = state_probabilities(circuit.layers, values, column, states)
            result += flows[:, k, None] * own
    return result
