"""Many trees of categories together: rows without missing values only look logarithms up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.nodes import FloatArray, Leaf, LeafBatch

if TYPE_CHECKING:
    from collections.abc import Sequence


class ChowLiuBatch(LeafBatch):
    """Trees as one long table of logarithms."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__(leaves)
        trees: Any = self.leaves
        self._seen = sorted({column for tree in trees for column in tree.scope})
        self._variables = [np.array([*tree.scope, *[-1] * tree.hidden]) for tree in trees]
        self._visible = [k for k, tree in enumerate(trees) if tree.hidden == 0]
        own = [trees[k] for k in self._visible]
        self._tables: tuple[Any, ...] | None = None
        if own:
            lengths = np.array([len(tree.scope) for tree in own])
            totals = np.array([tree.flat.tables.size for tree in own])
            begins = np.repeat(np.cumsum(totals) - totals, lengths)
            with np.errstate(divide="ignore"):
                logs = np.log(np.concatenate([tree.flat.tables for tree in own]))
            above = [
                np.where(tree.flat.parents >= 0, np.array(tree.scope)[tree.flat.parents], -1)
                for tree in own
            ]
            self._tables = (
                np.concatenate(([0], np.cumsum(lengths))),
                np.concatenate([np.array(tree.scope) for tree in own]),
                np.concatenate(above),
                np.concatenate([tree.flat.sizes for tree in own]),
                np.concatenate([tree.flat.starts for tree in own]) + begins,
                logs,
            )

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log probability of each tree and row, shape (number of trees, n)."""
        from flwr_causal.core.circuits.leaves import tree_kernels

        trees: Any = self.leaves
        result = np.empty((len(self.leaves), len(values)))
        codes = np.where(np.isnan(values), -1.0, values).T.astype(np.int32, order="C")
        holes = (codes[self._seen] < 0).any(axis=0)
        if self._tables is not None and not holes.all():
            complete = codes[:, ~holes] if holes.any() else codes
            found = tree_kernels.complete_rows(complete, *self._tables)
            result[np.ix_(np.array(self._visible), ~holes)] = found
        part = codes if holes.all() else codes[:, holes]
        for row, columns, tree in zip(result, self._variables, trees, strict=True):
            if tree.hidden:
                row[:] = tree_kernels.incomplete_rows(codes, columns, *tree.flat)
            elif len(part.T):
                row[holes] = tree_kernels.incomplete_rows(part, columns, *tree.flat)
        return result
