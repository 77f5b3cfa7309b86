"""Stages of FedGES: a run is one after another, each a few exchanges with one purpose.

A stage says what the parties are sent and what follows from their replies. It is never changed:
closing an exchange returns the next stage. Variables are numbered in the order of their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.method import Request


class Found(NamedTuple):
    """The result of a search.

    Attributes
    ----------
    marks : ndarray of bool, shape (d, d)
        The class.
    dag : ndarray of bool, shape (d, d)
        A member of it.
    reason : str
        Why the search is over, in words.
    support : ndarray of float64, shape (d, d), or None
        The share of the parties whose graph has each edge.
    """

    marks: BoolArray
    dag: BoolArray
    reason: str
    support: FloatArray | None = None


class Step(NamedTuple):
    """What follows an exchange.

    Attributes
    ----------
    stage : Stage or None
        The next one; None where the purpose is fulfilled.
    info : dict
        Diagnostics for the history.
    found : Found or None
        The result so far.
    """

    stage: Stage | None
    info: dict[str, Any]
    found: Found | None = None


class Stage(Protocol):
    """One kind of exchange."""

    def request(self) -> Request:
        """Return what the parties are sent."""

    def close(self, replies: Replies) -> Step:
        """Return what follows from the replies."""


def by_name(names: Sequence[str]) -> list[int]:
    """Return the positions of the names in their sorted order."""
    return sorted(range(len(names)), key=names.__getitem__)


def cardinalities_of(agreement: Agreement) -> IntArray:
    """Return the numbers of states, the variables in the order of their names."""
    order = by_name(agreement.names)
    return np.array([len(agreement.states[k]) for k in order], dtype=np.int64)
