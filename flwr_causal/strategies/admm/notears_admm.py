"""NOTEARS-ADMM and NOTEARS-MLP-ADMM (Ng & Zhang, AISTATS 2022): the server's side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from flwr_causal.core.consensus import perceptrons
from flwr_causal.core.nonlinear.perceptrons import Network
from flwr_causal.protocol.consensus import NOTEARS_ADMM
from flwr_causal.strategies.admm.linear_admm import LinearADMM
from flwr_causal.strategies.admm.neural_run import NeuralRun
from flwr_causal.strategies.admm.perceptrons import PERCEPTRONS, PerceptronOptions, refuse_ignored
from flwr_causal.strategies.options import also_called, require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from flwr_causal.core.consensus.schedules import Schedule
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.linear.model import LinearModel
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.exchange import Contract
    from flwr_causal.protocol.records import Scalar
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.method import Request
    from flwr_causal.strategies.admm.linear_admm import AdmmRun

    FloatArray = NDArray[np.float64]


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
        :class:`~flwr_causal.strategies.admm.perceptrons.PerceptronOptions` for its further options.
    max_rounds, schedule, sparsity, refit, early_stop
        See :class:`~flwr_causal.strategies.admm.linear_admm.LinearADMM`. With ``model="mlp"`` the
        paper's schedule starts from penalties of 0.1 with sparsity 0.001 and has 176 rounds, the
        fast one adds a small weight decay, and a sparsity is "auto" or a number. ``refit`` asks in
        the last exchange for the strengths of the edges, the root mean square of df_j/dx_i;
        without it edges are cut, as in the paper, by the norms of the first layers, which have no
        unit.
    inner_steps : int, default 20
        Most L-BFGS steps of a party in a round, ``model="mlp"``.
    """

    contract: ClassVar[Contract] = NOTEARS_ADMM

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

    def init(self, agreement: Agreement) -> AdmmRun | NeuralRun:  # type: ignore[override]
        """Start from W = 0, or from perceptrons that the seed draws."""
        if self.kind == "linear":
            return super().init(agreement)
        masks = self.masks(agreement)
        problem = perceptrons.ServerProblem(
            network=Network(len(agreement.names), (self.hidden,)),
            masks=masks,
            schedule=self._schedule(agreement, masks),
            decay=perceptrons.NEURAL_DECAY if self.schedule == "fast" else 0.0,
            threshold=self.threshold,
        )
        inner = perceptrons.init(problem, self.seed)
        return NeuralRun(agreement, problem, inner, measures=self._refits(masks))

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
