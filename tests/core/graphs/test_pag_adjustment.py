"""Adjustment sets in PAGs, against all ancestral graphs of small classes."""

from itertools import chain, combinations, permutations, product

import numpy as np
import pytest

from flwr_causal.core.graphs import adjustment
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.pag.marks import (
    ARROW,
    CIRCLE,
    TAIL,
    directed_edges,
    is_ancestral,
    mag,
)
from flwr_causal.core.graphs.pag.rules import describes_one_class, pag_of_mag
from flwr_causal.errors import DataError


def random_pag(rng, seen, hidden):
    size = seen + hidden
    order = rng.permutation(size)
    dag = np.zeros((size, size), dtype=bool)
    dag[np.ix_(order, order)] = np.triu(rng.random((size, size)) < rng.uniform(0.3, 0.7), 1)
    return pag_of_mag(mag(dag, list(range(seen))))


def members(pag):
    """All MAGs of the class, by trying all marks at the circles."""
    circles = np.argwhere(pag == CIRCLE)
    found = []
    for filled in product((TAIL, ARROW), repeat=len(circles)):
        marks = pag.copy()
        marks[tuple(circles.T)] = filled
        tails = (marks == TAIL) & (marks.T == TAIL)
        if not tails.any() and is_ancestral(marks) and np.array_equal(pag_of_mag(marks), pag):
            found.append(marks)
    return found


def covariance_of(marks, also, rng):
    """A covariance matrix of a MAG and its total effects.

    Effects along i -> j, and covariances of the noise for i <-> j and for the pair ``also``.
    """
    d = len(marks)
    signs = rng.choice([-1, 1], (d, d))
    effects = np.where(directed_edges(marks), signs * rng.uniform(0.3, 0.9, (d, d)), 0)
    noise = np.diag(rng.uniform(2, 3, d))
    for i, j in combinations(range(d), 2):
        if marks[i, j] == marks[j, i] == ARROW or {i, j} == set(also):
            noise[i, j] = noise[j, i] = rng.uniform(0.1, 0.4) * rng.choice([-1, 1])
    total = np.linalg.inv(np.eye(d) - effects)
    return total.T @ noise @ total, total


def covariances_of(pag, rng):
    """Of each graph of the class, alone and with a hidden cause beside each invisible edge."""
    found = []
    for one in members(pag):
        edges = [(i, j) for i, j in np.argwhere(directed_edges(one))]
        beside = [edge for edge in edges if not adjustment.is_visible(one, *edge)]
        found += [covariance_of(one, also, rng) for also in ((), *beside)]
    return found


def subsets(items):
    return chain.from_iterable(combinations(items, k) for k in range(len(items) + 1))


def adjusts(covariances, cause, effect, given):
    columns = [cause, *given]
    for covariance, total in covariances:
        inner = covariance[np.ix_(columns, columns)]
        found = np.linalg.solve(inner, covariance[columns, effect])[0]
        if abs(found - total[cause, effect]) > 1e-9:
            return False
    return True


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_sets_are_the_smallest_that_give_the_effect_in_every_graph_of_the_class(seed):
    rng = np.random.default_rng(seed)
    for _ in range(30):
        pag = random_pag(rng, int(rng.integers(3, 6)), int(rng.integers(0, 3)))
        if (pag == CIRCLE).sum() > 8:
            continue
        covariances = covariances_of(pag, rng)
        assert covariances
        d = len(pag)
        for cause, effect in permutations(range(d), 2):
            others = [k for k in range(d) if k not in (cause, effect)]
            possible = [s for s in subsets(others) if adjusts(covariances, cause, effect, s)]
            found = adjustment.smallest_set_in_pag(pag, cause, effect)
            assert (found is None) == (not possible), (pag, cause, effect, possible)
            if found is not None:
                assert tuple(found) in possible
                assert len(found) == min(map(len, possible))


def named(*edges):
    """A PAG over a to f."""
    marks = np.zeros((6, 6), dtype=np.int64)
    for start, symbol, end in edges:
        i, j = (ord(name) - ord("a") for name in (start, end))
        marks[j, i] = CIRCLE if symbol[0] == "o" else ARROW if symbol[0] == "<" else TAIL
        marks[i, j] = ARROW if symbol[-1] == ">" else CIRCLE
    return CausalGraph.from_marks(marks, list("abcdef"))


def test_an_edge_is_visible_through_a_neighbour_and_through_a_path_of_colliders():
    graph = named(("a", "o->", "b"), ("b", "->", "c"), ("e", "o->", "d"), ("d", "<->", "b"))
    assert adjustment.is_visible(graph.marks, 1, 2)
    assert not adjustment.is_visible(graph.marks, 0, 1)
    # e o-> d <-> b -> c, d -> c: the path e, d, b makes b -> c visible, d alone does not.
    path = named(("e", "o->", "d"), ("d", "<->", "b"), ("b", "->", "c"), ("d", "->", "c"))
    assert adjustment.is_visible(path.marks, 1, 2)
    alone = named(("d", "<->", "b"), ("b", "->", "c"), ("d", "->", "c"))
    assert not adjustment.is_visible(alone.marks, 1, 2)


def test_a_known_effect_needs_the_variable_that_acts_on_cause_and_effect():
    # a o-> b, b -> c, d -> c, d o-> b: the effect of b on c is adjusted for d.
    graph = named(("a", "o->", "b"), ("b", "->", "c"), ("d", "->", "c"), ("d", "o->", "b"))
    assert graph.adjustment_set("b", "c") == ("d",)
    with pytest.raises(DataError, match=r"effect of d on c is not identified.*d o-> b, d -> c"):
        graph.adjustment_set("d", "c")
    assert graph.may_cause("d", "c")
    assert not graph.may_cause("c", "b")
    assert graph.adjustment_set("c", "b") is None


def test_marks_that_leave_several_classes_open_identify_no_effect():
    # The class of a o-> b <-o d, b -> c has c -> e, since a and e are not adjacent ...
    settled = named(("a", "o->", "b"), ("d", "o->", "b"), ("b", "->", "c"), ("c", "->", "e"))
    assert describes_one_class(settled.marks)
    assert settled.adjustment_set("b", "c") == ()
    # ... and knowledge may add marks to it, but nothing may take one away.
    known = named(("a", "->", "b"), ("d", "o->", "b"), ("b", "->", "c"), ("c", "->", "e"))
    assert describes_one_class(known.marks)
    assert known.adjustment_set("b", "c") == ()
    open_ = named(("a", "o->", "b"), ("d", "o->", "b"), ("b", "->", "c"), ("c", "o-o", "e"))
    assert not describes_one_class(open_.marks)
    with pytest.raises(DataError, match="different independences"):
        open_.adjustment_set("b", "c")
    assert open_.adjustment_set("c", "b") is None
