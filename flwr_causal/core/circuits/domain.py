"""The variables of a circuit, and the encoding of their values as numbers.

Circuits work on ``values``, float64 of shape (n, d). A number is kept, a state of a category is
encoded as its index, a number that is known only by its interval as the index of the interval, and
a missing value as NaN, which every query sums or integrates out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.discrete.discrete import labelled, state_name
from flwr_causal.core.graphs.graph import distinct_names
from flwr_causal.core.words import one_form, some
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray


class Variable(NamedTuple):
    """One column.

    Parameters
    ----------
    name : str
        Name of the column.
    states : tuple, optional
        The labels of a category, in the order of their indices. Default: a number.
    edges : tuple of float, optional
        Ascending cut points of a number that is known only by its interval. Interval k holds
        ``edges[k - 1] < x <= edges[k]``; the first and the last are open.
    missing_state : bool, default False
        Whether a missing value is a state (an interval) of its own, the last one.
    inside : tuple of (float, float), optional
        Mean and standard deviation of the numbers in each interval, that of missing values
        excluded; the deviation is 0 where an interval holds one value. Default: numbers are evenly
        distributed between two edges, and the first and the last interval are as wide as their
        neighbours, or 1 if they have none.
    whole : bool, default False
        Whether the numbers of an interval are whole; draws are then rounded.
    """

    name: str
    states: tuple[Any, ...] | None = None
    edges: tuple[float, ...] | None = None
    missing_state: bool = False
    inside: tuple[tuple[float, float], ...] | None = None
    whole: bool = False

    @property
    def num_states(self) -> int:
        """Number of states or intervals, including that of missing values; 0 for a number."""
        if self.states is not None:
            return len(self.states) + self.missing_state
        if self.edges is not None:
            return len(self.edges) + 1 + self.missing_state
        return 0

    @property
    def moments_inside(self) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the numbers in each interval, both (intervals,)."""
        if self.inside is not None:
            means, deviations = np.array(self.inside).T
            return means, deviations
        inner = np.asarray(self.edges, dtype=np.float64)
        if len(inner) == 0:
            bounds = np.array([-0.5, 0.5])
        else:
            widths = np.diff(inner) if len(inner) > 1 else np.ones(1)
            bounds = np.concatenate(([inner[0] - widths[0]], inner, [inner[-1] + widths[-1]]))
        return (bounds[1:] + bounds[:-1]) / 2, np.diff(bounds) / math.sqrt(12)

    @property
    def _widths(self) -> FloatArray:
        """Width of each interval between two edges, shape (edges - 1,).

        Of whole numbers it is how many there are. None is narrower than a thousandth of the median:
        rounding can leave almost nothing between two edges.
        """
        widths = np.diff(np.asarray(self.edges, dtype=np.float64))
        if self.whole:
            return np.maximum(np.diff(np.floor(self.edges or ())), 1.0)
        spread = self.moments_inside[1][1:-1] > 0
        return np.maximum(widths, 1e-3 * np.median(widths[spread])) if spread.any() else widths

    @property
    def _narrowest(self) -> float:
        """Width of the narrowest interval between two edges that holds several values."""
        deviations = self.moments_inside[1]
        spread = deviations[1:-1] > 0
        return float(self._widths[spread].min() if spread.any() else deviations.max() or 1.0)

    def log_density_inside(self, numbers: FloatArray) -> FloatArray:
        """Log density of numbers within their intervals, shape (n,); 0 for a missing one.

        Added to the log probability of the interval it gives the log density of the number. It is
        even between two edges. Beyond the first and the last one it falls exponentially with the
        distance, whose mean is that of ``inside``. Of whole numbers it is a log probability. It is
        0 in an interval of one value, so that the sum is the log probability of the value, and
        without edges, as of a constant column, of which no number says anything.
        """
        edges = np.asarray(self.edges, dtype=np.float64)
        means, deviations = self.moments_inside
        if len(edges) == 0:
            return np.zeros(len(numbers))
        index = np.searchsorted(edges, numbers, side="left")
        inner = np.where(deviations[1:-1] > 0, -np.log(self._widths), 0.0)
        result = np.concatenate(([0.0], inner, [0.0]))[index]
        starts = (edges[0], means[0]), (edges[-1] + self.whole, means[-1])
        for end, (start, mean) in zip((0, len(edges)), starts, strict=True):
            beyond_end = (index == end) & ~np.isnan(numbers)
            one_value = deviations[end] == 0.0  # other numbers lie beyond it
            beyond = np.abs(numbers[beyond_end] - (mean if one_value else start))
            scale = self._narrowest if one_value else abs(mean - start)
            if self.whole:
                share = scale / (1.0 + scale) if scale else 0.5
                density = beyond * math.log(share) + math.log1p(-share)
            else:
                scale = max(scale, 1e-3 * self._narrowest)
                density = -beyond / scale - math.log(scale)
            result[beyond_end] = np.where((beyond == 0) & one_value, 0.0, density)
        return np.where(np.isnan(numbers), 0.0, result)

    @property
    def log_heights(self) -> FloatArray:
        """Log density of each interval's numbers at their mean, 0 for missing ones, (states,).

        An interval of one value counts as wide as the narrowest of the others, whose densities it
        is compared with.
        """
        means, deviations = self.moments_inside
        heights = self.log_density_inside(means)
        if not self.whole:
            heights[deviations == 0] = -math.log(self._narrowest)
        return np.append(heights, 0.0) if self.missing_state else heights


