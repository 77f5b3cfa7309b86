"""Einsum networks (EiNets): tensorised circuits learned by EM (Peharz et al., ICML 2020).

Parties that hold the same columns train one circuit, that of the pooled rows, by sums over rows.
The exchange `EinsumScale` sums the moments for standardising. Each exchange `EStep` is an E-step:
the server sends the parameters, and a party returns the expected counts of each weight and unit.
The server adds and normalises these, the M-step. With more than one batch an exchange uses a part
of the rows, chosen by a hash of their values and therefore the same however rows are divided.

An M-step with a step s < 1 is that of stepwise EM (Cappe & Moulines 2009), which needs fewer
exchanges than EM over all rows: the counts of a batch enter a running mean,
``(1 - s) running + s counts / rows``. The running mean is not stored, as it equals the expected
counts of a new row under the circuit: the last M-step computed the parameters from it.

Region graphs are random (Peharz et al., UAI 2019). A *replica* splits the set of all columns into
two parts, each part into two again, and so on: after ``depth`` splits it has ``2**depth`` leaf
regions. Region b of a level with B regions has the children b and b + B in the next level, so the
left children of a level come first, and the leaf regions determine the graph.

`EinsumNetwork.learn` learns from one table, by batches of shuffled rows.

References
----------
Cappe & Moulines: On-line expectation-maximization algorithm for latent data models, JRSS B 2009.
Peharz et al.: Random sum-product networks, UAI 2019.
Peharz et al.: Einsum networks, ICML 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from flwr_causal.contract.exchange import Sent
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.learners.options import EinsumOptions
from flwr_causal.core.circuits.learners.training_by_sums import (
    ORIGIN,
    SumsExchange,
    Trained,
    TrainingBySums,
    impossible,
    is_far,
    miscounted,
    pooled,
    row_folds,
    summed_array,
)
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.tensors.evaluation import (
    TensorParameters,
    chunks,
    evaluated,
    flows,
)
from flwr_causal.core.circuits.tensors.layout import TensorLayout
from flwr_causal.core.circuits.tensors.leaf import TensorLeaf, parameters_from, plain_arrays
from flwr_causal.core.devices import PRECISIONS
from flwr_causal.core.linear.moments import CONSTANT_TOLERANCE
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.training_by_sums import Arrays, Summing, TrainingPlan


Tensor = Any

#: Pseudo rows of each sum and each category, spread evenly over its choices.
SMOOTHING = 0.01
#: Bounds of a unit's variance, of standardised values. The lower one is the paper's for images.
VARIANCES = (1e-3, float("inf"))
#: Least share of its old statistics that a unit keeps, for units without rows; and the least
#: probability of a state.
NOTHING = 1e-9
#: The last step, as a share of the first.
LAST_STEP = 0.01
#: The most that a probability of a state may differ from its share of the rows without a warning.
MOST_MISSED = 0.05
#: Concentration of the random probabilities of states with which a unit starts, about their shares
#: in all rows.
CONCENTRATION = 4.0
#: Least number of batches of a pass over few rows, as after too few M-steps the circuit is still
#: near its random start; and the least number of rows of such a batch.
LEAST_BATCHES = 10
LEAST_ROWS = 20


# -- region graphs ---------------------------------------------------------------------------------


def random_regions(
    columns: Sequence[int],
    depth: int,
    replicas: int,
    rng: np.random.Generator,
    image: tuple[int, int] | None = None,
) -> IntArray:
    """Draw the leaf regions of some replicas.

    Parameters
    ----------
    columns : sequence of int
        The columns to be split, at least one.
    depth : int
        Splits from the root to a leaf region; fewer if there are few columns, but at least one. The
        other part of a single column is empty.
    replicas : int
    rng : Generator
    image : tuple of int, optional
        Height and width of an image whose pixels, row after row, are the columns. A region is then
        a rectangle, cut near its middle across a random side. Default: parts are random halves.

    Returns
    -------
    ndarray of int64, shape (2**depth, replicas, widest)
        Columns of each leaf region; -1 where it has fewer than the widest.

    Raises
    ------
    ConfigError
        If a number is below 1, or the image has another number of pixels.
    """
    if depth < 1 or replicas < 1 or len(columns) < 1:
        raise ConfigError(
            f"regions need a depth, replicas and columns of at least 1, got {depth}, {replicas} "
            f"and {len(columns)}"
        )
    pixels = np.asarray(columns, dtype=np.int64)
    if image is not None:
        if image[0] * image[1] != len(pixels):
            raise ConfigError(f"an image {image[0]} x {image[1]} has not {len(pixels)} pixels")
        pixels = pixels.reshape(image)
    depth = max(1, min(depth, len(columns).bit_length() - 1))
    drawn = [_leaf_regions(pixels, depth, rng) for _ in range(replicas)]
    widest = max(len(region) for replica in drawn for region in replica)
    regions = np.full((2**depth, replicas, widest), -1, dtype=np.int64)
    for r, replica in enumerate(drawn):
        for g, region in enumerate(replica):
            regions[g, r, : len(region)] = np.sort(region)
    return regions


def _leaf_regions(pixels: IntArray, depth: int, rng: np.random.Generator) -> list[IntArray]:
    """Return the columns of each leaf region of one replica."""
    parts = [pixels if pixels.ndim == 2 else rng.permutation(pixels)]
    for _ in range(depth):
        halves = [_halves(part, rng) for part in parts]
        parts = [left for left, _ in halves] + [right for _, right in halves]
    return [part.ravel() for part in parts]


def _halves(part: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    if part.ndim == 1:
        # The odd column goes to a random side; else one side would have all odd columns.
        middle = (len(part) + int(rng.integers(2))) // 2
        return part[:middle], part[middle:]
    height, width = part.shape
    # A longer side is more likely to be cut; a side of one pixel is not, unless both are.
    if height == 1 or (width > 1 and rng.random() * (height + width) >= height):
        left, right = _halves_of_rows(part.T, rng)
        return left.T, right.T
    return _halves_of_rows(part, rng)


def _halves_of_rows(part: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    middle = max(1, round(len(part) * rng.uniform(0.4, 0.6)))
    return part[:middle], part[middle:]


# -- E-step and M-step -----------------------------------------------------------------------------


def cooled(step: float, done: float) -> float:
    """Return the step after a share ``done`` of all M-steps, which falls as half a cosine.

    Large steps leave the random start quickly; small ones average over many batches.
    """
    return step * (LAST_STEP + (1.0 - LAST_STEP) * 0.5 * (1.0 + math.cos(math.pi * done)))


class ExpectedCounts(NamedTuple):
    """Expected counts.

    Attributes
    ----------
    statistics : (F, R, K)
        Sums of the rows' statistics, weighted by the probability that the row uses the unit.
    presence : (columns, R, K)
        Expected numbers of rows that use a unit, with a value.
    layers, root
        Expected numbers of rows that use each weight; shapes as in `TensorParameters`.
    """

    statistics: Tensor
    presence: Tensor
    layers: tuple[Tensor, ...]
    root: Tensor

    def plus(self, other: ExpectedCounts) -> ExpectedCounts:
        """Return the counts of the rows of both."""
        return ExpectedCounts(
            self.statistics + other.statistics,
            self.presence + other.presence,
            tuple(a + b for a, b in zip(self.layers, other.layers, strict=True)),
            self.root + other.root,
        )


def counted(
    layout: TensorLayout, parameters: TensorParameters, rows: Tensor
) -> tuple[ExpectedCounts, float]:
    """E-step: return the counts of rows (d, n) and the sum of their log densities."""
    parts = [
        _counted(layout, parameters, rows[:, part])
        for part in chunks(layout, parameters, rows.shape[1])
    ]
    total = reduce(ExpectedCounts.plus, (counts for counts, _ in parts))
    return total, sum(float(densities) for _, densities in parts)


def _counted(
    layout: TensorLayout, parameters: TensorParameters, rows: Tensor
) -> tuple[ExpectedCounts, Tensor]:
    torch = layout.torch
    evaluation = evaluated(layout, parameters, rows)
    root, layers, below = flows(parameters, evaluation)
    statistics = torch.bmm(evaluation.statistics, below.transpose(1, 2))
    if evaluation.presence is None:
        spread = below.sum(dim=2)[:, None, :]
        presence = spread.expand(-1, layout.region_presence.shape[1], -1)
    else:
        presence = torch.bmm(evaluation.presence, below.transpose(1, 2))
    counts = ExpectedCounts(
        layout.by_statistic(statistics, layout.region_statistics, len(layout.statistic_columns)),
        layout.by_statistic(presence, layout.region_presence, len(layout.columns)),
        tuple(layers),
        root,
    )
    return counts, evaluation.joint.logsumexp(dim=0).sum()


def expected(layout: TensorLayout, parameters: TensorParameters) -> ExpectedCounts:
    """Return the expected counts of one row drawn from the circuit."""
    torch = layout.torch
    layers = []
    below = parameters.root.T[None]  # (B, R, O)
    for weights in reversed(parameters.layers):
        layers.append(below[..., None, None] * weights)
        below = torch.cat([layers[-1].sum(dim=(2, 4)), layers[-1].sum(dim=(2, 3))])
    presence = below.flatten(0, 1)[layout.region_of]
    seen = [
        parameters.means,
        parameters.variances + parameters.means**2,
        parameters.probabilities[layout.later_states],
    ]
    statistics = torch.cat(seen) * presence[layout.statistic_places]
    return ExpectedCounts(statistics, presence, tuple(layers[::-1]), parameters.root)


def stepped(
    layout: TensorLayout,
    parameters: TensorParameters,
    counts: ExpectedCounts,
    rows: float,
    step: float,
    prior: float,
    variances: tuple[float, float] = VARIANCES,
) -> TensorParameters:
    """M-step.

    Parameters
    ----------
    layout : TensorLayout
    parameters : TensorParameters
        The parameters of the E-step.
    counts : ExpectedCounts
    rows : float
        Number of rows of the E-step.
    step : float
        Share of the counts in the running mean; 1 is EM itself.
    prior : float
        Pseudo rows of each sum and category, spread evenly over its choices, divided by the number
        of all rows: the prior does not depend on the size of batches.
    variances : tuple of float
        Bounds of the units' variances, of standardised values.
    """
    torch = layout.torch
    before = expected(layout, parameters)
    share, keep = step / rows, 1.0 - step

    def mean(old: Tensor, new: Tensor) -> Tensor:
        return old * keep + new * share

    layers = []
    for old, new in zip(before.layers, counts.layers, strict=True):
        own = mean(old, new) + prior / (new.shape[-1] * new.shape[-2])
        layers.append(own / own.sum(dim=(3, 4), keepdim=True))
    root = mean(before.root, counts.root) + prior / before.root.numel()

    kept = max(keep, NOTHING)
    presence = before.presence * kept + counts.presence * share
    statistics = before.statistics * kept + counts.statistics * share
    numbers = len(layout.numbers)
    first, second, later = statistics.tensor_split([numbers, 2 * numbers])
    own = presence[layout.number_places]
    means = first / own
    variance = second / own - means**2

    begin, place = layout.first_states
    totals = presence[layout.category_places]
    states = totals.new_empty((len(layout.states), *totals.shape[1:]))
    states[begin] = totals
    states[layout.later_states] = later
    states[begin] -= torch.zeros_like(totals).index_add_(0, place[layout.later_states], later)
    alike = layout.num_states[layout.categories][place.cpu().numpy()]
    states = states.clamp_(min=0.0) + prior / layout.tensor(alike)[:, None, None]
    states = (states / totals[place]).clamp(min=NOTHING)
    sums = torch.zeros_like(totals).index_add_(0, place, states)
    return TensorParameters(
        means, variance.clamp(*variances), states / sums[place], tuple(layers), root / root.sum()
    )


# -- the exchanges --------------------------------------------------------------------------------


class EinsumScale(SumsExchange):
    """Moments of each column, for standardising, and rows of each state."""

    name = "scale"
    sent: ClassVar[tuple[Sent, ...]] = (ORIGIN,)
    summed = (
        summed_array("rows", "rows", (1,), "count"),
        summed_array("counts", "values of each column", ("columns",), "count"),
        summed_array("first", "sums of each column", ("columns",)),
        summed_array("second", "sums of squares of each column", ("columns",), "non-negative"),
        summed_array("states", "rows of each state", ("states",), "count"),
    )

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Sum a party's rows, which may have missing values."""
        values = _enough(values, plan)
        apart = np.nan_to_num(values - asked["origin"])
        states = [
            np.bincount(values[~np.isnan(values[:, j]), j].astype(np.int64), minlength=number)
            for j, number in enumerate(plan.num_states)
            if number
        ]
        return {
            "rows": np.array([float(len(values))]),
            "counts": (~np.isnan(values)).sum(axis=0).astype(np.float64),
            "first": apart.sum(axis=0),
            "second": (apart * apart).sum(axis=0),
            "states": np.concatenate([np.zeros(0), *states]),
        }

    @classmethod
    def sizes(cls, plan: TrainingPlan, asked: Arrays) -> dict[str, int]:
        """Return the sizes that follow from the plan and what was sent."""
        return {"columns": len(plan.num_states), "states": sum(plan.num_states)}

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield how a party's sums contradict each other or its rows."""
        counts, numbers = sums["counts"], np.array(plan.num_states)
        yield from miscounted(sums["rows"], plan, rows)
        if (counts > sums["rows"]).any():
            yield "a column has more values than there are rows"
        yield from impossible(counts, sums["first"][:, None], sums["second"][:, None])
        ends = np.cumsum(numbers)
        total = np.concatenate([[0.0], np.cumsum(sums["states"])])
        by_column = total[ends] - total[ends - numbers]
        if (by_column != counts)[numbers > 0].any():
            yield "the states of a category do not count its values"


