"""Einsum networks (EiNets): tensorised circuits learned by EM (Peharz et al., ICML 2020).

By sums over rows, parties with the same columns train one circuit, that of the pooled rows: the
exchange `Scale` sums what standardising needs; each of the others, `Counts`, is an E-step: the
server sends the parameters, a party answers with expected counts, which are added, and the server
divides. With more than one batch an exchange asks for a part of the rows only, chosen by a hash of
their values and so the same part however they are split: stepwise EM, which needs fewer exchanges
than passes over all rows.

`EinsumNetwork.learn` learns from one table, by batches of shuffled rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.learners.einsum.em import (
    SMOOTHING,
    VARIANCES,
    Counts,
    cooled,
    counted,
    stepped,
)
from flwr_causal.core.circuits.learners.einsum.regions import random_regions
from flwr_causal.core.circuits.learners.folds import row_folds
from flwr_causal.core.circuits.learners.options import EinsumOptions
from flwr_causal.core.circuits.learners.training_by_sums import (
    SentArray,
    Step,
    SummedArray,
    Trained,
    TrainingBySums,
    by_name,
)
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.tensors.layout import TensorLayout
from flwr_causal.core.circuits.tensors.leaf import TensorLeaf, parameter_arrays, parameters_from
from flwr_causal.core.devices import PRECISIONS
from flwr_causal.core.linear.moments import CONSTANT_TOLERANCE
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.training_by_sums import Arrays, Plan

#: Squares about an origin that lies so many deviations from the mean have lost four digits.
FAR = 100.0
#: Rows of each state that a unit's first probabilities are drawn about, in proportion to all rows.
CONCENTRATION = 4.0
#: Batches of a pass over few rows, as long as each has so many rows: too few M-steps would leave
#: the circuit near its random start.
LEAST_BATCHES = 10
LEAST_ROWS = 20


class Steps(StrEnum):
    """The exchanges."""

    SCALE = "scale"
    COUNTS = "counts"


# -- the exchanges --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scale(Step):
    """What standardising needs, and rows of each state.

    Parameters
    ----------
    plan : Plan
    origin : ndarray of float, shape (d,)
        About which sums are taken.
    """

    plan: Plan
    origin: FloatArray

    name = Steps.SCALE
    sent = (SentArray("origin", "what sums are taken about", ("columns",)),)
    summed = (
        SummedArray("rows", "rows", (1,), "count"),
        SummedArray("counts", "values of each column", ("columns",), "count"),
        SummedArray("first", "sums of each column", ("columns",)),
        SummedArray("second", "sums of squares of each column", ("columns",), "non-negative"),
        SummedArray("states", "rows of each state", ("states",), "count"),
    )

    def arrays(self) -> Arrays:
        """Return the origin."""
        return {"origin": self.origin}

    @classmethod
    def sums(cls, values: FloatArray, plan: Plan, asked: Arrays) -> Arrays:
        """Sum a party's rows; missing values may be there."""
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

    def after(self, summed: Mapping[str, FloatArray]) -> Scale | EStep:
        """Return the first E-step, or this exchange about a better origin."""
        plan, counts = self.plan, summed["counts"]
        options: EinsumNetwork = plan.learner
        numbers = np.array(plan.num_states) == 0
        unseen = np.flatnonzero(numbers & (counts == 0))
        if len(unseen) or not counts.any():
            listed = ", ".join(plan.names[j] for j in unseen) or "all columns"
            raise DataError(f"no row holds a value of {listed}: leave them out")
        n = np.maximum(counts, 1.0)
        apart = summed["first"] / n
        variance = np.maximum(summed["second"] / n - apart**2, 0.0)
        far = numbers & (np.abs(apart) > FAR * np.sqrt(variance))
        if far.any() and not self.origin.any():
            return replace(self, origin=np.where(numbers, apart, 0.0))
        shift = np.where(numbers, self.origin + apart, 0.0)
        constant = variance <= (CONSTANT_TOLERANCE * np.abs(shift)) ** 2
        scale = np.where(numbers & ~constant, np.sqrt(variance), 1.0)
        if options.image and numbers.any():
            # Pixels are comparable; the scale of one that never changes is unknown otherwise.
            common = np.sqrt(variance[numbers].mean())
            shift[numbers] = shift[numbers].mean()
            scale[numbers] = common if common > 0 else 1.0
        rng = np.random.default_rng([plan.seed, 0])
        regions = random_regions(
            plan.columns, options.depth, options.replicas, rng, options.image_shape
        )
        layout = layout_of(plan, regions, shift, scale)
        parameters = first_parameters(layout, options, plan.seed, summed["states"])
        return EStep(plan, regions, shift, scale, parameters, float(summed["rows"][0]), 0, ())


