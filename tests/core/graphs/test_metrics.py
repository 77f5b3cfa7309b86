"""Distances and rates on hand-made cases and against the public code's definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays
from small_graphs import CHAIN, dags, matrix

from benchmarks.intervention_distance import sid
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import (
    auroc,
    compare,
    effect_error,
    moral_hamming_distance,
    r2_sortability,
    structural_hamming_distance,
)
from flwr_causal.errors import ConfigError, DataError


@pytest.mark.parametrize(
    ("estimate", "once", "twice"),
    [
        (CHAIN, 0, 0),
        (matrix(3), 2, 2),  # two missing
        (matrix(3, (1, 0), (1, 2)), 1, 2),  # one reversed
        (matrix(3, (0, 1), (1, 2), (0, 2)), 1, 1),  # one extra
        (matrix(3, (1, 0), (2, 1)), 2, 4),
        (matrix(3, (0, 1), (1, 0), (1, 2)), 1, 1),  # a two-cycle, or an undirected edge
        (matrix(3, (0, 1), (1, 2), (2, 2)), 1, 1),  # on the diagonal
        (matrix(3, (0, 1), (1, 2), (0, 2), (2, 0)), 1, 1),  # one pair, two edges too many
        (matrix(3, (0, 1), (1, 2), (2, 0)), 1, 1),  # a cycle
    ],
)
def test_shd_conventions(estimate, once, twice):
    assert structural_hamming_distance(CHAIN, estimate) == once
    assert structural_hamming_distance(estimate, CHAIN) == once
    assert structural_hamming_distance(CHAIN, estimate, reversed_counts=2) == twice


def notears_count_accuracy(true, found):
    """SHD, TPR and FDR as in the public code of Zheng et al. (2018), restated."""
    pred, cond = np.flatnonzero(found), np.flatnonzero(true)
    reverse = np.intersect1d(np.setdiff1d(pred, cond), np.flatnonzero(true.T))
    pred_lower = np.flatnonzero(np.tril(found | found.T))
    cond_lower = np.flatnonzero(np.tril(true | true.T))
    shd = len(np.setxor1d(pred_lower, cond_lower)) + len(reverse)
    true_pos = len(np.intersect1d(pred, cond))
    wrong = len(pred) - true_pos
    non_edges = len(true) * (len(true) - 1) / 2 - len(cond)
    return shd, true_pos / len(cond), wrong / max(len(pred), 1), wrong / max(non_edges, 1)


@given(dags(5), arrays(bool, (5, 5)))
def test_agrees_with_count_accuracy_on_any_estimate_cyclic_or_not(true, found):
    np.fill_diagonal(found, False)
    if not true.any():
        return
    shd, tpr, fdr, fpr = notears_count_accuracy(true, found)
    result = compare(true, found)
    assert result["shd"] == shd == structural_hamming_distance(true, found)
    assert result["tpr"] == result["recall"] == pytest.approx(tpr)
    assert result["fdr"] == pytest.approx(fdr)
    assert result["fpr"] == pytest.approx(fpr)
    assert result["num_edges"] == found.sum()
    assert result["num_true"] == true.sum()


def test_compare_by_hand():
    true = matrix(4, (0, 1), (1, 2), (2, 3), (0, 3))
    found = matrix(4, (0, 1), (2, 1), (0, 2))  # right, reversed, extra; two missing
    assert compare(true, found) == {
        "shd": 4,
        "reversed": 1,
        "missing": 2,
        "extra": 1,
        "tpr": 1 / 4,
        "fdr": 1 - 1 / 3,
        "fpr": 2 / 2,
        "precision": 1 / 3,
        "recall": 1 / 4,
        "f1": pytest.approx(2 / 7),
        "num_edges": 3,
        "num_true": 4,
        "acyclic": True,
        # Moral graphs: 0-1, 1-2, 2-3, 0-3 and the married 0-2, against 0-1, 1-2, 0-2.
        "smhd": 2,
        "adjacency_precision": 2 / 3,
        "adjacency_recall": 2 / 4,
        "adjacency_f1": pytest.approx(4 / 7),
        # CPDAGs: 2 -> 3 <- 0 with 0 - 1 - 2, against a triangle without directions.
        "cpdag_shd": 3,
        "arrowhead_precision": 1,
        "arrowhead_recall": 0,
        "arrowhead_f1": 0,
    }


def test_arrowheads_by_hand():
    collider = matrix(4, (0, 1), (2, 1), (1, 3))  # all three directed in the CPDAG
    result = compare(collider, matrix(4, (0, 1), (2, 1), (3, 1)))  # 1 -> 3 the wrong way
    assert result["arrowhead_precision"] == result["arrowhead_recall"] == pytest.approx(2 / 3)
    assert (result["adjacency_precision"], result["adjacency_recall"]) == (1, 1)
    assert result["cpdag_shd"] == 1
    chain = matrix(4, (0, 1), (1, 2), (1, 3))  # nothing directed
    result = compare(collider, chain)
    assert (result["arrowhead_precision"], result["arrowhead_recall"]) == (1, 0)
    result = compare(chain, collider)
    assert (result["arrowhead_precision"], result["arrowhead_recall"]) == (0, 1)
    result = compare(collider, matrix(4, (0, 1), (2, 1)))
    assert (result["arrowhead_precision"], result["arrowhead_recall"]) == (1, pytest.approx(2 / 3))
    assert (result["adjacency_precision"], result["adjacency_recall"]) == (1, pytest.approx(2 / 3))


UP_TO_EQUIVALENCE = {
    "smhd",
    "cpdag_shd",
    "adjacency_precision",
    "adjacency_recall",
    "arrowhead_precision",
    "arrowhead_recall",
}


@given(dags(6), dags(6))
def test_equivalent_graphs_are_told_apart_by_nothing_up_to_equivalence(true, found):
    one, two = CausalGraph.from_array(true), CausalGraph.from_array(found)
    result = compare(one, two)
    for a, b in [(one.to_cpdag(), two), (one, two.to_cpdag()), (one, two.to_cpdag().to_dag())]:
        other = compare(a, b)
        assert {key: other[key] for key in UP_TO_EQUIVALENCE} == {
            key: result[key] for key in UP_TO_EQUIVALENCE
        }
    assert result["smhd"] == moral_hamming_distance(one, two)
    assert result["cpdag_shd"] == structural_hamming_distance(one.to_cpdag(), two.to_cpdag())
    assert result["cpdag_shd"] >= result["missing"] + result["extra"]
    swapped = compare(two, one)
    for what in ("adjacency", "arrowhead"):
        assert swapped[f"{what}_precision"] == result[f"{what}_recall"]
    same = {key: compare(one, one)[key] for key in UP_TO_EQUIVALENCE}
    assert same == {key: 0 if key in ("smhd", "cpdag_shd") else 1 for key in UP_TO_EQUIVALENCE}


def test_graphs_without_a_cpdag_lack_its_keys():
    cycle = matrix(3, (0, 1), (1, 2), (2, 0))
    without = {"cpdag_shd", "arrowhead_precision", "arrowhead_recall"}
    lagged = CausalGraph.from_array(CHAIN, lagged=np.ones((1, 3, 3)))
    summary = CausalGraph.from_array(CHAIN, kind="summary")
    for other in (cycle, lagged, summary):
        for result in (compare(CHAIN, other), compare(other, CHAIN)):
            assert without.isdisjoint(result)
            assert set(result) >= UP_TO_EQUIVALENCE - without
    assert compare(CHAIN, cycle)["adjacency_precision"] == pytest.approx(2 / 3)
    assert compare(CHAIN, cycle)["smhd"] == 1


def test_a_thousand_variables_are_compared():
    """A collider at the head of a long chain: closing under Meek's rules takes 997 sweeps."""
    chain = matrix(1000, (0, 2), *((k, k + 1) for k in range(1, 999)))
    result = compare(chain, chain)
    assert result["arrowhead_recall"] == 1
    assert (
        CausalGraph.from_array(chain).to_cpdag().equals(CausalGraph.from_array(chain, kind="cpdag"))
    )


