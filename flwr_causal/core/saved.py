"""Models in JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flwr_causal.errors import DataError


def read_record(path: str | Path, kind: str, form: str) -> dict[str, Any]:
    """Return what a JSON file holds under ``format = form``.

    Raises
    ------
    DataError
        If the file is not JSON, or holds no ``kind`` of this format.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error})") from error
    if not isinstance(content, dict) or content.get("format") != form:
        raise DataError(f"{path} does not hold a {kind} of this version ({form})")
    return content
