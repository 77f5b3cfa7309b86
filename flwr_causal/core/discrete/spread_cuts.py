"""Cut points where many rows share a value: its bin apart, and the other rows in equal bins.

Equally full bins of all rows spend most of their cut points on a value that half of the rows share,
where none can be: of a gain that is 0 in nine of ten rows hardly a bin is left for the gains. Once
the cut points are known (`cut_points`), so are the bins that hold far more than their share. They
keep their ends, and the other cut points divide the other rows.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.discrete.cut_points import CutState, FloatArray

#: Shares of the rows, in equal ones, from which on a bin is one value's.
LARGE = 2.0


def spread(state: CutState) -> CutState | None:
    """Return the state at the start of a second search; None where no bin is too full.

    Parameters
    ----------
    state : CutState
        After its last exchange.
    """
    targets = state.targets.copy()
    for j, total in enumerate(state.num_rows.tolist()):
        nearer = state.up_to[j] - state.targets[j] <= state.targets[j] - state.below[j]
        reached = np.unique(np.where(nearer, state.up_to[j], state.below[j]))
        ends = [0, *reached[(reached > 0) & (reached < total)].tolist(), total]
        full = [
            (low, high)
            for low, high in pairwise(ends)
            if high - low > LARGE * total / state.num_bins
        ]
        # Where nearly all bins are full there are few values, each of which has its bin.
        if full and sum(high - low for low, high in full) < total:
            targets[j] = _around(full, total, len(targets[j]))
    if (targets == state.targets).all():
        return None
    return replace(
        state,
        exchange=0,
        targets=targets,
        lower=np.full_like(state.lower, -np.inf),
        upper=np.full_like(state.upper, np.inf),
        below=np.zeros_like(state.below),
        up_to=np.tile(state.num_rows[:, None], state.num_bins - 1),
    )


def _around(full: list[tuple[int, int]], total: int, size: int) -> FloatArray:
    """Return the ends of full bins, and equal parts of the rows between them, shape (size,)."""
    edges = sorted({end for pair in full for end in pair} - {0, total})[:size]
    rest = total - sum(high - low for low, high in full)
    parts = size - len(edges) + 1
    ranks: NDArray[np.float64] = np.arange(1.0, parts) * (rest / parts)
    for low, high in full:
        ranks = np.where(ranks >= low, ranks + (high - low), ranks)
    return np.sort(np.concatenate([np.array(edges, dtype=np.float64), ranks]))
