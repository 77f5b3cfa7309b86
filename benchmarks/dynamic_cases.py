"""The series that 2Dbn is scored on: the simulator of Chen, Ma & Yue (2024), section 4.

ER graphs of mean degree 4 in time and of mean out-degree 1 over time, coefficients uniform on
+-[0.3, 0.5], standard Gaussian noise, one stationary series a party. The random numbers are drawn
in the order of the program that the public code's figures were measured with (see
dynamic_public_code.py), so that the same seeds give the same series.
"""

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.simulations.series_scenarios import growing_dimension, growing_parties

SETTINGS = (*growing_dimension(), *growing_parties())
DEGREE, OUT_DEGREE = 4.0, 1.0
# An effect l steps back is smaller by this to the power l - 1 (the paper's eta).
DECAY = 1.5
MOST_RADIUS = 0.95
BURN_IN = 200


def dynamic_case(setting, seed):
    """Series, K arrays of shape ``(n // K + p, d)``, and the true graph."""
    d, n, num_parties, order = setting
    rng = np.random.default_rng([3, d, n, num_parties, seed, order])
    now, lagged, solve = stationary_system(rng, d, order)
    steps = n // num_parties + order
    series = [simulated(rng, steps, lagged, solve) for _ in range(num_parties)]
    names = tuple(f"x{j}" for j in range(d))
    return series, CausalGraph(names, now, lagged=lagged)


def stationary_system(rng, d, order):
    """W ``(d, d)``, A ``(p, d, d)`` and ``(I - W)^-1``, drawn until the system is stationary."""
    companion = np.eye(order * d, k=d)
    while True:
        now = signed(rng, acyclic_edges(rng, d))
        lagged = np.array(
            [signed(rng, rng.random((d, d)) < OUT_DEGREE / d) / DECAY**lag for lag in range(order)]
        )
        solve = np.linalg.inv(np.eye(d) - now)
        companion[:, :d] = np.vstack(lagged) @ solve
        if np.abs(np.linalg.eigvals(companion)).max() < MOST_RADIUS:
            return now, lagged, solve


def acyclic_edges(rng, d):
    first, second = np.triu_indices(d, 1)
    kept = rng.random(len(first)) < DEGREE / d
    order = rng.permutation(d)
    edges = np.zeros((d, d), dtype=bool)
    edges[order[first[kept]], order[second[kept]]] = True
    return edges


def signed(rng, edges):
    return edges * rng.uniform(0.3, 0.5, edges.shape) * rng.choice([-1.0, 1.0], edges.shape)


def simulated(rng, steps, lagged, solve):
    """One series ``(steps, d)`` after the burn-in."""
    noise = rng.standard_normal((steps + BURN_IN, len(solve))) @ solve
    values = np.zeros_like(noise)
    for t in range(len(noise)):
        values[t] = noise[t]
        for lag in range(1, min(t, len(lagged)) + 1):
            values[t] += values[t - lag] @ lagged[lag - 1] @ solve
    return values[BURN_IN:]
