"""The exchanges of FedPC (Seng et al. 2025): sums, a party's own circuits, and queries to them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.when import DIFFERENT, POOLED, When
from flwr_causal.core.circuits.composed.dependence import score_columns
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.learners.by_name import BY_SUMS, learner_class, training_of
from flwr_causal.core.circuits.learners.class_conditional.joined import ClassColumns
from flwr_causal.core.circuits.learners.class_conditional.moments import Coordinates
from flwr_causal.core.circuits.learners.options import LearnerOptions
from flwr_causal.core.circuits.learners.trees.triple_tables import Joints, StateMarks
from flwr_causal.core.discrete.cut_points import MAX_EXCHANGES
from flwr_causal.core.options import as_text, from_plain, to_plain
from flwr_causal.data.roles import TARGET
from flwr_causal.protocol.columns import MASKED_TABLES, PRODUCTS
from flwr_causal.protocol.contract import Contract
from flwr_causal.protocol.cuts import CUTS, sizes_of_cuts
from flwr_causal.protocol.options import PartyOptions, Setting, chosen, derived, seen_as
from flwr_causal.protocol.products.plan import PlanColumns
from flwr_causal.protocol.products.row_ids import ALIGN
from flwr_causal.sources.own_circuits import (
    COMMON,
    DOMAIN,
    LOCAL,
    ONE_PASS,
    TRAINS,
    joint_domain,
    other_domain,
    own_domain,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.core.circuits.learners.training_by_sums import SumsExchange, TrainingPlan
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.protocol.contract import ReplyContext
    from flwr_causal.protocol.setup import Setup

_TREES_LEARNER = When(learner=("auto", "trees"))
_SUMMED = (TRAINS & When(training=("auto", "sums", "triples"))).called(
    "training='sums', 'triples' or 'auto'"
)


def _settings_of_learners(name: str, value: LearnerOptions) -> list[Setting]:
    return [Setting(one.name, getattr(value, one.name)) for one in fields(value)]


def _setting_of_target(name: str, value: str) -> list[Setting]:
    def fits(stated: Any, sent: Any) -> bool:
        # Left out, it is the usual column, if it is there.
        return bool(sent == stated or (stated == "" and sent == TARGET))

    return [Setting(name, value, fits, judged=False)]


@dataclass(frozen=True, kw_only=True)
class FedPCPartyOptions(PartyOptions):
    """The options that the parties are sent: variables of the circuit, and what is counted.

    Parameters
    ----------
    domain : Domain
        The joint domain.
    target : str
        The class; empty without one.
    within : str
        The class if all parties know it, else empty.
    holders : tuple of int
        By column a number for its set of holders, where states are counted.
    pair_marks : int
        How many pairs of states are marked, at most.
    labelled : tuple of int
        The labelled numbers, where products of numbers and classes are asked for.
    learner : str
    clusters : int
    learners : LearnerOptions
        The options of all learners.
    """

    domain: Domain = field(
        metadata={
            **as_text(Domain.to_plain, Domain.from_plain),
            **derived("follows from the parties' reports"),
        }
    )
    target: str = field(metadata=seen_as(_setting_of_target))
    within: str = field(metadata=derived("the option target"))
    holders: tuple[int, ...] = field(metadata=derived("follows from the parties' columns"))
    pair_marks: int = field(metadata=derived("follows from the parties' columns"))
    labelled: tuple[int, ...] = field(metadata=derived("follows from the parties' columns"))
    learner: str = field(metadata=chosen())
    clusters: int
    learners: LearnerOptions = field(
        metadata={
            **as_text(to_plain, partial(from_plain, LearnerOptions)),
            **seen_as(_settings_of_learners),
        }
    )


def _wrong_class(sent: Mapping[str, Any], setup: Setup) -> str:
    """Return a complaint if the class is another column than the target, else ""."""
    if sent["within"] not in ("", setup.options.target):
        return f"has the class '{sent['within']}', and the run's target is another column"
    return other_domain(sent, setup)


def training_plan(learner: str, setup: Setup, sent: Mapping[str, Any]) -> TrainingPlan:
    """Return the settings of a training by sums, the same at the server and at the parties.

    The class of the plan is one that all parties know.
    """
    return _plan_of_setup(learner, setup.options.within, setup, joint_domain(setup, sent))


def product_columns(setup: Setup, sent: Mapping[str, Any]) -> StateMarks | ClassColumns:
    """Return the columns that are multiplied, the same at server and parties.

    They are marks of states, within a class that all parties know, or numbers and classes, where
    only some parties know these.
    """
    options: FedPCPartyOptions = setup.options
    domain = joint_domain(setup, sent)
    if "coordinates" in sent:
        plan = _plan_of_setup("class-conditional", options.target, setup, domain)
        coordinates = Coordinates(*np.asarray(sent["coordinates"], dtype=np.float64))
        return ClassColumns(plan, coordinates, options.labelled)
    plan = _plan_of_setup("trees", options.within, setup, domain)
    return StateMarks(plan, Joints.of(domain, plan, options.holders, options.pair_marks))


def plan_columns(domain: Domain, columns: StateMarks | ClassColumns) -> PlanColumns:
    """Return what the columns are: masks are bound to states and intervals, or to coordinates."""
    meaning: list[Any] = domain.to_plain()
    if isinstance(columns, ClassColumns):
        coordinates = [values.tolist() for values in columns.coordinates]
        meaning = [meaning, coordinates, list(columns.labelled)]
    return PlanColumns(json.dumps(meaning), columns.wanted)


def _plan_of_setup(learner: str, target: str, setup: Setup, domain: Domain) -> TrainingPlan:
    options: FedPCPartyOptions = setup.options
    return _plan_of(learner, target, options.learners, domain, options.seed, setup.small.minimum)


@lru_cache(maxsize=8)
def _plan_of(
    learner: str, target: str, options: LearnerOptions, domain: Domain, seed: int, min_rows: int
) -> TrainingPlan:
    return training_of(learner, target or None, options).plan(domain, seed=seed, min_rows=min_rows)


# -- what contradicts a party's report, or itself --------------------------------------------------


def _wrong_projections(arrays: Arrays, known: ReplyContext) -> str:
    """Return a complaint if projections are of other classes, rows or columns, else ""."""
    joint, target = joint_domain(known.setup, known.sent), str(known.sent["within"])
    classes = int(joint.num_states[joint.index(target)]) if target else 1
    scores = len(score_columns(own_domain(joint, known.report.names), target or None))
    if arrays["linear"].shape[::2] != (classes, scores):
        return (
            f"its projections are of {arrays['linear'].shape[0]} classes and "
            f"{arrays['linear'].shape[2]} scores, not of {classes} and {scores}"
        )
    counted, rows = int(arrays["counts"].sum()), known.sizes["common"]
    left_out = (known.setup.small.minimum - 1) * classes
    if not rows - left_out <= counted <= rows:
        return f"its classes count {counted} rows, but {rows} are common to all parties"
    return ""


def _sums_exchange(learner: str, kind: type[SumsExchange]) -> Exchange:
    """Return the exchange of a training by sums as it is sent: with the variables."""
    declared = kind.exchange()

    def asked(sent: Mapping[str, Any]) -> dict[str, Any]:
        return {one.name: sent[one.name] for one in kind.sent}

    def contradiction(arrays: Arrays, known: ReplyContext) -> str:
        plan, setup = training_plan(learner, known.setup, known.sent), known.setup
        if setup.masked:  # each party of the sum may have left out rows
            plan = replace(plan, min_rows=1 + (plan.min_rows - 1) * setup.num_clients)
        return kind.contradiction(arrays, plan, asked(known.sent), known.sizes["n"])

    def unfitting(sent: Mapping[str, Any], setup: Setup) -> str:
        plan = training_plan(learner, setup, sent)
        return other_domain(sent, setup) or kind.unfitting(plan, asked(sent))

    def derived(sent: Mapping[str, Any], setup: Setup) -> dict[str, int]:
        return kind.sizes(training_plan(learner, setup, sent), asked(sent))

    return replace(
        declared,
        name=f"{learner}: {declared.name}",
        sends=(*declared.sends, DOMAIN),
        most=declared.most,
        when=_SUMMED & When(learner=("auto", learner)) & declared.when,
        contradiction=contradiction,
        unfitting=unfitting,
        derived=derived,
    )


#: The exchanges of the trainings by sums, by learner and name.
SUMS = {
    (learner, kind.name): _sums_exchange(learner, kind)
    for learner in BY_SUMS
    for kind in learner_class(learner).exchanges
}
#: By the name of such an exchange, the learner and what computes a party's sums.
SUMMED_BY: dict[str, tuple[str, type[SumsExchange]]] = {
    SUMS[learner, kind.name].name: (learner, kind)
    for learner in BY_SUMS
    for kind in learner_class(learner).exchanges
}

DEPENDENCE = Exchange(
    "dependence",
    "how columns depend that no party holds together",
    sends=(
        COMMON,
        Sent("within", "the class within which columns are scored; empty: within all rows"),
        DOMAIN,
    ),
    returns=(
        Disclosure("counts", "common rows of each class", ("classes",), "count"),
        Disclosure(
            "linear",
            "sums over the common rows of each class: normal scores of the party's columns times "
            "random numbers that the ids and the secret determine",
            ("classes", "draws", "scores"),
        ),
        Disclosure(
            "nonlinear",
            "the same of the second and third Hermite polynomials of the scores",
            (2, "draws", "scores"),
        ),
    ),
    timing="if the parties have different columns and common rows; not where states are "
    "counted, and where the weights are 'em'",
    when=TRAINS & When(weights="auto", training=("auto", "sums", "one-pass")) & ~POOLED,
    most=1,
    same_parties=True,
    contradiction=_wrong_projections,
    unfitting=_wrong_class,
)

RECALL = Exchange(
    "recall",
    "whether the party has stored its circuits of an earlier run",
    sends=(Sent("fingerprint", "of that training"), DOMAIN),
    most=1,
    when=~TRAINS,
    unfitting=other_domain,
)


def _query(name: str, meaning: str, *returns: Disclosure, sends: tuple[Sent, ...] = ()) -> Exchange:
    return Exchange(
        name,
        meaning,
        sends=(
            Sent("values", "the party's columns of the rows of the query", ("asked", "own")),
            Sent("known", "1 where a value is known", ("asked", "own")),
            Sent("fingerprint", "of the training of the circuits"),
            *sends,
        ),
        returns=returns,
        weight="one",
        timing="after the training",
        when=~TRAINS | ONE_PASS & When(queries="federated"),
        query=True,
    )


_COLUMN = Sent("column", "the name of a column")
DENSITIES = _query(
    "densities",
    "log densities of the rows of the query",
    Disclosure("densities", "by circuit", (1, "asked", "circuits"), "log-density"),
)
PEAKS = _query(
    "peaks",
    "log densities of the rows' most probable explanations",
    Disclosure("densities", "by circuit", (1, "asked", "circuits"), "log-density"),
)
CLASSES = _query(
    "classes",
    "log densities of the rows with each state of a category",
    Disclosure("densities", "by state and circuit", ("states", "asked", "circuits"), "log-density"),
    sends=(_COLUMN,),
)
MOMENTS = _query(
    "moments",
    "the mean and the mean square of a number given each row",
    Disclosure("moments", "the party's part of both", (2, "asked")),
    sends=(_COLUMN, Sent("flows", "probability of each circuit for each row", ("asked", "*"))),
)
FILLED = _query(
    "filled",
    "samples, or the most probable values, of what is missing in the rows",
    Disclosure("values", "the filled rows; 0 where no value is known", ("asked", "own")),
    Disclosure("known", "1 where there is a value", ("asked", "own"), "mark"),
    sends=(
        Sent("chosen", "1 where a circuit fills a row", ("asked", "*")),
        Sent("seed", "of the samples; 0 for the most probable values"),
    ),
)


def _handling_of_states(options: Any, handling: Handling) -> Handling:
    """Return the handling by which numbers of more values than bins are no states."""
    return replace(handling, number_states=handling.discretize)


CONTRACT = Contract(
    "fedpc",
    (
        replace(
            CUTS,
            # Two searches: one for values that many rows share.
            most=2 * MAX_EXCHANGES,
            when=_SUMMED & (_TREES_LEARNER | DIFFERENT) | ONE_PASS & _TREES_LEARNER,
        ),
        *SUMS.values(),
        ALIGN,
        DEPENDENCE,
        MASKED_TABLES,
        PRODUCTS,
        *LOCAL.values(),
        RECALL,
        DENSITIES,
        PEAKS,
        CLASSES,
        MOMENTS,
        FILLED,
    ),
    sizes_of_cuts,
    reports=("sums", "states", "ids"),
    options=FedPCPartyOptions,
    question=PartyOptions,
    completes=_handling_of_states,
    trainings=False,
)
