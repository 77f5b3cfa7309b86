"""Tests of implied independencies: other libraries' regressions, calibration, what they reject."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.stats import norm
from small_graphs import matrix
from statsmodels.stats.multitest import multipletests

from flwr_causal.core.graphs.doubt import EdgeTest, doubtful_edges
from flwr_causal.core.graphs.fit_check import check, edge_tests
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.interventions.moments import moments_by_variable
from flwr_causal.core.linear.effects import Blocks
from flwr_causal.core.linear.independence import BlockTests, NumberTests
from flwr_causal.core.linear.moments import SampleMoments, columns_of
from flwr_causal.core.systems.linear import LinearModel, fit
from flwr_causal.errors import ConfigError


def random_system(rng, d):
    edges = np.triu(rng.random((d, d)) < 0.3, 1)
    weights = edges * rng.uniform(0.3, 1, (d, d)) * rng.choice([-1, 1], (d, d))
    order = rng.permutation(d)  # so that columns are in no causal order
    place = np.ix_(order, order)
    return edges[place], np.linalg.inv(np.eye(d) - weights)[place]


def pair(table, first, second):
    found = table[table["first"].isin([first, second]) & table["second"].isin([first, second])]
    (row,) = found.to_dict("records")
    return row


def test_each_test_is_the_t_test_of_a_further_regressor():
    rng = np.random.default_rng(0)
    edges = matrix(4, (0, 1), (1, 2), (0, 3), (2, 3))
    rows = rng.normal(size=(40, 4)) @ np.linalg.inv(np.eye(4) - 0.8 * edges) * [1, 1e3, 1e-4, 1]
    found = check(NumberTests(SampleMoments.from_rows(rows), len(edges)), edges)
    assert len(found.independencies) == len(found.residuals) == 2
    assert found.untested == 0
    row = pair(found.independencies, "x1", "x3")
    assert row["given"] == ("x0", "x2")
    theirs = sm.OLS(rows[:, 3], sm.add_constant(rows[:, [1, 0, 2]])).fit()
    np.testing.assert_allclose(row["statistic"], theirs.tvalues[1], rtol=1e-8)
    np.testing.assert_allclose(row["p_value"], theirs.pvalues[1], rtol=1e-8)
    p_values = found.independencies["p_value"]
    corrected = multipletests(p_values, method="holm")[1]
    np.testing.assert_allclose(found.independencies["corrected"], corrected)
    # The residual of the earlier variable as a further regressor of the later one.
    row = pair(found.residuals, "x0", "x2")
    theirs = sm.OLS(rows[:, 2], sm.add_constant(rows[:, [0, 1]])).fit()
    np.testing.assert_allclose(abs(row["statistic"]), abs(theirs.tvalues[1]), rtol=1e-8)
    residual = sm.OLS(rows[:, 2], sm.add_constant(rows[:, [1]])).fit().resid
    expected = np.corrcoef(rows[:, 0], residual)[0, 1]
    np.testing.assert_allclose(row["estimate"], expected, rtol=1e-8)


def test_one_test_is_that_of_several_and_its_ratio_that_of_the_regressions():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 5))
    moments = SampleMoments.from_rows(rows)
    numbers = NumberTests(moments, 5)
    blocks = BlockTests(Blocks(moments.names, columns_of([1] * 5), moments))
    several = numbers.each(np.array([0, 2, 4]), 3, np.array([1]))
    for i, found in zip((0, 2, 4), several, strict=True):
        np.testing.assert_allclose(found, numbers.test(i, 3, [1]), rtol=1e-9)
        left = [
            np.sum(sm.OLS(rows[:, 3], sm.add_constant(rows[:, given])).fit().resid ** 2)
            for given in ([1], [1, i])
        ]
        assert found.ratio == pytest.approx(200 * np.log(left[0] / left[1]))
        assert found.strength == pytest.approx(abs(numbers.strength(i, 3, [1])))
        (z,) = blocks.z(i, 3, np.array([[1]]))
        p_value = blocks.test(i, 3, [1]).p_value
        assert 2 * norm.sf(z) == pytest.approx(max(p_value, np.finfo(float).tiny))
    few = SampleMoments.from_rows(rows[:3])
    assert NumberTests(few, 5).test(0, 3, [1, 2]) is None
    assert BlockTests(Blocks(few.names, columns_of([1] * 5), few)).strength(0, 3, [1, 2]) == 0.0


@pytest.mark.nightly
def test_tests_are_calibrated_under_the_true_graph():
    rng = np.random.default_rng(1)
    wrong = np.zeros((200, 3), dtype=bool)
    for one in wrong:
        edges, total = random_system(rng, 7)
        rows = rng.exponential(size=(60, 7)) @ total
        found = check(NumberTests(SampleMoments.from_rows(rows), len(edges)), edges)
        one[:] = len(found.rejected) > 0, len(found.dependent_residuals) > 0, found.p_value < 0.05
    assert (wrong.mean(axis=0) < 0.08).all(), wrong.mean(axis=0)
    assert wrong[:, 2].mean() > 0.02


def test_a_missing_edge_and_a_hidden_common_cause_are_found():
    rng = np.random.default_rng(2)
    missing = hidden = 0
    for _ in range(40):
        noise = rng.normal(size=(400, 6))
        x, y, z = noise[:, 0], noise[:, 1] + noise[:, 0], noise[:, 2] + noise[:, 1]
        z = z + 0.4 * x
        moments = SampleMoments.from_rows(np.column_stack([x, y, z]), "xyz")
        found = check(NumberTests(moments, 3), matrix(3, (0, 1), (1, 2)))
        missing += len(found.rejected) == 1 and found.p_value < 0.05
        # a -> b <- hidden -> c <- e: nothing joins b and c.
        a, c_cause, common = noise[:, 3], noise[:, 4], 0.7 * noise[:, 5]
        b, c = a + common + noise[:, 0], c_cause + common + noise[:, 1]
        rows = np.column_stack([a, b, c, c_cause])
        found = check(
            NumberTests(SampleMoments.from_rows(rows, "abce"), 4), matrix(4, (0, 1), (3, 2))
        )
        pairs = found.dependent_residuals[["first", "second"]].to_numpy().tolist()
        hidden += [sorted(one) for one in pairs] == [["b", "c"]]
    assert missing >= 38
    assert hidden >= 34


def test_interventions_are_tested_on_each_variables_own_rows():
    """Where y was set, its dependence on x is broken; its own rows say what the graph says."""
    rng = np.random.default_rng(3)
    edges = matrix(3, (0, 1), (1, 2))
    products = np.zeros((2, 4, 4))
    for k, shift in enumerate((None, 5.0)):
        x = rng.normal(size=500)
        y = (
            x + rng.normal(size=500)
            if shift is None
            else np.full(500, shift) + rng.normal(size=500)
        )
        z = 2 * y + rng.normal(size=500)
        rows = np.column_stack([np.ones(500), x, y, z])
        products[k] = rows.T @ rows / 1000
    acted = np.array([[False] * 3, [False, True, False]])
    own = moments_by_variable(products, acted, 1000, "xyz")
    found = check(NumberTests(own, edges.shape[1]), edges)
    assert len(found.independencies) == 1
    assert found.independencies["p_value"][0] > 0.01
    assert found.residuals.empty
    model = fit(own, edges)
    assert [part.n for part in model.sample_moments] == [1000, 500, 1000]
    effect = model.total_effect("x", "z")
    # The product of two regressions, each on its own rows.
    first, second = (
        fit(part, edges).total_effect(*names) for part, names in ((own[1], "xy"), (own[2], "yz"))
    )
    np.testing.assert_allclose(effect.value, first.value * second.value)
    variance = (second.value * first.standard_error) ** 2 + (
        first.value * second.standard_error
    ) ** 2
    np.testing.assert_allclose(effect.standard_error**2, variance, rtol=1e-3)


@pytest.mark.nightly
def test_intervals_under_interventions_cover_the_true_effect():
    rng = np.random.default_rng(4)
    edges = matrix(3, (0, 1), (1, 2), (0, 2))
    acted = np.array([[False, False, False], [False, True, False]])
    hits = 0
    for _ in range(400):
        products = np.zeros((2, 4, 4))
        for k in range(2):
            noise = rng.normal(size=(80, 3))
            x = noise[:, 0]
            y = 0.8 * x + noise[:, 1] if k == 0 else 2 * noise[:, 1] + 1
            rows = np.column_stack([np.ones(80), x, y, 0.5 * x - y + noise[:, 2]])
            products[k] = rows.T @ rows / 160
        model = fit(moments_by_variable(products, acted, 160, "xyz"), edges)
        low, high = model.total_effect("x", "z").interval
        hits += low <= 0.5 - 0.8 <= high
    assert 0.92 < hits / 400 < 0.98


def test_lags_precede_all_variables_and_are_not_tested_among_themselves():
    system = LinearModel(
        ("x", "y"),
        np.array([[0, 0.7], [0, 0]]),
        np.zeros(2),
        np.ones(2),
        lagged=np.array([[[0.5, 0], [0, 0.4]]]),
    )
    series = system.sample(600, seed=1)
    found = system.fit_check(series)
    assert found.independencies[["first", "second"]].to_numpy().tolist() in (
        [["x[t-1]", "y"], ["y[t-1]", "x"]],
        [["y[t-1]", "x"], ["x[t-1]", "y"]],
    )
    assert len(found.rejected) == 0
    np.testing.assert_allclose(found.held_out_log_likelihood, system.log_likelihood(series).mean())
    forgets = LinearModel(
        ("x", "y"), system.weights, np.zeros(2), np.ones(2), lagged=np.zeros((1, 2, 2))
    ).fit_check(series)
    assert {("x[t-1]", "x"), ("y[t-1]", "y")} <= {
        (row["first"], row["second"]) for row in forgets.rejected.to_dict("records")
    }


def test_unknown_moments_are_counted_and_not_tested():
    rows = np.random.default_rng(6).normal(size=(50, 3))
    whole = SampleMoments.from_rows(rows, "xyz")
    second = np.array(whole.second)
    second[0, 2] = second[2, 0] = np.nan
    found = check(
        NumberTests(SampleMoments(50, whole.mean, second, tuple("xyz")), 3), matrix(3, (0, 1))
    )
    assert len(found.independencies) == 1
    assert found.untested == 1
    assert found.p_value is None
    with pytest.raises(ConfigError, match="no moments of the rows"):
        LinearModel(tuple("xy"), np.zeros((2, 2)), np.zeros(2), np.ones(2)).fit_check()


def test_the_weakest_edge_is_the_most_doubtful_and_rows_would_decide_it():
    rng = np.random.default_rng(7)
    edges = matrix(4, (0, 2), (1, 2), (2, 3))
    strengths = np.where(edges, 1.0, 0)
    strengths[1, 2] = 0.12
    rows = rng.normal(size=(200, 4)) @ np.linalg.inv(np.eye(4) - strengths)
    moments = SampleMoments.from_rows(rows, "abcd")
    tests = edge_tests(NumberTests(moments, edges.shape[1]), edges)
    graph = CausalGraph(tuple("abcd"), fit(moments, edges).weights)
    weak, *others = doubtful_edges(graph, tests, count=4)
    assert (weak.cause, weak.effect, weak.about) == ("b", "c", "presence")
    assert "rows would decide" in weak.decided_by
    assert all(one.doubt < 0.01 for one in others)
    theirs = sm.OLS(rows[:, 2], sm.add_constant(rows[:, :2])).fit()
    test = next(one for one in tests if one.cause == "b")
    without = sm.OLS(rows[:, 2], sm.add_constant(rows[:, [0]])).fit()
    np.testing.assert_allclose(test.statistic, 2 * (theirs.llf - without.llf), rtol=1e-8)
    assert test.absence == pytest.approx(1 / (1 + np.exp((without.bic - theirs.bic) / 2)))


def test_rows_needed_have_the_power_that_they_promise():
    rng = np.random.default_rng(8)
    n = EdgeTest("x", "y", 1 + 100 * np.log1p(0.2**2), 1, 100).rows_needed
    found = 0
    for _ in range(1500):
        x = rng.normal(size=n)
        y = 0.2 * x + rng.normal(size=n)
        r = np.corrcoef(x, y)[0, 1]
        found += abs(r) * np.sqrt((n - 2) / (1 - r**2)) > 1.96
    assert 0.76 < found / 1500 < 0.84


def test_open_directions_call_for_an_intervention():
    chain = CausalGraph(tuple("xyz"), np.where(matrix(3, (0, 1), (1, 2)), 1.0, 0.0))
    tests = [EdgeTest("x", "y", 900.0, 1, 500), EdgeTest("y", "z", 800.0, 1, 500)]
    first, second = doubtful_edges(chain, tests)
    assert (first.cause, first.effect, first.about, first.doubt) == ("y", "z", "direction", 0.5)
    assert first.decided_by == "an intervention on y or z would decide"
    assert second.mark == "->"
    (edge, _) = doubtful_edges(chain.to_cpdag(), tests)
    assert (edge.mark, edge.about) == ("--", "direction")
    required = CausalGraph(chain.names, chain.weights, required=chain.adjacency)
    assert doubtful_edges(required, tests) == []
    sure = np.where(chain.adjacency, 0.9, 0.0)
    sure[1, 0] = 0.1
    sure[1, 2] = 0.4
    known = CausalGraph(chain.names, chain.weights, confidence=sure)
    found = doubtful_edges(known, tests)
    assert [(one.effect, one.about) for one in found] == [("z", "presence"), ("y", "direction")]
    # The rows agree with both directions of x -> y, whatever the replicates say.
    np.testing.assert_allclose([one.doubt for one in found], [0.6, 0.5])


def test_lagged_edges_have_a_confidence_and_no_direction_to_doubt():
    past = np.array([[[0.5, 0.4], [0, 0.0]]])
    sure = np.array([[[0.9, 0.3], [0, 0.0]]])
    graph = CausalGraph(
        ("x", "y"),
        np.zeros((2, 2)),
        lagged=past,
        confidence=np.zeros((2, 2)),
        lagged_confidence=sure,
    )
    first, second = doubtful_edges(graph)
    assert (first.cause, first.effect, first.about) == ("x[t-1]", "y", "presence")
    np.testing.assert_allclose([first.doubt, second.doubt], [0.7, 0.1])
    now = np.array([[0, 1.0], [0, 0]])
    # x[t-1] causes x alone: x -> y cannot be the other way round.
    decided = CausalGraph(("x", "y"), now, lagged=np.array([[[0.5, 0], [0, 0.0]]]))
    assert [one.about for one in doubtful_edges(decided, [EdgeTest("x", "y", 90.0, 1, 50)])] == [
        "presence"
    ]
    open_one = CausalGraph(("x", "y"), now, lagged=np.array([[[0.5, 0.5], [0, 0.0]]]))
    assert [one.about for one in doubtful_edges(open_one)] == ["direction"]
