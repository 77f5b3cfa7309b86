"""The only door between a party and the network, and the same checks where a reply arrives.

:func:`outgoing` is the one function through which everything passes that leaves a party: what an
exchange does not declare cannot leave. :func:`accepted` applies the same declaration at the server,
before anything is combined.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from flwr.app import MetricRecord, RecordDict

from flwr_causal.contract.exchange import WHOLE
from flwr_causal.contract.report import MOST_ROWS, unpack_states
from flwr_causal.core.discrete.small_counts import are_small
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.limits import LARGEST, MOST_ENTRIES
from flwr_causal.core.threads import single_threaded
from flwr_causal.core.words import MOST_OF_NAME, fault_of_name, printable
from flwr_causal.errors import FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.options import REPORT
from flwr_causal.protocol.schema import FACTS, REQUIRED
from flwr_causal.protocol.setup import PREFIX
from flwr_causal.secure.purposes import purpose_of
from flwr_causal.secure.ring import WordLayout

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Disclosure, Exchange, Sent, Shape
    from flwr_causal.contract.report import Part
    from flwr_causal.core.arrays import Arrays, IntArray
    from flwr_causal.protocol.options import SmallCounts
    from flwr_causal.protocol.setup import Setup
    from flwr_causal.secure.ring import Size

T = TypeVar("T")

# The rounding errors of products of scaled columns, which may have travelled as float32.
_TOLERANCE = 1e-5
_FACTS = {fact.key: fact for fact in FACTS}
# More than the rounding errors of sums of float64, relative to their largest possible value.
_ROUNDING = 1e-6
#: Stands for minus infinity among log densities, which cannot travel; exact in either precision.
LOWEST = float(np.finfo(np.float32).min)
#: The largest size of what returns that the server may state as a number.
MOST_STATED = 100_000
#: The name of the one array of a reply to a secure sum.
MASKED = "masked"


class RefusedError(FederationError):
    """A reply that the contract does not allow; the message says what was expected."""


def outgoing(
    exchange: Exchange,
    arrays: Mapping[str, NDArray[Any]],
    sizes: Mapping[str, int],
    *,
    weight: float,
    number: int,
    precision: str = "float64",
    small: SmallCounts = REPORT,
) -> RecordDict:
    """Build the content of a reply, and refuse whatever the exchange does not declare.

    Parameters
    ----------
    exchange : Exchange
    arrays : mapping of str to ndarray
        What the client returns, by name.
    sizes : mapping of str to int
        What the symbols in shapes stand for, see :func:`sizes_of`.
    weight : float
        The weight of this reply in Flower's mean (``num-examples``).
    number : int
        Of the exchange in this run.
    precision : {"float64", "float32"}, default "float64"
        How floats travel.
    small : SmallCounts, optional
        What is done with counts of few rows. Default: they leave as they are.

    Returns
    -------
    RecordDict
        One ``ArrayRecord`` (none without arrays) and one ``MetricRecord`` with the weight and the
        plain numbers, that is, arrays of shape ().

    Raises
    ------
    RefusedError
        If a name is not declared or missing, a shape is not the declared one, a value is not
        possible, or a count is of fewer rows than the party sends.
    """
    travelling = _checked(exchange, arrays, sizes, precision)
    if small.treatment != "report":
        travelling = _without_small(exchange, travelling, small, sizes.get("n", 0))
    numbers = {
        # Flower's records know no truth values.
        name: int(values) if values.dtype.kind == "b" else values.item()
        for name, values in travelling.items()
        if values.ndim == 0
    }
    rest = {name: values for name, values in travelling.items() if values.ndim}
    metrics = MetricRecord({**numbers, records.WEIGHT: float(weight), records.NUMBER: number})
    content = RecordDict({records.METRICS: metrics})
    if rest:
        content[records.ARRAYS] = records.pack_arrays(rest, precision)
    return content


def summand(
    exchange: Exchange,
    arrays: Mapping[str, NDArray[Any]],
    sizes: Mapping[str, int],
    setup: Setup,
    *,
    rows: int,
) -> tuple[NDArray[np.uint64], Size]:
    """Return a party's vector of a secure sum, before its mask; refuse what is not declared.

    Parameters
    ----------
    exchange, arrays, sizes
        As of :func:`outgoing`.
    setup : Setup
        What the parties agreed on.
    rows : int
        Of the party.

    Returns
    -------
    vector : ndarray of uint64, shape (words,)
    size : Size

    Raises
    ------
    RefusedError
        As :func:`outgoing`.
    SumError
        If it cannot be added up securely.
    """
    travelling = _checked(exchange, arrays, sizes, "float64")
    layout = WordLayout.of(exchange, sizes, setup)
    return layout.encoded(travelling, rows), layout.size


def masked(vector: NDArray[np.uint64], number: int) -> RecordDict:
    """Return the content of a reply that holds a masked vector and nothing else of the party."""
    metrics = MetricRecord({records.WEIGHT: 1.0, records.NUMBER: number})
    content = RecordDict({records.METRICS: metrics})
    content[records.ARRAYS] = records.pack_arrays({MASKED: vector})
    return content


def accepted_masked(content: RecordDict, length: int, *, number: int) -> NDArray[np.uint64]:
    """Return the masked vector of a reply that arrived.

    Raises
    ------
    RefusedError
        If the content is anything else than :func:`masked` builds.
    """
    arrays, weight, answered = _read(content, number)
    vector = arrays.pop(MASKED, None)
    if vector is None or arrays or (weight, answered) != (1, number):
        raise RefusedError("it is not the reply to a secure sum, one masked vector and its number")
    if vector.shape != (length,) or vector.dtype != np.uint64:
        raise RefusedError(
            f"its masked vector holds {vector.dtype} of the shape {vector.shape}, not {length} "
            "words of 64 bits"
        )
    return vector


def accepted(
    exchange: Exchange,
    content: RecordDict,
    sizes: Mapping[str, int],
    *,
    weight: float,
    number: int,
) -> Arrays:
    """Return the arrays of a reply that arrived, or refuse what the exchange does not declare.

    Parameters
    ----------
    exchange, sizes
        As of :func:`outgoing`; ``"n"`` is the number of rows that the party reported.
    content : RecordDict
        Of the reply.
    weight : float
        The weight that follows from the agreement.
    number : int
        Of the exchange in this run.

    Raises
    ------
    RefusedError
        As :func:`outgoing`, and if the content has other records than a reply, or another weight or
        number.
    """
    arrays, given, answered = _read(content, number)
    _check(exchange, arrays, sizes)
    _check_types(exchange, arrays)
    if answered is None:
        raise RefusedError("it does not say which exchange it answers")
    if given != weight:
        raise RefusedError(
            f"the weight of the reply is {given!r}, but the party reported {weight:g} in the "
            "schema exchange; its table may have changed since"
        )
    lowest = {item.name for item in exchange.returns if item.values == "log-density"}
    return {
        name: np.where(array <= LOWEST, -np.inf, array) if name in lowest else array
        for name, array in arrays.items()
    }


def check_clipped(sent: RecordDict, returned: Mapping[str, NDArray[Any]]) -> None:
    """Refuse a reply that is not clipped, where one of Flower's wrappers leaves that to the party.

    Parameters
    ----------
    sent : RecordDict
        The content of the message; a client-side wrapper has put its norm there.
    returned : mapping of str to ndarray
        The arrays of the reply, of the same shapes and in the same order as those that were sent.
    """
    norm: Any = records.config_of(sent).get(records.CLIPPING_NORM)
    if norm is None:
        return
    before = np.concatenate([one.ravel() for one in records.arrays_of(sent).values()])
    after = np.concatenate([one.ravel() for one in returned.values()])
    # Up to the rounding of float32.
    most = norm + 1e-6 * (norm + np.linalg.norm(after))
    if not np.linalg.norm(after - before) <= most:
        raise RefusedError(
            f"it is not within the norm {norm:g} of what was sent, to which the privacy wrapper "
            "takes it to be clipped: give the mod that clips to the whole app, and no mod that "
            "adds noise after it"
        )


def check_total(exchange: Exchange, arrays: Arrays, sizes: Mapping[str, int], parties: int) -> None:
    """Refuse sums and means over all parties that are not possible.

    In a secure sum it takes the place of :func:`accepted`'s check of each reply.

    Parameters
    ----------
    exchange, sizes
        As of :func:`outgoing`; ``"n"`` is the number of rows of all parties.
    arrays : dict of str to ndarray
    parties : int
        How many there are.

    Raises
    ------
    RefusedError
        As :func:`outgoing`.
    """
    _check(exchange, arrays, sizes, parties)


def reported(report: Mapping[str, Any], parts: Collection[Part], max_states: int) -> dict[str, Any]:
    """Return a party's report in the schema exchange, or refuse what is not declared.

    Both ends apply it: a party before its report leaves, the server when it arrives.

    Parameters
    ----------
    report : mapping of str to values
        By the keys of :data:`flwr_causal.protocol.schema.FACTS`.
    parts : collection of str
        The parts that the method's contract lets parties report.
    max_states : int
        The most states of a column that may be named.

    Raises
    ------
    RefusedError
        If a key is not declared or belongs to another part, a value is not possible, a list has
        not one value for each column, too many states are named, or a name has not the form that
        names have (:func:`flwr_causal.core.words.fault_of_name`).
    """
    for key in REQUIRED:
        if key not in report:
            raise RefusedError(f"'{key}' is missing in the report")
    for key in report:
        if key not in _FACTS:
            raise RefusedError(f"no report has the key '{key}'")
        if problem := _FACTS[key].problem(report[key]):
            raise RefusedError(problem)
    columns = len(report["names"])
    for key, value in report.items():
        fact = _FACTS[key]
        empty = fact.part is not None and not value
        if not empty and fact.part is not None and fact.part not in parts:
            raise RefusedError(
                "the method's contract does not declare that parties report "
                f"'{fact.part}', which '{key}' belongs to: Contract(reports=...)"
            )
        if not empty and fact.each == "column" and len(value) != columns:
            raise RefusedError(f"'{key}' has {len(value)} values for {columns} columns")
    _check_counts(report, max_states)
    _check_names(report)
    _check_remainders(report)
    return dict(report)


def _check_counts(report: Mapping[str, Any], max_states: int) -> None:
    """Refuse more states than may be named, and counts of more rows than there are."""
    counts = report.get("num-states", [])
    if sum(counts) != len(report.get("states", [])) or max(counts, default=0) > max_states:
        raise RefusedError(
            f"the report names more than {max_states} states of a column (max_states)"
        )
    rows = report["rows"] + report["dropped-rows"]
    if not 0 <= rows <= MOST_ROWS:
        raise RefusedError(f"the report says that the table has {report['rows']} rows")
    # Of a report that withholds its rows, "distinct" tells of named states only.
    known = () if report.get("withheld") else ("infinite", "distinct")
    for key in ("missing", "stray", *known):
        if max(report.get(key, []), default=0) > rows:
            raise RefusedError(f"'{key}' is {max(report[key])} for a column of {rows} rows")


def _check_names(report: Mapping[str, Any]) -> None:
    """Refuse names of columns and states that cannot be shown and told apart everywhere."""
    names = report["names"]
    for name in names:
        if fault := fault_of_name(name):
            raise RefusedError(
                f"the name of the column '{printable(name, MOST_OF_NAME)}' {fault}: rename it in "
                "the party's table, or withhold it by the policy's columns.never"
            )
    states = unpack_states(report.get("states", []), report.get("num-states", []))
    for name, own in zip(names, states, strict=False):
        if fault := next(filter(None, map(fault_of_name, filter(None, own))), ""):
            raise RefusedError(
                f"a value of the column '{name}', which would be a category, {fault}: correct the "
                "value in the party's table, or leave the column out by the option 'exclude'"
            )


def _check_remainders(report: Mapping[str, Any]) -> None:
    """Refuse sums of deviations that are larger than the sums of their squares allow.

    A remainder is the rounding error of the mean, times the rows.
    """
    n = report["rows"]
    sums = (report.get(key, []) for key in ("names", "means", "remainders", "squares"))
    for name, mean, remainder, squares in zip(*sums, strict=False):
        rounding = _ROUNDING * n * (1 + abs(mean))
        # The inequality of Cauchy and Schwarz; the largest sums of squares are infinite.
        if abs(remainder) > (1 + _ROUNDING) * math.sqrt(n * squares) + rounding:
            raise RefusedError(
                f"the sum of the deviations of the column '{name}' from its mean, {remainder:g}, "
                f"is larger than the sum of their squares, {squares:g}, allows"
            )


def received(content: RecordDict, dtype: str | None = None) -> Arrays:
    """Return the arrays of a message that arrived at either end.

    Parameters
    ----------
    content : RecordDict
    dtype : str, optional
        The type that all of them have. Default: any.

    Raises
    ------
    RefusedError
        If an array cannot be read, or is of another type.
    """
    arrays = _readable(records.arrays_of, content)
    for name, array in arrays.items():
        if dtype is not None and array.dtype != dtype:
            raise RefusedError(f"'{name}' holds {array.dtype}, but it is declared to hold {dtype}")
    return arrays


def question_of(exchange: Exchange, content: RecordDict) -> bytes:
    """Return a digest of what all parties of a sum are asked alike, beside the agreement.

    Parameters
    ----------
    exchange : Exchange
    content : RecordDict
        Of the server's message, with the agreement or without it.

    Raises
    ------
    RefusedError
        If an array cannot be read.
    """
    plain = records.config_of(content).items()
    own = {name: value for name, value in plain if not name.startswith(PREFIX)}
    return purpose_of("question", exchange.sent_alike({**own, **received(content)}))


def sizes_of(
    exchange: Exchange,
    sent: RecordDict | None,
    agreed: Mapping[str, int],
    setup: Setup | None = None,
) -> dict[str, int]:
    """Return the sizes of symbols in shapes: agreed ones, sent numbers, sizes of sent arrays.

    Parameters
    ----------
    exchange : Exchange
    sent : RecordDict or None
        The content of the server's message.
    agreed : mapping of str to int
        Of ``Contract.sizes``.
    setup : Setup, optional
        Of a secure sum, which needs the sizes of everything that returns.

    Raises
    ------
    RefusedError
        If the server sent something else than the exchange declares.
    """
    sizes = exchange.sizes(agreed)
    plain = {} if sent is None else records.config_of(sent)
    symbols = {symbol for item in exchange.returns for symbol in item.shape}
    for item in exchange.sends:
        number = plain.get(item.name)
        if item.shape is not None and item.name in plain:
            raise RefusedError(
                f"the server sent '{item.name}' of the exchange '{exchange.name}' as a plain "
                "value, which is declared as an array"
            )
        if item.shape is None and isinstance(number, int):
            if item.name in symbols and not 0 <= number <= MOST_STATED:
                raise RefusedError(
                    f"the server asks for arrays of the size {item.name}={number}; a party makes "
                    f"at most {MOST_STATED}"
                )
            sizes.setdefault(item.name, number)
    shapes = {} if sent is None else _readable(records.shapes_of, sent)
    declared = {item.name: item for item in exchange.sends if item.shape is not None}
    for name, shape in shapes.items():
        if name not in declared:
            raise RefusedError(
                f"the server sent '{name}', which the exchange '{exchange.name}' does not declare"
            )
        _bind(name, declared[name].shape or (), shape, sizes)
    for name, item in declared.items():
        if name not in shapes and not item.optional:
            raise RefusedError(
                f"the server did not send '{name}' of the exchange '{exchange.name}'"
            )
    if setup is not None and exchange.derived is not None and sent is not None:
        return {**exchange.derived({**plain, **received(sent)}, setup), **sizes}
    return sizes


def asked(
    exchange: Exchange,
    sent: RecordDict,
    agreed: Mapping[str, int],
    setup: Setup | None = None,
) -> dict[str, int]:
    """Check the arrays of a message before a party uses them; return :func:`sizes_of`.

    Raises
    ------
    RefusedError
        As :func:`sizes_of`; if an array has a value that the exchange does not declare, or the
        arrays of the reply would be too large.
    """
    sizes, arrays = sizes_of(exchange, sent, agreed, setup), received(sent)
    # No more than a party makes at a time, beside arrays of its rows.
    for made in exchange.returns:
        known = [sizes.get(one, 1) if isinstance(one, str) else one for one in made.shape]
        if "n" not in made.shape and math.prod(known) > MOST_ENTRIES:
            raise RefusedError(
                f"the server asks for {math.prod(known)} entries of '{made.name}' in the exchange "
                f"'{exchange.name}'; a party makes at most {MOST_ENTRIES} at a time"
            )
    for item in exchange.sends:
        if item.name in arrays:
            _check_sent(item, arrays, sizes)
    return sizes


def check_fitting(exchange: Exchange, sent: Mapping[str, Any], setup: Setup) -> None:
    """Refuse a request that is not what agreement and options determine.

    Raises
    ------
    RefusedError
        Saying what is not.
    """
    if exchange.unfitting is not None and (why := exchange.unfitting(sent, setup)):
        raise RefusedError(f"the server's request of the exchange '{exchange.name}' {why}")


def _check_sent(item: Sent, arrays: Arrays, sizes: Mapping[str, int]) -> None:
    """Refuse an array of the server's that a party must not compute with."""
    array, whole = arrays[item.name], item.values in WHOLE
    # Arrays are indexed by whole numbers, which travel as such.
    if array.dtype.kind not in ("iub" if whole else "fiub"):
        raise RefusedError(
            f"'{item.name}' holds {array.dtype}, but it is declared as {item.values}"
        )
    if whole:
        _check_values(item, array, sizes, 1)
    elif not np.isfinite(array).all():
        raise RefusedError(f"'{item.name}' has values that are not finite")
    if item.values == "dag":
        for one in _parts_of(item, arrays) if item.parts else [array]:
            _check_dag(item, one, sizes)
    elif item.parts:
        owners = np.repeat(np.arange(len(arrays[item.parts])), _lengths_of(item, arrays))
        steps = np.diff(array.astype(np.int64) if whole else array)
        if ((steps <= 0) & (np.diff(owners) == 0)).any():
            raise RefusedError(f"a list of '{item.name}' is not in ascending order")


