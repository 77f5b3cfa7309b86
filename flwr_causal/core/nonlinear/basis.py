"""Additive models on a small basis of every variable, fitted to one party's rows.

A variable enters through five functions of ``z = (x - mean) / sd``: itself, a steep and two shifted
sigmoids, and a bump. They are centred and made orthonormal over the party's own rows, variable by
variable, so that the squared norm of a block of coefficients is the variance of that effect, in
squared units of the variable that is explained. Parties with different mechanisms can add up these
variances. The second moments of the functions (`BasisMoments`) are all that
:mod:`core.fedcausal.group`, and the choice of candidates in :mod:`core.fedcausal.evidence_search`,
need of the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.linalg

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# b, the number of functions of a variable. Measured: fewer miss waves, more cost rows.
SIZE = 5
# Directions of a block whose standard deviation is below this share of the largest one are left
# out: on a variable of two or three values the five functions have rank one or two.
RANK_TOLERANCE = 1e-6
# Ridge of the additive regressions, relative to the functions' unit variance.
RIDGE = 1e-2


class BasisMoments(NamedTuple):
    """Second moments of a party's basis functions and variables.

    Attributes
    ----------
    gram
        ``(d b, d b)`` moments of the functions, identity (or zero) on the diagonal blocks.
    cross
        ``(d b, d)`` moments of the functions with the variables.
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
    """Evaluate the five functions at standardised values; a last axis of length 5 is added."""
    functions = (
        z,
        np.tanh(1.5 * z),
        np.exp(-0.5 * z * z),
        np.tanh(2.0 * (z - 1.0)),
        np.tanh(2.0 * (z + 1.0)),
    )
    return np.stack(functions, axis=-1)


def centred(rows: FloatArray) -> FloatArray:
    """Centre the columns of ``(n, d)`` rows; a constant column becomes exactly zero."""
    values = rows - rows.mean(axis=0)
    # the rounding error of a constant column is no variation
    varies = values.std(axis=0) > 1e-12 * np.abs(rows).max(axis=0)
    return np.where(varies, values, 0.0)


def standardised(rows: FloatArray) -> FloatArray:
    """Centre and scale the columns of ``(n, d)`` rows; a constant column becomes zero."""
    values = centred(rows)
    deviation = values.std(axis=0)
    return values / np.where(deviation > 0, deviation, 1.0)


def orthonormal_basis(rows: FloatArray) -> FloatArray:
    """Return ``(n, d, b)`` functions, centred and orthonormal over the rows of each variable.

    ``1/n F_i^T F_i`` is the identity, but for zeros where the functions of variable i do not span
    b dimensions. Which orthonormal functions these are does not matter: only norms of blocks of
    coefficients are used.
    """
    functions = raw_basis(standardised(rows))
    functions -= functions.mean(axis=0)
    left, singular, _ = np.linalg.svd(functions.swapaxes(0, 1), full_matrices=False)
    # z has variance 1, so that 1 is below the largest singular value unless the column is constant
    rank = singular > RANK_TOLERANCE * np.maximum(singular[:, :1], 1.0)
    result = np.zeros(functions.shape)
    result[..., : left.shape[2]] = (left * rank[:, None, :]).swapaxes(0, 1) * np.sqrt(len(rows))
    return result


def basis_moments(rows: FloatArray) -> BasisMoments:
    """Return the moments of a party's ``(n_k, d)`` rows, ``n_k >= 1``.

    The rows are centred by the party's own means: intercepts are part of its mechanisms.
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
    """Return a first guess of the scale of a party's noise, without a graph, in raw units.

    It is the 10 % quantile of the standard deviations of the varying columns: root causes vary by
    their noise alone, other variables by more. 1 if no column varies.
    """
    varying = moments.variances[moments.variances > 0]
    return float(np.sqrt(np.quantile(varying, 0.1))) if len(varying) else 1.0


def noise_scale(moments: BasisMoments, graph: BoolArray) -> float:
    """Return the scale of a party's noise given a graph, in raw units; 1 if no column varies.

    It is the median over the varying columns of the residual standard deviation of the additive
    model on the parents, with n reduced by the number of fitted functions (by at most nine tenths).
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
    """Share of an effect's variance that a cause explains beyond the other parents, ``(d, d)``.

    Entry (i, j) compares the additive model of j on its parents and i with the one on its parents
    other than i: ``1 - s^2_with / s^2_without``, where both variances are corrected for the number
    of functions fitted. So it is a squared partial correlation for additive models, adjusted to
    have mean about 0 (and so at times negative) where i has nothing to do with j. Edges and
    non-edges of the graph have the same meaning.

    It is 0 on the diagonal, for columns that do not vary, and where the party has too few rows for
    the functions.
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
    """Return the readable strength of every edge from the mean of the parties' shares.

    The root mean square over parties (weighted by their rows) of the partial correlation that
    `partial_shares` generalises: 0 for none, 1 if the cause determines what the other parents
    leave open. It has no unit and does not change with the units of the data.
    """
    return np.sqrt(np.clip(mean_shares, 0.0, 1.0))


def _added(moments: BasisMoments, child: int, parents: IntArray) -> FloatArray:
    """Return `partial_shares` of all variables i, ``(d,)``, beyond the given parents."""
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
    """Positions of some variables' functions among the ``d b``."""
    return (variables[:, None] * SIZE + np.arange(SIZE)).ravel()
