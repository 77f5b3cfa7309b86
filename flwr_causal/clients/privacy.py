"""The party's side of differential privacy: its noise, and what it never draws twice.

The noise comes from the operating system, never from the option ``seed``, which the server knows.
The party computes how much it needs from epsilon and delta itself. What it has drawn is kept in the
node's state: the same question gets the same answer, and another question in the same run gets
none.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from flwr.app import Array, ArrayRecord, ConfigRecord

from flwr_causal.core.privacy.budget import budget_of
from flwr_causal.core.privacy.discrete_gaussian import discrete_gaussian
from flwr_causal.core.privacy.release import (
    noise_of,
    octaves_of,
    products_of,
    read,
    scales_of,
    steps_of_noise,
    variance_of_counts,
)
from flwr_causal.core.privacy.scales import Scaling, scales_by_column
from flwr_causal.data.check.columns import all_columns
from flwr_causal.data.check.report import ColumnReport, TableReport
from flwr_causal.data.interventions import NODE_KEY
from flwr_causal.data.read.pieces import pieces
from flwr_causal.errors import ConfigError, DataError, FederationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from flwr.app import Context

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.privacy.budget import Budget
    from flwr_causal.core.privacy.release import Released
    from flwr_causal.data.read.pieces import Table

#: The records in a node's state that hold what was drawn.
DRAWN = (
    "private-octaves",
    "private-octaves-question",
    "private-release",
    "private-release-question",
)


def is_private(options: Mapping[str, Any]) -> bool:
    """Return whether a run's options ask for differential privacy."""
    return bool(options.get("epsilon"))


def public_report(context: Context, table: Table) -> TableReport:
    """Return a report that depends on nothing but the names of the columns.

    Raises
    ------
    ConfigError
        If the node's configuration states interventions, which a private run does not use.
    """
    if NODE_KEY in context.node_config:
        raise ConfigError(
            "its node config states interventions, which a run with epsilon does not use: take "
            "them out"
        )
    columns = tuple(ColumnReport(str(name), "numeric") for name in table.columns)
    return TableReport(0, 0, columns, has_sums=False, withheld=True)


def numbers(table: Table, names: Sequence[str]) -> Iterator[FloatArray]:
    """Yield the rows of a table in pieces of shape (rows, d); what is no number is NaN.

    Raises
    ------
    DataError
        If there is no such column.
    """
    for piece in pieces(table):
        by_name = {str(column.name): column for column in all_columns(piece)}
        lacking = [name for name in names if name not in by_name]
        if lacking:
            raise DataError(f"there is no column {lacking[0]!r} any more")
        yield np.column_stack(
            [
                pd.to_numeric(by_name[name], errors="coerce").to_numpy(np.float64, na_value=np.nan)
                for name in names
            ]
        )


def budget(options: Mapping[str, Any], *, estimates: bool) -> Budget:
    """Return the noise that the run's epsilon and delta need."""
    return budget_of(float(options["epsilon"]), float(options["delta"]), estimates=estimates)


def drawn_octaves(
    context: Context, rows: Iterator[FloatArray], multiplier: float, parties: int, columns: str
) -> IntArray:
    """Return the noisy histograms of columns, the same each time.

    Parameters
    ----------
    context : Context
        Of the node, in whose state they are kept.
    rows : iterator of ndarray of shape (rows, d)
    multiplier : float
        Standard deviation of the noise of the sum, in units of the sensitivity.
    parties : int
        Among how many parties this noise is shared.
    columns : str
        Their names, for the question.
    """

    def draw() -> IntArray:
        counts = octaves_of(rows)
        variance = variance_of_counts(len(counts), multiplier, parties)
        noise = [discrete_gaussian(variance, secrets.randbelow) for _ in range(counts.size)]
        return counts + np.array(noise, dtype=np.int64).reshape(counts.shape)

    return _once(context, DRAWN[:2], f"{columns} {multiplier!r} {parties}", draw)


def drawn_products(
    context: Context,
    rows: Iterator[FloatArray],
    scaling: tuple[FloatArray, FloatArray],
    multiplier: float,
    parties: int,
    columns: str,
) -> IntArray:
    """Return the noisy products of the rows, the same each time.

    Parameters
    ----------
    context, rows, multiplier, parties, columns
        As of :func:`drawn_octaves`.
    scaling : tuple of ndarray of shape (d,)
        Centres and scales.
    """

    def draw() -> IntArray:
        products = products_of(rows, *scaling)
        d = len(products) - 1
        return products + noise_of(d, steps_of_noise(d, multiplier, parties), secrets.randbelow)

    shown = [values.tolist() for values in scaling]
    return _once(context, DRAWN[2:], f"{columns} {shown} {multiplier!r} {parties}", draw)


def released(
    context: Context, table: Table, names: tuple[str, ...], options: Mapping[str, Any]
) -> Released:
    """Return the moments of a party's own release, the same each time.

    All of the noise is its own: what follows from the release needs no further protection.

    Parameters
    ----------
    context : Context
        Of the node.
    table : DataFrame or LargeFile
    names : tuple of str
        The columns that are released.
    options : mapping
        With epsilon, delta and scales. Scales that are lacking are estimated from the party's rows.
    """
    stated = scales_by_column(str(options["scales"]))
    lacking = [name for name in names if name not in stated]
    noise, estimated = budget(options, estimates=bool(lacking)), None
    if noise.scales is not None:
        rows = numbers(table, lacking)
        counts = drawn_octaves(context, rows, noise.scales, 1, str(lacking))
        variance = variance_of_counts(len(lacking), noise.scales, 1)
        estimated = scales_of(counts, variance, lacking)
    scaling = Scaling.of(names, stated, estimated)
    assert scaling is not None
    products = drawn_products(context, numbers(table, names), scaling, noise.release, 1, str(names))
    return read(products, steps_of_noise(len(names), noise.release, 1), *scaling)


def _once(
    context: Context, records: Sequence[str], question: str, draw: Callable[[], IntArray]
) -> IntArray:
    """Return what was drawn for a question before, or draw it and keep it.

    Raises
    ------
    FederationError
        If something was drawn for another question in this run.
    """
    answers, questions = records
    kept, asked = context.state.get(answers), context.state.get(questions)
    if isinstance(kept, ArrayRecord) and isinstance(asked, ConfigRecord):
        if asked["question"] != question:
            raise FederationError(
                "The party has made its private release in this run, with other columns, scales or "
                "options, and makes no second one: start another run, whose epsilon adds to that "
                "of this one."
            )
        return kept["drawn"].numpy().astype(np.int64)
    drawn = draw()
    context.state[answers] = ArrayRecord({"drawn": Array(drawn)})
    context.state[questions] = ConfigRecord({"question": question})
    return drawn
