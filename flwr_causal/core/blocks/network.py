"""A DAG of numbers and categories as a distribution: samples, densities and predictions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import log_softmax

from flwr_causal.core.blocks.conditionals import conditional
from flwr_causal.core.blocks.design import Category
from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.discrete.discrete import known_codes, labelled, seen_patterns
from flwr_causal.core.discrete.probabilities import drawn_states, table_shape
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.words import with_forms
from flwr_causal.errors import DataError

#: Rows that agree with what is seen are looked for among so many draws.
DRAWS_AT_ONCE, MOST_DRAWS = 20_000, 4_000_000

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.blocks.conditionals import BlockConditional
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.linear.moments import SampleMoments


def sampled(
    variables: Sequence[Variable],
    conditionals: Sequence[BlockConditional],
    dag: BoolArray,
    fixed: Mapping[int, Any],
    seen: Mapping[int, Any],
    num_rows: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Return independent rows of a DAG.

    Parameters
    ----------
    variables : sequence of Number or Category
    conditionals : sequence of BlockConditional
        Of each variable given its causes.
    dag : ndarray of bool, shape (d, d)
    fixed : mapping of int to object
        Variables that are set: their number, or the number of their state.
    seen : mapping of int to object
        What all rows have: draws of the others are kept with a probability in proportion to its
        density given them (rejection sampling, which is exact).
    num_rows : int
    rng : Generator

    Raises
    ------
    DataError
        If next to no draws agree with what is seen.
    """
    import pandas as pd

    given = {**fixed, **seen}
    parts = [_sampled(variables, conditionals, dag, given, 0 if seen else num_rows, rng)]
    left, tried = num_rows if seen else 0, 0
    while left > 0:
        if tried >= MOST_DRAWS:
            raise DataError(
                f"{num_rows - left:,} of {tried:,} draws agree with what is seen, which is too "
                "improbable: give fewer values, or ask for fewer rows"
            )
        drawn = _sampled(variables, conditionals, dag, given, DRAWS_AT_ONCE, rng)
        columns = dict(enumerate(drawn))
        agree = np.zeros(DRAWS_AT_ONCE)
        for j in seen:
            agree += _log_densities(variables, conditionals[j], dag, columns, j, relative=True)
        kept = np.flatnonzero(np.log(1.0 - rng.random(DRAWS_AT_ONCE)) <= agree)[:left]
        parts.append([own[kept] for own in drawn])
        left, tried = left - len(kept), tried + DRAWS_AT_ONCE
    values = [np.concatenate(own) for own in zip(*parts, strict=True)]
    found = {
        one.name: labelled(one.labels, own) if isinstance(one, Category) else own
        for one, own in zip(variables, values, strict=True)
    }
    return pd.DataFrame(found)


def _sampled(
    variables: Sequence[Variable],
    conditionals: Sequence[BlockConditional],
    dag: BoolArray,
    given: Mapping[int, Any],
    num_rows: int,
    rng: np.random.Generator,
) -> list[NDArray[Any]]:
    """Return the values of each variable, drawn from its causes if they are not given."""
    values: dict[int, NDArray[Any]] = {}
    for j in topological_order(dag):
        causes, variable, own = np.flatnonzero(dag[:, j]), variables[j], conditionals[j]
        if j in given:
            values[j] = np.full(num_rows, given[j])
            continue
        columns = _columns(variables, values, causes, num_rows)
        if isinstance(variable, Category):
            values[j] = drawn_states(own.log_probabilities(columns), rng)
        else:
            drawn = own.mean(columns) + own.deviation * rng.standard_normal(num_rows)
            values[j] = variable.values(drawn)
    return [values[j] for j in range(len(variables))]


def _log_densities(
    variables: Sequence[Variable],
    own: BlockConditional,
    dag: BoolArray,
    values: Mapping[int, NDArray[Any]],
    j: int,
    *,
    relative: bool = False,
) -> FloatArray:
    """Return the logarithms of a variable's densities given its causes, shape (n,).

    Parameters
    ----------
    relative : bool, default False
        Whether a number's density is divided by the largest one, so that none is above 1.
    """
    variable, n = variables[j], len(values[j])
    columns = _columns(variables, values, np.flatnonzero(dag[:, j]), n)
    if isinstance(variable, Category):
        return np.asarray(own.log_probabilities(columns)[np.arange(n), values[j]])
    if not own.deviation > 0:
        raise DataError(f"{variable.name!r} is a function of its causes: it has no density")
    z = ((values[j] - variable.mean) / variable.scale - own.mean(columns)) / own.deviation
    largest = 0.0 if relative else np.log(np.sqrt(2 * np.pi) * own.deviation * variable.scale)
    return np.asarray(-0.5 * z**2 - largest)


