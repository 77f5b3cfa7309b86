"""The single checks of a party's door, and the file of its releases, without a run."""

import json
import os
import stat
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from flwr_causal.core.privacy.calibration import rho_of
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.report import ColumnReport, TableReport
from flwr_causal.errors import (
    AskedOtherwiseError,
    ConfigError,
    DataError,
    FederationError,
    PolicyError,
)
from flwr_causal.party import door
from flwr_causal.party.door import PartyDoor
from flwr_causal.party.node_config import NodeConfig
from flwr_causal.party.noise import ReleaseFile, losses_kept
from flwr_causal.party.policy import ColumnRules, PartyPolicy
from flwr_causal.party.record import (
    Counts,
    PartyRecord,
    RecordError,
    left,
)
from flwr_causal.protocol.options import PrivatePartyOptions, Setting
from flwr_causal.protocol.terms import RunTerms


def door_of(directory=None, guarded=True, **rules):
    record = None if directory is None else PartyRecord(directory / "record.jsonl")
    return PartyDoor(7, PartyPolicy(**rules), record, guarded)


def lost(epsilon):
    return {"epsilon": epsilon, "delta": 1e-5, "rho": rho_of(epsilon, 1e-5)}


def rule_of(check, *args, **options):
    """The rule by which a check refuses; none where it does not."""
    try:
        check(*args, **options)
    except PolicyError as error:
        return error.rule
    return ""


@pytest.mark.parametrize(
    ("node", "has_policy", "guarded"),
    [
        ({"name": "a", "data-path": "/a.csv"}, False, True),
        ({"partition-id": 0, "num-partitions": 3}, False, False),
        ({"partition-id": 0, "num-partitions": 3}, True, True),
    ],
)
def test_all_but_simulated_parties_without_a_policy_are_guarded(
    tmp_path, node, has_policy, guarded
):
    if has_policy:
        (tmp_path / "policy.toml").write_text("least-rows = 2")
        node = {**node, "policy": str(tmp_path / "policy.toml")}
    own = PartyDoor.of(SimpleNamespace(node_config=node, run_id=7))
    assert own.guarded is guarded
    assert own.policy.least_rows == (2 if has_policy else 0)


def test_keys_and_policies_that_cannot_be_used_open_no_door(tmp_path, monkeypatch):
    logged = []
    monkeypatch.setattr(door, "log", lambda level, text, *rest: logged.append(text % rest))
    node = {"name": "a", "data-path": "/a.csv"}

    def of(*further, **more):
        return PartyDoor.of(SimpleNamespace(node_config={**node, **more}, run_id=7), further)

    with pytest.raises(ConfigError, match="polcy"):
        of(polcy="/p.toml")
    assert of("polcy", polcy="/p.toml").policy == PartyPolicy()
    (tmp_path / "policy.toml").write_text("least-rows = 1.5")
    with pytest.raises(ConfigError, match="the log of its node says why"):
        of(policy=str(tmp_path / "policy.toml"))
    (text,) = logged
    assert "least-rows is 1.5" in text


def test_the_fewest_rows_are_enough_and_one_less_is_refused():
    own = door_of(least_rows=30)
    assert rule_of(own.check_used, 30, list) == ""
    assert rule_of(own.check_used, 29, list) == "least-rows"
    assert rule_of(own.check_used, None, list) == ""


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"least_rows": True}, "least-rows is True: give a whole number"),
        ({"least_parties": 2.0}, r"least-parties is 2\.0: give a whole number"),
        ({"most_exchanges_a_day": "3"}, "most-exchanges-a-day is '3': give a whole number"),
        ({"least_rows": -1}, "least-rows is -1: give 0 or more"),
        ({"secure_aggregation": 1}, "secure-aggregation: give true or false"),
        *(({"epsilon": one}, "epsilon is") for one in (True, "1", -0.1, np.inf, np.nan)),
        *(({"epsilon": 1, "delta": one}, "delta is") for one in (True, "1", 0, 1, np.nan)),
        ({"delta": 1e-5}, "give both, or neither"),
    ],
)
def test_a_rule_of_another_kind_is_an_error(rules, words):
    with pytest.raises(ConfigError, match=words):
        PartyPolicy(**rules)


