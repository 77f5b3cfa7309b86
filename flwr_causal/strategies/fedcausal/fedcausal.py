"""FedCausal (Yang et al., AAAI 2024) and its better form: one graph, different mechanisms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity, OwnGraph, edge_table
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.solution import standing_weights
from flwr_causal.data.kinds import DataKind
from flwr_causal.errors import ConfigError
from flwr_causal.protocol import wire
from flwr_causal.strategies.admm.perceptrons import PERCEPTRONS, PerceptronOptions, refuse_ignored
from flwr_causal.strategies.fedcausal.fedcausal_plan import (
    AUTOMATIC_PROXIMITY,
    AUTOMATIC_SPARSITY,
    default_rounds,
    first_stage,
    search_stage,
)
from flwr_causal.strategies.fedcausal.fedcausal_stages import Found
from flwr_causal.strategies.linear import LinearStrategy
from flwr_causal.strategies.options import also_called, require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr.app import Message
    from numpy.typing import NDArray

    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.wire import Arrays, Scalar, Value
    from flwr_causal.strategies.fedcausal.fedcausal_stages import Stage

    FloatArray = NDArray[np.float64]

OF_PERCEPTRONS = ("averaging", *PERCEPTRONS)


@dataclass(frozen=True, eq=False)
class FedCausalRun:
    """The state of a FedCausal run.

    Parameters
    ----------
    agreement : Agreement
    masks : EdgeMasks
    stage : Stage
        What the parties are asked next, or were asked last.
    reason : str or None
        Why the search for the common graph is over.
    before : Found or None
        What the model came to, where the search has begun.
    own : mapping of str to OwnGraph, or None
        What the parties said of their own graphs, by their names; None before that exchange.
    """

    agreement: Agreement
    masks: EdgeMasks
    stage: Stage
    reason: str | None = None
    before: Found | None = None
    own: Mapping[str, OwnGraph] | None = None


@also_called(model="kind")
@dataclass(kw_only=True, eq=False)
class FedCausal(PerceptronOptions, LinearStrategy[FedCausalRun]):
    """One causal graph from parties whose mechanisms may differ (Yang et al., AAAI 2024).

    The paper's algorithm averages the parties' weights or first layers, which cancel where
    mechanisms differ. The default asks less of the parties: that they share the graph. Its first
    stage, ``model="group"``, is a group lasso in which an edge is the group of all parties'
    coefficients of a small basis; the second, ``refine="evidence"``, goes on from its graph by
    single edges as long as the sum of the parties' Gaussian-process evidence rises.

    **What leaves a party**: d x d arrays that are averaged, with ``averaging="layers"`` first
    layers, d x hidden x d; :class:`~flwr_causal.clients.fedcausal.FedCausalClient` lists them.

    Parameters
    ----------
    kind : {"group", "linear", "mlp"}, default "group"
        The option ``model`` (a strategy has a method of that name). "linear" and "mlp" are the
        paper's Algorithm 1 with eqs. (4) and (5) or (7); "mlp" needs torch.
    refine : {"evidence", "none"} or None, default None
        None is "evidence" for the group lasso and "none" for the paper's.
    noise : {"own", "equal"}, default "own"
        Whose the noise variances are in the evidence: each variable's and party's own, or one for
        each party. "equal" tells directions of linear Gaussian effects, where it is true.
    candidates : int, default 5
        Additions into each variable whose evidence is asked for in a step.
    local_graphs : bool, default False
        Ask every party in one more exchange for the graph that its own rows speak for, by the
        evidence, whatever the model: ``run.local_graphs`` and ``run.heterogeneity`` then tell where
        parties differ from the common graph. These answers are kept apart, not averaged.
    schedule : {"fast", "paper"}, default "fast"
        Of the paper's models: "paper" has its penalties (table S2) and ends at h = 1e-11; "fast"
        grows them faster and ends when the graph is stable.
    averaging : {"norms", "layers"} or None, default None
        What is averaged with ``model="mlp"``: the norms of the first layers' blocks, or the layers
        themselves, the paper's way. None is "layers" for the paper's schedule, else "norms".
    sparsity : float or "auto", default "auto"
        lambda_1: 0.2 (group; rows in units of the party's noise), 0.03 of the variables' harmonic
        mean variance (linear), 0.01 (mlp). The paper does not give its own. A number is taken as it
        is.
    proximity : float or "auto", default "auto"
        lambda_2 of the paper's models, which it does not give either: 0.001 (linear), 0 (mlp).
    hidden, inner_steps, device, arithmetic
        See :class:`~flwr_causal.strategies.admm.perceptrons.PerceptronOptions`. With half of the
        steps the graphs are nearly as good in half the time.
    acyclic_server : bool, default True
        False leaves the acyclicity out on the server (the paper's ablation NO-w/oAcy).
    max_rounds : int or None, default None
        None is 24 for group lasso and search (8 and at most 16), 20 for the group lasso alone, 16
        for the paper's models and 100 for the paper's schedule; one more with local graphs.
    center : {"party", "global"}, default "party"
        Levels are part of a party's mechanisms.
    threshold : float, default 0.3
        Edges of absolute weight up to this are left out: of the group lasso the standard deviation
        of the effect in units of the party's noise, of perceptrons the root mean square of
        df_j/dx_i. The evidence search has none.
    """

    method: ClassVar[str] = "fedcausal"
    data = DataKind.NONLINEAR

    kind: Literal["group", "linear", "mlp"] = "group"
    refine: Literal["evidence", "none"] | None = None
    noise: Literal["own", "equal"] = "own"
    candidates: int = 5
    local_graphs: bool = False
    schedule: Literal["fast", "paper"] = "fast"
    averaging: Literal["norms", "layers"] | None = None
    sparsity: float | Literal["auto"] = "auto"
    proximity: float | Literal["auto"] = "auto"
    acyclic_server: bool = True
    max_rounds: int | None = None  # type: ignore[assignment]
    center: Literal["party", "global"] = "party"

    def validate(self) -> None:
        """Check the options' values."""
        if self.refine is None:
            self.refine = "evidence" if self.kind == "group" else "none"
        if self.max_rounds is None:
            self.max_rounds = default_rounds(self) + self.local_graphs
        super().validate()
        require(self.candidates >= 1, "candidates", self.candidates, "at least 1")
        self.validate_perceptrons()
        self._refuse_what_would_be_ignored()
        for name in ("sparsity", "proximity"):
            value = getattr(self, name)
            require(value == "auto" or value >= 0, name, value, "0 or more")
        least = 3 if self.kind == "group" else 1
        least += (self.refine == "evidence") + self.local_graphs
        require(self.max_rounds >= least, "max_rounds", self.max_rounds, f"{least} or more")
        require(
            not self.local_graphs or self.fraction_train == 1,
            "fraction_train",
            self.fraction_train,
            "1 with local_graphs, for which every party is asked",
        )

    def _refuse_what_would_be_ignored(self) -> None:
        """Raise for options of another model, or of the search where there is none."""
        of_model = dict.fromkeys(OF_PERCEPTRONS, "model='mlp'") if self.kind != "mlp" else {}
        if self.kind == "group":
            paper = ("schedule", "proximity", "acyclic_server")
            of_model |= dict.fromkeys(paper, "the paper's models")
        if self.refine == "none" and not self.local_graphs:
            for_evidence = "refine='evidence' or local_graphs=True"
            of_model |= dict.fromkeys(("noise", "candidates"), for_evidence)
        refuse_ignored(self, of_model)

    @property
    def averages(self) -> str:
        """What is averaged of perceptrons."""
        return self.averaging or ("layers" if self.schedule == "paper" else "norms")

    @property
    def client_options(self) -> dict[str, Scalar]:
        """How the parties fit their rows."""
        return {
            **super().client_options,
            "held-out": False,
            "seed": self.seed,
            "noise": self.noise,
            "sparsity": self.lambda_1,
            "relative": self.kind == "linear" and self.sparsity == "auto",
            "proximity": self.lambda_2,
            "averaging": self.averages,
            **self.perceptron_options,
            "knowledge": self.knowledge_text,
        }

    @property
    def lambda_1(self) -> float:
        """The weight of the sparsity."""
        if self.sparsity == "auto":
            return AUTOMATIC_SPARSITY[self.kind]
        return self.sparsity

    @property
    def lambda_2(self) -> float:
        """The weight of the distance to what was received."""
        if self.proximity == "auto":
            return AUTOMATIC_PROXIMITY[self.kind]
        return self.proximity

    @property
    def limit(self) -> int:
        """Exchanges that may be used for the common graph."""
        assert self.max_rounds is not None
        return self.max_rounds - self.local_graphs

    def init(self, agreement: Agreement) -> FedCausalRun:
        """Start with the model's stage."""
        masks = self.masks(agreement)
        return FedCausalRun(agreement, masks, first_stage(self, agreement, masks, self.limit))

    def broadcast(self, state: FedCausalRun) -> Arrays:
        """Return what the stage sends; in the end the common graph, and where its search began."""
        if state.reason is None:
            return state.stage.arrays
        graph = state.stage.found.graph
        start = graph if state.before is None else state.before.graph
        return {"graph": graph.astype(np.uint8), "start": start.astype(np.uint8)}

    def instructions(self, state: FedCausalRun) -> dict[str, Value]:
        """Say which stage it is, and with which penalties."""
        if state.reason is None:
            return {"phase": state.stage.phase, **state.stage.instructions}
        return {"phase": "local", "candidates": self.candidates}

    def absorb(
        self, strategy: Any, server_round: int, messages: Sequence[Message]
    ) -> tuple[FedCausalRun, dict[str, Any]]:
        """Average the replies, or keep them by party where they are of the parties' own graphs."""
        if self.local_graphs and strategy is not self:
            raise ConfigError(
                f"{type(strategy).__name__} adds noise to a mean, but with local_graphs=True each "
                "party's answer of the last exchange is kept as it is. Leave local_graphs out, or "
                "run without the wrapper."
            )
        state = self._running
        if state.reason is None:
            return super().absorb(strategy, server_round, messages)
        assert self.federation is not None
        own = {}
        for message in messages:
            arrays = wire.arrays_of(message.content)
            own[self.federation.party(message.metadata.src_node_id).name] = OwnGraph(
                arrays["own-graph"].astype(bool), arrays["support"], arrays["own-shares"]
            )
        return replace(state, own=own), {}

    def server_step(
        self, state: FedCausalRun, mean: Arrays, replies: int
    ) -> tuple[FedCausalRun, dict[str, Any]]:
        """Let the stage take the mean in; go on to the search where it is over."""
        step = state.stage.step(mean)
        state = replace(state, stage=step.stage, reason=step.reason)
        if step.reason is None or self.refine == "none" or state.before is not None:
            return state, step.info
        search = search_stage(self, state.agreement, state.masks, step.stage, self.limit)
        return replace(state, stage=search, reason=None, before=step.stage.found), step.info

    def finished(self, state: FedCausalRun) -> str | None:
        """Return why the run is over; the parties' own graphs come after the common one."""
        due = self.local_graphs and state.own is None
        return None if due else state.reason

    def graph(self, state: FedCausalRun) -> CausalGraph:
        """Return the graph so far, a DAG."""
        return _causal_graph(state, state.stage.found)

    def heterogeneity(self, state: FedCausalRun) -> Heterogeneity | None:
        """Return the parties' own graphs, and how they differ from the common one."""
        if state.own is None:
            return None
        found = {name: Found.of_shares(own.graph, own.shares) for name, own in state.own.items()}
        graphs = {name: _causal_graph(state, one) for name, one in found.items()}
        common = state.stage.found.graph
        return Heterogeneity(graphs, edge_table(common, state.own, state.agreement.names))

    def scores(self, state: FedCausalRun) -> FloatArray:
        """Return the strengths of all edges before the threshold."""
        return state.stage.found.scores

    def warnings(self, state: FedCausalRun) -> list[str]:
        """Warn where the order of the variances may have decided the directions."""
        if self.kind != "linear" or self.refine == "evidence":
            return []
        return self.order_warning(state.agreement, self.graph(state).adjacency)


def _causal_graph(state: FedCausalRun, found: Found) -> CausalGraph:
    """Return what was found as a graph over the agreed columns, with the required edges."""
    required = np.asarray(state.masks.required, dtype=bool)
    weights = standing_weights(found.graph, found.weights)
    return CausalGraph(state.agreement.names, weights, raw_weights=found.raw, required=required)
