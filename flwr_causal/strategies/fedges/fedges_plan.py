"""From the options of FedGES to the first stage of its search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.core.ges.fusion import needed
from flwr_causal.strategies.fedges.fuser import Best, Fuser
from flwr_causal.strategies.fedges.fusion_stages import DrivenStage, LoopStage
from flwr_causal.strategies.fedges.search_stage import CountStage, Problem, ScoreStage
from flwr_causal.strategies.fedges.stages import Step, cardinalities_of

if TYPE_CHECKING:
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.fedges.fedges import FedGES

#: Shares of the parties that the driven loop tries (ceil of the share times K of them).
SHARES = (0.25, 0.35, 0.5, 0.65)
#: Tried too where it means one or two parties: it finds more on win95pts and andes. The scores of
#: small parties prefer some chance edges that three of twenty have (pigs).
LOW_SHARE = 0.15


def shares_for(num_parties: int) -> tuple[float, ...]:
    """Return the shares that the driven loop tries."""
    return (LOW_SHARE, *SHARES) if needed(LOW_SHARE, num_parties) <= 2 else SHARES


def first_step(method: FedGES, agreement: Agreement, score: str) -> Step:
    """Return the first exchange of the search, or its result where nothing has to be asked.

    Parameters
    ----------
    method : FedGES
        Its options.
    agreement : Agreement
        With the states of all columns.
    score : str
        The score that the options come to for these parties.
    """
    names = tuple(sorted(agreement.names))
    if method.chosen_mode == "fusion":
        fuser = Fuser(names, method.knowledge_or_none)
        return Step(_fusion_stage(method, fuser, len(agreement.rows)), {})
    problem = Problem(
        names=names,
        cardinalities=cardinalities_of(agreement),
        rows=agreement.rows,
        score=score,
        equivalent_sample_size=method.equivalent_sample_size,
        knowledge=method.knowledge_or_none,
        max_parents=method.max_parents,
        turn=method.turn,
        look_ahead=method.look_ahead,
        minimum_count=method.minimum_count,
    )
    stage = CountStage if method.chosen_mode == "exact" else ScoreStage
    return stage.of(problem).advanced()


def _fusion_stage(method: FedGES, fuser: Fuser, num_parties: int) -> DrivenStage | LoopStage:
    nothing, start = fuser.nothing(), method.chosen_start
    if start == "driven":
        shares = shares_for(num_parties) if method.fusion is None else (method.fusion,)
        return DrivenStage(fuser, shares, method.patience, nothing, Best(nothing))
    share = "c50" if method.fusion is None else method.fusion
    return LoopStage(fuser, start, share, method.keep != "last", nothing, Best(nothing))
