"""The exchange before training: who is there and what all agree on."""

import numpy as np
import pytest
from federations import ShufflingGrid, SpyGrid, app_of, make_federation, spy
from flwr.app import Message

from flwr_causal.clients import NotearsADMMClient, Source, bridge, client_app
from flwr_causal.core.words import as_seen
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.party.table_digest import TABLE
from flwr_causal.protocol import records
from flwr_causal.runtime import schema
from flwr_causal.runtime.schema import exchange_schema
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import Moments, NotearsADMM

TABLES = make_federation(d=12, n=60, parties=3).tables


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(schema, "POLL_SECONDS", 0.01)


def method(**options):
    return NotearsADMM(**{"round_timeout": 5.0, **options})


def test_the_agreement_is_that_of_the_pooled_rows():
    sizes = [TABLES[0].iloc[:7], TABLES[1], TABLES[2].iloc[:11]]
    federation, agreement, _ = exchange_schema(method(), spy(sizes))
    rows = np.concatenate([table.to_numpy() for table in sizes])
    assert agreement.n == len(rows) == federation.setup.num_rows
    np.testing.assert_allclose(agreement.mean, rows.mean(axis=0), atol=1e-14)
    np.testing.assert_allclose(agreement.variance, rows.var(axis=0), rtol=1e-13)
    assert np.array_equal(federation.setup.mean, agreement.mean)
    assert np.array_equal(federation.setup.variance, agreement.variance)
    assert [party.num_rows for party in federation.parties] == [7, 20, 11]
    assert federation.setup.num_clients == 3


def test_columns_keep_the_order_of_the_first_party_and_are_never_sorted():
    names = [f"x{i}" for i in range(12)]
    _, agreement, _ = exchange_schema(method(), spy(TABLES))
    assert list(agreement.names) == names
    turned = [TABLES[0].iloc[:, ::-1], *TABLES[1:]]
    _, agreement, _ = exchange_schema(method(), spy(turned))
    assert list(agreement.names) == names[::-1]
    rows = np.concatenate([table.to_numpy() for table in TABLES])
    np.testing.assert_allclose(agreement.mean, rows.mean(axis=0)[::-1], atol=1e-14)


def test_parties_have_a_fixed_order_whoever_answers_first():
    for seed in range(4):
        federation, *_ = exchange_schema(method(), ShufflingGrid(app_of(TABLES), 3, seed))
        assert [p.name for p in federation.parties] == ["party 0", "party 1", "party 2"]


def real_nodes(names, tables=TABLES):
    """A grid of nodes without partitions, ordered by the names that they give themselves."""

    def source(context):
        node = context.node_config
        return Source(str(node["name"]), lambda: tables[node["place"]])

    configs = [{"name": name, "place": place} for place, name in enumerate(names)]
    return LocalGrid(
        client_app(NotearsADMMClient, source, ["place"]), len(names), node_configs=configs
    )


def test_real_nodes_are_ordered_by_name():
    federation, *_ = exchange_schema(method(), real_nodes(["oslo", "bern", "rome"]))
    assert [p.name for p in federation.parties] == ["bern", "oslo", "rome"]
    assert {p.partition_id for p in federation.parties} == {-1}


def test_names_that_several_nodes_chose_are_told_apart_with_a_warning(caplog):
    federation, agreement, _ = exchange_schema(method(), real_nodes(["bern", "lab", "lab"]))
    assert [p.name for p in federation.parties] == ["bern", "lab (3)", "lab (4)"]
    (warning,) = agreement.warnings
    assert "The nodes 3 and 4 have one name, lab: " in warning
    assert warning in caplog.messages


@pytest.mark.parametrize(
    "options",
    [
        {"expected_parties": "bern,lab"},
        {"secure_aggregation": True, "min_available_nodes": 4},
    ],
)
def test_equal_names_are_refused_where_names_tell_who_takes_part(options):
    grid = real_nodes(["bern", "lab", "lab", "rome"], [*TABLES, TABLES[0]])
    with pytest.raises(FederationError, match=r"lab is connected twice, as the nodes 3 and 4; tr"):
        exchange_schema(method(**options), grid)


def test_names_that_look_alike_are_one_name():
    federation, agreement, _ = exchange_schema(method(), real_nodes(["Lab", "LAB", "bern"]))
    assert [p.name for p in federation.parties] == ["LAB (3)", "Lab (2)", "bern"]
    assert "The nodes 3 and 2 have one name, LAB or Lab: " in agreement.warnings[0]
    with pytest.raises(FederationError, match=r"LAB or Lab is connected twice, as the nodes 3 and"):
        exchange_schema(method(expected_parties="Lab,LAB,bern"), real_nodes(["Lab", "LAB", "bern"]))


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("Lab", " la b\u00a0", True),
        ("l\u00e1b", "LA\u0301B", True),
        ("\uff2cab", "la\u200bb", True),
        ("stra\u00dfe", "STRASSE", True),
        ("lab", "l\u00e1b", False),
        ("lab 1", "lab 2", False),
        ("a-b", "ab", False),
    ],
)
def test_which_names_look_alike(one, other, equal):
    assert (as_seen(one) == as_seen(other)) is equal


