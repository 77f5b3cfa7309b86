"""Rows as categories: a party's table in the states that all parties agreed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.data.check.columns import (
    distinct_values,
    find_columns,
    find_numbers,
    kind_of,
    named_states,
)
from flwr_causal.data.check.describe import complete_rows
from flwr_causal.data.check.intervals import apply_cuts, interval_names
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.discrete.cut_points import FloatArray
    from flwr_causal.core.discrete.discrete import Codes
    from flwr_causal.data.check.policy import Policy

__all__ = ["prepare_states"]


def prepare_states(
    frame: pd.DataFrame,
    names: Sequence[str],
    states: Sequence[Sequence[str]],
    policy: Policy | None = None,
    cuts: Mapping[str, FloatArray] | None = None,
) -> DiscreteTable:
    """Return exactly the rows that :func:`~flwr_causal.data.check.checks.describe` counted, as states.

    Parameters
    ----------
    frame : DataFrame
        The party's table.
    names : sequence of str
        The agreed columns, in the agreed order; found by name.
    states : sequence of sequence of str
        The agreed states of each. Those of a column in ``cuts`` are not looked at.
    policy : Policy, optional
        The policy that the table was described with.
    cuts : mapping of str to float64 array, optional
        Agreed cut points, ascending, of the columns that are discretised; their states are
        :func:`~flwr_causal.data.check.intervals.interval_names` of them.

    Returns
    -------
    DiscreteTable
        One variable for each name, every row once.

    Raises
    ------
    DataError
        A column is absent or doubled, has a missing or infinite value in a row that is kept, a
        value that is not among its states, or no agreed states yet.
    """
    cuts = cuts or {}
    kept = complete_rows(frame, policy)
    codes = np.zeros((len(names), int(kept.sum())), dtype=np.uint8)
    known = []
    every = bool(kept.all())
    columns = zip(names, states, find_columns(frame, names), strict=True)
    for position, (name, agreed, column) in enumerate(columns):
        rows = column if every else column[kept]
        if name in cuts:
            numbers = find_numbers(rows)
            _check_complete(name, np.isfinite(numbers).all())
            codes[position] = apply_cuts(numbers, cuts[name])
            known.append(interval_names(cuts[name]))
        else:
            codes[position] = _coded(name, rows, agreed)
            known.append(tuple(agreed))
    return DiscreteTable(tuple(names), tuple(known), codes)


def _coded(name: str, rows: pd.Series, states: Sequence[str]) -> Codes:
    """Return the position of each row's value among the states, shape (n,)."""
    kind = kind_of(rows)
    if kind == "other":
        raise DataError(f"column {name!r} ({rows.dtype}) holds no categories: make it text")
    values, codes = distinct_values(rows, kind)
    _check_complete(name, (codes >= 0).all())
    if not states and len(values):
        raise DataError(
            f"column {name!r} has no agreed states: it is to be discretised, so give its cut points"
        )
    labels, _ = named_states(values, name)
    place = {state: code for code, state in enumerate(states)}
    if not place.keys() >= set(labels):
        raise DataError(
            f"column {name!r} has a value that is not among its {len(states)} agreed states: the "
            "table must not change between the schema exchange and the training"
        )
    lookup: Codes = np.array([place[label] for label in labels], dtype=np.uint8)
    return lookup[codes]


def _check_complete(name: str, complete: Any) -> None:
    if not complete:
        raise DataError(
            f"column {name!r} has missing or infinite values: fill them in (with a state of their "
            "own, if that they are missing means something), or leave those rows out with "
            "missing-values='drop'"
        )
