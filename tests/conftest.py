"""What all tests share: one thread each, the number of examples, and runs that many look at."""

import gc
import os
import sys
from collections import defaultdict
from functools import partial

# Threads cost more than they bring on matrices of this size, with two workers all the more.
# NumPy, torch and Flower's processes read these when they start.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import pytest
from entry_point_packages import forget, install
from federations import SpyGrid, make_federation
from hypothesis import settings

from flwr_causal.runtime import loop
from flwr_causal.simulations import engines, simulate

if "PYTEST_XDIST_WORKER" in os.environ and sys.platform != "win32":
    # One of the workers compiles what all need; the others wait, and read its machine code.
    from one_compiler import install_locks

    install_locks()

# No test survives the machine that it runs on: nothing waits until it is on the disk.
os.fsync = lambda descriptor: None
# The nodes of a test are there when a run starts.
loop.SETTLE_SECONDS = 0.0

# `.ci/nightly` looks further. Both draw the same examples every time.
settings.register_profile("few", deadline=None, max_examples=10, derandomize=True)
settings.register_profile("many", deadline=None, max_examples=100, derandomize=True)
settings.load_profile("few")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    # Of a function marked `few(3)` three cases, spread evenly, are not of the night alone.
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few") and not item.get_closest_marker("nightly"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for found in cases.values():
        (number,) = found[0].get_closest_marker("few").args
        kept = {(2 * k + 1) * len(found) // (2 * number) for k in range(number)}
        for place, item in enumerate(found):
            if place not in kept:
                item.add_marker("nightly")
    # What only `.ci/nightly` runs needs one mark: `-m "not slow"` leaves it out, too.
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker("slow")


def pytest_collection():
    # All that this makes stays to the end: to look for garbage in it takes as long as to make it.
    gc.disable()


def pytest_collection_finish():
    # Later searches for garbage leave it out: each would take as long again.
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def federation():
    """Three parties with 80 rows each of one system of five variables."""
    return make_federation()


@pytest.fixture(scope="session")
def admm_run(federation):
    """A finished run of NOTEARS-ADMM over it; read only."""
    return simulate("notears-admm", federation.tables, max_rounds=20, truth=federation.truth)


@pytest.fixture(scope="session")
def moments_run(federation):
    """A finished run of the moments method over it; read only."""
    return simulate("moments", federation.tables, truth=federation.truth)


@pytest.fixture
def grids(monkeypatch):
    """The grids that ``simulate`` makes, watched."""
    made = []

    def watched(app, num_nodes, **options):
        made.append(SpyGrid(app, num_nodes, **options))
        return made[-1]

    monkeypatch.setattr(engines, "LocalGrid", watched)
    return made


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install packages that declare something, as pip would; forget them afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    yield partial(install, tmp_path)
    forget()
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)
