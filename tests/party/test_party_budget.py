"""A party whose policy limits epsilon, and a server that plays tricks with it."""

import json
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from federations import app_of, ask, make_federation, question, question_of, setup_for
from tampering import Tampering, guarded, recorded, sent

from flwr_causal.app.methods import METHODS, OWN_METHODS
from flwr_causal.clients import CausalClient, answers
from flwr_causal.contract.exchange import Disclosure, Exchange
from flwr_causal.core.options import to_plain
from flwr_causal.core.privacy.calibration import epsilon_of, rho_of
from flwr_causal.data.check.handling import Handling
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.party import noise
from flwr_causal.party import noise as privacy
from flwr_causal.party.door import PartyDoor
from flwr_causal.party.policy import PartyPolicy
from flwr_causal.party.record import epsilon_spent
from flwr_causal.protocol import records
from flwr_causal.protocol.bundle import BundlePart, TrainingName
from flwr_causal.protocol.columns import PRODUCTS
from flwr_causal.protocol.consensus import REFIT, ROUND
from flwr_causal.protocol.contract import Contract
from flwr_causal.protocol.options import Guarantee, PrivatePartyOptions
from flwr_causal.protocol.release import (
    OCTAVES,
    RELEASE,
    check_released,
    sharing,
)
from flwr_causal.protocol.replay import REPLAY, packed
from flwr_causal.protocol.terms import RunTerms
from flwr_causal.secure import party as secure
from flwr_causal.secure.totals import TOTALS
from flwr_causal.secure.unmasking import CONFIRMATION, UNMASKING
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import Moments, NotearsADMM, run

TABLES = make_federation(d=4, n=8000, parties=4, seed=1).tables
SCALES = dict.fromkeys(TABLES[0].columns, 3.0)
OPTIONS = {"min_available_nodes": 4, "epsilon": 1.0, "scales": SCALES}
EPSILON, DELTA = "setup-option-epsilon", "setup-option-delta"


def stated(config, **options):
    """The terms of a message with other options."""
    name = "setup-terms" if "setup-terms" in config else "terms"
    if name not in config:
        return {}
    terms = json.loads(config[name])
    return {name: json.dumps({**terms, "options": {**terms["options"], **options}})}


def everywhere(**options):
    """A server that states and sends other options in each message; None: it does not send them."""

    def change(config, _):
        changed = {**config, **stated(config, **options)}
        for prefix in ("option-", "setup-option-"):
            for name, value in options.items():
                if prefix + name in config:
                    changed[prefix + name] = value
                    if value is None:
                        del changed[prefix + name]
        return changed

    return change


def refused(directory, policy, change, method=None, rule="epsilon"):
    """Run with a server that changes its messages; the first party refuses, and nothing leaves."""
    grid = Tampering(guarded(TABLES, directory, policy), change)
    try:
        outcome = run(method or Moments(**OPTIONS), grid)
        reasons = str([one.reason for one in outcome.failures if one.party == "party 0"])
    except CausalError as error:
        reasons = str(error)
    # Terms with a number that is none are no terms, before a rule is asked.
    formless = ("does not state what the run asks", "What the server sent was refused")
    assert any(words in reasons for words in (f"rule '{rule}'", *formless))
    assert not sent(directory, "sums", "octaves", "release", "round", "refit")
    return sent(directory)


@pytest.mark.parametrize("value", [0, 0.0, -1.0, np.inf, -np.inf, np.nan, True, "1", None, 101.0])
def test_an_epsilon_that_is_none_is_no_run_without_a_limit(tmp_path, value):
    assert not refused(tmp_path, "epsilon = 200", everywhere(epsilon=value))
    assert not list(tmp_path.glob("releases/*"))


@pytest.mark.parametrize("value", [0.0, -1e-5, 1.0, 2.0, np.nan, True, "1e-5"])
def test_a_delta_that_is_none_is_refused(tmp_path, value):
    assert not refused(tmp_path, "epsilon = 9", everywhere(delta=value))


def test_a_delta_above_the_limit_is_refused(tmp_path):
    change = everywhere(epsilon=0.001, delta=0.99999)
    assert not refused(tmp_path, "epsilon = 4", change, rule="delta")
    assert not refused(tmp_path, "epsilon = 4", everywhere(delta=1.1e-5), rule="delta")
    # Where the party allows it, it counts for what it loses.
    assert not refused(tmp_path, "epsilon = 4\ndelta = 0.9", everywhere(delta=0.95), rule="delta")
    assert not list(tmp_path.glob("releases/*"))


