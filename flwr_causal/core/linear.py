"""Linear systems ``x_j = intercept_j + sum_i x_i weights[i, j] + e_j`` on a DAG.

Given the graph, least squares on each variable's parents is the maximum-likelihood fit, and it
needs the moments among a variable and its parents only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from flwr_causal.core.acyclicity import is_acyclic
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from flwr_causal.core.moments import Moments

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]

FORMAT = "flwr-causal linear model 1"
# Relative size of a Cholesky pivot under which parents count as linearly dependent.
SINGULAR_PIVOT = 1e-7


def regress(second: FloatArray, parents: IntArray, child: int) -> tuple[FloatArray, float]:
    """Least squares of one variable on its parents, from second moments.

    Parameters
    ----------
    second
        ``(d, d)`` second moments; only the entries among ``parents`` and ``child`` are read.
    parents, child
        Indices.

    Returns
    -------
    coefficients, residual_variance
        ``(len(parents),)`` weights, of least norm (in standardised units) where the parents are
        linearly dependent, and the mean squared residual, never below zero.
    """
    variance = float(second[child, child])
    if len(parents) == 0:
        return np.zeros(0), variance
    among = second[np.ix_(parents, parents)]
    with_child = second[parents, child]
    # in standardised units a pivot tells dependence from small units
    scale = np.sqrt(np.diagonal(among))
    scale = np.where(scale > 0, scale, 1.0)
    correlation, target = among / np.outer(scale, scale), with_child / scale
    try:
        factor = scipy.linalg.cholesky(correlation, lower=True)
        if np.diagonal(factor).min() < SINGULAR_PIVOT:
            raise np.linalg.LinAlgError
        standardized = scipy.linalg.cho_solve((factor, True), target)
    except np.linalg.LinAlgError:
        standardized = np.linalg.lstsq(correlation, target, rcond=1e-12)[0]
    coefficients = np.asarray(standardized / scale, dtype=np.float64)
    return coefficients, max(variance - float(coefficients @ with_child), 0.0)


def least_squares(moments: Moments, adjacency: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Weights ``(d, d)`` and residual variances ``(d,)`` of every variable on its parents."""
    parent_mask = np.asarray(adjacency) != 0
    weights = np.zeros((moments.d, moments.d))
    variances = np.zeros(moments.d)
    for j in range(moments.d):
        parents = np.flatnonzero(parent_mask[:, j])
        weights[parents, j], variances[j] = regress(moments.second, parents, j)
    return weights, variances


def refit(moments: Moments, adjacency: ArrayLike) -> FloatArray:
    """Weights ``(d, d)`` by least squares on each variable's parents, without any shrinkage.

    Only the moments among a variable and its parents are read; all others may be NaN.
    """
    return least_squares(moments, adjacency)[0]


def fit(moments: Moments, adjacency: ArrayLike) -> LinearModel:
    """Maximum-likelihood linear Gaussian system on a given DAG.

    Raises
    ------
    DataError
        If the adjacency has a directed cycle or another shape than the moments.
    """
    mask = np.asarray(adjacency) != 0
    if mask.shape != moments.second.shape:
        raise DataError(f"the adjacency has shape {mask.shape}, expected {moments.second.shape}")
    if not is_acyclic(mask):
        raise DataError("a linear model is fitted on a DAG, the adjacency has a directed cycle")
    weights, variances = least_squares(moments, mask)
    intercepts = moments.mean - moments.mean @ weights
    return LinearModel(moments.names, weights, intercepts, variances)


