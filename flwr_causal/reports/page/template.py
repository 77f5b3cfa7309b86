"""Filling the page's template: one HTML file with all scripts, styles and data inside."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from importlib import resources
from pathlib import Path
from typing import Any

from flwr_causal.core.files import new_directory, write
from flwr_causal.errors import ConfigError
from flwr_causal.runtime.checkpoint import check_page

LIBRARIES = ("dagre.min.js",)
_SCRIPTS = ("drawing.js", "graph.js", "plots.js", "page.js")
_TEMPLATE, _STYLE = "page.html", "page.css"


def write_page(payload: dict[str, Any], path: str | Path) -> Path:
    """Write the page that shows a payload; return the file.

    Raises
    ------
    ConfigError
        If the file cannot be written, is there and no such page, or the package lacks the page's
        files.
    """
    target = Path(path)
    text = rendered(payload)
    try:
        check_page(target)
        new_directory(target.parent)
        write(target, text)
    except OSError as error:
        raise ConfigError(
            f"The page cannot be written to '{target}' ({error.strerror or error}): give another "
            "file, or free the disk."
        ) from error
    return target


def rendered(payload: dict[str, Any]) -> str:
    """Return the text of the page.

    The page forbids the browser every request, and every script but its own, whatever names the
    data contain.
    """
    scripts = [_asset(f"libraries/{name}") for name in LIBRARIES]
    scripts += [_asset(name) for name in _SCRIPTS]
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(payload["title"]),
        "style": _asset(_STYLE),
        "data": embedded(payload),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    # One pass: what is filled in is not read again.
    first, *rest = _asset(_TEMPLATE).split("{{")
    pieces = [first]
    for piece in rest:
        name, _, after = piece.partition("}}")
        pieces += [parts[name], after]
    return "".join(pieces)


def embedded(value: Any) -> str:
    """Return JSON in which no text can end the script element that contains it.

    Numbers that are not finite become null.
    """
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _asset(name: str) -> str:
    """Return the text of a file of this package; read when needed, see `Run.report`."""
    try:
        return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"The file '{name}' of the page is missing: an app bundle of Flower holds no such "
            "files. Make the page where flwr-causal is installed: flwr-causal report DIRECTORY"
        ) from None
