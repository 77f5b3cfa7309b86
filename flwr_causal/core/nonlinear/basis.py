"""Additive models in basis functions of every variable, fitted to one party's rows.

A variable has five basis functions of ``z = (x - mean) / sd``: z itself, a steep and two shifted
sigmoids, and a bump. They are centred and made orthonormal over the party's own rows, variable by
variable, so that the squared norm of the coefficients of variable i in the model of variable j is
the variance of the effect of i on j, in squared units of j. These variances can be summed over
parties with different mechanisms. :mod:`core.fedcausal.group`, and the choice of candidates in
:mod:`core.fedcausal.evidence_search`, read only the second moments of the functions
(:class:`BasisMoments`). For :mod:`core.nonlinear.additive`, where parties share their mechanisms,
:func:`basis_rows` places the functions by the mean and sd of all parties' rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# b, the number of functions of a variable. Measured: with fewer, oscillating effects are missed;
# more functions need more rows.
SIZE = 5
# Combinations of a variable's functions whose standard deviation is below this share of the largest
# one are left out: for a variable of two or three values the five functions have rank one or two.
RANK_TOLERANCE = 1e-6
# Ridge of the additive regressions in units of the functions' unit variance.
RIDGE = 1e-2


class BasisMoments(NamedTuple):
    """Second moments of a party's basis functions and variables.

    Attributes
    ----------
    gram
        ``(d b, d b)`` second moments of the functions. The diagonal blocks are identity matrices,
        with zeros where the functions of a variable are linearly dependent.
    cross
        ``(d b, d)`` second moments of the functions with the variables.
    variances
        ``(d,)`` variances of the variables.
    num_rows
        n_k.
    """

    gram: FloatArray
    cross: FloatArray
    variances: FloatArray
    num_rows: int


def raw_basis(z: FloatArray) -> FloatArray:
    """Return the five functions of standardised values of any shape, along a new last axis."""
    functions = (
        z,
        np.tanh(1.5 * z),
        np.exp(-0.5 * z * z),
        np.tanh(2.0 * (z - 1.0)),
        np.tanh(2.0 * (z + 1.0)),
    )
    return np.stack(functions, axis=-1)


def basis_rows(rows: ArrayLike, mean: ArrayLike, scale: ArrayLike, size: int = SIZE) -> FloatArray:
    """Evaluate the functions of all variables at a party's rows.

    Parameters
    ----------
    rows
        ``(n, d)`` values.
    mean, scale
        ``(d,)`` means and standard deviations of the pooled rows, the same at every party;
        functions of a variable with scale 0 are zero.
    size
        q, the number of functions of a variable, from 1 (x alone) to 5.

    Returns
    -------
    ``(n, d q)`` values, variable by variable. The first function of a variable is ``x - mean``, in
    the variable's units, so that the moments of these rows contain those of the variables.

    Raises
    ------
    ConfigError
        If ``size`` is out of range.
    DataError
        If the shapes do not fit.
    """
    if not 1 <= size <= SIZE:
        raise ConfigError(f"size is {size}: give 1 to {SIZE} functions of a variable")
    X = np.asarray(rows, dtype=np.float64)
    mu, sd = np.asarray(mean, dtype=np.float64), np.asarray(scale, dtype=np.float64)
    if X.ndim != 2 or not X.shape[1:] == mu.shape == sd.shape or not (sd >= 0).all():
        raise DataError(
            f"rows of shape {X.shape} with means {mu.shape} and scales {sd.shape}: "
            "give shapes (n, d), (d,) and (d,), and scales of at least 0"
        )
    varies = sd > 0
    values = np.where(varies, X - mu, 0.0)
    functions = raw_basis(values / np.where(varies, sd, 1.0))[..., :size]
    functions[..., 0] = values
    return np.asarray(functions.reshape(len(X), -1), dtype=np.float64)


def centred(rows: FloatArray) -> FloatArray:
    """Centre the columns of ``(n, d)`` rows; a constant column becomes exactly zero."""
    values = rows - rows.mean(axis=0)
    # A standard deviation within the rounding error counts as 0.
    varies = values.std(axis=0) > 1e-12 * np.abs(rows).max(axis=0)
    return np.where(varies, values, 0.0)


def standardised(rows: FloatArray) -> FloatArray:
    """Centre and scale the columns of ``(n, d)`` rows; a constant column becomes zero."""
    values = centred(rows)
    deviation = values.std(axis=0)
    return values / np.where(deviation > 0, deviation, 1.0)


def orthonormal_basis(rows: FloatArray) -> FloatArray:
    """Return orthonormal functions of each variable at ``(n, d)`` rows, ``(n, d, b)``.

    The functions F_i of variable i are centred, and ``F_i^T F_i / n`` is the identity, with zeros
    where they span fewer than b dimensions. Any orthonormal basis of their span serves, because
    only norms of coefficients are used.
    """
    functions = raw_basis(standardised(rows))
    functions -= functions.mean(axis=0)
    left, singular, _ = np.linalg.svd(functions.swapaxes(0, 1), full_matrices=False)
    # z has variance 1, so that the largest singular value exceeds 1 unless the column is constant.
    rank = singular > RANK_TOLERANCE * np.maximum(singular[:, :1], 1.0)
    result = np.zeros(functions.shape)
    result[..., : left.shape[2]] = (left * rank[:, None, :]).swapaxes(0, 1) * np.sqrt(len(rows))
    return result


def basis_moments(rows: FloatArray) -> BasisMoments:
    """Return the second moments of a party's ``(n_k, d)`` rows, ``n_k >= 1``.

    The rows are centred by the party's own means, because intercepts may differ between parties.
    """
    n, d = rows.shape
    functions = orthonormal_basis(rows).reshape(n, d * SIZE)
    values = centred(rows)
    return BasisMoments(
        gram=functions.T @ functions / n,
        cross=functions.T @ values / n,
        variances=(values**2).mean(axis=0),
        num_rows=n,
    )


def prior_noise_scale(moments: BasisMoments) -> float:
    """Return an estimate of the standard deviation of a party's noise without a graph.

    It is the 10 % quantile of the standard deviations of the columns that vary, in their units: a
    variable without causes varies by its noise alone, others by more. 1 if no column varies.
    """
    varying = moments.variances[moments.variances > 0]
    return float(np.sqrt(np.quantile(varying, 0.1))) if len(varying) else 1.0


def noise_scale(moments: BasisMoments, graph: BoolArray) -> float:
    """Return an estimate of the standard deviation of a party's noise given a graph.

    It is the median, over the columns that vary, of the residual standard deviation of the additive
    model on the parents, in the columns' units. The divisor of the residual variance is n less the
    number of fitted functions, at least n / 10. 1 if no column varies.
    """
    left = []
    for child in map(int, np.flatnonzero(moments.variances > 0)):
        columns = _columns(np.flatnonzero(graph[:, child]))
        gram = moments.gram[np.ix_(columns, columns)] + RIDGE * np.eye(len(columns))
        cross = moments.cross[columns, child]
        explained = cross @ np.linalg.solve(gram, cross) if len(columns) else 0.0
        share = max(1.0 - len(columns) / moments.num_rows, 0.1)
        left.append(max(moments.variances[child] - explained, 0.0) / share)
    scale = float(np.sqrt(np.median(left))) if left else 0.0
    return scale if scale > 0 else 1.0


def partial_shares(moments: BasisMoments, graph: BoolArray) -> FloatArray:
    """Return the share of x_j's variance that x_i explains beyond the other parents, ``(d, d)``.

    Entry (i, j) compares the additive model of j on its parents and i with the one on its parents
    other than i: ``1 - s^2_with / s^2_without``, where both residual variances are corrected for
    the number of fitted functions. This is a squared partial correlation for additive models. By
    the correction its mean is about 0, and single values can be negative, where j does not depend
    on i. Entries have this meaning for edges and non-edges of the graph alike.

    0 on the diagonal, for columns that do not vary, and where the party has too few rows for the
    functions.

    Parameters
    ----------
    moments
        The party's.
    graph
        ``(d, d)`` graph that states the parents.
    """
    shares = np.zeros(graph.shape)
    for child in map(int, np.flatnonzero(moments.variances > 0)):
        parents = np.flatnonzero(graph[:, child])
        others = np.flatnonzero(~graph[:, child])
        shares[others, child] = _added(moments, child, parents)[others]
        for parent in parents:
            shares[parent, child] = _added(moments, child, parents[parents != parent])[parent]
    np.fill_diagonal(shares, 0.0)
    return shares


def strengths(mean_shares: FloatArray) -> FloatArray:
    """Return the strength of every edge from the mean of the parties' :func:`partial_shares`.

    It is the root mean square, over parties weighted by their rows, of the partial correlation for
    additive models: 0 if the cause explains nothing beyond the other parents, 1 if it explains all
    that they do not. It does not depend on the units of the data.
    """
    return np.sqrt(np.clip(mean_shares, 0.0, 1.0))


def _added(moments: BasisMoments, child: int, parents: IntArray) -> FloatArray:
    """Return the :func:`partial_shares` of all variables beyond the given parents, ``(d,)``."""
    import scipy.linalg  # which takes 0.2 s to load

    d = len(moments.variances)
    columns = _columns(parents)
    functions = moments.num_rows - 1 - len(columns)
    if functions <= SIZE:
        return np.zeros(d)
    blocks = np.arange(d)
    own = moments.gram.reshape(d, SIZE, d, SIZE)[blocks, :, blocks, :]
    cross = moments.cross[:, child]
    left = moments.variances[child]
    if len(columns):
        gram = moments.gram[np.ix_(columns, columns)] + RIDGE * np.eye(len(columns))
        factor = np.linalg.cholesky(gram)
        right = np.column_stack([moments.gram[columns], cross[columns]])
        whitened = scipy.linalg.solve_triangular(factor, right, lower=True, check_finite=False)
        effect, rest = whitened[:, -1], whitened[:, :-1]
        cross = cross - rest.T @ effect
        left = left - effect @ effect
        rest = rest.reshape(len(columns), d, SIZE).transpose(1, 0, 2)
        own = own - rest.transpose(0, 2, 1) @ rest
    by_block = cross.reshape(d, SIZE)
    solved = np.linalg.solve(own + RIDGE * np.eye(SIZE), by_block[:, :, None])[:, :, 0]
    explained = np.einsum("ib,ib->i", by_block, solved)
    if not left > 0:
        return np.zeros(d)
    ratio = (left - explained) / left * functions / (functions - SIZE)
    return np.asarray(1.0 - ratio)


def _columns(variables: IntArray) -> IntArray:
    """Return the indices of some variables' functions among the ``d b``."""
    return (variables[:, None] * SIZE + np.arange(SIZE)).ravel()
