"""Adjustment sets beside a search over all subsets, in every DAG of every class."""

from functools import cache
from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays
from small_graphs import dags, matrix, members, subsets

from flwr_causal.core.graphs import adjustment, equivalence
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.errors import ConfigError, DataError


def is_valid(dag, cause, effect, chosen):
    """The adjustment criterion for one DAG, by networkx (Shpitser et al., 2010)."""
    graph = nx.DiGraph(dag)
    on_path = nx.descendants(graph, cause) & (nx.ancestors(graph, effect) | {effect})
    forbidden = on_path.union(*(nx.descendants(graph, k) for k in on_path))
    # The backdoor graph lacks the first edges of directed paths to the effect.
    graph.remove_edges_from([(cause, k) for k in on_path if dag[cause, k]])
    return not forbidden & set(chosen) and nx.is_d_separator(graph, {cause}, {effect}, set(chosen))


def valid_sets(graphs, cause, effect):
    others = [k for k in range(len(graphs[0])) if k not in (cause, effect)]
    return [s for s in subsets(others) if all(is_valid(dag, cause, effect, s) for dag in graphs)]


def check(marks, graphs):
    for cause, effect in permutations(range(len(marks)), 2):
        valid = valid_sets(graphs, cause, effect)
        smallest = adjustment.smallest_set(marks, cause, effect)
        optimal = adjustment.optimal_set(marks, cause, effect)
        if smallest is None:
            amenable = adjustment.is_amenable(marks, cause, effect)
            assert optimal is None
            assert not (amenable and valid)
        else:
            assert tuple(smallest) in valid
            assert len(smallest) == min(map(len, valid))
            assert tuple(optimal) in valid


@given(dags(5))
def test_sets_of_a_dag_are_valid_and_the_smallest_has_the_fewest_variables(dag):
    check(dag, [dag])


@pytest.mark.slow
@given(dags(5))
def test_sets_of_a_class_are_valid_in_each_of_its_dags(dag):
    marks = equivalence.cpdag(dag)
    check(marks, list(members(marks)))


@pytest.mark.slow
@given(dags(5))
def test_a_class_is_amenable_exactly_where_its_dags_agree_on_the_paths(dag):
    """Not amenable: the regressions that are right in its DAGs differ (Perković et al., 2018)."""
    marks = equivalence.cpdag(dag)
    graphs = list(members(marks))
    for cause, effect in permutations(range(5), 2):
        if not adjustment.is_amenable(marks, cause, effect):
            # In some DAG the effect descends from the cause by an edge that another DAG turns.
            turned = np.flatnonzero(equivalence.undirected_part(marks)[cause])
            assert any(
                one[cause, k] and (k == effect or effect in nx.descendants(nx.DiGraph(one), int(k)))
                for one in graphs
                for k in turned
            )


def asymptotic_variance(dag, cause, effect, chosen):
    """The variance of the regression's coefficient times n, noise and weights 1."""
    root = np.linalg.inv(np.eye(len(dag)) - dag)
    second = root.T @ root

    def residual(child, given_):
        inner = second[np.ix_(given_, given_)]
        cross = second[given_, child]
        return second[child, child] - cross @ np.linalg.solve(inner, cross)

    return residual(effect, [cause, *chosen]) / residual(cause, list(chosen))


@given(dags(5))
def test_the_optimal_set_has_the_least_asymptotic_variance(dag):
    for cause, effect in permutations(range(5), 2):
        if adjustment.is_possible_cause(dag, cause, effect):
            least = asymptotic_variance(
                dag, cause, effect, adjustment.optimal_set(dag, cause, effect)
            )
            for other in valid_sets([dag], cause, effect):
                assert least <= asymptotic_variance(dag, cause, effect, other) + 1e-9


@given(dags(5))
def test_possible_parents_are_the_parents_in_the_dags_of_the_class(dag):
    marks = equivalence.cpdag(dag)
    graphs = list(members(marks))
    for k in range(5):
        found = list(adjustment.possible_parents(marks, k))
        expected = {tuple(np.flatnonzero(one[:, k]).tolist()) for one in graphs}
        assert sorted(tuple(own) for own, _ in found) == sorted(expected)
        for own, oriented in found:
            agreeing = [one for one in graphs if np.flatnonzero(one[:, k]).tolist() == own]
            np.testing.assert_array_equal(oriented, np.logical_or.reduce(agreeing))


