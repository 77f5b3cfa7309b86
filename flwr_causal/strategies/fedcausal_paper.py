"""FedCausal's Algorithm 1 (Yang et al., AAAI 2024), with linear effects and with perceptrons.

In an exchange the parties solve eq. (5) or (7) from the server's parameters; the server averages
what they return and solves eq. (4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from flwr_causal.core.fedcausal import linear, perceptrons
from flwr_causal.core.linear.solution import edges_above
from flwr_causal.core.nonlinear.basis import strengths
from flwr_causal.protocol.fedcausal import LAYERS, LINEAR, NORMS
from flwr_causal.runtime.algorithm import Ask, Note, Result

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.runtime.algorithm import Step


class Strengths(NamedTuple):
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
    def of_shares(cls, graph: BoolArray, shares: FloatArray) -> Strengths:
        """Return a graph found by evidence, with the strengths of its partial shares."""
        sizes = strengths(shares)
        return cls(graph, sizes, sizes)


class FittedModel(NamedTuple):
    """A model at its end.

    Attributes
    ----------
    found : Strengths
    taken : int
        Exchanges.
    reason : str
        Why it is over.
    """

    found: Strengths
    taken: int
    reason: str


#: Returns what stands if the run ends with a graph so far.
Standing: TypeAlias = Callable[[Strengths], Result]


def linear_effects(
    problem: linear.ServerProblem,
    masks: EdgeMasks,
    threshold: float,
    standing: Standing,
    start: FloatArray | None = None,
) -> Generator[Step, Any, FittedModel]:
    """Run Algorithm 1 with linear effects, :mod:`flwr_causal.core.fedcausal.linear`."""

    def found() -> Strengths:
        graph = edges_above(state.weights, threshold, masks.required)
        return Strengths(graph, state.weights, state.weights)

    state, stopped = linear.init(problem, start), None
    while stopped is None:
        values = {
            "weights": state.weights,
            "multiplier": state.multiplier,
            "penalty": state.penalty,
        }
        replies = yield Ask(LINEAR, values, so_far=lambda: standing(found()))
        state, info = linear.server_step(state, replies["weights"], problem)  # eq. (4)
        stopped = linear.finished(state, info, problem)
        yield Note(info._asdict() | {"inner_done": int(info.inner_done)})
    return FittedModel(found(), state.exchange, stopped)


def perceptron_effects(
    problem: perceptrons.PerceptronProblem, standing: Standing
) -> Generator[Step, Any, FittedModel]:
    """Run Algorithm 1 with perceptrons, :mod:`flwr_causal.core.fedcausal.perceptrons`."""
    by_norms = problem.averaging == "norms"

    def found() -> Strengths:
        graph = edges_above(state.strengths, problem.threshold, problem.masks.required)
        return Strengths(graph, state.strengths, state.strengths)

    state, stopped = perceptrons.init(problem), None
    while stopped is None:
        sent = state.broadcast
        values = {
            "shared": sent.shared,
            "norms": sent.norms,
            "multiplier": sent.multiplier,
            "penalty": sent.penalty,
            "iteration": sent.iteration,
        }
        exchange = NORMS if by_norms else LAYERS
        replies = yield Ask(exchange, values, so_far=lambda: standing(found()))
        upload = perceptrons.Upload(replies["shared"], replies["slopes"] if by_norms else None)
        state, info = perceptrons.server_step(state, upload, problem)  # eq. (4)
        stopped = perceptrons.finished(state, info, problem)
        yield Note(info._asdict())
    return FittedModel(found(), state.broadcast.iteration, stopped)
