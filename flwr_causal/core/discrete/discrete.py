"""Tables of categories, coded as small integers.

Every state has a text as its name, whatever its type in the data: ``1`` and ``1.0`` have the name
``"1"``, ``True`` has ``"True"``. Parties and files therefore agree on the names of states. Models
have the values themselves as *labels* of the states (`labels_of`, `label_names`), and return these;
they accept values and names.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.discrete.cut_points import apply_cuts
from flwr_causal.core.graphs.graph import distinct_names
from flwr_causal.core.words import is_utf8, one_form, with_forms
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

    #: Ascending cut points by column.
    Cuts = Mapping[str, FloatArray]

Codes = NDArray[np.uint8]

#: What the values of a column may be, with how a value is read from the name of its state.
VALUES: dict[str, Callable[[str], Any]] = {
    "bool": "True".__eq__,
    "int": int,
    "float": float,
    "str": str,
}

#: Largest number of states of a variable: codes are stored in one byte.
MAX_STATES = 256


@dataclass(frozen=True, eq=False)
class DiscreteTable:
    """Rows of d variables, each in one of finitely many states.

    Parameters
    ----------
    names : tuple of str
        The d variables, in the order of the data's columns.
    states : tuple of tuple of str
        The states of each variable; code k stands for state k.
    codes : ndarray of uint8, shape (d, n)
        ``codes[j, i]`` is the index of the value of row i among the states of variable j. The first
        axis is that of the variables, because counting reads one variable at a time.
    weights : ndarray of int64, shape (n,), optional
        How many equal rows of the data each row represents. Default: 1 each.

    Raises
    ------
    DataError
        If names repeat, shapes do not fit, a variable has too many or repeated states, a code has
        no state, or a weight is negative.
    """

    names: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    codes: Codes
    weights: IntArray | None = None

    def __post_init__(self) -> None:
        names = distinct_names(self.names)
        given = np.asarray(self.codes)
        codes = np.ascontiguousarray(given, dtype=np.uint8)
        if not np.array_equal(codes, given):
            raise DataError(f"codes must be whole numbers from 0 to {MAX_STATES - 1}")
        if codes.ndim != 2 or codes.shape[0] != len(names) or len(self.states) != len(names):
            raise DataError(
                f"there are {len(names)} names, {len(self.states)} lists of states, and codes of "
                f"shape {codes.shape}: expected one list and one row of codes for each name"
            )
        for name, states, row in zip(names, self.states, codes, strict=True):
            if len(set(states)) < len(states) or len(states) > MAX_STATES:
                raise DataError(
                    f"column {name!r} has {len(states)} states: expected at most {MAX_STATES}, "
                    "all different"
                )
            if row.size and row.max() >= len(states):
                raise DataError(
                    f"column {name!r} has the code {row.max()}, but only {len(states)} states"
                )
        if self.weights is not None:
            weights = np.asarray(self.weights, dtype=np.int64)
            if weights.shape != codes.shape[1:] or (weights < 0).any():
                raise DataError("weights must be one non-negative whole number for each row")
            object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "codes", codes)
        object.__setattr__(self, "states", tuple(map(label_names, self.states)))

    @property
    def num_rows(self) -> int:
        """Number of rows of the data: the sum of the weights."""
        return int(self.codes.shape[1] if self.weights is None else self.weights.sum())

    @property
    def cardinalities(self) -> IntArray:
        """Number of states of each variable, shape (d,)."""
        return np.array([len(states) for states in self.states], dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Memory of codes and weights in bytes."""
        return self.codes.nbytes + (0 if self.weights is None else self.weights.nbytes)

    def compressed(self) -> DiscreteTable:
        """Return the table with equal rows merged, or itself if less than half would be saved."""
        n = self.codes.shape[1]
        # Equal rows have equal sums, and sums are compared faster than rows.
        sums, factor = np.zeros(n, dtype=np.uint64), 1
        for row in self.codes:
            factor = factor * 0x9E3779B97F4A7C15 % 2**64
            sums += row * np.uint64(factor)
        sums.sort()
        if n > 0 and 2 * (1 + np.count_nonzero(np.diff(sums))) > n:
            return self
        distinct, inverse = np.unique(self.codes, axis=1, return_inverse=True)
        if 2 * distinct.shape[1] > n:
            return self
        weights = np.bincount(
            inverse.ravel(), weights=self.weights, minlength=distinct.shape[1]
        ).astype(np.int64)
        return replace(self, codes=distinct, weights=weights)

    def reordered(self, order: Sequence[int] | IntArray) -> DiscreteTable:
        """Return the table of the variables with these indices, in this order."""
        return DiscreteTable(
            tuple(self.names[k] for k in order),
            tuple(self.states[k] for k in order),
            self.codes[np.asarray(order, dtype=np.int64)],
            self.weights,
        )


