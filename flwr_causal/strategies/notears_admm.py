"""NOTEARS-ADMM and NOTEARS-MLP-ADMM (Ng & Zhang, AISTATS 2022): the server's side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from flwr_causal.core.consensus import admm, perceptrons
from flwr_causal.core.consensus.schedules import (
    TUNED,
    Schedule,
    Tuning,
    fast_schedule,
    paper_schedule,
)
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.folds import num_held_out
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.linear.selection import held_out_error, score_graph_bic
from flwr_causal.core.linear.solution import (
    refit_support,
    squared,
    standing_edges,
    standing_weights,
)
from flwr_causal.core.nonlinear.perceptrons import Network
from flwr_causal.protocol import consensus
from flwr_causal.runtime.method import Request
from flwr_causal.strategies.linear import PERCEPTRONS, LinearStrategy, PerceptronOptions
from flwr_causal.strategies.options import also_called, refuse_ignored, require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.consensus.schedules import Schedule
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.model import LinearModel
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.exchange import Contract, Exchange
    from flwr_causal.protocol.records import Scalar
    from flwr_causal.protocol.replies import Replies


# Factors on the automatic sparsity that "bic" and "held-out" choose from, that which stands first.
CANDIDATES = (1.0, 0.5, 0.71, 1.41, 2.0, 2.83)
PAPER_ROUNDS = 200
DEFAULT_ROUNDS = 40


class Candidate(NamedTuple):
    """One of the settings that a run tries side by side.

    Parameters
    ----------
    factor : float
        On the automatic sparsity.
    lags : int
        The number of lags.
    """

    factor: float
    lags: int


@dataclass(frozen=True, eq=False)
class AdmmRun:
    """The state of a NOTEARS-ADMM run.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances.
    masks : EdgeMasks
        Background knowledge over the m columns of the design.
    problem : ServerProblem
        Schedule, threshold and masks of the iteration.
    inner : State
        The iteration's own state.
    stopped : str or None
        Why the iteration is over.
    moments : ndarray of shape (folds, d, d) or None
        What the last exchange returned: second moments among each variable and its parents.
    """

    agreement: Agreement
    masks: EdgeMasks
    problem: admm.ServerProblem
    inner: admm.State
    stopped: str | None = None
    moments: FloatArray | None = None


@dataclass(kw_only=True, eq=False)
class LinearADMM(LinearStrategy[AdmmRun]):
    """Base of the methods that solve a linear problem by consensus ADMM, also over lagged designs.

    Parameters
    ----------
    max_rounds : int or None, default None
        Exchanges after the schema exchange: None is 40 for the fast schedule and 200 for the
        paper's. A schedule is made for the number given.
    schedule : {"fast", "paper"}, default "fast"
        "fast" lets the consensus penalty fall and scales both penalties and the sparsity by the
        data's variance, dimension and rows: a third of the paper's errors in a fifth of its rounds
        (docs/methods.md has the figures). "paper" is the paper's iteration: growing penalties from
        1e-3 (factors 1.25 and 1.75), sparsity 0.01, 197 rounds.
    sparsity : float or {"auto", "bic", "held-out"}, default "auto"
        Weight lambda_1 of the L1 norm. "auto" is c sqrt(log d / n) times the harmonic mean of the
        variances for the fast schedule and the paper's 0.01 for "paper". "bic" and "held-out" run
        several values side by side in the same rounds (arrays that many times as large) and choose
        by the Gaussian BIC, or by the error on a quarter of the rows that was held out; the parties
        return sums only.
    refit : bool or None, default None
        Use the last exchange to refit the weights of the final graph by least squares and to
        estimate noise variances. None is True for "fast" and False for "paper", whose weights
        are then those of the iteration and whose ``run.model`` is None. With required edges always.
    early_stop : bool, default True
        End once h is small, the parties agree and the graph has been stable; the paper's schedule
        never does.
    """

    tunings: ClassVar[Mapping[int, Tuning]] = TUNED

    max_rounds: int | None = None  # type: ignore[assignment]
    schedule: Literal["fast", "paper"] = "fast"
    sparsity: float | Literal["auto", "bic", "held-out"] = "auto"
    refit: bool | None = None
    early_stop: bool = True

    def validate(self) -> None:
        """Check the options' values."""
        if self.max_rounds is None:
            self.max_rounds = PAPER_ROUNDS if self.schedule == "paper" else DEFAULT_ROUNDS
        if self.schedule == "fast":
            require(self.max_rounds >= 6, "max_rounds", self.max_rounds, "6 or more")
        super().validate()
        if isinstance(self.sparsity, float):
            require(self.sparsity >= 0, "sparsity", self.sparsity, "0 or more")

    @property
    def client_options(self) -> dict[str, Scalar]:
        """How the parties prepare their rows."""
        return {**super().client_options, "held-out": self._holds_out, "seed": self.seed}

    def init(self, agreement: Agreement) -> AdmmRun:
        """Start from W = 0."""
        masks, d = self.stacked_masks(agreement), len(agreement.names)
        problem = admm.ServerProblem(
            schedule=self._schedule(agreement),
            num_variables=d,
            lags=self.lags,
            relative_sparsity=self._relative_sparsity(masks, d),
            allowed=self._allowed(masks, d),
            threshold=self.thresholds(agreement),
        )
        return AdmmRun(agreement, masks, problem, admm.init(problem))

    def finished(self, state: AdmmRun) -> str | None:
        """Return why the run is over; the final sums come after the last round."""
        due = self._refits and state.moments is None
        return None if due else state.stopped

    @property
    def _refits(self) -> bool:
        """Whether one more exchange follows the rounds: by ``refit``, or because it is needed."""
        known = self.knowledge_or_none
        required = known is not None and bool(known.required or known.required_lagged)
        default = self.schedule == "fast"
        return (default if self.refit is None else self.refit) or self._selects or required

    @property
    def _selects(self) -> bool:
        return len(self.candidates) > 1

    @property
    def _holds_out(self) -> bool:
        """Whether candidates are judged on held-out rows: all choices are but those by BIC."""
        return self._selects and self.sparsity != "bic"

    def _schedule(self, agreement: Agreement) -> Schedule:
        assert self.max_rounds is not None
        # The last exchange is the refit's.
        schedule = self.full_schedule(agreement, self.max_rounds - self._refits)
        if isinstance(self.sparsity, float):
            schedule = replace(schedule, sparsity=(self.sparsity,) * schedule.rounds)
        return schedule if self.early_stop else replace(schedule, patience=0)

    def full_schedule(self, agreement: Agreement, rounds: int) -> Schedule:
        """Return the schedule for that many rounds, before a given sparsity enters it."""
        if self.schedule == "paper":
            return paper_schedule(rounds)
        return fast_schedule(
            rounds,
            num_clients=len(agreement.rows),
            num_rows=agreement.n,
            num_variables=len(agreement.names),
            scale=self.noise_scale(agreement),
            tunings=self.tunings,
        )

    # What a lagged design changes; see TwoDBN.

    @property
    def lags(self) -> int:
        """Number of lags p in the design; it has m = d (1 + p) columns."""
        return 0

    def columns(self, agreement: Agreement) -> tuple[str, ...]:
        """Return the names of the m columns of the design."""
        return agreement.names

    def stacked_masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge over the design's columns, (m, m) each."""
        return self.masks(agreement)

    def thresholds(self, agreement: Agreement) -> float | FloatArray:
        """Return what the weights of the design's columns must exceed, shape (m, 1)."""
        return self.threshold

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """What is run side by side, the one that stands until the choice first."""
        factors = CANDIDATES if self.sparsity in ("bic", "held-out") else (1.0,)
        return tuple(Candidate(factor, self.lags) for factor in factors)

    def block_sparsity(self, num_variables: int) -> float | FloatArray:
        """Return the factors on the sparsity of the design's columns, shape (m, 1)."""
        return 1.0

    def final_graph(
        self, agreement: Agreement, weights: FloatArray, raw: FloatArray, masks: EdgeMasks
    ) -> CausalGraph:
        """Return the graph of stacked weights, shape (m, d), whose edges are decided already."""
        return CausalGraph(agreement.names, weights, raw_weights=raw, required=masks.required)

    def _relative_sparsity(self, masks: EdgeMasks, num_variables: int) -> FloatArray:
        """Return the factors on the schedule's sparsity, shape (candidates, m, d)."""
        factors = np.array([candidate.factor for candidate in self._side_by_side])
        exempt = np.where(masks.required[:, :num_variables], 0.0, 1.0)
        return factors[:, None, None] * exempt * self.block_sparsity(num_variables)

    def _allowed(self, masks: EdgeMasks, num_variables: int) -> BoolArray:
        """Return the edges that each candidate may have, shape (candidates, m, d)."""
        lag = np.arange(len(masks.allowed)) // num_variables
        within = np.array([lag <= candidate.lags for candidate in self._side_by_side])
        return np.asarray(within[:, :, None] & masks.allowed[:, :num_variables])

    @property
    def _side_by_side(self) -> tuple[Candidate, ...]:
        """The candidates; with held-out rows first all without these rows, then all on all rows."""
        return self.candidates * (2 if self._holds_out else 1)

    def request(self, state: AdmmRun) -> Request:
        """Send W and the penalties of the next round, or ask for the sums of the refit."""
        if state.stopped is not None:
            folds = 2 if self._holds_out else 1
            return Request(consensus.REFIT, {"moments": np.stack([self._needed(state)] * folds)})
        settings = state.problem.schedule.at(state.inner.round)
        return Request(
            consensus.ROUND,
            {
                "weights": state.inner.weights,
                "penalty": settings.consensus_penalty,
                "relaxation": settings.relaxation,
            },
        )

    def close(self, state: AdmmRun, replies: Replies) -> tuple[AdmmRun, dict[str, Any]]:
        """Solve for the next W, or take in the sums of the refit."""
        if state.stopped is not None:
            return replace(state, moments=replies["moments"]), {}
        num_clients = len(state.agreement.rows)
        inner, info = admm.server_step(state.inner, replies["weights"], state.problem, num_clients)
        stopped = admm.finished(inner, info, state.problem)
        return replace(state, inner=inner, stopped=stopped), info._asdict()

    # The result.

    def _adjacencies(self, state: AdmmRun) -> list[BoolArray]:
        """Return the edges of every candidate among the design's columns, (m, m), acyclic."""
        thresholds, required = self.thresholds(state.agreement), state.masks.required
        return [standing_edges(to_square(raw), thresholds, required) for raw in state.inner.weights]

    def _needed(self, state: AdmmRun) -> FloatArray:
        """Mark the pairs of columns that share a family in some candidate's graph, (m, m)."""
        needed = np.zeros(state.masks.required.shape)
        for adjacency in self._adjacencies(state):
            family = adjacency.astype(float) + np.eye(len(needed))
            needed[family @ family.T > 0] = 1.0
        return needed

    def _folds(self, state: AdmmRun) -> list[Moments]:
        """Return the moments of each fold; the sums came divided by all rows."""
        assert state.moments is not None
        rows = np.array(list(state.agreement.rows.values()))
        held_out = int(num_held_out(rows).sum())
        counts = [state.agreement.n]
        if self._holds_out:
            counts = [state.agreement.n - held_out, held_out]
        names = self.columns(state.agreement)
        return [
            Moments(n, np.zeros(len(names)), second * state.agreement.n / n, names)
            for n, second in zip(counts, state.moments, strict=True)
        ]

    def _chosen(self, state: AdmmRun) -> int:
        """Return the index of the candidate that the criterion prefers."""
        graphs, count = self._adjacencies(state), len(self.candidates)
        first = len(graphs) - count
        if state.moments is None or not self._selects:
            return first
        folds = self._folds(state)
        if self._holds_out:
            train, held_out = folds
            errors = [held_out_error(train, held_out, graph) for graph in graphs[:count]]
        else:
            errors = [gaussian_bic(folds[0], graph) for graph in graphs]
        # Two orders may come to the same graph, without an edge at the lags that one lacks.
        lags = [candidate.lags for candidate in self.candidates]
        return first + min(range(count), key=lambda k: (errors[k], lags[k]))

    def _all_moments(self, state: AdmmRun) -> Moments:
        assert state.moments is not None
        names = self.columns(state.agreement)
        total = state.moments.sum(axis=0)
        return Moments(state.agreement.n, np.zeros(len(names)), total, names)

    def graph(self, state: AdmmRun) -> CausalGraph:
        """Return the thresholded graph, a DAG, refitted once the final sums are in."""
        chosen = self._chosen(state)
        adjacency, raw = self._adjacencies(state)[chosen], state.inner.weights[chosen]
        d = raw.shape[1]
        weights = np.where(adjacency[:, :d], raw, 0.0)
        if state.moments is not None:
            limits = self.thresholds(state.agreement)
            moments, required = self._all_moments(state), state.masks.required
            weights = refit_support(moments, adjacency, limits, required)[:, :d]
        rows = d * (1 + self._side_by_side[chosen].lags)
        masks = state.masks.first(rows)
        return self.final_graph(state.agreement, weights[:rows], raw[:rows], masks)

    def model(self, state: AdmmRun) -> LinearModel | None:
        """Return the fitted linear system in the units of the data, None before the final sums."""
        if state.moments is None:
            return None
        adjacency = self.graph(state).adjacency
        return self.fitted_system(state.agreement, self._all_moments(state), adjacency)

    def scores(self, state: AdmmRun) -> FloatArray:
        """Return the absolute weights before the threshold."""
        strengths: FloatArray = np.abs(state.inner.weights[self._chosen(state)])
        return strengths

    def warnings(self, state: AdmmRun) -> list[str]:
        """Warn where the order of the variances may have decided the directions."""
        return self.order_warning(state.agreement, self.graph(state).adjacency)


