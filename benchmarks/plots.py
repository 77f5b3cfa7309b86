"""Plots in the papers' layout: a panel for each metric, a line for each method, standard errors."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.tables import ERROR_RUNS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.scenario import Scenario
    from benchmarks.tables import MetricTable

WIDTH, HEIGHT = 3.4, 2.8
MARKERS = "osv^D*PX<>"


def write_plots(scenario: Scenario, tables: Sequence[MetricTable], directory: Path) -> list[Path]:
    """Write plot.png and plot.svg, where matplotlib is installed and something varies.

    The scenario's ``[plot]`` names the coordinate ``x`` of the horizontal axis, by default the last
    one, the coordinate ``rows`` that has a row of panels for each value, and ``metrics``.
    """
    chosen = scenario.plot.get("metrics") or scenario.metrics[:3]
    shown = [table for table in tables if table.metric in chosen]
    axes = scenario.axes
    if not (shown and axes) or find_spec("matplotlib") is None:
        return []
    from matplotlib.figure import Figure

    x = scenario.plot.get("x", axes[-1])
    rest = [axis for axis in axes if axis != x]
    row = scenario.plot.get("rows", rest[0] if len(rest) == 1 else "")
    values = list(dict.fromkeys(p.get(row) for p in scenario.grid)) if row else [None]
    figure = Figure(figsize=(WIDTH * len(shown), HEIGHT * len(values) + 0.6), layout="constrained")
    panels = figure.subplots(len(values), len(shown), squeeze=False)
    for i, value in enumerate(values):
        for j, table in enumerate(shown):
            _panel(panels[i, j], table, x, row, value)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small")
    paths = [directory / "plot.png", directory / "plot.svg"]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths


def _panel(panel: Any, table: MetricTable, x: str, row: str, value: Any) -> None:
    """Draw a metric over the coordinate x; the paper's figures are hollow."""
    rows = [(p, entries) for p, entries in table.rows if not row or p.get(row) == value]
    places = list(dict.fromkeys(str(point.get(x)) for point, _ in rows))
    for k, name in enumerate(table.lines):
        marker, colour = MARKERS[k % len(MARKERS)], f"C{k % 10}"
        points = [(places.index(str(p.get(x))), entries[k]) for p, entries in rows]
        ours = [(place, e) for place, e in points if e.runs]
        panel.errorbar(
            [place for place, _ in ours],
            [e.mean for _, e in ours],
            [e.error if e.runs >= ERROR_RUNS else 0.0 for _, e in ours],
            marker=marker,
            color=colour,
            label=name,
            capsize=2,
            markersize=4,
            linewidth=1,
        )
        theirs = [(place, e.paper) for place, e in points if e.paper is not None]
        panel.plot(
            *zip(*theirs, strict=True), marker, color=colour, fillstyle="none"
        ) if theirs else None
    panel.set_xticks(
        range(len(places)), places, rotation=30 if len(max(places, key=len)) > 5 else 0
    )
    panel.set_xlabel(x)
    panel.set_title(f"{table.metric}{f', {row} = {value}' if row else ''}", fontsize="medium")
