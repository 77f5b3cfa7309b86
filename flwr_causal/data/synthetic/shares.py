"""Divide a whole number at random."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["draw_shares", "round_shares"]

FloatArray = npt.NDArray[np.float64]


def draw_shares(generator: np.random.Generator, concentration: float, num: int) -> FloatArray:
    """Draw from the symmetric Dirichlet distribution.

    In logarithms throughout: with tiny concentrations the usual gamma draws all underflow to zero.

    Parameters
    ----------
    generator : Generator
        Source of chance.
    concentration : float
        Above 0; 1 is uniform over all divisions.
    num : int
        Number of shares.

    Returns
    -------
    float64 array of shape (num,)
        Not negative, sum 1.
    """
    # Gamma(a) = Gamma(a + 1) U^(1/a) in distribution (Marsaglia & Tsang 2000, section 6).
    logs = np.log(generator.gamma(concentration + 1.0, size=num))
    logs += np.log1p(-generator.random(num)) / concentration
    shares: FloatArray = np.exp(logs - logs.max())
    shares /= shares.sum()
    return shares


def round_shares(shares: FloatArray, total: int) -> npt.NDArray[np.intp]:
    """Round shares of a total to whole numbers with that sum, by largest remainders.

    Parameters
    ----------
    shares : float64 array of shape (num,)
        Not negative, sum 1.
    total : int
        What is divided, 0 or more.

    Returns
    -------
    int array of shape (num,)
        Sum ``total``; each within 1 of its exact share.
    """
    exact = shares * total
    sizes = np.floor(exact).astype(np.intp)
    largest_first = np.argsort(sizes - exact, kind="stable")
    sizes[largest_first[: total - int(sizes.sum())]] += 1
    return sizes
