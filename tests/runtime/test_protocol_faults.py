"""Every message of secure sums and masked tables under every fault, at both ends."""

import shutil

import numpy as np
import pandas as pd
import pytest
from federations import Losing, app_of, make_federation
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from method_modes import REFUSED
from sweeps import sweep

from flwr_causal import simulate
from flwr_causal.errors import CausalError
from flwr_causal.protocol import records
from flwr_causal.protocol.columns import MASKED_TABLES, PRODUCTS
from flwr_causal.protocol.consensus import ROUND
from flwr_causal.protocol.products.row_ids import ALIGN
from flwr_causal.protocol.replay import REPLAY
from flwr_causal.secure.totals import TOTALS
from flwr_causal.secure.unmasking import CONFIRMATION, UNMASKING
from flwr_causal.simulations import LocalGrid
from flwr_causal.simulations.relay import KilledError, Relay
from flwr_causal.testing.faults import FAULTS, Fault, Scene

ROWS = make_federation(d=3, n=80, parties=4, seed=1).tables
FIVE = make_federation(d=3, n=100, parties=5, seed=1).tables
ADMM = {"secure_aggregation": True, "max_rounds": 4, "variant": "paper"}
#: Who is missing from the second sum: what is only asked for then is asked for.
MISSING = {"confirmation": {(1, False): [1]}}


def by_columns():
    whole = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=list("abcd"))
    whole["c"] += 0.9 * whole["a"]
    whole.insert(0, "row_id", np.arange(60))
    return [whole[["row_id", *names]] for names in ("ab", "bc", "d")]


COLUMNS = by_columns()
#: By message: the run, and the exchange that declares it.
MESSAGES = {
    "totals": ("notears-admm", ROWS, ADMM, TOTALS),
    "unmasking": ("notears-admm", ROWS, ADMM, UNMASKING),
    "confirmation": ("notears-admm", FIVE, ADMM, CONFIRMATION),
    "round": ("notears-admm", ROWS, ADMM, ROUND),
    "align": ("moments", COLUMNS, {"row_id": "row_id"}, ALIGN),
    "masked tables": ("moments", COLUMNS, {"row_id": "row_id"}, MASKED_TABLES),
    "products": ("moments", COLUMNS, {"row_id": "row_id"}, PRODUCTS),
}


def ended(method, tables, **options):
    """The run, or None and the text of its error; a raw error is raised."""
    try:
        return simulate(method, tables, **options), ""
    except CausalError as error:
        return None, str(error)


def lacking(grid, name):
    """The grid, without a party in one sum where the message asks for that."""
    return Losing(grid, MISSING[name]) if name in MISSING else grid


def name_of(message):
    return records.config_of(message.content).get("exchange", "")


class Faulty(Relay):
    """Replaces the replies of the last party in one exchange, in every attempt."""

    def __init__(self, grid, name, exchange, fault):
        super().__init__(grid)
        self.name, self.exchange, self.fault = name, exchange, fault
        self.honest, self.applied, self.number = {}, 0, None

    def after(self, messages, replies):
        faulty = max(self.grid.get_node_ids())
        request = next((m for m in messages if m.metadata.dst_node_id == faulty), None)
        own = next((r for r in replies if r.metadata.src_node_id == faulty), None)
        if request is None or own is None or not own.has_content():
            return replies
        arrived, number = [own], records.config_of(request.content).get("round")
        key = (name_of(request), number)
        before = [reply for one, reply in self.honest.items() if one != key]
        # One exchange of the name: a method may have several.
        if name_of(request) == self.name and self.number in (None, number):
            self.number = number
            other = next((one for one in replies if one is not own), None)
            scene = Scene(request, own, before[-1] if before else None, other, self.exchange)
            changed = self.fault.arrives(scene)
            self.applied += changed is not None
            arrived = [own] if changed is None else list(changed)
        self.honest[key] = own
        return [one for one in replies if one is not own] + arrived


#: Faults that depend on what the exchange declares, and those of replies that are refused anyway.
DECLARED = [one for one in FAULTS if one.name not in REFUSED and not one.schema]
LOST = [one for one in FAULTS if one.name in REFUSED]
#: Messages of which other tests have the faults, too.
NIGHTLY = ("round", "align", "confirmation")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name", sweep(MESSAGES, kept=[name for name in MESSAGES if name not in NIGHTLY])
)
def test_a_faulty_reply_is_listed_or_ends_the_run_with_an_error(name):
    check_faults(name, DECLARED)


