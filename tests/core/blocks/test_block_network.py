"""Distributions of numbers and categories, beside scikit-learn and shares of rows."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

from flwr_causal import ConfigError, DataError
from flwr_causal.core.blocks.conditionals import conditional
from flwr_causal.core.blocks.design import blocks_of_columns, column_names, design
from flwr_causal.core.graphs.fit_check import check, edge_tests
from flwr_causal.core.linear.effects import Blocks
from flwr_causal.core.linear.independence import BlockTests
from flwr_causal.core.linear.moments import SampleMoments, columns_of
from flwr_causal.core.systems.blocks import BlockModel

NAMES = ("group", "smoker", "dose", "visits", "died")
#: group and smoker cause dose, dose causes visits and, with group, died.
DAG = np.zeros((5, 5), dtype=bool)
DAG[[0, 1, 2, 2, 0], [2, 2, 3, 4, 4]] = True


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.choice(["middle", "old", "young"], n, p=[0.2, 0.3, 0.5])
    smoker = rng.random(n) < 0.3
    dose = 5 + 2.0 * (group == "old") - (group == "young") + 1.5 * smoker + rng.normal(size=n)
    visits = 3 - 0.5 * dose + rng.normal(size=n)
    odds = np.exp(dose - 5.5 + (group == "old"))
    died = rng.random(n) < odds / (1 + odds)
    columns = {"group": group, "smoker": smoker, "dose": dose, "visits": visits}
    return pd.DataFrame(columns | {"died": np.where(died, 1, 0).astype(str)})


def model(frame, dag=DAG, functions=1):
    variables, columns = design(frame, functions)
    typed = []
    for one in variables:
        kind = {"smoker": "bool", "died": "int"}.get(one.name, "str")
        typed.append(one if hasattr(one, "mean") else type(one)(one.name, one.states, kind))
    moments = SampleMoments.from_rows(columns, column_names(variables))
    return BlockModel(tuple(typed), moments, dag)


TABLE = table(4000)
MODEL = model(TABLE)


def of(variable):
    return NAMES.index(variable)


def test_a_number_has_the_regression_of_least_squares():
    own = conditional(MODEL.variables, MODEL.moments, [of("group"), of("visits")], of("dose"))
    columns = [MODEL.variables[k].columns for k in (0, 3)]
    codes = TABLE["group"].map({"middle": 0, "old": 1, "young": 2}).to_numpy()
    x = np.column_stack([columns[0](codes), columns[1](TABLE["visits"].to_numpy())])
    ones = np.column_stack([np.ones(len(x)), x])
    z = (TABLE["dose"].to_numpy() - MODEL.variables[2].mean) / MODEL.variables[2].scale
    found, left = np.linalg.lstsq(ones, z, rcond=None)[:2]
    np.testing.assert_allclose(own.mean(x), ones @ found, atol=1e-9)
    assert own.deviation == pytest.approx(np.sqrt(left[0] / len(x)))


def test_a_category_given_numbers_is_linear_discriminant_analysis():
    own = conditional(MODEL.variables, MODEL.moments, [2, 3], of("group"))
    x = np.column_stack([MODEL.variables[k].columns(TABLE[NAMES[k]].to_numpy()) for k in (2, 3)])
    usual = LinearDiscriminantAnalysis(solver="lsqr").fit(x, TABLE["group"])
    found = np.exp(own.log_probabilities(x))
    np.testing.assert_allclose(found, usual.predict_proba(x), atol=2e-3)


def test_a_category_given_one_category_has_the_shares_of_rows():
    own = conditional(MODEL.variables, MODEL.moments, [of("group")], of("died"))
    shares = pd.crosstab(TABLE["group"], TABLE["died"], normalize="index").to_numpy()
    found = np.exp(own.log_probabilities(MODEL.variables[0].columns(np.arange(3))))
    np.testing.assert_allclose(found, shares, atol=1e-3)
    alone = np.exp(
        conditional(MODEL.variables, MODEL.moments, [], 4).log_probabilities(np.zeros((1, 0)))
    )
    assert alone[0, 1] == pytest.approx((TABLE["died"] == "1").mean(), abs=1e-3)


def test_samples_are_as_the_rows():
    rows = MODEL.sample(40_000, seed=1)
    assert rows["smoker"].dtype == bool
    assert rows["died"].dtype.kind == "i"
    pd.testing.assert_frame_equal(rows, MODEL.sample(40_000, seed=1))
    big = table(40_000, seed=2)
    for by in ("group", "smoker"):
        ours, right = (one.groupby(by)[["dose", "visits"]] for one in (rows, big))
        np.testing.assert_allclose(ours.mean(), right.mean(), atol=0.08)
        np.testing.assert_allclose(ours.std(), right.std(), atol=0.08)
    died = rows.groupby("group")["died"].mean().to_numpy()
    right = (big["died"] == "1").groupby(big["group"]).mean().to_numpy()
    # Discriminant analysis takes dose to be normal in both states.
    np.testing.assert_allclose(died, right, atol=0.08)


def test_an_intervention_sets_a_variable_and_cuts_its_causes():
    after = MODEL.do({"dose": 7.0, "smoker": True})
    rows = after.sample(40_000, seed=1)
    assert (rows["dose"] == 7.0).all()
    assert rows["smoker"].all()
    assert rows["group"].value_counts(normalize=True)["old"] == pytest.approx(0.3, abs=0.02)
    assert rows["visits"].mean() == pytest.approx(3 - 3.5, abs=0.05)
    odds = np.exp(7.0 - 5.5 + (rows["group"] == "old"))
    assert rows["died"].mean() == pytest.approx((odds / (1 + odds)).mean(), abs=0.06)
    for answer in (
        lambda: after.log_likelihood(TABLE),
        lambda: after.predict(TABLE, "died"),
        after.fit_check,
        lambda: after.total_effect("dose", "visits"),
    ):
        with pytest.raises(ConfigError, match="after an intervention"):
            answer()
    assert after.edge_tests() == []


def test_an_intervention_that_a_class_leaves_open_is_refused():
    marks = DAG.copy()
    marks[3, 2] = True  # dose -- visits
    with pytest.raises(ConfigError, match="possible_effects"):
        model(TABLE, marks).do({"dose": 1.0})


@pytest.mark.parametrize(
    ("values", "problem"), [({"group": "ancient"}, "ancient"), ({"dose": "high"}, "number")]
)
def test_values_that_are_not_possible_are_refused(values, problem):
    with pytest.raises(ConfigError, match=problem):
        MODEL.do(values)
    with pytest.raises(DataError, match="weight"):
        MODEL.do({"weight": 1})


def test_densities_are_those_of_the_conditional_distributions():
    rows = TABLE.head(50)
    found = MODEL.log_likelihood(rows)
    total = np.log(MODEL.predict_proba(rows[["group"]].iloc[:0], "group")).sum()
    assert total == 0  # of no rows
    # The density of visits given the rest is normal: changing visits changes nothing else.
    moved = rows.assign(visits=rows["visits"] + 1)
    given = np.polyfit(TABLE["dose"], TABLE["visits"], 1)
    spread = np.std(TABLE["visits"] - np.polyval(given, TABLE["dose"]))
    means = np.polyval(given, rows["dose"])
    expected = norm(means, spread).logpdf(moved["visits"]) - norm(means, spread).logpdf(
        rows["visits"]
    )
    np.testing.assert_allclose(MODEL.log_likelihood(moved) - found, expected, rtol=1e-6)
    both = [MODEL.log_likelihood(rows.assign(died=state)) for state in ("0", "1")]
    of_died = np.exp(both[1] - np.logaddexp(*both))
    given_causes = MODEL.predict_proba(rows, "died")[:, 1]
    np.testing.assert_allclose(of_died, given_causes, atol=1e-9)


@pytest.mark.parametrize("target", ["died", "smoker", "group"])
def test_predictions_are_as_good_as_those_of_logistic_regression(target):
    test = table(4000, seed=3)

    def others(frame):
        return pd.get_dummies(frame.drop(columns=target)).to_numpy(dtype=float)

    usual = LogisticRegression(max_iter=5000).fit(others(TABLE), TABLE[target])
    labels = list(MODEL.variables[of(target)].states)
    right = [labels.index(str(value)) for value in test[target]]
    ours = MODEL.predict_proba(test, target)[np.arange(len(test)), right]
    places = np.searchsorted(usual.classes_, test[target])
    theirs = usual.predict_proba(others(test))[np.arange(len(test)), places]
    assert -np.log(ours).mean() < -np.log(theirs).mean() + 0.01


def test_what_is_missing_is_left_out_of_predictions():
    rows = TABLE.head(30)
    gaps = rows.assign(group=rows["group"].where(np.arange(30) % 2 == 0))
    found = MODEL.predict(gaps, "dose")
    np.testing.assert_allclose(found[::2], MODEL.predict(rows, "dose")[::2])
    np.testing.assert_allclose(found[1::2], MODEL.predict(rows.drop(columns="group"), "dose")[1::2])
    assert np.abs(found[1::2] - MODEL.predict(rows, "dose")[1::2]).max() > 0.1
    with pytest.raises(DataError, match="'group' has a value that is not among its 3 states"):
        MODEL.predict(rows.assign(group="ancient"), "dose")


@pytest.mark.slow
def test_tests_hold_their_level_and_find_what_is_missing():
    rejected, missed = [], []
    without = DAG.copy()
    without[0, 4] = False
    for seed in range(60):
        frame = table(800, seed=100 + seed)
        right, wrong = model(frame), model(frame, without)
        rejected += (right.fit_check().independencies["p_value"] < 0.05).tolist()
        tests = wrong.fit_check().independencies
        pair = tests[(tests["first"] == "group") & (tests["second"] == "died")]
        missed.append(pair["p_value"].iloc[0] > 0.05)
    assert 0.02 < np.mean(rejected) < 0.09
    assert np.mean(missed) < 0.2


def test_of_numbers_alone_they_are_those_of_partial_correlations():
    frame = TABLE[["dose", "visits"]].assign(other=np.random.default_rng(0).normal(size=4000))
    dag = np.zeros((3, 3), dtype=bool)
    dag[0, 1] = True
    own = model(frame, dag)
    tests = BlockTests(blocks_of_columns(own.variables, own.moments))
    found = check(tests, dag).independencies
    correlation = np.corrcoef(frame["dose"], frame["other"])[0, 1]
    row = found[(found["first"] == "dose") & (found["second"] == "other")].iloc[0]
    assert row["statistic"] == pytest.approx(-4000 * np.log(1 - correlation**2), rel=1e-2)
    (edge,) = edge_tests(tests, dag)
    strong = np.corrcoef(frame["dose"], frame["visits"])[0, 1]
    assert edge.statistic == pytest.approx(-4000 * np.log(1 - strong**2), rel=1e-2)
    assert (edge.cause, edge.effect, edge.degrees, edge.rows) == ("dose", "visits", 1, 4000)


def test_a_model_is_saved_with_types_and_interventions(tmp_path):
    after = MODEL.do({"group": "old"})
    after.save(tmp_path / "model.json")
    loaded = BlockModel.load(tmp_path / "model.json")
    pd.testing.assert_frame_equal(loaded.sample(50, seed=3), after.sample(50, seed=3))
    assert loaded.fixed == {"group": "old"}


def test_curved_effects_are_sampled_curved():
    rng = np.random.default_rng(0)
    x = rng.normal(size=5000)
    frame = pd.DataFrame({"x": x, "y": np.tanh(2 * x) + 0.3 * rng.normal(size=5000)})
    own = model(frame, np.array([[False, True], [False, False]]), functions=3)
    rows = own.sample(20_000, seed=0)
    for low, high in ((-2.5, -1.5), (-0.5, 0.5), (1.5, 2.5)):
        ours, right = (one["y"][one["x"].between(low, high)].mean() for one in (rows, frame))
        assert ours == pytest.approx(right, abs=0.08)


@pytest.mark.slow
def test_given_values_are_those_of_chosen_rows():
    rows = MODEL.sample(400_000, seed=1)
    chosen = rows[(rows["died"] == 1) & rows["dose"].between(6.3, 6.7)]
    given = MODEL.conditional({"died": 1, "dose": 6.5})
    found = given.sample(20_000, seed=2)
    assert (found["died"] == 1).all()
    assert (found["dose"] == 6.5).all()
    for name in ("group", "smoker"):
        shares = (one[name].value_counts(normalize=True) for one in (found, chosen))
        assert np.abs(np.subtract(*shares)).max() < 0.03
    assert found["visits"].mean() == pytest.approx(chosen["visits"].mean(), abs=0.05)
    # Of causes alone it is what happens if they are set.
    causes = {"group": "old", "smoker": True}
    pair = (one.sample(20_000, seed=3) for one in (MODEL.conditional(causes), MODEL.do(causes)))
    one, other = (rows["dose"].mean() for rows in pair)
    assert one == pytest.approx(other, abs=0.05)
    # After an intervention what is seen says nothing of the causes of what is set.
    after = MODEL.do({"dose": 7.0}).conditional({"visits": 0.0}).sample(20_000, seed=4)
    assert (after["group"] == "old").mean() == pytest.approx(0.3, abs=0.02)


def test_what_cannot_be_given_is_refused(tmp_path):
    given = MODEL.conditional({"group": "old"})
    given.save(tmp_path / "model.json")
    loaded = BlockModel.load(tmp_path / "model.json")
    pd.testing.assert_frame_equal(loaded.sample(50, seed=3), given.sample(50, seed=3))
    assert given.edge_tests() == []
    assert len(given.sample(0)) == 0
    for answer, problem in (
        (lambda: given.predict(TABLE, "died"), "without 'conditional'"),
        (lambda: given.do({"dose": 1.0}), "do first"),
        (lambda: MODEL.do({"dose": 1.0}).conditional({"dose": 2.0}), "'dose' is set"),
        (lambda: MODEL.conditional({"group": "ancient"}), "ancient"),
    ):
        with pytest.raises(ConfigError, match=problem):
            answer()
    with pytest.raises(DataError, match="weight"):
        MODEL.conditional({"weight": 1})
    with pytest.raises(DataError, match="nothing is left"):
        MODEL.conditional(dict(TABLE.iloc[0]))
    with pytest.raises(DataError, match="too improbable"):
        MODEL.conditional({"dose": 500.0}).sample(1, seed=0)


def test_the_likelihood_ratio_is_wilks_with_bartletts_factor():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(40, 6)) + rng.normal(size=(40, 1))
    moments = SampleMoments.from_rows(rows, list("abcdef"))
    blocks = Blocks(["x", "y", "z"], columns_of([3, 2, 1]), moments)

    def log_det(columns):
        return np.linalg.slogdet(moments.second[np.ix_(columns, columns)])[1]

    for given, own in (((), []), ((2,), [5])):
        one, other = (BlockTests(blocks).test(*pair, given) for pair in ((0, 1), (1, 0)))
        both = log_det([0, 1, 2, 3, 4, *own]) + log_det(own) if own else log_det(range(5))
        ratio = log_det([0, 1, 2, *own]) + log_det([3, 4, *own]) - both
        expected = (40 - 1 - len(own) - (3 + 2 + 1) / 2) * ratio
        for found in (one, other):
            np.testing.assert_allclose(found[3:], (expected, 6, 40))
