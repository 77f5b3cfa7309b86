"""The one exchange on time series: what the sums give is what the pooled rows would give."""

import numpy as np
import pandas as pd
import pytest
from federations import spy

from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.order_search import search_orders
from flwr_causal.core.series.design import knowledge_masks, lagged_names, lagged_rows
from flwr_causal.core.series.partial_correlation import partial_correlation
from flwr_causal.core.series.regression import dynotears, lasso, ridge
from flwr_causal.data.read.tables import read_table
from flwr_causal.data.synthetic.series import federated_dynamic, simulate_series
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.strategies import run
from flwr_causal.strategies.moments import Moments

PARTIES, TRUTH = federated_dynamic(5, 400, 3, series_per_party=2, seed=1)
NAMES = TRUTH.names
SERIES = [series for party in PARTIES for series in party]


def moments(parties=PARTIES, order=1, **options):
    method = Moments(min_available_nodes=len(parties), order=order, **options)
    return run(method, spy([read_table(party) for party in parties]))


def pooled(order=1, series=SERIES):
    rows = lagged_rows([one[list(NAMES)].to_numpy() for one in series], order)
    return SampleMoments.from_rows(rows, lagged_names(NAMES, order))


def stacked(graph):
    return np.vstack([graph.raw_weights, *graph.raw_lagged])


def distance(graph, truth=TRUTH):
    metrics = compare(truth, graph)
    return metrics["shd"] + metrics["lagged_shd"]


# What is found is what the pooled rows give.


@pytest.mark.parametrize("order", [1, 2])
def test_the_sums_are_those_of_the_pooled_rows(order):
    found = moments(order=order).model.sample_moments
    expected = pooled(order)
    assert (found.n, found.names) == (expected.n, expected.names)
    np.testing.assert_allclose(found.second, expected.second, atol=1e-12)


def test_dagma_is_dynotears_on_all_rows():
    outcome = moments(solver="dagma")
    sparsity = outcome.history[-1]["sparsity"]
    expected = dynotears(pooled(), 5, sparsity, 1.6 * sparsity)
    np.testing.assert_allclose(stacked(outcome.graph), expected, atol=1e-9)
    assert outcome.rounds == 1
    assert distance(outcome.graph) <= 1


def test_the_default_is_the_search_over_orders_on_all_rows():
    outcome = moments()
    masks = knowledge_masks(None, [f"x{j}" for j in range(5)], 1)
    found = search_orders(pooled(), masks, num_targets=5)
    np.testing.assert_array_equal(stacked(outcome.graph) != 0, found.best.adjacency)
    assert outcome.history[-1]["score"] == pytest.approx(found.best.score)
    assert distance(outcome.graph) <= 1
    # Without effects within a step every variable has causes in the past alone.
    past = moments(instantaneous=False)
    assert not past.graph.weights.any()
    assert past.graph.lagged.any()


def test_few_rows_and_penalties_select_dagma():
    few = [[values[:12] for values in party[:1]] for party in PARTIES]
    assert "sparsity" in moments(few).history[-1]
    assert "sparsity" in moments(lagged_sparsity=1.0).history[-1]
    with pytest.raises(ConfigError, match="least_effect"):
        moments(solver="dagma", least_effect=0.2)
    with pytest.raises(ConfigError, match="sparsity"):
        moments(solver="order", sparsity=0.1)


def test_lasso_and_ridge_on_the_past_alone():
    expected = lasso(pooled(2), 5, 0.07)
    found = moments(order=2, instantaneous=False, sparsity=0.07).graph
    np.testing.assert_allclose(stacked(found), expected, atol=1e-9)
    assert not found.weights.any()
    found = moments(order=2, instantaneous=False, regression="ridge", ridge=0.2).graph
    second = pooled(2).second
    solution = np.linalg.solve(second[5:, 5:] + 0.2 * np.eye(10), second[5:, :5])
    np.testing.assert_allclose(stacked(found)[5:], solution, atol=1e-9)


