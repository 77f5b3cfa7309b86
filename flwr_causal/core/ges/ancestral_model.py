"""Effects in a linear system with hidden common causes, by adjustment where a PAG identifies them.

References
----------
Perković, E., Textor, J., Kalisch, M. & Maathuis, M. H. (2018). Complete graphical characterization
and construction of adjustment sets in Markov equivalence classes of ancestral graphs. JMLR 18.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.core.graphs.effect import NO_EFFECT
from flwr_causal.core.graphs.graph import CausalGraph, pair_of
from flwr_causal.core.linear.effects import by_regression
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.linear.parties import disagreement, known_parties
from flwr_causal.core.saved import read_record, undamaged, write_record
from flwr_causal.core.threads import SingleThreaded
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.effect import Effect


@dataclass(frozen=True, eq=False, repr=False)
class AncestralModel(SingleThreaded):
    """Second moments of variables with hidden common causes, and the PAG that was found.

    Attributes
    ----------
    graph
        The PAG.
    sample_moments
        Moments of the rows, in the units of the data.
    party_moments
        By party, the moments of its rows; None where they are unknown, and in a model that was
        loaded.

    Raises
    ------
    DataError
        If the graph is no PAG, or the moments are of other variables.
    """

    KIND: ClassVar[str] = "ancestral model"

    graph: CausalGraph
    sample_moments: Moments
    party_moments: Mapping[str, Moments] | None = None

    def __post_init__(self) -> None:
        if self.graph.marks is None:
            raise DataError(f"an {self.KIND} needs a PAG, not a {self.graph.kind}")
        names = self.sample_moments.names
        if names != self.graph.names:
            raise DataError(f"the moments are those of {names}, expected {self.graph.names}")

    @property
    def names(self) -> tuple[str, ...]:
        """The variables."""
        return self.graph.names

    def __repr__(self) -> str:
        return f"<AncestralModel: {len(self.names)} variables, {self.graph.num_edges} edges>"

    def total_effect(
        self, cause: str, effect: str, *, level: float = 0.95, by_party: bool = False
    ) -> Effect:
        """Return how much the effect changes on average for each unit by which the cause is raised.

        The estimate is the coefficient of the cause in the regression of the effect on the cause
        and :meth:`CausalGraph.adjustment_set`, exactly 0 if the cause is certainly none.

        Parameters
        ----------
        cause, effect : str
            Two different variables.
        level : float, default 0.95
            Of the confidence interval.
        by_party : bool, default False
            Whether the standard error is clustered by party.

        Raises
        ------
        DataError
            If the effect is not identified (the message says which edge leaves it open), a variable
            is unknown, rows are too few, or the cause is a linear function of the adjustment set.
        ConfigError
            With `by_party`, if the moments of each of two parties are not known; or if the level is
            not between 0 and 1.
        """
        i, j = pair_of(self.names, cause, effect)
        if not self.graph.may_cause(cause, effect):
            return NO_EFFECT
        parties = list(known_parties(self.party_moments).values()) if by_party else []
        adjusted = adjusted_for(self.graph, cause, effect)
        return by_regression(self.sample_moments, i, j, adjusted, level, parties)

    def disagreement(self) -> pd.DataFrame:
        """Compare each party's means and standard deviations with those of all others.

        Returns
        -------
        DataFrame
            See :func:`flwr_causal.core.linear.parties.disagreement`; there are no rows of effects.

        Raises
        ------
        ConfigError
            If the moments of two parties or more are not known.
        """
        d = len(self.names)
        return disagreement(known_parties(self.party_moments), np.zeros((d, d), dtype=np.bool_))

    def with_rows_together(self, together: Sequence[FloatArray]) -> AncestralModel:
        """Return the model of rows with missing cells; those of all variables are the same."""
        return replace(self, sample_moments=replace(self.sample_moments, together=together[0]))

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file, without loss."""
        content = {
            "format": self._format(),
            "graph": self.graph.to_dict(),
            "sample_moments": self.sample_moments.to_plain(),
        }
        write_record(path, "model", content)

    @classmethod
    def load(cls, path: str | Path) -> AncestralModel:
        """Return the model of a file that :meth:`save` wrote.

        Raises
        ------
        DataError
            If the file is not JSON, has another format, or holds a damaged graph or moments.
        """
        content = read_record(path, cls.KIND, cls._format())
        with undamaged(path, "a damaged model"):
            graph = CausalGraph.from_dict(content["graph"], str(path))
            return cls(graph, Moments.from_plain(**content["sample_moments"]))

    @classmethod
    def _format(cls) -> str:
        return f"flwr-causal {cls.KIND} 1"


def adjusted_for(graph: CausalGraph, cause: str, effect: str) -> list[int]:
    """Return the places of the variables whose adjustment gives a possible effect in a PAG.

    Raises
    ------
    DataError
        If the effect is not identified, or not by adjustment.
    """
    found = graph.adjustment_set(cause, effect)
    if found is None:
        raise DataError(
            f"the effect of {cause} on {effect} is not identified: no variables block all "
            "paths that are no effects, whatever the circles of the graph stand for"
        )
    return [graph.names.index(name) for name in found]
