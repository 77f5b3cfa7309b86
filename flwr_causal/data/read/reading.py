"""How the cells of a column are read: which texts are missing values, numbers, or codes.

One rule for all tables. An empty field is missing. In a column whose other texts are numbers, or
true and false, the texts of :data:`MISSING` are missing, too; in a column of text they are text,
such as the state "None" or the country "NA". Numbers that are spelled as codes are text only where
columns are declared, or read, as categories, see :class:`Reading`. Where the parties share a
dictionary, it says what each column holds, and nothing is guessed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from flwr_causal.core.discrete.discrete import state_name
from flwr_causal.data.dictionary.faults import DictionaryFaultError
from flwr_causal.data.read.texts import (
    MISSING,
    NUMBER,
    WHOLE,
    are_codes,
    is_number,
    is_stray,
    is_text,
)
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flwr_causal.data.dictionary.party_dictionary import PartyDictionary

# Truth values as pandas reads them.
_FLAGS = {
    **dict.fromkeys(("True", "TRUE", "true"), True),
    **dict.fromkeys(("False", "FALSE", "false"), False),
}


#: Exchanges the two decimal marks.
COMMAS = str.maketrans(",.", ".,")


class Reading(NamedTuple):
    """How a run reads columns that can be read in several ways.

    Parameters
    ----------
    categories : tuple of str, default ()
        Columns that are text, with the spelling of their cells: "007" and "7" are two states.
    numbers : tuple of str, default ()
        Columns that are numbers, also where all of their cells are texts that are numbers.
    missing : tuple of str, default ()
        Further texts that are missing values, in all columns; a number is compared as a number.
    codes : int, default 0
        Columns of delimited text with up to so many different texts are text where numbers are
        spelled as only codes are ("250.0" and "250.00", "007", "1E2"); 0: none.
    dictionary : PartyDictionary, optional
        Says what all columns are; then the other fields have their defaults.
    """

    categories: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    codes: int = 0
    dictionary: PartyDictionary | None = None

    def for_options(self, options: object) -> Reading:
        """Return the reading of a run with these options, of which some name columns of roles."""
        if self.dictionary is None:
            return self
        unused = self.dictionary.dictionary.left_out(options)
        return self._replace(dictionary=replace(self.dictionary, left_out=unused))

    @property
    def of_queries(self) -> Reading:
        """How rows are read that may lack columns."""
        if self.dictionary is None:
            return self
        return self._replace(dictionary=replace(self.dictionary, may_lack=True))

    @property
    def of_cells(self) -> Reading:
        """How the cells of a file are read before the dictionary is applied to them."""
        return self if self.dictionary is None else Reading(self.dictionary.text_sources)


#: The reading of a run that says nothing.
AS_THEY_ARE = Reading()


def typed(column: pd.Series, codes: int = 0) -> pd.Series:
    """Convert a column of texts to numbers, truth values or text, as all of its texts allow.

    Parameters
    ----------
    column : Series
        Of texts as they are in a file, missing where a field is empty.
    codes : int, default 0
        As of :class:`Reading`.
    """
    places, texts = pd.factorize(column)
    plain = [str(text).strip() for text in texts]
    present = [text for text in plain if text not in MISSING]
    if len(texts) and not present and set(plain) == {"None"}:
        return column
    if all(map(NUMBER.fullmatch, present)):
        if len(present) <= codes and are_codes(present):
            return column.mask(
                column.isin([text for text in texts if str(text).strip() in MISSING])
            )
        return _from_texts(column, places, plain)
    if all(text in _FLAGS for text in present):
        values: list[Any] = [_FLAGS.get(text, np.nan) for text in plain]
        complete = bool((places >= 0).all()) and len(present) == len(plain)
        taken = np.array([*values, np.nan], dtype=object)[places]
        return pd.Series(taken.astype(np.bool_) if complete else taken, column.index)
    return column


def with_points(column: pd.Series) -> pd.Series:
    """Return a column of texts in which numbers with a decimal comma have a point in its place.

    Raises
    ------
    DataError
        If all of its texts are numbers, but some of them have a point.
    """
    texts = [str(text) for text in column.dropna().unique()]
    points = {text: text.translate(COMMAS) for text in texts if "," in text}
    points = {text: pointed for text, pointed in points.items() if is_number(pointed)}
    rest = [text for text in texts if text not in points]
    odd = next((text for text in rest if "." in text and is_number(text)), None)
    if odd is not None and not any(map(is_stray, rest)):
        raise DataError(
            f"column {column.name!r} has {odd.strip()!r} in a table with decimal commas: write "
            "numbers without points between thousands, or declare the column in the option "
            "categories"
        )
    return column.map(lambda text: points.get(text, text), na_action="ignore") if points else column


def of_cells(cells: Sequence[Any]) -> pd.Series:
    """Return a column of cells of a workbook or a database, which may have different types.

    Numbers, truth values, texts or dates stay what they are. Where numbers or truth values stand
    beside texts the column is read as its texts would be, see :func:`typed`.

    Parameters
    ----------
    cells : sequence
        None and the empty text are missing.
    """
    types = set(map(type, cells))
    if cells and types <= {float, type(None)}:  # most cells are such, and this is much faster
        return pd.Series(np.array(cells, dtype=np.float64))
    if types == {int}:
        return pd.Series(np.array(cells, dtype=object)).infer_objects()
    present = [cell for cell in cells if not _is_absent(cell)]
    complete = len(present) == len(cells)
    kinds = {_kind_of_cell(cell) for cell in present}
    if kinds <= {"number"}:
        whole = all(isinstance(cell, int) for cell in present)
        # As of text: numbers are float64 where one is missing, unless that would change one.
        exact = whole and (complete or any(abs(cell) > 2**53 for cell in present))
        if exact and present:
            values = [None if _is_absent(cell) else cell for cell in cells]
            column = pd.Series(np.array(values, dtype=object))
            return column.infer_objects() if complete else column  # else float64
        return pd.Series([np.nan if _is_absent(c) else float(c) for c in cells], dtype=np.float64)
    if kinds == {"flag"} and complete:
        return pd.Series(np.array(present, dtype=np.bool_))
    values = [np.nan if _is_absent(cell) else cell for cell in cells]
    if kinds == {"text"}:
        return pd.Series(values)
    column = pd.Series(values, dtype=object)
    if len(kinds) > 1 and "other" not in kinds:
        return typed(column.map(state_name, na_action="ignore"))
    return column


def _is_absent(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell) or cell != cell


def _kind_of_cell(cell: Any) -> str:
    if isinstance(cell, bool):
        return "flag"
    if isinstance(cell, str):
        return "text"
    return "number" if isinstance(cell, int | float | Decimal) else "other"


def with_whole_numbers(column: pd.Series) -> pd.Series:
    """Return a column of float64 as int64 where all of its numbers are whole and none is missing.

    Formats in which all numbers are float64 are read so as text is.
    """
    values = column.to_numpy()
    whole = len(values) and np.isfinite(values).all() and (values == np.rint(values)).all()
    if not whole or np.abs(values).max() >= 2**53:
        return column
    return column.astype(np.int64)


def _from_texts(column: pd.Series, places: Any, plain: list[str]) -> pd.Series:
    """Return a column of numbers, as pandas reads them: whole numbers where none is missing."""
    longest = max(map(len, plain), default=0)
    whole = all(map(WHOLE.fullmatch, plain)) and 0 < longest <= sys.float_info.max_10_exp
    if whole and (places >= 0).all():
        values = [int(text) for text in plain]
        least, most = min(values), max(values)
        if least >= -(2**63) and most < 2**64 and (most < 2**63 or least >= 0):
            kind = np.int64 if most < 2**63 else np.uint64
            return pd.Series(np.array(values, dtype=kind)[places], column.index)
        return pd.Series(np.array(values, dtype=object)[places], column.index)
    numbers = [np.nan if text in MISSING else float(text) for text in plain]
    return pd.Series(np.array([*numbers, np.nan])[places], column.index)


def as_read(frame: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Return a table with the columns that a run declares, and further missing values.

    Parameters
    ----------
    frame : DataFrame
        It is not changed; without a declaration it is returned.
    reading : Reading

    Raises
    ------
    DictionaryFaultError
        If it does not fit the dictionary.
    """
    if reading.dictionary is not None:
        fitted, faults = reading.dictionary.applied(frame)
        if faults:
            raise DictionaryFaultError(faults)
        return fitted
    changed: dict[int, pd.Series] = {}
    if not (reading.missing or reading.categories or reading.numbers):
        return frame
    for place, (name, column) in enumerate(frame.items()):
        found = column
        if reading.missing:
            found = _without(found, reading.missing)
        if name in reading.categories:
            found = _as_text(found)
        elif name in reading.numbers and is_text(found):
            number = typed(found.astype(object))
            found = found if is_text(number) else number
        if found is not column:
            changed[place] = found
    return with_columns(frame, changed)


