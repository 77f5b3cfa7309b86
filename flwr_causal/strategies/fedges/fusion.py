"""Fusion of the parties' graphs: the loop of Algorithm 1, and one in which their scores choose."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flwr_causal.core.ges.fusion import Fusion, fuse, needed
from flwr_causal.core.ges.greedy_search import orient
from flwr_causal.core.graphs.edge_lists import edges_of, matrix_of
from flwr_causal.core.graphs.equivalence import cpdag, meek
from flwr_causal.protocol.fedges import GRAPH, GRAPHS, JUDGE, JUDGED_GRAPH
from flwr_causal.runtime.method import Request
from flwr_causal.strategies.fedges.stages import Found, Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.graphs.knowledge import Knowledge
    from flwr_causal.protocol.exchange import Exchange
    from flwr_causal.protocol.replies import Replies

    Edges = NDArray[np.integer]
    Scores = Mapping[str, float]

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
# Largest mean number of edges a variable. Larger graphs grow with every round, because the fusion
# adds more edges than the searches delete, and a search from them takes very long.
RUNAWAY_EDGES = 3
RUN_AWAY = (
    "the parties' graphs grew to more than three edges a variable; a higher share of 'fusion' or "
    "start='driven' keeps them small"
)


@dataclass(frozen=True)
class Candidate:
    """A fused graph.

    Parameters
    ----------
    dag : ndarray of bool, shape (d, d)
    support : ndarray of float64, shape (d, d)
        The share of the parties' transformed graphs that have each edge.
    own : mapping of str to ndarray
        The parties' graphs that were fused.
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
    knowledge : Knowledge or None
        Forbidden edges are removed from the fused graph, required edges are added.
    most_edges : int or None
        Largest number of edges of a fused graph, before required ones are added.
    """

    names: tuple[str, ...]
    knowledge: Knowledge | None
    most_edges: int | None = None

    def fuse(self, own: Mapping[str, Edges]) -> Fusion:
        """Transform the parties' DAGs to one order."""
        before = self.knowledge.precedence(self.names) if self.knowledge else None
        return fuse(list(own.values()), len(self.names), before=before)

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
        order = np.argsort(-fusion.support[kept], kind="stable")
        dag = matrix_of(fusion.edges[kept][order[: self.most_edges]], d)
        if self.knowledge:
            masks = self.knowledge.masks(self.names)
            dag = dag & masks.allowed | masks.required
        support = np.zeros((d, d))
        support[fusion.edges[:, 0], fusion.edges[:, 1]] = fusion.support / fusion.num_dags
        return Candidate(dag, support, own, label)

    def found(self, candidate: Candidate, reason: str) -> Found:
        """Return the class of a fused graph."""
        marks = cpdag(candidate.dag)
        if self.knowledge:
            directed = orient(marks, self.knowledge.masks(self.names))
            assert directed is not None
            marks = meek(directed)
        return Found(marks, candidate.dag, reason, candidate.support)

    def first(self, dag: BoolArray | None = None) -> Candidate:
        """Return the graph before the first round: a DAG, or required edges only."""
        d = len(self.names)
        if dag is None:
            dag = np.zeros((d, d), dtype=np.bool_)
            if self.knowledge:
                dag = self.knowledge.masks(self.names).required.copy()
        return Candidate(dag, np.zeros((d, d)), {})


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


@dataclass(frozen=True)
class LoopStage:
    """One round of the loop of Algorithm 1 (Torrijos et al. 2024).

    Each party searches from the fused graph, or from the fused graph fused with its own one, with a
    limited number of insertions. The server fuses the resulting graphs.

    Parameters
    ----------
    fuser : Fuser
    start : {"fuse", "overwrite"}
    share : str or float
    keep_best : bool
        Whether parties score the graph that they receive, and the best one is returned.
    current : Candidate
        The graph that the parties receive.
    best : Best
    seen : mapping of str to frozenset of bytes
        The graphs that each party has sent before.
    endless : bool
        Whether the loop goes on however large the graphs grow, as in the paper.
    """

    fuser: Fuser
    start: Literal["fuse", "overwrite"]
    share: str | float
    keep_best: bool
    current: Candidate
    best: Best
    seen: Mapping[str, frozenset[bytes]] = field(default_factory=dict)
    endless: bool = False

    def request(self) -> Request:
        """Send the fused graph and each party's own last one."""
        exchange = JUDGED_GRAPH if self.keep_best else GRAPH
        return _continue(exchange, self.current, {"start": self.start})

    def close(self, replies: Replies) -> Step:
        """Fuse; stop once every party's graph is one that it has sent before."""
        found_edges = replies.of("edges")
        scores = {party: float(score) for party, score in replies.of("score").items()}
        best = self.best
        if self.keep_best and best.beaten_by(scores):
            best = Best(self.current, scores)
        if not self.endless and self.fuser.run_away(found_edges):
            last = best.candidate if self.keep_best else self.current
            return Step(None, {}, self.fuser.found(last, RUN_AWAY))
        # A party that failed in this round keeps its graph of the round before.
        own = {**self.current.own, **found_edges}
        fused = self.fuser.candidate(self.fuser.fuse(found_edges), self.share, own)
        repeated = all(
            edges.tobytes() in self.seen.get(name, frozenset())
            for name, edges in found_edges.items()
        )
        seen = {
            name: self.seen.get(name, frozenset()) | {edges.tobytes()}
            for name, edges in found_edges.items()
        }
        info = {"num_edges": int(fused.dag.sum())}
        reason = "every party's graph is one that it had found before"
        # In the first round the parties have scored the graph without edges only.
        judged = self.keep_best and bool(self.best.scores)
        found = self.fuser.found(best.candidate if judged else fused, reason)
        if repeated and self.keep_best:
            return Step(JudgeStage(self.fuser, (fused,), best, reason), info, found)
        if repeated:
            return Step(None, info, found)
        onward = replace(self, current=fused, best=best, seen={**self.seen, **seen})
        return Step(onward, info, found)


