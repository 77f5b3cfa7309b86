"""Class-conditional circuits, trained by sums over rows: the learner and the server's side.

A class-conditional circuit is a sum over the classes. Each child is a product of the class and one
leaf over all numbers: an elliptical distribution (Gaussian or Student t) of columns that a power
transform made more symmetric. Categories are independent of the numbers and of each other given the
class. A second circuit has a leaf for each block of correlated columns: its posterior of the class
is better than that of the circuit with the best density.

All parameters are functions of sums over rows (`exchanges`). `ClassConditional.training` asks for
them, by `chosen_coordinates`, `chosen_leaves` and `_with_prediction`.

Rows must be complete. A class of which no party has a row is left out; a class with a single row
has the covariance that all classes share. Parties may hold different columns (`pattern`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from flwr_causal.core.arrays import symmetric, upper_triangles
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.learners.class_conditional.exchanges import (
    HeldOut,
    LeafMoments,
    LeafScale,
    LeavesChoice,
    LeavesHead,
    LeavesThreshold,
    Powers,
    product_head,
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
    members,
    pieces,
    pooled_covariance,
    shrunk_moments,
    tails_of,
)
from flwr_causal.core.circuits.learners.class_conditional.pattern import (
    ColumnPatterns,
    spread,
    triangles_of,
)
from flwr_causal.core.circuits.learners.class_conditional.rows import (
    NUM_FOLDS,
    probabilities,
    starts_of,
)
from flwr_causal.core.circuits.learners.head import (
    TrainedWithHead,
    TrainingWithHead,
    best_decision,
    fitted_head,
    init_head,
)
from flwr_causal.core.circuits.learners.training_by_sums import is_far
from flwr_causal.core.circuits.leaves.elliptical import Elliptical
from flwr_causal.core.circuits.leaves.univariate import Categorical
from flwr_causal.core.circuits.leaves.yeo_johnson import of_signed_log, signed_log
from flwr_causal.core.circuits.model import CircuitModel, HeadPosterior
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.core.linear.moments import CONSTANT_TOLERANCE
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.training_by_sums import Arrays, Summing, TrainingPlan
    from flwr_causal.core.circuits.model import Posterior
    from flwr_causal.core.circuits.nodes import Leaf, Node

#: Standard deviations from the mean beyond which the transform is linear; see `Coordinates`.
REACH = 4.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassConditional(TrainingWithHead):
    """Learner of class-conditional circuits.

    Hyperparameters are chosen from grids by held-out likelihood: the defaults suit a party of a few
    rows too. With a single value in ``powers``, or in ``dof`` and ``cuts``, an exchange is not
    needed.

    Parameters
    ----------
    target : str, optional
        The class, a category. None: there is none, and one leaf over all numbers is learned.
    head, decision
        See `HeadOptions`.
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

    target: str | None = None
    powers: tuple[float, ...] = tuple((np.arange(-32, 9) / 4).tolist())
    diagonals: tuple[float, ...] = (0.0, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.06, 0.1, 0.2, 0.4, 1.0)
    pooled: tuple[float, ...] = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
    dof: tuple[float, ...] = (np.inf, 60.0, 30.0, 20.0, 15.0, 10.0, 7.0, 5.0)
    cuts: tuple[float, ...] = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)

    exchanges: ClassVar = (
        LeafScale,
        Powers,
        LeafMoments,
        HeldOut,
        LeavesHead,
        LeavesChoice,
        LeavesThreshold,
    )
    columns_may_differ: ClassVar[bool] = True

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

    def plan(self, domain: Domain, *, seed: int = 0, min_rows: int = 1) -> TrainingPlan:
        """Return the plan of a domain; its columns beside the target must hold a number."""
        plan = super().plan(domain, seed=seed, min_rows=min_rows)
        if not plan.numbers:
            raise ConfigError(
                "a class-conditional circuit needs a number beside its target, but all columns "
                "have states: learn a circuit of categories, as learn_spn does"
            )
        return plan

    def training(
        self, plan: TrainingPlan, presence: BoolArray | None = None
    ) -> Summing[ClassConditionalTrained]:
        """Train on the parties' rows."""
        patterns = ColumnPatterns.of(plan, presence)
        scaled = yield from chosen_coordinates(plan, patterns)
        return (yield from chosen_leaves(plan, patterns, scaled))


