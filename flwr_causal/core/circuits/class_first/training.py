"""Class-first circuits, trained by sums over rows: the server's side.

A class-first circuit is a sum over classes of the class times one leaf over all numbers: an
elliptical distribution (Gaussian or Student t) of columns that were made symmetric by a power.
Categories beside the class are independent of the numbers and each other given the class. All
parameters are functions of sums over rows, so a federation whose parties hold the same columns
trains the circuit of its pooled rows, whoever holds which rows: parties of one class each make no
difference. A party answers these requests (:mod:`flwr_causal.core.circuits.class_first.sums`):

- scale: counts, sums, squares of each class (asked again about the mean where that lies so far
  from 0 that the squares lose digits);
- powers: sums of the columns under a grid of Yeo-Johnson powers;
- moments: counts, sums and products of the transformed columns by class and fold, from which the
  shrinkage of covariances follows, as held-out likelihoods are functions of the sums too; and
  counts of the categories' states;
- held-out: log-likelihoods under a grid of degrees of freedom, and log losses of the class under
  leaves over blocks of correlated columns. The latter make a second circuit from the same sums,
  whose posterior of the class is better than that of the circuit with the best density;
- head, threshold: where they are asked for; see :class:`Options`.

Rows have to be complete. A class of which nobody has a row is left out, and the covariance of one
with a single row is the one that the classes share.

`request` and `step` are pure; a strategy carries what they exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.class_first.coordinates import packed, tails_of
from flwr_causal.core.circuits.class_first.head import head_arrays, product_head
from flwr_causal.core.circuits.class_first.shrinkage import shrunk_moments
from flwr_causal.core.circuits.class_first.steps import (
    cut_blocks,
    scaled,
    with_choice,
    with_head,
    with_moments,
    with_powers,
    with_threshold,
)
from flwr_causal.core.circuits.class_first.sums import sums
from flwr_causal.core.circuits.class_first.tables import probabilities
from flwr_causal.core.circuits.exchanges import Request, exchanged
from flwr_causal.core.circuits.logistic_head import PENALTY
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.circuits.class_first.blocks import Choice
    from flwr_causal.core.circuits.class_first.coordinates import Coordinates
    from flwr_causal.core.circuits.class_first.rows import Plan
    from flwr_causal.core.circuits.class_first.shrinkage import (
        ClassMoments,
        ClassSums,
        Shrinkage,
    )
    from flwr_causal.core.circuits.exchanges import Arrays
    from flwr_causal.core.circuits.logistic_head import Head, HeadState

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Options:
    """What is tried; a grid of one value is not chosen from, and may save an exchange.

    Parameters
    ----------
    powers : tuple of float
        Of Yeo and Johnson. ``(1.0,)`` leaves columns as they are.
    reach : float
        Deviations from the mean up to which powers hold; see :class:`Coordinates`.
    power_penalty : float
        See :func:`flwr_causal.core.circuits.class_first.power_sums.choose_powers`.
    diagonals, pooled : tuple of float
        Shrinkages, from 0 to 1; see :class:`Shrinkage`.
    dof : tuple of float
        Degrees of freedom, above 2; infinite is a Gaussian.
    cuts : tuple of float
        Distances ``1 - |correlation|`` at which blocks are cut; see :func:`correlation_blocks`.
    head : bool
        Whether a logistic head gives the posterior of the class, for about eight exchanges more;
        see :mod:`flwr_causal.core.circuits.logistic_head`. Without, it is that of the blocks.
    head_penalty : float
        See :class:`flwr_causal.core.circuits.logistic_head.HeadState`.
    threshold : bool
        Whether the probability from which on the second of two classes is predicted is chosen by
        the macro F1 of training rows, for one exchange more. Without, it is .5.

    Notes
    -----
    On ten splits of the breast cancer data (30 columns, 450 rows) these grids led to powers between
    -3.5 and 1, pooled shares of .1 and .2, 10 or 15 degrees of freedom (5 to 15 of blocks) and 9 to
    11 blocks.
    """

    powers: tuple[float, ...] = tuple((np.arange(-32, 9) / 4).tolist())
    reach: float = 4.0
    power_penalty: float = 0.0
    diagonals: tuple[float, ...] = (0.0, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.06, 0.1, 0.2, 0.4, 1.0)
    pooled: tuple[float, ...] = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
    dof: tuple[float, ...] = (np.inf, 60.0, 30.0, 20.0, 15.0, 10.0, 7.0, 5.0)
    cuts: tuple[float, ...] = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)
    head: bool = False
    head_penalty: float = PENALTY
    threshold: bool = False

    def __post_init__(self) -> None:
        for name in ("powers", "diagonals", "pooled", "dof", "cuts"):
            given = tuple(float(one) for one in getattr(self, name))
            if not given or any(np.isnan(one) for one in given):
                raise ConfigError(f"{name} needs at least one number, got {given}")
            object.__setattr__(self, name, given)
        for name in ("diagonals", "pooled"):
            if not all(0.0 <= share <= 1.0 for share in getattr(self, name)):
                raise ConfigError(f"{name} must be from 0 to 1, got {getattr(self, name)}")
        if min(self.dof) <= 2.0:
            raise ConfigError(f"degrees of freedom must be above 2, got {min(self.dof)}")


@dataclass(frozen=True, eq=False)
class State:
    """What the server knows so far; None where that is yet to come.

    Parameters
    ----------
    plan : Plan
    options : Options
    origin : ndarray of float, shape (d,)
        About which the first sums are taken.
    counts : ndarray of float, shape (C,), optional
        Rows of each class.
    coordinates : Coordinates, optional
        Its powers are 1 until they have been chosen.
    offsets : ndarray of float, shape (C, d), optional
        Means of the classes in the coordinates.
    powers_chosen : bool
    folds : ClassSums, optional
        Of each fold.
    tables : ndarray of float, shape (folds, C, states), optional
        Rows of each fold, class and state, the categories side by side.
    shrinkage : Shrinkage, optional
    moments : ClassMoments, optional
        Of all folds, in the coordinates.
    choice : Choice, optional
    head : HeadState, optional
    threshold : float, optional
        Probability of the second class.
    """

    plan: Plan
    options: Options
    origin: FloatArray
    counts: FloatArray | None = None
    coordinates: Coordinates | None = None
    offsets: FloatArray | None = None
    powers_chosen: bool = False
    folds: ClassSums | None = None
    tables: FloatArray | None = None
    shrinkage: Shrinkage | None = None
    moments: ClassMoments | None = None
    choice: Choice | None = None
    head: HeadState | None = None
    threshold: float | None = None


def init(plan: Plan, options: Options | None = None) -> State:
    """Return the state before the first exchange.

    Raises
    ------
    ConfigError
        If a head is asked for without a target, or a threshold for other than two classes.
    """
    chosen = options or Options()
    if chosen.head and plan.target is None:
        raise ConfigError("a head gives the probability of a class: name a target, or leave it out")
    if chosen.threshold and plan.num_classes != 2:
        raise ConfigError(
            f"a threshold is for two classes, there are {plan.num_classes}: leave it out"
        )
    return State(plan, chosen, np.zeros(len(plan.columns)))


def phase_of(state: State) -> str | None:
    """Return which sums are due; None when all is known."""
    if state.coordinates is None:
        return "scale"
    if not state.powers_chosen:
        return "powers"
    if state.folds is None:
        return "moments"
    if state.choice is None:
        return "held-out"
    if state.head is not None and not state.head.done:
        return "head"
    two_classes = state.counts is not None and (state.counts > 0).sum() == 2
    if state.options.threshold and two_classes and state.threshold is None:
        return "threshold"
    return None


def request(state: State) -> Request | None:
    """Return what to ask of the parties next; None when all is known."""
    phase = phase_of(state)
    if phase is None:
        return None
    if phase == "scale":
        return Request(phase, {"origin": state.origin})
    assert state.coordinates is not None
    if phase == "powers":
        wanted = ("scale", "middle", "reach")
        arrays = {name: getattr(state.coordinates, name) for name in wanted}
        return Request(phase, arrays | {"grid": np.array(state.options.powers)})
    arrays = dict(state.coordinates._asdict())
    if phase == "moments":
        assert state.offsets is not None
        return Request(phase, arrays | {"offsets": state.offsets})
    if phase == "held-out":
        return Request(phase, arrays | _held_out(state))
    return Request(phase, arrays | _parts(state) | head_arrays(posterior_head(state)))


_STEPS = {
    "scale": scaled,
    "powers": with_powers,
    "moments": with_moments,
    "held-out": with_choice,
    "head": with_head,
    "threshold": with_threshold,
}


def step(state: State, summed: Mapping[str, FloatArray]) -> State:
    """Return the state after an exchange.

    Parameters
    ----------
    state : State
    summed : mapping of str to arrays
        The parties' replies to ``request(state)``, added up.

    Raises
    ------
    DataError
        If there are too few rows, or a column is constant.
    """
    phase = phase_of(state)
    return state if phase is None else _STEPS[phase](state, summed)


def train(parties: Sequence[FloatArray], plan: Plan, options: Options | None = None) -> State:
    """Exchange until all is known, with parties in one process.

    Parameters
    ----------
    parties : sequence of arrays
        Values of each.
    """
    start = init(plan, options)
    return exchanged(start, parties, plan, request=request, sums=sums, step=step)


def posterior_head(state: State) -> Head:
    """Return the head of the posterior: the trained one, or the product of the blocks."""
    assert state.choice is not None
    assert state.counts is not None
    if state.head is not None:
        return state.head.head
    shares = state.counts / state.counts.sum()
    return product_head(state.choice.blocks, len(state.plan.categories), shares)


def _held_out(state: State) -> Arrays:
    assert state.folds is not None
    assert state.counts is not None
    return _without_each(state) | {
        "weights": state.counts / state.counts.sum(),
        "blocks": cut_blocks(state.folds.without_each(), state.options.cuts).astype(np.float64),
        "tails": tails_of(state.options.dof),
    }


def _parts(state: State) -> Arrays:
    assert state.choice is not None
    return _without_each(state) | {
        "blocks": state.choice.blocks.astype(np.float64),
        "tails": tails_of([state.choice.block_dof]),
    }


def _without_each(state: State) -> Arrays:
    """Return moments and tables (folds, ...) of all folds but one."""
    assert state.folds is not None
    assert state.tables is not None
    assert state.shrinkage is not None
    moments = shrunk_moments(state.folds.without_each(), state.shrinkage)
    others = state.tables.sum(axis=0) - state.tables
    return {
        "means": moments.means,
        "covariances": packed(moments.covariances),
        "tables": probabilities(others, np.array(state.plan.sizes, dtype=np.int64)),
    }
