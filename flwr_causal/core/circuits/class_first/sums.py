"""What parties send to train class-first circuits: sums over rows, one function a phase.

Every reply is a dict of arrays that are added up over parties, entry by entry, whoever holds which
rows. `training` is the server's side of the exchange. Arrays of requests and replies are finite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.class_first.blocks import judge
from flwr_causal.core.circuits.class_first.coordinates import (
    Coordinates,
    dof_of,
    packed,
    unpacked,
)
from flwr_causal.core.circuits.class_first.head import head_answer, threshold_answer
from flwr_causal.core.circuits.class_first.power_sums import log_sums, power_sums
from flwr_causal.core.circuits.class_first.rows import rows_of
from flwr_causal.core.circuits.class_first.shrinkage import ClassMoments
from flwr_causal.core.circuits.class_first.tables import log_probabilities, tables_of
from flwr_causal.errors import FederationError

if TYPE_CHECKING:
    from flwr_causal.core.circuits.class_first.rows import Plan, Rows
    from flwr_causal.core.circuits.exchanges import Arrays, Request

FloatArray = NDArray[np.float64]


def sums(values: FloatArray, plan: Plan, request: Request) -> Arrays:
    """Answer a request from a party's rows.

    Parameters
    ----------
    values : ndarray of float, shape (n, number of variables)
        As ``Domain.encode`` makes them, without missing values.
    plan : Plan
    request : Request

    Raises
    ------
    DataError
        If values are missing or infinite.
    FederationError
        If the phase is unknown.
    """
    answer = _ANSWERS.get(request.phase)
    if answer is None:
        raise FederationError(f"the server asks for the unknown phase {request.phase!r}")
    return answer(rows_of(values, plan), plan, request.arrays)


def _scale(rows: Rows, plan: Plan, asked: Arrays) -> Arrays:
    """Return counts, sums and squares of each class about the origin that was asked for."""
    about = rows.numbers - asked["origin"]
    groups = [about[rows.classes == c] for c in range(plan.num_classes)]
    return {
        "counts": np.array([float(len(group)) for group in groups]),
        "first": np.stack([group.sum(axis=0) for group in groups]),
        "second": np.stack([(group**2).sum(axis=0) for group in groups]),
    }


def _powers(rows: Rows, plan: Plan, asked: Arrays) -> Arrays:
    """Return sums of each class on the grid of powers."""
    u = rows.numbers / asked["scale"]
    middle, grid, reach = asked["middle"], asked["grid"], asked["reach"]
    groups = [u[rows.classes == c] for c in range(plan.num_classes)]
    return {
        "logs": np.stack([log_sums(group, reach) for group in groups]),
        "powers": np.stack([power_sums(group, middle, grid, reach) for group in groups]),
    }


def _moments(rows: Rows, plan: Plan, asked: Arrays) -> Arrays:
    """Return counts, sums and products of each fold and class about given offsets, and tables."""
    z = _coordinates(asked).apply(rows.numbers) - asked["offsets"][rows.classes]
    folds, num_classes, d = plan.num_folds, plan.num_classes, z.shape[1]
    counts = np.zeros((folds, num_classes))
    first = np.zeros((folds, num_classes, d))
    second = np.zeros((folds, num_classes, d * (d + 1) // 2))
    group = rows.folds * num_classes + rows.classes
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(folds * num_classes + 1))
    for index in range(folds * num_classes):
        part = z[order[starts[index] : starts[index + 1]]]
        at = divmod(index, num_classes)
        counts[at], first[at], second[at] = len(part), part.sum(axis=0), packed(part.T @ part)
    sizes = np.array(plan.sizes, dtype=np.int64)
    tables = tables_of(rows.categories, group, folds * num_classes, sizes)
    return {
        "counts": counts,
        "first": first,
        "second": second,
        "tables": tables.reshape(folds, num_classes, int(sizes.sum())),
    }


def _held_out(rows: Rows, plan: Plan, asked: Arrays) -> Arrays:
    """Log-likelihoods and log losses of each fold's rows under the moments of the others."""
    z = _coordinates(asked).apply(rows.numbers)
    covariances = unpacked(asked["covariances"], z.shape[1])
    sizes = np.array(plan.sizes, dtype=np.int64)
    with np.errstate(divide="ignore"):
        log_weights = np.log(asked["weights"])
    judgements = []
    for fold in range(plan.num_folds):
        own = rows.folds == fold
        said = log_probabilities(rows.categories[own], asked["tables"][fold], sizes)
        judgements.append(
            judge(
                z[own],
                rows.classes[own],
                ClassMoments(asked["means"][fold], covariances[fold]),
                log_weights + said.sum(axis=2),
                asked["blocks"][fold].astype(np.int64),
                dof_of(asked["tails"]),
            )
        )
    return {
        "likelihoods": np.sum([one.likelihoods for one in judgements], axis=0),
        "log_losses": np.sum([one.log_losses for one in judgements], axis=0),
    }


def _coordinates(asked: Arrays) -> Coordinates:
    return Coordinates(*(asked[name] for name in Coordinates._fields))


_ANSWERS = {
    "scale": _scale,
    "powers": _powers,
    "moments": _moments,
    "held-out": _held_out,
    "head": head_answer,
    "threshold": threshold_answer,
}
