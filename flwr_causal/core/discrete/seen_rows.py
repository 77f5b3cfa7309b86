"""Gains and contingency tables of rows with missing cells, without filling these in.

What concerns a set of variables is computed from the rows in which all of them are seen. The gain
of a further parent compares two families on the same rows. It is multiplied by the number of all
rows over the number of these rows: it is then all rows times a difference of two means over rows,
as in the node-average likelihood (Bodewes & Scutari 2021), whose means are over different rows.
In a greedy search on samples of alarm and child with 15 % missing cells that likelihood has 3 to 10
times as many errors.

References
----------
Bodewes, T. & Scutari, M. (2021). Learning Bayesian networks from incomplete data with the
node-average likelihood. International Journal of Approximate Reasoning 138.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.discrete.contingency_tables import ContingencyCounts, sets_of, tabulate
from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.discrete.families import empty_families, row_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, IntArray
    from flwr_causal.core.discrete.contingency_tables import Sets
    from flwr_causal.core.discrete.families import Families
    from flwr_causal.core.discrete.scores import TableGains


@dataclass(frozen=True, eq=False)
class SeenTable:
    """A table with missing cells.

    Parameters
    ----------
    table : DiscreteTable
        Every row once; the codes of missing cells are arbitrary.
    seen : ndarray of bool, shape (d, n)
        Which cells are not missing.
    """

    table: DiscreteTable
    seen: BoolArray

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self.table.nbytes + self.seen.nbytes

    def of(self, members: Sequence[int]) -> DiscreteTable:
        """Return these columns of the rows in which all of them are seen, equal rows merged."""
        chosen = self.table.reordered(members)
        kept = self.seen[list(members)].all(axis=0)
        codes = chosen.codes[:, kept]
        shape = tuple(chosen.cardinalities.tolist())
        if np.prod(shape, dtype=np.float64) > codes.shape[1]:
            return DiscreteTable(chosen.names, chosen.states, codes).compressed()
        counts = np.bincount(np.ravel_multi_index(tuple(codes.astype(np.int64)), shape))
        cells = np.flatnonzero(counts)
        distinct = np.array(np.unravel_index(cells, shape), dtype=np.uint8)
        return DiscreteTable(chosen.names, chosen.states, distinct, counts[cells])


class SeenGains:
    """Gains from the rows in which a family and its further parent are seen, for all rows.

    Parameters
    ----------
    rows : SeenTable
    source : TableGains
        Says which gains; those of a table of the same variables. Its own rows are not used.
    """

    def __init__(self, rows: SeenTable, source: TableGains) -> None:
        self.rows = rows
        self.source = source

    def must_stop(self) -> bool:
        """Return False: every gain can be computed here."""
        return False

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Compute the wanted gains of some rows of ``families``; 0 where no row has all columns."""
        for row, marked in zip(rows.tolist(), wanted, strict=True):
            members = families.members[row, : families.sizes[row]].tolist()
            for x in np.flatnonzero(marked).tolist():
                if np.isnan(families.gains[row, x]):
                    families.gains[row, x] = self._gain([*members, int(families.owners[row]), x])

    def _gain(self, columns: Sequence[int]) -> float:
        """Return the gain of the last column as a parent of the last but one given the others."""
        kept = self.rows.seen[columns].all(axis=0)
        codes = self.rows.table.codes[columns][:, kept]
        num_rows, last = codes.shape[1], len(columns) - 1
        if not num_rows:
            return 0.0
        own, row = row_of(empty_families(len(columns), 1), last - 1, range(last - 1))
        wanted = np.arange(len(columns))[None, :] == last
        self.source.on(codes, columns).fill(own, np.array([row]), wanted)
        return float(own.gains[row, last] * kept.size / num_rows)


def tabulate_seen(rows: SeenTable, sets: Sets) -> ContingencyCounts:
    """Count, for each set of variables, the rows in which all of them are seen.

    Parameters and result are those of :func:`contingency_tables.tabulate`.
    """
    kind = np.min_scalar_type(max(rows.table.num_rows, 1))
    found = [
        tabulate(rows.of(members.tolist()), sets_of([range(len(members))]))
        for members in sets.lists()
    ]
    none = np.zeros(0, dtype=np.int64)
    return ContingencyCounts(
        np.concatenate([none, *(own.dense for own in found)]).astype(kind),
        np.concatenate([none, *(own.cells for own in found)]),
        np.concatenate([none, *(own.values for own in found)]).astype(kind),
        np.concatenate([none, *(own.lengths for own in found)]),
    )
