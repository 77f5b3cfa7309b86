"""The compiled search: the same likelihood as in numpy, and changes that are the best near them."""

from itertools import product

import numpy as np
import pytest
from ancestral_graphs import correlations_of, random_mag

from flwr_causal.core.ges.ancestral_kernels import (
    FIT_TIE,
    AncestralBounds,
    Scored,
    other_edge,
    other_meeting_edges,
    total,
)
from flwr_causal.core.ges.ancestral_search import AncestralScore
from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.pag.marks import (
    ARROW,
    NONE,
    TAIL,
    directed_edges,
    is_ancestral,
    marks_of_dag,
)
from flwr_causal.core.graphs.pag.rules import Ancestry

KINDS = ((ARROW, TAIL), (TAIL, ARROW), (ARROW, ARROW), (NONE, NONE))


def setting(rng, d, n=500, cost=3.0):
    return Scored.of(correlations_of(rng, d, n), np.arange(d), float(n), np.full((d, d), cost))


def free(d):
    nothing = np.zeros((d, d), dtype=bool)
    return AncestralBounds(nothing, nothing, nothing)


@pytest.mark.parametrize("widths", [[1] * 6, [2, 1, 3, 1, 1]])
def test_the_score_is_that_in_numpy(widths):
    rng, d = np.random.default_rng(1), len(widths)
    correlations = correlations_of(rng, sum(widths))
    owner = np.repeat(np.arange(d), widths)
    costs = np.abs(rng.normal(size=(d, d)))
    costs += costs.T
    score = AncestralScore(correlations, 500, costs, widths)
    for _ in range(30):
        marks, parts = random_mag(rng, d), np.zeros(d)
        found = total(Scored.of(correlations, owner, 500.0, costs), marks, parts)
        assert found == pytest.approx(score(marks), abs=1e-6)


def test_graphs_that_do_not_fit_are_not_ancestral_or_against_the_bounds():
    rng, d = np.random.default_rng(2), 5
    seen = set()
    for _ in range(300):
        marks = np.zeros((d, d), dtype=np.int64)
        for i, j in zip(*np.triu_indices(d, 1), strict=True):
            marks[i, j], marks[j, i] = KINDS[rng.integers(4)]
        seen.add(is_ancestral(marks))
        assert Ancestry.none(d).agrees(marks) == is_ancestral(marks)
        no_causes = rng.random((d, d)) < 0.05
        against = (ancestors(directed_edges(marks)) & no_causes).any()
        known = Ancestry.none(d)._replace(no_causes=no_causes)
        assert known.agrees(marks) == (is_ancestral(marks) and not against)
    assert seen == {True, False}
    marks = marks_of_dag(np.triu(np.ones((3, 3), dtype=bool), 1)).astype(np.int64)
    required = np.zeros((3, 3), dtype=bool)
    required[0, 1] = True
    known = Ancestry.none(3)._replace(required=required)
    assert known.agrees(marks)
    assert not known.agrees(marks.T)


@pytest.mark.parametrize("change", [other_edge, other_meeting_edges])
def test_changes_improve_the_score_by_their_gain_until_none_does(change):
    rng, d = np.random.default_rng(3), 5
    taken = 0
    for _ in range(10):
        scored, marks, parts = setting(rng, d), random_mag(rng, d, density=0.7), np.zeros(d)
        bounds, before = free(d), total(scored, marks, parts)
        while gain := change(scored, bounds, marks, marks.copy(), parts):
            after = total(scored, marks, parts.copy())
            assert before - after == pytest.approx(gain, abs=1e-6)
            assert gain > FIT_TIE * scored.rows
            assert is_ancestral(marks)
            before, taken = after, taken + 1
        for changed in changes(marks, change is other_meeting_edges):
            if is_ancestral(changed):
                least = before - FIT_TIE * scored.rows - 1e-6
                assert total(scored, changed, np.zeros(d)) > least
    assert taken > 3


def changes(marks, meeting):
    """Graphs in which one edge is another one or none, or two that meet are other ones."""
    edges = list(zip(*np.nonzero(np.triu(marks)), strict=True))
    if not meeting:
        for (i, j), kind in product(edges, KINDS):
            changed = marks.copy()
            changed[i, j], changed[j, i] = kind
            yield changed
        return
    for first, second in product(edges, edges):
        if first < second and set(first) & set(second):
            for one, two in product(KINDS[:3], KINDS[:3]):
                changed = marks.copy()
                for (i, j), kind in ((first, one), (second, two)):
                    changed[i, j], changed[j, i] = kind
                yield changed


def test_pairs_without_an_edge_are_joined_only_where_they_may_be():
    rng = np.random.default_rng(4)
    hidden = rng.normal(size=500)
    rows = np.column_stack([hidden + rng.normal(size=500) for _ in range(2)])
    scored = Scored.of(np.corrcoef(rows.T), np.arange(2), 500.0, np.full((2, 2), 3.0))
    marks, parts = np.zeros((2, 2), dtype=np.int64), np.zeros(2)
    total(scored, marks, parts)
    assert other_edge(scored, free(2), marks, marks.copy(), parts) == 0
    both = ~np.eye(2, dtype=bool)
    bounds = AncestralBounds(both, np.zeros((2, 2), dtype=bool), both)
    correlation = scored.correlations[0, 1]
    expected = -250 * np.log(1 - correlation**2) - 3.0
    assert other_edge(scored, bounds, marks, marks.copy(), parts) == pytest.approx(expected)
    assert (marks == [[NONE, ARROW], [ARROW, NONE]]).all()
