"""Speculative search: a search that uses estimates where gains are unknown.

A server that searches on sums over parties must ask the parties for every unknown gain. If it asks
for the gains of the next operator only, the search takes one exchange for each operator. Here the
search continues to its end with estimates of unknown gains, and the server asks in one exchange for
all gains that were unknown on the way. With the answers the search is run again from its start,
until a run uses known gains only. That run equals the search that asks operator by operator, so the
result does not depend on the estimates. Better estimates reduce the number of exchanges.

The estimate of a gain is the least of the gains with one parent fewer, because a parent rarely
gains more beside further parents, minus the BIC's penalty for the cells that the parent adds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.compiled import compiled_in_place
from flwr_causal.core.discrete.families import (
    Families,
    empty_families,
    find,
)

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.ges.greedy_search import GainSource

Indices = NDArray[np.uint16]

# Rows of gains that are computed at a time: a row has d entries, of which few may be asked for.
CHUNK = 512


class Questions(NamedTuple):
    """Gains that are asked for, as they travel: families and the further parents of each.

    Attributes
    ----------
    owners : ndarray of uint16, shape (R,)
        y of each family (y, S).
    sizes : ndarray of uint16, shape (R,)
        Size of S.
    members : ndarray of uint16, shape (sum of sizes,)
    num_others : ndarray of uint16, shape (R,)
        How many x are asked for.
    others : ndarray of uint16, shape (M,)
        The x; the answer has one gain for each, in this order.
    """

    owners: Indices
    sizes: Indices
    members: Indices
    num_others: Indices
    others: Indices


class SpeculativeGains:
    """Gains that a server knows, and estimates of the others.

    Parameters
    ----------
    cardinalities : ndarray of int64, shape (d,)
        Numbers of states.
    price : float
        Penalty of a cell in the estimates: half the logarithm of the number of rows, times the
        number of penalties in the sum (for sums of local scores the number of parties).

    Attributes
    ----------
    known_only : bool
        Whether a run stops where it needs an unknown gain. Default: False, it runs to its end.
    families : Families
        The gains that are known. A search that uses this source starts with them and hands its
        table back by :meth:`take_back`.
    asked : ndarray of int64, shape (M, 2)
        The gains (row, x) that the runs since :meth:`start_again` lacked.
    """

    def __init__(self, cardinalities: IntArray, price: float) -> None:
        self.cardinalities = np.asarray(cardinalities, dtype=np.int64)
        self.price = price
        self.known_only = False
        self.families = empty_families(len(self.cardinalities))
        self._asked: list[IntArray] = []
        self._foreseen: list[IntArray] = []

    @property
    def asked(self) -> IntArray:
        """The gains (row, x) that the last runs lacked, shape (M, 2)."""
        return np.concatenate([np.zeros((0, 2), dtype=np.int64), *self._asked])

    def enough(self) -> bool:
        """Whether the run is to stop: it needs an unknown gain, and is to take no estimate."""
        return self.known_only and bool(self._asked)

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Estimate the wanted gains and note them as asked for."""
        entries = np.empty((int(wanted.sum()), 3), dtype=np.int64)
        work = np.empty((2, families.members.shape[1]), dtype=np.int64)
        count = _foresee(
            families, rows, wanted, self.cardinalities, float(self.price), entries, work
        )
        self._foreseen.append(entries[:count, :2])
        lacking = entries[:count, 2] > 0
        if lacking.any():
            self._asked.append(entries[:count, :2][lacking])

    def take_back(self, families: Families) -> None:
        """Keep a run's table of families, without the estimates."""
        for entries in self._foreseen:
            families.gains[entries[:, 0], entries[:, 1]] = np.nan
        self.families = families

    def start_again(self) -> None:
        """Clear the list of unknown gains before another run."""
        self._asked, self._foreseen = [], []

    def in_order(self) -> IntArray:
        """Return :attr:`asked`, each once, by row and then by x, as :meth:`questions` does."""
        # One number for each pair: to sort numbers is faster than to sort rows.
        d = len(self.cardinalities)
        numbers = np.unique(self.asked @ np.array([d, 1]))
        return np.stack(np.divmod(numbers, d), axis=1)

    def questions(self) -> Questions:
        """Return the gains that the last run lacked, as they are sent to the parties."""
        asked = self.in_order()
        rows, counts = np.unique(asked[:, 0], return_counts=True)
        sizes = self.families.sizes[rows]
        members = [self.families.members[row, :size] for row, size in zip(rows, sizes, strict=True)]
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *members])
        numbers = (self.families.owners[rows], sizes, flat, counts, asked[:, 1])
        return Questions(*(np.asarray(array).astype(np.uint16) for array in numbers))

    def learn(self, gains: FloatArray) -> None:
        """Store the answers to :meth:`questions`, shape (M,)."""
        asked = self.in_order()
        self.families.gains[asked[:, 0], asked[:, 1]] = gains


