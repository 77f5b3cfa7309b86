"""Class-first circuits for parties that hold different columns, trained by sums over rows.

What `class_first` does for parties that hold the same columns, for any pattern of columns over
parties: scales, powers and tables of a column come from the parties that hold it; moments from the
rows of each set of columns that some parties hold, shrunk as their own held-out rows ask for; the
joint moments of each class are put together from these (see `incomplete_moments`). No rows are
aligned and no row leaves a party. Every party must know the class of its rows.

The exchange has the shape of `class_first`: every party gets the same request, and its replies are
added up, for which a party leaves zeros where it holds nothing. Parties find the columns that they
hold in their values: the others are missing in every row.

Parties that hold all columns get nearly the circuit of `class_first`, which should be taken then:
blocks are cut out of fold there. Parties without a common column get one elliptical leaf a party
and class, put together to one with no covariance between parties.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.class_first import training as class_first
from flwr_causal.core.circuits.class_first.blocks import correlation_blocks
from flwr_causal.core.circuits.class_first.coordinates import (
    Coordinates,
    packed,
    tails_of,
    unpacked,
)
from flwr_causal.core.circuits.class_first.incomplete_moments import PartMoments, joint_moments
from flwr_causal.core.circuits.class_first.model import INCOMPLETE
from flwr_causal.core.circuits.class_first.model import fitted as class_first_fitted
from flwr_causal.core.circuits.class_first.pattern_sums import (
    columns_of,
    part_of,
    sums,
    triangles_of,
)
from flwr_causal.core.circuits.class_first.shrinkage import (
    ClassMoments,
    ClassSums,
    choose_shrinkage,
    shrunk_moments,
)
from flwr_causal.core.circuits.class_first.steps import chosen_of
from flwr_causal.core.circuits.class_first.tables import probabilities
from flwr_causal.core.circuits.class_first.training import Options, State
from flwr_causal.core.circuits.composed.presence import column_groups
from flwr_causal.core.circuits.exchanges import Request, exchanged
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.circuits.class_first.rows import Plan
    from flwr_causal.core.circuits.class_first.shrinkage import Shrinkage
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.exchanges import Arrays
    from flwr_causal.core.circuits.model import CircuitModel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PatternState:
    """What the server knows so far.

    Parameters
    ----------
    plan : Plan
        Of all columns.
    options : Options
    patterns : ndarray of bool, shape (G, d)
        The different sets of numbers that parties hold.
    groups : tuple of State
        Of each group of numbers that the same parties hold: its scale and powers.
    folds : tuple of ClassSums, optional
        Of each pattern.
    shrinkages : tuple of Shrinkage
        Of each pattern.
    joint : State, optional
        As `class_first` would have it, without the sums by fold.
    """

    plan: Plan
    options: Options
    patterns: BoolArray
    groups: tuple[State, ...]
    folds: tuple[ClassSums, ...] | None = None
    shrinkages: tuple[Shrinkage, ...] = ()
    joint: State | None = None


def init(plan: Plan, presence: ArrayLike, options: Options | None = None) -> PatternState:
    """Return the state before the first exchange.

    Parameters
    ----------
    plan : Plan
        Of the joint domain (`plan_for`).
    presence : array_like of bool, shape (parties, variables of the joint domain)
    options : Options, optional

    Raises
    ------
    ConfigError
        If a party does not hold the target; or if a head or a threshold is asked for: they need
        rows with all columns.
    DataError
        If nobody holds a column.
    """
    held = np.asarray(presence, dtype=bool)
    if plan.target is not None and not held[:, plan.target].all():
        party = int(np.flatnonzero(~held[:, plan.target])[0])
        raise ConfigError(
            f"party {party} does not know the class of its rows: let the party that does share it, "
            "or compose clusters instead"
        )
    chosen = options or Options()
    if chosen.head or chosen.threshold:
        raise ConfigError(
            "a head and a threshold are trained on rows with all columns: leave them out where "
            "parties hold different columns"
        )
    numbers = held[:, list(plan.columns)]
    numbers = numbers[numbers.any(axis=1)]
    groups = column_groups(numbers)
    return PatternState(
        plan,
        chosen,
        np.unique(numbers, axis=0)[::-1],
        tuple(class_first.init(part_of(plan, group.columns), chosen) for group in groups),
    )


def phase_of(state: PatternState) -> str | None:
    """Return which sums are due; None when all is known."""
    if any(group.coordinates is None for group in state.groups):
        return "scale"
    if not all(group.powers_chosen for group in state.groups):
        return "powers"
    if state.joint is None:
        return "moments"
    return "held-out" if state.joint.choice is None else None


def request(state: PatternState) -> Request | None:
    """Return what to ask of the parties next; None when all is known."""
    phase = phase_of(state)
    if phase is None:
        return None
    arrays = {"patterns": state.patterns.astype(np.float64)}
    if phase == "scale":
        origin = _spread(state, [one.origin for one in state.groups])
        return Request(phase, arrays | {"origin": origin})
    coordinates, offsets = _coordinates(state)
    arrays |= coordinates._asdict()
    if phase == "powers":
        return Request(phase, arrays | {"grid": np.array(state.options.powers)})
    if phase == "moments":
        return Request(phase, arrays | {"offsets": offsets})
    return Request(phase, arrays | _judged(state))


def step(state: PatternState, summed: Mapping[str, FloatArray]) -> PatternState:
    """Return the state after an exchange.

    Parameters
    ----------
    state : PatternState
    summed : mapping of str to arrays
        The parties' replies to ``request(state)``, added up.

    Raises
    ------
    DataError
        If there are too few rows, a column is constant, or nobody has rows with a column for one of
        the classes.
    """
    phase = phase_of(state)
    if phase in ("scale", "powers"):
        groups = [
            class_first.step(group, _of_group(state, group, summed))
            if class_first.phase_of(group) == phase
            else group
            for group in state.groups
        ]
        return replace(state, groups=tuple(groups))
    if phase == "moments":
        return _with_moments(state, summed)
    if phase == "held-out":
        assert state.joint is not None
        blocks = _blocks(state.joint)
        likelihoods, losses = summed["likelihoods"], summed["log_losses"]
        choice = chosen_of(likelihoods, losses, blocks, state.options.dof)
        return replace(state, joint=replace(state.joint, choice=choice))
    return state


def fitted(state: PatternState, domain: Domain) -> CircuitModel:
    """Return the circuits of a training that is complete.

    Raises
    ------
    ConfigError
        If an exchange is missing.
    """
    if state.joint is None:
        raise ConfigError(INCOMPLETE)
    return class_first_fitted(state.joint, domain)


def train(
    parties: Sequence[FloatArray],
    plan: Plan,
    presence: ArrayLike,
    options: Options | None = None,
) -> PatternState:
    """Exchange until all is known, with parties in one process.

    Parameters
    ----------
    parties : sequence of ndarray
        Values of each over the joint domain, NaN in the columns that it does not hold.
    plan, presence, options
        As in `init`.
    """
    start = init(plan, presence, options)
    return exchanged(start, parties, plan, request=request, sums=sums, step=step)


def _with_moments(state: PatternState, summed: Mapping[str, FloatArray]) -> PatternState:
    """Return the state with the sums of each pattern, and the joint moments of each class."""
    coordinates, offsets = _coordinates(state)
    plan, options = state.plan, state.options
    columns, triangles = columns_of(state.patterns), triangles_of(state.patterns)
    folds = [
        ClassSums(
            counts,
            first[..., own],
            unpacked(summed["second"][..., triangle], len(own)),
            offsets[:, own],
        )
        for counts, first, own, triangle in zip(
            summed["counts"], summed["first"], columns, triangles, strict=True
        )
    ]
    shrinkages = tuple(choose_shrinkage(one, options.diagonals, options.pooled) for one in folds)
    totals = [one.total() for one in folds]
    shrunk = [shrunk_moments(*one) for one in zip(totals, shrinkages, strict=True)]
    counts = np.sum([one.counts for one in totals], axis=0)
    d = len(plan.columns)
    means = np.zeros((plan.num_classes, d))
    covariances = np.broadcast_to(np.eye(d), (plan.num_classes, d, d)).copy()
    for c in np.flatnonzero(counts):
        parts = [
            PartMoments(own, one.counts[c], of.means[c], of.covariances[c])
            for own, one, of in zip(columns, totals, shrunk, strict=True)
        ]
        means[c], covariances[c] = joint_moments(parts, plan.names, f"class {c} of the target")
    joint = State(
        plan,
        options,
        np.zeros(d),
        counts=counts,
        coordinates=coordinates,
        offsets=means,
        powers_chosen=True,
        tables=summed["tables"],
        moments=ClassMoments(means, covariances),
    )
    return replace(state, folds=tuple(folds), shrinkages=shrinkages, joint=joint)


def _judged(state: PatternState) -> Arrays:
    """Return what the parties' held-out rows are to judge: moments of each pattern."""
    assert state.folds is not None
    assert state.joint is not None
    tables, counts = state.joint.tables, state.joint.counts
    assert tables is not None
    assert counts is not None
    moments = [
        shrunk_moments(one.without_each(), shrinkage)
        for one, shrinkage in zip(state.folds, state.shrinkages, strict=True)
    ]
    others = tables.sum(axis=0) - tables
    means = np.zeros((len(moments), *others.shape[:2], len(state.plan.columns)))
    for g, (one, own) in enumerate(zip(moments, columns_of(state.patterns), strict=True)):
        means[g][..., own] = one.means
    return {
        "means": means,
        "covariances": np.concatenate([packed(one.covariances) for one in moments], axis=-1),
        "tables": probabilities(others, np.array(state.plan.sizes, dtype=np.int64)),
        "weights": counts / counts.sum(),
        "blocks": _blocks(state.joint).astype(np.float64),
        "tails": tails_of(state.options.dof),
    }


