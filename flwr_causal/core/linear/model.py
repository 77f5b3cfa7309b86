"""Linear systems ``x_j = intercept_j + sum_i x_i weights[i, j] + e_j`` on a DAG.

Given the graph, the maximum-likelihood fit is the least-squares regression of each variable on its
parents, which needs only the moments among the variable and its parents.

The functions for checks, density, columns and files also serve systems with lags
(:mod:`core.series.model`). They take any frozen dataclass with the fields ``names``, ``weights``
among the d variables (a DAG) and ``noise_variances``, and possibly further arrays.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from flwr_causal.core.graphs import notebook
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.graph import CausalGraph, distinct_names
from flwr_causal.core.linear.moments import by_variable, distinct
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.linear.moments import Moments


KIND = "linear model"
FORMAT = f"flwr-causal {KIND} 1"
FIELDS = ("weights", "intercepts", "noise_variances")
# Parents are treated as linearly dependent if a Cholesky pivot of their correlations is below this.
SINGULAR_PIVOT = 1e-7


def regress(second: FloatArray, parents: IntArray, child: int) -> tuple[FloatArray, float]:
    """Regress one variable on its parents by least squares, from second moments.

    Parameters
    ----------
    second
        ``(d, d)`` second moments; only the entries among ``parents`` and ``child`` are read.
    parents, child
        Indices of the parents and of the variable.

    Returns
    -------
    coefficients, residual_variance
        ``(len(parents),)`` coefficients, and the mean squared residual, at least 0. If the parents
        are linearly dependent, the coefficients are those of least norm in standardised units.
    """
    variance = float(second[child, child])
    if len(parents) == 0:
        return np.zeros(0), variance
    among = second[np.ix_(parents, parents)]
    with_child = second[parents, child]
    # Standardised, so that a small pivot means linear dependence and not small units.
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


def least_squares(
    moments: Moments | Sequence[Moments], adjacency: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Regress every variable on its parents by least squares.

    Parameters
    ----------
    moments
        Moments of m variables, or one for each of the d: see
        :func:`~core.linear.moments.by_variable`. Those among a variable and its parents are read.
    adjacency
        ``(m, d)``: the parents of the first d variables.

    Returns
    -------
    weights, residual_variances
        ``(m, d)`` and ``(d,)``, see :func:`regress`.
    """
    parent_mask = np.asarray(adjacency) != 0
    weights = np.zeros(parent_mask.shape)
    variances = np.zeros(parent_mask.shape[1])
    for j, own in enumerate(by_variable(moments, len(variances))):
        parents = np.flatnonzero(parent_mask[:, j])
        weights[parents, j], variances[j] = regress(own.second, parents, j)
    return weights, variances


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
    parts, own = distinct(by_variable(moments, d))
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
    one = by_variable(moments, 1)[0]
    if mask.shape != one.second.shape:
        raise DataError(f"the adjacency has shape {mask.shape}, expected {one.second.shape}")
    if not is_acyclic(mask):
        raise DataError("the adjacency has a directed cycle: a linear model needs a DAG")
    weights, variances = least_squares(moments, mask)
    return LinearModel(one.names, weights, intercepts_of(moments, weights), variances)


@dataclass(frozen=True, eq=False, repr=False)
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
        ``(d,)`` variances of the noise terms. Fitted variances have the divisor n.

    Raises
    ------
    DataError
        If names repeat, an array has another shape or an entry that is not a finite number, a noise
        variance is negative, or the weights have a directed cycle.
    """

    names: tuple[str, ...]
    weights: FloatArray
    intercepts: FloatArray
    noise_variances: FloatArray

    def __post_init__(self) -> None:
        d = len(self.names)
        shapes = {"weights": (d, d), "intercepts": (d,), "noise_variances": (d,)}
        freeze_parameters(self, KIND, shapes)

    @property
    def graph(self) -> CausalGraph:
        """The DAG of the weights."""
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
        if target not in self.names:
            raise DataError(f"unknown variable {target!r}; known are {', '.join(self.names)}")
        j = self.names.index(target)
        parents = np.flatnonzero(self.weights[:, j])
        X = named_columns(frame, [self.names[i] for i in parents], self.names)
        return np.asarray(X @ self.weights[parents, j] + self.intercepts[j], dtype=np.float64)

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file, without loss."""
        save_parameters(path, FORMAT, self, FIELDS)

    @classmethod
    def load(cls, path: str | Path) -> LinearModel:
        """Return the model of a file that :meth:`save` wrote; a DataError if it holds none."""
        return cls(**load_parameters(path, FORMAT, KIND, FIELDS))

    def _propagate(self, rows: FloatArray) -> FloatArray:
        """Solve ``x = rows + x W`` for every row."""
        system = np.eye(len(self.names)) - self.weights
        return np.asarray(np.linalg.solve(system.T, rows.T).T, dtype=np.float64)


