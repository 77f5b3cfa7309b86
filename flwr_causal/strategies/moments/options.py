"""The options of Moments, and the settings in which each has an effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from flwr_causal.contracts.moments import takes_blocks
from flwr_causal.core.folds import NUM_FOLDS
from flwr_causal.core.linear.order_search import LEAST_EFFECT, ROWS_FOR_ORDERS
from flwr_causal.core.linear.stability import LEAST_SHARE
from flwr_causal.core.options import MOST, Mode, changed, only, require
from flwr_causal.data.check.policy import AutoDropKeep  # noqa: TC001 (checked by type)
from flwr_causal.errors import ConfigError
from flwr_causal.strategies.linear import OF_LINEAR, InterventionOptions
from flwr_causal.strategies.options import require_fitting
from flwr_causal.strategies.privacy import PrivateOptions
from flwr_causal.strategies.series import OF_LAGS, RowsOrSeriesOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.strategies.options import Needs

THRESHOLD, LAGGED_THRESHOLD = 0.3, 0.15
# Options of the penalised solvers, "dagma" and "notears".
PENALISED = ("sparsity", "lagged_sparsity", "regression", "ridge", "ranking", "polish", "refit")


NOT_ADDITIVE = Mode("model='linear' or 'curved'", lambda method: method.options.model != "additive")
OF_BLOCKS = Mode(
    "text_columns='keep' or model='curved'", lambda method: method.options.takes_blocks
)
OF_ORDER = Mode(
    "solver='order' or 'class'",
    lambda method: (
        not method.options.hidden_causes
        and (
            method.options.takes_blocks
            or method.options.solver in ("order", "class")
            or (
                method.options.solver == "auto"
                and method.options.model == "linear"
                and not method.options.takes_dagma
            )
        )
    ),
)
OF_DRAWS = Mode(
    "solver='order' and rows without time, interventions, epsilon and local_graphs",
    lambda method: method.options.draws_moments,
)
OF_CLASS = Mode("solver='class' or 'ges'", lambda method: method.options.finds_class)
OF_PENALTY = Mode(
    "solver='dagma' or 'notears'",
    lambda method: method.options.solver != "order" and not method.options.finds_class,
)
OF_WEIGHTS = Mode(
    "solver='order', 'dagma' or 'notears'",
    lambda method: not (method.options.finds_class or method.options.hidden_causes),
)
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


@dataclass(frozen=True, kw_only=True)
class MomentsOptions(InterventionOptions, PrivateOptions, RowsOrSeriesOptions):
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
    parameters : {"moments", "likelihood"}, default "moments"
        How a category given its causes is described: by linear discriminant analysis, which follows
        from the second moments and is right where the causes are normal in each state, or by
        logistic regression, which takes 2 to 8 exchanges more (at most 16) of sums over the rows
        (``core.blocks.logistic``). With "likelihood" the regressions also choose the graph, among
        those near the best Gaussian score (``core.blocks.near_ties``). Rows of an intervention on a
        category say nothing of its regression; all stated targets count as such.
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
    hidden_causes : bool, default False
        Whether variables may have common causes that no party has measured. The result is then a
        partial ancestral graph (``graph.kind`` is "pag"): its marks say which variables are causes
        of others, which are not, and what stays open (``core.ges.ancestral_search``). For rows
        without time. ``run.total_effect`` gives the effects that are identified, and says of the
        others what leaves them open.
    max_parents : int, optional
        Largest number of parents of a variable, for the solvers "class" and
        "ges". Default: no limit.
    least_effect : float, default 0.1
        With the solvers "order" and "class": least partial correlation of an edge, given the other
        causes. Smaller effects are significant in large samples even where a system is only nearly
        linear, see ``core.linear.order_search.LEAST_EFFECT``.
    stability : float, default 0.4
        With the solver "order", for rows without time: least share of ten redrawn second moments
        whose equivalence class allows an edge; others are left out (``core.linear.stability``, with
        what the default was chosen on). 0 keeps all edges of the best graph. Replicates keep them.
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

    missing_values: Literal["auto", "fail", "drop", "em"] = "auto"  # type: ignore[assignment]
    unshared_columns: AutoDropKeep = "auto"  # type: ignore[assignment]
    text_columns: AutoDropKeep = "auto"  # type: ignore[assignment]
    center: Literal["global", "party", "series", "phase"] = "global"  # type: ignore[assignment]
    categories: str = only(OF_BLOCKS, "")
    numbers: str = only(OF_BLOCKS, "")
    model: Literal["linear", "additive", "curved"] = "linear"
    parameters: Literal["moments", "likelihood"] = only(OF_BLOCKS, "moments")
    solver: Literal["auto", "order", "class", "dagma", "notears", "ges"] = "auto"
    unknown_targets: bool = False
    local_graphs: bool = False
    hidden_causes: bool = False
    max_parents: int | None = only(OF_CLASS, None, least=1, most=MOST)
    least_effect: float = only(OF_ORDER, LEAST_EFFECT, least=0, below=1)
    stability: float = only(OF_DRAWS, LEAST_SHARE, least=0, most=1)
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
        **dict.fromkeys(("polish", "solver"), OF_LINEAR),
        "order": NOT_ADDITIVE,
    }

    @property
    def takes_blocks(self) -> bool:
        """Whether a variable is a block of columns: a category, or functions of a number."""
        return takes_blocks(self, self.text_columns)

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
    def pools_rows(self) -> bool:
        """Whether the pooled moments equal those of the pooled rows, all centred by one mean."""
        by_sums = self.aggregation == "mean" and not (self.held_out or self.private)
        by_sums = by_sums and not self.compares_parties
        return by_sums and not self.incomplete and self.center == "global" and self.order == 0

    def check(self) -> None:
        """Check that the options fit each other.

        Raises
        ------
        ConfigError
            Naming the option and its possible values.
        """
        if self.max_rounds != 1:
            raise ConfigError(
                f"The option 'max_rounds' is {self.max_rounds!r}; the moments method has exactly "
                "one exchange. Leave the option out."
            )
        self.check_center()
        if self.takes_blocks:
            require_fitting(self, self.with_blocks, "text_columns='keep' or model='curved'")
        if self.hidden_causes:
            require_fitting(self, self.with_hidden_causes, "hidden_causes=True")
        if self.unknown_targets:
            require_fitting(self, self.with_unknown_targets, "unknown_targets=True")
        if self.local_graphs:
            require_fitting(self, self.with_local_graphs, "local_graphs=True")
        if self.incomplete:
            require_fitting(self, self.with_missing, "missing_values='em'")
        kept = self.unshared_columns != "keep" or self.incomplete
        require(kept, "unshared_columns", "keep", "'fail' or 'drop', or missing_values='em'")
        chosen = self.model == "additive" and self.sparsity in ("bic", "held-out")
        require(not chosen, "sparsity", self.sparsity, "'auto' or a number, or model='linear'")

    # Which options fit a setting, by name, and what they must be.

    @property
    def with_missing(self) -> Needs:
        """For rows with missing cells."""
        by_ridge = self.regression == "ridge" and self.ridge != "held-out"
        return {
            "model": (self.model != "additive", "'linear' or 'curved'"),
            "sparsity": (not self.held_out, "'auto', 'bic' or a number"),
            "select_order": (not self.select_order, "False"),
            "instantaneous": (self.instantaneous != "auto", "True or False"),
            "regression": (
                self.regression == "lasso" or by_ridge,
                "'lasso', or 'ridge' with a number for 'ridge'",
            ),
            "ranking": (self.ranking == "weights", "'weights'"),
            "epsilon": (not self.private, "left out"),
            "center": (self.center == "global", "'global'"),
            "aggregation": (self.aggregation == "mean", "'mean'"),
            "small_counts": (self.small_counts == "report", "'report'"),
            "fraction_train": (self.fraction_train == 1, "1"),
        }

    @property
    def with_hidden_causes(self) -> Needs:
        """For hidden common causes: rows without time."""
        return {
            "solver": (self.solver == "auto", "'auto'"),
            "model": (self.model != "additive", "'linear' or 'curved'"),
            "parameters": (self.parameters == "moments", "'moments'"),
            # Covariances of columns that no party holds together follow from a graph without them.
            "unshared_columns": (self.unshared_columns != "keep", "'fail' or 'drop'"),
            "order": (self.order == 0, "0"),
            **self._without_interventions,
            **{name: (not changed(self, name), "left out") for name in PENALISED},
            "epsilon": (not self.private, "left out"),
            "aggregation": (self.aggregation == "mean", "'mean'"),
        }

    @property
    def with_unknown_targets(self) -> Needs:
        """For interventions with unknown targets."""
        return {
            **self.with_interventions,
            **self._without_interventions,
            "parameters": (self.parameters == "moments", "'moments'"),
            "hidden_causes": (not self.hidden_causes, "False"),
            "missing_values": (not self.incomplete, "'fail' or 'drop'"),
            "unshared_columns": (self.unshared_columns != "keep", "'fail' or 'drop'"),
            "epsilon": (not self.private, "left out"),
        }

    @property
    def with_local_graphs(self) -> Needs:
        """For own graphs of the parties: sums of each party's rows, without folds."""
        needs = {**self.with_unknown_targets}
        del needs["order"]  # comes last: an error names the option that is chosen
        one = self.order == 0 or self.num_folds == 1
        chosen = "sparsity, regression, ridge, ranking or instantaneous effects"
        return needs | {"order": (one, f"0 where {chosen} need held-out rows")}

    @property
    def compares_parties(self) -> bool:
        """Whether the moments of the parties, or of groups of them, are compared."""
        return self.unknown_targets or self.local_graphs

    @property
    def with_blocks(self) -> Needs:
        """For blocks of columns."""
        return {
            "model": (self.model != "additive", "'linear' or 'curved'"),
            "solver": (self.solver in ("auto", "class"), "'auto' or 'class'"),
            "center": (self.center == "global", "'global'"),
            "standardize": (not self.standardize, "False"),
            "aggregation": (self.aggregation == "mean", "'mean'"),
            "small_counts": (self.small_counts == "report", "'report'"),
            # Of series of blocks there are no logistic regressions.
            "parameters": (self.parameters == "moments" or not self.order, "'moments', or order=0"),
        }

    @property
    def with_interventions(self) -> dict[str, tuple[bool, str]]:
        """For rows under interventions."""
        penalised = self.solver in ("dagma", "notears") or changed(self, *PENALISED)
        return {
            **super().with_interventions,
            "model": (self.model != "additive", "'linear' or 'curved'"),
            "parameters": (
                self.parameters == "moments" or not self.incomplete,
                "'moments', or missing_values='drop'",
            ),
            "order": (self.order == 0 or not penalised, "0 with the solvers 'dagma' and 'notears'"),
            "select_order": (not self.select_order, "False"),
            "instantaneous": (self.instantaneous != "auto", "True or False"),
            "sparsity": (not self.held_out, "'auto', 'bic' or a number"),
        }

    @property
    def with_privacy(self) -> dict[str, tuple[bool, str]]:
        """For differential privacy: rows of a table, in one sum."""
        return {
            **super().with_privacy,
            "model": (self.model == "linear", "'linear'"),
            "order": (self.order == 0, "0"),
            **self._without_interventions,
            "sparsity": (not self.held_out, "'auto', 'bic' or a number"),
        }

    @property
    def with_different_columns(self) -> dict[str, tuple[bool, str]]:
        """For parties that hold different columns; with lags folds can be had."""
        needs = {
            "center": (self.center == "global", "'global'"),
            "aggregation": (self.aggregation == "mean", "'mean'"),
            "model": (self.model != "additive", "'linear' or 'curved'"),
            "parameters": (self.parameters == "moments", "'moments'"),
            "unknown_targets": (not self.unknown_targets, "False"),
            "local_graphs": (not self.local_graphs, "False"),
            # What is expected of a cell follows from cells of the row at all parties, and no sum
            # over rows tells it.
            "missing_values": (not self.incomplete, "'drop'"),
            **self._without_interventions,
        }
        if self.order:
            needs["center"] = (self.center != "phase", "'global' or 'series'")
        else:
            needs["sparsity"] = (not self.held_out, "'auto', 'bic' or a number")
        return needs

    @property
    def _without_interventions(self) -> dict[str, tuple[bool, str]]:
        """For rows without known interventions."""
        return {
            "interventions": (self.interventions is None, "left out"),
            "intervention_column": (not self.intervention_column, "left out"),
        }
