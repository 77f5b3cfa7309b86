"""FedGES's own rounds of fusion: as in Algorithm 1 (`paper`), with limits, and scores that choose.

The search of mode "fusion", and of ``mode="scores", start="driven"`` after the search on sums.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from flwr_causal.core.ges.fusion import needed
from flwr_causal.core.ges.greedy_search import orient
from flwr_causal.core.graphs.edge_lists import edges_of, matrix_of
from flwr_causal.core.graphs.equivalence import cpdag, meek
from flwr_causal.core.options import bounded
from flwr_causal.core.parts import Part, all_but, words
from flwr_causal.protocol.fedges import GRAPH, GRAPHS, JUDGE, JUDGED_GRAPH
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.strategies.fedges.problem import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.ges.fusion import Fusion
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Result, Step
    from flwr_causal.strategies.fedges.problem import Problem, Standing

    Edges = NDArray[np.integer]
    Scores = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class FusedGraphs(Part):
    """Graphs of the parties, which the server fuses.

    Parameters
    ----------
    fusion : {"union", "c25", "c50", "min-cut"} or float, optional
        Mode "fusion": how many parties' graphs must have an edge of the fused graph. "union": one;
        "c25" and "c50": max(1, floor(K/4)) and max(1, floor(K/2)) of K; a number in
        (0, 1]: that share of the parties, rounded up. "min-cut" (Torrijos et al. 2025): as many
        edges as "c50" says must be lost in the parties' graphs if the edge is deleted, by the
        smallest cuts. Default: "c50"; for "driven" several shares, among which the scores choose,
        also with "min-cut".
    start : {"driven", "fuse", "overwrite"}, optional
        Mode "fusion": the graph from which parties
        search. "fuse": the fused graph fused with the party's own one; "overwrite":
        the fused graph; "driven": both, and the sum of the parties' scores chooses. Default:
        "driven", because each of the others fails on some networks; with ``keep="last"`` "fuse".
        With ``mode="scores"`` "driven" adds such rounds, from the graph that the search found; the
        result is the graph with the higher held-out log-likelihood.
    max_edges : int, optional
        Mode "fusion": largest number of edges that a party inserts in a round. Default: 10 (the
        authors' l).
    max_fused_edges : int, optional
        Mode "fusion": largest number of edges of a fused graph. If it would have more, those in
        most of the parties' graphs are kept. With a fixed start and ``fusion="c50"`` graphs of some
        networks grow from round to round; this option limits them. Default: no limit.
    keep : {"best", "last"}, optional
        Mode "fusion": return the graph with the highest sum of the parties' scores, or the last
        one, for which parties send no score. Default: "best".
    """

    text = "mode='fusion', or mode='scores' with start='driven'"
    gives = all_but("exact", "iterations", "pooled")
    remedies: ClassVar[tuple[tuple[str, str], ...]] = (("pooled", "mode='exact'"),)
    needs = words("replies")
    chosen_by = (*("start", "fusion", "max_edges", "max_fused_edges", "keep", "mode"),)

    fusion: str | float | None = None
    start: Literal["driven", "fuse", "overwrite"] | None = None
    max_edges: int | None = bounded(None, least=1)
    max_fused_edges: int | None = bounded(None, least=1)
    keep: Literal["best", "last"] | None = None

    @property
    def chosen_start(self) -> Literal["driven", "fuse", "overwrite"]:
        """The start; "driven" needs scores, which ``keep="last"`` excludes."""
        return self.start or ("fuse" if self.keep == "last" else "driven")

    @property
    def share(self) -> str | float:
        """The share of the parties that keeps an edge of a fused graph, with a fixed start."""
        return "c50" if self.fusion is None else self.fusion


@dataclass(frozen=True, kw_only=True)
class DrivenRounds(Part):
    """Rounds in which the sum of the parties' scores chooses among starts.

    Parameters
    ----------
    patience : int, default 3
        Start "driven": number of rounds without a better graph after which the run ends.
    """

    text = "start='driven'"

    patience: int = bounded(3, least=1)


# Largest mean number of edges a variable. Larger graphs grow with every round, because the fusion
# adds more edges than the searches delete, and a search from them takes very long.
RUNAWAY_EDGES = 3
RUN_AWAY = (
    "the parties' graphs grew to more than three edges a variable; a higher share of 'fusion' or "
    "start='driven' keeps them small"
)
REPEATED = "every party's graph is one that it had found before"

#: Shares of the parties that the driven loop tries (ceil of the share times K of them).
SHARES = (0.25, 0.35, 0.5, 0.65)
#: A further share where it means at most two parties: it finds more true edges on win95pts and
#: andes. Where it means three of twenty parties, the scores choose chance edges (pigs).
LOW_SHARE = 0.15


def shares_for(num_parties: int) -> tuple[float, ...]:
    """Return the shares that the driven loop tries."""
    return (LOW_SHARE, *SHARES) if needed(LOW_SHARE, num_parties) <= 2 else SHARES


# Smaller differences of scores are rounding errors.
IMPROVEMENT = 1e-6


@dataclass(frozen=True)
class Candidate:
    """A fused graph: the server's G, or one of those among which the parties' scores choose.

    Parameters
    ----------
    dag : ndarray of bool, shape (d, d)
    support : ndarray of float64, shape (d, d)
        The share of the parties' transformed graphs that have each edge.
    own : mapping of str to ndarray
        By party its last graph. The graph of a party that failed in this round is an earlier one,
        which was not fused.
    label : str
        Start and share, for the history.
    """

    dag: BoolArray
    support: NDArray[np.float64]
    own: Mapping[str, Edges]
    label: str = ""

    @cached_property
    def edges(self) -> NDArray[np.uint16]:
        """The edges of the DAG as they are sent, shape (m, 2)."""
        return edges_of(self.dag)


@dataclass(frozen=True)
class Fuser:
    """How graphs are fused.

    Parameters
    ----------
    names : tuple of str
        The variables, sorted.
    num_parties : int
    options : FusedGraphs
    fuse : callable
        Returns the fusion of the parties' DAGs, given by party.
    masks : EdgeMasks, optional
        The background knowledge: forbidden edges are removed from the fused graph, and required
        edges are added, after the limit ``max_fused_edges``.
    begin : ndarray of bool, shape (d, d), optional
        The DAG before the first round. Default: no edges but required ones.
    """

    names: tuple[str, ...]
    num_parties: int
    options: FusedGraphs
    fuse: Callable[[Mapping[str, Edges]], Fusion]
    masks: EdgeMasks | None = None
    begin: BoolArray | None = None

    def run_away(self, own: Mapping[str, Edges]) -> bool:
        """Whether the parties' DAGs have too many edges for further rounds."""
        total = sum(len(edges) for edges in own.values())
        return total > RUNAWAY_EDGES * len(self.names) * len(own)

    def candidate(
        self, fusion: Fusion, share: str | float, own: Mapping[str, Edges], label: str = ""
    ) -> Candidate:
        """Return the edges that a share of the DAGs has, of too many those that most DAGs have."""
        d = len(self.names)
        kept = fusion.support >= needed(share, fusion.num_dags)
        # Of edges that equally many DAGs have, those of the first variables are kept.
        strongest = np.argsort(-fusion.support[kept], kind="stable")[: self.options.max_fused_edges]
        dag = matrix_of(fusion.edges[kept][strongest], d)
        if self.masks:
            dag = dag & self.masks.allowed | self.masks.required
        support = np.zeros((d, d))
        support[fusion.edges[:, 0], fusion.edges[:, 1]] = fusion.support / fusion.num_dags
        return Candidate(dag, support, own, label)

    def fused(self, graphs: Mapping[str, Edges], before: Candidate) -> Candidate:
        """Return the fusion of a round's graphs, given the candidate that the parties were sent.

        A party that failed in this round keeps its graph of the round before.
        """
        own = {**before.own, **graphs}
        return self.candidate(self.fuse(graphs), self.options.share, own)

    def found(self, candidate: Candidate, reason: str) -> Found:
        """Return the class of a fused graph."""
        marks = cpdag(candidate.dag)
        if self.masks:
            directed = orient(marks, self.masks)
            assert directed is not None
            marks = meek(directed)
        return Found(marks, candidate.dag, reason, candidate.support)

    def first(self) -> Candidate:
        """Return the graph before the first round."""
        d = len(self.names)
        dag = np.zeros((d, d), dtype=np.bool_) if self.begin is None else self.begin
        if self.begin is None and self.masks:
            dag = self.masks.required.copy()
        return Candidate(dag, np.zeros((d, d)), {})


class Seen:
    """The graphs that each party has found so far."""

    def __init__(self) -> None:
        self._graphs: dict[str, set[bytes]] = {}

    def repeated(self, graphs: Mapping[str, Edges]) -> bool:
        """Whether each party's graph is one that it had found before; note those of this round."""
        texts = {party: edges.tobytes() for party, edges in graphs.items()}
        repeated = all(text in self._graphs.get(party, ()) for party, text in texts.items())
        for party, text in texts.items():
            self._graphs.setdefault(party, set()).add(text)
        return repeated


def asked(
    exchange: Exchange,
    current: Candidate,
    values: dict[str, Any],
    so_far: Callable[[], Result] | None,
) -> Ask:
    """Send the fused graph and each party's own last one."""
    # A party without a graph of its own (in the first round, or after failures) gets no edges.
    nothing = np.zeros((0, 2), dtype=np.uint16)
    own = {party: {"own": edges} for party, edges in current.own.items()}
    sent = {"received": current.edges, "own": nothing, **values}
    return Ask(exchange, sent, own, so_far=so_far)


@dataclass(frozen=True)
class Best:
    """The best graph so far, by the sum of the parties' own scores.

    Parameters
    ----------
    candidate : Candidate
    scores : mapping of str to float
        By party; empty before the first.
    """

    candidate: Candidate
    scores: Scores = field(default_factory=dict)

    def beaten_by(self, scores: Scores) -> bool:
        """Whether other scores have a higher sum, over the parties that sent both."""
        common = [name for name in scores if name in self.scores]
        if not common:
            return not self.scores
        gain = sum(scores[name] - self.scores[name] for name in common)
        return gain > IMPROVEMENT


class Judged(NamedTuple):
    """The graph that the parties' scores have chosen.

    Parameters
    ----------
    chosen : Candidate
        Of those that were proposed in this round.
    best : Best
        Of all rounds.
    better : bool
        Whether the best graph is that of this round.
    """

    chosen: Candidate
    best: Best
    better: bool


def _proposed(
    fuser: Fuser,
    current: Candidate,
    best: Best,
    replies: Replies,
) -> tuple[Candidate, ...]:
    """Fuse both sets of graphs at every share; return the graphs that differ."""
    given = fuser.options.fusion
    shares = (given,) if given not in (None, "min-cut") else shares_for(fuser.num_parties)
    starts = {"overwrite": replies.of("overwritten"), "fuse": replies.of("fused")}
    candidates: list[Candidate] = []
    for label, edges in starts.items():
        if fuser.run_away(edges):
            continue
        fusion = fuser.fuse(edges)
        own = {**current.own, **edges}
        levels = {needed(share, fusion.num_dags): share for share in shares}
        candidates += [
            fuser.candidate(fusion, share, own, f"{label} {share}") for share in levels.values()
        ]
    if not best.scores:
        # In the first round the graph before it is a candidate too.
        candidates.append(best.candidate)
    different = {candidate.dag.tobytes(): candidate for candidate in reversed(candidates)}
    return tuple(reversed(different.values()))


def judged_by_parties(
    proposed: Sequence[Candidate], best: Best, so_far: Callable[[], Result]
) -> Generator[Step, Any, Judged]:
    """Let the parties score proposed graphs; choose the one with the highest sum of scores."""
    lists = [candidate.edges for candidate in proposed]
    lengths = np.array([len(edges) for edges in lists], dtype=np.int64)
    values = {"edges": np.concatenate(lists), "lengths": lengths}
    replies = yield Ask(JUDGE, values, so_far=so_far)
    totals = np.sum(replies.list("scores"), axis=0)
    index = _first_best(totals)
    chosen = proposed[index]
    scores = {name: float(values[index]) for name, values in replies.of("scores").items()}
    better = best.beaten_by(scores)
    yield Note(
        {
            "num_edges": int(chosen.dag.sum()),
            "score": float(totals[index]),
            "chosen": chosen.label,
        }
    )
    return Judged(chosen, Best(chosen, scores) if better else best, better)


def _first_best(totals: NDArray[np.float64]) -> int:
    return int(np.flatnonzero(totals >= totals.max() - IMPROVEMENT)[0])


@dataclass(frozen=True, kw_only=True)
class FixedRounds(FusedGraphs):
    """Rounds from one start."""

    def run(
        self,
        problem: Problem,
        most: int,
        fuse: Callable[[Mapping[str, Edges]], Fusion],
        standing: Standing,
        begin: BoolArray | None = None,
    ) -> Generator[Step, Any, tuple[Found, int]]:
        """Fuse the parties' graphs round by round.

        Parameters
        ----------
        problem : Problem
        most : int
            Largest number of exchanges.
        fuse, begin
            As of :class:`Fuser`.
        standing : callable
            Returns what stands if the run ends with a graph so far.

        Returns
        -------
        found : Found
            Without a reason if the exchanges were used up.
        taken : int
            How many exchanges it has taken.
        """
        names, parties = problem.names, problem.num_parties
        fuser = Fuser(names, parties, self, fuse, problem.masks, begin)
        return (yield from self._rounds(fuser, most, standing))

    def _rounds(
        self, fuser: Fuser, most: int, standing: Standing
    ) -> Generator[Step, Any, tuple[Found, int]]:
        """Fuse the parties' graphs round by round, and return the best graph, or the last one.

        With ``keep="best"`` the parties also score the graph that they receive; the best one has
        the highest sum of scores. As in Algorithm 1 it ends where no party's graph is new.
        """
        judges = self.keep != "last"
        exchange = JUDGED_GRAPH if judges else GRAPH
        current = fuser.first()
        best, so_far = Best(current), None
        seen = Seen()
        for taken in itertools.count(1):
            replies = yield asked(exchange, current, {"start": self.chosen_start}, so_far)
            graphs = replies.of("edges")
            scores = {party: float(score) for party, score in replies.of("score").items()}
            # In the first round the parties have scored the graph without edges only.
            judged = bool(best.scores)
            if not judges or best.beaten_by(scores):
                best = Best(current, scores)
            if fuser.run_away(graphs):
                return fuser.found(best.candidate, RUN_AWAY), taken
            fused = fuser.fused(graphs, current)
            yield Note({"num_edges": int(fused.dag.sum())})
            repeated = seen.repeated(graphs)
            found = fuser.found(best.candidate if judged else fused, "")
            if repeated and not judges:
                return found._replace(reason=REPEATED), taken
            if taken >= most:
                return found, taken
            so_far = partial(standing, found)
            if repeated:
                best = (yield from judged_by_parties((fused,), best, so_far)).best
                return fuser.found(best.candidate, REPEATED), taken + 1
            current = fused
        raise AssertionError("unreachable")


@dataclass(frozen=True, kw_only=True)
class DrivenSearch(DrivenRounds, FixedRounds):
    """Rounds from both starts, among which the parties' scores choose."""

    def _rounds(
        self, fuser: Fuser, most: int, standing: Standing
    ) -> Generator[Step, Any, tuple[Found, int]]:
        """Fuse the parties' graphs at both starts and several shares; the parties' scores choose.

        The option ``fusion`` is the share of the parties that keeps an edge (default, and for
        "min-cut": several). A round takes two exchanges.
        """
        current = fuser.first()
        best, since, so_far = Best(current), 0, None
        for taken in itertools.count(1, 2):
            replies = yield asked(GRAPHS, current, {}, so_far)
            proposed = _proposed(fuser, current, best, replies)
            yield Note({"candidates": len(proposed)})
            if not proposed:
                return fuser.found(best.candidate, RUN_AWAY), taken
            # The result if this was the last exchange, so that the candidates get no scores.
            unjudged = fuser.found(
                best.candidate if best.scores else proposed[len(proposed) // 2], ""
            )
            if taken >= most:
                return unjudged, taken
            judged = yield from judged_by_parties(proposed, best, partial(standing, unjudged))
            current, best = judged.chosen, judged.best
            since = 0 if judged.better else since + 1
            found = fuser.found(best.candidate, "")
            if since >= self.patience:
                return found._replace(reason=f"no better graph in {since} rounds"), taken + 1
            if taken + 1 >= most:
                return found, taken + 1
            so_far = partial(standing, found)
        raise AssertionError("unreachable")
