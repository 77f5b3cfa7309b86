"""A party's own table: the report on it, and the rows that the report counted."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.linear.combinations import combinations
from flwr_causal.data.check.columns import (
    PLAIN,
    all_columns,
    apply_cuts,
    as_numbers,
    check_exact,
    distinct_values,
    find_columns,
    find_numbers,
    interval_names,
    kind_of,
    named_states,
)
from flwr_causal.data.check.policy import MOST_FRACTIONS, Policy
from flwr_causal.data.check.report import (
    NUMBERS,
    ColumnReport,
    Kind,
    TableReport,
    tells_combinations,
)
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.discrete.discrete import Codes

#: Below it float64 holds every whole number.
LARGEST_EXACT = 2.0**53
#: A row dominates a column where it holds more than this share of the sum of squares, and Gaussian
#: rows would do so with less than this probability.
MOST_OF_SQUARES, CHANCE = 0.5, 1e-9


def complete_rows(frame: pd.DataFrame, policy: Policy | None = None) -> BoolArray:
    """Mark the rows that training uses.

    Parameters
    ----------
    frame : DataFrame
        n rows.
    policy : Policy, optional
        With ``missing_values="drop"`` a row counts if it has neither a missing nor an infinite
        value in any column (dropped text columns aside); else all rows count.

    Returns
    -------
    bool array of shape (n,)
    """
    policy = policy or Policy()
    complete = np.ones(len(frame), dtype=np.bool_)
    if policy.missing_values != "drop":
        return complete
    kinds = _kinds(frame)
    if policy.text_columns != "drop":
        texts = [position for position, kind in enumerate(kinds) if kind not in NUMBERS]
        complete &= frame.iloc[:, texts].notna().to_numpy(dtype=np.bool_).all(axis=1)
    return complete & np.isfinite(_number_block(frame, kinds)).all(axis=1)


def describe(
    frame: pd.DataFrame,
    policy: Policy | None = None,
    *,
    sums: bool = False,
    states: bool = False,
    relations: bool = False,
) -> TableReport:
    """Report on a party's table.

    Parameters
    ----------
    frame : DataFrame
        The table, as :func:`flwr_causal.data.read.tables.read_table` returns it.
    policy : Policy, optional
        The federation's policy: it decides which rows are kept. Default: all must be fine.
    sums : bool
        Compute the sums that centring and scaling need; they then leave the party.
    states : bool
        Name the different values of each column, as far as :class:`Policy` lets them be named;
        they then leave the party. For methods on categories.
    relations : bool
        Say which columns are linear combinations of others, and of which a single row has most of
        the variance. For linear methods.

    Returns
    -------
    TableReport

    Raises
    ------
    DataError
        For numbers that float64 cannot hold or tell apart, and with ``states`` for a category that
        is no text, number or boolean.
    """
    policy = policy or Policy()
    kept = complete_rows(frame, policy)
    kinds = _kinds(frame)
    block = _number_block(frame, kinds)
    _check_exact(frame, kinds, block, states=states)
    numbers = iter(_describe_numbers(block, kept, sums=sums, relations=relations))
    places = [position for position, kind in enumerate(kinds) if kind in NUMBERS]
    first_with: dict[bytes, int] = {}
    columns = []
    every = bool(kept.all())
    # Only where they are needed: pandas takes longer to cut out a column than to add it up.
    whole = all_columns(frame) if states or len(places) < len(kinds) else []
    rows = whole if every else [column[kept] for column in whole]
    for position, (name, kind) in enumerate(zip(map(str, frame.columns), kinds, strict=True)):
        if kind in NUMBERS:
            facts, digest = next(numbers)
            if relations:
                facts["combination_of"] = tuple(places[k] for k in facts["combination_of"])
        else:
            facts, digest = _describe_text(whole[position], rows[position])
        first = first_with.setdefault(digest, position)
        copy_of = None if first == position else first
        if states and kind != "other":
            facts |= _states(rows[position], name, kind, policy)
        columns.append(ColumnReport(name, kind, copy_of=copy_of, **facts))
    count = int(kept.sum())
    dropped = len(frame) - count
    return TableReport(count, dropped, tuple(columns), sums, states, has_relations=relations)


def prepare(frame: pd.DataFrame, names: Sequence[str], policy: Policy | None = None) -> FloatArray:
    """Return exactly the rows that :func:`describe` counted, as numbers.

    Parameters
    ----------
    frame : DataFrame
        The party's table.
    names : sequence of str
        The agreed columns, in the agreed order; found by name.
    policy : Policy, optional
        The policy that the table was described with.

    Returns
    -------
    float64 array of shape (n, d), C-contiguous

    Raises
    ------
    DataError
        A column is absent, doubled, not numeric, or not finite in a row that is kept.
    """
    kept = complete_rows(frame, policy)
    rows = _columns(frame, names)[kept]
    if not np.isfinite(rows).all():
        columns = zip(names, rows.T, strict=True)
        bad = [name for name, values in columns if not np.isfinite(values).all()]
        raise DataError(
            f"columns {', '.join(bad)} have missing or infinite values: fill them in, or leave "
            "those rows out with missing_values='drop'"
        )
    return rows


def prepare_states(
    frame: pd.DataFrame,
    names: Sequence[str],
    states: Sequence[Sequence[str]],
    policy: Policy | None = None,
    cuts: Mapping[str, FloatArray] | None = None,
) -> DiscreteTable:
    """Return exactly the rows that :func:`describe` counted, as states.

    Parameters
    ----------
    frame : DataFrame
        The party's table.
    names : sequence of str
        The agreed columns, in the agreed order; found by name.
    states : sequence of sequence of str
        The agreed states of each. Those of a column in ``cuts`` are not looked at.
    policy : Policy, optional
        The policy that the table was described with.
    cuts : mapping of str to float64 array, optional
        Agreed cut points, ascending, of the columns that are discretised; their states are
        :func:`~flwr_causal.data.check.columns.interval_names` of them.

    Returns
    -------
    DiscreteTable
        One variable for each name, every row once.

    Raises
    ------
    DataError
        A column is absent or doubled, has a missing or infinite value in a row that is kept, a
        value that is not among its states, or no agreed states yet.
    """
    cuts = cuts or {}
    kept = complete_rows(frame, policy)
    codes = np.zeros((len(names), int(kept.sum())), dtype=np.uint8)
    known = []
    every = bool(kept.all())
    columns = zip(names, states, find_columns(frame, names), strict=True)
    for position, (name, agreed, column) in enumerate(columns):
        rows = column if every else column[kept]
        if name in cuts:
            numbers = find_numbers(rows)
            _check_complete(name, np.isfinite(numbers).all())
            codes[position] = apply_cuts(numbers, cuts[name])
            known.append(interval_names(cuts[name]))
        else:
            codes[position] = _coded(name, rows, agreed)
            known.append(tuple(agreed))
    return DiscreteTable(tuple(names), tuple(known), codes)


def _coded(name: str, rows: pd.Series, states: Sequence[str]) -> Codes:
    """Return the position of each row's value among the states, shape (n,)."""
    kind = kind_of(rows)
    if kind == "other":
        raise DataError(f"column {name!r} ({rows.dtype}) holds no categories: make it text")
    values, codes = distinct_values(rows, kind)
    _check_complete(name, (codes >= 0).all())
    if not states and len(values):
        raise DataError(
            f"column {name!r} has no agreed states: it is to be discretised, so give its cut points"
        )
    labels, _ = named_states(values, name)
    place = {state: code for code, state in enumerate(states)}
    if not place.keys() >= set(labels):
        raise DataError(
            f"column {name!r} has a value that is not among its {len(states)} agreed states: the "
            "table must not change between the schema exchange and the training"
        )
    lookup: Codes = np.array([place[label] for label in labels], dtype=np.uint8)
    return lookup[codes]


