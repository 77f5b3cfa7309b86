"""HTML of graphs and results, as notebooks show them: tables and pictures, without scripts."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A table in a notebook has at most so many rows.
MOST_ROWS = 15


def section(title: str, content: str) -> str:
    """Return HTML content under a title; the title is plain text."""
    return f"<div><p><b>{escape(title)}</b></p>{content}</div>"


def preformatted(text: str) -> str:
    """Return plain text as HTML that keeps its lines."""
    return f"<pre>{escape(text)}</pre>"


def picture(svg: str, caption: str) -> str:
    """Return an SVG drawing as an image; ids in it cannot clash with those of other drawings."""
    data = b64encode(svg.encode("utf-8")).decode("ascii")
    style = "max-width: 100%; background: white"
    return (
        f'<p>{escape(caption)}</p><img alt="drawing of the graph" style="{style}" '
        f'src="data:image/svg+xml;base64,{data}">'
    )


def edge_table(edges: Sequence[tuple[str, str, str, float]]) -> str:
    """Return a table of the first edges, given as ``(cause, mark, effect, weight)``."""
    rows = [(cause, mark, effect, f"{weight:+.3g}") for cause, mark, effect, weight in edges]
    return table(("cause", "", "effect", "weight"), rows, "edges")


def table(head: Sequence[str], rows: Sequence[Sequence[str]], what: str) -> str:
    """Return a table of the first rows of plain texts; ``what`` names those left out."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    rest = len(rows) - MOST_ROWS
    more = f"<p>and {rest} more {what}</p>" if rest > 0 else ""
    return f"<table><tr>{titles}</tr>{lines}</table>{more}" if rows else ""
