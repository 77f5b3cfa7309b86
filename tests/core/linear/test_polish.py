"""Polish: exact prices, monotone descent, local optimality, masks, recovery from exact moments."""

import itertools

import numpy as np
import pytest

from flwr_causal.core.graphs.acyclicity import ancestors, is_acyclic
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.linear.gaussian_scores import edge_cost, gaussian_bic, residual_variances
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.polish import _Search, polish
from flwr_causal.core.linear.regression import refit, regress
from flwr_causal.core.systems.linear import LinearModel
from flwr_causal.errors import DataError


def random_dag(rng, d, edges):
    order = rng.permutation(d)
    rows, columns = np.triu_indices(d, 1)
    pick = rng.choice(len(rows), size=edges, replace=False)
    adjacency = np.zeros((d, d), dtype=bool)
    adjacency[order[rows[pick]], order[columns[pick]]] = True
    return adjacency


def random_model(rng, d, edges, noise_variances=None):
    signs = rng.choice([-1.0, 1.0], (d, d))
    weights = random_dag(rng, d, edges) * rng.uniform(0.5, 2.0, (d, d)) * signs
    variances = np.ones(d) if noise_variances is None else noise_variances
    return LinearModel(tuple(f"v{j}" for j in range(d)), weights, np.zeros(d), variances)


def sampled(seed, d, edges, n):
    rng = np.random.default_rng(seed)
    model = random_model(rng, d, edges)
    return SampleMoments.from_rows(model.sample(n, seed)), model.weights != 0


def single_moves(adjacency):
    """All graphs one addition, removal or reversal away that are DAGs."""
    for i, j in itertools.permutations(range(len(adjacency)), 2):
        neighbour = adjacency.copy()
        if adjacency[i, j]:
            neighbour[i, j] = False
            yield ("drop", i, j), neighbour
            reversed_edge = neighbour.copy()
            reversed_edge[j, i] = True
            if is_acyclic(reversed_edge):
                yield ("reverse", i, j), reversed_edge
        elif not adjacency[j, i]:
            neighbour[i, j] = True
            if is_acyclic(neighbour):
                yield ("add", i, j), neighbour


def test_bic_from_its_formula_on_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0], [0, 0, 1]])
    adjacency = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    centered = X - X.mean(axis=0)
    squares = [
        np.sum(centered[:, 0] ** 2),
        np.linalg.lstsq(centered[:, [0]], centered[:, 1], rcond=None)[1][0],
        np.linalg.lstsq(centered[:, [1]], centered[:, 2], rcond=None)[1][0],
    ]
    expected = sum(20 * np.log(rss / 40) for rss in squares) + 2 * 0.5 * np.log(40)
    moments = SampleMoments.from_rows(X)
    assert gaussian_bic(moments, adjacency) == pytest.approx(expected, rel=1e-12)
    extended = expected + 2 * np.log(3)
    assert gaussian_bic(moments, adjacency, gamma=1.0) == pytest.approx(extended, rel=1e-12)


def test_bic_is_the_same_within_an_equivalence_class():
    moments, _ = sampled(3, 3, 2, 50)
    chain = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    assert gaussian_bic(moments, chain) == pytest.approx(gaussian_bic(moments, chain.T), rel=1e-12)


def test_the_score_reads_only_the_families():
    moments, _ = sampled(1, 4, 3, 60)
    chain = np.eye(4, k=1, dtype=bool)
    known = np.eye(4, dtype=bool) | chain | chain.T
    masked = SampleMoments(
        moments.n, moments.mean, np.where(known, moments.second, np.nan), moments.names
    )
    assert gaussian_bic(masked, chain) == gaussian_bic(moments, chain)
    np.testing.assert_array_equal(refit(masked, chain), refit(moments, chain))


