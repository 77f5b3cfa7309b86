"""An Einsum network as a leaf of a circuit.

Marginals and conditionals are leaves again. Evidence changes the weights: each is multiplied by the
probability of the evidence under the pair of children, and normalised. Then the columns with
evidence are left out, as in a marginal.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.circuits.leaves.univariate import Categorical
from flwr_causal.core.circuits.nodes import Leaf, LeafBatch, scope_of
from flwr_causal.core.circuits.tensors import evaluation
from flwr_causal.core.circuits.tensors.evaluation import TensorParameters, evaluated, root_terms
from flwr_causal.core.circuits.tensors.layout import TensorLayout
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays, FloatArray

Tensor = Any


class TensorLeaf(Leaf):
    """An Einsum network over the columns of a scope.

    Its structure is a number of random region graphs. Its units are normal distributions of numbers
    and probabilities of states. If it has a target, each state of the target has a root.

    Parameters
    ----------
    scope : sequence of int
        Ascending.
    layout : TensorLayout
        Over the same number of columns, in the order of the scope; each of them is in a region or
        is the target.
    parameters : TensorParameters

    Raises
    ------
    ConfigError
        If the layout has other columns.
    """

    kind: ClassVar[str] = "tensor"

    def __init__(
        self, scope: Sequence[int], layout: TensorLayout, parameters: TensorParameters
    ) -> None:
        self.scope = scope_of(scope)
        self.layout = layout
        self.parameters = parameters
        own = _columns(layout)
        if own != list(range(len(self.scope))):
            raise ConfigError(
                f"a leaf over {len(self.scope)} columns cannot have a layout over {own}"
            )

    @classmethod
    def of(cls, layout: TensorLayout, parameters: TensorParameters) -> TensorLeaf:
        """Return the leaf over the columns of a layout's regions and its target."""
        scope = _columns(layout)
        return cls(scope, *over(layout, parameters, scope))

    def __repr__(self) -> str:
        _, replicas, _, k, _ = self.parameters.layers[0].shape
        return (
            f"<TensorLeaf over {len(self.scope)} columns: {replicas} replicas of depth "
            f"{self.layout.depth}, {k} sums a region>"
        )

    def class_densities(self, values: FloatArray) -> FloatArray:
        """Log density of each row with each class, shape (n, C); C is 1 without a target."""
        joint = np.empty((len(values), self.layout.num_classes))
        for rows in self._chunks(len(values)):
            joint[rows] = self._evaluated(values[rows]).joint.T.cpu().numpy()
        return joint

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each row, missing values integrated out, shape (n,)."""
        return np.asarray(np.logaddexp.reduce(self.class_densities(values), axis=1))

    def state_log_densities(self, values: FloatArray, column: int) -> FloatArray:
        """Log density of each row with each state of a category in turn, shape (states, n).

        Parameters
        ----------
        values : ndarray of float64, shape (n, k)
            The category itself is not read.
        column : int
            Position of the category in the scope.
        """
        given = values.copy()
        given[:, column] = np.nan
        if column == self.layout.target:
            return self.class_densities(given).T
        place = int(np.searchsorted(self.layout.columns, column))
        states = self.layout.states_of[int(np.searchsorted(self.layout.categories, column))]
        probabilities = self.parameters.probabilities[states].double().cpu().numpy()
        result = np.empty((len(probabilities), len(values)))
        for rows, joint, below in self._flows(given):
            shares = np.einsum("src,rcn->sn", probabilities, self._taken(below, place))
            with np.errstate(divide="ignore"):
                result[:, rows] = np.log(shares) + np.logaddexp.reduce(joint, axis=0)
        return result

    def sample(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Fill missing values by draws given the others, shape (n, k)."""
        filled = np.empty(values.shape)
        for rows in self._chunks(len(values)):
            filled[rows] = evaluation.sample(self.layout, self.parameters, values[rows], rng)
        return filled

    def mode(self, values: FloatArray) -> FloatArray:
        """Fill missing values by max-product given the others, shape (n, k)."""
        filled = np.empty(values.shape)
        for rows in self._chunks(len(values)):
            filled[rows] = evaluation.mpe(self.layout, self.parameters, values[rows])
        return filled

    def moments(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return E[x] and E[x^2] of each column given the values of the row, both (n, k)."""
        layout = self.layout
        missing = np.isnan(values)
        first, second = values.copy(), values**2
        means, variances, probabilities = (
            one.double().cpu().numpy() for one in self.parameters[:3]
        )
        scale, shift = (one[layout.numbers, None, None] for one in (layout.scale, layout.shift))
        means, variances = means * scale + shift, variances * scale**2
        # E[x] and E[x^2] of each unit.
        units = {
            column: (means[place], means[place] ** 2 + variances[place])
            for place, column in enumerate(layout.numbers.tolist())
        }
        for column, states in zip(layout.categories.tolist(), layout.states_of, strict=True):
            index = np.arange(int(layout.num_states[column]))
            own = probabilities[states]
            units[column] = np.tensordot(index, own, 1), np.tensordot(index**2, own, 1)
        for rows, joint, below in self._flows(values):
            if layout.target is not None:
                shares = np.exp(joint - np.logaddexp.reduce(joint, axis=0))
                index = np.arange(layout.num_classes)
                own = missing[rows, layout.target]
                first[rows, layout.target][own] = (index @ shares)[own]
                second[rows, layout.target][own] = (index**2 @ shares)[own]
            for place, column in enumerate(layout.columns.tolist()):
                own = missing[rows, column]
                if own.any():
                    taken = self._taken(below, place)[:, :, own]
                    first[rows, column][own] = np.einsum("rc,rcn->n", units[column][0], taken)
                    second[rows, column][own] = np.einsum("rc,rcn->n", units[column][1], taken)
        return first, second

    def restrict(self, scope: Sequence[int]) -> Leaf:
        """Return the marginal over some of the columns."""
        places = [self.scope.index(column) for column in sorted(scope)]
        return self._restricted(self.parameters, places)

    def condition(self, values: FloatArray) -> tuple[Leaf | None, float]:
        """Return the leaf given evidence (k,), NaN for the rest, and the evidence's log density."""
        rest = np.flatnonzero(np.isnan(values)).tolist()
        density = float(self.log_density(values[None])[0])
        if not rest or np.isneginf(density):
            # Given impossible evidence, the rest has its distribution without evidence.
            return (self.restrict([self.scope[j] for j in rest]) if rest else None), density
        return self._restricted(conditioned(self.layout, self.parameters, values), rest), density

    def moved(self, columns: Sequence[int]) -> TensorLeaf:
        """Return the same distribution over other columns: ``columns[k]`` for ``scope[k]``."""
        order = np.argsort(columns).tolist()
        moved = over(self.layout, self.parameters, order)
        return TensorLeaf([columns[j] for j in order], *moved)

    @property
    def num_states(self) -> tuple[int, ...]:
        """Number of states of each column, 0 for a number."""
        return tuple(self.layout.num_states.tolist())

    @property
    def num_parameters(self) -> int:
        """Free parameters of the units, and the weights of each sum less 1."""
        means, variances, probabilities, layers, root = self.parameters
        units = means.numel() + variances.numel() + probabilities.numel()
        # A category's probabilities sum to 1, as a sum's weights do.
        fixed = len(self.layout.categories) * int(np.prod(probabilities.shape[1:]))
        sums = [weights.numel() - int(np.prod(weights.shape[:3])) for weights in layers]
        return int(units - fixed + sum(sums) + root.numel() - 1)

    def arrays(self) -> Arrays:
        """Return structure and parameters as arrays of float64."""
        return to_arrays(self.layout, self.parameters)

    @classmethod
    def from_arrays(cls, scope: Sequence[int], arrays: Arrays) -> TensorLeaf:
        """Return the leaf of given structure and parameters, computed on the CPU."""
        return cls(scope, *from_arrays(arrays))

    @classmethod
    def batch(cls, leaves: Sequence[Leaf]) -> LeafBatch:
        """Return the networks as a `TensorBatch`."""
        return TensorBatch(leaves)

    def _restricted(self, parameters: TensorParameters, places: list[int]) -> Leaf:
        if places == [self.layout.target]:
            return Categorical(self.scope[places[0]], class_probabilities(parameters))
        kept = restricted(self.layout, parameters, places)
        return TensorLeaf([self.scope[j] for j in places], *over(*kept, places))

    def _chunks(self, n: int) -> Iterator[slice]:
        return evaluation.chunks(self.layout, self.parameters, n)

    def _evaluated(self, values: FloatArray) -> evaluation.Evaluation:
        return evaluated(self.layout, self.parameters, self.layout.rows(values))

    def _flows(self, values: FloatArray) -> Iterator[tuple[slice, FloatArray, Tensor]]:
        """Yield rows, their log densities with each class (C, n), and flows (G * R, K, n)."""
        for rows in self._chunks(len(values)):
            found = self._evaluated(values[rows])
            below = evaluation.flows(self.parameters, found)[2]
            yield rows, found.joint.double().cpu().numpy(), below

    def _taken(self, below: Tensor, place: int) -> FloatArray:
        """Probability of each unit of a column given a row, (R, K, n); 0 for impossible rows."""
        taken = below[self.layout.region_of[place]].double().cpu().numpy()
        totals = taken.sum(axis=(0, 1))
        return np.asarray(taken / np.where(totals > 0, totals, 1.0))


class TensorBatch(LeafBatch):
    """Einsum networks, which evaluate all states of a category at once."""

    def state_log_densities(
        self, values: FloatArray, column: int, num_states: int
    ) -> Iterator[FloatArray]:
        """Yield the log density of each leaf and row with each state, (number of leaves, n)."""
        found = []
        for leaf in self.leaves:
            assert isinstance(leaf, TensorLeaf)
            own = values[:, list(leaf.scope)]
            found.append(leaf.state_log_densities(own, leaf.scope.index(column)))
        yield from np.stack(found, axis=1)


def _columns(layout: TensorLayout) -> list[int]:
    """Return the columns of a layout's regions and its target, ascending."""
    own = layout.columns.tolist()
    return sorted(own if layout.target is None else [*own, layout.target])


def restricted(
    layout: TensorLayout, parameters: TensorParameters, columns: Sequence[int]
) -> tuple[TensorLayout, TensorParameters]:
    """Return the marginal over some columns, of which at least one is in a region."""
    kept = np.isin(layout.regions, columns)
    target = layout.target if layout.target in columns else None
    smaller = replace(layout, regions=np.where(kept, layout.regions, -1), target=target)
    numbers = layout.indices(np.flatnonzero(np.isin(layout.numbers, columns)))
    states = layout.indices(np.flatnonzero(np.isin(layout.state_columns, columns)))
    if target is None:
        parameters = _without_classes(parameters)
    return smaller, parameters._replace(
        means=parameters.means[numbers],
        variances=parameters.variances[numbers],
        probabilities=parameters.probabilities[states],
    )


def over(
    layout: TensorLayout, parameters: TensorParameters, columns: Sequence[int]
) -> tuple[TensorLayout, TensorParameters]:
    """Return the same circuit with its columns renumbered: column j was ``columns[j]``."""
    moved = layout.over(columns)
    numbers = np.searchsorted(layout.numbers, np.array(columns)[moved.numbers])
    states = [
        np.arange(len(layout.states))[layout.states_of[place]]
        for place in np.searchsorted(layout.categories, np.array(columns)[moved.categories])
    ]
    chosen = layout.indices(np.concatenate([np.zeros(0, dtype=np.int64), *states]))
    own = layout.indices(numbers)
    return moved, parameters._replace(
        means=parameters.means[own],
        variances=parameters.variances[own],
        probabilities=parameters.probabilities[chosen],
    )


def conditioned(
    layout: TensorLayout, parameters: TensorParameters, row: FloatArray
) -> TensorParameters:
    """Return the parameters given a possible row (d,), NaN where it holds no evidence.

    The layout stays the same; `restricted` then leaves out the columns with evidence.
    """
    rows = layout.rows(row[None])
    evaluation = evaluated(layout, parameters, rows)
    density = float(evaluation.joint.logsumexp(dim=0)[0])
    layers = []
    for weights, trace in zip(parameters.layers, evaluation.traces, strict=True):
        regions, replicas, _, k, _ = weights.shape
        left = trace.left.view(regions, replicas, 1, k, 1)
        right = trace.right.view(regions, replicas, 1, 1, k)
        pairs = weights * left * right
        layers.append(pairs / pairs.sum(dim=(3, 4), keepdim=True))
    root = root_terms(layout, parameters, rows, evaluation.traces[-1].values)[:, :, 0]
    root = (root - density).exp()
    return parameters._replace(layers=tuple(layers), root=root / root.sum())


def class_probabilities(parameters: TensorParameters) -> FloatArray:
    """Return the probability of each class, shape (C,)."""
    shares = parameters.root.sum(dim=1).double().cpu().numpy()
    return np.asarray(shares / shares.sum())


def _without_classes(parameters: TensorParameters) -> TensorParameters:
    """Return the parameters with one root, the sum over the classes."""
    replicas = parameters.root.sum(dim=0, keepdim=True)
    top = parameters.layers[-1]  # (1, R, C, K, K)
    shares = parameters.root.T / replicas.T.clamp(min=1e-30)  # (R, C)
    merged = (top * shares[None, :, :, None, None]).sum(dim=2, keepdim=True)
    totals = merged.sum(dim=(3, 4), keepdim=True)
    # The weights of a replica of probability 0 do not matter.
    merged = (merged + (totals == 0)).div(totals + (totals == 0) * merged[0, 0].numel())
    return parameters._replace(layers=(*parameters.layers[:-1], merged), root=replicas)


def plain_arrays(tensors: Mapping[str, Any]) -> dict[str, FloatArray]:
    """Return named tensors as arrays of float64; of ``layers`` all, one after the other."""
    return {
        name: np.concatenate([_array(layer).ravel() for layer in one])
        if name == "layers"
        else _array(one)
        for name, one in tensors.items()
    }


def _array(tensor: Tensor) -> FloatArray:
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float64)