@pytest.mark.parametrize(
    "changed",
    [
        {EPSILON: 2.0},
        {EPSILON: None},
        {EPSILON: 0.0},
        {DELTA: 1e-6},
        {"setup-option-scales": ""},
        {"setup-option-scales": None},
        {EPSILON: None, DELTA: None, "setup-option-scales": None, "setup-option-release": None},
    ],
)
@pytest.mark.parametrize("policy", ["epsilon = 9", ""])
def test_the_agreement_has_the_guarantee_that_the_run_states(tmp_path, policy, changed):
    def change(config, _):
        if EPSILON not in config:
            return None
        values = {**config, **changed}
        return {name: value for name, value in values.items() if value is not None}

    grid = Tampering(guarded(TABLES, tmp_path, policy), change)
    with pytest.raises(CausalError):
        run(Moments(**OPTIONS), grid)
    assert len(sent(tmp_path)) == 1
    assert sent(tmp_path)[0]["exchange"] == "schema"


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0.0, "delta": 1e-5, "scales": ""},
        {"epsilon": -1.0, "delta": 1e-5, "scales": ""},
        {"epsilon": np.nan, "delta": 1e-5, "scales": ""},
        {"epsilon": True, "delta": 1e-5, "scales": ""},
        {"epsilon": "1", "delta": 1e-5, "scales": ""},
        {"epsilon": 1.0, "delta": 2.0, "scales": ""},
        {"epsilon": 1.0, "delta": 0.0, "scales": ""},
        {"epsilon": 1.0, "delta": -1.0, "scales": ""},
        {"epsilon": 1.0, "delta": np.nan, "scales": ""},
        {"epsilon": 1.0, "delta": True, "scales": ""},
        {"epsilon": 1.0, "delta": 1e-5, "scales": 3},
        {"delta": 1e-5},
        {"scales": ""},
    ],
)
def test_what_is_there_and_no_guarantee_is_an_error_without_a_policy_too(options):
    with pytest.raises(ConfigError):
        Guarantee.of(options)
    grid = guarded(TABLES, *_nowhere)
    for method in (Moments(), NotearsADMM()):
        node = grid.get_node_ids()[1]
        reply = ask(grid, node, {}, "query.schema", exchange="", **question_of(method, **options))
        assert "error" in records.config_of(reply.content)
        setup = setup_for(TABLES, options=replace(method.client_options, **options))
        reply = ask(grid, node, {}, setup=setup, exchange="sums", method=method.method)
        assert reply.has_error()


@pytest.fixture(autouse=True)
def nowhere(tmp_path_factory):
    """Where parties without a policy keep nothing."""
    _nowhere[:] = [tmp_path_factory.mktemp("nowhere"), ""]


_nowhere = []


def test_without_epsilon_a_run_is_not_private():
    assert Guarantee.of({"center": "global"}) is None
    assert Guarantee.of({"epsilon": None, "delta": None, "scales": None}) is None
    assert Guarantee.of({"epsilon": 2}) == Guarantee(2.0, 1e-5, "")


PRIVATE = {
    "moments": {OCTAVES, RELEASE, CONFIRMATION, UNMASKING},
    "notears-admm": {TOTALS, ROUND, REFIT, CONFIRMATION, UNMASKING, REPLAY},
}


@pytest.mark.parametrize("method", OWN_METHODS)
def test_what_follows_from_a_release_is_declared(method):
    contract = METHODS[method].client.contract
    assert {one.name for one in contract.private} == {
        one.name for one in PRIVATE.get(method, set())
    }
    assert issubclass(contract.options, PrivatePartyOptions) is bool(contract.private)
    if not contract.private:
        assert not {"epsilon", "delta"} & {one.name for one in fields(contract.options)}
        return
    own = METHODS[method].strategy(epsilon=1.0).client_options
    assert own.guarantee == Guarantee(1.0, 1e-5, "")
    for exchange in (*contract.exchanges, TOTALS, REPLAY, CONFIRMATION, UNMASKING, PRODUCTS):
        for training in (TrainingName(), TrainingName(replicate=1), TrainingName(without=1)):
            part = BundlePart(training, exchange)
            if exchange in PRIVATE[method] and training == TrainingName():
                check_released(contract, part)
                continue
            with pytest.raises(CausalError, match="does not follow from the private release"):
                check_released(contract, part)


