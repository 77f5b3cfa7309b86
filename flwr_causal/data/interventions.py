"""Known interventions: the columns that were set or changed from outside, by party or by row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flwr_causal.core.arrays import BoolArray, IntArray

#: Columns on which interventions act together, in the order of their names; () for none.
Targets = tuple[str, ...]

#: The methods that use known interventions, for messages of those that do not.
USERS = "the methods 'moments', 'notears-admm', '2dbn' and 'fedcausal'"

FORM = "a mapping from parties to lists of columns, such as {'hospital a': ['dose']}"


def by_party(interventions: Mapping[Any, Any] | str | None) -> dict[str, list[str]]:
    """Return the stated targets by the parties' names.

    Parameters
    ----------
    interventions : mapping, str or None
        From a party's name, or its number in a simulation, to names of columns; or such a mapping
        as JSON text.

    Raises
    ------
    ConfigError
        If it has another form.
    """
    stated: Any = interventions or {}
    if isinstance(stated, str):
        try:
            stated = json.loads(stated)
        except ValueError:
            stated = None
    if not isinstance(stated, Mapping):
        raise ConfigError(f"The option 'interventions' is {interventions!r}; it must be {FORM}.")
    found: dict[str, list[str]] = {}
    for party, columns in stated.items():
        listed = not isinstance(columns, str | bytes) and hasattr(columns, "__iter__")
        names: list[Any] = list(columns) if listed else [None]
        numbered = isinstance(party, int) and not isinstance(party, bool)
        if not all(isinstance(name, str) for name in names) or not (
            numbered or isinstance(party, str)
        ):
            raise ConfigError(
                f"The option 'interventions' has {party!r}: {columns!r}; it must be {FORM}."
            )
        found[f"party {party}" if numbered else party] = names
    return found


def split_names(text: str) -> list[str]:
    """Return the names of columns in a text such as ``"x, y"``; commas or semicolons separate."""
    return [name for part in text.replace(";", ",").split(",") if (name := part.strip())]


def targets_by_row(
    table: pd.DataFrame, column: str, own: Iterable[str]
) -> tuple[IntArray, list[Targets]]:
    """Return the targets of each row.

    Parameters
    ----------
    table : DataFrame
        n rows.
    column : str
        The column whose values name the targets of each row, see :func:`split_names`; missing
        values name none.
    own : iterable of str
        Further targets of all rows.

    Returns
    -------
    codes : ndarray of int64, shape (n,)
        Each row's position in ``sets``.
    sets : list of tuple of str

    Raises
    ------
    DataError
        If the table has no such column.
    """
    if column not in table.columns:
        raise DataError(
            f"the table has no column {column!r}, which intervention_column names: add it, with "
            "empty values where there was no intervention"
        )
    texts = table[column]
    codes, values = pd.factorize(texts.where(texts.notna(), "").map(str))
    sets = [tuple(sorted({*own, *split_names(str(value))})) for value in values]
    distinct = sorted(set(sets))
    places = np.array([distinct.index(one) for one in sets], dtype=np.int64)
    return places[np.asarray(codes, dtype=np.int64)], distinct


def acted_on(targets: Sequence[Targets], names: Sequence[str]) -> BoolArray:
    """Return which columns are targets in each set of targets, shape (sets, d)."""
    return np.array([[name in own for name in names] for own in targets], dtype=np.bool_)


def agreed_targets(
    reported: Mapping[str, Sequence[Targets]], names: Sequence[str]
) -> tuple[Targets, ...]:
    """Return the different sets of targets of all parties; () if there are no interventions.

    Parameters
    ----------
    reported : mapping of str to sequence of tuple of str
        By party, the sets of targets of its rows.
    names : sequence of str
        The agreed columns.

    Raises
    ------
    DataError
        If a target is not among the columns, or a column is a target in all rows.
    """
    different = {one for sets in reported.values() for one in sets}
    if not any(different):
        return ()
    for party, sets in reported.items():
        for name in sorted({name for one in sets for name in one}):
            if name not in names:
                raise DataError(
                    f"{party}: {name!r} is stated as the target of an intervention, but it is not "
                    f"one of the columns {', '.join(names)}: correct the name"
                )
    every = sorted(different, key=lambda one: (len(one), one))
    for name in names:
        if all(name in one for one in every):
            raise DataError(
                f"column {name!r} is the target of an intervention in all rows, which then say "
                "nothing about its causes: add rows without this intervention, or leave the column "
                "out"
            )
    return tuple(every)
