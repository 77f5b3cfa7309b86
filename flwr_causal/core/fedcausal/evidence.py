"""Gaussian-process evidence: the log density of a party's values of a variable given its parents.

The mechanism of variable j with parents P is a random function with the covariance

    k(x, x') = c sum_{i in P} x_i x'_i + a exp(- sum_{i in P} (x_i - x'_i)^2 / (2 l^2 s_i^2)),

the sum of a linear part and of one smooth function of all parents together; independent noise of
variance v is added. The covariance is scaled by v, so that n values y have the log marginal
likelihood ``log N(y; 0, v (K + I))``, the *evidence* for P. Because the function is integrated out,
further parents do not raise the evidence by themselves, no penalty has to be chosen, and the
evidence of parties with different mechanisms can be added up for one graph. (a, l) is the pair of
highest evidence among four; with ``noise="own"`` c and then a are raised where this raises the
evidence of a variable with little noise. There are two assumptions on v:

- ``noise="own"``, the default: every variable of every party has its own v, the maximiser
  ``y^T (K + I)^{-1} y / n``. Variables are standardised and all ``s_i = 1``, so that differences of
  evidence do not depend on the units of any column. The noise may have any shape, see below;
- ``noise="equal"``: the noise is Gaussian, and all variables of a party have the same, known v, the
  square of
  :func:`core.nonlinear.basis.noise_scale` given the graph at which the search starts.
  ``s_i`` is the standard deviation of the noise, or half that of the variable where this is
  larger. The assumption identifies the direction of linear Gaussian effects where it holds, and
  gives wrong directions where it does not.

Against the direction of a linear effect with noise that is not Gaussian, the conditional mean is
nonlinear, and a smooth function has higher Gaussian evidence there than the true linear one. The
true noise then is farther from Gaussian than the residuals of the false direction. With
``noise="own"`` the noise of a party is therefore Gaussian or of a fitted shape, one as probable as
the other beforehand, and up to a constant the evidence is

    log N(y; 0, v (K + I)) + log(1 + exp(n J - log n)),

with the negentropy J of the leave-one-out residuals (:func:`core.linear.negentropy.of_rows`), at
most 0.5, the gain in log density by the shape; log n is slightly more than n J is by chance where
the noise is Gaussian. Leave-one-out residuals are
``[(K + I)^{-1} y]_i / [(K + I)^{-1}]_ii``, and divided by their standard deviations they are
proportional to ``[(K + I)^{-1} y]_i / sqrt([(K + I)^{-1}]_ii)``. Unlike the residuals of the fit
they show what the parents do not predict even if the function passes close to a single row.

The Cholesky factor of n rows costs n^3/3 operations. A party with more than ``block_rows`` rows
divides them into B blocks (rows 0, B, 2B, ... are the first), B being the smallest number with at
most ``block_rows`` rows a block, and takes the covariance between blocks to be zero. All rows are
used, the blocks share (a, l) and v, and the cost is linear in n; but the posterior of the function
in one block does not use the rows of the others.

Rasmussen & Williams: Gaussian Processes for Machine Learning (2006), sections 5.4.1 and
5.4.2 (leave-one-out residuals).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri, dtrtrs

from flwr_causal.core.linear import negentropy
from flwr_causal.core.nonlinear.basis import (
    BasisMoments,
    basis_moments,
    noise_scale,
    partial_shares,
    standardised,
)
from flwr_causal.core.ties import first_smallest
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

Noise = Literal["own", "equal"]
#: Evidence, in nats, by variable and its parents.
Cache = dict[tuple[int, tuple[int, ...]], float]

# Values of l and a, found on mixed mechanisms;
# half the lengths add 3 errors on linear data, d = 20.
LENGTHS = (1.0, 2.0)
AMPLITUDES = (3.0, 10.0)
# c, the prior variance of a linear coefficient in units of the noise variance.
LINEAR = {"own": 3.0, "equal": 1.0}
# Below this share of noise in a variable's variance a slope or a function of usual size has little
# probability by the values above.
LITTLE_NOISE = 0.1
# There c and then a are also tried this many times as large.
STEP = 10.0
# Largest gain by the shape of the noise, in nats a row. Residuals have more where a few rows make
# up their variance, whatever the parents: squares of squares of Gaussian values are an example.
LARGEST_GAIN = 0.5
BLOCK_ROWS = 300


class EvidenceProblem(NamedTuple):
    """A party's rows, prepared for the evidence; they do not leave the party.

    Attributes
    ----------
    targets
        ``(n, d)`` centred values of the variables as effects: standardised, or in units of the
        noise's standard deviation.
    linear, smooth
        ``(n, d)`` values of the variables as causes: ``targets`` times ``sqrt(c)``, and divided by
        ``s_i``.
    varies
        ``(d,)`` whether a variable varies at this party; a constant one has evidence 0.
    num_blocks
        Number of blocks into which the rows are divided.
    noise
        The assumption on the noise variance.
    moments
        Moments of the basis functions, for :func:`core.nonlinear.basis.partial_shares`.
    """

    targets: FloatArray
    linear: FloatArray
    smooth: FloatArray
    varies: BoolArray
    num_blocks: int
    noise: Noise
    moments: BasisMoments


class EvidenceTables(NamedTuple):
    """A party's reply in one exchange of the search.

    Attributes
    ----------
    changes
        ``(d, d)`` change of the party's evidence, in nats, when edge i -> j is removed from the
        graph or, where it is absent, added; 0 for edges that are not requested. Summed over the
        parties.
    evidence
        ``(d,)`` evidence of each variable given its present parents, in nats; 0 for variables of
        whose parents no change is requested. Summed over the parties.
    shares
        ``(d, d)`` :func:`core.nonlinear.basis.partial_shares`, averaged over the parties with
        their numbers of rows as weights.
    """

    changes: FloatArray
    evidence: FloatArray
    shares: FloatArray


def evidence_problem(
    rows: FloatArray,
    *,
    noise: Noise = "own",
    start: BoolArray | None = None,
    block_rows: int = BLOCK_ROWS,
) -> EvidenceProblem:
    """Prepare a party's rows.

    Parameters
    ----------
    rows
        ``(n_k, d)`` rows, at least one.
    noise
        ``"own"`` or ``"equal"``.
    start
        ``(d, d)`` graph at which the search starts, the same in every exchange. Used only, and
        then required, with ``noise="equal"``.
    block_rows
        Largest number of rows whose full covariance is used, at least 1.

    Raises
    ------
    ConfigError
        If an option is out of its range, or the noise is "equal" and there is no start.
    """
    if noise not in get_args(Noise):
        raise ConfigError(f"noise must be 'own' or 'equal', not {noise!r}")
    if block_rows < 1:
        raise ConfigError(f"block_rows must be at least 1, not {block_rows}")
    moments = basis_moments(rows)
    values = standardised(rows)
    lengths = np.ones(rows.shape[1])
    if noise == "equal":
        if start is None:
            raise ConfigError("noise='equal' needs the graph at which the search starts")
        deviations = np.sqrt(moments.variances) / noise_scale(moments, start)
        values = values * deviations
        lengths = np.maximum(lengths, 0.5 * deviations)
    return EvidenceProblem(
        targets=values,
        linear=np.sqrt(LINEAR[noise]) * values,
        smooth=values / lengths,
        varies=(values != 0).any(axis=0),
        num_blocks=-(-len(rows) // block_rows),
        noise=noise,
        moments=moments,
    )


def log_evidence(problem: EvidenceProblem, child: int, parents: Sequence[int]) -> float:
    """Return the evidence of a variable given its parents, in nats.

    With ``noise="own"`` it is the log density of the standardised values, which differs from that
    of the values by a constant that does not depend on the parents; the shape of the noise is
    fitted. A constant variable has evidence 0 whatever its parents.

    Raises
    ------
    DataError
        If, with ``noise="equal"``, the noise is so small in comparison with the variables that the
        covariance is numerically singular.
    """
    return _evidence(problem, [(child, tuple(parents))])[0]


def evidence_changes(
    problem: EvidenceProblem, graph: BoolArray, wanted: BoolArray, cache: Cache | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the changes of the evidence when single edges are removed from a graph or added.

    Parameters
    ----------
    problem
        The party's rows.
    graph
        ``(d, d)`` present graph.
    wanted
        ``(d, d)`` mask of the edges whose change is computed.
    cache
        Evidence computed before, which is read and extended: the steps of a search, and two
        searches, need mostly the same entries. Default: none.

    Returns
    -------
    ``changes`` and ``evidence`` of :class:`EvidenceTables`.
    """
    cache = {} if cache is None else cache
    present, changed = {}, {}
    for child in map(int, np.flatnonzero(wanted.any(axis=0))):
        parents = set(map(int, np.flatnonzero(graph[:, child])))
        present[child] = child, tuple(sorted(parents))
        for i in map(int, np.flatnonzero(wanted[:, child])):
            changed[i, child] = child, tuple(sorted(parents ^ {i}))
    keys = dict.fromkeys([*present.values(), *changed.values()])
    unknown = [key for key in keys if key not in cache]
    cache.update(zip(unknown, _evidence(problem, unknown), strict=True))
    changes = np.zeros(graph.shape)
    evidence = np.zeros(len(graph))
    for child, key in present.items():
        evidence[child] = cache[key]
    for (i, child), key in changed.items():
        changes[i, child] = cache[key] - evidence[child]
    return changes, evidence


