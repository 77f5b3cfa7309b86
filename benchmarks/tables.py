"""Tables of a sweep: CSV and Parquet of all cells, Markdown and LaTeX of means."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.scores import OF_WORLD
from flwr_causal.core.words import markdown_table
from flwr_causal.data.spreadsheet import write_csv

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.scenario import Point, Scenario

#: Fewest runs whose standard error is shown; of fewer the tables say how many there were.
ERROR_RUNS = 5
#: Digits after the point where a mean is at least so large.
DIGITS = ((100, 0), (10, 1), (1, 2), (0, 3))
#: Below it a number has an exponent: as 0.000 an h of 1e-11 would look like one of 0.
SMALL = 5e-4


#: The table of the metrics in `OF_WORLD`.
WORLD = "world"
LEGEND = (
    "Mean ± standard error of the runs, from five runs up; of fewer the mean and their number, "
    "[n=2]. The paper's own figure in brackets."
)


class Entry(NamedTuple):
    """One entry of a table.

    Parameters
    ----------
    mean, error : float
        Mean over the runs and its standard error; NaN without runs, the error with a single one.
    runs, failed : int
        Finished runs with and without the metric.
    paper : float or None
        The paper's figure.
    """

    mean: float
    error: float
    runs: int
    failed: int
    paper: float | None

    def text(self, dash: str = "-", plus_minus: str = "±") -> str:
        """Return mean ± standard error, of fewer than `ERROR_RUNS` their number (the paper's)."""
        words = []
        if self.runs:
            words.append(_number(self.mean, self.mean))
            if self.runs < ERROR_RUNS:
                words.append(f"[n={self.runs}]")
            elif not math.isnan(self.error):
                words.append(f"{plus_minus} {_number(self.error, self.mean)}")
        if self.paper is not None:
            words.append(f"({self.paper:g})")
        if self.failed:
            words.append(f"[{self.failed} failed]")
        return " ".join(words) or dash


def _number(value: float, size: float) -> str:
    if 0 < abs(size) < SMALL:
        return f"{value:.1e}"
    digits = next(digits for least, digits in DIGITS if abs(size) >= least or least == 0)
    return f"{value:.{digits}f}"


class MetricTable(NamedTuple):
    """The means of one metric: a row for each point, a column for each line."""

    metric: str
    axes: tuple[str, ...]
    lines: tuple[str, ...]
    rows: tuple[tuple[Point, tuple[Entry, ...]], ...]


def long_table(records: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Return one row for each cell: line, coordinates, run, seed, metrics, error, versions."""
    rows = []
    for record in records:
        own = {k: record[k] for k in ("scenario", "line", "run", "seed", "scale", "error")}
        versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
        rows.append({**own, **record["point"], **record["metrics"], "versions": versions})
    return pd.DataFrame(rows)


def metric_tables(scenario: Scenario, records: Sequence[dict[str, Any]]) -> list[MetricTable]:
    """Return a table for each metric that any cell, or the paper, has."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        cells.setdefault((record["line"], _key(record["point"])), []).append(record)
    own = [line.label for line in scenario.lines]
    found = []
    for metric in (*scenario.metrics, *OF_WORLD):
        papers = [f.line for f in scenario.figures if metric in f.values and f.line not in own]
        lines = tuple(dict.fromkeys([*own, *papers]))
        rows = tuple(
            (
                p,
                tuple(
                    _entry(cells.get((n, _key(p)), []), metric, scenario.figure(n, p, metric))
                    for n in lines
                ),
            )
            for p in scenario.grid
        )
        used = [any(_is_shown(r[1][i], metric) for r in rows) for i in range(len(lines))]
        if any(used):
            kept = [i for i, one in enumerate(used) if one]
            rows = tuple((point, tuple(entries[i] for i in kept)) for point, entries in rows)
            found.append(MetricTable(metric, scenario.axes, tuple(lines[i] for i in kept), rows))
    return found


def _is_shown(entry: Entry, metric: str) -> bool:
    """Return whether an entry says anything; lines that describe no data have none of that."""
    if metric in OF_WORLD:
        return entry.runs > 0
    return entry.runs > 0 or entry.failed > 0 or entry.paper is not None


def _key(point: Point) -> str:
    return repr(sorted(point.items()))


def _entry(records: Sequence[dict[str, Any]], metric: str, paper: float | None) -> Entry:
    values = [record["metrics"][metric] for record in records if metric in record["metrics"]]
    finite = np.array([value for value in values if not math.isnan(value)])
    failed = sum(bool(record["error"]) for record in records)
    runs = 0 if failed == len(records) else len(finite)
    error = float(finite.std(ddof=1) / math.sqrt(len(finite))) if runs > 1 else math.nan
    return Entry(float(finite.mean()) if runs else math.nan, error, runs, failed, paper)


def with_world(found: Sequence[MetricTable]) -> list[MetricTable]:
    """Return the tables as they are shown: what describes the data is one table, the last."""
    shown = [table for table in found if table.metric not in OF_WORLD]
    world = [table for table in found if table.metric in OF_WORLD and len(table.lines) == 1]
    if not world:
        return shown
    entries = zip(*([entry for _, (entry,) in table.rows] for table in world), strict=True)
    points = [point for point, _ in world[0].rows]
    lines = tuple(table.metric for table in world)
    return [
        *shown,
        MetricTable(WORLD, world[0].axes, lines, tuple(zip(points, entries, strict=True))),
    ]


def markdown(table: MetricTable) -> str:
    """Return a table of means in Markdown."""
    rows = [
        [*(str(point.get(axis, "")) for axis in table.axes), *(e.text() for e in entries)]
        for point, entries in table.rows
    ]
    return markdown_table([*table.axes, *table.lines], rows)


def latex(table: MetricTable, caption: str) -> str:
    r"""Return a table as LaTeX for the package booktabs, to be read by ``\input``."""
    columns = "l" * len(table.axes) + "r" * len(table.lines)
    head = " & ".join(_escaped(name) for name in (*table.axes, *table.lines))
    body = []
    for point, entries in table.rows:
        cells = [_escaped(str(point.get(axis, ""))) for axis in table.axes]
        cells += [e.text("--", r"$\pm$") for e in entries]
        body.append(" & ".join(cells) + r" \\")
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escaped(caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            head + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _escaped(text: str) -> str:
    for character in "\\&%$#_{}":
        text = text.replace(
            character, rf"\{character}" if character != "\\" else r"\textbackslash "
        )
    return text


def heading(scenario: Scenario, runs: int) -> str:
    """Return the heading of a table: title, paper, scale, runs."""
    words = [scenario.title]
    if scenario.paper:
        words.append(f"{scenario.paper}{', ' + scenario.table if scenario.table else ''}")
    least = f" (at least {scenario.least_rows} rows a party)" if scenario.scale < 1 else ""
    words.append(f"{runs} run{'s' * (runs != 1)}, scale {scenario.scale:g}{least}")
    return "; ".join(words)


def write_tables(
    scenario: Scenario,
    records: Sequence[dict[str, Any]],
    notes: Sequence[str],
    runs: int,
    directory: Path,
) -> list[Path]:
    """Write results.csv, results.parquet where pyarrow is there, tables.md and tables.tex."""
    frame, tables = long_table(records), metric_tables(scenario, records)
    write_csv(frame, directory / "results.csv")
    paths = [directory / "results.csv"]
    if find_spec("pyarrow") is not None and len(frame):
        frame.to_parquet(directory / "results.parquet", index=False)
        paths.append(directory / "results.parquet")
    title = heading(scenario, runs)
    blocks = [f"# {scenario.name}: {title}", *([scenario.notes] if scenario.notes else [])]
    blocks += [LEGEND]
    blocks += [f"## {table.metric}\n\n{markdown(table)}" for table in with_world(tables)]
    blocks += ["\n".join(f"- {note}" for note in notes)] if notes else []
    (directory / "tables.md").write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    texts = [latex(table, f"{title}: {table.metric}.") for table in tables]
    (directory / "tables.tex").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return [*paths, directory / "tables.md", directory / "tables.tex"]
