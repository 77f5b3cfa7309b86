"""The options that a policy limits, wherever a message asks for them, and a server that tampers."""

import json
import os
import tomllib
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from federations import app_of, ask, make_federation, question_of, setup_for, stating
from tampering import Tampering, guarded, recorded, sent

from flwr_causal.errors import CausalError, ConfigError, PolicyError
from flwr_causal.party.policy import ColumnRules, PartyPolicy
from flwr_causal.protocol import records
from flwr_causal.protocol.bundle import TrainingName
from flwr_causal.protocol.options import FormError, Setting
from flwr_causal.protocol.replay import packed
from flwr_causal.protocol.terms import RunTerms
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import FedCausal, FedGES, FedPC, Moments, NotearsADMM, run

TABLES = make_federation(d=3, n=90, parties=3).tables


def refusals(directory, policy, change, method=None):
    """The rules by which the first party refuses a run whose server changes its messages."""
    grid = Tampering(guarded(TABLES, directory, policy), change)
    with suppress(CausalError):
        run(method or Moments(min_available_nodes=3), grid)
    assert {line["exchange"] for line in sent(directory)} <= {"schema"}
    return {line["reason"] for line in recorded(directory) if line["event"] == "refused"}


def setting(**changes):
    """A server that changes keys of the agreement."""
    own = {f"setup-{name.replace('__', '-')}": value for name, value in changes.items()}

    def change(config, _):
        if "setup-names" not in config:
            return None
        changed = {**config, **own}
        return {name: value for name, value in changed.items() if value is not None}

    return change


TRICKS = {
    "minimum-count = {least = 5}": ("minimum-count", {"minimum__count": 0}),
    'small-counts = "report"': ("small-counts", {"small__counts": "suppress"}),
    'precision = "float64"': ("precision", {"precision": "float32"}),
    'missing-values = "fail"': ("missing-values", {"policy__missing_values": "drop"}),
    'text-columns = ["fail"]': ("text-columns", {"policy__text_columns": "drop"}),
    'unshared-columns = "fail"': ("unshared-columns", {"policy__unshared_columns": "keep"}),
    'center = "auto"': ("center", {"option__center": "party"}),
    'center = ["auto"]': ("center", {"option__center": None}),
    "seed = 0": ("seed", {"option__seed": None}),
    "standardize = false": ("standardize", {"option__standardize": 0}),
    'sparsity = "bic"': ("sparsity", {"option__held_out": True}),
    'row-id = ""': ("row-id", {"option__row_id": None}),
    "order = {most = 3}": ("order", {"option__order": np.nan}),
    "order = {most = 4}": ("order", {"option__order": True}),
    "order = {most = 5}": ("order", {"option__order": "0"}),
    "[options.moments]\norder = 0": ("order", {"option__order": 1}),
}


FORMLESS = (
    *('center = ["auto"]', "seed = 0", "standardize = false", 'row-id = ""'),
    *("order = {most = 3}", "order = {most = 4}", "order = {most = 5}"),
)


@pytest.mark.parametrize("rule", TRICKS)
def test_a_limited_option_is_judged_wherever_it_travels(tmp_path, rule):
    name, changes = TRICKS[rule]
    policy = rule if rule.startswith("[") else f"[options]\n{rule}"
    sparsity = "bic" if rule == 'sparsity = "bic"' else "auto"
    method = Moments(min_available_nodes=3, sparsity=sparsity)
    found = refusals(tmp_path, policy, setting(**changes), method)
    # What is missing or of another type has no form that a rule could judge: it is refused.
    assert found == (set() if rule in FORMLESS else {f"options.{name}"})


@pytest.mark.parametrize("rule", [rule for rule in TRICKS if rule != 'sparsity = "bic"'])
def test_a_run_that_keeps_to_the_rule_is_answered(tmp_path, rule):
    policy = rule if rule.startswith("[") else f"[options]\n{rule}"
    run(Moments(min_available_nodes=3), guarded(TABLES, tmp_path, policy))
    assert len(sent(tmp_path, "sums")) == 1


