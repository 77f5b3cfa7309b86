"""Speculative search: a search that goes on with estimates of the scores it does not know yet.

A server that searches on sums over parties must ask them for every gain that it has not seen: one
exchange for each operator, if it asks only for the next one. Here the search goes on with estimates
to its end, and the server asks at once for every gain that was met on the way. With the answers the
search is run again from its start. It ends when a run meets known gains only. That run is the
search that would have asked step by step, so its result is the same, whatever the estimates. Good
estimates only reduce the number of exchanges.

The estimate of a gain: more parents rarely help the next one, so it is the least of the gains with
one parent fewer, less what the BIC would charge for the cells that the parent adds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.compiled import compiled
from flwr_causal.core.discrete.families import (
    Families,
    empty_families,
    enter,
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
        What a cell costs in the estimates: half the log of the rows, times the number of penalties
        that the sum has (the number of parties, for sums of local scores).
    depth : int, optional
        How many operators a run goes on behind the first that needed an unknown gain. 0 asks for
        one operator at a time. Default: to the end.

    Attributes
    ----------
    families : Families
        The gains that are known. A search that uses this source starts with them and hands its
        table back by :meth:`take_back`.
    asked : ndarray of int64, shape (M, 2)
        The gains (row, x) that the last run lacked.
    """

    def __init__(self, cardinalities: IntArray, price: float, depth: int | None = None) -> None:
        self.cardinalities = np.asarray(cardinalities, dtype=np.int64)
        self.price = price
        self.depth = depth
        self.families = empty_families(len(self.cardinalities))
        self._asked: list[IntArray] = []
        self._foreseen: list[IntArray] = []
        self._first: int | None = None

    @property
    def asked(self) -> IntArray:
        """The gains (row, x) that the last run lacked, shape (M, 2)."""
        return np.concatenate([np.zeros((0, 2), dtype=np.int64), *self._asked])

    def enough(self, num_operators: int) -> bool:
        """Whether the run has gone on far enough behind the first unknown gain."""
        if self.depth is None or not self._asked:
            return False
        if self._first is None:
            self._first = num_operators
        return num_operators - self._first >= self.depth

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Estimate the wanted gains and note them as asked for."""
        entries = np.empty((int(wanted.sum()), 2), dtype=np.int64)
        lacking = np.empty(len(entries), dtype=np.bool_)
        count = _foresee(families, rows, wanted, self.cardinalities, self.price, entries, lacking)
        self._foreseen.append(entries[:count])
        if lacking[:count].any():
            self._asked.append(entries[:count][lacking[:count]])

    def take_back(self, families: Families) -> None:
        """Take over a run's table: the families that it met, without the estimates."""
        for entries in self._foreseen:
            families.gains[entries[:, 0], entries[:, 1]] = np.nan
        self.families = families

    def start_again(self) -> None:
        """Forget what the last run lacked."""
        self._asked, self._foreseen, self._first = [], [], None

    def questions(self) -> Questions:
        """Return what the last run lacked, as it travels."""
        asked = self.asked
        asked = asked[np.lexsort((asked[:, 1], asked[:, 0]))]
        rows, counts = np.unique(asked[:, 0], return_counts=True)
        sizes = self.families.sizes[rows]
        members = [self.families.members[row, :size] for row, size in zip(rows, sizes, strict=True)]
        flat = np.concatenate([np.zeros(0, dtype=np.int32), *members])
        numbers = (self.families.owners[rows], sizes, flat, counts, asked[:, 1])
        return Questions(*(np.asarray(array).astype(np.uint16) for array in numbers))

    def learn(self, gains: FloatArray) -> None:
        """Take the answers to :meth:`questions`, shape (M,)."""
        asked = self.asked
        asked = asked[np.lexsort((asked[:, 1], asked[:, 0]))]
        self.families.gains[asked[:, 0], asked[:, 1]] = gains


