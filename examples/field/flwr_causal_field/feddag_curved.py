"""FedDAG for curved systems: perceptrons behind a mask that the parties share.

Each variable has a perceptron of all others. What it is given is multiplied by a mask M, drawn
anew in each step: M = sigmoid((U + noise) / temperature) with logistic noise (Gumbel-sigmoid). The
parties make steps of Adam on U and their perceptrons, by an augmented Lagrangian of h(M) = 0, and
the server averages. GS-FedDAG shares the graph alone, the logits U, so that the mechanisms of
parties may differ; AS-FedDAG shares the perceptrons too. Settings are those of the authors'
program, which computes in single precision; the parties' noise is the same, as its seeds make it.

References
----------
Gao, E., Chen, J., Shen, L., Liu, T., Gong, M. & Bondell, H. (2023). FedDAG: Federated DAG structure
learning. TMLR.
Ng, I. et al. (2022). Masked gradient-based causal structure learning. SDM. (The model of a party.)
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from flwr_causal import CausalGraph
from flwr_causal.app.methods import Method
from flwr_causal.clients import CausalClient, answers
from flwr_causal.core.graphs.acyclicity import break_cycles
from flwr_causal.core.options import bounded
from flwr_causal.data.kinds import DataKind
from flwr_causal.protocol import Contract, Disclosure, Exchange, PartyOptions, Sent
from flwr_causal.strategies import Ask, CausalOptions, CausalStrategy, Note, Result
from flwr_causal_field.feddag import (
    FEWEST_UPDATES,
    MOST_UPDATES,
    Lagrangian,
    acyclicity,
    adam,
)

#: Of each exchange; and the exchanges before penalty or multiplier change.
NUM_STEPS, NUM_EXCHANGES, RATE = 100, 10, 3e-2
HIDDEN, SLOPE = (16, 16, 16, 16), 0.05  # widths of the layers, and the slope below zero
TEMPERATURE, FIRST_PENALTY, PRECISION = 0.2, 6e-3, np.float32


def shapes(d: int) -> Any:
    """Return the shapes of weights and biases of all layers of d perceptrons."""
    return [shape for a, b in pairwise((d, *HIDDEN, 1)) for shape in ((d, a, b), (d, 1, b))]


def arrays(networks: Any, d: int) -> Any:
    """Return weights and biases as views of one vector."""
    ends = np.cumsum([np.prod(shape) for shape in shapes(d)])
    return list(map(np.reshape, np.split(networks, ends[:-1]), shapes(d)))


def first_networks(d: int, seed: int) -> Any:
    """Return the perceptrons before the first step, the same at all parties (Glorot & Bengio)."""
    rng, parts = np.random.default_rng(seed), []
    for _, a, b in shapes(d):
        limit = np.sqrt(6.0 / (a - (a == d) + b)) if a > 1 else 0.0
        parts.append(rng.uniform(-limit, limit, (d, a, b)).ravel())
    return np.concatenate(parts)


def masked(logits: Any, noise: Any = 0.0) -> Any:
    """Return the mask of the graph, zero on the diagonal."""
    mask = 1.0 / (1.0 + np.exp(np.clip(-(logits + noise) / TEMPERATURE, None, 80)))
    np.fill_diagonal(mask, 0.0)
    return mask


def squared_error(rows: Any, mask: Any, networks: Any) -> Any:
    """Return sum (x - f(x))^2 / 2n, and its gradients by mask and networks."""
    num_rows, d = rows.shape
    layers = arrays(networks, d)
    weights, biases = layers[::2], layers[1::2]
    inputs = mask.T[:, :, None] * weights[0]  # of the network of each column
    values = [rows]
    for w, bias in zip([inputs, *weights[1:]], biases, strict=True):
        sums = values[-1] @ w + bias
        values.append(np.maximum(sums, SLOPE * sums))
    errors = sums - rows.T[:, :, None]
    change, gradients, ones = errors / num_rows, [], np.ones((1, num_rows), rows.dtype)
    for level in reversed(range(len(weights))):
        gradients += [ones @ change, values[level].mT @ change]
        if level:
            change = change @ weights[level].mT
            change *= SLOPE + (1 - SLOPE) * (values[level] > 0).astype(change.dtype)
    by_mask = (gradients[-1] * weights[0]).sum(axis=2).T
    gradients[-1] = mask.T[:, :, None] * gradients[-1]
    by_networks = np.concatenate([one.ravel() for one in reversed(gradients)])
    return float((errors**2).sum() / (2 * num_rows)), by_mask, by_networks


STEPS = Exchange(
    "steps",
    "steps of Adam from the common graph",
    sends=(
        Sent("logits", "U, the average of all parties", ("d", "d"), exact=True),
        Sent("networks", "AS-FedDAG: the average perceptrons", ("p",), optional=True, exact=True),
        Sent("penalty", "rho"),
        Sent("multiplier", "alpha"),
    ),
    returns=(
        Disclosure("logits", "U_k after the steps", ("d", "d"), combine="mean"),
        Disclosure("h", "h of the last mask", (1,), "non-negative", "mean"),
        Disclosure("networks", "the perceptrons after them", ("p",), combine="mean", optional=True),
    ),
    weight="one",
    remembered=True,
)


@dataclass(frozen=True, kw_only=True)
class FedDAGCurvedPartyOptions(PartyOptions):
    """What the parties need beside the seed of noise and first perceptrons."""

    sparsity: float


class FedDAGCurvedClient(CausalClient):
    """Steps of Adam on the party's rows; perceptrons and moments of the gradient are kept."""

    contract = Contract(
        "feddag-curved",
        (STEPS,),
        lambda setup: {"p": int(sum(map(np.prod, shapes(len(setup.names)))))},
        options=FedDAGCurvedPartyOptions,
    )
    options: FedDAGCurvedPartyOptions

    def centred(self) -> Any:
        return (self.rows() - self.setup.mean).astype(PRECISION)

    @answers(STEPS)
    def steps(self, asked: Any) -> Any:
        d, shared = len(self.setup.names), "networks" in asked
        memory, count = self.memory_at(asked.number), 0
        if memory is not None and memory.numbers["number"] == asked.number:  # asked again
            return self.reply(memory.arrays["values"], memory.arrays["h"], shared)
        if memory is not None:
            count, old = int(memory.numbers["count"]), memory.arrays
            networks, moments = old["values"][d * d :], (old["mean"], old["square"])
        else:
            networks = first_networks(d, self.options.seed)
            moments = (np.zeros(d * d + len(networks), PRECISION),) * 2
        networks = asked["networks"] if shared else networks
        values = np.concatenate([asked["logits"].ravel(), networks]).astype(PRECISION)
        rows, h = self.once("centred", self.centred), 0.0
        noise = np.random.default_rng((self.options.seed, count)).logistic(size=(NUM_STEPS, d, d))
        for step, drawn in enumerate(noise.astype(PRECISION), count + 1):
            mask = masked(values[: d * d].reshape(d, d), drawn)
            _, by_mask, by_networks = squared_error(rows, mask, values[d * d :])
            h, of_h = acyclicity(mask)
            factor = PRECISION(asked["multiplier"] + asked["penalty"] * h)
            by_mask += PRECISION(self.options.sparsity) + factor * of_h
            by_logits = by_mask * mask * (1 - mask) / TEMPERATURE
            gradient = np.concatenate([by_logits.ravel(), by_networks])
            values, moments = adam(values, gradient, moments, step, RATE)
        kept = {"values": values, "mean": moments[0], "square": moments[1], "h": np.array(h)}
        self.remember(kept, number=asked.number, count=count + NUM_STEPS)
        return self.reply(values, h, shared)

    def reply(self, values: Any, h: Any, shared: bool) -> Any:
        """Return what leaves the party; rounding must not make h negative."""
        d = len(self.setup.names)
        reply = {"logits": values[: d * d].reshape(d, d), "h": np.maximum(h, 0.0).reshape(1)}
        return reply | ({"networks": values[d * d :]} if shared else {})


