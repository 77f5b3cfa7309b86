"""What linear systems with and without lags share: checks, tests, parties and files."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np

from flwr_causal.core.arrays import frozen_floats
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.adjustment import after_intervention
from flwr_causal.core.graphs.graph import distinct_names, frozen_booleans, pair_of, place_of
from flwr_causal.core.linear import effects, fit_check
from flwr_causal.core.linear.moments import (
    Moments,
    columns_of,
    distinct,
    from_plain_by_variable,
    moments_of_variables,
    plain_by_variable,
    with_rows,
)
from flwr_causal.core.linear.parties import disagreement, known_parties, left_out_log_likelihood
from flwr_causal.core.saved import read_record, undamaged, write_record
from flwr_causal.core.threads import SingleThreaded
from flwr_causal.core.words import one_form
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.doubt import EdgeTest
    from flwr_causal.core.graphs.effect import Effect

#: Moments of the rows that inform about all variables, or of those that inform about each.
SampleMoments: TypeAlias = Moments | tuple[Moments, ...]


class LinearSystem(SingleThreaded):
    """A linear system with Gaussian noise on a DAG, as a frozen dataclass.

    Subclasses say what it is called (``KIND``), which arrays it has (``FIELDS``), and which columns
    its moments have. See :class:`~core.linear.model.LinearModel` for the attributes.
    """

    KIND: ClassVar[str]
    FIELDS: ClassVar[tuple[str, ...]]

    names: tuple[str, ...]
    weights: FloatArray
    intercepts: FloatArray
    noise_variances: FloatArray
    sample_moments: SampleMoments | None
    marks: BoolArray | None
    party_moments: Mapping[str, Moments] | None
    held_out_log_likelihood: float | None

    @property
    def _edges(self) -> BoolArray:
        """The parents of each variable among the columns of the moments, ``(m, d)``."""
        return np.asarray(self.weights != 0)

    def _design(self, now: BoolArray) -> BoolArray:
        """Return edges without a lag, ``(d, d)``, as a graph over the columns of the moments."""
        return now

    def possible_effects(
        self, cause: str, effect: str, *, level: float = 0.95, by_party: bool = False
    ) -> list[Effect]:
        """Return the total effects in the DAGs of the model's equivalence class (local IDA).

        There is an effect for each set of parents that the cause has in a DAG of the class, which
        are adjusted for (Maathuis, Kalisch & Bühlmann, 2009); with lags these are effects within a
        step, and parents at t and before. Different sets may give the same effect. A model of a DAG
        has one set. Small sets come first, of sets of one size the smaller effect.

        Parameters and errors are those of :meth:`total_effect`; a DataError also if a moment is
        unknown.
        """
        i, j = pair_of(self.names, cause, effect)
        marks = self._design(self.weights != 0 if self.marks is None else self.marks)
        rows = self._required_moments()
        blocks = self._blocks(by_party)
        if not isinstance(rows, Moments) and len(marks) != len(self.names):
            raise ConfigError(
                "possible effects need rows that are the same for all variables, and under known "
                "interventions they differ: direct the edges by background knowledge"
            )
        return effects.possible_effects(blocks, marks, (i, j), effects.RAISED, level)

    def _marks_after(self, values: Mapping[str, float]) -> BoolArray | None:
        """Return the class after an intervention on variables; a ConfigError if it leaves it open.

        See :func:`~flwr_causal.core.graphs.adjustment.after_intervention`.
        """
        targets = [self.names.index(name) for name in values]
        return after_intervention(self.marks, targets, self.names)

    def disagreement(self) -> pd.DataFrame:
        """Compare each party with all others: effects along edges, means, standard deviations.

        Returns
        -------
        DataFrame
            See :func:`flwr_causal.core.linear.parties.disagreement`.

        Raises
        ------
        ConfigError
            If the moments of two parties or more are not known.
        """
        return disagreement(known_parties(self.party_moments), self._edges)

    def edge_tests(self) -> list[EdgeTest]:
        """Test each edge given the other parents of its effect; empty without moments of rows."""
        if self.sample_moments is None:
            return []
        return fit_check.edge_tests(self.sample_moments, self._edges)

    def with_rows_together(self, together: Sequence[FloatArray]) -> Self:
        """Return the model of rows with missing cells, see :func:`with_rows`."""
        model: Any = self  # a dataclass, see above
        rows: SampleMoments = self._required_moments()
        if isinstance(rows, Moments):  # the same rows for all variables
            rows = replace(rows, together=together[0])
        else:
            rows = with_rows(rows, together)
        found: Self = replace(model, sample_moments=rows)
        return found

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file, without loss."""
        content: dict[str, Any] = {"format": self._format(), "names": list(self.names)}
        content |= {field: getattr(self, field).tolist() for field in self.FIELDS}
        rows = self.sample_moments
        if isinstance(rows, Moments):
            content["sample_moments"] = rows.to_plain()
        elif rows is not None:
            content["sample_moments_by_variable"] = plain_by_variable(rows)
        if self.marks is not None:
            content["marks"] = self.marks.tolist()
        if self._held_out is not None:
            content["held_out_log_likelihood"] = self._held_out
        write_record(path, "model", content)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the model of a file that :meth:`save` wrote.

        Raises
        ------
        DataError
            If the file is not JSON, has another format, lacks a field, or holds damaged numbers.
        """
        content = read_record(path, cls.KIND, cls._format())
        wanted = ("names", *cls.FIELDS)
        missing = [field for field in wanted if field not in content]
        if missing:
            raise DataError(
                f"{path} holds a {cls.KIND} without {', '.join(missing)}: save it again"
            )
        found = {field: content[field] for field in wanted}
        found |= {name: content.get(name) for name in ("marks", "held_out_log_likelihood")}
        rows, by_variable = map(content.get, ("sample_moments", "sample_moments_by_variable"))
        with undamaged(path, "damaged moments"):
            found["sample_moments"] = None if rows is None else Moments.from_plain(**rows)
            if by_variable is not None:
                found["sample_moments"] = from_plain_by_variable(by_variable)
        return cls(**found)

    @classmethod
    def _format(cls) -> str:
        return f"flwr-causal {cls.KIND} 1"

    @cached_property
    def _held_out(self) -> float | None:
        """``held_out_log_likelihood``, computed from the parties' moments if it is not given."""
        if self.held_out_log_likelihood is not None:
            return float(self.held_out_log_likelihood)
        return left_out_log_likelihood(list((self.party_moments or {}).values()), self._edges)

    def _required_moments(self) -> SampleMoments:
        """Return the moments of the rows that the system was fitted to; a ConfigError if none."""
        if self.sample_moments is None:
            raise ConfigError(
                "this model has no moments of the rows it was fitted to, which standard errors and "
                "tests need: run moments, or notears-admm or 2dbn with search=True, without "
                "epsilon. The effect alone follows from model.do() without them"
            )
        return self.sample_moments

    def _blocks(self, by_party: bool) -> effects.Blocks:
        """Return the moments, with those of each party's rows if they are wanted."""
        parties = list(known_parties(self.party_moments).values()) if by_party else []
        names = moments_of_variables(self._required_moments(), 1)[0].names
        return effects.Blocks(
            names, columns_of([1] * len(names)), self._required_moments(), parties
        )

    def _freeze(self, shapes: Mapping[str, tuple[int, ...]], columns: Sequence[str]) -> None:
        """Check the system and replace its arrays by read-only float64 copies.

        Parameters
        ----------
        shapes : mapping of str to tuple of int
            The shape of every array.
        columns : sequence of str
            The variables of the moments.

        Raises
        ------
        DataError
            If names repeat, an array has another shape or an entry that is not a finite number, a
            noise variance is negative, the weights have a directed cycle, the moments are of other
            variables, or the marks have another shape than the weights.
        """
        object.__setattr__(self, "names", distinct_names(self.names))
        for field, shape in shapes.items():
            given = getattr(self, field)
            expected = (
                f"{field} of a {self.KIND} of {len(self.names)} variables must be finite numbers "
                f"of shape {shape}"
            )
            try:
                array = frozen_floats(given)
            except (TypeError, ValueError) as error:
                raise DataError(f"{expected} ({error})") from error
            if array.shape != shape:
                raise DataError(f"{expected}, got shape {array.shape}")
            if not np.isfinite(array).all():
                place = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
                raise DataError(f"{expected}, got {array[place]} at {place}")
            object.__setattr__(self, field, array)
        if (self.noise_variances < 0).any():
            raise DataError("noise variances must not be negative")
        if not is_acyclic(self.weights):
            raise DataError(f"the weights have a directed cycle: a {self.KIND} needs a DAG")
        self._check_origin(columns)

    def _check_origin(self, columns: Sequence[str]) -> None:
        """Check what the system keeps of the rows that it was fitted to; freeze the marks."""
        rows = () if self.sample_moments is None else self.sample_moments
        for part in distinct(moments_of_variables(rows, 1))[0]:
            if part.names != tuple(columns):
                raise DataError(f"the moments are those of {part.names}, expected {tuple(columns)}")
        if not isinstance(rows, Moments) and rows and len(rows) != len(self.names):
            raise DataError(f"{len(rows)} moments for {len(self.names)} variables: give one each")
        object.__setattr__(self, "marks", frozen_booleans("marks", self.marks, self.weights.shape))