@pytest.mark.slow
@pytest.mark.parametrize("name", sweep(MESSAGES, kept=["unmasking"]))
def test_a_reply_that_is_refused_whatever_it_holds_is_listed(name):
    check_faults(name, LOST)


def check_faults(name, faults):
    method, tables, options, exchange = MESSAGES[name]
    last, applied = f"party {len(tables) - 1}", 0
    for fault in faults:
        grids = []

        def wrapped(grid, fault=fault, grids=grids):
            grids.append(Faulty(lacking(grid, name), name, exchange, fault))
            return grids[0]

        found, text = ended(method, tables, wrap_grid=wrapped, **options)
        if found is None:
            # Where a reply looks like an honest one, nobody can tell whose it is.
            assert fault.lie or last in text, f"{fault.name}: {text}"
        else:
            listed = [one["party"] for one in found.failures if one["party"] != "party 1"]
            harmless = fault.once or fault.lie or fault.name in HARMLESS
            assert harmless or listed == [last] or not grids[0].applied, fault.name
        applied += bool(grids[0].applied)
    assert applied > len(faults) // 2


@pytest.mark.few(5)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.int8])
@pytest.mark.parametrize("name", ["totals", "unmasking", "align", "masked tables", "products"])
def test_keys_and_words_in_another_type_are_the_partys_failure(name, dtype):
    method, tables, options, exchange = MESSAGES[name]
    last = f"party {len(tables) - 1}"
    # A masked vector is the only array of its reply.
    for thing in ["masked"] if exchange is TOTALS else [one.name for one in exchange.returns]:

        def arrives(scene, thing=thing):
            own = scene.things()
            return [scene.with_things({**own, thing: own[thing].astype(dtype)})]

        found, text = ended(
            method,
            tables,
            wrap_grid=lambda grid, arrives=arrives: Faulty(
                grid, name, exchange, Fault("dtype", arrives)
            ),
            **options,
        )
        if found is None:
            assert f"{last}: its reply was refused" in text
        else:
            assert [one["party"] for one in found.failures] == [last]
            assert "its reply was refused" in found.failures[0]["reason"]


#: What is taken for the honest reply, or, of bytes that are no ids, for another one.
HARMLESS = ("late", "delivered twice", "an id twice")


@pytest.mark.few(8)
@pytest.mark.parametrize("fault", [one for one in FAULTS if one.schema], ids=lambda one: one.name)
def test_a_faulty_report_of_a_secure_run_names_the_party(fault):
    class Reporting(Relay):
        def after(self, messages, replies):
            own = next((r for r in replies if r.metadata.src_node_id == 5), None)
            if own is None or name_of(messages[0]) or not own.has_content():
                return replies
            others = [one for one in replies if one is not own]
            (request,) = [m for m in messages if m.metadata.dst_node_id == 5]
            changed = fault.arrives(Scene(request, own, None, next(iter(others), None)))
            return others + ([own] if changed is None else list(changed))

    found, text = ended("notears-admm", ROWS, wrap_grid=Reporting, **ADMM)
    assert found is not None or "party 3" in text or "node 5" in text


def test_a_faulty_answer_to_a_replay_is_no_raw_error(tmp_path):
    class Killing(Relay):
        def before(self, messages):
            if records.config_of(messages[0].content).get("round") == 4:
                raise KilledError
            return messages

    with pytest.raises(KilledError):
        simulate("notears-admm", ROWS, wrap_grid=Killing, output_dir=tmp_path / "killed", **ADMM)
    for number, fault in enumerate(DECLARED):
        options = {
            **ADMM,
            "output_dir": shutil.copytree(tmp_path / "killed", tmp_path / str(number)),
        }
        grids = []

        def wrapped(grid, fault=fault, grids=grids):
            grids.append(Faulty(grid, REPLAY.name, REPLAY, fault))
            return grids[0]

        found, text = ended("notears-admm", ROWS, wrap_grid=wrapped, resume=True, **options)
        assert found is not None or "party 3" in text, fault.name


# -- what a party is sent --------------------------------------------------------------------------


def arrays_with(change):
    def apply(content):
        record = content.get("arrays")
        if not isinstance(record, ArrayRecord) or not len(record):
            return False
        content["arrays"] = ArrayRecord(change(dict(record.items())))
        return True

    return apply


