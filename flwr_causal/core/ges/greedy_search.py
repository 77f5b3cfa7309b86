"""The search of GES (Chickering 2002): from class to class, edge by edge, as the score says.

The search moves among CPDAGs: it inserts edges while that improves the score, then deletes edges
while that does. A :class:`GainSource` computes the gains that the search needs: from the rows of a
table, from sums over parties, or as estimates.

References
----------
Chickering, D. M. (2002). Optimal structure identification with greedy search. JMLR 3.
Hauser, A. & Bühlmann, P. (2012). Characterization and greedy learning of interventional Markov
equivalence classes of directed acyclic graphs. JMLR 13. (The turning phase.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from flwr_causal.core.discrete.families import FULL, Families, empty_families, enlarged
from flwr_causal.core.ges import operators
from flwr_causal.core.ges.cpdag import NO_PAIRS, Graph, affected, class_of, graph_of, member_of
from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.limits import MOST_STEPS, check_deadline, steps
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, IntArray

#: Largest number of entries of a table of families: 1 GiB. From no edges a search on the 5,000 rows
#: of andes has 200,000 gains (884 families of 223 variables); from a fused graph whose edges had
#: grown from round to round (C25, hepar2, 20 parties) one had 300 million, and 20 GB with their
#: sets. Of few variables the sets and the hash table take more than the gains.
MOST_ENTRIES = 1 << 27


class GainSource(Protocol):
    """Computes the gains that a search needs."""

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Write the gains that ``wanted``, (m, d), marks in m ``rows`` into ``families.gains``."""

    def must_stop(self) -> bool:
        """Return whether the search is to stop before its next operator."""


def prepared_search(
    source: GainSource,
    names: Sequence[str],
    *,
    start: BoolArray,
    knowledge: Knowledge | EdgeMasks | None = None,
    max_parents: int | None = None,
    distinguished: BoolArray = NO_PAIRS,
    pairs: BoolArray | None = None,
) -> Search:
    """Return a search that is ready to run.

    Parameters
    ----------
    source : GainSource
    names : sequence of str
        The d variables in the order in which they are numbered. Sorted, they make the result
        independent of the order of columns.
    start : ndarray of bool, shape (d, d)
        Marks of a DAG or CPDAG.
    knowledge : Knowledge or EdgeMasks, optional
        Masks are over the variables in the order of ``names``.
    max_parents : int, optional
    distinguished : ndarray of bool, shape (d, d), optional
        Pairs whose edge has a direction in every class, see :mod:`flwr_causal.core.ges.cpdag`.
    pairs : ndarray of bool, shape (d, d), optional
        The pairs that an edge may join, symmetric. Default: all.

    Raises
    ------
    DataError
        If ``start`` is no DAG and no CPDAG, or no DAG of its class respects the knowledge.
    ConfigError
        For an impossible ``max_parents``, or knowledge of unknown variables.
    """
    check_limit("max_parents", max_parents)
    masks = knowledge or None
    if isinstance(masks, Knowledge):
        masks = masks.masks(names)
    graph = graph_of(start, distinguished)
    if graph is not None and masks is not None:
        # Where a DAG contradicts the knowledge, another DAG of its class may respect it.
        graph = graph_of(informed_start(graph.marks, masks, distinguished), distinguished)
    if graph is None:
        raise DataError(
            "the start graph has a cycle, or no DAG has its edges and no further v-structure: "
            "give a DAG or a CPDAG"
        )
    return Search(graph, source, empty_families(len(names)), max_parents, masks, pairs)


