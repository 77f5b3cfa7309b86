"""The engine: a run's generators ``train``, taken through their exchanges side by side.

A :class:`Training` drives the main generator and, with the options ``replicates`` and
``leave_one_out``, further ones: on resampled rows, and without single parties. All ask in the same
exchanges; one that has finished waits for the others. Methods and clients need nothing for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.arguments import shown
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.interventions.targets import with_shares
from flwr_causal.core.limits import each
from flwr_causal.errors import CausalError, ConfigError, DeadlineError
from flwr_causal.protocol.bundle import MAIN, BundlePart, TrainingName, bundle_of, head_of
from flwr_causal.runtime.algorithm import Ask, Choice, Note, Result

if TYPE_CHECKING:
    from flwr_causal.core.nonlinear.heterogeneity import Heterogeneity
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Step, Steps
    from flwr_causal.runtime.method import CausalMethod

#: A party's rows for each replicate, below which a warning is given: so many sums over few rows may
#: be solved for the rows.
ROWS_PER_REPLICATE = 10
NOTHING = Result()


class Stop(NamedTuple):
    """Where a generator has stopped; it goes on once from there.

    Parameters
    ----------
    steps : generator
    ask : Ask or None
        What it asks; None at its end, or before it has begun.
    so_far : callable
        Returns what it has found, at the end or so far.
    chosen : int
        How many choices it has had.
    info : dict
        What the history says of the exchange before.
    """

    steps: Steps
    ask: Ask | None = None
    so_far: Callable[[], Result] = lambda: NOTHING
    chosen: int = 0
    info: Mapping[str, Any] = {}


@dataclass(eq=False)
class Training:
    """The generators of a run.

    Parameters
    ----------
    method : CausalMethod
        Its options ``replicates`` and ``leave_one_out`` say which generators there are.
    agreement : Agreement
        The columns that all parties use, and what is known of them.
    alone : bool, default False
        Whether there is the main generator only.

    Attributes
    ----------
    asked : dict of TrainingName to Ask
        By training, what those ask that have not finished. The run is over once it is empty.
    failed : dict of TrainingName to str
        The further trainings that the method could not fit, with the reason.

    Raises
    ------
    ConfigError
        If the method's options do not fit the agreement, or its ``train`` yields or returns
        something else than it may.
    """

    method: CausalMethod
    agreement: Agreement
    alone: bool = False

    def __post_init__(self) -> None:
        options = self.method.options
        #: The replies to the main generator's shared requests, and what it has chosen.
        self._shared: list[Replies] = []
        self._choices: list[Any] = []
        self._replicates = 0 if self.alone else options.replicates
        self._leaves_out = options.leave_one_out and not self.alone
        parties = len(self.agreement.rows)
        places = range(1, 1 + parties) if self._leaves_out and parties > 1 else ()
        names = [MAIN, *(TrainingName(without=place) for place in places)]
        self._stops = {name: self._begin(name) for name in names}
        self._ready(self._stops, {})

    def ask(self) -> Ask:
        """Return what all generators ask next, in one."""
        if list(self.asked) == [MAIN]:
            return self.asked[MAIN]
        rows, seed = self.agreement.rows, self.method.options.seed
        pairs = [(BundlePart(name, one.exchange), one) for name, one in self.asked.items()]
        parts = [part for part, _ in pairs]
        values = {k: v for part, one in pairs for k, v in part.named(one.values).items()}
        own, asked = {}, []
        for party in rows:
            differs = {k: v for p, one in pairs for k, v in p.named(one.own.get(party, {})).items()}
            told = [part for part, one in pairs if one.asks(party)]
            if told:
                asked.append(party)
            if told and len(told) < len(parts):
                for part, one in pairs:
                    if part not in told:
                        differs |= part.named(dict.fromkeys(one.values))
                differs |= head_of(told, seed)
            if differs:
                own[party] = differs
        whole = None if len(asked) == len(rows) else asked
        return Ask(bundle_of(parts), {**values, **head_of(parts, seed)}, own, whole)

    def give(self, replies: Replies) -> Mapping[str, Any]:
        """Take the generators on with the replies to what they ask, the main one first.

        Where this ends with an error, what was asked and found before stands.

        Parameters
        ----------
        replies : Replies
            Combined as the exchange declares; means after any noise of a privacy wrapper.

        Returns
        -------
        mapping
            What the history says of the exchange: plain numbers and texts.
        """
        stops, failed, info = dict(self._stops), dict(self.failed), dict[str, Any]()
        if MAIN in self.asked:
            own = self._part_of(replies, MAIN)
            stops[MAIN] = self._next(MAIN, stops[MAIN], own)
            if self.asked[MAIN].shared:
                self._shared.append(own)
            info = dict(stops[MAIN].info)
        further = [name for name in self.asked if name != MAIN]
        for name in each("further trainings after their replies", further):
            own = self._part_of(replies, name)
            if not own.parties:
                failed[name] = "none of its parties replied"
                continue
            with _fitting(failed, name):
                stops[name] = self._next(name, stops[name], own)
        self._ready(stops, failed)
        return info

    @property
    def result(self) -> Result:
        """What the main generator has found, at its end or so far, with what the others add."""
        found = self._stops[MAIN].so_far()
        if not (self._replicates or self._leaves_out):
            return found
        fitted = [name for name in self._stops if name.replicate and name not in self.failed]
        others = [self._stops[name].so_far() for name in each("graphs of trainings", fitted)]
        graphs = [one.graph for one in others if one.graph is not None]
        return replace(
            found,
            graph=found.graph.with_confidence(graphs) if found.graph and graphs else found.graph,
            heterogeneity=_with_shares(found.heterogeneity, others),
            warnings=(*found.warnings, *self._warnings()),
        )

    def without(self) -> dict[str, CausalGraph]:
        """Return by party the graph of the training without it."""
        parties = list(self.agreement.rows)
        return {
            parties[name.without - 1]: graph
            for name, stop in self._stops.items()
            if name.without and name not in self.failed
            if (graph := stop.so_far().graph) is not None
        }

    def _ready(self, stops: dict[TrainingName, Stop], failed: dict[TrainingName, str]) -> None:
        """Set where the generators are; begin the replicates once there is what they share."""
        begun = any(name.replicate for name in (*stops, *failed))
        waiting = [] if begun else [TrainingName(replicate=1 + k) for k in range(self._replicates)]
        further, unfit = dict[TrainingName, Stop](), dict[TrainingName, str]()
        for name in waiting:
            with _fitting(unfit, name):
                stop = self._begin(name)
                for replies in self._shared:
                    stop = self._next(name, stop, replies)
                if stop.ask is not None and stop.ask.shared:
                    break
                further[name] = stop
        else:
            stops, failed = stops | further, failed | unfit
        asking = {
            name: stop.ask
            for name, stop in stops.items()
            if stop.ask is not None and name not in failed
        }
        for name in each("what further trainings ask", [name for name in asking if name != MAIN]):
            if asking[name].graph_stands:
                del asking[name]
            else:
                asking[name] = self._among(name, asking[name])
        self._stops, self.failed, self.asked = stops, failed, asking

    def _part_of(self, replies: Replies, name: TrainingName) -> Replies:
        """Return the replies to what one training asks."""
        if list(self.asked) == [MAIN]:
            return replies
        ask = self.asked[name]
        parties = [party for party in self.agreement.rows if ask.asks(party)]
        return BundlePart(name, ask.exchange).replies(replies, parties)

    def _taking_part(self, name: TrainingName) -> list[str]:
        """Return the parties of a training, in their order."""
        parties, options = list(self.agreement.rows), self.method.options
        if name.replicate and options.resample == "parties":
            return drawn_parties(parties, options.seed, name.replicate)
        return [party for place, party in enumerate(parties, 1) if place != name.without]

    def _begin(self, name: TrainingName) -> Stop:
        """Return the first stop of a generator."""
        agreement = self.agreement
        rows = {party: agreement.rows[party] for party in self._taking_part(name)}
        if len(rows) < len(agreement.rows):
            agreement = replace(agreement, rows=rows)
        number = (name.replicate,) if name.replicate else ()
        steps = self.method.train(agreement, *number)
        if not isinstance(steps, Generator):
            raise ConfigError(
                f"{type(self.method).__name__}.train() is no generator: yield an Ask for each "
                "exchange, and return a Result."
            )
        return self._next(name, Stop(steps), None)

    def _among(self, name: TrainingName, ask: Ask) -> Ask:
        """Return what a training asks of those parties alone that take part in it."""
        taking = self._taking_part(name)
        if len(taking) == len(self.agreement.rows):
            return ask
        own = {party: values for party, values in ask.own.items() if party in taking}
        return replace(ask, parties=[one for one in taking if ask.asks(one)], own=own)

    def _next(self, name: TrainingName, stop: Stop, replies: Replies | None) -> Stop:
        """Return the next stop of a generator, given the replies to what it asks."""
        names, info, chosen = self.agreement.names, dict[str, Any](), stop.chosen
        go_on: Callable[[], Step] = partial(stop.steps.send, replies)
        while True:
            try:
                step = go_on()
            except StopIteration as end:
                found = _checked(end.value, names)
                break
            go_on = partial(stop.steps.send, None)
            if isinstance(step, Ask):
                stands = step.so_far
                so_far = stop.so_far if stands is None else partial(_found, stands, names)
                return Stop(stop.steps, step, so_far, chosen, info)
            if isinstance(step, Note):
                info |= _plain(step.info)
            elif isinstance(step, Choice):
                try:
                    go_on = partial(stop.steps.send, self._choice(name, step, chosen))
                except Exception as error:  # as if the generator had computed it
                    go_on = partial(stop.steps.throw, error)
                chosen += 1
            else:
                raise ConfigError(f"train() yielded {step!r}: yield an Ask, a Note or a Choice.")
        return Stop(stop.steps, None, lambda: found, chosen, info)

    def _choice(self, name: TrainingName, choice: Choice, place: int) -> Any:
        if name.replicate:
            # A replicate that needs fewer exchanges is here before the training: it chooses itself.
            known = place < len(self._choices)
            return choice.again(self._choices[place]) if known else choice.compute()
        chosen = choice.compute()
        if name == MAIN:
            self._choices.append(chosen)
        return chosen

    def _warnings(self) -> list[str]:
        """Return what the user should know of the further trainings."""
        rows, replicates = self.agreement.rows, self._replicates
        found, names = [], list(rows)
        without = {one: reason for one, reason in self.failed.items() if one.without}
        unfit = [reason for one, reason in self.failed.items() if one.replicate]
        if without:
            absent = ", ".join(names[one.without - 1] for one in without)
            found.append(
                f"The training without one party could not be fitted for {absent}, which have no "
                f"entry in run.influence: {next(iter(without.values()))}"
            )
        if self._leaves_out and len(rows) == 1:
            found.append(
                "There is one party, and no training without it: 'leave_one_out' has no result."
            )
        if unfit:
            found.append(
                f"{len(unfit)} of {replicates} replicates could not be fitted, "
                f"and do not count in the confidence: {unfit[0]}"
            )
        few = [name for name in rows if 0 < rows[name] < ROWS_PER_REPLICATE * replicates]
        if few:  # of those that withhold their rows, 0, it is not known
            found.append(
                f"{len(few)} of {len(rows)} parties have few rows for "
                f"{replicates} replicates ({few[0]}: {rows[few[0]]} rows): many "
                "sums over the same few rows disclose more of single rows than one sum. Use fewer "
                f"replicates, about one for {ROWS_PER_REPLICATE} rows of a party."
            )
        return found


@contextmanager
def _fitting(failed: dict[TrainingName, str], name: TrainingName) -> Iterator[None]:
    """Note a further training that the method cannot fit, where the block ends with an error."""
    try:
        yield
    except DeadlineError:
        raise
    except (CausalError, ArithmeticError, ValueError) as error:
        failed[name] = str(error)


def _with_shares(found: Heterogeneity | None, replicates: Sequence[Result]) -> Heterogeneity | None:
    """Return how the parties differ, with the replicates' shares of their targets."""
    told = [one.heterogeneity for one in replicates if one.heterogeneity is not None]
    others = [one.targets for one in told if one.targets is not None]
    if found is None or found.targets is None or not others:
        return found
    return found._replace(targets=with_shares(found.targets, others))


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


