"""Moments (Ng & Zhang 2022, section 4): one exchange of sums, then a centralised solver."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from flwr_causal.core.blocks.design import column_names, functions_of, variables_of
from flwr_causal.core.blocks.model import BlockModel
from flwr_causal.core.blocks.search import block_class
from flwr_causal.core.ges.linear_class import linear_class
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.folds import NUM_FOLDS, num_held_out
from flwr_causal.core.linear.interventions import (
    distinguished_pairs,
    moments_by_variable,
)
from flwr_causal.core.linear.model import LinearModel
from flwr_causal.core.linear.moments import Moments as SecondMoments
from flwr_causal.core.linear.moments import moments_of_variables
from flwr_causal.core.linear.notears import notears
from flwr_causal.core.linear.order_search import LEAST_EFFECT, ROWS_FOR_ORDERS, search_orders
from flwr_causal.core.linear.polish import polish_graph
from flwr_causal.core.linear.regression import least_squares
from flwr_causal.core.linear.selection import (
    automatic_sparsity,
    default_grid,
    select_by_bic,
    select_by_held_out,
)
from flwr_causal.core.linear.solution import finish
from flwr_causal.core.nonlinear.additive import THRESHOLD as ADDITIVE_THRESHOLD
from flwr_causal.core.nonlinear.additive import additive, function_names
from flwr_causal.core.options import MOST, Mode, changed, number_or_none, only, require
from flwr_causal.core.privacy.release import read, scales_of, steps_of_noise, variance_of_counts
from flwr_causal.core.privacy.scales import Scaling
from flwr_causal.core.series.design import lagged_graph, lagged_names, split_blocks
from flwr_causal.core.series.solution import LaggedProblem
from flwr_causal.data.interventions import acted_on
from flwr_causal.doubts.graphs import combination_warning, determined_warning
from flwr_causal.doubts.tables import few_rows
from flwr_causal.errors import ConfigError
from flwr_causal.protocol.columns import MASKED_TABLES, PRODUCTS
from flwr_causal.protocol.moments import CONTRACT, EXPECTED, OWN, SEEN, SUMS, takes_blocks
from flwr_causal.protocol.release import OCTAVES, RELEASE
from flwr_causal.protocol.row_ids import ALIGN
from flwr_causal.runtime.algorithm import Ask, Choice, Note, Result
from flwr_causal.secure.neighbours import least_parties
from flwr_causal.strategies.columns import ColumnsStrategy, joined_agreement, joined_sums
from flwr_causal.strategies.interventions import InterventionOptions, InterventionStrategy
from flwr_causal.strategies.linear import OF_LINEAR
from flwr_causal.strategies.missing import expected_moments
from flwr_causal.strategies.options import require_fitting
from flwr_causal.strategies.privacy import PrivateOptions, PrivateStrategy, scale_warning
from flwr_causal.strategies.series import (
    OF_LAGS,
    RowsOrSeries,
    RowsOrSeriesOptions,
    by_block,
    series_moments,
    stationarity_warning,
    system_of_series,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.order_search import OrderSolution
    from flwr_causal.core.series.model import LaggedModel
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.doubts.tables import Expected
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Training


THRESHOLD, LAGGED_THRESHOLD = 0.3, 0.15
# Options of the penalised solvers, "dagma" and "notears".
PENALISED = ("sparsity", "lagged_sparsity", "regression", "ridge", "ranking", "polish", "refit")


OF_BLOCKS = Mode("text_columns='keep' or model='curved'", lambda method: method.takes_blocks)
OF_ORDER = Mode(
    "solver='order' or 'class'",
    lambda method: (
        method.takes_blocks
        or method.options.solver in ("order", "class")
        or (
            method.options.solver == "auto"
            and method.options.model == "linear"
            and not method.takes_dagma
        )
    ),
)
OF_CLASS = Mode("solver='class' or 'ges'", lambda method: method.finds_class)
OF_PENALTY = Mode(
    "solver='dagma' or 'notears'",
    lambda method: method.options.solver != "order" and not method.finds_class,
)
OF_WEIGHTS = Mode("solver='order', 'dagma' or 'notears'", lambda method: not method.finds_class)
OF_POLISH = Mode("polish=True", lambda method: method.options.polish)
# Polishing fits the weights anew in any case.
OF_REFIT = Mode(
    "solver='dagma' or 'notears' without polish",
    lambda method: OF_PENALTY.holds(method) and not method.options.polish,
)
OF_RIDGE = Mode(
    "regression='ridge' or 'held-out'",
    lambda method: method.options.regression in ("ridge", "held-out"),
)


class Outcome(NamedTuple):
    """The result of the exchange.

    Parameters
    ----------
    moments : SecondMoments or list of SecondMoments
        Pooled moments of the centred and scaled rows; under interventions one for each variable.
    graph : CausalGraph
        The graph.
    model : LinearModel or LaggedModel or BlockModel or None
        The fitted system in the units of the data; the moments of blocks of columns.
    scores : ndarray of shape (d, d)
        Strength of every edge, for ranking.
    warnings : tuple of str
        Warnings about the result.
    info : dict
        The chosen penalties and order, as plain numbers.
    """

    moments: SecondMoments | Sequence[SecondMoments]
    graph: CausalGraph
    model: LinearModel | LaggedModel | BlockModel | None
    scores: FloatArray
    warnings: tuple[str, ...]
    info: dict[str, Any]

    def result(self, reason: str) -> Result:
        """Return the result of a training that is over."""
        return Result(self.graph, self.scores, self.model, self.warnings, reason=reason)


@dataclass(frozen=True, kw_only=True)
class MomentsOptions(InterventionOptions, PrivateOptions, RowsOrSeriesOptions):
    """The options of :class:`Moments`.

    Parameters
    ----------
    missing_values : {"fail", "drop", "em"}, default "fail"
        "em" keeps rows with missing cells: their moments are estimated by expectation-maximisation
        over the sums of all parties (``core.blocks.missing``), an exchange a step. It is for linear
        effects among rows without time.
    unshared_columns : {"fail", "drop", "keep"}, default "fail"
        With ``missing_values="em"`` "keep" takes a column that a party lacks as missing there.
    text_columns : {"fail", "drop", "keep"}, default "fail"
        What to do about columns that hold no numbers: fail, leave them out, or take them as
        categories.
    categories : str, default ""
        With ``text_columns="keep"``: columns, separated by commas, that are categories although
        their values are numbers.
    numbers : str, default ""
        With ``text_columns="keep"``: columns, separated by commas, that are numbers although all of
        their cells are texts.
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
        design, where "order" misses weak effects (docs/2dbn.md).
    max_parents : int, optional
        Largest number of parents of a variable, for the solvers "class" and
        "ges". Default: no limit.
    least_effect : float, default 0.1
        With the solvers "order" and "class": least partial correlation of an edge, given the other
        causes. Smaller effects are significant in large samples even where a system is only nearly
        linear, see ``core.linear.order_search.LEAST_EFFECT``.
    sparsity : float or {"auto", "bic", "held-out"}, default "auto"
        Weight of the L1 norm, for "dagma" and "notears". "auto" is c sqrt(log d / n) times the
        geometric mean of the variances (``core.linear.selection.default_sparsity``;
        ``core.series.solution`` with lags); "bic" chooses among multiples of it by the Gaussian
        BIC; "held-out" by the error on held-out rows, whose moments are sent separately: a quarter
        of the rows of every party or, with lags, each fifth of them once.
    threshold : float or None, default None
        Edges of absolute weight up to this are left out. None is 0.15 with an order; without one
        it is 0 with ``solver="order"``, whose score selects the edges, otherwise 0.3, and 0.1 for
        additive effects.
    select_order : bool, default False
        Choose the number of lags, 1 to ``order``, by the held-out error of one-step predictions.
        All orders are compared on the steps that have ``order`` steps before them; the chosen order
        is then fitted to all steps with that number of lags.
    instantaneous : bool or "auto", default True
        Whether effects within a step are fitted; "auto": if they lower the held-out error by 2 %.
    regression : {"lasso", "ridge", "held-out"}, default "lasso"
        Penalty of the effects; "held-out" chooses the one of smaller held-out error.
    ridge : float or "held-out", default "held-out"
        Weight of the squared norm, in units of the variables' variance.
    ranking : {"weights", "partial-correlation+weights"}, default "weights"
        The strengths in ``run.scores``. "partial-correlation+weights" adds contemporaneous partial
        correlations, which are symmetric: for series that are sampled more slowly than effects act,
        as in fMRI.
    polish : bool, default False
        Add, drop and reverse single edges of the solver's graph as long as ``score`` improves, on
        the same moments.
    score : {"bic", "equal-variance"}, default "bic"
        The score that ``polish`` improves. "equal-variance" assumes that all noise terms have the
        same variance, as in the papers' simulations; real data seldom satisfy this.
    refit : bool, default True
        Fit the weights of the final graph by least squares, without the shrinkage of the L1 norm.
        ``graph.raw_weights`` has the solver's weights. "order" always fits by least squares.
    """

    missing_values: Literal["fail", "drop", "em"] = "fail"  # type: ignore[assignment]
    unshared_columns: Literal["fail", "drop", "keep"] = "fail"  # type: ignore[assignment]
    text_columns: Literal["fail", "drop", "keep"] = "fail"  # type: ignore[assignment]
    center: Literal["global", "party", "series", "phase"] = "global"  # type: ignore[assignment]
    categories: str = only(OF_BLOCKS, "")
    numbers: str = only(OF_BLOCKS, "")
    model: Literal["linear", "additive", "curved"] = "linear"
    solver: Literal["auto", "order", "class", "dagma", "notears", "ges"] = "auto"
    max_parents: int | None = only(OF_CLASS, None, least=1, most=MOST)
    least_effect: float = only(OF_ORDER, LEAST_EFFECT, least=0, below=1)
    sparsity: float | Literal["auto", "bic", "held-out"] = only(OF_PENALTY, "auto", least=0)
    threshold: float | None = only(OF_WEIGHTS, None)  # type: ignore[assignment]
    select_order: bool = only(OF_LAGS, False)
    instantaneous: bool | Literal["auto"] = only(OF_LAGS, True)
    regression: Literal["lasso", "ridge", "held-out"] = only(OF_LAGS, "lasso")
    ridge: float | Literal["held-out"] = only(OF_RIDGE, "held-out", least=0)
    ranking: Literal["weights", "partial-correlation+weights"] = only(OF_LAGS, "weights")
    polish: bool = only(OF_PENALTY, False)
    score: Literal["bic", "equal-variance"] = only(OF_POLISH, "bic")
    refit: bool = only(OF_REFIT, True)
    narrowed: ClassVar[Mapping[str, Mode]] = {
        **dict.fromkeys(("regression", "ridge", "ranking", "lagged_sparsity"), OF_PENALTY),
        **dict.fromkeys(("select_order", "instantaneous", "lagged_threshold"), OF_WEIGHTS),
        **dict.fromkeys(("order", "polish", "solver"), OF_LINEAR),
    }


class Moments(ColumnsStrategy, InterventionStrategy, PrivateStrategy, RowsOrSeries):
    """Federated linear structure learning from summed second moments, in one exchange.

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
    column, mean and sum of squared deviations; then one d x d array of second moments of the
    centred and scaled rows. With an order p it is one (2 + m) x (2 + m) array of sums and products
    of the m = d (1 + p) columns, five such arrays if something is chosen by held-out error, and one
    more for each smaller order to choose from. With secure summation the server learns the pooled
    second moments only; without it, each party's second moments. Of categories it is the names of
    the states, and the numbers of rows of each state and pair of states. With ``epsilon`` it is one
    array of sums of products with noise, and nothing else that depends on the rows. Where parties
    hold different columns (``row_id``), it is hashed ids, masked columns and lags that only another
    party can open, and words whose sum over all parties is that of the products of columns.

    References
    ----------
    Ng & Zhang (2022). Towards federated Bayesian network structure learning with continuous
    optimization. AISTATS.

    Pamfil et al. (2020). DYNOTEARS: structure learning from time-series data. AISTATS.
    """

    options_type = MomentsOptions
    options: MomentsOptions

    contract: ClassVar[Contract] = CONTRACT
    #: The number of lags that a replicate takes over; None where it is not chosen.
    chosen_order: int | None = None

    def validate(self) -> None:
        """Check the options' values."""
        super().validate()
        if self.options.max_rounds != 1:
            raise ConfigError(
                f"The option 'max_rounds' is {self.options.max_rounds!r}; the moments method has "
                "exactly one exchange. Leave the option out."
            )
        self.validate_center()
        if self.takes_blocks:
            require_fitting(self.options, self.with_blocks, "text_columns='keep' or model='curved'")
        if self.incomplete:
            require_fitting(self.options, self.with_missing, "missing_values='em'")
        kept = self.options.unshared_columns != "keep" or self.incomplete
        require(kept, "unshared_columns", "keep", "'fail' or 'drop', or missing_values='em'")
        if self.options.model == "additive":
            chosen = self.options.sparsity in ("bic", "held-out")
            require(
                not chosen,
                "sparsity",
                self.options.sparsity,
                "'auto' or a number, or model='linear'",
            )

    @property
    def finds_class(self) -> bool:
        """Whether the result is an equivalence class."""
        return self.options.solver in ("class", "ges") or self.takes_blocks

    @property
    def takes_blocks(self) -> bool:
        """Whether a variable is a block of columns: a category, or functions of a number."""
        return takes_blocks(self.options, self.options.text_columns)

    @property
    def incomplete(self) -> bool:
        """Whether rows with missing cells take part."""
        return self.options.missing_values == "em"

    @property
    def with_missing(self) -> dict[str, tuple[bool, str]]:
        """Which options fit rows with missing cells, by name, and what they must be."""
        return {
            **self._of_equal_rows,
            "model": (self.options.model != "additive", "'linear' or 'curved'"),
            "sparsity": (self.options.sparsity != "held-out", "'auto', 'bic' or a number"),
            "epsilon": (not self.private, "left out"),
            "center": (self.options.center == "global", "'global'"),
            "aggregation": (self.options.aggregation == "mean", "'mean'"),
            "small_counts": (self.options.small_counts == "report", "'report'"),
            "fraction_train": (self.options.fraction_train == 1, "1"),
        }

    @property
    def with_blocks(self) -> dict[str, tuple[bool, str]]:
        """Which options fit blocks of columns, by name, and what they must be."""
        return {
            "model": (self.options.model != "additive", "'linear' or 'curved'"),
            "solver": (self.options.solver in ("auto", "class"), "'auto' or 'class'"),
            **self._of_equal_rows,
            "center": (self.options.center == "global", "'global'"),
            "standardize": (not self.options.standardize, "False"),
            "aggregation": (self.options.aggregation == "mean" or self.takes_median, "'mean'"),
            "small_counts": (self.options.small_counts == "report", "'report'"),
        }

    @property
    def takes_median(self) -> bool:  # type: ignore[override]
        """Whether the parties' arrays may be combined by a median; blocks of columns have none."""
        return not self.takes_blocks

    @property
    def weighs_in_units(self) -> bool:
        """Whether a weight is a change of the effect, in its units, by one unit of the cause."""
        return super().weighs_in_units and not self.takes_blocks

    @property
    def with_interventions(self) -> dict[str, tuple[bool, str]]:
        """Which options fit rows under interventions, by name, and what they must be."""
        penalised = self.options.solver in ("dagma", "notears") or changed(self.options, *PENALISED)
        return {
            **super().with_interventions,
            "model": (self.options.model == "linear", "'linear'"),
            "text_columns": (self.options.text_columns != "keep", "'fail' or 'drop'"),
            "order": (
                self.options.order == 0 or not penalised,
                "0 with the solvers 'dagma' and 'notears'",
            ),
            "select_order": (not self.options.select_order, "False"),
            "instantaneous": (self.options.instantaneous != "auto", "True or False"),
            "sparsity": (self.options.sparsity != "held-out", "'auto', 'bic' or a number"),
        }

    @property
    def with_secure_aggregation(self) -> dict[str, tuple[bool, str]]:
        """Which options fit secure sums; held-out rows are counted by party."""
        held_out = self.options.order == 0 and self.options.sparsity == "held-out"
        return {
            **super().with_secure_aggregation,
            "sparsity": (not held_out, "'auto', 'bic' or a number"),
        }

    @property
    def _of_equal_rows(self) -> dict[str, tuple[bool, str]]:
        """Which options fit rows without time and interventions."""
        return {
            "order": (self.options.order == 0, "0"),
            "interventions": (self.options.interventions is None, "left out"),
            "intervention_column": (not self.options.intervention_column, "left out"),
        }

    @property
    def _of_rows_alone(self) -> dict[str, tuple[bool, str]]:
        """Which options fit one array of second moments of rows without time and interventions."""
        return {
            "model": (self.options.model == "linear", "'linear'"),
            "text_columns": (self.options.text_columns != "keep", "'fail' or 'drop'"),
            **self._of_equal_rows,
            "sparsity": (self.options.sparsity != "held-out", "'auto', 'bic' or a number"),
        }

    @property
    def with_different_columns(self) -> dict[str, tuple[bool, str]]:
        """Which options fit parties that hold different columns; with lags folds can be had."""
        needs = {**super().with_different_columns, **self._of_rows_alone}
        if self.options.order:
            del needs["order"], needs["sparsity"]
            needs["center"] = (self.options.center != "phase", "'global' or 'series'")
        return needs

    @property
    def joins_columns(self) -> bool:  # type: ignore[override]
        """Whether rows of different parties may be matched by ids."""
        return not (self.private or self.incomplete)

    @property
    def with_privacy(self) -> dict[str, tuple[bool, str]]:
        """Which options fit differential privacy: rows of a table, in one sum."""
        return {
            **super().with_privacy,
            **self._of_rows_alone,
        }

    @property
    def withholds_totals(self) -> bool:  # type: ignore[override]
        """Whether the parties report names of columns only: a release has all that is known."""
        return self.private

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """One exchange of sums; with epsilon a release, and histograms for estimated scales."""
        if self.columns_differ:
            return (ALIGN, MASKED_TABLES, PRODUCTS)
        if self.incomplete:
            # Single parties' own estimates are no sum.
            own = self.options.unshared_columns == "keep" and not self.options.secure_aggregation
            return (SEEN, OWN, EXPECTED) if own else (SEEN, EXPECTED)
        return (OCTAVES, RELEASE) if self.private else (SUMS,)

    @property
    def pools_rows(self) -> bool:
        """Whether the pooled moments equal those of the pooled rows, all centred by one mean."""
        by_sums = (
            self.options.aggregation == "mean"
            and self.options.sparsity != "held-out"
            and not self.private
        )
        return (
            by_sums
            and not self.incomplete
            and self.options.center == "global"
            and self.options.order == 0
        )

    @property
    def takes_dagma(self) -> bool:
        """Whether options make ``solver="auto"`` "dagma"."""
        # A median varies more than the moments of as many rows; a threshold forgives that.
        unusual = self.options.aggregation == "median" or self.options.instantaneous == "auto"
        return unusual or changed(self.options, *PENALISED)

    def chosen_solver(
        self, agreement: Agreement, num_columns: int
    ) -> Literal["order", "dagma", "notears"]:
        """Return the solver for rows of that many columns of the design, see ``solver``."""
        assert self.options.solver != "class"
        assert self.options.solver != "ges"
        if self.options.solver != "auto":
            return self.options.solver
        few = self.options.order > 0 and agreement.n < ROWS_FOR_ORDERS * num_columns
        few = few and not agreement.targets
        return "dagma" if few or self.takes_dagma else "order"

    def thresholds(self, solver: Literal["order", "dagma", "notears"]) -> tuple[float, float]:
        """Return the thresholds of instantaneous and of lagged edges."""
        usual = LAGGED_THRESHOLD if self.options.order else THRESHOLD
        if solver == "order" and not self.options.order:
            usual = 0.0
        return self.options.limits(
            usual if self.options.threshold is None else self.options.threshold
        )

    @property
    def held_out(self) -> bool:
        """Whether a quarter of the rows, or each fifth of a series once, is held out."""
        return self.options.sparsity == "held-out"

    @property
    def num_folds(self) -> int:
        """Number of folds whose moments series send; more than one to choose by held-out error."""
        holds_out = (
            self.options.select_order
            or self.options.instantaneous == "auto"
            or self.options.sparsity == "held-out"
            or self.options.regression == "held-out"
            or (self.options.regression != "lasso" and self.options.ridge == "held-out")
            or self.options.ranking != "weights"
        )
        return NUM_FOLDS if holds_out else 1

    def folds_of(self, products: FloatArray) -> FloatArray:
        """Return the arrays of the folds, without the arrays of smaller orders that follow them.

        Not where columns differ: what is matched there are rows with all lags.
        """
        smaller = (
            self.options.order - 1 if self.options.select_order and not self.columns_differ else 0
        )
        return products[: len(products) - smaller]

    @property
    def expected(self) -> Expected:
        """What linear methods expect; units of columns do not matter to equivalence classes."""
        expected = super().expected
        if self.columns_differ:
            # How many rows there are is known once they are matched.
            expected = replace(expected, columns=0)
        if expected.level_remedy and self.columns_differ and not self.options.order:
            remedy = "subtract the parties' own means before the run"
            expected = replace(expected, level_remedy=remedy)
        if self.takes_blocks:
            expected = replace(expected, columns=functions_of(self.options.model))
        return replace(expected, raw_units=False) if self.finds_class else expected

    def train(self, agreement: Agreement, replicate: int = 0) -> Training:
        """Ask for the sums that the graph follows from, and find it.

        Yields
        ------
        Ask
            For second moments; for a release of them with noise; or for products of the columns of
            different parties.

        Returns
        -------
        Result
        """
        names, masks = agreement.names, self.masks(agreement)
        if self.options.instantaneous is False and masks.required[: len(names), : len(names)].any():
            raise ConfigError(
                "The background knowledge requires instantaneous edges, and instantaneous=False "
                "leaves them out: state them as lagged edges, or use instantaneous=True."
            )
        if self.private:
            return (yield from self._private(agreement, masks))
        if self.columns_differ:
            return (yield from self._joined(agreement, masks, replicate))
        if self.incomplete:
            return (yield from self._of_incomplete_rows(agreement, masks))
        replies = yield Ask(SUMS)
        # Parties may be missing from a secure sum.
        agreement = agreement.with_rows(replies.rows)
        outcome = yield from self._solved(agreement, masks, replies["moments"])
        yield Note(outcome.info)
        return outcome.result("the one exchange of sums is done")

    def _solved(
        self, agreement: Agreement, masks: EdgeMasks, products: FloatArray
    ) -> Generator[Choice, Any, Outcome]:
        """Find the graph; a replicate takes over penalties and the like from the main training."""

        def first() -> tuple[Outcome, dict[str, Any]]:
            outcome = self.solve(agreement, masks, products)
            return outcome, self._settled(agreement, outcome)

        def again(main: tuple[Outcome, dict[str, Any]]) -> tuple[Outcome, dict[str, Any]]:
            fixed, chosen = copy.copy(self), dict(main[1])
            fixed.chosen_order = chosen.pop("order", None)
            fixed.options = replace(self.options, **chosen)
            return fixed.solve(agreement, masks, products), main[1]

        found: tuple[Outcome, dict[str, Any]] = yield Choice(first, again)
        return found[0]

    def solve(self, agreement: Agreement, masks: EdgeMasks, products: FloatArray) -> Outcome:
        """Find the graph from products of the rows, by the solver of these options."""
        solve = solve_series if self.options.order else solve_rows
        solve = solve_additive if self.options.model == "additive" else solve
        solve = solve_class if self.finds_class else solve
        solve = solve_blocks if self.takes_blocks else solve
        return solve(self, agreement, masks, products)

    def _settled(self, agreement: Agreement, first: Outcome) -> dict[str, Any]:
        """Return solver, penalties, order and the like, as the main training has chosen them."""
        if self.options.model == "additive" or self.finds_class:
            return {}
        info = first.info
        chosen: dict[str, Any] = {
            "solver": self.chosen_solver(
                agreement, len(agreement.names) * (1 + self.options.order)
            ),
            **{name: info[name] for name in ("sparsity", "ridge") if name in info},
        }
        if self.options.order:
            chosen["instantaneous"] = bool(info["instantaneous"])
            chosen["ranking"] = "weights"  # others need folds
            chosen["lagged_sparsity"] = self.options.lagged_factor(self.options.sparsity)
            if self.options.regression == "held-out":
                chosen["regression"] = "ridge" if "ridge" in info else "lasso"
            if self.options.select_order:
                chosen["order"] = info["order"]
        return chosen

    def _joined(self, agreement: Agreement, masks: EdgeMasks, replicate: int) -> Training:
        """Find the graph of parties with different columns, from the joined rows."""
        folds = self.num_folds if self.options.order else 1
        joined = yield from joined_sums(self.holders(agreement, self.options.order, folds))
        moments = joined.moments(replicate)
        # Columns are centred by means of parties' rows; rows of series by their own.
        level = moments.mean[: len(agreement.names)] * (not self.within_parties)
        own = joined_agreement(agreement, moments, level)
        units = np.tile(np.sqrt(agreement.variance) / self.scale(own), 1 + self.options.order)
        if self.options.order:
            level = np.tile(level, 1 + self.options.order)
            parts = [moments] if replicate else joined.folds()
            products = np.array([_leveled(part, moments.n, level, units) for part in parts])
        else:
            products = (moments.second * np.outer(units, units))[None]
        outcome = yield from self._solved(own, masks, products)
        doubts = [
            *few_rows(own, replace(self.expected, columns=1 + self.options.order)),
            # A party alone does not see combinations with columns of others.
            *combination_warning(moments.subset(range(len(agreement.names))), rows=()),
            *joined.warnings,
        ]
        known = (*agreement.warnings, *outcome.warnings)
        yield Note({**outcome.info, **joined.info})
        result = outcome.result("the exchange of products is done")
        return replace(
            result,
            warnings=(*outcome.warnings, *[one for one in doubts if one not in known]),
            num_rows=joined.plan.num_rows,
        )

    def blocks(self, agreement: Agreement) -> tuple[Variable, ...]:
        """Return the variables as blocks of columns."""
        return variables_of(
            agreement.names,
            agreement.states,
            agreement.mean,
            agreement.variance,
            functions_of(self.options.model),
            agreement.values,
        )

    def _of_incomplete_rows(self, agreement: Agreement, masks: EdgeMasks) -> Training:
        """Find the graph of rows with missing cells, from their expected second moments."""
        blocks = self.blocks(agreement)
        found = yield from expected_moments(
            agreement, blocks, masks, by_party=OWN in self.exchanges
        )
        mean, second = found.estimate
        allowed = masks.allowed & ~found.few_together | masks.required
        masks = masks._replace(allowed=allowed)
        own = replace(agreement, total=found.effective_rows)
        if self.takes_blocks:
            row = np.concatenate([[1.0], mean])
            products = np.outer(row, row) + np.pad(second, (1, 0))
        else:
            spread = np.sqrt(agreement.variance)
            level, variance = spread * mean, agreement.variance * np.diagonal(second)
            own = replace(own, mean=agreement.mean + level, variance=variance)
            units = spread / self.scale(own)
            products = second * np.outer(units, units)
        outcome = yield from self._solved(own, masks, products[None])
        model = outcome.model
        yield Note({**outcome.info, "steps": found.steps, "effective_rows": own.n})
        assert isinstance(model, LinearModel | BlockModel)
        return replace(
            outcome.result("the estimate of the moments stands"),
            model=model.with_rows_together(found.together),
            warnings=(*outcome.warnings, *found.warnings),
            num_rows=found.num_rows,
        )

    def _private(self, agreement: Agreement, masks: EdgeMasks) -> Training:
        """Find the graph from a release of second moments with noise."""
        names, budget = agreement.names, self.budget(agreement.names)
        parties = len(agreement.rows)
        # Among how many parties the noise is shared: the fewest of a secure sum.
        sharing = (
            least_parties(parties, self.options.quorum) if self.options.secure_aggregation else 1
        )
        scaling = Scaling.of(names, self.stated_scales, None)
        if scaling is None:
            replies = yield Ask(OCTAVES)
            assert budget.scales is not None
            lacking = [name for name in names if name not in self.stated_scales]
            noise = variance_of_counts(len(lacking), budget.scales, sharing)
            scales = scales_of(replies["counts"], len(replies.parties) * noise, lacking)
            scaling = Scaling.of(names, self.stated_scales, scales)
            assert scaling is not None
        replies = yield Ask(RELEASE, {"centers": scaling.centers, "scales": scaling.scales})
        noise = len(replies.parties) * steps_of_noise(len(names), budget.release, sharing)
        released = read(replies["products"], noise, scaling.centers, scaling.scales)
        own = replace(
            agreement,
            mean=released.mean,
            variance=np.diagonal(released.second).copy(),
            total=round(released.effective_rows),
        )
        scale = self.scale(own)
        outcome = self.solve(own, masks, (released.second / np.outer(scale, scale))[None])
        model = outcome.model
        assert not isinstance(model, BlockModel)  # refused with epsilon
        if model is not None:
            # Standard errors and tests by rows know nothing of the noise.
            model = replace(model, sample_moments=None)
        rows = round(released.rows)
        yield Note({**outcome.info, "rows": rows, "effective_rows": own.n})
        used = zip(names, scaling.centers.tolist(), scaling.scales.tolist(), strict=True)
        return replace(
            outcome.result("the one exchange of sums is done"),
            model=model,
            warnings=(*outcome.warnings, *scale_warning(names, scaling, released)),
            num_rows=rows,
            privacy=self.guarantee(
                names,
                sharing=sharing,
                scales={name: [center, size] for name, center, size in used},
                effective_rows=own.n,
            ),
        )


