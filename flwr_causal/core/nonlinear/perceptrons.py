"""d multilayer perceptrons, one for each variable, evaluated as one batched tensor operation.

The j-th network explains x_j by all other variables (Zheng et al., "Learning sparse nonparametric
DAGs", AISTATS 2020): ``f_j(x) = B_j s(... s(A_j x + a_j) ...) + b_j`` with the logistic sigmoid s.
The *first layer* ``A`` has the shape ``(d, m, d)``: target j, hidden unit, input i. Variable i can
act on j only through the block ``A_j[:, i]``, so ``W[i, j] = ||A_j[:, i]||_2`` is zero exactly
where x_j does not depend on x_i. Without hidden layers (``hidden=()``) the first layer is the whole
network: f_j is linear, ``m = 1``, and W is the absolute value of NOTEARS' W.

The parameters are sent and optimised as one flat float64 vector theta. It begins with the first
layer A; the *rest* is the biases a and then weights and biases of one layer after the other. Only
:class:`SquaredLoss` computes with torch, which is imported when one is created.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.devices import PRECISIONS, checked_device, import_torch
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray


# Limit on the activations of a layer that are in memory at once, which take 128 MB in float64.
MOST_ACTIVATIONS = 2**24


@dataclass(frozen=True)
class Network:
    """The shapes of d perceptrons and the layout of their parameters.

    Attributes
    ----------
    num_variables
        d.
    hidden
        Number of sigmoid units of each hidden layer. Default: one layer of ten (Zheng et al. 2020).

    Raises
    ------
    ConfigError
        If a layer has no unit.
    """

    num_variables: int
    hidden: tuple[int, ...] = (10,)

    def __post_init__(self) -> None:
        if any(width < 1 for width in self.hidden):
            raise ConfigError(f"every hidden layer needs at least one unit, got {self.hidden}")

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of ``A, a``, then weights and biases of every further layer."""
        d = self.num_variables
        widths = (*self.hidden, 1)
        shapes: list[tuple[int, ...]] = [(d, widths[0], d), (d, widths[0])]
        for inputs, units in pairwise(widths):
            shapes += [(d, units, inputs), (d, units)]
        return shapes

    @property
    def first_shape(self) -> tuple[int, ...]:
        """``(d, m, d)``, the shape of the first layer."""
        return self.shapes[0]

    @property
    def first_size(self) -> int:
        """Number of the first layer's weights."""
        return math.prod(self.first_shape)

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    def first(self, theta: FloatArray) -> FloatArray:
        """``(d, m, d)`` view of the first layer."""
        return theta[: self.first_size].reshape(self.first_shape)

    def rest(self, theta: FloatArray) -> FloatArray:
        """View of the rest, flat."""
        return theta[self.first_size :]

    def join(self, first: FloatArray, rest: FloatArray) -> FloatArray:
        """Return the flat vector of a first layer and the rest."""
        return np.concatenate([first.ravel(), rest])

    def squared_norms(self, theta: FloatArray) -> FloatArray:
        """``(d, d)`` squares ``||A_j[:, i]||^2`` at ``[i, j]``: row causes column."""
        first = self.first(theta)
        squares: FloatArray = np.einsum("jui,jui->ij", first, first)
        return squares

    def blocks(self, edges: NDArray[Any]) -> NDArray[Any]:
        """Return ``(d, d)`` values of edges in the shape ``(d, 1, d)`` of first layers."""
        return edges.T[:, None, :]

    @property
    def is_weight(self) -> BoolArray:
        """Mask of the flat vector: weights of any layer, as opposed to biases."""
        parts = [np.full(math.prod(shape), len(shape) == 3) for shape in self.shapes]
        return np.concatenate(parts)

    def initial(self, seed: int) -> FloatArray:
        """Draw the initial parameters, ``(size,)``.

        Weights and biases of a layer are uniform on ``+-1/sqrt(inputs)``, as in the code of Zheng
        et al. All networks, and all inputs of a network, start from the same draw for each hidden
        unit, so that permuting the variables permutes the result. The own input of a network has
        weight 0.
        """
        random = np.random.default_rng(seed)
        parts: list[FloatArray] = []
        bound = 0.0
        for shape in self.shapes:
            one = shape[1:]
            if (
                len(shape) == 3
            ):  # weights; the biases of the layer, which follow, have the same bound
                bound = 1.0 / math.sqrt(shape[2])
                one = shape[1:] if parts else (shape[1], 1)
            parts.append(np.broadcast_to(random.uniform(-bound, bound, one), shape).copy())
        own = np.arange(self.num_variables)
        parts[0][own, :, own] = 0.0
        return np.concatenate([part.ravel() for part in parts])