def as_discrete(
    table: Any,
    names: Sequence[str] | None = None,
    states: Sequence[Sequence[Any]] | None = None,
    cuts: Cuts | None = None,
) -> DiscreteTable:
    """Return the coded table of categorical data.

    Parameters
    ----------
    table : DiscreteTable, array of shape (n, d), or object with ``.columns``
        Texts, whole numbers or booleans. The variables of an array are named ``x0, x1, ...``.
    names : sequence of str, optional
        The columns to take, in this order. Default: all.
    states : sequence of sequence of str, optional
        The names or the labels of the states of each of ``names``. Default: the states that occur,
        sorted by :func:`sorted_states`.
    cuts : mapping of str to ndarray, optional
        Cut points of columns whose states are intervals: numbers are put into theirs, those out of
        range into the outer ones. Names of intervals are states, too.

    Raises
    ------
    DataError
        If a column or a value is missing, a value is not among ``states``, or a column has too many
        states.
    """
    if isinstance(table, DiscreteTable):
        return _part(table, names, states)
    available, columns = named_columns(table)
    chosen = available if names is None else tuple(names)
    _check_columns(chosen, available)
    encoded, found = [], []
    for position, name in enumerate(chosen):
        given = None if states is None else label_names(states[position])
        ends = (cuts or {}).get(name)
        codes, known = _encoded(name, columns[available.index(name)], given, ends)
        encoded.append(codes)
        found.append(known)
    stacked = np.stack(encoded) if encoded else np.zeros((0, 0), dtype=np.uint8)
    return DiscreteTable(chosen, tuple(found), stacked)


def known_codes(
    frame: Any,
    names: tuple[str, ...],
    states: tuple[tuple[str, ...], ...],
    cuts: Cuts | None = None,
    *,
    but: int,
) -> tuple[NDArray[np.uint8], BoolArray]:
    """Return the codes of a table's values where they are known, and where they are.

    Parameters
    ----------
    frame : DataFrame, or array of shape (n, d)
        Columns may be missing, and values.
    names, states, cuts
        The d variables, as in :func:`codes_of`.
    but : int
        A variable that is not read.

    Returns
    -------
    codes, seen : ndarray of shape (d, n)
        0 where a value is not known; whether it is.

    Raises
    ------
    DataError
        If a value is not one of its variable's states, or an array has another shape.
    """
    import pandas as pd

    frame = _as_frame(frame, names)
    codes = np.zeros((len(names), len(frame)), dtype=np.uint8)
    seen = np.zeros(codes.shape, dtype=bool)
    present = [str(column) for column in frame.columns]
    for j, name in enumerate(names):
        if j != but and name in present:
            column = frame.iloc[:, present.index(name)]
            seen[j] = column.notna().to_numpy()
            part = pd.DataFrame({name: column[seen[j]]})
            codes[j, seen[j]] = as_discrete(part, [name], [states[j]], cuts).codes[0]
    return codes, seen


def seen_patterns(seen: BoolArray) -> Iterator[tuple[BoolArray, IntArray]]:
    """Yield which variables are seen, (d,), with the rows in which they are, of ``seen`` (d, n)."""
    for pattern in np.unique(seen, axis=1).T:
        yield pattern, np.flatnonzero((seen == pattern[:, None]).all(axis=0))


