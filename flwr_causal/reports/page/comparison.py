"""The page that compares runs: the edges in which they agree, and those in which they differ."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any

from flwr_causal.core.words import counted
from flwr_causal.reports.changes import changes
from flwr_causal.reports.edges import compared
from flwr_causal.reports.page.disagreement import COLUMNS, disagreement_rows
from flwr_causal.reports.page.effects import CAPTION, effect_rows
from flwr_causal.reports.page.fit import DOUBTS, doubt_rows
from flwr_causal.reports.page.graph import graph_payload
from flwr_causal.reports.result import lost_in_words
from flwr_causal.reports.trust import fit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.reports.result import RunResult

Block = dict[str, Any]


def comparison_payload(
    names: Sequence[str], runs: Sequence[RunResult], graphs: Sequence[CausalGraph]
) -> dict[str, Any]:
    """Return the content of the page that compares runs, see :mod:`flwr_causal.reports.page`.

    Parameters
    ----------
    names : sequence of str
        What the page calls the runs.
    runs : sequence of Run
    graphs : sequence of CausalGraph
        Theirs, over the same variables.

    Raises
    ------
    DataError
        If the graphs have different variables.
    """
    pairs = compared(graphs)
    differing = [pair for pair in pairs if pair.differs]
    plain = [
        graph_payload(graph.reordered(graphs[0].names), None, None)["edges"] for graph in graphs
    ]
    agreed = counted(len(pairs) - len(differing), "common edge")
    heading = f"{agreed}, {counted(len(differing), 'pair')} of variables that differ"
    doubts = [doubt_rows(run) for run in runs]
    disagreements = [disagreement_rows(run) for run in runs]
    sections = [
        ("runs", "The runs", [_runs(names, runs, graphs)]),
        ("differences", "Edges by run", [_pairs(names, graphs, pairs)] if pairs else []),
        ("changes", "What else differs", _changes(names, runs, graphs)),
        ("effects", "Effects by run", _effects(names, runs)),
        ("doubts", "Doubtful edges", _by_run("The most doubtful edges", DOUBTS, names, doubts)),
        (
            "parties",
            "Parties that differ",
            _by_run("What differs at single parties", [*COLUMNS.values()], names, disagreements),
        ),
    ]
    return {
        "title": f"comparison of {counted(len(runs), 'run')}: {heading}",
        "heading": heading,
        "question": f"Which edges do {counted(len(runs), 'run')} agree on? The graph shows the "
        "edges that all of them have; lower the share of the runs to see those that only some "
        "have. Weights are means over the runs that have the edge.",
        "graph": _united(graphs[0].names, plain) | {"unsigned": any(r.unsigned for r in runs)},
        "first": [],
        "sections": [
            {"id": name, "title": title, "blocks": blocks}
            for name, title, blocks in sections
            if blocks
        ],
    }


def _united(names: tuple[str, ...], edges_by_run: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the graph of the edges of all runs, with the share of the runs that have each."""
    found: dict[tuple[int, int, int, str], list[float]] = {}
    for edges in edges_by_run:
        for edge in edges:
            if edge["found"]:
                key = edge["cause"], edge["effect"], edge["lag"], edge["mark"]
                found.setdefault(key, []).append(edge["weight"])
    united = [
        {
            "cause": cause,
            "effect": effect,
            "lag": lag,
            "mark": mark,
            "found": True,
            "weight": sum(weights) / len(weights),
            "runs": len(weights) / len(edges_by_run),
        }
        for (cause, effect, lag, mark), weights in found.items()
    ]
    return {
        "names": list(names),
        "kind": "summary",
        "lags": max((lag for _, _, lag, _ in found), default=0),
        "edges": united,
        "counts": {},
        "share": {"key": "runs", "name": "share of the runs", "least": 1},
    }


def _runs(names: Sequence[str], runs: Sequence[RunResult], graphs: Sequence[CausalGraph]) -> Block:
    rows = [
        [
            name,
            run.config.get("method"),
            len(run.parties),
            run.total_rows,
            lost_in_words(run) or None,
            run.rounds,
            graph.num_edges + graph.num_lagged_edges,
            len(run.warnings),
            None if (fit := fit_of(run)) is None else fit.summary(),
            run.metrics.get("shd"),
        ]
        for name, run, graph in zip(names, runs, graphs, strict=True)
    ]
    columns = ["run", "method", "parties", "rows", "not of all parties", "exchanges", "edges"]
    columns += ["warnings", "fit", "SHD"]
    known = [any(row[k] is not None for row in rows) for k in range(len(columns))]
    return {
        "kind": "table",
        "caption": "Runs",
        "columns": list(compress(columns, known)),
        "rows": [list(compress(row, known)) for row in rows],
    }


def _pairs(names: Sequence[str], graphs: Sequence[CausalGraph], pairs: Sequence[Any]) -> Block:
    """Return a row for each pair of variables, with edge, weight and confidence by run."""
    confident = [graph.confidence is not None for graph in graphs]
    columns = ["differs"]
    for name, known in zip(names, confident, strict=True):
        columns += [f"{name}: edge", f"{name}: weight"]
        columns += [f"{name}: confidence"] if known else []
    rows = []
    for pair in sorted(pairs, key=lambda pair: not pair.differs):
        row: list[Any] = ["yes" if pair.differs else "no"]
        for edge, weight, confidence, known in zip(
            pair.edges, pair.weights, pair.confidences, confident, strict=True
        ):
            row += [edge or "none", weight]
            row += [confidence] if known else []
        rows.append(row)
    caption = "Pairs of variables that some run connects, those that differ first"
    return {"kind": "table", "caption": caption, "columns": columns, "rows": rows}


def _changes(
    names: Sequence[str], runs: Sequence[RunResult], graphs: Sequence[CausalGraph]
) -> list[Block]:
    rows = [[one.subject, *one.values] for one in changes(runs, graphs)]
    if not rows:
        return []
    caption = "Options, parties, rows and weights that are not the same in all runs"
    return [{"kind": "table", "caption": caption, "columns": ["", *names], "rows": rows}]


def _by_run(
    caption: str, columns: list[str], names: Sequence[str], tables: Sequence[list[list[Any]]]
) -> list[Block]:
    """Return the rows of all runs in one table; nothing where no run has any."""
    rows = [[name, *row] for name, table in zip(names, tables, strict=True) for row in table]
    if not rows:
        return []
    return [{"kind": "table", "caption": caption, "columns": ["run", *columns], "rows": rows}]


def _effects(names: Sequence[str], runs: Sequence[RunResult]) -> list[Block]:
    """Return the total effects of the edges' causes with their intervals, a column for each run.

    Of a run without the edge, or whose model has no effects, the cell is empty. Where a run has
    several possible effects the cell has the smallest and the largest.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for k, run in enumerate(runs):
        for cause, effect, value, _, low, high, _ in effect_rows(run.model, run.graph):
            cells = found.setdefault((cause, effect), [""] * len(runs))
            text = f"{value:.3g} ({low:.3g} to {high:.3g})"
            cells[k] = f"{cells[k]}; {text}" if cells[k] else text
    if not found:
        return []
    rows = [[cause, effect, *cells] for (cause, effect), cells in found.items()]
    columns = ["cause", "effect", *names]
    return [{"kind": "table", "caption": CAPTION, "columns": columns, "rows": rows}]
