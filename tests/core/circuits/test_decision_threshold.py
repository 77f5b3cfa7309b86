"""Thresholds from counts against scikit-learn's F1 on the rows."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from flwr_causal.core.circuits.model import best_threshold, log_odds_counts


def scores(seed, n=2000, rare=0.06):
    rng = np.random.default_rng(seed)
    classes = (rng.random(n) < rare).astype(np.int64)
    odds = rng.normal(-3.5 + 2.0 * classes, 1.2)
    log_p = np.stack((-np.log1p(np.exp(odds)), -np.log1p(np.exp(-odds))), axis=1)
    return log_p, classes


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(3))
def test_the_threshold_is_the_best_for_the_rows(seed):
    log_p, classes = scores(seed)
    threshold, macro = best_threshold(log_odds_counts(log_p, classes))
    probability = np.exp(log_p[:, 1])

    def at(limit):
        return f1_score(classes, probability >= limit, average="macro")

    assert at(threshold) == pytest.approx(macro, abs=1e-9)
    best = max(at(limit) for limit in np.quantile(probability, np.linspace(0.8, 1.0, 100)))
    assert macro >= best - 0.005
    assert macro > at(0.5) + 0.05
    assert 0.05 < threshold < 0.5


def test_counts_add_up():
    log_p, classes = scores(0)
    parts = [
        log_odds_counts(log_p[part], classes[part]) for part in np.array_split(np.arange(2000), 7)
    ]
    np.testing.assert_array_equal(sum(parts), log_odds_counts(log_p, classes))
    np.testing.assert_array_equal(sum(parts).sum(axis=1), np.bincount(classes))


def test_a_gap_is_cut_in_its_middle():
    odds = np.array([-4.0, -4.0, 2.0])
    log_p = np.stack((-np.log1p(np.exp(odds)), -np.log1p(np.exp(-odds))), axis=1)
    threshold, macro = best_threshold(log_odds_counts(log_p, np.array([0, 0, 1])))
    assert macro == 1.0
    assert np.log(threshold / (1 - threshold)) == pytest.approx(-1.0, abs=0.05)


def test_certain_rows_are_counted():
    log_p = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    counts = log_odds_counts(log_p, np.array([0, 1]))
    assert counts[0, 0] == 1
    assert counts[1, -1] == 1
