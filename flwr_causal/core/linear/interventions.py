"""Moments of rows under known interventions, mechanism by mechanism.

An intervention on a variable replaces its mechanism. Rows in which variable j is a target therefore
say nothing about the mechanism ``x_j = b_j + sum_i w_ij x_i + e_j``, and all other rows do: the
mechanism has the same weights, intercept and noise in them, whatever else is a target. Its
likelihood depends on the moments of these rows about their own mean, which are pooled over the
groups of rows with equal targets. Centring each group by its own mean would lose what shifted
means say about effects.

References
----------
Hauser, A. & Bühlmann, P. (2012). Characterization and greedy learning of interventional Markov
equivalence classes of directed acyclic graphs. JMLR 13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.model import LinearModel, regress
from flwr_causal.core.linear.moments import Moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray


def moments_by_variable(
    products: FloatArray, acted: BoolArray, num_rows: int, names: Sequence[str]
) -> list[Moments]:
    """Return for each variable the moments of the rows in which it is no target.

    Parameters
    ----------
    products : ndarray of shape (groups, 1 + d, 1 + d)
        Products of the rows [1, x] of each group of equal targets, summed and divided by n.
    acted : ndarray of bool, shape (groups, d)
        The targets of each group; no variable is a target in all groups.
    num_rows : int
        n, the number of rows of all groups.
    names : sequence of str
        The d variables.

    Returns
    -------
    list of Moments
        Of all d variables. Variables that are targets in the same groups share one object.
    """
    known: dict[bytes, Moments] = {}
    for outside in ~acted.T:
        if outside.tobytes() in known:
            continue
        total = products[outside].sum(axis=0)
        share, mean = total[0, 0], total[0, 1:] / total[0, 0]
        second = total[1:, 1:] / share - np.outer(mean, mean)
        known[outside.tobytes()] = Moments(
            max(round(num_rows * float(share)), 1), mean, second, tuple(names)
        )
    return [known[outside.tobytes()] for outside in ~acted.T]


def distinguished_pairs(acted: BoolArray) -> BoolArray:
    """Return the pairs of which some group has exactly one as a target, shape (d, d).

    The direction of an edge between them is the same in all equivalent DAGs.

    Parameters
    ----------
    acted : ndarray of bool, shape (groups, d)
        The targets of each group.
    """
    return np.asarray((acted[:, :, None] != acted[:, None, :]).any(axis=0))


def fit_mechanisms(moments: Sequence[Moments], adjacency: BoolArray) -> LinearModel:
    """Return the least-squares system of a DAG, each mechanism fitted to its own rows.

    Parameters
    ----------
    moments : sequence of Moments
        For each variable the moments of all variables over the rows in which it is no target.
    adjacency : ndarray of bool, shape (d, d)
    """
    weights = np.zeros(adjacency.shape)
    intercepts, noise = np.zeros(len(moments)), np.zeros(len(moments))
    for j, own in enumerate(moments):
        parents = np.flatnonzero(adjacency[:, j])
        weights[parents, j], noise[j] = regress(own.second, parents, j)
        intercepts[j] = own.mean[j] - own.mean @ weights[:, j]
    return LinearModel(moments[0].names, weights, intercepts, noise)
