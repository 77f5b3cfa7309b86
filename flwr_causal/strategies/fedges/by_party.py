"""Parties compared by the tables of a network's families that each of them sent.

The states of a category are columns, 1 in its rows and 0 in the others. A family's table has their
products, so that parties are compared as by the moments of columns; products of variables that are
in no family are unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.blocks.design import Category, column_names
from flwr_causal.core.blocks.disagreement import disagreement
from flwr_causal.core.discrete.contingency_tables import ContingencyCounts, Sets, tables_of
from flwr_causal.core.linear.moments import Moments, columns_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray


def disagreement_of_tables(
    replies: Mapping[str, Arrays],
    asked: Mapping[str, Any],
    names: Sequence[str],
    states: Sequence[Sequence[Any]],
    edges: BoolArray,
) -> pd.DataFrame | None:
    """Compare parties by the tables that each of them sent.

    Parameters
    ----------
    replies : mapping of str to dict
        By party, its tables as they arrive.
    asked : mapping of str to ndarray
        ``sizes`` and ``members`` of the sets, see :class:`Sets`.
    names : sequence of str
        In the order of the sets' members.
    states : sequence of sequence
        Of each variable.
    edges : ndarray of bool, shape (d, d)
        A DAG whose families are among the sets.

    Returns
    -------
    DataFrame or None
        See :func:`flwr_causal.core.blocks.disagreement.disagreement`; None where fewer than two
        parties have rows.
    """
    variables = [
        Category(name, tuple(map(str, own))) for name, own in zip(names, states, strict=True)
    ]
    sets = Sets(np.asarray(asked["sizes"]), np.asarray(asked["members"]))
    columns = columns_of([one.width for one in variables])
    cardinalities = np.array([len(one.states) for one in variables], dtype=np.int64)
    parties: dict[str, Moments] = {}
    for party, arrays in replies.items():
        counts = ContingencyCounts(*(arrays[name] for name in ContingencyCounts._fields))
        tables = tables_of(sets, counts, cardinalities)
        moments = _moments(tables, sets, columns, column_names(variables))
        if moments is not None:
            parties[party] = moments
    return disagreement(variables, parties, edges) if len(parties) > 1 else None


def _moments(
    tables: Sequence[IntArray], sets: Sets, columns: Sequence[IntArray], names: tuple[str, ...]
) -> Moments | None:
    """Return the moments of the columns of states; NaN of those that no table has together."""
    size = len(names)
    mean, second = np.zeros(size), np.full((size, size), np.nan)
    rows = 0
    for members, table in zip(sets.lists(), tables, strict=True):
        n = int(table.sum())
        if not n:
            return None
        rows = max(rows, n)
        shares = table / n
        for place, one in enumerate(members.tolist()):
            own = _margin(shares, (place,))[:-1]
            mean[columns[one]] = own
            second[np.ix_(columns[one], columns[one])] = np.diag(own) - np.outer(own, own)
            for later, other in enumerate(members[place + 1 :].tolist(), start=place + 1):
                both = _margin(shares, (place, later))
                product = both[:-1, :-1] - np.outer(both.sum(axis=1)[:-1], both.sum(axis=0)[:-1])
                second[np.ix_(columns[one], columns[other])] = product
                second[np.ix_(columns[other], columns[one])] = product.T
    return Moments(rows, mean, second, names)


def _margin(shares: FloatArray, kept: tuple[int, ...]) -> FloatArray:
    """Return the sums of a table over all axes but some."""
    others = tuple(axis for axis in range(shares.ndim) if axis not in kept)
    return np.asarray(shares.sum(axis=others))