def _blocks(joint: State) -> IntArray:
    """Return the blocks (cuts, d) by the correlations within classes."""
    assert joint.counts is not None
    assert joint.moments is not None
    within = np.einsum("c,cij->ij", joint.counts / joint.counts.sum(), joint.moments.covariances)
    return correlation_blocks(within, joint.options.cuts)


def _coordinates(state: PatternState) -> tuple[Coordinates, FloatArray]:
    """Return the coordinates of all columns, and the offsets (C, d) of the classes in them."""
    known = [group.coordinates for group in state.groups if group.coordinates is not None]
    offsets = [group.offsets for group in state.groups if group.offsets is not None]
    parts = [_spread(state, one) for one in zip(*known, strict=True)]
    return Coordinates(*parts), _spread(state, offsets)


def _spread(state: PatternState, arrays: Sequence[FloatArray]) -> FloatArray:
    """Put arrays (..., columns of the group) of all groups in their places, (..., d)."""
    result = np.zeros((*arrays[0].shape[:-1], len(state.plan.columns)))
    for group, array in zip(state.groups, arrays, strict=True):
        result[..., _places(state, group)] = array
    return result


def _of_group(state: PatternState, group: State, summed: Mapping[str, FloatArray]) -> Arrays:
    """Return the sums of a group's columns, as `class_first` has them."""
    own = _places(state, group)
    if class_first.phase_of(group) == "scale":
        counts, first, second = (summed[name][:, own] for name in ("counts", "first", "second"))
        return {"counts": counts[:, 0], "first": first, "second": second}
    return {"logs": summed["logs"][:, own], "powers": summed["powers"][:, :, own]}


def _places(state: PatternState, group: State) -> IntArray:
    return np.searchsorted(np.array(state.plan.columns), np.array(group.plan.columns))