def test_the_bounds_of_rules_are_rules():
    least = {"least_rows": 0, "least_parties": 0, "most_exchanges_a_day": 0, "epsilon": 0}
    own = PartyPolicy(**least, delta=1e-9, secure_aggregation=True)
    assert own.used_delta == 1e-9
    assert PartyPolicy(epsilon=1.0).used_delta == 1e-5
    assert [PartyPolicy(**one).counts for one in ({}, {"epsilon": 0.0})] == [False, True]
    assert PartyPolicy(most_exchanges_a_day=0).counts
    assert [ColumnRules(**{one: ("x",)}).shows_all for one in ("allowed", "never")] == [False] * 2


@pytest.mark.parametrize("name", ["columns", "options"])
def test_columns_and_options_are_tables(name):
    with pytest.raises(ConfigError, match=r"write \[columns\] and \[options\]"):
        PartyPolicy.from_dict({name: ["x"]})
    assert PartyPolicy.from_dict({name: {}}) == PartyPolicy()


def terms_of(method="moments", parties=3, secure=False, **options):
    return RunTerms(method, options, parties, secure)


@pytest.mark.parametrize(
    ("rules", "kept", "broken", "rule"),
    [
        ({"methods": ("moments",)}, {}, {"method": "lingam"}, ""),
        ({"secure_aggregation": True}, {"secure": True}, {}, ""),
        ({"least_parties": 4}, {"parties": 4}, {}, ""),
        ({"options": {"row-id": ["a"]}}, {"row_id": "a"}, {"row_id": "b"}, "options.row-id"),
        ({"options": {"row-id": ["a"]}}, {"row_id": "a"}, {}, "options.row-id"),
        (
            {"options": {"moments": {"order": {"least": 2, "most": 3}}}},
            {"order": 2},
            {"order": 1},
            "options.order",
        ),
        ({"options": {"lingam": {"order": 1}}}, {}, {"method": "lingam"}, "options.order"),
        ({"epsilon": 1.0}, {"epsilon": 9.0, "delta": 1e-5}, {}, ""),
        ({"epsilon": 1.0}, {"epsilon": 9.0}, {"epsilon": -1.0}, ""),
        ({"epsilon": 1.0}, {"epsilon": 9.0}, {"epsilon": 9.0, "delta": 1.1e-5}, "delta"),
    ],
)
def test_what_a_run_asks_is_judged_by_each_rule(rules, kept, broken, rule):
    own = PartyPolicy(**rules)
    assert rule_of(own.check, terms_of(**kept)) == ""
    rule = rule or next(iter(rules)).replace("_", "-")
    assert rule_of(own.check, terms_of(**broken)) == rule


def test_a_message_keeps_to_its_terms():
    options = PrivatePartyOptions(epsilon=1.0, delta=1e-5)

    def kept(policy, masked=False, method="moments", **terms):
        return rule_of(policy.check_kept, terms_of(**terms), method, options, masked=masked)

    assert kept(PartyPolicy()) == ""
    assert kept(PartyPolicy(), method="lingam") == "methods"
    assert kept(PartyPolicy(secure_aggregation=True), masked=True) == ""
    assert kept(PartyPolicy(secure_aggregation=True)) == "secure-aggregation"
    assert kept(PartyPolicy(epsilon=9.0), epsilon=1.0) == ""
    for other in ({}, {"epsilon": 2.0}, {"epsilon": 1.0, "delta": 1e-6}):
        assert kept(PartyPolicy(epsilon=9.0), **other) == "epsilon"


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ"


@pytest.mark.parametrize(
    ("setting", "stated", "plain", "limited", "signed"),
    [
        (Setting("order", 1), {"order": 1}, "", "", ""),
        (Setting("order", 2), {"order": 1}, "options.order", "options.order", "askers"),
        (Setting("order", 0), {"order": 1}, "options.order", "options.order", "askers"),
        (Setting("order", 9), {"order": 9}, "", "options.order", ""),
        (Setting("order", 9, judged=False), {"order": 9}, "", "", ""),
        (Setting("order", 9), {}, "", "options.order", ""),
        (Setting("order", 1), {}, "", "", ""),
        (Setting("order", 1, always=True), {}, *["options.order"] * 3),
        (Setting("order", 0, always=True), {}, "", "", ""),
        (Setting("order", 1, always=True), {"order": 1}, "", "", ""),
        (Setting("order", 2, always=True), {"order": 1}, *["options.order"] * 3),
    ],
)
def test_a_setting_is_judged_and_is_the_stated_one(setting, stated, plain, limited, signed):
    """By a policy without rules, by one that limits the option, and by one that asks who signed."""
    limit = {"order": {"most": 3}}
    policies = PartyPolicy(), PartyPolicy(options=limit), PartyPolicy(askers=(KEY,))
    found = [rule_of(own.check_settings, terms_of(**stated), [setting]) for own in policies]
    assert found == [plain, limited, signed]
    # One that may stay as it is is no reason to leave out those behind it.
    both = [Setting("seed", 1), Setting("order", 9, always=True)]
    assert rule_of(policies[0].check_settings, terms_of(seed=1), both) == "options.order"


