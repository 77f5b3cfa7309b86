"""Missing cells drawn from a network: against the joint distribution, and wherever a row lies."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.discrete import completion
from flwr_causal.core.discrete.completion import completed

CARDS = (2, 3, 2, 2, 3)
DAG = np.zeros((5, 5), dtype=bool)
for cause, effect in ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4)):
    DAG[cause, effect] = True
RNG = np.random.default_rng(0)
TABLES = [
    RNG.dirichlet(np.ones(CARDS[y]), tuple(CARDS[k] for k in np.flatnonzero(DAG[:, y])))
    for y in range(5)
]


def probability(states):
    parts = (TABLES[y][tuple(states[k] for k in np.flatnonzero(DAG[:, y]))] for y in range(5))
    return np.prod([part[state] for part, state in zip(parts, states, strict=True)])


def posterior(seen):
    """The joint distribution of the missing states, by the states of all variables."""
    worlds = [w for w in product(*map(range, CARDS)) if all(w[k] == s for k, s in seen.items())]
    weights = np.array([probability(world) for world in worlds])
    return dict(zip(worlds, weights / weights.sum(), strict=True))


@pytest.mark.few(5)
@pytest.mark.parametrize("most", [completion.MOST_JOINT, 3, 1])
@pytest.mark.parametrize("seen", [{}, {3: 1}, {0: 1, 4: 2}, {1: 2, 2: 0, 3: 0}, {0: 0, 3: 1}])
def test_draws_have_the_distribution_given_the_seen_cells(monkeypatch, most, seen):
    """Also where cells that depend on each other are drawn one after the other."""
    monkeypatch.setattr(completion, "MOST_JOINT", most)
    n = 20_000
    codes, known = np.zeros((5, n), dtype=np.uint8), np.zeros((5, n), dtype=bool)
    for k, state in seen.items():
        codes[k], known[k] = state, True
    drawn = completed(codes, known, DAG, TABLES, seed=7)
    worlds, counts = np.unique(drawn, axis=1, return_counts=True)
    shares = dict(zip(map(tuple, worlds.T.tolist()), counts / n, strict=True))
    expected = posterior(seen)
    assert shares.keys() <= expected.keys()
    for world, share in expected.items():
        error = (share * (1 - share) / n) ** 0.5
        assert shares.get(world, 0.0) == pytest.approx(share, abs=5 * error + 1e-4)


@given(st.integers(0, 2**32), st.integers(0, 2**64 - 1))
def test_a_row_is_completed_alike_wherever_it_lies(draw, seed):
    rng = np.random.default_rng(draw)
    codes = np.array([rng.integers(0, card, 60) for card in CARDS], dtype=np.uint8)
    seen = rng.random((5, 60)) < 0.6
    whole = completed(codes, seen, DAG, TABLES, seed)
    assert (whole[seen] == codes[seen]).all()
    assert (whole < np.array(CARDS)[:, None]).all()
    order = rng.permutation(60)
    turned = completed(codes[:, order], seen[:, order], DAG, TABLES, seed)
    # Equal rows are not told apart.
    assert sorted(turned.T.tolist()) == sorted(whole.T.tolist())
    hidden = np.where(seen, codes, 0)
    np.testing.assert_array_equal(completed(hidden, seen, DAG, TABLES, seed), whole)


def test_a_seed_changes_the_draws_and_complete_rows_stay():
    codes, none = np.zeros((5, 200), dtype=np.uint8), np.zeros((5, 200), dtype=bool)
    one, other = (completed(codes, none, DAG, TABLES, seed) for seed in (1, 2))
    assert not np.array_equal(one, other)
    np.testing.assert_array_equal(completed(one, ~none, DAG, TABLES, 3), one)


def test_missing_cells_of_many_variables_are_drawn_without_their_joint_table():
    """A chain of 40 variables of 4 states has 4^40 joint states."""
    d = 40
    chain = np.eye(d, k=1, dtype=bool)
    step = 0.97 * np.eye(4) + 0.0075
    tables = [np.full(4, 0.25), *[step / step.sum(1, keepdims=True)] * (d - 1)]
    codes, seen = np.zeros((d, 300), dtype=np.uint8), np.zeros((d, 300), dtype=bool)
    codes[-1], seen[-1] = 2, True
    drawn = completed(codes, seen, chain, tables, seed=0)
    stays = (drawn[1:] == drawn[:-1]).mean()
    assert stays == pytest.approx(0.97 + 0.0075, abs=0.01)
