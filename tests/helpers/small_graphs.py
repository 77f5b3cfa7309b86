"""Small graphs for tests: by hand, and drawn by hypothesis."""

from itertools import chain, combinations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flwr_causal.core.graphs.acyclicity import is_acyclic, logdet_block
from flwr_causal.core.graphs.equivalence import cpdag, directed_part, skeleton, undirected_part
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


def subsets(items):
    return chain.from_iterable(combinations(items, k) for k in range(len(items) + 1))


def members(marks):
    """Every DAG of a class, from all directions of its undirected edges."""
    pairs = [(i, j) for i, j in np.argwhere(undirected_part(marks)) if i < j]
    for turned in subsets(pairs):
        dag = marks.copy()
        for i, j in pairs:
            dag[(j, i) if (i, j) in turned else (i, j)] = False
        if is_acyclic(dag) and np.array_equal(cpdag(dag), marks):
            yield dag


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


def v_structures(marks):
    """Return the unshielded colliders i -> k <- j as sorted triples ``(i, k, j)`` with i < j."""
    joined = skeleton(marks)
    directed = directed_part(marks)
    return sorted(
        (int(i), k, int(j))
        for k in range(len(marks))
        for i, j in combinations(np.flatnonzero(directed[:, k]), 2)
        if not joined[i, j]
    )


def h_logdet(weights, s=1.0):
    """Return the log-determinant acyclicity and its gradient, from the whole matrix at once."""
    value, inverse = logdet_block(weights * weights, s)
    return value, np.zeros_like(weights) if inverse is None else 2.0 * inverse.T * weights
