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
    kind, content_of = _FORMS.get(type(field)) or _form(type(field))
    content = content_of(field)
    return kind + len(content).to_bytes(_LENGTH_BYTES, "big") + content


def _form(own: type) -> tuple[bytes, Callable[[Any], bytes]]:
    """Return the sign of a type, one byte, and what gives a field's content."""
    for known, form in _FORMS.items():
        if issubclass(own, known):
            return form
    raise TypeError(f"a purpose has no field of the type {own.__name__}")


def _of_array(array: NDArray[Any]) -> bytes:
    if array.dtype.kind not in "fiubcSU":
        raise TypeError(f"a purpose has no field of the type {array.dtype}")
    values = array.astype(array.dtype.newbyteorder("<"), copy=False)
    kind = f"{values.dtype.kind}{values.dtype.itemsize}{values.shape}"
    return _encoded(kind) + _encoded(values.tobytes())


def _of_mapping(mapping: Mapping[str, Any]) -> bytes:
    return b"".join([_encoded(name) + _encoded(mapping[name]) for name in sorted(mapping)])


def _of_sequence(sequence: Sequence[Any]) -> bytes:
    return b"".join([_encoded(one) for one in sequence])


# The first that fits: a truth value is an int for Python, a text a sequence.
_FORMS: dict[type, tuple[bytes, Callable[[Any], bytes]]] = {
    type(None): (b"n", lambda field: b""),
    bool: (b"b", lambda field: bytes([field])),
    int: (b"i", lambda field: str(field).encode()),
    float: (b"f", lambda field: struct.pack(">d", field)),
    str: (b"s", lambda field: field.encode(errors="surrogatepass")),
    bytes: (b"y", bytes),
    np.ndarray: (b"a", _of_array),
    Mapping: (b"m", _of_mapping),
    Sequence: (b"l", _of_sequence),
}
