"""The options of Moments: the parts that they belong to, and what these give and need."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.options import changed
from flwr_causal.core.parts import Part, all_but, made, option, words
from flwr_causal.data.check.handling import AutoDropKeep  # noqa: TC001 (checked by type)
from flwr_causal.protocol.moments import takes_blocks
from flwr_causal.strategies.columns import CompleteRows, JoinedColumns, JoiningOptions
from flwr_causal.strategies.linear import InterventionOptions
from flwr_causal.strategies.moments.solvers.additive import Additive
from flwr_causal.strategies.moments.solvers.ancestral import Ancestral, AncestralBlocks
from flwr_causal.strategies.moments.solvers.blocks import BlockClasses
from flwr_causal.strategies.moments.solvers.classes import Classes, GreedyClass, GreedyClasses
from flwr_causal.strategies.moments.solvers.orders import Orders, StableEdges, StableOrders
from flwr_causal.strategies.moments.solvers.penalised import Penalised, Sparse
from flwr_causal.strategies.moments.solvers.series import FittedLags, LaggedWeights, Ridge
from flwr_causal.strategies.privacy import PrivateOptions, PrivateRelease
from flwr_causal.strategies.series import Lagged, RowsOrSeriesOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.runtime.options import Baselines
    from flwr_causal.strategies.moments.solvers.solver import Solver

# Designs: what a row becomes.


@dataclass(frozen=True, kw_only=True)
class BlockColumns(Part):
    """Variables that are blocks of columns: a category's states, or functions of a number.

    Parameters
    ----------
    categories : str, default ""
        With ``text_columns="keep"``: columns, separated by commas, that are categories although
        their values are numbers.
    numbers : str, default ""
        With ``text_columns="keep"``: columns, separated by commas, that are numbers although all of
        their cells are texts.
    parameters : {"moments", "likelihood"}, default "moments"
        How a category given its causes is described: by linear discriminant analysis, which follows
        from the second moments and is right where the causes are normal in each state, or by
        logistic regression, which takes 2 to 8 exchanges more (at most 16) of sums over the rows
        (``core.blocks.logistic``). With "likelihood" the regressions also choose the graph, among
        those near the best Gaussian score (``core.blocks.near_ties``). Rows of an intervention on a
        category say nothing of its regression; all stated targets count as such.
    """

    text = "text_columns='keep' or model='curved'"
    gives = all_but("numbers", "centring", "median", "small counts")

    categories: str = ""
    numbers: str = ""
    parameters: Literal["moments", "likelihood"] = option(
        "moments", needs=("iterations", "rows", "sufficiency")
    )


class LaggedEffects(FittedLags, Lagged):
    """Steps of time series with their lags."""


# Sources: how the sums of the rows reach the server.


class ScoredNumbers(Part):
    """Sums of normal scores in place of the values of numbers."""

    text = "scale='normal-scores'"
    gives = all_but("centring", "row weights")


class ExpectedSums(Part):
    """Sums of rows with missing cells, by expectation-maximisation."""

    text = "missing_values='em'"
    gives = all_but("sample", "centring", "median", "folds", "functions", "small counts")


@dataclass(frozen=True, kw_only=True)
class WeightedRows(Part):
    """Sums in which each row counts as its weight.

    Parameters
    ----------
    weight_column : str, default ""
        The column of the rows' weights: of a survey, or inverse probabilities. It is no variable,
        and does not leave the party. Graph and weights are those of the weighted rows; only ratios
        of weights matter, and rows of weight 0 count for nothing. Scores, tests and intervals count
        Kish's effective rows, (sum w)^2 / sum w^2. See docs/how_to/weights.md.
    """

    text = "weight_column"
    gives = all_but("centring", "levels")

    weight_column: str = option("", needs=("exact", "row weights"))


class ReleaseOfStates(PrivateRelease):
    """A release of the sums of numbers and categories, whose states a dictionary has."""

    gives = PrivateRelease.gives | words("states")


class ReleaseOfNumbers(PrivateRelease):
    """A release of the sums of numbers."""

    remedies = (("states", "a dictionary given"),)


class LackedColumns(Part):
    """Columns that some parties lack, and no party may hold with another one."""

    text = "unshared_columns='keep'"
    gives = all_but("levels", "pairs")


class Regressions(Part):
    """Regressions of categories: one intercept for all parties, and each row counts once."""

    text = "parameters='likelihood'"
    gives = all_but("levels", "row weights")


class RegressionsOfGaps(Regressions):
    """Regressions of categories on rows with missing cells."""

    text = "parameters='likelihood' and missing_values='em'"
    needs = words("observed")
    chosen_by = ("parameters",)
    instead = "'moments', or missing_values='drop'"


@dataclass(frozen=True, kw_only=True)
class SumsByParty(Part):
    """Sums of each party's rows, which are compared.

    Parameters
    ----------
    unknown_targets : bool, default False
        Whether parties may act on variables, which nobody has told: interventions with unknown
        targets, by party. The parties' second moments are compared, and the search for what they
        act on takes turns with that for the graph (``core.interventions.targets``).
        ``run.targets`` lists them; the graph is that of known interventions on them, with
        ``solver="class"`` their interventional class. For two parties or more, better three; with
        ``secure_aggregation`` ``groups`` are compared.
    local_graphs : bool, default False
        Find each party's own graph beside the common one, from the moments that the party sends
        (``core.interventions.local_graphs``): the common causes of every variable but those whose
        mechanism in the party's rows differs beyond sampling error. With "class", categories or
        curved effects it is a class, too. ``run.local_graphs`` has these graphs and
        ``run.heterogeneity`` their differences. With ``secure_aggregation`` they are those of
        ``groups``.
    """

    text = "local_graphs=True"
    gives = all_but(
        *("centring", "levels", "median", "folds", "functions", "iterations", "sets", "pooled")
    )

    unknown_targets: bool = option(False, needs=("parties", "sufficiency"))
    local_graphs: bool = option(False, needs=("parties", "sufficiency"))


class UnknownTargets(SumsByParty):
    """Sums of each party's rows, which show on what it acts."""

    text = "unknown_targets=True"
    gives = SumsByParty.gives - words("observed")


