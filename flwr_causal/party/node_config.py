"""The keys of a node's configuration, in one place."""

from __future__ import annotations

#: What each key means. docs/policy.md lists them.
KEYS = {
    "name": "the party's name in logs, errors and results",
    "data-path": "absolute path of its table, or of a directory of tables",
    "tables": "several tables: name=/path,name=/path",
    "policy": "absolute path of its policy, a TOML file",
    "record": "absolute path of its record; default: record.jsonl beside the policy",
    "releases": "absolute path of the directory in which it keeps private releases; default: "
    "releases beside the record",
    "secure-aggregation": "true: only runs in which the server learns sums over all parties alone",
    "sums-key": "absolute path of the party's key that signs its keys for secure sums",
    "peers": "absolute path of the parties' public keys, by which it knows theirs",
    "row-secret-file": "absolute path of the text under which ids of rows are hashed",
    "row-secret": "the text itself, which the machine's process list then shows",
    "model-path": "absolute path of a file in which the party keeps its circuits (fedpc)",
    "learner": "of the party's own circuits (fedpc)",
    "interventions": "columns on which interventions act in all of its rows",
    "partition-id": "in simulations only",
    "num-partitions": "in simulations only",
}
