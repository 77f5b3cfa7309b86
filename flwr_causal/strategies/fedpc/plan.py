"""What a run of FedPC trains: one table of three strategies, and the plan that follows from it.

`ROWS` is the table, which docs/fedpc.md shows; `plan_of` applies it to the options, to who holds
which columns (:mod:`flwr_causal.strategies.fedpc.holdings`), and to what the parties have agreed
on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.by_name import BY_SUMS, learner_class, training_of
from flwr_causal.core.circuits.learners.class_conditional.joined import labelled_numbers
from flwr_causal.core.circuits.learners.options import (
    EinsumOptions,
    EinsumSize,
    HeadOptions,
    HeadSwitch,
    SpnOptions,
    TreesOptions,
)
from flwr_causal.core.circuits.learners.trees.triple_tables import MOST_MARKS
from flwr_causal.data.check.report import NUMBERS
from flwr_causal.data.roles import target_in
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.strategies.fedpc.options import ClusteredPass, CountedPass, OnePass, WeightedPass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan
    from flwr_causal.core.parts import Part
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.fedpc.holdings import Holdings
    from flwr_causal.strategies.fedpc.options import FedPCOptions

#: The fewest values with which a column of numbers is not taken for a category, see `domain_of`.
FEWEST_NUMBERS = {"class-conditional": 0.0, "trees": np.inf}
#: By default marks of pairs are as many as masked tables of so many bytes have room for.
MOST_BYTES = 2**28


# -- the table -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts by which a row of the table is chosen.

    Parameters
    ----------
    options : FedPCOptions
    holdings : Holdings
    target : str
        Empty without one.
    numbers : bool
        Whether all columns but the target hold numbers, one at least is continuous, and no value is
        missing.
    """

    options: FedPCOptions
    holdings: Holdings
    target: str
    numbers: bool

    @property
    def learner(self) -> str:
        """The learner: of numbers class-conditional circuits, else trees, if left open."""
        if self.options.learner != "auto":
            return self.options.learner
        densities = self.numbers and not self.holdings.repeated_columns
        return "class-conditional" if densities and not self.asks_for_triples else "trees"

    @property
    def asks_for_triples(self) -> bool:
        """Whether the options name the training by triples."""
        return self.options.training == "triples"

    @property
    def same(self) -> bool:
        """Whether all parties hold the same columns."""
        return bool(self.holdings.presence.all())

    @property
    def class_of_all_or_none(self) -> bool:
        """Whether all parties hold the target, or there is none."""
        return not self.target or self.holdings.all_hold(self.target)

    @property
    def summable(self) -> bool:
        """Whether the learner trains by sums over the rows of these parties."""
        if self.same:
            return self.learner in BY_SUMS
        # Rows that are matched by ids make up for a class that only some parties know.
        matched = self.holdings.ids and not set(unfitting(self.options)) - {"learner"}
        over_columns = self.learner in BY_SUMS and learner_class(self.learner).columns_may_differ
        return bool(over_columns) and (self.class_of_all_or_none or matched)

    @property
    def countable(self) -> bool:
        """Whether parties with different columns can count states, and options allow it."""
        allowed = self.options.training in ("auto", "triples") and not unfitting(self.options)
        return allowed and self.holdings.ids and not self.same


class Row(NamedTuple):
    """A row of the table: a training, and the facts for which it is taken.

    Parameters
    ----------
    training : {"sums", "triples", "one-pass"}
    weights : str
        Of one pass; else empty.
    where, learner, sent : str
        In words, for docs/fedpc.md: which tables, which learner, what leaves a party.
    holds : callable
        Whether the row applies to facts.
    """

    training: str
    weights: str
    where: str
    learner: str
    sent: str
    holds: Callable[[Facts], bool]


