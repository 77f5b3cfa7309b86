"""Gains of the conditional Gaussian score, from the rows of a table or from summed moments.

The score of a family is ``s(y | S) = F(S + y) - F(S)`` with ``F`` of
:meth:`flwr_causal.core.discrete.mixed_moments.MixedSums.score`, so that the gain of x as a further
parent of y needs ``F`` of four sets. The sums of a set give ``F`` of all its subsets.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.discrete.mixed_moments import (
    MOST_CONFIGURATIONS,
    MixedSums,
    MixedTable,
    mixed_sums,
    num_configurations,
)
from flwr_causal.core.ges.speculative_search import SpeculativeGains

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import BoolArray, IntArray
    from flwr_causal.core.discrete.families import Families

#: Gain of a parent with which a family has too many configurations.
REFUSED = -1e12


class MixedTableGains:
    """Gains of the conditional Gaussian score from the rows of a table.

    Parameters
    ----------
    table : MixedTable
        The rows.
    """

    def __init__(self, table: MixedTable) -> None:
        self.table = table
        self._scores: dict[tuple[int, ...], float] = {}

    def must_stop(self) -> bool:
        """Return False: every gain can be computed here."""
        return False

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Compute the wanted gains of some rows of ``families``."""
        _fill(families, rows, wanted, self.table.cards, self._score)

    def _score(self, whole: tuple[int, ...], *left_out: int) -> float:
        members = tuple(k for k in whole if k not in left_out)
        if members not in self._scores:
            self._scores[members] = mixed_sums(self.table, members).score()
        return self._scores[members]


class SummedMixedGains(SpeculativeGains):
    """Gains of the conditional Gaussian score from summed moments, estimates of the others.

    Parameters
    ----------
    cards : ndarray of int64, shape (d,)
        Number of states of each category; 0: a number.
    num_rows : int
        Rows of all parties together.
    own_margins : bool, default False
        Whether each gain follows from the moments of one set and their own margins, as it must
        where sets have different rows.

    Attributes
    ----------
    tables : dict
        The summed moments of each set, by its members.
    """

    def __init__(
        self,
        cards: IntArray,
        num_rows: int,
        own_margins: bool = False,
    ) -> None:
        super().__init__(np.maximum(cards, 2), 0.5 * math.log(max(num_rows, 2)))
        self.cards = cards
        self.tables: dict[tuple[int, ...], MixedSums] = {}
        self.own_margins = own_margins
        # By set; with own margins by the larger set and what the set lacks of it.
        self._scores: dict[tuple[Any, ...], float] = {}

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Compute the gains whose moments are known; estimate and ask for the others."""
        _fill(families, rows, wanted, self.cards, self._score)
        super().fill(families, rows, wanted)

    def _key(self, whole: tuple[int, ...], left_out: tuple[int, ...]) -> tuple[Any, ...]:
        if self.own_margins:
            return whole, left_out
        return tuple(k for k in whole if k not in left_out)

    def _score(self, whole: tuple[int, ...], *left_out: int) -> float | None:
        return self._scores.get(self._key(whole, tuple(sorted(left_out))))

    def learn_moments(self, parts: Sequence[MixedSums]) -> None:
        """Store the summed moments of sets, and the scores of their subsets."""
        for part in parts:
            self.tables[part.members] = part
            for size in (0, 1, 2):
                for left_out in combinations(part.members, size):
                    key = self._key(part.members, left_out)
                    if key not in self._scores:
                        self._scores[key] = part.without(left_out).score()

    def moments(self, members: Sequence[int]) -> MixedSums | None:
        """Return the summed moments of a set, None if no known set contains it."""
        wanted = set(members)
        for known, part in self.tables.items():
            if wanted <= set(known):
                return part.without([k for k in known if k not in wanted])
        return None


def _fill(
    families: Families,
    rows: IntArray,
    wanted: BoolArray,
    cards: IntArray,
    score: Callable[..., float | None],
) -> None:
    """Write the wanted gains whose four scores are known.

    ``score`` takes a set and the members that are left out of it.
    """
    for row, others in zip(rows, wanted, strict=True):
        y = int(families.owners[row])
        given = tuple(families.members[row, : families.sizes[row]].tolist())
        for x in np.flatnonzero(others & np.isnan(families.gains[row])).tolist():
            everything = tuple(sorted((*given, x, y)))
            if num_configurations(cards, everything) > MOST_CONFIGURATIONS:
                families.gains[row, x] = REFUSED
                continue
            both, with_x = score(everything), score(everything, y)
            with_y, none = score(everything, x), score(everything, x, y)
            if both is None or with_x is None or with_y is None or none is None:
                continue
            families.gains[row, x] = both - with_x - with_y + none
