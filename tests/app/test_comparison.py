"""What all rows in one place and each party alone would have found, and FedGES as an app."""

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from category_federations import coded, make_tables, pooled
from federations import SpyGrid, make_federation
from flwr.app import Context, RecordDict

from flwr_causal.app.comparison import baselines
from flwr_causal.app.methods import METHODS
from flwr_causal.app.server import server_app
from flwr_causal.client_app import app as nodes
from flwr_causal.clients import MomentsClient
from flwr_causal.core.discrete.scores import score_graph
from flwr_causal.core.ges.ges import ges
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.read.bif import write_bif
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate
from flwr_causal.strategies import CausalOptions, FedGES, Moments
from flwr_causal.strategies.fedges.base import concatenated
from flwr_causal.strategies.moments import MomentsOptions

TABLES, NETWORK = make_tables(d=6, n=900, parties=3, seed=3)
NAMES = tuple(TABLES[0].columns)
CLASSES = ("cpdag_shd", "smhd", "adjacency_precision", "adjacency_recall")


# The baselines.


def found_by(strategy, tables=TABLES, names=NAMES, truth=NETWORK.graph):
    return baselines(strategy, METHODS[strategy.method].client, tables, names, truth)


@pytest.mark.slow
def test_the_baselines_are_ges_on_all_rows_and_on_each_partys():
    found = found_by(FedGES())
    together = compare(NETWORK.graph, ges(pooled(TABLES), score="bic"))
    assert found["pooled"] == {name: together[name] for name in CLASSES}
    each = [compare(NETWORK.graph, ges(part, score="bic")) for part in coded(TABLES)]
    assert found["alone"] == pytest.approx(
        {name: np.mean([entry[name] for entry in each]) for name in CLASSES}
    )
    assert found["pooled"]["smhd"] < found["alone"]["smhd"]
    assert found["solver"] == "GES, BIC"


@pytest.mark.slow
def test_the_baselines_have_the_columns_and_rows_of_the_run():
    tables = [table.assign(same="a") for table in TABLES]
    tables[0].loc[:4, "x1"] = None
    found = found_by(FedGES(constant_columns="drop", missing_values="drop"), tables)
    clean = [tables[0].dropna()[list(NAMES)], *TABLES[1:]]
    assert found == found_by(FedGES(), clean)
    turned = [clean[0], *(table[list(NAMES[::-1])] for table in clean[1:])]
    assert found_by(FedGES(), turned) == found


def test_a_party_of_few_rows_has_a_result_alone():
    """Fewer rows than states that others have seen must not end a finished run."""
    tables = [TABLES[0].iloc[:1], TABLES[1].iloc[:2], TABLES[2]]
    found = found_by(FedGES(), tables)
    assert set(found["alone"]) == set(CLASSES)
    # What it would find from its own rows, in the states that it has.
    each = [compare(NETWORK.graph, ges(table, score="bic"))["smhd"] for table in tables]
    assert found["alone"]["smhd"] == pytest.approx(np.mean(each))


def test_the_score_is_that_of_the_pooled_rows():
    graph = NETWORK.graph
    for size in (1.0, 7.5):
        found = FedGES(equivalent_sample_size=size)._pooled_metrics(TABLES, graph)
        expected = score_graph(graph, pooled(TABLES), "bdeu", size)
        assert found == {"bdeu": pytest.approx(expected)}
    rows = concatenated(coded(TABLES))
    assert rows.num_rows == 900
    assert score_graph(graph, rows) == pytest.approx(score_graph(graph, pooled(TABLES)))


def test_nothing_is_compared_where_the_federation_cuts_the_columns():
    assert found_by(FedGES(discretize=3)) == {}
    assert FedGES(discretize=3)._pooled_metrics(TABLES, NETWORK.graph) == {}


def test_linear_methods_are_compared_with_a_search_over_orders():
    federation = make_federation()
    found = found_by(Moments(), federation.tables, federation.truth.names, federation.truth)
    assert found["pooled"] == {"shd": 0, "tpr": 1.0, "fdr": 0.0}
    assert found["alone"]["shd"] >= 0
    assert found["solver"] == "order search"


def test_time_series_are_compared_with_nothing():
    assert found_by(Moments(order=1)) == {}


