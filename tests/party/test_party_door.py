"""A party's policy and record in runs: what is refused, and what is written before it leaves."""

import errno
import json
import os
import resource
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from federations import ask, disturbed, question_of, raising, setup_for
from flwr.app import RecordDict
from tampering import guarded, recorded
from typer.testing import CliRunner

from flwr_causal import command_line
from flwr_causal.app.methods import CLIENTS
from flwr_causal.app.sources import source_of
from flwr_causal.clients import client_app
from flwr_causal.core.privacy.calibration import rho_of
from flwr_causal.data.check.handling import Handling
from flwr_causal.errors import (
    CausalError,
    ConfigError,
    DataError,
    FederationError,
    PolicyError,
)
from flwr_causal.party.door import PartyDoor
from flwr_causal.party.identifiers import identifiers
from flwr_causal.party.node_config import NodeConfig
from flwr_causal.party.policy import PartyPolicy
from flwr_causal.party.record import PartyRecord, RecordError, epsilon_spent
from flwr_causal.party.tables import table_path, tables_of
from flwr_causal.protocol import records
from flwr_causal.protocol.options import SmallCounts
from flwr_causal.protocol.terms import RunTerms
from flwr_causal.runtime import schema
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import Moments, NotearsADMM, run

NAMES = ("north", "south", "west")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """One CSV a party: x1 = x0 + noise, x2 = x1 + noise."""
    rng, directory = np.random.default_rng(0), tmp_path_factory.mktemp("tables")
    for name in NAMES:
        x = rng.normal(size=(40, 3)).cumsum(axis=1)
        frame = pd.DataFrame(x, columns=["x0", "x1", "x2"]).round(6)
        frame.assign(secret=rng.normal(size=40)).to_csv(directory / f"{name}.csv", index=False)
    return directory


def grid_of(tables, policy=None, **node):
    """The nodes of three parties, the first of them with a policy."""
    configs = [{"name": name, "data-path": str(tables / f"{name}.csv")} for name in NAMES]
    if policy is not None:
        file = node.pop("at") / "policy.toml"
        file.write_text(policy)
        configs[0]["policy"] = str(file)
    configs[0] |= node
    return LocalGrid(client_app(CLIENTS, source_of), 3, node_configs=configs)


def refusal(tables, tmp_path, policy, method=None):
    with pytest.raises(CausalError) as caught:
        run(method or Moments(), grid_of(tables, policy, at=tmp_path))
    return str(caught.value)


