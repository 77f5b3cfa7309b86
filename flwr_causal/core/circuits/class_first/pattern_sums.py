"""What parties that hold different columns send; see `pattern` for the server's side.

A party answers as `sums` says, of the columns that it holds, and puts its sums where
they belong among those of all parties, with zeros elsewhere: then replies are added up as they
are. Moments are kept apart by pattern, the set of numbers that a party holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.class_first import sums as class_first_sums
from flwr_causal.core.circuits.class_first.coordinates import Coordinates
from flwr_causal.core.circuits.class_first.tables import starts_of
from flwr_causal.core.circuits.exchanges import Request
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flwr_causal.core.circuits.class_first.rows import Plan
    from flwr_causal.core.circuits.exchanges import Arrays

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Arrays of requests whose last axis is the columns.
BY_COLUMN = (*Coordinates._fields, "origin", "offsets")


def sums(values: FloatArray, plan: Plan, request: Request) -> Arrays:
    """Answer a request from a party's rows.

    Parameters
    ----------
    values : ndarray of float, shape (n, number of variables of the joint domain)
        A column that is missing in all rows is one that the party does not hold; in the others no
        value may be missing.
    plan : Plan
        Of the joint domain.
    request : Request

    Raises
    ------
    DataError
        If values are missing or infinite, or the columns are no pattern of the federation.
    """
    reply = _zeros(plan, request)
    there = np.asarray(~np.isnan(values).all(axis=0))
    held = there[list(plan.columns)]
    if not held.any() and request.phase != "moments":  # categories only, or no rows
        return reply
    which, triangle = _pattern_of(plan, held, request.arrays["patterns"] > 0)
    own = np.flatnonzero(held)
    part = part_of(plan, own, np.flatnonzero(there[list(plan.categories)]))
    states = _states_of(plan, part)
    asked = {
        name: array[..., own] if name in BY_COLUMN else array
        for name, array in request.arrays.items()
    }
    if request.phase in ("scale", "powers"):
        for name, array in class_first_sums.sums(
            values, part, Request(request.phase, asked)
        ).items():
            at = (..., own, slice(None)) if name == "powers" else (..., own)
            reply[name][at] = array[:, None] if name == "counts" else array
        return reply
    if request.phase == "held-out":
        blocks = np.stack([np.unique(one[own], return_inverse=True)[1] for one in asked["blocks"]])
        asked |= {
            "means": asked["means"][which][..., own],
            "covariances": asked["covariances"][..., triangle],
            "tables": asked["tables"][..., states],
            "blocks": np.broadcast_to(blocks, (plan.num_folds, *blocks.shape)),
        }
        return class_first_sums.sums(values, part, Request(request.phase, asked))
    answer = class_first_sums.sums(values, part, Request(request.phase, asked))
    if held.any():
        reply["counts"][which] = answer["counts"]
        reply["first"][which][..., own] = answer["first"]
        reply["second"][..., triangle] = answer["second"]
    reply["tables"][..., states] = answer["tables"]
    return reply


def part_of(plan: Plan, columns: Iterable[int], categories: Iterable[int] = ()) -> Plan:
    """Return the plan of some of the numbers and categories, given by their places in the plan."""
    places, others = list(columns), list(categories)
    return plan._replace(
        names=tuple(plan.names[k] for k in places),
        columns=tuple(plan.columns[k] for k in places),
        categories=tuple(plan.categories[k] for k in others),
        sizes=tuple(plan.sizes[k] for k in others),
    )


def columns_of(patterns: BoolArray) -> list[IntArray]:
    """Return the columns of each pattern."""
    return [np.flatnonzero(one).astype(np.int64) for one in patterns]


def triangles_of(patterns: BoolArray) -> list[slice]:
    """Return where the triangle of each pattern's second moments is among those of all."""
    sizes = patterns.sum(axis=1)
    ends = np.cumsum(sizes * (sizes + 1) // 2).tolist()
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _pattern_of(plan: Plan, held: BoolArray, patterns: BoolArray) -> tuple[int, slice]:
    """Return a party's pattern, and where its triangle is; without numbers any will do."""
    if not held.any():
        return 0, slice(0, 0)
    found = np.flatnonzero((patterns == held).all(axis=1))
    if not len(found):
        listed = ", ".join(plan.names[j] for j in np.flatnonzero(held))
        raise DataError(
            f"no party was announced that holds the numbers {listed} and no others: does a column "
            "have no value at all? Leave it out"
        )
    which = int(found[0])
    return which, triangles_of(patterns)[which]


def _states_of(plan: Plan, part: Plan) -> BoolArray:
    """Return which states, of all categories side by side, are of the part's categories."""
    result = np.zeros(sum(plan.sizes), dtype=bool)
    for column, start, size in zip(plan.categories, starts_of(plan.sizes), plan.sizes, strict=True):
        result[start : start + size] = column in part.categories
    return result


def _zeros(plan: Plan, request: Request) -> Arrays:
    """Return the reply of a party without rows."""
    classes, folds, d = plan.num_classes, plan.num_folds, len(plan.columns)
    asked = request.arrays
    shapes: dict[str, tuple[int, ...]]
    if request.phase == "scale":
        shapes = dict.fromkeys(("counts", "first", "second"), (classes, d))
    elif request.phase == "powers":
        shapes = {"logs": (classes, d), "powers": (classes, 2, d, len(asked["grid"]))}
    elif request.phase == "moments":
        patterns = asked["patterns"] > 0
        shapes = {
            "counts": (len(patterns), folds, classes),
            "first": (len(patterns), folds, classes, d),
            "second": (folds, classes, triangles_of(patterns)[-1].stop),
            "tables": (folds, classes, sum(plan.sizes)),
        }
    else:
        tails = len(asked["tails"])
        shapes = {"likelihoods": (tails,), "log_losses": (len(asked["blocks"]), tails)}
    return {name: np.zeros(shape) for name, shape in shapes.items()}
