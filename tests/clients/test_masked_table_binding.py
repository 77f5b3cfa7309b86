"""Masked tables of different columns: one table an agreement, one question about it."""

import tracemalloc
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from federations import app_of
from flwr.app import Message

from flwr_causal.errors import FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.products.tables import mask_of, reply_mask
from flwr_causal.secure.keys import new_private_key, pair_keys, public_key
from flwr_causal.simulations import LocalGrid
from flwr_causal.simulations.relay import Relay
from flwr_causal.strategies import Moments, run


def tables():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(90, 4)) @ np.array(
        [[1, 0.6, 0, 0], [0, 1, 0.5, 0], [0, 0, 1, 0.7], [0, 0, 0, 1]]
    )
    whole = pd.DataFrame(values, columns=list("abcd"))
    whole.insert(0, "row_id", np.arange(90))
    return [whole[["row_id", *names]] for names in ("ab", "bc", "d")]


TABLES = tables()


class Server(Relay):
    """Asks the first party again after an exchange, with changes, and keeps both answers."""

    def __init__(self, grid, after, change):
        super().__init__(grid)
        self.exchange, self.change, self.last = after, change, {}
        self.answers = []

    def after(self, messages, replies):
        message = messages[0]
        config = records.config_of(message.content)
        name = config.get("exchange", "")
        # What the party was sent in this run, the agreement with the first message.
        agreement = {k: v for k, v in config.items() if k.startswith("setup-")}
        self.last = {**self.last, "agreement": {**self.last.get("agreement", {}), **agreement}}
        self.last[name] = ({**config, **self.last["agreement"]}, records.arrays_of(message.content))
        if name == self.exchange and not self.answers:
            for again, changed in self.change(self.last):
                content = records.message_content(records.pack_arrays(changed), again)
                one = Message(content, dst_node_id=2, message_type="train")
                self.answers += list(self.grid.send_and_receive([one]))
        return replies


def answers_to(change, record=None, after="products", **options):
    configs = [{"partition-id": k, "num-partitions": 3} for k in range(3)]
    if record is not None:
        configs[0]["record"] = str(record)
    server = Server(LocalGrid(app_of(TABLES), 3, node_configs=configs), after, change)
    found = run(Moments(row_id="row_id", **options), server)
    assert found.status == "completed"
    assert server.answers
    return server.answers


def second_answers(change, after):
    """The answers where the party then takes no part any more, as in an earlier agreement."""
    server = Server(LocalGrid(app_of(TABLES), 3), after, change)
    with suppress(FederationError):
        run(Moments(row_id="row_id"), server)
    return server.answers


def products(last):
    config, arrays = last["products"]
    return dict(config), {name: array.copy() for name, array in arrays.items()}


def with_config(**changes):
    def change(last):
        config, arrays = products(last)
        return [(config | {k.replace("_", "-"): v for k, v in changes.items()}, arrays)]

    return change


def with_numbers(name, factor, more):
    def change(last):
        config, arrays = products(last)
        config[f"setup-{name}"] = [factor * one + more for one in config[f"setup-{name}"]]
        return [(config, arrays)]

    return change


def with_array(name, function):
    def change(last):
        config, arrays = products(last)
        arrays[name] = function(arrays[name])
        return [(config, arrays)]

    return change


def other_box(boxes):
    changed = boxes.copy()
    changed[-1] ^= 1
    return changed


def other_agreement(last):
    """Another agreement, and back."""
    config, arrays = products(last)
    masked, of_masked = last["masked tables"]
    other = {"setup-exchange": "f" * 16, "setup-variance": [2.0] * 4}
    return [(masked | other, of_masked), (config | other, arrays), (config, arrays)]


CHANGED = {
    "variances": with_numbers("variance", 4.0, 0.0),
    "means": with_numbers("mean", 1.0, 1.0),
    "rows": with_config(setup_num_rows=10**6),
    "replicates": with_config(weightings=2),
    "seed of the draw": with_config(draw=7),
    "number": with_config(round=9),
    "order of rows": with_array("rows", lambda rows: rows[::-1].copy()),
    "patterns": with_array("patterns", lambda marks: 1 - marks),
    "boxes": with_array("boxes", other_box),
    "boxes of others": with_array("boxes", lambda boxes: boxes[::-1].copy()),
    "a further training": with_config(
        bundle_trainings=["without 2"], bundle_exchanges=["products"], bundle_seed=0
    ),
    "masked tables again": lambda last: [last["masked tables"]],
}


@pytest.mark.few(8)
@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("name", CHANGED)
def test_a_second_other_question_is_refused(name, secure):
    (again,) = answers_to(CHANGED[name], secure_aggregation=secure)
    assert again.has_error()
    assert again.error.reason.split(":")[0] in (
        "AskedOtherwiseError",
        "FederationError",
        "FormError",
        "RefusedError",
    )


def test_the_same_question_has_the_same_answer():
    def twice(last):
        return [products(last), products(last)]

    one, other = answers_to(twice)
    for name, array in records.arrays_of(one.content).items():
        np.testing.assert_array_equal(array, records.arrays_of(other.content)[name])


def test_a_refused_question_is_in_the_partys_record(tmp_path):
    file = tmp_path / "record.jsonl"
    answers_to(CHANGED["variances"], file)
    answers_to(CHANGED["seed of the draw"], file)
    lines = [line for line in file.read_text().splitlines() if '"event": "refused"' in line]
    assert len(lines) == 2
    assert all("AskedOtherwiseError" in line and '"exchange": "products"' in line for line in lines)


def test_after_another_agreement_the_former_table_is_not_asked_about():
    masked, products, back = answers_to(other_agreement)
    assert not masked.has_error()  # under new masks
    assert "was altered, or is of another plan or agreement" in products.error.reason
    assert "earlier agreement" in back.error.reason


