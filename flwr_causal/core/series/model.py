"""Linear systems over time: ``x_t = intercept + x_t W + x_{t-1} A_1 + ... + x_{t-p} A_p + e_t``.

This is the model of 2Dbn (Chen, Ma & Yue 2024, eq. 1) in row vectors: W is acyclic, the noise
Gaussian and independent between variables and steps. Given the graph and the first p steps, the
maximum-likelihood fit is least squares of each variable on its parents at t and before. The reduced
form of the system is ``x_t = (intercept + sum_l x_{t-l} A_l + e_t) (I - W)^{-1}``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.arguments import COUNT, shown
from flwr_causal.core.graphs import notebook
from flwr_causal.core.graphs.acyclicity import ancestors, is_acyclic
from flwr_causal.core.graphs.adjustment import with_past
from flwr_causal.core.graphs.effect import NO_EFFECT, Effect
from flwr_causal.core.graphs.equivalence import undirected_part
from flwr_causal.core.graphs.graph import CausalGraph, pair_of
from flwr_causal.core.linear import effects, fit_check
from flwr_causal.core.linear.model import intercepts_of, sample_moments
from flwr_causal.core.linear.moments import Moments, distinct, moments_of_variables
from flwr_causal.core.linear.regression import least_squares
from flwr_causal.core.linear.system import (
    LinearSystem,
    intervened,
    log_density,
    named_columns,
)
from flwr_causal.core.series.design import companion_radius, lagged_names, lagged_rows, split_blocks
from flwr_causal.core.series.regression import order_of
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.fit_check import FitCheck
    from flwr_causal.core.linear.system import SampleMoments

# The default burn-in reduces the influence of the first steps to at most this share.
START_REMAINS = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class LaggedModel(LinearSystem):
    """A linear system over time with Gaussian noise; the instantaneous edges form a DAG.

    The arrays are stored as read-only float64 copies. A *series* is a data frame with (at least)
    the model's variables as columns, or an array ``(T, d)`` with its columns in the order of
    ``names``. The rows are successive steps in the order of time, at least p + 1.

    Attributes
    ----------
    names
        Names of the d variables.
    weights
        ``(d, d)``, W: ``weights[i, j]`` is the effect of i on j within a step, 0 if there is no
        edge. All weights are in the units of the data.
    lagged
        ``(p, d, d)``, p >= 1: ``lagged[l, i, j]`` is the effect of i at t - l - 1 on j at t.
    intercepts
        ``(d,)``, in the units of each variable.
    noise_variances
        ``(d,)`` variances of the noise terms; :func:`fit_lagged` estimates them with divisor n.
    sample_moments
        Moments of the columns ``[x_t, x_{t-1}, ..., x_{t-p}]`` of the rows to which the system was
        fitted, which standard errors need; unknown second moments are NaN. A tuple or None as in
        :class:`~core.linear.model.LinearModel`.
    marks
        ``(d, d)`` equivalence class of the instantaneous edges where only the class is known.
    party_moments
        By party, the moments of these columns in its rows, as in
        :class:`~core.linear.model.LinearModel`.
    held_out_log_likelihood
        As in :class:`~core.linear.model.LinearModel`.

    Raises
    ------
    DataError
        If names repeat, shapes do not fit, a number is not finite, a variance is negative or W has
        a directed cycle.
    """

    KIND: ClassVar[str] = "lagged linear model"
    FIELDS: ClassVar[tuple[str, ...]] = ("weights", "lagged", "intercepts", "noise_variances")

    names: tuple[str, ...]
    weights: FloatArray
    lagged: FloatArray
    intercepts: FloatArray
    noise_variances: FloatArray
    sample_moments: SampleMoments | None = None
    marks: BoolArray | None = None
    party_moments: Mapping[str, Moments] | None = None
    held_out_log_likelihood: float | None = None

    def __post_init__(self) -> None:
        d, order = len(self.names), len(self.lagged)
        if order == 0:
            raise DataError("a LaggedModel has at least one lag: use a LinearModel without lags")
        shapes = {
            "weights": (d, d),
            "lagged": (order, d, d),
            "intercepts": (d,),
            "noise_variances": (d,),
        }
        self._freeze(shapes, lagged_names(self.names, order))

    @property
    def _edges(self) -> BoolArray:
        """The parents of each variable among those at t, t - 1, ..., t - p, ``((p + 1) d, d)``."""
        return np.asarray(np.concatenate([self.weights, *self.lagged]) != 0)

    @property
    def graph(self) -> CausalGraph:
        """The graph of the weights, with lags."""
        return CausalGraph(self.names, self.weights, lagged=self.lagged)

    def __repr__(self) -> str:
        edges = self.graph.num_edges + self.graph.num_lagged_edges
        return f"<LaggedModel: {len(self.names)} variables, {self.order} lags, {edges} edges>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the strongest edges, and the drawing."""
        return notebook.section(repr(self), self.graph._repr_html_())

    @property
    def order(self) -> int:
        """Number of lags p."""
        return len(self.lagged)

    @property
    def spectral_radius(self) -> float:
        """Largest absolute eigenvalue of the companion matrix: below 1 the system is stationary."""
        return companion_radius(self.weights, self.lagged)

    def mean(self) -> FloatArray:
        """Return the ``(d,)`` means of the variables in the stationary distribution.

        Raises
        ------
        DataError
            If the system is not stationary.
        """
        radius = self.spectral_radius
        if radius >= 1:
            raise DataError(
                f"the system is not stationary (spectral radius {radius:.6g}, stationary below 1): "
                "it has no mean and cannot be sampled; use predict and log_likelihood"
            )
        system = np.eye(len(self.names)) - self.weights - self.lagged.sum(axis=0)
        return np.asarray(np.linalg.solve(system.T, self.intercepts), dtype=np.float64)

    def predict(self, series: Any) -> FloatArray:
        """Return the mean of each step given the p steps before it, ``(T - p, d)``, from step p on.

        It is computed by the reduced form: no value of the step itself is used.

        Raises
        ------
        DataError
            If the series is too short, lacks variables or has missing values.
        """
        _, past = self._present_and_past(series)
        return self._propagate(self._expected(past))

    def residuals(self, series: Any) -> FloatArray:
        """Return the noise terms ``x_t - x_t W - sum_l x_{t-l} A_l - intercept``, ``(T - p, d)``.

        Raises
        ------
        DataError
            If the series is too short, lacks variables or has missing values.
        """
        present, past = self._present_and_past(series)
        return np.asarray(present - present @ self.weights - self._expected(past))

    def log_likelihood(self, series: Any) -> FloatArray:
        """Return the log density of each step given the p steps before it, ``(T - p,)``.

        Raises
        ------
        DataError
            If the series is too short, lacks variables or has missing values, or a noise variance
            is 0, so that there is no density.
        """
        return log_density(self.residuals(series), self.noise_variances, self.names)

    def sample(
        self, steps: int, seed: int | None = None, *, burn_in: int | None = None
    ) -> pd.DataFrame:
        """Draw a series of the stationary system; the same seed gives the same series.

        Parameters
        ----------
        steps
            T, 1 or more.
        seed
            Default: a different series in each call.
        burn_in
            Number of steps that are simulated from the stationary mean and discarded. Default: as
            many as reduce the influence of the start to a millionth, more the closer the spectral
            radius is to 1. With 0 the variance grows from 0 over the first steps.

        Returns
        -------
        DataFrame
            ``(T, d)``, in the order of time.

        Raises
        ------
        DataError
            If the system is not stationary.
        ConfigError
            If ``steps`` is below 1 or ``burn_in`` negative.
        """
        import pandas as pd

        if steps < 1 or (burn_in is not None and burn_in < 0):
            raise ConfigError(
                f"steps is {steps}, burn_in {burn_in}: give at least 1 step, and a burn_in of at "
                "least 0"
            )
        mean = self.mean()
        first = self.order + (self._burn_in() if burn_in is None else burn_in)
        d, total = len(self.names), first + steps
        noise = np.random.default_rng(seed).standard_normal((total, d))
        # Deviations from the mean; the first p steps are at the mean.
        x = self._propagate(noise * np.sqrt(self.noise_variances))
        x[: self.order] = 0.0
        # The past steps are stored in the order of time, the longest lag first.
        effects = self._propagate(np.concatenate(self.lagged[::-1]))
        flat = x.reshape(-1)
        for t in range(self.order, total):
            x[t] += flat[(t - self.order) * d : t * d] @ effects
        return pd.DataFrame(x[first:] + mean, columns=pd.Index(self.names))

    def total_effect(
        self, cause: str, effect: str, *, lag: int = 0, level: float = 0.95, by_party: bool = False
    ) -> Effect | list[Effect]:
        """Return how much the effect changes for each unit by which the cause was raised.

        The cause is raised in the step ``lag`` steps before, and in that step only. Without a lag
        the estimate is the coefficient of the cause in the regression of the effect on the cause
        and the optimal adjustment set, with its classical standard error. With a lag, and where the
        moments of that regression are unknown, it is the sum over directed paths of the products of
        their weights, with a standard error by the delta method.

        Parameters
        ----------
        cause, effect : str
            Two variables; with a lag they may be the same.
        lag : int, default 0
            Number of steps from the cause to the effect; it may exceed the number of lags p.
        level : float, default 0.95
            Of the confidence interval.
        by_party : bool, default False
            Whether the standard error allows for differences between parties in effects and noise
            (clustered by party; of few parties it is itself uncertain, and intervals are wide).

        Returns
        -------
        Effect or list of Effect
            In units of the effect per unit of the cause. The adjustment set has names such as
            ``x[t-1]``. If the model stands for an equivalence class (`marks`), the list of
            :meth:`possible_effects`.

        Raises
        ------
        DataError
            If a variable is unknown, rows are too few, or the cause is a linear function of the
            adjustment set.
        ConfigError
            If the model has no moments of rows, or with `by_party` none of two parties, the level
            is not between 0 and 1, the lag is negative, or there is a lag and the class leaves
            directions open.
        """
        if not COUNT.fits(lag):
            raise ConfigError(f"lag is {shown(lag)}: expected 0, 1, 2, ...")
        rows, found = self._required_moments(), None
        if self.marks is not None and lag == 0 and isinstance(rows, Moments):
            return self.possible_effects(cause, effect, level=level, by_party=by_party)
        if self.marks is not None and undirected_part(self.marks).any():
            raise ConfigError(
                "effects with a lag, or under interventions, need the directions of all "
                "instantaneous edges, and this model stands for an equivalence class: direct its "
                "edges by knowledge; without a lag possible_effects lists the effects"
            )
        i, j = pair_of(self.names, cause, effect, same=lag > 0)
        blocks = self._blocks(by_party)
        if lag == 0:
            edges = self._design(self.weights != 0)
            found = effects.by_optimal_set(blocks, edges, (i, j), effects.RAISED, level)
        if found is None:
            found = self._along_paths(blocks, i, j, lag, level)
        return found if self.marks is None else [found]

    def fit_check(self, series: Any = None) -> FitCheck:
        """Test the independencies that the graph implies, on the moments of steps and their lags.

        Parameters
        ----------
        series : DataFrame or array of shape (T, d); optional
            A series to test on. Default: the moments of the rows to which the system was fitted;
            see :meth:`LinearModel.fit_check <core.linear.model.LinearModel.fit_check>`.

        Returns
        -------
        FitCheck
            Of each variable at t with what comes before it, at t and in the past. With a series
            also the mean log density of its steps.

        Raises
        ------
        DataError
            If the series is too short, lacks variables or has missing values.
        ConfigError
            If there is neither a series nor moments of rows.
        """
        if series is None:
            return fit_check.check(self._required_moments(), self._edges, self._held_out)
        columns = lagged_names(self.names, self.order)
        steps = Moments.from_rows(np.hstack(self._present_and_past(series)), columns)
        return fit_check.on_rows(steps, self._edges, self.log_likelihood(series))

    def do(self, values: Mapping[str, float]) -> LaggedModel:
        """Return the system under an intervention that holds variables at values in all steps.

        Parameters
        ----------
        values : mapping of str to float
            The variables that are held, in their units.

        Returns
        -------
        LaggedModel
            The variables that are held have no parents and no noise.

        Raises
        ------
        DataError
            If a variable is unknown, or a value is not a finite number.
        ConfigError
            If the equivalence class (`marks`) leaves open whether a variable that is held causes
            another one: see :meth:`possible_effects`.
        """
        weights, lagged, intercepts, noise = intervened(self, values, self.weights, self.lagged)
        marks = self._marks_after(values)
        return LaggedModel(self.names, weights, lagged, intercepts, noise, marks=marks)

    def response(self, impulse: Mapping[str, float], steps: int = 10) -> pd.DataFrame:
        """Return how an intervention in one step changes the mean of all variables from then on.

        Parameters
        ----------
        impulse : mapping of str to float
            By how much the variables are raised in step 0 over what they would have been, whatever
            their causes in that step. From step 1 on they follow their causes again.
        steps : int, default 10
            Number of steps after step 0.

        Returns
        -------
        DataFrame
            ``(steps + 1, d)``; ``model.response({"x": 1.0}).plot()`` draws the curves. If one
            variable is raised by 1, the column y in row s is the effect of :meth:`total_effect`
            with lag s.

        Raises
        ------
        DataError
            If a variable is unknown, or an amount is not a finite number.
        ConfigError
            If ``steps`` is negative, or the equivalence class (`marks`) leaves open whether a
            variable that is raised causes another one.
        """
        import pandas as pd

        if steps < 0:
            raise ConfigError(f"steps is {steps}: expected 0, 1, 2, ...")
        weights, levels, _ = intervened(self, impulse, self.weights)
        self._marks_after(impulse)
        raised = np.where([name in impulse for name in self.names], levels, 0.0)
        identity = np.eye(len(levels))
        start = np.asarray(np.linalg.solve((identity - weights).T, raised)[None], dtype=np.float64)
        changes = _responses(start, self._propagate(identity), self.lagged, steps)
        index = pd.RangeIndex(steps + 1, name="step")
        return pd.DataFrame(changes[:, 0], index=index, columns=pd.Index(self.names))

    def _present_and_past(self, series: Any) -> tuple[FloatArray, FloatArray]:
        """Check a series; return its steps ``(T - p, d)`` and their lags, ``(T - p, p d)``."""
        X = named_columns(series, self.names, self.names)
        if len(X) <= self.order:
            raise DataError(
                f"the series has {len(X)} rows, but a model with {self.order} lags needs at least "
                f"{self.order + 1}"
            )
        bad = np.argwhere(~np.isfinite(X))
        if len(bad):
            row, column = (int(k) for k in bad[0])
            raise DataError(
                f"missing or infinite value of {self.names[column]} in row {row} of the series "
                f"(counted from 0; {len(bad)} such values): fill them, or cut the series there"
            )
        rows = lagged_rows([X], self.order)
        return rows[:, : len(self.names)], rows[:, len(self.names) :]

    def _expected(self, past: FloatArray) -> FloatArray:
        """Return the sum of intercepts and lagged effects, ``(n, d)``."""
        return np.asarray(self.intercepts + past @ np.concatenate(self.lagged), dtype=np.float64)

    def _propagate(self, rows: FloatArray) -> FloatArray:
        """Return the solution x of ``x = rows + x W`` for every row, C-contiguous."""
        system = np.eye(len(self.names)) - self.weights
        return np.ascontiguousarray(np.linalg.solve(system.T, rows.T).T, dtype=np.float64)

    def _design(self, now: BoolArray) -> BoolArray:
        """Return edges without a lag, ``(d, d)``, as a graph over the columns of the moments."""
        return with_past(now, self.lagged != 0)

    def _along_paths(
        self, blocks: effects.Blocks, cause: int, effect: int, lag: int, level: float
    ) -> Effect:
        """Return the effect over directed paths, by the coefficients of all families."""
        d, now, past = len(self.names), self.weights != 0, self.lagged != 0
        if not reaches(now, past, lag)[cause, effect]:
            return NO_EFFECT
        unit = np.eye(d)
        value, gradient = self.response_to(unit[cause], unit[effect], lag)
        edges = np.concatenate([now, *past])
        return effects.along_paths(blocks, value, gradient, edges, level)

    def response_to(
        self, change: FloatArray, reading: FloatArray, lag: int
    ) -> tuple[float, FloatArray]:
        """Return what changes of variables in one step do to a weighted sum of them later.

        Parameters
        ----------
        change, reading : ndarray of shape (d,)
            By how much the variables are raised, and the weights of the sum.
        lag : int
            Number of steps between.

        Returns
        -------
        value : float
        gradient : ndarray of shape (d (1 + p), d)
            Its derivatives by the coefficients of all variables on their parents.
        """
        d = len(self.names)
        total = self._propagate(np.eye(d))
        after = _responses(total, total, self.lagged, lag)
        raised, read = change @ after, after @ reading
        # A coefficient of lag k acts in every step s of which the effect is k or more steps away.
        gradient = np.zeros((1 + self.order, d, d))
        for k in range(min(self.order, lag) + 1):
            for s in range(lag - k + 1):
                gradient[k] += np.outer(raised[s], read[lag - k - s])
        return float(raised[lag] @ reading), gradient.reshape(-1, d)

    def _burn_in(self) -> int:
        """Return the number of steps after which the share of the start is ``START_REMAINS``."""
        # Powers of a nilpotent matrix vanish after as many steps as the matrix has rows.
        nilpotent = self.order * len(self.names)
        decay = np.log(max(self.spectral_radius, START_REMAINS))
        return nilpotent + int(np.ceil(np.log(START_REMAINS) / decay))


