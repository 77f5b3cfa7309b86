"""A node's configuration: the type of each key, and keys that do not exist."""

from base64 import b64encode
from pathlib import Path
from random import Random

import pytest
from federations import SpyGrid, make_federation
from flwr.app import Context, RecordDict
from hypothesis import given
from hypothesis.strategies import integers

from flwr_causal.app.methods import CLIENTS
from flwr_causal.app.sources import source_of
from flwr_causal.clients import MomentsClient, Source, client_app
from flwr_causal.errors import CausalError, ConfigError, DataError
from flwr_causal.party.door import PartyDoor
from flwr_causal.party.node_config import KEYS, NodeConfig, check_keys, weakness_of
from flwr_causal.protocol.schema import party_name
from flwr_causal.runtime.schema import exchange_schema
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import Moments, NotearsADMM, run

TABLES = make_federation(d=3, n=60, parties=2).tables
PATHS = ["data-path", "policy", "record", "releases", "sums-key", "peers", "dictionary-map"]
PATHS += ["row-secret-file", "model-path"]
TEXTS = ["name", "row-secret", "learner", "interventions", "tables"]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(one, True) for one in (True, 1, "true", "True", " TRUE ", "yes", "On", "1")]
    + [(one, False) for one in (False, 0, "false", "FALSE", "No", " off", "0")],
)
def test_what_is_clearly_true_or_false(value, wanted):
    assert NodeConfig.of({"secure-aggregation": value}).secure_aggregation is wanted


@pytest.mark.parametrize("value", [2, -1, "ture", "", " ", 0.5, 1.0, "none", None, [True], "y"])
def test_all_else_is_neither_true_nor_false(value):
    with pytest.raises(ConfigError, match="'secure-aggregation' is neither true nor false: write"):
        NodeConfig.of({"secure-aggregation": value})


@pytest.mark.parametrize("key", [*PATHS, *TEXTS])
@pytest.mark.parametrize(
    ("value", "words"),
    [("", "empty"), (" \t", "empty")] + [(one, "no text") for one in (7, True, 0.5, None, ["/a"])],
)
def test_texts_are_texts_and_never_empty(key, value, words):
    with pytest.raises(ConfigError, match=f"'{key}' is {words}"):
        NodeConfig.of({key: value})


@pytest.mark.parametrize("name", ["a\nb", "\u200b", "a\0", "a\x1b[31m", "\u202ea", "\ud800"])
def test_a_name_has_no_invisible_characters(name):
    with pytest.raises(ConfigError, match="'name' has characters that do not print"):
        NodeConfig.of({"name": name})


def test_a_name_is_short_and_in_one_form():
    with pytest.raises(ConfigError, match="'name' has 101 letters; it must have 1 to 100"):
        NodeConfig.of({"name": "a" * 101})
    with pytest.raises(ConfigError, match="'name' is not in Unicode's form NFC"):
        NodeConfig.of({"name": "Zu\u0308rich"})
    assert NodeConfig.of({"name": "Z\u00fcrich" + "a" * 94}).name


@pytest.mark.parametrize("key", PATHS)
def test_paths_are_absolute(key):
    with pytest.raises(ConfigError, match=f"'{key}' is no path: it has a null character"):
        NodeConfig.of({key: "/a\0b"})
    for wrong in ("a.csv", "~/a.csv", "./a.csv"):
        with pytest.raises(ConfigError, match=f"'{key}' is no absolute path: give one"):
            NodeConfig.of({key: wrong})
    assert getattr(NodeConfig.of({key: " /a/b "}), key.replace("-", "_")) == Path("/a/b")


@pytest.mark.parametrize("value", [-1, True, "0", 0.0, None])
def test_numbers_are_numbers(value):
    for key in ("partition-id", "num-partitions"):
        with pytest.raises(ConfigError, match=f"'{key}' is no whole number from 0 on"):
            NodeConfig.of({"partition-id": 0, key: value})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"partition-id": 0, "num-partitions": 2, "data-path": "/a"}, "'data-path' names its own"),
        ({"partition-id": 0, "tables.a": "/a"}, r"'tables\.a' names its own"),
        ({"data-path": "/a", "num-partitions": 2}, "of no use without 'partition-id'"),
        ({"partition-id": 2, "num-partitions": 2}, "below 'num-partitions'"),
        (
            {"row-secret": "e3b0c44298fc1c149afbf4c8996fb924", "row-secret-file": "/s"},
            "take one of them out",
        ),
        ({"interventions": " ,; "}, "'interventions' names no column"),
        ({"tables": "a=b"}, "name=/absolute/path"),
        ({"tables": "a=/b,a=/c"}, "different names"),
        ({"tables": "a=/b", "tables.a": "/c"}, "different names"),
        ({"tables.": "/c"}, "name=/absolute/path"),
        ({"tables.a": 7}, "name=/absolute/path"),
    ],
)
def test_what_does_not_go_together(given, words):
    with pytest.raises(ConfigError, match=words):
        NodeConfig.of(given)


