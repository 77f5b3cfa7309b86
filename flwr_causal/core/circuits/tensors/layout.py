"""The order of statistics, units and regions in the tensors of an Einsum network.

A *unit* is a distribution of one column: a normal distribution of a number, or probabilities of the
states of a category. Each column has K units in each replica. Units are exponential families, so
the log density of sum k of a leaf region is linear in the *statistics* of the row: x and x^2 of a
number, the indicators of all states but the first of a category, and for each column its
*presence*, 1 if it has a value, as the factor of the constants. All leaves are therefore one
batched matrix product, and the sums of EM are another. The statistics and the presence of a missing
value are 0, which integrates it out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.devices import PRECISIONS, checked_device, import_torch
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray

Tensor = Any


@dataclass(frozen=True, eq=False)
class TensorLayout:
    """The shape of an Einsum network, all but its parameters.

    Attributes
    ----------
    num_states : ndarray of int64, shape (d,)
        Number of states of each column of the domain; 0 for a number.
    regions : ndarray of int64, shape (G, R, V)
        Columns of the leaf regions, see `learners.einsum.random_regions`; -1 pads.
    shift, scale : ndarray of float64, shape (d,)
        Numbers are standardised as ``(x - shift) / scale``.
    target : int, optional
        The column that has a root for each of its states. Default: there is one root.
    device : str
        ``"cpu"``, ``"cuda"`` or ``"cuda:<index>"``.
    precision : {"float32", "float64"}
    """

    num_states: IntArray
    regions: IntArray
    shift: FloatArray
    scale: FloatArray
    target: int | None = None
    device: str = "cpu"
    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision must be one of {PRECISIONS}, got {self.precision!r}")
        checked_device(self.torch, self.device)

    @property
    def torch(self) -> Any:
        """The module torch."""
        return import_torch("Einsum networks")

    def tensor(self, values: Any) -> Tensor:
        """Return a copy as floating point numbers on the device."""
        kind = getattr(self.torch, self.precision)
        array = np.ascontiguousarray(values)
        return self.torch.tensor(array, dtype=kind, device=self.device)

    def indices(self, values: Any) -> Tensor:
        """Return a copy as whole numbers on the device."""
        return self.torch.tensor(np.asarray(values, dtype=np.int64), device=self.device)

    @property
    def depth(self) -> int:
        """Splits from the root to a leaf region."""
        return len(self.regions).bit_length() - 1

    @property
    def replicas(self) -> int:
        """Number of region graphs."""
        return int(self.regions.shape[1])

    @property
    def num_classes(self) -> int:
        """Number of roots: states of the target, or 1."""
        return 1 if self.target is None else int(self.num_states[self.target])

    def layer_shapes(self, k: int) -> list[tuple[int, int, int, int, int]]:
        """Return the shapes of all layers' weights, (regions, replicas, sums, k, k) each.

        The layer above the leaf regions is the first, with half as many regions as these; the last
        has one region, with a sum for each class.
        """
        counts = [2**level for level in reversed(range(self.depth))]
        return [
            (count, self.replicas, self.num_classes if count == 1 else k, k, k) for count in counts
        ]

    def layers(self, weights: FloatArray, k: int) -> list[FloatArray]:
        """Divide the weights of all layers, one after the other, into those of each."""
        shapes = self.layer_shapes(k)
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        parts = np.split(weights, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    @cached_property
    def columns(self) -> IntArray:
        """The columns that are split into regions, ascending."""
        return np.asarray(np.unique(self.regions[self.regions >= 0]))

    @cached_property
    def numbers(self) -> IntArray:
        """The numbers among `columns`."""
        return np.asarray(self.columns[self.num_states[self.columns] == 0])

    @cached_property
    def categories(self) -> IntArray:
        """The categories among `columns`."""
        return np.asarray(self.columns[self.num_states[self.columns] > 0])

    @cached_property
    def state_columns(self) -> IntArray:
        """The column of each state, ordered by category, shape (S,)."""
        return np.asarray(np.repeat(self.categories, self.num_states[self.categories]))

    @cached_property
    def states(self) -> IntArray:
        """The index of each state in its category, shape (S,)."""
        own = [np.arange(self.num_states[column]) for column in self.categories]
        return np.concatenate([np.zeros(0, dtype=np.int64), *own])

    @cached_property
    def first_states(self) -> tuple[Tensor, Tensor]:
        """First state of each category (categories,), and the category of each state (S,)."""
        place = np.searchsorted(self.categories, self.state_columns)
        return self.indices(np.flatnonzero(self.states == 0)), self.indices(place)

    @cached_property
    def states_of(self) -> list[slice]:
        """The states of each category, as slices of all."""
        ends = np.cumsum(self.num_states[self.categories]).tolist()
        return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    @cached_property
    def later_states(self) -> Tensor:
        """The states that have an indicator, all but each category's first, (S - categories,)."""
        return self.indices(np.flatnonzero(self.states > 0))

    @cached_property
    def number_places(self) -> Tensor:
        """The places of the numbers in `columns`, shape (numbers,)."""
        return self.indices(np.searchsorted(self.columns, self.numbers))

    @cached_property
    def statistic_places(self) -> Tensor:
        """The place of each statistic's column in `columns`, shape (F,)."""
        return self.indices(np.searchsorted(self.columns, self.statistic_columns))

    @cached_property
    def log_scale(self) -> Tensor:
        """The log of the numbers' scales, by which log densities fall, shape (numbers, 1, 1)."""
        return self.tensor(np.log(self.scale[self.numbers]))[:, None, None]

    @cached_property
    def category_places(self) -> Tensor:
        """The places of the categories in `columns`, shape (categories,)."""
        return self.indices(np.searchsorted(self.columns, self.categories))

    @cached_property
    def statistic_columns(self) -> IntArray:
        """The column of each statistic: all x, all x^2, then indicators of states, shape (F,)."""
        return np.concatenate([self.numbers, self.numbers, self.state_columns[self.states > 0]])

    def over(self, columns: Sequence[int]) -> TensorLayout:
        """Return the layout whose column j is ``columns[j]``; regions contain no other columns."""
        chosen = list(columns)
        place = np.full(len(self.num_states) + 1, -1)  # the last entry maps -1 to -1
        place[chosen] = np.arange(len(chosen))
        return TensorLayout(
            self.num_states[chosen],
            place[self.regions],
            self.shift[chosen],
            self.scale[chosen],
            None if self.target is None else int(place[self.target]),
            self.device,
            self.precision,
        )

    # -- of the leaf regions ----------------------------------------------------------------------

    @cached_property
    def region_presence(self) -> Tensor:
        """Places in `columns` of each region's columns, (G * R, V); padded by len(columns)."""
        place = np.searchsorted(self.columns, self.regions)
        place[self.regions < 0] = len(self.columns)
        return self.indices(place.reshape(-1, self.regions.shape[2]))

    @cached_property
    def region_statistics(self) -> Tensor:
        """The statistics of each region, (G * R, most); padded by F."""
        own = [np.flatnonzero(self.statistic_columns == column) for column in self.columns]
        rows = [
            np.concatenate([np.zeros(0, dtype=np.int64)] + [own[c] for c in region if c < len(own)])
            for region in self.region_presence.cpu().numpy()
        ]
        most = max(len(row) for row in rows)
        padded = np.full((len(rows), most), len(self.statistic_columns))
        for k, row in enumerate(rows):
            padded[k, : len(row)] = row
        return self.indices(padded)

    @cached_property
    def region_replica(self) -> Tensor:
        """The replica of each leaf region, shape (G * R, 1)."""
        return self.indices(np.arange(len(self.regions) * self.replicas) % self.replicas)[:, None]

    @cached_property
    def region_of(self) -> Tensor:
        """The leaf region of each column in each replica, shape (columns, R)."""
        found = np.empty((len(self.columns), self.replicas), dtype=np.int64)
        g, r, v = np.nonzero(self.regions >= 0)
        found[np.searchsorted(self.columns, self.regions[g, r, v]), r] = g * self.replicas + r
        return self.indices(found)

    # -- of rows ----------------------------------------------------------------------------------

    def rows(self, values: FloatArray) -> Tensor:
        """Return standardised values as a tensor, shape (d, n); NaN is missing."""
        return self.tensor(((values - self.shift) / self.scale).T)

    def presence(self, rows: Tensor) -> Tensor | None:
        """1 where a column has a value, else 0, shape (columns, n); None if no value is missing."""
        missing = self.torch.isnan(self._own(rows, self.columns))
        return (~missing).to(rows.dtype) if bool(missing.any()) else None

    def statistics(self, rows: Tensor) -> Tensor:
        """Statistics of rows, shape (F, n)."""
        numbers = self._own(rows, self.numbers).nan_to_num(0.0)
        seen = self.states > 0
        states = self.tensor(self.states[seen])[:, None]
        indicators = self._own(rows, self.state_columns[seen]) == states
        return self.torch.cat([numbers, numbers * numbers, indicators.to(rows.dtype)])

    def _own(self, rows: Tensor, columns: Sequence[int] | IntArray) -> Tensor:
        return rows[self.indices(columns)]

    def gathered(self, statistics: Tensor, regions: Tensor) -> Tensor:
        """Return statistics (F, n) by region, shape (G * R, most, n); 0 in the padding."""
        padding = statistics.new_zeros((1, statistics.shape[1]))
        return self.torch.cat([statistics, padding])[regions]

    def by_region(self, units: Tensor, regions: Tensor) -> Tensor:
        """Return parameters (F, R, K) by region, shape (G * R, most, K); 0 in the padding."""
        padding = units.new_zeros((1, *units.shape[1:]))
        return self.torch.cat([units, padding])[regions, self.region_replica]

    def by_statistic(self, sums: Tensor, regions: Tensor, length: int) -> Tensor:
        """Return sums (G * R, most, K) by statistic, (length, R, K); the inverse of `by_region`."""
        units = sums.new_zeros((length + 1, self.replicas, sums.shape[2]))
        units[regions, self.region_replica.expand_as(regions)] = sums
        return units[:-1]