def reaches(now: BoolArray, past: BoolArray, lag: int) -> BoolArray:
    """Return which variables a directed path joins with which others, some steps later, (d, d).

    Parameters
    ----------
    now : ndarray of bool, shape (d, d)
        A DAG.
    past : ndarray of bool, shape (p, d, d)
    lag : int
        Number of steps from the first variable to the second.
    """
    # With 1 for each edge, the entries above 0 are those that a directed path joins.
    reach = (ancestors(now) | np.eye(len(now), dtype=bool)).astype(np.float64)
    return np.asarray(_responses(reach, reach, past.astype(np.float64), lag)[lag] > 0)


def _responses(start: FloatArray, total: FloatArray, lagged: FloatArray, steps: int) -> FloatArray:
    """Return the effects of changes in step 0 on later steps.

    Parameters
    ----------
    start : ndarray of shape (k, d)
        Changes of all variables in step 0.
    total : ndarray of shape (d, d)
        ``(I - W)^{-1}``, the effects within a step.
    lagged : ndarray of shape (p, d, d)
    steps : int

    Returns
    -------
    ndarray of shape (1 + steps, k, d)
    """
    reduced = lagged @ total
    result = np.zeros((1 + steps, *start.shape))
    result[0] = start
    for step in range(1, 1 + steps):
        for lag in range(1, min(step, len(lagged)) + 1):
            result[step] += result[step - lag] @ reduced[lag - 1]
    return result


