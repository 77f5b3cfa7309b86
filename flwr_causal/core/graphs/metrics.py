"""Distances and error rates of an estimated graph against the true one.

Papers use different conventions; these are used here:

- The structural Hamming distance compares each unordered pair of variables once. A **reversed edge
  costs 1** (Zheng et al., 2018; Tsamardinos et al., 2006); ``reversed_counts=2`` gives the other
  convention. A pair joined by an undirected edge (or a two-cycle) in one graph and by a directed
  edge in the other costs 1. To compare up to Markov equivalence, compare CPDAGs.
- In the rates (TPR, FDR, precision, ...) an **undirected edge agrees with either direction**, as
  in Zheng et al. (2018): it is a true positive if any edge joins the pair in the other graph. An
  undirected edge counts as one edge. Only graphs of kind ``"cpdag"`` have undirected edges; in
  other graphs two opposite edges are two edges.
- Adjacency rates compare skeletons, arrowhead rates the directed edges of CPDAGs. Neither
  distinguishes two DAGs of one equivalence class.
- The moral distance (SMHD) counts the pairs in which the two moral graphs differ.
- Rankings (AUROC, AUPRC) are over ordered pairs of **different** variables: the diagonals of scores
  and truth are ignored, also where a variable depends on its own past. The truth may have cycles,
  as the gold standards of regulatory networks do.

Every function takes a `CausalGraph` or a ``(d, d)`` matrix (row causes column, non-zero is an
edge) and matches two named graphs by name.

References
----------
Zheng, Aragam, Ravikumar & Xing (2018). DAGs with NO TEARS. NeurIPS.
Tsamardinos, Brown & Aliferis (2006). The max-min hill-climbing Bayesian network structure
learning algorithm. Machine Learning 65.
Ramsey, Glymour, Sanchez-Romero & Glymour (2017). A million variables and more. International
Journal of Data Science and Analytics 3.
Chen, Ma & Yue (2024). Temporal causal discovery in dynamic Bayesian networks using federated
learning.
Davis & Goadrich (2006). The relationship between precision-recall and ROC curves. ICML.
Reisach, Seiler & Weichwald (2021). Beware of the simulated DAG! NeurIPS.
Reisach, Tami, Seiler, Chambaz & Weichwald (2023). A scale-invariant sorting criterion to find a
causal order in additive noise models. NeurIPS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.pag.marks import (
    ARROW,
    CIRCLE,
    NONE,
    directed_edges,
    forward,
    marks_of_class,
)
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

    GraphLike: TypeAlias = CausalGraph | ArrayLike


def aligned(truth: GraphLike, estimate: GraphLike) -> tuple[CausalGraph, CausalGraph]:
    """Return both graphs with the variables in the order of the truth.

    Two `CausalGraph` are matched by name. A plain matrix has no names: its variables are assumed
    to be in the order of the other graph.

    Raises
    ------
    DataError
        If the graphs have different variables, or one is a PAG.
    """
    for one in (truth, estimate):
        if isinstance(one, CausalGraph) and one.marks is not None:
            raise DataError("a PAG has no such distance: compare(truth, pag) measures it")
    if isinstance(truth, CausalGraph):
        if isinstance(estimate, CausalGraph):
            return truth, estimate.reordered(truth.names)
        return truth, _named(estimate, truth.names)
    if isinstance(estimate, CausalGraph):
        return _named(truth, estimate.names), estimate
    first = CausalGraph.from_array(truth)
    return first, _named(estimate, first.names)


def _named(array: ArrayLike, names: Sequence[str]) -> CausalGraph:
    """Return a plain matrix as a graph over ``names``."""
    shape = np.shape(array)
    if shape != (len(names), len(names)):
        raise DataError(
            f"a graph's matrix has shape {shape}, the other graph has {len(names)} variables"
        )
    return CausalGraph.from_array(array, names)


def structural_hamming_distance(
    truth: GraphLike, estimate: GraphLike, *, reversed_counts: Literal[1, 2] = 1
) -> int:
    """Count the pairs of variables whose edges differ (instantaneous edges).

    Defined for cyclic graphs too. An edge of a variable to itself counts if only one graph has it.

    Parameters
    ----------
    truth, estimate : CausalGraph or array_like, shape (d, d)
        The distance is symmetric in the two graphs.
    reversed_counts : {1, 2}, default 1
        Cost of a reversed edge.

    Raises
    ------
    DataError
        If the graphs have different variables.
    ConfigError
        If ``reversed_counts`` is neither 1 nor 2.

    Examples
    --------
    >>> from flwr_causal.core.graphs.metrics import structural_hamming_distance
    >>> truth, found = [[0, 1, 0], [0, 0, 1], [0, 0, 0]], [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    >>> structural_hamming_distance(truth, found)
    1
    """
    if reversed_counts not in (1, 2):
        raise ConfigError(f"reversed_counts is {reversed_counts}: expected 1 or 2")
    true, found = aligned(truth, estimate)
    return _distance(true.adjacency, found.adjacency, reversed_counts)


def _distance(true: BoolArray, found: BoolArray, reversed_counts: int) -> int:
    """Return the structural Hamming distance of two boolean matrices."""
    differs = true != found
    num_pairs = int(np.triu(differs | differs.T).sum())
    return num_pairs + (reversed_counts - 1) * _num_reversed(true, found)


def _num_reversed(true: BoolArray, found: BoolArray) -> int:
    """Count the edges that are directed in both graphs, in opposite directions."""
    return int((equivalence.directed_part(true) & equivalence.directed_part(found).T).sum())


def moral_hamming_distance(truth: GraphLike, estimate: GraphLike) -> int:
    """Count the pairs in which the two moral graphs differ (SMHD).

    All DAGs of an equivalence class and their CPDAG have the same distance to a third graph.

    Raises
    ------
    DataError
        If the graphs have different variables.

    Examples
    --------
    >>> from flwr_causal.core.graphs.metrics import moral_hamming_distance
    >>> truth, found = [[0, 1, 0], [0, 0, 1], [0, 0, 0]], [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    >>> moral_hamming_distance(truth, found)
    1
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
        Over the instantaneous edges:

        - ``shd``: structural Hamming distance; a reversed edge costs 1.
        - ``reversed``, ``missing``, ``extra``: number of pairs joined by opposite edges, by a true
          edge only, and by an estimated edge only.
        - ``tpr``, ``recall``: share of the true edges that were found with their direction (1 if
          there are none).
        - ``fdr``: share of the estimated edges that are wrong; a reversed edge is wrong (0 if there
          are none). ``precision``: 1 - fdr.
        - ``fpr``: wrong edges divided by the number of pairs without a true edge, as in Zheng et
          al. (2018). It can exceed 1, since reversed edges are counted as wrong.
        - ``f1``: harmonic mean of precision and recall.
        - ``num_edges``, ``num_true``: number of edges of the estimate and of the truth.
        - ``acyclic``: whether the estimate has no directed cycle.

        Up to Markov equivalence:

        - ``smhd``: number of pairs in which the moral graphs differ.
        - ``adjacency_precision``, ``adjacency_recall``: precision and recall of adjacent pairs,
          whatever the direction (1 if there are none); ``adjacency_f1``, their harmonic mean.
        - Only if both graphs have a CPDAG (no directed cycle, no lags, not a summary graph):
          ``cpdag_shd``, the structural Hamming distance of the two CPDAGs, and
          ``arrowhead_precision``, ``arrowhead_recall``, the precision and recall of the directed
          edges of the CPDAGs, as Ramsey et al. (2017) count them: an edge that only one CPDAG
          directs is an error, whether or not the other has it undirected (1 if there are none);
          ``arrowhead_f1``, their harmonic mean.

        Only if both graphs have lags: ``lagged_shd``, ``lagged_tpr``, ``lagged_fdr`` over the
        lagged edges; an edge at another lag is another edge.

        Of a PAG it is ``adjacency_precision``, ``adjacency_recall``, ``adjacency_f1``,
        ``missing``, ``extra``, ``num_edges`` and ``num_true`` against the true PAG, and
        ``mark_agreement``, the share of the marks of edges of both that are the same,
        ``num_causes``, the number of edges ``->``, and ``wrong_causes``, those of them whose cause
        has an arrowhead in the true PAG or that it does not have. A true DAG may have further
        variables, the hidden ones. A DAG or CPDAG is compared with a true PAG in the same way: its
        directed edges are causes, its undirected edges have circles at both ends.

    Raises
    ------
    DataError
        If the graphs have different variables, or the truth of a PAG is neither a DAG nor a PAG.

    Examples
    --------
    >>> from flwr_causal.core.graphs.metrics import compare
    >>> truth, found = [[0, 1, 0], [0, 0, 1], [0, 0, 0]], [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    >>> compare(truth, found)["shd"], compare(truth, found)["tpr"]
    (1, 0.5)
    """
    if any(isinstance(one, CausalGraph) and one.marks is not None for one in (truth, estimate)):
        return _compare_marked(truth, estimate)
    true, found = aligned(truth, estimate)
    true_directed, true_undirected = _edge_kinds(true)
    found_directed, found_undirected = _edge_kinds(found)
    joined = equivalence.skeleton(true.adjacency), equivalence.skeleton(found.adjacency)
    # Undirected edges form a symmetric matrix: its upper triangle holds each of them once.
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
        "reversed": _num_reversed(true.adjacency, found.adjacency),
        "missing": int(np.triu(joined[0] & ~joined[1]).sum()),
        "extra": int(np.triu(joined[1] & ~joined[0]).sum()),
        "tpr": recall,
        "fdr": 1.0 - precision,
        "fpr": (num_edges - right) / max(pairs_without_edge, 1),
        "precision": precision,
        "recall": recall,
        "f1": _harmonic(precision, recall),
        "num_edges": num_edges,
        "num_true": num_true,
        "acyclic": found.is_acyclic(),
        **_compare_classes(true, found),
    }
    if true.lagged is not None and found.lagged is not None:
        result |= _compare_lagged(true.lagged != 0, found.lagged != 0)
    return result


def _compare_marked(truth: GraphLike, estimate: GraphLike) -> dict[str, float | int | bool]:
    """Compare the marks of two graphs one of which is a PAG."""
    if not isinstance(estimate, CausalGraph):
        assert isinstance(truth, CausalGraph)
        estimate = _named(estimate, truth.names)
    if not isinstance(truth, CausalGraph):
        truth = _named(truth, estimate.names)
    true = truth.to_pag(estimate.names).marks
    found = marks_of_class(estimate.adjacency) if estimate.marks is None else estimate.marks
    assert true is not None
    return compare_marks(true, found)


def _edge_kinds(graph: CausalGraph) -> tuple[BoolArray, BoolArray]:
    """Return the directed and the undirected edges; only a CPDAG has undirected ones."""
    adjacency = graph.adjacency
    if graph.kind != "cpdag":
        return adjacency, np.zeros_like(adjacency)
    return equivalence.directed_part(adjacency), equivalence.undirected_part(adjacency)


def _compare_lagged(true: BoolArray, found: BoolArray) -> dict[str, float | int]:
    """Compare lagged edges, shape ``(p, d, d)`` each; the graph with fewer lags is padded."""
    num_lags = max(len(true), len(found))
    true, found = (
        np.pad(array, ((0, num_lags - len(array)), (0, 0), (0, 0))) for array in (true, found)
    )
    precision, recall = _rates(true, found)
    return {
        "lagged_shd": int((true != found).sum()),
        "lagged_tpr": recall,
        "lagged_fdr": 1.0 - precision,
    }


def _ratio(part: float, whole: float, otherwise: float) -> float:
    """Return part / whole, or ``otherwise`` if the whole is 0."""
    return part / whole if whole else otherwise


def _harmonic(precision: float, recall: float) -> float:
    """Return the harmonic mean of precision and recall, 0 if both are 0."""
    return _ratio(2 * precision * recall, precision + recall, 0.0)


def _compare_classes(true: CausalGraph, found: CausalGraph) -> dict[str, float | int]:
    """Compare two graphs over the same variables in the same order, up to equivalence.

    Returns
    -------
    dict
        ``smhd``, ``adjacency_precision``, ``adjacency_recall``, ``adjacency_f1``; if both graphs
        have a CPDAG also ``cpdag_shd``, ``arrowhead_precision``, ``arrowhead_recall``,
        ``arrowhead_f1``; see `compare`.
    """
    joined = np.triu(equivalence.skeleton(true.adjacency), 1)
    found_joined = np.triu(equivalence.skeleton(found.adjacency), 1)
    precision, recall = _rates(joined, found_joined)
    result: dict[str, float | int] = {
        "smhd": moral_hamming_distance(true, found),
        "adjacency_precision": precision,
        "adjacency_recall": recall,
        "adjacency_f1": _harmonic(precision, recall),
    }
    true_class, found_class = _class_of(true), _class_of(found)
    if true_class is not None and found_class is not None:
        result["cpdag_shd"] = _distance(true_class, found_class, 1)
        precision, recall = _rates(
            equivalence.directed_part(true_class), equivalence.directed_part(found_class)
        )
        result["arrowhead_precision"], result["arrowhead_recall"] = precision, recall
        result["arrowhead_f1"] = _harmonic(precision, recall)
    return result


def _class_of(graph: CausalGraph) -> BoolArray | None:
    """Return the adjacency of a graph's CPDAG, or None if the graph has no CPDAG."""
    if graph.kind == "summary" or graph.lagged is not None or not graph.is_acyclic():
        return None
    # Background knowledge about one of the graphs is none about the class that rows tell apart.
    return graph.adjacency if graph.kind == "cpdag" else equivalence.cpdag(graph.adjacency)


def _rates(true: BoolArray, found: BoolArray) -> tuple[float, float]:
    """Return precision and recall of edges; each is 1 if it would divide by 0."""
    right = int((true & found).sum())
    return _ratio(right, int(found.sum()), 1.0), _ratio(right, int(true.sum()), 1.0)


def auroc(scores: GraphLike, truth: GraphLike) -> float:
    """Return the area under the ROC curve.

    This is the probability that a true edge scores higher than a non-edge; ties count one half.

    Parameters
    ----------
    scores : array_like, shape (d, d), or CausalGraph
        Strength of every directed edge, non-negative. A graph's scores are its absolute raw weights
        (its weights if it has no raw weights), summed over lags.
    truth : CausalGraph or array_like, shape (d, d)
        The true graph, with or without cycles. An edge at any lag is a true edge.

    Returns
    -------
    float
        From 0 to 1, over off-diagonal entries; NaN if the truth has all edges or none.

    Raises
    ------
    DataError
        If a score is negative or not finite, or the shapes or names differ.

    Examples
    --------
    >>> from flwr_causal.core.graphs.metrics import auroc
    >>> truth = [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    >>> auroc([[0, 3, 1], [0, 0, 2], [0, 0, 0]], truth)
    1.0
    """
    strengths, edges = _ranked(scores, truth)
    num_true = int(edges.sum())
    num_false = len(edges) - num_true
    if not num_true or not num_false:
        return float("nan")
    # The Mann-Whitney statistic: the rank sum of the true edges less its smallest possible value.
    ranks_of_true = float(_ranks(strengths)[edges].sum())
    return (ranks_of_true - num_true * (num_true + 1) / 2) / (num_true * num_false)


def auprc(scores: GraphLike, truth: GraphLike) -> float:
    """Return the area under the precision-recall curve, computed as the average precision.

    Each true edge contributes the precision among all edges that score at least as high. Tied edges
    are therefore treated together, and nothing is interpolated: straight lines between the points
    of the curve overestimate the area (Davis & Goadrich, 2006).

    Parameters and errors are those of `auroc`; the result is NaN if the truth has no edges.

    Examples
    --------
    >>> from flwr_causal.core.graphs.metrics import auprc
    >>> truth = [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    >>> auprc([[0, 3, 1], [0, 0, 2], [0, 0, 0]], truth)
    1.0
    """
    strengths, edges = _ranked(scores, truth)
    if not edges.any():
        return float("nan")
    at_least_as_high = _ranks(-strengths, method="max")[edges]
    true_among_them = _ranks(-strengths[edges], method="max")
    return float(np.mean(true_among_them / at_least_as_high))


def binary_auroc(
    weights: GraphLike, truth: GraphLike, threshold: float = 0.2, count_diagonal: bool = True
) -> float:
    """Return the AUROC of a thresholded graph, the score of Chen, Ma & Yue (2024) for NetSim.

    Their public notebook sets the entries of W + A below the threshold in absolute value to 0, the
    others to 1, and computes the AUROC of these two values. A curve with one point has the area
    (true positive rate + true negative rate) / 2. The notebook also compares the **diagonals**: the
    networks of the data set hold -1 there, which is read as an edge of every variable to itself,
    and the effect of a variable's own past is the easiest one to find.

    Do not compare this score with scores that ignore the diagonal, such as `auroc` and those of
    the literature. The identity matrix, which has no edge between two variables, scores .75, .738
    and .727 on the networks of 5, 10 and 15 variables (.5 without the diagonal); the paper's
    results average .738, .738 and .736.

    Parameters
    ----------
    weights : CausalGraph or array_like, shape (d, d)
        Signed weights. The weights of a graph with lags are summed over slices,
        W + A_1 + ... + A_p, so that opposite effects cancel.
    truth : CausalGraph or array_like, shape (d, d)
        The true graph. An edge at any lag is a true edge.
    threshold : float, default 0.2
        Entries of at least this absolute value are edges; exact zeros never are. The default is
        the notebook's.
    count_diagonal : bool, default True
        Count every variable's edge to itself as a true edge, as the notebook does; False ignores
        the diagonal.

    Returns
    -------
    float
        From 0 to 1; NaN if the truth has all edges or none.

    Raises
    ------
    DataError
        If a weight is not finite, or the shapes or names differ.
    ConfigError
        If the threshold is negative or not finite.

    Examples
    --------
    >>> from flwr_causal.core.graphs.metrics import binary_auroc
    >>> truth = [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    >>> binary_auroc([[0, 3, 0], [0, 0, 2], [0, 0, 0]], truth, count_diagonal=False)
    1.0
    """
    if not (np.isfinite(threshold) and threshold >= 0):
        raise ConfigError(f"threshold is {threshold}: expected a number from 0 up")
    true, found = aligned(truth, weights)
    total = found.weights if found.lagged is None else found.weights + found.lagged.sum(axis=0)
    chosen = (total != 0) & (np.abs(total) >= threshold)
    diagonal = np.eye(len(true.names), dtype=bool)
    edges = _edges(true) | diagonal
    scored = np.ones_like(diagonal) if count_diagonal else ~diagonal
    chosen, edges = chosen[scored], edges[scored]
    if edges.all() or not edges.any():
        return float("nan")
    return float((chosen[edges].mean() + (~chosen[~edges]).mean()) / 2)


def _ranks(values: FloatArray, method: Literal["average", "max"] = "average") -> FloatArray:
    """Return the ranks of the values, from 1 for the smallest."""
    from scipy import stats  # imported here because it takes a second to load

    ranks: FloatArray = stats.rankdata(values, method=method)
    return ranks


def _ranked(scores: GraphLike, truth: GraphLike) -> tuple[FloatArray, BoolArray]:
    """Return the off-diagonal scores and edges as vectors of d (d - 1)."""
    if isinstance(scores, CausalGraph):
        true, ranked = aligned(truth, scores)
        strengths = _strengths(ranked)
    else:
        strengths = np.asarray(scores, dtype=np.float64)
        true = truth if isinstance(truth, CausalGraph) else CausalGraph.from_array(truth)
    size = len(true.names)
    if strengths.shape != (size, size):
        raise DataError(f"scores have shape {strengths.shape}, the truth has {size} variables")
    off_diagonal = ~np.eye(size, dtype=bool)
    strengths = strengths[off_diagonal]
    if not np.isfinite(strengths).all() or (strengths < 0).any():
        raise DataError("scores must be finite and non-negative: give absolute values")
    return strengths, _edges(true)[off_diagonal]


def _edges(graph: CausalGraph) -> BoolArray:
    """Return which pairs have an edge, instantaneous or at any lag, shape ``(d, d)``."""
    if graph.lagged is None:
        return graph.adjacency
    return np.asarray(graph.adjacency | (graph.lagged != 0).any(axis=0))


def _strengths(graph: CausalGraph) -> FloatArray:
    """Return the absolute weights before the threshold, summed over lags."""
    raw = graph.weights if graph.raw_weights is None else graph.raw_weights
    strengths: FloatArray = np.abs(raw)
    lagged = graph.lagged if graph.raw_lagged is None else graph.raw_lagged
    if lagged is not None:
        strengths = strengths + np.abs(lagged).sum(axis=0)
    return strengths


def effect_error(truth: GraphLike, estimate: GraphLike) -> float:
    """Return the mean error of the linear effects ``E[x_j | do(x_i = 1)] - E[x_j | do(x_i = 0)]``.

    The effects of a linear system are ``(I - W)^-1 - I``: the sums of the products of weights along
    directed paths. The mean is over ordered pairs of different variables, of the absolute
    difference between the true effect and that of the estimate's weights.

    Parameters
    ----------
    truth, estimate : CausalGraph or array_like, shape (d, d)
        Two DAGs whose weights are effects (instantaneous edges).

    Returns
    -------
    float
        In the units of the effects; 0 for the true weights.

    Raises
    ------
    DataError
        If a graph is no DAG, or the variables differ.

    Examples
    --------
    >>> from flwr_causal.core.graphs.metrics import effect_error
    >>> effect_error([[0, 2], [0, 0]], [[0, 1], [0, 0]])
    0.5
    """
    true, found = aligned(truth, estimate)
    size = len(true.names)
    effects = []
    for graph, role in ((true, "truth"), (found, "estimate")):
        if not graph.is_acyclic():
            raise DataError(f"the {role} is no DAG: effects follow from the weights of a DAG")
        effects.append(np.linalg.inv(np.eye(size) - graph.weights))
    return float(np.abs(effects[0] - effects[1]).sum() / max(size * (size - 1), 1))


def varsortability(
    graph: GraphLike, variances: ArrayLike, names: tuple[str, ...] | None = None
) -> float:
    """Return the varsortability: how well variances order causes before effects.

    For k = 1, 2, ... each pair (cause, effect) joined by a directed path of k edges is counted
    once (Reisach et al., 2021, eq. 1). The result is the share of these pairs in which the effect
    has the larger variance; equal variances count one half. Near 1, the order of the variances
    alone reveals the causal order, and least squares without standardisation exploits it: success
    on such data says nothing about data in other units. Near 0.5, variances carry no information.

    Parameters
    ----------
    graph : CausalGraph or array_like, shape (d, d)
        The true graph.
    variances : array_like, shape (d,)
        The variables' variances, in the order of ``names``.
    names : tuple of str, optional
        The order of the variances. Default: the graph's order.

    Returns
    -------
    float
        From 0 to 1; NaN for a graph without edges.

    Raises
    ------
    DataError
        If the number of variances differs, or one is negative or not finite.

    Examples
    --------
    >>> from flwr_causal.core.graphs.metrics import varsortability
    >>> varsortability([[0, 1], [0, 0]], [1.0, 3.0])
    1.0
    """
    spread = np.asarray(variances, dtype=np.float64)
    return _sortability(graph, spread, names, "variances")


def r2_sortability(
    graph: GraphLike, shares: ArrayLike, names: tuple[str, ...] | None = None
) -> float:
    """Return the R2-sortability: how well explained shares order causes before effects.

    As `varsortability`, of the share of each variable's variance that all others explain (Reisach
    et al., 2023; :func:`flwr_causal.core.linear.regression.explained_shares`), which does not
    depend on units.

    Parameters, results and errors are those of `varsortability`, with ``shares``, each from 0 to 1,
    in place of ``variances``.

    Examples
    --------
    >>> from flwr_causal.core.graphs.metrics import r2_sortability
    >>> r2_sortability([[0, 1], [0, 0]], [0.2, 0.4])
    1.0
    """
    return _sortability(graph, np.asarray(shares, dtype=np.float64), names, "shares")


def _sortability(
    graph: GraphLike, values: FloatArray, names: tuple[str, ...] | None, kind: str
) -> float:
    """Return the share of causes and effects that values order, see `varsortability`."""
    graph = graph if isinstance(graph, CausalGraph) else CausalGraph.from_array(graph)
    if names is not None:
        graph = graph.reordered(names)
    if values.shape != (len(graph.names),):
        raise DataError(
            f"{kind} have shape {values.shape}, expected one for each of {len(graph.names)} "
            "variables"
        )
    if not np.isfinite(values).all() or (values < 0).any():
        raise DataError(f"{kind} must be finite and not negative")
    equal = np.isclose(values[:, None], values[None, :], rtol=1e-9, atol=0.0)
    credit = np.where(equal, 0.5, values[:, None] < values[None, :])
    edges = graph.adjacency.astype(np.float64)
    joined = edges
    total = earned = 0.0
    for _ in range(len(values) - 1):
        if not joined.any():
            break
        total += joined.sum()
        earned += (joined * credit).sum()
        joined = (joined @ edges > 0).astype(np.float64)
    return float(earned / total) if total else float("nan")


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
