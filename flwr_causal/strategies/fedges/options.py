"""The options of FedGES, the settings in which each has an effect, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from flwr_causal.contract.when import When
from flwr_causal.core.graphs.knowledge import Knowledge, as_knowledge
from flwr_causal.core.options import bounded
from flwr_causal.core.parts import Part, all_but, made, option, words
from flwr_causal.data.check.handling import AutoDropKeep  # noqa: TC001 (checked by type)
from flwr_causal.protocol.fedges import (
    CONTINUES,
    DRIVES,
    EXACT,
    FITS,
    FUSES,
    HAS_TABLES,
    REFINES,
    SCORES_EDGES,
)
from flwr_causal.strategies.columns import CompleteRows, JoiningOptions
from flwr_causal.strategies.fedges.paper import PaperRounds
from flwr_causal.strategies.fedges.rounds import DrivenRounds, FixedRounds, FusedGraphs, Patience
from flwr_causal.strategies.fedges.searches import HiddenStates, PooledSearch, ScoredSearch
from flwr_causal.strategies.variant import USUAL, OfPaper, VariantOptions

if TYPE_CHECKING:
    from flwr_causal.contract.when import Condition
    from flwr_causal.strategies.fedges.problem import GraphSearch

#: The scores that refine the graph of mode "scores", among which the held-out likelihood chooses;
#: of graphs of the same likelihood the first.
CANDIDATES = ("qnml", "bic", "bdeu")
#: The fewest exchanges of a search, of the choice among its graphs, and of tests.
FEWEST_TESTED = 4
#: The most parents of a variable where parties hold different columns: with more, a table has parts
#: of three columns or more. The fewest exchanges there.
MOST_PARENTS, FEWEST_JOINED = 2, 3


class SearchRow(NamedTuple):
    """A row of the table of searches.

    Parameters
    ----------
    holds : Condition
        On the options.
    mode : {"scores", "exact", "fusion"}
    score : {"qnml", "bic", "bdeu"}
        With ``score="auto"``: of the search, and of the parties' votes.
    search : type of GraphSearch
    then : type of DrivenRounds, optional
        Rounds from the graph of the search.
    """

    holds: Condition
    mode: str
    score: str
    search: type[GraphSearch]
    then: type[DrivenRounds] | None = None


#: Which search a run has: that of the first row whose condition holds. With ``hidden_causes`` tests
#: follow (:class:`~flwr_causal.strategies.fedges.searches.HiddenStates`); over different columns
#: :class:`~flwr_causal.strategies.fedges.joined.JoinedCounts` searches instead.
ROWS = (
    SearchRow(When(variant="paper"), "fusion", "bdeu", PaperRounds),
    SearchRow(EXACT, "exact", "bic", PooledSearch),
    SearchRow(CONTINUES, "scores", "qnml", ScoredSearch, then=DrivenRounds),
    SearchRow(SCORES_EDGES, "scores", "qnml", ScoredSearch),
    SearchRow(DRIVES, "fusion", "bdeu", DrivenRounds),
    SearchRow(FUSES, "fusion", "bdeu", FixedRounds),
)


class TablesInAnyCase(Part):
    """Driven rounds after a search, of which the last exchange chooses the graph."""

    text = "start='driven' in mode 'scores'"
    gives = all_but("graph alone")


class ManyParents(Part):
    """Variables that may have more parents than the tables of joined columns can have."""

    text = "max_parents left out or above 2"
    needs = words("pairs")
    chosen_by = ("max_parents",)
    instead = " or ".join(str(k) for k in range(1, MOST_PARENTS + 1))


class FewExchanges(Part):
    """Fewer exchanges than joining rows takes."""

    text = "max_rounds below 3"
    needs = words("pairs")
    chosen_by = ("max_rounds",)
    instead = f"{FEWEST_JOINED} or more"


class CompletedCounts(Part):
    """Counts of rows with missing cells, by expectation-maximisation."""

    text = "missing_values='em'"
    gives = all_but("graph alone", "ids", "intervals")


@dataclass(frozen=True, kw_only=True)
class Prior(Part):
    """A Dirichlet prior of tables.

    Parameters
    ----------
    equivalent_sample_size : float, default 1.0
        Weight of the prior in rows: of BDeu at each party (1 in the authors' program), and of the
        probabilities in ``run.model``.
    """

    text = (
        "score='bdeu' or parameters=True (with hidden_causes=True where there is a choice of "
        "graphs or where cells are missing)"
    )

    # Outside these bounds scores are not finite.
    equivalent_sample_size: float = bounded(1.0, least=1e-9, most=1e9)


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
        "start": ("fuse", "overwrite"),
    },
)


@dataclass(frozen=True, kw_only=True)
class FedGESOptions(Patience, FusedGraphs, Prior, VariantOptions, JoiningOptions):
    """The options of :class:`~flwr_causal.strategies.fedges.fedges.FedGES`.

    Parameters
    ----------
    variant : {"default", "paper"}, default "default"
        "paper" is Algorithm 1: mode "fusion" with BDeu and at most 10 insertions a round, the last
        graph, no scores and no tables. ``fusion`` is then "union" (left out), "c25" or "c50", and
        ``start`` "fuse" (left out) or "overwrite". Without a limit on their growth fused graphs of
        some networks take very long, or are too dense for a party's search, which is an error.
    mode : {"auto", "scores", "exact", "fusion"}, default "auto"
        "auto" is "scores", or "fusion" if ``fusion``, ``start``, ``max_edges``,
        ``max_fused_edges`` or ``keep`` is given.
        With ``mode="scores"`` these options need ``start="driven"``.
        Scores are more accurate than fusion (measured) and disclose less than exact.
    score : {"auto", "bdeu", "bic", "qnml"}, default "auto"
        "auto" is BDeu for fusion and BIC for exact. For scores the server searches by
        qNML on sums of likelihoods, then on counts by qNML, BIC and BDeu among the edges that it
        found, and the last exchange chooses the graph with the highest held-out log-likelihood
        (the history names it). With ``parameters=False`` no counts are sent, and the graph is that
        of the first search. For scores, BIC and qNML have one penalty, that of the rows of all
        parties; BDeu is the sum of the parties' own scores, and "auto" for ``start="driven"``
        means BDeu at the parties.
    max_rounds : int, default 100
        Largest number of exchanges after the schema exchange. A search that needs more returns the
        graph that it has reached with known scores.
    hidden_causes : bool, default False
        Return a partial ancestral graph, in which hidden common causes have a place. After the
        search, in the modes "scores" and "exact", tests of independence of all pairs of variables
        follow, from contingency tables, in two exchanges (more only for very many cells). There is
        no network then. See docs/how_to/hidden_causes.md.
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
    missing_values : {"auto", "fail", "drop", "em"}, default "auto"
        "em" keeps rows with missing cells, in the modes "scores" and "exact": a first search uses
        the rows in which the columns of each count are seen; by the network that it finds each
        party draws its missing cells given the seen ones, and the search is repeated on all rows
        (one step of structural EM, Friedman 1997, by simulation).
    unshared_columns : {"auto", "fail", "drop", "keep"}, default "auto"
        With ``missing_values="em"`` "keep" takes a column that a party lacks as missing there.
    constant_columns : {"keep", "drop", "fail"}, default "keep"
        What to do about columns of one state: "keep" leaves them as isolated variables.
    categories : str, default ""
        Columns that are categories, separated by commas: all parties read them as text, in the
        spelling of their cells, such as the codes "250.0" and "250.00".
    numbers : str, default ""
        Columns that are numbers, separated by commas, also where they have few different values.
    text_columns : {"keep", "drop", "fail", "auto"}, default "keep"
        What to do about columns that hold no numbers: "keep" takes them as categories.
    duplicate_columns : {"keep", "drop", "fail"}, default "keep"
        What to do about columns that equal another one in every row.

    Examples
    --------
    >>> from flwr_causal.strategies.fedges.options import FedGESOptions
    >>> FedGESOptions(mode="exact").mode
    'exact'
    """

    max_rounds: int = 100
    mode: Literal["auto", "scores", "exact", "fusion"] = "auto"
    score: Literal["auto", "bdeu", "bic", "qnml"] = "auto"
    hidden_causes: bool = option(False, needs="exact")
    turn: bool = False
    max_parents: int | None = bounded(None, least=1)
    knowledge: Knowledge | str | None = None
    parameters: bool | None = option(None, needs={True: ("tables",), False: ("graph alone",)})
    discretize: int = option(0, needs="intervals")
    row_id: str = option("", needs="ids")
    max_states: int = 64
    missing_values: Literal["auto", "fail", "drop", "em"] = option(  # type: ignore[assignment]
        "auto", needs={"em": ("iterations",)}
    )
    unshared_columns: AutoDropKeep = option(  # type: ignore[assignment]
        "auto", needs={"keep": ("gaps",)}
    )
    constant_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    categories: str = ""
    numbers: str = ""
    text_columns: AutoDropKeep = "keep"
    duplicate_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]

    @property
    def row(self) -> SearchRow:
        """The row of `ROWS` of these options."""
        return next(row for row in ROWS if row.holds.holds(vars(self)))

    @property
    def chosen_mode(self) -> str:
        """The mode that runs."""
        return self.row.mode

    @property
    def chosen_score(self) -> str:
        """The score of the search, and of the parties' votes."""
        return self.row.score if self.score == "auto" else self.score

    @property
    def refined_by(self) -> tuple[str, ...]:
        """The scores of the search on counts that follows a search on likelihoods; empty: none."""
        if not REFINES.holds(vars(self)):
            return ()
        return CANDIDATES if self.score == "auto" else (self.score,)

    @property
    def asks_for_tables(self) -> bool:
        """Whether a last exchange is for the tables of probabilities."""
        return HAS_TABLES.holds(vars(self))

    @property
    def fits_tables(self) -> bool:
        """Whether probabilities are computed: of a network, or to choose among graphs."""
        return FITS.holds(vars(self))

    @property
    def continues(self) -> bool:
        """Whether driven rounds follow the search of mode "scores"."""
        return self.row.then is not None

    @property
    def drives(self) -> bool:
        """Whether the sum of the parties' scores chooses among starts, round by round."""
        return DrivenRounds in (self.row.search, self.row.then)

    @property
    def search(self) -> GraphSearch:
        """The search that the values choose."""
        return made(self.row.search, self)

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose."""
        fuses = self.chosen_mode == "fusion"
        chosen: dict[type[Part], bool] = {
            self.row.search: not fuses,
            FusedGraphs: self.continues or fuses,
            Patience: self.drives,
            TablesInAnyCase: self.continues,
            ManyParents: self.max_parents is None or self.max_parents > MOST_PARENTS,
            FewExchanges: self.max_rounds < FEWEST_JOINED,
            CompletedCounts if self.incomplete else CompleteRows: True,
            HiddenStates: self.hidden_causes,
            Prior: self.fits_tables or self.continues or self.chosen_score == "bdeu",
        }
        return (*super().parts, *(part for part, holds in chosen.items() if holds))

    @property
    def incomplete(self) -> bool:
        """Whether rows with missing cells take part."""
        return self.missing_values == "em"

    @property
    def of_paper(self) -> OfPaper:
        """The settings of Torrijos, Gamez & Puerta (2024)."""
        return OF_PAPER

    def settled(self) -> Any:
        """Return the options with the background knowledge read from its file."""
        options = super().settled()
        return replace(options, knowledge=as_knowledge(options.knowledge))

    @property
    def joins_columns(self) -> bool:
        """Whether rows of different parties may be matched by ids."""
        return self.chosen_mode == "exact"

    @property
    def known(self) -> Knowledge | None:
        """The background knowledge."""
        return as_knowledge(self.knowledge)
