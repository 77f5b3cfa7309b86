"""What a line found on one run's rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a method, baseline or peer.

    Parameters
    ----------
    graphs : tuple of CausalGraph
        Usually one; of "each-alone" one for each party, whose metrics are averaged.
    scores : array of shape (d, d) or None
        Strength of every edge, for rankings. None: those of the graph.
    model : object or None
        A circuit, with ``log_likelihood`` and, with a class, ``predict_proba``.
    counts : mapping of str to float
        Exchanges, bytes and whatever else is a number and no metric of the graph.
    shared_seconds : float
        CPU seconds of work that was done for another line before.
    """

    graphs: tuple[CausalGraph, ...] = ()
    scores: FloatArray | None = None
    model: Any = None
    counts: Mapping[str, float] = field(default_factory=dict)
    shared_seconds: float = 0.0
