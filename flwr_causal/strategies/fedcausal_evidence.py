"""FedCausal's default: a group lasso over the parties, then a search on their evidence."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.fedcausal import evidence_search, group
from flwr_causal.core.fedcausal.evidence import EvidenceTables
from flwr_causal.protocol.fedcausal import EVIDENCE, GROUP
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.strategies.fedcausal_paper import FittedModel, Strengths

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.fedcausal.evidence import Cache
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Result, Step
    from flwr_causal.strategies.fedcausal_paper import Standing


def group_lasso(
    problem: group.ServerProblem, d: int, standing: Standing
) -> Generator[Step, Any, FittedModel]:
    """Run the joint group lasso over d variables, :mod:`flwr_causal.core.fedcausal.group`."""

    def found() -> Strengths:
        return Strengths(group.graph_of(state, problem), state.norms, state.received)

    state, stopped = group.init(d), None
    while stopped is None:
        values = {
            "factors": state.factors,
            "penalty": problem.schedule.at(state.iteration).consensus_penalty,
            "iteration": state.iteration,
        }
        replies = yield Ask(GROUP, values, so_far=lambda: standing(found()))
        state, info = group.server_step(state, replies["squared-norms"], problem)
        stopped = group.finished(state, problem)
        yield Note(info._asdict())
    return FittedModel(found(), state.iteration, stopped)


class Searched(NamedTuple):
    """Searches on evidence, side by side.

    Attributes
    ----------
    problem : SearchProblem
        Background knowledge and limits.
    searches : tuple of SearchState
    known : mapping of (variable, parents) to float
        The evidence of all exchanges so far, in nats.
    """

    problem: evidence_search.SearchProblem
    searches: tuple[evidence_search.SearchState, ...]
    known: Cache

    @property
    def best(self) -> evidence_search.SearchState:
        """The search of highest evidence."""
        return evidence_search.more_probable(self.searches, self.problem)

    @property
    def found(self) -> Strengths:
        """The graph of highest evidence."""
        return Strengths.of_shares(self.best.graph, self.best.ranking)


def search_on_evidence(
    problem: evidence_search.SearchProblem,
    start: Strengths,
    required: BoolArray,
    *,
    num_rows: int,
    share: float,
    standing: Callable[[Searched], Result],
) -> Generator[Step, Any, tuple[Searched, str]]:
    """Search in the same exchanges from a model's graph and from the required edges alone.

    When both are over, one goes on from the best graph that can be made of what they know
    (:mod:`flwr_causal.core.fedcausal.evidence_search`).

    Parameters
    ----------
    problem : SearchProblem
    start : Strengths
        The model's graph.
    required : ndarray of bool, shape (d, d)
    num_rows : int
        n. A party sends its evidence divided by n_k, so that the weighted mean times n is the sum.
    share : float
        Share of the parties' rows whose evidence is computed.
    standing : callable
        Returns what stands if the run ends with these searches.

    Returns
    -------
    searched : Searched
    reason : str
        Why the search is over.
    """
    known: Cache = {}
    searched = Searched(
        problem,
        tuple(
            evidence_search.init(graph, start.scores, problem) for graph in (start.graph, required)
        ),
        known,
    )
    reason = None
    while reason is None:
        graphs, wanted = zip(*((one.graph, one.wanted) for one in searched.searches), strict=True)
        masks = {"graphs": np.stack(graphs), "wanted": np.stack(wanted), "start": start.graph}
        values = {name: mask.astype(np.uint8) for name, mask in masks.items()}
        replies = yield Ask(EVIDENCE, values | {"share": share}, so_far=partial(standing, searched))
        steps = []
        for search, tables in zip(searched.searches, _tables(replies, num_rows), strict=True):
            known |= evidence_search.known_evidence(search, tables)
            steps.append(evidence_search.server_step(search, tables, problem))
        searched = Searched(problem, tuple(state for state, _ in steps), known)
        best = searched.best
        reasons = [evidence_search.finished(*step, problem) for step in steps]
        reason = reasons[searched.searches.index(best)] if all(reasons) else None
        if reason and best.exchanges < problem.max_exchanges:
            better = evidence_search.recombined(known, best.graph, problem)
            if better is not None:
                again = evidence_search.init(better, best.ranking, problem, best.exchanges)
                searched, reason = Searched(problem, (again,), known), None
        yield Note(
            {
                "moves": sum(info.added + info.deleted + info.reversed for _, info in steps),
                "asked": sum(info.asked for _, info in steps),
                "num_edges": int(searched.found.graph.sum()),
            }
        )
    return searched, reason


def _tables(replies: Replies, num_rows: int) -> list[EvidenceTables]:
    """Return the summed evidence of each search."""
    return [
        EvidenceTables(changes * num_rows, evidence * num_rows, shares)
        for changes, evidence, shares in zip(
            replies["changes"], replies["evidence"], replies["shares"], strict=True
        )
    ]


def unexplained(weights: FloatArray, variance: FloatArray) -> FloatArray:
    """Return rough noise variances that the weights of a group lasso imply, shape (d,)."""
    unit = np.quantile(variance, 0.1)  # as `prior_noise_scale`
    left = variance - unit * (weights**2).sum(axis=0)
    # Effects of causes that depend on each other do not add up.
    return np.asarray(np.maximum(left, 0.05 * variance))
