"""LiNGAM by a search over causal orders, from second moments and means of bounded functions.

In a linear system ``x = W^T x + e`` with independent non-Gaussian noise, W follows from the
distribution of x (Shimizu et al. 2006). With residuals ``u_j`` of each variable on its parents, the
log-likelihood of a DAG is, up to a constant, ``-n sum_j (log sd(u_j) - J(u_j / sd))``, where J is
the negentropy. Gaussian noise has J = 0, and then all DAGs of an equivalence class are equal.

The search minimises ``n sum_j (log sd - J) + cost |edges|`` over orders of the variables. In a
given order the parents of a variable are chosen among those before it by the Gaussian BIC
(:func:`grow_shrink`), from second moments alone. A move takes one variable
out of the order and inserts it where the score is best (as in BOSS, Andrews et al. 2023). Several
searches begin at orders that the same search has found for Gaussian noise.

Only orders that background knowledge allows are searched. One variable precedes another where it
may be an ancestor of it by allowed edges, and not the other way round; this holds for tiers and for
required edges. An order in which a forbidden edge would be a parent by the BIC is worse than every
order that needs no forbidden edge: it would leave out an edge between variables that are dependent.

The negentropy of a regression needs the means over rows of two functions of its residual
(:mod:`~flwr_causal.core.linear.negentropy`), a linear combination of the columns. So the search
alternates with rounds in which these means are computed wherever the rows are: it moves as long as
the score is known to fall, then lists all regressions whose negentropy it lacks to judge every
possible move. A few rounds suffice for any number of variables.

**Parents of a variable.** Parents are added as long as the best of them pays for itself (grow),
then removed as long as the worst of them does not (shrink). With n growing, this finds the Markov
boundary among candidates that precede the variable in a causal order (Margaritis & Thrun 1999).

References
----------
Shimizu, Hoyer, Hyvarinen & Kerminen: A linear non-Gaussian acyclic model for causal discovery,
JMLR 2006. Shimizu et al.: DirectLiNGAM, JMLR 2011. Andrews, Ramsey, Sanchez Romero, Camchong &
Kummerfeld: Fast scalable and accurate discovery of DAGs using the best order score search and
grow-shrink trees, NeurIPS 2023.
Margaritis, Thrun: Bayesian network induction via local neighborhoods, NIPS 1999.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from flwr_causal.core.compiled import compiled
from flwr_causal.core.graphs.acyclicity import ancestors, topological_order
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.limits import MOST_STEPS, check_deadline, steps
from flwr_causal.core.linear.determined import regular
from flwr_causal.core.linear.gaussian_scores import COLLINEAR, edge_cost, partial_correlations
from flwr_causal.core.linear.moments import as_moments
from flwr_causal.core.linear.negentropy import mean_functions, negentropies
from flwr_causal.core.linear.regression import refit, regress
from flwr_causal.core.linear.solution import edge_masks, edge_weights
from flwr_causal.core.threads import single_threaded
from flwr_causal.core.ties import SCORE_TIE, TIE, first_smallest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray, Integer
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
    from flwr_causal.core.linear.moments import SampleMoments


@compiled
def grow_shrink(
    correlation: FloatArray,
    target: Integer,
    among: BoolArray,
    required: BoolArray,
    cost: float,
    limit: Integer,
    collinear: float,
) -> tuple[IntArray, float, BoolArray]:
    """Return the parents of a variable, ascending, and its residual variance given them.

    Parameters
    ----------
    correlation
        ``(m, m)`` correlations.
    target
        Index of the variable.
    among
        ``(m,)`` mask of the possible parents, the candidates.
    required
        ``(m,)`` mask of those of them that are parents in any case.
    cost
        Of a parent: the least fall of the logarithm of the residual variance.
    limit
        Largest number of parents, required ones aside.
    collinear
        A candidate whose variance given the parents is at most this share adds nothing; neither
        does any to a variable of which no more is left.

    Returns
    -------
    parents : ndarray of int64
    residual : float
    deciding : ndarray of bool, shape (m,)
        The variables that may decide the result: as long as other variables alone become
        candidates, or cease to be any, all that is returned here stays the same.
    """
    m = len(correlation)
    # Variances given the parents, covariances with the target, and columns of a Cholesky factor.
    variance, covariance = np.ones(m), correlation[:, target].copy()
    left = 1.0
    factor = np.empty((m, m))
    parent, deciding = among & required, required.copy()
    count = np.int64(0)
    for a in range(m):
        if parent[a] and variance[a] > collinear:
            left -= _add(correlation, a, count, factor, variance, covariance)
            count += 1
    gains = np.empty(m)
    for _ in range(min(limit, m)):
        for a in range(m):
            gains[a] = 0.0
            if not parent[a] and a != target and min(variance[a], left) > collinear:
                share = covariance[a] * covariance[a] / (variance[a] * left)
                gains[a] = -math.log(max(1.0 - share, collinear))
        best, chosen = cost, -1
        for a in range(m):
            # Of equal gains the first counts.
            if among[a] and gains[a] > best + (TIE if chosen >= 0 else 0.0):
                best, chosen = gains[a], a
        for a in range(m):
            # What gains less than this is never the best, nor equal to the best, on the way.
            deciding[a] |= gains[a] > max(cost, best - 3.0 * TIE)
        if chosen < 0:
            break
        left -= _add(correlation, chosen, count, factor, variance, covariance)
        parent[chosen] = True
        count += 1
    candidates = np.flatnonzero(parent)
    parents, residual = _shrink(
        correlation, target, candidates, required[candidates], cost, collinear
    )
    return parents, residual, deciding


@compiled
def _add(
    correlation: FloatArray,
    chosen: Integer,
    count: Integer,
    factor: FloatArray,
    variance: FloatArray,
    covariance: FloatArray,
) -> float:
    """Add a parent: update variances and covariances, and write a column of the factor.

    Returns
    -------
    float
        The fall of the target's variance.
    """
    root = math.sqrt(variance[chosen])
    with_target = covariance[chosen] / root
    for a in range(len(variance)):
        product = correlation[a, chosen]
        for k in range(count):
            product -= factor[a, k] * factor[chosen, k]
        factor[a, count] = product / root
    for a in range(len(variance)):
        variance[a] -= factor[a, count] ** 2
        covariance[a] -= factor[a, count] * with_target
    return with_target**2  # type: ignore[no-any-return]


@compiled
def _shrink(
    correlation: FloatArray,
    target: Integer,
    parents: IntArray,
    required: BoolArray,
    cost: float,
    collinear: float,
) -> tuple[IntArray, float]:
    """Remove parents as long as the worst one does not pay for itself."""
    size = len(parents)
    members = np.append(parents, target)
    table = np.empty((size + 1, size + 1))
    for a in range(size + 1):
        for b in range(size + 1):
            table[a, b] = correlation[members[a], members[b]]
    used = np.zeros(size, np.bool_)
    for a in range(size):
        if table[a, a] > collinear:
            _sweep(table, a, 1.0)
            used[a] = True
    while True:
        worst, chosen = cost, -1
        for a in range(size):
            if used[a] and not required[a]:
                rise = table[a, size] ** 2 / -table[a, a]
                loss = math.log1p(rise / max(table[size, size], collinear))
                if loss < worst - (TIE if chosen >= 0 else 0.0):
                    worst, chosen = loss, a
        if chosen < 0:
            return parents[used | required], max(table[size, size], 0.0)
        _sweep(table, chosen, -1.0)
        used[chosen] = False


@compiled
def _sweep(table: FloatArray, k: Integer, sign: float) -> None:
    """Sweep a symmetric table at an index (sign 1), or undo it (sign -1), in place.

    Swept at all parents, its last column holds their coefficients and the residual variance, the
    rest minus the inverse of their correlations.
    """
    pivot = table[k, k]
    for a in range(len(table)):
        if a == k:
            continue
        scaled = table[a, k] / pivot
        for b in range(len(table)):
            if b != k:
                table[a, b] -= scaled * table[k, b]
    for a in range(len(table)):
        if a != k:
            table[a, k] *= sign / pivot
            table[k, a] = table[a, k]
    table[k, k] = -1.0 / pivot


#: A variable and its parents, ascending.
Regression: TypeAlias = tuple[int, tuple[int, ...]]

# Orders at which searches begin: of the columns, reversed, and random.
NUM_STARTS = 4
# Cost of an edge beyond that of the BIC, in units of log d, see `edge_cost`. Summed SHD on 12 kinds
# of noise (d = 10, n = 300) is 6.8 at 0, 4.2 at 0.25, 4.0 at 0.5, and 4.7 at 1.
GAMMA = 0.5
#: Cost of an edge that an order needs and knowledge forbids, in nats a row: more than any score.
FORBIDDEN = 1e3


class OrderProblem:
    """The part of the score that second moments determine, and the parents in any order.

    Parameters
    ----------
    moments : SampleMoments
        Of the m columns: d variables, followed by lags that precede all of them. Complete.
    num_variables : int
        d.
    masks : EdgeMasks
        Background knowledge over the m columns.
    """

    def __init__(self, moments: SampleMoments, num_variables: int, masks: EdgeMasks) -> None:
        self.moments, self.num_variables = moments, num_variables
        self.correlation = moments.correlations
        self.masks, self._required = masks, masks.required
        d = num_variables
        allowed, required = (masks.allowed | masks.required)[:d, :d], masks.required[:d, :d]
        reached = ancestors(allowed)
        #: [i, j]: i precedes j in every order.
        self._precedes = ancestors((reached & ~reached.T) | required)
        #: Of each variable those that must not cause it, but may be caused by it, as bits.
        self._one_way = [_bits(column) for column in (allowed.T & ~allowed).T]
        #: Of each variable the columns that may be its parents, as bits, and its lags among them.
        self._possible = [_bits(column) for column in masks.allowed.T[:num_variables]]
        lags = _bits(np.arange(moments.d) >= num_variables)
        self._lags = [possible & lags for possible in self._possible]
        self._cost = edge_cost(moments.n, moments.d, GAMMA)
        self._families: dict[tuple[int, int], tuple[Regression, int]] = {}
        self._residuals: dict[Regression, float] = {}

    def regression(self, variable: int, before: int) -> Regression:
        """Return a variable and its parents among the variables before it, given as bits."""
        return self.family(variable, before)[0]

    def family(self, variable: int, before: int) -> tuple[Regression, int]:
        """Return also the variables that may decide on the parents, as bits.

        As long as no other variables come before this one, or cease to, its parents stay, those
        that knowledge forbids but the BIC would add included.
        """
        key = variable, self._candidates(variable, before)
        if key not in self._families:
            m, possible = self.moments.d, self._possible[variable]
            parents, residual, deciding = grow_shrink(
                self.correlation,
                variable,
                _mask(key[1], m),
                self._required[:, variable],
                2.0 * self._cost / self.moments.n,
                (self.moments.n - 1) // 2,
                COLLINEAR,
            )
            found = variable, tuple(parents.tolist())
            self._families[key] = found, _bits(deciding) & possible | self._one_way[variable]
            self._residuals[found] = residual
        return self._families[key]

    def _candidates(self, variable: int, before: int) -> int:
        return (before & self._possible[variable]) | self._lags[variable]

    def gaussian_score(self, regression: Regression) -> float:
        """Return ``n log sd(u) + cost |parents|``."""
        residual = max(self._residuals[regression], COLLINEAR)
        return 0.5 * self.moments.n * float(np.log(residual)) + self._cost * len(regression[1])

    def needed(self, regression: Regression, before: int) -> int:
        """Count the parents that the BIC would add from the causes that knowledge forbids one way.

        Parameters
        ----------
        regression : Regression
        before : int
            The variables before, as bits.
        """
        variable, parents = regression
        forbidden_bits = before & self._one_way[variable]
        if not forbidden_bits:
            return 0
        forbidden = _positions(forbidden_bits, self.num_variables)
        index = np.array(parents, dtype=np.intp)
        strengths = partial_correlations(self.correlation, index, variable)[forbidden]
        gains = -0.5 * self.moments.n * np.log(1.0 - np.minimum(strengths**2, 1.0 - COLLINEAR))
        return int((gains > self._cost).sum())

    def determined(self, regression: Regression) -> bool:
        """Whether a variable is a linear combination of its parents, so that nothing is left."""
        return self._residuals[regression] <= COLLINEAR

    def limits(self, variable: int, others: Sequence[int]) -> tuple[int, int]:
        """Return the first and the last place for a variable that knowledge allows."""
        places = np.array(others, dtype=np.intp)
        before = np.flatnonzero(self._precedes[places, variable])
        after = np.flatnonzero(self._precedes[variable, places])
        first = int(before[-1]) + 1 if len(before) else 0
        return first, int(after[0]) if len(after) else len(others)

    def starts(self, seed: int) -> list[list[int]]:
        """Return the orders at which the searches begin; knowledge allows them."""
        d = self.num_variables
        rng = np.random.default_rng(seed)
        chosen = [np.arange(d), np.arange(d)[::-1]]
        chosen += [rng.permutation(d) for _ in range(NUM_STARTS - len(chosen))]
        return [
            [int(order[k]) for k in topological_order(self._precedes[np.ix_(order, order)])]
            for order in chosen
        ]

    def directions(self, regressions: Sequence[Regression]) -> FloatArray:
        """Return the combinations of the centred columns that are the standardised residuals.

        Returns
        -------
        ndarray of shape (q, m)
        """
        found = np.zeros((len(regressions), self.moments.d))
        for row, (variable, parents) in zip(found, regressions, strict=True):
            index = np.array(parents, dtype=np.intp)
            weights, residual = regress(self.moments.second, index, variable)
            row[variable], row[index] = 1.0, -weights
            row /= np.sqrt(residual)
        return found

    def adjacency(self, order: Sequence[int]) -> BoolArray:
        """Return the parents of each variable in an order, shape (m, d)."""
        found = np.zeros((self.moments.d, self.num_variables), dtype=bool)
        for variable, parents in self.regressions(order):
            found[list(parents), variable] = True
        return found

    def strengths(self, adjacency: BoolArray, order: Sequence[int]) -> FloatArray:
        """Return how strongly each column acts on each later variable in an order, shape (m, d).

        It is the absolute partial correlation given the variable's other parents; 0 for columns
        that cannot be parents in the order.

        Parameters
        ----------
        adjacency : ndarray of bool, shape (m, d)
            The parents of each variable.
        order : sequence of int
            In which they come before it.
        """
        found = np.zeros(adjacency.shape)
        before = 0
        for variable in order:
            parents = np.flatnonzero(adjacency[:, variable])
            strengths = partial_correlations(self.correlation, parents, variable)
            possible = _positions(self._candidates(variable, before), self.moments.d)
            found[possible, variable] = strengths[possible]
            before |= 1 << variable
        return found

    def regressions(self, order: Sequence[int]) -> list[Regression]:
        """Return each variable with its parents, in an order."""
        before, found = 0, []
        for variable in order:
            found.append(self.regression(variable, before))
            before |= 1 << variable
        return found


@dataclass(frozen=True, eq=False)
class OrderSearch:
    """State of the searches over orders, with the negentropies that are known.

    Parameters
    ----------
    orders : tuple of tuple of int
        The order that each search has reached.
    known : mapping of Regression to float
        The negentropies.
    wanted : tuple of Regression
        Those that are needed to go on; empty: no move of any search lowers the score.
    """

    orders: tuple[tuple[int, ...], ...]
    known: Mapping[Regression, float]
    wanted: tuple[Regression, ...]

    def best_order(self, problem: OrderProblem) -> tuple[int, ...]:
        """Return the order of lowest score; the first one as long as no score is known."""
        score = _Score(problem, self.known)
        totals = [score.total(order) for order in self.orders]
        return self.orders[int(first_smallest(np.where(np.isnan(totals), np.inf, totals)))]

    def negentropies(self, problem: OrderProblem, order: Sequence[int]) -> FloatArray:
        """Return each variable's negentropy given its parents in an order, (d,); NaN if unknown."""
        found = np.full(len(order), np.nan)
        for regression in problem.regressions(order):
            found[regression[0]] = self.known.get(regression, np.nan)
        return found

    def turning_loss(self, problem: OrderProblem, order: Sequence[int]) -> FloatArray:
        """Return the cost in nats of turning each edge of an order's graph, shape (d, d).

        An edge is turned where its cause moves behind its effect, or the effect before the cause,
        whichever scores better; all others keep their order. 0 where there is no edge, or where
        neither order is allowed or known.
        """
        score, d = _Score(problem, self.known), problem.num_variables
        here, found = score.total(order), np.zeros((d, d))
        for i, j in np.argwhere(problem.adjacency(order)[:d]).tolist():
            turned = []
            for moving, after in ((i, True), (j, False)):
                others = [one for one in order if one != moving]
                place = others.index(j) + 1 if after else others.index(i)
                first, last = problem.limits(moving, others)
                if first <= place <= last:
                    order_of = [*others[:place], moving, *others[place:]]
                    turned.append(score.total(order_of) - here)
            known = [one for one in turned if not np.isnan(one)]
            found[i, j] = max(min(known, default=0.0), 0.0)
        return found


