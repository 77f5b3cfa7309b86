"""What a run of FedPC trains: what follows from the options and from who holds which columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.circuits.learners.by_name import BY_SUMS, learner_class, training_of
from flwr_causal.core.circuits.learners.class_conditional.joined import labelled_numbers
from flwr_causal.core.circuits.learners.trees.triple_tables import MOST_MARKS
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.strategies.fedpc.holdings import (
    Holdings,
    domain_of,
    is_continuous,
    with_intervals,
)

if TYPE_CHECKING:
    from typing import Any

    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.fedpc.options import FedPCOptions

#: The fewest values with which a column of numbers is not taken for a category, see `domain_of`.
FEWEST_NUMBERS = {"class-conditional": 0.0, "trees": np.inf}
#: The training by counts of states.
TRIPLES = "triples"
#: By default marks of pairs are as many as masked tables of so many bytes have room for.
MOST_BYTES = 2**28
#: Weights of combinations of clusters that follow from common rows.
ALIGNED_WEIGHTS = ("aligned", "em")


@dataclass(frozen=True, eq=False)
class CircuitPlan:
    """What is trained over which columns.

    Parameters
    ----------
    agreement : Agreement
        Columns and their states.
    holdings : Holdings
        Who holds which of them.
    domain : Domain
        The same as variables of a circuit; numbers that are yet to be cut are numbers.
    target : str or None
    training : {"sums", "triples", "one-pass"}
    learner : str
        What is trained.
    weights : str
        In one pass, how combinations of the parties' clusters are weighted; else empty.
    countable : bool
        Whether parties with different columns can count states, and options allow it.
    pair_marks : int
        How many pairs of states are marked, at most.
    why : str, default ""
        Why ``training="auto"`` takes counts; empty if it does not.
    """

    agreement: Agreement
    holdings: Holdings
    domain: Domain
    target: str | None
    training: Literal["sums", "triples", "one-pass"]
    learner: str
    weights: str
    countable: bool
    pair_marks: int
    why: str = ""

    @property
    def differing(self) -> bool:
        """Whether parties hold different columns."""
        return not self.holdings.presence.all()

    @property
    def class_of_all(self) -> str | None:
        """The target if all parties hold it."""
        return self.target if self.target and self.holdings.all_hold(self.target) else None

    @property
    def lacking(self) -> bool:
        """Whether the training is by sums, and only some parties know the class."""
        known = self.target is None or self.holdings.all_hold(self.target)
        return self.training == "sums" and not known

    @property
    def holders(self) -> list[int]:
        """By column a number for its set of holders, if states can be counted."""
        return self.holdings.alike if self.countable else []

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
    learner = _learner(options, agreement, holdings, target)
    countable = _counts(options, holdings)
    marks = _pair_marks(options, agreement, holdings, target) if countable else 0
    training: Literal["sums", "triples", "one-pass"]
    weights = why = ""
    if _by_sums(options, holdings, learner, target):
        training = "sums"
    elif countable:
        training, learner = "triples", "trees"
        why = why_counts(options, _reason_of_trees(agreement, holdings, target))
    else:
        training, weights = "one-pass", _weights(options, holdings, target)
    fewest = FEWEST_NUMBERS.get(learner, 3)
    domain = domain_of(agreement, target, holdings.missing, fewest=fewest)
    _check_complete(domain, holdings, learner, sums=training == "sums")
    plan = CircuitPlan(
        agreement,
        holdings,
        domain,
        target or None,
        training,
        learner,
        weights,
        countable,
        marks,
        why,
    )
    if options.secure_aggregation and not (training == "sums" and holdings.presence.all()):
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
    lacking = {one.name for one in domain.variables if one.states is None} & set(holdings.lacking)
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
    if not plan.lacking:
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


def _learner(options: FedPCOptions, agreement: Agreement, holdings: Holdings, target: str) -> str:
    if options.learner == "decision-tree" and not target:
        raise ConfigError(
            "learner='decision-tree' needs a target: name it, or take another learner"
        )
    if options.learner == "decision-tree" and not holdings.presence.all():
        raise ConfigError(
            "learner='decision-tree' is for parties that hold the same columns. The paper defines "
            "FC[DT] as the average of trees (section 3.2), and reports results for different "
            "columns (table 6) but neither who knows the class there nor what a product of trees "
            "predicts. Take the columns that all parties have (unshared_columns='drop'), or "
            "another learner"
        )
    if options.learner != "auto":
        return options.learner
    if options.training == TRIPLES:
        return "trees"
    numbers = is_continuous(agreement, target) and not holdings.missing.any()
    return "class-conditional" if numbers and not holdings.sharing else "trees"


def _by_sums(options: FedPCOptions, holdings: Holdings, learner: str, target: str) -> bool:
    """Whether the circuit is trained by sums over rows."""
    if options.training == TRIPLES:
        return bool(holdings.presence.all())
    if options.training == "one-pass":
        return False
    if options.training == "auto" and options.weights != "auto":
        return False
    same = bool(holdings.presence.all())
    labelled = not target or holdings.all_hold(target)
    # Where only some parties know the class, rows are matched by ids. What is multiplied is a class
    # and numbers: as with counts there are no components, and no head.
    unfitting = [one for one in _unfitting(options) if not one.startswith("learner=")]
    matched = holdings.ids and not unfitting
    differing = learner in BY_SUMS and learner_class(learner).columns_may_differ
    possible = learner in BY_SUMS and (same or (differing and (labelled or matched)))
    if options.training == "sums" and not possible:
        if same:
            training_of(learner, target or None, options)
        raise ConfigError(
            "training='sums' over different columns needs numbers, and the target at every party, "
            "or ids of the rows and no components, head, decision or trained: "
            f"here {learner} circuits are trained, and {target or 'no target'!r} is held by "
            f"{', '.join(holdings.holders(target)) if target else 'nobody'}. Take "
            "training='one-pass'."
        )
    return possible


def _counts(options: FedPCOptions, holdings: Holdings) -> bool:
    """Return whether parties with different columns can count states, and may."""
    if holdings.presence.all():
        return False
    if options.training == TRIPLES:
        _check_counts(options, holdings)
        return True
    return options.training == "auto" and holdings.ids and not _unfitting(options)


def _pair_marks(
    options: FedPCOptions, agreement: Agreement, holdings: Holdings, target: str
) -> int:
    """Return the limit of marked pairs of states; by default, as many as fit `MOST_BYTES`."""
    if options.training == TRIPLES:
        return MOST_MARKS
    domain = domain_of(agreement, target, holdings.missing, fewest=FEWEST_NUMBERS["trees"])
    # Numbers are cut later, into as many intervals or fewer.
    numbers = {one.name for one in domain.variables if not one.num_states}
    cuts = dict.fromkeys(numbers, np.arange(1.0, options.num_bins))
    domain = with_intervals(domain, cuts, dict.fromkeys(numbers), (), holdings.lacking)
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
    if holdings.sharing:
        return f"most rows have one value of {', '.join(map(repr, holdings.sharing))}"
    return "of learner='trees'"


def why_counts(options: FedPCOptions, reason: str) -> str:
    """Return why ``training="auto"`` takes counts; "" if it was not asked."""
    return f", chosen because {reason}" if options.training == "auto" else ""


def _check_counts(options: FedPCOptions, holdings: Holdings) -> None:
    """Raise a ConfigError if there are no ids, or options that counts do not fit."""
    if not holdings.ids:
        raise ConfigError(
            "training='triples' needs rows that are matched by ids: give every party's "
            "table a column of ids of its rows, 'row_id' or the one that the option row_id names"
        )
    wrong = _unfitting(options)
    if wrong:
        raise ConfigError(
            "training='triples' over different columns has no mixtures of clusters and no head: "
            f"set {', '.join(wrong)}"
        )


def _unfitting(options: FedPCOptions) -> list[str]:
    """Return the options that do not fit counts of states, with the values that would."""
    wanted = {
        "learner": (options.learner in ("auto", "trees"), "'trees'"),
        "weights": (options.weights == "auto", "'auto'"),
        "components": (options.components in (None, 1), "1"),
        "head": (options.head is not True, "False"),
        "decision": (options.decision == "most-probable", "'most-probable'"),
        "trained": (not options.trained, "''"),
    }
    return [f"{name}={value}" for name, (fits, value) in wanted.items() if not fits]


def _weights(options: FedPCOptions, holdings: Holdings, target: str) -> str:
    """Return how combinations of clusters are weighted."""
    if holdings.presence.all():
        return "counts"
    labelled = bool(target) and holdings.all_hold(target)
    if options.weights != "auto":
        if options.weights == "classes" and not labelled:
            raise ConfigError(
                "weights='classes' needs a target that all parties hold: take 'aligned' or 'counts'"
            )
        if options.weights in ALIGNED_WEIGHTS and not holdings.ids:
            raise ConfigError(
                f"weights='{options.weights}' needs rows that are aligned by ids: name the column "
                "of ids with row_id, or take weights='counts'"
            )
        return options.weights
    if labelled:
        return "classes"
    if not holdings.ids:
        return "counts"
    return "aligned" if target else "em"
