"""Shamir's secret sharing over a prime field, written here because `cryptography` has none.

A secret is the value at 0 of a polynomial, its shares are the values at 1, 2, ...: as many shares
as the polynomial has coefficients give it back, and fewer say nothing of it (Shamir 1979, "How to
share a secret").
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: The largest prime below 2^256: secrets and shares take 32 bytes.
PRIME = 2**256 - 189


def shares_of(
    coefficients: Sequence[int], places: Iterable[int], prime: int = PRIME
) -> dict[int, int]:
    """Return the shares of a secret.

    Parameters
    ----------
    coefficients : sequence of int
        Of the polynomial, the secret first. The others must be uniform below the prime.
    places : iterable of int
        Where the polynomial is evaluated: from 1 to ``prime - 1``.
    prime : int, optional
    """
    shares = {}
    for place in places:
        value = 0
        for coefficient in reversed(coefficients):
            value = value * place + coefficient
        shares[place] = value % prime
    return shares


def secret_of(shares: Mapping[int, int], prime: int = PRIME) -> int:
    """Return the secret, from exactly as many shares by place as there were coefficients."""
    factors = _at_zero(tuple(shares), prime)
    return sum(map(math.prod, zip(factors, shares.values(), strict=True))) % prime


@lru_cache(maxsize=256)
def _at_zero(places: tuple[int, ...], prime: int) -> tuple[int, ...]:
    """Return the values at 0 of Lagrange's polynomials, which are 1 at one place each."""
    factors = []
    for own in places:
        others = [place for place in places if place != own]
        divisor = math.prod(place - own for place in others)
        factors.append(math.prod(others) * pow(divisor, -1, prime) % prime)
    return tuple(factors)
