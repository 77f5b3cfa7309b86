"""Gaussian-process evidence: how probable a party's values of a variable are, given its parents.

The mechanism of variable j with parents P is a random function with the covariance

    k(x, x') = c sum_{i in P} x_i x'_i + a exp(- sum_{i in P} (x_i - x'_i)^2 / (2 l^2 s_i^2)),

a linear part and one smooth function of all parents together, and independent noise. Covariance
and noise are in proportion to the noise variance v, so that n values y have the log marginal
likelihood ``log N(y; 0, v (K + I))``, the *evidence* for P. The function is integrated out: more
parents fit no better by themselves, there is no penalty to choose, and parties with whatever
mechanisms can add up their evidence for one graph. (a, l) is the best of four pairs. There are two
assumptions on v:

- ``noise="own"``, the default: every variable of every party has its own v, the maximiser
  ``y^T (K + I)^{-1} y / n``; variables are standardised and all ``s_i = 1``: the evidence's
  differences do not change with the units of any column;
- ``noise="equal"``: all variables of a party have the same, known v, the square of
  :func:`core.nonlinear.basis.noise_scale` given the graph at which the search starts;
  ``s_i`` is the larger of the noise's and half the variable's standard deviation. This identifies
  the direction of linear Gaussian effects where the assumption holds, and misleads where it does
  not.

The Cholesky factor of n rows costs n^3/3. The rows of a party with more than ``block_rows`` of them
are divided into the smallest number B of blocks that keeps the limit (rows 0, B, 2B, ... are the
first block), and the covariance between blocks is taken to be zero: every row counts, (a, l) and v
are common to the blocks, and the cost grows as n. The price is that one block does not learn the
function from another.

Rasmussen & Williams: Gaussian Processes for Machine Learning (2006), section 5.4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtrs

from flwr_causal.core.nonlinear.basis import (
    BasisMoments,
    basis_moments,
    noise_scale,
    partial_shares,
    standardised,
)
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

Noise = Literal["own", "equal"]
#: Evidence by variable and its parents.
Known = dict[tuple[int, tuple[int, ...]], float]

# l and a. Measured on mixed mechanisms; half the lengths cost 3 edges on linear data at d = 20.
LENGTHS = (1.0, 2.0)
AMPLITUDES = (3.0, 10.0)
# c, the prior variance of a linear coefficient in units of the noise variance.
LINEAR = {"own": 3.0, "equal": 1.0}
BLOCK_ROWS = 300


class EvidenceProblem(NamedTuple):
    """A party's rows, prepared for the evidence; nothing of this leaves the party.

    Attributes
    ----------
    targets
        ``(n, d)`` centred values of the variables as effects: standardised, or in units of the
        noise's standard deviation.
    linear, smooth
        ``(n, d)`` values of the variables as causes: ``targets`` times ``sqrt(c)``, and divided by
        ``s_i``.
    varies
        ``(d,)`` whether a variable varies at this party. One that does not has evidence 0.
    num_blocks
        Number of blocks into which the rows are divided.
    noise
        The assumption on the noise variance.
    moments
        Moments of the basis functions, for the additive shares.
    """

    targets: FloatArray
    linear: FloatArray
    smooth: FloatArray
    varies: BoolArray
    num_blocks: int
    noise: Noise
    moments: BasisMoments


class Tables(NamedTuple):
    """What a party sends in one exchange of the search.

    Attributes
    ----------
    changes
        ``(d, d)`` change of the party's evidence, in nats, when edge i -> j is taken out of the
        graph or added to it; 0 where the mask is False. Summed over the parties.
    evidence
        ``(d,)`` evidence of each variable given its present parents, in nats; 0 where no change of
        its parents is in the mask. Summed over the parties.
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
        ``(d, d)`` graph at which the search starts, the same in every exchange; needed (and used)
        for ``noise="equal"`` only.
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
    """Return the evidence of a variable given its parents, in nats: a log density of its values.

    With own noise these are the standardised values (their units add a constant that no change of
    parents touches); a variable that does not vary has evidence 0 whatever its parents.

    Raises
    ------
    DataError
        If equal noise is so small beside the variables that the covariance is numerically singular.
    """
    return _log_evidence(problem, child, np.asarray(parents, dtype=np.intp), _work(problem))


