"""A fixed basis of every variable, agreed by all parties, and the regressions on its moments.

A variable enters through q functions (:func:`flwr_causal.core.nonlinear.basis.raw_basis`) whose location and
scale are the pooled mean and standard deviation. The second moments of the d q functions, summed
over parties, hold all that least squares on any additive model needs of the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_causal.core.linear.active_set import RESOLUTION
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.nonlinear.basis import RANK_TOLERANCE, SIZE, raw_basis
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# Against functions of different variables that are nearly the same: relative to unit variance.
RIDGE = 1e-3


class AdditiveProblem(NamedTuple):
    """The problem in uncorrelated functions, in units of the variables' typical deviation.

    Attributes
    ----------
    gram
        ``(d q, d q)`` second moments of the functions, variable by variable; identity (or zeros,
        where the functions of a variable are linearly dependent) on the diagonal blocks.
    cross
        ``(d q, d)`` moments of the functions with the variables.
    variances
        ``(d,)`` of the variables.
    unit
        What the variables were divided by.
    """

    gram: FloatArray
    cross: FloatArray
    variances: FloatArray
    unit: float

    @property
    def size(self) -> int:
        """Functions of a variable, q."""
        return len(self.gram) // len(self.variances)


def knots(moments: Moments) -> tuple[FloatArray, FloatArray]:
    """Where all parties' functions lie: means and standard deviations ``(d,)`` of the pooled rows.

    The scale of a constant variable is 0.

    Parameters
    ----------
    moments
        Of the variables, merged over the parties; their variances are enough.
    """
    scale = np.sqrt(np.maximum(moments.variances, 0.0))
    scale[moments.constant_columns()] = 0.0
    return np.array(moments.mean), scale


def basis_rows(rows: ArrayLike, mean: ArrayLike, scale: ArrayLike, size: int = SIZE) -> FloatArray:
    """Evaluate the functions of all variables at a party's rows.

    Parameters
    ----------
    rows
        ``(n, d)`` values.
    mean, scale
        ``(d,)`` of :func:`knots`, the same at every party; functions of a variable with scale 0 are
        zero.
    size
        Functions of a variable, q, from 1 (x itself) to 5.

    Returns
    -------
    ``(n, d q)`` values, variable by variable. The first of a variable is ``x - mean`` in its own
    units, so that the moments of these rows hold those of the variables.

    Raises
    ------
    ConfigError
        If ``size`` is out of range.
    DataError
        If the shapes do not fit.
    """
    if not 1 <= size <= SIZE:
        raise ConfigError(f"size is {size}: a variable has between 1 and {SIZE} functions")
    X = np.asarray(rows, dtype=np.float64)
    mu, sd = np.asarray(mean, dtype=np.float64), np.asarray(scale, dtype=np.float64)
    if X.ndim != 2 or not X.shape[1:] == mu.shape == sd.shape or not (sd >= 0).all():
        raise DataError(
            f"rows of shape {X.shape} with means {mu.shape} and scales {sd.shape}: "
            "give (n, d), (d,) and (d,), the scales from 0 up"
        )
    varies = sd > 0
    centred = np.where(varies, X - mu, 0.0)
    functions = raw_basis(centred / np.where(varies, sd, 1.0))[..., :size]
    functions[..., 0] = centred
    return np.asarray(functions.reshape(len(X), -1), dtype=np.float64)


def basis_moments(
    rows: ArrayLike,
    mean: ArrayLike,
    scale: ArrayLike,
    names: Sequence[str],
    size: int = SIZE,
) -> Moments:
    """Moments of :func:`basis_rows`: what a party sends, to be merged with the others'.

    Parameters are those of :func:`basis_rows`, and the d variables' names.
    """
    return Moments.from_rows(basis_rows(rows, mean, scale, size), function_names(names, size))


def function_names(names: Sequence[str], size: int = SIZE) -> tuple[str, ...]:
    """Names of the functions of all variables, in the order of :func:`basis_rows`."""
    return tuple(f"{name}[{k}]" for name in names for k in range(size))


def additive_problem(moments: Moments, num_variables: int) -> AdditiveProblem:
    """Make each variable's functions uncorrelated, with unit variance over all rows.

    Raises
    ------
    DataError
        If the moments' columns are no multiple of ``num_variables``, some are missing, or no
        variable varies.
    """
    d = num_variables
    if d < 1 or moments.d % d or not 1 <= moments.d // d <= SIZE:
        raise DataError(
            f"moments of {moments.d} functions are not those of {d} variables with the same number "
            f"of functions each, {SIZE} at most"
        )
    moments.require_complete()
    size = moments.d // d
    second = moments.second.reshape(d, size, d, size)
    blocks = second[np.arange(d), :, np.arange(d), :]
    variances = blocks[:, 0, 0].copy()
    varying = variances[variances > 0]
    if not len(varying):
        raise DataError("no variable varies: there is nothing to explain")
    unit = float(np.exp(0.5 * np.log(varying).mean()))
    # In units of each function's deviation first: the spectrum is then one of correlations.
    deviations = np.sqrt(np.maximum(np.einsum("iaa->ia", blocks), 0.0))
    inverse = np.where(deviations > 0, 1.0 / np.where(deviations > 0, deviations, 1.0), 0.0)
    values, vectors = np.linalg.eigh(blocks * inverse[:, :, None] * inverse[:, None, :])
    kept = values > RANK_TOLERANCE * values[:, -1:]
    roots = np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    # The symmetric root: it does not depend on signs and orders of eigenvectors.
    whitening = inverse[:, :, None] * np.einsum("iab,ib,icb->iac", vectors, roots, vectors)
    gram = np.einsum("iab,iajc,jce->ibje", whitening, second, whitening, optimize=True)
    cross = np.einsum("iab,iaj->ibj", whitening, second[:, :, :, 0]) / unit
    return AdditiveProblem(
        _rounded(gram.reshape(d * size, d * size)),
        _rounded(cross.reshape(d * size, d)),
        _rounded(variances / unit**2),
        unit,
    )


def least_squares(problem: AdditiveProblem, adjacency: BoolArray) -> FloatArray:
    """``(d, q, d)`` coefficients of every variable on its parents' functions, without penalty."""
    d, size = len(problem.variances), problem.size
    coefficients = np.zeros((d, size, d))
    for child in np.flatnonzero(adjacency.any(axis=0)):
        parents = np.flatnonzero(adjacency[:, child])
        columns = (parents[:, None] * size + np.arange(size)).ravel()
        gram = problem.gram[np.ix_(columns, columns)] + RIDGE * np.eye(len(columns))
        fitted = np.linalg.solve(gram, problem.cross[columns, child])
        coefficients[parents, :, child] = fitted.reshape(len(parents), size)
    return coefficients


def strengths(problem: AdditiveProblem, coefficients: FloatArray) -> FloatArray:
    """Return the effects' deviations in units of the variables explained's, ``(d, d)``."""
    deviations = np.sqrt(np.einsum("iaj,iaj->ij", coefficients, coefficients))
    own = np.sqrt(problem.variances)
    return np.asarray(deviations / np.where(own > 0, own, 1.0))


def _rounded(values: FloatArray) -> FloatArray:
    """Round to the precision at which problems are the same whatever the order of parties."""
    return np.round(values / RESOLUTION) * RESOLUTION
