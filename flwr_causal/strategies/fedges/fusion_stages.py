"""Fusing the parties' graphs: the paper's loop, and the loop that the parties' scores drive."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.ges.fusion import needed
from flwr_causal.strategies.exchange import Reply, Request
from flwr_causal.strategies.fedges.fuser import IMPROVEMENT, RUN_AWAY, Best, Candidate, Fuser
from flwr_causal.strategies.fedges.stages import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.runtime.federation import Party

    Edges = NDArray[np.integer]
    Scores = Mapping[str, float]


@dataclass(frozen=True)
class LoopStage:
    """One round of the paper's loop (Torrijos et al. 2024, Algorithm 1).

    Each party goes on from the fused graph, or from that fused with its own one, by at most so many
    insertions; the server fuses what they found.

    Parameters
    ----------
    fuser : Fuser
    start : {"fuse", "overwrite"}
    share : str or float
    keep_best : bool
        Parties score the graph that they receive, and the best one is returned.
    current : Candidate
        What the parties receive.
    best : Best
    seen : mapping of str to frozenset of bytes
        The graphs that each party has sent before.
    """

    phase: ClassVar[str] = "graph"

    fuser: Fuser
    start: Literal["fuse", "overwrite"]
    share: str | float
    keep_best: bool
    current: Candidate
    best: Best
    seen: Mapping[str, frozenset[bytes]] = field(default_factory=dict)
    edges: Mapping[str, Edges] = field(default_factory=dict)
    scores: Scores = field(default_factory=dict)

    def request(self, party: Party) -> Request:
        """Send the fused graph and the party's own last one."""
        return _continue(self.current, party, {"start": self.start, "judge": self.keep_best})

    def fold(self, reply: Reply) -> LoopStage:
        """Keep a party's graph, and its score of the received one."""
        name = reply.party.name
        scores = self.scores
        if "score" in reply.numbers:
            scores = {**scores, name: float(reply.numbers["score"])}  # type: ignore[arg-type]
        return replace(self, edges={**self.edges, name: reply.arrays["edges"]}, scores=scores)

    def close(self) -> Step:
        """Fuse; stop once every party's graph is one that it has sent before."""
        best = self.best
        if self.keep_best and best.beaten_by(self.scores):
            best = Best(self.current, self.scores)
        if self.fuser.run_away(self.edges):
            last = best.candidate if self.keep_best else self.current
            return Step(None, {}, self.fuser.found(last, RUN_AWAY))
        # Whoever failed in this round goes on with its graph of the round before.
        own = {**self.current.own, **self.edges}
        fused = self.fuser.candidate(self.fuser.fuse(self.edges), self.share, own)
        repeated = all(
            edges.tobytes() in self.seen.get(name, frozenset())
            for name, edges in self.edges.items()
        )
        seen = {
            name: self.seen.get(name, frozenset()) | {edges.tobytes()}
            for name, edges in self.edges.items()
        }
        info = {"num_edges": int(fused.dag.sum())}
        reason = "every party's graph is one that it had found before"
        # After the first round nobody has judged more than the graph without edges.
        judged = self.keep_best and bool(self.best.scores)
        found = self.fuser.found(best.candidate if judged else fused, reason)
        if repeated and self.keep_best:
            return Step(JudgeStage(self.fuser, (fused,), best, reason), info, found)
        if repeated:
            return Step(None, info, found)
        onward = replace(
            self, current=fused, best=best, seen={**self.seen, **seen}, edges={}, scores={}
        )
        return Step(onward, info, found)


@dataclass(frozen=True)
class DrivenStage:
    """One round of the loop that scores drive: both starts, several shares.

    Parameters
    ----------
    fuser : Fuser
    shares : sequence of str or float
    patience : int
        Rounds without a better graph after which it ends.
    current : Candidate
    best : Best
    rounds_since : int
        Rounds since the best graph.
    """

    phase: ClassVar[str] = "graphs"

    fuser: Fuser
    shares: Sequence[str | float]
    patience: int
    current: Candidate
    best: Best
    rounds_since: int = 0
    overwritten: Mapping[str, Edges] = field(default_factory=dict)
    fused: Mapping[str, Edges] = field(default_factory=dict)

    def request(self, party: Party) -> Request:
        """Send the graph that goes on and the party's own part of it."""
        return _continue(self.current, party, {})

    def fold(self, reply: Reply) -> DrivenStage:
        """Keep a party's two graphs."""
        name = reply.party.name
        return replace(
            self,
            overwritten={**self.overwritten, name: reply.arrays["overwritten"]},
            fused={**self.fused, name: reply.arrays["fused"]},
        )

    def close(self) -> Step:
        """Fuse both sets of graphs at every share; the parties judge what comes out."""
        starts = {"overwrite": self.overwritten, "fuse": self.fused}
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
            # In the first round the graph without edges has to be beaten too.
            candidates.append(self.best.candidate)
        different = {candidate.dag.tobytes(): candidate for candidate in reversed(candidates)}
        proposed = tuple(reversed(different.values()))
        info = {"candidates": len(proposed)}
        if not proposed:
            return Step(None, info, self.fuser.found(self.best.candidate, RUN_AWAY))
        # What is returned if this was the last exchange, and nobody can judge any more.
        unjudged = self.best.candidate if self.best.scores else proposed[len(proposed) // 2]
        found = self.fuser.found(unjudged, "")
        return Step(JudgeStage(self.fuser, proposed, self.best, driven=self), info, found)


@dataclass(frozen=True)
class JudgeStage:
    """The parties score proposed graphs; the best goes on, and the best ever is kept.

    Parameters
    ----------
    fuser : Fuser
    proposed : tuple of Candidate
    best : Best
    reason : str
        Why the loop is over, where these are its last graphs.
    driven : DrivenStage or None
        The loop that goes on.
    """

    phase: ClassVar[str] = "judge"

    fuser: Fuser
    proposed: tuple[Candidate, ...]
    best: Best
    reason: str = ""
    driven: DrivenStage | None = None
    scores: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def request(self, party: Party) -> Request:
        """Send the graphs."""
        lists = [candidate.edges for candidate in self.proposed]
        lengths = np.array([len(edges) for edges in lists], dtype=np.int64)
        return Request({"edges": np.concatenate(lists), "lengths": lengths}, {})

    def fold(self, reply: Reply) -> JudgeStage:
        """Keep a party's scores."""
        return replace(self, scores={**self.scores, reply.party.name: reply.arrays["scores"]})

    def close(self) -> Step:
        """Choose the graph with the best sum."""
        totals = np.sum(list(self.scores.values()), axis=0)
        index = _first_best(totals)
        chosen = self.proposed[index]
        scores = {name: float(values[index]) for name, values in self.scores.items()}
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
        onward = replace(
            self.driven, current=chosen, best=best, rounds_since=since, overwritten={}, fused={}
        )
        return Step(onward, info, found)


def _continue(current: Candidate, party: Party, config: dict[str, Any]) -> Request:
    nothing = np.zeros((0, 2), dtype=np.uint16)
    # A party that has no graph yet (or was away) goes on from the received one alone.
    own = current.own.get(party.name, nothing)
    return Request({"received": current.edges, "own": own}, config)


def _first_best(totals: NDArray[np.float64]) -> int:
    return int(np.flatnonzero(totals >= totals.max() - IMPROVEMENT)[0])
