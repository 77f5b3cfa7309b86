"""How much of a graph follows from one party alone: the change when its reply is left out."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from functools import cached_property
from logging import WARNING
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np
from flwr.supercore import log

from flwr_causal.core.limits import each
from flwr_causal.core.threads import single_threaded
from flwr_causal.core.ties import as_ranked
from flwr_causal.errors import CausalError
from flwr_causal.protocol.replies import Replies, distances_of, mean_of, median_of
from flwr_causal.runtime.server_work import server_work
from flwr_causal.runtime.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.federation import Arrival
    from flwr_causal.runtime.method import CausalMethod

# A party stands out above this distance. Measured on the papers' simulated data (26 settings of d,
# n and K, 8 seeds): at most 2.4; of one false party at least 14, of three that agree at least 3.8
# with 32 rows a party and 16 with 100 rows.
STANDS_OUT = 4.0
# A warning needs so many changed edges, and so large a share of the graph's.
LEAST_EDGES, LEAST_SHARE = 2, 0.1
# Leaving one party out costs one more solution, whose time grows with the number of variables: the
# parties that stand out most are left out, in 15 s or so.
VARIABLES_TIMES_PARTIES = 1000
LEAST_PARTIES = 3


class Change(TypedDict):
    """The change of the graph when one party's reply is left out.

    Attributes
    ----------
    changed_edges : int
        Edges that appear, vanish or turn; with lags, those of each lag too.
    changes : list of str
        What happens to them, such as "a -> b vanishes", "a -> b appears" and "a -> b becomes
        b -> a".
    largest_change : float
        The largest absolute change of a weight.
    distance : float or None
        How far the party's second moments are from the others', about 1 for parties that differ by
        sampling alone; None where they are not known; see
        :func:`flwr_causal.core.linear.medians.second_moment_shares`.
    """

    changed_edges: int
    changes: list[str]
    largest_change: float
    distance: float | None


#: By party's name; empty where it is not known.
Influence: TypeAlias = dict[str, Change]


class Deferred:
    """An attribute of a class that is computed when it is first read.

    It is set to its value, or to a function without arguments that returns it.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return dict  # the default of a dataclass's field
        value = vars(instance)[self._name]
        if callable(value):
            value = vars(instance)[self._name] = value()
        return value

    def __set__(self, instance: Any, value: Influence | Callable[[], Influence]) -> None:
        vars(instance)[self._name] = value