def test_the_question_is_judged_too(tmp_path):
    def change(config, kind):
        return {**config, "policy-missing_values": "drop"} if kind == "query.schema" else None

    found = refusals(tmp_path, '[options]\nmissing-values = "fail"', change)
    assert found == {"options.missing-values"}
    assert not sent(tmp_path)

    def without(config, kind):
        own = {key: value for key, value in config.items() if key != "option-center"}
        return own if kind == "query.schema" else None

    refusals(tmp_path, '[options]\ncenter = "global"', without)
    assert not sent(tmp_path)

    def without_policy(config, kind):
        own = {key: value for key, value in config.items() if not key.startswith("policy-")}
        return own if kind == "query.schema" else None

    refusals(tmp_path, '[options]\ntext-columns = "fail"', without_policy)
    assert not sent(tmp_path)


@pytest.mark.parametrize("policy", ["", '[options.moments]\ntext-columns = "fail"'])
@pytest.mark.parametrize("at", ["policy-", "setup-policy-"])
@pytest.mark.parametrize(
    "changed",
    [
        {"names_states": True},
        {"names_states": True, "number_states": 9, "discretize": 9},
        {"number_states": 1},
        {"max_states": 256},
    ],
)
def test_values_are_named_as_the_options_say_and_by_no_other_field(tmp_path, policy, at, changed):
    tables = [table.assign(code=np.resize(["a", "b", "c"], len(table))) for table in TABLES]
    own = {f"{at}{name}": value for name, value in changed.items()}
    columns = "drop" if not policy else "fail"

    def change(config, _):
        return {**config, **own} if f"{at}names_states" in config else None

    grid = Tampering(guarded(TABLES if policy else tables, tmp_path, policy), change)
    with pytest.raises(CausalError):
        run(Moments(min_available_nodes=3, text_columns=columns), grid)
    assert len(sent(tmp_path)) == (at == "setup-policy-")
    for reply in grid.replies:
        assert not (reply.has_content() and records.config_of(reply.content).get("states"))


@pytest.mark.parametrize(
    ("method", "changed"),
    [
        (Moments(text_columns="keep"), {"number_states": 64, "discretize": 64}),
        (Moments(text_columns="keep"), {"max_states": 256}),
        (Moments(model="curved"), {"names_states": False}),
        (FedPC(), {"number_states": 64}),
        (FedPC(), {"number_states": 0}),
        (FedGES(), {"number_states": 64}),
        (NotearsADMM(), {"names_states": True}),
    ],
)
def test_a_contract_says_which_values_are_named(method, changed):
    options, check = method._schema_options, method.contract.check_handling
    check(options, method.handling, states=method.handling.names_states)
    with pytest.raises(FormError, match="name other values"):
        check(options, replace(method.handling, **changed))


def test_states_are_agreed_on_only_where_they_are_named():
    method = Moments()
    method.contract.check_handling(method.client_options, method.handling)
    with pytest.raises(FormError, match="name other values"):
        method.contract.check_handling(method.client_options, method.handling, states=True)
    setup = setup_for(TABLES, options=method.client_options, states=((), (), ("0", "1")))
    setup = stating(setup, method)
    grid = LocalGrid(app_of(TABLES), 3)
    reply = ask(grid, grid.get_node_ids()[0], {}, setup=setup, exchange="sums", method="moments")
    assert "name other values" in reply.error.reason


def test_groups_are_no_more_than_the_run_states(tmp_path):
    groups = {"groups": [0, 1, 1], "keys": [c * 64 for c in "abc"], "least__parties": [2, 2]}
    # Without secure sums there are no keys: the agreement is refused by its form or by the rule.
    assert refusals(tmp_path, "[options]\ngroups = 1", setting(**groups)) <= {"options.groups"}


FIVE = make_federation(d=3, n=100, parties=5).tables


