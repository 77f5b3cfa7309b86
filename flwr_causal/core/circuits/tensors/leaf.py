"""A tensorised circuit as a leaf: so it stands in sums and products beside any other one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.leaves import Categorical
from flwr_causal.core.circuits.nodes import Leaf
from flwr_causal.core.circuits.parameters import scope_of
from flwr_causal.core.circuits.tensors import rewriting as tensor_rewriting
from flwr_causal.core.circuits.tensors.circuit import TensorCircuit
from flwr_causal.core.circuits.tensors.storage import packed, unpacked
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.circuits.nodes import Array, FloatArray
    from flwr_causal.core.circuits.tensors.evaluation import TensorParameters
    from flwr_causal.core.circuits.tensors.layout import TensorLayout


class TensorLeaf(Leaf):
    """A tensorised circuit over the columns of a scope.

    Parameters
    ----------
    scope : sequence of int
        Ascending.
    layout : TensorLayout
        Of as many columns, which stand for those of the scope; all of them are split into regions,
        or the target.
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
        states = layout.num_states.tolist()
        variables = [Variable(str(j), tuple(range(s)) if s else None) for j, s in enumerate(states)]
        self.circuit = TensorCircuit(Domain(tuple(variables)), layout, parameters)
        if self.circuit.scope != tuple(range(len(self.scope))):
            raise ConfigError(
                f"a leaf over {len(self.scope)} columns cannot have a layout over "
                f"{self.circuit.scope}"
            )

    @classmethod
    def of(cls, circuit: TensorCircuit) -> TensorLeaf:
        """Return the leaf of a circuit, over the same columns."""
        own = tensor_rewriting.over(circuit.layout, circuit.parameters, circuit.scope)
        return cls(circuit.scope, *own)

    @property
    def layout(self) -> TensorLayout:
        """Its columns are numbered from 0 on."""
        return self.circuit.layout

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each row, shape (n,), of which NaN is integrated out."""
        return self.circuit.log_densities(values)

    def sample(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Fill missing values by draws given the others, shape (n, k)."""
        return self.circuit.drawn(values, rng)

    def mode(self, values: FloatArray) -> FloatArray:
        """Fill missing values by max-product given the others, shape (n, k)."""
        return self.circuit.completed(values)

    def moments(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return E[x] and E[x^2] of each column given the values of the row, both (n, k)."""
        return self.circuit.expectations(values)

    def restrict(self, scope: Sequence[int]) -> Leaf:
        """Return the marginal over some of the columns."""
        places = [self.scope.index(column) for column in sorted(scope)]
        return self._restricted(self.circuit.parameters, places)

    def condition(self, values: FloatArray) -> tuple[Leaf | None, float]:
        """Return the leaf given evidence (k,), NaN for the rest, and the evidence's log density."""
        layout = self.layout
        rest = np.flatnonzero(np.isnan(values)).tolist()
        density = float(self.log_density(values[None])[0])
        if not rest or np.isneginf(density):
            # Of what cannot be nothing is known about the rest.
            return (self.restrict([self.scope[j] for j in rest]) if rest else None), density
        parameters, _ = tensor_rewriting.conditioned(layout, self.circuit.parameters, values)
        return self._restricted(parameters, rest), density

    def moved(self, columns: Sequence[int]) -> TensorLeaf:
        """Return the same distribution over other columns: ``columns[k]`` for ``scope[k]``."""
        order = np.argsort(columns).tolist()
        moved = tensor_rewriting.over(self.layout, self.circuit.parameters, order)
        return TensorLeaf([columns[j] for j in order], *moved)

    @property
    def num_states(self) -> tuple[int, ...]:
        """Number of states of each column, 0 for a number."""
        return tuple(self.layout.num_states.tolist())

    @property
    def num_parameters(self) -> int:
        """Number of free parameters."""
        return self.circuit.num_parameters

    def arrays(self) -> dict[str, Array]:
        """Return structure and parameters, all float64."""
        return packed(self.layout, self.circuit.parameters)

    @classmethod
    def from_arrays(cls, scope: Sequence[int], arrays: Mapping[str, NDArray[Any]]) -> TensorLeaf:
        """Return the leaf of given structure and parameters, computed on the CPU."""
        return cls(scope, *unpacked(arrays))

    def _restricted(self, parameters: TensorParameters, places: list[int]) -> Leaf:
        if places == [self.layout.target]:
            shares = tensor_rewriting.class_probabilities(parameters)
            return Categorical(self.scope[places[0]], shares)
        kept = tensor_rewriting.restricted(self.layout, parameters, places)
        return TensorLeaf([self.scope[j] for j in places], *tensor_rewriting.over(*kept, places))
