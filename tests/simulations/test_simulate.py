"""``simulate`` as notebooks call it."""

import inspect
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from federations import make_federation
from numba import njit

import flwr_causal
from flwr_causal import CausalGraph, simulate
from flwr_causal.clients import MomentsClient, client_app
from flwr_causal.compat import FLOWER_LOGGER
from flwr_causal.core.systems.linear import LinearModel
from flwr_causal.errors import CausalError, ConfigError, DataError, FederationError
from flwr_causal.reports.run import Run
from flwr_causal.runtime.schema import exchange_schema
from flwr_causal.simulations import LocalGrid
from flwr_causal.simulations.progress import PARTIES, SCHEMA, SERVER, Bar, progress_bar
from flwr_causal.simulations.tables import PartyTables
from flwr_causal.strategies import Lingam, Moments, NotearsADMM

FED = make_federation()
TABLES = FED.tables
METHODS = ["notears-admm", "moments"]
OPTIONS = {
    "notears-admm": {"max_rounds": 12},
    "moments": {},
    # The tables of numbers are cut into intervals; parties are sampled in this mode only.
    "fedges": {"discretize": 3, "mode": "fusion"},
}
EVERY = [*METHODS, "fedges"]


def quick(method, parties, **options):
    return simulate(method, parties, **{**OPTIONS[method], **options})


