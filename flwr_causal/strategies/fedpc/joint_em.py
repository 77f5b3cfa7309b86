"""Exchanges of FedPC in which parties with different columns train trees together, by joint EM.

In each exchange a party sends the log density of its columns of each common row under each of K
components, and is sent how probable each component is given all columns of the row (see
`joint_trees`). Components are products of one tree for each party, and trees stay where they are. A
request holds all that a party needs: nothing is lost when a node starts anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.circuit import unpacked
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.composed.joint_trees import (
    PRODUCT_STEPS,
    Shared,
    anchor_rows,
    composed,
    equal_weights,
    responsibilities,
)
from flwr_causal.core.circuits.learners.trees.learner import automatic_components
from flwr_causal.core.circuits.learners.trees.pair_sums import UNIT
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.errors import ConfigError
from flwr_causal.protocol.fedpc import JOINT_PRODUCTS, JOINT_START, JOINT_TREES
from flwr_causal.runtime.method import Request
from flwr_causal.strategies.fedpc.composition import check_all

if TYPE_CHECKING:
    from flwr_causal.core.arrays import IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.protocol.exchange import Exchange
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.strategies.fedpc.holdings import Holdings


@dataclass(frozen=True, eq=False)
class JointStage:
    """One exchange of joint EM.

    Parameters
    ----------
    domain : Domain
        Of variables with states.
    holdings : Holdings
        Every column is held by one party.
    common : dict of str to ndarray of int64, shape (n,)
        Where each party has the common rows.
    components : int
        Of each of the mixtures that share the exchanges.
    central : bool
        Whether trees are sent to the server once they are complete.
    seed : int
        Of the rows that components start from.
    exchange : int
        From 0 on.
    shared : Shared, optional
        What followed from the last exchange.
    """

    domain: Domain
    holdings: Holdings
    common: dict[str, IntArray]
    components: int
    central: bool
    seed: int
    exchange: int = 0
    shared: Shared | None = None

    @property
    def last(self) -> bool:
        """Whether the parties complete their trees."""
        return self.exchange > PRODUCT_STEPS

    def request(self) -> Request:
        """Say which rows are common, and which of them start a component or belong to it."""
        rows = len(next(iter(self.common.values())))
        if self.shared is None:
            exchange: Exchange = JOINT_START
            values = {"anchors": anchor_rows(rows, self.components, self.seed)}
        else:
            exchange = JOINT_TREES[self.central] if self.last else JOINT_PRODUCTS
            # Multiples of the unit: exact as small whole numbers.
            values = {"shared": np.rint(self.shared.responsibilities / UNIT).astype(np.uint16)}
        own = {party: {"common": rows.astype(np.int32)} for party, rows in self.common.items()}
        return Request(exchange, values, own)

    def after(self, replies: Replies) -> JointStage:
        """Return the next exchange.

        Raises
        ------
        FederationError
            If a party did not answer.
        """
        check_all(self.holdings, replies)
        known = self.shared
        weights = equal_weights(self.components) if known is None else known.log_weights
        shared = responsibilities(replies.list("densities"), weights)
        return replace(self, exchange=self.exchange + 1, shared=shared)

    def model(self, replies: Replies, target: str | None) -> CircuitModel:
        """Return the mixture of products of the parties' trees."""
        assert self.shared is not None
        check_all(self.holdings, replies)
        holdings = self.holdings
        columns = [np.flatnonzero(held).tolist() for held in holdings.presence]
        composition = composed(self.domain, columns, self.shared)
        if self.central:
            circuits = [unpacked(data) for data in replies.list("circuits")]
            return CircuitModel(composition.circuit(circuits), target)
        return CircuitModel(
            FederatedCircuit(composition, holdings.presence, holdings.parties), target
        )

    def info(self, replies: Replies) -> dict[str, Any]:
        """Return how well the components before this exchange explain the rows, nats a row."""
        if self.shared is None:
            return {"components": self.components}
        return {"log_likelihood": float(self.shared.log_likelihood.mean())}


def joint_components(
    domain: Domain, rows: int, target: str | None, components: int | None, clusters: int
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
        free = int((states - 1).sum() * states.mean())
        return min(rows, max(classes, clusters, automatic_components(rows, free)))
    if components < classes:
        raise ConfigError(
            f"The option 'components' is {components}, but {target!r} has {classes} classes, and "
            "each has components of its own: give as many or more."
        )
    return components