@pytest.mark.parametrize("method", OWN_METHODS)
def test_no_method_answers_a_private_run_with_exact_numbers(tmp_path, method):
    """The server sends epsilon to each method, and asks for each of its exchanges."""
    grid, node = guarded(TABLES, tmp_path, "epsilon = 9"), None
    node = grid.get_node_ids()[0]
    contract = METHODS[method].client.contract
    own = {"epsilon": 1.0, "delta": 1e-5, "scales": json.dumps(SCALES)}
    terms = RunTerms(method, {**own, "seed": 0}, 4, secure=False).to_text()
    strategy = METHODS[method].strategy()
    question = {**question_of(strategy, **own), "exchange": "", "terms": terms}
    ask(grid, node, {}, "query.schema", **question)
    assert len(sent(tmp_path)) == bool(contract.private)
    options = PrivatePartyOptions(**own)
    if contract.private:
        options = replace(strategy.client_options, **own)
    setup = setup_for(TABLES, terms=terms, options=options)
    exact = [one for one in contract.exchanges if one not in contract.private]
    for exchange in (*exact, TOTALS, *([] if REPLAY in contract.private else [REPLAY])):
        values = {"requests": "[]"}
        arrays = {"archive": np.zeros(0, np.uint8)} if exchange is REPLAY else {}
        reply = ask(
            grid, node, arrays, setup=setup, exchange=exchange.name, method=method, **values
        )
        assert reply.has_error(), exchange.name
    assert {line["exchange"] for line in sent(tmp_path)} <= {"schema"}
    if not contract.private:
        assert not sent(tmp_path)


def test_a_replay_holds_released_exchanges_alone(tmp_path):
    grid = guarded(TABLES, tmp_path, "epsilon = 9")
    watched = Tampering(grid, lambda config, _: None)
    run(NotearsADMM(**{**OPTIONS, "epsilon": 8.0}, max_rounds=6), watched)
    node = grid.get_node_ids()[0]
    before = len(sent(tmp_path))
    earlier = records.request("perceptrons", "notears-admm", 1, {"parameters": np.zeros(3)})
    values = packed([earlier])
    requests, archive = values["requests"], values["archive"]
    reply = ask(grid, node, {"archive": archive}, exchange="replay", requests=requests)
    assert "'perceptrons', which is for other runs" in reply.error.reason
    assert len(sent(tmp_path)) == before


def test_the_report_of_a_private_run_is_public(tmp_path):
    run(Moments(**OPTIONS), grid := Tampering(guarded(TABLES, tmp_path, ""), lambda c, _: None))
    reports = [
        records.config_of(one.content)
        for one in grid.replies
        if one.metadata.message_type == "query.schema"
    ]
    for report in reports:
        assert (report["rows"], report["withheld"], report["has-sums"]) == (0, 1, 0)


def test_a_run_keeps_the_guarantee_that_it_began_with(tmp_path):
    """Octaves for one epsilon and a release for another would be more than either."""
    grid = guarded(TABLES, tmp_path, "")
    method = Moments(min_available_nodes=4, epsilon=1.0)

    def change(config, _):
        if config.get("exchange") != "release":
            return None
        setup = last["setup"]
        other = {**setup, EPSILON: 8.0, **stated(setup, epsilon=8.0)}
        return {**config, **other}

    last = {}

    def keep(config, kind):
        if "setup-names" in config:
            last["setup"] = {k: v for k, v in config.items() if k.startswith("setup-")}
        return change(config, kind)

    with pytest.raises(CausalError, match="another epsilon, delta or scales in this run"):
        run(method, Tampering(grid, keep))
    assert {line["exchange"] for line in sent(tmp_path)} == {"schema", "octaves"}


