"""The last exchange of FedGES: tables of probabilities, and which parties agree with each edge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.discrete.contingency_tables import Counts, Sets, num_cells, sets_of, tables_of
from flwr_causal.core.graphs.edge_lists import families_of
from flwr_causal.protocol.fedges import FIT
from flwr_causal.runtime.method import Request
from flwr_causal.strategies.fedges.stage import Step, by_name, cardinalities_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.strategies.fedges.stage import Found

#: A variable's table of probabilities with more entries than this is not worth having.
MOST_CELLS = 10**6


@dataclass(frozen=True, eq=False)
class Fitted:
    """What the last exchange returned.

    Parameters
    ----------
    counts : Counts
        The contingency table of each variable with its parents, over all rows.
    support : ndarray of float64, shape (d, d)
        The share of the parties whose own score agrees with each edge of the DAG.
    small : mapping of str to int
        Cells of few rows that each party has sent.
    """

    counts: Counts
    support: FloatArray
    small: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FitStage:
    """The exchange for a graph.

    Parameters
    ----------
    dag : ndarray of bool, shape (d, d)
    sets : Sets
        Each variable with its parents.
    """

    dag: BoolArray
    sets: Sets

    @classmethod
    def of(cls, agreement: Agreement, found: Found) -> FitStage | None:
        """Return the exchange for a graph; None if one of its tables would be too large."""
        sets = sets_of([[*parents, y] for y, parents in families_of(found.dag)])
        too_large = num_cells(sets, cardinalities_of(agreement)).max() > MOST_CELLS
        return None if too_large else cls(found.dag, sets)

    def request(self) -> Request:
        """Ask for the tables of the families, and for votes on the edges."""
        edges = np.argwhere(self.dag).astype(np.uint16)
        return Request(FIT, {**self.sets._asdict(), "edges": edges})

    def close(self, replies: Replies) -> Step:
        """Nothing follows: see :meth:`fitted`."""
        return Step(None, {"num_edges": int(self.dag.sum())})

    def fitted(self, replies: Replies) -> Fitted:
        """Return the sums of the parties' tables, and the share of them that agrees."""
        support = np.zeros(self.dag.shape)
        # A party votes child by child.
        children, parents = np.nonzero(self.dag.T)
        support[parents, children] = replies["votes"] / len(replies.parties)
        return Fitted(summed_counts(replies), support, small_cells(replies))


def summed_counts(replies: Replies) -> Counts:
    """Return the contingency tables of all parties together."""
    sparse = ("cells", "values", "lengths")
    parties = [[arrays[name] for name in sparse] for arrays in replies.by_party.values()]
    return Counts.summed(replies["dense"], parties)


def small_cells(replies: Replies) -> dict[str, int]:
    """Return how many cells of few rows each party has sent."""
    return {party: int(count) for party, count in replies.of("small").items()}


def network_of(
    agreement: Agreement, dag: BoolArray, counts: Counts, sample_size: float
) -> BayesianNetwork:
    """Return the Bayesian network of the summed tables, its variables in the agreed order.

    Parameters
    ----------
    agreement : Agreement
    dag : ndarray of bool, shape (d, d)
        Variables in the order of their names.
    counts : Counts
        Of each variable with its parents.
    sample_size : float
        Weight of the prior in rows.
    """
    order = by_name(agreement.names)
    families = list(families_of(dag))
    sets = sets_of([[*own, y] for y, own in families])
    tables: dict[int, IntArray] = {}
    parents: dict[int, tuple[int, ...]] = {}
    by_family = tables_of(sets, counts, cardinalities_of(agreement))
    for (y, own), table in zip(families, by_family, strict=True):
        # The table's axes go by name; a network's go by column, and the child comes last.
        axes = sorted((*own, y))
        wanted = [*sorted(own, key=order.__getitem__), y]
        tables[order[y]] = table.transpose([axes.index(k) for k in wanted])
        parents[order[y]] = tuple(order[k] for k in wanted[:-1])
    return BayesianNetwork.from_counts(
        agreement.names,
        agreement.states,
        [parents[k] for k in range(len(order))],
        [tables[k] for k in range(len(order))],
        equivalent_sample_size=sample_size,
    )
