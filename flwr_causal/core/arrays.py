"""Types of arrays, and forms of square matrices."""

from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
#: Indices into an array.
IndexArray: TypeAlias = NDArray[np.intp]
#: An integer argument or result of a compiled function: a Python int or an entry of an IntArray.
Integer: TypeAlias = int | np.int64
BoolArray: TypeAlias = NDArray[np.bool_]
#: The named arrays of a request or a reply, of any dtype.
Arrays: TypeAlias = dict[str, NDArray[Any]]
Entry = TypeVar("Entry", bound=np.generic)


def frozen_floats(values: ArrayLike) -> FloatArray:
    """Return a read-only float64 copy, of which rows lie one after the other in memory.

    Sums and products of matrices round otherwise in another order in memory. Files hold rows: with
    this order a model computes the same before it is saved and after it is loaded.
    """
    array = np.array(values, dtype=np.float64, order="C")
    array.flags.writeable = False
    return array


def upper_triangles(matrices: FloatArray) -> FloatArray:
    """Return the upper triangles of symmetric matrices (..., d, d), (..., d (d + 1) / 2)."""
    rows, columns = np.triu_indices(matrices.shape[-1])
    return matrices[..., rows, columns]


def symmetric(triangles: FloatArray, d: int) -> FloatArray:
    """Return the matrices (..., d, d) of :func:`upper_triangles`."""
    rows, columns = np.triu_indices(d)
    matrices = np.empty((*triangles.shape[:-1], d, d))
    matrices[..., rows, columns] = triangles
    matrices[..., columns, rows] = triangles
    return matrices


def to_square(stacked: NDArray[Entry]) -> NDArray[Entry]:
    """Pad ``(m, d)`` weights, or a mask, with columns of zeros to ``(m, m)``."""
    m, d = stacked.shape
    return np.pad(stacked, ((0, 0), (0, m - d)))
