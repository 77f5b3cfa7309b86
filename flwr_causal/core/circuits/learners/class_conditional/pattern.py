"""Which parties hold which numbers, for class-conditional circuits: patterns of columns.

A *pattern* is a set of numeric columns that at least one party holds; where all parties hold all
columns there is one. Scales, powers and tables of a column are computed from the sums of the
parties that hold it. Means and covariances are computed for each pattern, from the rows of the
parties that hold it, and shrunk by the held-out likelihood of these rows; `joint_moments` combines
them to one mean and one covariance of each class. Rows are not aligned and do not leave a party.
Every party must know the class of its rows.

All parties receive the same request. A party computes the sums of `exchanges` for the columns that
it holds and returns 0 for all others, so that the replies can be added. A column that a party does
not hold is missing in all rows of its values.

Where all parties hold all columns, the blocks of correlated columns are computed for each fold. If
no column is held by two parties, the covariances between parties are 0.

The marginal of a t distribution over a pattern is a t distribution with that pattern's moments. The
joint t distribution makes a and b uncorrelated given S, but not independent: all columns share one
scale variable, so that a row that is extreme in a is expected to be extreme in b.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.learners.options import HeadOptions
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan


@dataclass(frozen=True, eq=False)
class ColumnPatterns:
    """The patterns of the parties' numbers, and the exchanges that fit.

    Parameters
    ----------
    held : ndarray of bool, shape (G, d)
        Which numbers each pattern holds; one pattern of all of them if all hold all columns.
    differ : bool
        Whether parties hold different columns.
    """

    held: BoolArray
    differ: bool

    @classmethod
    def of(cls, plan: TrainingPlan, presence: BoolArray | None = None) -> ColumnPatterns:
        """Return what parties hold of the columns of a plan.

        Parameters
        ----------
        plan : TrainingPlan
            Of the joint domain.
        presence : ndarray of bool, shape (parties, variables of the joint domain), optional
            Whether a party holds a variable. Default: all hold all columns.

        Raises
        ------
        ConfigError
            If a party does not hold the target; or if parties hold different columns and the
            options ask for a head or a threshold, which need rows with all columns.
        """
        if presence is None or presence.all():
            return cls(np.ones((1, len(plan.numbers)), dtype=np.bool_), differ=False)
        if plan.target is not None and not presence[:, plan.target].all():
            party = int(np.flatnonzero(~presence[:, plan.target])[0])
            raise ConfigError(
                f"party {party} does not know the class of its rows: let the party that does share "
                "it, or compose clusters instead"
            )
        options: HeadOptions = plan.learner
        threshold = options.decision == "macro-f1" and plan.num_classes == 2
        if plan.target is not None and (options.head is True or threshold):
            raise ConfigError(
                "a head and a threshold are trained on rows with all columns: leave them out where "
                "parties hold different columns"
            )
        numbers = presence[:, list(plan.numbers)]
        numbers = numbers[numbers.any(axis=1)]
        return cls(np.unique(numbers, axis=0)[::-1], differ=True)

    @property
    def sent(self) -> FloatArray:
        """The patterns as parties are sent them, shape (G, d)."""
        return self.held.astype(np.float64)

    @property
    def columns(self) -> list[IntArray]:
        """The columns of each pattern."""
        return columns_of(self.held)


def columns_of(patterns: BoolArray) -> list[IntArray]:
    """Return the columns of each pattern."""
    return [np.flatnonzero(one).astype(np.int64) for one in patterns]


def triangles_of(patterns: BoolArray) -> list[slice]:
    """Return where the upper triangle of each pattern's second moments lies among all of them."""
    sizes = patterns.sum(axis=1)
    ends = np.cumsum(sizes * (sizes + 1) // 2).tolist()
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


# -- the columns of a party -----------------------------------------------------------------------


class PartyColumns(NamedTuple):
    """The columns of a party, found in its values.

    Parameters
    ----------
    plan : TrainingPlan
        Of the party's columns.
    places : ndarray of int64
        Places of the party's numbers in the joint plan.
    states : ndarray of bool
        Which states, of all categories side by side, belong to the party's categories.
    pattern : int
        Row of its pattern; 0 for a party without numbers.
    triangle : slice
        Place of the second moments of its pattern; empty for a party without numbers.
    """

    plan: TrainingPlan
    places: IntArray
    states: BoolArray
    pattern: int
    triangle: slice

    @classmethod
    def of(cls, values: FloatArray, plan: TrainingPlan, patterns: FloatArray) -> PartyColumns:
        """Find the columns of a party.

        Parameters
        ----------
        values : ndarray of float, shape (n, number of variables of the joint domain)
            A column that is missing in all rows is not held by the party. In the others no value
            may be missing.
        plan : TrainingPlan
            Of the joint domain.
        patterns : ndarray of float, shape (G, d)
            As they are sent.

        Raises
        ------
        DataError
            If the party's numbers are none of the patterns.
        """
        held, categories = (
            ~np.isnan(values[:, list(columns)]).all(axis=0)
            for columns in (plan.numbers, plan.categories)
        )
        places = np.flatnonzero(held).astype(np.int64)
        kept = [plan.numbers[k] for k in places]
        kept += [plan.categories[k] for k in np.flatnonzero(categories)]
        part, states = replace(plan, columns=tuple(sorted(kept))), np.repeat(categories, plan.sizes)
        if not len(places):
            return cls(part, places, states, 0, slice(0, 0))
        found = np.flatnonzero(((patterns > 0) == held).all(axis=1))
        if not len(found):
            listed = ", ".join(plan.names[plan.numbers[j]] for j in places)
            raise DataError(
                f"no party was announced that holds the numbers {listed} and no others: does a "
                "column have no value at all? Leave it out"
            )
        which = int(found[0])
        return cls(part, places, states, which, triangles_of(patterns > 0)[which])

    def spread(self, sums: Arrays, d: int) -> Arrays:
        """Return sums of the party's numbers, the last axis, as those of d; 0 for the others."""
        return {name: spread(array, self.places, d) for name, array in sums.items()}


def spread(array: FloatArray, places: IntArray, d: int) -> FloatArray:
    """Return an array (..., d) with ``array`` at some places of its last axis, 0 elsewhere."""
    result = np.zeros((*array.shape[:-1], d))
    result[..., places] = array
    return result
