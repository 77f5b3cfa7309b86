"""The pen of `flwr_causal.core.graphs.drawing`: boxes, curves and heads in matplotlib.

Imported only when something is drawn, because it imports matplotlib. Lengths are in inches, which
are the data units of the axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path
from matplotlib.textpath import TextPath

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from flwr_causal.core.graphs.drawing import Edge

    FloatArray = NDArray[np.float64]

POINTS_PER_INCH = 72.0
POSITIVE, NEGATIVE, NEUTRAL = "#2b6cb0", "#c2571a", "#4a5568"
BOX_FACE, BOX_EDGE, TEXT = "#f3f6fa", "#8795a8", "#1a202c"
THINNEST, WIDEST = 0.8, 2.8  # points
SMALLEST_LETTERS = 2.0  # points


def box_widths(texts: Sequence[str], font_size: float) -> FloatArray:
    """Return the width that each text's box needs, shape ``(len(texts),)``."""
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


def prepare_axes(ax: Axes | None, low: FloatArray, high: FloatArray) -> tuple[Axes, float]:
    """Return axes over the rectangle from ``low`` to ``high``, and what an inch became there."""
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


def draw_boxes(
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


def draw_edges(
    ax: Axes,
    edges: Sequence[Edge],
    positions: FloatArray,
    half: FloatArray,
    scale: float,
    *,
    edge_labels: bool,
) -> None:
    """Draw each edge as a smooth curve between the borders of its boxes."""
    strongest = max((abs(edge.weight) for edge in edges), default=0.0) or 1.0
    for edge in edges:
        share = abs(edge.weight) / strongest if edge.weight else 0.25
        width = (THINNEST + (WIDEST - THINNEST) * share) * scale
        colour = POSITIVE if edge.weight > 0 else NEGATIVE if edge.weight < 0 else NEUTRAL
        if edge.start == edge.end:
            points = _loop(positions[edge.start], half[edge.start])
        else:
            points = np.vstack([positions[edge.start], edge.waypoints, positions[edge.end]])
            points[0] = _border(positions[edge.start], half[edge.start], points[1])
            points[-1] = _border(positions[edge.end], half[edge.end], points[-2])
        ax.add_patch(
            FancyArrowPatch(
                path=_smooth(points),
                arrowstyle="-|>" if edge.directed else "-",
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
        if edge_labels and edge.label:
            # The middle point, or the mean of the two middle ones.
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


def _border(centre: FloatArray, half: FloatArray, towards: FloatArray) -> FloatArray:
    """Return where the way from a box's centre to a point leaves the box."""
    direction = towards - centre
    with np.errstate(divide="ignore"):
        share = float(np.min(half / np.abs(direction)))
    point: FloatArray = centre + min(share, 1.0) * direction
    return point


def _loop(centre: FloatArray, half: FloatArray) -> FloatArray:
    """Return the points of an edge from a box to itself, at its right end."""
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
