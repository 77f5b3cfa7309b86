"""Runs with a faulty party, and their outcomes as codes."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flwr_causal.errors import CausalError
from flwr_causal.protocol import records
from flwr_causal.protocol.bundle import exchange_of
from flwr_causal.simulations.relay import Relay
from flwr_causal.testing.faults import Scene
from flwr_causal.testing.subject import CheckFailedError, CheckSkippedError, distance, own_graphs

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Message
    from flwr.serverapp import Grid

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.reports.run import Run
    from flwr_causal.testing.faults import Fault
    from flwr_causal.testing.subject import Result, Subject

Where = Literal["one exchange", "all exchanges"]
WHERE: tuple[Where, ...] = ("one exchange", "all exchanges")

#: What the codes of a fault table stand for.
CODES = {
    "E": "the run ends with an error that names the party and keeps what was done",
    "N": "the run completes and lists the party's failure",
    "=": "the result is that of the undisturbed run",
    "P": "the reply looks like an honest one, and the result changes",
    "-": "the fault has no meaning for the replies",
    "T": "the run ends with an error that is none of flwr-causal's, or that loses what was done",
    "H": "the run does not end",
    "W": "the run completes, lists nothing, and the result changes",
}
#: The run is given up after so many seconds.
SECONDS = 120.0
#: Results agree if they differ by no more than this, relative to their largest value.
TOLERANCE = 1e-9
#: A party that was left out of some exchanges changes a result by at most this multiple of what it
#: changes if it never takes part.
FARTHEST = 2.0


class FaultyGrid(Relay):
    """A grid in which the replies of the last party are faulty.

    Parameters
    ----------
    grid : Grid
    fault : Fault
    number : int or None
        The number of the exchange with the fault; None: all of them.
    contract : Contract
        Of the method.
    """

    def __init__(self, grid: Grid, fault: Fault, number: int | None, contract: Contract) -> None:
        super().__init__(grid)
        self.fault, self.number, self.contract = fault, number, contract
        #: How often the fault had a meaning for a reply.
        self.applied = 0
        #: The exchanges with a faulty reply.
        self.exchanges: list[Exchange] = []
        self._honest: dict[int, Message] = {}
        self._attempts: dict[int, int] = {}

    def after(self, messages: list[Message], replies: list[Message]) -> list[Message]:
        """Replace the replies of the faulty party."""
        faulty = max(self.grid.get_node_ids())
        sent = {message.metadata.dst_node_id: message for message in messages}
        arrived: list[Message] = []
        for reply in replies:
            if reply.metadata.src_node_id != faulty:
                arrived.append(reply)
                continue
            others = [one for one in replies if one is not reply]
            config = records.config_of(sent[faulty].content)
            number = int(str(config.get(records.NUMBER, 0)))
            arrived += self._disturbed(sent[faulty], reply, number, others)
        return arrived

    def _disturbed(
        self, request: Message, reply: Message, number: int, others: list[Message]
    ) -> list[Message]:
        """Return the reply that arrives in place of a party's own."""
        attempt = self._attempts[number] = self._attempts.get(number, 0) + 1
        earlier = [self._honest[one] for one in sorted(self._honest) if one < number]
        self._honest[number] = reply
        change = None
        if self.fault.schema:
            change = self.fault.arrives if number == 0 else None
            once = self.number is not None
        else:
            once = self.fault.once
            if number and self.number in (None, number):
                change = self.fault.arrives
            elif self.number == number - 1:
                change, once = self.fault.afterwards, True
        if change is None or not reply.has_content() or (once and attempt > 1):
            return [reply]
        exchange = (
            exchange_of(self.contract, records.config_of(request.content)) if number else None
        )
        scene = Scene(
            request,
            reply,
            earlier[-1] if earlier else None,
            others[0] if others else None,
            exchange,
        )
        arrived = change(scene)
        if arrived is None:
            return [reply]
        self.applied += 1
        if exchange is not None:
            self.exchanges.append(exchange)
        return list(arrived)


