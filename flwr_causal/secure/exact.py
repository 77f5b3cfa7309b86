"""Exact sums of numbers of any size: where no bound of the sum is known.

Such are the totals of the schema exchange, before units are known, and what is declared without a
bound.

A number is a whole multiple of 2^-:data:`FRACTION_BITS` in a field of nine words, to which
:data:`BIAS` is added, so that it is not negative. Sums are exact and do not depend on the order of
the parties: a variance loses no digits to a large mean.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.secure.words import WORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray

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