@pytest.mark.parametrize("dependent", [False, True])
def test_residual_variances_agree_with_one_regression_each(dependent):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((30, 6)) @ rng.standard_normal((6, 6))
    if dependent:
        X[:, 2] = X[:, 0] - X[:, 1]
    correlation = np.corrcoef(X.T)
    parents, child = np.array([0, 1, 2]), 5
    residual, without, with_another = residual_variances(correlation, parents, child)
    assert residual == pytest.approx(regress(correlation, parents, child)[1], rel=1e-8)
    for k, parent in enumerate(parents):
        rest = parents[parents != parent]
        assert without[k] == pytest.approx(regress(correlation, rest, child)[1], rel=1e-8)
    for other in (3, 4):
        more = np.append(parents, other)
        assert with_another[other] == pytest.approx(regress(correlation, more, child)[1], rel=1e-7)
    np.testing.assert_allclose(with_another[parents], residual, rtol=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_prices_of_all_moves_are_exact_all_along(seed):
    """After every move of a search, caches and best move equal a recomputation from scratch."""
    rng = np.random.default_rng(seed)
    moments, _ = sampled(seed, 5, 5, 40)
    start = random_dag(rng, 5, 4)
    masks = Knowledge().masks(moments.names)
    search = _Search(moments, start, masks, 0.5, 5)
    for _ in range(20):
        now = gaussian_bic(moments, search.adjacency, 0.5)
        prices = {
            move: gaussian_bic(moments, graph, 0.5)
            for move, graph in single_moves(search.adjacency)
        }
        np.testing.assert_array_equal(search.reach, ancestors(search.adjacency))
        best = search.best_move()
        if best is None:
            assert min(prices.values()) >= now - 1e-6
            break
        assert (best.kind, best.cause, best.effect) in prices
        assert best.score == pytest.approx(min(prices.values()), rel=1e-10)
        # random legal moves reach states that a greedy path would not
        kind, i, j = list(prices)[rng.integers(len(prices))] if rng.random() < 0.5 else best[:3]
        search.apply(best._replace(kind=kind, cause=i, effect=j))
        assert is_acyclic(search.adjacency)


def test_it_ends_in_a_better_local_optimum():
    for seed in range(10):
        moments, _ = sampled(seed, 6, 7, 50)
        start = random_dag(np.random.default_rng(seed), 6, 8)
        found = polish(moments, start, gamma=0.5)
        score = gaussian_bic(moments, found, 0.5)
        assert score < gaussian_bic(moments, start, 0.5)
        for _, neighbour in single_moves(found):
            assert gaussian_bic(moments, neighbour, 0.5) >= score - 1e-6


def test_exact_moments_give_back_a_graph_that_lost_edges():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        model = random_model(rng, 8, 10)
        moments = SampleMoments(10_000, np.zeros(8), model.covariance(), model.names)
        # Among the graphs of at most as many edges the true class alone has all covariances.
        start = model.weights != 0
        start[tuple(np.argwhere(start)[0])] = False
        found = gaussian_bic(moments, polish(moments, start), 1.5)
        assert found <= gaussian_bic(moments, model.weights, 1.5) + 1e-6


def test_knowledge_is_honoured():
    rng = np.random.default_rng(8)
    for seed in range(10):
        moments, truth = sampled(seed, 6, 6, 80)
        # require what the data contradict, forbid what they show
        i, j = np.argwhere(truth)[0]
        k, m = np.argwhere(truth)[1]
        names = moments.names
        knowledge = Knowledge(required=((names[j], names[i]),), forbidden=((names[k], names[m]),))
        result = polish(moments, random_dag(rng, 6, 7), knowledge=knowledge)
        assert result[j, i]
        assert not result[k, m]
        assert not (result & ~knowledge.masks(names).allowed).any()
        assert is_acyclic(result)


def test_required_edge_without_effect_stays_in_the_graph():
    moments = SampleMoments(100, np.zeros(3), np.eye(3), ("a", "b", "c"))
    found = polish(moments, np.zeros((3, 3)), knowledge=Knowledge(required=(("a", "c"),)))
    assert np.argwhere(found).tolist() == [[0, 2]]


def test_parent_limit():
    moments, _ = sampled(0, 8, 20, 200)
    result = polish(moments, np.zeros((8, 8)), max_parents=1)
    assert result.sum(axis=0).max() == 1
    few_rows = SampleMoments.from_rows(np.random.default_rng(0).standard_normal((5, 12)))
    result = polish(few_rows, np.zeros((12, 12)), gamma=0.0)
    assert result.sum(axis=0).max() <= 2


def test_units_do_not_change_the_bic_result():
    moments, _ = sampled(5, 7, 9, 60)
    units = np.array([1.0, 1e3, 1e-4, 7.0, 1e2, 0.5, 1e-2])
    plain = polish(moments, np.zeros((7, 7)))
    scaled = polish(moments.scaled(units), np.zeros((7, 7)))
    np.testing.assert_array_equal(plain, scaled)


def test_duplicated_column_is_survived():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((50, 4))
    X[:, 3] = X[:, 0]
    result = polish(SampleMoments.from_rows(X), np.zeros((4, 4)))
    assert result[0, 3] ^ result[3, 0]


def test_bad_input():
    moments, _ = sampled(0, 3, 2, 20)
    cycle = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    with pytest.raises(DataError, match="cycle"):
        polish(moments, cycle)
    with pytest.raises(DataError, match="shape"):
        polish(moments, np.zeros((2, 2)))
    constant = SampleMoments(5, np.zeros(2), np.diag([1.0, 0.0]), ("a", "b"))
    with pytest.raises(DataError, match="b"):
        polish(constant, np.zeros((2, 2)))
    with pytest.raises(DataError, match="missing"):
        polish(
            SampleMoments(5, np.zeros(2), np.array([[1.0, np.nan], [np.nan, 1.0]]), ("a", "b")),
            np.zeros((2, 2)),
        )


def test_start_is_brought_in_line_with_masks():
    moments, _ = sampled(0, 3, 2, 20)
    allowed = ~np.eye(3, dtype=bool)
    allowed[0, 1] = allowed[2, 1] = False
    allowed[1, 0] = allowed[0, 2] = False  # nothing to add or to reverse
    required = np.zeros((3, 3), dtype=bool)
    required[1, 2] = True
    start = np.array([[0, 1, 0], [0, 0, 0], [1, 1, 0]], dtype=bool)
    result = polish(moments, start, knowledge=EdgeMasks(allowed, required), gamma=-1e3)
    np.testing.assert_array_equal(result, [[0, 0, 0], [0, 0, 1], [1, 0, 0]])


def test_edge_cost():
    assert edge_cost(100, 10, 0.0) == pytest.approx(np.log(100) / 2)
    assert edge_cost(100, 10, 0.5) == pytest.approx(np.log(1000) / 2)
