"""Contrasts: how much an effect changes between two states of its cause, from moments of blocks.

The columns of the effect are regressed by least squares on those of the cause and of an adjustment
set. Of a category as effect the columns are indicators, so that the regression is a linear
probability model, and the effect a difference of probabilities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.blocks.design import Category, Number
from flwr_causal.core.discrete.discrete import state_name
from flwr_causal.core.linear.effects import Contrast
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from flwr_causal.core.answers import Effect
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.blocks.design import Variable


def contrast(
    cause: Variable, effect: Variable, state: Any, reference: Any, outcome: Any
) -> Contrast:
    """Return the change of a cause's columns, and the weights by which the effect is read.

    Raises
    ------
    ConfigError
        If a state or the outcome is missing or not possible.
    """
    return Contrast(_change(cause, state, reference), _reading(effect, outcome))


def contrast_table(
    cause: Variable, effect: Variable, total_effect: Callable[..., Effect | list[Effect]]
) -> pd.DataFrame:
    """Return the effects of each state of a cause, as of :class:`core.systems.blocks.BlockModel`.

    Parameters
    ----------
    cause, effect : Number or Category
    total_effect : callable
        ``(state=..., reference=..., outcome=...) -> effects``.
    """
    import pandas as pd

    pairs: list[tuple[Any, Any]] = [(None, None)]
    if isinstance(cause, Category):
        pairs = [(state, cause.labels[0]) for state in cause.labels[1:]]
    elif cause.functions > 1:
        pairs = [tuple(cause.values(np.array([1.0, -1.0])).tolist())]
    rows = []
    for state, reference in pairs:
        for outcome in effect.labels if isinstance(effect, Category) else (None,):
            asked = {"state": state, "reference": reference, "outcome": outcome}
            found = total_effect(**asked)
            for one in found if isinstance(found, list) else [found]:
                lower, upper = one.interval
                number = {"value": one.value, "standard_error": one.standard_error}
                ends = {"lower": lower, "upper": upper, "adjustment_set": one.adjustment_set}
                rows.append({**asked, **number, **ends})
    return pd.DataFrame(rows)


def _change(cause: Variable, state: Any, reference: Any) -> FloatArray:
    """Return by how much the columns change from the reference to the state."""
    if (state is None) is not (reference is None):
        raise ConfigError("give both state and reference, or neither")
    if isinstance(cause, Category):
        if state is None:
            listed = ", ".join(cause.states)
            raise ConfigError(
                f"{cause.name!r} is a category: give state and reference of {listed}; contrasts "
                "has all of them"
            )
        codes = np.array([code_of(cause, state), code_of(cause, reference)])
        own = cause.columns(codes)
    elif state is None:
        if cause.functions > 1:
            raise ConfigError(
                f"effects of {cause.name!r} may be curved: give state and reference, two values "
                "between which it changes"
            )
        return np.array([1.0 / cause.scale])
    else:
        own = cause.columns(finite_values(cause, [state, reference]))
    return np.asarray(own[0] - own[1])


def finite_values(variable: Number, given: Sequence[Any]) -> FloatArray:
    """Return values of a number; a ConfigError if one is none."""
    try:
        values = np.array([float(value) for value in given])
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{variable.name!r} is a number: {error}") from error
    if not np.isfinite(values).all():
        raise ConfigError(f"{variable.name!r} is a number: give finite values")
    return values


def _reading(effect: Variable, outcome: Any) -> FloatArray:
    """Return the weights of the effect's columns whose sum is its value, or an outcome's."""
    if isinstance(effect, Number):
        if outcome is not None:
            raise ConfigError(f"{effect.name!r} is a number, of which no outcome is asked")
        return np.asarray(np.eye(effect.functions)[0] * effect.scale)
    if outcome is None:
        listed = ", ".join(effect.states)
        raise ConfigError(
            f"{effect.name!r} is a category: give an outcome of {listed}; contrasts has all of them"
        )
    code = code_of(effect, outcome)
    # The state without a column is 1 less all others.
    own = np.zeros(effect.width) if code < effect.width else -np.ones(effect.width)
    own[code : code + 1] = 1.0
    return own


def code_of(variable: Category, state: Any) -> int:
    """Return the number of a state, which is given as text or as the table has it."""
    text = state_name(state)
    if text not in variable.states:
        listed = ", ".join(variable.states)
        raise ConfigError(f"{variable.name!r} has no state {text!r}; it has {listed}")
    return variable.states.index(text)
