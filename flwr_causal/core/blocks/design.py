"""What a row becomes: columns z for numbers, curved effects and categories, with their lags.

Each variable is a block of columns. A category of k states is k - 1 columns, each 1 in the rows of
a state (Andrews, Ramsey & Cooper 2019): which state has none changes no score. A number is one
column, or several functions of it, by which its effects may be curved. The products of the rows
[1, z] are sums over rows, and those of several parties add up to those of the pooled rows.

Both sides derive a :class:`Design` from the agreement: ``protocol.second_moments.sent_design`` is
the one in whose units the party's z is, ``sources.products.solved_design`` that of the solver. They
differ where a source changes units (missing cells, different columns). A method's sums have one
shape, (sets, 1 + s, 1 + s): the products of the rows [1, z] of each set of rows, over the number of
all rows. Lags, states and functions change s; interventions and folds change the number of sets.

References
----------
Andrews, B., Ramsey, J. & Cooper, G. F. (2019). Learning high-dimensional directed acyclic graphs
with mixed data-types. PMLR 104.

Kish, L. (1965). Survey sampling. Wiley.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.blocks.normal_scores import NormalScores, scores_from_plain
from flwr_causal.core.discrete.discrete import as_discrete, labels_of, named_columns
from flwr_causal.core.linear.effects import Blocks
from flwr_causal.core.linear.moments import SampleMoments, columns_of
from flwr_causal.core.nonlinear.basis import SIZE, raw_basis
from flwr_causal.core.series.design import lagged_names
from flwr_causal.core.ties import whole
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray

#: Functions of a number whose effects may be curved. Measured on worlds of curved effects: three
#: did best of one to five, and of Legendre polynomials and hyperbolic tangents.
CURVED = 3


def functions_of(model: str) -> int:
    """Return the number of functions of a number: for "linear", "curved" or "additive" effects."""
    return {"linear": 1, "curved": CURVED, "additive": SIZE}[model]


def functions_of_rows(rows: FloatArray, functions: int) -> FloatArray:
    """Return functions of standardised rows (n, d), variable by variable, (n, d functions)."""
    if functions == 1:
        return rows
    return raw_basis(rows)[..., :functions].reshape(len(rows), -1)


@dataclass(frozen=True)
class Number:
    """A variable of numbers.

    Parameters
    ----------
    name : str
    mean, scale : float
        What is subtracted, and then divided by: mean of the rows of all parties and their standard
        deviation, above 0, or 1 where a column stays in its units.
    functions : int, default 1
        Columns of the block, 1 to 5: the number itself, and further functions of it, see
        :func:`flwr_causal.core.nonlinear.basis.raw_basis`.
    scores : NormalScores, optional
        The normal scores that take the place of the values, with mean 0 and scale 1.
    """

    name: str
    mean: float
    scale: float
    functions: int = 1
    scores: NormalScores | None = None

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
        given = np.asarray(values, dtype=np.float64)
        given = given if self.scores is None else self.scores.of(given)
        return functions_of_rows(((given - self.mean) / self.scale)[:, None], self.functions)

    def values(self, standardised: FloatArray) -> FloatArray:
        """Return the numbers of which these are the first column."""
        found = self.mean + self.scale * standardised
        return found if self.scores is None else self.scores.back(found)


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


def numbers_in_units(
    names: Sequence[str], scores: Sequence[NormalScores] = ()
) -> tuple[Variable, ...]:
    """Return numbers whose column has the units of the data, or of the normal scores given."""
    own = scores or (None,) * len(names)
    return tuple(Number(name, 0.0, 1.0, scores=one) for name, one in zip(names, own, strict=True))


def has_scores(variables: Sequence[Variable]) -> bool:
    """Return whether numbers are normal scores."""
    return any(isinstance(one, Number) and one.scores is not None for one in variables)


def blocks_of_columns(
    variables: Sequence[Variable],
    moments: SampleMoments | Sequence[SampleMoments],
    parties: Sequence[SampleMoments] = (),
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
        Category(**{**one, "states": tuple(one["states"])})
        if "states" in one
        else Number(**{**one, **_scores_of(one)})
        for one in plain
    )


def _scores_of(plain: dict[str, Any]) -> dict[str, Any]:
    """Return the normal scores of a number's fields, if it has some."""
    given = plain.get("scores")
    return {"scores": scores_from_plain(given)} if given else {}


def with_lags(variables: Sequence[Variable], order: int) -> tuple[Variable, ...]:
    """Return the variables of the lagged design: those at t, t - 1, ..., t - order."""
    names = lagged_names([one.name for one in variables], order)
    every = [one for _ in range(1 + order) for one in variables]
    return tuple(replace(one, name=name) for one, name in zip(every, names, strict=True))


