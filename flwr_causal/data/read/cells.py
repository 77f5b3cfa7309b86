"""Read the number in a cell, whatever the other cells hold.

One rule for all columns and all kinds of files: a number is itself, a text is the number that
Python's ``float`` reads, true and false are 1 and 0, as texts in any case of letters, and all else
is missing: other texts, dates, durations, bytes, and numbers beyond float64. Other readers choose a
type for a column by all of its cells, so that one row changes what the others hold.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from io import BytesIO
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flwr_causal.core.discrete.discrete import state_name
from flwr_causal.data.read.tables import EXACT
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray

_SPELLED = {"true": 1.0, "false": 0.0}
_READABLE = (str, int, float, Decimal, np.number, np.bool_)
# As programs write them, and what is read in their place.
_WRITTEN = {"True": "1", "False": "0"}
# Of texts of these characters alone, pandas reads the numbers that Python's float reads, faster.
_DIGITS = b"0123456789+-.eE"
# Letters of the numpy types whose values are numbers.
_PLAIN = "biufc"


def number_of(cell: Any) -> float:
    """Return the number that a cell holds, NaN if it holds none."""
    if isinstance(cell, complex | np.complexfloating):
        cell = cell.real if cell.imag == 0 else nan
    # numpy takes durations for whole numbers.
    if not isinstance(cell, _READABLE) or isinstance(cell, np.timedelta64):
        return nan
    try:
        number = float(cell)
    except (ValueError, OverflowError):
        return _SPELLED.get(cell.strip().lower(), nan) if isinstance(cell, str) else nan
    return number if isfinite(number) else nan


def text_of(cell: Any) -> str:
    """Return how a cell is spelled, without blanks around it: "1" for 1 and 1.0, "" if missing."""
    if isinstance(cell, str):
        return cell.strip()
    if cell is None or cell is pd.NaT or cell is pd.NA:
        return ""
    try:
        return "" if cell != cell else state_name(cell)
    except DataError:
        return str(cell).strip()
    except (ValueError, TypeError, ArithmeticError):  # arrays, durations, too many digits
        return ""


def numbers_of_texts(texts: Sequence[str]) -> FloatArray:
    """Return the numbers that texts hold, shape (n,), as :func:`number_of` does."""
    plain = numbers_of_lines(texts, ",", 1)
    if plain is not None:
        return plain[:, 0]
    known = {text: number_of(text) for text in set(texts)}
    return np.fromiter(map(known.__getitem__, texts), np.float64, len(texts))


def numbers_of_lines(lines: Sequence[str], separator: str, width: int) -> FloatArray | None:
    """Return the numbers in lines, shape (n, width), if their texts are plain numbers or empty.

    It saves time alone: :func:`number_of` gives the same numbers.
    """
    text = "\n".join(lines)
    marks = (separator * (width - 1) + "\n") * len(lines)
    if not (lines and text.isascii()):
        return None
    for word, number in _WRITTEN.items():
        if word in text:
            text = _whole_cells(word, separator).sub(number, text)
    raw = text.encode() + b"\n"
    if raw.translate(None, _DIGITS) != marks.encode():
        return None
    try:
        found = pd.read_csv(
            BytesIO(raw),
            sep=separator,
            header=None,
            dtype=np.float64,
            skip_blank_lines=False,
            **EXACT,
        )
    except ValueError:  # one is no number
        return None
    return _finite(found.to_numpy())


def numbers_of_array(array: NDArray[Any]) -> FloatArray:
    """Return the numbers that the cells of an array hold, of the same shape."""
    if isinstance(array, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(array), nan, numbers_of_array(array.data))
    array = np.asarray(array)
    if array.dtype.kind in _PLAIN:
        # One number beyond float64 is no reason to warn.
        with np.errstate(all="ignore"):
            if array.dtype.kind == "c":
                array = np.where(array.imag == 0, array.real, nan)
            return _finite(array.astype(np.float64))
    if array.dtype.kind in "OU":
        return _of_cells(array.ravel().tolist()).reshape(array.shape)
    return np.full(array.shape, nan)


def numbers_of_column(column: pd.Series) -> FloatArray:
    """Return the numbers that the cells of a column hold, shape (n,)."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        return numbers_of_array(column.to_numpy())
    if isinstance(dtype, pd.CategoricalDtype):
        own = numbers_of_column(dtype.categories.to_series())
        return np.append(own, nan)[column.cat.codes.to_numpy()]
    if isinstance(dtype, pd.ArrowDtype):
        return numbers_of_arrow(column.array.__arrow_array__())
    return _of_cells(column.tolist())


def numbers_of_arrow(values: Any) -> FloatArray:
    """Return the numbers that the cells of a pyarrow.Array or ChunkedArray hold, shape (n,)."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        return np.concatenate([np.empty(0), *map(numbers_of_arrow, values.chunks)])
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        own = np.append(numbers_of_arrow(values.dictionary), nan)
        places: IntArray = values.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        return own[places]
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return numbers_of_array(values.to_numpy(zero_copy_only=False))
    if types.is_decimal(kind):
        return _of_cells(values.to_pylist())
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return numbers_of_texts(_arrow_texts(values))
    return np.full(len(values), nan)


def cells_of_arrow(values: Any) -> Sequence[Any]:
    """Return the cells of a pyarrow.Array or ChunkedArray as Python's objects, None if missing."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        return [cell for chunk in values.chunks for cell in cells_of_arrow(chunk)]
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        own = [*cells_of_arrow(values.dictionary), None]
        return [own[place] for place in values.indices.cast(pa.int64()).fill_null(-1).to_pylist()]
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _arrow_texts(values)
    cells: Sequence[Any] = values.to_pylist()
    return cells


def _arrow_texts(values: Any) -> list[str]:
    """Return texts of pyarrow, of which files may hold some that are not UTF-8; "" if missing."""
    import pyarrow as pa

    texts = values.cast(pa.large_binary()).fill_null(b"").to_pylist()
    return [text.decode(errors="surrogateescape") for text in texts]


@lru_cache
def _whole_cells(word: str, separator: str) -> re.Pattern[str]:
    """Return the pattern of cells that are a word; it begins with the word, to be found fast."""
    other = f"[^{re.escape(separator)}\\n]"
    return re.compile(f"{word}(?<!{other}{word})(?!{other})")


def _of_cells(cells: Iterable[Any]) -> FloatArray:
    return np.array([number_of(cell) for cell in cells], dtype=np.float64)


def _finite(numbers: FloatArray) -> FloatArray:
    return np.where(np.isfinite(numbers), numbers, nan)
