"""The PAG of variables with hidden common causes, of numbers or of blocks of columns, from moments.

The search is :class:`~flwr_causal.core.ges.ancestral_search.AncestralSearch`; what it asks of the
rows is here. Of numbers the score is the Gaussian BIC. Of blocks it is that of their columns, see
:mod:`core.blocks.search`: an edge between two blocks joins all of their columns, and the noise
terms of a block's columns have any covariance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.blocks.search import BlockProblem, arranged, edge_costs, independent
from flwr_causal.core.ges.ancestral_kernels import pair_correlations
from flwr_causal.core.ges.ancestral_search import AncestralScore, AncestralSearch, PagSource
from flwr_causal.core.ges.linear_class import GAMMA, class_marks
from flwr_causal.core.graphs.equivalence import consistent_extension
from flwr_causal.core.linear.determined import regular
from flwr_causal.core.linear.effects import Blocks
from flwr_causal.core.linear.gaussian_scores import edge_cost
from flwr_causal.core.linear.independence import BlockTests, NumberTests
from flwr_causal.core.linear.moments import SampleMoments, as_moments, columns_of
from flwr_causal.core.linear.solution import edge_masks
from flwr_causal.core.linear.stability import NUM_DRAWS, redrawn
from flwr_causal.core.words import by_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge


def pag_search(
    moments_or_data: Any, *, knowledge: Knowledge | None = None, draws: int = NUM_DRAWS
) -> CausalGraph:
    """Learn the partial ancestral graph of a linear system with hidden common causes.

    Parameters
    ----------
    moments_or_data
        ``SampleMoments``, an ``(n, d)`` array or a data frame.
    knowledge
        Background knowledge. Tiers say that a later variable is no cause of an earlier one, and a
        forbidden edge that there is no effect but through other variables that are seen; a hidden
        common cause of both remains possible. A required edge is a cause.
    draws
        How often the search is repeated on second moments that are drawn as those of other samples
        would be; marks that these do not confirm are circles. With 0 all marks of the PAG of best
        score stand.

    Returns
    -------
    CausalGraph
        Of kind "pag". The weights are the partial correlations of the two variables of an edge,
        given the other ancestors of both in one graph of the class. With draws its marks need not
        be those of one equivalence class: a circle also says that the rows do not decide.

    Raises
    ------
    DataError
        If a value is missing, or a variable is constant.
    ConfigError
        If the knowledge names a variable that the data do not have.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.solvers import pag_search
    >>> rng = np.random.default_rng(0)
    >>> cause = rng.normal(size=500)
    >>> rows = np.column_stack([cause, 2 * cause + rng.normal(size=500)])
    >>> pag_search(rows).kind
    'pag'
    """
    moments = as_moments(moments_or_data)
    moments.require_complete()
    required = edge_masks(knowledge, moments.names).required
    source = NumberSource(regular(moments, required), draws)
    return AncestralSearch(source, knowledge).graph(moments.names)


class NumberSource(NumberTests, PagSource):
    """Numbers, in the order of their names: Fisher's z, and the Gaussian BIC.

    Parameters
    ----------
    moments : SampleMoments
    num_draws : int, default 0
    thorough : bool, default True
        As of :func:`~flwr_causal.core.ges.linear_class.class_marks`. Drawn moments need not be: on
        48 systems of 10 and 12 variables, 36 with hidden causes (seeds 500-511), the PAGs are as
        good, F1 .90 and .90, with .3 and .4 wrong causes.
    """

    def __init__(
        self, moments: SampleMoments, num_draws: int = 0, *, thorough: bool = True
    ) -> None:
        self.thorough = thorough
        self.moments, self.num_draws = moments.subset(by_name(moments.names)), num_draws
        super().__init__(self.moments, self.moments.d)
        self.correlations = np.ascontiguousarray(self.moments.correlations)
        cost = edge_cost(moments.n, moments.d, GAMMA)
        self.score = AncestralScore(self.correlations, moments.n, cost)

    def z(self, i: int, j: int, sets: IntArray) -> FloatArray:
        """Return Fisher's z of the partial correlation of i and j given sets of one size."""
        partial, size = np.empty(len(sets)), sets.shape[1]
        room = np.empty((size + 2, size + 2))
        pair_correlations(self.correlations, i, j, np.ascontiguousarray(sets), room, partial)
        rows = max(1, self.moments.n - size - 3)
        return np.asarray(np.arctanh(np.minimum(np.abs(partial), 1 - 1e-12)) * np.sqrt(rows))

    def class_without(self, masks: EdgeMasks, near: BoolArray | None = None) -> BoolArray:
        """Return a DAG of the class of best score without hidden causes, see `PagSource`."""
        d = self.moments.d
        nothing = np.zeros((d, d), dtype=np.bool_)
        marks = class_marks(
            [self.moments] * d,
            masks,
            distinguished=nothing,
            by_orders=True,
            thorough=self.thorough,
            near=near,
        )
        dag = consistent_extension(marks)
        assert dag is not None
        return dag

    def draws(self) -> list[NumberSource]:
        """Return moments of other samples of as many rows, if these were the true ones.

        There are none if rows are too few for moments of full rank.
        """
        number = self.num_draws if self.moments.n > self.moments.d + 1 else 0
        return [NumberSource(one, thorough=False) for one in redrawn(self.moments, number)]


class BlockSource(BlockTests, PagSource):
    """Blocks of columns, in the order of their variables' names; weights have no sign.

    Parameters
    ----------
    moments : SampleMoments
        Of all columns, those of a variable side by side.
    widths : sequence of int
        Number of columns of each of the d variables.
    names : sequence of str
        Of the variables.

    Raises
    ------
    DataError
        If a variable has one value.
    """

    def __init__(self, moments: SampleMoments, widths: Sequence[int], names: Sequence[str]) -> None:
        order = np.array(by_name(names), dtype=np.intp)
        found = arranged(independent([moments] * len(names), widths, names), order, order)
        self.moments, self.widths = found.moments[0], found.widths
        own = tuple(names[k] for k in order)
        super().__init__(Blocks(own, columns_of(self.widths), self.moments))
        costs = edge_costs(self.moments.n, self.widths)
        self.score = AncestralScore(self.moments.correlations, self.moments.n, costs, self.widths)

    def class_without(self, masks: EdgeMasks, near: BoolArray | None = None) -> BoolArray:
        """Return a DAG of the class of best score without hidden causes, see `PagSource`."""
        return BlockProblem.of(self.moments, self.widths, self.names, masks).best(near).dag
