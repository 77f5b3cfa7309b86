"""What the docstrings of dataclasses say of their fields, and docstrings made from it."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import fields
from functools import cache
from typing import Any

# A section of a docstring in numpy style begins with its title, underlined.
SECTION = re.compile(r"\n([A-Z]\w+)\n-{3,}\n")
_WIDTH = 96


def meaning(owner: type, name: str) -> str:
    """Return a field's description in the docstring of a dataclass or its bases, in Markdown."""
    for base in owner.__mro__:
        text = _documented(base).get(name, "")
        if text and not text.startswith("See "):
            return text
    return ""


@cache
def _documented(owner: type) -> dict[str, str]:
    """Return the parameters of a numpy-style docstring with their descriptions."""
    doc = inspect.cleandoc(owner.__doc__ or "")
    found = re.search(r"^Parameters\n-+\n(.*?)(?:^\w+\n-+\n|\Z)", doc, re.M | re.S)
    entries: dict[str, str] = {}
    for head, body in re.findall(r"^(\S.*)\n((?:(?: .*)?\n?)*)", found[1] if found else "", re.M):
        text = " ".join(body.split())
        text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text).replace("``", "`")
        entries |= {name.strip(): text for name in head.partition(" : ")[0].split(",")}
    return entries


def with_parameters(doc: str, owner: type, first: type) -> str:
    """Return the docstring of a class with the fields of a dataclass as its parameters.

    Parameters
    ----------
    doc : str
        Of the class; its own section "Parameters" is replaced.
    owner : type
        The dataclass; what its constructor takes is what that of the class takes.
    first : type
        A base of the dataclass, whose fields are listed last.
    """
    text, *sections = SECTION.split(inspect.cleandoc(doc))
    others = dict(zip(sections[::2], sections[1::2], strict=True))
    others.pop("Parameters", None)
    shared = {one.name for one in fields(first)}
    listed = sorted(
        inspect.signature(owner).parameters.values(), key=lambda one: one.name in shared
    )
    entries = [
        f"{one.name} : {_shown(one.annotation)}, default {one.default!r}\n"
        + _filled(meaning(owner, one.name))
        for one in listed
    ]
    titled = {"Parameters": "\n".join(entries), **others}
    parts = [f"{title}\n{'-' * len(title)}\n{part.strip()}" for title, part in titled.items()]
    return "\n\n".join([text.strip(), *parts]) + "\n"


@cache  # most options are those of several methods
def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")


def _shown(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
