"""What the mask of a secure sum is bound to, and that there is one reply for each mask."""

from dataclasses import fields, replace

import numpy as np
import pytest
from federations import TOKEN, app_of, ask, make_federation, spy
from flwr.app import ConfigRecord, Context, RecordDict

from flwr_causal.data.check.handling import Handling
from flwr_causal.errors import AskedOtherwiseError, CausalError, FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.options import PartyOptions, SmallCounts
from flwr_causal.protocol.setup import Setup
from flwr_causal.secure import party as secure
from flwr_causal.secure.ring import Size
from flwr_causal.simulations import LocalGrid
from flwr_causal.simulations.relay import Relay
from flwr_causal.strategies import Ask, Moments, NotearsADMM, run

SIZE = Size(2, 3)
VECTOR = np.arange(5, dtype=np.uint64)


def agreed(parties=3, **changes):
    """Contexts of parties with keys, and their agreement; all parties must reply."""
    contexts = [Context(7, 2 + k, {}, RecordDict(), {}) for k in range(parties)]
    keys = tuple(secure.offer_key(one.state, running=False) for one in contexts)
    values = {
        "names": ("a", "b"),
        "num_rows": 30,
        "num_clients": parties,
        "mean": np.zeros(2),
        "variance": np.ones(2),
        "handling": Handling(),
        "exchange": TOKEN,
        "keys": keys,
        "least_parties": (parties,),
    }
    return contexts, Setup(**{**values, **changes})


def copied(context, **changes):
    """The same node in the same state."""
    state = RecordDict({name: ConfigRecord(dict(one)) for name, one in context.state.items()})
    return Context(changes.get("run_id", context.run_id), context.node_id, {}, state, {})


def words(context, setup, exchange="sums", number=1, vector=VECTOR, size=SIZE, request=b""):
    """What leaves the party; its state keeps it."""
    content, kept = secure.masked(context, setup, exchange, number, vector, size, request)
    context.state.update(kept)
    return records.arrays_of(content)["masked"]


KEYS = agreed()[1].keys
OTHER = {
    "names": ("a", "c"),
    "num_rows": 31,
    "mean": np.array([0.0, 1e-300]),
    "variance": np.array([1.0, 1.0 + 2**-52]),
    "handling": Handling(missing_values="drop"),
    "precision": "float32",
    "small": SmallCounts(3, "suppress"),
    "options": PartyOptions(seed=1),
    "exchange": TOKEN[::-1],
    "states": (("x",), ()),
    "targets": (("a",),),
    "terms": "{}",
    "signature": "0" * 128,
    "key_names": ("k", "l", "m"),
    "key_signatures": ("", "", "0" * 128),
    "groups": (1, 1, 1),
}


def test_a_mask_is_bound_to_all_that_determines_a_vector():
    (context, *_), setup = agreed()
    found = [words(copied(context), setup)]
    np.testing.assert_array_equal(words(copied(context), setup), found[0])
    found += [words(copied(context), replace(setup, **{k: OTHER[k]})) for k in OTHER]
    # One party more, and one that must not be missing.
    found.append(words(copied(context), replace(setup, num_clients=4)))
    more = replace(setup, keys=(*setup.keys, KEYS[0]), least_parties=(4,), num_clients=4)
    found.append(words(copied(context), more))
    found.append(words(copied(context), replace(setup, keys=setup.keys[::-1])))
    found.append(words(copied(context, run_id=8), setup))
    found.append(words(copied(context), setup, exchange="sum"))
    found.append(words(copied(context), setup, number=2))
    found.append(words(copied(context), setup, size=Size(5)))
    found.append(words(copied(context), setup, request=b"1"))
    streams = np.array([own - VECTOR for own in found])
    assert (np.diff(np.sort(streams, axis=0), axis=0) > 0).all()
    assert {field.name for field in fields(Setup)} == {
        *OTHER,
        "num_clients",
        "keys",
        "least_parties",
    }


def test_how_many_parties_must_reply_enters_the_mask():
    (context, *_), setup = agreed(parties=5)
    context.state[secure.SECURE]["seed"] = bytes(32)
    purposes = set()
    for least in (3, 4, 5):
        own = copied(context)
        words(own, replace(setup, least_parties=(least,)))
        purposes.add(own.state[secure.SECURE]["purpose"])
    assert len(purposes) == 3


FORMS = ["", " ", "a b", "\n", TOKEN + "\n", TOKEN.upper(), TOKEN[:-1], TOKEN + "0", "0" * 10**5]
FORMS += ["\uff10" + TOKEN[1:], "g" * 16, 16 * "\u0660", f" {TOKEN[1:]}", f"{TOKEN} {TOKEN}"]


@pytest.mark.parametrize("token", [*FORMS, 5, 0, True, None, TOKEN.encode(), [TOKEN]])
def test_a_name_of_another_form_is_refused_before_a_key_is_derived(token, monkeypatch):
    (context, *_), setup = agreed()
    setup = replace(setup, exchange=token)
    monkeypatch.setattr(secure, "pair_keys", lambda *_: pytest.fail("a key was derived"))
    for answer in (
        lambda: words(context, setup),
        lambda: secure.unmasked(context, setup, 1, np.ones(3, np.uint8), np.ones((3, 48), "u1")),
        lambda: secure.peers_of(context, setup),
    ):
        with pytest.raises(FederationError, match="must be 16 hexadecimal digits"):
            answer()


