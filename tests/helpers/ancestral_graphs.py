"""Random ancestral graphs, and correlations, shared by several test files."""

import numpy as np

from flwr_causal.core.graphs.pag.marks import mag


def random_mag(rng, d, hidden=3, density=0.5):
    size = d + hidden
    dag = np.triu(rng.random((size, size)) < density, 1)
    return np.ascontiguousarray(mag(dag, rng.permutation(size)[:d].tolist()), dtype=np.int64)


def correlations_of(rng, d, n=500):
    return np.corrcoef((rng.normal(size=(n, d)) @ rng.normal(size=(d, d))).T)
