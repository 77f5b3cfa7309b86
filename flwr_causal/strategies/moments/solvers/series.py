"""Graphs of time series with lags: Moments with an ``order``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.linear.polish import polish_graph
from flwr_causal.core.series.design import knowledge_masks, lagged_graph
from flwr_causal.core.series.solution import LaggedProblem
from flwr_causal.errors import ConfigError
from flwr_causal.strategies.moments.solvers.solver import WeightedGraph
from flwr_causal.strategies.series import by_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.graphs.knowledge import Knowledge
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.sources.products import Products
    from flwr_causal.strategies.moments.options import MomentsOptions


def masks_of_series(
    knowledge: Knowledge | None, names: Sequence[str], options: MomentsOptions
) -> EdgeMasks:
    """Return the background knowledge over the columns of the lagged design.

    Raises
    ------
    ConfigError
        If it requires instantaneous edges, and ``instantaneous=False`` leaves them out.
    """
    d, masks = len(names), knowledge_masks(knowledge, names, options.order)
    if options.instantaneous is False and masks.required[:d, :d].any():
        raise ConfigError(
            "The background knowledge requires instantaneous edges, and instantaneous=False "
            "leaves them out: state them as lagged edges, or use instantaneous=True."
        )
    return masks


def allowed_now(masks: EdgeMasks, options: MomentsOptions, d: int) -> EdgeMasks:
    """Return the masks without edges within a step where these are not fitted."""
    allowed = masks.allowed.copy()
    allowed[:d] &= options.instantaneous is not False
    return EdgeMasks(allowed, masks.required)


def solve_series(
    pooled: Products, options: MomentsOptions, *, select_order: bool | int
) -> WeightedGraph:
    """Find the graph of time series with lags.

    Parameters
    ----------
    pooled : Products
    options : MomentsOptions
        p is the ``order``.
    select_order : bool or int
        Whether the number of lags is chosen by held-out error; a number is the one to take.
    """
    agreement, design = pooled.agreement, pooled.design
    problem = _problem(agreement, pooled.masks, options, select_order)
    d = len(agreement.names)
    if agreement.targets:
        found = problem.search(pooled.moments, d, with_now=bool(problem.instantaneous))
    else:
        folds = design.moments_of_sets(pooled.values, agreement.n)
        fewer = () if pooled.of_fewer_lags is None else pooled.of_fewer_lags
        by_order = {k: design.moments(own, agreement.n) for k, own in enumerate(fewer, 1)}
        found = problem.solve(folds, d, by_order=by_order)
    over_columns = problem.cut(found.moments, found.raw, refit=options.refit)
    masks = problem.masks.first(len(found.raw))
    if options.polish:
        over_columns = polish_graph(
            found.moments, over_columns, score=options.score, knowledge=masks, num_targets=d
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


def _problem(
    agreement: Agreement, masks: EdgeMasks, options: MomentsOptions, select_order: bool | int
) -> LaggedProblem:
    """Return the penalties, thresholds and choices of the options."""
    d = len(agreement.names)
    solver = options.solver_of(agreement.n, d * (1 + options.order), bool(agreement.targets))
    return LaggedProblem(
        masks=masks,
        thresholds=by_block(*options.thresholds(solver), d, options.order),
        select_order=select_order,
        instantaneous=options.instantaneous,
        regression=options.regression,
        ranking=options.ranking,
        sparsity=options.sparsity,
        lagged_sparsity=options.lagged_factor(options.sparsity),
        ridge=options.ridge,
        solver=solver,
        least_effect=options.least_effect,
    )