def test_so_many_parties_must_be_in_a_sum_as_the_run_states(tmp_path):
    method = Moments(secure_aggregation=True, quorum=1.0)
    policy = "[options]\nquorum = 1"
    grid = guarded(FIVE, tmp_path, policy)
    run(method, grid)
    assert len(sent(tmp_path, "totals", "sums")) == 2
    (tmp_path / "record.jsonl").unlink()
    grid = Tampering(guarded(FIVE, tmp_path, policy), setting(least__parties=[4]))
    with suppress(CausalError):
        run(method, grid)
    assert {line["exchange"] for line in sent(tmp_path)} == {"schema"}
    assert {line["reason"] for line in recorded(tmp_path)[1:]} == {"options.quorum"}


def test_places_without_keys_are_no_parties(tmp_path):
    def change(config, _):
        # The first party is shown three others of five.
        keys = config.get("setup-keys")
        return None if keys is None else {**config, "setup-keys": [*keys[:4], ""]}

    method = Moments(secure_aggregation=True, min_parties=5, min_available_nodes=5)
    grid = Tampering(guarded(FIVE, tmp_path, "least-parties = 5"), change)
    with suppress(CausalError):
        run(method, grid)
    assert {line["exchange"] for line in sent(tmp_path)} == {"schema"}
    assert {line["reason"] for line in recorded(tmp_path)[1:]} == {"least-parties"}


def bundle(names, seed=0):
    return {
        "bundle-trainings": names,
        "bundle-exchanges": ["sums"] * len(names),
        "bundle-seed": seed,
    }


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        (bundle(["", "replicate 3"]), "options.replicates"),
        (bundle(["", "replicate 1"], seed=5), "options.seed"),
        (bundle(["without 1"]), "options.leave-one-out"),
        (bundle(["replicate -1"]), "ConfigError"),
    ],
)
@pytest.mark.parametrize("replayed", [False, True])
def test_trainings_are_those_that_the_run_states(tmp_path, values, rule, replayed):
    grid = guarded(TABLES, tmp_path, "methods = ['moments']")
    options = {"seed": 0, "replicates": 2, "leave_one_out": False}
    terms = RunTerms("moments", options, 3, secure=False).to_text()
    method = Moments()
    setup = setup_for(TABLES, terms=terms, options=method.client_options)
    node = grid.get_node_ids()[0]
    ask(grid, node, {}, "query.schema", **question_of(method), terms=terms)
    arrays, config = {}, {"exchange": "sums", **values}
    if replayed:
        one = packed([records.request("sums", "moments", 1, values)])
        arrays = {"archive": one["archive"]}
        config = {"exchange": "replay", "requests": one["requests"]}
    reply = ask(grid, node, arrays, setup=setup, method="moments", **config)
    assert reply.has_error()
    last = recorded(tmp_path)[-1]
    assert (last["event"], last["reason"]) in {("refused", rule), ("failed", rule)}


def test_replicates_of_the_stated_seed_are_answered(tmp_path):
    method = Moments(min_available_nodes=3, replicates=2, leave_one_out=True, seed=4)
    policy = "[options]\nreplicates = {most = 2}\nleave-one-out = true"
    run(method, guarded(TABLES, tmp_path, policy))
    assert len(sent(tmp_path, "sums")) == 1
    assert TrainingName.of("replicate 2").replicate == 2


def test_plain_values_of_an_exchange_are_judged(tmp_path):
    def change(config, _):
        if config.get("exchange") != "local graphs":
            return None
        return {**config, "candidates": 50}

    grid = Tampering(guarded(TABLES, tmp_path, "[options]\ncandidates = {most = 5}"), change)
    method = FedCausal(min_available_nodes=3, local_graphs=True, max_rounds=60)
    with suppress(CausalError):
        run(method, grid)
    assert not sent(tmp_path, "local graphs")
    assert "options.candidates" in {line.get("reason") for line in recorded(tmp_path)}


