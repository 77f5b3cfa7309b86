"""What may leave a party in the schema exchange."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from federations import app_of, make_federation

from flwr_causal.clients import MomentsClient, Source, client_app
from flwr_causal.contract.report import PARTS
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import describe
from flwr_causal.errors import DataError, FederationError
from flwr_causal.protocol.door import RefusedError, reported
from flwr_causal.protocol.schema import FACTS, REQUIRED
from flwr_causal.runtime.schema import exchange_schema
from flwr_causal.simulations import LocalGrid
from flwr_causal.simulations.relay import Relay
from flwr_causal.strategies import Moments

FRAME = pd.DataFrame({"a": [1.0, 2.5, 2.5], "b": ["u", "v", "u"]})
WHOLE = replace(
    describe(FRAME, sums=True, states=True, relations=True),
    leaves_out=True,
    repeats=True,
    level_rows=2,
    has_ids=True,
    ids_problem="column 'a' of ids has 1 that repeat",
    ids_kind="digits",
    notes=("one series",),
    step="1 days",
    targets=((), ("a",)),
    withheld=True,
    unlike_series=True,
)


def test_every_key_of_a_report_is_declared_and_no_other():
    around = {"party", "version", "contract", "partition-id", "error"}
    around |= {"incomplete", "public-key", "signature"}
    assert {fact.key for fact in FACTS} == {*WHOLE.to_dict(), *around}
    assert len({fact.key for fact in FACTS}) == len(FACTS)
    assert {fact.part for fact in FACTS} == {None, *PARTS}
    assert all(fact.meaning for fact in FACTS)


def test_a_report_passes_whole():
    assert reported(WHOLE.to_dict(), tuple(PARTS), 2) == WHOLE.to_dict()


def test_a_key_that_is_not_declared_does_not_leave():
    with pytest.raises(RefusedError, match="no report has the key 'first-row'"):
        reported({**WHOLE.to_dict(), "first-row": [1.0, 2.0]}, tuple(PARTS), 9)


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ("sums", "means"),
        ("relations", "combination-of"),
        ("states", "distinct"),
        ("series", "level-rows"),
        ("ids", "has-ids"),
    ],
)
def test_a_part_leaves_only_where_the_contract_names_it(part, key):
    others = [one for one in PARTS if one != part]
    with pytest.raises(RefusedError, match=f"does not declare that parties report '{part}'.*{key}"):
        reported(WHOLE.to_dict(), others, 9)


def test_a_report_without_sums_needs_no_part():
    report = describe(FRAME).to_dict()
    assert reported(report, (), 9) == report


def test_a_list_has_a_value_for_each_column():
    with pytest.raises(RefusedError, match="'means' has 3 values for 2 columns"):
        reported({**WHOLE.to_dict(), "means": [1.0, 2.0, 2.5]}, tuple(PARTS), 9)


@pytest.mark.parametrize("change", [{}, {"states": ["1", "2.5", "u", "v", "w"]}])
def test_no_more_states_than_allowed_are_named(change):
    most = 9 if change else 1
    with pytest.raises(RefusedError, match=f"more than {most} states of a column"):
        reported({**WHOLE.to_dict(), **change}, tuple(PARTS), most)


class Naming(MomentsClient):
    """Would name the values of its columns, which a run of Moments does not ask for by default."""

    def describe(self, handling: Handling):
        return describe(self.table(), handling, sums=True, states=True)


def test_the_party_refuses_to_report_what_the_contract_does_not_declare():
    tables = make_federation(d=3, n=8, parties=2).tables
    app = client_app(Naming, lambda context: Source("north", lambda: tables[0]))
    with pytest.raises(DataError, match=r"north.*does not declare that parties report 'states'"):
        exchange_schema(Moments(round_timeout=5.0), LocalGrid(app, 2))
    exchange_schema(Moments(round_timeout=5.0), LocalGrid(app_of(tables, MomentsClient), 2))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rows", -1),
        ("rows", "3"),
        ("rows", 10**18),
        ("names", "a"),
        ("names", ["a", 3]),
        ("missing", [0, -2]),
        ("missing", [0, 0.5]),
        ("distinct-one", [0, 2]),
        ("means", [float("nan"), 0.0]),
        ("squares", [-1.0, 0.0]),
        ("squares", [float("nan"), 0.0]),
        ("copy-of", [-2, -1]),
    ],
)
def test_an_impossible_value_is_refused_at_both_ends(key, value):
    forged = {**WHOLE.to_dict(), key: value}
    with pytest.raises(RefusedError, match=f"'{key}'|{value} rows"):
        reported(forged, tuple(PARTS), 9)


@pytest.mark.parametrize("key", REQUIRED)
def test_a_report_without_a_key_is_refused(key):
    lacking = {k: v for k, v in WHOLE.to_dict().items() if k != key}
    with pytest.raises(RefusedError, match=f"'{key}' is missing"):
        reported(lacking, tuple(PARTS), 9)


class ForgingSchema(LocalGrid):
    """Changes the schema answer of one node in its first attempts."""

    def __init__(self, tables, change, attempts=9) -> None:
        super().__init__(app_of(tables, MomentsClient), len(tables))
        self.change, self.attempts = change, attempts

    def send_and_receive(self, messages, *, timeout=None):
        replies = super().send_and_receive(messages, timeout=timeout)
        for reply in replies:
            if reply.metadata.src_node_id == 3 and self.attempts:
                self.attempts -= 1
                self.change(reply.content["config"])
        return [*replies, *replies]


TABLES = make_federation(d=3, n=30, parties=3).tables


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.pop("rows"), "party 1: .*'rows' is missing"),
        (lambda c: c.update(means=[float("nan")] * 3), "party 1: .*'means' is declared as number"),
        (lambda c: c.update({"first-row": 1.0}), "party 1: .*no report has the key 'first-row'"),
        (lambda c: c.pop("party"), "node 3: .*lacks the party's name"),
        (lambda c: c.clear(), "node 3: .*lacks the party's name"),
    ],
)
def test_nonsense_is_asked_again_and_then_named(change, words):
    method = Moments(round_timeout=5.0)
    with pytest.raises(FederationError, match=words) as caught:
        exchange_schema(method, ForgingSchema(TABLES, change))
    assert "party 0" not in str(caught.value)
    _, agreement, _ = exchange_schema(method, ForgingSchema(TABLES, change, attempts=1))
    assert list(agreement.rows) == ["party 0", "party 1", "party 2"]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("remainders", 1e300, "deviations of the column 'a' from its mean, 1e\\+300, is larger"),
        ("remainders", -3.0, "is larger than the sum of their squares, 1.5, allows"),
        ("missing", 4, "'missing' is 4 for a column of 3 rows"),
        ("distinct", 5, "'distinct' is 5 for a column of 3 rows"),
    ],
)
def test_sums_and_counts_that_rows_cannot_have_do_not_leave(key, value, words):
    report = replace(WHOLE, withheld=False).to_dict()
    with pytest.raises(RefusedError, match=words):
        reported({**report, key: [value, *report[key][1:]]}, tuple(PARTS), 9)


@pytest.mark.parametrize("offset", [0.0, 1e12])
def test_remainders_of_rounded_means_leave(offset):
    values = np.random.default_rng(0).normal(size=(5000, 3)) + offset
    values[:, 2] = np.where(np.arange(5000) < 2, offset, offset + 1 / 3)
    report = describe(pd.DataFrame(values), sums=True).to_dict()
    assert reported(report, tuple(PARTS), 2) == report


class OneRemainder(Relay):
    """A grid in which one party's report has an absurd remainder."""

    def after(self, messages, replies):
        for reply in replies:
            config = reply.content["config"]
            if config["party"] == "party 1":
                config["remainders"] = [1e300, *config["remainders"][1:]]
        return replies


def test_an_absurd_remainder_names_its_sender_alone():
    tables = make_federation(d=3, n=60, parties=3).tables
    grid = OneRemainder(LocalGrid(app_of(tables), 3))
    with pytest.raises(FederationError, match="party 1: its answer was refused") as error:
        exchange_schema(Moments(), grid)
    assert "party 0" not in str(error.value)
    assert "party 2" not in str(error.value)
