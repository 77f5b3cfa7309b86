"""The PAG of numbers and categories with hidden common causes, from the moments of their blocks.

The search is that of numbers (:mod:`core.ges.ancestral_search`). The score is the Gaussian BIC of
the blocks of columns, see :mod:`core.blocks.search`; an edge between two blocks joins all of their
columns, and the noise terms of a block's columns have any covariance. A test is the likelihood
ratio of two regressions of a block, with and without another (Wilks), see
:mod:`core.linear.fit_check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.blocks.search import BlockProblem, arranged, edge_costs, independent
from flwr_causal.core.ges.ancestral_fit import AncestralScore
from flwr_causal.core.ges.ancestral_search import AncestralSearch
from flwr_causal.core.linear.effects import Blocks
from flwr_causal.core.linear.fit_check import block_ratio
from flwr_causal.core.linear.moments import columns_of
from flwr_causal.core.words import by_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
    from flwr_causal.core.linear.moments import Moments


class BlockSource:
    """Blocks of columns, in the order of their variables' names."""

    def __init__(self, moments: Moments, widths: Sequence[int], names: Sequence[str]) -> None:
        order = np.array(by_name(names), dtype=np.intp)
        found = arranged(independent([moments] * len(names), widths, names), order, order)
        self.moments, self.widths = found.moments[0], found.widths
        self.names = tuple(names[k] for k in order)
        costs = edge_costs(self.moments.n, self.widths)
        self.score = AncestralScore(self.moments.correlations, self.moments.n, costs, self.widths)
        self.blocks = Blocks(self.names, columns_of(self.widths), self.moments)

    def z(self, i: int, j: int, sets: IntArray) -> FloatArray:
        """Return the normal z of the likelihood ratio tests' p-values."""
        from scipy.special import chdtrc, ndtri

        ratios = [block_ratio(self.blocks, i, j, given) for given in sets]
        p_values = np.array(
            [chdtrc(degrees, value) if degrees else 0 for value, degrees, _ in ratios]
        )
        return np.asarray(-ndtri(np.maximum(p_values, np.finfo(np.float64).tiny) / 2))

    def class_without(self, masks: EdgeMasks, near: BoolArray | None = None) -> BoolArray:
        """Return a DAG of the class of best score without hidden causes, see `PagSource`."""
        return BlockProblem.of(self.moments, self.widths, self.names, masks).best(near).dag

    def strength(self, i: int, j: int, given: IndexArray) -> float:
        """Return ``sqrt(1 - det S / det S')``, where S has one of the two more than S'."""
        ratio, _, _ = block_ratio(self.blocks, i, j, given)
        return float(np.sqrt(-np.expm1(-ratio / self.moments.n)))

    def draws(self) -> Sequence[BlockSource]:
        """Return nothing: second moments do not say how those of categories vary."""
        return ()


def block_pag(
    moments: Moments, widths: Sequence[int], names: tuple[str, ...], knowledge: Knowledge | None
) -> CausalGraph:
    """Find the PAG of best BIC of blocks of columns that the search reaches.

    Parameters
    ----------
    moments : Moments
        Of all columns, those of a variable side by side.
    widths : sequence of int
        Number of columns of each of the d variables.
    names : tuple of str
        Of the variables.
    knowledge : Knowledge, optional
        As of :func:`~flwr_causal.core.ges.linear_pag.pag_search`.

    Returns
    -------
    CausalGraph
        Of kind "pag"; a weight is the strength of the edge, without a sign, given the other
        ancestors of its variables in one graph of the class.

    Raises
    ------
    DataError
        If a variable has one value.
    """
    return AncestralSearch(BlockSource(moments, widths, names), knowledge).graph(names)
