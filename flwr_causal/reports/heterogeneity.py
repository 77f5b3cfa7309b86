"""The parties' own graphs in a run's directory and in the log."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pandas as pd

from flwr_causal.core.fedcausal.heterogeneity import COLUMNS
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.graph_formats import from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

GRAPHS_FILE = "local_graphs.json"
TABLE_FILE = "heterogeneity.csv"
# Disagreements below this many nats (a factor of 20 in probability) are not shown in the log.
CLEAR = 3.0
MOST_SHOWN = 3
MOST_PARTIES = 30
CHANGES = {"same": "without", "absent": "without", "reversed": "turned", "additional": "with"}


def write(graphs: Mapping[str, CausalGraph], table: pd.DataFrame | None, directory: Path) -> None:
    """Write ``local_graphs.json`` and ``heterogeneity.csv``, as far as there is something."""
    if graphs:
        plain = {party: to_plain(graph) for party, graph in graphs.items()}
        (directory / GRAPHS_FILE).write_text(json.dumps(plain) + "\n", encoding="utf-8")
    if table is not None:
        # Names may hold line breaks of any kind.
        table.to_csv(directory / TABLE_FILE, index=False, quoting=csv.QUOTE_NONNUMERIC)


def read(directory: Path) -> tuple[dict[str, CausalGraph], pd.DataFrame | None]:
    """Read what :func:`write` wrote; no graphs and None where the files are missing."""
    graphs: dict[str, CausalGraph] = {}
    table: pd.DataFrame | None = None
    if (directory / GRAPHS_FILE).is_file():
        plain = json.loads((directory / GRAPHS_FILE).read_text(encoding="utf-8"))
        graphs = {party: CausalGraph(**from_plain(one)) for party, one in plain.items()}
    if (directory / TABLE_FILE).is_file():
        # As text first: Python then reads the digits, which is exact whatever the pandas.
        table = pd.read_csv(directory / TABLE_FILE, dtype=str, keep_default_na=False)
        parsers: dict[type, Callable[[str], Any]] = {bool: "True".__eq__, float: float, str: str}
        for name, kind in COLUMNS.items():
            table[name] = table[name].map(parsers[kind]).astype(kind)
    return graphs, table


def describe_heterogeneity(table: pd.DataFrame) -> list[str]:
    """Return a line for each party: the common edges that it supports, what speaks against them."""
    if table.empty:
        return []
    lines = ["Own graphs of the parties (evidence in nats; 3 is a factor of 20)"]
    parties = list(table.groupby("party", sort=False))
    for party, edges in parties[:MOST_PARTIES]:
        common = edges[edges["common"]]
        clear = edges[edges["disagreement"] > CLEAR]
        strongest = clear.head(MOST_SHOWN).to_dict("records")
        shown = [
            f"{CHANGES[row['own']]} {row['cause']} -> {row['effect']} ({row['disagreement']:+.0f})"
            for row in strongest
        ]
        if len(clear) > MOST_SHOWN:
            shown.append(f"{len(clear) - MOST_SHOWN} more")
        supported = int((common["support"] > 0).sum())
        lines.append(
            f"  {party} supports {supported} of {len(common)} common edges"
            + ("; more probable " if shown else "")
            + ", ".join(shown)
        )
    if len(parties) > MOST_PARTIES:
        lines.append(f"  ... and {len(parties) - MOST_PARTIES} more; see {TABLE_FILE}")
    return lines