def test_identifiers_are_refused_at_guarded_nodes_unless_they_are_known():
    def alike():
        return ["PatientID", "PersonID"]

    assert rule_of(door_of().check_used, 9, alike) == "columns.identifiers"
    assert rule_of(door_of(guarded=False).check_used, 9, alike) == ""
    some = door_of(columns=ColumnRules(identifiers=("PatientID",)))
    with pytest.raises(PolicyError) as caught:
        some.check_used(9, alike)
    assert caught.value.details.startswith("PersonID look")
    both = door_of(columns=ColumnRules(identifiers=("P*ID",)))
    assert rule_of(both.check_used, 9, alike) == ""


def test_columns_count_as_used_by_kind_and_where_they_are_in_the_table():
    ids = [f"{1000 + 7 * row}@example.org" for row in range(60)]
    table = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60), "contact": ids})

    def report_of(*kinds):
        columns = (ColumnReport(name, kind, 0, 0, False, 0, None) for name, kind in kinds)
        return TableReport(60, 0, tuple(columns), has_sums=False)

    check, whole = door_of().check_report, report_of(("x", "numeric"), ("contact", "category"))
    drops, keeps = Handling(text_columns="drop"), Handling(text_columns="keep")
    assert rule_of(check, whole, table, keeps) == "columns.identifiers"
    assert rule_of(check, whole, table, drops) == ""
    assert rule_of(check, whole, table[["x"]], keeps) == ""
    # Under differential privacy neither values nor the number of rows are looked at.
    private = {"private": True}
    assert rule_of(door_of(least_rows=61).check_report, whole, table, keeps, **private) == ""
    assert rule_of(door_of(least_rows=61).check_report, whole, table, drops) == "least-rows"
    named = table.rename(columns={"x": "PatientID"})
    for kind in ("numeric", "boolean"):
        one = report_of(("PatientID", kind))
        assert rule_of(check, one, named, drops, **private) == "columns.identifiers"


def test_withheld_columns_are_not_in_the_table():
    table = pd.DataFrame({"x": [1], "y": [2], "secret": [3]})
    assert list(door_of(columns=ColumnRules(never=("secret",))).shown(table).columns) == ["x", "y"]
    assert list(door_of(columns=ColumnRules(allowed=("y",))).shown(table).columns) == ["y"]
    assert door_of().shown(table) is table


def test_as_many_replies_leave_in_a_day_as_the_policy_says(tmp_path):
    own = door_of(tmp_path, most_exchanges_a_day=2)
    rules = [rule_of(own.note, RecordDict(), exchange="sums", number=k) for k in range(3)]
    assert rules == ["", "", "most-exchanges-a-day"]
    assert len(own.record.lines()) == 2
    # A repeated check draws nothing from the limit, and another rule has no limit of replies.
    free = door_of(tmp_path, epsilon=1.0)
    assert rule_of(free.note, RecordDict(), exchange="sums", number=4) == ""


def test_one_run_may_have_all_of_epsilon_and_no_more(tmp_path):
    own = door_of(tmp_path, epsilon=1.0)
    assert rule_of(own.check_budget, {"release": "a", **lost(1.0)}) == ""
    assert rule_of(own.check_budget, {"release": "a", **lost(1.01)}) == "epsilon"
    assert not own.record.lines()
    assert rule_of(own.note, RecordDict(), release="a", **lost(1.0)) == ""
    assert rule_of(own.check_budget, {"release": "b", **lost(0.1)}) == "epsilon"
    assert rule_of(own.note, RecordDict(), release="b", **lost(0.1)) == "epsilon"
    # The same release again loses nothing further.
    assert rule_of(own.note, RecordDict(), release="a", **lost(1.0)) == ""
    (tmp_path / "free").mkdir()
    assert rule_of(door_of(tmp_path / "free").check_budget, lost(9.0)) == ""
    assert rule_of(door_of(epsilon=1.0).check_budget, lost(9.0)) == ""


