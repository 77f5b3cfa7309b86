"""The exchanges that train class-conditional circuits: what parties are sent, and their sums.

`learner` has the server's side. Parties may hold different columns: `pattern` says what they are
sent and return then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.contract.exchange import Sent
from flwr_causal.core.arrays import symmetric, upper_triangles
from flwr_causal.core.circuits.learners.class_conditional.moments import (
    ClassMoments,
    Coordinates,
    dof_of,
    judge,
    leaf_log_density,
    log_sums,
    pieces,
    power_sums,
)
from flwr_causal.core.circuits.learners.class_conditional.pattern import (
    PartyColumns,
    columns_of,
    triangles_of,
)
from flwr_causal.core.circuits.learners.class_conditional.rows import (
    NUM_FOLDS,
    by_category,
    log_probabilities,
    rows_of,
    tables_of,
)
from flwr_causal.core.circuits.learners.head import (
    ChoiceExchange,
    Features,
    HeadExchange,
    RowFeatures,
    ThresholdExchange,
)
from flwr_causal.core.circuits.learners.training_by_sums import (
    ORIGIN,
    SumsExchange,
    impossible,
    miscounted,
    summed_array,
)
from flwr_causal.core.circuits.leaves.elliptical import standard_log_density
from flwr_causal.core.circuits.model import LogisticHead

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.learners.training_by_sums import Arrays, TrainingPlan

PATTERNS = Sent("patterns", "1 where a set of parties holds a column", ("patterns", "columns"))

# -- scales and powers ----------------------------------------------------------------------------


class LeafScale(SumsExchange):
    """Counts, sums and squares of each class and column."""

    name = "scale"
    most = 2
    sent: ClassVar[tuple[Sent, ...]] = (PATTERNS, ORIGIN)
    summed = (
        summed_array(
            "counts", "rows of each class with each column", ("classes", "columns"), "count"
        ),
        summed_array("first", "sums of each class", ("classes", "columns")),
        summed_array(
            "second", "sums of squares of each class", ("classes", "columns"), "non-negative"
        ),
    )

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Return the sums over a party's rows, 0 for columns that it does not hold."""
        party = PartyColumns.of(values, plan, asked["patterns"])
        rows = rows_of(values, party.plan)
        about = rows.numbers - asked["origin"][party.places]
        groups = [about[rows.classes == c] for c in range(plan.num_classes)]
        sums = {
            "counts": np.array([[float(len(group))] for group in groups]),
            "first": np.stack([group.sum(axis=0) for group in groups]),
            "second": np.stack([(group**2).sum(axis=0) for group in groups]),
        }
        return party.spread(sums, len(plan.numbers))

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield how a party's sums contradict each other or its rows; columns not held are 0."""
        held = sums["counts"].any(axis=0)
        counts = sums["counts"][:, held]
        yield from miscounted(counts[:, :1], plan, rows if held.any() else 0)
        if (counts != counts[:, :1]).any():
            yield "its columns have different numbers of rows"
        if held.any() and not ((asked["patterns"] > 0) == held).all(axis=1).any():
            yield "it counts rows of columns that no party was announced to hold together"
        first, second = sums["first"][..., None], sums["second"][..., None]
        yield from impossible(sums["counts"], first, second)


class Powers(SumsExchange):
    """Sums of the columns under a grid of powers."""

    name = "powers"
    most = 1
    sent: ClassVar[tuple[Sent, ...]] = (
        PATTERNS,
        Sent("scale", "standard deviations", ("columns",)),
        Sent("middle", "means over standard deviations", ("columns",)),
        Sent("reach", "where a transform goes on as a line", ("columns",)),
        Sent("grid", "powers", ("powers",)),
    )
    summed = (
        summed_array("logs", "sums of logarithms of each class", ("classes", "columns")),
        summed_array("powers", "sums of powers of each class", ("classes", "powers", "columns")),
        summed_array(
            "squares",
            "sums of squared powers of each class",
            ("classes", "powers", "columns"),
            "non-negative",
        ),
    )

    @classmethod
    def unfitting(cls, plan: TrainingPlan, asked: Arrays) -> str:
        """Return whether the powers are others than the learner's."""
        powers = np.array(plan.learner.powers)
        alike = powers.shape == asked["grid"].shape and np.allclose(powers, asked["grid"])
        return "" if alike else "has other powers than the run's"

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Return the sums over a party's rows, 0 for columns that it does not hold."""
        party = PartyColumns.of(values, plan, asked["patterns"])
        rows = rows_of(values, party.plan)
        scale, middle, reach = (asked[name][party.places] for name in ("scale", "middle", "reach"))
        u = rows.numbers / scale
        groups = [u[rows.classes == c] for c in range(plan.num_classes)]
        sums = [power_sums(group, middle, asked["grid"], reach) for group in groups]
        powers, squares = np.stack(sums, axis=1)
        logs = np.stack([log_sums(group, reach) for group in groups])
        found = {"logs": logs, "powers": powers, "squares": squares}
        return party.spread(found, len(plan.numbers))


