"""Exact sums of numbers of any size: where no bound of the sum is known.

Such are the totals of the schema exchange, before units are known, and what is declared without a
bound.

A number is a whole multiple of 2^-:data:`FRACTION_BITS`, in digits of 48 bits, each in a word of 64
bits. The digits of up to 2^16 parties add up without a carry, so that each word can have a mask of
its own. Sums are exact and do not depend on the order of the parties: a variance loses no digits to
a large mean.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray

FRACTION_BITS = 352
DIGIT_BYTES, DIGITS = 6, 12
#: Bits of a number: up to 2^223, and down to 2^-352.
BITS = 8 * DIGIT_BYTES * DIGITS


#: Floats must be smaller.
MOST = 2.0 ** (BITS - FRACTION_BITS - 4)
_DIGIT_BITS = 8 * DIGIT_BYTES
_DIGIT = 2**_DIGIT_BITS - 1
_MANTISSA_BITS = 53


def encoded(numbers: Sequence[Fraction]) -> NDArray[np.uint64]:
    """Return numbers as digits, shape (12 for each number,)."""
    scaled = (round(number * 2**FRACTION_BITS) % 2**BITS for number in numbers)
    text = b"".join(number.to_bytes(BITS // 8, "little") for number in scaled)
    digits = np.zeros((len(numbers) * DIGITS, 8), dtype=np.uint8)
    digits[:, :DIGIT_BYTES] = np.frombuffer(text, dtype=np.uint8).reshape(-1, DIGIT_BYTES)
    return digits.view("<u8").ravel().astype(np.uint64)


def decoded(words: NDArray[np.uint64]) -> list[Fraction]:
    """Return the numbers whose digits were added up."""
    numbers = []
    for digits in words.reshape(-1, DIGITS).tolist():
        number = sum(digit << (8 * DIGIT_BYTES * place) for place, digit in enumerate(digits))
        number %= 2**BITS
        number -= 2**BITS if number >= 2 ** (BITS - 1) else 0
        numbers.append(Fraction(number, 2**FRACTION_BITS))
    return numbers


def encoded_floats(numbers: FloatArray) -> NDArray[np.uint64]:
    """Return floats below :data:`MOST` as digits that have their sign, shape (12 for each,)."""
    fractions, exponents = np.frexp(numbers.ravel())
    places = exponents.astype(np.int64) + (FRACTION_BITS - _MANTISSA_BITS)
    # Bits below the last digit are rounded.
    mantissas = np.ldexp(np.abs(fractions), _MANTISSA_BITS + np.minimum(places, 0))
    whole = np.rint(mantissas).astype(np.int64)
    first, shifts = np.divmod(np.maximum(places, 0), _DIGIT_BITS)
    rest = whole >> (_DIGIT_BITS - shifts)
    low = (whole & ((1 << (_DIGIT_BITS - shifts)) - 1)) << shifts
    digits = np.zeros((numbers.size, DIGITS), dtype=np.int64)
    rows = np.arange(numbers.size)
    for step, digit in enumerate((low, rest & _DIGIT, rest >> _DIGIT_BITS)):
        used = digit > 0
        digits[rows[used], first[used] + step] = digit[used]
    signed: NDArray[np.int64] = np.where(fractions < 0, -1, 1)[:, None] * digits
    return signed.view(np.uint64).ravel()


def decoded_floats(words: NDArray[np.uint64]) -> FloatArray:
    """Return the numbers whose digits with signs were added up, to the last digit of a float."""
    digits = words.view(np.int64).reshape(-1, DIGITS)
    sign = np.where(_carried(digits)[:, -1] < 0, -1, 1)
    digits = _carried(sign[:, None] * digits)
    values = np.zeros(len(digits))
    for place in range(DIGITS):
        values += np.ldexp(digits[:, place].astype(np.float64), place * _DIGIT_BITS - FRACTION_BITS)
    return sign * values


def _carried(digits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return digits from 0 to 2^48 - 1 but for the highest, which holds the sign."""
    digits = digits.copy()
    for place in range(DIGITS - 1):
        digits[:, place + 1] += digits[:, place] >> _DIGIT_BITS
        digits[:, place] &= _DIGIT
    return digits
