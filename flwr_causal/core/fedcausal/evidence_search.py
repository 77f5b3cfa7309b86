"""The server's search for the graph of highest summed evidence, one exchange a step.

The evidence of a graph is the sum over its variables, and over the parties, of
:func:`core.fedcausal.evidence.log_evidence`. The change of the evidence by edges into one variable
therefore does not depend on the edges into the others, and one step may change the parents of every
variable:

1. the server sends the graph and the mask of the changes that it does not know yet;
2. the parties reply with the changes of their evidence, which are summed, and with their partial
   shares (:func:`core.nonlinear.basis.partial_shares`), which are averaged;
3. the server makes the moves that raise the evidence, best first, at most one for each variable:
   deletions, additions, and reversals, whose change is the sum of two entries. It skips additions
   and reversals that would close a cycle.

Evidence takes much longer to compute than shares. So the server requests the evidence of the
graph's edges, of their reversals, and of the ``candidates`` non-edges into each variable that have
the largest shares. The shares are those for the graph that was sent: after a move, a variable's
candidates are chosen by the shares for its former parents, which saves an exchange.

The search ends at a local optimum over these moves: when no known change raises the evidence and no
requested change is unknown. It ends after finitely many steps, because every move raises the
evidence.

The optimum depends on the start. The method runs two searches in the same exchanges, from the group
lasso's graph and from the required edges alone, and keeps the :func:`more_probable` one. Measured
for d = 20: on standardised data with mixed mechanisms, where noise variances differ and the group
lasso's graph is poor, that graph leads to 0 to 63 wrong edges and the empty graph to 0 or 1; on
linear data in raw units the empty graph leads to 5 to 24 and the group lasso's to 1 to 6. The graph
of higher evidence was the better one in every case.

In dense graphs both may end far from the best graph, because no single edge can be changed without
others. But the parents that another search, or an earlier step, chose for some variable are known,
with their evidence. :func:`recombined` searches over orders of the variables for the best graph of
known sets of parents, in which many edges may differ at once, and the search goes on from there.
No exchange is needed for it. Measured on linear effects with Laplace noise, d = 20, 40 edges: 8 and
8 errors before, 2 and 3 after.

**A party's own graph.** Every party runs the same search on its own rows alone, without
sums over parties, and computes the evidence of its rows for each edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.fedcausal.evidence import client_step, evidence_changes
from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.doubt import turning_loss as graph_turning_loss
from flwr_causal.core.limits import check_deadline, steps
from flwr_causal.core.nonlinear.basis import partial_shares
from flwr_causal.core.nonlinear.heterogeneity import OwnGraph
from flwr_causal.core.ties import as_ranked, first_largest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.fedcausal.evidence import Cache, EvidenceProblem, EvidenceTables
    from flwr_causal.core.graphs.knowledge import EdgeMasks

# A move must raise the evidence by more than this, in nats: far above rounding errors and far below
# any relevant difference.
SMALLEST_GAIN = 1e-3
# By how many nats the evidence may prefer a model's direction. In 18 simulations of linear Gaussian
# data (d = 8, n = 800), where the class alone is known, the evidence of single edges that might as
# well be reversed differs by at most 8.8, of all others by at least 20.
UNDECIDED = 10.0
# A direction is open where the evidence of the graphs with it and with its opposite differs by less
# than OPEN_LOSS nats, or by less than OPEN_BY_ROOT times the root of the number of rows: the
# evidence is a sum over parts of the rows. Of chains of four variables with linear Gaussian effects
# at three parties they differ by at most 18.7 (n = 300), 13.7 (900), 19.9 (3,000) and 40.2 (9,000);
# of curved effects nine in ten by at least 17.7, 70, 166 and 387 (12, 12, 12 and 4 seeds). Of 55
# open edges of other linear Gaussian graphs (d = 7, n = 1,500 and 6,000) 53 passed for open, of 46
# edges with curved effects none.
OPEN_LOSS, OPEN_BY_ROOT = 20.0, 0.45
# Value of a variable for which no known set of parents comes before it.
_IMPOSSIBLE = -1e12
# Passes of `recombined` over all variables; a few are enough.
_MOST_PASSES = 50


@dataclass(frozen=True, eq=False)
class SearchProblem:
    """The settings of a search.

    Attributes
    ----------
    masks
        Allowed edges, and required ones, which are never removed.
    candidates
        Number of additions into each variable whose evidence is requested, at least 1. Default: 5,
        measured.
    max_exchanges
        Largest number of exchanges.
    price
        ``(d, d)`` nats that an edge must raise the evidence by, or one number: it decides where the
        evidence does not. Default: 0.
    """

    masks: EdgeMasks
    candidates: int = 5
    max_exchanges: int = 16
    price: FloatArray | float = 0.0


@dataclass(frozen=True, eq=False)
class SearchState:
    """The state of the server; a run can be resumed from it.

    Arrays have the shape ``(d, d)`` where no other is given.

    Attributes
    ----------
    exchanges
        Exchanges done so far.
    graph
        Present graph, acyclic; sent to the parties.
    wanted
        Mask of the changes to request; sent to the parties. Empty at the end.
    changes
        Summed change of the evidence by each edge, in nats; NaN where it is not known for the
        present parents. At the optimum it is known for every edge of the graph, required ones
        included, for :func:`support`.
    evidence
        ``(d,)`` summed evidence of each variable given its present parents, in nats; NaN before the
        first exchange, and for variables that may have no parents.
    ranking
        Strengths by which candidates are chosen, the largest first.
    """

    exchanges: int
    graph: BoolArray
    wanted: BoolArray
    changes: FloatArray
    evidence: FloatArray
    ranking: FloatArray

    def total(self, problem: SearchProblem) -> float:
        """Return the summed evidence of the graph less the price of its edges, in nats.

        It is known up to a constant that depends on the data only.
        """
        return float(np.nansum(self.evidence) - (self.graph * problem.price).sum())


class Info(NamedTuple):
    """Diagnostics of a step.

    Attributes
    ----------
    added, deleted, reversed
        Number of moves of each kind.
    gain
        Increase of :meth:`SearchState.total` by these moves, in nats.
    asked
        Number of changes to request in the next exchange.
    """

    added: int
    deleted: int
    reversed: int
    gain: float
    asked: int


def init(
    start: BoolArray, ranking: FloatArray, problem: SearchProblem, exchanges: int = 0
) -> SearchState:
    """Return the state before the first exchange.

    Parameters
    ----------
    start
        ``(d, d)`` acyclic graph with all required and no forbidden edges.
    ranking
        ``(d, d)`` strengths by which the first candidates are chosen, as ``received`` of
        :class:`core.fedcausal.group.ServerState`.
    problem
        The search's settings.
    exchanges
        Exchanges done before, in a search that goes on from another graph.
    """
    unknown = np.full(start.shape, np.nan)
    wanted = _wanted(start, unknown, ranking, problem)
    return SearchState(exchanges, start.copy(), wanted, unknown, unknown[0].copy(), ranking)


def server_step(
    state: SearchState, tables: EvidenceTables, problem: SearchProblem
) -> tuple[SearchState, Info]:
    """Make the moves that an exchange allows.

    Parameters
    ----------
    state
        State before the exchange.
    tables
        The sums of the parties' ``changes`` and ``evidence``, and the mean of their ``shares``,
        weighted by their numbers of rows.
    problem
        The search's settings.
    """
    known = np.where(state.wanted, tables.changes, state.changes)
    evidence = np.where(state.wanted.any(axis=0), tables.evidence, state.evidence)
    graph = state.graph.copy()
    moved = np.zeros(len(graph), dtype=bool)
    counts = {"add": 0, "delete": 0, "reverse": 0}
    total = 0.0
    for gain, kind, cause, effect in _moves(graph, known, problem):
        check_deadline()
        touched = [cause, effect] if kind == "reverse" else [effect]
        if moved[touched].any():
            continue
        if kind == "add":
            if ancestors(graph)[effect, cause]:
                continue
            graph[cause, effect] = True
        else:
            graph[cause, effect] = False
            if kind == "reverse":
                if ancestors(graph)[cause, effect]:
                    graph[cause, effect] = True
                    continue
                graph[effect, cause] = True
        moved[touched] = True
        evidence[effect] += known[cause, effect]
        if kind == "reverse":
            evidence[cause] += known[effect, cause]
        counts[kind] += 1
        total += gain
    known[:, moved] = np.nan
    wanted = _wanted(graph, known, tables.shares, problem)
    after = SearchState(state.exchanges + 1, graph, wanted, known, evidence, tables.shares)
    info = Info(counts["add"], counts["delete"], counts["reverse"], total, int(wanted.sum()))
    return after, info


def finished(state: SearchState, info: Info, problem: SearchProblem) -> str | None:
    """Return why the search ends after this exchange, or None."""
    moves = info.added + info.deleted + info.reversed
    if not moves and not info.asked:
        return f"no change of an edge raises the evidence, after {state.exchanges} exchanges"
    if state.exchanges >= problem.max_exchanges:
        return (
            f"the search's limit of {problem.max_exchanges} exchanges is reached; "
            f"{moves} edges changed in the last one"
        )
    return None


def more_probable(states: Sequence[SearchState], problem: SearchProblem) -> SearchState:
    """Return the search of highest total, the first of those within a rounding error.

    All searches must have the same parties.
    """
    return max(states, key=lambda state: round(state.total(problem), 3))


def known_evidence(state: SearchState, tables: EvidenceTables) -> Cache:
    """Return the evidence of an exchange, by variable and set of parents.

    Parameters
    ----------
    state
        State before the exchange.
    tables
        As for :func:`server_step`.
    """
    known = {}
    for child in map(int, np.flatnonzero(state.wanted.any(axis=0))):
        present = set(map(int, np.flatnonzero(state.graph[:, child])))
        evidence = float(tables.evidence[child])
        known[child, tuple(sorted(present))] = evidence
        for i in map(int, np.flatnonzero(state.wanted[:, child])):
            changed = tuple(sorted(present ^ {i}))
            known[child, changed] = evidence + float(tables.changes[i, child])
    return known


def recombined(known: Cache, start: BoolArray, problem: SearchProblem) -> BoolArray | None:
    """Return a graph of known sets of parents whose total exceeds that of the start, or None.

    Given an order of the variables, the best graph has for each variable the best known set of
    parents that come before it. Variables are moved to their best place in the order, one after the
    other, until no move raises the total.

    Parameters
    ----------
    known
        Summed evidence by variable and parents.
    start
        ``(d, d)`` acyclic graph, all of whose sets of parents are known.
    problem
        The search's settings.
    """
    d = len(start)
    price = np.broadcast_to(np.asarray(problem.price, dtype=np.float64), (d, d))
    # Sets of parents as bits of an integer, the best first; of equal ones the smallest.
    sets: list[list[tuple[float, int, int]]] = [[] for _ in range(d)]
    for (child, causes), evidence in known.items():
        if set(map(int, np.flatnonzero(problem.masks.required[:, child]))) <= set(causes):
            value = round(evidence - float(price[list(causes), child].sum()), 3)
            sets[child].append((-value, len(causes), sum(1 << i for i in causes)))
    for own in sets:
        own.sort()

    def best(child: int, before: int) -> tuple[float, int]:
        for cost, _, parents in sets[child]:
            if not parents & ~before:
                return -cost, parents
        return (0.0 if not sets[child] else _IMPOSSIBLE), 0

    above = ancestors(start)
    order = sorted(range(d), key=lambda j: int(above[:, j].sum()))
    for _ in steps("The search over causal orders", _MOST_PASSES):
        before_pass = order
        for child in range(d):
            check_deadline()
            order = _moved(order, child, best)
        if order == before_pass:
            break
    graph, before, gain = np.zeros_like(start), 0, 0.0
    for child in order:
        value, parents = best(child, before)
        graph[:, child] = [bool(parents >> i & 1) for i in range(d)]
        before |= 1 << child
        present = sum(1 << int(i) for i in np.flatnonzero(start[:, child]))
        gain += value - next((-cost for cost, _, own in sets[child] if own == present), 0.0)
    return graph if gain > SMALLEST_GAIN else None


def _moved(
    order: list[int], child: int, best: Callable[[int, int], tuple[float, int]]
) -> list[int]:
    """Move a variable to its best place in the order."""
    others = [j for j in order if j != child]
    own, before = 1 << child, sum(1 << j for j in others)
    gains = [best(child, before)[0]]
    later = 0.0
    for j in reversed(others):  # the variable passes j on its way to the first place
        before ^= 1 << j
        later += best(j, before | own)[0] - best(j, before)[0]
        gains.append(later + best(child, before)[0])
    gains.reverse()
    place, present = int(first_largest(gains)), order.index(child)
    if gains[place] <= gains[present] + SMALLEST_GAIN:
        return order
    return [*others[:place], child, *others[place:]]


def support(state: SearchState) -> FloatArray:
    """Return the decrease of the summed evidence, in nats, when each edge is removed, ``(d, d)``.

    0 for pairs without an edge. NaN, only where the search reached ``max_exchanges``, for edges
    into a variable whose parents changed in the last step.
    """
    return np.where(state.graph, 0.0 - state.changes, 0.0)


def turning_loss(
    graph: BoolArray, known: Cache, masks: EdgeMasks, names: Sequence[str], num_rows: int
) -> FloatArray:
    """Return by how much the summed evidence falls where an edge is turned, in nats, ``(d, d)``.

    0 where the difference is chance, see `OPEN_LOSS`.

    Parameters
    ----------
    graph
        ``(d, d)``, acyclic.
    known
        Summed evidence by variable and parents.
    masks
        Edges that may stand.
    names
        Of the variables.
    num_rows
        n, of all parties.
    """

    def score(child: int, parents: tuple[int, ...]) -> float:
        return known.get((child, parents), float("nan"))

    loss = graph_turning_loss(graph, masks.allowed, names, score)
    chance = max(OPEN_LOSS, OPEN_BY_ROOT * float(np.sqrt(num_rows)))
    return np.where(np.abs(loss) < chance, 0.0, loss)


def _wanted(
    graph: BoolArray, known: FloatArray, ranking: FloatArray, problem: SearchProblem
) -> BoolArray:
    """Return the mask of the changes to request: edges, reversals and candidates not known yet."""
    possible = problem.masks.allowed & ~graph
    scores = np.where(possible, ranking, -np.inf)
    best = np.argsort(-as_ranked(scores), axis=0, kind="stable")
    ranks = np.argsort(best, axis=0, kind="stable")
    reversals = graph.T & ~problem.masks.required.T
    relevant = graph | (possible & (reversals | (ranks < problem.candidates)))
    wanted: BoolArray = relevant & np.isnan(known)
    return wanted


def _moves(
    graph: BoolArray, known: FloatArray, problem: SearchProblem
) -> list[tuple[float, str, int, int]]:
    """Return the moves that raise the total, best first, as (gain, kind, cause, effect)."""
    masks, changes = problem.masks, known + np.where(graph, problem.price, -problem.price)
    removable = graph & ~masks.required
    addable = masks.allowed & ~graph & ~graph.T
    reversible = np.where(removable & masks.allowed.T, changes + changes.T, np.nan)
    moves = []
    for kind, gains in (
        ("delete", np.where(removable, changes, np.nan)),
        ("add", np.where(addable, changes, np.nan)),
        ("reverse", reversible),
    ):
        # NaN marks unknown changes and moves that are not allowed; comparisons with it are False.
        for cause, effect in np.argwhere(gains > SMALLEST_GAIN):
            moves.append((float(gains[cause, effect]), kind, int(cause), int(effect)))
    # Gains that are equal to three digits are tied, as in `recombined`.
    return sorted(moves, key=lambda move: -round(move[0], 3))


#: Largest number of steps of a party's own search, which takes no exchange; far more than needed.
STEPS = 100


def own_graph(
    problem: EvidenceProblem, common: BoolArray, search: SearchProblem, cache: Cache | None = None
) -> OwnGraph:
    """Search for a party's own graph, and compute its support of that and the common graph's edges.

    There are two searches, from the common graph and from the required edges alone. The result of
    higher evidence is returned, the first one where both are equal. Measured on 36 simulated
    parties: for 30 the result is the graph that the whole method finds on the party's rows alone,
    for five of the others a graph of higher evidence (by up to 27 nats).

    Parameters
    ----------
    problem
        The party's rows.
    common
        ``(d, d)`` common graph, acyclic and in agreement with the knowledge.
    search
        Knowledge and number of candidates; ``max_exchanges`` is the largest number of steps, as
        :data:`STEPS`.
    cache
        See :func:`core.fedcausal.evidence.evidence_changes`.
    """
    cache = {} if cache is None else cache
    starts = (common, np.asarray(search.masks.required, dtype=bool))
    found = more_probable([_searched(problem, start, search, cache) for start in starts], search)
    return OwnGraph(
        graph=found.graph,
        support=own_support(problem, common, found.graph, cache),
        shares=partial_shares(problem.moments, found.graph),
    )


def own_support(
    problem: EvidenceProblem, common: BoolArray, own: BoolArray, cache: Cache | None = None
) -> FloatArray:
    """Return how much a party's rows support the edges of two graphs, ``(d, d)``, in nats.

    For an edge of the common graph: the decrease of the evidence when the edge is removed from the
    common graph. For an edge of the party's own graph only: the increase when it is added to the
    common graph. All other edges stay as they are in the common graph. 0 for all other pairs.
    """
    changes, _ = evidence_changes(problem, common, common | own, cache)
    # 0.0 - x instead of -x, which would give negative zeros.
    return np.where(common, 0.0 - changes, changes)


def _searched(
    problem: EvidenceProblem, start: BoolArray, search: SearchProblem, cache: Cache
) -> SearchState:
    """Return the final state of a search on one party's rows."""
    state = init(start, partial_shares(problem.moments, start), search)
    reason = None
    while reason is None:
        tables = client_step(problem, state.graph, state.wanted, cache)
        state, info = server_step(state, tables, search)
        reason = finished(state, info, search)
    return state
