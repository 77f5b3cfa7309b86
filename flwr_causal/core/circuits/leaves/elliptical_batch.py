"""Elliptical leaves together: those of one scope and one transform transform the rows once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.leaves.elliptical_law import (
    by_pattern,
    standard_log_density,
    whitened,
)
from flwr_causal.core.circuits.nodes import FloatArray, Leaf, LeafBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: Numbers that are computed at once, so that they fit a cache.
CACHED = 2**14


class EllipticalBatch(LeafBatch):
    """Elliptical leaves; what depends on the rows alone is found once for those that share it."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__(leaves)
        groups: dict[tuple[Any, ...], list[int]] = {}
        for position, leaf in enumerate(leaves):
            arrays = leaf.arrays()
            same = tuple(arrays[name].tobytes() for name in ("dof", "powers", "scales", "reach"))
            groups.setdefault((leaf.scope, same), []).append(position)
        self._groups = [_Group([leaves[k] for k in own], own) for own in groups.values()]

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each leaf and row, shape (number of leaves, n)."""
        result = np.empty((len(self.leaves), len(values)))
        for group in self._groups:
            result[group.positions] = group.log_density(values)
        return result


class _Group:
    """Leaves of one scope, one transform and one number of degrees of freedom."""

    def __init__(self, leaves: Sequence[Any], positions: list[int]) -> None:
        self.positions = positions
        self._first = leaves[0]
        self._columns = list(leaves[0].scope)
        self._means = np.stack([leaf.mean for leaf in leaves])
        self._covariances = np.stack([leaf.covariance for leaf in leaves])
        self._whitened = whitened(self._covariances)

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each leaf and row, shape (number of leaves, n)."""
        transformed, slopes = self._first.transformed(values[:, self._columns])
        result = np.zeros((len(self._means), len(values)))
        for rows, known in by_pattern(np.isnan(transformed)):
            if known.any():
                density = self._of_pattern(transformed[rows][:, known], known)
                result[:, rows] = density + slopes[rows][:, known].sum(axis=1)
        return result

    def _of_pattern(self, rows: FloatArray, known: NDArray[np.bool_]) -> FloatArray:
        """Log density of what is known, transformed, of rows that miss the same."""
        whitening, log_det = self._whitened
        if not known.all():
            whitening, log_det = whitened(self._covariances[:, known][:, :, known])
        means = self._means[:, None, known]
        squares = np.empty((len(means), len(rows)))
        size = max(1, CACHED // means.size)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            standard = (rows[part] - means) @ whitening.transpose(0, 2, 1)
            np.einsum("lij,lij->li", standard, standard, out=squares[:, part])
        return standard_log_density(squares, log_det[:, None], rows.shape[1], self._first.dof)
