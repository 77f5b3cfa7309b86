"""Series of numbers and categories: effects, predictions and tests from moments of their blocks.

Given its parents at t and before, each column of a variable is a linear function of their columns:
a category is a linear probability model, as in :mod:`core.blocks.model`. The columns together are
a linear system over time (:mod:`core.series.model`), from which effects after some steps and
predictions follow.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from flwr_causal.core.arguments import COUNT, shown
from flwr_causal.core.blocks import fit_check
from flwr_causal.core.blocks.contrasts import contrast, contrast_table
from flwr_causal.core.blocks.design import (
    Category,
    Number,
    blocks_of_columns,
    column_names,
    variables_from_plain,
)
from flwr_causal.core.blocks.model import BlockModel, member_of
from flwr_causal.core.blocks.network import rows_of
from flwr_causal.core.discrete.discrete import labelled
from flwr_causal.core.graphs.adjustment import with_past
from flwr_causal.core.graphs.effect import NO_EFFECT, Effect
from flwr_causal.core.graphs.equivalence import undirected_part
from flwr_causal.core.graphs.graph import frozen_booleans, pair_of, place_of
from flwr_causal.core.linear.effects import along_paths
from flwr_causal.core.linear.moments import Moments, columns_of
from flwr_causal.core.saved import read_record, undamaged, write_record
from flwr_causal.core.series.design import lagged_names, lagged_rows
from flwr_causal.core.series.model import LaggedModel, fit_lagged, reaches
from flwr_causal.core.threads import SingleThreaded
from flwr_causal.core.ties import first_largest
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.graphs.doubt import EdgeTest
    from flwr_causal.core.graphs.fit_check import FitCheck
    from flwr_causal.core.linear.effects import Contrast


@dataclass(frozen=True, eq=False, repr=False)
class LaggedBlockModel(SingleThreaded):
    """The second moments of numbers and categories and their lags, with the class of their graph.

    Attributes
    ----------
    variables : tuple of Number or Category
        The d variables at t, then those at t - 1, ..., t - p, see
        :func:`~core.blocks.design.with_lags`.
    moments : Moments
        Of the steps of all parties; the columns of a variable lie side by side.
    marks : ndarray of bool, shape (d, d)
        The class of the edges within a step, see :mod:`core.graphs.equivalence`.
    lagged : ndarray of bool, shape (p, d, d)
        ``lagged[l, i, j]``: i at t - l - 1 causes j at t.

    Raises
    ------
    DataError
        If the moments are those of other columns, or marks or edges have another shape.
    """

    KIND: ClassVar[str] = "model of series of numbers and categories"
    FORM: ClassVar[str] = "flwr-causal lagged blocks 1"

    variables: tuple[Variable, ...]
    moments: Moments
    marks: BoolArray
    lagged: BoolArray

    def __post_init__(self) -> None:
        if self.moments.names != column_names(self.variables):
            raise DataError(f"the moments are not those of the columns of {', '.join(self.names)}")
        d, p = len(self.marks), len(self.lagged)
        if p < 1 or len(self.variables) != d * (1 + p):
            raise DataError(f"{len(self.variables)} variables are not {d} and their {p} lags")
        object.__setattr__(self, "marks", frozen_booleans("marks", self.marks, (d, d)))
        object.__setattr__(self, "lagged", frozen_booleans("lagged", self.lagged, (p, d, d)))

    def __repr__(self) -> str:
        d = len(self.names)
        categories = sum(isinstance(one, Category) for one in self.variables[:d])
        return (
            f"<LaggedBlockModel: {d - categories} numbers, {categories} categories, "
            f"{self.order} lags>"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the d variables."""
        return tuple(one.name for one in self.variables[: len(self.marks)])

    @property
    def order(self) -> int:
        """Number of lags p."""
        return len(self.lagged)

    def total_effect(
        self,
        cause: str,
        effect: str,
        *,
        lag: int = 0,
        state: Any = None,
        reference: Any = None,
        outcome: Any = None,
        level: float = 0.95,
    ) -> Effect | list[Effect]:
        """Return how much the effect changes on average if the cause was set to another state.

        The cause is set in the step ``lag`` steps before, and in that step only. Without a lag the
        estimate is that of :meth:`BlockModel.total_effect <core.blocks.model.BlockModel>`, by
        adjustment for variables at t and before. With a lag it is the sum over directed paths of
        the products of the coefficients of their columns, with a standard error by the delta
        method, as of :meth:`LaggedModel.total_effect <core.series.model.LaggedModel.total_effect>`.

        Parameters
        ----------
        cause, effect : str
            Two variables; with a lag they may be the same.
        lag : int, default 0
            Number of steps from the cause to the effect; it may exceed the number of lags p.
        state, reference, outcome : object, optional
            To which state the cause is set, in place of which other one, and the state of the
            effect whose probability changes, as of ``BlockModel.total_effect``.
        level : float, default 0.95
            Of the confidence interval.

        Returns
        -------
        Effect or list of Effect
            In the units of the effect, or as a difference of probabilities; the list of
            :meth:`possible_effects` where the class leaves it open.

        Raises
        ------
        ConfigError
            If a state or the outcome is missing or not possible, the level is not between 0 and 1,
            the lag is negative, or there is a lag and the class leaves directions open.
        DataError
            If a variable is unknown, rows are too few, or the adjustment set determines the cause.
        """
        if not COUNT.fits(lag):
            raise ConfigError(f"lag is {shown(lag)}: expected 0, 1, 2, ...")
        i, j = pair_of(self.names, cause, effect, same=lag > 0)
        asked = {"state": state, "reference": reference, "outcome": outcome}
        if lag == 0:
            return self._within_step.total_effect(cause, effect, **asked, level=level)
        if undirected_part(self.marks).any():
            raise ConfigError(
                "effects with a lag need the directions of all edges within a step, and this model "
                "stands for an equivalence class: direct its edges by knowledge; without a lag "
                "possible_effects lists the effects"
            )
        wanted = contrast(self.variables[i], self.variables[j], **asked)
        if not reaches(self.marks, self.lagged, lag)[i, j]:
            return NO_EFFECT
        return self._along_paths(i, j, wanted, lag, level)

    def possible_effects(
        self,
        cause: str,
        effect: str,
        *,
        state: Any = None,
        reference: Any = None,
        outcome: Any = None,
        level: float = 0.95,
    ) -> list[Effect]:
        """Return an effect within a step for each set of parents that the cause has in the class.

        Parents are at t and before. Parameters and errors are those of :meth:`total_effect`.
        """
        pair_of(self.names, cause, effect)
        asked = {"state": state, "reference": reference, "outcome": outcome}
        return self._within_step.possible_effects(cause, effect, **asked, level=level)

    def contrasts(
        self, cause: str, effect: str, *, lag: int = 0, level: float = 0.95
    ) -> pd.DataFrame:
        """Return the effects of each state of the cause in place of the first one.

        The table is that of ``BlockModel.contrasts``; parameters and errors are those of
        :meth:`total_effect`.
        """
        i, j = pair_of(self.names, cause, effect, same=lag > 0)
        found = partial(self.total_effect, cause, effect, lag=lag, level=level)
        return contrast_table(self.variables[i], self.variables[j], found)

    def predict(self, series: pd.DataFrame) -> pd.DataFrame:
        """Return each step as expected by the p steps before it, (T - p, d), from step p on.

        Parameters
        ----------
        series : DataFrame
            Steps in the order of time, with a column for each variable.

        Returns
        -------
        DataFrame
            Means of numbers, and the most probable states of categories, whose probabilities
            :meth:`predict_proba` has.

        Raises
        ------
        DataError
            If the series is too short, a column or a value is missing, or a value is none of its
            variable's states.
        """
        import pandas as pd

        expected = self._expected(series)
        found: dict[str, Any] = {}
        for variable, block in zip(self._present, self._blocks, strict=True):
            columns = expected[:, block]
            if isinstance(variable, Category):
                likely = first_largest(_probabilities(columns), axis=1)
                found[variable.name] = labelled(variable.labels, likely)
            else:
                found[variable.name] = _numbers(variable, columns)
        return pd.DataFrame(found)

    def predict_proba(self, series: pd.DataFrame, target: str) -> FloatArray:
        """Return the probability of each state of a category in each step, (T - p, states).

        They are those of linear probability models, of which values below 0 are 0. Parameters and
        errors are those of :meth:`predict`; a DataError also if the target is unknown or a number.
        """
        j = place_of(self.names, target)
        if not isinstance(self.variables[j], Category):
            raise DataError(f"{target!r} is a number: predict returns its mean")
        return _probabilities(self._expected(series)[:, self._blocks[j]])

    def fit_check(self, series: pd.DataFrame | None = None) -> FitCheck:
        """Test the independencies that the graph implies, by likelihood ratios of the blocks.

        Parameters
        ----------
        series : DataFrame, optional
            A series to test on. Default: the moments of the steps to which the model was fitted.

        Returns
        -------
        FitCheck
            Of each variable at t with what comes before it, at t and in the past.

        Raises
        ------
        DataError
            As :meth:`predict`.
        """
        moments = self.moments
        if series is not None:
            rows = lagged_rows([self._columns(series)], self.order)
            moments = Moments.from_rows(rows, self.moments.names)
        return fit_check.check(self._all_names, self._widths, moments, self.edges)

    def edge_tests(self) -> list[EdgeTest]:
        """Test each edge given the other parents of its effect."""
        return fit_check.edge_tests(self._all_names, self._widths, self.moments, self.edges)

    def with_rows_together(self, together: Sequence[FloatArray]) -> Self:
        """Return the model of steps with missing cells; those of all variables are the same."""
        return replace(self, moments=replace(self.moments, together=together[0]))

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file, without loss."""
        content = {
            "format": self.FORM,
            "variables": [asdict(one) for one in self.variables],
            "moments": self.moments.to_plain(),
            "marks": self.marks.tolist(),
            "lagged": self.lagged.tolist(),
        }
        write_record(path, "model", content)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the model of a file that :meth:`save` wrote.

        Raises
        ------
        DataError
            If the file is not JSON, has another format, lacks a field, or holds damaged numbers.
        """
        content = read_record(path, cls.KIND, cls.FORM)
        with undamaged(path, f"a damaged {cls.KIND}"):
            edges = (np.array(content[name], dtype=np.bool_) for name in ("marks", "lagged"))
            moments = Moments.from_plain(**content["moments"])
            return cls(variables_from_plain(content["variables"]), moments, *edges)

    @property
    def _present(self) -> tuple[Variable, ...]:
        """The d variables at t."""
        return self.variables[: len(self.marks)]

    @property
    def _all_names(self) -> tuple[str, ...]:
        """Names of the m blocks."""
        return tuple(one.name for one in self.variables)

    @property
    def _widths(self) -> list[int]:
        """How many columns each of the m blocks has."""
        return [one.width for one in self.variables]

    @property
    def _blocks(self) -> list[Any]:
        """The columns of each variable at t."""
        return columns_of(self._widths)[: len(self.marks)]

    @cached_property
    def edges(self) -> BoolArray:
        """The parents of each variable in a DAG of the class, (m, d)."""
        return np.concatenate([member_of(self.names, self.marks), *self.lagged])

    @cached_property
    def _within_step(self) -> BlockModel:
        """The model of the m blocks, for effects within a step."""
        return BlockModel(self.variables, self.moments, with_past(self.marks, self.lagged))

    @cached_property
    def _system(self) -> LaggedModel:
        """The linear system of the columns."""
        widths, d = self._widths, len(self.marks)
        mask = np.repeat(np.repeat(self.edges, widths, axis=0), widths[:d], axis=1)
        own = self.moments.names[: mask.shape[1]]
        moments = replace(self.moments, names=lagged_names(own, self.order))
        return fit_lagged(moments, mask, len(own))

    def _along_paths(
        self, cause: int, effect: int, asked: Contrast, lag: int, level: float
    ) -> Effect:
        """Return the effect over directed paths, by the coefficients of all families."""
        blocks = self._blocks
        change, reading = np.zeros((2, len(self._system.names)))
        change[blocks[cause]], reading[blocks[effect]] = asked
        value, gradient = self._system.response_to(change, reading, lag)
        of_columns = blocks_of_columns(self.variables, self.moments)
        return along_paths(of_columns, value, gradient, self.edges, level)

    def _columns(self, series: pd.DataFrame) -> FloatArray:
        """Return the columns of the steps of a series, checked, (T, columns at t)."""
        values, seen = rows_of(self._present, series)
        if seen.shape[1] <= self.order:
            raise DataError(
                f"the series has {seen.shape[1]} rows, but a model with {self.order} lags needs at "
                f"least {self.order + 1}"
            )
        for name, known in zip(self.names, seen, strict=True):
            if not known.all():
                raise DataError(f"column {name!r} is absent, or has missing values")
        return np.column_stack(
            [one.columns(own) for one, own in zip(self._present, values, strict=True)]
        )

    def _expected(self, series: pd.DataFrame) -> FloatArray:
        """Return the means of the columns of each step given those before it."""
        return self._system.predict(self._columns(series))


def _numbers(variable: Number, columns: FloatArray) -> FloatArray:
    """Return the means of a number from those of its columns, the first of which is the number."""
    return np.asarray(variable.mean + variable.scale * columns[:, 0])


def _probabilities(columns: FloatArray) -> FloatArray:
    """Return probabilities of all states from the means of their columns, (n, states)."""
    found = np.column_stack([columns, 1.0 - columns.sum(axis=1)])
    found = np.maximum(found, 0.0)
    return np.asarray(found / found.sum(axis=1, keepdims=True))
