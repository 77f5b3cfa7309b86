"""What FedGES asks of the parties' tables, and what is compared with its graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.discrete.cut_points import MAX_EXCHANGES
from flwr_causal.core.ges.fusion import needed
from flwr_causal.core.options import require
from flwr_causal.core.words import by_name
from flwr_causal.data.kinds import DataKind
from flwr_causal.protocol.fedges import CONTRACT, FIT, FedGESPartyOptions
from flwr_causal.strategies.columns import JoiningStrategy, presence_of
from flwr_causal.strategies.fedges.baselines import bdeu, ges_baselines
from flwr_causal.strategies.fedges.by_party import disagreement_of_tables
from flwr_causal.strategies.fedges.options import FEWEST_TESTED, FedGESOptions, JoinedCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import Arrays, IntArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.parts import Part
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.doubts.tables import Expected
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.options import Baselines
    from flwr_causal.strategies.base import RunAlone

#: The fewest exchanges of two searches, each with one for its tables.
FEWEST_ROUNDS = 4


class FedGESTables(JoiningStrategy):
    """Base of FedGES: all but the training."""

    options_type = FedGESOptions
    options: FedGESOptions

    contract: ClassVar[Contract] = CONTRACT
    data = DataKind.CATEGORIES

    def validate(self) -> None:
        """Check that the options fit each other."""
        super().validate()
        rounds = self.options.max_rounds
        if self.options.incomplete:
            needed_rounds = f"{FEWEST_ROUNDS} or more with missing_values='em'"
            require(rounds >= FEWEST_ROUNDS, "max_rounds", rounds, needed_rounds)
        if self.options.hidden_causes:
            needed_rounds = f"{FEWEST_TESTED} or more with hidden_causes=True"
            require(rounds >= FEWEST_TESTED, "max_rounds", rounds, needed_rounds)
        if self.options.fusion is not None:
            needed(self.options.fusion, 1)
        last = self.options.drives and self.options.keep == "last"
        require(not last, "keep", self.options.keep, "'best' for start='driven'")
        _ = self.handling

    @property
    def pools_rows(self) -> bool:
        """Whether the search sees the contingency tables of the pooled rows."""
        return self.options.chosen_mode == "exact" and not self.options.party_column

    @property
    def exchanges_beyond(self) -> int:
        """How many exchanges there may be beyond ``max_rounds``: cut points, and one search."""
        return 1 + (MAX_EXCHANGES if self.options.discretize else 0)

    @property
    def _different(self) -> type[Part]:
        """The part of parties that hold different columns: tables of two or three columns."""
        return JoinedCounts

    @property
    def handling(self) -> Handling:
        """How problems of the data are handled; one row is enough for a party."""
        return replace(super().handling, min_rows=1)

    @property
    def _expected(self) -> Expected:
        """Categories."""
        return replace(super()._expected, nominal=True)

    @property
    def client_options(self) -> FedGESPartyOptions:
        """What the parties need for their own searches and scores."""
        options = self.options
        score = "bdeu" if options.continues and options.score == "auto" else options.chosen_score
        return self.sent(FedGESPartyOptions, score=score, max_edges=options.max_edges or 10)

    def _present(self, agreement: Agreement) -> dict[str, IntArray] | None:
        """Return by party how many rows it has of each number; None where it is all of them."""
        if not agreement.columns_differ:
            return None
        presence = presence_of(agreement, agreement.continuous)
        rows = agreement.rows.items()
        return {name: n * own for (name, n), own in zip(rows, presence, strict=True)}

    @property
    def _transforms(self) -> bool:
        """Whether the variables are other columns than those of the parties' tables."""
        options = self.options
        return bool(options.discretize or options.party_column or self._columns_differ)

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return the graphs of GES with BIC; None where parties cut columns into intervals.

        None also where they are a cause. Of rows with gaps they are this method's own.
        """
        if self._transforms:
            return None
        if self.options.incomplete:
            return super().baselines(tables, names, run_alone)
        return ges_baselines(tables, names, self.handling)

    @property
    def _compared_in(self) -> str:  # type: ignore[override]
        """The exchange of the tables of the graph's families, where these are counts alone."""
        return "" if self.options.secure_aggregation else FIT.name

    def _disagreement(
        self, model: Any, replies: Mapping[str, Arrays], asked: Mapping[str, Any]
    ) -> pd.DataFrame | None:
        """Compare the parties by the tables of the families that each of them sent."""
        if not replies or not getattr(model, "tables", ()):
            return None
        order, d = by_name(model.names), len(model.names)
        edges = np.zeros((d, d), dtype=np.bool_)
        for child, own in enumerate(model.parents):
            edges[list(own), child] = True
        names, states = ([values[k] for k in order] for values in (model.names, model.states))
        return disagreement_of_tables(replies, asked, names, states, edges[np.ix_(order, order)])

    def _pooled_metrics(self, tables: Iterable[pd.DataFrame], graph: CausalGraph) -> dict[str, Any]:
        """Return ``bdeu``, the score in nats; nothing of a PAG, of cut columns, or of gaps."""
        if self._transforms or self.options.incomplete or graph.kind == "pag":
            return {}
        return {
            "bdeu": bdeu(list(tables), graph, self.handling, self.options.equivalent_sample_size)
        }
