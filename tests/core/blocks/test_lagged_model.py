"""Effects, predictions and tests of series of numbers and categories."""

import numpy as np
import pandas as pd
import pytest
from worlds_of_blocks import mixed_series

from flwr_causal.core.blocks.design import column_names, design, with_lags
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.series.design import lagged_names, lagged_rows
from flwr_causal.core.systems.blocks import BlockModel
from flwr_causal.core.systems.linear import fit
from flwr_causal.errors import ConfigError, DataError


def codes(column, variable):
    if not hasattr(variable, "states"):
        return column.to_numpy()
    return np.array([variable.states.index(str(value)) for value in column])


def model_of(table, now, past, functions=1):
    """The model of one series, by its graphs."""
    variables = design(table, functions)[0]
    order = len(past)
    columns = np.column_stack([one.columns(codes(table[one.name], one)) for one in variables])
    lagged = with_lags(variables, order)
    moments = SampleMoments.from_rows(lagged_rows([columns], order), column_names(lagged))
    return BlockModel(lagged, moments, now, lagged=past)


def chain(seed, steps=500):
    """A category of three states and a number, which are linear in the columns before them.

    Returns the series, and the effects of the state a in place of c on the number after 1, 2 and 3
    steps.
    """
    rng = np.random.default_rng(seed)
    moves = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]])
    pushes = np.array([1.5, -0.5, 0.0])
    state, y, rows = 0, 0.0, []
    for _ in range(steps):
        y = 0.5 * y + pushes[state] + rng.normal()
        state = int(rng.choice(3, p=moves[state]))
        rows.append((state, y))
    table = pd.DataFrame(
        {"s": np.array(list("abc"))[[row[0] for row in rows]], "y": [r[1] for r in rows]}
    )
    change, effects = np.array([1.0, 0.0, -1.0]), []
    effect = 0.0
    for _ in range(3):
        effect = 0.5 * effect + change @ pushes
        effects.append(effect)
        change = change @ moves
    return table, effects


NONE = np.zeros((2, 2), dtype=bool)
CHAIN = np.array([[[True, True], [False, True]]])


def test_numbers_alone_are_a_linear_system():
    table, now, past = mixed_series(5, 700, seed=3, kinds=(0,))
    now, past = now > 0, np.stack([past > 0, np.zeros_like(past, dtype=bool)])
    model = model_of(table, now, past)
    rows = lagged_rows([table.to_numpy(dtype=float)], 2)
    names = tuple(table)
    linear = fit(
        SampleMoments.from_rows(rows, lagged_names(names, 2)), np.concatenate([now, *past]), 5
    )
    assert np.argwhere(now).size
    for cause in names:
        for effect in names:
            for lag in range(4):
                if cause == effect and not lag:
                    continue
                mine = model.total_effect(cause, effect, lag=lag)
                other = linear.total_effect(cause, effect, lag=lag)
                np.testing.assert_allclose(mine.value, other.value, atol=1e-9)
                np.testing.assert_allclose(mine.standard_error, other.standard_error, rtol=1e-6)
                assert mine.adjustment_set == other.adjustment_set
    np.testing.assert_allclose(model.predict(table).to_numpy(), linear.predict(table), atol=1e-9)
    mine, other = model.fit_check().independencies, linear.fit_check().independencies
    pairs = [set(zip(one["first"], one["second"], strict=True)) for one in (mine, other)]
    assert pairs[0] == pairs[1]
    both = mine.merge(other, on=["first", "second"])
    np.testing.assert_allclose(both["estimate_x"], both["estimate_y"].abs(), atol=5e-3)
    assert len(model.edge_tests()) == now.sum() + past.sum()


