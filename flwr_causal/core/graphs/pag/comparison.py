"""How a PAG differs from the true one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.pag.marks import ARROW, CIRCLE, NONE, directed_edges, forward

if TYPE_CHECKING:
    from flwr_causal.core.arrays import IntArray


def verdict(true: IntArray, found: IntArray, i: int, j: int) -> str:
    """Return how the edge between i and j compares with the true one.

    Returns
    -------
    str
        "right": both marks are the true ones; "open": no mark contradicts the true one, which or
        whose opposite is a circle; "reversed": a mark contradicts it; "extra", "missing": one of
        the graphs has no edge.
    """
    if found[i, j] == NONE or true[i, j] == NONE:
        return "missing" if found[i, j] == NONE else "extra"
    pairs = [(true[place], found[place]) for place in ((i, j), (j, i))]
    if all(one == two for one, two in pairs):
        return "right"
    return "open" if all(one == two or CIRCLE in (one, two) for one, two in pairs) else "reversed"


def compare_marks(true: IntArray, found: IntArray) -> dict[str, float | int | bool]:
    """Return counts and rates of a PAG against the true one, see `compare`.

    Parameters
    ----------
    true, found : ndarray of int, shape (d, d)
        Marks.
    """
    either = np.argwhere(np.triu((true != NONE) | (found != NONE)))
    verdicts = [verdict(true, found, i, j) for i, j in either]
    num_true, num_edges = int(forward(true).sum()), int(forward(found).sum())
    shared = num_edges - verdicts.count("extra")
    precision = shared / num_edges if num_edges else 1.0
    recall = shared / num_true if num_true else 1.0
    both = (true != NONE) & (found != NONE)
    causes = directed_edges(found)
    return {
        "adjacency_precision": precision,
        "adjacency_recall": recall,
        "adjacency_f1": 2 * shared / (num_edges + num_true) if num_edges + num_true else 1.0,
        "mark_agreement": float((true == found)[both].mean()) if both.any() else 1.0,
        "num_causes": int(causes.sum()),
        "wrong_causes": int((causes & ((true.T == ARROW) | (true == NONE))).sum()),
        "missing": verdicts.count("missing"),
        "extra": verdicts.count("extra"),
        "num_edges": num_edges,
        "num_true": num_true,
    }
