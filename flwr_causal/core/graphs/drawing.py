"""Drawing a causal graph with matplotlib; no other module imports matplotlib.

Lengths are in inches, which are the data units of the axes.
"""

from __future__ import annotations

import math
from collections import Counter
from io import StringIO
from typing import TYPE_CHECKING, NamedTuple, Protocol

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from flwr_causal.core.graphs import acyclicity, equivalence
from flwr_causal.core.graphs.layout import layered_layout, sliced_layout
from flwr_causal.core.graphs.pag.marks import directed_edges, forward

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray


POINTS_PER_INCH = 72.0
MARGIN = 0.2
BOW = 0.14
LANE = 0.05
POSITIVE, NEGATIVE, NEUTRAL = "#2b6cb0", "#c2571a", "#4a5568"
BOX_FACE, BOX_EDGE, TEXT = "#f3f6fa", "#8795a8", "#1a202c"
THINNEST, WIDEST = 0.8, 2.8  # points
SMALLEST_LETTERS = 2.0  # points


class Drawable(Protocol):
    """The properties of a graph that drawing needs; `CausalGraph` has them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The ``d`` variables."""

    @property
    def kind(self) -> str:
        """One of "dag", "cpdag", "summary"."""

    @property
    def weights(self) -> FloatArray:
        """Instantaneous effects, shape ``(d, d)``."""

    @property
    def lagged(self) -> FloatArray | None:
        """Lagged effects, shape ``(p, d, d)``."""

    def confidence_of(self, cause: int, effect: int, lag: int = 0) -> float | None:
        """Return the confidence in an edge, from 0 to 1."""

    def symbol(self, cause: int, effect: int) -> str:
        """Return the mark of an edge, such as "->"."""

    def strengths(self) -> FloatArray:
        """Return how strong the edges of all lags are, shape ``(1 + p, d, d)``."""

    @property
    def adjacency(self) -> BoolArray:
        """The instantaneous edges, shape ``(d, d)``."""

    @property
    def marks(self) -> IntArray | None:
        """The marks of a PAG, shape ``(d, d)``."""


class Edge(NamedTuple):
    """An edge to draw: nodes, waypoints, signed strength, its mark such as "->", label."""

    start: int
    end: int
    waypoints: FloatArray
    strength: float
    mark: str
    label: str


def draw(
    graph: Drawable,
    ax: Axes | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    edge_labels: bool = False,
    font_size: float = 10.0,
) -> Axes:
    """Draw a graph: causes above effects, or with lags one column per time slice.

    Edges with a positive weight are blue, those with a negative weight orange; the line width grows
    with the edge's strength. The edges of a CPDAG or a PAG are grey; undirected edges have no
    arrowhead, and open ends of a PAG a circle.
    In a graph with cycles, the weakest edge of each cycle may point upwards. In a graph with lags,
    only the edges into the last slice are drawn; they are the same for every slice.

    Parameters
    ----------
    graph : Drawable
        For example a `CausalGraph`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; the letters shrink with the graph to fit. Default: a new figure of the
        size that the graph needs.
    labels : mapping of str to str, optional
        Texts to show in place of variable names. Default: the names.
    edge_labels : bool, default False
        Whether to write the weight beside each edge, or in a CPDAG the confidence, if the graph has
        one.
    font_size : float, default 10.0
        Size of the letters in points.

    Returns
    -------
    matplotlib.axes.Axes
        ``graph.draw().figure.savefig(path)`` saves the picture.
    """
    texts = [(labels or {}).get(name, name) for name in graph.names]
    if graph.lagged is not None:
        slices = ["[t]" if lag == 0 else f"[t-{lag}]" for lag in range(len(graph.lagged), -1, -1)]
        texts = [text + when for when in slices for text in texts]
    height = 2.1 * font_size / POINTS_PER_INCH
    widths = _box_widths(texts, font_size)
    if graph.lagged is None:
        positions, edges = _in_layers(graph, widths, height)
    else:
        positions, edges = _in_slices(graph, widths, height)

    half = np.column_stack([widths, np.full(len(widths), height)]) / 2
    points = [positions - half, positions + half, *(edge.waypoints for edge in edges)]
    corners = np.vstack(points) if len(positions) else np.zeros((1, 2))
    low, high = corners.min(axis=0) - MARGIN, corners.max(axis=0) + MARGIN
    ax, scale = _prepare_axes(ax, low, high)
    _draw_edges(ax, edges, positions, half, scale, edge_labels=edge_labels)
    _draw_boxes(ax, texts, positions, half, font_size * scale)
    return ax


