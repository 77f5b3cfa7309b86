"""Texts of a party that deviates: shown and stored on one line, without signals, and bounded."""

import json

import numpy as np
import pandas as pd
import pytest
from federations import make_federation
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from flwr_causal import CausalGraph, DataError, simulate
from flwr_causal.errors import CausalError
from flwr_causal.protocol import records
from flwr_causal.reports.graph_files import write_all
from flwr_causal.simulations.relay import Relay

TABLES = make_federation(d=3, n=60, parties=3, seed=1).tables
#: To clear a terminal, to write a line of the log, to turn what follows around, to fill the disk.
HOSTILE = "\x1b[2J\nINFO : all is well\u202e" + "x" * 100_000
SIGNALS = ("\x1b", "\u202e", "\nINFO", "\u2028", "x" * 10_000)


def harmless(text):
    return not any(one in text for one in SIGNALS)


class Deviating(Relay):
    """Changes the answers of the last party: to the question for the schema, or in exchanges."""

    def __init__(self, grid, change, *, schema):
        super().__init__(grid)
        self.change, self.schema = change, schema

    def after(self, messages, replies):
        kind = messages[0].metadata.message_type
        if (kind == "query.schema") is not self.schema:
            return replies
        last = max(self.grid.get_node_ids())
        request = next((m for m in messages if m.metadata.dst_node_id == last), None)
        return [
            self.change(one, request) if one.metadata.src_node_id == last else one
            for one in replies
        ]


def failed(reply, request):
    return Message(Error(code=7, reason=f"Traceback\n{HOSTILE}"), reply_to=request)


def entry(key, change):
    def changed(reply, request):
        values = records.config_of(reply.content)
        values[key] = change(values.get(key))
        content = RecordDict({**reply.content, records.CONFIG: ConfigRecord(values)})
        return Message(content, reply_to=request)

    return changed


def with_array(reply, request):
    """Add an array of a hostile name."""
    arrays = ArrayRecord({**reply.content[records.ARRAYS], HOSTILE: Array(np.zeros(2))})
    return Message(RecordDict({**reply.content, records.ARRAYS: arrays}), reply_to=request)


def renamed(names):
    return [HOSTILE[:50], *names[1:]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (failed, r"node \d+: Traceback\\n\\x1b\[2J\\nINFO"),
        (entry("error", lambda _: HOSTILE), r"party 2: \\x1b\[2J"),
        (entry("version", lambda _: HOSTILE), r"party 2 has \\x1b\[2J"),
        (
            entry("party", lambda _: HOSTILE),
            r"node \d+: its answer was refused: it lacks the",
        ),
        (entry("party", lambda _: "y" * 101), r"node \d+: its answer was refused: it lacks the"),
        (
            entry("names", renamed),
            r"party 2: its answer.* the column '\\x1b\[2J\\nINFO.* has",
        ),
        (entry("step", lambda _: "1\nday"), "'step' is declared as text, but is not"),
        (entry("step", lambda _: "d" * 5000), "'step' has 5,000 letters, at most 4,000"),
        (
            entry("targets", lambda _: [json.dumps([HOSTILE])]),
            "no list of names",
        ),
    ],
)
def test_texts_of_the_schema_exchange(change, words, caplog):
    with pytest.raises(CausalError, match=words) as caught:
        simulate(
            "moments",
            TABLES,
            wrap_grid=lambda grid: Deviating(grid, change, schema=True),
        )
    assert harmless(str(caught.value))
    assert harmless(caplog.text)


@pytest.mark.parametrize("change", [failed, with_array, entry("extra\x1b", lambda _: 1)])
def test_texts_of_an_exchange(change, caplog, tmp_path):
    run = simulate(
        "moments",
        TABLES,
        quorum=0.5,
        output_dir=tmp_path / "run",
        wrap_grid=lambda grid: Deviating(grid, change, schema=False),
    )
    (failure,) = run.failures
    assert failure["party"] == "party 2"
    for text in (failure["reason"], caplog.text, str(run), run.headline, *run.warnings):
        assert harmless(text)
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            assert harmless(text)


@pytest.mark.parametrize("method", ["moments", "fedges"])
@pytest.mark.parametrize("name", ["a\x1bb", "a\u202eb", "a" * 501])
def test_a_party_reports_no_such_name(method, name):
    frames = [pd.DataFrame(np.arange(60).reshape(20, 3) % 7, columns=["x", "y", name])] * 2
    with pytest.raises(
        DataError, match=r"party 0, party 1: The report was not sent: the name of the column"
    ):
        simulate(method, frames)


def test_a_party_reports_no_such_state():
    frames = [pd.DataFrame({"x": ["a", "b"] * 20, "y": ["a", "secret\x1b"] * 20})] * 2
    with pytest.raises(DataError, match="a value of the column 'y', which would be a") as caught:
        simulate("fedges", frames)
    assert "secret" not in str(caught.value)


def test_graph_files_of_any_names_can_be_read(tmp_path):
    import networkx as nx

    names = ("a\x1b[2J", "b\u202e\n", "c\0")
    graph = CausalGraph.from_array(np.triu(np.ones((3, 3)), 1), names)
    write_all(graph, tmp_path)
    found = CausalGraph.from_networkx(nx.read_graphml(tmp_path / "graph.graphml"))
    assert found.names == ("a\\x1b[2J", "b\\u202e\\n", "c\\x00")
    assert (found.weights == graph.weights).all()
    assert harmless((tmp_path / "graph.dot").read_text(encoding="utf-8"))
    assert CausalGraph.load(tmp_path / "graph.json").names == names