def test_equal_names_of_withheld_reports_are_not_called_one_table():
    grid = real_nodes(["bern", "lab", "lab"], TABLES)
    with pytest.raises(FederationError, match=r"as the nodes 3 and 4; training was not started"):
        exchange_schema(Moments(epsilon=1.0, round_timeout=5.0), grid)


def test_equal_names_with_a_signed_key_are_refused():
    nodes = [schema.Party(node_id, "lab", -1, signature="ab") for node_id in (2, 3)]
    answers = [(nodes[0], {"rows": 1}), (nodes[1], {"rows": 2})]
    with pytest.raises(FederationError, match="lab is connected twice, as the nodes 2 and 3; tr"):
        schema._with_unique_names(method(), answers)


def test_a_name_that_looks_like_a_numbered_one_hides_nobody():
    with pytest.raises(FederationError, match="has the name of another one with its number"):
        exchange_schema(method(), real_nodes(["lab", "lab", "lab (3)"]))


def test_the_question_carries_the_policy():
    grid = spy(TABLES)
    exchange_schema(method(missing_values="drop", text_columns="drop"), grid)
    for message in grid.sent:
        values = records.config_of(message.content)
        assert message.metadata.message_type == "query.schema"
        assert values["policy-missing_values"] == values["policy-text_columns"] == "drop"
        assert values["policy-constant_columns"] == "fail"


def test_dropped_rows_do_not_count():
    tables = [table.copy() for table in TABLES]
    tables[1].iloc[:4, 2] = np.nan
    tables[2].iloc[0, 0] = np.inf
    federation, agreement, _ = exchange_schema(method(missing_values="drop"), spy(tables))
    assert agreement.rows == {"party 0": 20, "party 1": 16, "party 2": 19}
    kept = np.concatenate(
        [tables[0].to_numpy(), tables[1].to_numpy()[4:], tables[2].to_numpy()[1:]]
    )
    np.testing.assert_allclose(federation.setup.variance, kept.var(axis=0), rtol=1e-12)
    assert any("4 of 20 rows" in warning for warning in agreement.warnings)


def test_centring_by_party_scales_by_the_variance_within():
    tables = [table + 10.0 * index for index, table in enumerate(TABLES)]
    _, agreement, _ = exchange_schema(method(center="party"), spy(tables))
    within = np.mean([table.to_numpy().var(axis=0) for table in TABLES], axis=0)
    np.testing.assert_allclose(agreement.variance, within, rtol=1e-10)


def test_a_large_offset_costs_no_digits():
    tables = [table + 1e8 for table in TABLES]
    _, agreement, _ = exchange_schema(method(), spy(tables))
    rows = np.concatenate([(table - 1e8).to_numpy() for table in tables])
    np.testing.assert_allclose(agreement.variance, rows.var(axis=0), rtol=1e-9)


def test_too_few_nodes():
    with pytest.raises(FederationError, match=r"Only 3 of the 5 .*min_available_nodes.*0\.05 s"):
        exchange_schema(method(min_available_nodes=5, round_timeout=0.05), spy(TABLES))


class LateGrid(LocalGrid):
    """Nodes connect one after the other."""

    calls = 0

    def get_node_ids(self):
        self.calls += 1
        return super().get_node_ids()[: self.calls]


def test_nodes_that_connect_late_are_waited_for():
    late = LateGrid(app_of(TABLES), 3)
    federation, *_ = exchange_schema(method(min_available_nodes=3), late)
    assert len(federation.parties) == 3
    # With only a minimum known, the number of nodes has to settle.
    late = LateGrid(app_of(TABLES), 3)
    federation, *_ = exchange_schema(method(min_available_nodes=1), late, settle=0.2)
    assert len(federation.parties) == 3


def test_expected_parties_are_waited_for_by_name_and_others_take_no_part(caplog):
    grid = real_nodes(["oslo", "bern", "rome"])
    every, calls = grid.get_node_ids(), []
    grid.get_node_ids = lambda: calls.append(0) or every[: len(calls)]
    federation, *_ = exchange_schema(method(expected_parties="rome, oslo"), grid)
    assert [p.name for p in federation.parties] == ["oslo", "rome"]
    said = [m for m in caplog.messages if m.startswith("Waiting for")]
    assert said == ["Waiting for rome; connected: oslo", "Waiting for rome; connected: bern, oslo"]
    assert "bern is connected and takes no part: it is not expected" in caplog.messages
    late = method(expected_parties="oslo,paris", round_timeout=0.05)
    with pytest.raises(FederationError, match=r"missing after 0\.05 s: paris; connected: bern, o"):
        exchange_schema(late, real_nodes(["oslo", "bern"]))


def test_a_party_that_is_connected_twice_is_named():
    grid = real_nodes(["bern", "lab", "lab"], [TABLES[0]] * 3)
    with pytest.raises(FederationError, match="lab is connected twice, as the nodes 3 and 4"):
        exchange_schema(method(), grid)


class Mute(SpyGrid):
    def pull_messages(self, message_ids):
        return super().pull_messages(message_ids)[:-1]