@dataclass
class Search:
    """A greedy search from a start graph.

    Parameters
    ----------
    graph : Graph
        The present class; changed in place.
    source : GainSource
    families : Families
        The gains that are known; grows.
    max_parents : int, optional
        Largest number of parents of a node.
    masks : EdgeMasks, optional
        Background knowledge: every class on the way has a member that respects it.
    pairs : ndarray of bool, shape (d, d), optional
        The pairs that an edge may join, symmetric. Default: all.
    """

    graph: Graph
    source: GainSource
    families: Families
    max_parents: int | None = None
    masks: EdgeMasks | None = None
    pairs: BoolArray | None = None
    num_operators: int = 0
    gain: float = 0.0

    def __post_init__(self) -> None:
        d = len(self.graph.degrees)
        allowed = np.ones((d, d), dtype=np.bool_) if self.masks is None else self.masks.allowed
        required = np.zeros((d, d), dtype=np.bool_) if self.masks is None else self.masks.required
        # Where the class decides the direction anyway, only the allowed one is tried.
        self._insertable = allowed | allowed.T
        if len(self.graph.distinguished):
            self._insertable = np.where(self.graph.distinguished, allowed, self._insertable)
        if self.pairs is not None:
            self._insertable = self._insertable & self.pairs
        self._removable = ~(required | required.T)
        self._limit = d if self.max_parents is None else self.max_parents
        self._room = operators.room_for(d)

    def run(self, max_edges: int | None = None, *, turn: bool = False) -> None:
        """Insert at most ``max_edges`` edges while that improves the score, then delete edges.

        With ``turn`` also turn edges, and repeat the phases until none of them changes the class;
        ``max_edges`` then limits the edges that all forward phases insert together.

        Raises
        ------
        DataError
            If the graph becomes too dense to list the operators of a variable.
        """
        try:
            self._run(max_edges, turn)
        except OverflowError:
            raise DataError(
                "the graph has so many variables that are all joined to each other that its "
                "operators cannot be listed: limit the graph with max_parents, or start from a "
                "sparser one"
            ) from None

    def _run(self, max_edges: int | None, turn: bool) -> None:
        # With known gains no class is reached twice, because every phase raises the score; with
        # estimates the phases can cycle.
        seen: set[bytes] = set()
        left = max_edges
        for _ in steps("The greedy search", MOST_STEPS):
            inserted = self.forward(left)
            if self.source.must_stop():
                return
            self.backward()
            if not turn or self.source.must_stop():
                return
            self.turning()
            reached = self.graph.marks.tobytes()
            if reached in seen:
                return
            seen.add(reached)
            left = None if left is None else left - inserted

    @property
    def marks(self) -> BoolArray:
        """The present class, with the edges directed that knowledge directs."""
        if self.masks is None:
            return self.graph.marks
        directed = orient(self.graph.marks, self.masks)
        assert directed is not None
        return equivalence.meek(directed)

    @property
    def dag(self) -> BoolArray:
        """A member of the class that respects the knowledge; the same for the same class."""
        member = member_of(self.marks)
        assert member is not None
        return member

    def forward(self, max_edges: int | None = None) -> int:
        """Apply the best Insert until none improves the score; return how many were applied."""
        return self._climb(True, max_edges)

    def backward(self) -> int:
        """Apply the best Delete until none improves the score; return how many were applied."""
        return self._climb(False, None)

    def _climb(self, insert: bool, limit: int | None) -> int:
        """Apply the best operator of one kind until none improves the score, or to the limit."""
        d = len(self.graph.degrees)
        apply = operators.apply_insert if insert else operators.apply_delete
        best, nodes, banned = operators.nothing_best(d), np.arange(d), _nothing_banned()
        count = 0
        while limit is None or count < limit:
            y, best = self._choose(insert, nodes, banned, best)
            if y < 0:
                break
            x, row = int(best.others[y]), int(best.rows[y])
            trial = None if self.masks is None else self.graph.copy()
            if not apply(self.graph, self.families, x, y, row):
                # Theorems 15 and 17 exclude it for valid operators.
                name = "Insert" if insert else "Delete"
                raise AssertionError(f"{name} of {x} and {y} left a graph without an extension")
            if trial is not None and not self._respects():
                self.graph, nodes = trial, np.array([y])
                banned = np.concatenate([banned, [[row, x]]])
                continue
            nodes = self._advance(best, x, y, banned)
            banned = _nothing_banned()
            count += 1
        return count

    def turning(self) -> int:
        """Apply the best Turn until none improves the score; return how many were applied."""
        count = 0
        seen = {self.graph.marks.tobytes()}
        for _ in steps("The greedy search", MOST_STEPS * len(self.graph.degrees)):
            found, self.families = operators.possible_turns(self.graph, self.families, self._limit)
            rows, wanted = operators.unknown_gains(self.families, found)
            if len(rows):
                self.source.fill(self.families, rows, wanted)
            if self.source.must_stop():
                break
            improved, gain = self._best_turn(found)
            if improved is None or improved.marks.tobytes() in seen:
                break
            self.graph = improved
            seen.add(improved.marks.tobytes())
            self.num_operators += 1
            self.gain += gain
            count += 1
        return count

    def _best_turn(self, found: list[operators.Turn]) -> tuple[Graph | None, float]:
        """Return the class after the best Turn, None if none improves the score, and its gain."""
        best, largest = None, 0.0
        for turn, gain in zip(found, operators.turn_gains(self.families, found), strict=True):
            check_deadline()
            if not (operators.exceeds(gain, largest) and operators.is_valid(self.graph, turn)):
                continue
            trial = operators.turned(self.graph, turn)
            if self.masks is None or self._member(trial) is not None:
                best, largest = trial, float(gain)
        return best, largest

    def _advance(self, best: operators.BestOperators, x: int, y: int, banned: IntArray) -> IntArray:
        """Count an operator; return the nodes whose operators are to be evaluated again."""
        self.num_operators += 1
        self.gain += float(best.gains[y])
        nodes: IntArray = affected(self.graph)
        if len(banned):
            # An operator that the knowledge forbade in the last graph may be allowed in this one.
            nodes = np.union1d(nodes, self.families.owners[banned[:, 0]].astype(np.int64))
        return nodes

    def _choose(
        self, insert: bool, nodes: IntArray, banned: IntArray, best: operators.BestOperators
    ) -> tuple[int, operators.BestOperators]:
        """Return the node with the best operator; -1 if none improves, or the source has enough."""
        allowed = self._insertable if insert else self._removable
        while True:
            check_deadline()
            status, number = operators.choose(
                insert,
                self.graph,
                self.families,
                nodes,
                allowed,
                self._limit,
                banned,
                best,
                self._room,
            )
            if status == operators.MISSING:
                self.source.fill(
                    self.families, self._room.rows[:number], self._room.wanted[:number]
                )
            if status in (operators.CHOSEN, operators.MISSING) and self.source.must_stop():
                return -1, best
            if status == operators.CHOSEN:
                return int(number), best
            if status == operators.NO_BLOCKED:
                best, nodes = operators.with_room(best), nodes[:0]
            elif status == FULL:
                # FULL is returned for a lack of rows and for sets wider than the table.
                full = self.families.used[0] == len(self.families.owners)
                if full and 2 * sum(part.size for part in self.families) > MOST_ENTRIES:
                    raise OverflowError("too many families")
                width = 0 if full else 2 * self.families.members.shape[1]
                self.families = enlarged(self.families, width)
            elif status != operators.MISSING:
                self._room = operators.more_room(self._room, status)

    def _respects(self) -> bool:
        """Whether the present class has a member that background knowledge allows."""
        return self._member(self.graph) is not None

    def _member(self, graph: Graph) -> BoolArray | None:
        assert self.masks is not None
        return knowing_member(graph.marks, self.masks, graph.distinguished)


