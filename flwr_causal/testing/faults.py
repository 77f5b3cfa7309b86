"""Faults of a party, as data: what arrives at the server in place of an honest reply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from flwr_causal.protocol import records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Disclosure, Exchange, Values

    Arrays = dict[str, NDArray[Any]]

#: Entries of the array that is too large: 20 MB of float64.
LARGE = 2_500_000


@dataclass(frozen=True, eq=False)
class Scene:
    """What a fault may use.

    Parameters
    ----------
    request : Message
        What the party was sent.
    reply : Message
        Its honest reply.
    before : Message or None
        Its honest reply in the exchange before.
    other : Message or None
        The reply of another party in this exchange.
    exchange : Exchange or None
        None in the schema exchange.
    """

    request: Message
    reply: Message
    before: Message | None
    other: Message | None
    exchange: Exchange | None = None

    def with_content(self, content: RecordDict) -> Message:
        """Return a reply of the party with another content."""
        return Message(content, reply_to=self.request)

    def with_records(self, **changed: Any) -> Message:
        """Return the reply with other records."""
        return self.with_content(RecordDict({**self.reply.content, **changed}))

    def numbers(self) -> dict[str, Any]:
        """Return the plain numbers of the reply, with its weight and the exchange's number."""
        metrics = self.reply.content.get(records.METRICS)
        return dict(metrics) if isinstance(metrics, MetricRecord) else {}

    def things(self) -> Arrays:
        """Return everything that the exchange declares, plain numbers as arrays of shape ()."""
        numbers = {name: np.asarray(value) for name, value in self.numbers().items()}
        own = {name: numbers[name] for name in numbers if name not in HEAD}
        return {**own, **records.arrays_of(self.reply.content)}

    def with_things(self, things: Arrays) -> Message:
        """Return the reply with other arrays and numbers."""
        head = {name: value for name, value in self.numbers().items() if name in HEAD}
        plain = {k: v.item() for k, v in things.items() if v.ndim == 0 and v.dtype.kind in "fiu"}
        content = RecordDict({records.METRICS: MetricRecord({**head, **plain})})
        arrays = {name: _packed(things[name]) for name in things if name not in plain}
        if arrays:
            content[records.ARRAYS] = ArrayRecord(arrays)
        return self.with_content(content)


#: What every reply holds beside the things that its exchange declares.
HEAD = (records.WEIGHT, records.NUMBER)


@dataclass(frozen=True, eq=False)
class Fault:
    """One kind of fault.

    Parameters
    ----------
    name : str
    arrives : callable
        ``scene -> list of Message``: what arrives in place of the honest reply; None where the
        fault has no meaning for the reply.
    afterwards : callable, optional
        The same, in the exchange after a faulty one. Default: the honest reply.
    lie : bool, default False
        Whether the reply may look like an honest one, so that the server cannot tell.
    schema : bool, default False
        Whether it is a fault of the reply in the schema exchange.
    once : bool, default False
        Whether the party is well when it is asked again in the same exchange.
    """

    name: str
    arrives: Callable[[Scene], Sequence[Message] | None]
    afterwards: Callable[[Scene], Sequence[Message] | None] | None = None
    lie: bool = False
    schema: bool = False
    once: bool = False


def _packed(values: NDArray[Any]) -> Array:
    if values.dtype.kind != "O":
        return Array(np.asarray(values, order="C"))
    buffer = BytesIO()
    np.save(buffer, values, allow_pickle=True)
    return Array("object", values.shape, "numpy.ndarray", buffer.getvalue())


def _changing(name: str, change: Callable[[Arrays], Arrays | None], *, lie: bool = False) -> Fault:
    """Return the fault of changed arrays and numbers."""

    def arrives(scene: Scene) -> list[Message] | None:
        things = scene.things()
        changed = change(things) if things else None
        return None if changed is None else [scene.with_things(changed)]

    return Fault(name, arrives, lie=lie)


