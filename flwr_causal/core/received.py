"""Arrays and texts that others have packed: no more is allocated than the bytes hold.

A few bytes may state a large size. Each reader compares the stated sizes with the bytes that are
there, or with a limit, before anything of these sizes is made; all raise a ValueError otherwise.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
import zlib
from functools import lru_cache
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.format import read_array_header_1_0

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays

#: How the format of numpy's files begins, in the version of all arrays of numbers.
_MAGIC = b"\x93NUMPY\x01\x00"
#: Kinds of entries that are read: truth values, numbers, texts.
_KINDS = "biufcU"
#: An array without entries may state any shape: this is its largest size along an axis.
MOST_EMPTY = 1_000_000


def array_of(data: bytes) -> NDArray[Any]:
    """Return the array of a buffer in numpy's file format, as a view of the buffer."""
    start = _end_of_header(data)
    shape, fortran_order, dtype = _header(data[8:start])
    _check_size(shape, dtype, len(data) - start)
    flat = np.frombuffer(data, dtype, offset=start)
    return flat.reshape(shape, order="F" if fortran_order else "C")


def arrays_of(data: bytes, most: int) -> Arrays:
    """Return the arrays of an NPZ file.

    Parameters
    ----------
    data : bytes
    most : int
        The most bytes that all arrays together may take, once they are no longer compressed.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = file.infolist()
            size = sum(one.file_size for one in members)
            if size > most:
                raise ValueError(f"it states {size} bytes, at most {most} are read")
            names = [one.filename for one in members]
            if len(set(names)) < len(names):
                raise ValueError("it holds a name twice")
            return {one.filename.removesuffix(".npy"): _member(file, one) for one in members}
    except (
        *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError),
        *(EOFError, OverflowError, MemoryError),
    ) as error:
        raise ValueError(f"it is no NPZ file ({error})") from error


def _member(file: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Return one array; its header is compared with the stated size before the rest is read."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"'{member.filename}' is compressed in another way than numpy does")
    with file.open(member) as stream:
        head = stream.read(10)
        start = _end_of_header(head)
        head += stream.read(start - 10)
        shape, _, dtype = _header(head[8:start])
        _check_size(shape, dtype, member.file_size - start)
        # A size is given: without one, more may be unpacked at a time than the member states.
        return array_of(head + stream.read(member.file_size - start))


def _end_of_header(data: bytes) -> int:
    if data[:8] != _MAGIC or len(data) < 10:
        raise ValueError("it is not in numpy's file format")
    return 10 + int.from_bytes(data[8:10], "little")


# A header is parsed once: that takes longer than to read a small array.
@lru_cache(maxsize=256)
def _header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        shape, fortran_order, dtype = read_array_header_1_0(io.BytesIO(data))
    except (TokenError, SyntaxError, TypeError, RecursionError, MemoryError, EOFError) as error:
        raise ValueError(f"its header cannot be read: {error}") from error
    if dtype.kind not in _KINDS:
        raise ValueError(f"an array of {dtype} cannot travel")
    return shape, fortran_order, dtype


def _check_size(shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> None:
    """Refuse a shape whose entries do not take exactly so many bytes."""
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"it states the shape {shape} of {dtype}, but holds {size} bytes")
    if not size and max(shape) > MOST_EMPTY:
        raise ValueError(f"it has no entries, but states the shape {shape}")


def json_of(text: str) -> Any:
    """Return the values of a JSON text; NaN and infinite numbers are refused."""
    try:
        return _JSON.decode(text)
    except RecursionError:
        raise ValueError("its lists are nested too deeply") from None


def _refused(name: str) -> float:
    raise ValueError(f"it holds {name}, which is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"it holds {text}, which is too large a number")
    return value


_JSON = json.JSONDecoder(parse_constant=_refused, parse_float=_finite)
