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

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.moments import Moments, merge
from flwr_causal.core.linear.regression import regress
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# Each party is held out where that takes at most so many regressions, some seconds.
MOST_REGRESSIONS = 50_000
#: Below this share of the variance of all rows a variance is an error of rounding.
VARIES = 1e-12


def lacking_parties(moments: Mapping[str, Moments] | None) -> str:
    """Return why parties cannot be compared; empty where the moments of two are known."""
    if moments is not None and len(moments) > 1:
        return ""
    return (
        "what differs between parties, standard errors by party too, needs the moments of each of "
        "two parties or more, which this model does not have: run moments or lingam, or a search "
        "for hidden causes, without secure aggregation, known interventions or a privacy wrapper, "
        "and ask in the process that ran it"
    )


def known_parties(moments: Mapping[str, Moments] | None) -> Mapping[str, Moments]:
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
