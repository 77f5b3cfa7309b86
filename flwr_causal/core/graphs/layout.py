"""Layout of a drawing: positions of nodes and edges in layers from causes to effects.

The method of Sugiyama, Tagawa & Toda (1981). Each node is assigned to a layer. An edge that spans
several layers gets a waypoint on each layer in between. Barycentre sweeps order the nodes within
the layers so that few edges cross. The coordinates are a least-squares fit under minimal distances.
All lengths are in inches.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from flwr_causal.core.graphs.acyclicity import topological_order

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray


SWEEPS = 12
LAYER_GAP = 0.62
NODE_GAP = 0.3
WAYPOINT_WIDTH = 0.12
WIDEST_SHAPE = 4.0


class DrawingLayout(NamedTuple):
    """Centres of the nodes, shape ``(d, 2)``, y pointing upwards; the waypoints of each edge."""

    positions: FloatArray
    routes: dict[tuple[int, int], FloatArray]


class _Layers(NamedTuple):
    """Nodes and waypoints by layer; nodes are numbered 0 to d-1, waypoints from d on."""

    members: list[list[int]]
    segments: list[list[tuple[int, int]]]  # parts of edges between a layer and the next one
    chains: dict[tuple[int, int], list[int]]  # the waypoints of each edge
    widths: FloatArray


def layered_layout(adjacency: BoolArray, widths: FloatArray, height: float) -> DrawingLayout:
    """Return the layout of a DAG, with causes above effects.

    Parameters
    ----------
    adjacency : ndarray of bool, shape (d, d)
        A DAG. Nodes without edges are placed in separate rows at the bottom.
    widths : ndarray, shape (d,)
        Width of each node's box.
    height : float
        Height of the boxes.
    """
    linked: BoolArray = np.asarray(adjacency.any(axis=0) | adjacency.any(axis=1))
    layers = _with_waypoints(adjacency, _levels(adjacency), linked, widths)
    _reduce_crossings(layers)
    x = _coordinates(layers)
    step = height + LAYER_GAP
    # The distance of the layers grows with the width, or long edges would be almost horizontal.
    wide_step = max(step, float(np.ptp(x) if len(x) else 0) / (WIDEST_SHAPE * len(layers.members)))
    y = np.zeros(len(layers.widths))
    for depth, members in enumerate(layers.members):
        y[members] = -depth * wide_step
    everything = np.column_stack([x, y])
    routes = {edge: everything[chain] for edge, chain in layers.chains.items()}
    positions = everything[: len(adjacency)]
    _place_isolated(positions, np.flatnonzero(~linked), np.flatnonzero(linked), widths, step)
    return DrawingLayout(positions, routes)


def _levels(adjacency: BoolArray) -> IntArray:
    """Return each node's layer: the length of the longest path that ends in the node.

    A node without causes is moved to the layer just above its highest effect.
    """
    level = np.zeros(len(adjacency), dtype=np.intp)
    for node in topological_order(adjacency):
        causes = np.flatnonzero(adjacency[:, node])
        level[node] = level[causes].max() + 1 if len(causes) else 0
    for root in np.flatnonzero(~adjacency.any(axis=0) & adjacency.any(axis=1)):
        level[root] = level[adjacency[root]].min() - 1
    return level


def _with_waypoints(
    adjacency: BoolArray, level: IntArray, linked: BoolArray, widths: FloatArray
) -> _Layers:
    """Split the edges that span several layers into segments from layer to layer."""
    depth = int(level.max(initial=0)) + 1
    members: list[list[int]] = [[] for _ in range(depth)]
    segments: list[list[tuple[int, int]]] = [[] for _ in range(depth)]
    chains = {}
    for node in np.flatnonzero(linked):
        members[level[node]].append(int(node))
    count = len(adjacency)
    for i, j in np.argwhere(adjacency):
        chain = list(range(count, count + int(level[j] - level[i]) - 1))
        count += len(chain)
        chains[int(i), int(j)] = chain
        ends = [int(i), *chain, int(j)]
        for offset, (start, end) in enumerate(pairwise(ends)):
            segments[level[i] + offset].append((start, end))
        for offset, waypoint in enumerate(chain):
            members[level[i] + offset + 1].append(waypoint)
    all_widths = np.full(count, WAYPOINT_WIDTH)
    all_widths[: len(adjacency)] = widths
    return _Layers(members, segments, chains, all_widths)


def _reduce_crossings(layers: _Layers) -> None:
    """Sort the nodes of every layer by the mean position of their neighbours, in place.

    Sweeps run downwards and upwards in turn; the order with the fewest crossings is kept.
    """
    best, fewest = [list(layer) for layer in layers.members], _crossings(layers)
    depth = len(layers.members)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        for k in range(1, depth) if downwards else range(depth - 2, -1, -1):
            fixed = layers.members[k - 1 if downwards else k + 1]
            place = {node: index for index, node in enumerate(fixed)}
            neighbours: dict[int, list[int]] = {node: [] for node in layers.members[k]}
            for upper, lower in layers.segments[k - 1 if downwards else k]:
                node, other = (lower, upper) if downwards else (upper, lower)
                neighbours[node].append(place[other])
            own = {node: float(index) for index, node in enumerate(layers.members[k])}
            layers.members[k].sort(
                key=lambda n, near=neighbours, own=own: np.mean(near[n]) if near[n] else own[n]  # type: ignore[misc]
            )
        crossings = _crossings(layers)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers.members], crossings
    for layer, order in zip(layers.members, best, strict=True):
        layer[:] = order


def _crossings(layers: _Layers) -> int:
    """Count the pairs of segments that cross."""
    place = np.zeros(len(layers.widths))
    for layer in layers.members:
        place[layer] = np.arange(len(layer))
    total = 0
    for segments in layers.segments:
        if segments:
            upper, lower = place[np.array(segments)].T
            signs = np.subtract.outer(upper, upper) * np.subtract.outer(lower, lower)
            total += int((signs < 0).sum()) // 2
    return total


def _coordinates(layers: _Layers) -> FloatArray:
    """Return the x coordinates: close to the mean of the neighbours, at minimal distances."""
    x = np.zeros(len(layers.widths))
    neighbours: list[list[int]] = [[] for _ in x]
    for upper, lower in (pair for segments in layers.segments for pair in segments):
        neighbours[upper].append(lower)
        neighbours[lower].append(upper)
    offsets = []
    for members in layers.members:
        half = layers.widths[members] / 2
        gaps = half[:-1] + half[1:] + NODE_GAP
        offset = np.concatenate([[0.0], np.cumsum(gaps)]) if members else np.zeros(0)
        offsets.append(offset)
        x[members] = offset - offset.mean() if members else offset
    # Waypoints have a larger weight in the least squares, which keeps long edges straight.
    pull = np.where(layers.widths == WAYPOINT_WIDTH, 3.0, 1.0)
    order = list(range(len(offsets)))
    for layer in (order + order[::-1]) * SWEEPS:
        members = layers.members[layer]
        if members:
            wanted = np.array([x[neighbours[node]].mean() for node in members])
            free = isotonic_regression(wanted - offsets[layer], weights=pull[members])
            x[members] = free.x + offsets[layer]
    return x


def _place_isolated(
    positions: FloatArray,
    isolated: IntArray,
    linked: IntArray,
    widths: FloatArray,
    step: float,
) -> None:
    """Set the positions of nodes without edges: centred rows below the other nodes."""
    if not len(isolated):
        return
    left, right, bottom = -2.0, 2.0, step
    if len(linked):
        left = float((positions[linked, 0] - widths[linked] / 2).min())
        right = float((positions[linked, 0] + widths[linked] / 2).max())
        bottom = float(positions[linked, 1].min())
    rows: list[list[int]] = [[]]
    used = 0.0
    for node in isolated:
        if rows[-1] and used + widths[node] > right - left:
            rows.append([])
            used = 0.0
        rows[-1].append(int(node))
        used += float(widths[node]) + NODE_GAP
    for k, row in enumerate(rows):
        ends = np.cumsum(widths[row] + NODE_GAP)
        centres = ends - NODE_GAP - widths[row] / 2
        positions[row, 0] = (left + right) / 2 + centres - (ends[-1] - NODE_GAP) / 2
        positions[row, 1] = bottom - step - 0.75 * step * k


def sliced_layout(rank: IntArray, num_slices: int, widths: FloatArray, height: float) -> FloatArray:
    """Return node centres for an unrolled graph: a column per time slice, a row per variable.

    Parameters
    ----------
    rank : ndarray of int, shape (d,)
        Row of each variable, counted from the top.
    num_slices : int
        Number of columns.
    widths : ndarray, shape (num_slices * d,)
        Width of each box, slice by slice.
    height : float
        Height of the boxes.

    Returns
    -------
    ndarray, shape (num_slices * d, 2)
        Centre of each box, slice by slice.
    """
    by_slice = widths.reshape(num_slices, len(rank)).max(axis=1, initial=0.0)
    left = np.cumsum(by_slice) - by_slice + np.arange(num_slices) * 2.2 * LAYER_GAP
    x = np.repeat(left + by_slice / 2, len(rank))
    y = np.tile(-rank * (height + 0.6 * LAYER_GAP), num_slices)
    return np.column_stack([x, y])
