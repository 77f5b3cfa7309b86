"""First and second moments: all that linear Gaussian structure needs from a party's rows.

Moments of disjoint sets of rows merge exactly, so the sums of a federation are the moments of
its pooled rows (Ng & Zhang 2022, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import FloatArray


# A column whose spread is below this share of its offset is constant but for rounding.
CONSTANT_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Moments:
    """Number of rows, means and covariances of d variables.

    The arrays are stored as read-only float64 copies. Entries of ``second`` may be NaN where they
    are unknown; :meth:`require_complete` raises then, for solvers that need all of them.

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
    """

    n: int
    mean: FloatArray
    second: FloatArray
    names: tuple[str, ...]

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
        for field, shape in (("mean", (d,)), ("second", (d, d))):
            array = np.array(getattr(self, field), dtype=np.float64)
            if array.shape != shape:
                raise DataError(
                    f"the {field} moments of {d} variables have shape {shape}, got {array.shape}"
                )
            array.flags.writeable = False
            object.__setattr__(self, field, array)

    @classmethod
    def from_rows(
        cls, rows: ArrayLike, names: Sequence[str] | None = None, *, center: bool = True
    ) -> Moments:
        """Moments of an ``(n, d)`` array.

        Parameters
        ----------
        rows
            ``(n, d)`` numbers, without missing or infinite values.
        names
            Names of the columns, by default ``x0, x1, ...``.
        center
            Take moments about the columns' means. With False the rows are taken to have mean zero
            already: ``mean`` is zero and ``second`` is ``rows^T rows / n``.

        Raises
        ------
        DataError
            If the rows are no table of finite numbers, or the names do not fit.
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
        # the second pass removes the rounding error of a mean that is large against the spread
        residual = centered.mean(axis=0)
        second = centered.T @ centered / n - np.outer(residual, residual)
        return cls(n, mean + residual, second, columns)

    @property
    def d(self) -> int:
        """Number of variables."""
        return len(self.names)

    @property
    def variances(self) -> FloatArray:
        """``(d,)`` variances, with divisor n."""
        return np.diagonal(self.second).astype(np.float64)

    @property
    def mean_variance(self) -> float:
        """Mean of the variances: the unit in which the squared loss is measured."""
        return float(self.variances.mean())

    def constant_columns(self) -> list[int]:
        """List the variables that do not vary (but for rounding)."""
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

    def subset(self, columns: Sequence[int]) -> Moments:
        """Moments of the given columns, in the given order."""
        index = np.asarray(columns, dtype=np.intp)
        names = tuple(self.names[j] for j in index)
        return Moments(self.n, self.mean[index], self.second[np.ix_(index, index)], names)

    def scaled(self, scale: ArrayLike) -> Moments:
        """Moments of ``x / scale`` for a number or a ``(d,)`` array of new units."""
        units = np.broadcast_to(np.asarray(scale, dtype=np.float64), (self.d,))
        return Moments(self.n, self.mean / units, self.second / np.outer(units, units), self.names)

    def standardized(self) -> tuple[Moments, FloatArray]:
        """Moments in units of each variable's standard deviation.

        Returns
        -------
        moments, scale
            Moments of ``x / scale``, whose ``second`` is the correlation matrix, and the ``(d,)``
            standard deviations. A weight of the original units is ``w_ij * scale_j / scale_i``.

        Raises
        ------
        DataError
            If a variable is constant.
        """
        self.require_varying()
        scale = np.sqrt(self.variances)
        return self.scaled(scale), scale


def merge(parts: Iterable[Moments]) -> Moments:
    """Moments of the union of disjoint sets of rows.

    Parts are folded in one after the other by the update of Chan, Golub & LeVeque (1979), which
    adds no large numbers that cancel later: the result is that of the pooled rows to rounding,
    also when the means are large against the spread. Memory does not grow with the parts.

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
    return Moments(n, mean, second, first.names)


def as_moments(moments_or_data: Any) -> Moments:
    """Return the moments of an ``(n, d)`` array or a data frame; Moments are returned as they are.

    Raises
    ------
    DataError
        If the data are no table of finite numbers.
    """
    if isinstance(moments_or_data, Moments):
        return moments_or_data
    columns = getattr(moments_or_data, "columns", None)
    if columns is None:
        return Moments.from_rows(moments_or_data)
    names = [str(column) for column in columns]
    return Moments.from_rows(np.asarray(moments_or_data), names)


def data_scale(variances: FloatArray) -> float:
    """Return the harmonic mean of the variances, the scale that penalties have to match.

    The noise of the variables is what the penalties have to match. The harmonic mean stays near it
    where effects amplify from variable to variable, which makes the arithmetic mean vary by factors
    from one data set to the next; for standardised data it is 1.

    Parameters
    ----------
    variances
        ``(d,)`` variances of the columns; constant columns do not count.

    Raises
    ------
    ConfigError
        If no column varies.
    """
    positive = variances[variances > 0]
    if len(positive) == 0:
        raise ConfigError("no column has a positive variance")
    return float(1.0 / np.mean(1.0 / positive))
