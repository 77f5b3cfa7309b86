"""The moments method: exactly the pooled answer, in one exchange."""

import numpy as np
import pytest
from federations import make_federation, spy

from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.notears import notears
from flwr_causal.simulations import simulate
from flwr_causal.strategies import Moments, run

FED = make_federation(d=6, n=211, parties=3, seed=1)
TABLES = FED.tables
NAMES = tuple(TABLES[0].columns)
POOLED = SampleMoments.from_rows(FED.pooled, NAMES)


def second_of(tables, **options):
    return run(Moments(**options), spy(tables)).model.sample_moments.second


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_the_pooled_moments_are_those_of_the_pooled_rows(offset):
    tables = [table + offset for table in TABLES]
    rows = np.concatenate([table.to_numpy() for table in tables])
    expected = np.cov(rows, rowvar=False, bias=True)
    np.testing.assert_allclose(second_of(tables), expected, rtol=0, atol=1e-12 * expected.max())
    # The model's moments are in the data's units, whatever the units of the search.
    scaled = second_of(tables, standardize=True)
    np.testing.assert_allclose(scaled, expected, rtol=0, atol=1e-12 * expected.max())
    grid = spy(tables)
    run(Moments(standardize=True), grid)
    shares = np.array([len(table) for table in tables]) / len(rows)
    # About the means of the parties, and of these means.
    sent = [
        reply.content["arrays"].to_numpy_ndarrays()[0].sum(axis=0) for reply in grid.replies[-3:]
    ]
    scale = rows.std(axis=0)
    correlations = np.tensordot(shares, np.array(sent), axes=1)
    expected = np.pad(expected / np.outer(scale, scale), ((1, 0), (1, 0)))
    # The rows are [1, z], and z has mean 0; within parties there are n less 3 degrees of freedom.
    expected[0, 0] = 2 - 3 / len(rows)
    np.testing.assert_allclose(correlations, expected, atol=1e-9 if offset else 1e-12)


def test_centring_by_party_pools_what_varies_within():
    tables = [table + 5.0 * index for index, table in enumerate(TABLES)]
    within = np.concatenate([(table - table.mean()).to_numpy() for table in TABLES])
    expected = within.T @ within / (len(within) - len(TABLES) + 1)
    np.testing.assert_allclose(second_of(tables, center="party"), expected, atol=1e-12)
    scaled = second_of(tables, center="party", standardize=True)
    np.testing.assert_allclose(scaled, expected, atol=1e-12)
    np.testing.assert_allclose(second_of(tables), expected, atol=1e-12)
    assert np.abs(second_of(tables, center="global") - expected).max() > 1.0


@pytest.mark.parametrize(("solve", "refit"), [(dagma, True), (dagma, False), (notears, True)])
def test_the_answer_is_that_of_the_centralised_solver(solve, refit):
    options = {"sparsity": 0.05, "threshold": 0.25, "refit": refit}
    federated = run(Moments(solver=solve.__name__, **options), spy(TABLES)).graph
    central = solve(POOLED, **options)
    assert np.array_equal(federated.adjacency, central.adjacency)
    np.testing.assert_allclose(federated.weights, central.weights, atol=1e-6)
    np.testing.assert_allclose(federated.raw_weights, central.raw_weights, atol=1e-6)


def test_one_exchange_and_no_more():
    grid = spy(TABLES)
    outcome = run(Moments(), grid)
    assert outcome.rounds == 1
    assert len(grid.training_messages) == 3
    assert outcome.bytes_received < 3 * (8 * 2 * 49 + 300)


def test_the_sparsity_is_reported_and_can_be_given():
    assert run(Moments(sparsity=0.123), spy(TABLES)).history[0]["sparsity"] == 0.123
    auto = run(Moments(solver="dagma"), spy(TABLES))
    assert 0.001 < auto.history[0]["sparsity"] < 1.0
    assert run(Moments(sparsity=50.0), spy(TABLES)).graph.num_edges == 0


@pytest.mark.parametrize("factor", [1000.0, 2.0**-20])
def test_units_do_not_matter(factor):
    one = run(Moments(), spy(TABLES)).graph
    other = run(Moments(), spy([factor * table for table in TABLES])).graph
    assert np.array_equal(one.adjacency, other.adjacency)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)


def test_standardised_columns_forget_their_own_units():
    units = np.array([1.0, 10.0, 0.1, 1e3, 1e-3, 7.0])
    one = run(Moments(standardize=True), spy(TABLES)).graph
    other = run(Moments(standardize=True), spy([units * table for table in TABLES])).graph
    assert np.array_equal(one.adjacency, other.adjacency)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)


def bic_of(graph):
    return gaussian_bic(POOLED, graph.adjacency)


def test_the_sparsity_is_chosen_by_the_bic():
    tables = make_federation(d=6, n=60, parties=3, seed=4).tables
    pooled = SampleMoments.from_rows(np.concatenate([t.to_numpy() for t in tables]), NAMES)
    outcome = run(Moments(sparsity="bic"), spy(tables))
    chosen = gaussian_bic(pooled, outcome.graph.adjacency)
    auto = run(Moments(solver="dagma"), spy(tables)).history[0]["sparsity"]
    for factor in (0.25, 0.5, 1.0, 2.0, 3.0):
        rival = run(Moments(sparsity=factor * auto), spy(tables)).graph
        assert chosen <= gaussian_bic(pooled, rival.adjacency) + 1e-9
    assert outcome.history[0]["sparsity"] > 0


