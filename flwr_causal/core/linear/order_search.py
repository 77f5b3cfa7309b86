"""Linear structure learning by a search over the orders of the variables, from second moments.

A graph is scored by its likelihood, the spread of its noise variances, and its number of edges
(:func:`order_score`). For an order of the variables, each variable's parents are chosen among its
predecessors by adding and dropping single parents while the score improves (grow-shrink). The
search moves one variable at a time to its best place in the order, until no move improves the score
(BOSS, Andrews et al. 2023). It starts from several orders and keeps the graph of the best score.

References
----------
Andrews, Ramsey, Sanchez-Romero, Camchong, Kummerfeld: Fast scalable and accurate discovery of DAGs
using the best order score search and grow-shrink trees, NeurIPS 2023.
Chen, Drton, Wang: On causal discovery with an equal-variance assumption, Biometrika 2019.
Scott, Berger: Bayes and empirical-Bayes multiplicity adjustment in the variable-selection problem,
Annals of Statistics 2010.
"""

from __future__ import annotations

from copy import copy
from math import lgamma, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.limits import check_deadline, steps
from flwr_causal.core.linear.gaussian_scores import partial_correlations
from flwr_causal.core.linear.moments import (
    SampleMoments,
    columns_of,
    distinct,
    require_varying,
)
from flwr_causal.core.linear.order_kernels import (
    DEPENDENT,
    OrderRoom,
    Paths,
    SearchTask,
    choose_and_move,
)
from flwr_causal.core.linear.regression import (
    RESIDUAL_FLOOR,
    explained_shares,
    regress,
)
from flwr_causal.core.linear.solution import check_at_least_zero
from flwr_causal.core.ties import as_ranked
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks


# Least partial correlation of an edge, given the other parents. In large samples of systems that
# are not quite linear, smaller ones are significant and wrong. Measured on eight kinds of such
# systems (saturating and quadratic effects, noise that depends on the causes, mixtures, censored
# columns, heavy tails; d = 12, three seeds), the summed mean SHD with 0, .05, .1, .15, .2 and .3 is
# 107, 88, 54, 72, 59, 65 for n = 10,000; 63, 63, 59, 43, 66, 68 for n = 2,000; for n = 500 the
# edge's cost is larger anyway.
LEAST_EFFECT = 0.1
# Parents of a variable at most, as a share of the rows.
MOST_PARENTS = 1 / 3
# Rows for each column of the lagged design from which a search over orders is the default. On the
# simulations of the 2Dbn paper, errors in W and A by "order" and by "dagma": 15.1 and 11.8 in the
# mean of four settings with 2.5 to 3 rows a column, 1.9 and 2.4 from 6 rows on (seeds 100-103).
ROWS_FOR_ORDERS = 5
# Number of variables up to which all other variables are candidates for parents of a variable.
ALL_CANDIDATES = 200
# Candidates of a variable at most, if not all; the cost of a candidate (that of the AIC is 1).
MOST_CANDIDATES = 100
CANDIDATE_COST = 1.0
# Rounds of the search with more candidates, and with an adapted cost of an edge.
MOST_ROUNDS = 6
# Sweeps over the variables in a round; the search usually ends after less than ten.
MOST_SWEEPS = 100
# Sweeps of a search whose graph is one of several that are compared, see `core.linear.stability`.
ROUGH_SWEEPS = 2
# The correlations are rounded to multiples of this, so that sums over parties in another order give
# the same graph.
RESOLUTION = 2.0**-40

# With costs of their own, edges are tried that are worth this share of their cost, and then left
# out one by one where they are not worth the whole: see `SearchTask.growth`. Standardised systems
# of 20 variables, 80 edges and 1,000 rows (seeds 300-319), with 16 moves from the best order: the
# mean SHD of the class is 7.5 with a share of 1, 3.1 with .25, 2.6 with .1 and 3.2 with 0.
GROWTH = 0.1
# Of the walk over orders, in nats; and its steps between two looks at the deadline.
TEMPERATURE = 3.0
STEPS_BETWEEN_CHECKS = 100
# Variables that a move from the best order takes to other places.
NUM_MOVED = 3


