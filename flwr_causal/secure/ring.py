"""The numbers of an exchange as whole numbers modulo 2^64, in which masks are uniform.

A float is a multiple of a step, which both sides compute from what the parties agreed on: a largest
possible value (:attr:`flwr_causal.contract.exchange.Disclosure.bound`), times the number of
parties, divided by 2^61. A party refuses to send more than twice that value, so that no total
overflows. A float without a bound takes nine words, and its sum is exact. Counts are exact, too; as
many share a word as it has room for, since none exceeds the rows of all parties. A vector begins
with the party's rows and a 1: their totals must be the rows of the parties and their number. If
masks do not cancel, they are so by chance once in 2^128; where parties are missing, whose rows are
not known, the 1 is once in 2^64.

**Exact sums** of numbers of any size, where no bound of the sum is known. Such are the totals of
the schema exchange, before units are known, and what is declared without a bound.

A number is a whole multiple of 2^-:data:`FRACTION_BITS` in a field of nine words, to which
:data:`BIAS` is added, so that it is not negative. Sums are exact and do not depend on the order of
the parties: a variance loses no digits to a large mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.contract.exchange import WHOLE
from flwr_causal.errors import FederationError
from flwr_causal.protocol.bundle import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.protocol.setup import Setup

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


FRACTION_BITS = 352
#: Words of a number.
WORDS = 9
_BYTES = WORDS * WORD_BYTES
#: What is added to each number, in multiples. The sum of 2^16 parties has room.
BIAS: int = 2 ** (8 * _BYTES - 18)
#: Floats must be smaller.
MOST: float = BIAS / 2.0**FRACTION_BITS
_DIGIT_BITS = 32
_DIGIT = 2**_DIGIT_BITS - 1
_DIGITS = 8 * _BYTES // _DIGIT_BITS
_MANTISSA_BITS = 53
# The bias as a multiple of the highest digit.
_HIGHEST = BIAS >> _DIGIT_BITS * (_DIGITS - 1)


def encoded(numbers: Sequence[Fraction]) -> NDArray[np.uint64]:
    """Return the fields of numbers below :data:`MOST`, shape (9 for each number,)."""
    fields = (round(number * 2**FRACTION_BITS) + BIAS for number in numbers)
    text = b"".join(field.to_bytes(_BYTES, "little") for field in fields)
    return np.frombuffer(text, dtype="<u8").astype(np.uint64)


def decoded(words: NDArray[np.uint64], parties: int) -> list[Fraction]:
    """Return the numbers whose fields were added up, from the sum over so many parties."""
    text = words.astype("<u8").tobytes()
    fields = (text[start : start + _BYTES] for start in range(0, len(text), _BYTES))
    sums = (int.from_bytes(field, "little") - parties * BIAS for field in fields)
    return [Fraction(whole, 2**FRACTION_BITS) for whole in sums]


def encoded_floats(numbers: FloatArray) -> NDArray[np.uint64]:
    """Return the fields of floats below :data:`MOST`, shape (9 for each,)."""
    fractions, exponents = np.frexp(numbers.ravel())
    places = exponents.astype(np.int64) + (FRACTION_BITS - _MANTISSA_BITS)
    # Bits below the last digit are rounded.
    mantissas = np.ldexp(np.abs(fractions), _MANTISSA_BITS + np.minimum(places, 0))
    whole = np.rint(mantissas).astype(np.int64)
    first, shifts = np.divmod(np.maximum(places, 0), _DIGIT_BITS)
    rest = whole >> (_DIGIT_BITS - shifts)
    low = (whole & ((1 << (_DIGIT_BITS - shifts)) - 1)) << shifts
    digits = np.zeros((numbers.size, _DIGITS), dtype=np.int64)
    rows = np.arange(numbers.size)
    for step, digit in enumerate((low, rest & _DIGIT, rest >> _DIGIT_BITS)):
        used = digit > 0
        digits[rows[used], first[used] + step] = digit[used]
    signed = np.where(fractions < 0, -1, 1)[:, None] * digits
    signed[:, -1] += _HIGHEST
    return _carried(signed).astype("<u4").view("<u8").ravel().astype(np.uint64)


def decoded_floats(words: NDArray[np.uint64], parties: int) -> FloatArray:
    """Return the numbers whose fields were added up, to the last digit of a float."""
    digits = words.astype("<u8").view("<u4").reshape(-1, _DIGITS).astype(np.int64)
    digits[:, -1] -= parties * _HIGHEST
    sign = np.where(digits[:, -1] < 0, -1, 1)
    digits = _carried(sign[:, None] * digits)
    values = np.zeros(len(digits))
    for place in range(_DIGITS):
        values += np.ldexp(digits[:, place].astype(np.float64), place * _DIGIT_BITS - FRACTION_BITS)
    return sign * values


def _carried(digits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return digits from 0 to 2^32 - 1 but for the highest, which holds the sign."""
    digits = digits.copy()
    for place in range(_DIGITS - 1):
        digits[:, place + 1] += digits[:, place] >> _DIGIT_BITS
        digits[:, place] &= _DIGIT
    return digits


