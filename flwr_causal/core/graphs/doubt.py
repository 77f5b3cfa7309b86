"""The edges of a graph that are least certain, and what would decide them."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from flwr_causal.core.graphs.acyclicity import is_acyclic, topological_order
from flwr_causal.core.graphs.adjustment import with_past
from flwr_causal.core.graphs.equivalence import (
    informed_class,
    meek,
    reversible,
    undirected_part,
    with_edge_turned,
)
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph

#: Less doubt than this level needs no decision. A further sample is to find a present edge at this
#: level with this probability.
LEVEL, POWER = 0.05, 0.8
#: How much, about what, and why.
Doubt: TypeAlias = tuple[float, Literal["presence", "direction"], str]
#: What tells directions apart that the independencies leave open.
Evidence: TypeAlias = Literal["independencies", "equal variances", "curves"]
#: Doubt about a direction for which the rows alone give no reason.
OPEN = 0.5
#: On what such a direction rests.
RESTS: dict[Evidence, str] = {
    "independencies": "",
    "equal variances": ", and the graph's rests on the assumption of one noise variance",
    "curves": (
        ", and the graph's rests on the curves of effects: the likelihood of the other one has not "
        "been tested"
    ),
}


class EdgeTest(NamedTuple):
    """The test of one edge, given the other parents of its effect.

    Attributes
    ----------
    cause, effect
        The variables; a cause with a lag is named as ``x[t-1]``.
    statistic
        Likelihood ratio of the graph and the same graph without the edge.
    degrees
        Its degrees of freedom.
    rows
        Number of rows.
    """

    cause: str
    effect: str
    statistic: float
    degrees: int
    rows: int

    @property
    def absence(self) -> float:
        """The probability that there is no such edge, as the BIC approximates it."""
        evidence = (self.statistic - self.degrees * np.log(self.rows)) / 2
        return float(1 / (1 + np.exp(np.clip(evidence, -500, 500))))

    @property
    def rows_needed(self) -> int | None:
        """Rows with which a test of level 0.05 finds the edge in 80 % of samples.

        They follow from the strength that the edge has in these rows, less what chance adds on
        average. None where nothing is left.
        """
        from scipy.special import chdtri, chndtrinc

        excess = self.statistic - self.degrees
        if excess <= 0:
            return None
        wanted = chndtrinc(chdtri(self.degrees, LEVEL), self.degrees, 1 - POWER)
        return int(np.ceil(self.rows * float(wanted) / excess))


class DoubtfulEdge(NamedTuple):
    """An edge, how uncertain it is, why, and what would decide it.

    Attributes
    ----------
    cause, mark, effect
        The edge, as in :meth:`CausalGraph.marked_edges`.
    doubt
        From 0 to 1. About the presence: 1 less the confidence, or the probability of absence by the
        BIC if that is larger. About the direction: 1 less the confidence; where the independencies
        in the rows agree with both directions at least the probability of the other direction by
        the method's own score, as far as it has one (``CausalGraph.turning_loss``), else 0.5.
    about
        "presence" or "direction".
    reason
        In words.
    decided_by
        In words.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> edge = simulate("moments", federated_linear(4, 400, 2)[0]).doubtful_edges()[0]
    >>> edge.about in ("presence", "direction")
    True
    """

    cause: str
    mark: str
    effect: str
    doubt: float
    about: Literal["presence", "direction"]
    reason: str
    decided_by: str

    def __str__(self) -> str:
        return f"{self.cause} {self.mark} {self.effect}: {self.reason}; {self.decided_by}"


def doubtful_edges(
    graph: CausalGraph,
    tests: Sequence[EdgeTest] = (),
    count: int = 3,
    evidence: Evidence = "independencies",
) -> list[DoubtfulEdge]:
    """Return the most doubtful edges, the most doubtful one first.

    Parameters
    ----------
    graph
        Edges that its background knowledge requires are in no doubt, nor are directions that it
        decides. Its confidence is used.
    tests
        Of its edges, as far as there are any.
    count
        How many edges.
    evidence
        What tells directions apart that the independencies leave open: nothing more; the assumption
        that all noise terms have one variance; or the curves of effects, by the graph's
        ``turning_loss`` as far as the method compares likelihoods.

    Returns
    -------
    list of DoubtfulEdge
        Edges of which nothing is known are left out.

    Raises
    ------
    ConfigError
        If the count is not 0, 1, 2, ...
    """
    if not isinstance(count, Integral) or count < 0:
        raise ConfigError(f"count is {count!r}: expected a number of edges, 0, 1, 2, ...")
    tested = {(one.cause, one.effect): one for one in tests}
    either = _either_direction(graph)
    found: list[tuple[float, float, DoubtfulEdge]] = []
    edges = zip(
        graph.marked_edges(), graph.marked_confidences(), graph.marked_required(), strict=True
    )
    for (cause, mark, effect, _), sure, required in edges:
        if required:
            continue
        place = None
        if cause in graph.names:
            place = graph.names.index(cause), graph.names.index(effect)
        test = tested.get((cause, effect)) or tested.get((effect, cause))
        doubts = _about_presence(graph, place, test)
        if place is None and sure is not None:
            doubts.append((1.0 - sure, "presence", f"it has confidence {sure:.2f}"))
        if place is not None:
            either_one = bool(either[place])
            doubts += _about_direction(graph, place, mark, evidence, either=either_one)
        if doubts:
            # Of equal doubts the first, which is about the presence.
            doubt, about, reason = max(doubts, key=lambda one: one[0])
            remedy = f"an intervention on {cause} or {effect} would decide"
            if doubt < LEVEL:
                remedy = "no more is needed"
            elif about == "presence":
                remedy = _more_rows(test)
            edge = DoubtfulEdge(cause, mark, effect, doubt, about, reason, remedy)
            found.append((-doubt, np.inf if test is None else test.statistic, edge))
    return [edge for *_, edge in sorted(found, key=lambda one: one[:2])][:count]


def turning_loss(
    adjacency: BoolArray,
    allowed: BoolArray,
    names: Sequence[str],
    score: Callable[[int, tuple[int, ...]], float],
) -> FloatArray:
    """Return how many nats less likely the rows are where an edge of a DAG is turned.

    The DAG is compared with two graphs in which the edge is turned, each with its own best fit, of
    which the likelier one counts: the one of the same independencies that turns few other edges,
    and the one that turns no other edge, if it has no cycle.

    Parameters
    ----------
    adjacency : ndarray of bool, shape (d, d)
        A directed acyclic graph.
    allowed : ndarray of bool, shape (d, d)
        Edges that may stand.
    names : sequence of str
        Of the variables; they decide ties.
    score : callable
        Returns the log-likelihood of a variable given its parents (in the order of their indices),
        less what their choice costs, in nats; NaN where it is not known.

    Returns
    -------
    ndarray of shape (d, d)
        To a thousandth; 0 where the independencies, or what is allowed, decide the direction, where
        there is no edge, and where the likelihood of the graph of the same independencies is not
        known. Below 0 the rows are likelier with the edge turned.
    """
    found = np.zeros(adjacency.shape)
    marks, order = informed_class(adjacency, allowed), topological_order(adjacency, names)

    def loss(other: BoolArray) -> float:
        changed = np.flatnonzero((other != adjacency).any(axis=0)).tolist()
        present, turned = (
            [score(child, tuple(np.flatnonzero(graph[:, child]).tolist())) for child in changed]
            for graph in (adjacency, other)
        )
        return float(np.sum(present) - np.sum(turned))

    for cause, effect in np.argwhere(adjacency & marks.T).tolist():
        equivalent = loss(with_edge_turned(adjacency, marks, cause, effect, order))
        if np.isnan(equivalent):
            equivalent = 0.0  # other independencies alone may make the second graph less likely
        alone = adjacency.copy()
        alone[[cause, effect], [effect, cause]] = False, True
        other = loss(alone) if is_acyclic(alone) else np.nan
        found[cause, effect] = round(float(np.fmin(equivalent, other)), 3)
    return found


def _about_presence(
    graph: CausalGraph, place: tuple[int, int] | None, test: EdgeTest | None
) -> list[Doubt]:
    found: list[Doubt] = []
    if graph.confidence is not None and place is not None:
        joined = min(graph.confidence[place] + graph.confidence[place[::-1]], 1.0)
        if graph.marks is not None and graph.adjacency_confidence is not None:
            joined = graph.adjacency_confidence[place]
        reason = f"the two are adjacent with confidence {joined:.2f}"
        found.append((1.0 - float(joined), "presence", reason))
    if test is not None:
        reason = f"the rows leave a probability of {test.absence:.2g} that it is absent (BIC)"
        found.append((test.absence, "presence", reason))
    return found


def _about_direction(
    graph: CausalGraph, place: tuple[int, int], mark: str, evidence: Evidence, *, either: bool
) -> list[Doubt]:
    found: list[Doubt] = []
    if graph.marks is not None:
        return [] if graph.confidence is None else [_about_marks(graph, place, mark)]
    if graph.ruled_out[place[::-1]]:
        return found
    if graph.confidence is not None and mark == "->":
        forward = float(graph.confidence[place])
        found.append((1.0 - forward, "direction", f"its direction has confidence {forward:.2f}"))
    if either and graph.turning_loss is not None:
        loss = float(graph.turning_loss[place])
        less = "less" if loss > 0 else "more"
        reason = f"the other direction makes the rows {less} likely by {abs(loss):.3g} nats"
        if loss == 0:
            same = ", and so does their noise"
            if evidence == "curves":
                same = ": no curve of an effect that was compared tells them apart"
            reason = f"the rows agree with both directions{same}"
        doubt = float(1 / (1 + np.exp(np.clip(loss, -500.0, 500.0))))
        found.append((doubt, "direction", reason))
    elif either:
        reason = f"the independencies in the rows agree with both directions{RESTS[evidence]}"
        found.append((OPEN, "direction", reason))
    return found


def _about_marks(graph: CausalGraph, place: tuple[int, int], mark: str) -> Doubt:
    """Return the doubt about the less sure mark of an edge of a PAG."""
    assert graph.confidence is not None
    sure = float(min(graph.confidence[place], graph.confidence[place[::-1]]))
    return 1.0 - sure, "direction", f"one of the marks of {mark} has confidence {sure:.2f}"


def _more_rows(test: EdgeTest | None) -> str:
    needed = None if test is None else test.rows_needed
    if test is None or needed is None:
        return "more rows would decide"
    if needed <= test.rows:
        return f"more rows than {test.rows:,} would decide"
    return f"about {needed:,} rows would decide, if its strength is the one in these rows"


def _either_direction(graph: CausalGraph) -> BoolArray:
    """Return the edges without a lag whose direction the independencies leave open, ``(d, d)``."""
    d = len(graph.names)
    possible = ~graph.ruled_out
    if graph.kind == "cpdag":
        marks = graph.adjacency
        return undirected_part(meek(marks & (possible | ~undirected_part(marks))))
    if graph.kind != "dag" or not graph.is_acyclic():
        return np.zeros((d, d), dtype=bool)
    edges = graph.adjacency
    if graph.lagged is not None:
        edges = with_past(edges, graph.lagged != 0)
    allowed = np.ones(edges.shape, dtype=bool)
    allowed[:d, d:] = False
    allowed[:d, :d] = possible
    return reversible(edges, allowed)[:d, :d]