def test_an_undirected_edge_agrees_with_either_direction_and_counts_once():
    true = CausalGraph.from_array(matrix(4, (0, 1), (2, 1)))
    marks = matrix(4, (0, 1), (1, 0), (2, 1), (2, 3), (3, 2))
    result = compare(true, CausalGraph.from_array(marks, kind="cpdag"))
    assert (result["num_edges"], result["num_true"]) == (3, 2)
    assert result["tpr"] == 1
    assert result["fdr"] == pytest.approx(1 / 3)
    assert result["shd"] == 2  # one undirected for directed, one extra
    as_two_cycles = compare(true, marks)
    assert as_two_cycles["num_edges"] == 5
    assert as_two_cycles["fdr"] == pytest.approx(3 / 5)
    assert not as_two_cycles["acyclic"]


def test_cpdags_against_each_other():
    one = CausalGraph.from_array(matrix(3, (0, 1), (1, 2))).to_cpdag()
    two = CausalGraph.from_array(matrix(3, (2, 1), (1, 0))).to_cpdag()
    collider = CausalGraph.from_array(matrix(3, (0, 1), (2, 1))).to_cpdag()
    assert structural_hamming_distance(one, two) == 0
    assert structural_hamming_distance(one, collider) == 2
    assert compare(one, two)["f1"] == 1


