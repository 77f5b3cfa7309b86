"""The parts of FedPC's training and learner, by its options and what the parties make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.core.circuits.learners.options import (
    EinsumOptions,
    EinsumSize,
    HeadOptions,
    HeadSwitch,
    SpnOptions,
    TreesOptions,
)
from flwr_causal.strategies.fedpc.options import ClusteredPass, CountedPass, OnePass, WeightedPass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flwr_causal.core.parts import Part
    from flwr_causal.strategies.fedpc.options import FedPCOptions
    from flwr_causal.strategies.fedpc.plan import CircuitPlan


def parts_of_training(options: FedPCOptions, plan: CircuitPlan | None) -> tuple[type[Part], ...]:
    """Return the parts of the training and the learner.

    Parameters
    ----------
    options : FedPCOptions
    plan : CircuitPlan, optional
        What is trained. Before the parties have agreed all may be that the options leave open.
    """
    return (*_passes(options, plan), *_learners(options, plan))


def _passes(options: FedPCOptions, plan: CircuitPlan | None) -> tuple[type[Part], ...]:
    """Return the part of a training in one pass."""
    if options.training not in ("auto", "one-pass") or (plan and plan.training != "one-pass"):
        return ()
    if plan and not plan.differing:
        return (WeightedPass if options.weights == "counts" else OnePass,)
    counted = options.weights in ("auto", "counts") and (not plan or plan.weights == "counts")
    return (CountedPass if counted else ClusteredPass,)


def _learners(options: FedPCOptions, plan: CircuitPlan | None) -> Iterator[type[Part]]:
    """Yield the parts of the learner."""
    one_pass = options.training == "one-pass"
    if options.learner == "einsum":
        yield EinsumSize if one_pass else EinsumOptions
    if options.learner == "spn":
        yield SpnOptions
    if options.learner in ("auto", "trees", "class-conditional"):
        # Options that counts do not have choose one pass, where the training is left open.
        chosen = plan and options.training == "auto" and plan.differing and plan.training != "sums"
        if not plan or chosen or plan.learner == "trees":
            yield TreesOptions
        summed = not plan or (plan.training == "sums" and plan.target and not plan.differing)
        if not one_pass and (summed or chosen):
            yield HeadOptions
    if options.head is False:
        yield HeadSwitch