class OrderCandidate(NamedTuple):
    """The result of the search from one order.

    Attributes
    ----------
    start
        Name of the order that the search started from.
    score
        :func:`order_score` of the graph; lower is better.
    adjacency
        ``(m, d)``: True at ``[i, j]`` where i causes j.
    order
        ``(d,)`` the order of the variables, causes first.
    sorted_score
        Score of the graph along the start order itself, without a search.
    """

    start: str
    score: float
    adjacency: BoolArray
    order: IntArray
    sorted_score: float


class OrderSolution(NamedTuple):
    """The candidates of a search, best first, and the strengths of the edges of the best.

    Attributes
    ----------
    candidates
        One for each start.
    strengths
        ``(m, d)`` absolute partial correlation of i and j given j's other parents, for variables i
        before j in the order and for lags; 0 for other pairs.
    """

    candidates: tuple[OrderCandidate, ...]
    strengths: FloatArray

    @property
    def best(self) -> OrderCandidate:
        """The candidate of the best score."""
        return self.candidates[0]

    @property
    def runner_up(self) -> OrderCandidate | None:
        """The best candidate with another graph; None if all starts led to the same graph."""
        found = self.best.adjacency
        others = (c for c in self.candidates if not np.array_equal(c.adjacency, found))
        return next(others, None)

    def explains(self, candidate: OrderCandidate) -> bool:
        """Whether the start order itself, without a search, explains the data as well.

        Its graph is then at most 20 times less probable than the best one.
        """
        return candidate.sorted_score - self.best.score < log(20)

    @property
    def info(self) -> dict[str, Any]:
        """The choice and the runner-up, for the history of a run."""
        info: dict[str, Any] = {"start": self.best.start, "score": self.best.score}
        if self.runner_up is not None:
            behind = self.runner_up.score - self.best.score
            info |= {"runner_up": self.runner_up.start, "runner_up_behind": behind}
        return info


def search_orders(
    moments: SampleMoments | Sequence[SampleMoments],
    masks: EdgeMasks,
    *,
    num_targets: int | None = None,
    least_effect: float = LEAST_EFFECT,
    starts: Mapping[str, Sequence[int]] | None = None,
    pairs: BoolArray | None = None,
    max_parents: int | None = None,
    edge_cost: float | FloatArray | None = None,
    widths: Sequence[int] | None = None,
    moves: int = 0,
) -> OrderSolution:
    """Search from several orders of the variables.

    Parameters
    ----------
    moments
        Moments of m columns: d variables, and their lags, which may cause every variable. Or d such
        moments, for each variable those of the rows that inform about what causes it, as under
        interventions (:mod:`core.interventions.moments`).
    masks
        Allowed and required edges over the m columns.
    num_targets
        d. Default: m, no lags.
    least_effect
        Least partial correlation of an edge, given the other parents.
    starts
        The orders to start from, by name. Default: :func:`sorted_orders`, of the moments of most
        rows.
    pairs
        ``(m, m)`` pairs of columns that may be adjacent; symmetric. Only moments among a variable
        and its possible neighbours are then read; others may be NaN. Default: all.
    max_parents
        Parents of a variable at most, besides the required ones. Default: a third of the rows.
    edge_cost, widths
        See :func:`order_score`. With widths starts must be given.
    moves
        How many further searches begin with the best order so far, in which some variables are
        moved to random places.

    Raises
    ------
    DataError
        If a variable is constant.
    ConfigError
        If ``least_effect`` is not from 0 to below 1.
    """
    check_at_least_zero(least_effect=least_effect)
    if least_effect >= 1:
        raise ConfigError(f"least_effect must be below 1, got {least_effect}")
    if isinstance(moments, SampleMoments):
        moments.require_varying()
        d = moments.d if num_targets is None else num_targets
        moments = [moments] * d
    if widths is None:
        require_varying(moments)
    problem = MomentOrders(moments, masks, least_effect, pairs, max_parents, edge_cost, widths)
    if starts is None:
        most = max(moments, key=lambda own: own.n)
        starts = sorted_orders(most, len(moments))
    found = problem.candidates(starts, moves)
    return OrderSolution(found, problem.strengths(found[0].adjacency, found[0].order))


