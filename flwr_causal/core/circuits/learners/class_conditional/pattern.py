"""Class-conditional circuits where parties hold different columns.

The exchanges are those of `steps`, for any pattern of columns over parties. Scales, powers and
tables of a column come from the parties that hold it. Moments come from the rows of each pattern, a
set of numbers that some parties hold, shrunk by their own held-out likelihood; `joint_moments` puts
the joint moments of each class together from these. No rows are aligned and no row leaves a party.
Every party must know the class of its rows.

All parties get the same request, answer as in `steps` for the columns that they hold, and leave
zeros elsewhere, so that answers add up. A party finds the columns that it holds in its values: the
others are missing in every row.

Parties that all hold all columns train by `steps`, where blocks are chosen for each fold. Parties
without a common column get one elliptical leaf a party and class, put together to one with no
covariance between parties.

Joint moments: columns that no party holds together are taken to be independent given the columns
that connect them. The covariance is the one of largest entropy that agrees with the known entries;
its inverse is 0 between such columns (Dempster 1972). With parties that hold (a, S) and (b, S) that
is p(S) p(a | S) p(b | S). EM finds the most likely such covariance; its expectation needs of a
party only the moments of its own columns, on which the other columns are regressed.

A t distribution with the joint covariance has the t of each party's own columns as its marginals.
It says of a and b that they are uncorrelated given S, but not that they are independent: all
columns share one scale, so rows that are far out in a are expected to be far out in b. No t
distribution has independent parts.

References
----------
Dempster: Covariance selection, Biometrics 1972.
Hastie, Tibshirani & Friedman: The elements of statistical learning, 2009, Algorithm 17.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.circuits.learners.class_conditional import steps
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
    SentArray,
    Step,
    SummedArray,
    symmetric,
    upper_triangles,
)
from flwr_causal.core.circuits.presence import column_groups
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.learners.class_conditional.moments import Shrinkage
    from flwr_causal.core.circuits.learners.class_conditional.steps import ClassConditionalOptions
    from flwr_causal.core.circuits.learners.training_by_sums import Arrays, Plan


class PatternSteps(StrEnum):
    """The exchanges."""

    SCALE = "pattern-scale"
    POWERS = "pattern-powers"
    MOMENTS = "pattern-moments"
    HELD_OUT = "pattern-held-out"


def started(plan: Plan, presence: ArrayLike) -> PatternScale:
    """Return the state before the first exchange.

    Parameters
    ----------
    plan : Plan
        Of the joint domain.
    presence : array_like of bool, shape (parties, variables of the joint domain)

    Raises
    ------
    ConfigError
        If a party does not hold the target; or if a head or a threshold is asked for: they need
        rows with all columns.
    DataError
        If nobody holds a column.
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
    if plan.target is not None and (options.head or threshold):
        raise ConfigError(
            "a head and a threshold are trained on rows with all columns: leave them out where "
            "parties hold different columns"
        )
    numbers = held[:, list(plan.numbers)]
    numbers = numbers[numbers.any(axis=1)]
    groups = [
        steps.Scale(part_of(plan, group.columns), np.zeros(len(group.columns)))
        for group in column_groups(numbers)
    ]
    return PatternScale(plan, np.unique(numbers, axis=0)[::-1], tuple(groups))


# -- scales and powers, of each group of columns that the same parties hold -----------------------

PATTERNS = SentArray("patterns", "1 where a set of parties holds a column", ("patterns", "columns"))


