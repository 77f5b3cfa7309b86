"""Layers of sums over pairs of regions, evaluated as batched matrix products in log space.

A region has K sums. Sum o of region b mixes the K x K products of the sums of its two children,
``S_o = sum_ij weights[b, o, i, j] left_i right_j`` (Peharz et al., "Einsum networks", ICML 2020).
Rows stand last in all tensors, so that what is done to each of them is done to runs of memory. The
products of all pairs are formed for a few regions at a time: they then stay in the processor's
cache, which halves the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flwr_causal.core.devices import import_torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Tensor = Any

#: So many products are formed at a time: on the CPU half a megabyte of float32, on a GPU what
#: keeps it busy.
CPU_PRODUCTS = 2**17
GPU_PRODUCTS = 2**27


class Trace(NamedTuple):
    """What a layer keeps of its way up: its sums are ``exp(left_peak + right_peak) * sums``.

    Attributes
    ----------
    left, right : (B, K, n)
        Values of the children, divided by their peaks over the K.
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
    # What rounds to 0 is as good as impossible, but has to stay finite for the layers above.
    sums.clamp_(min=torch.finfo(sums.dtype).tiny)
    left_peaks, right_peaks = peaks.split(regions)
    return Trace(left, right, sums, torch.log(sums) + left_peaks + right_peaks)


def downward(
    layers: Sequence[Tensor], traces: Sequence[Trace], flows: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Count how often each weight is expected to be taken.

    A flow is the probability that a row comes to a sum on its way from the root, given all that the
    row holds: the derivative of the row's log density with respect to the sum's.

    Parameters
    ----------
    layers, traces
        As in `upward`, of the same rows.
    flows : tensor, shape (B, O, n)
        Into the sums of the uppermost layer.

    Returns
    -------
    counts : list of tensor, shapes (B, O, K, K)
        Expected number of rows that take a weight, layer for layer.
    flows : tensor, shape (2 B, K, n)
        Into the leaf regions' sums.
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
        taken = taken.view(-1, k, k, rows)
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
        yield part, pairs.view(-1, k * k, rows)


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