# -- moments, and their likelihood on held-out rows -----------------------------------------------

COORDINATES = tuple(
    Sent(name, meaning, ("columns",))
    for name, meaning in zip(
        Coordinates._fields,
        (
            "standard deviations",
            "means over standard deviations",
            "where a transform goes on as a line",
            "powers",
            "means of transformed columns",
            "standard deviations of transformed columns",
        ),
        strict=True,
    )
)


def coordinates_of(asked: Arrays, places: IntArray | slice = slice(None)) -> Coordinates:
    """Return the coordinates that were sent, of all columns or some."""
    return Coordinates(*(asked[name][places] for name in Coordinates._fields))


class LeafMoments(SumsExchange):
    """Counts, sums and products by pattern, fold and class; tables by fold and class."""

    name = "moments"
    most = 1
    sent = (
        PATTERNS,
        *COORDINATES,
        Sent("offsets", "means of the classes, about which sums are taken", ("classes", "columns")),
    )
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
        party = PartyColumns.of(values, plan, asked["patterns"])
        rows, places, at = rows_of(values, party.plan), party.places, party.pattern
        z = (
            coordinates_of(asked, places).apply(rows.numbers)
            - asked["offsets"][rows.classes][:, places]
        )
        group = rows.folds * classes + rows.classes
        counts = np.zeros((len(patterns), NUM_FOLDS, classes))
        first = np.zeros((len(patterns), NUM_FOLDS, classes, d))
        second = np.zeros((NUM_FOLDS, classes, triangles_of(patterns)[-1].stop))
        order = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[order], np.arange(NUM_FOLDS * classes + 1))
        for index in range(NUM_FOLDS * classes if len(places) else 0):
            part = z[order[starts[index] : starts[index + 1]]]
            fold, c = divmod(index, classes)
            counts[at, fold, c], first[at, fold, c, places] = len(part), part.sum(axis=0)
            second[fold, c, party.triangle] = upper_triangles(part.T @ part)
        tables = np.zeros((NUM_FOLDS * classes, sum(plan.sizes)))
        tables[:, party.states] = tables_of(rows.categories, group, len(tables), party.plan.sizes)
        return {
            "counts": counts,
            "first": first,
            "second": second,
            "tables": tables.reshape(NUM_FOLDS, classes, -1),
        }

    @classmethod
    def sizes(cls, plan: TrainingPlan, asked: Arrays) -> dict[str, int]:
        """Return the sizes that follow from the plan and what was sent."""
        found = {"patterns": len(asked["patterns"]), "columns": len(plan.numbers)}
        found |= {"folds": NUM_FOLDS, "states": sum(plan.sizes)}
        pairs = triangles_of(asked["patterns"] > 0)[-1].stop
        return {**super().sizes(plan, asked), **found, "column pairs": pairs}

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield how a party's sums contradict each other or its rows; columns not held are 0."""
        counts, patterns = sums["counts"], asked["patterns"] > 0
        if counts.any():
            yield from miscounted(counts, plan, rows)
        counted = by_category(sums["tables"], plan)
        held = counted.any(axis=(0, 1))
        of_pattern = counts.sum(axis=0)[..., None]
        if of_pattern.any() and (counted != of_pattern)[..., held].any():
            yield "the states of a category do not count the rows of each class"
        for counts_of_one in np.moveaxis(counted, -1, 0)[held]:
            yield from miscounted(counts_of_one, plan, rows)
        for one, first, columns, place in zip(
            counts, sums["first"], columns_of(patterns), triangles_of(patterns), strict=True
        ):
            products = symmetric(sums["second"][..., place], len(columns))
            squares = np.diagonal(products, axis1=-2, axis2=-1)
            yield from impossible(one, first[..., columns], squares)


#: Moments and tables of all columns, without each fold of the rows.
FOLD_MOMENTS = (
    Sent("means", "of each class, without each fold", ("folds", "classes", "columns")),
    Sent("covariances", "of each class, without each fold", ("folds", "classes", "column pairs")),
    Sent("tables", "probabilities of states, without each fold", ("folds", "classes", "states")),
)


