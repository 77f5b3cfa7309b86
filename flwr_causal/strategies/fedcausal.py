"""FedCausal, one graph for parties whose mechanisms differ: the server's side.

The algorithms of Yang et al. (AAAI 2024), and the group lasso with a search on evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.fedcausal import evidence_search, group, linear, perceptrons
from flwr_causal.core.fedcausal.evidence import fitted_noise
from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity, OwnGraph, edge_table
from flwr_causal.core.fedcausal.penalties import Penalties
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.solution import edge_weights
from flwr_causal.core.nonlinear.perceptrons import Network
from flwr_causal.core.options import bounded, require
from flwr_causal.core.parts import Part, all_but, option, words
from flwr_causal.data.kinds import DataKind
from flwr_causal.doubts.graphs import (
    UNEQUAL_ADDITIVE,
    UNEQUAL_IMPLIED,
    direction_warning,
    plausible,
)
from flwr_causal.doubts.tables import Expected
from flwr_causal.protocol.fedcausal import (
    CONTRACT,
    LOCAL,
    FedCausalPartyOptions,
)
from flwr_causal.runtime.algorithm import Ask, Result
from flwr_causal.strategies.base import CausalStrategy
from flwr_causal.strategies.fedcausal_evidence import group_lasso, search_on_evidence, unexplained
from flwr_causal.strategies.fedcausal_paper import Strengths, linear_effects, perceptron_effects
from flwr_causal.strategies.linear import (
    Acted,
    InterventionOptions,
    PerceptronOptions,
)
from flwr_causal.strategies.variant import AVERAGED, OfPaper, VariantOptions

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Step, Training
    from flwr_causal.strategies.fedcausal_evidence import Searched
    from flwr_causal.strategies.fedcausal_paper import FittedModel, Standing
    from flwr_causal.strategies.options import takes


#: lambda_1 by model, which the paper does not give: for the group lasso in units of the party's
#: noise, for the linear model in units of the variables' harmonic mean variance, for perceptrons
#: without a unit. Measured for the linear model on linear Gaussian data, 10 parties of 200 rows,
#: d = 10, 20, 40, five seeds: mean SHD 0.2, 1.2, 0.4 (pooled NOTEARS: 0.2, 1.4, 0.6); with 0.02 it
#: is 0.0, 1.2, 0.4, with 0.05 0.2, 1.2, 0.8, with 0.1 0.8, 2.2, 2.4.
AUTOMATIC_SPARSITY = {"group": 0.2, "linear": 0.03, "mlp": 0.01}
#: lambda_2 by model, which the paper does not give either.
AUTOMATIC_PROXIMITY = {"group": 0.0, "linear": linear.PROXIMITY, "mlp": 0.0}
#: Default exchanges of each model alone, of each model before the search, and of the search. They
#: are measured, see :mod:`flwr_causal.core.fedcausal`.
ROUNDS = {"group": 20, "linear": 16, "mlp": 16}
BEFORE_SEARCH = {"group": 8, "linear": 16, "mlp": 16}
SEARCH_ROUNDS = 24
#: Largest number with variant="paper", which gives none; it takes 28 to 30.
PAPER_ROUNDS = 100


def _of_yang(defaults: Mapping[str, float], **fixed: float) -> OfPaper:
    """Return the settings of Yang et al. for a model."""
    return OfPaper(
        # Table S2; alpha is 0 at first.
        constants={
            "penalty": 1.0,
            "growth": 10.0,
            "progress": 0.25,
            "h_tolerance": 1e-11,
            "penalty_limit": 1e16,
        },
        fixed={
            **AVERAGED,
            "refine": "none",
            "local_graphs": False,
            "center": "party",
            **fixed,
        },
        # Algorithm 1 is that of perceptrons; eqs. (4) and (5) are the linear ones.
        choices={"model": ("mlp", "linear")},
        defaults=defaults,
    )


#: The settings of the paper by model. It gives neither lambda_1 nor lambda_2: left out, lambda_1 is
#: that of NOTEARS and of NOTEARS-MLP, which supplement A names for its baselines. Eq. (7) has no
#: lambda_2.
OF_PAPER = {
    "linear": _of_yang({"sparsity": linear.SPARSITY, "proximity": linear.PROXIMITY}),
    "mlp": _of_yang({"sparsity": 0.01}, proximity=0.0),
}


@dataclass(frozen=True, kw_only=True)
class Evidence(Part):
    """Gaussian-process evidence of graphs on the parties' rows.

    Parameters
    ----------
    noise : {"own", "equal"}, default "own"
        Noise in the evidence: of any shape, with a variance for each variable and party; or
        Gaussian, with one variance for each party.
        "equal" identifies the directions of linear Gaussian effects, if the assumption holds.
    candidates : int, default 5
        Number of additions into each variable whose evidence is requested in a step of the search.
    evidence_rows : int, default 5000
        Number of rows of all parties together whose evidence is computed. Where there are more,
        each party uses the same share of its rows, at least 200, drawn at random by ``seed``.
    """

    text = "refine='evidence' or local_graphs=True"

    noise: Literal["own", "equal"] = "own"
    candidates: int = bounded(5, least=1)
    evidence_rows: int = bounded(5000, least=1)


@dataclass(frozen=True, kw_only=True)
class AveragedModel(Part):
    """The paper's algorithm, which averages the parties' weights or layers.

    Parameters
    ----------
    proximity : float or "auto", default "auto"
        lambda_2 of "linear" and "mlp". "auto" is 0.001 (linear) or 0 (mlp); the paper gives no
        value, and its eq. (7), of perceptrons, has no such term.
    acyclic_server : bool, default True
        Whether the server imposes acyclicity; False is the paper's ablation NO-w/oAcy.
    """

    text = "model='linear' or 'mlp'"

    proximity: float | Literal["auto"] = bounded("auto", least=0)
    acyclic_server: bool = True


class GroupLasso(Part):
    """A group lasso, which has an intercept for each party."""

    text = "model='group'"
    gives = all_but("centring")


class ActedParties(Acted):
    """Known interventions, with a median of arrays too."""

    gives = Acted.gives | words("median")


class EvidenceByParty(Part):
    """A graph of each party by its own evidence."""

    text = "local_graphs=True"
    gives = all_but("sample")


@dataclass(frozen=True, kw_only=True)
class FedCausalOptions(
    Evidence, AveragedModel, VariantOptions, PerceptronOptions, InterventionOptions
):
    """The options of :class:`FedCausal`.

    Parameters
    ----------
    model : {"group", "linear", "mlp"}, default "group"
        "linear" and "mlp" follow the paper's Algorithm 1 with eqs. (4) and (5) or (7); "mlp" needs
        torch. With ``variant="paper"`` it is "mlp" if left out.
    refine : {"evidence", "none"} or None, default None
        None is "evidence" for the group lasso and "none" for the other models.
    local_graphs : bool, default False
        In one more exchange, with any model, every party finds the graph of highest evidence on its
        own rows. ``run.local_graphs`` has these graphs and ``run.heterogeneity`` their differences
        from the common graph. The replies are kept by party, not averaged.
    variant : {"default", "paper"}, default "default"
        "paper" is Algorithm 1 with the constants of table S2, to h = 1e-11: with ``model="mlp"``
        the first layers themselves are averaged, there is no weight decay (eq. 7), and the graph
        is that of the norms of the server's first layers; with ``model="linear"`` the loss is not
        scaled, and parties solve eq. (5) to full precision. By default penalties grow faster with
        "linear", the norms of the first layers' blocks are averaged with "mlp", and the run ends
        when the graph is stable.
    sparsity : float or "auto", default "auto"
        lambda_1. "auto" is 0.2 (group, in units of the party's noise), 0.03 times the variables'
        harmonic mean variance (linear), or 0.01 (mlp). The paper gives no value; with
        ``variant="paper"`` it is 0.1 (linear, NOTEARS) or 0.01 (mlp, NOTEARS-MLP) if left out. A
        number is used without scaling.
    hidden, inner_steps, device, arithmetic
        See :class:`~flwr_causal.strategies.linear.PerceptronOptions`. With half of the
        steps the graphs are nearly as good in half the time.
    max_rounds : int or None, default None
        None is 32 for group lasso and search (8 and at most 24), 20 for the group lasso alone, 16
        for the other models, and 100 with ``variant="paper"``; one more with local graphs.
    center : {"party", "global"}, default "party"
        Of "linear" and "mlp": subtract each party's own means, or the means of all rows. By default
        intercepts may differ between parties, as mechanisms do; group lasso and evidence have an
        intercept for each party in any case.
    threshold : float, default 0.3
        Edges of absolute weight up to this are left out. For the group lasso a weight is the
        standard deviation of the effect in units of the party's noise, for perceptrons the root
        mean square of df_j/dx_i. The evidence search has no threshold.
    """

    model: Literal["group", "linear", "mlp"] = option("group", needs={"mlp": ("observed",)})
    refine: Literal["evidence", "none"] | None = None
    local_graphs: bool = option(False, needs=("observed", "replies"))
    sparsity: float | Literal["auto"] = bounded("auto", least=0)
    max_rounds: int | None = None  # type: ignore[assignment]
    center: Literal["party", "global"] = option("party", needs="centring")
    acted: ClassVar[type[Acted]] = ActedParties

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose, also the model, evidence and graphs of parties."""
        found = [*super().parts, GroupLasso if self.model == "group" else AveragedModel]
        if self.model == "mlp":
            found.append(PerceptronOptions)
        if self.refine == "evidence" or self.local_graphs:
            found.append(Evidence)
        if self.local_graphs:
            found.append(EvidenceByParty)
        return tuple(found)

    @property
    def of_paper(self) -> OfPaper:
        """The settings of Yang et al. (2024) for the model."""
        return OF_PAPER["linear" if self.model == "linear" else "mlp"]

    def settled(self) -> Any:
        """Return the options with the search that follows, and the number of exchanges."""
        options = super().settled()
        if options.refine is None:
            options = replace(options, refine="evidence" if options.model == "group" else "none")
        if options.max_rounds is None:
            rounds = options.usual_rounds + options.local_graphs
            options = replace(options, max_rounds=rounds)
        return options

    @property
    def usual_rounds(self) -> int:
        """The default of ``max_rounds`` without local graphs."""
        if self.refine == "evidence":
            return BEFORE_SEARCH[self.model] + SEARCH_ROUNDS
        return PAPER_ROUNDS if self.papers else ROUNDS[self.model]

    @property
    def limit(self) -> int:
        """Largest number of exchanges for the common graph."""
        assert self.max_rounds is not None  # see `settled`
        return self.max_rounds - self.local_graphs

    @property
    def lambda_1(self) -> float:
        """lambda_1, the weight of the sparsity."""
        return AUTOMATIC_SPARSITY[self.model] if self.sparsity == "auto" else self.sparsity

    @property
    def lambda_2(self) -> float:
        """lambda_2, the weight of the distance to the received weights or layers."""
        return AUTOMATIC_PROXIMITY[self.model] if self.proximity == "auto" else self.proximity

    @property
    def expected(self) -> Expected:
        """Mechanisms and levels may differ; the search on evidence with own noise has no units."""
        no_units = self.standardize or (self.refine == "evidence" and self.noise == "own")
        return Expected(raw_units=not no_units, columns=1, own_fits=True)


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
    """

    options_type = FedCausalOptions
    options: FedCausalOptions

    if TYPE_CHECKING:

        @takes(FedCausalOptions)
        def __init__(self, **options: Any) -> None: ...

    contract: ClassVar[Contract] = CONTRACT
    data = DataKind.NONLINEAR

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

    def train(self, agreement: Agreement, replicate: int = 0) -> Training:
        """Fit the model; search on the parties' evidence from its graph, if this is asked for.

        Yields
        ------
        Ask
            For the iterations of the model, the steps of the search, the parties' own graphs.

        Returns
        -------
        Result
        """
        masks = self.options.masks(agreement)
        result = partial(self._result, agreement, masks)
        model = yield from self._model(agreement, masks, result)
        found, reason, searched = model.found, model.reason, None
        if self.options.refine == "evidence":
            searched, reason = yield from search_on_evidence(
                self._search(masks, model),
                model.found,
                np.asarray(masks.required, dtype=bool),
                num_rows=agreement.n,
                share=self._share(agreement),
                standing=lambda searched: result(searched.found, searched),
            )
            found = searched.found
        own = None
        if self.options.local_graphs:
            values = {
                "graph": found.graph.astype(np.uint8),
                "start": model.found.graph.astype(np.uint8),
                "candidates": self.options.candidates,
                "share": self._share(agreement),
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
        """Fit the model.

        If the search follows, the share of the model in the exchanges is that of the defaults.
        """
        rounds, d = self.options.limit, len(agreement.names)
        if self.options.refine == "evidence":
            before = BEFORE_SEARCH[self.options.model]
            rounds = max(2, self.options.limit * before // (before + SEARCH_ROUNDS))
        if self.options.model == "group":
            schedule = group.group_schedule(rounds, sparsity=self.options.lambda_1)
            lasso = group.ServerProblem(schedule, masks, self.options.threshold)
            return (yield from group_lasso(lasso, d, standing))
        if self.options.model == "linear":
            ends: dict[str, Any] = {"max_exchanges": rounds, "acyclic": self.options.acyclic_server}
            settings = linear.Settings(**ends)
            if self.options.papers:
                settings = linear.Settings(**self.options.of_paper.constants, **ends, patience=0)
            problem = linear.ServerProblem(d, settings, masks.allowed, self.options.threshold)
            start = self._initial_weights(agreement)
            return (
                yield from linear_effects(problem, masks, self.options.threshold, standing, start)
            )
        neural = perceptrons.PerceptronProblem(
            network=Network(d, (self.options.hidden,)),
            masks=masks,
            averaging="layers" if self.options.papers else "norms",
            penalties=Penalties(**self.options.of_paper.constants),
            max_exchanges=rounds,
            patience=0 if self.options.papers else 4,
            threshold=self.options.threshold,
            acyclic=self.options.acyclic_server,
            seed=self.options.seed,
        )
        return (yield from perceptron_effects(neural, standing))

    def _search(self, masks: EdgeMasks, model: FittedModel) -> evidence_search.SearchProblem:
        """Return the limits of the searches that follow a model."""
        # The model's directions are taken where the evidence leaves them open. With standardised
        # columns they mean nothing.
        sure = 0.0 if self.options.standardize else evidence_search.UNDECIDED
        prior = np.where(model.found.graph.T, sure, 0.0)
        rounds = max(1, self.options.limit - model.taken)
        return evidence_search.SearchProblem(masks, self.options.candidates, rounds, prior)

    def _share(self, agreement: Agreement) -> float:
        """Return the share of the rows whose evidence is computed."""
        return min(1.0, self.options.evidence_rows / agreement.n)

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
            warnings += direction_warning(
                graph,
                masks,
                unexplained(graph.weights, variance) if self.options.model == "group" else None,
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
        return direction_warning(
            graph,
            masks,
            noise,
            standardized=self.options.standardize,
            unequal=UNEQUAL_IMPLIED,
            undecided=undecided,
        )


def _causal_graph(agreement: Agreement, masks: EdgeMasks, found: Strengths) -> CausalGraph:
    """Return the causal graph over the agreed columns, with the required edges."""
    required = np.asarray(masks.required, dtype=bool)
    weights = edge_weights(found.graph, found.weights)
    return CausalGraph(agreement.names, weights, raw_weights=found.raw, required=required)
