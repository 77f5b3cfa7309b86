"""FedCausal (Yang et al., AAAI 2024) and its better form: one graph, different mechanisms."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.core.graph import CausalGraph
from flwr_causal.errors import ConfigError
from flwr_causal.strategies.fedcausal_plan import (
    AUTOMATIC_PROXIMITY,
    AUTOMATIC_SPARSITY,
    default_rounds,
    first_stage,
    search_stage,
)
from flwr_causal.strategies.linear import LinearStrategy
from flwr_causal.strategies.options import also_called, require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.knowledge import EdgeMasks
    from flwr_causal.data.checks import Agreement
    from flwr_causal.strategies.fedcausal_stages import Found, Stage
    from flwr_causal.wire import Arrays, Scalar, Value

    FloatArray = NDArray[np.float64]

OF_PERCEPTRONS = ("averaging", "hidden", "inner_steps", "device", "arithmetic")
# An edge of the graph whose strength is zero (a required one) is stored with this.
LEAST_WEIGHT = 1e-12


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
        Why the run is over.
    before : Found or None
        What the model came to, where the search has begun.
    """

    agreement: Agreement
    masks: EdgeMasks
    stage: Stage
    reason: str | None = None
    before: Found | None = None


@also_called(model="kind")
@dataclass(kw_only=True, eq=False)
class FedCausal(LinearStrategy[FedCausalRun]):
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
    hidden : int, default 10
        Hidden units of a perceptron (Zheng et al. 2020).
    inner_steps : int, default 100
        Most L-BFGS steps of a party in a round, ``model="mlp"``; with half of them the graphs are
        nearly as good in half the time.
    device : str, default "cpu"
        Where torch computes: "cpu", "cuda", "cuda:1", ...
    arithmetic : {"float64", "float32"}, default "float64"
        In what torch computes.
    acyclic_server : bool, default True
        False leaves the acyclicity out on the server (the paper's ablation NO-w/oAcy).
    max_rounds : int or None, default None
        None is 24 for group lasso and search (8 and at most 16), 20 for the group lasso alone, 16
        for the paper's models and 100 for the paper's schedule.
    center : {"party", "global"}, default "party"
        Levels are part of a party's mechanisms.
    threshold : float, default 0.3
        Edges of absolute weight up to this are left out: of the group lasso the standard deviation
        of the effect in units of the party's noise, of perceptrons the root mean square of
        df_j/dx_i. The evidence search has none.
    """

    method: ClassVar[str] = "fedcausal"

    kind: Literal["group", "linear", "mlp"] = "group"
    refine: Literal["evidence", "none"] | None = None
    noise: Literal["own", "equal"] = "own"
    candidates: int = 5
    schedule: Literal["fast", "paper"] = "fast"
    averaging: Literal["norms", "layers"] | None = None
    sparsity: float | Literal["auto"] = "auto"
    proximity: float | Literal["auto"] = "auto"
    hidden: int = 10
    inner_steps: int = 100
    device: str = "cpu"
    arithmetic: Literal["float64", "float32"] = "float64"
    acyclic_server: bool = True
    max_rounds: int | None = None  # type: ignore[assignment]
    center: Literal["party", "global"] = "party"

    def validate(self) -> None:
        """Check the options' values."""
        if self.refine is None:
            self.refine = "evidence" if self.kind == "group" else "none"
        if self.max_rounds is None:
            self.max_rounds = default_rounds(self)
        super().validate()
        require(self.candidates >= 1, "candidates", self.candidates, "at least 1")
        require(self.hidden >= 1, "hidden", self.hidden, "at least 1")
        require(self.inner_steps >= 1, "inner_steps", self.inner_steps, "at least 1")
        self._refuse_what_would_be_ignored()
        for name in ("sparsity", "proximity"):
            value = getattr(self, name)
            require(value == "auto" or value >= 0, name, value, "0 or more")
        least = 3 if self.kind == "group" else 1
        least += self.refine == "evidence"
        require(self.max_rounds >= least, "max_rounds", self.max_rounds, f"{least} or more")

    def _refuse_what_would_be_ignored(self) -> None:
        """Raise for options of another model, or of the search where there is none."""
        of_model = dict.fromkeys(OF_PERCEPTRONS, "model='mlp'") if self.kind != "mlp" else {}
        if self.kind != "linear":
            of_model["acyclic_server"] = "model='linear'"
        if self.kind == "group":
            of_model |= dict.fromkeys(("schedule", "proximity"), "the paper's models")
        if self.refine == "none":
            of_model |= dict.fromkeys(("noise", "candidates"), "refine='evidence'")
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name in of_model and value != option.default:
                raise ConfigError(
                    f"The option '{option.name}' is {value!r}, which is for "
                    f"{of_model[option.name]}: leave it out."
                )

    @property
    def averages(self) -> str:
        """What is averaged of perceptrons."""
        return self.averaging or ("layers" if self.schedule == "paper" else "norms")

    @property
    def client_options(self) -> dict[str, Scalar]:
        """How the parties fit their rows."""
        knowledge = self.knowledge_or_none
        return {
            **super().client_options,
            "held-out": False,
            "seed": self.seed,
            "noise": self.noise,
            "sparsity": self.lambda_1,
            "relative": self.kind == "linear" and self.sparsity == "auto",
            "proximity": self.lambda_2,
            "averaging": self.averages,
            "hidden": self.hidden,
            "inner-steps": self.inner_steps,
            "device": self.device,
            "arithmetic": self.arithmetic,
            "knowledge": json.dumps(knowledge.to_dict()) if knowledge else "",
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
        """Exchanges that may be used."""
        assert self.max_rounds is not None
        return self.max_rounds

    def init(self, agreement: Agreement) -> FedCausalRun:
        """Start with the model's stage."""
        masks = self.masks(agreement)
        return FedCausalRun(agreement, masks, first_stage(self, agreement, masks, self.limit))

    def broadcast(self, state: FedCausalRun) -> Arrays:
        """Return what the stage sends."""
        return state.stage.arrays

    def instructions(self, state: FedCausalRun) -> dict[str, Value]:
        """Say which stage it is, and with which penalties."""
        return {"phase": state.stage.phase, **state.stage.instructions}

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
        """Return why the run is over."""
        return state.reason

    def graph(self, state: FedCausalRun) -> CausalGraph:
        """Return the graph so far, a DAG."""
        found = state.stage.found
        required = np.asarray(state.masks.required, dtype=bool)
        weights = np.where(found.graph, found.weights, 0.0)
        weights = np.where(found.graph & (weights == 0), LEAST_WEIGHT, weights)
        return CausalGraph(state.agreement.names, weights, raw_weights=found.raw, required=required)

    def scores(self, state: FedCausalRun) -> FloatArray:
        """Return the strengths of all edges before the threshold."""
        return state.stage.found.scores

    def warnings(self, state: FedCausalRun) -> list[str]:
        """Warn where the order of the variances may have decided the directions."""
        if self.kind != "linear" or self.refine == "evidence":
            return []
        return self.order_warning(state.agreement, self.graph(state).adjacency)