@single_threaded()
def begin(problem: OrderProblem, seed: int) -> OrderSearch:
    """Return the searches at orders of best Gaussian score."""
    return _resumed(problem, [_climb(order, _Score(problem)) for order in problem.starts(seed)], {})


@single_threaded()
def advance(problem: OrderProblem, search: OrderSearch, means: FloatArray) -> OrderSearch:
    """Continue the searches with the negentropies that they wanted; return them.

    Parameters
    ----------
    problem : OrderProblem
    search : OrderSearch
    means : ndarray of shape (q, 2)
        Of :func:`~flwr_causal.core.linear.negentropy.mean_functions` for the residuals of
        ``search.wanted``.
    """
    found = dict(zip(search.wanted, negentropies(means).tolist(), strict=True))
    return _resumed(problem, search.orders, {**search.known, **found})


def lingam(
    data: Any, *, knowledge: Knowledge | EdgeMasks | None = None, seed: int = 0
) -> CausalGraph:
    """Find the linear DAG with independent non-Gaussian noise.

    Parameters
    ----------
    data : array of shape (n, d) or DataFrame
        Rows; units do not matter.
    knowledge : Knowledge or EdgeMasks, optional
        Required and forbidden edges.
    seed : int, default 0
        Of the orders at which the search begins.

    Returns
    -------
    CausalGraph
        A DAG with least-squares weights.

    Raises
    ------
    DataError
        If the data are not a table of finite numbers, or a variable is constant.
    ConfigError
        If the knowledge does not fit the variables.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.solvers import lingam
    >>> rng = np.random.default_rng(0)
    >>> cause = rng.exponential(size=500)
    >>> rows = np.column_stack([cause, 2 * cause + rng.exponential(size=500)])
    >>> lingam(rows).adjacency.tolist()
    [[False, True], [False, False]]
    """
    moments = as_moments(data)
    moments.require_varying()
    rows = np.asarray(data, dtype=np.float64) - moments.mean
    masks = edge_masks(knowledge, moments.names)
    problem = OrderProblem(regular(moments, masks.required), moments.d, masks)
    search = begin(problem, seed)
    for _ in steps("The search over causal orders", MOST_STEPS):
        if not search.wanted:
            break
        search = advance(problem, search, mean_functions(rows, problem.directions(search.wanted)))
    adjacency = problem.adjacency(search.best_order(problem))
    weights = edge_weights(adjacency, refit(moments, adjacency))
    return CausalGraph(moments.names, weights, required=problem.masks.required)


