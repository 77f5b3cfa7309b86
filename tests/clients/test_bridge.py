"""From a message to a client's fit and back."""

from dataclasses import replace

import numpy as np
import pytest
from federations import app_of, make_federation, question, setup_for
from federations import ask as _ask
from flwr.app import Message

from flwr_causal.app import methods
from flwr_causal.clients import CausalClient, Source, answers, bridge, client_app
from flwr_causal.clients.moments import MomentsClient
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.report import TableReport
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.protocol import Contract, Disclosure, Exchange, Sent, records
from flwr_causal.protocol.options import FormError, PartyOptions
from flwr_causal.protocol.replay import packed
from flwr_causal.protocol.setup import PREFIX, Setup
from flwr_causal.protocol.terms import RunTerms
from flwr_causal.simulations import LocalGrid

TABLES = make_federation(d=3, n=12, parties=2).tables
SETUP = setup_for(TABLES, options=PartyOptions())
NODE = 2  # the grid's first


SUMS = Exchange(
    "sums",
    "",
    sends=(Sent("a", "", ("*",), optional=True), Sent("what", "")),
    returns=(
        Disclosure("sum", "column sums", ("d",)),
        Disclosure("product", "X^T X", ("d", "d")),
        Disclosure("count", "rows", (), "count"),
    ),
)
LATE = Exchange("late", "", returns=(Disclosure("late", "at the end", ("d",)),), weight="one")
ASK = Exchange(
    "ask",
    "",
    sends=(Sent("a", "", ("*",)),),
    returns=(Disclosure("answer", "", ("*",)),),
    query=True,
)
ECHO = Contract("echo", (SUMS, LATE, ASK))


class Echo(CausalClient):
    """Returns what its message asks for."""

    contract = ECHO

    @answers(SUMS, LATE)
    def reply(self, asked):
        rows = self.rows()
        seen = self.recall()
        calls = 1 if seen is None else seen.numbers["calls"] + 1
        self.remember({"last": rows.sum(axis=0)}, calls=calls)
        what = asked.values.get("what", "fine")
        if what == "raise":
            raise DataError("column 'x1' is odd")
        if what == "value":
            return {"sum": np.array(["Smith"]).astype(float)}
        if asked.exchange is LATE:
            return {"late": rows.sum(axis=0)}
        extra = asked["a"].sum() if "a" in asked else 0.0
        sums = {"sum": rows.sum(axis=0), "product": rows.T @ rows + extra}
        return {
            "fine": {**sums, "count": np.array(calls)},
            "too-few": sums,
            "other-exchange": {**sums, "late": np.zeros(3), "count": np.array(1)},
            "rows": {**sums, "sum": rows, "count": np.array(1)},
        }[what]

    @answers(ASK)
    def double(self, asked):
        return {"answer": asked["a"] * 2.0}


def ask(grid, node_id, arrays, message_type="train", *, exchange="sums", **config):
    return _ask(grid, node_id, arrays, message_type, exchange=exchange, **config)


@pytest.fixture
def grid():
    return LocalGrid(app_of(TABLES, Echo), len(TABLES))


def test_the_method_that_is_marked_answers(grid):
    content = ask(grid, NODE, {"a": np.ones(2)}, setup=SETUP).content
    rows = TABLES[0].to_numpy()
    arrays = records.arrays_of(content)
    assert list(arrays) == ["sum", "product"]
    np.testing.assert_allclose(arrays["sum"], rows.sum(axis=0))
    np.testing.assert_allclose(arrays["product"], rows.T @ rows + 2.0)
    assert content["metrics"] == {"count": 1, "num-examples": float(len(rows)), "round": 1}
    late = ask(grid, NODE, {}, exchange="late").content
    assert list(records.arrays_of(late)) == ["late"]
    assert late["metrics"] == {"num-examples": 1.0, "round": 1}


def test_nothing_is_computed_with_arrays_of_another_shape(grid, monkeypatch):
    ask(grid, NODE, {}, setup=SETUP)
    monkeypatch.setattr(Echo, "reply", lambda self, asked: pytest.fail("it was computed with"))
    reply = ask(grid, NODE, {"a": np.ones((2, 2))})
    assert "'a' has the shape (2, 2), but it is declared with ('*',)" in reply.error.reason
    earlier = records.request("sums", "echo", 1, {"a": np.ones((2, 2)), "what": "fine"})
    sent = packed([earlier])
    again = ask(
        grid, NODE, {"archive": sent["archive"]}, exchange="replay", requests=sent["requests"]
    )
    assert "'a' has the shape (2, 2), but it is declared with ('*',)" in again.error.reason


SCALED = Exchange(
    "scaled",
    "",
    sends=(Sent("factor", ""),),
    returns=(Disclosure("factor", "", (1,)),),
    remembered=True,
)