def solve_rows(
    method: Moments, agreement: Agreement, masks: EdgeMasks, products: FloatArray
) -> Outcome:
    """Find the graph of rows without time.

    Parameters
    ----------
    method : Moments
        The strategy, for its options.
    agreement : Agreement
        Columns, rows, means and variances.
    masks : EdgeMasks
        Background knowledge over the d columns.
    products : ndarray of shape (folds, d, d) or (sets, 1 + d, 1 + d)
        Products of the centred and scaled rows, summed over each fold and divided by n, the number
        of all rows. With interventions those of the rows [1, x] of each set of targets: every
        variable is then fitted to the rows in which it was no target.
    """

    def moments_of(n: int, summed: FloatArray) -> SecondMoments:
        zeros = np.zeros(len(agreement.names))
        return SecondMoments(n, zeros, summed * (agreement.n / n), agreement.names)

    def solve(moments: SecondMoments | Sequence[SecondMoments], sparsity: float) -> CausalGraph:
        penalised = notears if solver == "notears" else dagma
        return penalised(
            moments,
            sparsity=sparsity,
            threshold=threshold,
            knowledge=masks,
            refit=method.options.refit,
        )

    pooled: SecondMoments | Sequence[SecondMoments]
    if agreement.targets:
        pooled, _ = _by_targets(agreement, products, agreement.names)
    else:
        pooled = moments_of(agreement.n, products.sum(axis=0))
    solver = method.chosen_solver(agreement, len(agreement.names))
    threshold, _ = method.thresholds(solver)
    if solver == "order":
        search = search_orders(pooled, masks, least_effect=method.options.least_effect)
        graph = finish(
            pooled,
            least_squares(pooled, search.best.adjacency)[0],
            threshold=threshold,
            masks=masks,
            refit=True,
        )
        return _outcome(
            method, agreement, masks, pooled, graph, search.strengths, search.info, search
        )
    if method.options.sparsity == "auto":
        sparsity = automatic_sparsity(pooled)
    elif method.options.sparsity == "bic":
        sparsity = select_by_bic(pooled, default_grid(pooled), solve)
    elif method.options.sparsity == "held-out":
        held_out = int(num_held_out(np.array(list(agreement.rows.values()))).sum())
        train = moments_of(agreement.n - held_out, products[0])
        validation = moments_of(held_out, products[1])
        sparsity = select_by_held_out(train, validation, default_grid(train), solve)
    else:
        sparsity = method.options.sparsity
    graph = solve(pooled, sparsity)
    assert graph.raw_weights is not None
    scores = np.abs(graph.raw_weights)
    if method.options.polish:
        graph = polish_graph(pooled, graph, score=method.options.score, knowledge=masks)
    info = {"sparsity": sparsity}
    return _outcome(method, agreement, masks, pooled, graph, scores, info)


