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

from math import lgamma, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.compiled import compiled_in_place, compiled_inside
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.limits import check_deadline
from flwr_causal.core.linear.gaussian_scores import RESIDUAL_FLOOR, partial_correlations
from flwr_causal.core.linear.model import least_squares
from flwr_causal.core.linear.moments import Moments, as_moments, distinct, require_varying
from flwr_causal.core.linear.regression import regress
from flwr_causal.core.linear.solution import check_at_least_zero, edge_masks
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge


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
# Improvements of the score per row below this are rounding.
LEAST_IMPROVEMENT = 1e-7
# The correlations are rounded to multiples of this, so that sums over parties in another order give
# the same graph.
RESOLUTION = 2.0**-40
# Digits to which scores, and the values that variables are sorted by, are compared.
TIE_DIGITS = 9
# A candidate whose variance given the parents is below this share is a combination of them.
DEPENDENT = 1e-9


class Candidate(NamedTuple):
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

    candidates: tuple[Candidate, ...]
    strengths: FloatArray

    @property
    def best(self) -> Candidate:
        """The candidate of the best score."""
        return self.candidates[0]

    @property
    def runner_up(self) -> Candidate | None:
        """The best candidate with another graph; None if all starts led to the same graph."""
        found = self.best.adjacency
        others = (c for c in self.candidates if not np.array_equal(c.adjacency, found))
        return next(others, None)

    def explains(self, candidate: Candidate) -> bool:
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


def order_search(
    moments_or_data: Any,
    *,
    least_effect: float = LEAST_EFFECT,
    knowledge: Knowledge | EdgeMasks | None = None,
) -> CausalGraph:
    """Learn a linear DAG by a search over orders of the variables.

    Parameters
    ----------
    moments_or_data
        ``Moments``, an ``(n, d)`` array or a data frame.
    least_effect
        Least partial correlation of an edge, given the other parents, from 0 to below 1. Default:
        0.1, see ``LEAST_EFFECT``.
    knowledge
        Required and forbidden edges and tiers. Default: none.

    Returns
    -------
    CausalGraph
        A DAG with least-squares weights; ``raw_weights`` are the same.

    Raises
    ------
    DataError
        If the data are not a table of finite numbers, or a variable is constant.
    ConfigError
        If an option is out of range, or the knowledge does not fit the variables.
    """
    moments = as_moments(moments_or_data)
    moments.require_complete()
    masks = edge_masks(knowledge, moments.names)
    found = search_orders(moments, masks, least_effect=least_effect).best.adjacency
    weights = least_squares(moments, found)[0]
    return CausalGraph(moments.names, weights, raw_weights=weights, required=masks.required)


