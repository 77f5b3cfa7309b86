"""A party's own graph of a linear system, without and with lags, from second moments."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.interventions.local_graphs import own_graph
from flwr_causal.core.interventions.targets import own_mechanisms
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.series.design import (
    join_blocks,
    knowledge_masks,
    lagged_names,
    lagged_rows,
)

NAMES = ("a", "b", "c", "d")
# a -> b -> c -> d at t, and two lags: a[t-1] -> a, b[t-2] -> d
NOW = np.diag([1.0, 1.0, 1.0], k=1)
LAGGED = np.zeros((2, 4, 4))
LAGGED[0, 0, 0], LAGGED[1, 1, 3] = 0.6, -0.7


def steps(rng, n, now=NOW, lagged=LAGGED):
    """Steps of the system, the first of which are left out."""
    inverse = np.linalg.inv(np.eye(4) - now)
    values = np.zeros((n + 50, 4))
    for t in range(len(lagged), len(values)):
        past = sum(values[t - 1 - k] @ own for k, own in enumerate(lagged))
        values[t] = (past + rng.normal(size=4)) @ inverse
    return values[50:]


def series_of(seed, *, count=5, n=200, party=None, now=NOW, lagged=LAGGED):
    """One series for each party; that of one party is of another system."""
    rng = np.random.default_rng(seed)
    return [steps(rng, n, now, lagged) if k == party else steps(rng, n) for k in range(count)]


def graphs_of(series, order=2, names=NAMES, weights=None, masks=None):
    """The own graph of each party's series, and whose mechanisms differ."""
    designs = [
        np.column_stack([np.ones(len(one) - order), lagged_rows([one], order)]) for one in series
    ]
    products = np.stack([design.T @ design for design in designs])
    common = join_blocks(NOW, LAGGED)[: 4 * (1 + order)] if weights is None else weights
    masks = knowledge_masks(None, names, order) if masks is None else masks
    acted = own_mechanisms(products, common != 0)
    columns = lagged_names(names, order)
    own = [SampleMoments.from_rows(design[:, 1:], columns) for design in designs]
    return [
        own_graph(moments, common, party, masks) for moments, party in zip(own, acted, strict=True)
    ], acted


@pytest.mark.slow
def test_parties_with_the_same_mechanisms_have_the_common_graph():
    common, differing = join_blocks(NOW, LAGGED) != 0, 0
    for seed in range(20):
        found, acted = graphs_of(series_of(seed))
        for own, party in zip(found, acted, strict=True):
            differing += party.any()
            assert np.array_equal(own.graph, common) or party.any()
    # of 100 parties 5 % would be 5
    assert differing <= 2


@pytest.mark.parametrize(
    ("change", "edge"),
    [
        (("lagged", (0, 2, 0), -0.5), (6, 0)),
        (("lagged", (1, 1, 3), 0.0), (9, 3)),
        (("now", (0, 3), 1.0), (0, 3)),
        (("now", (1, 2), 0.0), (1, 2)),
    ],
    ids=str,
)
def test_an_edge_of_one_party_that_others_lack_or_have(change, edge):
    block, place, value = change
    blocks = {"now": NOW.copy(), "lagged": LAGGED.copy()}
    blocks[block][place] = value
    found, acted = graphs_of(series_of(1, n=300, party=3, **blocks))
    assert np.argwhere(acted).tolist() == [[3, edge[1]]]
    common = join_blocks(NOW, LAGGED) != 0
    for k, own in enumerate(found):
        differing = np.argwhere(own.graph != common).tolist()
        assert differing == ([list(edge)] if k == 3 else [])
        assert own.graph.shape == own.weights.shape == own.support.shape == (12, 4)
    support = found[3].support[edge]
    assert support > 20 if value else support < -20


