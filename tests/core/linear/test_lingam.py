"""LiNGAM: the optimum over all orders, recovery, units, knowledge, lags."""

from itertools import permutations

import numpy as np
import pytest
from sweeps import sweep

from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.graphs.metrics import compare, structural_hamming_distance
from flwr_causal.core.linear.gaussian_scores import partial_correlations
from flwr_causal.core.linear.lingam import OrderProblem, advance, begin
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.negentropy import mean_functions, negentropies
from flwr_causal.core.linear.regression import refit
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.solvers import lingam

NOISE = {
    "exponential": lambda rng, shape: rng.exponential(size=shape),
    "uniform": lambda rng, shape: rng.uniform(-1.7, 1.7, shape),
    "laplace": lambda rng, shape: rng.laplace(size=shape),
    "gumbel": lambda rng, shape: rng.gumbel(size=shape),
}


def system(seed, d=7, n=1500, noise="laplace"):
    """Rows and weights of a random order in which each variable has up to two earlier causes."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    weights = np.zeros((d, d))
    for k in range(1, d):
        for cause in rng.choice(order[:k], size=min(k, 2), replace=False):
            weights[cause, order[k]] = rng.choice([-1, 1]) * rng.uniform(0.5, 1.5)
    draw = NOISE.get(noise, lambda rng, shape: rng.normal(size=shape))
    return draw(rng, (n, d)) @ np.linalg.inv(np.eye(d) - weights), weights


def searched(rows, knowledge=None, d=None):
    """The problem and the finished search, with the numbers of regressions in each round."""
    moments = SampleMoments.from_rows(rows)
    masks = knowledge or Knowledge().masks(moments.names)
    problem = OrderProblem(moments, d or moments.d, masks)
    search, rounds = begin(problem, 0), []
    while search.wanted:
        assert not set(search.wanted) & set(search.known)
        rounds.append(len(search.wanted))
        directions = problem.directions(search.wanted)
        search = advance(problem, search, mean_functions(rows - moments.mean, directions))
    return problem, search, rounds


def score(problem, rows, order):
    """The score of an order, computed from the rows."""
    centred = rows - rows.mean(axis=0)
    total = 0.0
    for variable, parents in problem.regressions(order):
        columns = centred[:, list(parents)]
        weights = np.linalg.lstsq(columns, centred[:, variable], rcond=None)[0]
        residual = centred[:, variable] - columns @ weights
        spread = residual.std()
        gain = negentropies(mean_functions(residual[:, None] / spread, np.eye(1)))[0]
        cost = 0.5 * np.log(len(rows)) + 0.5 * np.log(rows.shape[1])
        total += len(rows) * (np.log(spread / rows[:, variable].std()) - gain)
        total += cost * len(parents)
    return total


@pytest.mark.few(1)
@pytest.mark.parametrize("noise", ["uniform", "gumbel"])
@pytest.mark.parametrize("seed", sweep(range(3), kept=[0]))
def test_of_all_orders_the_search_finds_the_best(seed, noise):
    rows, _ = system(seed, d=5, n=150, noise=noise)
    problem, search, _ = searched(rows)
    best = min(score(problem, rows, order) for order in permutations(range(5)))
    assert score(problem, rows, search.best_order(problem)) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("seed", range(3))
def test_the_graph_is_found(seed, noise):
    rows, weights = system(seed, noise=noise)
    graph = lingam(rows)
    assert structural_hamming_distance(weights, graph.weights) == 0
    assert np.allclose(graph.weights, refit(SampleMoments.from_rows(rows), weights))


def test_few_rounds_suffice():
    _, search, rounds = searched(system(0, d=15)[0])
    assert len(rounds) <= 6
    assert len(search.orders) <= 4


def test_units_and_signs_do_not_matter():
    rows, _ = system(1, n=300)
    factors = np.array([1e-6, -1e5, 3.0, -0.2, 1.0, 1e3, -7.0])
    plain, scaled = lingam(rows), lingam(rows * factors + 1e3 * factors)
    expected = plain.weights * factors / factors[:, None]
    assert np.array_equal(plain.adjacency, scaled.adjacency)
    assert np.allclose(scaled.weights, expected, rtol=1e-6)


def test_the_order_of_the_columns_does_not_matter():
    rows, _ = system(2)
    columns = np.random.default_rng(0).permutation(7)
    expected = lingam(rows).adjacency[np.ix_(columns, columns)]
    assert np.array_equal(lingam(rows[:, columns]).adjacency, expected)


def test_gaussian_noise_leaves_the_equivalence_class():
    rows, weights = system(3, n=5000, noise="gaussian")
    assert compare(weights, lingam(rows).weights)["adjacency_recall"] == 1


def test_background_knowledge():
    rows, weights = system(0)
    names = [f"x{j}" for j in range(7)]
    cause, effect = (int(k) for k in np.argwhere(weights)[0])
    absent = next((i, j) for i, j in permutations(range(7), 2) if not weights[i, j] + weights[j, i])
    known = Knowledge(
        required=[(names[effect], names[cause])],
        forbidden=[(names[absent[0]], names[absent[1]])],
    )
    graph = lingam(rows, knowledge=known)
    assert graph.adjacency[effect, cause]
    assert not graph.adjacency[absent]
    tiers = Knowledge(tiers=[names[::2], names[1::2]])
    found = lingam(rows, knowledge=tiers).adjacency
    assert not found[1::2, ::2].any()
    everything = Knowledge(required=[(names[k], names[k + 1]) for k in range(6)])
    found = lingam(rows, knowledge=everything).adjacency
    assert np.diagonal(found, 1).all()
    assert not np.tril(found).any()


#: Tiers, the same as forbidden edges, and required edges, over five variables.
ORDERED = {
    "tiers": Knowledge(tiers=[["x2"], ["x0"], ["x1", "x3", "x4"]]),
    "forbidden": Knowledge(
        forbidden=[
            *((cause, "x2") for cause in ("x0", "x1", "x3", "x4")),
            *((cause, "x0") for cause in ("x1", "x3", "x4")),
        ]
    ),
    "required": Knowledge(required=[("x2", "x0"), ("x0", "x1"), ("x0", "x4")]),
}


@pytest.mark.parametrize("known", ORDERED)
def test_only_orders_that_knowledge_allows_are_searched(known):
    """From every start, and by every move."""
    rows, _ = system(4, d=5)
    masks = ORDERED[known].masks(SampleMoments.from_rows(rows).names)
    problem, search, _ = searched(rows, masks)
    before = {(2, 0), (2, 1), (2, 4), (0, 1), (0, 4)}
    before |= {(2, 3), (0, 3)} if known != "required" else set()

    def agrees(order, pairs):
        return all(order.index(i) < order.index(j) for i, j in pairs)

    assert all(agrees(order, before) for order in (*problem.starts(1), *search.orders))
    own = {pair for pair in before if 0 in pair}
    for order in permutations(range(5)):
        if agrees(order, before - own):
            first, last = problem.limits(0, [k for k in order if k != 0])
            assert (first <= order.index(0) <= last) == agrees(order, own)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "known",
    [
        Knowledge(tiers=[["x2"], ["x0"], ["x1"]]),
        Knowledge(tiers=[["x1", "x2"], ["x0"]]),
        Knowledge(forbidden=[("x0", "x1")]),
        Knowledge(forbidden=[("x0", "x1"), ("x1", "x2"), ("x0", "x2")]),
        Knowledge(forbidden=[("x1", "x2")], tiers=[["x1"], ["x0"]]),
        Knowledge(required=[("x2", "x1")]),
    ],
)
def test_knowledge_costs_no_edge(seed, known):
    """Of the chain x0 -> x1 -> x2 the variables next to each other stay joined."""
    rng = np.random.default_rng(seed)
    rows = rng.exponential(size=(1500, 3)) @ np.linalg.inv(np.eye(3) - 0.9 * np.eye(3, k=1))
    found = lingam(rows, knowledge=known).adjacency
    masks = known.masks(("x0", "x1", "x2"))
    assert not (found & ~masks.allowed).any()
    joined = found | found.T
    assert joined[0, 1]
    assert joined[1, 2]
    # Without an edge the two are independent given the parents of the later one.
    correlations = SampleMoments.from_rows(rows).correlations
    if not joined[0, 2]:
        strengths = [
            partial_correlations(correlations, np.flatnonzero(found[:, j]), j)[i]
            for i, j in ((0, 2), (2, 0))
        ]
        assert min(strengths) < 0.09


def test_lags_precede_all_variables():
    rng = np.random.default_rng(0)
    lags = rng.laplace(size=(3000, 2))
    now = np.zeros((3000, 2))
    now[:, 1] = 0.6 * lags[:, 1] + rng.laplace(size=3000)
    now[:, 0] = 0.9 * now[:, 1] + 0.5 * lags[:, 0] + rng.laplace(size=3000)
    allowed = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]], dtype=bool)
    masks = EdgeMasks(allowed, np.zeros((4, 4), dtype=bool))
    problem, search, _ = searched(np.hstack([now, lags]), masks, d=2)
    expected = [[0, 0], [1, 0], [1, 0], [0, 1]]
    assert problem.adjacency(search.best_order(problem)).astype(int).tolist() == expected


def test_strengths_are_partial_correlations():
    rows, _ = system(0)
    problem, search, _ = searched(rows)
    order = search.best_order(problem)
    parents = problem.adjacency(order)
    strengths = problem.strengths(parents, order)
    for place, variable in enumerate(order):
        for cause in order[:place]:
            given = [i for i in np.flatnonzero(parents[:, variable]) if i != cause]
            basis = np.column_stack([np.ones(len(rows)), rows[:, given]])
            left = [
                column - basis @ np.linalg.lstsq(basis, column, rcond=None)[0]
                for column in (rows[:, cause], rows[:, variable])
            ]
            expected = abs(np.corrcoef(left)[0, 1])
            assert strengths[cause, variable] == pytest.approx(expected, abs=1e-9)
        assert not strengths[list(order[place:]), variable].any()


def test_columns_that_others_determine():
    rows, weights = system(0)
    graph = lingam(np.column_stack([rows, rows[:, 0] + rows[:, 1], rows[:, 2]]))
    assert np.isfinite(graph.weights).all()
    assert structural_hamming_distance(weights, graph.weights[:7, :7]) < 7


def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    graph = lingam(rng.laplace(size=(20, 30)))
    assert graph.adjacency.sum() < 60


def test_errors():
    rows, _ = system(0)
    with pytest.raises(DataError, match="x1"):
        lingam(np.column_stack([rows[:, 0], np.ones(len(rows))]))
    with pytest.raises(ConfigError, match="y"):
        lingam(rows, knowledge=Knowledge(required=[("x0", "y")]))
