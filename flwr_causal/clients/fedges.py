"""FedGES (Torrijos, Gamez & Puerta 2024): the party's side."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.clients.columns import ColumnsClient
from flwr_causal.contract.answers import Asked, answers, step
from flwr_causal.contract.when import When
from flwr_causal.core.discrete.completion import completed
from flwr_causal.core.discrete.contingency_tables import Sets, tabulate
from flwr_causal.core.discrete.cut_points import count_up_to
from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.discrete.families import Families, empty_families
from flwr_causal.core.discrete.joint_states import Parts
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.discrete.seen_rows import SeenGains, SeenTable, tabulate_seen
from flwr_causal.core.ges import speculative_search
from flwr_causal.core.ges.fusion import fuse
from flwr_causal.core.ges.greedy_search import prepared_search
from flwr_causal.core.graphs.edge_lists import edges_of, families_of, matrix_of, parents_of
from flwr_causal.core.ties import GAIN_TIE
from flwr_causal.core.words import by_name
from flwr_causal.data.check.party_table import describe, prepare, prepare_columns, prepare_states
from flwr_causal.errors import FederationError
from flwr_causal.protocol.cuts import CUTS
from flwr_causal.protocol.fedges import (
    CONTRACT,
    COUNTS,
    DRIVES,
    FIT,
    FUSES,
    GRAPH,
    GRAPHS,
    JUDGE,
    JUDGED_GRAPH,
    LIKELIHOODS,
    POOLED_COUNTS,
    POOLED_FIT,
    SCORES,
    columns_of_marks,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray
    from flwr_causal.core.discrete.contingency_tables import ContingencyCounts
    from flwr_causal.core.ges.greedy_search import GainSource
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.fedges import FedGESPartyOptions
    from flwr_causal.protocol.products.plan import ProductPlan


@dataclass
class Cache:
    """What a party has computed from its rows and uses again in the next message.

    Parameters
    ----------
    table : DiscreteTable
        Its rows, the variables in the order of their names.
    source : TableGains
    families : Families
        The gains computed so far.
    scores : dict
        Local scores (y, parents) computed so far.
    """

    table: DiscreteTable
    source: TableGains
    families: Families
    scores: dict[tuple[int, ...], float] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, by which the cache is limited."""
        return self.source.nbytes + self.table.nbytes + self.families.gains.nbytes

    def likelihoods(self) -> GainSource:
        """Return the gains of the log-likelihood."""
        return self.source.likelihoods()

    def means(self) -> GainSource:
        """Return the means of these gains under independence."""
        return self.source.means()

    def tabulate(self, sets: Sets) -> ContingencyCounts:
        """Return contingency tables of the rows."""
        return tabulate(self.table, sets)

    def score(self, y: int, parents: tuple[int, ...]) -> float:
        """Return the party's own local score s(y | parents); parents are ascending."""
        key = (y, *parents)
        if key not in self.scores:
            self.scores[key] = self.source.family_score(y, parents)
        return self.scores[key]


@dataclass(frozen=True, eq=False)
class SeenRows:
    """As :class:`Cache`, of rows with gaps: a table is of the rows that are seen in its columns.

    Parameters
    ----------
    rows : SeenTable
        The variables in the order of their names.
    own : TableGains
        Of the party's own score.
    """

    rows: SeenTable
    own: TableGains

    @property
    def table(self) -> DiscreteTable:
        """The rows, with arbitrary states in place of missing cells."""
        return self.rows.table

    @property
    def nbytes(self) -> int:
        """Bytes of memory, by which the cache is limited."""
        return self.rows.nbytes + self.own.nbytes

    @property
    def source(self) -> GainSource:
        """The gains of the party's own score."""
        return SeenGains(self.rows, self.own)

    def likelihoods(self) -> GainSource:
        """Return the gains of the log-likelihood."""
        return SeenGains(self.rows, self.own.likelihoods())

    def means(self) -> GainSource:
        """Return the means of these gains under independence."""
        return SeenGains(self.rows, self.own.means())

    def tabulate(self, sets: Sets) -> ContingencyCounts:
        """Return contingency tables of the rows."""
        return tabulate_seen(self.rows, sets)

    def score(self, y: int, parents: tuple[int, ...]) -> float:
        """Return the party's own local score s(y | parents) of the rows that have all of them."""
        members = [*parents, y]
        codes = self.rows.table.codes[members][:, self.rows.seen[members].all(axis=0)]
        return self.own.on(codes, members).family_score(len(parents), range(len(parents)))


