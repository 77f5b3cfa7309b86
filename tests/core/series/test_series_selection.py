"""Held-out errors from moments against rows; the choices of order, penalty and method."""

import numpy as np
import pytest
from lagged_systems import moments_of, random_rows, simulate_series

from flwr_causal.core.linear.moments import merge
from flwr_causal.core.series.design import lagged_rows
from flwr_causal.core.series.regression import lasso, ridge
from flwr_causal.core.series.solution import (
    LaggedSelection,
    Recipe,
    Trial,
    default_penalties,
    one_step_error,
    select,
    standardized_folds,
)
from flwr_causal.errors import ConfigError, DataError

D = 4


def folds_of(rows, sizes=(20, 35, 50)):
    return np.split(rows, np.cumsum(sizes)[:-1])


def var_folds(seed, lagged, now=None, d=D, parties=3, order=3):
    now = np.zeros((d, d)) if now is None else now
    return [
        moments_of(lagged_rows([simulate_series(1000 * seed + k, 150, now, *lagged)], order), d)
        for k in range(parties)
    ]


def test_one_step_error_is_that_of_the_rows():
    train, held_out = random_rows(0, 60, D, 2), random_rows(1, 25, D, 2) + 0.3
    weights = np.random.default_rng(0).standard_normal((3 * D, D))
    weights[:D] = np.triu(weights[:D], 1)
    intercept = train.mean(axis=0)[:D] - train.mean(axis=0) @ weights
    expected = ((held_out[:, :D] - held_out @ weights - intercept) ** 2).mean()
    error = one_step_error(weights, moments_of(train, D), moments_of(held_out, D))
    assert error == pytest.approx(expected)


def test_table_is_leave_one_fold_out_on_common_rows():
    rows = random_rows(2, 105, D, 3)
    parts = folds_of(rows)
    penalties = {"ridge": (0.3, 0.01), "lasso": (0.1, 0.02)}
    selection = select([moments_of(p, D) for p in parts], D, orders=(1, 3), penalties=penalties)
    fits = {"ridge": ridge, "lasso": lasso}
    expected = [
        (order, method, penalty)
        for order in (1, 3)
        for method in ("ridge", "lasso")
        for penalty in penalties[method]
    ]
    assert [tuple(trial.recipe) for trial in selection.table] == expected
    for (order, method, penalty), error in selection.table:
        m = D * (1 + order)  # the same rows for both orders, fewer columns
        total = 0.0
        for k, part in enumerate(parts):
            train = np.vstack([other for i, other in enumerate(parts) if i != k])[:, :m]
            weights = fits[method](moments_of(train, D), D, penalty)
            bias = train.mean(axis=0)[:D] - train.mean(axis=0) @ weights
            total += ((part[:, :D] - part[:, :m] @ weights - bias) ** 2).sum()
        assert error == pytest.approx(total / rows[:, :D].size, rel=1e-5)


@pytest.mark.slow
def test_order_of_the_folds_does_not_matter():
    folds = [moments_of(part, D) for part in folds_of(random_rows(3, 105, D, 2))]
    one = select(folds, D, methods=("ridge", "lasso", "dynotears"))
    other = select(folds[::-1], D, methods=("ridge", "lasso", "dynotears"))
    for method in ("ridge", "lasso", "dynotears"):
        assert one.best(method).recipe[:2] == other.best(method).recipe[:2]
        assert one.best(method).recipe.penalty == pytest.approx(other.best(method).recipe.penalty)
    for first, second in zip(one.table, other.table, strict=True):
        # the instantaneous problem is not convex, and its solver stops at a tolerance
        rel = 1e-3 if first.recipe.method == "dynotears" else 1e-9
        assert first.error == pytest.approx(second.error, rel=rel)


def test_held_out_error_finds_the_order():
    rng = np.random.default_rng(0)
    first = np.diag([0.3, 0.2, 0.1, 0.3])
    second = np.where(np.eye(D)[rng.permutation(D)] > 0, 0.5, 0.0)
    none = np.zeros((D, D))
    for seed in range(3):
        two = select(var_folds(seed, [first, second]), D)
        assert {two.best(method).recipe.order for method in ("ridge", "lasso")} == {2}
        three = select(var_folds(seed, [first, none, second]), D)
        assert three.best().recipe.order == 3


def test_many_weak_effects_want_ridge_and_few_strong_ones_lasso():
    d = 12
    rng = np.random.default_rng(1)
    few = np.where(np.eye(d)[rng.permutation(d)] > 0, 0.5, 0.0)
    many = rng.choice([-0.06, 0.06], (d, d))
    for lagged, method in ((few, "lasso"), (many, "ridge")):
        selection = select(var_folds(5, [lagged], d=d, order=1), d)
        assert selection.best().recipe.method == method


