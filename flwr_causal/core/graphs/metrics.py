"""How far an estimated graph is from the true one.

Conventions, since papers disagree among themselves:

- The structural Hamming distance compares each unordered pair of variables once. A **reversed edge
  costs 1** (Zheng et al., 2018; Tsamardinos et al., 2006); ``reversed_counts=2`` gives the other
  convention. A pair joined by an undirected edge (or a two-cycle) in one graph and by a directed
  edge in the other costs 1. To compare up to Markov equivalence, compare CPDAGs.
- In the rates (TPR, FDR, precision, ...) an **undirected edge agrees with either direction**, as
  in Zheng et al. (2018): it is a true positive if any edge joins the pair in the other graph. It
  counts once. Only graphs of kind ``"cpdag"`` have undirected edges; elsewhere two opposite edges
  are two edges.
- Adjacency and arrowhead rates compare skeletons, and the directed edges of CPDAGs: two DAGs of one
  equivalence class are not told apart by them.
- The moral distance (SMHD) counts the pairs in which the two moral graphs differ.

Every function takes a `CausalGraph` or a ``(d, d)`` matrix (row causes column, non-zero is an
edge) and matches two named graphs by name.

References
----------
Zheng, Aragam, Ravikumar & Xing (2018). DAGs with NO TEARS. NeurIPS.
Tsamardinos, Brown & Aliferis (2006). The max-min hill-climbing Bayesian network structure
learning algorithm. Machine Learning 65.
Ramsey, Glymour, Sanchez-Romero & Glymour (2017). A million variables and more. International
Journal of Data Science and Analytics 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.equivalence_metrics import compare_classes, pair_distance
from flwr_causal.core.graphs.intervention_distance import sid
from flwr_causal.core.graphs.matching import aligned
from flwr_causal.core.graphs.ranking import auprc, auroc, varsortability
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.matching import GraphLike

__all__ = [
    "auprc",
    "auroc",
    "compare",
    "moral_hamming_distance",
    "sid",
    "structural_hamming_distance",
    "varsortability",
]


def structural_hamming_distance(
    truth: GraphLike, estimate: GraphLike, *, reversed_counts: Literal[1, 2] = 1
) -> int:
    """Count the pairs of variables whose edges differ (instantaneous edges).

    Defined for cyclic graphs too; an edge of a variable to itself counts where only one graph has
    it.

    Parameters
    ----------
    truth, estimate : CausalGraph or array_like, shape (d, d)
        The distance is symmetric in the two.
    reversed_counts : {1, 2}, default 1
        What an edge costs that points the other way.

    Raises
    ------
    DataError
        If the graphs have different variables.
    ConfigError
        If ``reversed_counts`` is neither 1 nor 2.
    """
    if reversed_counts not in (1, 2):
        raise ConfigError(f"reversed_counts is {reversed_counts}: expected 1 or 2")
    true, found = aligned(truth, estimate)
    return _distance(true.adjacency, found.adjacency, reversed_counts)


def _distance(true: NDArray[np.bool_], found: NDArray[np.bool_], reversed_counts: int) -> int:
    """Return the structural Hamming distance of two boolean matrices."""
    num_reversed = int((equivalence.directed_part(true) & equivalence.directed_part(found).T).sum())
    return pair_distance(true, found) + (reversed_counts - 1) * num_reversed


def moral_hamming_distance(truth: GraphLike, estimate: GraphLike) -> int:
    """Count the pairs in which the two moral graphs differ (SMHD).

    Equal for all members of an equivalence class and for their CPDAG.

    Raises
    ------
    DataError
        If the graphs have different variables.
    """
    true, found = aligned(truth, estimate)
    return int(np.triu(true.moral() != found.moral()).sum())


def compare(truth: GraphLike, estimate: GraphLike) -> dict[str, float | int | bool]:
    """Return the usual counts and rates of an estimate against the truth.

    Parameters
    ----------
    truth, estimate : CausalGraph or array_like, shape (d, d)
        The estimate may have cycles.

    Returns
    -------
    dict
        ``shd``: structural Hamming distance, a reversed edge costing 1;
        ``reversed``, ``missing``, ``extra``: pairs with the opposite edge, none, one too many;
        ``tpr``, ``recall``: share of the true edges that were found with their direction (1 if
        there are none); ``fdr``: share of the estimated edges that are wrong, a reversed one being
        wrong (0 if there are none); ``precision``: 1 - fdr; ``fpr``: wrong edges over the number
        of pairs without a true edge, as in Zheng et al. (2018), which may exceed 1 since
        reversed edges are counted; ``f1``; ``num_edges``, ``num_true``: edges of the estimate and
        of the truth; ``acyclic``: whether the estimate has no directed cycle.
        Up to Markov equivalence: ``smhd``: pairs in which the moral graphs differ;
        ``adjacency_precision``, ``adjacency_recall``: share of the estimate's joined pairs that
        the truth joins, and of the truth's that the estimate joins, whatever the direction (1 if
        there are none). Unless a graph has a directed cycle or lags, and so no CPDAG:
        ``cpdag_shd``: structural Hamming distance of the two CPDAGs; ``arrowhead_precision``,
        ``arrowhead_recall``: share of the directed edges of the estimate's CPDAG that the truth's
        directs the same way, and of the truth's that the estimate's does, as Ramsey et al. (2017)
        count (an edge that only one of them directs is an error, whether or not the other has
        it undirected; 1 if there are none).
        Where both graphs have lags also ``lagged_shd``, ``lagged_tpr``, ``lagged_fdr`` over the
        lagged edges, each lag apart.

    Raises
    ------
    DataError
        If the graphs have different variables.
    """
    true, found = aligned(truth, estimate)
    true_directed, true_undirected = _edge_kinds(true)
    found_directed, found_undirected = _edge_kinds(found)
    joined = equivalence.skeleton(true.adjacency), equivalence.skeleton(found.adjacency)
    # An undirected matrix is symmetric, so that each edge stands in its upper triangle once.
    right = int((found_directed & (true_directed | true_undirected)).sum())
    right += int(np.triu(found_undirected & joined[0]).sum())
    recovered = int((true_directed & (found_directed | found_undirected)).sum())
    recovered += int(np.triu(true_undirected & joined[1]).sum())

    num_true = int(true_directed.sum() + np.triu(true_undirected).sum())
    num_edges = int(found_directed.sum() + np.triu(found_undirected).sum())
    recall = _ratio(recovered, num_true, 1.0)
    precision = _ratio(right, num_edges, 1.0)
    pairs_without_edge = len(true.names) * (len(true.names) - 1) // 2 - num_true
    result: dict[str, float | int | bool] = {
        "shd": _distance(true.adjacency, found.adjacency, 1),
        "reversed": int(
            (
                equivalence.directed_part(true.adjacency)
                & equivalence.directed_part(found.adjacency).T
            ).sum()
        ),
        "missing": int(np.triu(joined[0] & ~joined[1]).sum()),
        "extra": int(np.triu(joined[1] & ~joined[0]).sum()),
        "tpr": recall,
        "fdr": 1.0 - precision,
        "fpr": (num_edges - right) / max(pairs_without_edge, 1),
        "precision": precision,
        "recall": recall,
        "f1": _ratio(2 * precision * recall, precision + recall, 0.0),
        "num_edges": num_edges,
        "num_true": num_true,
        "acyclic": found.is_acyclic(),
        **compare_classes(true, found),
    }
    if true.lagged is not None and found.lagged is not None:
        result |= _compare_lagged(true.lagged != 0, found.lagged != 0)
    return result


def _edge_kinds(graph: CausalGraph) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the directed and the undirected edges; only a CPDAG has undirected ones."""
    adjacency = graph.adjacency
    if graph.kind != "cpdag":
        return adjacency, np.zeros_like(adjacency)
    return equivalence.directed_part(adjacency), equivalence.undirected_part(adjacency)


def _compare_lagged(true: NDArray[np.bool_], found: NDArray[np.bool_]) -> dict[str, float | int]:
    """Compare lagged edges, ``(p, d, d)`` each; lags that one graph lacks have no edges in it."""
    num_lags = max(len(true), len(found))
    true, found = (
        np.pad(array, ((0, num_lags - len(array)), (0, 0), (0, 0))) for array in (true, found)
    )
    right = int((true & found).sum())
    return {
        "lagged_shd": int((true != found).sum()),
        "lagged_tpr": _ratio(right, int(true.sum()), 1.0),
        "lagged_fdr": 1.0 - _ratio(right, int(found.sum()), 1.0),
    }


def _ratio(part: float, whole: float, otherwise: float) -> float:
    """Return part / whole, or ``otherwise`` where the whole is nothing."""
    return part / whole if whole else otherwise