class _Score:
    """The score of a variable given the variables before it in an order; NaN if it is not known.

    Parameters
    ----------
    problem : OrderProblem
    known : mapping of Regression to float, optional
        Negentropies. Default: the noise is Gaussian, all are 0.
    """

    def __init__(
        self, problem: OrderProblem, known: Mapping[Regression, float] | None = None
    ) -> None:
        self.problem, self.known = problem, known
        #: The regressions whose score was asked for and is not known.
        self.missing: set[Regression] = set()
        self._scores: dict[tuple[int, int], tuple[float, int]] = {}

    def __call__(self, variable: int, before: int) -> tuple[float, int]:
        """Return the score, and the variables that may change it, see `OrderProblem.family`."""
        key = variable, before
        found = self._scores.get(key)
        if found is None:
            regression, deciding = self.problem.family(variable, before)
            needed = self.problem.needed(regression, before)
            score = self.of(regression) + FORBIDDEN * self.problem.moments.n * needed
            found = self._scores[key] = score, deciding
        if found[0] != found[0]:
            self.missing.add(self.problem.regression(variable, before))
        return found

    def total(self, order: Sequence[int]) -> float:
        """Return the score of an order."""
        before, found = 0, 0.0
        for variable in order:
            found += self(variable, before)[0]
            before |= 1 << variable
        return found

    def of(self, regression: Regression) -> float:
        """Return the score of a regression."""
        score = self.problem.gaussian_score(regression)
        if self.known is None or self.problem.determined(regression):
            return score
        return score - self.problem.moments.n * self.known.get(regression, np.nan)