@dataclass(frozen=True, eq=False)
class LinearModel:
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
        ``(d,)`` variances of the noise terms (divisor n where they were fitted).
    """

    names: tuple[str, ...]
    weights: FloatArray
    intercepts: FloatArray
    noise_variances: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(str(name) for name in self.names))
        d = len(self.names)
        shapes = {"weights": (d, d), "intercepts": (d,), "noise_variances": (d,)}
        for field, shape in shapes.items():
            array = np.array(getattr(self, field), dtype=np.float64)
            if array.shape != shape or not np.isfinite(array).all():
                raise DataError(
                    f"{field} of a linear model of {d} variables must be finite numbers of shape "
                    f"{shape}, got shape {array.shape}"
                )
            array.flags.writeable = False
            object.__setattr__(self, field, array)
        if (self.noise_variances < 0).any():
            raise DataError("noise variances must not be negative")
        if not is_acyclic(self.weights):
            raise DataError("the weights of a linear model must form a DAG, they have a cycle")

    def mean(self) -> FloatArray:
        """``(d,)`` means of the variables."""
        return np.asarray(self._propagate(self.intercepts[None, :])[0], dtype=np.float64)

    def covariance(self) -> FloatArray:
        """``(d, d)`` covariance ``(I - W)^{-T} diag(noise) (I - W)^{-1}``."""
        root = self._propagate(np.diag(np.sqrt(self.noise_variances)))
        return np.asarray(root.T @ root, dtype=np.float64)

    def sample(self, n: int, seed: int | None = None) -> FloatArray:
        """Draw ``(n, d)`` rows; the same seed gives the same rows."""
        noise = np.random.default_rng(seed).standard_normal((n, len(self.names)))
        return self._propagate(self.intercepts + noise * np.sqrt(self.noise_variances))

    def log_likelihood(self, frame: Any) -> FloatArray:
        """Log density of each row, ``(n,)``.

        Parameters
        ----------
        frame
            A data frame with (at least) the model's variables, or an array in their order.

        Raises
        ------
        DataError
            If variables are missing, or one has no noise, so that there is no density.
        """
        silent = [self.names[j] for j in np.flatnonzero(self.noise_variances == 0)]
        if silent:
            raise DataError(f"no density: the variables {silent} have zero noise variance")
        X = _columns(frame, self.names, self.names)
        residuals = X - self.intercepts - X @ self.weights
        log_scale = np.log(2 * np.pi * self.noise_variances)
        terms: FloatArray = -0.5 * (log_scale + residuals**2 / self.noise_variances)
        return np.asarray(terms.sum(axis=1), dtype=np.float64)

    def predict(self, frame: Any, target: str) -> FloatArray:
        """Conditional mean of ``target`` given its parents, ``(n,)``.

        Parameters
        ----------
        frame
            A data frame with the target's parents, or an array of all variables in their order.
        target
            Name of the variable.

        Raises
        ------
        DataError
            If the target is unknown or a parent is missing.
        """
        if target not in self.names:
            raise DataError(f"unknown variable {target!r}; known are {', '.join(self.names)}")
        j = self.names.index(target)
        parents = np.flatnonzero(self.weights[:, j])
        X = _columns(frame, [self.names[i] for i in parents], self.names)
        return np.asarray(X @ self.weights[parents, j] + self.intercepts[j], dtype=np.float64)

    def save(self, path: str | Path) -> None:
        """Write JSON; numbers survive exactly."""
        content = {
            "format": FORMAT,
            "names": list(self.names),
            "weights": self.weights.tolist(),
            "intercepts": self.intercepts.tolist(),
            "noise_variances": self.noise_variances.tolist(),
        }
        Path(path).write_text(json.dumps(content), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> LinearModel:
        """Read what :meth:`save` wrote; a DataError if it is something else."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{path} is not JSON ({error})") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise DataError(f"{path} does not hold a linear model of this version ({FORMAT})")
        return cls(
            tuple(content["names"]),
            np.asarray(content["weights"], dtype=np.float64).reshape(len(content["names"]), -1),
            np.asarray(content["intercepts"], dtype=np.float64),
            np.asarray(content["noise_variances"], dtype=np.float64),
        )

    def _propagate(self, rows: FloatArray) -> FloatArray:
        """Solve ``x = rows + x W`` for every row."""
        system = np.eye(len(self.names)) - self.weights
        return np.asarray(np.linalg.solve(system.T, rows.T).T, dtype=np.float64)


def _columns(frame: Any, wanted: list[str] | tuple[str, ...], order: tuple[str, ...]) -> FloatArray:
    """Columns ``wanted`` of a frame (by name), or of an array whose columns are ``order``."""
    if hasattr(frame, "columns"):
        present = [str(column) for column in frame.columns]
        missing = [name for name in wanted if name not in present]
        if missing:
            raise DataError(f"the data lack the variables {missing}")
        selected = frame.iloc[:, [present.index(name) for name in wanted]]
        return np.asarray(selected, dtype=np.float64)
    X = np.asarray(frame, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != len(order):
        raise DataError(f"an array of {len(order)} columns was expected, got shape {X.shape}")
    return X[:, [order.index(name) for name in wanted]]