class Asking:
    """A server that asks a party by hand; the state of its node is new with each of these."""

    def __init__(self, directory, scales=SCALES):
        self.grid = guarded(TABLES, directory, "epsilon = 1.0")
        self.node = self.grid.get_node_ids()[0]
        self.options = {"epsilon": 1.0, "delta": 1e-5, "scales": json.dumps(scales)}
        self.terms = RunTerms("moments", {**self.options, "seed": 0}, 4, secure=False).to_text()

    def report(self, release, **about):
        question = question_of(Moments(), **self.options, release=release)
        question |= {"exchange": "", "terms": self.terms, **about}
        reply = ask(self.grid, self.node, {}, "query.schema", **question)
        return records.config_of(reply.content).get("error", "")

    def release(self, release, names=tuple(SCALES), exchange="release", token="a"):
        """What the party releases, or why it does not."""
        own = replace(Moments().client_options, **self.options, release=release)
        tables = [table[list(names)] for table in TABLES]
        setup = setup_for(tables, terms=self.terms, options=own, exchange=16 * token)
        d = len(names)
        arrays = {"centers": np.zeros(d), "scales": np.full(d, 3.0)}
        arrays = arrays if exchange == "release" else {}
        about = {"exchange": exchange, "method": "moments"}
        reply = ask(self.grid, self.node, arrays, setup=setup, **about)
        return reply.error.reason if reply.has_error() else records.arrays_of(reply.content)


def test_a_run_under_a_second_name_has_no_second_release(tmp_path):
    """One question under two names in one run of Flower's, then a run for each of the names."""
    first = Asking(tmp_path)
    assert not first.report("A")
    assert not first.report("B", exchange=16 * "a")
    replies = []
    for name in "AB":
        own = Asking(tmp_path)
        own.report(name, resumed=1)
        replies.append(own.release(name))
    assert isinstance(replies[0], dict)
    assert "it makes no second release" in replies[1]
    assert epsilon_spent(recorded(tmp_path)) == pytest.approx(1.0)


def test_two_messages_at_once_have_one_release(tmp_path, monkeypatch):
    assert not Asking(tmp_path).report("A")
    one, other = Asking(tmp_path), Asking(tmp_path)
    assert not one.report("A", resumed=1)
    assert not other.report("A", resumed=1)
    own, within = privacy.products_of, []

    def meanwhile(*given):
        """The second message is answered while the first one draws."""
        if not within:
            within.append(None)
            within[0] = other.release("A")
        return own(*given)

    monkeypatch.setattr(privacy, "products_of", meanwhile)
    found = one.release("A")
    np.testing.assert_array_equal(found["products"], within[0]["products"])
    assert epsilon_spent(recorded(tmp_path)) == pytest.approx(1.0)


def test_an_error_of_a_release_counts_as_the_answer(tmp_path):
    """With much noise an error says how many rows the release has, in as many runs as one likes."""
    policy = "epsilon = 0.04"
    # A release says in three of four draws that there are too few rows: hardly ever in none of 12.
    tables = [table[k : k + 100] for table in TABLES for k in (0, 100, 200)]
    options = OPTIONS | {"epsilon": 0.02, "min_available_nodes": len(tables)}
    method = NotearsADMM(**options, max_rounds=6)
    reasons = []
    for _ in range(8):
        with pytest.raises(CausalError) as caught:
            run(method, guarded(tables, tmp_path, policy))
        reasons.append(str(caught.value))
    lines = recorded(tmp_path)
    assert {line["event"] for line in lines} >= {"failed", "refused"}
    failed = [line for line in lines if line["event"] == "failed"]
    assert all(line["epsilon"] == 0.02 for line in failed)
    assert 0.02 < epsilon_spent(lines) <= 0.04
    assert "rule 'epsilon'" in reasons[-1]


@pytest.mark.parametrize("order", [("octaves", "release"), ("release", "octaves")])
def test_histograms_and_release_have_shares_of_one_budget(tmp_path, order):
    """Agreements on other columns: one has a scale to estimate, and the other one has none."""
    own = Asking(tmp_path, dict(list(SCALES.items())[1:]))
    assert not own.report("A")
    (without, *names) = SCALES
    columns = {"octaves": (without,), "release": tuple(names)}
    replies = [
        own.release("A", columns[one], one, token) for one, token in zip(order, "ab", strict=True)
    ]
    assert isinstance(replies[0], dict)
    assert "makes no second one" in replies[1]
    # What was refused has left nothing: the run goes on with the budget that it began with.
    if order[0] == "octaves":
        assert isinstance(own.release("A", tuple(SCALES), token="c"), dict)


