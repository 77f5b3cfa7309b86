"""How far to trust a run: warnings, parties left out, the truth, parties that disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.words import counted
from flwr_causal.reports.page.exchanges import party_columns
from flwr_causal.reports.result import lost_in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.interventions.targets import TargetEntry
    from flwr_causal.reports.result import RunResult
    from flwr_causal.runtime.influence import Influence

Block = dict[str, Any]

# A party disagrees clearly above so many nats, a factor of 20 in probability.
CLEAR = 3.0
VERDICTS = {
    "right": "right",
    "open": "right, but their direction is left open",
    "reversed": "reversed",
    "extra": "extra",
    "missing": "missing",
}
METRICS = {
    "shd": "structural Hamming distance (a reversed edge counts once)",
    "cpdag_shd": "the same between equivalence classes",
    "smhd": "structural moral Hamming distance",
    "tpr": "share of true edges found",
    "fdr": "share of found edges that are wrong",
    "lagged_shd": "Hamming distance of lagged edges",
    "log_likelihood": "log-likelihood, nats a row",
    "accuracy": "accuracy",
    "majority": "share of the most frequent class",
    "macro_f1": "macro F1",
    "auroc": "AUROC",
}
# What is known of a tenth of the calibration, see `flwr_causal.app.comparison.calibration`.
TENTH = ("probability", "right", "rows")
# Where a party's own graph differs from the common one, in words.
DIFFERENCES = {
    "same": "has it, too",
    "absent": "does not have it",
    "reversed": "has it reversed",
    "additional": "has it in addition",
}


def trust_blocks(run: RunResult, graph: dict[str, Any] | None, influence: Influence) -> list[Block]:
    """Return the warnings, the missing replies, and the comparison with the truth."""
    blocks: list[Block] = []
    if run.error:
        blocks.append({"kind": "list", "title": "Error", "tone": "bad", "items": [run.error]})
    if run.warnings:
        title = counted(len(run.warnings), "warning")
        blocks.append({"kind": "list", "title": title, "tone": "bad", "items": run.warnings})
    if run.failures:
        items = [
            f"{one['party']} was left out of exchange {one['round']}: {one['reason']}"
            for one in run.failures
        ]
        title = f"{counted(len(items), 'reply')} missing"
        blocks.append({"kind": "list", "title": title, "tone": "bad", "items": items})
    if lost := lost_in_words(run):
        items = [f"The result is {lost}."]
        blocks.append({"kind": "list", "title": "Not all parties", "tone": "bad", "items": items})
    calm = [text for text, known in (("no warnings", run.warnings),) if not known]
    calm += ["no party was left out"] if run.parties and not run.failures else []
    calm += _agreement_in_words(run.heterogeneity, influence)
    if calm:
        text = "; ".join(calm)
        blocks.append({"kind": "text", "text": f"{text[:1].upper()}{text[1:]}."})
    blocks += _truth_blocks(run.metrics, graph)
    if graph is not None:
        texts = _confidence_in_words(graph, run.config), _party_agreement_in_words(graph)
        blocks += [{"kind": "text", "text": text} for text in texts if text]
    if graph is not None and "num_forbidden" in graph:
        required = sum(edge.get("required", False) for edge in graph["edges"])
        text = (
            f"Background knowledge required {counted(required, 'edge')} of the graph and excluded "
            f"{counted(graph['num_forbidden'], 'direction')}: these do not follow from the rows."
        )
        blocks.append({"kind": "text", "text": text})
    return blocks


def _counts_in_words(counts: dict[str, int], between: str) -> str:
    return between.join(
        f"{counts[key]} {words}" for key, words in VERDICTS.items() if key in counts
    )


def _agreement_in_words(table: pd.DataFrame | None, influence: Influence) -> list[str]:
    """Return how many parties disagree clearly, and how many decide edges alone."""
    said = []
    if table is not None and len(table):
        against = table[table["disagreement"] > CLEAR]
        edges = counted(len(against[["cause", "effect"]].drop_duplicates()), "edge")
        said.append(
            f"{against['party'].nunique()} of {table['party'].nunique()} parties disagree clearly "
            f"with the common graph, about {edges} (see Parties)"
            if len(against)
            else "no party disagrees clearly with the common graph"
        )
    if influence:
        changing = [party for party, change in influence.items() if change["changed_edges"]]
        said.append(
            f"without {', '.join(changing)} the graph has other edges (see Parties)"
            if changing
            else "leaving out any single party changes no edge"
        )
    return said


def _truth_blocks(metrics: dict[str, Any], graph: dict[str, Any] | None) -> list[Block]:
    """Return the comparison with the truth, and with the pooled rows and single parties."""
    blocks: list[Block] = []
    if graph is not None and graph["counts"]:
        said = _counts_in_words(graph["counts"], "; ")
        if not set(graph["counts"]) - {"right", "open"}:
            said += "; none is missing, extra or reversed"
        text = f"Edges against the known truth: {said}."
        blocks.append({"kind": "text", "text": text})
    others = {"all rows pooled": metrics.get("pooled"), "each party alone": metrics.get("alone")}
    others |= {"rows of the query": metrics.get("query")}
    known = {"federated": metrics, **{name: one for name, one in others.items() if one}}
    rows = [
        [words, *(one.get(key) for one in known.values())]
        for key, words in METRICS.items()
        if key in metrics
    ]
    if rows:
        title = "Against the truth" if "shd" in metrics else "On rows that were held out"
        columns = ["metric", *known]
        blocks.append({"kind": "table", "caption": title, "columns": columns, "rows": rows})
    for name, one in known.items():
        if bins := one.get("calibration"):
            where = "rows that were held out" if one is metrics else name
            blocks.append(
                {
                    "kind": "table",
                    "caption": f"Calibration on {where}: how often the most probable class is "
                    "right, by its probability",
                    "columns": ["probability", "share of rows in which it is right", "rows"],
                    "rows": [[tenth[key] for key in TENTH] for tenth in bins],
                }
            )
    return blocks


def _confidence_in_words(graph: dict[str, Any], config: dict[str, Any]) -> str:
    sure = [edge["confidence"] for edge in graph["edges"] if "confidence" in edge]
    if not sure:
        return (
            "The run does not say how sure single edges are: the option replicates=30 gives each "
            "the share of resampled runs that have it."
            if "replicates" in config
            else ""
        )
    lowest, median = min(sure), sorted(sure)[len(sure) // 2]
    return (
        "Confidence of the edges, the share of the replicates that have each: lowest "
        f"{lowest:.2f}, median {median:.2f}; {sum(value < 0.5 for value in sure)} of {len(sure)} "
        "are below 0.5."
    )


def _party_agreement_in_words(graph: dict[str, Any]) -> str:
    shares = [edge["party_agreement"] for edge in graph["edges"] if "party_agreement" in edge]
    if not shares:
        return ""
    return (
        f"Share of the parties that agree with an edge: lowest {min(shares):.2f}, median "
        f"{sorted(shares)[len(shares) // 2]:.2f}. It compares the parties, and does not say how "
        "sure an edge is."
    )


def party_blocks(run: RunResult, influence: Influence) -> list[Block]:
    """Return the parties' rows and replies, their influence, and where their own graphs differ.

    Of parties that add up in groups the influence is that of the groups.
    """
    if not run.parties:
        return []
    missing: dict[str, int] = {}
    for failure in run.failures:
        missing[failure["party"]] = missing.get(failure["party"], 0) + 1
    head, changes = _influence_columns(influence)
    of_parties = [] if run.groups else head
    files = ["file"] if run.sources else []
    columns = ["party", *files, "rows", "exchanges answered"]
    columns += ["replies missing"] if missing else []
    traffic = party_columns(run)
    columns += [*of_parties, *traffic]
    table = []
    for party, rows in {**run.parties, **run.lost}.items():
        row: list[Any] = [party, *(run.sources.get(party, "") for _ in files)]
        row += [rows or "withheld", run.answered.get(party)]
        row += [missing.get(party, 0)] if missing else []
        row += changes.get(party, [None] * len(head)) if of_parties else []
        row += [values.get(party) for values in traffic.values()]
        table.append(row)
    blocks = [{"kind": "table", "caption": "Parties", "columns": columns, "rows": table}]
    if run.groups:
        caption = "Groups of parties that add up by themselves"
        table = [[name, *changes.get(name, [None] * len(head))] for name in run.groups]
        blocks.append(
            {"kind": "table", "caption": caption, "columns": ["group", *head], "rows": table}
        )
    return [*blocks, *_target_blocks(run.targets), *_heterogeneity_blocks(run.heterogeneity)]


def _target_blocks(targets: Sequence[TargetEntry] | None) -> list[Block]:
    """Return the variables that parties act on."""
    if targets is None:
        return []
    if not targets:
        text = "No party acts on a variable: mechanisms differ between parties by chance only."
        return [{"kind": "text", "text": text}]
    shares = "confidence" in targets[0]
    columns = {
        "party": "party",
        "variable": "acts on",
        "gain": "gain of a mechanism of its own, nats",
        "causes": "effects of its causes there, and elsewhere",
        **({"confidence": "share of replicates"} if shares else {}),
    }
    caption = "What parties act on"
    rows = [[one.get(key) for key in columns] for one in targets]
    return [{"kind": "table", "caption": caption, "columns": [*columns.values()], "rows": rows}]


def _influence_columns(influence: Influence) -> tuple[list[str], dict[str, list[Any]]]:
    """Return the heads of the columns of the influence, and the values by party or group."""
    if not influence:
        return [], {}
    columns = ["edges that change without it", "largest change of a weight"]
    keys = ["changed_edges", "largest_change"]
    if any(change["distance"] is not None for change in influence.values()):
        columns += ["distance from the others (1: by chance)"]
        keys.append("distance")
    rows = {
        name: [change[key] for key in keys]  # type: ignore[literal-required]
        for name, change in influence.items()
    }
    return columns, rows


def _heterogeneity_blocks(table: pd.DataFrame | None) -> list[Block]:
    """Return each party's support of each edge, as a table and as a heat map."""
    if table is None or table.empty:
        return []
    columns = {
        "party": "party",
        "cause": "cause",
        "effect": "effect",
        "own": "the party's own graph",
        "support": "support, nats",
        "disagreement": "disagreement, nats",
    }
    rows = [
        [DIFFERENCES.get(value, value) if key == "own" else value for key, value in row.items()]
        for row in table[list(columns)].to_dict("records")
    ]
    common = table[table["common"]]
    parties = list(dict.fromkeys(common["party"]))
    edges = list(dict.fromkeys(zip(common["cause"], common["effect"], strict=True)))
    cells = [
        [parties.index(row["party"]), edges.index((row["cause"], row["effect"])), row["support"]]
        for row in common.to_dict("records")
    ]
    return [
        {
            "kind": "heat",
            "title": "Support of each common edge by the rows of each party, in nats "
            "(below 0: the party's rows speak against the edge)",
            "unit": "support",
            "axes": ["party", "edge"],
            "names": parties,
            "across": [f"{cause} -> {effect}" for cause, effect in edges],
            "cells": cells,
        },
        {
            "kind": "table",
            "caption": "Own graphs of the parties (evidence in nats; 3 is a factor of 20)",
            "columns": list(columns.values()),
            "rows": rows,
        },
    ]
