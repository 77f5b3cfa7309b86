"""The dictionary of a run at the nodes: what is checked before anything leaves, who sees what."""

import json

import numpy as np
import pandas as pd
import pytest

from flwr_causal.app.methods import CLIENTS
from flwr_causal.app.sources import source_of
from flwr_causal.clients import client_app
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.data.dictionary.entries import Dictionary
from flwr_causal.errors import CausalError, ConfigError, DataError
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.strategies import FedGES, Moments, run

ROWS = 80
SHARED = """
missing = ["-999"]
[columns.sex]
kind = "category"
states = ["male", "female"]
tier = 0
[columns.age]
kind = "number"
least = 0
most = 120
tier = 0
[columns.weight]
kind = "number"
tier = 1
[columns.stage]
kind = "ordered"
states = ["none", "mild", "severe"]
tier = 2
[columns.smoker]
kind = "category"
states = ["no", "yes"]
optional = true
tier = 1
[columns.patient]
kind = "id"
"""
MAPS = {
    "north": 'sex = {0 = "female", 1 = "male"}\n',
    "south": 'sex = {1 = "male", 2 = "female"}\nweight = {from = "w_g", factor = 0.001}\n',
    "west": 'stage = {missing = ["?"]}\n',
}


def system(seed):
    rng = np.random.default_rng(seed)
    male, age = rng.integers(0, 2, ROWS), rng.uniform(20, 90, ROWS).round(1)
    weight = (60 + 14 * male + 0.2 * age + rng.uniform(-9, 9, ROWS)).round(2)
    stage = np.digitize(weight + rng.uniform(-9, 9, ROWS), [75, 85])
    return pd.DataFrame({"male": male, "age": age, "weight": weight, "stage": stage})