def questions_about(dag: BoolArray) -> Questions:
    """Return the questions what each edge of a DAG gains beside the child's other parents.

    The answers come by child, then by parent, both ascending.
    """
    sizes, members, others = [], [], []
    owners = []
    for y in range(len(dag)):
        parents = np.flatnonzero(dag[:, y])
        for x in parents:
            owners.append(y)
            sizes.append(len(parents) - 1)
            members.append(parents[parents != x])
            others.append(x)
    flat = np.concatenate([np.zeros(0, dtype=np.int64), *members])
    numbers = (owners, sizes, flat, np.ones(len(owners)), others)
    return Questions(*(np.asarray(array).astype(np.uint16) for array in numbers))


def answer(questions: Questions, source: GainSource, num_variables: int) -> FloatArray:
    """Return the gains that are asked for, shape (M,), from a source that has them all."""
    last_member = np.cumsum(questions.sizes, dtype=np.int64)
    last_other = np.cumsum(questions.num_others, dtype=np.int64)
    answers = np.empty(len(questions.others))
    for first in range(0, len(questions.owners), CHUNK):
        chunk = range(first, min(first + CHUNK, len(questions.owners)))
        width = max(8, int(questions.sizes[first : chunk.stop].max()))
        families = empty_families(num_variables, len(chunk), width)
        wanted = np.zeros((len(chunk), num_variables), dtype=np.bool_)
        for k, row in enumerate(chunk):
            members = questions.members[last_member[row] - questions.sizes[row] : last_member[row]]
            owner = int(questions.owners[row])
            enter(families, owner, members.astype(np.int32), len(members))
            others = questions.others[last_other[row] - questions.num_others[row] : last_other[row]]
            wanted[k, others] = True
        source.fill(families, np.arange(len(chunk)), wanted)
        begin = last_other[first] - questions.num_others[first]
        # The questions of a family are in ascending order, as the marked entries of its row are.
        answers[begin : last_other[chunk.stop - 1]] = families.gains[wanted]
    return answers


@compiled
def _foresee(
    families: Families,
    rows: IntArray,
    wanted: BoolArray,
    cards: IntArray,
    price: float,
    entries: IntArray,
    lacking: NDArray[np.bool_],
) -> int:
    """Estimate the wanted gains; write them to ``entries`` (row, x), and which are to be asked."""
    count = 0
    for k in range(len(rows)):
        row = rows[k]
        for x in range(len(cards)):
            if not wanted[k, x] or not math.isnan(families.gains[row, x]):
                continue
            entries[count, 0], entries[count, 1] = row, x
            # The gain is symmetric: it may be known, or asked for, the other way round.
            y, size = families.owners[row], families.sizes[row]
            other = find(families, x, families.members[row], size)
            known = other >= 0 and not math.isnan(families.gains[other, y])
            lacking[count] = not known
            if known:
                families.gains[row, x] = families.gains[other, y]
            else:
                families.gains[row, x] = _estimate(families, row, x, cards, price)
            count += 1
    return count


@compiled
def _estimate(families: Families, row: int, x: int, cards: IntArray, price: float) -> float:
    """Return the least gain with one parent fewer, less the price of the cells it adds."""
    y, size = families.owners[row], families.sizes[row]
    members = families.members[row]
    cells = 1.0
    for k in range(size):
        cells *= cards[members[k]]
    least = math.inf
    fewer = np.empty(size, dtype=np.int32)
    for left_out in range(size):
        count = 0
        for k in range(size):
            if k != left_out:
                fewer[count] = members[k]
                count += 1
        smaller = find(families, y, fewer, count)
        if smaller < 0 or math.isnan(families.gains[smaller, x]):
            continue
        card = cards[members[left_out]]
        growth = cells / card * (card - 1.0) * (cards[x] - 1.0) * (cards[y] - 1.0)
        least = min(least, families.gains[smaller, x] - price * growth)
    if least < math.inf:
        return least
    alone = find(families, y, fewer, 0)
    if alone >= 0 and not math.isnan(families.gains[alone, x]):
        return families.gains[alone, x]
    return -1.0
