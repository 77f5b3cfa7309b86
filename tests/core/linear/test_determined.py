"""Variables that others determine, against what the rows say."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.blocks.design import Number, column_names, design
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.linear.determined import RIDGE, determined, regular, separation
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.solvers import dagma, lingam, order_search, pag_search


def found(table, functions=1):
    variables, columns = design(table, functions)
    moments = SampleMoments.from_rows(columns, column_names(variables))
    names = [one.name for one in variables]
    relations = determined(
        moments.second,
        names,
        widths=[one.width for one in variables],
        numbers=[isinstance(one, Number) for one in variables],
    )
    return {names[j]: {names[i] for i in others} for j, others in relations}


def table(n=400):
    rng = np.random.default_rng(0)
    fine = rng.choice(["a", "b", "c", "d"], n)
    # A state of one row each, in the same row: neither category follows from the other.
    first, second = (rng.choice(["u", "v"], n) for _ in range(2))
    first[7], second[7] = "rare", "seldom"
    numbers = rng.normal(size=(n, 2))
    return pd.DataFrame(
        {"x": numbers[:, 0], "fine": fine, "first": first, "y": numbers[:, 1], "second": second}
    )


@pytest.mark.parametrize("functions", [1, 3])
def test_nothing_is_determined(functions):
    assert found(table(), functions) == {}


@pytest.mark.parametrize("functions", [1, 3])
@pytest.mark.parametrize("first", [True, False])
def test_functions_of_others(functions, first):
    """Of a copy the later name; a coarser category whatever its name, as it tells less."""
    rows = table()
    halves = rows["fine"].isin(["a", "b"])
    expected = {
        "coarse": (np.where(halves, "ab", "cd"), {"coarse": {"fine"}}),
        "zoned": (np.where(halves, "ab", "cd"), {"zoned": {"fine"}}),
        "coded": (halves.astype(float), {"coded": {"fine"}}),
        "shifted": (rows["x"] + 2.0 * halves, {"x": {"shifted", "fine"}}),
        "zero": (rows["x"] + 2.0 * halves, {"zero": {"x", "fine"}}),
    }
    for name, (values, relation) in expected.items():
        own = pd.Series(values, name=name)
        both = pd.concat([own, rows] if first else [rows, own], axis=1)
        assert found(both, functions) == relation


@pytest.mark.parametrize("functions", [1, 3])
def test_numbers_are_linear_combinations_in_whatever_order(functions):
    rows = table()
    rows["xx"] = 3.0 - 2.0 * rows["x"]
    rows["z"] = rows["x"] + rows["y"]
    for order in (list(rows), list(rows)[::-1]):
        assert found(rows[order], functions) == {"xx": {"x"}, "z": {"x", "y"}}


def test_required_edges_keep_a_variable():
    rows = np.random.default_rng(0).normal(size=(300, 3))
    rows[:, 2] = rows[:, 0] + rows[:, 1]
    second = SampleMoments.from_rows(rows).second
    kept = np.array([False, False, True])
    assert determined(second, "abc") == [(2, [0, 1])]
    assert determined(second, "abc", kept=kept) == [(1, [0, 2])]
    assert determined(second, "abc", kept=kept | True) == [(2, [0, 1])]


def lagged(rows):
    """The rows with their lag: x_t, then x_(t - 1)."""
    return np.column_stack([rows[1:], rows[:-1]])


@pytest.mark.parametrize("ones", [0, 1, 2])
def test_what_leaves_is_uncorrelated_with_all_others_and_nothing_else_changes(ones):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 3)) + (1.0 if ones else 0.0)
    rows[:, 2] = rows[:, 0] + rows[:, 1]
    z = lagged(rows)
    if not ones:
        z = z - z.mean(axis=0)
    full = np.column_stack([np.ones((len(z), ones)), z])
    products = np.stack([full[:100].T @ full[:100], full[100:].T @ full[100:]]) / len(z)
    second = np.cov(z.T)
    own = separation(second, len(z), "abc", widths=[1] * 6)
    assert own.changes
    np.testing.assert_array_equal(own.leaving, [False, False, True] * 2)
    changed = own.of(products)
    stay = np.r_[0:ones, ones + np.array([0, 1, 3, 4])]
    both = np.ix_([0, 1], stay, stay)
    np.testing.assert_array_equal(changed[both], products[both])
    diagonal = np.diagonal(changed, axis1=1, axis2=2)
    np.testing.assert_array_equal(diagonal, np.diagonal(products, axis1=1, axis2=2))
    for part in changed:
        mean = part[0, ones:] / part[0, 0] if ones else np.zeros(6)
        central = part[ones:, ones:] / (part[0, 0] if ones else 1.0) - np.outer(mean, mean)
        np.testing.assert_allclose(central[2, [0, 1, 3, 4, 5]], 0, atol=1e-14)
        assert np.linalg.cond(central) < 1e3


def test_masks_and_required_edges_of_what_leaves():
    rows = np.random.default_rng(0).normal(size=(300, 3))
    rows[:, 2] = rows[:, 0] + rows[:, 1]
    moments = SampleMoments.from_rows(rows, "abc")
    masks = Knowledge(required=[("a", "c"), ("b", "c")]).masks("abc")
    own = separation(moments.second, moments.n, "abc", required=masks.required)
    assert own.found == [(2, [0, 1])]
    np.testing.assert_array_equal(own.masks(masks).allowed[:, 2], [True, True, False])
    assert not own.masks(masks).allowed[2].any()
    # Its variance is raised in place of its covariances, which the required edges need.
    expected = moments.second + np.diag([0, 0, RIDGE * moments.second[2, 2]])
    np.testing.assert_allclose(own.moments(moments).second, expected, rtol=1e-12)
    free = EdgeMasks.free(3)
    plain = separation(moments.second, moments.n, "abc")
    assert plain.masks(free).allowed.sum() == 2


def test_regular_moments_stay_and_few_rows_are_made_regular():
    rows = np.random.default_rng(0).normal(size=(40, 4))
    moments = SampleMoments.from_rows(rows)
    assert regular(moments) is moments
    few = SampleMoments.from_rows(rows[:4])
    second = regular(few).second
    np.testing.assert_allclose(second, few.second + RIDGE * np.diag(few.variances), rtol=1e-12)
    assert np.linalg.eigvalsh(second)[0] > RIDGE / 10


@pytest.mark.few(2)
@pytest.mark.parametrize("solver", [pag_search, order_search, lingam, dagma])
def test_public_solvers_find_the_graph_without_it(solver):
    rng = np.random.default_rng(1)
    a = rng.exponential(size=600)
    b = 1.5 * a + rng.exponential(size=600)
    rows = pd.DataFrame({"a": a, "b": b, "c": rng.normal(size=600)})
    alone = solver(rows)
    for values in (a + b, 5 - 3 * a):
        # Wherever the column stands; the one that leaves is the last by name.
        for position in (0, 3):
            both = rows.copy()
            both.insert(position, "z", values)
            graph = solver(both)
            places = [graph.names.index(name) for name in "abc"]
            np.testing.assert_array_equal(graph.adjacency[np.ix_(places, places)], alone.adjacency)
            assert graph.adjacency.sum() == alone.adjacency.sum() > 0