_LEARNERS = "`class-conditional` of numbers, else `trees`"
#: The first row applies that agrees with the options that are given, and whose condition holds.
ROWS = (
    Row(
        "sums",
        "",
        "all parties hold the same columns",
        _LEARNERS,
        "sums over rows",
        lambda facts: facts.same and facts.summable,
    ),
    Row(
        "sums",
        "",
        "columns differ and hold numbers; all parties hold the target, or there is none, or rows "
        "have ids",
        "`class-conditional`",
        "sums over rows; with ids also hashed ids and random projections, and, if only some hold "
        "the target, tables that are masked for another party",
        lambda facts: not facts.same and facts.summable,
    ),
    Row(
        "triples",
        "",
        "columns differ, rows have ids; also in place of the row above where most of the "
        "dependence between parties is not linear",
        "`trees`",
        "hashed ids, tables that are masked for another party",
        lambda facts: facts.countable,
    ),
    Row(
        "one-pass",
        "classes",
        "columns differ, all parties hold the target",
        _LEARNERS,
        "numbers of rows by class",
        lambda facts: not facts.same and bool(facts.target) and facts.class_of_all_or_none,
    ),
    Row(
        "one-pass",
        "em",
        "columns differ, rows have ids",
        _LEARNERS,
        "hashed ids, log densities of each common row",
        lambda facts: not facts.same and facts.holdings.ids,
    ),
    Row(
        "one-pass",
        "counts",
        "otherwise",
        _LEARNERS,
        "numbers of rows",
        lambda facts: True,
    ),
)


def row_of(facts: Facts) -> Row:
    """Return the row of the table that applies.

    Raises
    ------
    ConfigError
        If none applies to what the options name.
    """
    options = facts.options
    _check_decision_tree(facts)
    training = "sums" if facts.asks_for_triples and facts.same else options.training
    # Of parties with the same columns all weights are those by counts.
    weights = "counts" if facts.same and options.weights != "auto" else options.weights
    for row in ROWS:
        asked = training in ("auto", row.training) and weights in ("auto", row.weights)
        if asked and row.holds(facts):
            return row
    raise _refusal(facts)


def _check_decision_tree(facts: Facts) -> None:
    """Raise a ConfigError if decision trees are named without a target, or columns differ."""
    if facts.options.learner != "decision-tree":
        return
    if not facts.target:
        raise ConfigError(
            "learner='decision-tree' needs a target: name it, or take another learner"
        )
    if not facts.same:
        raise ConfigError(
            "learner='decision-tree' is for parties that hold the same columns. The paper defines "
            "FC[DT] as the average of trees (section 3.2), and reports results for different "
            "columns (table 6) but neither who knows the class there nor what a product of trees "
            "predicts. Take the columns that all parties have (unshared_columns='drop'), or "
            "another learner"
        )


def _refusal(facts: Facts) -> ConfigError:
    """Return the error of a training or of weights that no row of the table has for the facts."""
    options, target = facts.options, facts.target
    if facts.same:
        training_of(facts.learner, target or None, options)  # which says what it lacks
    if options.training == "sums":
        holders = ", ".join(facts.holdings.holders(target)) if target else "nobody"
        return ConfigError(
            "training='sums' over different columns needs numbers, and the target at every party, "
            "or ids of the rows and no components, head, decision or trained: "
            f"here {facts.learner} circuits are trained, and {target or 'no target'!r} is held by "
            f"{holders}. Take training='one-pass'."
        )
    if facts.asks_for_triples and not facts.holdings.ids:
        return ConfigError(
            "training='triples' needs rows that are matched by ids: give every party's "
            "table a column of ids of its rows, 'row_id' or the one that the option row_id names"
        )
    if facts.asks_for_triples:
        listed = ", ".join(f"{name}={value}" for name, value in unfitting(options).items())
        return ConfigError(
            "training='triples' over different columns has no mixtures of clusters and no head: "
            f"set {listed}"
        )
    if options.weights == "classes":
        return ConfigError(
            "weights='classes' needs a target that all parties hold: take 'em' or 'counts'"
        )
    return ConfigError(
        "weights='em' needs rows that are aligned by ids: name the column "
        "of ids with row_id, or take weights='counts'"
    )