@dataclass(frozen=True, eq=False)
class Grouped:
    """The state of each group of columns.

    Parameters
    ----------
    plan : Plan
        Of all columns.
    patterns : ndarray of bool, shape (G, d)
        The different sets of numbers that parties hold.
    groups : tuple of Scale, Powers or Moments
        The next exchange of each group of numbers that the same parties hold. A group that is ahead
        of others waits for them.
    """

    plan: Plan
    patterns: BoolArray
    groups: tuple[steps.Scale | steps.Powers | steps.Moments, ...]

    def places(self, group: Step) -> IntArray:
        """Return where the columns of a group are among all."""
        own = group.plan.numbers  # type: ignore[attr-defined]
        return np.searchsorted(np.array(self.plan.numbers), np.array(own))

    def spread(self, arrays: Sequence[FloatArray]) -> FloatArray:
        """Put arrays (..., columns of the group) of all groups in their places, (..., d)."""
        result = np.zeros((*arrays[0].shape[:-1], len(self.plan.numbers)))
        for group, array in zip(self.groups, arrays, strict=True):
            result[..., self.places(group)] = array
        return result

    def with_groups(
        self, groups: Iterable[steps.Scale | steps.Powers | steps.Moments]
    ) -> PatternScale | PatternPowers | PatternMoments:
        """Return the next exchange, which is the earliest one that a group still needs."""
        known = tuple(groups)
        following: type[PatternScale | PatternPowers | PatternMoments] = PatternMoments
        if any(isinstance(group, steps.Powers) for group in known):
            following = PatternPowers
        if any(isinstance(group, steps.Scale) for group in known):
            following = PatternScale
        return following(self.plan, self.patterns, known)

    def coordinates(self) -> tuple[Coordinates, FloatArray]:
        """Return the coordinates of all columns, and the offsets (C, d) of the classes in them."""
        known = [group for group in self.groups if not isinstance(group, steps.Scale)]
        parts = zip(*(group.coordinates for group in known), strict=True)
        spread = [self.spread(one) for one in parts]
        return Coordinates(*spread), self.spread([group.offsets for group in known])


class PatternScale(Grouped, Step):
    """Counts, sums and squares of each class; counts by column."""

    name = PatternSteps.SCALE
    sent = (PATTERNS, *steps.Scale.sent)
    summed = (
        SummedArray(
            "counts", "rows of each class with each column", ("classes", "columns"), "count"
        ),
        *steps.Scale.summed[1:],
    )

    def arrays(self) -> Arrays:
        """Return the patterns and the origin."""
        origins = [
            group.origin if isinstance(group, steps.Scale) else np.zeros(len(group.plan.numbers))
            for group in self.groups
        ]
        return {"patterns": self.patterns.astype(np.float64), "origin": self.spread(origins)}

    @classmethod
    def sums(cls, values: FloatArray, plan: Plan, asked: Arrays) -> Arrays:
        """Sum a party's rows."""
        shape = (plan.num_classes, len(plan.numbers))
        reply = {name: np.zeros(shape) for name in ("counts", "first", "second")}
        party = Party.of(values, plan, asked["patterns"])
        if len(party.own):
            answer = steps.Scale.sums(values, party.plan, party.of_columns(asked))
            reply["counts"][:, party.own] = answer["counts"][:, None]
            for name in ("first", "second"):
                reply[name][:, party.own] = answer[name]
        return reply

    def after(
        self, summed: Mapping[str, FloatArray]
    ) -> PatternScale | PatternPowers | PatternMoments:
        """Return the next exchange."""
        groups = []
        for group in self.groups:
            if isinstance(group, steps.Scale):
                own = self.places(group)
                answer = {name: array[:, own] for name, array in summed.items()}
                group = group.after(answer | {"counts": answer["counts"][:, 0]})
            groups.append(group)
        return self.with_groups(groups)


class PatternPowers(Grouped, Step):
    """Sums of the columns under a grid of powers."""

    name = PatternSteps.POWERS
    sent = (PATTERNS, *steps.Powers.sent)
    summed = steps.Powers.summed

    def arrays(self) -> Arrays:
        """Return the patterns, scales and powers."""
        coordinates, _ = self.coordinates()
        return {
            "patterns": self.patterns.astype(np.float64),
            "scale": coordinates.scale,
            "middle": coordinates.middle,
            "reach": coordinates.reach,
            "grid": np.array(self.plan.learner.powers),
        }

    @classmethod
    def sums(cls, values: FloatArray, plan: Plan, asked: Arrays) -> Arrays:
        """Sum a party's transformed rows."""
        classes, d = plan.num_classes, len(plan.numbers)
        reply = {
            "logs": np.zeros((classes, d)),
            "powers": np.zeros((classes, 2, d, len(asked["grid"]))),
        }
        party = Party.of(values, plan, asked["patterns"])
        if len(party.own):
            answer = steps.Powers.sums(values, party.plan, party.of_columns(asked))
            reply["logs"][:, party.own] = answer["logs"]
            reply["powers"][:, :, party.own] = answer["powers"]
        return reply

    def after(
        self, summed: Mapping[str, FloatArray]
    ) -> PatternScale | PatternPowers | PatternMoments:
        """Return the next exchange."""
        groups = []
        for group in self.groups:
            if isinstance(group, steps.Powers):
                own = self.places(group)
                group = group.after(
                    {"logs": summed["logs"][:, own], "powers": summed["powers"][:, :, own]}
                )
            groups.append(group)
        return self.with_groups(groups)


