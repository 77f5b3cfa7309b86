import numpy as np
import pytest

from flwr_causal.core.circuits.learners.trees.pair_sums import (
    BLOCK,
    UNIT,
    StateLayout,
    encode,
    round_weights,
    weighted_products,
    weighted_sums,
)
from flwr_causal.errors import DataError

STATES = (2, 3, 4)


def random_codes(rng, n, missing=0.0):
    codes = np.stack([rng.integers(k, size=n) for k in STATES]).astype(np.int32)
    codes[rng.random(codes.shape) < missing] = -1
    return codes


def counted(codes, weights):
    """Count pairs of states row by row."""
    first = np.cumsum((0, *STATES[:-1]))
    counts = np.zeros((sum(STATES), sum(STATES)))
    for row, weight in zip(codes.T, weights, strict=True):
        places = [f + code for f, code in zip(first, row, strict=True) if code >= 0]
        for one in places:
            for other in places:
                counts[one, other] += weight
    return counts


@pytest.mark.parametrize(("complete", "missing"), [(True, 0.0), (False, 0.0), (False, 0.3)])
def test_counts_of_pairs_and_states_are_those_of_a_loop(complete, missing):
    rng = np.random.default_rng(0)
    codes = random_codes(rng, 200, missing)
    weights = round_weights(rng.random((200, 2)))
    layout = StateLayout(STATES, complete)
    design = layout.design(codes)
    products = weighted_products(design, weights)
    assert products.shape == (2, layout.num_pairs)
    for packed, own in zip(products, weights.T, strict=True):
        np.testing.assert_array_equal(layout.pair_counts(packed), counted(codes, own))
    states = layout.state_counts(weighted_sums(design, weights))
    for row, own in zip(states, weights.T, strict=True):
        np.testing.assert_array_equal(row, np.diagonal(counted(codes, own)))


def test_complete_binary_variables_need_one_column_each():
    assert StateLayout((2,) * 69, complete=True).num_pairs == 70 * 71 // 2


def test_sums_are_the_same_to_the_last_bit_for_any_order_and_split_of_the_rows():
    rng = np.random.default_rng(1)
    n = 3 * BLOCK + 17
    codes = random_codes(rng, n)
    weights = round_weights(rng.dirichlet(np.full(5, 0.2), size=n))
    layout = StateLayout(STATES)
    order = rng.permutation(n)
    for sums in (weighted_products, weighted_sums):
        whole = sums(layout.design(codes), weights)
        parts = [
            sums(layout.design(codes[:, part]), weights[part])
            for part in np.split(order, [1, 2000, 9000])
        ]
        np.testing.assert_array_equal(sum(parts), whole)


def test_weights_are_rounded_to_multiples_of_the_unit():
    weights = np.array([0.0, 0.3, 0.49 * UNIT, 1.0])
    rounded = round_weights(weights)
    np.testing.assert_array_equal(rounded / UNIT, np.rint(rounded / UNIT))
    assert np.abs(rounded - weights).max() <= UNIT / 2
    assert rounded[2] == 0.0
    assert rounded[3] == 1.0


def test_values_are_encoded_and_missing_ones_are_minus_one():
    codes = encode(np.array([[1.0, np.nan, 3.0]]), STATES)
    assert codes.tolist() == [[1], [-1], [3]]


@pytest.mark.parametrize("wrong", [2.0, -1.0, 0.5, np.inf])
def test_a_value_that_is_no_state_is_named(wrong):
    with pytest.raises(DataError, match="column 0 holds"):
        encode(np.array([[wrong, 0.0, 0.0]]), STATES)
