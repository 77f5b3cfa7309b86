"""A logistic head on states and pairs of states of categories, trained by sums over rows.

Its features are log probabilities of states and pairs under each class
(:mod:`flwr_causal.core.circuits.trees.features`). A party answers:

- fold-pairs: counts of pairs of states for each fold of its rows and class, once;
- head: loss, gradient and Hessian of the head, about seven times. A row's features are made from
  the counts of the other folds;
- threshold: of two classes, rows by class and log odds, once: the threshold of the best macro F1.

`request` and `step` are pure; a strategy carries what they exchange.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.class_first.head import head_arrays, head_of
from flwr_causal.core.circuits.decision_threshold import best_threshold, log_odds_counts
from flwr_causal.core.circuits.exchanges import Request, exchanged
from flwr_causal.core.circuits.head_posterior import HeadPosterior
from flwr_causal.core.circuits.logistic_head import (
    Head,
    HeadState,
    head_step,
    head_sums,
    init_head,
)
from flwr_causal.core.circuits.trees.features import (
    FoldedRows,
    PairFeatures,
    chosen_pairs,
    from_arrays,
    log_cells,
    to_arrays,
)
from flwr_causal.core.circuits.trees.pair_sums import Layout
from flwr_causal.core.circuits.trees.sums import pair_sums_of
from flwr_causal.errors import ConfigError, DataError, FederationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.trees.rows import Plan

FloatArray = NDArray[np.float64]
Arrays = dict[str, FloatArray]

NUM_FOLDS = 4


@dataclass(frozen=True)
class Options:
    """How the head is trained.

    Parameters
    ----------
    strength : float, default 0.03
        Rows of the pooled table that are added to the counts of each class, as a share of all rows.
        On Income and Credit AUROC rises by .001 to .002 up to there from a few rows.
    penalty : float, default 3
        Of the weights; see :class:`~flwr_causal.core.circuits.logistic_head.HeadState`.
    most_pairs : int, default 300
        Pairs of variables that have a feature: a Newton step takes the cube of their number.
    threshold : bool, default True
        Whether the threshold of two classes is asked for.
    """

    strength: float = 0.03
    penalty: float = 3.0
    most_pairs: int = 300
    threshold: bool = True

    def __post_init__(self) -> None:
        if not self.strength > 0 or self.most_pairs < 0:
            raise ConfigError(
                "strength must be above 0 and most_pairs 0 or more, got "
                f"{self.strength} and {self.most_pairs}"
            )


@dataclass(frozen=True, eq=False)
class State:
    """What the server knows so far.

    Parameters
    ----------
    plan : Plan
        With a target.
    options : Options
    by_fold : tuple of PairFeatures
        Made without each fold; empty before the first exchange.
    final : PairFeatures, optional
        Made of all rows.
    head : HeadState, optional
    threshold : float, optional
        Probability from which on the second of two classes is predicted.
    """

    plan: Plan
    options: Options
    by_fold: tuple[PairFeatures, ...] = ()
    final: PairFeatures | None = None
    head: HeadState | None = None
    threshold: float | None = None


def init(plan: Plan, options: Options | None = None) -> State:
    """Return the state before the first exchange.

    Raises
    ------
    ConfigError
        If there is no target.
    """
    if plan.target is None:
        raise ConfigError("a head needs a target: name the column of the class")
    return State(plan, options or Options())


def request(state: State) -> Request | None:
    """Return what to ask of the parties next; None when all is known."""
    if state.head is None:
        states = np.array(state.plan.num_states, dtype=np.float64)
        return Request("fold-pairs", {"num_states": states})
    if state.head.done and (state.threshold is not None or not _needs_threshold(state)):
        return None
    arrays = to_arrays(state.by_fold) | head_arrays(state.head.head)
    return Request("threshold" if state.head.done else "head", arrays)


def sums(values: FloatArray, plan: Plan, request: Request) -> Arrays:
    """Answer a request from a party's rows.

    Parameters
    ----------
    values : ndarray of float, shape (n, number of variables)
        As ``Domain.encode`` makes them; NaN is a missing value.
    plan : Plan
    request : Request

    Raises
    ------
    DataError
        If a value is none of its variable's states, or the target is missing.
    FederationError
        If the phase is unknown.
    """
    rows = FoldedRows.of(values, plan, NUM_FOLDS)
    if request.phase == "fold-pairs":
        return {"counts": pair_sums_of(rows.groups(NUM_FOLDS, plan.num_classes), plan)}
    if request.phase not in ("head", "threshold"):
        raise FederationError(f"the server asks for the unknown phase {request.phase!r}")
    features = rows.features(from_arrays(plan, request.arrays))
    head = head_of(request.arrays)
    if request.phase == "head":
        return head_sums(features, rows.classes, head)
    return {"log_odds": log_odds_counts(head.log_posterior(features), rows.classes)}


def step(state: State, summed: Mapping[str, FloatArray]) -> State:
    """Return the state after an exchange.

    Parameters
    ----------
    state : State
    summed : mapping of str to arrays
        The parties' replies to ``request(state)``, added up.
    """
    if state.head is None:
        return _with_features(state, summed["counts"])
    if not state.head.done:
        return replace(state, head=head_step(state.head, summed))
    return replace(state, threshold=best_threshold(summed["log_odds"])[0])


def train(parties: Sequence[FloatArray], plan: Plan, options: Options | None = None) -> State:
    """Exchange until all is known, with parties in one process.

    Parameters
    ----------
    parties : sequence of arrays
        Values of each.
    """
    start = init(plan, options)
    return exchanged(start, parties, plan, request=request, sums=sums, step=step)


def fitted(state: State, domain: Domain) -> HeadPosterior:
    """Return the posterior of a training that is complete; ``state.threshold`` goes with it.

    Raises
    ------
    ConfigError
        If an exchange is missing.
    """
    if request(state) is not None or state.final is None or state.head is None:
        raise ConfigError("the training is not complete: there is a request to answer yet")
    assert state.plan.target is not None
    head, target = state.head.head, domain.names[state.plan.target]
    weighted = Head(state.final.leaf_weights(head.weights), head.biases)
    return HeadPosterior(domain, target, state.final.leaves(), weighted)


def _with_features(state: State, sent: FloatArray) -> State:
    """Take the counts of pairs of each fold and class in."""
    plan, options = state.plan, state.options
    layout = Layout(plan.num_states, complete=False)
    shape = (NUM_FOLDS, plan.num_classes, layout.total, layout.total)
    counts = np.stack([layout.pair_counts(one) for one in sent]).reshape(shape)
    total = counts.sum(axis=0)
    rows = sent[:, 0].reshape(NUM_FOLDS, plan.num_classes).sum(axis=0)
    if rows.sum() < 1:
        raise DataError(f"the parties have no {plan.min_rows} rows that count: nothing to learn")
    strength = options.strength * rows.sum()
    pairs = chosen_pairs(layout, total, options.most_pairs)
    by_fold, final = (
        [PairFeatures(plan, log_cells(layout, one, strength), pairs) for one in some]
        for some in (total - counts, [total])
    )
    head = init_head(rows, len(plan.columns) + len(pairs), options.penalty)
    return replace(state, by_fold=tuple(by_fold), final=final[0], head=head)


def _needs_threshold(state: State) -> bool:
    """Whether it is asked for, and there are two classes, both with rows."""
    assert state.head is not None
    biases = state.head.head.biases
    return state.options.threshold and len(biases) == 2 and bool(np.isfinite(biases).all())
