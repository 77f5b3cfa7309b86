"""Einsum networks as arrays, for files and for the wire.

All arrays are finite float64, also those of whole numbers, as the wire takes them. What float32
holds float64 holds exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.tensors.evaluation import TensorParameters
from flwr_causal.core.circuits.tensors.layout import TensorLayout
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray


def parameter_arrays(parameters: TensorParameters) -> dict[str, FloatArray]:
    """Return the parameters alone: means, variances, probabilities, root and ``layer.0``, ..."""
    tensors = parameters._asdict()
    layers = tensors.pop("layers")
    tensors |= {f"layer.{level}": weights for level, weights in enumerate(layers)}
    return {name: one.detach().cpu().numpy().astype(np.float64) for name, one in tensors.items()}


def parameters_from(layout: TensorLayout, arrays: Mapping[str, NDArray[Any]]) -> TensorParameters:
    """Return the parameters that `parameter_arrays` wrote.

    Raises
    ------
    DataError
        If an array is missing, has another shape than the layout asks for, or does not hold
        probabilities (within 1e-4, for rounding) or variances.
    """
    try:
        means = arrays["means"]
        k = means.shape[2] if len(layout.numbers) else arrays["probabilities"].shape[2]
        expected: dict[str, tuple[int, ...]] = {
            "means": (len(layout.numbers), layout.replicas, k),
            "variances": (len(layout.numbers), layout.replicas, k),
            "probabilities": (len(layout.states), layout.replicas, k),
            "root": (layout.num_classes, layout.replicas),
        }
        for level in range(layout.depth):
            regions = 2 ** (layout.depth - 1 - level)
            own = layout.num_classes if regions == 1 else k
            expected[f"layer.{level}"] = (regions, layout.replicas, own, k, k)
        for name, shape in expected.items():
            if arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
                raise DataError(f"{name} must be finite and of the shape {shape}")
        _check_sums(layout, {name: arrays[name] for name in expected})
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"these are no parameters of an Einsum network ({error})") from error
    layers = tuple(layout.tensor(arrays[f"layer.{level}"]) for level in range(layout.depth))
    means, variances, probabilities, root = (
        layout.tensor(arrays[name]) for name in ("means", "variances", "probabilities", "root")
    )
    return TensorParameters(means, variances, probabilities, layers, root)


def _check_sums(layout: TensorLayout, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise a DataError where probabilities or variances are none."""
    totals = [arrays["root"].sum()]
    totals += [arrays[f"layer.{level}"].sum(axis=(3, 4)) for level in range(layout.depth)]
    totals += [arrays["probabilities"][states].sum(axis=0) for states in layout.states_of]
    least = min([0.0] + [one.min() for name, one in arrays.items() if name != "means" and one.size])
    if least < 0 or any(np.abs(total - 1.0).max() > 1e-4 for total in totals):
        raise DataError("weights and probabilities must not be negative, and sum to 1")
    if (arrays["variances"] <= 0).any():
        raise DataError("variances must be above 0")


def to_arrays(layout: TensorLayout, parameters: TensorParameters) -> dict[str, FloatArray]:
    """Return structure and parameters; the names are the same for any depth."""
    arrays = parameter_arrays(parameters)
    layers = [arrays.pop(f"layer.{level}").ravel() for level in range(layout.depth)]
    target = -1 if layout.target is None else layout.target
    return arrays | {
        "layers": np.concatenate(layers),
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
        flat, k = arrays["layers"], arrays["means"].shape[2]
        layers = {}
        for level in range(layout.depth):
            regions_above = 2 ** (layout.depth - 1 - level)
            sums = layout.num_classes if regions_above == 1 else k
            shape = (regions_above, layout.replicas, sums, k, k)
            size = int(np.prod(shape))
            layers[f"layer.{level}"], flat = flat[:size].reshape(shape), flat[size:]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"this is no Einsum network ({error}): write it again") from error
    return layout, parameters_from(layout, {**arrays, **layers})
