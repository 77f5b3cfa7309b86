"""Second moments of joined rows, of parties that hold different columns: a mode of Moments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.blocks.design import column_names, functions_of
from flwr_causal.doubts.tables import few_rows
from flwr_causal.strategies.columns import joined_sums
from flwr_causal.strategies.linear import OWN_LEVELS, divisors
from flwr_causal.strategies.moments.blocks import blocks_of
from flwr_causal.strategies.moments.outcome import PooledMoments, products_with_ones

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.moments import Moments
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.doubts.tables import Expected
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.columns import Holders, JoinedMoments
    from flwr_causal.strategies.moments.options import MomentsOptions


def joined_moments(
    agreement: Agreement,
    masks: EdgeMasks,
    holders: Holders,
    options: MomentsOptions,
    *,
    replicate: int,
    expected: Expected,
) -> Generator[Step, Any, PooledMoments]:
    """Add up products of the columns of different parties, in three exchanges.

    Parameters
    ----------
    agreement : Agreement
    masks : EdgeMasks
    holders : Holders
        Which party holds which column, with lags and folds.
    options : MomentsOptions
    replicate : int
    expected : Expected
        What the method takes for granted of the parties' rows.
    """
    # How many rows there are is known once they are matched.
    expected = replace(expected, columns=functions_of(options.model))
    if options.takes_blocks:
        blocks = blocks_of(agreement, options.model, options.order)
        return (yield from _of_blocks(agreement, masks, holders, blocks, replicate, expected))
    d, lags = len(agreement.names), 1 + holders.order
    joined = yield from joined_sums(holders)
    moments = joined.moments(replicate)
    # Columns are centred by means of parties' rows; rows of series by their own.
    level = moments.mean[:d] * (options.center not in OWN_LEVELS)
    own = _joined_agreement(agreement, moments, level)
    units = np.tile(np.sqrt(agreement.variance) / divisors(own.variance, options.standardize), lags)
    if holders.order:
        parts = [moments] if replicate else joined.folds()
        level = np.tile(level, lags)
        products = np.array([_leveled(part, moments.n, level, units) for part in parts])
    else:
        products = (moments.second * np.outer(units, units))[None]
    return _pooled(joined, own, masks, products, few_rows(own, expected))


def _of_blocks(
    agreement: Agreement,
    masks: EdgeMasks,
    holders: Holders,
    blocks: Sequence[Variable],
    replicate: int,
    expected: Expected,
) -> Generator[Step, Any, PooledMoments]:
    """Add up products of the columns of blocks: of variables and their lags."""
    widths = [block.width for block in blocks]
    holders = replace(
        holders,
        names=column_names(blocks),
        presence=np.repeat(holders.presence, widths, axis=1),
        variables=tuple(np.repeat(holders.variables, widths).tolist()),
    )
    joined = yield from joined_sums(holders)
    moments = joined.moments(replicate)
    own = replace(agreement, total=moments.n)
    products = products_with_ones(moments.mean, moments.second)[None]
    return _pooled(joined, own, masks, products, few_rows(own, expected))


def _pooled(
    joined: JoinedMoments,
    agreement: Agreement,
    masks: EdgeMasks,
    products: FloatArray,
    warnings: Sequence[str],
) -> PooledMoments:
    """Return the moments of joined rows, with what the sums say of them."""
    return PooledMoments(
        agreement,
        masks,
        products,
        info=joined.info,
        warnings=(*warnings, *joined.warnings),
        num_rows=joined.plan.num_rows,
        reason="the exchange of products is done",
    )


def _leveled(moments: Moments, num_rows: int, level: FloatArray, units: FloatArray) -> FloatArray:
    """Return the products of rows [1, 1, z] over the number of all rows, from a fold's moments.

    Parameters
    ----------
    moments : Moments
        Of the m columns.
    num_rows : int
        Of all folds.
    level, units : ndarray of shape (m,)
        z is the columns less the level, times the units.
    """
    second = moments.second * np.outer(units, units)
    products = products_with_ones((moments.mean - level) * units, second, 2)
    return np.asarray(moments.n / num_rows * products)


def _joined_agreement(agreement: Agreement, moments: Moments, level: FloatArray) -> Agreement:
    """Return the agreement with means, variances and rows of the joined rows.

    Parameters
    ----------
    agreement : Agreement
        Of the parties' own rows.
    moments : Moments
        Of columns that are centred and scaled by it; lags are after them.
    level : ndarray of shape (d,)
        What is to be subtracted yet; variances are mean squares about it.
    """
    spread, d = np.sqrt(agreement.variance), len(agreement.names)
    return replace(
        agreement,
        mean=agreement.mean + spread * level,
        variance=agreement.variance * (moments.variances[:d] + (moments.mean[:d] - level) ** 2),
        total=moments.n,
    )