def test_empty_graphs_have_no_errors():
    result = compare(np.zeros((3, 3)), np.zeros((3, 3)))
    assert (result["precision"], result["recall"], result["f1"], result["fdr"]) == (1, 1, 1, 0)
    assert compare(CHAIN, np.zeros((3, 3)))["f1"] == 0
    assert compare(np.zeros((3, 3)), CHAIN)["fdr"] == 1


def test_graphs_are_matched_by_name_and_matrices_by_position():
    true = CausalGraph(("a", "b", "c"), CHAIN.astype(float))
    order = [2, 0, 1]
    shuffled = CausalGraph(("c", "a", "b"), CHAIN[np.ix_(order, order)].astype(float))
    assert compare(true, shuffled)["shd"] == 0
    assert compare(true, shuffled.weights)["shd"] > 0
    assert compare(shuffled, true)["shd"] == 0
    assert sid(true, shuffled) == 0
    assert moral_hamming_distance(true, shuffled) == 0
    assert auroc(shuffled, true) == 1


def test_graphs_over_other_variables_are_refused():
    one = CausalGraph(("a", "b"), np.zeros((2, 2)))
    two = CausalGraph(("a", "z"), np.zeros((2, 2)))
    with pytest.raises(DataError, match="only one has b, the other z"):
        compare(one, two)
    with pytest.raises(DataError, match=r"shape \(3, 3\).*2 variables"):
        compare(one, np.zeros((3, 3)))
    with pytest.raises(ConfigError, match="reversed_counts is 3"):
        structural_hamming_distance(one, one, reversed_counts=3)


def test_lagged_edges_are_compared_lag_by_lag():
    lagged = np.zeros((2, 3, 3))
    lagged[0, 0, 1] = lagged[1, 2, 2] = 1
    true = CausalGraph.from_array(CHAIN, lagged=lagged)
    found = CausalGraph.from_array(CHAIN, lagged=lagged[:1])
    result = compare(true, found)
    assert (result["lagged_shd"], result["lagged_tpr"], result["lagged_fdr"]) == (1, 0.5, 0)
    assert result["shd"] == 0


def test_moral_distance_by_hand():
    collider = matrix(3, (0, 1), (2, 1))
    assert moral_hamming_distance(collider, CHAIN) == 1  # the married pair
    assert moral_hamming_distance(CHAIN, matrix(3, (1, 0), (1, 2))) == 0
    assert moral_hamming_distance(collider, matrix(3)) == 3


def test_effect_errors_by_hand():
    """x -> y by 2, y -> z by 3: x has the effect 6 on z, or 7 with an edge of 1 between them."""
    chain = np.array([[0, 2.0, 0], [0, 0, 3], [0, 0, 0]])
    more = chain + matrix(3, (0, 2))
    assert effect_error(chain, chain) == 0
    assert effect_error(chain, more) == pytest.approx(1 / 6)
    assert effect_error(chain, np.zeros((3, 3))) == pytest.approx((2 + 3 + 6) / 6)
    names = CausalGraph.from_array(chain, names=("x", "y", "z"))
    assert effect_error(names, names.reordered(("z", "x", "y"))) == 0
    with pytest.raises(DataError, match="the estimate is no DAG"):
        effect_error(chain, matrix(3, (0, 1), (1, 0)))


def test_f1_of_adjacencies_and_arrowheads_by_hand():
    """Truth a -> c <- b, d: estimate a -> c, b - d."""
    true = matrix(4, (0, 2), (1, 2))
    found = matrix(4, (0, 2), (1, 3), (3, 1))
    result = compare(true, CausalGraph.from_array(found * 1.0, kind="cpdag"))
    assert result["adjacency_f1"] == pytest.approx(0.5)
    assert result["arrowhead_precision"] == 1
    assert result["arrowhead_recall"] == pytest.approx(0.5)
    assert result["arrowhead_f1"] == pytest.approx(2 / 3)
    nothing = compare(np.zeros((3, 3)), np.zeros((3, 3)))
    assert nothing["adjacency_f1"] == nothing["arrowhead_f1"] == 1
    missed = compare(true, np.zeros((4, 4)))
    assert missed["adjacency_f1"] == missed["arrowhead_f1"] == 0


def test_r2_sortability_counts_as_varsortability_does():
    chain = matrix(3, (0, 1), (1, 2))
    assert r2_sortability(chain, [0.1, 0.5, 0.9]) == 1
    assert r2_sortability(chain, [0.9, 0.5, 0.1]) == 0
    assert r2_sortability(chain, [0.5, 0.5, 0.9]) == pytest.approx(2.5 / 3)
    with pytest.raises(DataError, match="shares have shape"):
        r2_sortability(chain, [0.5, 0.5])
    with pytest.raises(DataError, match="shares must be finite"):
        r2_sortability(chain, [0.5, -0.5, 1.0])