def freeze_parameters(system: Any, kind: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check a system's parameters and replace its arrays by read-only float64 copies.

    Parameters
    ----------
    system : dataclass
        A system with the fields ``names``, ``weights`` and ``noise_variances``.
    kind : str
        Name of the kind of system in messages, such as ``"linear model"``.
    shapes : mapping of str to tuple of int
        The shape of every array.

    Raises
    ------
    DataError
        If names repeat, an array has another shape or an entry that is not a finite number, a noise
        variance is negative, or the weights have a directed cycle.
    """
    object.__setattr__(system, "names", distinct_names(system.names))
    for field, shape in shapes.items():
        given = getattr(system, field)
        expected = (
            f"{field} of a {kind} of {len(system.names)} variables must be finite numbers of shape "
            f"{shape}"
        )
        try:
            array = np.array(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{expected} ({error})") from error
        if array.shape != shape:
            raise DataError(f"{expected}, got shape {array.shape}")
        if not np.isfinite(array).all():
            place = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
            raise DataError(f"{expected}, got {array[place]} at {place}")
        array.flags.writeable = False
        object.__setattr__(system, field, array)
    if (system.noise_variances < 0).any():
        raise DataError("noise variances must not be negative")
    if not is_acyclic(system.weights):
        raise DataError(f"the weights have a directed cycle: a {kind} needs a DAG")


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


def log_density(residuals: FloatArray, variances: FloatArray, names: Sequence[str]) -> FloatArray:
    """Return the Gaussian log density of each row, ``(n,)``, from the noise terms ``(n, d)``.

    The noise terms are independent, and ``det(I - W) = 1`` for an acyclic W. The density of a row
    is therefore the product of the densities of its noise terms.

    Raises
    ------
    DataError
        If the noise variance of a variable is 0.
    """
    silent = [name for name, variance in zip(names, variances, strict=True) if variance == 0]
    if silent:
        raise DataError(f"no density: the variables {silent} have zero noise variance")
    terms = -0.5 * (np.log(2 * np.pi * variances) + residuals**2 / variances)
    return np.asarray(terms.sum(axis=1), dtype=np.float64)


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
        present = [str(column) for column in data.columns]
        missing = [name for name in wanted if name not in present]
        if missing:
            raise DataError(f"the data lack the variables {missing}")
        return _numbers(data.iloc[:, [present.index(name) for name in wanted]])
    X = _numbers(data)
    if X.ndim != 2 or X.shape[1] != len(names):
        raise DataError(f"expected an array of {len(names)} columns, got shape {X.shape}")
    return X[:, [names.index(name) for name in wanted]]


def save_parameters(path: str | Path, form: str, system: Any, fields: Sequence[str]) -> None:
    """Write the names and the arrays ``fields`` of a system to a JSON file, without loss."""
    content = {"format": form, "names": list(system.names)}
    content |= {field: getattr(system, field).tolist() for field in fields}
    Path(path).write_text(json.dumps(content), encoding="utf-8")


def load_parameters(
    path: str | Path, form: str, kind: str, fields: Sequence[str]
) -> dict[str, Any]:
    """Return ``names`` and ``fields`` from a file of :func:`save_parameters`, not checked yet.

    Raises
    ------
    DataError
        If the file is not JSON, has another format, or lacks a field.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error})") from error
    if not isinstance(content, dict) or content.get("format") != form:
        raise DataError(f"{path} does not hold a {kind} of this version ({form})")
    wanted = ("names", *fields)
    missing = [field for field in wanted if field not in content]
    if missing:
        raise DataError(f"{path} holds a {kind} without {', '.join(missing)}: save it again")
    return {field: content[field] for field in wanted}


def _numbers(values: Any) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"the data are not all numbers ({error})") from error
