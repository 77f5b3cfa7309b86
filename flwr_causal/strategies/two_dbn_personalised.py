"""2Dbn with ``variant="personalised"``: PFDBNL, the second version of Chen, Ma & Yue's paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.nonlinear.heterogeneity import Heterogeneity, OwnGraph, edge_table
from flwr_causal.core.series.design import lagged_graph, lagged_names, split_blocks, stacked_weights
from flwr_causal.core.series.personalised import penalties
from flwr_causal.doubts.graphs import doubts_of
from flwr_causal.protocol.consensus import OWN_NETWORKS, PERSONALISED
from flwr_causal.runtime.algorithm import Ask, Note, Result
from flwr_causal.strategies.admm import OF_ADMM
from flwr_causal.strategies.variant import OfPaper

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.algorithm import Step

#: The settings of the method: it has no search, no refit and no knowledge.
OF_PERSONALISED = OfPaper(fixed={**OF_ADMM, "select_order": False, "local_graphs": True})
#: lambda in units of sqrt(log d / n_k), and mu in units of 1 / n_k, of the data's variance each.
#: docs/2dbn.md says what they were chosen by.
SPARSITY, PROXIMITY = 0.25, 40.0


class PersonalisedProblem(NamedTuple):
    """The settings of a run.

    Parameters
    ----------
    rounds : int
    sparsity : ndarray of shape (m,)
        lambda of the edges from each column of the design, in units of the data's variance.
    proximity : float
        mu, likewise.
    thresholds : ndarray of shape (m,)
        On the absolute weights of the edges from each column.
    """

    rounds: int
    sparsity: FloatArray
    proximity: float
    thresholds: FloatArray

    def graph(self, agreement: Agreement, weights: FloatArray) -> CausalGraph:
        """Return the graph of weights, (m, d), above the thresholds; acyclic within a step."""
        kept = np.where(np.abs(weights) > self.thresholds[:, None], weights, 0.0)
        names = agreement.names
        return lagged_graph(names, kept, threshold_now=0, threshold_lagged=0, raw=weights)


def personalised_networks(
    problem: PersonalisedProblem,
    agreement: Agreement,
    start: FloatArray | None,
    *,
    with_own: bool,
) -> Generator[Step, Any, Result]:
    """Fit every party's own network near the common one.

    Parameters
    ----------
    problem : PersonalisedProblem
    agreement : Agreement
    start : ndarray of shape (m, d) or None
        The first common weights; None for zeros.
    with_own : bool
        Whether the parties are asked for their networks; replicates are not.

    Yields
    ------
    Ask
        For the parties' weights in every round, then for their networks.

    Returns
    -------
    Result
        With the networks of all parties. The common graph is that of the mean of the parties'
        weights.
    """
    weights = np.zeros((len(problem.sparsity), len(agreement.names))) if start is None else start
    fixed = {"sparsity": problem.sparsity, "proximity": problem.proximity}

    def result(own: Heterogeneity | None = None) -> Result:
        graph = problem.graph(agreement, weights)
        now, lagged = split_blocks(np.abs(weights))
        return Result(
            graph,
            now + lagged.sum(axis=0),
            warnings=tuple(doubts_of(graph=graph, n=agreement.n)),
            heterogeneity=own,
            reason=f"the {problem.rounds} rounds are done",
        )

    rho = penalties(problem.rounds)
    for penalty in rho:
        sent = {"weights": weights, **fixed, "penalty": penalty}
        replies = yield Ask(PERSONALISED, sent, so_far=result)
        # For given V_k the best V is their mean.
        change = float(np.abs(replies["weights"] - weights).max())
        weights = replies["weights"]
        yield Note({"change": change, "acyclicity_penalty": penalty})
    if not with_own:
        return result()
    common = stacked_weights(problem.graph(agreement, weights))
    sent = {"weights": weights, **fixed, "penalty": rho[-1]}
    asked = {**sent, "graph": common, "thresholds": problem.thresholds}
    replies = yield Ask(OWN_NETWORKS, asked, so_far=result)
    return result(_own_networks(problem, agreement, common, replies.by_party))


def _own_networks(
    problem: PersonalisedProblem,
    agreement: Agreement,
    common: FloatArray,
    replies: Mapping[str, Arrays],
) -> Heterogeneity:
    """Return the parties' networks, and where they differ from the common one."""
    order = len(common) // len(agreement.names) - 1
    columns = lagged_names(agreement.names, order)
    graphs, own = {}, {}
    for party, arrays in replies.items():
        graphs[party] = problem.graph(agreement, arrays["own-weights"])
        edges = to_square(stacked_weights(graphs[party]) != 0)
        own[party] = OwnGraph(edges, to_square(arrays["support"]), to_square(arrays["own-shares"]))
    return Heterogeneity(graphs, edge_table(to_square(common != 0), own, columns))