def _parts_of(item: Sent, arrays: Arrays) -> list[NDArray[Any]]:
    """Return the lists that an array of the server's holds."""
    lengths = _lengths_of(item, arrays)
    return np.split(arrays[item.name], np.cumsum(lengths)[:-1]) if len(lengths) else []


def _lengths_of(item: Sent, arrays: Arrays) -> IntArray:
    """Return the lengths of the lists that an array of the server's holds, which add to its own."""
    array, lengths = arrays[item.name], arrays[item.parts]
    # Whole numbers of Python's do not overflow.
    if sum(lengths.tolist()) != len(array) or (lengths < 0).any():
        raise RefusedError(f"'{item.name}' has {len(array)} entries, not those of '{item.parts}'")
    return np.asarray(lengths, dtype=np.int64)


def _checked(
    exchange: Exchange,
    arrays: Mapping[str, NDArray[Any]],
    sizes: Mapping[str, int],
    precision: str,
) -> Arrays:
    """Return a reply in the form in which it travels; raise a RefusedError for undeclared parts."""
    declared = {item.name: item.values for item in exchange.returns}
    travelling = {}
    for name, array in arrays.items():
        # What is declared as whole numbers is sent as it is, all else as floats.
        values, kind = np.asarray(array), declared.get(name)
        if kind == "log-density":
            values = np.maximum(values, LOWEST)
        if values.dtype.kind == "f" or (values.dtype.kind in "iub" and kind not in WHOLE):
            with np.errstate(over="ignore"):
                values = values.astype(precision, copy=False)
        travelling[name] = values
    try:
        _check(exchange, travelling, sizes)
        _check_types(exchange, travelling)
    except RefusedError as error:
        raise RefusedError(f"The reply was not sent: {error}") from None
    return travelling


