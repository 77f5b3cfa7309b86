"""Tables of categories as small numbers: what the discrete scores count.

A state is named by a text, whatever it was in the data (``1``, ``1.0`` and ``True`` of different
parties become ``"1"``, ``"1"`` and ``"True"``), so that parties, files and models agree on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.graphs.graph import distinct_names
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flwr_causal.core.arrays import IntArray

Codes = NDArray[np.uint8]

#: More states than a byte can tell apart are no categories.
MAX_STATES = 256


@dataclass(frozen=True, eq=False)
class DiscreteTable:
    """Rows of d variables, each in one of finitely many states.

    Parameters
    ----------
    names : tuple of str
        The d variables, in the order of the data's columns.
    states : tuple of tuple of str
        The states of each variable, in the order that their codes count.
    codes : ndarray of uint8, shape (d, n)
        ``codes[j, i]`` is the position of row i's value among the states of variable j. One row of
        the array for each *variable*: counting reads one variable at a time.
    weights : ndarray of int64, shape (n,), optional
        How often each row stands; None: once each.
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
                f"{len(names)} names, {len(self.states)} lists of states and codes of shape "
                f"{codes.shape} do not belong together: codes has one row for each variable"
            )
        for name, states, row in zip(names, self.states, codes, strict=True):
            if len(set(states)) < len(states) or len(states) > MAX_STATES:
                raise DataError(
                    f"column {name!r}: {len(states)} states, some perhaps twice; expected "
                    f"different ones, at most {MAX_STATES}"
                )
            if row.size and row.max() >= len(states):
                raise DataError(f"column {name!r}: code {row.max()} has no state")
        if self.weights is not None:
            weights = np.asarray(self.weights, dtype=np.int64)
            if weights.shape != codes.shape[1:] or (weights < 0).any():
                raise DataError("weights must be one non-negative whole number for each row")
            object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "codes", codes)
        object.__setattr__(self, "states", tuple(tuple(states) for states in self.states))

    @property
    def num_rows(self) -> int:
        """Rows, repeated ones counted as often as they stand."""
        return int(self.codes.shape[1] if self.weights is None else self.weights.sum())

    @property
    def cardinalities(self) -> IntArray:
        """Number of states of each variable, shape (d,)."""
        return np.array([len(states) for states in self.states], dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Memory of the codes."""
        return self.codes.nbytes + (0 if self.weights is None else self.weights.nbytes)

    def compressed(self) -> DiscreteTable:
        """Return the table with equal rows joined, where that at least halves it."""
        distinct, inverse = np.unique(self.codes, axis=1, return_inverse=True)
        if 2 * distinct.shape[1] > self.codes.shape[1]:
            return self
        weights = np.bincount(
            inverse.ravel(), weights=self.weights, minlength=distinct.shape[1]
        ).astype(np.int64)
        return replace(self, codes=distinct, weights=weights)

    def reordered(self, order: Sequence[int] | IntArray) -> DiscreteTable:
        """Return the table with its variables in another order."""
        return DiscreteTable(
            tuple(self.names[k] for k in order),
            tuple(self.states[k] for k in order),
            self.codes[np.asarray(order, dtype=np.int64)],
            self.weights,
        )


def as_discrete(
    table: Any, names: Sequence[str] | None = None, states: Sequence[Sequence[str]] | None = None
) -> DiscreteTable:
    """Return a table of categories from whatever holds one.

    Parameters
    ----------
    table : DiscreteTable, array of shape (n, d), or anything with ``.columns``
        Texts, whole numbers, booleans. An array's variables are called ``x0, x1, ...``.
    names : sequence of str, optional
        The columns to take, in this order. Default: all.
    states : sequence of sequence of str, optional
        The states of each of ``names``. Default: those that occur, sorted (numbers as numbers).

    Raises
    ------
    DataError
        For a missing value, a value that is not among ``states``, or a column of too many states.
    """
    if isinstance(table, DiscreteTable):
        return _part(table, names, states)
    if hasattr(table, "columns"):
        available = distinct_names(table.columns)
        columns = [np.asarray(table[name]) for name in table.columns]
    else:
        rows = np.asarray(table)
        if rows.ndim != 2:
            raise DataError(f"a table has the shape (rows, variables), got {rows.shape}")
        available = tuple(f"x{k}" for k in range(rows.shape[1]))
        columns = list(rows.T)
    chosen = available if names is None else tuple(names)
    _check_columns(chosen, available)
    encoded, found = [], []
    for position, name in enumerate(chosen):
        given = None if states is None else states[position]
        codes, known = _encoded(name, columns[available.index(name)], given)
        encoded.append(codes)
        found.append(known)
    stacked = np.stack(encoded) if encoded else np.zeros((0, 0), dtype=np.uint8)
    return DiscreteTable(chosen, tuple(found), stacked)


def observed_states(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the states that occur among values, sorted; missing values are passed over."""
    uniques, _ = _distinct(np.asarray(values))
    return sorted_states(state_name(value) for value in uniques if not _is_missing(value))


def sorted_states(states: Iterable[str]) -> tuple[str, ...]:
    """Return different states in the order in which they are coded: numbers by size, then texts."""

    def key(state: str) -> tuple[int, float, str]:
        try:
            number = float(state)
        except ValueError:
            number = math.nan
        # "nan" is a text: as a number it has no place in any order.
        return (1, 0.0, state) if math.isnan(number) else (0, number, state)

    return tuple(sorted(set(states), key=key))


def state_name(value: Any) -> str:
    """Return the text that names a value: 1, 1.0 and ``numpy.int8(1)`` are all "1".

    Raises
    ------
    DataError
        For a value that is no text, number or boolean.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    raise DataError(
        f"a value of type {type(value).__name__} names no state: use texts, whole numbers or "
        "booleans for categories"
    )


def _part(
    table: DiscreteTable, names: Sequence[str] | None, states: Sequence[Sequence[str]] | None
) -> DiscreteTable:
    """Return some columns of a coded table, whose states must be the given ones."""
    if names is not None:
        _check_columns(names, table.names)
        table = table.reordered([table.names.index(name) for name in names])
    for name, own, given in zip(table.names, table.states, states or table.states, strict=True):
        if own != tuple(given):
            raise DataError(f"column {name!r} is coded by other states than those given: decode it")
    return table


def _check_columns(names: Sequence[str], available: Sequence[str]) -> None:
    missing = [name for name in names if name not in available]
    if missing:
        raise DataError(f"the table has no column {missing[0]!r}; it has {', '.join(available)}")


def _encoded(
    name: str, values: NDArray[Any], states: Sequence[str] | None
) -> tuple[Codes, tuple[str, ...]]:
    """Return the codes of a column, shape (n,), and its states."""
    uniques, inverse = _distinct(values)
    if any(_is_missing(value) for value in uniques):
        raise DataError(
            f"column {name!r} has missing values: fill them in (with a state of their own, if "
            "that they are missing means something), or leave those rows out"
        )
    if len(uniques) > MAX_STATES:
        raise DataError(
            f"column {name!r} has {len(uniques)} different values, too many for categories: "
            "discretize it, or leave it out"
        )
    try:
        labels = [state_name(value) for value in uniques]
    except DataError as error:
        raise DataError(f"column {name!r}: {error}") from None
    known = sorted_states(labels) if states is None else tuple(states)
    position = {state: code for code, state in enumerate(known)}
    unknown = [label for label in labels if label not in position]
    if unknown:
        raise DataError(
            f"column {name!r} has a value that is not among its {len(known)} states: "
            "were the states agreed on other data?"
        )
    lookup = np.array([position[label] for label in labels], dtype=np.uint8)
    return lookup[inverse], known


def _distinct(values: NDArray[Any]) -> tuple[list[Any], IntArray]:
    """Return the distinct values and the position of each value among them."""
    if values.dtype.kind in "biufUS":
        distinct, inverse = np.unique(values, return_inverse=True)
        return distinct.tolist(), inverse.ravel()
    position: dict[Any, int] = {}
    missing = object()
    keys = (missing if _is_missing(value) else value for value in values.tolist())
    inverse = np.array([position.setdefault(key, len(position)) for key in keys], dtype=np.int64)
    return [None if key is missing else key for key in position], inverse


def _is_missing(value: Any) -> bool:
    # pandas' NA first: it is neither equal nor unequal to itself.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return bool(value != value)
