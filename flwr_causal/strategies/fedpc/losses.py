"""What the user should know of dependence that a training of FedPC loses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.words import some

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flwr_causal.core.circuits.composed.dependence import Copies, Dependence
    from flwr_causal.strategies.fedpc.holdings import Holdings
    from flwr_causal.strategies.fedpc.plan import CircuitPlan


@dataclass(eq=False)
class Remarks:
    """Warnings and numbers of a training, beside its circuit.

    Parameters
    ----------
    warnings : list of str
        Of lost dependence and the like; added to.
    num_rows : int or None
        How many different rows the parties have together, by their ids; None before ids have been
        compared.
    """

    warnings: list[str] = field(default_factory=list)
    num_rows: int | None = None


def not_alike(holdings: Holdings, copies: Copies) -> str:
    """Return the warning that rows with the same id differ."""
    one, other = holdings.parties[copies.first], holdings.parties[copies.second]
    return (
        f"column {holdings.names[copies.column]!r} has other values at {other} than at {one} in "
        f"rows with the same id (a correlation of {copies.correlation:.2f}): the ids may not mean "
        "the same rows, or the columns not the same quantity. Check both at these parties"
    )


def lost_by_training(plan: CircuitPlan, found: Dependence) -> list[str]:
    """Return warnings of measured dependence that the training cannot express."""
    if not found.enough and not plan.class_of_some:
        few = "the parties have too few rows in common to measure how their columns depend"
        return [lost(plan, few)]
    holdings = plan.holdings
    given = f"given {plan.target!r} " if plan.target else ""
    warnings = []
    if found.notable and plan.training != "sums":
        one, other, correlation = found.strongest
        warnings.append(
            f"{given}the mutual information of columns of different parties is {found.nats:.2f} "
            f"nats a row, most of all between {holdings.named(one)} and {holdings.named(other)} "
            f"with a correlation of {correlation:.2f}, and weights='{plan.weights}' loses that: "
            "training='triples' counts it, weights='em' keeps a part of it"
        )
    if found.nonlinear:
        one, other, correlation = found.strongest_nonlinear
        loses = "training='sums'" if plan.training == "sums" else f"weights='{plan.weights}'"
        warnings.append(
            f"{given}the dependence between {holdings.named(one)} and {holdings.named(other)} is "
            f"nonlinear (a correlation of {abs(correlation):.2f} between polynomials of "
            f"their ranks), and {loses} loses that: training='triples' counts it, "
            "training='one-pass' with weights='em' keeps a part of it"
        )
    return warnings


def lost_by_leaves(plan: CircuitPlan, categories: Iterable[str]) -> list[str]:
    """Warn of categories that a class-conditional circuit takes to be independent of the rest."""
    named = some(map(repr, categories))
    if plan.learner != "class-conditional" or not named:
        return []
    given = f", given {plan.target!r}" if plan.target else ""
    return [
        f"learner='class-conditional' takes columns of categories to be independent of all others"
        f"{given}: {named}. learner='trees', which 'auto' takes for such tables, does not"
    ]


def lost_by_counts(plan: CircuitPlan, *, asked: bool) -> list[str]:
    """Return warnings of what combinations by numbers of rows alone cannot express.

    ``asked``: whether the option ``weights`` is "counts".
    """
    found: list[str] = []
    holdings = plan.holdings
    if asked and holdings.apart.any():
        found.append(
            "weights='counts' combines clusters of different parties at random: the dependence "
            f"between their columns is lost ({holdings.columns_apart()}). training='sums' or "
            "'triples', or another value of weights, keeps it or more of it"
        )
    if plan.target and len(holdings.holders(plan.target)) > 1 and not holdings.presence.all():
        held = holdings.presence.T
        known = held[holdings.names.index(plan.target)]
        beside = [
            repr(name)
            for name, other in zip(holdings.names, held, strict=True)
            if (other == known).all() and name != plan.target
        ]
        seen = f"from {', '.join(beside)} alone" if beside else "as the most frequent one, always"
        found.append(
            f"weights='counts' makes {plan.target!r}, which several parties hold, independent of "
            f"columns that not the same parties hold: the class is predicted {seen}. Take "
            "training='sums', weights='classes' where all parties hold the class, or "
            "weights='em' with ids"
        )
    return found


def lost_by_groups(plan: CircuitPlan) -> list[str]:
    """Warn of dependence that a party has seen, and that weights by numbers of rows do not use.

    Columns that the same parties hold make a group; by numbers of rows, of all or of each class,
    groups are independent, or independent given the class.
    """
    holdings = plan.holdings
    pairs = holdings.partly_together
    if plan.target:
        place = holdings.names.index(plan.target)
        pairs[place] = pairs[:, place] = False
    if not pairs.any():
        return []
    one, other = (int(k) for k in np.argwhere(pairs)[0])
    both = holdings.presence[:, [one, other]].all(axis=1)
    party = holdings.parties[int(np.argmax(both))]
    given = f", given {plan.target!r}" if plan.weights == "classes" else ""
    return [
        f"weights='{plan.weights}' takes columns that not the same parties hold to be "
        f"independent{given}, also those that a party holds together, as {party} does "
        f"{holdings.names[one]!r} and {holdings.names[other]!r}. Where rows have ids (row_id), "
        "training='triples' counts them together and weights='em' keeps a part of the dependence; "
        "training='sums' keeps it in columns of numbers"
    ]


def lost(plan: CircuitPlan, problem: str) -> str:
    """Return the warning that nothing is known of the dependence between some columns."""
    given = []
    if plan.target is not None and plan.holdings.all_hold(plan.target):
        given.append(repr(plan.target))
    shared = plan.holdings.presence.sum(axis=0) > 1
    others = (shared[j] for j, name in enumerate(plan.holdings.names) if name != plan.target)
    if plan.training == "sums" and any(others):
        given.append("the columns that parties share")
    condition = f" given {' and '.join(given)}" if given else ""
    return (
        f"no party holds columns of different parties together: {plan.holdings.columns_apart()}. "
        f"The dependence between them{condition} is lost, they are taken to be independent: "
        f"{problem}"
    )