@dataclass(frozen=True)
class DrivenStage:
    """One round of the loop in which scores choose among both starts and several shares.

    Parameters
    ----------
    fuser : Fuser
    shares : sequence of str or float
    patience : int
        Rounds without a better graph after which the loop ends.
    current : Candidate
        The graph that the parties receive.
    best : Best
    rounds_since : int
        Rounds since the best graph.
    """

    fuser: Fuser
    shares: Sequence[str | float]
    patience: int
    current: Candidate
    best: Best
    rounds_since: int = 0

    def request(self) -> Request:
        """Send the chosen fused graph and each party's own last one."""
        return _continue(GRAPHS, self.current, {})

    def close(self, replies: Replies) -> Step:
        """Fuse both sets of graphs at every share; the parties then score the fused graphs."""
        starts = {"overwrite": replies.of("overwritten"), "fuse": replies.of("fused")}
        candidates: list[Candidate] = []
        for label, edges in starts.items():
            if self.fuser.run_away(edges):
                continue
            fusion = self.fuser.fuse(edges)
            own = {**self.current.own, **edges}
            levels = {needed(share, fusion.num_dags): share for share in self.shares}
            candidates += [
                self.fuser.candidate(fusion, share, own, f"{label} {share}")
                for share in levels.values()
            ]
        if not self.best.scores:
            # In the first round the graph before it is a candidate too.
            candidates.append(self.best.candidate)
        different = {candidate.dag.tobytes(): candidate for candidate in reversed(candidates)}
        proposed = tuple(reversed(different.values()))
        info = {"candidates": len(proposed)}
        if not proposed:
            return Step(None, info, self.fuser.found(self.best.candidate, RUN_AWAY))
        # The result if this was the last exchange, so that the candidates get no scores.
        unjudged = self.best.candidate if self.best.scores else proposed[len(proposed) // 2]
        found = self.fuser.found(unjudged, "")
        return Step(JudgeStage(self.fuser, proposed, self.best, driven=self), info, found)


@dataclass(frozen=True)
class JudgeStage:
    """The parties score proposed graphs: the next round starts from the best of them.

    The best graph of all rounds is kept.

    Parameters
    ----------
    fuser : Fuser
    proposed : tuple of Candidate
    best : Best
    reason : str
        Why the loop has ended, if these are its last graphs.
    driven : DrivenStage or None
        The loop to continue, if it has not ended.
    """

    fuser: Fuser
    proposed: tuple[Candidate, ...]
    best: Best
    reason: str = ""
    driven: DrivenStage | None = None

    def request(self) -> Request:
        """Send the graphs."""
        lists = [candidate.edges for candidate in self.proposed]
        lengths = np.array([len(edges) for edges in lists], dtype=np.int64)
        return Request(JUDGE, {"edges": np.concatenate(lists), "lengths": lengths})

    def close(self, replies: Replies) -> Step:
        """Choose the graph with the highest sum of scores."""
        totals = np.sum(replies.list("scores"), axis=0)
        index = _first_best(totals)
        chosen = self.proposed[index]
        scores = {name: float(values[index]) for name, values in replies.of("scores").items()}
        better = self.best.beaten_by(scores)
        best = Best(chosen, scores) if better else self.best
        info: dict[str, Any] = {
            "num_edges": int(chosen.dag.sum()),
            "score": float(totals[index]),
            "chosen": chosen.label,
        }
        if self.driven is None:
            return Step(None, info, self.fuser.found(best.candidate, self.reason))
        since = 0 if better else self.driven.rounds_since + 1
        reason = f"no better graph in {since} rounds"
        found = self.fuser.found(best.candidate, reason)
        if since >= self.driven.patience:
            return Step(None, info, found)
        onward = replace(self.driven, current=chosen, best=best, rounds_since=since)
        return Step(onward, info, found)


def _continue(exchange: Exchange, current: Candidate, values: dict[str, Any]) -> Request:
    # A party without a graph of its own (in the first round, or after failures) gets no edges.
    nothing = np.zeros((0, 2), dtype=np.uint16)
    own = {party: {"own": edges} for party, edges in current.own.items()}
    return Request(exchange, {"received": current.edges, "own": nothing, **values}, own)


def _first_best(totals: NDArray[np.float64]) -> int:
    return int(np.flatnonzero(totals >= totals.max() - IMPROVEMENT)[0])
