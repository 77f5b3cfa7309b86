"""What a client keeps between rounds, what it does without it, and messages out of turn."""

from dataclasses import replace

import numpy as np
import pytest
from federations import app_of, ask, make_federation, setup_for

from flwr_causal.party import cache
from flwr_causal.protocol import records
from flwr_causal.simulations import LocalGrid

TABLES = make_federation(d=4, n=40, parties=2).tables
SETUP = setup_for(TABLES)
NODE = 2
RHO = 0.3
W1 = np.random.default_rng(0).normal(size=(1, 4, 4)) * 0.1


@pytest.fixture
def grid():
    return LocalGrid(app_of(TABLES), len(TABLES))


def round_(grid, number, weights, penalty=RHO, relaxation=1.0, node=NODE, setup=None):
    reply = ask(
        grid,
        node,
        {"weights": weights},
        round=number,
        penalty=penalty,
        relaxation=relaxation,
        setup=setup,
    )
    if reply.has_error():
        raise RuntimeError(reply.error.reason)
    (array,) = records.arrays_of(reply.content).values()
    return array


def own_step(weights, multiplier, penalty, relaxation=1.0):
    """Eq. (10) of Ng & Zhang 2022 with an explicit solve, and what is sent."""
    rows = TABLES[0].to_numpy() - SETUP.mean
    second = rows.T @ rows / SETUP.num_rows
    right = penalty * weights[0] - multiplier + second
    solution = np.linalg.solve(second + penalty * np.eye(4), right)
    relaxed = relaxation * solution + (1.0 - relaxation) * weights[0]
    return relaxed + multiplier / penalty


def test_two_rounds_are_the_papers(grid):
    zeros = np.zeros((1, 4, 4))
    first = round_(grid, 1, zeros, setup=SETUP)
    np.testing.assert_allclose(first[0], own_step(zeros, zeros[0], RHO), atol=1e-12)
    second = round_(grid, 2, W1, penalty=0.7)
    # The multiplier's update uses the penalty of the round in which the array was sent.
    multiplier = RHO * (first[0] - W1[0])
    np.testing.assert_allclose(second[0], own_step(W1, multiplier, 0.7), atol=1e-12)


def test_the_relaxation_of_the_server_is_used(grid):
    zeros = np.zeros((1, 4, 4))
    first = round_(grid, 1, zeros, relaxation=1.5, setup=SETUP)
    np.testing.assert_allclose(first[0], own_step(zeros, zeros[0], RHO, 1.5), atol=1e-12)
    second = round_(grid, 2, W1, relaxation=1.5)
    multiplier = RHO * (first[0] - W1[0])
    np.testing.assert_allclose(second[0], own_step(W1, multiplier, RHO, 1.5), atol=1e-12)


def test_a_round_delivered_twice_is_answered_alike(grid):
    undisturbed = LocalGrid(app_of(TABLES), len(TABLES))
    zeros = np.zeros((1, 4, 4))
    replies = []
    for each in (grid, undisturbed):
        round_(each, 1, zeros, setup=SETUP)
        replies.append(round_(each, 2, W1))
    assert np.array_equal(round_(grid, 2, W1), replies[0])
    # Even with the setup again, as the second attempt carries it.
    assert np.array_equal(round_(grid, 2, W1, setup=SETUP), replies[0])
    assert np.array_equal(round_(grid, 3, -W1), round_(undisturbed, 3, -W1))


def test_a_stale_round_is_refused_and_changes_nothing(grid):
    undisturbed = LocalGrid(app_of(TABLES), len(TABLES))
    for each in (grid, undisturbed):
        round_(each, 5, W1, setup=SETUP)
    with pytest.raises(RuntimeError, match="exchange 4 came after that of exchange 5"):
        round_(grid, 4, -W1)
    assert np.array_equal(round_(grid, 6, -W1), round_(undisturbed, 6, -W1))


def test_a_client_that_lost_its_memory_starts_with_a_zero_multiplier(grid):
    round_(grid, 1, np.zeros((1, 4, 4)), setup=SETUP)
    round_(grid, 2, -W1)
    grid.context(NODE).state.clear()
    with pytest.raises(RuntimeError, match="no agreement"):
        round_(grid, 3, W1)
    again = round_(grid, 3, W1, setup=SETUP)
    np.testing.assert_allclose(again[0], own_step(W1, np.zeros((4, 4)), RHO), atol=1e-12)


def test_nodes_do_not_share_memory(grid):
    one = round_(grid, 1, W1, setup=SETUP)
    other = round_(grid, 1, W1, setup=SETUP, node=NODE + 1)
    assert not np.allclose(one, other)


def test_a_second_run_over_the_same_nodes_starts_afresh(grid):
    """One ServerApp may run a method twice, over the same nodes in the same Flower run."""
    zeros = np.zeros((1, 4, 4))
    for number in (1, 2, 3):
        round_(grid, number, W1, setup=SETUP)
    scaled = setup_for(
        TABLES, options=replace(SETUP.options, standardize=True), exchange="fedcba9876543210"
    )
    fresh = LocalGrid(app_of(TABLES), len(TABLES))
    expected = round_(fresh, 1, zeros, setup=scaled)
    assert np.array_equal(round_(grid, 1, zeros, setup=scaled), expected)


def test_the_cache_is_bounded_and_forgets_the_oldest(monkeypatch, grid):
    monkeypatch.setattr(cache, "_cache", type(cache._cache)())
    monkeypatch.setattr(cache, "LIMIT_BYTES", 1000)
    context = grid.context(NODE)
    calls = []

    def compute(name):
        calls.append(name)
        return np.zeros(50)

    for name in ("a", "b", "a", "c", "b", "b"):
        cache.cached(context, name, lambda name=name: compute(name))
    assert calls == ["a", "b", "c", "b"]
    assert len(cache._cache.entries) == 2
    assert cache._cache.size == sum(size for _, size in cache._cache.entries.values()) == 800