@dataclass
class _Trial:
    """A run in a thread of its own, so that one that never ends can be given up."""

    subject: Subject
    run: Run | None = None
    result: Result | None = None
    error: BaseException | None = None

    def ends_within(self, seconds: float, wrap_grid: Callable[[Any], FaultyGrid]) -> bool:
        """Run, and return whether that ended in time."""

        def work() -> None:
            try:
                self.run = self.subject.simulate(wrap_grid=wrap_grid)
                # A model may have to ask the parties, through the same grid.
                self.result = {**self.subject.result(self.run), **own_graphs(self.run)}
            except BaseException as error:
                self.error = error

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(seconds)
        return not thread.is_alive()


def check_fault(subject: Subject, fault: Fault, where: Where) -> str:
    """Run with a faulty party and return the code of the outcome.

    Raises
    ------
    CheckFailedError
        With ``code`` T, H or W.
    CheckSkippedError
        If the fault has no meaning for the party's replies.
    """
    if len(subject.parties) < 2:
        raise CheckSkippedError("needs two parties")
    clean, _ = subject.run()
    number = min(2, clean.rounds) if where == "one exchange" else None
    grids: list[FaultyGrid] = []

    def faulty(grid: Any) -> FaultyGrid:
        grids.append(FaultyGrid(grid, fault, number, subject.strategy.contract))
        return grids[0]

    trial = _Trial(subject)
    if not trial.ends_within(SECONDS, faulty):
        raise CheckFailedError(f"no end within {SECONDS:g} s", "H")
    if grids and not grids[0].applied:
        raise CheckSkippedError("the fault has no meaning for the replies", "-")
    name = list(clean.parties)[-1]
    if trial.error is not None:
        names = () if fault.lie else (name, f"node {max(grids[0].grid.get_node_ids())}")
        return _code_of_error(trial.error, names, training=trial.run is None)
    assert trial.run is not None
    assert trial.result is not None
    return _code_of_result(subject, fault, grids[0], trial.run, trial.result)


def _code_of_error(error: BaseException, names: tuple[str, ...], *, training: bool) -> str:
    """Return the code of a run that has raised; its message must have one of the names.

    Where a query to the trained model has raised, there is nothing else to be kept.
    """
    if not isinstance(error, CausalError):
        raise CheckFailedError(f"{type(error).__name__}: {error}", "T") from error
    if training and getattr(error, "outcome", None) is None:
        raise CheckFailedError(f"the error does not keep what was done: {error}", "T") from error
    if names and not any(name in str(error) for name in names):
        raise CheckFailedError(f"the error does not name {names[0]}: {error}", "T") from error
    return "E"


def _code_of_result(
    subject: Subject, fault: Fault, grid: FaultyGrid, run: Run, result: Result
) -> str:
    """Return the code of a run that has completed."""
    clean, name = subject.run()[0], list(subject.run()[0].parties)[-1]
    lists = any(failure["party"] == name for failure in run.failures) or any(
        name in warning for warning in set(run.warnings) - set(clean.warnings)
    )
    apart, text = distance(subject.undisturbed, result)
    if apart <= TOLERANCE:
        return "N" if lists else "="
    if fault.lie:
        return "N" if lists else "P"
    if not lists:
        raise CheckFailedError(f"nothing is listed, but {text}", "W")
    without = subject.without_last
    if without is None:
        raise CheckFailedError(f"the other parties cannot run alone, but {text}", "W")
    from_without, text = distance(without, result)
    if from_without <= TOLERANCE:
        return "N"
    for exchange in grid.exchanges:
        if exchange.same_parties:
            raise CheckFailedError(
                f"{name} was lost in the exchange '{exchange.name}', but the result is not that "
                f"of the others: {text}",
                "W",
            )
        combined = any(item.combine != "each" for item in exchange.returns)
        bound = FARTHEST * distance(subject.undisturbed, without)[0]
        if combined and min(apart, from_without) > bound:
            raise CheckFailedError(
                f"sums or means without {name} in the exchange '{exchange.name}' give a result "
                f"that is far from that of all parties and from that of the others: {text}",
                "W",
            )
    return "N"
