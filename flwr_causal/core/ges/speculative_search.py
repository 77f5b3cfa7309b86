"""Speculative search: a server searches on sums over parties, with estimates of unknown gains.

A server that searches on sums over parties must ask the parties for every unknown gain. If it asks
for the gains of the next operator only, the search takes one exchange for each operator. Here the
search continues to its end with estimates of unknown gains, and the server asks in one exchange for
all gains that were unknown on the way. With the answers the search is run again from its start,
until a run uses known gains only. That run equals the search that asks operator by operator, so the
result does not depend on the estimates. Better estimates reduce the number of exchanges.

The estimate of a gain is the least of the gains with one parent fewer, because a parent rarely
gains more beside further parents, minus the BIC's penalty for the cells that the parent adds.

The classes differ in the sums from which gains become known:

- `SpeculativeGains`: sums of the parties' own gains.
- `SummedGains`: sums of the parties' likelihoods, with one penalty for the rows of all parties.
- `CountedGains`: contingency tables; the search then equals the one on the pooled rows.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.compiled import compiled_in_place, compiled_inside
from flwr_causal.core.discrete.contingency_tables import (
    DENSE_CELLS,
    ContingencyCounts,
    Sets,
    num_cells,
)
from flwr_causal.core.discrete.families import (
    Families,
    empty_families,
    find,
    rows_of,
)
from flwr_causal.core.discrete.scores import (
    ScoreTerms,
    penalty,
    penalty_gains,
    terms_of_counts,
)
from flwr_causal.core.limits import check_deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray, Integer
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
        The gains that the runs since :meth:`start_again` lacked: the row of the family (y, S) in
        ``families``, and x.
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

    def must_stop(self) -> bool:
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

    def unknown(self) -> IntArray:
        """Return :attr:`asked`, each once, by row and then by x, as :meth:`questions` does."""
        # One number for each pair: to sort numbers is faster than to sort rows.
        d = len(self.cardinalities)
        numbers = np.unique(self.asked @ np.array([d, 1]))
        return np.stack(np.divmod(numbers, d), axis=1)

    def questions(self) -> Questions:
        """Return the gains that the last run lacked, as they are sent to the parties."""
        asked = self.unknown()
        rows, counts = np.unique(asked[:, 0], return_counts=True)
        sizes = self.families.sizes[rows]
        members = [self.families.members[row, :size] for row, size in zip(rows, sizes, strict=True)]
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *members])
        numbers = (self.families.owners[rows], sizes, flat, counts, asked[:, 1])
        return Questions(*(np.asarray(array).astype(np.uint16) for array in numbers))

    def learn(self, gains: FloatArray) -> None:
        """Store the answers to :meth:`questions`, shape (M,)."""
        asked = self.unknown()
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
                    less = families.gains[smaller, x] - price * growth
                    if less < least:
                        least = less
            if least == math.inf:
                # No smaller family is known: the gain without parents, else no improvement.
                least = -1.0
                if alone >= 0 and not math.isnan(families.gains[alone, x]):
                    least = families.gains[alone, x]
            families.gains[row, x] = least
    return count


# -- gains from sums of the parties' likelihoods ---------------------------------------------------

#: Standard deviations by which a sum must exceed what independence gives: if a search on counts
#: follows, which can remove edges, and if none does. Measured on samples of alarm, hailfinder,
#: win95pts and andes with 5 to 20 parties.
SCREENING_NOISE, NOISE = 5.0, 6.0


class SummedGains(SpeculativeGains):
    """Gains from sums of the parties' likelihoods, estimates of the others.

    The sum of the parties' own gains in log-likelihood
    (:mod:`flwr_causal.core.discrete.likelihood_gains`) is that of a model in which every party has
    its own probabilities. Where x and y are independent given S, K parties add K mean gains, not
    one: the sum is reduced by ``excess = (1 - 1/K) * sum of the means``, which leaves one of them.
    And the variance of the sum is larger than that of the gain of the pooled rows by about the
    excess (twice a gain is about chi-squared, whose variance is twice its mean). A gain is
    therefore

        sum of gains - excess - max(penalty, noise * sqrt(excess)),

    with the penalty of BIC or qNML for the rows of all parties together. For one party it is the
    gain of BIC or qNML.

    Parameters
    ----------
    cardinalities : ndarray of int64, shape (d,)
    terms : ScoreTerms
        BIC or qNML of the rows of all parties.
    num_parties : int
    noise : float, default NOISE
        Standard deviations by which a sum must exceed what independence gives.
    """

    def __init__(
        self,
        cardinalities: IntArray,
        terms: ScoreTerms,
        num_parties: int,
        noise: float = NOISE,
    ) -> None:
        super().__init__(cardinalities, 0.5 * math.log(max(terms.num_rows, 2.0)))
        self.terms = terms
        self.num_parties = num_parties
        self.noise = noise

    def learn_sums(self, likelihoods: FloatArray, means: FloatArray) -> None:
        """Store the sums of the answers to :meth:`questions`, each of shape (M,)."""
        excess = (1.0 - 1.0 / self.num_parties) * means
        rows, others = self.unknown().T
        penalties = penalty_gains(self.terms, self.families, rows, others, self.cardinalities)
        least = np.maximum(penalties, self.noise * np.sqrt(excess))
        self.families.gains[rows, others] = likelihoods - excess - least


# -- gains from summed contingency tables ----------------------------------------------------------

#: A table has fewer members.
MOST_MEMBERS = 64


class CountedGains(SpeculativeGains):
    """Gains from the contingency tables that a server knows, estimates of the others.

    A score is ``s(y | S) = F(S + y) - F(S)``, where ``F(B)`` is a sum over the cells of the
    contingency table of B. The table of a set A gives ``F(B)`` for every subset B of A, and so the
    gain of x as a parent of y given S for every split of A into x, y and S. The sums over the cells
    of A, and of A without one or two of its members, are kept.

    Parameters
    ----------
    cardinalities : ndarray of int64, shape (d,)
    terms : ScoreTerms
        The score of the pooled rows.
    price : float
        See :class:`SpeculativeGains`.
    edge_cost : float, default 0.0
        Subtracted from the gain of every further parent.
    own_margins : bool, default False
        Whether each gain follows from one table and its own margins, as it must where tables count
        different rows.
    """

    def __init__(
        self,
        cardinalities: IntArray,
        terms: ScoreTerms,
        price: float,
        edge_cost: float = 0.0,
        own_margins: bool = False,
    ) -> None:
        super().__init__(cardinalities, price)
        self.own_margins = own_margins
        self.terms = terms
        self.edge_cost = edge_cost
        # F of each set, in a table of families with one column: owner 0, the set as members. With
        # own margins the members are those of the table, and the owner says which the margin lacks.
        self.sums = empty_families(1)

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Compute the gains whose tables are known; estimate and ask for the others."""
        work = np.empty((2, families.members.shape[1] + 2), dtype=np.int64)
        _compute(
            families,
            rows,
            wanted,
            self.sums,
            float(self.edge_cost),
            self.own_margins,
            work,
        )
        super().fill(families, rows, wanted)

    def learn_counts(self, sets: Sets, counts: ContingencyCounts) -> None:
        """Store F of the tables of sets, and of their margins without one or two variables."""
        sizes = sets.sizes.astype(np.int64)
        lengths = num_cells(sets, self.cardinalities).astype(np.int64)
        narrow = lengths <= DENSE_CELLS
        first = np.cumsum(sizes) - sizes
        begins = np.cumsum(np.where(narrow, lengths, 0)) - lengths
        dense = counts.dense.astype(np.int64)
        for size in np.unique(sizes[narrow]).tolist():
            which = np.flatnonzero(narrow & (sizes == size))
            members = sets.members[first[which, None] + np.arange(size)].astype(np.int64)
            owners = np.repeat(np.arange(len(which)), lengths[which])
            starts = np.cumsum(lengths[which]) - lengths[which]
            cells = np.arange(len(owners)) - starts[owners]
            values = dense[begins[which][owners] + cells]
            self._learn(members, owners[values > 0], cells[values > 0], values[values > 0])
        ends = np.cumsum(counts.lengths)
        for index, own, end in zip(np.flatnonzero(~narrow), counts.lengths, ends, strict=True):
            members = sets.members[first[index] : first[index] + sizes[index]].astype(np.int64)
            part = slice(end - own, end)
            none = np.zeros(int(own), dtype=np.int64)
            self._learn(members[None], none, counts.cells[part], counts.values[part])

    def _learn(
        self, members: IntArray, owners: IntArray, cells: IntArray, values: NDArray[Any]
    ) -> None:
        """Store F of tables of equally many variables, and of their margins.

        Parameters
        ----------
        members : ndarray of int64, shape (m, k)
            The variables of each table.
        owners, cells, values : ndarray, shape (c,)
            Of each cell that is not empty: the table, the cell's number, and its count.
        """
        cards, places = self.cardinalities[members], range(members.shape[1])
        codes, rest = [cells] * len(places), cells
        for k in reversed(places):
            rest, codes[k] = np.divmod(rest, cards[owners, k])
        for left_out in ((), *((i,) for i in places), *combinations(places, 2)):
            check_deadline()
            kept = [k for k in places if k not in left_out]
            margin, whose = 0, members[:, kept]
            if self.own_margins:
                margin = int(_margin(left_out[0], left_out[-1])) if left_out else 0
                whose = members
            self.sums, rows = rows_of(self.sums, margin, whose)
            # Each set once, unless its sum is known.
            chosen = np.zeros(len(members), dtype=np.bool_)
            chosen[np.unique(rows, return_index=True)[1]] = True
            chosen &= np.isnan(self.sums.gains[rows, 0])
            lengths = np.where(chosen, cards[:, kept].prod(axis=1), 0)
            inside = chosen[owners]
            number = np.zeros(int(inside.sum()), dtype=np.int64)
            for k in kept:
                number = number * cards[owners[inside], k] + codes[k][inside]
            if lengths.max() > DENSE_CELLS:  # a single table
                _, number = np.unique(number, return_inverse=True)
                added = np.bincount(number, weights=values)
                sums = terms_of_counts(self.terms, float(lengths[0]), added).sum()
            elif chosen.any():
                starts = np.cumsum(lengths) - lengths
                added = np.bincount(
                    starts[owners[inside]] + number, values[inside], minlength=int(lengths.sum())
                )
                own = terms_of_counts(self.terms, np.repeat(lengths, lengths) * 1.0, added)
                sums = np.add.reduceat(own, starts[chosen])
            else:
                continue
            self.sums.gains[rows[chosen], 0] = sums - penalty(self.terms, lengths[chosen] * 1.0)


