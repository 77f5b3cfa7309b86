"""Where a node's rows come from."""

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, RecordDict

from flwr_causal.app.config import DataConfig, data_config, read_config
from flwr_causal.app.methods import CLIENTS, build
from flwr_causal.app.sources import deal_series, simulation, source_of
from flwr_causal.clients import client_app
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.errors import CausalError, ConfigError, DataError
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.strategies import run


def node(run_config=None, **node_config):
    config = {key.replace("_", "-"): value for key, value in node_config.items()}
    return Context(1, 77, config, RecordDict(), dict(run_config or {}))


@pytest.fixture
def table(tmp_path):
    frame = pd.DataFrame(np.arange(36.0).reshape(12, 3) ** 1.5, columns=["a", "b", "c"])
    frame["site"] = ["u", "v", "w"] * 4
    path = tmp_path / "all.csv"
    frame.to_csv(path, index=False)
    return path, frame


def test_without_data_a_synthetic_system_is_dealt_out():
    config = {"variables": 6, "rows": 90, "graph": "sf", "seed": 4}
    frames, weights = federated_linear(6, 90, 3, graph="sf", seed=4)
    for index in range(3):
        source = source_of(node(config, partition_id=index, num_partitions=3))
        assert source.name == f"party {index}"
        pd.testing.assert_frame_equal(source.read(), frames[index])
    _, truth, _ = simulation(DataConfig(variables=6, rows=90, graph="sf", seed=4), 3)
    assert np.array_equal(truth.weights, weights)
    assert truth.names == tuple(frames[0].columns)


def test_lingam_is_shown_on_noise_that_is_not_gaussian():
    frames, _ = federated_linear(4, 1000, 2, noise="exponential")
    parties = simulation(DataConfig(variables=4), 2, build("lingam", {}).data)[0]
    pd.testing.assert_frame_equal(parties[1], frames[1])


def test_a_table_is_dealt_out(table):
    path, frame = table
    frames, truth, _ = simulation(DataConfig(data=str(path)), 4)
    assert truth is None
    assert [len(f) for f in frames] == [3, 3, 3, 3]
    together = pd.concat(frames).sort_values("a", ignore_index=True)
    pd.testing.assert_frame_equal(together, frame)


def test_a_table_is_dealt_out_by_a_column(table):
    path, _ = table
    config = DataConfig(data=str(path), partition="column", partition_column="site")
    frames, *_ = simulation(config, 3)
    assert sorted(len(set(f["a"])) for f in frames) == [4, 4, 4]
    with pytest.raises((ConfigError, DataError), match=r"site|3"):
        simulation(config, 2)


def test_the_seed_decides_who_gets_what(table):
    path, _ = table
    one, two, other = (
        simulation(DataConfig(data=str(path), partition="uneven", seed=s), 3)[0] for s in (1, 1, 2)
    )
    assert all(a.equals(b) for a, b in zip(one, two, strict=True))
    assert not all(a.equals(b) for a, b in zip(one, other, strict=True))


def test_a_directory_holds_a_table_for_each_party(table, tmp_path):
    _, frame = table
    directory = tmp_path / "parties"
    directory.mkdir()
    frame.iloc[:5].to_csv(directory / "b.csv", index=False)
    frame.iloc[5:].to_parquet(directory / "a.parquet")
    (directory / "readme.txt").write_text("no table")
    frames, *_ = simulation(DataConfig(data=str(directory)), 2)
    assert [len(f) for f in frames] == [7, 5]
    with pytest.raises(DataError, match=r"holds 2 tables.*3 parties.*num-supernodes=2"):
        simulation(DataConfig(data=str(directory)), 3)


def test_paths_must_be_absolute():
    with pytest.raises(ConfigError, match=r"'data/all.csv' is a relative path"):
        simulation(DataConfig(data="data/all.csv"), 2)
    with pytest.raises(DataError, match="does not exist"):
        simulation(DataConfig(data="/nowhere/all.csv"), 2)


def test_a_real_node_reads_its_own_file_and_says_nothing_of_its_path(table):
    path, frame = table
    source = source_of(node(data_path=str(path)))
    pd.testing.assert_frame_equal(source.read(), frame)
    assert source.name == "node 77"
    assert source_of(node(data_path=str(path), name="oslo")).name == "oslo"
    # Read once while the file stays as it is.
    assert source.read() is source.read()


def test_a_file_that_changes_is_read_again(table):
    import os

    path, frame = table
    source = source_of(node(data_path=str(path)))
    assert len(source.read()) == 12
    frame.iloc[:4].to_csv(path, index=False)
    os.utime(path, (1, 1))
    assert len(source.read()) == 4


def test_a_node_without_data_is_told_what_to_do():
    with pytest.raises(DataError, match=r"--node-config .*data-path"):
        source_of(node())


