"""Further trainings of a method in the same exchanges: replicates, and without single parties.

:class:`Trainings` is a method made of another one. It holds a state of the other method for each
training and takes them all through their exchanges side by side; a training that has finished
waits for the others. The other method, and its client, need nothing of their own for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from flwr_causal.core.interventions.targets import with_shares
from flwr_causal.core.limits import each
from flwr_causal.errors import CausalError, DeadlineError
from flwr_causal.protocol.bundle import MAIN, BundlePart, Training, bundle_of, head_of
from flwr_causal.runtime.influence import change_between
from flwr_causal.runtime.method import Method, Request, StateT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pandas as pd
    from flwr.app import ArrayRecord, ConfigRecord, Message
    from flwr.serverapp import Grid
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.nonlinear.heterogeneity import Heterogeneity
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.influence import Influence

# A party's rows for each replicate, below which a warning is given: so many sums over few rows may
# be solved for the rows.
ROWS_PER_REPLICATE = 10


@dataclass(frozen=True, eq=False)
class TrainingsState(Generic[StateT]):
    """The states of all trainings.

    Parameters
    ----------
    states : mapping of Training to StateT
        The main training's, those without single parties, and those of the replicates that have
        begun.
    failed : mapping of Training to str
        The further trainings that the method could not fit, with the reason.
    agreement : Agreement
    """

    states: Mapping[Training, StateT]
    failed: Mapping[Training, str]
    agreement: Agreement

    @property
    def main(self) -> StateT:
        """The state of the training on the parties' own rows."""
        return self.states[MAIN]

    @property
    def rows(self) -> Mapping[str, int]:
        """By party, its number of rows."""
        return self.agreement.rows


