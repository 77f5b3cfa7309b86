"""What FedGES returns: the graph that was found, its Bayesian network, and warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.discrete.probabilities import posterior_mean
from flwr_causal.core.graphs.edge_lists import edges_of, families_of
from flwr_causal.core.words import by_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.fedges.options import FedGESOptions

#: Largest number of entries of a variable's table of probabilities.
MOST_CELLS = 10**6
NO_NETWORK = (
    "There is no Bayesian network: a table of probabilities would have more than "
    f"{MOST_CELLS} entries, or the exchanges were used up. Limit the parents with max_parents, "
    "or allow more max_rounds."
)


class Found(NamedTuple):
    """The result of a search.

    Attributes
    ----------
    marks : ndarray of bool, shape (d, d)
        The class.
    dag : ndarray of bool, shape (d, d)
        A member of it.
    reason : str
        Why the search is over, in words.
    support : ndarray of float64, shape (d, d), or None
        The share of the parties whose graph has each edge, once it is transformed to the order of
        the fusion; None without a fusion.
    score : str
        The score of the search, where the server computes it from sums.
    """

    marks: BoolArray
    dag: BoolArray
    reason: str
    support: FloatArray | None = None
    score: str = ""


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
    column_of = by_name(agreement.names)
    place_of = np.argsort(column_of)
    tables: dict[int, IntArray] = {}
    parents: dict[int, tuple[int, ...]] = {}
    for y, own in families_of(fitted.found.dag):
        # A table's axes are in the order of the names; a network's are in the order of the columns,
        # with the child last.
        axes = sorted((*own, y))
        wanted = [*sorted(own, key=column_of.__getitem__), y]
        tables[column_of[y]] = fitted.tables[tuple(axes)].transpose([axes.index(k) for k in wanted])
        parents[column_of[y]] = tuple(column_of[k] for k in wanted[:-1])
    return BayesianNetwork.from_counts(
        agreement.names,
        agreement.labels,
        [parents[k] for k in range(len(column_of))],
        [tables[k] for k in range(len(column_of))],
        equivalent_sample_size=sample_size,
        marks=fitted.found.marks[np.ix_(place_of, place_of)],
        cuts=cuts,
    )


def network_values(fitted: Fitted, sample_size: float) -> dict[str, Any]:
    """Return the network of a graph, by which parties complete rows, as it is sent.

    Parameters
    ----------
    fitted : Fitted
    sample_size : float
        Weight of the prior in rows, above 0: no probability is 0.
    """
    dag, tables = fitted.found.dag, []
    for y, parents in families_of(dag):
        members = sorted((*parents, y))
        counts = np.moveaxis(fitted.tables[tuple(members)], members.index(y), -1)
        tables.append(posterior_mean(str(y), counts, sample_size).ravel())
    return {"network": edges_of(dag), "probabilities": np.concatenate(tables)}


def small_cell_warning(
    small: Mapping[str, int],
    agreement: Agreement,
    options: FedGESOptions,
) -> list[str]:
    """Warn of counts of few rows: that parties sent them, or withheld them.

    Parameters
    ----------
    small : mapping of str to int
        By party, the cells of few rows that it has sent or withheld.
    agreement : Agreement
    options : FedGESOptions
    """
    small = {name: count for name, count in small.items() if count}
    if not small:
        return []
    worst, minimum = max(small, key=small.__getitem__), options.minimum_count
    if options.small_counts == "suppress":
        return [
            f"{len(small)} of {len(agreement.rows)} parties withheld counts of fewer than "
            f"{minimum} rows ({worst}: {small[worst]} cells). Their tables count fewer rows than "
            "they have, and weak edges may be missing: join rare states."
        ]
    return [
        f"{len(small)} of {len(agreement.rows)} parties sent counts of fewer than {minimum} "
        f"rows ({worst}: {small[worst]} cells). Counts of few rows disclose values of single rows: "
        "join rare states, or withhold such counts (small_counts='suppress')"
        f"{_no_counts(options)}."
    ]


def _no_counts(options: FedGESOptions) -> str:
    """Return the options with which no counts are sent, as another remedy."""
    if options.continues:
        return ", or send no counts (mode='scores' without 'start', and with 'parameters' off)"
    if options.chosen_mode == "fusion":
        return ", or send no counts (parameters=False)"
    return ", or send no counts (mode='scores' and parameters=False)"


def two_party_warning(agreement: Agreement) -> list[str]:
    """Warn that each of two parties can compute the other's share of a sum."""
    if len(agreement.rows) != 2:
        return []
    return [
        "The federation has two parties: each of them can subtract its own share from a sum and "
        "learns the other's share."
    ]