def test_a_ridge_takes_the_instantaneous_effects_for_given():
    found = stacked(moments(regression="ridge", ridge=0.3, sparsity=0.05).graph)
    now = dynotears(pooled(), 5, 0.05)[:5]
    np.testing.assert_allclose(found[:5], now, atol=1e-9)
    # a ridge is linear in its targets
    expected = ridge(pooled(), 5, 0.3)[5:] @ (np.eye(5) - now)
    np.testing.assert_allclose(found[5:], expected, atol=1e-9)


@pytest.mark.slow
def test_the_order_of_parties_does_not_matter_to_a_choice_by_folds():
    options = {"regression": "ridge", "select_order": True, "order": 2, "sparsity": 0.06}
    one, other = moments(**options), moments(PARTIES[::-1], **options)
    np.testing.assert_allclose(one.scores, other.scores, atol=1e-8)
    chosen = ("order", "ridge")
    assert [one.history[-1][key] for key in chosen] == pytest.approx(
        [other.history[-1][key] for key in chosen]
    )


# What the data choose.


def test_the_order_is_chosen():
    parties, truth = federated_dynamic(4, 900, 3, order=2, seed=3)
    outcome = moments(parties, order=4, select_order=True)
    assert outcome.history[-1]["order"] == 2
    assert outcome.graph.lagged.shape == (2, 4, 4)
    assert distance(outcome.graph, truth) <= 2
    assert moments(parties, order=4).graph.lagged.shape == (4, 4, 4)
    # a required edge at lag 3 leaves the orders from 3 on
    known = Knowledge(required_lagged=[(truth.names[0], truth.names[1], 3)])
    assert moments(parties, order=4, select_order=True, knowledge=known).graph.lagged[2, 0, 1] != 0


@pytest.mark.parametrize(
    "options", [{}, {"center": "series"}, {"regression": "ridge", "ridge": 0.2}], ids=str
)
def test_the_chosen_order_is_fitted_to_all_its_rows(options):
    chosen = moments(order=3, select_order=True, sparsity=0.06, **options)
    order = chosen.history[-1]["order"]
    assert order < 3
    plain = moments(order=order, sparsity=0.06, **options)
    np.testing.assert_allclose(stacked(chosen.graph), stacked(plain.graph), atol=1e-9)
    np.testing.assert_allclose(chosen.scores, plain.scores, atol=1e-9)
    n = chosen.model.sample_moments.n
    assert n == plain.model.sample_moments.n == sum(len(one) - order for one in SERIES)


@pytest.mark.slow
def test_instantaneous_effects_are_trusted_where_they_predict():
    assert moments(instantaneous="auto").history[-1]["instantaneous"] == 1
    lagged_only = [
        pd.DataFrame(values, columns=list(NAMES))
        for values in simulate_series(np.zeros((5, 5)), TRUTH.lagged, [150] * 3, seed=4)
    ]
    outcome = moments(lagged_only, instantaneous="auto")
    assert outcome.history[-1]["instantaneous"] == 0
    assert not outcome.graph.weights.any()
    assert np.array_equal(outcome.graph.lagged != 0, TRUTH.lagged != 0)


@pytest.mark.parametrize(("sparsity", "instantaneous"), [("bic", True), ("held-out", False)])
def test_chosen_sparsity(sparsity, instantaneous):
    outcome = moments(sparsity=sparsity, instantaneous=instantaneous)
    record = outcome.history[-1]
    assert 0 < record["sparsity"] < 1
    expected = (
        dynotears(pooled(), 5, record["sparsity"], 1.6 * record["sparsity"])
        if instantaneous
        else lasso(pooled(), 5, record["sparsity"])
    )
    np.testing.assert_allclose(stacked(outcome.graph), expected, atol=1e-8)
    if instantaneous:
        assert distance(outcome.graph) <= 2