RULES = {
    "methods": 'methods = ["lingam"]',
    "secure-aggregation": "secure-aggregation = true",
    "least-parties": "least-parties = 4",
    "least-rows": "least-rows = 41",
    "most-exchanges-a-day": "most-exchanges-a-day = 0",
    "epsilon": "epsilon = 1.0",
    "options.replicates": "[options]\nreplicates = {most = 2}",
    "options.solver": '[options.moments]\nsolver = ["dagma"]',
    "options.turn": "[options]\nturn = true",
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_refuses_and_says_nothing_else(tables, tmp_path, rule):
    text = refusal(tables, tmp_path, RULES[rule], Moments(replicates=3))
    assert f"north: The party's policy refuses this run, by its rule '{rule}'." in text
    assert not set("0123456789") & set(text.partition("north: The party's")[2])
    lines = PartyRecord(tmp_path / "record.jsonl").lines()
    assert lines[-1]["event"] == "refused"
    assert lines[-1]["reason"] == rule
    assert not [line for line in lines if line["event"] == "sent"]


def test_a_run_within_the_policy_is_that_without_one(tables, tmp_path):
    policy = """
    methods = ["moments"]
    least-parties = 2
    least-rows = 40
    most-exchanges-a-day = 1
    [columns]
    allowed = ["X?", "secret"]
    [options]
    replicates = {most = 2}
    [options.lingam]
    order = 1
    """
    free = run(Moments(replicates=2), grid_of(tables))
    bound = run(Moments(replicates=2), grid_of(tables, policy, at=tmp_path))
    np.testing.assert_array_equal(bound.graph.weights, free.graph.weights)
    assert "by its rule 'most-exchanges-a-day'" in refusal(tables, tmp_path, policy)


def test_withheld_columns_are_not_even_named(tables, tmp_path):
    grid = grid_of(tables, '[columns]\nnever = ["SECRET"]', at=tmp_path)
    assert run(Moments(unshared_columns="drop"), grid).graph.names == ("x0", "x1", "x2")
    with pytest.raises(DataError, match="north"):
        run(Moments(strict=True), grid_of(tables, '[columns]\nallowed = ["x*"]', at=tmp_path))


def lying(monkeypatch, change):
    """Let the server state other terms than it keeps to."""
    honest = RunTerms.of
    monkeypatch.setattr(RunTerms, "of", lambda *given: change(honest(*given)))


def test_a_server_that_does_not_keep_to_its_terms(tables, tmp_path, monkeypatch):
    lying(monkeypatch, lambda terms: replace(terms, options={**terms.options, "replicates": 0}))
    policy = "[options]\nreplicates = 0"
    grid = grid_of(tables, policy, at=tmp_path)
    # Parties without a policy refuse a training that the run does not state, too.
    with pytest.raises(FederationError, match=r"north: .* by its rule 'options\.replicates'"):
        run(Moments(replicates=1), grid)
    lines = PartyRecord(tmp_path / "record.jsonl").lines()
    assert [line["event"] for line in lines] == ["sent", "refused", "refused"]


LIES = {
    "secure-aggregation = true": ({"secure": True}, Moments(), "secure-aggregation"),
    "methods = ['lingam']": ({"method": "lingam"}, Moments(), "methods"),
    "epsilon = 9": ({"options": {"epsilon": 1.0}}, Moments(), "epsilon"),
    "[options]\ncenter = 'global'": (
        {"options": {"center": "global"}},
        Moments(center="party"),
        "options.center",
    ),
}


@pytest.mark.parametrize("policy", LIES)
def test_a_server_that_states_what_the_policy_wants_to_hear(tables, tmp_path, monkeypatch, policy):
    changes, method, rule = LIES[policy]
    lying(monkeypatch, lambda terms: replace(terms, **changes))
    assert f"by its rule '{rule}'" in refusal(tables, tmp_path, policy, method)


def test_the_agreement_is_judged_again(tables, tmp_path, monkeypatch):
    honest = schema.agreed

    def fewer(method, parties, reports, total=None):
        federation, agreement = honest(method, parties, reports, total)
        setup = replace(federation.setup, num_clients=1)
        federation.setup = setup
        return federation, agreement

    monkeypatch.setattr(schema, "agreed", fewer)
    outcome = run(Moments(), grid_of(tables, "least-parties = 2", at=tmp_path))
    assert "by its rule 'least-parties'" in outcome.failures[0].reason


def coordinator(tmp_path):
    """A file with a key, and a policy that asks for its signature."""
    key = Ed25519PrivateKey.generate()
    file = tmp_path / "coordinator"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return file, f'askers = ["{line}"]'


@pytest.fixture(scope="module")
def with_wards(tables, tmp_path_factory):
    """The tables with a column of text, and missing cells."""
    directory = tmp_path_factory.mktemp("wards")
    for k, name in enumerate(NAMES):
        frame = pd.read_csv(tables / f"{name}.csv")
        frame = frame.assign(ward=np.where(frame["x0"] > 0, "inner", "eyes"))
        frame.loc[k, "x1"] = np.nan
        frame.to_csv(directory / f"{name}.csv", index=False)
    return directory


@pytest.mark.parametrize("option", ["text-columns", "missing-values"])
def test_a_policy_judges_what_is_decided_of_options_that_are_left_open(
    tables, with_wards, tmp_path, option
):
    policy = f'[options]\n{option} = "fail"'
    assert f"by its rule 'options.{option}'" in refusal(with_wards, tmp_path, policy)
    # Nothing is to be decided here.
    assert run(Moments(), grid_of(tables, policy, at=tmp_path)).graph


def test_what_is_decided_is_stated_under_the_signature(with_wards, tmp_path, monkeypatch):
    file, policy = coordinator(tmp_path)
    method = Moments(signing_key=str(file))
    outcome = run(method, grid_of(with_wards, policy, at=tmp_path))
    assert "ward" in outcome.graph.names
    assert method._decided == {"text_columns": "keep", "missing_values": "em"}
    stated = RunTerms.from_text(schema._terms(method)["terms"]).options
    assert (stated["text_columns"], stated["unshared_columns"]) == ("keep", "fail")
    # A server that asks for what it does not state.
    lying(
        monkeypatch,
        lambda terms: replace(terms, options={**terms.options, "text_columns": "fail"}),
    )
    assert "by its rule 'askers'" in refusal(with_wards, tmp_path, policy, method)


def test_only_the_coordinators_signature_opens_a_run(tables, tmp_path, monkeypatch):
    file, policy = coordinator(tmp_path)
    assert run(Moments(signing_key=str(file)), grid_of(tables, policy, at=tmp_path)).graph
    assert "by its rule 'askers'" in refusal(tables, tmp_path, policy)
    # The signature of another run.
    monkeypatch.setattr(schema, "own_run", lambda: 7)
    signer = Moments(signing_key=str(file))
    assert "by its rule 'askers'" in refusal(tables, tmp_path, policy, signer)
    with pytest.raises(ConfigError, match=r"signing_key.*ssh-keygen"):
        run(Moments(signing_key=str(tmp_path / "none")), grid_of(tables))


def test_the_record_has_all_that_left_and_no_value(tables, tmp_path):
    grid = grid_of(tables, record=str(tmp_path / "record.jsonl"))
    run(NotearsADMM(max_rounds=6), grid)
    text = (tmp_path / "record.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    (array,) = lines[2]["arrays"]
    assert (array["name"], array["shape"], array["bytes"]) == ("weights", [1, 4, 4], 256)
    assert {line["event"] for line in lines} == {"sent"}
    assert {line["run"] for line in lines} == {grid.run.run_id}
    assert {"names", "means"} <= set(lines[0]["values"])
    assert "x0" not in text
    assert PartyRecord(tmp_path / "record.jsonl").check_chain()


@pytest.mark.parametrize("content", ["my own\n", "\n", "a,b\n1,2\n", '{"time": 3}\n'])
def test_a_record_adds_nothing_to_another_file(content, tmp_path):
    file = tmp_path / "record.jsonl"
    file.write_text(content)
    with pytest.raises(RecordError, match="another program's"):
        PartyRecord(file).append({"event": "sent"})
    assert file.read_text() == content


def test_a_changed_or_deleted_line_shows(tmp_path):
    record = PartyRecord(tmp_path / "record.jsonl")
    for number in range(4):
        record.append({"event": "sent", "exchange": "e", "number": number})
    head = record.check_chain()
    lines = record.path.read_text().splitlines(keepends=True)
    for damaged in (
        [*lines[:1], *lines[2:]],
        [lines[0].replace('"number": 0', '"number": 9'), *lines[1:]],
        [lines[1], lines[0], *lines[2:]],
    ):
        record.path.write_text("".join(damaged))
        with pytest.raises(DataError, match=r"was changed: line (1|2)"):
            record.check_chain()
    record.path.write_text("".join(lines[:-1]))
    assert record.check_chain() != head


def test_without_its_record_a_party_answers_nothing(tables, tmp_path):
    with pytest.raises(DataError, match=r"north: The party's record cannot be written"):
        run(Moments(), grid_of(tables, record=str(tmp_path / "missing" / "record.jsonl")))
    full = PartyRecord(tmp_path / "record.jsonl")
    full.append({"event": "sent"})

    def refuse(lines):
        raise RecordError("no")

    with pytest.raises(RecordError):
        full.append({"event": "sent"}, refuse)
    assert len(full.lines()) == 1


def test_on_a_full_disk_nothing_leaves(tables, tmp_path, monkeypatch):
    record = PartyRecord(tmp_path / "record.jsonl")
    record.append({"event": "sent"})
    before = record.path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    said = r"north: The party's record cannot be written \(No space left on device\), so nothing"
    with pytest.raises(DataError, match=said):
        run(Moments(), grid_of(tables, record=str(record.path)))
    # What was written of the line is taken back.
    assert record.path.read_bytes() == before


def test_a_line_that_fits_in_part_only_is_not_written(tmp_path):
    record = PartyRecord(tmp_path / "record.jsonl")
    record.append({"event": "sent"})
    before = record.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 40, limits[1]))
    try:
        with pytest.raises(RecordError, match=r"File too large.*nothing leaves"):
            record.append({"event": "sent"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert record.path.read_bytes() == before
    record.append({"event": "sent"})
    assert len(record.lines()) == 2


def test_releases_compose_and_one_release_counts_once():
    def line(run_, release=None, **about):
        own = {} if release is None else {"release": release}
        return {"event": "sent", "run": run_, "epsilon": 9.0, "rho": 0.5, **own, **about}

    def spent(*lines):
        return rho_of(epsilon_spent(lines), 1e-5)

    once = [line(1, "a"), line(1, "a", digest="q"), line(1, "a", digest="r")]
    assert spent(*once) == pytest.approx(0.5)
    assert spent(*once, line(2, "a")) == pytest.approx(0.5)  # resumed
    assert spent(*once, line(1, "b")) == pytest.approx(1.0)  # what the node had kept was deleted
    assert spent(*once, line(2, "b"), line(2, "b", rho=0.75)) == pytest.approx(1.25)
    assert spent(*once, line(1), line(2), line(2)) == pytest.approx(1.5)
    assert spent(*once, line(2, "b", event="refused")) == pytest.approx(0.5)
    # A run without epsilon has no release.
    assert spent(*once, {"event": "sent", "run": 3}) == pytest.approx(0.5)


def test_lines_of_earlier_versions_count_by_epsilon_and_delta():
    def spent(*lines):
        return epsilon_spent([{"event": "sent", "run": k, **one} for k, one in enumerate(lines)])

    assert spent({"epsilon": 0.5}) == pytest.approx(0.5)
    assert spent({"epsilon": 0.5, "delta": 1e-5}) == pytest.approx(0.5)
    assert spent({"epsilon": 0.5}, {"epsilon": 0.5}) == pytest.approx(0.7300, abs=1e-4)
    assert spent({"epsilon": 0.001, "delta": 0.99999}) > 70
    for none in (0, -1, True, "1", float("nan"), None):
        assert spent({"epsilon": none}) == np.inf
        # What is no loss takes nothing away.
        rho = none if none is not True else -0.5
        assert spent({"epsilon": 0.5, "rho": rho}) == pytest.approx(0.5)


def test_the_losses_of_runs_add_up_to_the_limit(tmp_path):
    record = PartyRecord(tmp_path / "record.jsonl")
    about = {"epsilon": 0.75, "delta": 1e-5, "rho": rho_of(0.75, 1e-5)}

    def send(run_id, most=1.1):
        own = PartyDoor(run_id, PartyPolicy(epsilon=most), record, guarded=True)
        own.check_budget(about)
        own.note(RecordDict(), method="moments", exchange="schema", **about)
        own.note(RecordDict(), method="moments", exchange="sums", number=1, **about)

    send(1, most=0.75)
    send(2)
    send(2)
    for check in (PartyDoor.check_budget, lambda own, one: own.note(RecordDict(), **one)):
        own = PartyDoor(3, PartyPolicy(epsilon=1.1), record, guarded=True)
        with pytest.raises(PolicyError, match="rule 'epsilon'"):
            check(own, about)
    assert epsilon_spent(record.lines()) == pytest.approx(1.0968, abs=1e-4)
    assert len(record.lines()) == 6


def test_columns_that_look_like_identifiers(tables, tmp_path):
    n = np.arange(30)
    frame = pd.DataFrame(
        {
            "age": 20 + n % 17,
            "income": 10_000 + 731 * n,
            "weight": n * 1.5,
            "sex": np.where(n % 2, "f", "m"),
            "valid": n % 2,
            "PatientID": n % 3,
            "e-mail address": "x",
            "row": n[::-1],
            "number": 123456789 + 1001 * n,
            "key": [f"k{k}" for k in n],
            "contact": [f"a{k % 3}@b.org" for k in n],
        }
    )
    found = identifiers(frame, frame.columns)
    assert found == ["PatientID", "e-mail address", "row", "number", "key", "contact"]
    for name in NAMES:
        frame[["age", "income", "row"]].to_csv(tmp_path / f"{name}.csv", index=False)
    with pytest.raises(DataError, match=r"south.*: .* rule 'columns\.identifiers'") as caught:
        run(Moments(identifiers="fail"), grid_of(tmp_path))
    assert "row" not in str(caught.value)


def test_columns_that_look_like_identifiers_are_left_out_where_the_run_says_so(
    tables, tmp_path, caplog
):
    """Nothing of them leaves, their names neither: the run is that of tables without them."""
    for name in NAMES:
        frame = pd.read_csv(tables / f"{name}.csv")
        frame.insert(1, "patient_id", range(1000, 1040))
        # Their names do not tell.
        frame["visit"] = [f"{name}{k}" for k in range(40)]
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    said = []

    class Heard(LocalGrid):
        def pull_messages(self, ids):
            replies = list(super().pull_messages(ids))
            said.extend(str(dict(reply.content)) for reply in replies)
            return replies

    def grid(policy=None, kind=Heard):
        own = grid_of(tmp_path, policy, **({"at": tmp_path} if policy else {}))
        own.__class__ = kind
        return own

    expected = run(Moments(), grid_of(tables)).graph
    for policy in (None, "least-rows = 10"):
        for options in ({}, {"unshared_columns": "drop"}, {"secure_aggregation": True}):
            found = run(Moments(**options), grid(policy))
            np.testing.assert_allclose(found.graph.weights, expected.weights, atol=1e-9)
            assert any(
                "columns that look like identifiers are left out" in w for w in found.warnings
            )
    assert "Columns that look like identifiers are left out: patient_id, visit" in caplog.messages
    assert said
    assert not any("patient_id" in text or "visit" in text for text in said)

    def refused(policy=None, **options):
        with pytest.raises(CausalError) as caught:
            run(Moments(**options), grid(policy))
        return str(caught.value)

    for options in ({"identifiers": "fail"}, {"strict": True}, {"columns": "x0,x1,patient_id"}):
        assert "rule 'columns.identifiers'" in refused(**options)
    assert "rule 'options.identifiers'" in refused('[options]\nidentifiers = "fail"')
    # A column that is excluded is not used.
    excluded = {"identifiers": "fail", "exclude": "patient_id,visit"}
    assert run(Moments(**excluded), grid()).graph.names == expected.names
    # Ids of rows are no variables, and are needed.
    matched = run(Moments(row_id="patient_id"), grid())
    assert matched.graph.names == expected.names
    # What the policy admits is left to the run: it numbers the rows.
    admitted = run(Moments(), grid('[columns]\nidentifiers = ["patient_id"]'))
    assert any("no variables: 'patient_id'" in text for text in admitted.warnings)


@pytest.mark.parametrize(
    ("keys", "groups", "enough"),
    [
        ("abcd", (), True),
        ("abc-", (), True),
        ("ab--", (), False),
        ("abcdef", (1, 1, 1, 2, 2, 2), True),
        ("abcdef", (1, 1, 1, 1, 2, 2), False),
        ("abcde-", (1, 1, 1, 2, 2, 2), False),
        ("", (), True),
    ],
)
def test_parties_that_are_absent_do_not_count(keys, groups, enough):
    own = tuple("" if key == "-" else 64 * key for key in keys)
    changes = {"keys": own, "groups": groups, "num_clients": len(keys) or 3}
    terms = RunTerms("moments", {"groups": 2}, 3, secure=False).to_text()
    changes["options"] = Moments().client_options
    setup = setup_for([pd.DataFrame({"x": [1.0]})], terms=terms, **changes)
    door = PartyDoor(1, PartyPolicy(least_parties=3), None, guarded=True)
    with nullcontext() if enough else pytest.raises(PolicyError, match="'least-parties'"):
        door.check_agreement(CLIENTS["moments"].contract, setup, [])


def test_the_record_names_the_exchange_that_is_answered(tmp_path):
    """Under the name of the schema exchange it would not be counted."""
    tables = [pd.DataFrame(np.random.default_rng(k).normal(size=(9, 2))) for k in range(3)]
    tables = [table.rename(columns={0: "x", 1: "y"}) for table in tables]
    grid = guarded(tables, tmp_path, "most-exchanges-a-day = 1")
    node, method = grid.get_node_ids()[0], Moments()
    terms = RunTerms.of("moments", Moments(min_available_nodes=3).options.by_name()).to_text()
    ask(grid, node, {}, "query.schema", **question_of(method), terms=terms, exchange="")
    setup = setup_for(tables, terms=terms, options=method.client_options, small=SmallCounts(5))
    head = {"bundle-trainings": [""], "bundle-exchanges": ["sums"], "bundle-seed": 0}
    about = {"method": "moments", "exchange": "schema", **head}
    replies = [ask(grid, node, {}, setup=setup, **about) for _ in range(2)]
    assert [reply.has_error() for reply in replies] == [False, True]
    assert [one["exchange"] for one in recorded(tmp_path)] == ["schema", "sums", "sums"]
    assert recorded(tmp_path)[-1]["reason"] == "most-exchanges-a-day"


def test_an_error_is_charged_within_the_policy(tmp_path):
    record = PartyRecord(tmp_path / "record.jsonl")
    door = PartyDoor(1, PartyPolicy(epsilon=1.0), record, guarded=True)
    spent = {"epsilon": 0.9, "delta": 1e-5, "rho": rho_of(0.9, 1e-5)}
    error = DataError("there are 3 rows")
    assert door.noted(error, release="a", **spent) is error
    assert isinstance(door.noted(error, release="b", **spent), PolicyError)
    assert [one["event"] for one in record.lines()] == ["failed", "refused"]
    assert epsilon_spent(record.lines()) == pytest.approx(0.9)


USED = {
    "a column of another role": ("PatientID", 'methods = ["moments"]', "columns.identifiers"),
    "one that is known": ("PatientID", '[columns]\nidentifiers = ["PatientID"]', ""),
    "fewer rows": ("x1", "least-rows = 30", "least-rows"),
}


@pytest.mark.parametrize("case", USED)
def test_the_agreement_uses_what_the_report_was_allowed_for(tmp_path, case):
    """A server reports a table without its column of ids, and then agrees on it as a variable."""
    column, policy, rule = USED[case]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["x0", column])
    if column == "PatientID":
        frame[column] = 100_000_000.0 + 977 * rng.permutation(30)
    else:
        frame.loc[:3, column] = np.nan
    grid = guarded([frame] * 3, tmp_path, policy)
    node = grid.get_node_ids()[0]
    # What the run does not state is not compared.
    stated = Moments(min_available_nodes=3).options.by_name()
    del stated["row_id"], stated["missing_values"], stated["minimum_count"]
    terms = RunTerms.of("moments", stated).to_text()
    tables = [frame.fillna(0.0)] * 3
    question = {**question_of(Moments(row_id=column)), "exchange": "", "terms": terms}
    report = ask(grid, node, {}, "query.schema", **question)
    assert records.config_of(report.content)["names"] == ["x0"]
    own = Moments().client_options
    setup = setup_for(tables, terms=terms, options=own, handling=Handling(missing_values="drop"))
    reply = ask(grid, node, {}, setup=setup, exchange="sums", method="moments")
    assert reply.has_error() is bool(rule)
    assert [one["reason"] for one in recorded(tmp_path) if "reason" in one] == [rule] * bool(rule)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("method = []", "no rule 'method'; there are methods"),
        ("[columns]\nno = []", r"no rule 'columns\.no'"),
        ("methods = 'moments'", "methods: give a list of texts"),
        ("least-rows = 1.5", "least-rows is 1.5: give a whole number"),
        ("askers = ['me']", "'me' is no Ed25519 public key"),
        ("epsilon = -1", "epsilon is -1"),
        ("= 3", "cannot be read"),
    ],
)
def test_a_policy_that_cannot_be_used_lets_nothing_out(tables, tmp_path, text, words):
    with pytest.raises(DataError, match="north: The party's policy cannot be used") as caught:
        run(Moments(), grid_of(tables, text, at=tmp_path))
    assert str(tmp_path) not in str(caught.value)
    with pytest.raises(ConfigError, match=words):
        PartyPolicy.read(tmp_path / "policy.toml")