def test_a_missing_file_is_found_when_read():
    source = source_of(node(data_path="/nowhere.csv"))
    with pytest.raises(DataError, match=r"/nowhere\.csv does not exist"):
        source.read()


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"rows": "many"}, "rows"),
        ({"partition": "odd"}, "partition"),
        ({"partition-concentration": "x"}, "partition-concentration"),
        ({"variables": 2.5}, "variables"),
        ({"graph": "ba"}, "graph"),
        ({"seed": True}, "seed"),
    ],
)
def test_ill_typed_values(values, name):
    with pytest.raises(ConfigError, match=f"'{name}' is"):
        data_config(values)


def test_other_keys_are_left_to_others():
    config = data_config({"method": "moments", "rows": 30, "partition-column": "s"})
    assert config == DataConfig(rows=30, partition_column="s")


# Time series.


def test_synthetic_series_are_dealt_out():
    config = {"method": "2dbn", "variables": 4, "rows": 90, "seed": 3}
    expected, truth = federated_dynamic(4, 90, 3, seed=3)
    for index in range(3):
        source = source_of(node(config, partition_id=index, num_partitions=3))
        pd.testing.assert_frame_equal(source.read(), expected[index])
    made = DataConfig(variables=4, rows=90, seed=3)
    known = simulation(made, 3, DataKind.SERIES).truth
    assert np.array_equal(known.lagged, truth.lagged)


def test_a_series_is_dealt_out_in_stretches(table):
    path, frame = table
    config = {"method": "2dbn", "data": str(path), "2dbn.series-column": ""}
    parts = [source_of(node(config, partition_id=k, num_partitions=5)).read() for k in range(5)]
    assert [len(part) for part in parts] == [3, 3, 2, 2, 2]
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), frame)
    assert all(part.index[0] == 0 for part in parts)


def test_named_series_are_dealt_out_whole_and_in_their_order(table):
    path, frame = table
    config = {"method": "2dbn", "data": str(path), "2dbn.series-column": "site"}
    one, two = (source_of(node(config, partition_id=k, num_partitions=2)).read() for k in range(2))
    assert list(one["site"]) == ["u", "w"] * 4
    assert set(two["site"]) == {"v"}
    expected = frame[frame["site"] == "v"].reset_index(drop=True)
    pd.testing.assert_frame_equal(two, expected)


@pytest.mark.parametrize(
    ("parties", "column", "words"),
    [
        (13, "", "12 steps cannot be dealt to 13 parties"),
        (4, "site", "3 series cannot be dealt to 4 parties"),
        (2, "ward", "no column 'ward'"),
    ],
)
def test_series_that_cannot_be_dealt_out(table, parties, column, words):
    _, frame = table
    with pytest.raises(DataError, match=words):
        deal_series(frame, parties, column)


def test_maps_beside_the_tables_of_a_simulation(tmp_path):
    """NAME.map.toml beside NAME.csv is the map of that party; other tables need none."""
    dictionary, data = tmp_path / "dictionary.toml", tmp_path / "tables"
    data.mkdir()
    dictionary.write_text(
        '[columns.sex]\nkind = "category"\nstates = ["male", "female"]\n'
        '[columns.weight]\nkind = "number"\nunit = "kg"\nmost = 300\n'
    )
    rng = np.random.default_rng(0)
    sex, weight = rng.integers(0, 2, 60), rng.normal(70, 5, 60)
    words = pd.DataFrame({"sex": np.where(sex, "female", "male"), "weight": weight + 9 * sex})
    words[:30].to_csv(data / "north.csv", index=False)
    codes = pd.DataFrame({"sex": sex + 1, "w_g": 1000 * (weight + 9 * sex)})
    codes[30:].to_csv(data / "south.csv", index=False)
    own = data / "south.map.toml"
    text = 'sex = {1 = "male", 2 = "female"}\nweight = {from = "w_g", factor = 0.001}\n'
    own.write_text(text)
    config = {"method": "moments", "dictionary": str(dictionary), "data": str(data)}
    options = {"standardize": True, "dictionary": str(dictionary)}
    nodes = [{"partition-id": k, "num-partitions": 2} for k in range(2)]

    def found():
        simulation.cache_clear()
        grid = LocalGrid(client_app(CLIENTS, source_of), 2, run_config=config, node_configs=nodes)
        return run(read_config({**config, "standardize": True})[2], grid).graph

    expected = simulate("moments", [words[:30], words[30:]], **options).graph
    np.testing.assert_allclose(found().weights, expected.weights, rtol=1e-9)
    # The server reads the tables in the same way for its comparisons.
    strategy = read_config(config)[2]
    tables = simulation(DataConfig(data=str(data)), 2, reading=strategy._reading).tables
    assert tables[1]["weight"].max() < 300
    own.write_text('sex = {1 = "man", 2 = "female"}\n')
    with pytest.raises(CausalError, match=r"south\.map\.toml.*'man', which is no state"):
        found()
    own.unlink()
    with pytest.raises(DataError, match="column 'weight' is missing"):
        found()
    # One table that is dealt out has one map.
    whole = tmp_path / "all.csv"
    pd.concat([codes, codes]).to_csv(whole, index=False)
    (tmp_path / "all.map.toml").write_text(text)
    tables = simulation(DataConfig(data=str(whole)), 2, reading=strategy._reading).tables
    assert max(table["weight"].max() for table in tables) < 300
