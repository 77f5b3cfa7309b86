"""Whether probabilities of states can be linear in numbers, and the warning of a run."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from flwr_causal import Knowledge, simulate
from flwr_causal.core.blocks.design import column_names, design
from flwr_causal.core.blocks.linear_probabilities import curved_probabilities
from flwr_causal.core.linear.moments import SampleMoments


def logistic(constant, slope, n=1500, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = rng.random(n) < expit(constant + slope * x)
    return pd.DataFrame({"x": 5 + 3 * x, "y": np.where(y, "yes", "no")})


def bent(table, edges):
    variables, rows = design(table)
    moments = SampleMoments.from_rows(rows, column_names(variables))
    return curved_probabilities(variables, moments, np.array(edges, dtype=bool))


X_TO_Y = [[0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("constant", "slope", "expected"),
    [(0, 0.3, {}), (0, 0.6, {}), (0, 1.5, {1: [0]}), (-3, 1.0, {1: [0]}), (-2, 0.3, {})],
)
def test_probabilities_bend_where_the_linear_function_leaves_0_to_1(constant, slope, expected):
    """By hand: the share's distance from 0 or 1, in deviations of the linear part."""
    table = logistic(constant, slope)
    assert bent(table, X_TO_Y) == expected
    y = (table["y"] == "yes").to_numpy(dtype=float)
    x = (table["x"] - table["x"].mean()) / table["x"].std(ddof=0)
    distance = min(y.mean(), 1 - y.mean()) / abs((x * y).mean())
    assert (distance < 2.5) == bool(expected)
    assert bent(table, np.zeros((2, 2))) == bent(table, np.transpose(X_TO_Y)) == {}


def test_what_categories_alone_cause_is_linear():
    rng = np.random.default_rng(1)
    cause = rng.integers(0, 3, 2000)
    effect = rng.random(2000) < np.array([0.001, 0.5, 0.999])[cause]
    table = pd.DataFrame({"c": np.array(list("abc"))[cause], "e": np.where(effect, "yes", "no")})
    assert bent(table, X_TO_Y) == {}
    # A number beside it that does nothing changes nothing.
    with_number = table.assign(x=rng.normal(size=2000))
    assert bent(with_number, [[0, 1, 0], [0, 0, 0], [0, 1, 0]]) == {}


def test_the_last_state_counts():
    """It has no column."""
    table = logistic(3, 1.5)
    assert bent(table, X_TO_Y) == {1: [0]}
    assert bent(table.assign(y=table["y"].map({"yes": "a", "no": "b"})), X_TO_Y) == {1: [0]}


def test_a_run_warns_unless_effects_are_curved_or_there_are_none():
    table = logistic(0, 2.5, n=1200)
    parties = [table[:500], table[500:800], table[800:]]
    known = Knowledge(tiers=[["x"], ["y"]])
    for options in ({}, {"secure_aggregation": True}):
        run = simulate("moments", parties, text_columns="keep", knowledge=known, **options)
        (said,) = [one for one in run.warnings if "numbers on categories may be wrong" in one]
        assert "x on y." in said
        assert "model='curved'" in said
    curved = simulate("moments", parties, text_columns="keep", knowledge=known, model="curved")
    assert not any("numbers on categories may be wrong" in one for one in curved.warnings)
    # What the warning says: the interval misses the change, that of curved effects does not.
    true = expit(2.5) - expit(-2.5)
    asked = {"state": 8.0, "reference": 2.0, "outcome": "yes"}
    assert run.total_effect("x", "y", **asked).interval[1] < true
    assert abs(curved.total_effect("x", "y", **asked).value - true) < 0.06


def test_series_warn_too():
    rng = np.random.default_rng(3)
    x = rng.normal(size=801)
    y = rng.random(800) < expit(2.5 * x[:-1])
    table = pd.DataFrame({"x": x[1:], "y": np.where(y, "yes", "no")})
    run = simulate("moments", [table[:400], table[400:]], text_columns="keep", order=1)
    assert any("x[t-1] on y" in one for one in run.warnings)
