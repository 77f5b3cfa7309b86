"""FedPC's own ways with the dependence between columns that no party holds together.

The paper's weights by numbers of rows lose it. Where rows can be matched by ids (`aligned_rows`) it
can be measured (`measured_dependence`), and kept by weights of the combinations of clusters that
follow from the common rows, or from the classes of all rows (`weighted_clusters`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flwr_causal.core.circuits.composed.composition import factors_of
from flwr_causal.core.circuits.composed.dependence import Projections, measured
from flwr_causal.core.circuits.composed.tied_clusters import (
    by_aligned_rows,
    by_known_classes,
)
from flwr_causal.core.circuits.presence import common_rows
from flwr_causal.errors import DataError, FederationError
from flwr_causal.protocol.fedpc import DEPENDENCE
from flwr_causal.protocol.products.row_ids import ALIGN
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.sources.row_ids import hashes_of, problem_of_secret
from flwr_causal.strategies.fedpc.paper import check_answers, trained_locally

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.core.arrays import IntArray
    from flwr_causal.core.circuits.composed.dependence import Dependence
    from flwr_causal.core.circuits.model import CircuitModel
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.fedpc.holdings import Holdings
    from flwr_causal.strategies.fedpc.plan import CircuitPlan


class Matched(NamedTuple):
    """Which rows of the parties are about the same thing.

    Parameters
    ----------
    common : dict of str to ndarray of int64
        By party, the positions of the rows that all parties have, in one order. Empty with a
        problem.
    num_rows : int or None
        Different ids over all parties; None where ids cannot be compared.
    problem : str, default ""
        Why there are no common rows, and the remedy.
    """

    common: dict[str, IntArray]
    num_rows: int | None
    problem: str = ""


def aligned_rows(holdings: Holdings) -> Generator[Step, Any, Matched]:
    """Return the rows that all parties have, or why there are none.

    Raises
    ------
    FederationError
        If a party did not answer.
    DataError
        If ids repeat.
    """
    replies = yield Ask(ALIGN)
    check_answers(holdings, replies)
    problem = problem_of_secret(holdings.parties, replies)
    if problem:
        return Matched({}, None, problem)
    ids = hashes_of(replies)
    places, num_rows = common_rows(ids), len(set().union(*ids))
    yield Note({"ids": num_rows, "common": len(places[0])})
    if len(places[0]):
        return Matched(dict(zip(holdings.parties, places, strict=True)), num_rows)
    problem = (
        f"{', '.join(holdings.parties)} have no row in common: check that their ids are of one "
        "kind and their row-secret is the same (node config)"
    )
    return Matched({}, num_rows, problem)


def measured_dependence(
    plan: CircuitPlan, common: dict[str, IntArray]
) -> Generator[Step, Any, Dependence]:
    """Return how columns depend that no party holds together, within classes that all know.

    Parameters
    ----------
    plan : CircuitPlan
    common : dict of str to ndarray of int64
        Where each party has the common rows.

    Raises
    ------
    FederationError
        If a party did not answer, or answered for other columns or rows.
    """
    holdings, within = plan.holdings, plan.class_of_all
    own = {party: {"common": rows} for party, rows in common.items()}
    replies = yield Ask(DEPENDENCE, {"within": within or ""}, own)
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
    return found


def weighted_clusters(
    plan: CircuitPlan, common: dict[str, IntArray] | None, *, central: bool, seed: int
) -> Generator[Step, Any, CircuitModel]:
    """Train as Algorithm 1 does, with other weights: "classes" or "em".

    Parameters
    ----------
    plan : CircuitPlan
    common : dict of str to ndarray of int64, or None
        Where each party has the common rows, for the weights "em".
    central : bool
        Whether the circuits are sent to the server.
    seed : int

    Raises
    ------
    FederationError
        If a party did not answer.
    """
    local = yield from trained_locally(plan, common, central=central)
    replies = list(local.replies.by_party.values())
    factors = factors_of(local.presence, local.rows, tied=True)
    if plan.weights == "classes":
        classes = [one["classes"] for one in replies]
        return local.model(plan, by_known_classes(plan.domain, factors, classes))
    densities = [one["densities"] for one in replies]
    return local.model(plan, by_aligned_rows(plan.domain, factors, densities, seed=seed))
