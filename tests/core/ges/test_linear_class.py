"""Classes of linear Gaussian systems from moments: against brute force, and their weights."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lagged_systems import moments_of, random_rows, simulate_series
from reference_search import members_of, random_dag
from small_graphs import matrix

from flwr_causal.core.ges.cpdag import NO_PAIRS, class_of
from flwr_causal.core.ges.ges import ges
from flwr_causal.core.ges.linear_class import linear_class
from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.regression import least_squares
from flwr_causal.core.series.design import knowledge_masks, lagged_rows, split_blocks
from flwr_causal.errors import ConfigError, DataError


def found_in(moments, masks=None, distinguished=NO_PAIRS, **options):
    d = moments.d
    masks = masks or EdgeMasks(~np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool))
    pairs = distinguished if len(distinguished) else np.zeros((d, d), dtype=bool)
    return linear_class([moments] * d, masks, distinguished=pairs, **options)


def system(dag, rng, unequal=True):
    """Covariances of a linear system with the edges of a DAG."""
    d = len(dag)
    weights = dag * rng.uniform(0.4, 1.5, (d, d)) * rng.choice([-1, 1], (d, d))
    mixing = np.linalg.inv(np.eye(d) - weights)
    noise = rng.uniform(0.5, 2.0, d) if unequal else np.ones(d)
    return weights, mixing.T @ np.diag(noise) @ mixing


def best_bic(moments):
    """The least BIC over all DAGs: for each causal order, the best parents of each variable."""
    d = moments.d

    def local(y, parents):
        return gaussian_bic(moments, matrix(d, *((p, y) for p in parents)))

    nothing = gaussian_bic(moments, np.zeros((d, d)))
    gain = {}
    for y in range(d):
        others = [k for k in range(d) if k != y]
        for size in range(d):
            for before in combinations(others, size):
                within = [gain[y, tuple(k for k in before if k != left)] for left in before]
                gain[y, before] = min([local(y, before) - nothing, *within])
    return nothing + min(
        sum(gain[y, tuple(sorted(order[:k]))] for k, y in enumerate(order))
        for order in permutations(range(d))
    )


@pytest.mark.slow
@pytest.mark.parametrize(("size", "count"), [(4, 30), (5, 30)])
def test_no_dag_has_a_better_bic_on_many_rows(size, count):
    """On many rows of a faithful system the search finds the best of all classes."""
    reached = 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        dag = random_dag(size, rng, 0.5)
        _, covariance = system(dag, rng)
        rows = rng.normal(size=(100_000, size)) @ np.linalg.cholesky(covariance).T
        moments = SampleMoments.from_rows(rows)
        marks = found_in(moments).marks
        member = equivalence.consistent_extension(marks)
        best = best_bic(moments)
        assert gaussian_bic(moments, member) >= best - 1e-6
        reached += gaussian_bic(moments, member) <= best + 1e-6
    assert reached == count


def system_rows(d, edges, n, seed):
    rng = np.random.default_rng(seed)
    dag = random_dag(d, rng, edges / (d * (d - 1) / 2))
    weights = dag * rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1, 1], (d, d))
    return dag, rng.normal(size=(n, d)) @ np.linalg.inv(np.eye(d) - weights)


def test_dense_systems_are_found_where_the_greedy_search_is_not():
    d = 15
    masks = EdgeMasks(~np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool))
    better = 0
    for seed in range(4):
        dag, rows = system_rows(d, 30, 2000, seed)
        moments = SampleMoments.from_rows(rows)
        found = linear_class([moments] * d, masks, distinguished=np.zeros((d, d), dtype=bool))
        joined = found.marks | found.marks.T
        greedy = ges(moments, "gaussian-bic", turn=True).adjacency
        errors = [int((one != (dag | dag.T)).sum()) // 2 for one in (joined, greedy | greedy.T)]
        assert errors[0] <= errors[1]
        better += errors[0] < errors[1]
    assert better >= 2


@given(st.integers(0, 10**6), st.integers(2, 5))
def test_all_members_of_a_class_have_one_score(seed, size):
    rng = np.random.default_rng(seed)
    moments = SampleMoments.from_rows(rng.normal(size=(40, size)) @ rng.normal(size=(size, size)))
    marks = equivalence.cpdag(random_dag(size, rng, 0.6))
    scores = [gaussian_bic(moments, dag) for dag in members_of(marks)]
    np.testing.assert_allclose(scores, scores[0], rtol=0, atol=1e-8)


# Equivalent graphs, whose scores differed by rounding in other units.
@example(627843, list(range(6)))
@given(st.integers(0, 10**6), st.permutations(range(6)))
def test_neither_units_nor_the_order_of_variables_matter(seed, order):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(60, 6)) @ rng.normal(size=(6, 6))
    units = 10.0 ** rng.uniform(-6, 6, 6)
    moments = SampleMoments.from_rows(rows)
    plain, scaled = found_in(moments), found_in(moments.scaled(1 / units))
    np.testing.assert_array_equal(scaled.marks, plain.marks)
    np.testing.assert_allclose(scaled.weights, plain.weights * units / units[:, None], rtol=1e-6)
    np.testing.assert_allclose(scaled.strengths, plain.strengths, atol=1e-7)
    moved = found_in(moments.subset(order))
    for one, other in zip(moved, plain, strict=True):
        np.testing.assert_allclose(one, other[np.ix_(order, order)], atol=1e-9)


# --- weights --------------------------------------------------------------------------------------


def test_weights_of_directed_edges_are_the_effects():
    dag = matrix(4, (0, 2), (1, 2), (2, 3))
    weights, covariance = system(dag, np.random.default_rng(0))
    found = found_in(SampleMoments(10**8, np.zeros(4), covariance, tuple("abcd")))
    np.testing.assert_array_equal(found.marks, dag)
    np.testing.assert_allclose(found.weights, weights, atol=1e-12)
    residual = covariance[3, 3] - weights[2, 3] ** 2 * covariance[2, 2]
    assert found.strengths[2, 3] == pytest.approx(np.sqrt(1 - residual / covariance[3, 3]))


def test_an_undirected_edge_has_the_effect_that_each_direction_would_have():
    dag = matrix(3, (0, 1), (1, 2))
    _, covariance = system(dag, np.random.default_rng(1))
    found = found_in(SampleMoments(10**8, np.zeros(3), covariance, tuple("abc")))
    both = dag | dag.T
    np.testing.assert_array_equal(found.marks, both)
    slopes = covariance / np.diag(covariance)[:, None]
    np.testing.assert_allclose(found.weights, np.where(both, slopes, 0.0), atol=1e-12)
    spread = np.sqrt(np.diag(covariance))
    correlations = np.abs(covariance / np.outer(spread, spread))
    np.testing.assert_allclose(found.strengths, np.where(both, correlations, 0.0), atol=1e-12)


@given(st.integers(0, 10**6))
def test_each_weight_is_that_of_a_member_of_the_class(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(300, 5)) @ rng.normal(size=(5, 5))
    moments = SampleMoments.from_rows(rows)
    found = found_in(moments)
    fits = np.array([least_squares(moments, dag)[0] for dag in members_of(found.marks)])
    for i, j in np.argwhere(found.marks):
        assert np.abs(fits[:, i, j] - found.weights[i, j]).min() < 1e-7
    np.testing.assert_array_equal(found.weights != 0, found.marks)
    np.testing.assert_array_equal(found.strengths > 0, found.marks)


def test_effects_that_cancel_each_other_keep_their_edge():
    # a and b are uncorrelated, but not given c: a - c - b and a - b without a v-structure.
    weights = np.array([[0, 1.0, 1.0], [0, 0, -1.0], [0, 0, 0]])
    mixing = np.linalg.inv(np.eye(3) - weights)
    covariance = mixing.T @ mixing
    assert covariance[0, 2] == 0
    allowed = ~np.eye(3, dtype=bool)
    required = matrix(3, (0, 1), (1, 2))
    moments = SampleMoments(1000, np.zeros(3), covariance, tuple("abc"))
    found = found_in(moments, EdgeMasks(allowed, required))
    np.testing.assert_array_equal(found.weights != 0, found.marks)


# --- knowledge ------------------------------------------------------------------------------------


def test_knowledge_directs_and_forbids():
    _, covariance = system(matrix(3, (0, 1), (1, 2)), np.random.default_rng(2))
    moments = SampleMoments(1000, np.zeros(3), covariance, tuple("abc"))
    known = Knowledge(tiers=[("b",), ("a", "c")]).masks(moments.names)
    np.testing.assert_array_equal(found_in(moments, known).marks, matrix(3, (1, 0), (1, 2)))
    known = Knowledge(required=[("c", "b")]).masks(moments.names)
    np.testing.assert_array_equal(found_in(moments, known).marks, matrix(3, (2, 1), (1, 0)))
    known = Knowledge(forbidden=[("a", "b"), ("b", "a")]).masks(moments.names)
    marks = found_in(moments, known).marks
    assert not marks[0, 1]
    assert not marks[1, 0]
    assert marks[0, 2]


def test_a_limit_on_parents():
    dag = matrix(4, (0, 3), (1, 3), (2, 3))
    _, covariance = system(dag, np.random.default_rng(0))
    moments = SampleMoments(10**5, np.zeros(4), covariance, tuple("abcd"))
    np.testing.assert_array_equal(found_in(moments).marks, dag)
    marks = found_in(moments, max_parents=2).marks
    assert equivalence.consistent_extension(marks).sum(axis=0).max() == 2
    with pytest.raises(ConfigError, match="max_parents is 0"):
        found_in(moments, max_parents=0)


def test_constant_variables_are_refused():
    moments = SampleMoments(9, np.zeros(2), np.diag([1.0, 0.0]), ("a", "b"))
    with pytest.raises(DataError, match="b is constant"):
        found_in(moments)


# --- time -----------------------------------------------------------------------------------------


def lagged_class(moments, d, knowledge=None):
    order = moments.d // d - 1
    present = np.arange(moments.d) < d
    masks = knowledge_masks(knowledge, moments.names[:d], order)
    return found_in(moments, masks, present[:, None] != present)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_past_causes_are_found_and_direct_the_present(seed):
    """Own lags direct every edge between variables whose lags do not act on each other."""
    rng = np.random.default_rng(seed)
    now = np.triu(rng.choice([0, 0.6, -0.6], (4, 4)), 1)
    past = np.diag([0.6, -0.5, 0.5, 0.6]) + np.where(matrix(4, (0, 3)), 0.4, 0.0)
    series = [simulate_series(seed, 30_000, now, past)]
    found = lagged_class(moments_of(lagged_rows(series, 1), 4), 4)
    truth = np.zeros((8, 8), dtype=bool)
    truth[:4, :4], truth[4:, :4] = now != 0, past != 0
    present = np.arange(8) < 4
    expected = class_of(truth, present[:, None] != present)
    np.testing.assert_array_equal(found.marks, expected)
    assert not found.marks[:, 4:].any()
    w, a = split_blocks(found.weights[:, :4])
    directed = equivalence.directed_part(expected)[:4, :4]
    np.testing.assert_allclose(w[directed], now[directed], atol=0.05)
    np.testing.assert_allclose(a[0], past, atol=0.05)


def test_without_effects_of_the_past_the_class_is_that_of_the_present():
    now = np.zeros((3, 3))
    now[0, 1] = now[1, 2] = 0.8
    series = [simulate_series(3, 4000, now)]
    found = lagged_class(moments_of(lagged_rows(series, 2), 3), 3)
    np.testing.assert_array_equal(found.marks[:3, :3], equivalence.cpdag(now != 0))
    assert not found.marks[3:].any()


@pytest.mark.parametrize("seed", range(4))
def test_time_orders_whatever_the_rows_are(seed):
    moments = moments_of(random_rows(seed, 80, 4, 2), 4)
    known = Knowledge(
        tiers=[("x3",), ("x0", "x1", "x2")],
        forbidden_lagged=[("x1", "x0")],
        required_lagged=[("x2", "x3", 2)],
    )
    found = lagged_class(moments, 4, known)
    assert not found.marks[:, 4:].any()
    assert not found.marks[:3, 3].any()
    assert not found.marks[[5, 9], 0].any()
    assert found.marks[10, 3]