@dataclass(frozen=True, kw_only=True)
class StrangersOptions(MomentsOptions):
    """Options that know no faster solver."""

    baselines = CausalOptions.baselines


class Strangers(Moments):
    """A method of somebody else's, for categories, that says nothing of baselines."""

    method = "strangers"
    data = DataKind.CATEGORIES
    options_type = StrangersOptions


def test_a_strangers_method_is_compared_with_itself_alone(caplog):
    federation = make_federation()
    tables = [*federation.tables, federation.tables[0].iloc[:0]]
    names, truth = federation.truth.names, federation.truth
    found = baselines(Strangers(), MomentsClient, tables, names, truth)
    whole = simulate(Moments(), [pd.concat(tables)], truth=truth)
    each = [simulate(Moments(), [table], truth=truth) for table in federation.tables]
    assert found["pooled"] == {name: whole.metrics[name] for name in ("shd", "tpr", "fdr")}
    assert found["alone"]["shd"] == np.mean([run.metrics["shd"] for run in each])
    assert "solver" not in found
    # The party without rows finds nothing alone; the others are compared all the same.
    assert "No comparison with 0 rows alone" in caplog.text
    run = simulate(Strangers(), federation.tables, truth=truth, client=MomentsClient)
    assert run.metrics["shd"] == 0


# The app.


@pytest.fixture
def job(caplog):
    """Run the app over nodes; return what the lines of the log say."""

    def start(values, num_nodes=3, node_configs=None):
        values = {"method": "fedges", **values}
        grid = SpyGrid(nodes, num_nodes, run_config=values, node_configs=node_configs)
        caplog.set_level("INFO", logger="flwr")
        caplog.clear()
        server_app()(grid, Context(grid.run.run_id, 1, {}, RecordDict(), dict(values)))
        lines = [record.getMessage() for record in caplog.records]
        return lines, json.loads(lines[-1])["flwr-causal"]

    return start


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "phases"),
    [
        ({}, "likelihoods counts fit"),
        ({"fedges.mode": "exact"}, "counts fit"),
        ({"fedges.mode": "fusion"}, "graphs judge"),
        ({"fedges.start": "overwrite", "fedges.keep": "last"}, "graph"),
        ({"fedges.fusion": 0.4, "fedges.parameters": True}, "graphs judge fit"),
    ],
    ids=str,
)
def test_a_run_without_data(job, tmp_path, options, phases):
    lines, result = job({"variables": 7, "rows": 900, **options, "output-dir": str(tmp_path)})
    assert result["status"] == "completed"
    assert {"cpdag_shd", "smhd", "shd", "rounds", "bytes_sent"} <= set(result)
    run = Run.load(tmp_path)
    assert {record["exchange"] for record in run.history} == set(phases.split())
    metrics = run.metrics
    assert {"bdeu", "smhd", "cpdag_shd", "pooled", "alone"} <= set(metrics)
    assert set(metrics["pooled"]) == set(metrics["alone"]) == set(CLASSES)
    assert sum(run.parties.values()) == 900
    text = "\n".join(lines)
    header = next(line for line in lines if line.startswith("Against the truth"))
    assert header.split()[-4:] == [
        "cpdag_shd",
        "smhd",
        "adjacency_recall",
        "adjacency_precision",
    ]
    for row, values in (
        ("together, federated", metrics),
        ("all rows pooled (GES, BIC)", metrics["pooled"]),
        ("each party alone (mean)", metrics["alone"]),
    ):
        (line,) = (line for line in lines if line.strip().startswith(row))
        shown = [float(number) for number in line.replace(row, "").split()]
        assert shown[:2] == pytest.approx([values["cpdag_shd"], values["smhd"]], abs=0.051)
        assert shown[2:] == pytest.approx(
            [values["adjacency_recall"], values["adjacency_precision"]], abs=0.0051
        )
    assert f"{run.graph.num_edges} edges over 7 variables" in text
    assert (tmp_path / "model.bif").exists() == ("fit" in phases)


def test_the_synthetic_network_is_that_of_the_seed(job, tmp_path):
    values = {"variables": 6, "rows": 800, "seed": 4, "output-dir": str(tmp_path)}
    job({**values, "fedges.mode": "exact"}, num_nodes=4)
    run = Run.load(tmp_path)
    tables, network = make_tables(d=6, n=800, parties=4, seed=4)
    expected = simulate("fedges", tables, mode="exact", truth=network.graph)
    assert run.graph.equals(expected.graph)
    assert run.metrics["smhd"] == expected.metrics["smhd"]
    assert run.metrics["bdeu"] == pytest.approx(expected.metrics["bdeu"])
    assert run.metrics["pooled"]["smhd"] == run.metrics["smhd"]


