"""The stages of a FedCausal run: a model, then the search on evidence.

In each of them one kind of exchange is repeated: ``request`` asks for it, ``close`` takes the
server's step on the mean of the replies, ``exchanges`` counts those done, and ``found`` is the
present graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from flwr_causal.core.fedcausal import evidence_search, group, linear, perceptrons
from flwr_causal.core.fedcausal.evidence import Tables
from flwr_causal.core.linear.solution import edges_above
from flwr_causal.core.nonlinear.basis import strengths
from flwr_causal.protocol.fedcausal import EVIDENCE, GROUP, LAYERS, LINEAR, NORMS
from flwr_causal.runtime.method import Request

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.fedcausal.evidence import Cache
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.protocol.replies import Replies


class Found(NamedTuple):
    """A graph with the strengths of all edges.

    Attributes
    ----------
    graph : ndarray of bool, shape (d, d)
        Acyclic, with the required edges.
    weights : ndarray of shape (d, d)
        Weights of a linear model, otherwise strengths.
    raw : ndarray of shape (d, d)
        Weights or strengths of all edges before the threshold.
    """

    graph: BoolArray
    weights: FloatArray
    raw: FloatArray

    @property
    def scores(self) -> FloatArray:
        """Strengths of all edges, for ranking."""
        return np.abs(self.raw)

    @classmethod
    def of_shares(cls, graph: BoolArray, shares: FloatArray) -> Found:
        """Return a graph found by evidence, with the strengths of its partial shares."""
        sizes = strengths(shares)
        return cls(graph, sizes, sizes)


class Step(NamedTuple):
    """The result of an exchange.

    Attributes
    ----------
    stage : Stage
        The stage after the exchange.
    info : dict
        Diagnostics for the history.
    reason : str or None
        Why the stage is over, None to go on.
    """

    stage: Stage
    info: dict[str, Any]
    reason: str | None


@dataclass(frozen=True, eq=False)
class GroupStage:
    """The joint group lasso, :mod:`flwr_causal.core.fedcausal.group`."""

    problem: group.ServerProblem
    state: group.State

    def request(self) -> Request:
        """Send the factors for the parties' blocks."""
        penalty = self.problem.schedule.at(self.state.iteration).consensus_penalty
        values = {
            "factors": self.state.factors,
            "penalty": penalty,
            "iteration": self.state.iteration,
        }
        return Request(GROUP, values)

    def close(self, replies: Replies) -> Step:
        """Perform the server's step of the group lasso."""
        state, info = group.server_step(self.state, replies["squared-norms"], self.problem)
        reason = group.finished(state, self.problem)
        return Step(replace(self, state=state), info._asdict(), reason)

    @property
    def exchanges(self) -> int:
        """Number of exchanges done."""
        return self.state.iteration

    @property
    def found(self) -> Found:
        """The graph of the norms above the threshold."""
        graph = group.graph_of(self.state, self.problem)
        return Found(graph, self.state.norms, self.state.received)


@dataclass(frozen=True, eq=False)
class LinearStage:
    """Algorithm 1 with linear effects, :mod:`flwr_causal.core.fedcausal.linear`."""

    problem: linear.ServerProblem
    state: linear.State
    masks: EdgeMasks
    threshold: float

    def request(self) -> Request:
        """Send the server's W, alpha and rho."""
        state = self.state
        values = {
            "weights": state.weights,
            "multiplier": state.multiplier,
            "penalty": state.penalty,
        }
        return Request(LINEAR, values)

    def close(self, replies: Replies) -> Step:
        """Solve eq. (4)."""
        state, info = linear.server_step(self.state, replies["weights"], self.problem)
        shown = info._asdict() | {"inner_done": int(info.inner_done)}
        return Step(replace(self, state=state), shown, linear.finished(state, info, self.problem))

    @property
    def exchanges(self) -> int:
        """Number of exchanges done."""
        return self.state.exchange

    @property
    def found(self) -> Found:
        """The graph of the weights above the threshold."""
        weights = self.state.weights
        graph = edges_above(weights, self.threshold, self.masks.required)
        return Found(graph, weights, weights)