def _check_complete(name: str, complete: Any) -> None:
    if not complete:
        raise DataError(
            f"column {name!r} has missing or infinite values: fill them in (with a state of their "
            "own, if that they are missing means something), or leave those rows out with "
            "missing_values='drop'"
        )


def _columns(frame: pd.DataFrame, names: Sequence[str]) -> FloatArray:
    """Return the named columns, shape (n, len(names)), C-contiguous; each must be there once."""
    if list(names) == list(frame.columns) and frame.columns.is_unique and _is_plain(frame):
        # One block: pandas caches single columns in the table, which costs more than small tables.
        return np.array(frame.to_numpy(dtype=np.float64), order="C")
    rows = np.empty((len(frame), len(names)))
    for position, column in enumerate(find_columns(frame, names)):
        rows[:, position] = find_numbers(column)
    return rows


def _is_plain(frame: pd.DataFrame) -> bool:
    """Say whether all columns have one numpy type of numbers."""
    types = list(frame.dtypes)
    first = types[0] if types else None
    plain = isinstance(first, np.dtype) and first.kind in PLAIN
    return plain and types.count(first) == len(types)


def _kinds(frame: pd.DataFrame) -> list[Kind]:
    if _is_plain(frame):
        return [kind_of(frame.iloc[:, 0])] * frame.shape[1]
    return [kind_of(column) for column in all_columns(frame)]