def _outcome(
    method: Moments,
    agreement: Agreement,
    masks: EdgeMasks,
    pooled: SecondMoments | Sequence[SecondMoments],
    graph: CausalGraph,
    scores: FloatArray,
    info: dict[str, Any],
    search: OrderSolution | None = None,
) -> Outcome:
    """Return the result for rows without time, with its warnings."""
    graph, warnings = method.plausible(graph, method.units(agreement), masks)
    model = method.fitted_system(agreement, pooled, graph.adjacency)
    if isinstance(pooled, SecondMoments):
        warnings += method.doubtful_directions(agreement, graph, masks, model, search)
        warnings += combination_warning(pooled, agreement.rows.values())
    else:
        info = {**info, "target sets": len(agreement.targets)}
    return Outcome(pooled, graph, model, scores, tuple(warnings), info)


def solve_class(
    method: Moments, agreement: Agreement, masks: EdgeMasks, products: FloatArray
) -> Outcome:
    """Find the equivalence class of the columns, with lags or without.

    The lags are not modelled themselves: there are no edges among them, and their edges into the
    columns have the direction of time.

    Parameters
    ----------
    method : Moments
        The strategy, for its options.
    agreement : Agreement
        Columns, rows, means and variances.
    masks : EdgeMasks
        Background knowledge over the m columns of the design.
    products : ndarray of shape (1, d, d), (1, 2 + m, 2 + m) or (sets, 1 + m, 1 + m)
        Products of the rows, as in :func:`solve_rows` and :func:`solve_series`.
    """
    names, d = agreement.names, len(agreement.names)
    columns = lagged_names(names, method.options.order)
    present = np.arange(len(columns)) < d
    distinguished = present[:, None] != present
    pooled: SecondMoments | Sequence[SecondMoments]
    if agreement.targets:
        own, acted = _by_targets(agreement, products, columns)
        distinguished[:d, :d] = distinguished_pairs(acted)
        # Lags have no causes: the rows of any variable serve them.
        pooled = [*own, *[max(own, key=lambda part: part.n)] * (len(columns) - d)]
    elif method.options.order:
        pooled = series_moments(products, agreement.n, columns)[0]
    else:
        pooled = SecondMoments(agreement.n, np.zeros(d), products[0], names)
    by_orders = method.options.solver == "class"
    found = linear_class(
        moments_of_variables(pooled, len(columns)),
        masks,
        distinguished=distinguished,
        max_parents=method.options.max_parents,
        least_effect=method.options.least_effect if by_orders else 0.0,
        by_orders=by_orders,
    )
    now, lagged = split_blocks(found.weights[:, :d])
    graph = CausalGraph(
        names,
        now,
        kind="cpdag",
        lagged=lagged,
        required=masks.required[:d, :d] if masks.required.any() else None,
    )
    member = graph.to_dag()
    model: LinearModel | LaggedModel
    if method.options.order:
        model = system_of_series(agreement, method.scale(agreement), pooled, member)
        warnings = stationarity_warning(member, agreement.n)
    else:
        model = method.fitted_system(agreement, pooled, member.adjacency)
        warnings = []
    model = replace(model, marks=graph.adjacency)
    info = {"target sets": len(agreement.targets)} if agreement.targets else {}
    if isinstance(pooled, SecondMoments):
        warnings += combination_warning(pooled.subset(range(d)), agreement.rows.values())
    strengths = found.strengths[:, :d].reshape(-1, d, d).sum(axis=0)
    return Outcome(pooled, graph, model, strengths, tuple(warnings), info)


