"""First and second moments, from which linear Gaussian structure is learned.

Moments of disjoint sets of rows merge exactly into those of all rows, so that a federation can
compute the moments of its pooled rows (Ng & Zhang 2022, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.arrays import frozen_floats, symmetric, upper_triangles
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import FloatArray, IntArray


# A column whose standard deviation is below this share of its mean is constant up to rounding.
CONSTANT_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class SampleMoments:
    """Number of rows, means and covariances of d variables.

    The arrays are stored as read-only float64 copies. Of ``second`` the upper triangle is taken, so
    that it is symmetric to the last bit, as in a file (:meth:`to_plain`). Unknown entries of it are
    NaN; solvers that need all entries call :meth:`require_complete`.

    Attributes
    ----------
    n
        Number of rows, at least 1.
    mean
        ``(d,)`` means, in the variables' units.
    second
        ``(d, d)`` central second moments ``(1/n) sum (x - mean)(x - mean)^T``: the covariance with
        divisor n, not n - 1.
    names
        Names of the variables in column order.
    together
        ``(d, d)``, where cells are missing (:mod:`core.blocks.missing`): at ``[i, j]`` the rows in
        which i and j are seen; ``n`` is then their mean over all pairs. None: all rows.
    units
        Of moments about the means of units (:mod:`core.linear.levels`) their number; ``n`` is then
        a row less for each unit but one. 1: the moments are about one mean.

    Raises
    ------
    DataError
        If there is no row, names repeat, or an array has another shape.
    """

    n: int
    mean: FloatArray
    second: FloatArray
    names: tuple[str, ...]
    together: FloatArray | None = None
    units: int = 1

    def __post_init__(self) -> None:
        names = tuple(str(name) for name in self.names)
        d = len(names)
        if self.n < 1:
            raise DataError(f"moments need at least one row, got n = {self.n}")
        if len(set(names)) < d:
            twice = sorted({name for name in names if names.count(name) > 1})
            raise DataError(f"variable names must be unique, {twice} occur more than once")
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "names", names)
        shapes: dict[str, tuple[int, ...]] = {"mean": (d,), "second": (d, d)}
        if self.together is not None:
            shapes["together"] = (d, d)
        for field, shape in shapes.items():
            array = frozen_floats(getattr(self, field))
            if array.shape != shape:
                raise DataError(
                    f"the {field} moments of {d} variables have shape {shape}, got {array.shape}"
                )
            if field == "second":
                array = frozen_floats(np.triu(array) + np.triu(array, 1).T)
            object.__setattr__(self, field, array)

    @classmethod
    def from_rows(
        cls, rows: ArrayLike, names: Sequence[str] | None = None, *, center: bool = True
    ) -> SampleMoments:
        """Return the moments of an ``(n, d)`` array.

        Parameters
        ----------
        rows
            ``(n, d)`` finite numbers.
        names
            Names of the columns. Default: ``x0, x1, ...``.
        center
            Whether to compute moments about the means of the columns. With False the means are
            assumed to be zero: ``mean`` is zero and ``second`` is ``rows^T rows / n``.

        Raises
        ------
        DataError
            If the rows are not a table of finite numbers, or the names do not fit.
        """
        try:
            X = np.asarray(rows, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"the rows are not all numbers ({error})") from error
        if X.ndim != 2 or len(X) == 0:
            raise DataError(f"rows must be an (n, d) array with n >= 1, got shape {X.shape}")
        n, d = X.shape
        columns = tuple(f"x{j}" for j in range(d)) if names is None else tuple(map(str, names))
        if len(columns) != d:
            raise DataError(f"{len(columns)} names were given for {d} columns")
        bad = ~np.isfinite(X).all(axis=0)
        if bad.any():
            listed = ", ".join(columns[j] for j in np.flatnonzero(bad))
            raise DataError(
                f"missing or infinite values in columns {listed}; drop or fill those rows first"
            )
        if not center:
            return cls(n, np.zeros(d), X.T @ X / n, columns)
        mean = X.mean(axis=0)
        centered = X - mean
        # The second pass removes the rounding error of a mean much larger than the deviations.
        residual = centered.mean(axis=0)
        second = centered.T @ centered / n - np.outer(residual, residual)
        return cls(n, mean + residual, second, columns)

    @classmethod
    def from_products(cls, n: int, products: FloatArray, names: Sequence[str]) -> SampleMoments:
        """Return the moments of n rows x from products of the rows [1, x].

        Parameters
        ----------
        n
            Number of rows.
        products
            ``(1 + d, 1 + d)`` sums over the rows, divided by any number above 0.
        names
            Names of the d columns.
        """
        return cls(n, *mean_and_second(products), tuple(names))

    @classmethod
    def from_plain(
        cls,
        n: int,
        names: list[str],
        mean: list[float],
        second: list[float | None],
        together: list[list[float]] | None = None,
        units: int = 1,
    ) -> SampleMoments:
        """Return the moments that :meth:`to_plain` wrote."""
        rows = None if together is None else np.array(together, dtype=np.float64)
        whole = symmetric(np.array(second, dtype=np.float64), len(names))
        return cls(n, np.array(mean), whole, tuple(names), rows, units)

    def to_plain(self) -> dict[str, Any]:
        """Return values for JSON: of ``second`` the upper triangle by rows, None where unknown."""
        upper = upper_triangles(self.second)
        return {
            "n": self.n,
            "names": list(self.names),
            "mean": self.mean.tolist(),
            "second": [None if np.isnan(entry) else entry for entry in upper.tolist()],
            **({} if self.together is None else {"together": self.together.tolist()}),
            **({} if self.units == 1 else {"units": self.units}),
        }

    @property
    def d(self) -> int:
        """Number of variables."""
        return len(self.names)

    @property
    def variances(self) -> FloatArray:
        """``(d,)`` variances, with divisor n."""
        return np.diagonal(self.second).astype(np.float64)

    @property
    def correlations(self) -> FloatArray:
        """``(d, d)`` correlations; variables that are constant have none, and variance 0."""
        scale = np.sqrt(np.where(self.variances > 0, self.variances, 1.0))
        return np.asarray(self.second / np.outer(scale, scale))

    @cached_property
    def left_open(self) -> FloatArray:
        """``(d,)`` variances of each variable given all others."""
        return np.asarray(1.0 / np.diagonal(np.linalg.inv(self.second)))

    @property
    def mean_variance(self) -> float:
        """Mean of the variances, the unit in which solvers express the squared loss."""
        return float(self.variances.mean())

    def constant_columns(self) -> list[int]:
        """Return the indices of the variables that are constant up to rounding."""
        limit = (CONSTANT_TOLERANCE * np.abs(self.mean)) ** 2
        return [int(j) for j in np.flatnonzero(self.variances <= limit)]

    def require_varying(self) -> None:
        """Raise a DataError that names the constant variables, if there are any."""
        constant = self.constant_columns()
        if constant:
            listed = ", ".join(self.names[j] for j in constant)
            raise DataError(f"these variables are constant: {listed}; leave them out")

    def require_complete(self) -> None:
        """Raise a DataError if any second moment is missing (NaN) or infinite."""
        bad = ~np.isfinite(self.second)
        if bad.any():
            i, j = (int(k) for k in np.argwhere(bad)[0])
            raise DataError(
                f"the second moment of {self.names[i]} and {self.names[j]} is missing or infinite"
                f" ({int(bad.sum())} such entries); this solver needs all of them"
            )

    def subset(self, columns: Sequence[int]) -> SampleMoments:
        """Return the moments of the columns with these indices, in this order."""
        index = np.asarray(columns, dtype=np.intp)
        names = tuple(self.names[j] for j in index)
        rows = None if self.together is None else self.together[np.ix_(index, index)]
        second = self.second[np.ix_(index, index)]
        return SampleMoments(self.n, self.mean[index], second, names, rows, self.units)

    def scaled(self, scale: ArrayLike) -> SampleMoments:
        """Return the moments of ``x / scale`` for a number or a ``(d,)`` array of new units."""
        units = np.broadcast_to(np.asarray(scale, dtype=np.float64), (self.d,))
        return replace(self, mean=self.mean / units, second=self.second / np.outer(units, units))

    def standardized(self) -> tuple[SampleMoments, FloatArray]:
        """Return the moments in units of each variable's standard deviation.

        Returns
        -------
        moments, scale
            Moments of ``x / scale``, whose ``second`` is the correlation matrix, and the ``(d,)``
            standard deviations. A standardised weight ``w_ij`` is ``w_ij * scale_j / scale_i`` in
            the original units.

        Raises
        ------
        DataError
            If a variable is constant.
        """
        self.require_varying()
        scale = np.sqrt(self.variances)
        return self.scaled(scale), scale


def row_products(rows: FloatArray) -> FloatArray:
    """Return the sums of products of the rows [1, z], (1 + s, 1 + s), given z of shape (n, s)."""
    found = np.empty((1 + rows.shape[1],) * 2)
    found[0, 0] = len(rows)
    found[0, 1:] = found[1:, 0] = rows.sum(axis=0)
    found[1:, 1:] = rows.T @ rows
    return found


def mean_and_second(products: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return means ``(d,)`` and central second moments ``(d, d)`` of rows x.

    Parameters
    ----------
    products
        ``(1 + d, 1 + d)`` of the rows [1, x], summed and divided by any number above 0.
    """
    share, mean = products[0, 0], products[0, 1:] / products[0, 0]
    return mean, products[1:, 1:] / share - np.outer(mean, mean)