def _each(
    name: str,
    change: Callable[[NDArray[Any]], NDArray[Any]],
    *,
    only: Callable[[NDArray[Any]], bool] = lambda values: True,
    lie: bool = False,
) -> Fault:
    """Return the fault of every array that is changed by a function, of those that it is for."""

    def changed(things: Arrays) -> Arrays | None:
        if not any(only(values) for values in things.values()):
            return None
        return {k: np.asarray(change(v)) if only(v) else v for k, v in things.items()}

    return _changing(name, changed, lie=lie)


def _declared(
    name: str,
    kind: Values,
    change: Callable[[NDArray[Any], Disclosure], NDArray[Any] | None],
    *,
    lie: bool = False,
) -> Fault:
    """Return the fault of arrays that are declared to hold such values.

    ``change`` takes a copy and the declaration, and returns None where it has no meaning.
    """

    def arrives(scene: Scene) -> list[Message] | None:
        things, changed = scene.things(), {}
        for one in () if scene.exchange is None else scene.exchange.returns:
            if one.values == kind and one.name in things and things[one.name].size:
                wrong = change(things[one.name].copy(), one)
                if wrong is not None:
                    changed[one.name] = wrong
        return [scene.with_things({**things, **changed})] if changed else None

    return Fault(name, arrives, lie=lie)


def _one_row_more(counts: NDArray[Any], item: Disclosure) -> NDArray[Any]:
    counts[(0,) * counts.ndim] += 1
    return counts


def _cycle(edges: NDArray[Any], item: Disclosure) -> NDArray[Any]:
    pairs = np.array([[0, 1], [1, 0]], dtype=edges.dtype)
    if item.below:
        return pairs
    edges[tuple(pairs)] = 1
    return edges


