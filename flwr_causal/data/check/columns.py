"""One column of a table: what it holds; as numbers, as different values, and as intervals."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from flwr_causal.core.discrete.discrete import VALUES, sorted_states, state_name
from flwr_causal.data.check.report import NUMBERS, Kind
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray

#: Letters of the numpy types that are numbers or booleans, and cannot hold anything else.
PLAIN = "biuf"
#: Below it float64 holds every whole number.
LARGEST_EXACT = 2.0**53
#: The one state of a column that no cut point divides.
UNDIVIDED = "any value"


def kind_of(column: pd.Series) -> Kind:
    """Return the kind of a column's values; missing ones do not count."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in PLAIN:
        return kind_of_type(dtype)
    if isinstance(dtype, pd.CategoricalDtype):
        states = kind_of(pd.Series(dtype.categories))
        return "other" if states == "other" else "category"
    if pd.api.types.is_bool_dtype(dtype):
        return "boolean"
    if pd.api.types.is_complex_dtype(dtype):
        return "other"
    if pd.api.types.is_numeric_dtype(dtype):
        return "numeric"
    if pd.api.types.is_object_dtype(dtype):
        inferred = pd.api.types.infer_dtype(column, skipna=True)
        if inferred in ("integer", "floating", "mixed-integer-float", "decimal", "empty"):
            return "numeric"
        by_inference: dict[str, Kind] = {"boolean": "boolean", "string": "category"}
        return by_inference.get(inferred, "other")
    return "category" if pd.api.types.is_string_dtype(dtype) else "other"


def kind_of_type(dtype: np.dtype[Any]) -> Kind:
    """Return the kind of values of one of the types in :data:`PLAIN`."""
    return "boolean" if dtype.kind == "b" else "numeric"


def as_numbers(column: pd.Series) -> FloatArray:
    """Return a column of numbers or booleans, shape (n,); missing values are NaN.

    Raises
    ------
    DataError
        It holds a number beyond float64.
    """
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in PLAIN:
        return column.to_numpy(dtype=np.float64)
    try:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (ArithmeticError, ValueError) as error:  # huge integers; decimals that signal
        raise DataError(
            f"column {column.name!r} holds a number that is no float64 ({error}): give the column "
            "a larger unit, or correct the value"
        ) from error


def check_exact(column: pd.Series, numbers: FloatArray) -> None:
    """Check that different whole numbers of a column are different as float64.

    Parameters
    ----------
    column : Series
        n rows of numbers.
    numbers : float64 array of shape (n,)
        The same, see :func:`as_numbers`.

    Raises
    ------
    DataError
        Some become equal.
    """
    present = ~np.isnan(numbers)
    whole = column[present].tolist()
    if len(set(whole)) > len(set(map(float, whole))):
        raise DataError(
            f"column {column.name!r} holds whole numbers beyond 2^53 so near each other that "
            "float64 makes them equal: subtract a number that all parties agree on, or make text "
            "of them if they are categories or ids"
        )


def all_columns(frame: pd.DataFrame) -> list[pd.Series]:
    """Return the columns in their order; one pass is much faster than asking for each."""
    return [column for _, column in frame.items()]


def find_columns(frame: pd.DataFrame, names: Sequence[str]) -> list[pd.Series]:
    """Return the columns of these names.

    Raises
    ------
    DataError
        One is absent, or there twice.
    """
    available = list(frame.columns)
    places = {name: place for place, name in enumerate(available)}
    doubled = len(places) < len(available)
    for name in names:
        count = available.count(name) if doubled else int(name in places)
        if count != 1:
            there = f"there {count} times" if count else "missing"
            raise DataError(
                f"column {name!r} is {there} in the table, which has {', '.join(available)}: "
                "give the column this name, once"
            )
    columns = all_columns(frame)
    return [columns[places[name]] for name in names]


def find_numbers(column: pd.Series) -> FloatArray:
    """Return a column as numbers, shape (n,), missing values as NaN.

    Raises
    ------
    DataError
        It is not numeric.
    """
    if kind_of(column) not in NUMBERS:
        raise DataError(
            f"column {column.name!r} is not numeric ({column.dtype}): convert it to numbers, or "
            "leave such columns out with text_columns='drop'"
        )
    return as_numbers(column)