class HeldOut(SumsExchange):
    """Log-likelihoods and log losses of each fold's rows under leaves made without the fold."""

    name = "held-out"
    most = 1
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
        Sent("blocks", "block of each column, by fold and cut", ("folds", "cuts", "columns")),
        Sent("tails", "inverse degrees of freedom", ("tails",)),
    )
    summed = (
        summed_array("likelihoods", "log-likelihoods under circuits of other rows", ("tails",)),
        summed_array(
            "log_losses", "log losses of the class under these", ("cuts", "tails"), "non-negative"
        ),
    )

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Sum log-likelihoods and log losses of rows under the moments of the other folds."""
        party = PartyColumns.of(values, plan, asked["patterns"])
        blocks, dof = asked["blocks"][..., party.places].astype(np.int64), dof_of(asked["tails"])
        likelihoods, log_losses = np.zeros(len(dof)), np.zeros((blocks.shape[1], len(dof)))
        if len(party.places):
            rows, sizes = rows_of(values, party.plan), party.plan.sizes
            z = coordinates_of(asked, party.places).apply(rows.numbers)
            means = asked["means"][party.pattern][..., party.places]
            covariances = symmetric(asked["covariances"][..., party.triangle], z.shape[1])
            tables = asked["tables"][..., party.states]
            with np.errstate(divide="ignore"):
                log_weights = np.log(asked["weights"])
            for fold in range(NUM_FOLDS):
                of_fold = rows.folds == fold
                log_states = log_probabilities(rows.categories[of_fold], tables[fold], sizes)
                judged = judge(
                    z[of_fold],
                    rows.classes[of_fold],
                    ClassMoments(means[fold], covariances[fold]),
                    log_weights + log_states.sum(axis=2),
                    blocks[fold],
                    dof,
                )
                likelihoods += judged.likelihoods
                log_losses += judged.log_losses
        return {"likelihoods": likelihoods, "log_losses": log_losses}


# -- head and threshold ---------------------------------------------------------------------------


class LeafFeatures(Features):
    """Log densities of columns, of blocks of columns, and of categories."""

    sent = (
        *COORDINATES,
        *FOLD_MOMENTS,
        Sent("blocks", "block of each column", ("columns",)),
        Sent("tails", "inverse degrees of freedom", (1,)),
    )
    num_folds = NUM_FOLDS

    @classmethod
    def of_rows(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> RowFeatures:
        """Return the features of a party's rows, from leaves that were made without their fold."""
        rows = rows_of(values, plan)
        z = coordinates_of(asked).apply(rows.numbers)
        d = z.shape[1]
        covariances = symmetric(asked["covariances"], d)
        blocks = pieces(asked["blocks"].astype(np.int64))[d:]
        dof = dof_of(asked["tails"])
        result = np.empty((len(z), plan.num_classes, d + len(blocks) + len(plan.sizes)))
        for fold in range(NUM_FOLDS):
            at = np.flatnonzero(rows.folds == fold)
            moments = ClassMoments(asked["means"][fold], covariances[fold])
            for c in range(plan.num_classes):
                result[at, c, :d] = _each_column(z[at], moments, c, float(dof[0]))
                for j, block in enumerate(blocks):
                    result[at, c, d + j] = leaf_log_density(z[at], block, moments, c, dof)[:, 0]
            log_states = log_probabilities(rows.categories[at], asked["tables"][fold], plan.sizes)
            result[at, :, d + len(blocks) :] = log_states
        return RowFeatures(result, rows.classes, rows.folds)


def _each_column(z: FloatArray, moments: ClassMoments, which: int, dof: float) -> FloatArray:
    """Return the log density of each column of rows (n, d) in one class, shape (n, d)."""
    variances = np.diagonal(moments.covariances[which])
    squares = (z - moments.means[which]) ** 2 / variances
    return standard_log_density(squares, np.log(variances), 1, dof)


def product_head(blocks: IntArray, num_categories: int, shares: FloatArray) -> LogisticHead:
    """Return the head whose posterior is that of the circuit of blocks: weights of 0 and 1.

    Parameters
    ----------
    blocks : ndarray of int, shape (d,)
    num_categories : int
    shares : ndarray of float, shape (C,)
        Shares of the classes in all rows.
    """
    sizes = np.bincount(blocks)[blocks]
    parts = pieces(blocks)
    weights = [float(len(part) > 1 or sizes[part[0]] == 1) for part in parts]
    with np.errstate(divide="ignore"):
        return LogisticHead(np.array(weights + [1.0] * num_categories), np.log(shares))


class LeavesHead(HeadExchange):
    """One Newton step of the head."""

    kind = LeafFeatures


class LeavesChoice(ChoiceExchange):
    """Errors and log losses of the head and of the circuit of blocks on held-out rows."""

    kind = LeafFeatures
    circuit_sent = (Sent("shares", "shares of the classes", ("classes",)),)

    @classmethod
    def circuit_log_posterior(
        cls, values: FloatArray, plan: TrainingPlan, asked: Arrays, features: FloatArray
    ) -> FloatArray:
        """Return the log posterior of the class (n, C) by leaves over blocks."""
        blocks = asked["blocks"].astype(np.int64)
        product = product_head(blocks, len(plan.categories), asked["shares"])
        return product.log_posterior(features)


class LeavesThreshold(ThresholdExchange):
    """Rows by class and log odds under the head, or under the circuit of blocks."""

    kind = LeafFeatures
