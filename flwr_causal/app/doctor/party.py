"""A party's side: its node's configuration, tables, policy and record."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from flwr_causal.app import methods
from flwr_causal.app.doctor.finding import Finding
from flwr_causal.compat import node_config_of
from flwr_causal.core.circuits.learners.by_name import NAMES
from flwr_causal.core.options import option_types
from flwr_causal.core.words import counted
from flwr_causal.data.check.party_table import SHOWN_CELLS, describe, repeated_rows, stray_cells
from flwr_causal.data.read.pieces import open_table
from flwr_causal.errors import CausalError
from flwr_causal.party.dictionary import MAP_KEY
from flwr_causal.party.identifiers import identifiers
from flwr_causal.party.node_config import NodeConfig, check_keys, weakness_of
from flwr_causal.party.policy import PartyPolicy
from flwr_causal.party.record import PartyRecord
from flwr_causal.party.tables import tables_of
from flwr_causal.secure.signatures import PEERS, SUMS_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY, RECORD = "policy", "record"
#: What to do, of keys of a node's configuration.
SIMULATED = "'partition-id' and 'num-partitions'"
WHERE = "Write this file, or correct its path in the node's configuration ('{}')."
TABLES = "Correct 'data-path', or 'tables', in the node's configuration, or put a table there."


def read_settings(text: str) -> tuple[NodeConfig | None, Finding | None]:
    """Return a node's configuration, or the finding why it cannot be used.

    Parameters
    ----------
    text : str
        As ``flower-supernode --node-config`` takes it: keys and values, or the path of a TOML file.
    """
    try:
        given = node_config_of(text)
        check_keys(given, clients=methods.CLIENTS)
        return NodeConfig.of(given), None
    except CausalError as error:
        found = Finding("problem", "node config", str(error), "docs/policy.md lists the keys.")
    except ValueError as error:
        remedy = "Write key='value' key='value'."
        found = Finding("problem", "node config", f"it cannot be read: {error}", remedy)
    return None, found


def read_policy(node: NodeConfig) -> tuple[PartyPolicy, Finding | None]:
    """Return a node's policy, and the finding if it cannot be used."""
    try:
        return PartyPolicy() if node.policy is None else PartyPolicy.read(node.policy), None
    except CausalError as error:
        remedy = f"Correct {node.policy}: the node takes part in no run until then."
        return PartyPolicy(), Finding("problem", POLICY, str(error), remedy)


def check_party(node: NodeConfig) -> Iterator[Finding]:
    """Check the files and tables that a node's configuration names.

    Parameters
    ----------
    node : NodeConfig
    """
    if not node.name:
        text = "the node has no name; logs would show Flower's number"
        yield Finding("note", "node config", text, "Give it a name of its own: name='north'.")
    if node.is_simulated:
        text = "'partition-id' means a simulation: the node would make up its data"
        yield Finding("problem", "node config", text, f"Take out {SIMULATED}.")
    if node.row_secret:
        text = "the process list of this machine shows 'row-secret'"
        yield Finding("note", "node config", text, "Write it into a file: row-secret-file.")
    files = {
        "row-secret-file": node.row_secret_file,
        SUMS_KEY: node.sums_key,
        PEERS: node.peers,
        MAP_KEY: node.dictionary_map,
    }
    for key, file in files.items():
        if file is not None and not file.is_file():
            yield Finding("problem", key, f"there is no file {file}", WHERE.format(key))
    if node.row_secret_file is not None and node.row_secret_file.is_file():
        try:
            weakness = weakness_of(
                node.row_secret_file.read_bytes().strip().decode(errors="replace")
            )
        except OSError as error:
            weakness = f"cannot be read: {error.strerror or error}"
        if weakness:
            text = f"the secret in {node.row_secret_file} {weakness}"
            yield Finding(
                "problem", "row-secret-file", text, "Let the parties agree on another one."
            )
    if node.learner and node.learner not in NAMES:
        text = f"there is no learner '{node.learner}'; there are {', '.join(NAMES)}"
        yield Finding("problem", "learner", text, "Correct 'learner', or leave it out.")
    policy, wrong = read_policy(node)
    if wrong is not None:
        yield wrong
    elif node.policy is not None:
        yield from _policy(policy, str(node.policy))
    else:
        text = "there is none: runs may ask what they like"
        yield Finding("note", POLICY, text, "Write one, and name it: policy='/path/policy.toml'.")
    yield from _tables(node, policy)
    yield from _record(node)


