"""G tests of networks: another library's, calibration, rejection; counts that a network keeps."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency
from small_graphs import matrix

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork, fit
from flwr_causal.core.discrete.discrete import as_discrete
from flwr_causal.core.discrete.independence import likelihood_ratio
from flwr_causal.core.discrete.probabilities import held_out_log_likelihood
from flwr_causal.errors import ConfigError

NAMES = ("a", "b", "c", "d")


def rows(rng, n, direct=0.0):
    a, b = rng.integers(0, 2, n), rng.integers(0, 3, n)
    c = (a + (b > 1) + (rng.random(n) < 0.3)) % 2
    d = np.where(rng.random(n) < 0.7, c, rng.integers(0, 2, n))
    d = np.where(rng.random(n) < direct, a, d)
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": d}).astype(str)


EDGES = matrix(4, (0, 2), (1, 2), (2, 3))


def test_g_is_the_sum_over_strata():
    table = np.random.default_rng(0).integers(1, 30, (4, 2, 3))
    statistic, degrees = likelihood_ratio(table)
    theirs = [chi2_contingency(one, correction=False, lambda_="log-likelihood") for one in table]
    assert degrees == sum(one.dof for one in theirs) == 8
    np.testing.assert_allclose(statistic, sum(one.statistic for one in theirs))
    table[1, :, 2] = table[2] = 0  # a state that does not occur, a stratum without rows
    assert likelihood_ratio(table)[1] == 5


@pytest.mark.nightly
def test_tests_are_calibrated_and_find_a_missing_edge():
    rng = np.random.default_rng(1)
    wrong = found = 0
    for _ in range(100):
        table = as_discrete(rows(rng, 400), NAMES)
        check = fit(table, EDGES).fit_check(rows(rng, 400))
        assert len(check.independencies) == 3
        wrong += len(check.rejected) > 0
        rejected = fit(table, EDGES).fit_check(rows(rng, 800, direct=0.3)).rejected
        # b, too, depends on d given c, through a.
        found += ["a", "d"] in rejected[["first", "second"]].to_numpy().tolist()
    assert wrong < 11
    assert found > 95


def test_counts_survive_the_file_and_give_the_held_out_likelihood(tmp_path):
    table = as_discrete(rows(np.random.default_rng(2), 300), NAMES)
    network = fit(table, EDGES, equivalent_sample_size=7.0)
    network.save(tmp_path / "network.json")
    loaded = BayesianNetwork.load(tmp_path / "network.json")
    check = loaded.fit_check()
    exact = sum(held_out_log_likelihood(own, 7.0) for own in loaded.counts)
    assert all((own == np.rint(own)).all() and own.sum() == 300 for own in loaded.counts)
    np.testing.assert_allclose(check.held_out_log_likelihood, exact / 300)
    # The table of c holds a and b together; no table holds d with a or b.
    assert check.independencies[["first", "second"]].to_numpy().tolist() in (
        [["a", "b"]],
        [["b", "a"]],
    )
    assert check.untested == 2
    tests = {(one.cause, one.effect): one for one in loaded.edge_tests()}
    theirs = chi2_contingency(
        pd.crosstab(table.codes[2], table.codes[3]), correction=False, lambda_="log-likelihood"
    )
    np.testing.assert_allclose(tests["c", "d"].statistic, theirs.statistic)
    assert tests["a", "c"].degrees == 3
    given = BayesianNetwork(loaded.names, loaded.states, loaded.parents, loaded.tables)
    with pytest.raises(ConfigError, match="has no counts"):
        given.fit_check()


def test_a_test_has_five_rows_for_each_cell():
    """Of 50 rows: a and b have 6 cells, a and d given c 8, b and d given c 12."""
    rng = np.random.default_rng(4)
    found = fit(as_discrete(rows(rng, 400), NAMES), EDGES).fit_check(rows(rng, 50))
    assert found.untested == 1
    pairs = set(zip(found.independencies["first"], found.independencies["second"], strict=True))
    assert {frozenset(pair) for pair in pairs} == {frozenset("ab"), frozenset("ad")}
