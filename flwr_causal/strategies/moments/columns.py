"""Second moments of joined rows, of parties that hold different columns: a mode of Moments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.blocks.design import functions_of
from flwr_causal.doubts.tables import few_rows
from flwr_causal.strategies.columns import joined_sums
from flwr_causal.strategies.linear import OWN_LEVELS
from flwr_causal.strategies.moments.outcome import (
    PooledMoments,
    design_of,
    in_new_units,
    products_with_ones,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.moments import Moments
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.doubts.tables import Expected
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.columns import Holders
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
    design, lags = design_of(agreement, options), 1 + options.order
    holders = replace(
        holders,
        names=design.columns,
        presence=np.repeat(holders.presence, design.widths, axis=1),
        variables=tuple(np.repeat(holders.variables, design.widths).tolist()),
    )
    joined = yield from joined_sums(holders)
    moments = joined.moments(replicate)
    parts = [moments] if replicate or not holders.order else joined.folds()
    own = replace(agreement, total=moments.n)
    level, units = np.zeros(moments.d), np.ones(moments.d)
    if design.single:
        # Columns are centred by means of parties' rows; rows of series by their own.
        now = moments.mean[: len(agreement.names)] * (options.center not in OWN_LEVELS)
        own = _joined_agreement(agreement, moments, now)
        design = design_of(own, options)
        level = np.tile(now, lags)
        # Columns arrive in the standard deviations that the parties reported.
        units = np.tile(np.sqrt(agreement.variance) / design.scale, lags)
    products = np.array([_products(part, moments.n, level, units) for part in parts])
    return PooledMoments(
        own,
        masks,
        design,
        products,
        info=joined.info,
        warnings=(*few_rows(own, expected), *joined.warnings),
        num_rows=joined.plan.num_rows,
        reason="the exchange of products is done",
    )


def _products(moments: Moments, num_rows: int, level: FloatArray, units: FloatArray) -> FloatArray:
    """Return the products of rows [1, z] over the number of all rows, from a fold's moments.

    Parameters
    ----------
    moments : Moments
        Of the s columns.
    num_rows : int
        Of all folds.
    level, units : ndarray of shape (s,)
        z is the columns less the level, times the units.
    """
    products = products_with_ones(moments.mean - level, moments.second)
    return np.asarray(moments.n / num_rows * in_new_units(products, units))


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
