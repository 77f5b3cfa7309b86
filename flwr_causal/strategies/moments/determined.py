"""Moments without the columns that others determine, see :mod:`core.linear.determined`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.blocks.design import Number
from flwr_causal.core.linear.determined import RESIDUAL_SHARE, RIDGE, separation
from flwr_causal.core.linear.moments import mean_and_second
from flwr_causal.core.nonlinear.basis import SIZE
from flwr_causal.doubts.graphs import determined_warning
from flwr_causal.strategies.moments.blocks import blocks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.strategies.moments.options import MomentsOptions
    from flwr_causal.strategies.moments.outcome import PooledMoments

#: With missing cells variances are completed by estimates, in which :data:`RIDGE` has a part.
EM_SHARE = 10 * RIDGE


def without_determined(
    pooled: PooledMoments, options: MomentsOptions, *, joined: bool = False
) -> PooledMoments:
    """Return pooled moments by which a search goes, and name the columns that leave it.

    Parameters
    ----------
    pooled : PooledMoments
        With the products of the rows, and with those of each party where parties are compared.
    options : MomentsOptions
    joined : bool, default False
        Whether parties hold different columns: a party alone does not see all relations.
    """
    agreement = pooled.agreement
    widths, numbers = _widths(pooled, options)
    own = separation(
        _second(pooled.products, widths),
        agreement.n,
        agreement.names,
        required=pooled.masks.required,
        widths=widths,
        numbers=numbers,
        share=EM_SHARE if options.incomplete else RESIDUAL_SHARE,
    )
    if not own.changes:
        return pooled
    rows = () if joined else agreement.rows.values()
    said = determined_warning(own.found, agreement.names, rows, numbers)
    return replace(
        pooled,
        products=own.of(pooled.products),
        parts={name: own.of(part) for name, part in pooled.parts.items()},
        masks=own.masks(pooled.masks),
        warnings=(*said, *pooled.warnings),
    )


def _widths(pooled: PooledMoments, options: MomentsOptions) -> tuple[list[int], list[bool]]:
    """Return the columns of each variable and lag, and which of the variables are numbers."""
    agreement, d = pooled.agreement, len(pooled.agreement.names)
    if options.takes_blocks:
        blocks = blocks_of(agreement, options.model, options.order)
        return [one.width for one in blocks], [isinstance(one, Number) for one in blocks[:d]]
    # Of additive effects each variable has several functions; the first one is its value.
    width = SIZE if options.model == "additive" else 1
    return [width] * (d * (1 + options.order)), [True] * d


def _second(products: FloatArray, widths: Sequence[int]) -> FloatArray:
    """Return the central second moments of all rows, in whatever form their products are."""
    total, ones = products.sum(axis=0), products.shape[-1] - sum(widths)
    if not ones:
        return np.asarray(total)
    places = [0, *range(ones, len(total))]
    return mean_and_second(total[np.ix_(places, places)])[1]
