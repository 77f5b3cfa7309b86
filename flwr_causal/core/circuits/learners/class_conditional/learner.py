"""The learner of class-conditional circuits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.core.circuits.learners.class_conditional import pattern
from flwr_causal.core.circuits.learners.class_conditional.steps import (
    ClassConditionalOptions,
    HeldOut,
    LeafMoments,
    LeafScale,
    LeavesChoice,
    LeavesHead,
    LeavesThreshold,
    Powers,
)
from flwr_causal.core.circuits.learners.head import TrainingWithHead
from flwr_causal.core.circuits.learners.training_by_sums import by_name
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassConditional(ClassConditionalOptions, TrainingWithHead):
    """Learner of class-conditional circuits; see `steps` for its exchanges.

    The defaults suit a party of a few rows too, since held-out rows choose the shrinkage.

    Parameters
    ----------
    target : str, optional
        The class, a category. None: there is none, and one leaf over all numbers is learned.
    head, decision, powers, diagonals, pooled, dof, cuts
        See `HeadOptions` and `ClassConditionalOptions`.
    """

    target: str | None = None

    steps: ClassVar = by_name(
        LeafScale,
        Powers,
        LeafMoments,
        HeldOut,
        LeavesHead,
        LeavesChoice,
        LeavesThreshold,
        pattern.PatternScale,
        pattern.PatternPowers,
        pattern.PatternMoments,
        pattern.PatternHeldOut,
    )
    columns_may_differ: ClassVar[bool] = True

    def plan(self, domain: Domain, *, seed: int = 0, min_rows: int = 1) -> TrainingPlan:
        """Return the plan of a domain; its columns beside the target must hold a number."""
        plan = super().plan(domain, seed=seed, min_rows=min_rows)
        if not plan.numbers:
            raise ConfigError(
                "a class-conditional circuit needs a number beside its target, but all columns "
                "have states: learn a circuit of categories, as learn_spn does"
            )
        return plan

    def start(self, plan: TrainingPlan, presence: BoolArray | None = None) -> LeafScale:
        """Return the state before the first exchange."""
        if presence is not None and not np.all(presence):
            return pattern.started(plan, presence)
        d = len(plan.numbers)
        return LeafScale(plan, np.zeros(d), np.ones((1, d), dtype=np.bool_))
