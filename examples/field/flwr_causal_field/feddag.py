"""FedDAG for linear systems: Adam at the parties, and averages of all weights (AS-FedDAG).

The problem is that of NOTEARS, by an augmented Lagrangian. Each party makes 300 steps of Adam on
its own rows from the average of all parties' weights; after 1,500 steps the penalty grows, or the
multiplier is updated. Settings are those of the authors' program. For curved systems FedDAG trains
perceptrons behind a mask: feddag_curved.py.

References
----------
Gao, E., Chen, J., Shen, L., Liu, T., Gong, M. & Bondell, H. (2023). FedDAG: Federated DAG structure
learning. TMLR.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import expm

from flwr_causal import CausalGraph
from flwr_causal.app.methods import Method
from flwr_causal.clients import CausalClient, answers
from flwr_causal.core.graphs.acyclicity import break_cycles
from flwr_causal.core.options import bounded
from flwr_causal.protocol import Contract, Disclosure, Exchange, PartyOptions, Sent
from flwr_causal.strategies import Ask, CausalOptions, CausalStrategy, Note, Result

STEPS = Exchange(
    "steps",
    "steps of Adam from the common weights",
    sends=(
        Sent("weights", "W, the average of all parties", ("d", "d"), exact=True),
        Sent("penalty", "rho"),
        Sent("multiplier", "alpha"),
    ),
    returns=(Disclosure("weights", "W_k after the steps", ("d", "d"), combine="mean"),),
    weight="one",
    remembered=True,
)
#: Of each exchange; and the exchanges before penalty or multiplier change.
NUM_STEPS, NUM_EXCHANGES, RATE = 300, 5, 1e-3
DECAYS, SMALL = (0.9, 0.999), 1e-8  # Adam's, as TensorFlow 1 has it
MOST_UPDATES, FEWEST_UPDATES, LARGEST_PENALTY, GROWTH, PROGRESS = 20, 3, 1e16, 10.0, 0.25


def acyclicity(weights: Any) -> Any:
    """Return h(W) = tr exp(W * W) - d, and its gradient; for some hundred steps of small graphs."""
    with np.errstate(over="ignore", invalid="ignore"):
        exponential = expm(weights * weights)
        h, gradient = exponential.trace() - len(weights), 2.0 * exponential.T * weights
    return h if np.isfinite(h) else np.inf, gradient


def adam(values: Any, gradient: Any, moments: Any, step: int, rate: float) -> Any:
    """Make one step of Adam; return the values and the moments of the gradient."""
    mean = DECAYS[0] * moments[0] + (1 - DECAYS[0]) * gradient
    square = DECAYS[1] * moments[1] + (1 - DECAYS[1]) * gradient**2
    rate *= (1 - DECAYS[1] ** step) ** 0.5 / (1 - DECAYS[0] ** step)
    return values - rate * mean / (np.sqrt(square) + SMALL), (mean, square)


@dataclass(frozen=True)
class Lagrangian:
    """Penalty rho and multiplier alpha of h, and how often the multiplier was updated."""

    penalty: float
    multiplier: float = 0.0
    before: float = np.inf
    updates: int = 0

    def after(self, h: float) -> "Lagrangian":
        """Return what follows a subproblem: a larger penalty, or if h fell another multiplier."""
        if h > PROGRESS * self.before and self.penalty * GROWTH < LARGEST_PENALTY:
            return replace(self, penalty=self.penalty * GROWTH)
        return Lagrangian(self.penalty, self.multiplier + self.penalty * h, h, self.updates + 1)


@dataclass(frozen=True, kw_only=True)
class FedDAGPartyOptions(PartyOptions):
    """What the parties need."""

    sparsity: float


class FedDAGClient(CausalClient):
    """Steps of Adam on the party's rows; its moments of the gradient are kept."""

    contract = Contract("feddag", (STEPS,), options=FedDAGPartyOptions)
    options: FedDAGPartyOptions

    def covariance(self) -> Any:
        rows = self.rows() - self.setup.mean
        return rows.T @ rows / len(rows)

    @answers(STEPS)
    def steps(self, asked: Any) -> Any:
        memory, weights = self.memory_at(asked.number), asked["weights"]
        count, moments = 0, (np.zeros_like(weights), np.zeros_like(weights))
        if memory is not None:
            if memory.numbers["number"] == asked.number:  # asked again
                return {"weights": memory.arrays["weights"]}
            count = int(memory.numbers["count"])
            moments = memory.arrays["mean"], memory.arrays["square"]
        covariance = self.once("covariance", self.covariance)
        for step in range(count + 1, count + NUM_STEPS + 1):
            h, of_h = acyclicity(weights)
            gradient = covariance @ weights - covariance + self.options.sparsity * np.sign(weights)
            gradient += (asked["multiplier"] + asked["penalty"] * h) * of_h
            np.fill_diagonal(gradient, 0.0)
            weights, moments = adam(weights, gradient, moments, step, RATE)
        kept = {"weights": weights, "mean": moments[0], "square": moments[1]}
        self.remember(kept, number=asked.number, count=count + NUM_STEPS)
        return {"weights": weights}


@dataclass(frozen=True, kw_only=True)
class FedDAGOptions(CausalOptions):
    """The L1 penalty, the least absolute weight of an edge, and when the graph is acyclic."""

    max_rounds: int = 1000
    sparsity: float = bounded(0.1, least=0)
    threshold: float = bounded(0.3, least=0)
    tolerance: float = bounded(1e-8, above=0)


class FedDAG(CausalStrategy):
    """The augmented Lagrangian of NOTEARS, of which the parties make the steps."""

    contract = FedDAGClient.contract
    options_type = FedDAGOptions
    options: FedDAGOptions

    def train(self, agreement: Any, replicate: int = 0) -> Any:
        names, d = agreement.names, len(agreement.names)
        weights, state, h = np.zeros((d, d)), Lagrangian(penalty=1.0), np.inf
        while state.updates < MOST_UPDATES:
            for _ in range(NUM_EXCHANGES):
                sent = {"penalty": state.penalty, "multiplier": state.multiplier}
                so_far = partial(self.result, names, weights)
                replies = yield Ask(STEPS, {"weights": weights, **sent}, so_far=so_far)
                weights = replies["weights"]
                h, _ = acyclicity(weights)
                yield Note({"h": float(h), "penalty": state.penalty})
            state = state.after(h)
            if state.updates > FEWEST_UPDATES and h <= self.options.tolerance:
                break
        return self.result(names, weights, f"h is {h:.1e}")

    def result(self, names: Any, weights: Any, reason: str = "") -> Result:
        """Return the graph of the large weights; the smallest ones of a cycle are left out."""
        large = np.where(np.abs(weights) > self.options.threshold, weights, 0.0)
        graph = CausalGraph(names, break_cycles(large), raw_weights=weights)
        return Result(graph, scores=np.abs(weights), reason=reason)


METHOD = Method(strategy=FedDAG, client=FedDAGClient)
