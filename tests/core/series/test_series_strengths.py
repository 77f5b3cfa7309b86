"""Strengths of the summary graph: sums over lags, normalised sums, the hub prior."""

import numpy as np
import pytest

from flwr_causal.core.series.solution import (
    combined,
    hub_prior,
    normalized,
    summed_strengths,
)


def test_lags_are_summed_and_the_instantaneous_part_is_left_out():
    weights = np.random.default_rng(0).standard_normal((9, 3))
    expected = np.abs(weights[3:6]) + np.abs(weights[6:])
    np.testing.assert_allclose(summed_strengths(weights), expected)


def test_normalised_strengths_have_unit_deviation_off_the_diagonal():
    strengths = np.random.default_rng(1).standard_normal((5, 5))
    np.fill_diagonal(strengths, 100.0)
    result = normalized(strengths)
    off_diagonal = ~np.eye(5, dtype=bool)
    assert result[off_diagonal].std() == pytest.approx(1.0)
    np.testing.assert_allclose(
        result[off_diagonal] / result[0, 1], np.abs(strengths[off_diagonal] / strengths[0, 1])
    )
    assert not np.diagonal(result).any()
    np.testing.assert_allclose(normalized(7.0 * strengths), result)


def test_strengths_that_say_nothing_are_zero():
    assert not normalized(np.full((3, 3), 2.0)).any()
    assert not normalized(np.ones((1, 1))).any()


def test_combined_weighs_rankings_of_any_unit_alike():
    rng = np.random.default_rng(2)
    one, other = rng.random((4, 4)), rng.random((4, 4))
    result = combined(one, 1000.0 * other)
    np.testing.assert_allclose(result, normalized(one) + normalized(other))


def test_hub_prior_prefers_causes_with_many_effects():
    strengths = np.array([[9.0, 1.0, 0.0], [0.0, 9.0, 1.0], [2.0, 2.0, 9.0]])
    expected = [[0, 1, 0], [0, 0, 1], [2 * 8**0.5, 2 * 8**0.5, 0]]
    np.testing.assert_allclose(hub_prior(strengths), expected)
    assert strengths[0, 0] == 9.0  # what was given stays as it is