def search_orders(
    moments: Moments | Sequence[Moments],
    masks: EdgeMasks,
    *,
    num_targets: int | None = None,
    least_effect: float = LEAST_EFFECT,
    starts: Mapping[str, Sequence[int]] | None = None,
    pairs: BoolArray | None = None,
    max_parents: int | None = None,
    by_bic: bool = False,
) -> OrderSolution:
    """Search from several orders of the variables.

    Parameters
    ----------
    moments
        Moments of m columns: d variables, and their lags, which may cause every variable. Or d such
        moments, for each variable those of the rows that inform about what causes it, as under
        interventions (:mod:`core.linear.interventions`).
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
    by_bic
        Whether the score is the Gaussian BIC alone, which depends on no unit and is equal for
        equivalent graphs, without the other terms of :func:`order_score`.

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
    if isinstance(moments, Moments):
        moments.require_varying()
        d = moments.d if num_targets is None else num_targets
        moments = [moments] * d
    require_varying(moments)
    problem = _Problem(moments, masks, least_effect, pairs, max_parents, by_bic)
    if starts is None:
        most = max(moments, key=lambda own: own.n)
        starts = sorted_orders(most, len(moments))
    found = [problem.candidate(name, order) for name, order in starts.items()]
    # Of scores that are equal up to rounding the first start is chosen.
    ranked = tuple(sorted(found, key=lambda candidate: round(candidate.score, TIE_DIGITS)))
    return OrderSolution(ranked, problem.strengths(ranked[0]))


def sorted_orders(moments: Moments, num_targets: int | None = None) -> dict[str, list[int]]:
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
    correlation = _rounded(moments.correlations)
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
        inverse = np.linalg.pinv(correlation, hermitian=True)
        explained = 1 - 1 / np.maximum(np.diagonal(inverse)[:d], 1.0)
    # Values that are equal up to rounding are ties, so that sums over parties in another order give
    # the same orders. Equal variances, as of standardised columns, are ordered by R2.
    explained = np.round(explained, TIE_DIGITS)
    size = np.round(np.log(variances[:d]), TIE_DIGITS)
    orders = {
        "variance": [int(j) for j in np.lexsort((explained, size))],
        "residual variance": _least_residual_first(left * np.outer(scale[:d], scale[:d])),
    }
    if moments.n > moments.d:
        orders["R2"] = [int(j) for j in np.argsort(explained, kind="stable")]
    return orders


def order_score(
    moments: Moments | Sequence[Moments],
    adjacency: ArrayLike,
    masks: EdgeMasks,
    num_targets: int | None = None,
    by_bic: bool = False,
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
    by_bic
        Whether to leave out the second term, the binomial coefficient and the last term.
    """
    if isinstance(moments, Moments):
        moments = [moments] * (moments.d if num_targets is None else num_targets)
    d, rows = len(moments), np.array([own.n for own in moments], dtype=np.float64)
    parents = np.asarray(adjacency)[:, :d] != 0
    residuals = [
        regress(own.second, np.flatnonzero(parents[:, j]), j)[1] for j, own in enumerate(moments)
    ]
    floors = [RESIDUAL_FLOOR * own.second[j, j] for j, own in enumerate(moments)]
    logs = np.log(np.maximum(residuals, floors))
    free, possible = _free_edges(parents, masks, d)
    score = 0.5 * float(rows @ logs) + 0.5 * log(rows.mean()) * sum(free)
    if by_bic:
        return score
    choices = sum(_log_choices(*both) for both in zip(possible, free, strict=True))
    spread = 0.5 * d * log(float(logs.var()) + 2 / rows.mean())
    return score + spread + choices + free[0] * log(2)


