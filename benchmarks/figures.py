"""The tables of figures on the pages of the manual, from the result files of benchmarks/results.

A page has lines that stand for tables, which the manual's build puts there (tools/manual.py):
``<!-- results PATTERN ... -->`` for the results whose names fit one of the patterns, ``<!-- table
NAME -->`` for a table without its title and its text, ``<!-- worlds PATTERN ... -->`` for one that
shows where each method breaks, ``<!-- paper NAME -->`` for the figures and tables of a paper, as
results/papers.toml lists them, ``<!-- evidence KIND -->`` for the rows of results/evidence.toml of
one `Evidence.kind`, and ``<!-- comparison NAME -->`` for a table of texts,
results/comparisons/NAME.csv, which was measured without a scenario; its lines ``# note: ...`` say
how.

``flwr-causal reproduce NAME --output-dir DIR`` writes ``DIR/figures.csv``: means, standard errors,
numbers of runs, the paper's figures, and in its head command, date, machine, versions, seeds. A
sweep may be divided over machines: copy their directories ``cells`` into one and give the command
again, which computes only what is missing. ``python -m benchmarks adopt DIR ...`` copies the files
to benchmarks/results/NAME.csv. Points of lines that the sweep did not compute keep their figures,
with a note of their command; a line whose settings change needs another label. ``--machine TEXT``
replaces the files' entry of the machine. A result whose name fits no line of a page is reported.
Further lines ``# note: ...`` and ``# remark: ...`` in the head of a file are shown above and below
its table, and go when the file is replaced.
"""

import csv
import fnmatch
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import scenario
from benchmarks.results import FigureTable, read
from benchmarks.tables import ERROR_RUNS, Entry, MetricTable
from flwr_causal.app.methods import OWN_METHODS
from flwr_causal.core.words import markdown_table
from flwr_causal.errors import DataError

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"
PAPERS = RESULTS / "papers.toml"
EVIDENCE = RESULTS / "evidence.toml"
COMPARISONS = RESULTS / "comparisons"
NOTE = "# note: "
MARK = re.compile(r"^<!-- (results|table|worlds|paper|evidence|comparison) ([^>]+) -->$", re.M)
# The methods in the table of worlds; of those that return an equivalence class the errors of that.
OWN = {
    "moments": "shd",
    "moments, class": "cpdag_shd",
    "moments, GES": "cpdag_shd",
    "moments, states as 0 and 1": "cpdag_shd",
    "NOTEARS-ADMM": "shd",
    "fedcausal": "shd",
    "lingam": "shd",
    "sort-by-variance": "shd",
}
#: Columns of the table of worlds that hold several lines.
SAME = {"moments, states as 0 and 1": "moments, class"}
#: More errors for each variable than this are a failure.
BREAKS = 0.5
WORST = 3
#: The line of what the programs of the papers' authors found.
PROGRAM = "authors' program"


def results(folder: Path = RESULTS) -> dict[str, FigureTable]:
    """Return the results by name."""
    found = {path.stem: read(path) for path in sorted(folder.glob("*.csv"))}
    for name, result in found.items():
        if name != result.name:
            raise ValueError(f"{name}.csv says that its name is '{result.name}': rename the file")
    return found


def fitting(patterns: str, names: Iterable[str]) -> list[str]:
    """Return the names that fit patterns, in the order of the patterns."""
    found = [name for pattern in patterns.split() for name in fnmatch.filter(names, pattern)]
    return list(dict.fromkeys(found))


def section(result: FigureTable) -> str:
    """Return a result with its title and its text."""
    head = result.head
    paper = (
        f"After {head['paper']}; the paper's own figures in brackets." if "paper" in head else ""
    )
    texts = [f"### {head['title']}", paper, *result.notes, result.markdown(), *result.remarks]
    return "\n\n".join(filter(None, texts))


def source(result: FigureTable, folder: str) -> str:
    """Return how a result was made, with a link to its file in a folder."""
    head = result.head
    return (
        f"<small>`{head['command']}`; {head['date']}; {head['machine']}; "
        f"{head['versions']}; {head['seeds']}. [File]({folder}/{result.name}.csv)</small>"
    )


