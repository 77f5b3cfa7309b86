"""The models of runs know the rows of all parties: effects equal those of the pooled rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from lagged_systems import simulate_series

from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.linear.moments import SampleMoments, merge
from flwr_causal.core.series.design import lagged_rows
from flwr_causal.core.systems.linear import fit
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate

WEIGHTS = np.zeros((5, 5))
WEIGHTS[[0, 1, 2, 0, 4], [1, 2, 3, 3, 1]] = 0.8, -1.2, 0.7, 1.0, 0.9
NOW = np.array([[0, 0.6, 0], [0, 0, -0.5], [0, 0, 0]])
PAST = np.array([[0.5, 0, 0], [0.3, 0.2, 0], [0, 0, 0.4]])


def parties(acted=()):
    """Tables of three parties; at the first one the variables ``acted`` have no causes."""
    rng, tables = np.random.default_rng(0), []
    for n, targets in zip((300, 150, 250), (list(acted), [], []), strict=True):
        weights = WEIGHTS.copy()
        weights[:, targets] = 0
        total = np.linalg.inv(np.eye(5) - weights)
        tables.append((rng.normal(size=(n, 5)) @ total + 3) * [1, 1, 10, 1, 1])
    return tables


def regression(rows, columns, target):
    """The coefficient of the first column, and its standard error."""
    design = np.column_stack([rows[:, columns], np.ones(len(rows))])
    coefficients, (squares,), *_ = np.linalg.lstsq(design, rows[:, target])
    variance = np.linalg.inv(design.T @ design)[0, 0] * squares / (len(rows) - design.shape[1])
    return coefficients[0], np.sqrt(variance)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("moments", {}),
        ("moments", {"standardize": True}),
        ("moments", {"solver": "ges"}),
        ("notears-admm", {}),
    ],
)
def test_effects_are_those_of_the_pooled_rows(method, options, tmp_path):
    run = simulate(method, parties(), seed=0, **options)
    run.save(tmp_path)
    expected = regression(np.concatenate(parties()), [1, 0, 4], 3)
    if run.graph.kind == "dag":
        assert run.graph.adjustment_set("x1", "x3", "optimal") == ("x0",)
        expected = regression(np.concatenate(parties()), [1, 0], 3)
    for model in (run.model, Run.load(tmp_path).model):
        found = model.total_effect("x1", "x3")
        if run.graph.kind == "cpdag":  # local IDA adjusts for the parents
            (found,) = found
            assert found.adjustment_set == ("x0", "x4")
        np.testing.assert_allclose([found.value, found.standard_error], expected, rtol=1e-8)


def test_unknown_moments_are_no_zeros():
    """2Dbn asks for the moments of families, which a regression on other columns does not have."""
    series = [simulate_series(seed, 350, NOW, PAST) for seed in range(3)]
    run = simulate("2dbn", series, order=1, seed=0)
    rows = run.model.sample_moments
    assert np.isnan(rows.second).any()
    found = run.model.total_effect("x0", "x2")
    assert found.adjustment_set is None
    pooled = lagged_rows(series, 1)
    first = regression(pooled, [0, *(3 + np.flatnonzero(PAST[:, 1]))], 1)
    second = regression(pooled, [1, *(3 + np.flatnonzero(PAST[:, 2]))], 2)
    assert run.graph.num_edges == 2
    np.testing.assert_allclose(found.value, first[0] * second[0], rtol=0.02)
    unknown = replace(rows, second=np.full_like(rows.second, np.nan))
    with pytest.raises(DataError, match="Run moments, with the same order"):
        replace(run.model, sample_moments=unknown).possible_effects("x0", "x2")
    with pytest.raises(ConfigError, match="count is -1"):
        run.doubtful_edges(-1)


def test_effects_under_interventions_combine_regressions_on_each_variables_rows(tmp_path):
    """x1 was a target at party 0: its own mechanism follows from the rows of the others."""
    tiers = Knowledge(tiers=[["x0", "x4"], ["x1"], ["x2"], ["x3"]])
    acted = {"party 0": ["x1"]}
    tables = parties([1])
    run = simulate("moments", tables, seed=0, interventions=acted, knowledge=tiers)
    run.save(tmp_path)
    rows = np.concatenate(tables)
    assert run.graph.adjacency[:, [2, 3]].T.tolist() == [
        [False, True, False, False, False],
        [True, False, True, False, False],
    ]
    second = regression(rows, [1], 2)
    third = regression(rows, [2, 0], 3)
    for model in (run.model, Run.load(tmp_path).model):
        found = model.total_effect("x1", "x3")
        assert found.adjustment_set is None
        np.testing.assert_allclose(found.value, second[0] * third[0])
        variance = (second[1] * third[0]) ** 2 + (second[0] * third[1]) ** 2
        np.testing.assert_allclose(found.standard_error, np.sqrt(variance), rtol=1e-6)
        check = model.fit_check()
        assert check.p_value > 1e-3
        assert check.residuals.empty
    under = run.model.do({"x1": 1.0}).mean() - run.model.do({"x1": 0.0}).mean()
    np.testing.assert_allclose(under[3], found.value)


def test_a_run_says_whether_its_graph_fits_and_what_is_doubtful(tmp_path):
    run = simulate("moments", parties(), seed=0)
    run.save(tmp_path)
    check, loaded = run.fit_check(), Run.load(tmp_path).fit_check()
    pooled = fit(
        SampleMoments.from_rows(np.concatenate(parties())), run.graph.adjacency
    ).fit_check()
    np.testing.assert_allclose(check.p_value, pooled.p_value)
    np.testing.assert_allclose(loaded.p_value, check.p_value)
    assert len(check.independencies) == 10 - run.graph.num_edges
    fresh = np.concatenate(parties())[:100]
    assert run.fit_check(fresh).held_out_by == "the rows that were given"
    doubtful = run.doubtful_edges()
    assert len(doubtful) == 3
    text = str(run)
    assert "Fit: 0 of" in text
    assert doubtful[0].doubt < 0.05
    assert f"none of {run.graph.num_edges} edges is in doubt" in text
    additive = simulate("moments", parties(), model="additive")
    with pytest.raises(ConfigError, match="no model with fit_check"):
        additive.fit_check()
    assert "Fit" not in str(additive)


def unlike_parties():
    rng = np.random.default_rng(1)
    total = np.linalg.inv(np.eye(5) - WEIGHTS)
    found = []
    for k, n in enumerate((300, 150, 250, 90)):
        rows = rng.normal(size=(n, 5)) @ total + 3 + k
        rows[:, 3] += (k == 1) * 2 * rows[:, 0]  # x0 -> x3 is 3 at party 1, elsewhere 1
        found.append(rows)
    return found


@pytest.mark.few(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("moments", {}),
        ("moments", {"center": "global"}),
        ("moments", {"standardize": True, "solver": "dagma", "sparsity": "held-out"}),
        ("moments", {"solver": "ges"}),
        ("moments", {"replicates": 2}),
        ("lingam", {}),
        ("lingam", {"center": "global"}),
    ],
)
def test_each_partys_moments_are_those_of_its_rows(method, options, tmp_path):
    parts = unlike_parties()
    run = simulate(method, parts, seed=0, **options)
    known = run.model.party_moments
    assert list(known) == list(run.parties)
    for part, own in zip(parts, known.values(), strict=True):
        exact = SampleMoments.from_rows(part)
        np.testing.assert_allclose(own.second, exact.second, rtol=1e-6, atol=1e-8)
        if options.get("center") == "global":  # else levels differ, and are left out
            np.testing.assert_allclose(own.mean, exact.mean)
    # The sums of the parties are the pooled moments: classical errors follow from both.
    pooled = merge(known.values())
    sample = run.model.sample_moments
    # Within parties the divisor is the number of rows less one for each party but the first.
    np.testing.assert_allclose(pooled.second * pooled.n, sample.second * sample.n, rtol=1e-6)
    run.save(tmp_path)
    loaded = Run.load(tmp_path)
    pd.testing.assert_frame_equal(loaded.disagreement, run.disagreement)
    assert loaded.model.party_moments is None
    assert "Parties that differ: " in str(run)
    table = run.disagreement
    unlike = table[(table["what"] == "effect") & (table["corrected"] < 0.05)]
    assert "party 1" in set(unlike["party"])
    assert ("mean" in set(table["what"])) == (options.get("center") == "global")


def test_series_and_their_errors_by_party():
    """Clusters are parties, each with several series."""
    parts = [[simulate_series(10 * k + s, 120, NOW, PAST) for s in range(2)] for k in range(4)]
    run = simulate("moments", parts, order=1, seed=0)
    rows = [lagged_rows(part, 1) for part in parts]
    for part, own in zip(rows, run.model.party_moments.values(), strict=True):
        np.testing.assert_allclose(own.second, SampleMoments.from_rows(part).second, rtol=1e-6)
    effect = run.model.total_effect("x0", "x1", by_party=True)
    columns = [0, *(run.model.sample_moments.names.index(k) for k in effect.adjustment_set)]
    clusters = np.repeat(range(4), [len(part) for part in rows])
    pooled = np.concatenate(rows)
    theirs = sm.OLS(pooled[:, 1], sm.add_constant(pooled[:, columns])).fit(
        cov_type="cluster", cov_kwds={"groups": clusters}
    )
    np.testing.assert_allclose(effect.value, theirs.params[1], rtol=1e-6)
    np.testing.assert_allclose(effect.standard_error, theirs.bse[1], rtol=1e-5)
    assert run.disagreement["cause"].str.contains(r"\[t-1\]").any()


def test_where_replies_are_not_known_one_by_one_nothing_is_said_of_parties():
    run = simulate("moments", parties(), seed=0, interventions={"party 0": ["x1"]})
    assert run.model.party_moments is None
    assert run.disagreement is None
    with pytest.raises(ConfigError, match="without secure aggregation"):
        run.model.disagreement()
    assert simulate("moments", parties()[:1]).disagreement is None
