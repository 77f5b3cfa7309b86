"""FedGES's last exchange: tables of the graphs, the choice among them, votes on their edges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.discrete.contingency_tables import num_cells, sets_of, tables_of
from flwr_causal.core.discrete.probabilities import held_out_log_likelihood
from flwr_causal.core.graphs.edge_lists import edges_of, families_of
from flwr_causal.core.ties import first_largest
from flwr_causal.protocol.fedges import FIT, POOLED_FIT
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.strategies.fedges.problem import by_name
from flwr_causal.strategies.fedges.searches import all_cells, family_sets, summed_counts

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.discrete.contingency_tables import Sets
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.fedges.problem import Found, Problem, Standing

#: Largest number of entries of a variable's table of probabilities.
MOST_CELLS = 10**6


@dataclass(frozen=True, eq=False)
class Fitted:
    """The results of the last exchange.

    Parameters
    ----------
    found : Found
        The graph with the highest held-out log-likelihood.
    tables : mapping of tuple of int to ndarray of int64
        By ascending members, the contingency tables over all rows of each variable with its
        parents.
    support : ndarray of float64, shape (d, d), or None
        The share of the parties whose own score agrees with each edge of the DAG; None where no
        party holds all columns.
    held_out : tuple of float
        The held-out log-likelihood of each graph, in nats a row.
    """

    found: Found
    tables: Mapping[tuple[int, ...], IntArray]
    support: FloatArray | None
    held_out: tuple[float, ...] = ()


def fit(
    problem: Problem, graphs: Sequence[Found], standing: Standing
) -> Generator[Step, Any, Fitted | None]:
    """Ask for the tables of the graphs' families, and choose the graph that predicts best.

    Parameters
    ----------
    problem : Problem
    graphs : sequence of Found
        By different scores.
    standing : callable
        Returns what stands if the run ends with a graph so far.

    Returns
    -------
    Fitted or None
        None, without an exchange, if every graph has tables that are too large.
    """
    fitting: list[Found] = []
    families: dict[tuple[int, ...], None] = {}
    for found in graphs:
        own = family_sets(found.dag)
        if num_cells(sets_of(own), problem.cardinalities).max() <= MOST_CELLS:
            fitting.append(found)
            families |= dict.fromkeys(own)
    if not fitting:
        return None
    sets = sets_of(list(families))
    edges = [edges_of(found.dag) for found in fitting]
    lengths = np.array([len(own) for own in edges], dtype=np.int64)
    values = {**sets._asdict(), "edges": np.concatenate(edges), "lengths": lengths}
    exchange = FIT
    if problem.pooled:
        values, exchange = values | all_cells(sets, problem.cardinalities), POOLED_FIT
    replies = yield Ask(exchange, values, so_far=partial(standing, graphs[0]))
    fitted = chosen(problem, fitting, sets, replies)
    info: dict[str, Any] = {"num_edges": int(fitted.found.dag.sum())}
    if fitted.found.score:
        info["score"] = fitted.found.score
        values_of = zip(fitting, fitted.held_out, strict=True)
        info["held_out"] = {found.score: value for found, value in values_of}
    yield Note(info)
    return fitted


def chosen(problem: Problem, graphs: Sequence[Found], sets: Sets, replies: Replies) -> Fitted:
    """Sum the parties' tables, choose a graph, and count who agrees with its edges.

    Parameters
    ----------
    problem : Problem
    graphs : sequence of Found
    sets : Sets
        Each variable with its parents, of all graphs.
    replies : Replies
        Tables of the sets, and votes on the graphs' edges.
    """
    counts = summed_counts(replies, sets, problem.cardinalities)
    tables = tables_of(sets, counts, problem.cardinalities)
    by_set = dict(zip(map(tuple, sets.lists()), tables, strict=True))
    sample_size = problem.equivalent_sample_size
    held_out = [_held_out(found.dag, by_set, sample_size) for found in graphs]
    best = int(first_largest(held_out))
    found = graphs[best]
    first = sum(int(other.dag.sum()) for other in graphs[:best])
    support = np.zeros(found.dag.shape)
    # The votes are ordered by child, then by parent.
    children, parents = np.nonzero(found.dag.T)
    votes = replies["votes"][first : first + len(children)]
    support[parents, children] = votes / len(replies.answered)
    return Fitted(found, by_set, support, tuple(held_out))


def _held_out(
    dag: BoolArray, tables: Mapping[tuple[int, ...], IntArray], sample_size: float
) -> float:
    """Return the mean log-likelihood of a row under the tables of all other rows."""
    total = 0.0
    for y, parents in families_of(dag):
        members = sorted((*parents, y))
        table = tables[tuple(members)]
        total += held_out_log_likelihood(np.moveaxis(table, members.index(y), -1), sample_size)
    return total / int(table.sum())


def network_of(
    agreement: Agreement, fitted: Fitted, sample_size: float, cuts: Mapping[str, FloatArray]
) -> BayesianNetwork:
    """Return the Bayesian network of the summed tables, its variables in the agreed order.

    Parameters
    ----------
    agreement : Agreement
    fitted : Fitted
        Variables in the order of their names.
    sample_size : float
        Weight of the prior in rows.
    cuts : mapping of str to ndarray
        Cut points of the columns that were discretised.
    """
    order = by_name(agreement.names)
    back = np.argsort(order)
    tables: dict[int, IntArray] = {}
    parents: dict[int, tuple[int, ...]] = {}
    for y, own in families_of(fitted.found.dag):
        # A table's axes are in the order of the names; a network's are in the order of the columns,
        # with the child last.
        axes = sorted((*own, y))
        wanted = [*sorted(own, key=order.__getitem__), y]
        tables[order[y]] = fitted.tables[tuple(axes)].transpose([axes.index(k) for k in wanted])
        parents[order[y]] = tuple(order[k] for k in wanted[:-1])
    return BayesianNetwork.from_counts(
        agreement.names,
        agreement.labels,
        [parents[k] for k in range(len(order))],
        [tables[k] for k in range(len(order))],
        equivalent_sample_size=sample_size,
        marks=fitted.found.marks[np.ix_(back, back)],
        cuts=cuts,
    )