class EStep(SumsExchange):
    """An E-step: expected counts of each weight and unit."""

    name = "counts"
    sent = (
        Sent("fold", "part of the rows that is summed", (1,)),
        Sent(
            "regions", "columns of each leaf region, -1 for none", ("regions", "replicas", "widest")
        ),
        Sent("shift", "means", ("columns",)),
        Sent("scale", "standard deviations", ("columns",)),
        Sent("means", "of each unit of a number", ("numbers", "replicas", "units")),
        Sent("variances", "of each unit of a number", ("numbers", "replicas", "units")),
        Sent("probabilities", "of states in each unit", ("states", "replicas", "units")),
        Sent("layers", "weights of all sums, level by level", ("weights",)),
        Sent("root", "weights of each class and replica", ("classes", "replicas")),
    )
    summed = (
        summed_array(
            "statistics",
            "weighted sums, squares and states of each unit",
            ("statistics", "replicas", "units"),
        ),
        summed_array(
            "presence",
            "weighted values of each unit",
            ("columns but the class", "replicas", "units"),
            "non-negative",
        ),
        summed_array(
            "layers", "weighted rows of each weight of a sum", ("weights",), "non-negative"
        ),
        summed_array(
            "root",
            "weighted rows of each class and replica",
            ("classes", "replicas"),
            "non-negative",
        ),
        summed_array("rows", "rows", (1,), "count"),
        summed_array("log_densities", "log-likelihood of the rows", (1,)),
    )

    @classmethod
    def sums(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> Arrays:
        """Return the counts of a party's rows, which may have missing values."""
        regions = asked["regions"].astype(np.int64)
        layout = layout_of(plan, regions, asked["shift"], asked["scale"])
        if plan.learner.batches > 1:
            hashed = np.where(np.isnan(values), np.inf, values)
            own = row_folds(hashed, plan.learner.batches, plan.seed) == int(asked["fold"][0])
            values = values[own]
        values = _enough(values, plan)
        counts, densities = counted(layout, parameters_from(layout, asked), layout.rows(values))
        if not np.isfinite(densities):
            raise DataError(
                "a row is impossible under the circuit of the others: it cannot be counted"
            )
        return plain_arrays(counts._asdict()) | {
            "rows": np.array([float(len(values))]),
            "log_densities": np.array([densities]),
        }

    @classmethod
    def sizes(cls, plan: TrainingPlan, asked: Arrays) -> dict[str, int]:
        """Return the sizes that follow from the plan and what was sent."""
        numbers, columns = len(asked["means"]), len(plan.columns)
        # Each category has a statistic for each of its states but the first.
        of_states = len(asked["probabilities"]) - (columns - numbers)
        return {
            **super().sizes(plan, asked),
            "columns but the class": columns,
            "statistics": 2 * numbers + of_states,
        }

    @classmethod
    def doubts(
        cls, sums: Mapping[str, FloatArray], plan: TrainingPlan, asked: Arrays, rows: int
    ) -> Iterator[str]:
        """Yield whether more rows are counted than there are."""
        if sums["rows"][0] > rows:
            yield f"its sums count {sums['rows'][0]:g} rows, but the party reported {rows}"


@dataclass(frozen=True, eq=False)
class EinsumTrained(Trained):
    """A tensorised circuit as arrays.

    Parameters
    ----------
    plan : TrainingPlan
    regions : ndarray of int64, shape (G, R, V)
        Columns of each leaf region, see `random_regions`.
    shift, scale : ndarray of float, shape (d,)
        Numbers are standardised as ``(x - shift) / scale``.
    rows : float
        Number of rows of all parties.
    states : ndarray of float, shape (states,)
        Rows of each state of each category, one category after the other.
    parameters : dict of arrays
        Fields of `TensorParameters` as `plain_arrays` writes them.
    log_likelihoods : tuple of float, default ()
        Mean log-likelihood of a row under the parameters of each E-step, in nats.
    """

    plan: TrainingPlan
    regions: IntArray
    shift: FloatArray
    scale: FloatArray
    rows: float
    states: FloatArray
    parameters: Arrays
    log_likelihoods: tuple[float, ...] = ()

    @classmethod
    def drawn(
        cls, plan: TrainingPlan, origin: FloatArray, summed: Mapping[str, FloatArray]
    ) -> EinsumTrained:
        """Draw the circuit from which EM starts, from the sums of `EinsumScale` about an origin."""
        options: EinsumNetwork = plan.learner
        numbers = np.array(plan.num_states) == 0
        mean, variance = _mean_and_variance(plan, summed)
        shift = np.where(numbers, origin + mean, 0.0)
        constant = variance <= (CONSTANT_TOLERANCE * np.abs(shift)) ** 2
        scale = np.where(numbers & ~constant, np.sqrt(variance), 1.0)
        if options.image and numbers.any():
            # Pixels have one unit; a pixel that never changes has no scale of its own.
            common = np.sqrt(variance[numbers].mean())
            shift[numbers] = shift[numbers].mean()
            scale[numbers] = common if common > 0 else 1.0
        rng = np.random.default_rng([plan.seed, 0])
        regions = random_regions(
            plan.columns, options.depth, options.replicas, rng, options.image_shape
        )
        layout = layout_of(plan, regions, shift, scale)
        states = summed["states"]
        parameters = first_parameters(layout, options, plan.seed, states)
        return cls(plan, regions, shift, scale, float(summed["rows"][0]), states, parameters)

    @property
    def shares(self) -> dict[int, FloatArray]:
        """The share of the rows in each state of each category that rows have, by column."""
        numbers = np.array(self.plan.num_states)
        own = np.split(self.states, np.cumsum(numbers)[:-1])
        return {j: rows / rows.sum() for j, rows in enumerate(own) if rows.any()}

    @property
    def layout(self) -> TensorLayout:
        """The circuit's layout."""
        return layout_of(self.plan, self.regions, self.shift, self.scale)

    def stepped(self, done: int, summed: Mapping[str, FloatArray]) -> EinsumTrained:
        """Return the circuit after an M-step, from the sums of `EStep`.

        Parameters
        ----------
        done : int
            Number of M-steps so far.
        summed : mapping of str to ndarray
        """
        rows, layout = float(summed["rows"][0]), self.layout
        if rows == 0.0:  # the part may have no row
            return self
        layers = layout.layers(summed["layers"], summed["statistics"].shape[2])
        counts = ExpectedCounts(
            layout.tensor(summed["statistics"]),
            layout.tensor(summed["presence"]),
            tuple(layout.tensor(layer) for layer in layers),
            layout.tensor(summed["root"]),
        )
        options: EinsumNetwork = self.plan.learner
        made = stepped(
            layout,
            parameters_from(layout, self.parameters),
            counts,
            rows,
            self._step_size(rows, done),
            options.smoothing / self.rows,
            options.variances,
        )
        likelihood = float(summed["log_densities"][0]) / rows
        return replace(
            self,
            parameters=plain_arrays(made._asdict()),
            log_likelihoods=(*self.log_likelihoods, likelihood),
        )

    def _step_size(self, rows: float, done: int) -> float:
        """Return the step of the next M-step, of a batch of so many rows; 1, EM, with one batch.

        Equal rows are in one batch, and batches may therefore differ in size. A batch has the share
        of as many steps as it has rows in mean batches, so that every row counts equally.
        """
        options: EinsumNetwork = self.plan.learner
        if options.batches == 1:
            return 1.0
        step = cooled(options.step, done / (options.epochs * options.batches))
        return float(1.0 - (1.0 - step) ** (rows * options.batches / self.rows))

    def with_class_shares(self) -> EinsumTrained:
        """Return the circuit with the classes' shares of all rows, which batches approach."""
        if self.plan.target not in self.shares:
            return self
        root, smoothing = self.parameters["root"], self.plan.learner.smoothing / self.rows
        shares = self.shares[self.plan.target] + smoothing / len(root)
        made = root / root.sum(axis=1, keepdims=True) * shares[:, None]
        return replace(self, parameters=self.parameters | {"root": made / made.sum()})

    def model(self, domain: Domain) -> CircuitModel:
        """Return the circuit, which also predicts the class."""
        layout = self.layout
        leaf = TensorLeaf.of(layout, parameters_from(layout, self.parameters))
        return CircuitModel(Circuit(domain, leaf), self.plan.learner.target)

    def warnings(self, model: CircuitModel) -> tuple[str, ...]:
        """Return which categories have other shares in the circuit than in the rows."""
        nothing = np.full((1, len(self.plan.names)), np.nan)
        missed = [
            f"{self.plan.names[j]!r} (by up to {far:.2f})"
            for j, shares in self.shares.items()
            if (far := np.abs(model.density.state_probabilities(nothing, j) - shares).max())
            > MOST_MISSED
        ]
        if not missed:
            return ()
        return (
            "states have other probabilities in the circuit than shares of the rows, in columns "
            f"{', '.join(missed)}: the circuit is not trained to the end. Raise epochs, lower "
            "batches, or take learner='trees'",
        )


def _mean_and_variance(
    plan: TrainingPlan, summed: Mapping[str, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return mean minus origin and variance of each column, shape (d,); of categories 0."""
    counts, numbers = summed["counts"], np.array(plan.num_states) == 0
    unseen = np.flatnonzero(numbers & (counts == 0))
    if len(unseen) or not counts.any():
        listed = ", ".join(plan.names[j] for j in unseen) or "all columns"
        raise DataError(f"no row holds a value of {listed}: leave them out")
    n = np.maximum(counts, 1.0)
    mean = summed["first"] / n
    variance = np.maximum(summed["second"] / n - mean**2, 0.0)
    return np.where(numbers, mean, 0.0), np.where(numbers, variance, 0.0)


def layout_of(
    plan: TrainingPlan, regions: IntArray, shift: FloatArray, scale: FloatArray
) -> TensorLayout:
    """Return the layout of a circuit with these regions."""
    options = plan.learner
    states = np.array(plan.num_states, dtype=np.int64)
    return TensorLayout(
        states, regions, shift, scale, plan.target, options.device, options.precision
    )


def first_parameters(
    layout: TensorLayout, options: EinsumNetwork, seed: int, states: FloatArray
) -> Arrays:
    """Draw the first parameters at random, about the distributions of the columns.

    Parameters
    ----------
    layout : TensorLayout
    options : EinsumNetwork
    seed : int
    states : ndarray of float64
        Rows of each state, as `EinsumScale` counts them.

    Returns
    -------
    dict of arrays
        Fields of `TensorParameters` as `plain_arrays` writes them.
    """
    rng = np.random.default_rng([seed, 1])
    k, replicas = options.sums, layout.replicas
    arrays: Arrays = {"means": rng.normal(size=(len(layout.numbers), replicas, k))}
    arrays["variances"] = np.clip(np.ones_like(arrays["means"]), *options.variances)
    own = np.split(states, np.cumsum(layout.num_states)[:-1])  # nothing of a number
    drawn = [np.zeros((0, replicas, k))]
    for column in layout.categories.tolist():
        shares = (own[column] + 1.0) / (own[column] + 1.0).sum()
        weights = rng.gamma(CONCENTRATION * shares[:, None, None], size=(len(shares), replicas, k))
        weights += 1e-2 * shares[:, None, None]
        drawn.append(weights / weights.sum(axis=0))
    arrays["probabilities"] = np.concatenate(drawn)
    layers = []
    for shape in layout.layer_shapes(k):
        weights = 0.01 + rng.random(shape)
        layers.append((weights / weights.sum(axis=(3, 4), keepdims=True)).ravel())
    arrays["layers"] = np.concatenate(layers)
    classes = np.ones(1)
    if layout.target is not None:
        classes = own[layout.target] + options.smoothing
    root = np.repeat(classes[:, None], replicas, axis=1)
    arrays["root"] = root / root.sum()
    return arrays


def _enough(values: FloatArray, plan: TrainingPlan) -> FloatArray:
    """Return the rows of the classes with at least ``min_rows`` rows."""
    if plan.min_rows == 1:
        return values
    labels = np.zeros(len(values)) if plan.target is None else values[:, plan.target]
    _, places, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return values[sizes[places] >= plan.min_rows]


# -- the learner ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class EinsumNetwork(EinsumOptions, TrainingBySums):
    """Learner of tensorised circuits; needs torch.

    Parameters
    ----------
    target : str, optional
        A category that has a root for each of its states. None: one root.
    depth, replicas, sums, epochs, batches, image
        See `EinsumOptions`. ``batches`` has an effect by sums only.
    batch_size : int or None, default 100
        From one table, rows of a batch; fewer for small tables, see `LEAST_BATCHES`. None: all
        rows, with steps of 1, which is EM itself.
    step : float, default 0.5
        Share of the first batch in the running mean of stepwise EM. It falls to a hundredth of
        that, see `cooled`.
    smoothing : float, default 0.01
        Pseudo rows of each sum and category, spread evenly over its choices.
    variances : tuple of float
        Bounds of the units' variances, relative to the variance of the column. The default of the
        lower one is the paper's for images.
    device : str, default "cpu"
        ``"cpu"``, ``"cuda"`` or ``"cuda:<index>"``.
    precision : {"float32", "float64"}, default "float32"

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    target: str | None = None
    batch_size: int | None = 100
    step: float = 0.5
    smoothing: float = SMOOTHING
    variances: tuple[float, float] = VARIANCES
    device: str = "cpu"
    precision: str = "float32"

    def __post_init__(self) -> None:
        for name in ("depth", "replicas", "sums", "epochs", "batches", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        if not 0.0 < self.step <= 1.0:
            raise ConfigError(f"step must be above 0 and at most 1, got {self.step}")
        if not self.smoothing > 0.0:
            raise ConfigError(f"smoothing must be above 0, got {self.smoothing}")
        if not 0.0 < self.variances[0] <= self.variances[1]:
            raise ConfigError(f"variances must be above 0 and ascend, got {self.variances}")
        _ = self.image_shape
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision must be one of {PRECISIONS}, got {self.precision!r}")

    exchanges: ClassVar = (EinsumScale, EStep)

    def training(
        self, plan: TrainingPlan, presence: BoolArray | None = None
    ) -> Summing[EinsumTrained]:
        """Train by EM: draw a circuit, then a step for each batch of each epoch."""
        circuit = yield from self.start(plan)
        for done in range(self.epochs * self.batches):
            summed = yield EStep.ask(
                fold=np.array([float(done % self.batches)]),
                regions=circuit.regions.astype(np.float64),
                shift=circuit.shift,
                scale=circuit.scale,
                **circuit.parameters,
            )
            circuit = circuit.stepped(done, summed)
        return circuit.with_class_shares()

    def start(self, plan: TrainingPlan) -> Summing[EinsumTrained]:
        """Draw the circuit from which EM starts, about the distributions of the columns.

        Raises
        ------
        DataError
            If a number is missing in all rows.
        """
        origin = np.zeros(len(plan.names))
        summed = yield EinsumScale.ask(origin=origin)
        mean, variance = _mean_and_variance(plan, summed)
        if is_far(mean, variance):
            origin = mean
            summed = yield EinsumScale.ask(origin=origin)
        return EinsumTrained.drawn(plan, origin, summed)

    def learn(self, domain: Domain, values: FloatArray, seed: int = 0) -> Circuit:
        """Return the circuit of rows: one leaf, which can be composed with others.

        Parameters
        ----------
        domain : Domain
        values : ndarray of float64, shape (n, d)
            As `Domain.encode` makes them; a missing value is integrated out.
        seed : int, default 0
            Seed of the regions, the first parameters and the order of rows.

        Raises
        ------
        DataError
            If there is no row, or a number is missing in all of them.
        ConfigError
            If torch is not installed, or the options do not fit the domain.
        """
        if self.batch_size is None:
            return TrainingBySums.learn(replace(self, batches=1), domain, values, seed)
        plan = self.plan(domain, seed=seed)
        drawn = pooled(self.start(plan), plan, [values])
        layout = drawn.layout
        parameters = parameters_from(layout, drawn.parameters)
        rng = np.random.default_rng(seed)
        rows = layout.rows(values)
        few = min(LEAST_BATCHES, len(values) // LEAST_ROWS)
        num_batches = max(1, few, round(len(values) / self.batch_size))
        for epoch in range(self.epochs):
            shuffled = rows[:, layout.indices(rng.permutation(len(values)))]
            for number, batch in enumerate(shuffled.tensor_split(num_batches, dim=1)):
                done = (epoch + number / num_batches) / self.epochs
                counts, _ = counted(layout, parameters, batch)
                parameters = stepped(
                    layout,
                    parameters,
                    counts,
                    batch.shape[1],
                    cooled(self.step, done),
                    self.smoothing / len(values),
                    self.variances,
                )
        return Circuit(domain, TensorLeaf.of(layout, parameters))
