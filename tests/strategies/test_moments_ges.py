"""Moments with the solvers "class" and "ges": one class for any split of the rows and any unit."""

import numpy as np
import pandas as pd
import pytest
from federations import make_federation
from lagged_systems import simulate_series

from flwr_causal.core.ges.ges import ges
from flwr_causal.core.ges.linear_class import linear_class
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import SampleMoments, merge
from flwr_causal.core.linear.regression import least_squares
from flwr_causal.errors import ConfigError
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate

FED = make_federation(d=7, n=400, parties=3, seed=2)
NAMES = tuple(FED.tables[0].columns)
POOLED = SampleMoments.from_rows(FED.pooled, NAMES)


def found(tables=FED.tables, **options):
    return simulate("moments", tables, solver="ges", **options)


def same(one, two, scale=1.0):
    assert one.graph.kind == two.graph.kind == "cpdag"
    assert np.array_equal(one.graph.adjacency, two.graph.adjacency)
    np.testing.assert_allclose(one.graph.weights, two.graph.weights * scale, rtol=1e-6)
    np.testing.assert_allclose(one.scores, two.scores, atol=1e-6)


def class_of_rows(moments):
    free = EdgeMasks(~np.eye(7, dtype=bool), np.zeros((7, 7), dtype=bool))
    return linear_class([moments] * 7, free, distinguished=np.zeros((7, 7), dtype=bool))


@pytest.fixture(scope="module")
def plain():
    return found()


def test_the_class_is_that_of_the_centralised_search(plain):
    assert np.array_equal(plain.graph.adjacency, class_of_rows(POOLED).marks)
    greedy = ges(POOLED, "gaussian-bic", turn=True).to_dag()
    score = gaussian_bic(POOLED, plain.graph.to_dag().adjacency)
    assert score <= gaussian_bic(POOLED, greedy.adjacency) + 1e-6
    assert plain.rounds == 1
    assert plain.graph.to_cpdag() is plain.graph
    assert 0 < plain.graph.num_edges < 21


def test_units_change_the_weights_alone(plain):
    units = 10.0 ** np.linspace(-4, 5, 7)
    same(found([table * units for table in FED.tables]), plain, units / units[:, None])
    spread = FED.pooled.std(axis=0)
    same(found(standardize=True), plain, spread[:, None] / spread)
    assert not found([table * units for table in FED.tables]).warnings


def test_the_model_is_fitted_to_a_member_of_the_class(plain):
    member = plain.graph.to_dag()
    weights, noise = least_squares(POOLED, member.adjacency)
    np.testing.assert_allclose(plain.model.weights, weights, atol=1e-9)
    np.testing.assert_allclose(plain.model.noise_variances, noise, rtol=1e-9)
    assert np.array_equal(member.to_cpdag().adjacency, plain.graph.adjacency)


def test_knowledge_is_respected(plain):
    tiers = (NAMES[4:], NAMES[:4])
    graph = found(knowledge=Knowledge(required=[("x5", "x0")], tiers=tiers)).graph
    assert not graph.adjacency[:4, 4:].any()
    assert graph.adjacency[5, 0]
    assert graph.required[5, 0]
    assert not np.array_equal(graph.adjacency, plain.graph.adjacency)


def test_a_limit_on_parents(plain):
    assert plain.graph.to_dag().adjacency.sum(axis=0).max() > 1
    assert found(max_parents=1).graph.to_dag().adjacency.sum(axis=0).max() == 1


def test_levels_of_parties_can_be_left_out(plain):
    shifted = [table + 10.0 * k for k, table in enumerate(FED.tables)]
    centred = found(shifted, center="party")
    own = [SampleMoments.from_rows(table.to_numpy(), NAMES) for table in FED.tables]
    within = merge([SampleMoments(one.n, np.zeros(7), one.second, NAMES) for one in own])
    rows = within.n - len(own) + 1
    within = SampleMoments(rows, within.mean, within.second * within.n / rows, NAMES)
    assert np.array_equal(centred.graph.adjacency, class_of_rows(within).marks)
    assert np.array_equal(found(shifted).graph.adjacency, centred.graph.adjacency)
    assert found(shifted, center="global").graph.num_edges > plain.graph.num_edges


