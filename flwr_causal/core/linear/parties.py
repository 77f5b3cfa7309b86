"""How parties differ from each other, from the second moments of each.

The score of a regression in one party, ``sum over its rows of z (y - b z)``, follows from its
moments. Scores vary between parties by sampling, and further where parties differ in effects or
noise. The sandwich estimator takes them as they are (standard errors that are clustered by party).

References
----------
Liang, K.-Y. & Zeger, S. L. (1986). Longitudinal data analysis using generalized linear models.
Biometrika 73.
Cameron, A. C. & Miller, D. L. (2015). A practitioner's guide to cluster-robust inference. Journal
of Human Resources 50.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.graphs.fit_check import holm
from flwr_causal.core.linear.moments import Moments, merge
from flwr_causal.core.linear.regression import regress
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# Each party is held out where that takes at most so many regressions, some seconds.
MOST_REGRESSIONS = 50_000
#: Below this share of the variance of all rows a variance is an error of rounding.
VARIES = 1e-12
#: The edge is in a party's own rows above this t statistic in the sign that all rows have.
SUPPORTED = 1.96


def lacking_parties(moments: Mapping[str, Moments] | None) -> str:
    """Return why nothing can be said of each party; empty where the moments of two are known."""
    if moments is not None and len(moments) > 1:
        return ""
    return (
        "what differs between parties, standard errors by party too, needs the moments of each of "
        "two parties or more, which this model does not have: run moments or lingam, or a search "
        "for hidden causes, without secure aggregation, known interventions or a privacy wrapper, "
        "and ask in the process that ran it"
    )


def known_parties(moments: Mapping[str, Moments] | None) -> Mapping[str, Moments]:
    """Return the moments of each party's rows; a ConfigError unless those of two are known."""
    if reason := lacking_parties(moments):
        raise ConfigError(reason)
    return moments or {}


class Difference(NamedTuple):
    """A number of one party, and the same number of the other parties together.

    Attributes
    ----------
    party
        Name.
    what
        "effect", "mean" or "spread".
    cause, effect
        The edge; of a mean or a spread ``effect`` is the variable and ``cause`` is empty.
    value, others
        The coefficient, the mean or the standard deviation in the party's rows, and in those of all
        others together.
    z
        The difference in units of its standard error; of spreads that of their logarithms.
    supports
        Of an effect: "yes" if the party's own rows say that it is not 0 and has the sign that it
        has in all rows, "opposite" if the other sign, "no" if neither. Else empty.
    """

    party: str
    what: str
    cause: str
    effect: str
    value: float
    others: float
    z: float
    supports: str


