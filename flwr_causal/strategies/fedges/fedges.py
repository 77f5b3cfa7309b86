"""FedGES (Torrijos, Gamez & Puerta 2024): the strategy, with the modes on scores and on counts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.discrete.cut_points import MAX_EXCHANGES
from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.discrete.mixed_moments import FEW_NUMBERS
from flwr_causal.core.discrete.scores import score_graph
from flwr_causal.core.ges.fusion import needed
from flwr_causal.core.ges.ges import ges
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.data.check.agreement import agree, with_cuts
from flwr_causal.data.check.party_table import describe, prepare_states
from flwr_causal.data.kinds import DataKind
from flwr_causal.errors import ConfigError
from flwr_causal.protocol.columns import MASKED_TABLES, PRODUCTS
from flwr_causal.protocol.cuts import CUTS
from flwr_causal.protocol.fedges import (
    CONTRACT,
    COUNTS,
    FIT,
    GRAPH,
    GRAPHS,
    JUDGE,
    JUDGED_GRAPH,
    LIKELIHOODS,
    MOMENTS,
    POOLED_COUNTS,
    POOLED_FIT,
    POOLED_MOMENTS,
    SCORES,
)
from flwr_causal.protocol.row_ids import ALIGN
from flwr_causal.strategies.base import Baselines
from flwr_causal.strategies.columns import Aligning, JoiningStrategy
from flwr_causal.strategies.cut_points import CutStage
from flwr_causal.strategies.fedges.fusion import Best, DrivenStage, Fuser, LoopStage, shares_for
from flwr_causal.strategies.fedges.joined import MOST_PARENTS, Joined, JoinedStage
from flwr_causal.strategies.fedges.stages import (
    MOST_CELLS,
    CountStage,
    FitStage,
    Fitted,
    Found,
    LikelihoodStage,
    MomentStage,
    Problem,
    ScoreStage,
    Stage,
    Step,
    by_name,
    cardinalities_of,
    network_of,
    small_cells,
)
from flwr_causal.strategies.options import Mode, also_called, only, require
from flwr_causal.strategies.variant import USUAL, OfPaper, PaperVariant, settle_variant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
    from flwr_causal.core.discrete.mixed_network import MixedNetwork
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.plausibility import Expected
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.protocol.exchange import Contract, Exchange
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
    """Return a party's table with only the states that occur in its rows."""
    states, codes = [], np.empty_like(table.codes)
    for j, own in enumerate(table.states):
        seen, codes[j] = np.unique(table.codes[j], return_inverse=True)
        states.append(tuple(own[code] for code in seen))
    return DiscreteTable(table.names, tuple(states), codes)


def _coded(
    frames: Sequence[pd.DataFrame], names: Sequence[str], policy: Policy
) -> list[DiscreteTable]:
    """Return the parties' rows, coded by the states of all parties together."""
    # The gaps of other columns are no reason to leave a row out.
    frames = [frame.loc[:, frame.columns.isin(names)] for frame in frames]
    reports = {
        str(k): describe(frame, policy, states=True) for k, frame in enumerate(frames) if len(frame)
    }
    agreement = agree(reports, policy)
    states = [agreement.states[agreement.names.index(name)] for name in names]
    return [prepare_states(frame, names, states, policy) for frame in frames if len(frame)]


#: The scores that refine the graph of mode "scores", among which the held-out likelihood chooses;
#: of graphs of the same likelihood the first.
CANDIDATES = ("qnml", "bic", "bdeu")
#: The score of tables with numbers and categories.
MIXED = "conditional-gaussian"
#: The name of the graph of driven rounds, beside those of the scores, in the history.
DRIVEN = "driven rounds"
#: The settings of Torrijos, Gamez & Puerta (2024). The paper names neither BDeu's sample size nor a
#: number of rounds.
OF_PAPER = OfPaper(
    fixed={
        **USUAL,
        "mode": "fusion",
        # Section 3.
        "score": "bdeu",
        # Algorithm 1: the server's last graph; parties send graphs only.
        "keep": "last",
        "parameters": False,
        # Section 4.1; the number is l of the authors' program.
        "max_edges": 10,
        "max_fused_edges": None,
        # Section 2.2: GES is FES and BES.
        "turn": False,
        "max_parents": None,
    },
    choices={
        # Section 4.1.
        "fusion": ("union", "c25", "c50"),
        # Section 3.
        "start_from": ("fuse", "overwrite"),
    },
)
#: The options that select mode "fusion".
OF_FUSION = ("fusion", "start_from", "max_edges", "max_fused_edges", "keep")


