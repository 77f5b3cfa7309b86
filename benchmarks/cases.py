"""The cases that the accuracy is scored on: the simulator of Ng & Zhang (2022), section 6.1.

ER graphs with exactly d edges, coefficients uniform on +-[0.5, 2], standard Gaussian noise. The
random numbers are drawn in the order of the program that the public code's figures were measured
with (see public_code.py), so that the same seeds give the same rows to the last bit.
"""

import numpy as np

from flwr_causal.simulations.scenarios import growing_dimension, growing_parties

SETTINGS = (*growing_dimension(), *growing_parties())


def linear_case(d, n, seed):
    """Rows ``(n, d)`` and true weights ``(d, d)``; ``weights[i, j]`` is the effect of i on j."""
    rng = np.random.default_rng([1, d, n, seed])
    first, second = np.triu_indices(d, 1)
    picked = rng.choice(len(first), size=min(d, len(first)), replace=False)
    order = rng.permutation(d)
    edges = np.zeros((d, d))
    edges[order[first[picked]], order[second[picked]]] = 1.0
    weights = edges * rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1.0, 1.0], (d, d))
    noise = rng.standard_normal((n, d))
    return np.linalg.solve((np.eye(d) - weights).T, noise.T).T, weights


def split(rows, num_parties):
    """Equal shares in the order of the rows; a remainder is left out."""
    share = len(rows) // num_parties
    return list(rows[: share * num_parties].reshape(num_parties, share, -1))
