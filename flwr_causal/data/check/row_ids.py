"""Ids of rows: checked, and hashed under a secret that the parties share."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

import numpy as np
from pandas import CategoricalDtype, PeriodDtype
from pandas.api.types import (
    is_datetime64_any_dtype,
    is_float_dtype,
    is_integer_dtype,
    is_object_dtype,
    is_string_dtype,
)
from scipy.special import ndtri

from flwr_causal.data.check.columns import (
    LARGEST_EXACT,
    distinct_values,
    kind_of,
    named_states,
)
from flwr_causal.data.read.texts import is_spelled
from flwr_causal.data.roles import ROW_ID
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray


HASH_BYTES = 16
#: Rows whose random numbers are made at once.
DRAWN_ROWS = 1024


def name_of_ids(columns: Iterable[str], row_id: str = "") -> str | None:
    """Return the name of a table's column of ids, named or the usual one; None if there is none.

    Raises
    ------
    DataError
        If the named column is absent.
    """
    name = row_id or ROW_ID
    if name in columns:
        return name
    if row_id:
        raise DataError(
            f"the table has no column {row_id!r}, which the option 'row_id' names: "
            "add the ids by which rows of different parties are aligned"
        )
    return None


def plain_ids(column: pd.Series) -> pd.Series:
    """Return ids as they are compared: text without blanks around it, as files pad it."""
    values = column.astype(object) if isinstance(column.dtype, CategoricalDtype) else column
    if not (is_object_dtype(values.dtype) or is_string_dtype(values.dtype)):
        return column
    return values.map(lambda one: one.strip() if isinstance(one, str) else one, na_action="ignore")


def checked_ids(column: pd.Series) -> pd.Series:
    """Return a column of ids.

    Raises
    ------
    DataError
        If an id is missing or occurs twice.
    """
    problem = problem_of_ids(column)
    if problem:
        raise DataError(problem)
    return column


def problem_of_ids(column: pd.Series) -> str:
    """Return why rows cannot be matched by a column of ids, in words; "" if they can."""
    name = column.name
    lost = int(np.sum(np.abs(_floats(column)) > LARGEST_EXACT))
    if lost:
        return (
            f"column {name!r} of ids holds decimal numbers, {lost} of them beyond 2^53, whose last "
            "digits are lost (by a spreadsheet, or since an id is missing): take the ids from "
            "their source again, as whole numbers or text, one in each row"
        )
    # An infinite number is no id either; pyarrow cannot look for one among whole numbers.
    infinite = False if is_integer_dtype(column.dtype) else column.isin([np.inf, -np.inf])
    missing = int((column.isna() | infinite).sum())
    if missing:
        return (
            f"column {name!r} of ids has {missing} missing: give every row an id, or leave such "
            "rows out"
        )
    doubled = int(column.duplicated().sum())
    if doubled:
        return (
            f"column {name!r} of ids has {doubled} that repeat: rows are aligned by ids, one row "
            "each; remove the copies, or name another column with row_id"
        )
    return ""


def _floats(column: pd.Series) -> FloatArray:
    """Return the floating-point numbers of a column; float32 has lost digits from 2^24 on."""
    if is_object_dtype(column.dtype):
        return np.array([value for value in column if isinstance(value, float)], dtype=np.float64)
    if not is_float_dtype(column.dtype):
        return np.empty(0)
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    single = getattr(column.dtype, "numpy_dtype", column.dtype) == np.float32
    return np.asarray(np.nan_to_num(numbers, posinf=0.0, neginf=0.0) * (2.0**29 if single else 1))


def kind_of_ids(column: pd.Series) -> str:
    """Return the kind of ids: "numbers", "text", or "digits" (text, as 007, that no number has).

    The text "007" and the number 7 are different ids, which may be of one person.
    """
    values = column.cat.categories if isinstance(column.dtype, CategoricalDtype) else column
    texts = [value for value in values if isinstance(value, str)]
    if any(map(is_spelled, texts)):
        return "digits"
    return "text" if texts or kind_of(column) != "numeric" else "numbers"


def hashed_ids(column: pd.Series, secret: bytes) -> NDArray[np.uint8]:
    """Return the first bytes of HMAC-SHA-256 of each id, shape (n, 16).

    Without the secret nobody can compute the id of a hash, or test whether a known id is among
    them. An id is hashed as text, a whole number alike whatever its type, a date with its time of
    day as ``2020-01-31 12:00:00``.
    """
    labels, codes = _labels(column)
    digests = [
        hmac.new(secret, label.encode(), hashlib.sha256).digest()[:HASH_BYTES] for label in labels
    ]
    table = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, HASH_BYTES)
    return table[codes]


def hashes_of_rows(hashes: NDArray[np.uint8], secret: bytes) -> NDArray[np.uint8]:
    """Return a hash for each row with its lags, from the hashes of the ids of its steps.

    Parameters
    ----------
    hashes : ndarray of uint8, shape (n, 1 + p, 16)
        Of each row with p lags those of its steps, the latest first. Without lags they are the
        result.
    secret : bytes

    Returns
    -------
    ndarray of uint8, shape (n, 16)
        Two are equal if and only if all their steps are, in their order.
    """
    if hashes.shape[1] == 1:
        return hashes[:, 0]
    digests = [hmac.new(secret, own.tobytes(), hashlib.sha256).digest() for own in hashes]
    whole = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(hashes), -1)
    return whole[:, :HASH_BYTES]


def keyed_normals(column: pd.Series, secret: bytes, size: int) -> Iterator[FloatArray]:
    """Return standard normal numbers that each id and the secret determine, some rows at a time.

    The same id has the same numbers at every party, whatever the versions of its packages. Without
    the secret nobody can compute them.

    Parameters
    ----------
    column : Series
        Of ids, n rows.
    secret : bytes
    size : int
        Numbers of each row.

    Yields
    ------
    ndarray of float64, shape (at most DRAWN_ROWS, size)
    """
    quantiles = ndtri((np.arange(2**16) + 0.5) / 2**16)
    labels, codes = _labels(column)
    key = hashlib.sha256(b"normal numbers" + secret).digest()
    for start in range(0, len(codes), DRAWN_ROWS):
        own = [labels[code] for code in codes[start : start + DRAWN_ROWS]]
        digests = [hashlib.shake_256(key + label.encode()).digest(2 * size) for label in own]
        places = np.frombuffer(b"".join(digests), dtype="<u2").reshape(-1, size)
        yield quantiles[places]


def _labels(column: pd.Series) -> tuple[list[str], NDArray[np.int64]]:
    """Return the different ids as text, and which of them each row has."""
    if is_datetime64_any_dtype(column.dtype) or isinstance(column.dtype, PeriodDtype):
        column = column.map(str)
    kind = kind_of(column)
    values, codes = distinct_values(column, kind)
    labels, _ = named_states(values, str(column.name))
    return list(labels), codes