def test_a_node_that_does_not_answer_is_named():
    with pytest.raises(FederationError, match=r"schema exchange failed.*node 4: no answer"):
        exchange_schema(method(), Mute(app_of(TABLES), 3))


def test_a_node_that_raises_is_named():
    def app(message, context):
        if context.node_id == 3:
            raise OSError("disk is full")
        return app_of(TABLES)(message, context)

    with pytest.raises(FederationError, match="node 3: OSError: disk is full"):
        exchange_schema(method(), LocalGrid(app, 3))


def test_a_party_whose_client_raises_is_named(caplog):
    def source(context):
        k = context.node_config["partition-id"]
        return Source(f"party {k}", lambda: 1 / 0 if k == 1 else TABLES[k])

    grid = LocalGrid(client_app(NotearsADMMClient, source), 3)
    with pytest.raises(DataError, match="party 1: The party's client raised a ZeroDivisionError"):
        exchange_schema(method(), grid)
    assert "lambda: 1 / 0 if k == 1" in caplog.text


def test_all_problems_are_said_at_once():
    tables = [table.copy() for table in TABLES]
    tables[0].iloc[3, 1] = np.nan
    tables[2]["x5"] = "high"
    with pytest.raises(DataError) as caught:
        exchange_schema(method(strict=True), spy(tables))
    text = str(caught.value)
    assert "party 'party 0', column 'x1': 1 missing value" in text
    assert "party 'party 2', column 'x5': holds text" in text


def test_every_source_that_cannot_be_read_is_named():
    def source(context):
        index = context.node_config["partition-id"]

        def read():
            if index:
                raise DataError(f"/data/{index}.csv does not exist")
            return TABLES[0]

        return Source(f"clinic {index}", read)

    with pytest.raises(DataError) as caught:
        exchange_schema(method(), LocalGrid(client_app(NotearsADMMClient, source), 3))
    assert "clinic 1: /data/1.csv does not exist" in str(caught.value)
    assert "clinic 2: /data/2.csv does not exist" in str(caught.value)
    assert "clinic 0" not in str(caught.value)


def test_the_exchange_keeps_nothing_at_the_nodes_but_a_keyed_digest_of_the_table():
    grid = spy([TABLES[0], TABLES[0], TABLES[1]])
    exchange_schema(method(), grid)
    states = [dict(grid.context(node_id).state) for node_id in grid.get_node_ids()]
    assert [set(state) for state in states] == [{TABLE}] * 3
    # Equal tables have different digests: the key is the node's own.
    assert states[0][TABLE]["digest"] != states[1][TABLE]["digest"]
    secrets = [str(value) for state in states for value in state[TABLE].values()]
    for reply in grid.replies:
        sent = str(records.config_of(reply.content))
        assert not any(secret in sent for secret in secrets)
    assert all(isinstance(message, Message) for message in grid.replies)


class OtherVersion(LocalGrid):
    """Says that one node runs another version."""

    def __init__(self, version, **more):
        super().__init__(app_of(TABLES), 3)
        self.version, self.more = version, more

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        replies[1].content["config"]["version"] = self.version
        replies[1].content["config"].update(self.more)
        return replies


@pytest.mark.parametrize("more", [{}, {"a-key-of-later": 1}])
def test_another_version_is_named_before_the_training(monkeypatch, more):
    for module in (schema, bridge):
        monkeypatch.setattr(module, "own_version", lambda: "0.3.1")
    for other in ("0.3.2", "0.4.1", "1.3.1", "unknown"):
        with pytest.raises(ConfigError, match=rf"server's, 0\.3\.1.*party 1 has {other}\. Inst"):
            exchange_schema(method(), OtherVersion(other, **more))


def test_equal_versions_are_no_error(monkeypatch):
    for module in (schema, bridge):
        monkeypatch.setattr(module, "own_version", lambda: "0.3.1")
    _, agreement, _ = exchange_schema(method(), OtherVersion("0.3.1"))
    assert agreement.warnings == ()


class Forged(LocalGrid):
    """Changes the report of the second party."""

    def __init__(self, change) -> None:
        super().__init__(app_of(TABLES), 3)
        self.change = change

    def send_and_receive(self, messages, *, timeout=None):
        replies = list(super().send_and_receive(messages, timeout=timeout))
        for reply in replies:
            config = reply.content["config"]
            if config["party"] == "party 1":
                self.change(config)
        return replies


@pytest.mark.parametrize(
    ("key", "value"), [("kinds", ["?"] * 12), ("squares", []), ("means", None), ("copy-of", ["x"])]
)
def test_a_malformed_report_names_its_party_only(key, value):
    def change(config):
        config.pop(key)
        if value is not None:
            config[key] = value

    with pytest.raises(FederationError, match="party 1: its answer was refused") as error:
        exchange_schema(method(), Forged(change))
    assert "party 0" not in str(error.value)


def test_a_report_without_the_parts_of_the_others_is_named():
    with pytest.raises(FederationError, match=r"party 0, party 2 reported sums .* party 1 did not"):
        exchange_schema(method(), Forged(lambda config: config.update({"has-sums": 0})))
