"""A step that a subclass replaces, and the run does not call, is refused by its name."""

import numpy as np
import pytest

from flwr_causal import CausalError, ConfigError, simulate
from flwr_causal.clients import FedGESClient
from flwr_causal.contract.answers import check_steps, step
from flwr_causal.contract.when import When
from flwr_causal.strategies import FedGES, NotearsADMM, TwoDBN

RNG = np.random.default_rng(0)
TABLES = [np.cumsum(RNG.random((80, 3)) < [0.5, 0.1, 0.2], axis=1) % 2 for _ in range(3)]


class MyFusion(FedGES):
    def fuse(self, graphs, names):
        return super().fuse(graphs, names)


class MyPenalty(NotearsADMM):
    def next_problem(self, problem, state):
        return super().next_problem(problem, state)


class MySeries(TwoDBN):
    def next_problem(self, problem, state):
        return super().next_problem(problem, state)


class MySearch(FedGESClient):
    calls = 0

    def search(self, cache, start):
        MySearch.calls += 1
        return super().search(cache, start)


class MyClientFusion(FedGESClient):
    def fuse(self, received, own):
        return super().fuse(received, own)


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [
        (MyFusion, {}, "fuse"),
        (MyFusion, {"mode": "exact"}, "fuse"),
        (MyPenalty, {"model": "mlp"}, "next_problem"),
        (MySeries, {"order": 1, "variant": "personalised"}, "next_problem"),
    ],
)
def test_a_strategys_step_that_is_not_called_is_refused(kind, options, name):
    with pytest.raises(ConfigError, match=f"{kind.__name__} replaces the step '{name}'.*it is for"):
        kind(**options)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (MyFusion, {"mode": "fusion"}),
        (MyFusion, {"mode": "scores", "start": "driven"}),
        (MyFusion, {"variant": "paper"}),
        (MyPenalty, {}),
        (MySeries, {"order": 1}),
    ],
)
def test_one_that_is_called_is_taken(kind, options):
    kind(**options)


def test_a_clients_step_is_refused_by_the_party_and_called_where_it_belongs():
    with pytest.raises(CausalError, match="MySearch replaces the step 'search' of FedGESClient"):
        simulate(FedGES(), TABLES, client=MySearch)
    assert not MySearch.calls
    simulate(FedGES(mode="fusion", max_rounds=2), TABLES, client=MySearch)
    assert MySearch.calls
    overwrites = FedGES(mode="fusion", start="overwrite", max_rounds=2)
    with pytest.raises(CausalError, match="MyClientFusion replaces the step 'fuse'"):
        simulate(overwrites, TABLES, client=MyClientFusion)


def test_a_step_of_ones_own():
    class Base:
        @step(When(mode="a"))
        def act(self):
            return 1

    class Changed(Base):
        def act(self):
            return 2

    check_steps(Base, {"mode": "b"})
    check_steps(Changed, {"mode": "a"})
    with pytest.raises(ConfigError, match="Changed replaces the step 'act' of Base"):
        check_steps(Changed, {"mode": "b"})