@pytest.mark.parametrize("number", ["1", 1.0, True, -1, 2**31, None, float("nan"), np.int64(1)])
def test_a_number_of_another_form_is_refused(number):
    (context, *_), setup = agreed()
    with pytest.raises(FederationError, match="no possible number"):
        words(context, setup, number=number)
    with pytest.raises(FederationError, match="no possible number"):
        secure.unmasked(context, setup, number, np.ones(3, np.uint8), np.ones((3, 48), "u1"))


def test_a_second_question_is_refused_whatever_is_changed():
    (context, *_), setup = agreed()
    first = words(context, setup)
    state = {name: dict(one) for name, one in context.state.items()}
    changes = [{"vector": VECTOR + np.uint64(1)}, {"exchange": "other"}, {"size": Size(5)}]
    changes += [{"request": b"other"}, {"number": 0}]
    for change in changes:
        with pytest.raises(AskedOtherwiseError):
            words(context, setup, **change)
    for name, other in OTHER.items():
        if name != "exchange":
            with pytest.raises(AskedOtherwiseError, match="not the one that this party was sent"):
                words(context, replace(setup, **{name: other}), number=2)
    assert {name: dict(one) for name, one in context.state.items()} == state
    np.testing.assert_array_equal(words(context, setup), first)
    words(context, setup, number=2)


def test_an_agreement_that_was_left_is_not_answered_again():
    (context, *_), setup = agreed()
    words(context, setup, "totals", number=0)
    later = replace(setup, exchange=TOKEN[::-1])
    words(context, later)
    for one in (setup, replace(setup, variance=2 * setup.variance)):
        with pytest.raises(AskedOtherwiseError, match="earlier agreement"):
            words(context, one, number=5)
    # Also one that was only seen, in an exchange that is no sum.
    third = replace(setup, exchange="f" * 16)
    secure.accept(context, third)
    with pytest.raises(AskedOtherwiseError, match="earlier agreement"):
        words(context, later, number=2)
    with pytest.raises(AskedOtherwiseError, match="not the one"):
        secure.accept(context, replace(third, num_rows=31))
    # And one without keys.
    secure.accept(context, replace(setup, exchange="e" * 16, keys=(), least_parties=()))
    with pytest.raises(AskedOtherwiseError, match="earlier agreement"):
        secure.accept(context, third)
    # A new key begins anew.
    secure.offer_key(context.state, running=False)
    assert context.state[secure.SECURE]["tokens"] == []


# -- the ClientApp ---------------------------------------------------------------------------------

TABLES = make_federation(d=3, n=60, parties=3).tables
ADMM = {"secure_aggregation": True, "max_rounds": 6}


class Server(Relay):
    """Asks the first party again, with changes, after it has answered an exchange."""

    def __init__(self, grid, exchange, change):
        super().__init__(grid)
        self.exchange, self.change, self.second, self.first = exchange, change, [], []

    def after(self, messages, replies):
        config = records.config_of(messages[0].content)
        if not self.second and config.get("exchange") == self.exchange:
            arrays = records.arrays_of(messages[0].content)
            self.change(config, arrays)
            content = records.message_content(records.pack_arrays(arrays), config)
            changed = type(messages[0])(
                content, dst_node_id=messages[0].metadata.dst_node_id, message_type="train"
            )
            self.second = list(self.grid.send_and_receive([changed]))
            self.first = replies
        return replies


def asked_again(exchange, change, method=NotearsADMM, **options):
    """The second answer of a party, and the run."""
    servers = []

    def wrapped(grid):
        servers.append(Server(grid, exchange, change))
        return servers[0]

    from flwr_causal import simulate

    found = simulate(method.method, TABLES, wrap_grid=wrapped, **{**ADMM, **options})
    return servers[0].second[0], found


def put(name, value):
    def change(config, arrays):
        config[name] = value

    return change


def moved(name):
    def change(config, arrays):
        config[f"setup-{name}"] = [2 * one + 1 for one in config[f"setup-{name}"]]

    return change


def times(name):
    def change(config, arrays):
        arrays[name] = 2 * arrays[name] + 1

    return change


