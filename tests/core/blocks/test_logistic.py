"""Logistic regressions of categories from sums, beside statsmodels on the rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from flwr_causal.core.arrays import upper_triangles
from flwr_causal.core.blocks import logistic
from flwr_causal.core.blocks.design import column_names, design
from flwr_causal.core.blocks.missing import MomentEstimate, expected_sums
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.systems.blocks import BlockModel
from flwr_causal.errors import DataError

#: dose and group cause the grade, which has three states; the grade causes whether there is pain.
NAMES = ("dose", "group", "grade", "pain")
DAG = np.zeros((4, 4), dtype=bool)
DAG[[0, 1, 2], [2, 2, 3]] = True
MEMBERS = [(2, (0, 1)), (3, (2,))]


def table(n, seed=0, strength=1.0):
    rng = np.random.default_rng(seed)
    dose = rng.exponential(2, n)
    group = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    odds = np.zeros((n, 3))
    odds[:, 1] = strength * (dose - 2) + (group == "b")
    odds[:, 2] = strength * (1 - 0.5 * dose) - (group == "c")
    grade = np.array(["high", "low", "mid"])[np.argmax(odds + rng.gumbel(size=(n, 3)), axis=1)]
    pain = np.where(rng.random(n) < np.where(grade == "high", 0.7, 0.2), "yes", "no")
    return pd.DataFrame({"dose": dose, "group": group, "grade": grade, "pain": pain})


def model(frame):
    variables, columns = design(frame)
    return BlockModel(
        variables, SampleMoments.from_rows(columns, column_names(variables)), DAG
    ), columns


def converged(own, rows, near=logistic.NEAR, parts=1, monkeypatch=None):
    if monkeypatch is not None:
        monkeypatch.setattr(logistic, "NEAR", near)
    fits, steps = logistic.init(own.variables, own.moments, MEMBERS), 0
    while any(not fit.finished for fit in fits):
        left = [fit for fit in fits if not fit.finished]
        asked, weights = [fit.family for fit in left], logistic.asked_weights(left)
        sums = [logistic.sums_of_rows(asked, part, weights) for part in np.split(rows, parts)]
        means = logistic.LogisticSums(
            *(np.sum(one, axis=0) / len(rows) for one in zip(*sums, strict=True))
        )
        stepped = iter(logistic.server_step(left, means, len(rows)))
        fits = [fit if fit.finished else next(stepped) for fit in fits]
        steps += 1
        assert steps <= logistic.MOST_STEPS
    return replace(own, parameters=logistic.parameters(own.variables, fits)), steps


def log_likelihood(asked, rows, weights):
    return float(logistic.sums_of_rows(asked, rows, weights).log_likelihoods.sum())


def test_rows_in_which_a_category_is_a_target_are_left_out():
    own, rows = model(table(80))
    asked = logistic.families(own.variables, MEMBERS)
    rng = np.random.default_rng(3)
    weights = rng.normal(size=sum(one.num_weights for one in asked))
    acted = rng.random((80, len(own.variables))) < 0.4
    found = logistic.sums_of_rows(asked, rows, weights, acted)
    parts = np.split(weights, np.cumsum([one.num_weights for one in asked])[:-1])
    wanted = [
        logistic.sums_of_rows([one], rows[~acted[:, one.child]], part)
        for one, part in zip(asked, parts, strict=True)
    ]
    for ours, theirs in zip(found, zip(*wanted, strict=True), strict=True):
        np.testing.assert_allclose(ours, np.concatenate(theirs), atol=1e-12)
    none = logistic.sums_of_rows(asked, rows, weights, np.zeros_like(acted))
    for ours, theirs in zip(none, logistic.sums_of_rows(asked, rows, weights), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_sums_are_derivatives_of_the_log_likelihood():
    own, rows = model(table(60))
    asked = logistic.families(own.variables, MEMBERS)
    assert [one.shape for one in asked] == [(4, 2), (3, 1)]
    assert logistic.sizes(asked) == {"c": 2, "b": 11, "v": 36 + 6}
    weights = np.random.default_rng(1).normal(size=11)
    sums = logistic.sums_of_rows(asked, rows, weights)
    slopes = approx_fprime(weights, lambda w: log_likelihood(asked, rows, w), 1e-6)
    np.testing.assert_allclose(sums.gradient, slopes, atol=1e-3)
    curved = approx_fprime(weights, lambda w: logistic.sums_of_rows(asked, rows, w).gradient, 1e-6)
    triangles = [curved[:8, :8][np.triu_indices(8)], curved[8:, 8:][np.triu_indices(3)]]
    np.testing.assert_allclose(sums.information, -np.concatenate(triangles), atol=1e-3)
    np.testing.assert_allclose(curved[:8, 8:], 0, atol=1e-9)
    diagonal = logistic.diagonals(asked, sums.information)
    np.testing.assert_allclose(diagonal, -np.diagonal(curved), atol=1e-3)


@given(st.integers(0, 200), st.integers(0, 50))
def test_sums_do_not_depend_on_who_has_which_rows(cut, seed):
    own, rows = model(table(200, seed=7))
    asked = logistic.families(own.variables, MEMBERS)
    weights = np.random.default_rng(seed).normal(size=11)
    order = np.random.default_rng(seed).permutation(200)
    whole = logistic.sums_of_rows(asked, rows, weights)
    parts = [
        logistic.sums_of_rows(asked, part, weights)
        for part in (rows[order[:cut]], rows[order[cut:]])
    ]
    for one, first, second in zip(whole, *parts, strict=True):
        np.testing.assert_allclose(one, first + second, atol=1e-9)


def with_gaps(rows, own, share, seed=0):
    """Rows in which all columns of a variable are missing together."""
    gaps = np.random.default_rng(seed).random((len(rows), len(own.variables))) < share
    return np.where(np.repeat(gaps, [one.width for one in own.variables], axis=1), np.nan, rows)


def estimate_of(own):
    return MomentEstimate(own.moments.mean, own.moments.second)


def test_sums_of_complete_rows_need_no_expectation():
    own, rows = model(table(150))
    asked = logistic.families(own.variables, MEMBERS)
    weights = np.random.default_rng(0).normal(size=logistic.sizes(asked)["b"])
    found = logistic.expected_sums_of_rows(asked, rows, weights, estimate_of(own))
    for one, other in zip(found, logistic.sums_of_rows(asked, rows, weights), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_points_have_the_mean_and_covariance_of_missing_causes():
    # At weights 0 all probabilities are alike, so that the sums are products of the causes.
    own, rows = model(table(200))
    estimate, gaps = estimate_of(own), with_gaps(rows, own, 0.4)
    asked = logistic.families(own.variables, MEMBERS)
    zeros = np.zeros(logistic.sizes(asked)["b"])
    found = logistic.expected_sums_of_rows(asked, gaps, zeros, estimate)
    start = 0
    for family in asked:
        seen = gaps[~np.isnan(gaps[:, family.own]).any(axis=1)]
        # The category itself tells nothing at these weights.
        lacking = np.isnan(seen[:, family.others]).any(axis=1)
        seen[np.ix_(lacking, family.own)] = np.nan
        expected = expected_sums(seen, estimate)
        places = np.append(0, 1 + family.others)
        k = len(family.own)
        spread = (np.eye(k) - 1 / (k + 1)) / (k + 1)
        size = family.num_weights * (family.num_weights + 1) // 2
        np.testing.assert_allclose(
            found.information[start : start + size],
            upper_triangles(np.kron(expected[np.ix_(places, places)], spread)),
            atol=1e-8,
        )
        start += size


def test_sums_of_rows_with_gaps_are_derivatives_of_the_log_likelihood():
    own, rows = model(table(80))
    gaps, estimate = with_gaps(rows, own, 0.3), estimate_of(own)
    asked = logistic.families(own.variables, MEMBERS)
    weights = np.random.default_rng(1).normal(size=logistic.sizes(asked)["b"])

    def value(at):
        sums = logistic.expected_sums_of_rows(asked, gaps, at, estimate)
        return sums.log_likelihoods.sum()

    found = logistic.expected_sums_of_rows(asked, gaps, weights, estimate)
    np.testing.assert_allclose(found.gradient, approx_fprime(weights, value, 1e-6), atol=1e-3)


@given(st.integers(0, 120), st.integers(0, 20))
@settings(max_examples=10, deadline=None)
def test_sums_of_rows_with_gaps_do_not_depend_on_who_has_which(cut, seed):
    own, rows = model(table(120, seed))
    gaps = with_gaps(rows, own, 0.3, seed)[np.random.default_rng(seed).permutation(120)]
    asked = logistic.families(own.variables, MEMBERS)
    weights = np.random.default_rng(seed).normal(size=logistic.sizes(asked)["b"])
    both = [
        logistic.expected_sums_of_rows(asked, part, weights, estimate_of(own))
        for part in (gaps[:cut], gaps[cut:])
    ]
    whole = logistic.expected_sums_of_rows(asked, gaps[::-1], weights, estimate_of(own))
    for one, other, all_rows in zip(*both, whole, strict=True):
        np.testing.assert_allclose(one + other, all_rows, atol=1e-8)


def test_the_fit_is_the_one_of_maximum_likelihood(monkeypatch):
    frame = table(3000)
    own, rows = model(frame)
    found, _ = converged(own, rows, near=1e-6, parts=3, monkeypatch=monkeypatch)
    monkeypatch.setattr(logistic, "PRIOR_ROWS", 0.0)
    exact, _ = converged(own, rows, near=1e-6, monkeypatch=monkeypatch)
    x = sm.add_constant(rows[:, [0, 1, 2]])
    codes = 2 - frame["grade"].map({"high": 0, "low": 1, "mid": 2}).to_numpy()
    usual = sm.MNLogit(codes, x).fit(disp=0, method="newton", maxiter=100)
    # There the last state, here the first one, is the one that others are compared with.
    np.testing.assert_allclose(exact.parameters["grade"], usual.params[:, ::-1], atol=1e-6)
    # The prior has the weight of a few rows.
    moved = np.abs(found.parameters["grade"] - exact.parameters["grade"])
    assert 0 < (moved / usual.bse[:, ::-1]).max() < 0.25
    # Given one category alone the fit is its shares of rows.
    shares = pd.crosstab(frame["grade"], frame["pain"], normalize="index")
    constant = exact.coefficients("pain")["no"]["constant"]
    assert constant == pytest.approx(np.log(shares["no"] / shares["yes"])["mid"], abs=1e-6)


def test_categories_with_causes_are_regressed():
    own, _ = model(table(60))
    assert logistic.regressed(own.variables, DAG) == MEMBERS
    assert logistic.regressed(own.variables, DAG.T) == [(1, (2,)), (2, (3,))]


@pytest.mark.parametrize("strength", [0.5, 3.0])
def test_the_likelihood_where_a_fit_stands_needs_no_further_sums(strength):
    """The last step is short: the second-order gain is the log-likelihood after it."""
    own, rows = model(table(2000, strength=strength))
    fits = logistic.init(own.variables, own.moments, MEMBERS)
    while left := [fit for fit in fits if not fit.finished]:
        asked = [fit.family for fit in left]
        sums = logistic.sums_of_rows(asked, rows, logistic.asked_weights(left))
        means = logistic.LogisticSums(*(one / len(rows) for one in sums))
        stepped = iter(logistic.server_step(left, means, len(rows)))
        fits = [fit if fit.finished else next(stepped) for fit in fits]
    asked = [fit.family for fit in fits]
    exact = logistic.sums_of_rows(asked, rows, logistic.asked_weights(fits)).log_likelihoods
    np.testing.assert_allclose([2000 * fit.log_likelihood for fit in fits], exact, atol=0.3)


def test_few_exchanges_are_nearly_the_whole_way(monkeypatch):
    test = table(40_000, seed=5)
    own, rows = model(table(2000, strength=0.5))
    fitted, steps = converged(own, rows)
    whole, _ = converged(own, rows, near=1e-6, monkeypatch=monkeypatch)
    assert steps <= 2
    gains = [one.log_likelihood(test).mean() for one in (own, fitted, whole)]
    assert gains[1] == pytest.approx(gains[2], abs=5e-4)


@pytest.mark.parametrize("strength", [1.0, 3.0, 10.0])
def test_it_converges_from_afar_and_beats_discriminant_analysis(strength):
    own, rows = model(table(2000, strength=strength))
    fitted, steps = converged(own, rows)
    assert steps <= 9
    test = table(20_000, seed=5, strength=strength)
    gain = fitted.log_likelihood(test).mean() - own.log_likelihood(test).mean()
    assert gain > 0.02


def test_a_cause_that_tells_the_states_apart_gives_finite_weights():
    frame = table(500)
    frame["grade"] = np.where(frame["dose"] > 2, "high", np.where(frame["dose"] > 1, "mid", "low"))
    own, rows = model(frame)
    fitted, _ = converged(own, rows)
    assert np.isfinite(fitted.parameters["grade"]).all()
    assert fitted.log_likelihood(frame).mean() > own.log_likelihood(frame).mean()


def test_a_step_that_goes_too_far_is_shortened():
    own, rows = model(table(300))
    first = logistic.init(own.variables, own.moments, MEMBERS)
    asked = [one.family for one in first]
    means = logistic.LogisticSums(
        *(one / 300 for one in logistic.sums_of_rows(asked, rows, logistic.asked_weights(first)))
    )
    after = [replace(one, finished=False) for one in logistic.server_step(first, means, 300)]
    worse = means._replace(log_likelihoods=means.log_likelihoods - 1)
    shorter = logistic.server_step(after, worse, 300)
    for one, other in zip(after, shorter, strict=True):
        np.testing.assert_allclose(other.step, logistic.SHORTER * one.step)
        np.testing.assert_array_equal(other.best, one.best)
        assert not other.finished


def test_samples_densities_and_files_have_the_fitted_parameters(tmp_path):
    frame = table(4000, strength=3)
    own, rows = model(frame)
    fitted, _ = converged(own, rows)
    rows_of = frame.head(20)
    coefficients = fitted.coefficients("grade")
    x = np.column_stack(
        [np.ones(20), rows_of["dose"], rows_of["group"] == "a", rows_of["group"] == "b"]
    )
    odds = np.column_stack([x @ coefficients.to_numpy(dtype=float), np.zeros(20)])
    shares = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    given_all = [
        fitted.log_likelihood(rows_of.assign(grade=one, pain="no")) for one in ("high", "low")
    ]
    pain = fitted.coefficients("pain")["no"]
    logs = [
        -np.log1p(np.exp(-(pain["constant"] + pain[f"grade={one}"]))) for one in ("high", "low")
    ]
    np.testing.assert_allclose(
        given_all[0] - given_all[1],
        np.log(shares[:, 0] / shares[:, 1]) + logs[0] - logs[1],
        atol=1e-9,
    )
    assert list(coefficients.index) == ["constant", "dose", "group=a", "group=b"]
    fitted.save(tmp_path / "model.json")
    loaded = BlockModel.load(tmp_path / "model.json")
    pd.testing.assert_frame_equal(loaded.sample(50, seed=1), fitted.sample(50, seed=1))
    done = fitted.do({"group": "c"}), loaded.do({"group": "c"})
    pd.testing.assert_frame_equal(*(one.sample(50, seed=1) for one in done))
    # An intervention on a category replaces its regression.
    assert set(fitted.do({"grade": "mid"}).sample(50, seed=1)["grade"]) == {"mid"}


def test_parameters_of_other_causes_are_refused():
    own, rows = model(table(300))
    fitted, _ = converged(own, rows)
    with pytest.raises(DataError, match="parameters are not those"):
        replace(fitted, parameters={"grade": fitted.parameters["grade"]})


def test_predictions_follow_from_the_fitted_model_by_the_rule_of_bayes():
    own, rows = model(table(3000, strength=3))
    fitted, _ = converged(own, rows)
    test = table(3000, seed=5, strength=3)
    for target in ("grade", "group", "pain"):
        labels = list(own.variables[NAMES.index(target)].states)
        joint = np.column_stack(
            [fitted.log_likelihood(test.assign(**{target: one})) for one in labels]
        )
        shares = np.exp(joint - joint.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(fitted.predict_proba(test, target), shares, atol=1e-9)
    right = [["high", "low", "mid"].index(one) for one in test["grade"]]
    losses = [
        -np.log(one.predict_proba(test, "grade")[np.arange(3000), right]).mean()
        for one in (own, fitted)
    ]
    assert losses[1] < losses[0] - 0.02
    # Without one of the causes predictions follow from the moments.
    part = test.drop(columns="dose")
    np.testing.assert_array_equal(*(one.predict_proba(part, "grade") for one in (own, fitted)))
