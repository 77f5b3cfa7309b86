"""Baselines on the same rows as the federated methods: pooled, alone, combined, no method at all.

A baseline is a function of a `World` and of its settings. "pooled", "each-alone", "voting",
"average", "best" and "one-shot" take ``solver``, one of `SOLVERS`, and the solver's own settings;
the parties' graphs are computed once for all of them.
"""

from __future__ import annotations

import time
import weakref
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from benchmarks import combined
from benchmarks.world import LineResult, World
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import r2_sortability, varsortability
from flwr_causal.core.linear import baselines as linear
from flwr_causal.core.linear.moments import SampleMoments, merge
from flwr_causal.core.linear.regression import explained_shares
from flwr_causal.core.nonlinear.notears_mlp import notears_mlp
from flwr_causal.core.series.design import lagged_graph, lagged_names, lagged_rows
from flwr_causal.core.series.regression import dynotears
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.solvers import block_search, fuse, ges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.ges.ges import Score
    from flwr_causal.core.series.regression import SolverName

#: Sparsity that the authors of DYNOTEARS recommend (Pamfil et al., 2020), and threshold. That of
#: Chen, Ma & Yue (2024) is 0.3, the smallest weight in their data, but the L1 penalty shrinks some
#: weights below: their code has SHD 19 in W at 0.3, and 4 at 0.15 (d = 20, n = 256, K = 8).
SERIES_SPARSITY, SERIES_THRESHOLD = 0.05, 0.15
#: Largest number of L-BFGS-B iterations of an inner problem of NOTEARS-MLP: the errors are those
#: of SciPy's default of 15,000 in half the time.
MLP_STEPS = 300


def _linear(solve: linear.Solver, world: World, center: bool = True) -> _Parts:
    moments = [
        SampleMoments.from_rows(_numbers(party), tuple(party.columns)) for party in world.parties
    ]
    if not center:
        # Every party is centred by its own means, as in Yang et al. (2024).
        moments = [
            SampleMoments.from_rows(rows - rows.mean(axis=0), tuple(party.columns), center=False)
            for party in world.parties
            for rows in (_numbers(party),)
        ]
    return _Parts(partial(linear.all_data, moments, solve), partial(linear.alone, moments, solve))


class _Parts(NamedTuple):
    """Two computations that are run when they are first needed."""

    pooled: Callable[[], CausalGraph]
    alone: Callable[[], list[CausalGraph]]


def _perceptrons(world: World) -> _Parts:
    tables = [party - party.mean() for party in world.parties]
    solve = partial(notears_mlp, max_iterations=MLP_STEPS)
    return _Parts(lambda: solve(pd.concat(tables)), lambda: [solve(table) for table in tables])


def _series(
    world: World,
    sparsity: float = SERIES_SPARSITY,
    threshold: float = SERIES_THRESHOLD,
    path: SolverName = "dagma",
) -> _Parts:
    truth = world.truth
    lags = 0 if truth is None or truth.lagged is None else len(truth.lagged)
    order = int(world.options.get("order", lags))
    if truth is None or not order:
        raise DataError("the truth has no lags: the solver 'dynotears' takes their number from it")
    names = truth.names
    moments = []
    for party in world.parties:
        parts = party if isinstance(party, list) else [party]
        rows = lagged_rows([part[list(names)].to_numpy(np.float64) for part in parts], order)
        moments.append(SampleMoments.from_rows(rows, lagged_names(names, order)))

    def solve(of: SampleMoments) -> CausalGraph:
        weights = dynotears(of, len(names), sparsity, solver=path)
        return lagged_graph(names, weights, threshold_now=threshold, threshold_lagged=threshold)

    return _Parts(lambda: solve(merge(moments)), lambda: [solve(one) for one in moments])


def _classes(score: Score, world: World) -> _Parts:
    solve = partial(ges, score=score)
    return _Parts(lambda: solve(world.pooled), lambda: [solve(party) for party in world.parties])


def _orders(world: World, normal_scores: bool = False) -> _Parts:
    """Search the orders of the variables for the class of the best BIC, of categories too."""
    scored = with_normal_scores if normal_scores else pd.DataFrame.copy
    return _Parts(
        lambda: block_search(scored(world.pooled)),
        lambda: [block_search(scored(party)) for party in world.parties],
    )


