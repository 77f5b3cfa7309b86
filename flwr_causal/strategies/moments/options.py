"""The options of Moments: the parts that they belong to, and what these give and need."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from flwr_causal.core.folds import NUM_FOLDS
from flwr_causal.core.linear.order_search import LEAST_EFFECT, ROWS_FOR_ORDERS
from flwr_causal.core.linear.stability import LEAST_SHARE
from flwr_causal.core.options import MOST, bounded, changed, require
from flwr_causal.core.parts import Part, all_but, option, words
from flwr_causal.data.check.policy import AutoDropKeep  # noqa: TC001 (checked by type)
from flwr_causal.errors import ConfigError
from flwr_causal.protocol.moments import takes_blocks
from flwr_causal.strategies.columns import CompleteRows, JoinedColumns
from flwr_causal.strategies.linear import InterventionOptions
from flwr_causal.strategies.privacy import PrivateOptions, PrivateRelease
from flwr_causal.strategies.series import Lagged, PenalisedLags, RowsOrSeriesOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

THRESHOLD, LAGGED_THRESHOLD = 0.3, 0.15


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


@dataclass(frozen=True, kw_only=True)
class LaggedEffects(Lagged):
    """Effects within a step and of lags.

    Parameters
    ----------
    select_order : bool, default False
        Choose the number of lags, 1 to ``order``, by the held-out error of one-step predictions.
        All orders are compared on the steps that have ``order`` steps before them; the chosen order
        is then fitted to all steps with that number of lags.
    instantaneous : bool or "auto", default True
        Whether effects within a step are fitted; "auto": if they lower the held-out error by 2 %.
    """

    text = Lagged.text

    select_order: bool = option(False, needs=("folds", "weights"))
    instantaneous: bool | Literal["auto"] = option(
        True, needs={False: ("weights",), "auto": ("folds", "weights")}
    )


# Sources: how the sums of the rows reach the server.


class ScoredNumbers(Part):
    """Sums of normal scores in place of the values of numbers."""

    text = "scale='normal-scores'"
    gives = all_but("centring")


class ExpectedSums(Part):
    """Sums of rows with missing cells, by expectation-maximisation."""

    text = "missing_values='em'"
    gives = all_but("sample", "centring", "median", "folds", "functions", "small counts")


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


class RegressionsOfGaps(Part):
    """Regressions of categories on rows with missing cells."""

    text = "parameters='likelihood' and missing_values='em'"
    gives = all_but("levels")
    needs = words("observed")
    chosen_by = ("parameters",)
    instead = "'moments', or missing_values='drop'"


class Regressions(Part):
    """Regressions of categories with one intercept for all parties."""

    text = "parameters='likelihood'"
    gives = all_but("levels")


class HeldOutRidge(Part):
    """The weight of a squared norm by the error on held-out rows."""

    text = "regression='ridge' and ridge='held-out'"
    needs = words("folds")
    chosen_by = ("regression",)
    instead = "'lasso', or 'ridge' with a number for 'ridge',"


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
    gives = all_but("centring", "levels", "median", "folds", "functions", "iterations", "sets")

    unknown_targets: bool = option(False, needs=("parties", "sufficiency"))
    local_graphs: bool = option(False, needs=("parties", "sufficiency"))


class UnknownTargets(SumsByParty):
    """Sums of each party's rows, which show on what it acts."""

    text = "unknown_targets=True"
    gives = SumsByParty.gives - words("observed")


class JoinedRows(JoinedColumns):
    """Sums over rows without time whose columns are at different parties."""

    gives = JoinedColumns.gives - words(
        "centring", "levels", "median", "folds", "functions", "iterations", "sets", "scores"
    )


class JoinedSteps(JoinedRows):
    """Sums over steps of time series whose columns are at different parties."""

    gives = JoinedRows.gives | words("centring", "folds")


# Solvers: from sums to a graph.


