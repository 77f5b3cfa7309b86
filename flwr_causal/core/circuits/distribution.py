"""The queries of a circuit in terms of frames, names and labels.

The engine (`layers`) answers them; it works on *values* only, see `domain`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.graphs import notebook
from flwr_causal.core.threads import SingleThreaded
from flwr_causal.core.ties import first_largest
from flwr_causal.core.words import with_forms
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.layers import Layers


class Distribution(SingleThreaded, ABC):
    """A joint distribution of the variables in a scope.

    Data are frames whose columns are found by name, or arrays of shape (n, d) that hold values as
    `Domain.encode` makes them. Further columns of a frame are ignored; missing columns and missing
    values are summed or integrated out.

    Attributes
    ----------
    domain : Domain
        Contains the variables of the scope, and possibly others.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.solvers import learn_spn
    >>> table = pd.DataFrame({"rain": ["no", "yes"] * 20, "wet": ["no", "yes"] * 20})
    >>> learn_spn(table).log_likelihood(table[["rain"]]).shape  # wet is summed out
    (40,)
    """

    domain: Domain

    @property
    @abstractmethod
    def scope(self) -> tuple[int, ...]:
        """The columns of the distribution, ascending."""

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """Number of free parameters."""

    @property
    @abstractmethod
    def layers(self) -> Layers:
        """The circuit as the engine evaluates it."""

    @property
    def peak_layers(self) -> Layers:
        """The circuit as the engine finds most probable explanations."""
        return self.layers

    def log_densities(self, values: FloatArray) -> FloatArray:
        """Log density of rows (n, d), NaN integrated out, shape (n,)."""
        return self.layers.log_densities(values)

    def state_probabilities(self, values: FloatArray, column: int) -> FloatArray:
        """Probability of each state of a category given the rest of each row, (n, states).

        The column itself is not read. An impossible row is a DataError.
        """
        num_states = self.domain.variables[column].num_states
        return self.layers.state_probabilities(values, column, num_states)

    @abstractmethod
    def marginal(self, names: Iterable[str]) -> Distribution:
        """Return the distribution of some of the variables."""

    @abstractmethod
    def conditional(self, evidence: Mapping[str, Any]) -> Distribution:
        """Return the distribution of the other variables given the values of some."""

    @abstractmethod
    def save(self, directory: str | Path) -> None:
        """Write into a directory; numbers survive exactly."""

    def out_of_reach(self) -> Distribution:
        """Return the distribution without access to parties; a local circuit returns itself."""
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The variables in the scope."""
        return tuple(self.domain.names[column] for column in self.scope)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the variables, with their states."""
        variables = [self.domain.variables[column] for column in self.scope]
        listed = [
            (one.name, "number" if one.states is None else ", ".join(map(str, one.states)))
            for one in variables
        ]
        return notebook.section(
            repr(self), notebook.table(("variable", "states"), listed, "variables")
        )

    def encode(self, data: Any) -> FloatArray:
        """Return data as values, columns outside the scope missing, shape (n, d)."""
        return self.domain.encode(data, self.names)

    def log_likelihood(self, data: Any) -> FloatArray:
        """Log density of each row in nats, missing values integrated out, shape (n,).

        Of a category it is the log probability of the state. A number in intervals has the density
        of its interval (`Variable.log_density_inside`), which is finite wherever training smooths
        probabilities, also for a value that many rows share.
        """
        values = self.encode(data)
        inside = self.domain.log_density_inside(data, values, self.scope)
        return self.log_densities(values) + inside

    def anomaly_score(self, data: Any) -> FloatArray:
        """Minus the log-likelihood of each row: high where a row is unlike the others."""
        return -self.log_likelihood(data)

    def classes(self, target: str) -> NDArray[Any]:
        """Return the labels of a category in the order of `predict_proba`."""
        return self._labels(self._category(target))

    def is_number(self, name: str) -> bool:
        """Whether a variable is a number, also one that is only known by its interval."""
        return self.domain.variables[self._column(name)].states is None

    def predict_proba(self, data: Any, target: str) -> FloatArray:
        """Probability of each class given the rest of each row, shape (n, classes).

        Parameters
        ----------
        data : DataFrame or array of values
            A column of the target is not read.
        target : str
            A variable with states.

        Raises
        ------
        DataError
            If the target is not in the scope, or what is known of a row is impossible.
        ConfigError
            If the target is a number.
        """
        column = self._category(target)
        return self.state_probabilities(self._without_target(data, target), column)

    def predict(self, data: Any, target: str, threshold: float | None = None) -> NDArray[Any]:
        """Return the most probable class of each row as its label, or the mean of a number, (n,).

        Parameters
        ----------
        data : DataFrame or array of values
            A column of the target is not read.
        target : str
            A category, or a number, whose mean given the rest of the row is returned.
        threshold : float, optional
            Probability from which on the second of two classes is predicted. Default: the more
            probable class is predicted.

        Raises
        ------
        ConfigError
            For a threshold and another number of classes than two.
        """
        column = self._column(target)
        if self.is_number(target):
            if threshold is not None:
                raise ConfigError(f"a threshold is for two classes, {target!r} is a number")
            return self._moments(self._without_target(data, target), column)[0]
        chosen = chosen_classes(self.predict_proba(data, target), threshold, target)
        return np.asarray(self.classes(target)[chosen])

    def moments(self, name: str, data: Any) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of a number given what each row holds, both of shape (n,).

        A given value is its own mean, with variance 0. For a category whose states are numbers the
        moments are those of the states; of a number in intervals those within intervals are part of
        them (``Variable.inside``).

        Raises
        ------
        ConfigError
            If the variable's states are no numbers.
        DataError
            If what is known of a row is impossible.
        """
        column = self._column(name)
        values = self.encode(data)
        means, variances = self._moments(values, column)
        present = np.flatnonzero(~np.isnan(values[:, column]))
        if self.domain.variables[column].edges is not None and hasattr(data, "columns"):
            seen = present[~np.asarray(data[name].isna())[present]] if len(present) else present
            means[seen] = np.asarray(data[name], dtype=np.float64)[seen] if len(seen) else 0.0
            variances[seen] = 0.0
        return means, variances

    def _moments(self, values: FloatArray, column: int) -> tuple[FloatArray, FloatArray]:
        """Return `moments` of values, those of the interval where it is given."""
        variable = self.domain.variables[column]
        num_states = variable.num_states
        if num_states == 0:
            return self.layers.column_moments(values, column)
        try:
            numbers = np.asarray(self._labels(column), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"the states of {variable.name!r} are no numbers ({error})"
            ) from error
        shares = self.state_probabilities(values, column)
        present = np.flatnonzero(~np.isnan(values[:, column]))
        shares[present] = np.eye(num_states)[values[present, column].astype(np.int64)]
        seen = np.isfinite(numbers)  # not the state of missing values
        with np.errstate(invalid="ignore"):
            shares = shares[:, seen] / shares[:, seen].sum(axis=1, keepdims=True)
        means = shares @ numbers[seen]
        within = 0.0 if variable.edges is None else variable.moments_inside[1] ** 2
        return means, (shares * (within + (numbers[seen] - means[:, None]) ** 2)).sum(axis=1)

    def mpe(self, data: Any) -> pd.DataFrame:
        """Fill missing values by the most probable explanation of each row.

        It is found by max-product. The result is exact if at most one child of every sum is
        possible for a complete row (as in a mixture over classes, with the class among the
        variables). Otherwise it is the mode of the best combination of components, not of their
        mixture. A number in intervals is where its density is largest, not the probability of the
        interval, which rises with its width.

        Returns
        -------
        DataFrame
            The circuit's variables. Given values are unchanged; an interval becomes the mean of its
            numbers.
        """
        data = with_forms(data) if hasattr(data, "columns") else data
        values = self.encode(data)
        filled = self.domain.decode(self.peak_layers.mpe(values), self.names)
        if hasattr(data, "columns"):
            for name in self.names:
                if name in data.columns:
                    column = self.domain.index(name)
                    filled[name] = _with_given(filled[name], data[name], values[:, column])
        return filled

    def sample(self, n: int, seed: int | None = None, given: Any = None) -> pd.DataFrame:
        """Draw rows; the same seed gives the same rows.

        Parameters
        ----------
        n : int
            Number of rows.
        seed : int, optional
            Default: different rows at every call.
        given : mapping of str to object, or data of n rows, optional
            Evidence: one for all rows, or the known values of each row.

        Returns
        -------
        DataFrame
            The circuit's variables. An interval becomes a draw from it, see `Domain.decode`.

        Raises
        ------
        ConfigError
            If ``n`` is negative.
        DataError
            If the evidence is impossible, or has another number of rows.
        """
        if n < 0:
            raise ConfigError(f"the number of rows is {n}: it must not be negative")
        values = np.full((n, len(self.domain.variables)), np.nan)
        if given is not None and not hasattr(given, "columns") and hasattr(given, "items"):
            values[:] = self._encoded_row(given)
        elif given is not None:
            values = self.encode(given)
            if len(values) != n:
                raise DataError(f"{n} rows are to be drawn, {len(values)} are given")
        rng = np.random.default_rng(seed)
        return self.domain.decode(self.layers.sample(values, rng), self.names, rng)

    def _column(self, name: str) -> int:
        column = self.domain.index(name)
        if column not in self.scope:
            raise DataError(f"{name!r} is not in the circuit's scope: {', '.join(self.names)}")
        return column

    def _category(self, name: str) -> int:
        column = self._column(name)
        if self.is_number(name):
            raise ConfigError(
                f"{name!r} is a number, which has no classes: `moments` returns its mean and "
                "variance, `predict` its mean"
            )
        return column

    def _labels(self, column: int) -> NDArray[Any]:
        states = np.arange(self.domain.variables[column].num_states, dtype=np.float64)
        return self.domain.decoded_column(column, states)

    def _without_target(self, data: Any, target: str) -> FloatArray:
        """Return data as values, the column of the target missing."""
        return self.domain.encode(data, [name for name in self.names if name != target])

    def _encoded_row(self, evidence: Mapping[str, Any]) -> FloatArray:
        """Return evidence as values, shape (d,)."""
        import pandas as pd

        for name in evidence:
            self._column(name)
        frame = pd.DataFrame({name: [value] for name, value in evidence.items()}, index=[0])
        return np.asarray(self.encode(frame)[0])


def _with_given(filled: pd.Series[Any], given: pd.Series[Any], values: FloatArray) -> NDArray[Any]:
    """Return a filled column with the given values in their original form."""
    there = given.notna().to_numpy() & ~np.isnan(values)
    result = filled.to_numpy(copy=True)
    if there.all():
        return given.to_numpy()
    result[there] = given.to_numpy()[there]
    return result


def chosen_classes(
    probabilities: FloatArray, threshold: float | None, target: str
) -> NDArray[np.int64]:
    """Return the class that is predicted for each row, (n,).

    Parameters
    ----------
    probabilities : ndarray of float, shape (n, classes)
    threshold : float or None
        Probability from which on the second of two classes is chosen. None: the more probable one.
    target : str
        Name of the class, for the error message.

    Raises
    ------
    ConfigError
        For a threshold and another number of classes than two.
    """
    if threshold is None:
        return first_largest(probabilities, axis=1).astype(np.int64)
    if probabilities.shape[1] != 2:
        raise ConfigError(
            f"a threshold is for two classes, {target!r} has {probabilities.shape[1]}"
        )
    return np.asarray(probabilities[:, 1] >= threshold, dtype=np.int64)