CHANGED = {
    "token empty": put("setup-exchange", ""),
    "token with a space": put("setup-exchange", "a b"),
    "number text": put("round", "1"),
    "number float": put("round", 1.0),
    "number true": put("round", True),
    "number negative": put("round", -1),
    "penalty": put("penalty", 0.125),
    "another exchange": put("exchange", "refit"),
    "further value": put("more", 1),
    "another array": times("weights"),
    "unknown value of the agreement": put("setup-more", 1),
    "rows": put("setup-num-rows", 61),
    "rows as text": put("setup-num-rows", "60"),
    "means": moved("mean"),
    "variances": moved("variance"),
    "variance NaN": put("setup-variance", [float("nan")] * 3),
    "no names": put("setup-names", []),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_party_answers_one_question_of_a_number(name):
    again, found = asked_again("round", CHANGED[name])
    assert again.has_error()
    assert again.error.reason.split(":")[0] in ("AskedOtherwiseError", "FormError", "RefusedError")
    assert found.status == "completed"


def test_the_same_question_has_the_same_answer():
    again, _ = asked_again("round", lambda config, arrays: None)
    assert not again.has_error()


def test_a_refused_question_is_in_the_partys_record(tmp_path):
    configs = [{"partition-id": k, "num-partitions": 3} for k in range(3)]
    configs[0]["record"] = str(tmp_path / "record.jsonl")
    grid = LocalGrid(app_of(TABLES), 3, node_configs=configs)
    run(NotearsADMM(**ADMM), Server(grid, "round", put("penalty", 0.125)))
    lines = (tmp_path / "record.jsonl").read_text().splitlines()
    assert sum('"event": "refused"' in line for line in lines) == 1
    assert sum("AskedOtherwiseError" in line for line in lines) == 1


def test_values_that_differ_by_party_must_be_declared():
    from flwr_causal.protocol.consensus import ROUND

    class ByParty(NotearsADMM):
        def train(self, agreement, replicate=0):
            steps, replies = super().train(agreement, replicate), None
            while True:
                step = steps.send(replies)
                if isinstance(step, Ask) and step.exchange is ROUND:
                    step = replace(step, own={"party 1": {"penalty": 0.5}})
                replies = yield step

    with pytest.raises(CausalError, match=r"'round' sends different values .*by_party=True"):
        run(ByParty(**ADMM), spy(TABLES))


def test_a_key_in_another_form_is_refused_at_the_server():
    class Forging(Relay):
        def after(self, messages, replies):
            for reply in replies:
                config = records.config_of(reply.content) if reply.has_content() else {}
                if config.get("party") == "party 1" and "public-key" in config:
                    key = self.key(config["public-key"])
                    reply.content["config"] = ConfigRecord({**config, "public-key": key})
            return replies

    others = [lambda key, own=own: own for own in ("00" * 32, 5, 0, b"", [])]
    for key in (str.upper, lambda key: key + " ", *others):
        grid = Forging(LocalGrid(app_of(TABLES), 3))
        grid.key = key
        with pytest.raises(FederationError, match="party 1: its answer was refused: its public"):
            run(Moments(secure_aggregation=True), grid)


@pytest.mark.parametrize("secure", [True, False])
def test_a_copied_key_names_the_parties(secure):
    class Copying(Relay):
        def after(self, messages, replies):
            configs = [records.config_of(one.content) for one in replies]
            keys = {one.get("party"): one.get("public-key") for one in configs}
            if keys.get("party 0") and keys.get("party 1"):
                own = next(k for k, one in enumerate(configs) if one["party"] == "party 1")
                copied = {**configs[own], "public-key": keys["party 0"]}
                replies[own].content["config"] = ConfigRecord(copied)
            return replies

    tables = [table.assign(row_id=np.arange(len(table))) for table in TABLES]
    if not secure:  # the parties hold different columns
        tables = [one.drop(columns=one.columns[k]) for k, one in enumerate(tables)]
    method = Moments(secure_aggregation=secure, row_id="row_id")
    with pytest.raises(FederationError, match="party 0, party 1 sent the same public key"):
        run(method, Copying(LocalGrid(app_of(tables), 3)))


def test_an_agreement_without_keys_needs_a_proper_name_too():
    grid = spy(TABLES)
    for token in FORMS:
        reply = ask(grid, 2, {}, exchange="sums", method="moments", **{"setup-exchange": token})
        assert "FormError" in reply.error.reason


def test_a_table_is_masked_anew_until_sums_are_computed_from_it():
    (context, *_), setup = agreed()

    def masked(about, nonce, setup=setup):
        context.state.update(secure.masked_once(context, setup, about, nonce))

    def multiplied(about, nonce, question):
        context.state.update(secure.multiplied_once(context, setup, about, nonce, question))

    with pytest.raises(AskedOtherwiseError, match="not that of the masked table"):
        multiplied(b"plan", b"first", b"q")
    masked(b"plan", b"first")
    masked(b"plan", b"second")
    with pytest.raises(AskedOtherwiseError, match="not that of the masked table"):
        masked(b"other", b"second")
    for about, nonce in ((b"other", b"second"), (b"plan", b"first")):
        with pytest.raises(AskedOtherwiseError, match="not that of the masked table"):
            multiplied(about, nonce, b"q")
    for _ in range(2):
        multiplied(b"plan", b"second", b"q")
    with pytest.raises(AskedOtherwiseError, match="another question about its masked table"):
        multiplied(b"plan", b"second", b"r")
    with pytest.raises(AskedOtherwiseError, match="masks no second one in this agreement"):
        masked(b"plan", b"second")
    later = replace(setup, exchange=TOKEN[::-1])
    masked(b"other", b"third", later)
    with pytest.raises(AskedOtherwiseError, match="not that of the masked table"):
        multiplied(b"other", b"third", b"q")