def known_influence(owner: Any) -> Influence:
    """Return the influence of an outcome or a run if it has been computed, else an empty dict."""
    value: Influence | Callable[[], Influence] = vars(owner)["_influence"]
    return {} if callable(value) else value


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """A graph that follows from one exchange of averages, and the replies to it.

    Parameters
    ----------
    method : CausalMethod
    agreement : Agreement
        Of all parties.
    graph : CausalGraph
        The graph after it.
    exchange : Exchange
    replies : dict of str to dict of str to ndarray
        By party.
    rows : ndarray of shape (K,)
        The parties' rows.
    counts : ndarray of shape (K,)
        How many parties each reply stands for: 1, or those of a group.
    """

    method: CausalMethod
    agreement: Agreement
    graph: CausalGraph
    exchange: Exchange
    replies: Mapping[str, dict[str, Any]]
    rows: FloatArray
    counts: FloatArray

    @classmethod
    def of(
        cls,
        method: CausalMethod,
        agreement: Agreement,
        graph: CausalGraph,
        exchange: Exchange,
        replies: Sequence[Arrival],
    ) -> LeaveOneOut:
        """Return an instance for the replies that arrived, with a copy of the method."""
        kept = copy.copy(method)
        kept.state, kept._federation, kept._grid = None, None, None
        arrays = {reply.party.name: reply.arrays for reply in replies}
        rows, counts = np.array(
            [(reply.party.num_rows, reply.count) for reply in replies], dtype=np.float64
        ).T
        return cls(kept, agreement, graph, exchange, arrays, rows, counts)

    @property
    def largest_distance(self) -> float:
        """The distance of the party whose second moments are farthest from the others'."""
        return float(self._distances.max())

    @cached_property
    def _distances(self) -> FloatArray:
        with server_work(self.method, "Comparing the parties' replies"):
            return distances_of(self.exchange, list(self.replies.values()), self.rows)

    @single_threaded()
    def __call__(self) -> Influence:
        """Leave out one party after the other, those that stand out most if there are many."""
        most = max(LEAST_PARTIES, VARIABLES_TIMES_PARTIES // len(self.graph.names))
        parties = list(self.replies)
        found: Influence = {}
        try:
            with server_work(self.method, "Leaving out single parties"):
                order = np.argsort(-as_ranked(self._distances), kind="stable")[:most].tolist()
                for index in each("parties that are left out", order):
                    found[parties[index]] = self._without(parties[index], index)
        except CausalError as error:
            log(WARNING, "The influence is known for %d of the parties: %s", len(found), error)
        return {party: found[party] for party in parties if party in found}

    def _without(self, party: str, index: int) -> Change:
        others = {name: arrays for name, arrays in self.replies.items() if name != party}
        arrays, rows = list(others.values()), np.delete(self.rows, index)
        if self.method.options.aggregation == "median":
            combined = median_of(self.exchange, arrays, rows)
        else:
            by_rows = self.exchange.weight == "rows"
            combined = mean_of(arrays, rows if by_rows else np.delete(self.counts, index))
        own_rows = {name: int(own) for name, own in zip(others, rows, strict=True)}
        agreement = dataclasses.replace(self.agreement, rows=own_rows)
        training = Training(self.method, agreement, alone=True)
        training.give(Replies(tuple(others), combined))
        graph = training.result.graph
        assert graph is not None
        return change_between(self.graph, graph, float(self._distances[index]))


def left_out(training: Training) -> Influence:
    """Return by party the change of the graph in the training without it."""
    graph = training.result.graph
    if graph is None:
        return {}
    return {party: change_between(graph, other) for party, other in training.without().items()}


def change_between(graph: CausalGraph, other: CausalGraph, distance: float | None = None) -> Change:
    """Return the change from a graph to another, such as the graph without one party."""
    edges, weight = _difference(graph, other)
    return Change(
        changed_edges=edges,
        changes=_changes(graph, other),
        largest_change=weight,
        distance=distance,
    )


def _changes(graph: CausalGraph, other: CausalGraph) -> list[str]:
    """Return in words which edges differ."""
    before, after = (
        {frozenset((a, b)): f"{a} {mark} {b}" for a, mark, b, _ in one.marked_edges()}
        for one in (graph, other)
    )
    found = []
    for pair in dict.fromkeys((*before, *after)):
        one, two = before.get(pair), after.get(pair)
        if one != two:
            found.append(
                f"{two} appears"
                if one is None
                else f"{one} vanishes"
                if two is None
                else f"{one} becomes {two}"
            )
    return found


def _difference(graph: CausalGraph, other: CausalGraph) -> tuple[int, float]:
    """Return the number of different edges, and the largest difference of weights."""
    different = graph.adjacency != other.adjacency
    count = int(np.triu(different | different.T).sum())
    largest = float(np.abs(graph.weights - other.weights).max())
    if graph.lagged is None or other.lagged is None:
        return count, largest
    # Where the number of lags is chosen it may differ.
    lags = max(len(graph.lagged), len(other.lagged))
    one, two = (
        np.concatenate([lagged, np.zeros((lags - len(lagged), *lagged.shape[1:]))])
        for lagged in (graph.lagged, other.lagged)
    )
    count += int(((one != 0) != (two != 0)).sum())
    return count, max(largest, float(np.abs(one - two).max(initial=0.0)))


def standing_out(influence: Influence, graph: CausalGraph | None) -> dict[str, int]:
    """Return the parties that stand out, and decide much of the graph: how many edges of it."""
    if graph is None:
        return {}
    least = max(LEAST_EDGES, LEAST_SHARE * graph.num_edges)
    return {
        party: change["changed_edges"]
        for party, change in influence.items()
        if (change["distance"] or 0.0) > STANDS_OUT and change["changed_edges"] >= least
    }


def influence_warnings(
    influence: Influence, graph: CausalGraph | None, *, median: bool
) -> list[str]:
    """Warn of parties that stand out, and without which much of the graph would be another.

    ``median`` says whether the run could be repeated with a median.
    """
    found = [f"{n} without {party}" for party, n in standing_out(influence, graph).items()]
    if graph is None or not found:
        return []
    robust = ", or with aggregation='median'" if median else ""
    return [
        f"Single parties decide much of the graph, which has {graph.num_edges} edges. Edges that "
        f"change: {', '.join(found)}. The second moments of these parties differ "
        "from the others' by more than chance. Check their tables, units and columns; compare with "
        f"a run without them{robust}. run.influence has the numbers."
    ]
