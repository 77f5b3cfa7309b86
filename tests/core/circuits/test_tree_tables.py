from itertools import product

import numpy as np

from flwr_causal.core.circuits.learners.trees.pair_sums import StateLayout, weighted_products
from flwr_causal.core.circuits.learners.trees.trees import (
    chow_liu_tree,
    concatenated,
    heaviest_tree,
    independent,
)

STATES = (2, 3, 2, 3)


def spanning_trees(d):
    """Edges of every spanning tree of d vertices, from its Pruefer sequence."""
    for sequence in product(range(d), repeat=d - 2):
        degree = [1 + sequence.count(j) for j in range(d)]
        edges = []
        for j in sequence:
            leaf = degree.index(1)
            edges.append((leaf, j))
            degree[leaf] -= 1
            degree[j] -= 1
        edges.append(tuple(j for j in range(d) if degree[j] == 1))
        yield edges


def dependent_codes(rng, n):
    codes = np.stack([rng.integers(k, size=n) for k in STATES]).astype(np.int32)
    for j in range(1, len(STATES)):
        same = rng.random(n) < 0.6
        codes[j, same] = codes[j // 2, same] % STATES[j]
    return codes


def pair_counts(layout, codes):
    ones = np.ones((codes.shape[1], 1))
    return layout.pair_counts(weighted_products(layout.design(codes), ones)[0])


def edge_likelihood(codes, edges):
    """Log-likelihood of the most probable distribution over a given tree, from frequencies."""

    def entropy(columns):
        _, counts = np.unique(codes[list(columns)], axis=1, return_counts=True)
        shares = counts / counts.sum()
        return -(shares * np.log(shares)).sum()

    single = [entropy((j,)) for j in range(len(codes))]
    gain = sum(single[i] + single[j] - entropy((i, j)) for i, j in edges)
    return codes.shape[1] * (gain - sum(single))


def random_trees(rng, count=3):
    layout = StateLayout(STATES)
    parts = [
        chow_liu_tree(
            layout, counts := pair_counts(layout, dependent_codes(rng, 50)), 1e-2 * counts + 1e-3
        )
        for _ in range(count)
    ]
    return concatenated(parts)


def test_the_heaviest_tree_is_the_best_of_all_spanning_trees():
    rng = np.random.default_rng(0)
    for _ in range(20):
        gains = rng.normal(size=(5, 5))
        gains += gains.T
        parents = heaviest_tree(gains)
        assert parents[0] == -1
        found = sum(gains[j, parents[j]] for j in range(1, 5))
        best = max(sum(gains[i, j] for i, j in edges) for edges in spanning_trees(5))
        assert np.isclose(found, best, atol=1e-12)


def test_a_chow_liu_tree_has_the_largest_likelihood_of_all_trees():
    rng = np.random.default_rng(1)
    layout = StateLayout(STATES)
    for _ in range(5):
        codes = dependent_codes(rng, 80)
        counts = pair_counts(layout, codes)
        tree = chow_liu_tree(layout, counts, np.full_like(counts, 1e-12))
        best = max(edge_likelihood(codes, edges) for edges in spanning_trees(len(STATES)))
        assert np.isclose(tree.log_densities(codes).sum(), best, atol=1e-6)


def test_densities_of_all_worlds_sum_to_one_and_missing_values_are_summed_out():
    trees = random_trees(np.random.default_rng(2))
    worlds = np.array(list(product(*map(range, STATES))), dtype=np.int32)
    densities = np.exp(trees.log_densities(np.ascontiguousarray(worlds.T)))
    np.testing.assert_allclose(densities.sum(axis=0), 1.0, atol=1e-12)
    for known in ({}, {0: 1}, {1: 2, 3: 0}, {2: 1}):
        row = np.full((len(STATES), 1), -1, dtype=np.int32)
        fits = np.ones(len(worlds), dtype=bool)
        for column, state in known.items():
            row[column] = state
            fits &= worlds[:, column] == state
        both = np.hstack([row, np.zeros_like(row)])  # next to a complete row
        result = np.exp(trees.log_densities(both))
        np.testing.assert_allclose(result[0], densities[fits].sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(result[1], densities[0], rtol=1e-12)


def test_a_row_has_the_same_density_to_the_last_bit_whatever_rows_are_beside_it():
    rng = np.random.default_rng(3)
    trees, codes = random_trees(rng), dependent_codes(rng, 3000)
    whole = trees.log_densities(codes)
    for row in (0, 1, 1500, 2999):
        np.testing.assert_array_equal(trees.log_densities(codes[:, row : row + 1])[0], whole[row])


def test_the_evidence_is_the_product_of_predictions_one_row_after_the_other():
    layout = StateLayout((3,))
    added = np.array([[0.5, 0.2, 0.3]])
    drawn = [0, 2, 2, 1, 0, 0]
    counts = np.array([[3.0, 1.0, 2.0]])
    trees = independent(layout, counts, added)
    for strength in (0.5, 4.0):
        seen, expected = strength * added[0], 0.0
        for state in drawn:
            expected += np.log(seen[state] / seen.sum())
            seen[state] += 1.0
        np.testing.assert_allclose(trees.log_evidence(np.array([strength])), [[expected]])


def test_parts_of_joined_trees_are_the_trees():
    rng = np.random.default_rng(4)
    trees, codes = random_trees(rng, 4), dependent_codes(rng, 10)
    part = trees.part(1, 3)
    np.testing.assert_array_equal(part.log_densities(codes), trees.log_densities(codes)[:, 1:3])
    np.testing.assert_allclose(part.table(0, 1), trees.table(1, 1))
