"""Drawing a causal graph with matplotlib, and nothing else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.graphs import acyclicity, equivalence
from flwr_causal.core.graphs.layout import layered_layout, sliced_layout
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from flwr_causal.core.graphs.graph import CausalGraph

    FloatArray = NDArray[np.float64]

POINTS_PER_INCH = 72.0
MARGIN = 0.2
BOW = 0.14
LANE = 0.05


class Edge(NamedTuple):
    """An edge to draw: its ends by index, the points it passes, its weight, its head, its label."""

    start: int
    end: int
    waypoints: FloatArray
    weight: float
    directed: bool
    label: str


def draw(
    graph: CausalGraph,
    ax: Axes | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    edge_labels: bool = False,
    font_size: float = 10.0,
) -> Axes:
    """Draw a graph: causes above effects, or one column per time slice where there are lags.

    Positive edges are blue, negative ones orange, wider where the weight is larger in absolute
    value; the edges of a CPDAG are grey, undirected ones without a head. A graph with cycles is
    laid out without its weakest edges on cycles, which then point upwards. With lags, only the
    edges into the last slice are drawn, since they repeat in every slice.

    Parameters
    ----------
    graph : CausalGraph
        The graph.
    ax : Axes, optional
        Where to draw. By default a new figure whose size fits the graph; in given axes the letters
        shrink as far as the graph must.
    labels : mapping of str to str, optional
        What to write instead of some names.
    edge_labels : bool, default False
        Whether to write the weights beside the edges; the confidence beside those of a CPDAG, where
        it is known.
    font_size : float, default 10.0
        Size of the letters in points.

    Returns
    -------
    Axes
        Of matplotlib; ``graph.draw().figure.savefig(path)`` saves the picture.

    Raises
    ------
    ConfigError
        If matplotlib is not installed.
    """
    try:
        from flwr_causal.core.graphs import strokes
    except ImportError:
        raise ConfigError(
            'drawing needs matplotlib, which is not installed: pip install "flwr-causal[plot]"'
        ) from None

    texts = [(labels or {}).get(name, name) for name in graph.names]
    if graph.lagged is not None:
        slices = ["[t]" if lag == 0 else f"[t-{lag}]" for lag in range(len(graph.lagged), -1, -1)]
        texts = [text + when for when in slices for text in texts]
    height = 2.1 * font_size / POINTS_PER_INCH
    widths = strokes.box_widths(texts, font_size)
    if graph.lagged is None:
        positions, edges = _in_layers(graph, widths, height)
    else:
        positions, edges = _in_slices(graph, widths, height)

    half = np.column_stack([widths, np.full(len(widths), height)]) / 2
    points = [positions - half, positions + half, *(edge.waypoints for edge in edges)]
    corners = np.vstack(points) if len(positions) else np.zeros((1, 2))
    low, high = corners.min(axis=0) - MARGIN, corners.max(axis=0) + MARGIN
    ax, scale = strokes.prepare_axes(ax, low, high)
    strokes.draw_edges(ax, edges, positions, half, scale, edge_labels=edge_labels)
    strokes.draw_boxes(ax, texts, positions, half, font_size * scale)
    return ax


def _in_layers(
    graph: CausalGraph, widths: FloatArray, height: float
) -> tuple[FloatArray, list[Edge]]:
    """Place nodes and edges of a graph without lags."""
    adjacency = graph.adjacency
    undirected = equivalence.undirected_part(adjacency)
    if graph.kind != "cpdag":
        undirected[:] = False
    positions, routes = layered_layout(_acyclic_part(graph), widths, height)
    edges = []
    for i, j in np.argwhere(adjacency):
        if undirected[i, j] and j < i:
            continue
        weight = 0.0 if graph.kind == "cpdag" else float(graph.weights[i, j])
        waypoints = routes.get((i, j))
        if waypoints is None:
            # Against the layers: an edge on a cycle, or an undirected one laid out the other way.
            waypoints = routes[j, i][::-1] if (j, i) in routes else np.zeros((0, 2))
        if adjacency[j, i] and not undirected[i, j] and i != j:
            waypoints = _bowed(positions[i], positions[j], BOW)
        label = _confidence(graph, i, j) if graph.kind == "cpdag" else _number(weight)
        edges.append(Edge(int(i), int(j), waypoints, weight, not undirected[i, j], label))
    return positions, edges


def _acyclic_part(graph: CausalGraph) -> NDArray[np.bool_]:
    """Return a DAG that decides the layers: undirected edges directed, weakest on cycles turned."""
    adjacency = graph.adjacency
    if graph.kind == "cpdag":
        extension = equivalence.consistent_extension(adjacency)
        if extension is not None:
            return extension
    strength = np.where(adjacency & (graph.weights == 0), 1.0, graph.weights)
    kept: NDArray[np.bool_] = acyclicity.break_cycles(strength) != 0
    # An edge that was taken out still pulls its ends together where it can stand reversed.
    for i, j in np.argwhere(adjacency & ~kept & ~kept.T):
        kept[j, i] = i != j
        if not acyclicity.is_acyclic(kept):
            kept[j, i] = False
    return kept


def _in_slices(
    graph: CausalGraph, widths: FloatArray, height: float
) -> tuple[FloatArray, list[Edge]]:
    """Place nodes and edges of a graph with lags; slices from the oldest to the present one."""
    assert graph.lagged is not None
    size, num_lags = len(graph.names), len(graph.lagged)
    rank = np.argsort(acyclicity.topological_order(_acyclic_part(graph)))
    positions = sliced_layout(rank, num_lags + 1, widths, height)
    right = (positions[-size:, 0] + widths[-size:] / 2).max() if size else 0.0
    now = num_lags * size
    lanes: Counter[tuple[int, int]] = Counter()
    edges = []
    for lag, i, j in np.argwhere(graph.lagged != 0):
        start, end = int((num_lags - 1 - lag) * size + i), int(now + j)
        between = np.arange(num_lags - lag, num_lags) * size
        waypoints = _through_gaps(positions, widths, start, end, between, lanes)
        weight = float(graph.lagged[lag, i, j])
        edges.append(Edge(start, end, waypoints, weight, True, _number(weight)))
    for i, j in np.argwhere(graph.adjacency):
        start, end = int(now + i), int(now + j)
        distance = abs(int(rank[i]) - int(rank[j]))
        waypoints = _bowed(positions[start], positions[end], BOW if graph.adjacency[j, i] else 0.0)
        if distance > 1:  # pass to the right of the boxes between
            waypoints[0, 0] = right + 0.18 * distance
        weight = float(graph.weights[i, j])
        edges.append(Edge(start, end, waypoints, weight, True, _number(weight)))
    return positions, edges


def _number(weight: float) -> str:
    """Return a weight's label; a required edge without a weight has none."""
    return f"{weight:.2g}" if weight else ""