def evidence_changes(
    problem: EvidenceProblem, graph: BoolArray, wanted: BoolArray, known: Known | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the change of the evidence by single edges: present ones removed, others added.

    Parameters
    ----------
    problem
        The party's rows.
    graph
        ``(d, d)`` present graph.
    wanted
        ``(d, d)`` mask of the entries to compute; all others are 0.
    known
        A cache of evidence by variable and parents, which is read and extended. Two searches, and
        the steps of one search, need mostly the same entries.

    Returns
    -------
    ``changes`` and ``evidence`` of `Tables`.
    """
    work, known = _work(problem), {} if known is None else known

    def evidence_of(child: int, parents: BoolArray) -> float:
        key = child, tuple(map(int, np.flatnonzero(parents)))
        if key not in known:
            known[key] = _log_evidence(problem, child, np.flatnonzero(parents), work)
        return known[key]

    changes = np.zeros(graph.shape)
    evidence = np.zeros(len(graph))
    for child in map(int, np.flatnonzero(wanted.any(axis=0))):
        parents = graph[:, child]
        present = evidence[child] = evidence_of(child, parents)
        for i in np.flatnonzero(wanted[:, child]):
            changed = parents.copy()
            changed[i] = not parents[i]
            changes[i, child] = evidence_of(child, changed) - present
    return changes, evidence


def client_step(
    problem: EvidenceProblem, graph: BoolArray, wanted: BoolArray, known: Known | None = None
) -> Tables:
    """Compute a party's tables for one exchange of the search; see :func:`evidence_changes`.

    The cache ``known`` only saves time: a party may lose it between exchanges.
    """
    changes, evidence = evidence_changes(problem, graph, wanted, known)
    return Tables(changes, evidence, partial_shares(problem.moments, graph))


def _work(problem: EvidenceProblem) -> FloatArray:
    """Allocate four covariances of a block once: allocation costs as much as filling them."""
    size = -(-len(problem.targets) // problem.num_blocks)
    return np.empty((4, size * size))


def _log_evidence(
    problem: EvidenceProblem, child: int, parents: IntArray, work: FloatArray
) -> float:
    n = len(problem.targets)
    if problem.noise == "own" and not problem.varies[child]:
        return 0.0
    parents = parents[problem.varies[parents]]
    if len(parents):
        fits = np.zeros((len(LENGTHS) * len(AMPLITUDES), 2))
        for block in range(problem.num_blocks):
            rows = slice(block, None, problem.num_blocks)
            fits += _block_fits(
                problem.targets[rows, child],
                problem.linear[rows, parents],
                problem.smooth[rows, parents],
                work,
            )
        quadratic, log_determinant = fits.T
    else:
        target = problem.targets[:, child]
        quadratic, log_determinant = np.array([target @ target]), np.zeros(1)
    fit = n * (np.log(quadratic / n) + 1.0) if problem.noise == "own" else quadratic
    return float(-0.5 * (n * np.log(2.0 * np.pi) + fit + log_determinant).min())


def _block_fits(
    target: FloatArray, linear: FloatArray, smooth: FloatArray, work: FloatArray
) -> FloatArray:
    """``y^T (K + I)^{-1} y`` and ``log det (K + I)`` for every (l, a), ``(4, 2)``."""
    m = len(target)
    straight, exponent, correlation, covariance = work[:, : m * m].reshape(4, m, m)
    np.matmul(linear, linear.T, out=straight)
    straight.reshape(-1)[:: m + 1] += 1.0
    # -|x - x'|^2 / 2 = x x' - x x / 2 - x' x' / 2
    np.matmul(smooth, smooth.T, out=exponent)
    halves = 0.5 * np.einsum("ip,ip->i", smooth, smooth)
    exponent -= halves
    exponent -= halves[:, None]
    fits = []
    for length in LENGTHS:
        np.multiply(exponent, length**-2, out=correlation)
        np.exp(correlation, out=correlation)
        for amplitude in AMPLITUDES:
            np.multiply(correlation, amplitude, out=covariance)
            covariance += straight
            # symmetric, so that its transpose is the same matrix in LAPACK's order
            factor, failed = dpotrf(covariance.T, lower=1, clean=0, overwrite_a=1)
            if failed:
                raise DataError(
                    "the variables vary too much beside the noise for noise='equal': "
                    "use noise='own', or put the columns in comparable units"
                )
            whitened, _ = dtrtrs(factor, target, lower=1)
            fits.append((whitened @ whitened, 2.0 * np.log(np.diagonal(factor)).sum()))
    return np.array(fits)
