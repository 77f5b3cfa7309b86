"""Kinds of texts in cells: a number, a code, a mark of a missing value, or other text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Texts that are missing values in a column whose other texts are numbers or truth values.
MISSING = frozenset(
    (
        *("NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan"),
        *("NULL", "null", "None", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    )
)
#: A number.
NUMBER = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|infinity)", re.ASCII | re.IGNORECASE
)
#: A whole number.
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
# Numbers as programs do not write them: "007", and "1E2" without a sign or a point. (Months and
# hours have a zero before one digit.)
CODE = re.compile(r"0\d{2,}|\d+E\d+", re.ASCII)


def is_stray(text: str) -> bool:
    """Return whether a text among numbers is neither a number nor a mark of a missing value."""
    plain = text.strip()
    return not (NUMBER.fullmatch(plain) or plain in MISSING)


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    return NUMBER.fullmatch(text.strip()) is not None


def is_spelled(text: str) -> bool:
    """Return whether a text is a number in an unusual spelling, such as 007."""
    return is_number(text) and (not WHOLE.fullmatch(text) or str(int(text)) != text)


def are_whole_codes(texts: Iterable[str]) -> bool:
    """Return whether these are whole numbers in one spelling each, some as only codes are."""
    plain = set(texts)
    spelled = {text for text in plain if CODE.fullmatch(text)}
    whole = all(text.isdigit() or text in spelled for text in plain)
    return bool(spelled) and whole and len(set(map(float, plain))) == len(plain)


def are_codes(texts: Iterable[str]) -> bool:
    """Return whether numbers are spelled as codes are: "007", "1E2", or one number in two ways.

    Whole numbers with and without a decimal point ("7.0" and "7") are none, as programs write both.
    """
    first: dict[float, str] = {}
    for text in texts:
        if CODE.fullmatch(text):
            return True
        number = float(text)
        plain = re.sub(r"\.0?$", "", text.lstrip("+-" if number == 0 else "+"))
        if first.setdefault(number, plain) != plain:
            return True
    return False


def is_text(column: pd.Series) -> bool:
    """Return whether all values of a column that are there are texts."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    if pd.api.types.is_object_dtype(dtype):
        return pd.api.types.infer_dtype(column, skipna=True) == "string"
    return bool(pd.api.types.is_string_dtype(dtype))