def parameters_from(layout: TensorLayout, arrays: Mapping[str, NDArray[Any]]) -> TensorParameters:
    """Return the parameters whose fields `plain_arrays` wrote.

    Raises
    ------
    DataError
        If an array is missing, has another shape than the layout asks for, or does not hold
        probabilities (within 1e-4, for rounding) or variances.
    """
    try:
        means, counts = arrays["means"], layout.num_states[layout.categories]
        k = means.shape[2] if len(layout.numbers) else arrays["probabilities"].shape[2]
        expected: dict[str, tuple[int, ...]] = {
            "means": (len(layout.numbers), layout.replicas, k),
            "variances": (len(layout.numbers), layout.replicas, k),
            # Summed up, not listed: the numbers of states are only those that the sender states.
            "probabilities": (sum(counts.tolist()), layout.replicas, k),
            "layers": (sum(map(math.prod, layout.layer_shapes(k))),),
            "root": (layout.num_classes, layout.replicas),
        }
        for name, shape in expected.items():
            if arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
                raise DataError(f"{name} must be finite and of the shape {shape}")
        layers = layout.layers(arrays["layers"], k)
        _check_sums(layout, {name: arrays[name] for name in expected}, layers)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"these are no parameters of an Einsum network ({error})") from error
    own = {name: layout.tensor(arrays[name]) for name in expected if name != "layers"}
    return TensorParameters(**own, layers=tuple(layout.tensor(layer) for layer in layers))


