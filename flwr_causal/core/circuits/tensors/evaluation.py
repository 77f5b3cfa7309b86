"""Evaluation of Einsum networks: log densities upwards; flows, samples and mpe downwards.

A region has K sums. Sum o of region b mixes the K x K products of the sums of its two children,
``S_o = sum_ij weights[b, o, i, j] left_i right_j`` (Peharz et al., "Einsum networks", ICML 2020).
A layer of regions is a batched matrix product in log space. Rows are the last axis of all tensors,
so that an operation on all rows runs through contiguous memory. The products of all pairs are
computed for a few regions at a time, so that they stay in the processor's cache, which halves the
time.

The upward pass gives the log density of each root (one for each class). In the downward pass a row
is divided among the sums of each region (`flows`), or one pair of sums is chosen in each region and
so one unit of every column (`sample`, `mpe`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.devices import import_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.circuits.tensors.layout import TensorLayout

Tensor = Any

#: Products that are computed at a time: half a megabyte of float32 on the CPU, more on a GPU.
CPU_PRODUCTS = 2**17
GPU_PRODUCTS = 2**27
#: Values of a circuit for the rows of a chunk, at most: 128 MB of float32.
MOST_VALUES = 2**25


class Trace(NamedTuple):
    """The upward pass of a layer; its densities are ``exp(left_peak + right_peak) * sums``.

    Attributes
    ----------
    left, right : (B, K, n)
        Densities of the children's sums, divided by the largest of the K.
    sums : (B, O, n)
    values : (B, O, n)
        Log densities of the sums.
    """

    left: Tensor
    right: Tensor
    sums: Tensor
    values: Tensor


def upward(layers: Sequence[Tensor], leaves: Tensor) -> list[Trace]:
    """Evaluate all layers.

    Parameters
    ----------
    layers : sequence of tensor, shapes (B, O, K, K)
        Weights, the layer above the leaf regions first.
    leaves : tensor, shape (2 B, K, n)
        Log densities of the leaf regions' sums, finite.
    """
    traces: list[Trace] = []
    for weights in layers:
        traces.append(_up(weights, traces[-1].values if traces else leaves))
    return traces


def _up(weights: Tensor, below: Tensor) -> Trace:
    torch = import_torch()
    regions, num_sums, k, _ = weights.shape
    rows = below.shape[2]
    peaks = below.amax(dim=1, keepdim=True)
    left, right = torch.exp(below - peaks).split(regions)
    flat = weights.view(regions, num_sums, k * k)
    sums = below.new_empty((regions, num_sums, rows))
    for part, products in _products(left, right):
        torch.bmm(flat[part], products, out=sums[part])
    # Sums that underflow to 0 would not be finite in the layers above.
    sums.clamp_(min=torch.finfo(sums.dtype).tiny)
    left_peaks, right_peaks = peaks.split(regions)
    return Trace(left, right, sums, torch.log(sums) + left_peaks + right_peaks)


def downward(
    layers: Sequence[Tensor], traces: Sequence[Trace], flows: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Return the expected number of rows that use each weight.

    A flow is the probability that a row reaches a sum on its path from the root, given the row's
    values: the derivative of the row's log density with respect to the sum's.

    Parameters
    ----------
    layers, traces
        As in `upward`, of the same rows.
    flows : tensor, shape (B, O, n)
        Flows into the sums of the uppermost layer.

    Returns
    -------
    counts : list of tensor, shapes (B, O, K, K)
        Expected number of rows that use each weight, by layer.
    flows : tensor, shape (2 B, K, n)
        Flows into the sums of the leaf regions.
    """
    counts: list[Tensor] = []
    for weights, trace in zip(reversed(layers), reversed(traces), strict=True):
        own, flows = _down(weights, trace, flows)
        counts.append(own)
    return counts[::-1], flows


def _down(weights: Tensor, trace: Trace, flows: Tensor) -> tuple[Tensor, Tensor]:
    torch = import_torch()
    regions, num_sums, k, _ = weights.shape
    rows = flows.shape[2]
    flat = weights.view(regions, num_sums, k * k)
    shares = flows / trace.sums
    counts = torch.empty_like(flat)
    below = flows.new_empty((2 * regions, k, rows))
    for part, products in _products(trace.left, trace.right):
        own = shares[part]
        torch.bmm(own, products.transpose(1, 2), out=counts[part])
        taken = torch.bmm(flat[part].transpose(1, 2), own)
        taken *= products
        taken = taken.unflatten(1, (k, k))
        torch.sum(taken, dim=2, out=below[part])
        torch.sum(taken, dim=1, out=below[part.start + regions : part.stop + regions])
    counts *= flat
    return counts.view(weights.shape), below


