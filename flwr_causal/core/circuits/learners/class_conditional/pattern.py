"""Class-conditional circuits of parties that hold different columns.

The exchanges are those of `steps`, for any pattern of columns over parties. A *pattern* is a set of
numeric columns that at least one party holds. Scales, powers and tables of a column are computed
from the sums of the parties that hold it. Means and covariances are computed for each pattern, from
the rows of the parties that hold it, and shrunk by the held-out likelihood of these rows;
`joint_moments` combines them to one mean and one covariance of each class. Rows are not aligned and
do not leave a party. Every party must know the class of its rows.

All parties receive the same request. A party computes the sums of `steps` for the columns that it
holds and returns 0 for all others, so that the replies can be added. A column that a party does not
hold is missing in all rows of its values.

Parties that all hold all columns train by `steps`, which chooses the blocks for each fold. If no
column is held by two parties, the covariances between parties are 0.

The marginal of a t distribution over a pattern is a t distribution with that pattern's moments. The
joint t distribution makes a and b uncorrelated given S, but not independent: all columns share one
scale variable, so that a row that is extreme in a is expected to be extreme in b.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from flwr_causal.contract.exchange import Sent
from flwr_causal.core.circuits.learners.class_conditional import steps
from flwr_causal.core.circuits.learners.class_conditional.joint_moments import (
    PartMoments,
    joint_moments,
)
from flwr_causal.core.circuits.learners.class_conditional.moments import (
    ClassMoments,
    ClassSums,
    Coordinates,
    choose_shrinkage,
    chosen_of,
    correlation_blocks,
    shrunk_moments,
    tails_of,
)
from flwr_causal.core.circuits.learners.class_conditional.steps import (
    NUM_FOLDS,
    ClassConditionalTrained,
    probabilities,
)
from flwr_causal.core.circuits.learners.training_by_sums import (
    SummingStep,
    impossible,
    miscounted,
    summed_array,
    symmetric,
    upper_triangles,
)
from flwr_causal.core.circuits.presence import column_groups
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.learners.class_conditional.moments import Shrinkage
    from flwr_causal.core.circuits.learners.class_conditional.steps import ClassConditionalOptions
    from flwr_causal.core.circuits.learners.training_by_sums import Arrays, State, TrainingPlan


def started(plan: TrainingPlan, presence: ArrayLike) -> PatternScale:
    """Return the state before the first exchange.

    Parameters
    ----------
    plan : TrainingPlan
        Of the joint domain.
    presence : array_like of bool, shape (parties, variables of the joint domain)
        Whether a party holds a variable.

    Raises
    ------
    ConfigError
        If a party does not hold the target; or if the options ask for a head or a threshold, which
        need rows with all columns.
    DataError
        If no party holds a column.
    """
    held = np.asarray(presence, dtype=bool)
    if plan.target is not None and not held[:, plan.target].all():
        party = int(np.flatnonzero(~held[:, plan.target])[0])
        raise ConfigError(
            f"party {party} does not know the class of its rows: let the party that does share it, "
            "or compose clusters instead"
        )
    options: ClassConditionalOptions = plan.learner
    threshold = options.decision == "macro-f1" and plan.num_classes == 2
    if plan.target is not None and (options.head is True or threshold):
        raise ConfigError(
            "a head and a threshold are trained on rows with all columns: leave them out where "
            "parties hold different columns"
        )
    numbers = held[:, list(plan.numbers)]
    numbers = numbers[numbers.any(axis=1)]
    groups = [
        steps.LeafScale(part_of(plan, group.columns), np.zeros(len(group.columns)))
        for group in column_groups(numbers)
    ]
    return PatternScale(plan, np.unique(numbers, axis=0)[::-1], tuple(groups))


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


def part_of(
    plan: TrainingPlan, columns: Iterable[int], categories: Iterable[int] = ()
) -> TrainingPlan:
    """Return the plan of some numbers and categories, given by their places among those."""
    own = [plan.numbers[k] for k in columns] + [plan.categories[k] for k in categories]
    return replace(plan, columns=tuple(sorted(own)))


def columns_of(patterns: BoolArray) -> list[IntArray]:
    """Return the columns of each pattern."""
    return [np.flatnonzero(one).astype(np.int64) for one in patterns]


def triangles_of(patterns: BoolArray) -> list[slice]:
    """Return where the upper triangle of each pattern's second moments lies among all of them."""
    sizes = patterns.sum(axis=1)
    ends = np.cumsum(sizes * (sizes + 1) // 2).tolist()
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def spread(array: FloatArray, places: IntArray, d: int) -> FloatArray:
    """Return an array (..., d) with ``array`` at some places of its last axis, 0 elsewhere."""
    result = np.zeros((*array.shape[:-1], d))
    result[..., places] = array
    return result


# -- scales and powers, of each group of columns that the same parties hold -----------------------


@dataclass(frozen=True, eq=False)
class ByGroup(SummingStep):
    """An exchange of `steps` for each group of numbers that the same parties hold.

    Parameters
    ----------
    plan : TrainingPlan
        Of all columns.
    patterns : ndarray of bool, shape (G, d)
        The different sets of numbers that parties hold.
    groups : tuple of Scale, Powers or Moments
        The next exchange of each group. Where a group needs an earlier exchange than the others,
        only its columns take part, and the other groups wait.
    """

    plan: TrainingPlan
    patterns: BoolArray
    groups: tuple[steps.LeafScale | steps.Powers | steps.LeafMoments, ...]

    #: The exchange of one group.
    step: ClassVar[type[steps.LeafScale | steps.Powers | steps.LeafMoments]]

    def arrays(self) -> Arrays:
        """Return the patterns, and the arrays of the groups with all columns side by side."""
        result: Arrays = {"patterns": self.patterns.astype(np.float64)}
        for group in self.groups:
            if isinstance(group, self.step):
                for name, array in group.arrays().items():
                    if name in BY_COLUMN:
                        whole = spread(array, self.places(group), len(self.plan.numbers))
                        result[name] = result.get(name, 0.0) + whole
                    else:
                        result[name] = array
        return result

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Return the sums over a party's rows, 0 for columns that it does not hold."""
        party = PartyColumns.of(values, plan, asked["patterns"])
        answer = cls.party_sums(values, party, party.of_columns(asked))
        return {name: spread(array, party.own, len(plan.numbers)) for name, array in answer.items()}

    @classmethod
    def party_sums(cls, values: FloatArray, party: PartyColumns, asked: Arrays) -> Arrays:
        """Return the sums of the party's own columns, which are the last axis."""
        return cls.step.sums(values, party.plan, asked)

    def after(self, summed: Mapping[str, FloatArray]) -> State:
        """Return the next exchange, the earliest one that a group still needs."""
        groups: tuple[Any, ...] = tuple(
            group.after(self.group_sums(group, summed)) if isinstance(group, self.step) else group
            for group in self.groups
        )
        kinds: tuple[type[ByGroup], ...] = (PatternScale, PatternPowers, PatternMoments)
        needed = {type(group) for group in groups}
        return next(kind for kind in kinds if kind.step in needed)(self.plan, self.patterns, groups)

    def group_sums(self, group: SummingStep, summed: Mapping[str, FloatArray]) -> Arrays:
        """Return the sums of the columns of a group."""
        own = self.places(group)
        return {name: array[..., own] for name, array in summed.items()}

    def places(self, group: SummingStep) -> IntArray:
        """Return the places of a group's columns among all."""
        own = group.plan.numbers  # type: ignore[attr-defined]
        return np.searchsorted(np.array(self.plan.numbers), np.array(own))


class PatternScale(ByGroup):
    """Counts, sums and squares of each class; counts by column."""

    name = "pattern-scale"
    step = steps.LeafScale
    sent = (PATTERNS, *steps.LeafScale.sent)
    summed = (
        summed_array(
            "counts", "rows of each class with each column", ("classes", "columns"), "count"
        ),
        *steps.LeafScale.summed[1:],
    )

    @classmethod
    def party_sums(cls, values: FloatArray, party: PartyColumns, asked: Arrays) -> Arrays:
        """Return the sums, with the counts of the classes repeated for each column."""
        answer = super().party_sums(values, party, asked)
        return answer | {"counts": np.repeat(answer["counts"][:, None], len(party.own), axis=1)}

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

    def group_sums(self, group: SummingStep, summed: Mapping[str, FloatArray]) -> Arrays:
        """Return the sums of a group, all columns of which have the same counts."""
        answer = super().group_sums(group, summed)
        return answer | {"counts": answer["counts"][:, 0]}


class PatternPowers(ByGroup):
    """Sums of the columns under a grid of powers."""

    name = "pattern-powers"
    step = steps.Powers
    sent = (PATTERNS, *steps.Powers.sent)
    summed = steps.Powers.summed


# -- moments of each pattern ----------------------------------------------------------------------


class PatternMoments(ByGroup):
    """Counts, sums and products by pattern, fold and class; tables by fold and class."""

    name = "pattern-moments"
    step = steps.LeafMoments
    sent = (PATTERNS, *steps.LeafMoments.sent)
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
        summed_array(
            "tables",
            "rows of each state by fold and class",
            ("folds", "classes", "states"),
            "count",
        ),
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
        answer = steps.LeafMoments.sums(values, party.plan, party.of_columns(asked))
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
        return {**steps.LeafMoments.sizes(plan, asked), "column pairs": last.stop}

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield how a party's sums contradict each other or its rows; columns not held are 0."""
        counts = sums["counts"]
        if counts.any():
            yield from miscounted(counts, plan, rows)
        by_category = steps.by_category(sums["tables"], plan)
        held = by_category.any(axis=(0, 1))
        for own in np.moveaxis(by_category, -1, 0)[held]:
            yield from miscounted(own, plan, rows)
        columns = columns_of(asked["patterns"] > 0)
        triangles = triangles_of(asked["patterns"] > 0)
        for one, first, own, place in zip(counts, sums["first"], columns, triangles, strict=True):
            products = symmetric(sums["second"][..., place], len(own))
            squares = np.diagonal(products, axis1=-2, axis2=-1)
            yield from impossible(one, first[..., own], squares)

    def after(self, summed: Mapping[str, FloatArray]) -> PatternHeldOut:
        """Return the exchange of held-out rows, with the joint moments of each class."""
        plan, sent = self.plan, self.arrays()
        options: ClassConditionalOptions = plan.learner
        columns, triangles = columns_of(self.patterns), triangles_of(self.patterns)
        folds = [
            ClassSums(
                counts,
                first[..., own],
                symmetric(summed["second"][..., triangle], len(own)),
                sent["offsets"][:, own],
            )
            for counts, first, own, triangle in zip(
                summed["counts"], summed["first"], columns, triangles, strict=True
            )
        ]
        shrinkages = tuple(
            choose_shrinkage(one, options.diagonals, options.pooled) for one in folds
        )
        totals = [one.total() for one in folds]
        shrunk = [shrunk_moments(*one) for one in zip(totals, shrinkages, strict=True)]
        counts = np.sum([one.counts for one in totals], axis=0)
        d, names = len(plan.numbers), [plan.names[j] for j in plan.numbers]
        means = np.zeros((plan.num_classes, d))
        covariances = np.broadcast_to(np.eye(d), (plan.num_classes, d, d)).copy()
        for c in np.flatnonzero(counts):
            parts = [
                PartMoments(own, one.counts[c], of.means[c], of.covariances[c])
                for own, one, of in zip(columns, totals, shrunk, strict=True)
            ]
            means[c], covariances[c] = joint_moments(parts, names, f"class {c} of the target")
        return PatternHeldOut(
            plan,
            self.patterns,
            steps.coordinates_of(sent),
            tuple(folds),
            shrinkages,
            counts,
            ClassMoments(means, covariances),
            summed["tables"],
        )


@dataclass(frozen=True, eq=False)
class PatternHeldOut(SummingStep):
    """Log-likelihoods and log losses of each fold's rows under leaves made without the fold.

    Parameters
    ----------
    plan : TrainingPlan
        Of all columns.
    patterns : ndarray of bool, shape (G, d)
    coordinates : Coordinates
        Of all columns.
    folds : tuple of ClassSums
        Of each pattern, over its columns; the first axis is the fold.
    shrinkages : tuple of Shrinkage
        Of each pattern.
    counts : ndarray of float, shape (C,)
        Rows of each class.
    moments : ClassMoments
        Joint means (C, d) and covariances (C, d, d).
    tables : ndarray of float, shape (folds, C, states)
        Rows of each fold, class and state, the categories side by side.
    """

    plan: TrainingPlan
    patterns: BoolArray
    coordinates: Coordinates
    folds: tuple[ClassSums, ...]
    shrinkages: tuple[Shrinkage, ...]
    counts: FloatArray
    moments: ClassMoments
    tables: FloatArray

    name = "pattern-held-out"
    sent = (
        PATTERNS,
        *steps.COORDINATES,
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
        Sent(
            "tables", "probabilities of states, without each fold", ("folds", "classes", "states")
        ),
        Sent("weights", "shares of the classes", ("classes",)),
        Sent("blocks", "block of each column, by cut", ("cuts", "columns")),
        Sent("tails", "inverse degrees of freedom", ("tails",)),
    )
    summed = steps.HeldOut.summed

    def arrays(self) -> Arrays:
        """Return the moments of each pattern without each fold, the blocks and the tails."""
        moments = [
            shrunk_moments(one.without_each(), shrinkage)
            for one, shrinkage in zip(self.folds, self.shrinkages, strict=True)
        ]
        others = self.tables.sum(axis=0) - self.tables
        means = np.zeros((len(moments), *others.shape[:2], len(self.plan.numbers)))
        for g, (one, own) in enumerate(zip(moments, columns_of(self.patterns), strict=True)):
            means[g][..., own] = one.means
        triangles = [upper_triangles(one.covariances) for one in moments]
        return {
            "patterns": self.patterns.astype(np.float64),
            **self.coordinates._asdict(),
            "means": means,
            "covariances": np.concatenate(triangles, axis=-1),
            "tables": probabilities(others, self.plan.sizes),
            "weights": self.counts / self.counts.sum(),
            "blocks": self._blocks().astype(np.float64),
            "tails": tails_of(self.plan.learner.dof),
        }

    def _blocks(self) -> IntArray:
        """Return the block of each column (cuts, d), by the correlations within classes."""
        shares = self.counts / self.counts.sum()
        within = np.einsum("c,cij->ij", shares, self.moments.covariances)
        return correlation_blocks(within, self.plan.learner.cuts)

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
        return steps.HeldOut.sums(values, party.plan, own)

    def after(self, summed: Mapping[str, FloatArray]) -> ClassConditionalTrained:
        """Return the parameters of the circuits."""
        likelihoods, losses = summed["likelihoods"], summed["log_losses"]
        choice = chosen_of(likelihoods, losses, self._blocks(), self.plan.learner.dof)
        return ClassConditionalTrained(
            self.plan,
            self.counts,
            self.coordinates,
            self.moments,
            self.tables.sum(axis=0),
            choice,
        )
