"""Moments (Ng & Zhang 2022, section 4): one exchange of sums, then a centralised solver.

:meth:`Moments.train` is the method. ``_products`` chooses the source of sums (``sources/``), the
options choose the solver (``solvers/``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from flwr_causal.core.parts import words
from flwr_causal.protocol.moments import CONTRACT
from flwr_causal.runtime.algorithm import Note
from flwr_causal.sources.by_party import products_by_party
from flwr_causal.sources.completed import completed_products
from flwr_causal.sources.determined import without_determined
from flwr_causal.sources.joined import joined_products
from flwr_causal.sources.normal_scores import by_scores, with_scores
from flwr_causal.sources.products import solved_design
from flwr_causal.sources.released import released_products
from flwr_causal.sources.sums import exact_products
from flwr_causal.strategies.moments.regressions import by_likelihood
from flwr_causal.strategies.moments.solvers.ancestral import with_doubts
from flwr_causal.strategies.moments.solvers.blocks import BlockClasses
from flwr_causal.strategies.moments.solvers.solver import Solved
from flwr_causal.strategies.moments.tables import MomentsTables, with_amounts
from flwr_causal.strategies.moments.targets import (
    own_graphs,
    with_kept_mechanisms,
    with_unknown_targets,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from flwr_causal.core.blocks.normal_scores import NormalScores
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Step, Steps
    from flwr_causal.sources.products import Products
    from flwr_causal.strategies.moments.options import MomentsOptions
    from flwr_causal.strategies.options import takes


class Moments(MomentsTables):
    """Federated linear structure learning from second moments that the parties add up.

    Means and second moments are sufficient statistics of a linear Gaussian system (Ng & Zhang 2022,
    section 4), and their sums over parties are those of the pooled rows. The graph is therefore
    that of the centralised solver on the pooled data, or, where the levels of parties differ, on
    rows centred within the parties. By default the solver is a search over orders
    (:class:`~flwr_causal.strategies.moments.solvers.orders.StableOrders`). With an ``order`` p the
    rows are steps of time series with their p lags, and the graph is a dynamic Bayesian network, as
    that of DYNOTEARS (Pamfil et al. 2020), or of a regression on the past alone.

    With ``text_columns="keep"`` columns of text, and of true and false, are categories beside the
    numbers. A variable is then a block of columns: each state of a category but one has a column
    that is 1 in its rows and 0 in the others (degenerate Gaussian score, Andrews, Ramsey & Cooper
    2019). The result is the equivalence class of the best Gaussian BIC of the blocks
    (``core.blocks``), as with ``solver="class"``. Its weights are strengths from 0 to 1, without a
    sign; ``run.total_effect`` compares states of the cause.

    **What leaves a party**: in the schema exchange names, types, the number of rows and, for each
    column, mean, sum of squared deviations and facts such as that it is skewed; then products of
    the rows [1, z], of shape (sets, 1 + s, 1 + s); with ``center="auto"`` or "party" about the
    means of the party's rows (or of each series), and of these means. z has a column for each
    number, centred (with ``standardize``, categories or functions also divided by its standard
    deviation), with curved effects further functions of it, for each state of a category but one,
    and with an order p the lags of all of them. Known interventions and held-out rows divide the
    rows into sets; where the number of lags is chosen, one array for each smaller order follows.
    With secure summation the server learns the pooled products only. With ``epsilon`` it is one
    array of sums of products with noise, and nothing else that depends on the rows. With
    ``unknown_targets`` and ``local_graphs`` the server looks at each party's products, or with
    secure sums at those of groups of parties. Where parties hold different columns (``row_id``), it
    is hashed ids, masked columns and lags that only another party can open, and words whose sum
    over all parties is that of the products of columns.

    References
    ----------
    Ng & Zhang (2022). Towards federated Bayesian network structure learning with continuous
    optimization. AISTATS.

    Pamfil et al. (2020). DYNOTEARS: structure learning from time-series data. AISTATS.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> from flwr_causal.strategies import Moments
    >>> tables, weights = federated_linear(3, 200, 2)
    >>> simulate(Moments(solver="class"), tables).graph.kind
    'cpdag'
    """

    if TYPE_CHECKING:

        @takes(MomentsOptions)
        def __init__(self, **options: Any) -> None: ...

    contract: ClassVar[Contract] = CONTRACT

    def train(self, agreement: Agreement, replicate: int = 0) -> Steps:
        """Add up the parties' second moments, and solve for the graph of all rows.

        Yields
        ------
        Ask
            For second moments: sums, those of each party, estimates where cells are missing, a
            release with noise, or products of the columns of different parties. Then, with
            ``parameters="likelihood"``, for regressions of categories.

        Returns
        -------
        Result
        """
        if self.options.takes_scores:
            trained = partial(self._trained, replicate=replicate)
            return (yield from by_scores(agreement, trained))
        return (yield from self._trained(agreement, replicate=replicate))

    def _trained(
        self, agreement: Agreement, scores: Sequence[NormalScores] = (), *, replicate: int
    ) -> Steps:
        """Train in the units of the agreement: of the data, or of the normal scores given."""
        options, solver = self.options, self.options.solving
        # The parties' sums add up to those of the pooled rows, from which a centralised solver
        # finds the graph. Replicates take over what the main training chose, such as penalties.
        products, masks = yield from self._pooled(agreement, replicate)
        products = with_scores(products, scores) if scores else products
        outcome = yield from solver.found(products, masks)
        exact = all(part.gives >= words("exact", "pairs") for part in options.parts)
        if solver.by_score and exact and not replicate:
            outcome = with_doubts(products, outcome, options.known, blocks=solver.blocks)
        skewed = agreement.noted.skewed
        if skewed and not (scores or replicate):
            outcome = with_amounts(outcome, skewed)
        yield Note({**outcome.info, **products.info})
        final = partial(Solved.result, products=products, known=agreement.warnings)
        if options.local_graphs and not replicate:
            own = own_graphs(products, masks, solver, outcome)
            return replace(final(outcome), heterogeneity=own)
        if options.parameters != "likelihood":
            return final(outcome)
        # Categories have likelihoods of their own, which choose among graphs near the best.
        assert isinstance(solver, BlockClasses)
        problem = None if options.incomplete else solver.problem(products, masks)
        return (yield from by_likelihood(products, outcome, problem, final))

    def _pooled(
        self, agreement: Agreement, replicate: int
    ) -> Generator[Step, Any, tuple[Products, EdgeMasks]]:
        """Return the products of all rows, and the edges that knowledge and rows allow."""
        options, masks = self.options, self._masks(agreement)
        products = yield from self._products(agreement, masks, replicate)
        products, masks = without_determined(products, masks, joined=agreement.columns_differ)
        if options.unknown_targets:
            return with_unknown_targets(products, masks, options.solving)
        # Regressions of categories, and estimates of cells, leave out rows of stated targets.
        stated = agreement.targets and not options.incomplete
        if stated and options.parameters != "likelihood":
            products = with_kept_mechanisms(products, masks, options.solving)
        return products, masks

    def _products(
        self, agreement: Agreement, masks: EdgeMasks, replicate: int
    ) -> Generator[Step, Any, Products]:
        """Return the exchanges that give the products; by default those of exact sums."""
        options = self.options
        if options.private:
            return released_products(agreement, options)
        if options.compares_parties:
            return products_by_party(agreement, solved_design(agreement, options))
        if agreement.columns_differ:
            holders = self._holders_of(agreement, agreement.names)
            return joined_products(
                agreement, holders, options, replicate=replicate, expected=self._expected
            )
        if options.incomplete:
            return completed_products(agreement, masks, options)
        levels = options.center if self._sends_levels(agreement) else ""
        design = solved_design(agreement, options)
        return exact_products(agreement, design, options.fewer_lags, levels)