def test_nothing_is_drawn_once_epsilon_is_spent(tmp_path, monkeypatch):
    drawn = []
    own = privacy.products_of
    monkeypatch.setattr(privacy, "products_of", lambda *given: drawn.append(1) or own(*given))
    policy = "epsilon = 1.0"
    run(Moments(**OPTIONS), guarded(TABLES, tmp_path, policy))
    files = set(tmp_path.glob("releases/*"))
    assert len(drawn) == 4
    assert epsilon_spent(recorded(tmp_path)) == pytest.approx(1.0)
    for method in (Moments(**OPTIONS), NotearsADMM(**OPTIONS, max_rounds=6)):
        with pytest.raises(CausalError, match="rule 'epsilon'"):
            run(method, guarded(TABLES, tmp_path, policy))
    assert set(tmp_path.glob("releases/*")) == files
    # Two releases are no more than both together.
    run(Moments(**OPTIONS), guarded(TABLES, tmp_path, "epsilon = 1.47"))
    assert epsilon_spent(recorded(tmp_path)) == pytest.approx(1.4652, abs=1e-4)


def cut(path, lines):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


@pytest.mark.few(2)
@pytest.mark.parametrize("method", [Moments, partial(NotearsADMM, max_rounds=6)])
@pytest.mark.parametrize(
    "lose", [Path.unlink, lambda path: cut(path, 0), lambda path: cut(path, 1)]
)
def test_a_record_that_was_deleted_or_cut_off_is_no_reason_to_count_less(tmp_path, lose, method):
    run(Moments(**OPTIONS), guarded(TABLES, tmp_path, "epsilon = 1.0"))
    lose(tmp_path / "record.jsonl")
    with pytest.raises(CausalError, match="rule 'epsilon'"):
        run(method(**OPTIONS), guarded(TABLES, tmp_path, "epsilon = 1.0"))
    run(method(**OPTIONS), guarded(TABLES, tmp_path, "epsilon = 1.47"))
    lose(tmp_path / "record.jsonl")
    with pytest.raises(CausalError, match="rule 'epsilon'"):
        run(method(**OPTIONS), guarded(TABLES, tmp_path, "epsilon = 1.47"))


def test_of_shared_noise_a_deleted_record_counts_the_own_part(tmp_path):
    shared = Moments(**OPTIONS, secure_aggregation=True, quorum=1.0)
    run(shared, guarded(TABLES, tmp_path, "epsilon = 3.0"))
    cut(tmp_path / "record.jsonl", 1)  # of the question, whose line says less
    with pytest.raises(CausalError, match="rule 'epsilon'"):
        run(Moments(**OPTIONS), guarded(TABLES, tmp_path, "epsilon = 2.15"))


def test_what_was_drawn_counts_where_the_node_ends_before_it_is_written_down(tmp_path):
    """The node is killed between its draw and the line, and goes on with the same release."""
    first = Asking(tmp_path)
    assert not first.report("A")
    lines = len(recorded(tmp_path))
    kept = first.release("A")["products"]
    cut(tmp_path / "record.jsonl", lines)
    again = Asking(tmp_path)
    assert not again.report("A", resumed=1)
    np.testing.assert_array_equal(again.release("A")["products"], kept)
    (tmp_path / "record.jsonl").unlink()
    assert "rule 'epsilon'" in Asking(tmp_path).report("B")
    again = Asking(tmp_path)
    assert not again.report("A", resumed=1)
    np.testing.assert_array_equal(again.release("A", token="b")["products"], kept)


def test_a_run_that_is_refused_for_its_columns_has_drawn_nothing(tmp_path):
    method = NotearsADMM(**{**OPTIONS, "scales": None}, max_rounds=6)
    tables = [table.rename(columns={table.columns[0]: "patient_id"}) for table in TABLES]
    with pytest.raises(CausalError, match=r"rule 'columns\.identifiers'"):
        run(method, guarded(tables, tmp_path, "epsilon = 1.0"))
    run(method, guarded(TABLES, tmp_path, "epsilon = 1.0"))


def full(*_):
    raise OSError(28, "No space left on device")