@dataclass(frozen=True, repr=False)
class Domain:
    """The variables of a table, in the order of its columns.

    Parameters
    ----------
    variables : tuple of Variable
        Their names must differ.

    Raises
    ------
    DataError
        If names repeat, or a variable's states or edges are invalid.
    """

    variables: tuple[Variable, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", tuple(_checked(one) for one in self.variables))
        distinct_names(self.names)

    def __repr__(self) -> str:
        categories = int((self.num_states > 0).sum())
        return f"<Domain: {len(self.variables)} variables, {categories} of them with states>"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The variables' names."""
        return tuple(variable.name for variable in self.variables)

    @cached_property
    def num_states(self) -> IntArray:
        """Number of states of each variable, 0 for a number, shape (d,)."""
        counts = np.array([variable.num_states for variable in self.variables], dtype=np.int64)
        counts.setflags(write=False)
        return counts

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.names)}

    def index(self, name: str) -> int:
        """Return a variable's column; a DataError that lists the names if there is none."""
        if name not in self._columns:
            names = ", ".join(self.names)
            raise DataError(f"there is no variable {name!r}: expected one of {names}")
        return self._columns[name]

    def encode(self, data: Any, columns: Iterable[str] | None = None) -> FloatArray:
        """Return data as values.

        Parameters
        ----------
        data : DataFrame, or array of shape (n, d)
            Columns of a frame are found by name. Further columns are ignored; a variable without a
            column is missing in every row. An array must hold values already, and is checked.
        columns : iterable of str, optional
            The variables to read; the others are missing. Default: all.

        Returns
        -------
        ndarray of float64, shape (n, d)

        Raises
        ------
        DataError
            If a value is not a state of its variable, or not a finite number.
        """
        wanted = set(self.names if columns is None else columns)
        if hasattr(data, "columns"):
            return self._encoded_frame(data, wanted)
        values = np.array(data, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.variables):
            raise DataError(
                f"an array of values has the shape (rows, {len(self.variables)}), got "
                f"{values.shape}: give a frame whose columns have names"
            )
        for j, variable in enumerate(self.variables):
            if variable.name not in wanted:
                values[:, j] = np.nan
            else:
                _check_column(variable, values[:, j])
        return values

    def _encoded_frame(self, frame: Any, wanted: set[str]) -> FloatArray:
        given = [one_form(str(name)) for name in frame.columns]
        distinct_names(name for name in given if name in wanted)
        place = {name: k for k, name in enumerate(given)}
        values = np.full((len(frame), len(self.variables)), np.nan)
        for j, variable in enumerate(self.variables):
            if variable.name not in wanted or variable.name not in place:
                continue
            column = frame.iloc[:, place[variable.name]]
            if variable.states is not None:
                values[:, j] = _encoded_states(variable.name, column, variable.states)
            elif variable.edges is not None:
                values[:, j] = _encoded_interval(variable.name, column, variable.edges)
            else:
                values[:, j] = _encoded_number(variable.name, column)
            if variable.missing_state:
                values[np.isnan(values[:, j]), j] = variable.num_states - 1
        return values

    def log_density_inside(
        self, data: Any, values: FloatArray, columns: Iterable[int]
    ) -> FloatArray:
        """Log density of the numbers of each row within their intervals, shape (n,).

        Parameters
        ----------
        data : DataFrame or array of values
            In an array of values a number is the mean of its interval.
        values : ndarray of float64, shape (n, d)
            The same, as `encode` returns it.
        columns : iterable of int
        """
        result = np.zeros(len(values))
        for column in columns:
            variable = self.variables[column]
            if variable.edges is None:
                continue
            if not hasattr(data, "columns"):
                numbers = self.decoded_column(column, values[:, column])
            elif variable.name in data.columns:
                numbers = _encoded_number(variable.name, data[variable.name])
            else:
                continue
            result += variable.log_density_inside(numbers)
        return result

    def decode(
        self,
        values: FloatArray,
        columns: Iterable[str] | None = None,
        rng: np.random.Generator | None = None,
    ) -> pd.DataFrame:
        """Return values as a frame, the opposite of `encode`.

        Parameters
        ----------
        values : ndarray of float64, shape (n, d)
        columns : iterable of str, optional
            The variables of the frame, in the domain's order. Default: all.
        rng : Generator, optional
            Draws a number from each interval: its value where it holds one only, an even draw
            between two edges, and one of the gamma distribution beyond the first and the last edge.
            Default: the mean of the interval's numbers.

        Returns
        -------
        DataFrame
            States are their labels; missing values are NaN.
        """
        import pandas as pd

        wanted = set(self.names if columns is None else columns)
        decoded = {}
        for j, variable in enumerate(self.variables):
            if variable.name in wanted:
                decoded[variable.name] = self.decoded_column(j, values[:, j], rng)
        return pd.DataFrame(decoded, index=pd.RangeIndex(len(values)))

    def decoded_column(
        self, column: int, values: FloatArray, rng: np.random.Generator | None = None
    ) -> NDArray[Any]:
        """Return the values of one column, shape (n,), as `decode` does."""
        variable = self.variables[column]
        if variable.missing_state:
            values = np.where(values == variable.num_states - 1, np.nan, values)
        if variable.states is not None:
            return _decoded_states(values, variable.states)
        if variable.edges is not None:
            return _decoded_interval(values, variable, rng)
        return np.array(values, dtype=np.float64)

    @classmethod
    def from_frame(cls, frame: Any, categorical: Sequence[str] = ()) -> Domain:
        """Return the domain of a frame's columns.

        Parameters
        ----------
        frame : DataFrame
            Columns of texts, booleans and pandas categories have states; the others are numbers.
        categorical : sequence of str, optional
            Further columns that have states.

        Returns
        -------
        Domain
            States are the values that occur, sorted; for a pandas category its categories, in
            their order.

        Raises
        ------
        DataError
            If ``categorical`` names a column that does not exist.
        """
        names = distinct_names(frame.columns)
        for name in categorical:
            if name not in names:
                raise DataError(f"there is no column {name!r} to take for a category")
        return cls(
            tuple(
                Variable(name, _states_of(frame.iloc[:, j], name in categorical))
                for j, name in enumerate(names)
            )
        )

    def to_plain(self) -> list[dict[str, Any]]:
        """Return lists and plain values for JSON; a DataError if JSON cannot hold a state."""
        for variable in self.variables:
            for state in variable.states or ():
                if not isinstance(state, str | int | float | bool):
                    raise DataError(
                        f"column {variable.name!r}: the state {state!r} is neither text nor number "
                        "and cannot be written: turn the column into text"
                    )
        return [variable._asdict() for variable in self.variables]

    @classmethod
    def from_plain(cls, plain: Sequence[Mapping[str, Any]]) -> Domain:
        """Return the domain that `to_plain` wrote; a DataError if the values are invalid."""
        try:
            return cls(tuple(Variable(**one) for one in plain))
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"this is no domain ({error}): write it again") from error


