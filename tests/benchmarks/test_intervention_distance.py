"""SID on the paper's example, against its definition by paths and against regression."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import CHAIN, dags, matrix, members

from benchmarks import intervention_distance
from benchmarks.intervention_distance import sid, sid_bounds
from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.errors import DataError


def test_the_example_of_the_sid_paper():
    # X1 -> X2 and both -> Y1, Y2, Y3; one estimate has an edge too many, one a reversed edge.
    causes = [(i, j) for i in (0, 1) for j in (2, 3, 4)]
    true = matrix(5, (0, 1), *causes)
    extra = matrix(5, (0, 1), (2, 3), *causes)
    turned = matrix(5, (1, 0), *causes)
    assert structural_hamming_distance(true, extra) == structural_hamming_distance(true, turned)
    assert sid(true, extra) == 0
    assert sid(true, turned) == 8


def test_sid_of_the_empty_estimate_counts_ancestors_and_confounded_pairs():
    assert sid(CHAIN, matrix(3)) == 3  # 1 -> 0, 2 -> 1, 2 -> 0 look like effects
    assert sid(matrix(3), CHAIN) == 0


def undirected_paths(adjacency, start, end):
    joined = adjacency | adjacency.T

    def extend(path):
        if path[-1] == end:
            yield path
            return
        for node in np.flatnonzero(joined[path[-1]]):
            if node not in path:
                yield from extend([*path, int(node)])

    return extend([start])


def blocked(adjacency, path, given_nodes, descends):
    for before, node, after in zip(path, path[1:], path[2:], strict=False):
        if adjacency[before, node] and adjacency[after, node]:
            family = {node, *np.flatnonzero(descends[node]).tolist()}
            if not family & given_nodes:
                return True
        elif node in given_nodes:
            return True
    return False


def sid_by_definition(true, found):
    """Peters & Buhlmann's proposition 6 with every path written out."""
    size, descends = len(true), ancestors(true)
    count = 0
    for i in range(size):
        parents = set(np.flatnonzero(found[:, i]).tolist())
        for j in set(range(size)) - {i}:
            if j in parents:
                count += bool(descends[i, j])
                continue
            valid = True
            for path in undirected_paths(true, i, j):
                if all(true[a, b] for a, b in pairwise(path)):
                    on_path = set(path[1:])
                    below = {k for w in on_path for k in np.flatnonzero(descends[w]).tolist()}
                    valid &= not (on_path | below) & parents
                else:
                    valid &= blocked(true, path, parents, descends)
            count += not valid
    return count


@given(dags(5), dags(5))
def test_sid_equals_its_definition_by_paths(true, found):
    assert sid(true, found) == sid_by_definition(true, found)


@given(dags(5), dags(5), st.integers(0, 2**32 - 1))
def test_sid_counts_the_effects_that_regression_gets_wrong(true, found, seed):
    # In a linear-Gaussian system with generic weights, the effect of i on j by adjustment is the
    # coefficient of i in the regression of j on i and the estimate's parents of i.
    rng = np.random.default_rng(seed)
    size = len(true)
    weights = np.where(true, rng.uniform(0.5, 1.5, true.shape) * rng.choice([-1, 1], true.shape), 0)
    effects = np.linalg.inv(np.eye(size) - weights)
    covariance = effects.T @ np.diag(rng.uniform(0.5, 1.5, size)) @ effects
    wrong = 0
    for i in range(size):
        parents = np.flatnonzero(found[:, i])
        predictors = [i, *parents]
        for j in set(range(size)) - {i}:
            slope = 0.0
            if j not in parents:
                inner = covariance[np.ix_(predictors, predictors)]
                slope = np.linalg.solve(inner, covariance[predictors, j])[0]
            wrong += abs(slope - effects[i, j]) > 1e-7
    assert sid(true, found) == wrong


@given(dags(6))
def test_a_complete_supergraph_in_the_same_order_is_never_wrong(true):
    order = CausalGraph.from_array(true).topological_order()
    index = [int(name[1:]) for name in order]
    complete = matrix(6, *combinations(index, 2))
    assert sid(true, complete) == 0


def test_sid_refuses_what_is_no_dag():
    with pytest.raises(DataError, match="estimate has cycles"):
        sid(CHAIN, matrix(3, (0, 1), (1, 0)))
    with pytest.raises(DataError, match=r"truth is a CPDAG.*to_dag"):
        sid(CausalGraph.from_array(CHAIN).to_cpdag(), CHAIN)


# Bounds over a class.


@given(dags(5), dags(5))
def test_bounds_are_the_extremes_over_all_dags_of_the_class(true, found):
    marks = cpdag(found)
    estimate = CausalGraph.from_array(marks * 1.0, kind="cpdag")
    each = [sid(true, dag) for dag in members(marks)]
    assert sid_bounds(true, estimate) == (min(each), max(each))
    assert sid_bounds(true, found) == (sid(true, found),) * 2


def test_bounds_with_background_knowledge():
    """Of a - b - c with a -> b, one DAG is left: a -> b -> c."""
    marks = matrix(3, (0, 1), (1, 2))
    estimate = CausalGraph.from_array(marks * 1.0, kind="cpdag")
    assert sid_bounds(CHAIN, estimate) == (0, 0)


def test_bounds_that_cannot_be_had(monkeypatch):
    monkeypatch.setattr(intervention_distance, "MOST_DAGS", 23)
    complete = CausalGraph.from_array(1.0 - np.eye(4), kind="cpdag")
    with pytest.raises(DataError, match=r"4 variables .* more than 23 DAGs"):
        sid_bounds(np.zeros((4, 4)), complete)
    monkeypatch.setattr(intervention_distance, "MOST_DAGS", 24)
    chain = matrix(4, (0, 1), (1, 2), (2, 3))
    assert sid_bounds(chain, complete) == (0, 12)
    square = matrix(4, (0, 1), (1, 2), (2, 3), (3, 0))
    with pytest.raises(DataError, match="class of no DAG"):
        sid_bounds(chain, CausalGraph.from_array((square | square.T) * 1.0, kind="cpdag"))