def fitted_noise(evidence: FloatArray, noise: Noise) -> FloatArray:
    """Return the noise variances that the evidence of variables given their parents implies.

    Of a fixed mechanism ``log N(y; ., v)`` is ``-(log(2 pi v) + 1) / 2`` a row at the best v. The
    evidence is less by what the choice of a mechanism costs, which is small with many rows.

    Parameters
    ----------
    evidence
        Of each variable, in nats a row, a mean over parties.
    noise
        The assumption on the noise variance.

    Returns
    -------
    In units of each variable's variance at its party or, with ``noise="equal"``, of the party's
    noise variance; NaN where the evidence is.
    """
    left = -2.0 * evidence - np.log(2.0 * np.pi)
    # A false reply may hold any number.
    return np.asarray(np.exp(np.clip(left - 1.0, -100.0, 100.0)) if noise == "own" else left)


def client_step(
    problem: EvidenceProblem, graph: BoolArray, wanted: BoolArray, cache: Cache | None = None
) -> EvidenceTables:
    """Compute a party's reply in one exchange; the arguments are those of `evidence_changes`."""
    changes, evidence = evidence_changes(problem, graph, wanted, cache)
    return EvidenceTables(changes, evidence, partial_shares(problem.moments, graph))


def _work(problem: EvidenceProblem) -> FloatArray:
    """Return memory for four covariances of a block, reused because allocating them is slow."""
    size = -(-len(problem.targets) // problem.num_blocks)
    return np.empty((4, size * size))


def _evidence(problem: EvidenceProblem, keys: Sequence[tuple[int, tuple[int, ...]]]) -> list[float]:
    """Return the evidence of variables given their parents, in nats."""
    work = _work(problem)
    own = problem.noise == "own"
    evidence, n = np.zeros(len(keys)), len(problem.targets)
    for k, (child, parents) in enumerate(keys):
        if own and not problem.varies[child]:
            continue
        varying = np.array([i for i in parents if problem.varies[i]], dtype=np.intp)
        evidence[k], residuals = _gaussian_evidence(problem, child, varying, work)
        if own:
            gain = min(negentropy.of_rows(residuals), LARGEST_GAIN)
            evidence[k] += np.logaddexp(0.0, n * gain - np.log(n))
    return evidence.tolist()


class _Prior(NamedTuple):
    """The covariance's parameters: l, a, and c in units of its smallest value."""

    length: float
    amplitude: float
    slope: float = 1.0


_PRIORS = [_Prior(length, amplitude) for length in LENGTHS for amplitude in AMPLITUDES]


def _gaussian_evidence(
    problem: EvidenceProblem, child: int, parents: IntArray, work: FloatArray
) -> tuple[float, FloatArray]:
    """Return the log density with Gaussian noise, and leave-one-out residuals up to a factor."""
    n, target = len(problem.targets), problem.targets[:, child]
    own = problem.noise == "own"
    constant = n * np.log(2.0 * np.pi)
    if not len(parents):
        quadratic = float(target @ target)
        fit = n * (np.log(quadratic / n) + 1.0) if own else quadratic
        return -0.5 * float(constant + fit), target

    def costs(priors: list[_Prior]) -> tuple[FloatArray, FloatArray]:
        quadratics, log_determinants = _fits(problem, child, parents, priors, work).T
        fits = n * (np.log(quadratics / n) + 1.0) if own else quadratics
        return fits + log_determinants, quadratics

    grid, quadratics = costs(_PRIORS)
    k = int(first_smallest(grid))
    best, cost = _PRIORS[k], float(grid[k])
    if not own:
        return -0.5 * float(constant + cost), target
    little = float(quadratics[k]) / n < LITTLE_NOISE
    growing = ["slope", "amplitude"] if best.amplitude == AMPLITUDES[-1] else ["slope"]
    for name in growing if little else ():
        larger = best._replace(**{name: STEP * getattr(best, name)})
        changed = float(costs([larger])[0][0])
        if changed < cost:
            best, cost = larger, changed
    return -0.5 * float(constant + cost), _residuals(problem, child, parents, best, work)


def _fits(
    problem: EvidenceProblem,
    child: int,
    parents: IntArray,
    priors: Sequence[_Prior],
    work: FloatArray,
) -> FloatArray:
    """Return ``y^T (K + I)^{-1} y`` and ``log det (K + I)`` for each prior, ``(p, 2)``."""
    fits = np.zeros((len(priors), 2))
    for rows in _blocks(problem):
        target = problem.targets[rows, child]
        for k, factor in enumerate(_factors(problem, rows, parents, priors, work)):
            whitened, _ = dtrtrs(factor, target, lower=1)
            fits[k] += whitened @ whitened, 2.0 * np.log(np.diagonal(factor)).sum()
    return fits


def _residuals(
    problem: EvidenceProblem, child: int, parents: IntArray, prior: _Prior, work: FloatArray
) -> FloatArray:
    """Return the leave-one-out residuals in units that are proportional to their deviations."""
    residuals = np.empty(len(problem.targets))
    for rows in _blocks(problem):
        (factor,) = _factors(problem, rows, parents, [prior], work)
        inverse = np.tril(dtrtri(factor, lower=1, overwrite_c=1)[0])
        solved = (inverse @ problem.targets[rows, child]) @ inverse
        residuals[rows] = solved / np.sqrt(np.einsum("ij,ij->j", inverse, inverse))
    return residuals


def _blocks(problem: EvidenceProblem) -> list[slice]:
    return [slice(block, None, problem.num_blocks) for block in range(problem.num_blocks)]


def _factors(
    problem: EvidenceProblem,
    rows: slice,
    parents: IntArray,
    priors: Sequence[_Prior],
    work: FloatArray,
) -> Iterator[FloatArray]:
    """Yield the lower Cholesky factor of ``K + I`` for each prior, all in the same memory.

    Raises
    ------
    DataError
        If ``K + I`` is numerically singular.
    """
    linear, smooth = problem.linear[rows, parents], problem.smooth[rows, parents]
    m = len(linear)
    straight, exponent, correlation, covariance = work[:, : m * m].reshape(4, m, m)
    np.matmul(linear, linear.T, out=straight)
    # -|x - x'|^2 / 2 = x x' - x x / 2 - x' x' / 2
    np.matmul(smooth, smooth.T, out=exponent)
    halves = 0.5 * np.einsum("ip,ip->i", smooth, smooth)
    exponent -= halves
    exponent -= halves[:, None]
    length = 0.0
    for prior in priors:
        if prior.length != length:
            length = prior.length
            np.multiply(exponent, length**-2, out=correlation)
            np.exp(correlation, out=correlation)
        np.multiply(correlation, prior.amplitude, out=covariance)
        covariance += straight if prior.slope == 1.0 else prior.slope * straight
        covariance.reshape(-1)[:: m + 1] += 1.0
        # The transpose of the symmetric matrix is in LAPACK's column order without a copy.
        factor, failed = dpotrf(covariance.T, lower=1, clean=0, overwrite_a=1)
        if failed:
            raise DataError(
                "the variables vary too much in comparison with the noise for noise='equal': "
                "use noise='own', or bring the columns to comparable units"
            )
        yield factor
