"""No withheld number of a party's gaps follows from the others that leave: by a solver."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp

from flwr_causal.core.description.gaps import packed_patterns, unpacked_patterns
from flwr_causal.core.discrete import gaps_of_few as few
from flwr_causal.core.discrete.gaps_of_few import few_together, overlapping

LEAST = 5


def table(seed):
    """Gaps of few columns, some of them nested, with their patterns."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(2, 5)), int(rng.integers(15, 120))
    missing = rng.random((n, d)) < rng.choice([0.02, 0.1, 0.4], d)
    if seed % 3 == 0:  # the gaps of one column are those of another one and few more
        missing[:, 0] = missing[:, 1]
        missing[rng.integers(0, n, int(rng.integers(0, 4))), 0] = True
    return missing, *unpacked_patterns(packed_patterns(missing), d)


def what_leaves(missing, patterns, counts):
    """Return rows of coefficients over all possible patterns, and their values."""
    n, d = missing.shape
    every = np.array(list(product([False, True], repeat=d)))
    together = missing.T.astype(int) @ missing
    small = few_together(together, n, LEAST)
    rows, values = [np.ones(len(every))], [n]
    for i in range(d):
        rows.append(every[:, i].astype(float))
        values.append(together[i, i])
    for i, j in combinations(range(d), 2):
        if not small[i, j]:  # with it the rows that have both values
            rows.append((every[:, i] & every[:, j]).astype(float))
            values.append(together[i, j])
    if not (small.any() or ((counts > 0) & (counts < LEAST)).any()):
        for one, count in zip(patterns, counts, strict=True):
            rows.append((every == one).all(axis=1).astype(float))
            values.append(count)
    return every, small, np.array(rows), np.array(values, dtype=float)


def bounds(sought, rows, values):
    """Return the least and the largest whole number that a combination may have."""
    known = LinearConstraint(rows, values, values)
    found = [
        milp(sign * sought, constraints=known, integrality=np.ones(len(sought))).fun * sign
        for sign in (1, -1)
    ]
    return [round(one) for one in found]


def follow(seed):
    """Return the withheld numbers of few rows that have one solution."""
    missing, patterns, counts = table(seed)
    every, small, rows, values = what_leaves(missing, patterns, counts)
    found = []
    for i, j in combinations(range(missing.shape[1]), 2):
        if small[i, j]:
            low, high = bounds((every[:, i] & every[:, j]).astype(float), rows, values)
            # With one missing cell in all there is one way; how many cells are missing is told.
            if low == high and LEAST > low > 0:
                found.append((seed, i, j))
    return found


def test_no_withheld_number_of_rows_follows():
    assert [one for seed in range(120) for one in follow(seed)] == []


def test_without_the_rule_some_would():
    def cell_alone(both, rows, minimum):
        hidden = (both > 0) & (both < minimum)
        np.fill_diagonal(hidden, False)
        return hidden

    def leaks(seed):
        missing = table(seed)[0]
        together = missing.T.astype(int) @ missing
        small = cell_alone(together, len(missing), LEAST)
        pairs = len(missing) - np.add.outer(np.diag(together), np.diag(together)) + together
        # The rows that have both columns leave, and with them those that lack both.
        return (small & (pairs >= LEAST)).any()

    assert any(leaks(seed) for seed in range(120))


def sums_of_few(seed, rule):
    """Return the columns of which sums over few rows are combinations of those that leave."""
    missing, patterns, counts = table(seed)
    hidden = rule(patterns, counts)
    small = few_together(missing.T.astype(int) @ missing, len(missing), LEAST)
    found = []
    for i in range(missing.shape[1]):
        held = ~patterns[:, i]
        told = [j for j in range(missing.shape[1]) if not (hidden[i, j] or small[i, j])]
        sets = np.array([held & ~patterns[:, j] for j in told], dtype=float)
        for few_rows in np.flatnonzero(held & (counts < LEAST)):
            one = (np.arange(len(patterns)) == few_rows).astype(float)
            if np.linalg.matrix_rank(np.vstack([sets, one])) == np.linalg.matrix_rank(sets):
                found.append((seed, i))
    return found


def test_no_sum_over_few_rows_follows_from_those_that_leave():
    def rule(patterns, counts):
        return overlapping(patterns, counts, LEAST)

    assert [one for seed in range(120) for one in sums_of_few(seed, rule)] == []
    assert any(
        sums_of_few(seed, lambda p, c: np.zeros((p.shape[1],) * 2, bool)) for seed in range(120)
    )


def test_large_tables_withhold_the_sums_of_columns_with_gaps(monkeypatch):
    _, patterns, counts = table(3)
    exact = overlapping(patterns, counts, LEAST)
    monkeypatch.setattr(few, "MOST_PRODUCTS", 0)
    coarse = overlapping(patterns, counts, LEAST)
    assert (coarse | ~exact).all()
    complete = np.zeros((1, 3), dtype=bool)
    assert not overlapping(complete, np.array([50]), LEAST).any()


@pytest.mark.parametrize("minimum", [0, 1])
def test_where_all_may_be_told_nothing_is_withheld(minimum):
    missing, patterns, counts = table(1)
    assert not few_together(missing.T.astype(int) @ missing, len(missing), minimum).any()
    assert not overlapping(patterns, counts, minimum).any()