def _leveled(
    moments: SecondMoments, num_rows: int, level: FloatArray, units: FloatArray
) -> FloatArray:
    """Return the products of rows [1, 1, z] over the number of all rows, from a fold's moments.

    Parameters
    ----------
    moments : SecondMoments
        Of the m columns.
    num_rows : int
        Of all folds.
    level, units : ndarray of shape (m,)
        z is the columns less the level, times the units.
    """
    row = np.concatenate([[1.0, 1.0], (moments.mean - level) * units])
    second = moments.second * np.outer(units, units)
    share = moments.n / num_rows
    return np.asarray(share * (np.outer(row, row) + np.pad(second, (2, 0))))


def _by_targets(
    agreement: Agreement, products: FloatArray, columns: tuple[str, ...]
) -> tuple[list[SecondMoments], BoolArray]:
    """Return each variable's moments where it is no target, and the targets, (sets, d)."""
    acted = acted_on(agreement.targets, agreement.names)
    return moments_by_variable(products, acted, agreement.n, columns), acted


def solve_additive(
    method: Moments, agreement: Agreement, masks: EdgeMasks, products: FloatArray
) -> Outcome:
    """Find the graph of additive effects.

    Parameters
    ----------
    method : Moments
        The strategy, for its options.
    agreement : Agreement
        Columns, rows, means and variances.
    masks : EdgeMasks
        Background knowledge over the d columns.
    products : ndarray of shape (1, 1 + d q, 1 + d q)
        Mean products of the rows [1, functions of the variables].
    """
    columns = function_names(agreement.names)
    pooled = SecondMoments.from_products(agreement.n, products[0], columns)
    graph = additive(
        pooled,
        len(agreement.names),
        names=agreement.names,
        sparsity=number_or_none(method.options.sparsity),
        threshold=ADDITIVE_THRESHOLD
        if method.options.threshold is None
        else method.options.threshold,
        knowledge=masks,
        refit=method.options.refit,
    )
    assert graph.raw_weights is not None
    # Strengths are in the units of what is explained.
    units = 1 / (np.sqrt(agreement.variance) / method.scale(agreement))
    scores = np.abs(graph.raw_weights)
    graph, warnings = method.plausible(graph, units, masks)
    # The first function of a variable is its value.
    values = pooled.subset(range(0, pooled.d, pooled.d // len(agreement.names)))
    values = replace(values, names=agreement.names)
    warnings += combination_warning(values, agreement.rows.values())
    return Outcome(pooled, graph, None, scores, tuple(warnings), {})


def solve_blocks(
    method: Moments, agreement: Agreement, masks: EdgeMasks, products: FloatArray
) -> Outcome:
    """Find the equivalence class of numbers and categories.

    Parameters
    ----------
    method : Moments
        The strategy, for its options.
    agreement : Agreement
        Columns, rows, means, variances and states.
    masks : EdgeMasks
        Background knowledge over the d columns.
    products : ndarray of shape (1, 1 + s, 1 + s)
        Mean products of the rows [1, columns of the variables], see :mod:`core.blocks.design`.
    """
    blocks = method.blocks(agreement)
    pooled = SecondMoments.from_products(agreement.n, products[0], column_names(blocks))
    found = block_class(
        pooled,
        [block.width for block in blocks],
        agreement.names,
        masks,
        least_effect=method.options.least_effect,
        max_parents=method.options.max_parents,
    )
    model = BlockModel(blocks, pooled, found.graph.adjacency)
    warnings = determined_warning(blocks, pooled, agreement.rows.values())
    return Outcome(pooled, found.graph, model, found.strengths, tuple(warnings), {})


def solve_series(
    method: Moments, agreement: Agreement, masks: EdgeMasks, products: FloatArray
) -> Outcome:
    """Find the graph of time series with lags.

    Parameters
    ----------
    method : Moments
        The strategy, for its options.
    agreement : Agreement
        Columns, rows, means and variances.
    masks : EdgeMasks
        Background knowledge over the m = d (1 + p) columns of the design.
    products : ndarray of shape (folds + orders, 2 + m, 2 + m)
        Products of the rows [1, g, z] with z centred and scaled, and g = 1 for rows that are
        centred by the agreed mean, summed over each fold and divided by n; then the products of all
        rows with the lags of each smaller order. With interventions those of the rows [1, z] of
        each set of targets of x_t, shape (sets, 1 + m, 1 + m).
    """
    d = len(agreement.names)
    columns = lagged_names(agreement.names, method.options.order)
    solver = method.chosen_solver(agreement, len(columns))
    problem = LaggedProblem(
        masks=masks,
        thresholds=by_block(*method.thresholds(solver), d, method.options.order),
        select_order=method.chosen_order or method.options.select_order,
        instantaneous=method.options.instantaneous,
        regression=method.options.regression,
        ranking=method.options.ranking,
        sparsity=method.options.sparsity,
        lagged_sparsity=method.options.lagged_factor(method.options.sparsity),
        ridge=method.options.ridge,
        solver=solver,
        least_effect=method.options.least_effect,
    )
    if agreement.targets:
        own, _ = _by_targets(agreement, products, columns)
        found = problem.search(own, d, with_now=bool(method.options.instantaneous))
    else:
        of_folds = method.folds_of(products)
        folds = series_moments(of_folds, agreement.n, columns)
        by_order = {
            1 + k: series_moments(part[None], agreement.n, columns)[0]
            for k, part in enumerate(products[len(of_folds) :])
        }
        found = problem.solve(folds, d, by_order=by_order)
    over_columns = problem.cut(found.moments, found.raw, refit=method.options.refit)
    m = len(found.raw)
    own_masks = masks.first(m)
    if method.options.polish:
        over_columns = polish_graph(
            found.moments,
            over_columns,
            score=method.options.score,
            knowledge=own_masks,
            num_targets=d,
        )
    graph = lagged_graph(
        agreement.names,
        over_columns.weights[:, :d],
        threshold_now=0,
        threshold_lagged=0,
        raw=found.raw,
        masks=own_masks,
    )
    graph, warnings = method.plausible(graph, method.units(agreement), own_masks)
    model = system_of_series(agreement, method.scale(agreement), found.moments, graph)
    if not agreement.targets:
        warnings += method.doubtful_directions(agreement, graph, own_masks, model, found.search)
        assert isinstance(found.moments, SecondMoments)
        now = found.moments.subset(range(d))
        warnings += combination_warning(now, agreement.rows.values())
    info = {"sparsity": found.sparsity, "ridge": found.ridge}
    return Outcome(
        moments=found.moments,
        graph=graph,
        model=model,
        scores=found.scores,
        warnings=(*warnings, *stationarity_warning(graph, agreement.n)),
        info={
            "order": found.order,
            "instantaneous": int(found.instantaneous),
            **{name: value for name, value in info.items() if np.isfinite(value)},
            **({} if found.search is None else found.search.info),
        },
    )
