"""What FedGES returns: the graph that was found, its Bayesian network, and warnings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.discrete.probabilities import posterior_mean
from flwr_causal.core.graphs.edge_lists import edges_of, families_of
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.pag.rules import Ancestry
from flwr_causal.core.words import by_name
from flwr_causal.runtime.algorithm import Result
from flwr_causal.strategies.fedges.problem import MOST_CELLS, CountedTables, Problem
from flwr_causal.strategies.fedges.searches import separation_tests

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.ges.fusion import Fusion
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.fedges.options import FedGESOptions
    from flwr_causal.strategies.fedges.problem import Fitted, Found

NO_NETWORK = (
    "There is no Bayesian network: a table of probabilities would have more than "
    f"{MOST_CELLS} entries, or the exchanges were used up. Limit the parents with max_parents, "
    "or allow more max_rounds."
)


@dataclass(frozen=True, eq=False, kw_only=True)
class RunProblem(Problem):
    """The problem of a run, with what its result needs.

    Parameters
    ----------
    agreement : Agreement
        Of columns with states.
    options : FedGESOptions
    """

    agreement: Agreement
    options: FedGESOptions

    @classmethod
    def of(
        cls,
        agreement: Agreement,
        options: FedGESOptions,
        fuse: Callable[..., Fusion],
        cuts: Mapping[str, FloatArray] | None = None,
    ) -> RunProblem:
        """Return the problem of all rows of the parties, whose graphs ``fuse`` fuses."""
        names, knowledge = tuple(sorted(agreement.names)), options.known
        sizes = [len(agreement.states[k]) for k in by_name(agreement.names)]
        edge_limits = knowledge.masks(names) if knowledge else None
        if knowledge and edge_limits and options.hidden_causes:
            # A forbidden edge may stand for an effect through others.
            edge_limits = Ancestry.of(knowledge, names).edges()
        return cls(
            names=names,
            counts=CountedTables(
                np.array(sizes, dtype=np.int64), secure=options.secure_aggregation
            ),
            fuse=partial(fuse, names=names),
            num_rows=agreement.n,
            num_parties=agreement.num_parties,
            knowledge=knowledge,
            edge_limits=edge_limits,
            max_parents=options.max_parents,
            turns_edges=options.turn,
            sample_size=options.equivalent_sample_size,
            cuts=cuts or {},
            withheld=options.small_counts == "suppress",
            agreement=agreement,
            options=options,
        )

    def result(self, found: Found, fitted: Fitted | None = None, *, over: bool = False) -> Result:
        """Return the class with the parties' agreement, its network, and what to know of it."""
        agreement, options = self.agreement, self.options
        warnings = small_cell_warning(self.counts.small, agreement, options)
        if options.chosen_mode != "fusion" or options.asks_for_tables:
            warnings += two_party_warning(agreement)
        used_up = f"all of the {options.max_rounds} exchanges were used"
        reason = (found.reason or used_up) if over else ""
        if options.hidden_causes:
            pag = found.pag or separation_tests(self, found, drawn=False).graph()
            graph = pag.reordered(agreement.names)
            return Result(graph, warnings=tuple(warnings), reason=reason)
        model = None
        if fitted is not None:
            model = network_of(agreement, fitted, options.equivalent_sample_size, self.cuts)
        if over and options.asks_for_tables and model is None:
            warnings += [NO_NETWORK]
        # Where each agreed column is among the sorted ones, by which arrays are made so far.
        place_of = np.argsort(by_name(agreement.names))
        agreed = np.ix_(place_of, place_of)
        marks = found.marks[agreed]
        scores = None if found.support is None else found.support[agreed]
        support = scores
        if support is None and fitted is not None and fitted.support is not None:
            support = fitted.support[agreed]
        shares = None
        if support is not None:
            # Parties agree on an edge, not on a direction that the class leaves open.
            shares = np.where(marks, np.maximum(support, support.T), 0.0)
        return Result(
            CausalGraph(
                agreement.names, marks.astype(np.float64), kind="cpdag", party_agreement=shares
            ),
            # The share of the parties' fused graphs that have each edge.
            scores=scores,
            model=model,
            warnings=tuple(warnings),
            reason=reason,
        )


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