@pytest.mark.slow
def test_instantaneous_effects_are_trusted_where_there_are_any():
    now = np.triu(np.full((D, D), 0.4), 1)
    lag = np.diag([0.5, 0.4, 0.5, 0.3])
    methods = ("ridge", "lasso", "dynotears")
    for seed in range(3):
        present = select(var_folds(seed, [lag], now, order=1), D, methods=methods)
        assert present.trusts_instantaneous()
        assert present.instantaneous_gain > 0.1
        absent = select(var_folds(seed, [lag], order=1), D, methods=methods)
        assert not absent.trusts_instantaneous()
        assert absent.instantaneous_gain < 0.01


def test_gain_is_the_share_of_the_least_lagged_error():
    table = (
        Trial(Recipe(1, "ridge", 1.0), 0.8),
        Trial(Recipe(2, "lasso", 1.0), 0.5),
        Trial(Recipe(1, "dynotears", 0.2), 0.45),
        Trial(Recipe(1, "dynotears", 0.1), 0.48),
    )
    assert LaggedSelection(table).instantaneous_gain == pytest.approx(0.1)
    with pytest.raises(ConfigError, match="no candidate with lagged effects alone"):
        _ = LaggedSelection(table[2:]).instantaneous_gain
    with pytest.raises(ConfigError, match="dynotears"):
        _ = LaggedSelection(table[:2]).instantaneous_gain


def test_of_equal_errors_the_simpler_wins():
    recipes = [Recipe(2, "lasso", 0.9), Recipe(1, "lasso", 0.1), Recipe(1, "lasso", 0.2)]
    selection = LaggedSelection(tuple(Trial(recipe, 1.0) for recipe in recipes))
    assert selection.best().recipe == recipes[2]
    with pytest.raises(ConfigError, match="no candidate of method ridge"):
        selection.best("ridge")


def test_units_of_the_variables_do_not_matter_when_standardised():
    rows = random_rows(6, 105, D, 2)
    units = np.tile([1.0, 100.0, 0.01, 3.0], 3)
    one = standardized_folds([moments_of(p, D) for p in folds_of(rows)])
    other = standardized_folds([moments_of(p, D) for p in folds_of(rows * units)])
    np.testing.assert_allclose(merge(one).variances, 1.0)
    np.testing.assert_allclose(merge(other).second, merge(one).second)
    for first, second in zip(select(one, D).table, select(other, D).table, strict=True):
        assert first.error == pytest.approx(second.error, rel=1e-4)


def test_default_penalties_follow_the_unit_of_all_variables():
    moments = moments_of(random_rows(7, 100, D, 1), D)
    large = default_penalties(moments.scaled(0.1), D)
    for method, values in default_penalties(moments, D).items():
        np.testing.assert_allclose(large[method], 100.0 * np.array(values))
        assert list(values) == sorted(values)


def test_default_penalties_shrink_with_the_rows():
    rows = random_rows(7, 400, D, 1)
    few, many = default_penalties(moments_of(rows[:100], D), D), moments_of(rows, D)
    unit = many.variances[:D].mean() / moments_of(rows[:100], D).variances[:D].mean()
    ratios = {"ridge": 0.25, "lasso": 0.5, "dynotears": 1.0}
    for method, values in default_penalties(many, D).items():
        np.testing.assert_allclose(values, np.array(few[method]) * ratios[method] * unit)


@pytest.mark.slow
def test_masks_reach_every_method_and_order():
    folds = [moments_of(part, D) for part in folds_of(random_rows(8, 105, D, 2))]
    allowed = np.ones((3 * D, D), dtype=bool)
    allowed[D:, 0] = allowed[:D, 0] = False
    required = np.zeros_like(allowed)
    required[D + 1, 2] = required[0, 1] = True
    methods = ("ridge", "lasso", "dynotears")
    free = select(folds, D, methods=methods)
    bound = select(folds, D, methods=methods, allowed=allowed, required=required)
    assert all(a.error != b.error for a, b in zip(free.table, bound.table, strict=True))


def test_bad_input():
    folds = [moments_of(part, D) for part in folds_of(random_rows(11, 105, D, 1))]
    with pytest.raises(ConfigError, match="at least 2 folds"):
        select(folds[:1], D)
    with pytest.raises(ConfigError, match=r"unknown methods \['lars'\]"):
        select(folds, D, methods=("lars",))
    with pytest.raises(ConfigError, match="no candidate"):
        select(folds, D, orders=())
    with pytest.raises(ConfigError, match="no candidate"):
        select(folds, D, methods=())
    with pytest.raises(ConfigError, match="from 1 to the 1 lags"):
        select(folds, D, orders=(2,))
    with pytest.raises(DataError, match="not those of 3 variables"):
        select(folds, 3)
