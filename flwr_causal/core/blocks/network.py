"""A DAG of numbers and categories as a distribution: samples, densities and predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.blocks.conditionals import conditional
from flwr_causal.core.blocks.design import Category
from flwr_causal.core.discrete.discrete import known_codes, labelled, seen_patterns
from flwr_causal.core.discrete.probabilities import drawn_states
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.linear.moments import Moments


def sampled(
    variables: Sequence[Variable],
    moments: Moments,
    dag: BoolArray,
    fixed: Mapping[int, Any],
    num_rows: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Return independent rows of a DAG.

    Parameters
    ----------
    variables : sequence of Number or Category
    moments : Moments
        Of their columns.
    dag : ndarray of bool, shape (d, d)
    fixed : mapping of int to object
        Variables that are set: their number, or the number of their state.
    num_rows : int
    rng : Generator
    """
    import pandas as pd

    values: dict[int, NDArray[Any]] = {}
    for j in topological_order(dag):
        given, variable = np.flatnonzero(dag[:, j]), variables[j]
        if j in fixed:
            values[j] = np.full(num_rows, fixed[j])
            continue
        own = conditional(variables, moments, given, j)
        columns = _columns(variables, values, given, num_rows)
        if isinstance(variable, Category):
            values[j] = drawn_states(own.log_probabilities(columns), rng)
        else:
            drawn = own.mean(columns) + own.deviation * rng.standard_normal(num_rows)
            values[j] = variable.mean + variable.scale * drawn
    found = {
        one.name: labelled(one.labels, values[j]) if isinstance(one, Category) else values[j]
        for j, one in enumerate(variables)
    }
    return pd.DataFrame(found)


def log_densities(
    variables: Sequence[Variable], moments: Moments, dag: BoolArray, frame: Any
) -> FloatArray:
    """Return the logarithm of the density of each row of a table, shape (n,).

    Raises
    ------
    DataError
        If a column or a value is missing, a value is none of its variable's states, or a number is
        a function of its causes.
    """
    values, seen = rows_of(variables, frame)
    for variable, known in zip(variables, seen, strict=True):
        if not known.all():
            raise DataError(f"column {variable.name!r} is absent, or has missing values")
    n = len(seen[0])
    total = np.zeros(n)
    of_all = dict(enumerate(values))
    for j, variable in enumerate(variables):
        given = np.flatnonzero(dag[:, j])
        own = conditional(variables, moments, given, j)
        columns = _columns(variables, of_all, given, n)
        if isinstance(variable, Category):
            total += own.log_probabilities(columns)[np.arange(n), values[j]]
            continue
        if not own.deviation > 0:
            raise DataError(f"{variable.name!r} is a function of its causes: it has no density")
        z = ((values[j] - variable.mean) / variable.scale - own.mean(columns)) / own.deviation
        total -= 0.5 * z**2 + np.log(np.sqrt(2 * np.pi) * own.deviation * variable.scale)
    return total


def predicted(
    variables: Sequence[Variable], moments: Moments, dag: BoolArray, frame: Any, target: int
) -> FloatArray:
    """Return the predictions of a variable from the other entries of each row.

    It is given the variables that make it independent of all others (its Markov blanket: causes,
    effects, and their other causes); in rows that lack one of them all that are seen.

    Returns
    -------
    ndarray of shape (n, k)
        The logarithms of the probabilities of its k states; of a number its mean, k = 1.
    """
    values, seen = rows_of(variables, frame, but=target)
    causes_of_effects = dag[:, dag[target]].any(axis=1)
    blanket = dag[:, target] | dag[target] | causes_of_effects
    blanket[target] = False
    variable = variables[target]
    found = np.empty((seen.shape[1], len(variable.states) if isinstance(variable, Category) else 1))
    for known, rows in seen_patterns(seen):
        given = np.flatnonzero(blanket if known[blanket].all() else known)
        own = conditional(variables, moments, given, target)
        part = {int(k): values[k][rows] for k in given}
        columns = _columns(variables, part, given, len(rows))
        if isinstance(variable, Category):
            found[rows] = own.log_probabilities(columns)
        else:
            found[rows, 0] = variable.mean + variable.scale * own.mean(columns)
    return found


def rows_of(
    variables: Sequence[Variable], frame: Any, but: int | None = None
) -> tuple[list[NDArray[Any]], BoolArray]:
    """Return a table's values by variable, and which are seen.

    Parameters
    ----------
    variables : sequence of Number or Category
    frame : DataFrame
        Columns are found by name; they may be absent, and values missing.
    but : int, optional
        A variable that is not read.

    Returns
    -------
    values : list of ndarray, each of shape (n,)
        Numbers, or the numbers of states; 0 where none is seen.
    seen : ndarray of bool, shape (d, n)

    Raises
    ------
    DataError
        If a value is none of its variable's states, or no finite number.
    """
    names = tuple(one.name for one in variables)
    if not hasattr(frame, "columns"):
        raise DataError("give a DataFrame, whose columns have the names of the variables")
    states = tuple(one.states if isinstance(one, Category) else () for one in variables)
    categories = [j for j, own in enumerate(states) if own and j != but]
    n = len(frame)
    values: list[NDArray[Any]] = [np.zeros(n) for _ in names]
    seen = np.zeros((len(names), n), dtype=np.bool_)
    if categories:
        own_names = tuple(names[j] for j in categories)
        kept = frame[[name for name in own_names if name in frame.columns]]
        codes, known = known_codes(kept, own_names, tuple(states[j] for j in categories), but=-1)
        for place, j in enumerate(categories):
            values[j], seen[j] = codes[place].astype(np.int64), known[place]
    for j, name in enumerate(names):
        if states[j] or j == but or name not in frame.columns:
            continue
        try:
            numbers = np.asarray(frame[name], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"column {name!r} is not all numbers ({error})") from error
        if np.isinf(numbers).any():
            raise DataError(f"column {name!r} has infinite values")
        seen[j] = ~np.isnan(numbers)
        values[j] = np.where(seen[j], numbers, 0.0)
    return values, seen


def _columns(
    variables: Sequence[Variable],
    values: Mapping[int, NDArray[Any]],
    given: Sequence[int] | IntArray,
    num_rows: int,
) -> FloatArray:
    """Return the columns of variables side by side, shape (n, their widths)."""
    parts = [variables[k].columns(values[int(k)]) for k in given]
    return np.column_stack(parts) if parts else np.zeros((num_rows, 0))
