"""Exact sums: the products of all rows in one exchange (Ng & Zhang 2022, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.contract.answers import answers
from flwr_causal.contract.exchange import Disclosure, Exchange
from flwr_causal.protocol.second_moments import (
    SCORES,
    impossible_products,
    largest_sums,
    sends_levels,
)
from flwr_causal.runtime.algorithm import Ask
from flwr_causal.sources.levels import about_levels, products_within
from flwr_causal.sources.products import Products

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from flwr_causal.contract.answers import Asked
    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.core.blocks.design import Design
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.sources.rows import DesignRows

# On arrival the door checks shapes and possible values ("second-moments"), and that nothing
# contradicts the party's report; the bound limits what a party sends, and sizes secure sums.
SUMS = Exchange(
    "sums",
    "the second moments of the parties' rows, from which the server solves for the graph",
    sends=(SCORES,),
    returns=(
        Disclosure(
            "moments",
            "X_k^T X_k / n_k of the rows [1, z] of each fold, under known interventions of each "
            "set of targets. z has a column for each number, centred, and divided by its standard "
            "deviation with standardize=True, categories or functions (in moments with "
            "model='additive' or 'curved' further functions of it), for each state of a category "
            "but one, 1 in its rows and 0 in the others, so that products count the rows of pairs "
            "of states; and of time series their lags, with center='phase' after a mark of the "
            "rows that are not perturbed. With weight_column the rows are [1, sqrt(w), w, "
            "sqrt(w) z] for the weight w of each row: the sums of w, of its square, and of the "
            "weighted products. In moments with center='auto' or 'party' two arrays, "
            "about the mean of the party's rows, or of each of its series, with the degrees of "
            "freedom over n_k at [0, 0], and of these means",
            ("folds", "s", "s"),
            "second-moments",
            "mean",
            bound=largest_sums,
        ),
    ),
    most=1,
    same_parties=True,
    contradiction=impossible_products,
)


#: All products.
ALL_SUMS = Ask(SUMS)


def exact_products(
    agreement: Agreement,
    design: Design,
    fewer_lags: int = 0,
    levels: str = "",
    ask: Ask = ALL_SUMS,
) -> Generator[Step, Any, Products]:
    """Add up the products of the parties' rows.

    Parameters
    ----------
    agreement : Agreement
    design : Design
    fewer_lags : int, default 0
        The number of smaller orders whose products are sent, too.
    levels : {"", "auto", "party"}, default ""
        The option ``center`` where it is followed by :mod:`flwr_causal.sources.levels`.
    ask : Ask
        The request. Default: for all products of SUMS.
    """
    replies = yield ask
    values = replies["moments"]
    sets = len(values) - fewer_lags
    # The rows are those in the sum, which may lack parties.
    agreement = agreement.with_rows(replies.rows or agreement.rows_of(replies.parties))
    pooled = Products(agreement, design, values[:sets], values[sets:])
    if not levels:
        return pooled
    return (yield from about_levels(pooled, stated=levels == "party"))


@answers(SUMS)
def sums_of_products(rows: DesignRows, asked: Asked) -> Arrays:
    """Return the mean products of a party's rows [1, z], by set of targets or by fold.

    Where the sums tell levels apart, as by default of `moments`, those of
    :func:`~flwr_causal.sources.levels.products_within` instead: two arrays.
    """
    if sends_levels(rows.setup):
        return {"moments": products_within(rows) / rows.num_rows}
    sums = rows.products()
    return {"moments": np.concatenate([sums, *_of_fewer_lags(rows, sums)]) / rows.num_rows}


def _of_fewer_lags(rows: DesignRows, sums: FloatArray) -> Iterator[FloatArray]:
    """Yield the products with 1, 2, ... lags, in the upper left of arrays as those of all lags.

    They have further rows: steps with fewer than p steps before them.
    """
    for lags in range(1, 1 + rows.options.fewer_lags):
        products = rows.products_by_set(rows.sum_rows(lags))
        missing = sums.shape[-1] - products.shape[-1]
        yield np.pad(products, ((0, 0), (0, missing), (0, missing)))
