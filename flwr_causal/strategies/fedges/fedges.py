"""FedGES (Torrijos, Gamez & Puerta 2024): the server's side, and the better forms of the method."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.discrete.scores import score_graph
from flwr_causal.core.ges.fusion import needed
from flwr_causal.core.ges.ges import ges
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.data.check.agreement import agree, with_cuts
from flwr_causal.data.check.party_table import describe, prepare_states
from flwr_causal.data.kinds import DataKind
from flwr_causal.protocol.fedges import CONTRACT
from flwr_causal.strategies.base import Baselines, CausalStrategy
from flwr_causal.strategies.cut_points import CutStage
from flwr_causal.strategies.fedges.fusion import Best, DrivenStage, Fuser, LoopStage, shares_for
from flwr_causal.strategies.fedges.stages import (
    MOST_CELLS,
    CountStage,
    FitStage,
    Fitted,
    Found,
    Problem,
    ScoreStage,
    Stage,
    Step,
    by_name,
    cardinalities_of,
    network_of,
)
from flwr_causal.strategies.options import also_called, require

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.exchange import Contract
    from flwr_causal.protocol.records import Scalar
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.method import Request
    from flwr_causal.strategies.base import RunAlone

    Cuts = Mapping[str, FloatArray]


def ges_baselines(
    frames: Sequence[pd.DataFrame], names: Sequence[str], policy: Policy
) -> Baselines:
    """Return what GES with BIC finds on the pooled rows, and on each party's own."""
    tables = _coded(frames, names, policy)
    alone = [ges(_as_alone(table), score="bic") for table in tables]
    return Baselines(ges(joined(tables), score="bic"), alone, "GES, BIC")


def bdeu(
    frames: Sequence[pd.DataFrame],
    graph: CausalGraph,
    policy: Policy,
    equivalent_sample_size: float,
) -> float:
    """Return the BDeu score of a graph on the pooled rows, in nats."""
    rows = joined(_coded(frames, graph.names, policy))
    return score_graph(graph, rows, "bdeu", equivalent_sample_size)


def joined(tables: Sequence[DiscreteTable]) -> DiscreteTable:
    """Return the rows of several tables with the same states in one."""
    first = tables[0]
    codes = np.concatenate([table.codes for table in tables], axis=1)
    return DiscreteTable(first.names, first.states, codes)


def _as_alone(table: DiscreteTable) -> DiscreteTable:
    """Return a party's table with the states that it has: alone it would know of no others."""
    states, codes = [], np.empty_like(table.codes)
    for j, own in enumerate(table.states):
        seen, codes[j] = np.unique(table.codes[j], return_inverse=True)
        states.append(tuple(own[code] for code in seen))
    return DiscreteTable(table.names, tuple(states), codes)


def _coded(
    frames: Sequence[pd.DataFrame], names: Sequence[str], policy: Policy
) -> list[DiscreteTable]:
    """Return the parties' rows in the states that all of them have together."""
    reports = {
        str(k): describe(frame, policy, states=True) for k, frame in enumerate(frames) if len(frame)
    }
    agreement = agree(reports, policy)
    states = [agreement.states[agreement.names.index(name)] for name in names]
    return [prepare_states(frame, names, states, policy) for frame in frames if len(frame)]


#: Up to so many rows a party qNML's price is too high for sums of local scores (measured).
FEW_ROWS = 100


@dataclass(frozen=True, eq=False)
class FedGESRun:
    """The state of a FedGES run.

    Parameters
    ----------
    agreement : Agreement
        Columns and their states.
    stage : Stage or None
        What the parties are asked next.
    found : Found or None
        The graph so far.
    fitted : Fitted or None
        What the last exchange returned.
    cuts : mapping of str to ndarray
        Agreed cut points of the columns that were discretised.
    exchanges : int
        How many there were.
    small_cells : mapping of str to int
        Cells of few rows that each party has sent.
    """

    agreement: Agreement
    stage: Stage | CutStage | None
    found: Found | None = None
    fitted: Fitted | None = None
    cuts: Cuts = field(default_factory=dict)
    exchanges: int = 0
    small_cells: Mapping[str, int] = field(default_factory=dict)


