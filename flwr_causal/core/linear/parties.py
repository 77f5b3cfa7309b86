"""How parties differ from each other, from the second moments of each.

The score of a regression in one party, ``sum over its rows of z (y - b z)``, follows from its
moments. Scores vary between parties by sampling, and further where parties differ in effects or
noise. The sandwich estimator takes them as they are (standard errors that are clustered by party).

Each party's numbers are compared with those of the parties that agree with each other. A number,
such as an effect, is known at each party with a standard error. The numbers of parties that agree
vary by their standard errors, or more where these are too small: of rows that are not Gaussian, of
indicators, of series. How much more is seen in the variation among the parties that agree, shrunk
towards that of all numbers of the kind (Smyth 2004).

Which parties agree does not depend on their numbers of rows: the parties that are farthest from the
weighted mean of the others are left out one after the other, down to more than half of the parties,
and come back if they are as close to the rest as its members are. A party of most rows is so
compared with the others as each of them is with it.

References
----------
Liang, K.-Y. & Zeger, S. L. (1986). Longitudinal data analysis using generalized linear models.
Biometrika 73.
Cameron, A. C. & Miller, D. L. (2015). A practitioner's guide to cluster-robust inference. Journal
of Human Resources 50.
Cochran, W. G. (1954). The combination of estimates from different experiments. Biometrics 10.
Smyth, G. K. (2004). Linear models and empirical Bayes methods for assessing differential
expression in microarray experiments. Statistical Applications in Genetics and Molecular Biology 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import digamma, polygamma

from flwr_causal.core.linear.moments import SampleMoments, merge
from flwr_causal.core.linear.regression import regress
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# Each party is held out where that takes at most so many regressions, some seconds.
MOST_REGRESSIONS = 50_000
#: Below this share of the variance of all rows a variance is an error of rounding.
VARIES = 1e-12


def lacking_parties(moments: Mapping[str, SampleMoments] | None) -> str:
    """Return why parties cannot be compared; empty where the moments of two are known."""
    if moments is not None and len(moments) > 1:
        return ""
    return (
        "what differs between parties, standard errors by party too, needs the moments of each of "
        "two parties or more, which this model does not have: run moments or lingam, or a search "
        "for hidden causes, without secure aggregation, known interventions or a privacy wrapper, "
        "and ask in the process that ran it"
    )


def known_parties(moments: Mapping[str, SampleMoments] | None) -> Mapping[str, SampleMoments]:
    """Return the moments of each party's rows; a ConfigError unless those of two are known.

    Moments of which missing cells are expected by the rows of all parties have no errors by party.
    """
    if reason := lacking_parties(moments):
        raise ConfigError(reason)
    if any(part.together is not None for part in (moments or {}).values()):
        raise ConfigError(
            "standard errors by party need rows without missing cells, which are expected here by "
            "the rows of all parties: run with missing_values='drop'"
        )
    return moments or {}


def party_scores(
    parties: Sequence[SampleMoments],
    level: FloatArray,
    regressors: IntArray,
    outcome: tuple[IntArray, FloatArray],
    coefficients: FloatArray,
) -> FloatArray:
    """Return each party's score of a regression on all rows, shape (K, number of regressors).

    Parameters
    ----------
    parties
        Moments of each party's rows.
    level
        ``(m,)`` means of all rows, about which the regression is.
    regressors
        Columns.
    outcome
        Columns, and the weights by which their sum is regressed.
    coefficients
        Of the regression.
    """
    own, weights = outcome
    scores = []
    for part in parties:
        shift = part.mean - level
        about = part.second + np.outer(shift, shift)
        left = about[np.ix_(regressors, own)] @ weights
        scores.append(part.n * (left - about[np.ix_(regressors, regressors)] @ coefficients))
    return np.array(scores)


def clustered_error(terms: FloatArray, num_rows: int, num_regressors: int) -> float:
    """Return the standard error of an estimate from what each party contributes to it.

    Parameters
    ----------
    terms
        ``(K,)``, which sum to 0, K >= 2: the scores times the derivative of the estimate.
    num_rows, num_regressors
        Of the regression; the correction for small samples is the usual one.
    """
    count = len(terms)
    factor = count / (count - 1) * (num_rows - 1) / max(num_rows - 1 - num_regressors, 1)
    return float(np.sqrt(factor * (terms**2).sum()))


def others_of(parties: Sequence[SampleMoments]) -> list[SampleMoments]:
    """Return for each of K >= 2 parties the moments of the rows of all others."""
    rows = np.array([float(part.n) for part in parties])
    level = rows @ np.stack([part.mean for part in parties]) / rows.sum()
    about = [part.second + np.outer(part.mean - level, part.mean - level) for part in parties]
    total = np.tensordot(rows, np.stack(about), axes=1)
    found = []
    for part, own in zip(parties, about, strict=True):
        left = rows.sum() - part.n
        shift = -part.n * (part.mean - level) / left
        second = (total - part.n * own) / left - np.outer(shift, shift)
        found.append(SampleMoments(round(left), level + shift, second, part.names))
    return found


def left_out_log_likelihood(parties: Sequence[SampleMoments], edges: BoolArray) -> float | None:
    """Return the mean log density of each party's rows under the system of all others' rows.

    Parameters
    ----------
    parties
        Moments of each party's rows.
    edges
        ``(m, d)``: the parents of the first d columns.

    Returns
    -------
    float or None
        In nats a row. None where a moment is unknown, or a variable is a function of its parents;
        of fewer than two parties, and where it takes more than :data:`MOST_REGRESSIONS`.
    """
    if not 1 < len(parties) <= MOST_REGRESSIONS / edges.shape[1]:
        return None
    total, count = 0.0, 0
    least = VARIES * np.diagonal(merge(parties).second)
    for own, others in zip(parties, others_of(parties), strict=True):
        for j in range(edges.shape[1]):
            family = np.array([j, *np.flatnonzero(edges[:, j])], dtype=np.intp)
            coefficients, variance = regress(others.second, family[1:], j)
            contrast = np.array([1.0, *-coefficients])
            gap = float(contrast @ (own.mean - others.mean)[family])
            squares = float(contrast @ own.second[np.ix_(family, family)] @ contrast) + gap**2
            if not (variance > least[j] and np.isfinite(squares)):
                return None
            total -= own.n / 2 * (np.log(2 * np.pi * variance) + squares / variance)
        count += own.n
    return float(total / count)


# A party that was left out comes back up to this square of its distance in standard errors, in
# units of the variation among the others.
COMES_BACK = 12.0
#: Steps in which parties come back; two suffice, as the variation is then that of most parties.
STEPS = 3
# Fewest degrees of freedom of the variation that all numbers of a kind have in common, and where it
# cannot be known because there are few numbers.
LEAST_PRIOR, MOST_PRIOR = 2.0, 1e3


class Compared(NamedTuple):
    """Each party's numbers and the mean of the agreeing parties, each of shape (R, K).

    Attributes
    ----------
    z
        The difference in standard errors, as of a normal distribution. NaN where it is unknown.
    others
        The mean of the others that agree, each weighted by the inverse of its squared error.
    error
        The standard error of the difference.
    agree
        Which parties agree about the number.
    """

    z: FloatArray
    others: FloatArray
    error: FloatArray
    agree: BoolArray


def compared(
    values: FloatArray, variances: FloatArray, degrees: FloatArray, *, exact: bool = False
) -> Compared:
    """Compare each party's numbers with the mean of the agreeing parties.

    Parameters
    ----------
    values : ndarray of shape (R, K)
        R numbers of one kind at K >= 2 parties; NaN where unknown.
    variances : ndarray of shape (R, K)
        Squares of their standard errors.
    degrees : ndarray of shape (R, K)
        Degrees of freedom of these errors.
    exact : bool, default False
        Whether the standard errors hold as they are, as those of means: all parties may then differ
        from each other.
    """
    known = np.isfinite(values) & (variances > 0) & np.isfinite(variances)
    weights = np.where(known, 1.0 / np.where(known, variances, 1.0), 0.0)
    values = np.where(known, values, 0.0)
    agree = _agreeing(values, weights, known)
    inside = np.where(agree, weights, 0.0)
    gap, squares, left = _left_out(values, weights, inside)
    variance = np.where(known, 1.0 / np.where(known, weights, 1.0), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_rest = 1.0 / left
        error = np.sqrt(variance + of_rest)
        # Welch: the others together have the degrees of all of them.
        among = np.where(agree, degrees, 0.0)
        other_degrees = among.sum(axis=1, keepdims=True) - among
        total = (variance + of_rest) ** 2
        total /= variance**2 / degrees + of_rest**2 / np.maximum(other_degrees, 1.0)
        z = _as_normal(gap / error, total)
    factor = np.ones_like(z)
    if not exact:
        factor, prior = _variation(values, inside, agree, squares)
        z = _as_normal(z / np.sqrt(factor), prior)
    unknown = ~known | ~(left > 0)
    z[unknown] = np.nan
    return Compared(z, values - gap, error * np.sqrt(factor), agree)


def _left_out(
    values: FloatArray, weights: FloatArray, inside: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return each party's distance from the mean of the others, its square in errors, and weights.

    ``inside`` are the weights of those that make up the mean, 0 of others. The square is by how
    much Cochran's Q of the party and these others falls without the party.
    """
    own_sum = inside * values
    left = inside.sum(axis=1, keepdims=True) - inside
    rest = own_sum.sum(axis=1, keepdims=True) - own_sum
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = values - rest / left
        squares = gap**2 * weights * left / (weights + left)
    usable = (weights > 0) & (left > 0)
    return np.where(usable, gap, np.nan), np.where(usable, squares, 0.0), left


