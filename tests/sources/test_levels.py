"""Levels of parties and series: taken out of the sums where they differ, and said."""

import numpy as np
import pandas as pd
import pytest
from pooled import pooled

from flwr_causal import Knowledge
from flwr_causal.core.linear.moments import mean_and_second
from flwr_causal.errors import DataError
from flwr_causal.simulations import simulate

NAMES = ["a", "b", "c"]


def tables(seed=0, size=1.5, rows=(120, 60, 90, 150), d=3):
    """Columns that do not act on each other, but for a on c; levels of parties differ."""
    rng = np.random.default_rng(seed)
    found = []
    for n in rows:
        own = rng.normal(size=(n, d)) + size * rng.normal(size=d)
        own[:, 2] += 0.8 * own[:, 0]
        found.append(pd.DataFrame(own, columns=NAMES))
    return found


SHIFTED, ALIKE = tables(), tables(size=0.0)


def within(parts):
    """The central second moments about the mean of each party, with its degrees of freedom."""
    centred = np.concatenate([np.asarray(one) - np.asarray(one).mean(axis=0) for one in parts])
    return centred.T @ centred / (len(centred) - len(parts) + 1)


@pytest.mark.parametrize("secure", [False, True])
def test_levels_are_taken_out_where_they_differ(secure):
    found = pooled(SHIFTED, secure_aggregation=secure)
    rows = np.concatenate(SHIFTED)
    np.testing.assert_allclose(found.moments.second, within(SHIFTED), rtol=1e-9)
    np.testing.assert_allclose(found.moments.mean, 0, atol=1e-9)
    assert (found.moments.n, found.moments.units) == (len(rows) - 3, 4)
    assert found.num_rows == len(rows)
    (said,) = [one for one in found.warnings if "levels" in one]
    assert "The levels of the parties differ" in said
    assert all(f"{name!r} by" in said for name in NAMES)
    stated = pooled(SHIFTED, center="party", secure_aggregation=secure)
    np.testing.assert_allclose(stated.values, found.values)
    assert not any("levels" in one for one in stated.warnings)


def test_without_differences_the_sums_are_those_about_one_mean():
    found, about_one = pooled(ALIKE), pooled(ALIKE, center="global")
    np.testing.assert_allclose(found.values, about_one.values, atol=1e-12)
    assert (found.moments.units, found.moments.n) == (1, 420)
    assert found.warnings == about_one.warnings
    assert not any("levels" in one for one in pooled(SHIFTED, center="global").warnings)


def test_standard_deviations_are_those_within_parties():
    found = pooled(SHIFTED, standardize=True)
    np.testing.assert_allclose(np.diagonal(found.moments.second), 1)
    np.testing.assert_allclose(found.design.scale**2, np.diagonal(within(SHIFTED)))
    np.testing.assert_allclose(found.agreement.variance, np.diagonal(within(SHIFTED)))


def test_states_and_functions_have_levels_too():
    rng = np.random.default_rng(1)
    parts = [
        one.assign(k=np.where(rng.random(len(one)) < share, "u", "v"))
        for one, share in zip(ALIKE, (0.1, 0.4, 0.6, 0.9), strict=True)
    ]
    found = pooled(parts, text_columns="keep")
    z = [
        np.column_stack([(one[NAMES] - agreed) / scale, one["k"] == "u"])
        for agreed, scale in [(np.concatenate(ALIKE).mean(0), np.concatenate(ALIKE).std(0))]
        for one in parts
    ]
    np.testing.assert_allclose(found.moments.second, within(z), rtol=1e-9)
    np.testing.assert_allclose(found.moments.mean, np.concatenate(z).mean(axis=0), atol=1e-9)
    (said,) = [one for one in found.warnings if "levels" in one]
    assert "'k' by" in said
    assert "'a' by" not in said
    curved = pooled(SHIFTED, model="curved")
    assert curved.moments.units == 4