@dataclass(frozen=True, kw_only=True)
class SearchOfEdges(Part):
    """A search for the graph of the best score.

    Parameters
    ----------
    least_effect : float, default 0.1
        With the solvers "order" and "class": least partial correlation of an edge, given the other
        causes. Smaller effects are significant in large samples even where a system is only nearly
        linear, see ``core.linear.order_search.LEAST_EFFECT``.
    """

    text = "solver='order' or 'class'"

    least_effect: float = bounded(LEAST_EFFECT, least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class StableEdges(SearchOfEdges):
    """A search over orders, without the edges that redrawn sums do not give.

    Parameters
    ----------
    stability : float, default 0.4
        With the solver "order", for rows without time: least share of ten redrawn second moments
        whose equivalence class allows an edge; others are left out (``core.linear.stability``, with
        what the default was chosen on). 0 keeps all edges of the best graph. Replicates keep them.
    """

    text = "solver='order' and rows without time, interventions, epsilon and local_graphs"

    stability: float = bounded(LEAST_SHARE, least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class GreedyClass(Part):
    """An equivalence class by greedy search.

    Parameters
    ----------
    max_parents : int, optional
        Largest number of parents of a variable, for the solvers "class" and
        "ges". Default: no limit.
    """

    text = "solver='class' or 'ges'"
    gives = all_but("weights")

    max_parents: int | None = bounded(None, least=1, most=MOST)


class SearchedClass(GreedyClass, SearchOfEdges):
    """An equivalence class by a search over orders."""


@dataclass(frozen=True, kw_only=True)
class Penalised(Part):
    """Weights with an L1 norm.

    Parameters
    ----------
    sparsity : float or {"auto", "bic", "held-out"}, default "auto"
        Weight of the L1 norm, for "dagma" and "notears". "auto" is c sqrt(log d / n) times the
        geometric mean of the variances (``core.linear.selection.default_sparsity``;
        ``core.series.solution`` with lags); "bic" chooses among multiples of it by the Gaussian
        BIC; "held-out" by the error on held-out rows, whose moments are sent separately: a quarter
        of the rows of every party or, with lags, each fifth of them once.
    polish : bool, default False
        Add, drop and reverse single edges of the solver's graph as long as ``score`` improves, on
        the same moments.
    """

    text = "solver='dagma' or 'notears'"

    sparsity: float | Literal["auto", "bic", "held-out"] = option(
        "auto", needs={"bic": ("candidates",), "held-out": ("candidates", "folds")}, least=0
    )
    polish: bool = option(False, needs="solvers")


@dataclass(frozen=True, kw_only=True)
class Refitted(Penalised):
    """Weights with an L1 norm, which may be fitted again without it.

    Parameters
    ----------
    refit : bool, default True
        Fit the weights of the final graph by least squares, without the shrinkage of the L1 norm.
        ``graph.raw_weights`` has the solver's weights. "order" always fits by least squares.
    """

    text = "solver='dagma' or 'notears' without polish"

    refit: bool = True


@dataclass(frozen=True, kw_only=True)
class PolishedGraph(Penalised):
    """A graph whose edges are changed as long as a score improves.

    Parameters
    ----------
    score : {"bic", "equal-variance"}, default "bic"
        The score that ``polish`` improves. "equal-variance" assumes that all noise terms have the
        same variance, as in the papers' simulations; real data seldom satisfy this.
    """

    text = "polish=True"

    score: Literal["bic", "equal-variance"] = "bic"


@dataclass(frozen=True, kw_only=True)
class PenalisedSteps(PenalisedLags):
    """Weights with a norm, of the effects of lags too.

    Parameters
    ----------
    regression : {"lasso", "ridge", "held-out"}, default "lasso"
        Penalty of the effects; "held-out" chooses the one of smaller held-out error.
    ranking : {"weights", "partial-correlation+weights"}, default "weights"
        The strengths in ``run.scores``. "partial-correlation+weights" adds contemporaneous partial
        correlations, which are symmetric: for series that are sampled more slowly than effects act,
        as in fMRI.
    """

    text = "time series (order=1 or more) by the solvers 'dagma' or 'notears'"
    needs = words("observed")
    chosen_by = ("order",)
    instead = "0 with the solvers 'dagma' and 'notears'"

    regression: Literal["lasso", "ridge", "held-out"] = option(
        "lasso", needs={"held-out": ("folds",)}
    )
    ranking: Literal["weights", "partial-correlation+weights"] = option("weights", needs="folds")


@dataclass(frozen=True, kw_only=True)
class Ridge(PenalisedSteps):
    """A squared norm of the weights.

    Parameters
    ----------
    ridge : float or "held-out", default "held-out"
        Weight of the squared norm, in units of the variables' variance.
    """

    text = "regression='ridge' or 'held-out'"

    ridge: float | Literal["held-out"] = bounded("held-out", least=0)


#: The options that choose a penalised solver.
PENALISED = tuple(one.name for part in (Refitted, Ridge) for one in fields(part))


class AdditiveEffects(Refitted):
    """Sums of functions of the causes, by weights with an L1 norm."""

    text = "model='additive'"
    gives = all_but("solvers", "candidates")


class AncestralGraph(Part):
    """A partial ancestral graph, of variables that may have hidden common causes."""

    text = "hidden_causes=True"
    gives = all_but("sufficiency", "weights")


@dataclass(frozen=True, kw_only=True)
class MomentsOptions(
    BlockColumns,
    SumsByParty,
    StableEdges,
    GreedyClass,
    Refitted,
    PolishedGraph,
    LaggedEffects,
    Ridge,
    InterventionOptions,
    PrivateOptions,
    RowsOrSeriesOptions,
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
        ``sparsity``, ``polish`` or another option of the L1 solvers is set, with
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
        ones. A warning then names the columns. Where sums cannot tell levels apart (interventions,
        ``epsilon``, ``unknown_targets``, ``local_graphs``, different columns, choices by held-out
        rows, additive effects, ``parameters="likelihood"``) it is "global".
    threshold : float or None, default None
        Edges of absolute weight up to this are left out. None is 0.15 with an order; without one
        it is 0 with ``solver="order"``, whose score selects the edges, otherwise 0.3, and 0.1 for
        additive effects.
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
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose: design, source and solver."""
        return (*super().parts, *self._design, *self._source, *self._solvers)

    @property
    def _release(self) -> type[PrivateRelease]:
        """The part of a release; which columns are categories is public by a dictionary alone."""
        return ReleaseOfStates if self.dictionary else ReleaseOfNumbers

    @property
    def _design(self) -> list[type[Part]]:
        """What a row becomes."""
        found: list[type[Part]] = [BlockColumns] if self.takes_blocks else []
        if self.takes_scores:
            found.append(ScoredNumbers)
        return [*found, LaggedEffects] if self.order else found

    @property
    def _source(self) -> list[type[Part]]:
        """How the sums reach the server."""
        found: list[type[Part]] = [ExpectedSums if self.incomplete else CompleteRows]
        if self.unshared_columns == "keep":
            found.append(LackedColumns)
        if self.parameters == "likelihood":
            found.append(RegressionsOfGaps if self.incomplete else Regressions)
        if self.unknown_targets:
            found.append(UnknownTargets)
        if self.local_graphs:
            found.append(SumsByParty)
        return found

    @property
    def _solvers(self) -> list[type[Part]]:
        """What finds the graph."""
        if self.hidden_causes:
            return [AncestralGraph]
        if self.model == "additive":
            return [AdditiveEffects]
        if self.takes_blocks or self.solver == "class":
            return [SearchedClass]
        if self.solver == "ges":
            return [GreedyClass]
        if self.solver == "order" or (self.solver == "auto" and not self.takes_dagma):
            return [StableEdges if self.draws_moments else SearchOfEdges]
        found: list[type[Part]] = [PolishedGraph if self.polish else Refitted]
        if not self.order:
            return found
        if self.regression != "lasso" and self.ridge == "held-out":
            found.append(HeldOutRidge)
        return [*found, PenalisedSteps if self.regression == "lasso" else Ridge]

    @property
    def takes_blocks(self) -> bool:
        """Whether a variable is a block of columns: a category, or functions of a number."""
        return takes_blocks(self, self.text_columns)

    @property
    def takes_scores(self) -> bool:
        """Whether numbers are normal scores."""
        return self.scale == "normal-scores"

    @property
    def settles_class(self) -> bool:
        """Whether ``solver="auto"`` is "class": the units of normal scores tell no directions."""
        if not self.takes_scores or self.solver != "auto" or self.takes_dagma:
            return False
        other = self.hidden_causes or self.model == "additive"
        return not other and not changed(self, "stability", "threshold")

    @property
    def block_limits(self) -> dict[str, Any]:
        """What limits the graphs of a search over blocks of columns."""
        return {"least_effect": self.least_effect, "max_parents": self.max_parents}

    @property
    def finds_class(self) -> bool:
        """Whether the result is an equivalence class."""
        return not self.hidden_causes and (self.solver in ("class", "ges") or self.takes_blocks)

    @property
    def tells_hidden(self) -> bool:
        """Whether the graph is checked for hidden common causes: one of best BIC, of exact sums.

        With lags it is the graph within a step.
        """
        searched = self.solver in ("auto", "order", "class", "ges") and not self.takes_dagma
        # An edge between blocks of functions costs nine times as much, which hides the signs.
        effects = self.model == "linear" and (self.order == 0 or self.instantaneous is True)
        exact = not (self.private or self.hidden_causes or self.unshared_columns == "keep")
        return searched and effects and exact

    @property
    def draws_moments(self) -> bool:
        """Whether edges are left out that redrawn moments do not give, see ``stability``."""
        other = self.takes_dagma or self.takes_blocks or self.hidden_causes or self.local_graphs
        unlike = self.order > 0 or self.private or self.model != "linear" or other
        acted = self.interventions is not None or bool(self.intervention_column)
        return self.solver in ("auto", "order") and not (unlike or acted)

    @property
    def incomplete(self) -> bool:
        """Whether rows with missing cells take part."""
        return self.missing_values == "em"

    @property
    def takes_dagma(self) -> bool:
        """Whether options make ``solver="auto"`` "dagma"."""
        # A median varies more than the moments of as many rows; a threshold forgives that.
        unusual = self.aggregation == "median" or self.instantaneous == "auto"
        return unusual or changed(self, *PENALISED)

    def solver_of(
        self, num_rows: int, num_columns: int, intervened: bool
    ) -> Literal["order", "dagma", "notears"]:
        """Return the solver that finds weights, for a design of that many rows and columns."""
        assert self.solver != "class"
        assert self.solver != "ges"
        if self.solver != "auto":
            return self.solver
        few = self.order > 0 and num_rows < ROWS_FOR_ORDERS * num_columns and not intervened
        return "dagma" if few or self.takes_dagma else "order"

    def chosen(
        self, info: Mapping[str, Any], num_rows: int, num_variables: int, intervened: bool
    ) -> dict[str, Any]:
        """Return the options that a training has settled, by name; replicates take them over.

        Parameters
        ----------
        info : mapping
            What the solver says of its choices: penalties, order and the like.
        num_rows, num_variables : int
        intervened : bool
            Whether there are interventions.
        """
        if self.model == "additive" or self.finds_class or self.hidden_causes:
            return {}
        settled: dict[str, Any] = {
            "solver": self.solver_of(num_rows, num_variables * (1 + self.order), intervened),
            **{name: info[name] for name in ("sparsity", "ridge") if name in info},
        }
        if self.draws_moments:
            settled["stability"] = 0.0  # replicates are draws themselves
        if self.order:
            settled["instantaneous"] = bool(info["instantaneous"])
            settled["ranking"] = "weights"  # others need folds
            settled["lagged_sparsity"] = self.lagged_factor(self.sparsity)
            if self.regression == "held-out":
                settled["regression"] = "ridge" if "ridge" in info else "lasso"
            if self.select_order:
                settled["order"] = info["order"]
        return settled

    def thresholds(self, solver: Literal["order", "dagma", "notears"]) -> tuple[float, float]:
        """Return the thresholds of instantaneous and of lagged edges."""
        usual = LAGGED_THRESHOLD if self.order else THRESHOLD
        if solver == "order" and not self.order:
            usual = 0.0
        return self.limits(usual if self.threshold is None else self.threshold)

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
        if not self.order:
            return 2 if self.held_out else 1
        holds_out = (
            self.select_order
            or self.instantaneous == "auto"
            or self.sparsity == "held-out"
            or self.regression == "held-out"
            or (self.regression != "lasso" and self.ridge == "held-out")
            or self.ranking != "weights"
        )
        return NUM_FOLDS if holds_out else 1

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
    def pools_rows(self) -> bool:
        """Whether the pooled moments equal those of the pooled rows, all centred by one mean."""
        by_sums = self.aggregation == "mean" and not (self.held_out or self.private)
        by_sums = by_sums and not self.compares_parties
        by_sums = by_sums and not self.incomplete and self.order == 0
        return by_sums and self.center in ("auto", "global")

    def check(self) -> None:
        """Check that the options fit each other.

        Raises
        ------
        ConfigError
            Naming the option and its possible values.
        """
        if self.max_rounds != 1:
            raise ConfigError(
                f"The option 'max_rounds' is {self.max_rounds!r}; the moments method decides how "
                "many exchanges it needs. Leave the option out."
            )
        own = self.center != "party" or self.level_sums or not self.takes_scores
        require(own, "center", self.center, "'auto' or 'global' with scale='normal-scores' here")
        if self.order:
            self.check_series()

    @property
    def compares_parties(self) -> bool:
        """Whether the moments of the parties, or of groups of them, are compared."""
        return self.unknown_targets or self.local_graphs
