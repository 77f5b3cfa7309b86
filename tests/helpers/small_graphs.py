"""Small graphs for tests: by hand, and drawn by hypothesis."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flwr_causal.core.graphs.graph import CausalGraph


def matrix(size, *edges):
    adjacency = np.zeros((size, size), dtype=bool)
    for i, j in edges:
        adjacency[i, j] = True
    return adjacency


@st.composite
def dags(draw, size):
    order = draw(st.permutations(range(size)))
    upper = draw(arrays(bool, (size, size)))
    dag = np.zeros((size, size), dtype=bool)
    dag[np.ix_(order, order)] = np.triu(upper, 1)
    return dag


CHAIN = matrix(3, (0, 1), (1, 2))
NAMES = ("x2", "x10", "x1")


def full_graph(seed=0):
    rng = np.random.default_rng(seed)
    weights = np.triu(rng.normal(size=(3, 3)), 1)
    return CausalGraph(
        NAMES,
        weights,
        lagged=rng.normal(size=(2, 3, 3)) * (rng.random((2, 3, 3)) < 0.5),
        raw_weights=rng.normal(size=(3, 3)),
        raw_lagged=rng.normal(size=(2, 3, 3)),
        confidence=rng.random((3, 3)),
        required=matrix(3, (0, 1)),
    )
