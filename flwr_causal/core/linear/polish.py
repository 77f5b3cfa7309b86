"""Greedy improvement of a DAG on summed moments: add, drop or reverse one edge at a time.

All single moves are priced at once. The scores are sums over variables of a function of the
variable and its parents, so a move changes one or two terms, and all additions to one variable
follow from one Cholesky factor through partial covariances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from flwr_causal.core.graphs.acyclicity import ancestors, break_cycles
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.gaussian_scores import (
    RESIDUAL_FLOOR,
    SCORE_NAMES,
    ScoreName,
    edge_price,
    residual_variances,
    score_graph,
)
from flwr_causal.core.linear.model import refit
from flwr_causal.core.linear.solution import edge_masks
from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
    from flwr_causal.core.linear.moments import Moments


# Extra price of an edge in units of log d. Measured on the simulations of the NOTEARS-ADMM paper
# (seven settings, d = 10..100, n = 30..300, 8 seeds each): the summed mean SHD is 22.5 at 0.5, 6.5
# at 1, 4.8 at 1.5, and stays between 4.6 and 5.0 up to 3 with the equal-variance score; with the
# BIC it is 26.0, 7.9, 5.6 and 5.0 to 6.4. The smallest value of that plateau keeps most weak edges.
DEFAULT_GAMMA = 1.5
# A move must lower the score by this per row; smaller gains are rounding.
LEAST_GAIN = 1e-9


class Move(NamedTuple):
    """One step of the search; ``score`` is the graph's score after it."""

    kind: Literal["add", "drop", "reverse"]
    cause: int
    effect: int
    score: float


class Polished(NamedTuple):
    """Outcome of :func:`polish`: the DAG, its least-squares weights, and how it came about."""

    adjacency: BoolArray
    weights: FloatArray
    score: float
    moves: tuple[Move, ...]


@single_threaded()
def polish(
    moments: Moments,
    adjacency: ArrayLike,
    *,
    score: ScoreName = "bic",
    gamma: float = DEFAULT_GAMMA,
    knowledge: Knowledge | EdgeMasks | None = None,
    max_parents: int | None = None,
    num_targets: int | None = None,
) -> Polished:
    """Improve a DAG by the best single addition, removal or reversal until there is none.

    Parameters
    ----------
    moments
        Moments of the data, complete and without constant variables.
    adjacency
        ``(d, d)`` DAG to start from. Forbidden edges are taken out and required ones put in first.
    score
        ``"bic"``, or ``"equal-variance"`` where all noise terms may be taken to have one variance.
    gamma
        Extra price of an edge, ``gamma log d``, beside BIC's ``log(n) / 2`` (the extended BIC of
        Foygel & Drton 2010, whose own gamma is half of this one); 0 gives the ordinary BIC.
    knowledge
        Required edges are never dropped or reversed, forbidden ones never made.
    max_parents
        Most parents that the search gives to a variable; by default ``(n - 1) // 2``, since with
        about as many parents as rows any variable is predicted perfectly.
    num_targets
        Only the first so many variables can have parents and noise of their own: the others are
        lags of them. Default: all.

    Raises
    ------
    DataError
        If the start is no DAG of the right shape, or the moments are incomplete or degenerate.
    ConfigError
        If an option is unknown or the knowledge contradicts itself.
    """
    if score not in SCORE_NAMES:
        raise ConfigError(f"unknown score {score!r}; known are {', '.join(SCORE_NAMES)}")
    moments.require_complete()
    moments.require_varying()
    start = np.asarray(adjacency) != 0
    if start.shape != moments.second.shape:
        raise DataError(f"the start has shape {start.shape}, expected {moments.second.shape}")
    if ancestors(start).diagonal().any():
        raise DataError("the start of the search has a directed cycle; break_cycles removes it")
    masks = edge_masks(knowledge, moments.names)
    required = np.asarray(masks.required, dtype=bool)
    start = break_cycles((start & masks.allowed).astype(np.float64), required) != 0
    limit = (moments.n - 1) // 2 if max_parents is None else max_parents
    search = _Search(moments, start | required, masks, score, gamma, limit, num_targets)
    moves: list[Move] = []
    # the score falls with every move, so the search ends
    while (move := search.best_move()) is not None:
        search.apply(move)
        moves.append(move)
    final = search.adjacency
    return Polished(
        final,
        refit(moments, final),
        score_graph(moments, final, score, gamma, num_targets),
        tuple(moves),
    )


def polish_graph(
    moments: Moments,
    graph: CausalGraph,
    *,
    score: ScoreName = "bic",
    knowledge: Knowledge | EdgeMasks | None = None,
    num_targets: int | None = None,
) -> CausalGraph:
    """Polish a causal graph; the result has least-squares weights, see :func:`polish`."""
    result = polish(
        moments, graph.adjacency, score=score, knowledge=knowledge, num_targets=num_targets
    )
    required = edge_masks(knowledge, moments.names).required
    return CausalGraph(names=moments.names, weights=result.weights, required=required)


