"""The rows of all parties together on the page of a run: columns, gaps, correlations, parties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.description.description import Description
from flwr_causal.core.words import counted

if TYPE_CHECKING:
    from flwr_causal.core.description.description import DescribedColumn

Block = dict[str, Any]

#: So many columns are drawn, in so many steps or states; so many patterns and differences listed.
MOST_DRAWN, MOST_STEPS, MOST_STATES, MOST_LISTED = 100, 64, 40, 100
#: In words, what differs at a party, and in what the difference is measured.
WHAT = {
    "mean": ("mean", "in standard deviations"),
    "deviation": ("standard deviation", "logarithm of the ratio"),
    "states": ("shares of the states", "difference of the shares"),
    "missing": ("share of missing cells", "difference of the shares"),
}


def description_blocks(model: Any) -> list[Block]:
    """Return the blocks on a description; none for other models."""
    if not isinstance(model, Description):
        return []
    return [
        *_withheld(model),
        _columns(model),
        *_distributions(model),
        *_gaps(model),
        *_correlations(model),
        *difference_blocks(model),
    ]


def _withheld(model: Description) -> list[Block]:
    if not model.withheld:
        return []
    return [
        {
            "kind": "text",
            "text": f"Counts of fewer than {model.withheld} rows of a party were withheld, and "
            "counts of rows up to an edge of a histogram are multiples of this number at each "
            "party: counts here may be of fewer rows than there are.",
        }
    ]


def _columns(model: Description) -> Block:
    shares = [*next((one.quantiles for one in model.columns if one.quantiles), {})]
    names = ["column", "kind", "rows", "missing", "mean", "deviation"]
    names += [f"{100 * float(share):g}%" for share in shares]
    names += ["below the grid", "above it", "parties apart by"]
    rows = []
    for one in model.columns:
        outside = one.outside if one.kind == "number" else (None, None)
        known = [one.quantiles.get(share) for share in shares]
        fixed = [one.name, one.kind, one.seen, one.missing, one.mean, one.deviation]
        rows.append([*fixed, *known, *outside, one.apart])
    return {
        "kind": "table",
        "caption": f"Columns of {counted(model.rows, 'row')}; the parties are apart by the root "
        "mean square of their distances from the common mean in standard deviations, of "
        "categories by the share of rows in other states",
        "columns": names,
        "rows": rows,
    }


def _distributions(model: Description) -> list[Block]:
    panels = [_panel(one) for one in model.columns[:MOST_DRAWN]]
    title = "Distributions"
    if len(model.columns) > MOST_DRAWN:
        title += f" of the first {MOST_DRAWN} of {counted(len(model.columns), 'column')}"
    return [{"kind": "shapes", "title": title, "panels": panels}]


def _panel(column: DescribedColumn) -> dict[str, Any]:
    if column.kind != "number":
        largest = sorted(column.states.items(), key=lambda state: -state[1])[:MOST_STATES]
        return {"name": column.name, "unit": "rows", "bars": [[*one] for one in largest]}
    first, last = _filled(column)
    every = -(-(last - first) // MOST_STEPS)
    kept = np.unique([*range(first, last, every), last])
    counts = np.diff(np.array(column.below)[kept])
    points = np.column_stack([column.edges[kept], [*counts, counts[-1]]]).tolist()
    low, high = column.outside
    outside = (low + high) / max(column.seen, 1)
    name = f"{column.name} ({outside:.1%} lie outside)" if low + high else column.name
    return {"name": name, "points": points, "steps": True}


def _filled(column: DescribedColumn) -> tuple[int, int]:
    """Return the edges of a column's grid between which its rows are."""
    filled = np.flatnonzero(np.diff(column.below))
    return (int(filled[0]), int(filled[-1]) + 1) if len(filled) else (0, len(column.below) - 1)


def _gaps(model: Description) -> list[Block]:
    if not any(column.missing for column in model.columns):
        return [{"kind": "text", "text": "No cell is missing."}]
    rows = [[", ".join(own) or "none", count] for own, count in model.patterns[:MOST_LISTED]]
    rest = model.other_patterns + sum(count for _, count in model.patterns[MOST_LISTED:])
    rows += [["others, or withheld", rest]] if rest else []
    caption = "Columns that are missing together, and in how many rows"
    return [
        {"kind": "table", "caption": caption, "columns": ["missing columns", "rows"], "rows": rows}
    ]


def _correlations(model: Description) -> list[Block]:
    cells = [
        [i, j, value]
        for i, row in enumerate(model.correlations)
        for j, value in enumerate(row)
        if i != j and value is not None
    ]
    if not cells:
        return []
    return [
        {
            "kind": "heat",
            "title": "Correlations of the columns of numbers, over rows that have both",
            "unit": "correlation",
            "axes": ["column", "column"],
            "names": list(model.numbers),
            "cells": cells,
        }
    ]


def difference_rows(model: Description) -> list[list[Any]]:
    """Return what differs at single parties: party, column, what, both values, effect, its unit."""
    return [
        [one.party, one.column, what, one.value, one.others, one.effect, unit]
        for one in model.differences[:MOST_LISTED]
        for what, unit in (WHAT[one.what],)
    ]


def difference_blocks(model: Description) -> list[Block]:
    """Return the columns that differ at single parties by more than a small or chance effect."""
    if not model.differences:
        return []
    left = len(model.differences) - MOST_LISTED
    more = f"; {counted(left, 'smaller one')} left out" if left > 0 else ""
    return [
        {
            "kind": "table",
            "caption": f"What differs at single parties, the largest effect first{more}",
            "columns": ["party", "column", "what", "there", "elsewhere", "effect", "measured as"],
            "rows": difference_rows(model),
        }
    ]
