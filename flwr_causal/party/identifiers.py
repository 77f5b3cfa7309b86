"""Columns that look as if they named single persons or rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.data.check.columns import as_numbers, distinct_values, find_columns, kind_of
from flwr_causal.data.read.pieces import pieces

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from flwr_causal.data.read.pieces import Table

#: Parts of names of such columns: "patient_id", "PatientID" and "id" have the part "id".
NAME_PARTS = frozenset(
    {
        *("id", "ids", "uuid", "guid", "ssn", "mrn", "nhs", "nino", "bsn", "iban", "passport"),
        *("email", "mail", "phone", "telephone", "mobile"),
        *("surname", "firstname", "lastname", "forename", "fullname", "username"),
    }
)
#: Fewer values can all be different by chance.
FEWEST = 10
#: Of texts: share of the values that are different.
MOST_ARE_DIFFERENT = 0.9
#: Whole numbers with so many digits, all different, are no measurements.
LARGE_NUMBER = 10**7

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


def identifiers(table: Table, names: Iterable[str]) -> list[str]:
    """Return which columns look like identifiers.

    A column does by a part of its name (:data:`NAME_PARTS`); as text whose values are different in
    nine of ten rows, or half of them e-mail addresses; and as whole numbers that are all different
    and either nearly consecutive or have eight digits or more. Of a large file the first piece of
    about a million values is looked at.

    Parameters
    ----------
    table : DataFrame or LargeFile
    names : iterable of str
        Those of the columns to look at.
    """
    first = next(pieces(table))
    return [
        str(column.name)
        for column in find_columns(first, list(names))
        if named_like_one(str(column.name)) or _filled_like_one(column)
    ]


def named_like_one(name: str) -> bool:
    """Return whether a column's name has a part that is usual in names of identifiers."""
    return any(part.lower() in NAME_PARTS for part in _PARTS.findall(name))


def _filled_like_one(column: pd.Series) -> bool:
    kind = kind_of(column)
    if kind not in ("category", "numeric"):
        return False
    values, codes = distinct_values(column, kind)
    count = int((codes >= 0).sum())
    if count < FEWEST:
        return False
    if kind == "category":
        addresses = sum(_EMAIL.fullmatch(str(value)) is not None for value in values)
        return len(values) >= MOST_ARE_DIFFERENT * count or addresses > len(values) / 2
    numbers = as_numbers(column)
    numbers = numbers[np.isfinite(numbers)]
    if len(values) < count or np.any(numbers != np.round(numbers)):
        return False
    low, high = float(numbers.min()), float(numbers.max())
    return high - low < 2 * count or low >= LARGE_NUMBER
