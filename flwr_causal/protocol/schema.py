"""What leaves a party in the schema exchange, before training: the report on its table.

:data:`FACTS` are the entries that the fields of the report declare
(:class:`flwr_causal.data.check.report.TableReport`), and those of the reply around it. The door
refuses every other key, and docs/privacy/schema.md prints the list.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.contract.report import PARTS, Fact, facts_of
from flwr_causal.core.words import MOST_OF_PARTY, fault_of_name
from flwr_causal.data.check.report import ColumnReport, TableReport

if TYPE_CHECKING:
    from flwr.app import Context
    from numpy.typing import NDArray

# Of the reply around the report.
_AROUND = (
    Fact("party", "the party's name, its own choice", "text"),
    Fact("version", "the version of flwr-causal on the node", "text"),
    Fact("contract", "a digest of what the node's version of the method declares", "text"),
    Fact("partition-id", "the number of the simulated party; -1 on real nodes", "position"),
    Fact(
        "error",
        "instead of all that follows: why the table cannot be used, with names of columns, how "
        "many values do not fit the dictionary of the run (not with secure aggregation), and the "
        "path of a file that cannot be read",
        "text",
    ),
    Fact(
        "incomplete",
        "beside an error: 1 if missing values, which the party finds itself with secure "
        "aggregation and in time series, are all that is wrong",
        "flag",
    ),
    Fact("public-key", "the party's public key, with secure aggregation only", "text"),
    Fact(
        "signature",
        "the party's signature of this key, its name and the run, where its node config has a "
        "sums-key",
        "text",
    ),
)
_REPORTED = [
    one
    for _, entry in (*facts_of(TableReport), *facts_of(ColumnReport, "column"))
    for one in (entry.lengths, entry)
    if one is not None
]
#: Every entry that a reply may have, part by part.
FACTS = tuple(sorted((*_AROUND, *_REPORTED), key=lambda one: [None, *PARTS].index(one.part)))
#: The name of the array in the question and the reply that shows whether a mod of the party clips.
PROBE = "probe"
#: How many digits of a node's id messages and names have: ids are random, of 19 digits mostly.
DIGITS_OF_ID = 8
#: The norm that the question states where the run has none of its own.
PROBE_NORM = 1.0
MOST_NORM = 1e100
_SHORTEST = TableReport(0, 0, (), has_sums=False).to_dict()
#: What every report has.
REQUIRED = tuple(one.key for one in FACTS if one.part is None and one.key in _SHORTEST)


def party_name(context: Context) -> str:
    """Return a node's name in messages and errors: "party 0" and so on in a simulation.

    On a real node it is the ``name`` of the node config; without one that can be used, the first
    digits of Flower's id. It stays the same as long as the node is registered.
    """
    name = context.node_config.get("name")
    if "partition-id" in context.node_config:
        return f"party {context.node_config['partition-id']}"
    own = name.strip() if isinstance(name, str) else ""
    return node_name(context.node_id) if fault_of_name(own, MOST_OF_PARTY) else own


def node_name(node_id: int) -> str:
    """Return the name of a node that has none of its own."""
    return f"node {short_id(node_id)}"


def short_id(node_id: int) -> str:
    """Return the first digits of a node's id, by which ``flwr supernode list`` finds it."""
    return str(node_id)[:DIGITS_OF_ID]


def partition_of(context: Context) -> int:
    """Return the number of a simulated party; -1 on real nodes, and where it is no number."""
    number = context.node_config.get("partition-id")
    return number if isinstance(number, int) else -1


@cache
def own_version() -> str:
    """Return the version of flwr-causal that is installed, "unknown" where none is."""
    try:
        return version("flwr-causal")
    except PackageNotFoundError:
        return "unknown"


def probe() -> NDArray[np.float64]:
    """Return the probe that the question for the schema has."""
    return np.zeros(2)


def probe_returned(sent: NDArray[Any], norm: object) -> NDArray[np.float64] | None:
    """Return the probe that a party returns, moved by twice the norm; None of another form."""
    if sent.shape != probe().shape or sent.dtype != np.float64:
        return None
    if not isinstance(norm, float) or not 0 < norm < MOST_NORM:
        return None
    moved: NDArray[np.float64] = sent + 2.0 * norm / np.sqrt(sent.size)
    return moved


def is_clipped(returned: NDArray[Any] | None, norm: float) -> bool:
    """Return whether a mod of the party has clipped the probe to the norm."""
    if returned is None or returned.shape != probe().shape:
        return False
    return bool(np.linalg.norm(returned - probe()) <= norm * (1 + 1e-6))
