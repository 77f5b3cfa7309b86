"""Moments (Ng & Zhang 2022, section 4): one exchange of sums, then a centralised solver."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from flwr_causal.core.linear.folds import NUM_FOLDS
from flwr_causal.core.series.design import knowledge_masks
from flwr_causal.errors import ConfigError
from flwr_causal.strategies.linear import LinearStrategy
from flwr_causal.strategies.moments_solutions import (
    Outcome,
    solve_additive,
    solve_rows,
    solve_series,
)
from flwr_causal.strategies.options import also_called, require
from flwr_causal.strategies.series import SeriesOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.model import LinearModel
    from flwr_causal.core.series.model import LaggedModel
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.wire import Arrays, Scalar

    FloatArray = NDArray[np.float64]

THRESHOLD, LAGGED_THRESHOLD, ADDITIVE_THRESHOLD = 0.3, 0.15, 0.1
WITHOUT_TIME, OF_SERIES = ("global", "party"), ("global", "series", "phase")
# Options that mean something with lags only.
LAGGED = ("select_order", "instantaneous", "regression", "ranking", "ridge")


@dataclass(frozen=True, eq=False)
class MomentsRun:
    """The state of a moments run.

    Parameters
    ----------
    agreement : Agreement
    masks : EdgeMasks
        Over the d columns, or over the m columns of the design with lags.
    outcome : Outcome or None
        None before the exchange.
    """

    agreement: Agreement
    masks: EdgeMasks
    outcome: Outcome | None = None


@also_called(model="kind")
@dataclass(kw_only=True, eq=False)
class Moments(SeriesOptions, LinearStrategy[MomentsRun]):
    """Federated linear structure learning from summed second moments, in one exchange.

    Means and second moments are all that a linear Gaussian system needs from the rows
    (Ng & Zhang 2022, section 4), and sums over parties are exactly those of the pooled rows. The
    answer is therefore that of the centralised solver on the pooled data. With an ``order`` p the
    rows are steps of time series with their p lags, and the answer is a dynamic Bayesian network,
    that of DYNOTEARS (Pamfil et al. 2020) on the series of all parties, or of a regression on the
    past alone.

    **What leaves a party**: in the schema exchange names, types, the number of rows and, for each
    column, mean and sum of squared deviations; then one d x d array of second moments of the
    centred and scaled rows; with an order p sums and products of the m = d (1 + p) columns, one
    (2 + m) x (2 + m) array, five where something is chosen by held-out error, and one more for each
    smaller order to choose from. With secure summation the server learns the pooled second moments
    and nothing else. Without it it learns each party's, that is, each party's correlations.

    Parameters
    ----------
    kind : {"linear", "additive"}, default "linear"
        The option ``model`` (a strategy has a method of that name). "additive" lets every effect be
        a sum of five functions of its cause, the same at all parties (``core.additive``): their
        second moments are (1 + 5 d) x (1 + 5 d), and the graph is that of the pooled rows again.
        ``graph.weights`` are then the effects' standard deviations in units of the variable that
        is explained, without a sign.
    order : int, default 0
        p, the number of lags; 0 is rows without time. The options of series are those of
        :class:`~flwr_causal.strategies.series.SeriesOptions`, and need an order.
    solver : {"dagma", "notears"}, default "dagma"
        "dagma" is the log-determinant central path (Bello et al. 2022), also for hundreds of
        variables; "notears" the trace exponential and augmented Lagrangian (Zheng et al. 2018).
    sparsity : float or {"auto", "bic", "held-out"}, default "auto"
        Weight of the L1 norm. "auto" is c sqrt(log d / n) times the geometric mean of the variances
        (``core.linear.selection.default_sparsity``; ``core.series.solution`` with lags); "bic"
        chooses among multiples of it by the Gaussian BIC; "held-out" by the error on rows that were
        held out, whose sums travel apart: a quarter of the rows of every party, or, with lags, each
        fifth of them in turn.
    threshold : float or None, default None
        None is 0.3, 0.15 with an order (weights of series are smaller), and 0.1 for additive
        effects.
    center : {"global", "party", "series", "phase"}, default "global"
        "party" is for rows without time; "series" and "phase" are for series, see
        :class:`~flwr_causal.strategies.admm.two_dbn.TwoDBN`.
    select_order : bool, default False
        Let the held-out error of one-step predictions choose the number of lags, 1 to ``order``,
        all judged on the steps that have so many before them; the chosen one is fitted to all.
    instantaneous : bool or "auto", default True
        Fit effects within a step. "auto" does where they lower the held-out error by 2 %.
    regression : {"lasso", "ridge", "held-out"}, default "lasso"
        How effects are penalised; "held-out" takes the one that predicts better.
    ridge : float or "held-out", default "held-out"
        Weight of the squared norm, in units of the variables' variance.
    ranking : {"weights", "partial-correlation", "partial-correlation+weights"}, default "weights"
        What ``run.scores`` holds. The contemporaneous partial correlations, symmetric, are for
        series that are sampled more slowly than effects act, as in fMRI.
    polish : bool, default False
        Go on from the solver's graph by adding, dropping and reversing single edges as long as
        ``score`` improves, on the same moments.
    score : {"bic", "equal-variance"}, default "bic"
        What the polish improves. "equal-variance" assumes that all noise terms have one variance:
        true of the papers' simulators, seldom of the world.
    refit : bool, default True
        Give the edges of the final graph their least-squares weights, free of the L1 norm's
        shrinkage. ``graph.raw_weights`` holds the solver's own.
    """

    method: ClassVar[str] = "moments"

    kind: Literal["linear", "additive"] = "linear"
    order: int = 0
    solver: Literal["dagma", "notears"] = "dagma"
    sparsity: float | Literal["auto", "bic", "held-out"] = "auto"
    threshold: float | None = None  # type: ignore[assignment]
    center: Literal["global", "party", "series", "phase"] = "global"  # type: ignore[assignment]
    select_order: bool = False
    instantaneous: bool | Literal["auto"] = True
    regression: Literal["lasso", "ridge", "held-out"] = "lasso"
    ridge: float | Literal["held-out"] = "held-out"
    ranking: Literal["weights", "partial-correlation", "partial-correlation+weights"] = "weights"
    polish: bool = False
    score: Literal["bic", "equal-variance"] = "bic"
    refit: bool = True

    def validate(self) -> None:
        """Check the options' values."""
        if self.threshold is None:
            usual = ADDITIVE_THRESHOLD if self.kind == "additive" else THRESHOLD
            self.threshold = LAGGED_THRESHOLD if self.order else usual
        super().validate()
        if self.max_rounds != 1:
            raise ConfigError(
                f"The option 'max_rounds' is {self.max_rounds!r}; the moments method has exactly "
                "one exchange. Leave the option out."
            )
        for name in ("sparsity", "ridge"):
            value = getattr(self, name)
            require(isinstance(value, str) or value >= 0, name, value, "0 or more")
        known = OF_SERIES if self.order else WITHOUT_TIME
        condition = f"{' or '.join(map(repr, known))} with order {self.order}"
        require(self.center in known, "center", self.center, condition)
        if self.kind == "additive":
            self._refuse_linear_options()
        if self.order:
            self.validate_series(self.center)
        else:
            self._refuse_series_options()

    def _refuse_series_options(self) -> None:
        for option in fields(self):
            of_series = option.name in LAGGED or option.name in SeriesOptions.__dataclass_fields__
            value = getattr(self, option.name)
            if of_series and value != option.default:
                raise ConfigError(
                    f"The option '{option.name}' is {value!r}, but the order is 0, that is, rows "
                    "without time: give an order of 1 or more, or leave the option out."
                )

    def _refuse_linear_options(self) -> None:
        """Raise for what is made for linear effects."""
        chosen = self.sparsity in ("bic", "held-out")
        for name, wrong in (
            ("order", self.order != 0),
            ("polish", self.polish),
            ("solver", self.solver != "dagma"),
            ("sparsity", chosen),
        ):
            if wrong:
                raise ConfigError(
                    f"The option '{name}' is {getattr(self, name)!r}, which is for model='linear': "
                    "leave it out with model='additive'."
                )

    @property
    def thresholds(self) -> tuple[float, float]:
        """The thresholds of instantaneous and of lagged edges."""
        assert self.threshold is not None
        return self.limits(self.threshold)

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns that are no variables: with an order those of series, times and phases."""
        return super().role_columns if self.order else ()

    @property
    def schema_options(self) -> dict[str, Scalar]:
        """How the parties find and centre their rows or series."""
        return {**self.layout_options, "center": self.center}

    @property
    def client_options(self) -> dict[str, Scalar]:
        """How the parties prepare their rows."""
        return {
            **super().client_options,
            "held-out": self.sparsity == "held-out",
            "model": self.kind,
            "folds": self.num_folds,
            "select-order": self.select_order,
            "seed": self.seed,
        }

    @property
    def num_folds(self) -> int:
        """In how many parts the products of series travel: several to choose by held-out error."""
        holds_out = (
            self.select_order
            or self.instantaneous == "auto"
            or self.sparsity == "held-out"
            or self.regression == "held-out"
            or (self.regression != "lasso" and self.ridge == "held-out")
            or self.ranking.startswith("partial-correlation")
        )
        return NUM_FOLDS if holds_out else 1

    def masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge over the columns of the rows, with their lags if any."""
        if self.order == 0:
            return super().masks(agreement)
        return knowledge_masks(self.knowledge_or_none, agreement.names, self.order)

    def init(self, agreement: Agreement) -> MomentsRun:
        """Start without moments."""
        names, masks = agreement.names, self.masks(agreement)
        if self.instantaneous is False and masks.required[: len(names), : len(names)].any():
            raise ConfigError(
                "The background knowledge requires instantaneous edges, and instantaneous=False "
                "leaves them out: state them as lagged edges, or use instantaneous=True."
            )
        return MomentsRun(agreement, masks)

    def broadcast(self, state: MomentsRun) -> Arrays:
        """Return nothing: the parties need only the agreement."""
        return {}

    def server_step(
        self, state: MomentsRun, mean: Arrays, replies: int
    ) -> tuple[MomentsRun, dict[str, Any]]:
        """Solve on the moments of all parties."""
        solve = solve_series if self.order else solve_rows
        solve = solve_additive if self.kind == "additive" else solve
        outcome = solve(self, state.agreement, state.masks, mean["moments"])
        return replace(state, outcome=outcome), outcome.info

    def finished(self, state: MomentsRun) -> str | None:
        """Return why the run is over: one exchange is all."""
        return None if state.outcome is None else "the one exchange of sums is done"

    def graph(self, state: MomentsRun) -> CausalGraph | None:
        """Return the solver's graph."""
        return None if state.outcome is None else state.outcome.graph

    def model(self, state: MomentsRun) -> LinearModel | LaggedModel | None:
        """Return the fitted linear system in the units of the data."""
        return None if state.outcome is None else state.outcome.model

    def scores(self, state: MomentsRun) -> FloatArray | None:
        """Return the strengths of the edges before the threshold, see ``ranking``."""
        return None if state.outcome is None else state.outcome.scores

    def warnings(self, state: MomentsRun) -> list[str]:
        """Warn where the order of the variances may have decided, or the fit is not stationary."""
        return [] if state.outcome is None else list(state.outcome.warnings)
