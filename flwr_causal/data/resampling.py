"""Random draws of a party's rows with replacement, for bootstrap replicates.

References
----------
Hall, Horowitz & Jing (1995). On blocking rules for the bootstrap with dependent data. Biometrika.

Politis & Romano (1992). A circular block-resampling procedure for stationary data. Exploring the
limits of bootstrap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.data.read.pieces import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.arrays import IntArray
    from flwr_causal.data.read.pieces import Table


@dataclass(frozen=True)
class Draw:
    """The random draw of one replicate at one party.

    Parameters
    ----------
    key : int
        Known to the party alone: whoever knows which rows were drawn learns more from a sum over
        them.
    replicate : int
        Its number.
    distinct : bool, default False
        Whether half of the rows are drawn without replacement, whose mean varies as much as that of
        all rows drawn with replacement: for methods to which the same row twice is not two rows.
    """

    key: int
    replicate: int
    distinct: bool = False

    @property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng([self.key, self.replicate])

    def rows(self, count: int, strata: IntArray | None = None) -> IntArray:
        """Return the positions of the rows that are drawn, ascending.

        They are as many as there are rows, or of ``distinct`` rows half as many, rounded up in each
        stratum.

        Parameters
        ----------
        count : int
            n, the number of rows.
        strata : ndarray of int, shape (n,), optional
            The group of each row: as many are drawn of each.
        """
        rng, drawn = self._rng, []
        groups = np.zeros(count, dtype=np.int64) if strata is None else strata
        for group in np.unique(groups):
            inside = np.flatnonzero(groups == group)
            if self.distinct:
                drawn.append(rng.choice(inside, -(-len(inside) // 2), replace=False))
            else:
                drawn.append(inside[rng.integers(len(inside), size=len(inside))])
        return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *drawn]))

    def blocks(self, lengths: Sequence[int]) -> IntArray:
        """Return the positions of rows that are drawn in blocks, from several series.

        A block is a stretch of one series; it goes on at the series' start after its end. Every row
        is thus drawn with the same probability.

        Parameters
        ----------
        lengths : sequence of int
            The number of rows of each series.

        Returns
        -------
        ndarray of int, shape (n,)
            Positions among the n rows of all series.
        """
        sizes = np.asarray(lengths, dtype=np.int64)
        count, starts = int(sizes.sum()), np.cumsum(sizes) - sizes
        length = block_length(count / max(len(sizes), 1))
        first = self._rng.integers(count, size=-(-count // length))
        series = np.searchsorted(np.cumsum(sizes), first, side="right")
        steps = first[:, None] - starts[series, None] + np.arange(length)
        drawn = starts[series, None] + steps % sizes[series, None]
        return np.asarray(drawn.ravel()[:count], dtype=np.int64)


def block_length(rows: float) -> int:
    """Return the length of blocks for series of so many rows: its cube root, rounded up.

    The order of the length of least mean squared error of a bootstrap variance (Hall, Horowitz &
    Jing 1995).
    """
    return max(1, int(np.ceil(rows ** (1 / 3) - 1e-9)))


def resampled(table: Table, drawn: IntArray) -> pd.DataFrame:
    """Return the rows of a table at some positions."""
    return whole(table).iloc[drawn].reset_index(drop=True)