def with_normal_scores(table: pd.DataFrame) -> pd.DataFrame:
    """Replace the numbers of each column by the normal quantiles of their mean ranks."""
    numbers = table.select_dtypes("number")
    return table.assign(**(numbers.rank() / (len(table) + 1)).apply(ndtri))


#: How a graph is found from one table.
SOLVERS: dict[str, Callable[..., _Parts]] = {
    "notears": partial(_linear, linear.paper_solver),
    "dagma": partial(_linear, combined.quick_solver),
    "dagma-by-party": partial(_linear, combined.quick_solver, center=False),
    "notears-by-party": partial(_linear, linear.paper_solver, center=False),
    "notears-mlp": _perceptrons,
    "dynotears": _series,
    "ges": partial(_classes, "bdeu"),
    "ges-gaussian": partial(_classes, "gaussian-bic"),
    "orders": _orders,
}

_found: weakref.WeakKeyDictionary[World, dict[str, tuple[Any, float]]] = weakref.WeakKeyDictionary()


def _solved(world: World, solver: str, part: str, settings: Mapping[str, Any]) -> tuple[Any, float]:
    """Return the pooled graph or the parties' graphs, and the CPU seconds if they were there."""
    if solver not in SOLVERS:
        raise ConfigError(f"no solver '{solver}' of baselines: choose of {', '.join(SOLVERS)}")
    known = _found.setdefault(world, {})
    key = f"{solver} {part} {sorted(settings.items())}"
    if key in known:
        return known[key]
    start = time.process_time()
    graphs = getattr(SOLVERS[solver](world, **settings), part)()
    known[key] = graphs, time.process_time() - start
    return graphs, 0.0


def pooled(world: World, solver: str = "dagma", **settings: Any) -> LineResult:
    """Return the graph of the rows of all parties together: the bound of a federation."""
    graph, seconds = _solved(world, solver, "pooled", settings)
    return LineResult((graph,), shared_seconds=seconds)


def each_alone(world: World, solver: str = "dagma", **settings: Any) -> LineResult:
    """Return the graph of each party's rows; metrics are means over the parties."""
    graphs, seconds = _solved(world, solver, "alone", settings)
    return LineResult(tuple(graphs), shared_seconds=seconds)


def voting(world: World, solver: str = "dagma", **settings: Any) -> LineResult:
    """Return the edges that more than half of the parties found; it may have cycles."""
    graphs, seconds = _solved(world, solver, "alone", settings)
    return LineResult((voted(graphs),), shared_seconds=seconds)


def voted(graphs: Sequence[CausalGraph]) -> CausalGraph:
    """Return the edges of more than half of the graphs; of classes an edge is each direction."""
    if graphs[0].kind == "cpdag":
        votes = np.mean([graph.adjacency for graph in graphs], axis=0) > 0.5
        return CausalGraph(graphs[0].names, votes * 1.0, kind="cpdag")
    return combined.voting(graphs)


def average(
    world: World, solver: str = "dagma", weighted: bool = False, **settings: Any
) -> LineResult:
    """Return the thresholded mean of the parties' weights; it may have cycles.

    ``weighted``: by the parties' numbers of rows, as Yang et al. (2024) have it.
    """
    graphs, seconds = _solved(world, solver, "alone", settings)
    if graphs[0].lagged is not None:
        limit = float(settings.get("threshold", SERIES_THRESHOLD))
        return LineResult((_series_average(graphs, limit),), shared_seconds=seconds)
    rows = [len(party) for party in world.parties] if weighted else None
    return LineResult((combined.average(graphs, rows),), shared_seconds=seconds)


def _series_average(graphs: list[CausalGraph], threshold: float) -> CausalGraph:
    raw, lagged = [], []
    for graph in graphs:
        raw.append(graph.weights if graph.raw_weights is None else graph.raw_weights)
        lagged.append(graph.lagged if graph.raw_lagged is None else graph.raw_lagged)
    means = np.mean(raw, axis=0), np.mean(np.array(lagged), axis=0)
    # A summary graph keeps its cycles, as in the paper.
    mean = CausalGraph(graphs[0].names, means[0], kind="summary", lagged=means[1])
    return mean.threshold(threshold)


def best(world: World, solver: str = "dagma", **settings: Any) -> LineResult:
    """Return the party's graph with the lowest SHD to the truth, which needs the truth."""
    graphs, seconds = _solved(world, solver, "alone", settings)
    if world.truth is None:
        raise DataError("the baseline 'best' needs a world with a truth")
    return LineResult((combined.best(graphs, world.truth),), shared_seconds=seconds)


