"""A method's server side as one generator: what it asks, what it returns, and who runs it.

The generator :meth:`Algorithm.train` reads as the paper's algorithm. It yields an :class:`Ask` for
each exchange and is given the combined replies; what it knows are its local variables. Parts that
methods share are generators too, used by ``yield from``. It returns a :class:`Result`.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from flwr_causal.core.arguments import FLAG, FUNCTION, check_fields, instance, or_none, shown
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.errors import ConfigError
from flwr_causal.runtime.method import Method, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.replies import Replies


@dataclass(frozen=True, eq=False)
class Result:
    """What a training has found, at its end or so far.

    Parameters
    ----------
    graph : CausalGraph or None
    scores : ndarray of shape (d, d), or None
        Strength of every edge before the threshold, for ranking.
    model : object or None
        The fitted model.
    warnings : tuple of str
        What the user should know.
    heterogeneity : Heterogeneity or None
        The parties' own graphs and how they differ from the common one.
    privacy : mapping
        The guarantee of differential privacy in plain values.
    num_rows : int or None
        How many rows the parties have together; None for the sum of their numbers.
    reason : str
        Why the training is over, in words for the user; empty while it goes on.

    Examples
    --------
    >>> from flwr_causal import CausalGraph
    >>> from flwr_causal.strategies import Result
    >>> graph = CausalGraph(("x", "y"), [[0, 1.5], [0, 0]])
    >>> Result(graph, reason="one exchange is enough").graph.edges()
    [('x', 'y', 1.5)]
    """

    graph: CausalGraph | None = None
    scores: NDArray[Any] | None = None
    model: Any = None
    warnings: tuple[str, ...] = ()
    heterogeneity: Heterogeneity | None = None
    privacy: Mapping[str, Any] = field(default_factory=dict)
    num_rows: int | None = None
    reason: str = ""


NOTHING = Result()


@dataclass(frozen=True, eq=False)
class Ask(Request):
    """One exchange that a training asks for.

    Parameters
    ----------
    exchange, values, own, parties, graph_stands
        As of :class:`~flwr_causal.runtime.method.Request`.
    so_far : callable, optional
        Returns the result that stands if the run ends here. Default: that of the request before.
    shared : bool, default False
        Whether replicates use the main training's replies, as of cut points. Such exchanges come
        before all others.

    Examples
    --------
    >>> from flwr_causal.protocol import Exchange, Sent
    >>> from flwr_causal.strategies import Ask
    >>> exchange = Exchange("step", "a step", sends=(Sent("size", "of the step"),))
    >>> dict(Ask(exchange, {"size": 0.5}).values)  # replies = yield Ask(...)
    {'size': 0.5}
    """

    so_far: Callable[[], Result] | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, {"so_far": or_none(FUNCTION), "shared": FLAG})


@dataclass(frozen=True, eq=False)
class Choice:
    """What the main training computes, and replicates take over: penalties, an order, shared rows.

    ``value = yield Choice(compute, again)`` gives the main training ``compute()``. A replicate is
    given ``again(first)`` of what the main training was given at this place.

    Parameters
    ----------
    compute : callable
    again : callable, optional
        Default: replicates are given the same.

    Examples
    --------
    >>> from flwr_causal.strategies import Choice
    >>> choice = Choice(lambda: 0.1)
    >>> choice.again(choice.compute())
    0.1
    """

    compute: Callable[[], Any]
    again: Callable[[Any], Any] = lambda first: first

    def __post_init__(self) -> None:
        check_fields(self, {"compute": FUNCTION, "again": FUNCTION})


@dataclass(frozen=True, eq=False)
class Note:
    """What the history says of the exchange that is done: plain numbers and texts by name.

    ``yield Note(info)``; of two notes of one name the later one stands.

    Examples
    --------
    >>> from flwr_causal.strategies import Note
    >>> dict(Note({"edges": 3}).info)
    {'edges': 3}
    """

    info: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_fields(self, {"info": instance(Mapping, "a dict of plain numbers and texts")})


#: What a training yields.
Step: TypeAlias = Ask | Choice | Note
#: Yields steps, is given the combined replies to what it asks, and returns the result.
Training: TypeAlias = Generator[Step, Any, Result]


ReturnT = TypeVar("ReturnT")


def relayed(
    steps: Generator[Step, Any, ReturnT],
    values: Mapping[str, Any] | None = None,
    *,
    look: Callable[[Replies], None] | None = None,
    so_far: Callable[[], Result] | None = None,
) -> Generator[Step, Any, ReturnT]:
    """Run a part of a training; add to what it asks, look at what it is given.

    Parameters
    ----------
    steps : generator
    values : mapping, optional
        Values that are added to each request whose exchange declares them.
    look : callable, optional
        Called with the replies to each request.
    so_far : callable, optional
        As of :class:`Ask`, for requests without one.
    """
    go_on: Callable[[], Step] = partial(steps.send, None)
    while True:
        try:
            step = go_on()
        except StopIteration as end:
            returned: ReturnT = end.value
            return returned
        if isinstance(step, Ask):
            sends = step.exchange.sends_name
            further = {name: one for name, one in (values or {}).items() if sends(name)}
            said = {**step.values, **further}
            step = replace(step, values=said, so_far=step.so_far or so_far)
        try:
            given = yield step
        except Exception as error:
            go_on = partial(steps.throw, error)
            continue
        if look is not None and isinstance(step, Ask):
            look(given)
        go_on = partial(steps.send, given)


@dataclass(frozen=True, eq=False)
class Progress:
    """The state of a training: what it asks next, or what it has found.

    Parameters
    ----------
    agreement : Agreement
    training : generator
        Where it has stopped; it goes on once from each state.
    shared : list of Replies
        The replies to the main training's shared requests.
    choices : list
        What the main training has chosen.
    replicate : int
        Its number; 0 for the main training.
    chosen : int
        How many choices it has had.
    ask : Ask or None
        What is asked next; None once it is over.
    so_far : callable
        Returns what stands if the run ends here.
    info : dict
        What the history says of the exchange before.
    """

    agreement: Agreement
    training: Training
    shared: list[Replies] = field(default_factory=list)
    choices: list[Any] = field(default_factory=list)
    replicate: int = 0
    chosen: int = 0
    ask: Ask | None = None
    so_far: Callable[[], Result] = lambda: NOTHING
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> Result:
        """What has been found, at the end or so far."""
        return self.so_far()

    def given(self, replies: Replies | None) -> Progress:
        """Return the state after the replies to what is asked; None before the first request."""
        go_on: Callable[[], Step] = partial(self.training.send, replies)
        info: dict[str, Any] = {}
        chosen = self.chosen
        while True:
            try:
                step = go_on()
            except StopIteration as end:
                after = replace(self, ask=None, so_far=self._end(end.value))
                break
            if not isinstance(step, Ask | Note | Choice):
                raise ConfigError(f"train() yielded {step!r}: yield an Ask, a Note or a Choice.")
            go_on = partial(self.training.send, None)
            if isinstance(step, Ask):
                after = replace(self, ask=step, so_far=self._so_far(step))
                break
            if isinstance(step, Note):
                info |= _plain(step.info)
                continue
            try:
                go_on = partial(self.training.send, self._choice(step, chosen))
            except Exception as error:  # as if the training had computed it
                go_on = partial(self.training.throw, error)
            chosen += 1
        return replace(after, chosen=chosen, info=info)

    def _end(self, returned: Any) -> Callable[[], Result]:
        found = _checked(returned, self.agreement.names)
        return lambda: found

    def _so_far(self, ask: Ask) -> Callable[[], Result]:
        given, names = ask.so_far, self.agreement.names
        return self.so_far if given is None else lambda: _checked(given(), names)

    def _choice(self, choice: Choice, place: int) -> Any:
        if self.replicate:
            # A replicate that needs fewer exchanges is here before the training: it chooses itself.
            known = place < len(self.choices)
            return choice.again(self.choices[place]) if known else choice.compute()
        self.choices.append(choice.compute())
        return self.choices[place]


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


class Algorithm(Method[Progress]):
    """Base of the methods whose server side is one generator.

    A subclass sets ``contract`` and implements :meth:`train`. The rest of
    :class:`~flwr_causal.runtime.method.Method` follows from it.
    """

    @abstractmethod
    def train(self, agreement: Agreement, replicate: int = 0) -> Training:
        """Train over the parties: the paper's algorithm.

        It holds no file and no clock, and asks the same for the same replies: an interrupted run is
        resumed by running it again over the replies that were kept.

        Parameters
        ----------
        agreement : Agreement
            The columns that all parties use, and what is known of them.
        replicate : int, default 0
            The number of the replicate; 0 for the main training.

        Yields
        ------
        Ask
            For each exchange; the generator is given the combined
            :class:`~flwr_causal.protocol.replies.Replies`.
        Note
            What the history says of the exchange before.
        Choice
            What replicates take over from the main training.

        Returns
        -------
        Result

        Examples
        --------
        >>> from flwr_causal.strategies import Ask, CausalStrategy, Result
        >>> class Mean(CausalStrategy):
        ...     def train(self, agreement, replicate=0):
        ...         replies = yield Ask(self.contract.exchanges[0])
        ...         return Result(model=replies["mean"])
        """

    def _init(self, agreement: Agreement) -> Progress:
        """Return the state before the first exchange."""
        training = self.train(agreement)
        if not isinstance(training, Generator):
            raise ConfigError(
                f"{type(self).__name__}.train() is no generator: yield an Ask for each exchange, "
                "and return a Result."
            )
        return Progress(agreement, training).given(None)

    def _request(self, state: Progress) -> Request:
        """Return what the parties are sent next."""
        assert state.ask is not None
        return state.ask

    def _close(self, state: Progress, replies: Replies) -> tuple[Progress, dict[str, Any]]:
        """Return the state after an exchange, and what the history says of it."""
        if not state.replicate and state.ask is not None and state.ask.shared:
            state.shared.append(replies)
        after = state.given(replies)
        return after, after.info

    def _finished(self, state: Progress) -> str | None:
        """Return why the training is over, None to go on."""
        return None if state.ask else state.result.reason

    def _replicated(self, state: Progress, agreement: Agreement, number: int) -> Progress | None:
        """Return the state in which a replicate begins: after the requests that it shares."""
        training = self.train(agreement, number)
        own = Progress(agreement, training, choices=state.choices, replicate=number).given(None)
        for replies in state.shared:
            own = own.given(replies)
        return None if own.ask is not None and own.ask.shared else own

    def _graph(self, state: Progress) -> CausalGraph | None:
        """Return the graph, at the end or so far."""
        return state.result.graph

    def _fitted(self, state: Progress) -> Any:
        """Return the fitted model, None without one."""
        return state.result.model

    def _scores(self, state: Progress) -> NDArray[Any] | None:
        """Return the strength of every edge before the threshold."""
        return state.result.scores

    def _heterogeneity(self, state: Progress) -> Heterogeneity | None:
        """Return the parties' own graphs, if known."""
        return state.result.heterogeneity

    def _privacy(self, state: Progress) -> dict[str, Any]:
        """Return the guarantee of differential privacy in plain values."""
        return dict(state.result.privacy)

    def _num_rows(self, state: Progress) -> int | None:
        """Return how many rows the parties have together; None for the sum of their numbers."""
        return state.result.num_rows

    def _warnings(self, state: Progress) -> list[str]:
        """Return what the user should know about the run."""
        return list(state.result.warnings)