def key_of(directory):
    key = Ed25519PrivateKey.generate()
    file = directory / "coordinator"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return str(file), f'askers = ["{line}"]'


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "changes",
    [
        {"option__standardize": True},
        {"option__seed": 7},
        {"option__interventions": "x0"},
        {"option__held_out": True},
        {"precision": "float32"},
        {"minimum__count": 0},
        {"policy__missing_values": "drop"},
    ],
)
def test_what_is_sent_is_what_was_signed(tmp_path, changes):
    file, policy = key_of(tmp_path)
    method = Moments(min_available_nodes=3, signing_key=file, sparsity="bic")
    assert refusals(tmp_path, policy, setting(**changes), method) == {"askers"}
    run(method, guarded(TABLES, tmp_path, policy))
    assert len(sent(tmp_path, "sums")) == 1


@pytest.mark.parametrize("method", [NotearsADMM(max_rounds=6), FedCausal(max_rounds=60)])
def test_what_the_method_chooses_is_no_contradiction(tmp_path, method):
    file, policy = key_of(tmp_path)
    method = method.with_options(min_available_nodes=3, signing_key=file)
    run(method, guarded(TABLES, tmp_path, policy))
    assert sent(tmp_path, "round", "group")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("replicate = 3", "options: there is no option replicate; did you mean 'replicates'"),
        ("solvers = 'ges'", "did you mean 'solver'"),
        ("xyzzy = 1", "there is no option xyzzy"),
        ("[options.moment]\nsolver = 'ges'", "there is no method moment; did you mean 'moments'"),
        ("[options.moments]\nturn = true", r"options\.moments: there is no option turn"),
        ("replicates = []", r"options\.replicates: give a value, a list"),
        ("replicates = {}", r"options\.replicates: give a value"),
        ("replicates = {most = 'x'}", r"options\.replicates: give numbers"),
        ("replicates = {least = 1, most = 'x'}", r"options\.replicates: give numbers"),
        ("replicates = {most = true}", r"options\.replicates: give numbers"),
        ("replicates = {most = nan}", r"options\.replicates: give a value"),
        ("replicates = {least = 3, most = 2}", "'least' no larger than 'most'"),
        ("replicates = {most = [3]}", "give a value"),
        ("sparsity = [nan]", "give a value"),
        ("sparsity = ['bic', nan]", "give a value"),
        ("sparsity = [[1.0]]", "give a value"),
        ("seed = 2026-01-01", "give a value"),
        ("[options.moments]\nreplicates = {least = 3, most = 2}", r"moments\.replicates"),
        ("[options.moments]\nreplicates = {most = 3, mots = 2}", r"moments\.replicates: give a"),
        ("solver = 'oder'", r"options\.solver is never 'oder'; it is 'auto', 'order', 'class'"),
        ("solver = ['order', 'gse']", "never 'gse'"),
        ("solver = {most = 3}", "solver is never 3; it is 'auto'"),
        ("turn = 'yes'", "turn is never 'yes'; it is true, false$"),
        ("turn = 1", "never 1"),
        ("replicates = true", "replicates is never True; it is a number"),
        ("replicates = '3'", "never '3'"),
        ("replicates = 'NUMBER'", "never 'NUMBER'"),
        ("sparsity = 'bci'", "never 'bci'; it is (?=.*a number)(?=.*'bic')"),
        ("[options.fedges]\nscore = 'bdue'", r"fedges\.score is never 'bdue'; it is 'auto'"),
    ],
)
def test_a_rule_that_cannot_be_used_is_an_error(tmp_path, text, words):
    text = text if text.startswith("[") else f"[options]\n{text}"
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        PartyPolicy.read(tmp_path / "policy.toml")


def test_a_rule_may_name_all_that_a_message_may_hold():
    rules = {
        "score": ["bdeu", "qnml"],
        "sparsity": ["bic", 0.1],
        "groups": {"least": 3, "most": 3},
        "turn": [True, False],
        "numbers": "x,y",
        # Over different columns the parties are told to keep columns that others lack.
        "moments": {"unshared-columns": ["drop", "keep"]},
    }
    PartyPolicy.from_dict({"options": rules})