def _check_sums(
    layout: TensorLayout, arrays: Mapping[str, NDArray[Any]], layers: Sequence[NDArray[Any]]
) -> None:
    """Raise a DataError unless weights and probabilities are distributions, variances above 0."""
    totals = [arrays["root"].sum(), *(layer.sum(axis=(3, 4)) for layer in layers)]
    totals += [arrays["probabilities"][states].sum(axis=0) for states in layout.states_of]
    least = min([0.0] + [one.min() for name, one in arrays.items() if name != "means" and one.size])
    if least < 0 or any(np.abs(total - 1.0).max() > 1e-4 for total in totals):
        raise DataError("weights and probabilities must not be negative, and sum to 1")
    if (arrays["variances"] <= 0).any():
        raise DataError("variances must be above 0")


def to_arrays(layout: TensorLayout, parameters: TensorParameters) -> dict[str, FloatArray]:
    """Return structure and parameters; the names are the same for any depth."""
    target = -1 if layout.target is None else layout.target
    return plain_arrays(parameters._asdict()) | {
        "num_states": layout.num_states.astype(np.float64),
        "regions": layout.regions.astype(np.float64),
        "shift": layout.shift,
        "scale": layout.scale,
        "target": np.array([float(target)]),
        "is_double": np.array([float(layout.precision == "float64")]),
    }


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> tuple[TensorLayout, TensorParameters]:
    """Return layout (on the CPU) and parameters of what `to_arrays` wrote.

    Raises
    ------
    DataError
        If the arrays are damaged.
    """
    try:
        states, regions = (
            np.asarray(arrays[name]).astype(np.int64) for name in ("num_states", "regions")
        )
        shift, scale = (np.asarray(arrays[name], dtype=np.float64) for name in ("shift", "scale"))
        target = int(arrays["target"][0])
        precision = "float64" if arrays["is_double"][0] else "float32"
        d = len(states)
        good = regions.ndim == 3 and len(regions) > 1 and len(regions).bit_count() == 1
        good = good and regions.size > 0 and regions.min() >= -1 and regions.max() < d > target
        good = good and states.ndim == 1 and states.min() >= 0
        if not good or shift.shape != (d,) or scale.shape != (d,) or not (scale > 0).all():
            raise DataError("this is no Einsum network: write it again")
        layout = TensorLayout(
            states, regions, shift, scale, None if target < 0 else target, precision=precision
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"this is no Einsum network ({error}): write it again") from error
    return layout, parameters_from(layout, arrays)
