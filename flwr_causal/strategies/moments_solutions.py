"""What the moments method makes of the summed products: of rows, or of steps of time series."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.folds import num_held_out
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.linear.notears import notears
from flwr_causal.core.linear.polish import polish_graph
from flwr_causal.core.linear.selection import (
    default_sparsity,
    select_by_bic,
    select_by_held_out,
    typical_variance,
)
from flwr_causal.core.nonlinear.additive import additive, function_names
from flwr_causal.core.series.design import lagged_graph, lagged_names
from flwr_causal.core.series.solution import LaggedProblem
from flwr_causal.strategies.series import by_block, stationarity_warning, system_of_series

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.model import LinearModel
    from flwr_causal.core.series.model import LaggedModel
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.moments import Moments as MomentsStrategy

    FloatArray = NDArray[np.float64]


class Outcome(NamedTuple):
    """What comes of the one exchange.

    Parameters
    ----------
    moments : Moments
        Of all parties together, centred and scaled.
    graph : CausalGraph
    model : LinearModel or LaggedModel or None
        In the units of the data.
    scores : ndarray of shape (d, d)
        The strength of every edge, for ranking.
    warnings : tuple of str
    info : dict
        What was chosen: plain numbers.
    """

    moments: Moments
    graph: CausalGraph
    model: LinearModel | LaggedModel | None
    scores: FloatArray
    warnings: tuple[str, ...]
    info: dict[str, Any]


def solve_rows(
    method: MomentsStrategy, agreement: Agreement, masks: EdgeMasks, sums: FloatArray
) -> Outcome:
    """Solve for rows without time.

    Parameters
    ----------
    method : Moments
        For its options.
    agreement : Agreement
    masks : EdgeMasks
        Over the d columns.
    sums : ndarray of shape (folds, d, d)
        Products of the centred and scaled rows of each fold, divided by all n rows.
    """

    def moments_of(n: int, products: FloatArray) -> Moments:
        zeros = np.zeros(len(agreement.names))
        return Moments(n, zeros, products * (agreement.n / n), agreement.names)

    def solve(moments: Moments, sparsity: float) -> CausalGraph:
        solver = notears if method.solver == "notears" else dagma
        return solver(
            moments,
            sparsity=sparsity,
            threshold=method.thresholds[0],
            knowledge=masks,
            refit=method.refit,
        )

    pooled = moments_of(agreement.n, sums.sum(axis=0))
    if isinstance(method.sparsity, float):
        sparsity = method.sparsity
    elif method.sparsity == "auto":
        sparsity = default_sparsity(pooled.n, pooled.d, typical_variance(pooled))
    elif method.sparsity == "bic":
        sparsity = select_by_bic(pooled, None, solve).chosen
    else:
        held_out = int(num_held_out(np.array(list(agreement.rows.values()))).sum())
        train = moments_of(agreement.n - held_out, sums[0])
        sparsity = select_by_held_out(train, moments_of(held_out, sums[1]), None, solve).chosen
    graph = solve(pooled, sparsity)
    assert graph.raw_weights is not None
    scores = np.abs(graph.raw_weights)
    if method.polish:
        graph = polish_graph(pooled, graph, score=method.score, knowledge=masks)
    return Outcome(
        moments=pooled,
        graph=graph,
        model=method.fitted_system(agreement, pooled, graph.adjacency),
        scores=scores,
        warnings=tuple(method.order_warning(agreement, graph.adjacency)),
        info={"sparsity": sparsity},
    )


def solve_additive(
    method: MomentsStrategy, agreement: Agreement, masks: EdgeMasks, sums: FloatArray
) -> Outcome:
    """Solve for additive effects.

    Parameters
    ----------
    method : Moments
        For its options.
    agreement : Agreement
    masks : EdgeMasks
        Over the d columns.
    sums : ndarray of shape (1, 1 + d q, 1 + d q)
        Products of the rows [1, functions of the variables], divided by all n rows.
    """
    mean = sums[0, 0, 1:] / sums[0, 0, 0]
    second = sums[0, 1:, 1:] / sums[0, 0, 0] - np.outer(mean, mean)
    pooled = Moments(agreement.n, mean, second, function_names(agreement.names))
    graph = additive(
        pooled,
        len(agreement.names),
        names=agreement.names,
        sparsity=None if isinstance(method.sparsity, str) else method.sparsity,
        threshold=method.thresholds[0],
        knowledge=masks,
        refit=method.refit,
    )
    assert graph.raw_weights is not None
    return Outcome(pooled, graph, None, np.abs(graph.raw_weights), (), {})


def solve_series(
    method: MomentsStrategy, agreement: Agreement, masks: EdgeMasks, sums: FloatArray
) -> Outcome:
    """Solve for steps of time series with their lags.

    Parameters
    ----------
    method : Moments
        For its options.
    agreement : Agreement
    masks : EdgeMasks
        Over the m = d (1 + p) columns of the design.
    sums : ndarray of shape (folds + orders, 2 + m, 2 + m)
        Products of the rows [1, g, z] of each fold, z centred and scaled, g = 1 where they share
        the agreed level, divided by all n rows; then those of all rows that each smaller order has.
    """
    d = len(agreement.names)
    columns = lagged_names(agreement.names, method.order)
    problem = LaggedProblem(
        masks=masks,
        thresholds=by_block(*method.thresholds, d, method.order),
        select_order=method.select_order,
        instantaneous=method.instantaneous,
        regression=method.regression,
        ranking=method.ranking,
        sparsity=method.sparsity,
        lagged_sparsity=method.lagged_factor(automatic=isinstance(method.sparsity, str)),
        ridge=method.ridge,
        solver=method.solver,
    )
    folds = _moments(sums[: method.num_folds], agreement.n, columns)
    own = [_moments(part[None], agreement.n, columns)[0] for part in sums[method.num_folds :]]
    found = problem.solve(folds, d, by_order={1 + k: part for k, part in enumerate(own)})
    over_columns = problem.cut(found.moments, found.raw, refit=method.refit)
    m = found.moments.d
    own_masks = masks.first(m)
    if method.polish:
        over_columns = polish_graph(
            found.moments, over_columns, score=method.score, knowledge=own_masks, num_targets=d
        )
    graph = lagged_graph(
        agreement.names,
        over_columns.weights[:, :d],
        threshold_now=0,
        threshold_lagged=0,
        raw=found.raw,
        masks=own_masks,
    )
    info = {"sparsity": found.sparsity, "ridge": found.ridge}
    return Outcome(
        moments=found.moments,
        graph=graph,
        model=system_of_series(
            agreement, method.scale(agreement), found.moments, over_columns.adjacency
        ),
        scores=found.scores,
        warnings=tuple(stationarity_warning(graph)),
        info={
            "order": found.order,
            "instantaneous": int(found.instantaneous),
            **{name: value for name, value in info.items() if np.isfinite(value)},
        },
    )


def _moments(sums: FloatArray, total: int, columns: tuple[str, ...]) -> list[Moments]:
    """Return the moments of each fold's rows from its products of [1, g, z], divided by all rows.

    They are about the level of z, column by column its mean over all rows with g = 1: so held-out
    rows are judged with the intercept that all rows have, not with one of the other folds'.
    """
    level = sums[:, 1, 2:].sum(axis=0) / sums[:, 1, 1].sum()
    folds = []
    for products in sums:
        share, sharing, own = products[0, 0], products[1, 1], products[1, 2:]
        if share == 0:
            continue
        about = np.outer(level, own)
        second = products[2:, 2:] - about - about.T + sharing * np.outer(level, level)
        folds.append(Moments(round(total * float(share)), level, second / share, columns))
    return folds
