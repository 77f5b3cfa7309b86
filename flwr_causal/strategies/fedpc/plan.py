"""The plan of a run of FedPC: what is trained over which variables.

`plan_of` derives it from the options, from who holds which columns (`holdings`), and from what the
parties have agreed on; `choices` has the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.by_name import BY_SUMS, training_of
from flwr_causal.core.circuits.learners.class_conditional.joined import labelled_numbers
from flwr_causal.core.circuits.learners.trees.triple_tables import MOST_MARKS
from flwr_causal.data.check.report import NUMBERS
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.strategies.fedpc.choices import (
    Facts,
    learner_of_tables,
    training_of_tables,
    weights_of_tables,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.fedpc.holdings import Holdings
    from flwr_causal.strategies.fedpc.options import FedPCOptions

#: The fewest values with which a column of numbers is not taken for a category, see `domain_of`.
FEWEST_NUMBERS = {"class-conditional": 0.0, "trees": np.inf}
#: By default marks of pairs are as many as masked tables of so many bytes have room for.
MOST_BYTES = 2**28


@dataclass(frozen=True, eq=False)
class CircuitPlan:
    """What is trained over which columns.

    Parameters
    ----------
    agreement : Agreement
        Columns and their states.
    facts : Facts
        Who holds which of them, and what else the choices depend on.
    domain : Domain
        The same as variables of a circuit; numbers that are yet to be cut are numbers.
    training : {"sums", "triples", "one-pass"}
    learner : str
        Name of the learner (:mod:`flwr_causal.core.circuits.learners.by_name`).
    weights : str
        In one pass, how combinations of the parties' clusters are weighted; else empty.
    pair_marks : int
        How many pairs of states are marked, at most.
    why : str, default ""
        Why ``training="auto"`` takes counts; empty if it does not.
    """

    agreement: Agreement
    facts: Facts
    domain: Domain
    training: str
    learner: str
    weights: str
    pair_marks: int
    why: str = ""

    @property
    def holdings(self) -> Holdings:
        """Who holds which columns."""
        return self.facts.holdings

    @property
    def target(self) -> str | None:
        """The class, None without one."""
        return self.facts.target or None

    @property
    def countable(self) -> bool:
        """Whether parties with different columns can count states, and options allow it."""
        return self.facts.countable

    @property
    def differing(self) -> bool:
        """Whether parties hold different columns."""
        return not self.holdings.presence.all()

    @property
    def class_of_all(self) -> str | None:
        """The target if all parties hold it."""
        return self.target if self.target and self.holdings.all_hold(self.target) else None

    @property
    def class_of_some(self) -> bool:
        """Whether the training is by sums, and only some parties know the class."""
        known = self.target is None or self.holdings.all_hold(self.target)
        return self.training == "sums" and not known

    @property
    def holders(self) -> list[int]:
        """By column a number for its set of holders, if states can be counted."""
        return self.holdings.holder_sets if self.countable else []

    @property
    def present(self) -> dict[str, Any]:
        """By party, how many of its rows have a value of each column that is to be cut."""
        columns = [self.agreement.names.index(name) for name in self.agreement.continuous]
        counts = self.holdings.present[:, columns]
        return dict(zip(self.holdings.parties, np.asarray(counts), strict=True))

    @property
    def summary(self) -> str:
        """What is trained, in words."""
        how = {
            "sums": "by sums",
            "triples": f"by counts of triples{self.why}",
            "one-pass": f"in one pass, weights by {self.weights}",
        }
        return f"{self.holdings.setting}, {self.learner} circuits {how[self.training]}"


def plan_of(
    options: FedPCOptions, agreement: Agreement, holdings: Holdings, target: str
) -> CircuitPlan:
    """Return the plan of the training.

    Raises
    ------
    ConfigError
        If options do not fit together, or not these tables.
    DataError
        If a party has too few rows for one pass.
    """
    numbers = is_continuous(agreement, target) and not holdings.missing.any()
    facts = Facts(options, holdings, target, numbers)
    facts = replace(facts, learner=learner_of_tables(facts))
    training = training_of_tables(facts)
    learner, weights, why = facts.learner, "", ""
    if training == "triples":
        learner, why = "trees", why_counts(options, _reason_of_trees(agreement, holdings, target))
    if training == "one-pass":
        weights = weights_of_tables(facts)
    domain = domain_of(agreement, target, holdings.missing, fewest=FEWEST_NUMBERS.get(learner, 3))
    _check_complete(domain, holdings, learner, sums=training == "sums")
    marks = _pair_marks(options, agreement, holdings, target) if facts.countable else 0
    plan = CircuitPlan(agreement, facts, domain, training, learner, weights, marks, why)
    if options.secure_aggregation and not (training == "sums" and facts.same):
        raise ConfigError(
            "The option 'secure_aggregation' is for parties that hold the same columns, and for "
            f"learners that are trained by sums, {', '.join(sorted(BY_SUMS))}: here "
            f"{learner} circuits would be trained. Take another learner, use the columns that all "
            "parties have (unshared_columns='drop'), or run without secure_aggregation."
        )
    if training == "one-pass":
        _check_rows(agreement, options.minimum_count)
    return plan


def _check_complete(domain: Domain, holdings: Holdings, learner: str, *, sums: bool) -> None:
    """Raise a ConfigError if numbers are missing that the learner needs."""
    numbers = {one.name for one in domain.variables if one.states is None}
    lacking = numbers & set(holdings.incomplete)
    if lacking and (learner == "decision-tree" or (sums and learner == "class-conditional")):
        raise ConfigError(
            f"missing_values='keep' with learner={learner!r}: it needs rows without missing "
            f"numbers, and {', '.join(name for name in holdings.names if name in lacking)} have "
            "some. Take learner='trees', or leave these rows out (missing_values='drop')."
        )


def plan_of_trees(options: FedPCOptions, domain: Domain, within: str | None) -> TrainingPlan:
    """Return the plan of a training of trees, within classes or not."""
    training = training_of("trees", within, options)
    return training.plan(domain, seed=options.seed, min_rows=options.minimum_count)


def plan_of_classes(options: FedPCOptions, plan: CircuitPlan) -> TrainingPlan:
    """Return the plan of a training of class-conditional circuits."""
    training = training_of("class-conditional", plan.target, options)
    return training.plan(plan.domain, seed=options.seed, min_rows=options.minimum_count)


def labelled(options: FedPCOptions, plan: CircuitPlan) -> list[int]:
    """Return the labelled numbers, if products of numbers and classes are asked for."""
    if not plan.class_of_some:
        return []
    return labelled_numbers(plan_of_classes(options, plan), plan.holdings.presence)


def _check_rows(agreement: Agreement, minimum_count: int) -> None:
    """Raise a DataError if a party has too few rows for a circuit of its own."""
    few = {party: rows for party, rows in agreement.rows.items() if rows < minimum_count}
    if few:
        listed = ", ".join(f"{party!r} has {rows}" for party, rows in few.items())
        raise DataError(
            f"In one pass every party trains a circuit of {minimum_count} rows or more "
            f"(minimum_count): {listed}. Add rows, or leave these parties out."
        )


def _pair_marks(
    options: FedPCOptions, agreement: Agreement, holdings: Holdings, target: str
) -> int:
    """Return the limit of marked pairs of states; by default, as many as fit `MOST_BYTES`."""
    if options.training == "triples":
        return MOST_MARKS
    domain = domain_of(agreement, target, holdings.missing, fewest=FEWEST_NUMBERS["trees"])
    # Numbers are cut later, into as many intervals or fewer.
    numbers = {one.name for one in domain.variables if not one.num_states}
    cuts = dict.fromkeys(numbers, np.arange(1.0, options.num_bins))
    domain = with_intervals(domain, cuts, dict.fromkeys(numbers), (), holdings.incomplete)
    within = target if target and holdings.all_hold(target) else None
    trees = plan_of_trees(options, domain, within)
    single = trees.num_classes * sum(trees.sizes)
    rows = max(*agreement.rows.values(), 1)
    room = MOST_BYTES // (8 * rows * (len(holdings.parties) - 1))
    return min(max(room - single, 0), MOST_MARKS)


def _reason_of_trees(agreement: Agreement, holdings: Holdings, target: str) -> str:
    """Return why trees are learned."""
    if not is_continuous(agreement, target) or holdings.missing.any():
        return "not all columns are numbers"
    if holdings.repeated_columns:
        return f"most rows have one value of {', '.join(map(repr, holdings.repeated_columns))}"
    return "of learner='trees'"


def why_counts(options: FedPCOptions, reason: str) -> str:
    """Return why ``training="auto"`` takes counts; "" where the option names the training."""
    return f", chosen because {reason}" if options.training == "auto" else ""


def check_target(agreement: Agreement, target: str) -> None:
    """Raise a ConfigError if there is no such target, or it has too many values for a class."""
    if target and target not in agreement.names:
        raise ConfigError(
            f"The option 'target' is {target!r}, but the parties agree on "
            f"{', '.join(agreement.names)}: name one of these columns."
        )
    if target in agreement.continuous:
        raise ConfigError(
            f"The option 'target' is {target!r}, but this column has too many values for a class "
            "(numbers that are whole pass for one up to 'bins' of them): name another column, make "
            "text of its numbers, or leave the option out."
        )


def is_continuous(agreement: Agreement, target: str) -> bool:
    """Whether all columns but the target hold numbers, and some of them more than are named."""
    others = [
        kind for name, kind in zip(agreement.names, agreement.kinds, strict=True) if name != target
    ]
    measured = set(agreement.continuous) - {target}
    return bool(measured) and all(kind in NUMBERS for kind in others)


def domain_of(agreement: Agreement, target: str, missing: BoolArray, *, fewest: float) -> Domain:
    """Return the variables of the agreed columns.

    Parameters
    ----------
    agreement : Agreement
        With states.
    target : str
        A category whatever it holds; empty: there is none.
    missing : ndarray of bool, shape (columns,)
        Where values are missing. A missing value is a state of its own of a category.
    fewest : float
        A column of numbers is a category if its values were agreed on as states and are fewer than
        this. The density of a number with two values would have no bound.
    """
    columns = zip(agreement.names, agreement.kinds, agreement.labels, missing, strict=True)
    variables = []
    for name, kind, states, lacks in columns:
        number = not states or (kind in NUMBERS and len(states) >= fewest and name != target)
        labels = None if number else states
        own_state = bool(lacks) and labels is not None and name != target
        variables.append(Variable(name, labels, missing_state=own_state))
    return Domain(tuple(variables))


def with_intervals(
    domain: Domain,
    cuts: Mapping[str, NDArray[np.float64]],
    inside: Mapping[str, tuple[tuple[float, float], ...] | None],
    whole: Iterable[str],
    missing: Iterable[str],
) -> Domain:
    """Return the domain in which some numbers are only seen by their interval.

    Parameters
    ----------
    domain : Domain
    cuts : mapping of str to ndarray
        The ascending cut points of each of these numbers.
    inside : mapping of str to tuple of (float, float), or None
        Mean and standard deviation of the numbers in each interval, where they are known.
    whole : iterable of str
        Those that hold whole numbers only.
    missing : iterable of str
        Variables of which a missing value is an interval of its own.
    """
    lacking, counts = set(missing), set(whole)
    variables = tuple(
        one._replace(
            edges=tuple(cuts[one.name].tolist()),
            inside=inside[one.name],
            whole=one.name in counts,
            missing_state=one.name in lacking,
        )
        if one.name in cuts
        else one
        for one in domain.variables
    )
    return Domain(variables)
