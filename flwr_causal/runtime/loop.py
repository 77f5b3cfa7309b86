"""The loop over the exchanges, the same for every method and every engine."""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.supercore import log

from flwr_causal.core.arguments import Form, check_argument
from flwr_causal.core.limits import noting
from flwr_causal.core.threads import single_threaded
from flwr_causal.data.dictionary.entries import DIGEST, dictionary_digest
from flwr_causal.doubts.parties import odd_parties, party_warnings
from flwr_causal.errors import CausalError, ConfigError, FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.bundle import MAIN, parts_of
from flwr_causal.protocol.replay import REPLAY, packed
from flwr_causal.protocol.replies import Replies
from flwr_causal.runtime.checkpoint import (
    ASSUMED,
    INITIAL,
    WRAPPER,
    Checkpoint,
    CheckpointError,
    KeptExchange,
    digest_of,
    digest_of_request,
    is_resumable,
    results_saved,
)
from flwr_causal.runtime.influence import (
    STANDS_OUT,
    LeaveOneOut,
    influence_warnings,
    known_influence,
    left_out,
)
from flwr_causal.runtime.outcome import Outcome
from flwr_causal.runtime.returning import find_returned, reconnected
from flwr_causal.runtime.round import Round, of_part
from flwr_causal.runtime.schema import agreed, exchange_schema
from flwr_causal.runtime.server_work import server_work
from flwr_causal.runtime.training import Training
from flwr_causal.runtime.wrappers import check_composes, check_wrapper
from flwr_causal.secure.server import SecureSum

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.algorithm import Ask
    from flwr_causal.runtime.federation import Arrival, Collected, Federation, Party, Returned
    from flwr_causal.runtime.method import CausalMethod
    from flwr_causal.runtime.outcome import Entry

    OnRound = Callable[[Entry], None]

# How often a training starts again without a party that was lost, before the run is given up.
MAX_RESTARTS = 3
# What the server keeps in memory to send it to a node that was restarted. Beyond it, such a node
# goes on without what it remembered.
MOST_REMEMBERED = 2**28
# For how long the number of connected nodes must stay the same before a run starts: those of a
# simulation register one after the other, within milliseconds.
SETTLE_SECONDS = 1.0


#: What a run takes as its method: an object of a class of strategies, which is not imported here.
METHOD = Form("a strategy, such as Moments()", lambda value: hasattr(type(value), "_as_run"))
#: What a run takes as its grid.
GRID = Form(
    "Flower's Grid, or a LocalGrid",
    lambda value: hasattr(value, "send_and_receive") and hasattr(value, "get_node_ids"),
)


@single_threaded()
def run(
    method: CausalMethod,
    grid: Grid,
    *,
    strategy: Strategy | None = None,
    state: Training | None = None,
    config: dict[str, records.Value] | None = None,
    settle: float = 0.0,
    on_round: OnRound | None = None,
    initial_arrays: Mapping[str, NDArray[Any]] | None = None,
    write_results: bool = True,
) -> Outcome:
    """Run a method over the nodes of a grid, from the schema exchange to the graph.

    Parameters
    ----------
    method : CausalMethod
        The method.
    grid : Grid
        Flower's grid, or a ``LocalGrid``.
    strategy : Strategy, optional
        One of Flower's differential-privacy wrappers around ``method``; None for the method itself.
    state : Training, optional
        That of another run's outcome, to go on from; the parties are asked for their schema again.
    config : dict, optional
        Further plain values that go to the clients with each message.
    settle : float, default 0.0
        Seconds for which the number of connected nodes must stay the same before the start.
    on_round : callable, optional
        Called with the entry of each exchange, for progress bars and logs.
    initial_arrays : mapping of str to ndarray, optional
        What a method that sends the parties weights starts from, in the units of the weights that
        it returns: ``weights`` (d, d), row causes column, and with lags ``lagged`` (p, d, d).
        Default: the method's own start, such as 0.
    write_results : bool, default True
        With the option ``output_dir``: whether to write the results there in the end. A caller that
        adds metrics to ``outcome.run`` saves it itself.

    Returns
    -------
    Outcome

    Raises
    ------
    ConfigError
        If an argument is of another type; if ``strategy`` is not a wrapper around ``method``, or
        cannot be one.
    DataError
        If the parties' data cannot be used.
    FederationError
        If too few parties reply, or the method does not finish within its exchanges.
        ``error.outcome`` holds what was done so far.
    """
    check_argument("run", "method", method, METHOD)
    check_argument("run", "grid", grid, GRID)
    outcome = Outcome(as_run=method._as_run)
    if method._stepwise is not None:
        method._stepwise.end()
        method._stepwise = None
    # What an earlier run has assumed is not stated by this one.
    method._decide({}, ())
    method._initial = checked_initial(method, initial_arrays) if initial_arrays else {}
    wrapper = "" if strategy is None else type(strategy).__name__
    session = Session(method, strategy or method, grid, outcome, config or {}, wrapper)
    session.write_results = write_results
    with noting(session.note):
        try:
            if strategy is not None:
                check_wrapper(method, strategy)
            session.begin(settle, state)
            while session.training.asked:
                session.check_rounds()
                entry = session.exchange()
                if on_round is not None:
                    on_round(entry)
            session.completed()
        except BaseException as error:
            session.failed(error)
            raise
        finally:
            session.end()
    return outcome


