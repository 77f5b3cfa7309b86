"""Parties whose node went away, or was restarted, and is back; in one run, or in a resumed one."""

from __future__ import annotations

import time
from dataclasses import replace
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any

from flwr.supercore import log

from flwr_causal.errors import FederationError, TableChangedError
from flwr_causal.protocol.schema import own_version, short_id
from flwr_causal.runtime.checkpoint import CheckpointError
from flwr_causal.runtime.federation import Party, Returned
from flwr_causal.runtime.schema import (
    POLL_SECONDS,
    agreed,
    ask_schema,
    check_errors,
    check_versions,
    columns_asked,
    is_another,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from flwr.serverapp import Grid

    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.runtime.federation import Federation, Totals
    from flwr_causal.runtime.method import CausalMethod

# Seconds to wait for the schema of a node that has just come: the parties that are there wait too.
PATIENCE = 120.0


def find_returned(
    method: CausalMethod,
    grid: Grid,
    federation: Federation,
    absent: Collection[str],
    forgotten: Collection[int],
) -> Returned:
    """Ask nodes that are new for their schema; give parties that are back their place again.

    A node stands for a party if it has its name (with node authentication it has its id too), the
    party's former node is gone, and its report on the table is the party's.

    Parameters
    ----------
    method : CausalMethod
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
    found = Returned({}, {})
    if not unknown:
        return found
    timeout = min(method.options.round_timeout, PATIENCE)
    columns = columns_asked(method, federation.reports)
    answers, failed, size = ask_schema(
        method, grid, unknown, timeout, exchange=federation.setup.exchange, **columns
    )
    for reason in failed.values():
        log(WARNING, "A node that has just come gives no schema (%s)", reason)
    for node, values in answers:
        name, own_id = _place_of(node, absent), short_id(node.node_id)
        if not name:
            log(INFO, "%s (node %s) has come later and takes no part", node.name, own_id)
            continue
        change = _change(values, federation.reports[name])
        keys = federation.setup.keys
        if not change and keys and node.public_key not in keys:
            change = "its node was restarted and has lost its key for secure sums"
        if change:
            log(WARNING, "%s is back, but %s", name, change)
            found.changed[name] = f"{TableChangedError.__name__}: {name} is back, but {change}"
            # It is asked again in the next exchange: the table may have been restored.
            federation.connected.discard(node.node_id)
            continue
        log(INFO, "%s is back (node %s)", name, own_id)
        federation.moved(name, node.node_id)
        found.nodes[name] = node.node_id
    return found._replace(num_bytes=size)


def reconnected(
    method: CausalMethod,
    grid: Grid,
    parties: Sequence[Party],
    reports: Mapping[str, TableReport],
    total: Totals | None,
    *,
    settle: float,
) -> tuple[Federation, Agreement, int]:
    """Find the nodes of the parties of an interrupted run; repeat the parties' agreement.

    A party of which no connected node has the name, or none that answers, stays without a node.
    The exchanges decide whether the run can go on without it.

    Parameters
    ----------
    method : CausalMethod
    grid : Grid
    parties : sequence of Party
        Of the interrupted run, in their order.
    reports : mapping of str to TableReport
        Theirs, by name.
    total : Totals or None
        With secure aggregation, the reports on their rows together.
    settle : float
        If not 0, nodes that are not connected yet are waited for, :data:`PATIENCE` at most.

    Returns
    -------
    federation : Federation
    agreement : Agreement
    num_bytes : int
        Sent and received to find them.

    Raises
    ------
    CheckpointError
        If a party's table is not that of the interrupted run.
    ConfigError
        If a node runs another version of flwr-causal.
    DataError
        If a party's table cannot be used any more.
    FederationError
        If no party has a node.
    """
    timeout = min(method.options.round_timeout, PATIENCE)
    deadline = time.monotonic() + (timeout if settle else 0.0)
    absent, connected, asked = {party.name: party for party in parties}, {}, set[int]()
    warnings, changed, num_bytes = [], [], 0
    while absent:
        new = sorted(set(grid.get_node_ids()) - asked)
        if not new and time.monotonic() >= deadline:
            break
        if not new:
            time.sleep(POLL_SECONDS)
            continue
        asked.update(new)
        # A private release is not drawn again.
        resumed = {"resumed": 1} if method.options.private else {}
        columns = columns_asked(method, reports)
        answers, _, size = ask_schema(method, grid, new, timeout, **resumed, **columns)
        num_bytes += size
        own = [answer for answer in answers if _place_of(answer[0], absent)]
        check_versions(own)
        check_errors(own)
        for node, values in answers:
            name = _place_of(node, absent)
            if not name:
                warnings.append(
                    f"{node.name} is connected, but was not in the run that is resumed: it takes "
                    "no part."
                )
                continue
            change = _change(values, reports[name])
            changed += [f"{name} is connected, but {change}"] if change else []
            connected[name] = replace(
                absent.pop(name),
                node_id=node.node_id,
                public_key=node.public_key,
                signature=node.signature,
            )
        if changed:
            raise CheckpointError(
                f"The run in '{method.options.output_dir}' cannot be resumed: "
                f"{'; '.join(changed)}. To continue without a party stop its node."
            )
        log(INFO, "%d of %d parties are connected", len(connected), len(parties))
    if not connected:
        raise FederationError(
            f"The run in '{method.options.output_dir}' cannot be resumed: none of its parties is "
            f"connected ({', '.join(absent)}). Start their nodes, under these names."
        )
    placed = [connected.get(party.name, party) for party in parties]
    federation, agreement = agreed(method, placed, reports, total)
    federation.connected = {party.node_id for party in connected.values()}
    return federation, replace(agreement, warnings=(*warnings, *agreement.warnings)), num_bytes


def _place_of(node: Party, absent: Collection[str]) -> str:
    """Return the absent party that has a node's name; "" for none."""
    # A name that several parties chose has the id of its node behind it.
    names = {node.name, f"{node.name} ({short_id(node.node_id)})"}.intersection(absent)
    return names.pop() if names else ""


def _change(values: dict[str, Any], report: TableReport) -> str:
    """Return how a node's answer differs from the party's earlier one; "" if it does not."""
    version = values.pop("version", own_version())
    if is_another(version):
        return f"it has version {version} of flwr-causal, the server {own_version()}"
    if "error" in values:
        return str(values["error"])
    if values["report"] != report:
        return "its table is not the one of the schema exchange: restore it as it was"
    return ""