def _products(left: Tensor, right: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of regions and their pairwise products, shape (part, K * K, n)."""
    regions, k, rows = left.shape
    limit = GPU_PRODUCTS if left.is_cuda else CPU_PRODUCTS
    size = max(1, limit // max(1, k * k * rows))
    for start in range(0, regions, size):
        part = slice(start, min(start + size, regions))
        pairs = left[part, :, None] * right[part, None, :]
        yield part, pairs.flatten(1, 2)


def upward_peaks(layers: Sequence[Tensor], leaves: Tensor) -> list[Tensor]:
    """Evaluate all layers with the largest product in place of the sum, shapes (B, O, n)."""
    torch = import_torch()
    values: list[Tensor] = []
    for weights in layers:
        below = values[-1] if values else leaves
        left, right = below.split(len(weights))
        logs = torch.log(weights)
        best = below.new_empty((len(weights), weights.shape[1], below.shape[2]))
        for o in range(weights.shape[1]):
            for b in range(len(weights)):
                pairs = logs[b, o, :, :, None] + left[b, :, None] + right[b, None, :]
                torch.amax(pairs, dim=(0, 1), out=best[b, o])
        values.append(best)
    return values


class TensorParameters(NamedTuple):
    """The parameters of an Einsum network; tensors that are never changed in place.

    Attributes
    ----------
    means, variances : (numbers, R, K)
        Of the standardised numbers.
    probabilities : (S, R, K)
        Probabilities of the states of all categories; they sum to 1 within a category.
    layers : of shapes (B, R, O, K, K)
        Weights of the sums, with B = G / 2, G / 4, ..., 1; they sum to 1 over the last two axes. O
        is K, in the last layer the number of classes.
    root : (C, R)
        Joint probabilities of class and replica.
    """

    means: Tensor
    variances: Tensor
    probabilities: Tensor
    layers: tuple[Tensor, ...]
    root: Tensor

    @property
    def flat_layers(self) -> list[Tensor]:
        """Layers with regions and replicas in one axis, as `upward` takes them."""
        return [weights.flatten(0, 1) for weights in self.layers]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The upward pass of some rows.

    Attributes
    ----------
    statistics, presence : (G * R, most, n)
        Statistics and presence of the rows, by leaf region; presence is None if no value is
        missing.
    leaves : (G * R, K, n)
        Log densities of the leaf regions' sums.
    traces : list of Trace
        Of the layers above.
    joint : (C, n)
        Log density of each class together with the row.
    """

    statistics: Tensor
    presence: Tensor | None
    leaves: Tensor
    traces: list[Trace]
    joint: Tensor


def units(layout: TensorLayout, parameters: TensorParameters) -> tuple[Tensor, Tensor]:
    """Return the factors (F, R, K) of the statistics and the constants (columns, R, K)."""
    torch = layout.torch
    means, variances, probabilities = parameters[:3]
    logs = torch.log(probabilities)
    first, place = layout.first_states
    factors = [
        means / variances,
        -0.5 / variances,
        (logs - logs[first][place])[layout.later_states],
    ]
    constants = means.new_empty((len(layout.columns), *means.shape[1:]))
    spread = torch.log(variances * (2.0 * torch.pi))
    constants[layout.number_places] = -0.5 * (means * means / variances + spread) - layout.log_scale
    constants[layout.category_places] = logs[first]
    return torch.cat(factors), constants


def leaf_values(
    layout: TensorLayout, parameters: TensorParameters, rows: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the log densities (G * R, K, n) of the leaf regions' sums, statistics and presence.

    Statistics and presence are those of `Evaluation`; ``rows`` are as `TensorLayout.rows` returns
    them.
    """
    torch = layout.torch
    factors, constants = units(layout, parameters)
    statistics = layout.gathered(layout.statistics(rows), layout.region_statistics)
    by_region = layout.by_region(factors, layout.region_statistics)
    leaves = torch.bmm(by_region.transpose(1, 2), statistics)
    constants = layout.by_region(constants, layout.region_presence)
    presence = layout.presence(rows)
    if presence is None:
        leaves += constants.sum(dim=1)[:, :, None]
    else:
        presence = layout.gathered(presence, layout.region_presence)
        leaves += torch.bmm(constants.transpose(1, 2), presence)
    return leaves, statistics, presence


def evaluated(layout: TensorLayout, parameters: TensorParameters, rows: Tensor) -> Evaluation:
    """Return the upward pass of rows (d, n) as `TensorLayout.rows` returns them."""
    leaves, statistics, presence = leaf_values(layout, parameters, rows)
    traces = upward(parameters.flat_layers, leaves)
    joint = root_terms(layout, parameters, rows, traces[-1].values).logsumexp(dim=1)
    return Evaluation(statistics, presence, leaves, traces, joint)


def peak_values(
    layout: TensorLayout, parameters: TensorParameters, rows: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Return the values of max-product: of the leaf regions (G * R, K, n), then of each layer.

    The unit of a missing value has the density at its mode. A layer's values are (B * R, O, n).
    """
    torch = layout.torch
    leaves, _, presence = leaf_values(layout, parameters, rows)
    if presence is not None:
        peaks = leaves.new_empty((len(layout.columns), *parameters.means.shape[1:]))
        spread = torch.log(parameters.variances * (2.0 * torch.pi))
        peaks[layout.number_places] = -0.5 * spread - layout.log_scale
        for place, states in zip(layout.category_places, layout.states_of, strict=True):
            peaks[place] = parameters.probabilities[states].amax(dim=0).log()
        by_region = layout.by_region(peaks, layout.region_presence)
        # The peaks of the padding are 0.
        leaves = leaves + torch.bmm(by_region.transpose(1, 2), 1.0 - presence)
    return leaves, upward_peaks(parameters.flat_layers, leaves)


def root_terms(
    layout: TensorLayout, parameters: TensorParameters, rows: Tensor, values: Tensor
) -> Tensor:
    """Return the log density of class, replica and row (C, R, n), from the uppermost layer.

    ``values`` are that layer's (R, C, n). Minus infinity if the row's target is another class.
    """
    terms = replica_values(parameters, values)
    if layout.target is not None:
        terms = terms.masked_fill(other_classes(layout, rows)[:, None], -layout.torch.inf)
    return terms


def replica_values(parameters: TensorParameters, values: Tensor) -> Tensor:
    """Return the same as `root_terms` for rows whose target is missing."""
    return values.transpose(0, 1) + parameters.root.log()[:, :, None]


def other_classes(layout: TensorLayout, rows: Tensor) -> Tensor:
    """Return whether a row's target is another class, shape (C, n)."""
    torch = layout.torch
    own = rows[layout.target]
    classes = torch.arange(layout.num_classes, device=rows.device, dtype=rows.dtype)[:, None]
    return (own != classes) & ~torch.isnan(own)


def flows(
    parameters: TensorParameters, evaluation: Evaluation
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return the expected uses of the root's weights (C, R) and of each layer's, and the flows.

    The flows into the leaf regions' sums have the shape (G * R, K, n), see `downward`. A row that
    is impossible under the network has the flow 0.
    """
    top = evaluation.traces[-1].values
    whole = evaluation.joint.logsumexp(dim=0)
    chosen = replica_values(parameters, top) - whole
    impossible = evaluation.joint.isneginf()[:, None]
    chosen = chosen.masked_fill(impossible, -float("inf")).exp()
    layers = parameters.flat_layers
    counts, below = downward(layers, evaluation.traces, chosen.transpose(0, 1))
    shaped = [own.view(like.shape) for own, like in zip(counts, parameters.layers, strict=True)]
    return chosen.sum(dim=2), shaped, below


def chunks(layout: TensorLayout, parameters: TensorParameters, n: int) -> Iterator[slice]:
    """Slices of n rows that are few enough to be evaluated at once; at least one, of no row."""
    regions = len(layout.regions) * layout.replicas
    wide = layout.region_statistics.shape[1] + layout.region_presence.shape[1]
    sums = sum(2 * w.shape[0] * w.shape[1] * (w.shape[2] + w.shape[3]) for w in parameters.layers)
    size = max(1, MOST_VALUES // (regions * wide + sums))
    for start in range(0, max(n, 1), size):
        yield slice(start, min(start + size, n))


class Path(NamedTuple):
    """The choices for each row in the downward pass.

    Attributes
    ----------
    classes, replicas : (n,)
    units : (G, n)
        The chosen sum of each leaf region of the replica.
    """

    classes: Tensor
    replicas: Tensor
    units: Tensor


def sample(
    layout: TensorLayout, parameters: TensorParameters, values: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Return rows (n, d) with missing values drawn given the rest of each row."""
    torch = layout.torch

    def choose(terms: Tensor) -> Tensor:
        shares = torch.exp(terms - terms.amax(dim=0)).cumsum(dim=0)
        at = layout.tensor(rng.random(terms.shape[1])) * shares[-1]
        return (at >= shares).sum(dim=0).clamp(max=len(terms) - 1)

    rows = layout.rows(values)
    evaluation = evaluated(layout, parameters, rows)
    below = [evaluation.leaves, *(trace.values for trace in evaluation.traces)]
    path = _path(layout, parameters, rows, below, choose)
    means, variances = _numbers(layout, parameters, path)
    noise = layout.tensor(rng.standard_normal(means.shape))
    return _filled(layout, parameters, values, path, means + variances.sqrt() * noise, choose)


def mpe(layout: TensorLayout, parameters: TensorParameters, values: FloatArray) -> FloatArray:
    """Return rows (n, d) with missing values filled by max-product."""

    def choose(terms: Tensor) -> Tensor:
        return terms.argmax(dim=0)

    rows = layout.rows(values)
    leaves, layers = peak_values(layout, parameters, rows)
    path = _path(layout, parameters, rows, [leaves, *layers], choose)
    means, _ = _numbers(layout, parameters, path)
    return _filled(layout, parameters, values, path, means, choose)


def _path(
    layout: TensorLayout,
    parameters: TensorParameters,
    rows: Tensor,
    below: Sequence[Tensor],
    choose: Callable[[Tensor], Tensor],
) -> Path:
    """Return the choices at the root and in every region.

    ``below`` are the log values of the leaf regions and then of each layer.
    """
    torch = layout.torch
    terms = root_terms(layout, parameters, rows, below[-1])
    number = terms.shape[2]
    flat = terms.flatten(0, 1)
    chosen = choose(flat)
    classes, replicas = chosen // layout.replicas, chosen % layout.replicas
    each = torch.arange(number, device=rows.device)
    units = classes[None]  # (B, n): the chosen sum of each region
    for weights, values in zip(reversed(parameters.layers), reversed(below[:-1]), strict=True):
        regions, _, _, k, _ = weights.shape
        shaped = values.view(2 * regions, layout.replicas, k, number)
        taken = []
        for b in range(regions):
            logs = weights[b][replicas, units[b]].log()  # (n, K, K)
            left = shaped[b][replicas, :, each][:, :, None]
            right = shaped[b + regions][replicas, :, each][:, None, :]
            taken.append(choose((logs + left + right).flatten(1).T))
        pairs = torch.stack(taken)
        units = torch.cat([pairs // k, pairs % k])
    return Path(classes, replicas, units)


def _entered(layout: TensorLayout, path: Path, places: Tensor) -> Tensor:
    """Return the chosen unit of each of some columns, shape (len(places), n)."""
    regions = layout.region_of[places][:, path.replicas] // layout.replicas
    return path.units.gather(0, regions)


def _numbers(
    layout: TensorLayout, parameters: TensorParameters, path: Path
) -> tuple[Tensor, Tensor]:
    """Return the means and variances of the chosen units of all numbers, (numbers, n)."""
    entered = _entered(layout, path, layout.number_places)
    each = layout.torch.arange(len(layout.numbers), device=entered.device)[:, None]
    place = (each, path.replicas, entered)
    return parameters.means[place], parameters.variances[place]


def _filled(
    layout: TensorLayout,
    parameters: TensorParameters,
    values: FloatArray,
    path: Path,
    numbers: Tensor,
    choose: Callable[[Tensor], Tensor],
) -> FloatArray:
    """Return values with the given standardised numbers, and chosen states, in place of NaN."""
    own = layout.numbers
    found = np.full(values.shape, np.nan)
    found[:, own] = numbers.T.cpu().numpy() * layout.scale[own] + layout.shift[own]
    entered = _entered(layout, path, layout.category_places)
    for column, states, units in zip(layout.categories, layout.states_of, entered, strict=True):
        probabilities = parameters.probabilities[states][:, path.replicas, units]
        found[:, column] = choose(probabilities.log()).cpu().numpy()
    if layout.target is not None:
        found[:, layout.target] = path.classes.cpu().numpy()
    return np.where(np.isnan(values), found, values)