def _half(content: NDArray[Any], item: Disclosure) -> NDArray[Any]:
    return content[: len(content) // 2]


def _byte_changed(content: NDArray[Any], item: Disclosure) -> NDArray[Any]:
    content[(len(content) // 2, *(0,) * (content.ndim - 1))] ^= 1
    return content


def _twice(content: NDArray[Any], item: Disclosure) -> NDArray[Any] | None:
    if content.ndim == 1 or len(content) == 1:
        return None
    content[0] = content[-1]
    return content


def _one_entry(value: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def change(values: NDArray[Any]) -> NDArray[Any]:
        changed = values.astype(np.float64)
        changed[(-1,) * values.ndim] = value
        return changed

    return change


def _nonempty(values: NDArray[Any]) -> bool:
    return values.size > 0


def _whole(values: NDArray[Any]) -> bool:
    return values.size > 0 and values.dtype.kind in "iu"


def _wide(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.int64 if _whole(values) else np.float64)


def _vectors(values: NDArray[Any]) -> bool:
    return values.ndim > 0 and values.size > 0


def _random(values: NDArray[Any]) -> NDArray[Any]:
    """Return the entries of an array in another order: random numbers of the same scale."""
    shuffled = values.ravel().copy()
    np.random.default_rng(0).shuffle(shuffled)
    signs = np.random.default_rng(1).choice([-1.0, 1.0], shuffled.size)
    if values.dtype.kind == "f" and (values < 0).any():
        shuffled = shuffled * signs
    return shuffled.reshape(values.shape)


def _numbers(name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Fault:
    """Return the fault of another weight, or of another number of the exchange."""

    def arrives(scene: Scene) -> list[Message]:
        metrics = MetricRecord(change(scene.numbers()))
        return [scene.with_records(**{records.METRICS: metrics})]

    return Fault(name, arrives)


def _as_numbers(*, beside: bool) -> Callable[[Scene], list[Message] | None]:
    """Return the fault of an array that is sent as plain numbers, or with one number beside it."""

    def arrives(scene: Scene) -> list[Message] | None:
        arrays = records.arrays_of(scene.reply.content)
        if not arrays:
            return None
        name, values = next(iter(arrays.items()))
        plain = 1.0 if beside else values.astype(np.float64).ravel().tolist()
        rest = arrays if beside else {k: v for k, v in arrays.items() if k != name}
        content = RecordDict({records.METRICS: MetricRecord({**scene.numbers(), name: plain})})
        content[records.ARRAYS] = ArrayRecord({k: _packed(v) for k, v in rest.items()})
        return [scene.with_content(content)]

    return arrives


def _bytes(name: str, change: Callable[[bytes], bytes], form: str = "") -> Fault:
    """Return the fault of damaged bytes of every array, or of another form that they state."""

    def arrives(scene: Scene) -> list[Message] | None:
        record = scene.reply.content.get(records.ARRAYS)
        if not isinstance(record, ArrayRecord):
            return None
        damaged = {
            key: Array(one.dtype, one.shape, form or one.stype, change(one.data))
            for key, one in record.items()
        }
        return [scene.with_records(**{records.ARRAYS: ArrayRecord(damaged)})]

    return Fault(name, arrives)


def _error(reason: str) -> Callable[[Scene], list[Message]]:
    return lambda scene: [Message(Error(code=0, reason=reason), reply_to=scene.request)]


def _nothing(scene: Scene) -> list[Message]:
    return []


def _stale(scene: Scene) -> list[Message] | None:
    return None if scene.before is None else [scene.with_content(scene.before.content)]


def _renumbered(scene: Scene) -> list[Message] | None:
    if scene.before is None or not scene.before.has_content():
        return None
    earlier = replace(scene, reply=scene.before).things()
    return [scene.with_things(earlier)] if earlier.keys() == scene.things().keys() else None


def _of_another(scene: Scene) -> list[Message] | None:
    if scene.other is None or not scene.other.has_content():
        return None
    return [scene.with_content(scene.other.content)]


def _transposed(values: NDArray[Any]) -> bool:
    return values.ndim > 1 and len(set(values.shape)) > 1


def _schema(name: str, change: Callable[[dict[str, Any]], Any], *, lie: bool = False) -> Fault:
    """Return the fault of a changed report, by the keys of its record."""

    def arrives(scene: Scene) -> list[Message] | None:
        values: dict[str, Any] = records.config_of(scene.reply.content)
        if change(values) is False:
            return None
        return [scene.with_content(RecordDict({records.CONFIG: ConfigRecord(values)}))]

    return Fault(f"schema: {name}", arrives, lie=lie, schema=True)


def _put(**entries: Any) -> Callable[[dict[str, Any]], None]:
    return lambda values: values.update({k.replace("_", "-"): v for k, v in entries.items()})


def _put_first(key: str, value: Any) -> Callable[[dict[str, Any]], bool]:
    """Return the change of the first value of a list, where the report has it."""

    def change(values: dict[str, Any]) -> bool:
        if not values.get(key):
            return False
        values[key] = [value, *values[key][1:]]
        return True

    return change


def _times(key: str, factor: float) -> Callable[[dict[str, Any]], bool]:
    def change(values: dict[str, Any]) -> bool:
        if not values.get(key):
            return False
        values[key] = [factor * value for value in values[key]]
        return True

    return change


FAULTS: tuple[Fault, ...] = (
    Fault("raises once", _error("ValueError: raised by a fault"), once=True),
    Fault("raises", _error("ValueError: raised by a fault")),
    Fault("error without a reason", _error("")),
    Fault("no reply", _nothing),
    Fault("late", _nothing, lambda s: [*([s.before] if s.before else []), s.reply]),
    Fault("delivered twice", lambda s: [s.reply, s.reply]),
    Fault("stale", _stale),
    Fault("stale, numbered anew", _renumbered, lie=True),
    Fault("reply of another party", _of_another, lie=True),
    _each("NaN", _one_entry(np.nan), only=_nonempty),
    _each("Inf", _one_entry(np.inf), only=_nonempty),
    _each("-Inf", _one_entry(-np.inf), only=_nonempty, lie=True),
    _each("1e308", _one_entry(1e308), only=_nonempty),
    _each("1e100", _one_entry(1e100), only=_nonempty),
    _each("one entry more", lambda v: np.append(v, v[-1:], axis=0), only=_vectors, lie=True),
    _each("one entry fewer", lambda v: v[:-1], only=_vectors, lie=True),
    _each("transposed", np.transpose, only=_transposed),
    _each("one axis more", lambda v: v[None]),
    _each("no axis", lambda v: v.ravel()[0], only=_vectors),
    _each("dtype text", lambda v: v.astype(str)),
    _each("dtype object", lambda v: v.astype(object)),
    _each("dtype int", lambda v: v.astype(np.int64), only=lambda v: v.dtype.kind == "f"),
    _each("dtype complex", lambda v: v.astype(np.complex128)),
    _each("20 MB", lambda v: np.zeros(LARGE)),
    _changing("key missing", lambda t: dict(list(t.items())[1:])),
    _changing("key renamed", lambda t: {f"{k}-": v for k, v in t.items()}),
    _changing("key more", lambda t: {**t, "more": np.zeros(3)}),
    Fault("a thing as plain numbers", _as_numbers(beside=False)),
    Fault("plain numbers besides", _as_numbers(beside=True)),
    _numbers("clipping that nobody asked for", lambda n: {**n, records.NORM_BIT: 1}),
    Fault("record more", lambda s: [s.with_records(more=ConfigRecord({"a": 1}))]),
    Fault("empty reply", lambda s: [s.with_content(RecordDict())]),
    _bytes("bytes of an unknown form", lambda data: data, form="unknown"),
    _bytes("garbage bytes", lambda data: b"garbage" * 7),
    _bytes("bytes cut", lambda data: data[: max(5, len(data) - 9)]),
    _bytes("no bytes", lambda data: b""),
    _numbers("weight 0", lambda n: {**n, records.WEIGHT: 0}),
    _numbers("weight < 0", lambda n: {**n, records.WEIGHT: -n[records.WEIGHT]}),
    _numbers("weight NaN", lambda n: {**n, records.WEIGHT: np.nan}),
    _numbers("weight 1e18", lambda n: {**n, records.WEIGHT: 10**18}),
    _numbers("weight missing", lambda n: {k: v for k, v in n.items() if k != records.WEIGHT}),
    _numbers("number wrong", lambda n: {**n, records.NUMBER: n[records.NUMBER] + 1}),
    _numbers("number missing", lambda n: {k: v for k, v in n.items() if k != records.NUMBER}),
    _each("whole numbers negative", lambda v: -1 - v.astype(np.int64), only=_whole),
    _each("whole numbers halved", lambda v: v + 0.5, only=_whole),
    _each("whole numbers above n", lambda v: v.astype(np.int64) + 10**9, only=_whole),
    _declared("one row more in a count", "count", _one_row_more, lie=True),
    _declared("a cycle in a graph", "dag", _cycle),
    _declared("half of the bytes", "bytes", _half),
    _declared("a byte changed", "bytes", _byte_changed, lie=True),
    _declared("an id twice", "bytes", _twice),
    _each("x 1e6", lambda v: _wide(v) * 1_000_000, lie=True),
    _each("x -1", lambda v: -_wide(v), lie=True),
    _each("random, same scale", _random, lie=True),
    _each("all zeros", np.zeros_like, lie=True),
    Fault("schema: no reply", _nothing, schema=True),
    Fault("schema: error", _error("ValueError: raised by a fault"), schema=True),
    Fault("schema: delivered twice", lambda s: [s.reply, s.reply], schema=True),
    _schema("empty", dict.clear),
    _schema("key missing", lambda values: values.pop("names", False) and None),
    _schema("key more", _put(more=1)),
    _schema("public key of bytes", _put(**{"public-key": b""})),
    _schema("name an int", _put(party=5)),
    _schema("name empty", _put(party="")),
    _schema("rows 1e18", _put(rows=10**18)),
    _schema("rows < 0", _put(rows=-1)),
    _schema("rows text", _put(rows="many")),
    _schema("one name fewer", lambda values: values.update(names=values["names"][1:])),
    _schema("mean NaN", _put_first("means", np.nan)),
    _schema("mean Inf", _put_first("means", np.inf)),
    _schema("remainder 1e300", _put_first("remainders", 1e300)),
    _schema("more missing values than rows", _put_first("missing", 10**9)),
    _schema("squares < 0", _put_first("squares", -1.0)),
    _schema("squares NaN", _put_first("squares", np.nan)),
    _schema("squares 1e308", _put_first("squares", 1e308), lie=True),
    _schema("means x 1e6", _times("means", 1e6), lie=True),
    _schema("rows doubled", lambda values: values.update(rows=2 * values["rows"]), lie=True),
)
