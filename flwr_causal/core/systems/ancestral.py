"""Effects in systems with hidden common causes, by adjustment where a PAG identifies them.

References
----------
Perković, E., Textor, J., Kalisch, M. & Maathuis, M. H. (2018). Complete graphical characterization
and construction of adjustment sets in Markov equivalence classes of ancestral graphs. JMLR 18.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from flwr_causal.core.answers import NO_EFFECT, Answers
from flwr_causal.core.blocks.contrasts import contrast, contrast_table
from flwr_causal.core.blocks.design import (
    blocks_of_columns,
    column_names,
    has_scores,
    numbers_in_units,
    variables_from_plain,
)
from flwr_causal.core.blocks.disagreement import disagreement
from flwr_causal.core.graphs.graph import CausalGraph, pair_of
from flwr_causal.core.linear.effects import by_adjustment
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.parties import known_parties, lacking_parties
from flwr_causal.core.saved import read_record, undamaged, write_record
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from flwr_causal.core.answers import Effect
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.blocks.design import Variable


@dataclass(frozen=True, eq=False, repr=False)
class AncestralModel(Answers):
    """Second moments of variables with hidden common causes, and the PAG that was found.

    Attributes
    ----------
    graph
        The PAG.
    sample_moments
        Moments of the rows; the columns of a variable lie side by side.
    variables
        Which columns each variable has. Default: all are numbers, whose moments are in the units of
        the data.
    party_moments
        By party, the moments of its rows; None where they are unknown, and in a model that was
        loaded.

    Raises
    ------
    DataError
        If the graph is no PAG of these variables, or the moments are of other columns.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> run = simulate("moments", federated_linear(3, 200, 2)[0], hidden_causes=True)
    >>> run.model.graph.kind
    'pag'
    """

    KIND: ClassVar[str] = "ancestral model"
    FORM: ClassVar[str] = "flwr-causal ancestral model 1"

    graph: CausalGraph
    sample_moments: SampleMoments
    variables: tuple[Variable, ...] = ()
    party_moments: Mapping[str, SampleMoments] | None = None

    def __post_init__(self) -> None:
        if self.graph.marks is None:
            raise DataError(f"an {self.KIND} needs a PAG, not a {self.graph.kind}")
        names = tuple(one.name for one in self._blocks)
        if names != self.graph.names:
            raise DataError(f"the variables are {names}, expected {self.graph.names}")
        if self.sample_moments.names != column_names(self._blocks):
            raise DataError(f"the moments are not those of the columns of {', '.join(names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The variables."""
        return self.graph.names

    def __repr__(self) -> str:
        return f"<AncestralModel: {len(self.names)} variables, {self.graph.num_edges} edges>"

    @property
    def of_scores(self) -> bool:
        """Whether numbers are normal scores, in whose standard deviations effects are."""
        return has_scores(self._blocks)

    def total_effect(
        self,
        cause: str,
        effect: str,
        *,
        state: Any = None,
        reference: Any = None,
        outcome: Any = None,
        level: float = 0.95,
        by_party: bool = False,
    ) -> Effect:
        """Return how much the effect changes on average if the cause is raised, or set to a state.

        The estimate is a contrast of the regression of the effect on the cause and
        :meth:`CausalGraph.adjustment_set`, exactly 0 if the cause is certainly none.

        Parameters
        ----------
        cause, effect : str
            Two different variables.
        state, reference, outcome
            As of :meth:`BlockModel.total_effect <core.systems.blocks.BlockModel.total_effect>`.
            Default, of numbers: the cause is raised by 1.
        level : float, default 0.95
            Of the confidence interval.
        by_party : bool, default False
            Whether the standard error is clustered by party.

        Returns
        -------
        Effect
            In the units of the effect, or as a difference of probabilities; between normal scores
            (:attr:`of_scores`) in standard deviations of them.

        Raises
        ------
        DataError
            If the effect is not identified (the message says which edge leaves it open), a variable
            is unknown, rows are too few, or the adjustment set determines the cause.
        ConfigError
            If a state or the outcome is missing or not possible; with `by_party`, if the moments of
            each of two parties are not known; or if the level is not between 0 and 1.
        """
        i, j = pair_of(self.names, cause, effect)
        asked = contrast(self._blocks[i], self._blocks[j], state, reference, outcome)
        if not self.graph.may_cause(cause, effect):
            return NO_EFFECT
        parties = list(known_parties(self.party_moments).values()) if by_party else []
        adjusted = self.graph.adjustment_set(cause, effect)
        if adjusted is None:
            raise DataError(
                f"the effect of {cause} on {effect} is not identified: no variables block all "
                "paths that are no effects, whatever the circles of the graph stand for"
            )
        blocks = blocks_of_columns(self._blocks, self.sample_moments, parties)
        places = [self.names.index(name) for name in adjusted]
        return by_adjustment(blocks, (i, j), places, asked, level)

    def contrasts(self, cause: str, effect: str, *, level: float = 0.95) -> pd.DataFrame:
        """Return the effects of each state of the cause in place of the first one.

        The table is that of :meth:`BlockModel.contrasts <core.systems.blocks.BlockModel>`, with one
        row for each state and outcome; errors are those of :meth:`total_effect`. Of a model of
        numbers a ConfigError.
        """
        self._require("contrasts")
        i, j = pair_of(self.names, cause, effect)
        found = partial(self.total_effect, cause, effect, level=level)
        return contrast_table(self._blocks[i], self._blocks[j], found)

    def disagreement(self) -> pd.DataFrame:
        """Compare each party's means and standard deviations with those of the others that agree.

        Returns
        -------
        DataFrame
            See :func:`flwr_causal.core.blocks.disagreement.disagreement`; there are no rows of
            effects.

        Raises
        ------
        ConfigError
            If the moments of two parties or more are not known.
        """
        self._require("disagreement")
        d, parties = len(self.names), self.party_moments or {}
        return disagreement(self._blocks, parties, np.zeros((d, d), dtype=np.bool_))

    def with_rows_together(self, together: Sequence[FloatArray]) -> Self:
        """Return the model of rows with missing cells; those of all variables are the same."""
        return replace(self, sample_moments=replace(self.sample_moments, together=together[0]))

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file, without loss."""
        content = {
            "format": self.FORM,
            "graph": self.graph.to_dict(),
            "sample_moments": self.sample_moments.to_plain(),
            "variables": [asdict(one) for one in self.variables],
        }
        write_record(path, "model", content)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the model of a file that :meth:`save` wrote.

        Raises
        ------
        DataError
            If the file is not JSON, has another format, or holds a damaged graph or moments.
        """
        content = read_record(path, cls.KIND, cls.FORM)
        with undamaged(path, "a damaged model"):
            graph = CausalGraph.from_dict(content["graph"], str(path))
            variables = variables_from_plain(content["variables"])
            return cls(graph, SampleMoments.from_plain(**content["sample_moments"]), variables)

    @property
    def _blocks(self) -> tuple[Variable, ...]:
        return self.variables or numbers_in_units(self.graph.names)

    def _lacks(self, question: str) -> str:
        if question == "contrasts" and not self.variables:
            return "all variables are numbers: total_effect is the effect of one unit more"
        if question == "disagreement":
            return lacking_parties(self.party_moments)
        return ""
