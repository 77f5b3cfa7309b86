"""FedGES (Torrijos, Gamez & Puerta 2024): the strategy.

The paper's algorithm is in `paper`, everything else is ours. `FedGES.train` takes these steps, with
the exchanges (:mod:`flwr_causal.protocol.fedges`) in this order:

1. Where columns are numbers and are to be cut into intervals: their cut points (``CUTS``).
2. The search of the mode:

   - ``variant="paper"``: Algorithm 1. In each round every party fuses the server's graph with its
     own, searches by GES with a limited number of insertions, and sends its DAG; the server fuses
     the DAGs (``GRAPH``; `paper.algorithm_1`).
   - "scores", the default: GES at the server, on sums of the parties' gains in log-likelihood
     (``LIKELIHOODS``, until no gain is unknown), then on contingency tables of the columns that the
     found graph joins (``COUNTS``; `searches_on_sums.search_on_likelihoods`).
   - "exact": GES at the server on contingency tables (``COUNTS``;
     `searches_on_sums.search_on_counts`).
   - "fusion": Algorithm 1, in which the sum of the parties' scores chooses among graphs
     (``GRAPHS`` and ``JUDGE``, or ``JUDGED_GRAPH``; `scored_rounds`).
   - Where parties hold different columns of the same rows: tables of the joined rows (``ALIGN``,
     ``MASKED_TABLES``, ``PRODUCTS``; `joined.joined_counts`).

3. Tables of the graphs that were found, by which the one with the highest held-out likelihood is
   chosen (``FIT``; `searches_on_sums.fit`).
4. With ``mode="scores", start="driven"``: rounds of fusion from that graph, and its tables. With
   ``hidden_causes``: tables of tests of independence (``COUNTS``; `hidden.separations`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.contract.steps import step
from flwr_causal.core.discrete.cut_points import MAX_EXCHANGES
from flwr_causal.core.ges.fusion import fuse, needed
from flwr_causal.core.ges.min_cut import supported_by_cuts
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.options import require
from flwr_causal.core.words import by_name
from flwr_causal.data.check.agreement import with_cuts
from flwr_causal.data.kinds import DataKind
from flwr_causal.protocol.fedges import (
    CONTRACT,
    FIT,
    FUSES,
    FedGESPartyOptions,
)
from flwr_causal.runtime.algorithm import Note, Result, relayed
from flwr_causal.strategies.columns import JoiningStrategy
from flwr_causal.strategies.cut_points import agreed_cuts
from flwr_causal.strategies.fedges.baselines import bdeu, ges_baselines
from flwr_causal.strategies.fedges.by_party import disagreement_of_tables
from flwr_causal.strategies.fedges.hidden import separation_tests, separations
from flwr_causal.strategies.fedges.joined import check_required, joined_counts
from flwr_causal.strategies.fedges.options import FEWEST_TESTED, FedGESOptions, JoinedCounts
from flwr_causal.strategies.fedges.paper import Fuser, algorithm_1
from flwr_causal.strategies.fedges.results import (
    NO_NETWORK,
    network_of,
    network_values,
    small_cell_warning,
    small_cells,
    two_party_warning,
)
from flwr_causal.strategies.fedges.scored_rounds import best_of_rounds, driven_rounds
from flwr_causal.strategies.fedges.searches_on_sums import (
    USED_UP,
    Problem,
    cardinalities_of,
    fit,
    search_on_counts,
    search_on_likelihoods,
    search_on_scores,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray
    from flwr_causal.core.ges.counted_pag import SeparationTests
    from flwr_causal.core.ges.fusion import Fusion
    from flwr_causal.core.parts import Part
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.doubts.tables import Expected
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Step, Training
    from flwr_causal.runtime.options import Baselines
    from flwr_causal.strategies.base import RunAlone
    from flwr_causal.strategies.fedges.results import Fitted, Found, Standing
    from flwr_causal.strategies.fedges.searches_on_sums import Searched
    from flwr_causal.strategies.options import takes

    Cuts = Mapping[str, FloatArray]


#: The name of the graph of driven rounds, beside those of the scores, in the history.
DRIVEN = "driven rounds"
#: The fewest exchanges of two searches, each with one for its tables.
FEWEST_ROUNDS = 4


class FedGES(JoiningStrategy):
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

    References
    ----------
    Torrijos, Gamez & Puerta (2024). FedGES: a federated learning approach for Bayesian network
    structure learning.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.discrete import federated_discrete
    >>> from flwr_causal.strategies import FedGES
    >>> tables, network = federated_discrete(3, 300, 2)
    >>> simulate(FedGES(max_parents=2), tables).graph.kind
    'cpdag'
    """

    options_type = FedGESOptions
    options: FedGESOptions

    if TYPE_CHECKING:

        @takes(FedGESOptions)
        def __init__(self, **options: Any) -> None: ...

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
        _ = self.policy

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
    def policy(self) -> Policy:
        """How problems of the data are handled; one row is enough for a party."""
        return replace(super().policy, min_rows=1)

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

    def train(self, agreement: Agreement, replicate: int = 0) -> Training:
        """Search for the graph, by the exchanges that the module's docstring lists in their order.

        Yields
        ------
        Ask
            For counts up to thresholds, then what the search of this mode needs.

        Returns
        -------
        Result
        """
        if self._columns_differ:
            check_required(self._problem(agreement))
        cuts: Cuts = {}
        taken = 0
        if agreement.continuous:
            present = self._present(agreement)
            agreed = yield from agreed_cuts(agreement, self.options.discretize, present)
            taken = agreed.taken
            cuts = dict(zip(agreement.continuous, agreed.cuts, strict=True))
            agreement = with_cuts(agreement, cuts)
        small: Counter[str] = Counter()
        search = (
            self._joined(agreement, cuts, replicate)
            if self._columns_differ
            else self._tested(agreement, cuts, small, taken, replicate)
            if self.options.hidden_causes
            else self._completed(agreement, small)
            if self.options.incomplete
            else self._search(agreement, cuts, small, taken)
        )
        # Every request of the search says the cut points. Cells of few rows in the replies are
        # counted into `small`, which the search reads for its warnings.
        points: dict[str, Any] = {}
        if cuts:
            lengths = np.array([len(own) for own in cuts.values()], dtype=np.int64)
            points = {"cuts": np.concatenate(list(cuts.values())), "num-cuts": lengths}
        return (
            yield from relayed(
                search, points, look=lambda replies: small.update(small_cells(replies))
            )
        )

    def _completed(self, agreement: Agreement, small: Mapping[str, int]) -> Training:
        """Search on the rows that are seen; then on all rows, completed by the network found."""
        found, network, taken = yield from self._seen(agreement, small)
        if not network:
            return self._result(agreement, {}, small, found, over=True)
        return (yield from relayed(self._search(agreement, {}, small, taken), network))

    def _seen(
        self, agreement: Agreement, small: Mapping[str, int]
    ) -> Generator[Step, Any, tuple[Found, Mapping[str, Any], int]]:
        """Search on the rows that are seen.

        Returns
        -------
        found : Found
        network : mapping
            The network of the graph, as it is sent; empty if its tables are too large.
        taken : int
            How many exchanges it has taken.
        """
        problem = replace(self._problem(agreement), seen=True)
        result = partial(self._result, agreement, {}, small)
        most = self.options.max_rounds // 2 - 1
        graphs, taken = yield from self._on_sums(problem, most, result)
        fitted = yield from fit(problem, graphs, result)
        if fitted is None:
            return graphs[0], {}, taken
        network = network_values(fitted, self.options.equivalent_sample_size)
        return fitted.found, network, taken + 1

    def _on_sums(
        self, problem: Problem, most: int, standing: Standing
    ) -> Generator[Step, Any, Searched]:
        """Search as the mode and the score say; parameters as of `search_on_likelihoods`."""
        search = search_on_likelihoods
        if self.options.chosen_mode == "exact":
            search = search_on_counts
        elif self.options.chosen_score == "bdeu":
            search = search_on_scores
        return (yield from search(problem, most, standing))

    def _search(
        self, agreement: Agreement, cuts: Cuts, small: Mapping[str, int], taken: int
    ) -> Training:
        """Search by the mode of these options; ``taken`` exchanges are done before.

        The last exchange is kept for the tables. If there is only one, the search has it.
        """
        options = self.options
        result = partial(self._result, agreement, cuts, small)
        most = max(0, max(1, options.max_rounds - options.asks_for_tables) - taken)
        if options.chosen_mode == "fusion":
            found, used = yield from self._fused(agreement, most, result)
            graphs: tuple[Found, ...] = (found,)
        else:
            graphs, used = yield from self._on_sums(self._problem(agreement), most, result)
        taken += used
        fitted = None
        if options.asks_for_tables and taken < options.max_rounds:
            fitted = yield from fit(self._problem(agreement), graphs, result)
            taken += fitted is not None
        # One exchange at least is kept for the tables of the graph of the rounds.
        if options.continues and fitted is not None and taken < options.max_rounds - 1:
            most = max(1, options.max_rounds - 1) - taken
            searched = fitted.found
            found, used = yield from self._fused(
                agreement, most, lambda _: result(searched, fitted), searched.dag
            )
            if not np.array_equal(found.marks, searched.marks):
                # Votes replace the shares of the fused graphs, which the other graph has not.
                graphs = (found._replace(support=None, score=DRIVEN), searched)
                fitted = None
                if taken + used < options.max_rounds:
                    fitted = yield from fit(self._problem(agreement), graphs, result)
        return result(fitted.found if fitted else graphs[0], fitted, over=True)

    def _tested(
        self,
        agreement: Agreement,
        cuts: Cuts,
        small: Mapping[str, int],
        taken: int,
        replicate: int,
    ) -> Training:
        """Search, then test independences: there may be hidden common causes.

        Where cells are missing the tests are of the rows in which the columns of each are seen: a
        network without hidden causes would plant its own dependences in completed rows.
        """
        found, taken = yield from self._without_hidden_causes(agreement, cuts, small, taken)
        tests, ended = yield from separations(
            self._problem(agreement),
            found,
            self.options.max_rounds - taken,
            partial(self._pag, agreement, small),
            replicate,
        )
        return self._pag(agreement, small, tests, found.reason if ended else USED_UP)

    def _without_hidden_causes(
        self, agreement: Agreement, cuts: Cuts, small: Mapping[str, int], taken: int
    ) -> Generator[Step, Any, tuple[Found, int]]:
        """Return the graph of the score, of completed rows if cells are missing, as `_chosen`."""
        if not self.options.incomplete:
            return (yield from self._chosen(agreement, cuts, small, taken))
        found, network, taken = yield from self._seen(agreement, small)
        if not network:
            return found, taken
        return (yield from relayed(self._chosen(agreement, cuts, small, taken), network))

    def _chosen(
        self, agreement: Agreement, cuts: Cuts, small: Mapping[str, int], taken: int
    ) -> Generator[Step, Any, tuple[Found, int]]:
        """Search without hidden causes; where there are several graphs, choose one.

        Three exchanges are kept for the choice and for the tests.

        Returns
        -------
        found : Found
        taken : int
            How many exchanges are done.
        """
        problem, result = self._problem(agreement), partial(self._result, agreement, cuts, small)
        most = max(1, self.options.max_rounds - FEWEST_TESTED + 1 - taken)
        graphs, used = yield from self._on_sums(problem, most, result)
        fitted = None
        if len(graphs) > 1:
            fitted = yield from fit(problem, graphs, result)
        found = fitted.found if fitted else graphs[0]
        return found, taken + used + (fitted is not None)

    def _pag(
        self,
        agreement: Agreement,
        small: Mapping[str, int],
        tests: SeparationTests,
        reason: str = "",
    ) -> Result:
        """Return the graph of tests, the variables in the agreed order, and what to know of it."""
        warnings = small_cell_warning(small, agreement, self.options) + two_party_warning(agreement)
        graph = tests.graph().reordered(agreement.names)
        return Result(graph, warnings=tuple(warnings), reason=reason)

    def _fused(
        self, agreement: Agreement, most: int, standing: Standing, begin: BoolArray | None = None
    ) -> Generator[Step, Any, tuple[Found, int]]:
        """Fuse the parties' graphs round by round, as the options ``start`` and ``keep`` say.

        Parameters
        ----------
        agreement : Agreement
        most : int
            Largest number of exchanges.
        standing : callable
            Returns what stands if the run ends with a graph so far.
        begin : ndarray of bool, shape (d, d), optional
            The DAG before the first round. Default: no edges but required ones.

        Returns
        -------
        found : Found
        used : int
            How many exchanges it has taken.
        """
        options, names = self.options, tuple(sorted(agreement.names))
        fusion = partial(self.fuse, names=names)
        fuser = Fuser(names, len(agreement.rows), options, fusion, begin)
        if options.chosen_start == "driven":
            rounds = driven_rounds
        else:
            rounds = algorithm_1 if options.keep == "last" else best_of_rounds
        found, used = yield from rounds(fuser, most, standing)
        if not found.reason:
            found = found._replace(reason=f"all of the {options.max_rounds} exchanges were used")
        return found, used

    @step(FUSES)
    def fuse(self, graphs: Mapping[str, IntArray], names: tuple[str, ...]) -> Fusion:
        """Fuse the parties' DAGs: a step that a subclass may replace.

        Parameters
        ----------
        graphs : mapping of str to ndarray of shape (m, 2)
            By party, the rows ``[cause, effect]`` of its DAG.
        names : tuple of str
            The variables, in the order in which they are numbered.

        Returns
        -------
        Fusion
            Edges along one order of the variables, and how many DAGs have each of them, or by
            ``fusion="min-cut"`` need it: those that enough DAGs have, by the option ``fusion``, are
            kept.
        """
        known, dags = self.options.known, list(graphs.values())
        fusion = fuse(dags, len(names), before=known.precedence(names) if known else None)
        return supported_by_cuts(fusion, dags) if self.options.fusion == "min-cut" else fusion

    def _joined(self, agreement: Agreement, cuts: Cuts, replicate: int) -> Training:
        """Search on the tables of the joined rows, where parties hold different columns."""
        problem = self._problem(agreement)
        holders = self._holders_of(agreement, problem.names)
        joined = yield from joined_counts(problem, holders, cuts)
        joined = replace(joined, number=replicate)
        found = joined.search()
        fitted = joined.fitted(found) if self.options.asks_for_tables and not replicate else None
        yield Note({"num_edges": int(found.dag.sum()), **joined.info})
        result = self._result(agreement, cuts, {}, found, fitted)
        network = result.model
        if network is not None:
            network = replace(network, further_counts=joined.further_counts(network.names))
        return replace(
            result,
            model=network,
            num_rows=joined.total,
            warnings=tuple(joined.warnings),
            reason=found.reason,
        )

    def _result(
        self,
        agreement: Agreement,
        cuts: Cuts,
        small: Mapping[str, int],
        found: Found,
        fitted: Fitted | None = None,
        *,
        over: bool = False,
    ) -> Result:
        """Return the class with the parties' agreement, its network, and what to know of it.

        Parameters
        ----------
        agreement : Agreement
        cuts : mapping of str to ndarray
            Agreed cut points of the columns that were discretised.
        small : mapping of str to int
            By party, the number of cells with few rows that it has sent.
        found : Found
        fitted : Fitted, optional
            The tables of the graph.
        over : bool, default False
            Whether the training is over.
        """
        if self.options.hidden_causes:
            return self._pag(agreement, small, separation_tests(self._problem(agreement), found, 0))
        model = None
        if fitted is not None:
            model = network_of(agreement, fitted, self.options.equivalent_sample_size, cuts)
        warnings = small_cell_warning(small, agreement, self.options)
        if self.options.chosen_mode != "fusion" or self.options.asks_for_tables:
            warnings += two_party_warning(agreement)
        if over and self.options.asks_for_tables and model is None:
            warnings += [NO_NETWORK]
        # Where each agreed column is among the sorted ones, by which arrays are made so far.
        place_of = np.argsort(by_name(agreement.names))
        agreed = np.ix_(place_of, place_of)
        marks = found.marks[agreed]
        scores = None if found.support is None else found.support[agreed]
        support = scores
        if support is None and fitted is not None and fitted.support is not None:
            support = fitted.support[agreed]
        shares = None
        if support is not None:
            # Parties agree on an edge, not on a direction that the class leaves open.
            shares = np.where(marks, np.maximum(support, support.T), 0.0)
        return Result(
            CausalGraph(
                agreement.names, marks.astype(np.float64), kind="cpdag", party_agreement=shares
            ),
            # The share of the parties' fused graphs that have each edge.
            scores=scores,
            model=model,
            warnings=tuple(warnings),
            reason=found.reason if over else "",
        )

    def _present(self, agreement: Agreement) -> dict[str, IntArray] | None:
        """Return by party how many rows it has of each number; None where it is all of them."""
        if not self._columns_differ:
            return None
        presence = self._presence_of(agreement.continuous)
        rows = agreement.rows.items()
        return {name: n * own for (name, n), own in zip(rows, presence, strict=True)}

    def _problem(self, agreement: Agreement) -> Problem:
        """Return the variables and options of a search on sums."""
        return Problem(
            names=tuple(sorted(agreement.names)),
            cardinalities=cardinalities_of(agreement),
            num_rows=agreement.n,
            num_parties=agreement.num_parties,
            options=self.options,
        )

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
        return ges_baselines(tables, names, self.policy)

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
        return {"bdeu": bdeu(list(tables), graph, self.policy, self.options.equivalent_sample_size)}
