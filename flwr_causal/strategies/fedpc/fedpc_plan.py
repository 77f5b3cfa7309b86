"""From the options of FedPC and who holds what to the first exchange, and from each to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.learners.by_name import BY_SUMS, learner_class, training_of
from flwr_causal.errors import ConfigError
from flwr_causal.strategies.fedges.stages import CutStage
from flwr_causal.strategies.fedpc.circuit_schema import domain_of, is_continuous, with_intervals
from flwr_causal.strategies.fedpc.circuit_stages import SumsStage
from flwr_causal.strategies.fedpc.composition_stages import AlignStage, LocalStage, RecallStage
from flwr_causal.strategies.fedpc.joint_em_stage import JointStage, joint_components

if TYPE_CHECKING:
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.model import CircuitModel
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.fedpc.circuit_schema import Holdings
    from flwr_causal.strategies.fedpc.fedpc import FedPC

IntArray = NDArray[np.int64]
Stage = CutStage | SumsStage | AlignStage | LocalStage | JointStage | RecallStage


@dataclass(frozen=True, eq=False)
class FedPCRun:
    """The state of a FedPC run.

    Parameters
    ----------
    agreement : Agreement
        Columns and their states.
    holdings : Holdings
        Who holds which of them.
    domain : Domain
        The same as variables of a circuit; numbers that are yet to be cut are numbers.
    target : str or None
    sums : bool
        Whether the circuit is trained by sums.
    learner : str
        What is trained.
    weights : str
        Of combinations of clusters.
    stage : Stage or None
        What the parties are asked next.
    model : CircuitModel or None
        Once it is complete.
    reason : str
        Why the run is over.
    warnings : tuple of str
    exchanges : int
        How many there were.
    """

    agreement: Agreement
    holdings: Holdings
    domain: Domain
    target: str | None
    sums: bool
    learner: str
    weights: str
    stage: Stage | None = None
    model: CircuitModel | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    exchanges: int = 0


def started(method: FedPC, agreement: Agreement, holdings: Holdings, target: str) -> FedPCRun:
    """Return the run before its first exchange.

    Raises
    ------
    ConfigError
        If options do not fit together, or not these tables.
    """
    learner = _learner(method, agreement, holdings, target)
    numbers = learner != "trees"
    domain = domain_of(agreement, target, holdings.missing, numbers=numbers)
    sums = _by_sums(method, holdings, learner, target)
    weights, warnings = _weights(method, holdings, sums, target)
    state = FedPCRun(
        agreement, holdings, domain, target or None, sums, learner, weights, warnings=warnings
    )
    if method.trained:
        return replace(state, stage=RecallStage.of(method.trained, domain))
    if not numbers and agreement.continuous:
        stage = CutStage.of(agreement, method.num_bins, _present(state), spreading=True)
        return replace(state, stage=stage)
    return _begun(method, state)


def after(method: FedPC, state: FedPCRun) -> tuple[FedPCRun, dict[str, Any]]:
    """Return the run after the last reply of an exchange, and diagnostics of it."""
    stage = state.stage
    assert stage is not None
    if isinstance(stage, CutStage):
        step = stage.close()
        if step.stage is not None:
            assert isinstance(step.stage, CutStage)
            return replace(state, stage=step.stage), step.info
        cuts = dict(zip(state.agreement.continuous, stage.cuts(), strict=True))
        domain = with_intervals(state.domain, cuts, state.holdings.lacking)
        return _begun(method, replace(state, domain=domain)), step.info
    if isinstance(stage, SumsStage):
        known = stage.after()
        following = SumsStage.of(stage.name, stage.training, known)
        if following is not None:
            return replace(state, stage=following), stage.info
        return _complete(state, stage.training.fitted(known, state.domain)), stage.info
    if isinstance(stage, AlignStage):
        return replace(state, stage=_aligned(method, state, stage.common())), stage.info
    if isinstance(stage, JointStage) and not stage.last:
        return replace(state, stage=stage.after()), stage.info
    return _complete(state, stage.model(state.target)), stage.info


def _complete(state: FedPCRun, model: CircuitModel) -> FedPCRun:
    return replace(state, stage=None, model=model, reason="the circuit is complete")


def _begun(method: FedPC, state: FedPCRun) -> FedPCRun:
    """Return the run at the first exchange after the variables are known."""
    if not state.sums:
        aligned = state.weights in ("aligned", "em")
        stage = AlignStage(state.holdings) if aligned else _local(method, state, None)
        return replace(state, stage=stage)
    training = training_of(state.learner, state.target, method)
    plan = training.plan(state.domain, seed=method.seed, min_rows=method.minimum_count)
    known = training.start(plan, state.holdings.presence)
    return replace(state, stage=SumsStage.of(state.learner, training, known))


def _aligned(method: FedPC, state: FedPCRun, common: dict[str, IntArray]) -> Stage:
    """Return the exchange after it is known which rows are common."""
    together = state.weights == "em" and state.learner == "trees"
    if not (together and state.holdings.setting == "vertical"):
        return _local(method, state, common)
    rows = len(next(iter(common.values())))
    return JointStage(
        state.domain,
        state.holdings,
        common,
        components=joint_components(
            state.domain, rows, state.target, method.components, method.clusters
        ),
        central=method.queries == "central",
        seed=method.seed,
    )


def _local(method: FedPC, state: FedPCRun, common: dict[str, IntArray] | None) -> LocalStage:
    """Return the exchange in which the parties train circuits of their own."""
    return LocalStage(
        state.domain,
        state.holdings,
        weights=state.weights,
        common=common,
        num_products=method.products,
        central=method.queries == "central",
        seed=method.seed,
    )


def _present(state: FedPCRun) -> dict[str, Any]:
    """Return by party how many of its rows have a value of each column that is to be cut."""
    columns = [state.agreement.names.index(name) for name in state.agreement.continuous]
    counts = state.holdings.present[:, columns]
    return dict(zip(state.holdings.parties, np.asarray(counts), strict=True))


def _learner(method: FedPC, agreement: Agreement, holdings: Holdings, target: str) -> str:
    if method.learner == "decision-tree" and not (target and holdings.presence.all()):
        raise ConfigError(
            "learner='decision-tree' needs a target, and parties that hold the same columns: take "
            "another learner"
        )
    if method.learner != "auto":
        return method.learner
    complete = not holdings.missing.any()
    return "class-conditional" if is_continuous(agreement, target) and complete else "trees"


def _by_sums(method: FedPC, holdings: Holdings, learner: str, target: str) -> bool:
    """Whether the circuit is trained by sums over rows."""
    if method.training == "one-pass":
        return False
    if method.training == "auto" and method.weights != "auto":
        return False
    same = bool(holdings.presence.all())
    labelled = not target or holdings.all_hold(target)
    possible = learner in BY_SUMS and (
        same or (learner_class(learner).columns_may_differ and labelled)
    )
    if method.training == "sums" and not possible:
        if same:
            training_of(learner, target or None, method)
        raise ConfigError(
            "training='sums' over different columns needs numbers, and the target at every party: "
            f"here {learner} circuits are trained, and {target or 'no target'!r} is held by "
            f"{', '.join(holdings.holders(target)) if target else 'nobody'}. Take "
            "training='one-pass'."
        )
    return possible


def _weights(
    method: FedPC, holdings: Holdings, sums: bool, target: str
) -> tuple[str, tuple[str, ...]]:
    """Return how combinations of clusters are weighted, and what the user should know of it."""
    if sums or holdings.presence.all():
        return "counts", ()
    labelled = bool(target) and holdings.all_hold(target)
    if method.weights != "auto":
        if method.weights == "classes" and not labelled:
            raise ConfigError(
                "weights='classes' needs a target that all parties hold: take 'aligned' or 'counts'"
            )
        if method.weights in ("aligned", "em") and not holdings.ids:
            raise ConfigError(
                f"weights='{method.weights}' needs rows that are aligned by ids: name the column "
                "of ids with row_id, or take weights='counts'"
            )
        return method.weights, ()
    if labelled:
        return "classes", ()
    if holdings.ids:
        return "aligned", ()
    return "counts", (
        "without a column of ids (row_id) rows of different parties cannot be aligned: the "
        "combinations of clusters are weighted by numbers of rows, and what columns of one party "
        "say of those of another is lost",
    )
