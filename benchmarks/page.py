"""One HTML page of a sweep: tables, plot, and what was left out; it needs no network."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from benchmarks.tables import LEGEND, MetricTable, heading, with_world

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.scenario import Scenario

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: 13px }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem; text-align: left }
th, td { white-space: nowrap }
thead th { border-bottom: 2px solid #444 } svg { max-width: 100%; height: auto }
@media (prefers-color-scheme: dark) {
  body { background: #16181c; color: #ddd } svg { background: #fff }
}
"""


def write_page(
    scenario: Scenario,
    tables: Sequence[MetricTable],
    notes: Sequence[str],
    runs: int,
    directory: Path,
) -> Path:
    """Write index.html."""
    parts = [f"<h1>{escape(scenario.name)}</h1>", f"<p>{escape(heading(scenario, runs))}</p>"]
    parts += [f"<p>{escape(scenario.notes)}</p>"] if scenario.notes else []
    plot = directory / "plot.svg"
    if plot.exists():
        text = plot.read_text(encoding="utf-8")
        parts.append(text[text.index("<svg") :])
    parts.append(f"<p>{escape(LEGEND)}</p>")
    for table in with_world(tables):
        parts.append(f"<h2>{escape(table.metric)}</h2><div class=wide>{_table(table)}</div>")
    parts += [f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>"] if notes else []
    head = f"<meta charset=utf-8><title>{escape(scenario.name)}</title><style>{STYLE}</style>"
    view = '<meta name=viewport content="width=device-width">'
    path = directory / "index.html"
    body = "\n".join(parts)
    path.write_text(f"<!doctype html><html lang=en>{head}{view}<body>{body}</body></html>", "utf-8")
    return path


def _table(table: MetricTable) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in (*table.axes, *table.lines))
    rows = []
    for point, entries in table.rows:
        cells = [*(str(point.get(axis, "")) for axis in table.axes), *(e.text() for e in entries)]
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
