"""One graph from the summed moments of a basis: additive effects in a single exchange of sums.

Every variable is taken to be a sum of functions of its causes, each in the span of q functions of
one variable (:func:`core.nonlinear.basis.raw_basis`) that all parties use alike: their
location and scale are the pooled mean and standard deviation. The second moments of these d q
functions, summed over parties, hold all that least squares needs of the rows, so the answer is that
of the pooled rows exactly. Parties must share their mechanisms; where they do not,
the sums mix them (use the group lasso of :mod:`core.fedcausal.group`).

With ``phi_i`` the functions of x_i, made uncorrelated with unit variance over all rows, and
coefficients ``c_ij`` (q,), it is to minimise

    1/2 sum_j var(x_j - sum_i c_ij^T phi_i) + sparsity sum_ij |c_ij|     so that A is acyclic,

where ``A_ij = |c_ij|^2 / var(x_j)`` is the share of the variance of x_j that varies with x_i. For
q = 1 this is NOTEARS' problem with a penalty in units of the cause's deviation: A is then similar
to W * W, on which alone the acyclicity measures depend. It is solved on DAGMA's central path.

References
----------
Buehlmann, Peters, Ernest: CAM: causal additive models, high-dimensional order search and penalized
regression, Annals of Statistics 2014.
Zheng, Dan, Aragam, Ravikumar, Xing: Learning sparse nonparametric DAGs, AISTATS 2020 (section 4.2,
basis expansions).
Bello, Aragam, Ravikumar: DAGMA, NeurIPS 2022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import minimize

from flwr_causal.core.graphs.acyclicity import logdet_block
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.dagma import CENTRAL_PATH
from flwr_causal.core.linear.edge_problem import INFEASIBLE, RESOLUTION
from flwr_causal.core.linear.solution import (
    check_at_least_zero,
    check_sparsity,
    edge_masks,
    standing_edges,
)
from flwr_causal.core.nonlinear.basis import RANK_TOLERANCE, SIZE, raw_basis
from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
    from flwr_causal.core.linear.moments import Moments


# Measured on the simulators of Yang et al. (2024), ER graphs with d edges. ANM-MLP at n = 512,
# three seeds, mean SHD at threshold 0.1, d = 10 / 20: factor 0.1 3.7 / 17.7, 0.25 3.3 / 7.7, 0.5
# 3.7 / 7.0, 1 4.3 / 8.0; at the best threshold of each: 2.7 / 7.0, 3.0 / 6.7, 3.3 / 6.7, 4.0 / 7.0.
SPARSITY_FACTOR = 0.5
# Measured with that factor, summed mean SHD over ANM-MLP, MIM, ADD-GP and LG, d = 10, 20, 40, six
# seeds: at n = 512 55.1 at 0.08, 43.9 at 0.1, 43.7 at 0.13, 52.3 at 0.16; at n = 2000 24.0, 25.9,
# 31.4, 40.2.
THRESHOLD = 0.1
# Against functions of different variables that are nearly the same: relative to unit variance.
RIDGE = 1e-3
# Norms are rounded off below this share of the variables' typical deviation.
SMOOTHING = 1e-3
MOST_ITERATIONS = 300


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


def default_sparsity(n: int, d: int, size: int, unit: float = 1.0) -> float:
    """Sparsity ``0.5 sqrt((q + 2 log d) / n)`` in units of the variables' typical deviation.

    The norm of a group's q noise covariances is about ``sqrt(q / n)`` deviations of the noise, and
    the largest of d^2 such norms ``sqrt((q + 4 log d) / n)`` at most.
    """
    return SPARSITY_FACTOR * unit * float(np.sqrt((size + 2.0 * np.log(max(d, 2))) / n))


@single_threaded()
def additive(
    moments: Moments,
    num_variables: int,
    *,
    names: Sequence[str] | None = None,
    sparsity: float | FloatArray | None = None,
    threshold: float = THRESHOLD,
    knowledge: Knowledge | EdgeMasks | None = None,
    refit: bool = True,
    tolerance: float = 1e-7,
) -> CausalGraph:
    """Find an acyclic graph of additive effects from the merged moments of a basis.

    Parameters
    ----------
    moments
        Of all parties' :func:`basis_rows`, merged.
    num_variables
        d.
    names
        Of the variables; default ``x0, x1, ...``.
    sparsity
        Penalty of each effect's standard deviation, in units of the variables; one number or a
        ``(d, d)`` array. Default: :func:`default_sparsity`.
    threshold
        Edges of at most this strength are dropped. The strength is the standard deviation of the
        effect in units of that of the variable that is explained.
    knowledge
        Required and forbidden edges and tiers.
    refit
        Give the effects of the final graph their least-squares coefficients, and drop the edges
        that do not exceed the threshold with them.
    tolerance
        Relative decrease of the objective at which a stage ends.

    Returns
    -------
    A DAG. ``weights[i, j]`` is the strength of i -> j, which has no sign; ``raw_weights`` holds the
    strengths of the penalised solution before the threshold.

    Raises
    ------
    DataError
        If the moments do not fit the number of variables.
    ConfigError
        If an option is out of range or the knowledge contradicts itself or the names.
    """
    check_at_least_zero(threshold=threshold, tolerance=tolerance)
    problem = additive_problem(moments, num_variables)
    if sparsity is None:
        sparsity = default_sparsity(moments.n, num_variables, problem.size, problem.unit)
    check_sparsity(sparsity, num_variables)
    labels = tuple(names) if names is not None else tuple(f"x{j}" for j in range(num_variables))
    masks = edge_masks(knowledge, labels)
    coefficients = follow_central_path(problem, masks, sparsity, tolerance)
    raw = strengths(problem, coefficients)
    required = np.asarray(masks.required, dtype=bool)
    adjacency = standing_edges(raw, threshold, required)
    weights = np.where(adjacency, raw, 0.0)
    if refit:
        weights = _refit(problem, adjacency, threshold, required)
    else:
        # A required effect has a strength also where the penalty left none.
        fitted = strengths(problem, least_squares(problem, adjacency))
        weights = np.where(required.any(axis=0), fitted, weights)
    return CausalGraph(labels, weights, raw_weights=raw, required=required)


def follow_central_path(
    problem: AdditiveProblem,
    masks: EdgeMasks,
    sparsity: float | FloatArray,
    tolerance: float = 1e-7,
) -> FloatArray:
    """``(d, q, d)`` coefficients at the end of the path, in units of ``problem.unit``."""
    d, size = len(problem.variances), problem.size
    # In an order of the data's own, so that permuting the variables does not even change rounding.
    order = np.argsort((problem.cross**2).sum(axis=0), kind="stable")
    functions = (order[:, None] * size + np.arange(size)).ravel()
    ordered = problem._replace(
        gram=problem.gram[np.ix_(functions, functions)],
        cross=problem.cross[np.ix_(functions, order)],
        variances=problem.variances[order],
    )
    free = np.asarray(masks.allowed, dtype=np.bool_) & (problem.variances > 0)
    penalty = np.where(masks.required, 0.0, np.asarray(sparsity) / problem.unit)
    grid = np.ix_(order, order)
    unknown = np.zeros(d * size * d)
    for mu, s in CENTRAL_PATH:
        solution = minimize(
            objective,
            unknown,
            args=(ordered, free[grid], penalty[grid], mu, s),
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": MOST_ITERATIONS,
                "maxfun": 4 * MOST_ITERATIONS,
                "ftol": tolerance,
                "gtol": 1e-6 * max(mu, 1e-2),
            },
        )
        unknown = solution.x
    coefficients = np.zeros((d, size, d))
    coefficients[order[:, None], :, order] = unknown.reshape(d, size, d).swapaxes(1, 2)
    return coefficients


def objective(
    values: FloatArray,
    problem: AdditiveProblem,
    free: BoolArray,
    penalty: FloatArray,
    mu: float,
    s: float,
) -> tuple[float, FloatArray]:
    """``mu (loss + sparsity) + h(A)`` and its gradient, both for ``(d q d,)`` coefficients.

    Coefficients of edges that are not ``free`` have gradient 0 and so stay what they are.
    """
    d, size = len(problem.variances), problem.size
    coefficients = values.reshape(d, size, d)
    squares = np.einsum("iaj,iaj->ij", coefficients, coefficients)
    inverse_variances = np.where(free, 1.0, 0.0) / np.where(
        problem.variances > 0, problem.variances, 1.0
    )
    h, inverse = logdet_block(squares * inverse_variances, s)
    if inverse is None:
        return INFEASIBLE, np.zeros_like(values)
    flat = coefficients.reshape(d * size, d)
    product = problem.gram @ flat + RIDGE * flat
    loss = 0.5 * (problem.variances.sum() + np.vdot(flat, product - 2.0 * problem.cross))
    norms = np.sqrt(squares + SMOOTHING**2)
    price = float((penalty * (norms - SMOOTHING)).sum())
    slope = mu * penalty / norms + 2.0 * inverse.T * inverse_variances
    gradient = mu * (product - problem.cross).reshape(d, size, d) + coefficients * slope[:, None, :]
    gradient *= free[:, None, :]
    return float(mu * (loss + price) + h), gradient.ravel()


def _refit(
    problem: AdditiveProblem, adjacency: BoolArray, threshold: float, required: BoolArray
) -> FloatArray:
    """Least-squares strengths of a graph without the edges that are too weak then."""
    while True:
        fitted = strengths(problem, least_squares(problem, adjacency))
        kept = adjacency & ((fitted > threshold) | required)
        if np.array_equal(kept, adjacency):
            return fitted
        adjacency = kept
