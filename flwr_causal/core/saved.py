"""Graphs and models in JSON files."""

from __future__ import annotations

import json
import zlib
from contextlib import contextmanager
from errno import EINVAL
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Never,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from zipfile import BadZipFile

from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: What is raised where a damaged file is read, by json, zipfile, numpy, pandas, and by what uses
#: values of another form than those that were written. No error of this package is among it.
DAMAGE: tuple[type[Exception], ...] = (
    *(OSError, EOFError, BadZipFile, zlib.error, RuntimeError, MemoryError),
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
)


class UnwritableError(ConfigError):
    """A file that cannot be written.

    Parameters
    ----------
    kind : str
        What was to be written.
    path : Path
    reason : str
    """

    def __init__(self, kind: str, path: Path, reason: str) -> None:
        super().__init__(
            f"The {kind} cannot be written to '{path}' ({reason}): give another file, or free the "
            "disk."
        )
        self.reason = reason


@contextmanager
def writing(path: str | Path, kind: str) -> Iterator[Path]:
    """Write a file of a ``kind`` of objects, in a folder that is made if needed.

    Raises
    ------
    UnwritableError
        If it cannot be written.
    """
    place = Path(path)
    try:
        if "\0" in str(place):
            raise OSError(EINVAL, "its name holds a zero byte")
        place.parent.mkdir(parents=True, exist_ok=True)
        yield place
    except OSError as error:
        raise UnwritableError(kind, place, error.strerror or str(error)) from error


def write_record(path: str | Path, kind: str, content: Mapping[str, Any]) -> None:
    """Write a JSON file of a ``kind`` of objects, see :func:`read_record`.

    Raises
    ------
    UnwritableError
        If it cannot be written.
    """
    with writing(path, kind) as file:
        file.write_text(json.dumps(content), encoding="utf-8")


@contextmanager
def undamaged(path: str | Path, what: str) -> Iterator[None]:
    """Turn what a damaged file raises inside into an error that names the file.

    Parameters
    ----------
    path : str or Path
    what : str
        What the file holds, such as "a damaged model".

    Raises
    ------
    DataError
        In place of one of :data:`DAMAGE`.
    """
    try:
        yield
    except DAMAGE as error:
        raise DataError(f"{path} holds {what} ({error}): save it again") from error


def read_json(path: str | Path, kind: str) -> dict[str, Any]:
    """Return what a JSON file of a ``kind`` of objects holds.

    Raises
    ------
    DataError
        If there is no such file, or it holds no JSON object.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"no {kind} at {path}: check the path") from None
    except DAMAGE as error:
        raise DataError(f"{path} is not JSON ({error}): give a file made by save()") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} does not hold a {kind}: give a file made by save()")
    return content


def misplaced(value: Any, form: Any, place: str = "") -> str:
    """Return the first place in a value of a JSON file that is of another type, and the type.

    Parameters
    ----------
    value : object
    form : type
        Such as ``dict[str, list[int]]``, ``int | None``, and a ``TypedDict``, beside whose keys
        there may be others. Every int is a float, a tuple is a list of its length, and
        ``dict[str, Never]`` an empty one.
    place : str, default ""
        Where the value stands.

    Returns
    -------
    str
        Such as "failures[2].party is no text"; empty if there is none.
    """
    if form is Any:
        return ""
    kind, inner = get_origin(form) or form, get_args(form)
    if kind is UnionType:
        found = [misplaced(value, one, place) for one in inner]
        # Of a value whose own type is one of them, what it holds is wrong.
        return "" if "" in found else max(found, key=_depth)
    table = is_typeddict(kind)
    plain: Any = dict if table else (int, float) if kind is float else kind
    plain = list if kind is tuple else plain
    is_bool = isinstance(value, bool) and kind is not bool
    if kind is Never or is_bool or not isinstance(value, plain):
        return f"{place} is {_NO.get(dict if table else kind, 'of another form')}"
    parts: Iterable[tuple[str, Any, Any]] = ()
    held: Any = value
    if table:
        lacking = kind.__required_keys__ - held.keys()
        if lacking:
            return f"{place}.{min(lacking)} is missing".lstrip(".")
        own = _entries(kind)
        parts = ((f".{name}", held[name], own[name]) for name in own if name in held)
    elif kind is tuple:
        if len(held) != len(inner):
            return f"{place} is no list of {len(inner)}"
        parts = ((f"[{k}]", *both) for k, both in enumerate(zip(held, inner, strict=True)))
    elif isinstance(value, dict) and inner:
        parts = ((f".{key}", one, inner[-1]) for key, one in held.items())
    elif inner:
        parts = ((f"[{key}]", one, inner[-1]) for key, one in enumerate(held))
    wrong = (misplaced(one, form, f"{place}{step}".lstrip(".")) for step, one, form in parts)
    return next(filter(None, wrong), "")


def _depth(place: str) -> int:
    """Return how many steps a message's place has."""
    return place.count(".") + place.count("[")


@cache
def _entries(kind: type) -> dict[str, Any]:
    """Return the types of the entries of a ``TypedDict``."""
    return get_type_hints(kind)


_NO = {
    str: "no text",
    int: "no whole number",
    float: "no number",
    bool: "neither true nor false",
    list: "no list",
    tuple: "no list",
    dict: "no table of names and values",
    NoneType: "not null",
}


def read_record(path: str | Path, kind: str, form: str) -> dict[str, Any]:
    """Return what a JSON file holds under ``format = form``.

    Raises
    ------
    DataError
        As :func:`read_json`, or if it holds no ``kind`` of this format.
    """
    content = read_json(path, kind)
    if content.get("format") != form:
        raise DataError(f"{path} does not hold a {kind} of this version ({form})")
    return content
