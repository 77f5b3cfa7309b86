"""Class-conditional circuits of parties that hold different columns.

The training is that of `learner`, for any pattern of columns over parties. A *pattern* is a set of
numeric columns that at least one party holds. Scales, powers and tables of a column are computed
from the sums of the parties that hold it. Means and covariances are computed for each pattern, from
the rows of the parties that hold it, and shrunk by the held-out likelihood of these rows;
`joint_moments` combines them to one mean and one covariance of each class. Rows are not aligned and
do not leave a party. Every party must know the class of its rows.

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

from flwr_causal.contract.exchange import Sent
from flwr_causal.core.arrays import symmetric
from flwr_causal.core.circuits.learners.class_conditional.categories import by_category
from flwr_causal.core.circuits.learners.class_conditional.exchanges import (
    COORDINATES,
    FOLD_MOMENTS,
    HeldOut,
    LeafMoments,
    LeafScale,
    Powers,
)
from flwr_causal.core.circuits.learners.class_conditional.moments import Coordinates
from flwr_causal.core.circuits.learners.class_conditional.rows import NUM_FOLDS
from flwr_causal.core.circuits.learners.training_by_sums import (
    SumsExchange,
    impossible,
    miscounted,
    summed_array,
)
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.learners.options import HeadOptions
    from flwr_causal.core.circuits.learners.training_by_sums import (
        Arrays,
        SumsRequest,
        TrainingPlan,
    )


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

    def ask(self, exchange: type[SumsExchange], **arrays: FloatArray) -> SumsRequest:
        """Return the request of an exchange, in its form for different columns if they differ."""
        if not self.differ:
            return exchange.ask(**arrays)
        return OF_DIFFERENT_COLUMNS[exchange].ask(patterns=self.held.astype(np.float64), **arrays)

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

PATTERNS = Sent("patterns", "1 where a set of parties holds a column", ("patterns", "columns"))
#: Arrays sent with the columns on their last axis.
BY_COLUMN = (*Coordinates._fields, "origin", "offsets")


class PartyColumns(NamedTuple):
    """The columns of a party, found in its values.

    Parameters
    ----------
    plan : TrainingPlan
        Of the party's columns.
    own : ndarray of int64
        Places of the party's numbers in the joint plan.
    states : ndarray of bool
        Which states, of all categories side by side, belong to the party's categories.
    pattern : int
        Row of its pattern; 0 for a party without numbers.
    triangle : slice
        Place of the second moments of its pattern; empty for a party without numbers.
    """

    plan: TrainingPlan
    own: IntArray
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
            As `PatternScale` sends them.

        Raises
        ------
        DataError
            If the party's numbers are none of the patterns.
        """
        there = np.asarray(~np.isnan(values).all(axis=0))
        held, categories = there[list(plan.numbers)], there[list(plan.categories)]
        part = part_of(plan, np.flatnonzero(held), np.flatnonzero(categories))
        states = np.repeat(categories, plan.sizes)
        own = np.flatnonzero(held).astype(np.int64)
        if not len(own):
            return cls(part, own, states, 0, slice(0, 0))
        found = np.flatnonzero(((patterns > 0) == held).all(axis=1))
        if not len(found):
            listed = ", ".join(plan.names[plan.numbers[j]] for j in own)
            raise DataError(
                f"no party was announced that holds the numbers {listed} and no others: does a "
                "column have no value at all? Leave it out"
            )
        which = int(found[0])
        return cls(part, own, states, which, triangles_of(patterns > 0)[which])

    def of_columns(self, asked: Arrays) -> Arrays:
        """Return the arrays that were sent, restricted to the party's numbers."""
        return {
            name: array[..., self.own] if name in BY_COLUMN else array
            for name, array in asked.items()
        }

    def spread(self, sums: Arrays, d: int) -> Arrays:
        """Return sums of the party's numbers, the last axis, as those of d; 0 for the others."""
        return {name: spread(array, self.own, d) for name, array in sums.items()}


def part_of(
    plan: TrainingPlan, columns: Iterable[int], categories: Iterable[int] = ()
) -> TrainingPlan:
    """Return the plan of some numbers and categories, given by their places among those."""
    own = [plan.numbers[k] for k in columns] + [plan.categories[k] for k in categories]
    return replace(plan, columns=tuple(sorted(own)))


def spread(array: FloatArray, places: IntArray, d: int) -> FloatArray:
    """Return an array (..., d) with ``array`` at some places of its last axis, 0 elsewhere."""
    result = np.zeros((*array.shape[:-1], d))
    result[..., places] = array
    return result


# -- the exchanges --------------------------------------------------------------------------------


class PatternScale(LeafScale):
    """Counts, sums and squares of each class; counts by column."""

    name = "pattern-scale"
    sent = (PATTERNS, *LeafScale.sent)
    summed = (
        summed_array(
            "counts", "rows of each class with each column", ("classes", "columns"), "count"
        ),
        *LeafScale.summed[1:],
    )

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Return the sums over a party's rows, 0 for columns that it does not hold."""
        party = PartyColumns.of(values, plan, asked["patterns"])
        answer = super().sums(values, party.plan, party.of_columns(asked))
        return party.spread(answer | {"counts": answer["counts"][:, None]}, len(plan.numbers))

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield how a party's sums contradict each other or its rows; columns not held are 0."""
        held = sums["counts"].any(axis=0)
        for counts in sums["counts"].T[held]:
            yield from miscounted(counts, plan, rows)
        first, second = sums["first"][..., None], sums["second"][..., None]
        yield from impossible(sums["counts"], first, second)


