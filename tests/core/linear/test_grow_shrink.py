"""The choice of parents: residual variances, local optimality, required parents, dependence."""

import numpy as np
import pytest

from flwr_causal.core.linear.lingam import grow_shrink
from flwr_causal.core.linear.regression import regress

COLLINEAR = 1e-10


def correlations(seed, d=8, n=200):
    rng = np.random.default_rng(seed)
    return np.corrcoef((rng.normal(size=(n, d)) @ rng.normal(size=(d, d))).T)


def choose(correlation, target, *, required=(), cost=0.05, limit=100):
    others = np.arange(len(correlation)) != target
    forced = np.isin(np.arange(len(correlation)), required)
    parents, residual, _ = grow_shrink(correlation, target, others, forced, cost, limit, COLLINEAR)
    return list(parents), residual


def score(correlation, target, parents, cost=0.05):
    residual = regress(correlation, np.array(sorted(parents), dtype=int), target)[1]
    return np.log(residual) + cost * len(parents)


@pytest.mark.few(7)
@pytest.mark.parametrize("seed", range(20))
def test_no_parent_is_in_vain(seed):
    correlation = correlations(seed)
    required = [1] if seed % 2 else []
    parents, residual = choose(correlation, 3, required=required)
    assert parents == sorted(parents)
    assert set(required) <= set(parents)
    assert residual == pytest.approx(regress(correlation, np.array(parents), 3)[1], rel=1e-9)
    least = score(correlation, 3, parents)
    for parent in set(parents) - set(required):
        assert score(correlation, 3, set(parents) - {parent}) > least


def test_independent_causes_are_all_found():
    d = 6
    correlation = np.eye(d)
    correlation[0, 1:4] = correlation[1:4, 0] = (0.5, -0.4, 0.3)
    assert choose(correlation, 0) == ([1, 2, 3], pytest.approx(1 - 0.25 - 0.16 - 0.09))
    assert choose(correlation, 0, limit=2)[0] == [1, 2]
    assert choose(correlation, 0, cost=10.0) == ([], 1.0)
    assert choose(correlation, 0, cost=10.0, required=[3, 5])[0] == [3, 5]


def test_what_only_grew_is_removed():
    """A common effect of two causes is the best single predictor, and useless beside them."""
    rng = np.random.default_rng(0)
    first, second, noise = rng.normal(size=(3, 4000))
    target = first + second + 0.3 * rng.normal(size=4000)
    proxy = first + second + 0.5 * noise
    correlation = np.corrcoef([target, proxy, first, second])
    assert choose(correlation, 0)[0] == [2, 3]


def test_combinations_and_copies():
    rng = np.random.default_rng(0)
    first, second, noise = rng.normal(size=(3, 500))
    columns = np.array([first + second, first, second, first + second + noise, first])
    correlation = np.corrcoef(columns)
    parents, residual = choose(correlation, 0)
    assert residual < 1e-9
    assert len(parents) <= 3
    # A copy of a required parent is not added, and a required copy stays.
    assert choose(correlation, 3, required=[1, 4])[0] in ([0, 1, 4], [1, 2, 4])
    assert choose(correlation, 3)[0] in ([0], [1, 2], [2, 4])


@pytest.mark.parametrize("seed", range(10))
def test_other_variables_than_the_deciding_ones_change_nothing(seed):
    """Whatever candidates the others are; some deciding variable changes the parents."""
    d, rng = 12, np.random.default_rng(seed)
    mixed = np.where(rng.random((d, d)) < 0.3, rng.normal(size=(d, d)), 0.0) + np.eye(d)
    correlation = np.corrcoef((rng.normal(size=(200, d)) @ mixed).T)
    correlation[1] = correlation[0]  # a copy: its gain is equal
    correlation[:, 1] = correlation[:, 0]
    none = np.zeros(d, dtype=bool)
    limit = 2 if seed % 3 == 0 else 100
    left_alone = 0
    for target in range(2, d):
        among = (rng.random(d) < 0.5) & (np.arange(d) != target)
        found = grow_shrink(correlation, target, among, none, 0.05, limit, COLLINEAR)
        changed = []
        for other in np.flatnonzero(np.arange(d) != target):
            toggled = among.copy()
            toggled[other] = not toggled[other]
            again = grow_shrink(correlation, target, toggled, none, 0.05, limit, COLLINEAR)
            if not found[2][other]:
                assert all(map(np.array_equal, found, again))
                left_alone += 1
            changed.append(list(found[0]) != list(again[0]))
        assert any(changed) or not len(found[0])
        kept = found[2] & among
        alone = grow_shrink(correlation, target, kept, none, 0.05, limit, COLLINEAR)
        assert all(map(np.array_equal, found, alone))
    assert left_alone > d
