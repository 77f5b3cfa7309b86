"""Which variables others determine, from the second moments of blocks of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.blocks.design import Number
from flwr_causal.core.linear.moments import columns_of, combinations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.linear.moments import Moments


def determined(variables: Sequence[Variable], moments: Moments) -> list[tuple[int, list[int]]]:
    """Return the variables that others determine, and which these are.

    A number is determined if its value is a linear combination of columns of other variables, a
    category if all of its columns are.

    Parameters
    ----------
    variables : sequence of Number or Category
    moments : Moments
        Of all columns, those of a variable side by side, of more rows than columns.

    Returns
    -------
    list of (int, list of int)
        Ascending. Of variables each of which the others determine it is the last one.
    """
    second = moments.second
    if not combinations(second):
        return []
    columns = columns_of([one.width for one in variables])
    owner = np.repeat(np.arange(len(columns)), [len(own) for own in columns])
    found: dict[frozenset[int], int] = {}
    for j, own in enumerate(columns):
        wanted = own[:1] if isinstance(variables[j], Number) else own[moments.variances[own] > 0]
        others = np.flatnonzero(owner != j)
        order = np.concatenate([others, wanted])
        terms = combinations(second[np.ix_(order, order)])
        places = range(len(others), len(order))
        if places and all(place in terms for place in places):
            by = {int(owner[order[k]]) for place in places for k in terms[place]}
            found[frozenset({j, *by})] = j
    return sorted((j, sorted(among - {j})) for among, j in found.items())