def test_the_sparsity_is_chosen_by_held_out_rows():
    grid = spy(TABLES)
    outcome = run(Moments(sparsity="held-out", seed=3), grid)
    # The two folds' sums are those of all rows.
    np.testing.assert_allclose(
        outcome.model.sample_moments.second,
        np.cov(FED.pooled, rowvar=False, bias=True),
        atol=1e-12,
    )
    assert np.array_equal(outcome.graph.adjacency, FED.weights != 0)
    # The folds count their rows, so that no number of a single party is needed.
    secure = simulate("moments", TABLES, sparsity="held-out", seed=3, secure_aggregation=True)
    np.testing.assert_allclose(secure.graph.weights, outcome.graph.weights, atol=1e-9)
    assert secure.history[0]["sparsity"] == pytest.approx(outcome.history[0]["sparsity"])
    # The final graph is that of all rows with the sparsity chosen.
    plain = run(Moments(sparsity=outcome.history[0]["sparsity"]), spy(TABLES))
    np.testing.assert_allclose(plain.graph.weights, outcome.graph.weights, atol=1e-9)


def test_the_threshold_decides_on_the_solvers_weights():
    graphs = [run(Moments(threshold=t), spy(TABLES)).graph for t in (0.0, 0.3, 1.0)]
    assert graphs[0].num_edges >= graphs[1].num_edges > graphs[2].num_edges
    for graph, threshold in zip(graphs, (0.0, 0.3, 1.0), strict=True):
        assert graph.is_acyclic()
        assert (np.abs(graph.raw_weights[graph.adjacency]) > threshold).all()
    assert np.array_equal(graphs[0].threshold(1.0).adjacency, graphs[2].adjacency)


# The model.


def least_squares(rows, adjacency):
    """Weights, intercepts and noise variances by lstsq, variable by variable."""
    d = rows.shape[1]
    weights, intercepts, variances = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for j in range(d):
        parents = np.flatnonzero(adjacency[:, j])
        design = np.column_stack([rows[:, parents], np.ones(len(rows))])
        solution, *_ = np.linalg.lstsq(design, rows[:, j], rcond=None)
        weights[parents, j], intercepts[j] = solution[:-1], solution[-1]
        variances[j] = np.mean((rows[:, j] - design @ solution) ** 2)
    return weights, intercepts, variances


@pytest.mark.parametrize("method", ["moments", "notears-admm"])
@pytest.mark.parametrize("standardize", [False, True])
def test_the_model_is_the_least_squares_system_in_the_units_of_the_data(method, standardize):
    units = np.array([1.0, 1.5, 0.7, 1.0, 1.2, 0.9]) * (1000.0 if standardize else 1.0)
    shift = np.array([50.0, -300.0, 0.0, 1e4, 7.0, -1e3])
    tables = [units * table + shift for table in TABLES]
    result = simulate(method, tables, standardize=standardize)
    rows = np.concatenate([table.to_numpy() for table in tables])
    assert result.graph.num_edges > 0
    weights, intercepts, variances = least_squares(rows, result.graph.adjacency)
    np.testing.assert_allclose(result.model.weights, weights, atol=1e-7)
    np.testing.assert_allclose(result.model.intercepts, intercepts, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(result.model.noise_variances, variances, rtol=1e-6)
    if not standardize:
        np.testing.assert_allclose(result.graph.weights, weights, atol=1e-7)
        predicted = result.model.predict(tables[0], "x0")
        assert predicted.shape == (len(tables[0]),)


def test_the_model_within_parties():
    tables = [table + 30.0 * index for index, table in enumerate(TABLES)]
    result = simulate("moments", tables, center="party")
    within = np.concatenate([(table - table.mean()).to_numpy() for table in tables])
    weights, _, variances = least_squares(within, result.graph.adjacency)
    variances *= len(within) / (len(within) - len(tables) + 1)
    np.testing.assert_allclose(result.model.weights, weights, atol=1e-9)
    np.testing.assert_allclose(result.model.noise_variances, variances, rtol=1e-9)


def test_scores_rank_the_edges():
    penalised = simulate("moments", TABLES, solver="dagma")
    assert np.array_equal(penalised.scores, np.abs(penalised.graph.raw_weights))
    assert penalised.scores[FED.weights != 0].min() > penalised.scores[FED.weights == 0].max()
    result = simulate("moments", TABLES)
    assert result.scores[FED.weights != 0].min() > result.scores[FED.weights == 0].max()


# Background knowledge.


def test_knowledge_is_honoured():
    causes, effects = np.nonzero(FED.weights)
    present = (NAMES[causes[0]], NAMES[effects[0]])
    reach = np.linalg.matrix_power(np.eye(6) + (FED.weights != 0), 6) > 0
    absent = next(
        (NAMES[i], NAMES[j])
        for i in range(6)
        for j in range(6)
        if not reach[i, j] and not reach[j, i]
    )
    for options in ({}, {"solver": "notears"}, {"refit": False}):
        knowledge = Knowledge(required=(absent,), forbidden=(present, present[::-1]))
        graph = run(Moments(knowledge=knowledge, **options), spy(TABLES)).graph
        mark = dict.fromkeys([absent], True) | dict.fromkeys([present, present[::-1]], False)
        for (cause, effect), expected in mark.items():
            assert graph.adjacency[NAMES.index(cause), NAMES.index(effect)] == expected, options
        assert graph.is_acyclic()


def test_stability_has_an_effect_on_more_than_a_hundred_columns():
    rows = np.random.default_rng(0).normal(size=(150, 101))
    rows[:, 1:] += 0.2 * rows[:, :-1]
    found = [simulate("moments", [rows], stability=share).graph for share in (0.0, 0.9)]
    assert found[1].num_edges < found[0].num_edges
