"""Levels that differ by the parties' reports: ``center="auto"`` of methods that train on rows."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.simulations import simulate

METHODS = ["lingam", "notears-admm"]


def tables(size, rows=(80, 120, 100), seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for n in rows:
        own = rng.laplace(size=(n, 3)) + size * rng.normal(size=3)
        own[:, 2] += 0.9 * own[:, 0]
        found.append(pd.DataFrame(own, columns=["a", "b", "c"]))
    return found


def assumed(run):
    return [one for one in run.warnings if "levels of the parties differ" in one]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_levels_that_differ_are_taken_out(method, secure):
    run = simulate(method, tables(2.0), secure_aggregation=secure)
    stated = simulate(method, tables(2.0), center="party", secure_aggregation=secure)
    np.testing.assert_allclose(run.graph.weights, stated.graph.weights, atol=1e-9)
    (said,) = assumed(run)
    assert said.startswith("Assumed center='party'")
    assert all(name in said for name in ("'a' by", "'b' by"))
    assert run.config["assumed"] == {"center": "party"}
    assert run.rounds == stated.rounds


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_one_level_is_that_of_all_rows(method, secure):
    run = simulate(method, tables(0.0), secure_aggregation=secure)
    stated = simulate(method, tables(0.0), center="global", secure_aggregation=secure)
    np.testing.assert_array_equal(run.graph.weights, stated.graph.weights)
    assert not assumed(run)


def test_sums_of_all_parties_tell_the_same_as_reports():
    plain, secure = (
        assumed(simulate("lingam", tables(1.0, seed=3), secure_aggregation=one))
        for one in (False, True)
    )
    assert plain == secure


def test_groups_tell_it_too():
    parties = [*tables(2.0), *tables(2.0, seed=1)]
    run = simulate("lingam", parties, secure_aggregation=True, groups=2, min_parties=3)
    assert assumed(run)


def test_columns_between_parties_only_leave_one_mean():
    sites = [one.assign(beds=10.0 * k**2) for k, one in enumerate(tables(2.0))]
    assert not assumed(simulate("lingam", sites))


def test_a_stated_level_is_kept():
    assert not assumed(simulate("notears-admm", tables(2.0), center="global"))
    # The paper's centring is its own.
    assert not assumed(simulate("notears-admm", tables(2.0), variant="paper"))


# -- what replicates draw --------------------------------------------------------------------------


def spreads(factor, count=4):
    """Alike parties, but for the spread of a column at the last one."""
    found = tables(0.0, rows=(200,) * count)
    return [*found[:-1], found[-1].assign(b=factor * found[-1]["b"])]


def drawn(parties, **options):
    run = simulate("moments", parties, replicates=2, **options)
    return run.config.get("assumed", {}).get("resample", "rows"), run


def test_replicates_are_of_some_parties_where_spreads_differ():
    found, run = drawn(spreads(3.0))
    assert found == "parties"
    (said,) = [one for one in run.warnings if "resample='parties'" in one]
    assert "'b' at party 3" in said
    stated = simulate("moments", spreads(3.0), replicates=2, resample="parties")
    np.testing.assert_array_equal(run.graph.confidence, stated.graph.confidence)
    assert drawn(spreads(1.0))[0] == "rows"


@pytest.mark.parametrize(
    "options",
    [{"resample": "rows"}, {"secure_aggregation": True}, {"replicates": 0}],
    ids=str,
)
def test_replicates_are_of_rows_where_that_is_stated_or_parties_cannot_be_drawn(options):
    run = simulate("moments", spreads(3.0), **{"replicates": 2, **options})
    assert "resample" not in run.config.get("assumed", {})


def test_few_parties_are_not_drawn():
    assert drawn(spreads(3.0, count=3))[0] == "rows"


# -- series ----------------------------------------------------------------------------------------


def panels(level, seed=0):
    """Three parties with six series each of u -> v, with levels of their own."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(3):
        own = []
        for k in range(6):
            x, drift = np.zeros((90, 2)), level * rng.normal(size=2)
            for t in range(1, 90):
                x[t] = 0.5 * x[t - 1] + drift + rng.normal(size=2)
                x[t, 1] += 0.6 * x[t, 0]
            own.append(pd.DataFrame(x[30:], columns=["u", "v"]).assign(patient=k))
        found.append(pd.concat(own))
    return found


SERIES = {"order": 1, "series_column": "patient"}


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("method", ["2dbn", "lingam"])
def test_levels_of_series_are_taken_out(method, secure):
    options = {**SERIES, "secure_aggregation": secure}
    run = simulate(method, panels(1.0), **options)
    assert run.config["assumed"] == {"center": "series"}
    (said,) = [one for one in run.warnings if "levels of the series differ" in one]
    assert said.startswith("Assumed center='series'")
    stated = simulate(method, panels(1.0), center="series", **options)
    np.testing.assert_allclose(run.graph.lagged, stated.graph.lagged, atol=1e-9)
    alike = simulate(method, panels(0.0), **options)
    assert "assumed" not in alike.config or "center" not in alike.config["assumed"]


def test_series_that_wander_have_one_level():
    """Means of slow series differ; given their lags they do not."""
    rng, found = np.random.default_rng(1), []
    for _ in range(2):
        own = []
        for k in range(6):
            x = np.zeros((150, 2))
            for t in range(1, 150):
                x[t] = 0.95 * x[t - 1] + rng.normal(size=2)
            own.append(pd.DataFrame(x[50:], columns=["u", "v"]).assign(patient=k))
        found.append(pd.concat(own))
    assert "center" not in simulate("2dbn", found, **SERIES).config.get("assumed", {})


def test_a_papers_series_keep_their_mean():
    run = simulate("2dbn", panels(1.0), variant="paper", max_rounds=5, **SERIES)
    assert "center" not in run.config.get("assumed", {})