def _rank(candidate: OrderCandidate) -> float:
    return float(as_ranked(candidate.score))


def moved(order: list[int], rng: np.random.Generator) -> list[int]:
    """Return the order with some variables at random places."""
    for _ in range(NUM_MOVED):
        moved = order.pop(rng.integers(len(order)))
        order.insert(rng.integers(len(order) + 1), moved)
    return order


def sorted_orders(moments: SampleMoments, num_targets: int | None = None) -> dict[str, list[int]]:
    """Return the orders to start from.

    "variance" sorts the variables by variance. "residual variance" chooses, one after the other,
    the variable of least variance given those before (Chen et al. 2019): the causal order where all
    noise variances are equal. "R2" sorts by the share of the variance that all other columns
    explain (Reisach et al. 2023), for more rows than columns. Lags are given in each of them.

    Parameters
    ----------
    moments
        Complete moments of m columns.
    num_targets
        d. Default: m.
    """
    d = moments.d if num_targets is None else num_targets
    variances = moments.variances
    scale = np.sqrt(variances)
    correlation = rounded(moments.correlations)
    left = correlation[:d, :d]
    if moments.d > d:
        past = correlation[d:, d:]
        left = (
            left - correlation[:d, d:] @ np.linalg.pinv(past, hermitian=True) @ correlation[d:, :d]
        )
        # A variable may be a combination of the lags, up to rounding.
        np.fill_diagonal(left, np.maximum(np.diagonal(left), DEPENDENT))
    explained = np.zeros(d)
    if moments.n > moments.d:
        explained = explained_shares(correlation)[:d]
    # Values that are equal up to rounding are ties, so that sums over parties in another order give
    # the same orders. Equal variances, as of standardised columns, are ordered by R2.
    explained = as_ranked(explained)
    size = as_ranked(np.log(variances[:d]))
    orders = {
        "variance": [int(j) for j in np.lexsort((explained, size))],
        "residual variance": _least_residual_first(left * np.outer(scale[:d], scale[:d])),
    }
    if moments.n > moments.d:
        orders["R2"] = [int(j) for j in np.argsort(explained, kind="stable")]
    return orders


def order_score(
    moments: SampleMoments | Sequence[SampleMoments],
    adjacency: ArrayLike,
    masks: EdgeMasks,
    num_targets: int | None = None,
    edge_cost: float | FloatArray | None = None,
    widths: Sequence[int] | None = None,
) -> float:
    """Return the score of a graph; lower is better.

    It is, up to a constant, the negative logarithm of the marginal likelihood of a model in which
    the logarithms of the noise variances ``v_j`` are drawn from one normal distribution, whose mean
    and variance are fitted (empirical Bayes), and every graph with the same number of edges has the
    same probability, as has every number of edges (Scott & Berger 2010):

    ``sum_j n/2 log v_j + d/2 log(var_j(log v_j) + 2/n) + sum_b (|E_b| log(n)/2 + log C(P_b, |E_b|))
    + |E_0| log 2``

    with ``v_j`` the residual variances, 2/n the sampling variance of ``log v_j``, and P the number
    of pairs that may be adjacent, apart for the edges without a lag (b = 0) and with one (b = 1).
    Where noise variances are alike the second term selects among Markov-equivalent graphs; a common
    change of units does not change the choice.

    Parameters
    ----------
    moments
        Moments of m columns, or one for each variable, whose n is then that of the first term, and
        the mean of the n that of the others. Entries among a variable and its parents are read.
    adjacency
        ``(m, d)`` or ``(m, m)``: nonzero at ``[i, j]`` where i causes j.
    masks
        Allowed and required edges. Required edges have no cost.
    num_targets
        d. Default: m, no lags.
    edge_cost
        Cost of every edge, or of each, ``(m, d)``, in place of the second term and of all those in
        |E|: the score then is the Gaussian BIC, or the extended one, which depends on no unit and
        is equal for equivalent graphs. Default: the score above.
    widths
        ``(m,)`` number of columns of each variable, side by side in the moments. Then ``v_j`` is
        the determinant of the residual covariance of the variable's columns, in units of their
        standard deviations. Only with ``edge_cost``. Default: one column each.
    """
    if isinstance(moments, SampleMoments):
        moments = [moments] * (moments.d if num_targets is None else num_targets)
    parents = np.asarray(adjacency)[:, : len(moments)] != 0
    logs = [_log_residual(moments, widths, parents[:, j], j) for j in range(len(moments))]
    rows = np.array([own.n for own in moments], dtype=np.float64)
    return _score_of(np.array(logs), rows, parents, masks, edge_cost)


