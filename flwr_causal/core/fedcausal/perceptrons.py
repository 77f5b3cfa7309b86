"""FedCausal with perceptrons: parties with different mechanisms share one graph.

Yang et al. (AAAI 2024), eqs. (4), (7) and Algorithm 1. theta is the flat parameter vector of
:mod:`core.nonlinear.perceptrons`, A its first layer, *rest* all other parameters, and
``W[i, j] = ||A_j[:, i]||_2``. In one exchange

- each party solves eq. (7): ``min 1/(2 n_k) ||X_k - mlp(X_k; theta)||^2 + lambda_1 |A|_1
  + lambda_2 ||A - A_received||^2 + decay/2 |weights|^2 + alpha h(W) + rho/2 h(W)^2``, starting
  from the received first layer and the party's own rest, which never leaves the party;
- the server solves eq. (4) for the first layer nearest to the mean of the parties':
  ``min ||A - mean||^2 + alpha h + rho/2 h^2``;
- the server updates alpha and rho by Algorithm 1, :mod:`core.fedcausal.penalties`.

Two ways to average:

``layers``, the paper's way. The first layers are averaged, and the server's solution replaces every
party's first layer. As h depends only on the norms of the blocks ``A_j[:, i]``, eq. (4) is solved
for these norms, ``(d, d)``, and each block of the mean is scaled to its new norm. Where mechanisms
differ, first layers of opposite sign cancel in the mean.

``norms``, the default. Only the squared norms of the blocks, ``(d, d)``, are averaged. With N the
root of their mean, the server solves eq. (4) for the norms r nearest to N and returns the factors
``r / N``, by which every party multiplies its own blocks, as in a group lasso whose groups are all
parties' blocks of one edge. Nothing cancels, and m times less is sent. A norm of a first layer has
no unit, because the later layers can carry the scale; the parties therefore send the mean squares
of ``df_j/dx_i`` too, and edges are thresholded by their roots. With ``layers`` they are thresholded
by the norms, the W that Algorithm 1 returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.consensus.projection import factors, project
from flwr_causal.core.devices import one_thread
from flwr_causal.core.fedcausal.penalties import Penalties
from flwr_causal.core.graphs.acyclicity import h_exponential
from flwr_causal.core.limits import require_computable
from flwr_causal.core.nonlinear.notears_mlp import (
    first_layer_sparsity,
    free_parameters,
    local_objective,
    minimise,
)
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.nonlinear.perceptrons import Network, SquaredLoss


AVERAGING = ("norms", "layers")
# NOTEARS-MLP's weight decay.
DECAY = 0.01


@dataclass(frozen=True, eq=False)
class PerceptronProblem:
    """The settings of a run, the same for server and parties.

    Attributes
    ----------
    network
        Shapes of the perceptrons.
    masks
        Allowed and required edges. Required ones bear no sparsity penalty, and the server never
        shrinks them.
    averaging
        ``"norms"`` or ``"layers"`` (the paper's), see the module's docstring.
    max_exchanges
        Exchanges after which the run ends.
    sparsity
        ``lambda_1``. The paper does not give it; default: NOTEARS-MLP's.
    proximity
        ``lambda_2``. The paper does not give it; default: none (measured: 0.1 gains nothing).
    decay
        Weight decay of all layers. Default: NOTEARS-MLP's. Eq. (7) has none, but without it the
        norms of the first layers have no unit: their l_1 penalty shrinks them while the later
        layers grow, until true edges are below the threshold (measured, d = 40 with 40 edges:
        TPR .30 without, .65 with it).
    max_iterations
        Limit of a party's L-BFGS iterations in one exchange. Measured (d = 20, mixed mechanisms):
        the graph is final after 2 exchanges of 100 iterations or 4 of 50; with 25, errors remain
        that later exchanges do not remove.
    penalties
        How alpha and rho change.
    patience
        Exchanges for which the graph must have stayed the same for an early end; 0: never end
        early.
    threshold
        Edges of a larger strength are in the graph.
    acyclic
        Whether the server solves eq. (4). False: the server returns the mean, and acyclicity is
        part of the parties' problems only (the paper's ablation NO-w/oAcy).
    seed
        Seed of the parameters that all parties start from.

    Raises
    ------
    ConfigError
        If ``averaging`` is not one of the two.
    """

    network: Network
    masks: EdgeMasks
    averaging: str = "norms"
    max_exchanges: int = 12
    sparsity: float = 0.01
    proximity: float = 0.0
    decay: float = DECAY
    max_iterations: int = 100
    penalties: Penalties = field(default_factory=Penalties)
    patience: int = 4
    threshold: float = 0.3
    acyclic: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.averaging not in AVERAGING:
            raise ConfigError(f"averaging must be one of {AVERAGING}, got {self.averaging!r}")


class Broadcast(NamedTuple):
    """The message of the server, the same to every party.

    Attributes
    ----------
    shared
        With ``norms`` the ``(d, d)`` factors r / N, with ``layers`` the ``(d, m, d)`` first layer.
    norms
        ``(d, d)`` norms W of the server's solution, for a party that lost its state.
    multiplier, penalty
        alpha and rho.
    iteration
        Exchanges done before this one.
    """

    shared: FloatArray
    norms: FloatArray
    multiplier: float
    penalty: float
    iteration: int


class ClientState(NamedTuple):
    """A party's state after an exchange. With ``layers`` only the rest of theta is used again.

    Attributes
    ----------
    theta
        ``(size,)`` parameters.
    iteration
        ``iteration`` of the exchange in which they were computed.
    """

    theta: FloatArray
    iteration: int


class Upload(NamedTuple):
    """The reply of a party; both arrays are averaged with weights n_k.

    Attributes
    ----------
    shared
        With ``norms`` the ``(d, d)`` squared norms, with ``layers`` the ``(d, m, d)`` first layer.
    squared_slopes
        With ``norms`` the ``(d, d)`` mean squares of ``df_j/dx_i`` over the party's rows.
    """

    shared: FloatArray
    squared_slopes: FloatArray | None = None


def initial(problem: PerceptronProblem) -> FloatArray:
    """``(size,)`` parameters that every party starts from, 0 where an edge is not allowed."""
    free = free_parameters(problem.network, problem.masks)
    return np.where(free, problem.network.initial(problem.seed), 0.0)


def received(
    problem: PerceptronProblem, state: ClientState | None, broadcast: Broadcast
) -> FloatArray:
    """``(size,)`` parameters with which a party starts: the server's first layer, its own rest.

    With ``norms`` the party's blocks are multiplied by the factors. A party without a state, or
    whose state is older than the last exchange, scales the blocks that it has (without a state the
    initial ones) to the norms of the server's solution.
    """
    network = problem.network
    theta = initial(problem) if state is None else state.theta.copy()
    first = network.first(theta)
    if problem.averaging == "layers":
        first[...] = broadcast.shared
    elif state is not None and state.iteration == broadcast.iteration - 1:
        first *= network.blocks(broadcast.shared)
    else:
        norms = np.sqrt(network.squared_norms(theta))
        first *= network.blocks(factors(broadcast.norms, norms))
    return theta


@one_thread()
def client_step(
    problem: PerceptronProblem, loss: SquaredLoss, state: ClientState | None, broadcast: Broadcast
) -> tuple[ClientState, Upload]:
    """Perform a party's step of an exchange: some L-BFGS iterations on eq. (7).

    Parameters
    ----------
    problem
        The run's fixed settings.
    loss
        The party's centred rows.
    state
        The state after the party's last exchange; None if it has none.
    broadcast
        The message of the server.
    """
    network = problem.network
    start = received(problem, state, broadcast)
    smooth = local_objective(loss, problem.decay, broadcast.multiplier, broadcast.penalty)
    near = network.first(start)

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = smooth(theta)
        away = network.first(theta) - near
        network.first(gradient)[...] += 2.0 * problem.proximity * away
        return value + problem.proximity * float((away * away).sum()), gradient

    theta = minimise(
        objective,
        start,
        free_parameters(network, problem.masks),
        first_layer_sparsity(network, problem.masks, problem.sparsity),
        problem.max_iterations,
    ).theta
    upload = Upload(network.first(theta).copy())
    if problem.averaging == "norms":
        upload = Upload(network.squared_norms(theta), loss.squared_slopes(theta))
    return ClientState(theta, broadcast.iteration), upload


@dataclass(frozen=True, eq=False)
class ServerState:
    """The server's state between two exchanges; a run can be resumed from it.

    Attributes
    ----------
    broadcast
        The next message.
    strengths
        ``(d, d)`` strengths of the edges, 0 where the server's solution has none: the slopes, each
        multiplied by the factor of its block, or with ``layers`` the norms.
    last_h
        H of Algorithm 1, the h at the last update of alpha; infinite before the first one.
    stable_exchanges
        Number of exchanges for which the thresholded graph has not changed.
    """

    broadcast: Broadcast
    strengths: FloatArray
    last_h: float = np.inf
    stable_exchanges: int = 0


class Info(NamedTuple):
    """Diagnostics of one exchange.

    Attributes
    ----------
    h
        Acyclicity of the server's solution.
    mean_h
        Acyclicity of the mean over the parties.
    changed
        Number of edges, after the threshold, that were added or removed.
    num_edges
        Edges after the threshold.
    inner_done
        1 if the inner loop ended with this exchange, else 0.
    iterations
        Inner iterations of the server's problem.
    """

    h: float
    mean_h: float
    changed: int
    num_edges: int
    inner_done: int
    iterations: int


def init(problem: PerceptronProblem) -> ServerState:
    """Start from the :func:`initial` parameters, ``alpha = 0``, the problem's rho, ``H = inf``."""
    network = problem.network
    start = initial(problem)
    norms = np.sqrt(network.squared_norms(start))
    shared = np.ones_like(norms) if problem.averaging == "norms" else network.first(start)
    return ServerState(
        Broadcast(shared, norms, 0.0, problem.penalties.penalty, 0), np.zeros_like(norms)
    )