def errors_of(shown: list[FigureTable]) -> dict[str, dict[str, float]]:
    """Return the errors for each variable, by world and method; means over the sizes."""
    found: dict[str, dict[str, float]] = {}
    for result in shown:
        rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
        kept = [row for row in rows if row["line"] in OWN and row[OWN[row["line"]]]]
        each: dict[tuple[str, str], list[float]] = {}
        for row in kept:
            world = row.get("kind") or row.get("mechanisms")
            world = world or f"interventions, known: {row['known']}"
            errors = float(row[OWN[row["line"]]]) / float(row["num_variables"])
            each.setdefault((world, SAME.get(row["line"], row["line"])), []).append(errors)
        for (world, line), values in each.items():
            found.setdefault(world, {})[line] = sum(values) / len(values)
    return found


def worlds(shown: list[FigureTable]) -> str:
    """Return the table of `errors_of`, failures in bold, and the worst of them."""
    found = errors_of(shown)
    lines = [line for line in OWN if any(line in errors for errors in found.values())]
    table = []
    for world, errors in found.items():
        cells = (errors.get(line) for line in lines)
        texts = ("" if e is None else f"**{e:.2f}**" if e > BREAKS else f"{e:.2f}" for e in cells)
        table.append((world, *texts))
    own = [
        (value, line, world)
        for world, errors in found.items()
        for line, value in errors.items()
        if not line.startswith("sort-")
    ]
    last = reversed(sorted(own)[-WORST:])
    worst = "; ".join(f"{line} with {world} ({value:.1f})" for value, line, world in last)
    return f"{markdown_table(('world', *lines), table)}\n\nThe worst of our own: {worst}."


#: Runs of a point from which their number is not written beside it: most papers have ten.
PAPER_RUNS = 10
#: By metric, how the better of two values is found; others have no better one.
BETTER: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("shd", "cpdag_shd", "smhd", "lagged_shd", "own_shd"), min),
    **dict.fromkeys(("missing", "wrong_causes"), min),
    **dict.fromkeys(("tpr", "local_tpr", "auroc", "auprc", "binary_auroc", "adjacency_f1"), max),
    **dict.fromkeys(("log_likelihood", "accuracy", "macro_f1"), max),
}


def experiments() -> dict[str, list[dict[str, Any]]]:
    """Return what the papers show, by paper: an entry a figure or table, or a part of one."""
    found: dict[str, list[dict[str, Any]]] = tomllib.loads(PAPERS.read_text(encoding="utf-8"))
    return found


def paper_table(entries: list[dict[str, Any]], found: Mapping[str, FigureTable]) -> str:
    """Return the table of a paper: what it shows, and what was measured here."""
    head = (
        "in the paper", "measure", "command", "runs", "the paper",
        "the paper's algorithm", "ours by default", "best other", "exchanges; CPU seconds",
        "remark",
    )  # fmt: skip
    return markdown_table(head, (_experiment(entry, found) for entry in entries))


def _experiment(entry: dict[str, Any], found: Mapping[str, FigureTable]) -> tuple[str, ...]:
    remark, paper = entry.get("remark", ""), entry.get("paper", "")
    if "scenario" not in entry:
        return (entry["of"], "", "", "", paper, "", "", "", "", remark)
    name, metric = entry["scenario"], entry["metric"]
    command = f"flwr-causal reproduce {name}"
    every: list[MetricTable] = []
    if name in found:
        # All lines that a point of the page compares, also those of an earlier sweep.
        command = found[name].head["command"].partition(" --methods")[0]
        every = found[name].metric_tables()
    tables = [one for one in every if one.metric == metric]
    lines = [entry[key] for key in ("algorithm", "default") if key in entry]
    measured = [_measured(tables, line, entry) for line in lines]
    counts = sorted({count for _, some in measured for count in some})
    theirs = [_stated(entry, lines[0]) or paper]
    program = entry.get("program", PROGRAM)
    if (len(lines) > 1 or "program" in entry) and (found_by_it := _stated(entry, program)):
        theirs.append(f"{program}: {found_by_it}")
    cells = [
        # A line that ran may not have this metric.
        text or ("none" if _measured(every, line, entry)[0] else "not run yet")
        for line, (text, _) in zip(lines, measured, strict=True)
    ]
    return (
        entry["of"],
        f"`{metric}`" + (f" by `{entry['axis']}`" if "axis" in entry else ""),
        f"`{command}`",
        " to ".join(map(str, dict.fromkeys((*counts[:1], *counts[-1:])))),
        "; ".join(filter(None, theirs)),
        *[*cells, ""][:2],
        _best_other(tables, entry),
        _price(every, lines, entry),
        remark,
    )


