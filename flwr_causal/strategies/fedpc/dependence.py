"""FedPC's own ways with the dependence between columns that no party holds together.

The paper's weights by numbers of rows lose it. Where rows can be matched by ids (`aligned_rows`) it
can be measured (`measured_dependence`), and kept by weights of the combinations of clusters that
follow from the common rows, or from the classes of all rows (`weighted_clusters`), or by components
that the parties train together (`joint_trees`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.circuits.circuit import unpacked
from flwr_causal.core.circuits.composed import joint_leaves
from flwr_causal.core.circuits.composed.composition import factors_of
from flwr_causal.core.circuits.composed.dependence import Projections, measured
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.composed.joint_trees import (
    PRODUCT_STEPS,
    ExpectationStep,
    anchor_rows,
    composed,
    equal_weights,
    responsibilities,
)
from flwr_causal.core.circuits.composed.tied_clusters import (
    by_aligned_rows,
    by_known_classes,
    label_evidence,
)
from flwr_causal.core.circuits.learners.trees.learner import automatic_components
from flwr_causal.core.circuits.learners.trees.pair_sums import UNIT
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.presence import common_rows
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol.fedpc import DEPENDENCE, JOINT_PRODUCTS, JOINT_START, JOINT_TREES
from flwr_causal.protocol.products.row_ids import ALIGN
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.sources.row_ids import hashes_of, problem_of_secret
from flwr_causal.strategies.fedpc.paper import check_answers, trained_locally

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.core.arrays import BoolArray, IntArray
    from flwr_causal.core.circuits.composed.dependence import Dependence
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.protocol.replies import Replies
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
) -> Generator[Step, Any, tuple[CircuitModel, Replies]]:
    """Train as Algorithm 1 does, with other weights: "classes", "aligned" or "em".

    Parameters
    ----------
    plan : CircuitPlan
    common : dict of str to ndarray of int64, or None
        Where each party has the common rows, for the weights "aligned" and "em".
    central : bool
        Whether the circuits are sent to the server.
    seed : int

    Returns
    -------
    model : CircuitModel
    replies : Replies
        What the parties have sent of their circuits.

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
        return local.model(plan, by_known_classes(plan.domain, factors, classes)), local.replies
    if plan.weights == "em":
        evidence = [one["densities"] for one in replies]
    else:
        evidence = [label_evidence(one["labels"], one["sizes"].tolist()) for one in replies]
    composition = by_aligned_rows(plan.domain, factors, evidence, seed=seed)
    return local.model(plan, composition), local.replies


def joint_trees(
    plan: CircuitPlan,
    common: dict[str, IntArray],
    *,
    components: int,
    central: bool,
    seed: int,
) -> Generator[Step, Any, CircuitModel]:
    """Train mixtures of products of the parties' trees by EM over their common rows.

    Parameters
    ----------
    plan : CircuitPlan
        Every column is held by one party.
    common : dict of str to ndarray of int64, shape (n,)
        Where each party has the common rows.
    components : int
        Of each of the mixtures that share the exchanges.
    central : bool
        Whether trees are sent to the server once they are complete.
    seed : int
        Of the rows that components start from.

    Raises
    ------
    FederationError
        If a party did not answer.
    """
    holdings = plan.holdings
    own = {party: {"common": rows.astype(np.int32)} for party, rows in common.items()}
    rows = len(next(iter(common.values())))
    anchors = anchor_rows(rows, components, seed)
    replies = yield Ask(JOINT_START, {"anchors": anchors}, own)
    yield Note({"components": components})
    check_answers(holdings, replies)
    shared = responsibilities(replies.list("densities"), equal_weights(components))
    for _ in range(PRODUCT_STEPS):
        replies = yield Ask(JOINT_PRODUCTS, _sent(shared), own)
        yield Note(_info(shared))
        check_answers(holdings, replies)
        shared = responsibilities(replies.list("densities"), shared.log_weights)
    replies = yield Ask(JOINT_TREES[central], _sent(shared), own)
    yield Note(_info(shared))
    check_answers(holdings, replies)
    columns = [np.flatnonzero(held).tolist() for held in holdings.presence]
    composition = composed(plan.domain, columns, shared)
    if central:
        circuits = [unpacked(data) for data in replies.list("circuits")]
        return CircuitModel(composition.circuit(circuits), plan.target)
    density = FederatedCircuit(composition, holdings.presence, holdings.parties)
    return CircuitModel(density, plan.target)


def _sent(shared: ExpectationStep) -> dict[str, Any]:
    """Return the shares of the components, multiples of the unit: exact as small whole numbers."""
    return {"shared": np.rint(shared.responsibilities / UNIT).astype(np.uint16)}


def _info(shared: ExpectationStep) -> dict[str, float]:
    """Return how well the components before an exchange explain the rows, nats a row."""
    return {"log_likelihood": float(shared.log_likelihood.mean())}


def joint_components(
    domain: Domain,
    presence: BoolArray,
    rows: int,
    target: str | None,
    components: int | None,
    clusters: int,
) -> int:
    """Return how many components there are: as many as asked for, or as the rows give.

    The server sees no rows; it takes every variable for the child of one with a mean number of
    states. There are at least as many components as a party would have clusters: with 700 rows and
    six kinds of them the number that a pooled table would get (2) lost .5 nats.

    Raises
    ------
    ConfigError
        If there are fewer than classes, each of which has components of its own.
    """
    states = domain.num_states
    classes = int(states[domain.index(target)]) if target else 1
    if components is None:
        if (states == 0).any():
            found = joint_leaves.automatic_components(rows, presence[:, states == 0])
        else:
            found = automatic_components(rows, int((states - 1).sum() * states.mean()))
        return min(rows, max(classes, clusters, found))
    if components < classes:
        raise ConfigError(
            f"The option 'components' is {components}, but {target!r} has {classes} classes, and "
            "each has components of its own: give as many or more."
        )
    return components
