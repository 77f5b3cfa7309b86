"""FedGES's own rounds of fusion, with limits, and with scores that choose among graphs.

:class:`FixedRounds` are those of Algorithm 1 (:mod:`flwr_causal.strategies.fedges.paper`);
:class:`DrivenRounds` search from two starts, and fuse at several shares.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from flwr_causal.core.ges.fusion import needed
from flwr_causal.core.ges.greedy_search import orient
from flwr_causal.core.graphs.edge_lists import matrix_of
from flwr_causal.core.graphs.equivalence import cpdag, meek
from flwr_causal.core.options import bounded
from flwr_causal.core.parts import Part, all_but, words
from flwr_causal.protocol.fedges import GRAPH, GRAPHS, JUDGE, JUDGED_GRAPH
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.strategies.fedges.paper import REPEATED, FusedGraph, algorithm_1
from flwr_causal.strategies.fedges.problem import Found, GraphSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.ges.fusion import Fusion
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Result, Step
    from flwr_causal.strategies.fedges.paper import Graphs
    from flwr_causal.strategies.fedges.problem import Fitted, Problem, Searched

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
class Patience(Part):
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
class Fuser:
    """How graphs are fused, beside the paper's share of the parties: limits, and knowledge.

    Parameters
    ----------
    options : FusedGraphs
    fuse : callable
        Returns the fusion of the parties' DAGs, given by party.
    edge_limits : EdgeMasks, optional
        The background knowledge: forbidden edges are removed from the fused graph, and required
        edges are added, after the limit ``max_fused_edges``.
    """

    options: FusedGraphs
    fuse: Callable[[Graphs], Fusion]
    edge_limits: EdgeMasks | None = None

    def first(self, d: int, begin: BoolArray | None = None) -> FusedGraph:
        """Return the graph before the first round: without edges but required ones, or a DAG."""
        dag = np.zeros((d, d), dtype=np.bool_) if begin is None else begin
        if begin is None and self.edge_limits:
            dag = self.edge_limits.required.copy()
        return FusedGraph(dag, np.zeros((d, d)), {})

    def fused(self, graphs: Graphs, own: Graphs) -> FusedGraph:
        """Return the fusion of a round's graphs, with the last graph of each party."""
        return self.limited(self.fuse(graphs), self.options.share, own)

    def limited(self, fusion: Fusion, share: str | float, own: Graphs) -> FusedGraph:
        """Return the edges that a share of the DAGs has, of too many those that most DAGs have."""
        fused = FusedGraph.of(fusion, share, own)
        # Of edges that equally many DAGs have, those of the first variables are kept.
        order = np.argsort(-fused.support[fused.dag], kind="stable")
        dag = matrix_of(fused.edges[order[: self.options.max_fused_edges]], len(fused.dag))
        if self.edge_limits:
            dag = dag & self.edge_limits.allowed | self.edge_limits.required
        return FusedGraph(dag, fused.support, own)

    def found(self, fused: FusedGraph, reason: str = "") -> Found:
        """Return the class of a fused graph."""
        marks = cpdag(fused.dag)
        if self.edge_limits:
            directed = orient(marks, self.edge_limits)
            assert directed is not None
            marks = meek(directed)
        return Found(marks, fused.dag, reason, fused.support)


def run_away(graphs: Graphs, d: int) -> str:
    """Return `RUN_AWAY` if the parties' DAGs have too many edges for further rounds, else ""."""
    total = sum(len(edges) for edges in graphs.values())
    return RUN_AWAY if total > RUNAWAY_EDGES * d * len(graphs) else ""