@pytest.mark.parametrize(
    "secret", ["abc", "north and south", 40 * "a", "0123456789abcdef", 16 * "01", 3 * "hospital"]
)
def test_a_secret_that_can_be_guessed_is_refused(secret):
    assert "can be guessed" in weakness_of(secret)
    with pytest.raises(ConfigError, match="'row-secret' can be guessed: it must be random"):
        NodeConfig.of({"row-secret": secret})


@given(integers(min_value=0))
def test_a_random_secret_is_taken(seed):
    rng = Random(seed)
    assert not weakness_of(rng.randbytes(16).hex())
    assert not weakness_of(b64encode(rng.randbytes(17)).decode())


def test_a_message_names_every_problem_and_no_value():
    given = {"row-secret": 4711, "policy": "", "peers": "secret.toml"}
    with pytest.raises(ConfigError) as caught:
        NodeConfig.of(given)
    assert all(f"'{key}' is " in str(caught.value) for key in given)
    assert "4711" not in str(caught.value)
    assert "secret.toml" not in str(caught.value)


def test_defaults_follow_from_the_policy_and_the_record():
    own = NodeConfig.of({"policy": "/p/policy.toml"})
    assert (own.record, own.releases) == (Path("/p/record.jsonl"), Path("/p/releases"))
    own = NodeConfig.of({"policy": "/p/policy.toml", "record": "/r/record", "tables.a": "/a"})
    assert (own.record, own.releases) == (Path("/r/record"), Path("/r/releases"))
    assert own.tables == {"a": Path("/a")}
    assert NodeConfig.of({"name": " north "}).name == "north"
    assert NodeConfig.of({}) == NodeConfig()
    assert set(vars(NodeConfig())) == {key.replace("-", "_") for key in KEYS}


def test_a_node_has_a_name_even_where_its_configuration_is_wrong():
    def named(**given):
        return party_name(Context(1, 2, given, RecordDict(), {}))

    assert named(name=" north ") == "north"
    assert named(name=7) == named(name=" ") == named() == "node 2"
    assert party_name(Context(1, 8412345678901234567, {}, RecordDict(), {})) == "node 84123456"


NEAREST = {
    "polcy": "policy",
    "secure_aggregation": "secure-aggregation",
    "Secure_Aggregation": "secure-aggregation",
    "secure-agregation": "secure-aggregation",
    "data_path": "data-path",
    "POLICY": "policy",
    "policy.a": "policy",
    "SECURE_AGGREGATION": "secure-aggregation",
    "policy ": "policy",
    "peer": "peers",
    "row-secretfile": "row-secret-file",
    "recrod": "record",
    "partition_id": "partition-id",
}


@pytest.mark.parametrize("key", NEAREST)
def test_keys_that_do_not_exist_are_named_with_the_nearest(key):
    with pytest.raises(ConfigError) as caught:
        check_keys([*KEYS, "tables.a", key])
    assert f"there is no key '{key}' (did you mean '{NEAREST[key]}'?)" in str(caught.value)


def test_a_key_that_resembles_none_is_told_which_there_are():
    with pytest.raises(ConfigError, match="there is no key 'xyz' among name, data-path, tables"):
        check_keys(["xyz"])


class Binning(MomentsClient):
    node_keys = ("bins",)


def test_methods_declare_keys_of_their_own():
    clients = {"binning": Binning, "moments": MomentsClient}
    check_keys(["binning.bins", "name"], clients=clients)
    for key in ("bins", "binning.bin", "moments.bins", "other.bins", "binning."):
        with pytest.raises(ConfigError, match=f"there is no key '{key}'"):
            check_keys([key], clients=clients)
    with pytest.raises(ConfigError, match=r"did you mean 'binning\.bins'"):
        check_keys(["binning.bin"], clients=clients)


def nodes(configs, clients=CLIENTS, keys=()):
    """A grid of nodes that count how often their tables are read."""
    reads = []

    def source(context):
        def read():
            reads.append(context.node_id)
            return TABLES[context.node_id % 2]

        return Source(party_name(context), read)

    grid = SpyGrid(client_app(clients, source, keys), 2, node_configs=configs)
    grid.reads = reads
    return grid