class Scaled(NamedTuple):
    """The coordinates of the numbers, and the classes in them.

    Parameters
    ----------
    counts : ndarray of float, shape (C, d)
        Rows of each class with each column.
    coordinates : Coordinates
    means : ndarray of float, shape (C, d)
        Of the classes in the coordinates, 0 for a class without rows.
    """

    counts: FloatArray
    coordinates: Coordinates
    means: FloatArray


def chosen_coordinates(plan: TrainingPlan, patterns: ColumnPatterns) -> Summing[Scaled]:
    """Choose scales of the numbers, and the powers that make them most like normal ones.

    Raises
    ------
    DataError
        If a column is constant, or has fewer than two rows.
    """
    options: ClassConditional = plan.learner
    origin = np.zeros(len(plan.numbers))
    summed = yield LeafScale.ask(patterns=patterns.sent, origin=origin)
    mean, variance = _mean_and_variance(summed)
    if is_far(mean, variance):
        origin = mean
        summed = yield LeafScale.ask(patterns=patterns.sent, origin=origin)
    scaled = _standardized(plan, origin, summed)
    if options.powers == (1.0,):
        return scaled
    known, grid = scaled.coordinates, np.array(options.powers)
    summed = yield Powers.ask(
        patterns=patterns.sent,
        scale=known.scale,
        middle=known.middle,
        reach=known.reach,
        grid=grid,
    )
    return _transformed(scaled, grid, summed)


def chosen_leaves(
    plan: TrainingPlan, patterns: ColumnPatterns, scaled: Scaled
) -> Summing[ClassConditionalTrained]:
    """Choose shrinkages, degrees of freedom and blocks by held-out rows, and a head and threshold.

    Raises
    ------
    DataError
        If no class has two rows.
    """
    options: ClassConditional = plan.learner
    coordinates = scaled.coordinates._asdict()
    summed = yield LeafMoments.ask(patterns=patterns.sent, **coordinates, offsets=scaled.means)
    found = FoldedMoments.of(plan, patterns, scaled.means, summed)
    blocks, sent_blocks = _blocks(patterns, found, options.cuts)
    likelihoods, log_losses = np.zeros(1), np.zeros((1, 1))  # where there is nothing to choose
    if len(options.dof) > 1 or (len(options.cuts) > 1 and (found.counts > 0).sum() > 1):
        summed = yield HeldOut.ask(
            patterns=patterns.sent,
            **coordinates,
            **found.without_each(patterns),
            weights=found.shares,
            blocks=sent_blocks.astype(np.float64),
            tails=tails_of(options.dof),
        )
        likelihoods, log_losses = summed["likelihoods"], summed["log_losses"]
    choice = chosen_of(likelihoods, log_losses, blocks, options.dof)
    trained = ClassConditionalTrained(
        plan, found.counts, scaled.coordinates, found.moments, found.tables.sum(axis=0), choice
    )
    if plan.target is None or patterns.differ:
        return trained
    without_each = found.without_each(patterns)
    features = {
        **coordinates,
        **without_each,
        "means": without_each["means"][0],
        "blocks": choice.blocks.astype(np.float64),
        "tails": tails_of([choice.block_dof]),
    }
    return (yield from _with_prediction(trained, features, found.shares))


