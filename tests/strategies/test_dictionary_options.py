"""What a dictionary says of a strategy's options: roles, tiers, and what contradicts it."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.app.config import read_config
from flwr_causal.app.methods import CLIENTS
from flwr_causal.app.sources import source_of
from flwr_causal.clients import client_app
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.errors import ConfigError
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.strategies import FedGES, FedPC, Moments, TwoDBN, run

COLUMNS = """
[columns.patient]
kind = "id"
role = "row-id"
[columns.ward]
kind = "id"
role = "series"
[columns.day]
kind = "date"
role = "time"
[columns.acted]
kind = "text"
role = "intervention"
[columns.x]
kind = "number"
tier = 1
[columns.y]
kind = "number"
tier = 2
[columns.z]
kind = "category"
states = ["no", "yes"]
role = "target"
tier = 2
"""


X_AND_Y = '[columns.x]\nkind = "number"\n[columns.y]\nkind = "number"\n'


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "dictionary.toml"
    path.write_text(COLUMNS)
    return str(path)


def test_roles_name_the_columns_of_the_options_that_a_method_has(file):
    options = Moments(dictionary=file).options
    assert (options.row_id, options.intervention_column) == ("patient", "acted")
    # These are for time series alone.
    assert (options.series_column, options.time_column) == ("", "")
    lagged = TwoDBN(dictionary=file).options
    assert (lagged.series_column, lagged.time_column) == ("ward", "day")
    assert FedPC(dictionary=file).options.target == "z"
    assert FedGES(dictionary=file).options.row_id == "patient"


def test_a_run_may_leave_a_role_out(file):
    assert Moments(dictionary=file).options.intervention_column == "acted"
    assert Moments(dictionary=file, exclude="acted").options.intervention_column == ""


def test_tiers_are_knowledge_of_the_columns_that_are_used(file):
    assert Moments(dictionary=file).options.knowledge.tiers == (("x",), ("y", "z"))
    some = Moments(dictionary=file, exclude="z").options.knowledge
    assert some.tiers == (("x",), ("y",))
    assert Moments(dictionary=file, columns="y,z").options.knowledge is None
    both = Moments(dictionary=file, knowledge=Knowledge(required=[("x", "y")])).options.knowledge
    assert (both.required, both.tiers) == ((("x", "y"),), (("x",), ("y", "z")))
    same = Knowledge(tiers=[["x"], ["y", "z"]])
    assert Moments(dictionary=file, knowledge=same).options.knowledge.tiers == same.tiers


CONTRADICTIONS = {
    "row_id": ({"row_id": "other"}, "'row_id' is 'other', and the dictionary gives .* 'patient'"),
    "tiers": ({"knowledge": Knowledge(tiers=[["y"], ["x"]])}, "both have tiers, and they differ"),
    "required": (
        {"knowledge": Knowledge(required=[("y", "x")])},
        "y -> x is required, but y is in",
    ),
    "missing_texts": ({"missing_texts": "?"}, "missing_texts='\\?' and a dictionary both say"),
    "numbers": (
        {"numbers": "x", "text_columns": "keep", "exclude": "acted"},
        "numbers='x' and a dictionary both say",
    ),
    "epsilon": ({"epsilon": 1.0, "exclude": "z"}, "'exclude' is .* left out with epsilon"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_options_that_contradict_it_are_errors(file, name):
    options, words = CONTRADICTIONS[name]
    with pytest.raises(ConfigError, match=words):
        Moments(dictionary=file, **options).handling  # noqa: B018 - a property that checks


def test_it_is_a_key_of_a_run_config_and_an_absolute_path(file):
    _, _, strategy = read_config({"method": "moments", "dictionary": file, "columns": "x,y"})
    assert strategy._entries.of_role("row-id") == "patient"
    assert strategy.options.columns == "x,y"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config({"method": "moments", "dictionary": "nowhere.toml"})


def test_a_dictionary_is_for_tables(file):
    from flwr_causal.app.config import DataConfig
    from flwr_causal.app.sources import simulation

    with pytest.raises(ConfigError, match="'dictionary' is for tables"):
        simulation(DataConfig(), 2, reading=Moments(dictionary=file)._reading)


def series(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 120))
    y[1:] += 0.9 * x[:-1]
    days = pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")
    return pd.DataFrame({"x": x, "y": y, "day": [*days, *days], "ward": np.repeat(["a", "b"], 60)})


def test_series_and_times_are_found_by_their_roles(tmp_path):
    file = tmp_path / "dictionary.toml"
    text = COLUMNS.partition("[columns.acted]")[0] + (
        '[columns.x]\nkind = "number"\n[columns.y]\nkind = "number"\n'
    )
    file.write_text(text.partition("[columns.ward]")[1] + text.partition("[columns.ward]")[2])
    parties = [series(seed) for seed in range(2)]
    found = simulate("moments", parties, dictionary=str(file), order=1)
    options = {"series_column": "ward", "time_column": "day"}
    expected = simulate("moments", parties, order=1, **options)
    np.testing.assert_allclose(found.graph.lagged, expected.graph.lagged, rtol=1e-12)
    assert found.graph.lagged[0, 0, 1] > 0.5
    # Without lags the same dictionary leaves them out.
    assert simulate("moments", parties, dictionary=str(file)).graph.names == ("x", "y")


@pytest.fixture
def parties():
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(2):
        x = rng.normal(size=(90, 4)).cumsum(axis=1)
        tables.append(pd.DataFrame(x, columns=[*"abcd"]).assign(note="seen by a nurse"))
    tables[0].loc[3, "d"] = np.nan
    return tables


def test_columns_are_the_only_ones_that_are_used(parties):
    found = simulate("moments", parties, columns="c, a,b")
    expected = simulate("moments", [one[[*"abc"]] for one in parties])
    assert found.graph.names == expected.graph.names
    np.testing.assert_array_equal(found.graph.weights, expected.graph.weights)
    # The gap of a column that is not used costs no row.
    assert found.num_rows is None or found.num_rows == 180
    both = simulate("moments", parties, columns="c,a,b", exclude="b")
    assert both.graph.names == ("a", "c")
    assert any("'columns' does not name it" in one for one in found.warnings)


def test_columns_that_no_party_has_are_named(parties):
    with pytest.raises(ConfigError, match="'columns' names the column 'bb', which no party has"):
        simulate("moments", parties, columns="a,bb")
    with pytest.raises(ConfigError, match="'columns' names no column of the tables"):
        simulate("moments", [one.assign(row_id=range(90)) for one in parties], columns="row_id")
    with pytest.raises(ConfigError, match="'columns' is 'a'; it must be left out with epsilon"):
        Moments(columns="a", epsilon=1.0)


def test_a_column_of_a_tier_that_is_dropped_is_no_error(tmp_path, parties):
    file = tmp_path / "dictionary.toml"
    body = "".join(f"[columns.{c}]\nkind = 'number'\ntier = {k}\n" for k, c in enumerate("abc"))
    file.write_text(body + "optional = true\n")
    lacking = [parties[0], parties[1].drop(columns="c")]
    for method in ("moments", "fedges", "notears-admm"):
        more = {"fedges": {"discretize": 3}, "notears-admm": {"max_rounds": 30}}.get(method, {})
        found = simulate(method, lacking, dictionary=str(file), unshared_columns="drop", **more)
        assert found.graph.names == ("a", "b")
        assert not found.graph.adjacency[1, 0]
        assert found.report(tmp_path / "page.html").exists()


def test_a_table_that_is_dealt_to_simulated_nodes_is_read_by_it(tmp_path):
    """As flwr run does it: client and server read the dictionary that the run config names."""
    file, data = tmp_path / "dictionary.toml", tmp_path / "all.csv"
    file.write_text(COLUMNS.partition("[columns.x]")[0].partition("[columns.day]")[0] + X_AND_Y)
    table = pd.concat([series(seed) for seed in range(2)], ignore_index=True)
    table["ward"] = np.repeat([*"abcd"], 60)
    table.assign(patient=range(240)).to_csv(data, index=False)
    config = {"method": "2dbn", "dictionary": str(file), "data": str(data), "2dbn.order": 1}
    nodes = [{"partition-id": k, "num-partitions": 2} for k in range(2)]
    grid = LocalGrid(client_app(CLIENTS, source_of), 2, run_config=config, node_configs=nodes)
    found = run(read_config(config)[2], grid)
    assert found.graph.names == ("x", "y")
    assert found.graph.lagged[0, 0, 1] > 0.5
