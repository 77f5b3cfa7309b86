"""What the linear methods share: centring, scaling, threshold, knowledge, and the final graph."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.graphs.metrics import varsortability
from flwr_causal.core.linear.baselines import all_data, alone, quick_solver
from flwr_causal.core.linear.model import LinearModel, fit
from flwr_causal.core.linear.moments import Moments, data_scale
from flwr_causal.core.threads import single_threaded
from flwr_causal.data.check.agreement import Agreement, pool
from flwr_causal.data.check.party_table import prepare
from flwr_causal.data.kinds import DataKind
from flwr_causal.errors import DataError
from flwr_causal.runtime.method import StateT
from flwr_causal.strategies.base import CausalStrategy
from flwr_causal.strategies.baselines import Baselines
from flwr_causal.strategies.options import require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.records import Scalar
    from flwr_causal.strategies.baselines import RunAlone

    FloatArray = NDArray[np.float64]

# Above this varsortability the variances alone nearly give the order (0.5 is what chance gives).
HIGH_VARSORTABILITY = 0.9
# Ways of centring that give every unit its own level -> what the units are called.
OWN_LEVELS = {"party": "party", "series": "series"}


@dataclass(kw_only=True, eq=False)
class LinearStrategy(CausalStrategy[StateT]):
    """Base of the methods whose model is a linear system over the agreed columns.

    Parameters
    ----------
    standardize : bool, default False
        Divide every column by its standard deviation over the rows of all parties. Raw units can
        give the causal order away (varsortability), or hide it; the graph's weights are then in
        standard deviations, ``run.model`` stays in the data's units.
    center : {"global", "party"}, default "global"
        Subtract the mean over the rows of all parties, or each party's own (the paper's). The
        global one needs no further exchange and loses nothing where parties have few rows;
        each party's own is right where parties differ in level.
    threshold : float, default 0.3
        Edges of absolute weight up to this are left out (Zheng et al. 2018, section 5).
    knowledge : Knowledge, str or None
        Required and forbidden edges and tiers, or the path of a TOML or JSON file with them.
    """

    standardize: bool = False
    center: Literal["global", "party"] = "global"
    threshold: float = 0.3
    knowledge: Knowledge | str | None = None

    def validate(self) -> None:
        """Check the options' values, and read the file of background knowledge."""
        super().validate()
        require(self.threshold >= 0, "threshold", self.threshold, "0 or more")
        if isinstance(self.knowledge, str):
            self.knowledge = Knowledge.load(self.knowledge) if self.knowledge else None

    @property
    def client_options(self) -> dict[str, Scalar]:
        """How the parties center and scale their rows."""
        return {"center": self.center, "standardize": self.standardize}

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on the columns; where each unit has its own level, with the variance within units.

        Raises
        ------
        DataError
            If a column varies between the units only, or as the base's.
        """
        agreement = super().agree(reports)
        unit = OWN_LEVELS.get(self.center)
        if unit is None:
            return agreement
        variance = variance_within(reports, agreement)
        flat = [name for name, v in zip(agreement.names, variance, strict=True) if not v > 0]
        if flat:
            raise DataError(
                f"column {flat[0]!r} does not vary within any {unit}, only between them: leave it "
                "out, or use center='global'"
            )
        return replace(agreement, variance=variance)

    def masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge as masks over the agreed columns."""
        return self.masks_of(agreement.names)

    def masks_of(self, names: Sequence[str]) -> EdgeMasks:
        """Return the background knowledge as masks over columns of these names."""
        return (self.knowledge_or_none or Knowledge()).masks(names)

    @property
    def knowledge_or_none(self) -> Knowledge | None:
        """The background knowledge, read from its file where a path was given."""
        return None if isinstance(self.knowledge, str) else self.knowledge

    @property
    def knowledge_text(self) -> str:
        """The background knowledge as JSON for the parties; empty where there is none."""
        knowledge = self.knowledge_or_none
        return json.dumps(knowledge.to_dict()) if knowledge else ""

    def scale(self, agreement: Agreement) -> FloatArray:
        """Return what the columns are divided by, shape (d,)."""
        ones = np.ones(len(agreement.names))
        return np.sqrt(agreement.variance) if self.standardize else ones

    def noise_scale(self, agreement: Agreement) -> float:
        """Return the unit of the squared loss in which penalties and sparsity are measured."""
        return data_scale(agreement.variance / self.scale(agreement) ** 2)

    def fitted_system(
        self, agreement: Agreement, moments: Moments, adjacency: NDArray[np.bool_]
    ) -> LinearModel:
        """Return the least-squares system of a graph in the units of the data.

        Parameters
        ----------
        agreement : Agreement
        moments : Moments
            Centred and scaled as the optimiser saw them; only entries among a variable and its
            parents are read.
        adjacency : ndarray of bool, shape (d, d)
        """
        scale = self.scale(agreement)
        second = moments.second * np.outer(scale, scale)
        return fit(Moments(moments.n, agreement.mean, second, agreement.names), adjacency)

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return what DAGMA finds, which takes a second where this method may take a minute.

        Of time series there are no baselines here; see ``simulations/series_scenarios.py``.
        """
        if self.data is DataKind.SERIES:
            return None
        rows = [prepare(table, names, self.policy) for table in tables]
        if self.standardize:
            scale = np.concatenate(rows).std(axis=0)
            rows = [part / scale for part in rows]
        parties = [Moments.from_rows(part, names) for part in rows if len(part)]
        with single_threaded():
            pooled = all_data(parties, quick_solver)
            return Baselines(pooled, alone(parties, quick_solver), "DAGMA")

    def order_warning(self, agreement: Agreement, adjacency: NDArray[np.bool_]) -> list[str]:
        """Warn where the variances of the raw columns nearly sort the variables of the graph."""
        if self.standardize or not adjacency.any():
            return []
        value = varsortability(adjacency, agreement.variance)
        if not value > HIGH_VARSORTABILITY:
            return []
        return [
            f"Varsortability is {value:.2f}: causes have smaller variances than their effects "
            "almost everywhere in this graph, so the units of the data may have decided the "
            "directions. Compare with standardize=True before you trust them."
        ]


def variance_within(reports: Mapping[str, TableReport], agreement: Agreement) -> FloatArray:
    """Return each column's mean variance about what every party reports as its own level, (d,)."""
    shares = np.array(list(agreement.rows.values())) / agreement.n
    within = [pool({name: report}, agreement.names)[1] for name, report in reports.items()]
    return np.asarray(shares @ np.array(within))
