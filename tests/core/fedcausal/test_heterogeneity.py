"""A party's own graph, and what its rows say of the common one."""

import numpy as np
import pytest
from mixed_parties import CHAIN, differing_parties, mixed_parties, no_knowledge

from flwr_causal.core.fedcausal.evidence import evidence_problem, log_evidence
from flwr_causal.core.fedcausal.evidence_search import STEPS, SearchProblem, own_graph, own_support
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.nonlinear.basis import partial_shares
from flwr_causal.core.nonlinear.heterogeneity import COLUMNS, OwnGraph, edge_table

NAMES = tuple(f"x{i}" for i in range(5))


def mask_of(edges):
    graph = np.zeros((5, 5), dtype=bool)
    for cause, effect in edges:
        graph[NAMES.index(cause), NAMES.index(effect)] = True
    return graph


COMMON = mask_of(CHAIN)
FREE = SearchProblem(no_knowledge(5), 5, STEPS)


def problem_of(party=1, **options):
    return evidence_problem(differing_parties(**options)[party].to_numpy())


def total(problem, graph):
    parents = [np.flatnonzero(column) for column in graph.T]
    return sum(log_evidence(problem, j, chosen) for j, chosen in enumerate(parents))


def test_support_is_the_difference_that_an_edge_makes():
    problem = problem_of()
    own = mask_of([("x0", "x1"), ("x4", "x3"), ("x0", "x4")])
    found = own_support(problem, COMMON, own)
    for i, j in np.ndindex(5, 5):
        parents = set(np.flatnonzero(COMMON[:, j]).tolist())
        with_edge = log_evidence(problem, j, sorted(parents | {i}))
        without = log_evidence(problem, j, sorted(parents - {i}))
        listed = COMMON[i, j] or own[i, j]
        assert found[i, j] == pytest.approx(with_edge - without if listed else 0.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_an_edge_that_the_party_lacks(seed):
    problem = problem_of(seed=seed, missing=1)
    own = own_graph(problem, COMMON, FREE)
    assert np.array_equal(own.graph, mask_of([e for e in CHAIN if e != ("x3", "x2")]))
    # -25 to -23 and 39 or more when measured
    assert own.support[3, 2] < -15.0
    others = COMMON & own.graph
    assert own.support[others].min() > 30.0
    np.testing.assert_array_equal(own.shares, partial_shares(problem.moments, own.graph))


@pytest.mark.parametrize("seed", range(3))
def test_an_edge_that_the_party_has_besides(seed):
    own = own_graph(problem_of(3, seed=seed, extra=3), COMMON, FREE)
    assert np.array_equal(own.graph, mask_of([*CHAIN, ("x0", "x4")]))
    # 9 to 30 when measured
    assert own.support[0, 4] > 5.0


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
def test_no_graph_that_the_search_starts_from_is_more_probable(seed):
    truth, (rows,) = mixed_parties(seed, d=6, edges=7, sizes=(80,))
    problem, search = evidence_problem(rows), SearchProblem(no_knowledge(6), 5, STEPS)
    own = own_graph(problem, truth, search)
    assert is_acyclic(own.graph)
    best = total(problem, own.graph)
    assert best >= total(problem, truth) - 1e-3
    assert best >= total(problem, own_graph(problem, np.zeros_like(truth), search).graph) - 1e-3
    # A local optimum: no edge can be taken out or put in to good effect.
    alone = own_support(problem, own.graph, own.graph)
    assert alone[own.graph].min() >= -1e-3


def test_knowledge_is_honoured():
    required = Knowledge(required=[("x3", "x2")], forbidden=[("x0", "x1")])
    search = SearchProblem(required.masks(NAMES), 5, STEPS)
    common = mask_of([("x1", "x2"), ("x3", "x2"), ("x3", "x4")])
    own = own_graph(problem_of(missing=1), common, search)
    # It stands though the party's rows speak against it.
    assert own.graph[3, 2]
    assert own.support[3, 2] < -15.0
    assert not own.graph[0, 1]


def test_what_is_known_already_changes_nothing():
    known = {}
    first = own_graph(problem_of(), COMMON, FREE, known)
    size = len(known)
    again = own_graph(problem_of(), COMMON, FREE, known)
    assert len(known) == size > 0
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_table():
    """Every kind of edge, and the order of the rows."""
    common = mask_of([("x0", "x1"), ("x1", "x2"), ("x2", "x3")])
    own = mask_of([("x0", "x1"), ("x2", "x1"), ("x0", "x4")])
    numbers = np.zeros((5, 5))
    numbers[0, 1], numbers[1, 2], numbers[2, 1] = 7.0, 20.0, 24.0
    numbers[2, 3], numbers[0, 4] = -9.0, 5.5
    shares = np.full((5, 5), -0.1)
    shares[0, 1], shares[0, 4] = 0.25, 0.04
    one = OwnGraph(own, numbers, shares)
    agreeing = OwnGraph(common, np.where(common, 2.0, 0.0), shares)
    table = edge_table(common, {"b": one, "a": agreeing}, NAMES)
    assert table.columns.tolist() == list(COLUMNS)
    assert table.to_numpy().tolist()[:4] == [
        ["b", "x2", "x3", True, "absent", -9.0, 9.0, 0.0],
        ["b", "x0", "x4", False, "additional", 5.5, 5.5, 0.2],
        ["b", "x1", "x2", True, "reversed", 20.0, 4.0, 0.0],
        ["b", "x0", "x1", True, "same", 7.0, -7.0, 0.5],
    ]
    assert table["party"].tolist() == ["b"] * 4 + ["a"] * 3
    assert table["own"].tolist()[4:] == ["same"] * 3
    assert table["common"].dtype == bool
    assert table["support"].dtype == table["strength"].dtype == np.float64


def test_the_table_of_no_edges():
    nothing = np.zeros((5, 5), dtype=bool)
    table = edge_table(nothing, {"a": OwnGraph(nothing, nothing * 1.0, nothing * 1.0)}, NAMES)
    assert table.empty
    assert table["common"].dtype == bool
