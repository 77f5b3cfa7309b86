"""Type aliases for NumPy arrays, used in annotations."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
#: Indices into an array.
IndexArray: TypeAlias = NDArray[np.intp]
#: An integer argument or result of a compiled function: a Python int or an entry of an IntArray.
Integer: TypeAlias = int | np.int64
BoolArray: TypeAlias = NDArray[np.bool_]
#: The named arrays of a request or a reply, of any dtype.
Arrays: TypeAlias = dict[str, NDArray[Any]]
