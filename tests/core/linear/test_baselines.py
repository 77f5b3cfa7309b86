"""The paper's baselines on the pooled rows and on each party's."""

import numpy as np
import pytest

from flwr_causal.core.linear import baselines
from flwr_causal.core.linear.moments import SampleMoments, merge
from flwr_causal.core.linear.notears import notears

NAMES = ("a", "b", "c")


def edges(found):
    return {(cause, effect): weight for cause, effect, weight in found.edges()}


@pytest.fixture
def parties():
    """Three parties of a chain a -> b -> c, 60 rows each, at different levels."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, 60, 3))
    rows[..., 1] += 1.5 * rows[..., 0]
    rows[..., 2] -= 1.2 * rows[..., 1]
    return [SampleMoments.from_rows(part, NAMES) for part in rows]


def test_all_data_is_notears_on_the_pooled_rows(parties):
    found = baselines.all_data(parties)
    pooled = notears(merge(parties), sparsity=0.1, threshold=0.3)
    np.testing.assert_array_equal(found.weights, pooled.weights)
    assert set(edges(found)) == {("a", "b"), ("b", "c")}


@pytest.mark.slow
def test_alone_is_notears_on_each_party_in_their_order(parties):
    found = baselines.alone(parties)
    assert len(found) == 3
    for own, moments in zip(found, parties, strict=True):
        np.testing.assert_array_equal(own.weights, notears(moments, sparsity=0.1).weights)
        assert own.raw_weights is not None


def test_a_column_that_is_constant_at_a_party_has_no_edges_there():
    rng = np.random.default_rng(1)
    a = rng.standard_normal(80)
    rows = np.column_stack([a, np.full(80, 7.0), 2.0 * a + rng.standard_normal(80)])
    (found,) = baselines.alone([SampleMoments.from_rows(rows, NAMES)])
    assert set(edges(found)) == {("a", "c")}
    assert found.names == NAMES


@pytest.mark.parametrize("rows", [np.ones((1, 3)), np.ones((5, 3))])
def test_a_party_without_variation_finds_nothing(rows):
    (found,) = baselines.alone([SampleMoments.from_rows(rows, NAMES)])
    assert found.num_edges == 0
