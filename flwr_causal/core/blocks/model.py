"""Total effects among numbers and categories, from the second moments of their blocks of columns.

An effect is a contrast of coefficients: the columns of the effect are regressed by least squares on
those of the cause and of an adjustment set. Of a category as effect the columns are indicators, so
that the regression is a linear probability model, and the effect a difference of probabilities.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np

from flwr_causal.core.blocks.design import Category, Number, column_names
from flwr_causal.core.discrete.discrete import state_name
from flwr_causal.core.graphs import adjustment
from flwr_causal.core.graphs.effect import NO_EFFECT, Effect, estimated
from flwr_causal.core.graphs.graph import frozen_booleans, pair_of
from flwr_causal.core.linear.effects import in_order
from flwr_causal.core.linear.missing import informing_rows
from flwr_causal.core.linear.moments import Moments, columns_of
from flwr_causal.core.saved import DAMAGE, read_record, writing
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.design import Variable

# A contrast is not estimated if the columns of the adjustment set explain all but this share of it.
COLLINEAR = 1e-8


#: What linear systems and Bayesian networks have beside effects.
OF_OTHERS = frozenset(
    ("do", "predict", "predict_proba", "sample", "conditional", "contrast", "log_likelihood")
)


class _Asked(NamedTuple):
    """What is asked: the change of the cause's columns, and the weights of the effect's."""

    change: FloatArray
    outcome: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class BlockModel:
    """The second moments of numbers and categories, with the equivalence class of their graph.

    Attributes
    ----------
    variables : tuple of Number or Category
    moments : Moments
        Of the rows of all parties; the columns of a variable lie side by side.
    marks : ndarray of bool, shape (d, d)
        The class, see :mod:`core.graphs.equivalence`.

    Raises
    ------
    DataError
        If the moments are those of other columns, or the marks have another shape.
    """

    KIND: ClassVar[str] = "model of numbers and categories"
    FORM: ClassVar[str] = "flwr-causal blocks 1"

    variables: tuple[Variable, ...]
    moments: Moments
    marks: BoolArray

    def __post_init__(self) -> None:
        if self.moments.names != column_names(self.variables):
            raise DataError(f"the moments are not those of the columns of {', '.join(self.names)}")
        d = len(self.variables)
        object.__setattr__(self, "marks", frozen_booleans("marks", self.marks, (d, d)))

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an AttributeError; of what other models have it says what is here instead."""
        if name in OF_OTHERS:
            raise AttributeError(
                f"a {self.KIND} has no {name!r}: second moments of categories give no distribution "
                "of them. total_effect and possible_effects compare states; fedges with "
                "score='conditional-gaussian' gives a network of the same columns, which samples"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        categories = sum(isinstance(one, Category) for one in self.variables)
        numbers = len(self.variables) - categories
        return f"<BlockModel: {numbers} numbers, {categories} categories>"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the d variables."""
        return tuple(one.name for one in self.variables)

    def total_effect(
        self,
        cause: str,
        effect: str,
        *,
        state: Any = None,
        reference: Any = None,
        outcome: Any = None,
        level: float = 0.95,
    ) -> Effect | list[Effect]:
        """Return how much the effect changes on average if the cause is set to another state.

        Where the class decides it, the optimal adjustment set is adjusted for
        (:func:`core.graphs.adjustment.optimal_set`).

        Parameters
        ----------
        cause, effect : str
            Two different variables.
        state, reference : object, optional
            To which state the cause is set, in place of which other one. Of a number two values;
            default, where its effects are linear: a unit more.
        outcome : object, optional
            A state of the effect, whose probability changes. Of a number its mean changes.
        level : float, default 0.95
            Of the confidence interval, which is that of least squares.

        Returns
        -------
        Effect or list of Effect
            In the units of the effect, or as a difference of probabilities. The list of
            :meth:`possible_effects` where the class leaves it open.

        Raises
        ------
        ConfigError
            If a state or the outcome is missing or not possible, or the level is not between 0 and
            1.
        DataError
            If a variable is unknown, rows are too few, or the adjustment set determines the cause.
        """
        i, j = pair_of(self.names, cause, effect)
        asked = self._asked(i, j, state, reference, outcome)
        if not adjustment.is_possible_cause(self.marks, i, j):
            return NO_EFFECT
        adjusted = adjustment.optimal_set(self.marks, i, j)
        if adjusted is None:
            return self._possible(i, j, asked, level)
        return self._adjusted(i, j, adjusted, asked, level)

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
        """Return an effect for each set of parents that the cause has in a DAG of the class.

        These are adjusted for (local IDA; Maathuis, Kalisch & Bühlmann, 2009). The fewest parents
        come first, of as many the smaller effect. Parameters and errors are those of
        :meth:`total_effect`.
        """
        i, j = pair_of(self.names, cause, effect)
        return self._possible(i, j, self._asked(i, j, state, reference, outcome), level)

    def with_rows_together(self, together: FloatArray) -> Self:
        """Return the model of rows with missing cells, see :class:`Moments`."""
        return replace(self, moments=replace(self.moments, together=together))

    def save(self, path: str | Path) -> None:
        """Write the model to a JSON file, without loss."""
        content = {
            "format": self.FORM,
            "variables": [asdict(one) for one in self.variables],
            "moments": self.moments.to_plain(),
            "marks": self.marks.tolist(),
        }
        with writing(path, "model") as file:
            file.write_text(json.dumps(content), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the model of a file that :meth:`save` wrote.

        Raises
        ------
        DataError
            If the file is not JSON, has another format, lacks a field, or holds damaged numbers.
        """
        content = read_record(path, cls.KIND, cls.FORM)
        try:
            variables = tuple(
                Category(one["name"], tuple(one["states"])) if "states" in one else Number(**one)
                for one in content["variables"]
            )
            moments = Moments.from_plain(**content["moments"])
            return cls(variables, moments, np.array(content["marks"], dtype=np.bool_))
        except DAMAGE as error:
            raise DataError(
                f"{path} holds a damaged {cls.KIND} ({error}): save it again"
            ) from error

    def _possible(self, i: int, j: int, asked: _Asked, level: float) -> list[Effect]:
        """Return an effect for each set of parents that the cause has in a DAG of the class."""
        found = []
        for parents, members in adjustment.possible_parents(self.marks, i):
            one = NO_EFFECT
            if j not in parents and adjustment.is_possible_cause(members, i, j):
                one = self._adjusted(i, j, parents, asked, level)
            found.append((len(parents), one))
        return in_order(found)

    def _adjusted(
        self, i: int, j: int, adjusted: Sequence[int], asked: _Asked, level: float
    ) -> Effect:
        """Return the contrast of a regression on the cause and the adjustment set."""
        change, outcome_of = asked
        columns = columns_of([one.width for one in self.variables])
        regressors = np.concatenate([columns[i], *[columns[k] for k in adjusted]])
        second = self.moments.second
        among = second[np.ix_(regressors, regressors)]
        cross = second[np.ix_(regressors, columns[j])] @ outcome_of
        wanted = np.concatenate([change, np.zeros(len(regressors) - len(change))])
        scale = np.sqrt(np.diagonal(among))
        scale = np.where(scale > 0, scale, 1.0)
        among, cross, wanted = among / np.outer(scale, scale), cross / scale, wanted / scale
        solved, _, rank, _ = np.linalg.lstsq(among, np.column_stack([wanted, cross]), rcond=1e-10)
        weights, coefficients = solved.T
        names = tuple(self.names[k] for k in adjusted)
        if np.abs(among @ weights - wanted).max() > COLLINEAR * np.abs(wanted).max():
            known = f", or is determined by {', '.join(names)}" if names else ""
            raise DataError(
                f"{self.names[i]} does not vary in these rows between the two states{known}: no "
                "effect of it can be estimated"
            )
        rows = round(float(informing_rows(self.moments, regressors, int(columns[j][0]))[0]))
        degrees = rows - int(rank) - 1
        if degrees < 1:
            raise DataError(
                f"{rows} rows are too few for the regression of {self.names[j]} on "
                f"{int(rank)} columns: at least {int(rank) + 2} are needed"
            )
        own = outcome_of @ second[np.ix_(columns[j], columns[j])] @ outcome_of
        residual = max(float(own - cross @ coefficients), 0.0)
        error = float(np.sqrt(residual / degrees * max(wanted @ weights, 0.0)))
        return estimated(float(wanted @ coefficients), error, level, degrees, names)

    def _asked(self, i: int, j: int, state: Any, reference: Any, outcome: Any) -> _Asked:
        """Return the change of the cause's columns, and what is read of those of the effect."""
        cause, effect = self.variables[i], self.variables[j]
        return _Asked(_change(cause, state, reference), _reading(effect, outcome))


def _change(cause: Variable, state: Any, reference: Any) -> FloatArray:
    """Return by how much the columns change from the reference to the state."""
    if (state is None) is not (reference is None):
        raise ConfigError("give both state and reference, or neither")
    if isinstance(cause, Category):
        if state is None:
            listed = ", ".join(cause.states)
            raise ConfigError(f"{cause.name!r} is a category: give state and reference of {listed}")
        codes = np.array([_code(cause, state), _code(cause, reference)])
        own = cause.columns(codes)
    elif state is None:
        if cause.functions > 1:
            raise ConfigError(
                f"effects of {cause.name!r} may be curved: give state and reference, two values "
                "between which it changes"
            )
        return np.array([1.0 / cause.scale])
    else:
        try:
            values = np.array([float(state), float(reference)])
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{cause.name!r} is a number: {error}") from error
        if not np.isfinite(values).all():
            raise ConfigError(f"{cause.name!r} is a number: give two finite values")
        own = cause.columns(values)
    return np.asarray(own[0] - own[1])


def _reading(effect: Variable, outcome: Any) -> FloatArray:
    """Return the weights of the effect's columns whose sum is its value, or an outcome's."""
    if isinstance(effect, Number):
        if outcome is not None:
            raise ConfigError(f"{effect.name!r} is a number, of which no outcome is asked")
        return np.asarray(np.eye(effect.functions)[0] * effect.scale)
    if outcome is None:
        listed = ", ".join(effect.states)
        raise ConfigError(f"{effect.name!r} is a category: give an outcome of {listed}")
    code = _code(effect, outcome)
    # The state without a column is 1 less all others.
    own = np.zeros(effect.width) if code < effect.width else -np.ones(effect.width)
    own[code : code + 1] = 1.0
    return own


def _code(variable: Category, state: Any) -> int:
    """Return the number of a state, which is given as text or as the table has it."""
    text = state_name(state)
    if text not in variable.states:
        listed = ", ".join(variable.states)
        raise ConfigError(f"{variable.name!r} has no state {text!r}; it has {listed}")
    return variable.states.index(text)
