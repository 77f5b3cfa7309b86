"""A table of families and of the gains of further parents, which a search fills as it goes.

A *family* is a variable y with a set S of parents. Its row holds, for every other variable x,
the gain of adding x, ``s(y | S + x) - s(y | S)``, NaN where it is not known yet. For the scores of
this package ``s(y | S) = F(S + y) - F(S)`` for one function F of sets, so that the gain
is the same number for (y, S, x) and (x, S, y).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.compiled import compiled_in_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray, Integer

#: Result of :func:`enter` where the table has no room for a family.
FULL = -2


class Families(NamedTuple):
    """Rows of families, found by a hash table.

    Attributes
    ----------
    owners : ndarray of int64, shape (R,)
        y of each row.
    sizes : ndarray of int64, shape (R,)
        Size of S.
    members : ndarray of int64, shape (R, W)
        S in ascending order; entries behind the size have no meaning.
    gains : ndarray of float64, shape (R, d)
        The gain of adding each variable; NaN: not known.
    slots : ndarray of int64, shape (H,)
        The hash table: a row's number + 1, or 0.
    used : ndarray of int64, shape (1,)
        Number of rows in use.
    """

    owners: IntArray
    sizes: IntArray
    members: IntArray
    gains: FloatArray
    slots: IntArray
    used: IntArray


def empty_families(num_variables: int, rows: int = 256, width: int = 8) -> Families:
    """Return a table without families."""
    return Families(
        np.zeros(rows, dtype=np.int64),
        np.zeros(rows, dtype=np.int64),
        np.zeros((rows, width), dtype=np.int64),
        np.full((rows, num_variables), np.nan),
        np.zeros(4 * rows, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )


def enlarged(families: Families, width: int = 0) -> Families:
    """Return the table with room for twice as many families, or for larger ones."""
    used = int(families.used[0])
    rows = len(families.owners) if width else 2 * len(families.owners)
    width = max(width, families.members.shape[1])
    larger = empty_families(families.gains.shape[1], rows, width)
    larger.owners[:used] = families.owners[:used]
    larger.sizes[:used] = families.sizes[:used]
    larger.members[:used, : families.members.shape[1]] = families.members[:used]
    larger.gains[:used] = families.gains[:used]
    larger.used[0] = used
    _rehash(larger)
    return larger


def row_of(
    families: Families, owner: int, members: Sequence[int] | IntArray
) -> tuple[Families, int]:
    """Return the table, enlarged where necessary, and the row of a family, entered if new."""
    ordered = np.sort(np.asarray(members, dtype=np.int64))
    families, rows = rows_of(families, owner, ordered[None])
    return families, int(rows[0])


def rows_of(families: Families, owner: int, members: IntArray) -> tuple[Families, IntArray]:
    """Return the table, enlarged where necessary, and the rows of families, entered if new.

    ``members``, shape (m, k), are those of m families of one variable, ascending.
    """
    members = np.ascontiguousarray(members, dtype=np.int64)
    if members.shape[1] > families.members.shape[1]:
        families = enlarged(families, 2 * members.shape[1])
    rows, done = np.zeros(len(members), dtype=np.int64), 0
    while (done := int(_enter_all(families, owner, members, rows, done))) < len(members):
        families = enlarged(families)
    return families, rows


@compiled_in_place
def find(families: Families, owner: Integer, members: IntArray, size: Integer) -> Integer:
    """Return the row of a family (``members`` ascending), -slot - 1 where it would be new."""
    owners, sizes, rows, slots = families.owners, families.sizes, families.members, families.slots
    value = np.uint64(owner) * np.uint64(0x9E3779B97F4A7C15)
    for k in range(size):
        value ^= np.uint64(members[k]) + np.uint64(0x7F4A7C15)
        value *= np.uint64(0xBF58476D1CE4E5B9)
        value ^= value >> np.uint64(29)
    slot: Integer = np.int64(value >> np.uint64(1)) % len(slots)
    while slots[slot] != 0:
        row = slots[slot] - 1
        if owners[row] == owner and sizes[row] == size:
            k = 0
            while k < size and rows[row, k] == members[k]:
                k += 1
            if k == size:
                return row
        slot += 1
        if slot == len(slots):
            slot = 0
    return -slot - 1


@compiled_in_place
def enter(families: Families, owner: Integer, members: IntArray, size: Integer) -> Integer:
    """Return the row of a family, new where there was none; FULL where there is no room for it.

    ``members`` is ascending; a caller that gets FULL enlarges the table and calls again.
    """
    found = find(families, owner, members, size)
    if found >= 0:
        return found
    row = families.used[0]
    if row == len(families.owners) or size > families.members.shape[1]:
        return FULL
    families.owners[row] = owner
    families.sizes[row] = size
    for k in range(size):
        families.members[row, k] = members[k]
    families.slots[-found - 1] = row + 1
    families.used[0] = row + 1
    return row


@compiled_in_place
def _enter_all(
    families: Families, owner: int, members: IntArray, rows: IntArray, first: int
) -> Integer:
    """Write the rows of families from the ``first``; return how many have one, of all or fewer."""
    for k in range(first, len(members)):
        row = enter(families, owner, members[k], members.shape[1])
        if row == FULL:
            return k
        rows[k] = row
    return len(members)


@compiled_in_place
def _rehash(families: Families) -> None:
    for row in range(families.used[0]):
        new = find(families, families.owners[row], families.members[row], families.sizes[row])
        families.slots[-new - 1] = row + 1