class _Search:
    """A DAG with the prices of all its single moves, kept current.

    Terms are in the score's own currency, in which the graph's terms add up: ``n/2 log RSS_j`` for
    the BIC, the residual variance for the equal-variance score, whose total is a function of the
    sum. ``additions[i, j]`` and ``drops[i, j]`` are the changes of j's term.
    """

    def __init__(
        self,
        moments: Moments,
        adjacency: BoolArray,
        masks: EdgeMasks,
        score: ScoreName,
        gamma: float,
        max_parents: int,
        num_targets: int | None = None,
    ) -> None:
        self.n, self.d = moments.n, moments.d
        self.num_targets = self.d if num_targets is None else num_targets
        self.variances = moments.variances
        scale = np.sqrt(self.variances)
        self.correlation = moments.second / np.outer(scale, scale)
        self.adjacency = adjacency.copy()
        self.reach = ancestors(adjacency)
        self.allowed = np.asarray(masks.allowed, dtype=bool)
        self.required = np.asarray(masks.required, dtype=bool)
        self.score: ScoreName = score
        self.price = edge_price(self.n, self.d, gamma)
        self.max_parents = max_parents
        self.terms = np.zeros(self.d)
        self.additions = np.full((self.d, self.d), np.inf)
        self.drops = np.full((self.d, self.d), np.inf)
        for child in range(self.d):
            self._price_moves(child)
        if score == "equal-variance":
            # lags have no noise term of their own
            self.terms[self.num_targets :] = 0.0

    def best_move(self) -> Move | None:
        """Cheapest legal move, or None if no move lowers the score."""
        terms, edges = float(self.terms.sum()), int(self.adjacency.sum())
        tolerance = LEAST_GAIN * self.n
        candidates: list[Move] = []

        def consider(
            kind: Literal["add", "drop", "reverse"], changes: FloatArray, more_edges: int
        ) -> None:
            least = changes.min()
            if np.isfinite(least):
                # i -> j and j -> i often cost the same: the first in order, not rounding, decides
                tied = changes <= least + self._rounding(terms)
                i, j = (int(k) for k in np.unravel_index(int(tied.argmax()), tied.shape))
                after = self._total(terms + float(changes[i, j]), edges + more_edges)
                candidates.append(Move(kind, i, j, after))

        consider("add", np.where(self.reach.T, np.inf, self.additions), 1)
        consider("drop", self.drops, -1)
        consider("reverse", self._reversals(), 0)
        least = min((move.score for move in candidates), default=np.inf)
        if least >= self._total(terms, edges) - tolerance:
            return None
        return next(move for move in candidates if move.score <= least + tolerance)

    def apply(self, move: Move) -> None:
        """Make a legal move and update what it changes."""
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
        self._price_moves(j)
        if move.kind == "reverse":
            self._price_moves(i)

    def _reversals(self) -> FloatArray:
        """Change of the terms when i -> j becomes j -> i, infinite where that closes a cycle."""
        changes = np.full((self.d, self.d), np.inf)
        i, j = np.nonzero(np.isfinite(self.drops) & np.isfinite(self.additions.T))
        # another way from i to j, by another child of i, would close a cycle with j -> i
        other_way = (self.adjacency[i] & self.reach[:, j].T).any(axis=1)
        i, j = i[~other_way], j[~other_way]
        changes[i, j] = self.drops[i, j] + self.additions[j, i]
        return changes

    def _forget_paths_from(self, node: int) -> None:
        """Recompute what ``node`` and its ancestors reach, nearest first."""
        stale = np.flatnonzero(self.reach[:, node] | (np.arange(self.d) == node))
        # whoever reaches another node reaches more nodes than that one
        for u in stale[np.argsort(self.reach[stale].sum(axis=1), kind="stable")]:
            children = np.flatnonzero(self.adjacency[u])
            self.reach[u] = self.adjacency[u] | self.reach[children].any(axis=0)

    def _rounding(self, terms: float) -> float:
        """Difference of terms that counts as none."""
        return LEAST_GAIN * (terms / self.num_targets if self.score == "equal-variance" else self.n)

    def _total(self, terms: float, edges: int) -> float:
        fit = terms
        if self.score == "equal-variance":
            noise = terms / self.num_targets
            fit = 0.5 * self.n * self.num_targets * float(np.log(noise))
        return fit + self.price * float(edges)

    def _term(self, residual: FloatArray, child: int) -> FloatArray:
        """Score term of residual variances that are given in shares of the child's variance."""
        variance = self.variances[child] * np.maximum(residual, RESIDUAL_FLOOR)
        if self.score == "equal-variance":
            return np.asarray(variance, dtype=np.float64)
        return np.asarray(0.5 * self.n * np.log(variance), dtype=np.float64)

    def _price_moves(self, child: int) -> None:
        """Term of one variable, and the change of it by every addition and removal."""
        parents = np.flatnonzero(self.adjacency[:, child])
        residual, without, with_another = residual_variances(self.correlation, parents, child)
        term = self._term(np.array([residual]), child)[0]
        self.terms[child] = term
        self.drops[:, child] = np.inf
        self.drops[parents, child] = self._term(without, child) - term
        self.drops[self.required[:, child], child] = np.inf
        self.additions[:, child] = np.inf
        if len(parents) < self.max_parents:
            usable = self.allowed[:, child] & ~self.adjacency[:, child]
            self.additions[usable, child] = self._term(with_another[usable], child) - term
