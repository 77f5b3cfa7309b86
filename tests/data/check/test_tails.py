"""Cells that lie apart, and columns that are skewed as amounts are."""

import numpy as np
import pytest

from flwr_causal.data.check.far_values import FEWEST, cells_apart, skewed_as_amounts


def mistyped(rng, n, share=0.01):
    values = rng.normal(size=n)
    hit = rng.random(n) < share
    values[hit] += rng.uniform(6, 12, hit.sum()) * rng.choice([-1, 1], hit.sum())
    return values


@pytest.mark.parametrize("n", [600, 3000])
def test_mistyped_cells_lie_apart(n):
    rng = np.random.default_rng(0)
    rows = np.column_stack([mistyped(rng, n) for _ in range(50)])
    assert cells_apart(rows).mean() > 0.85  # 0.92 and 1.0
    assert not skewed_as_amounts(rows).any()


NOISE = {
    "normal": lambda rng, size: rng.normal(size=size),
    "t5": lambda rng, size: rng.standard_t(5, size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "gamma": lambda rng, size: 10 + rng.gamma(4, size=size),
    "Laplace": lambda rng, size: rng.laplace(size=size),
    "two values": lambda rng, size: (rng.random(size) < 0.03).astype(float),
    "few values": lambda rng, size: rng.poisson(2, size).astype(float),
}


@pytest.mark.parametrize("name", NOISE)
def test_tails_and_rare_states_are_none(name):
    rng = np.random.default_rng(1)
    for n in (100, 400, 2000):
        rows = NOISE[name](rng, (n, 100))
        assert cells_apart(rows).mean() <= 0.01
        if name != "exponential":
            assert not skewed_as_amounts(rows).any()


def test_amounts_are_skewed_until_their_logarithms_are_taken():
    rng = np.random.default_rng(2)
    amounts = np.exp(rng.uniform(0.6, 1.5, 40) * rng.normal(size=(400, 40)))
    assert skewed_as_amounts(amounts).mean() > 0.95
    assert not skewed_as_amounts(np.log(amounts) + 20).any()
    assert not skewed_as_amounts(-amounts).any()
    np.testing.assert_array_equal(skewed_as_amounts(1e300 * amounts), skewed_as_amounts(amounts))


def test_of_few_rows_and_missing_cells():
    rng = np.random.default_rng(3)
    rows = np.exp(rng.normal(size=(400, 2)))
    rows[::3, 0] = np.nan
    assert skewed_as_amounts(rows).tolist() == [True, True]
    few = np.append(rng.normal(size=FEWEST - 5), [97.0, 98.0, 99.0, 102.0])[:, None]
    assert not cells_apart(few).any()
    assert cells_apart(np.vstack([few, rng.normal(size=(60, 1))])).all()