# --- the search from orders -----------------------------------------------------------------------


def from_orders(tables=FED.tables, **options):
    return simulate("moments", tables, solver="class", **options)


def test_the_search_from_orders_does_not_depend_on_units():
    units = 10.0 ** np.linspace(-4, 5, 7)
    scaled = from_orders([table * units for table in FED.tables])
    same(scaled, from_orders(), units / units[:, None])
    assert not scaled.warnings


def test_knowledge_replicates_and_effects_of_the_search_from_orders():
    tiers = (NAMES[4:], NAMES[:4])
    known = Knowledge(required=[("x5", "x0")], tiers=tiers)
    run = from_orders(knowledge=known, replicates=4, seed=1)
    assert run.graph.kind == "cpdag"
    assert not run.graph.adjacency[:4, 4:].any()
    assert run.graph.adjacency[5, 0]
    assert run.graph.confidence[5, 0] == 1
    assert from_orders(max_parents=1).graph.to_dag().adjacency.sum(axis=0).max() == 1
    possible = from_orders().total_effect("x0", "x6")
    assert len(possible) >= 1


def test_the_least_effect_is_that_of_the_search_from_orders():
    assert from_orders(least_effect=0.6).graph.num_edges < from_orders().graph.num_edges
    with pytest.raises(ConfigError, match="option 'least_effect'"):
        found(least_effect=0.2)


def classes_of(seed, d=20, edges=2, n=1000):
    """A system of unequal noise, standardised: its class, and those of both searches."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    above = np.triu(rng.random((d, d)) < 2 * edges / (d - 1), 1)
    dag = np.zeros((d, d), dtype=bool)
    dag[np.ix_(order, order)] = above
    weights = dag * rng.uniform(0.5, 2, (d, d)) * rng.choice([-1, 1], (d, d))
    rows = rng.normal(size=(n, d)) * rng.uniform(0.7, 1.7, d) @ np.linalg.inv(np.eye(d) - weights)
    table = pd.DataFrame((rows - rows.mean(0)) / rows.std(0)).rename(columns=lambda k: f"x{k:02}")
    parties = [table[k::3].reset_index(drop=True) for k in range(3)]
    truth = CausalGraph.from_array(dag, tuple(table)).to_cpdag()
    return [
        structural_hamming_distance(truth, run.graph)
        for run in (from_orders(parties), found(parties))
    ]


@pytest.mark.nightly
def test_classes_of_standardised_columns():
    """Measured: 0.9 and 0.9 errors; with the cost of the BIC 1.4 and 2.9."""
    errors = np.mean([classes_of(seed) for seed in range(40, 50)], axis=0)
    assert errors[0] < 1.3
    assert errors[1] < 2


# --- time series ----------------------------------------------------------------------------------

NOW, PAST = np.zeros((3, 3)), np.diag([0.6, 0.6, 0.6])
NOW[1, 0] = NOW[2, 1] = 0.7
PARTIES = [[simulate_series(k, 400, NOW, PAST)] for k in range(3)]


def test_lags_direct_the_present(tmp_path):
    run = found(PARTIES, order=2)
    assert np.array_equal(run.graph.adjacency, NOW != 0)
    assert np.array_equal(run.graph.lagged[0] != 0, PAST != 0)
    np.testing.assert_allclose(run.model.weights, run.graph.weights, atol=1e-9)
    np.testing.assert_allclose(run.model.lagged, run.graph.lagged, atol=1e-9)
    one = found([[series for party in PARTIES for series in party]], order=2)
    same(one, run)
    assert np.array_equal(one.graph.lagged != 0, run.graph.lagged != 0)
    run.save(tmp_path)
    assert Run.load(tmp_path).graph.equals(run.graph)


def test_an_open_edge_of_a_series_stays_open():
    run = found([[simulate_series(k, 400, NOW, 0 * PAST)] for k in range(3)], order=1)
    assert np.array_equal(run.graph.adjacency, (NOW != 0) | (NOW.T != 0))
    assert not run.graph.lagged.any()
    assert run.graph.to_dag().adjacency.sum() == 2