def test_where_nothing_can_be_kept_nothing_is_drawn_and_nothing_counts(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(noise, "write", full)
        for method in (Moments(**OPTIONS), NotearsADMM(**OPTIONS, max_rounds=6)):
            with pytest.raises(CausalError, match="private release cannot be written"):
                run(method, guarded(TABLES, tmp_path, "epsilon = 1.0"))
    assert epsilon_spent(recorded(tmp_path)) == 0
    run(Moments(**OPTIONS), guarded(TABLES, tmp_path, "epsilon = 1.0"))


def test_a_release_that_is_drawn_and_cannot_be_kept_does_not_leave(tmp_path, monkeypatch):
    own = Asking(tmp_path)
    assert not own.report("A")
    with monkeypatch.context() as patch:
        patch.setattr(noise, "write", full)
        assert "private release cannot be written (No space left" in own.release("A")
    assert not sent(tmp_path, "release")
    first = own.release("A")["products"]
    again = Asking(tmp_path)
    assert not again.report("A", resumed=1)
    np.testing.assert_array_equal(again.release("A", token="b")["products"], first)


def test_a_release_that_cannot_be_read_lets_no_other_one_out(tmp_path):
    run(Moments(**OPTIONS), guarded(TABLES, tmp_path, "epsilon = 9.0"))
    (file,) = tmp_path.glob("releases/*.json")
    content = file.read_bytes()
    other = file.with_name("mine.json")
    other.write_bytes(b"")
    for damaged in (b"", content[:-9], b"[]", content.replace(b'"rho"', b'"rha"')):
        file.write_bytes(damaged)
        with pytest.raises(CausalError, match=f"private release {file.name} cannot be read"):
            run(Moments(**OPTIONS), guarded(TABLES, tmp_path, "epsilon = 9.0"))
    file.write_bytes(content)
    run(Moments(**OPTIONS), guarded(TABLES, tmp_path, "epsilon = 9.0"))


def test_an_epsilon_counts_at_the_delta_of_the_policy(tmp_path):
    policy = "epsilon = 1.0\ndelta = 1e-3"
    run(Moments(**OPTIONS, delta=1e-3), guarded(TABLES, tmp_path, policy))
    (line,) = sent(tmp_path, "release")
    assert (line["epsilon"], line["delta"]) == (1.0, 1e-3)
    assert line["rho"] == pytest.approx(rho_of(1.0, 1e-3))
    assert epsilon_spent(recorded(tmp_path)) == pytest.approx(epsilon_of(rho_of(1.0, 1e-3), 1e-5))
    assert epsilon_spent(recorded(tmp_path), 1e-3) == pytest.approx(1.0)


def test_of_shared_noise_a_party_counts_on_its_own_part(tmp_path):
    """The server may have made up the other parties, unless the party knows their keys."""
    shared = {**OPTIONS, "secure_aggregation": True, "quorum": 1.0}
    with pytest.raises(CausalError, match=r"rule 'epsilon'|no usable reply"):
        run(Moments(**shared), guarded(TABLES, tmp_path, "epsilon = 1.0"))
    assert not sent(tmp_path, "release")
    # Nothing was drawn either.
    assert not any("private-release" in file.read_text() for file in tmp_path.glob("releases/*"))
    run(Moments(**shared), guarded(TABLES, tmp_path, "epsilon = 3.0"))
    (line,) = sent(tmp_path, "release")
    assert line["rho"] == pytest.approx(4 * rho_of(1.0, 1e-5))
    # In notears-admm each party adds all of the noise.
    own = tmp_path / "admm"
    own.mkdir()
    run(
        NotearsADMM(**{**shared, "epsilon": 8.0}, max_rounds=6), guarded(TABLES, own, "epsilon = 8")
    )
    assert sent(own, "round")[0]["rho"] == pytest.approx(rho_of(8.0, 1e-5))


def test_a_shared_release_is_for_one_sum_of_all_parties():
    keys = ("aa", "bb", "cc")
    whole = setup_for(TABLES, keys=keys, least_parties=(3,))
    assert sharing(whole) == 3
    assert sharing(setup_for(TABLES)) == 1
    changes = [{"least_parties": least} for least in ((4,), (0,), (-1,), (True,), (3, 3))]
    for change in (*changes, {"groups": (0, 0, 1)}):
        with pytest.raises(ConfigError, match="one secure sum of all parties"):
            sharing(replace(whole, **change))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("delta = 1e-5", "delta is the delta of the rule epsilon"),
        ("epsilon = 1\ndelta = 0", "delta is 0"),
        ("epsilon = 1\ndelta = 1", "delta is 1"),
        ("epsilon = 1\ndelta = nan", "delta is nan"),
        ("epsilon = 1\ndelta = true", "delta is True"),
        ("epsilon = 1\ndelta = '1e-5'", "delta is '1e-5'"),
        ("epsilon = inf", "epsilon is inf"),
        ("epsilon = nan", "epsilon is nan"),
        ("epsilon = true", "epsilon is True"),
    ],
)
def test_rules_of_epsilon_and_delta_that_are_none(tmp_path, text, words):
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        PartyPolicy.read(tmp_path / "policy.toml")


