"""Result files: the figures of one table as a small CSV file that says how they were made.

A file begins with lines ``# key: value`` (`KEYS`; ``note`` and ``remark`` may stand several times)
and is a CSV table from there on. The means of a scenario have a row for each line and point, and
for each metric the columns ``METRIC``, ``METRIC error`` (standard error) and ``METRIC paper`` (the
paper's own figure). Other tables have the columns that they show. `figures` makes the tables
of the manual from the files of benchmarks/results.
"""

from __future__ import annotations

import csv
import io
import math
import os
import platform
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.baselines import ALWAYS
from benchmarks.scenario import find
from benchmarks.tables import WORLD, Entry, MetricTable, markdown, with_world
from flwr_causal.core.words import markdown_table
from flwr_causal.data.spreadsheet import guarded, unguarded
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from benchmarks.scenario import Point, Scenario

#: What the head of a file says. ``axes`` and ``shown`` (coordinates; the metrics that pages show)
#: stand in files of scenarios only.
KEYS = (
    "name", "title", "paper", "command", "date", "machine", "versions", "seeds", "source",
    "axes", "shown",
)  # fmt: skip
NEEDED = ("name", "title", "command", "date", "machine", "versions", "seeds", "source")
MEASURED = "measured"
#: The columns of a scenario's file that are neither coordinates nor metrics.
COUNTS = ("runs", "failed")
ERROR, PAPER = " error", " paper"
#: Begins the note of lines whose figures are those of an earlier sweep.
EARLIER = "Figures of an earlier sweep: "
#: The line and the coordinates of a figure.
Place: TypeAlias = tuple[str, ...]
#: In the directory of a sweep.
FILE = "figures.csv"
DIGITS = 5


@dataclass(frozen=True)
class FigureTable:
    """A table of figures and how it was made.

    Parameters
    ----------
    head : mapping of str to str
        By `KEYS`.
    columns : tuple of str
    rows : tuple of tuple of str
        As long as ``columns``.
    notes, remarks : tuple of str
        Paragraphs that belong to these figures: what they are of, and what they show.
    """

    head: Mapping[str, str]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name; the file in benchmarks/results is ``NAME.csv``."""
        return self.head["name"]

    def text(self) -> str:
        """Return the content of the file."""
        lines = [f"# {key}: {self.head[key]}" for key in KEYS if key in self.head]
        lines += [f"# note: {note}" for note in self.notes]
        lines += [f"# remark: {remark}" for remark in self.remarks]
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerows([guarded(cell) for cell in row] for row in (self.columns, *self.rows))
        return "\n".join(lines) + "\n" + table.getvalue()

    def metric_tables(self) -> list[MetricTable]:
        """Return a table for each metric of a scenario's file: a row a point, a column a line."""
        axes = _names(self.head["axes"])
        records = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        found = []
        absent = Entry(math.nan, math.nan, 0, 0, None)
        for metric in (name for name in self.columns if name + ERROR in self.columns):
            entries: dict[tuple[str, ...], dict[str, Entry]] = {}
            for record in records:
                place = tuple(record[axis] for axis in axes)
                entries.setdefault(place, {})[record["line"]] = _entry(record, metric)
            lines = [
                line
                for line in dict.fromkeys(record["line"] for record in records)
                if any(line in row and row[line].text("") for row in entries.values())
            ]
            rows: tuple[tuple[Point, tuple[Entry, ...]], ...] = tuple(
                (
                    dict(zip(axes, place, strict=True)),
                    tuple(row.get(line, absent) for line in lines),
                )
                for place, row in entries.items()
            )
            found.append(MetricTable(metric, axes, tuple(lines), rows))
        return found

    def markdown(self) -> str:
        """Return its tables as Markdown; of a scenario, a table for each metric that is shown."""
        if "axes" not in self.head:
            return markdown_table(self.columns, self.rows)
        shown = _names(self.head["shown"])
        tables = [
            table
            for table in with_world(self.metric_tables())
            if table.metric in (*shown, WORLD) and table.lines
        ]
        return "\n\n".join(f"`{table.metric}`\n\n{markdown(table)}" for table in tables)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _entry(record: Mapping[str, str], metric: str) -> Entry:
    mean, error, paper = (record[metric + what] for what in ("", ERROR, PAPER))
    return Entry(
        float(mean or "nan"),
        float(error or "nan"),
        int(record["runs"]) if mean else 0,
        int(record["failed"]),
        float(paper) if paper else None,
    )


