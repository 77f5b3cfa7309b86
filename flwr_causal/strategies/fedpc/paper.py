"""Algorithm 1 of Seng et al. (2025), one-pass training: parties train, the server composes them.

The paper builds the structure, lets the clients train, and then infers the weights. Here the
parties train first: the structure needs no more of their circuits than how many there are, and the
weights no more than how many rows each was trained on. K, the number of clusters, is the option
``clusters`` of the parties.

Both sides of the one exchange are in :mod:`flwr_causal.sources.own_circuits`, sums, products and
weights in :mod:`flwr_causal.core.circuits.composed.composition`. A party trains by
:func:`~flwr_causal.core.circuits.composed.party_clusters.train_party` with
:class:`~flwr_causal.core.circuits.learners.spn.learn_spn.LearnSPN`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.circuits.composed.composition import (
    cluster_products,
    factors_of,
    from_products,
)
from flwr_causal.sources.own_circuits import trained_locally

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.circuits.composed.composition import Composition
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.model import CircuitModel
    from flwr_causal.runtime.algorithm import Step

    #: Composes circuits, given who holds which columns, and by party, group of columns and circuit
    #: the numbers of rows; see `composed`.
    Compose = Callable[[BoolArray, list[list[list[int]]]], Composition]


def algorithm_1(
    parties: Sequence[str],
    presence: BoolArray,
    target: str | None,
    compose: Compose,
    *,
    central: bool,
) -> Generator[Step, Any, CircuitModel]:
    """Train in one pass (Algorithm 1).

    Parameters
    ----------
    parties : sequence of str
        Their names.
    presence : ndarray of bool, shape (parties, columns)
        Who holds which columns: M of lines 1 and 2, which the parties have reported.
    target : str or None
        The class that the circuit predicts.
    compose : callable
        `composed`, unless a subclass of :class:`flwr_causal.strategies.FedPC` replaces it.
    central : bool
        Whether the circuits are sent to the server.

    Raises
    ------
    FederationError
        As of :func:`~flwr_causal.sources.own_circuits.trained_locally`.
    """
    # Lines 3-7: columns that the same parties hold make a group. Line 14, and the training of the
    # clients: a party clusters its rows of a group that it alone holds, and trains a circuit of
    # each cluster, or one of all rows where other parties hold the group, too. It sends the numbers
    # of rows, and the circuits where they are central.
    local = yield from trained_locally(parties, presence, central=central)
    # Lines 9-12 and 15-22: sums, products, the mixture at the root, and the weights.
    composition = compose(local.presence, local.rows)
    # The circuits take their places in it, or stay with the parties, which are asked for densities.
    return local.model(composition, target)


def composed(
    domain: Domain,
    presence: BoolArray,
    rows: Sequence[Sequence[Sequence[int]]],
    num_products: int | None = None,
    seed: int = 0,
) -> Composition:
    """Compose the parties' circuits (lines 9-12 and 15-22).

    Parameters
    ----------
    domain : Domain
        The joint one.
    presence : ndarray of bool, shape (parties, columns)
        Who holds which columns.
    rows : sequence of sequence of sequence of int
        By party, group of columns and circuit, the number of rows that it was trained on.
    num_products : int, optional
        P, the number of products. Default: the fewest that contain every cluster; by
        ``variant="paper"`` as many as there are combinations.
    seed : int, default 0
        Seed of the random combinations of clusters.
    """
    # Lines 9-12: a group that several parties hold is a sum over their circuits.
    factors = factors_of(presence, rows)
    # Lines 15-20: products of all sums and of one cluster of each other group: all combinations,
    # or P of them, chosen at random so that every cluster is in at least one.
    products = cluster_products(factors.sizes, num_products, seed)
    # The mixture of the products. Lines 21-22: the weight of child i of a sum is rho(i) / sum rho,
    # where rho is the number of rows of the circuits below.
    return from_products(domain, factors, products)
