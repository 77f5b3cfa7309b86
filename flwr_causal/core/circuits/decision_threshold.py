"""The probability from which on a row is called positive, chosen from sums by macro F1.

Where one of two classes is rare, hardly any row has it as the more probable class. Parties count
their rows by class and by the log odds that a posterior gives them; the counts add up, and F1 at
every edge between the bins follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray


# Log odds between bins: .02 nats are at most half a percent of probability.
EDGES = np.linspace(-12.0, 12.0, 1201)


def log_odds_counts(log_posterior: FloatArray, classes: NDArray[np.int64]) -> FloatArray:
    """Count rows by class and log odds.

    Parameters
    ----------
    log_posterior : ndarray of float, shape (n, 2)
        Of rows that the posterior was not made of.
    classes : ndarray of int, shape (n,)

    Returns
    -------
    ndarray of float, shape (2, 1202)
    """
    odds = log_posterior[:, 1] - log_posterior[:, 0]
    bins = np.searchsorted(EDGES, odds, side="right")
    counts = np.zeros((2, len(EDGES) + 1))
    np.add.at(counts, (classes, bins), 1.0)
    return counts


def best_threshold(counts: FloatArray) -> tuple[float, float]:
    """Return the probability of the second class, and the macro F1 when called from there on.

    Parameters
    ----------
    counts : ndarray of float, shape (2, 1202)
        Added up over parties.
    """
    below = counts[:, :-1].cumsum(axis=1)  # of the rows called negative at each edge
    above = counts.sum(axis=1, keepdims=True) - below
    with np.errstate(invalid="ignore"):
        negative = 2.0 * below[0] / (2.0 * below[0] + below[1] + above[0])
        positive = 2.0 * above[1] / (2.0 * above[1] + above[0] + below[1])
    macro = (np.nan_to_num(negative) + np.nan_to_num(positive)) / 2.0
    # Of a stretch without rows in between the middle is as good as any and less chancy.
    best = np.flatnonzero(macro >= macro.max() - 1e-12)
    stretch = best[: int(np.argmax(np.append(np.diff(best) > 1, True))) + 1]
    at = int(stretch[len(stretch) // 2])
    return float(1.0 / (1.0 + np.exp(-EDGES[at]))), float(macro[at])


def chosen_classes(
    probabilities: FloatArray, threshold: float | None, target: str
) -> NDArray[np.int64]:
    """Return the class that is predicted for each row, (n,).

    Parameters
    ----------
    probabilities : ndarray of float, shape (n, classes)
    threshold : float or None
        Of two classes the second is chosen from this probability on. None: the more probable one.
    target : str
        What is predicted, for the error.

    Raises
    ------
    ConfigError
        For a threshold and another number of classes than two.
    """
    if threshold is None:
        return np.asarray(probabilities.argmax(axis=1), dtype=np.int64)
    if probabilities.shape[1] != 2:
        raise ConfigError(
            f"a threshold is for two classes, {target!r} has {probabilities.shape[1]}"
        )
    return np.asarray(probabilities[:, 1] >= threshold, dtype=np.int64)
