"""Rows of a tensorised circuit filled from the root down: draws, the most probable explanation.

A row takes a class and a replica at the root, then in each region a pair of its children's sums,
and so comes to one unit of every column. All rows go down together, region by region.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.tensors.evaluation import evaluated, peak_values, root_terms
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.circuits.tensors.evaluation import TensorParameters
    from flwr_causal.core.circuits.tensors.layout import TensorLayout

FloatArray = NDArray[np.float64]
Tensor = Any


class Path(NamedTuple):
    """What rows have chosen.

    Attributes
    ----------
    classes, replicas : (n,)
    units : (G, n)
        The sum that each leaf region of the replica is entered by.
    """

    classes: Tensor
    replicas: Tensor
    units: Tensor


def drawn(
    layout: TensorLayout, parameters: TensorParameters, values: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Fill missing values by draws given the rest of each row, shape (n, d)."""
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


def completed(layout: TensorLayout, parameters: TensorParameters, values: FloatArray) -> FloatArray:
    """Fill missing values by the most probable explanation that max-product finds, (n, d)."""

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
    """Choose at the root and in every region; ``below`` are log values from the leaves up."""
    torch = layout.torch
    terms = root_terms(layout, parameters, rows, below[-1])
    number = terms.shape[2]
    flat = terms.flatten(0, 1)
    bad = torch.nonzero(flat.amax(dim=0).isneginf())
    if len(bad):
        raise DataError(
            "what a row holds is impossible under the circuit, so the rest of it cannot be filled; "
            f"leave it out (row {int(bad[0])} of those computed with at a time)"
        )
    chosen = choose(flat)
    classes, replicas = chosen // layout.replicas, chosen % layout.replicas
    each = torch.arange(number, device=rows.device)
    units = classes[None]  # (B, n): which sum of each region is taken
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
    """Which of its K units each of some columns takes, (len(places), n)."""
    regions = layout.region_of[places][:, path.replicas] // layout.replicas
    return path.units.gather(0, regions)


def _numbers(
    layout: TensorLayout, parameters: TensorParameters, path: Path
) -> tuple[Tensor, Tensor]:
    """Means and variances of the units of all numbers, (numbers, n)."""
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
    """Return values with the standardised numbers, and states as chosen, where NaN was."""
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
