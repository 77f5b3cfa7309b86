"""Columns of second moments for numbers, curved effects and categories: a block for each variable.

A category of k states is k - 1 columns, each 1 in the rows of a state (Andrews, Ramsey & Cooper
2019): which state has none changes no score. A number is one column, or several functions of it, by
which its effects may be curved. The second moments of all columns are sums over rows, and those of
several parties add up to those of the pooled rows.

References
----------
Andrews, B., Ramsey, J. & Cooper, G. F. (2019). Learning high-dimensional directed acyclic graphs
with mixed data-types. PMLR 104.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.discrete.discrete import as_discrete, labels_of, named_columns
from flwr_causal.core.linear.effects import Blocks
from flwr_causal.core.linear.moments import columns_of
from flwr_causal.core.nonlinear.basis import SIZE, raw_basis
from flwr_causal.core.series.design import lagged_names
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.linear.moments import Moments

#: Functions of a number whose effects may be curved. Measured on worlds of curved effects: three
#: did best of one to five, and of Legendre polynomials and hyperbolic tangents.
CURVED = 3


def functions_of(model: str) -> int:
    """Return the number of functions of a number, for effects that are "curved" or "linear"."""
    return CURVED if model == "curved" else 1


@dataclass(frozen=True)
class Number:
    """A variable of numbers.

    Parameters
    ----------
    name : str
    mean, scale : float
        Of the rows of all parties: mean and standard deviation, above 0.
    functions : int, default 1
        Columns of the block, 1 to 5: the number itself, and further functions of it, see
        :func:`flwr_causal.core.nonlinear.basis.raw_basis`.
    """

    name: str
    mean: float
    scale: float
    functions: int = 1

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.functions

    @property
    def terms(self) -> tuple[str, ...]:
        """What the columns are, in words."""
        more = (f"{self.name} (function {k})" for k in range(2, self.functions + 1))
        return (self.name, *more)

    @property
    def units(self) -> FloatArray:
        """Mean and scale of each column, shape (2, width): functions are those of 0 and 1."""
        if self.functions == 1:
            return np.array([[self.mean], [self.scale]])
        return np.array([[0.0], [1.0]]).repeat(self.functions, axis=1)

    def columns(self, values: NDArray[Any]) -> FloatArray:
        """Return the columns of rows, shape (n, width), from their numbers."""
        standardised = (np.asarray(values, dtype=np.float64) - self.mean) / self.scale
        return raw_basis(standardised)[:, : self.functions]


@dataclass(frozen=True)
class Category:
    """A variable of states.

    Parameters
    ----------
    name : str
    states : tuple of str
        Two or more; the last one has no column.
    values : {"", "bool", "int", "float", "str"}
        What the states are in the tables; empty where they are of several types.
    """

    name: str
    states: tuple[str, ...]
    values: str = ""

    @property
    def labels(self) -> tuple[Any, ...]:
        """The values that the states stand for, in the types of the tables."""
        return labels_of(self.states, self.values)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.states) - 1

    @property
    def terms(self) -> tuple[str, ...]:
        """What the columns are, in words."""
        return tuple(f"{self.name}={state}" for state in self.states[:-1])

    @property
    def units(self) -> FloatArray:
        """Mean and scale 0 and 1 of each column, shape (2, width)."""
        return np.array([[0.0], [1.0]]).repeat(self.width, axis=1)

    def columns(self, values: NDArray[Any]) -> FloatArray:
        """Return the columns of rows, shape (n, width), from the numbers of their states.

        Of a missing state, -1, they are NaN.
        """
        columns = np.asarray(values[:, None] == np.arange(self.width), dtype=np.float64)
        columns[values < 0] = np.nan
        return columns


Variable = Number | Category


def numbers_in_units(names: Sequence[str]) -> tuple[Variable, ...]:
    """Return variables that are numbers, whose column has the units of the data."""
    return tuple(Number(name, 0.0, 1.0) for name in names)


def blocks_of_columns(
    variables: Sequence[Variable],
    moments: Moments | Sequence[Moments],
    parties: Sequence[Moments] = (),
) -> Blocks:
    """Return the moments of the columns of variables, which lie side by side."""
    names = tuple(one.name for one in variables)
    return Blocks(names, columns_of([one.width for one in variables]), moments, parties)


def widths_of(states: Sequence[tuple[str, ...]], functions: int = 1) -> list[int]:
    """Return the number of columns of each variable, see :func:`variables_of`."""
    return [len(own) - 1 if own else functions for own in states]


def variables_of(
    names: Sequence[str],
    states: Sequence[tuple[str, ...]],
    mean: FloatArray,
    variance: FloatArray,
    functions: int = 1,
    values: Sequence[str] = (),
) -> tuple[Variable, ...]:
    """Return the variables of columns that parties have agreed on.

    Parameters
    ----------
    names : sequence of str
    states : sequence of tuple of str
        Of each column, empty for numbers; or () where all are numbers.
    mean, variance : ndarray of shape (d,)
        Of the rows of all parties; of categories they are not read.
    functions : int, default 1
        Of each number.
    values : sequence of str, default ()
        What the states are in the tables, see :class:`Category`.
    """
    states = states or ((),) * len(names)
    return tuple(
        Category(name, own, values[j] if values else "")
        if own
        else Number(name, float(mean[j]), float(np.sqrt(variance[j])), functions)
        for j, (name, own) in enumerate(zip(names, states, strict=True))
    )


def variables_from_plain(plain: Sequence[dict[str, Any]]) -> tuple[Variable, ...]:
    """Return variables of their fields, as ``dataclasses.asdict`` gives them."""
    return tuple(
        Category(**{**one, "states": tuple(one["states"])}) if "states" in one else Number(**one)
        for one in plain
    )


def with_lags(variables: Sequence[Variable], order: int) -> tuple[Variable, ...]:
    """Return the variables of the lagged design: those at t, t - 1, ..., t - order."""
    names = lagged_names([one.name for one in variables], order)
    every = [one for _ in range(1 + order) for one in variables]
    return tuple(replace(one, name=name) for one, name in zip(every, names, strict=True))


def design(table: Any, functions: int = 1) -> tuple[tuple[Variable, ...], FloatArray]:
    """Return the variables of a table, and the columns of its rows side by side.

    Parameters
    ----------
    table : array of shape (n, d), or object with ``.columns``
        Columns of numbers are numbers, all others categories, booleans too.
    functions : int, default 1
        Of each number.

    Returns
    -------
    variables : tuple of Number or Category
    columns : ndarray of shape (n, sum of widths)

    Raises
    ------
    ConfigError
        If the number of functions is not from 1 to 5.
    DataError
        If there are no rows, values are missing or infinite, or a column has one value.
    """
    if not 1 <= functions <= SIZE:
        raise ConfigError(f"functions is {functions}: give 1 to {SIZE} functions of a number")
    names, values = named_columns(table)
    if not values or not len(values[0]):
        raise DataError("the table has no rows")
    variables: list[Variable] = []
    parts = []
    for name, column in zip(names, values, strict=True):
        variable, own = _variable(table, name, column, functions)
        variables.append(variable)
        parts.append(variable.columns(own))
    return tuple(variables), np.column_stack(parts)


def _variable(
    table: Any, name: str, column: NDArray[Any], functions: int
) -> tuple[Variable, NDArray[Any]]:
    """Return a variable, and its numbers or the numbers of its states."""
    if column.dtype.kind not in "iuf":
        coded = as_discrete(table, [name])
        if len(coded.states[0]) < 2:
            raise DataError(f"column {name!r} has one value: leave it out")
        return Category(name, coded.states[0]), coded.codes[0]
    numbers = column.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise DataError(f"column {name!r} has missing or infinite values: drop or fill them")
    mean, scale = float(numbers.mean()), float(numbers.std())
    if scale <= 1e-12 * float(np.abs(numbers).max()):
        raise DataError(f"column {name!r} has one value: leave it out")
    return Number(name, mean, scale, functions), numbers


def column_names(variables: Sequence[Variable]) -> tuple[str, ...]:
    """Return a name for each column, as messages call it; numbered where two were the same."""
    names = tuple(term for one in variables for term in one.terms)
    if len(set(names)) == len(names):
        return names
    return tuple(f"{one.name}[{k}]" for one in variables for k in range(one.width))