class _Problem:
    """One search: its moments, the possible and the required edges, and the kernels' arrays."""

    def __init__(
        self,
        moments: Sequence[Moments],
        masks: EdgeMasks,
        least_effect: float,
        pairs: BoolArray | None,
        max_parents: int | None = None,
        by_bic: bool = False,
    ) -> None:
        self.moments, self.masks, self.by_bic = moments, masks, by_bic
        d, self.m = len(moments), moments[0].d
        self.d = d
        parts, self.own = distinct(moments)
        # Where another variable is constant, as under interventions, it explains nothing.
        self.correlations = np.array([_rounded(part.correlations) for part in parts])
        self.rows = np.array([own.n for own in moments], dtype=np.float64)
        variances = [own.second[j, j] for j, own in enumerate(moments)]
        # The BIC does not depend on units: without them, equal scores are equal in every bit.
        self.log_variances = np.zeros(self.d) if by_bic else np.log(variances)
        self.required = np.asarray(masks.required, dtype=bool)[:, :d]
        self.allowed = np.asarray(masks.allowed, dtype=bool)[:, :d] | self.required
        if pairs is not None:
            self.allowed = self.allowed & (pairs[:, :d] | self.required)
        self.least_cost = -0.5 * self.rows.mean() * log(1 - least_effect**2)
        limit = int(self.rows.min() * MOST_PARENTS) if max_parents is None else max_parents
        self.most = max(1, min(self.m - 1, limit))
        largest = self.most + int(self.required.sum(axis=0).max(initial=0))
        self.room = _Room(
            candidates=np.empty(self.m, dtype=np.int64),
            parents=np.empty(self.m, dtype=np.int64),
            covariance=np.empty(self.m),
            variance=np.empty(self.m),
            factor=np.empty((largest, self.m)),
            loads=np.empty(self.m),
            inverse=np.empty((largest, largest)),
            near=np.empty(self.m, dtype=np.int64),
        )
        self.possible = self.allowed if self.m <= ALL_CANDIDATES else self._promising()

    def candidate(self, name: str, start: Sequence[int]) -> Candidate:
        """Search from an order."""
        first = np.array(start, dtype=np.int64)
        order = first[topological_order(self.required[np.ix_(first, first)])]
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
        return Candidate(name, self._score(parents), parents, order, sorted_score)

    def strengths(self, candidate: Candidate) -> FloatArray:
        """Return absolute partial correlations given the other parents, see `OrderSolution`."""
        result = np.zeros(candidate.adjacency.shape)
        place = np.full(len(result), -1)
        place[candidate.order] = np.arange(self.d)
        for j in range(self.d):
            parents = np.flatnonzero(candidate.adjacency[:, j])
            strengths = partial_correlations(self.correlations[self.own[j]], parents, j)
            possible = self.allowed[:, j] & (place < place[j])
            result[possible, j] = np.nan_to_num(strengths[possible])
        return result

    def _score(self, parents: BoolArray) -> float:
        return order_score(self.moments, parents, self.masks, by_bic=self.by_bic)

    def _costs(self, now: float, lagged: float) -> FloatArray:
        """Return the cost of one more edge from each column, (m,), beside that many edges."""
        _, possible = _free_edges(self.required, self.masks, self.d)
        bic, sizes = 0.5 * log(self.rows.mean()), [self.d, self.m - self.d]
        by_block = [
            bic + log(max(pairs - edges, 1) / (edges + 1)) + directions
            for edges, pairs, directions in zip((now, lagged), possible, (log(2), 0), strict=True)
        ]
        if self.by_bic:
            by_block = [bic, bic]
        return np.repeat(np.maximum(by_block, self.least_cost), sizes)

    def _search(self, order: IntArray, possible: BoolArray, costs: FloatArray) -> None:
        """Move variables in the order, in place, until the score is at a minimum."""
        task, scan, place = self._task(possible, costs), order.copy(), np.empty_like(order)
        fits, others = np.empty((2, self.d)), np.empty((2, self.d))
        for _ in range(MOST_SWEEPS):
            check_deadline()
            if not _sweep(task, self.room, scan, order, place, fits, others):
                break

    def _along(self, order: IntArray, possible: BoolArray, costs: FloatArray) -> BoolArray:
        """Return each variable's parents among its predecessors, (m, d)."""
        place = np.empty_like(order)
        place[order] = np.arange(self.d)
        parents = np.zeros((self.m, self.d), dtype=bool)
        _select_all(self._task(possible, costs), self.room, order, place, parents)
        return np.asarray(parents | self.required)

    def _promising(self) -> BoolArray:
        """Return the allowed edges between a variable and the columns that best predict it."""
        d, m = self.d, self.m
        either, near = self.allowed.copy(), np.zeros_like(self.allowed)
        either[:d] |= self.allowed[:d].T
        task = self._task(either, np.full(m, CANDIDATE_COST))
        task = task._replace(
            required=np.zeros_like(self.required), most=min(self.most, MOST_CANDIDATES)
        )
        _select_all(task, self.room, np.arange(d), np.full(d, d), near)
        near[:d] |= near[:d].T
        return np.asarray(near & self.allowed | self.required)

    def _task(self, possible: BoolArray, costs: FloatArray) -> _Task:
        return _Task(
            self.correlations,
            self.own,
            self.rows,
            self.log_variances,
            possible,
            self.required,
            costs,
            self.most,
            not self.by_bic,
        )


def _rounded(correlations: FloatArray) -> FloatArray:
    return np.asarray(np.round(correlations / RESOLUTION) * RESOLUTION, dtype=np.float64)


def _least_residual_first(covariance: FloatArray) -> list[int]:
    """Return the order in which each variable has the least variance given those before."""
    left, order, chosen = covariance.copy(), [], np.zeros(len(covariance), dtype=bool)
    least = DEPENDENT * np.diagonal(covariance)
    for _ in range(len(left)):
        variances = np.maximum(np.diagonal(left), least)
        j = int(np.argmin(np.where(chosen, np.inf, np.round(np.log(variances), TIE_DIGITS))))
        chosen[j] = True
        order.append(j)
        left -= np.outer(left[:, j], left[j]) / variances[j]
    return order


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


# The kernels. They create no arrays: those of `_Room` hold intermediate results.