def _number_block(frame: pd.DataFrame, kinds: Sequence[Kind]) -> FloatArray:
    """Return the numeric columns only, in order, shape (n, number of them)."""
    if _is_plain(frame):
        return frame.to_numpy(dtype=np.float64)
    pairs = zip(kinds, all_columns(frame), strict=True)
    chosen = [column for kind, column in pairs if kind in NUMBERS]
    block = np.empty((len(frame), len(chosen)), order="F")
    for place, column in enumerate(chosen):
        block[:, place] = as_numbers(column)
    return block


def _check_exact(
    frame: pd.DataFrame, kinds: Sequence[Kind], block: FloatArray, *, states: bool
) -> None:
    """Check the columns of large whole numbers; see :func:`check_exact`."""
    # A float has lost what it lost before; states of plain whole numbers are named exactly.
    ignored = "f" + "iu" * states
    largest = np.fmax.reduce(block, axis=0, initial=0) - np.fmin.reduce(block, axis=0, initial=0)
    places = np.flatnonzero(largest > LARGEST_EXACT)
    if not len(places):
        return
    pairs = zip(kinds, all_columns(frame), strict=True)
    columns = [column for kind, column in pairs if kind in NUMBERS]
    for place in places:
        if columns[place].dtype.kind not in ignored:
            check_exact(columns[place], block[:, place])


def _describe_numbers(
    block: FloatArray, kept: BoolArray, *, sums: bool, relations: bool
) -> list[tuple[dict[str, Any], bytes]]:
    """Return the facts of each column, and a digest of its values."""
    missing = np.isnan(block).sum(axis=0)
    infinite = np.isinf(block).sum(axis=0)
    # Adding 0 turns negative zeros into positive ones, which they equal.
    values = np.asfortranarray(block[kept]) + 0.0
    digests = [_digest(column) for column in values.T]
    if len(values) and missing.any():
        values = _filled(values)
    constant = np.zeros(block.shape[1], dtype=np.bool_)
    if len(values):
        constant = (values == values[0]).all(axis=0)
    facts = {"missing": missing, "infinite": infinite, "distinct_one": constant}
    if sums:
        facts |= _sums(values, constant)
    plain: dict[str, list[Any]] = {key: column.tolist() for key, column in facts.items()}
    if relations:
        plain |= _relations(values, constant)
    return [
        ({key: column[place] for key, column in plain.items()}, digest)
        for place, digest in enumerate(digests)
    ]


