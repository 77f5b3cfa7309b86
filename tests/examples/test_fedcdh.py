"""FedCDH of examples/field: tests against closed forms, sums against pooled rows, known worlds."""

import numpy as np
import pytest
from flwr_causal_field import fedcdh
from scipy.stats import chi2, kstest

from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.simulations import simulate
from flwr_causal.testing import check_method


def products_of(parts):
    return [(own := np.insert(rows, 0, 1.0, axis=1)).T @ own for rows in parts]


def test_the_parties_sums_give_the_covariance_with_their_index():
    rng = np.random.default_rng(0)
    parts = [rng.normal(k, 1 + k, size=(n, 3)) for k, n in enumerate((5, 9, 14))]
    pooled = np.vstack(parts)
    index = np.repeat(np.eye(3), [5, 9, 14], axis=0)
    wanted = np.cov(np.hstack([pooled, index]).T, bias=True)
    np.testing.assert_allclose(fedcdh.covariance_with_index(products_of(parts)), wanted, atol=1e-10)


def test_of_one_feature_each_it_is_the_test_of_a_partial_correlation():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4))
    rows *= 100 / rows.std(axis=0)  # so that the ridge is nothing
    covariance = np.cov(rows.T, bias=True)
    one, two = np.array([0]), np.array([1])
    for fixed in ([], [2], [2, 3]):
        z = np.array(fixed, int)
        chosen = np.ix_([0, 1, *fixed], [0, 1, *fixed])
        precision = np.linalg.inv(covariance[chosen])
        squared = precision[0, 1] ** 2 / (precision[0, 0] * precision[1, 1])
        p = fedcdh.p_value(covariance, 200, one, two, z)
        assert p == pytest.approx(chi2.sf(200 * squared, 1), rel=1e-4)


def features(x, rng, count=5):
    return np.sqrt(2) * np.cos(np.outer(x, rng.normal(size=count)) + rng.uniform(0, 6, count))


@pytest.mark.parametrize("given", [False, True])
def test_p_values_of_independent_columns_are_uniform(given):
    rng = np.random.default_rng(2)
    found = []
    for _ in range(300):
        z, x, y = rng.normal(size=(3, 300))
        if given:
            x, y = x + z, y - z
        feature = np.random.default_rng(3)
        parts = [features(one / one.std(), feature) for one in (x, y)]
        parts.append(features(z, feature, 20))
        covariance = np.cov(np.hstack(parts).T, bias=True)
        fixed = np.arange(10, 30 if given else 10)
        found.append(fedcdh.p_value(covariance, 300, np.arange(5), np.arange(5, 10), fixed))
    assert kstest(found, "uniform").statistic < 0.12


def test_it_sees_what_correlations_do_not():
    rng = np.random.default_rng(4)
    x = rng.normal(size=400)
    y = x**2 + rng.normal(size=400)
    assert abs(np.corrcoef(x, y)[0, 1]) < 0.15
    parts = np.hstack([features(x, rng), features(y / y.std(), rng)])
    covariance = np.cov(parts.T, bias=True)
    assert fedcdh.p_value(covariance, 400, np.arange(5), np.arange(5, 10), np.arange(0)) < 1e-6


def changing(seed, parties=20, rows=200):
    """x0 -> x1, both of which change; x2 -> x3 <- x4, which do not."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(parties):
        own = rng.normal(size=(rows, 5))
        own[:, 0] = own[:, 0] * rng.uniform(0.5, 3) + rng.normal() * 2
        own[:, 1] = own[:, 1] * rng.uniform(1, 3) + rng.uniform(0.5, 2.5) * own[:, 0]
        own[:, 3] += np.tanh(own[:, 2]) * 1.5 - own[:, 4]
        found.append(own)
    return found


TRUTH = np.zeros((5, 5), bool)
TRUTH[[0, 2, 4], [1, 3, 3]] = True


def test_changes_direct_what_independences_do_not():
    right = 0
    for seed in range(6):
        run = simulate(fedcdh.FedCDH(alpha=0.001), changing(seed), client=fedcdh.FedCDHClient)
        assert run.rounds == 1
        assert np.array_equal(run.graph.adjacency | run.graph.adjacency.T, TRUTH | TRUTH.T)
        assert run.stop_reason == "mechanisms that change between parties: x0, x1"
        assert run.history[-1]["changing"] == 2
        right += bool(run.graph.adjacency[0, 1])
        assert not (run.graph.adjacency[0, 1] and run.graph.adjacency[1, 0])
    assert right >= 5


def test_one_party_has_no_changes():
    rows = changing(0)[0]
    run = simulate(fedcdh.FedCDH(alpha=0.01), [rows], client=fedcdh.FedCDHClient)
    assert "none" in run.stop_reason
    assert np.array_equal(run.graph.adjacency, cpdag(TRUTH))


@pytest.mark.nightly
def test_the_checks_of_every_method():
    parties = [own[:60, :3] for own in changing(1, parties=3)]
    report = check_method(fedcdh.FedCDH(), parties, client=fedcdh.FedCDHClient)
    assert report.passed, report.table()
