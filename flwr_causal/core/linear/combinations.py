"""Which variables are linear combinations of others, from second moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray

# A variable is a combination of others where these leave less than this share of its variance. Sums
# of products hold 16 digits: the residual of an exact combination is at most some 1e-14.
RESIDUAL_SHARE = 1e-10
# Terms below this share of the largest one (in standard deviations) are rounding.
TERM_SHARE = 1e-4


def combinations(second: FloatArray) -> dict[int, tuple[int, ...]]:
    """Return the variables that are linear combinations of earlier ones.

    Parameters
    ----------
    second : ndarray of shape (d, d)
        Central second moments, in any units, of more than d rows: of fewer, some variable always
        is a combination of others. Variables of variance 0 are left aside.

    Returns
    -------
    dict of int to tuple of int
        From such a variable to those of the combination, ascending; these are none themselves.
    """
    scale = np.sqrt(np.diagonal(second))
    varying = np.flatnonzero(scale > 0)
    correlation = (second / np.outer(*[np.where(scale > 0, scale, 1.0)] * 2))[varying][:, varying]
    if _independent(correlation):
        return {}
    left = correlation.copy()
    basis: list[int] = []
    found = {}
    for j in range(len(varying)):
        if left[j, j] >= RESIDUAL_SHARE:
            # What the variables are without their part along this one.
            left -= np.outer(left[:, j], left[j]) / left[j, j]
            basis.append(j)
            continue
        terms = np.abs(np.linalg.solve(correlation[np.ix_(basis, basis)], correlation[basis, j]))
        chosen = np.flatnonzero(terms > TERM_SHARE * terms.max())
        found[int(varying[j])] = tuple(int(varying[basis[k]]) for k in chosen)
    return found


def _independent(correlation: FloatArray) -> bool:
    """Whether the Cholesky decomposition finds that each variable adds something."""
    try:
        factor = np.linalg.cholesky(correlation)
    except np.linalg.LinAlgError:
        return False
    return bool((np.diagonal(factor) ** 2 >= RESIDUAL_SHARE).all())
