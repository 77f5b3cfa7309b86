"""Measures of a ranking of all possible edges, and of what the variances alone tell.

A ranking is of ordered pairs of **different** variables: the diagonal of scores and truth is left
out, also where a variable depends on its own past. The truth may have cycles, as the gold standards
of regulatory networks have.

References
----------
Chen, Ma & Yue (2024). Temporal causal discovery in dynamic Bayesian networks using federated
learning.
Davis & Goadrich (2006). The relationship between precision-recall and ROC curves. ICML.
Reisach, Seiler & Weichwald (2021). Beware of the simulated DAG! NeurIPS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.matching import aligned, reordered
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from flwr_causal.core.graphs.matching import GraphLike


def auroc(scores: GraphLike, truth: GraphLike) -> float:
    """Area under the ROC curve: the chance that a true edge outranks a non-edge, ties half.

    Parameters
    ----------
    scores : array_like, shape (d, d), or CausalGraph
        Strength of every directed edge, non-negative. Of a graph, the absolute raw weights (the
        weights where there are none), summed over lags.
    truth : CausalGraph or array_like, shape (d, d)
        The true edges, with or without cycles; those of any lag together.

    Returns
    -------
    float
        From 0 to 1, over off-diagonal entries; NaN where the truth has all edges or none.

    Raises
    ------
    DataError
        If a score is negative or not finite, or the shapes or names differ.
    """
    strengths, edges = _ranked(scores, truth)
    num_true = int(edges.sum())
    num_false = len(edges) - num_true
    if not num_true or not num_false:
        return float("nan")
    # Mann and Whitney: the mean rank of the true edges, less what they have among themselves.
    ranks_of_true = float(_ranks(strengths)[edges].sum())
    return (ranks_of_true - num_true * (num_true + 1) / 2) / (num_true * num_false)


def auprc(scores: GraphLike, truth: GraphLike) -> float:
    """Area under the precision-recall curve, as the average precision.

    Each true edge contributes the precision among all edges that score at least as high as it, so
    that ties are taken together and nothing is interpolated (Davis & Goadrich, 2006, show why a
    straight line between points would flatter).

    Parameters and errors as in `auroc`; NaN where the truth has no edges.
    """
    strengths, edges = _ranked(scores, truth)
    if not edges.any():
        return float("nan")
    at_least_as_high = _ranks(-strengths, method="max")[edges]
    true_among_them = _ranks(-strengths[edges], method="max")
    return float(np.mean(true_among_them / at_least_as_high))


def binary_auroc(
    weights: GraphLike, truth: GraphLike, threshold: float = 0.2, count_diagonal: bool = True
) -> float:
    """Area under the "curve" of a graph that was cut: how Chen, Ma & Yue (2024) score NetSim.

    The public notebook sets the entries of W + A below the threshold in absolute value to 0, the
    others to 1, and takes the AUROC of these two values. One point makes the curve, so the area is
    the mean of the true positive rate and the true negative rate. The notebook also compares the
    **diagonals**: the shipped networks hold -1 there, which makes an edge of every variable to
    itself, and a variable's own past is what A finds most easily.

    So it must not be compared with figures that leave the diagonal out, as `auroc` and the
    literature do: the identity matrix, which knows of no edge between two variables, has .75, .738
    and .727 on the networks of 5, 10 and 15 variables, where the paper's own subjects have .738,
    .738 and .736 on average; off the diagonal it has .5.

    Parameters
    ----------
    weights : CausalGraph or array_like, shape (d, d)
        Signed weights; of a graph with lags the sum over slices, W + A_1 + ... + A_p, in which
        opposite effects cancel.
    truth : CausalGraph or array_like, shape (d, d)
        The true edges; those of any lag together.
    threshold : float, default 0.2
        Entries of at least this absolute value are edges (the notebook's); exact zeros never are.
    count_diagonal : bool, default True
        Take every variable's edge to itself as true, as the notebook does; False leaves the
        diagonal out.

    Returns
    -------
    float
        From 0 to 1; NaN where the truth has all edges or none.

    Raises
    ------
    DataError
        If a weight is not finite, or the shapes or names differ.
    ConfigError
        If the threshold is negative or not finite.
    """
    if not (np.isfinite(threshold) and threshold >= 0):
        raise ConfigError(f"threshold is {threshold}: expected a number from 0 up")
    true, found = aligned(truth, weights)
    total = found.weights if found.lagged is None else found.weights + found.lagged.sum(axis=0)
    chosen = (total != 0) & (np.abs(total) >= threshold)
    diagonal = np.eye(len(true.names), dtype=bool)
    edges = _edges(true) | diagonal
    scored = np.ones_like(diagonal) if count_diagonal else ~diagonal
    chosen, edges = chosen[scored], edges[scored]
    if edges.all() or not edges.any():
        return float("nan")
    return float((chosen[edges].mean() + (~chosen[~edges]).mean()) / 2)


def _ranks(
    values: NDArray[np.float64], method: Literal["average", "max"] = "average"
) -> NDArray[np.float64]:
    """Rank values from 1 up by scipy, whose statistics take a second to import."""
    from scipy import stats

    ranks: NDArray[np.float64] = stats.rankdata(values, method=method)
    return ranks


def _ranked(scores: GraphLike, truth: GraphLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the off-diagonal scores and edges as vectors of d (d - 1)."""
    if isinstance(scores, CausalGraph):
        true, ranked = aligned(truth, scores)
        strengths = _strengths(ranked)
    else:
        strengths = np.asarray(scores, dtype=np.float64)
        true = truth if isinstance(truth, CausalGraph) else CausalGraph.from_array(truth)
    size = len(true.names)
    if strengths.shape != (size, size):
        raise DataError(f"scores have shape {strengths.shape}, the truth has {size} variables")
    off_diagonal = ~np.eye(size, dtype=bool)
    strengths = strengths[off_diagonal]
    if not np.isfinite(strengths).all() or (strengths < 0).any():
        raise DataError("scores must be finite and non-negative: give absolute values")
    return strengths, _edges(true)[off_diagonal]


def _edges(graph: CausalGraph) -> NDArray[np.bool_]:
    """Return the edges of any lag together."""
    if graph.lagged is None:
        return graph.adjacency
    return np.asarray(graph.adjacency | (graph.lagged != 0).any(axis=0))


def _strengths(graph: CausalGraph) -> NDArray[np.float64]:
    """Return the absolute weights before the threshold, summed over lags."""
    raw = graph.weights if graph.raw_weights is None else graph.raw_weights
    strengths: NDArray[np.float64] = np.abs(raw)
    lagged = graph.lagged if graph.raw_lagged is None else graph.raw_lagged
    if lagged is not None:
        strengths = strengths + np.abs(lagged).sum(axis=0)
    return strengths


def varsortability(
    graph: GraphLike, variances: ArrayLike, names: tuple[str, ...] | None = None
) -> float:
    """How well the variances alone tell causes from effects (Reisach et al., 2021, eq. 1).

    The share of pairs (cause, effect), joined by a directed path of k edges and counted for
    k = 1, 2, ..., in which the effect has the larger variance; equal variances count half. Near 1
    a method that looks at variances (least squares without standardisation) finds the order for
    free, and its success says nothing about data in other units; 0.5 is no information.

    Parameters
    ----------
    graph : CausalGraph or array_like, shape (d, d)
        The true graph.
    variances : array_like, shape (d,)
        The variables' variances, in the graph's order, or in that of ``names``.
    names : tuple of str, optional
        The order of ``variances``.

    Returns
    -------
    float
        From 0 to 1; NaN for a graph without edges.

    Raises
    ------
    DataError
        If the number of variances differs, or one is negative or not finite.
    """
    graph = graph if isinstance(graph, CausalGraph) else CausalGraph.from_array(graph)
    if names is not None:
        graph = reordered(graph, names)
    spread = np.asarray(variances, dtype=np.float64)
    if spread.shape != (len(graph.names),):
        raise DataError(
            f"variances have shape {spread.shape}, expected one for each of {len(graph.names)} "
            "variables"
        )
    if not np.isfinite(spread).all() or (spread < 0).any():
        raise DataError("variances must be finite and not negative")
    equal = np.isclose(spread[:, None], spread[None, :], rtol=1e-9, atol=0.0)
    credit = np.where(equal, 0.5, spread[:, None] < spread[None, :])
    edges = graph.adjacency.astype(np.float64)
    joined = edges
    total = earned = 0.0
    for _ in range(len(spread) - 1):
        if not joined.any():
            break
        total += joined.sum()
        earned += (joined * credit).sum()
        joined = (joined @ edges > 0).astype(np.float64)
    return float(earned / total) if total else float("nan")
