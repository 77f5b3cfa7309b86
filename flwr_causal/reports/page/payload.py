"""The contents of a run's page, as plain values in the order of the page.

A page has a headline, perhaps sections that come first, perhaps a graph, and sections. A section
is a list of blocks, each a dict with the key ``kind``:

- ``text``: ``text``; ``list``: ``items``, and a ``title``; ``facts``: ``rows`` of label and value;
- ``table``: ``columns``, ``rows``, ``caption``;
- ``heat``: a matrix as ``cells`` (row, column, value) over ``names`` (and ``across`` where the
  columns have other names), ``axes``, what rows and columns are, and ``unit``, what a value is,
  and perhaps ``share``: values are from 0 to 1;
- ``folded``: ``title`` and further ``blocks``, which a click shows;
- ``lines``: ``panels`` with ``name``, ``points`` and ``log``, over ``x``;
- ``shapes``: distributions as ``panels`` with ``name`` and ``points`` (numbers; of a
  step function with ``steps``) or ``bars`` (categories).

What is not known of a run is left out.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from flwr_causal.core.description.description import Description
from flwr_causal.core.graphs.knowledge import Knowledge, in_words
from flwr_causal.core.words import counted
from flwr_causal.reports.asked import asked_blocks
from flwr_causal.reports.page.circuit import circuit_blocks
from flwr_causal.reports.page.description import description_blocks
from flwr_causal.reports.page.disagreement import disagreement_blocks, left_out_blocks
from flwr_causal.reports.page.effects import effect_blocks
from flwr_causal.reports.page.exchanges import exchange_blocks
from flwr_causal.reports.page.fit import fit_blocks
from flwr_causal.reports.page.graph import SHARES, graph_payload, strength_of
from flwr_causal.reports.page.probabilities import probability_blocks
from flwr_causal.reports.page.trust import party_blocks, trust_blocks
from flwr_causal.reports.result import lost_in_words
from flwr_causal.reports.trust import trust_of
from flwr_causal.runtime.influence import known_influence

if TYPE_CHECKING:
    from flwr_causal.reports.result import RunResult
    from flwr_causal.runtime.influence import Influence

Block = dict[str, Any]


def payload_of(run: RunResult, asked: tuple[str, str] | None = None) -> dict[str, Any]:
    """Return the content of the page of a run.

    Parameters
    ----------
    run : RunResult
    asked : tuple of str, optional
        A treatment and an outcome: their effect stands above the graph.
    """
    knowledge = run.config.get("knowledge")
    graph = None if run.graph is None else graph_payload(run.graph, run.truth, knowledge)
    if graph is not None:
        graph["threshold"] = run.config.get("threshold")
        graph["unsigned"] = run.unsigned
    influence = known_influence(run)
    sections = [
        _section("trust", "How far to trust it", trust_blocks(run, graph, influence)),
        _section("fit", "Does the graph fit", fit_blocks(run)),
        _section("description", "The rows of all parties together", description_blocks(run.model)),
        _section("distribution", "The distribution that was learned", circuit_blocks(run)),
        _section("edges", "Edges", [] if graph is None else [edge_table(graph)]),
        _section("effects", "Effects", effect_blocks(run.model, run.graph)),
        _section("tables", "Probability tables", probability_blocks(run.model)),
        _section("matrices", "Edges as matrices", [] if graph is None else matrices(graph)),
        _section("parties", "Parties", all_party_blocks(run, influence)),
        _section("exchanges", "Exchanges", exchange_blocks(run)),
        _section("privacy", "What left each party", privacy_blocks(run)),
        _section("setup", "Method, configuration, versions", setup_blocks(run)),
    ]
    return {
        "title": f"{run.config.get('method', 'run')}: {heading(run)}",
        "heading": _capital(heading(run)),
        "question": question(run),
        "verdict": trust_of(run).sentence,
        "status": run.status,
        "first": [] if asked is None else [_asked_section(run, *asked)],
        "graph": graph,
        "sections": [section for section in sections if section["blocks"]],
    }


def _asked_section(run: RunResult, treatment: str, outcome: str) -> dict[str, Any]:
    title = f"The effect of {treatment} on {outcome}"
    return _section("asked", title, asked_blocks(run, treatment, outcome))


def all_party_blocks(run: RunResult, influence: Influence) -> list[Block]:
    """Return the blocks on parties: a row for each, the graph without each, how they differ."""
    return [
        *party_blocks(run, influence),
        *left_out_blocks(influence),
        *disagreement_blocks(run),
    ]


def _section(name: str, title: str, blocks: list[Block]) -> dict[str, Any]:
    return {"id": name, "title": title, "blocks": blocks}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def heading(run: RunResult) -> str:
    """Return what the run found, and without which parties."""
    lost = lost_in_words(run)
    return found_in_words(run) + (f", {lost}" if lost else "")


def found_in_words(run: RunResult) -> str:
    """Return what the run found, in one phrase."""
    graph = run.graph
    if graph is None:
        if run.model is None:
            return "no result"
        names = getattr(run.model, "names", ())
        if isinstance(run.model, Description):
            return f"{counted(run.model.rows, 'row')} of {counted(len(names), 'column')}"
        return f"a joint distribution of {counted(len(names), 'variable')}"
    phrase = counted(graph.num_edges, "edge")
    if graph.lagged is not None:
        phrase += f" within a time step and {counted(graph.num_lagged_edges, 'lagged edge')}"
    return f"{phrase} among {counted(len(graph.names), 'variable')}"


def question(run: RunResult) -> str:
    """Return the run's question, parties, cost, and the reason for which it ended."""
    summary = run.about.get("summary", "")
    method = run.config.get("method", "The method")
    asked = "What is the joint distribution of the columns"
    if run.graph is not None:
        asked = "Which variable causes which"
    if isinstance(run.model, Description):
        asked = "What do the parties' tables hold"
    ended = "The run ended because" if run.status == "completed" else "The run did not complete"
    reason = f"{ended}: {run.error or run.stop_reason}." if run.error or run.stop_reason else ""
    sentences = [
        f"{asked}? The method {method} asked {counted(len(run.parties), 'party')} with "
        f"{counted(run.total_rows, 'row')} together, in {counted(run.rounds, 'exchange')} and "
        f"{run.seconds:.1f} seconds.",
        reason,
        summary,
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _end(edge: dict[str, Any], names: list[str]) -> str:
    """Return the name of an edge's cause, with its lag."""
    name = names[edge["cause"]]
    return f"{name}[t-{edge['lag']}]" if edge["lag"] else name


def edge_table(graph: dict[str, Any]) -> Block:
    """Return the table of the edges, and of missing ones where the truth is known."""
    names = graph["names"]
    shown = [edge for edge in graph["edges"] if edge["found"] or "truth" in edge]
    optional = {
        "weight": "weight",
        "raw": "before threshold",
        **SHARES,
        "required": "required",
        "truth": "truth",
    }
    present = [key for key in optional if any(edge.get(key) is not None for edge in shown)]
    if all(edge.get("raw") in (None, edge["weight"]) for edge in shown):
        present = [key for key in present if key != "raw"]
    if not _weighted(graph):
        present = [key for key in present if key not in ("weight", "raw")]
    caption = "All edges"
    if "weight" in present:
        shown.sort(key=strength_of, reverse=True)
        caption += ", strongest first"
        if any("strength" in edge for edge in shown):
            caption += " by the weight in standard deviations"
    rows = [
        [
            _end(edge, names),
            edge["mark"] if edge["found"] else f"({edge['mark']})",
            names[edge["effect"]],
            *(_cell(edge.get(key)) for key in present),
        ]
        for edge in shown
    ]
    return {
        "kind": "table",
        "caption": caption
        + ("; an edge in brackets is missing" if "missing" in graph["counts"] else ""),
        "columns": ["cause", "", "effect", *(optional[key] for key in present)],
        "rows": rows,
    }


def _cell(value: Any) -> Any:
    """Return the text of an edge in the table."""
    if value is True:
        return "yes"
    return "direction open" if value == "open" else value


def _weighted(graph: dict[str, Any]) -> bool:
    """Whether the edges have weights; in most CPDAGs all weights are 1 and mean nothing."""
    weights = {edge["weight"] for edge in graph["edges"] if edge["found"]}
    return graph["kind"] != "cpdag" or len(weights) > 1


def matrices(graph: dict[str, Any]) -> list[Block]:
    """Return heat maps of weights by lag, of confidence, and of the parties' agreement.

    A PAG has none: its rows are no causes, and its columns no effects.
    """
    if graph["kind"] == "pag":
        return []
    blocks = []
    edges = [edge for edge in graph["edges"] if edge["found"]]
    for lag in range(graph["lags"] + 1):
        at_lag = [edge for edge in edges if edge["lag"] == lag]
        where = f" at lag {lag}" if graph["lags"] else ""
        title = "Weights" if _weighted(graph) else "Adjacency"
        if at_lag:
            blocks.append(_heat(title + where, "weight", at_lag, graph["names"]))
        for key, name in SHARES.items():
            if known := [edge for edge in at_lag if key in edge]:
                heat = _heat(_capital(name) + where, key, known, graph["names"])
                blocks.append({**heat, "unit": name, "share": True})
    return blocks


def _heat(title: str, unit: str, edges: list[dict[str, Any]], names: list[str]) -> Block:
    cells = [[edge["cause"], edge["effect"], edge[unit]] for edge in edges]
    cells += [[e["effect"], e["cause"], e[unit]] for e in edges if e["mark"] == "--"]
    note = f"{title}: rows are causes, columns are effects"
    axes = ["cause", "effect"]
    heat = {"kind": "heat", "title": note, "unit": unit, "axes": axes}
    return {**heat, "names": names, "cells": cells}


def _guarantee_blocks(privacy: dict[str, Any]) -> list[Block]:
    """Return the guarantee of differential privacy, if there is one."""
    if not privacy:
        return []
    own = privacy["scales"].items()
    scales = [f"{name} {scale:.4g} (centre {center:.4g})" for name, (center, scale) in own]
    values = {
        "epsilon, delta": f"{privacy['epsilon']:g}, {privacy['delta']:g}",
        "protects": privacy["unit"],
        "against": privacy["against"],
        "by": privacy["mechanism"],
        "noise, in units of the sensitivity": f"{privacy['noise_multiplier']:.4g}",
        "rows without noise that it is worth": privacy["effective_rows"],
        "scales": ", ".join(scales),
        "estimated scales": ", ".join(privacy["estimated_scales"]),
    }
    rows = [[label, value] for label, value in values.items() if value != ""]
    return [{"kind": "facts", "title": "Differential privacy", "rows": rows}]


def privacy_blocks(run: RunResult) -> list[Block]:
    """Return the contract's description of the exchanges that took place."""
    times = Counter(entry.get("exchange") for entry in run.history)
    rows = [
        [
            exchange["name"],
            times[exchange["name"]],
            leaf["name"],
            leaf["meaning"] + (f" (an entry for {leaf['rows']})" if leaf["rows"] else ""),
            " x ".join(map(str, leaf["shape"])) or "one number",
            {"sum": "added up", "mean": "averaged"}.get(leaf["combine"], "kept by party"),
        ]
        for exchange in run.about.get("exchanges", ())
        for leaf in exchange["leaves"]
        if times[exchange["name"]]
    ]
    if not rows:
        return []
    return [
        {
            "kind": "text",
            "text": "The method's contract declares everything that may leave a party, and a reply "
            "with anything else is refused. Before the first exchange each party reported the "
            "names and types of its columns, its number of rows, and what the method needs for "
            "the agreement"
            + (": of its rows no more than what its private release says" if run.privacy else "")
            + ". In shapes, d is the number of columns and n the party's rows.",
        },
        *_guarantee_blocks(run.privacy),
        {
            "kind": "table",
            "caption": "What left each party in the exchanges of this run",
            "columns": ["exchange", "times", "name", "meaning", "shape", "the server uses it"],
            "rows": rows,
        },
    ]


def setup_blocks(run: RunResult) -> list[Block]:
    """Return the method's description and papers, all options, versions."""
    blocks: list[Block] = []
    if description := run.about.get("description"):
        plain = description.replace("``", "").replace("**", "")
        blocks += [_paragraph(text) for text in plain.split("\n\n")]
    if papers := run.about.get("references"):
        blocks.append({"kind": "list", "title": "Please cite", "items": papers})
    options = [
        [key, in_words(Knowledge.from_dict(value)) if key == "knowledge" else _plain(value)]
        for key, value in run.decided_config.items()
        if value is not None
    ]
    if options:
        blocks.append(
            {
                "kind": "table",
                "caption": "Options (options without a value are left out)",
                "columns": ["option", "value"],
                "rows": options,
            }
        )
    if run.versions:
        rows = [[name, version] for name, version in run.versions.items()]
        blocks.append({"kind": "facts", "title": "Versions", "rows": rows})
    return blocks


def _paragraph(text: str) -> Block:
    """Return a paragraph of a docstring as text, or as a list if its lines begin with hyphens."""
    if not text.startswith("- "):
        return {"kind": "text", "text": " ".join(text.split())}
    items = [" ".join(item.split()) for item in f"\n{text}".split("\n- ")[1:]]
    return {"kind": "list", "items": items}


def _plain(value: Any) -> Any:
    """Return an option's value as a number or text."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_plain(one)}" for key, one in value.items() if one) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, int | float) else str(value)