def _score_of(
    logs: FloatArray,
    rows: FloatArray,
    parents: BoolArray,
    masks: EdgeMasks,
    edge_cost: float | FloatArray | None,
) -> float:
    """Return the score from the logarithms of each variable's residual variance."""
    d, fit = len(logs), 0.5 * float(rows @ logs)
    if edge_cost is not None:
        free_edges = parents & ~np.asarray(masks.required, dtype=bool)[:, :d]
        return fit + float(np.broadcast_to(edge_cost, parents.shape)[free_edges].sum())
    free, possible = _free_edges(parents, masks, d)
    score = fit + 0.5 * log(rows.mean()) * sum(free)
    choices = sum(_log_choices(*both) for both in zip(possible, free, strict=True))
    spread = 0.5 * d * log(float(logs.var()) + 2 / rows.mean())
    return score + spread + choices + free[0] * log(2)


def _log_residual(
    moments: Sequence[SampleMoments], widths: Sequence[int] | None, parents: BoolArray, child: int
) -> float:
    """Return the logarithm of a variable's residual variance given its parents."""
    if widths is None:
        return _log_variance(moments[child], parents, child)
    return _log_determinant(moments[child], columns_of(widths), parents, child)


def _log_variance(moments: SampleMoments, parents: BoolArray, child: int) -> float:
    """Return the logarithm of the residual variance of a column."""
    residual = regress(moments.second, np.flatnonzero(parents), child)[1]
    return log(max(residual, RESIDUAL_FLOOR * moments.second[child, child]))


def _log_determinant(
    moments: SampleMoments, columns: Sequence[IntArray], parents: BoolArray, child: int
) -> float:
    """Return the log determinant of the residual correlations of a variable's columns."""
    correlations = rounded(moments.correlations)
    given = _joined(columns, parents, columns[child][:0])
    pivots = log_pivots(correlations, np.concatenate([given, columns[child]]))
    return float(pivots[len(given) :].sum())


def _joined(columns: Sequence[IntArray], chosen: BoolArray, none: IntArray) -> IntArray:
    own = [part for part, one in zip(columns, chosen, strict=True) if one]
    return np.concatenate(own) if own else none


def log_pivots(correlations: FloatArray, columns: IntArray) -> FloatArray:
    """Return the logarithm of each column's variance given the columns before it.

    Columns that are combinations of those before have the least value, and are left out after it.

    Parameters
    ----------
    correlations
        ``(M, M)``.
    columns
        Which of them, in their order.
    """
    left = correlations[np.ix_(columns, columns)]
    result = np.empty(len(columns))
    for at in range(len(columns)):
        pivot = left[at, at]
        result[at] = log(max(pivot, RESIDUAL_FLOOR))
        if pivot > DEPENDENT:
            left = left - np.outer(left[:, at], left[at]) / pivot
    return result


def free_columns(moments: SampleMoments, columns: Sequence[IntArray]) -> BoolArray:
    """Return the mask of columns that vary given those before them in the block, shape (M,)."""
    free = np.zeros(moments.d, dtype=np.bool_)
    for block in columns:
        varying = block[moments.variances[block] > 0]
        scale = np.sqrt(moments.variances[varying])
        own = moments.second[np.ix_(varying, varying)] / np.outer(scale, scale)
        given = log_pivots(own, np.arange(len(varying)))
        free[varying[given > log(DEPENDENT)]] = True
    return free


