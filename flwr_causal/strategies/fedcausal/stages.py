"""Stages of FedCausal: a model from which a graph is cut, then the search on the parties' evidence.

A stage says what every party is sent and makes the next one from the mean of their replies. All are
means over the parties, weighted by their rows, so that Flower's own averaging is all that is used.
Stages are never changed; arrays are (d, d), row causes column, unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from flwr_causal.core.fedcausal import evidence_search, group, perceptrons
from flwr_causal.core.fedcausal import linear as fedcausal
from flwr_causal.core.fedcausal.evidence import Tables
from flwr_causal.core.linear.solution import standing_edges
from flwr_causal.core.nonlinear.basis import strengths
from flwr_causal.protocol import fedcausal as protocol
from flwr_causal.runtime.method import Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.protocol.replies import Replies

    BoolArray = NDArray[np.bool_]
    FloatArray = NDArray[np.float64]


class Found(NamedTuple):
    """A graph with the strengths of all edges.

    Attributes
    ----------
    graph : ndarray of bool
        Acyclic, with the required edges.
    weights : ndarray
        What the graph's edges weigh: weights of a linear model, else strengths.
    raw : ndarray
        The same of all edges, before the threshold.
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
        """Return a graph of the evidence with the strengths that shares of variance come to."""
        sizes = strengths(shares)
        return cls(graph, sizes, sizes)


class Step(NamedTuple):
    """What follows an exchange.

    Attributes
    ----------
    stage : Stage
        With the replies taken in.
    info : dict
        Diagnostics for the history.
    reason : str or None
        Why the stage is over, None while it is not.
    """

    stage: Stage
    info: dict[str, Any]
    reason: str | None


class Stage(Protocol):
    """One kind of exchange, as often as it takes."""

    def request(self) -> Request:
        """Return what the parties are sent."""

    def close(self, replies: Replies) -> Step:
        """Take the means of the replies in."""

    @property
    def exchanges(self) -> int:
        """How many there were."""

    @property
    def found(self) -> Found:
        """The graph so far."""


@dataclass(frozen=True, eq=False)
class GroupStage:
    """The joint group lasso, :mod:`flwr_causal.core.fedcausal.group`."""

    problem: group.ServerProblem
    state: group.State

    def request(self) -> Request:
        """Send the factors for the parties' blocks."""
        penalty = self.problem.schedule.at(self.state.round).consensus_penalty
        values = {"factors": self.state.factors, "penalty": penalty, "iteration": self.state.round}
        return Request(protocol.GROUP, values)

    def close(self, replies: Replies) -> Step:
        """Shrink the norms."""
        state, info = group.server_step(self.state, replies["squared-norms"], self.problem)
        reason = group.finished(state, self.problem)
        return Step(replace(self, state=state), info._asdict(), reason)

    @property
    def exchanges(self) -> int:
        """How many there were."""
        return self.state.round

    @property
    def found(self) -> Found:
        """The norms above the threshold."""
        graph = group.graph_of(self.state, self.problem)
        return Found(graph, self.state.norms, self.state.received)


@dataclass(frozen=True, eq=False)
class LinearStage:
    """The paper's linear algorithm, :mod:`flwr_causal.core.fedcausal.linear`."""

    problem: fedcausal.ServerProblem
    state: fedcausal.State
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
        return Request(protocol.LINEAR, values)

    def close(self, replies: Replies) -> Step:
        """Solve eq. (4)."""
        state, info = fedcausal.server_step(self.state, replies["weights"], self.problem)
        shown = info._asdict() | {"inner_done": int(info.inner_done)}
        return Step(
            replace(self, state=state), shown, fedcausal.finished(state, info, self.problem)
        )

    @property
    def exchanges(self) -> int:
        """How many there were."""
        return self.state.exchange

    @property
    def found(self) -> Found:
        """The weights above the threshold."""
        weights = self.state.weights
        graph = standing_edges(weights, self.threshold, self.masks.required)
        return Found(graph, weights, weights)


@dataclass(frozen=True, eq=False)
class NeuralStage:
    """The paper's perceptrons, :mod:`flwr_causal.core.fedcausal.perceptrons`."""

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
            "iteration": sent.round,
        }
        by_norms = self.problem.averaging == "norms"
        return Request(protocol.NORMS if by_norms else protocol.LAYERS, values)

    def close(self, replies: Replies) -> Step:
        """Solve eq. (4)."""
        upload = perceptrons.Upload(replies["shared"], replies["slopes"])
        state, info = perceptrons.server_step(self.state, upload, self.problem)
        reason = perceptrons.finished(state, info, self.problem)
        return Step(replace(self, state=state), info._asdict(), reason)

    @property
    def exchanges(self) -> int:
        """How many there were."""
        return self.state.broadcast.round

    @property
    def found(self) -> Found:
        """The strengths above the threshold."""
        slopes = self.state.strengths
        problem = self.problem
        graph = standing_edges(slopes, problem.threshold, problem.masks.required)
        return Found(graph, slopes, slopes)


@dataclass(frozen=True, eq=False)
class EvidenceStage:
    """Searches on summed evidence side by side, :mod:`flwr_causal.core.fedcausal.evidence_search`.

    Parameters
    ----------
    problem : SearchProblem
    searches : tuple of State
        From the model's graph, and from the required edges alone.
    start : ndarray of bool
        The model's graph.
    num_rows : int
        n: the parties send their evidence by row, so that its mean times n is the sum.
    """

    problem: evidence_search.SearchProblem
    searches: tuple[evidence_search.State, ...]
    start: BoolArray
    num_rows: int

    def request(self) -> Request:
        """Send the searches' graphs and the changes they ask for, and the model's graph."""
        graphs, wanted = zip(*((one.graph, one.wanted) for one in self.searches), strict=True)
        masks = {"graphs": np.stack(graphs), "wanted": np.stack(wanted), "start": self.start}
        values = {name: mask.astype(np.uint8) for name, mask in masks.items()}
        return Request(protocol.EVIDENCE, values)

    def close(self, replies: Replies) -> Step:
        """Make the moves that raise the evidence, in each search."""
        by_search = zip(replies["changes"], replies["evidence"], replies["shares"], strict=True)
        steps = [
            evidence_search.server_step(
                search,
                Tables(changes * self.num_rows, evidence * self.num_rows, shares),
                self.problem,
            )
            for search, (changes, evidence, shares) in zip(self.searches, by_search, strict=True)
        ]
        reasons = [evidence_search.finished(*step, self.problem) for step in steps]
        after = replace(self, searches=tuple(state for state, _ in steps))
        moves = [info.added + info.deleted + info.reversed for _, info in steps]
        shown = {
            "moves": sum(moves),
            "asked": sum(info.asked for _, info in steps),
            "num_edges": int(after.found.graph.sum()),
        }
        best = evidence_search.more_probable(after.searches)
        over = all(reason is not None for reason in reasons)
        chosen = next(k for k, search in enumerate(after.searches) if search is best)
        return Step(after, shown, reasons[chosen] if over else None)

    @property
    def exchanges(self) -> int:
        """How many there were."""
        return self.searches[0].exchanges

    @property
    def found(self) -> Found:
        """The graph of highest evidence."""
        best = evidence_search.more_probable(self.searches)
        return Found.of_shares(best.graph, best.ranking)
