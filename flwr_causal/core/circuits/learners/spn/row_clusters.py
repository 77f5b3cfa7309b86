"""Clusters of similar rows of a mixed table: k-means on the indicators of their states and bins.

Indicators (see `independence`) put numbers and categories on one scale, and let rows have weights.
A missing value is equally far from every state of its column. Mixtures by EM on the same indicators
made circuits of the same likelihood, in more time where they came from a library.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from threadpoolctl import ThreadpoolController

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.learners.spn.independence import Indicators


#: Steps of k-means: clusters hardly change after it.
STEPS = 12
#: Rows that the means are found from; all rows are assigned.
MOST_ROWS = 20_000


@cache
def _controller() -> ThreadpoolController:
    import sklearn.cluster  # noqa: F401 - threads can be limited once the library is loaded
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the block with one thread.

    Nodes have few rows, on which threads that wait for each other on a busy machine take many times
    as long.
    """
    with _controller().limit(limits=1):
        yield


def cluster_rows(
    coded: Indicators, row_weights: FloatArray, clusters: int, rng: np.random.Generator
) -> IntArray:
    """Return the cluster of each row.

    Parameters
    ----------
    coded : Indicators
    row_weights : ndarray of float64, shape (n,)
    clusters : int
    rng : Generator
        Draws the rows that clusters start from.

    Returns
    -------
    ndarray of int64, shape (n,)
        From 0 to ``clusters - 1``; some may be empty.
    """
    import sklearn
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    matrix, weights = coded.matrix, row_weights
    if len(matrix) <= clusters:
        return np.arange(len(matrix))
    if len(matrix) > MOST_ROWS:
        chosen = rng.choice(len(matrix), MOST_ROWS, replace=False)
        matrix, weights = matrix[chosen], weights[chosen]
    # k-means++ starts no better here. No tolerance: to compute what it is relative to takes longer
    # than the steps that it saves. Checks of the input take as long as k-means on a few rows.
    means = KMeans(
        clusters,
        init="random",
        n_init=1,
        max_iter=STEPS,
        tol=0.0,
        random_state=int(rng.integers(2**31)),
    )
    with (
        one_thread(),
        warnings.catch_warnings(),
        sklearn.config_context(assume_finite=True, skip_parameter_validation=True),
    ):
        # Fewer different rows than clusters: some stay empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        means.fit(matrix, sample_weight=weights)
    labels = means.labels_ if matrix is coded.matrix else means.predict(coded.matrix)
    return np.asarray(labels, dtype=np.int64)