def test_the_regression_is_chosen():
    """Many weak effects of all on all are the ridge's case, few strong ones the lasso's."""
    rng = np.random.default_rng(1)
    dense = rng.normal(0, 0.1, (1, 12, 12))
    sparse = np.diag(np.full(12, 0.7))[None]
    found = []
    for lagged in (dense, sparse):
        series = simulate_series(np.zeros((12, 12)), lagged, [40] * 3, seed=3)
        options = {"regression": "held-out", "instantaneous": False, "ridge": "held-out"}
        record = moments(series, **options).history[-1]
        found.append(("ridge" in record, "sparsity" in record))
    assert found == [(True, False), (False, True)]


# Rankings.


def test_scores():
    one = moments(sparsity=0.06, instantaneous=False)
    np.testing.assert_allclose(one.scores, np.abs(lasso(pooled(), 5, 0.06))[5:], atol=1e-8)
    dense = moments(regression="ridge", ridge=0.2, instantaneous=False)
    np.testing.assert_allclose(dense.scores, np.abs(ridge(pooled(), 5, 0.2))[5:], atol=1e-8)
    plain = moments(sparsity=0.06)
    expected = np.abs(stacked(plain.graph)).reshape(2, 5, 5).sum(axis=0)
    np.testing.assert_allclose(plain.scores, expected, atol=1e-12)


def test_scores_by_partial_correlation():
    found = moments(ranking="partial-correlation+weights", sparsity=0.06)
    strengths = np.abs(stacked(found.graph)).reshape(2, 5, 5).sum(axis=0)
    pairs = ~np.eye(5, dtype=bool)
    now, _ = pooled().subset(range(5)).standardized()
    candidates = [np.abs(partial_correlation(now, share)) for share in (0.003, 0.01, 0.03, 0.1)]
    expected = [
        pairs * (one / one[pairs].std() + strengths / strengths[pairs].std()) for one in candidates
    ]
    assert min(np.abs(found.scores - one).max() for one in expected) < 1e-9


# Graph, model, units, knowledge.


def test_thresholds_and_refit():
    plain = moments(refit=False, threshold=0.2, lagged_threshold=0.1).graph
    assert np.array_equal(plain.lagged != 0, np.abs(plain.raw_lagged) > 0.1)
    assert np.array_equal(plain.weights != 0, np.abs(plain.raw_weights) > 0.2)
    fitted = moments().graph
    rows = lagged_rows([one.to_numpy() for one in SERIES], 1)
    weights = np.vstack([fitted.weights, *fitted.lagged])
    for j in range(5):
        parents = np.flatnonzero(weights[:, j])
        design = np.column_stack([np.ones(len(rows)), rows[:, parents]])
        expected = np.linalg.lstsq(design, rows[:, j], rcond=None)[0]
        np.testing.assert_allclose(weights[parents, j], expected[1:], atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"standardize": True, "threshold": 0.1}], ids=str)
def test_the_model_is_in_the_units_of_the_data(options):
    shifted = [[10.0 * one + 3.0 for one in party] for party in PARTIES]
    outcome = moments(shifted, **options)
    model = outcome.model
    rows = lagged_rows([10.0 * one.to_numpy() + 3.0 for one in SERIES], 1)
    weights = np.vstack([model.weights, *model.lagged])
    assert np.array_equal(
        weights != 0, np.vstack([outcome.graph.weights, *outcome.graph.lagged]) != 0
    )
    for j in range(5):
        parents = np.flatnonzero(weights[:, j])
        design = np.column_stack([np.ones(len(rows)), rows[:, parents]])
        expected = np.linalg.lstsq(design, rows[:, j], rcond=None)[0]
        np.testing.assert_allclose(weights[parents, j], expected[1:], atol=1e-8)
        assert model.intercepts[j] == pytest.approx(expected[0], abs=1e-7)
        residual = rows[:, j] - design @ expected
        assert model.noise_variances[j] == pytest.approx(residual @ residual / len(rows))


def test_standardised_columns_forget_their_own_units():
    units = np.array([1.0, 10.0, 0.1, 1e3, 1e-3])
    scaled = [[units * one + 5.0 for one in party] for party in PARTIES]
    one, other = moments(standardize=True), moments(scaled, standardize=True)
    np.testing.assert_allclose(one.graph.weights, other.graph.weights, atol=1e-6)
    np.testing.assert_allclose(one.graph.lagged, other.graph.lagged, atol=1e-6)


