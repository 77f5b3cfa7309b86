"""Exchanges of FedPC in which parties with different columns train trees together, by joint EM.

In each exchange a party sends the log density of its columns of each common row under each of K
components, and is sent how probable each component is given all columns of the row (see
`trees.vertical`). Components are products of one tree for each party, and trees stay where they
are. A request holds all that a party needs: nothing is lost when a node starts anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.learners.trees.learner import automatic_components
from flwr_causal.core.circuits.learners.trees.pair_sums import UNIT
from flwr_causal.core.circuits.learners.trees.vertical import (
    PRODUCT_STEPS,
    Shared,
    anchor_rows,
    composed,
    equal_weights,
    responsibilities,
)
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.packing import unpacked
from flwr_causal.errors import ConfigError
from flwr_causal.protocol.wire import unbounded
from flwr_causal.strategies.exchange import Reply, Request
from flwr_causal.strategies.fedpc.composition_stages import check_all

if TYPE_CHECKING:
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.protocol.wire import Arrays
    from flwr_causal.runtime.federation import Party
    from flwr_causal.strategies.fedpc.circuit_schema import Holdings

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


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
    replies : dict of str to dict of arrays
        By party, so far.
    """

    domain: Domain
    holdings: Holdings
    common: dict[str, IntArray]
    components: int
    central: bool
    seed: int
    exchange: int = 0
    shared: Shared | None = None
    replies: dict[str, Arrays] | None = None

    @property
    def last(self) -> bool:
        """Whether the parties complete their trees."""
        return self.exchange > PRODUCT_STEPS

    @property
    def phase(self) -> str:
        """What the parties may send: see the client's disclosures."""
        if self.last:
            return f"joint trees{' central' if self.central else ''}"
        return "joint products" if self.exchange else "joint start"

    def request(self, party: Party) -> Request:
        """Say which rows are common, and which of them start a component or belong to it."""
        common = self.common[party.name]
        arrays: Arrays = {"common": common.astype(np.int32)}
        if self.shared is None:
            arrays["anchors"] = anchor_rows(len(common), self.components, self.seed)
        else:
            # Multiples of the unit: exact as small whole numbers.
            arrays["shared"] = np.rint(self.shared.responsibilities / UNIT).astype(np.uint16)
        return Request(arrays, {"arrays": list(arrays)})

    def fold(self, reply: Reply) -> JointStage:
        """Keep what a party sends."""
        return replace(self, replies={**(self.replies or {}), reply.party.name: reply.arrays})

    def after(self) -> JointStage:
        """Return the next exchange.

        Raises
        ------
        FederationError
            If a party did not answer.
        """
        replies = self._all()
        known = self.shared
        weights = equal_weights(self.components) if known is None else known.log_weights
        shared = responsibilities([unbounded(one["densities"]) for one in replies], weights)
        return replace(self, exchange=self.exchange + 1, shared=shared, replies=None)

    def model(self, target: str | None) -> CircuitModel:
        """Return the mixture of products of the parties' trees."""
        assert self.shared is not None
        holdings = self.holdings
        columns = [np.flatnonzero(held).tolist() for held in holdings.presence]
        composition = composed(self.domain, columns, self.shared)
        if self.central:
            circuits = [unpacked(reply["circuits"]) for reply in self._all()]
            return CircuitModel(composition.circuit(circuits), target)
        return CircuitModel(
            FederatedCircuit(composition, holdings.presence, holdings.parties), target
        )

    @property
    def info(self) -> dict[str, Any]:
        """How well the components before this exchange explain the rows, nats a row."""
        if self.shared is None:
            return {"components": self.components}
        return {"log_likelihood": float(self.shared.log_likelihood.mean())}

    def _all(self) -> list[Arrays]:
        """Return the replies in the parties' order."""
        replies = self.replies or {}
        check_all(self.holdings, replies)
        return [replies[name] for name in self.holdings.parties]


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
