"""What a run is compared with in a simulation: pooled rows, and each party alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

#: Runs the strategy on one table as a federation of one party, with some options changed; returns
#: the graph, or the model of a method without one; None if the table cannot be used.
RunAlone = Callable[..., Any]


class Baselines(NamedTuple):
    """The graphs, or models, that are found without a federation.

    Parameters
    ----------
    pooled : CausalGraph or model, or None
        Of the rows of all parties in one place; None where there is no such thing.
    alone : list of the same
        Of each party's own rows.
    solver : str, default ""
        What found them, in a word or two; empty: the method itself.
    """

    pooled: Any
    alone: list[Any]
    solver: str = ""
