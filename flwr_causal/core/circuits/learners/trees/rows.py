"""A party's rows as mixtures of trees are trained on them: the states of each class's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.circuits.learners.trees.pair_sums import encode
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.trees.pair_sums import Codes


class Plan(NamedTuple):
    """What all parties agree on before the first sum.

    Parameters
    ----------
    names : tuple of str
        Of the columns that trees are over.
    columns : tuple of int
        Where these are in the domain.
    num_states : tuple of int
        Of these.
    target : int or None
        Column of the class, each of which has trees of its own. None: all rows are of one class.
    num_classes : int
        States of the target.
    seed : int
        Of the start.
    min_rows : int
        A party leaves out what it has of a class or a component where it has fewer than so many
        rows of it: a sum over one row is the row. 1 leaves out none, and then sums are those of the
        pooled rows.
    """

    names: tuple[str, ...]
    columns: tuple[int, ...]
    num_states: tuple[int, ...]
    target: int | None
    num_classes: int
    seed: int = 0
    min_rows: int = 1


def plan_for(domain: Domain, target: str | None, *, seed: int = 0, min_rows: int = 1) -> Plan:
    """Return the plan of a domain in which every variable has states.

    Raises
    ------
    ConfigError
        If a variable is a number, there is none beside the target, or ``min_rows`` is below 1.
    """
    if min_rows < 1:
        raise ConfigError(f"at least 1 row is needed, got min_rows = {min_rows}")
    states = domain.num_states
    numbers = [name for name, count in zip(domain.names, states, strict=True) if count == 0]
    if numbers:
        raise ConfigError(
            f"trees are over categories, but {', '.join(numbers)} hold numbers: give them edges "
            "(bins), or learn another circuit"
        )
    place = None if target is None else domain.index(target)
    columns = tuple(j for j in range(len(states)) if j != place)
    if not columns:
        raise ConfigError("there is no column beside the target: nothing to make trees of")
    return Plan(
        tuple(domain.names[j] for j in columns),
        columns,
        tuple(int(states[j]) for j in columns),
        place,
        1 if place is None else int(states[place]),
        seed,
        min_rows,
    )


def codes_of(values: FloatArray, plan: Plan) -> Codes:
    """Return the states of the plan's columns, ``(d, n)``; -1 is missing."""
    return encode(values[:, plan.columns], plan.num_states)


def classes_of(values: FloatArray, plan: Plan) -> IntArray:
    """Return the class of each row, ``(n,)``.

    Raises
    ------
    DataError
        If it is missing somewhere.
    """
    if plan.target is None:
        return np.zeros(len(values), dtype=np.int64)
    labels = values[:, plan.target]
    if not np.isin(labels, np.arange(plan.num_classes)).all():
        raise DataError(
            "the target is missing in some rows, or none of its states: drop those rows"
        )
    return labels.astype(np.int64)


def rows_by_class(values: FloatArray, plan: Plan) -> list[Codes]:
    """Return the states of the rows of each class, ``(d, rows)`` each."""
    codes, classes = codes_of(values, plan), classes_of(values, plan)
    if plan.target is None:
        return [codes]
    return [np.ascontiguousarray(codes[:, classes == c]) for c in range(plan.num_classes)]
