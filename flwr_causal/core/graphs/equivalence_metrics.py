"""How far an estimate is from the truth up to Markov equivalence: what data alone can decide.

References
----------
Ramsey, Glymour, Sanchez-Romero & Glymour (2017). A million variables and more. International
Journal of Data Science and Analytics 3. (Adjacency and arrowhead precision and recall.)
Torrijos, Gamez & Puerta (2024). FedGES: a federated learning approach for Bayesian network
structure learning. Discovery Science. (The distance of moral graphs.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs import equivalence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.graphs.graph import CausalGraph

    BoolMatrix = NDArray[np.bool_]


def compare_classes(true: CausalGraph, found: CausalGraph) -> dict[str, float | int]:
    """Compare two graphs over the same variables in the same order, up to equivalence.

    Returns
    -------
    dict
        ``smhd``, ``adjacency_precision``, ``adjacency_recall``; where both graphs have a CPDAG also
        ``cpdag_shd``, ``arrowhead_precision``, ``arrowhead_recall``: as `metrics.compare` has them.
    """
    joined = np.triu(equivalence.skeleton(true.adjacency), 1)
    found_joined = np.triu(equivalence.skeleton(found.adjacency), 1)
    precision, recall = _rates(joined, found_joined)
    result: dict[str, float | int] = {
        "smhd": int(np.triu(true.moral() != found.moral()).sum()),
        "adjacency_precision": precision,
        "adjacency_recall": recall,
    }
    true_class, found_class = _class_of(true), _class_of(found)
    if true_class is not None and found_class is not None:
        result["cpdag_shd"] = pair_distance(true_class, found_class)
        result["arrowhead_precision"], result["arrowhead_recall"] = _rates(
            equivalence.directed_part(true_class), equivalence.directed_part(found_class)
        )
    return result


def pair_distance(true: BoolMatrix, found: BoolMatrix) -> int:
    """Count the pairs of variables (and the variables) whose edges differ in any way."""
    differs = true != found
    return int(np.triu(differs | differs.T).sum())


def _class_of(graph: CausalGraph) -> BoolMatrix | None:
    """Return the marks of a graph's CPDAG, None where it has none."""
    if graph.kind == "summary" or graph.lagged is not None or not graph.is_acyclic():
        return None
    return graph.to_cpdag().adjacency


def _rates(true: BoolMatrix, found: BoolMatrix) -> tuple[float, float]:
    """Return precision and recall; 1 where there is nothing to be right about."""
    right = int((true & found).sum())
    num_found, num_true = int(found.sum()), int(true.sum())
    return right / num_found if num_found else 1.0, right / num_true if num_true else 1.0