class Scaling(CausalClient):
    """Returns the number that it was sent."""

    contract = Contract("scaling", (SCALED,))

    @answers(SCALED)
    def scaled(self, asked):
        return {"factor": np.array([float(asked["factor"])])}


def test_a_value_is_read_under_its_name_in_the_bundle_alone():
    """Under another one it would pass a policy, which judges what is declared."""
    grid = LocalGrid(app_of(TABLES, Scaling), len(TABLES))
    terms = RunTerms("scaling", {"leave_one_out": True}, 2, secure=False).to_text()
    node, setup = grid.get_node_ids()[0], replace(SETUP, terms=terms)
    head = {"bundle-trainings": ["without 1"], "bundle-exchanges": ["scaled"], "bundle-seed": 0}
    named = {"exchange": "scaled", "setup": setup, **head}
    reply = ask(grid, node, {}, **named, **{"without 1: factor": 3.0, "factor": 50.0})
    assert records.arrays_of(reply.content)["without 1: factor"] == 3.0
    assert ask(grid, node, {}, **named, factor=50.0).has_error()
    one = packed([records.request("scaled", "scaling", 1, {"factor": 3.0})])
    none = packed([records.request("scaled", "scaling", 1, {})])
    for earlier, fails in ((one, False), (none, True)):
        arrays, requests = {"archive": earlier["archive"]}, earlier["requests"]
        outer = {"exchange": "replay", "setup": setup, "requests": requests, "factor": 50.0}
        reply = ask(grid, node, arrays, **outer)
        assert reply.has_error() is fails


def test_queries_are_answered(grid):
    ask(grid, NODE, {}, setup=SETUP)
    reply = ask(grid, NODE, {"a": np.arange(4.0)}, message_type="query", exchange="ask")
    np.testing.assert_array_equal(records.arrays_of(reply.content)["answer"], [0.0, 2.0, 4.0, 6.0])


def test_an_exchange_that_the_contract_does_not_have(grid):
    reply = ask(grid, NODE, {}, setup=SETUP, exchange="poll")
    assert "'echo' has no exchange 'poll'; it has sums, late, ask" in reply.error.reason


def test_a_class_without_a_method_for_an_exchange_cannot_be_defined():
    with pytest.raises(ConfigError, match=r"Deaf has no method for the exchange 'late'.*@answers"):

        class Deaf(CausalClient):
            contract = ECHO

            @answers(SUMS, ASK)
            def reply(self, asked):
                return {}

    with pytest.raises(ConfigError, match="exchange 'sums'"):
        type("Mute", (CausalClient,), {"contract": ECHO})


def test_methods_are_inherited_and_may_be_replaced():
    class Zero(Echo):
        def double(self, asked):
            return {"answer": asked["a"] * 0.0}

    class Again(Echo):
        contract = Contract("again", (SUMS, LATE, ASK))

        @answers(ASK)
        def triple(self, asked):
            return {"answer": asked["a"] * 3.0}

    for client, factor in ((Zero, 0.0), (Again, 3.0)):
        grid = LocalGrid(app_of(TABLES, client), len(TABLES))
        reply = ask(grid, NODE, {"a": np.ones(2)}, "query", exchange="ask", setup=SETUP)
        assert records.arrays_of(reply.content)["answer"].tolist() == [factor, factor]


def test_flowers_own_fit_will_do():
    class Plain(CausalClient):
        contract = ECHO

        def fit(self, parameters, config):
            assert config["exchange"] == "late"
            assert config["arrays"] == []
            return [np.arange(3.0)], 1, {}

    class Named(Plain):
        def fit(self, parameters, config):
            rows = self.rows()
            return [rows.sum(axis=0), rows.T @ rows], len(rows), {"count": 4}

        def names_of(self, exchange):
            return ("sum", "product")

    grid = LocalGrid(app_of(TABLES, Plain), len(TABLES))
    content = ask(grid, NODE, {}, exchange="late", setup=SETUP).content
    assert records.arrays_of(content)["late"].tolist() == [0.0, 1.0, 2.0]
    grid = LocalGrid(app_of(TABLES, Named), len(TABLES))
    assert ask(grid, NODE, {}, setup=SETUP).content["metrics"]["count"] == 4


def test_of_an_error_of_another_package_only_the_kind_leaves(grid, caplog):
    reply = ask(grid, NODE, {}, setup=SETUP, what="value")
    assert reply.error.reason == (
        "FederationError: The party's client raised a ValueError; the log of its node says where."
    )
    assert "Smith" in caplog.text
    assert type(grid.raised[-1].__cause__) is ValueError


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("raise", "column 'x1' is odd"),
        ("too-few", "The reply was not sent: 'count' of the exchange 'sums' is missing"),
        ("other-exchange", "'late' may not leave a party in the exchange 'sums'"),
        ("rows", r"'sum' has the shape \(6, 3\)"),
    ],
)
def test_a_failing_step_leaves_nothing_behind(grid, what, reason):
    ask(grid, NODE, {}, setup=SETUP)
    state = grid.context(NODE).state
    before = {name: dict(record) for name, record in state.items()}
    reply = ask(grid, NODE, {}, what=what)
    assert reply.has_error()
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(reply.error.reason)
    assert {name: dict(record) for name, record in state.items()} == before
    assert ask(grid, NODE, {}).content["metrics"]["count"] == 2


