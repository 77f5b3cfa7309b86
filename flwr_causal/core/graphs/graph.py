"""The causal graph that every method returns; its forms as JSON and as a networkx graph."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import networkx as nx
import numpy as np

from flwr_causal.core.graphs import acyclicity, equivalence
from flwr_causal.core.graphs.checked_arrays import distinct_names, frozen_booleans, frozen_numbers
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray


Kind = Literal["dag", "cpdag", "summary"]

FORMAT = "flwr-causal-graph"
VERSION = 1
_ARRAYS = ("weights", "lagged", "raw_weights", "raw_lagged", "confidence", "required")


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
        lagged = value if lagged is None else lagged
        for limit in (value, lagged):
            if not (np.isfinite(limit) and limit >= 0):
                raise ConfigError(f"threshold is {limit}: expected a number from 0 up")
        raw = self.weights if self.raw_weights is None else self.raw_weights
        required = np.zeros_like(self.adjacency) if self.required is None else self.required
        # A required edge takes part in cycles even when its own weight is zero.
        strength = np.where(required & (raw == 0), 1.0, raw)
        strength = np.where(required | (np.abs(raw) > value), strength, 0.0)
        if self.kind == "dag":
            strength = acyclicity.break_cycles(strength, required)
        weights = np.where(self.adjacency, self.weights, raw)
        weights = np.where(strength != 0, weights, 0.0)
        if self.lagged is None:
            return replace(self, weights=weights)
        raw_lagged = self.lagged if self.raw_lagged is None else self.raw_lagged
        past = np.where(self.lagged != 0, self.lagged, raw_lagged)
        past = np.where(np.abs(raw_lagged) > lagged, past, 0.0)
        return replace(self, weights=weights, lagged=past)

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
        if self.kind == "cpdag":
            raise DataError("a CPDAG has no summary graph: call to_dag() first")
        kept = self_loops | ~np.eye(len(self.names), dtype=bool)
        raw_weights = None
        if self.raw_weights is not None or self.raw_lagged is not None:
            raw = self.weights if self.raw_weights is None else self.raw_weights
            raw_lagged = self.lagged if self.raw_lagged is None else self.raw_lagged
            raw_weights = kept * _strongest(raw, raw_lagged)
        return CausalGraph(
            self.names,
            kept * _strongest(self.weights, self.lagged),
            kind="summary",
            raw_weights=raw_weights,
            required=self.required,
        )

    def reordered(self, names: Sequence[str]) -> CausalGraph:
        """Return the graph with its variables in the order of ``names``.

        Raises
        ------
        DataError
            If ``names`` are not the graph's variables.
        """
        if tuple(names) == self.names:
            return self
        if set(names) != set(self.names):
            only_one = ", ".join(name for name in names if name not in self.names) or "none"
            only_two = ", ".join(name for name in self.names if name not in names) or "none"
            raise DataError(
                f"the graphs have different variables: only one has {only_one}, the other "
                f"{only_two}; rename or drop variables, or give a plain matrix to match by position"
            )
        order = [self.names.index(name) for name in names]
        changed = {
            name: array[..., order, :][..., order]
            for name in _ARRAYS
            if (array := getattr(self, name)) is not None
        }
        return replace(self, names=tuple(names), **changed)

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
        result: nx.DiGraph[str] = nx.DiGraph() if self.lagged is None else nx.MultiDiGraph()
        num_lags = 0 if self.lagged is None else len(self.lagged)
        result.graph.update(kind=self.kind, lags=num_lags)
        result.add_nodes_from(self.names)
        for i, j in np.argwhere(self.adjacency):
            attributes: dict[str, Any] = {"weight": float(self.weights[i, j]), "lag": 0}
            if self.raw_weights is not None:
                attributes["raw_weight"] = float(self.raw_weights[i, j])
            if self.confidence is not None:
                attributes["confidence"] = float(self.confidence[i, j])
            if self.required is not None:
                attributes["required"] = bool(self.required[i, j])
            result.add_edge(self.names[i], self.names[j], **attributes)
        if self.lagged is not None:
            for lag, i, j in np.argwhere(self.lagged != 0):
                attributes = {"weight": float(self.lagged[lag, i, j]), "lag": int(lag) + 1}
                if self.raw_lagged is not None:
                    attributes["raw_weight"] = float(self.raw_lagged[lag, i, j])
                result.add_edge(self.names[i], self.names[j], **attributes)
        return result

    def unrolled(self) -> nx.DiGraph[str]:
        """Return a networkx graph with a node for each variable and slice, where there are lags.

        The nodes ``x0[t-1]`` and ``x0[t]`` of the variable ``x0`` have the attributes ``variable``
        and ``lag``; slices come from the oldest to the present one. Edges lead into the present
        slice: they repeat in every other one. Without lags it is `to_networkx`.
        """
        plain = self.to_networkx()
        if self.lagged is None:
            return plain
        result: nx.DiGraph[str] = nx.DiGraph(kind=self.kind, lags=len(self.lagged))
        for lag in range(len(self.lagged), -1, -1):
            for name in self.names:
                result.add_node(at_lag(name, lag), variable=name, lag=lag)
        edge: dict[str, Any]
        for cause, effect, edge in plain.edges(data=True):
            result.add_edge(at_lag(cause, edge["lag"]), at_lag(effect, 0), **edge)
        return result

    @classmethod
    def from_networkx(cls, graph: nx.Graph[Any], weight: str = "weight") -> Self:
        """Make a graph from networkx: node order kept, edges without ``weight`` weigh 1.

        Nodes become strings. An undirected ``Graph`` becomes a CPDAG of undirected edges; an edge's
        attribute ``lag`` makes it a lagged one. Restores what `to_networkx` wrote but for raw
        weights, which a graph of edges cannot hold in full; also what `unrolled` made of it.

        Raises
        ------
        DataError
            If an edge weighs zero (unless it is required), stands twice with the same lag, or has a
            lag that is not 0, 1, 2, ...; if an unrolled graph has an edge that does not lead into
            the present slice.
        """
        if len(graph) and all(
            data.keys() >= {"variable", "lag"} for _, data in graph.nodes(data=True)
        ):
            graph = _folded(graph)
        labels = {node: str(node) for node in graph.nodes}
        index = {node: k for k, node in enumerate(graph.nodes)}
        size = len(index)
        directed = graph.to_directed().edges(data=True)
        edges = [(index[u], index[v], data) for u, v, data in directed]
        lags = [_lag(data, labels[u], labels[v]) for u, v, data in directed]
        num_lags = max([int(graph.graph.get("lags", 0)), *lags])

        slices = np.zeros((num_lags + 1, size, size))
        required = np.zeros((size, size), dtype=bool)
        confidence = np.zeros((size, size))
        seen: set[tuple[int, int, int]] = set()
        names = tuple(labels.values())
        for lag, (i, j, data) in zip(lags, edges, strict=True):
            value = float(data.get(weight, 1.0))
            if (lag, i, j) in seen:
                raise DataError(f"the edge {names[i]} -> {names[j]} stands twice at lag {lag}")
            if value == 0 and not data.get("required", False):
                raise DataError(
                    f"the edge {names[i]} -> {names[j]} has weight 0, which means no edge: remove "
                    "it or give it a weight"
                )
            seen.add((lag, i, j))
            slices[lag, i, j] = value
            if lag == 0:
                required[i, j] = bool(data.get("required", False))
                confidence[i, j] = float(data.get("confidence", 0.0))
        kind = graph.graph.get("kind", "dag" if graph.is_directed() else "cpdag")
        fields: dict[str, Any] = {"names": names, "weights": slices[0], "kind": kind}
        if num_lags:
            fields["lagged"] = slices[1:]
        if any("required" in data for _, _, data in edges):
            fields["required"] = required
        if any("confidence" in data for _, _, data in edges):
            fields["confidence"] = confidence
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as lists, floats and strings; floats survive JSON to the last bit."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "names": list(self.names),
            **{name: None if array is None else array.tolist() for name, array in arrays.items()},
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], origin: str = "the record") -> Self:
        """Make a graph of what `to_dict` made.

        Raises
        ------
        DataError
            If it is not a record of this format, of another version, or lacks a field; the message
            calls it ``origin``.
        """
        if record.get("format") != FORMAT:
            raise DataError(
                f"{origin} is not a graph saved by CausalGraph.save (no 'format': '{FORMAT}')"
            )
        if record.get("version") != VERSION:
            raise DataError(
                f"{origin} has format version {record.get('version')}, this release reads "
                f"{VERSION}: upgrade flwr-causal"
            )
        missing = [name for name in ("names", "weights", "kind") if name not in record]
        if missing:
            raise DataError(f"{origin} lacks {', '.join(missing)}: save the graph again")
        fields: dict[str, Any] = {"names": tuple(record["names"]), "kind": record["kind"]}
        for name in _ARRAYS:
            if record.get(name) is not None:
                fields[name] = np.array(
                    record[name], dtype=bool if name == "required" else np.float64
                )
        return cls(**fields)

    def save(self, path: str | Path) -> None:
        """Write everything as JSON; floats survive to the last bit.

        The folder is made if it is not there.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_dict(), allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        DataError
            If the file is missing, is not JSON, or is not such a graph.
        """
        path = Path(path)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(f"no graph at {path}: check the path") from None
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise DataError(f"{path} is not JSON ({error}): give a file made by save()") from None
        if not isinstance(record, dict):
            raise DataError(f"{path} is JSON but not a graph: give a file made by CausalGraph.save")
        try:
            return cls.from_dict(record, str(path))
        except (TypeError, ValueError) as error:
            raise DataError(f"{path} holds a damaged graph ({error}): save it again") from None

    def draw(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the graph with matplotlib, causes above effects.

        See `core.graphs.drawing.draw` for the options.

        Raises
        ------
        ConfigError
            If matplotlib is not installed.
        """
        try:
            from flwr_causal.core.graphs import drawing
        except ImportError:
            raise ConfigError(
                'drawing needs matplotlib, which is not installed: pip install "flwr-causal[plot]"'
            ) from None
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


