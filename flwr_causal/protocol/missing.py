"""The exchanges of moments of rows with missing cells, see :mod:`core.linear.missing`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.core.blocks.design import Number
from flwr_causal.core.linear.moments import columns_of
from flwr_causal.protocol.exchange import Disclosure, Exchange, Sent
from flwr_causal.protocol.second_moments import blocks_of

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.exchange import ReplyContext

# Sums of the same rows in different orders, which may travel as float32.
RELATIVE = 1e-3
WHEN = "missing_values='em'"


def _other_sums(arrays: Arrays, known: ReplyContext) -> str:
    """Return whether the diagonals differ from what the party reported, in words; "" if not."""
    if known.resampled or not known.report.has_sums:
        return ""
    setup, report = known.setup, known.report
    share = min(known.sizes["n"] / report.rows, 1.0)
    columns = {column.name: column for column in report.columns}
    blocks = blocks_of(setup)
    for block, places in zip(blocks, columns_of([one.width for one in blocks]), strict=True):
        if not isinstance(block, Number):
            continue
        name, first = block.name, places[0]
        rows = squares = 0.0
        if name in columns:
            column = columns[name]
            rows = report.rows_with(column) / report.rows
            mean = (column.mean - block.mean) / block.scale
            squares = column.squares / report.rows / block.scale**2 + rows * mean**2
        found = [float(arrays[part][first, first]) for part in ("counts", "products")]
        # Of a secure sum that lacks parties what was reported of all is an upper bound.
        for value, expected in zip(found, (rows, squares), strict=True):
            excess = share * value - expected
            if (excess if share < 1 else abs(excess)) > RELATIVE * (expected + 1e-6):
                return (
                    f"the sums of the column '{name}' are not those that the party reported in the "
                    "schema exchange; its table may have changed since"
                )
    return ""


SEEN = Exchange(
    "seen",
    "sums over the rows in which two cells are seen, for the first estimate",
    returns=(
        Disclosure(
            "counts",
            "at [i, j] the rows in which the columns i and j are seen, over n_k",
            ("w", "w"),
            "probability",
            "mean",
        ),
        Disclosure(
            "sums",
            "at [i, j] the sum of the column i over these rows, over n_k; numbers are centred and "
            "scaled, and a category has a column for each state but one",
            ("w", "w"),
            "finite",
            "mean",
        ),
        Disclosure(
            "products",
            "at [i, j] the sum of products of the columns i and j over these rows, over n_k",
            ("w", "w"),
            "finite",
            "mean",
        ),
    ),
    when=f"once, {WHEN}",
    same_parties=True,
    contradiction=_other_sums,
)

EXPECTED = Exchange(
    "expected",
    "second moments of the parties' rows, with missing cells as expected from the seen ones",
    sends=(
        Sent("mean", "estimated means of the columns", ("w",), exact=True),
        Sent("second", "estimated central second moments of the columns", ("w", "w"), exact=True),
    ),
    returns=(
        Disclosure(
            "expected",
            "E[X_k^T X_k | seen cells] / n_k of the rows [1, x], by the estimate; rows without a "
            "seen cell are left out",
            ("s", "s"),
            "second-moments",
            "mean",
        ),
    ),
    when=f"3 to 12 times, at most 30, {WHEN}",
    same_parties=True,
)