def each(change):
    return arrays_with(lambda record: {k: Array(change(v.numpy())) for k, v in record.items()})


def with_bytes(data):
    return arrays_with(
        lambda record: {k: Array(v.dtype, v.shape, v.stype, data) for k, v in record.items()}
    )


def config_with(**changes):
    def apply(content):
        plain = dict(content["config"])
        wrong = {k: v for k, v in changes.items() if k in plain}
        content["config"] = ConfigRecord({**plain, **wrong})
        return bool(wrong)

    return apply


def without(content):
    return bool(content.pop("arrays", None))


REQUESTS = {
    "text": each(lambda values: values.astype(str)),
    "float": each(lambda values: values.astype(np.float64) + 0.5),
    "complex": each(lambda values: values.astype(np.complex128)),
    "one more axis": each(lambda values: values[None]),
    "one entry fewer": each(lambda values: values[:-1]),
    "NaN": each(lambda values: np.full(values.shape, np.nan)),
    "renamed": arrays_with(lambda record: {f"{k}-": v for k, v in record.items()}),
    "one more": arrays_with(lambda record: {**record, "more": Array(np.zeros(2))}),
    "none": without,
    "garbage": with_bytes(b"garbage" * 9),
    "cut": with_bytes(b"\x93NUMPY\x01\x00"),
    "no bytes": with_bytes(b""),
    "number text": config_with(round="1"),
    "number float": config_with(round=0.5),
    "number NaN": config_with(round=float("nan")),
    "number negative": config_with(round=-1),
    "number huge": config_with(round=2**62),
    "within": config_with(within=2),
    "within text": config_with(within="yes"),
    "requests": config_with(requests="[[]"),
    "requests of another form": config_with(requests='{"a": 1}'),
    "rows of the agreement": config_with(**{"setup-num-rows": "many"}),
    "variances of the agreement": config_with(**{"setup-variance": [float("nan")] * 3}),
    "keys of the agreement": config_with(**{"setup-keys": ["0"] * 4}),
    "groups of the agreement": config_with(**{"setup-least-parties": [3, 3]}),
}
#: Those that the door refuses.
OF_TYPES = ("text", "float", "complex", "NaN", "garbage", "cut", "no bytes", "renamed", "none")
FORMED = ("FormError", "RefusedError", "AskedOtherwiseError", "FederationError")
#: So many of the changes have a meaning for the message.
AT_LEAST = {"totals": 9, "confirmation": 17, "unmasking": 17, "replay": 23}


@pytest.mark.parametrize("name", ["totals", "confirmation", "unmasking", "replay"])
def test_a_party_refuses_a_message_of_another_form(name, tmp_path):
    """One after the other; and the honest one that follows is answered."""
    seen = {}

    class Server(Relay):
        def before(self, messages):
            fourth = records.config_of(messages[0].content).get("round") == 4
            if name == "replay" and fourth and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                raise KilledError
            if name_of(messages[0]) == name and not seen:
                for change, apply in REQUESTS.items():
                    content = RecordDict(dict(messages[0].content))
                    if apply(content):
                        wrong = Message(content, dst_node_id=2, message_type="train")
                        (seen[change],) = self.grid.send_and_receive([wrong])
            return messages

    def wrapped(grid):
        return Server(lacking(grid, name))

    options = {**ADMM, "output_dir": tmp_path}
    if name == "replay":
        with pytest.raises(KilledError):
            simulate("notears-admm", ROWS, wrap_grid=Server, **options)
    found = simulate("notears-admm", ROWS, wrap_grid=wrapped, resume=True, **options)
    assert found.status == "completed"
    assert {one["party"] for one in found.failures} <= ({"party 1"} if name in MISSING else set())
    for change, reply in seen.items():
        assert reply.has_error(), change
        error = reply.error.reason.split(":")[0]
        assert error in (("RefusedError",) if change in OF_TYPES else FORMED), reply.error.reason
    assert len(seen) >= AT_LEAST[name]


def test_a_party_without_a_name_of_an_exchange_says_so():
    grid = LocalGrid(app_of(ROWS), 4)
    content = records.message_content(None, {"round": 1})
    (reply,) = grid.send_and_receive([Message(content, dst_node_id=2, message_type="train")])
    assert "names no method and no exchange" in reply.error.reason
