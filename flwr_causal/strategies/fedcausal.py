"""FedCausal, one graph for parties whose mechanisms differ: the server's side.

The algorithms of Yang et al. (AAAI 2024), and the group lasso with a search on evidence.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.fedcausal import evidence_search
from flwr_causal.core.fedcausal.evidence import fitted_noise
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.solution import edge_weights
from flwr_causal.core.nonlinear.heterogeneity import Heterogeneity, OwnGraph, edge_table
from flwr_causal.core.options import require
from flwr_causal.data.kinds import DataKind
from flwr_causal.doubts.graphs import (
    UNEQUAL_ADDITIVE,
    UNEQUAL_IMPLIED,
    doubts_of,
    plausible,
)
from flwr_causal.protocol.fedcausal import (
    CONTRACT,
    LOCAL,
    FedCausalPartyOptions,
)
from flwr_causal.runtime.algorithm import Ask, Result
from flwr_causal.strategies.base import CausalStrategy
from flwr_causal.strategies.fedcausal_evidence import group_lasso, search_on_evidence, unexplained
from flwr_causal.strategies.fedcausal_options import FedCausalOptions
from flwr_causal.strategies.fedcausal_paper import Strengths, linear_effects, perceptron_effects

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Step, Steps
    from flwr_causal.strategies.fedcausal_evidence import Searched
    from flwr_causal.strategies.fedcausal_paper import FittedModel, Standing
    from flwr_causal.strategies.options import takes


class FedCausal(CausalStrategy):
    """One causal graph from parties whose mechanisms may differ (Yang et al., AAAI 2024).

    The paper's algorithm averages the parties' weights or first layers, which cancel where
    mechanisms differ. The default assumes only that the parties share the graph. Its first stage,
    ``model="group"``, is a group lasso in which an edge is the group of all parties' coefficients
    of five basis functions. The second, ``refine="evidence"``, adds, removes and reverses single
    edges of that graph as long as the sum of the parties' Gaussian-process evidence rises.

    **What leaves a party**: d x d arrays that are averaged, with ``variant="paper"`` and
    ``model="mlp"`` first layers, d x hidden x d; :mod:`flwr_causal.protocol.fedcausal` declares
    them.

    References
    ----------
    Yang, He, Wang, Yu, Domeniconi & Zhang (2024). Federated causality learning with explainable
    adaptive optimization. AAAI.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> from flwr_causal.strategies import FedCausal
    >>> tables, weights = federated_linear(3, 200, 2)
    >>> simulate(FedCausal(model="linear"), tables).graph.names
    ('x0', 'x1', 'x2')
    """

    options_type = FedCausalOptions
    options: FedCausalOptions

    if TYPE_CHECKING:

        @takes(FedCausalOptions)
        def __init__(self, **options: Any) -> None: ...

    contract: ClassVar[Contract] = CONTRACT
    data = DataKind.NONLINEAR

    def train(self, agreement: Agreement, replicate: int = 0) -> Steps:
        """Fit the model; search on the parties' evidence from its graph, if this is asked for.

        Yields
        ------
        Ask
            For the iterations of the model, the steps of the search, the parties' own graphs.

        Returns
        -------
        Result
        """
        options, masks = self.options, self.options.masks(agreement)
        result = partial(self._result, agreement, masks)
        model = yield from self._model(agreement, masks, result)
        found, reason, searched = model.found, model.reason, None
        if options.refine == "evidence":
            searched, reason = yield from search_on_evidence(
                options.search_problem(masks, model.found.graph, model.taken),
                model.found,
                np.asarray(masks.required, dtype=bool),
                num_rows=agreement.n,
                share=options.share(agreement.n),
                standing=lambda searched: result(searched.found, searched),
            )
            found = searched.found
        own = None
        if options.local_graphs:
            values = {
                "graph": found.graph.astype(np.uint8),
                "start": model.found.graph.astype(np.uint8),
                "candidates": options.candidates,
                "share": options.share(agreement.n),
            }
            replies = yield Ask(LOCAL, values, so_far=lambda: result(found, searched))
            own = {
                party: OwnGraph(
                    arrays["own-graph"].astype(bool), arrays["support"], arrays["own-shares"]
                )
                for party, arrays in replies.by_party.items()
            }
        return result(found, searched, own, reason)

    def _model(
        self, agreement: Agreement, masks: EdgeMasks, standing: Standing
    ) -> Generator[Step, Any, FittedModel]:
        """Return the generator that fits the model."""
        options = self.options
        if options.model == "group":
            return group_lasso(options.lasso(masks), len(agreement.names), standing)
        if options.model == "mlp":
            return perceptron_effects(options.perceptron_problem(masks), standing)
        problem, start = options.linear_problem(masks), self._initial_weights(agreement)
        return linear_effects(problem, masks, options.threshold, standing, start)

    def _result(
        self,
        agreement: Agreement,
        masks: EdgeMasks,
        found: Strengths,
        searched: Searched | None = None,
        own: Mapping[str, OwnGraph] | None = None,
        reason: str = "",
    ) -> Result:
        """Return the graph, the parties' own graphs, and where units may have decided directions.

        Parameters
        ----------
        agreement : Agreement
        masks : EdgeMasks
            Background knowledge.
        found : Strengths
        searched : Searched, optional
            The search that has found it; None: the model has.
        own : mapping of str to OwnGraph, optional
            By party.
        reason : str
            Why the training is over.
        """
        graph, warnings = _causal_graph(agreement, masks, found), list[str]()
        if not self.options.papers:
            in_units = searched is None and self.options.model != "group"
            units = self.options.units(agreement) if in_units else 1.0
            graph, warnings = plausible(graph, units, masks)
        if searched is not None:
            if searched.known:
                loss = evidence_search.turning_loss(
                    graph.adjacency, searched.known, masks, agreement.names, agreement.n
                )
                graph = replace(graph, turning_loss=loss)
            warnings += self._undecided(agreement, masks, searched, graph)
        elif agreement.targets:
            pass  # interventions direct edges too
        elif self.options.model == "linear":
            warnings += self.options.doubtful_directions(agreement, graph, masks, None)
        else:
            variance = agreement.variance
            warnings += doubts_of(
                graph=graph,
                masks=masks,
                noise=unexplained(graph.weights, variance)
                if self.options.model == "group"
                else None,
                standardized=self.options.standardize,
                unequal=UNEQUAL_ADDITIVE,
            )
        heterogeneity = None
        if own is not None:
            graphs = {
                name: _causal_graph(agreement, masks, Strengths.of_shares(one.graph, one.shares))
                for name, one in own.items()
            }
            heterogeneity = Heterogeneity(graphs, edge_table(found.graph, own, agreement.names))
        return Result(
            graph,
            found.scores,
            warnings=tuple(warnings),
            heterogeneity=heterogeneity,
            reason=reason,
        )

    def _undecided(
        self, agreement: Agreement, masks: EdgeMasks, searched: Searched, graph: CausalGraph
    ) -> list[str]:
        """Warn of directions that the evidence leaves open, so that the start decides them.

        With ``noise="equal"`` the evidence itself depends on the columns' units.
        """
        best = searched.best
        noise = fitted_noise(best.evidence / agreement.n, self.options.noise)
        undecided = None
        if self.options.noise == "own":
            noise = noise * agreement.variance
            if graph.turning_loss is not None:
                undecided = graph.adjacency & (graph.turning_loss == 0)
        return doubts_of(
            graph=graph,
            masks=masks,
            noise=noise,
            standardized=self.options.standardize,
            unequal=UNEQUAL_IMPLIED,
            undecided=undecided,
        )

    # What the method needs and sends.

    def validate(self) -> None:
        """Check that the options fit each other."""
        super().validate()
        self.options.validate_perceptrons()
        least = 3 if self.options.model == "group" else 1
        least += (self.options.refine == "evidence") + self.options.local_graphs
        rounds = self.options.max_rounds
        assert rounds is not None  # see `settled`
        require(rounds >= least, "max_rounds", rounds, f"{least} or more")

    @property
    def client_options(self) -> FedCausalPartyOptions:
        """How the parties fit their rows."""
        return self.sent(
            FedCausalPartyOptions,
            sparsity=self.options.lambda_1,
            relative=self.options.model == "linear" and self.options.sparsity == "auto",
            proximity=self.options.lambda_2,
        )

    @property
    def _initial_names(self) -> tuple[str, ...]:
        """W of the linear model."""
        return ("weights",) if self.options.model == "linear" else ()


def _causal_graph(agreement: Agreement, masks: EdgeMasks, found: Strengths) -> CausalGraph:
    """Return the causal graph over the agreed columns, with the required edges."""
    required = np.asarray(masks.required, dtype=bool)
    weights = edge_weights(found.graph, found.weights)
    return CausalGraph(agreement.names, weights, raw_weights=found.raw, required=required)
