"""FedGES (Torrijos, Gamez & Puerta 2024): the strategy.

The paper's algorithm is in :mod:`flwr_causal.strategies.fedges.paper`. The options choose the
search, by :data:`flwr_causal.strategies.fedges.options.ROWS`. :meth:`FedGES.train` takes these
steps, with the exchanges (:mod:`flwr_causal.protocol.fedges`) in this order:

1. Numbers are cut into intervals (``CUTS``).
2. The source of counts is chosen. It is sums of contingency tables
   (:class:`flwr_causal.strategies.fedges.problem.CountedTables`);
   of rows with missing cells those of seen columns, then of rows that are completed by the network
   found; where parties hold different columns tables of the joined rows
   (:mod:`flwr_causal.strategies.fedges.joined`: ``ALIGN``, ``MASKED_TABLES``, ``PRODUCTS``).
3. The search:

   - ``variant="paper"``: Algorithm 1, rounds of local searches and fusions (``GRAPH``).
   - "scores", the default: GES at the server, on sums of the parties' gains in log-likelihood
     (``LIKELIHOODS``, until no gain is unknown), then on contingency tables of the columns that the
     found graph joins (``COUNTS``), with qNML, BDeu and BIC. With ``score="bdeu"`` on sums of the
     parties' own scores (``SCORES``).
   - "exact": GES at the server on contingency tables (``COUNTS``).
   - "fusion": rounds of fusion, in which the sum of the parties' scores chooses among graphs
     (``GRAPHS`` and ``JUDGE``; with a fixed start ``JUDGED_GRAPH``, and ``JUDGE`` at the end, or
     ``GRAPH`` alone with ``keep="last"``).

4. Tables of the graphs that were found, by which the one with the highest held-out likelihood is
   chosen (``FIT``; :func:`flwr_causal.strategies.fedges.searches.fit`).
5. With ``mode="scores", start="driven"``: rounds of fusion from that graph, and its tables. With
   ``hidden_causes``: tables of tests of independence (``COUNTS``;
   :class:`flwr_causal.strategies.fedges.searches.HiddenStates`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.contract.answers import step
from flwr_causal.core.ges.fusion import fuse
from flwr_causal.core.ges.min_cut import supported_by_cuts
from flwr_causal.core.parts import made
from flwr_causal.data.check.agreement import with_cuts
from flwr_causal.protocol.fedges import DRIVES, FUSES
from flwr_causal.runtime.algorithm import relayed
from flwr_causal.strategies.cut_points import agreed_cuts
from flwr_causal.strategies.fedges.base import FedGESBase
from flwr_causal.strategies.fedges.joined import JoinedCounts, check_required
from flwr_causal.strategies.fedges.options import FEWEST_TESTED, FedGESOptions
from flwr_causal.strategies.fedges.results import RunProblem, network_values
from flwr_causal.strategies.fedges.searches import HiddenStates, fit

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from flwr_causal.core.arrays import IntArray
    from flwr_causal.core.ges.fusion import Fusion
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.algorithm import Step, Steps
    from flwr_causal.strategies.fedges.problem import Found
    from flwr_causal.strategies.options import takes

#: The name of the graph of driven rounds, beside those of the scores, in the history.
DRIVEN = "driven rounds"


class FedGES(FedGESBase):
    """Federated greedy equivalence search on categories (Torrijos, Gamez & Puerta 2024).

    docs/fedges.md says why the defaults are what they are, and the client's docstring
    (:class:`~flwr_causal.clients.fedges.FedGESClient`) what leaves a party. Three modes:

    - "scores", the default: GES on sums over the parties; no graph is fused. A party sends two
      numbers for each gain that the search needs, and then counts of the variables that the found
      graph joins.
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

    if TYPE_CHECKING:

        @takes(FedGESOptions)
        def __init__(self, **options: Any) -> None: ...

    def train(self, agreement: Agreement, replicate: int = 0) -> Steps:
        """Search for the graph, by the exchanges that the module's docstring lists in their order.

        Yields
        ------
        Ask
            For counts up to thresholds, then what the source of counts and the search need.

        Returns
        -------
        Result
        """
        problem, taken = RunProblem.of(agreement, self.options, self.fuse), 0
        if agreement.columns_differ:
            check_required(problem)
        if agreement.continuous:
            problem, taken = yield from self._cut(agreement)
        if agreement.columns_differ:
            holders = self._holders_of(agreement, problem.names)
            options = self.options
            joining = JoinedCounts(score=options.chosen_score, fits=options.asks_for_tables)
            search = joining.run(problem, holders, replicate)
        elif self.options.hidden_causes:
            search = self._tested(problem, taken, replicate)
        else:
            search = self._searched(problem, taken)
        # Every request of the search says the cut points.
        return (yield from relayed(search, problem.points))

    def _cut(self, agreement: Agreement) -> Generator[Step, Any, tuple[RunProblem, int]]:
        """Cut columns of numbers into intervals; return the problem, and the exchanges taken."""
        present = self._present(agreement)
        agreed = yield from agreed_cuts(agreement, self.options.discretize, present)
        cuts = dict(zip(agreement.continuous, agreed.cuts, strict=True))
        problem = RunProblem.of(with_cuts(agreement, cuts), self.options, self.fuse, cuts)
        return problem, agreed.taken

    def _seen(
        self, problem: RunProblem
    ) -> Generator[Step, Any, tuple[Found, Mapping[str, Any], int]]:
        """Search on the rows that are seen, for a network by which parties complete all rows.

        Returns
        -------
        found : Found
        network : mapping
            The network of the graph, as it is sent; empty if its tables are too large.
        taken : int
            How many exchanges it has taken.
        """
        seen = replace(problem, seen=True)
        graphs, taken = yield from self.options.search.run(seen, self.options.max_rounds // 2 - 1)
        fitted = yield from fit(seen, graphs)
        if fitted is None:
            return graphs[0], {}, taken
        network = network_values(fitted, self.options.equivalent_sample_size)
        return fitted.found, network, taken + 1

    def _searched(self, problem: RunProblem, taken: int) -> Steps:
        """Search on all rows; those with missing cells are completed first."""
        if not self.options.incomplete:
            return (yield from self._chosen(problem, taken))
        found, network, taken = yield from self._seen(problem)
        if not network:
            return problem.result(found, over=True)
        return (yield from relayed(self._chosen(problem, taken), network))

    def _chosen(self, problem: RunProblem, taken: int) -> Steps:
        """Search, ask for tables, and continue by rounds of fusion where the options say so.

        One exchange is reserved for the tables, unless only one is left.

        Parameters
        ----------
        problem : Problem
        taken : int
            How many exchanges are done before.
        """
        options, then = self.options, self.options.row.then
        most = max(0, max(1, options.max_rounds - options.asks_for_tables) - taken)
        graphs, used = yield from options.search.run(problem, most)
        taken += used
        fitted = None
        if options.asks_for_tables and taken < options.max_rounds:
            fitted = yield from fit(problem, graphs)
            taken += fitted is not None
        # One exchange at least is kept for the tables of the graph of the rounds.
        if then and fitted and taken < options.max_rounds - 1:
            most = max(1, options.max_rounds - 1) - taken
            searched = fitted.found
            (found,), used = yield from made(then, options).run(problem, most, fitted)
            if not np.array_equal(found.marks, searched.marks):
                # Votes of the parties for both graphs; only one of them has shares of fused graphs.
                graphs = (found._replace(support=None, score=DRIVEN), searched)
                fitted = yield from fit(problem, graphs)
        return problem.result(fitted.found if fitted else graphs[0], fitted, over=True)

    def _tested(self, problem: RunProblem, taken: int, replicate: int) -> Steps:
        """Search, then test independences: there may be hidden common causes.

        Where cells are missing the tests are of the rows in which the columns of each are seen: a
        network without hidden causes would bias the tests: imputed cells have its independences.
        """
        network: Mapping[str, Any] = {}
        incomplete = self.options.incomplete
        if incomplete:
            found, network, taken = yield from self._seen(problem)
        if network or not incomplete:
            search = self._without_hidden_causes(problem, taken)
            found, taken = yield from relayed(search, network)
        most = self.options.max_rounds - taken
        found = yield from HiddenStates().run(problem, found, most, replicate)
        return problem.result(found, over=True)

    def _without_hidden_causes(
        self, problem: RunProblem, taken: int
    ) -> Generator[Step, Any, tuple[Found, int]]:
        """Search without hidden causes; where there are several graphs, choose one.

        Three exchanges are kept for the choice and for the tests.

        Returns
        -------
        found : Found
        taken : int
            How many exchanges are done.
        """
        most = max(1, self.options.max_rounds - FEWEST_TESTED + 1 - taken)
        graphs, used = yield from self.options.search.run(problem, most)
        fitted = (yield from fit(problem, graphs)) if len(graphs) > 1 else None
        found = fitted.found if fitted else graphs[0]
        return found, taken + used + (fitted is not None)

    @step(FUSES | DRIVES)
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