@dataclass(frozen=True, eq=False)
class Known:
    """A tensorised circuit as arrays.

    Parameters
    ----------
    plan : Plan
    regions : ndarray of int64, shape (G, R, V)
    shift, scale : ndarray of float, shape (d,)
    parameters : dict of arrays
        As `parameter_arrays` writes them.
    """

    plan: Plan
    regions: IntArray
    shift: FloatArray
    scale: FloatArray
    parameters: Arrays

    @property
    def layout(self) -> TensorLayout:
        """The circuit's layout."""
        return layout_of(self.plan, self.regions, self.shift, self.scale)


@dataclass(frozen=True, eq=False)
class EStep(Known, Step):
    """An E-step: expected counts of each weight and unit.

    Parameters
    ----------
    plan, regions, shift, scale, parameters
        See `Known`.
    rows : float
        Of all parties.
    done : int
        E-steps so far.
    log_likelihoods : tuple of float
        Mean of a row under the parameters that each E-step was asked with.
    """

    rows: float
    done: int
    log_likelihoods: tuple[float, ...]

    name = Steps.COUNTS
    sent = (
        SentArray("fold", "part of the rows that is asked about", (1,)),
        SentArray(
            "regions", "columns of each leaf region, -1 for none", ("regions", "replicas", "widest")
        ),
        SentArray("shift", "means", ("columns",)),
        SentArray("scale", "standard deviations", ("columns",)),
        SentArray("means", "of each unit of a number", ("numbers", "replicas", "units")),
        SentArray("variances", "of each unit of a number", ("numbers", "replicas", "units")),
        SentArray("probabilities", "of states in each unit", ("states", "replicas", "units")),
        SentArray("root", "weights of each class and replica", ("classes", "replicas")),
        SentArray("layers", "weights of all sums, level by level", ("weights",)),
    )
    summed = (
        SummedArray(
            "statistics",
            "weighted sums, squares and states of each unit",
            ("statistics", "replicas", "units"),
        ),
        SummedArray(
            "presence",
            "weighted values of each unit",
            ("columns but the class", "replicas", "units"),
            "non-negative",
        ),
        SummedArray(
            "root",
            "weighted rows of each class and replica",
            ("classes", "replicas"),
            "non-negative",
        ),
        SummedArray(
            "layers", "weighted rows of each weight of a sum", ("weights",), "non-negative"
        ),
        SummedArray("rows", "rows", (1,), "count"),
        SummedArray("log_densities", "log-likelihood of the rows", (1,)),
    )

    def arrays(self) -> Arrays:
        """Return the circuit."""
        return {
            "fold": np.array([float(self.done % self.plan.learner.batches)]),
            "regions": self.regions.astype(np.float64),
            "shift": self.shift,
            "scale": self.scale,
        } | _flat(self.parameters)

    @classmethod
    def sums(cls, values: FloatArray, plan: Plan, asked: Arrays) -> Arrays:
        """Sum over a party's rows; missing values may be there."""
        regions = asked["regions"].astype(np.int64)
        layout = layout_of(plan, regions, asked["shift"], asked["scale"])
        parameters = _by_level(layout, asked)
        if plan.learner.batches > 1:
            hashed = np.where(np.isnan(values), np.inf, values)
            own = row_folds(hashed, plan.learner.batches, plan.seed) == int(asked["fold"][0])
            values = values[own]
        values = _enough(values, plan)
        if not len(values):
            return _nothing(layout, asked)
        counts, densities = counted(
            layout, parameters_from(layout, parameters), layout.rows(values)
        )
        if not np.isfinite(densities):
            raise DataError(
                "a row is impossible under the circuit of the others: it cannot be counted"
            )
        return _flat(_as_arrays(counts)) | {
            "rows": np.array([float(len(values))]),
            "log_densities": np.array([densities]),
        }

    def after(self, summed: Mapping[str, FloatArray]) -> EStep | EinsumTrained:
        """Return the next E-step, or the trained circuit."""
        options, layout = self.plan.learner, self.layout
        parameters, likelihoods = self.parameters, self.log_likelihoods
        rows = float(summed["rows"][0])
        if rows > 0.0:  # else no row falls into the part
            levels = _by_level(layout, summed)
            counts = Counts(
                layout.tensor(summed["statistics"]),
                layout.tensor(summed["presence"]),
                tuple(layout.tensor(levels[f"layer.{level}"]) for level in range(layout.depth)),
                layout.tensor(summed["root"]),
            )
            made = stepped(
                layout,
                parameters_from(layout, parameters),
                counts,
                rows,
                self.step_size,
                options.smoothing / self.rows,
                options.variances,
            )
            parameters = parameter_arrays(made)
            likelihoods = (*likelihoods, float(summed["log_densities"][0]) / rows)
        known = (self.plan, self.regions, self.shift, self.scale, parameters)
        if self.done + 1 == options.epochs * options.batches:
            return EinsumTrained(*known, likelihoods)
        return EStep(*known, self.rows, self.done + 1, likelihoods)

    @property
    def step_size(self) -> float:
        """Step of the M-step that follows; with one batch it is EM itself."""
        options = self.plan.learner
        if options.batches == 1:
            return 1.0
        return cooled(options.step, self.done / (options.epochs * options.batches))