def codes_of(
    frame: Any,
    names: tuple[str, ...],
    states: tuple[tuple[str, ...], ...],
    cuts: Cuts | None = None,
) -> NDArray[np.uint8]:
    """Return the codes of a table's values among given states.

    Parameters
    ----------
    frame : DataFrame, array of shape (n, d), or DiscreteTable
        Columns are matched by name and may be in any order; other columns are ignored. The columns
        of an array are in the order of ``names``.
    names : tuple of str
        The d variables.
    states : tuple of tuple of str
        The names of the states of each variable.
    cuts : mapping of str to ndarray, optional
        Cut points of variables whose states are intervals, see :func:`as_discrete`.

    Returns
    -------
    ndarray of uint8, shape (d, n)
        The index of each value among the states of its variable.

    Raises
    ------
    DataError
        If a variable is missing, or a value is not one of its states.
    """
    if isinstance(frame, DiscreteTable):
        return _recoded(frame, names, states)
    return as_discrete(_as_frame(frame, names), names, states, cuts).codes


def _recoded(
    table: DiscreteTable, names: tuple[str, ...], states: tuple[tuple[str, ...], ...]
) -> NDArray[np.uint8]:
    """Return the codes of a table whose variables and states may be in another order."""
    missing = [name for name in names if name not in table.names]
    if missing:
        raise DataError(f"the table has no column {missing[0]!r}")
    result = np.empty((len(names), table.codes.shape[1]), dtype=np.uint8)
    for j, (name, known) in enumerate(zip(names, states, strict=True)):
        position = {state: code for code, state in enumerate(known)}
        column = table.names.index(name)
        lookup = np.array([position.get(state, -1) for state in table.states[column]], dtype=int)
        codes = lookup[table.codes[column]]
        if (codes < 0).any():
            raise DataError(
                f"column {name!r} has a value that is not among its {len(known)} states: correct "
                "the value, or drop the row"
            )
        result[j] = codes
    return result


def _as_frame(table: Any, names: tuple[str, ...]) -> Any:
    """Return a table as it is, an array as a data frame with these columns."""
    import pandas as pd

    if hasattr(table, "columns"):
        return with_forms(table)
    array = np.asarray(table)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise DataError(f"expected an array of {len(names)} columns, got shape {array.shape}")
    return pd.DataFrame(array, columns=pd.Index(names))


def named_columns(table: Any) -> tuple[tuple[str, ...], list[NDArray[Any]]]:
    """Return the names and the columns of a table, see :func:`as_discrete`.

    Raises
    ------
    DataError
        If it has not two dimensions, or a name twice.
    """
    if hasattr(table, "columns"):
        return distinct_names(table.columns), [np.asarray(table[name]) for name in table.columns]
    rows = np.asarray(table)
    if rows.ndim != 2:
        raise DataError(f"a table has the shape (rows, variables), got {rows.shape}")
    return tuple(f"x{k}" for k in range(rows.shape[1])), list(rows.T)


