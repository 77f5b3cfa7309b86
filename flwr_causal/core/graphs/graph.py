"""The causal graph that every method returns: names, weights, and what they were before the cut."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from flwr_causal.core.graphs import acyclicity, derived_graphs, equivalence, graph_formats
from flwr_causal.core.graphs.checked_arrays import distinct_names, frozen_booleans, frozen_numbers
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import networkx as nx
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]

Kind = Literal["dag", "cpdag", "summary"]


@dataclass(frozen=True, eq=False, repr=False)
class CausalGraph:
    """A graph over named variables; **row causes column** in every matrix.

    The arrays are copied and made read-only. A graph of kind ``"dag"`` is not refused for having a
    cycle, because baselines that average graphs may return one: ask `is_acyclic`.

    Parameters
    ----------
    names : tuple of str
        The ``d`` variables, in the order of the data's columns; never sorted.
    weights : ndarray of float64, shape (d, d)
        ``weights[i, j]`` is the effect of i on j, in units of j per unit of i; exactly 0 where
        there is no edge. An undirected edge of a CPDAG is non-zero both ways.
    kind : {"dag", "cpdag", "summary"}, default "dag"
        A directed acyclic graph, an equivalence class of such, or a graph whose edges summarise
        several lags and which may have cycles.
    lagged : ndarray of float64, shape (p, d, d), optional
        ``lagged[l, i, j]`` is the effect of i at time t - l - 1 on j at time t.
    raw_weights, raw_lagged : ndarray of float64, optional
        The estimates before the threshold, shaped as ``weights`` and ``lagged``.
    confidence : ndarray of float64, shape (d, d), optional
        How sure the method is of each instantaneous edge, from 0 to 1.
    required : ndarray of bool, shape (d, d), optional
        Edges that background knowledge requires: they stand in `adjacency` whatever their weight
        and survive threshold and cycle removal.

    Raises
    ------
    DataError
        If names repeat, a shape does not fit, or a number is not finite.
    """

    names: tuple[str, ...]
    weights: FloatArray
    kind: Kind = "dag"
    lagged: FloatArray | None = None
    raw_weights: FloatArray | None = None
    raw_lagged: FloatArray | None = None
    confidence: FloatArray | None = None
    required: BoolArray | None = None

    def __post_init__(self) -> None:
        names = distinct_names(self.names)
        if self.kind not in get_args(Kind):
            raise DataError(f"kind is {self.kind!r}: expected one of {', '.join(get_args(Kind))}")
        lagged = None if self.lagged is None or len(self.lagged) == 0 else self.lagged
        if self.raw_lagged is not None and lagged is None:
            raise DataError("raw_lagged is given without lagged: give both")
        square = (len(names), len(names))
        lags = (np.shape(lagged)[:1] if lagged is not None else ()) + square
        checked: dict[str, object] = {
            "names": names,
            "weights": frozen_numbers("weights", self.weights, square, names),
            "lagged": frozen_numbers("lagged", lagged, lags, names),
            "raw_weights": frozen_numbers("raw_weights", self.raw_weights, square, names),
            "raw_lagged": frozen_numbers("raw_lagged", self.raw_lagged, lags, names),
            "confidence": frozen_numbers("confidence", self.confidence, square, names),
            "required": frozen_booleans("required", self.required, square),
        }
        if checked["weights"] is None:
            raise DataError("weights is None: give a matrix, all zeros for a graph without edges")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        lags = "" if self.lagged is None else f", {self.num_lagged_edges} lagged"
        return (
            f"<CausalGraph {self.kind}: {len(self.names)} variables, {self.num_edges} edges{lags}>"
        )

    @classmethod
    def from_array(
        cls,
        array: ArrayLike,
        names: Sequence[str] | None = None,
        *,
        kind: Kind = "dag",
        lagged: ArrayLike | None = None,
    ) -> Self:
        """Make a graph from a matrix of weights or of booleans, shape ``(d, d)``.

        Parameters
        ----------
        array : array_like, shape (d, d)
            Non-zero at ``[i, j]`` where i causes j.
        names : sequence of str, optional
            Default ``x0, x1, ...``.
        kind : {"dag", "cpdag", "summary"}, default "dag"
            What the matrix is.
        lagged : array_like, shape (p, d, d), optional
            Lagged effects.
        """
        weights = np.asarray(array)
        if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
            raise DataError(f"a graph's matrix must be square, its shape is {weights.shape}")
        if names is None:
            names = [f"x{k}" for k in range(len(weights))]
        lags = None if lagged is None else np.asarray(lagged)
        return cls(tuple(names), weights, kind=kind, lagged=lags)

    @property
    def adjacency(self) -> BoolArray:
        """Which instantaneous edges stand, shape ``(d, d)``; True both ways if undirected."""
        present: BoolArray = self.weights != 0
        return present if self.required is None else present | self.required

    @property
    def lagged_adjacency(self) -> BoolArray | None:
        """Which lagged edges stand, shape ``(p, d, d)``, or None for a graph without lags."""
        return None if self.lagged is None else np.asarray(self.lagged != 0)

    @property
    def num_edges(self) -> int:
        """Number of instantaneous edges; an undirected edge of a CPDAG counts once."""
        adjacency = self.adjacency
        twice = self.kind == "cpdag" and equivalence.undirected_part(adjacency).sum() // 2
        return int(adjacency.sum() - twice)

    @property
    def num_lagged_edges(self) -> int:
        """Number of lagged edges."""
        return 0 if self.lagged is None else int(np.count_nonzero(self.lagged))

    def edges(self) -> list[tuple[str, str, float]]:
        """Return the instantaneous edges as ``(cause, effect, weight)``, by cause then effect.

        An undirected edge of a CPDAG comes twice, once in each direction.
        """
        return [
            (self.names[i], self.names[j], float(self.weights[i, j]))
            for i, j in np.argwhere(self.adjacency)
        ]

    def lagged_edges(self) -> list[tuple[str, str, int, float]]:
        """Return the lagged edges as ``(cause, effect, lag, weight)``, by lag, from lag 1."""
        if self.lagged is None:
            return []
        return [
            (self.names[i], self.names[j], int(lag) + 1, float(self.lagged[lag, i, j]))
            for lag, i, j in np.argwhere(self.lagged != 0)
        ]

    def threshold(self, value: float, lagged: float | None = None) -> Self:
        """Cut again: keep the edges whose raw weight exceeds ``value`` in absolute value.

        The raw weights decide (the present ones, where there are none), so that a lower threshold
        brings edges back. An edge that stands keeps its present weight, which may have been
        refitted; one that comes back has its raw weight. In a DAG the weakest edges on cycles are
        dropped. Required edges stay. Lagged edges are cut at ``lagged``, by default at ``value``.

        Raises
        ------
        ConfigError
            If a threshold is negative or not finite.
        """
        return replace(self, **derived_graphs.cut(self, value, lagged))

    def summary(self, *, self_loops: bool = True) -> CausalGraph:
        """Return the summary graph: i -> j where any slice, the present one or a lag, has it.

        An edge weighs what it weighs in the slice where that is largest in absolute value; raw
        weights likewise. A variable that depends on its own past keeps the edge to itself, which
        gold standards of other fields leave out: ``self_loops=False`` drops those. Confidence is
        known of instantaneous edges alone and does not carry over.

        Raises
        ------
        DataError
            If the graph is a CPDAG, whose undirected edges would read as cycles.
        """
        return CausalGraph(self.names, **derived_graphs.summarize(self, self_loops=self_loops))

    def is_acyclic(self) -> bool:
        """Whether there is no directed cycle among the instantaneous edges.

        In a CPDAG only the directed edges are looked at.
        """
        marks = self.adjacency
        if self.kind == "cpdag":
            marks = equivalence.directed_part(marks)
        return acyclicity.is_acyclic(marks)

    def topological_order(self) -> list[str]:
        """Return the names with every cause before its effects; ties by column order.

        Raises
        ------
        DataError
            If there is a cycle, or an undirected edge.
        """
        try:
            return [self.names[k] for k in acyclicity.topological_order(self.adjacency)]
        except ValueError:
            remedy = (
                "call to_dag() first"
                if self.kind == "cpdag"
                else "call threshold() with kind 'dag', which removes the weakest edges on cycles"
            )
            raise DataError(f"the graph has cycles or undirected edges: {remedy}") from None

    def to_cpdag(self) -> CausalGraph:
        """Return the equivalence class of this DAG; a CPDAG returns itself.

        The marks are 1.0; weights, confidence and background knowledge do not carry over.

        Raises
        ------
        DataError
            If the graph has cycles, or has lagged edges, whose time order is more than a CPDAG
            can say.
        """
        if self.kind == "cpdag":
            return self
        if self.lagged is not None:
            raise DataError("a graph with lags has no CPDAG: its time order directs edges")
        if not self.is_acyclic():
            raise DataError("a graph with cycles has no CPDAG: call threshold() to remove them")
        marks = equivalence.cpdag(self.adjacency)
        return CausalGraph(self.names, marks.astype(np.float64), kind="cpdag")

    def to_dag(self) -> CausalGraph:
        """Return one DAG of this equivalence class (Dor & Tarsi, 1992); a DAG returns itself.

        Raises
        ------
        DataError
            If the marks allow no DAG, as can happen to a CPDAG that was put together by hand, or
            if the graph is a summary graph.
        """
        if self.kind == "dag":
            return self
        if self.kind == "summary":
            raise DataError("a summary graph has no DAG: its cycles may run through time")
        extension = equivalence.consistent_extension(self.adjacency)
        if extension is None:
            raise DataError(
                "no DAG has these edges and no further v-structure: the graph is not a CPDAG"
            )
        return replace(self, kind="dag", weights=np.where(extension, self.weights, 0.0))

    def moral(self) -> BoolArray:
        """Return the moral graph of the instantaneous edges: symmetric booleans, shape (d, d)."""
        return equivalence.moralize(self.adjacency)

    def to_networkx(self) -> nx.DiGraph[str]:
        """Return a networkx ``DiGraph``, or a ``MultiDiGraph`` where the graph has lags.

        Edges carry ``weight`` and ``lag`` (0: instantaneous) and, where known, ``raw_weight``,
        ``confidence`` and ``required``; all nodes are there, in order.
        """
        return graph_formats.to_networkx(self)

    @classmethod
    def from_networkx(cls, graph: nx.Graph[Any], weight: str = "weight") -> Self:
        """Make a graph from networkx: node order kept, edges without ``weight`` weigh 1.

        An undirected ``Graph`` becomes a CPDAG of undirected edges; an edge's attribute ``lag``
        makes it a lagged one.

        Raises
        ------
        DataError
            If an edge weighs zero, stands twice, or has a lag that is not 0, 1, 2, ...
        """
        return cls(**graph_formats.from_networkx(graph, weight))

    def save(self, path: str | Path) -> None:
        """Write everything as JSON; floats survive to the last bit."""
        graph_formats.write_json(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        DataError
            If the file is missing or is not such a graph.
        """
        return cls(**graph_formats.read_json(path))

    def draw(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the graph with matplotlib, causes above effects.

        See `flwr_causal.core.graphs.drawing.draw` for the options.
        """
        from flwr_causal.core.graphs import drawing

        return drawing.draw(self, ax, **options)

    def equals(self, other: object) -> bool:
        """Whether every field is the same, numbers compared exactly."""
        if not isinstance(other, CausalGraph):
            return False
        return all(
            _same(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        )


def _same(one: object, two: object) -> bool:
    """Whether two field values are equal, arrays by shape and value."""
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        return np.array_equal(one, two)
    return type(one) is type(two) and one == two