def informed_start(
    start: BoolArray, masks: EdgeMasks, distinguished: BoolArray = NO_PAIRS
) -> BoolArray:
    """Return a DAG of the start's class with the required edges added.

    Raises
    ------
    DataError
        If the start contradicts the knowledge, or closes a cycle with the required edges.
    """
    adjacent = start | start.T
    missing = masks.required & ~adjacent
    own = EdgeMasks(masks.allowed, masks.required & adjacent)
    member = knowing_member(start, own, distinguished)
    if member is None:
        raise DataError(
            "the start graph contradicts the background knowledge (a forbidden edge, an edge "
            "against the tiers, or a required edge reversed): remove those edges from it"
        )
    informed: BoolArray = member | missing
    if not is_acyclic(informed):
        raise DataError(
            "the start graph and the required edges close a cycle: remove edges from the start"
        )
    return informed


def knowing_member(
    marks: BoolArray, masks: EdgeMasks, distinguished: BoolArray = NO_PAIRS
) -> BoolArray | None:
    """Return a DAG of a class that respects background knowledge, None if there is none.

    Required edges must be adjacent in the class.
    """
    informed = orient(marks, masks)
    member = None if informed is None else member_of(informed)
    # An orientation may have made a v-structure that the class does not have.
    if member is None or not np.array_equal(class_of(member, distinguished), marks):
        return None
    return member


def orient(marks: BoolArray, masks: EdgeMasks) -> BoolArray | None:
    """Direct the undirected edges of a class as knowledge says; None on a contradiction."""
    undirected = equivalence.undirected_part(marks)
    directed = equivalence.directed_part(marks)
    if (directed & ~masks.allowed).any() or (masks.required & ~marks).any():
        return None
    one_way = undirected & (~masks.allowed.T | masks.required)
    if (one_way & one_way.T).any() or (one_way & ~masks.allowed).any():
        return None
    return marks & ~one_way.T


def check_limit(name: str, value: int | None) -> None:
    """Raise a ConfigError for a limit that is no whole number from 1 up."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if value is not None and not (whole and value >= 1):
        raise ConfigError(f"{name} is {value!r}: give a whole number from 1 up, or None")


def _nothing_banned() -> IntArray:
    return np.zeros((0, 2), dtype=np.int64)