class MomentOrders:
    """One search: its moments, the possible and the required edges, and the kernels' arrays.

    Attributes
    ----------
    d, m
        Numbers of variables, and of variables with their lags.
    correlations, own
        The different correlations among the moments, and which of them each variable has.
    least_cost
        Least cost of an edge: what an effect of the size ``least_effect`` gains.
    allowed, possible
        ``(m, d)`` all allowed edges, and those that the moves of the search try.
    most
        Parents of a variable at most, besides the required ones.
    """

    def __init__(
        self,
        moments: Sequence[SampleMoments],
        masks: EdgeMasks,
        least_effect: float,
        pairs: BoolArray | None = None,
        max_parents: int | None = None,
        edge_cost: float | FloatArray | None = None,
        widths: Sequence[int] | None = None,
    ) -> None:
        self.masks, self.edge_cost, self.widths = masks, edge_cost, widths
        d, self.m = len(moments), moments[0].d if widths is None else len(widths)
        self.sizes = np.ones(self.m, dtype=np.int64) if widths is None else np.array(widths)
        self.d, self.growth = d, 1.0 if edge_cost is None else GROWTH
        self._read(moments)
        # In one memory layout: for another one the kernels would be compiled again.
        self.required = np.ascontiguousarray(masks.required[:, :d], dtype=bool)
        self.allowed = np.ascontiguousarray(masks.allowed[:, :d], dtype=bool) | self.required
        if pairs is not None:
            self.allowed = self.allowed & (pairs[:, :d] | self.required)
        self.least_cost = -0.5 * self.rows.mean() * log(1 - least_effect**2)
        limit = int(self.rows.min() * MOST_PARENTS) if max_parents is None else max_parents
        self.most = max(1, min(self.m - 1, limit))
        largest = self.most + int(self.required.sum(axis=0).max(initial=0))
        most_columns = int(np.sort(self.sizes)[-largest:].sum())
        self.room = OrderRoom.of(self.sizes, largest, most_columns)
        self.paths = Paths.of(self.d, largest)
        self.possible = self.allowed if self.m <= ALL_CANDIDATES else self._promising()
        self._reached: dict[tuple[int, ...], OrderCandidate] = {}

    def _read(self, moments: Sequence[SampleMoments]) -> None:
        self.moments = moments
        self._known: dict[tuple[int, bytes], float] = {}
        parts, self.own = distinct(moments)
        # Where another variable is constant, as under interventions, it explains nothing.
        self.correlations = np.array([rounded(part.correlations) for part in parts])
        self.rows = np.array([own.n for own in moments], dtype=np.float64)
        # The BIC does not depend on units: without them, equal scores are equal in every bit.
        self.log_variances = np.zeros(self.d)
        if self.edge_cost is None:
            self.log_variances = np.log([own.second[j, j] for j, own in enumerate(moments)])

    def rough(self, moments: SampleMoments) -> BoolArray:
        """Return a graph of other moments, which a short search finds.

        It starts from the order by residual variance and ends after :data:`ROUGH_SWEEPS` sweeps. An
        edge costs as much as at first in `candidate`. The edges of this search are tried.

        Parameters
        ----------
        moments
            Of the same variables.

        Returns
        -------
        ndarray of bool, shape (d, d)
        """
        own = copy(self)
        own._read([moments] * self.d)
        scale = np.sqrt(moments.variances)
        order = own._starting(_least_residual_first(own.correlations[0] * np.outer(scale, scale)))
        costs = own._costs(float(self.d), float(self.d))
        task, scan = own._task(self.possible, costs), order.copy()
        for _ in range(ROUGH_SWEEPS):
            if not own._sweep(task, scan, order):
                break
        return own._along(order, self.possible, costs)

    def _starting(self, start: Sequence[int]) -> IntArray:
        """Return an order with the causes of required edges before their effects."""
        first = np.array(start, dtype=np.int64)
        return first[topological_order(self.required[np.ix_(first, first)])]

    def candidate(self, name: str, start: Sequence[int]) -> OrderCandidate:
        """Search from an order."""
        order = self._starting(start)
        # Until there is a graph: as if it had d edges of each kind.
        costs = self._costs(float(self.d), float(self.d))
        parents = self._along(order, self.allowed, costs)
        sorted_score, possible = self._score(parents), self.possible.copy()
        for _ in range(MOST_ROUNDS):
            self._search(order, possible, costs)
            parents = self._along(order, self.allowed, costs)
            # Edges of this order that the search could not use.
            missing = parents & ~possible
            possible |= missing
            possible[: self.d] |= missing[: self.d].T & self.allowed[: self.d]
            before, costs = costs, self._costs(*_free_edges(parents, self.masks, self.d)[0])
            if np.array_equal(costs, before) and not missing.any():
                break
        return OrderCandidate(name, self._score(parents), parents, order, sorted_score)

    def candidates(
        self, starts: Mapping[str, Sequence[int]], moves: int = 0
    ) -> tuple[OrderCandidate, ...]:
        """Search from several orders, as :func:`search_orders`; return the best candidate first.

        What was found from an order is kept for further calls.
        """
        found = [self._reached_from(name, order) for name, order in starts.items()]
        # Of scores that are equal up to rounding the first start is chosen.
        best, rng = min(found, key=_rank), np.random.default_rng(0)
        for k in range(moves if self.d > 2 else 0):
            candidate = self._reached_from(f"moved {k}", moved(best.order.tolist(), rng))
            found.append(candidate)
            best = min(best, candidate, key=_rank)
        return tuple(sorted(found, key=_rank))

    def _reached_from(self, name: str, start: Sequence[int]) -> OrderCandidate:
        key = tuple(start)
        if key not in self._reached:
            self._reached[key] = self.candidate(name, start)
        return self._reached[key]._replace(start=name)

    def strengths(self, adjacency: BoolArray, order: IntArray) -> FloatArray:
        """Return absolute partial correlations given the other parents, see `OrderSolution`."""
        result = np.zeros(adjacency.shape)
        place = np.full(len(result), -1)
        place[order] = np.arange(self.d)
        for j in range(self.d):
            strengths = self._strengths_of(adjacency[:, j], j)
            possible = self.allowed[:, j] & (place < place[j])
            result[possible, j] = np.nan_to_num(strengths[possible])
        return result

    def _strengths_of(self, parents: BoolArray, child: int) -> FloatArray:
        """Return the strength of each variable's effect on one, given the one's (other) parents.

        Of several columns it is ``sqrt(1 - det(with) / det(without))`` of the child's residual
        covariance, which is the absolute partial correlation of two columns.
        """
        correlations = self.correlations[self.own[child]]
        if self.widths is None:
            return partial_correlations(correlations, np.flatnonzero(parents), child)
        columns, result = columns_of(self.widths), np.zeros(self.m)
        own = columns[child]

        def left(causes: BoolArray) -> float:
            given = _joined(columns, causes, own[:0])
            return float(log_pivots(correlations, np.concatenate([given, own]))[len(given) :].sum())

        with_parents = left(parents)
        for i in range(self.m):
            if i != child:
                others = parents.copy()
                others[i] = not parents[i]
                change = left(others) - with_parents
                change = -change if parents[i] else change
                result[i] = np.sqrt(1 - np.exp(min(change, 0.0)))
        return result

    def _score(self, parents: BoolArray) -> float:
        logs = np.array([self._log_residual(parents[:, j], j) for j in range(self.d)])
        return _score_of(logs, self.rows, parents, self.masks, self.edge_cost)

    def _log_residual(self, parents: BoolArray, child: int) -> float:
        # The graphs of several starts have most families in common.
        key = (child, parents.tobytes())
        if key not in self._known:
            self._known[key] = _log_residual(self.moments, self.widths, parents, child)
        return self._known[key]

    def _costs(self, now: float, lagged: float) -> FloatArray:
        """Return the cost of one more edge to each variable from each, (d, m).

        It depends on how many edges the graph has without a lag (``now``) and with one.
        """
        if self.edge_cost is not None:
            each = np.broadcast_to(self.edge_cost, (self.m, self.d)).T
            return np.ascontiguousarray(np.maximum(each, self.least_cost))
        _, possible = _free_edges(self.required, self.masks, self.d)
        bic, sizes = 0.5 * log(self.rows.mean()), [self.d, self.m - self.d]
        by_block = [
            bic + log(max(pairs - edges, 1) / (edges + 1)) + directions
            for edges, pairs, directions in zip((now, lagged), possible, (log(2), 0), strict=True)
        ]
        costs = np.repeat(np.maximum(by_block, self.least_cost), sizes)
        return np.repeat(costs[None], self.d, axis=0)

    def _search(self, order: IntArray, possible: BoolArray, costs: FloatArray) -> None:
        """Move variables in the order, in place, until the score is at a minimum."""
        task, scan = self._task(possible, costs), order.copy()
        for _ in steps("The search over causal orders", MOST_SWEEPS):
            if not self._sweep(task, scan, order):
                break

    def _sweep(self, task: SearchTask, scan: IntArray, order: IntArray) -> bool:
        """Move every variable to its best place in the order; return whether any was moved."""
        fits, others = np.empty((2, 2, self.d))
        place, parents = np.empty_like(order), np.zeros((0, self.d), dtype=bool)
        place[order] = every = np.arange(self.d)
        return choose_and_move(
            task, self.room, self.paths, every, scan, order, place, parents, fits, others
        )

    def _along(self, order: IntArray, possible: BoolArray, costs: FloatArray) -> BoolArray:
        """Return each variable's parents among its predecessors, (m, d)."""
        place = np.empty_like(order)
        place[order] = np.arange(self.d)
        parents = np.zeros((self.m, self.d), dtype=bool)
        self._select(self._task(possible, costs), np.arange(self.d), order, place, parents)
        return np.asarray(parents | self.required)

    def near_families(
        self, start: Sequence[int], within: float, steps: int
    ) -> list[list[tuple[int, ...]]]:
        """Return the parents that each variable has in graphs of nearly the best score.

        A walk over orders begins with the start. In each step a variable is moved; the order is
        kept with the probability of the Metropolis rule at the temperature ``TEMPERATURE``, unless
        the score of its graph is above the best one by more than ``within``. For problems without
        lags whose edges have costs of their own.

        Parameters
        ----------
        start
            The order of the best graph, causes first.
        within
            In nats.
        steps
            How many orders are tried.

        Returns
        -------
        list of list of tuple of int
            Of each variable the different sets, those of the first order first.
        """
        order = np.array(start, dtype=np.int64)
        costs = self._costs(float(self.d), float(self.d))
        task, every = self._task(self.possible, costs), np.arange(self.d)
        place = np.empty_like(order)
        place[order] = every
        parents, scores = np.zeros((self.m, self.d), dtype=bool), np.zeros(self.d)
        self._select(task, every, order, place, parents, scores)
        found: list[dict[tuple[int, ...], None]] = [{} for _ in every]
        rng, best = np.random.default_rng(0), scores.sum()

        def note(children: IntArray) -> None:
            for j in children.tolist():
                chosen = parents[:, j] | self.required[:, j]
                found[j].setdefault(tuple(np.flatnonzero(chosen).tolist()))

        note(every)
        for step in range(steps if self.d > 1 else 0):
            if step % STEPS_BETWEEN_CHECKS == 0:
                check_deadline()
            at, to = rng.choice(self.d, 2, replace=False)
            low, high = min(at, to), max(at, to)
            passed, x = order[low : high + 1].copy(), order[at]
            if self.required[passed, x].any() if to < at else self.required[x, passed].any():
                continue
            before = parents[:, passed].copy(), scores[passed].copy()
            total = scores.sum()
            order[low : high + 1] = np.roll(passed, 1 if to < at else -1)
            place[order[low : high + 1]] = np.arange(low, high + 1)
            self._select(task, passed, order, place, parents, scores)
            now = scores.sum()
            if now <= best + within and log(rng.random()) <= (total - now) / TEMPERATURE:
                best = min(best, now)
                note(passed)
                continue
            order[low : high + 1], (parents[:, passed], scores[passed]) = passed, before
            place[passed] = np.arange(low, high + 1)
        return [list(sets) for sets in found]

    def _select(
        self,
        task: SearchTask,
        children: IntArray,
        order: IntArray,
        limits: IntArray,
        parents: BoolArray,
        scores: FloatArray | None = None,
    ) -> None:
        none, fits = np.zeros(0, dtype=np.int64), np.empty((2, self.d))
        choose_and_move(
            task, self.room, self.paths, children, none, order, limits, parents, fits, fits
        )
        if scores is not None:
            left, cost = fits[:, children]
            scores[children] = 0.5 * task.rows[children] * left + cost

    def _promising(self) -> BoolArray:
        """Return the allowed edges between a variable and the columns that best predict it."""
        d = self.d
        either, near = self.allowed.copy(), np.zeros_like(self.allowed)
        either[:d] |= self.allowed[:d].T
        costs = CANDIDATE_COST * np.outer(self.sizes[:d], self.sizes)
        task = self._task(either, costs)
        task = task._replace(
            required=np.zeros_like(self.required), most=min(self.most, MOST_CANDIDATES)
        )
        self._select(task, np.arange(d), np.arange(d), np.full(d, d), near)
        near[:d] |= near[:d].T
        return np.asarray(near & self.allowed | self.required)

    def _task(self, possible: BoolArray, costs: FloatArray) -> SearchTask:
        return SearchTask(
            self.correlations,
            np.concatenate([[0], np.cumsum(self.sizes)]),
            self.own,
            self.rows,
            self.log_variances,
            possible,
            self.required,
            costs,
            self.most,
            self.edge_cost is None,
            self.growth,
        )