class PatternPowers(Powers):
    """Sums of the columns under a grid of powers."""

    name = "pattern-powers"
    sent = (PATTERNS, *Powers.sent)

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Return the sums over a party's rows, 0 for columns that it does not hold."""
        party = PartyColumns.of(values, plan, asked["patterns"])
        answer = super().sums(values, party.plan, party.of_columns(asked))
        return party.spread(answer, len(plan.numbers))


class PatternMoments(LeafMoments):
    """Counts, sums and products by pattern, fold and class; tables by fold and class."""

    name = "pattern-moments"
    sent = (PATTERNS, *LeafMoments.sent)
    summed = (
        summed_array(
            "counts",
            "rows of each pattern, fold and class",
            ("patterns", "folds", "classes"),
            "count",
        ),
        summed_array(
            "first",
            "sums of each pattern, fold and class",
            ("patterns", "folds", "classes", "columns"),
        ),
        summed_array(
            "second",
            "sums of products of each fold and class, the patterns side by side",
            ("folds", "classes", "column pairs"),
        ),
        LeafMoments.summed[-1],
    )

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Return the sums over a party's transformed rows, 0 for the other patterns."""
        classes, d, patterns = plan.num_classes, len(plan.numbers), asked["patterns"] > 0
        reply = {
            "counts": np.zeros((len(patterns), NUM_FOLDS, classes)),
            "first": np.zeros((len(patterns), NUM_FOLDS, classes, d)),
            "second": np.zeros((NUM_FOLDS, classes, triangles_of(patterns)[-1].stop)),
            "tables": np.zeros((NUM_FOLDS, classes, sum(plan.sizes))),
        }
        party = PartyColumns.of(values, plan, asked["patterns"])
        answer = super().sums(values, party.plan, party.of_columns(asked))
        if len(party.own):
            reply["counts"][party.pattern] = answer["counts"]
            reply["first"][party.pattern][..., party.own] = answer["first"]
            reply["second"][..., party.triangle] = answer["second"]
        reply["tables"][..., party.states] = answer["tables"]
        return reply

    @classmethod
    def sizes(cls, plan: TrainingPlan, asked: Arrays) -> dict[str, int]:
        """Return the sizes that follow from the plan and what was sent."""
        *_, last = triangles_of(asked["patterns"] > 0)
        return {**super().sizes(plan, asked), "column pairs": last.stop}

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield how a party's sums contradict each other or its rows; columns not held are 0."""
        counts = sums["counts"]
        if counts.any():
            yield from miscounted(counts, plan, rows)
        counted = by_category(sums["tables"], plan)
        held = counted.any(axis=(0, 1))
        for own in np.moveaxis(counted, -1, 0)[held]:
            yield from miscounted(own, plan, rows)
        columns = columns_of(asked["patterns"] > 0)
        triangles = triangles_of(asked["patterns"] > 0)
        for one, first, own, place in zip(counts, sums["first"], columns, triangles, strict=True):
            products = symmetric(sums["second"][..., place], len(own))
            squares = np.diagonal(products, axis1=-2, axis2=-1)
            yield from impossible(one, first[..., own], squares)


class PatternHeldOut(HeldOut):
    """Log-likelihoods and log losses of each fold's rows under leaves made without the fold."""

    name = "pattern-held-out"
    sent = (
        PATTERNS,
        *COORDINATES,
        Sent(
            "means",
            "of each class in each pattern, without each fold",
            ("patterns", "folds", "classes", "columns"),
        ),
        Sent(
            "covariances",
            "of each class, without each fold, the patterns side by side",
            ("folds", "classes", "column pairs"),
        ),
        FOLD_MOMENTS[-1],
        Sent("weights", "shares of the classes", ("classes",)),
        Sent("blocks", "block of each column, by cut", ("cuts", "columns")),
        Sent("tails", "inverse degrees of freedom", ("tails",)),
    )

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Sum log-likelihoods and log losses of rows under the moments of the other folds."""
        party = PartyColumns.of(values, plan, asked["patterns"])
        if not len(party.own):
            tails = len(asked["tails"])
            shapes = {"likelihoods": (tails,), "log_losses": (len(asked["blocks"]), tails)}
            return {name: np.zeros(shape) for name, shape in shapes.items()}
        own = party.of_columns(asked)
        blocks = np.stack(
            [np.unique(one[party.own], return_inverse=True)[1] for one in asked["blocks"]]
        )
        own |= {
            "means": asked["means"][party.pattern][..., party.own],
            "covariances": asked["covariances"][..., party.triangle],
            "tables": asked["tables"][..., party.states],
            "blocks": np.broadcast_to(blocks, (NUM_FOLDS, *blocks.shape)),
        }
        return super().sums(values, party.plan, own)


#: The exchanges of parties that hold different columns, by those of parties that hold all of them.
OF_DIFFERENT_COLUMNS: dict[type[SumsExchange], type[SumsExchange]] = {
    LeafScale: PatternScale,
    Powers: PatternPowers,
    LeafMoments: PatternMoments,
    HeldOut: PatternHeldOut,
}
