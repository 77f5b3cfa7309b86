"""Parts of the search for ancestral graphs: proposals, and graphs without an edge."""

from itertools import combinations

import numpy as np
import pytest
from ancestral_graphs import correlations_of, random_mag

from flwr_causal.core.blocks.pag import NumberSource
from flwr_causal.core.ges import ancestral_search
from flwr_causal.core.ges.ancestral_kernels import pair_correlations
from flwr_causal.core.ges.ancestral_search import AncestralSearch
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.graphs.pag.marks import NONE, ancestral_separators
from flwr_causal.core.graphs.pag.rules import member, oriented
from flwr_causal.core.linear.moments import SampleMoments


def searched(rng, d, n=300, knowledge=None, **options):
    second = correlations_of(rng, d, n)
    moments = SampleMoments(n, np.zeros(d), second, tuple(f"x{k}" for k in range(d)))
    return AncestralSearch(NumberSource(moments), knowledge, **options)


def partial_correlation(correlations, i, j, given):
    inverse = np.linalg.inv(correlations[np.ix_([i, j, *given], [i, j, *given])])
    return -inverse[0, 1] / np.sqrt(inverse[0, 0] * inverse[1, 1])


def computed(correlations, i, j, sets):
    found, size = np.empty(len(sets)), len(sets[0])
    given = np.array(sets, dtype=np.int64).reshape(len(sets), size)
    pair_correlations(correlations, i, j, given, np.empty((size + 2, size + 2)), found)
    return found


@pytest.mark.parametrize("size", range(5))
def test_partial_correlations_are_those_of_the_inverse(size):
    correlations = correlations_of(np.random.default_rng(size), 8)
    sets = list(combinations([0, 1, 3, 4, 6, 7], size))
    expected = [partial_correlation(correlations, 5, 2, given) for given in sets]
    np.testing.assert_allclose(computed(correlations, 5, 2, sets), expected, atol=1e-9)


def test_a_set_that_determines_a_variable_has_no_partial_correlation():
    rows = np.random.default_rng(0).normal(size=(50, 5))
    rows[:, 4] = rows[:, 0] + rows[:, 1]
    correlations = np.corrcoef(rows.T)
    found = computed(correlations, 2, 4, [(0, 1), (0, 3), (1, 3)])
    assert np.isfinite(found).tolist() == [False, True, True]
    assert computed(correlations, 2, 3, [(0, 1, 4)]).tolist() == [np.inf]


def every_proposal(search, adjacent, i, j):
    """The least z for each set of common neighbours, of all sets of neighbours."""
    common = set(np.flatnonzero(adjacent[i] & adjacent[j]).tolist())
    near = [set(np.flatnonzero(adjacent[a]).tolist()) - {i, j} for a in (i, j)]
    rows, correlations, best = search.source.moments.n, search.source.correlations, {}
    for size in range(ancestral_search.MOST_GIVEN + 1):
        sets = {s for pool in near for s in combinations(sorted(pool), size)}
        if not 0 < len(sets) <= ancestral_search.MOST_SETS:
            break
        for given in sets:
            partial = abs(partial_correlation(correlations, i, j, given))
            z = np.arctanh(partial) * np.sqrt(rows - size - 3)
            key = frozenset(common & set(given))
            if z < search.most_z and (key not in best or z < best[key][0]):
                best[key] = (z, given)
    return sorted(best.values())[: search.most_proposals] if common else []


@pytest.mark.parametrize("most_sets", [2000, 20])
def test_proposals_are_the_least_dependences_given_sets_of_neighbours(monkeypatch, most_sets):
    monkeypatch.setattr(ancestral_search, "MOST_SETS", most_sets)
    ancestral_search._combinations.cache_clear()
    rng, found = np.random.default_rng(1), 0
    for _ in range(4):
        search = searched(rng, 8)
        adjacent = np.triu(rng.random((8, 8)) < 0.6, 1)
        adjacent |= adjacent.T
        expected = [
            (i, j, given, z)
            for i, j in np.argwhere(np.triu(adjacent)).tolist()
            for z, given in every_proposal(search, adjacent, i, j)
        ]
        proposals = search._proposals(adjacent)
        assert [z for z, *_ in proposals] == sorted(z for z, *_ in proposals)
        assert {one[1:] for one in proposals} == {one[:3] for one in expected}
        np.testing.assert_allclose(
            [z for z, *_ in proposals], sorted(z for *_, z in expected), atol=1e-6
        )
        found += len(proposals)
    ancestral_search._combinations.cache_clear()  # of another bound
    assert found > 50


@pytest.mark.parametrize("knowledge", [None, Knowledge(tiers=[["x0", "x1"], ["x2", "x3", "x4"]])])
def test_without_an_edge_a_graph_is_a_member_of_the_pag_of_what_separates_its_pairs(knowledge):
    rng, kept, refused = np.random.default_rng(2), 0, 0
    for _ in range(25):
        search, mag = searched(rng, 5, knowledge=knowledge), random_mag(rng, 5)
        separators = ancestral_separators(mag)
        before = separators.copy()
        for i, j in np.argwhere(np.triu(mag != NONE)):
            others = [k for k in range(5) if k not in (i, j)]
            given = tuple(k for k in others if rng.random() < 0.5)
            left, own = mag != NONE, before.copy()
            left[i, j] = left[j, i] = False
            own[i, j] = own[j, i] = np.isin(np.arange(5), given)
            expected = member(oriented(left, own, search.known))
            if expected is not None and not search.known.agrees(expected):
                expected = None
            found = search._without(mag, separators, i, j, given)
            assert (found is None) == (expected is None)
            if expected is not None:
                np.testing.assert_array_equal(found, expected)
            kept, refused = kept + (expected is not None), refused + (expected is None)
            np.testing.assert_array_equal(separators, before)
    assert kept > 20
    assert refused > 0
