"""FedGES (Torrijos, Gamez & Puerta 2024): the party's side."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_causal.clients.base import CausalClient
from flwr_causal.core.discrete.contingency_tables import Sets, tabulate
from flwr_causal.core.discrete.cut_points import count_up_to
from flwr_causal.core.discrete.families import Families, empty_families
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.ges import speculative_search
from flwr_causal.core.ges.fusion import fuse
from flwr_causal.core.ges.ges import prepared_search
from flwr_causal.core.graphs.edge_lists import edges_of, matrix_of, parents_of
from flwr_causal.core.graphs.knowledge import Knowledge, precedence
from flwr_causal.data.check.party_table import describe, prepare, prepare_states
from flwr_causal.protocol.wire import Disclosure, Scalar

if TYPE_CHECKING:
    from flwr_causal.core.discrete.discrete import DiscreteTable
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport

Answer = tuple[list[NDArray[Any]], int, dict[str, Any]]

#: The arrays of contingency tables, in the order in which they leave.
TABLES = ("dense", "cells", "values", "lengths")


@dataclass
class Desk:
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
        """Memory, for the cache."""
        return self.source.nbytes + self.table.nbytes + self.families.gains.nbytes


class FedGESClient(CausalClient):
    """Searches, scores and counts on its own rows, as the server's mode asks.

    Variables are numbered in the order of their names, the same at every party.

    **What leaves the party** after the schema exchange (which names the states of its columns):

    - ``mode="fusion"``: in each round the edges of one DAG (``edges``), for ``start="driven"`` of
      two (``overwritten``, ``fused``); the total score of graphs that the server proposes, one
      number for each (``score`` for ``keep="best"``, ``scores`` for "driven").
    - ``mode="scores"``: for each family (y, S) and further parent x that the server asks about, how
      much x adds to the party's own score: one number (``gains``).
    - ``mode="exact"``: for each set of variables that the server asks about the contingency table
      of its rows, integers: all cells of small tables (``dense``), the filled ones of the others
      (``cells``, ``values``, ``lengths``). Cells of few rows are told as they are.
    - last exchange (``parameters=True``): the contingency tables of each variable with its parents
      in the final graph, and for each of its edges whether the party's own score agrees
      (``votes``).
    - ``discretize``: beforehand, for each numeric column and each threshold that the server asks
      about, how many rows lie at or below it (``counts``).
    """

    sums: ClassVar[bool] = False
    discloses: ClassVar[tuple[Disclosure, ...]] = (
        Disclosure("counts", "rows up to each threshold", ("*", "*"), phase="cuts"),
        Disclosure("edges", "the DAG found from one start", ("*", 2), phase="graph"),
        Disclosure("score", "score of the received graph", phase="graph"),
        Disclosure("overwritten", "the DAG from the fused graph", ("*", 2), phase="graphs"),
        Disclosure("fused", "the DAG from it and the own one", ("*", 2), phase="graphs"),
        Disclosure("scores", "score of each proposed graph", ("*",), phase="judge"),
        Disclosure("gains", "s(y | S + x) - s(y | S) of each question", ("*",), phase="scores"),
        *(
            Disclosure(name, meaning, ("*",), phase=phase)
            for phase in ("counts", "fit")
            for name, meaning in zip(
                TABLES,
                (
                    "cells of the small tables",
                    "numbers of the filled cells of the others",
                    "their counts",
                    "how many belong to each",
                ),
                strict=True,
            )
        ),
        Disclosure("votes", "whether the own score agrees with each edge", ("*",), phase="fit"),
    )

    def describe(self, policy: Policy) -> TableReport:
        """Report the columns with their states."""
        return describe(self.table(), policy=policy, sums=policy.discretize > 0, states=True)

    def fit(self, parameters: list[NDArray[Any]], config: dict[str, Scalar]) -> Answer:
        """Answer the message of a phase."""
        phases = {
            "cuts": self._cuts,
            "graph": self._graph,
            "graphs": self._graphs,
            "judge": self._judge,
            "scores": self._gains,
            "counts": self._counts,
            "fit": self._fit,
        }
        return phases[str(config["phase"])](parameters, config)

    def _desk(self, config: dict[str, Any]) -> Desk:
        """Return the party's rows and what was computed from them."""
        return self.once("desk", lambda: self._new_desk(config))

    def _new_desk(self, config: dict[str, Any]) -> Desk:
        setup = self.setup
        ends = np.cumsum(config.get("num-cuts", []), dtype=np.int64)
        points = np.array(config.get("cuts", []), dtype=np.float64)
        cuts = (
            dict(zip(setup.continuous, np.split(points, ends[:-1]), strict=True))
            if len(ends)
            else {}
        )
        table = prepare_states(self.table(), setup.names, setup.states, setup.policy, cuts)
        table = table.reordered(sorted(range(len(setup.names)), key=setup.names.__getitem__))
        source = TableGains(
            table, str(setup.options["score"]), float(setup.options["equivalent-sample-size"])
        )
        return Desk(table, source, empty_families(len(table.names)))

    @property
    def _knowledge(self) -> Knowledge | None:
        text = str(self.setup.options["knowledge"])
        return Knowledge.from_dict(json.loads(text)) if text else None

    def _cuts(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> Answer:
        rows = prepare(self.table(), self.setup.continuous, self.setup.policy)
        return [count_up_to(rows, parameters[0])], len(rows), {}

    def _graph(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> Answer:
        received, own = parameters
        desk = self._desk(config)
        numbers = {}
        if config["judge"]:
            numbers["score"] = self._score(desk, received)
        start = self._fused(desk, received, own) if config["start"] == "fuse" else received
        return [self._search(desk, start)], desk.table.num_rows, numbers

    def _graphs(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> Answer:
        received, own = parameters
        desk = self._desk(config)
        found = [self._search(desk, received)]
        # In the first round there is one start only: no edges.
        both = len(received) or len(own)
        found.append(self._search(desk, self._fused(desk, received, own)) if both else found[0])
        return found, desk.table.num_rows, {}

    def _fused(self, desk: Desk, received: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
        before = precedence(self._knowledge, desk.table.names)
        return fuse([received, own], len(desk.table.names), before=before).keep("union")

    def _search(self, desk: Desk, start: NDArray[Any]) -> NDArray[Any]:
        """Run GES with few insertions from a DAG; return the edges of the DAG that it finds."""
        options = self.setup.options
        names, knowledge = desk.table.names, self._knowledge
        marks = matrix_of(start, len(names))
        if knowledge:
            masks = knowledge.masks(names)
            marks = marks & masks.allowed | masks.required
        search = prepared_search(
            desk.source,
            names,
            start=marks,
            knowledge=knowledge,
            max_parents=int(options["max-parents"]) or None,
        )
        search.families = desk.families
        search.run(int(options["max-edges"]), turn=bool(options["turn"]))
        desk.families = search.families
        return edges_of(search.dag)

    def _score(self, desk: Desk, edges: NDArray[Any]) -> float:
        """Return the party's own score of a DAG."""
        total = 0.0
        for y, parents in enumerate(parents_of(edges, len(desk.table.names))):
            key = (y, *parents)
            if key not in desk.scores:
                desk.scores[key] = desk.source.family_score(y, parents)
            total += desk.scores[key]
        return total

    def _judge(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> Answer:
        edges, lengths = parameters
        desk = self._desk(config)
        graphs = np.split(edges, np.cumsum(lengths)[:-1])
        scores = [self._score(desk, graph) for graph in graphs]
        return [np.array(scores)], desk.table.num_rows, {}

    def _gains(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> Answer:
        desk = self._desk(config)
        questions = speculative_search.Questions(*parameters)
        gains = speculative_search.answer(questions, desk.source, len(desk.table.names))
        return [gains], desk.table.num_rows, {}

    def _counts(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> Answer:
        desk = self._desk(config)
        return list(tabulate(desk.table, Sets(*parameters))), desk.table.num_rows, {}

    def _fit(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> Answer:
        sizes, members, edges = parameters
        desk = self._desk(config)
        tables = tabulate(desk.table, Sets(sizes, members))
        d = len(desk.table.names)
        dag = matrix_of(edges, d)
        gains = speculative_search.answer(speculative_search.questions_about(dag), desk.source, d)
        return [*tables, (gains > 0).astype(np.uint8)], desk.table.num_rows, {}
