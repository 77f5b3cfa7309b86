"""What a policy counts of a record is kept beside it, and a line keeps little of a message."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flwr_causal.errors import DataError
from flwr_causal.party.door import PartyDoor
from flwr_causal.party.policy import PartyPolicy
from flwr_causal.party.record import Counts, PartyRecord, RecordError

LINES = st.fixed_dictionaries(
    {"event": st.sampled_from(["sent", "refused", "failed"]), "run": st.integers(1, 3)},
    optional={
        "exchange": st.sampled_from(["schema", "sums"]),
        "release": st.sampled_from("ab"),
        "epsilon": st.sampled_from([0.5, 1.0]),
        "rho": st.sampled_from([0.1, 0.25]),
    },
)
STEPS = st.lists(st.tuples(LINES, st.sampled_from(["counts", "plain", "from outside"])), max_size=8)


def nothing(counts):
    """A check that refuses nothing."""


def unread(self):
    raise AssertionError("all lines were read")


@pytest.fixture
def record(tmp_path):
    found = PartyRecord(tmp_path / "record.jsonl")
    for number in range(4):
        found.append({"event": "sent", "run": 1, "exchange": "e", "number": number}, nothing)
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_what_is_kept_is_what_all_lines_say(tmp_path, steps):
    own = PartyRecord(tmp_path / "record.jsonl")
    for path in (own.path, own._beside):
        path.unlink(missing_ok=True)
    found = []
    for line, how in steps:
        if how == "from outside":
            # As a process does that counts nothing and keeps nothing.
            kept = own._beside.read_bytes() if own._beside.exists() else b""
            own.append(line)
            own._beside.write_bytes(kept)
        else:
            own.append(line, found.append if how == "counts" else None)
        whole = Counts.of(own.lines())
        assert own.counts() == whole
    if steps:
        own.append({"event": "refused"}, found.append)
        assert found[-1] == whole


def test_a_line_is_added_without_reading_the_others(record, monkeypatch):
    monkeypatch.setattr(PartyRecord, "_chained", unread)
    found = []
    # The refusal is none that a policy counts.
    record.append({"event": "refused", "exchange": "e"})
    record.append({"event": "sent", "run": 1, "exchange": "e", "epsilon": 1.0, "rho": 0.2})
    record.append({"event": "sent", "run": 1, "exchange": "e"}, found.append)
    assert len(record.counts().times) == 6
    assert found[0].losses == {1: 0.2}


@pytest.mark.parametrize("end", [False, True])
def test_a_changed_record_is_read_and_noticed(record, end):
    text = record.path.read_text()
    place = text.rindex('"number": ') if end else text.index('"number": ')
    changed = text[: place + 10] + "9" + text[place + 11 :]
    assert len(changed) == len(text)
    # Another text of the same length, and at once: within one tick of the clock of files.
    record.path.write_text(changed)
    if end:
        assert record.counts().times == Counts.of(record.lines()).times
        return
    with pytest.raises(RecordError, match="was changed: line 2 does not follow"):
        record.append({"event": "sent"}, nothing)
    with pytest.raises(DataError, match="was changed: line 2 does not follow"):
        record.counts()


def test_a_shortened_or_new_record_is_counted_anew(record):
    lines = record.path.read_text().splitlines(keepends=True)
    record.path.write_text("".join(lines[:2]))
    assert len(record.counts().times) == 2
    record.path.unlink()
    assert record.counts() == Counts()
    record.append({"event": "sent", "exchange": "e"}, nothing)
    assert len(record.counts().times) == 1


@pytest.mark.parametrize("damage", ["changed", "gone", "empty", "no numbers"])
def test_counts_that_are_not_as_they_were_written_are_not_used(record, damage):
    beside = record._beside
    text = beside.read_bytes()
    if damage == "gone":
        beside.unlink()
        beside.mkdir()  # nothing can be written there either
    else:
        state, _, losses = json.loads(text.partition(b"\n")[2])
        changed = {"changed": json.dumps([state, [], losses]).encode(), "no numbers": b"[]"}
        head = text.partition(b"\n")[0] + b"\n"
        beside.write_bytes(head + changed[damage] if damage in changed else b"")
    assert len(record.counts().times) == 4
    record.append({"event": "sent", "exchange": "e"}, nothing)
    assert len(record.counts().times) == 5
    assert record.check_chain()


def test_the_limit_of_a_day_is_counted_over_restarts(tmp_path):
    policy = PartyPolicy(most_exchanges_a_day=3)
    own = PartyRecord(tmp_path / "record.jsonl")
    rules = []
    for _ in range(5):
        line = {"event": "sent", "run": 1, "exchange": "sums"}
        door = PartyDoor(1, policy, PartyRecord(own.path), guarded=True)
        try:
            own.append(line, lambda counts, door=door, line=line: door._check_counts(line, counts))
            rules.append("")
        except Exception as error:
            rules.append(error.rule)
    assert rules == ["", "", "", "most-exchanges-a-day", "most-exchanges-a-day"]


def test_of_a_message_that_is_refused_little_is_kept(tmp_path):
    own = PartyRecord(tmp_path / "record.jsonl")
    door = PartyDoor(1, PartyPolicy(), own, guarded=True)
    text = "\x1b\ud800" + "x" * 5_000_000
    for _ in range(4):
        door.noted(DataError("no"), method=text, exchange=text, agreement=text)
    assert own.path.stat().st_size < 4 * 2500
    assert own.lines()[0]["method"].startswith("\\x1b\\ud800xxx")
    assert own.check_chain()


def test_a_change_within_one_tick_of_the_clock_of_files_has_another_time(record, monkeypatch):
    """The time that is kept is that of the finer clock, which no later change of a file has."""
    now = 1_700_000_000_123_456_789
    monkeypatch.setattr("flwr_causal.party.record.time.time_ns", lambda: now)
    record.append({"event": "sent"}, nothing)
    assert record.path.stat().st_mtime_ns == now
