"""What the trainings of FedPC share: cut points, rows that are matched by ids, and their sums."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flwr_causal.core.circuits.composed.dependence import ALIKE, Projections, measured
from flwr_causal.core.circuits.presence import common_rows
from flwr_causal.errors import DataError, FederationError
from flwr_causal.protocol.fedpc import DEPENDENCE, plan_columns
from flwr_causal.protocol.products.row_ids import ALIGN
from flwr_causal.runtime.algorithm import Ask, Note, relayed
from flwr_causal.sources.joined import Holders, joined_sums
from flwr_causal.sources.row_ids import check_all, hashes_of, problem_of_secret
from flwr_causal.strategies.cut_points import agreed_cuts
from flwr_causal.strategies.fedpc.losses import lost, not_alike
from flwr_causal.strategies.fedpc.plan import with_intervals

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.core.arrays import IntArray
    from flwr_causal.core.circuits.composed.dependence import Dependence
    from flwr_causal.core.circuits.learners.class_conditional.joined import ClassColumns
    from flwr_causal.core.circuits.learners.trees.triple_tables import StateMarks
    from flwr_causal.core.circuits.model import CircuitModel
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import ReturnT, Step
    from flwr_causal.sources.joined import JoinedMoments
    from flwr_causal.strategies.fedpc.holdings import Holdings
    from flwr_causal.strategies.fedpc.losses import Remarks
    from flwr_causal.strategies.fedpc.options import FedPCOptions
    from flwr_causal.strategies.fedpc.plan import CircuitPlan

    #: What was trained in the end, the circuit, and why the training is over.
    TrainedCircuit = tuple[CircuitPlan, CircuitModel, str]

COMPLETE = "the circuit is complete"
NO_IDS = (
    "give every party's table a column of ids of its rows, 'row_id' or the one that the option "
    "row_id names"
)


def with_cut_points(options: FedPCOptions, plan: CircuitPlan) -> Generator[Step, Any, CircuitPlan]:
    """Agree on the cut points of numbers, where trees are learned."""
    if plan.learner != "trees" or not plan.agreement.continuous:
        return plan
    present = None if options.secure_aggregation else plan.present
    agreed = yield from agreed_cuts(plan.agreement, options.num_bins, present, spreading=True)
    numbers = plan.agreement.continuous
    points = dict(zip(numbers, agreed.cuts, strict=True))
    inside = dict(zip(numbers, agreed.inside, strict=True))
    whole, lacking = plan.agreement.whole, plan.holdings.incomplete
    domain = with_intervals(plan.domain, points, inside, whole, lacking)
    return replace(plan, domain=domain, changed=True)


def with_variables(
    plan: CircuitPlan, steps: Generator[Step, Any, ReturnT]
) -> Generator[Step, Any, ReturnT]:
    """Send the variables with all requests, where cut points have changed them."""
    return (yield from relayed(steps, plan.told))


def matched_rows(
    plan: CircuitPlan, remarks: Remarks
) -> Generator[Step, Any, dict[str, IntArray] | None]:
    """Return, by party, the positions of the rows that all parties have, in one order.

    None with a warning where rows cannot be matched, and the training does not need it.

    Raises
    ------
    FederationError
        If a party did not answer.
    DataError
        If ids repeat, or the training needs common rows and there are none.
    """
    holdings = plan.holdings
    if not holdings.ids:
        remarks.warnings.append(lost(plan, NO_IDS))
        return None
    replies = yield Ask(ALIGN)
    check_answers(holdings, replies)
    problem = problem_of_secret(holdings.parties, replies)
    if not problem:
        ids = hashes_of(replies)
        places, remarks.num_rows = common_rows(ids), len(set().union(*ids))
        yield Note({"ids": remarks.num_rows, "common": len(places[0])})
        if len(places[0]):
            return dict(zip(holdings.parties, places, strict=True))
        problem = (
            f"{', '.join(holdings.parties)} have no row in common: check that their ids are of "
            "one kind and their row-secret is the same (node config)"
        )
    if plan.weights == "em" or plan.class_of_some:
        raise DataError(f'{problem}, or take weights="counts", which needs no ids')
    remarks.warnings.append(lost(plan, problem))
    return None


def known_dependence(
    options: FedPCOptions, plan: CircuitPlan, remarks: Remarks
) -> Generator[Step, Any, Dependence | None]:
    """Return how columns depend that no party holds together, within classes that all know.

    None where there are no such columns, where it cannot be measured, and where the options name
    the weights of combinations.

    Raises
    ------
    FederationError
        If a party did not answer, or answered for other columns or rows.
    """
    holdings, within = plan.holdings, plan.class_of_all
    named = plan.training == "one-pass" and options.weights != "auto"
    if named or not holdings.apart.any():
        return None
    common = yield from matched_rows(plan, remarks)
    if common is None:
        return None
    requests = {party: {"common": rows} for party, rows in common.items()}
    replies = yield Ask(DEPENDENCE, {"within": within or ""}, requests)
    check_answers(holdings, replies)
    given = [
        Projections(one["counts"], one["linear"], one["nonlinear"])
        for one in replies.by_party.values()
    ]
    try:
        found = measured(plan.domain, holdings.presence, within, given)
    except DataError as error:
        listed = ", ".join(holdings.parties)
        raise FederationError(f"Of the parties {listed}: {error}") from error
    yield Note({"nats": found.nats, "nonlinear_nats": found.nonlinear_nats})
    if found.least_alike.correlation < ALIKE:
        remarks.warnings.append(not_alike(holdings, found.least_alike))
    return found


def sums_of_products(
    options: FedPCOptions, plan: CircuitPlan, columns: StateMarks | ClassColumns
) -> Generator[Step, Any, JoinedMoments]:
    """Return the sums of products of columns over the joined rows.

    The parties compute them together, from masked tables.

    Raises
    ------
    DataError
        If rows cannot be matched; where this was not asked for, with the training without it.
    """
    holdings = plan.holdings
    holders = Holders(
        holdings.parties,
        tuple(holdings.names[j] for j in columns.owners),
        holdings.presence[:, columns.owners],
        plan.agreement.n,
        options.minimum_count,
        replicates=0,
        seed=options.seed,
        columns=plan_columns(plan.domain, columns),
    )
    try:
        joined = yield from joined_sums(holders)
    except DataError as error:
        if options.training != "auto":
            raise
        raise DataError(
            f"{error}; or set training='one-pass', which may lose how columns of different parties "
            "depend"
        ) from error
    yield Note(joined.info)
    return joined


def note_joined_rows(
    options: FedPCOptions,
    plan: CircuitPlan,
    remarks: Remarks,
    joined: JoinedMoments,
    left_out: int,
) -> None:
    """Note the number of joined rows, and warnings about them."""
    remarks.num_rows = joined.plan.num_rows
    remarks.warnings += joined.doubts
    if left_out > 0:
        remarks.warnings.append(
            f"{left_out} rows are not counted: fewer than {options.minimum_count} (minimum_count) "
            f"of those that the same parties have are of their class, a value of {plan.target!r}. "
            "Join rare classes to others in all tables, or lower minimum_count"
        )


def check_answers(holdings: Holdings, replies: Replies) -> None:
    """Raise a FederationError if a party did not answer, without which there is no circuit."""
    check_all(holdings.parties, replies, lacking="is no circuit")
