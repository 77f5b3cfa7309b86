"""FedGES (Torrijos, Gamez & Puerta 2024): the server's side, and the better forms of the method."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.ges.fusion import needed
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.data.check.agreement import with_cuts
from flwr_causal.data.kinds import DataKind
from flwr_causal.strategies.exchange import ExchangeStrategy, Reply, Request
from flwr_causal.strategies.fedges.fedges_plan import first_step
from flwr_causal.strategies.fedges.fedges_run import (
    FedGESRun,
    graph_of,
    no_network_warning,
    small_cell_warning,
    support_of,
    two_party_warning,
)
from flwr_causal.strategies.fedges.pooled import bdeu, ges_baselines
from flwr_causal.strategies.fedges.search_stage import CountStage, ScoreStage
from flwr_causal.strategies.fedges.stages import (
    CutStage,
    FitStage,
    Step,
    network_of,
)
from flwr_causal.strategies.options import also_called, require

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.wire import Scalar, Value
    from flwr_causal.runtime.federation import Party
    from flwr_causal.strategies.baselines import Baselines, RunAlone

    FloatArray = NDArray[np.float64]
    Cuts = Mapping[str, FloatArray]

#: Up to so many rows a party qNML's price is too high for sums of local scores (measured).
FEW_ROWS = 100


@also_called(start="start_from", constant="constant_columns")
@dataclass(kw_only=True, eq=False)
class FedGES(ExchangeStrategy[FedGESRun]):
    """Federated greedy equivalence search on categories (Torrijos, Gamez & Puerta 2024).

    docs/fedges.md says why the defaults are what they are, and the client's docstring
    (:class:`~flwr_causal.clients.fedges.FedGESClient`) what leaves a party. Three modes:

    - "scores": GES on the sum of the parties' own local scores. One number leaves a party for each
      family that is asked about.
    - "exact": GES on the pooled rows, from contingency counts that the parties send. The most
      accurate, and it tells the most.
    - "fusion": the paper's: graphs alone travel, and are fused; with ``start="driven"`` (the
      default) also a few scores.

    Parameters
    ----------
    mode : {"auto", "scores", "exact", "fusion"}, default "auto"
        "auto" is "scores", which measured better than fusion and tells less than counts; it is
        "fusion" where one of that mode's own options is given.
    score : {"auto", "bdeu", "bic", "qnml"}, default "auto"
        "auto" is the paper's BDeu for fusion, BIC for exact; for scores qNML where parties have
        more than 100 rows on average, else BDeu.
    equivalent_sample_size : float, default 1.0
        Of BDeu, at each party (1 in the authors' program), and of the probabilities in
        ``run.model``.
    max_rounds : int, default 100
        Exchanges after the schema exchange. A search that needs more returns what it is sure of.
    fusion : {"union", "c25", "c50"} or float, optional
        Mode "fusion": which edges the fused graph has: all, or those of max(1, floor(K/4)) or
        max(1, floor(K/2)) parties (the paper's), or of a share in (0, 1] of the parties, rounded
        up.
        Default: "c50"; for "driven" several shares, of which scores choose.
    start_from : {"driven", "fuse", "overwrite"}, optional
        May also be given as ``start`` (as an attribute that is Flower's method). Mode "fusion":
        whether parties go on from the fused graph fused with their own ("fuse", the paper's), from
        the fused graph alone ("overwrite"), or from both, the better being chosen by the sum of
        their scores ("driven", the default: the fixed starts each fail on some networks). With
        ``keep="last"`` the default is "fuse".
    max_edges : int, optional
        Mode "fusion": most edges that a party inserts in a round; 10 (the authors' l).
    keep : {"best", "last"}, optional
        Mode "fusion": return the graph with the best sum of scores, or the last one, for which no
        score leaves a party (the paper's). Default "best".
    patience : int, default 3
        Start "driven": rounds without a better graph after which it ends.
    look_ahead : int, optional
        Modes "scores" and "exact": how many operators the search runs ahead on estimates before it
        asks; 0 asks operator by operator. The result does not depend on it. Default: to the end.
    turn : bool, default False
        Also turn edges (Hauser & Buhlmann 2012).
    max_parents : int, optional
        Most parents of a variable. Default: no limit.
    knowledge : Knowledge, str or None
        Required and forbidden edges and tiers, or the path of a TOML or JSON file with them.
    parameters : bool, optional
        Use a last exchange for the tables of probabilities (``run.model``, a Bayesian network) and
        the share of the parties whose own score agrees with each edge (``confidence``). Default:
        in the modes "scores" and "exact"; in "fusion" no counts leave a party unless asked for, and
        the confidence is the share of the parties whose graph has the edge.
    minimum_count : int, default 5
        Cells of contingency tables with fewer rows than this are pointed out in ``run.warnings``.
    discretize : int, default 0
        Into how many intervals of equal frequency to cut numeric columns; 0: such columns are an
        error. The parties agree on the cut points by counts.
    max_states : int, default 64
        Most states of a column.
    constant_columns, text_columns, duplicate_columns : {"keep", "drop", "fail"}, default "keep"
        A column of one state stays as an isolated variable.
    """

    method: ClassVar[str] = "fedges"
    data = DataKind.CATEGORIES

    max_rounds: int = 100
    mode: Literal["auto", "scores", "exact", "fusion"] = "auto"
    score: Literal["auto", "bdeu", "bic", "qnml"] = "auto"
    equivalent_sample_size: float = 1.0
    fusion: str | float | None = None
    start_from: Literal["driven", "fuse", "overwrite"] | None = None
    max_edges: int | None = None
    keep: Literal["best", "last"] | None = None
    patience: int = 3
    look_ahead: int | None = None
    turn: bool = False
    max_parents: int | None = None
    knowledge: Knowledge | str | None = None
    parameters: bool | None = None
    minimum_count: int = 5
    discretize: int = 0
    max_states: int = 64
    constant_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    text_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    duplicate_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]

    def validate(self) -> None:
        """Check the options' values, and read the file of background knowledge."""
        super().validate()
        given = [
            name
            for name in ("fusion", "start_from", "max_edges", "keep")
            if getattr(self, name) is not None
        ]
        if given and self.mode in ("scores", "exact"):
            require(False, given[0], getattr(self, given[0]), "left out, or mode='fusion'")
        if self.fusion is not None:
            needed(self.fusion, 1)
        driven = self.chosen_mode == "fusion" and self.chosen_start == "driven"
        require(
            not (driven and self.keep == "last"), "keep", self.keep, "'best' for start='driven'"
        )
        ahead = self.look_ahead
        require(
            ahead is None or (ahead >= 0 and self.chosen_mode != "fusion"),
            "look_ahead",
            ahead,
            "0 or more, in the modes 'scores' and 'exact'",
        )
        limits = {"max_edges": self.max_edges, "max_parents": self.max_parents}
        for name, value in limits.items():
            require(value is None or value >= 1, name, value, "1 or more")
        require(self.patience >= 1, "patience", self.patience, "1 or more")
        require(self.minimum_count >= 0, "minimum_count", self.minimum_count, "0 or more")
        size = self.equivalent_sample_size
        require(size > 0, "equivalent_sample_size", size, "above 0")
        sampled = self.fraction_train < 1 and self.chosen_mode != "fusion"
        require(
            not sampled, "fraction_train", self.fraction_train, "1, since sums are over all parties"
        )
        if isinstance(self.knowledge, str):
            self.knowledge = Knowledge.load(self.knowledge) if self.knowledge else None
        _ = self.policy

    @property
    def chosen_mode(self) -> str:
        """The mode that runs."""
        if self.mode != "auto":
            return self.mode
        own = (self.fusion, self.start_from, self.max_edges, self.keep)
        return "scores" if all(option is None for option in own) else "fusion"

    @property
    def chosen_start(self) -> Literal["driven", "fuse", "overwrite"]:
        """The start of mode "fusion"; without scores there is nothing to drive it."""
        return self.start_from or ("fuse" if self.keep == "last" else "driven")

    @property
    def fits(self) -> bool:
        """Whether a last exchange fits the tables of probabilities."""
        return self.chosen_mode != "fusion" if self.parameters is None else self.parameters

    def chosen_score(self, rows: float) -> str:
        """Return the score that is used where parties have so many rows on average."""
        if self.score != "auto":
            return self.score
        by_rows = "qnml" if rows > FEW_ROWS else "bdeu"
        return {"fusion": "bdeu", "exact": "bic", "scores": by_rows}[self.chosen_mode]

    @property
    def policy(self) -> Policy:
        """How problems of the data are handled; one row is enough for a party."""
        return replace(super().policy, min_rows=1)

    @property
    def knowledge_or_none(self) -> Knowledge | None:
        """The background knowledge, read from its file where a path was given."""
        return None if isinstance(self.knowledge, str) else self.knowledge

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on columns and states."""
        agreement = super().agree(reports)
        # The parties are told which score they use, which may depend on their number of rows.
        self._score = self.chosen_score(agreement.n / len(agreement.rows))
        return agreement

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return what GES with BIC finds; None where the federation cuts columns into intervals."""
        return None if self.discretize else ges_baselines(tables, names, self.policy)

    def pooled_metrics(self, tables: Iterable[pd.DataFrame], graph: CausalGraph) -> dict[str, Any]:
        """Return ``bdeu``, the score in nats; nothing where columns are cut into intervals."""
        if self.discretize:
            return {}
        return {"bdeu": bdeu(list(tables), graph, self.policy, self.equivalent_sample_size)}

    @property
    def client_options(self) -> dict[str, Scalar]:
        """What the parties need for their own searches and scores."""
        knowledge = self.knowledge_or_none
        return {
            "score": self._score,
            "equivalent-sample-size": self.equivalent_sample_size,
            "max-edges": self.max_edges or 10,
            "max-parents": self.max_parents or 0,
            "turn": self.turn,
            "knowledge": json.dumps(knowledge.to_dict()) if knowledge else "",
        }

    def init(self, agreement: Agreement) -> FedGESRun:
        """Start with the cut points, where columns are to be discretised, else with the search."""
        if self.knowledge_or_none:
            self.knowledge_or_none.masks(agreement.names)
        if agreement.continuous:
            return FedGESRun(agreement, CutStage.of(agreement, self.discretize))
        return self._search(FedGESRun(agreement, None))

    def _search(self, state: FedGESRun) -> FedGESRun:
        """Return the state at the start of the search."""
        return self._after(state, first_step(self, state.agreement, self._score))[0]

    def finished(self, state: FedGESRun) -> str | None:
        """Return why the run is over."""
        if state.stage is not None:
            return None
        assert state.found is not None
        return state.found.reason

    def instructions(self, state: FedGESRun) -> dict[str, Value]:
        """Say which phase it is, and the cut points once they are agreed."""
        assert state.stage is not None
        phase: dict[str, Value] = {"phase": state.stage.phase}
        cuts = list(state.cuts.values())
        if cuts:
            phase |= {"cuts": np.concatenate(cuts).tolist(), "num-cuts": [len(c) for c in cuts]}
        return phase

    def requests(self, state: FedGESRun, parties: Sequence[Party]) -> list[Request]:
        """Return what the stage sends to each party."""
        assert state.stage is not None
        return [state.stage.request(party) for party in parties]

    def fold(self, state: FedGESRun, reply: Reply) -> FedGESRun:
        """Let the stage take a reply."""
        assert state.stage is not None
        return replace(state, stage=state.stage.fold(reply))

    def close_round(self, state: FedGESRun) -> tuple[FedGESRun, dict[str, Any]]:
        """Go on to what follows from the replies."""
        stage = state.stage
        assert stage is not None
        state = replace(state, exchanges=state.exchanges + 1)
        step = stage.close()
        if isinstance(stage, FitStage):
            cells = {
                name: count + state.small_cells.get(name, 0)
                for name, count in stage.small_cells.items()
            }
            return replace(state, stage=None, fitted=stage, small_cells=cells), step.info
        if isinstance(stage, CutStage) and step.stage is None:
            cuts = dict(zip(state.agreement.continuous, stage.cuts(), strict=True))
            agreement = with_cuts(state.agreement, cuts)
            return self._search(replace(state, agreement=agreement, cuts=cuts)), step.info
        if isinstance(stage, CountStage):
            state = replace(state, small_cells=stage.small)
        return self._after(state, step)

    def _after(self, state: FedGESRun, step: Step) -> tuple[FedGESRun, dict[str, Any]]:
        """Return the state after a step of the search, with the last exchange where that is due."""
        stage, found = step.stage, step.found or state.found
        # With one exchange in all a graph is worth more than tables for none.
        last = max(1, self.max_rounds - self.fits)
        if stage is not None and state.exchanges >= last and not isinstance(stage, CutStage):
            if isinstance(stage, ScoreStage):
                found = stage.cut_short()
            elif found is not None:
                found = found._replace(reason=f"all of the {self.max_rounds} exchanges were used")
            stage = None if found is not None else stage
        state = replace(state, stage=stage, found=found)
        if stage is None and found is not None and self.fits and state.exchanges < self.max_rounds:
            state = replace(state, stage=FitStage.of(state.agreement, found, self.minimum_count))
        return state, step.info

    def graph(self, state: FedGESRun) -> CausalGraph | None:
        """Return the class with the parties' agreement as confidence."""
        return graph_of(state)

    def scores(self, state: FedGESRun) -> FloatArray | None:
        """Return the share of the parties' graphs that have each edge (mode "fusion")."""
        return support_of(state)

    def model(self, state: FedGESRun) -> BayesianNetwork | None:
        """Return the Bayesian network of the final graph."""
        if state.fitted is None:
            return None
        return network_of(state.agreement, state.fitted, self.equivalent_sample_size)

    def warnings(self, state: FedGESRun) -> list[str]:
        """Point out what the counts may have told, and what is missing."""
        found = small_cell_warning(state, self.minimum_count)
        if self.chosen_mode != "fusion" or self.fits:
            found += two_party_warning(state)
        return found + (no_network_warning(state) if self.fits else [])