@dataclass(frozen=True, kw_only=True)
class FedDAGCurvedOptions(CausalOptions):
    """What is shared, the penalty of each edge, the mask of an edge, and when there is no cycle."""

    max_rounds: int = 10_000
    sharing: Literal["graph", "all"] = "graph"
    sparsity: float = bounded(0.01, least=0)
    threshold: float = bounded(0.5, least=0, most=1)
    tolerance: float = bounded(1e-10, above=0)


class FedDAGCurved(CausalStrategy):
    """The augmented Lagrangian of the mask, of which the parties make the steps."""

    contract = FedDAGCurvedClient.contract
    options_type = FedDAGCurvedOptions
    options: FedDAGCurvedOptions
    data = DataKind.NONLINEAR

    def train(self, agreement: Any, replicate: int = 0) -> Any:
        names, d = agreement.names, len(agreement.names)
        common: Any = {"logits": np.zeros((d, d))}
        if self.options.sharing == "all":
            common["networks"] = first_networks(d, self.options.seed)
        state, h = Lagrangian(FIRST_PENALTY), np.inf
        while state.updates < MOST_UPDATES:
            for _ in range(NUM_EXCHANGES):
                sent = {"penalty": state.penalty, "multiplier": state.multiplier}
                so_far = partial(self.result, names, common["logits"])
                replies = yield Ask(STEPS, common | sent, so_far=so_far)
                common, h = {name: replies[name] for name in common}, float(replies["h"][0])
                yield Note({"h": h, "penalty": state.penalty})
            state = state.after(h)
            # Without noise there is to be no cycle either.
            cycles, _ = acyclicity(masked(common["logits"]))
            if state.updates > FEWEST_UPDATES and max(h, cycles) <= self.options.tolerance:
                break
        return self.result(names, common["logits"], f"h is {h:.1e}")

    def result(self, names: Any, logits: Any, reason: str = "") -> Result:
        """Return the graph of the large entries; the smallest ones of a cycle are left out."""
        mask = masked(logits)
        large = np.where(mask > self.options.threshold, mask, 0.0)
        graph = CausalGraph(names, break_cycles(large), raw_weights=mask)
        return Result(graph, scores=mask, reason=reason)


METHOD = Method(strategy=FedDAGCurved, client=FedDAGCurvedClient)
