"""Greedy improvement of a DAG on moments: add, drop or reverse one edge at a time.

Each step evaluates all possible moves. The score, the Gaussian BIC, is a sum over the variables;
the term of a variable depends on the variable and its parents. A move therefore changes one or two
terms, and the changes by all additions to one variable follow from one Cholesky factorisation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from flwr_causal.core.graphs.acyclicity import ancestors, break_cycles
from flwr_causal.core.limits import MOST_STEPS, steps
from flwr_causal.core.linear.gaussian_scores import edge_cost, residual_variances
from flwr_causal.core.linear.regression import RESIDUAL_FLOOR
from flwr_causal.core.linear.solution import edge_masks
from flwr_causal.core.threads import single_threaded
from flwr_causal.core.ties import SCORE_TIE, is_lower
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
    from flwr_causal.core.linear.moments import SampleMoments


# Cost of an edge beyond that of the BIC, in units of log d. On the simulations of the NOTEARS-ADMM
# paper (seven settings, d = 10..100, n = 30..300, 8 seeds each) the summed mean SHD is 26.0 at 0.5,
# 7.9 at 1, 5.6 at 1.5, and between 5.0 and 6.4 for values up to 3. Of the values that do equally
# well the smallest keeps the most weak edges.
DEFAULT_GAMMA = 1.5


class Move(NamedTuple):
    """A move of the search; ``score`` is the score of the graph after the move."""

    kind: Literal["add", "drop", "reverse"]
    cause: int
    effect: int
    score: float


@single_threaded()
def polish(
    moments: SampleMoments,
    adjacency: ArrayLike,
    *,
    gamma: float = DEFAULT_GAMMA,
    knowledge: Knowledge | EdgeMasks | None = None,
    max_parents: int | None = None,
) -> BoolArray:
    """Improve a DAG by the best single addition, removal or reversal until there is none.

    Parameters
    ----------
    moments
        Moments of the data, complete and without constant variables.
    adjacency
        ``(d, d)`` DAG to start from, after removing forbidden edges and adding required ones.
    gamma
        An edge costs ``log(n) / 2 + gamma log d``: the extended BIC of Foygel & Drton (2010), whose
        gamma is half of this one; 0 gives the ordinary BIC.
    knowledge
        Required edges are never dropped or reversed, forbidden edges are never added. Default:
        none.
    max_parents
        Largest number of parents that the search gives to a variable. Default: ``(n - 1) // 2``,
        because about as many parents as rows predict any variable perfectly.

    Returns
    -------
    ndarray of bool, shape (d, d)

    Raises
    ------
    DataError
        If the start has another shape or a cycle, a second moment is missing, or a variable is
        constant.
    ConfigError
        If the knowledge does not fit the variables.
    """
    start = np.asarray(adjacency) != 0
    moments.require_varying()
    moments.require_complete()
    if start.shape != moments.second.shape:
        raise DataError(f"the start has shape {start.shape}, expected {moments.second.shape}")
    if ancestors(start).diagonal().any():
        raise DataError("the start of the search has a directed cycle; break_cycles removes it")
    masks = edge_masks(knowledge, moments.names)
    required = np.asarray(masks.required, dtype=bool)
    start = break_cycles((start & masks.allowed).astype(np.float64), required) != 0
    limit = (moments.n - 1) // 2 if max_parents is None else max_parents
    search = _Search(moments, start | required, masks, gamma, limit)
    for _ in steps("The search from a graph", MOST_STEPS * len(start)):
        if (move := search.best_move()) is None:
            break
        search.apply(move)
    return search.adjacency


class _Search:
    """A DAG, and the changes of its Gaussian BIC by all single moves.

    ``terms[j]`` is the term of variable j, ``n/2 log`` of its residual variance.
    ``additions[i, j]`` and ``drops[i, j]`` are the changes of ``terms[j]`` by adding or dropping
    i -> j, infinite for moves that are not possible.
    """

    def __init__(
        self,
        moments: SampleMoments,
        adjacency: BoolArray,
        masks: EdgeMasks,
        gamma: float,
        max_parents: float,
    ) -> None:
        self.d, self.n = len(adjacency), float(moments.n)
        self.variances, self.correlations = np.diagonal(moments.second), moments.correlations
        self.adjacency = adjacency.copy()
        self.reach = ancestors(adjacency)
        self.allowed = np.asarray(masks.allowed, dtype=bool)
        self.required = np.asarray(masks.required, dtype=bool)
        self.edge_cost = edge_cost(self.n, self.d, gamma)
        self.max_parents = max_parents
        self.terms = np.zeros(self.d)
        self.additions = np.full((self.d, self.d), np.inf)
        self.drops = np.full((self.d, self.d), np.inf)
        for child in range(self.d):
            self._update_moves(child)

    def best_move(self) -> Move | None:
        """Return the possible move that lowers the score most, or None if no move lowers it."""
        terms, edges = float(self.terms.sum()), int(self.adjacency.sum())
        tolerance = SCORE_TIE * self.n
        candidates: list[Move] = []

        def consider(
            kind: Literal["add", "drop", "reverse"], changes: FloatArray, more_edges: int
        ) -> None:
            least = changes.min()
            if np.isfinite(least):
                # i -> j and j -> i often have equal scores: the first in order is chosen, so that
                # the choice does not depend on rounding.
                tied = changes <= least + tolerance
                i, j = (int(k) for k in np.unravel_index(int(tied.argmax()), tied.shape))
                after = terms + float(changes[i, j]) + self.edge_cost * (edges + more_edges)
                candidates.append(Move(kind, i, j, after))

        consider("add", np.where(self.reach.T, np.inf, self.additions), 1)
        consider("drop", self.drops, -1)
        consider("reverse", self._reversals(), 0)
        least = min((move.score for move in candidates), default=np.inf)
        if not is_lower(least, terms + self.edge_cost * edges, self.n):
            return None
        return next(move for move in candidates if move.score <= least + tolerance)

    def apply(self, move: Move) -> None:
        """Make a move, and update the descendants and the changes of the score."""
        i, j = move.cause, move.effect
        if move.kind != "add":
            self.adjacency[i, j] = False
            self._forget_paths_from(i)
        if move.kind != "drop":
            cause, effect = (j, i) if move.kind == "reverse" else (i, j)
            self.adjacency[cause, effect] = True
            before = self.reach[:, cause].copy()
            before[cause] = True
            after = self.reach[effect].copy()
            after[effect] = True
            self.reach |= np.outer(before, after)
        self._update_moves(j)
        if move.kind == "reverse":
            self._update_moves(i)

    def _reversals(self) -> FloatArray:
        """Return the changes of the terms by reversing i -> j, infinite if that closes a cycle."""
        changes = np.full((self.d, self.d), np.inf)
        i, j = np.nonzero(np.isfinite(self.drops) & np.isfinite(self.additions.T))
        # A second path from i to j, through another child of i, would close a cycle with j -> i.
        second_path = (self.adjacency[i] & self.reach[:, j].T).any(axis=1)
        i, j = i[~second_path], j[~second_path]
        changes[i, j] = self.drops[i, j] + self.additions[j, i]
        return changes

    def _forget_paths_from(self, node: int) -> None:
        """Recompute the descendants of ``node`` and of its ancestors."""
        stale = np.flatnonzero(self.reach[:, node] | (np.arange(self.d) == node))
        # A node has more descendants than each of its descendants: this order is by ancestry.
        for u in stale[np.argsort(self.reach[stale].sum(axis=1), kind="stable")]:
            children = np.flatnonzero(self.adjacency[u])
            self.reach[u] = self.adjacency[u] | self.reach[children].any(axis=0)

    def _term(self, residual: FloatArray, child: int) -> FloatArray:
        """Return the terms for residual variances, given as shares of the variable's variance."""
        variance = self.variances[child] * np.maximum(residual, RESIDUAL_FLOOR)
        return np.asarray(0.5 * self.n * np.log(variance), dtype=np.float64)

    def _update_moves(self, child: int) -> None:
        """Recompute the term of one variable, and its change by every addition and removal."""
        parents = np.flatnonzero(self.adjacency[:, child])
        residual, without, with_another = residual_variances(self.correlations, parents, child)
        term = self._term(np.array([residual]), child)[0]
        self.terms[child] = term
        self.drops[:, child] = np.inf
        self.drops[parents, child] = self._term(without, child) - term
        self.drops[self.required[:, child], child] = np.inf
        self.additions[:, child] = np.inf
        if len(parents) < self.max_parents:
            usable = self.allowed[:, child] & ~self.adjacency[:, child]
            self.additions[usable, child] = self._term(with_another[usable], child) - term
