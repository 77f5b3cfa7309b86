"""The plan of a run of FedPC: who holds which columns, and what is trained over them.

`plan_of` derives it from the options and from what the parties have agreed on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.by_name import BY_SUMS, learner_class, training_of
from flwr_causal.core.circuits.learners.class_conditional.joined import labelled_numbers
from flwr_causal.core.circuits.learners.trees.triple_tables import MOST_MARKS
from flwr_causal.data.check.report import NUMBERS
from flwr_causal.errors import ConfigError, DataError

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
        Name of the learner (:mod:`flwr_causal.core.circuits.learners.by_name`).
    weights : str
        In one pass, how combinations of the parties' clusters are weighted; else empty.
    countable : bool
        Whether parties with different columns can count states together (``training="triples"``),
        and options allow it.
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
    def class_of_some(self) -> bool:
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
    all_know_class = not target or holdings.all_hold(target)
    # Where only some parties know the class, rows are matched by ids, and masked products of
    # classes and numbers are summed. As with counts of states, components and heads do not fit.
    unfitting = [one for one in _unfitting(options) if not one.startswith("learner=")]
    matched = holdings.ids and not unfitting
    differing = learner in BY_SUMS and learner_class(learner).columns_may_differ
    possible = learner in BY_SUMS and (same or (differing and (all_know_class or matched)))
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
    """Return why ``training="auto"`` takes counts; "" where the option names the training."""
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
    all_know_class = bool(target) and holdings.all_hold(target)
    if options.weights != "auto":
        if options.weights == "classes" and not all_know_class:
            raise ConfigError(
                "weights='classes' needs a target that all parties hold: take 'aligned' or 'counts'"
            )
        if options.weights in ALIGNED_WEIGHTS and not holdings.ids:
            raise ConfigError(
                f"weights='{options.weights}' needs rows that are aligned by ids: name the column "
                "of ids with row_id, or take weights='counts'"
            )
        return options.weights
    if all_know_class:
        return "classes"
    if not holdings.ids:
        return "counts"
    return "aligned" if target else "em"


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
