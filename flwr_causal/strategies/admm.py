"""Consensus ADMM on a linear system (Ng & Zhang 2022): what NOTEARS-ADMM and 2Dbn share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.consensus import admm
from flwr_causal.core.consensus.schedules import (
    TUNED,
    Schedule,
    Tuning,
    fast_schedule,
    growing_schedule,
)
from flwr_causal.core.linear.order_search import ROWS_FOR_ORDERS
from flwr_causal.core.options import number_or_none, require
from flwr_causal.core.parts import Part, all_but, option
from flwr_causal.doubts.graphs import doubts_of, plausible
from flwr_causal.protocol import consensus
from flwr_causal.runtime.algorithm import Ask, Note, Result
from flwr_causal.sources.by_party import sums_by_party
from flwr_causal.sources.sums import exact_products
from flwr_causal.strategies.admm_fit import AdmmFit, FitCandidate
from flwr_causal.strategies.linear import InterventionOptions, fitted_system
from flwr_causal.strategies.local_graphs import local_graphs, require_several
from flwr_causal.strategies.variant import AVERAGED, VariantOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.runtime.algorithm import Steps


# Factors on the automatic sparsity among which "bic" and "held-out" choose. The first one gives the
# graph before the choice.
CANDIDATES = (1.0, 0.5, 0.71, 1.41, 2.0, 2.83)
#: The paper's largest number of rounds (appendix B).
PAPER_ROUNDS = 200
#: The answer is W of the last round (appendix B): without a refit there is no search either.
OF_ADMM = {**AVERAGED, "refit": False}


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
    """The options of the methods that solve a linear problem by consensus ADMM, with lags or not.

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

    Examples
    --------
    >>> from flwr_causal.strategies.admm import ADMMOptions
    >>> ADMMOptions(max_rounds=20).max_rounds
    20
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

    #: The default of ``max_rounds``; with a refit one of these exchanges is for it.
    _usual_rounds: ClassVar[int] = 40
    #: The default of ``threshold``, for the graph of the ADMM and for the one of the search.
    _usual_threshold: ClassVar[float] = 0.3
    _searched_threshold: ClassVar[float] = 0.0

    def settled(self) -> Any:
        """Return the options with the number of rounds, and a refit where edges are required."""
        options = super().settled()
        known = options.known
        if options.refit is False and known and (known.required or known.required_lagged):
            # It brings no search along.
            search = options.search if self.nonlinear else bool(options.search)
            options = replace(options, refit=True, search=search)
        if options.max_rounds is None:
            rounds = PAPER_ROUNDS if self.papers else self._usual_rounds
            options = replace(options, max_rounds=rounds + options.local_graphs)
        return options

    def check(self) -> None:
        """Check that the options fit each other.

        Raises
        ------
        ConfigError
            Naming the option and its possible values.
        """
        rounds = self.max_rounds
        assert rounds is not None  # see `settled`
        least = 6 + self.local_graphs
        needed = f"{least} or more{' with local_graphs=True' if self.local_graphs else ''}"
        require(self.papers or rounds >= least, "max_rounds", rounds, needed)

    def check_search(self) -> None:
        """Check that a search that is asked for is possible.

        Raises
        ------
        ConfigError
            Naming the option and its possible values.
        """
        if self.search:
            candidates = len(self.candidates) == 1
            require(candidates, "search", True, "False where sparsity or lags are chosen")
            require(self.refit is not False, "search", True, "False with refit=False")
            by_sums = self.aggregation == "mean"
            require(by_sums, "search", True, "False with aggregation='median'")

    def check_parties(self, reports: Mapping[str, TableReport]) -> None:
        """Check that there are parties to compare, where graphs of their own are asked for.

        Raises
        ------
        ConfigError
            As in the base class, or if there is one party only.
        """
        if self.compares_parties:
            require_several("local_graphs", reports)
        super().check_parties(reports)

    @property
    def compares_parties(self) -> bool:
        """Whether own graphs follow from how a party's moments differ from the others'."""
        return self.local_graphs

    @property
    def nonlinear(self) -> bool:
        """Whether effects are not linear, so that their form determines directions too."""
        return False

    @property
    def refits(self) -> bool:
        """Whether one more exchange follows the last round, by ``refit`` or by need."""
        return self.refit is not False or self.choice is not None

    def searches(self, num_rows: int, num_columns: int) -> bool:
        """Return whether a search over orders follows the refit, see ``search``."""
        if self.search is not None or self.nonlinear:
            return bool(self.search)
        usual = self.sparsity == "auto" and self.refit is not False
        enough = self.lags == 0 or num_rows >= ROWS_FOR_ORDERS * num_columns
        return usual and enough and self.choice is None and self.aggregation == "mean"

    @property
    def held_out(self) -> bool:
        """Whether a quarter of the rows is held out."""
        return self.choice == "held-out"

    @property
    def choice(self) -> Literal["held-out", "bic"] | None:
        """How one of several candidates is chosen; None if there is only one."""
        if len(self.candidates) == 1:
            return None
        return "bic" if self.sparsity == "bic" else "held-out"

    @property
    def candidates(self) -> tuple[FitCandidate, ...]:
        """The settings that are fitted in the same rounds, the default one first."""
        factors = CANDIDATES if self.sparsity in ("bic", "held-out") else (1.0,)
        return tuple(FitCandidate(factor, self.lags) for factor in factors)

    @property
    def side_by_side(self) -> tuple[FitCandidate, ...]:
        """The candidates; with held-out rows twice, for the other rows and for all rows."""
        return self.candidates * (2 if self.held_out else 1)

    def thresholds(self, agreement: Agreement, usual: float) -> float | FloatArray:
        """Return the thresholds on the weights of the design's columns, a number or (m, 1).

        ``usual`` stands for a threshold that is not given.
        """
        return usual if self.threshold is None else self.threshold

    def block_sparsity(self, num_variables: int) -> float | FloatArray:
        """Return the factors on the sparsity of the design's columns, a number or (m, 1)."""
        return 1.0

    def schedule(self, agreement: Agreement) -> Schedule:
        """Return penalties and sparsity of every round."""
        assert self.max_rounds is not None
        # One exchange is left for the refit, and one for the parties' own graphs.
        schedule = self._full_schedule(agreement, self.max_rounds - self.refits - self.local_graphs)
        sparsity = number_or_none(self.sparsity)
        if sparsity is not None:
            schedule = replace(schedule, sparsity=(sparsity,) * schedule.rounds)
        return schedule if self.early_stop else replace(schedule, patience=0)

    @property
    def tunings(self) -> Mapping[int, Tuning]:
        """Penalties and sparsity of the default by number of rounds."""
        return TUNED

    def _full_schedule(self, agreement: Agreement, rounds: int) -> Schedule:
        """Return the schedule for that many rounds, with the automatic sparsity."""
        if self.papers:
            sparsity = number_or_none(self.sparsity)
            assert sparsity is not None  # of the paper
            return growing_schedule(rounds, **self.of_paper.constants, sparsity=sparsity)
        return fast_schedule(
            rounds,
            num_clients=agreement.num_parties,
            num_rows=agreement.n,
            num_variables=len(agreement.names),
            scale=self.noise_scale(agreement),
            tunings=self.tunings,
        )

    def problem(self, agreement: Agreement, masks: EdgeMasks) -> admm.ServerProblem:
        """Return the server's problem of the first round, of all candidates side by side."""
        d = len(agreement.names)
        factors = np.array([one.factor for one in self.side_by_side])
        exempt = np.where(masks.required[:, :d], 0.0, 1.0)
        lag = np.arange(len(masks.allowed)) // d
        within = np.array([lag <= one.lags for one in self.side_by_side])
        allowed: BoolArray = within[:, :, None] & masks.allowed[:, :d]
        return admm.ServerProblem(
            schedule=self.schedule(agreement),
            num_variables=d,
            lags=self.lags,
            relative_sparsity=factors[:, None, None] * exempt * self.block_sparsity(d),
            allowed=allowed,
            threshold=self.thresholds(agreement, self._usual_threshold),
            intercepts=bool(agreement.targets),
        )