def _relations(values: FloatArray, constant: BoolArray) -> dict[str, list[Any]]:
    """Return what each column is a combination of, and whether one row has most of its squares."""
    n, d = values.shape
    with np.errstate(over="ignore", invalid="ignore"):
        spread = values.std(axis=0) if n > 2 else np.full(d, np.nan)
    varies = ~constant & (spread > 0)
    if not np.isfinite(spread).all():
        return {"combination_of": [()] * d, "dominated": [False] * d}
    scaled = np.where(varies, values - values.mean(axis=0), 0.0) / np.where(varies, spread, 1.0)
    found = combinations(scaled.T @ scaled / n) if tells_combinations(n, d) else {}
    share = (scaled**2).max(axis=0) / n
    # An upper bound of how probable so large a share of one of n Gaussian rows is: the share is
    # (n - 1) / n times a variable of the beta distribution with 1/2 and (n - 2) / 2.
    rest, half = np.maximum(1 - share * n / (n - 1), 1e-15), (n - 2) / 2
    chance = n * rest**half / np.sqrt(np.pi * half * np.maximum(1 - rest, MOST_OF_SQUARES))
    # A rare state of two is no outlier.
    several = ((values > values.min(axis=0)) & (values < values.max(axis=0))).any(axis=0)
    return {
        "combination_of": [found.get(j, ()) for j in range(d)],
        "dominated": (several & (share > MOST_OF_SQUARES) & (chance < CHANCE)).tolist(),
    }


def _filled(values: FloatArray) -> FloatArray:
    """Return missing values as the mean of their column's others: sums of deviations stay."""
    missing = np.isnan(values)
    present = np.maximum((~missing).sum(axis=0), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.where(missing, 0.0, values).sum(axis=0) / present
    # The first of equal numbers, so that such a column stays constant.
    first = np.take_along_axis(values, missing.argmin(axis=0)[None], axis=0)[0]
    same = (missing | (values == first)).all(axis=0) & ~np.isnan(first)
    return np.where(missing, np.where(same, first, mean), values)


def _describe_text(column: pd.Series, rows: pd.Series) -> tuple[dict[str, Any], bytes]:
    """Return the facts of a column that is not numeric, and a digest of its kept rows."""
    missing = int(column.isna().sum())
    try:
        codes, values = pd.factorize(rows)
    except (TypeError, NotImplementedError):  # lists and the like, which are compared as texts
        codes, values = pd.factorize(rows.map(str))
    # Rows are equal if the values, in the order in which they occur, and their places are.
    content = "\0".join([str(value) for value in values]).encode(errors="surrogatepass")
    facts = {"missing": missing, "distinct_one": len(values) == 1 and bool((codes == 0).all())}
    return facts, _digest(codes) + hashlib.blake2b(content, digest_size=16).digest()


def _states(rows: pd.Series, name: str, kind: Kind, policy: Policy) -> dict[str, Any]:
    """Return the number of different values, whether they are whole, and the states if few."""
    values, _ = distinct_values(rows, kind)
    whole = kind == "numeric" and bool((values == np.floor(values)).all())
    few = policy.max_states
    if kind == "numeric" and policy.number_states:
        few = policy.number_states if whole else 0
    elif kind == "numeric" and not whole:
        # Measurements are not categories: their values need not leave the party.
        few = min(few, policy.discretize or MOST_FRACTIONS)
    if len(values) > few:
        return {"distinct": len(values), "whole": whole}
    _, states = named_states(values, name)
    return {"distinct": len(states), "whole": whole, "states": states}


def _digest(values: NDArray[Any]) -> bytes:
    return hashlib.blake2b(values.tobytes(), digest_size=16).digest()


def _sums(values: FloatArray, constant: BoolArray) -> dict[str, FloatArray]:
    """Return means, sums of deviations from them and of their squares; zeros where undefined."""
    if len(values) == 0:
        return {key: np.zeros(values.shape[1]) for key in ("mean", "remainder", "squares")}
    finite = np.isfinite(values).all(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        # The rounded mean of equal numbers need not be that number.
        mean = np.where(constant, values[0], values.mean(axis=0))
        deviations = values - mean
        remainder = deviations.sum(axis=0)
        squares = np.einsum("nd,nd->d", deviations, deviations)
    fits = finite & np.isfinite(squares)
    return {
        "mean": np.where(fits, mean, 0.0),
        "remainder": np.where(fits, remainder, 0.0),
        "squares": np.where(finite, np.where(fits, squares, np.inf), 0.0),
    }
