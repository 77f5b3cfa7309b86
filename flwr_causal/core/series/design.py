"""The lagged design: a problem over time as one without time over ``m = d (1 + p)`` columns.

The model of 2Dbn (Chen, Ma & Yue 2024) is ``x_t^T = x_t^T W + sum_l x_{t-l}^T A_l + u_t^T`` for
l = 1..p, where W is acyclic and the A_l are arbitrary. With the rows ``z_t = [x_t, x_{t-1}, ...,
x_{t-p}]`` and the stacked weights ``[W; A_1; ...; A_p]`` of shape ``(m, d)`` it is a linear system
over the columns of z in which the lagged columns have no causes. The solvers for rows without time
solve it. Row causes column, as everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.arrays import Entry, to_square
from flwr_causal.core.graphs.acyclicity import break_cycles
from flwr_causal.core.graphs.graph import CausalGraph, distinct_names
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray


def lagged_rows(series: Sequence[FloatArray], order: int) -> FloatArray:
    """Return the rows ``[x_t, x_{t-1}, ..., x_{t-p}]`` of several series, series by series.

    Parameters
    ----------
    series : sequence of ndarray of shape (T_m, d)
        At least one; the rows are steps in the order of time. A series of p steps or fewer gives no
        rows.
    order : int
        p, 0 or more; with 0 the series are stacked.

    Returns
    -------
    ndarray of shape (sum_m max(T_m - p, 0), d (1 + p)), C-contiguous
        Series by series, each in the order of time.

    Raises
    ------
    ConfigError
        If the order is not a whole number of at least 0.
    DataError
        If there is no series, or the series do not all have the same number of variables.
    """
    _check_order(order)
    if not series:
        raise DataError("there are no series: give at least one, of shape (steps, variables)")
    shapes = [np.shape(values) for values in series]
    for position, shape in enumerate(shapes, start=1):
        if len(shape) != 2 or shape[1] != shapes[0][-1]:
            raise DataError(
                f"series {position} of {len(series)} has shape {shape}, expected "
                f"(steps, {shapes[0][-1]}): all series need the variables of the first"
            )
    d = shapes[0][1]
    counts = [max(steps - order, 0) for steps, _ in shapes]
    rows = np.empty((sum(counts), d * (1 + order)))
    ends = np.cumsum(counts)
    for values, count, end in zip(series, counts, ends, strict=True):
        for lag in range(order + 1 if count else 0):
            first = order - lag
            rows[end - count : end, d * lag : d * (lag + 1)] = values[first : first + count]
    return rows


def lagged_names(names: Sequence[str], order: int) -> tuple[str, ...]:
    """Return the names of the m columns: ``x0, ..., x0[t-1], ..., x0[t-p], ...``.

    Raises
    ------
    DataError
        If names repeat, as where a variable has the name of another one's lag.
    """
    _check_order(order)
    past = [f"{name}[t-{lag}]" for lag in range(1, order + 1) for name in names]
    return distinct_names([*names, *past])


def knowledge_masks(knowledge: Knowledge | None, names: Sequence[str], order: int) -> EdgeMasks:
    """Return background knowledge over all m columns, the form that solvers without time take.

    Parameters
    ----------
    knowledge : Knowledge or None
        None allows everything.
    names : sequence of str
        Names of the d variables.
    order : int
        p; with 0 there are edges without a lag only.

    Returns
    -------
    EdgeMasks
        Over ``(m, m)``; no edge leads into a lagged column, and no variable at t causes itself at
        t. The first d columns, ``(m, d)``, are the mask of the stacked weights.

    Raises
    ------
    ConfigError
        If the order is not a whole number of at least 0, or the knowledge names a variable or a lag
        that does not exist.
    """
    _check_order(order)
    blocks = (knowledge or Knowledge()).blocks(names, order)
    return EdgeMasks(
        allowed=to_square(join_blocks(blocks.allowed_now, blocks.allowed_lagged)),
        required=to_square(join_blocks(blocks.required_now, blocks.required_lagged)),
    )


def split_blocks(weights: NDArray[Entry]) -> tuple[NDArray[Entry], NDArray[Entry]]:
    """Split stacked weights ``(..., m, d)`` into W ``(..., d, d)`` and A ``(..., p, d, d)``.

    Raises
    ------
    DataError
        If m is not a multiple of d.
    """
    *front, m, d = np.shape(weights)
    if d == 0 or m == 0 or m % d:
        raise DataError(f"stacked weights of {d} variables need a multiple of {d} rows, got {m}")
    blocks = np.reshape(weights, (*front, m // d, d, d))
    return blocks[..., 0, :, :], blocks[..., 1:, :, :]


def join_blocks(now: NDArray[Entry], lagged: NDArray[Entry]) -> NDArray[Entry]:
    """Stack W ``(..., d, d)`` on A ``(..., p, d, d)``; the result has shape ``(..., m, d)``.

    Raises
    ------
    DataError
        If the shapes do not fit.
    """
    *front, rows, d = np.shape(now)
    order = np.shape(lagged)[-3] if np.ndim(lagged) > 2 else -1
    if rows != d or np.shape(lagged) != (*front, order, d, d):
        raise DataError(
            f"instantaneous edges of shape {np.shape(now)} and lagged ones of shape "
            f"{np.shape(lagged)} do not fit: (d, d) and (p, d, d) are expected"
        )
    past = np.reshape(lagged, (*front, order * d, d))
    return np.concatenate([now, past], axis=-2)


def stacked_weights(graph: CausalGraph) -> FloatArray:
    """Return the weights of a graph over the columns of its design, shape ``(d (1 + p), d)``."""
    return np.vstack([graph.weights, *(() if graph.lagged is None else graph.lagged)])


def stacked_edges(graph: CausalGraph) -> BoolArray:
    """Return the edges of a graph over the columns of its design, shape ``(d (1 + p), d)``."""
    lagged = () if graph.lagged is None else graph.lagged != 0
    return np.vstack([graph.adjacency, *lagged])


def lagged_graph(
    names: Sequence[str],
    weights: FloatArray,
    *,
    threshold_now: float,
    threshold_lagged: float,
    raw: FloatArray | None = None,
    masks: EdgeMasks | None = None,
) -> CausalGraph:
    """Make the causal graph of stacked weights; its instantaneous edges form a DAG.

    Parameters
    ----------
    names : sequence of str
        The d variables.
    weights : ndarray of shape (m, d)
        Estimates. Edges whose absolute weight does not exceed the threshold are dropped, then the
        weakest instantaneous edges on cycles.
    threshold_now, threshold_lagged : float
        Thresholds of instantaneous and of lagged edges; Chen et al. 2024 use 0.3 for both.
    raw : ndarray of shape (m, d), optional
        Estimates that become ``raw_weights`` and ``raw_lagged``, if ``weights`` have already been
        thresholded or refitted. Default: ``weights``.
    masks : EdgeMasks, optional
        From :func:`knowledge_masks`. The weights of edges that are not allowed are set to 0;
        required edges are exempt from thresholds and from the removal of cycles (the weight of a
        required lagged edge must not be 0).

    Raises
    ------
    ConfigError
        If a threshold is negative or not finite.
    DataError
        If shapes do not fit or a number is not finite.
    """
    for option, value in (("now", threshold_now), ("lagged", threshold_lagged)):
        if not (np.isfinite(value) and value >= 0):
            raise ConfigError(f"threshold_{option} is {value}: give a number of at least 0")
    estimates = np.asarray(weights, dtype=np.float64)
    original = estimates if raw is None else np.asarray(raw, dtype=np.float64)
    required = np.zeros(estimates.shape, dtype=bool)
    if masks is not None:
        allowed, required = (mask[:, : estimates.shape[1]] for mask in masks)
        estimates, original = (np.where(allowed, array, 0.0) for array in (estimates, original))
    now, lagged = split_blocks(estimates)
    required_now, required_lagged = split_blocks(required)
    standing = np.where((np.abs(now) > threshold_now) | required_now, now, 0.0)
    raw_now, raw_lagged = split_blocks(original)
    return CausalGraph(
        names=tuple(names),
        weights=break_cycles(standing, required_now),
        lagged=np.where((np.abs(lagged) > threshold_lagged) | required_lagged, lagged, 0.0),
        raw_weights=raw_now,
        raw_lagged=raw_lagged if len(raw_lagged) else None,
        required=required_now if masks is not None else None,
    )


def companion_radius(now: FloatArray, lagged: FloatArray) -> float:
    """Return the spectral radius of the companion matrix; below 1 the system is stationary.

    The companion matrix is that of the reduced form ``x_t^T = sum_l x_{t-l}^T A_l (I - W)^{-1} +
    noise``.

    Parameters
    ----------
    now : ndarray of shape (d, d)
        W.
    lagged : ndarray of shape (p, d, d)
        A_1, ..., A_p.

    Returns
    -------
    float
        0 without lags; infinite if I - W is singular, which is possible only for W with cycles.
    """
    order, d = len(lagged), len(now)
    if order == 0:
        return 0.0
    past = np.reshape(lagged, (order * d, d))
    companion = np.eye(order * d, k=d)
    try:
        companion[:, :d] = np.linalg.solve((np.eye(d) - now).T, past.T).T
    except np.linalg.LinAlgError:
        return np.inf
    return float(np.abs(np.linalg.eigvals(companion)).max())


def _check_order(order: int) -> None:
    if isinstance(order, bool) or not isinstance(order, int | np.integer) or order < 0:
        raise ConfigError(
            f"order is {order!r}: give the number of lags, a whole number of at least 0"
        )