class _Task(NamedTuple):
    """The arguments of a search that stay the same.

    Attributes
    ----------
    correlations
        ``(k, m, m)``; of pairs that cannot be adjacent or share a neighbour, entries may be NaN.
    own, rows
        ``(d,)`` for each variable which of the correlations inform about its causes, and their
        number of rows.
    log_variances
        ``(d,)`` logarithms of the variables' variances.
    possible, required
        ``(m, d)`` edges that may, and that must be in the graph.
    costs
        ``(m,)`` cost of an edge from each column.
    most
        Parents of a variable at most, besides the required ones.
    with_spread
        Whether the score has the term of the noise variances' spread.
    """

    correlations: FloatArray
    own: IntArray
    rows: FloatArray
    log_variances: FloatArray
    possible: BoolArray
    required: BoolArray
    costs: FloatArray
    most: int
    with_spread: bool


class _Room(NamedTuple):
    """Arrays for intermediate results of one choice of parents.

    Attributes
    ----------
    candidates
        ``(m,)`` columns among which parents are chosen.
    parents
        ``(m,)`` positions of the chosen ones among the candidates.
    covariance, variance
        ``(m,)`` covariances of the candidates with the variable, and their variances, given the
        parents; the variance is -1 for the parents.
    factor
        ``(parents, m)`` triangular factor of the candidates' correlations, one row for each parent.
    loads
        ``(m,)`` the factor's entries of the variable.
    inverse
        ``(parents, parents)`` inverse of the factor among the parents.
    near
        ``(m,)`` neighbours of a variable that is moved, in the order.
    """

    candidates: IntArray
    parents: IntArray
    covariance: FloatArray
    variance: FloatArray
    factor: FloatArray
    loads: FloatArray
    inverse: FloatArray
    near: IntArray


@compiled_inside
def _enter(task: _Task, room: _Room, child: int, count: int, slot: int, size: int) -> float:
    """Make the candidate at ``slot`` parent number ``size``; return the variance it explains."""
    own = task.own[child]
    root = np.sqrt(room.variance[slot])
    for other in range(count):
        value = task.correlations[own, room.candidates[slot], room.candidates[other]]
        for row in range(size):
            value -= room.factor[row, slot] * room.factor[row, other]
        room.factor[size, other] = value / root
    load = room.covariance[slot] / root
    for other in range(count):
        room.covariance[other] -= room.factor[size, other] * load
        room.variance[other] -= room.factor[size, other] * room.factor[size, other]
    room.parents[size] = slot
    room.variance[slot] = -1.0
    room.loads[size] = load
    return load * load  # type: ignore[no-any-return]


@compiled_inside
def _grow(task: _Task, room: _Room, child: int, count: int) -> tuple[int, float]:
    """Add parents while the score improves; return their number and the residual variance."""
    own, size, residual = task.own[child], 0, 1.0
    for slot in range(count):
        room.covariance[slot] = task.correlations[own, room.candidates[slot], child]
        room.variance[slot] = 1.0
    for slot in range(count):
        if task.required[room.candidates[slot], child] and room.variance[slot] > DEPENDENT:
            residual -= _enter(task, room, child, count, slot, size)
            size += 1
    limit = size + task.most
    while size < limit:
        best, least, share, price = -1, -LEAST_IMPROVEMENT, 0.0, np.inf
        for slot in range(count):
            if room.variance[slot] > DEPENDENT:
                explained = room.covariance[slot] * room.covariance[slot] / room.variance[slot]
                cost = task.costs[room.candidates[slot]]
                # What explains less at no less cost is not better.
                if explained > share or cost < price:
                    left = max(residual - explained, RESIDUAL_FLOOR) / residual
                    change = 0.5 * task.rows[child] * np.log(left) + cost
                    if change < least:
                        best, least, share, price = slot, change, explained, cost
        if best < 0:
            break
        residual = max(residual - _enter(task, room, child, count, best, size), RESIDUAL_FLOOR)
        size += 1
    return size, max(residual, RESIDUAL_FLOOR)


@compiled_inside
def _decompose(task: _Task, room: _Room, child: int, size: int) -> float:
    """Decompose the correlations of the parents anew; return the residual variance."""
    own, residual = task.own[child], 1.0
    for row in range(size):
        slot = room.parents[row]
        for column in range(row, size):
            other = room.parents[column]
            value = task.correlations[own, room.candidates[slot], room.candidates[other]]
            for above in range(row):
                value -= room.factor[above, slot] * room.factor[above, other]
            if column == row:
                room.factor[row, slot] = np.sqrt(max(value, DEPENDENT))
            else:
                room.factor[row, other] = value / room.factor[row, slot]
        load = task.correlations[own, room.candidates[slot], child]
        for above in range(row):
            load -= room.factor[above, slot] * room.loads[above]
        room.loads[row] = load / room.factor[row, slot]
        residual -= room.loads[row] * room.loads[row]
    return max(residual, RESIDUAL_FLOOR)


