"""Whether a party's table is still the one that it has reported on.

In the schema exchange a node keeps a digest of its table in its state, under a random key that it
keeps there too. Neither leaves the node. Each later message begins by comparing the table with it.
"""

from __future__ import annotations

import hashlib
import secrets
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ConfigRecord
from pandas.util import hash_pandas_object

from flwr_causal.data.check.columns import all_columns
from flwr_causal.data.read.pieces import LargeFile, pieces
from flwr_causal.errors import TableChangedError

if TYPE_CHECKING:
    import pandas as pd
    from flwr.app import RecordDict
    from numpy.typing import NDArray

    from flwr_causal.data.read.pieces import Table

#: The record in a node's state that holds key and digest.
TABLE = "table"
# A process may serve many simulated parties, whose tables stay in memory and need no second digest.
_LIMIT = 10_000

_latest: OrderedDict[str, tuple[weakref.ref[Any], str]] = OrderedDict()


def keep_digest(state: RecordDict, table: Table) -> None:
    """Store the digest of a table under a new key."""
    key = secrets.token_hex(32)
    state[TABLE] = ConfigRecord({"key": key, "digest": _digest_once(key, table)})


def check_digest(state: RecordDict, table: Table, party: str) -> None:
    """Check that a table is the one of the stored digest; without one, store it.

    Raises
    ------
    TableChangedError
        If it is another one.
    """
    record = state.get(TABLE)
    if not isinstance(record, ConfigRecord):
        keep_digest(state, table)
    elif _digest_once(str(record["key"]), table) != record["digest"]:
        raise TableChangedError(
            f"{party}: the table has changed since the schema exchange. Restore it as it was, or "
            "start the run again; with changed_tables='restart' the training starts again by "
            "itself."
        )


def digest(table: Table, key: str) -> str:
    """Return a digest of a table's column names, types and values, or of a large file's bytes.

    Of a large table in a database the rows are read for it.

    Parameters
    ----------
    table : DataFrame or LargeFile
        n rows, d columns.
    key : str
        Secret: tables with few possible contents could be guessed from a digest without one.
    """
    hashed = hashlib.blake2b(key=key.encode()[:64], digest_size=32)
    if isinstance(table, LargeFile):
        for path in table.files:
            with path.open("rb") as file:
                while part := file.read(2**20):
                    hashed.update(part)
        for piece in () if table.files else pieces(table):
            hashed.update(digest(piece, key).encode())
        return hashed.hexdigest()
    types = list(table.dtypes)
    one_type = bool(types) and types.count(types[0]) == len(types)
    shown = types[:1] if one_type else types
    hashed.update(repr((table.shape, list(map(str, table.columns)), shown)).encode())
    for piece in pieces(table):
        if one_type and _plain(types[0]):
            hashed.update(np.ascontiguousarray(piece.to_numpy()).data)
            continue
        for column in all_columns(piece):
            values = column.to_numpy() if _plain(column.dtype) else _hashed_values(column)
            hashed.update(np.ascontiguousarray(values).data)
    return hashed.hexdigest()


def _plain(dtype: object) -> bool:
    """Return whether values are numbers that numpy holds."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fiub"


def _hashed_values(column: pd.Series) -> NDArray[np.uint64]:
    """Return a number for each value of a column that is not of plain numbers."""
    try:
        return np.asarray(hash_pandas_object(column, index=False), dtype=np.uint64)
    except (TypeError, UnicodeEncodeError):  # lists and the like, and half surrogate pairs
        return np.asarray(hash_pandas_object(column.map(repr), index=False), dtype=np.uint64)


def _digest_once(key: str, table: Table) -> str:
    """Return the digest; it is not computed anew for a DataFrame that is still in memory."""
    known = _latest.pop(key, None)
    found = digest(table, key) if known is None or known[0]() is not table else known[1]
    _latest[key] = (weakref.ref(table), found)
    while len(_latest) > _LIMIT:
        _latest.popitem(last=False)
    return found