@dataclass(frozen=True, eq=False)
class FedGESRun:
    """The state of a FedGES run.

    Parameters
    ----------
    agreement : Agreement
        Columns and their states.
    stage : Stage or None
        The next exchange; None at the end.
    found : Found or None
        The graph so far.
    fitted : Fitted or None
        The tables from the last exchange.
    mixed : MixedNetwork or None
        The network of numbers and categories.
    cuts : mapping of str to ndarray
        Agreed cut points of the columns that were discretised.
    exchanges : int
        Number of exchanges so far.
    small_cells : mapping of str to int
        By party, the number of cells with few rows that it has sent.
    joined : Joined or None
        The tables of the joined rows, where parties hold different columns.
    """

    agreement: Agreement
    stage: Stage | CutStage | JoinedStage | None
    found: Found | None = None
    fitted: Fitted | None = None
    mixed: MixedNetwork | None = None
    cuts: Cuts = field(default_factory=dict)
    exchanges: int = 0
    small_cells: Mapping[str, int] = field(default_factory=dict)
    joined: Joined | None = None


OF_FUSED_GRAPHS = Mode(
    "mode='fusion', or mode='scores' with start='driven'",
    lambda method: method.continues or method.chosen_mode == "fusion",
)
OF_DRIVEN = Mode("start='driven'", lambda method: method.drives)
OF_SUMS = Mode("mode='scores' or 'exact'", lambda method: method.chosen_mode != "fusion")
OF_PRIOR = Mode(
    "score='bdeu' or parameters=True",
    lambda method: method.fits or method.continues or method.chosen_score == "bdeu",
)
NOT_MIXED = Mode("other scores than 'conditional-gaussian'", lambda method: method.score != MIXED)