def _checked(variable: Variable) -> Variable:
    """Return a variable with tuples of plain states and edges."""
    name, states, edges, missing_state, inside, whole = variable
    if states is not None and edges is not None:
        raise DataError(f"variable {name!r} has states and edges: give one of them")
    if states is not None:
        states = tuple(one.item() if isinstance(one, np.generic) else one for one in states)
        if not states or len(set(states)) < len(states):
            raise DataError(f"variable {name!r} needs different states, got {states}")
    if edges is not None:
        edges = tuple(float(edge) for edge in edges)
        if not all(map(math.isfinite, edges)) or sorted(set(edges)) != list(edges):
            raise DataError(f"variable {name!r}: edges must be finite and ascend, got {edges}")
    if missing_state and states is None and edges is None:
        raise DataError(f"variable {name!r}: a number has no state for missing values: give edges")
    if inside is not None:
        inside = tuple((float(mean), float(deviation)) for mean, deviation in inside)
        if edges is None or len(inside) != len(edges) + 1:
            raise DataError(f"variable {name!r}: give mean and deviation of each interval")
        bounds = zip((-math.inf, *edges), inside, (*edges, math.inf), strict=True)
        if not all(low < mean <= high and 0 <= sd < math.inf for low, (mean, sd), high in bounds):
            raise DataError(
                f"variable {name!r}: means must lie in their intervals and deviations be finite, "
                f"got {inside}"
            )
    return Variable(str(name), states, edges, bool(missing_state), inside, bool(whole))