@dataclass(frozen=True, eq=False)
class NeuralStage:
    """Algorithm 1 with perceptrons, :mod:`flwr_causal.core.fedcausal.perceptrons`."""

    problem: perceptrons.Problem
    state: perceptrons.State

    def request(self) -> Request:
        """Send factors or first layers, the norms, alpha, rho and the iteration."""
        sent = self.state.broadcast
        values = {
            "shared": sent.shared,
            "norms": sent.norms,
            "multiplier": sent.multiplier,
            "penalty": sent.penalty,
            "iteration": sent.iteration,
        }
        by_norms = self.problem.averaging == "norms"
        return Request(NORMS if by_norms else LAYERS, values)

    def close(self, replies: Replies) -> Step:
        """Solve eq. (4)."""
        slopes = replies["slopes"] if self.problem.averaging == "norms" else None
        upload = perceptrons.Upload(replies["shared"], slopes)
        state, info = perceptrons.server_step(self.state, upload, self.problem)
        reason = perceptrons.finished(state, info, self.problem)
        return Step(replace(self, state=state), info._asdict(), reason)

    @property
    def exchanges(self) -> int:
        """Number of exchanges done."""
        return self.state.broadcast.iteration

    @property
    def found(self) -> Found:
        """The graph of the strengths above the threshold."""
        slopes = self.state.strengths
        problem = self.problem
        graph = edges_above(slopes, problem.threshold, problem.masks.required)
        return Found(graph, slopes, slopes)


@dataclass(frozen=True, eq=False)
class EvidenceStage:
    """Two searches in the same exchanges, :mod:`flwr_causal.core.fedcausal.evidence_search`.

    When both are over, one goes on from the best graph that can be made of what they know.

    Parameters
    ----------
    problem : SearchProblem
        Background knowledge and limits.
    searches : tuple of State
        The search from the model's graph and the one from the required edges alone; later one.
    start : ndarray of bool, shape (d, d)
        The model's graph.
    num_rows : int
        n. A party sends its evidence divided by n_k, so that the weighted mean times n is the sum.
    share : float
        Share of the parties' rows whose evidence is computed.
    known : mapping
        Summed evidence by variable and parents, as far as it was requested.
    """

    problem: evidence_search.SearchProblem
    searches: tuple[evidence_search.State, ...]
    start: BoolArray
    num_rows: int
    share: float
    known: Cache = field(default_factory=dict)

    def request(self) -> Request:
        """Send the searches' graphs, the masks of the requested changes, and the model's graph."""
        graphs, wanted = zip(*((one.graph, one.wanted) for one in self.searches), strict=True)
        masks = {"graphs": np.stack(graphs), "wanted": np.stack(wanted), "start": self.start}
        values = {name: mask.astype(np.uint8) for name, mask in masks.items()}
        return Request(EVIDENCE, values | {"share": self.share})

    def close(self, replies: Replies) -> Step:
        """Make the moves that raise the evidence, in each search."""
        received = (
            Tables(changes * self.num_rows, evidence * self.num_rows, shares)
            for changes, evidence, shares in zip(
                replies["changes"], replies["evidence"], replies["shares"], strict=True
            )
        )
        problem, known, steps = self.problem, dict(self.known), []
        for search, tables in zip(self.searches, received, strict=True):
            known |= evidence_search.known_evidence(search, tables)
            steps.append(evidence_search.server_step(search, tables, problem))
        shown = {
            "moves": sum(info.added + info.deleted + info.reversed for _, info in steps),
            "asked": sum(info.asked for _, info in steps),
        }
        searches = tuple(state for state, _ in steps)
        best = evidence_search.more_probable(searches, problem)
        reasons = [evidence_search.finished(*step, problem) for step in steps]
        reason = reasons[searches.index(best)] if all(reasons) else None
        if reason and best.exchanges < problem.max_exchanges:
            better = evidence_search.recombined(known, best.graph, problem)
            if better is not None:
                searches = (evidence_search.init(better, best.ranking, problem, best.exchanges),)
                reason = None
        after = replace(self, searches=searches, known=known)
        return Step(after, shown | {"num_edges": int(after.found.graph.sum())}, reason)

    @property
    def exchanges(self) -> int:
        """Number of exchanges done."""
        return self.searches[0].exchanges

    @property
    def found(self) -> Found:
        """The graph of highest evidence."""
        best = evidence_search.more_probable(self.searches, self.problem)
        return Found.of_shares(best.graph, best.ranking)


Stage: TypeAlias = GroupStage | LinearStage | NeuralStage | EvidenceStage
