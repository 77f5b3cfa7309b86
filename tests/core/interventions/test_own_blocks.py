"""A party's own graph of blocks of columns, from second moments."""

import numpy as np
import pytest

from flwr_causal.core.graphs.equivalence import informed_class
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.interventions.local_graphs import fitted, open_directions, own_graph
from flwr_causal.core.linear.moments import SampleMoments

# x is one column, y has two, z one: x -> y -> z
WIDTHS = [1, 2, 1]
DAG = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)


def rows_of(rng, n=300):
    x = rng.normal(size=n)
    y = x[:, None] * [0.8, -0.5] + rng.normal(size=(n, 2)) @ [[1.0, 0.4], [0.0, 1.0]]
    return np.column_stack([x, y, y @ [1.0, 0.7] + rng.normal(size=n)])


def left(rows, given, own):
    """Log of the generalised variance of columns given others, and the coefficients."""
    design = np.column_stack([np.ones(len(rows)), rows[:, given]])
    weights = np.linalg.lstsq(design, rows[:, own], rcond=None)[0]
    rest = rows[:, own] - design @ weights
    return np.linalg.slogdet(rest.T @ rest / len(rows))[1], weights[1:]


def test_support_and_shares_are_those_of_multivariate_regressions():
    rows = rows_of(np.random.default_rng(0))
    own = SampleMoments.from_rows(rows, tuple("abcd"))
    weights = fitted(own, DAG, WIDTHS)
    np.testing.assert_allclose(weights[[0]][:, [1, 2]], left(rows, [0], [1, 2])[1], rtol=1e-9)
    common = 0.6 * weights
    found = own_graph(own, common, np.zeros(3, bool), EdgeMasks.free(3), WIDTHS)
    np.testing.assert_array_equal(found.graph, DAG)
    np.testing.assert_allclose(found.weights, weights)
    without = left(rows, [], [1, 2])[0]
    assert found.shares[0, 1] == pytest.approx(1 - np.exp(left(rows, [0], [1, 2])[0] - without))
    given = rows.copy()
    given[:, [1, 2]] -= rows[:, [0]] @ common[[0]][:, [1, 2]]
    assert found.support[0, 1] == pytest.approx(150 * (without - left(given, [], [1, 2])[0]))
    assert found.support[0, 2] == 0


def test_an_edge_that_is_added_costs_each_pair_of_columns():
    rows = rows_of(np.random.default_rng(1))
    own = SampleMoments.from_rows(rows, tuple("abcd"))
    common = fitted(own, DAG & [[False, False, True]], WIDTHS)  # y -> z only
    acted = np.array([False, True, False])
    found = own_graph(
        own, common, acted, EdgeMasks.free(3), WIDTHS, search=lambda own, start, masks: DAG
    )
    gain = left(rows, [], [1, 2])[0] - left(rows, [0], [1, 2])[0]
    assert found.support[0, 1] == pytest.approx(150 * gain - np.log(300))


def test_the_search_may_change_causes_of_differing_variables_only():
    own = SampleMoments.from_rows(rows_of(np.random.default_rng(2)), tuple("abcd"))
    asked = []

    def search(own, start, masks):
        asked.append((start, masks))
        return start

    acted = np.array([False, True, False])
    own_graph(own, fitted(own, DAG, WIDTHS), acted, EdgeMasks.free(3), WIDTHS, search)
    ((start, masks),) = asked
    np.testing.assert_array_equal(start, DAG)
    np.testing.assert_array_equal(masks.required, DAG & ~acted)
    np.testing.assert_array_equal(masks.allowed[:, 1], [True, False, True])
    np.testing.assert_array_equal(masks.allowed[:, [0, 2]], DAG[:, [0, 2]])


def test_common_directions_into_unchanged_variables_stay():
    """x -> y is directed in the common class: also in that of a party whose z has no causes."""
    marks = np.array([[0, 1, 0], [0, 0, 1], [0, 1, 0]], dtype=bool)
    free, none = EdgeMasks.free(3), np.zeros(3, dtype=bool)
    turned = open_directions(marks, none, free)
    np.testing.assert_array_equal(informed_class(DAG, turned | DAG)[:2, :2], marks[:2, :2])
    alone = DAG & [[True, True, False]]
    only_z, only_y = np.array([False, False, True]), np.array([False, True, False])
    kept = informed_class(alone, open_directions(marks, only_z, free) | alone)
    assert kept[0, 1]
    assert not kept[1, 0]
    turned = informed_class(alone, open_directions(marks, only_y, free) | alone)
    assert turned[0, 1]
    assert turned[1, 0]
