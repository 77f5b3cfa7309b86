"""Who holds which columns in a run of FedPC."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.circuits.presence import setting_of
from flwr_causal.core.words import some
from flwr_causal.data.check.checks import letters
from flwr_causal.sources.row_ids import check_ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import BoolArray, IntArray
    from flwr_causal.core.circuits.presence import Setting
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport

#: Columns of a party that a warning names.
MOST_NAMED = 3


@dataclass(frozen=True, eq=False)
class Holdings:
    """Who holds what.

    Parameters
    ----------
    parties : tuple of str
        Their names.
    names : tuple of str
        The agreed columns.
    presence : ndarray of bool, shape (parties, columns)
    present : ndarray of int64, shape (parties, columns)
        How many rows have a value.
    missing : ndarray of bool, shape (columns,)
        Whether a holder of the column lacks values in rows that are kept.
    repeated : ndarray of bool, shape (columns,)
        Whether in parties of most rows of the column more than half of the rows have one value; not
        known, and False, in secure sums.
    ids : bool
        Whether all parties have ids by which their rows can be aligned.
    """

    parties: tuple[str, ...]
    names: tuple[str, ...]
    presence: BoolArray
    present: IntArray
    missing: BoolArray
    repeated: BoolArray
    ids: bool

    @classmethod
    def of(cls, agreement: Agreement, reports: Mapping[str, TableReport]) -> Holdings:
        """Return who holds the agreed columns.

        Raises
        ------
        DataError
            If columns differ, and ids repeat or are missing.
        """
        shape = (len(reports), len(agreement.names))
        presence = np.zeros(shape, dtype=np.bool_)
        present = np.zeros(shape, dtype=np.int64)
        lacking = np.zeros(shape, dtype=np.bool_)
        repeating = np.zeros(shape, dtype=np.bool_)
        for party, report in enumerate(reports.values()):
            by_name = {column.name: column for column in report.columns}
            for j, name in enumerate(agreement.names):
                if name in by_name:
                    presence[party, j] = True
                    # Rows with missing values are either left out, or kept with what they lack.
                    holes = 0 if report.dropped_rows else by_name[name].missing
                    present[party, j] = report.rows - holes
                    lacking[party, j] = holes > 0
                    repeating[party, j] = by_name[name].repeated
        ids = all(report.has_ids for report in reports.values())
        if ids and not presence.all():
            check_ids(reports)
        missing = np.asarray(lacking.any(axis=0))
        repeated = 2 * (present * repeating).sum(axis=0) > present.sum(axis=0)
        return cls(tuple(reports), agreement.names, presence, present, missing, repeated, ids)

    def of_columns(self, names: tuple[str, ...]) -> Holdings:
        """Return the holdings of some of the columns."""
        kept = [self.names.index(name) for name in names]
        by_party = (self.presence[:, kept], self.present[:, kept])
        return Holdings(
            self.parties, names, *by_party, self.missing[kept], self.repeated[kept], self.ids
        )

    @property
    def setting(self) -> Setting:
        """Horizontal, vertical or hybrid."""
        return setting_of(self.presence)

    def holders(self, name: str) -> list[str]:
        """Return the parties that hold a column."""
        column = self.presence[:, self.names.index(name)]
        return [party for party, holds in zip(self.parties, column, strict=True) if holds]

    def all_hold(self, name: str) -> bool:
        """Whether every party holds a column."""
        return bool(self.presence[:, self.names.index(name)].all())

    @property
    def holder_sets(self) -> list[int]:
        """A number for each column, equal for those that the same parties hold."""
        same = np.unique(self.presence, axis=1, return_inverse=True)[1]
        return [int(one) for one in same.ravel()]

    @property
    def apart(self) -> BoolArray:
        """Which pairs of columns no party holds together, shape (columns, columns)."""
        held = self.presence.astype(np.int64)
        return np.asarray(held.T @ held == 0)

    @property
    def partly_together(self) -> BoolArray:
        """Which pairs of columns some party holds together, and another one only one of them."""
        sets = np.array(self.holder_sets)
        return np.asarray(~self.apart & (sets[:, np.newaxis] != sets))

    def named(self, column: int) -> str:
        """Return a column and the first party that holds it, in words."""
        return f"{self.names[column]!r} ({self.holders(self.names[column])[0]})"

    def columns_apart(self) -> str:
        """Return a text with each party's columns that some other column is never held beside."""
        lone = self.apart.any(axis=0)
        listed = []
        for party, held in zip(self.parties, self.presence & lone, strict=True):
            names = [repr(self.names[j]) for j in np.flatnonzero(held)]
            if names:
                listed.append(f"{some(names, MOST_NAMED)} ({party})")
        return "; ".join(listed)

    def similar_names(self) -> list[tuple[str, str]]:
        """Return pairs of columns that may be one: like names, no party has both."""
        plain: dict[str, list[int]] = {}
        for j, name in enumerate(self.names):
            plain.setdefault(letters(name), []).append(j)
        return [
            (self.names[one], self.names[other])
            for group in plain.values()
            for one, other in combinations(group, 2)
            if not (self.presence[:, one] & self.presence[:, other]).any()
        ]

    @property
    def repeated_columns(self) -> tuple[str, ...]:
        """The columns of which most rows have one value."""
        return tuple(name for name, one in zip(self.names, self.repeated, strict=True) if one)

    @property
    def incomplete(self) -> tuple[str, ...]:
        """The columns in which values are missing."""
        return tuple(name for name, lacks in zip(self.names, self.missing, strict=True) if lacks)
