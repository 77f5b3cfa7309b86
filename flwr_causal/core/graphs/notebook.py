"""HTML of graphs and results, as notebooks show them: tables and pictures, without scripts."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A table in a notebook has at most so many edges.
MOST_EDGES = 15


def section(title: str, content: str) -> str:
    """Return HTML content under a title; the title is plain text."""
    return f"<div><p><b>{escape(title)}</b></p>{content}</div>"


def preformatted(text: str) -> str:
    """Return plain text as HTML that keeps its lines."""
    return f"<pre>{escape(text)}</pre>"


def picture(svg: str) -> str:
    """Return an SVG drawing as an image; ids in it cannot clash with those of other drawings."""
    data = b64encode(svg.encode("utf-8")).decode("ascii")
    style = "max-width: 100%; background: white"
    return (
        f'<img alt="drawing of the graph" style="{style}" src="data:image/svg+xml;base64,{data}">'
    )


def edge_table(edges: Sequence[tuple[str, str, str, float]]) -> str:
    """Return a table of the first edges, given as ``(cause, mark, effect, weight)``."""
    rows = [(cause, mark, effect, f"{weight:+.3g}") for cause, mark, effect, weight in edges]
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows[:MOST_EDGES]
    )
    rest = len(rows) - MOST_EDGES
    more = f"<p>and {rest} more edges</p>" if rest > 0 else ""
    head = "<tr><th>cause</th><th></th><th>effect</th><th>weight</th></tr>"
    return f"<table>{head}{lines}</table>{more}" if rows else ""
