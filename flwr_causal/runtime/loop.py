"""The loop over the rounds, the same for every method and every engine."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from logging import INFO
from typing import TYPE_CHECKING, Any, Generic

from flwr.app import ConfigRecord
from flwr.supercore import log

from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import CausalError, ConfigError
from flwr_causal.protocol import wire
from flwr_causal.runtime.schema import exchange_schema
from flwr_causal.strategies.base import CausalStrategy, StateT

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
    from numpy.typing import NDArray

    from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.federation import Failure, Federation, Party

    Record = dict[str, Any]
    OnRound = Callable[[Record], None]


@dataclass
class Outcome(Generic[StateT]):
    """What a run has come to; after an error, what it had come to by then.

    Parameters
    ----------
    history : list of dict
        One record a round: ``round``, ``phase``, ``seconds``, ``parties``, ``bytes_sent``,
        ``bytes_received`` and the method's own diagnostics.
    stop_reason : str
        Why the run ended, in words.
    schema_bytes : int
        Bytes of the schema exchange, both ways, with its answer that travels with a party's first
        message.
    """

    history: list[Record] = field(default_factory=list)
    stop_reason: str = ""
    schema_bytes: int = 0
    seconds: float = 0.0
    graph: CausalGraph | None = None
    model: Any = None
    scores: NDArray[np.float64] | None = None
    heterogeneity: Heterogeneity | None = None
    state: StateT | None = None
    agreement: Agreement | None = None
    parties: tuple[Party, ...] = ()
    failures: tuple[Failure, ...] = ()
    warnings: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def rounds(self) -> int:
        """Exchanges after the schema exchange."""
        return len(self.history)

    @property
    def bytes_sent(self) -> int:
        """Bytes from the server to the parties, all together, schema exchange excluded."""
        return sum(record["bytes_sent"] for record in self.history)

    @property
    def bytes_received(self) -> int:
        """Bytes from the parties to the server, all together, schema exchange excluded."""
        return sum(record["bytes_received"] for record in self.history)


def run(
    method: CausalStrategy[StateT],
    grid: Grid,
    *,
    strategy: Strategy | None = None,
    state: StateT | None = None,
    config: dict[str, wire.Value] | None = None,
    settle: float = 0.0,
    on_round: OnRound | None = None,
) -> Outcome[StateT]:
    """Run a method over the nodes of a grid, from the schema exchange to the graph.

    Parameters
    ----------
    method : CausalStrategy
        The method.
    grid : Grid
        Flower's grid, or a ``LocalGrid``.
    strategy : Strategy, optional
        One of Flower's differential-privacy wrappers around ``method``; None for the method itself.
    state : StateT, optional
        A saved state to go on from; the parties are asked for their schema again.
    config : dict, optional
        Further plain values that go to the clients with each message.
    settle : float, default 0.0
        Seconds for which the number of connected nodes must stay the same before the start.
    on_round : callable, optional
        Called with the record of each round, for progress bars and logs.

    Returns
    -------
    Outcome

    Raises
    ------
    ConfigError
        If ``strategy`` is not a wrapper around ``method``, or cannot be one.
    DataError
        If the parties' data cannot be used.
    FederationError
        If too few parties reply. ``error.outcome`` holds what was done so far.
    """
    outcome: Outcome[StateT] = Outcome()
    started = time.perf_counter()
    try:
        _check_wrapper(method, strategy)
        federation, agreement, outcome.schema_bytes = exchange_schema(method, grid, settle=settle)
        outcome.agreement, outcome.parties = agreement, federation.parties
        outcome.warnings = list(agreement.warnings)
        method.federation, method.grid = federation, grid
        with single_threaded():
            method.state = method.init(agreement) if state is None else state
        _rounds(method, strategy or method, grid, federation, outcome, config or {}, on_round)
    except CausalError as error:
        outcome.error = str(error)
        outcome.stop_reason = f"failed: {error}"
        error.outcome = outcome
        raise
    finally:
        _conclude(method, outcome, time.perf_counter() - started)
    log(INFO, "Stopped after %d rounds: %s", outcome.rounds, outcome.stop_reason)
    return outcome


def _rounds(
    method: CausalStrategy[StateT],
    strategy: Strategy,
    grid: Grid,
    federation: Federation,
    outcome: Outcome[StateT],
    config: dict[str, wire.Value],
    on_round: OnRound | None,
) -> None:
    """Exchange and step until the method has finished."""
    assert method.state is not None
    while (reason := method.finished(method.state)) is None:
        record = _one_round(method, strategy, grid, federation, outcome, config)
        outcome.history.append(record)
        if on_round is not None:
            on_round(record)
    outcome.stop_reason = reason


def _one_round(
    method: CausalStrategy[StateT],
    strategy: Strategy,
    grid: Grid,
    federation: Federation,
    outcome: Outcome[StateT],
    config: dict[str, wire.Value],
) -> Record:
    """Exchange and step once; return the record of the round.

    A function of its own: the replies of a large federation weigh more than everything else, and
    are gone from memory before those of the next round arrive.
    """
    assert method.state is not None
    started = time.perf_counter()
    server_round = outcome.rounds + 1
    arrays = wire.pack_arrays(method.broadcast(method.state), method.precision)
    if strategy is not method and not arrays:
        raise ConfigError(
            f"{type(strategy).__name__} clips what a party changes in the arrays that it was "
            f"sent, but {type(method).__name__} sends none. Run it without the wrapper."
        )
    phase = method.instructions(method.state).get("phase", "train")
    messages = strategy.configure_train(server_round, arrays, ConfigRecord({**config}), grid)
    exchange = federation.exchange(
        grid,
        messages,
        server_round=server_round,
        timeout=method.round_timeout,
        needed=federation.needed(method.fraction_train, method.quorum),
    )
    with single_threaded():
        method.state, info = method.absorb(strategy, server_round, exchange.replies)
    outcome.schema_bytes += exchange.setup_bytes
    return {
        "round": server_round,
        "phase": phase,
        **info,
        "parties": len(exchange.replies),
        "seconds": time.perf_counter() - started,
        "bytes_sent": exchange.bytes_sent - exchange.setup_bytes,
        "bytes_received": exchange.bytes_received,
    }


def _conclude(method: CausalStrategy[StateT], outcome: Outcome[StateT], seconds: float) -> None:
    """Take over what the last good state says, also after an error."""
    outcome.seconds = seconds
    if method.federation is not None:
        outcome.failures = tuple(method.federation.failures)
    state, method.state = method.state, None
    outcome.state = state
    if state is not None:
        with single_threaded():
            outcome.graph = method.graph(state)
            outcome.model = method.model(state)
            outcome.scores = method.scores(state)
            outcome.heterogeneity = method.heterogeneity(state)
            outcome.warnings += method.warnings(state)
    method.federation, method.grid = None, None


def _check_wrapper(method: object, strategy: Strategy | None) -> None:
    """Refuse a wrapper that stands around another method."""
    inner: object = strategy
    while inner is not None and inner is not method:
        inner = getattr(inner, "strategy", None)
    if strategy is not None and inner is None:
        raise ConfigError(
            f"The strategy {strategy!r} does not wrap the method {method!r}: build the wrapper "
            "around the very object that is given as 'method'."
        )
