"""FedCausal with perceptrons: parties with different mechanisms share one graph.

Yang et al. (AAAI 2024), eqs. (4), (7) and Algorithm 1; theta is the flat vector of
:mod:`flwr_causal.core.nonlinear.neural_network`, A its first layer, ``W[i, j] = ||A_j[:, i]||_2``.

- party, eq. (7): ``min 1/(2 n_k) ||X_k - mlp(X_k; theta)||^2 + lambda_1 |A|_1
  + lambda_2 ||A - A_received||^2 + decay/2 |weights|^2 + alpha h(W) + rho/2 h(W)^2``, from the
  received first layer and the party's own rest, which never leaves it;
- server, eq. (4): the first layer next to the mean, ``min ||A - mean||^2 + alpha h + rho/2 h^2``;
- Algorithm 1: rho grows by ``growth`` until h falls to ``progress`` times what it was when alpha
  last changed; then ``alpha += rho h``, with the h of the mean and not that of the server's
  solution.

Two ways to average:

``layers``, the paper's. First layers are averaged, and the mean replaces the party's. As h sees
only the norms of the blocks, eq. (4) is solved for these, ``(d, d)``, and each block of the mean
scaled to its new norm. Where mechanisms differ, first layers of opposite sign cancel in the mean.

``norms``, the default. Only ``||A_ij||^2``, ``(d, d)``, is averaged. The server solves eq. (4) for
its root N and returns ``r / N``, by which every party multiplies its own blocks: a group lasso's
step over the parties. Nothing cancels, and m times less is sent.

A layer's norm has no unit, because the layers behind it can carry the scale. Edges are therefore
read from the strengths, the root mean square of ``df_j/dx_i`` over all parties' rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.consensus.projection import factors, project
from flwr_causal.core.fedcausal.neural_party import (
    AVERAGING,
    Broadcast,
    ClientState,
    Problem,
    Upload,
    client_step,
    initial,
    received,
)
from flwr_causal.core.graphs.acyclicity import h_exponential

FloatArray = NDArray[np.float64]

# The party's half lives in a module of its own; the iteration is used as one thing.
__all__ = [
    "AVERAGING",
    "Broadcast",
    "ClientState",
    "Info",
    "Problem",
    "State",
    "Upload",
    "client_step",
    "finished",
    "init",
    "received",
    "server_step",
]


@dataclass(frozen=True, eq=False)
class State:
    """What the server keeps from one round to the next; a run can be resumed from it.

    Attributes
    ----------
    broadcast
        What is sent next.
    strengths
        ``(d, d)`` strengths of the edges, by their blocks' factors; 0 where there is none.
    h_accepted
        H of Algorithm 1: h when alpha last changed.
    stable_rounds
        For how many rounds in a row the thresholded graph has stayed as it is.
    """

    broadcast: Broadcast
    strengths: FloatArray
    h_accepted: float = np.inf
    stable_rounds: int = 0


class Info(NamedTuple):
    """Diagnostics of one round.

    Attributes
    ----------
    h
        Acyclicity of the server's solution.
    h_mean
        Acyclicity of the mean over the parties.
    changed
        Edges (after the threshold) that came or went in this round.
    num_edges
        Edges after the threshold.
    iterations
        Inner iterations of the server's problem.
    """

    h: float
    h_mean: float
    changed: int
    num_edges: int
    iterations: int


def init(problem: Problem) -> State:
    """Start from the drawn weights, ``alpha = 0``, ``rho`` of the problem and ``H = inf``."""
    network = problem.network
    start = initial(problem)
    norms = np.sqrt(network.squared_norms(start))
    shared = np.ones_like(norms) if problem.averaging == "norms" else network.first(start)
    return State(Broadcast(shared, norms, 0.0, problem.penalty, 0), np.zeros_like(norms))


def server_step(state: State, mean: Upload, problem: Problem) -> tuple[State, Info]:
    """Do the server's part of a round: eq. (4), then rho or alpha (Algorithm 1).

    Parameters
    ----------
    state
        State before the round.
    mean
        Mean of what the parties sent, weighted by their rows.
    problem
        The run's fixed settings.

    Raises
    ------
    ValueError
        If the mean has the wrong shape.
    """
    sent = state.broadcast
    if mean.shared.shape != sent.shared.shape:
        raise ValueError(f"the mean has shape {mean.shared.shape}, not {sent.shared.shape}")
    if problem.averaging == "norms":
        norms = np.sqrt(np.maximum(mean.shared, 0.0))
    else:
        norms = np.sqrt(np.einsum("jui,jui->ij", mean.shared, mean.shared))
    weights, iterations = np.where(problem.masks.allowed, norms, 0.0), 0
    if problem.acyclic:
        solution = project(
            norms,
            sparsity=0.0,
            curvature=2.0,  # eq. (4) has no factor 1/2
            multiplier=sent.multiplier,
            penalty=sent.penalty,
            allowed=problem.masks.allowed,
        )
        # what knowledge demands is not traded for acyclicity: the edges against it have to yield
        weights = np.where(problem.masks.required, norms, solution.weights)
        iterations = solution.iterations
    scale = factors(weights, norms)
    h, h_mean = h_exponential(weights)[0], h_exponential(norms)[0]

    accepted = h <= problem.progress * state.h_accepted
    multiplier = sent.multiplier + (sent.penalty * h_mean if accepted else 0.0)
    penalty = sent.penalty * (1.0 if accepted else problem.growth)

    strengths = scale * np.sqrt(np.maximum(mean.squared_slopes, 0.0))
    graph, before = strengths > problem.threshold, state.strengths > problem.threshold
    changed = int((graph != before).sum())
    shared = scale if problem.averaging == "norms" else mean.shared * problem.network.blocks(scale)
    after = State(
        Broadcast(shared, weights, multiplier, penalty, sent.round + 1),
        strengths,
        h if accepted else state.h_accepted,
        0 if changed else state.stable_rounds + 1,
    )
    return after, Info(h, h_mean, changed, int(graph.sum()), iterations)


def finished(state: State, info: Info, problem: Problem) -> str | None:
    """Say why the run should end after this round, or None."""
    sent = state.broadcast
    if info.h <= problem.h_tolerance:
        return f"converged after {sent.round} rounds: h = {info.h:.1e}"
    if sent.penalty >= problem.penalty_limit:
        return f"the penalty has reached its limit after {sent.round} rounds, h = {info.h:.1e}"
    if sent.round >= problem.max_rounds:
        return f"{problem.max_rounds} rounds are done"
    if problem.patience and state.stable_rounds >= problem.patience:
        return (
            f"converged after {sent.round} of {problem.max_rounds} rounds: the graph has not "
            f"changed for {state.stable_rounds} rounds, h = {info.h:.1e}"
        )
    return None