def one_shot(world: World, solver: str = "ges", **settings: Any) -> LineResult:
    """Return the fusion of the parties' graphs, all edges kept: one exchange of graphs."""
    graphs, seconds = _solved(world, solver, "alone", settings)
    names = graphs[0].names
    fused = fuse([graph.to_dag().adjacency for graph in graphs], len(names))
    marks = np.zeros((len(names), len(names)))
    marks[fused.edges[:, 0], fused.edges[:, 1]] = 1.0
    return LineResult((CausalGraph(names, marks),), shared_seconds=seconds)


def empty(world: World) -> LineResult:
    """Return no edges at all."""
    if world.truth is None:
        raise DataError("the baseline 'empty' needs a world with a truth")
    names = world.truth.names
    lagged = None if world.truth.lagged is None else np.zeros_like(world.truth.lagged)
    return LineResult((CausalGraph(names, np.zeros((len(names),) * 2), lagged=lagged),))


def sort_by_variance(world: World) -> LineResult:
    """Order the variables by variance, and regress each on those before it (Reisach et al. 2021).

    A method that is not better has learned from the units, not from the structure.
    """
    rows, names = _rows(world)
    variances = rows.var(axis=0)
    found = LineResult((_regressed(rows, names, variances),))
    return _described(found, "varsortability", varsortability, world, variances)


def sort_by_r2(world: World) -> LineResult:
    """Order by the share of a variable's variance that all others explain (Reisach et al. 2023)."""
    rows, names = _rows(world)
    shares = explained_shares(np.cov(rows, rowvar=False, bias=True))
    found = LineResult((_regressed(rows, names, shares),))
    return _described(found, "r2_sortability", r2_sortability, world, shares)


def _described(
    found: LineResult,
    name: str,
    measure: Callable[[CausalGraph, FloatArray], float],
    world: World,
    values: FloatArray,
) -> LineResult:
    """Add to a sort what its order says of the data: a share of the causes and effects."""
    # The effects among hidden variables are part of what is measured.
    known = world.truth is not None and world.truth.marks is None
    value = measure(world.truth, values) if known else np.nan  # type: ignore[arg-type]
    return found if np.isnan(value) else replace(found, counts={name: value})


def _regressed(rows: FloatArray, names: tuple[str, ...], key: FloatArray) -> CausalGraph:
    """Return the adaptive lasso with BIC of each variable on those with a lower key."""
    from sklearn.linear_model import LassoLarsIC

    centred = rows - rows.mean(axis=0)
    order = np.argsort(key, kind="stable")
    weights = np.zeros((len(names), len(names)))
    for place in range(1, len(order)):
        target, before = order[place], order[:place]
        first = np.linalg.lstsq(centred[:, before], centred[:, target], rcond=None)[0]
        # Without more rows than columns BIC needs a stated variance of the noise.
        variance = None if len(rows) > place + 1 else float(centred[:, target].var()) / 2 or 1.0
        lasso = LassoLarsIC(criterion="bic", noise_variance=variance, fit_intercept=False)
        lasso.fit(centred[:, before] * np.abs(first), centred[:, target])
        weights[before, target] = lasso.coef_ * np.abs(first)
    return CausalGraph(names, weights)


def _rows(world: World) -> tuple[FloatArray, tuple[str, ...]]:
    table = world.pooled
    names = world.truth.names if world.truth is not None else tuple(table.columns)
    return _numbers(table[list(names)].dropna()), tuple(names)


def _numbers(table: pd.DataFrame) -> FloatArray:
    """Return the rows without missing values as numbers; states are numbered.

    A table of a party may have text in columns of two states.
    """
    coded = {
        str(name): pd.factorize(table[name], sort=True)[0]
        for name in table.columns
        if not pd.api.types.is_numeric_dtype(table[name])
    }
    numbers: FloatArray = table.assign(**coded).dropna().to_numpy(np.float64)
    return numbers


BASELINES: dict[str, Callable[..., LineResult]] = {
    "pooled": pooled,
    "each-alone": each_alone,
    "voting": voting,
    "average": average,
    "best": best,
    "one-shot": one_shot,
    "empty": empty,
    "sort-by-variance": sort_by_variance,
    "R2-sort": sort_by_r2,
}
#: These stand in every table of graphs over numbers.
ALWAYS = ("sort-by-variance", "R2-sort")