def distinct_values(column: pd.Series, kind: Kind) -> tuple[npt.NDArray[Any], IntArray]:
    """Return the different values of a column, and which of them stands in each row.

    Parameters
    ----------
    column : Series
        n rows.
    kind : {"numeric", "boolean", "category"}
        What it holds, see :func:`kind_of`.

    Returns
    -------
    values : ndarray
        In the order in which they occur, without categories that are declared but occur in no row.
    codes : int64 array of shape (n,)
        Positions among the values, -1 where the value is missing or infinite.
    """
    exact = isinstance(column.dtype, np.dtype) and column.dtype.kind in "biu"
    if exact or (column.dtype == object and pd.api.types.infer_dtype(column) == "integer"):
        # As they are: whole numbers beyond 2^53 are not all float64 numbers.
        codes, plain = pd.factorize(column.to_numpy())
        return plain, codes.astype(np.int64)
    if kind == "numeric" and pd.api.types.is_integer_dtype(column.dtype):
        # Whole numbers some of which may be missing.
        codes, whole = pd.factorize(column.array)
        return np.asarray(whole.tolist()), codes.astype(np.int64)
    if kind == "numeric":
        numbers = as_numbers(column)
        codes, plain = pd.factorize(np.where(np.isfinite(numbers), numbers, np.nan))
        return plain, codes.astype(np.int64)
    codes, values = pd.factorize(column)
    return np.asarray(values), codes.astype(np.int64)


def type_of(column: pd.Series, kind: Kind, values: npt.NDArray[Any]) -> str:
    """Return the type of a column's values: "bool", "int", "float" or "str"; "" for several.

    Parameters
    ----------
    column : Series
    kind : {"numeric", "boolean", "category"}
    values : ndarray
        Its different values, see :func:`distinct_values`.
    """
    if kind == "boolean":
        return "bool"
    if kind == "numeric":
        whole = pd.api.types.is_integer_dtype(column.dtype)
        return "int" if whole or pd.api.types.infer_dtype(column) == "integer" else "float"
    types = {type(value).__name__ for value in values.tolist()}
    return common_type(types)


def common_type(types: Collection[str]) -> str:
    """Return the type that holds values of all these types; "" if there is none."""
    if set(types) == {"int", "float"}:
        return "float"
    return next(iter(types)) if len(types) == 1 and set(types) <= VALUES.keys() else ""


def named_states(values: npt.NDArray[Any], name: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the states that the different values of a column stand for.

    Parameters
    ----------
    values : ndarray
        Different values, as :func:`distinct_values` returns them.
    name : str
        The column's name, for the error.

    Returns
    -------
    labels : list of str
        The state of each value; two values may name one state (the text "1" and the number 1).
    states : tuple of str
        The different states, in the order in which states are coded.

    Raises
    ------
    DataError
        For a value that names no state (an interval, a date).
    """
    try:
        labels = [state_name(value) for value in values.tolist()]
    except DataError as error:
        raise DataError(f"column {name!r}: {error}") from None
    return labels, sorted_states(labels)


def interval_names(cuts: FloatArray) -> tuple[str, ...]:
    """Name the intervals between cut points: "<= 3.2", "3.2 to 7.1", "> 7.1".

    An interval holds its upper cut point and not its lower one. A cut point just below a short
    number, where that number goes with those above it, reads "< 7", "under 7" or ">= 7".

    Parameters
    ----------
    cuts : float64 array of shape (k,)
        Ascending and different.

    Returns
    -------
    tuple of k + 1 str
    """
    ends = [_end(cut) for cut in cuts.tolist()]
    if not ends:
        return (UNDIVIDED,)
    inner = [f"{low} to {'under ' * under}{high}" for (low, _), (high, under) in pairwise(ends)]
    (first, first_under), (last, last_under) = ends[0], ends[-1]
    return (f"<{'=' * (not first_under)} {first}", *inner, f">{'=' * last_under} {last}")


def _end(cut: float) -> tuple[str, bool]:
    """Return how to write a cut point, and whether it lies just below what is written."""
    written, next_one = state_name(cut), state_name(math.nextafter(cut, math.inf))
    under = len(next_one) + 2 < len(written)
    return (next_one, True) if under else (written, False)
