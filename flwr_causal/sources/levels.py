"""Levels of parties, or of series: sums within them, where they differ (``center="auto"``).

A party always sends two arrays, and the server decides which it uses: the products of its rows z
about the mean of each of its units, and those of the means. All of its rows without time are a
unit, and each of its series. Both add up over parties, to the products within units; together they
are the products about one mean.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.levels import (
    Levels,
    about_one_mean,
    pieces_products,
    unit_products,
)
from flwr_causal.data.series.levels import require_varying
from flwr_causal.doubts.tables import doubts_by
from flwr_causal.runtime.algorithm import Choice
from flwr_causal.sources.products import in_new_units, products_with_ones

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.sources.products import Products
    from flwr_causal.sources.rows import DesignRows


def products_within(rows: DesignRows) -> FloatArray:
    """Return the products of a party's rows about the means of its units, and of these means.

    Shape (2, 1 + s, 1 + s), see :func:`core.linear.levels.unit_products`.
    """
    if not rows.options.lags:
        return pieces_products(rows.sum_rows())
    return unit_products(np.concatenate([*rows.sum_rows()]), rows.series_of_rows())


def about_levels(pooled: Products, *, stated: bool) -> Generator[Step, object, Products]:
    """Return the products within units where levels differ, else about one mean.

    A replicate takes over what the main training has decided.

    Parameters
    ----------
    pooled : Products
        Of all rows, from :func:`products_within`.
    stated : bool
        Whether the option ``center`` says that levels are taken out, even if they do not differ.

    Raises
    ------
    DataError
        If levels are taken out as stated, and a column varies between units only.
    """
    design = pooled.design
    count = sum(one.width for one in design.variables)
    levels = Levels.of(pooled.values, pooled.agreement.n, design.columns, count)
    flat = named(design.blocks, levels.flat)
    if stated:
        require_varying(flat, "series" if design.order else "party")
    apart = bool(levels.differ.any())
    taken = yield Choice(lambda: stated or (apart and not flat))
    if apart and not stated:
        said = told(design.blocks, levels.shares, levels.differ, flat)
        pooled = replace(pooled, warnings=(*pooled.warnings, *said))
    if taken:
        return _within(pooled, levels)
    return replace(pooled, values=about_one_mean(pooled.values)[None])


def _within(pooled: Products, levels: Levels) -> Products:
    """Return the products of rows about the means of their units, and the mean of all rows."""
    within, agreement, design = levels.within, pooled.agreement, pooled.design
    values = products_with_ones(within.mean, within.second)
    own = replace(agreement, total=within.n)
    if design.single:
        # Standard deviations are those within units.
        d = len(agreement.names)
        variance = within.variances[:d] * design.scale**2
        own = replace(own, variance=variance)
        if (design.scale != 1).any():
            scaled = design.with_scales(np.sqrt(variance))
            units = np.tile(design.scale / scaled.scale, 1 + design.order)
            values, design = in_new_units(values, units), scaled
    return replace(
        pooled,
        agreement=own,
        design=design,
        values=values[None],
        num_rows=agreement.n,
        info={**pooled.info, "levels": levels.units},
        units=levels.units,
    )


def told(
    blocks: Sequence[Variable], shares: FloatArray, differ: BoolArray, flat: Sequence[str]
) -> tuple[str, ...]:
    """Return the warning of levels that differ.

    Parameters
    ----------
    blocks : sequence of Variable
        The variables, and then their lags.
    shares, differ : ndarray of shape (m,)
        Of the first columns, see :class:`core.linear.levels.Levels`.
    flat : sequence of str
        The columns that vary between units only.
    """
    names = _names(blocks)
    whose = "series" if len(names) > len(shares) else "parties"
    return doubts_by(names=names, shares=shares, differ=differ, flat=flat, whose=whose)


def named(blocks: Sequence[Variable], marked: BoolArray) -> list[str]:
    """Return the variables of the columns that are marked, each once."""
    return list(dict.fromkeys(np.array(_names(blocks))[marked].tolist()))


def _names(blocks: Sequence[Variable]) -> list[str]:
    """Return the name of the variable of each column."""
    return [one.name for one in blocks for _ in range(one.width)]
