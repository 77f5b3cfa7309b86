"""How often the replicates of a graph have each edge, and which edges are significant.

References
----------
Friedman, Goldszmidt & Wyner (1999). Data analysis with Bayesian networks: a bootstrap approach.
UAI.

Scutari & Nagarajan (2013). Identifying significant edges in graphical models of molecular networks.
Artificial Intelligence in Medicine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.acyclicity import is_acyclic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray


def shares_of(adjacencies: Sequence[BoolArray]) -> FloatArray:
    """Return the share of the replicates that have each edge in its direction, shape (d, d).

    A replicate with an undirected edge counts half in each direction.

    Parameters
    ----------
    adjacencies : sequence of ndarray of bool, shape (d, d)
        At least one; undirected edges in both directions.
    """
    counts = sum(np.where(one & one.T, 0.5, one) for one in adjacencies)
    return np.asarray(counts / len(adjacencies))


def shares_of_marks(
    marks: IntArray, replicates: Sequence[IntArray | None]
) -> tuple[FloatArray, FloatArray]:
    """Return the shares of the replicates with each mark of a PAG, and with each edge, (d, d) each.

    Parameters
    ----------
    marks : ndarray of int, shape (d, d)
        0 where there is no edge, and no share.
    replicates : sequence of ndarray of int, shape (d, d)
        At least one.
    """
    found = np.array(replicates)
    same = (found == marks).mean(axis=0) * (marks != 0)
    return np.asarray(same), np.asarray((found != 0).mean(axis=0))


def lagged_shares_of(lagged: Sequence[FloatArray | None], num_lags: int, size: int) -> FloatArray:
    """Return the share of the replicates that have each lagged edge, shape (p, d, d).

    Parameters
    ----------
    lagged : sequence of (ndarray of shape (q, d, d) or None)
        Weights; a replicate of fewer lags has no edges at the others.
    num_lags, size : int
        p and d.
    """
    counts = np.zeros((num_lags, size, size))
    for one in lagged:
        if one is not None:
            past = one[:num_lags] != 0
            counts[: len(past)] += past
    return counts / len(lagged)


def inclusion_threshold(confidence: FloatArray) -> float:
    """Return the threshold above which confidences are significant (Scutari & Nagarajan 2013).

    The distribution of the confidences is compared with that of a sure graph, whose confidences are
    all 0 or 1: the share of zeros is chosen for the least L1 distance of the two distribution
    functions, and the threshold is the quantile of the confidences at this share.

    Parameters
    ----------
    confidence : ndarray
        Of every possible edge once, from 0 to 1.

    Returns
    -------
    float
        Edges of larger confidence are significant. 0 where there is no possible edge.
    """
    values = np.sort(np.ravel(confidence))
    if not len(values):
        return 0.0
    # The distribution function is k / n from the k-th value to the next. Its L1 distance from a
    # constant is least at the median of its heights, weighted by the lengths of its steps.
    count = int(np.searchsorted(values, 0.5))
    return float(values[max(count - 1, 0)])


def significant(confidence: FloatArray, threshold: float) -> BoolArray:
    """Return which confidences are larger than the threshold, or 1.

    The threshold of edges that are all sure is 1.
    """
    return np.asarray((confidence > threshold) | (confidence > 1 - 1e-9))


def significant_edges(
    confidence: FloatArray, adjacent: FloatArray, threshold: float, required: BoolArray
) -> BoolArray:
    """Return the acyclic graph of the significant edges, shape (d, d).

    Edges are added in the order of their confidence, in their more frequent direction; one that
    would close a cycle is left out.

    Parameters
    ----------
    confidence, adjacent : ndarray of shape (d, d)
        Shares of the replicates with an edge in its direction, and in either.
    threshold : float
        Of :func:`significant`, for ``adjacent``.
    required : ndarray of bool, shape (d, d)
        Edges of the graph in any case.
    """
    chosen = required.copy()
    upper = np.triu(np.ones_like(chosen), 1)
    direction = (confidence > confidence.T) | ((confidence == confidence.T) & upper)
    candidates = np.where(direction & significant(adjacent, threshold), confidence, 0.0)
    for place in np.argsort(-candidates, axis=None, kind="stable")[: np.count_nonzero(candidates)]:
        i, j = divmod(int(place), len(candidates))
        chosen[i, j] = True
        chosen[i, j] = required[i, j] or is_acyclic(chosen)
    return chosen
