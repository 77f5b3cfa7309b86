"""What a method's server side yields and returns: the words of its generator ``train``.

The generator reads as the paper's algorithm. It yields an :class:`Ask` for each exchange and is
given the combined replies; what it knows are its local variables. Parts that methods share are
generators too, used by ``yield from``. It returns a :class:`Result`. A
:class:`~flwr_causal.runtime.training.Training` drives it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from flwr_causal.contract.exchange import Exchange
from flwr_causal.core.arguments import FLAG, FUNCTION, Form, check_fields, instance, or_none
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.nonlinear.heterogeneity import Heterogeneity
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


_ASK = {
    "exchange": instance(Exchange, "an Exchange of the method's contract"),
    **dict.fromkeys(("values", "own"), instance(Mapping, "a dict by names")),
    "parties": Form(
        "a collection of names, or None",
        lambda value: isinstance(value, Collection | None) and not isinstance(value, str),
    ),
    "graph_stands": FLAG,
    "so_far": or_none(FUNCTION),
    "shared": FLAG,
}


@dataclass(frozen=True, eq=False)
class Ask:
    """One exchange that a training asks for: what the parties are sent.

    Parameters
    ----------
    exchange : Exchange
        One of the method's contract.
    values : mapping of str to ndarray, number or text
        What every party is sent, by the names of ``exchange.sends``.
    own : mapping of str to mapping, optional
        By party, or by group where parties add up in groups, what only this one is sent; it is
        added to ``values``, or replaces them. A party is not sent what is None here.
    parties : collection of str, optional
        The names of the parties or groups that are asked. Default: all of them.
    graph_stands : bool, default False
        Whether the replies do not change the graph any more. Replicates and trainings without a
        party end here: their graphs alone count.
    so_far : callable, optional
        Returns the result that stands if the run ends here. Default: that of the request before.
    shared : bool, default False
        Whether replicates use the main training's replies, as of cut points. Such exchanges come
        before all others.

    Raises
    ------
    ConfigError
        If the exchange does not declare a name.

    Examples
    --------
    >>> from flwr_causal.protocol import Exchange, Sent
    >>> from flwr_causal.strategies import Ask
    >>> exchange = Exchange("step", "a step", sends=(Sent("size", "of the step"),))
    >>> dict(Ask(exchange, {"size": 0.5}).values)  # replies = yield Ask(...)
    {'size': 0.5}
    """

    exchange: Exchange
    values: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parties: Collection[str] | None = None
    graph_stands: bool = False
    so_far: Callable[[], Result] | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        check_fields(self, _ASK)
        declared = {item.name for item in self.exchange.sends}
        for values in (self.values, *self.own.values()):
            for name in values:
                if name not in declared:
                    raise ConfigError(
                        f"The exchange '{self.exchange.name}' does not declare '{name}' among what "
                        f"a party is sent: {sorted(declared) or 'nothing'}. Declare it as Sent."
                    )

    def asks(self, party: str) -> bool:
        """Return whether a party is asked."""
        return self.parties is None or party in self.parties

    def values_for(self, party: str) -> dict[str, Any]:
        """Return everything that a party is sent."""
        values = {**self.values, **self.own.get(party, {})}
        return {name: value for name, value in values.items() if value is not None}


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
Steps: TypeAlias = Generator[Step, Any, Result]


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
