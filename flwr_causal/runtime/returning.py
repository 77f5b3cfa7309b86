"""Parties whose node went away, or was restarted, and is back."""

from __future__ import annotations

from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any

from flwr.supercore import log

from flwr_causal.data.check.report import TableReport
from flwr_causal.errors import TableChangedError
from flwr_causal.protocol.schema import own_version
from flwr_causal.runtime.federation import Found
from flwr_causal.runtime.schema import ask_schema

if TYPE_CHECKING:
    from collections.abc import Collection

    from flwr.serverapp import Grid

    from flwr_causal.runtime.federation import Federation
    from flwr_causal.runtime.method import Method

# Seconds to wait for the schema of a node that has just come: the parties that are there wait too.
PATIENCE = 120.0


def find_returned(
    method: Method[Any],
    grid: Grid,
    federation: Federation,
    absent: Collection[str],
    forgotten: Collection[int],
) -> Found:
    """Ask nodes that are new for their schema; give parties that are back their place again.

    A node stands for a party if it has its name (with node authentication it has its id too), the
    party's former node is gone, and its report on the table is the party's.

    Parameters
    ----------
    method : Method
    grid : Grid
    federation : Federation
        Its parties' nodes are replaced.
    absent : collection of str
        The parties whose node is gone or has lost its state.
    forgotten : collection of int
        The nodes that have lost it.
    """
    now = set(grid.get_node_ids())
    unknown = sorted((now - federation.connected) | set(forgotten))
    federation.connected = now
    found = Found({}, {})
    if not unknown:
        return found
    timeout = min(method.round_timeout, PATIENCE)
    answers, failed, size = ask_schema(
        method, grid, unknown, timeout, exchange=federation.setup.exchange
    )
    for reason in failed.values():
        log(WARNING, "A node that has just come gives no schema (%s)", reason)
    for node, values in answers:
        # A name that several parties chose has the id of its node behind it.
        names = {node.name, f"{node.name} ({node.node_id})"}.intersection(absent)
        if not names:
            log(INFO, "%s (node %d) has come later and takes no part", node.name, node.node_id)
            continue
        name = names.pop()
        change = _change(values, federation.reports[name])
        if change:
            log(WARNING, "%s is back, but %s", name, change)
            found.changed[name] = f"{TableChangedError.__name__}: {name} is back, but {change}"
            # It is asked again in the next exchange: the table may have been restored.
            federation.connected.discard(node.node_id)
            continue
        log(INFO, "%s is back (node %d)", name, node.node_id)
        federation.moved(name, node.node_id)
        found.nodes[name] = node.node_id
    return found._replace(num_bytes=size)


def _change(values: dict[str, Any], report: TableReport) -> str:
    """Return why a node's answer is not that of the party as it was; "" if it is."""
    version = values.pop("version")
    if version != own_version():
        return f"it has version {version} of flwr-causal, the server {own_version()}"
    if "error" in values:
        return str(values["error"])
    if TableReport.from_dict(values) != report:
        return "its table is not the one of the schema exchange: restore it as it was"
    return ""