def _policy(policy: PartyPolicy, path: str) -> Iterator[Finding]:
    """Look for rules that name what there is not."""
    missing = [one for one in policy.methods if one not in methods.METHODS]
    if missing:
        text = f"there is no method {', '.join(missing)}"
        yield Finding("problem", POLICY, text, f"Correct 'methods' in {path}, or leave it out.")
    # The options of this package's methods were checked when the policy was read.
    for name in policy.options.keys() & (methods.METHODS.keys() - set(methods.OWN_METHODS)):
        known = option_types(methods.find(name).strategy.options_type)
        wrong = [one for one in policy.options[name] if one.replace("-", "_") not in known]
        if wrong:
            text = f"options.{name}: there is no option {', '.join(wrong)}"
            yield Finding(
                "problem", POLICY, text, f"Correct {path}: such a rule refuses every run."
            )
    yield Finding("ok", POLICY, f"{path} can be read")


def _tables(node: NodeConfig, policy: PartyPolicy) -> Iterator[Finding]:
    """Read every table as a run would see it."""
    try:
        tables = tables_of(node, policy)
    except CausalError as error:
        yield Finding("problem", "tables", str(error), TABLES)
        return
    if not tables:
        yield Finding("problem", "tables", "there is none that runs may use", TABLES)
    for name, path in tables.items():
        subject = f"table {name}".strip()
        try:
            table = open_table(path)
            report = describe(table)
        except CausalError as error:
            yield Finding("problem", subject, str(error), "flwr-causal check FILE shows more.")
            continue
        names = [one.name for one in report.columns if policy.columns.shows(one.name)]
        looks = [one for one in identifiers(table, names) if not policy.columns.knows(one)]
        missing = sum(column.missing > 0 for column in report.columns)
        rows = report.rows + report.dropped_rows
        text = f"{path}: {rows} rows, {len(names)} columns that runs see"
        yield Finding("ok", subject, f"{text}, {missing} of them with missing values")
        for column, row, value in islice(stray_cells(table, report), SHOWN_CELLS):
            yield Finding(
                "note",
                subject,
                f"column {column!r}: {value!r} in row {row} is no number, as most of the column is",
                "Correct it, unless the column holds codes: it counts as text.",
            )
        if count := repeated_rows(table):
            yield Finding(
                "note",
                subject,
                f"{counted(count, 'row')} of it repeat earlier ones in all columns",
                "Remove them if patients are in the table twice: they would count twice.",
            )
        if looks:
            text = (
                f"{', '.join(looks)} look like identifiers: runs leave them out, or are refused "
                "(identifiers='fail', epsilon)"
            )
            rules = node.policy or "a policy"
            remedy = (
                f"In {rules} withhold them (columns.never), or admit them (columns.identifiers)."
            )
            yield Finding("note", subject, text, remedy)
        if report.rows < policy.least_rows:
            text = f"{report.rows} complete rows are fewer than least-rows of the policy"
            remedy = f"Runs are refused. Take a table of more rows, or lower it in {node.policy}."
            yield Finding("problem", subject, text, remedy)


def _record(node: NodeConfig) -> Iterator[Finding]:
    """Look whether the record can be written, and whether it was changed."""
    path = node.record
    if path is None:
        text = "there is none: nothing says later what left"
        yield Finding("note", RECORD, text, "Name a file for it: record='/path/record.jsonl'.")
        return
    try:
        record = PartyRecord(path)
        record.try_to_open()
        record.check_chain()
        yield Finding("ok", RECORD, f"{path} can be written; {len(record.lines())} lines")
    except CausalError as error:
        remedy = f"Mend {path}, or name another file by 'record': nothing leaves until then."
        yield Finding("problem", RECORD, str(error), remedy)
