"""Second moments as other rows of the same kind would have them: a parametric bootstrap of sums.

What a search finds again in the moments of other samples is not due to chance. The moments of n
normal rows about their means have the Wishart distribution (Bartlett 1933), which needs nothing but
the moments.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.order_search import rounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.linear.moments import Moments

#: How often moments are drawn for a graph; twenty draws gave the same results as ten.
NUM_DRAWS = 10


def redrawn(moments: Moments, number: int) -> Iterator[Moments]:
    """Yield moments of as many normal rows with the same means and covariances.

    The same moments give the same draws.

    Parameters
    ----------
    moments : Moments
        Of d variables; of any rank.
    number : int
        How many are drawn.
    """
    rng, n, d = np.random.default_rng(0), moments.n, moments.d
    scale = np.sqrt(moments.variances)
    values, vectors = np.linalg.eigh(rounded(moments.correlations))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T * scale
    for _ in range(number):
        half = _half(rng, n - 1, d) @ root
        yield replace(moments, second=half.T @ half / n)


def _half(rng: np.random.Generator, degrees: int, d: int) -> FloatArray:
    """Draw A, of whose A'A the distribution is the standard Wishart distribution (Bartlett)."""
    if degrees < d:
        return rng.normal(size=(degrees, d))
    found = np.triu(rng.normal(size=(d, d)), 1)
    found[np.diag_indices(d)] = np.sqrt(rng.chisquare(degrees - np.arange(d)))
    return found
