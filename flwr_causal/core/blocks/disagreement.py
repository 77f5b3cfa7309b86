"""What differs at single parties: effects, standard deviations, means, and false columns.

Each party's number is compared with those of the other parties that agree with each other
(:mod:`core.linear.parties`), so that one party that differs is named, and not all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.blocks.design import column_names
from flwr_causal.core.blocks.false_columns import false_columns
from flwr_causal.core.graphs.independence import holm
from flwr_causal.core.linear.moments import merge
from flwr_causal.core.linear.parties import VARIES, compared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.linear.moments import SampleMoments

#: The edge is in a party's own rows above this t statistic in the sign that all rows have.
SUPPORTED = 1.96
#: Standard errors of fewer degrees of freedom are left out: with some parties' errors near 0 by
#: chance, the mean of the others is that of few parties. Of 40 systems of 64 equal parties of 4
#: rows 25 had a party that differs with errors of one degree of freedom, and none from 4 on.
LEAST_DEGREES = 5


class Difference(NamedTuple):
    """A number of one party, and the same number of the other parties that agree.

    Attributes
    ----------
    party
        Name.
    what
        "effect", "mean", "spread" (standard deviation), "residual" (standard deviation given the
        causes); "reversed" or "exchanged", see :mod:`core.blocks.false_columns`.
    cause, effect
        The edge; of a mean or a spread ``effect`` is the variable and ``cause`` is empty. Of an
        exchanged column ``effect`` is its name at the party, and ``cause`` is what others call what
        it holds. Categories have a name for each state, functions of a number one for each.
    value, others
        The coefficient, the mean or the standard deviation in the party's rows, and the mean of the
        others that agree, each weighted by the inverse of its squared standard error. Of a false
        column the root mean square of the differences of its correlations from the others', as it
        is and once it is mended.
    z
        The difference in units of its standard error, as of a normal distribution; of standard
        deviations that of their logarithms; of a false column the largest one.
    supports
        Of an effect: "yes" if the party's own rows say that it is not 0 and has the sign that it
        has in all rows, "opposite" if the other sign, "no" if neither. Else empty.
    size
        The absolute difference without units: of effects and means in standard deviations within
        parties, of standard deviations in the natural logarithm, of false columns ``value``.
    """

    party: str
    what: str
    cause: str
    effect: str
    value: float
    others: float
    z: float
    supports: str
    size: float


class _Kind(NamedTuple):
    """Numbers of one kind: their names, and values and squared errors of shape (R, K)."""

    what: str
    cause: list[str]
    effect: list[str]
    values: FloatArray
    variances: FloatArray
    degrees: FloatArray
    unit: FloatArray
    supports: NDArray[Any] | None = None


def disagreement(
    variables: Sequence[Variable], parties: Mapping[str, SampleMoments], edges: BoolArray
) -> pd.DataFrame:
    """Compare each party with the others that agree.

    Parameters
    ----------
    variables : sequence of Number or Category
        The m variables, whose columns lie side by side in the moments.
    parties : mapping of str to SampleMoments
        Of each party's rows, by name; two or more.
    edges : ndarray of bool, shape (m, d)
        The parents of the first d variables.

    Returns
    -------
    DataFrame
        The rows of :class:`Difference`, those of false columns first and then the largest ``|z|``,
        with ``corrected``: the p-value after Holm's correction for the number of rows, of false
        columns after Bonferroni's for the number of correlations. Numbers are in the units of the
        data. Effects are left out where a party's regression has fewer than :data:`LEAST_DEGREES`
        degrees of freedom, or a moment is unknown; means where all are the same, as if the method
        subtracts them; columns where they are constant at a party, or at all others.
    """
    import pandas as pd
    from scipy.special import ndtr

    names, every = list(parties), list(parties.values())
    columns, widths = column_names(variables), [one.width for one in variables]
    offset, scale = np.concatenate([one.units for one in variables], axis=1)
    rows = np.array([float(part.n) for part in every])
    total = merge(every).second
    second, means = np.stack([p.second for p in every]), np.stack([p.mean for p in every])
    flat = np.diagonal(second, axis1=1, axis2=2) <= VARIES * np.diagonal(total)
    second[flat[:, :, None] | flat[:, None, :]] = 0.0
    whole = (len(widths), edges.shape[1])
    by_column = np.repeat(np.repeat(edges, widths, axis=0), widths[: whole[1]], axis=1)
    within = np.sqrt(rows @ np.diagonal(second, axis1=1, axis2=2) / rows.sum())
    table = _Table(columns, scale, second, rows, within, by_column)
    kinds = [*table.effects(total), *table.levels(offset + scale * means)]
    parts = [_compared(kind, names) for kind in kinds]
    rest = pd.DataFrame(
        {name: np.concatenate(own) for name, *own in zip(Difference._fields, *parts, strict=True)}
    )
    size = np.abs(rest["z"].to_numpy(dtype=np.float64))
    rest["corrected"] = holm(2 * ndtr(-size))
    rest = rest.iloc[np.argsort(-size, kind="stable")]
    false = [
        {
            **Difference(
                names[one.party],
                one.what,
                one.other,
                one.column,
                one.size,
                one.left,
                one.z,
                "",
                one.size,
            )._asdict(),
            "corrected": one.p_value,
        }
        for one in false_columns(variables[: whole[1]], *table.present(widths, whole[1]))
    ]
    return pd.concat([pd.DataFrame(false), rest] if false else [rest], ignore_index=True)


def _compared(kind: _Kind, names: Sequence[str]) -> list[NDArray[Any]]:
    """Return the fields of :class:`Difference` of all numbers and parties where both are known."""
    levels = kind.what == "mean"
    found = compared(kind.values, kind.variances, kind.degrees, exact=levels)
    number, party = np.nonzero(np.isfinite(found.z))
    as_is = np.exp if kind.what in ("spread", "residual") else np.asarray
    gap = np.abs(kind.values - found.others) / kind.unit[:, None]
    supports = np.full(gap.shape, "", dtype=object) if kind.supports is None else kind.supports
    texts = (
        np.array(own, dtype=object)[place]
        for own, place in ((names, party), (kind.cause, number), (kind.effect, number))
    )
    numbers = as_is(kind.values), as_is(found.others), found.z, supports, gap
    first, *others = texts
    return [
        first,
        np.full(len(party), kind.what, dtype=object),
        *others,
        *(own[number, party] for own in numbers),
    ]


class _Table(NamedTuple):
    """The moments of K parties, in the units of the design; ``scale`` are those of the data.

    ``within`` are standard deviations within parties; ``edges`` are those of the columns.
    """

    columns: Sequence[str]
    scale: FloatArray
    second: FloatArray
    rows: FloatArray
    within: FloatArray
    edges: BoolArray

    def present(self, widths: Sequence[int], count: int) -> tuple[FloatArray, FloatArray]:
        """Return the moments of the first variables, and the rows."""
        size = sum(widths[:count])
        return self.second[:, :size, :size], self.rows

    def effects(self, total: FloatArray) -> list[_Kind]:
        """Return the effects along edges, and the residual standard deviations.

        ``total`` are the second moments of all rows.
        """
        second = np.concatenate([self.second, total[None]])
        cause: list[IntArray] = []
        effect: list[IntArray] = []
        values, variances, degrees, residual, child_of = [], [], [], [], []
        counts = self.edges.sum(axis=0)
        for count in np.unique(counts[counts > 0]).tolist():
            children = np.flatnonzero(counts == count)
            parents = np.nonzero(self.edges[:, children].T)[1].reshape(-1, count)
            b, error, variance = _regressions(second, self.rows, parents, children)
            cause.append(parents.ravel())
            effect.append(children.repeat(count))
            values.append(b.reshape(len(second), -1).T)
            variances.append(error.reshape(len(self.rows), -1).T)
            left = np.maximum(self.rows - count - 1.0, 0.0)
            degrees.append(np.broadcast_to(left, variances[-1].shape))
            residual.append(variance.T)
            child_of.append(children)
        if not cause:
            return []
        of, to = np.concatenate(cause), np.concatenate(effect)
        unit = (self.scale[to] / self.scale[of])[:, None]
        b, squares = np.concatenate(values) * unit, np.concatenate(variances) * unit**2
        own, pooled = b[:, :-1], b[:, -1:]
        clear = np.abs(own) > SUPPORTED * np.sqrt(squares)
        said = np.array(["opposite", "no", "yes"], dtype=object)
        supports = said[1 + np.where(clear, np.where(own * pooled > 0, 1, -1), 0)]
        name = self.columns
        standard = self.within * self.scale
        names = [name[i] for i in of], [name[j] for j in to]
        free = np.concatenate(degrees)
        # A cause that is constant at each party, as the name of the party is, has no effect there.
        varies = standard[of] > 0
        apart = np.divide(standard[to], standard[of], out=np.zeros(len(of)), where=varies)
        found = [_Kind("effect", *names, own, squares, free, apart, supports)]
        children = np.concatenate(child_of)
        left = np.maximum(self.rows - counts[children][:, None] - 1.0, 0.0)
        logs = _log(np.concatenate(residual), left) + np.log(self.scale[children])[:, None]
        found.append(self._spreads("residual", children, logs, left))
        return found

    def levels(self, means: FloatArray) -> list[_Kind]:
        """Return standard deviations, and means where they are not all the same."""
        count = self.edges.shape[1]
        now = np.arange(count)
        variances = np.diagonal(self.second, axis1=1, axis2=2)[:, :count].T
        left = np.broadcast_to(np.maximum(self.rows - 1.0, 0.0), variances.shape)
        unbiased = variances * self.rows / np.maximum(self.rows - 1.0, 1.0)
        logs = _log(unbiased, left) + np.log(self.scale[:count])[:, None]
        found = [self._spreads("spread", now, logs, left)]
        squares = variances * self.scale[:count, None] ** 2
        gaps = np.ptp(means[:, :count], axis=0)
        apart = (gaps**2)[:, None] > VARIES * squares
        moved = np.flatnonzero(apart.any(axis=1))
        if len(moved):
            error = squares[moved] / np.where(left[moved] > 0, left[moved], np.nan)
            unit = (self.within * self.scale)[moved]
            names = [self.columns[j] for j in moved.tolist()]
            level = means.T[moved]
            found.append(_Kind("mean", [""] * len(moved), names, level, error, left[moved], unit))
        return found

    def _spreads(self, what: str, columns: IntArray, logs: FloatArray, left: FloatArray) -> _Kind:
        """Return logarithms of standard deviations, with the errors of Gaussian rows."""
        names = [self.columns[j] for j in columns]
        error = 0.5 / np.where(left > 0, left, np.nan)
        return _Kind(what, [""] * len(names), names, logs, error, left, np.ones(len(names)))


def _log(variances: FloatArray, degrees: FloatArray) -> FloatArray:
    """Return logarithms of standard deviations, nearly unbiased; NaN where there is none."""
    known = (variances > 0) & (degrees > 0)
    bias = 1.0 / np.where(known, degrees, 1.0)
    return np.where(known, (np.log(np.where(known, variances, 1.0)) + bias) / 2, np.nan)


def _regressions(
    second: FloatArray, rows: FloatArray, parents: IntArray, children: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the regressions of G children on p parents each in K tables, and in that of all rows.

    NaN where there are too few rows, a child is constant or its parents are linearly dependent.

    Parameters
    ----------
    second : ndarray of shape (K + 1, s, s)
    rows : ndarray of shape (K,)
    parents : ndarray of shape (G, p)
    children : ndarray of shape (G,)

    Returns
    -------
    coefficients : ndarray of shape (K + 1, G, p)
    errors : ndarray of shape (K, G, p)
        Squares of the classical standard errors.
    variances : ndarray of shape (K, G)
        Of the residuals, divided by their degrees of freedom.
    """
    count = parents.shape[1]
    among = second[:, parents[:, :, None], parents[:, None, :]]
    with_child = second[:, parents, children[:, None]]
    of_child = second[:, children, children]
    scale = np.sqrt(np.diagonal(among, axis1=2, axis2=3))
    degrees = np.append(rows, np.inf) - count - 1
    usable = (degrees >= LEAST_DEGREES)[:, None] & (scale > 0).all(axis=2)
    usable &= np.isfinite(among).all(axis=(2, 3))
    usable &= np.isfinite(with_child).all(axis=2) & (of_child > 0)
    units = scale[..., :, None] * scale[..., None, :]
    units[~usable] = 1.0
    correlation = np.where(usable[..., None, None], among / units, np.eye(count))
    usable &= np.linalg.eigvalsh(correlation)[..., 0] > 1e-10
    correlation[~usable] = np.eye(count)
    inverse = np.linalg.inv(correlation) / units
    coefficients = (inverse @ with_child[..., None])[..., 0]
    residual = np.maximum(of_child - (coefficients * with_child).sum(axis=2), 0.0)
    coefficients = np.where(usable[..., None], coefficients, np.nan)
    # Of a variable that is a function of its parents there is no error.
    residual = np.where(usable & (residual > VARIES * of_child), residual, np.nan)[:-1]
    left = np.maximum(degrees[:-1], LEAST_DEGREES)[:, None]
    errors = residual[..., None] * np.diagonal(inverse[:-1], axis1=2, axis2=3) / left[..., None]
    return coefficients, errors, residual * rows[:, None] / left
