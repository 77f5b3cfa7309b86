"""What fitted linear systems have in common, with lags or without: checks, density, columns, file.

A system here is a frozen dataclass with ``names``, ``weights`` among the d variables (a DAG) and
``noise_variances``, beside other arrays of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.checked_arrays import distinct_names
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FloatArray = NDArray[np.float64]


def freeze_parameters(system: Any, kind: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check a system's parameters and replace its arrays by read-only float64 copies.

    Parameters
    ----------
    system : dataclass
        With ``names``, ``weights`` and ``noise_variances`` among its fields.
    kind : str
        What messages call it, such as ``"linear model"``.
    shapes : mapping of str to tuple of int
        The shape of every array.

    Raises
    ------
    DataError
        If names repeat, an array has another shape or an entry that is no finite number, a noise
        variance is negative, or the weights have a directed cycle.
    """
    object.__setattr__(system, "names", distinct_names(system.names))
    for field, shape in shapes.items():
        given = getattr(system, field)
        expected = (
            f"{field} of a {kind} of {len(system.names)} variables must be finite numbers of shape "
            f"{shape}"
        )
        try:
            array = np.array(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{expected} ({error})") from error
        if array.shape != shape:
            raise DataError(f"{expected}, got shape {array.shape}")
        if not np.isfinite(array).all():
            place = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
            raise DataError(f"{expected}, got {array[place]} at {place}")
        array.flags.writeable = False
        object.__setattr__(system, field, array)
    if (system.noise_variances < 0).any():
        raise DataError("noise variances must not be negative")
    if not is_acyclic(system.weights):
        raise DataError(f"the weights of a {kind} must form a DAG, they have a cycle")


def log_density(residuals: FloatArray, variances: FloatArray, names: Sequence[str]) -> FloatArray:
    """Gaussian log density of each row, ``(n,)``, from the noise terms ``(n, d)``.

    The noise terms are independent and ``det(I - W) = 1`` for an acyclic W, so that the density of
    a row is the product of those of its noise terms.

    Raises
    ------
    DataError
        If a variable has no noise, so that there is no density.
    """
    silent = [name for name, variance in zip(names, variances, strict=True) if variance == 0]
    if silent:
        raise DataError(f"no density: the variables {silent} have zero noise variance")
    terms = -0.5 * (np.log(2 * np.pi * variances) + residuals**2 / variances)
    return np.asarray(terms.sum(axis=1), dtype=np.float64)


def named_columns(data: Any, wanted: Sequence[str], names: Sequence[str]) -> FloatArray:
    """Columns ``wanted`` of a frame (by name), or of an array whose columns are ``names``.

    Raises
    ------
    DataError
        If columns are missing or hold something else than numbers.
    """
    if hasattr(data, "columns"):
        present = [str(column) for column in data.columns]
        missing = [name for name in wanted if name not in present]
        if missing:
            raise DataError(f"the data lack the variables {missing}")
        return _numbers(data.iloc[:, [present.index(name) for name in wanted]])
    X = _numbers(data)
    if X.ndim != 2 or X.shape[1] != len(names):
        raise DataError(f"an array of {len(names)} columns was expected, got shape {X.shape}")
    return X[:, [names.index(name) for name in wanted]]


def save_parameters(path: str | Path, form: str, system: Any, fields: Sequence[str]) -> None:
    """Write the names and the arrays ``fields`` of a system as JSON; numbers survive exactly."""
    content = {"format": form, "names": list(system.names)}
    content |= {field: getattr(system, field).tolist() for field in fields}
    Path(path).write_text(json.dumps(content), encoding="utf-8")


def load_parameters(
    path: str | Path, form: str, kind: str, fields: Sequence[str]
) -> dict[str, Any]:
    """Read what :func:`save_parameters` wrote: ``names`` and ``fields``, not checked yet.

    Raises
    ------
    DataError
        If the file is no JSON, of another format, or lacks a field.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error})") from error
    if not isinstance(content, dict) or content.get("format") != form:
        raise DataError(f"{path} does not hold a {kind} of this version ({form})")
    wanted = ("names", *fields)
    missing = [field for field in wanted if field not in content]
    if missing:
        raise DataError(f"{path} holds a {kind} without {', '.join(missing)}: save it again")
    return {field: content[field] for field in wanted}


def _numbers(values: Any) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"the data are not all numbers ({error})") from error
