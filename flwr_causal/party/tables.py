"""Which of a party's tables a run is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr_causal.data.read.tables import SUFFIXES
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.party.door import policy_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.party.policy import PartyPolicy

#: The keys of the node config: a file or a directory, or names with their files.
PATH, TABLES = "data-path", "tables"


def table_path(node_config: Mapping[str, Any], wanted: str = "") -> Path:
    """Return the file of the table that a run names.

    Parameters
    ----------
    node_config : mapping
        With ``data-path``, a file or a directory whose files are tables by their names without
        suffix, or ``tables``, such as ``"survey=/data/a.csv,labs=/data/b.parquet"``. The files of a
        directory are listed anew in each call. A ``policy`` may withhold tables.
    wanted : str, default ""
        The name; it may be left out where there is one table.

    Raises
    ------
    ConfigError
        If ``tables`` or the policy cannot be read.
    DataError
        If the node config states no table, or none of this name.
    """
    there = tables_of(node_config, policy_of(node_config))
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


def tables_of(node_config: Mapping[str, Any], policy: PartyPolicy) -> dict[str, Path]:
    """Return the tables that runs may use, by name; the only one of a node may have none.

    Parameters
    ----------
    node_config : mapping
        As of :func:`table_path`.
    policy : PartyPolicy
        It may withhold tables.

    Raises
    ------
    ConfigError, DataError
        As of :func:`table_path`.
    """
    named = {key: node_config[key] for key in node_config if key.split(".")[0] == TABLES}
    if (PATH in node_config) is bool(named):
        raise DataError(
            "This node's config has no path of its data, or two. Start its SuperNode with "
            "--node-config \"data-path='/absolute/path/to/table.csv'\", a directory of tables, or "
            "tables='name=/path,name=/path'."
        )
    path = Path(str(node_config.get(PATH, "")))
    if PATH in node_config and not path.is_dir():
        return {"": path}
    there = _in_directory(path) if PATH in node_config else _named(named)
    return {name: file for name, file in there.items() if policy.gives(name)}


def _in_directory(directory: Path) -> dict[str, Path]:
    """Return the tables of a directory by their files' names without suffix."""
    found: dict[str, Path] = {}
    for file in sorted(directory.iterdir()):
        suffixes = [suffix for suffix in SUFFIXES if file.name.lower().endswith(suffix)]
        if not suffixes or file.name.startswith("."):
            continue
        name = file.name[: -max(map(len, suffixes))]
        if name in found:
            raise DataError(f"this node has two tables of the name '{name}': rename one")
        found[name] = file
    return found


def _named(given: Mapping[str, Any]) -> dict[str, Path]:
    """Return the tables of ``tables``, a text of pairs, or of ``tables.NAME`` in a TOML file."""
    pairs = [pair.partition("=") for pair in str(given.get(TABLES, "")).split(",") if pair.strip()]
    pairs += [
        (key[len(TABLES) + 1 :], "=", str(path)) for key, path in given.items() if key != TABLES
    ]
    found: dict[str, Path] = {}
    for pair in pairs:
        name, equals, path = (part.strip() for part in pair)
        if not (name and equals and Path(path).is_absolute()) or name in found:
            raise ConfigError(
                "'tables' of the node config is not of the form name=/absolute/path,"
                "name=/absolute/path with different names"
            )
        found[name] = Path(path)
    return found
