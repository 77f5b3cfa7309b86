"""Files of statistics programs: Stata (.dta), SPSS (.sav, .zsav, .por) and SAS (.sas7bdat, .xpt).

Types, dates and missing values are those of the file. Value labels of Stata and SPSS are states: a
column with labels holds texts, and a value without a label the text of its number. Codes that SPSS
declares as missing, and the missing values .a to .z of Stata and SAS, are missing.

Which of two codes a label means that both have is not known from the label: such a code is no
state, but a :class:`SharedLabel`. A column in which one occurs holds neither numbers nor text.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.discrete.discrete import state_name
from flwr_causal.data.read.reading import with_columns, with_whole_numbers
from flwr_causal.data.read.texts import is_text
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    from flwr_causal.data.read.origin import Origin

# The reader of pyreadstat by suffix.
_READERS = {
    ".dta": "read_dta",
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".por": "read_por",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}


class SharedLabel(NamedTuple):
    """A code whose label another code of its column has, too."""

    code: str
    label: str

    def __str__(self) -> str:
        return f"{self.label} ({self.code})"


def statistics_frames(
    origin: Origin, rows_of_piece: Callable[[int], int] | None
) -> Iterator[pd.DataFrame]:
    """Read a file of a statistics program in pieces; see `frames_of`.

    Raises
    ------
    DataError
        If ``unlabelled`` names a column without labels.
    """
    import pyreadstat

    suffix = origin.rows.suffix.lower()
    read = getattr(pyreadstat, _READERS[suffix])
    how: dict[str, Any] = {"encoding": origin.encoding} if origin.encoding else {}
    how |= {"dates_as_pandas_datetime": True}
    # Else the file's declarations of missing values are not told.
    declared = {"user_missing": True} if suffix in (".sav", ".zsav") else {}
    _, facts = read(str(origin.rows), metadataonly=True, **how, **declared)
    labels = _labels(origin, facts)
    types = {} if suffix == ".dta" else dict.fromkeys(facts.column_names, "float64")
    size = 0 if rows_of_piece is None else rows_of_piece(len(facts.column_names))
    start = 0
    while True:
        frame, _ = read(str(origin.rows), row_offset=start, row_limit=size, **how)
        start += len(frame)
        if len(frame) or start == 0:
            yield _as_stated(frame, labels, types)
        if not size or len(frame) < size:
            return


def _as_stated(
    frame: pd.DataFrame,
    labels: Mapping[str, Mapping[Any, str | SharedLabel]],
    doubles: Mapping[str, str],
) -> pd.DataFrame:
    """Return rows with labels in place of codes; an empty text is missing."""
    changed: dict[int, pd.Series] = {}
    for place, (name, column) in enumerate(frame.items()):
        found = column
        if is_text(column):
            found = column.mask(column == "")
        elif column.dtype == object and column.isna().all():
            found = column.astype(np.float64)
        if name in labels:
            found = _labelled(found, labels[str(name)])
        elif column.dtype == doubles.get(str(name)):
            found = with_whole_numbers(column)
        changed[place] = found
    return with_columns(frame, changed)


def _labelled(column: pd.Series, labels: Mapping[Any, str | SharedLabel]) -> pd.Series:
    return column.astype(object).map(
        lambda value: labels.get(value, None) or state_name(value), na_action="ignore"
    )


def _labels(origin: Origin, facts: Any) -> dict[str, dict[Any, str | SharedLabel]]:
    """Return by column the labels of its values, but of those that are missing values."""
    found: dict[str, dict[Any, str | SharedLabel]] = {}
    for name, labels in facts.variable_value_labels.items():
        text = facts.readstat_variable_types.get(name) == "string"
        own = {
            value: str(label).strip()
            for value, label in labels.items()
            if (text or not isinstance(value, str))
            and str(label).strip()
            and not _is_missing(value, facts.missing_ranges.get(name, ()))
        }
        times = Counter(own.values())
        if own:
            found[name] = {
                value: label if times[label] == 1 else SharedLabel(state_name(value), label)
                for value, label in own.items()
            }
    for name in origin.unlabelled:
        if name not in found:
            raise DataError(
                f"'unlabelled' names {name!r}, which is no column with value labels in "
                f"{origin.rows}: correct the name, or take it out"
            )
        del found[name]
    return found


def _is_missing(value: Any, ranges: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether SPSS declares a value missing; texts and numbers have no order."""
    alike = (one for one in ranges if isinstance(value, str) is isinstance(one["lo"], str))
    return any(one["lo"] <= value <= one["hi"] for one in alike)