def test_errors_are_written_down_by_their_kind(tmp_path):
    own = door_of(tmp_path)
    given = [DataError("3 rows"), AskedOtherwiseError("other"), PolicyError("epsilon", "all spent")]
    assert [own.noted(error, exchange="sums") for error in given] == given
    lines = own.record.lines()
    assert [line["event"] for line in lines] == ["failed", "refused", "refused"]
    assert [line["reason"] for line in lines] == ["DataError", "AskedOtherwiseError", "epsilon"]
    assert {(line["run"], line["exchange"]) for line in lines} == {(7, "sums")}
    assert door_of().noted(given[0]) is given[0]


def test_an_error_without_a_release_is_sent_whatever_is_spent(tmp_path):
    door_of(tmp_path).note(RecordDict(), release="a", **lost(2.0))
    own, error = door_of(tmp_path, epsilon=1.0), DataError("3 rows")
    assert own.noted(error, exchange="sums") is error
    refused = PolicyError("epsilon", "all spent")
    assert own.noted(refused, release="b", **lost(0.5)) is refused


def test_an_error_that_cannot_be_written_down_is_not_sent(tmp_path):
    (tmp_path / "record.jsonl").mkdir()
    assert isinstance(door_of(tmp_path).noted(DataError("3 rows")), RecordError)


def test_each_run_and_party_has_a_file_of_its_own(tmp_path):
    node = NodeConfig(releases=tmp_path / "kept")
    names = [("a", "b"), ("a", "c"), ("d", "b"), ("b", "a")]
    files = [ReleaseFile.of(node, run, party).path for run, party in names]
    assert len(set(files)) == len(names)
    assert {file.parent for file in files} == {tmp_path / "kept"}
    assert ReleaseFile.of(node, "a", "b").path == files[0]
    nowhere = ReleaseFile.of(NodeConfig(), "a", "b")
    assert (nowhere.path, nowhere.read()) == (None, {})
    assert nowhere.add({"x": {"drawn": 1}}) == {"x": {"drawn": 1}}


def test_what_was_drawn_first_stays(tmp_path):
    file = ReleaseFile(tmp_path / "kept" / "one.json")
    assert file.read() == {}
    assert file.add({"x": {"drawn": 1}}) == {"x": {"drawn": 1}}
    both = {"x": {"drawn": 1}, "y": {"drawn": 3}}
    assert file.add({"x": {"drawn": 2}, "y": {"drawn": 3}}) == both
    assert file.read() == both
    assert file.path.stat().st_mode & 0o77 == 0
    assert file.path.parent.stat().st_mode & 0o77 == 0


def test_a_release_is_on_the_disk_under_its_name_before_it_leaves(tmp_path, monkeypatch):
    """A power failure that undid the renaming would leave a file in which nothing was drawn."""
    file, synced = ReleaseFile(tmp_path / "kept" / "one.json"), []
    fsync = os.fsync

    def watched(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            synced.append(file.read())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    file.add({"x": {"drawn": 1}})
    assert synced == [{"x": {"drawn": 1}}]


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b'{"x": ', b"\xff"])
def test_a_damaged_file_is_no_permission_to_draw_again(tmp_path, content):
    file = ReleaseFile(tmp_path / "one.json")
    file.path.write_bytes(content)
    for ask in (file.read, lambda: file.add({"x": {"drawn": 2}})):
        with pytest.raises(FederationError, match="makes no second one"):
            ask()
    assert file.path.read_bytes() == content


def test_what_was_drawn_counts_once_for_what_it_loses_at_most(tmp_path):
    def keep(name, **drawn):
        kept = {"private-run": {"id": name}}
        kept |= {f"private-{one}": {"rho": rho} for one, rho in drawn.items()}
        (tmp_path / f"{name * 32}.json").write_text(json.dumps(kept))

    keep("a", octaves=0.1, release=0.3)
    keep("b", octaves=0.2)
    keep("c")
    (tmp_path / "notes.json").write_text("mine")
    (tmp_path / f"{'d' * 32}.json").symlink_to(tmp_path / "gone")
    assert losses_kept(tmp_path) == {"a": 0.3, "b": 0.2}
    assert losses_kept(tmp_path / "nowhere") == losses_kept(None) == {}
    assert Counts().epsilon(1e-5, {"a": rho_of(1.0, 1e-5)}) == pytest.approx(1.0)
    keep("b", octaves=0.2, release=0.25)
    (tmp_path / f"{'a' * 32}.json").unlink()
    assert losses_kept(tmp_path) == {"b": 0.25}


