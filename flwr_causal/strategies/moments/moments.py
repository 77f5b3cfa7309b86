"""Moments (Ng & Zhang 2022, section 4): one exchange of sums, then a centralised solver.

:meth:`Moments.train` is the method. ``_products`` chooses the source of sums (``sources/``),
:meth:`Moments.solve` the solver; those other than the search over orders are files beside this one.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.blocks.design import functions_of
from flwr_causal.core.linear.levels import about_one_mean
from flwr_causal.core.linear.moments import Moments as SecondMoments
from flwr_causal.core.linear.order_search import search_orders
from flwr_causal.core.linear.regression import least_squares
from flwr_causal.core.linear.solution import finish
from flwr_causal.core.linear.stability import unsettled, unstable_edges
from flwr_causal.core.series.design import lagged_names
from flwr_causal.core.systems.blocks import BlockModel
from flwr_causal.core.systems.linear import LinearModel
from flwr_causal.data.kinds import DataKind
from flwr_causal.doubts.graphs import amounts_warning, plausible, unstable_warning
from flwr_causal.doubts.tables import OTHER_MECHANISMS
from flwr_causal.protocol.moments import CONTRACT
from flwr_causal.runtime.algorithm import Choice, Note
from flwr_causal.sources.by_party import products_by_party
from flwr_causal.sources.completed import completed_products
from flwr_causal.sources.joined import joined_products
from flwr_causal.sources.normal_scores import by_scores, in_scores, with_scores
from flwr_causal.sources.products import Products, solved_design, target_info
from flwr_causal.sources.released import released_products
from flwr_causal.sources.sums import exact_products
from flwr_causal.strategies.columns import JoiningStrategy, joined_rows
from flwr_causal.strategies.linear import LinearStrategy
from flwr_causal.strategies.local_graphs import require_several
from flwr_causal.strategies.moments.additive import solve_additive
from flwr_causal.strategies.moments.blocks import solve_blocks
from flwr_causal.strategies.moments.classes import solve_class
from flwr_causal.strategies.moments.determined import without_determined
from flwr_causal.strategies.moments.hidden import solve_hidden, solve_hidden_blocks, with_doubts
from flwr_causal.strategies.moments.options import JoinedRows, JoinedSteps, MomentsOptions
from flwr_causal.strategies.moments.outcome import (
    Outcome,
    WeightedGraph,
    result_of,
)
from flwr_causal.strategies.moments.own_graphs import own_graphs
from flwr_causal.strategies.moments.penalised import by_penalty
from flwr_causal.strategies.moments.regressions import by_likelihood
from flwr_causal.strategies.moments.series import masks_of_series, solve_series
from flwr_causal.strategies.moments.targets import (
    with_kept_mechanisms,
    with_unknown_targets,
)
from flwr_causal.strategies.series import (
    expected_of_series,
    stationarity_warning,
    system_of_series,
    with_party_moments,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.core.blocks.normal_scores import NormalScores
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.order_search import OrderSolution
    from flwr_causal.core.parts import Part
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.doubts.tables import Expected
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Progress, Step, Training
    from flwr_causal.sources.joined import Holders
    from flwr_causal.strategies.base import Baselines, RunAlone
    from flwr_causal.strategies.options import takes


class Moments(JoiningStrategy, LinearStrategy):
    """Federated linear structure learning from second moments that the parties add up.

    Means and second moments are sufficient statistics of a linear Gaussian system (Ng & Zhang 2022,
    section 4), and their sums over parties are those of the pooled rows. The graph is therefore
    that of the centralised solver on the pooled data. With an ``order`` p the rows are steps of
    time series with their p lags, and the graph is the dynamic Bayesian network of DYNOTEARS
    (Pamfil et al. 2020) on the series of all parties, or of a regression on the past alone.

    With ``text_columns="keep"`` columns of text, and of true and false, are categories beside the
    numbers. A variable is then a block of columns: each state of a category but one has a column
    that is 1 in its rows and 0 in the others (degenerate Gaussian score, Andrews, Ramsey & Cooper
    2019). The result is the equivalence class of the best Gaussian BIC of the blocks
    (``core.blocks``), as with ``solver="class"``. Its weights are strengths from 0 to 1, without a
    sign; ``run.total_effect`` compares states of the cause.

    **What leaves a party**: in the schema exchange names, types, the number of rows and, for each
    column, mean and sum of squared deviations; then products of the rows [1, z], of shape
    (sets, 1 + s, 1 + s); with ``center="auto"`` or "party" about the means of the party's rows (or
    of each series), and of these means. z has a column for each number, centred (with
    ``standardize``, categories or functions also divided by its standard deviation), with curved
    effects further functions of it, for each state of a category but one, and with an order p the
    lags of all of them. Known interventions and held-out rows divide the rows into sets; where the
    number of lags is chosen, one array for each smaller order follows. With secure summation the
    server learns the pooled products only. With ``epsilon`` it is one array of sums of products
    with noise, and nothing else that depends on the rows. With ``unknown_targets`` and
    ``local_graphs`` the server looks at each party's products, or with secure sums at those of
    groups of parties. Where parties hold different columns (``row_id``), it is hashed ids, masked
    columns and lags that only another party can open, and words whose sum over all parties is that
    of the products of columns.

    References
    ----------
    Ng & Zhang (2022). Towards federated Bayesian network structure learning with continuous
    optimization. AISTATS.

    Pamfil et al. (2020). DYNOTEARS: structure learning from time-series data. AISTATS.
    """

    options_type = MomentsOptions
    options: MomentsOptions

    if TYPE_CHECKING:

        @takes(MomentsOptions)
        def __init__(self, **options: Any) -> None: ...

    contract: ClassVar[Contract] = CONTRACT
    #: The number of lags that a replicate takes over; None where it is not chosen.
    _chosen_order: int | None = None
    #: Whether marks of a PAG must be confirmed on drawn moments; a replicate is a draw itself.
    _confirms_marks: bool = True
    #: The columns that are skewed as amounts are, see :mod:`data.check.tails`.
    _skewed: Sequence[str] = ()

    def train(self, agreement: Agreement, replicate: int = 0) -> Training:
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
    ) -> Training:
        """Train in the units of the agreement: of the data, or of the normal scores given."""
        masks = self.masks(agreement)
        # The parties' sums add up to those of the pooled rows, which are sufficient ...
        pooled = yield from self._pooled(agreement, masks, replicate)
        pooled = with_scores(pooled, scores) if scores else pooled
        # ... for a centralised solver.
        outcome = yield from self._solved(pooled)
        if self.options.tells_hidden and not replicate:
            outcome = with_doubts(pooled, outcome, self._knowledge_or_none, self.options)
        if self._skewed and not (scores or replicate):
            model, p_value = outcome.model, None
            if isinstance(model, LinearModel | BlockModel):
                p_value = model.fit_check().p_value
            said = amounts_warning(p_value, self._skewed)
            outcome = outcome._replace(warnings=(*outcome.warnings, *said))
        yield Note({**outcome.info, **pooled.info})
        final = partial(result_of, pooled, known=agreement.warnings)
        if self.options.local_graphs and not replicate:
            return replace(final(outcome), heterogeneity=own_graphs(pooled, outcome, self.options))
        if self.options.parameters != "likelihood":
            return final(outcome)
        # Categories have likelihoods of their own, which choose among graphs near the best.
        return (yield from by_likelihood(pooled, outcome, self.options, final))

    def _pooled(
        self, agreement: Agreement, masks: EdgeMasks, replicate: int
    ) -> Generator[Step, Any, Products]:
        """Ask for the products of all rows, without columns that others determine."""
        options = self.options
        products = yield from self._products(agreement, masks, replicate)
        pooled = without_determined(products, options, joined=self._columns_differ)
        if options.unknown_targets:
            return with_unknown_targets(pooled, options)
        # Regressions of categories, and estimates of cells, leave out rows of stated targets.
        stated = agreement.targets and not options.incomplete
        if stated and options.parameters != "likelihood":
            return with_kept_mechanisms(pooled, options)
        return pooled

    def _products(
        self, agreement: Agreement, masks: EdgeMasks, replicate: int
    ) -> Generator[Step, Any, Products]:
        """Return the source, the first that applies of five; exact sums are the last."""
        options = self.options
        if options.private:
            return released_products(agreement, masks, options)
        if options.compares_parties:
            return products_by_party(agreement, masks, solved_design(agreement, options))
        if self._columns_differ:
            return joined_products(
                agreement,
                masks,
                self._holders(agreement),
                options,
                replicate=replicate,
                expected=self.expected,
            )
        if options.incomplete:
            return completed_products(agreement, masks, options)
        levels = "" if agreement.targets or not options.level_sums else options.center
        design = solved_design(agreement, options)
        return exact_products(agreement, masks, design, options.fewer_lags, levels)

    def _solved(self, pooled: Products) -> Generator[Choice, Any, Outcome]:
        """Find the graph; a replicate takes over penalties and the like from the main training."""
        agreement = pooled.agreement

        # Both return the outcome, and the options that the main training has settled.
        def first() -> tuple[Outcome, dict[str, Any]]:
            outcome = self.solve(pooled)
            intervened = bool(agreement.targets)
            chosen = self.options.chosen(
                outcome.info, agreement.n, len(agreement.names), intervened
            )
            return outcome, chosen

        def again(main: tuple[Outcome, dict[str, Any]]) -> tuple[Outcome, dict[str, Any]]:
            fixed, chosen = copy.copy(self), dict(main[1])
            fixed._confirms_marks = False
            fixed._chosen_order = chosen.pop("order", None)
            fixed.options = replace(self.options, **chosen)
            return fixed.solve(pooled), main[1]

        found: tuple[Outcome, dict[str, Any]] = yield Choice(first, again)
        return found[0]

    def solve(self, pooled: Products) -> Outcome:
        """Find the graph from products of the rows, by the solver of these options."""
        options, known = self.options, self._knowledge_or_none
        if options.takes_blocks and options.hidden_causes:
            return solve_hidden_blocks(pooled, known)
        if options.takes_blocks:
            return solve_blocks(pooled, options)
        if options.hidden_causes:
            return solve_hidden(pooled, known, self._confirms_marks)
        if options.finds_class:
            return solve_class(pooled, options)
        if options.model == "additive":
            return solve_additive(pooled, options)
        agreement = pooled.agreement
        found: WeightedGraph
        fitted: Callable[[CausalGraph], LinearModel]
        if options.order:
            found = solve_series(
                pooled, options, select_order=self._chosen_order or options.select_order
            )
            fitted = partial(system_of_series, agreement, pooled.design.scale, found.moments)
        else:
            found = self._of_rows(pooled)
            fitted = partial(self.fitted_system, agreement, found.moments)
        graph, warnings = plausible(found.graph, self.units(agreement), found.masks)
        warnings += found.warnings
        model = fitted(graph)
        if isinstance(found.moments, SecondMoments):  # interventions direct edges too
            warnings += self._doubtful_directions(
                agreement, graph, found.masks, model, found.search
            )
        warnings += stationarity_warning(graph, agreement.n)  # none without lags
        return Outcome(found.moments, graph, model, found.scores, tuple(warnings), found.info)

    def _of_rows(self, pooled: Products) -> WeightedGraph:
        """Find the graph of rows without time: by default the one of the best score."""
        options, agreement, masks = self.options, pooled.agreement, pooled.masks
        n, moments = agreement.n, pooled.moments
        solver = options.solver_of(n, len(agreement.names), bool(agreement.targets))
        threshold, _ = options.thresholds(solver)
        if solver == "order":
            search = search_orders(moments, masks, least_effect=options.least_effect)
            found = self._of_orders(moments, masks, search, threshold)
        else:
            found = by_penalty(
                moments,
                masks,
                pooled.design.moments_of_sets(pooled.values, n),
                solver=solver,
                sparsity=options.sparsity,
                threshold=threshold,
                refit=options.refit,
                score=options.score if options.polish else None,
            )
        return found._replace(info={**found.info, **target_info(agreement)})

    def _of_orders(
        self,
        pooled: SecondMoments | Sequence[SecondMoments],
        masks: EdgeMasks,
        search: OrderSolution,
        threshold: float,
    ) -> WeightedGraph:
        """Return the graph of a search over orders; of exact sums without its unstable edges."""
        edges, options, info = search.best.adjacency, self.options, dict(search.info)
        warnings: list[str] = []
        if options.draws_moments and isinstance(pooled, SecondMoments):
            unstable = unstable_edges(
                pooled,
                edges,
                masks,
                least_share=options.stability,
                least_effect=options.least_effect,
            )
            left_out, before = int(unstable.sum()), int(edges.sum())
            if unsettled(left_out, before, pooled.n):
                info |= {"unstable_edges": left_out, "edges": before}
                warnings = unstable_warning(pooled.names, edges, unstable)
            edges = edges & ~unstable
        weights = least_squares(pooled, edges)[0]
        graph = finish(pooled, weights, threshold=threshold, masks=masks, refit=True)
        return WeightedGraph(pooled, graph, search.strengths, masks, info, search, tuple(warnings))

    # What the method is for, what it needs and what it takes for granted.

    def settled(self, options: Any) -> Any:
        """Return the options with a class for normal scores, whose units tell no directions."""
        options = super().settled(options)
        return replace(options, solver="class") if options.settles_class else options

    def validate(self) -> None:
        """Check the options' values."""
        super().validate()
        self.options.check()

    @property
    def data(self) -> DataKind:
        """Time series, or rows without time if the order is 0."""
        return DataKind.SERIES if self.options.order else DataKind.LINEAR

    @property
    def exchanges_beyond(self) -> int:
        """How many exchanges there may be beyond one: none where all sums are asked for at once."""
        return super().exchanges_beyond if len(self.exchanges) > 1 else 0

    @property
    def _leaves_reported(self) -> bool:
        """Not by reports: the pooled moments show which columns others determine."""
        return False

    @property
    def pools_rows(self) -> bool:
        """Whether the pooled moments equal those of the pooled rows, all centred by one mean."""
        return self.options.pools_rows

    @property
    def _takes_median(self) -> bool:  # type: ignore[override]
        """Whether the parties' arrays may be combined by a median; blocks of columns have none."""
        return not self.options.takes_blocks

    @property
    def _weighs_in_units(self) -> bool:
        """Whether a weight is a change of the effect, in its units, by one unit of the cause."""
        of_effects = not (self.options.takes_blocks or self.options.hidden_causes)
        return super()._weighs_in_units and of_effects

    def _annotated(self, state: Progress, graph: CausalGraph) -> CausalGraph:
        """Return the graph with background knowledge; normal scores have standard deviations 1."""
        graph = super()._annotated(state, graph)
        if not self.options.takes_scores or graph.deviations is None:
            return graph
        return replace(graph, deviations=np.ones(len(graph.names)))

    @property
    def _withholds_totals(self) -> bool:  # type: ignore[override]
        """Whether the parties report names of columns only: a release has all that is known."""
        return self.options.private

    @property
    def _tells_levels(self) -> bool:
        """Whether sums tell levels of parties, or of series, apart."""
        return super()._tells_levels and not self._columns_differ

    @property
    def _joins_columns(self) -> bool:  # type: ignore[override]
        """Whether rows of different parties may be matched by ids."""
        return not self.options.private

    @property
    def _different(self) -> type[Part]:
        """The part of parties that hold different columns."""
        return JoinedSteps if self.options.order else JoinedRows

    @property
    def expected(self) -> Expected:
        """What linear methods expect; units of columns do not matter to equivalence classes."""
        options, expected = self.options, super().expected
        if options.order:
            expected = expected_of_series(expected, options.order)
        needed = "centring" if options.order else "levels"
        by_hand = not all(needed in part.gives for part in self._parts)
        by_hand = by_hand or (self._columns_differ and not options.order)
        if expected.level_remedy and by_hand:
            whose = "series'" if options.order else "parties'"
            remedy = f"subtract the {whose} own means before the run"
            expected = replace(expected, level_remedy=remedy)
        if options.takes_blocks:
            expected = replace(expected, columns=functions_of(options.model))
        if self._columns_differ:
            # How many rows there are is known once they are matched.
            expected = replace(expected, columns=0)
        if options.unknown_targets:  # levels and spreads differ where parties act
            expected = replace(expected, level_remedy="", unit_ratio=OTHER_MECHANISMS)
        if not (self._columns_differ or options.private):
            tails = "" if options.takes_scores else "normal scores (scale='normal-scores')"
            expected = replace(expected, tails=tails)
        no_units = options.finds_class or options.hidden_causes or options.takes_scores
        return replace(expected, raw_units=False) if no_units else expected

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on the columns; where rows have ids, on the union of the parties' columns.

        Raises
        ------
        ConfigError
            As in the base classes, if ``scales`` names a column that there is not, or if
            ``stability`` is set for more columns than moments are drawn of.
        DataError
            As in the base classes.
        """
        if self.options.compares_parties:
            option = "unknown_targets" if self.options.unknown_targets else "local_graphs"
            require_several(option, reports)
        agreement = super().agree(reports)
        self._skewed = _skewed_columns(agreement.names, reports.values())
        listed = () if self._entries is None else tuple(one.name for one in self._entries.columns)
        self.options.check_scales((*agreement.names, *listed))
        return agreement

    def complete(
        self,
        agreement: Agreement,
        total: TableReport,
        groups: Mapping[str, TableReport] | None = None,
    ) -> Agreement:
        """Return the agreement with the numbers of all rows."""
        self._skewed = _skewed_columns(agreement.names, [total])
        return super().complete(agreement, total, groups)

    def masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge over the columns or, with lags, the lagged design.

        Raises
        ------
        ConfigError
            If it requires instantaneous edges, and ``instantaneous=False`` leaves them out.
        """
        if not self.options.order:
            return super().masks(agreement)
        return masks_of_series(self._knowledge_or_none, agreement.names, self.options)

    def _holders(self, agreement: Agreement) -> Holders:
        """Return which party holds which column of the design, where they differ."""
        order, names = self.options.order, agreement.names
        presence = np.tile(self._presence_of(names), 1 + order)
        holders = self._holders_of(agreement, lagged_names(names, order), presence)
        return replace(
            holders,
            folds=self.options.num_folds if order else 1,
            order=order,
            variables=names * (1 + order),
        )

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return the results without a federation; where columns differ, of the joined rows.

        A party alone then has some of the columns only, and no graph of all.
        """
        if not self._columns_differ:
            return super().baselines(tables, names, run_alone)
        joined = joined_rows(tables, self.options.row_id)
        found = None if joined is None else super().baselines([joined], names, run_alone)
        return None if found is None else found._replace(alone=[])

    def _with_parties(
        self,
        state: Progress,
        model: Any,
        replies: Mapping[str, Arrays],
        reports: Mapping[str, TableReport],
    ) -> Any:
        """Return a linear system with each party's moments in the units of the data."""
        if self.options.compares_parties:
            return model  # run.targets and run.heterogeneity say how parties differ
        agreement = state.agreement
        if self.options.takes_scores:
            agreement = in_scores(agreement)
        design = solved_design(agreement, self.options)
        levels = self.options.level_sums and not agreement.targets
        sets = slice(None, -self.options.fewer_lags or None)

        def own(moments: FloatArray) -> FloatArray:
            return about_one_mean(moments) if levels else moments[sets].sum(axis=0)

        sent = {
            party: own(arrays["moments"])
            for party, arrays in replies.items()
            if "moments" in arrays
        }
        return with_party_moments(model, agreement, sent, design)


def _skewed_columns(names: Sequence[str], reports: Iterable[TableReport]) -> list[str]:
    """Return the columns that are skewed as amounts are, at a party at least."""
    skewed = {column.name for report in reports for column in report.columns if column.skewed}
    return [name for name in names if name in skewed]