def _points(
    tables: Iterable[MetricTable], entry: dict[str, Any]
) -> Iterator[tuple[Mapping[str, Any], dict[str, Entry]]]:
    """Return the points of an entry, with what was found there, by line."""
    for table in tables:
        for point, entries in table.rows:
            if _here(point, entry):
                yield point, dict(zip(table.lines, entries, strict=True))


def _best_of_others(entry: dict[str, Any], found: Mapping[str, Entry]) -> str:
    """Return the best line at a point that is none of ours; "" without one.

    Baselines, other programs, the field's methods, sorting by variance or R2: without the baseline
    that is chosen by the truth, and with the lines of ours that an entry names in ``also``.
    """
    ours = {
        one.label
        for one in scenario.find(entry["scenario"]).lines
        if one.name == "best" or (one.kind == "method" and one.name in OWN_METHODS)
    } - set(entry.get("also", ()))
    choose = BETTER.get(entry["metric"])
    ran = sorted(line for line, one in found.items() if one.runs and line not in ours)
    return choose(ran, key=lambda line: found[line].mean) if choose and ran else ""


def _best_other(tables: list[MetricTable], entry: dict[str, Any]) -> str:
    """Return the best line that is none of ours, by point."""
    best = (
        (point, label, lines)
        for point, lines in _points(tables, entry)
        if (label := _best_of_others(entry, lines))
    )
    return _listed(((point, f"{one} {_shown(lines[one])}") for point, one, lines in best), entry)


def _price(every: list[MetricTable], lines: Sequence[str], entry: dict[str, Any]) -> str:
    """Return exchanges and CPU seconds of the algorithm and of ours, at the last common point."""
    prices = []
    for line in lines:
        each = [_last(every, line, metric, entry, lines) for metric in ("exchanges", "cpu_seconds")]
        prices.append("; ".join(filter(None, each)))
    return " | ".join(filter(None, prices))


def _last(
    every: list[MetricTable],
    line: str,
    metric: str,
    entry: dict[str, Any],
    beside: Sequence[str] = (),
) -> str:
    """Return a line's mean of a metric at the last of an entry's points, at which others ran too.

    Without such a point, at the last point of this line.
    """
    tables = (one for one in every if one.metric == metric)
    ran = [lines for _, lines in _points(tables, entry) if _ran(lines, line)]
    common = [lines for lines in ran if all(_ran(lines, other) for other in beside)]
    return f"{(common or ran)[-1][line].mean:.3g}" if ran else ""


def _ran(lines: Mapping[str, Entry], line: str) -> bool:
    return line in lines and lines[line].runs > 0


class Evidence(NamedTuple):
    """A row of evidence.toml: a line of our methods and the best line that is none of them.

    ``by`` is how much ours is better, in the unit of the metric, and negative where it is worse;
    ``error`` is its standard error, NaN where one of the lines has a single run.
    """

    entry: dict[str, Any]
    ours: Entry
    label: str
    other: Entry
    by: float
    error: float
    exchanges: str
    cpu: str

    @property
    def kind(self) -> str:
        """Return "ahead" (by two standard errors), "none" (nobody finds the graph), or "behind"."""
        if self.entry.get("fails"):
            return "none"
        return "ahead" if self.by > 2 * self.error else "behind"


def evidence(found: Mapping[str, FigureTable]) -> list[Evidence]:
    """Return the rows of evidence.toml with their figures."""
    rows = []
    for entry in tomllib.loads(EVIDENCE.read_text(encoding="utf-8"))["row"]:
        every = found[entry["scenario"]].metric_tables()
        ((_, lines),) = _points((one for one in every if one.metric == entry["metric"]), entry)
        label, ours = _best_of_others(entry, lines), lines[entry["ours"]]
        other = lines[label]
        by = (other.mean - ours.mean) * (1 if BETTER[entry["metric"]] is min else -1)
        price = [_last(every, entry["ours"], one, entry) for one in ("exchanges", "cpu_seconds")]
        error = math.hypot(ours.error, other.error)
        rows.append(Evidence(entry, ours, label, other, by, error, *price))
    return rows


def evidence_table(rows: Sequence[Evidence]) -> str:
    """Return the table of some rows of `evidence`."""
    head = ("world", "measure", "ours", "best other", "ours better by", "exchanges", "CPU s", "")
    table = []
    for row in rows:
        entry, few = row.entry, min(row.ours.runs, row.other.runs) < ERROR_RUNS
        table.append(
            (
                entry["world"],
                f"`{entry['metric']}`",
                f"{entry['ours']}: {_shown(row.ours, math.inf)}",
                f"{row.label}: {_shown(row.other, math.inf)}",
                f"{row.by:.3g}" if few else f"{row.by:.3g} ± {row.error:.2g}",
                row.exchanges,
                row.cpu,
                f"[all lines]({entry['page']}.md)",
            )
        )
    return markdown_table(head, table)


