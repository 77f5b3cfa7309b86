"""Products without the columns that others determine, see :mod:`core.linear.determined`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flwr_causal.core.blocks.design import Number
from flwr_causal.core.linear.determined import separation
from flwr_causal.core.linear.moments import mean_and_second
from flwr_causal.doubts.graphs import doubts_of

if TYPE_CHECKING:
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.sources.products import Products


def without_determined(
    products: Products, masks: EdgeMasks, *, joined: bool = False
) -> tuple[Products, EdgeMasks]:
    """Return the products with each determined column apart, and the edges that are possible.

    Such a column has no edges and no covariances, and a warning names it; where knowledge requires
    an edge of it, it has a raised variance. Nor are there edges between variables that too few rows
    have together.

    Parameters
    ----------
    products : Products
        Of all rows, and of each party where parties are compared.
    masks : EdgeMasks
        Background knowledge over the variables and their lags; required edges stay possible.
    joined : bool, default False
        Whether parties hold different columns: a party alone does not see all relations.
    """
    agreement, design = products.agreement, products.design
    if products.seldom is not None:
        masks = masks._replace(allowed=masks.allowed & ~products.seldom | masks.required)
    # Of additive effects the first function of a variable is its value.
    numbers = [isinstance(one, Number) for one in design.variables]
    own = separation(
        mean_and_second(design.without_mark(products.values.sum(axis=0)))[1],
        agreement.n,
        agreement.names,
        required=masks.required,
        widths=design.widths,
        numbers=numbers,
        share=products.determined_share,
    )
    if not own.changes:
        return products, masks
    rows = () if joined else agreement.rows.values()
    said = doubts_of(relations=own.found, names=agreement.names, rows=rows, numbers=numbers)
    fewer = products.of_fewer_lags
    regular = replace(
        products,
        values=own.of(products.values),
        of_fewer_lags=None if fewer is None else own.of(fewer),
        parts={name: own.of(part) for name, part in products.parts.items()},
        warnings=(*said, *products.warnings),
    )
    return regular, own.masks(masks)