class _Remembered(NamedTuple):
    """A request of which parties remember something, and the parties that answered it."""

    number: int
    request: Ask
    parties: tuple[str, ...]


@dataclass
class Session:
    """A run from the schema exchange to its end.

    Parameters
    ----------
    method : CausalMethod
    strategy : CausalMethod or Strategy
        The method, or the privacy wrapper around it.
    grid : Grid
    outcome : Outcome
        Grows with the run.
    config : dict
        Further plain values for the clients.
    wrapper : str
        The name of the privacy wrapper around the method; empty without one.
    write_results : bool
        Whether the results are written to the directory in the end.
    kept : bool
        Whether the directory has the results of a completed run, whose steps are repeated: they
        stay as they are.
    checkpoint : Checkpoint, optional
        Where the run is kept on disk.
    let_go : callable
        Lets go of that directory.
    resuming : bool
        Whether the run resumes an interrupted one and has not agreed with the parties yet; until
        then the directory is not changed.
    remembered : list of _Remembered
        The exchanges from which parties keep something. Without an ``output_dir`` it is emptied
        once it takes :data:`MOST_REMEMBERED` bytes.
    remembered_bytes : int
    by_party : dict of str to dict
        By party, the arrays of its latest reply with second moments, or of the one by which the
        method compares parties, where single replies are known.
    compared : dict
        What the parties were sent in the exchange by which the method compares them.
    """

    method: CausalMethod
    strategy: Any
    grid: Grid
    outcome: Outcome
    config: dict[str, records.Value]
    wrapper: str = ""
    write_results: bool = True
    kept: bool = False
    checkpoint: Checkpoint | None = None
    let_go: Callable[[], None] = lambda: None
    resuming: bool = False
    remembered: list[_Remembered] = field(default_factory=list)
    remembered_bytes: int = 0
    by_party: dict[str, Arrays] = field(default_factory=dict)
    compared: Mapping[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    @property
    def training(self) -> Training:
        """The generators of the run."""
        state: Training | None = self.method.state
        assert state is not None
        return state

    @property
    def federation(self) -> Federation:
        """The parties."""
        assert self.method._federation is not None
        return self.method._federation

    def note(self, warning: str) -> None:
        """Add a solver's warning to those of the run, once."""
        if warning not in self.outcome.warnings:
            log(WARNING, warning)
            self.outcome.warnings.append(warning)

    def begin(self, settle: float, state: Training | None) -> None:
        """Run the schema exchange, and take the steps of the run that is resumed."""
        method, outcome, checkpoint = self.method, self.outcome, None
        outcome.config = plain_options(method) | ({WRAPPER: self.wrapper} if self.wrapper else {})
        if method.options.output_dir:
            if state is not None:
                raise ConfigError(
                    "A run with 'output_dir' starts from its method's own state: leave "
                    "'output_dir' out, and save the outcome's run."
                )
            if self.wrapper and method.options.resume:
                raise ConfigError(
                    f"{self.wrapper} must not add its noise twice, so that its run cannot be "
                    "resumed: leave the option 'resume' out. 'output_dir' alone writes the results."
                )
            directory = method.options.output_dir
            self.kept = method.options.resume and results_saved(directory)
            if self.kept and not is_resumable(directory):
                raise CheckpointError(
                    f"The run in '{directory}' is completed, and what it could be resumed from is "
                    "gone: load it (Run.load), give another directory, or start anew without "
                    "resume."
                )
            checkpoint = Checkpoint(directory, outcome.config, resume=method.options.resume)
            self.let_go = checkpoint.close
            self.resuming = checkpoint.interrupted
            if not self.resuming:
                self.checkpoint = checkpoint
                self._keep()
        if method.options.private:
            method.release = secrets.token_hex(16) if checkpoint is None else checkpoint.release()
        self._agree(settle, checkpoint, state)
        if checkpoint is not None and self.resuming:
            outcome.history += checkpoint.history
            self.federation.failures += checkpoint.failures
            self._resume(checkpoint.steps())
            self.checkpoint, self.resuming = checkpoint, False

    def _agree(
        self, settle: float, checkpoint: Checkpoint | None = None, state: Training | None = None
    ) -> None:
        """Run the schema exchange and set the first state."""
        method, outcome = self.method, self.outcome
        checkpoint = checkpoint or self.checkpoint
        if checkpoint is not None and checkpoint.interrupted:
            method._decide(*checkpoint.decisions)
            known = checkpoint.parties, checkpoint.reports, checkpoint.total
            federation, agreement, size = reconnected(method, self.grid, *known, settle=settle)
        else:
            federation, agreement, size = exchange_schema(method, self.grid, settle=settle)
        outcome.schema_bytes += size
        if method._decided:
            outcome.config = {**outcome.config, ASSUMED: dict(method._decided)}
        if checkpoint is not None and not self.wrapper:
            federation.setup = checkpoint.agree(
                federation,
                self.config,
                (method._decided, method._assumed),
                outcome.history,
                outcome.failures,
            )
        outcome.groups = {name: list(group) for name, group in agreement.groups.items()}
        outcome.tables = federation.digests
        method._grid = self.grid
        self._train(federation, agreement, state)

    def _train(
        self, federation: Federation, agreement: Agreement, state: Training | None = None
    ) -> None:
        """Begin the training of these parties, or go on with one."""
        method, outcome = self.method, self.outcome
        outcome.agreement, outcome.parties = agreement, federation.parties
        outcome.warnings = list(agreement.warnings)
        outcome.answered = {party.name: 0 for party in federation.parties}
        method._federation = federation
        with server_work(method, "The initial state"):
            method.state = Training(method, agreement) if state is None else state

    def check_rounds(self) -> None:
        """Raise a FederationError if the training has had all exchanges that it may use."""
        method, taken = self.method, 0
        for entry in self.outcome.history:
            taken = 0 if "started_again" in entry else taken + 1
        beyond = method.exchanges_beyond
        if method.options.replicates or method.options.leave_one_out:  # which may begin last
            beyond = method.options.max_rounds + 2 * beyond
        if taken >= method.options.max_rounds + beyond:
            raise FederationError(
                f"The method '{method.method}' has not finished after {taken} exchanges "
                f"(max_rounds={method.options.max_rounds}): raise max_rounds. If no number is "
                "large enough, its train() never returns."
            )

    def exchange(self) -> Entry:
        """Ask the parties once and take the next step; return the entry of the exchange.

        Replies are the largest objects of a run. They are freed before the next exchange.
        """
        method, federation = self.method, self.federation
        started = time.perf_counter()
        if federation.absent:
            self._find(federation.absent, ())
        known_failures = len(federation.failures)
        current = self.next_round()
        number, request, exchange = current.number, current.request, current.exchange
        messages = self.strategy.configure_train(
            number, current.arrays, ConfigRecord({**self.config}), self.grid
        )
        asking = (
            SecureSum.of(method, exchange, messages, number, self._fix)
            if method.options.secure_aggregation and not exchange.open
            else current
        )
        collected = asking.ask(self.grid, messages, method.options.round_timeout, self._find)
        changed = collected.changed if method.options.changed_tables == "restart" else ()
        if not changed:
            federation.check_quorum(collected, self._needed(request), number)
        lost = collected.lost if exchange.same_parties else ()
        if lost and method.options.secure_aggregation:
            raise FederationError(
                f"Exchange {number}: there is no usable reply of {', '.join(lost)}, and with "
                "secure_aggregation the run does not go on without them. "
                f"{federation.latest_reasons()}. Start the run again once all of them can answer."
            )
        info: Mapping[str, Any] = {}
        replies, arrivals = Replies(), cast("Sequence[Arrival]", ())
        if changed or lost:
            info = {"started_again": 1}
            if not changed:
                self._start_again(lost)
        else:
            with server_work(method, f"Exchange {number} ('{exchange.name}')"):
                arrivals = asking.arrivals(collected)
                replies = asking.combined(collected, arrivals)
            info = self.close(current, replies)
        entry = self.recorded(exchange, info, collected, started)
        if not (changed or lost):
            self._look_at_parties(request, arrivals)
        failures = tuple(self.federation.failures[known_failures:])
        if changed:
            self._start_over(changed)
        elif self.checkpoint is not None:
            influence, asked = known_influence(self.outcome), digest_of_request(request)
            step = KeptExchange(entry, lost, failures, replies, influence, asked)
            self._keep(step if exchange.kept and not self.wrapper else None)
        return entry

    def next_round(self) -> Round:
        """Return the exchange that the training asks for next.

        Raises
        ------
        ConfigError
            If the privacy wrapper around the method cannot add its noise to it.
        """
        method, number = self.method, self.outcome.rounds + 1
        with server_work(method, f"Exchange {number}"):
            request = self.training.ask()
        found = method._round = Round(method, self.strategy, request, number)
        if self.wrapper:
            common, _ = records.split(request.values)
            check_composes(method, self.wrapper, request.exchange, list(common))
        return found

    def close(self, current: Round, replies: Replies) -> Mapping[str, Any]:
        """Take the next step on combined replies; return what the history says of it."""
        method = self.method
        with server_work(method, f"Exchange {current.number} ('{current.exchange.name}')"):
            info = self.training.give(replies)
        method._round = None
        self._took_part(current.number, current.request, replies.answered)
        return info

    def recorded(
        self, exchange: Exchange, info: Mapping[str, Any], collected: Collected, started: float
    ) -> Entry:
        """Add an exchange to the history, and return its entry."""
        self.outcome.schema_bytes += collected.setup_bytes
        entry = {
            "round": self.outcome.rounds + 1,
            "exchange": exchange.name,
            **info,
            "parties": len(collected.replies),
            **({"without_groups": collected.without} if collected.without else {}),
            "seconds": time.perf_counter() - started,
            **collected.traffic(),
        }
        self.outcome.history.append(entry)
        return entry

    def _look_at_parties(self, request: Ask, replies: Sequence[Arrival]) -> None:
        """Keep the replies of an exchange of averages, which the parties can be compared by.

        They are known one by one where nothing wraps the method and no secure sum hides them; of
        groups that add up securely they are the groups'. Under other interventions the parties
        differ by design.
        """
        method, exchange = self.method, request.exchange
        compared = exchange.name == method._compared_in
        known = exchange.averaged and self.strategy is method and not self.federation.setup.targets
        part = parts_of(exchange)[0]
        if len(replies) < 2 or not (compared or known) or part.training != MAIN:
            return
        replies = of_part(part, replies)
        if compared:
            self.by_party = {reply.party.name: reply.arrays for reply in replies}
            self.compared = request.values
        if not known:
            return
        # Of a group that lacks a party neither means nor variances are known.
        groups = self.federation.groups
        complete = all(
            reply.count == 1 or len(groups[reply.party.name]) == len(reply.members)
            for reply in replies
        )
        moments = any(item.values == "second-moments" for item in part.exchange.returns)
        if moments and complete:
            self.by_party = {reply.party.name: reply.arrays for reply in replies}
        # Where the training compares the parties itself it says how they differ.
        last = self.outcome.rounds == 1 and not self.training.asked
        if last and not part.exchange.single_means:
            self._weigh(part.exchange, replies)

    def _weigh(self, exchange: Exchange, replies: Sequence[Arrival]) -> None:
        """Prepare the influence of the parties, where the graph follows from this exchange alone.

        It is computed at once where a party stands out, and later only if it is read: it takes
        about as long as the run for each party. A resumed run, which has no single replies, has it
        only where a party stands out.
        """
        method, outcome = self.method, self.outcome
        with server_work(method, "The results after exchange 1"):
            graph = self.training.result.graph
        if graph is None:
            return
        assert outcome.agreement is not None
        left_out = LeaveOneOut.of(method, outcome.agreement, graph, exchange, replies)
        outcome.influence = left_out
        if left_out.largest_distance > STANDS_OUT:
            outcome.warnings += influence_warnings(
                self.outcome.influence, graph, median=method.options.takes_median
            )

    def _keep(self, step: KeptExchange | None = None) -> None:
        """Write the run to its directory."""
        outcome = self.outcome
        if self.method._federation is not None:
            outcome.note_failures(self.federation)
        if self.checkpoint is None or self.kept:
            return
        with self._writing(self.checkpoint, outcome.rounds - 1):
            if step is not None:
                self.checkpoint.exchange(step)
            self.checkpoint.note(outcome.summary(), outcome.history)

    def _fix(self, number: int, sums: Sequence[Sequence[str]]) -> None:
        """Keep which parties are in secure sums; refuse others than before an interruption."""
        if self.checkpoint is not None:
            with self._writing(self.checkpoint, number - 1):
                self.checkpoint.fix(number, sums)

    @contextmanager
    def _writing(self, checkpoint: Checkpoint, number: int) -> Iterator[None]:
        """Let the run go on where the block cannot write: a full disk does not end it."""
        try:
            yield
        except OSError as error:
            warning = (
                f"The run cannot be written to '{checkpoint.directory}' ({error.strerror}): it "
                f"goes on, but can be resumed only after exchange {number}. Free the disk."
            )
            self.note(warning)
            self.checkpoint = None

    def _needed(self, request: Ask) -> int:
        """Return how many parties must reply: the quorum, at most all that were asked."""
        quorum = self.federation.needed(
            self.method.options.fraction_train, self.method.options.quorum
        )
        asked = sum(request.asks(label) for label in self.federation.labels.values())
        return quorum if request.parties is None else max(1, min(quorum, asked))

    def _took_part(self, number: int, request: Ask, parties: tuple[str, ...]) -> None:
        """Note whose replies an exchange has used."""
        answered = self.outcome.answered
        for name in parties:
            answered[name] = answered.get(name, 0) + 1
        if request.exchange.same_parties and self.method.options.secure_aggregation:
            self.federation.together = parties
        if not request.exchange.remembered:
            return
        sent = [
            value for each in (request.values, *request.own.values()) for value in each.values()
        ]
        self.remembered_bytes += sum(getattr(value, "nbytes", 0) for value in sent)
        if not self.method.options.output_dir and self.remembered_bytes > MOST_REMEMBERED:
            self.remembered.clear()
        else:
            self.remembered.append(_Remembered(number, request, parties))

    def _find(self, absent: Collection[str], forgotten: Collection[int]) -> Returned:
        """Look for the nodes of absent parties, and give back their memory to those that came."""
        method, federation = self.method, self.federation
        found = find_returned(method, self.grid, federation, absent, forgotten)
        self.outcome.schema_bytes += found.num_bytes
        self.outcome.parties = federation.parties
        # A privacy wrapper's mods at the parties expect nothing but the wrapper's messages.
        if self.strategy is method:
            self._replay([party for party in federation.parties if party.name in found.nodes])
        # Where a node loses its state again, the next message still finds the agreement.
        for name, node_id in found.nodes.items():
            federation.moved(name, node_id)
        return found

    def _start_again(self, lost: Sequence[str]) -> None:
        """Start the training again without the parties that were lost.

        Where an exchange declares ``same_parties``, replies of different sets of parties cannot be
        combined.

        Raises
        ------
        DataError
            If the others' data cannot be used without them.
        FederationError
            If they alone hold a column, or the training has started again too often.
        """
        method, outcome, federation = self.method, self.outcome, self.federation
        assert outcome.agreement is not None
        outcome.lost |= {name: federation.reports[name].rows for name in lost}
        who, number = ", ".join(lost), outcome.rounds + 1
        if outcome.restarts >= MAX_RESTARTS:
            raise FederationError(
                f"Exchange {number}: there is no usable reply of {who}, and the training has "
                f"started again {MAX_RESTARTS} times already. {federation.latest_reasons()}. Start "
                "the run again once all parties can answer."
            )
        parties = [party for party in federation.parties if party.name not in lost]
        others, agreement = agreed(method, parties, federation.reports)
        columns = [name for name in outcome.agreement.names if name not in agreement.names]
        if columns:
            raise FederationError(
                f"Exchange {number}: there is no usable reply of {who}, and no other party holds "
                f"{', '.join(columns)}. {federation.latest_reasons()}. Start the run again once "
                "all parties can answer."
            )
        warning = (
            f"The training started again without {who} after exchange {number}: sums over "
            "different parties cannot be combined."
        )
        own = self._restarting(warning)
        self._train(
            replace(
                others,
                size=federation.size,
                failures=federation.failures,
                connected=federation.connected,
            ),
            agreement,
        )
        outcome.warnings += own

    def _start_over(self, changed: Sequence[str]) -> None:
        """Start the training again with a new schema exchange, since tables have changed.

        Raises
        ------
        DataError
            If the parties' data cannot be used.
        FederationError
            If the training has started again too often, or a party gives no schema.
        """
        outcome, former = self.outcome, self.federation
        who, number = ", ".join(changed), outcome.rounds
        if outcome.restarts > MAX_RESTARTS:
            raise FederationError(
                f"Exchange {number}: the table of {who} has changed, and the training has started "
                f"again {MAX_RESTARTS} times already. Start the run again once the tables stay as "
                "they are."
            )
        warning = (
            f"The training started again after exchange {number}: the table of {who} has changed."
        )
        own = self._restarting(warning)
        outcome.failures = tuple(former.failures)
        self._agree(settle=0.0)
        self.federation.failures = former.failures
        outcome.warnings += own
        self._keep()

    def _restarting(self, warning: str) -> list[str]:
        """Log a restart, drop the requests before it, return the warnings of the run so far."""
        outcome = self.outcome
        assert outcome.agreement is not None
        log(WARNING, warning)
        self.remembered.clear()
        self.remembered_bytes = 0
        self.by_party.clear()
        return [*outcome.warnings[len(outcome.agreement.warnings) :], warning]

    def _resume(self, steps: Iterable[KeptExchange]) -> None:
        """Repeat the steps of the interrupted run; send the parties the requests they need."""
        method, outcome = self.method, self.outcome
        for step in steps:
            self.federation.recall(step.failures, step.replies.answered)
            if step.lost:
                self._start_again(step.lost)
            else:
                with server_work(method, f"Exchange {step.entry['round']}, resumed"):
                    request = self._asked_again(step)
                    self.training.give(step.replies)
                self._took_part(int(step.entry["round"]), request, step.replies.answered)
                outcome.influence = step.influence
                if step.influence:
                    outcome.warnings += influence_warnings(
                        step.influence,
                        self.training.result.graph,
                        median=method.options.takes_median,
                    )
            outcome.history.append(step.entry)
        log(INFO, "Resumed after %d exchanges", outcome.rounds)
        federation = self.federation
        lost = self._replay([party for party in federation.parties if party.has_node])
        for party in federation.parties:
            if party.name in lost:
                federation.left(party)
        absent = ", ".join(party.name for party in federation.parties if not party.has_node)
        if absent and self.training.asked:
            self.note(
                f"The run was resumed after exchange {outcome.rounds} without {absent}, which did "
                "not answer."
            )

    def _asked_again(self, step: KeptExchange) -> Ask:
        """Return what the method asks next, which must be what a kept exchange had asked."""
        request = self.training.ask() if self.training.asked else None
        if request is None or digest_of_request(request) != step.asked:
            raise CheckpointError(
                f"The run in '{self.method.options.output_dir}' cannot be resumed: exchange "
                f"{step.entry['round']} asked something else than {type(self.method).__name__} "
                "asks there now. Resume it with the code that it was begun with, or start anew "
                "without resume."
            )
        return request

    def _replay(self, parties: Sequence[Party]) -> tuple[str, ...]:
        """Send parties the earlier requests that they answered and remember.

        Returns
        -------
        tuple of str
            The names of those that gave no reply.
        """
        if not (self.remembered and parties):
            return ()
        method, outcome, number = self.method, self.outcome, self.outcome.rounds
        contents: dict[tuple[object, ...], RecordDict] = {}
        messages, labels = [], self.federation.labels
        for party in parties:
            label = labels[party.name]
            answered = [one for one in self.remembered if party.name in one.parties]
            # Parties that have answered the same requests are sent one content.
            own = any(label in one.request.own for one in answered)
            key = (label if own else "", *(one.number for one in answered))
            if key not in contents:
                contents[key] = self._replayed(label, answered)
            messages.append(
                self.federation.message(
                    party.node_id, contents[key], REPLAY, number, method.options.round_timeout
                )
            )
        # A copy, since a reply to it does not end a row of failures.
        collected = replace(self.federation, failed_in_a_row={}).exchange(
            self.grid,
            REPLAY,
            messages,
            server_round=number,
            timeout=method.options.round_timeout,
        )
        outcome.schema_bytes += (
            collected.bytes_sent + collected.bytes_received + collected.setup_bytes
        )
        return collected.lost

    def _replayed(self, party: str, answered: Sequence[_Remembered]) -> RecordDict:
        method = self.method
        requests = [
            records.request(
                request.exchange.name,
                method.method,
                number,
                request.values_for(party),
                precision=method.options.precision,
                exact=request.exchange.exact,
            )
            for number, request, _ in answered
        ]
        return records.request(
            REPLAY.name, method.method, self.outcome.rounds, packed(requests), config=self.config
        )

    def set_results(self) -> str:
        """Set graph, model and the rest from what the training has found; return why it is over."""
        method, outcome = self.method, self.outcome
        training: Training | None = method.state
        outcome.state = training
        if training is None:
            return ""
        with server_work(method, f"The results after exchange {outcome.rounds}"):
            found, agreement = training.result, training.agreement
            graph = found.graph
            outcome.graph = None if graph is None else method._annotated(graph, agreement)
            total = self.federation.total
            # Rows that several parties have are in the totals as often.
            counted = None if agreement.columns_differ else total
            outcome.num_rows = counted.all.rows if counted else found.num_rows
            outcome.model = method._with_parties(
                agreement, found.model, self.by_party, self.federation.summed_reports
            )
            if method.options.leave_one_out:
                outcome.influence = left_out(training)
            outcome.scores, outcome.heterogeneity = found.scores, found.heterogeneity
            outcome.privacy = dict(found.privacy)
            outcome.warnings += [*method._warnings(graph), *found.warnings]
            outcome.disagreement = method._disagreement(outcome.model, self.by_party, self.compared)
            outcome.warnings += self._odd_parties()
            if method.options.secure_aggregation:
                outcome.warnings += [*self._differences(), *self._without_groups()]
        return found.reason

    def _odd_parties(self) -> list[str]:
        """Return the warnings of parties that differ from the others."""
        outcome, table = self.outcome, self.outcome.disagreement
        if table is None:
            return []
        told = outcome.heterogeneity
        names = () if outcome.graph is None else outcome.graph.names
        found = odd_parties(table, told.targets if told else None, len(names))
        remedies = self.method._for_odd_parties
        return party_warnings(found, list(dict.fromkeys(table["party"])), remedies)

    def _differences(self) -> list[str]:
        """Return the warning of secure sums over different parties."""
        outcome = self.outcome
        some = [name for name, times in outcome.answered.items() if times < outcome.rounds]
        if not some:
            return []
        return [
            f"Some secure sums lack {', '.join(some)}: from the differences between sums over "
            "different parties the server can compute numbers of these parties, see "
            "docs/security.md."
        ]

    def _without_groups(self) -> list[str]:
        """Return the warnings of groups without a sum in some exchanges."""
        missing: dict[str, dict[int, str]] = {}
        for entry in self.outcome.history:
            for name, reason in entry.get("without_groups", {}).items():
                missing.setdefault(name, {})[entry["round"]] = reason
        return [
            f"{name[0].upper() + name[1:]} is missing from {len(reasons)} of "
            f"{self.outcome.rounds} exchanges, first from exchange {next(iter(reasons))}: "
            f"{next(iter(reasons.values()))}."
            for name, reasons in missing.items()
        ]

    def completed(self) -> None:
        """Set the results of a method that has finished."""
        outcome = self.outcome
        reason = self.set_results()
        outcome.stop_reason, outcome.status = reason, "completed"
        log(INFO, "Stopped after %d exchanges: %s", outcome.rounds, reason)

    def failed(self, error: BaseException) -> None:
        """Set what stands after an error, which another one must not hide."""
        outcome = self.outcome
        text = str(error) if isinstance(error, CausalError) else f"{type(error).__name__}: {error}"
        outcome.status = "failed" if isinstance(error, Exception) else "stopped"
        outcome.error, outcome.stop_reason = text, f"{outcome.status}: {text}"
        unused = self.resuming or isinstance(error, CheckpointError)
        if isinstance(error, CausalError) and not unused:
            error.outcome = outcome
        if outcome.status == "stopped":  # nobody is given the results
            return
        try:
            self.set_results()
        except Exception as further:
            outcome.warnings.append(f"The last state gives no complete results: {further}")

    def _write(self, directory: Path) -> None:
        """Write the results; where they cannot be written, what was computed stands."""
        try:
            self.method._write(self.outcome, resumable=not self.wrapper)
        except Exception as error:
            self.note(
                f"The results cannot be written to '{directory}': {error} They are in the outcome."
            )

    def end(self) -> None:
        """Bring the directory up to date, and make the method as good as new."""
        method = self.method
        self.outcome.seconds = time.perf_counter() - self.started
        self._keep()
        self.let_go()
        ended = self.outcome.status in ("completed", "failed")
        if self.checkpoint is not None and self.write_results and ended and not self.kept:
            self._write(self.checkpoint.directory)
        method.state = method._federation = method._grid = method._round = None
        method._initial = {}
        method.release, method._clipping_norm, method._clipping_mod = None, 0.0, ""


def plain_options(method: CausalMethod) -> dict[str, Any]:
    """Return the method's id and its options as plain values."""
    options = {
        name: value if isinstance(value, int | float | str | None) else value.to_dict()
        for name, value in method.options.by_name().items()
    }
    given = {INITIAL: digest_of(method._initial)} if method._initial else {}
    if method.handling.dictionary:
        given[DIGEST] = dictionary_digest(method.handling.dictionary)
    return {"method": method.method, **options, **given}


def checked_initial(
    method: CausalMethod, arrays: Mapping[str, NDArray[Any]]
) -> Mapping[str, NDArray[Any]]:
    """Return the arrays that a run starts from; shapes are checked once the columns are known.

    Raises
    ------
    ConfigError
        If the method cannot start from them.
    """
    names, needed = list(arrays), method._initial_names
    if not needed:
        raise ConfigError(
            f"start({INITIAL}=...) has no meaning for {type(method).__name__} with these options, "
            "which sends the parties no weights to start from; leave it out."
        )
    if needed[0] not in names or not set(names) <= set(needed):
        raise ConfigError(
            f"start({INITIAL}=...) of {type(method).__name__} takes "
            f"{' and '.join(map(repr, needed))}, not {names}."
        )
    for name, array in arrays.items():
        if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
            raise ConfigError(
                f"start({INITIAL}=...): '{name}' must hold finite numbers; check what it was made "
                "from."
            )
    return {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