@dataclass(frozen=True)
class Best:
    """The best graph so far, by the sum of the parties' own scores.

    Parameters
    ----------
    fused : FusedGraph
    scores : mapping of str to float
        By party; empty before the first.
    """

    fused: FusedGraph
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
    chosen : FusedGraph
        Of those that were proposed in this round.
    best : Best
        Of all rounds.
    better : bool
        Whether the best graph is that of this round.
    """

    chosen: FusedGraph
    best: Best
    better: bool


def _proposed(
    fuser: Fuser, shares: Sequence[str | float], current: FusedGraph, best: Best, replies: Replies
) -> dict[str, FusedGraph]:
    """Fuse both sets of graphs at every share; return those that differ, by start and share."""
    starts = {"overwrite": replies.of("overwritten"), "fuse": replies.of("fused")}
    candidates: dict[str, FusedGraph] = {}
    for start, graphs in starts.items():
        if run_away(graphs, len(current.dag)):
            continue
        fusion = fuser.fuse(graphs)
        own = {**current.own, **graphs}
        levels = {needed(share, fusion.num_dags): share for share in shares}
        for share in levels.values():
            candidates[f"{start} {share}"] = fuser.limited(fusion, share, own)
    if not best.scores:
        # In the first round the graph before it is a candidate too.
        candidates[""] = best.fused
    first_label = {fused.dag.tobytes(): label for label, fused in reversed(candidates.items())}
    return {label: candidates[label] for label in reversed(first_label.values())}


def judged_by_parties(
    proposed: Mapping[str, FusedGraph], best: Best, so_far: Callable[[], Result]
) -> Generator[Step, Any, Judged]:
    """Let the parties score proposed graphs; choose the one with the highest sum of scores.

    Parameters
    ----------
    proposed : mapping of str to FusedGraph
        By start and share, for the history.
    best : Best
        Of the rounds before.
    so_far : callable
        As of :class:`~flwr_causal.runtime.algorithm.Ask`.
    """
    labels, graphs = list(proposed), list(proposed.values())
    lengths = np.array([len(fused.edges) for fused in graphs], dtype=np.int64)
    values = {"edges": np.concatenate([fused.edges for fused in graphs]), "lengths": lengths}
    replies = yield Ask(JUDGE, values, so_far=so_far)
    totals = np.sum(replies.list("scores"), axis=0)
    index = _first_best(totals)
    chosen = graphs[index]
    scores = {name: float(values[index]) for name, values in replies.of("scores").items()}
    better = best.beaten_by(scores)
    yield Note(
        {
            "num_edges": int(chosen.dag.sum()),
            "score": float(totals[index]),
            "chosen": labels[index],
        }
    )
    return Judged(chosen, Best(chosen, scores) if better else best, better)


def _first_best(totals: NDArray[np.float64]) -> int:
    return int(np.flatnonzero(totals >= totals.max() - IMPROVEMENT)[0])


@dataclass(frozen=True, kw_only=True)
class FixedRounds(FusedGraphs, GraphSearch):
    """Rounds from one start, as in Algorithm 1.

    With ``keep="best"`` the parties also score the graph that they receive; the best one has the
    highest sum of scores.
    """

    def run(self, problem: Problem, most: int) -> Generator[Step, Any, Searched]:
        """Fuse the parties' graphs round by round, and return the best graph, or the last one."""
        d = len(problem.names)
        fuser = Fuser(self, problem.fuse, problem.edge_limits)
        first = fuser.first(d)
        judges = self.keep != "last"
        best, judged = Best(first), 0

        def found(fused: FusedGraph, reason: str = "") -> Found:
            # In the first round the parties have scored the graph before it only.
            return fuser.found(best.fused if judged > 1 else fused, reason)

        def search(fused: FusedGraph) -> Generator[Step, Any, Graphs]:
            nonlocal best, judged
            so_far = partial(problem.result, found(fused)) if fused.own else None
            exchange = JUDGED_GRAPH if judges else GRAPH
            replies: Replies = yield fused.request(exchange, so_far, start=self.chosen_start)
            if judges:
                scores = {party: float(score) for party, score in replies.of("score").items()}
                judged += 1
                if best.beaten_by(scores):
                    best = Best(fused, scores)
            return replies.of("edges")

        fused, reason, taken = yield from algorithm_1(
            first, search, fuser.fused, most, partial(run_away, d=d)
        )
        if judges and reason == REPEATED:
            if taken >= most:
                return (found(fused),), taken
            so_far = partial(problem.result, found(fused))
            best = (yield from judged_by_parties({"": fused}, best, so_far)).best
            return (fuser.found(best.fused, reason),), taken + 1
        return (found(fused, reason),), taken


@dataclass(frozen=True, kw_only=True)
class DrivenRounds(Patience, FusedGraphs, GraphSearch):
    """Rounds from both starts, among which the parties' scores choose.

    The option ``fusion`` is the share of the parties that keeps an edge (default, and for
    "min-cut": several). A round takes two exchanges.
    """

    def run(
        self, problem: Problem, most: int, after: Fitted | None = None
    ) -> Generator[Step, Any, Searched]:
        """Fuse the parties' graphs at both starts and several shares; the parties' scores choose.

        Parameters
        ----------
        problem : Problem
        most : int
            Largest number of exchanges.
        after : Fitted, optional
            The graph from which the rounds start, which stands if the run ends in them. Default: no
            edges but required ones.
        """
        fuser = Fuser(self, problem.fuse, problem.edge_limits)
        given = self.fusion
        shares = (given,) if given not in (None, "min-cut") else shares_for(problem.num_parties)
        current = fuser.first(len(problem.names), after.found.dag if after else None)
        best, since, so_far = Best(current), 0, None

        def standing(found: Found) -> Callable[[], Result]:
            return partial(problem.result, *((after.found, after) if after else (found,)))

        for taken in itertools.count(1, 2):
            replies = yield current.request(GRAPHS, so_far)
            proposed = _proposed(fuser, shares, current, best, replies)
            yield Note({"candidates": len(proposed)})
            if not proposed:
                return (fuser.found(best.fused, RUN_AWAY),), taken
            # The result if this was the last exchange, so that the candidates get no scores.
            middle = list(proposed.values())[len(proposed) // 2]
            unjudged = fuser.found(best.fused if best.scores else middle)
            if taken >= most:
                return (unjudged,), taken
            judged = yield from judged_by_parties(proposed, best, standing(unjudged))
            current, best = judged.chosen, judged.best
            since = 0 if judged.better else since + 1
            found = fuser.found(best.fused)
            if since >= self.patience:
                reason = f"no better graph in {since} rounds"
                return (found._replace(reason=reason),), taken + 1
            if taken + 1 >= most:
                return (found,), taken + 1
            so_far = standing(found)
        raise AssertionError("unreachable")