def _confidence(graph: CausalGraph, i: int, j: int) -> str:
    """Return the label of an edge of a CPDAG; undirected ones take the higher."""
    if graph.confidence is None:
        return ""
    both_ways = graph.adjacency[j, i]
    value = max(graph.confidence[i, j], graph.confidence[j, i] if both_ways else 0.0)
    return f"{value:.2g}"


def _through_gaps(
    positions: FloatArray,
    widths: FloatArray,
    start: int,
    end: int,
    between: NDArray[np.intp],
    lanes: Counter[tuple[int, int]],
) -> FloatArray:
    """Return the points at which an edge passes between the boxes of the slices on its way.

    ``between`` holds the first node of each of those slices. Of the gaps between two rows, and
    the space above the first and below the last, the one nearest to the straight line is taken;
    ``lanes`` counts the edges of each gap, so that they run side by side.
    """
    y = np.unique(positions[:, 1])
    half_step = (y[1] - y[0]) / 2 if len(y) > 1 else 0.3
    gaps = np.append(y, y[-1] + 2 * half_step) - half_step
    points = []
    for first in between:
        x, reach = positions[first, 0], widths[first : first + len(y)].max() / 2
        share = (x - positions[start, 0]) / (positions[end, 0] - positions[start, 0])
        straight = positions[start, 1] + share * (positions[end, 1] - positions[start, 1])
        gap = int(np.argmin(np.abs(gaps - straight)))
        lane = lanes[int(first), gap]
        lanes[int(first), gap] += 1
        lane_y = gaps[gap] + LANE * ((lane + 1) // 2) * (-1) ** lane
        points += [(x - reach, lane_y), (x + reach, lane_y)]
    return np.array(points).reshape(-1, 2)


def _bowed(start: FloatArray, end: FloatArray, by: float) -> FloatArray:
    """Return the middle between two points, moved to the left of the way by so many inches."""
    along = end - start
    normal = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-9)
    middle: FloatArray = ((start + end) / 2 + by * normal)[None, :]
    return middle
