"""The base of Moments' solvers: dataclasses of their options, from products to a graph.

A solver is a part (:mod:`core.parts`). Its options are declared in its file, and the class of the
method's options inherits them; what several solvers share (``threshold``, ``standardize``) is a
field with the default of the solver; ``core.parts.made`` makes one of the method's options.

``StableOrders(stability=0.5).solve(products, masks)`` returns a ``Solved``: graph, fitted system,
strengths, warnings. A solver asks neither how the sums came nor what a column is:
``products.moments`` are those of all rows, under interventions one for each variable.
``settled(outcome)`` is the solver of replicates, with the choices of the main training; ``parts``
says what its values need and give. A line of ``MomentsOptions.solving`` says which values choose a
new solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.order_search import LEAST_EFFECT, search_orders
from flwr_causal.core.parts import Part
from flwr_causal.doubts.graphs import doubts_of, plausible
from flwr_causal.runtime.algorithm import Choice, Result
from flwr_causal.strategies.linear import fitted_system, noise_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.order_search import OrderSolution
    from flwr_causal.core.systems.ancestral import AncestralModel
    from flwr_causal.core.systems.blocks import BlockModel
    from flwr_causal.core.systems.linear import LinearModel
    from flwr_causal.sources.products import Products
    from flwr_causal.strategies.local_graphs import OwnSearch


class Solved(NamedTuple):
    """The result of a solver.

    Parameters
    ----------
    moments : SampleMoments or list of SampleMoments
        Pooled moments of the centred and scaled rows; under interventions one for each variable.
    graph : CausalGraph
        The graph.
    model : LinearModel, BlockModel, AncestralModel, or None
        The fitted system: of numbers in the units of the data, of blocks of columns, with hidden
        causes of a PAG.
    scores : ndarray of shape (d, d)
        Strength of every edge, for ranking.
    warnings : tuple of str
        Warnings about the result.
    info : dict
        The chosen penalties and order, as plain numbers.
    """

    moments: SampleMoments | Sequence[SampleMoments]
    graph: CausalGraph
    model: LinearModel | BlockModel | AncestralModel | None
    scores: FloatArray
    warnings: tuple[str, ...]
    info: dict[str, Any]

    def result(self, products: Products, known: tuple[str, ...]) -> Result:
        """Return the result of the training; ``known`` are warnings that the run has already."""
        known, model = (*known, *self.warnings), self.model
        return Result(
            self.graph,
            self.scores,
            products.adapted(model) if products.adapted and model is not None else model,
            (*self.warnings, *[one for one in products.warnings if one not in known]),
            num_rows=products.num_rows,
            privacy=products.privacy,
            heterogeneity=products.heterogeneity,
            reason=products.reason,
        )


@dataclass(frozen=True, kw_only=True)
class Solver(Part):
    """Base of the solvers.

    Attributes
    ----------
    by_units : bool
        Whether the graph depends on the units of the columns.
    blocks : bool
        Whether variables are blocks of columns.
    """

    by_units: ClassVar[bool] = False
    blocks: ClassVar[bool] = False

    def solve(self, products: Products, masks: EdgeMasks) -> Solved:
        """Find the graph.

        Parameters
        ----------
        products : Products
            Of the rows of all parties.
        masks : EdgeMasks
            Background knowledge over the m = d (1 + p) variables and their lags.
        """
        raise NotImplementedError

    def found(self, products: Products, masks: EdgeMasks) -> Generator[Choice, Any, Solved]:
        """Find the graph; a replicate has the solver that the main training has settled."""

        def first() -> tuple[Solved, Solver]:
            outcome = self.solve(products, masks)
            return outcome, self.settled(outcome)

        def again(main: tuple[Solved, Solver]) -> tuple[Solved, Solver]:
            return main[1].solve(products, masks), main[1]

        found: tuple[Solved, Solver] = yield Choice(first, again)
        return found[0]

    def settled(self, outcome: Solved) -> Solver:
        """Return the solver of replicates, which takes over the choices of the main training."""
        return self

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose."""
        return (type(self),)

    @property
    def by_score(self) -> bool:
        """Whether the graph is the best one by a BIC, which hidden common causes may contradict."""
        return False

    @property
    def num_folds(self) -> int:
        """The number of folds of the rows whose products are needed apart."""
        return 1

    # What comparisons of parties, and of rows under interventions, need.

    def possible(self, masks: EdgeMasks, num_variables: int) -> EdgeMasks:
        """Return the masks of the edges that the solver fits.

        Raises
        ------
        ConfigError
            If one of them is required that it does not fit.
        """
        return masks

    def dag(self, products: Products, masks: EdgeMasks, own: Sequence[SampleMoments]) -> BoolArray:
        """Return the best DAG, (m, d), given moments for each variable."""
        return self._by_orders(masks, own)

    def marks(
        self, products: Products, masks: EdgeMasks, own: Sequence[SampleMoments], acted: BoolArray
    ) -> BoolArray:
        """Return the best graph, (m, d), in which an edge both ways has no direction.

        ``acted``, shape (sets, d), are the variables that are acted on in each set of rows.
        """
        return self.dag(products, masks, own)

    def own_search(self, products: Products, masks: EdgeMasks, outcome: Solved) -> OwnSearch | None:
        """Return the search for the graph of a single party; None where weights decide."""
        return None

    def _by_orders(
        self, masks: EdgeMasks, own: Sequence[SampleMoments], least_effect: float = LEAST_EFFECT
    ) -> BoolArray:
        """Return the DAG of a search over orders, (m, d)."""
        d = len(own)
        allowed = self.possible(masks, d)
        found = search_orders(own, allowed, num_targets=d, least_effect=least_effect)
        return found.best.adjacency[:, :d]


@dataclass(frozen=True, kw_only=True)
class WeightSolver(Solver):
    """Base of the solvers of linear effects between numbers, whose graph has weights.

    Parameters
    ----------
    standardize : bool, default False
        Whether the columns were divided by their standard deviations: directions that the rows
        leave open are then arbitrary.
    """

    by_units: ClassVar[bool] = True

    standardize: bool = False

    def fitted(
        self,
        products: Products,
        masks: EdgeMasks,
        found: Solved,
        search: OrderSolution | None = None,
    ) -> Solved:
        """Return a graph of weights with its system, and warnings of directions in doubt.

        Parameters
        ----------
        products : Products
        masks : EdgeMasks
            Over the columns of the moments that the graph was found from.
        found : Solved
            With the graph, without a model.
        search : OrderSolution, optional
            The search over orders that found it.
        """
        agreement, scale = products.agreement, products.design.scale
        spread = np.sqrt(agreement.variance) / scale
        graph, warnings = plausible(found.graph, spread[:, None] / spread, masks)
        model = fitted_system(agreement, scale, found.moments, graph)
        warnings += found.warnings
        if isinstance(found.moments, SampleMoments):  # interventions direct edges too
            warnings += doubts_of(
                graph=graph,
                masks=masks,
                noise=noise_of(model, agreement.variance, scale),
                standardized=self.standardize,
                search=search,
            )
        warnings += doubts_of(graph=graph, n=agreement.n)
        return found._replace(graph=graph, model=model, warnings=tuple(warnings))