def answer(questions: Questions, source: GainSource, num_variables: int) -> FloatArray:
    """Return the gains that are asked for, shape (M,), from a source that has them all."""
    first_member = np.cumsum(questions.sizes, dtype=np.int64) - questions.sizes
    first_other = np.cumsum(questions.num_others, dtype=np.int64) - questions.num_others
    answers = np.empty(len(questions.others))
    for first in range(0, len(questions.owners), CHUNK):
        chunk = slice(first, first + CHUNK)
        sizes, nums = questions.sizes[chunk], questions.num_others[chunk]
        width = max(8, int(sizes.max()))
        families = empty_families(num_variables, len(sizes), width)
        families.owners[:], families.sizes[:] = questions.owners[chunk], sizes
        begin = first_member[first]
        families.members[np.arange(width) < sizes[:, None]] = questions.members[
            begin : begin + int(sizes.sum(dtype=np.int64))
        ]
        both = slice(first_other[first], first_other[first] + int(nums.sum(dtype=np.int64)))
        wanted = np.zeros((len(sizes), num_variables), dtype=np.bool_)
        wanted[np.repeat(np.arange(len(sizes)), nums), questions.others[both]] = True
        source.fill(families, np.arange(len(sizes)), wanted)
        # The questions of a family are in ascending order, as the marked entries of its row are.
        answers[both] = families.gains[wanted]
    return answers


@compiled_in_place
def _foresee(
    families: Families,
    rows: IntArray,
    wanted: BoolArray,
    cards: IntArray,
    price: float,
    entries: IntArray,
    work: IntArray,
) -> int:
    """Estimate the wanted gains; list them in ``entries``: row, x, and whether to ask for it.

    ``work``, shape (2, W), is scratch space. Returns the number of entries.
    """
    count = 0
    fewer = work[0]
    for k in range(len(rows)):
        row = rows[k]
        y, size, members = families.owners[row], families.sizes[row], families.members[row]
        cells = 1.0
        for left_out in range(size):
            cells *= cards[members[left_out]]
            m = 0
            for j in range(size):
                if j != left_out:
                    fewer[m] = members[j]
                    m += 1
            work[1, left_out] = find(families, y, fewer, size - 1)
        alone = find(families, y, fewer, np.int64(0))
        for x in range(len(cards)):
            if not wanted[k, x] or not math.isnan(families.gains[row, x]):
                continue
            entries[count, 0] = row
            entries[count, 1] = x
            # The gain is symmetric in x and y: that of (x, S, y) may be known.
            other = find(families, x, members, size)
            known = other >= 0 and not math.isnan(families.gains[other, y])
            entries[count, 2] = not known
            count += 1
            if known:
                families.gains[row, x] = families.gains[other, y]
                continue
            # The least gain with one parent fewer, minus the penalty for the cells that x adds.
            least = math.inf
            for left_out in range(size):
                smaller = work[1, left_out]
                if smaller >= 0 and not math.isnan(families.gains[smaller, x]):
                    card = cards[members[left_out]]
                    growth = cells / card * (card - 1.0) * (cards[x] - 1.0) * (cards[y] - 1.0)
                    least = min(least, families.gains[smaller, x] - price * growth)
            if least == math.inf:
                least = -1.0
                if alone >= 0 and not math.isnan(families.gains[alone, x]):
                    least = families.gains[alone, x]
            families.gains[row, x] = least
    return count
