"""Additive effects from the pooled moments of basis functions, in a single exchange.

Every variable is modelled as a sum of functions of its causes. Each function is a combination of q
basis functions of one variable (:func:`core.nonlinear.basis.raw_basis`), the same at all parties:
they are located and scaled by the pooled mean and standard deviation. Least squares needs only the
second moments of these d q functions, which add up over parties, so that the result equals that of
the pooled rows. The parties must share their mechanisms; for parties that do not, use
the group lasso of :mod:`core.fedcausal.group`.

With ``phi_i`` (q,) the functions of x_i, made uncorrelated with unit variance over all rows, and
coefficients ``c_ij`` (q,), the problem is to minimise

    1/2 sum_j var(x_j - sum_i c_ij^T phi_i) + sparsity sum_ij |c_ij|     so that A is acyclic,

where ``A_ij = |c_ij|^2 / var(x_j)`` is the variance of the effect of x_i in units of that of x_j.
For q = 1 this is the problem of NOTEARS with the sparsity in units of the cause's standard
deviation, because A is then similar to W * W and has the same acyclicity measures. The problem is
solved on DAGMA's central path.

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
import scipy

from flwr_causal.core.graphs.acyclicity import logdet_block
from flwr_causal.core.graphs.doubt import turning_loss as graph_turning_loss
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.limits import check_deadline
from flwr_causal.core.linear.dagma import CENTRAL_PATH
from flwr_causal.core.linear.edge_problem import INFEASIBLE, RESOLUTION
from flwr_causal.core.linear.solution import (
    check_at_least_zero,
    check_sparsity,
    edge_masks,
    edges_above,
)
from flwr_causal.core.nonlinear.basis import RANK_TOLERANCE, SIZE
from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
    from flwr_causal.core.linear.moments import SampleMoments


# Measured on the simulators of Yang et al. (2024), ER graphs with d edges. ANM-MLP at n = 512,
# three seeds, mean SHD at threshold 0.1, d = 10 / 20: factor 0.1 3.7 / 17.7, 0.25 3.3 / 7.7, 0.5
# 3.7 / 7.0, 1 4.3 / 8.0; at the best threshold of each: 2.7 / 7.0, 3.0 / 6.7, 3.3 / 6.7, 4.0 / 7.0.
SPARSITY_FACTOR = 0.5
# Measured with that factor, summed mean SHD over ANM-MLP, MIM, ADD-GP and LG, d = 10, 20, 40, six
# seeds: at n = 512 55.1 at 0.08, 43.9 at 0.1, 43.7 at 0.13, 52.3 at 0.16; at n = 2000 24.0, 25.9,
# 31.4, 40.2.
THRESHOLD = 0.1
# Ridge relative to the functions' unit variance, for nearly collinear functions of two variables.
RIDGE = 1e-3
# |c| is smoothed to sqrt(|c|^2 + SMOOTHING^2), in units of the variables' typical deviation.
SMOOTHING = 1e-3
MOST_ITERATIONS = 300
# Of likelihoods: a ridge that only keeps singular systems solvable, and the least share of a
# variable's variance that counts as noise.
LEAST_RIDGE = 1e-8
LEAST_SHARE = 1e-9


class AdditiveProblem(NamedTuple):
    """The problem in uncorrelated functions, the variables divided by a common unit.

    Attributes
    ----------
    gram
        ``(d q, d q)`` second moments of the functions, variable by variable. The diagonal blocks
        are identity matrices, with zeros for functions that depend linearly on the others.
    cross
        ``(d q, d)`` second moments of the functions with the variables.
    variances
        ``(d,)`` variances of the variables.
    unit
        The unit: the geometric mean of the variables' standard deviations.
    """

    gram: FloatArray
    cross: FloatArray
    variances: FloatArray
    unit: float

    @property
    def size(self) -> int:
        """q, the number of functions of a variable."""
        return len(self.gram) // len(self.variances)


def additive_problem(moments: SampleMoments, num_variables: int) -> AdditiveProblem:
    """Return the problem of pooled moments: uncorrelated functions of unit variance.

    Parameters
    ----------
    moments
        Moments of all parties' :func:`core.nonlinear.basis.basis_rows`, merged.
    num_variables
        d.

    Raises
    ------
    DataError
        If the number of columns is not a multiple of ``num_variables``, a moment is missing, or all
        variables are constant.
    """
    d = num_variables
    if d < 1 or moments.d % d or not 1 <= moments.d // d <= SIZE:
        raise DataError(
            f"moments of {moments.d} columns do not fit {d} variables: all need the same "
            f"number of functions, at most {SIZE}"
        )
    moments.require_complete()
    size = moments.d // d
    second = moments.second.reshape(d, size, d, size)
    blocks = second[np.arange(d), :, np.arange(d), :]
    variances = blocks[:, 0, 0].copy()
    varying = variances[variances > 0]
    if not len(varying):
        raise DataError("all variables are constant: leave constant columns out")
    unit = float(np.exp(0.5 * np.log(varying).mean()))
    # The eigenvalues are those of correlation matrices, so that RANK_TOLERANCE is free of units.
    deviations = np.sqrt(np.maximum(np.einsum("iaa->ia", blocks), 0.0))
    inverse = np.where(deviations > 0, 1.0 / np.where(deviations > 0, deviations, 1.0), 0.0)
    values, vectors = np.linalg.eigh(blocks * inverse[:, :, None] * inverse[:, None, :])
    kept = values > RANK_TOLERANCE * values[:, -1:]
    roots = np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    # The symmetric inverse root does not depend on the signs and the order of the eigenvectors.
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
    """Return the least-squares coefficients of a graph, ``(d, q, d)`` by cause and effect."""
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
    """Return the standard deviation of the effect of i on j over the one of x_j, (d, d)."""
    deviations = np.sqrt(np.einsum("iaj,iaj->ij", coefficients, coefficients))
    own = np.sqrt(problem.variances)
    return np.asarray(deviations / np.where(own > 0, own, 1.0))


def turning_loss(
    moments: SampleMoments,
    adjacency: BoolArray,
    allowed: BoolArray,
    names: Sequence[str],
) -> FloatArray:
    """Return how many nats less likely the rows are where an edge of a graph is turned, (d, d).

    The noise is Gaussian with a variance for each variable, as in CAM. An effect is linear or a sum
    of all functions of its cause, whichever has the better BIC: linear Gaussian systems, whose
    likelihood is the same in both directions, then have a loss of 0.

    Parameters
    ----------
    moments
        As for :func:`additive`.
    adjacency
        ``(d, d)`` graph, acyclic.
    allowed
        ``(d, d)`` edges that may stand.
    names
        Of the variables.
    """
    families = _Families(additive_problem(moments, len(names)), moments.n)
    return graph_turning_loss(adjacency, allowed, names, families.score)


class _Families:
    """Scores of variables given their parents, for :func:`turning_loss`."""

    def __init__(self, problem: AdditiveProblem, n: int) -> None:
        d, size = len(problem.variances), problem.size
        # The value of a variable as a combination of its uncorrelated functions, of unit length.
        values = problem.cross.reshape(d, size, d)[np.arange(d), :, np.arange(d)]
        lengths = np.linalg.norm(values, axis=1, keepdims=True)
        self.values = values / np.where(lengths > 0, lengths, 1.0)
        self.ranks = np.diagonal(problem.gram).reshape(d, size).round().sum(axis=1)
        self.problem, self.n = problem, n
        self.known: dict[tuple[int, tuple[int, ...]], float] = {}

    def score(self, child: int, parents: tuple[int, ...]) -> float:
        """Return the log-likelihood of a variable less the cost of its effects, in nats."""
        if (child, parents) not in self.known:
            self.known[child, parents] = self._best(child, parents)
        return self.known[child, parents]

    def _best(self, child: int, parents: tuple[int, ...]) -> float:
        """Return the score after one linear effect after the other has become a curve."""
        curved: frozenset[int] = frozenset()
        best = self._fitted(child, parents, curved)
        for _ in parents:
            tried = {one: self._fitted(child, parents, curved | {one}) for one in parents}
            chosen = max(tried, key=tried.__getitem__)
            if tried[chosen] <= best:
                break
            curved, best = curved | {chosen}, tried[chosen]
        return best

    def _fitted(self, child: int, parents: tuple[int, ...], curved: frozenset[int]) -> float:
        check_deadline()
        size, left, effects = self.problem.size, self.problem.variances[child], 0.0
        if not left > 0:
            return 0.0
        if parents:
            columns = (np.asarray(parents)[:, None] * size + np.arange(size)).ravel()
            used = [np.eye(size) if i in curved else self.values[i][:, None] for i in parents]
            to_used = scipy.linalg.block_diag(*used)
            gram = to_used.T @ self.problem.gram[np.ix_(columns, columns)] @ to_used
            cross = to_used.T @ self.problem.cross[columns, child]
            solved = np.linalg.solve(gram + LEAST_RIDGE * np.eye(len(gram)), cross)
            left = max(left - cross @ solved, LEAST_SHARE * left)
            effects = sum(self.ranks[i] if i in curved else 1.0 for i in parents)
        return float(-(self.n * np.log(left) + effects * np.log(self.n)) / 2)


def _rounded(values: FloatArray) -> FloatArray:
    """Round values so that they do not depend on the order in which parties were summed."""
    return np.round(values / RESOLUTION) * RESOLUTION


def default_sparsity(n: int, d: int, size: int, unit: float = 1.0) -> float:
    """Return the sparsity ``0.5 sqrt((q + 2 log d) / n)``, times the unit of the variables.

    For a non-edge, the norm of the q covariances of noise with the functions of a variable is about
    ``sqrt(q / n)`` standard deviations of the noise; the largest of d^2 such norms is at most about
    ``sqrt((q + 4 log d) / n)``. The factor is measured, see ``SPARSITY_FACTOR``.

    Parameters
    ----------
    n, d, size
        Number of rows of all parties, of variables, and of functions of a variable, q.
    unit
        Typical standard deviation of the variables.
    """
    return SPARSITY_FACTOR * unit * float(np.sqrt((size + 2.0 * np.log(max(d, 2))) / n))


@single_threaded()
def additive(
    moments: SampleMoments,
    num_variables: int,
    *,
    names: Sequence[str] | None = None,
    sparsity: float | FloatArray | None = None,
    threshold: float = THRESHOLD,
    knowledge: Knowledge | EdgeMasks | None = None,
    refit: bool = True,
    tolerance: float = 1e-7,
) -> CausalGraph:
    """Find an acyclic graph of additive effects from the pooled moments of basis functions.

    Parameters
    ----------
    moments
        Moments of all parties' :func:`core.nonlinear.basis.basis_rows`, merged.
    num_variables
        d.
    names
        Names of the variables. Default: ``x0, x1, ...``.
    sparsity
        Penalty of each effect's standard deviation, in units of the variables; one number or a
        ``(d, d)`` array. Default: :func:`default_sparsity`.
    threshold
        Edges of at most this strength are dropped. The strength of i -> j is the standard deviation
        of the effect in units of that of x_j. Default: 0.1, measured.
    knowledge
        Required and forbidden edges and tiers.
    refit
        Fit the effects of the final graph by least squares, and drop the edges whose strength then
        does not exceed the threshold.
    tolerance
        Relative decrease of the objective at which L-BFGS-B ends, at each step of the path.

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
    adjacency = edges_above(raw, threshold, required)
    weights = np.where(adjacency, raw, 0.0)
    if refit:
        weights = _refit(problem, adjacency, threshold, required)
    else:
        # The sparsity may have left a variable's required parents without an effect.
        fitted = strengths(problem, least_squares(problem, adjacency))
        weights = np.where(required.any(axis=0), fitted, weights)
    return CausalGraph(labels, weights, raw_weights=raw, required=required)


def follow_central_path(
    problem: AdditiveProblem,
    masks: EdgeMasks,
    sparsity: float | FloatArray,
    tolerance: float = 1e-7,
) -> FloatArray:
    """Return the coefficients at the end of the central path, ``(d, q, d)``.

    Parameters
    ----------
    problem
        The problem.
    masks
        Allowed edges, and required ones, which bear no sparsity penalty.
    sparsity
        In units of the variables, a number or ``(d, d)``.
    tolerance
        See :func:`additive`.
    """
    d, size = len(problem.variances), problem.size
    # The variables are sorted by their moments, so that the result does not depend on their order.
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
        solution = scipy.optimize.minimize(
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
    """Return ``mu (loss + sparsity) + h(A)`` and its gradient for ``(d q d,)`` coefficients.

    ``mu`` and ``s`` are those of DAGMA's log-determinant. Coefficients of edges that are not
    ``free`` have gradient 0 and keep their values.
    """
    check_deadline()
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
    """Return the least-squares strengths after edges below the threshold have been dropped."""
    while True:
        check_deadline()
        fitted = strengths(problem, least_squares(problem, adjacency))
        kept = adjacency & ((fitted > threshold) | required)
        if np.array_equal(kept, adjacency):
            return fitted
        adjacency = kept