def unfitting(options: FedPCOptions) -> dict[str, str]:
    """Return the options that do not fit counts of states, with the values that would."""
    wanted = {
        "learner": (options.learner in ("auto", "trees"), "'trees'"),
        "weights": (options.weights == "auto", "'auto'"),
        "components": (options.components in (None, 1), "1"),
        "head": (options.head is not True, "False"),
        "decision": (options.decision == "most-probable", "'most-probable'"),
        "trained": (not options.trained, "''"),
    }
    return {name: value for name, (fits, value) in wanted.items() if not fits}


# -- the plan --------------------------------------------------------------------------------------


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
    changed : bool, default False
        Whether the domain has changed since the agreement, so that it must be sent.
    """

    agreement: Agreement
    facts: Facts
    domain: Domain
    training: str
    learner: str
    weights: str
    pair_marks: int
    why: str = ""
    changed: bool = False

    @property
    def holdings(self) -> Holdings:
        """Who holds which columns."""
        return self.facts.holdings

    @property
    def target(self) -> str | None:
        """The class, None without one."""
        return self.facts.target or None

    @property
    def class_of_all(self) -> str | None:
        """The target if all parties hold it."""
        return self.target if self.target and self.holdings.all_hold(self.target) else None

    @property
    def class_of_some(self) -> bool:
        """Whether the training is by sums, and only some parties know the class."""
        return self.training == "sums" and not self.facts.class_of_all_or_none

    @property
    def holders(self) -> list[int]:
        """By column a number for its set of holders, if states can be counted."""
        return self.holdings.holder_sets if self.facts.countable else []

    @property
    def present(self) -> dict[str, Any]:
        """By party, how many of its rows have a value of each column that is to be cut."""
        columns = [self.agreement.names.index(name) for name in self.agreement.continuous]
        counts = self.holdings.present[:, columns]
        return dict(zip(self.holdings.parties, np.asarray(counts), strict=True))

    @property
    def told(self) -> dict[str, str]:
        """The variables, sent with requests where cut points have changed them."""
        return {"domain": json.dumps(self.domain.to_plain())} if self.changed else {}

    def by_triples(self) -> CircuitPlan:
        """Return the plan by triples, where sums would lose what is not linear within classes."""
        missing = self.holdings.missing
        return replace(
            self,
            domain=domain_of(
                self.agreement, self.facts.target, missing, fewest=FEWEST_NUMBERS["trees"]
            ),
            training="triples",
            learner="trees",
            why=_why_counts(
                self.facts.options, "the dependence between parties is mostly not linear"
            ),
            changed=True,
        )

    @property
    def summary(self) -> str:
        """What is trained, in words."""
        how = {
            "sums": "by sums",
            "triples": f"by counts of triples{self.why}",
            "one-pass": f"in one pass, weights by {self.weights}",
        }
        return f"{self.holdings.setting}, {self.learner} circuits {how[self.training]}"


def target_of(options: FedPCOptions, agreement: Agreement) -> str:
    """Return the class; empty without one.

    Raises
    ------
    ConfigError
        If there is no such column, or it has too many values for a class.
    """
    target = target_in(agreement.names, options.target)
    if not options.target and target in agreement.continuous:
        return ""
    _check_target(agreement, target)
    return target


def plan_of(options: FedPCOptions, agreement: Agreement) -> CircuitPlan:
    """Return the plan of the training.

    Parameters
    ----------
    options : FedPCOptions
    agreement : Agreement
        Its ``noted`` are the :class:`~flwr_causal.strategies.fedpc.holdings.Holdings`.

    Raises
    ------
    ConfigError
        If options do not fit together, or not these tables.
    DataError
        If a party has too few rows for one pass.
    """
    holdings: Holdings = agreement.noted
    target = target_of(options, agreement)
    numbers = is_continuous(agreement, target) and not holdings.missing.any()
    facts = Facts(options, holdings, target, numbers)
    row, learner, why = row_of(facts), facts.learner, ""
    if row.training == "triples":
        learner, why = "trees", _why_counts(options, _reason_of_trees(agreement, holdings, target))
    domain = domain_of(agreement, target, holdings.missing, fewest=FEWEST_NUMBERS.get(learner, 3))
    _check_complete(domain, holdings, learner, sums=row.training == "sums")
    marks = _pair_marks(options, agreement, holdings, target) if facts.countable else 0
    plan = CircuitPlan(agreement, facts, domain, row.training, learner, row.weights, marks, why)
    if options.secure_aggregation and not (plan.training == "sums" and facts.same):
        raise ConfigError(
            "The option 'secure_aggregation' is for parties that hold the same columns, and for "
            f"learners that are trained by sums, {', '.join(sorted(BY_SUMS))}: here "
            f"{learner} circuits would be trained. Take another learner, use the columns that all "
            "parties have (unshared_columns='drop'), or run without secure_aggregation."
        )
    if plan.training == "one-pass":
        _check_rows(agreement, options.minimum_count)
    return plan


def parts_of_training(options: FedPCOptions, plan: CircuitPlan | None) -> tuple[type[Part], ...]:
    """Return the parts of the training and the learner.

    Parameters
    ----------
    options : FedPCOptions
    plan : CircuitPlan, optional
        What is trained. Before the parties have agreed all may be that the options leave open.
    """
    return (*_parts_of_one_pass(options, plan), *_parts_of_learner(options, plan))


def _parts_of_one_pass(options: FedPCOptions, plan: CircuitPlan | None) -> tuple[type[Part], ...]:
    """Return the part of a training in one pass."""
    if options.training not in ("auto", "one-pass") or (plan and plan.training != "one-pass"):
        return ()
    if plan and plan.facts.same:
        return (WeightedPass if options.weights == "counts" else OnePass,)
    counted = options.weights in ("auto", "counts") and (not plan or plan.weights == "counts")
    return (CountedPass if counted else ClusteredPass,)


def _parts_of_learner(options: FedPCOptions, plan: CircuitPlan | None) -> Iterator[type[Part]]:
    """Yield the parts of the learner."""
    one_pass = options.training == "one-pass"
    if options.learner == "einsum":
        yield EinsumSize if one_pass else EinsumOptions
    if options.learner == "spn":
        yield SpnOptions
    if options.learner in ("auto", "trees", "class-conditional"):
        # Options that counts do not have choose one pass, where the training is left open.
        chosen = (
            plan and options.training == "auto" and not plan.facts.same and plan.training != "sums"
        )
        if not plan or chosen or plan.learner == "trees":
            yield TreesOptions
        summed = not plan or (plan.training == "sums" and plan.target and plan.facts.same)
        if not one_pass and (summed or chosen):
            yield HeadOptions
    if options.head is False:
        yield HeadSwitch


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


def settings_of(
    options: FedPCOptions, domain: Domain, learner: str, target: str | None
) -> TrainingPlan:
    """Return the settings of a training by sums of a learner, within the classes of a target.

    Raises
    ------
    ConfigError
        If the learner does not train by sums, or the options do not fit it.
    """
    training = training_of(learner, target, options)
    return training.plan(domain, seed=options.seed, min_rows=options.minimum_count)


def labelled(options: FedPCOptions, plan: CircuitPlan) -> list[int]:
    """Return the labelled numbers, if products of numbers and classes are asked for."""
    if not plan.class_of_some:
        return []
    return labelled_numbers(
        settings_of(options, plan.domain, plan.learner, plan.target), plan.holdings.presence
    )


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
    trees = settings_of(options, domain, "trees", within)
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


def _why_counts(options: FedPCOptions, reason: str) -> str:
    """Return why ``training="auto"`` takes counts; "" where the option names the training."""
    return f", chosen because {reason}" if options.training == "auto" else ""


def _check_target(agreement: Agreement, target: str) -> None:
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
    """Whether all columns but the target hold numbers, of which one at least is continuous."""
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