def test_terms_survive_the_way_and_hold_no_path():
    terms = RunTerms.of(
        "moments", {"output_dir": "/a/b", "sparsity": 0.1, "knowledge": {}, "n": None}
    )
    assert dict(terms.options) == {"sparsity": 0.1, "n": None}
    assert RunTerms.from_text(terms.to_text()) == terms
    for text in ("", "[]", "{}", '{"method": 1, "options": {}, "parties": 1, "secure": true}'):
        with pytest.raises(ConfigError, match="same version"):
            RunTerms.from_text(text)


def test_a_run_names_one_of_a_partys_tables(tables, tmp_path):
    """A directory's files, without a restart; and what names are shown."""

    def path(wanted="", **node):
        given = {key.replace("_", "-"): str(v) for key, v in node.items()}
        return table_path(NodeConfig.of(given), wanted)

    assert path("south", data_path=tables) == tables / "south.csv"
    pairs = f"a={tables / 'west.csv'}, b={tables / 'south.csv'}"
    assert path("b", tables=pairs) == tables / "south.csv"
    file = tables / "none.csv"
    assert path(data_path=file) == file
    with pytest.raises(DataError, match="one table without a name"):
        path("south", data_path=file)
    with pytest.raises(DataError, match=r"no table 'south': give .* of: a, b"):
        path("south", tables=pairs)
    with pytest.raises(DataError, match="several tables"):
        path(data_path=tables)
    for wrong in ({}, {"data_path": file, "tables": pairs}, {"tables": "a=b"}):
        with pytest.raises(CausalError, match="node"):
            path("", **wrong)
    policy = tmp_path / "policy.toml"
    policy.write_text('tables = ["a"]')
    with pytest.raises(DataError, match=r"no table 'b': give .* of: a$"):
        path("b", tables=pairs, policy=policy)
    (tmp_path / "extra.csv").write_text("x\n1\n")
    assert path(data_path=tmp_path) == tmp_path / "extra.csv"