PLAIN = {"name": "south", "data-path": "/south.csv"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"polcy": "/p"},
        {"secure-aggregation": "ture"},
        {"policy": ""},
        {"peers": ""},
        {"record": ""},
        {"partition-id": -1},
        {"name": 7},
    ],
)
def test_a_node_takes_no_part_before_its_table_is_read(wrong):
    grid = nodes([{"name": "north", "data-path": "/north.csv", **wrong}, PLAIN])
    with pytest.raises(CausalError, match=next(iter(wrong))):
        run(Moments(), grid)
    assert 2 not in grid.reads
    assert not grid.training_messages


def test_later_messages_are_refused_too():
    grid = nodes([{"name": "north", "data-path": "/north.csv"}, PLAIN])
    exchange_schema(Moments(), grid)
    before = list(grid.reads)
    for node_id in grid.get_node_ids():
        grid.context(node_id).node_config["secure_aggregation"] = True
    question = grid.sent[0]
    for kind in ("train", "query"):
        question.metadata.message_type = kind
        (reply,) = grid.send_and_receive([question])
        assert "there is no key 'secure_aggregation'" in reply.error.reason
    assert grid.reads == before


def test_a_demand_for_secure_sums_in_other_words_is_one():
    grid = nodes([{"name": "north", "data-path": "/n.csv", "secure-aggregation": "Yes"}, PLAIN])
    with pytest.raises(CausalError, match="north: Its node config has secure-aggregation=true"):
        run(Moments(), grid)


def test_an_apps_source_declares_the_keys_that_it_reads():
    configs = [{"name": "north", "ward": 3}, {"name": "south", "ward": 4}]
    with pytest.raises(CausalError, match="there is no key 'ward'"):
        run(Moments(), nodes(configs))
    grid = nodes(configs, keys=["ward"])
    assert run(Moments(), grid).status == "completed"
    # What Ray packs is built from the same keys.
    assert grid._client_app.__reduce__()[1][2] == ["ward"]


def test_an_apps_only_client_declares_keys_behind_its_method():
    configs = [{"name": "north", "moments.bins": 3}, {"name": "south"}]
    assert run(Moments(), nodes(configs, Binning)).status == "completed"
    with pytest.raises(CausalError, match=r"there is no key 'moments\.bins'"):
        run(Moments(), nodes(configs))


def test_a_demand_for_secure_sums_holds_in_every_exchange():
    grid = nodes([{"name": "north", "data-path": "/n.csv"}, PLAIN])

    def demand(record):
        grid.context(grid.get_node_ids()[0]).node_config["secure-aggregation"] = "on"

    with pytest.raises(CausalError, match="secure-aggregation=true, and this run adds nothing up"):
        run(NotearsADMM(max_rounds=8, quorum=1.0), grid, on_round=demand)


def test_private_runs_refuse_interventions_of_a_node():
    grid = nodes([{"name": "north", "data-path": "/n.csv", "interventions": "x0"}, PLAIN])
    with pytest.raises(CausalError, match="states interventions, which a run with epsilon does"):
        run(Moments(epsilon=1.0), grid)


def test_only_simulated_nodes_without_a_policy_are_not_guarded(tmp_path):
    (tmp_path / "policy.toml").write_text("")
    policy = {"policy": str(tmp_path / "policy.toml")}

    def guarded(**given):
        return PartyDoor.of(Context(1, 2, given, RecordDict(), {})).guarded

    simulated = {"partition-id": 0, "num-partitions": 1}
    assert [guarded(), guarded(**policy), guarded(**simulated, **policy)] == [True] * 3
    assert not guarded(**simulated)


def test_an_error_names_files_without_their_directories(tmp_path):
    """Directories have names of people and machines; the log of the party's node has them."""
    home = tmp_path / "anna.smith" / "tables"
    home.mkdir(parents=True)
    (home / "first.csv").write_bytes(b"x,y\n1,2\n3,\xe94\n")
    node = {"name": "north", "data-path": str(home), "record": str(tmp_path / "record.jsonl")}
    one = {**node, "data-path": str(home / "first.csv")}
    many = {**{key: node[key] for key in ("name", "record")}, "tables": f"a={home}/first.csv"}
    for config in (node, one, many):
        grid = LocalGrid(client_app(CLIENTS, source_of), 2, node_configs=[config] * 2)
        with pytest.raises(DataError) as raised:
            run(Moments(), grid)
        assert "first.csv is not UTF-8 text, at byte" in str(raised.value)
        assert "smith" not in str(raised.value)
        assert "0xe9" not in str(raised.value)
