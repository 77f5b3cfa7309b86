"""Graphs and models in JSON files."""

from __future__ import annotations

import json
import zlib
from contextlib import contextmanager
from errno import EINVAL
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin
from zipfile import BadZipFile

from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def has_form(value: Any, form: Any) -> bool:
    """Return whether a value of a JSON file is of a type, and what it holds, too.

    Parameters
    ----------
    value : object
    form : type
        Such as ``dict[str, list[int]]`` and ``int | None``; every int is a float.
    """
    if form is Any:
        return True
    kind, inner = get_origin(form) or form, get_args(form)
    if kind is UnionType:
        return any(has_form(value, one) for one in inner)
    if isinstance(value, bool) and kind is not bool:
        return False
    if not isinstance(value, (int, float) if kind is float else kind):
        return False
    held: Any = value.values() if isinstance(value, dict) else value
    return not inner or all(has_form(one, inner[-1]) for one in held)


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
