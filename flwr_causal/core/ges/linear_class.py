"""The equivalence class of a linear Gaussian system, from second moments, with weights.

References
----------
Chickering, D. M. (2002). Optimal structure identification with greedy search. JMLR 3.
Foygel, R. & Drton, M. (2010). Extended Bayesian information criteria for Gaussian graphical models.
NeurIPS 23.
Hauser, A. & Bühlmann, P. (2012). Characterization and greedy learning of interventional Markov
equivalence classes of directed acyclic graphs. JMLR 13.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.ges.greedy_search import prepared_search
from flwr_causal.core.ges.moment_gains import MomentGains
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.equivalence import directed_part, undirected_part
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.limits import MOST_STEPS, steps
from flwr_causal.core.linear.gaussian_scores import edge_cost
from flwr_causal.core.linear.moments import distinct, require_varying
from flwr_causal.core.linear.order_search import MomentOrders, order_score, sorted_orders
from flwr_causal.core.linear.regression import regress
from flwr_causal.core.ties import is_lower
from flwr_causal.core.words import by_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.ges.greedy_search import Search
    from flwr_causal.core.linear.moments import SampleMoments


# Cost of an edge beyond that of the BIC, in units of log d, see `edge_cost`: the extended BIC with
# the gamma 1/2 of Foygel & Drton.
GAMMA = 1.0
# Shuffled orders at which a search over orders begins, beside the sorted ones.
NUM_SHUFFLED = 6
# Further searches from the best order, with some variables moved.
NUM_MOVES = 16


class LinearClass(NamedTuple):
    """The class that the search reached.

    Attributes
    ----------
    marks : ndarray of bool, shape (m, m)
        ``[i, j]`` alone is i -> j, both ways is i - j.
    weights : ndarray of shape (m, m)
        ``[i, j]``: the coefficient of i in the regression of j on i and on the variables with a
        directed edge into j. There is a DAG of the class in which these are all causes of j (with
        background knowledge: not always). It is not 0 where there is an edge, and 0 elsewhere.
    strengths : ndarray of shape (m, m)
        The absolute partial correlation of i and j in that regression.
    """

    marks: BoolArray
    weights: FloatArray
    strengths: FloatArray


def linear_class(
    moments: Sequence[SampleMoments], masks: EdgeMasks, *, distinguished: BoolArray, **options: Any
) -> LinearClass:
    """Find the equivalence class of best extended BIC, with weights; as :func:`class_marks`."""
    marks = class_marks(moments, masks, distinguished=distinguished, **options)
    return LinearClass(marks, *class_weights(moments, marks))


def class_marks(
    moments: Sequence[SampleMoments],
    masks: EdgeMasks,
    *,
    distinguished: BoolArray,
    max_parents: int | None = None,
    least_effect: float = 0.0,
    by_orders: bool = False,
    thorough: bool = True,
    near: BoolArray | None = None,
) -> BoolArray:
    """Find the equivalence class of best extended BIC that a search reaches.

    A greedy search inserts, deletes and turns edges until none of these improves the score. The
    causal order of its result, and sorted orders, are then improved by a search over orders with
    the same score (:mod:`flwr_causal.core.linear.order_search`), and another greedy search starts
    from there, until the result improves no more. It depends neither on the order of the variables
    nor on their units.

    Parameters
    ----------
    moments : sequence of SampleMoments
        For each of the m variables the moments of all variables, over the rows that inform about
        its mechanism.
    masks : EdgeMasks
        Background knowledge over the m variables.
    distinguished : ndarray of bool, shape (m, m)
        Pairs whose edge has a direction in every class, symmetric.
    max_parents : int, optional
        Largest number of parents of a variable. Default: no limit.
    least_effect : float, default 0.0
        Least partial correlation of an edge, given the other parents, as in a search over orders.
    by_orders : bool, default False
        Whether the first greedy search starts from the best graph of a search over orders in place
        of a graph without edges.
    thorough : bool, default True
        Whether this search over orders starts from shuffled orders and from moves of the best one,
        too, not from sorted ones alone.
    near : ndarray of bool, shape (m, m), optional
        A DAG whose order alone the searches over orders start from. Default: none.

    Returns
    -------
    ndarray of bool, shape (m, m)
        Marks, see :class:`LinearClass`.

    Raises
    ------
    DataError
        If a moment is missing, a variable is constant, or the graph becomes too dense to search.
    ConfigError
        For an impossible ``max_parents``.
    """
    names = moments[0].names
    for part in distinct(moments)[0]:
        part.require_complete()
    require_varying(moments)
    # In the order of names, by which ties are broken.
    order = by_name(names)
    own = {id(part): part.subset(order) for part in moments}
    both = np.ix_(order, order)
    known = EdgeMasks(masks.allowed[both], masks.required[both])
    rows = float(np.mean([part.n for part in moments]))
    least = -0.5 * rows * math.log(1 - least_effect**2)
    cost = max(edge_cost(rows, len(names), GAMMA), least)
    parts = [own[id(moments[k])] for k in order]
    source = MomentGains(parts, cost)

    def searched(start: BoolArray) -> Search:
        search = prepared_search(
            source,
            [names[k] for k in order],
            start=start,
            knowledge=known if _says_something(known) else None,
            max_parents=max_parents,
            distinguished=distinguished[both],
        )
        search.run(turn=True)
        return search

    def score_of(dag: BoolArray) -> float:
        return order_score(parts, dag, known, edge_cost=cost)

    orders = _Orders(parts, known, max_parents, cost, sort=near is None)
    begin = np.zeros((len(names), len(names)), dtype=np.bool_)
    if near is not None:
        begin = orders.best(near[both])
    elif by_orders:
        further = (NUM_SHUFFLED, NUM_MOVES) if thorough else (0, 0)
        begin = orders.best(begin, *further)
    search = searched(begin)
    score = score_of(search.dag)
    for _ in steps("The search for an equivalence class", MOST_STEPS):
        dag = orders.best(search.dag)
        if not is_lower(score_of(dag), score, rows):
            break
        # Each search treats collinear variables in its own way: the score decides.
        other = searched(dag)
        reached = score_of(other.dag)
        if not is_lower(reached, score, rows):
            break
        search, score = other, reached
    back = np.argsort(order)
    return np.asarray(search.marks[np.ix_(back, back)])


class _Orders:
    """A search over the causal orders of a class's variables, which may be given further starts.

    Variables that nothing may cause, such as lags, precede all others.

    Parameters
    ----------
    moments, masks, max_parents
        As of :func:`class_marks`.
    cost : float
        Of an edge.
    sort : bool
        Whether each search also starts from sorted orders.
    """

    def __init__(
        self,
        moments: Sequence[SampleMoments],
        masks: EdgeMasks,
        max_parents: int | None,
        cost: float,
        sort: bool,
    ) -> None:
        self._caused = np.asarray(masks.allowed.any(axis=0))
        columns = np.concatenate([np.flatnonzero(self._caused), np.flatnonzero(~self._caused)])
        self._d, self._columns, both = int(self._caused.sum()), columns, np.ix_(columns, columns)
        self._starts: dict[str, list[int]] = {}
        if not self._d:
            return
        sorted_by_kind = {id(part): part.subset(columns.tolist()) for part in moments}
        parts = [sorted_by_kind[id(moments[k])] for k in columns[: self._d]]
        own = EdgeMasks(masks.allowed[both], masks.required[both])
        self._problem = MomentOrders(parts, own, 0.0, None, max_parents, cost)
        most = max(parts, key=lambda part: part.n)
        if sort and most.n > most.d and not most.constant_columns():
            by_rank = sorted_orders(most.standardized()[0], self._d)
            self._starts = {name: by_rank[name] for name in ("residual variance", "R2")}
            self._starts["R2, reversed"] = by_rank["R2"][::-1]

    def best(self, start: BoolArray, num_shuffled: int = 0, moves: int = 0) -> BoolArray:
        """Return the DAG of best score that the search reaches, also from a DAG's order."""
        if not self._d:
            return start
        place, shuffled = np.argsort(self._columns), np.random.default_rng(0)
        own = [int(place[k]) for k in topological_order(start) if self._caused[k]]
        further = {f"shuffled {k}": shuffled.permutation(self._d) for k in range(num_shuffled)}
        starts = {"class": own, **self._starts}
        starts |= {name: order.tolist() for name, order in further.items()}
        found, dag = self._problem.candidates(starts, moves), np.zeros_like(start)
        dag[np.ix_(self._columns, self._columns[: self._d])] = found[0].adjacency
        return dag


def _says_something(masks: EdgeMasks) -> bool:
    return bool(masks.required.any() or (~masks.allowed).sum() > len(masks.allowed))


def class_weights(
    moments: Sequence[SampleMoments], marks: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return the weights and strengths of a class, each (m, m); see :class:`LinearClass`."""
    weights, strengths = np.zeros(marks.shape), np.zeros(marks.shape)
    directed, undirected = directed_part(marks), undirected_part(marks)
    for j, part in enumerate(moments):
        causes = np.flatnonzero(directed[:, j])
        alone = [(np.append(causes, i), np.array([i])) for i in np.flatnonzero(undirected[:, j])]
        for parents, asked in [(causes, causes), *alone]:
            coefficients, residual = regress(part.second, parents, j)
            for i in asked:
                weight = float(coefficients[parents == i][0])
                # Effects may cancel each other exactly, but the edge stands.
                weights[i, j] = weight if weight else np.finfo(np.float64).tiny
                without = regress(part.second, parents[parents != i], j)[1]
                strengths[i, j] = np.sqrt(max(1.0 - residual / without, 0.0)) if without else 0.0
    return weights, strengths