@also_called(start="start_from", constant="constant_columns")
@dataclass(kw_only=True, eq=False)
class FedGES(CausalStrategy[FedGESRun]):
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

    contract: ClassVar[Contract] = CONTRACT
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
        # Beyond these, scores are no finite numbers.
        usable = 1e-9 <= size <= 1e9
        require(usable, "equivalent_sample_size", size, "above 0, from 1e-9 to 1e9")
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
    def pools_rows(self) -> bool:
        """Whether the search sees the contingency tables of the pooled rows."""
        return self.chosen_mode == "exact"

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
            "minimum-count": self.minimum_count,
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
        return self._after(state, self._first_step(state.agreement))[0]

    def _first_step(self, agreement: Agreement) -> Step:
        """Return the first exchange of the search, or its result where nothing has to be asked."""
        names = tuple(sorted(agreement.names))
        if self.chosen_mode == "fusion":
            fuser = Fuser(names, self.knowledge_or_none)
            return Step(self._fusion_stage(fuser, len(agreement.rows)), {})
        problem = Problem(
            names=names,
            cardinalities=cardinalities_of(agreement),
            rows=agreement.rows,
            score=self._score,
            equivalent_sample_size=self.equivalent_sample_size,
            knowledge=self.knowledge_or_none,
            max_parents=self.max_parents,
            turn=self.turn,
            look_ahead=self.look_ahead,
        )
        stage = CountStage if self.chosen_mode == "exact" else ScoreStage
        return stage.of(problem).advanced()

    def _fusion_stage(self, fuser: Fuser, num_parties: int) -> DrivenStage | LoopStage:
        nothing, start = fuser.nothing(), self.chosen_start
        if start == "driven":
            shares = shares_for(num_parties) if self.fusion is None else (self.fusion,)
            return DrivenStage(fuser, shares, self.patience, nothing, Best(nothing))
        share = "c50" if self.fusion is None else self.fusion
        return LoopStage(fuser, start, share, self.keep != "last", nothing, Best(nothing))

    def finished(self, state: FedGESRun) -> str | None:
        """Return why the run is over."""
        if state.stage is not None:
            return None
        assert state.found is not None
        return state.found.reason

    def request(self, state: FedGESRun) -> Request:
        """Return what the stage sends, with the cut points once they are agreed."""
        assert state.stage is not None
        request = state.stage.request()
        cuts = list(state.cuts.values())
        if not cuts:
            return request
        points = {
            "cuts": np.concatenate(cuts),
            "num-cuts": np.array([len(own) for own in cuts], dtype=np.int64),
        }
        return replace(request, values={**request.values, **points})

    def close(self, state: FedGESRun, replies: Replies) -> tuple[FedGESRun, dict[str, Any]]:
        """Go on to what follows from the replies."""
        stage = state.stage
        state = replace(state, exchanges=state.exchanges + 1)
        if isinstance(stage, CutStage):
            cut = stage.close(replies)
            if cut.stage is not None:
                return replace(state, stage=cut.stage), cut.info
            cuts = dict(zip(state.agreement.continuous, cut.cuts, strict=True))
            agreement = with_cuts(state.agreement, cuts)
            return self._search(replace(state, agreement=agreement, cuts=cuts)), cut.info
        assert stage is not None
        step = stage.close(replies)
        if isinstance(stage, FitStage):
            fitted = stage.fitted(replies)
            cells = {
                name: count + state.small_cells.get(name, 0) for name, count in fitted.small.items()
            }
            return replace(state, stage=None, fitted=fitted, small_cells=cells), step.info
        if isinstance(stage, CountStage):
            state = replace(state, small_cells=stage.noted(replies).small)
        return self._after(state, step)

    def _after(self, state: FedGESRun, step: Step) -> tuple[FedGESRun, dict[str, Any]]:
        """Return the state after a step of the search, with the last exchange where that is due."""
        stage, found = step.stage, step.found or state.found
        # With one exchange in all a graph is worth more than tables for none.
        last = max(1, self.max_rounds - self.fits)
        if stage is not None and state.exchanges >= last:
            if isinstance(stage, ScoreStage):
                found = stage.cut_short()
            elif found is not None:
                found = found._replace(reason=f"all of the {self.max_rounds} exchanges were used")
            stage = None if found is not None else stage
        state = replace(state, stage=stage, found=found)
        if stage is None and found is not None and self.fits and state.exchanges < self.max_rounds:
            state = replace(state, stage=FitStage.of(state.agreement, found))
        return state, step.info

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

    def graph(self, state: FedGESRun) -> CausalGraph | None:
        """Return the class with the parties' agreement as confidence."""
        return graph_of(state)

    def scores(self, state: FedGESRun) -> FloatArray | None:
        """Return the share of the parties' graphs that have each edge (mode "fusion")."""
        return support_of(state)

    def model(self, state: FedGESRun) -> BayesianNetwork | None:
        """Return the Bayesian network of the final graph."""
        if state.fitted is None or state.found is None:
            return None
        counts, size = state.fitted.counts, self.equivalent_sample_size
        return network_of(state.agreement, state.found.dag, counts, size)

    def warnings(self, state: FedGESRun) -> list[str]:
        """Point out what the counts may have told, and what is missing."""
        found = super().warnings(state) + small_cell_warning(state, self.minimum_count)
        if self.chosen_mode != "fusion" or self.fits:
            found += two_party_warning(state)
        return found + (no_network_warning(state) if self.fits else [])


