"""What is called from outside runs with one BLAS thread: solvers, models, graphs and runs."""

import pickle
import pkgutil
import sys
from contextlib import contextmanager
from importlib import import_module
from inspect import isfunction

import numpy as np
import pandas as pd
import pytest
from method_modes import MODES

import flwr_causal.core
from flwr_causal import CausalGraph, simulate, solvers
from flwr_causal.core import threads
from flwr_causal.core.description.description import Description
from flwr_causal.core.graphs.knowledge import Knowledge

RNG = np.random.default_rng(0)
CAUSE = RNG.laplace(size=120)
ROWS = pd.DataFrame({"a": CAUSE, "b": CAUSE + RNG.laplace(size=120), "c": RNG.laplace(size=120)})
STATES = ROWS.gt(0).astype(int)
MIXED = ROWS.assign(d=np.where(ROWS["b"] > 0, "high", "low"))
CALLS = {
    "block_search": lambda solve: solve(MIXED),
    "dagma": lambda solve: solve(ROWS),
    "fuse": lambda solve: solve([np.eye(3, k=1, dtype=bool)] * 2, 3),
    "ges": lambda solve: solve(STATES),
    "learn_spn": lambda solve: solve(STATES),
    "lingam": lambda solve: solve(ROWS),
    "notears": lambda solve: solve(ROWS),
    "notears_mlp": lambda solve: solve(ROWS, max_iterations=1),
    "order_search": lambda solve: solve(ROWS),
    "pag_search": lambda solve: solve(ROWS),
}
# Plain files, of which nothing is computed.
WITHOUT_NUMBERS = (Knowledge, Description)


@contextmanager
def watched():
    """Collect the functions of the core that run without the limit; all that is called counts."""
    found, called = [], []

    def look(frame, event, argument):
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("flwr_causal.core.") and "threads" not in module:
            called.append(frame.f_code.co_qualname)
            if not threads.single_threaded().holds:
                found.append(frame.f_code.co_qualname)

    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)
    assert called


@pytest.mark.parametrize("name", solvers.__all__)
def test_public_solvers_have_one_thread(name):
    if name == "notears_mlp":
        pytest.importorskip("torch")
    solve = getattr(solvers, name)
    with watched() as found:
        CALLS[name](solve)
    assert found == []
    assert not threads.single_threaded().holds
    assert pickle.loads(pickle.dumps(solve)) is solve


def test_calls_of_models_graphs_and_runs_have_one_thread():
    method, parties, options = MODES["moments"]
    run = simulate(method, parties, **options)
    assert not threads.single_threaded().holds
    a, b = run.graph.names[:2]
    calls = {
        "total_effect": lambda: run.model.total_effect(a, b),
        "do": lambda: run.model.do({a: 1.0}),
        "sample": lambda: run.model.sample(5, seed=0),
        "predict": lambda: run.model.predict(parties[0], b),
        "covariance": lambda: run.model.do({a: 1.0}).covariance,
        "to_cpdag": lambda: run.graph.to_cpdag(),
        "adjustment_set": lambda: run.graph.adjustment_set(a, b),
        "fit_check": lambda: run.fit_check(),
        "from_array": lambda: CausalGraph.from_array(np.eye(2, k=1), ("a", "b")),
    }
    for name, call in calls.items():
        with watched() as found:
            call()
        assert found == [], name
    with pytest.raises(Exception, match="unknown variable"):
        run.model.total_effect("nothing", b)
    assert not threads.single_threaded().holds


def test_all_that_a_run_may_hold_is_guarded():
    for module in pkgutil.walk_packages(flwr_causal.core.__path__, "flwr_causal.core."):
        for kind in vars(import_module(module.name)).values():
            if not (isinstance(kind, type) and kind.__module__ == module.name):
                continue
            if not hasattr(kind, "load") or kind in WITHOUT_NUMBERS:
                continue
            assert issubclass(kind, threads.SingleThreaded), kind
            for name, member in vars(kind).items():
                if isfunction(member) and not name.startswith("_"):
                    assert hasattr(member, "__wrapped__"), (kind, name)
