"""The data of one run, and what a line of a scenario finds on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph


@dataclass(frozen=True)
class AskedEffect:
    """The total effect that a world is about.

    Parameters
    ----------
    cause, effect : str
        Columns.
    value : float
        The true effect; of a cause with states that of one state instead of another one.
    options : mapping of str to str
        Further arguments of ``total_effect``: ``state`` and ``reference`` of a category.
    """

    cause: str
    effect: str
    value: float
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class World:
    """The tables of a federation, their true graph and test rows.

    Parameters
    ----------
    parties : list
        One table for each party; for time series a table or a list of them.
    truth : CausalGraph or None
        The true graph; its weights are the effects where these are known.
    test : DataFrame or None
        Rows set aside for evaluation.
    options : mapping
        Options that the data need, such as the class column; methods get those that they have.
    own : tuple of CausalGraph
        The true graph of each party, where they differ.
    asked : AskedEffect or None
        The effect that the data are about.

    Examples
    --------
    >>> from flwr_causal import CausalGraph
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> from benchmarks.world import World
    >>> tables, weights = federated_linear(3, 60, 2)
    >>> World(tables, CausalGraph(("x0", "x1", "x2"), weights)).truth.kind
    'dag'
    """

    parties: list[Any]
    truth: CausalGraph | None = None
    test: pd.DataFrame | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    own: tuple[CausalGraph, ...] = ()
    asked: AskedEffect | None = None

    @property
    def pooled(self) -> pd.DataFrame:
        """The rows of all parties in one table."""
        tables = [
            t for party in self.parties for t in (party if isinstance(party, list) else [party])
        ]
        pooled: pd.DataFrame = pd.concat(tables, ignore_index=True)
        return pooled


@dataclass(frozen=True, eq=False)
class LineResult:
    """The result of a method, baseline or peer.

    Parameters
    ----------
    graphs : tuple of CausalGraph
        Usually one; of "each-alone" one for each party, whose metrics are averaged.
    scores : array of shape (d, d) or None
        Strength of every edge, for rankings. None: those of the graph.
    model : object or None
        A circuit, with ``log_likelihood`` and, with a class, ``predict_proba``.
    local : tuple of CausalGraph
        The parties' own graphs beside the common one.
    counts : mapping of str to float
        Exchanges, bytes and whatever else is a number and no metric of the graph.
    shared_seconds : float
        CPU seconds of work that was done for another line before.

    Examples
    --------
    >>> from flwr_causal import CausalGraph
    >>> from benchmarks.world import LineResult
    >>> LineResult(graphs=(CausalGraph(("x", "y"), [[0, 1], [0, 0]]),)).graphs[0].names
    ('x', 'y')
    """

    graphs: tuple[CausalGraph, ...] = ()
    scores: FloatArray | None = None
    model: Any = None
    local: tuple[CausalGraph, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    shared_seconds: float = 0.0

    @property
    def graph(self) -> CausalGraph | None:
        """The first graph; None of a result without graphs."""
        return self.graphs[0] if self.graphs else None
