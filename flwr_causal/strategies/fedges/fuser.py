"""Fused graphs: how they are made, which is the best so far, and when they have grown too large."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.ges.fusion import Fusion, fuse
from flwr_causal.core.ges.greedy_search import orient
from flwr_causal.core.graphs.edge_lists import edges_of, matrix_of
from flwr_causal.core.graphs.equivalence import cpdag, meek
from flwr_causal.core.graphs.knowledge import precedence
from flwr_causal.strategies.fedges.stages import Found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from flwr_causal.core.graphs.knowledge import Knowledge

    BoolMatrix = NDArray[np.bool_]
    Edges = NDArray[np.integer]
    Scores = Mapping[str, float]

# A graph is better only by more than rounding.
IMPROVEMENT = 1e-6
# Graphs with more edges than this for each variable on average have run away: each round fuses more
# in than searches take out, and a search from them takes for ever. They are not followed.
RUNAWAY_EDGES = 3
RUN_AWAY = (
    "the parties' graphs ran away, to more than three edges a variable; a higher share of 'fusion' "
    "or start='driven' keeps them small"
)


@dataclass(frozen=True)
class Candidate:
    """A fused graph.

    Parameters
    ----------
    dag : ndarray of bool, shape (d, d)
    support : ndarray of float64, shape (d, d)
        The share of the parties' transformed graphs that have each edge.
    own : mapping of str to ndarray
        The parties' graphs that went into it.
    label : str
        Start and share.
    """

    dag: BoolMatrix
    support: NDArray[np.float64]
    own: Mapping[str, Edges]
    label: str = ""

    @cached_property
    def edges(self) -> NDArray[np.uint16]:
        """The edges of the DAG as they travel, shape (m, 2)."""
        return edges_of(self.dag)


@dataclass(frozen=True)
class Fuser:
    """How graphs are fused.

    Parameters
    ----------
    names : tuple of str
        The variables, sorted.
    knowledge : Knowledge or None
        Edges that it forbids are left out of the fused graph, those that it requires are put in.
    """

    names: tuple[str, ...]
    knowledge: Knowledge | None

    def fuse(self, own: Mapping[str, Edges]) -> Fusion:
        """Transform the parties' DAGs to one order."""
        before = precedence(self.knowledge, self.names)
        return fuse(list(own.values()), len(self.names), before=before)

    def run_away(self, own: Mapping[str, Edges]) -> bool:
        """Whether the parties' DAGs have grown too large to go on from."""
        total = sum(len(edges) for edges in own.values())
        return total > RUNAWAY_EDGES * len(self.names) * len(own)

    def candidate(
        self, fusion: Fusion, share: str | float, own: Mapping[str, Edges], label: str = ""
    ) -> Candidate:
        """Return the edges that a share of the DAGs has."""
        d = len(self.names)
        dag = matrix_of(fusion.keep(share), d)
        if self.knowledge:
            masks = self.knowledge.masks(self.names)
            dag = dag & masks.allowed | masks.required
        support = np.zeros((d, d))
        support[fusion.edges[:, 0], fusion.edges[:, 1]] = fusion.support / fusion.num_dags
        return Candidate(dag, support, own, label)

    def found(self, candidate: Candidate, reason: str) -> Found:
        """Return the class of a fused graph."""
        marks = cpdag(candidate.dag)
        if self.knowledge:
            directed = orient(marks, self.knowledge.masks(self.names))
            assert directed is not None
            marks = meek(directed)
        return Found(marks, candidate.dag, reason, candidate.support)

    def nothing(self) -> Candidate:
        """Return the graph before the first round."""
        d = len(self.names)
        dag = np.zeros((d, d), dtype=np.bool_)
        if self.knowledge:
            dag = self.knowledge.masks(self.names).required.copy()
        return Candidate(dag, np.zeros((d, d)), {})


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
        """Whether other scores are better, over the parties that gave both."""
        common = [name for name in scores if name in self.scores]
        if not common:
            return not self.scores
        gain = sum(scores[name] - self.scores[name] for name in common)
        return gain > IMPROVEMENT