def _dispersion(values: FloatArray, inside: FloatArray) -> FloatArray:
    """Return Cochran's Q of each row, shape (R,)."""
    total = inside.sum(axis=1)
    mean = (inside * values).sum(axis=1) / np.where(total > 0, total, 1.0)
    return np.asarray((inside * (values - mean[:, None]) ** 2).sum(axis=1))


def _agreeing(values: FloatArray, weights: FloatArray, known: BoolArray) -> BoolArray:
    """Return which parties agree about each number, more than half of those that know it."""
    agree, count = known.copy(), known.sum(axis=1)
    _, squares, _ = _left_out(values, weights, np.where(known, weights, 0.0))
    unlike = np.flatnonzero((squares > COMES_BACK).any(axis=1) & (count > 2))
    if not len(unlike):
        return agree
    values, weights, known, count = values[unlike], weights[unlike], known[unlike], count[unlike]
    inside, rows = known.copy(), np.arange(len(unlike))
    for step in range((known.shape[1] - 1) // 2):
        _, squares, _ = _left_out(values, weights, np.where(inside, weights, 0.0))
        worst = np.where(inside, squares, -1.0).argmax(axis=1)
        inside[rows, worst] &= step >= (count - 1) // 2
    for _ in range(STEPS):
        now = np.where(inside, weights, 0.0)
        _, squares, _ = _left_out(values, weights, now)
        spread = _dispersion(values, now) / np.maximum(inside.sum(axis=1) - 1, 1)
        limit = COMES_BACK * np.maximum(spread, 1.0)
        inside |= known & (squares <= limit[:, None])
    agree[unlike] = inside
    return agree


def _variation(
    values: FloatArray, inside: FloatArray, agree: BoolArray, squares: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the variation of the agreeing parties in errors, and its degrees of freedom.

    Both of shape (R, K): of party k without k. The variation is at least 1.
    """
    members = agree.sum(axis=1)
    total = _dispersion(values, inside)
    center, prior = _common(total, members - 1.0)
    own = np.where(agree, squares, 0.0)  # Q falls by it without the party
    degrees = np.maximum(members[:, None] - agree - 1.0, 0.0)
    rest = np.maximum(total[:, None] - own, 0.0)
    factor = (prior * center + rest) / (prior + degrees)
    return np.maximum(factor, 1.0), prior + degrees


def _common(total: FloatArray, degrees: FloatArray) -> tuple[float, float]:
    """Return the variation that all numbers have in common and its degrees of freedom.

    The moments of the logarithm of a scaled F distribution (Smyth 2004, section 6.2).
    """
    # Of two parties the variation is their difference itself.
    seen = (degrees > 1) & (total > 0)
    if not seen.any():
        return 1.0, MOST_PRIOR
    half = degrees[seen] / 2
    logs = np.log(total[seen] / degrees[seen]) - digamma(half) + np.log(half)
    more = logs.var(ddof=1) - polygamma(1, half).mean() if len(logs) > 1 else 0.0
    prior = MOST_PRIOR
    if more > 0:
        prior = min(max(2 * _trigamma_inverse(float(more)), LEAST_PRIOR), MOST_PRIOR)
    center = np.exp(logs.mean() + digamma(prior / 2) - np.log(prior / 2))
    return max(float(center), 1.0), prior


def _trigamma_inverse(value: float) -> float:
    """Return x > 0 with trigamma(x) = value, by Newton's method (Smyth 2004, appendix)."""
    x = 0.5 + 1.0 / value
    for _ in range(50):
        of_x = float(polygamma(1, x))
        step = of_x * (1 - of_x / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-8 * x:
            break
    return x


def _as_normal(t: FloatArray, degrees: FloatArray) -> FloatArray:
    """Return the normal number of the same p-value as Student's t, nearly (Wallace 1959)."""
    factor = (8 * degrees + 1) / (8 * degrees + 3)
    return np.asarray(np.sign(t) * factor * np.sqrt(degrees * np.log1p(t**2 / degrees)))