def _check_column(variable: Variable, column: FloatArray) -> None:
    """Raise a DataError unless a column of values fits its variable."""
    present = column[~np.isnan(column)]
    if variable.num_states:
        bad = (present < 0) | (present >= variable.num_states) | (present != np.floor(present))
        expected = f"a whole number from 0 to {variable.num_states - 1}"
    else:
        bad, expected = ~np.isfinite(present), "a finite number"
    if bad.any():
        raise DataError(f"column {variable.name!r} holds {present[bad][0]}: expected {expected}")


def _states_of(column: Any, named: bool) -> tuple[Any, ...] | None:
    """Return the states of a frame's column, or None for a number.

    Parameters
    ----------
    column : Series
    named : bool
        Whether the column was named as a category; then numbers are states too.
    """
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        return tuple(column.cat.categories.tolist())
    number = pd.api.types.is_numeric_dtype(column.dtype)
    if number and not named and not pd.api.types.is_bool_dtype(column.dtype):
        return None
    present = column.dropna().unique().tolist()
    try:
        return tuple(sorted(present))
    except TypeError:  # texts beside numbers have no order of their own
        return tuple(sorted(present, key=lambda state: (type(state).__name__, str(state))))


def _encoded_states(name: str, column: Any, states: Sequence[Any]) -> FloatArray:
    """Return the index of each row's state, NaN where it is missing, shape (n,)."""
    import pandas as pd

    codes, present = pd.factorize(column)
    index_of = _positions(states)
    # The last entry is for the code of missing values, -1.
    indices = np.full(len(present) + 1, np.nan)
    for k, value in enumerate(present):
        position = index_of.get(value, index_of.get(_name_of(value)))
        if position is None:
            raise DataError(
                f"column {name!r} holds {value!r}, which is none of its states "
                f"{some(map(repr, states))}: correct the value, or leave it empty"
            )
        indices[k] = position
    return np.asarray(indices[codes])


