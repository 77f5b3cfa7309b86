"""Standard errors by party, and what is different at one party, against statsmodels."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from small_graphs import matrix

from flwr_causal.core.linear.moments import Moments, merge
from flwr_causal.core.linear.parties import disagreement
from flwr_causal.core.systems.linear import fit
from flwr_causal.errors import ConfigError

EDGES = matrix(3, (0, 1), (1, 2), (0, 2))


def tables(rng, sizes=(40, 25, 60, 30, 45), spread=0.5):
    """Parties that differ in the effects on z, and in level."""
    found = []
    for n in sizes:
        x = rng.normal(size=n) + rng.normal()
        y = 0.8 * x + rng.normal(size=n)
        own = 1 + spread * rng.normal(size=2)
        found.append(np.column_stack([x, y, own[0] * x - own[1] * y + rng.normal(size=n)]))
    return found


def fitted(parts, names="xyz", edges=EDGES):
    parties = {f"party {k}": Moments.from_rows(part, names) for k, part in enumerate(parts)}
    return replace(fit(merge(parties.values()), edges), party_moments=parties)


def test_errors_by_party_are_those_of_clustered_regressions():
    parts = tables(np.random.default_rng(0))
    rows, clusters = np.concatenate(parts), np.repeat(range(5), [len(part) for part in parts])
    found = fitted(parts).total_effect("y", "z", by_party=True)
    theirs = sm.OLS(rows[:, 2], sm.add_constant(rows[:, [1, 0]])).fit(
        cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True
    )
    np.testing.assert_allclose(found.value, theirs.params[1])
    np.testing.assert_allclose(found.standard_error, theirs.bse[1])
    np.testing.assert_allclose(found.interval, theirs.conf_int()[1])


def test_errors_along_paths_are_those_of_the_regression_where_both_are_known():
    """Of a chain the path has one edge: both are the same regression."""
    chain = matrix(3, (0, 1), (1, 2))
    parts = tables(np.random.default_rng(1))
    model = fitted(parts, edges=chain)
    second = np.array(model.sample_moments.second)
    second[0, 2] = second[2, 0] = np.nan
    unknown = replace(model, sample_moments=replace(model.sample_moments, second=second))
    found = unknown.total_effect("x", "z", by_party=True)
    assert found.adjustment_set is None
    # The delta method on what each party adds to the two coefficients.
    rows = np.concatenate(parts)
    clusters = np.repeat(range(5), [len(part) for part in parts])
    adds = []
    for cause, effect in ((0, 1), (1, 2)):
        theirs = sm.OLS(rows[:, effect], sm.add_constant(rows[:, cause])).fit()
        centred = rows[:, cause] - rows[:, cause].mean()
        influence = centred * theirs.resid / (centred**2).sum()
        adds.append((theirs.params[1], np.bincount(clusters, influence)))
    (one, of_one), (two, of_two) = adds
    terms = two * of_one + one * of_two
    n = len(rows)
    expected = np.sqrt((terms**2).sum() * 5 / 4 * (n - 1) / (n - 2))
    np.testing.assert_allclose(found.value, one * two)
    np.testing.assert_allclose(found.standard_error, expected)


def test_intervals_by_party_cover_the_mean_effect_where_parties_differ():
    """The classical interval does not; 12 parties with effects about 1."""
    rng = np.random.default_rng(2)
    hits = np.zeros((150, 2), dtype=bool)
    for one in hits:
        model = fitted(tables(rng, sizes=[40] * 12, spread=0.3))
        for place, by_party in enumerate((False, True)):
            low, high = model.total_effect("y", "z", by_party=by_party).interval
            one[place] = low <= -1 <= high
    classical, clustered = hits.mean(axis=0)
    assert classical < 0.75
    assert 0.9 < clustered <= 0.99


def test_without_each_partys_moments_there_are_no_errors_by_party():
    model = fitted(tables(np.random.default_rng(3)))
    with pytest.raises(ConfigError, match="each of two parties or more"):
        replace(model, party_moments=None).total_effect("x", "z", by_party=True)


def test_the_party_that_differs_is_the_first_row():
    rng = np.random.default_rng(4)
    parts = tables(rng, sizes=(200, 150, 300), spread=0)
    parts[1][:, 2] += 3 * parts[1][:, 1]  # the sign of y -> z is the other one
    model = fitted(parts)
    table = disagreement(model.party_moments, EDGES)
    assert len(table) == 3 * 3 + 3 * 3 * 2
    first = table.iloc[0]
    assert (first["party"], first["what"], first["cause"], first["effect"]) == (
        "party 1",
        "effect",
        "y",
        "z",
    )
    assert first["supports"] == "opposite"
    assert first["corrected"] < 1e-6
    own = sm.OLS(parts[1][:, 2], sm.add_constant(parts[1][:, :2])).fit()
    rest = np.concatenate([parts[0], parts[2]])
    others = sm.OLS(rest[:, 2], sm.add_constant(rest[:, :2])).fit()
    np.testing.assert_allclose([first["value"], first["others"]], [own.params[2], others.params[2]])
    z = (own.params[2] - others.params[2]) / np.hypot(own.bse[2], others.bse[2])
    np.testing.assert_allclose(first["z"], z)
    mean = table[(table["what"] == "mean") & (table["party"] == "party 0")].set_index("effect")
    np.testing.assert_allclose(mean.loc["x", "value"], parts[0][:, 0].mean())
    np.testing.assert_allclose(mean.loc["x", "others"], np.concatenate(parts[1:])[:, 0].mean())
    kinds = table[(table["what"] == "effect") & (table["party"] == "party 0")]
    assert (kinds["supports"] == "yes").all()


@pytest.mark.nightly
def test_tests_of_parties_are_calibrated():
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(150):
        rows = rng.normal(size=(400, 3)) @ np.linalg.inv(np.eye(3) - 0.5 * EDGES)
        model = fitted(np.array_split(rows, 4))
        wrong += (disagreement(model.party_moments, EDGES)["corrected"] < 0.05).any()
    assert 0 < wrong < 17


def test_parties_of_few_rows_have_no_effects_of_their_own():
    parts = tables(np.random.default_rng(6), sizes=(40, 3, 50))
    table = disagreement(fitted(parts).party_moments, EDGES)
    effects = table[table["what"] == "effect"]
    assert set(effects["party"]) == {"party 0", "party 1", "party 2"}
    assert list(effects[effects["party"] == "party 1"]["effect"]) == ["y"]


def test_each_party_is_held_out_in_turn():
    parts = tables(np.random.default_rng(7), spread=0.1)
    model = fitted(parts)
    check = model.fit_check()
    assert check.held_out_by == "each party in turn"
    total = 0.0
    for k, part in enumerate(parts):
        others = merge(Moments.from_rows(own, "xyz") for i, own in enumerate(parts) if i != k)
        total += fit(others, EDGES).log_likelihood(part).sum()
    expected = total / sum(len(part) for part in parts)
    np.testing.assert_allclose(check.held_out_log_likelihood, expected)
    assert replace(model, party_moments=None).fit_check().held_out_log_likelihood is None


def test_a_column_that_varies_at_one_party_alone_is_not_compared_with_errors_of_rounding():
    rng = np.random.default_rng(4)
    parts = [rng.normal(size=(60, 3)), rng.normal(size=(400, 3))]
    parts[0][:, 2], parts[1][:, 2] = np.arange(60) == 3, 0.0
    model = fitted(parts)
    table = model.disagreement()
    assert set(table["effect"]) == {"x", "y"}
    assert model.fit_check().held_out_log_likelihood is None