def read(path: Path) -> FigureTable:
    """Return the result in a file.

    Raises
    ------
    DataError
        If the head lacks a key or has an unknown one, or a row has another number of columns.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    length = next((k for k, line in enumerate(lines) if not line.startswith("# ")), len(lines))
    head: dict[str, str] = {}
    texts: dict[str, list[str]] = {"note": [], "remark": []}
    for line in lines[:length]:
        key, _, value = line[2:].partition(": ")
        if key in texts:
            texts[key].append(value)
        elif key in KEYS:
            head[key] = value
        else:
            raise DataError(f"{path}: '{key}' is no key of a result file. Keys: {', '.join(KEYS)}")
    absent = [key for key in NEEDED if not head.get(key)]
    if absent:
        raise DataError(f"{path}: the head lacks {', '.join(absent)}: add a line '# KEY: VALUE'")
    table = [tuple(map(unguarded, row)) for row in csv.reader(lines[length:])]
    if not table or any(len(row) != len(table[0]) for row in table):
        raise DataError(f"{path}: all rows must have as many columns as the first one")
    return FigureTable(
        head, table[0], tuple(table[1:]), tuple(texts["note"]), tuple(texts["remark"])
    )


def summary(
    scenario: Scenario,
    records: Sequence[dict[str, Any]],
    tables: Sequence[MetricTable],
    runs: int,
    command: str,
) -> FigureTable:
    """Return the means of a sweep as a result.

    Parameters
    ----------
    scenario : Scenario
    records : sequence of dict
        The finished cells.
    tables : sequence of MetricTable
        Their means by metric.
    runs : int
    command : str
        What computes them.
    """
    lines = tuple(dict.fromkeys(line for table in tables for line in table.lines))
    metrics = [table.metric for table in tables]
    rows = []
    for number, point in enumerate(scenario.grid):
        for line in lines:
            entries = {
                table.metric: table.rows[number][1][table.lines.index(line)]
                for table in tables
                if line in table.lines
            }
            # Also without figures, so that points and lines keep their order.
            counts = (max((getattr(e, c) for e in entries.values()), default=0) for c in COUNTS)
            own = [line, *(str(point.get(axis, "")) for axis in scenario.axes)]
            found = [cell for name in metrics for cell in _cells(entries.get(name))]
            rows.append((*own, *map(str, counts), *found))
    titles = [metric + what for metric in metrics for what in ("", ERROR, PAPER)]
    paper = ", ".join(text for text in (scenario.paper, scenario.table) if text)
    head = {
        "name": scenario.name,
        "title": scenario.title + (f" (scale {scenario.scale:g})" if scenario.scale < 1 else ""),
        **({"paper": paper} if paper else {}),
        "command": command,
        "date": _span(records, "date"),
        "machine": "; ".join(_values(records, "machine")),
        "versions": ", ".join(
            sorted({f"{k} {v}" for record in records for k, v in record["versions"].items()})
        ),
        "seeds": f"seed {scenario.seed} of the scenario, runs 0 to {runs - 1}",
        "source": MEASURED,
        "axes": ",".join(scenario.axes),
        "shown": ",".join(scenario.plot.get("metrics") or scenario.metrics[:3]),
    }
    notes = (scenario.notes,) if scenario.notes else ()
    return FigureTable(head, ("line", *scenario.axes, *COUNTS, *titles), tuple(rows), notes)


def _cells(entry: Entry | None) -> list[str]:
    if entry is None:
        return ["", "", ""]
    values = (entry.mean, entry.error, math.nan if entry.paper is None else entry.paper)
    return ["" if math.isnan(value) else f"{value:.{DIGITS}g}" for value in values]


def _values(records: Sequence[dict[str, Any]], key: str) -> list[str]:
    return sorted({record.get(key) or "not recorded" for record in records})


def _span(records: Sequence[dict[str, Any]], key: str) -> str:
    """Return the first and the last of the values."""
    values = _values(records, key)
    return " to ".join(dict.fromkeys((values[0], values[-1]))) if values else "not recorded"


def machine() -> str:
    """Return what this machine is: processor, number of cores, system."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        processor = text.partition("model name")[2].partition(":")[2].partition("\n")[0].strip()
    except OSError:
        processor = platform.processor()
    return f"{processor or platform.machine()}, {os.cpu_count()} cores, {platform.system()}"


