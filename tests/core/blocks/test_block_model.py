"""Total effects of blocks: against regressions on indicators, and what cannot be asked."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from flwr_causal import Run, simulate
from flwr_causal.core.blocks.design import column_names, design
from flwr_causal.core.graphs import equivalence
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.systems.blocks import BlockModel
from flwr_causal.errors import ConfigError, DataError

NAMES = ("age", "drug", "dose", "ill")
# age -> drug -> dose -> ill, age -> dose, age -> ill.
DAG = np.zeros((4, 4), dtype=bool)
for i, j in ((0, 1), (1, 2), (2, 3), (0, 2), (0, 3)):
    DAG[i, j] = True


def table(n=900, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 10, n)
    z = (age - 50) / 10
    drug = np.array(["a", "b", "c"])[
        (z[:, None] + rng.normal(size=(n, 1)) > [-0.5, 0.7]).sum(axis=1)
    ]
    dose = 2.0 * (drug == "b") - 1.0 * (drug == "c") + 0.3 * z + rng.normal(size=n)
    ill = dose + 0.4 * z + rng.normal(size=n) > 0.5
    return pd.DataFrame({"age": age, "drug": drug, "dose": dose, "ill": ill})


def model(rows=None, marks=DAG, functions=1):
    variables, columns = design(table() if rows is None else rows, functions)
    return BlockModel(variables, SampleMoments.from_rows(columns, column_names(variables)), marks)


def regressed(y, *columns):
    return sm.OLS(np.asarray(y, dtype=float), sm.add_constant(np.column_stack(columns))).fit()


def near(effect, fitted, contrast):
    contrast = np.concatenate([[0.0], contrast, np.zeros(len(fitted.params) - 1 - len(contrast))])
    tested = fitted.t_test(contrast)
    assert effect.value == pytest.approx(tested.effect.item())
    assert effect.standard_error == pytest.approx(tested.sd.item())
    assert effect.interval == pytest.approx(tested.conf_int()[0])


def test_a_category_on_a_number():
    rows = table()
    b, c = ((rows["drug"] == one).astype(float) for one in "bc")
    fitted = regressed(rows["dose"], b, c, rows["age"])
    found = model().total_effect("drug", "dose", state="b", reference="c")
    near(found, fitted, [1.0, -1.0])
    assert found.adjustment_set == ("age",)
    near(model().total_effect("drug", "dose", state="b", reference="a"), fitted, [1.0])


def test_a_number_on_an_outcome():
    rows = table()
    fitted = regressed(rows["ill"], rows["dose"], rows["age"])
    near(model().total_effect("dose", "ill", outcome=True), fitted, [1.0])
    near(model().total_effect("dose", "ill", outcome="True", state=3, reference=1), fitted, [2.0])
    other = model().total_effect("dose", "ill", outcome=False)
    assert other.value == pytest.approx(-fitted.params[1])


def test_a_category_on_an_outcome_with_another_level():
    rows = table()
    b, c = ((rows["drug"] == one).astype(float) for one in "bc")
    fitted = regressed(rows["ill"], b, c, rows["age"])
    found = model().total_effect("drug", "ill", state="c", reference="a", outcome=True, level=0.8)
    assert found.value == pytest.approx(fitted.params[2])
    assert found.interval == pytest.approx(fitted.conf_int(0.2)[2])


def test_curved_effects_are_contrasts_of_functions():
    rows = table()
    z = (rows["dose"] - rows["dose"].mean()) / rows["dose"].std(ddof=0)
    functions = [z, np.tanh(1.5 * z), np.exp(-0.5 * z * z)]
    a = (rows["age"] - rows["age"].mean()) / rows["age"].std(ddof=0)
    others = [a, np.tanh(1.5 * a), np.exp(-0.5 * a * a)]
    fitted = regressed(rows["ill"], *functions, *others)
    points = (np.array([1.0, -1.0]) - rows["dose"].mean()) / rows["dose"].std(ddof=0)
    change = [f[0] - f[1] for f in (points, np.tanh(1.5 * points), np.exp(-0.5 * points**2))]
    found = model(functions=3).total_effect("dose", "ill", state=1.0, reference=-1.0, outcome=True)
    near(found, fitted, change)


def test_against_the_direction_there_is_no_effect():
    assert model().total_effect("dose", "drug", outcome="a").value == 0
    assert model().possible_effects("ill", "age", state=True, reference=False)[0].value == 0


def test_an_open_class_gives_a_list():
    marks = equivalence.cpdag(DAG)
    found = model(marks=marks).total_effect("drug", "dose", state="b", reference="a")
    assert isinstance(found, list)
    values = [one.value for one in found]
    assert 0.0 in values
    by_age = model().total_effect("drug", "dose", state="b", reference="a").value
    assert min(abs(value - by_age) for value in values) < 1e-9
    sizes = [len(one.adjustment_set or ()) for one in found if one.value]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize(
    ("cause", "effect", "options", "message"),
    [
        ("drug", "dose", {}, "'drug' is a category: give state and reference of a, b, c"),
        ("drug", "dose", {"state": "b"}, "give both state and reference"),
        ("drug", "dose", {"state": "b", "reference": "x"}, "has no state 'x'; it has a, b, c"),
        ("dose", "ill", {}, "'ill' is a category: give an outcome of False, True"),
        ("age", "dose", {"outcome": 1}, "'dose' is a number, of which no outcome"),
        ("dose", "ill", {"state": "b", "reference": 1, "outcome": True}, "'dose' is a number"),
        ("age", "dose", {"state": float("nan"), "reference": 1}, "'age' is a number: give finite"),
        ("age", "dose", {"state": 1, "reference": "inf"}, "'age' is a number: give finite"),
        ("dose", "ill", {"outcome": True, "level": 2.0}, "level"),
    ],
)
def test_what_is_missing_or_impossible_is_named(cause, effect, options, message):
    with pytest.raises(ConfigError, match=message):
        model().total_effect(cause, effect, **options)
    with pytest.raises(ConfigError, match="curved"):
        model(functions=3).total_effect("age", "dose")


def test_a_cause_that_others_determine_and_few_rows():
    rows = table()
    marks = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=bool)
    old = rows["age"] > 50
    copied = pd.DataFrame({"old": old, "copy": np.where(old, "yes", "no"), "dose": rows["dose"]})
    with pytest.raises(DataError, match=r"copy does not vary .* or is a linear function of old"):
        model(copied, marks).total_effect("copy", "dose", state="yes", reference="no")
    alone = DAG & (np.arange(4)[:, None] == 1)
    few = table().groupby("drug").head(1).assign(ill=[True, False, True])
    with pytest.raises(DataError, match="3 rows are too few"):
        model(few, alone).total_effect("drug", "dose", state="b", reference="c")


def test_a_file_holds_all_of_it(tmp_path):
    one = model(functions=3)
    one.save(tmp_path / "model.json")
    other = BlockModel.load(tmp_path / "model.json")
    options = {"state": "b", "reference": "a"}
    assert other.total_effect("drug", "dose", **options) == one.total_effect(
        "drug", "dose", **options
    )
    assert other.variables == one.variables
    (tmp_path / "model.json").write_text('{"format": "flwr-causal blocks 1", "variables": 3}')
    with pytest.raises(DataError, match="damaged"):
        BlockModel.load(tmp_path / "model.json")


def test_a_run_answers_after_it_was_loaded(tmp_path):
    parts = [table(900).iloc[k::3] for k in range(3)]
    run = simulate("moments", parts, text_columns="keep", output_dir=str(tmp_path / "run"))
    options = {"state": "b", "reference": "c"}
    found = run.total_effect("drug", "dose", **options)
    assert Run.load(tmp_path / "run").total_effect("drug", "dose", **options) == found
    run.report(tmp_path / "page.html")


@pytest.mark.nightly
def test_intervals_cover_the_true_effect():
    rng, inside = np.random.default_rng(5), 0
    marks = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=bool)
    for _ in range(1500):
        x = rng.normal(size=400)
        group = np.where(x + rng.normal(size=400) > 0, "treated", "not")
        ill = rng.random(400) < 0.4 + 0.25 * (group == "treated") + 0.05 * np.clip(x, -2, 2)
        rows = pd.DataFrame({"x": x, "group": group, "ill": ill})
        found = model(rows, marks).total_effect(
            "group", "ill", state="treated", reference="not", outcome=True
        )
        inside += found.interval[0] <= 0.25 <= found.interval[1]
    assert 0.93 < inside / 1500 < 0.97


def test_contrasts_are_the_effects_of_all_states():
    own = model(table())
    rows = own.contrasts("drug", "ill")
    labels = own.variables[NAMES.index("ill")].labels
    assert rows[["state", "outcome"]].values.tolist() == [
        [state, outcome] for state in ("b", "c") for outcome in labels
    ]
    assert set(rows["reference"]) == {"a"}
    for row in rows.to_dict("records"):
        asked = {name: row[name] for name in ("state", "reference", "outcome")}
        one = own.total_effect("drug", "ill", **asked)
        assert (row["value"], row["standard_error"]) == one[:2]
        assert (row["lower"], row["upper"]) == one.interval
    np.testing.assert_allclose(rows.groupby("state")["value"].sum(), 0, atol=1e-12)
    (unit,) = own.contrasts("age", "dose")["value"]
    assert unit == own.total_effect("age", "dose").value
    curved = model(table(), functions=3)
    by = curved.variables[0]
    (row,) = curved.contrasts("age", "dose").to_dict("records")
    assert (row["state"], row["reference"]) == (by.mean + by.scale, by.mean - by.scale)
    opened = model(table(), marks=DAG | DAG.T).contrasts("drug", "dose")
    assert len(opened) > len(own.contrasts("drug", "dose"))


def test_coefficients_are_those_of_the_rows():
    frame = table(3000)
    own = model(frame)
    found = own.coefficients("dose")
    x = sm.add_constant(
        np.column_stack([frame["age"], frame["drug"] == "a", frame["drug"] == "b"]).astype(float)
    )
    usual = sm.OLS(frame["dose"], x).fit()
    assert list(found.index) == ["constant", "age", "drug=a", "drug=b"]
    np.testing.assert_allclose(found["dose"], usual.params, atol=1e-6)
    assert found.attrs["deviation"] == pytest.approx(np.sqrt(usual.ssr / 3000))
    alone = own.coefficients("age")
    assert alone.loc["constant", "age"] == pytest.approx(frame["age"].mean())
    odds = own.coefficients("drug")
    assert list(odds.columns) == ["a", "b"]
    rows = frame.head(5)
    logs = odds.loc["constant"].to_numpy() + np.outer(rows["age"], odds.loc["age"])
    chain = BlockModel(own.variables[:2], own.moments.subset(range(3)), DAG[:2, :2])
    shares = chain.predict_proba(rows, "drug")
    np.testing.assert_allclose(np.log(shares[:, :2] / shares[:, 2:]), logs, atol=1e-6)