def _without_small(exchange: Exchange, arrays: Arrays, small: SmallCounts, rows: int) -> Arrays:
    """Return a reply without counts of few rows; raise a RefusedError if they are refused."""
    result = dict(arrays)
    for item in exchange.returns:
        if item.values != "count" or item.name not in arrays:
            continue
        counts = arrays[item.name]
        if small.withheld:
            few = are_small(counts, small.minimum) * counts
            # The same in each exchange, so that no two exchanges can be subtracted.
            rest = counts % small.minimum if item.cumulative else few
            result[item.name] = (counts - rest).astype(counts.dtype)
            continue
        cells = counts
        if item.cumulative:  # the rows between two thresholds
            ordered = np.sort(counts.astype(np.int64), axis=-1)
            cells = np.diff(ordered, axis=-1, prepend=0, append=rows)
        if are_small(cells, small.minimum).any():
            raise RefusedError(
                f"The reply was not sent: '{item.name}' of the exchange '{exchange.name}' has "
                f"{small.refusal}"
            )
    return result


def _read(content: RecordDict, number: int) -> tuple[Arrays, object, object]:
    """Return the arrays and numbers of a reply, its weight, and the exchange that it answers."""
    unknown = [name for name in content if name not in (records.ARRAYS, records.METRICS)]
    if unknown:
        raise RefusedError(f"the reply holds the record {unknown[0]!r}, which no exchange has")
    metrics = content.get(records.METRICS)
    numbers = dict(metrics.items()) if isinstance(metrics, MetricRecord) else {}
    given, answered = numbers.pop(records.WEIGHT, None), numbers.pop(records.NUMBER, None)
    if answered not in (None, number):
        raise RefusedError(f"it answers exchange {answered!r} instead of exchange {number}")
    if numbers.pop(records.NORM_BIT, 0) not in (0, 1):
        raise RefusedError(
            f"its '{records.NORM_BIT}', of Flower's adaptive clipping, is not 0 or 1"
        )
    arrays = received(content)
    for name, value in numbers.items():
        # Flower averages arrays and numbers each by themselves, of all parties alike.
        if isinstance(value, list):
            raise RefusedError(f"'{name}' is a list among the plain numbers, and not an array")
        if name in arrays:
            raise RefusedError(f"'{name}' is there twice, as an array and as a plain number")
    return {**{name: np.array(value) for name, value in numbers.items()}, **arrays}, given, answered