def test_without_agreement_the_reply_is_an_error_that_the_server_understands(grid):
    reply = ask(grid, NODE, {})
    assert "no agreement with the others" in reply.error.reason


def test_the_agreement_is_sent_once_and_kept(grid):
    ask(grid, NODE, {}, setup=SETUP)
    assert not ask(grid, NODE, {}).has_error()
    assert ask(grid, NODE + 1, {}).has_error()


def test_a_new_agreement_replaces_the_old_one(grid):
    ask(grid, NODE, {}, setup=SETUP)
    other = setup_for([table[["x2", "x0"]] for table in TABLES], options=PartyOptions())
    ask(grid, NODE, {}, setup=other)
    expected = TABLES[0][["x2", "x0"]].to_numpy().sum(axis=0)
    np.testing.assert_allclose(records.arrays_of(ask(grid, NODE, {}).content)["sum"], expected)


def test_the_precision_is_the_agreements(grid):
    exact = TABLES[0].to_numpy().sum(axis=0)
    for precision in ("float64", "float32"):
        reply = ask(grid, NODE, {}, setup=replace(SETUP, precision=precision))
        received = records.arrays_of(reply.content)["sum"]
        assert np.array_equal(received, exact.astype(precision))


def test_an_unknown_method_names_the_known_ones():
    grid = LocalGrid(app_of(TABLES), len(TABLES))
    reply = ask(grid, NODE, {}, setup=SETUP, method="oracle")
    assert "'oracle'" in reply.error.reason
    assert "moments, notears-admm" in reply.error.reason


def schema_of(source):
    grid = LocalGrid(client_app(Echo, source), 1)
    own = question("echo", Handling(missing_values="drop"))
    content = records.message_content(None, own)
    message = Message(content, dst_node_id=NODE, message_type="query.schema", ttl=60.0)
    (reply,) = grid.send_and_receive([message])
    return records.config_of(reply.content)


def test_the_schema_is_reported_under_the_partys_name():
    table = TABLES[0].copy()
    table.iloc[0, 1] = np.nan
    values = schema_of(lambda context: Source("clinic", lambda: table))
    assert (values.pop("party"), values.pop("partition-id")) == ("clinic", 0)
    report = TableReport.from_dict(values)
    assert report.names == ("x0", "x1", "x2")
    assert (report.rows, report.dropped_rows, report.has_sums) == (5, 1, True)


def test_a_problem_with_the_source_is_part_of_the_report():
    def unreadable():
        raise DataError("/data/a.csv does not exist")

    values = schema_of(lambda context: Source("clinic", unreadable))
    assert values["party"] == "clinic"
    assert values["error"] == "/data/a.csv does not exist"

    def nowhere(context):
        raise DataError("no data-path")

    assert schema_of(nowhere)["error"] == "no data-path"


def test_a_method_that_answers_must_not_take_a_name_of_the_base():
    with pytest.raises(ConfigError, match=r"Taken\.rows is marked .*: give it another one"):

        class Taken(CausalClient):
            contract = Contract("taken", (LATE,))

            @answers(LATE)
            def rows(self, asked):
                return {}


def test_a_client_without_sums_reports_none():
    class Counting(Echo):
        contract = replace(ECHO, reports=())

    grid = LocalGrid(app_of(TABLES, Counting), 2)
    message = Message(
        records.message_content(None, question("echo", Handling())),
        dst_node_id=NODE,
        message_type="query.schema",
        ttl=60.0,
    )
    values = records.config_of(grid.send_and_receive([message])[0].content)
    assert not values["has-sums"]
    assert values["means"] == []


def test_an_agreement_that_was_read_is_not_taken_for_another():
    method = methods.build("moments", {})
    options = method.client_options
    sent = Setup(("a",), 4, 1, np.zeros(1), np.ones(1), method.handling, options=options)
    config = {**sent.to_config(), f"{PREFIX}exchange": "0" * 16}
    first = bridge._read_setup(MomentsClient, config)
    assert bridge._read_setup(MomentsClient, dict(config)) is first
    assert first.options == options
    # Equal for Python, and of another type.
    with pytest.raises(FormError, match="num-clients"):
        bridge._read_setup(MomentsClient, {**config, f"{PREFIX}num-clients": True})
    # A message's digest says nothing.
    other = {**config, f"{PREFIX}num-rows": 5, "digest": first.digest}
    assert bridge._read_setup(MomentsClient, other).num_rows == 5
    assert bridge._read_setup(MomentsClient, config).num_rows == 4
