"""PERI: greedy equivalence search by the largest regret of a party.

A party's regret of a graph is by how much worse the graph is, by the Gaussian BIC of its rows, than
the graph that the party finds on its own. The server searches as GES does, from class to class, for
the graph whose largest regret is the smallest. RFcd (Mian, Kaltenpoth & Kamp 2022), its
predecessor, has these regrets and a beam search.

References
----------
Mian, O., Kaltenpoth, D., Kamp, M. & Vreeken, J. (2023). Nothing but regrets - privacy-preserving
federated causal discovery. AISTATS.
Chickering, D. M. (2002). Optimal structure identification with greedy search. JMLR 3.
"""

from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from flwr_causal import CausalGraph
from flwr_causal.app.methods import Method
from flwr_causal.clients import CausalClient, answers
from flwr_causal.core.graphs.equivalence import consistent_extension, cpdag, skeleton
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.protocol import Contract, Disclosure, Exchange, Sent
from flwr_causal.solvers import ges
from flwr_causal.strategies import Ask, CausalOptions, CausalStrategy, Note, Result

REGRETS = Exchange(
    "regrets",
    "how far graphs are from the party's own one",
    sends=(Sent("graphs", "several G, 1 where row causes column", ("q", "d", "d"), values="mark"),),
    returns=(Disclosure("regrets", "L(X_k; G) - L(X_k; G_k) in nats, L the Gaussian BIC", ("q",)),),
    same_parties=True,
)
CONTRACT = Contract("peri", (REGRETS,))


class PERIClient(CausalClient):
    """Scores graphs on the party's rows."""

    contract = CONTRACT

    def own(self) -> Any:
        """Return the party's moments, and the score of the graph that it finds by GES."""
        moments = SampleMoments.from_rows(self.rows(), self.setup.names)
        return moments, gaussian_bic(moments, ges(moments, "gaussian-bic").to_dag().adjacency)

    @answers(REGRETS)
    def regrets(self, asked: Any) -> Any:
        moments, best = self.once("own", self.own)
        return {"regrets": np.array([gaussian_bic(moments, dag) for dag in asked["graphs"]]) - best}


def is_clique(marks: Any, nodes: Any) -> bool:
    """Return whether all nodes are adjacent to each other."""
    return all(marks[i, j] or marks[j, i] for i, j in combinations(nodes, 2))


def is_open(marks: Any, start: int, end: int, without: Any) -> bool:
    """Return whether a semi-directed path leads from start to end without some nodes."""
    reached, new = {start, *without}, [start]
    while new:
        reached.update(new := [v for v in np.flatnonzero(marks[new].any(0)) if v not in reached])
    return end in reached


def subsets(nodes: Any) -> Any:
    """Return all subsets of the nodes."""
    return [set(s) for size in range(len(nodes) + 1) for s in combinations(nodes, size)]


def inserted(marks: Any) -> Any:
    """Yield the classes of all valid Inserts (Chickering 2002, Theorem 15), as DAGs."""
    joined, undirected = skeleton(marks), marks & marks.T
    for y, x in np.argwhere(~joined & ~np.eye(len(marks), dtype=bool)).tolist():
        common = set(np.flatnonzero(undirected[y] & joined[x]).tolist())
        for others in subsets(np.flatnonzero(undirected[y] & ~joined[x]).tolist()):
            if is_clique(marks, common | others) and not is_open(marks, y, x, common | others):
                changed = marks.copy()
                changed[x, y] = True
                changed[y, list(others)] = False
                yield consistent_extension(changed)


def deleted(marks: Any) -> Any:
    """Yield the classes of all valid Deletes (Chickering 2002, Theorem 17), as DAGs."""
    joined, undirected = skeleton(marks), marks & marks.T
    for x, y in np.argwhere(marks).tolist():
        common = set(np.flatnonzero(undirected[y] & joined[x]).tolist())
        for apart in subsets(sorted(common)):
            if is_clique(marks, common - apart):
                changed = marks.copy()
                changed[x, y] = changed[y, x] = False
                for h in apart:
                    changed[h, y] = False
                    changed[h, x] &= not undirected[x, h]
                yield consistent_extension(changed)


@dataclass(frozen=True, kw_only=True)
class PERIOptions(CausalOptions):
    """An exchange for each edge that is inserted or deleted, and three more."""

    max_rounds: int = 1000


class PERI(CausalStrategy):
    """GES whose score is the largest regret of a party."""

    contract = CONTRACT
    options_type = PERIOptions
    options: PERIOptions

    def train(self, agreement: Any, replicate: int = 0) -> Any:
        names = agreement.names

        def result(dag: Any, reason: str = "") -> Result:
            return Result(CausalGraph(names, cpdag(dag) * 1.0, kind="cpdag"), reason=reason)

        best = np.zeros((len(names), len(names)), dtype=bool)
        replies = yield Ask(REGRETS, {"graphs": best[None]})
        least = max(replies.list("regrets"))[0]
        for neighbours in (inserted, deleted):
            while candidates := list(neighbours(cpdag(best))):
                graphs = {"graphs": np.array(candidates)}
                replies = yield Ask(REGRETS, graphs, so_far=partial(result, best))
                largest = np.max(replies.list("regrets"), axis=0)
                yield Note({"graphs": len(candidates), "regret": float(largest.min())})
                if largest.min() >= least - 1e-7:
                    break
                best, least = candidates[largest.argmin()], largest.min()
        return result(best, f"no neighbour has a smaller regret than {least:.3f}")


METHOD = Method(strategy=PERI, client=PERIClient)
