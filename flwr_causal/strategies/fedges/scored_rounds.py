"""FedGES's own rounds: as in Algorithm 1 (`paper`), and the parties' scores choose among graphs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.ges.fusion import needed
from flwr_causal.protocol.fedges import GRAPHS, JUDGE, JUDGED_GRAPH
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.strategies.fedges.paper import REPEATED, RUN_AWAY, Candidate, Seen, asked

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Result, Step
    from flwr_causal.strategies.fedges.paper import Fuser
    from flwr_causal.strategies.fedges.results import Found, Standing

    Scores = Mapping[str, float]

#: Shares of the parties that the driven loop tries (ceil of the share times K of them).
SHARES = (0.25, 0.35, 0.5, 0.65)
#: A further share where it means at most two parties: it finds more true edges on win95pts and
#: andes. Where it means three of twenty parties, the scores choose chance edges (pigs).
LOW_SHARE = 0.15


def shares_for(num_parties: int) -> tuple[float, ...]:
    """Return the shares that the driven loop tries."""
    return (LOW_SHARE, *SHARES) if needed(LOW_SHARE, num_parties) <= 2 else SHARES


# Smaller differences of scores are rounding errors.
IMPROVEMENT = 1e-6


@dataclass(frozen=True)
class Best:
    """The best graph so far, by the sum of the parties' own scores.

    Parameters
    ----------
    candidate : Candidate
    scores : mapping of str to float
        By party; empty before the first.
    """

    candidate: Candidate
    scores: Scores = field(default_factory=dict)

    def beaten_by(self, scores: Scores) -> bool:
        """Whether other scores have a higher sum, over the parties that sent both."""
        common = [name for name in scores if name in self.scores]
        if not common:
            return not self.scores
        gain = sum(scores[name] - self.scores[name] for name in common)
        return gain > IMPROVEMENT


class Judged(NamedTuple):
    """The graph that the parties' scores have chosen.

    Parameters
    ----------
    chosen : Candidate
        Of those that were proposed in this round.
    best : Best
        Of all rounds.
    better : bool
        Whether the best graph is that of this round.
    """

    chosen: Candidate
    best: Best
    better: bool


def best_of_rounds(
    fuser: Fuser, most: int, standing: Standing
) -> Generator[Step, Any, tuple[Found, int]]:
    """Fuse the parties' graphs round by round, as Algorithm 1 does, and return the best graph.

    The parties also score the graph that they receive; the best one has the highest sum of scores.

    Parameters
    ----------
    fuser, most, standing
        As of :func:`~flwr_causal.strategies.fedges.paper.algorithm_1`.

    Returns
    -------
    found : Found
        Without a reason if the exchanges were used up.
    taken : int
        How many exchanges it has taken.
    """
    current = fuser.first()
    best, so_far = Best(current), None
    seen = Seen()
    for taken in itertools.count(1):
        replies = yield asked(JUDGED_GRAPH, current, {"start": fuser.options.chosen_start}, so_far)
        graphs = replies.of("edges")
        scores = {party: float(score) for party, score in replies.of("score").items()}
        # In the first round the parties have scored the graph without edges only.
        judged = bool(best.scores)
        if best.beaten_by(scores):
            best = Best(current, scores)
        if fuser.run_away(graphs):
            return fuser.found(best.candidate, RUN_AWAY), taken
        fused = fuser.fused(graphs, current)
        yield Note({"num_edges": int(fused.dag.sum())})
        repeated = seen.repeated(graphs)
        found = fuser.found(best.candidate if judged else fused, "")
        if taken >= most:
            return found, taken
        so_far = partial(standing, found)
        if repeated:
            best = (yield from judged_by_parties((fused,), best, so_far)).best
            return fuser.found(best.candidate, REPEATED), taken + 1
        current = fused
    raise AssertionError("unreachable")


def driven_rounds(
    fuser: Fuser, most: int, standing: Standing
) -> Generator[Step, Any, tuple[Found, int]]:
    """Fuse the parties' graphs at both starts and several shares; the parties' scores choose.

    Parameters
    ----------
    fuser : Fuser
        ``begin`` is the graph from which the first round starts. Of the options, ``fusion`` is the
        share of the parties that keeps an edge (default, and for "min-cut": several),
        ``patience`` the number of rounds without a better graph after which the loop ends.
    most : int
        Largest number of exchanges; a round takes two.
    standing : callable
        Returns what stands if the run ends with a graph so far.

    Returns
    -------
    found : Found
        Without a reason if the exchanges were used up.
    taken : int
        How many exchanges it has taken.
    """
    current = fuser.first()
    best, since, so_far = Best(current), 0, None
    for taken in itertools.count(1, 2):
        replies = yield asked(GRAPHS, current, {}, so_far)
        proposed = _proposed(fuser, current, best, replies)
        yield Note({"candidates": len(proposed)})
        if not proposed:
            return fuser.found(best.candidate, RUN_AWAY), taken
        # The result if this was the last exchange, so that the candidates get no scores.
        unjudged = fuser.found(best.candidate if best.scores else proposed[len(proposed) // 2], "")
        if taken >= most:
            return unjudged, taken
        judged = yield from judged_by_parties(proposed, best, partial(standing, unjudged))
        current, best = judged.chosen, judged.best
        since = 0 if judged.better else since + 1
        found = fuser.found(best.candidate, "")
        if since >= fuser.options.patience:
            return found._replace(reason=f"no better graph in {since} rounds"), taken + 1
        if taken + 1 >= most:
            return found, taken + 1
        so_far = partial(standing, found)
    raise AssertionError("unreachable")


def _proposed(
    fuser: Fuser,
    current: Candidate,
    best: Best,
    replies: Replies,
) -> tuple[Candidate, ...]:
    """Fuse both sets of graphs at every share; return the graphs that differ."""
    given = fuser.options.fusion
    shares = (given,) if given not in (None, "min-cut") else shares_for(fuser.num_parties)
    starts = {"overwrite": replies.of("overwritten"), "fuse": replies.of("fused")}
    candidates: list[Candidate] = []
    for label, edges in starts.items():
        if fuser.run_away(edges):
            continue
        fusion = fuser.fuse(edges)
        own = {**current.own, **edges}
        levels = {needed(share, fusion.num_dags): share for share in shares}
        candidates += [
            fuser.candidate(fusion, share, own, f"{label} {share}") for share in levels.values()
        ]
    if not best.scores:
        # In the first round the graph before it is a candidate too.
        candidates.append(best.candidate)
    different = {candidate.dag.tobytes(): candidate for candidate in reversed(candidates)}
    return tuple(reversed(different.values()))


def judged_by_parties(
    proposed: Sequence[Candidate], best: Best, so_far: Callable[[], Result]
) -> Generator[Step, Any, Judged]:
    """Let the parties score proposed graphs; choose the one with the highest sum of scores."""
    lists = [candidate.edges for candidate in proposed]
    lengths = np.array([len(edges) for edges in lists], dtype=np.int64)
    values = {"edges": np.concatenate(lists), "lengths": lengths}
    replies = yield Ask(JUDGE, values, so_far=so_far)
    totals = np.sum(replies.list("scores"), axis=0)
    index = _first_best(totals)
    chosen = proposed[index]
    scores = {name: float(values[index]) for name, values in replies.of("scores").items()}
    better = best.beaten_by(scores)
    yield Note(
        {
            "num_edges": int(chosen.dag.sum()),
            "score": float(totals[index]),
            "chosen": chosen.label,
        }
    )
    return Judged(chosen, Best(chosen, scores) if better else best, better)


def _first_best(totals: NDArray[np.float64]) -> int:
    return int(np.flatnonzero(totals >= totals.max() - IMPROVEMENT)[0])
