"""Graphs of time series with lags: Moments with an ``order``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.linear.polish import polish_graph
from flwr_causal.core.series.design import lagged_graph, lagged_names
from flwr_causal.strategies.moments.outcome import WeightedGraph, moments_of_targets
from flwr_causal.strategies.series import series_moments

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.series.solution import LaggedProblem
    from flwr_causal.data.check.agreement import Agreement


def solve_series(
    agreement: Agreement,
    products: FloatArray,
    problem: LaggedProblem,
    *,
    num_smaller: int,
    order: int,
    refit: bool,
    score: Literal["bic", "equal-variance"] | None,
) -> WeightedGraph:
    """Find the graph of time series with lags.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances.
    products : ndarray of shape (folds + orders, 2 + m, 2 + m)
        Products of the rows [1, g, z] with z centred and scaled, and g = 1 for rows that are
        centred by the agreed mean, summed over each fold and divided by n; then the products of all
        rows with the lags of each smaller order. With interventions those of the rows [1, z] of
        each set of targets of x_t, shape (sets, 1 + m, 1 + m).
    problem : LaggedProblem
        Background knowledge over the m = d (1 + p) columns, penalties and the choices.
    num_smaller : int
        The number of smaller orders.
    order : int
        p.
    refit : bool
        Fit the weights of the graph by least squares.
    score : str or None
        The score by which single edges are changed afterwards; None: none are.
    """
    d = len(agreement.names)
    columns = lagged_names(agreement.names, order)
    if agreement.targets:
        own, _ = moments_of_targets(agreement, products, columns)
        found = problem.search(own, d, with_now=bool(problem.instantaneous))
    else:
        num_folds = len(products) - num_smaller
        folds = series_moments(products[:num_folds], agreement.n, columns)
        by_order = {
            1 + k: series_moments(part[None], agreement.n, columns)[0]
            for k, part in enumerate(products[num_folds:])
        }
        found = problem.solve(folds, d, by_order=by_order)
    over_columns = problem.cut(found.moments, found.raw, refit=refit)
    masks = problem.masks.first(len(found.raw))
    if score is not None:
        over_columns = polish_graph(
            found.moments, over_columns, score=score, knowledge=masks, num_targets=d
        )
    graph = lagged_graph(
        agreement.names,
        over_columns.weights[:, :d],
        threshold_now=0,
        threshold_lagged=0,
        raw=found.raw,
        masks=masks,
    )
    penalties = {"sparsity": found.sparsity, "ridge": found.ridge}
    info = {
        "order": found.order,
        "instantaneous": int(found.instantaneous),
        **{name: value for name, value in penalties.items() if np.isfinite(value)},
        **({} if found.search is None else found.search.info),
    }
    return WeightedGraph(found.moments, graph, found.scores, masks, info, found.search)
