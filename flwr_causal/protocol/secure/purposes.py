"""What a key, a mask, a seal or a digest is for: 32 bytes that two different purposes never share.

A purpose is made of fields. Each is encoded with its type and its length in front, so that no
field can be taken for a part of another one, nor a number for a text.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Field: TypeAlias = (
    "bool | int | float | str | bytes | NDArray[Any] | Sequence[Any] | Mapping[str, Any] | None"
)

PURPOSE_BYTES = 32
_LENGTH_BYTES = 8


def purpose_of(label: str, *fields: Field) -> bytes:
    """Return the purpose of a label and fields, 32 bytes.

    Parameters
    ----------
    label : str
        What the key, mask, seal or digest is; each use of keys has its own.
    *fields : bool, int, float, str, bytes, ndarray, sequence, mapping or None
        What it is bound to. Of an array also its type and shape count, of a mapping not the order.

    Raises
    ------
    TypeError
        If a field is of another type.
    """
    return hashlib.blake2b(_encoded([label, *fields]), digest_size=PURPOSE_BYTES).digest()


def _encoded(field: Field) -> bytes:
    kind, content = _parts(field)
    return kind + len(content).to_bytes(_LENGTH_BYTES, "big") + content


def _parts(field: Field) -> tuple[bytes, bytes]:
    """Return the type of a field, one byte, and its content."""
    plain = _PLAIN.get(type(field)) or _PLAIN.get(_plain_type(field))
    if plain is not None:
        return plain[0], plain[1](field)
    if isinstance(field, np.ndarray) and field.dtype.kind in "fiubcSU":
        values = field.astype(field.dtype.newbyteorder("<"), order="C", copy=False)
        return b"a", _encoded([values.dtype.str, [*values.shape], values.tobytes()])
    if isinstance(field, Mapping):
        return b"m", b"".join(_encoded(name) + _encoded(field[name]) for name in sorted(field))
    if isinstance(field, Sequence):
        return b"l", b"".join(map(_encoded, field))
    raise TypeError(f"a purpose has no field of the type {type(field).__name__}")


def _plain_type(field: Field) -> type:
    """Return of which plain type a field is, such as numpy's own numbers."""
    return next((own for own in _PLAIN if isinstance(field, own)), object)


# A truth value is an int for Python: it comes first.
_PLAIN: dict[type, tuple[bytes, Callable[[Any], bytes]]] = {
    type(None): (b"n", lambda field: b""),
    bool: (b"b", lambda field: bytes([field])),
    int: (b"i", lambda field: str(field).encode()),
    float: (b"f", lambda field: struct.pack(">d", field)),
    str: (b"s", lambda field: field.encode(errors="surrogatepass")),
    bytes: (b"y", bytes),
}