def draw_matrix(graph: Drawable) -> Figure:
    """Draw the weights as heat maps, one for each lag: rows are causes, columns effects.

    Colours are those of the edges in :func:`draw`: blue for positive weights, orange for negative
    ones, on one scale for all lags. A required edge of weight 0 is a dot.

    Returns
    -------
    matplotlib.figure.Figure
        Its axes are in the order of the lags, from 0.
    """
    past = np.zeros((0, *graph.weights.shape)) if graph.lagged is None else graph.lagged
    slices = np.concatenate([graph.weights[None], past])
    size = 0.6 + 0.28 * len(graph.names)
    figure, grid = plt.subplots(
        1,
        len(slices),
        figsize=(size * len(slices) + 1.2, size + 0.6),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    most = float(np.abs(slices).max(initial=0.0)) or 1.0
    colours = LinearSegmentedColormap.from_list("weights", (NEGATIVE, "white", POSITIVE))
    for lag, (ax, weights) in enumerate(zip(grid[0], slices, strict=True)):
        picture = ax.imshow(weights, cmap=colours, vmin=-most, vmax=most)
        ax.set_title("no lag" if lag == 0 else f"lag {lag}", size="medium")
        ticks = range(len(graph.names))
        ax.set_xticks(ticks, graph.names, rotation=90, parse_math=False)
        ax.set_yticks(ticks, graph.names, parse_math=False)
        ax.set_xlabel("effect")
        if lag == 0:
            ax.set_ylabel("cause")
            i, j = np.nonzero(graph.adjacency & (weights == 0))
            ax.plot(j, i, ".", color=NEUTRAL)
    figure.colorbar(picture, ax=list(grid[0]), label="weight")
    return figure


def svg(graph: Drawable) -> str:
    """Return the drawing of a graph as the text of an SVG file."""
    figure = draw(graph).get_figure(root=True)
    assert figure is not None
    text = StringIO()
    figure.savefig(text, format="svg")
    plt.close(figure)
    return text.getvalue()


def _in_layers(graph: Drawable, widths: FloatArray, height: float) -> tuple[FloatArray, list[Edge]]:
    """Return the node centres and the edges of a graph without lags."""
    adjacency = graph.adjacency
    undirected, strengths = equivalence.undirected_part(adjacency), graph.strengths()[0]
    plain = graph.kind in ("cpdag", "pag")
    if not plain:
        undirected[:] = False
    shown = adjacency if graph.marks is None else forward(graph.marks)
    positions, routes = layered_layout(_acyclic_part(graph), widths, height)
    edges = []
    for i, j in np.argwhere(shown):
        if graph.kind == "cpdag" and undirected[i, j] and j < i:
            continue
        waypoints = routes.get((i, j))
        if waypoints is None:
            # This edge points upwards: it lies on a cycle, or it is undirected and the layout has
            # the opposite direction.
            waypoints = routes[j, i][::-1] if (j, i) in routes else np.zeros((0, 2))
        if adjacency[j, i] and not undirected[i, j] and i != j:
            waypoints = _bowed(positions[i], positions[j], BOW)
        edge = _weighted(i, j, waypoints, strengths[i, j], graph.weights[i, j])
        if plain:
            sure = graph.confidence_of(i, j)
            mark, label = graph.symbol(i, j), "" if sure is None else f"{sure:.2g}"
            edge = edge._replace(strength=0.0, mark=mark, label=label)
        edges.append(edge)
    return positions, edges


def _acyclic_part(graph: Drawable) -> BoolArray:
    """Return a DAG for the layout: undirected edges directed, the weakest edges on cycles reversed.

    A cycle's weakest edge is left out if reversing it closes another cycle.
    """
    adjacency = graph.adjacency
    if graph.marks is not None:
        # Causes above effects; the other edges go along.
        order = np.argsort(acyclicity.topological_order(directed_edges(graph.marks)))
        downwards: BoolArray = adjacency & (order[:, None] < order)
        return downwards
    if graph.kind == "cpdag":
        extension = equivalence.consistent_extension(adjacency)
        if extension is not None:
            return extension
    strength = np.where(adjacency & (graph.weights == 0), 1.0, graph.weights)
    kept: BoolArray = acyclicity.break_cycles(strength) != 0
    # Reversed edges still keep the nodes that they join close together.
    for i, j in np.argwhere(adjacency & ~kept & ~kept.T):
        kept[j, i] = i != j
        if not acyclicity.is_acyclic(kept):
            kept[j, i] = False
    return kept


def _weighted(start: int, end: int, waypoints: FloatArray, strength: float, weight: float) -> Edge:
    """Return an edge -> with its weight; a required edge of weight 0 has no strength and label."""
    signed = math.copysign(strength, weight) if weight else 0.0
    label = f"{weight:.2g}" if weight else ""
    return Edge(int(start), int(end), waypoints, signed, "->", label)


def _in_slices(graph: Drawable, widths: FloatArray, height: float) -> tuple[FloatArray, list[Edge]]:
    """Return the node centres and the edges of a graph with lags, from the oldest slice on."""
    assert graph.lagged is not None
    size, num_lags = len(graph.names), len(graph.lagged)
    rank = np.argsort(acyclicity.topological_order(_acyclic_part(graph)))
    positions = sliced_layout(rank, num_lags + 1, widths, height)
    right = (positions[-size:, 0] + widths[-size:] / 2).max() if size else 0.0
    now, strengths = num_lags * size, graph.strengths()
    lanes: Counter[tuple[int, int]] = Counter()
    edges = []
    for lag, i, j in np.argwhere(graph.lagged != 0):
        start, end = int((num_lags - 1 - lag) * size + i), int(now + j)
        between = np.arange(num_lags - lag, num_lags) * size
        waypoints = _through_gaps(positions, widths, start, end, between, lanes)
        weight = graph.lagged[lag, i, j]
        edges.append(_weighted(start, end, waypoints, strengths[1 + lag, i, j], weight))
    for i, j in np.argwhere(graph.adjacency):
        start, end = int(now + i), int(now + j)
        distance = abs(int(rank[i]) - int(rank[j]))
        waypoints = _bowed(positions[start], positions[end], BOW if graph.adjacency[j, i] else 0.0)
        if distance > 1:  # pass the boxes in between on the right
            waypoints[0, 0] = right + 0.18 * distance
        edges.append(_weighted(start, end, waypoints, strengths[0, i, j], graph.weights[i, j]))
    return positions, edges


def _through_gaps(
    positions: FloatArray,
    widths: FloatArray,
    start: int,
    end: int,
    between: IntArray,
    lanes: Counter[tuple[int, int]],
) -> FloatArray:
    """Return the points at which an edge passes the slices between its two ends.

    ``between`` holds the first node of each of these slices. The edge passes through the gap
    between two rows (or above the first, or below the last row) that is nearest to the straight
    line. ``lanes`` counts the edges in each gap, so that they are drawn side by side.
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
    """Return the midpoint of two points, moved by ``by`` inches to the left of the direction."""
    along = end - start
    normal = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-9)
    middle: FloatArray = ((start + end) / 2 + by * normal)[None, :]
    return middle


def _box_widths(texts: Sequence[str], font_size: float) -> FloatArray:
    """Return the width of the box of each text, shape ``(len(texts),)``."""
    font = FontProperties()
    padding = 0.9 * font_size
    return (
        np.array(
            [
                TextPath((0, 0), text.replace("$", r"\$"), size=font_size, prop=font)
                .get_extents()
                .width
                + padding
                for text in texts
            ]
        ).clip(min=2.4 * font_size)
        / POINTS_PER_INCH
    )


def _prepare_axes(ax: Axes | None, low: FloatArray, high: FloatArray) -> tuple[Axes, float]:
    """Return axes over the rectangle from ``low`` to ``high``, and their scale (1: full size)."""
    extent = high - low
    if ax is None:
        figure = plt.figure(figsize=(float(extent[0]), float(extent[1])))
        ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        scale = 1.0
    else:
        pixels = ax.get_window_extent()
        inches = np.array([pixels.width, pixels.height]) / ax.figure.dpi
        scale = min(1.0, float((inches / extent).min()))
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    ax.set_aspect("equal")
    ax.axis("off")
    return ax, scale


def _draw_boxes(
    ax: Axes, texts: Sequence[str], positions: FloatArray, half: FloatArray, font_size: float
) -> None:
    """Draw each node as a rounded box with its name."""
    for text, centre, (half_width, half_height) in zip(texts, positions, half, strict=True):
        box = FancyBboxPatch(
            (centre[0] - half_width, centre[1] - half_height),
            2 * half_width,
            2 * half_height,
            boxstyle=f"round,pad=0,rounding_size={0.5 * half_height}",
            facecolor=BOX_FACE,
            edgecolor=BOX_EDGE,
            linewidth=0.9,
            zorder=3,
        )
        ax.add_patch(box)
        ax.text(
            float(centre[0]),
            float(centre[1]),
            text,
            size=max(font_size, SMALLEST_LETTERS),
            color=TEXT,
            ha="center",
            va="center_baseline",
            parse_math=False,
            zorder=4,
        )


def _draw_edges(
    ax: Axes,
    edges: Sequence[Edge],
    positions: FloatArray,
    half: FloatArray,
    scale: float,
    *,
    edge_labels: bool,
) -> None:
    """Draw each edge as a smooth curve between the borders of its boxes."""
    strongest = max((abs(edge.strength) for edge in edges), default=0.0) or 1.0
    for edge in edges:
        share = abs(edge.strength) / strongest if edge.strength else 0.25
        width = (THINNEST + (WIDEST - THINNEST) * share) * scale
        colour = POSITIVE if edge.strength > 0 else NEGATIVE if edge.strength < 0 else NEUTRAL
        if edge.start == edge.end:
            points = _loop(positions[edge.start], half[edge.start])
        else:
            points = np.vstack([positions[edge.start], edge.waypoints, positions[edge.end]])
            points[0] = _border(positions[edge.start], half[edge.start], points[1])
            points[-1] = _border(positions[edge.end], half[edge.end], points[-2])
        ax.add_patch(
            FancyArrowPatch(
                path=_smooth(points),
                arrowstyle=_arrow_style(edge.mark),
                mutation_scale=(7 + 1.6 * width) * scale,
                linewidth=width,
                color=colour,
                alpha=0.9,
                shrinkA=0,
                shrinkB=0,
                joinstyle="miter",
                capstyle="butt",
                zorder=2,
            )
        )
        for at, mark in ((points[0], edge.mark[0]), (points[-1], edge.mark[-1])):
            if mark == "o":
                ax.add_patch(_circle(at, colour, width, scale))
        if edge_labels and edge.label:
            # The label is at the middle point, or at the mean of the two middle points.
            x, y = points[(len(points) - 1) // 2 : len(points) // 2 + 1].mean(axis=0)
            ax.text(
                x,
                y,
                edge.label,
                size=max(7.5 * scale, SMALLEST_LETTERS),
                color=colour,
                ha="center",
                va="center",
                bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"},
                zorder=2.5,
            )


def _arrow_style(mark: str) -> str:
    """Return the heads of matplotlib for a mark such as "->"; circles are drawn apart."""
    start, end = "<|" if mark.startswith("<") else "", "|>" if mark.endswith(">") else ""
    return f"{start}-{end}"


def _circle(at: FloatArray, colour: str, width: float, scale: float) -> Circle:
    """Return the circle at an open end of an edge."""
    place = (float(at[0]), float(at[1]))
    return Circle(
        place, 0.045 * scale, facecolor="white", edgecolor=colour, linewidth=width, zorder=3.5
    )


def _border(centre: FloatArray, half: FloatArray, towards: FloatArray) -> FloatArray:
    """Return the point where the line from a box's centre to ``towards`` leaves the box."""
    direction = towards - centre
    with np.errstate(divide="ignore"):
        share = float(np.min(half / np.abs(direction)))
    point: FloatArray = centre + min(share, 1.0) * direction
    return point


def _loop(centre: FloatArray, half: FloatArray) -> FloatArray:
    """Return the points of an edge from a box to itself, drawn at the right end of the box."""
    x, y = centre[0] + half[0], centre[1]
    out, up = 1.6 * half[1], 0.55 * half[1]
    return np.array([[x, y + up], [x + out, y + up], [x + out, y - up], [x, y - up]])


def _smooth(points: FloatArray) -> Path:
    """Return a cubic Bezier spline through the points (Catmull-Rom), straight for two points."""
    if len(points) == 2:
        return Path(points, [Path.MOVETO, Path.LINETO])
    before = np.vstack([2 * points[0] - points[1], points[:-2]])
    start, end = points[:-1], points[1:]
    after = np.vstack([points[2:], 2 * points[-1] - points[-2]])
    controls = np.stack([start + (end - before) / 6, end - (after - start) / 6, end], axis=1)
    vertices = np.vstack([points[:1], controls.reshape(-1, 2)])
    return Path(vertices, [Path.MOVETO] + [Path.CURVE4] * (len(vertices) - 1))