def merge(parts: Iterable[SampleMoments]) -> SampleMoments:
    """Return the moments of the union of disjoint sets of rows.

    The parts are merged one after the other by the update of Chan, Golub & LeVeque (1979). It
    avoids cancellation: up to rounding the result equals the moments of the pooled rows, also if
    the means are much larger than the deviations. Memory does not grow with the number of parts.

    Raises
    ------
    DataError
        If there is no part, or the parts' names differ (order included).
    """
    iterator = iter(parts)
    first = next(iterator, None)
    if first is None:
        raise DataError("there are no moments to merge")
    n, mean, second = first.n, np.array(first.mean), np.array(first.second)
    for part in iterator:
        if part.names != first.names:
            raise DataError(
                f"moments of different variables cannot be merged: {first.names} and {part.names}"
            )
        total = n + part.n
        share = part.n / total
        shift = part.mean - mean
        second += share * (part.second - second) + share * (n / total) * np.outer(shift, shift)
        mean += share * shift
        n = total
    return SampleMoments(n, mean, second, first.names)


def pairwise(
    products: FloatArray, sums: FloatArray, counts: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return means and central second moments from sums over the rows that know each pair.

    Parameters
    ----------
    products : ndarray of shape (d, d)
        Sums of products of variables i and j over the rows that have both.
    sums : ndarray of shape (d, d)
        Sums of variable i over the rows that have i and j.
    counts : ndarray of shape (d, d)
        Numbers of these rows, at least 1.

    Returns
    -------
    mean : ndarray of shape (d,)
    second : ndarray of shape (d, d)
        Divided by the numbers of rows; where these differ it may have negative eigenvalues.
    """
    means = sums / counts
    return np.diagonal(means).copy(), products / counts - means * means.T


def distinct(moments: Sequence[SampleMoments]) -> tuple[list[SampleMoments], IntArray]:
    """Return the different objects of a sequence, and the place of each entry among them."""
    parts = list({id(own): own for own in moments}.values())
    places = {id(part): place for place, part in enumerate(parts)}
    return parts, np.array([places[id(own)] for own in moments], dtype=np.int64)


def plain_by_variable(moments: Sequence[SampleMoments]) -> dict[str, Any]:
    """Return values for JSON, with each different object once."""
    parts, places = distinct(moments)
    return {"parts": [part.to_plain() for part in parts], "places": places.tolist()}


def from_plain_by_variable(plain: Mapping[str, Any]) -> tuple[SampleMoments, ...]:
    """Return the moments that :func:`plain_by_variable` wrote."""
    parts = [SampleMoments.from_plain(**part) for part in plain["parts"]]
    return tuple(parts[place] for place in plain["places"])


def moments_of_variables(
    moments: SampleMoments | Sequence[SampleMoments], num_variables: int
) -> list[SampleMoments]:
    """Return the moments of each variable, by which its causes are judged.

    Parameters
    ----------
    moments
        One object for all variables; or one for each of the d variables, as under interventions,
        where a variable's moments are of the rows in which it is no target
        (:mod:`core.interventions.moments`).
    num_variables
        d.
    """
    return [moments] * num_variables if isinstance(moments, SampleMoments) else list(moments)


def fewest_together(together: Sequence[FloatArray]) -> FloatArray:
    """Return the fewest rows of any variable, shape (m, m), see :func:`with_rows`."""
    return reduce(np.minimum, {id(own): own for own in together}.values())


def with_rows(
    moments: Sequence[SampleMoments], together: Sequence[FloatArray]
) -> tuple[SampleMoments, ...]:
    """Return the moments of each variable, of rows with missing cells.

    Parameters
    ----------
    moments : sequence of SampleMoments
    together : sequence of ndarray of shape (m, m)
        For each variable :attr:`SampleMoments.together` of its rows. Variables that share their
        moments share their rows.
    """
    parts, places = distinct(moments)
    firsts = [places.tolist().index(k) for k in range(len(parts))]
    own = [replace(part, together=together[j]) for part, j in zip(parts, firsts, strict=True)]
    return tuple(own[place] for place in places)


def require_varying(moments: Sequence[SampleMoments]) -> None:
    """Raise a DataError if a variable is constant in the rows to which it is fitted.

    Other variables may be constant in these rows: interventions can hold them fixed.
    """
    for j, own in enumerate(moments):
        if j in own.constant_columns():
            raise DataError(
                f"{own.names[j]} is constant in the rows that tell its causes: leave it out"
            )


def as_moments(moments_or_data: Any) -> SampleMoments:
    """Return the moments of an ``(n, d)`` array or a data frame; return SampleMoments unchanged.

    Raises
    ------
    DataError
        If the data are not a table of finite numbers.
    """
    if isinstance(moments_or_data, SampleMoments):
        return moments_or_data
    columns = getattr(moments_or_data, "columns", None)
    if columns is None:
        return SampleMoments.from_rows(moments_or_data)
    names = [str(column) for column in columns]
    return SampleMoments.from_rows(np.asarray(moments_or_data), names)


def data_scale(variances: FloatArray) -> float:
    """Return the harmonic mean of the variances, the unit of penalties.

    Penalties should be proportional to the noise variances, which are unknown. The harmonic mean of
    the variables' variances stays close to the noise variances if variances grow from causes to
    effects, whereas the arithmetic mean varies by large factors between data sets. For standardised
    data it is 1.

    Parameters
    ----------
    variances
        ``(d,)`` variances of the columns; constant columns are ignored.

    Raises
    ------
    ConfigError
        If no column varies.
    """
    positive = variances[variances > 0]
    if len(positive) == 0:
        raise ConfigError("no column has a positive variance")
    return float(1.0 / np.mean(1.0 / positive))


def columns_of(widths: Sequence[int]) -> list[IntArray]:
    """Return the columns of each variable, which lie side by side."""
    ends = np.cumsum(widths)
    return [np.arange(end - width, end) for end, width in zip(ends, widths, strict=True)]
