"""Standard errors by party, against statsmodels."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from small_graphs import matrix

from flwr_causal.core.linear.moments import SampleMoments, merge
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
    parties = {f"party {k}": SampleMoments.from_rows(part, names) for k, part in enumerate(parts)}
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


@pytest.mark.slow
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


def test_each_party_is_held_out_in_turn():
    parts = tables(np.random.default_rng(7), spread=0.1)
    model = fitted(parts)
    check = model.fit_check()
    assert check.held_out_by == "each party in turn"
    total = 0.0
    for k, part in enumerate(parts):
        others = merge(SampleMoments.from_rows(own, "xyz") for i, own in enumerate(parts) if i != k)
        total += fit(others, EDGES).log_likelihood(part).sum()
    expected = total / sum(len(part) for part in parts)
    np.testing.assert_allclose(check.held_out_log_likelihood, expected)
    assert replace(model, party_moments=None).fit_check().held_out_log_likelihood is None


def test_errors_by_party_need_rows_without_missing_cells():
    model = fitted(tables(np.random.default_rng(3)))
    parts = {
        name: replace(own, together=np.full((3, 3), 20.0))
        for name, own in model.party_moments.items()
    }
    expected = replace(model, party_moments=parts)
    with pytest.raises(ConfigError, match="rows without missing cells"):
        expected.total_effect("x", "z", by_party=True)
    assert expected.can("disagreement")
