"""The cases that the accuracy is scored on: the simulators of Ng & Zhang (2022), section 6.

ER graphs with exactly d edges, coefficients uniform on +-[0.5, 2], standard Gaussian noise. The
random numbers are drawn in the order of the program that the public code's figures were measured
with (see public_code.py), so that the same seeds give the same rows to the last bit.
"""

import numpy as np
import scipy.special

from flwr_causal.simulations.linear_scenarios import growing_dimension, growing_parties

SETTINGS = (*growing_dimension(), *growing_parties())


def linear_case(d, n, seed):
    """Rows ``(n, d)`` and true weights ``(d, d)``; ``weights[i, j]`` is the effect of i on j."""
    rng = np.random.default_rng([1, d, n, seed])
    edges = _edges(rng, d)
    weights = edges * rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1.0, 1.0], (d, d))
    noise = rng.standard_normal((n, d))
    return np.linalg.solve((np.eye(d) - weights).T, noise.T).T, weights


def perceptron_case(d, n, seed):
    """Rows ``(n, d)`` of perceptrons with 100 hidden units and unit noise, and the true graph.

    The simulator of NOTEARS-MLP (Zheng et al. 2020), as section 6.3 of the paper uses it.
    """
    rng = np.random.default_rng([2, d, n, seed])
    edges = _edges(rng, d)
    rows = np.zeros((n, d))
    for j in _topological(edges):
        parents, noise = np.flatnonzero(edges[:, j]), rng.standard_normal(n)
        rows[:, j] = noise
        if len(parents):
            first, second = _signed(rng, (len(parents), 100)), _signed(rng, 100)
            rows[:, j] += scipy.special.expit(rows[:, parents] @ first) @ second
    return rows, edges


def _edges(rng, d):
    """An ER graph with exactly d edges."""
    first, second = np.triu_indices(d, 1)
    picked = rng.choice(len(first), size=min(d, len(first)), replace=False)
    order = rng.permutation(d)
    edges = np.zeros((d, d))
    edges[order[first[picked]], order[second[picked]]] = 1.0
    return edges


def _topological(edges):
    """Causes before effects, in the order of the program; the noise is drawn in this order."""
    causes = edges.sum(axis=0)
    ready, order = [int(j) for j in np.flatnonzero(causes == 0)], []
    while ready:
        order.append(ready.pop())
        for j in map(int, np.flatnonzero(edges[order[-1]])):
            causes[j] -= 1
            if causes[j] == 0:
                ready.append(j)
    return order


def _signed(rng, shape):
    return rng.uniform(0.5, 2.0, shape) * rng.choice([-1.0, 1.0], shape)


def split(rows, num_parties):
    """Equal shares in the order of the rows; a remainder is left out."""
    share = len(rows) // num_parties
    return list(rows[: share * num_parties].reshape(num_parties, share, -1))