class Trainings(Generic[StateT]):
    """A method with bootstrap replicates of itself, and with trainings without single parties.

    It has the attributes of a :class:`Method` with :class:`TrainingsState` as state. What is not
    defined here, such as the options and the parties, is the method's own.

    Parameters
    ----------
    method : Method
        Its option ``replicates`` is their number; ``leave_one_out`` says whether there is a
        training without each party.
    """

    inner: Method[StateT]
    _state: TrainingsState[StateT] | None
    _latest: tuple[object, dict[Training, Request]]

    def __init__(self, method: Method[StateT]) -> None:
        self.inner = method
        self._state = None
        self._latest = (None, {})

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the method itself."""
        if name.startswith("__") or name == "inner":  # of an object that is being copied
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the method itself, such as its parties."""
        own = name == "state" or name in Trainings.__annotations__
        object.__setattr__(self if own else self.inner, name, value)

    @property
    def exchanges_beyond(self) -> int:
        """How many exchanges may be needed beyond ``max_rounds``: replicates may begin last."""
        return int(self.inner.options.max_rounds + 2 * self.inner.exchanges_beyond)

    @property
    def state(self) -> TrainingsState[StateT] | None:
        """The states of all trainings; the method itself has the main one."""
        return self._state

    @state.setter
    def state(self, state: TrainingsState[StateT] | None) -> None:
        """Set the states; the method itself is given the main one."""
        self._state = state
        self.inner.state = None if state is None else state.main

    def _init(self, agreement: Agreement) -> TrainingsState[StateT]:
        """Return the states before the first exchange."""
        states = {MAIN: self.inner._init(agreement)}
        parties = list(agreement.rows)
        if self.options.leave_one_out and len(parties) > 1:
            for place in range(1, 1 + len(parties)):
                without = Training(without=place)
                states[without] = self.inner._init(self._among(without, agreement))
        return self._with_replicates(TrainingsState(states, {}, agreement))

    def _with_replicates(self, state: TrainingsState[StateT]) -> TrainingsState[StateT]:
        """Return the states with the states of replicates added, once replicates can begin."""
        states, failed = dict(state.states), dict(state.failed)
        if any(training.replicate for training in (*states, *failed)):
            return state
        for number in range(1, 1 + self.options.replicates):
            # Each has a state of its own, which may hold a cache.
            agreement = self._among(Training(replicate=number), state.agreement)
            try:
                own = self.inner._replicated(state.main, agreement, number)
            except DeadlineError:
                raise
            except (CausalError, ArithmeticError, ValueError) as error:
                failed[Training(replicate=number)] = str(error)
                continue
            if own is None:
                return state
            states[Training(replicate=number)] = own
        return replace(state, states=states, failed=failed)

    def _among(self, training: Training, agreement: Agreement) -> Agreement:
        """Return the agreement of the parties that take part in a training."""
        parties = list(agreement.rows)
        if training.replicate and self.options.resample == "parties":
            taking = drawn_parties(parties, self.options.seed, training.replicate)
        elif training.without:
            taking = [name for name in parties if name != parties[training.without - 1]]
        else:
            return agreement
        return replace(agreement, rows={name: agreement.rows[name] for name in taking})

    def _request(self, state: TrainingsState[StateT]) -> Request:
        """Return the requests of all trainings that have not finished, in one."""
        requests = self._requests(state)
        if list(requests) == [MAIN]:
            return requests[MAIN]
        parts = [BundlePart(training, request.exchange) for training, request in requests.items()]
        pairs = list(zip(parts, requests.values(), strict=True))
        values = {k: v for part, one in pairs for k, v in part.named(one.values).items()}
        own = {}
        for party in state.rows:
            asked = [part for part, request in pairs if request.asks(party)]
            differs = {k: v for p, one in pairs for k, v in p.named(one.own.get(party, {})).items()}
            if asked and len(asked) < len(parts):
                others = (
                    part.named(dict.fromkeys(request.values))
                    for part, request in pairs
                    if part not in asked
                )
                differs |= {name: None for names in others for name in names}
                differs |= head_of(asked, self.options.seed)
            if differs:
                own[party] = differs
        return Request(
            bundle_of(parts),
            {**values, **head_of(parts, self.options.seed)},
            own,
            _asked_by(requests.values(), state.rows),
        )

    def _requests(self, state: TrainingsState[StateT]) -> dict[Training, Request]:
        """Return by training the requests of those that have not finished."""
        if self._latest[0] is not state:
            running = self._running(state)
            requests = {
                training: _asking(
                    self.inner._request(running[training]),
                    self._among(training, state.agreement).rows,
                    state.rows,
                )
                for training in each("what trainings ask", running)
            }
            self._latest = (state, requests)
        return self._latest[1]

    def _running(self, state: TrainingsState[StateT]) -> dict[Training, StateT]:
        return {
            training: own
            for training, own in state.states.items()
            if training not in state.failed
            and self.inner._finished(own) is None
            and (training == MAIN or not self.inner._request(own).graph_stands)
        }

    def _close(
        self, state: TrainingsState[StateT], replies: Replies
    ) -> tuple[TrainingsState[StateT], dict[str, Any]]:
        """Return the states after an exchange; the main training is the first to be closed."""
        states, failed = dict(state.states), dict(state.failed)
        requests, info = self._requests(state), dict[str, Any]()
        for training in each("trainings after their replies", requests):
            request = requests[training]
            part = BundlePart(training, request.exchange)
            own = part.replies(replies, [party for party in state.rows if request.asks(party)])
            if training == MAIN:
                states[MAIN], info = self.inner._close(state.main, own)
                continue
            if not own.parties:
                failed[training] = "none of its parties replied"
                continue
            try:
                states[training], _ = self.inner._close(states[training], own)
            except DeadlineError:
                raise
            except (CausalError, ArithmeticError, ValueError) as error:
                failed[training] = str(error)
        return self._with_replicates(replace(state, states=states, failed=failed)), info

    def _finished(self, state: TrainingsState[StateT]) -> str | None:
        """Return why the main training is over, once all are."""
        reason = self.inner._finished(state.main)
        return None if reason is None or self._running(state) else reason

    def _graph(self, state: TrainingsState[StateT]) -> CausalGraph | None:
        """Return the main training's graph with the replicates' shares of edges."""
        graph = self.inner._graph(state.main)
        found = [
            replicate
            for training in each("graphs of trainings", state.states)
            if training.replicate
            and training not in state.failed
            and (replicate := self.inner._graph(state.states[training])) is not None
        ]
        return graph if graph is None or not found else graph.with_confidence(found)

    def _annotated(self, state: TrainingsState[StateT], graph: CausalGraph) -> CausalGraph:
        """Return the graph with what the main training knows beside its edges."""
        return self.inner._annotated(state.main, graph)

    def influence(self, state: TrainingsState[StateT]) -> Influence:
        """Return by party the change of the graph in the training without it."""
        graph, parties = self.inner._graph(state.main), list(state.rows)
        found: Influence = {}
        for training, own in state.states.items():
            if training.without and training not in state.failed:
                other = self.inner._graph(own)
                if graph is not None and other is not None:
                    found[parties[training.without - 1]] = change_between(graph, other)
        return found

    def _fitted(self, state: TrainingsState[StateT]) -> Any:
        """Return the main training's model."""
        return self.inner._fitted(state.main)

    def _with_parties(
        self,
        state: TrainingsState[StateT],
        model: Any,
        replies: Mapping[str, Arrays],
        reports: Mapping[str, TableReport],
    ) -> Any:
        """Return the main training's model with what is known of each party."""
        return self.inner._with_parties(state.main, model, replies, reports)

    @property
    def _compared_in(self) -> str:
        """That of the main training."""
        return self.inner._compared_in

    @property
    def _for_odd_parties(self) -> tuple[str, ...]:
        """Those of the main training."""
        return self.inner._for_odd_parties

    def _disagreement(
        self,
        state: TrainingsState[StateT],
        model: Any,
        replies: Mapping[str, Arrays],
        asked: Mapping[str, Any],
    ) -> pd.DataFrame | None:
        """Return how the parties differ by the main training."""
        return self.inner._disagreement(state.main, model, replies, asked)

    def _scores(self, state: TrainingsState[StateT]) -> NDArray[np.float64] | None:
        """Return the main training's strengths of edges."""
        return self.inner._scores(state.main)

    def _heterogeneity(self, state: TrainingsState[StateT]) -> Heterogeneity | None:
        """Return how the parties differ, by the main training, with the replicates' shares."""
        found = self.inner._heterogeneity(state.main)
        if found is None or found.targets is None:
            return found
        replicates = [
            other.targets
            for training, own in state.states.items()
            if training.replicate
            and training not in state.failed
            and (other := self.inner._heterogeneity(own)) is not None
            and other.targets is not None
        ]
        targets = with_shares(found.targets, replicates) if replicates else found.targets
        return found._replace(targets=targets)

    def _privacy(self, state: TrainingsState[StateT]) -> dict[str, Any]:
        """Return the guarantee of differential privacy."""
        return self.inner._privacy(state.main)

    def _num_rows(self, state: TrainingsState[StateT]) -> int | None:
        """Return how many rows the parties have together."""
        return self.inner._num_rows(state.main)

    def _warnings(self, state: TrainingsState[StateT]) -> list[str]:
        """Return the main training's warnings, and those of the replicates."""
        found = list(self.inner._warnings(state.main))
        without = {one: reason for one, reason in state.failed.items() if one.without}
        replicates = {one: reason for one, reason in state.failed.items() if one.replicate}
        if without:
            parties = list(state.rows)
            names = ", ".join(parties[one.without - 1] for one in without)
            found.append(
                f"The training without one party could not be fitted for {names}, which have no "
                f"entry in run.influence: {next(iter(without.values()))}"
            )
        if self.options.leave_one_out and len(state.rows) == 1:
            found.append(
                "There is one party, and no training without it: 'leave_one_out' has no result."
            )
        if replicates:
            reason = next(iter(replicates.values()))
            found.append(
                f"{len(replicates)} of {self.options.replicates} replicates could not be fitted, "
                f"and do not count in the confidence: {reason}"
            )
        few = [
            name
            for name, rows in state.rows.items()
            if 0 < rows < ROWS_PER_REPLICATE * self.options.replicates  # 0: withheld
        ]
        if few:
            found.append(
                f"{len(few)} of {len(state.rows)} parties have few rows for "
                f"{self.options.replicates} replicates ({few[0]}: {state.rows[few[0]]} rows): many "
                "sums over the same few rows disclose more of single rows than one sum. Use fewer "
                f"replicates, about one for {ROWS_PER_REPLICATE} rows of a party."
            )
        return found

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the exchange in progress."""
        return self.inner._messages(self._asked, server_round, arrays, dict(config))

    def main_part(
        self, before: TrainingsState[StateT]
    ) -> tuple[Method[StateT], StateT, BundlePart]:
        """Return the method, its state and its part of an exchange, of the main training."""
        request = self._requests(before)[MAIN]
        return self.inner, before.main, BundlePart(MAIN, request.exchange)


def drawn_parties(parties: Sequence[str], seed: int, replicate: int) -> list[str]:
    """Return the parties that take part in a replicate, in their order.

    Of K parties they are the square root of K, rounded, drawn without replacement: few of those
    that differ are then in one replicate together.

    Parameters
    ----------
    parties : sequence of str
        K names; which are drawn does not depend on their order.
    seed, replicate : int
        They determine the draw.
    """
    count = max(1, round(len(parties) ** 0.5))
    rng = np.random.default_rng([seed, replicate])
    chosen = set(rng.choice(sorted(parties), count, replace=False).tolist())
    return [name for name in parties if name in chosen]


def _asking(request: Request, taking: Collection[str], parties: Collection[str]) -> Request:
    """Return a request of those parties alone that take part in its training."""
    if len(taking) == len(parties):
        return request
    asked = [party for party in parties if party in taking and request.asks(party)]
    own = {party: values for party, values in request.own.items() if party in taking}
    return replace(request, parties=asked, own=own)


def _asked_by(requests: Iterable[Request], parties: Collection[str]) -> list[str] | None:
    """Return the parties that any request asks, None if those are all."""
    asked = [party for party in parties if any(one.asks(party) for one in requests)]
    return None if len(asked) == len(parties) else asked