class JoinedRows(JoinedColumns):
    """Sums over rows without time whose columns are at different parties."""

    gives = JoinedColumns.gives - words(
        "centring",
        "levels",
        "median",
        "folds",
        "functions",
        "iterations",
        "row weights",
        "scores",
        "sets",
    )


class JoinedSteps(JoinedRows):
    """Sums over steps of time series whose columns are at different parties."""

    gives = JoinedRows.gives | words("centring", "folds")


#: The options that choose a penalised solver.
PENALISED = tuple(one.name for part in (Sparse, Ridge) for one in fields(part))


@dataclass(frozen=True, kw_only=True)
class MomentsOptions(
    BlockColumns,
    WeightedRows,
    SumsByParty,
    StableEdges,
    GreedyClass,
    Sparse,
    FittedLags,
    Ridge,
    InterventionOptions,
    PrivateOptions,
    RowsOrSeriesOptions,
    JoiningOptions,
):
    """The options of :class:`~flwr_causal.strategies.moments.moments.Moments`.

    Parameters
    ----------
    missing_values : {"auto", "fail", "drop", "em"}, default "auto"
        "em" keeps rows with missing cells: their moments are estimated by expectation-maximisation
        over the sums of all parties (``core.blocks.missing``), an exchange a step; under known
        interventions those of each set of targets (``core.blocks.missing_interventions``). With an
        order the rows are steps with their lags, any of whose cells may be missing. Not where
        parties hold different columns of the same rows.
    unshared_columns : {"auto", "fail", "drop", "keep"}, default "auto"
        With ``missing_values="em"`` "keep" takes a column that a party lacks as missing there.
    text_columns : {"auto", "fail", "drop", "keep"}, default "auto"
        What to do about columns that hold no numbers: fail, leave them out, or take them as
        categories.
    scale : {"data", "normal-scores"}, default "data"
        "normal-scores" takes the normal score of each number in place of its value, by its rank
        among the rows of all parties (nonparanormal: Liu, Lafferty & Wasserman 2009; Harris &
        Drton 2013): where effects are linear between monotone functions of the columns, such as
        logarithms, and where a few cells are mistyped. It takes one exchange more, in which
        parties count their rows up to the points of a grid. Effects and weights are then in
        standard deviations of normal scores.
    model : {"linear", "additive", "curved"}, default "linear"
        "additive" lets every effect be a sum of five functions of its cause, the same at all
        parties (``core.nonlinear.additive``). The parties send their second moments,
        (1 + 5 d) x (1 + 5 d), and the graph is again that of the pooled rows. ``graph.weights`` are
        then the effects' standard deviations in units of that of the effect variable, and have no
        sign. "curved" lets every effect be curved: a number is a block of three functions of it,
        and the result is an equivalence class, see above.
    solver : {"auto", "order", "class", "dagma", "notears", "ges"}, default "auto"
        "order" searches over the orders of the variables for the graph of the best score
        (``core.linear.order_search``); it allows for noise terms of different variances, and takes
        seconds for hundreds of variables. "dagma" and "notears" minimise the squared error with an
        L1 norm of the weights, as if all noise terms had one variance: "dagma" on the central path
        of the log-determinant (Bello et al. 2022), "notears" by the augmented Lagrangian of the
        trace exponential (Zheng et al. 2018). "class" and "ges" return an equivalence class, a
        CPDAG, which does not depend on the units of the columns; directions that second moments
        cannot decide stay open. With known interventions the class is an interventional one. The
        score is the Gaussian BIC whose cost of an edge grows with log d
        (``core.ges.linear_class``); there is neither a sparsity nor a threshold. "class" searches
        over orders of the variables first, "ges" begins with greedy equivalence search (Chickering
        2002; Hauser & Buhlmann 2012). "auto" is "order", except: it is "dagma" if
        ``sparsity`` or another option of the L1 solvers is set, with
        ``aggregation="median"`` (a median varies more than the moments of as many rows), and for
        series without known interventions of fewer than 5 rows for each column of the lagged
        design, where "order" misses weak effects (docs/2dbn.md). With ``scale="normal-scores"`` it
        is "class" in place of "order": variables of one variance tell no directions.
    hidden_causes : bool, default False
        Whether variables may have common causes that no party has measured. The result is then a
        partial ancestral graph (``graph.kind`` is "pag"): its marks say which variables are causes
        of others, which are not, and what stays open (``core.ges.ancestral_search``). For rows
        without time. ``run.total_effect`` gives the effects that are identified, and says of the
        others what leaves them open.
    center : {"auto", "global", "party", "series", "phase"}, default "auto"
        Which means are subtracted from the rows: "global" the mean of all rows; "party" each
        party's own, for rows without time, as with an intercept for each party; "series" and
        "phase" are for series, see :class:`~flwr_causal.strategies.two_dbn.TwoDBN`. "auto" is
        "party", and with an order each series has an intercept, where the levels of the parties or
        series differ (``core.linear.levels``): the sums of the same exchange tell it, also secure
        ones. A warning then names the columns. With choices by held-out rows and additive effects
        the parties' reports tell it. With interventions, ``epsilon``, ``unknown_targets``,
        ``local_graphs``, different columns, ``weight_column`` and ``parameters="likelihood"`` it is
        "global".
    threshold : float or None, default None
        Edges of absolute weight up to this are left out. None is 0.15 with an order; without one
        it is 0 with ``solver="order"``, whose score selects the edges, otherwise 0.3, and 0.1 for
        additive effects.

    Examples
    --------
    >>> from flwr_causal.strategies.moments.options import MomentsOptions
    >>> MomentsOptions(solver="class", max_parents=3).max_parents
    3
    """

    missing_values: Literal["auto", "fail", "drop", "em"] = option(  # type: ignore[assignment]
        "auto", needs={"em": ("iterations",)}
    )
    unshared_columns: AutoDropKeep = option(  # type: ignore[assignment]
        "auto", needs={"keep": ("gaps",)}
    )
    text_columns: AutoDropKeep = "auto"  # type: ignore[assignment]
    center: Literal["auto", "global", "party", "series", "phase"] = "auto"  # type: ignore[assignment]
    standardize: bool = option(False, needs="numbers")
    scale: Literal["data", "normal-scores"] = option("data", needs="scores")
    model: Literal["linear", "additive", "curved"] = option(
        "linear",
        needs={
            "additive": ("functions", "numbers", "observed", "rows", "sufficiency"),
            "curved": ("reports",),
        },
    )
    solver: Literal["auto", "order", "class", "dagma", "notears", "ges"] = option(
        "auto",
        needs={
            **dict.fromkeys(
                ("order", "dagma", "notears", "ges"), ("numbers", "solvers", "sufficiency")
            ),
            "class": ("solvers", "sufficiency"),
        },
    )
    hidden_causes: bool = option(False, needs=("exact", "observed", "pairs", "rows"))
    threshold: float | None = None  # type: ignore[assignment]

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns that are not variables, also that of weights."""
        own = (self.weight_column,) if self.weight_column else ()
        return (*super().role_columns, *own)

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], handling: Handling
    ) -> Baselines | None:
        """Return the graphs of a search over orders, which ignores weights: None of such rows."""
        return None if self.weight_column else super().baselines(tables, names, handling)

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose: design, source and solver."""
        chosen = {
            BlockColumns: self.takes_blocks,
            ScoredNumbers: self.takes_scores,
            LaggedEffects: self.order > 0,
            ExpectedSums if self.incomplete else CompleteRows: True,
            LackedColumns: self.unshared_columns == "keep",
            WeightedRows: bool(self.weight_column),
            RegressionsOfGaps if self.incomplete else Regressions: self.parameters == "likelihood",
            UnknownTargets: self.unknown_targets,
            SumsByParty: self.local_graphs,
        }
        own = [part for part, holds in chosen.items() if holds]
        return (*super().parts, *own, *self.solving.parts)

    @property
    def _release(self) -> type[PrivateRelease]:
        """The part of a release; which columns are categories is public by a dictionary alone."""
        return ReleaseOfStates if self.dictionary else ReleaseOfNumbers

    @cached_property
    def solving(self) -> Solver:
        """The solver that the values choose, with its options."""
        solver, blocks = self.solver, self.takes_blocks
        if self.hidden_causes:
            return made(AncestralBlocks if blocks else Ancestral, self)
        if self.model == "additive":
            return made(Additive, self)
        if blocks:
            return made(BlockClasses, self)
        if solver == "auto" and self._settles_class:
            solver = "class"
        if solver in ("class", "ges"):
            return made(Classes if solver == "class" else GreedyClasses, self)
        penalised = self._takes_penalty
        if solver == "auto" and penalised:
            solver = "dagma"
        if self.order:
            return made(LaggedWeights, self, solver=solver)
        if solver in ("dagma", "notears"):
            return made(Penalised, self, solver=solver)
        drawn = self.private or self.local_graphs or self.states_interventions or penalised
        return made(Orders if drawn else StableOrders, self)

    @property
    def _takes_penalty(self) -> bool:
        """Whether ``solver="auto"`` is a penalised one."""
        # A median varies more than the moments of as many rows; a threshold forgives that.
        unusual = self.aggregation == "median" or self.instantaneous == "auto"
        return unusual or changed(self, *PENALISED)

    @property
    def takes_scores(self) -> bool:
        """Whether numbers are normal scores."""
        return self.scale == "normal-scores"

    @property
    def _settles_class(self) -> bool:
        """Whether ``solver="auto"`` is "class": the units of normal scores tell no directions."""
        chosen = self._takes_penalty or changed(self, "stability", "threshold")
        return self.takes_scores and not chosen

    @property
    def takes_blocks(self) -> bool:
        """Whether a variable is a block of columns: a category, or functions of a number."""
        return takes_blocks(self, self.text_columns)

    @property
    def incomplete(self) -> bool:
        """Whether rows with missing cells take part."""
        return self.missing_values == "em"

    @property
    def by_party(self) -> bool:
        """Whether parties send estimates of the columns that they have, which are no sum."""
        return (
            self.incomplete
            and self.unshared_columns == "keep"
            and self.order == 0
            and not self.secure_aggregation
        )

    @property
    def held_out(self) -> bool:
        """Whether a quarter of the rows, or each fifth of a series once, is held out."""
        return self.sparsity == "held-out"

    @property
    def num_folds(self) -> int:
        """The number of folds whose moments are sent: several to choose by held-out error."""
        return self.solving.num_folds

    @property
    def fewer_lags(self) -> int:
        """The number of smaller orders, from 1, whose moments are sent: to choose among them."""
        return self.order - 1 if self.select_order else 0

    @property
    def level_sums(self) -> bool:
        """Whether the sums tell levels of parties, or of series, apart."""
        if self.center not in ("auto", "party") or self.num_folds > 1 or self.fewer_lags:
            return False
        by_series = self.incomplete and self.order > 0
        # Functions of values about each party's own mean, see center='party'.
        if by_series or self.model == "additive":
            return False
        return all("levels" in part.gives for part in self.parts)

    @property
    def leaves_reported(self) -> bool:
        """Not by reports: the pooled moments show which columns others determine."""
        return False

    @property
    def takes_median(self) -> bool:
        """Whether the parties' arrays may be combined by a median; blocks of columns have none."""
        return not self.takes_blocks

    @property
    def weighs_in_units(self) -> bool:
        """Whether a weight is a change of the effect, in its units, by one unit of the cause."""
        return self.model == "linear" and not (self.takes_blocks or self.hidden_causes)

    def annotated(self, graph: CausalGraph, agreement: Agreement | None) -> CausalGraph:
        """Return the graph with the standard deviations of its columns, 1 of normal scores."""
        graph = super().annotated(graph, agreement)
        if not self.takes_scores or graph.deviations is None:
            return graph
        return replace(graph, deviations=np.ones(len(graph.names)))

    @property
    def withholds_totals(self) -> bool:
        """Whether the parties report names of columns only: a release has all that is known."""
        return self.private

    @property
    def joins_columns(self) -> bool:
        """Whether rows of different parties may be matched by ids."""
        return not self.private

    @property
    def compares_parties(self) -> bool:
        """Whether the moments of the parties, or of groups of them, are compared."""
        return self.unknown_targets or self.local_graphs