@dataclass(frozen=True, eq=False)
class NeuralRun:
    """The state of a NOTEARS-ADMM run with perceptrons.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances.
    problem : ServerProblem
        Shapes, schedule, threshold and masks of the iteration.
    inner : State
        The iteration's own state.
    measures : bool
        Whether the strengths of the edges follow in one more exchange; else they are the norms of
        the first layers' blocks.
    stopped : str or None
        Why the iteration is over.
    slopes : ndarray of shape (d, d) or None
        Mean square of df_j/dx_i over all rows, from the last exchange.
    """

    agreement: Agreement
    problem: perceptrons.ServerProblem
    inner: perceptrons.State
    measures: bool
    stopped: str | None = None
    slopes: FloatArray | None = None

    @property
    def finished(self) -> str | None:
        """Why the run is over."""
        return None if self.measures and self.slopes is None else self.stopped

    @property
    def request(self) -> Request:
        """Send the parameters and the penalty of the next round, or ask for the strengths."""
        parameters = {"parameters": self.inner.theta}
        if self.stopped is not None:
            return Request(consensus.SLOPES, parameters)
        penalty = self.problem.schedule.at(self.inner.round).consensus_penalty
        return Request(consensus.PERCEPTRONS, {**parameters, "penalty": penalty})

    def close(self, replies: Replies) -> tuple[NeuralRun, dict[str, Any]]:
        """Solve for the next parameters, or take in the strengths."""
        if self.stopped is not None:
            return replace(self, slopes=replies["slopes"]), {}
        num_clients = len(self.agreement.rows)
        inner, info = perceptrons.server_step(
            self.inner, replies["parameters"], self.problem, num_clients
        )
        stopped = perceptrons.finished(inner, info, self.problem)
        return replace(self, inner=inner, stopped=stopped), info._asdict()

    @property
    def strengths(self) -> FloatArray:
        """Root mean squares of the slopes; before the last exchange the norms, shape (d, d)."""
        if self.slopes is not None:
            return np.sqrt(self.slopes)
        return np.sqrt(self.problem.network.squared_norms(self.inner.theta))

    @property
    def graph(self) -> CausalGraph:
        """The edges whose strength exceeds the threshold, a DAG."""
        strengths = self.strengths
        required = np.asarray(self.problem.masks.required, dtype=bool)
        adjacency = standing_edges(strengths, self.problem.threshold, required)
        return CausalGraph(
            self.agreement.names,
            standing_weights(adjacency, strengths),
            raw_weights=strengths,
            required=required,
        )


