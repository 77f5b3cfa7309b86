"""Tables whose columns lie with different parties, and rows set aside for a test."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from flwr_causal.core.circuits.joined_tables import joined_tables
from flwr_causal.data.read.roles import ROW_ID
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

__all__ = ["Setting", "hold_out", "split_columns"]

Setting = Literal["horizontal", "vertical", "hybrid"]

#: Of the hybrid split: columns that all parties hold, and rows that all of them have.
SHARED_COLUMNS, SHARED_ROWS = 0.3, 0.5


def split_columns(
    frame: pd.DataFrame,
    num: int,
    setting: Literal["vertical", "hybrid"],
    *,
    target: str = "",
    row_id: str = ROW_ID,
    seed: int = 0,
) -> list[pd.DataFrame]:
    """Deal the columns of a table out among parties, at random.

    Parameters
    ----------
    frame : DataFrame
        n rows.
    num : int
        Parties.
    setting : {"vertical", "hybrid"}
        Vertical: every party has all rows and its own columns, the first one the target too.
        Hybrid: all parties share the target and 30 % of the other columns; half of the rows are
        known to all, the others to one party each.
    target : str, optional
    row_id : str
        The column of ids, which every party has; where there is none it numbers the rows.
    seed : int, default 0

    Raises
    ------
    ConfigError, DataError
        If there is no such setting or target, or fewer columns than parties.
    """
    if setting not in get_args(Setting)[1:]:
        raise ConfigError(f"setting is {setting!r}: choose 'vertical' or 'hybrid'")
    if target and target not in frame.columns:
        raise ConfigError(f"the table has no column {target!r}, which is to be the target")
    if row_id not in frame.columns:
        frame = frame.assign(**{row_id: np.arange(len(frame))})
    features = [name for name in frame.columns if name not in (target, row_id)]
    rng = np.random.default_rng([seed, 3])
    order = rng.permutation(len(features))
    num_shared = round(SHARED_COLUMNS * len(features)) if setting == "hybrid" else 0
    if len(features) - num_shared < num:
        raise DataError(f"{len(features)} columns cannot be dealt out to {num} parties: too few")
    shared = {features[k] for k in order[:num_shared]}
    common = rng.random(len(frame)) < (SHARED_ROWS if setting == "hybrid" else 1.0)
    owner = rng.integers(0, num, len(frame))
    parties = []
    for party, places in enumerate(np.array_split(order[num_shared:], num)):
        own = shared | {features[k] for k in places} | {row_id}
        if target and (setting == "hybrid" or party == 0):
            own.add(target)
        columns = [name for name in frame.columns if name in own]
        rows = common | (owner == party)
        parties.append(frame.loc[rows, columns].reset_index(drop=True))
    return parties


def hold_out(
    tables: Sequence[pd.DataFrame], share: float, seed: int = 0, row_id: str = ROW_ID
) -> tuple[list[pd.DataFrame], pd.DataFrame]:
    """Set rows aside for a test: those whose id, or values, hash to a small number.

    What is set aside does not depend on which party has the row: a row of several parties is set
    aside by all of them.

    Parameters
    ----------
    tables : sequence of DataFrame
    share : float
        Of the rows, 0 <= share < 1.
    seed : int, default 0
    row_id : str
        The column of ids, where the tables have one.

    Returns
    -------
    tables : list of DataFrame
        What is left for training.
    test : DataFrame
        The rows set aside, in one table (:func:`joined_tables`).
    """
    if not 0 <= share < 1:
        raise ConfigError(f"the share of rows for the test is {share}: give 0 or more, below 1")
    chosen = [_unit_hashes(table, row_id, seed) < share for table in tables]
    train = [t[~rows].reset_index(drop=True) for t, rows in zip(tables, chosen, strict=True)]
    test = [t[rows].reset_index(drop=True) for t, rows in zip(tables, chosen, strict=True)]
    return train, joined_tables(test, row_id)


def _unit_hashes(table: pd.DataFrame, row_id: str, seed: int) -> np.ndarray:
    """Return a number in [0, 1) for each row, (n,), the same for the same id or values."""
    told = table[[row_id]] if row_id in table.columns else table
    texts = told.astype(str).agg("\x1f".join, axis=1) if told.shape[1] > 1 else told.iloc[:, 0]
    salt = str(seed).encode()
    digests = (
        hashlib.blake2b(str(text).encode(), digest_size=6, key=salt).digest() for text in texts
    )
    return np.array([int.from_bytes(digest, "big") / 2.0**48 for digest in digests])
