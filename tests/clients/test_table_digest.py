"""The digest of a party's table: any change is seen, and a table that changes ends its messages."""

import numpy as np
import pandas as pd
import pytest
from federations import ask, make_federation, setup_for
from flwr.app import RecordDict

from flwr_causal.clients import NotearsADMMClient, Source, client_app
from flwr_causal.errors import TableChangedError
from flwr_causal.party import table_digest
from flwr_causal.party.table_digest import check_digest, digest, keep_digest
from flwr_causal.runtime.schema import exchange_schema
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import NotearsADMM

MIXED = pd.DataFrame(
    {
        "a": [1.0, 2.0, np.nan],
        "b": [1, 2, 3],
        "c": ["u", None, "v"],
        "d": pd.Categorical(["x", "y", "x"]),
        "e": [True, False, True],
        "f": pd.to_datetime(["2020-01-01", "2021-01-01", None]),
        "g": [[1], [2], "other"],
        "h": pd.array([1, None, 3], dtype="Int64"),
    }
)


def changed(column, row, value):
    table = MIXED.copy()
    table[column] = [value if k == row else old for k, old in enumerate(table[column])]
    return table.astype({column: MIXED[column].dtype})


@pytest.mark.parametrize(
    "other",
    [
        changed("a", 0, np.nextafter(1.0, 2.0)),
        changed("a", 2, 0.0),
        changed("b", 1, 7),
        changed("c", 0, "w"),
        changed("c", 1, "None"),
        changed("d", 0, "y"),
        changed("e", 0, False),
        changed("f", 0, pd.Timestamp("2020-01-02")),
        changed("g", 0, [3]),
        changed("h", 0, 2),
        MIXED.iloc[::-1].reset_index(drop=True),
        MIXED.iloc[:2],
        MIXED.rename(columns={"a": "z"}),
        MIXED.astype({"b": "float64"}),
        MIXED[list(MIXED)[::-1]],
    ],
)
def test_every_change_is_seen(other):
    assert digest(other, "key") != digest(MIXED, "key")


def test_an_equal_table_has_the_same_digest_under_the_same_key_alone():
    assert digest(MIXED.copy(), "key") == digest(MIXED, "key")
    assert digest(MIXED, "another") != digest(MIXED, "key")


def test_a_table_in_memory_is_hashed_once(monkeypatch):
    calls = []
    real = table_digest.digest
    monkeypatch.setattr(table_digest, "digest", lambda *a: (calls.append(1), real(*a))[1])
    state = RecordDict()
    keep_digest(state, MIXED)
    for _ in range(3):
        check_digest(state, MIXED, "north")
    assert len(calls) == 1
    check_digest(state, MIXED.copy(), "north")
    assert len(calls) == 2
    with pytest.raises(TableChangedError, match=r"^north: the table has changed"):
        check_digest(state, MIXED.iloc[:2], "north")


def test_without_a_digest_the_table_is_taken_as_it_is():
    state = RecordDict()
    check_digest(state, MIXED, "north")
    with pytest.raises(TableChangedError):
        check_digest(state, MIXED.iloc[:2], "north")


def test_a_changed_table_is_the_partys_error_until_it_is_restored():
    tables = make_federation(d=3, n=40, parties=2).tables
    now = list(tables)
    app = client_app(NotearsADMMClient, lambda c: Source("north", lambda: now[c.node_id - 2]))
    grid, setup = LocalGrid(app, 2), setup_for(tables)
    exchange_schema(NotearsADMM(), grid)
    sent = {"weights": np.zeros((1, 3, 3))}

    def reply():
        return ask(grid, 2, sent, penalty=0.3, relaxation=1.0, setup=setup)

    assert not reply().has_error()
    now[0] = tables[0] + 1e-9
    assert "TableChangedError: north: the table has changed" in reply().error.reason
    now[0] = tables[0].copy()
    assert not reply().has_error()


def test_one_message_sees_one_table():
    """A file that is replaced while a message is answered does not mix two tables."""
    tables = make_federation(d=3, n=40, parties=2).tables
    reads = []

    def read():
        reads.append(1)
        return tables[0]

    app = client_app(NotearsADMMClient, lambda c: Source("north", read))
    grid = LocalGrid(app, 2)
    exchange_schema(NotearsADMM(), grid)
    assert len(reads) == 2
    ask(
        grid,
        2,
        {"weights": np.zeros((1, 3, 3))},
        penalty=0.3,
        relaxation=1.0,
        setup=setup_for(tables),
    )
    assert len(reads) == 3
