"""Which party gives which products of columns: the plan that all parties and the server share.

Rows that the same parties have make a *pattern*. In the rows of a pattern a pair of columns is
counted once: by the first party that holds both columns, else by two parties together, the first
holder of the one and of the other. A column's own squares and sums are those of its first holder.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.folds import stretches
from flwr_causal.core.limits import require_room
from flwr_causal.errors import DataError
from flwr_causal.secure.masks import streams
from flwr_causal.secure.purposes import purpose_of
from flwr_causal.secure.ring import Size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, IntArray


class Block(NamedTuple):
    """What two parties compute together.

    Parameters
    ----------
    one, other : int
        Their places; the one is before the other.
    patterns : tuple of int
        The patterns of their rows.
    columns, others : ndarray of int64
        The columns of the one, and of the other, that are needed.
    counted : ndarray of bool, shape (patterns, columns, others)
        Which products count.
    """

    one: int
    other: int
    patterns: tuple[int, ...]
    columns: IntArray
    others: IntArray
    counted: BoolArray


class PlanColumns(NamedTuple):
    """What the columns of a plan are, where values follow from more than the agreement.

    Parameters
    ----------
    meaning : str
        Masks and seals are bound to it: no mask serves columns of another meaning.
    wanted : ndarray of bool, shape (d, d)
        Which pairs of columns are multiplied, symmetric. The sums of other pairs are 0.
    """

    meaning: str
    wanted: BoolArray


@dataclass(frozen=True, eq=False)
class ProductPlan:
    """Who has which rows and columns.

    Parameters
    ----------
    presence : ndarray of bool, shape (parties, d)
        Which party holds which column.
    patterns : ndarray of bool, shape (patterns, parties)
        Which parties have the rows of each pattern.
    counts : ndarray of int64, shape (patterns,)
        How many rows each pattern has. Rows are numbered by patterns.
    columns : PlanColumns, optional
        What the columns are, where they are not those of the agreement.
    folds : ndarray of int64, shape (rows,), optional
        The fold of each row, where something is chosen by held-out rows.
    """

    presence: BoolArray
    patterns: BoolArray
    counts: IntArray
    columns: PlanColumns | None = None
    folds: IntArray | None = None

    @classmethod
    def of(
        cls,
        presence: BoolArray,
        ids: Sequence[Sequence[bytes]],
        columns: PlanColumns | None = None,
        num_folds: int = 1,
    ) -> tuple[ProductPlan, list[IntArray]]:
        """Match rows by their hashed ids.

        Parameters
        ----------
        presence : ndarray of bool, shape (parties, d)
        ids : sequence of sequence of bytes
            By party, the hash of each of its rows; none twice.
        columns : PlanColumns, optional
        num_folds : int, default 1
            More than one for folds: stretches of the rows of the first party that has a row.

        Returns
        -------
        plan : ProductPlan
        rows : list of ndarray of int64
            By party, the positions of its rows in its table, in the order of the plan.
        """
        known = {row: k for k, row in enumerate(sorted(set().union(*ids)))}
        places = np.full((len(known), len(ids)), -1, dtype=np.int64)
        for party, own in enumerate(ids):
            places[[known[row] for row in own], party] = np.arange(len(own))
        patterns, pattern_of, counts = np.unique(
            places >= 0, axis=0, return_inverse=True, return_counts=True
        )
        places = places[np.argsort(pattern_of.ravel(), kind="stable")]
        rows = [column[column >= 0] for column in places.T]
        folds = _stretches(places, num_folds) if num_folds > 1 else None
        return cls(presence, patterns, counts.astype(np.int64), columns, folds), rows

    @cached_property
    def _ends(self) -> list[int]:
        """The end of each pattern's rows: the number of its last row plus 1."""
        return list(accumulate(self.counts.tolist()))  # numbers of Python's do not overflow

    @property
    def num_rows(self) -> int:
        """Different rows."""
        return self._ends[-1] if self._ends else 0

    @property
    def num_folds(self) -> int:
        """Folds of rows; 0 where nothing is chosen by held-out rows."""
        return 0 if self.folds is None else 1 + int(self.folds.max(initial=-1))

    @property
    def num_columns(self) -> int:
        """Columns, d."""
        return len(self.presence.T)

    @cached_property
    def _givers(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """By pattern, the first holder of each column, and of each pair; -1 where there is none."""
        shape = (len(self.patterns), self.num_columns)
        first = np.full(shape, -1, dtype=np.int32)
        pair = np.full((*shape, self.num_columns), -1, dtype=np.int32)
        for party in reversed(range(len(self.presence))):
            holds = self.patterns[:, party, None] & self.presence[party]
            first[holds] = party
            pair[holds[:, :, None] & holds[:, None, :]] = party
        return first, pair

    @cached_property
    def _wanted(self) -> BoolArray:
        """Which pairs of columns are multiplied, shape (d, d)."""
        every = np.ones((self.num_columns,) * 2, dtype=np.bool_)
        return every if self.columns is None else self.columns.wanted

    def alone(self, party: int) -> BoolArray:
        """Return the mask of the pairs of columns that a party alone gives, (patterns, d, d)."""
        return np.asarray((self._givers[1] == party) & self._wanted)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """What pairs of parties compute together."""
        first, pair = self._givers
        blocks = []
        for one, other in combinations(range(len(self.presence)), 2):
            of_one, of_other = first == one, first == other
            counted = (pair < 0) & of_one[:, :, None] & of_other[:, None, :] & self._wanted
            patterns = np.flatnonzero(counted.any(axis=(1, 2)))
            columns = np.flatnonzero(counted.any(axis=(0, 2)))
            others = np.flatnonzero(counted.any(axis=(0, 1)))
            if len(patterns):
                own = counted[np.ix_(patterns, columns, others)]
                blocks.append(Block(one, other, tuple(patterns.tolist()), columns, others, own))
        return tuple(blocks)

    @property
    def known(self) -> BoolArray:
        """In which patterns each pair of columns is known, shape (patterns, d, d)."""
        held = self._givers[0] >= 0
        return np.asarray(held[:, :, None] & held[:, None, :])

    def rows_of(self, pattern: int) -> slice:
        """Return the numbers of a pattern's rows."""
        end = self._ends[pattern]
        return slice(end - int(self.counts[pattern]), end)

    def numbers(self, patterns: Sequence[int]) -> IntArray:
        """Return the numbers of the rows of some patterns."""
        slices = [self.rows_of(pattern) for pattern in patterns]
        parts = [np.arange(rows.start, rows.stop) for rows in slices]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

    def patterns_of(self, party: int) -> list[int]:
        """Return the patterns of a party's rows."""
        return [int(pattern) for pattern in np.flatnonzero(self.patterns[:, party])]

    def shared(self, party: int, other: int) -> tuple[list[int], IntArray]:
        """Return the patterns of the rows, and the columns, that two parties both have."""
        patterns = self.patterns[:, party] & self.patterns[:, other]
        columns = self.presence[party] & self.presence[other]
        return [int(k) for k in np.flatnonzero(patterns)], np.flatnonzero(columns)

    def weights(self, replicates: int, seed: int) -> IntArray:
        """Return how often each row counts, shape (1 + folds + replicates, rows).

        First once, then once in its fold, if there are folds, and then in each replicate as often
        as it is among as many draws with replacement.
        The draws follow from the seed by AES, at every party alike whatever its versions of
        packages.
        """
        n = self.num_rows
        weights = [np.ones(n, dtype=np.int64)]
        if self.folds is not None:
            weights += list((self.folds == np.arange(self.num_folds)[:, None]).astype(np.int64))
        for replicate in range(1, 1 + replicates):
            key = hashlib.blake2b(f"rows {seed} {replicate}".encode(), digest_size=32).digest()
            draws = (streams([(key, 1)], Size(n)) >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)
            weights.append(np.bincount(draws.astype(np.int64), minlength=n).astype(np.int64))
        return np.array(weights)

    def num_known(self, weights: IntArray) -> NDArray[np.int64]:
        """Return how many rows, by their weights, know each pair of columns, (weightings, d, d)."""
        by_pattern = [weights[:, self.rows_of(k)].sum(axis=1) for k in range(len(self.counts))]
        return self._known_rows(np.array(by_pattern))

    def _known_rows(self, by_pattern: IntArray) -> NDArray[np.int64]:
        return np.asarray(np.einsum("pw,pij->wij", by_pattern, self.known.astype(np.int64)))

    def require_room(self, weightings: int) -> None:
        """Raise a DataError if more would be made of the plan than is made at a time.

        Parameters
        ----------
        weightings : int
            Of the rows.
        """
        require_room("the rows of the plan, by weightings,", weightings * self.num_rows)
        require_room(
            "the pairs of columns of the plan, by patterns,",
            max(len(self.patterns), weightings) * self.num_columns**2,
        )

    def check(self, names: Sequence[str], least: int) -> None:
        """Check that every pair of columns is known in enough rows, of each fold if there are any.

        Parameters
        ----------
        names : sequence of str
            Of the columns.
        least : int
            The fewest rows.

        Raises
        ------
        DataError
            Naming the pair of columns that is known in the fewest rows.
        """
        if self.folds is None:
            known = self._known_rows(self.counts[:, None])[0]
        else:
            known = self.num_known(self.weights(0, 0)).min(axis=0)
        if known.min() >= least:
            return
        one, other = (int(k) for k in np.unravel_index(known.argmin(), known.shape))
        raise DataError(
            f"the columns {names[one]!r} and {names[other]!r} are both known of "
            f"{known[one, other]} rows{' of a fold' if self.num_folds else ''}, and {least} are "
            "the fewest (minimum_count): check that the "
            "ids of their parties are of one kind, that the parties' row-secret is the same (node "
            "config), and that time series have the same steps, or leave one of the columns out"
        )

    def to_arrays(self) -> dict[str, NDArray[np.uint8 | np.int64]]:
        """Return the plan as it is sent."""
        marks = {"presence": self.presence, "patterns": self.patterns}
        folds = {} if self.folds is None else {"folds": self.folds}
        small = {name: mark.astype(np.uint8) for name, mark in (marks | folds).items()}
        return small | {"pattern-rows": self.counts}

    @property
    def digest(self) -> bytes:
        """What masks and seals are bound to: 32 bytes that differ between plans."""
        columns = None if self.columns is None else (*self.columns,)
        return purpose_of("plan", self.to_arrays(), columns)


def _stretches(places: IntArray, num_folds: int) -> IntArray:
    """Return the fold of each row, by its place at the first party that has it.

    Parameters
    ----------
    places : ndarray of int64, shape (rows, parties)
        The position of each row at each party, -1 where it has not the row.
    num_folds : int
    """
    sizes = (places >= 0).sum(axis=0)
    own = np.concatenate([stretches([size], num_folds) for size in sizes])
    first = (places >= 0).argmax(axis=1)
    starts = np.cumsum(sizes) - sizes
    return np.asarray(own[starts[first] + places[np.arange(len(places)), first]])