def with_columns(frame: pd.DataFrame, changed: Mapping[int, pd.Series]) -> pd.DataFrame:
    """Return a table with some columns replaced; the same object if there are none."""
    if not changed:
        return frame
    columns = [changed.get(place, column) for place, (_, column) in enumerate(frame.items())]
    together = pd.concat(columns, axis=1)
    together.columns = frame.columns
    return together


def _without(column: pd.Series, missing: Iterable[str]) -> pd.Series:
    """Return a column without some texts, and without the numbers that these are."""
    numbers = [float(text) for text in missing if NUMBER.fullmatch(text)]
    found = column.isin([*missing, *([] if is_text(column) else numbers)])
    return column.mask(found) if found.any() else column


def _as_text(column: pd.Series) -> pd.Series:
    """Return numbers and truth values as the texts that name their states; text as it is."""
    if not (pd.api.types.is_numeric_dtype(column.dtype) or column.dtype == object):
        return column
    return column.astype(object).map(
        lambda value: state_name(value) if _names_a_state(value) else value, na_action="ignore"
    )


def _names_a_state(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)


def missing_texts(column: pd.Series) -> dict[str, int]:
    """Return how often each text stands for a missing value in a column of texts, "" if empty."""
    found = column.fillna("")
    if is_text(typed(column)):
        found = found[found == ""]
    plain = found.map(str.strip)
    counts = plain[plain.isin({"", *MISSING})].value_counts()
    return {str(text): int(count) for text, count in counts.items()}