def _found(so_far: Callable[[], Result], names: Sequence[str]) -> Result:
    return _checked(so_far(), names)


def _checked(result: Any, names: Sequence[str]) -> Result:
    """Return what ``train`` has found, if it is a result over these columns.

    Raises
    ------
    ConfigError
        Naming the field of the result.
    """
    if not isinstance(result, Result):
        raise ConfigError(f"train() returned {result!r}: return a Result.")
    graph, scores, d = result.graph, result.scores, len(names)

    def wrong(field: str, what: str) -> ConfigError:
        return ConfigError(f"The result of train() has {field} that {what}.")

    if graph is not None:
        if not isinstance(graph, CausalGraph):
            raise wrong("a graph", f"is {shown(graph)}: give a CausalGraph")
        if tuple(graph.names) != tuple(names):
            listed = f"{', '.join(graph.names)}; agreed are {', '.join(names)}, in this order"
            raise wrong("a graph", f"is over {listed}")
        if graph.kind == "dag" and not is_acyclic(graph.adjacency):
            raise wrong("a graph", "is called a DAG and has a cycle: break it, or set its kind")
    if scores is not None and np.shape(scores) != (d, d):
        raise wrong("scores", f"have the shape {np.shape(scores)}: a row and a column a variable")
    if isinstance(result.warnings, str) or not all(isinstance(w, str) for w in result.warnings):
        raise wrong("warnings", f"are {shown(result.warnings)}: give a tuple of texts")
    if not isinstance(result.reason, str):
        raise wrong("a reason", f"is {shown(result.reason)}: give a text")
    return result


def _plain(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a Note holds, if the history's file can hold it."""
    for name, value in info.items():
        try:
            json.dumps({name: value})
        except (TypeError, ValueError):
            raise ConfigError(
                f"train() noted '{name}' as {shown(value)}: the history holds numbers, texts, and "
                "lists of them. An array's `tolist()` is one."
            ) from None
    return info
