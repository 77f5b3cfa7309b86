"""The first secure sum of a run: rows, sums and sums of squares of the agreed columns."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange
from flwr_causal.contract.report import MOST_ROWS
from flwr_causal.contract.when import POOLED
from flwr_causal.data.check.report import ColumnReport, TableReport, TotalReport
from flwr_causal.secure import ring
from flwr_causal.secure.ring import Size, SumError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TOTALS = Exchange(
    "totals",
    "rows, means and variances of all parties together",
    returns=(
        Disclosure(
            "totals",
            "number of rows, and of each agreed column its rows, the sum, the sum of squares, and "
            "that of the squared deviations from the party's mean; of methods on numbers also "
            "whether a few values lie apart, and whether it is skewed as amounts are (`apart` and "
            "`skewed` of a report), which add up to numbers of parties",
            ("*",),
            combine="sum",
        ),
    ),
    weight="one",
    timing="after the schema exchange",
    when=POOLED,
)
#: The number of this exchange; those of a method's own begin with 1.
TOTALS_NUMBER = 0
# Variances below it are rounding errors of the last digit.
_RESOLUTION = Fraction(4, 2**ring.FRACTION_BITS)
# A 1 stands so often before the numbers.
_FRAME = 2
# The sums of each column.
_OF_COLUMN = 6


def size(names: Sequence[str]) -> Size:
    """Return the words for these columns."""
    return Size(_FRAME, ring.WORDS * (1 + _OF_COLUMN * len(names)))


def vector_of(report: TableReport, names: Sequence[str]) -> NDArray[np.uint64]:
    """Return the numbers of a party's report that it withholds, shape (words,).

    Parameters
    ----------
    report : TableReport
    names : sequence of str
        The agreed columns; one that the party does not hold adds nothing.
    """
    columns = {column.name: column for column in report.columns}
    sums = [Fraction(report.rows)]
    for name in names:
        if name not in columns:
            sums += [Fraction(0)] * _OF_COLUMN
            continue
        column = columns[name]
        n = report.rows_with(column)
        mean, remainder = Fraction(column.mean), Fraction(column.remainder)
        squares = Fraction(column.squares)
        # Of the deviations from 0, and from the party's mean.
        about_zero = squares + (2 * remainder + n * mean) * mean
        within = squares - remainder**2 / max(n, 1)
        sums += [Fraction(n), n * mean + remainder, about_zero, within]
        sums += [Fraction(column.apart), Fraction(column.skewed)]
    return np.concatenate([np.ones(_FRAME, dtype=np.uint64), ring.encoded(sums)])


def report_of(
    total: NDArray[np.uint64], names: Sequence[str], parties: int, *, within: bool
) -> TotalReport:
    """Return the report on the rows of all parties together.

    Parameters
    ----------
    total : ndarray of uint64, shape (words,)
        The sum of the parties' masked vectors.
    names : sequence of str
    parties : int
        Their number.
    within : bool
        Whether the report's squares are summed within parties.

    Raises
    ------
    SumError
        If the masks do not cancel, or sums and sums of squares contradict each other.
    """
    if (total[:_FRAME] != parties).any():
        raise SumError(
            "The masks of the parties' replies do not cancel: a reply was altered, or a party has "
            "used other keys"
        )
    rows, *sums = ring.decoded(total[_FRAME:], parties)
    n = int(rows)
    if not 1 <= n <= parties * MOST_ROWS or rows != n:
        raise SumError(f"all parties together have {float(rows):g} rows")
    columns, between = [], []
    of_columns = [sums[k::_OF_COLUMN] for k in range(_OF_COLUMN)]
    for name, held, first, second, inner, apart, skewed in zip(names, *of_columns, strict=True):
        if not 1 <= held <= n:
            if held == 0:
                raise SumError(
                    f"the column '{name}' has no value at any party: leave it out, exclude='{name}'"
                )
            raise SumError(f"the column '{name}' has {float(held):g} of {n} rows")
        if not {apart, skewed} <= set(range(parties + 1)):
            raise SumError(f"the flags of the column '{name}' are not those of {parties} parties")
        # The mean as a float, and the sums of the deviations from it, as in a party's report.
        mean = Fraction(float(first / held))
        remainder = first - held * mean
        whole = second - (2 * remainder + held * mean) * mean
        between.append(float(max(whole - inner, Fraction(0))))
        squares = inner if within else whole
        if min(squares, whole - inner) < -n * _RESOLUTION:
            raise SumError(f"the sums of the column '{name}' cannot be those of {n} rows")
        squares = squares if squares > n * _RESOLUTION else Fraction(0)
        columns.append(
            ColumnReport(
                name,
                "numeric",
                missing=n - int(held),
                mean=float(mean),
                remainder=float(remainder),
                squares=float(squares),
                apart=apart > 0,
                skewed=skewed > 0,
            )
        )
    return TotalReport(n, 0, tuple(columns), bool(names), between=tuple(between))
