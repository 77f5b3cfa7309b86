"""The causal graph that every method returns; conversion to and from JSON and networkx."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from flwr_causal.core.graphs import acyclicity, adjustment, equivalence, notebook, shares
from flwr_causal.core.graphs.pag.marks import (
    NONE,
    checked_marks,
    directed_edges,
    edge_symbol,
    forward,
    mag,
)
from flwr_causal.core.graphs.pag.rules import (
    describes_one_class,
    pag_of_mag,
    possibly_directed,
)
from flwr_causal.core.saved import DAMAGE, read_json, writing
from flwr_causal.core.threads import SingleThreaded
from flwr_causal.core.words import some
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    import networkx as nx
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.knowledge import Knowledge


# The functions that need networkx import it when called: it takes 0.1 s to import, and a SuperNode
# starts a process for each message.

Kind = Literal["dag", "cpdag", "summary", "pag"]
AdjustmentKind = Literal["smallest", "optimal"]

#: A notebook draws graphs of at most so many nodes; a variable has a node for each lag.
MOST_DRAWN = 60

FORMAT = "flwr-causal-graph"
VERSION = 1
_BOOLEANS = ("required", "allowed", "required_lagged")
_ARRAYS = (
    *("weights", "lagged", "raw_weights", "raw_lagged", *_BOOLEANS),
    *("confidence", "adjacency_confidence", "lagged_confidence"),
    *("party_agreement", "turning_loss", "deviations", "marks"),
)


@dataclass(frozen=True, eq=False, repr=False)
class CausalGraph(SingleThreaded):
    """A graph over named variables; **row causes column** in every matrix.

    The arrays are copied and made read-only. A graph of kind ``"dag"`` may have cycles, because
    baselines that average graphs can return such graphs; see `is_acyclic`.

    Parameters
    ----------
    names : tuple of str
        The ``d`` variables, in the order of the data's columns.
    weights : ndarray of float64, shape (d, d)
        ``weights[i, j]`` is the effect of i on j, in units of j per unit of i; exactly 0 where
        there is no edge. An undirected edge of a CPDAG is non-zero in both directions, and so is
        every edge of a PAG, whose weights are strengths and not effects.
    kind : {"dag", "cpdag", "summary", "pag"}, default "dag"
        A directed acyclic graph, a Markov equivalence class of DAGs, a graph whose edges
        summarise several lags and which may have cycles, or a partial ancestral graph, the class of
        graphs with hidden common causes (:mod:`~flwr_causal.core.graphs.pag.marks`).
    lagged : ndarray of float64, shape (p, d, d), optional
        ``lagged[l, i, j]`` is the effect of i at time t - l - 1 on j at time t.
    raw_weights, raw_lagged : ndarray of float64, optional
        The estimates before the threshold, in the shapes of ``weights`` and ``lagged``.
    confidence : ndarray of float64, shape (d, d), optional
        The share of the bootstrap replicates that have each instantaneous edge in this direction,
        also of edges that the graph does not have; a replicate in which the edge has no direction
        counts half. Of a PAG ``[i, j]`` is the share of the replicates with an edge between i and j
        that has the graph's mark at j. None without replicates.
    adjacency_confidence : ndarray of float64, shape (d, d), optional
        The share of the replicates with the edge in either direction; symmetric.
    lagged_confidence : ndarray of float64, shape (p, d, d), optional
        The share of the replicates with each lagged edge.
    party_agreement : ndarray of float64, shape (d, d), optional
        The share of the parties that agree with each edge, by their own graph or their own score,
        where a method has it (``fedges``). It does not say how sure an edge is: parties with few
        rows disagree by chance, and all may be wrong alike.
    turning_loss : ndarray of float64, shape (d, d), optional
        How many nats less likely the rows are by the method's own score where an edge is turned,
        below 0 where they are likelier; 0 elsewhere and where that is chance. Of methods whose
        score tells directions apart: of all edges (``lingam``), or of those whose direction the
        independencies leave open (additive models, the search of ``fedcausal``).
    required : ndarray of bool, shape (d, d), optional
        Edges that background knowledge requires: they are in `adjacency` whatever their weight, and
        neither `threshold` nor the removal of cycles drops them.
    allowed : ndarray of bool, shape (d, d), optional
        Edges that background knowledge allows, see :meth:`with_knowledge`. Default: all.
    required_lagged : ndarray of bool, shape (p, d, d), optional
        Lagged edges that background knowledge requires.
    deviations : ndarray of float64, shape (d,), optional
        Standard deviations of the variables in the units of the weights. Edges are then strong or
        weak by their weight in standard deviations of the effect per standard deviation of the
        cause, whatever the units are. Default: by their weight.
    marks : ndarray of int, shape (d, d), optional
        Of a PAG: at ``[i, j]`` the mark at j of the edge between i and j, 0 no edge, 1 a tail, 2 an
        arrowhead, 3 a circle. None for other kinds.

    Raises
    ------
    DataError
        If names repeat, a shape does not fit, or a number is not finite; if the marks are not those
        of a PAG, or another kind has marks.

    Examples
    --------
    >>> from flwr_causal import CausalGraph
    >>> graph = CausalGraph(("dose", "pressure"), [[0, -4.0], [0, 0]])
    >>> graph.edges(), graph.is_acyclic()
    ([('dose', 'pressure', -4.0)], True)
    """

    names: tuple[str, ...]
    weights: FloatArray
    kind: Kind = "dag"
    lagged: FloatArray | None = None
    raw_weights: FloatArray | None = None
    raw_lagged: FloatArray | None = None
    confidence: FloatArray | None = None
    required: BoolArray | None = None
    adjacency_confidence: FloatArray | None = None
    lagged_confidence: FloatArray | None = None
    allowed: BoolArray | None = None
    required_lagged: BoolArray | None = None
    deviations: FloatArray | None = None
    party_agreement: FloatArray | None = None
    marks: IntArray | None = None
    turning_loss: FloatArray | None = None

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
            "weights": _frozen_numbers("weights", self.weights, square, names),
            "lagged": _frozen_numbers("lagged", lagged, lags, names),
            "raw_weights": _frozen_numbers("raw_weights", self.raw_weights, square, names),
            "raw_lagged": _frozen_numbers("raw_lagged", self.raw_lagged, lags, names),
            "confidence": _frozen_numbers("confidence", self.confidence, square, names),
            "required": frozen_booleans("required", self.required, square),
            "allowed": frozen_booleans("allowed", self.allowed, square),
            "required_lagged": frozen_booleans("required_lagged", self.required_lagged, lags),
            "deviations": _checked_deviations(self.deviations, names),
            "adjacency_confidence": _frozen_numbers(
                "adjacency_confidence", self.adjacency_confidence, square, names
            ),
            "lagged_confidence": _frozen_numbers(
                "lagged_confidence", self.lagged_confidence, lags, names
            ),
            "party_agreement": _frozen_numbers(
                "party_agreement", self.party_agreement, square, names
            ),
            "turning_loss": _frozen_numbers("turning_loss", self.turning_loss, square, names),
        }
        if checked["weights"] is None:
            raise DataError("weights is None: give a matrix, all zeros for a graph without edges")
        checked["marks"] = self._checked_marks(checked["weights"], lagged)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def _checked_marks(self, weights: object, lagged: object) -> IntArray | None:
        """Return the marks of a PAG; a DataError if they do not fit the kind."""
        if (self.kind == "pag") != (self.marks is not None):
            raise DataError("marks belong to kind 'pag', and to no other one: give both or none")
        if self.marks is None:
            return None
        if lagged is not None:
            raise DataError("a PAG has no lags: leave lagged out")
        marks = checked_marks(self.marks, self.names)
        if not np.array_equal(marks != NONE, np.asarray(weights) != 0):
            raise DataError("weights and marks of a PAG must be those of the same edges")
        return marks

    def __repr__(self) -> str:
        lags = "" if self.lagged is None else f", {self.num_lagged_edges} lagged"
        return (
            f"<CausalGraph {self.kind}: {len(self.names)} variables, {self.num_edges} edges{lags}>"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a table of the strongest edges, and the drawing."""
        edges = self.marked_edges()
        order = np.argsort(-np.array(self.marked_strengths()), kind="stable").tolist()
        table = notebook.edge_table([edges[k] for k in order])
        return notebook.section(repr(self), table + self._picture())

    def _picture(self) -> str:
        """Return the drawing as HTML, of the strongest edges if it is large; "" if none can be."""
        try:
            from flwr_causal.core.graphs import drawing
        except ImportError:
            return ""
        boxes = len(self.names) * (1 if self.lagged is None else 1 + len(self.lagged))
        if boxes <= MOST_DRAWN:
            return notebook.picture(drawing.svg(self), "")
        count = MOST_DRAWN // (2 if self.lagged is None else 2 * (1 + len(self.lagged)))
        return notebook.picture(drawing.svg(self.strongest(count)), f"The {count} strongest edges")

    @classmethod
    def from_array(
        cls,
        array: ArrayLike,
        names: Sequence[str] | None = None,
        *,
        kind: Kind = "dag",
        lagged: ArrayLike | None = None,
        marks: ArrayLike | None = None,
    ) -> Self:
        """Return the graph of a matrix of weights or of booleans.

        Parameters
        ----------
        array : array_like, shape (d, d)
            Non-zero at ``[i, j]`` where i causes j.
        names : sequence of str, optional
            The variables. Default: ``x0, x1, ...``.
        kind : {"dag", "cpdag", "summary", "pag"}, default "dag"
            The kind of the graph.
        lagged : array_like, shape (p, d, d), optional
            Lagged effects. Default: a graph without lags.
        marks : array_like of int, shape (d, d), optional
            Of a PAG, see `marks`.

        Raises
        ------
        DataError
            If the matrix is not square, or the constructor refuses the values.
        """
        weights = np.asarray(array)
        if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
            raise DataError(f"a graph's matrix must be square, its shape is {weights.shape}")
        if names is None:
            names = [f"x{k}" for k in range(len(weights))]
        lags = None if lagged is None else np.asarray(lagged)
        ends = None if marks is None else np.asarray(marks)
        return cls(tuple(names), weights, kind=kind, lagged=lags, marks=ends)

    @classmethod
    def from_marks(cls, marks: ArrayLike, names: Sequence[str] | None = None) -> Self:
        """Return the PAG of a matrix of marks; each edge of weight 1.

        Parameters
        ----------
        marks : array_like of int, shape (d, d)
            See `marks`.
        names : sequence of str, optional
            The variables. Default: ``x0, x1, ...``.

        Raises
        ------
        DataError
            If they are not the marks of a PAG.
        """
        given = np.asarray(marks)
        return cls.from_array(given != NONE, names, kind="pag", marks=given)

    @property
    def adjacency(self) -> BoolArray:
        """The instantaneous edges, shape ``(d, d)``; undirected ones, all of a PAG, both ways."""
        present: BoolArray = self.weights != 0
        return present if self.required is None else present | self.required

    @property
    def ruled_out(self) -> BoolArray:
        """The instantaneous edges that background knowledge excludes, shape ``(d, d)``."""
        found: BoolArray = np.zeros(self.weights.shape, dtype=bool)
        if self.allowed is not None:
            found |= ~self.allowed
        return found if self.required is None else found | self.required.T

    @property
    def num_edges(self) -> int:
        """Number of instantaneous edges; one that stands in both directions counts once."""
        adjacency = self.adjacency
        twice = self._undirected().sum() // 2
        return int(adjacency.sum() - twice)

    @property
    def num_lagged_edges(self) -> int:
        """Number of lagged edges."""
        return 0 if self.lagged is None else int(np.count_nonzero(self.lagged))

    def edges(self) -> list[tuple[str, str, float]]:
        """Return the instantaneous edges as ``(cause, effect, weight)``, sorted by indices.

        An undirected edge of a CPDAG is listed twice, once in each direction, and so is every edge
        of a PAG; `marked_edges` lists each once.
        """
        return [
            (self.names[i], self.names[j], float(self.weights[i, j]))
            for i, j in np.argwhere(self.adjacency)
        ]

    def lagged_edges(self) -> list[tuple[str, str, int, float]]:
        """Return the lagged edges as ``(cause, effect, lag, weight)``, sorted by lag, from 1 up."""
        if self.lagged is None:
            return []
        return [
            (self.names[i], self.names[j], int(lag) + 1, float(self.lagged[lag, i, j]))
            for lag, i, j in np.argwhere(self.lagged != 0)
        ]

    def marked_edges(self) -> list[tuple[str, str, str, float]]:
        """Return every edge once, as ``(cause, mark, effect, weight)``: instantaneous ones first.

        The mark is ``"->"``, or ``"--"`` for an undirected edge of a CPDAG; in a PAG it is also
        ``"o->"``, ``"<->"`` or ``"o-o"``. The cause of a lagged edge is named with its lag, such as
        ``x0[t-1]``.
        """
        now = [
            (self.names[i], self.symbol(i, j), self.names[j], float(self.weights[i, j]))
            for lag, i, j in self._marked_places()
            if lag == 0
        ]
        past = self.lagged_edges()
        return now + [(at_lag(cause, lag), "->", effect, w) for cause, effect, lag, w in past]

    def symbol(self, cause: int, effect: int) -> str:
        """Return the mark of an edge of `marked_edges`, from one variable's place to another's."""
        if self.marks is not None:
            return edge_symbol(int(self.marks[effect, cause]), int(self.marks[cause, effect]))
        return "--" if self._undirected()[cause, effect] else "->"

    def _undirected(self) -> BoolArray:
        """Return the edges that stand both ways: undirected ones of a CPDAG, all of a PAG."""
        if self.kind in ("cpdag", "pag"):
            return equivalence.undirected_part(self.adjacency)
        return np.zeros_like(self.adjacency)

    def _marked_places(self) -> list[tuple[int, int, int]]:
        """Return lag, cause and effect of each edge of `marked_edges`, in the same order."""
        shown = self.adjacency & ~np.tril(self._undirected())
        now = np.argwhere(shown if self.marks is None else forward(self.marks)).tolist()
        past = [] if self.lagged is None else np.argwhere(self.lagged != 0).tolist()
        return [(0, i, j) for i, j in now] + [(lag + 1, i, j) for lag, i, j in past]

    def confidence_of(self, cause: int, effect: int, lag: int = 0) -> float | None:
        """Return the confidence in an edge as the graph has it, None where it is not known.

        Of an undirected edge, and of one of a PAG, it is the share of the replicates with an edge
        of any direction; where only the shares by direction are known, the larger one.

        Parameters
        ----------
        cause, effect : int
            Positions of the variables.
        lag : int, default 0
        """
        if lag:
            past = self.lagged_confidence
            return None if past is None else float(past[lag - 1, cause, effect])
        if self.confidence is None:
            return None
        pair = (cause, effect), (effect, cause)
        if not self._undirected()[pair[0]]:
            return float(self.confidence[pair[0]])
        if self.adjacency_confidence is not None:
            return float(self.adjacency_confidence[pair[0]])
        return max(float(self.confidence[one]) for one in pair)

    def marked_confidences(self) -> list[float | None]:
        """Return the confidence of each edge of `marked_edges`, in the same order."""
        return [self.confidence_of(i, j, lag) for lag, i, j in self._marked_places()]

    def marked_strengths(self) -> list[float]:
        """Return how strong each edge of `marked_edges` is, in the same order: see `deviations`."""
        strengths = self.strengths()
        return [float(strengths[place]) for place in self._marked_places()]

    def strengths(self) -> FloatArray:
        """Return how strong the edges of lags 0 to p are, shape (1 + p, d, d): see `deviations`."""
        past = np.zeros((0, *self.weights.shape)) if self.lagged is None else self.lagged
        found: FloatArray = np.abs(np.concatenate([self.weights[None], past]))
        if self.deviations is not None:
            found *= self.deviations[:, None] / self.deviations
        return found

    def marked_required(self) -> list[bool]:
        """Return whether background knowledge requires each edge of `marked_edges`."""
        now, past = self.required, self.required_lagged
        return [
            past is not None and bool(past[lag - 1, i, j])
            if lag
            else now is not None and bool(now[i, j])
            for lag, i, j in self._marked_places()
        ]

    def with_knowledge(self, knowledge: Knowledge) -> Self:
        """Return the graph with the required and allowed edges of background knowledge.

        What knowledge decides is then in no doubt (:func:`~core.graphs.doubt.doubtful_edges`).

        Raises
        ------
        ConfigError
            If the knowledge names a variable that the graph does not have.
        """
        lags = 0 if self.lagged is None else len(self.lagged)
        known = knowledge.blocks(self.names, max(lags, knowledge.longest_lag))
        return replace(
            self,
            required=known.required_now if known.required_now.any() else self.required,
            allowed=known.allowed_now,
            required_lagged=known.required_lagged[:lags] if lags else None,
        )

    def threshold(self, value: float, lagged: float | None = None) -> Self:
        """Return the graph of the edges whose raw weight exceeds a threshold in absolute value.

        The threshold is applied to the raw weights (to the weights if the graph has no raw
        weights), so that a lower threshold restores edges. An edge that the graph has keeps its
        weight, which may have been refitted; a restored edge gets its raw weight. In a graph of
        kind "dag" the weakest edges on cycles are removed. An undirected edge of a CPDAG stays
        undirected if its weight exceeds the threshold in one direction or the other. Required edges
        are always kept.

        Parameters
        ----------
        value : float
            The threshold, at least 0.
        lagged : float, optional
            The threshold of lagged edges. Default: ``value``.

        Raises
        ------
        ConfigError
            If a threshold is negative or not finite.
        DataError
            If the graph is a PAG: its marks follow from which edges it has.
        """
        self._refuse_marks("no threshold: its marks follow from which edges it has")
        lagged = value if lagged is None else lagged
        for limit in (value, lagged):
            if not (np.isfinite(limit) and limit >= 0):
                raise ConfigError(f"threshold is {limit}: expected a number from 0 up")
        raw = self.weights if self.raw_weights is None else self.raw_weights
        required = np.zeros_like(self.adjacency) if self.required is None else self.required
        # A required edge takes part in cycles even when its own weight is zero.
        strength = np.where(required & (raw == 0), 1.0, raw)
        above = np.abs(raw) > value
        if self.kind == "cpdag":
            above |= above.T & equivalence.undirected_part(raw != 0)
        strength = np.where(required | above, strength, 0.0)
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

    def with_confidence(self, replicates: Sequence[CausalGraph]) -> Self:
        """Return the graph with the shares of its replicates that have each edge as confidence.

        Parameters
        ----------
        replicates : sequence of CausalGraph
            At least one; over the same variables.
        """
        if self.marks is not None:
            same, adjacent = shares.shares_of_marks(self.marks, [one.marks for one in replicates])
            return replace(self, confidence=same, adjacency_confidence=adjacent)
        directed = shares.shares_of([one.adjacency for one in replicates])
        lagged = None
        if self.lagged is not None:
            past = [one.lagged for one in replicates]
            lagged = shares.lagged_shares_of(past, len(self.lagged), len(self.names))
        return replace(
            self,
            confidence=directed,
            adjacency_confidence=directed + directed.T,
            lagged_confidence=lagged,
        )

    def inclusion_threshold(self) -> float:
        """Return the confidence above which edges are significant (Scutari & Nagarajan 2013).

        It follows from ``adjacency_confidence``, with lags also from ``lagged_confidence``, by the
        rule of bnlearn's ``inclusion.threshold``.

        Raises
        ------
        ConfigError
            If the graph has no bootstrap replicates.
        """
        _, adjacent = self._shares()
        pairs = adjacent[np.triu_indices(len(adjacent), 1)]
        lagged = () if self.lagged_confidence is None else self.lagged_confidence.ravel()
        return shares.inclusion_threshold(np.concatenate([pairs, lagged]))

    def averaged(self, threshold: float | None = None) -> CausalGraph:
        """Return the averaged graph of the replicates: their significant edges.

        Edges are added in the order of their confidence, in their more frequent direction; one that
        would close a cycle is left out, as in bnlearn's ``averaged.network``. Required edges are
        kept, and no forbidden edge has a confidence. The weights are the confidences. Of a CPDAG
        the result is the equivalence class of that graph; an edge of it that no replicate has in
        the other direction, which may be forbidden, keeps its own.

        Parameters
        ----------
        threshold : float, optional
            Edges of larger confidence, in either direction, are kept, and those of confidence 1.
            Default: :meth:`inclusion_threshold`.

        Raises
        ------
        ConfigError
            If the graph has no bootstrap replicates, or the threshold is not from 0 to 1.
        DataError
            If the graph is a PAG.
        """
        self._refuse_marks("no average: read its confidence by edge and by mark")
        directed, adjacent = self._shares()
        limit = self.inclusion_threshold() if threshold is None else threshold
        if not isinstance(limit, Real) or not 0 <= limit <= 1:
            raise ConfigError(f"threshold is {limit!r}: expected a number from 0 to 1")
        required = np.zeros_like(self.adjacency) if self.required is None else self.required
        chosen = shares.significant_edges(directed, adjacent, limit, required)
        lagged = self.lagged_confidence
        if lagged is not None:
            lagged = np.where(shares.significant(lagged, limit), lagged, 0.0)
        kept = replace(self, kind="dag", raw_weights=None, raw_lagged=None, lagged=lagged)
        if self.kind == "cpdag":
            marks = chosen
            if lagged is None:
                # The class alone would undo what background knowledge has directed.
                marks = equivalence.cpdag(chosen)
                marks = equivalence.meek(marks & ~(chosen.T & (directed == 0)))
            return replace(kept, kind="cpdag", weights=np.where(marks, adjacent, 0.0))
        return replace(kept, weights=np.where(chosen, directed, 0.0))

    def _shares(self) -> tuple[FloatArray, FloatArray]:
        """Return the shares of replicates with each edge in its direction, and in either."""
        if self.confidence is None or self.adjacency_confidence is None:
            raise ConfigError(
                "the graph has no bootstrap replicates: run the method with replicates=100"
            )
        return self.confidence, self.adjacency_confidence

    def summary(self, *, self_loops: bool = True) -> CausalGraph:
        """Return the summary graph: i -> j if there is an instantaneous or lagged edge i -> j.

        The weight of an edge is its weight of largest absolute value over the slices; raw weights
        likewise. The summary has no confidence, which is defined for instantaneous edges only.

        Parameters
        ----------
        self_loops : bool, default True
            Whether to keep the edge of a variable to itself where it depends on its own past.
            Gold standards, such as those of DREAM4, have no such edges.

        Raises
        ------
        DataError
            If the graph is a CPDAG or a PAG: its undirected edges would become cycles.
        """
        self._refuse_marks("no summary graph, because it has no lags")
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
            deviations=self.deviations,
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
        return self._among([self.names.index(name) for name in names])

    def around(self, name: str, steps: int = 1) -> Self:
        """Return the subgraph within a number of edges of a variable, in any direction.

        All edges among these variables are kept, lagged ones too; ``graph.around("x").draw()``
        draws a neighbourhood.

        Parameters
        ----------
        name : str
            The variable.
        steps : int, default 1
            Largest number of edges to it.

        Raises
        ------
        DataError
            If the graph has no such variable.
        ConfigError
            If ``steps`` is negative.
        """
        if name not in self.names:
            raise DataError(f"the graph has no variable {name!r}: it has {', '.join(self.names)}")
        if steps < 0:
            raise ConfigError(f"steps is {steps}: expected 0, 1, 2, ...")
        linked = self.adjacency | (False if self.lagged is None else self.lagged.any(axis=0))
        near = np.array([one == name for one in self.names])
        for _ in range(min(steps, len(near))):
            near = near | (linked | linked.T)[near].any(axis=0)
        return self._among(np.flatnonzero(near))

    def strongest(self, count: int) -> Self:
        """Return the graph of the strongest edges, and of the variables on them.

        Strong are edges of large absolute weight, in standard deviations where `deviations` are
        known. Lagged edges are compared with instantaneous ones. In a CPDAG the edges of largest
        confidence are kept, or else of largest agreement of the parties, if it has one of them. Of
        equal edges, the first ones are kept.

        Parameters
        ----------
        count : int
            Number of edges, at least 0; an undirected edge counts once.

        Raises
        ------
        ConfigError
            If ``count`` is negative.
        """
        if count < 0:
            raise ConfigError(f"count is {count}: expected 0, 1, 2, ...")
        strengths = self.strengths()
        shares = self.party_agreement if self.confidence is None else self.confidence
        if shares is not None and self.kind == "cpdag":
            strengths[0] = shares
        now, both = np.where(self.adjacency, strengths[0], -1.0), self._undirected()
        if both.any():
            now = np.where(both, np.maximum(now, now.T), now)
            now[both & np.tri(len(now), dtype=bool)] = -1.0
        past = strengths[1:]
        slices = np.concatenate([now[None], np.where(past != 0, past, -1.0)])
        order = np.argsort(-slices, axis=None, kind="stable")[: min(count, (slices >= 0).sum())]
        kept = np.zeros(slices.shape, dtype=bool)
        kept.flat[order] = True
        kept[0] |= kept[0].T & both
        changed: dict[str, Any] = {
            field: np.where(kept[1:] if "lagged" in field else kept[0], array, 0)
            for field in _ARRAYS
            if field not in ("allowed", "deviations")
            and (array := getattr(self, field)) is not None
        }
        on_edges = kept.any(axis=(0, 1)) | kept.any(axis=(0, 2))
        return replace(self, **changed)._among(np.flatnonzero(on_edges))

    def _among(self, chosen: Sequence[int] | IntArray) -> Self:
        """Return the graph of some variables, in this order."""
        changed: dict[str, Any] = {
            field: array[chosen] if array.ndim == 1 else array[..., chosen, :][..., chosen]
            for field in _ARRAYS
            if (array := getattr(self, field)) is not None
        }
        return replace(self, names=tuple(self.names[k] for k in chosen), **changed)

    def is_acyclic(self) -> bool:
        """Whether the instantaneous edges have no directed cycle.

        Undirected edges of a CPDAG are ignored, and edges other than ``->`` of a PAG.
        """
        marks = self.adjacency if self.marks is None else directed_edges(self.marks)
        if self.kind == "cpdag":
            marks = equivalence.directed_part(marks)
        return acyclicity.is_acyclic(marks)

    def topological_order(self) -> list[str]:
        """Return the names with every cause before its effects; ties in the order of columns.

        Raises
        ------
        DataError
            If the graph has a cycle or an undirected edge, or is a PAG.
        """
        self._refuse_marks("no causal order: circles and hidden causes leave it open")
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
        """Return the CPDAG of the equivalence class of this DAG; a CPDAG returns itself.

        Background knowledge about the graph (`allowed`, `required`) directs further edges, and
        those that follow from them. All weights of the result are 1, and it has no confidence.

        Raises
        ------
        DataError
            If the graph has cycles, or has lags: their time order directs edges that a CPDAG would
            leave undirected; if it is a PAG.
        """
        self._refuse_marks("no CPDAG, which has no hidden common causes: run without hidden_causes")
        if self.kind == "cpdag":
            return self
        if self.lagged is not None:
            raise DataError("a graph with lags has no CPDAG: its time order directs edges")
        if not self.is_acyclic():
            raise DataError("a graph with cycles has no CPDAG: call threshold() to remove them")
        marks = equivalence.informed_class(self.adjacency, ~self.ruled_out)
        return CausalGraph(
            self.names,
            marks.astype(np.float64),
            kind="cpdag",
            required=self.required,
            allowed=self.allowed,
        )

    def to_dag(self) -> CausalGraph:
        """Return one DAG of this equivalence class (Dor & Tarsi, 1992); a DAG returns itself.

        Raises
        ------
        DataError
            If no DAG has these edges and v-structures, that is, if the graph is not the CPDAG of
            any DAG, or if the graph is a summary graph or a PAG.
        """
        self._refuse_marks("no DAG over its variables: hidden common causes are not among them")
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

    def to_pag(self, names: Sequence[str]) -> CausalGraph:
        """Return the PAG of this DAG over some variables; all others are hidden.

        A PAG returns itself, in the order of the names. All weights of the result are 1.

        Parameters
        ----------
        names : sequence of str
            The variables that are seen.

        Raises
        ------
        DataError
            If the graph lacks one of them, has lags or cycles, or is of another kind.
        """
        if self.marks is not None:
            return self.reordered(names)
        if self.kind != "dag" or self.lagged is not None or not self.is_acyclic():
            raise DataError("a PAG follows from a DAG without lags: this graph is none")
        seen = [place_of(self.names, name) for name in names]
        return CausalGraph.from_marks(pag_of_mag(mag(self.adjacency, seen)), names)

    def moral(self) -> BoolArray:
        """Return the moral graph of the instantaneous edges: symmetric booleans, shape (d, d).

        Raises
        ------
        DataError
            If the graph is a PAG.
        """
        self._refuse_marks("no moral graph")
        return equivalence.moralize(self.adjacency)

    def adjustment_set(
        self, cause: str, effect: str, kind: AdjustmentKind = "smallest"
    ) -> tuple[str, ...] | None:
        """Return variables whose adjustment gives the total effect of a cause (backdoor).

        The regression of the effect on the cause and these variables has the total effect as the
        coefficient of the cause, if the graph is right and effects are linear. In a graph with lags
        cause and effect are at time t, and variables before t have names such as ``x[t-1]``.

        Parameters
        ----------
        cause, effect : str
            Two different variables.
        kind : {"smallest", "optimal"}, default "smallest"
            The fewest variables, or those with which the estimate of a linear effect has the least
            asymptotic variance (Henckel, Perković & Maathuis, 2022); of a PAG only the fewest.
            Where the graph has no directed path from the cause to the effect, both are the fewest
            variables.

        Returns
        -------
        tuple of str or None
            In the order of `names`, then of lags; ``()`` if no adjustment is needed. None if there
            is no adjustment set: the effect is a direct cause of the cause, or undirected edges of
            a CPDAG leave the effect open.

        Raises
        ------
        DataError
            If a variable is unknown, or the graph is a summary, has cycles or is not the CPDAG of
            any DAG, or the PAG of any graph; if a PAG does not identify the effect: the message
            names the edges that leave it open.
        ConfigError
            If the two variables are the same, or the kind is unknown, or "optimal" of a PAG.
        """
        finders = {"smallest": adjustment.smallest_set, "optimal": adjustment.optimal_set}
        if kind not in finders:
            raise ConfigError(f"kind is {kind!r}: expected {' or '.join(map(repr, finders))}")
        if self.marks is not None:
            return self._adjusted_in_pag(cause, effect, kind)
        if self.kind == "summary" or not self.is_acyclic():
            raise DataError("adjustment needs a DAG or a CPDAG: this graph may have cycles")
        ends = pair_of(self.names, cause, effect)
        marks, names = self.adjacency, self.names
        if self.lagged is not None:
            marks = adjustment.with_past(marks, self.lagged != 0)
            past = range(1, 1 + len(self.lagged))
            names += tuple(at_lag(name, lag) for lag in past for name in self.names)
        try:
            found = finders[kind](marks, *ends)
        except ValueError as error:
            raise DataError(f"{error}: the graph is not a CPDAG") from None
        return None if found is None else tuple(names[k] for k in found)

    def _adjusted_in_pag(
        self, cause: str, effect: str, kind: AdjustmentKind
    ) -> tuple[str, ...] | None:
        """Return an adjustment set of a PAG, see `adjustment_set`."""
        assert self.marks is not None
        if kind != "smallest":
            raise ConfigError(f"kind is {kind!r}: of a PAG only the 'smallest' set is known")
        i, j = pair_of(self.names, cause, effect)
        opened = adjustment.invisible_starts(self.marks, i, j)
        if opened:
            edges = some([f"{cause} {self.symbol(i, k)} {self.names[k]}" for k in opened])
            raise DataError(
                f"the effect of {cause} on {effect} is not identified: a hidden common cause may "
                f"act on both ends of {edges}. Measure what may act on both, or state what you "
                "know of their causes (option 'knowledge')"
            )
        try:
            found = adjustment.smallest_set_in_pag(self.marks, i, j)
        except ValueError as error:
            raise DataError(
                f"the effect of {cause} on {effect} is not identified: {error}; circles stand for "
                "marks that the rows leave open"
            ) from None
        if found is not None and not describes_one_class(self.marks):
            raise DataError(
                f"the effect of {cause} on {effect} is not identified: graphs with different "
                "independences have these marks, since the rows do not decide the others. More "
                "rows, or what you know of the causes (option 'knowledge'), may decide them"
            )
        return None if found is None else tuple(self.names[k] for k in found)

    def may_cause(self, cause: str, effect: str) -> bool:
        """Whether the graph leaves it possible that a variable causes another, or says so.

        With lags within a step. A variable that may not has the total effect 0.

        Parameters
        ----------
        cause, effect : str
            Two different variables.

        Raises
        ------
        DataError
            If a variable is unknown.
        ConfigError
            If the two are the same.
        """
        ends = pair_of(self.names, cause, effect)
        ways = self.adjacency if self.marks is None else possibly_directed(self.marks)
        return adjustment.is_possible_cause(ways, *ends)

    def _refuse_marks(self, what: str) -> None:
        """Raise a DataError if the graph is a PAG, with ``what`` a PAG has or lacks."""
        if self.marks is not None:
            raise DataError(f"a PAG has {what}")

    def to_networkx(self) -> nx.DiGraph[str]:
        """Return a networkx ``DiGraph``, or a ``MultiDiGraph`` if the graph has lags.

        All variables are nodes, in order. Edges have the attributes ``weight`` and ``lag`` (0:
        instantaneous) and, if the graph has them, ``raw_weight``, ``confidence``,
        ``party_agreement`` and ``required``. Each edge of a PAG stands in both directions, with the
        attribute ``mark``, the mark at its end: 1 a tail, 2 an arrowhead, 3 a circle.
        """
        import networkx as nx

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
            if self.party_agreement is not None:
                attributes["party_agreement"] = float(self.party_agreement[i, j])
            if self.required is not None:
                attributes["required"] = bool(self.required[i, j])
            if self.marks is not None:
                attributes["mark"] = int(self.marks[i, j])
            result.add_edge(self.names[i], self.names[j], **attributes)
        if self.lagged is not None:
            for lag, i, j in np.argwhere(self.lagged != 0):
                attributes = {"weight": float(self.lagged[lag, i, j]), "lag": int(lag) + 1}
                if self.raw_lagged is not None:
                    attributes["raw_weight"] = float(self.raw_lagged[lag, i, j])
                if self.lagged_confidence is not None:
                    attributes["confidence"] = float(self.lagged_confidence[lag, i, j])
                result.add_edge(self.names[i], self.names[j], **attributes)
        return result

    def unrolled(self) -> nx.DiGraph[str]:
        """Return a networkx graph with a node for each variable and time slice.

        For example, the variable ``x0`` has the nodes ``x0[t-1]`` and ``x0[t]``, with the
        attributes ``variable`` and ``lag``. Nodes are ordered from the oldest to the present slice.
        The result has the edges into the present slice only; they are the same for every slice. A
        graph without lags returns the result of `to_networkx`.
        """
        import networkx as nx

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
        """Return the graph of a networkx graph, its nodes in order and named by their text.

        The inverse of `to_networkx` and `unrolled`, except for raw weights: edges that the
        threshold removed are not in a networkx graph. An undirected ``Graph`` becomes a CPDAG of
        undirected edges.

        Parameters
        ----------
        graph : networkx.Graph
            An edge with the attribute ``lag`` above 0 becomes a lagged edge.
        weight : str, default "weight"
            The attribute that holds an edge's weight; an edge without the attribute gets weight 1.

        Raises
        ------
        DataError
            If an edge has weight 0 and is not required, occurs twice at the same lag, or has a lag
            that is not 0, 1, 2, ...; if an unrolled graph has an edge that does not lead into the
            present slice.
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
        confidence = np.zeros((num_lags + 1, size, size))
        agreement = np.zeros((size, size))
        marks = np.zeros((size, size), dtype=np.int64)
        seen: set[tuple[int, int, int]] = set()
        names = tuple(labels.values())
        for lag, (i, j, data) in zip(lags, edges, strict=True):
            value = float(data.get(weight, 1.0))
            if (lag, i, j) in seen:
                raise DataError(
                    f"the edge {names[i]} -> {names[j]} occurs twice at lag {lag}: remove one"
                )
            if value == 0 and not data.get("required", False):
                raise DataError(
                    f"the edge {names[i]} -> {names[j]} has weight 0, which means no edge: remove "
                    "it or give it a weight"
                )
            seen.add((lag, i, j))
            slices[lag, i, j] = value
            confidence[lag, i, j] = float(data.get("confidence", 0.0))
            if lag == 0:
                required[i, j] = bool(data.get("required", False))
                agreement[i, j] = float(data.get("party_agreement", 0.0))
                marks[i, j] = int(data.get("mark", NONE))
        kind = graph.graph.get("kind", "dag" if graph.is_directed() else "cpdag")
        fields: dict[str, Any] = {"names": names, "weights": slices[0], "kind": kind}
        if kind == "pag":
            fields["marks"] = marks
        if num_lags:
            fields["lagged"] = slices[1:]
        if any("required" in data for _, _, data in edges):
            fields["required"] = required
        if any("party_agreement" in data for _, _, data in edges):
            fields["party_agreement"] = agreement
        sure = {lag > 0 for lag, edge in zip(lags, edges, strict=True) if "confidence" in edge[2]}
        if False in sure:
            fields["confidence"] = confidence[0]
        if True in sure:
            fields["lagged_confidence"] = confidence[1:]
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as lists, numbers and strings, ready for JSON without loss."""
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
        """Return the graph of a result of `to_dict`.

        Parameters
        ----------
        record : mapping
            Result of `to_dict`.
        origin : str, default "the record"
            Name of the record in messages.

        Raises
        ------
        DataError
            If the record has another format or version, or lacks a field.
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
                fields[name] = np.array(record[name], dtype=_dtype_of(name))
        try:
            return cls(**fields)
        except DataError as error:
            raise DataError(f"{origin} holds no graph: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write all fields to a JSON file, without loss; create its folder if needed.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        text = json.dumps(self.to_dict(), allow_nan=False) + "\n"
        with writing(path, "graph") as file:
            file.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the graph of a file that `save` wrote.

        Raises
        ------
        DataError
            If the file is missing, is not JSON, or holds no valid graph.
        """
        record = read_json(path, "graph")
        try:
            return cls.from_dict(record, str(path))
        except DAMAGE as error:
            raise DataError(f"{path} holds a damaged graph ({error}): save it again") from None

    def draw(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the graph with matplotlib and return the axes; see `core.graphs.drawing.draw`.

        Raises
        ------
        ConfigError
            If matplotlib is not installed.
        """
        axes: Axes = _drawing().draw(self, ax, **options)
        return axes

    def draw_matrix(self) -> Figure:
        """Draw the weights as heat maps with matplotlib, one for each lag; return the figure.

        Raises
        ------
        ConfigError
            If matplotlib is not installed.
        """
        figure: Figure = _drawing().draw_matrix(self)
        return figure

    def equals(self, other: object) -> bool:
        """Whether all fields are equal; numbers are compared exactly."""
        if not isinstance(other, CausalGraph):
            return False
        return all(
            _equal(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        )


def _dtype_of(array: str) -> type:
    """Return the type of the entries of one of the arrays of a graph."""
    return bool if array in _BOOLEANS else int if array == "marks" else float


def _drawing() -> ModuleType:
    """Return the module that draws; a ConfigError if matplotlib is not installed."""
    try:
        from flwr_causal.core.graphs import drawing
    except ImportError:
        raise ConfigError(
            'drawing needs matplotlib, which is not installed: pip install "flwr-causal[plot]"'
        ) from None
    return drawing


def _equal(one: object, two: object) -> bool:
    """Whether two values of a field are equal; arrays are equal in shape and all entries."""
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        return np.array_equal(one, two)
    return type(one) is type(two) and one == two


def _strongest(now: FloatArray, lagged: FloatArray | None) -> FloatArray:
    """Return the entry of largest absolute value over all slices; of equal ones the latest."""
    slices = now[None] if lagged is None else np.concatenate([now[None], lagged])
    latest = np.abs(slices).argmax(axis=0)[None]
    return np.asarray(np.take_along_axis(slices, latest, axis=0)[0])


def at_lag(name: str, lag: int) -> str:
    """Return the name of a variable at a lag, such as ``x[t-1]``, or ``x[t]`` for lag 0."""
    return f"{name}[t-{lag}]" if lag else f"{name}[t]"


def _folded(graph: nx.Graph[Any]) -> nx.MultiDiGraph[str]:
    """Return the graph over variables, with lags as edge attributes, of an unrolled graph."""
    import networkx as nx

    result: nx.MultiDiGraph[str] = nx.MultiDiGraph(**graph.graph)
    data: dict[str, Any]
    for _, data in graph.nodes(data=True):
        result.add_node(str(data["variable"]))
    for start, end, edge in graph.edges(data=True):
        if _lag(graph.nodes[end], start, end) != 0:
            raise DataError(
                f"the edge {start} -> {end} leads into the past: give an unrolled graph only edges "
                "into nodes of lag 0"
            )
        cause, effect = graph.nodes[start]["variable"], graph.nodes[end]["variable"]
        result.add_edge(str(cause), str(effect), **{**edge, "lag": graph.nodes[start]["lag"]})
    return result


def _lag(data: Mapping[str, Any], cause: str, effect: str) -> int:
    """Return an edge's lag; raise a DataError if it is not 0, 1, 2, ..."""
    lag = data.get("lag", 0)
    if int(lag) != lag or lag < 0:
        raise DataError(f"the edge {cause} -> {effect} has lag {lag}: expected 0, 1, 2, ...")
    return int(lag)


def distinct_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return variable names as a tuple of strings.

    Raises
    ------
    DataError
        If a name repeats, or a single string was given.
    """
    if isinstance(names, str):
        raise DataError(f"names is the string {names!r}: give a sequence of names")
    if not hasattr(names, "__iter__"):
        raise DataError(f"names is {names!r}: give a sequence of names")
    result = tuple(str(name) for name in names)
    repeated = [name for name, count in Counter(result).items() if count > 1]
    if repeated:
        raise DataError(f"names repeat: {', '.join(repeated)}; rename or drop columns")
    return result


def place_of(names: Sequence[str], name: str) -> int:
    """Return the index of a variable; a DataError if it is unknown."""
    if name not in names:
        raise DataError(f"unknown variable {name!r}; known are {', '.join(names)}")
    return names.index(name)


def pair_of(
    names: Sequence[str], cause: str, effect: str, *, same: bool = False
) -> tuple[int, int]:
    """Return the indices of two variables, which may be the same only if ``same`` is True.

    Raises
    ------
    DataError
        If a variable is unknown.
    ConfigError
        If they are the same.
    """
    places = place_of(names, cause), place_of(names, effect)
    if cause == effect and not same:
        raise ConfigError(f"cause and effect are both {cause!r}: give two variables")
    return places


def _frozen_numbers(
    field: str, given: ArrayLike | None, shape: tuple[int, ...], names: Sequence[str]
) -> FloatArray | None:
    """Return a read-only float64 copy of shape ``(..., d, d)``, or None for None.

    Raises
    ------
    DataError
        If the shape differs, or an entry is no finite number; the message names the edge.
    """
    if given is None:
        return None
    try:
        array = np.array(given)
        if np.iscomplexobj(array):
            raise TypeError
        array = np.array(array, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{field} holds something that is not a number") from None
    _check_shape(field, array.shape, shape)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        cause, effect = (names[k] for k in bad[0][-2:])
        raise DataError(f"{field} is not finite at {cause} -> {effect}")
    array += 0.0  # turns -0.0 into 0.0, which would print as an edge
    array.setflags(write=False)
    return array


def frozen_booleans(
    field: str, given: ArrayLike | None, shape: tuple[int, ...]
) -> BoolArray | None:
    """Return a read-only boolean copy of the given shape, or None for None.

    Raises
    ------
    DataError
        If the shape differs.
    """
    if given is None:
        return None
    array = np.array(given, dtype=bool)
    _check_shape(field, array.shape, shape)
    array.setflags(write=False)
    return array


def _checked_deviations(given: ArrayLike | None, names: Sequence[str]) -> FloatArray | None:
    """Return a read-only copy of standard deviations; a DataError if one is not above 0."""
    if given is None:
        return None
    array = np.array(given, dtype=np.float64)
    _check_shape("deviations", array.shape, (len(names),))
    if not (np.isfinite(array) & (array > 0)).all():
        raise DataError("deviations must be numbers above 0")
    array.setflags(write=False)
    return array


def _check_shape(field: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise a DataError unless the shapes are the same."""
    if shape != expected:
        raise DataError(
            f"{field} has shape {shape}, expected {expected} for {expected[-1]} variables"
        )
