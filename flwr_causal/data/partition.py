"""Split a table among simulated parties, by rows or by columns, and set rows aside for a test.

All splits by rows follow one convention: every row of a ``frame`` of n rows goes to exactly one of
``num`` parties. Without a ``seed`` the rows keep the order of the table, and random sizes follow
from seed 0; with a seed the rows are shuffled first. The rows of each party are numbered from 0. A
split returns the list of the parties' tables; it raises a ConfigError if an argument is out of
range or there is no such column, and a DataError if labels are missing or rows are too few.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import pandas as pd

from flwr_causal.core.circuits.presence import joined_tables
from flwr_causal.core.words import some
from flwr_causal.data.roles import ROW_ID
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray, IndexArray


Partition = Literal["even", "uneven", "dirichlet", "sorted", "column"]
Setting = Literal["horizontal", "vertical", "hybrid"]

#: Smallest number of rows of a party in a random split, which the linear methods need.
MIN_ROWS = 2
#: Shares of the columns and of the rows that all parties have in the hybrid split.
SHARED_COLUMNS, SHARED_ROWS = 0.3, 0.5


def split_even(frame: pd.DataFrame, num: int, seed: int | None = None) -> list[pd.DataFrame]:
    """Split into parties whose numbers of rows differ by at most one.

    Parameters
    ----------
    num : int
        Parties, 1 to n.
    seed : int, optional
        Seed of the shuffle. Default: the rows keep the order of the table.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.data.partition import split_even
    >>> [len(party) for party in split_even(pd.DataFrame({"x": range(7)}), 3)]
    [3, 2, 2]
    """
    order = _order(len(frame), num, seed, min_rows=1)
    return _take(frame, np.array_split(order, num))


def split_uneven(
    frame: pd.DataFrame, num: int, seed: int | None = None, concentration: float = 1.0
) -> list[pd.DataFrame]:
    """Split into parties with random numbers of rows, at least two each.

    Parameters
    ----------
    num : int
        Parties, at most n / 2.
    seed : int, optional
        Seed of the sizes and of the shuffle. Default: the sizes of seed 0, and the order of the
        table.
    concentration : float, default 1
        Parameter of the symmetric Dirichlet distribution of the shares: 1 is uniform over all
        divisions, large values give nearly equal shares, small values give one party almost all
        rows.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.data.partition import split_uneven
    >>> sizes = [len(party) for party in split_uneven(pd.DataFrame({"x": range(20)}), 3, seed=0)]
    >>> sum(sizes), min(sizes) >= 2
    (20, True)
    """
    _check_concentration(concentration)
    order = _order(len(frame), num, seed, MIN_ROWS)
    shares = draw_shares(_generator(seed, 1), concentration, num)
    sizes = MIN_ROWS + round_shares(shares, len(frame) - num * MIN_ROWS)
    return _take(frame, np.split(order, np.cumsum(sizes)[:-1]))


def split_by_column(frame: pd.DataFrame, column: str, num: int) -> list[pd.DataFrame]:
    """Split by the values of a column, such as the condition of an experiment.

    The parties are in the order in which their values first occur.

    Parameters
    ----------
    column : str
        The column with one value for each party; it is removed from the parties' tables.
    num : int
        Number of parties, which must equal the number of different values.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.data.partition import split_by_column
    >>> frame = pd.DataFrame({"x": [1, 2, 3], "ward": ["b", "a", "b"]})
    >>> [party["x"].tolist() for party in split_by_column(frame, "ward", 2)]
    [[1, 3], [2]]
    """
    _check_column(frame, column)
    codes, values = pd.factorize(frame[column])
    if num != len(values):
        raise ConfigError(
            f"partition-column {column!r} has {len(values)} values ({some(map(str, values))}), but "
            f"there are {num} parties: run with "
            f"num-supernodes={len(values)}, or choose another column"
        )
    parts = [np.flatnonzero(codes == code) for code in range(num)]
    return _take(frame.drop(columns=column), parts)


def split_dirichlet(
    frame: pd.DataFrame, column: str, num: int, alpha: float = 0.5, seed: int | None = None
) -> list[pd.DataFrame]:
    """Split so that the distribution of a column differs between the parties (label skew).

    For each value, the shares of the parties are drawn from a Dirichlet distribution with parameter
    ``alpha`` (Hsu, Qi & Brown 2019; Yurochkin et al. 2019). Parties with fewer than two rows then
    get rows of the largest party.

    Parameters
    ----------
    column : str
        The column of labels, which the parties' tables keep.
    num : int
        Number of parties, at most n / 2.
    alpha : float, default 0.5
        Small values give skewed distributions, large values equal ones. The default is the usual
        choice of the literature and of Flower.
    seed : int, optional
        Seed of the shares and of the shuffle. Default: the shares of seed 0, and the order of the
        table.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.data.partition import split_dirichlet
    >>> frame = pd.DataFrame({"x": range(40), "ill": [0, 1] * 20})
    >>> parties = split_dirichlet(frame, "ill", 2, alpha=0.5, seed=0)
    >>> sum(map(len, parties)), list(parties[0])
    (40, ['x', 'ill'])
    """
    _check_concentration(alpha)
    _check_column(frame, column)
    order = _order(len(frame), num, seed, MIN_ROWS)
    codes = pd.factorize(frame[column])[0][order]
    generator = _generator(seed, 2)
    members: list[list[int]] = [[] for _ in range(num)]
    for code in range(int(codes.max()) + 1):
        rows = order[codes == code]
        sizes = round_shares(draw_shares(generator, alpha, num), len(rows))
        for party, part in enumerate(np.split(rows, np.cumsum(sizes)[:-1])):
            members[party].extend(part.tolist())
    for own in members:
        while len(own) < MIN_ROWS:
            own.append(max(members, key=len).pop())
    if seed is None:
        members = [sorted(own) for own in members]
    return _take(frame, [np.array(own, dtype=np.intp) for own in members])


def split_sorted(
    frame: pd.DataFrame, column: str, num: int, seed: int | None = None
) -> list[pd.DataFrame]:
    """Sort the rows by a column and split them into equal consecutive parts (extreme label skew).

    If the labels are equally frequent and there are as many parties, each party has one label.

    Parameters
    ----------
    column : str
        The column to sort by, which the parties' tables keep.
    num : int
        Number of parties, 1 to n.
    seed : int, optional
        Seed of the shuffle of rows with the same label. Default: the order of the table.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.data.partition import split_sorted
    >>> frame = pd.DataFrame({"ill": [0, 1, 0, 1]})
    >>> [party["ill"].tolist() for party in split_sorted(frame, "ill", 2)]
    [[0, 0], [1, 1]]
    """
    _check_column(frame, column)
    order = _order(len(frame), num, seed, min_rows=1)
    codes = pd.factorize(frame[column], sort=True)[0][order]
    return _take(frame, np.array_split(order[np.argsort(codes, kind="stable")], num))


def split(
    frame: pd.DataFrame,
    num: int,
    how: str = "even",
    *,
    column: str | None = None,
    seed: int | None = None,
    concentration: float | None = None,
) -> list[pd.DataFrame]:
    """Split the rows of a table by the method that an option names.

    Parameters
    ----------
    frame : DataFrame
        n rows.
    num : int
        Number of parties.
    how : {"even", "uneven", "dirichlet", "sorted", "column"}, default "even"
        The function ``split_...`` to use; config key ``partition``.
    column : str, optional
        The column, needed by "dirichlet", "sorted" and "column"; config key ``partition-column``.
    seed : int, optional
        Seed of the shuffle. Default: the order of the table.
    concentration : float, optional
        Used by "uneven" (default 1) and "dirichlet" (default 0.5).

    Returns
    -------
    list of DataFrame
        The table of each party.

    Raises
    ------
    ConfigError
        If ``how`` is unknown, a column is missing or not used, or the function raises it.
    DataError
        If the function raises it.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.data.partition import split
    >>> frame = pd.DataFrame({"x": [1, 2, 3], "ward": ["b", "a", "b"]})
    >>> [len(party) for party in split(frame, 2, "column", column="ward")]
    [2, 1]
    """
    if how not in get_args(Partition):
        raise ConfigError(f"partition is {how!r}: choose one of {', '.join(get_args(Partition))}")
    if how in ("even", "uneven"):
        if column:
            raise ConfigError(
                f"partition-column is {column!r}, but partition={how!r} uses none: "
                "choose partition='column', 'sorted' or 'dirichlet', or leave it out"
            )
        if how == "even":
            return split_even(frame, num, seed)
        return split_uneven(frame, num, seed, 1.0 if concentration is None else concentration)
    if not column:
        raise ConfigError(f"partition={how!r} needs partition-column: name a column of the table")
    if how == "column":
        return split_by_column(frame, column, num)
    if how == "sorted":
        return split_sorted(frame, column, num, seed)
    alpha = 0.5 if concentration is None else concentration
    return split_dirichlet(frame, column, num, alpha, seed)


def even_sizes(total: int, num: int) -> list[int]:
    """Return ``num`` whole numbers with the sum ``total`` that differ by at most one."""
    return [total // num + (k < total % num) for k in range(num)]


def _take(frame: pd.DataFrame, parts: Sequence[IndexArray]) -> list[pd.DataFrame]:
    return [frame.iloc[part].reset_index(drop=True) for part in parts]


def _generator(seed: int | None, purpose: int) -> np.random.Generator:
    """Return a generator for each purpose, so that sizes do not depend on the shuffle."""
    return np.random.default_rng([0 if seed is None else seed, purpose])


def _order(rows: int, num: int, seed: int | None, min_rows: int) -> IndexArray:
    if isinstance(num, bool) or not isinstance(num, int) or num < 1:
        raise ConfigError(f"the number of parties is {num!r}: give a whole number, 1 or more")
    if rows < num * min_rows:
        raise DataError(
            f"{rows} rows are too few for {num} parties with {min_rows} row(s) each: "
            f"use at most {rows // min_rows} parties, or more data"
        )
    if seed is None:
        return np.arange(rows)
    return _generator(seed, 0).permutation(rows)


def _check_concentration(concentration: float) -> None:
    if not (np.isfinite(concentration) and concentration > 0):
        raise ConfigError(f"the partition's concentration is {concentration!r}: it must be above 0")


def _check_column(frame: pd.DataFrame, column: str) -> None:
    count = list(frame.columns).count(column)
    if count != 1:
        problem = "not in the table" if count == 0 else f"in the table {count} times"
        raise ConfigError(
            f"partition-column {column!r} is {problem}: choose one of {', '.join(frame.columns)}"
        )
    missing = int(frame[column].isna().sum())
    if missing:
        raise DataError(
            f"partition-column {column!r} has {missing} missing values: fill them in, "
            "so that every row belongs to a party"
        )


def draw_shares(generator: np.random.Generator, concentration: float, num: int) -> FloatArray:
    """Draw from the symmetric Dirichlet distribution.

    The draws are computed in logarithms, because gamma draws with a tiny concentration underflow.

    Parameters
    ----------
    generator : numpy.random.Generator
        The generator of random numbers.
    concentration : float
        Above 0; 1 is uniform over all divisions.
    num : int
        Number of shares.

    Returns
    -------
    float64 array of shape (num,)
        Non-negative, with the sum 1.
    """
    # Gamma(a) = Gamma(a + 1) U^(1/a) in distribution (Marsaglia & Tsang 2000, section 6).
    logs = np.log(generator.gamma(concentration + 1.0, size=num))
    logs += np.log1p(-generator.random(num)) / concentration
    shares: FloatArray = np.exp(logs - logs.max())
    shares /= shares.sum()
    return shares


def round_shares(shares: FloatArray, total: int) -> IndexArray:
    """Round shares of a total to whole numbers with that sum, by largest remainders.

    Parameters
    ----------
    shares : float64 array of shape (num,)
        Non-negative, with the sum 1.
    total : int
        The number to divide, at least 0.

    Returns
    -------
    int array of shape (num,)
        Numbers with the sum ``total``, each within 1 of its exact share.
    """
    exact = shares * total
    sizes = np.floor(exact).astype(np.intp)
    largest_first = np.argsort(sizes - exact, kind="stable")
    sizes[largest_first[: total - int(sizes.sum())]] += 1
    return sizes


def split_columns(
    frame: pd.DataFrame,
    num: int,
    setting: Literal["vertical", "hybrid"],
    *,
    target: str = "",
    row_id: str = ROW_ID,
    seed: int = 0,
) -> list[pd.DataFrame]:
    """Split the columns of a table among parties at random.

    Parameters
    ----------
    frame : DataFrame
        n rows.
    num : int
        Number of parties.
    setting : {"vertical", "hybrid"}
        Vertical: every party has all rows and its own columns; the first party also has the target.
        Hybrid: all parties have the target and 30 % of the other columns; half of the rows are at
        all parties, each other row is at one party.
    target : str, optional
        The target's column. Default: no target.
    row_id : str, default "row_id"
        The column of row ids, which every party has. If the table has no such column, the ids are
        the row numbers.
    seed : int, default 0
        Seed of the split.

    Returns
    -------
    list of DataFrame
        The table of each party.

    Raises
    ------
    ConfigError
        If the setting is unknown, or the table has no column ``target``.
    DataError
        If there are fewer columns than parties.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.data.partition import split_columns
    >>> frame = pd.DataFrame({"a": [1, 2], "b": [3, 4], "ill": [0, 1]})
    >>> first, second = split_columns(frame, 2, "vertical", target="ill")
    >>> "ill" in first, "ill" in second, "row_id" in second
    (True, False, True)
    """
    if setting not in get_args(Setting)[1:]:
        raise ConfigError(f"setting is {setting!r}: choose 'vertical' or 'hybrid'")
    if target and target not in frame.columns:
        raise ConfigError(f"the table has no column {target!r}: set target to one of its columns")
    if row_id not in frame.columns:
        frame = frame.assign(**{row_id: np.arange(len(frame))})
    features = [name for name in frame.columns if name not in (target, row_id)]
    rng = np.random.default_rng([seed, 3])
    order = rng.permutation(len(features))
    num_shared = round(SHARED_COLUMNS * len(features)) if setting == "hybrid" else 0
    if len(features) - num_shared < num:
        raise DataError(f"{len(features)} columns are too few for {num} parties: use fewer parties")
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

    The choice depends on id or values only, not on the party: a row that several parties have is
    set aside at all of them.

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
        The rows for training, by party.
    test : DataFrame
        The rows set aside, in one table (:func:`joined_tables`).

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.data.partition import hold_out
    >>> tables = [pd.DataFrame({"x": range(50)}), pd.DataFrame({"x": range(50, 100)})]
    >>> training, test = hold_out(tables, 0.2)
    >>> sum(map(len, training)) + len(test)
    100
    """
    if not 0 <= share < 1:
        raise ConfigError(f"the share of rows for the test is {share}: give 0 or more, below 1")
    chosen = [_unit_hashes(table, row_id, seed) < share for table in tables]
    train = [t[~rows].reset_index(drop=True) for t, rows in zip(tables, chosen, strict=True)]
    test = [t[rows].reset_index(drop=True) for t, rows in zip(tables, chosen, strict=True)]
    return train, joined_tables(test, row_id)


def _unit_hashes(table: pd.DataFrame, row_id: str, seed: int) -> np.ndarray:
    """Return a number in [0, 1) for each row, (n,), the same for the same id or values."""
    hashed = table[[row_id]] if row_id in table.columns else table
    several = hashed.shape[1] > 1
    texts = hashed.astype(str).agg("\x1f".join, axis=1) if several else hashed.iloc[:, 0]
    salt = str(seed).encode()
    digests = (
        hashlib.blake2b(str(text).encode(), digest_size=6, key=salt).digest() for text in texts
    )
    return np.array([int.from_bytes(digest, "big") / 2.0**48 for digest in digests])