def _with_prediction(
    trained: ClassConditionalTrained, features: Arrays, shares: FloatArray
) -> Summing[ClassConditionalTrained]:
    """Return the circuits with a head and a threshold, if the options ask for them."""
    plan, blocks = trained.plan, trained.choice.blocks
    options: ClassConditional = plan.learner
    head, choice = None, None
    if options.head:
        training = init_head(trained.counts, len(pieces(blocks)) + len(plan.categories))
        head, choice = yield from fitted_head(
            LeavesHead, LeavesChoice, training, features, {"shares": shares}, options.head
        )
    predicting = product_head(blocks, len(plan.categories), shares) if head is None else head
    threshold = yield from best_decision(LeavesThreshold, features, predicting, options.decision)
    return replace(trained, head=head, choice_of_head=choice, threshold=threshold)


# -- what follows from the parties' sums ----------------------------------------------------------


def _mean_and_variance(summed: Mapping[str, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return mean minus origin and variance of each column, shape (d,)."""
    n = summed["counts"].sum(axis=0)
    if n.min() < 2:
        few = int(n.min())
        raise DataError(f"the parties have {few} rows that count: at least 2 are needed")
    mean = summed["first"].sum(axis=0) / n
    return mean, summed["second"].sum(axis=0) / n - mean**2


def _standardized(
    plan: TrainingPlan, origin: FloatArray, summed: Mapping[str, FloatArray]
) -> Scaled:
    """Return coordinates with powers of 1, from sums about an origin."""
    counts = summed["counts"]
    shift, variance = _mean_and_variance(summed)
    mean = origin + shift
    constant = variance <= (CONSTANT_TOLERANCE * np.abs(mean)) ** 2
    if constant.any():
        listed = ", ".join(plan.names[plan.numbers[j]] for j in np.flatnonzero(constant))
        raise DataError(
            f"these columns are constant, or hardly vary beside their mean: {listed}; leave "
            "them out, or subtract a number from them"
        )
    scale = np.sqrt(variance)
    middle = mean / scale
    ones, zeros = np.ones_like(scale), np.zeros_like(scale)
    coordinates = Coordinates(scale, middle, np.abs(middle) + REACH, ones, zeros, ones)
    means = _class_means(counts, summed["first"]) / scale - (counts > 0) * (shift / scale)
    return Scaled(counts, coordinates, means)


def _transformed(scaled: Scaled, grid: FloatArray, summed: Mapping[str, FloatArray]) -> Scaled:
    """Return the coordinates with the powers of a grid that are chosen."""
    counts, known, _ = scaled
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
    return Scaled(counts, coordinates, (_class_means(counts, first) - (counts > 0) * center) / unit)


def _class_means(counts: FloatArray, first: FloatArray) -> FloatArray:
    """Return the means (C, d); 0 for a class without rows."""
    return np.asarray(first / np.maximum(counts, 1.0))


@dataclass(frozen=True, eq=False)
class FoldedMoments:
    """Moments of the classes, and the sums of each fold of the rows from which they follow.

    Parameters
    ----------
    plan : TrainingPlan
    counts : ndarray of float, shape (C,)
    folds : tuple of ClassSums
        Of each pattern, over its columns; the first axis is the fold.
    shrinkages : tuple of Shrinkage
        Of each pattern.
    moments : ClassMoments
        Means (C, d) and covariances (C, d, d) of all rows.
    tables : ndarray of float, shape (folds, C, states)
        Rows of each fold, class and state, the categories side by side.
    """

    plan: TrainingPlan
    counts: FloatArray
    folds: tuple[ClassSums, ...]
    shrinkages: tuple[Shrinkage, ...]
    moments: ClassMoments
    tables: FloatArray

    @classmethod
    def of(
        cls,
        plan: TrainingPlan,
        patterns: ColumnPatterns,
        offsets: FloatArray,
        summed: Mapping[str, FloatArray],
    ) -> FoldedMoments:
        """Return the moments, from sums about ``offsets``; held-out folds choose shrinkages."""
        options: ClassConditional = plan.learner
        folds = _sums_of_patterns(patterns, offsets, summed)
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
        moments = _moments_of_patterns(plan, patterns, totals, shrinkages)
        return cls(plan, counts, folds, shrinkages, moments, summed["tables"])

    @property
    def shares(self) -> FloatArray:
        """Shares of the classes in all rows, (C,)."""
        return np.asarray(self.counts / self.counts.sum())

    def without_each(self, patterns: ColumnPatterns) -> Arrays:
        """Return moments and probabilities of states without each fold, as they are sent."""
        moments = [
            shrunk_moments(one.without_each(), shrinkage)
            for one, shrinkage in zip(self.folds, self.shrinkages, strict=True)
        ]
        parts = zip(moments, patterns.columns, strict=True)
        means = [spread(one.means, columns, len(self.plan.numbers)) for one, columns in parts]
        others = self.tables.sum(axis=0) - self.tables
        triangles = [upper_triangles(one.covariances) for one in moments]
        return {
            "means": np.stack(means),
            "covariances": np.concatenate(triangles, axis=-1),
            "tables": probabilities(others, self.plan.sizes),
        }


def _sums_of_patterns(
    patterns: ColumnPatterns,
    offsets: FloatArray,
    summed: Mapping[str, FloatArray],
) -> tuple[ClassSums, ...]:
    """Return the sums of each pattern, over its columns."""
    return tuple(
        ClassSums(
            counts,
            first[..., columns],
            symmetric(summed["second"][..., triangle], len(columns)),
            offsets[:, columns],
        )
        for counts, first, columns, triangle in zip(
            summed["counts"],
            summed["first"],
            patterns.columns,
            triangles_of(patterns.held),
            strict=True,
        )
    )


def _moments_of_patterns(
    plan: TrainingPlan,
    patterns: ColumnPatterns,
    totals: Sequence[ClassSums],
    shrinkages: Sequence[Shrinkage],
) -> ClassMoments:
    """Return the moments of all rows from the sums of each pattern."""
    shrunk = [shrunk_moments(*one) for one in zip(totals, shrinkages, strict=True)]
    if len(shrunk) == 1:
        return shrunk[0]
    names, classes = [plan.names[j] for j in plan.numbers], plan.num_classes
    means = np.zeros((classes, len(names)))
    covariances = np.tile(np.eye(len(names)), (classes, 1, 1))
    for c in np.flatnonzero(np.sum([one.counts for one in totals], axis=0)):
        parts = [
            PartMoments(columns, one.counts[c], of.means[c], of.covariances[c])
            for columns, one, of in zip(patterns.columns, totals, shrunk, strict=True)
        ]
        means[c], covariances[c] = joint_moments(parts, names, f"class {c} of the target")
    return ClassMoments(means, covariances)


def _blocks(
    patterns: ColumnPatterns, found: FoldedMoments, cuts: Sequence[float]
) -> tuple[IntArray, IntArray]:
    """Return the block of each column by the correlations within classes, for each cut.

    Returns
    -------
    of_all : ndarray of int, shape (cuts, d)
        Of all rows.
    sent : ndarray of int, shape (folds, cuts, d)
        Without each fold; the same for every fold where parties hold different columns, as few rows
        have all of them.
    """
    if patterns.differ:
        within = np.einsum("c,cij->ij", found.shares, found.moments.covariances)
        blocks = correlation_blocks(within, cuts)
        return blocks, np.broadcast_to(blocks, (NUM_FOLDS, *blocks.shape))
    sums = found.folds[0]
    return _cut_blocks(sums.total(), cuts), _cut_blocks(sums.without_each(), cuts)


def _cut_blocks(of: ClassSums, cuts: Sequence[float]) -> IntArray:
    """Return the block of each column (..., cuts, d), by the correlations within classes."""
    covariances = pooled_covariance(of)
    d = covariances.shape[-1]
    found = [correlation_blocks(one, cuts) for one in covariances.reshape(-1, d, d)]
    return np.stack(found).reshape(*covariances.shape[:-2], len(cuts), d)


# -- the trained circuits -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClassConditionalTrained(TrainedWithHead):
    """The parameters of the circuits.

    Parameters
    ----------
    plan : TrainingPlan
    counts : ndarray of float, shape (C,)
        Rows of each class.
    coordinates : Coordinates
    moments : ClassMoments
        Means (C, d) and covariances (C, d, d) of the coordinates.
    tables : ndarray of float, shape (C, states)
        Rows of each class and state, the categories side by side.
    choice : BlockChoice
        Degrees of freedom and blocks.
    """

    plan: TrainingPlan
    counts: FloatArray
    coordinates: Coordinates
    moments: ClassMoments
    tables: FloatArray
    choice: BlockChoice

    def model(self, domain: Domain) -> CircuitModel:
        """Return the circuit with the best density, and the posterior that predicts the class.

        The density has one leaf over all numbers for each class. The class is predicted by a second
        circuit with a leaf for each block of correlated numbers, or by a logistic head. Classes of
        which no party has a row have the likelihood 0.
        """
        plan, choice = self.plan, self.choice
        everything = np.zeros(len(plan.numbers), dtype=np.int64)
        density = Circuit(domain, self._root(everything, choice.dof))
        if plan.target is None:
            return CircuitModel(density)
        target = domain.names[plan.target]
        posterior: Posterior
        if self.head is None:
            posterior = Circuit(domain, self._root(choice.blocks, choice.block_dof))
        else:
            factors = self._factors(pieces(choice.blocks), choice.block_dof)
            posterior = HeadPosterior(domain, target, tuple(map(tuple, factors)), self.head)
        return CircuitModel(density, target, posterior, self.threshold)

    def _root(self, blocks: IntArray, dof: float) -> Node:
        """Return the root of a circuit with a leaf for each class and block, and each category."""
        target, num_classes = self.plan.target, self.plan.num_classes
        present = np.flatnonzero(self.counts > 0)
        factors_of = self._factors(members(blocks), dof)
        children: list[Node] = []
        for c in map(int, present):
            factors: list[Node] = list(factors_of[c])
            if target is not None:
                factors.append(Categorical(target, np.eye(num_classes)[c]))
            children.append(Product(factors) if len(factors) > 1 else factors[0])
        if target is None:
            return children[0]
        return Sum(children, self.counts[present] / self.counts.sum())

    def _factors(self, parts: list[IntArray], dof: float) -> list[list[Leaf]]:
        """Return the leaves of each class, over parts of the numbers and then the categories."""
        plan, moments = self.plan, self._transformed_moments()
        factors: list[list[Leaf]] = [
            [self._leaf(moments, c, part, dof) for part in parts] for c in range(plan.num_classes)
        ]
        tables = probabilities(self.tables, plan.sizes)
        starts = starts_of(plan.sizes)
        for leaves, row in zip(factors, tables, strict=True):
            for column, start, size in zip(plan.categories, starts, plan.sizes, strict=True):
                leaves.append(Categorical(column, row[start : start + size]))
        return factors

    def _transformed_moments(self) -> ClassMoments:
        """Return the moments of the transformed numbers, the parameters of the leaves.

        The sums are of `Coordinates`, which keep more digits. With a power of 1 the transformed
        number is the number divided by its scale.
        """
        known, moments = self.coordinates, self.moments
        start = signed_log(known.middle)
        slope = np.exp((known.powers - 1.0) * start)
        origin = of_signed_log(start, known.powers) + slope * known.center
        unit = slope * known.unit
        return ClassMoments(
            origin + unit * moments.means, unit[:, None] * moments.covariances * unit
        )

    def _leaf(self, moments: ClassMoments, which: int, part: IntArray, dof: float) -> Elliptical:
        """Return the leaf of some numbers in one class, from `_transformed_moments`."""
        known = self.coordinates
        scope = tuple(np.array(self.plan.numbers)[part].tolist())
        mean = moments.means[which, part]
        covariance = moments.covariances[which][np.ix_(part, part)]
        scale = known.scale[part]
        if (known.powers == 1.0).all():
            return Elliptical(scope, mean * scale, scale[:, None] * covariance * scale, dof)
        reach = known.reach[part]
        return Elliptical(scope, mean, covariance, dof, known.powers[part], scale, reach)