@dataclass(frozen=True, eq=False)
class EinsumTrained(Known, Trained):
    """The trained circuit.

    Parameters
    ----------
    plan, regions, shift, scale, parameters
        See `Known`.
    log_likelihoods : tuple of float
        As in `EStep`.
    """

    log_likelihoods: tuple[float, ...]

    def model(self, domain: Domain) -> CircuitModel:
        """Return the circuit, which also predicts the class."""
        layout = self.layout
        leaf = TensorLeaf.of(layout, parameters_from(layout, self.parameters))
        return CircuitModel(Circuit(domain, leaf), self.plan.learner.target)


def layout_of(plan: Plan, regions: IntArray, shift: FloatArray, scale: FloatArray) -> TensorLayout:
    """Return the layout of a circuit with these regions."""
    options = plan.learner
    states = np.array(plan.num_states, dtype=np.int64)
    return TensorLayout(
        states, regions, shift, scale, plan.target, options.device, options.precision
    )


def first_parameters(
    layout: TensorLayout, options: EinsumNetwork, seed: int, states: FloatArray
) -> Arrays:
    """Draw the first parameters at random about the columns' distributions.

    Parameters
    ----------
    layout : TensorLayout
    options : EinsumNetwork
    seed : int
    states : ndarray of float64
        Rows of each state, as `Scale` counts them.

    Returns
    -------
    dict of arrays
        As `parameter_arrays` writes them.
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
    for level in range(layout.depth):
        regions = 2 ** (layout.depth - 1 - level)
        tops = layout.num_classes if regions == 1 else k
        weights = 0.01 + rng.random((regions, replicas, tops, k, k))
        arrays[f"layer.{level}"] = weights / weights.sum(axis=(3, 4), keepdims=True)
    classes = np.ones(1)
    if layout.target is not None:
        classes = own[layout.target] + options.smoothing
    root = np.repeat(classes[:, None], replicas, axis=1)
    arrays["root"] = root / root.sum()
    return arrays


def _flat(arrays: Arrays) -> Arrays:
    """Return arrays with those of all levels (``layer.0``, ...) as one, side by side."""
    layers = [name for name in arrays if name.startswith("layer.")]
    flat = {name: array for name, array in arrays.items() if name not in layers}
    flat["layers"] = np.concatenate([arrays[name].ravel() for name in layers])
    return flat


def _by_level(layout: TensorLayout, arrays: Mapping[str, FloatArray]) -> Arrays:
    """Opposite of :func:`_flat`."""
    result = {name: array for name, array in arrays.items() if name != "layers"}
    units = arrays["means" if "means" in arrays else "statistics"].shape[2]
    first = 0
    for level in range(layout.depth):
        regions = 2 ** (layout.depth - 1 - level)
        tops = layout.num_classes if regions == 1 else units
        shape = (regions, layout.replicas, tops, units, units)
        last = first + int(np.prod(shape))
        result[f"layer.{level}"] = arrays["layers"][first:last].reshape(shape)
        first = last
    return result


def _as_arrays(counts: Counts) -> Arrays:
    """Return counts as `parameter_arrays` returns parameters."""
    named = {name: getattr(counts, name) for name in ("statistics", "presence", "root")}
    named |= {f"layer.{level}": one for level, one in enumerate(counts.layers)}
    return {name: one.cpu().numpy().astype(np.float64) for name, one in named.items()}


def _enough(values: FloatArray, plan: Plan) -> FloatArray:
    """Return the rows of classes of which there are enough."""
    if plan.min_rows == 1:
        return values
    labels = np.zeros(len(values)) if plan.target is None else values[:, plan.target]
    _, places, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return values[sizes[places] >= plan.min_rows]


def _nothing(layout: TensorLayout, asked: Arrays) -> Arrays:
    """Return the sums over no row."""
    units = asked["means"].shape[1:]
    return {
        "statistics": np.zeros((len(layout.statistic_columns), *units)),
        "presence": np.zeros((len(layout.columns), *units)),
        "root": np.zeros_like(asked["root"]),
        "layers": np.zeros_like(asked["layers"]),
        "rows": np.zeros(1),
        "log_densities": np.zeros(1),
    }


# -- the learner ----------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class EinsumNetwork(EinsumOptions, TrainingBySums):
    """Learner of tensorised circuits; needs torch.

    Parameters
    ----------
    target : str, optional
        A category that has a root for each of its states. None: one root.
    depth, replicas, sums, epochs, batches, image
        See `EinsumOptions`. ``batches`` counts by sums only.
    batch_size : int, optional, default 100
        From one table, rows between two M-steps; less where there are few, see `LEAST_BATCHES`.
        None: all, with the step 1, which is EM itself.
    step : float
        Share of the first batch in the running mean of EM; it falls to a hundredth of that, see
        `cooled`.
    smoothing : float
        Rows that each sum and category is given beforehand, all choices alike.
    variances : tuple of float
        Bounds of the units' variances, as shares of the column's.
    device : str, default "cpu"
        Or ``"cuda"``, ``"cuda:<index>"``.
    precision : {"float32", "float64"}

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

    steps: ClassVar = by_name(Scale, EStep)

    def start(self, plan: Plan, presence: BoolArray | None = None) -> Scale:
        """Return the state before the first exchange."""
        return Scale(plan, np.zeros(len(plan.names)))

    def learn(self, domain: Domain, values: FloatArray, seed: int = 0) -> Circuit:
        """Return the circuit of rows: one leaf, which can be composed with others.

        Parameters
        ----------
        domain : Domain
        values : ndarray of float64, shape (n, d)
            As `Domain.encode` makes them; a missing value is integrated out.
        seed : int, default 0
            Of the regions, the first parameters and the order of rows.

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
        state: Scale | EStep = self.start(plan)
        while isinstance(state, Scale):
            state = state.after(Scale.sums(values, plan, state.arrays()))
        layout = state.layout
        parameters = parameters_from(layout, state.parameters)
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