def fit_lagged(
    moments: Moments | Sequence[Moments], adjacency: ArrayLike, num_variables: int
) -> LaggedModel:
    """Fit the weights and noise variances of a lagged system with given edges.

    Parameters
    ----------
    moments
        Moments of the m = d (1 + p) columns of ``[x_t, x_{t-1}, ..., x_{t-p}]`` in the units of the
        data, with their means; or one for each of the d variables. Only the second moments within
        families (a variable at t and its parents) are read; all others may be NaN.
    adjacency
        ``(m, d)`` edges from every column into the d variables at t, whose first d rows must be
        acyclic; or ``(m, m)`` without an edge into a lagged column.
    num_variables
        d.

    Raises
    ------
    DataError
        If the moments' columns are not d variables and their lags, a moment within a family is
        missing, or the adjacency has another shape, a cycle, or an edge into a lagged column.
    """
    d = num_variables
    own = moments_of_variables(moments, d)
    order_of(own[0], d)
    mask = _into_present(adjacency, own[0].d, d)
    if not is_acyclic(mask[:d]):
        raise DataError(
            "the instantaneous edges of a lagged model have a cycle: they must form a DAG"
        )
    parts, places = distinct(own)
    for place, part in enumerate(parts):
        _require_families(part, mask & (places == place))
    stacked, variances = least_squares(own, mask)
    weights, lagged = split_blocks(stacked)
    intercepts = intercepts_of(own, stacked)
    rows = sample_moments(own)
    return LaggedModel(
        parts[0].names[:d], weights, lagged, intercepts, variances, sample_moments=rows
    )


def _into_present(adjacency: ArrayLike, m: int, d: int) -> BoolArray:
    """Return the edges into the first d of m columns, ``(m, d)``, after a check of all others."""
    mask = np.asarray(adjacency) != 0
    if mask.shape not in ((m, d), (m, m)):
        raise DataError(f"the adjacency has shape {mask.shape}, expected {(m, d)} or {(m, m)}")
    if mask[:, d:].any():
        raise DataError(
            "the adjacency has an edge into a lagged column: only variables at t have causes"
        )
    return np.asarray(mask[:, :d], dtype=bool)


def _require_families(moments: Moments, mask: BoolArray) -> None:
    """Raise a DataError if a second moment within a family is missing."""
    families = np.maximum(mask, np.eye(*mask.shape))
    lacking = np.argwhere((families @ families.T > 0) & ~np.isfinite(moments.second))
    if len(lacking):
        i, j = (moments.names[k] for k in lacking[0])
        raise DataError(
            f"the second moment of {i} and {j} is missing, which the fit of this graph needs "
            f"({len(lacking)} such entries): compute it for these edges"
        )
