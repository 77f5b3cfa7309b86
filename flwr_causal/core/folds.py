"""Which of a party's rows are held out to judge what was learned from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Every fourth row: enough to compare graphs, few enough to learn them.
SHARE = 4


def num_held_out(num_rows: NDArray[np.int_] | int) -> NDArray[np.int_]:
    """Return how many of a party's rows are held out; the server counts with the same rule."""
    return np.asarray(num_rows) // SHARE


def split_rows(num_rows: int, seed: int) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """Return the indices of the rows to learn from and of those held out, at random by the seed."""
    order = np.random.default_rng(seed).permutation(num_rows)
    held_out = int(num_held_out(num_rows))
    return np.sort(order[held_out:]), np.sort(order[:held_out])