def test_without_lags_the_design_is_that_of_rows():
    rng = np.random.default_rng(0)
    rows = [steps(rng, 200, NOW, ()) for _ in range(4)] + [steps(rng, 200, 0.0 * NOW, ())]
    found, acted = graphs_of(rows, 0, weights=NOW)
    assert acted[4].tolist() == [False, True, True, True]
    assert not found[4].graph.any()
    assert all(np.array_equal(own.graph, NOW != 0) for own in found[:4])


def test_weights_support_and_shares_are_those_of_regressions():
    (series,) = series_of(2, count=1)
    common = 0.8 * join_blocks(NOW, LAGGED)
    rows = lagged_rows([series], 2)
    own = SampleMoments.from_rows(rows, lagged_names(NAMES, 2))
    masks = knowledge_masks(None, NAMES, 2)
    found = own_graph(own, common, np.zeros(4, bool), masks)
    assert np.array_equal(found.graph, common != 0)

    def fit(effect, causes):
        design = np.column_stack([np.ones(len(rows)), rows[:, causes]])
        weights, (squares,) = np.linalg.lstsq(design, rows[:, effect], rcond=None)[:2]
        return weights[1:], squares

    # d has the causes c and b[t-2], columns 2 and 9.
    weights, error = fit(3, [2, 9])
    np.testing.assert_allclose(found.weights[[2, 9], 3], weights, rtol=1e-9)
    assert found.shares[9, 3] == pytest.approx(1 - error / fit(3, [2])[1])
    # The common effect, and the other cause's as it fits beside it, in place of none.
    rest = rows[:, 3] + 0.8 * 0.7 * rows[:, 9]
    design = np.column_stack([np.ones(len(rows)), rows[:, 2]])
    given = np.linalg.lstsq(design, rest, rcond=None)[1][0]
    assert found.support[9, 3] == pytest.approx(len(rows) / 2 * np.log(fit(3, [2])[1] / given))
    assert found.support[4, 1] == 0


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(4)), scale=st.lists(st.floats(0.1, 10), min_size=4, max_size=4))
def test_neither_the_order_of_the_variables_nor_their_units_matter(order, scale):
    lagged = LAGGED.copy()
    lagged[0, 2, 1] = -0.5
    series = series_of(3, party=0, lagged=lagged)
    usual, _ = graphs_of(series)
    places = np.concatenate([4 * lag + np.array(order) for lag in range(3)])
    moved = join_blocks(NOW, LAGGED)[places][:, order]
    units = np.array(scale)[order]
    moved = moved * units / np.tile(units, 3)[:, None]
    other, _ = graphs_of([one[:, order] * units for one in series], weights=moved)
    for one, same in zip(usual, other, strict=True):
        assert np.array_equal(one.graph[places][:, order], same.graph)
        np.testing.assert_allclose(one.support[places][:, order], same.support, atol=1e-6)


def test_knowledge_of_lags_is_kept():
    lagged = LAGGED.copy()
    lagged[0, 2, 0], lagged[1, 1, 3] = -0.5, 0.0
    known = Knowledge(forbidden_lagged=[("c", "a", 1)], required_lagged=[("b", "d", 2)])
    masks = knowledge_masks(known, NAMES, 2)
    found, acted = graphs_of(series_of(4, party=2, lagged=lagged), masks=masks)
    assert acted[2].tolist() == [True, False, False, True]
    assert found[2].graph[9, 3]
    assert not found[2].graph[6, 0]


def test_a_constant_column_has_neither_causes_nor_effects():
    rng = np.random.default_rng(0)
    rows = steps(rng, 200, NOW, ())
    rows[:, 1] = 2.0
    acted = np.array([False, True, True, False])
    found = own_graph(SampleMoments.from_rows(rows, NAMES), 1.2 * NOW, acted, EdgeMasks.free(4))
    assert not found.graph[1].any()
    assert np.isfinite(found.support).all()
    assert np.isfinite(found.weights).all()
    # The rows say nothing of its effects, and that it is no effect of the others.
    assert (found.support[1] == 0).all()