@pytest.mark.parametrize("after", ["masked tables", "products"])
def test_an_agreement_without_keys_in_between_makes_no_second_table(after):
    """Digests for another order of rows would tell which rows have the same value."""

    def change(last):
        masked, arrays = last["masked tables"]
        keys = [name for name in masked if name.startswith(("setup-key", "setup-least"))]
        plain = {name: value for name, value in masked.items() if name not in keys}
        other = {**arrays, "rows": arrays["rows"][::-1].copy()}
        return [(plain | {"setup-exchange": "f" * 16, "exchange": "align"}, {}), (masked, other)]

    aligned, again = second_answers(change, after)
    # Without keys the run has no products of columns.
    assert "AskedOtherwiseError: The server asked for 'align'" in aligned.error.reason
    assert "AskedOtherwiseError: The message belongs to an earlier agr" in again.error.reason


def test_a_table_is_masked_for_one_order_of_rows_and_one_plan():
    def change(last):
        config, arrays = last["masked tables"]
        others = [{**arrays, "rows": arrays["rows"][::-1].copy()}]
        others.append({**arrays, "folds": np.zeros(arrays["pattern-rows"].sum(), np.uint8)})
        return [(config, other) for other in others]

    for again in answers_to(change, after="masked tables"):
        assert "AskedOtherwiseError: The plan, or the order of rows" in again.error.reason


def test_a_replay_makes_no_second_table():
    """A party that answers earlier requests to itself has a new memory, and no other record."""
    from flwr_causal.protocol.replay import REPLAY, packed

    def replayed(last):
        masked, arrays = last["masked tables"]
        request = records.message_content(records.pack_arrays(arrays), masked)
        empty = records.request(REPLAY.name, "moments", 2, packed([]))
        again = records.request(REPLAY.name, "moments", 2, packed([request]))
        other = {**arrays, "rows": arrays["rows"][::-1].copy()}
        return [
            (records.config_of(empty), records.arrays_of(empty)),
            (masked, other),
            (records.config_of(again), records.arrays_of(again)),
        ]

    emptied, other, again = answers_to(replayed)
    assert not emptied.has_error()
    assert "AskedOtherwiseError" in other.error.reason
    assert "AskedOtherwiseError" in again.error.reason


def test_streams_are_bound_to_each_of_their_fields():
    keys = [new_private_key() for _ in range(3)]
    pairs = pair_keys(keys[0], [public_key(one) for one in keys])
    nonces = {k: bytes([k]) * 32 for k in range(3)}
    asked = [
        (nonces, b"a", 9),
        ({**nonces, 0: bytes([9]) * 32}, b"a", 9),
        ({**nonces, 1: bytes([9]) * 32}, b"a", 9),
        (nonces, b"b", 9),
        (nonces, b"a", 10),
    ]
    found = [reply_mask(pairs, own, 0, purpose, n)[:9] for own, purpose, n in asked]
    assert len(np.unique(np.array(found))) == 9 * len(found)
    masks = [mask_of(bytes(32), *one).ravel()[:6] for one in ((1, 2, 3), (1, 3, 2), (2, 2, 3))]
    assert len(np.unique(np.array(masks))) == 18


def pattern_of_others(count, times=1):
    """The masked tables again, in a new agreement, with patterns of rows of the other parties."""

    def change(last):
        config, arrays = last["masked tables"]
        parties = arrays["patterns"].shape[1]
        others = np.tile([0] + [1] * (parties - 1), (times, 1)).astype(np.uint8)
        more = {
            "patterns": np.vstack([arrays["patterns"], others]),
            "pattern-rows": np.append(arrays["pattern-rows"], np.full(times, count)),
        }
        return [({**config, "setup-exchange": "f" * 16, "setup-num-rows": 2**61}, arrays | more)]

    return change


@pytest.mark.parametrize(
    ("count", "times", "words"),
    [
        (10**9, 1, "rows of the plan, by weightings, have 1e"),
        (2**62, 2, "rows of the plan, by weightings, have 9"),
        (0, 1, "not that of this party's rows"),
        (-5, 1, "'pattern-rows' has negative values"),
        (0.5, 1, "'pattern-rows' holds float64"),
    ],
)
def test_a_plan_takes_no_more_memory_than_a_party_makes(count, times, words):
    tracemalloc.start()
    try:
        (again,) = second_answers(pattern_of_others(count, times), "masked tables")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert words in again.error.reason
    assert most < 2**24


def test_the_pairs_of_columns_of_all_patterns_are_limited_together(monkeypatch):
    monkeypatch.setattr("flwr_causal.core.limits.MOST_ENTRIES", 10_000)
    (again,) = second_answers(pattern_of_others(1, 1000), "masked tables")
    assert "pairs of columns of the plan, by patterns, have 1.6" in again.error.reason


def test_a_plan_is_of_the_parties_of_the_agreement():
    def change(last):
        config, arrays = last["masked tables"]
        presence = np.pad(arrays["presence"], ((0, 1), (0, 0)))
        patterns = np.pad(arrays["patterns"], ((0, 0), (0, 1)))
        more = {"presence": presence, "patterns": patterns}
        return [({**config, "setup-exchange": "f" * 16}, arrays | more)]

    (again,) = second_answers(change, "masked tables")
    assert "not that of this party's rows" in again.error.reason


def test_a_plan_has_no_more_rows_than_the_agreement():
    def change(last):
        (changed,) = pattern_of_others(10**6)(last)
        config, arrays = changed
        return [({**config, "setup-num-rows": 10**6}, arrays)]

    (again,) = second_answers(change, "masked tables")
    assert "not that of this party's rows" in again.error.reason
