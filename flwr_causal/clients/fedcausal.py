"""FedCausal, one graph for parties whose mechanisms differ: the party's side.

The algorithms of Yang et al. (AAAI 2024), and the group lasso with a search on evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.clients.interventions import InterventionClient
from flwr_causal.contract.answers import Asked, answers, step
from flwr_causal.core.fedcausal import evidence, evidence_search, group, linear, perceptrons
from flwr_causal.core.fedcausal.evidence_search import SearchProblem
from flwr_causal.core.interventions.moments import columns_by_rows
from flwr_causal.core.linear.moments import data_scale
from flwr_causal.core.nonlinear.basis import basis_moments
from flwr_causal.core.nonlinear.perceptrons import Network, SquaredLoss
from flwr_causal.data.interventions import acted_on
from flwr_causal.protocol.fedcausal import (
    CONTRACT,
    EVIDENCE,
    GROUP,
    LAYERS,
    LINEAR,
    LOCAL,
    NORMS,
)

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.fedcausal import FedCausalPartyOptions

#: Rows of a party whose evidence is computed in any case, where it has as many.
LEAST_ROWS = 200

#: Steps and tolerance to which a party solves eq. (5) with ``variant="paper"``.
EXACT: dict[str, Any] = {"max_steps": 50, "tolerance": 1e-5}


class FedCausalClient(InterventionClient):
    """Fits the party's mechanisms, and computes the evidence of its rows for each edge.

    **What leaves the party**: :mod:`flwr_causal.protocol.fedcausal` declares it.

    A party that lost its memory (a restarted SuperNode) computes a new state from the server's
    message. With ``model="linear"`` and in the search there is no memory.
    """

    contract: ClassVar[Contract] = CONTRACT
    options: FedCausalPartyOptions
    # Fits of any shape would follow rows that occur twice.
    distinct_rows: ClassVar[bool] = True

    @property
    def _rows(self) -> FloatArray:
        """The party's centred and scaled rows, prepared once a process."""
        rows: FloatArray = self.once("rows", self.design)
        return rows

    @property
    def _acted(self) -> BoolArray:
        """Whether a variable is the target of an intervention in a row, shape (n_k, d)."""
        setup = self.setup
        if not setup.targets:
            return np.zeros(self._rows.shape, dtype=np.bool_)
        return np.asarray(acted_on(setup.targets, setup.names)[self.target_sets()])

    def _parts(self, share: float = 1.0) -> list[tuple[FloatArray, IntArray]]:
        """Return rows and the variables whose mechanisms they inform about.

        Without interventions these are a share of the rows, and all variables.
        """
        chosen = self._sample(share)
        rows = self._rows[chosen]
        parts = columns_by_rows(self._acted[chosen])
        return [(rows[inside], effects) for inside, effects in parts if inside.any()]

    @answers(GROUP)
    def group(self, asked: Asked) -> Arrays:
        """Perform one iteration of the group lasso."""
        iteration, memory = int(asked["iteration"]), self.memory_at(asked.number)
        state = None
        if memory is not None:
            numbers = memory.numbers
            state = group.ClientState(
                memory.arrays["formed"], numbers["penalty"], numbers["iteration"]
            )
        if state is None or state.iteration < iteration:
            problems = self.once(
                "group",
                lambda: [
                    group.local_problem(basis_moments(rows), effects)
                    for rows, effects in self._parts()
                ],
            )
            penalty = float(asked["penalty"])
            state = group.client_step(problems, state, asked["factors"], penalty, iteration)
        self.remember(
            {"formed": state.formed},
            number=asked.number,
            iteration=iteration,
            penalty=state.penalty,
        )
        return {"squared-norms": state.squared_norms}

    @property
    def _masks(self) -> EdgeMasks:
        """The background knowledge."""
        return self.options.masks(self.setup.names)

    @property
    def _papers(self) -> bool:
        """Whether the algorithm is the paper's."""
        return self.options.variant == "paper"

    @step(LINEAR.when)
    def objective(self) -> linear.PartyProblem:
        """Return what the party minimises, eq. (5), without alpha and rho of an exchange.

        It is computed once a process, and must be the same again in another one.

        Returns
        -------
        PartyProblem
            Second moments of the rows, the sparsity of each edge, and the proximity.
        """
        setup, options = self.setup, self.options
        variance = np.ones_like(setup.variance) if options.standardize else setup.variance
        unit = data_scale(variance) if options.relative else 1.0
        return linear.party_problem(
            self._rows,
            self._masks,
            sparsity=options.sparsity * unit,
            proximity=options.proximity,
            scale=1.0 if self._papers else float(variance.mean()),
            acted=self._acted if setup.targets else None,
        )

    @answers(LINEAR)
    def linear(self, asked: Asked) -> Arrays:
        """Solve eq. (5)."""
        problem = self.once("linear", self.objective)
        multiplier, penalty = float(asked["multiplier"]), float(asked["penalty"])
        accuracy = EXACT if self._papers else {}
        step = linear.party_step(problem, asked["weights"], multiplier, penalty, **accuracy)
        return {"weights": step.weights}

    @answers(NORMS, LAYERS)
    def perceptrons(self, asked: Asked) -> Arrays:
        """Solve eq. (7)."""
        options, iteration = self.options, int(asked["iteration"])
        problem = perceptrons.PerceptronProblem(
            network=Network(len(self.setup.names), (options.hidden,)),
            masks=self._masks,
            averaging="layers" if self._papers else "norms",
            sparsity=options.sparsity,
            proximity=options.proximity,
            max_iterations=options.inner_steps,
            seed=options.seed,
        )
        memory = self.memory_at(asked.number)
        state = None
        if memory is not None:
            if memory.numbers["iteration"] == iteration:
                arrays = memory.arrays
                return {name: arrays[name] for name in ("shared", "slopes") if name in arrays}
            state = perceptrons.ClientState(memory.arrays["theta"], memory.numbers["iteration"])
        loss = SquaredLoss(
            self._rows,
            problem.network,
            device=options.device,
            precision=options.arithmetic,
        )
        multiplier, penalty = float(asked["multiplier"]), float(asked["penalty"])
        sent = perceptrons.Broadcast(
            asked["shared"], asked["norms"], multiplier, penalty, iteration
        )
        state, upload = perceptrons.client_step(problem, loss, state, sent)
        arrays = {"shared": upload.shared}
        if upload.squared_slopes is not None:
            arrays["slopes"] = upload.squared_slopes
        self.remember({"theta": state.theta, **arrays}, number=asked.number, iteration=iteration)
        return arrays

    @answers(EVIDENCE)
    def changes(self, asked: Asked) -> Arrays:
        """Return the changes of the evidence by the requested edges."""
        graphs, wanted = asked["graphs"].astype(bool), asked["wanted"].astype(bool)
        problems, cache = self._evidence_problems(asked)
        n, shape = self._sample_size(float(asked["share"])), graphs.shape
        changes, totals, shares = np.zeros(shape), np.zeros(shape[:2]), np.zeros(shape)
        for problem, effects in problems:
            own = np.zeros(shape[1], dtype=np.bool_)
            own[effects] = True
            for k, (graph, mask) in enumerate(zip(graphs, wanted, strict=True)):
                tables = evidence.client_step(problem, graph, mask & own, cache)
                changes[k] += tables.changes
                totals[k] += tables.evidence
                shares[k] += tables.shares * own
        return {"changes": changes / n, "evidence": totals / n, "shares": shares}

    @answers(LOCAL)
    def local_graph(self, asked: Asked) -> Arrays:
        """Return the graph of highest evidence on the party's own rows."""
        common = asked["graph"].astype(bool)
        ((problem, _),), cache = self._evidence_problems(asked)
        search = SearchProblem(self._masks, int(asked["candidates"]), evidence_search.STEPS)
        own = evidence_search.own_graph(problem, common, search, cache)
        return {
            "own-graph": own.graph.astype(np.uint8),
            "support": own.support,
            "own-shares": own.shares,
        }

    def _evidence_problems(
        self, asked: Asked
    ) -> tuple[list[tuple[evidence.EvidenceProblem, IntArray]], evidence.Cache]:
        """Return the party's rows, prepared for the evidence, with the variables that they concern.

        The cache of the evidence comes with them. Both are created once a process: ``start``, the
        graph at which the search began, and the share of the rows are the same in all messages of a
        run.
        """
        start, share = asked["start"].astype(bool), float(asked["share"])
        noise = self.options.noise
        problems = self.once(
            "evidence",
            lambda: [
                (evidence.evidence_problem(rows, noise=noise, start=start), effects)
                for rows, effects in self._parts(share)
            ],
        )
        return problems, self.once("evidence cache", dict)

    def _sample_size(self, share: float) -> int:
        """Return the number of rows of a share of the rows, at least `LEAST_ROWS` if they exist."""
        return min(max(LEAST_ROWS, round(share * self.num_rows)), self.num_rows)

    def _sample(self, share: float) -> IntArray:
        """Return the positions of a share of the rows, by seed and name."""
        count = self._sample_size(share)
        if count == self.num_rows:
            return np.arange(self.num_rows)
        seed = [self.options.seed, *self.source.name.encode()]
        drawn = np.random.default_rng(seed).choice(self.num_rows, count, replace=False)
        return np.asarray(np.sort(drawn), dtype=np.int64)
