"""FedCausal (Yang et al., AAAI 2024) and its better form: the party's side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from flwr_causal.clients.linear import LinearClient
from flwr_causal.core.fedcausal import evidence, group, heterogeneity, linear
from flwr_causal.core.fedcausal import perceptrons as neural_rounds
from flwr_causal.core.fedcausal.evidence_search import SearchProblem
from flwr_causal.core.linear.moments import data_scale
from flwr_causal.core.nonlinear.basis import additive
from flwr_causal.core.nonlinear.perceptrons import Network, SquaredLoss
from flwr_causal.errors import FederationError
from flwr_causal.protocol.wire import Disclosure, Scalar

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    Answer = tuple[list[NDArray[Any]], int, dict[str, Any]]


class FedCausalClient(LinearClient):
    """Fits its own mechanisms, and tells how much they speak for each edge.

    **What leaves the party** after the schema exchange, all but the last item averaged with its
    number of rows n_k as weight:

    - ``model="group"``: in each round the squared norms of the blocks of coefficients that it has
      formed (``squared-norms``), d x d. The first ones are those of a ridge regression on functions
      of each variable.
    - ``model="linear"``: in each round its weights W_k of eq. (5) (``weights``), d x d.
    - ``model="mlp"``: in each round the squared norms of the first layers' blocks, d x d, or with
      ``averaging="layers"`` the first layers, d x hidden x d (``shared``), and the mean squares of
      the slopes df_j/dx_i (``slopes``), d x d. All further layers stay with it.
    - ``refine="evidence"``: in each step and for each of two graphs, how much its evidence changes
      with the edges that the server asks about, divided by n_k (``changes``), d x d, and what it is
      for each variable (``evidence``), d numbers; the share of an effect's variance that each cause
      adds to the parents in the graph (``shares``), d x d.
    - ``local_graphs=True``, once, and kept apart for each party instead of averaged: the graph that
      its rows alone speak for (``own-graph``), by how much they speak for each edge of that graph
      and of the common one (``support``), and the shares of variance in its own graph
      (``own-shares``), d x d each.

    A party that lost its memory (a restarted SuperNode) goes on with the solution that fits what it
    receives; with ``model="linear"`` and in the search there is none to lose.
    """

    discloses: ClassVar[tuple[Disclosure, ...]] = (
        Disclosure("squared-norms", "||Y_k[i, :, j]||^2", ("d", "d"), phase="group"),
        Disclosure("weights", "W_k", ("d", "d"), phase="linear"),
        Disclosure("shared", "||A_j[:, i]||^2", ("d", "d"), phase="norms"),
        Disclosure("slopes", "mean square of df_j/dx_i", ("d", "d"), phase="norms"),
        Disclosure("shared", "the first layers A", ("d", "*", "d"), phase="layers"),
        Disclosure("slopes", "mean square of df_j/dx_i", ("d", "d"), phase="layers"),
        Disclosure("changes", "change of the evidence / n_k", ("*", "d", "d"), phase="evidence"),
        Disclosure("evidence", "the evidence / n_k of each variable", ("*", "d"), phase="evidence"),
        Disclosure(
            "shares", "share of variance beyond the parents", ("*", "d", "d"), phase="evidence"
        ),
        Disclosure("own-graph", "the party's own graph", ("d", "d"), phase="local"),
        Disclosure("support", "change of its evidence by each edge", ("d", "d"), phase="local"),
        Disclosure(
            "own-shares", "share of variance beyond its own parents", ("d", "d"), phase="local"
        ),
    )

    def fit(self, parameters: list[NDArray[Any]], config: dict[str, Scalar]) -> Answer:
        """Answer the message of a phase."""
        phases = {
            "group": self._group,
            "linear": self._linear,
            "norms": self._neural,
            "layers": self._neural,
            "evidence": self._evidence,
            "local": self._local,
        }
        arrays = phases[str(config["phase"])](parameters, config)
        return arrays, len(self._rows), {}

    @property
    def _rows(self) -> FloatArray:
        """The party's rows as the models see them, prepared once a process."""
        rows: FloatArray = self.once("rows", self.design)
        return rows

    def _last(self, iteration: int) -> Any:
        """Return what was remembered, after a check that no later message has come before."""
        memory = self.recall()
        if memory is not None and memory.numbers["iteration"] > iteration:
            raise FederationError(
                f"A message of iteration {iteration} came after that of iteration "
                f"{memory.numbers['iteration']}; it was ignored."
            )
        return memory

    def _group(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> list[NDArray[Any]]:
        (factors,) = parameters
        iteration, memory = int(config["iteration"]), self._last(int(config["iteration"]))
        state = None
        if memory is not None:
            state = group.ClientState(
                memory.arrays["formed"], memory.numbers["penalty"], memory.numbers["iteration"]
            )
        # A reply that got lost is given again: the multipliers must not be updated twice.
        if state is None or state.round < iteration:
            problem = self.once("group", lambda: group.local_problem(additive(self._rows)))
            penalty = float(config["penalty"])
            state = group.client_step(problem, state, factors, penalty, iteration)
        self.remember({"formed": state.formed}, penalty=state.penalty, iteration=iteration)
        return [state.squared_norms]

    def _linear(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> list[NDArray[Any]]:
        setup, options = self.setup, self.setup.options
        variance = np.ones_like(setup.variance) if options["standardize"] else setup.variance
        unit = data_scale(variance) if options["relative"] else 1.0
        problem = self.once(
            "linear",
            lambda: linear.party_problem(
                self._rows,
                self.masks,
                sparsity=float(options["sparsity"]) * unit,
                proximity=float(options["proximity"]),
                scale=float(variance.mean()),
            ),
        )
        multiplier, penalty = float(config["multiplier"]), float(config["penalty"])
        return [linear.party_step(problem, parameters[0], multiplier, penalty).weights]

    def _neural(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> list[NDArray[Any]]:
        shared, norms = parameters
        options, iteration = self.setup.options, int(config["iteration"])
        problem = neural_rounds.Problem(
            network=Network(len(self.setup.names), (int(options["hidden"]),)),
            masks=self.masks,
            averaging=str(options["averaging"]),
            sparsity=float(options["sparsity"]),
            proximal=float(options["proximity"]),
            max_iterations=int(options["inner-steps"]),
            seed=int(options["seed"]),
        )
        memory = self._last(iteration)
        state = None
        if memory is not None:
            if memory.numbers["iteration"] == iteration:
                return [memory.arrays["shared"], memory.arrays["slopes"]]
            state = neural_rounds.ClientState(memory.arrays["theta"], memory.numbers["iteration"])
        loss = SquaredLoss(
            self._rows,
            problem.network,
            device=str(options["device"]),
            precision=str(options["arithmetic"]),
        )
        multiplier, penalty = float(config["multiplier"]), float(config["penalty"])
        sent = neural_rounds.Broadcast(shared, norms, multiplier, penalty, iteration)
        state, upload = neural_rounds.client_step(problem, loss, state, sent)
        arrays = {"shared": upload.shared, "slopes": upload.squared_slopes}
        self.remember({"theta": state.theta, **arrays}, iteration=iteration)
        return list(arrays.values())

    def _evidence(
        self, parameters: list[NDArray[Any]], config: dict[str, Any]
    ) -> list[NDArray[Any]]:
        graphs, wanted, start = (mask.astype(bool) for mask in parameters)
        problem, known = self._evidence_problem(start)
        tables = [
            evidence.client_step(problem, graph, mask, known)
            for graph, mask in zip(graphs, wanted, strict=True)
        ]
        changes, totals, shares = (np.stack(arrays) for arrays in zip(*tables, strict=True))
        n = len(problem.targets)
        return [changes / n, totals / n, shares]

    def _local(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> list[NDArray[Any]]:
        common, start = (mask.astype(bool) for mask in parameters)
        problem, known = self._evidence_problem(start)
        search = SearchProblem(self.masks, int(config["candidates"]), heterogeneity.STEPS)
        own = heterogeneity.own_graph(problem, common, search, known)
        return [own.graph.astype(np.uint8), own.support, own.shares]

    def _evidence_problem(
        self, start: NDArray[np.bool_]
    ) -> tuple[evidence.EvidenceProblem, evidence.Known]:
        """Return the rows for the evidence, and what is known of it; the same start each time."""
        noise = cast("evidence.Noise", str(self.setup.options["noise"]))
        problem = self.once(
            "evidence",
            lambda: evidence.evidence_problem(self._rows, noise=noise, start=start),
        )
        return problem, self.once("known evidence", dict)
