"""Which of a party's tables a run is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.core.words import as_seen
from flwr_causal.data.read.origin import table_name, tables_in
from flwr_causal.data.read.pieces import whole
from flwr_causal.errors import DataError
from flwr_causal.party.door import policy_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flwr_causal.data.read.pieces import Table
    from flwr_causal.party.node_config import NodeConfig
    from flwr_causal.party.policy import PartyPolicy


def table_path(node: NodeConfig, wanted: str = "") -> Path:
    """Return the file of the table that a run names.

    Parameters
    ----------
    node : NodeConfig
        With ``data-path``, a file or a directory whose files are tables by their names without
        suffix, or ``tables``, such as ``"survey=/data/a.csv,labs=/data/b.parquet"``. The files of a
        directory are listed anew in each call. A ``policy`` may withhold tables.
    wanted : str, default ""
        The name; it may be left out where there is one table.

    Raises
    ------
    ConfigError
        If the policy cannot be read.
    DataError
        If the node config states no table, or none of this name.
    """
    there = tables_of(node, policy_of(node))
    if wanted and "" in there:
        raise DataError(
            f"the run asks for the table '{wanted}', and this node has one table without a name: "
            "leave 'data' out, or give the node a directory of tables"
        )
    if wanted in there:
        return there[wanted]
    if not wanted and len(there) == 1:
        return next(iter(there.values()))
    names = ", ".join(sorted(there)) or "none"
    asked = f"has no table '{wanted}'" if wanted else "has several tables"
    raise DataError(f"this node {asked}: give a name by the option 'data', of: {names}")


def with_party(table: Table, name: str, party: str) -> Table:
    """Return a table with a further column whose cells are all the party's name.

    Parameters
    ----------
    table : DataFrame or LargeFile
        All of a large file is then in memory, as states of columns need it.
    name : str
        Of the column.
    party : str
        The party's name.

    Raises
    ------
    DataError
        If the table has a column of this name.
    """
    if name in table.columns:
        raise DataError(
            f"its table has a column {name!r}, which is also the option 'party_column': choose "
            "another name for the option, or leave it out and use the table's column"
        )
    return whole(table).assign(**{name: party})


def tables_of(node: NodeConfig, policy: PartyPolicy) -> dict[str, Path]:
    """Return the tables that runs may use, by name; the only one of a node may have none.

    Parameters
    ----------
    node : NodeConfig
        As of :func:`table_path`.
    policy : PartyPolicy
        It may withhold tables.

    Raises
    ------
    DataError
        If the node config states no table, or has a directory with two tables that runs may use
        whose names a reader cannot tell apart.
    """
    path = node.data_path
    if (path is not None) is bool(node.tables):
        raise DataError(
            "This node's config has no path of its data, or two. Start its SuperNode with "
            "--node-config \"data-path='/absolute/path/to/table.csv'\", a directory of tables, or "
            "tables='name=/path,name=/path'."
        )
    if path is not None and not path.is_dir():
        return {"": path}
    there = node.tables.items() if path is None else _in_directory(path)
    found: dict[str, Path] = {}
    # Of the names of the others an error says nothing.
    for name, file in there:
        if not policy.gives(name):
            continue
        if as_seen(name) in map(as_seen, found):
            raise DataError(f"this node has two tables of the name '{name}': rename one")
        found[name] = file
    return found


def _in_directory(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield the tables of a directory with their files' names without suffix."""
    for file in tables_in(directory):
        yield table_name(file), file