def log_densities(
    variables: Sequence[Variable],
    conditionals: Sequence[BlockConditional],
    dag: BoolArray,
    frame: Any,
) -> FloatArray:
    """Return the logarithm of the density of each row of a table, shape (n,).

    Parameters are those of :func:`sampled`.

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
    of_all = dict(enumerate(values))
    return np.asarray(
        sum(
            _log_densities(variables, conditionals[j], dag, of_all, j)
            for j in range(len(variables))
        )
    )


def tables(
    variables: Sequence[Variable],
    conditionals: Sequence[BlockConditional],
    dag: BoolArray,
    fixed: Mapping[int, Any],
) -> BayesianNetwork:
    """Return categories as a Bayesian network; parameters are those of :func:`sampled`."""
    names = [one.name for one in variables]
    states = [one.labels for one in variables if isinstance(one, Category)]
    parents = [tuple(np.flatnonzero(dag[:, j]).tolist()) for j in range(len(names))]
    found = []
    for j, own in enumerate(parents):
        shape = table_shape(names[j], [len(states[k]) for k in (*own, j)])
        count = math.prod(shape[:-1])
        cells = np.unravel_index(np.arange(count), shape[:-1]) if own else ()
        columns = _columns(variables, dict(zip(own, cells, strict=True)), own, count)
        found.append(np.exp(conditionals[j].log_probabilities(columns)).reshape(shape))
        if j in fixed:
            found[j] = np.eye(shape[-1])[fixed[j]]
    return BayesianNetwork(tuple(names), tuple(states), tuple(parents), tuple(found))


def predicted(
    variables: Sequence[Variable],
    moments: SampleMoments,
    dag: BoolArray,
    frame: Any,
    target: int,
    conditionals: Sequence[BlockConditional] = (),
) -> FloatArray:
    """Return the predictions of a variable from the other entries of each row.

    It is given the variables that make it independent of all others (its Markov blanket: causes,
    effects, and their other causes); in rows that lack one of them all that are seen.

    Parameters
    ----------
    variables : sequence of Number or Category
    moments : SampleMoments
    dag : ndarray of bool, shape (d, d)
    frame : DataFrame
    target : int
    conditionals : sequence of BlockConditional, optional
        Of each variable given its causes: probabilities of a category follow from them by Bayes'
        rule in rows that have the whole blanket. Default: all predictions follow from the moments.

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
    family = [target, *np.flatnonzero(dag[target]).tolist()]
    by_bayes = bool(conditionals) and isinstance(variable, Category)
    by_bayes = by_bayes and all(
        isinstance(variables[j], Category) or conditionals[j].deviation > 0 for j in family
    )
    for known, rows in seen_patterns(seen):
        whole = bool(known[blanket].all())
        if by_bayes and whole:
            own_rows = {k: own[rows] for k, own in enumerate(values)}
            found[rows] = _posterior(variables, conditionals, dag, own_rows, family)
            continue
        given = np.flatnonzero(blanket if whole else known)
        own = conditional(variables, moments, given, target)
        part = {int(k): values[k][rows] for k in given}
        columns = _columns(variables, part, given, len(rows))
        if isinstance(variable, Category):
            found[rows] = own.log_probabilities(columns)
        else:
            found[rows, 0] = variable.values(own.mean(columns))
    return found


def _posterior(
    variables: Sequence[Variable],
    conditionals: Sequence[BlockConditional],
    dag: BoolArray,
    values: Mapping[int, NDArray[Any]],
    family: Sequence[int],
) -> FloatArray:
    """Return the logarithms of the probabilities of a category's states given all others, (n, k).

    Parameters
    ----------
    family : sequence of int
        The category and its effects.
    """
    target, variable = family[0], variables[family[0]]
    assert isinstance(variable, Category)
    logs = np.zeros((len(values[target]), len(variable.states)))
    for state in range(len(variable.states)):
        supposed = {**values, target: np.full(len(logs), state)}
        for j in family:
            logs[:, state] += _log_densities(variables, conditionals[j], dag, supposed, j)
    return np.asarray(log_softmax(logs, axis=1))


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
    frame = with_forms(frame)
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