@given(dags(5), arrays(bool, (5, 5)))
def test_possible_parents_respect_background_knowledge(dag, forbidden):
    """Of any knowledge that the truth agrees with, closed by Meek's rules."""
    marks = equivalence.cpdag(dag)
    allowed = ~forbidden | dag
    informed = equivalence.meek(marks & (allowed | equivalence.directed_part(marks)))
    graphs = [one for one in members(marks) if not (one & ~allowed).any()]
    np.testing.assert_array_equal(informed, np.logical_or.reduce(graphs))
    for k in range(5):
        found = [tuple(own) for own, _ in adjustment.possible_parents(informed, k)]
        expected = {tuple(np.flatnonzero(one[:, k]).tolist()) for one in graphs}
        assert sorted(found) == sorted(expected)


def test_what_is_set_must_be_directed():
    marks = matrix(4, (0, 1), (1, 0), (1, 2), (2, 1), (0, 3), (1, 3))
    names = ("a", "b", "c", "d")
    assert adjustment.after_intervention(None, [0], names) is None
    after = adjustment.after_intervention(marks, [3], names)
    np.testing.assert_array_equal(after, marks & ~matrix(4, (0, 3), (1, 3)))
    after = adjustment.after_intervention(marks, [0, 1, 2], names)
    np.testing.assert_array_equal(after, matrix(4, (0, 3), (1, 3)))
    with pytest.raises(ConfigError, match=r"whether 'b' causes 'c'.*possible_effects\('b', "):
        adjustment.after_intervention(marks, [0, 1], names)


@cache
def confounded():
    """Age -> drug -> blood pressure -> stroke, age -> stroke, hospital -> drug."""
    names = ("age", "drug", "pressure", "stroke", "hospital")
    marks = matrix(5, (0, 1), (1, 2), (2, 3), (0, 3), (4, 1))
    return CausalGraph.from_array(marks, names)


def test_names_of_a_textbook_graph():
    graph = confounded()
    assert graph.adjustment_set("drug", "stroke") == ("age",)
    assert graph.adjustment_set("drug", "stroke", "optimal") == ("age",)
    assert graph.adjustment_set("hospital", "stroke", "optimal") == ("age",)
    assert graph.adjustment_set("hospital", "stroke") == ()
    assert graph.adjustment_set("stroke", "pressure") is None
    assert set(graph.adjustment_set("stroke", "hospital")) < {"age", "drug", "pressure"}


def test_a_class_that_does_not_direct_the_first_edge_has_no_set():
    chain_class = confounded().to_cpdag()
    assert chain_class.adjustment_set("drug", "stroke") == ("age",)  # the collider directs it
    line = CausalGraph.from_array(matrix(3, (0, 1), (1, 2))).to_cpdag()
    assert line.adjustment_set("x0", "x2") is None


def test_a_graph_with_lags_is_adjusted_for_its_past():
    now, lagged = np.zeros((3, 3)), np.zeros((2, 3, 3))
    now[0, 1] = 1
    lagged[0, 2, 0] = lagged[0, 2, 1] = lagged[1, 1, 1] = 1
    graph = CausalGraph.from_array(now, lagged=lagged)
    assert graph.adjustment_set("x0", "x1") == ("x2[t-1]",)
    assert graph.adjustment_set("x0", "x1", "optimal") == ("x2[t-1]", "x1[t-2]")


def test_without_a_set_in_the_present_history_is_never_assumed_away():
    """The two parents in the past may be dependent, so that one of them does not suffice."""
    now, lagged = np.zeros((2, 2)), np.zeros((1, 2, 2))
    now[0, 1] = 1
    lagged[0, 0, 0] = lagged[0, 1, 1] = 1
    graph = CausalGraph.from_array(now, lagged=lagged)
    assert len(graph.adjustment_set("x0", "x1")) == 1
    marks = adjustment.with_past(now != 0, lagged != 0)
    assert marks[2:, 2:].sum() == 1


def test_what_has_no_adjustment_sets_is_refused():
    graph = confounded()
    with pytest.raises(DataError, match="unknown variable 'dose'; known are age"):
        graph.adjustment_set("dose", "age")
    with pytest.raises(ConfigError, match="both 'age'"):
        graph.adjustment_set("age", "age")
    with pytest.raises(ConfigError, match="'smallest' or 'optimal'"):
        graph.adjustment_set("age", "drug", "best")
    with pytest.raises(DataError, match="cycles"):
        CausalGraph.from_array([[0, 1], [1, 0]]).adjustment_set("x0", "x1")
    square = matrix(5, (0, 1), (1, 2), (2, 3), (3, 0))
    with pytest.raises(DataError, match="not a CPDAG"):
        CausalGraph.from_array(square | square.T, kind="cpdag").adjustment_set("x4", "x2")