def lacking_sets(sources: Sequence[SpeculativeGains]) -> Sets:
    """Return the sets (S, x and y) whose gains the last runs of some sources lacked, each once."""
    num_variables = len(sources[0].cardinalities)
    width = max(2 + int(own.families.sizes[own.asked[:, 0]].max(initial=0)) for own in sources)
    # Each set as an ascending row, padded with a number that is no variable's.
    rows = [np.zeros((0, width), dtype=np.int64)]
    for source in sources:
        families, asked = source.families, source.asked
        members = families.members[asked[:, 0], : width - 2]
        inside = np.arange(members.shape[1]) < families.sizes[asked[:, 0], None]
        own = np.full((len(asked), width), num_variables)
        own[:, : members.shape[1]] = np.where(inside, members, num_variables)
        own[:, -2], own[:, -1] = families.owners[asked[:, 0]], asked[:, 1]
        rows.append(own)
    distinct = np.unique(np.sort(np.concatenate(rows), axis=1), axis=0)
    inside = distinct < num_variables
    return Sets(inside.sum(axis=1).astype(np.uint16), distinct[inside].astype(np.uint16))


@compiled_in_place
def _compute(
    families: Families,
    rows: IntArray,
    wanted: BoolArray,
    sums: Families,
    edge_cost: float,
    own: bool,
    work: IntArray,
) -> None:
    """Write the wanted gains whose four sums are known; ``work``, (2, W + 2), is scratch space.

    The gain is F(S + x + y) - F(S + x) - F(S + y) + F(S), less the cost; ``both``,
    ``known_x``, ``known_y`` and ``known_s`` are the rows of these in ``sums``, negative if unknown.
    """
    values = sums.gains
    with_y, further, zero = work[0], work[1], np.int64(0)
    for k in range(len(rows)):
        row = rows[k]
        y, size, members = families.owners[row], families.sizes[row], families.members[row]
        _with(members, size, y, with_y)
        known_s: Integer = zero
        known_y: Integer = zero
        if not own:
            known_s, known_y = find(sums, zero, members, size), find(sums, zero, with_y, size + 1)
        if known_s < 0 or known_y < 0:
            continue
        for x in range(wanted.shape[1]):
            if not wanted[k, x] or not math.isnan(families.gains[row, x]):
                continue
            _with(with_y, size + 1, x, further)
            both = find(sums, zero, further, size + 2)
            if both < 0:
                continue
            if own:
                i, j = zero, zero  # the places of x and y in the table
                for m in range(size + 2):
                    if further[m] == x:
                        i = np.int64(m)
                    elif further[m] == y:
                        j = np.int64(m)
                without_x, without_y = _margin(i, i), _margin(j, j)
                known_x = find(sums, without_y, further, size + 2)
                known_y = find(sums, without_x, further, size + 2)
                known_s = find(sums, _margin(i, j) if i < j else _margin(j, i), further, size + 2)
            else:
                _with(members, size, x, further)
                known_x = find(sums, zero, further, size + 1)
            if known_x < 0:
                continue
            gain = values[both, 0] - values[known_x, 0] - values[known_y, 0] + values[known_s, 0]
            families.gains[row, x] = gain - edge_cost


@compiled_in_place
def _margin(i: Integer, j: Integer) -> Integer:
    """Return the number of a table's margin without the members at the places i <= j."""
    return np.int64(1 + MOST_MEMBERS * i + j)


@compiled_inside
def _with(members: IntArray, size: int, node: int, result: IntArray) -> None:
    """Write an ascending set with one more member."""
    place = size
    while place > 0 and members[place - 1] > node:
        result[place] = members[place - 1]
        place -= 1
    result[place] = node
    for k in range(place):
        result[k] = members[k]