@pytest.mark.parametrize("other", ["lab.parquet", "Lab.csv", "l\u200bab.csv", "\uff4cab.csv"])
def test_a_partys_tables_have_names_that_a_reader_can_tell_apart(tmp_path, other):
    node, policy = NodeConfig(data_path=tmp_path / "tables"), PartyPolicy(tables=("none",))
    node.data_path.mkdir()
    for name in ("lab.csv", other):
        (node.data_path / name).write_text("x\n1\n")
    with pytest.raises(DataError, match="two tables of the name"):
        tables_of(node, PartyPolicy())
    # Not among tables that runs do not see.
    assert tables_of(node, policy) == {}
    if other.endswith(".csv"):
        pairs = f"lab=/data/lab.csv,{other.removesuffix('.csv')}=/data/other.csv"
        with pytest.raises(ConfigError, match="can tell apart"):
            NodeConfig.of({"tables": pairs})


def test_the_run_config_names_the_table(tables, tmp_path):
    configs = [{"name": name, "data-path": str(tables)} for name in NAMES[:2]]
    configs[0]["record"] = str(tmp_path / "record.jsonl")
    app = client_app(CLIENTS, source_of)
    grid = LocalGrid(app, 2, run_config={"data": "west"}, node_configs=configs)
    assert run(Moments(), grid).agreement.n == 80
    lines = PartyRecord(tmp_path / "record.jsonl").lines()
    assert {line["table"] for line in lines} == {"west"}
    shown = CliRunner().invoke(command_line.app, ["record", str(tmp_path / "record.jsonl")])
    assert "bytes in all" in shown.stdout
    of_run = ["record", str(tmp_path / "record.jsonl"), "--run", str(lines[0]["run"])]
    assert "moments (2, 5, 5)" in CliRunner().invoke(command_line.app, of_run).stdout
    verified = CliRunner().invoke(command_line.app, [*of_run[:2], "--verify"])
    assert PartyRecord(tmp_path / "record.jsonl").check_chain() in verified.stdout


def test_what_an_unfinished_run_keeps_is_deleted(tables, tmp_path):
    with pytest.raises(CausalError):
        run(
            Moments(output_dir=str(tmp_path / "run"), quorum=1.0),
            disturbed([pd.DataFrame({"a": [0.0, 1.0, 3.0]})] * 2, raising(1, {1}, attempts=9)),
        )
    assert (tmp_path / "run" / "exchanges").is_dir()
    assert CliRunner().invoke(command_line.app, ["forget", str(tmp_path), "--older-than", "1"])
    assert (tmp_path / "run" / "exchanges").is_dir()
    CliRunner().invoke(command_line.app, ["forget", str(tmp_path)])
    assert not (tmp_path / "run" / "exchanges").exists()
    assert (tmp_path / "run" / "run.json").is_file()
    assert CliRunner().invoke(command_line.app, ["forget", str(tables)]).exit_code == 2
