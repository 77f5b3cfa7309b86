"""The array types that annotations name."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
#: Positions, as numpy indexes with them.
IndexArray: TypeAlias = NDArray[np.intp]
#: An integer of Python or out of an IntArray: what compiled functions take and return.
Integer: TypeAlias = int | np.int64
BoolArray: TypeAlias = NDArray[np.bool_]
ByteArray: TypeAlias = NDArray[np.uint8]
#: Named arrays of any type, as exchanges carry them.
Arrays: TypeAlias = dict[str, NDArray[Any]]
