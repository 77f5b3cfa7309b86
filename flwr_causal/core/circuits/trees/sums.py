"""What parties send to train mixtures of trees: counts, one function a phase.

Every reply is a dict of arrays that are added up over parties. Counts are exact
(`pair_sums`), so the sums are the same to the last bit whoever holds
which rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.trees.mixtures import from_arrays
from flwr_causal.core.circuits.trees.pair_sums import (
    CHUNK,
    Layout,
    weighted_products,
    weighted_sums,
)
from flwr_causal.core.circuits.trees.rows import rows_by_class
from flwr_causal.errors import FederationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr_causal.core.circuits.exchanges import Request
    from flwr_causal.core.circuits.trees.mixtures import Mixtures
    from flwr_causal.core.circuits.trees.rows import Plan

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int32]
Arrays = dict[str, FloatArray]


def sums(values: FloatArray, plan: Plan, request: Request) -> Arrays:
    """Answer a request from a party's rows.

    Parameters
    ----------
    values : ndarray of float, shape (n, number of variables)
        As ``Domain.encode`` makes them; NaN is a missing value.
    plan : Plan
    request : Request
        ``pairs``: counts of the pairs of states for each class. ``products``, ``trees``: counts of
        states, or of pairs, for each component of the mixtures that are sent.

    Raises
    ------
    DataError
        If a value is none of its variable's states, or the target is missing.
    FederationError
        If the phase is unknown.
    """
    rows = rows_by_class(values, plan)
    if request.phase == "pairs":
        return {"counts": pair_sums_of(rows, plan)}
    count = {"products": weighted_sums, "trees": weighted_products}.get(request.phase)
    if count is None:
        raise FederationError(f"the server asks for the unknown phase {request.phase!r}")
    layout = Layout(plan.num_states, bool(request.arrays["complete"]))
    mixtures = from_arrays(plan.num_states, request.arrays)
    parts = [
        _component_sums(codes, mixture, layout, count)
        for codes, mixture in zip(rows, mixtures, strict=True)
    ]
    return {"counts": withheld(np.concatenate(parts), plan.min_rows)}


def pair_sums_of(groups: list[Codes], plan: Plan) -> FloatArray:
    """Count pairs of states for each group of rows, ``(groups, num_pairs)``.

    Whether a value is missing at another party is not known yet: all states have a column.
    """
    layout = Layout(plan.num_states, complete=False)
    result = np.zeros((len(groups), layout.num_pairs))
    for total, codes in zip(result, groups, strict=True):
        for start in range(0, codes.shape[1], CHUNK):
            design = layout.design(codes[:, start : start + CHUNK])
            total += weighted_products(design, np.ones((len(design), 1)))[0]
    return withheld(result, plan.min_rows)


def withheld(counts: FloatArray, min_rows: int) -> FloatArray:
    """Set the counts of fewer than so many rows to 0; the first column is the number of rows.

    That of a component is a sum of responsibilities, and may be less than 1: 1 leaves out none.
    """
    if min_rows == 1:
        return counts
    return np.where(counts[:, :1] >= min_rows, counts, 0.0)


def _component_sums(
    codes: Codes,
    mixture: Mixtures,
    layout: Layout,
    count: Callable[[NDArray[np.float32], FloatArray], FloatArray],
) -> FloatArray:
    """Sum over the rows of a class, weighted by their responsibilities, ``(E K, width)``."""
    width = layout.num_pairs if count is weighted_products else layout.width
    total = np.zeros((mixture.size, width))
    for start in range(0, codes.shape[1], CHUNK):
        part = codes[:, start : start + CHUNK]
        total += count(layout.design(part), mixture.responsibilities(part))
    return total
