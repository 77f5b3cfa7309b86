"""Algorithm 1 of Seng et al. (2025), one-pass training: parties train, the server composes them.

The lines are those that section 3.3 names. Both sides of the one exchange are in
:mod:`flwr_causal.sources.own_circuits`; there a party trains by
:func:`~flwr_causal.core.circuits.composed.party_clusters.train_party` with
:class:`~flwr_causal.core.circuits.learners.spn.learn_spn.LearnSPN`. The composition is
:func:`~flwr_causal.core.circuits.composed.composition.one_pass`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.sources.own_circuits import trained_locally

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.circuits.composed.composition import Composition
    from flwr_causal.core.circuits.model import CircuitModel
    from flwr_causal.runtime.algorithm import Step

    #: Composes circuits, given who holds which columns, and by party, group of columns and circuit
    #: the numbers of rows.
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
        Lines 9-12 and 15-22; by default :meth:`flwr_causal.strategies.FedPC.compose`.
    central : bool
        Whether the circuits are sent to the server.

    Raises
    ------
    FederationError
        As of :func:`~flwr_causal.sources.own_circuits.trained_locally`.
    """
    # Lines 3-7 and 14: groups of columns; the parties cluster and train, each on its own.
    local = yield from trained_locally(parties, presence, central=central)
    # Lines 9-12 and 15-22: sums, products, the mixture at the root, and its weights.
    return local.model(compose(local.presence, local.rows), target)