@also_called(start="start_from", constant="constant_columns")
@dataclass(kw_only=True, eq=False)
class FedGES(PaperVariant, JoiningStrategy[FedGESRun]):
    """Federated greedy equivalence search on categories (Torrijos, Gamez & Puerta 2024).

    docs/fedges.md says why the defaults are what they are, and the client's docstring
    (:class:`~flwr_causal.clients.fedges.FedGESClient`) what leaves a party. Three modes:

    - "scores": GES on sums over the parties. A party sends two numbers for each gain that the
      search needs, and then counts of the variables that the found graph joins.
    - "exact": GES on the pooled rows, from contingency counts that the parties send. This mode is
      the most accurate and discloses the most. Parties may hold different columns of the same rows
      (``row_id``) if ``max_parents`` is 1, or 2 where no three columns are each at another party:
      three exchanges of masked marks of states count the joined rows, and the graph is theirs.
    - "fusion": Parties send graphs, which the server fuses; with ``start="driven"`` (the default)
      also their scores of the fused graphs.

    Parameters
    ----------
    variant : {"default", "paper"}, default "default"
        "paper" is Algorithm 1: mode "fusion" with BDeu and at most 10 insertions a round, the last
        graph, no scores and no tables. ``fusion`` is then "union" (left out), "c25" or "c50", and
        ``start`` "fuse" (left out) or "overwrite". Without a limit on their growth fused graphs of
        some networks take very long.
    mode : {"auto", "scores", "exact", "fusion"}, default "auto"
        "auto" is "scores", or "fusion" if ``fusion``, ``start_from``, ``max_edges``,
        ``max_fused_edges`` or ``keep`` is given, or "exact" for ``score="conditional-gaussian"``.
        With ``mode="scores"`` these options need ``start_from="driven"``.
        Scores are more accurate than fusion (measured) and disclose less than exact.
    score : {"auto", "bdeu", "bic", "qnml", "conditional-gaussian"}, default "auto"
        "auto" is BDeu for fusion and BIC for exact. For scores the server searches by
        qNML on sums of likelihoods, then on counts by qNML, BIC and BDeu among the edges that it
        found, and the last exchange chooses the graph with the highest held-out log-likelihood
        (the history names it). With ``parameters=False`` no counts are sent, and the graph is that
        of the first search. For scores, BIC and qNML have one penalty, that of the rows of all
        parties; BDeu is the sum of the parties' own scores, and "auto" for ``start_from="driven"``
        means BDeu at the parties. "conditional-gaussian" takes columns
        of numbers as they are, beside categories (Andrews, Ramsey & Cooper 2018), in mode "exact".
    equivalent_sample_size : float, default 1.0
        Weight of the prior in rows: of BDeu at each party (1 in the authors' program), and of the
        probabilities in ``run.model``.
    max_rounds : int, default 100
        Largest number of exchanges after the schema exchange. A search that needs more returns the
        graph that it has reached with known scores.
    fusion : {"union", "c25", "c50"} or float, optional
        Mode "fusion": how many parties' graphs must have an edge of the fused graph. "union": one;
        "c25" and "c50": max(1, floor(K/4)) and max(1, floor(K/2)) of K; a number in
        (0, 1]: that share of the parties, rounded up. Default: "c50"; for "driven" several shares,
        among which the scores choose.
    start_from : {"driven", "fuse", "overwrite"}, optional
        ``start`` is another name of this option. Mode "fusion": the graph from which parties
        search. "fuse": the fused graph fused with the party's own one; "overwrite":
        the fused graph; "driven": both, and the sum of the parties' scores chooses. Default:
        "driven", because each of the others fails on some networks; with ``keep="last"`` "fuse".
        With ``mode="scores"`` "driven" adds such rounds, from the graph that the search found; the
        result is the graph with the higher held-out log-likelihood.
    max_edges : int, optional
        Mode "fusion": largest number of edges that a party inserts in a round. Default: 10 (the
        authors' l).
    max_fused_edges : int, optional
        Mode "fusion": largest number of edges of a fused graph. If it would have more, those in
        most of the parties' graphs are kept. With a fixed start and ``fusion="c50"`` graphs of some
        networks grow from round to round; this option limits them. Default: no limit.
    keep : {"best", "last"}, optional
        Mode "fusion": return the graph with the highest sum of the parties' scores, or the last
        one, for which parties send no score. Default: "best".
    patience : int, default 3
        Start "driven": number of rounds without a better graph after which the run ends.
    look_ahead : int, optional
        Modes "scores" and "exact": how many operators the speculative search applies after the
        first unknown gain before the server asks the parties; 0 asks for one operator at a time.
        The result does not depend on this option. Default: to the end of the search.
    turn : bool, default False
        Also turn edges (Hauser & Buhlmann 2012).
    max_parents : int, optional
        Largest number of parents of a variable. Default: no limit.
    knowledge : Knowledge, str or None
        Required and forbidden edges and tiers, or the path of a TOML or JSON file with them.
    parameters : bool, optional
        Use a last exchange for the tables of probabilities (``run.model``, a Bayesian network) and
        the share of the parties whose own score agrees with each edge (``party_agreement``).
        Default: True in the modes "scores" and "exact"; False in "fusion", where no counts leave a
        party then, and it is the share of the parties whose graph has the edge.
    discretize : int, default 0
        Number of intervals of equal frequency into which numeric columns are cut; with 0 such
        columns are an error. The cut points follow from the parties' counts.
    max_states : int, default 64
        Largest number of states of a column.
    constant_columns : {"keep", "drop", "fail"}, default "keep"
        What to do about columns of one state: "keep" leaves them as isolated variables.
    categories : str, default ""
        Columns that are categories, separated by commas: all parties read them as text, in the
        spelling of their cells, such as the codes "250.0" and "250.00".
    numbers : str, default ""
        Columns that are numbers, separated by commas, also where they have few different values.
    text_columns : {"keep", "drop", "fail"}, default "keep"
        What to do about columns that hold no numbers: "keep" takes them as categories.
    duplicate_columns : {"keep", "drop", "fail"}, default "keep"
        What to do about columns that equal another one in every row.

    References
    ----------
    Torrijos, Gamez & Puerta (2024). FedGES: a federated learning approach for Bayesian network
    structure learning.
    """

    contract: ClassVar[Contract] = CONTRACT
    data = DataKind.CATEGORIES

    max_rounds: int = 100
    mode: Literal["auto", "scores", "exact", "fusion"] = "auto"
    score: Literal["auto", "bdeu", "bic", "qnml", "conditional-gaussian"] = "auto"
    equivalent_sample_size: float = only(OF_PRIOR, 1.0)
    fusion: str | float | None = only(OF_FUSED_GRAPHS, None)
    start_from: Literal["driven", "fuse", "overwrite"] | None = only(OF_FUSED_GRAPHS, None)
    max_edges: int | None = only(OF_FUSED_GRAPHS, None)
    max_fused_edges: int | None = only(OF_FUSED_GRAPHS, None)
    keep: Literal["best", "last"] | None = only(OF_FUSED_GRAPHS, None)
    patience: int = only(OF_DRIVEN, 3)
    look_ahead: int | None = only(OF_SUMS, None)
    turn: bool = False
    max_parents: int | None = None
    knowledge: Knowledge | str | None = None
    parameters: bool | None = None
    discretize: int = only(NOT_MIXED, 0)
    max_states: int = 64
    constant_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    categories: str = ""
    numbers: str = ""
    text_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    duplicate_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]

    def validate(self) -> None:
        """Check the options' values, and read the file of background knowledge."""
        settle_variant(self)
        super().validate()
        require(
            not self.continues or self.fits,
            "parameters",
            self.parameters,
            "True for start='driven' in mode 'scores', where the last exchange chooses the graph",
        )
        if self.score == MIXED:
            require(self.chosen_mode == "exact", "score", MIXED, "another one, or mode='exact'")
        if self.fusion is not None:
            needed(self.fusion, 1)
        last = self.drives and self.keep == "last"
        require(not last, "keep", self.keep, "'best' for start='driven'")
        ahead = self.look_ahead
        require(ahead is None or ahead >= 0, "look_ahead", ahead, "0 or more")
        for name in ("max_edges", "max_fused_edges", "max_parents"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, value, "1 or more")
        require(self.patience >= 1, "patience", self.patience, "1 or more")
        size = self.equivalent_sample_size
        # Outside this range scores are not finite.
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
    def of_paper(self) -> OfPaper:
        """The settings of Torrijos, Gamez & Puerta (2024)."""
        return OF_PAPER

    @property
    def chosen_mode(self) -> str:
        """The mode that runs."""
        if self.mode != "auto":
            return self.mode
        if self.score == MIXED:
            return "exact"
        given = any(getattr(self, name) is not None for name in OF_FUSION)
        return "fusion" if given else "scores"

    @property
    def chosen_start(self) -> Literal["driven", "fuse", "overwrite"]:
        """The start of mode "fusion"; "driven" needs scores, which ``keep="last"`` excludes."""
        return self.start_from or ("fuse" if self.keep == "last" else "driven")

    @property
    def continues(self) -> bool:
        """Whether driven rounds follow the search of mode "scores"."""
        return self.mode == "scores" and self.start_from == "driven"

    @property
    def drives(self) -> bool:
        """Whether the sum of the parties' scores chooses among starts, round by round."""
        return self.continues or (self.chosen_mode == "fusion" and self.chosen_start == "driven")

    @property
    def pools_rows(self) -> bool:
        """Whether the search sees the contingency tables of the pooled rows."""
        return self.chosen_mode == "exact"

    @property
    def exchanges_beyond(self) -> int:
        """How many exchanges there may be beyond ``max_rounds``: cut points, and one search."""
        return 1 + (MAX_EXCHANGES if self.discretize else 0)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges of the mode."""
        if self.columns_differ:
            cuts = (CUTS,) if self.discretize else ()
            return (*cuts, ALIGN, MASKED_TABLES, PRODUCTS)
        pooled = self.secure_aggregation
        if self.score == MIXED:
            return (POOLED_MOMENTS if pooled else MOMENTS,)
        counts, fit = (POOLED_COUNTS, POOLED_FIT) if pooled else (COUNTS, FIT)
        found = [CUTS] if self.discretize else []
        if self.chosen_mode == "exact":
            found.append(counts)
        elif self.chosen_mode == "scores":
            found.append(SCORES if self.chosen_score == "bdeu" else LIKELIHOODS)
            found += [counts] if self.refined_by else []
        if self.continues or self.chosen_mode == "fusion":
            found += [GRAPH, JUDGED_GRAPH, GRAPHS, JUDGE]
        return (*found, *((fit,) if self.fits else ()))

    @property
    def with_secure_aggregation(self) -> dict[str, tuple[bool, str]]:
        """Which options fit secure sums: graphs are no sums."""
        return {
            **super().with_secure_aggregation,
            "mode": (self.chosen_mode != "fusion", "'scores' or 'exact'"),
            "start_from": (not self.continues, "left out"),
        }

    @property
    def joins_columns(self) -> bool:  # type: ignore[override]
        """Whether rows of different parties may be matched by ids."""
        return self.chosen_mode == "exact"

    @property
    def with_different_columns(self) -> dict[str, tuple[bool, str]]:
        """Which options fit parties that hold different columns: tables of two or three columns."""
        few = self.max_parents is not None and self.max_parents <= MOST_PARENTS
        return {
            "max_parents": (few, " or ".join(str(k) for k in range(1, MOST_PARENTS + 1))),
            "score": (self.score != MIXED, "another one"),
            "max_rounds": (self.max_rounds >= 3, "3 or more"),
            "small_counts": (self.small_counts == "report", "'report'"),
            **super().with_different_columns,
        }

    @property
    def fits(self) -> bool:
        """Whether a last exchange fits the tables of probabilities."""
        return self.chosen_mode != "fusion" if self.parameters is None else self.parameters

    @property
    def chosen_score(self) -> str:
        """The score of the search, and of the parties' votes."""
        if self.score != "auto":
            return self.score
        return {"scores": "qnml", "exact": "bic", "fusion": "bdeu"}[self.chosen_mode]

    @property
    def refined_by(self) -> tuple[str, ...]:
        """The scores of the search on counts that follows a search on likelihoods."""
        if self.chosen_mode != "scores" or not self.fits or self.score == "bdeu":
            return ()
        return CANDIDATES if self.score == "auto" else (self.score,)

    @property
    def policy(self) -> Policy:
        """How problems of the data are handled; one row is enough for a party."""
        policy = replace(super().policy, min_rows=1)
        if self.score != MIXED:
            return policy
        # Columns of numbers are those that would be cut into intervals.
        few = min(FEW_NUMBERS, self.max_states)
        return replace(policy, discretize=few, number_states=few)

    @property
    def expected(self) -> Expected:
        """Numbers with densities, where they are taken as they are."""
        return replace(super().expected, densities=self.score == MIXED)

    @property
    def knowledge_or_none(self) -> Knowledge | None:
        """The background knowledge, read from its file where a path was given."""
        return None if isinstance(self.knowledge, str) else self.knowledge

    @property
    def _takes_numbers(self) -> bool:
        """Whether columns of numbers are cut into intervals, or taken as they are."""
        return self.discretize > 0 or self.score == MIXED

    @property
    def client_options(self) -> dict[str, Scalar]:
        """What the parties need for their own searches and scores."""
        knowledge = self.knowledge_or_none
        return {
            "score": "bdeu" if self.continues and self.score == "auto" else self.chosen_score,
            "equivalent-sample-size": self.equivalent_sample_size,
            "max-edges": self.max_edges or 10,
            "max-parents": self.max_parents or 0,
            "turn": self.turn,
            "seed": self.seed,
            "knowledge": json.dumps(knowledge.to_dict()) if knowledge else "",
        }

    def init(self, agreement: Agreement) -> FedGESRun:
        """Start with the cut points, where columns are to be discretised, else with the search."""
        if self.knowledge_or_none:
            required = self.knowledge_or_none.masks(agreement.names).required
            if self.columns_differ:
                self._check_required(required, agreement.names)
        if agreement.continuous and self.score != MIXED:
            stage = CutStage.of(agreement, self.discretize, self._present(agreement))
            return FedGESRun(agreement, stage)
        return self._search(FedGESRun(agreement, None))

    def _present(self, agreement: Agreement) -> dict[str, IntArray] | None:
        """Return by party how many rows it has of each number; None where it is all of them."""
        if not self.columns_differ:
            return None
        presence = self.presence_of(agreement.continuous)
        rows = agreement.rows.items()
        return {name: n * own for (name, n), own in zip(rows, presence, strict=True)}

    def replicated(self, state: FedGESRun, agreement: Agreement, number: int) -> FedGESRun | None:
        """Return the start of a replicate's search, by the cut points of all rows.

        Where columns differ, the counts of all replicates come with those of all rows.
        """
        if isinstance(state.stage, CutStage) or (self.columns_differ and state.joined is None):
            return None
        if state.joined is not None:
            joined = replace(state.joined, number=number)
            return replace(state, found=joined.search(), fitted=None, joined=joined)
        begun = FedGESRun(state.agreement, None, cuts=state.cuts, exchanges=state.exchanges)
        return self._search(begun)

    def _check_required(self, required: BoolArray, names: Sequence[str]) -> None:
        """Raise a ConfigError if required edges ask for tables of more columns than are counted."""
        most = self.max_parents or 0
        for name, causes in zip(names, required.T, strict=True):
            if causes.sum() > most:
                listed = ", ".join(repr(names[k]) for k in np.flatnonzero(causes).tolist())
                raise ConfigError(
                    f"the background knowledge requires {causes.sum()} causes of {name!r} "
                    f"({listed}), and over different columns there are at most max_parents={most}: "
                    "require fewer edges"
                )

    def _search(self, state: FedGESRun) -> FedGESRun:
        """Return the state at the start of the search."""
        agreement = state.agreement
        if not self.columns_differ:
            return self._after(state, self._first_step(agreement))[0]
        problem = self._problem(agreement)
        presence = self.presence_of(problem.names)
        aligning = Aligning(self.holders_of(agreement, problem.names, presence))
        return replace(state, stage=JoinedStage(problem, presence, aligning, state.cuts))

    def _problem(self, agreement: Agreement) -> Problem:
        """Return the variables and options of a search on sums."""
        return Problem(
            names=tuple(sorted(agreement.names)),
            cardinalities=cardinalities_of(agreement),
            num_rows=agreement.n,
            num_parties=agreement.num_parties,
            score=self.chosen_score,
            refined_by=self.refined_by,
            equivalent_sample_size=self.equivalent_sample_size,
            knowledge=self.knowledge_or_none,
            max_parents=self.max_parents,
            turn=self.turn,
            look_ahead=self.look_ahead,
            pooled=self.secure_aggregation,
            withheld=self.small_counts == "suppress",
        )

    def _first_step(self, agreement: Agreement) -> Step:
        """Return the first exchange of the search, or its result where no exchange is needed."""
        if self.chosen_mode == "fusion":
            return Step(self._fusion_stage(agreement), {})
        problem = self._problem(agreement)
        if self.score == MIXED:
            return MomentStage.of(problem).advanced()
        if self.chosen_mode == "exact":
            return CountStage.of(problem).advanced()
        stage = ScoreStage if self.chosen_score == "bdeu" else LikelihoodStage
        return stage.of(problem).advanced()

    def _fusion_stage(
        self, agreement: Agreement, begin: BoolArray | None = None
    ) -> DrivenStage | LoopStage:
        """Return the first round of fusion, from a DAG or from no edges."""
        names = tuple(sorted(agreement.names))
        fuser, start = Fuser(names, self.knowledge_or_none, self.max_fused_edges), self.chosen_start
        first = fuser.first(begin)
        if start == "driven":
            shares = shares_for(len(agreement.rows)) if self.fusion is None else (self.fusion,)
            return DrivenStage(fuser, shares, self.patience, first, Best(first))
        share = "c50" if self.fusion is None else self.fusion
        return LoopStage(
            fuser, start, share, self.keep != "last", first, Best(first), endless=self.papers
        )

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
        aligns = isinstance(state.stage, JoinedStage) and state.stage.parts is None
        if not cuts or aligns:
            return request
        points = {
            "cuts": np.concatenate(cuts),
            "num-cuts": np.array([len(own) for own in cuts], dtype=np.int64),
        }
        return replace(request, values={**request.values, **points})

    def close(self, state: FedGESRun, replies: Replies) -> tuple[FedGESRun, dict[str, Any]]:
        """Return the state after an exchange."""
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
        if isinstance(stage, JoinedStage):
            following = stage.close(replies)
            if isinstance(following, JoinedStage):
                return replace(state, stage=following), {}
            found = following.search()
            fitted = following.fitted(found) if self.fits else None
            state = replace(state, stage=None, found=found, fitted=fitted, joined=following)
            return state, {"num_edges": int(found.dag.sum()), **following.info}
        if isinstance(stage, CountStage | MomentStage | FitStage):
            before = state.small_cells
            cells = {name: n + before.get(name, 0) for name, n in small_cells(replies).items()}
            state = replace(state, small_cells={**before, **cells})
        step = stage.close(replies)
        if isinstance(stage, FitStage):
            fitted = stage.fitted(replies)
            # One exchange at least is kept for the tables of the graph of the rounds.
            rounds = self.continues and not state.fitted and state.exchanges < self.max_rounds - 1
            onward = self._fusion_stage(state.agreement, fitted.found.dag) if rounds else None
            return replace(state, stage=onward, found=fitted.found, fitted=fitted), step.info
        state, info = self._after(state, step)
        if isinstance(stage, MomentStage) and state.stage is None and state.found and self.fits:
            size = self.equivalent_sample_size
            state = replace(state, mixed=stage.network(state.agreement, state.found, size))
        return state, info

    def _after(self, state: FedGESRun, step: Step) -> tuple[FedGESRun, dict[str, Any]]:
        """Return the state after a step of the search: its next exchange, or the last one."""
        stage, found, others = step.stage, step.found or state.found, step.others
        # The last exchange is kept for the tables. If there is only one, the search has it.
        fits = self.fits and self.score != MIXED
        last = max(1, self.max_rounds - fits)
        if stage is not None and state.exchanges >= last:
            if isinstance(stage, ScoreStage | CountStage | MomentStage):
                found = stage.cut_short()
            elif found is not None:
                found = found._replace(reason=f"all of the {self.max_rounds} exchanges were used")
            stage = None if found is not None else stage
        if stage is None and found is not None and state.fitted is not None:
            if np.array_equal(found.marks, state.fitted.found.marks):
                return replace(state, stage=None, found=state.fitted.found), step.info
            # Votes replace the shares of the fused graphs, which the other graph does not have.
            found, others = found._replace(support=None, score=DRIVEN), (state.fitted.found,)
        state = replace(state, stage=stage, found=found)
        if stage is None and found is not None and fits and state.exchanges < self.max_rounds:
            graphs, size = (found, *others), self.equivalent_sample_size
            state = replace(
                state,
                stage=FitStage.of(state.agreement, graphs, size, pooled=self.secure_aggregation),
            )
        return state, step.info

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return what GES with BIC finds; None where the federation cuts columns into intervals."""
        if self._takes_numbers or self.columns_differ:
            return None
        return ges_baselines(tables, names, self.policy)

    def pooled_metrics(self, tables: Iterable[pd.DataFrame], graph: CausalGraph) -> dict[str, Any]:
        """Return ``bdeu``, the score in nats; nothing where columns are cut into intervals."""
        if self._takes_numbers or self.columns_differ:
            return {}
        return {"bdeu": bdeu(list(tables), graph, self.policy, self.equivalent_sample_size)}

    def graph(self, state: FedGESRun) -> CausalGraph | None:
        """Return the class, with the parties' agreement."""
        return graph_of(state)

    def scores(self, state: FedGESRun) -> FloatArray | None:
        """Return the share of the parties' graphs that have each edge (mode "fusion")."""
        return support_of(state)

    def num_rows(self, state: FedGESRun) -> int | None:
        """Return the number of different rows, where parties hold different columns; else None."""
        return None if state.joined is None else state.joined.total

    def model(self, state: FedGESRun) -> BayesianNetwork | MixedNetwork | None:
        """Return the Bayesian network of the final graph."""
        if state.mixed is not None and state.stage is None:
            return state.mixed
        if state.fitted is None or state.found is None:
            return None
        network = network_of(state.agreement, state.fitted, self.equivalent_sample_size, state.cuts)
        if state.joined is None:
            return network
        return replace(network, further_counts=state.joined.further_counts(network.names))

    def warnings(self, state: FedGESRun) -> list[str]:
        """Warn of counts of few rows, of sums over two parties, and of a missing network."""
        found = super().warnings(state) + small_cell_warning(state, self)
        if state.joined is not None:
            return found + state.joined.warnings
        if self.chosen_mode != "fusion" or self.fits:
            found += two_party_warning(state)
        return found + (no_network_warning(state) if self.fits else [])