def _readable(read: Callable[[RecordDict], T], content: RecordDict) -> T:
    """Return what is read from arrays of a message; a RefusedError if that is not possible."""
    try:
        return read(content)
    except (ValueError, TypeError, SyntaxError, MemoryError, EOFError) as error:
        raise RefusedError(f"an array cannot be read: {error}") from None


def _check(
    exchange: Exchange,
    arrays: Mapping[str, NDArray[Any]],
    sizes: Mapping[str, int],
    parties: int = 1,
) -> None:
    """Check the arrays of a reply, or the sums and means over so many parties."""
    declared = {item.name: item for item in exchange.returns}
    for name in arrays:
        if name not in declared:
            raise RefusedError(
                f"'{name}' may not leave a party in the exchange '{exchange.name}', which declares "
                f"only {sorted(declared) or 'nothing'}. Declare it as a Disclosure."
            )
    bound = dict(sizes)
    for name, item in declared.items():
        if name in arrays:
            _bind(name, item.shape, np.shape(arrays[name]), bound)
            _check_values(item, arrays[name], bound, parties if item.combine == "sum" else 1)
            if item.values == "dag":
                _check_dag(item, arrays[name], bound)
        elif not item.optional:
            raise RefusedError(f"'{name}' of the exchange '{exchange.name}' is missing")


