"""Effects of numbers and categories with hidden common causes, where a PAG identifies them.

An effect is a contrast of coefficients (:mod:`core.blocks.contrasts`), given an adjustment set of
the generalised adjustment criterion (:mod:`core.graphs.pag.adjustment`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from flwr_causal.core.blocks.contrasts import adjusted_contrast, contrast, contrast_table
from flwr_causal.core.blocks.design import column_names, variables_from_plain
from flwr_causal.core.ges.ancestral_model import adjusted_for
from flwr_causal.core.graphs.effect import NO_EFFECT
from flwr_causal.core.graphs.graph import CausalGraph, pair_of
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.saved import read_record, undamaged, write_record
from flwr_causal.core.threads import SingleThreaded
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.graphs.effect import Effect


@dataclass(frozen=True, eq=False, repr=False)
class AncestralBlockModel(SingleThreaded):
    """Second moments of numbers and categories with hidden common causes, and their PAG.

    Attributes
    ----------
    variables : tuple of Number or Category
    moments : Moments
        Of the rows of all parties; the columns of a variable lie side by side.
    graph : CausalGraph
        The PAG.

    Raises
    ------
    DataError
        If the graph is no PAG of these variables, or the moments are of other columns.
    """

    KIND: ClassVar[str] = "ancestral model of numbers and categories"
    FORM: ClassVar[str] = "flwr-causal ancestral blocks 1"

    variables: tuple[Variable, ...]
    moments: Moments
    graph: CausalGraph

    def __post_init__(self) -> None:
        if self.graph.marks is None:
            raise DataError(f"an {self.KIND} needs a PAG, not a {self.graph.kind}")
        names = tuple(one.name for one in self.variables)
        if names != self.graph.names:
            raise DataError(f"the variables are {names}, expected {self.graph.names}")
        if self.moments.names != column_names(self.variables):
            raise DataError(f"the moments are not those of the columns of {', '.join(names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The variables."""
        return self.graph.names

    def __repr__(self) -> str:
        return f"<AncestralBlockModel: {len(self.names)} variables, {self.graph.num_edges} edges>"

    def total_effect(
        self,
        cause: str,
        effect: str,
        *,
        state: Any = None,
        reference: Any = None,
        outcome: Any = None,
        level: float = 0.95,
    ) -> Effect:
        """Return how much the effect changes on average if the cause is set to another state.

        :meth:`CausalGraph.adjustment_set` is adjusted for; the effect is exactly 0 if the cause is
        certainly none.

        Parameters
        ----------
        cause, effect : str
            Two different variables.
        state, reference, outcome, level
            As of :meth:`BlockModel.total_effect <core.blocks.model.BlockModel.total_effect>`.

        Returns
        -------
        Effect
            In the units of the effect, or as a difference of probabilities.

        Raises
        ------
        ConfigError
            If a state or the outcome is missing or not possible, or the level is not between 0 and
            1.
        DataError
            If the effect is not identified (the message says which edge leaves it open), a variable
            is unknown, rows are too few, or the adjustment set determines the cause.
        """
        i, j = pair_of(self.names, cause, effect)
        asked = contrast(self.variables[i], self.variables[j], state, reference, outcome)
        if not self.graph.may_cause(cause, effect):
            return NO_EFFECT
        adjusted = adjusted_for(self.graph, cause, effect)
        return adjusted_contrast(self.variables, self.moments, (i, j), adjusted, asked, level)

    def contrasts(self, cause: str, effect: str, *, level: float = 0.95) -> pd.DataFrame:
        """Return the effects of each state of the cause in place of the first one.

        The table is that of :meth:`BlockModel.contrasts <core.blocks.model.BlockModel.contrasts>`,
        with one row for each state and outcome; errors are those of :meth:`total_effect`.
        """
        i, j = pair_of(self.names, cause, effect)
        found = partial(self.total_effect, cause, effect, level=level)
        return contrast_table(self.variables[i], self.variables[j], found)

    def with_rows_together(self, together: Sequence[FloatArray]) -> AncestralBlockModel:
        """Return the model of rows with missing cells; those of all variables are the same."""
        return replace(self, moments=replace(self.moments, together=together[0]))

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file, without loss."""
        content = {
            "format": self.FORM,
            "variables": [asdict(one) for one in self.variables],
            "moments": self.moments.to_plain(),
            "graph": self.graph.to_dict(),
        }
        write_record(path, "model", content)

    @classmethod
    def load(cls, path: str | Path) -> AncestralBlockModel:
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
            return cls(variables, Moments.from_plain(**content["moments"]), graph)