@pytest.mark.slow
def test_effects_after_some_steps_are_those_of_the_chain():
    table, effects = chain(0, 40_000)
    model = model_of(table, NONE, CHAIN)
    for lag, expected in enumerate(effects, start=1):
        found = model.total_effect("s", "y", lag=lag, state="a", reference="c")
        assert found.value == pytest.approx(expected, abs=0.06)
        assert found.interval[0] < found.value < found.interval[1]
    after = model.total_effect("s", "s", lag=2, state="a", reference="c", outcome="b")
    assert after.value == pytest.approx(
        0.6 * 0.3 + 0.3 * 0.5 + 0.1 * 0.2 - 0.1 * 0.3 - 0.2 * 0.5 - 0.7 * 0.2, abs=0.02
    )
    assert model.total_effect("y", "s", lag=1, outcome="a").value == 0
    assert model.total_effect("s", "y", state="a", reference="c").value == 0


@pytest.mark.nightly
def test_intervals_hold_the_effects_and_errors_are_those_of_repeated_series():
    """Within a category residuals are correlated, which the errors must count."""
    held, values, errors = [], [], []
    for seed in range(200):
        table, effects = chain(1000 + seed)
        model = model_of(table, NONE, CHAIN)
        found = [
            model.total_effect("s", "y", lag=lag, state="a", reference="c") for lag in (1, 2, 3)
        ]
        held.append(
            [one.interval[0] <= e <= one.interval[1] for one, e in zip(found, effects, strict=True)]
        )
        values.append([one.value for one in found])
        errors.append([one.standard_error for one in found])
    assert (np.abs(np.mean(held, axis=0) - 0.95) < 0.05).all()
    ratio = np.mean(errors, axis=0) / np.std(values, axis=0)
    assert (np.abs(ratio - 1) < 0.15).all()


def test_effects_within_a_step_are_adjusted_for_the_past():
    rng = np.random.default_rng(2)
    n, x, s, y = 20_000, [0.0], [0], [0.0]
    for _ in range(n):
        s.append(int(rng.random() < 0.2 + 0.6 * s[-1]))
        x.append(0.7 * s[-2] + rng.normal())
        y.append(0.8 * (s[-1]) + 1.5 * s[-2] + rng.normal())
    table = pd.DataFrame({"s": np.where(s, "on", "off"), "y": y})
    now = np.array([[False, True], [False, False]])
    model = model_of(table, now, np.array([[[True, True], [False, False]]]))
    found = model.total_effect("s", "y", state="on", reference="off")
    assert found.value == pytest.approx(0.8, abs=0.06)
    assert found.adjustment_set == ("s[t-1]",)
    assert model.possible_effects("s", "y", state="on", reference="off")[0].value == pytest.approx(
        0.8, abs=0.06
    )
    contrasts = model.contrasts("s", "y", lag=1)
    assert contrasts["value"].abs().tolist() == pytest.approx([1.5 + 0.6 * 0.8], abs=0.06)


@pytest.mark.slow
def test_predictions_are_the_shares_of_the_chain():
    table, _ = chain(5, 30_000)
    model = model_of(table, NONE, CHAIN)
    shares = model.predict_proba(table, "s")
    expected = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]])
    before = np.array([list("abc").index(one) for one in table["s"]])[:-1]
    np.testing.assert_allclose(shares, expected[before], atol=0.02)
    predicted = model.predict(table)
    assert list(predicted) == ["s", "y"]
    assert len(predicted) == len(table) - 1
    assert predicted["s"].tolist() == [list("abc")[k] for k in expected[before].argmax(axis=1)]
    errors = table["y"].to_numpy()[1:] - predicted["y"].to_numpy()
    assert errors.var() == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_a_graph_without_an_edge_that_is_there_does_not_fit():
    table, _ = chain(6, 3000)
    right, wrong = (
        model_of(table, NONE, CHAIN),
        model_of(table, NONE, CHAIN & [[True, False], [True, True]]),
    )
    assert right.fit_check().rejected.empty
    first = wrong.fit_check().rejected.iloc[0]
    assert (first["first"], first["second"]) == ("s[t-1]", "y")
    assert not wrong.fit_check(chain(7, 3000)[0]).rejected.empty
    others = [right.fit_check(chain(seed)[0]) for seed in range(100)]
    # At the level 0.05 after Holm's correction.
    assert np.mean([not one.rejected.empty for one in others]) < 0.11


