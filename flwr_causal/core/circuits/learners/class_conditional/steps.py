"""The exchanges that train class-conditional circuits by sums over rows.

A class-conditional circuit is a sum over the classes. Each child is a product of the class and one
leaf over all numbers: an elliptical distribution (Gaussian or Student t) of columns that a power
transform made more symmetric. Categories are independent of the numbers and of each other given the
class. All parameters are functions of sums over rows:

- `LeafScale`: counts, sums and squares of each class. If the mean is so far from 0 that the squares
  lose digits, the exchange is repeated with sums about the mean;
- `Powers`: sums of the columns under a grid of Yeo-Johnson powers;
- `LeafMoments`: counts, sums and products of the transformed columns by class and fold, and counts
  of the categories' states. The shrinkage of covariances follows from them, as the held-out
  likelihood is a function of the same sums;
- `HeldOut`: log-likelihoods under a grid of degrees of freedom, and log losses of the class under
  leaves over blocks of correlated columns. A second circuit has a leaf for each block: its
  posterior of the class is better than that of the circuit with the best density;
- `LeavesHead`, `LeavesChoice`, `LeavesThreshold`: a logistic head on log densities under univariate
  leaves and leaves over blocks, and log probabilities of categories; the choice between it and the
  circuit of blocks; and a threshold, if the options ask for them.

Rows must be complete. A class of which no party has a row is left out; a class with a single row
has the covariance that all classes share.

The states hold the *patterns*: the different sets of numbers that parties hold. There is one where
all parties hold all columns. `pattern` has the exchanges of parties that hold different columns:
what they are sent and return differs, what follows from it does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from flwr_causal.contract.exchange import Sent
from flwr_causal.core.arrays import symmetric, upper_triangles
from flwr_causal.core.circuits.learners.class_conditional.categories import (
    by_category,
    log_probabilities,
    probabilities,
    tables_of,
)
from flwr_causal.core.circuits.learners.class_conditional.joint_moments import (
    PartMoments,
    joint_moments,
)
from flwr_causal.core.circuits.learners.class_conditional.moments import (
    BlockChoice,
    ClassMoments,
    ClassSums,
    Coordinates,
    Shrinkage,
    choose_powers,
    choose_shrinkage,
    chosen_of,
    correlation_blocks,
    dof_of,
    judge,
    leaf_log_density,
    log_sums,
    pooled_covariance,
    power_sums,
    shrunk_moments,
    tails_of,
)
from flwr_causal.core.circuits.learners.class_conditional.rows import NUM_FOLDS, rows_of
from flwr_causal.core.circuits.learners.class_conditional.trained import (
    ClassConditionalTrained,
    pieces,
)
from flwr_causal.core.circuits.learners.head import (
    ChoiceStep,
    Features,
    HeadStep,
    RowFeatures,
    ThresholdStep,
    TrainedWithHead,
    init_head,
)
from flwr_causal.core.circuits.learners.options import HeadOptions
from flwr_causal.core.circuits.learners.training_by_sums import (
    ScaleStep,
    State,
    SummingStep,
    impossible,
    miscounted,
    summed_array,
)
from flwr_causal.core.circuits.leaves.elliptical import standard_log_density
from flwr_causal.core.circuits.model import LogisticHead
from flwr_causal.core.linear.moments import CONSTANT_TOLERANCE
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.learners.training_by_sums import Arrays, TrainingPlan

LeafStepT = TypeVar("LeafStepT", bound="LeafStep")

#: Standard deviations from the mean beyond which the transform is linear; see `Coordinates`.
REACH = 4.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassConditionalOptions(HeadOptions):
    """Grids from which the hyperparameters are chosen by held-out likelihood.

    With a single value in ``powers``, or in ``dof`` and ``cuts``, an exchange is not needed.

    Parameters
    ----------
    powers : tuple of float
        Powers of the Yeo-Johnson transform. ``(1.0,)`` leaves columns as they are.
    diagonals, pooled : tuple of float
        Shrinkages, from 0 to 1; see `Shrinkage`.
    dof : tuple of float
        Degrees of freedom, above 2; infinite for a Gaussian.
    cuts : tuple of float
        Distances ``1 - |correlation|`` at which blocks are cut; see `correlation_blocks`.

    Notes
    -----
    On ten splits of the breast cancer data (30 columns, 450 rows) the choices were powers from -3.5
    to 1, pooled shares of .1 and .2, 10 or 15 degrees of freedom (5 to 15 for blocks), and 9 to 11
    blocks.
    """

    powers: tuple[float, ...] = tuple((np.arange(-32, 9) / 4).tolist())
    diagonals: tuple[float, ...] = (0.0, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.06, 0.1, 0.2, 0.4, 1.0)
    pooled: tuple[float, ...] = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
    dof: tuple[float, ...] = (np.inf, 60.0, 30.0, 20.0, 15.0, 10.0, 7.0, 5.0)
    cuts: tuple[float, ...] = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)

    def __post_init__(self) -> None:
        for name in ("powers", "diagonals", "pooled", "dof", "cuts"):
            given = tuple(float(one) for one in getattr(self, name))
            if not given or any(np.isnan(one) for one in given):
                raise ConfigError(f"{name} needs at least one number, got {given}")
            object.__setattr__(self, name, given)
        for name in ("diagonals", "pooled"):
            if not all(0.0 <= share <= 1.0 for share in getattr(self, name)):
                raise ConfigError(f"{name} must be from 0 to 1, got {getattr(self, name)}")
        if min(self.dof) <= 2.0:
            raise ConfigError(f"degrees of freedom must be above 2, got {min(self.dof)}")


@dataclass(frozen=True, eq=False)
class LeafStep(SummingStep):
    """An exchange of parties that all hold all columns; `pattern` has those of other parties.

    Parameters
    ----------
    plan : TrainingPlan
        Of all columns.
    patterns : ndarray of bool, shape (G, d)
        The different sets of numbers that parties hold.
    """

    plan: TrainingPlan
    patterns: BoolArray

    #: Whether every row has all columns.
    complete: ClassVar[bool] = True

    @classmethod
    def form(cls, step: type[LeafStepT]) -> type[LeafStepT]:
        """Return the form of a later exchange that follows this one: here the exchange itself.

        The exchanges of `pattern` return its counterpart for parties with different columns.
        """
        return step


def columns_of(patterns: BoolArray) -> list[IntArray]:
    """Return the columns of each pattern."""
    return [np.flatnonzero(one).astype(np.int64) for one in patterns]


def triangles_of(patterns: BoolArray) -> list[slice]:
    """Return where the upper triangle of each pattern's second moments lies among all of them."""
    sizes = patterns.sum(axis=1)
    ends = np.cumsum(sizes * (sizes + 1) // 2).tolist()
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


# -- scales and powers ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LeafScale(LeafStep, ScaleStep):
    """Counts, sums and squares of each class.

    Parameters
    ----------
    plan, origin
        As of `ScaleStep`.
    patterns
        As of `LeafStep`.
    """

    summed = (
        summed_array("counts", "rows of each class", ("classes",), "count"),
        summed_array("first", "sums of each class", ("classes", "columns")),
        summed_array(
            "second", "sums of squares of each class", ("classes", "columns"), "non-negative"
        ),
    )

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Sum a party's rows."""
        rows = rows_of(values, plan)
        about = rows.numbers - asked["origin"]
        groups = [about[rows.classes == c] for c in range(plan.num_classes)]
        return {
            "counts": np.array([float(len(group)) for group in groups]),
            "first": np.stack([group.sum(axis=0) for group in groups]),
            "second": np.stack([(group**2).sum(axis=0) for group in groups]),
        }

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield how a party's sums contradict each other or its rows."""
        yield from miscounted(sums["counts"], plan, rows)
        yield from impossible(sums["counts"], sums["first"], sums["second"])

    def after(self, summed: Mapping[str, FloatArray]) -> LeafStep:
        """Return the exchange of powers or of moments, or this one about a better origin."""
        # The rows of each class, of all columns or of each one.
        counts = summed["counts"].reshape(self.plan.num_classes, -1)
        first, second, n = summed["first"], summed["second"], counts.sum(axis=0)
        if n.min() < 2:
            few = int(n.min())
            raise DataError(f"the parties have {few} rows that count: at least 2 are needed")
        shift = first.sum(axis=0) / n
        variance = second.sum(axis=0) / n - shift**2
        mean = self.origin + shift
        if self.must_repeat(shift, variance):
            return replace(self, origin=mean)
        constant = variance <= (CONSTANT_TOLERANCE * np.abs(mean)) ** 2
        if constant.any():
            listed = ", ".join(
                self.plan.names[self.plan.numbers[j]] for j in np.flatnonzero(constant)
            )
            raise DataError(
                f"these columns are constant, or hardly vary beside their mean: {listed}; leave "
                "them out, or subtract a number from them"
            )
        scale = np.sqrt(variance)
        middle = mean / scale
        ones, zeros = np.ones_like(scale), np.zeros_like(scale)
        coordinates = Coordinates(scale, middle, np.abs(middle) + REACH, ones, zeros, ones)
        offsets = _class_means(counts, first) / scale - (counts > 0) * (shift / scale)
        as_they_are = self.plan.learner.powers == (1.0,)
        following: type[Scaled] = self.form(LeafMoments if as_they_are else Powers)
        return following(self.plan, self.patterns, counts, coordinates, offsets)


@dataclass(frozen=True, eq=False)
class Scaled(LeafStep):
    """An exchange after the scales of the columns are known.

    Parameters
    ----------
    plan, patterns
        As of `LeafStep`.
    counts : ndarray of float, shape (C, 1) or (C, d)
        Rows of each class, of all columns or of each one.
    coordinates : Coordinates
        With powers of 1 until powers are chosen.
    offsets : ndarray of float, shape (C, d)
        Means of the classes in the coordinates, 0 for a class without rows.
    """

    counts: FloatArray
    coordinates: Coordinates
    offsets: FloatArray


class Powers(Scaled):
    """Sums of the columns under a grid of powers."""

    name = "powers"
    sent: ClassVar[tuple[Sent, ...]] = (
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

    def arrays(self) -> Arrays:
        """Return scales and powers."""
        wanted = ("scale", "middle", "reach")
        arrays = {name: getattr(self.coordinates, name) for name in wanted}
        return arrays | {"grid": np.array(self.plan.learner.powers)}

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Sum a party's transformed rows."""
        rows = rows_of(values, plan)
        u = rows.numbers / asked["scale"]
        middle, grid, reach = asked["middle"], asked["grid"], asked["reach"]
        groups = [u[rows.classes == c] for c in range(plan.num_classes)]
        sums = np.stack([power_sums(group, middle, grid, reach) for group in groups], axis=1)
        logs = np.stack([log_sums(group, reach) for group in groups])
        return {"logs": logs, "powers": sums[0], "squares": sums[1]}

    def after(self, summed: Mapping[str, FloatArray]) -> LeafMoments:
        """Return the exchange of moments, with the chosen powers and the means under them."""
        counts, known = self.counts, self.coordinates
        grid = np.array(self.plan.learner.powers)
        sums = np.stack([summed["powers"], summed["squares"]], axis=1)
        chosen = choose_powers(counts, summed["logs"], sums, known.middle, grid, known.reach)
        first, second = np.moveaxis(
            np.take_along_axis(sums, chosen[None, None, None], axis=2)[:, :, 0], 1, 0
        )
        n = counts.sum(axis=0)
        center = first.sum(axis=0) / n
        variance = second.sum(axis=0) / n - center**2
        if (variance < 0).any():
            raise DataError(
                "The parties' sums contradict each other: the variance of a column is negative. "
                "The sums of a party are wrong: leave out one party after the other."
            )
        unit = np.sqrt(variance)
        coordinates = known._replace(powers=grid[chosen], center=center, unit=unit)
        offsets = (_class_means(counts, first) - (counts > 0) * center) / unit
        following = self.form(LeafMoments)
        return following(self.plan, self.patterns, counts, coordinates, offsets)


def _class_means(counts: FloatArray, first: FloatArray) -> FloatArray:
    """Return the means (C, d); 0 for a class without rows."""
    return np.asarray(first / np.maximum(counts, 1.0))


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


def coordinates_of(asked: Arrays) -> Coordinates:
    """Return the coordinates that were sent."""
    return Coordinates(*(asked[name] for name in Coordinates._fields))


class LeafMoments(Scaled):
    """Counts, sums and products of the transformed columns by fold and class."""

    name = "moments"
    sent = (
        *COORDINATES,
        Sent("offsets", "means of the classes, about which sums are taken", ("classes", "columns")),
    )
    summed = (
        summed_array("counts", "rows of each fold and class", ("folds", "classes"), "count"),
        summed_array("first", "sums of each fold and class", ("folds", "classes", "columns")),
        summed_array(
            "second",
            "sums of products of each fold and class",
            ("folds", "classes", "column pairs"),
        ),
        summed_array(
            "tables",
            "rows of each state by fold and class",
            ("folds", "classes", "states"),
            "count",
        ),
    )

    def arrays(self) -> Arrays:
        """Return coordinates and offsets."""
        return {**self.coordinates._asdict(), "offsets": self.offsets}

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Sum a party's transformed rows."""
        rows = rows_of(values, plan)
        z = coordinates_of(asked).apply(rows.numbers) - asked["offsets"][rows.classes]
        num_classes, d = plan.num_classes, z.shape[1]
        counts = np.zeros((NUM_FOLDS, num_classes))
        first = np.zeros((NUM_FOLDS, num_classes, d))
        second = np.zeros((NUM_FOLDS, num_classes, d * (d + 1) // 2))
        group = rows.folds * num_classes + rows.classes
        order = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[order], np.arange(NUM_FOLDS * num_classes + 1))
        for index in range(NUM_FOLDS * num_classes):
            part = z[order[starts[index] : starts[index + 1]]]
            at = divmod(index, num_classes)
            counts[at], first[at] = len(part), part.sum(axis=0)
            second[at] = upper_triangles(part.T @ part)
        tables = tables_of(rows.categories, group, NUM_FOLDS * num_classes, plan.sizes)
        return {
            "counts": counts,
            "first": first,
            "second": second,
            "tables": tables.reshape(NUM_FOLDS, num_classes, sum(plan.sizes)),
        }

    @classmethod
    def sizes(cls, plan: TrainingPlan, asked: Arrays) -> dict[str, int]:
        """Return the sizes that follow from the plan and what was sent."""
        d = len(plan.numbers)
        own = {"columns": d, "column pairs": d * (d + 1) // 2, "states": sum(plan.sizes)}
        return {**super().sizes(plan, asked), **own, "folds": NUM_FOLDS}

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield how a party's sums contradict each other or its rows."""
        counts, first = sums["counts"], sums["first"]
        squares = np.diagonal(symmetric(sums["second"], len(plan.numbers)), axis1=-2, axis2=-1)
        yield from miscounted(counts, plan, rows)
        yield from impossible(counts, first, squares)
        if (by_category(sums["tables"], plan) != counts[..., None]).any():
            yield "the states of a category do not count the rows of each class"

    def after(self, summed: Mapping[str, FloatArray]) -> State:
        """Return the exchange of held-out rows, or the next state if there is nothing to choose."""
        options: ClassConditionalOptions = self.plan.learner
        folds = self._folds(summed)
        totals = [one.total() for one in folds]
        counts = np.sum([one.counts for one in totals], axis=0)
        if counts.sum() <= (counts > 0).sum():
            raise DataError(
                "no class has two rows: nothing is known of how rows of a class differ; "
                "name another target or none"
            )
        shrinkages = tuple(
            choose_shrinkage(one, options.diagonals, options.pooled) for one in folds
        )
        following = self.form(HeldOut)(
            self.plan,
            self.patterns,
            counts,
            self.coordinates,
            folds,
            shrinkages,
            self._joined(totals, shrinkages),
            summed["tables"],
        )
        one_class = (counts > 0).sum() == 1
        if len(options.dof) > 1 or (len(options.cuts) > 1 and not one_class):
            return following
        # Nothing is left to choose: go on without this exchange.
        return following.after({"likelihoods": np.zeros(1), "log_losses": np.zeros((1, 1))})

    def _folds(self, summed: Mapping[str, FloatArray]) -> tuple[ClassSums, ...]:
        """Return the sums of each pattern."""
        patterns, shape = self.patterns, (len(self.patterns), NUM_FOLDS, self.plan.num_classes)
        return tuple(
            ClassSums(
                counts,
                first[..., own],
                symmetric(summed["second"][..., triangle], len(own)),
                self.offsets[:, own],
            )
            for counts, first, own, triangle in zip(
                summed["counts"].reshape(shape),
                summed["first"].reshape(*shape, -1),
                columns_of(patterns),
                triangles_of(patterns),
                strict=True,
            )
        )

    def _joined(self, totals: Sequence[ClassSums], shrinkages: Sequence[Shrinkage]) -> ClassMoments:
        """Return the moments of all rows from the sums of each pattern."""
        shrunk = [shrunk_moments(*one) for one in zip(totals, shrinkages, strict=True)]
        if len(shrunk) == 1:
            return shrunk[0]
        names, classes = [self.plan.names[j] for j in self.plan.numbers], self.plan.num_classes
        means = np.zeros((classes, len(names)))
        covariances = np.tile(np.eye(len(names)), (classes, 1, 1))
        for c in np.flatnonzero(np.sum([one.counts for one in totals], axis=0)):
            parts = [
                PartMoments(own, one.counts[c], of.means[c], of.covariances[c])
                for own, one, of in zip(columns_of(self.patterns), totals, shrunk, strict=True)
            ]
            means[c], covariances[c] = joint_moments(parts, names, f"class {c} of the target")
        return ClassMoments(means, covariances)


FOLD_MOMENTS = (
    Sent("means", "of each class, without each fold", ("folds", "classes", "columns")),
    Sent("covariances", "of each class, without each fold", ("folds", "classes", "column pairs")),
    Sent("tables", "probabilities of states, without each fold", ("folds", "classes", "states")),
)


@dataclass(frozen=True, eq=False)
class HeldOut(LeafStep):
    """Log-likelihoods and log losses of each fold's rows under leaves made without the fold.

    Parameters
    ----------
    plan, patterns
        As of `LeafStep`.
    counts : ndarray of float, shape (C,)
        Rows of each class.
    coordinates : Coordinates
    folds : tuple of ClassSums
        Of each pattern, over its columns; the first axis is the fold.
    shrinkages : tuple of Shrinkage
        Of each pattern.
    moments : ClassMoments
        Means (C, d) and covariances (C, d, d) of all rows.
    tables : ndarray of float, shape (folds, C, states)
        Rows of each fold, class and state, the categories side by side.
    """

    counts: FloatArray
    coordinates: Coordinates
    folds: tuple[ClassSums, ...]
    shrinkages: tuple[Shrinkage, ...]
    moments: ClassMoments
    tables: FloatArray

    name = "held-out"
    sent = (
        *COORDINATES,
        *FOLD_MOMENTS,
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

    def arrays(self) -> Arrays:
        """Return the moments without each fold, the blocks and the tails."""
        return {
            **self.coordinates._asdict(),
            **self.without_each(),
            "weights": self.counts / self.counts.sum(),
            "blocks": self.blocks_without_each().astype(np.float64),
            "tails": tails_of(self.plan.learner.dof),
        }

    def without_each(self) -> Arrays:
        """Return the moments and tables without each fold."""
        moments = [
            shrunk_moments(one.without_each(), shrinkage)
            for one, shrinkage in zip(self.folds, self.shrinkages, strict=True)
        ]
        others = self.tables.sum(axis=0) - self.tables
        triangles = [upper_triangles(one.covariances) for one in moments]
        return {
            "means": self.by_pattern([one.means for one in moments]),
            "covariances": np.concatenate(triangles, axis=-1),
            "tables": probabilities(others, self.plan.sizes),
        }

    def by_pattern(self, means: Sequence[FloatArray]) -> FloatArray:
        """Return the means of the patterns as they are sent: those of the one pattern."""
        return means[0]

    def blocks(self) -> IntArray:
        """Return the block of each column (cuts, d), by the correlations within classes."""
        return _cut_blocks(self.folds[0].total(), self.plan.learner.cuts)

    def blocks_without_each(self) -> IntArray:
        """Return the block of each column as it is sent: of each fold, without it."""
        return _cut_blocks(self.folds[0].without_each(), self.plan.learner.cuts)

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Sum log-likelihoods and log losses of rows under the moments of the other folds."""
        rows = rows_of(values, plan)
        z = coordinates_of(asked).apply(rows.numbers)
        covariances = symmetric(asked["covariances"], z.shape[1])
        with np.errstate(divide="ignore"):
            log_weights = np.log(asked["weights"])
        judgements = []
        for fold in range(NUM_FOLDS):
            own = rows.folds == fold
            log_states = log_probabilities(rows.categories[own], asked["tables"][fold], plan.sizes)
            judgements.append(
                judge(
                    z[own],
                    rows.classes[own],
                    ClassMoments(asked["means"][fold], covariances[fold]),
                    log_weights + log_states.sum(axis=2),
                    asked["blocks"][fold].astype(np.int64),
                    dof_of(asked["tails"]),
                )
            )
        return {
            "likelihoods": np.sum([one.likelihoods for one in judgements], axis=0),
            "log_losses": np.sum([one.log_losses for one in judgements], axis=0),
        }

    def after(self, summed: Mapping[str, FloatArray]) -> State:
        """Return the first step of a head, the step of a threshold, or the trained circuits."""
        plan = self.plan
        options: ClassConditionalOptions = plan.learner
        likelihoods, losses = summed["likelihoods"], summed["log_losses"]
        choice = chosen_of(likelihoods, losses, self.blocks(), options.dof)
        trained = ClassConditionalTrained(
            plan, self.counts, self.coordinates, self.moments, self.tables.sum(axis=0), choice
        )
        if plan.target is None or not self.complete:
            return trained
        features = LeafFeatures(self, choice)
        if not options.head:
            return features.threshold_or(trained, options.decision)
        training = init_head(self.counts, len(pieces(choice.blocks)) + len(plan.categories))
        return LeavesHead.or_after(features, training, trained, options)


def _cut_blocks(of: ClassSums, cuts: Sequence[float]) -> IntArray:
    """Return the block of each column (..., cuts, d), by the correlations within classes."""
    covariances = pooled_covariance(of)
    d = covariances.shape[-1]
    found = [correlation_blocks(one, cuts) for one in covariances.reshape(-1, d, d)]
    return np.stack(found).reshape(*covariances.shape[:-2], len(cuts), d)


# -- head and threshold ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LeafFeatures(Features):
    """Log densities of columns, of blocks of columns, and of categories.

    Parameters
    ----------
    known : HeldOut
        The state with the sums of each fold.
    choice : BlockChoice
        Degrees of freedom and blocks.
    """

    known: HeldOut
    choice: BlockChoice

    sent = (
        *COORDINATES,
        *FOLD_MOMENTS,
        Sent("blocks", "block of each column", ("columns",)),
        Sent("tails", "inverse degrees of freedom", (1,)),
    )
    num_folds = NUM_FOLDS

    @property
    def weights(self) -> FloatArray:
        """Shares of the classes in all rows, (C,)."""
        return np.asarray(self.known.counts / self.known.counts.sum())

    def threshold_or(self, trained: ClassConditionalTrained, decision: str) -> State:
        """Return the exchange that chooses a threshold of the circuit, or ``trained``."""
        plan = self.known.plan
        product = product_head(self.choice.blocks, len(plan.categories), self.weights)
        return LeavesThreshold.or_trained(self, product, trained, decision)

    def arrays(self) -> Arrays:
        """Return moments without each fold, and the blocks."""
        return {
            **self.known.coordinates._asdict(),
            **self.known.without_each(),
            "blocks": self.choice.blocks.astype(np.float64),
            "tails": tails_of([self.choice.block_dof]),
        }

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


class LeavesThreshold(ThresholdStep):
    """Rows by class and log odds under the head, or under the circuit of blocks."""

    kind = LeafFeatures


class LeavesChoice(ChoiceStep):
    """Errors and log losses of the head and of the circuit of blocks on held-out rows."""

    threshold = LeavesThreshold
    circuit_sent = (Sent("shares", "shares of the classes", ("classes",)),)

    features: LeafFeatures
    trained: ClassConditionalTrained

    def circuit_arrays(self) -> Arrays:
        """Return the shares of the classes; the features have the rest."""
        return {"shares": self.features.weights}

    @classmethod
    def circuit_log_posterior(
        cls, values: FloatArray, plan: TrainingPlan, asked: Arrays, features: FloatArray
    ) -> FloatArray:
        """Return the log posterior of the class (n, C) by leaves over blocks."""
        blocks = asked["blocks"].astype(np.int64)
        product = product_head(blocks, len(plan.categories), asked["shares"])
        return product.log_posterior(features)

    def without_head(self, trained: TrainedWithHead) -> State:
        """Return the step of a threshold, or the trained circuits."""
        assert isinstance(trained, ClassConditionalTrained)
        return self.features.threshold_or(trained, self.options.decision)


class LeavesHead(HeadStep):
    """One Newton step of the head."""

    choice = LeavesChoice