@dataclass(frozen=True)
class Design:
    """What a row becomes: the columns z of d variables at t, t - 1, ..., t - p.

    Parameters
    ----------
    variables : tuple of Number or Category
        At t.
    order : int, default 0
        p, the number of lags.
    marked : bool, default False
        Whether the first column of z is a mark g: 1 in rows that are centred by the agreed means, 0
        in those that are centred by their own (``center="phase"``).
    weighted: bool = False
        Whether each row has a weight w >= 0. The party's z then has w before the other columns, and
        sums are over the rows [1, sqrt(w), w, sqrt(w) z]: they have the sums of w, of w^2, and of
        the products of [1, z], each times w. See :meth:`of_weighted` and :meth:`effective`.
    """

    variables: tuple[Variable, ...]
    order: int = 0
    marked: bool = False
    weighted: bool = False

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        mean: FloatArray,
        variance: FloatArray,
        states: Sequence[tuple[str, ...]] = (),
        values: Sequence[str] = (),
        *,
        functions: int = 1,
        standardized: bool = True,
        order: int = 0,
        marked: bool = False,
        weighted: bool = False,
    ) -> Design:
        """Return the design of columns that parties have agreed on.

        Parameters
        ----------
        names, mean, variance, states, values
            See :func:`variables_of`.
        functions : int, default 1
            Of each number.
        standardized : bool, default True
            Whether numbers are divided by their standard deviations.
        order, marked, weighted
            As of the class.
        """
        units = variance if standardized else np.ones(len(names))
        variables = variables_of(names, states, mean, units, functions, values)
        return cls(variables, order, marked, weighted)

    @cached_property
    def blocks(self) -> tuple[Variable, ...]:
        """The variables and their lags, m = d (1 + p)."""
        return with_lags(self.variables, self.order)

    @cached_property
    def widths(self) -> list[int]:
        """The number of columns of each block."""
        return [one.width for one in self.variables] * (1 + self.order)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """A name for each column of all blocks, as messages call it."""
        return column_names(self.blocks)

    @property
    def size(self) -> int:
        """s, the number of columns beside the ones, with the mark, or root and weight."""
        return self.marked + 2 * self.weighted + sum(self.widths)

    @property
    def numbers(self) -> bool:
        """Whether each variable is a number, with as many functions as the others."""
        return all(isinstance(one, Number) for one in self.variables)

    @property
    def single(self) -> bool:
        """Whether each variable is a number of one column."""
        return self.numbers and all(one.width == 1 for one in self.variables)

    @property
    def scale(self) -> FloatArray:
        """What numbers are divided by, shape (d,); 1 for categories."""
        return np.array([one.scale if isinstance(one, Number) else 1.0 for one in self.variables])

    def with_means(self, mean: FloatArray) -> Design:
        """Return the design of rows that are centred by means of their own, shape (d,)."""
        return self._with(lambda one, value: replace(one, mean=float(value)), mean)

    def with_scales(self, scale: FloatArray) -> Design:
        """Return the design of numbers that are divided by scales of their own, shape (d,)."""
        return self._with(lambda one, value: replace(one, scale=float(value)), scale)

    def with_scores(self, scores: Sequence[NormalScores]) -> Design:
        """Return the design of numbers that are normal scores; those of categories are not read."""
        return self._with(lambda one, own: replace(one, scores=own), scores)

    def _with(self, change: Callable[[Number, Any], Number], values: Iterable[Any]) -> Design:
        """Return the design of numbers that are changed by a value for each variable."""
        variables = tuple(
            change(one, value) if isinstance(one, Number) else one
            for one, value in zip(self.variables, values, strict=True)
        )
        return replace(self, variables=variables)

    def rows_of(self, numbers: FloatArray) -> FloatArray:
        """Return z at t of complete rows of numbers, (n, d): the fast form of `Number.columns`."""
        rows = numbers - [one.mean for one in self.variables if isinstance(one, Number)]
        if (self.scale != 1).any():
            rows /= self.scale
        return functions_of_rows(rows, self.variables[0].width)

    def without_mark(self, products: FloatArray) -> FloatArray:
        """Return products of the rows [1, z], less those of the mark."""
        return np.delete(np.delete(products, 1, -1), 1, -2) if self.marked else products

    def of_weighted(self, rows: FloatArray) -> FloatArray:
        """Return the columns of sums beside the ones, (n, s), from a party's rows [w, z]."""
        roots = np.sqrt(rows[:, :1])
        return np.column_stack([roots, rows[:, :1], roots * rows[:, 1:]])

    def effective(self, products: FloatArray, pooled: FloatArray) -> FloatArray:
        """Return the products of rows [1, z] that each count as their weight times a constant.

        The constant is sum w / sum w^2 over all rows, which all rows together then count as: Kish's
        effective number of rows, (sum w)^2 / sum w^2. It does not depend on the weights' unit.

        Parameters
        ----------
        products : ndarray of shape (..., 1 + s, 1 + s)
            Of weighted rows.
        pooled : ndarray of shape (1 + s, 1 + s)
            Those of all rows, divided by any number.
        """
        kept = [1, *range(3, products.shape[-1])]  # sqrt(w) [1, z]
        return np.asarray(products[..., kept, :][..., kept] * (pooled[1, 1] / pooled[2, 2]))

    def moments(self, products: FloatArray, num_rows: int) -> SampleMoments:
        """Return the moments of rows from their products, (1 + s, 1 + s) divided by ``num_rows``.

        Of marked rows they are about the mean of those with the mark 1: the others are centred.
        """
        (found,) = self.moments_of_sets(products[None], num_rows)
        return found

    def moments_of_sets(self, products: FloatArray, num_rows: int) -> list[SampleMoments]:
        """Return the moments of each set of rows that is not empty, all about one mean.

        That is the mean of all sets: held-out rows are compared with the intercepts of all rows.

        Parameters
        ----------
        products : ndarray of shape (sets, 1 + s, 1 + s)
            Divided by ``num_rows``.
        num_rows : int
            n, the number of all rows.
        """
        place = int(self.marked)
        counts, sums = products[:, place, place], products[:, place, 1 + place :]
        level = sums.sum(axis=0) / counts.sum()
        found = []
        for own, count, by_mean in zip(products, counts, sums, strict=True):
            share = own[0, 0]
            if share == 0:
                continue
            about = np.outer(level, by_mean)
            inner = own[1 + place :, 1 + place :]
            second = inner - about - about.T + count * np.outer(level, level)
            rows = max(whole(num_rows * float(share)), 1)
            found.append(SampleMoments(rows, level, second / share, self.columns))
        return found


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
