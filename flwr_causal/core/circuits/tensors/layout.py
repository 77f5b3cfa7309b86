"""The places of statistics, units and regions in the tensors of an Einsum network.

A *unit* is a distribution of one column: a normal one of a number, probabilities of the states of a
category. Each column has K units in each replica. All are exponential families, so the log density
of a leaf region's sum k is linear in *statistics* of the row: x and x^2 of a number, indicators of
all states but the first of a category, and for each column whether it is *present*, the factor of
the constants. Hence all leaves are one batched matrix product, and the sums of EM are another
one. The statistics of a missing value are 0, which integrates it out.
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
        Of each column of the domain, 0 of a number.
    regions : ndarray of int64, shape (G, R, V)
        Columns of the leaf regions, see `learners.einsum.random_regions`; -1 pads.
    shift, scale : ndarray of float64, shape (d,)
        A number enters as ``(x - shift) / scale``.
    target : int, optional
        The column whose states have a root each.
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
        """The library."""
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
        """Roots: states of the target; 1 without."""
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
        """``(S,)`` the column of each state, category for category."""
        return np.asarray(np.repeat(self.categories, self.num_states[self.categories]))

    @cached_property
    def states(self) -> IntArray:
        """``(S,)`` the number of each state in its column."""
        own = [np.arange(self.num_states[column]) for column in self.categories]
        return np.concatenate([np.zeros(0, dtype=np.int64), *own])

    @cached_property
    def first_states(self) -> tuple[Tensor, Tensor]:
        """``(categories,)`` where each one's states begin; ``(S,)`` which category a state has."""
        place = np.searchsorted(self.categories, self.state_columns)
        return self.indices(np.flatnonzero(self.states == 0)), self.indices(place)

    @cached_property
    def states_of(self) -> list[slice]:
        """Where each category's states stand."""
        ends = np.cumsum(self.num_states[self.categories]).tolist()
        return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    @cached_property
    def later_states(self) -> Tensor:
        """``(S - categories,)`` the states that have an indicator: all but a category's first."""
        return self.indices(np.flatnonzero(self.states > 0))

    @cached_property
    def number_places(self) -> Tensor:
        """``(numbers,)`` where the numbers stand among `columns`."""
        return self.indices(np.searchsorted(self.columns, self.numbers))

    @cached_property
    def statistic_places(self) -> Tensor:
        """``(F,)`` where the column of each statistic stands among `columns`."""
        return self.indices(np.searchsorted(self.columns, self.statistic_columns))

    @cached_property
    def log_scale(self) -> Tensor:
        """``(numbers, 1, 1)`` by how much standardising raises the log density."""
        return self.tensor(np.log(self.scale[self.numbers]))[:, None, None]

    @cached_property
    def category_places(self) -> Tensor:
        """``(categories,)`` where the categories stand among `columns`."""
        return self.indices(np.searchsorted(self.columns, self.categories))

    @cached_property
    def statistic_columns(self) -> IntArray:
        """``(F,)`` the column of each statistic: all x, all x^2, then states but the first."""
        return np.concatenate([self.numbers, self.numbers, self.state_columns[self.states > 0]])

    def over(self, columns: Sequence[int]) -> TensorLayout:
        """Return the layout whose column j is ``columns[j]``; no other may be in a region."""
        chosen = list(columns)
        place = np.full(len(self.num_states) + 1, -1)  # the last is where -1 finds itself
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
        """``(G * R, V)`` the columns of a region as they count in `columns`; its length pads."""
        place = np.searchsorted(self.columns, self.regions)
        place[self.regions < 0] = len(self.columns)
        return self.indices(place.reshape(-1, self.regions.shape[2]))

    @cached_property
    def region_statistics(self) -> Tensor:
        """``(G * R, most)`` the statistics of a region; F pads."""
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
        """``(G * R, 1)`` the replica of each leaf region."""
        return self.indices(np.arange(len(self.regions) * self.replicas) % self.replicas)[:, None]

    @cached_property
    def region_of(self) -> Tensor:
        """``(columns, R)`` the leaf region that a column lies in, in each replica."""
        found = np.empty((len(self.columns), self.replicas), dtype=np.int64)
        g, r, v = np.nonzero(self.regions >= 0)
        found[np.searchsorted(self.columns, self.regions[g, r, v]), r] = g * self.replicas + r
        return self.indices(found)

    # -- of rows ----------------------------------------------------------------------------------

    def rows(self, values: FloatArray) -> Tensor:
        """Return standardised values as a tensor, shape (d, n); NaN is missing."""
        return self.tensor(((values - self.shift) / self.scale).T)

    def presence(self, rows: Tensor) -> Tensor | None:
        """Whether a column is present, 1 or 0, shape (columns, n); None: all are, everywhere."""
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
        """Rows of ``(F, n)`` by region, shape (G * R, most, n), zeros where there is none."""
        padding = statistics.new_zeros((1, statistics.shape[1]))
        return self.torch.cat([statistics, padding])[regions]

    def by_region(self, units: Tensor, regions: Tensor) -> Tensor:
        """Parameters ``(F, R, K)`` by region, shape (G * R, most, K), zeros where there is none."""
        padding = units.new_zeros((1, *units.shape[1:]))
        return self.torch.cat([units, padding])[regions, self.region_replica]

    def by_statistic(self, sums: Tensor, regions: Tensor, length: int) -> Tensor:
        """Undo `by_region`: sums ``(G * R, most, K)`` as ``(length, R, K)``."""
        units = sums.new_zeros((length + 1, self.replicas, sums.shape[2]))
        units[regions, self.region_replica.expand_as(regions)] = sums
        return units[:-1]
