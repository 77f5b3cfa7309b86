"""NOTEARS-ADMM and NOTEARS-MLP-ADMM (Ng & Zhang, AISTATS 2022): the server's side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.contract.steps import step
from flwr_causal.core.consensus import admm, perceptrons
from flwr_causal.core.consensus.schedules import (
    TUNED,
    Schedule,
    Tuning,
    fast_schedule,
    growing_schedule,
)
from flwr_causal.core.linear.order_search import ROWS_FOR_ORDERS
from flwr_causal.core.nonlinear.notears_mlp import strength_graph
from flwr_causal.core.nonlinear.perceptrons import Network
from flwr_causal.core.options import number_or_none, require
from flwr_causal.core.parts import Part, all_but, option
from flwr_causal.doubts.graphs import plausible
from flwr_causal.protocol import consensus
from flwr_causal.runtime.algorithm import Ask, Note, Result
from flwr_causal.sources.by_party import sums_by_party
from flwr_causal.sources.sums import exact_products
from flwr_causal.strategies.admm_fit import AdmmFit, FitCandidate
from flwr_causal.strategies.linear import (
    InterventionOptions,
    LinearStrategy,
    PerceptronOptions,
)
from flwr_causal.strategies.local_graphs import local_graphs, require_several
from flwr_causal.strategies.privacy import PrivateOptions
from flwr_causal.strategies.variant import AVERAGED, OfPaper, PaperVariant, VariantOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.consensus.schedules import Schedule
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.moments import Moments
    from flwr_causal.core.systems.linear import LinearModel
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Training
    from flwr_causal.strategies.options import takes


# Factors on the automatic sparsity among which "bic" and "held-out" choose. The first one gives the
# graph before the choice.
CANDIDATES = (1.0, 0.5, 0.71, 1.41, 2.0, 2.83)
#: The paper's largest number of rounds (appendix B).
PAPER_ROUNDS = 200
#: The answer is W of the last round (appendix B): without a refit there is no search either.
OF_ADMM = {**AVERAGED, "refit": False}


def _of_ng_zhang(penalty: float, sparsity: float) -> OfPaper:
    """Return the settings of Ng & Zhang with the initial penalties and lambda of a model."""
    return OfPaper(
        # Appendix B: rho_2^1 = rho_1^1, gamma_2, gamma_1.
        constants={
            "consensus_penalty": penalty,
            "acyclicity_penalty": penalty,
            "consensus_growth": 1.25,
            "acyclicity_growth": 1.75,
        },
        fixed={
            **OF_ADMM,
            "epsilon": None,
            # Section 5.1, "Bias terms": each client centres its own rows.
            "center": "party",
            # Appendix B.
            "sparsity": sparsity,
            # Section 6, "Methods", after Zheng et al. (2018).
            "threshold": 0.3,
        },
    )


#: The settings of the paper by model (appendix B).
OF_PAPER = {"linear": _of_ng_zhang(1e-3, 0.01), "mlp": _of_ng_zhang(0.1, 0.001)}


@dataclass(frozen=True, kw_only=True)
class EarlyStop(Part):
    """The default algorithm, which may end before its last round.

    Parameters
    ----------
    early_stop : bool, default True
        End when h is small, the parties agree and the graph has been stable for some rounds.
    """

    text = "variant='default'"

    early_stop: bool = True


class OwnGraphs(Part):
    """A graph of each party, from moments that all parties send."""

    text = "local_graphs=True"
    gives = all_but("sample", "median")


@dataclass(frozen=True, kw_only=True)
class ADMMOptions(EarlyStop, VariantOptions, InterventionOptions):
    """The options of :class:`LinearADMM`.

    Parameters
    ----------
    max_rounds : int or None, default None
        Exchanges after the schema exchange. None is 40, or 200 with ``variant="paper"``, and one
        more with ``local_graphs``. The default's schedule is made for this number; the paper's
        rounds are only cut there.
    variant : {"default", "paper"}, default "default"
        "default": the consensus penalty falls, and both penalties and the sparsity are scaled by
        the data's variance, dimension and rows; it makes a third of the paper's errors in a fifth
        of its rounds (docs/figures). "paper": the algorithm of the method's paper with the paper's
        constants and nothing beside it: penalties that grow, no search, no refit, no early end.
        Only the weakest edges of cycles above the threshold are left out here too.
    sparsity : float or {"auto", "bic", "held-out"}, default "auto"
        Weight lambda_1 of the L1 norm. "auto" is c sqrt(log d / n) times the harmonic mean of the
        variances, and with ``variant="paper"`` the paper's value. "bic" and "held-out" fit several
        values in the same rounds (the arrays are as many times as large) and choose by the
        Gaussian BIC, or by the error on a quarter of the rows, which is held out; the parties
        return sums only.
    threshold : float or None, default None
        Edges of absolute weight up to this are left out. None is 0.3 for the ADMM's own graph
        (Zheng et al. 2018, section 5), and 0 after the search, whose score selects the edges.
    search : bool or None, default None
        After the last round search over orders of the variables, as the default of
        :class:`~flwr_causal.strategies.moments.moments.Moments` does, from the ADMM's graph too.
        In the last exchange the parties then send the products of each column and all columns with
        which the solution connects it before the threshold (in small dense graphs nearly all
        products; ``known_pairs`` in the history is their share). ADMM's objective takes all noise
        terms to have one variance; the search does not, and makes a fifth of the errors beyond the
        papers' simulators (docs/figures). None is True with automatic sparsity and a refit and, for
        series, from 5 rows for each column of the design on; False with ``aggregation="median"``.
    refit : bool or None, default None
        Use the last exchange to fit the weights of the final graph by least squares and to estimate
        noise variances. None is True. Without it the weights are those of the ADMM and
        ``run.model`` is None. With required edges it is always done.
    local_graphs : bool, default False
        In one more exchange the parties send the second moments of all their columns, from which
        the server finds each party's own graph (``core.interventions.local_graphs``): the common
        causes of every variable but those whose mechanism in the party's rows differs beyond
        sampling error. ``run.local_graphs`` has these graphs and ``run.heterogeneity`` their
        differences. With ``secure_aggregation`` they are of ``groups`` of parties.
    """

    max_rounds: int | None = None  # type: ignore[assignment]
    sparsity: float | Literal["auto", "bic", "held-out"] = option(
        "auto",
        needs={"bic": ("candidates",), "held-out": ("candidates", "folds")},
        least=0,
    )
    threshold: float | None = None  # type: ignore[assignment]
    search: bool | None = option(None, needs="solvers")
    refit: bool | None = None
    local_graphs: bool = option(False, needs=("parties", "observed", "solvers"))

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose, also the default algorithm and graphs of parties."""
        own = [EarlyStop] if self.variant == "default" else []
        return (*super().parts, *own, *([OwnGraphs] if self.local_graphs else []))


