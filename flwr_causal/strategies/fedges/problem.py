"""What FedGES's searches share: the variables, the search with gains, and the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from flwr_causal.core.discrete.scores import KINDS, ScoreTerms, terms_of
from flwr_causal.core.ges.counted_pag import SeparationTests
from flwr_causal.core.ges.greedy_search import prepared_search
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.pag.rules import Ancestry
from flwr_causal.core.words import by_name
from flwr_causal.runtime.algorithm import Result
from flwr_causal.strategies.fedges.counts import CountedTables
from flwr_causal.strategies.fedges.results import (
    NO_NETWORK,
    Found,
    network_of,
    small_cell_warning,
    two_party_warning,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.ges.speculative_search import SpeculativeGains
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.fedges.options import FedGESOptions
    from flwr_causal.strategies.fedges.results import Fitted

ENDED = "no insertion or deletion improves the score"
USED_UP = "the exchanges were used up before the search had ended"

#: Returns what stands if the run ends with a graph so far.
Standing: TypeAlias = Callable[[Found], Result]


@dataclass(frozen=True, eq=False)
class Problem:
    """The variables of a search, its source of counts, and the options.

    Variables are in the order of their names, those of the result in the agreed order.

    Parameters
    ----------
    agreement : Agreement
        Of columns with states.
    options : FedGESOptions
    cuts : mapping of str to ndarray
        Agreed cut points of the columns that were cut into intervals.
    counts : CountedTables
        The source of contingency tables.
    num_rows : int
        Rows of all parties together.
    seen : bool, default False
        Whether parties count the rows in which the columns of a set are seen, instead of all. A
        search on likelihoods is then not refined on counts.
    """

    agreement: Agreement
    options: FedGESOptions
    cuts: Mapping[str, FloatArray]
    counts: CountedTables
    num_rows: int
    seen: bool = False

    @classmethod
    def of(
        cls,
        agreement: Agreement,
        options: FedGESOptions,
        cuts: Mapping[str, FloatArray] | None = None,
    ) -> Problem:
        """Return the problem of all rows of the parties."""
        sizes = [len(agreement.states[k]) for k in by_name(agreement.names)]
        cardinalities = np.array(sizes, dtype=np.int64)
        counts = CountedTables(cardinalities, secure=options.secure_aggregation)
        return cls(agreement, options, cuts or {}, counts, agreement.n)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The variables."""
        return tuple(sorted(self.agreement.names))

    @property
    def cardinalities(self) -> IntArray:
        """The numbers of states, shape (d,)."""
        return self.counts.cardinalities

    @property
    def points(self) -> dict[str, Any]:
        """The cut points, which each request of a search says."""
        if not self.cuts:
            return {}
        lengths = np.array([len(own) for own in self.cuts.values()], dtype=np.int64)
        return {"cuts": np.concatenate(list(self.cuts.values())), "num-cuts": lengths}

    @property
    def known(self) -> EdgeMasks | None:
        """What is known of the edges of a graph without hidden common causes."""
        if self.options.known is None:
            return None
        if self.options.hidden_causes:
            # A forbidden edge may stand for an effect through others.
            return Ancestry.of(self.options.known, self.names).edges()
        return self.options.known.masks(self.names)

    def terms(self, score: str) -> ScoreTerms:
        """Return a score of the rows of all parties."""
        return terms_of(KINDS[score], self.options.equivalent_sample_size, self.num_rows)

    def search(
        self,
        gains: SpeculativeGains,
        score: str,
        start: BoolArray | None = None,
        pairs: BoolArray | None = None,
        *,
        known_only: bool = False,
    ) -> Found:
        """Run a search with the known gains, and estimates of the others.

        Parameters
        ----------
        gains : SpeculativeGains
        score : str
            The score that the gains are of.
        start : ndarray of bool, shape (d, d), optional
            The DAG from which the search starts. Default: no edges.
        pairs : ndarray of bool, shape (d, d), optional
            The pairs that an edge may join, symmetric. Default: all.
        known_only : bool, default False
            Whether the search stops where it needs an unknown gain.
        """
        gains.start_again()
        gains.known_only = known_only
        d = len(self.names)
        search = prepared_search(
            gains,
            self.names,
            start=np.zeros((d, d), dtype=np.bool_) if start is None else start,
            knowledge=self.known,
            max_parents=self.options.max_parents,
            pairs=pairs,
        )
        search.families = gains.families
        search.run(turn=self.options.turn)
        gains.take_back(search.families)
        return Found(search.marks, search.dag, USED_UP if known_only else ENDED, score=score)

    def tests(self, found: Found, replicate: int = 0) -> SeparationTests:
        """Return the tests of a graph that was found without hidden causes, none of them made."""
        return SeparationTests(
            self.names,
            found.dag,
            self.cardinalities,
            self.num_rows,
            self.options.known,
            drawn=replicate > 0,
        )

    def pag(self, tests: SeparationTests, reason: str = "") -> Result:
        """Return the graph of tests, and what to know of it."""
        warnings = small_cell_warning(self.counts.small, self.agreement, self.options)
        warnings += two_party_warning(self.agreement)
        graph = tests.graph().reordered(self.agreement.names)
        return Result(graph, warnings=tuple(warnings), reason=reason)

    def result(self, found: Found, fitted: Fitted | None = None, *, over: bool = False) -> Result:
        """Return the class with the parties' agreement, its network, and what to know of it.

        Parameters
        ----------
        found : Found
        fitted : Fitted, optional
            The tables of the graph.
        over : bool, default False
            Whether the training is over.
        """
        agreement, options = self.agreement, self.options
        if options.hidden_causes:
            return self.pag(self.tests(found))
        model = None
        if fitted is not None:
            model = network_of(agreement, fitted, options.equivalent_sample_size, self.cuts)
        warnings = small_cell_warning(self.counts.small, agreement, options)
        if options.chosen_mode != "fusion" or options.asks_for_tables:
            warnings += two_party_warning(agreement)
        if over and options.asks_for_tables and model is None:
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
