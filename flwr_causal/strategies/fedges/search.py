"""Searching on sums over parties: of their own scores, or of their contingency tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from logging import WARNING
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from flwr.supercore import log

from flwr_causal.core.discrete.scores import KINDS, terms_of
from flwr_causal.core.ges.counted_gains import CountedGains
from flwr_causal.core.ges.ges import prepared_search
from flwr_causal.core.ges.speculative_search import Questions, SpeculativeGains
from flwr_causal.protocol.fedges import COUNTS, SCORES
from flwr_causal.runtime.method import Request
from flwr_causal.strategies.fedges.fit import small_cells, summed_counts
from flwr_causal.strategies.fedges.stage import Found, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from flwr_causal.core.discrete.contingency_tables import Sets
    from flwr_causal.core.graphs.knowledge import Knowledge
    from flwr_causal.protocol.exchange import Exchange
    from flwr_causal.protocol.replies import Replies

    FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """What is searched.

    Parameters
    ----------
    names : tuple of str
        The variables, sorted.
    cardinalities : ndarray of int64, shape (d,)
    rows : mapping of str to int
        Each party's number of rows.
    score : str
    equivalent_sample_size : float
    knowledge : Knowledge or None
    max_parents : int or None
    turn : bool
    look_ahead : int or None
        How many operators a search runs ahead of the first unknown; None: to the end.
    """

    names: tuple[str, ...]
    cardinalities: NDArray[np.int64]
    rows: Mapping[str, int]
    score: str
    equivalent_sample_size: float
    knowledge: Knowledge | None
    max_parents: int | None
    turn: bool
    look_ahead: int | None


@dataclass(frozen=True)
class ScoreStage:
    """Asking for gains of the parties' own scores (``mode="scores"``).

    The sums are of one fixed set of parties. If one of them fails, what the others said before with
    it is worthless, and the search starts again without it.

    Parameters
    ----------
    problem : Problem
    source : SpeculativeGains
        What is known; the one thing here that grows in place.
    question : NamedTuple of ndarray
        What the search lacked; the same for every party.
    small : mapping of str to int
        Cells of few rows that each party has sent.
    """

    exchange: ClassVar[Exchange] = SCORES

    problem: Problem
    source: SpeculativeGains
    question: Any = None
    small: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem) -> ScoreStage:
        """Return a search that knows nothing yet."""
        rows, num_parties = sum(problem.rows.values()), len(problem.rows)
        # The sum has a penalty for every party, each of its own rows.
        price = 0.5 * num_parties * float(np.log(max(rows / num_parties, 2.0)))
        return cls(problem, SpeculativeGains(problem.cardinalities, price, problem.look_ahead))

    def advanced(self) -> Step:
        """Run the search as far as it goes; the next exchange, or the result."""
        problem, source = self.problem, self.source
        search = prepared_search(
            source,
            problem.names,
            start=np.zeros((len(problem.names),) * 2, dtype=np.bool_),
            knowledge=problem.knowledge,
            max_parents=problem.max_parents,
        )
        source.start_again()
        search.families = source.families
        search.run(turn=problem.turn)
        source.take_back(search.families)
        info = {"num_edges": int(search.graph.dag.sum()), "questions": len(source.asked)}
        reason = "no insertion or deletion improves the score"
        found = Found(search.marks, search.dag, reason)
        if len(source.asked) == 0:
            return Step(None, info, found)
        onward = replace(self, question=self._question())
        return Step(onward, info, found)

    def _question(self) -> Questions | Sets:
        return self.source.questions()

    def cut_short(self) -> Found:
        """Return the graph as far as the search is sure of it."""
        source = self.source
        depth, source.depth = source.depth, 0
        found = self.advanced().found
        source.depth = depth
        assert found is not None
        return found._replace(reason="the exchanges were used up before the search had ended")

    def request(self) -> Request:
        """Ask for the gains that the search lacked."""
        return Request(self.exchange, self.question._asdict(), parties=frozenset(self.problem.rows))

    def close(self, replies: Replies) -> Step:
        """Take the sums and search on; start again if a party is lost."""
        rows = {name: self.problem.rows[name] for name in replies.parties}
        lost = [name for name in self.problem.rows if name not in rows]
        after = self.noted(replies)
        if not lost:
            after._learn(replies)
            return after.advanced()
        log(
            WARNING,
            "The search starts again without %s: sums with it and without it do not go together.",
            ", ".join(lost),
        )
        again = type(self).of(replace(self.problem, rows=rows))
        step = replace(again, small=after.small).advanced()
        return step._replace(info={**step.info, "started_again": 1})

    def noted(self, replies: Replies) -> Self:
        """Return the stage with the cells of few rows that the parties have sent."""
        return self

    def _learn(self, replies: Replies) -> None:
        self.source.learn(replies["gains"])


@dataclass(frozen=True)
class CountStage(ScoreStage):
    """Asking for contingency tables (``mode="exact"``): the search on the pooled rows."""

    exchange: ClassVar[Exchange] = COUNTS

    source: CountedGains

    @classmethod
    def of(cls, problem: Problem) -> CountStage:
        """Return a search that knows nothing yet."""
        rows = sum(problem.rows.values())
        terms = terms_of(KINDS[problem.score], problem.equivalent_sample_size, rows)
        price = 0.5 * float(np.log(max(rows, 2)))
        source = CountedGains(problem.cardinalities, terms, price, problem.look_ahead)
        return cls(problem, source)

    def _question(self) -> Sets:
        return self.source.sets()

    def noted(self, replies: Replies) -> Self:
        """Return the stage with the cells of few rows that the parties have sent."""
        cells = small_cells(replies)
        both = {name: self.small.get(name, 0) + count for name, count in cells.items()}
        return replace(self, small={**self.small, **both})

    def _learn(self, replies: Replies) -> None:
        self.source.learn_counts(self.question, summed_counts(replies))