def server_step(
    state: ServerState, mean: Upload, problem: PerceptronProblem
) -> tuple[ServerState, Info]:
    """Perform the server's step of an exchange: eq. (4), then rho or alpha (Algorithm 1).

    Parameters
    ----------
    state
        State before the exchange.
    mean
        Mean of the parties' replies, weighted by their rows.
    problem
        The run's fixed settings.

    Raises
    ------
    ValueError
        If the mean has the wrong shape.
    DataError
        If it is too large to be computed with.
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
        # Required edges keep their norms: the other edges of a cycle are shrunk.
        weights = np.where(problem.masks.required, norms, solution.weights)
        iterations = solution.iterations
    scale = factors(weights, norms)
    h, mean_h = h_exponential(weights)[0], h_exponential(norms)[0]

    inner_done, multiplier, penalty, last_h = problem.penalties.after(
        sent.multiplier, sent.penalty, state.last_h, h=h, mean_h=mean_h
    )
    require_computable("the multipliers of the acyclicity of the parties' mean norms", multiplier)

    strengths = weights
    if mean.squared_slopes is not None:
        strengths = scale * np.sqrt(np.maximum(mean.squared_slopes, 0.0))
    graph, graph_before = strengths > problem.threshold, state.strengths > problem.threshold
    changed = int((graph != graph_before).sum())
    shared = scale if problem.averaging == "norms" else mean.shared * problem.network.blocks(scale)
    after = ServerState(
        Broadcast(shared, weights, multiplier, penalty, sent.iteration + 1),
        strengths,
        last_h,
        0 if changed else state.stable_exchanges + 1,
    )
    edges = int(graph.sum())
    return after, Info(h, mean_h, changed, edges, int(inner_done), iterations)


def finished(state: ServerState, info: Info, problem: PerceptronProblem) -> str | None:
    """Return why the run ends after this exchange, or None."""
    sent = state.broadcast
    reason = problem.penalties.reason_to_end(sent.iteration, sent.penalty, info.h)
    if info.inner_done and reason:
        return reason
    if sent.iteration >= problem.max_exchanges:
        return f"{problem.max_exchanges} exchanges are done"
    if problem.patience and state.stable_exchanges >= problem.patience:
        return (
            f"converged after {sent.iteration} of {problem.max_exchanges} exchanges: the graph has "
            f"not changed for {state.stable_exchanges} exchanges, h = {info.h:.1e}"
        )
    return None
