"""A party's answers from its own circuits, which stay with it.

A query of a composed circuit takes one or two exchanges. In the first every party sends log
densities of its columns of each row under each of its circuits: `log_densities`; `class_densities`
for each state of a class; `peak_densities` of the most probable explanation. The server computes
the density from these, or the posterior probability of each circuit, or which circuits fill the
row. In the second exchange the parties send moments of a number, weighted by the posterior
probabilities (`weighted_moments`), or the filled rows (`filled`). Circuits and evidence of one
party are not sent to another.

In all functions ``circuits`` are the party's outputs in their order, over the party's own domain,
and ``values`` has the shape (n, d), NaN where a value is missing or not held by this party.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.circuits.circuit import Circuit


def log_densities(circuits: Sequence[Circuit], values: FloatArray) -> FloatArray:
    """Return the log density of each row in each circuit, shape (n, circuits).

    Columns outside a circuit's scope are ignored. A row without any value has the log density 0.
    """
    return np.stack([circuit.log_densities(values) for circuit in circuits], axis=1)


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
    states = int(circuits[0].domain.num_states[column])
    found = [one.layers.state_log_densities(values, column, states) for one in circuits]
    return np.stack(found, axis=2).transpose(1, 0, 2)


def peak_densities(circuits: Sequence[Circuit], values: FloatArray) -> FloatArray:
    """Return the log density of each circuit's best explanation of each row, (n, circuits)."""
    return np.stack([circuit.peak_layers.peak_densities(values) for circuit in circuits], axis=1)


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
        Which circuits fill a row. No two of them have a column in common.
    rng : Generator, optional
        Draws values given the known values of the circuit's columns. Default: the most probable
        values.

    Returns
    -------
    ndarray of float64, shape (n, d)
        A value that is still missing is filled by another party that holds the column.
    """
    result = values.copy()
    for k, circuit in enumerate(circuits):
        rows = np.flatnonzero(chosen[:, k])
        if len(rows):
            part = values[rows]
            full = (
                circuit.peak_layers.mpe(part) if rng is None else circuit.layers.sample(part, rng)
            )
            result[np.ix_(rows, np.array(circuit.scope))] = full[:, circuit.scope]
    return result


def weighted_moments(
    circuits: Sequence[Circuit], values: FloatArray, flows: FloatArray, column: int
) -> FloatArray:
    """Return this party's part of the mean of a number and of its square, shape (2, n).

    Parameters
    ----------
    circuits, values
    flows : ndarray of float64, shape (n, circuits)
        Posterior probability of each circuit given the row.
    column : int
        In the party's domain.

    Returns
    -------
    ndarray of float64, shape (2, n)
        The parts of all parties that hold the column add up to the mean and the mean square given
        the known values.
    """
    result = np.zeros((2, len(values)))
    for k, circuit in enumerate(circuits):
        rows = np.flatnonzero(flows[:, k])  # in others the party's columns may be impossible
        if column in circuit.scope and len(rows):
            mean, variance = circuit.layers.column_moments(values[rows], column)
            result[:, rows] += flows[rows, k] * np.stack((mean, variance + mean**2))
    return result