class SquaredLoss:
    """The loss ``1/(2n) ||X - mlp(X; theta)||_F^2`` of a party's rows X, with its gradient.

    Parameters
    ----------
    rows
        ``(n_k, d)`` rows, centred.
    network
        Shapes of the perceptrons.
    num_rows
        n, the divisor. Default: n_k.
    device
        ``"cpu"``, ``"cuda"`` or ``"cuda:<index>"``.
    precision
        ``"float64"`` or ``"float32"`` arithmetic in torch; arguments and results are float64.
    most_activations
        Limit on the activations of a layer in memory at once. More rows are computed in batches,
        which does not change the result.

    Attributes
    ----------
    network
        See above.
    own_rows
        n_k.
    nbytes
        Bytes of the rows, from which a cache learns the size of this object.

    Raises
    ------
    ConfigError
        If torch is not installed, the device does not exist, or the precision is unknown.
    """

    def __init__(
        self,
        rows: FloatArray,
        network: Network,
        *,
        num_rows: int | None = None,
        device: str = "cpu",
        precision: str = "float64",
        most_activations: int = MOST_ACTIVATIONS,
    ) -> None:
        self._torch = torch = import_torch()
        if precision not in PRECISIONS:
            raise ConfigError(f"precision must be one of {PRECISIONS}, got {precision!r}")
        self.network = network
        self.own_rows = len(rows)
        self.nbytes = rows.nbytes
        self._scale = 1.0 / (len(rows) if num_rows is None else num_rows)
        self._dtype = getattr(torch, precision)
        self._device = checked_device(torch, device)
        widest = network.num_variables * max(*network.hidden, 1, 1)
        batch = max(1, most_activations // widest)
        self._batches = torch.split(self._tensor(rows), batch)

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return the loss and its ``(size,)`` gradient, also for the weights of own inputs."""
        torch = self._torch
        layers = self._layers(theta)
        total = 0.0
        gradient = torch.zeros(len(theta), dtype=self._dtype, device=self._device)
        gradients = self._views(gradient)
        for rows in self._batches:
            activations, output = self._forward(layers, rows)
            residual = output - rows
            total += 0.5 * self._scale * float((residual * residual).sum())
            signal = (self._scale * residual).contiguous()[:, :, None]  # (n, d, units)
            for k in range(len(layers) - 2, 0, -2):
                inputs = activations[k // 2 - 1]
                # (d, units, n) x (d, n, inputs)
                gradients[k] += torch.bmm(signal.permute(1, 2, 0), inputs.transpose(0, 1))
                gradients[k + 1] += signal.sum(0)
                signal = self._back(signal, layers[k], inputs)
            flat = signal.reshape(len(rows), -1)
            gradients[0] += (flat.T @ rows).view(gradients[0].shape)
            gradients[1] += signal.sum(0)
        return total, gradient.cpu().numpy().astype(np.float64)

    def squared_slopes(self, theta: FloatArray) -> FloatArray:
        """Return the mean over the rows of ``(df_j / dx_i)^2`` at ``[i, j]``, ``(d, d)``.

        Unlike the norm of a first layer, it has a unit, that of ``(x_j / x_i)^2``, because it does
        not depend on how the scale is distributed over the layers. The root of its mean over the
        parties, weighted by their rows, is the strength of an edge.
        """
        torch = self._torch
        layers = self._layers(theta)
        first, units = layers[0], layers[0].shape[1]
        d = self.network.num_variables
        second = torch.zeros((d, units, units), dtype=self._dtype, device=self._device)
        for rows in self._batches:
            activations, output = self._forward(layers, rows)
            signal = torch.ones_like(output)[:, :, None]
            for k in range(len(layers) - 2, 0, -2):
                signal = self._back(signal, layers[k], activations[k // 2 - 1])
            # df_j/dx_i = signal_j . A_j[:, i]: its mean square follows from the signals' moments.
            by_target = signal.transpose(0, 1)
            second += torch.bmm(by_target.transpose(1, 2), by_target)
        second /= sum(len(rows) for rows in self._batches)
        squares = torch.einsum("jui,juv,jvi->ij", first, second, first)
        result: FloatArray = squares.cpu().numpy().astype(np.float64)
        return np.maximum(result, 0.0)

    def _tensor(self, values: FloatArray) -> Any:
        contiguous = np.ascontiguousarray(values)
        return self._torch.tensor(contiguous, dtype=self._dtype, device=self._device)

    def _layers(self, theta: FloatArray) -> list[Any]:
        return self._views(self._tensor(theta))

    def _views(self, flat: Any) -> list[Any]:
        sizes = [math.prod(shape) for shape in self.network.shapes]
        parts = self._torch.split(flat, sizes)
        return [part.view(shape) for part, shape in zip(parts, self.network.shapes, strict=True)]

    def _forward(self, layers: list[Any], rows: Any) -> tuple[list[Any], Any]:
        """Return the hidden layers' activations, ``(n, d, units)``, and the output ``(n, d)``."""
        torch = self._torch
        d = self.network.num_variables
        # The first layers of all networks are one matrix product.
        value = torch.addmm(layers[1].reshape(-1), rows, layers[0].reshape(-1, d).T)
        value = value.view(len(rows), d, -1)
        activations = []
        for k in range(2, len(layers), 2):
            activations.append(value.sigmoid_())
            value = torch.bmm(value.transpose(0, 1), layers[k].transpose(1, 2)).transpose(0, 1)
            value = value + layers[k + 1]
        return activations, value.squeeze(2)

    def _back(self, signal: Any, weights: Any, inputs: Any) -> Any:
        """Return the derivatives before a sigmoid layer from those after it, (n, d, units)."""
        if weights.shape[1] == 1:
            passed = signal * weights.squeeze(1)
        else:
            passed = self._torch.bmm(signal.transpose(0, 1), weights).transpose(0, 1)
        return passed * self._torch.addcmul(inputs, inputs, inputs, value=-1)
