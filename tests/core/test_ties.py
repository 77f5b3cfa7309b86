"""Values that are equal but for rounding are equal."""

import numpy as np
import pytest

from flwr_causal.core.ties import (
    SCORE_TIE,
    as_ranked,
    equal_to_largest,
    first_largest,
    first_smallest,
    is_lower,
    whole,
)


def test_of_values_that_rounding_tells_apart_the_first_is_chosen():
    third = 0.1 + 0.2 - 0.3  # 5.6e-17
    assert first_largest([1.0, 1.0 + third, 0.5]) == 0
    assert first_smallest([-1.0, -1.0 - third, 0.5]) == 0
    assert first_largest([1.0, 1.0 + 1e-6]) == 1
    assert first_smallest([1.0, 1.0 - 1e-6]) == 1
    # Of large values the rounding errors are larger.
    assert first_largest([1e6, 1e6 + 1e-5]) == 0
    assert first_largest([1e6, 1e6 + 1.0]) == 1


def test_axes_infinite_values_and_marks():
    values = np.array([[0.0, -np.inf, 3.0], [1e-12, -np.inf, np.inf]])
    assert first_largest(values, axis=0).tolist() == [0, 0, 1]
    assert first_largest(values, axis=1).tolist() == [2, 2]
    assert first_largest(values) == 5
    assert equal_to_largest(values, axis=0).tolist() == [[True, True, False], [True, True, True]]


def test_a_stable_sort_keeps_the_order_of_equal_values():
    values = 0.3 + np.random.default_rng(0).uniform(-1e-15, 1e-15, 50)
    assert np.argsort(as_ranked(values), kind="stable").tolist() == list(range(50))
    assert np.argsort(as_ranked([0.3, 0.2, 0.2 + 1e-6]), kind="stable").tolist() == [1, 2, 0]


@pytest.mark.parametrize("size", [0.0, 1.0, 1e6])
def test_halves_of_counts_go_up_whatever_their_last_digit(size):
    half = size + 0.5
    for near in (np.nextafter(half, 0), half, half * (1 + 1e-12)):
        assert whole(float(near)) == size + 1
    assert whole(size + 0.4) == size
    assert whole(size + 0.6) == size + 1
    assert whole(float(np.nextafter(size, -1))) == size


@pytest.mark.parametrize("empty", [[], np.zeros((0, 3))])
def test_nothing_has_no_largest(empty):
    with pytest.raises(ValueError, match="zero-size"):
        first_largest(empty)


def test_a_score_is_lower_by_more_than_rounding_of_all_its_rows():
    assert is_lower(1.0, 1.0 + 2 * SCORE_TIE, rows=1)
    assert not is_lower(1.0, 1.0 + 2 * SCORE_TIE, rows=10)
    assert not is_lower(1.0, 1.0 + SCORE_TIE / 2, rows=0)
    assert is_lower(1.0, 1.0 + 2 * SCORE_TIE, rows=10, tie=SCORE_TIE / 10)


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf])
def test_no_score_is_lower_than_itself(score):
    assert not is_lower(score, score, rows=5)
    assert is_lower(0.0, np.inf, rows=5)
    assert is_lower(-np.inf, 0.0, rows=5)
    assert not is_lower(0.0, np.nan, rows=5)
    assert not is_lower(np.nan, 0.0, rows=5)
