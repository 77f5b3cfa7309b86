"""The exchanges of a run on its page: diagnostics, bytes and seconds, by exchange and party."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flwr_causal.core.saved import misplaced

if TYPE_CHECKING:
    from flwr_causal.reports.result import RunResult

Block = dict[str, Any]

#: Diagnostics that are drawn; others are in the table of exchanges.
DRAWN = {
    "h": "distance from acyclicity (h)",
    "consensus": "disagreement of the parties (residual)",
    "gap": "gap to the optimum",
    "num_edges": "number of edges",
    "changed": "edges changed",
    "score": "score",
    "log_likelihood": "log-likelihood",
    "loss": "loss",
}
#: A curve needs so many points.
LEAST_POINTS = 3
#: What the history says by party, see :class:`flwr_causal.runtime.outcome.Outcome`.
SENT, RECEIVED, SECONDS = "party_bytes_sent", "party_bytes_received", "party_seconds"
NAMES = {
    "round": "number",
    SENT: "bytes to each party",
    RECEIVED: "bytes from each party",
}
#: Heat maps have at most so many cells.
MOST_CELLS = 2000


def exchange_blocks(run: RunResult) -> list[Block]:
    """Return the course of the diagnostics, traffic and seconds by exchange, and all entries."""
    if not run.history:
        return []
    facts = [
        ["exchanges", run.rounds],
        ["seconds, from the schema exchange to the result", round(run.seconds, 2)],
        ["bytes from the server to the parties", run.bytes_sent],
        ["bytes from the parties to the server", run.bytes_received],
        ["bytes of the schema exchange", run.schema_bytes],
    ]
    blocks: list[Block] = [{"kind": "facts", "rows": facts}]
    if len(run.history) >= LEAST_POINTS:
        curves = [panel for key, name in DRAWN.items() if (panel := _curve(run.history, key, name))]
        traffic = {
            "bytes_received": "bytes from all parties",
            "bytes_sent": "bytes to all parties",
            "seconds": "seconds",
            "parties": "parties that answered",
        }
        curves += [p for key, name in traffic.items() if (p := _curve(run.history, key, name))]
        blocks.append({"kind": "lines", "title": "By exchange", "x": "exchange", "panels": curves})
    blocks += _maps(run)
    keys = list(dict.fromkeys(key for entry in run.history for key in entry))
    for key in (SENT, RECEIVED, SECONDS):
        # Seconds are drawn, and what is the same for all parties follows from the whole.
        if key == SECONDS or not any(isinstance(entry.get(key), dict) for entry in run.history):
            keys = [other for other in keys if other != key]
    names = {key: NAMES.get(key, key.replace("_", " ")) for key in keys}
    rows = [{key: _cell(entry.get(key)) for key in names} for entry in run.history]
    # What never changes is said once.
    same = [
        key for key in names if len(rows) >= LEAST_POINTS and len({row[key] for row in rows}) == 1
    ]
    caption = "The entry of each exchange (bytes of all parties together)"
    if same:
        caption += "; in all exchanges: " + ", ".join(
            f"{names.pop(key)} {rows[0][key]}" for key in same
        )
    cells = [[row[key] for key in names] for row in rows]
    blocks.append(
        {"kind": "table", "caption": caption, "columns": [*names.values()], "rows": cells}
    )
    return blocks


def _cell(value: Any) -> Any:
    """Return a value of an entry; of bytes by party the smallest and the largest."""
    if isinstance(value, dict) and not misplaced(value, dict[str, float]):
        return f"{min(value.values(), default=0):,} to {max(value.values(), default=0):,}"
    return value if isinstance(value, int | float | str | None) else json.dumps(value)


def party_columns(run: RunResult) -> dict[str, dict[str, float]]:
    """Return each party's traffic, by column of the table of parties."""
    columns = {
        "bytes to it": _by_party(run, SENT),
        "bytes from it": _by_party(run, RECEIVED),
        "seconds until its reply, mean": _by_party(run, SECONDS),
    }
    return {
        name: {
            party: sum(cells.values()) / (len(cells) if "mean" in name else 1)
            for party, cells in table.items()
        }
        for name, table in columns.items()
        if table
    }


def _by_party(run: RunResult, key: str) -> dict[str, dict[int, float]]:
    """Return the history's numbers by party and exchange; unknown ones are left out.

    The parties that replied are those whose seconds are known, and those that failed are listed.
    """
    found: dict[str, dict[int, float]] = {}
    for entry in run.history:
        values = entry.get(key, {})
        if not isinstance(values, dict):
            values = dict.fromkeys(entry.get(SECONDS, ()), values)
        for party, value in values.items():
            found.setdefault(party, {})[entry["round"]] = value
    return found


def _maps(run: RunResult) -> list[Block]:
    """Return heat maps of parties and exchanges: seconds, and bytes where the parties' differ."""
    numbers = [entry["round"] for entry in run.history]
    if len(run.parties) * len(numbers) > MOST_CELLS or len(numbers) < LEAST_POINTS:
        return []
    titles = {
        SENT: ("Bytes to each party", "bytes"),
        RECEIVED: ("Bytes from each party", "bytes"),
        SECONDS: ("Seconds until the reply of each party", "seconds"),
    }
    blocks = []
    for key, (title, unit) in titles.items():
        if not any(isinstance(entry.get(key), dict) for entry in run.history):
            continue
        table = _by_party(run, key)
        if key == SECONDS and run.config.get("simulated"):
            title += " (simulated parties compute one after the other)"
        parties = [party for party in run.parties if party in table]
        cells = [
            [parties.index(party), numbers.index(number), value]
            for party in parties
            for number, value in table[party].items()
        ]
        blocks.append(
            {
                "kind": "heat",
                "title": title,
                "unit": unit,
                "axes": ["party", "exchange"],
                "names": parties,
                "across": [str(number) for number in numbers],
                "cells": cells,
            }
        )
    return blocks


def _curve(history: list[dict[str, Any]], key: str, name: str) -> dict[str, Any] | None:
    """Return the course of a number, or None where it is not known or does not change."""
    points = [
        [entry["round"], entry[key]] for entry in history if isinstance(entry.get(key), int | float)
    ]
    values = [value for _, value in points]
    if len(points) < LEAST_POINTS or len(set(values)) == 1:
        return None
    positive = [value for value in values if value > 0]
    spread = len(positive) == len(values) and max(positive) > 100 * min(positive)
    return {"name": name, "points": points, "log": spread}