class LinearADMM(PaperVariant, LinearStrategy):
    """Base of the methods that solve a linear problem by consensus ADMM, with lags or without."""

    options_type: ClassVar[type[ADMMOptions]] = ADMMOptions
    options: ADMMOptions

    _tunings: ClassVar[Mapping[int, Tuning]] = TUNED
    #: The default of ``max_rounds``; with a refit one of these exchanges is for it.
    usual_rounds: ClassVar[int] = 40
    #: The default of ``threshold``, for the graph of the ADMM and for the one of the search.
    _usual_threshold: ClassVar[float] = 0.3
    _searched_threshold: ClassVar[float] = 0.0

    def settled(self, options: Any) -> Any:
        """Return the options with the number of rounds, and a refit where edges are required."""
        options = super().settled(options)
        known = options.knowledge
        if options.refit is False and known and (known.required or known.required_lagged):
            # It brings no search along.
            search = options.search if self.nonlinear else bool(options.search)
            options = replace(options, refit=True, search=search)
        if options.max_rounds is None:
            rounds = PAPER_ROUNDS if self._papers else self.usual_rounds
            options = replace(options, max_rounds=rounds + options.local_graphs)
        return options

    def validate(self) -> None:
        """Check that the options fit each other."""
        rounds = self.options.max_rounds
        assert rounds is not None  # see `settled`
        least = 6 + self.options.local_graphs
        needed = f"{least} or more{' with local_graphs=True' if self.options.local_graphs else ''}"
        require(self._papers or rounds >= least, "max_rounds", rounds, needed)
        super().validate()
        if self.options.search:
            candidates = len(self.candidates) == 1
            require(candidates, "search", True, "False where sparsity or lags are chosen")
            require(self.options.refit is not False, "search", True, "False with refit=False")
            by_sums = self.options.aggregation == "mean"
            require(by_sums, "search", True, "False with aggregation='median'")

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on the columns; with local graphs there must be parties to compare.

        Raises
        ------
        ConfigError
            As in the base class, or if there is one party only.
        DataError
            As in the base class.
        """
        if self._compares_parties:
            require_several("local_graphs", reports)
        return super().agree(reports)

    def train(self, agreement: Agreement, replicate: int = 0) -> Training:
        """Solve for W by rounds of ADMM; refit and search on moments of one more exchange.

        Yields
        ------
        Ask
            For the parties' arrays of each round, then for moments of the graph's families, and for
            each party's moments.

        Returns
        -------
        Result
        """
        masks, d = self._stacked_masks(agreement), len(agreement.names)
        problem = admm.ServerProblem(
            schedule=self._schedule(agreement),
            num_variables=d,
            lags=self.options.lags,
            relative_sparsity=self._relative_sparsity(masks, d),
            allowed=self._allowed(masks, d),
            threshold=self.thresholds(agreement, self._usual_threshold),
            intercepts=bool(agreement.targets),
        )
        start = self._initial_weights(agreement, self.options.lags)
        state, stopped = admm.init(problem, start), None
        design = self.options.design(agreement)
        fit = AdmmFit(
            agreement,
            design,
            masks,
            self.candidates,
            self._choice,
            problem,
            state.weights,
            spread=np.sqrt(agreement.variance) / self.scale(agreement),
            searches=self._searches(agreement.n, len(masks.allowed)),
            cut=self.thresholds(agreement, self._searched_threshold),
        )
        while stopped is None:
            settings = problem.schedule.at(state.round)
            values = {
                "weights": state.weights,
                "penalty": settings.consensus_penalty,
                "relaxation": settings.relaxation,
            }
            replies = yield Ask(consensus.ROUND, values, so_far=partial(self._result, fit))
            # Equation (5), on the mean of what the parties have solved by equation (10).
            parties = agreement.num_parties
            state, info = admm.server_step(state, replies["weights"], problem, parties)
            stopped = admm.finished(state, info, problem)
            problem = self.next_problem(problem, state)
            fit = replace(fit, solved=state.weights)
            yield Note(info._asdict())
        if self._refits:
            sums = Ask(consensus.REFIT, {"needed": fit.needed}, so_far=partial(self._result, fit))
            fit = fit.refitted((yield from exact_products(agreement, masks, design, ask=sums)))
            if fit.searches:
                fit, found = fit.searched()
                yield Note(found)
        result = self._result(fit, stopped)
        if not self.options.local_graphs or replicate:
            return result
        replies = yield Ask(consensus.PARTS, so_far=lambda: result)
        assert result.graph is not None
        parts = sums_by_party(replies, agreement)
        parts = {name: design.without_mark(own) for name, own in parts.items()}
        own = local_graphs(parts, result.graph, masks)
        return replace(result, heterogeneity=own)

    @property
    def _compares_parties(self) -> bool:
        """Whether own graphs follow from how a party's moments differ from the others'."""
        return self.options.local_graphs

    @step(consensus.ROUND.only)
    def next_problem(self, problem: admm.ServerProblem, state: admm.State) -> admm.ServerProblem:
        """Return the server's problem of the next round; a subclass may change it.

        Parameters
        ----------
        problem : ServerProblem
            Of the last round.
        state : State
            After it, with W as ``weights``, shape (1, d, d).
        """
        return problem

    def _result(self, fit: AdmmFit, reason: str = "") -> Result:
        """Return the graph of a fit, the system of its moments, and what to know of it."""
        agreement, graph = fit.agreement, fit.graph
        warnings: list[str] = []
        if not self._papers:
            graph, warnings = plausible(graph, self.units(agreement), fit.masks)
        system = None if fit.total is None else self.system(agreement, fit.total, graph)
        # Interventions direct edges too.
        if not agreement.targets:
            warnings += self._doubtful_directions(agreement, graph, fit.masks, system, fit.solution)
        return Result(graph, fit.strengths, system, tuple(warnings), reason=reason)

    def system(
        self, agreement: Agreement, moments: Sequence[Moments], graph: CausalGraph
    ) -> LinearModel:
        """Return the fitted system of a graph in the units of the data."""
        return self.fitted_system(agreement, moments, graph)

    @property
    def nonlinear(self) -> bool:
        """Whether effects are not linear, so that their form determines directions too."""
        return False

    @property
    def _refits(self) -> bool:
        """Whether one more exchange follows the last round, by ``refit`` or by need."""
        return self.options.refit is not False or self._choice is not None

    def _searches(self, num_rows: int, num_columns: int) -> bool:
        """Whether a search over orders follows the refit, see ``search``."""
        if self.options.search is not None or self.nonlinear:
            return bool(self.options.search)
        usual = self.options.sparsity == "auto" and self.options.refit is not False
        enough = self.options.lags == 0 or num_rows >= ROWS_FOR_ORDERS * num_columns
        return usual and enough and self._choice is None and self.options.aggregation == "mean"

    @property
    def held_out(self) -> bool:
        """Whether a quarter of the rows is held out."""
        return self._choice == "held-out"

    @property
    def _choice(self) -> Literal["held-out", "bic"] | None:
        """How one of several candidates is chosen; None if there is only one."""
        if len(self.candidates) == 1:
            return None
        return "bic" if self.options.sparsity == "bic" else "held-out"

    def _schedule(self, agreement: Agreement) -> Schedule:
        assert self.options.max_rounds is not None
        # One exchange is left for the refit, and one for the parties' own graphs.
        others = self._refits + self.options.local_graphs
        schedule = self._full_schedule(agreement, self.options.max_rounds - others)
        sparsity = number_or_none(self.options.sparsity)
        if sparsity is not None:
            schedule = replace(schedule, sparsity=(sparsity,) * schedule.rounds)
        return schedule if self.options.early_stop else replace(schedule, patience=0)

    def _full_schedule(self, agreement: Agreement, rounds: int) -> Schedule:
        """Return the schedule for that many rounds, with the automatic sparsity."""
        if self._papers:
            return self._growing_schedule(rounds)
        return fast_schedule(
            rounds,
            num_clients=agreement.num_parties,
            num_rows=agreement.n,
            num_variables=len(agreement.names),
            scale=self.noise_scale(agreement),
            tunings=self._tunings,
        )

    def _growing_schedule(self, rounds: int) -> Schedule:
        """Return the paper's schedule, up to that many rounds."""
        sparsity = number_or_none(self.options.sparsity)
        assert sparsity is not None  # of the paper
        return growing_schedule(rounds, **self._of_paper.constants, sparsity=sparsity)

    # The parts that differ for a lagged design; TwoDBN overrides them.

    @property
    def _initial_names(self) -> tuple[str, ...]:
        """The names of the weights to start from: of W, and with lags of the lagged weights."""
        return ("weights", "lagged") if self.options.lags else ("weights",)

    def _stacked_masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge over the design's columns, (m, m) each."""
        return self.masks(agreement)

    def thresholds(self, agreement: Agreement, usual: float) -> float | FloatArray:
        """Return the thresholds on the weights of the design's columns, a number or (m, 1).

        ``usual`` stands for a threshold that is not given.
        """
        return usual if self.options.threshold is None else self.options.threshold

    @property
    def candidates(self) -> tuple[FitCandidate, ...]:
        """The settings that are fitted in the same rounds, the default one first."""
        factors = CANDIDATES if self.options.sparsity in ("bic", "held-out") else (1.0,)
        return tuple(FitCandidate(factor, self.options.lags) for factor in factors)

    def _block_sparsity(self, num_variables: int) -> float | FloatArray:
        """Return the factors on the sparsity of the design's columns, a number or (m, 1)."""
        return 1.0

    def _relative_sparsity(self, masks: EdgeMasks, num_variables: int) -> FloatArray:
        """Return the factors on the schedule's sparsity, shape (candidates, m, d)."""
        factors = np.array([candidate.factor for candidate in self._side_by_side])
        exempt = np.where(masks.required[:, :num_variables], 0.0, 1.0)
        return factors[:, None, None] * exempt * self._block_sparsity(num_variables)

    def _allowed(self, masks: EdgeMasks, num_variables: int) -> BoolArray:
        """Return the edges that each candidate may have, shape (candidates, m, d)."""
        lag = np.arange(len(masks.allowed)) // num_variables
        within = np.array([lag <= candidate.lags for candidate in self._side_by_side])
        return np.asarray(within[:, :, None] & masks.allowed[:, :num_variables])

    @property
    def _side_by_side(self) -> tuple[FitCandidate, ...]:
        """The candidates; with held-out rows twice, for the other rows and for all rows."""
        return self.candidates * (2 if self._choice == "held-out" else 1)