def graph_of(state: FedGESRun) -> CausalGraph | None:
    """Return the class in the order of the agreed columns, None before there is one.

    Its confidence is the share of the parties whose graph has the edge, or whose own score agrees
    with it.
    """
    if state.found is None:
        return None
    back = np.argsort(by_name(state.agreement.names))
    marks = state.found.marks[np.ix_(back, back)]
    support = support_of(state)
    if support is None and state.fitted is not None:
        support = state.fitted.support[np.ix_(back, back)]
    confidence = None
    if support is not None:
        # Parties agree on an edge, not on a direction that the class leaves open.
        confidence = np.where(marks, np.maximum(support, support.T), 0.0)
    weights = marks.astype(np.float64)
    return CausalGraph(state.agreement.names, weights, kind="cpdag", confidence=confidence)


def support_of(state: FedGESRun) -> FloatArray | None:
    """Return the share of the parties' fused graphs that have each edge, shape (d, d)."""
    if state.found is None or state.found.support is None:
        return None
    back = np.argsort(by_name(state.agreement.names))
    return state.found.support[np.ix_(back, back)]


def small_cell_warning(state: FedGESRun, minimum: int) -> list[str]:
    """Say which party sent counts of few rows."""
    small = {name: count for name, count in state.small_cells.items() if count}
    if not small:
        return []
    worst = max(small, key=small.__getitem__)
    return [
        f"{len(small)} of {len(state.agreement.rows)} parties sent counts of fewer than {minimum} "
        f"rows ({worst}: {small[worst]} cells). Who sees the counts learns of single rows: join "
        "rare states, or leave the counts out with mode='scores' and parameters=False."
    ]


def two_party_warning(state: FedGESRun) -> list[str]:
    """Say what sums over two parties tell."""
    if len(state.agreement.rows) != 2:
        return []
    return [
        "The federation has two parties: whoever knows a sum and one party's share of it knows the "
        "other's."
    ]


def no_network_warning(state: FedGESRun) -> list[str]:
    """Say why there is no Bayesian network, where one was wanted and the run is over."""
    if state.fitted is not None or state.stage is not None:
        return []
    return [
        "There is no Bayesian network: a table of probabilities would have more than "
        f"{MOST_CELLS} entries, or the exchanges were used up. Limit the parents with max_parents, "
        "or allow more max_rounds."
    ]
