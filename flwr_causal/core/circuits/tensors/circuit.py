"""A circuit held in a few tensors: for images and many rows (EiNet, RAT-SPN)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.distribution import Distribution
from flwr_causal.core.circuits.leaves import Categorical
from flwr_causal.core.circuits.tensors import descent as tensor_descent
from flwr_causal.core.circuits.tensors import rewriting as tensor_rewriting
from flwr_causal.core.circuits.tensors import storage as tensor_storage
from flwr_causal.core.circuits.tensors.evaluation import chunks, evaluated, flows
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.tensors.evaluation import TensorParameters
    from flwr_causal.core.circuits.tensors.layout import TensorLayout

FloatArray = NDArray[np.float64]
Tensor = Any


class TensorCircuit(Distribution):
    """A joint distribution whose sums are computed many at a time.

    Its structure is a number of random region graphs (`regions`), its leaves are independent normal
    distributions of numbers and probabilities of states. Queries are those of any `Distribution`;
    `nodes_of` writes a small one as nodes.

    Parameters
    ----------
    domain : Domain
    layout : TensorLayout
    parameters : TensorParameters

    Raises
    ------
    ConfigError
        If the layout is of another domain.
    """

    def __init__(self, domain: Domain, layout: TensorLayout, parameters: TensorParameters) -> None:
        if not np.array_equal(domain.num_states, layout.num_states):
            raise ConfigError("the layout is that of a domain with other variables")
        self.domain = domain
        self.layout = layout
        self.parameters = parameters

    def __repr__(self) -> str:
        _, replicas, _, k, _ = self.parameters.layers[0].shape
        return (
            f"<TensorCircuit over {len(self.scope)} variables: {replicas} replicas of depth "
            f"{self.layout.depth}, {k} sums a region, {self.num_parameters} parameters>"
        )

    @property
    def scope(self) -> tuple[int, ...]:
        """The columns that it is a distribution of, ascending."""
        own = self.layout.columns.tolist()
        return tuple(sorted(own if self.layout.target is None else [*own, self.layout.target]))

    @property
    def num_parameters(self) -> int:
        """Free parameters of the units, and the weights of each sum less 1."""
        means, variances, probabilities, layers, root = self.parameters
        units = means.numel() + variances.numel() + probabilities.numel()
        # A category's probabilities sum to 1, as a sum's weights do.
        fixed = len(self.layout.categories) * int(np.prod(probabilities.shape[1:]))
        sums = [weights.numel() - int(np.prod(weights.shape[:3])) for weights in layers]
        return int(units - fixed + sum(sums) + root.numel() - 1)

    def class_densities(self, values: FloatArray) -> FloatArray:
        """Log density of each row together with each class, shape (n, C); one without a target."""
        joint = np.empty((len(values), self.layout.num_classes))
        for part in self._chunks(len(values)):
            joint[part] = self._evaluated(values[part]).joint.T.cpu().numpy()
        return joint

    def log_densities(self, values: FloatArray) -> FloatArray:
        """Log density of rows (n, d), of which NaN is integrated out, shape (n,)."""
        return np.asarray(np.logaddexp.reduce(self.class_densities(values), axis=1))

    def state_probabilities(self, values: FloatArray, column: int) -> FloatArray:
        """Probability of each state of a category given the rest of each row, (n, states)."""
        given = values.copy()
        given[:, column] = np.nan
        if column == self.layout.target:
            joint = self.class_densities(given)
            shares = np.exp(joint - joint.max(axis=1, keepdims=True))
        else:
            states = self.layout.states_of[self.layout.categories.tolist().index(column)]
            own = self.parameters.probabilities[states].double()
            taken, possible = self._taken(given, column)
            shares = np.einsum("src,nrc->ns", own.cpu().numpy(), taken)
            if not possible.all():  # as of a row without evidence
                nothing = np.full((1, values.shape[1]), np.nan)
                shares[~possible] = self.state_probabilities(nothing, column)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def column_moments(self, values: FloatArray, column: int) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of a number given each row, itself and 0 where it is given."""
        present = ~np.isnan(values[:, column])
        given = values.copy()
        given[:, column] = np.nan
        taken, possible = self._taken(given, column)
        if not possible.all():
            taken[~possible] = self._taken(np.full((1, values.shape[1]), np.nan), column)[0]
        place = self.layout.numbers.tolist().index(column)
        means = self.parameters.means[place].double().cpu().numpy()
        within = self.parameters.variances[place].double().cpu().numpy()
        mean = np.einsum("rc,nrc->n", means, taken)
        apart = (means - mean[:, None, None]) ** 2
        variance = np.einsum("nrc,nrc->n", within + apart, taken)
        scale, shift = self.layout.scale[column], self.layout.shift[column]
        return (
            np.where(present, values[:, column], mean * scale + shift),
            np.where(present, 0.0, variance * scale**2),
        )

    def expectations(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return E[x] and E[x^2] of each column given the values of the row, both (n, d).

        A value that is given is its own mean. Of a category the index of its state is the number.
        """
        first, second = values.copy(), values**2
        for column in self.scope:
            missing = np.flatnonzero(np.isnan(values[:, column]))
            if not len(missing):
                continue
            if self.layout.num_states[column]:
                shares = self.state_probabilities(values[missing], column)
                states = np.arange(shares.shape[1])
                first[missing, column] = shares @ states
                second[missing, column] = shares @ states**2
            else:
                mean, variance = self.column_moments(values[missing], column)
                first[missing, column] = mean
                second[missing, column] = variance + mean**2
        return first, second

    def completed(self, values: FloatArray) -> FloatArray:
        """Fill what is missing by max-product; a DataError for an impossible row."""
        found = np.empty(values.shape)
        for part in self._chunks(len(values)):
            found[part] = tensor_descent.completed(self.layout, self.parameters, values[part])
        return found

    def drawn(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Fill what is missing by draws given the rest; a DataError for an impossible row."""
        found = np.empty(values.shape)
        for part in self._chunks(len(values)):
            found[part] = tensor_descent.drawn(self.layout, self.parameters, values[part], rng)
        return found

    def marginal(self, names: Iterable[str]) -> Distribution:
        """Return the distribution of some of the variables; see `Circuit.marginal`."""
        columns = sorted({self._column(name) for name in names})
        if not columns:
            raise ConfigError("a marginal keeps at least one variable")
        return self._restricted(self.parameters, columns)

    def conditional(self, evidence: Mapping[str, Any]) -> Distribution:
        """Return the distribution of the others given some; see `Circuit.conditional`."""
        row = self._row(evidence)
        parameters, density = tensor_rewriting.conditioned(self.layout, self.parameters, row)
        if np.isneginf(density):
            raise DataError(f"the evidence {dict(evidence)} is impossible under the circuit")
        columns = [column for column in self.scope if np.isnan(row[column])]
        if not columns:
            raise ConfigError("the evidence names every variable: leave one for the answer")
        return self._restricted(parameters, columns)

    def to_arrays(self) -> dict[str, FloatArray]:
        """Return structure and parameters as finite float64 arrays, without the domain."""
        return tensor_storage.to_arrays(self.layout, self.parameters)

    @classmethod
    def from_arrays(
        cls,
        domain: Domain,
        arrays: Mapping[str, NDArray[Any]],
        *,
        device: str = "cpu",
        precision: str = "float32",
    ) -> TensorCircuit:
        """Return the circuit that `to_arrays` wrote; a DataError if it is damaged."""
        return cls(domain, *tensor_storage.from_arrays(domain, arrays, device, precision))

    def save(self, directory: str | Path) -> None:
        """Write ``circuit.json`` and ``circuit.npz`` into a directory; numbers survive exactly."""
        tensor_storage.save(directory, self.domain, self.layout, self.parameters)

    @classmethod
    def load(
        cls, directory: str | Path, *, device: str = "cpu", precision: str | None = None
    ) -> TensorCircuit:
        """Read what `save` wrote; a DataError if it is something else.

        Parameters
        ----------
        directory : str or Path
        device : str, default "cpu"
        precision : {"float32", "float64"}, optional
            Default: that of the circuit that was saved.
        """
        return cls(*tensor_storage.load(directory, device, precision))

    def _restricted(self, parameters: TensorParameters, columns: list[int]) -> Distribution:
        """Return the marginal of columns; of the target alone there is nothing left of tensors."""
        if columns == [self.layout.target]:
            from flwr_causal.core.circuits.circuit import Circuit  # which knows leaves like this

            shares = tensor_rewriting.class_probabilities(parameters)
            return Circuit(self.domain, Categorical(columns[0], shares))
        restricted = tensor_rewriting.restricted(self.layout, parameters, columns)
        return TensorCircuit(self.domain, *restricted)

    def _chunks(self, n: int) -> list[slice]:
        return list(chunks(self.layout, self.parameters, n))

    def _evaluated(self, values: FloatArray) -> Any:
        return evaluated(self.layout, self.parameters, self.layout.rows(values))

    def _taken(self, values: FloatArray, column: int) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Probability of each unit of a column given a row, (n, R, K), and if the row is possible.

        Each row of the former sums to 1 unless it is impossible.
        """
        place = self.layout.columns.tolist().index(column)
        regions = self.layout.region_of[place]
        parts = []
        for part in self._chunks(len(values)):
            below = flows(self.parameters, self._evaluated(values[part]))[2]
            parts.append(below[regions].permute(2, 0, 1).double().cpu().numpy())
        k = self.parameters.layers[0].shape[3]
        taken = np.concatenate([np.zeros((0, self.layout.replicas, k)), *parts])
        totals = taken.sum(axis=(1, 2))
        possible = totals > 0
        return taken / np.where(possible, totals, 1.0)[:, None, None], possible