@dataclass(frozen=True, kw_only=True)
class NotearsADMMOptions(PerceptronOptions, ADMMOptions, PrivateOptions):
    """The options of :class:`NotearsADMM`.

    Parameters
    ----------
    model : {"linear", "mlp"}, default "linear"
        "mlp" needs torch; its further options are those of
        :class:`~flwr_causal.strategies.linear.PerceptronOptions`.
    variant : {"default", "paper"}, default "default"
        "paper": ``center="party"`` (section 5.1); penalties from 0.001 that grow by the factors
        1.25 and 1.75 and lambda 0.01, with ``model="mlp"`` from 0.1 and 0.001 (appendix B);
        threshold 0.3; 197 rounds, 176 with ``model="mlp"``.
    max_rounds, sparsity, refit, early_stop
        See :class:`~flwr_causal.strategies.notears_admm.ADMMOptions`. With ``model="mlp"`` the
        default adds a small weight decay, and ``sparsity`` is "auto" or a number. With ``refit``
        the parties return in the last exchange the strengths of the edges, the root mean square of
        df_j/dx_i; without it the threshold applies, as in the paper, to the norms of the first
        layers, which have no unit.
    inner_steps : int, default 20
        Largest number of L-BFGS steps of a party in a round, ``model="mlp"``.
    """

    model: Literal["linear", "mlp"] = option("linear", needs={"mlp": ("observed", "iterations")})
    inner_steps: int = 20

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose, also perceptrons."""
        return (*super().parts, PerceptronOptions) if self.model == "mlp" else super().parts


class NotearsADMM(LinearADMM):
    """Federated structure learning by consensus ADMM (Ng & Zhang, AISTATS 2022).

    The parties solve one NOTEARS problem over all rows without sending rows. In a round every party
    receives W, solves its own least-squares problem in closed form (eq. 10) and sends one d x d
    array, B_k + beta_k / rho_2. The server uses only the mean of these arrays; it solves for the
    next W (eq. 5), which is sparse and becomes acyclic. With ``model="mlp"`` (NOTEARS-MLP-ADMM,
    section 5.2) effects are perceptrons that all parties share, and W holds the norms of their
    first layers.

    **What leaves a party**: in the schema exchange names, types, the number of rows and, for each
    column, mean and sum of squared deviations; in every round the d x d array above; in the last
    exchange (``refit``) the sums of products of each variable and its parents with each other.
    From the first array alone a server can compute the party's second moments exactly: without
    secure aggregation this method hides no more than :class:`Moments` does. With ``model="mlp"``:
    in every round all parameters of the perceptrons, and in the last exchange the mean squares of
    their slopes, d x d. With ``epsilon`` all of this is computed from one release of the party's
    moments, with noise of its own; numbers of rows are then those that the releases are worth.

    References
    ----------
    Ng & Zhang (2022). Towards federated Bayesian network structure learning with continuous
    optimization. AISTATS.
    """

    options_type = NotearsADMMOptions
    options: NotearsADMMOptions

    if TYPE_CHECKING:

        @takes(NotearsADMMOptions)
        def __init__(self, **options: Any) -> None: ...

    contract: ClassVar[Contract] = consensus.NOTEARS_ADMM

    @property
    def _initial_names(self) -> tuple[str, ...]:
        """W of the linear model."""
        return super()._initial_names if self.options.model == "linear" else ()

    @property
    def _of_paper(self) -> OfPaper:
        """The settings of Ng & Zhang (2022) for the model."""
        return OF_PAPER[self.options.model]

    def validate(self) -> None:
        """Check the options' values."""
        super().validate()
        self.options.validate_perceptrons()

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on the columns.

        Raises
        ------
        ConfigError
            As in the base class, or if ``scales`` names a column that there is not.
        DataError
            As in the base class.
        """
        agreement = super().agree(reports)
        listed = () if self._entries is None else tuple(one.name for one in self._entries.columns)
        self.options.check_scales((*agreement.names, *listed))
        return agreement

    def train(self, agreement: Agreement, replicate: int = 0) -> Training:
        """Solve for W by rounds of ADMM, or for the parameters of perceptrons."""
        if self.options.model == "mlp":
            return (yield from self._perceptrons(agreement))
        result = yield from super().train(agreement, replicate)
        if not self._private:
            return result
        # Standard errors and tests by rows know nothing of the noise.
        model = result.model and replace(result.model, sample_moments=None)
        # Each party makes a release with all of the noise.
        privacy = self.options.guarantee(agreement.names, sharing=1, effective_rows=agreement.n)
        return replace(result, model=model, privacy=privacy)

    def _perceptrons(self, agreement: Agreement) -> Training:
        """Solve for the parameters of perceptrons (section 5.2); then measure the edges."""
        masks = self.masks(agreement)
        problem = perceptrons.ServerProblem(
            network=Network(len(agreement.names), (self.options.hidden,)),
            masks=masks,
            schedule=self._schedule(agreement),
            decay=0.0 if self._papers else perceptrons.NEURAL_DECAY,
            threshold=self._usual_threshold
            if self.options.threshold is None
            else self.options.threshold,
        )

        def result(strengths: FloatArray, reason: str = "") -> Result:
            graph = strength_graph(agreement.names, strengths, problem.threshold, masks)
            warnings: list[str] = []
            if not self._papers:
                graph, warnings = plausible(graph, self.units(agreement), masks)
            return Result(graph, strengths, warnings=tuple(warnings), reason=reason)

        def norms() -> FloatArray:
            return np.sqrt(problem.network.squared_norms(state.weights))

        # From parameters that are drawn by the seed.
        state, stopped = perceptrons.init(problem, self.options.seed), None
        while stopped is None:
            penalty = problem.schedule.at(state.round).consensus_penalty
            values = {"parameters": state.weights, "penalty": penalty}
            replies = yield Ask(consensus.PERCEPTRONS, values, so_far=lambda: result(norms()))
            parties = agreement.num_parties
            state, info = perceptrons.server_step(state, replies["parameters"], problem, parties)
            stopped = perceptrons.finished(state, info, problem)
            yield Note(info._asdict())
        if not self._refits:
            return result(norms(), stopped)
        # Root mean squares of the slopes.
        replies = yield Ask(consensus.SLOPES, {"parameters": state.weights})
        return result(np.sqrt(replies["slopes"]), stopped)

    def _full_schedule(self, agreement: Agreement, rounds: int) -> Schedule:
        """Return the schedule of the model for that many rounds."""
        if self.options.model == "linear":
            return super()._full_schedule(agreement, rounds)
        if self._papers:
            return self._growing_schedule(rounds)
        return perceptrons.fast_schedule(
            rounds,
            num_clients=agreement.num_parties,
            num_rows=agreement.n,
            num_variables=len(agreement.names),
            scale=self.noise_scale(agreement),
        )

    @property
    def nonlinear(self) -> bool:
        """Whether effects are perceptrons."""
        return self.options.model == "mlp"