def test_missing_cells_are_expected_by_each_partys_level():
    """As of rows with an indicator of each party, which is always seen."""
    rng = np.random.default_rng(2)
    gaps = [one.mask(rng.random(one.shape) < 0.2) for one in SHIFTED]
    found = pooled(gaps, missing_values="em")
    assert found.moments.units == 4
    indicators = [
        one.assign(**{f"p{k}": float(k == j) for k in range(1, 4)}) for j, one in enumerate(gaps)
    ]
    joint = pooled(indicators, missing_values="em", center="global").moments
    assert joint.units == 1
    given = joint.second[:3, 3:] @ np.linalg.solve(joint.second[3:, 3:], joint.second[3:, :3])
    # In units of the columns.
    np.testing.assert_allclose(
        found.moments.correlations,
        _correlations(joint.second[:3, :3] - given),
        atol=2e-3,
    )
    rows = found.moments.n
    assert rows < joint.n
    secure = pooled(gaps, missing_values="em", secure_aggregation=True)
    np.testing.assert_allclose(secure.moments.second, found.moments.second, atol=1e-6)
    stated = pooled(gaps, missing_values="em", center="party")
    np.testing.assert_allclose(stated.moments.second, found.moments.second)


def test_without_gaps_expected_sums_are_those_of_complete_rows():
    found, complete = pooled(SHIFTED, missing_values="em"), pooled(SHIFTED)
    np.testing.assert_allclose(found.moments.second, complete.moments.second, rtol=1e-6)
    assert found.moments.n == complete.moments.n


def _correlations(second):
    scale = np.sqrt(np.diagonal(second))
    return second / np.outer(scale, scale)


def series(level, seed=0):
    rng = np.random.default_rng(seed)
    parties = []
    for _ in range(2):
        own = []
        for k in range(5):
            x, drift = np.zeros((80, 2)), level * rng.normal(size=2)
            for t in range(1, 80):
                x[t] = 0.4 * x[t - 1] + drift + rng.normal(size=2)
            own.append(pd.DataFrame(x[20:], columns=["u", "v"]).assign(patient=k))
        parties.append(pd.concat(own))
    return parties


def test_each_series_has_a_level():
    moved, options = series(1.0), {"order": 1, "series_column": "patient"}
    found = pooled(moved, **options)
    each = [own for one in moved for _, own in one.groupby("patient")]
    z = [np.hstack([own[["u", "v"]][1:], own[["u", "v"]][:-1]]) for own in each]
    np.testing.assert_allclose(found.moments.second, within(z), rtol=1e-9)
    assert found.moments.units == 10
    assert any("levels of the series differ" in one for one in found.warnings)
    assert pooled(series(0.0), **options).moments.units == 1


def test_a_replicate_takes_over_the_decision():
    assert pooled(SHIFTED, replicates=1, replicate=1).moments.units == 4
    assert pooled(ALIKE, replicates=1, replicate=1).moments.units == 1
    found = pooled(series(1.0), order=1, series_column="patient", replicates=1, replicate=1)
    assert found.moments.units == 10


def test_the_graph_and_effects_are_those_within_parties():
    run = simulate("moments", SHIFTED)
    assert [(one, two) for one, two, _ in run.graph.edges()] in ([("a", "c")], [("c", "a")])
    known = Knowledge(tiers=[["a"], ["c"]])
    effect = simulate("moments", SHIFTED, knowledge=known).total_effect("a", "c")
    both = np.concatenate([one[["a", "c"]] - one[["a", "c"]].mean() for one in SHIFTED])
    np.testing.assert_allclose(effect.value, both[:, 0] @ both[:, 1] / (both[:, 0] @ both[:, 0]))
    left = both[:, 1] - effect.value * both[:, 0]
    free = len(both) - 4 - 1
    error = np.sqrt(left @ left / free / (both[:, 0] @ both[:, 0]))
    np.testing.assert_allclose(effect.standard_error, error, rtol=1e-6)


def test_the_order_of_parties_does_not_matter():
    found = pooled(SHIFTED), pooled(SHIFTED[::-1])
    for one, other in zip(*(mean_and_second(own.values[0]) for own in found), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_a_column_that_varies_between_parties_only():
    sites = [one.assign(beds=100.0 * k**2) for k, one in enumerate(SHIFTED)]
    found = pooled(sites)
    assert found.moments.units == 1
    (said,) = [one for one in found.warnings if "levels" in one]
    assert "'beds'" in said
    assert "leave these columns out" in said
    with pytest.raises(DataError, match="'beds' does not vary within any party"):
        pooled(sites, center="party")
    # The names of the parties explain all levels.
    named = [one.assign(clinic=f"clinic {k}") for k, one in enumerate(SHIFTED)]
    found = pooled(named, text_columns="keep")
    assert found.moments.units == 1
    assert not any("levels of" in one for one in found.warnings)