@pytest.fixture
def study(tmp_path):
    """A table of texts with a state that is rare, and the truth in two forms."""
    table = pooled(TABLES).map(lambda state: f"level {state}")
    table.to_csv(tmp_path / "study.csv", index=False)
    write_bif(NETWORK, tmp_path / "truth.bif")
    edges = [(cause, effect) for cause, effect, _ in NETWORK.graph.edges()]
    pd.DataFrame(edges, columns=["source", "target"]).to_csv(tmp_path / "truth.csv", index=False)
    return tmp_path, table


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["bif", "csv"])
@pytest.mark.parametrize("mode", ["exact", "scores", "fusion"])
def test_a_table_of_texts_with_a_known_truth(job, study, kind, mode):
    directory, table = study
    _, result = job(
        {
            "data": str(directory / "study.csv"),
            "truth": str(directory / f"truth.{kind}"),
            "fedges.mode": mode,
            "output-dir": str(directory / "out"),
        }
    )
    run = Run.load(directory / "out")
    assert {name: run.metrics[name] for name in CLASSES} == {
        name: compare(NETWORK.graph, run.graph)[name] for name in CLASSES
    }
    assert result["smhd"] == run.metrics["smhd"]
    if mode == "exact":
        expected = ges(table, score="bic")
        assert np.array_equal(run.graph.adjacency, expected.adjacency)
        assert all(s.startswith("level ") for states in run.model.states for s in states)


def test_without_a_truth_there_is_a_score_and_no_comparison(job, study):
    directory, table = study
    values = {"data": str(directory / "study.csv"), "output-dir": str(directory / "out")}
    lines, result = job(values)
    run = Run.load(directory / "out")
    assert run.metrics == {"bdeu": pytest.approx(score_graph(run.graph, table))}
    assert "smhd" not in result
    assert not any(line.startswith("Against the truth") for line in lines)


def test_numbers_are_discretised_on_demand(job, tmp_path):
    make_federation(d=5, n=400, parties=1).tables[0].to_csv(tmp_path / "n.csv", index=False)
    values = {"data": str(tmp_path / "n.csv"), "output-dir": str(tmp_path / "out")}
    from flwr_causal.errors import DataError

    with pytest.raises(DataError, match="discretize=5"):
        job(values)
    _, result = job({**values, "fedges.discretize": 3})
    assert result["status"] == "completed"
    run = Run.load(tmp_path / "out")
    assert run.history[0]["exchange"] == "cuts"
    assert "bdeu" not in run.metrics
    assert run.model.states[0][0].startswith("<")


def test_real_nodes_with_their_own_files(job, tmp_path):
    configs = []
    for index, table in enumerate(TABLES):
        table.to_csv(tmp_path / f"{index}.csv", index=False)
        configs.append({"data-path": str(tmp_path / f"{index}.csv"), "name": f"clinic-{index}"})
    write_bif(NETWORK, tmp_path / "truth.bif")
    values = {"fedges.mode": "exact", "output-dir": str(tmp_path / "out")}
    job({**values, "truth": str(tmp_path / "truth.bif")}, node_configs=configs)
    run = Run.load(tmp_path / "out")
    assert list(run.parties) == ["clinic-0", "clinic-1", "clinic-2"]
    assert run.metrics["smhd"] == compare(NETWORK.graph, run.graph)["smhd"]
    # The rows stay where they are: nothing is pooled.
    assert not {"alone", "pooled", "bdeu"} & set(run.metrics)
    assert run.graph.names == NAMES
    assert np.array_equal(run.graph.adjacency, ges(pooled(TABLES), score="bic").adjacency)


def test_empty_texts_are_defaults(job):
    _, result = job(
        {
            "variables": 5,
            "rows": 300,
            **{
                f"fedges.{name}": ""
                for name in ("fusion", "start", "max-edges", "keep", "max-parents")
            },
            "knowledge": "",
            "compare": False,
        }
    )
    assert result["status"] == "completed"