def consensus_of_parties(
    options: ADMMOptions,
    agreement: Agreement,
    start: FloatArray | None,
    next_problem: Callable[[admm.ServerProblem, admm.ServerState], admm.ServerProblem],
    *,
    with_own: bool,
) -> Steps:
    """Solve for W by rounds of ADMM; refit and search on products of one more exchange.

    Parameters
    ----------
    options : ADMMOptions
    agreement : Agreement
    start : ndarray of shape (m, d) or None
        The first W; None for the method's own.
    next_problem : callable
        Returns the server's problem of the next round, given that of the last one and the state.
    with_own : bool
        Whether own graphs of the parties are found; replicates have none.

    Yields
    ------
    Ask
        For the parties' arrays of each round, then for products of the graph's families, and for
        each party's products.

    Returns
    -------
    Result
    """
    masks, design = options.masks(agreement), options.design(agreement)
    problem = options.problem(agreement, masks)
    state, stopped = admm.init(problem, start), None
    fit = AdmmFit(
        agreement,
        design,
        masks,
        options.candidates,
        options.choice,
        problem,
        state.weights,
        spread=options.spread(agreement),
        searches=options.searches(agreement.n, len(masks.allowed)),
        cut=options.thresholds(agreement, options._searched_threshold),
    )
    while stopped is None:
        settings = problem.schedule.at(state.round)
        values = {
            "weights": state.weights,
            "penalty": settings.consensus_penalty,
            "relaxation": settings.relaxation,
        }
        replies = yield Ask(consensus.ROUND, values, so_far=partial(result_of, options, fit))
        # Equation (5), on the mean of what the parties have solved by equation (10).
        parties = agreement.num_parties
        state, info = admm.server_step(state, replies["weights"], problem, parties)
        stopped = admm.finished(state, info, problem)
        problem = next_problem(problem, state)
        fit = replace(fit, solved=state.weights)
        yield Note(info._asdict())
    if options.refits:
        so_far = partial(result_of, options, fit)
        sums = Ask(consensus.REFIT, {"needed": fit.needed}, so_far=so_far)
        fit = fit.refitted((yield from exact_products(agreement, design, ask=sums)))
        if fit.searches:
            fit, found = fit.searched()
            yield Note(found)
    result = result_of(options, fit, stopped)
    if not with_own:
        return result
    replies = yield Ask(consensus.PARTS, so_far=lambda: result)
    assert result.graph is not None
    parts = sums_by_party(replies, agreement)
    parts = {name: design.without_mark(own) for name, own in parts.items()}
    return replace(result, heterogeneity=local_graphs(parts, result.graph, masks))


def result_of(options: ADMMOptions, fit: AdmmFit, reason: str = "") -> Result:
    """Return the graph of a fit, the system of its products, and warnings."""
    agreement, graph = fit.agreement, fit.graph
    warnings: list[str] = list(fit.warnings)
    if not options.papers:
        graph, found = plausible(graph, options.units(agreement), fit.masks)
        warnings += found
    system, total = None, fit.total
    if total is not None:
        system = fitted_system(agreement, options.divisors(agreement), total, graph)
    # Interventions direct edges too.
    if not agreement.targets:
        warnings += options.doubtful_directions(agreement, graph, fit.masks, system, fit.solution)
    warnings += doubts_of(graph=graph, n=agreement.n)
    return Result(graph, fit.strengths, system, tuple(warnings), reason=reason)
