"""Exact samples of the discrete Gaussian, from whole numbers alone (Canonne et al. 2020).

Its probability of a whole number k is proportional to ``exp(-k^2 / (2 variance))``. Sampling by
floating-point numbers would have gaps, by which rows could be found out (Mironov 2012).

References
----------
Canonne, Kamath, Steinke: The discrete Gaussian for differential privacy, NeurIPS 2020, algorithms 1
to 3.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    #: Returns a uniform whole number from 0 to below its argument.
    Below = Callable[[int], int]


def discrete_gaussian(variance: int, below: Below) -> int:
    """Return one sample (algorithm 3).

    Parameters
    ----------
    variance : int
        1 or more.
    below : callable
        ``below(m)`` returns a uniform whole number from 0 to m - 1, such as ``secrets.randbelow``.
    """
    scale = isqrt(variance) + 1
    while True:
        sample = _discrete_laplace(scale, below)
        excess = abs(sample) * scale - variance
        if _bernoulli_exp(excess * excess, 2 * variance * scale * scale, below):
            return sample


def _discrete_laplace(scale: int, below: Below) -> int:
    """Return k with a probability proportional to exp(-|k| / scale) (algorithm 2)."""
    while True:
        rest = below(scale)
        if not _bernoulli_exp(rest, scale, below):
            continue
        whole = 0
        while _bernoulli_exp(1, 1, below):
            whole += 1
        size, negative = rest + scale * whole, below(2)
        if size or not negative:
            return -size if negative else size


def _bernoulli_exp(numerator: int, denominator: int, below: Below) -> bool:
    """Return True with the probability exp(-numerator / denominator) (algorithm 1)."""
    while numerator > denominator:
        if not _bernoulli_exp(1, 1, below):
            return False
        numerator -= denominator
    factor = 1
    while below(denominator * factor) < numerator:
        factor += 1
    return factor % 2 == 1
