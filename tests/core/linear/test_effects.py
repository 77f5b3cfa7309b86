"""Total effects of linear systems: closed forms, other libraries' regressions, coverage."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from small_graphs import matrix

from flwr_causal.core.graphs.adjustment import optimal_set
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.series.design import lagged_rows
from flwr_causal.core.systems.linear import LinearModel, fit
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.interoperability import to_gml

NAMES = ("age", "drug", "pressure", "stroke", "hospital")
EDGES = matrix(5, (0, 1), (1, 2), (2, 3), (0, 3), (4, 1))


def system():
    weights = np.where(EDGES, 0.0, 0.0)
    for (i, j), value in zip(np.argwhere(EDGES), (0.8, -1.2, 0.7, 2.0, 0.5), strict=True):
        weights[i, j] = value
    return LinearModel(NAMES, weights, np.arange(5.0), np.array([1.0, 0.5, 2.0, 1.0, 0.3]))


def fitted(n=60, seed=0):
    rows = system().sample(n, seed=seed)
    return rows, fit(SampleMoments.from_rows(rows, NAMES), EDGES)


def test_the_effect_is_the_regression_with_its_standard_error():
    rows, model = fitted()
    found = model.total_effect("drug", "stroke", level=0.9)
    assert found.adjustment_set == ("age",)
    theirs = sm.OLS(rows[:, 3], sm.add_constant(rows[:, [1, 0]])).fit()
    np.testing.assert_allclose(found.value, theirs.params[1], rtol=1e-10)
    np.testing.assert_allclose(found.standard_error, theirs.bse[1], rtol=1e-10)
    np.testing.assert_allclose(found.interval, theirs.conf_int(0.1)[1], rtol=1e-8)


def test_the_effect_of_the_true_moments_is_the_sum_over_paths():
    true = system()
    exact = fit(SampleMoments(1000, true.mean(), true.covariance(), NAMES), EDGES)
    total = np.linalg.inv(np.eye(5) - true.weights)
    for i, cause in enumerate(NAMES):
        for j, effect in enumerate(NAMES):
            if i != j:
                found = exact.total_effect(cause, effect)
                np.testing.assert_allclose(found.value, total[i, j], atol=1e-10)
                assert (found.standard_error == 0) == (total[i, j] == 0)


def test_no_directed_path_is_no_effect_at_all():
    _, model = fitted()
    assert model.total_effect("stroke", "age") == (0.0, 0.0, (0.0, 0.0), None)
    assert model.total_effect("age", "hospital") == (0.0, 0.0, (0.0, 0.0), None)


def test_unknown_moments_give_the_effect_along_the_paths():
    """Of a chain with the moments of its families alone, in units that differ by much."""
    rows = system().sample(4000, seed=3) * [1e4, 1.0, 1e-3, 1.0, 1.0]
    whole = SampleMoments.from_rows(rows, NAMES)
    families = (EDGES @ EDGES.T | EDGES | EDGES.T) | np.eye(5, dtype=bool)
    second = np.where(families, whole.second, np.nan)
    assert np.isnan(second[3, 4])
    model = fit(SampleMoments(whole.n, whole.mean, second, NAMES), EDGES)
    found = model.total_effect("hospital", "stroke")
    assert found.adjustment_set is None
    w = model.weights
    value = w[4, 1] * w[1, 2] * w[2, 3]
    np.testing.assert_allclose(found.value, value, rtol=1e-12)
    # The product's variance by the delta method, each coefficient's by its own regression.
    errors = [
        sm.OLS(rows[:, j], sm.add_constant(rows[:, own])).fit().bse[1 + place]
        for j, own, place in ((1, [0, 4], 1), (2, [1], 0), (3, [0, 2], 1))
    ]
    relative = np.array(errors) / [w[4, 1], w[1, 2], w[2, 3]]
    expected = abs(value) * np.sqrt((relative**2).sum())
    np.testing.assert_allclose(found.standard_error, expected, rtol=1e-8)


def test_a_class_has_an_effect_for_each_set_of_parents():
    chain = matrix(3, (0, 1), (1, 2))
    rows = np.random.default_rng(1).normal(size=(50, 3)) @ [[1, 0.5, 1], [0, 1, 2], [0, 0, 1]]
    moments = SampleMoments.from_rows(rows, "xyz")
    model = fit(moments, chain)
    one = LinearModel(
        tuple("xyz"), model.weights, model.intercepts, model.noise_variances, moments, cpdag(chain)
    )
    found = one.total_effect("y", "z")
    assert [own.adjustment_set for own in found] == [(), None, ("x",)]  # fewest, then smallest
    np.testing.assert_allclose(found[0].value, np.polyfit(rows[:, 1], rows[:, 2], 1)[0])
    np.testing.assert_allclose(
        found[2].value, np.linalg.lstsq(sm.add_constant(rows[:, :2]), rows[:, 2])[0][2]
    )
    assert found[1].value == 0
    assert [own.adjustment_set for own in model.possible_effects("y", "z")] == [("x",)]
    assert [own.value for own in model.possible_effects("z", "y")] == [0]


def test_errors_say_what_is_missing():
    rows, model = fitted(n=4)
    with pytest.raises(DataError, match="3 rows are too few for the regression of stroke"):
        fit(SampleMoments.from_rows(rows[:3], NAMES), EDGES).total_effect("age", "stroke")
    with pytest.raises(ConfigError, match="or 2dbn with search=True, without epsilon"):
        system().total_effect("age", "stroke")
    with pytest.raises(ConfigError, match="level is 95"):
        model.total_effect("drug", "pressure", level=95)
    with pytest.raises(DataError, match="unknown variable 'dose'"):
        model.total_effect("dose", "stroke")
    rows = np.random.default_rng(0).normal(size=(30, 3))
    rows[:, 1] = 2 * rows[:, 0]
    copied = fit(SampleMoments.from_rows(rows, "xyz"), matrix(3, (0, 1), (0, 2), (1, 2)))
    with pytest.raises(DataError, match="y does not vary in these rows, or is a linear"):
        copied.total_effect("y", "z")


def test_moments_and_class_are_saved_and_old_files_still_load(tmp_path):
    _, model = fitted()
    second = np.array(model.sample_moments.second)
    second[2, 4] = second[4, 2] = np.nan
    kept = SampleMoments(60, model.sample_moments.mean, second, NAMES)
    whole = LinearModel(
        NAMES, model.weights, model.intercepts, model.noise_variances, kept, cpdag(EDGES)
    )
    whole.save(tmp_path / "model.json")
    found = LinearModel.load(tmp_path / "model.json")
    np.testing.assert_array_equal(found.sample_moments.second, second)
    np.testing.assert_array_equal(found.sample_moments.mean, kept.mean)
    np.testing.assert_array_equal(found.marks, whole.marks)
    assert found.total_effect("drug", "stroke") == whole.total_effect("drug", "stroke")
    content = json.loads((tmp_path / "model.json").read_text())
    del content["sample_moments"], content["marks"]
    (tmp_path / "old.json").write_text(json.dumps(content))
    old = LinearModel.load(tmp_path / "old.json")
    assert old.sample_moments is None
    assert old.marks is None
    content["sample_moments"] = {"n": 3}
    (tmp_path / "bad.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="damaged moments"):
        LinearModel.load(tmp_path / "bad.json")


def test_moments_of_other_variables_are_refused():
    _, model = fitted()
    given = (model.weights, model.intercepts, model.noise_variances)
    with pytest.raises(DataError, match="the moments are those of"):
        LinearModel(tuple("abcde"), *given, model.sample_moments)
    with pytest.raises(DataError, match=r"marks has shape \(2, 2\)"):
        LinearModel(NAMES, *given, marks=np.eye(2))


def test_an_intervention_is_the_system_without_the_targets_mechanism():
    true = system()
    under = true.do({"drug": 3.0})
    np.testing.assert_allclose(under.mean()[[0, 4]], true.mean()[[0, 4]])
    assert under.mean()[1] == 3.0
    shift = 3.0 - true.mean()[1]
    np.testing.assert_allclose(under.mean()[2], true.mean()[2] + shift * true.weights[1, 2])
    assert under.covariance()[1].any() == under.covariance()[:, 1].any() == False  # noqa: E712
    rows = under.sample(2000, seed=0)
    np.testing.assert_array_equal(rows[:, 1], 3.0)
    np.testing.assert_allclose(rows.mean(axis=0), under.mean(), atol=0.2)
    np.testing.assert_array_equal(under.predict(pd.DataFrame({"age": [1.0]}), "drug"), 3.0)
    with pytest.raises(DataError, match=r"no density: .*drug"):
        under.log_likelihood(rows)
    with pytest.raises(DataError, match="unknown variable 'dose'"):
        true.do({"dose": 1})
    for value in (np.inf, "much", None):
        with pytest.raises(DataError, match=r"drug is set to .*: expected a finite number"):
            true.do({"drug": value})
    assert true.do({"drug": np.float32(3)}).intercepts[1] == true.do({"drug": 3}).intercepts[1]


@pytest.mark.nightly
def test_intervals_cover_the_true_effect():
    """Random DAGs of 8 variables, 40 rows: t intervals have their level also in small samples."""
    rng = np.random.default_rng(7)
    hits = []
    for _ in range(800):
        edges = np.triu(rng.random((8, 8)) < 0.4, 1)
        weights = edges * rng.uniform(0.3, 1.5, (8, 8)) * rng.choice([-1, 1], (8, 8))
        total = np.linalg.inv(np.eye(8) - weights)
        scale = rng.uniform(0.5, 2, 8)
        rows = rng.normal(size=(40, 8)) * scale @ total
        model = fit(SampleMoments.from_rows(rows, [f"x{k}" for k in range(8)]), edges)
        for i, j in ((0, 7), (2, 6)):
            if optimal_set(edges, i, j) is not None and total[i, j]:
                low, high = model.total_effect(f"x{i}", f"x{j}").interval
                hits.append(low <= total[i, j] <= high)
    assert len(hits) > 800
    assert 0.93 <= np.mean(hits) <= 0.97


@pytest.mark.slow
def test_the_effect_is_dowhys_of_the_pooled_rows():
    dowhy = pytest.importorskip("dowhy", reason="pip install dowhy")
    rows, model = fitted(200)
    frame = pd.DataFrame(rows, columns=list(NAMES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own dependencies'
        theirs = dowhy.CausalModel(frame, "drug", "stroke", graph=to_gml(model.graph))
        estimand = theirs.identify_effect(proceed_when_unidentifiable=True)
        estimate = theirs.estimate_effect(
            estimand,
            method_name="backdoor.linear_regression",
            confidence_intervals=True,
            test_significance=True,
        )
    found = model.total_effect("drug", "stroke")
    assert list(found.adjustment_set) == estimand.get_backdoor_variables()
    np.testing.assert_allclose(found.value, estimate.value, rtol=1e-8)
    np.testing.assert_allclose(found.standard_error, *estimate.get_standard_error(), rtol=1e-8)
    np.testing.assert_allclose(found.interval, *estimate.get_confidence_intervals(), rtol=1e-8)


def test_effects_between_two_values_are_those_of_as_many_units():
    """By one regression, over paths, over time, and of a class, also of rows that differ."""
    _, model = fitted()
    second = np.array(model.sample_moments.second)
    second[3, 4] = second[4, 3] = np.nan
    few = replace(model, sample_moments=replace(model.sample_moments, second=second))
    own = replace(model, sample_moments=tuple(replace(model.sample_moments) for _ in NAMES))
    in_class = cpdag(EDGES) | matrix(5, (1, 0))
    series = replace(model, sample_moments=None, lagged=0.5 * np.eye(5)[None])
    series = fit(
        SampleMoments.from_rows(
            lagged_rows([series.sample(90, seed=1).to_numpy()], 1), series._columns
        ),
        np.concatenate([EDGES, np.eye(5, dtype=bool)]),
        5,
    )
    cases = [(model, {}), (few, {}), (own, {}), (series, {}), (series, {"lag": 2})]
    cases += [(replace(one, marks=in_class), {}) for one in (model, own)]

    def asked(system, **options):
        pair = ("hospital", "stroke") if system is few else ("age", "stroke")
        found = system.total_effect(*pair, **options)
        return np.array([one[:2] for one in (found if isinstance(found, list) else [found])])

    for system, lag in cases:
        unit, more = asked(system, **lag), asked(system, **lag, state=3.5, reference=1.0)
        assert unit.any()
        np.testing.assert_allclose(more, 2.5 * unit, rtol=1e-9)
    with pytest.raises(ConfigError, match="'stroke' is a number, of which no outcome is asked"):
        model.total_effect("age", "stroke", outcome=1)


def test_a_model_of_rows_with_missing_cells_counts_those_that_are_seen():
    """Of cells that are seen in half of the rows; where rows differ, of each variable's own."""
    _, model = fitted(80)
    half = np.full((5, 5), 40.0)
    for own in (False, True):
        if own:
            rows = tuple(replace(model.sample_moments) for _ in NAMES)
            model = replace(model, sample_moments=rows)
        fewer = model.with_rows_together([half] * (5 if own else 1))
        one, two = (each.total_effect("pressure", "stroke") for each in (model, fewer))
        assert two.value == pytest.approx(one.value)
        # Of each regression on two columns.
        assert two.standard_error == pytest.approx(one.standard_error * np.sqrt(77 / 37))


def test_an_intervention_needs_the_directions_of_what_is_set():
    _, model = fitted()
    in_class = replace(model, marks=EDGES | matrix(5, (1, 0)))
    with pytest.raises(ConfigError, match="leaves open whether 'drug' causes 'age'"):
        in_class.do({"drug": 1.0})
    after = in_class.do({"pressure": 1.0})
    assert not after.marks[:, 2].any()
    assert after.marks[1, 0]
    assert in_class.do({"age": 0.0, "drug": 1.0}).mean()[1] == 1.0
