"""Linear systems ``x_j = intercept_j + sum_i x_i weights[i, j] + e_j`` on a DAG, also over time.

With lags ``x_t = intercept + x_t W + x_{t-1} A_1 + ... + x_{t-p} A_p + e_t`` is the model of 2Dbn
(Chen, Ma & Yue 2024, eq. 1) in row vectors: W is acyclic, the noise Gaussian and independent
between variables and steps. Given the graph (and the first p steps) the maximum-likelihood fit is
the least-squares regression of each variable on its parents, which needs only the moments among the
variable and its parents. The reduced form is ``x_t = (intercept + sum_l x_{t-l} A_l + e_t)
(I - W)^{-1}``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np

from flwr_causal.core.arrays import frozen_floats
from flwr_causal.core.blocks.design import numbers_in_units
from flwr_causal.core.blocks.normal_scores import scores_from_plain
from flwr_causal.core.graphs import notebook
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.adjustment import after_intervention
from flwr_causal.core.graphs.equivalence import undirected_part
from flwr_causal.core.graphs.fit_check import check, edge_tests
from flwr_causal.core.graphs.graph import (
    CausalGraph,
    distinct_names,
    frozen_booleans,
    place_of,
)
from flwr_causal.core.linear.independence import NumberTests
from flwr_causal.core.linear.moments import (
    SampleMoments,
    distinct,
    from_plain_by_variable,
    moments_of_variables,
    plain_by_variable,
    with_rows,
)
from flwr_causal.core.linear.parties import (
    lacking_parties,
    left_out_log_likelihood,
)
from flwr_causal.core.linear.regression import intercepts_of, least_squares, regress
from flwr_causal.core.saved import read_record, undamaged, write_record
from flwr_causal.core.series.design import companion_radius, lagged_names, lagged_rows, split_blocks
from flwr_causal.core.systems.effects import SystemWithEffects, responses
from flwr_causal.core.words import one_form
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.blocks.normal_scores import NormalScores
    from flwr_causal.core.graphs.doubt import EdgeTest
    from flwr_causal.core.graphs.fit_check import FitCheck

#: Moments of the rows that inform about all variables, or of those that inform about each.
SystemMoments: TypeAlias = SampleMoments | tuple[SampleMoments, ...]

# The default burn-in reduces the influence of the first steps to at most this share.
START_REMAINS = 1e-6

NO_MOMENTS = (
    "this model has no moments of the rows it was fitted to, which standard errors and tests need: "
    "run moments, or notears-admm or 2dbn with search=True, without epsilon. The effect alone "
    "follows from model.do() without them"
)


@dataclass(frozen=True, eq=False, repr=False)
class LinearModel(SystemWithEffects):
    """A linear system with Gaussian noise on a DAG; ``weights[i, j]`` is the effect of i on j.

    The arrays are stored as read-only float64 copies. *Rows* are a data frame with (at least) the
    model's variables as columns, or an ``(n, d)`` array in the order of ``names``. With lags they
    are a *series*: successive steps in the order of time, at least p + 1.

    Attributes
    ----------
    names
        Names of the d variables.
    weights
        ``(d, d)``, zero where there is no edge; the nonzeros form a DAG. With lags these are the
        effects within a step. All weights are in the units of the data.
    intercepts
        ``(d,)``, in the units of each variable.
    noise_variances
        ``(d,)`` variances of the noise terms. Fitted variances have the divisor n.
    sample_moments
        Moments of the rows to which the system was fitted, which standard errors need; unknown
        second moments are NaN. With lags they are of the columns ``[x_t, x_{t-1}, ..., x_{t-p}]``.
        Under interventions a tuple of moments, for each variable those of the rows in which it is
        no target. None if the parameters were given.
    marks
        ``(d, d)`` equivalence class of which the DAG is a member (see
        :mod:`core.graphs.equivalence`) where only the class is known; None for a DAG.
    party_moments
        By party, the moments of its rows; None where they are unknown: under secure aggregation,
        known interventions or a privacy wrapper, after a run was resumed, and in a model that was
        loaded: files do not hold them.
    held_out_log_likelihood
        Mean log density of each party's rows under the system that is fitted to all others', in
        nats a row. Default: :meth:`fit_check` computes it from ``party_moments``; files hold it.
    lagged
        ``(p, d, d)``: ``lagged[l, i, j]`` is the effect of i at t - l - 1 on j at t. Default: the
        system has no lags.
    scores
        The normal scores of each variable, where the system is one of scores: weights, effects,
        moments and noise are then in their standard deviations. Rows that are given or returned,
        and values that :meth:`do` sets, are in the units of the data all the same; what
        :meth:`predict` returns is a conditional median. Default: there are none.

    Raises
    ------
    DataError
        If names repeat, an array has another shape or an entry that is not a finite number, a noise
        variance is negative, the weights have a directed cycle, or moments are of other variables.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.core.systems.linear import LinearModel
    >>> model = LinearModel(("x", "y"), np.array([[0, 2.0], [0, 0]]), np.zeros(2), np.ones(2))
    >>> model.do({"x": 3.0}).mean().tolist()
    [3.0, 6.0]
    """

    KIND: ClassVar[str] = "linear model"
    FORM: ClassVar[str] = "flwr-causal linear model 1"
    FIELDS: ClassVar[tuple[str, ...]] = ("weights", "intercepts", "noise_variances", "lagged")

    names: tuple[str, ...]
    weights: FloatArray
    intercepts: FloatArray
    noise_variances: FloatArray
    sample_moments: SystemMoments | None = None
    marks: BoolArray | None = None
    party_moments: Mapping[str, SampleMoments] | None = None
    held_out_log_likelihood: float | None = None
    lagged: FloatArray = field(default_factory=lambda: np.zeros((0, 0, 0)))
    scores: tuple[NormalScores, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", distinct_names(self.names))
        d, p = len(self.names), len(self.lagged)
        if not p:
            object.__setattr__(self, "lagged", np.zeros((0, d, d)))
        for name, shape in zip(self.FIELDS, ((d, d), (d,), (d,), (p, d, d)), strict=True):
            expected = f"{name} of a {self.KIND} of {d} variables must be finite numbers of shape "
            object.__setattr__(self, name, _finite(getattr(self, name), shape, expected))
        if (self.noise_variances < 0).any():
            raise DataError("noise variances must not be negative")
        if not is_acyclic(self.weights):
            raise DataError(f"the weights have a directed cycle: a {self.KIND} needs a DAG")
        rows, columns = self.sample_moments or (), self._columns
        for part in distinct(moments_of_variables(rows, 1))[0]:
            if part.names != columns:
                raise DataError(f"the moments are those of {part.names}, expected {columns}")
        if not isinstance(rows, SampleMoments) and rows and len(rows) != d:
            raise DataError(f"{len(rows)} moments for {d} variables: give one each")
        object.__setattr__(self, "marks", frozen_booleans("marks", self.marks, (d, d)))

    @property
    def graph(self) -> CausalGraph:
        """The graph of the weights; with `marks` its edges without a lag are one member."""
        return CausalGraph(self.names, self.weights, lagged=self.lagged if self.order else None)

    def __repr__(self) -> str:
        edges = self.graph.num_edges + self.graph.num_lagged_edges
        lags = f"{self.order} lags, " if self.order else ""
        return f"<LinearModel: {len(self.names)} variables, {lags}{edges} edges>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the strongest edges, and the drawing."""
        return notebook.section(repr(self), self.graph._repr_html_())

    @property
    def spectral_radius(self) -> float:
        """Largest absolute eigenvalue of the companion matrix: below 1 the system is stationary."""
        return companion_radius(self.weights, self.lagged)

    def mean(self) -> FloatArray:
        """Return the ``(d,)`` means of the variables, with lags in the stationary distribution.

        Raises
        ------
        DataError
            If the system is not stationary.
        """
        if reason := self._lacks("mean"):
            raise DataError(reason)
        system = np.eye(len(self.names)) - self.weights - self.lagged.sum(axis=0)
        return np.asarray(np.linalg.solve(system.T, self.intercepts), dtype=np.float64)

    def covariance(self) -> FloatArray:
        """Return the ``(d, d)`` covariance ``(I - W)^{-T} diag(noise) (I - W)^{-1}``.

        Raises
        ------
        ConfigError
            If the system has lags.
        """
        self._require("covariance")
        root = self._propagate(np.diag(np.sqrt(self.noise_variances)))
        return np.asarray(root.T @ root, dtype=np.float64)

    def sample(self, n: int, seed: int | None = None, *, burn_in: int | None = None) -> Any:
        """Draw independent rows, or a series of the stationary system.

        Parameters
        ----------
        n
            Number of rows; of a series its steps T, 1 or more.
        seed
            The same seed gives the same rows. Default: others in each call.
        burn_in
            Number of steps of a series that are simulated from the stationary mean and discarded.
            Default: as many as reduce the influence of the start to a millionth, more the closer
            the spectral radius is to 1. With 0 the variance grows from 0 over the first steps.

        Returns
        -------
        ndarray or DataFrame
            ``(n, d)``; with lags a frame in the order of time.

        Raises
        ------
        DataError
            If the system is not stationary.
        ConfigError
            If ``n`` or ``burn_in`` is negative, or a series has no step.
        """
        import pandas as pd

        if n < min(self.order, 1) or (burn_in is not None and burn_in < 0):
            what, least = ("steps", "1 step") if self.order else ("n", "0 rows")
            raise ConfigError(
                f"{what} is {n}, burn_in {burn_in}: give at least {least}, and a burn_in of at "
                "least 0"
            )
        mean = self.mean()
        first = self.order + (self._burn_in() if burn_in is None else burn_in)
        d, total = len(self.names), first + n
        noise = np.random.default_rng(seed).standard_normal((total, d))
        # Deviations from the mean; the first p steps are at the mean.
        x = self._propagate(noise * np.sqrt(self.noise_variances))
        x[: self.order] = 0.0
        # The past steps are stored in the order of time, the longest lag first.
        effects_of_past = self._propagate(self.lagged[::-1].reshape(-1, d))
        flat = x.reshape(-1)
        for t in range(self.order, total if self.order else 0):
            x[t] += flat[(t - self.order) * d : t * d] @ effects_of_past
        x = self._values(x[first:] + mean)
        return pd.DataFrame(x, columns=pd.Index(self.names)) if self.order else x

    def log_likelihood(self, rows: Any) -> FloatArray:
        """Return the natural logarithm of the density of each row, ``(n,)``.

        Of a series it is that of each step given the p steps before it, ``(T - p,)``.

        Raises
        ------
        DataError
            If variables are missing, the noise variance of one is 0, or a series is too short or
            has missing values.
        """
        residuals = self.residuals(rows)
        if reason := self._lacks("log_likelihood"):
            raise DataError(reason)
        # The noise terms are independent, and det(I - W) = 1 for an acyclic W.
        variances = self.noise_variances
        terms = -0.5 * (np.log(2 * np.pi * variances) + residuals**2 / variances)
        return np.asarray(terms.sum(axis=1), dtype=np.float64)

    def residuals(self, rows: Any) -> FloatArray:
        """Return the noise terms ``x_t - x_t W - sum_l x_{t-l} A_l - intercept``, ``(n - p, d)``.

        Raises
        ------
        DataError
            If variables are missing, or a series is too short or has missing values.
        """
        present, past = self._present_and_past(rows)
        return np.asarray(present - present @ self.weights - self._expected(past))

    def predict(self, rows: Any, target: str | None = None) -> FloatArray:
        """Return conditional means: of a variable given its parents, of steps given those before.

        In an equivalence class (`marks`) the parents are the variables that may be its parents in a
        DAG of the class, so that the prediction does not depend on the member.

        Parameters
        ----------
        rows
            Of a frame the target's parents are read.
        target
            Name of the variable. With lags the default is all of them, ``(T - p, d)`` from step p
            on, by the reduced form: no value of the step itself is used.

        Returns
        -------
        ndarray of shape (n,) or (T - p, d) or (T - p,)

        Raises
        ------
        DataError
            If the target is unknown or a parent is missing, or a series is too short, lacks
            variables or has missing values.
        ConfigError
            If there are neither lags nor a target.
        """
        if self.order:
            found = self._propagate(self._expected(self._present_and_past(rows)[1]))
            found = self._values(found)
            return found if target is None else found[:, place_of(self.names, target)]
        if target is None:
            raise ConfigError(f"name the variable to predict: one of {', '.join(self.names)}")
        j = place_of(self.names, target)
        slopes, level = self.weights[:, j], self.intercepts[j]
        if self.marks is not None and undirected_part(self.marks)[:, j].any():
            mean, parents = self.mean(), np.flatnonzero(self.marks[:, j])
            slopes = np.zeros(len(mean))
            slopes[parents] = regress(self.covariance(), parents, j)[0]
            level = mean[j] - mean @ slopes
        parents = np.flatnonzero(slopes)
        X = self._rows_in_units(rows, parents)
        found = np.asarray(X @ slopes[parents] + level, dtype=np.float64)
        return self.scores[j].back(found) if self.scores else found

    def do(self, values: Mapping[str, float]) -> LinearModel:
        """Return the system under an intervention that sets variables to values, in all steps.

        Parameters
        ----------
        values : mapping of str to float
            The variables that are set, in their units.

        Returns
        -------
        LinearModel
            The variables that are set have no parents and no noise. `mean`, `covariance`, `sample`
            and `predict` answer what happens; there is no density, and no standard error.

        Raises
        ------
        DataError
            If a variable is unknown, or a value is not a finite number.
        ConfigError
            If the equivalence class (`marks`) leaves open whether a variable that is set causes
            another one: see :meth:`possible_effects`.
        """
        targets = self._targets(values)
        copies: dict[str, Any]
        copies = {name: np.array(getattr(self, name)) for name in self.FIELDS}
        for own in copies.values():
            own[..., targets] = 0.0
        copies["intercepts"][targets] = [
            float(self.scores[k].of(np.array(value))) if self.scores else value
            for k, value in zip(targets, values.values(), strict=True)
        ]
        marks = after_intervention(self.marks, targets, self.names)
        return LinearModel(self.names, **copies, marks=marks, scores=self.scores)

    def response(self, impulse: Mapping[str, float], steps: int = 10) -> pd.DataFrame:
        """Return how an intervention in one step changes the mean of all variables from then on.

        Parameters
        ----------
        impulse : mapping of str to float
            By how much the variables are raised in step 0 over what they would have been, whatever
            their causes in that step; in standard deviations where the system has :attr:`scores`.
            From step 1 on they follow their causes again.
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
            If ``steps`` is negative, the system has no lags, or the equivalence class (`marks`)
            leaves open whether a variable that is raised causes another one.
        """
        import pandas as pd

        self._require("response")
        if steps < 0:
            raise ConfigError(f"steps is {steps}: expected 0, 1, 2, ...")
        raised, total = np.zeros(len(self.names)), self._propagate(np.eye(len(self.names)))
        raised[self._targets(impulse)] = list(impulse.values())
        start = self.do(impulse)._propagate(raised[None])
        changes = responses(start, total, self.lagged, steps)
        index = pd.RangeIndex(steps + 1, name="step")
        return pd.DataFrame(changes[:, 0], index=index, columns=pd.Index(self.names))

    def fit_check(self, rows: Any = None) -> FitCheck:
        """Test the independencies that the graph implies, on second moments.

        Parameters
        ----------
        rows : optional
            Rows to test on. Default: the moments of the rows to which the system was fitted. After
            a search only rows that it has not seen give p-values that can be taken at their word: a
            search removes what the same rows speak against.

        Returns
        -------
        FitCheck
            With lags of each variable at t with what comes before it, at t and in the past. With
            `rows` also their mean log density; without, that of each party's rows under the system
            that is fitted to all others', where each party's moments are known.

        Raises
        ------
        DataError
            If variables are missing, a value is no number, or a series is too short.
        ConfigError
            If there are neither rows nor moments of rows.
        """
        if rows is None:
            tests = NumberTests(self._rows, len(self.names))
            return check(tests, self._edges, self._held_out, "each party in turn")
        held_out = SampleMoments.from_rows(np.hstack(self._present_and_past(rows)), self._columns)
        found = check(NumberTests(held_out, len(self.names)), self._edges)
        return found.with_rows(float(self.log_likelihood(rows).mean()))

    def edge_tests(self) -> list[EdgeTest]:
        """Test each edge given the other parents of its effect; empty without moments of rows."""
        if self.sample_moments is None:
            return []
        return edge_tests(NumberTests(self.sample_moments, len(self.names)), self._edges)

    def with_rows_together(self, together: Sequence[FloatArray]) -> Self:
        """Return the model of rows with missing cells, see :func:`with_rows`."""
        rows = self._rows
        if isinstance(rows, SampleMoments):  # the same rows for all variables
            return replace(self, sample_moments=replace(rows, together=together[0]))
        return replace(self, sample_moments=with_rows(rows, together))

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file, without loss."""
        content: dict[str, Any] = {"format": self.FORM, "names": list(self.names)}
        content |= {name: getattr(self, name).tolist() for name in self.FIELDS}
        rows = self.sample_moments
        if isinstance(rows, SampleMoments):
            content["sample_moments"] = rows.to_plain()
        elif rows is not None:
            content["sample_moments_by_variable"] = plain_by_variable(rows)
        if self.marks is not None:
            content["marks"] = self.marks.tolist()
        if self.scores:
            content["scores"] = [asdict(one) for one in self.scores]
        if self._held_out is not None:
            content["held_out_log_likelihood"] = self._held_out
        write_record(path, "model", content)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the model of a file that :meth:`save` wrote.

        Raises
        ------
        DataError
            If the file is not JSON, has another format, lacks a field, or holds damaged numbers.
        """
        content = read_record(path, cls.KIND, cls.FORM)
        wanted = ("names", *cls.FIELDS)
        missing = [name for name in wanted if name not in content]
        if missing:
            raise DataError(
                f"{path} holds a {cls.KIND} without {', '.join(missing)}: save it again"
            )
        found = {name: content[name] for name in wanted}
        found |= {name: content.get(name) for name in ("marks", "held_out_log_likelihood")}
        with undamaged(path, "damaged normal scores"):
            found["scores"] = tuple(map(scores_from_plain, content.get("scores", ())))
        rows, by_variable = map(content.get, ("sample_moments", "sample_moments_by_variable"))
        with undamaged(path, "damaged moments"):
            found["sample_moments"] = None if rows is None else SampleMoments.from_plain(**rows)
            if by_variable is not None:
                found["sample_moments"] = from_plain_by_variable(by_variable)
        return cls(**found)

    def _response(
        self, change: FloatArray, reading: FloatArray, lag: int
    ) -> tuple[float, FloatArray]:
        d = len(self.names)
        total = self._propagate(np.eye(d))
        after = responses(total, total, self.lagged, lag)
        raised, read = change @ after, after @ reading
        # A coefficient of lag k acts in every step s of which the effect is k or more steps away.
        gradient = np.zeros((1 + self.order, d, d))
        for k in range(min(self.order, lag) + 1):
            for s in range(lag - k + 1):
                gradient[k] += np.outer(raised[s], read[lag - k - s])
        return float(raised[lag] @ reading), gradient.reshape(-1, d)

    @property
    def _columns(self) -> tuple[str, ...]:
        """Names of the columns of the moments, ``x_t`` and its lags."""
        return lagged_names(self.names, self.order)

    @property
    def _edges(self) -> BoolArray:
        """The parents of each variable among the columns of the moments, ``((1 + p) d, d)``."""
        return np.asarray(np.concatenate([self.weights, *self.lagged]) != 0)

    @cached_property
    def _held_out(self) -> float | None:
        """``held_out_log_likelihood``, computed from the parties' moments if it is not given."""
        if self.held_out_log_likelihood is not None:
            return float(self.held_out_log_likelihood)
        rows = self.sample_moments
        if not isinstance(rows, SampleMoments) or rows.together is not None:
            return None
        return left_out_log_likelihood(list((self.party_moments or {}).values()), self._edges)

    def _lacks(self, question: str) -> str:
        if question in ("total_effect", "possible_effects") and self.sample_moments is None:
            return NO_MOMENTS
        if question == "disagreement":
            return lacking_parties(self.party_moments)
        if question == "response" and not self.order:
            return "the system has no lags: do tells what happens if a variable is set"
        if question == "covariance" and self.order:
            return "the system has lags: sample draws series, whose covariances can be computed"
        if question in ("mean", "sample") and (radius := self.spectral_radius) >= 1:
            return (
                f"the system is not stationary (spectral radius {radius:.6g}, stationary below 1): "
                "it has no mean and cannot be sampled; use predict and log_likelihood"
            )
        silent = [
            name for name, own in zip(self.names, self.noise_variances, strict=True) if not own
        ]
        if question == "log_likelihood" and silent:
            return f"no density: the variables {silent} have zero noise variance"
        return ""

    @property
    def _rows(self) -> SystemMoments:
        if self.sample_moments is None:
            raise ConfigError(NO_MOMENTS)
        return self.sample_moments

    @cached_property
    def _variables(self) -> Sequence[Variable]:
        return numbers_in_units(self._columns, self.scores * (1 + self.order))

    @property
    def _class(self) -> BoolArray:
        return self.weights != 0 if self.marks is None else self.marks

    @property
    def _lists_effects(self) -> bool:
        return self.marks is not None

    def _targets(self, values: Mapping[str, float]) -> list[int]:
        """Return the places of variables that are set; a DataError if a value is no number."""
        targets = [place_of(self.names, name) for name in values]
        for name, value in values.items():
            if not isinstance(value, Real) or not np.isfinite(float(value)):
                raise DataError(f"{name} is set to {value!r}: expected a finite number")
        return targets

    def _present_and_past(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        """Return rows ``(n - p, d)`` and their lags ``(n - p, p d)``, after checks of a series."""
        X = self._rows_in_units(rows, range(len(self.names)))
        if self.order and len(X) <= self.order:
            raise DataError(
                f"the series has {len(X)} rows, but a model with {self.order} lags needs at least "
                f"{self.order + 1}"
            )
        bad = np.argwhere(~np.isfinite(X))
        if self.order and len(bad):
            row, column = (int(k) for k in bad[0])
            raise DataError(
                f"missing or infinite value of {self.names[column]} in row {row} of the series "
                f"(counted from 0; {len(bad)} such values): fill them, or cut the series there"
            )
        stacked = lagged_rows([X], self.order)
        return stacked[:, : len(self.names)], stacked[:, len(self.names) :]

    def _rows_in_units(self, rows: Any, columns: Iterable[int]) -> FloatArray:
        """Return columns of rows, in normal scores where the system is one of scores."""
        places = list(columns)
        X = named_columns(rows, [self.names[k] for k in places], self.names)
        if not self.scores:
            return X
        found = [self.scores[k].of(own) for k, own in zip(places, X.T, strict=True)]
        return np.array(found).T.reshape(X.shape)

    def _values(self, rows: FloatArray) -> FloatArray:
        """Return rows (n, d) of the system in the units of the data."""
        if not self.scores:
            return rows
        return np.column_stack(
            [one.back(own) for one, own in zip(self.scores, rows.T, strict=True)]
        )

    def _expected(self, past: FloatArray) -> FloatArray:
        """Return the sum of intercepts and lagged effects, ``(n, d)``."""
        return np.asarray(self.intercepts + past @ self.lagged.reshape(-1, len(self.names)))

    def _propagate(self, rows: FloatArray) -> FloatArray:
        """Return the solution x of ``x = rows + x W`` for every row, C-contiguous."""
        system = np.eye(len(self.names)) - self.weights
        return np.ascontiguousarray(np.linalg.solve(system.T, rows.T).T, dtype=np.float64)

    def _burn_in(self) -> int:
        """Return the number of steps after which the share of the start is ``START_REMAINS``."""
        if not self.order:
            return 0
        # Powers of a nilpotent matrix vanish after as many steps as the matrix has rows.
        nilpotent = self.order * len(self.names)
        decay = np.log(max(self.spectral_radius, START_REMAINS))
        return nilpotent + int(np.ceil(np.log(START_REMAINS) / decay))


def fit(
    moments: SampleMoments | Sequence[SampleMoments],
    adjacency: ArrayLike,
    num_variables: int | None = None,
) -> LinearModel:
    """Return the maximum-likelihood linear Gaussian system on a given graph.

    Parameters
    ----------
    moments
        Moments of the m = d (1 + p) columns of ``[x_t, x_{t-1}, ..., x_{t-p}]`` in the units of the
        data, with their means; or one for each of the d variables. Only the second moments within
        families (a variable and its parents) are read; all others may be NaN.
    adjacency
        ``(m, d)``: nonzero where a column causes one of the d variables at t, whose first d rows
        are acyclic; or ``(m, m)`` without an edge into a lagged column.
    num_variables
        d. Default: m, there are no lags.

    Raises
    ------
    DataError
        If the moments' columns are not d variables and their lags, a moment within a family is
        missing, or the adjacency has another shape, a directed cycle, or an edge into a lagged
        column.
    """
    m = moments_of_variables(moments, 1)[0].d
    d = m if num_variables is None else num_variables
    own = moments_of_variables(moments, d)
    if d < 1 or m % d:
        raise DataError(f"moments of {m} columns are not those of {d} variables and their lags")
    mask = np.asarray(adjacency) != 0
    if mask.shape not in ((m, d), (m, m)):
        raise DataError(f"the adjacency has shape {mask.shape}, expected {(m, d)} or {(m, m)}")
    if mask[:, d:].any():
        raise DataError(
            "the adjacency has an edge into a lagged column: only variables at t have causes"
        )
    mask = mask[:, :d]
    if not is_acyclic(mask[:d]):
        raise DataError("the adjacency has a directed cycle: a linear model needs a DAG")
    parts, places = distinct(own)
    for place, part in enumerate(parts):
        _require_families(part, mask & (places == place))
    stacked, variances = least_squares(own, mask)
    weights, lagged = split_blocks(stacked)
    rows = own[0] if len(parts) == 1 else tuple(own)
    return LinearModel(
        own[0].names[:d],
        weights,
        intercepts_of(own, stacked),
        variances,
        sample_moments=rows,
        lagged=lagged,
    )


def _require_families(moments: SampleMoments, mask: BoolArray) -> None:
    """Raise a DataError if a second moment within a family is missing."""
    families = np.maximum(mask, np.eye(*mask.shape))
    lacking = np.argwhere((families @ families.T > 0) & ~np.isfinite(moments.second))
    if len(lacking):
        i, j = (moments.names[k] for k in lacking[0])
        raise DataError(
            f"the second moment of {i} and {j} is missing, which the fit of this graph needs "
            f"({len(lacking)} such entries): compute it for these edges"
        )


def _finite(given: Any, shape: tuple[int, ...], expected: str) -> FloatArray:
    """Return a read-only float64 copy of finite numbers; a DataError if it has another shape."""
    expected = f"{expected}{shape}"
    try:
        array = frozen_floats(given)
    except (TypeError, ValueError) as error:
        raise DataError(f"{expected} ({error})") from error
    if array.shape != shape:
        raise DataError(f"{expected}, got shape {array.shape}")
    if not np.isfinite(array).all():
        place = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
        raise DataError(f"{expected}, got {array[place]} at {place}")
    return array


def named_columns(data: Any, wanted: Sequence[str], names: Sequence[str]) -> FloatArray:
    """Return columns of a table as an array.

    Parameters
    ----------
    data : DataFrame, or array of shape (n, len(names))
        The table. The columns of a frame are matched by name.
    wanted : sequence of str
        Names of the columns to return.
    names : sequence of str
        Names of the columns of an array.

    Raises
    ------
    DataError
        If columns are missing or do not hold numbers.
    """
    if hasattr(data, "columns"):
        present = [one_form(str(column)) for column in data.columns]
        missing = [name for name in wanted if name not in present]
        if missing:
            raise DataError(f"the data lack the variables {missing}")
        return _numbers(data.iloc[:, [present.index(name) for name in wanted]])
    X = _numbers(data)
    if X.ndim != 2 or X.shape[1] != len(names):
        raise DataError(f"expected an array of {len(names)} columns, got shape {X.shape}")
    return X[:, [names.index(name) for name in wanted]]


def _numbers(values: Any) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"the data are not all numbers ({error})") from error
