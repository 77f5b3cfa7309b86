"""Linear systems ``x_j = intercept_j + sum_i x_i weights[i, j] + e_j`` on a DAG.

Given the graph, the maximum-likelihood fit is the least-squares regression of each variable on its
parents, which needs only the moments among the variable and its parents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.graphs import notebook
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.equivalence import undirected_part
from flwr_causal.core.graphs.graph import CausalGraph, pair_of, place_of
from flwr_causal.core.linear import effects, fit_check
from flwr_causal.core.linear.moments import Moments, distinct, moments_of_variables
from flwr_causal.core.linear.regression import least_squares, regress
from flwr_causal.core.linear.system import (
    LinearSystem,
    SampleMoments,
    intervened,
    log_density,
    named_columns,
)
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.effect import Effect
    from flwr_causal.core.graphs.fit_check import FitCheck


def refit(moments: Moments | Sequence[Moments], adjacency: ArrayLike) -> FloatArray:
    """Return the ``(d, d)`` least-squares weights of every variable on its parents.

    Only the moments among a variable and its parents are read; all others may be NaN.
    """
    return least_squares(moments, adjacency)[0]


def intercepts_of(moments: Moments | Sequence[Moments], weights: FloatArray) -> FloatArray:
    """Return the ``(d,)`` intercepts with which the noise has mean 0.

    Parameters
    ----------
    moments
        Moments of m variables, or one for each of the d.
    weights
        ``(m, d)``.
    """
    d = weights.shape[1]
    parts, own = distinct(moments_of_variables(moments, d))
    levels = np.array([part.mean[:d] - part.mean @ weights for part in parts])
    return np.asarray(levels[own, np.arange(d)])


def fit(moments: Moments | Sequence[Moments], adjacency: ArrayLike) -> LinearModel:
    """Return the maximum-likelihood linear Gaussian system on a given DAG.

    Parameters
    ----------
    moments
        Moments of d variables, or one for each of them.
    adjacency
        ``(d, d)`` DAG: nonzero at ``[i, j]`` where i causes j.

    Raises
    ------
    DataError
        If the adjacency has a directed cycle or another shape than the moments.
    """
    mask = np.asarray(adjacency) != 0
    one = moments_of_variables(moments, 1)[0]
    if mask.shape != one.second.shape:
        raise DataError(f"the adjacency has shape {mask.shape}, expected {one.second.shape}")
    if not is_acyclic(mask):
        raise DataError("the adjacency has a directed cycle: a linear model needs a DAG")
    weights, variances = least_squares(moments, mask)
    intercepts, rows = intercepts_of(moments, weights), sample_moments(moments)
    return LinearModel(one.names, weights, intercepts, variances, sample_moments=rows)


def sample_moments(moments: Moments | Sequence[Moments]) -> SampleMoments:
    """Return the moments of all variables, or of each variable its own."""
    own = moments_of_variables(moments, 1)
    return own[0] if len(distinct(own)[0]) == 1 else tuple(own)


@dataclass(frozen=True, eq=False, repr=False)
class LinearModel(LinearSystem):
    """A linear system with Gaussian noise on a DAG; ``weights[i, j]`` is the effect of i on j.

    The arrays are stored as read-only float64 copies.

    Attributes
    ----------
    names
        Names of the d variables.
    weights
        ``(d, d)``, zero where there is no edge; the nonzeros form a DAG.
    intercepts
        ``(d,)``, in the units of each variable.
    noise_variances
        ``(d,)`` variances of the noise terms. Fitted variances have the divisor n.
    sample_moments
        Moments of the rows to which the system was fitted, which standard errors need; unknown
        second moments are NaN. Under interventions a tuple of moments, for each variable those of
        the rows in which it is no target. None if the parameters were given.
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

    Raises
    ------
    DataError
        If names repeat, an array has another shape or an entry that is not a finite number, a noise
        variance is negative, the weights have a directed cycle, or moments are of other variables.
    """

    KIND: ClassVar[str] = "linear model"
    FIELDS: ClassVar[tuple[str, ...]] = ("weights", "intercepts", "noise_variances")

    names: tuple[str, ...]
    weights: FloatArray
    intercepts: FloatArray
    noise_variances: FloatArray
    sample_moments: SampleMoments | None = None
    marks: BoolArray | None = None
    party_moments: Mapping[str, Moments] | None = None
    held_out_log_likelihood: float | None = None

    def __post_init__(self) -> None:
        d = len(self.names)
        shapes = {"weights": (d, d), "intercepts": (d,), "noise_variances": (d,)}
        self._freeze(shapes, self.names)

    @property
    def graph(self) -> CausalGraph:
        """The DAG of the weights; with `marks` it is one member of the class."""
        return CausalGraph(self.names, self.weights)

    def __repr__(self) -> str:
        return f"<LinearModel: {len(self.names)} variables, {self.graph.num_edges} edges>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the strongest edges, and the drawing."""
        return notebook.section(repr(self), self.graph._repr_html_())

    def mean(self) -> FloatArray:
        """Return the ``(d,)`` means of the variables."""
        return np.asarray(self._propagate(self.intercepts[None, :])[0], dtype=np.float64)

    def covariance(self) -> FloatArray:
        """Return the ``(d, d)`` covariance ``(I - W)^{-T} diag(noise) (I - W)^{-1}``."""
        root = self._propagate(np.diag(np.sqrt(self.noise_variances)))
        return np.asarray(root.T @ root, dtype=np.float64)

    def sample(self, n: int, seed: int | None = None) -> FloatArray:
        """Draw ``(n, d)`` independent rows; the same seed gives the same rows."""
        noise = np.random.default_rng(seed).standard_normal((n, len(self.names)))
        return self._propagate(self.intercepts + noise * np.sqrt(self.noise_variances))

    def log_likelihood(self, frame: Any) -> FloatArray:
        """Return the natural logarithm of the density of each row, ``(n,)``.

        Parameters
        ----------
        frame
            A data frame with the model's variables, in any order and possibly with other columns,
            or an ``(n, d)`` array in the model's order.

        Raises
        ------
        DataError
            If variables are missing, or the noise variance of one is 0.
        """
        X = named_columns(frame, self.names, self.names)
        residuals = X - self.intercepts - X @ self.weights
        return log_density(residuals, self.noise_variances, self.names)

    def predict(self, frame: Any, target: str) -> FloatArray:
        """Return the conditional mean of ``target`` given its parents, ``(n,)``.

        In an equivalence class (`marks`) these are the variables that may be its parents in a DAG
        of the class, so that the prediction does not depend on the member.

        Parameters
        ----------
        frame
            A data frame with the target's parents, or an ``(n, d)`` array of all variables in the
            model's order.
        target
            Name of the variable.

        Raises
        ------
        DataError
            If the target is unknown or a parent is missing.
        """
        j = place_of(self.names, target)
        slopes, level = self.weights[:, j], self.intercepts[j]
        if self.marks is not None and undirected_part(self.marks)[:, j].any():
            mean, parents = self.mean(), np.flatnonzero(self.marks[:, j])
            slopes = np.zeros(len(mean))
            slopes[parents] = regress(self.covariance(), parents, j)[0]
            level = mean[j] - mean @ slopes
        parents = np.flatnonzero(slopes)
        X = named_columns(frame, [self.names[i] for i in parents], self.names)
        return np.asarray(X @ slopes[parents] + level, dtype=np.float64)

    def total_effect(
        self, cause: str, effect: str, *, level: float = 0.95, by_party: bool = False
    ) -> Effect | list[Effect]:
        """Return how much the effect changes on average for each unit by which the cause is raised.

        The estimate is the coefficient of the cause in the regression of the effect on the cause
        and the optimal adjustment set (:meth:`CausalGraph.adjustment_set`), with its classical
        standard error. If the moments of that regression are unknown (``notears-admm`` asks for few
        moments), or the rows differ between variables (interventions), it is the sum over directed
        paths of the products of their weights. Without a directed path it is exactly 0.

        Parameters
        ----------
        cause, effect : str
            Two different variables.
        level : float, default 0.95
            Of the confidence interval.
        by_party : bool, default False
            Whether the standard error allows for differences between parties in effects and noise
            (clustered by party; of few parties it is itself uncertain, and intervals are wide).

        Returns
        -------
        Effect or list of Effect
            In units of the effect per unit of the cause. If the model stands for an equivalence
            class (`marks`), the list of :meth:`possible_effects`.

        Raises
        ------
        DataError
            If a variable is unknown, rows are too few, or the cause is a linear function of the
            adjustment set.
        ConfigError
            If the model has no moments of rows, or with `by_party` none of two parties or more, or
            the level is not between 0 and 1.
        """
        rows, edges = self._required_moments(), self.weights != 0
        if self.marks is not None and (isinstance(rows, Moments) or (self.marks != edges).any()):
            return self.possible_effects(cause, effect, level=level, by_party=by_party)
        i, j = pair_of(self.names, cause, effect)
        blocks = self._blocks(by_party)
        found = effects.by_optimal_set(blocks, edges, (i, j), effects.RAISED, level)
        if found is None:
            total = self._propagate(np.eye(len(self.names)))
            gradient = np.outer(total[i], total[:, j])
            found = effects.along_paths(blocks, float(total[i, j]), gradient, edges, level)
        return found if self.marks is None else [found]

    def fit_check(self, rows: Any = None) -> FitCheck:
        """Test the independencies that the graph implies, on second moments.

        Parameters
        ----------
        rows : DataFrame, or array of shape (n, d); optional
            Rows to test on, with the model's variables. Default: the moments of the rows to which
            the system was fitted. After a search only rows that it has not seen give p-values that
            can be taken at their word: a search removes what the same rows speak against.

        Returns
        -------
        FitCheck
            With `rows` also their mean log density; without, that of each party's rows under the
            system that is fitted to all others', where each party's moments are known.

        Raises
        ------
        DataError
            If variables are missing, or a value is no number.
        ConfigError
            If there are neither rows nor moments of rows.
        """
        if rows is None:
            return fit_check.check(self._required_moments(), self._edges, self._held_out)
        held_out = Moments.from_rows(named_columns(rows, self.names, self.names), self.names)
        return fit_check.on_rows(held_out, self._edges, self.log_likelihood(rows))

    def do(self, values: Mapping[str, float]) -> LinearModel:
        """Return the system under an intervention that sets variables to values.

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
        weights, intercepts, noise = intervened(self, values, self.weights)
        marks = self._marks_after(values)
        return LinearModel(self.names, weights, intercepts, noise, marks=marks)

    def _propagate(self, rows: FloatArray) -> FloatArray:
        """Solve ``x = rows + x W`` for every row."""
        system = np.eye(len(self.names)) - self.weights
        return np.asarray(np.linalg.solve(system.T, rows.T).T, dtype=np.float64)


def implied_noise(weights: FloatArray, variances: FloatArray) -> FloatArray:
    """Return the noise variances with which a system has given variances.

    They need no covariances: with ``T = (I - W)^{-1}`` the variance of variable j is
    ``sum_i T[i, j]^2 noise_i``.

    Parameters
    ----------
    weights
        ``(d, d)`` W, of a DAG.
    variances
        ``(d,)`` of the variables.

    Returns
    -------
    ndarray of shape (d,)
        Not positive where the weights explain more than a variable's variance.
    """
    total = np.linalg.inv(np.eye(len(weights)) - weights)
    return np.asarray(np.linalg.solve((total**2).T, variances))