def adopted(path: Path, folder: Path, machine: str = "") -> Path:
    """Copy the result of a sweep, or of another measurement, into a folder of results.

    Points of lines that the sweep has and did not compute keep the figures of the file that is
    there, with a note of their command and date.

    Parameters
    ----------
    path : Path
        A result file, or the directory of a sweep.
    folder : Path
    machine : str, optional
        Replaces what the file says of the machine.

    Raises
    ------
    DataError
        If there is no result file, or its head lacks a key.
    """
    file = path / FILE if path.is_dir() else path
    if not file.exists():
        raise DataError(
            f"{path} holds no {FILE}: run `flwr-causal reproduce NAME --output-dir "
            f"{shlex.quote(str(path))}` again, which keeps finished cells"
        )
    result = read(file)
    if machine:
        result = replace(result, head={**result.head, "machine": machine})
    target = folder / f"{result.name}.csv"
    if target.exists() and "axes" in result.head:
        result = with_earlier(result, read(target), find(result.name))
    target.write_text(result.text(), encoding="utf-8")
    return target


def with_earlier(result: FigureTable, earlier: FigureTable, scenario: Scenario) -> FigureTable:
    """Return a result with the figures of an earlier one that it did not compute, and the paper's.

    Parameters
    ----------
    result, earlier : FigureTable
        Of the same scenario.
    scenario : Scenario
        Lines and points that it no longer has are left out.
    """
    axes = scenario.axes
    if _names(earlier.head.get("axes", "")) != axes:
        return result
    new = {_place(row, axes): row for row in _records(result)}
    ran = {place for place, row in new.items() if int(row["runs"]) or int(row["failed"])}
    known = [line.label for line in scenario.lines] + list(ALWAYS)
    points = [tuple(str(point.get(axis, "")) for axis in axes) for point in scenario.grid]
    old = {
        place: row
        for row in _records(earlier)
        if (place := _place(row, axes))[0] in known
        and place[1:] in points
        and place not in ran
        and int(row["runs"])
    }
    columns = tuple(dict.fromkeys((*result.columns, *earlier.columns)))
    stated = [one.line for one in scenario.figures]
    rows = []
    for point, place in zip(scenario.grid, points, strict=True):
        for line in dict.fromkeys((*known, *stated)):
            row = old.get((line, *place)) or new.get((line, *place))
            figures = _stated(scenario, line, point)
            if row is None and figures:
                row = dict(zip(("line", *axes, *COUNTS), (line, *place, "0", "0"), strict=True))
            if row is not None:
                rows.append(tuple((row | figures).get(column, "") for column in columns))
    notes = (*result.notes, *_sources(earlier, list(old), ran))
    return replace(result, columns=columns, rows=tuple(rows), notes=notes)


def _stated(scenario: Scenario, line: str, point: Point) -> dict[str, str]:
    """Return the paper's own figures of a line at a point, by column."""
    values = {metric: scenario.figure(line, point, metric) for metric in scenario.metrics}
    return {
        f"{metric}{PAPER}": f"{value:.{DIGITS}g}"
        for metric, value in values.items()
        if value is not None
    }


def _sources(earlier: FigureTable, kept: Sequence[Place], ran: Collection[Place]) -> list[str]:
    """Return the notes that say how earlier figures were made.

    A line whose figures are not all of one source is named with the coordinates of its points.

    Parameters
    ----------
    earlier : FigureTable
    kept, ran : sequence of tuple
        Line and coordinates of its figures, and of those that the new sweep computed.
    """
    notes = [
        note.removeprefix(EARLIER).rpartition(": `")
        for note in earlier.notes
        if note.startswith(EARLIER)
    ]
    head = f"`{earlier.head['command']}`, {earlier.head['date']}."
    sources = {
        place: next(
            (f"`{source}" for labels, _, source in notes if _named(place, labels.split("; "))), head
        )
        for place in kept
    }
    by_line: dict[str, set[str]] = {}
    for place in (*kept, *ran):
        by_line.setdefault(place[0], set()).add(sources.get(place, ""))
    labels: dict[str, dict[str, None]] = {}
    for place, source in sources.items():
        label = place[0] if len(by_line[place[0]]) == 1 else _label(place)
        labels.setdefault(source, {})[label] = None
    return [f"{EARLIER}{'; '.join(own)}: {source}" for source, own in labels.items()]


def _label(place: Place) -> str:
    return f"{place[0]} ({', '.join(place[1:])})"


def _named(place: Place, labels: Sequence[str]) -> bool:
    return place[0] in labels or _label(place) in labels


def _records(result: FigureTable) -> list[dict[str, str]]:
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def _place(row: Mapping[str, str], axes: Sequence[str]) -> Place:
    return (row["line"], *(row[axis] for axis in axes))