@compiled_inside
def _superfluous(task: _Task, room: _Room, child: int, size: int, residual: float) -> int:
    """Return the number of the parent without which the score is best, -1 for none."""
    for row in range(size):
        slot = room.parents[row]
        room.inverse[row, row] = 1.0 / room.factor[row, slot]
        for column in range(row):
            value = 0.0
            for between in range(column, row):
                value += room.factor[between, slot] * room.inverse[between, column]
            room.inverse[row, column] = -value * room.inverse[row, row]
    worst, least = -1, -LEAST_IMPROVEMENT
    for column in range(size):
        parent = room.candidates[room.parents[column]]
        if not task.required[parent, child]:
            weight, variance = 0.0, 0.0
            for row in range(column, size):
                weight += room.inverse[row, column] * room.loads[row]
                variance += room.inverse[row, column] * room.inverse[row, column]
            explained = weight * weight / variance
            gain = 0.5 * task.rows[child] * np.log1p(explained / residual)
            change = gain - task.costs[parent]
            if change < least:
                worst, least = column, change
    return worst


@compiled_inside
def _select(task: _Task, room: _Room, child: int, count: int) -> tuple[int, float, float]:
    """Choose the child's parents among the first ``count`` candidates: grow, then shrink.

    Returns
    -------
    size, log_variance, cost
        Number of parents, logarithm of the residual variance, cost of the edges.
    """
    size, residual = _grow(task, room, child, count)
    while size > 0:
        worst = _superfluous(task, room, child, size, residual)
        if worst < 0:
            break
        size -= 1
        for row in range(worst, size):
            room.parents[row] = room.parents[row + 1]
        residual = _decompose(task, room, child, size)
    cost = 0.0
    for row in range(size):
        parent = room.candidates[room.parents[row]]
        if not task.required[parent, child]:
            cost += task.costs[parent]
    return size, task.log_variances[child] + np.log(residual), cost


@compiled_inside
def _list_candidates(
    task: _Task, room: _Room, child: int, order: IntArray, limit: int, skip: int
) -> int:
    """List the child's candidates: lags, and variables before position ``limit`` but ``skip``."""
    count = 0
    for column in range(len(order), len(task.possible)):
        if task.possible[column, child]:
            room.candidates[count] = column
            count += 1
    for at in range(limit):
        if order[at] != skip and task.possible[order[at], child]:
            room.candidates[count] = order[at]
            count += 1
    return count


@compiled_in_place
def _select_all(
    task: _Task, room: _Room, order: IntArray, limits: IntArray, parents: BoolArray
) -> None:
    """Mark the parents of every variable among those before its position of ``limits``."""
    for child in range(len(order)):
        count = _list_candidates(task, room, child, order, limits[child], child)
        size, _, _ = _select(task, room, child, count)
        for row in range(size):
            parents[room.candidates[room.parents[row]], child] = True


@compiled_inside
def _score_of(task: _Task, fit: float, first: float, second: float, cost: float, n: float) -> float:
    """Return the score from sums over the variables, and the mean number of rows.

    The sums are of n/2 log v, log v, (log v)^2, and the costs of the edges.
    """
    score = fit + cost
    if task.with_spread:
        d = len(task.rows)
        spread = max(second / d - (first / d) * (first / d), 0.0)
        score += 0.5 * d * np.log(spread + 2.0 / n)
    return score


@compiled_inside
def _neighbours(
    task: _Task, room: _Room, x: int, order: IntArray, place: IntArray
) -> tuple[int, int]:
    """List the neighbours of x in the order; return their number, and of those before x."""
    count, before = 0, 0
    for at in range(len(order)):
        y = order[at]
        if y != x and (task.possible[y, x] or task.possible[x, y]):
            room.near[count] = y
            count += 1
            if at < place[x]:
                before += 1
    return count, before