def _bind(name: str, declared: Shape, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Check a shape against the known sizes, and note the sizes of its other symbols."""
    matches = len(declared) == len(shape)
    for symbol, size in zip(declared, shape, strict=False):
        if symbol == "*":
            continue
        wanted = sizes.setdefault(symbol, size) if isinstance(symbol, str) else symbol
        matches = matches and wanted == size
    if not matches:
        known = tuple(sizes.get(s, s) if isinstance(s, str) else s for s in declared)
        raise RefusedError(
            f"'{name}' has the shape {tuple(shape)}, but it is declared with {declared}, "
            f"here {known}"
        )


def _check_values(
    item: Disclosure | Sent, array: NDArray[Any], sizes: Mapping[str, int], parties: int
) -> None:
    numbers, words = (
        ("fiub", "numbers") if item.values in WHOLE else ("f", "floating-point numbers")
    )
    if array.dtype.kind not in numbers:
        raise RefusedError(f"'{item.name}' holds {array.dtype}, but it is declared to hold {words}")
    if array.size == 0:
        return
    least, most = array.min(), array.max()  # NaN, if there is one
    largest = max(float(most), -float(least))
    if not (np.isfinite(least) and np.isfinite(most)):
        raise RefusedError(
            f"'{item.name}' has values that are not finite. The data may be scaled so badly that "
            "sums overflow: standardize them."
        )
    if largest > LARGEST:
        raise RefusedError(
            f"'{item.name}' has values of up to {largest:g}, which are too large to be "
            f"computed with (at most {LARGEST:g}): check the units of the party's columns"
        )
    if item.values in ("finite", "log-density"):
        return
    if item.values in ("products", "second-moments"):
        _check_products(item, array)
        return
    if least < 0 and item.values not in ("whole", "ring"):
        raise RefusedError(
            f"'{item.name}' has negative values, but it is declared as {item.values}"
        )
    limits: dict[str, float] = {"probability": 1, "mark": 1, "dag": 1, "bytes": 255}
    limits = {values: parties * limit for values, limit in limits.items()}
    if item.values == "count" and "n" in sizes:
        limits["count"] = sizes["n"]
    if item.below:
        # In a run that does not have such values nothing is below their bound.
        limits[item.values] = sizes.get(item.below, 0) - 1
    if most > limits.get(item.values, np.inf):
        raise RefusedError(
            f"'{item.name}' is {most:g}, but it is declared as {item.values}, at most "
            f"{limits[item.values]}"
        )
    if item.values in WHOLE and array.dtype.kind == "f" and (array != np.floor(array)).any():
        raise RefusedError(
            f"'{item.name}' is declared as {item.values}, but not all of it is whole"
        )


def _check_types(exchange: Exchange, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays of another type than the declared one."""
    for item in exchange.returns:
        if item.dtype and item.name in arrays and arrays[item.name].dtype != item.dtype:
            raise RefusedError(
                f"'{item.name}' holds {arrays[item.name].dtype}, but it is declared to hold "
                f"{item.dtype}"
            )


def _check_dag(item: Disclosure | Sent, array: NDArray[Any], sizes: Mapping[str, int]) -> None:
    """Refuse edges that close a cycle, of one graph or of each of several."""
    graphs = array
    if item.below:
        graphs = np.zeros((sizes[item.below],) * 2, dtype=np.bool_)
        causes, effects = array.astype(np.int64).T
        graphs[causes, effects] = True
    if not all(map(is_acyclic, graphs.reshape(-1, *graphs.shape[-2:]))):
        raise RefusedError(f"'{item.name}' are the edges of a graph with a cycle")


def _check_products(item: Disclosure | Sent, array: NDArray[Any]) -> None:
    """Refuse matrices that cannot be mean products of columns."""
    array = array.astype(np.float64, copy=False)
    diagonal = np.diagonal(array, axis1=-2, axis2=-1)
    if (diagonal < 0).any():
        raise RefusedError(f"'{item.name}' has negative mean squares on its diagonal")
    size = np.sqrt(diagonal)
    # Columns of no size are compared as they are: their products must be 0.
    size = np.where(size > 0, size, 1.0)
    scaled = array / size[..., :, None] / size[..., None, :]
    limit = np.where(diagonal > 0, 1.0, 0.0) + _TOLERANCE
    if (np.abs(scaled - np.swapaxes(scaled, -1, -2)) > _TOLERANCE).any():
        raise RefusedError(f"'{item.name}' is not symmetric, as products of columns are")
    if (np.abs(scaled) > np.minimum(limit[..., :, None], limit[..., None, :])).any():
        raise RefusedError(
            f"'{item.name}' has products of two columns that are larger than their mean squares "
            "allow"
        )
    if item.values == "second-moments":
        room = _TOLERANCE * scaled.shape[-1] * np.eye(scaled.shape[-1])
        try:
            with single_threaded():
                np.linalg.cholesky(scaled + room)
        except np.linalg.LinAlgError:
            raise RefusedError(f"'{item.name}' is not positive semi-definite") from None
