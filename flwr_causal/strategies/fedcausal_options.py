"""The options of FedCausal, and the problems that they pose to its solvers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.fedcausal import evidence_search, group, linear, perceptrons
from flwr_causal.core.fedcausal.penalties import Penalties
from flwr_causal.core.nonlinear.perceptrons import Network
from flwr_causal.core.options import bounded
from flwr_causal.core.parts import Part, all_but, option, words
from flwr_causal.doubts.tables import Expected
from flwr_causal.strategies.linear import Acted, InterventionOptions, PerceptronOptions
from flwr_causal.strategies.variant import AVERAGED, OfPaper, VariantOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks


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


def _of_yang(defaults: Mapping[str, float]) -> OfPaper:
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
        },
        # Algorithm 1 is that of perceptrons; eqs. (4) and (5) are the linear ones.
        choices={"model": ("mlp", "linear")},
        defaults=defaults,
    )


#: The settings of the paper by model. It gives neither lambda_1 nor lambda_2: left out, lambda_1 is
#: that of NOTEARS and of NOTEARS-MLP, which supplement A names for its baselines. The text after
#: eq. (5) adds the term of lambda_2 "in practice"; eq. (7), of perceptrons, is written without it.
#: Measured with perceptrons and 100 inner steps on draws that no scenario has, 40 edges: SHD 16 and
#: 22 with 0, 8 and 22 with 0.1 (d = 40); 15 and 8 (d = 20). With 1000 steps, which nearly solve
#: eq. (7), 0 is better (docs/figures/fedcausal.md).
OF_PAPER = {
    "linear": _of_yang({"sparsity": linear.SPARSITY, "proximity": linear.PROXIMITY}),
    "mlp": _of_yang({"sparsity": 0.01, "proximity": 0.1}),
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
        lambda_2 of "linear" and "mlp". "auto" is 0.001 (linear) or 0 (mlp). The paper gives no
        value; with ``variant="paper"`` it is 0.001 (linear) or 0.1 (mlp) if left out; eq. (7), of
        perceptrons, is written without the term.
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
    """The options of :class:`~flwr_causal.strategies.fedcausal.FedCausal`.

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
        the first layers themselves are averaged, and the graph is that of the norms of the
        server's first layers; with ``model="linear"`` the loss is not scaled, and parties solve
        eq. (5) to full precision. By default penalties grow faster with "linear", the norms of the
        first layers' blocks are averaged with "mlp", and the run ends when the graph is stable.
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

    Examples
    --------
    >>> from flwr_causal.strategies.fedcausal_options import FedCausalOptions
    >>> FedCausalOptions(model="linear").model
    'linear'
    """

    model: Literal["group", "linear", "mlp"] = option("group", needs={"mlp": ("observed",)})
    refine: Literal["evidence", "none"] | None = None
    local_graphs: bool = option(False, needs=("observed", "replies"))
    sparsity: float | Literal["auto"] = bounded("auto", least=0)
    max_rounds: int | None = None  # type: ignore[assignment]
    center: Literal["party", "global"] = option("party", needs="centring")
    acted: ClassVar[type[Acted]] = ActedParties

    @property
    def weighs_in_units(self) -> bool:
        """Whether a weight is a change of the effect, in its units, by one unit of the cause."""
        return self.model == "linear"

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

    @property
    def model_rounds(self) -> int:
        """The most exchanges of the model.

        If the search follows, the model's share in the exchanges is that of the defaults.
        """
        if self.refine != "evidence":
            return self.limit
        before = BEFORE_SEARCH[self.model]
        return max(2, self.limit * before // (before + SEARCH_ROUNDS))

    def lasso(self, masks: EdgeMasks) -> group.ServerProblem:
        """Return the settings of the group lasso."""
        schedule = group.group_schedule(self.model_rounds, sparsity=self.lambda_1)
        return group.ServerProblem(schedule, masks, self.threshold)

    def linear_problem(self, masks: EdgeMasks) -> linear.ServerProblem:
        """Return the settings of Algorithm 1 with linear effects."""
        own: dict[str, Any] = {**self.of_paper.constants, "patience": 0} if self.papers else {}
        settings = linear.Settings(
            max_exchanges=self.model_rounds, acyclic=self.acyclic_server, **own
        )
        return linear.ServerProblem(len(masks.allowed), settings, masks.allowed, self.threshold)

    def perceptron_problem(self, masks: EdgeMasks) -> perceptrons.PerceptronProblem:
        """Return the settings of Algorithm 1 with perceptrons."""
        return perceptrons.PerceptronProblem(
            network=Network(len(masks.allowed), (self.hidden,)),
            masks=masks,
            averaging="layers" if self.papers else "norms",
            penalties=Penalties(**self.of_paper.constants),
            max_exchanges=self.model_rounds,
            patience=0 if self.papers else 4,
            threshold=self.threshold,
            acyclic=self.acyclic_server,
            seed=self.seed,
        )

    def search_problem(
        self, masks: EdgeMasks, start: BoolArray, taken: int
    ) -> evidence_search.SearchProblem:
        """Return the limits of the searches that follow a model.

        Parameters
        ----------
        masks : EdgeMasks
        start : ndarray of bool, shape (d, d)
            The model's graph. Its directions are taken where the evidence leaves them open; with
            standardised columns they mean nothing.
        taken : int
            Exchanges of the model.
        """
        sure = 0.0 if self.standardize else evidence_search.UNDECIDED
        rounds = max(1, self.limit - taken)
        prior = np.where(start.T, sure, 0.0)
        return evidence_search.SearchProblem(masks, self.candidates, rounds, prior)

    def share(self, num_rows: int) -> float:
        """Return the share of the rows whose evidence is computed."""
        return min(1.0, self.evidence_rows / num_rows)
