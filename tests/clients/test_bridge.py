"""From a message to a client's fit and back."""

import numpy as np
import pytest
from federations import app_of, ask, make_federation, setup_for
from flwr.app import Message

from flwr_causal.clients import CausalClient, Disclosure, Source, client_app
from flwr_causal.data.check.report import TableReport
from flwr_causal.errors import DataError
from flwr_causal.protocol import records
from flwr_causal.simulations import LocalGrid

TABLES = make_federation(d=3, n=12, parties=2).tables
SETUP = setup_for(TABLES)
NODE = 2  # the grid's first


class Echo(CausalClient):
    """Returns what its message asks for."""

    discloses = (
        Disclosure("sum", "column sums", ("d",)),
        Disclosure("product", "X^T X", ("d", "d")),
        Disclosure("count", "rows"),
        Disclosure("late", "at the end", ("d",), phase="end"),
        Disclosure("answer", "of a query", ("*",), phase="query"),
    )

    def fit(self, parameters, config):
        rows = self.rows()
        seen = self.recall()
        calls = 1 if seen is None else seen.numbers["calls"] + 1
        self.remember({"last": rows.sum(axis=0)}, calls=calls)
        what = config.get("what", "fine")
        if what == "raise":
            raise DataError("column 'x1' is odd")
        if what == "too-few":
            return [rows.sum(axis=0)], 1, {}
        if what == "wrong-phase":
            return [rows.sum(axis=0), rows.T @ rows], 1, {"late": 3}
        if what == "rows":
            return [rows, rows.T @ rows], 1, {}
        if config["exchange"] == "end":
            return [rows.sum(axis=0)], 1, {}
        return (
            [rows.sum(axis=0), rows.T @ rows + sum(map(np.sum, parameters))],
            len(rows),
            {"count": calls},
        )

    def answer(self, parameters, config):
        return [parameters[0] * 2.0], 1, {}


@pytest.fixture
def grid():
    return LocalGrid(app_of(TABLES, Echo), len(TABLES))


def test_arrays_are_named_by_the_disclosures_of_the_phase(grid):
    content = ask(grid, NODE, {"a": np.ones(2)}, setup=SETUP).content
    rows = TABLES[0].to_numpy()
    arrays = records.arrays_of(content)
    assert list(arrays) == ["sum", "product"]
    np.testing.assert_allclose(arrays["sum"], rows.sum(axis=0))
    np.testing.assert_allclose(arrays["product"], rows.T @ rows + 2.0)
    assert content["metrics"]["num-examples"] == len(rows)
    late = ask(grid, NODE, {}, phase="end").content
    assert list(records.arrays_of(late)) == ["late"]


def test_queries_are_answered(grid):
    ask(grid, NODE, {}, setup=SETUP)
    reply = ask(grid, NODE, {"a": np.arange(4.0)}, message_type="query", phase="query")
    np.testing.assert_array_equal(records.arrays_of(reply.content)["answer"], [0.0, 2.0, 4.0, 6.0])


def test_clients_that_implement_nothing_say_so():
    grid = LocalGrid(app_of(TABLES, CausalClient), len(TABLES))
    assert "has to implement fit()" in ask(grid, NODE, {}, setup=SETUP).error.reason
    reply = ask(grid, NODE, {}, message_type="query", setup=SETUP)
    assert "answers no queries" in reply.error.reason


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("raise", "column 'x1' is odd"),
        ("too-few", ""),
        ("wrong-phase", "'late' may not leave"),
        ("rows", r"'sum' of shape \(6, 3\) may not leave"),
    ],
)
def test_a_failing_step_leaves_nothing_behind(grid, what, reason):
    ask(grid, NODE, {}, setup=SETUP)
    state = grid.context(NODE).state
    before = {name: dict(record) for name, record in state.items()}
    reply = ask(grid, NODE, {}, what=what)
    assert reply.has_error()
    with pytest.raises(AssertionError, match=reason or "zip"):
        raise AssertionError(reply.error.reason)
    assert {name: dict(record) for name, record in state.items()} == before
    assert records.numbers_of(ask(grid, NODE, {}).content) == {"count": 2}


def test_without_agreement_the_reply_is_an_error_that_the_server_understands(grid):
    reply = ask(grid, NODE, {})
    assert "no agreement with the others" in reply.error.reason


def test_the_agreement_is_sent_once_and_kept(grid):
    ask(grid, NODE, {}, setup=SETUP)
    assert not ask(grid, NODE, {}).has_error()
    assert ask(grid, NODE + 1, {}).has_error()


def test_a_new_agreement_replaces_the_old_one(grid):
    ask(grid, NODE, {}, setup=SETUP)
    ask(grid, NODE, {}, setup=setup_for(TABLES, names=("x2", "x0")))
    expected = TABLES[0][["x2", "x0"]].to_numpy().sum(axis=0)
    np.testing.assert_allclose(records.arrays_of(ask(grid, NODE, {}).content)["sum"], expected)


def test_the_precision_is_the_agreements(grid):
    exact = TABLES[0].to_numpy().sum(axis=0)
    for precision in records.PRECISIONS:
        reply = ask(grid, NODE, {}, setup=setup_for(TABLES, precision=precision))
        received = records.arrays_of(reply.content)["sum"]
        assert np.array_equal(received, exact.astype(precision))


def test_an_unknown_method_names_the_known_ones():
    grid = LocalGrid(app_of(TABLES), len(TABLES))
    reply = ask(grid, NODE, {}, setup=SETUP, method="oracle")
    assert "'oracle'" in reply.error.reason
    assert "moments, notears-admm" in reply.error.reason


def schema_of(source):
    grid = LocalGrid(client_app(Echo, source), 1)
    content = records.instruction(None, {"method": "echo", "policy-missing_values": "drop"})
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


def test_a_client_without_sums_reports_none():
    class Counting(Echo):
        sums = False

    grid = LocalGrid(app_of(TABLES, Counting), 2)
    message = Message(
        records.instruction(None, {}), dst_node_id=NODE, message_type="query.schema", ttl=60.0
    )
    values = records.config_of(grid.send_and_receive([message])[0].content)
    assert not values["has-sums"]
    assert values["means"] == []
