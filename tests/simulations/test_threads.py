"""Runs in several threads of one process have the results of runs one after the other."""

import logging
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from method_modes import MODES
from threadpoolctl import ThreadpoolController

from flwr_causal import simulate
from flwr_causal.compat import FLOWER_LOGGER, own_run, quiet
from flwr_causal.core import threads
from flwr_causal.errors import ConfigError
from flwr_causal.simulations import Relay, engines

FAST = [
    *("moments", "admm", "2dbn", "lingam", "fedges exact", "fedcausal", "fedcausal linear"),
    *("fedpc one pass", "fedpc trees"),
]


@pytest.fixture
def hasty():
    """Threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def found(name, **more):
    method, parties, options = MODES[name]
    run = simulate(method, parties, **options, **more)
    graph = None if run.graph is None else run.graph.weights.tolist()
    return graph, np.asarray(run.scores).tolist(), run.history[-1]["exchange"], run.warnings


def blas_threads():
    found = ThreadpoolController().info()
    return [one["num_threads"] for one in found if one["user_api"] == "blas"]


@pytest.mark.slow
def test_runs_in_threads_find_what_they_find_alone(hasty):
    alone = {name: found(name) for name in FAST}
    before = FLOWER_LOGGER.level, blas_threads()
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda name: (name, found(name)), FAST * 3))
    for name, result in together:
        assert result == alone[name], name
    assert (FLOWER_LOGGER.level, blas_threads()) == before


@pytest.mark.slow
def test_flower_averages_for_one_thread_at_a_time(monkeypatch, hasty):
    # It reads arrays by ast, which CPython 3.11 cannot do in two threads at once.
    usual, active, most = FedAvg.aggregate_train, [], []

    def watched(self, *given):
        active.append(self)
        most.append(len(active))
        try:
            time.sleep(0.01)
            return usual(self, *given)
        finally:
            active.pop()

    monkeypatch.setattr(FedAvg, "aggregate_train", watched)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(found, ["moments"] * 16))
    assert len(most) == 16
    assert max(most) == 1


@pytest.mark.few(1)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_may_begin_inside_another_one(elsewhere):
    inner = []

    class Nested(Relay):
        def before(self, messages):
            if len(inner) < 2:
                if elsewhere:
                    with ThreadPoolExecutor(1) as pool:
                        inner.append(pool.submit(found, "moments").result(timeout=60))
                else:
                    inner.append(found("moments"))
            return messages

    outer = found("admm", wrap_grid=Nested)
    assert inner == [found("moments")] * 2
    assert outer == found("admm")


def test_each_thread_has_the_number_of_its_own_run():
    seen = []

    class Looking(Relay):
        def before(self, messages):
            barrier.wait(timeout=60)  # all runs have begun
            seen.append((own_run(), self.grid.run.run_id))
            return messages

        def after(self, messages, replies):
            assert {one.metadata.run_id for one in replies} == {self.grid.run.run_id}
            return replies

    barrier = threading.Barrier(3)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: found("moments", wrap_grid=Looking), range(3)))
    assert all(own == run for own, run in seen)
    assert len({run for _, run in seen}) == 3


@pytest.fixture
def two_threads():
    """BLAS has two threads, whatever the environment says."""
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        assert {*blas_threads()} == {2}
        yield


def test_settings_of_the_process_hold_until_the_last_block_ends(two_threads):
    before, level = blas_threads(), FLOWER_LOGGER.level
    first, second, other = threads.single_threaded(), quiet(logging.ERROR), quiet(logging.WARNING)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(first.__enter__).result()
        pool.submit(other.__enter__).result()
        with threads.single_threaded(), second:
            with quiet(logging.WARNING):
                assert FLOWER_LOGGER.level == logging.ERROR
            pool.submit(first.__exit__, None, None, None).result()
            pool.submit(other.__exit__, None, None, None).result()
            assert {*blas_threads()} == {1}
            assert FLOWER_LOGGER.level == logging.ERROR
    assert (blas_threads(), FLOWER_LOGGER.level) == (before, level)


def test_a_limit_is_taken_back_by_another_thread(two_threads):
    before = blas_threads()
    first, second = threads.single_threaded(), threads.single_threaded()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(first.__enter__).result()
        second.__enter__()
        pool.submit(first.__exit__, None, None, None).result()
        second.__exit__(None, None, None)
        assert blas_threads() == before


def test_one_run_on_ray_at_a_time(monkeypatch):
    def started(server, app, number, backend):
        with pytest.raises(ConfigError, match="A run on Ray is under way"):
            simulate("moments", MODES["moments"][1], engine="ray")
        raise KeyError("the outer one has started")

    monkeypatch.setattr(engines, "run_on_ray", started)
    for _ in range(2):  # a run that fails leaves the way free
        with pytest.raises(KeyError, match="outer"):
            simulate("moments", MODES["moments"][1], engine="ray")
