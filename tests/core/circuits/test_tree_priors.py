import numpy as np
import pytest
from circuit_cases import domain_of
from scipy.special import gammaln

from flwr_causal.core.circuits.learners.trees.learner import ChowLiuMixture
from flwr_causal.core.circuits.learners.trees.pair_sums import (
    StateLayout,
    encode,
    weighted_products,
)
from flwr_causal.core.circuits.learners.trees.trees import (
    PRIOR_STRENGTHS,
    prior_cells,
    shrunk_trees,
)

STATES = (2, 3, 4)


def pair_counts(layout, values):
    codes = encode(values, layout.num_states)
    return layout.pair_counts(weighted_products(layout.design(codes), np.ones((len(values), 1)))[0])


def dependent_rows(rng, n):
    first = rng.integers(2, size=n)
    second = np.where(rng.random(n) < 0.7, first, rng.integers(3, size=n))
    return np.stack([first, second, rng.integers(4, size=n)], axis=1).astype(float)


def block(layout, i, j):
    rows, columns = (slice(layout.first[k], layout.first[k] + layout.states[k]) for k in (i, j))
    return rows, columns


@pytest.mark.parametrize("classes", [1, 2])
def test_tables_are_distributions_of_each_pair(classes):
    rng, layout = np.random.default_rng(0), StateLayout(STATES)
    groups = [pair_counts(layout, dependent_rows(rng, 40)) for _ in range(classes)]
    cells = prior_cells(layout, groups[0], np.sum(groups, axis=0))
    np.testing.assert_allclose(cells, cells.T, atol=1e-15)
    for i in range(3):
        for j in range(3):
            part = cells[block(layout, i, j)]
            np.testing.assert_allclose(part.sum(), 1.0)
            assert part.min() > 0.0 if i != j else np.count_nonzero(part) == STATES[i]


def test_a_class_without_rows_has_the_table_of_the_others():
    rng, layout = np.random.default_rng(1), StateLayout(STATES)
    others = pair_counts(layout, dependent_rows(rng, 4000))
    cells = prior_cells(layout, np.zeros_like(others), others)
    np.testing.assert_allclose(cells[block(layout, 0, 0)], np.diag([0.5, 0.5]), atol=0.02)


def evidence(counts, prior, strength):
    """Log probability of counts, one row after the other, under a Dirichlet prior."""
    start = strength * prior
    result = gammaln(start.sum()) - gammaln((start + counts).sum())
    return result + (gammaln(start + counts) - gammaln(start)).sum()


def test_each_pair_is_drawn_as_strongly_as_its_counts_ask_for():
    """Of one class: columns to the uniform, pairs to the product of columns."""
    rng, layout = np.random.default_rng(2), StateLayout(STATES)
    counts = pair_counts(layout, dependent_rows(rng, 60))
    single = []
    for k, states in enumerate(STATES):
        own, uniform = np.diagonal(counts[block(layout, k, k)]), np.full(states, 1.0 / states)
        best = max(PRIOR_STRENGTHS, key=lambda a: evidence(own, uniform, a))
        # What there is of other classes, nothing, is drawn first, then the class to that.
        single.append((own + best * uniform) / (60 + best))
    cells, chosen = prior_cells(layout, counts, counts), []
    for i, j in ((0, 1), (0, 2), (1, 2)):
        own, apart = counts[block(layout, i, j)], np.outer(single[i], single[j])
        chosen.append(max(PRIOR_STRENGTHS, key=lambda a: evidence(own, apart, a)))
        expected = (own + chosen[-1] * apart) / (60 + chosen[-1])
        np.testing.assert_allclose(cells[block(layout, i, j)], expected, atol=1e-12)
    assert chosen[0] < chosen[1]  # the first two columns depend on each other


def test_each_variable_has_a_strength_of_its_own():
    """What is the same in all components is drawn strongly, what tells them apart is not."""
    rng, layout = np.random.default_rng(3), StateLayout((2, 2, 2, 2))
    noise = [rng.integers(2, size=(60, 3)) for _ in range(8)]
    parts = [np.column_stack([np.full(60, k % 2), one]) for k, one in enumerate(noise)]
    parts = [one.astype(float) for one in parts]
    pairs = np.stack(
        [
            weighted_products(
                layout.design(encode(one, layout.num_states)), np.ones((len(one), 1))
            )[0]
            for one in parts
        ]
    )
    counts = pair_counts(layout, np.vstack(parts))
    trees = shrunk_trees(layout, pairs, prior_cells(layout, counts, counts), (0.1, 1, 10, 100))
    added = np.bincount(trees.variables, trees.added, 4) / 8
    assert added[0] == pytest.approx(0.1)
    assert added[1:].min() == pytest.approx(100.0)
    with_one = shrunk_trees(layout, pairs, prior_cells(layout, counts, counts), (5.0,))
    np.testing.assert_allclose(np.bincount(with_one.variables, with_one.added, 4) / 8, 5.0)


@pytest.mark.parametrize("first", [True, False])
def test_a_column_that_is_the_class_tells_it(first):
    """Beside five columns of 16 intervals, whose states are rare in one class or the other."""
    rng = np.random.default_rng(4)
    kind = (rng.random(700) < 0.4).astype(int)
    common = 2.0 * kind + rng.normal(size=700)
    numbers = [common + 0.6 * rng.normal(size=700) for _ in range(5)]
    bins = [np.searchsorted(np.quantile(one, np.arange(1, 16) / 16), one) for one in numbers]
    columns = [kind, *bins] if first else [*bins, kind]
    values = np.column_stack([*columns, kind]).astype(float)
    states = (2, *[16] * 5) if first else (*[16] * 5, 2)
    domain = domain_of((*states, 2))
    circuit = ChowLiuMixture(target="g").learn(domain, values[:450])
    assert (circuit.predict(values[450:], "g") == kind[450:]).all()
    without = np.where(np.arange(7) == (0 if first else 5), np.nan, values[450:])
    assert (circuit.predict(without, "g") == kind[450:]).mean() < 0.95