def graph_of(state: FedGESRun) -> CausalGraph | None:
    """Return the class in the order of the agreed columns, None before there is one.

    Its ``party_agreement`` is the share of the parties whose graph has the edge, or whose own score
    agrees with it.
    """
    if state.found is None:
        return None
    back = np.argsort(by_name(state.agreement.names))
    marks = state.found.marks[np.ix_(back, back)]
    support = support_of(state)
    if support is None and state.fitted is not None and state.fitted.support is not None:
        support = state.fitted.support[np.ix_(back, back)]
    shares = None
    if support is not None:
        # Parties agree on an edge, not on a direction that the class leaves open.
        shares = np.where(marks, np.maximum(support, support.T), 0.0)
    weights = marks.astype(np.float64)
    return CausalGraph(state.agreement.names, weights, kind="cpdag", party_agreement=shares)


def support_of(state: FedGESRun) -> FloatArray | None:
    """Return the share of the parties' fused graphs that have each edge, shape (d, d)."""
    if state.found is None or state.found.support is None:
        return None
    back = np.argsort(by_name(state.agreement.names))
    return state.found.support[np.ix_(back, back)]


def small_cell_warning(state: FedGESRun, method: FedGES) -> list[str]:
    """Warn of counts of few rows: that parties sent them, or withheld them."""
    small = {name: count for name, count in state.small_cells.items() if count}
    if not small:
        return []
    worst, minimum = max(small, key=small.__getitem__), method.minimum_count
    if method.small_counts == "suppress":
        return [
            f"{len(small)} of {len(state.agreement.rows)} parties withheld counts of fewer than "
            f"{minimum} rows ({worst}: {small[worst]} cells). Their tables count fewer rows than "
            "they have, and weak edges may be missing: join rare states."
        ]
    return [
        f"{len(small)} of {len(state.agreement.rows)} parties sent counts of fewer than {minimum} "
        f"rows ({worst}: {small[worst]} cells). Counts of few rows disclose values of single rows: "
        f"join rare states, or withhold such counts (small_counts='suppress'){_no_counts(method)}."
    ]


def _no_counts(method: FedGES) -> str:
    """Return the options with which no counts are sent, as another remedy; "" if there are none."""
    if method.score == MIXED:
        return ""
    if method.continues:
        return ", or send no counts (mode='scores' without 'start', and with 'parameters' off)"
    if method.chosen_mode == "fusion":
        return ", or send no counts (parameters=False)"
    return ", or send no counts (mode='scores' and parameters=False)"


def two_party_warning(state: FedGESRun) -> list[str]:
    """Warn that each of two parties can compute the other's share of a sum."""
    if len(state.agreement.rows) != 2:
        return []
    return [
        "The federation has two parties: each of them can subtract its own share from a sum and "
        "learns the other's share."
    ]


def no_network_warning(state: FedGESRun) -> list[str]:
    """Warn that a finished run has no Bayesian network although the options ask for one."""
    if state.fitted is not None or state.mixed is not None or state.stage is not None:
        return []
    return [
        "There is no Bayesian network: a table of probabilities would have more than "
        f"{MOST_CELLS} entries, or the exchanges were used up. Limit the parents with max_parents, "
        "or allow more max_rounds."
    ]