def test_the_names_that_others_build_on():
    for name in ("simulate", "LocalGrid", "CausalGraph", "Run", "Knowledge"):
        assert getattr(flwr_causal, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        flwr_causal.nothing  # noqa: B018
    for error in (DataError, ConfigError, FederationError):
        assert issubclass(error, CausalError)
    arguments = inspect.signature(simulate).parameters
    assert list(arguments)[:2] == ["method", "parties"]
    assert {k: arguments[k].default for k in ("engine", "seed", "truth")} == {
        "engine": "local",
        "seed": 0,
        "truth": None,
    }
    from flwr_causal.clients import FedGESClient, MomentsClient, NotearsADMMClient
    from flwr_causal.core.ges.ges import ges
    from flwr_causal.core.linear.dagma import dagma
    from flwr_causal.core.linear.notears import notears

    clients = (FedGESClient, MomentsClient, NotearsADMMClient)
    assert all(map(callable, (*clients, dagma, ges, notears, LocalGrid)))
    assert list(inspect.signature(ges).parameters)[:5] == [
        "table",
        "score",
        "equivalent_sample_size",
        "start",
        "max_edges",
    ]


@pytest.mark.parametrize("method", METHODS)
def test_a_run_holds_what_is_promised(method):
    run = quick(method, TABLES, truth=FED.weights)
    assert isinstance(run, Run)
    assert isinstance(run.graph, CausalGraph)
    assert run.graph.kind == "dag"
    assert run.graph.names == ("x0", "x1", "x2", "x3", "x4")
    assert np.array_equal(run.graph.adjacency, FED.weights != 0)
    assert run.rounds == len(run.history) >= 1
    assert run.bytes_sent > 0
    assert run.bytes_received > 0
    assert run.seconds > 0
    assert run.stop_reason
    assert {"shd", "tpr", "fdr"} <= set(run.metrics)
    assert (run.metrics["shd"], run.metrics["tpr"], run.metrics["fdr"]) == (0, 1.0, 0.0)
    assert run.scores.shape == (5, 5)
    assert (run.scores >= 0).all()
    assert run.config["method"] == method
    assert run.config["threshold"] is None
    assert isinstance(run.model, LinearModel)
    assert run.parties == {f"party {i}": 80 for i in range(3)}
    assert run.failures == []
    assert run.error == ""


@pytest.mark.few(2)
@pytest.mark.parametrize("method", EVERY)
def test_arrays_frames_and_files_are_the_same(method, tmp_path):
    first, second, third = TABLES
    first.to_csv(tmp_path / "a.csv", index=False)
    second.to_parquet(tmp_path / "b.parquet")
    np.savez(tmp_path / "c.npz", X=third.to_numpy(), names=list(third.columns))
    files = [str(tmp_path / "a.csv"), tmp_path / "b.parquet", tmp_path / "c.npz"]
    graphs = [
        quick(method, parties).graph
        for parties in (TABLES, [t.to_numpy() for t in TABLES], files, [first, *files[1:]])
    ]
    assert all(graph.equals(graphs[0]) for graph in graphs[1:])


@pytest.mark.parametrize("method", EVERY)
def test_the_same_seed_gives_the_same_digits(method):
    one, two = (quick(method, TABLES, seed=3, fraction_train=0.7) for _ in range(2))
    assert one.graph.equals(two.graph)
    assert np.array_equal(one.scores, two.scores)


@pytest.mark.parametrize("method", ["moments", "fedges"])
def test_ten_columns_are_not_sorted(method):
    tables = make_federation(d=12, n=120, parties=2).tables
    names = quick(method, tables).graph.names
    assert names == tuple(f"x{i}" for i in range(12))


@pytest.mark.parametrize("method", METHODS)
def test_a_federation_of_one(method):
    whole = make_federation(parties=1).tables
    assert np.array_equal(quick(method, whole).graph.adjacency, FED.weights != 0)
    ready = {"moments": Moments(), "notears-admm": NotearsADMM(max_rounds=12)}[method]
    assert simulate(ready, whole).graph.equals(quick(method, whole).graph)


def test_a_ready_strategy_is_used_as_it_is_and_left_alone():
    strategy = NotearsADMM(max_rounds=12, threshold=0.5, min_available_nodes=7)
    run = simulate(strategy, TABLES)
    assert run.config["threshold"] == 0.5
    assert run.rounds == 12
    assert strategy.options.min_available_nodes == 7
    with pytest.raises(ConfigError, match="give threshold to NotearsADMM"):
        simulate(strategy, TABLES, threshold=0.1)


def test_the_inputs_are_not_changed():
    tables = [table.copy() for table in TABLES]
    arrays = [table.to_numpy().copy() for table in TABLES]
    quick("notears-admm", tables, standardize=True)
    quick("moments", arrays, standardize=True)
    quick("fedges", tables)
    quick("fedges", arrays)
    for table, array, original in zip(tables, arrays, TABLES, strict=True):
        pd.testing.assert_frame_equal(table, original)
        assert np.array_equal(array, original.to_numpy())


def test_truth_by_name_or_by_position():
    names = ["x3", "x0", "x4", "x2", "x1"]
    turned = [table[names] for table in TABLES]
    order = [int(name[1]) for name in names]
    by_position = quick("moments", turned, truth=FED.weights[np.ix_(order, order)])
    by_name = quick("moments", turned, truth=FED.truth)
    assert by_position.metrics == by_name.metrics
    assert by_name.metrics["shd"] == 0
    assert quick("moments", turned).metrics == {}


def test_truth_of_columns_that_are_dropped():
    tables = [table.assign(site="A")[["site", *table.columns]] for table in TABLES]
    truth = np.zeros((6, 6))
    truth[1:, 1:] = FED.weights
    run = quick("moments", tables, text_columns="drop", truth=truth)
    assert run.metrics["shd"] == 0
    assert any("'site' is not used" in warning for warning in run.warnings)


@pytest.mark.parametrize("method", ["moments", "fedges"])
def test_the_log_is_silent_and_as_it_was(method, capfd):
    level = FLOWER_LOGGER.level
    quick(method, TABLES)
    assert FLOWER_LOGGER.level == level
    out, err = capfd.readouterr()
    assert out == err == ""


def test_a_progress_bar_can_be_shown(capfd):
    quick("notears-admm", TABLES, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "12/12" in err
    assert "done" in err
    # It ends at its end, also where the run needs fewer exchanges than it might.
    run = simulate("lingam", TABLES, progress=True)
    (ended,) = re.findall(r"(\d+)/(\d+)", capfd.readouterr().err)
    assert ended == (str(run.rounds), str(run.rounds))
    assert run.rounds < Lingam().options.max_rounds


def test_the_bar_says_whose_turn_it_is(monkeypatch):
    said = []
    monkeypatch.setattr(Bar, "say", lambda self, now: said.append(now))
    quick("moments", TABLES, progress=True)
    assert [now for now in said if "compiling" not in now] == [SCHEMA, SERVER, PARTIES, SERVER]


def test_compiling_is_said(monkeypatch):
    said = []
    monkeypatch.setattr(Bar, "say", lambda self, now: said.append(now))
    fresh = njit(lambda: 1 + 1)  # without a cache: numba compiles it here
    with progress_bar(True, 3):
        fresh()
    assert said == [f"compiling {__name__}, once in this environment"]
    with progress_bar(False, 3) as bar:
        assert bar is None
    with progress_bar(None, 3) as bar:  # pytest is no terminal
        assert bar is None


def test_uneven_parties_and_policies():
    tables = [TABLES[0].iloc[:3], TABLES[1].copy(), TABLES[2].assign(extra=1.0)]
    tables[1].iloc[:5, 0] = np.nan
    run = quick("moments", tables, missing_values="drop", unshared_columns="drop")
    assert run.parties == {"party 0": 3, "party 1": 75, "party 2": 80}
    assert run.graph.names == tuple(TABLES[0].columns)
    assert len(run.warnings) >= 2


def test_a_column_that_is_constant_at_one_party_only():
    tables = [table.copy() for table in TABLES]
    tables[0]["x2"] = 4.0
    run = quick("notears-admm", tables)
    assert run.graph.is_acyclic()


def test_what_ray_sends_with_each_message_does_not_grow_with_the_parties(tmp_path):
    file = tmp_path / "last.csv"
    TABLES[-1].to_csv(file, index=False)
    sizes = {}
    for copies in (1, 30):
        parties = [*list(TABLES[:-1]) * copies, file]
        directory = tmp_path / str(copies)
        directory.mkdir()
        packed = pickle.dumps(client_app(MomentsClient, PartyTables(parties, str(directory))))
        sizes[copies] = len(packed) - len(str(directory))
        reports = exchange_schema(Moments(), LocalGrid(pickle.loads(packed), len(parties)))[1]
        assert list(reports.rows.values()) == [len(t) for t in TABLES[:-1]] * copies + [
            len(TABLES[-1])
        ]
    assert sizes[1] == sizes[30] < 1000
