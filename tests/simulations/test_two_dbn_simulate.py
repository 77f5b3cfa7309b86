"""2Dbn from outside: simulate, the app of ``flwr run``, and what is said of bad series."""

import json

import numpy as np
import pandas as pd
import pytest
from federations import SpyGrid
from flwr.app import Context, RecordDict

from flwr_causal.app import server
from flwr_causal.client_app import app as nodes
from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate

PARTIES, TRUTH = federated_dynamic(4, 180, 3, seed=0)
SECOND = "party 1"


@pytest.mark.slow
def test_arrays_frames_and_lists_are_the_same():
    frames = simulate("2dbn", PARTIES, truth=TRUTH)
    arrays = simulate("2dbn", [party.to_numpy() for party in PARTIES])
    lists = simulate("2dbn", [[party] for party in PARTIES], truth=TRUTH)
    assert frames.graph.equals(arrays.graph)
    assert frames.graph.equals(lists.graph)
    assert {"shd", "lagged_shd"} <= set(frames.metrics)
    assert frames.metrics == lists.metrics
    assert frames.parties == {f"party {k}": 60 for k in range(3)}


def test_an_array_as_truth_is_of_the_variables_alone():
    timed = [party.assign(t=np.arange(len(party))) for party in PARTIES]
    run = simulate("2dbn", timed, truth=TRUTH.weights, time_column="t")
    assert run.metrics["num_true"] == TRUTH.num_edges


def test_a_saved_run_comes_back(tmp_path):
    run = simulate("2dbn", PARTIES, order=2, truth=TRUTH)
    run.save(tmp_path)
    again = Run.load(tmp_path)
    assert again.graph.equals(run.graph)
    assert again.graph.lagged.shape == (2, 4, 4)
    np.testing.assert_allclose(again.scores, run.scores)


def changed(change):
    tables = [party.assign(t=np.arange(61.0), id="a", quiet=False) for party in PARTIES]
    tables[1] = change(tables[1].copy())
    return tables


def at(row, column, value):
    def change(table):
        table.loc[row, column] = value
        return table

    return change


def swapped(table):
    return table.iloc[[*range(10), 11, 10, *range(12, 61)]]


