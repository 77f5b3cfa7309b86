"""Compiled proximal Newton method for a party's problem in FedCausal.

To minimise over W, with ``psi(h) = alpha h + rho/2 h^2``,

    F(W) = 1/2 tr((I - W)^T S (I - W)) + sum_ij lambda_ij |W_ij| + lambda_2 ||W - V||^2 + psi(h(W))

each step minimises a convex model of F around the present W by coordinate descent over all entries,
and then moves along the difference D by a line search. The model contains the loss, the L1 norm and
the proximal term exactly. psi(h) enters by its gradient and the positive semidefinite terms of its
second derivative: with ``E = exp(W * W)``,

    psi'(h) <G, D> + 1/2 psi'(h) sum_ij 2 E_ji D_ij^2 + rho/2 <G, D>^2,   G = 2 E^T * W.

``E_ji`` weighs the paths from j back to i. For an edge of weight 0, where the gradient G is 0, the
term in ``E_ji`` is the cost of closing a cycle with that edge: the model does not add two edges at
once that together would form a cycle.

References
----------
Yang et al.: Federated causality learning with explainable adaptive optimization, AAAI 2024,
eq. (5).
Lee, Sun, Saunders: Proximal Newton-type methods for minimizing composite functions, SIAM Journal
on Optimization 24 (2014): the step and its line search.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.compiled import compiled
from flwr_causal.core.limits import MOST_HALVINGS

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray, IntArray


# Up to this norm the relative error of the series of degree 9 is at most 0.125^9 / 10! = 2e-15.
SERIES_NORM = 0.125
# Share of the predicted decrease in Armijo's condition (Lee 2014, and commonly used).
SUFFICIENT = 1e-4
# The line search ends without a step once it is shorter than this.
SHORTEST_STEP = 1e-6
# Largest number of sweeps for one model. Few singular models need as many, and the next step
# reduces the remaining error.
MAX_SWEEPS = 500
# A model is solved to this share of the tolerance of the weights.
MODEL_TOLERANCE = 0.1


@compiled
def exponential_less_identity(matrix: FloatArray) -> FloatArray:
    """Return ``exp(A) - I`` of a ``(d, d)`` matrix of nonnegative entries, by scaling and squaring.

    No numbers are subtracted, so that every entry is relatively exact, and so is h, the trace,
    however small; ``tr exp(A) - d`` would have an error of d times 1e-16. Infinite on overflow.
    """
    d = len(matrix)
    norm = 0.0
    for j in range(d):
        column = 0.0
        for i in range(d):
            column += matrix[i, j]
        norm = max(norm, column)
    result = np.empty((d, d))
    if not norm < np.inf:
        result[:] = np.inf
        return result
    squarings = max(0, math.ceil(math.log2(norm / SERIES_NORM))) if norm > 0.0 else 0
    first = matrix * 0.5**squarings
    second = np.dot(first, first)
    third = np.dot(second, first)
    # A + A^2/2 + A^3 (I/6 + A/24 + A^2/120 + A^3 (I/720 + A/5040 + A^2/40320 + A^3/362880))
    inner = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            inner[i, j] = first[i, j] / 5040.0 + second[i, j] / 40320.0 + third[i, j] / 362880.0
        inner[i, i] += 1.0 / 720.0
    inner = np.dot(third, inner)
    for i in range(d):
        for j in range(d):
            inner[i, j] += first[i, j] / 24.0 + second[i, j] / 120.0
        inner[i, i] += 1.0 / 6.0
    inner = np.dot(third, inner)
    for i in range(d):
        for j in range(d):
            result[i, j] = first[i, j] + second[i, j] / 2.0 + inner[i, j]
    for _ in range(squarings):
        square = np.dot(result, result)
        for i in range(d):
            for j in range(d):
                result[i, j] = 2.0 * result[i, j] + square[i, j]
    return result


@compiled
def objective(
    weights: FloatArray,
    seconds: FloatArray,
    second_of: IntArray,
    received: FloatArray,
    sparsity: FloatArray,
    proximity: float,
    multiplier: float,
    penalty: float,
) -> tuple[float, float, FloatArray, FloatArray]:
    """Return F, h, ``2 E^T``, and the gradient of F without the terms in ``|W|_1`` and h."""
    d = len(weights)
    paths = exponential_less_identity(weights * weights)
    slope = np.dot(seconds[0], weights)  # becomes S (W - I), each column by its own S
    for k in range(1, len(seconds)):
        other = np.dot(seconds[k], weights)
        for j in range(d):
            if second_of[j] == k:
                slope[:, j] = other[:, j]
    cost_of_cycles = np.empty((d, d))
    h = 0.0
    value = 0.0
    for i in range(d):
        h += paths[i, i]
        for j in range(d):
            cost_of_cycles[i, j] = 2.0 * paths[j, i]
            slope[i, j] -= seconds[second_of[j], i, j]
            moved = weights[i, j] - received[i, j]
            residual = weights[i, j]
            if i == j:
                cost_of_cycles[i, i] += 2.0
                residual -= 1.0
            value += 0.5 * residual * slope[i, j] + proximity * moved * moved
            slope[i, j] += 2.0 * proximity * moved
    value += multiplier * h + 0.5 * penalty * h * h + sparse_cost(weights, sparsity)
    return value, h, cost_of_cycles, slope


@compiled
def sparse_cost(weights: FloatArray, sparsity: FloatArray) -> float:
    """Return ``sum_ij lambda_ij |W_ij|``; an entry of weight 0 adds 0, whatever its lambda."""
    total = 0.0
    for i in range(len(weights)):
        for j in range(len(weights)):
            if weights[i, j] != 0.0:
                total += sparsity[i, j] * abs(weights[i, j])
    return total


@compiled
def model_step(
    weights: FloatArray,
    gradient: FloatArray,
    seconds: FloatArray,
    second_of: IntArray,
    curvature: FloatArray,
    direction: FloatArray,
    penalty: float,
    sparsity: FloatArray,
    tolerance: float,
) -> FloatArray:
    """Minimise the model over the step D by coordinate descent.

    As in the lasso of Friedman et al. (2010), a sweep over all entries is followed by sweeps over
    the nonzero ones, until a sweep over all entries changes no weight by more than the tolerance.

    Parameters
    ----------
    weights
        ``(d, d)`` present W.
    gradient
        ``(d, d)`` gradient at W of F without the term in ``|W|_1``.
    seconds, second_of
        ``(g, d, d)`` the S, the second derivative of the loss within a column, and ``(d,)`` the one
        of each column.
    curvature
        ``(d, d)`` second derivative of the other terms by each entry.
    direction, penalty
        ``(d, d)`` G and rho of the term ``rho/2 <G, D>^2``.
    sparsity
        ``(d, d)`` lambda_ij; an entry with an infinite one is not changed.
    tolerance
        See above.
    """
    d = len(weights)
    step = np.zeros((d, d))
    pull = np.zeros((d, d))  # S D
    along = 0.0  # <G, D>
    everything = True
    for _ in range(MAX_SWEEPS):
        largest = 0.0
        for i in range(d):
            for j in range(d):
                threshold = sparsity[i, j]
                present = weights[i, j] + step[i, j]
                if threshold == np.inf or (present == 0.0 and not everything):
                    continue
                second = seconds[second_of[j]]
                bend = second[i, i] + curvature[i, j] + penalty * direction[i, j] ** 2
                if not bend > 0.0:
                    continue
                tilt = gradient[i, j] + pull[i, j] + curvature[i, j] * step[i, j]
                free = bend * present - tilt - penalty * along * direction[i, j]
                target = math.copysign(max(abs(free) - threshold, 0.0) / bend, free)
                change = target - present
                if change == 0.0:
                    continue
                step[i, j] = target - weights[i, j]  # W + D is exactly 0 where target is 0
                along += direction[i, j] * change
                for k in range(d):
                    pull[k, j] += second[k, i] * change
                largest = max(largest, abs(change))
        if largest <= tolerance:
            if everything:
                break
            everything = True
        else:
            everything = False
    return step


@compiled
def minimise(
    seconds: FloatArray,
    second_of: IntArray,
    received: FloatArray,
    sparsity: FloatArray,
    proximity: float,
    multiplier: float,
    penalty: float,
    max_steps: int,
    tolerance: float,
) -> tuple[FloatArray, float, int]:
    """Minimise F from the received weights; F never rises.

    Parameters
    ----------
    seconds, second_of
        ``(g, d, d)`` the S, and ``(d,)`` the one of each column; mostly there is only one.
    received
        ``(d, d)`` start, and the V of the proximal term.
    sparsity
        ``(d, d)`` lambda_ij; infinite on the diagonal and for edges that are not allowed, where
        ``received`` must be 0.
    proximity, multiplier, penalty
        lambda_2, alpha, rho.
    max_steps
        Largest number of Newton steps.
    tolerance
        The steps end with one that changes no weight by more than this.

    Returns
    -------
    The ``(d, d)`` weights, their h (infinite if F overflows even at 0), and the number of steps.
    """
    d = len(received)
    weights = received.copy()
    fixed = (seconds, second_of, received, sparsity, proximity, multiplier, penalty)
    value, h, cost, smooth = objective(weights, *fixed)
    for _ in range(MOST_HALVINGS):  # F is finite at W = 0, where h = 0
        if value < np.inf:
            break
        weights = 0.5 * weights
        value, h, cost, smooth = objective(weights, *fixed)
    if not value < np.inf:
        return weights, np.inf, 0
    curvature, direction = np.empty((d, d)), np.empty((d, d))
    for steps in range(1, max_steps + 1):
        pressure = multiplier + penalty * h
        for i in range(d):
            for j in range(d):
                direction[i, j] = cost[i, j] * weights[i, j]
                curvature[i, j] = 2.0 * proximity + pressure * cost[i, j]
                smooth[i, j] += pressure * direction[i, j]
        step = model_step(
            weights,
            smooth,
            seconds,
            second_of,
            curvature,
            direction,
            penalty,
            sparsity,
            MODEL_TOLERANCE * tolerance,
        )
        candidate = weights + step
        predicted = sparse_cost(candidate, sparsity) - sparse_cost(weights, sparsity)
        largest = 0.0
        for i in range(d):
            for j in range(d):
                predicted += smooth[i, j] * step[i, j]
                largest = max(largest, abs(step[i, j]))
        length = 1.0
        trial = objective(candidate, *fixed)
        while not trial[0] <= value + SUFFICIENT * length * predicted:
            length *= 0.5
            if length < SHORTEST_STEP:
                return weights, h, steps
            candidate = weights + length * step
            trial = objective(candidate, *fixed)
        weights = candidate
        value, h, cost, smooth = trial
        if largest <= tolerance:
            return weights, h, steps
    return weights, h, max_steps
