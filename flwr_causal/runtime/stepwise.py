"""A run whose loop is Flower's: the ``start`` of a strategy of Flower's around a method.

``Strategy.start`` calls, in each of its rounds, ``configure_train``, the grid, ``aggregate_train``
and ``configure_evaluate``. The wrapper adds its noise after the method's ``aggregate_train``, so
that the method sees the mean with noise in ``configure_evaluate``, and takes its step there. What
is sent is not what the round before returned: the arrays that Flower hands to ``configure_train``
are replaced in place, since a wrapper clips what a party changes in them.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, MetricRecord
from flwr.supercore import log

from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import FederationError
from flwr_causal.protocol import door, records
from flwr_causal.protocol.replies import Replies
from flwr_causal.runtime import loop
from flwr_causal.runtime.federation import Arrival, Collected, setup_bytes
from flwr_causal.runtime.loop import Session, checked_initial
from flwr_causal.runtime.outcome import Outcome, numbers_of, weights_of
from flwr_causal.runtime.wrappers import check_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.serverapp import Grid

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.runtime.federation import Party
    from flwr_causal.runtime.method import CausalMethod
    from flwr_causal.runtime.round import Round

#: How a message names the strategy around the method, which the method does not know.
WRAPPER = "The strategy around it"
ATTEMPTS = 2
INSTEAD = "use run(method, grid, strategy=wrapper) of flwr_causal.strategies"


class Stepwise:
    """A run from the first ``configure_train`` of a wrapper's ``start`` to its last round.

    Parameters
    ----------
    method : CausalMethod
    config : ConfigRecord
        Of the first round; a client-side wrapper has put its norm there.
    grid : Grid
    initial_arrays : ArrayRecord
        Of ``start``; empty for the method's own start.
    """

    def __init__(
        self, method: CausalMethod, config: ConfigRecord, grid: Grid, initial_arrays: ArrayRecord
    ) -> None:
        self.method, self.outcome = method, Outcome(as_run=method._as_run)
        self.session = Session(method, method, grid, self.outcome, {}, WRAPPER)
        #: The exchange at present, what each node is sent in it, and what came back.
        self.round: Round
        self.arrays = ArrayRecord()
        self.sent: dict[int, RecordDict] = {}
        self.contents: list[RecordDict] | None = None
        self.metrics = MetricRecord({})
        self.failed_rounds = 0
        self.started = 0.0
        norm = config.get(records.CLIPPING_NORM)
        with self._step():
            if isinstance(norm, int | float):
                method._clipping_norm = float(norm)
            check_wrapped(method, WRAPPER)
            initial = records.unpack_arrays(initial_arrays)
            method._initial = checked_initial(method, initial) if initial else {}
            self.session.begin(loop.SETTLE_SECONDS, None)
        self.federation = self.session.federation
        log(
            INFO,
            "%s may need %d rounds: give start(num_rounds=...) as many",
            type(method).__name__,
            method.options.max_rounds + method.exchanges_beyond,
        )

    @contextmanager
    def _step(self) -> Iterator[None]:
        try:
            with single_threaded():
                yield
        except BaseException as error:
            self.session.failed(error)
            self.session.end()
            raise

    def configure(self, arrays: ArrayRecord, config: ConfigRecord) -> list[Message]:
        """Return the messages of a round; ``arrays`` then holds what they send.

        After the end the last request is repeated: wrappers with adaptive clipping cannot go
        through a round without replies.
        """
        running = self.outcome.status == "running"
        if running and not self.failed_rounds:
            with self._step():
                self.session.check_rounds()
                self._ask(dict(config))
        self.contents, self.started = None, time.perf_counter()
        _fill(arrays, self.arrays)
        timeout, number = self.method.options.round_timeout, self.round.number
        # Each message holds the agreement: replies of nodes that lost it cannot be told here.
        return [
            self.federation.message(node_id, content, self.round.exchange, number, timeout)
            for node_id, content in self.sent.items()
        ]

    def _ask(self, config: dict[str, Any]) -> None:
        self.round = self.session.next_round()
        self.arrays = self.round.arrays
        messages = self.round.messages(self.arrays, config)
        self.sent = {one.metadata.dst_node_id: one.content for one in messages}

    @property
    def parties(self) -> list[Party]:
        """The parties that are asked."""
        return [one for one in self.federation.parties if one.node_id in self.sent]

    def averaged(self, contents: list[RecordDict]) -> MetricRecord:
        """Take the replies that FedAvg has averaged; return the record of the round's metrics.

        FedAvg hands them to its ``train_metrics_aggr_fn``. The record is filled with the step.
        """
        self.contents, self.metrics = contents, MetricRecord({})
        return self.metrics

    def evaluated(self, arrays: ArrayRecord) -> None:
        """Take the method's step on the mean; ``arrays`` then holds the weights of the graph."""
        outcome = self.outcome
        if outcome.status == "running":
            with self._step():
                if self.contents is None or len(self.contents) < len(self.parties):
                    self._note_failure()
                else:
                    self._close(self.contents, records.unpack_arrays(arrays))
                training = self.session.training
                outcome.graph = training.result.graph
                if not training.asked:
                    self.session.completed()
                    self.session.end()
        _fill(arrays, weights_of(outcome.graph))

    def end(self) -> None:
        """Let go of a run that its ``start`` has left before the method had finished."""
        if self.outcome.status == "running":
            self.session.end()

    def _note_failure(self) -> None:
        self.failed_rounds += 1
        answered = 0 if self.contents is None else len(self.contents)
        reason = (
            f"Exchange {self.round.number}: the mean of {len(self.parties)} parties is not there, "
            f"but of {answered}; Flower's log has the errors"
        )
        if self.failed_rounds == ATTEMPTS:
            raise FederationError(
                f"{reason}. A wrapper's start cannot go on without a party: start again once all "
                f"of them answer, or {INSTEAD}, which can."
            )
        log(WARNING, "%s. The parties are asked again.", reason)

    def _close(self, contents: list[RecordDict], means: Arrays) -> None:
        self.failed_rounds = 0
        parties = self.parties
        self._check_replies(contents)
        sent = {party.name: records.num_bytes(self.sent[party.node_id]) for party in parties}
        setup = {party.name: setup_bytes(self.sent[party.node_id]) for party in parties}
        collected = Collected(
            sent={name: size - setup[name] for name, size in sent.items()},
            # Parties return arrays of the same shapes.
            received={
                party.name: records.num_bytes(content)
                for party, content in zip(parties, contents, strict=True)
            },
            setup_bytes=sum(setup.values()),
            replies=[Arrival(party, {}) for party in parties],
        )
        info = self.session.close(self.round, Replies(tuple(sent), means))
        entry = self.session.recorded(self.round.exchange, info, collected, self.started)
        self.metrics.update(MetricRecord(numbers_of(entry)))

    def _check_replies(self, contents: list[RecordDict]) -> None:
        """Refuse undeclared parts of replies; the error cannot name the party."""
        exchange, number, federation = self.round.exchange, self.round.number, self.federation
        by_rows = exchange.weight == "rows"
        expected = sorted(party.num_rows if by_rows else 1 for party in self.parties)
        agreed = federation.contract.sizes(federation.setup, 0)
        agreed.pop("n")
        sent = next(iter(self.sent.values()))
        sizes = door.sizes_of(exchange, sent, agreed)
        # FedAvg has checked that they are there.
        given = [float(content[records.METRICS][records.WEIGHT]) for content in contents]  # type: ignore[arg-type]
        for content, weight in zip(contents, given, strict=True):
            try:
                arrays = door.accepted(exchange, content, sizes, weight=weight, number=number)
                door.check_clipped(sent, arrays)
            except door.RefusedError as error:
                raise FederationError(
                    f"Exchange {number}: a reply was refused: {error}. Start again without "
                    f"this node, or {INSTEAD}, which names it and goes on without it."
                ) from None
        if sorted(given) != expected:
            raise FederationError(
                f"Exchange {number}: the weights of the replies are {sorted(given)}, those of "
                f"the schema exchange {expected}; a table may have changed since. Start again."
            )


def _fill(arrays: ArrayRecord, values: ArrayRecord) -> None:
    arrays.clear()
    arrays.update(values)