ROLES = {"time_column": "t", "series_column": "id", "phase_column": "quiet"}
BAD = {
    "too short": (changed(lambda t: t.iloc[:3]), {"order": 2}, [SECOND, "order 2", "4 steps"]),
    "nan": (changed(at(7, "x1", np.nan)), {}, [SECOND, "x1", "missing", "step 8", "split"]),
    "infinite": (changed(at(7, "x1", np.inf)), {}, [SECOND, "x1", "infinite", "step 8"]),
    "constant": ([t.assign(x2=7.0) for t in changed(lambda t: t)], {}, ["x2", "constant"]),
    "other columns": (changed(lambda t: t.rename(columns={"x2": "age"})), {}, [SECOND, "x2"]),
    "unsorted": (changed(swapped), {}, [SECOND, "'t'", "step 12", "earlier", "sort"]),
    "repeated": (changed(at(9, "t", 8.0)), {}, [SECOND, "'t'", "step 10", "the same as"]),
    "gap": (changed(lambda t: t.drop(index=30)), {}, [SECOND, "'t'", "step 31", "gaps='split'"]),
    "no series": (PARTIES, {"time_column": ""}, ["party 0", "series_column", "id"]),
    "no time": (
        PARTIES,
        {"series_column": "", "phase_column": ""},
        ["party 0", "time_column", "t"],
    ),
    "no phase": (
        PARTIES,
        {"series_column": "", "time_column": ""},
        ["party 0", "phase_column", "quiet"],
    ),
    "all perturbed": (
        [table.assign(quiet=True) for table in changed(lambda t: t)],
        {"center": "phase"},
        ["all parties", "all steps", "center='series'"],
    ),
    "time renamed": (
        changed(lambda t: t.rename(columns={"t": "T"})),
        {"truth": TRUTH.weights},
        [SECOND, "time_column='t'", "did you mean 'T'"],
    ),
    "series renamed": (
        changed(lambda t: t.rename(columns={"id": "ID"})),
        {},
        [SECOND, "series_column='id'", "did you mean 'ID'"],
    ),
    "phase dropped": (
        changed(lambda t: t.drop(columns=["quiet", "x2"])),
        {},
        [SECOND, "phase_column='quiet'", "correct the option"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_series(case, grids):
    parties, options, words = BAD[case]
    with pytest.raises(DataError) as caught:
        simulate("2dbn", parties, strict=True, **{**ROLES, **options})
    for word in words:
        assert word in str(caught.value)
    assert all(not grid.training_messages for grid in grids)


def test_a_party_may_be_perturbed_all_the_time():
    run = simulate("2dbn", changed(lambda t: t.assign(quiet=True)), **ROLES, center="phase")
    assert run.parties[SECOND] == 60
    assert run.graph.lagged.any()


def test_series_that_are_left_out_are_pointed_out():
    first, second, third = (party.to_numpy() for party in PARTIES)
    run = simulate("2dbn", [[first, second[:2]], third])
    assert [text for text in run.warnings if "series" in text] == [
        "party 'party 0': 1 of 2 series (2 steps in all) are shorter than the 3 steps that order 1 "
        "needs, and are not used"
    ]
    assert simulate("2dbn", [[first, second], third]).warnings == []


@pytest.mark.parametrize("case", ["gap", "nan"])
def test_the_remedy_for_gaps_works(case):
    run = simulate("2dbn", BAD[case][0], **ROLES, gaps="split")
    # One row lost, and one row of the design for each of the two pieces instead of one.
    assert run.parties[SECOND] == 58
    assert run.parties["party 0"] == 60


OPTIONS = {
    "no lags": ({"order": 0}, ["order", "1 or more"]),
    "phase without a column": ({"center": "phase"}, ["center", "phase_column"]),
    "another centre": ({"center": "party"}, ["center", "party", "phase"]),
    "half a range": ({"perturbed_from": 3.0}, ["perturbed_to"]),
    "a range without times": ({"perturbed_from": 3.0, "perturbed_to": 4.0}, ["time_column"]),
    "two roles": ({"series_column": "x0", "time_column": "x0"}, ["x0", "two roles"]),
    "gaps": ({"gaps": "fill"}, ["gaps", "'fail' or 'split'"]),
    "threshold": ({"lagged_threshold": -0.1}, ["lagged_threshold", "0 or more"]),
    "sparsity": ({"lagged_sparsity": -1.0}, ["lagged_sparsity", "0 or more"]),
    "too few rounds": ({"max_rounds": 5}, ["max_rounds", "6 or more"]),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(case, grids):
    options, words = OPTIONS[case]
    with pytest.raises(ConfigError) as caught:
        simulate("2dbn", PARTIES, **options)
    for word in words:
        assert word in str(caught.value)
    assert all(not grid.sent for grid in grids)


@pytest.mark.parametrize("method", ["moments", "notears-admm", "fedges"])
def test_other_methods_refuse_lists_of_series(method, grids):
    with pytest.raises(DataError, match=r"list of tables.*time series.*no time"):
        simulate(method, [[party, party] for party in PARTIES])
    assert all(not grid.training_messages for grid in grids)


# The app of ``flwr run``, without Flower's processes.


@pytest.fixture
def job(caplog):
    def start(num_nodes=3, **config):
        config = {"method": "2dbn", **{k.replace("_", "-"): v for k, v in config.items()}}
        grid = SpyGrid(nodes, num_nodes, run_config=config)
        caplog.set_level("INFO", logger="flwr")
        server.server_app()(grid, Context(grid.run.run_id, 1, {}, RecordDict(), dict(config)))
        return json.loads(caplog.records[-1].getMessage())["flwr-causal"]

    return start


def test_the_app_on_synthetic_series(job, tmp_path):
    result = job(variables=5, rows=300, seed=1, output_dir=str(tmp_path), **{"2dbn.order": 2})
    assert result["status"] == "completed"
    assert result["rounds"] <= 25
    run = Run.load(tmp_path)
    assert run.graph.lagged.shape == (2, 5, 5)
    assert run.metrics["lagged_shd"] <= 3
    assert sum(run.parties.values()) == 300 - 3


def test_the_app_on_a_table_of_named_series(job, tmp_path):
    frames = [party.assign(id=f"s{k}") for k, party in enumerate([*PARTIES, PARTIES[0]])]
    pd.concat(frames).to_csv(tmp_path / "all.csv", index=False)
    data = str(tmp_path / "all.csv")
    job(data=data, output_dir=str(tmp_path / "out"), **{"2dbn.series-column": "id"})
    run = Run.load(tmp_path / "out")
    assert list(run.parties.values()) == [120, 60, 60]
    assert run.graph.names == TRUTH.names