def sorted_states(states: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct states in the order of their codes: numbers by value, then texts."""

    def key(state: str) -> tuple[int, float, str]:
        try:
            number = float(state)
        except ValueError:
            number = math.nan
        # "nan" is sorted as a text, because the number nan cannot be ordered.
        return (1, 0.0, state) if math.isnan(number) else (0, number, state)

    return tuple(sorted(set(states), key=key))


def state_name(value: Any) -> str:
    """Return the name of a value's state: "1" for 1, 1.0 and ``numpy.int8(1)``, a text on one line.

    Raises
    ------
    DataError
        If the value is not a text, a number or a boolean.
    """
    if isinstance(value, str):
        if not is_utf8(value):
            raise DataError("a text is not valid (half of a surrogate pair): read it as UTF-8")
        return one_form(value)
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    raise DataError(
        f"a value of type {type(value).__name__} cannot be a category: use texts, whole numbers or "
        "booleans"
    )


def labels_of(names: Sequence[str], values: str) -> tuple[Any, ...]:
    """Return the values that the names of a column's states stand for, as labels of the states.

    Parameters
    ----------
    names : sequence of str
    values : str
        What the values are, one of :data:`VALUES`; the names themselves are returned if they are
        not the names of such values.
    """
    try:
        labels = tuple(map(VALUES.get(values, str), names))
    except ValueError:
        return tuple(names)
    return labels if label_names(labels) == tuple(names) else tuple(names)


def label_names(labels: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of the states with these labels."""
    return tuple(map(state_name, labels))


def plain_label(value: Any) -> str | int | float | bool:
    """Return a state's label as a plain value; one of another type becomes text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float) else str(value)


def labelled(labels: Sequence[Any], codes: NDArray[Any]) -> NDArray[Any]:
    """Return the labels of codes, shape (n,): of booleans or numbers alone an array of these."""
    found = np.empty(len(labels), dtype=object)
    found[:] = labels
    kinds = {type(label) for label in labels}
    if len(kinds) == 1 and kinds <= {bool, int, float}:
        with suppress(OverflowError):  # whole numbers beyond 64 bits stay as they are
            found = found.astype(kinds.pop())
    return np.asarray(found[codes])


def code_of(value: Any, names: Sequence[str], cuts: FloatArray | None = None) -> int | None:
    """Return the position of a value, or of a name, among the states; None if it is none of them.

    Parameters
    ----------
    value : object
    names : sequence of str
        Of the states.
    cuts : ndarray, optional
        Cut points of the intervals that are the states: a number is put into its interval.

    Raises
    ------
    DataError
        If the value is not a text, a number or a boolean.
    """
    name = state_name(value)
    if name in names:
        return names.index(name)
    if cuts is None or isinstance(value, str) or not math.isfinite(value):
        return None
    return int(apply_cuts(np.array([value], dtype=np.float64), cuts)[0])


def _part(
    table: DiscreteTable, names: Sequence[str] | None, states: Sequence[Sequence[Any]] | None
) -> DiscreteTable:
    """Return some columns of a coded table; a DataError if their states are not ``states``."""
    if names is not None:
        _check_columns(names, table.names)
        table = table.reordered([table.names.index(name) for name in names])
    for name, own, given in zip(table.names, table.states, states or table.states, strict=True):
        if own != label_names(given):
            raise DataError(
                f"column {name!r} of the table has other states than those given: make the table "
                "with as_discrete and these states"
            )
    return table


def _check_columns(names: Sequence[str], available: Sequence[str]) -> None:
    missing = [name for name in names if name not in available]
    if missing:
        raise DataError(f"the table has no column {missing[0]!r}; it has {', '.join(available)}")


def _encoded(
    name: str,
    values: NDArray[Any],
    states: Sequence[str] | None,
    cuts: FloatArray | None = None,
) -> tuple[Codes, tuple[str, ...]]:
    """Return the codes of a column, shape (n,), and its states."""
    if cuts is not None and values.dtype.kind in "biuf" and np.isfinite(values).all():
        return apply_cuts(values.astype(np.float64), cuts), tuple(states or ())
    uniques, inverse = _distinct(values)
    if any(_is_missing(value) for value in uniques):
        raise DataError(
            f"column {name!r} has missing values: fill them in (by a separate state, if values are "
            "missing for a reason), or drop these rows"
        )
    if len(uniques) > MAX_STATES and cuts is None:
        raise DataError(
            f"column {name!r} has {len(uniques)} different values, more than the {MAX_STATES} that "
            "a category may have: discretize or drop the column"
        )
    try:
        labels = [state_name(value) for value in uniques]
    except DataError as error:
        raise DataError(f"column {name!r}: {error}") from None
    known = sorted_states(labels) if states is None else tuple(states)
    position = {state: code for code, state in enumerate(known)}
    if cuts is None:
        found = [position.get(label) for label in labels]
    else:
        found = [code_of(value, known, cuts) for value in uniques]
    if None in found:
        raise DataError(
            f"column {name!r} has a value that is not among its {len(known)} states, which come "
            "from other data: correct the value, or drop the row"
        )
    lookup = np.array(found, dtype=np.uint8)
    return lookup[inverse], known


def _distinct(values: NDArray[Any]) -> tuple[list[Any], IntArray]:
    """Return the distinct values and the index of each value among them."""
    if values.dtype.kind in "biuf":
        distinct, inverse = np.unique(values, return_inverse=True)
        return distinct.tolist(), inverse.ravel()
    import pandas as pd

    inverse, found = pd.factorize(values.astype(object, copy=False))
    if inverse.min(initial=0) == 0:
        return list(found), inverse
    # The code of missing values is -1: the last of the values.
    return [*found, None], inverse


def _is_missing(value: Any) -> bool:
    # pandas' NA is tested by its type, since `NA != NA` is neither true nor false.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return bool(value != value)