class FedGESClient(ColumnsClient):
    """Searches, scores and counts on the party's rows, as the run's mode needs.

    Variables are numbered in the order of their names, the same at every party.

    **What leaves the party**: :mod:`flwr_causal.protocol.fedges` declares it.
    """

    contract: ClassVar[Contract] = CONTRACT
    options: FedGESPartyOptions

    def describe(self, handling: Handling) -> TableReport:
        """Report the columns with their states."""
        numbers = handling.discretize > 0
        report = describe(
            self.table(), handling=handling, sums=numbers, states=True, relations=numbers
        )
        return self.with_ids(report)

    @answers(CUTS)
    def cut(self, asked: Asked) -> Arrays:
        """Count the rows up to each threshold; none of a column that the party does not hold."""
        thresholds, held = asked["thresholds"], self.held_names
        counts = np.zeros(thresholds.shape, dtype=np.int64)
        own = [k for k, name in enumerate(self.setup.continuous) if name in held]
        names = [self.setup.continuous[k] for k in own]
        rows = prepare(self.frame(), names, self.setup.handling)
        counts[own] = count_up_to(rows, thresholds[own])
        return {"counts": counts}

    @answers(GRAPH, JUDGED_GRAPH)
    def graph(self, asked: Asked) -> Arrays:
        """Search from the fused graph, or from the fused graph fused with the party's own."""
        received, cache = asked["received"], self._cached(asked)
        fuse_first = asked["start"] == "fuse"
        start = self.fuse(received, asked["own"]) if fuse_first else received
        reply = {"edges": self._searched(cache, start)}
        if asked.exchange is JUDGED_GRAPH:
            reply["score"] = np.array(self._score(cache, received))
        return reply

    @step(FUSES & ~When(start="overwrite") | DRIVES)
    def fuse(self, received: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
        """Fuse the server's DAG and the party's own: a step that a subclass may replace.

        Parameters
        ----------
        received, own : ndarray of shape (m, 2)
            Rows ``[cause, effect]``, variables numbered in the order of their names.

        Returns
        -------
        ndarray of shape (m, 2)
            The edges of the DAG from which the party searches.
        """
        names, knowledge = self._variables, self.options.knowledge
        before = knowledge.precedence(names) if knowledge else None
        return fuse([received, own], len(names), before=before).keep("union")

    @step(FUSES | DRIVES)
    def search(self, cache: Cache, start: BoolArray) -> BoolArray:
        """Search from a DAG by GES with few insertions: a step that a subclass may replace.

        Parameters
        ----------
        cache : Cache
            The party's rows, ``cache.table``, and their scores, ``cache.score(y, parents)``.
        start : ndarray of bool, shape (d, d)
            Row causes column; with background knowledge it respects that.

        Returns
        -------
        ndarray of bool, shape (d, d)
            The DAG that was found.
        """
        options = self.options
        search = prepared_search(
            cache.source,
            cache.table.names,
            start=start,
            knowledge=options.knowledge,
            max_parents=options.max_parents,
        )
        search.families = cache.families
        search.run(options.max_edges, turn=options.turn)
        cache.families = search.families
        return search.dag

    def _searched(self, cache: Cache, start: NDArray[Any]) -> NDArray[Any]:
        """Return the edges of the DAG that a search from a DAG finds."""
        names, knowledge = cache.table.names, self.options.knowledge
        marks = matrix_of(start, len(names))
        if knowledge:
            masks = knowledge.masks(names)
            marks = marks & masks.allowed | masks.required
        return edges_of(self.search(cache, marks))

    @answers(LIKELIHOODS)
    def likelihoods(self, asked: Asked) -> Arrays:
        """Return the gains of the log-likelihood, and their means under independence."""
        rows = self._rows(asked)
        # A gain that is 0 may be computed as a tiny negative number.
        gains = np.maximum(self._answer(asked, rows.likelihoods()), 0.0)
        return {"gains": gains, "means": self._answer(asked, rows.means())}

    @answers(SCORES)
    def gains(self, asked: Asked) -> Arrays:
        """Return the gains of the party's own score."""
        return {"gains": self._answer(asked, self._rows(asked).source)}

    def _answer(self, asked: Asked, source: GainSource) -> FloatArray:
        questions = speculative_search.Questions(
            *(asked[k] for k in speculative_search.Questions._fields)
        )
        return speculative_search.answer(questions, source, len(self.setup.names))

    @answers(COUNTS, POOLED_COUNTS)
    def counts(self, asked: Asked) -> Arrays:
        """Return contingency tables of the party's rows."""
        return self._tables(self._rows(asked), asked)

    def _tables(self, cache: Cache | SeenRows, asked: Asked) -> Arrays:
        sets, small = Sets(asked["sizes"], asked["members"]), self.setup.small
        counts = cache.tabulate(sets)
        if asked.exchange in (POOLED_COUNTS, POOLED_FIT):
            return {"counts": counts.whole(sets, cache.table.cardinalities)}
        few = counts.num_small(small.minimum)
        if small.withheld:
            filled = counts.num_filled
            counts = counts.without_small(sets, cache.table.cardinalities, small.withheld)
            few = filled - counts.num_filled
        return {**counts._asdict(), "small": np.array(few, dtype=np.int64)}

    @answers(FIT, POOLED_FIT)
    def fit_tables(self, asked: Asked) -> Arrays:
        """Return the tables of the graphs that were found, and votes on their edges."""
        cache = self._rows(asked)
        graphs = np.split(asked["edges"], np.cumsum(asked["lengths"])[:-1])
        votes = [vote for edges in graphs for vote in self._votes(cache, edges)]
        return {**self._tables(cache, asked), "votes": np.array(votes, dtype=np.uint8)}

    def _votes(self, cache: Cache | SeenRows, edges: NDArray[Any]) -> list[bool]:
        """Return whether the party's own score agrees with each edge, by child, then parent."""
        return [
            cache.score(y, parents) - cache.score(y, (*parents[:k], *parents[k + 1 :])) > GAIN_TIE
            for y, parents in families_of(matrix_of(edges, len(cache.table.names)))
            for k in range(len(parents))
        ]

    @answers(GRAPHS)
    def graphs(self, asked: Asked) -> Arrays:
        """Search from the fused graph, and from the fused graph fused with the party's own."""
        received, own, cache = asked["received"], asked["own"], self._cached(asked)
        alone = self._searched(cache, received)
        # In the first round both starts are the graph without edges.
        both = len(received) or len(own)
        fused = self._searched(cache, self.fuse(received, own)) if both else alone
        return {"overwritten": alone, "fused": fused}

    @answers(JUDGE)
    def judge(self, asked: Asked) -> Arrays:
        """Score proposed graphs."""
        cache = self._cached(asked)
        graphs = np.split(asked["edges"], np.cumsum(asked["lengths"])[:-1])
        return {"scores": np.array([self._score(cache, graph) for graph in graphs])}

    def _score(self, cache: Cache, edges: NDArray[Any]) -> float:
        """Return the party's own score of a DAG."""
        families = enumerate(parents_of(edges, len(cache.table.names)))
        return sum(cache.score(y, parents) for y, parents in families)

    def _cached(self, asked: Asked) -> Cache:
        """Return the party's rows and what was computed from them."""
        return self.once("rows and gains", lambda: self._cache_of(self._complete_table(asked)))

    def _complete_table(self, asked: Asked) -> DiscreteTable:
        setup = self.setup
        cuts = self._cuts(asked)
        table = prepare_states(self.frame(), setup.names, setup.states, setup.handling, cuts)
        return table.reordered(by_name(setup.names))

    def _cache_of(self, table: DiscreteTable) -> Cache:
        return Cache(table, self._gains_of(table), empty_families(len(table.names)))

    def _gains_of(self, table: DiscreteTable) -> TableGains:
        return TableGains(table, self.options.score, self.options.equivalent_sample_size)

    def _rows(self, asked: Asked) -> Cache | SeenRows:
        """Return the rows that are counted; missing cells are completed by the network.

        Without a network yet: the rows that have all columns of a set.
        """
        if self.setup.handling.missing_values != "em":
            return self._cached(asked)
        rows = self.once("rows with missing cells", self._seen_table)
        if rows.seen.all():
            return self.once("rows and gains", lambda: self._cache_of(rows.table))
        if "probabilities" not in asked:
            return self.once("seen rows", lambda: SeenRows(rows, self._gains_of(rows.table)))
        dag, tables = self._network(asked)
        digest = sha256(asked["network"].astype(np.int64).tobytes())
        digest.update(asked["probabilities"].tobytes())
        seed = int.from_bytes(digest.digest()[:8], "little")

        def complete() -> Cache:
            codes = completed(rows.table.codes, rows.seen, dag, tables, seed)
            return self._cache_of(replace(rows.table, codes=codes))

        return self.once(f"completed rows and gains {seed}", complete)

    def _seen_table(self) -> SeenTable:
        """Return the rows, the variables in the order of their names, and which cells they have."""
        setup, held = self.setup, self.held_names
        states = dict(zip(setup.names, setup.states, strict=True))
        columns = prepare_columns(
            self.frame(), held, [states[name] for name in held], setup.handling
        )
        names = sorted(setup.names)
        found = np.full((len(names), self.count_rows()), -1, dtype=np.int64)
        for name, column in zip(held, columns, strict=True):
            found[names.index(name)] = column
        table = DiscreteTable(
            tuple(names), tuple(states[name] for name in names), np.maximum(found, 0)
        )
        return SeenTable(table, found >= 0)

    def _network(self, asked: Asked) -> tuple[BoolArray, list[FloatArray]]:
        """Return the DAG and the tables of the network that the server sent.

        Raises
        ------
        FederationError
            If the tables do not fit the DAG, or have a probability of 0.
        """
        dag, flat = matrix_of(asked["network"], len(self.setup.names)), asked["probabilities"]
        cards = self._cardinalities(asked)
        shapes = [tuple(cards[[*parents, y]].tolist()) for y, parents in families_of(dag)]
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        if ends[-1] != len(flat) or not (flat > 0).all():
            raise FederationError("The network that the server sent has tables that do not fit it.")
        parts = np.split(flat, ends[:-1])
        return dag, [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def _cuts(self, asked: Asked) -> dict[str, FloatArray]:
        """Return the cut points of the columns that are discretised; none before they are known."""
        if "cuts" not in asked:
            return {}
        parts = np.split(asked["cuts"], np.cumsum(asked["num-cuts"])[:-1])
        return dict(zip(self.setup.continuous, parts, strict=True))

    def _plan(self, asked: Asked) -> ProductPlan:
        """Return the plan of marks.

        Raises
        ------
        FederationError
            If it has joint states of more columns than the option ``max_parents`` allows.
        """
        parts, most = _parts(asked), self.options.max_parents or 0
        if parts.sets.sizes.max(initial=0) > most:
            raise FederationError(f"The plan has joint states of more than {most} columns.")
        columns = columns_of_marks(
            parts, self._variables, self._cardinalities(asked), self._cuts(asked)
        )
        return replace(super()._plan(asked), columns=columns)

    def _product_columns(self, asked: Asked) -> tuple[list[str], BoolArray]:
        """Return the variables of each mark, and whether the party holds them."""
        parts, held, names = _parts(asked), self._held, self._variables
        members = parts.sets.lists()
        sizes = [len(own) for own in parts.columns(self._cardinalities(asked))]
        labels = [" and ".join(names[k] for k in own) for own in members]
        held_parts = np.array([held[own].all() for own in members], dtype=np.bool_)
        return np.repeat(labels, sizes).tolist(), np.repeat(held_parts, sizes)

    def _product_values(self, asked: Asked) -> FloatArray:
        """Return the marks of the party's rows, in the order of the plan."""
        codes = self.once("codes of held columns", lambda: self._codes(asked))[:, asked["rows"]]
        return _parts(asked).marks(codes, self._cardinalities(asked), self._held)

    def _codes(self, asked: Asked) -> NDArray[np.uint8]:
        """Return the codes of the party's rows, (d, n); 0 in columns that it does not hold."""
        setup, held = self.setup, self._held
        codes = np.zeros((len(held), self.count_rows()), dtype=np.uint8)
        states = dict(zip(setup.names, setup.states, strict=True))
        names = [name for name, own in zip(self._variables, held, strict=True) if own]
        kept = [states[name] for name in names]
        cuts = self._cuts(asked)
        codes[held] = prepare_states(self.frame(), names, kept, setup.handling, cuts).codes
        return codes

    @property
    def _variables(self) -> list[str]:
        """The variables in the order of their names."""
        return sorted(self.setup.names)

    @property
    def _held(self) -> BoolArray:
        """Which variables the party holds, shape (d,)."""
        return np.array([name in self.held_names for name in self._variables])

    def _cardinalities(self, asked: Asked) -> IntArray:
        """Return the variables' numbers of states, shape (d,)."""
        setup, cuts = self.setup, self._cuts(asked)
        sizes = {name: len(own) for name, own in zip(setup.names, setup.states, strict=True)}
        sizes |= {name: 1 + len(own) for name, own in cuts.items()}
        return np.array([sizes[name] for name in self._variables], dtype=np.int64)


def _parts(asked: Asked) -> Parts:
    """Return the parts of sets of variables that are multiplied."""
    return Parts(Sets(asked["sizes"], asked["members"]), asked["pairs"])