def rounded(correlations: FloatArray) -> FloatArray:
    """Return correlations as multiples of ``RESOLUTION``, the same for any split of the rows."""
    return np.asarray(np.round(correlations / RESOLUTION) * RESOLUTION, dtype=np.float64)


def _least_residual_first(covariance: FloatArray) -> list[int]:
    """Return the order in which each variable has the least variance given those before."""
    left, order = np.diagonal(covariance).copy(), np.empty(len(covariance), dtype=np.int64)
    least, chosen = DEPENDENT * left, np.zeros(len(left), dtype=bool)
    factor = np.zeros(covariance.shape)  # columns of the Cholesky factor, in the order
    for k in range(len(left)):
        variances = np.maximum(left, least)
        j = int(np.argmin(np.where(chosen, np.inf, as_ranked(np.log(variances)))))
        order[k], chosen[j] = j, True
        if left[j] > least[j]:  # a combination of those before explains nothing more
            column = covariance[:, j] - factor[:, :k] @ factor[j, :k]
            factor[:, k] = column / np.sqrt(left[j])
            left -= factor[:, k] ** 2
    return [int(j) for j in order]


def _free_edges(
    parents: BoolArray, masks: EdgeMasks, num_targets: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the numbers of edges that are not required, and of pairs that may have one.

    Both apart for edges without a lag and for those with one.
    """
    d = num_targets
    required = np.asarray(masks.required, dtype=bool)[:, :d]
    free, allowed = parents & ~required, np.asarray(masks.allowed, dtype=bool)[:, :d] & ~required
    fixed = required[:d] | required[:d].T
    now = np.triu((allowed[:d] | allowed[:d].T) & ~fixed, 1)
    edges = int(free[:d].sum()), int(free[d:].sum())
    return edges, (int(now.sum()), int(allowed[d:].sum()))


def _log_choices(pairs: int, edges: int) -> float:
    """Return the logarithm of the number of sets of that many of the pairs."""
    return lgamma(pairs + 1) - lgamma(edges + 1) - lgamma(max(pairs - edges, 0) + 1)
