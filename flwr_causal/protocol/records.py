"""Flower's records: named arrays and plain values in and out of messages, and their sizes."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from flwr_causal.core.received import array_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays

Number: TypeAlias = int | float | list[int] | list[float]
Scalar: TypeAlias = bool | int | float | str | bytes
Value: TypeAlias = Scalar | list[int] | list[float] | list[str] | list[bytes] | list[bool]

ARRAYS = "arrays"
CONFIG = "config"
METRICS = "metrics"
WEIGHT = "num-examples"
#: The number of the exchange that a message belongs to, in requests and in replies.
NUMBER = "round"
#: What Flower's clipping wrappers send with a message, and what the adaptive mod returns: whether
#: the reply was within the norm.
CLIPPING_NORM, NORM_BIT = "clipping_norm", "norm_bit"
# How Flower names the form of an array's bytes.
_FORM = Array(np.zeros(0)).stype


def pack_arrays(
    arrays: Mapping[str, NDArray[Any]], precision: str = "float64", exact: Collection[str] = ()
) -> ArrayRecord:
    """Turn named arrays into an ``ArrayRecord``; floats travel in ``precision``.

    Parameters
    ----------
    arrays : mapping of str to ndarray
    precision : {"float64", "float32"}, default "float64"
    exact : collection of str, optional
        Names of arrays whose floats are sent as float64 whatever the precision.
    """
    record = {}
    for name, array in arrays.items():
        values = np.asarray(array)
        if values.dtype.kind == "f":
            with np.errstate(over="ignore"):
                values = values.astype("float64" if name in exact else precision)
        record[name] = Array(np.asarray(values, order="C"))
    return ArrayRecord(record)


def unpack_arrays(record: ArrayRecord) -> Arrays:
    """Turn an ``ArrayRecord`` into named arrays; floats come back as float64.

    Raises
    ------
    ValueError
        If the bytes are not those of an array, or of one of another shape than the record states,
        or it states another form than numpy's, which Flower does not average.
    """
    arrays: Arrays = {}
    for name, array in record.items():
        if array.stype != _FORM:
            raise ValueError(f"'{name}' is stated in the form {array.stype!r:.40}, not {_FORM!r}")
        values = array_of(array.data)
        # Shapes are compared with their declarations by what the record states.
        if values.shape != tuple(array.shape):
            raise ValueError(f"'{name}' is stated as {tuple(array.shape)}, but is {values.shape}")
        # Compiled code takes no other byte order than this machine's.
        kind = np.float64 if values.dtype.kind == "f" else values.dtype.newbyteorder("=")
        # Without a copy where that is possible: the arrays are views of the message, not writeable.
        arrays[name] = values.astype(kind, copy=False)
    return arrays


def npz(arrays: Mapping[str, Any]) -> bytes:
    """Return named arrays as the bytes of an NPZ file."""
    stream = BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def arrays_of(content: RecordDict) -> Arrays:
    """Return the arrays of a message's content, an empty dict where it has none."""
    record = content.get(ARRAYS)
    return unpack_arrays(record) if isinstance(record, ArrayRecord) else {}


def shapes_of(content: RecordDict) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays of a message's content, as their buffers have them.

    Raises
    ------
    ValueError
        If the bytes are not those of an array.
    """
    record = content.get(ARRAYS)
    arrays = record.items() if isinstance(record, ArrayRecord) else ()
    return {name: array_of(array.data).shape for name, array in arrays}


def config_of(content: RecordDict) -> dict[str, Value]:
    """Return the configuration that a message carries as a plain dict."""
    # content.config_records would copy all records of that type, on every access.
    record = content.get(CONFIG)
    # Its items() are those of a dict; dict(record) would look up every key.
    return dict(record.items()) if isinstance(record, ConfigRecord) else {}


def has_norm_bit(content: RecordDict) -> bool:
    """Return whether a reply says, as Flower's adaptive clipping does, if it was in the norm."""
    metrics = content.get(METRICS)
    return isinstance(metrics, MetricRecord) and NORM_BIT in metrics


def behind(prefix: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values whose names begin with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): value
        for name, value in config.items()
        if name.startswith(prefix)
    }


def num_bytes(content: RecordDict) -> int:
    """Return the size of a message's content: array buffers, and names and values of the rest."""
    size = 0
    for record in content.values():
        if isinstance(record, ArrayRecord):
            size += sum(len(name) + len(array.data) for name, array in record.items())
        elif isinstance(record, ConfigRecord | MetricRecord):
            size += values_bytes(record)
    return size


def values_bytes(values: Mapping[str, object]) -> int:
    """Return the size of plain values and their names, a number counted as eight bytes."""
    size = 0
    for name, value in values.items():
        # All entries of a list are of one type.
        entries = value if isinstance(value, list) else [value]
        texts = bool(entries) and isinstance(entries[0], (str, bytes))
        size += len(name) + (sum(map(len, entries)) if texts else 8 * len(entries))
    return size


def reply_bytes(message: Message) -> int:
    """Return the size of a reply, zero for one that carries an error."""
    return num_bytes(message.content) if message.has_content() else 0


def message_content(arrays: ArrayRecord | None, config: Mapping[str, Value]) -> RecordDict:
    """Build the content of a message to a party.

    Parameters
    ----------
    arrays : ArrayRecord or None
    config : mapping
        Plain values; one ``ConfigRecord``, because Flower's client mods expect exactly one.
    """
    content = RecordDict({CONFIG: ConfigRecord(dict(config))})
    if arrays is not None:
        content[ARRAYS] = arrays
    return content


def split(values: Mapping[str, Any]) -> tuple[Arrays, dict[str, Value]]:
    """Return the arrays among what is sent, and the plain values."""
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return arrays, {name: value for name, value in values.items() if name not in arrays}


def request(
    exchange: str,
    method: str,
    number: int,
    values: Mapping[str, Any],
    *,
    precision: str = "float64",
    exact: Collection[str] = (),
    config: Mapping[str, Value] | None = None,
) -> RecordDict:
    """Build the content of a request to a party.

    Parameters
    ----------
    exchange, method : str
        Names.
    number : int
        Of the exchange in this run, from 1 on.
    values : mapping of str to ndarray, number or text
        What the party is sent.
    precision, exact
        As of :func:`pack_arrays`.
    config : mapping, optional
        Further plain values.
    """
    arrays, plain = split(values)
    head: dict[str, Value] = {"exchange": exchange, "method": method, NUMBER: number}
    return message_content(
        pack_arrays(arrays, precision, exact), {**(config or {}), **head, **plain}
    )