@also_called(model="kind")
@dataclass(kw_only=True, eq=False)
class NotearsADMM(PerceptronOptions, LinearADMM):
    """Federated structure learning by consensus ADMM (Ng & Zhang, AISTATS 2022).

    All parties solve one NOTEARS problem over their rows without sending them. In a round every
    party receives W, solves its own least-squares problem in closed form (eq. 10) and sends one
    d x d array, B_k + beta_k / rho_2; the server sees only the mean of these arrays and solves for
    the next W (eq. 5), sparse and ever closer to acyclic. With ``model="mlp"`` (NOTEARS-MLP-ADMM,
    section 5.2) effects are perceptrons that all parties share, and W holds the norms of their
    first layers.

    **What leaves a party**: in the schema exchange names, types, the number of rows and, for each
    column, mean and sum of squared deviations; in every round the d x d array above; in the last
    exchange (``refit``) the sums of products among each variable and its parents, no others.
    From the first array alone a server can rebuild the party's second moments exactly: without
    secure aggregation this method hides no more than :class:`Moments` does. With ``model="mlp"``
    in every round all parameters of the perceptrons, and in the last exchange the mean squares of
    their slopes, d x d.

    Parameters
    ----------
    kind : {"linear", "mlp"}, default "linear"
        The option ``model`` (a strategy has a method of that name). "mlp" needs torch; see
        :class:`~flwr_causal.strategies.linear.PerceptronOptions` for its further options.
    max_rounds, schedule, sparsity, refit, early_stop
        See :class:`~flwr_causal.strategies.notears_admm.LinearADMM`. With ``model="mlp"`` the
        paper's schedule starts from penalties of 0.1 with sparsity 0.001 and has 176 rounds, the
        fast one adds a small weight decay, and a sparsity is "auto" or a number. ``refit`` asks in
        the last exchange for the strengths of the edges, the root mean square of df_j/dx_i;
        without it edges are cut, as in the paper, by the norms of the first layers, which have no
        unit.
    inner_steps : int, default 20
        Most L-BFGS steps of a party in a round, ``model="mlp"``.
    """

    contract: ClassVar[Contract] = consensus.NOTEARS_ADMM

    kind: Literal["linear", "mlp"] = "linear"
    inner_steps: int = 20

    def validate(self) -> None:
        """Check the options' values."""
        super().validate()
        self.validate_perceptrons()
        if self.kind == "linear":
            refuse_ignored(self, dict.fromkeys(PERCEPTRONS, "model='mlp'"))
        else:
            choice = self.sparsity == "auto" or isinstance(self.sparsity, float)
            require(choice, "sparsity", self.sparsity, "'auto' or a number with model='mlp'")

    @property
    def client_options(self) -> dict[str, Scalar]:
        """How the parties prepare and fit their rows."""
        return {
            **super().client_options,
            **self.perceptron_options,
            "knowledge": self.knowledge_text,
        }

    @property
    def later_exchanges(self) -> tuple[Exchange, ...]:
        """The last exchange, where the options ask for it."""
        last = consensus.REFIT if self.kind == "linear" else consensus.SLOPES
        return (last,) if self._refits else ()

    def init(self, agreement: Agreement) -> AdmmRun | NeuralRun:  # type: ignore[override]
        """Start from W = 0, or from perceptrons that the seed draws."""
        if self.kind == "linear":
            return super().init(agreement)
        masks = self.masks(agreement)
        problem = perceptrons.ServerProblem(
            network=Network(len(agreement.names), (self.hidden,)),
            masks=masks,
            schedule=self._schedule(agreement),
            decay=perceptrons.NEURAL_DECAY if self.schedule == "fast" else 0.0,
            threshold=self.threshold,
        )
        inner = perceptrons.init(problem, self.seed)
        return NeuralRun(agreement, problem, inner, measures=self._refits)

    def full_schedule(self, agreement: Agreement, rounds: int) -> Schedule:
        """Return the schedule of the model for that many rounds."""
        if self.kind == "linear":
            return super().full_schedule(agreement, rounds)
        if self.schedule == "paper":
            return perceptrons.paper_schedule(rounds)
        return perceptrons.fast_schedule(
            rounds,
            num_clients=len(agreement.rows),
            num_rows=agreement.n,
            num_variables=len(agreement.names),
            scale=self.noise_scale(agreement),
        )

    # A run of perceptrons speaks for itself.

    def finished(self, state: AdmmRun | NeuralRun) -> str | None:
        """Return why the run is over; one more exchange may follow the last round."""
        return state.finished if isinstance(state, NeuralRun) else super().finished(state)

    def request(self, state: AdmmRun | NeuralRun) -> Request:
        """Return what the parties are sent next."""
        return state.request if isinstance(state, NeuralRun) else super().request(state)

    def close(  # type: ignore[override]
        self, state: AdmmRun | NeuralRun, replies: Replies
    ) -> tuple[AdmmRun | NeuralRun, dict[str, Any]]:
        """Solve for the next W or perceptrons, or take in the last exchange."""
        if isinstance(state, NeuralRun):
            return state.close(replies)
        return super().close(state, replies)

    def graph(self, state: AdmmRun | NeuralRun) -> CausalGraph:
        """Return the thresholded graph, a DAG."""
        return state.graph if isinstance(state, NeuralRun) else super().graph(state)

    def model(self, state: AdmmRun | NeuralRun) -> LinearModel | None:
        """Return the fitted linear system in the units of the data, None for perceptrons."""
        return None if isinstance(state, NeuralRun) else super().model(state)

    def scores(self, state: AdmmRun | NeuralRun) -> FloatArray:
        """Return the strengths before the threshold."""
        return state.strengths if isinstance(state, NeuralRun) else super().scores(state)

    def warnings(self, state: AdmmRun | NeuralRun) -> list[str]:
        """Warn where the order of the variances may have decided the directions of linear edges."""
        return [] if isinstance(state, NeuralRun) else super().warnings(state)