def _strongest(now: FloatArray, lagged: FloatArray | None) -> FloatArray:
    """Return the entry of largest absolute value over all slices; the latest among equals."""
    slices = now[None] if lagged is None else np.concatenate([now[None], lagged])
    latest = np.abs(slices).argmax(axis=0)[None]
    return np.asarray(np.take_along_axis(slices, latest, axis=0)[0])


def at_lag(name: str, lag: int) -> str:
    """Return the name of a variable in the slice of a lag."""
    return f"{name}[t-{lag}]" if lag else f"{name}[t]"


def _folded(graph: nx.Graph[Any]) -> nx.MultiDiGraph[str]:
    """Return a graph over variables of one over variables in slices."""
    result: nx.MultiDiGraph[str] = nx.MultiDiGraph(**graph.graph)
    data: dict[str, Any]
    for _, data in graph.nodes(data=True):
        result.add_node(str(data["variable"]))
    for start, end, edge in graph.edges(data=True):
        if _lag(graph.nodes[end], start, end) != 0:
            raise DataError(
                f"the edge {start} -> {end} leads into the past: an unrolled graph has the edges "
                "into the present slice alone, those of lag 0"
            )
        cause, effect = graph.nodes[start]["variable"], graph.nodes[end]["variable"]
        result.add_edge(str(cause), str(effect), **{**edge, "lag": graph.nodes[start]["lag"]})
    return result


def _lag(data: Mapping[str, Any], cause: str, effect: str) -> int:
    """Return an edge's lag, checked."""
    lag = data.get("lag", 0)
    if int(lag) != lag or lag < 0:
        raise DataError(f"the edge {cause} -> {effect} has lag {lag}: expected 0, 1, 2, ...")
    return int(lag)