# -- moments of each pattern ----------------------------------------------------------------------


class PatternMoments(Grouped, Step):
    """Counts, sums and products by pattern, fold and class; tables by fold and class."""

    name = PatternSteps.MOMENTS
    sent = (PATTERNS, *steps.Moments.sent)
    summed = (
        SummedArray(
            "counts",
            "rows of each pattern, fold and class",
            ("patterns", "folds", "classes"),
            "count",
        ),
        SummedArray(
            "first",
            "sums of each pattern, fold and class",
            ("patterns", "folds", "classes", "columns"),
        ),
        SummedArray(
            "second",
            "sums of products of each fold and class, the patterns side by side",
            ("folds", "classes", "column pairs"),
        ),
        SummedArray(
            "tables",
            "rows of each state by fold and class",
            ("folds", "classes", "states"),
            "count",
        ),
    )

    def arrays(self) -> Arrays:
        """Return the patterns, coordinates and offsets."""
        coordinates, offsets = self.coordinates()
        return {
            "patterns": self.patterns.astype(np.float64),
            **coordinates._asdict(),
            "offsets": offsets,
        }

    @classmethod
    def sums(cls, values: FloatArray, plan: Plan, asked: Arrays) -> Arrays:
        """Sum a party's transformed rows."""
        classes, d, patterns = plan.num_classes, len(plan.numbers), asked["patterns"] > 0
        reply = {
            "counts": np.zeros((len(patterns), NUM_FOLDS, classes)),
            "first": np.zeros((len(patterns), NUM_FOLDS, classes, d)),
            "second": np.zeros((NUM_FOLDS, classes, triangles_of(patterns)[-1].stop)),
            "tables": np.zeros((NUM_FOLDS, classes, sum(plan.sizes))),
        }
        party = Party.of(values, plan, asked["patterns"])
        answer = steps.Moments.sums(values, party.plan, party.of_columns(asked))
        if len(party.own):
            reply["counts"][party.pattern] = answer["counts"]
            reply["first"][party.pattern][..., party.own] = answer["first"]
            reply["second"][..., party.triangle] = answer["second"]
        reply["tables"][..., party.states] = answer["tables"]
        return reply

    def after(self, summed: Mapping[str, FloatArray]) -> PatternHeldOut:
        """Return the exchange of held-out rows: the joint moments of each class are known."""
        coordinates, offsets = self.coordinates()
        plan = self.plan
        options: ClassConditionalOptions = plan.learner
        columns, triangles = columns_of(self.patterns), triangles_of(self.patterns)
        folds = [
            ClassSums(
                counts,
                first[..., own],
                symmetric(summed["second"][..., triangle], len(own)),
                offsets[:, own],
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
            coordinates,
            tuple(folds),
            shrinkages,
            counts,
            ClassMoments(means, covariances),
            summed["tables"],
        )


@dataclass(frozen=True, eq=False)
class PatternHeldOut(Step):
    """Log-likelihoods and log losses of each fold's rows under leaves made without the fold.

    Parameters
    ----------
    plan : Plan
        Of all columns.
    patterns : ndarray of bool, shape (G, d)
    coordinates : Coordinates
    folds : tuple of ClassSums
        Of each pattern.
    shrinkages : tuple of Shrinkage
        Of each pattern.
    counts : ndarray of float, shape (C,)
        Rows of each class.
    moments : ClassMoments
        Joint ones.
    tables : ndarray of float, shape (folds, C, states)
    """

    plan: Plan
    patterns: BoolArray
    coordinates: Coordinates
    folds: tuple[ClassSums, ...]
    shrinkages: tuple[Shrinkage, ...]
    counts: FloatArray
    moments: ClassMoments
    tables: FloatArray

    name = PatternSteps.HELD_OUT
    sent = (
        PATTERNS,
        *steps.COORDINATES,
        SentArray(
            "means",
            "of each class in each pattern, without each fold",
            ("patterns", "folds", "classes", "columns"),
        ),
        SentArray(
            "covariances",
            "of each class, without each fold, the patterns side by side",
            ("folds", "classes", "column pairs"),
        ),
        SentArray(
            "tables", "probabilities of states, without each fold", ("folds", "classes", "states")
        ),
        SentArray("weights", "shares of the classes", ("classes",)),
        SentArray("blocks", "block of each column, by cut", ("cuts", "columns")),
        SentArray("tails", "inverse degrees of freedom", ("tails",)),
    )
    summed = steps.HeldOut.summed

    def arrays(self) -> Arrays:
        """Return moments of each pattern without each fold, blocks and tails."""
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
            "tables": probabilities(others, np.array(self.plan.sizes, dtype=np.int64)),
            "weights": self.counts / self.counts.sum(),
            "blocks": self._blocks().astype(np.float64),
            "tails": tails_of(self.plan.learner.dof),
        }

    def _blocks(self) -> IntArray:
        """Return the blocks (cuts, d) by the correlations within classes."""
        shares = self.counts / self.counts.sum()
        within = np.einsum("c,cij->ij", shares, self.moments.covariances)
        return correlation_blocks(within, self.plan.learner.cuts)

    @classmethod
    def sums(cls, values: FloatArray, plan: Plan, asked: Arrays) -> Arrays:
        """Sum log-likelihoods and log losses of rows under the moments of the other folds."""
        party = Party.of(values, plan, asked["patterns"])
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