@pytest.mark.parametrize("name", ["moment", "Moments", "notears", "notears_admm", " lingam"])
def test_a_misspelt_method_is_an_error_with_the_nearest(name, monkeypatch):
    meant = {"moment": "moments", "notears": "notears-admm"}.get(name, "")
    with pytest.raises(ConfigError, match=rf"no method .*; did you mean '{meant}"):
        PartyPolicy.from_dict({"methods": ["moments", name]})
    # One of this name that another package declares may be meant.
    monkeypatch.setattr("flwr_causal.party.policy.entry_points", lambda group, name: [name])
    assert name in PartyPolicy.from_dict({"methods": ["moments", name]}).methods


def test_methods_of_packages_that_are_not_installed_may_be_named():
    assert PartyPolicy.from_dict({"methods": ["dagma", "theirs"]}).methods == ("dagma", "theirs")


def test_a_rule_of_another_packages_method_is_in_its_own_table(tmp_path, monkeypatch):
    def installed(group, name):
        return [name] if (group, name) == ("flwr_causal.methods", "theirs") else []

    monkeypatch.setattr("flwr_causal.party.policy.entry_points", installed)
    PartyPolicy.from_dict({"options": {"theirs": {"strength": {"least": 1, "most": 2}}}})
    with pytest.raises(ConfigError, match="there is no option strength"):
        PartyPolicy.from_dict({"options": {"strength": 1}})
    with pytest.raises(ConfigError, match="there is no method others"):
        PartyPolicy.from_dict({"options": {"others": {"strength": 1}}})


@pytest.mark.parametrize("value", [np.nan, np.inf, True, "3", None])
def test_a_range_holds_numbers_alone(value):
    policy = PartyPolicy(options={"sparsity": {"least": 0}})
    with pytest.raises(CausalError, match=r"options\.sparsity"):
        policy.check(RunTerms("moments", {"sparsity": value}, 3, secure=False))
    policy.check(RunTerms("moments", {"sparsity": 3}, 3, secure=False))
    assert json.loads(RunTerms("m", {}, 1, secure=False).to_text())["parties"] == 1


@pytest.mark.parametrize(("rule", "value"), [(1, True), (0, False), (True, 1), ([False], 0)])
def test_a_truth_value_is_no_number(rule, value):
    name = "refit" if isinstance(value, int) and not isinstance(value, bool) else "replicates"
    policy = PartyPolicy(options={name: rule})
    with pytest.raises(CausalError, match=rf"options\.{name}"):
        policy.check(RunTerms("moments", {name: value}, 3, secure=False))


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"{name} = {value}"
            for name in ("methods", "tables", "askers")
            for value in ("[]", '[""]')
        ),
        *(f"[columns]\n{name} = [' ']" for name in ("allowed", "never", "identifiers")),
        "[columns]\nallowed = []",
        *(f"{one} = -1" for one in ("least-rows", "least-parties", "most-exchanges-a-day")),
    ],
)
def test_a_rule_that_names_nothing_is_not_taken_for_one_that_allows_all(text):
    with pytest.raises(ConfigError, match=r"names nothing|0 or more"):
        PartyPolicy.from_dict(tomllib.loads(text))


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("gr\u00f6\u00dfe", "GRO\u0308SSE"),
        ("name", " name\u00a0"),
        ("birth date", "birth\u2003\n date"),
        ("name", "na\u200bme"),
        ("name", "\uff4e\uff41\uff4d\uff45"),
        ("lab[1]*", "lab[1] x"),
        ("a*", "a\nb"),
        ("*name*", "the name\n"),
    ],
)
def test_a_withheld_column_is_withheld_however_its_name_is_written(pattern, name):
    assert not ColumnRules(never=(pattern,)).shows(name)
    assert ColumnRules(identifiers=(pattern,)).knows(name)


@pytest.mark.parametrize(
    ("pattern", "name"), [("x[12]", "x1"), ("x?", "x12"), ("x", "xy"), ("x.", "xa")]
)
def test_nothing_else_stands_for_other_text(pattern, name):
    assert ColumnRules(never=(pattern,)).shows(name)
    assert not ColumnRules(allowed=(pattern,)).shows(name)