def party_scores(
    parties: Sequence[Moments],
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


def others_of(parties: Sequence[Moments]) -> list[Moments]:
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
        found.append(Moments(round(left), level + shift, second, part.names))
    return found


def left_out_log_likelihood(parties: Sequence[Moments], edges: BoolArray) -> float | None:
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


def disagreement(parties: Mapping[str, Moments], edges: BoolArray) -> pd.DataFrame:
    """Compare each party with all others: effects along edges, means, standard deviations.

    Parameters
    ----------
    parties
        Moments of each party's rows, by name; two or more.
    edges
        ``(m, d)``: the parents of the first d columns.

    Returns
    -------
    DataFrame
        The rows of :class:`Difference`, the largest ``|z|`` first, with ``corrected``: the p-value
        after Holm's correction for the number of rows. Effects are left out where a party has no
        more rows than the regression has variables, or a moment is unknown; means where all are the
        same, as if the method subtracts them; columns where they are constant at a party, or at all
        others.
    """
    import pandas as pd
    from scipy.special import ndtr

    names, every = tuple(parties), list(parties.values())
    without = others_of(every)
    rows, left = (np.array([float(p.n) for p in parts]) for parts in (every, without))
    means, other_means = (np.stack([p.mean for p in parts]) for parts in (every, without))
    own, others = (np.stack([p.second for p in parts]) for parts in (every, without))
    total = merge([every[0], without[0]]).second
    for second in (own, others):
        flat = np.diagonal(second, axis1=1, axis2=2) <= VARIES * np.diagonal(total)
        second[flat[:, :, None] | flat[:, None, :]] = 0.0
    columns = every[0].names
    found: list[Difference] = []
    # Those of each party, of all others of each, and of all.
    every_second = np.concatenate([own, others, total[None]])
    every_rows = np.concatenate([rows, left, [np.inf]])
    for j in range(edges.shape[1]):
        parents = np.flatnonzero(edges[:, j])
        found += _effects(names, columns, j, parents, every_second, every_rows)
    for j in range(edges.shape[1]):
        found += _levels(names, columns[j], means[:, j], other_means[:, j], (own, others), j, rows)
    table = pd.DataFrame(found, columns=list(Difference._fields))
    p_values = 2 * ndtr(-table["z"].abs().to_numpy(dtype=np.float64))
    table["corrected"] = holm(p_values)
    order = np.argsort(-table["z"].abs().to_numpy(dtype=np.float64), kind="stable")
    return table.iloc[order].reset_index(drop=True)


def _effects(
    names: Sequence[str],
    columns: Sequence[str],
    child: int,
    parents: IntArray,
    second: FloatArray,
    rows: FloatArray,
) -> list[Difference]:
    if not len(parents):
        return []
    effects, errors = _regressions(second, rows, parents, child)
    (one, two), pooled = np.split(effects[:-1], 2), effects[-1]
    own_errors, other_errors = np.split(errors[:-1], 2)
    error = np.sqrt(own_errors**2 + other_errors**2)
    # Of a variable that is a function of its parents there is no error.
    z = np.divide(one - two, error, out=np.full_like(error, np.nan), where=error > 0)
    varies = (second[:-1, child, child] != 0).reshape(2, -1).all(axis=0)
    seen = np.isfinite(z) & varies[:, None]
    supports = np.where(one * pooled > 0, "yes", "opposite")
    supports[~(np.abs(one) > SUPPORTED * own_errors)] = "no"
    found = (*np.nonzero(seen), *(values[seen] for values in (one, two, z, supports)))
    return [
        Difference(names[k], "effect", columns[parents[place]], columns[child], *values)
        for k, place, *values in zip(*(part.tolist() for part in found), strict=True)
    ]


def _regressions(
    second: FloatArray, rows: FloatArray, parents: IntArray, child: int
) -> tuple[FloatArray, FloatArray]:
    """Return coefficients and classical standard errors in each of K tables, ``(K, parents)``.

    NaN where there are too few rows or the parents are linearly dependent.
    """
    count = len(parents)
    among = second[:, parents[:, None], parents]
    with_child = second[:, parents, child]
    scale = np.sqrt(np.diagonal(among, axis1=1, axis2=2))
    degrees = rows - count - 1
    usable = (degrees >= 1) & (scale > 0).all(axis=1) & np.isfinite(among).all(axis=(1, 2))
    usable &= np.isfinite(with_child).all(axis=1)
    units = scale[:, :, None] * scale[:, None, :]
    units[~usable] = 1.0
    correlation = np.broadcast_to(np.eye(count), among.shape).copy()
    correlation[usable] = (among / units)[usable]
    usable &= np.linalg.eigvalsh(correlation)[:, 0] > 1e-10
    correlation[~usable] = np.eye(count)
    inverse = np.linalg.inv(correlation) / units
    coefficients = np.einsum("kij,kj->ki", inverse, with_child)
    residual = second[:, child, child] - (coefficients * with_child).sum(axis=1)
    variance = np.maximum(residual, 0)[:, None] * np.diagonal(inverse, axis1=1, axis2=2)
    errors = np.sqrt(variance / np.where(usable, degrees, np.nan)[:, None])
    return np.where(usable[:, None], coefficients, np.nan), errors


def _levels(
    names: Sequence[str],
    column: str,
    means: FloatArray,
    other_means: FloatArray,
    second: tuple[FloatArray, FloatArray],
    j: int,
    rows: FloatArray,
) -> list[Difference]:
    """Compare means (Welch) and standard deviations (as of Gaussian rows) of one column."""
    variances, others = (part[:, j, j] for part in second)
    left = rows.sum() - rows
    known = np.flatnonzero((rows > 1) & (left > 1) & (variances > 0) & (others > 0))
    variances, others, one, two = variances[known], others[known], rows[known] - 1, left[known] - 1
    gaps = (means - other_means)[known] / np.sqrt(variances / one + others / two)
    ratios = np.log(variances / others) / 2 / np.sqrt(0.5 / one + 0.5 / two)
    levels = (means[known], other_means[known], gaps)
    spreads = (np.sqrt(variances), np.sqrt(others), ratios)
    same_level = bool((np.ptp(means) ** 2 <= VARIES * variances).all())
    kinds = {"spread": spreads} if same_level else {"mean": levels, "spread": spreads}
    return [
        Difference(names[k], kind, "", column, own, other, z, "")
        for kind, parts in kinds.items()
        for k, own, other, z in zip(known.tolist(), *(part.tolist() for part in parts), strict=True)
    ]
