"""The job of ``flwr run`` for circuits: judged on rows set aside, asked about those of a file."""

import json
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from federations import SpyGrid
from flwr.app import Context, RecordDict

from flwr_causal.app.comparison import calibration, circuit_scores, query_table
from flwr_causal.app.server import server_app
from flwr_causal.client_app import app as nodes
from flwr_causal.data.partition import split_columns
from flwr_causal.data.read.example_tables import breast_cancer
from flwr_causal.errors import CausalError, ConfigError, DataError
from flwr_causal.reports.run import Run

COLUMNS = ["mean radius", "mean texture", "mean smoothness", "mean symmetry", "area error"]
SCORES = {"log_likelihood", "accuracy", "majority", "macro_f1", "auroc"}
# Those in the log, and in its last line.
SHOWN = SCORES - {"majority"}


@pytest.fixture(scope="module")
def table():
    return breast_cancer()[[*COLUMNS, "target"]]


@pytest.fixture
def job(caplog, table, tmp_path):
    """Run the app with FedPC on a table; return what it has saved."""

    def start(num_nodes=2, node_configs=None, **options):
        config = {"method": "fedpc", "output-dir": str(tmp_path / "out"), **options}
        if "data" not in config and node_configs is None:
            config["data"] = str(tmp_path / "all.csv")
            table.to_csv(config["data"], index=False)
        start.grid = SpyGrid(nodes, num_nodes, run_config=config, node_configs=node_configs)
        caplog.clear()
        caplog.set_level("INFO", logger="flwr")
        server_app()(start.grid, Context(start.grid.run.run_id, 1, {}, RecordDict(), config))
        return Run.load(tmp_path / "out")

    start.lines = lambda: [record.getMessage() for record in caplog.records]
    return start


def numbers_behind(lines, start):
    """The figures of the line of the log that starts so; "-" where there is none."""
    (line,) = [line for line in lines if line.startswith(f"  {start}")]
    return line[26:].split()


def test_a_class_that_guessing_predicts_as_well_is_warned_of(job, tmp_path):
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    noise["target"] = np.where(rng.random(300) < 0.08, "ill", "well")
    noise.to_csv(tmp_path / "rare.csv", index=False)
    data = {"data": str(tmp_path / "rare.csv"), "compare": False}
    run = job(2, **data)
    (text,) = [text for text in run.warnings if "most frequent class" in text]
    assert f"{run.metrics['majority']:.3f}" in text
    assert "macro-f1" in text
    assert any(text in line for line in job.lines())
    assert not any(
        "frequent class" in w for w in job(2, **data, **{"fedpc.decision": "macro-f1"}).warnings
    )