# Steps of all parties at their bounds together, and the most of all parties together.
_STEPS, _MOST_STEPS = 2.0**61, 2.0**62
_SMALLEST = np.finfo(np.float64).tiny
#: How much larger than those of all rows the sums over drawn rows may be.
RESAMPLED_ROOM = 8.0
# The rows and the 1 before the arrays.
_FRAME = 2
_WORD_BITS = 64


class SumError(FederationError):
    """Something that cannot be added up securely."""


class WordPart(NamedTuple):
    """One array of the vector.

    Parameters
    ----------
    name : str
    shape : tuple of int
    step : ndarray or None
        What a 1 stands for; broadcast to the shape. None: the numbers are whole, or of any size.
    weight : {"rows", "one", ""}
        In a mean, the weight of a party; "" in a sum.
    bits : int, default 64
        Of a number; 64 // bits numbers share a word.
    any_size : bool, default False
        Whether the numbers are floats without a bound.
    ring : bool, default False
        Whether the numbers are words modulo 2^64 themselves.
    """

    name: str
    shape: tuple[int, ...]
    step: FloatArray | None
    weight: str
    bits: int = _WORD_BITS
    any_size: bool = False
    ring: bool = False

    @property
    def size(self) -> int:
        """Numbers."""
        return math.prod(self.shape)

    @property
    def length(self) -> int:
        """Words."""
        if self.any_size:
            return WORDS * self.size
        return -(-self.size // (_WORD_BITS // self.bits))

    def most(self, rows: int, parties: int) -> float:
        """Return what no number, or number of steps, of a party with so many rows exceeds."""
        if self.ring:
            return math.inf
        if self.any_size:
            return MOST
        return rows if self.bits < _WORD_BITS else _MOST_STEPS / parties

    def packed(self, numbers: NDArray[Any]) -> NDArray[np.uint64]:
        """Return the words of so many numbers, shape (length,)."""
        if self.any_size:
            return encoded_floats(numbers)
        numbers = numbers.astype(np.int64)
        fields = np.zeros((self.length, len(self._shifts)), dtype=np.uint64)
        fields.ravel()[: self.size] = numbers.ravel().view(np.uint64)
        words: NDArray[np.uint64] = np.bitwise_or.reduce(fields << self._shifts, axis=1)
        return words

    def unpacked(self, words: NDArray[np.uint64], parties: int) -> NDArray[Any]:
        """Return the sums of the numbers of so many parties, from the sum of their words."""
        if self.any_size:
            return decoded_floats(words, parties).reshape(self.shape)
        fields = (words[:, None] >> self._shifts) & np.uint64(2**self.bits - 1)
        numbers: NDArray[np.int64] = fields.ravel()[: self.size].view(np.int64)
        return numbers.reshape(self.shape)

    @property
    def _shifts(self) -> NDArray[np.uint64]:
        return np.arange(0, _WORD_BITS - self.bits + 1, self.bits, dtype=np.uint64)


def not_a_sum(exchange: Exchange) -> str:
    """Return why the replies of an exchange cannot be added up securely; "" if they can."""
    for item in exchange.returns:
        if item.combine == "each":
            return f"'{item.name}' of the exchange '{exchange.name}' is kept by party, and no sum"
        if item.optional or "*" in item.shape:
            return f"the size of '{item.name}' of the exchange '{exchange.name}' is not agreed on"
    return ""


@dataclass(frozen=True, eq=False)
class WordLayout:
    """How the arrays of an exchange lie in a vector of words.

    Parameters
    ----------
    parts : tuple of WordPart
    rows, parties : int
        Of all parties together, and their number.
    """

    parts: tuple[WordPart, ...]
    rows: int
    parties: int

    @classmethod
    def of(cls, exchange: Exchange, sizes: Mapping[str, int], setup: Setup) -> WordLayout:
        """Return the layout of an exchange, the same at all parties and the server.

        Parameters
        ----------
        exchange : Exchange
            Of one training, or of several.
        sizes : mapping of str to int
            What the symbols in shapes stand for.
        setup : Setup
            What the parties agreed on.

        Raises
        ------
        SumError
            If something of it cannot be added up.
        """
        reason = not_a_sum(exchange)
        if reason:
            raise SumError(f"Secure aggregation is not possible: {reason}.")
        layout = cls((), setup.num_rows, setup.num_clients)
        of_training = {
            part.training.named(item.name): part
            for part in parts_of(exchange)
            for item in part.exchange.returns
        }
        parts = []
        for item in exchange.returns:
            own = of_training[item.name]
            unknown = [one for one in item.shape if isinstance(one, str) and one not in sizes]
            if unknown:
                raise SumError(
                    f"Secure aggregation is not possible: the size '{unknown[0]}' of "
                    f"'{item.name}' does not follow from what the parties are sent. Compute it in "
                    f"Exchange(derived=...) of the exchange '{own.exchange.name}'."
                )
            shape = tuple(size if isinstance(size, int) else sizes[size] for size in item.shape)
            weight = own.exchange.weight if item.combine == "mean" else ""
            step, bound = None, None if item.bound is None else item.bound(setup)
            if bound is not None:
                room = RESAMPLED_ROOM if own.training.replicate else 1.0
                largest = np.maximum(room * np.asarray(bound), _SMALLEST)
                step = largest * layout.total(weight) * setup.num_clients / _STEPS
            bits = setup.num_rows.bit_length() if item.values == "count" else _WORD_BITS
            any_size = step is None and (item.values not in WHOLE or item.combine == "mean")
            ring = item.values == "ring"
            parts.append(WordPart(item.name, shape, step, weight, bits, any_size, ring))
        # Numbers of one word come first.
        return replace(layout, parts=tuple(sorted(parts, key=lambda part: part.any_size)))

    def total(self, weight: str) -> int:
        """Return what is divided by in a mean of that weight; 1 for a sum."""
        return {"rows": self.rows, "one": self.parties}.get(weight, 1)

    @property
    def size(self) -> Size:
        """The words of the vector."""
        wide = sum(part.length for part in self.parts if part.any_size)
        return Size(_FRAME + sum(part.length for part in self.parts) - wide, wide)

    def encoded(self, arrays: Arrays, rows: int) -> NDArray[np.uint64]:
        """Return the vector of a party with so many rows.

        Raises
        ------
        SumError
            If a value is larger than its declared bound allows.
        """
        words = [np.array([rows, 1], dtype=np.uint64)]
        for part in self.parts:
            numbers, most = np.asarray(arrays[part.name]), part.most(rows, self.parties)
            if part.weight == "rows":
                numbers = numbers * float(rows)
            if part.step is not None:
                numbers = np.rint(numbers / part.step)
            if not (np.abs(numbers) <= most).all():
                raise SumError(
                    f"'{part.name}' has values that are larger than the secure sum can hold: check "
                    "the units of the party's columns, or set standardize=True."
                )
            words.append(part.packed(numbers))
        return np.concatenate(words)

    def decoded(self, total: NDArray[np.uint64], answered: int) -> tuple[Arrays, int]:
        """Return the sums or means of the arrays of parties, and the number of their rows.

        Parameters
        ----------
        total : ndarray of uint64, shape (words,)
            The sum of the parties' vectors.
        answered : int
            How many parties are in it.

        Raises
        ------
        SumError
            If the masks do not cancel.
        """
        rows, lost = int(total[0]), self.parties - answered
        # Each party has a row at least.
        possible = answered <= rows <= self.rows - lost if lost else rows == self.rows
        if not possible or total[1] != answered:
            raise SumError(
                "The masks of the parties' replies do not cancel: a reply was altered, or a party "
                "has used other keys"
            )
        arrays: Arrays = {}
        start = _FRAME
        for part in self.parts:
            own: NDArray[Any] = part.unpacked(total[start : start + part.length], answered)
            if part.step is not None:
                own = own * part.step
            if part.weight:
                own = own / {"rows": rows, "one": answered}[part.weight]
            arrays[part.name] = own
            start += part.length
        return arrays, rows
