"""A mixture of trees by sums over rows, and then what tells the class: a head, a threshold.

The exchanges of :mod:`flwr_causal.core.circuits.trees.training` come first. A head is trained
after them (:mod:`flwr_causal.core.circuits.trees.head`), with a threshold from rows that its
features were made without. Without a head the threshold is that of the mixture itself, from one
exchange more (``odds``): rows by class and log odds. These are training rows, whose odds lie
farther apart than those of other rows; the threshold needs their order. Macro F1 on held-out rows
rises from .612 to .675 on Credit, from .800 to .808 on Income (seed 0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.decision_threshold import best_threshold, log_odds_counts
from flwr_causal.core.circuits.exchanges import Request
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.trees import head as tree_head
from flwr_causal.core.circuits.trees import model as chow_liu_model
from flwr_causal.core.circuits.trees import sums as chow_liu_sums
from flwr_causal.core.circuits.trees import training as chow_liu_mixture
from flwr_causal.core.circuits.trees.mixtures import from_arrays, to_arrays
from flwr_causal.core.circuits.trees.rows import classes_of, codes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.trees.rows import Plan

FloatArray = NDArray[np.float64]
Arrays = dict[str, FloatArray]

OF_THE_MIXTURE = ("pairs", "products", "trees")


@dataclass(frozen=True, eq=False)
class State:
    """What the server knows so far.

    Parameters
    ----------
    mixture : chow_liu_mixture.State
    head : tree_head.State, optional
        None: there will be no head.
    odds : bool
        Whether a threshold of the mixture itself is asked for.
    threshold : float, optional
        That of the mixture, once it is known.
    """

    mixture: chow_liu_mixture.State
    head: tree_head.State | None = None
    odds: bool = False
    threshold: float | None = None


def init(
    plan: Plan,
    options: chow_liu_mixture.Options | None = None,
    *,
    head: bool = False,
    threshold: bool = False,
) -> State:
    """Return the state before the first exchange.

    Parameters
    ----------
    plan : Plan
    options : chow_liu_mixture.Options, optional
    head, threshold : bool
        Whether there are to be a head and, of two classes, a threshold. Without a target there are
        none.
    """
    told = plan.target is not None
    after = None
    if head and told:
        after = tree_head.init(plan, tree_head.Options(threshold=threshold))
    odds = threshold and told and plan.num_classes == 2 and after is None
    return State(chow_liu_mixture.init(plan, options), after, odds)


def request(state: State) -> Request | None:
    """Return what to ask of the parties next; None when all is known."""
    asked = chow_liu_mixture.request(state.mixture)
    if asked is not None:
        return asked
    if state.head is not None:
        return tree_head.request(state.head)
    rows = state.mixture.rows
    if not state.odds or state.threshold is not None or rows is None or (rows == 0).any():
        return None
    # Rows by class and log odds under the mixtures that are sent.
    return Request("odds", {"rows": rows} | to_arrays(state.mixture.mixtures))


def sums(values: FloatArray, plan: Plan, request: Request) -> Arrays:
    """Answer a request from a party's rows; see the modules of each phase."""
    if request.phase in OF_THE_MIXTURE:
        return chow_liu_sums.sums(values, plan, request)
    if request.phase != "odds":
        return tree_head.sums(values, plan, request)
    asked = dict(request.arrays)
    log_shares = np.log(asked.pop("rows"))
    codes = codes_of(values, plan)
    mixtures = from_arrays(plan.num_states, asked)
    joint = np.stack([one.log_likelihood(codes) for one in mixtures], axis=1) + log_shares
    return {"log_odds": log_odds_counts(joint, classes_of(values, plan))}


def step(state: State, summed: Mapping[str, FloatArray]) -> State:
    """Return the state after an exchange; ``summed`` are the replies, added up."""
    if not state.mixture.complete:
        return replace(state, mixture=chow_liu_mixture.step(state.mixture, summed))
    if state.head is not None:
        return replace(state, head=tree_head.step(state.head, summed))
    return replace(state, threshold=best_threshold(summed["log_odds"])[0])


def fitted(state: State, domain: Domain) -> CircuitModel:
    """Return what a training that is complete ends in; a ConfigError if an exchange is missing."""
    density = chow_liu_model.fitted(state.mixture, domain)
    target = state.mixture.plan.target
    name = None if target is None else domain.names[target]
    if state.head is None:
        return CircuitModel(density, name, threshold=state.threshold)
    return CircuitModel(density, name, tree_head.fitted(state.head, domain), state.head.threshold)