def test_a_contract_is_not_private_by_default():
    assert Contract("mine", (ROUND,)).private == ()


@pytest.mark.parametrize("sent", [{}, {"epsilon": 2.0}, {"delta": 1e-6}, {"scales": "x0=1"}])
def test_without_a_policy_a_message_keeps_to_the_stated_guarantee(sent):
    stated = RunTerms("moments", {"epsilon": 1.0, "delta": None}, 4, secure=False).to_text()
    own = PrivatePartyOptions(epsilon=1.0, delta=1e-5, scales="")
    door, contract = (
        PartyDoor(1, PartyPolicy(), None, guarded=True),
        METHODS["moments"].client.contract,
    )
    door.check_agreement(contract, setup_for(TABLES, terms=stated, options=own), [])
    changed = replace(own, **sent) if sent else PrivatePartyOptions()
    changed = setup_for(TABLES, terms=stated, options=changed)
    with pytest.raises(ConfigError, match="other epsilon, delta or scales than the run states"):
        door.check_agreement(contract, changed, [])


SUMS = Exchange("sums", "", returns=(Disclosure("sums", "", ("d",)),))
ROWS = Exchange("rows", "", returns=(Disclosure("sums", "", ("d",)),))


class Theirs(CausalClient):
    """Of another package: private by its contract, and careless."""

    contract = Contract("theirs", (SUMS, ROWS), private=(SUMS, ROWS), options=PrivatePartyOptions)

    @answers(SUMS)
    def sums(self, asked):
        return {"sums": np.zeros(len(self.setup.names))}

    @answers(ROWS)
    def from_rows(self, asked):
        return {"sums": self.rows().sum(axis=0)}


def test_another_packages_private_method_shows_neither_rows_nor_their_number():
    grid, node = LocalGrid(app_of(TABLES, Theirs), 4), 2
    own = PrivatePartyOptions(epsilon=1.0, delta=1e-5, scales="")
    asked = question("theirs", Handling(), to_plain(own))
    report = records.config_of(ask(grid, node, {}, "query.schema", exchange="", **asked).content)
    assert (report["rows"], report["has-sums"], report["withheld"]) == (0, 0, 1)
    setup = setup_for(TABLES, options=own)
    reply = ask(grid, node, {}, setup=setup, exchange="sums")
    assert reply.content[records.METRICS][records.WEIGHT] == 0
    reply = ask(grid, node, {}, setup=setup, exchange="rows")
    assert "nothing is computed from the rows" in reply.error.reason


def test_a_report_with_numbers_is_not_that_of_a_private_run():
    (context,) = [LocalGrid(app_of(TABLES), 4).context(2)]
    secure.offer_key(context.state, running=False)
    for private, own in ((False, "exact"), (True, "released")):
        columns = TABLES[2].columns
        assert secure.own_report(context, columns, lambda own=own: own, private=private) == own


def test_a_party_that_knows_the_others_counts_on_their_noise():
    guarantee, grid = Guarantee(1.0, 1e-5, ""), LocalGrid(app_of(TABLES), 4)
    context = grid.context(2)
    privacy.begin(context, PrivatePartyOptions(epsilon=1.0), again=False)
    alone = privacy.of_line(context, guarantee, 4)
    assert alone["rho"] == pytest.approx(4 * guarantee.rho)
    context.node_config["peers"] = "/keys"
    assert privacy.of_line(context, guarantee, 4) == {**alone, "rho": guarantee.rho}
