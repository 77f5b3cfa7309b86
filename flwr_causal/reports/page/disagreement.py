"""The section of a run's page on parties that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.doubts.parties import clear_differences

if TYPE_CHECKING:
    import pandas as pd

    from flwr_causal.reports.result import RunResult
    from flwr_causal.runtime.influence import Influence

Block = dict[str, Any]

#: So many differences are listed, the largest ones.
MOST_DIFFERENCES = 100
COLUMNS = {
    "party": "party",
    "what": "what",
    "cause": "cause",
    "effect": "effect or variable",
    "value": "at the party",
    "others": "at all others",
    "z": "difference in standard errors",
    "supports": "the party's rows support the edge",
}


def left_out_blocks(influence: Influence) -> list[Block]:
    """Return the edges that change without each party; parties without a change are left out."""
    rows = [
        [party, ", ".join(change["changes"])]
        for party, change in influence.items()
        if change.get("changes")
    ]
    if not rows:
        return []
    columns = ["without", "the graph changes"]
    return [{"kind": "table", "caption": "Without one party", "columns": columns, "rows": rows}]


def disagreement_blocks(run: RunResult) -> list[Block]:
    """Return the effects, means and spreads that differ at a party by more than chance."""
    table = run.disagreement
    if table is None or table.empty:
        return []
    unlike = clear_differences(table)
    said = (
        f"{len(unlike)} of {len(table):,} effects, means and standard deviations of single parties"
    )
    blocks: list[Block] = [
        {
            "kind": "text",
            "text": f"{said} differ from those of all other parties by more than chance "
            "(p-value below 0.05 after correction for their number).",
        }
    ]
    if len(unlike):
        blocks.append(
            {
                "kind": "table",
                "caption": "What differs at single parties",
                "columns": list(COLUMNS.values()),
                "rows": _listed(unlike),
            }
        )
    return blocks


def disagreement_rows(run: RunResult) -> list[list[Any]]:
    """Return what differs at single parties by more than chance, by :data:`COLUMNS`."""
    table = run.disagreement
    return [] if table is None else _listed(clear_differences(table))


def _listed(unlike: pd.DataFrame) -> list[list[Any]]:
    rows: list[list[Any]] = unlike[list(COLUMNS)].head(MOST_DIFFERENCES).to_numpy().tolist()
    return rows