@pytest.mark.parametrize("rule", [{"epsilon": 9.0}, {"most_exchanges_a_day": 9}])
@pytest.mark.parametrize("change", [{"rho": 1e-9}, {"event": "refused"}, {"exchange": "schema"}])
def test_a_changed_record_counts_for_nothing(tmp_path, rule, change):
    record = PartyRecord(tmp_path / "record.jsonl")
    about = {"exchange": "release", "epsilon": 1.0, "rho": 0.1}
    for run in (1, 2):
        record.append({"event": "sent", "run": run, **about})
    door = PartyDoor(3, PartyPolicy(**rule), record, True)
    door.check_budget(about)
    door.note(RecordDict(), **about)
    first, *others = record.path.read_text().splitlines()
    changed = json.dumps({**json.loads(first), **change})
    record.path.write_text("\n".join([changed, *others]) + "\n")
    before = record.path.read_bytes()
    with pytest.raises(RecordError, match="was changed: line 2"):
        door.note(RecordDict(), **about)
    if "epsilon" in rule:
        with pytest.raises(DataError, match="was changed: line 2"):
            door.check_budget(about)
    assert record.path.read_bytes() == before


def test_a_line_says_of_a_reply_what_left_and_its_digest():
    def line(values, **arrays):
        own = {name: Array(np.array(one)) for name, one in arrays.items()}
        return left(RecordDict({"a": ArrayRecord(own), "v": ConfigRecord(values)}))

    found = line({"names": "x,y", "rows": 3}, sums=[1.0, 2.0])
    assert found["values"] == ["names", "rows"]
    assert line({"rows": 3, "names": "x,y"}, sums=[1.0, 2.0]) == found
    others = (
        line({"names": "x,z", "rows": 3}, sums=[1.0, 2.0]),
        line({"names": "x,y", "row": 3}, sums=[1.0, 2.0]),
        line({"names": "x,y", "rows": 3}, sums=[1.0, 3.0]),
        line({"names": "x,y", "rows": 3}, sum=[1.0, 2.0]),
    )
    assert len({one["digest"] for one in (found, *others)}) == 5


def test_a_record_that_cannot_be_opened_or_read_is_an_error(tmp_path):
    there = PartyRecord(tmp_path / "record.jsonl")
    assert there.lines() == []
    there.try_to_open()
    assert there.lines() == []
    with pytest.raises(RecordError, match="cannot be written"):
        PartyRecord(tmp_path).try_to_open()
    with pytest.raises(DataError, match="cannot be read"):
        PartyRecord(tmp_path).lines()


def test_a_day_has_the_replies_of_its_hours_and_nothing_else():
    now = datetime.now(UTC)

    def line(hours, event="sent", exchange="sums"):
        return {
            "time": (now - timedelta(hours=hours)).isoformat(),
            "event": event,
            "exchange": exchange,
        }

    lines = [line(0), line(23.9), line(24.1), line(0, "refused"), line(0, "failed")]
    counts = Counts.of([*lines, line(0, exchange="schema")])
    assert len(counts.of_last_day().times) == 2


@pytest.mark.parametrize("text", ["[1]", "3", "{", '{"time": "2026-01-01"}', '{"time": "x"}', "{}"])
def test_a_line_that_is_none_is_named(tmp_path, text):
    record = PartyRecord(tmp_path / "record.jsonl")
    record.append({"event": "sent"})
    record.path.write_text(record.path.read_text() + text + "\n")
    for read in (record.lines, record.counts):
        with pytest.raises(DataError, match="line 2 is none of this program's"):
            read()


def test_nothing_is_added_behind_a_line_without_an_end(tmp_path):
    record = PartyRecord(tmp_path / "record.jsonl")
    record.append({"event": "sent"})
    whole = record.path.read_text()
    for damaged in (whole.rstrip("\n"), whole.rstrip("\n") + " "):
        record.path.write_text(damaged)
        with pytest.raises(RecordError, match="its last line is damaged"):
            record.append({"event": "sent"})
        assert record.path.read_text() == damaged