@compiled_inside
def _move(x: int, target: int, order: IntArray, place: IntArray) -> None:
    """Move x in the order to a position."""
    step = 1 if target > place[x] else -1
    at = place[x]
    while at != target:
        order[at] = order[at + step]
        place[order[at]] = at
        at += step
    order[target] = x
    place[x] = target


@compiled_inside
def _best_place(
    task: _Task,
    room: _Room,
    x: int,
    near: int,
    here: int,
    order: IntArray,
    place: IntArray,
    fits: FloatArray,
    others: FloatArray,
) -> tuple[int, float, float]:
    """Find the best place of x: behind how many of its neighbours.

    Returns
    -------
    goal, log_variance, cost
        The place, -1 for the present one, and what x itself has there.
    """
    d, n, fit, first, second, cost = len(order), 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(d):
        n += task.rows[j] / d
        fit += 0.5 * task.rows[j] * fits[0, j]
        first += fits[0, j]
        second += fits[0, j] * fits[0, j]
        cost += fits[1, j]
    best = _score_of(task, fit, first, second, cost, n) - LEAST_IMPROVEMENT * n
    goal, log_there, cost_there = -1, 0.0, 0.0
    for step in (-1, 1):
        # Sums over all variables but x.
        logs, squares = first - fits[0, x], second - fits[0, x] * fits[0, x]
        fitted = fit - 0.5 * task.rows[x] * fits[0, x]
        spent, slot = cost - fits[1, x], here
        while (slot > 0) if step < 0 else (slot < near):
            k = slot - 1 if step < 0 else slot
            y = room.near[k]
            if task.required[y, x] if step < 0 else task.required[x, y]:
                break
            slot += step
            fitted += 0.5 * task.rows[y] * (others[0, k] - fits[0, y])
            logs += others[0, k] - fits[0, y]
            squares += others[0, k] * others[0, k] - fits[0, y] * fits[0, y]
            spent += others[1, k] - fits[1, y]
            limit = place[room.near[slot]] if slot < near else d
            count = _list_candidates(task, room, x, order, limit, x)
            _, log_own, own = _select(task, room, x, count)
            score = _score_of(
                task,
                fitted + 0.5 * task.rows[x] * log_own,
                logs + log_own,
                squares + log_own * log_own,
                spent + own,
                n,
            )
            if score < best:
                best, goal, log_there, cost_there = score, slot, log_own, own
    return goal, log_there, cost_there


@compiled_in_place
def _sweep(
    task: _Task,
    room: _Room,
    scan: IntArray,
    order: IntArray,
    place: IntArray,
    fits: FloatArray,
    others: FloatArray,
) -> bool:
    """Move every variable, in the order of ``scan``, to its best place; return whether any moved.

    A move of x changes the predecessors of those variables alone that x passes, and only by x: for
    each neighbour y of x one more choice of parents is enough, with x on its other side.

    Parameters
    ----------
    task, room
    scan
        ``(d,)`` the variables, in the order in which they are moved.
    order, place
        ``(d,)`` the order, causes first, and the position of every variable; changed in place.
    fits
        ``(2, d)`` room for the logarithms of the residual variances, and the costs of the edges.
    others
        ``(2, d)`` room for the same of each neighbour with x on its other side.
    """
    d, moved = len(order), False
    for at in range(d):
        place[order[at]] = at
    for child in range(d):
        count = _list_candidates(task, room, child, order, place[child], -1)
        _, fits[0, child], fits[1, child] = _select(task, room, child, count)
    for x in scan:
        near, here = _neighbours(task, room, x, order, place)
        for k in range(near):
            y = room.near[k]
            others[0, k], others[1, k] = fits[0, y], fits[1, y]
            if task.possible[x, y]:
                count = _list_candidates(task, room, y, order, place[y], x)
                if k < here:
                    room.candidates[count] = x
                    count += 1
                _, others[0, k], others[1, k] = _select(task, room, y, count)
        goal, log_there, cost_there = _best_place(
            task, room, x, near, here, order, place, fits, others
        )
        if goal < 0:
            continue
        moved = True
        for k in range(min(goal, here), max(goal, here)):
            fits[0, room.near[k]], fits[1, room.near[k]] = others[0, k], others[1, k]
        fits[0, x], fits[1, x] = log_there, cost_there
        # Directly before, or after, the last neighbour that x passes.
        _move(x, place[room.near[goal if goal < here else goal - 1]], order, place)
    return moved