# -- a party's place among all --------------------------------------------------------------------

# Arrays whose last axis is the columns.
BY_COLUMN = (*Coordinates._fields, "origin", "offsets")


class Party(NamedTuple):
    """The columns of a party, found in its values.

    Parameters
    ----------
    plan : Plan
        Of its columns.
    own : ndarray of int64
        Places of its numbers in the joint plan.
    states : ndarray of bool
        Which states, of all categories side by side, belong to its categories.
    pattern : int
    triangle : slice
        Place of the triangle of its pattern's second moments among the triangles of all patterns.
        Empty without numbers; the pattern is then of no effect.
    """

    plan: Plan
    own: IntArray
    states: BoolArray
    pattern: int
    triangle: slice

    @classmethod
    def of(cls, values: FloatArray, plan: Plan, patterns: FloatArray) -> Party:
        """Find the columns of a party.

        Parameters
        ----------
        values : ndarray of float, shape (n, number of variables of the joint domain)
            A column that is missing in all rows is one that the party does not hold; in the others
            no value may be missing.
        plan : Plan
            Of the joint domain.
        patterns : ndarray of float, shape (G, d)

        Raises
        ------
        DataError
            If the columns are no pattern of the federation.
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


def part_of(plan: Plan, columns: Iterable[int], categories: Iterable[int] = ()) -> Plan:
    """Return the plan of some of the numbers and categories, given by their places in the plan."""
    own = [plan.numbers[k] for k in columns] + [plan.categories[k] for k in categories]
    return replace(plan, columns=tuple(sorted(own)))


def columns_of(patterns: BoolArray) -> list[IntArray]:
    """Return the columns of each pattern."""
    return [np.flatnonzero(one).astype(np.int64) for one in patterns]


def triangles_of(patterns: BoolArray) -> list[slice]:
    """Return the place of the triangle of each pattern's second moments among all triangles."""
    sizes = patterns.sum(axis=1)
    ends = np.cumsum(sizes * (sizes + 1) // 2).tolist()
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


#: Largest change of an entry, of columns whose variance is about 1, at which EM has converged.
TOLERANCE = 1e-7
MAX_STEPS = 500


class PartMoments(NamedTuple):
    """Moments of rows of which some columns are known.

    Parameters
    ----------
    columns : ndarray of int64, shape (k,)
        Ascending.
    rows : float
        Number of rows.
    mean : ndarray of float64, shape (k,)
    covariance : ndarray of float64, shape (k, k)
        Positive definite; divided by the number of rows.
    """

    columns: IntArray
    rows: float
    mean: FloatArray
    covariance: FloatArray


def joint_moments(
    parts: Sequence[PartMoments], names: Sequence[str], of: str = "the rows"
) -> tuple[FloatArray, FloatArray]:
    """Return the most likely mean and covariance of a Gaussian.

    Parameters
    ----------
    parts : sequence of PartMoments
        Of different rows. Rows that two parts share count twice.
    names : sequence of str
        Of the d columns.
    of : str, default "the rows"
        What the rows are, for the error.

    Returns
    -------
    mean : ndarray of float64, shape (d,)
    covariance : ndarray of float64, shape (d, d)
        Its inverse is 0 for columns that no part holds together.

    Raises
    ------
    DataError
        If no part with rows holds a column.
    """
    present, num_columns = [part for part in parts if part.rows > 0], len(names)
    known = np.zeros((num_columns, num_columns), dtype=bool)
    for part in present:
        known[np.ix_(part.columns, part.columns)] = True
    unseen = np.flatnonzero(~np.diagonal(known))
    if len(unseen):
        listed = ", ".join(names[int(j)] for j in unseen)
        raise DataError(
            f"no party has rows of {of} with the columns {listed}: the parties that hold these "
            "need such rows too"
        )
    if len(present) == 1:
        return present[0].mean.copy(), present[0].covariance.copy()
    groups, adjacent = _groups(known)
    mean, covariance = _start(present, num_columns)
    for _ in range(MAX_STEPS):
        new_mean, new_covariance = _step(present, mean, covariance)
        new_covariance = completed(new_covariance, groups, adjacent)
        change = max(
            float(np.abs(new_mean - mean).max()), float(np.abs(new_covariance - covariance).max())
        )
        mean, covariance = new_mean, new_covariance
        if change < TOLERANCE:
            break
    return mean, covariance


def completed(
    covariance: FloatArray, groups: Sequence[IntArray], adjacent: BoolArray
) -> FloatArray:
    """Replace the covariances between groups that are not adjacent, by the largest entropy.

    Parameters
    ----------
    covariance : ndarray of float64, shape (d, d)
    groups : sequence of ndarray of int64
        Columns; within a group everything is known.
    adjacent : ndarray of bool, shape (groups, groups)
        Between which groups covariances are known.

    Returns
    -------
    ndarray of float64, shape (d, d)
        Equal to the given one where it is known; its inverse is 0 elsewhere.
    """
    result = covariance.copy()
    near = [
        _columns(groups, adjacent[g] & (np.arange(len(groups)) != g)) for g in range(len(groups))
    ]
    far = [_columns(groups, ~adjacent[g]) for g in range(len(groups))]
    for own, others, unknown in zip(groups, near, far, strict=True):
        if not len(others):
            result[np.ix_(unknown, own)] = 0.0
            result[np.ix_(own, unknown)] = 0.0
    for _ in range(MAX_STEPS):
        before = result.copy()
        for own, others, unknown in zip(groups, near, far, strict=True):
            if len(others) and len(unknown):
                slopes = np.linalg.solve(
                    result[np.ix_(others, others)], result[np.ix_(others, own)]
                )
                filled = result[np.ix_(unknown, others)] @ slopes
                result[np.ix_(unknown, own)] = filled
                result[np.ix_(own, unknown)] = filled.T
        if np.abs(result - before).max() < TOLERANCE * 1e-3:
            break
    return result


def _step(
    parts: Sequence[PartMoments], mean: FloatArray, covariance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the expected moments of all rows with all columns."""
    total = sum(part.rows for part in parts)
    first = np.zeros_like(mean)
    means, spreads = [], []
    for part in parts:
        own = part.columns
        slopes = np.linalg.solve(covariance[np.ix_(own, own)], covariance[own]).T
        means.append(mean + slopes @ (part.mean - mean[own]))
        spreads.append(covariance - slopes @ covariance[own] + slopes @ part.covariance @ slopes.T)
        first += part.rows / total * means[-1]
    second = np.zeros_like(covariance)
    for part, own_mean, spread in zip(parts, means, spreads, strict=True):
        deviation = own_mean - first
        second += part.rows / total * (spread + np.outer(deviation, deviation))
    return first, (second + second.T) / 2.0


def _start(parts: Sequence[PartMoments], num_columns: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean and variance of each column where it is known, without covariances."""
    counts, first, second = (np.zeros(num_columns) for _ in range(3))
    for part in parts:
        counts[part.columns] += part.rows
        first[part.columns] += part.rows * part.mean
        second[part.columns] += part.rows * (np.diagonal(part.covariance) + part.mean**2)
    mean = first / counts
    return mean, np.diag(second / counts - mean**2)


def _groups(known: BoolArray) -> tuple[list[IntArray], BoolArray]:
    """Return columns that are known together with the same others, and which groups are so."""
    _, first, labels = np.unique(known, axis=0, return_index=True, return_inverse=True)
    labels = labels.reshape(-1)
    groups = [np.flatnonzero(labels == g).astype(np.int64) for g in range(len(first))]
    return groups, known[np.ix_(first, first)]


def _columns(groups: Sequence[IntArray], chosen: BoolArray) -> IntArray:
    own = [group for group, one in zip(groups, chosen, strict=True) if one]
    return np.sort(np.concatenate(own)) if own else np.zeros(0, dtype=np.int64)