def _resumed(
    problem: OrderProblem, orders: Sequence[Sequence[int]], known: Mapping[Regression, float]
) -> OrderSearch:
    wanted: set[Regression] = set()
    reached = []
    for order in dict.fromkeys(map(tuple, orders)):
        score = _Score(problem, known)
        reached.append(tuple(_climb(order, score)))
        wanted |= score.missing
    return OrderSearch(tuple(dict.fromkeys(reached)), known, tuple(sorted(wanted)))


def _climb(order: Sequence[int], score: _Score) -> list[int]:
    """Move variables as long as the score is known to fall.

    Afterwards ``score.missing`` are the regressions without which no further move can be judged.
    """
    reached = list(order)
    for _ in steps("The search over causal orders", MOST_STEPS):
        score.missing.clear()
        moving = False
        for variable in range(len(order)):
            check_deadline()
            moving |= _moved(reached, variable, score)
        if not moving:
            break
    return reached


def _moved(order: list[int], variable: int, score: _Score) -> bool:
    """Insert a variable at the place of lowest score; return whether it has moved."""
    place = order.index(variable)
    others = order[:place] + order[place + 1 :]
    own = 1 << variable
    before = [0]
    for other in others:
        before.append(before[-1] | 1 << other)
    first, last = score.problem.limits(variable, others)
    here, own_deciding = score(variable, before[place])
    # Equivalent graphs, and orders of independent variables, differ by rounding alone.
    least = SCORE_TIE * score.problem.moments.n
    best, chosen = 0.0, place
    # Most variables neither decide on this one's parents nor this one on theirs.
    for passed in (range(place, last), range(place - 1, first - 1, -1)):
        change, there, deciding = 0.0, here, own_deciding
        for k in passed:
            other, after = others[k], int(k >= place)
            now, its_deciding = score(other, before[k] | own * after)
            then = now
            if its_deciding & own:
                then, _ = score(other, before[k] | own * (1 - after))
            change += then - now
            if deciding >> other & 1:
                there, deciding = score(variable, before[k + after])
            total = change + there - here
            if total < best - least:
                best, chosen = total, k + after
    order[:] = [*others[:chosen], variable, *others[chosen:]]
    return chosen != place


def _bits(mask: BoolArray) -> int:
    """Return a mask as the bits of a whole number."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def _mask(bits: int, size: int) -> BoolArray:
    """Return the bits of a whole number as a mask."""
    packed = np.frombuffer(bits.to_bytes((size + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(packed, count=size, bitorder="little").astype(np.bool_)


def _positions(bits: int, size: int) -> IntArray:
    """Return where the bits are 1, ascending."""
    return np.flatnonzero(_mask(bits, size))
