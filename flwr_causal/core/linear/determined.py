"""Columns that others determine: one rule for all methods, before any search.

A total beside its parts, a quantity in two units, shares that add to 100, indicators of all states
and a category beside a coarser one make second moments singular. Several graphs then explain the
rows equally well, and rounding would choose among them. The rule:

- Of each relation one variable leaves the search, and is reported without edges: the last one by
  name (of text, so that x10 precedes x2). The order of columns, rows and parties has no part in it.
  A variable of which knowledge requires an edge leaves only where all others of the relation have
  such an edge, too; its required edges stay.
- The others are searched as if it were not in the table: its covariances are set to 0 and no edge
  of it is allowed. Where an edge is required, its variance is raised by :data:`RIDGE` instead.
- Fewer rows than columns, or hardly more, say nothing of relations, as some column always is a
  combination of others. No variable leaves then; all variances are raised by :data:`RIDGE`.

Regular moments stay as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.linear.moments import columns_of
from flwr_causal.core.words import by_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.moments import SampleMoments

# A variable is a combination of others where these leave less than this share of its variance. Sums
# of products hold 16 digits: the residual of an exact combination is at most some 1e-14.
RESIDUAL_SHARE = 1e-10
# Terms below this share of the largest one (in standard deviations) are rounding.
TERM_SHARE = 1e-4
#: Share by which variances are raised: so far above rounding that residual variances agree to 1e-9
#: whatever the processor, and too small to change a fit.
RIDGE = 1e-6

#: Variables that leave the search, ascending, each with those that determine it.
Relations = list[tuple[int, list[int]]]


def tells_combinations(rows: int, columns: int) -> bool:
    """Whether rows are so many that some column need not be a combination of others, or nearly."""
    return rows > columns + 1


def combinations(second: FloatArray, share: float = RESIDUAL_SHARE) -> dict[int, tuple[int, ...]]:
    """Return the variables that are linear combinations of earlier ones.

    Parameters
    ----------
    second : ndarray of shape (d, d)
        Central second moments, in any units, of more than d rows: of fewer, some variable always
        is a combination of others. Variables of variance 0 are left aside.
    share : float
        What others leave of the variance of such a variable, at most.

    Returns
    -------
    dict of int to tuple of int
        From such a variable to those of the combination, ascending; these are none themselves.
    """
    scale = np.sqrt(np.maximum(np.diagonal(second), 0.0))
    varying = np.flatnonzero(scale > 0)
    correlation = (second / np.outer(*[np.where(scale > 0, scale, 1.0)] * 2))[varying][:, varying]
    if _independent(correlation, share):
        return {}
    left = correlation.copy()
    basis: list[int] = []
    found = {}
    for j in range(len(varying)):
        if left[j, j] >= share:
            # What the variables are without their part along this one.
            left -= np.outer(left[:, j], left[j]) / left[j, j]
            basis.append(j)
            continue
        terms = np.abs(np.linalg.solve(correlation[np.ix_(basis, basis)], correlation[basis, j]))
        chosen = np.flatnonzero(terms > TERM_SHARE * terms.max())
        found[int(varying[j])] = tuple(int(varying[basis[k]]) for k in chosen)
    return found


def _independent(correlation: FloatArray, share: float) -> bool:
    """Whether the Cholesky decomposition finds that each variable adds something."""
    try:
        factor = np.linalg.cholesky(correlation)
    except np.linalg.LinAlgError:
        return False
    return bool((np.diagonal(factor) ** 2 >= share).all())


def determined(
    second: FloatArray,
    names: Sequence[str],
    *,
    widths: Sequence[int] | None = None,
    numbers: Sequence[bool] | None = None,
    kept: BoolArray | None = None,
    share: float = RESIDUAL_SHARE,
) -> Relations:
    """Return the variables that others determine exactly, and for each of them which.

    A number is determined if its value is a linear combination of columns of other variables, a
    category if all of its columns are. Of what is left nothing determines another.

    Parameters
    ----------
    second : ndarray of shape (M, M)
        Central second moments of more rows than columns; columns of a variable are side by side.
    names : sequence of str
        Of the d variables.
    widths : sequence of int, optional
        Their numbers of columns. Default: one each.
    numbers : sequence of bool, optional
        Which of them are numbers, whose first column is the value. Default: all.
    kept : ndarray of bool, shape (d,), optional
        Which of them leave last, as edges of them are required. Default: none.
    share : float
        As of :func:`combinations`.
    """
    if not len(second):
        return []
    d = len(names)
    last = np.zeros(d, dtype=np.bool_) if kept is None else kept
    order = sorted(by_name(names), key=lambda j: not last[j])
    columns = columns_of([1] * d if widths is None else widths)
    arranged = np.concatenate([columns[j] for j in order])
    found = combinations(second[np.ix_(arranged, arranged)], share)
    if len(arranged) == d:
        return sorted((order[k], sorted(order[i] for i in by)) for k, by in found.items())
    owner = np.repeat(np.arange(d), [len(own) for own in columns])
    involved = {int(owner[arranged[k]]) for one, by in found.items() for k in (one, *by)}
    varies = np.diagonal(second) > 0
    left, result = list(order), []
    for j in [j for j in reversed(order) if j in involved]:
        others = [i for i in left if i != j]
        own = columns[j][:1] if numbers is None or numbers[j] else columns[j][varies[columns[j]]]
        tried = np.concatenate([*[columns[i] for i in others], own])
        places = range(len(tried) - len(own), len(tried))
        terms = combinations(second[np.ix_(tried, tried)], share)
        if places and all(place in terms for place in places):
            by = {int(owner[tried[k]]) for place in places for k in terms[place]}
            result.append((j, sorted(by - {j})))
            left = others
    return sorted(result)


class Separation(NamedTuple):
    """How second moments of m variables and lags are changed before a search.

    Parameters
    ----------
    found : list of (int, list of int)
        The variables that leave, each with those that determine it.
    widths : sequence of int
        Numbers of columns of the m.
    leaving, apart, wider : ndarray of bool, shape (m,)
        Which of them leave the search; which are made uncorrelated with all others; of which
        variances are raised.
    """

    found: Relations
    widths: Sequence[int]
    leaving: BoolArray
    apart: BoolArray
    wider: BoolArray

    @property
    def changes(self) -> bool:
        """Whether the moments are not regular yet."""
        return bool(self.apart.any() or self.wider.any())

    def of(self, products: FloatArray) -> FloatArray:
        """Return products of rows by which a search goes.

        Parameters
        ----------
        products : ndarray of shape (..., k + M, k + M)
            Of the rows [1, ..., z], or of centred rows z (k = 0), divided by any numbers above 0.
        """
        owner = np.repeat(np.arange(len(self.widths)), self.widths)
        ones = products.shape[-1] - len(owner)
        result = products.copy()
        inner = result[..., ones:, ones:]
        by_means = np.zeros_like(inner)
        if ones:
            sums, count = products[..., 0, ones:], products[..., 0, :1]
            means = sums / np.where(count > 0, count, 1.0)
            by_means = sums[..., :, None] * means[..., None, :]
        out = self.apart[owner]
        zero = (out[:, None] | out) & (owner[:, None] != owner)
        inner[..., zero] = by_means[..., zero]
        wide = np.flatnonzero(self.wider[owner])
        inner[..., wide, wide] += RIDGE * (inner - by_means)[..., wide, wide]
        return result

    def moments(self, moments: SampleMoments) -> SampleMoments:
        """Return moments by which a search goes; regular ones as they are."""
        return replace(moments, second=self.of(moments.second)) if self.changes else moments

    def masks(self, masks: EdgeMasks) -> EdgeMasks:
        """Return masks, shape (m, m), in which variables that leave have required edges only."""
        free = ~(self.leaving[:, None] | self.leaving)
        return masks._replace(allowed=masks.allowed & free | masks.required)


def separation(
    second: FloatArray,
    num_rows: int,
    names: Sequence[str],
    *,
    required: BoolArray | None = None,
    widths: Sequence[int] | None = None,
    numbers: Sequence[bool] | None = None,
    share: float = RESIDUAL_SHARE,
) -> Separation:
    """Return the variables that leave the search, and the change of the second moments.

    Variables are judged by their values at the same step; they leave with all their lags.

    Parameters
    ----------
    second : ndarray of shape (M, M)
        Central second moments.
    num_rows : int
    names, numbers, share
        As of :func:`determined`.
    required : ndarray of bool, shape (m, m), optional
        Edges that knowledge requires.
    widths : sequence of int, optional
        Numbers of columns of the d variables and their lags. Default: one column each, no lags.
    """
    d = len(names)
    widths = [1] * d if widths is None else widths
    lags, size = len(widths) // d, sum(widths[:d])
    none = np.zeros(len(widths), dtype=np.bool_)
    if not tells_combinations(num_rows, size):
        return Separation([], widths, none, none, ~none)
    kept = none if required is None else required.any(axis=0) | required.any(axis=1)
    kept = np.tile(kept.reshape(lags, d).any(axis=0), lags)
    found = determined(
        second[:size, :size], names, widths=widths[:d], numbers=numbers, kept=kept[:d], share=share
    )
    leaving = none.copy()
    for j, _ in found:
        leaving[j::d] = True
    return Separation(found, widths, leaving, leaving & ~kept, leaving & kept)


def regular(moments: SampleMoments, required: BoolArray | None = None) -> SampleMoments:
    """Return moments of numbers for a search, by the rule of this module.

    Parameters
    ----------
    moments : SampleMoments
        Complete.
    required : ndarray of bool, shape (d, d), optional
        Edges that knowledge requires.
    """
    own = separation(moments.second, moments.n, moments.names, required=required)
    return own.moments(moments)