@pytest.mark.parametrize("functions", [1, 3])
def test_it_is_saved_without_loss(functions, tmp_path):
    table, now, past = mixed_series(4, 400, seed=1)
    model = model_of(table, now > 0, past[None] > 0, functions)
    model.save(tmp_path / "model.json")
    again = BlockModel.load(tmp_path / "model.json")
    assert again.variables == model.variables
    assert repr(again) == repr(model)
    pd.testing.assert_frame_equal(again.predict(table), model.predict(table))
    (tmp_path / "model.json").write_text('{"format": "flwr-causal blocks 1"}')
    with pytest.raises(DataError, match="damaged"):
        BlockModel.load(tmp_path / "model.json")


def test_what_is_not_defined_is_refused():
    table, _ = chain(0)
    model = model_of(table, NONE, CHAIN)
    for lag in (-1, 1.0, "1", None, True):
        with pytest.raises(ConfigError, match=f"lag is {lag!r}: expected 0, 1, 2"):
            model.total_effect("s", "y", lag=lag)
    with pytest.raises(ConfigError, match="'s' is a category: give state and reference"):
        model.total_effect("s", "y", lag=1)
    with pytest.raises(DataError, match="x"):
        model.total_effect("s", "x", lag=1)
    with pytest.raises(DataError, match="needs at least 2"):
        model.predict(table.iloc[:1])
    with pytest.raises(DataError, match="column 'y' is absent"):
        model.predict(table[["s"]])
    with pytest.raises(DataError, match="'y' is a number"):
        model.predict_proba(table, "y")
    open_class = model_of(table, np.array([[False, True], [True, False]]), CHAIN)
    with pytest.raises(ConfigError, match="need the directions of all edges within a step"):
        open_class.total_effect("s", "y", lag=1, state="a", reference="b")
    several = open_class.total_effect("s", "y", state="a", reference="b")
    assert len(several) == 2
    with pytest.raises(DataError, match="are not 2 and their 2 lags"):
        BlockModel(model.variables, model.moments, NONE, lagged=np.concatenate([CHAIN, CHAIN]))


def test_errors_after_a_step_are_those_of_least_squares():
    """The state that is asked for has no column: its error needs the covariances of the others."""
    table, _ = chain(8, 300)
    model = model_of(table, NONE, CHAIN)
    before, after = table.iloc[:-1], table.iloc[1:]
    for outcome in "abc":
        found = model.total_effect("s", "s", lag=1, state="a", reference="b", outcome=outcome)
        columns = np.column_stack([before["s"] == "a", before["s"] == "c", np.ones(299)])
        hit = (after["s"] == outcome).to_numpy(dtype=float)
        solved, residual, *_ = np.linalg.lstsq(columns.astype(float), hit, rcond=None)
        inverse = np.linalg.inv(columns.T.astype(float) @ columns)
        assert found.value == pytest.approx(solved[0])
        assert found.standard_error == pytest.approx(np.sqrt(residual[0] / 296 * inverse[0, 0]))


def test_tests_on_a_series_are_those_of_a_model_of_it():
    table, other = chain(9, 400)[0], chain(10, 300)[0]
    wrong = CHAIN & [[True, False], [True, True]]
    found = model_of(table, NONE, wrong).fit_check(other).independencies
    expected = model_of(other, NONE, wrong).fit_check().independencies
    assert found["first"].tolist() == expected["first"].tolist()
    np.testing.assert_allclose(found["statistic"], expected["statistic"], rtol=1e-6)


def test_probabilities_that_would_be_negative_are_zero():
    table = chain(11, 400)[0]
    model = model_of(table, NONE, np.ones((1, 2, 2), dtype=bool))
    far = table.head(5).assign(y=[-400.0, 400.0, -900.0, 900.0, 0.0])
    shares = model.predict_proba(far, "s")
    assert shares.min() == 0
    assert np.argmax(shares[0]) != np.argmax(shares[1])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
