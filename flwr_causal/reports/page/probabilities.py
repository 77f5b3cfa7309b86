"""The tables of a Bayesian network on the page of a run."""

from __future__ import annotations

from itertools import product
from typing import Any

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.words import counted

Block = dict[str, Any]

#: Of a table so many rows are shown, of a network so many cells.
MOST_ROWS, MOST_CELLS = 200, 20_000


def probability_blocks(model: Any) -> list[Block]:
    """Return each variable's probabilities given its parents, folded; nothing for other models."""
    if not isinstance(model, BayesianNetwork) or not model.can("predict_proba"):
        return []
    blocks: list[Block] = []
    cells = 0
    for j, name in enumerate(model.names):
        table = _table(model, j)
        cells += len(table["rows"]) * len(table["columns"])
        if cells > MOST_CELLS:
            left = counted(len(model.names) - j, "further table")
            blocks.append({"kind": "text", "text": f"{left} left out; run.model.tables has all."})
            break
        parents = ", ".join(model.names[k] for k in model.parents[j])
        title = f"{name} given {parents}" if parents else name
        blocks.append({"kind": "folded", "title": title, "blocks": [table]})
    return blocks


def _table(model: BayesianNetwork, j: int) -> Block:
    """Return a row for each configuration of the parents, with the probability of each state."""
    parents, table, names = model.parents[j], model.tables[j], model.state_names
    rows: list[list[Any]] = []
    for cell in product(*(range(size) for size in table.shape[:-1])):
        known: list[Any] = [names[k][state] for k, state in zip(parents, cell, strict=True)]
        if model.sample_sizes is not None:
            known.append(float(model.sample_sizes[j][cell]))
        rows.append([*known, *table[cell].tolist()])
        if len(rows) == MOST_ROWS:
            break
    configurations = table[..., 0].size
    caption = f"Probability of each state of {model.names[j]}"
    if configurations > MOST_ROWS:
        caption += f" in the first {MOST_ROWS} of {configurations:,} configurations of its parents"
    sizes = [] if model.sample_sizes is None else ["rows, with the prior's"]
    columns = [*(model.names[k] for k in parents), *sizes, *names[j]]
    return {"kind": "table", "caption": caption, "columns": columns, "rows": rows}