def _shown(entry: Entry, enough: float = PAPER_RUNS) -> str:
    """Return a mean and its error, with the number of runs where there are not enough."""
    text = entry._replace(paper=None).text("")
    few = entry.runs and entry.runs < enough and "[n=" not in text
    return f"{text} [n={entry.runs}]" if few else text


def _here(point: Mapping[str, Any], entry: dict[str, Any]) -> bool:
    """Return whether an entry is of a point; result files hold coordinates as text."""
    at = {
        key: value if isinstance(value, list) else [value]
        for key, value in entry.get("at", {}).items()
    }
    return all(str(point.get(key)) in map(str, values) for key, values in at.items())


def _listed(values: Iterable[tuple[Mapping[str, Any], str]], entry: dict[str, Any]) -> str:
    """Return texts behind their coordinates; coordinates without a text are left out."""
    axis = entry.get("axis")
    texts = [(f"{point[axis]}: " if axis else "") + text for point, text in values if text]
    return "; ".join(dict.fromkeys(texts))


def _measured(tables: list[MetricTable], line: str, entry: dict[str, Any]) -> tuple[str, list[int]]:
    """Return a line's means and errors at an entry's points, and the numbers of runs."""
    rows = [(point, lines[line]) for point, lines in _points(tables, entry) if line in lines]
    texts = [(point, _shown(one)) for point, one in rows]
    return _listed(texts, entry), [one.runs for _, one in rows if one.runs]


def _stated(entry: dict[str, Any], line: str) -> str:
    """Return the paper's figures of a line at an entry's points."""
    one = scenario.find(entry["scenario"])
    values = ((point, one.figure(line, point, entry["metric"])) for point in one.grid)
    texts = [(p, "" if v is None else f"{v:g}") for p, v in values if _here(p, entry)]
    return _listed(texts, entry)


def comparison(name: str) -> str:
    """Return a table of benchmarks/results/comparisons, as its file has it."""
    path = COMPARISONS / f"{name}.csv"
    if not path.exists():
        raise DataError(f"benchmarks/results/comparisons has no '{name}.csv'")
    lines = path.read_text(encoding="utf-8").splitlines()
    notes = [line.removeprefix(NOTE) for line in lines if line.startswith(NOTE)]
    head, *rows = csv.reader(lines[len(notes) :])
    return "\n\n".join([*notes, markdown_table(head, rows)])


def with_tables(page: str, found: Mapping[str, FigureTable], folder: str = "results") -> str:
    """Return the text of a page with its tables, which link to the files in a folder.

    Raises
    ------
    DataError
        If no result fits a pattern, or papers.toml, evidence.toml or the comparisons do not have
        the name.
    """

    def table(match: re.Match[str]) -> str:
        kind, names = match.groups()
        if kind == "paper":
            if names not in experiments():
                raise DataError(f"'{match[0]}': papers.toml has no '{names}'")
            return paper_table(experiments()[names], found)
        if kind == "comparison":
            return comparison(names)
        if kind == "evidence":
            if not (rows := [row for row in evidence(found) if row.kind == names]):
                raise DataError(f"'{match[0]}': evidence.toml has no '{names}'")
            return evidence_table(rows)
        if absent := [name for name in names.split() if not fitting(name, found)]:
            raise DataError(f"'{match[0]}': no file of benchmarks/results fits {absent[0]}")
        shown = [found[name] for name in fitting(names, found)]
        if kind == "worlds":
            return worlds(shown)
        texts = (one.markdown() if kind == "table" else section(one) for one in shown)
        sources = (source(one, folder) for one in shown)
        return "\n\n".join(f"{text}\n\n{made}" for text, made in zip(texts, sources, strict=True))

    return MARK.sub(table, page)


def not_shown(found: Iterable[str]) -> list[str]:
    """Return the results that no page shows."""
    pages = [path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))]
    marks = [match for text in pages for match in MARK.finditer(text)]
    shown = [
        fitting(names, found)
        for kind, names in (mark.groups() for mark in marks)
        if kind in ("results", "table")
    ]
    return [name for name in found if not any(name in some for some in shown)]
