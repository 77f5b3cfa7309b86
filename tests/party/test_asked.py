"""Exchanges that are answered a few times: another question under one agreement is refused."""

import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from federations import ask
from tampering import Tampering, guarded, recorded

from flwr_causal.errors import AskedOtherwiseError, FederationError
from flwr_causal.party.door import ASKED_FILE, MOST_AGREEMENTS, note_question
from flwr_causal.protocol import records
from flwr_causal.strategies import Describe, FedGES, run

_ROWS = np.random.default_rng(0).normal(size=(120, 2))
TABLES = [
    pd.DataFrame(part, columns=["x", "y"]).assign(s=np.where(part[:, 0] > 0, "u", "v"))
    for part in np.split(_ROWS, 3)
]


class Watching(Tampering):
    """Keeps what the first party is sent, by exchange."""

    def __init__(self, grid):
        super().__init__(grid, lambda config, kind: None)
        self.last, self.setup = {}, {}

    def changed(self, message):
        config = records.config_of(message.content)
        if "exchange" in config and "round" in config:
            own = {key: one for key, one in config.items() if key.startswith("setup-")}
            self.setup = own or self.setup
            arrays = records.arrays_of(message.content)
            self.last.setdefault(config["exchange"], ({**self.setup, **config}, arrays))
        return message


def asked_again(grid, exchange, watched, **changes):
    config, arrays = watched.last[exchange]
    reply = ask(grid, grid.get_node_ids()[0], {**arrays, **changes}, **config)
    return str(reply.error.reason) if reply.has_error() else ""


@pytest.mark.parametrize("restarted", [False, True])
def test_tables_are_answered_once_an_agreement_also_after_a_restart(tmp_path, restarted):
    grid = guarded(TABLES, tmp_path, 'methods = ["describe"]')
    watched = Watching(grid)
    run(Describe(), watched)
    other = watched.last["tables"][1]["lacking"] + 0.25
    if restarted:
        # The state of the node is lost; of its table it is told again.
        grid = guarded(TABLES, tmp_path, 'methods = ["describe"]')
        run(Describe(), Watching(grid))
    assert not asked_again(grid, "tables", watched)
    assert "'tables' is answered once" in asked_again(grid, "tables", watched, lacking=other)
    assert not asked_again(grid, "tables", watched)
    assert recorded(tmp_path)[-2]["event"] == "refused"


def test_cut_points_are_searched_in_so_many_exchanges(tmp_path):
    grid = guarded(TABLES, tmp_path, "")
    watched = Watching(grid)
    run(FedGES(mode="exact", discretize=2, parameters=False), watched)
    thresholds = watched.last["cuts"][1]["thresholds"]
    reasons = [
        asked_again(grid, "cuts", watched, thresholds=thresholds + step) for step in range(1, 9)
    ]
    assert "" in reasons
    assert "'cuts' is answered 8 times" in reasons[-1]


def test_cut_points_are_the_same_in_all_exchanges_of_an_agreement(tmp_path):
    """Counts of other intervals, exchange after exchange, would narrow down single values."""
    grid = guarded(TABLES, tmp_path, "")
    watched = Watching(grid)
    run(FedGES(mode="exact", discretize=2, parameters=False), watched)
    cuts = watched.last["counts"][1]["cuts"]
    assert not asked_again(grid, "counts", watched, cuts=cuts)
    other = asked_again(grid, "counts", watched, cuts=cuts + 0.5)
    assert "AskedOtherwiseError: 'values of cuts' is answered once" in other


class Node:
    def __init__(self):
        self.state = {}


def test_questions_are_kept_by_agreement_in_the_state_or_in_a_file(tmp_path):
    for directory in (None, tmp_path / "releases"):
        node = Node()

        def note(agreement, digest, node=node, directory=directory):
            note_question(node, directory, agreement, {"one": (digest, 1), "two": ("d", 2)})

        note("a", "1")
        note("b", "2")  # another agreement in between
        note("a", "1")
        with pytest.raises(AskedOtherwiseError, match="'one' is answered once"):
            note("a", "2")
        # What was not answered does not count.
        note_question(node, directory, "a", {"two": ("e", 2)})
        with pytest.raises(AskedOtherwiseError, match="'two' is answered 2 times"):
            note_question(node, directory, "a", {"two": ("f", 2)})
        for k in range(MOST_AGREEMENTS):
            note(f"more {k}", "1")
        note("a", "2")
    (tmp_path / "releases" / ASKED_FILE).write_text("[")
    with pytest.raises(FederationError, match="nothing leaves the party"):
        note_question(Node(), tmp_path / "releases", "a", {"one": ("1", 1)})


@pytest.mark.parametrize("changed_tables", ["fail", "restart"])
def test_a_signed_run_has_one_answer_whatever_agreements_the_server_makes(tmp_path, changed_tables):
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    (tmp_path / "key").write_bytes(pem)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    grid = guarded(TABLES, tmp_path, f'askers = ["{public}"]')
    watched = Watching(grid)
    method = Describe(signing_key=str(tmp_path / "key"), changed_tables=changed_tables)
    run(method, watched)
    other = watched.last["tables"][1]["lacking"] + 0.25
    for config, _ in watched.last.values():
        config["setup-exchange"] = "f" * 16
    assert not asked_again(grid, "tables", watched)
    found = asked_again(grid, "tables", watched, lacking=other)
    assert "'tables' is answered once" in found
    config = watched.last["tables"][0]
    config["setup-exchange"] = "e" * 16
    found = asked_again(grid, "tables", watched, lacking=other)
    # After changes of the tables a run has another agreement.
    assert ("'tables' is answered once" in found) is (changed_tables == "fail")
