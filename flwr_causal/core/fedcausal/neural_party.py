"""The party's half of FedCausal with perceptrons, see :mod:`flwr_causal.core.fedcausal.neural_rounds`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.consensus.projection import factors
from flwr_causal.core.nonlinear.neural import (
    first_layer_sparsity,
    free_parameters,
    local_objective,
    minimise,
)
from flwr_causal.core.nonlinear.neural_network import one_thread
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.nonlinear.neural_network import Network, SquaredLoss

FloatArray = NDArray[np.float64]

AVERAGING = ("norms", "layers")


@dataclass(frozen=True, eq=False)
class Problem:
    """What stays the same through a run, and is the same for server and parties.

    Attributes
    ----------
    network
        Shapes of the perceptrons.
    masks
        Allowed and required edges. Required ones bear no sparsity penalty, and the server never
        shrinks them.
    averaging
        ``"norms"`` or ``"layers"`` (the paper's), see the module.
    max_rounds
        Exchanges after which the run ends.
    sparsity
        ``lambda_1``. The paper does not give it; default: NOTEARS-MLP's.
    proximal
        ``lambda_2``. The paper does not give it; default: none (measured: 0.1 gains nothing).
    decay
        Weight decay of all layers. Default: NOTEARS-MLP's.
    max_iterations
        Limit of a party's L-BFGS iterations in a round. Measured (d = 20, mixed mechanisms): the
        graph stands after 2 rounds of 100, 4 of 50; 25 leave errors that later rounds keep.
    growth, progress
        beta and gamma of Algorithm 1. Default: the paper's (table S2).
    penalty
        rho of the first round. Default: the paper's.
    penalty_limit, h_tolerance
        The run ends when rho or h of the server's solution reaches these. Default: the paper's.
    patience
        Rounds for which the graph must have stayed the same for an early end; 0: never.
    threshold
        Edges stand whose strength exceeds this.
    acyclic
        Whether the server's problem has the acyclicity; without it (the paper's ablation NO-w/oAcy)
        the server passes the mean on, and only the parties know of h.
    seed
        Of the weights that all parties start from.

    Raises
    ------
    ConfigError
        If the way to average is unknown.
    """

    network: Network
    masks: EdgeMasks
    averaging: str = "norms"
    max_rounds: int = 12
    sparsity: float = 0.01
    proximal: float = 0.0
    decay: float = 0.01
    max_iterations: int = 100
    growth: float = 10.0
    progress: float = 0.25
    penalty: float = 1.0
    penalty_limit: float = 1e16
    h_tolerance: float = 1e-11
    patience: int = 4
    threshold: float = 0.3
    acyclic: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.averaging not in AVERAGING:
            raise ConfigError(f"averaging must be one of {AVERAGING}, got {self.averaging!r}")


class Broadcast(NamedTuple):
    """What the server sends, the same to every party.

    Attributes
    ----------
    shared
        ``(d, d)`` factors r / N for the party's blocks, or the ``(d, m, d)`` first layer.
    norms
        ``(d, d)`` norms W of the server's solution: the scale for a party that lost its state.
    multiplier, penalty
        alpha and rho.
    round
        This round, counted from 0.
    """

    shared: FloatArray
    norms: FloatArray
    multiplier: float
    penalty: float
    round: int


class ClientState(NamedTuple):
    """What a party keeps: its whole solution, of which only the rest is needed with ``layers``.

    Attributes
    ----------
    theta
        ``(size,)`` parameters.
    round
        The round in which they were found.
    """

    theta: FloatArray
    round: int


class Upload(NamedTuple):
    """What a party sends; both are to be averaged with weights n_k.

    Attributes
    ----------
    shared
        ``(d, d)`` squared norms, or the ``(d, m, d)`` first layer.
    squared_slopes
        ``(d, d)`` mean squares of ``df_j/dx_i`` over the party's rows.
    """

    shared: FloatArray
    squared_slopes: FloatArray


def initial(problem: Problem) -> FloatArray:
    """``(size,)`` parameters that every party starts from, 0 where an edge is not allowed."""
    free = free_parameters(problem.network, problem.masks)
    return np.where(free, problem.network.initial(problem.seed), 0.0)


def received(problem: Problem, state: ClientState | None, broadcast: Broadcast) -> FloatArray:
    """``(size,)`` parameters with which a party starts: the server's first layer, its own rest.

    With ``norms`` the blocks are multiplied by the factors. A party that has no state, or one of an
    earlier round because it missed some, takes the directions of what it has (or of the start) and
    the norms of the federation.
    """
    network = problem.network
    theta = initial(problem) if state is None else state.theta.copy()
    first = network.first(theta)
    if problem.averaging == "layers":
        first[...] = broadcast.shared
    elif state is not None and state.round == broadcast.round - 1:
        first *= network.blocks(broadcast.shared)
    else:
        norms = np.sqrt(network.squared_norms(theta))
        first *= network.blocks(factors(broadcast.norms, norms))
    return theta


@one_thread()
def client_step(
    problem: Problem, loss: SquaredLoss, state: ClientState | None, broadcast: Broadcast
) -> tuple[ClientState, Upload]:
    """Do a party's part of a round, eq. (7), inexactly.

    Parameters
    ----------
    problem
        The run's fixed settings.
    loss
        The party's centred rows.
    state
        What the party kept, None if it has nothing.
    broadcast
        What the server sent.
    """
    network = problem.network
    start = received(problem, state, broadcast)
    smooth = local_objective(loss, problem.decay, broadcast.multiplier, broadcast.penalty)
    near = network.first(start)

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = smooth(theta)
        away = network.first(theta) - near
        network.first(gradient)[...] += 2.0 * problem.proximal * away
        return value + problem.proximal * float((away * away).sum()), gradient

    theta = minimise(
        objective,
        start,
        free_parameters(network, problem.masks),
        first_layer_sparsity(network, problem.masks, problem.sparsity),
        problem.max_iterations,
    ).theta
    norms = problem.averaging == "norms"
    shared = network.squared_norms(theta) if norms else network.first(theta).copy()
    return ClientState(theta, broadcast.round), Upload(shared, loss.squared_slopes(theta))