def parts():
    """The parties' tables as each writes them, and as the dictionary has them."""
    states = np.array(["none", "mild", "severe"])
    clean = []
    for seed in range(3):
        own = system(seed)
        sex = np.where(own.male, "male", "female")
        clean.append(own.assign(sex=sex, stage=states[own.stage]).drop(columns="male"))
    names = [f"Person {k}" for k in range(ROWS)]
    north, south, west = (one.assign(patient=names, extra=names) for one in clean)
    north["sex"] = (north.sex == "male").astype(int)
    south["sex"] = np.where(south.sex == "male", 1, 2)
    south["w_g"] = (south.pop("weight") * 1000).round(0)
    clean[0].loc[3, "age"] = np.nan
    north.loc[3, "age"] = -999
    clean[2].loc[5, "stage"] = None
    west.loc[5, "stage"] = "?"
    order = ["sex", "age", "weight", "stage"]
    return dict(zip(MAPS, (north, south, west), strict=True)), [one[order] for one in clean]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The files of the three parties, their maps and the dictionary."""
    directory = tmp_path_factory.mktemp("parties")
    for name, table in parts()[0].items():
        table.to_csv(directory / f"{name}.csv", index=False)
        (directory / f"{name}.toml").write_text(MAPS[name])
    (directory / "dictionary.toml").write_text(SHARED)
    return directory


def grid_of(place, *, maps=tuple(MAPS), first=None):
    """The nodes of the parties; ``first`` has further keys of the first one."""
    configs = []
    for name in MAPS:
        config = {"name": name, "data-path": str(place / f"{name}.csv")}
        if name in maps:
            config["dictionary-map"] = str(place / f"{name}.toml")
        configs.append(config)
    configs[0] |= first or {}
    return LocalGrid(client_app(CLIENTS, source_of), 3, node_configs=configs)


def with_dictionary(place, kind=Moments, **options):
    options = {"missing_values": "drop", "min_available_nodes": 3, **options}
    return kind(dictionary=str(place / "dictionary.toml"), **options)


def test_dirty_tables_give_the_graph_of_the_clean_ones(place):
    found = run(with_dictionary(place), grid_of(place))
    numbers = [one.copy() for one in parts()[1]]
    for one in numbers:
        one["sex"] = (one.sex == "female").astype(float)
        one["stage"] = one.stage.map({"none": 0.0, "mild": 1.0, "severe": 2.0})
    tiers = {"tiers": [["sex", "age"], ["weight"], ["stage"]]}
    expected = simulate("moments", numbers, missing_values="drop", knowledge=Knowledge(**tiers))
    assert found.graph.names == expected.graph.names == ("sex", "age", "weight", "stage")
    np.testing.assert_allclose(found.graph.weights, expected.graph.weights, rtol=1e-6, atol=1e-9)
    assert found.graph.weights.any()


def test_simulated_parties_have_maps_too_and_runs_keep_the_digest(place, tmp_path):
    files = [place / f"{name}.csv" for name in MAPS]
    maps = [place / f"{name}.toml" for name in MAPS]
    options = {"dictionary": str(place / "dictionary.toml"), "missing_values": "drop"}
    found = simulate("moments", files, maps=maps, output_dir=tmp_path / "run", **options)
    expected = run(with_dictionary(place), grid_of(place)).graph
    np.testing.assert_array_equal(found.graph.weights, expected.weights)
    digest = Dictionary.read(place / "dictionary.toml").digest
    kept = json.loads((tmp_path / "run" / "run.json").read_text())
    assert kept["config"]["dictionary_digest"] == digest
    with pytest.raises(ConfigError, match="maps has 1 entries for 3 parties"):
        simulate("moments", files, maps=maps[:1], **options)
    with pytest.raises(CausalError, match=r"its map to a dictionary .* and the run has none"):
        simulate("moments", files, maps=maps)


def test_states_are_those_of_the_dictionary_in_its_order(place):
    found = run(
        with_dictionary(place, FedGES, mode="exact", discretize=3, small_counts="report"),
        grid_of(place),
    )
    states = dict(zip(found.model.names, found.model.state_names, strict=True))
    assert states["stage"] == ("none", "mild", "severe")
    assert states["sex"] == ("male", "female")
    assert not found.graph.adjacency[found.graph.names.index("stage")].any()


@pytest.mark.parametrize("secure", [False, True])
def test_faults_are_told_by_rows_at_the_party_and_by_name_and_count_elsewhere(
    place, caplog, secure
):
    grid = grid_of(place, maps=("north",))
    method = with_dictionary(place, secure_aggregation=secure)
    with pytest.raises(DataError) as caught:
        run(method, grid)
    said = str(caught.value)
    number = "some" if secure else str(ROWS)
    assert "south: the table does not fit the dictionary: column 'weight' is missing" in said
    assert f"column 'sex', {number} values: outside its states (male, female)" in said
    one = "some values" if secure else "1 value"
    assert f"west: the table does not fit the dictionary: column 'stage', {one}: outside" in said
    for hidden in ("w_g", "'?'", "row 6", "Person", "north", "extra"):
        assert hidden not in said
    logged = caplog.text
    assert "west does not fit the dictionary: column 'stage', row 6: '?': outside" in logged
    assert "south does not fit the dictionary: column 'sex'" in logged
    assert "Person" not in logged


def test_nothing_of_other_columns_leaves_a_party(place):
    messages = []

    class Watched(LocalGrid):
        def send_and_receive(self, sent, *, timeout=None):
            replies = list(super().send_and_receive(sent, timeout=timeout))
            messages.extend(str(reply.content) for reply in replies)
            return replies

    grid = grid_of(place)
    grid.__class__ = Watched
    run(with_dictionary(place), grid)
    assert messages
    for word in ("extra", "patient", "w_g"):
        assert not any(word in one for one in messages)


def test_a_policy_can_require_the_dictionary(place, tmp_path):
    digest = Dictionary.read(place / "dictionary.toml").digest
    policy = tmp_path / "policy.toml"
    first = {"policy": str(policy), "record": str(tmp_path / "record.jsonl")}
    policy.write_text(f'[options]\ndictionary = "{digest}"\n')
    assert run(with_dictionary(place), grid_of(place, first=first)).graph is not None
    other = tmp_path / "dictionary.toml"
    other.write_text(SHARED.replace("most = 120", "most = 130"))
    for file in (other, None):
        method = Moments(
            dictionary=None if file is None else str(file),
            missing_values="drop",
            text_columns="drop",
            unshared_columns="drop",
            min_available_nodes=3,
        )
        maps = tuple(MAPS) if file else ()
        with pytest.raises(CausalError, match=r"north: .* by its rule 'options\.dictionary'"):
            run(method, grid_of(place, first=first, maps=maps))


@pytest.mark.parametrize("names", [["weight"], ["w_g"]])
def test_a_policys_columns_hold_by_the_partys_names_and_the_dictionarys(place, tmp_path, names):
    """South withholds its weight: by the name in its table, or in the dictionary."""
    policy = tmp_path / "policy.toml"
    policy.write_text(f"[columns]\nnever = {names}\n")
    grid = grid_of(place)
    grid.context(grid.get_node_ids()[1]).node_config["policy"] = str(policy)
    with pytest.raises(DataError, match=r"south: .* column 'weight' is missing in the table"):
        run(with_dictionary(place), grid)
    policy.write_text("[columns]\nallowed = ['w_g', 'sex', 'age', 'stage']\n")
    assert run(with_dictionary(place), grid).graph is not None


def test_a_map_that_cannot_be_used_is_told_at_the_party(place, tmp_path, caplog):
    own = tmp_path / "map.toml"
    own.write_text('sex = {0 = "femal"}\n')
    with pytest.raises(CausalError) as caught:
        run(with_dictionary(place), grid_of(place, first={"dictionary-map": str(own)}))
    assert "north: its map to the dictionary (dictionary-map) cannot be used" in str(caught.value)
    assert "femal'" not in str(caught.value)
    assert "stands for 'femal', which is no state" in caplog.text


def test_a_node_with_a_map_takes_no_part_in_a_run_without_a_dictionary(place):
    with pytest.raises(CausalError, match=r"north.*: its table needs its map to a dictionary"):
        run(Moments(min_available_nodes=3), grid_of(place))


def test_a_resumed_run_has_the_same_dictionary(place, tmp_path):
    file = tmp_path / "dictionary.toml"
    file.write_text(SHARED)
    files = [place / f"{name}.csv" for name in MAPS]
    maps = [place / f"{name}.toml" for name in MAPS]
    options = {"dictionary": str(file), "missing_values": "drop", "output_dir": tmp_path / "run"}

    calls = []

    class Stopping:
        def __init__(self, grid):
            self.grid = grid

        def __getattr__(self, name):
            return getattr(self.grid, name)

        def send_and_receive(self, messages, *, timeout=None):
            calls.append(1)
            if len(calls) == 6:
                raise KeyboardInterrupt
            return self.grid.send_and_receive(messages, timeout=timeout)

    with pytest.raises(KeyboardInterrupt):
        simulate("notears-admm", files, maps=maps, max_rounds=20, wrap_grid=Stopping, **options)
    file.write_text(SHARED.replace("most = 120", "most = 130"))
    with pytest.raises(CausalError, match="dictionary"):
        simulate("notears-admm", files, maps=maps, max_rounds=20, resume=True, **options)
    file.write_text(SHARED)
    found = simulate("notears-admm", files, maps=maps, max_rounds=20, resume=True, **options)
    assert found.status == "completed"
