"""Vectors of words of 64 bits, as they are masked and added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

WORD_BYTES = 8


class Size(NamedTuple):
    """The words of a vector.

    Parameters
    ----------
    single : int
        Words of which each is a number modulo 2^64.
    wide : int, default 0
        Words behind them, which together are one number modulo 2^(64 wide), the lowest word first:
        a sum of parts of several words says nothing but the sum, as it would if each word were
        added up by itself.
    """

    single: int
    wide: int = 0

    @property
    def words(self) -> int:
        """All words."""
        return self.single + self.wide


class WordSum:
    """A sum of vectors, which grows by one piece of a vector at a time.

    Parameters
    ----------
    size : Size
    """

    def __init__(self, size: Size) -> None:
        self.size = size
        self._words = np.zeros(size.words, dtype=np.uint64)
        # What each wide word carries to the next one: all of them are carried once, at the end.
        self._carries = np.zeros(size.wide, dtype=np.int32)

    def add(self, piece: NDArray[np.uint64], start: int = 0) -> None:
        """Add the words of a vector from a place on."""
        words = self._words[start : start + len(piece)]
        words += piece
        first = max(self.size.single - start, 0)
        self._carried(start, len(piece))[:] += words[first:] < piece[first:]

    def subtract(self, piece: NDArray[np.uint64], start: int = 0) -> None:
        """Subtract the words of a vector from a place on."""
        words = self._words[start : start + len(piece)]
        words -= piece
        first = max(self.size.single - start, 0)
        self._carried(start, len(piece))[:] -= words[first:] > ~piece[first:]

    def total(self) -> NDArray[np.uint64]:
        """Return the sum, shape (words,)."""
        single, wide = self.size
        carried, borrowed = np.maximum(self._carries, 0), np.maximum(-self._carries, 0)
        number = _number(carried) - _number(borrowed) << 8 * WORD_BYTES
        number += _number(self._words[single:])
        whole = (number & ((1 << 8 * WORD_BYTES * wide) - 1)).to_bytes(wide * WORD_BYTES, "little")
        total = self._words.copy()
        total[single:] = np.frombuffer(whole, dtype="<u8")
        return total

    def _carried(self, start: int, length: int) -> NDArray[np.int32]:
        """Return what the wide words among some words carry."""
        single = self.size.single
        return self._carries[max(start - single, 0) : max(start + length - single, 0)]


def added(vectors: Iterable[NDArray[np.uint64]], size: Size) -> NDArray[np.uint64]:
    """Return the sum of vectors, each of the given size."""
    total = WordSum(size)
    for vector in vectors:
        total.add(vector)
    return total.total()


def _number(words: NDArray[np.uint64] | NDArray[np.int32]) -> int:
    return int.from_bytes(words.astype("<u8", copy=False).tobytes(), "little")