def test_rows_of_three_parties(job):
    run = job(3)
    assert set(run.metrics) == SCORES | {"calibration", "pooled", "alone"}
    pooled, alone = run.metrics["pooled"], run.metrics["alone"]
    assert set(pooled) == set(alone) == SCORES
    # Sums over all parties' rows give the circuit of the pooled rows; one alone knows less (-4.10
    # nats against -4.02 when measured).
    assert {name: run.metrics[name] for name in SCORES} == pytest.approx(pooled, abs=1e-9)
    assert run.metrics["log_likelihood"] > alone["log_likelihood"] + 0.04
    assert run.metrics["auroc"] > 0.95
    assert 0.7 * 569 < sum(run.parties.values()) < 0.9 * 569
    result = json.loads(job.lines()[-1])["flwr-causal"]
    assert result["status"] == "completed"
    assert result["edges"] is None
    assert {name: result[name] for name in SHOWN} == {name: run.metrics[name] for name in SHOWN}
    shown = numbers_behind(job.lines(), "together, federated")
    assert shown == [f"{run.metrics[name]:.3f}" for name in result if name in SHOWN]
    assert numbers_behind(job.lines(), "all rows pooled") == shown
    assert numbers_behind(job.lines(), "each party alone") == [
        f"{alone[name]:.3f}" for name in result if name in SHOWN
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize("setting", ["vertical", "hybrid"])
def test_columns_of_two_parties(job, setting):
    run = job(setting=setting, **{"fedpc.training": "one-pass"})
    assert set(run.metrics["pooled"]) >= SCORES
    # A part of the columns has no log density that could be compared.
    assert set(run.metrics["alone"]) == SCORES - {"log_likelihood"}
    assert run.metrics["accuracy"] > 0.85
    assert run.metrics["pooled"]["log_likelihood"] > run.metrics["log_likelihood"]
    assert numbers_behind(job.lines(), "each party alone")[0] == "-"


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:column 'pixel_:UserWarning")  # states of held-out rows alone
def test_images_of_digits(job):
    """Accuracy .963 / .945 when measured."""
    run = job(3, data="digits", compare=False, **{"constant-columns": "drop"})
    assert run.metrics["accuracy"] > 0.93
    assert len(run.model.classes()) == 10


def test_without_a_comparison(job):
    run = job(compare=False)
    assert set(run.metrics) == SCORES | {"calibration"}
    assert not any("pooled" in line or "alone" in line for line in job.lines())


def test_without_rows_set_aside(job):
    run = job(**{"test-share": 0.0})
    assert run.metrics == {}
    assert sum(run.parties.values()) == 569
    assert not any("How well" in line for line in job.lines())


@pytest.mark.slow
def test_a_target_of_another_name(job, table, tmp_path):
    other = table.rename(columns={"target": "outcome"})
    other.to_csv(tmp_path / "other.csv", index=False)
    options = {"data": str(tmp_path / "other.csv"), "compare": False}
    expected = job(compare=False)
    found = job(**options, **{"fedpc.target": "outcome"})
    assert found.model.target == "outcome"
    assert set(found.model.classes()) == {"benign", "malignant"}
    assert found.metrics == expected.metrics
    # Nobody said which column is the class: there is only a density.
    without = job(**options)
    assert without.model.target is None
    assert set(without.metrics) == {"log_likelihood"}


@pytest.mark.slow
def test_tables_in_a_directory_are_aligned_by_ids(job, table, tmp_path):
    ids = [f"p{k:03}" for k in np.random.default_rng(0).permutation(len(table))]
    named = table.assign(patient=ids)
    parties = split_columns(named, 2, "vertical", target="target", row_id="patient")
    (tmp_path / "parties").mkdir()
    for name, party in zip("ab", parties, strict=True):
        party.sample(frac=1, random_state=1).to_csv(tmp_path / f"parties/{name}.csv", index=False)
    options = {"data": str(tmp_path / "parties"), "row-id": "patient"}
    run = job(**options, query=str(tmp_path / "parties"))
    assert "patient" not in run.model.names
    exchanges = [record["exchange"] for record in run.history]
    assert exchanges[-3:] == ["align", "masked tables", "products"]
    assert run.metrics["accuracy"] > 0.85
    # The query joins the tables by the same ids.
    assert sorted(run.answers["patient"]) == sorted(ids)
    truth = table.assign(patient=ids).set_index("patient")["target"]
    told = run.answers.set_index("patient")["predicted"]
    right = told == truth.reindex(told.index)
    assert right.mean() == pytest.approx(run.metrics["query"]["accuracy"], abs=1e-12)
    with pytest.raises(DataError, match="num-supernodes=2"):
        job(3, **options)


def test_calibration_counts_how_often_the_most_probable_class_is_right():
    shares = np.array([[0.95, 0.05], [0.09, 0.91], [1.0, 0.0], [0.5, 0.5], [0.45, 0.55]])
    found = calibration(shares, np.array([0, 0, 0, 1, -1]))
    assert [row["rows"] for row in found] == [2, 3]
    assert [row["right"] for row in found] == [0.0, pytest.approx(2 / 3)]
    assert [row["probability"] for row in found] == [pytest.approx(0.525), pytest.approx(2.86 / 3)]


def test_a_query_is_answered(job, table, tmp_path):
    rows = table.iloc[:30].assign(row_id=range(100, 130))
    rows.loc[3, "mean radius"] = np.nan
    rows.to_csv(tmp_path / "rows.csv", index=False)
    run = job(query=str(tmp_path / "rows.csv"), compare=False)
    found = run.answers
    assert list(found.columns) == [
        *("row_id", "log_likelihood", "predicted", "p(benign)", "p(malignant)")
    ]
    assert found["row_id"].tolist() == list(range(100, 130))
    np.testing.assert_allclose(found["log_likelihood"], run.model.log_likelihood(rows), rtol=1e-12)
    assert found["predicted"].tolist() == run.model.predict(rows).tolist()
    np.testing.assert_allclose(found[["p(benign)", "p(malignant)"]].sum(axis=1), 1.0, atol=1e-12)
    expected = circuit_scores(run.model, rows)
    for one, other in zip(
        run.metrics["query"].pop("calibration"), expected.pop("calibration"), strict=True
    ):
        assert one == pytest.approx(other)
    assert run.metrics["query"] == pytest.approx(expected)
    assert numbers_behind(job.lines(), "the rows of the query")[1] == (
        f"{run.metrics['query']['accuracy']:.3f}"
    )


def test_a_query_of_rows_whose_class_nobody_knows(job, table, tmp_path):
    table[COLUMNS[:3]].iloc[:5].to_csv(tmp_path / "rows.csv", index=False)
    options = {"setting": "vertical", "compare": False, "test-share": 0.0}
    run = job(query=str(tmp_path / "rows.csv"), **options)
    assert set(run.metrics) == {"query"}
    assert set(run.metrics["query"]) == {"log_likelihood"}
    assert set(run.answers["predicted"]) <= {"benign", "malignant"}
    assert len(run.answers) == 5
    assert numbers_behind(job.lines(), "the rows of the query")[1:] == ["-", "-", "-"]


def test_a_query_that_cannot_be_is_found_before_training(job, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("mean radius\n14\n")
    for options, words in (
        ({"query": "rows.csv"}, "'rows.csv' is a relative path"),
        ({"query": str(tmp_path / "none.csv")}, r"no file '.*none\.csv', which the option 'query'"),
        ({"query": str(rows), "method": "moments"}, "fit a circuit, not for 'moments'"),
    ):
        with pytest.raises(ConfigError, match=words):
            job(**options)
        assert not job.grid.sent
        assert json.loads(job.lines()[-1])["flwr-causal"]["status"] == "failed"


def test_rows_that_do_not_fit_do_not_cost_the_run(job, tmp_path):
    (tmp_path / "rows.csv").write_text("mean radius,target\nlarge,benign\n")
    with pytest.raises(DataError, match="mean radius"):
        job(query=str(tmp_path / "rows.csv"), compare=False)
    saved = Run.load(tmp_path / "out")
    assert "mean radius" in saved.error
    assert saved.model.target == "target"


@pytest.mark.filterwarnings("ignore:column 'target'. 1 rows hold values that no party had")
def test_a_class_that_nobody_has_seen_is_not_predicted(job, table, tmp_path):
    rows = table.iloc[:10].copy()
    rows.loc[0, "target"] = "unheard"
    rows.to_csv(tmp_path / "rows.csv", index=False)
    run = job(query=str(tmp_path / "rows.csv"), compare=False)
    right = (run.answers["predicted"] == rows["target"]).sum()
    assert run.metrics["query"]["accuracy"] == pytest.approx(right / 10)
    assert right <= 9


def test_an_empty_directory_of_rows(tmp_path):
    (tmp_path / "notes.txt").write_text("no table")
    with pytest.raises(DataError, match="holds no table"):
        query_table(str(tmp_path))


@pytest.fixture
def on_nodes(table, tmp_path):
    """The node configs of two parties with columns of their own, by the secret of each."""

    def configs(*secrets):
        made = []
        parties = split_columns(table, 2, "vertical", target="target")
        for number, (party, secret) in enumerate(zip(parties, secrets, strict=True)):
            path = tmp_path / f"{number}.csv"
            party.to_csv(path, index=False)
            config = {
                "name": f"clinic {number}",
                "data-path": str(path),
                "row-secret": 5 * secret + "0123",
            }
            made.append({**config, "model-path": str(tmp_path / "kept" / f"{number}.npz")})
        return made

    return configs


@pytest.mark.slow
def test_nodes_keep_their_circuits_for_a_later_run(job, on_nodes, table, tmp_path):
    table.iloc[:20].to_csv(tmp_path / "rows.csv", index=False)
    query = {"query": str(tmp_path / "rows.csv"), "fedpc.training": "one-pass"}
    first = job(node_configs=on_nodes("heron", "heron"), **query)
    assert set(first.metrics) == {"query"}
    results = tmp_path / "again"
    options = {**query, "output-dir": str(results), "fedpc.trained": str(tmp_path / "out")}
    job(node_configs=on_nodes("heron", "heron"), **options)
    again = Run.load(results)
    assert [record["exchange"] for record in again.history] == ["recall"]
    pd.testing.assert_frame_equal(again.answers, first.answers)
    assert again.metrics == first.metrics


@pytest.mark.slow
def test_circuits_replace_circuits_only(job, on_nodes, tmp_path, monkeypatch):
    configs = on_nodes("heron", "heron")
    own = [config["data-path"] for config in configs]
    before = [Path(path).read_bytes() for path in own]
    np.savez(tmp_path / "table.npz", data=np.eye(3))
    with monkeypatch.context() as patch:
        # The error comes before.
        patch.setattr("flwr_causal.sources.own_circuits.train_party", None)
        for place in (own[0], str(tmp_path / "table.npz")):
            wrong = [{**configs[0], "model-path": place}, configs[1]]
            with pytest.raises(CausalError, match="holds no circuits: name another file"):
                job(node_configs=wrong, **{"fedpc.training": "one-pass"})
    assert [Path(path).read_bytes() for path in own] == before
    job(node_configs=configs, **{"fedpc.training": "one-pass"})
    made = sorted((tmp_path / "kept").iterdir())
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o600] * 2
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    job(node_configs=configs, **{"fedpc.training": "one-pass"})


def test_nodes_of_different_secrets_have_no_row_in_common(job, on_nodes):
    for training, words in (
        ("one-pass", "clinic 0, clinic 1 have no row in common"),
        ("auto", "have no row in common: .*row-secret is the same.*fedpc.weights"),
        ("triples", "known of 0 rows.*row-secret"),
    ):
        with pytest.raises(CausalError, match=words):
            job(node_configs=on_nodes("heron", "egret"), **{"fedpc.training": training})
