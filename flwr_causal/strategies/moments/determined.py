"""Moments without the columns that others determine, see :mod:`core.linear.determined`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flwr_causal.core.blocks.design import Number
from flwr_causal.core.linear.determined import RESIDUAL_SHARE, RIDGE, separation
from flwr_causal.core.linear.moments import mean_and_second
from flwr_causal.doubts.graphs import determined_warning

if TYPE_CHECKING:
    from flwr_causal.sources.products import Products
    from flwr_causal.strategies.moments.options import MomentsOptions

#: With missing cells variances are completed by estimates, in which :data:`RIDGE` has a part.
EM_SHARE = 10 * RIDGE


def without_determined(
    pooled: Products, options: MomentsOptions, *, joined: bool = False
) -> Products:
    """Return the products with each determined column apart, and a warning that names them.

    Such a column has no edges and no covariances; where knowledge requires an edge of it, a raised
    variance.

    Parameters
    ----------
    pooled : Products
        With the products of the rows, and with those of each party where parties are compared.
    options : MomentsOptions
    joined : bool, default False
        Whether parties hold different columns: a party alone does not see all relations.
    """
    agreement, design = pooled.agreement, pooled.design
    # Of additive effects the first function of a variable is its value.
    numbers = [isinstance(one, Number) for one in design.variables]
    own = separation(
        mean_and_second(design.without_mark(pooled.values.sum(axis=0)))[1],
        agreement.n,
        agreement.names,
        required=pooled.masks.required,
        widths=design.widths,
        numbers=numbers,
        share=EM_SHARE if options.incomplete else RESIDUAL_SHARE,
    )
    if not own.changes:
        return pooled
    rows = () if joined else agreement.rows.values()
    said = determined_warning(own.found, agreement.names, rows, numbers)
    return replace(
        pooled,
        values=own.of(pooled.values),
        of_fewer_lags=None if pooled.of_fewer_lags is None else own.of(pooled.of_fewer_lags),
        parts={name: own.of(part) for name, part in pooled.parts.items()},
        masks=own.masks(pooled.masks),
        warnings=(*said, *pooled.warnings),
    )
