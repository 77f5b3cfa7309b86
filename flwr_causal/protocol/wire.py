"""The only door between a party and the network.

Core code speaks of named numpy arrays and plain numbers; Flower speaks of records. This module
turns one into the other, and :func:`outgoing` is the one function through which everything passes
that leaves a party: what a method has not declared as a :class:`Disclosure` cannot leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import ArrayLike, NDArray

from flwr_causal.errors import ConfigError, FederationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Arrays: TypeAlias = dict[str, NDArray[Any]]
Number: TypeAlias = int | float | list[int] | list[float]
Scalar: TypeAlias = bool | int | float | str | bytes
Value: TypeAlias = Scalar | list[int] | list[float] | list[str] | list[bytes] | list[bool]

ARRAYS = "arrays"
CONFIG = "config"
METRICS = "metrics"
WEIGHT = "num-examples"
PRECISIONS = ("float64", "float32")
#: Stands for minus infinity among log densities.
LOWEST = -1e300


@dataclass(frozen=True)
class Disclosure:
    """One thing that a method lets leave a party.

    Parameters
    ----------
    name : str
        Name of the array, or of the number.
    meaning : str
        What it is, in the words of the paper; printed in the documentation.
    shape : tuple of str or int, default ()
        Symbolic shape. ``"d"`` is the number of agreed columns, other symbols are given by the
        client for each reply, ``"*"`` is any length, ``()`` is a plain number. ``"n"``, the
        number of rows, is refused: nothing that has a row for a row may leave a party.
    phase : str, default "train"
        The phase of the method in which it leaves; in any other phase it may not.
    """

    name: str
    meaning: str
    shape: tuple[str | int, ...] = ()
    phase: str = "train"

    def __post_init__(self) -> None:
        if "n" in self.shape:
            raise ConfigError(
                f"Disclosure '{self.name}' has the number of rows in its shape {self.shape}: raw "
                "rows never leave a party. Send sums over rows instead."
            )


def outgoing(
    disclosures: Sequence[Disclosure],
    arrays: Mapping[str, NDArray[Any]],
    numbers: Mapping[str, Number],
    *,
    weight: float,
    dimensions: Mapping[str, int],
    precision: str = "float64",
) -> RecordDict:
    """Build the content of a reply, and refuse whatever the method has not declared.

    Parameters
    ----------
    disclosures : sequence of Disclosure
        What the method lets leave a party.
    arrays : mapping of str to ndarray
        Named arrays of the reply.
    numbers : mapping of str to int, float or a list of them
        Named numbers of the reply.
    weight : float
        The weight of this reply in Flower's mean (``num-examples``).
    dimensions : mapping of str to int
        What the symbols in the declared shapes stand for.
    precision : {"float64", "float32"}, default "float64"
        How floating-point arrays travel.

    Returns
    -------
    RecordDict
        One ``ArrayRecord`` (none without arrays) and one ``MetricRecord``.

    Raises
    ------
    FederationError
        If a name is not declared, a shape is not the declared one, or a value is not finite.
    """
    declared = {item.name: item for item in disclosures}
    for name, value in (*arrays.items(), *numbers.items()):
        if name not in declared:
            raise FederationError(
                f"'{name}' may not leave a party: the method declares only "
                f"{sorted(declared) or 'nothing'}. Declare it as a Disclosure of the client."
            )
        _check_shape(declared[name], np.shape(value), dimensions)
    for name, value in numbers.items():
        _check_finite(name, value)
    metrics = MetricRecord({name: _plain(value) for name, value in numbers.items()})
    metrics[WEIGHT] = float(weight)
    content = RecordDict({METRICS: metrics})
    if arrays:
        content[ARRAYS] = pack_arrays(arrays, precision)
    return content


def _check_shape(item: Disclosure, shape: tuple[int, ...], dimensions: Mapping[str, int]) -> None:
    wanted = tuple(
        dimensions.get(size, size) if isinstance(size, str) else size for size in item.shape
    )
    matches = len(wanted) == len(shape) and all(
        want in ("*", got) for want, got in zip(wanted, shape, strict=True)
    )
    if not matches:
        raise FederationError(
            f"'{item.name}' of shape {shape} may not leave a party: it is declared with the shape "
            f"{item.shape}, here {wanted}."
        )


def _check_finite(name: str, values: ArrayLike) -> None:
    if not np.isfinite(values).all():
        raise FederationError(
            f"'{name}' has values that are not finite and was not sent. The data may be scaled so "
            "badly that sums overflow: standardize them."
        )


def _plain(value: Number) -> Number:
    """Return the number as the Python types that a ``MetricRecord`` takes."""
    if isinstance(value, list):
        return [entry.item() if isinstance(entry, np.generic) else entry for entry in value]
    plain: int | float = value.item() if isinstance(value, np.generic) else value
    return int(plain) if isinstance(plain, bool) else plain


def pack_arrays(arrays: Mapping[str, NDArray[Any]], precision: str = "float64") -> ArrayRecord:
    """Turn named arrays into an ``ArrayRecord``; floats travel in ``precision``.

    Raises
    ------
    FederationError
        If an array holds NaN or infinite values: one of them would spoil the mean of all parties.
    """
    record = {}
    for name, array in arrays.items():
        values = np.asarray(array)
        if values.dtype.kind == "f":
            with np.errstate(over="ignore"):
                values = values.astype(precision)
            _check_finite(name, values)
        record[name] = Array(np.ascontiguousarray(values))
    return ArrayRecord(record)


def unpack_arrays(record: ArrayRecord) -> Arrays:
    """Turn an ``ArrayRecord`` into named arrays; floats come back as float64."""
    arrays: Arrays = {}
    for name, array in record.items():
        values = array.numpy()
        arrays[name] = values.astype(np.float64) if values.dtype.kind == "f" else values
    return arrays


def bounded(log_densities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log densities as they travel: minus infinity is no finite number."""
    return np.maximum(log_densities, LOWEST)


def unbounded(log_densities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Undo :func:`bounded`."""
    return np.where(log_densities <= LOWEST, -np.inf, log_densities)


def arrays_of(content: RecordDict) -> Arrays:
    """Return the arrays of a message's content, an empty dict where it has none."""
    record = content.get(ARRAYS)
    return unpack_arrays(record) if isinstance(record, ArrayRecord) else {}


def numbers_of(content: RecordDict) -> dict[str, Number]:
    """Return the numbers of a reply without its weight."""
    record: MetricRecord = content.metric_records[METRICS]
    return {name: value for name, value in record.items() if name != WEIGHT}


def config_of(content: RecordDict) -> dict[str, Value]:
    """Return the configuration that a message carries as a plain dict."""
    # content.config_records would copy all records of that type, on every access.
    record = content.get(CONFIG)
    return dict(record) if isinstance(record, ConfigRecord) else {}


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
    return sum(len(name) + _value_bytes(value) for name, value in values.items())


def _value_bytes(value: object) -> int:
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, list):
        return sum(_value_bytes(entry) for entry in value)
    return 8


def reply_bytes(message: Message) -> int:
    """Return the size of a reply, zero for one that carries an error."""
    return num_bytes(message.content) if message.has_content() else 0


def instruction(arrays: ArrayRecord | None, config: Mapping[str, Value]) -> RecordDict:
    """Build the content of a message to a party.

    Parameters
    ----------
    arrays : ArrayRecord or None
        What the server broadcasts.
    config : mapping
        Plain values; one ``ConfigRecord``, because Flower's client mods expect exactly one.
    """
    content = RecordDict({CONFIG: ConfigRecord(dict(config))})
    if arrays is not None:
        content[ARRAYS] = arrays
    return content
