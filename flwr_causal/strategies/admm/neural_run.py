"""A run of NOTEARS-MLP-ADMM: consensus rounds on the perceptrons, then the edges' strengths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.consensus import perceptrons
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.solution import standing_edges, standing_weights
from flwr_causal.protocol import consensus
from flwr_causal.runtime.method import Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.replies import Replies

    FloatArray = NDArray[np.float64]


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
