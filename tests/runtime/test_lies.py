"""Replies that look possible: refused, seen by their influence, or outvoted by the median.

docs/how_to/false_parties.md has the table; here each of its cells is run.
"""

import numpy as np
import pytest
from federations import make_federation
from method_modes import MODES

from flwr_causal.app.methods import build
from flwr_causal.simulations import simulate
from flwr_causal.testing.faults import FAULTS, Fault, Scene
from flwr_causal.testing.trials import FaultyGrid


def of_other_columns(scene: Scene):
    """Every array with its columns exchanged, as of a party whose columns have other names."""
    changed = {}
    for name, values in scene.things().items():
        for axis in range(values.ndim):
            values = np.roll(values, values.shape[axis] // 2, axis=axis)
        changed[name] = values
    return [scene.with_things(changed)]


LIES = {fault.name: fault for fault in FAULTS} | {
    "other columns": Fault("other columns", of_other_columns, lie=True)
}
LIES = {
    name: LIES[name]
    for name in ("x 1e6", "x -1", "random, same scale", "all zeros", "other columns")
}


def series(seed, n=150):
    rng = np.random.default_rng(seed)
    x = np.zeros((n, 4))
    for t in range(1, n):
        x[t] = 0.5 * x[t - 1] + rng.normal(size=4)
        x[t, 1] += 0.9 * x[t, 0]
        x[t, 3] += 0.9 * x[t, 2]
    return x


ROWS = make_federation(d=6, n=750, parties=5, seed=3).tables
SERIES = [series(seed) for seed in range(5)]
AVERAGES = {
    "moments": ("moments", ROWS, {}),
    "moments order": ("moments", SERIES, {"order": 1}),
    "moments additive": ("moments", ROWS, {"model": "additive"}),
    "notears-admm": ("notears-admm", ROWS, {"max_rounds": 12}),
    "2dbn": ("2dbn", SERIES, {"max_rounds": 10}),
    "fedcausal linear": ("fedcausal", ROWS, {"model": "linear", "max_rounds": 8}),
    "fedcausal group": ("fedcausal", ROWS, {"refine": "none", "max_rounds": 8}),
}
ONE_EXCHANGE = ("moments", "moments order", "moments additive")


def with_lie(mode, lie, **options):
    method, tables, own = AVERAGES.get(mode) or MODES[mode]
    grids = []

    def lying(grid):
        grids.append(FaultyGrid(grid, LIES[lie], None, build(method, own).contract))
        return grids[0]

    run = simulate(method, tables, wrap_grid=lying, **(own | options))
    assert grids[0].applied
    return run, any(failure["party"] == f"party {len(tables) - 1}" for failure in run.failures)


def edges(graph):
    lagged = () if graph.lagged is None else graph.lagged
    return np.stack([graph.weights, *lagged]) != 0


@pytest.fixture(scope="module")
def clean():
    """The undisturbed graphs, by mode and aggregation."""
    known = {}

    def graph(mode, aggregation):
        if (mode, aggregation) not in known:
            method, tables, own = AVERAGES[mode]
            run = simulate(method, tables, aggregation=aggregation, **own)
            known[mode, aggregation] = edges(run.graph)
        return known[mode, aggregation]

    return graph


@pytest.mark.few(5)
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("mode", ONE_EXCHANGE)
def test_of_one_exchange_a_lie_is_refused(mode, lie):
    """Products begin with 1, and their diagonal follows from the party's report."""
    assert with_lie(mode, lie)[1]


@pytest.mark.few(7)
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, marks=() if mode in (*ONE_EXCHANGE, "2dbn") else pytest.mark.slow)
        for mode in AVERAGES
    ],
)
def test_the_median_survives_every_lie(mode, lie, clean):
    run, _ = with_lie(mode, lie, aggregation="median")
    assert (edges(run.graph) == clean(mode, "median")).all()


#: What is not refused of replies that are counts or graphs, or sums of both.
BELIEVED = {
    "fedges scores": set(),
    "fedges exact": set(),
    "fedges fusion": {"random, same scale"},
    "fedpc sums": set(),
    "fedpc trees": set(),
    "fedpc one pass": {"random, same scale"},
}


@pytest.mark.few(8)
@pytest.mark.slow
@pytest.mark.parametrize("lie", [lie for lie in LIES if lie != "other columns"])
@pytest.mark.parametrize("mode", BELIEVED)
def test_counts_and_graphs(mode, lie):
    _, refused = with_lie(mode, lie)
    assert refused == (lie not in BELIEVED[mode])
