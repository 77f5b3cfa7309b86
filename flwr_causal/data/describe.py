"""Look at a party's own table: report on it, and return the rows that the report counted."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from flwr_causal.data.policy import Policy
from flwr_causal.data.report import NUMBERS, ColumnReport, Kind, TableReport
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["complete_rows", "describe", "kind_of", "prepare"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def kind_of(column: pd.Series) -> Kind:
    """Say what a column holds; missing values are passed over."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    if pd.api.types.is_bool_dtype(dtype):
        return "boolean"
    if pd.api.types.is_complex_dtype(dtype):
        return "other"
    if pd.api.types.is_numeric_dtype(dtype):
        return "numeric"
    if pd.api.types.is_object_dtype(dtype):
        inferred = pd.api.types.infer_dtype(column, skipna=True)
        if inferred in ("integer", "floating", "mixed-integer-float", "decimal", "empty"):
            return "numeric"
        by_inference: dict[str, Kind] = {"boolean": "boolean", "string": "category"}
        return by_inference.get(inferred, "other")
    return "category" if pd.api.types.is_string_dtype(dtype) else "other"


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
    frame: pd.DataFrame, policy: Policy | None = None, *, sums: bool = False
) -> TableReport:
    """Report on a party's table.

    Parameters
    ----------
    frame : DataFrame
        The table, as :func:`flwr_causal.data.tables.read_table` returns it.
    policy : Policy, optional
        The federation's policy: it decides which rows are kept. Default: all must be fine.
    sums : bool
        Compute the sums that centring and scaling need; they then leave the party.

    Returns
    -------
    TableReport
    """
    kept = complete_rows(frame, policy)
    kinds = _kinds(frame)
    numbers = iter(_describe_numbers(_number_block(frame, kinds), kept, sums=sums))
    first_with: dict[bytes, int] = {}
    columns = []
    for position, (name, kind) in enumerate(zip(frame.columns, kinds, strict=True)):
        if kind in NUMBERS:
            facts, digest = next(numbers)
        else:
            facts, digest = _describe_text(frame.iloc[:, position], kept)
        first = first_with.setdefault(digest, position)
        copy_of = None if first == position else first
        columns.append(ColumnReport(name, kind, copy_of=copy_of, **facts))
    rows = int(kept.sum())
    return TableReport(rows, len(frame) - rows, tuple(columns), sums)


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
            "those rows out with missing-values='drop'"
        )
    return rows


def _columns(frame: pd.DataFrame, names: Sequence[str]) -> FloatArray:
    """Return the named columns, shape (n, len(names)), C-contiguous; each must be there once."""
    available = list(frame.columns)
    if list(names) == available and (frame.dtypes == np.float64).all() and frame.columns.is_unique:
        # One block: taking single columns leaves notes in the table, more than small tables weigh.
        return np.array(frame.to_numpy(), order="C")
    rows = np.empty((len(frame), len(names)))
    for position, name in enumerate(names):
        count = available.count(name)
        if count != 1:
            there = f"there {count} times" if count else "missing"
            raise DataError(
                f"column {name!r} is {there} in the table, which has {', '.join(available)}: "
                "give the column this name, once"
            )
        column = frame[name]
        if kind_of(column) not in NUMBERS:
            raise DataError(
                f"column {name!r} is not numeric ({column.dtype}): convert it to numbers, or leave "
                "such columns out with text-columns='drop'"
            )
        rows[:, position] = _numbers(column)
    return rows


def _numbers(column: pd.Series) -> FloatArray:
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _kinds(frame: pd.DataFrame) -> list[Kind]:
    if (frame.dtypes == np.float64).all():
        return ["numeric"] * frame.shape[1]
    return [kind_of(frame.iloc[:, position]) for position in range(frame.shape[1])]


def _number_block(frame: pd.DataFrame, kinds: Sequence[Kind]) -> FloatArray:
    """Return the numeric columns only, in order, shape (n, number of them)."""
    if (frame.dtypes == np.float64).all():
        return frame.to_numpy(dtype=np.float64)
    chosen = [position for position, kind in enumerate(kinds) if kind in NUMBERS]
    block = np.empty((len(frame), len(chosen)), order="F")
    for place, position in enumerate(chosen):
        block[:, place] = _numbers(frame.iloc[:, position])
    return block


def _describe_numbers(
    block: FloatArray, kept: BoolArray, *, sums: bool
) -> list[tuple[dict[str, Any], bytes]]:
    """Return the facts of each column, and a digest of its values."""
    missing = np.isnan(block).sum(axis=0)
    infinite = np.isinf(block).sum(axis=0)
    # Adding 0 turns negative zeros into positive ones, which they equal.
    values = np.asfortranarray(block[kept]) + 0.0
    constant = np.zeros(block.shape[1], dtype=np.bool_)
    if len(values):
        constant = (values == values[0]).all(axis=0)
    facts = {"missing": missing, "infinite": infinite, "distinct_one": constant}
    if sums:
        facts |= _sums(values, constant)
    plain = {key: column.tolist() for key, column in facts.items()}
    return [
        ({key: column[place] for key, column in plain.items()}, _digest(values[:, place]))
        for place in range(block.shape[1])
    ]


def _describe_text(column: pd.Series, kept: BoolArray) -> tuple[dict[str, Any], bytes]:
    texts = column[kept].astype(str)
    facts = {"missing": int(column.isna().sum()), "distinct_one": texts.nunique() == 1}
    return facts, _digest(pd.util.hash_pandas_object(texts, index=False).to_numpy())


def _digest(values: npt.NDArray[Any]) -> bytes:
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
