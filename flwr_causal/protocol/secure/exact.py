"""Exact sums of numbers of any size: the totals of the schema exchange, before units are known.

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

FRACTION_BITS = 352
DIGIT_BYTES, DIGITS = 6, 12
#: Bits of a number: up to 2^223, and down to 2^-352.
BITS = 8 * DIGIT_BYTES * DIGITS


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