def test_a_policy_of_the_same_time_of_change_is_read_anew(tmp_path):
    file = tmp_path / "policy.toml"
    for rows in (10, 20):
        file.write_text(f"least-rows = {rows}")
        os.utime(file, ns=(5, 5))
        assert PartyPolicy.read(file).least_rows == rows


class Adding(Tampering):
    """A server that adds the column x2 where columns are listed, and options stay as stated."""

    def __init__(self, grid):
        super().__init__(grid, self.with_column)

    def with_column(self, config, kind):
        if kind == "query.schema":
            # It also leaves out that it wants names first, and which columns it wants then.
            own = {key: one for key, one in config.items() if key not in ("names-only", "columns")}
            return own if len(self.replies) < 3 else {**config, "columns": ["x0", "x1", "x2"]}
        if "setup-names" not in config:
            return None
        more = {"names": "x2", "mean": 0.0, "variance": 1.0}
        return config | {f"setup-{k}": [*config[f"setup-{k}"], v] for k, v in more.items()}


COLUMNS = {
    'columns = "x0,x1"': {"columns": "x0,x1"},
    'exclude = "x2"': {"exclude": "x2"},
}


@pytest.mark.parametrize("rule", COLUMNS)
def test_columns_are_those_that_the_options_choose_wherever_they_are_listed(tmp_path, rule):
    grid = Adding(guarded(TABLES, tmp_path, f"[options]\n{rule}"))
    with suppress(CausalError):
        run(Moments(min_available_nodes=3, **COLUMNS[rule]), grid)
    assert not sent(tmp_path, "sums")
    for reply in grid.replies:
        report = records.config_of(reply.content) if reply.has_content() else {}
        assert "x2" not in report.get("names", ()) or not report.get("means")
    refused = [line for line in recorded(tmp_path) if line["event"] == "refused"]
    assert {line["reason"] for line in refused} <= {"AskedOtherwiseError"}
    assert all(line["exchange"] == "sums" for line in refused)


@pytest.mark.parametrize("rule", COLUMNS)
def test_an_agreement_on_a_column_that_is_left_out_is_refused(tmp_path, rule):
    def change(config, _):
        if "setup-names" not in config:
            return None
        more = {"names": "x2", "mean": 0.0, "variance": 1.0}
        return config | {f"setup-{k}": [*config[f"setup-{k}"], v] for k, v in more.items()}

    method = Moments(min_available_nodes=3, **COLUMNS[rule])
    found = refusals(tmp_path, f"[options]\n{rule}", change, method)
    assert found == {"AskedOtherwiseError"}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"option__standardize": True}, "options.standardize"),
        ({"precision": "float32"}, "options.precision"),
        ({"option__order": 2}, "options.order"),
        ({"policy__missing_values": "drop"}, "options.missing-values"),
    ],
)
def test_without_a_rule_of_its_own_an_option_is_the_stated_one(tmp_path, changes, rule):
    assert refusals(tmp_path, 'methods = ["moments"]', setting(**changes)) == {rule}


@pytest.mark.parametrize("swapped", [False, True])
def test_all_rules_that_name_an_option_are_kept(swapped):
    """One of all runs and one of the method's, or one written with "-" and one with "_"."""
    pairs = [("score", ["auto", "bic"]), ("fedges", {"score": ["auto", "bic", "bdeu"]})]
    policy = PartyPolicy.from_dict({"options": dict(reversed(pairs) if swapped else pairs)})
    terms = RunTerms("fedges", {"score": "auto"}, 3, secure=False)
    policy.check(terms)
    policy.check_settings(terms, [Setting("score", "bic")])
    with pytest.raises(PolicyError, match=r"options\.score"):
        policy.check_settings(terms, [Setting("score", "bdeu")])
    written = [("max-parents", {"most": 1}), ("max_parents", {"most": 5})]
    policy = PartyPolicy.from_dict({"options": dict(reversed(written) if swapped else written)})
    terms = RunTerms("fedges", {"max_parents": None}, 3, secure=False)
    with pytest.raises(PolicyError, match=r"options\.max-parents"):
        policy.check_settings(terms, [Setting("max_parents", 4)])