def _positions(states: Sequence[Any]) -> dict[Any, int]:
    """Return the position of each state, by its label and by its name."""
    named = {_name_of(state): k for k, state in enumerate(states)}
    return named | {state: k for k, state in enumerate(states)}


def _name_of(value: Any) -> Any:
    """Return the name of a value as parties agree on it; of other values, such as dates, itself."""
    known = isinstance(value, str | int | float | np.integer | np.floating | np.bool_)
    return state_name(value) if known else value


def without_unseen(column: Any, states: Sequence[Any]) -> tuple[Any, int]:
    """Return a column in which values that are none of the states are missing, and their number."""
    import pandas as pd

    codes, present = pd.factorize(column)
    known = _positions(states)
    found = [value not in known and _name_of(value) not in known for value in present]
    unseen = np.array([*found, False], dtype=np.bool_)[codes]
    return (column.astype(object).where(~unseen) if unseen.any() else column), int(unseen.sum())


def _encoded_number(name: str, column: Any) -> FloatArray:
    """Return a column of numbers, NaN where they are missing, shape (n,)."""
    import pandas as pd

    try:
        values: FloatArray = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise DataError(f"column {name!r} must hold numbers ({error})") from error
    if np.isinf(values).any():
        raise DataError(f"column {name!r} holds an infinite number: leave the value empty")
    return values


def _encoded_interval(name: str, column: Any, edges: Sequence[float]) -> FloatArray:
    """Return the index of each row's interval, NaN where it is missing, shape (n,)."""
    values = _encoded_number(name, column)
    intervals = np.searchsorted(np.asarray(edges), values, side="left").astype(np.float64)
    intervals[np.isnan(values)] = np.nan
    return intervals


def _decoded_states(values: FloatArray, states: Sequence[Any]) -> NDArray[Any]:
    """Return the states of indices, as an array of numbers if all are and none is missing."""
    missing = np.isnan(values)
    found = labelled(states, np.where(missing, 0, values).astype(np.int64))
    if missing.any():
        found = found.astype(object)
        found[missing] = np.nan
    return found


def _decoded_interval(
    values: FloatArray, variable: Variable, rng: np.random.Generator | None
) -> FloatArray:
    """Return a number from each interval: a draw, or without ``rng`` its mean."""
    means, deviations = variable.moments_inside
    missing = np.isnan(values)
    index = np.where(missing, 0, values).astype(np.int64)
    numbers = means[index]
    if rng is not None:
        edges = np.asarray(variable.edges, dtype=np.float64)
        drawn = numbers + (rng.random(len(values)) - 0.5) * np.sqrt(
            12 * deviations[index] ** 2 + variable.whole
        )
        if variable.inside is not None and len(edges):
            first, last = index == 0, index == len(edges)
            low, high = edges[0], edges[-1] + variable.whole
            drawn[first] = low - _gamma_draws(low - means[0], deviations[0], first.sum(), rng)
            drawn[last] = high + _gamma_draws(means[-1] - high, deviations[-1], last.sum(), rng)
        if variable.whole:
            drawn = np.rint(drawn)
        # Rounding must not leave the interval.
        least = edges + 1.0 if variable.whole else np.nextafter(edges, np.inf)
        drawn = np.maximum(drawn, np.concatenate(([-np.inf], least))[index])
        drawn = np.minimum(drawn, np.concatenate((edges, [np.inf]))[index])
        numbers = np.where(deviations[index] > 0, drawn, numbers)
    numbers[missing] = np.nan
    return np.asarray(numbers)


def _gamma_draws(mean: float, deviation: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw distances of the gamma distribution with this mean and deviation, shape (n,)."""
    if mean <= 0 or deviation <= 0:
        return np.full(n, max(mean, 0.0))
    return rng.gamma((mean / deviation) ** 2, deviation**2 / mean, n)