def test_centring_by_phase_is_an_intercept_for_each_perturbation():
    """Least squares on the parents with one intercept for all, and one for each pulse."""
    rng = np.random.default_rng(5)
    tables = []
    for k, values in enumerate(simulate_series(TRUTH.weights, TRUTH.lagged, [120] * 5, seed=7)):
        frame = pd.DataFrame(values + 3.0, columns=list(NAMES))
        # parties differ in how long they are perturbed, one never is
        frame["pulse"] = frame.index.to_series().between(40, 40 + 10 * k) & (k > 0)
        frame.loc[frame["pulse"], list(NAMES)] += rng.normal(0, 8, 5)
        tables.append(frame)
    outcome = moments(tables, order=2, center="phase", phase_column="pulse")
    rows = lagged_rows([frame[list(NAMES)].to_numpy() for frame in tables], 2)
    pulses = np.zeros((len(rows), 4))
    for k in range(1, 5):
        pulses[118 * k : 118 * (k + 1), k - 1] = tables[k]["pulse"].to_numpy()[2:]
    weights = np.vstack([outcome.graph.weights, *outcome.graph.lagged])
    assert (weights != 0).sum() > 5
    for j in range(5):
        parents = np.flatnonzero(weights[:, j])
        design = np.column_stack([np.ones(len(rows)), pulses, rows[:, parents]])
        expected = np.linalg.lstsq(design, rows[:, j], rcond=None)[0]
        np.testing.assert_allclose(weights[parents, j], expected[5:], atol=1e-9)
        assert outcome.model.intercepts[j] == pytest.approx(expected[0], abs=1e-9)


def test_lagged_knowledge_is_honoured():
    cause, effect = (NAMES[k] for k in np.argwhere(TRUTH.lagged[0])[0])
    absent = tuple(NAMES[k] for k in np.argwhere(TRUTH.lagged[0] == 0)[0])
    known = Knowledge(
        forbidden_lagged=[(cause, effect)], required_lagged=[(*absent, 1)], forbidden=[NAMES[:2]]
    )
    at = {name: k for k, name in enumerate(NAMES)}
    for options in ({}, {"instantaneous": False}, {"regression": "ridge"}):
        graph = moments(knowledge=known, **options).graph
        assert graph.lagged[0, at[cause], at[effect]] == 0
        assert graph.lagged[0, at[absent[0]], at[absent[1]]] != 0
        assert graph.weights[0, 1] == 0


# What is refused.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": 0, "series_column": "id"}, "which is for time series"),
        ({"order": 0, "select_order": True}, "which is for time series"),
        ({"order": 0, "ranking": "partial-correlation+weights"}, "which is for time series"),
        ({"order": 0, "center": "series"}, "'global' or 'party' with order=0"),
        ({"order": 1, "center": "party"}, "'global', 'series' or 'phase' with time series"),
        ({"order": -1}, "order is -1"),
        ({"order": 1, "ridge": -1.0}, "'ridge' is -1.0"),
        ({"order": 1, "center": "phase"}, "phase_column"),
        ({"order": 1, "regression": "elastic"}, "'lasso' or 'ridge' or 'held-out'"),
        ({"order": 1, "instantaneous": "maybe"}, "'auto'"),
    ],
    ids=str,
)
def test_impossible_options(options, words):
    with pytest.raises(ConfigError, match=words):
        Moments(**options)


def test_knowledge_that_contradicts_the_options():
    required = Knowledge(required=[NAMES[:2]])
    with pytest.raises(CausalError, match="instantaneous=True"):
        moments(knowledge=required, instantaneous=False)
    with pytest.raises(CausalError, match="order"):
        moments(order=1, knowledge=Knowledge(required_lagged=[(*NAMES[:2], 2)]))
    joined = [[pd.concat(party)] for party in PARTIES]
    lagged = Knowledge(forbidden_lagged=[NAMES[:2]])
    with pytest.raises(CausalError, match="lag"):
        moments([party[0] for party in joined], order=0, knowledge=lagged)
