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

from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.ties import whole
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray


def columns_by_rows(acted: BoolArray) -> list[tuple[BoolArray, IntArray]]:
    """Return the variables whose mechanisms the same rows inform about.

    Parameters
    ----------
    acted : ndarray of bool, shape (groups, d)
        The targets of each group of rows.

    Returns
    -------
    list of (ndarray of bool, ndarray of int)
        The groups in which these variables are no targets, shape (groups,), and the variables.
    """
    patterns = [outside.tobytes() for outside in ~acted.T]
    return [
        (~acted[:, patterns.index(one)], np.array([j for j, p in enumerate(patterns) if p == one]))
        for one in dict.fromkeys(patterns)
    ]


def rows_by_variable(counts: FloatArray, acted: BoolArray) -> list[FloatArray]:
    """Return for each variable the sums of counts over the groups in which it is no target.

    Parameters
    ----------
    counts : ndarray of shape (groups, ...)
    acted : ndarray of bool, shape (groups, d)
        The targets of each group.

    Returns
    -------
    list of ndarray
        Variables that are targets in the same groups share one object.
    """
    found: dict[int, FloatArray] = {}
    for outside, variables in columns_by_rows(acted):
        found |= dict.fromkeys(variables.tolist(), counts[outside].sum(axis=0))
    return [found[j] for j in range(acted.shape[1])]


def moments_by_variable(
    products: FloatArray,
    acted: BoolArray,
    num_rows: int,
    names: Sequence[str],
    variables: Sequence[str] | None = None,
    shifted: BoolArray | None = None,
) -> list[SampleMoments]:
    """Return for each variable the moments of the rows in which it is no target.

    Parameters
    ----------
    products : ndarray of shape (groups, 1 + d, 1 + d)
        Products of the rows [1, x] of each group of equal targets, summed and divided by n; x is
        the d variables, or their blocks of columns, and possibly their lags.
    acted : ndarray of bool, shape (groups, d)
        The targets of each group.
    num_rows : int
        n, the number of rows of all groups.
    names : sequence of str
        The columns of x.
    variables : sequence of str, optional
        The d variables. Default: the first d columns.
    shifted : ndarray of bool, shape (groups, d), optional
        Variables, no targets, whose mechanisms have a level of their own in a group: the group's
        rows are moved to the mean of the others. Default: none.

    Returns
    -------
    list of SampleMoments
        Of the columns of x, for each of the d variables. Variables that are targets in the same
        groups share one object.

    Raises
    ------
    DataError
        If a variable is a target in all rows.
    """
    found: dict[int, SampleMoments] = {}
    moved = np.zeros_like(acted) if shifted is None else shifted
    # A pattern is of both: variables of one pattern share one object.
    for both, own_variables in columns_by_rows(np.concatenate([acted, moved])):
        outside, level = both[: len(acted)], ~both[len(acted) :]
        total = about_others(products, outside, level).sum(axis=0)
        if not total[0, 0] > 0:
            name = (variables or names)[own_variables[0]]
            raise DataError(
                f"column {name!r} is the target of an intervention in all rows that arrived: no "
                "row says what causes it"
            )
        own = SampleMoments.from_products(
            max(whole(num_rows * float(total[0, 0])), 1), total, names
        )
        found |= dict.fromkeys(own_variables.tolist(), own)
    return [found[j] for j in range(acted.shape[1])]


def about_others(products: FloatArray, groups: BoolArray, level: BoolArray) -> FloatArray:
    """Return groups' products, with groups of another level moved to the mean of the others.

    Where all groups have another level, they keep it.
    """
    level = level & groups
    others = products[groups & ~level].sum(axis=0)
    if not level.any() or not others[0, 0] > 0:
        return products[groups]
    mean = others[0] / others[0, 0]
    moved = products.copy()
    for k in np.flatnonzero(level):
        rows = products[k, 0, 0]
        own = products[k, 0] / rows if rows > 0 else products[k, 0]
        moved[k] += rows * (np.outer(mean, mean) - np.outer(own, own))
    return moved[groups]


def distinguished_pairs(acted: BoolArray) -> BoolArray:
    """Return the pairs of which some group has exactly one as a target, shape (d, d).

    The direction of an edge between them is the same in all equivalent DAGs.

    Parameters
    ----------
    acted : ndarray of bool, shape (groups, d)
        The targets of each group.
    """
    return np.asarray((acted[:, :, None] != acted[:, None, :]).any(axis=0))