def intervened(
    system: LinearSystem, values: Mapping[str, float], *weights: FloatArray
) -> tuple[FloatArray, ...]:
    """Return a system's parameters under an intervention that sets variables to values.

    Parameters
    ----------
    system : LinearSystem
    values : mapping of str to float
        The variables that are set.
    *weights : ndarray of shape (..., d, d)
        Effects on the variables.

    Returns
    -------
    tuple of ndarray
        The weights, the intercepts and the noise variances.

    Raises
    ------
    DataError
        If a variable is unknown, or a value is not a finite number.
    """
    targets = [place_of(system.names, name) for name in values]
    for name, value in values.items():
        if not isinstance(value, Real) or not np.isfinite(float(value)):
            raise DataError(f"{name} is set to {value!r}: expected a finite number")
    copies = [np.array(own) for own in (*weights, system.intercepts, system.noise_variances)]
    for own in copies:
        own[..., targets] = 0.0
    copies[-2][targets] = list(values.values())
    return tuple(copies)


def log_density(residuals: FloatArray, variances: FloatArray, names: Sequence[str]) -> FloatArray:
    """Return the Gaussian log density of each row, ``(n,)``, from the noise terms ``(n, d)``.

    The noise terms are independent, and ``det(I - W) = 1`` for an acyclic W. The density of a row
    is therefore the product of the densities of its noise terms.

    Raises
    ------
    DataError
        If the noise variance of a variable is 0.
    """
    silent = [name for name, variance in zip(names, variances, strict=True) if variance == 0]
    if silent:
        raise DataError(f"no density: the variables {silent} have zero noise variance")
    terms = -0.5 * (np.log(2 * np.pi * variances) + residuals**2 / variances)
    return np.asarray(terms.sum(axis=1), dtype=np.float64)


def named_columns(data: Any, wanted: Sequence[str], names: Sequence[str]) -> FloatArray:
    """Return columns of a table as an array.

    Parameters
    ----------
    data : DataFrame, or array of shape (n, len(names))
        The table. The columns of a frame are matched by name.
    wanted : sequence of str
        Names of the columns to return.
    names : sequence of str
        Names of the columns of an array.

    Raises
    ------
    DataError
        If columns are missing or do not hold numbers.
    """
    if hasattr(data, "columns"):
        present = [one_form(str(column)) for column in data.columns]
        missing = [name for name in wanted if name not in present]
        if missing:
            raise DataError(f"the data lack the variables {missing}")
        return _numbers(data.iloc[:, [present.index(name) for name in wanted]])
    X = _numbers(data)
    if X.ndim != 2 or X.shape[1] != len(names):
        raise DataError(f"expected an array of {len(names)} columns, got shape {X.shape}")
    return X[:, [names.index(name) for name in wanted]]


def _numbers(values: Any) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"the data are not all numbers ({error})") from error
