"""Unknown targets of interventions by party, from second moments."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_causal.core.graphs.equivalence import consistent_extension, cpdag
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.interventions.moments import moments_by_variable
from flwr_causal.core.interventions.targets import (
    find_targets,
    own_mechanisms,
    told_directions,
    with_shares,
)
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.order_search import search_orders

# x0 -> x1 -> x2 <- x3
WEIGHTS = np.zeros((4, 4))
WEIGHTS[0, 1], WEIGHTS[1, 2], WEIGHTS[3, 2] = 1.2, -1.0, 0.9
NAMES = ("x0", "x1", "x2", "x3")


def rows_of(rng, n, *, cut=(), shift=(), scale=(), draw=None):
    """Rows of the system; some variables are set, have another level or another noise."""
    weights, level, spread = WEIGHTS.copy(), np.zeros(4), np.ones(4)
    weights[:, list(cut)] = 0.0
    level[[*cut, *shift]] = 2.0
    spread[list(scale)] = 0.3
    noise = (draw or rng.standard_normal)(size=(n, 4))
    return np.linalg.solve((np.eye(4) - weights).T, (level + spread * noise).T).T


def products_of(parties):
    designs = [np.column_stack([np.ones(len(rows)), rows]) for rows in parties]
    return np.stack([design.T @ design for design in designs])


def search_in(products, graph=None):
    n = round(products[:, 0, 0].sum())

    def search(replaced, shifted):
        if graph is not None:
            return graph
        own = moments_by_variable(products / n, replaced, n, NAMES, NAMES, shifted)
        return search_orders(own, EdgeMasks.free(4)).best.adjacency

    return search


def found_in(parties, graph=None):
    products = products_of(parties)
    return find_targets(products, [1] * 4, 4, search_in(products, graph))


def pairs(acted):
    return [tuple(pair) for pair in np.argwhere(acted).tolist()]


@pytest.mark.parametrize(
    ("acts", "kind"),
    [({"cut": (2,)}, "replaced"), ({"shift": (1,)}, "shifted"), ({"scale": (2,)}, "shifted")],
    ids=str,
)
def test_the_target_and_whether_its_causes_act_there(acts, kind):
    rng = np.random.default_rng(3)
    parties = [rows_of(rng, 200) for _ in range(3)] + [rows_of(rng, 200, **acts)]
    found = found_in(parties)
    (target,) = next(iter(acts.values()))
    assert pairs(found.acted) == [(3, target)]
    assert pairs(getattr(found, kind)) == [(3, target)]
    assert found.gains[3, target] > 20
    assert found.gains[~found.acted].max() <= 0


def test_several_parties_and_targets_at_once():
    rng = np.random.default_rng(4)
    acts = [{}, {"cut": (1,)}, {"shift": (0,)}, {"cut": (2,), "shift": (3,)}, {}]
    found = found_in([rows_of(rng, 300, **own) for own in acts])
    assert pairs(found.acted) == [(1, 1), (2, 0), (3, 2), (3, 3)]


def test_a_gain_is_that_of_the_tests_of_chow_and_of_bartlett():
    rng = np.random.default_rng(5)
    parties = [rows_of(rng, 150), rows_of(rng, 120), rows_of(rng, 130, shift=(1,), scale=(1,))]
    graph = WEIGHTS != 0
    products = products_of(parties)
    found = find_targets(products, [1] * 4, 4, lambda *_: graph)
    assert pairs(found.acted) == [(2, 1)]
    # x1 on x0 and 1, in the third party with one more row of all rows' mean products
    total = products.sum(axis=0)
    alone, rest = products[2] + total / total[0, 0], products[0] + products[1]
    given, own = [0, 1], 2

    def squares(part):
        weights = np.linalg.solve(part[np.ix_(given, given)], part[given, own])
        return part[own, own] - weights @ part[given, own]

    free = alone[0, 0] - 2, rest[0, 0] - 2
    apart = squares(alone), squares(rest)
    chow = sum(free) / 2 * np.log(squares(alone + rest) / sum(apart))
    bartlett = sum(free) / 2 * np.log(sum(apart) / sum(free))
    bartlett -= sum(f / 2 * np.log(s / f) for f, s in zip(free, apart, strict=True))
    # The other pairs differ by sampling alone: nothing is divided by more than 3 or so.
    cost = 3 / 2 * np.log(130) + np.log(4 / 0.05)
    gain = found.gains[2, 1] + cost
    assert (chow + bartlett) / 3 < gain <= chow + bartlett + 1e-6


def test_no_targets_where_parties_differ_by_sampling_alone():
    acted = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        draw = rng.standard_normal if seed % 2 else rng.standard_exponential
        acted += found_in([rows_of(rng, 150, draw=draw) for _ in range(5)]).acted.any(axis=1).sum()
    # 200 parties, of which 5 % would be 10
    assert acted <= 2


@settings(max_examples=10, deadline=None)
@given(
    order=st.permutations(range(4)),
    variables=st.permutations(range(4)),
    scale=st.lists(st.floats(0.01, 100), min_size=4, max_size=4),
)
def test_neither_order_nor_units_matter(order, variables, scale):
    rng = np.random.default_rng(6)
    acts = [{}, {"cut": (2,)}, {"shift": (1,)}, {}]
    parties = [rows_of(rng, 200, **own) for own in acts]
    graph = WEIGHTS != 0
    one = found_in(parties, graph)
    variables = list(variables)
    other = found_in(
        [(parties[k] * np.array(scale) + 3)[:, variables] for k in order],
        graph[np.ix_(variables, variables)],
    )
    np.testing.assert_array_equal(other.replaced, one.replaced[list(order)][:, variables])
    np.testing.assert_array_equal(other.shifted, one.shifted[list(order)][:, variables])
    np.testing.assert_allclose(
        other.gains, one.gains[list(order)][:, variables], rtol=1e-6, atol=1e-6
    )


def test_a_party_of_too_few_rows_never_acts():
    rng = np.random.default_rng(7)
    parties = [rows_of(rng, 200), rows_of(rng, 200), rows_of(rng, 3, cut=(0, 1, 2, 3))]
    found = found_in(parties, WEIGHTS != 0)
    assert not found.acted.any()
    assert found.gains[2, 2] == -np.inf


def test_a_shifted_group_counts_about_its_own_mean():
    rng = np.random.default_rng(8)
    parties = [rows_of(rng, 100), rows_of(rng, 80, shift=(1,))]
    n, products = 180, products_of(parties)
    acted, shifted = np.zeros((2, 2, 4), dtype=bool)
    shifted[1, 1] = True
    own = moments_by_variable(products / n, acted, n, NAMES, NAMES, shifted)
    moved = np.concatenate(
        [parties[0], parties[1] - parties[1].mean(axis=0) + parties[0].mean(axis=0)]
    )
    expected = SampleMoments.from_rows(moved, NAMES)
    np.testing.assert_allclose(own[1].second, expected.second, atol=1e-12)
    np.testing.assert_allclose(own[1].mean, expected.mean, atol=1e-12)
    pooled = SampleMoments.from_rows(np.concatenate(parties), NAMES)
    for j in (0, 2, 3):
        np.testing.assert_allclose(own[j].second, pooled.second, atol=1e-12)
        assert own[j] is own[0]


def test_shares_of_replicates():
    one = {"party": "a", "variable": "x", "gain": 5.0, "causes": "alike"}
    other = {"party": "b", "variable": "y", "gain": 3.0, "causes": "unlike"}
    shares = with_shares([one, other], [[one], [one, other], [], [one]])
    assert [record["confidence"] for record in shares] == [0.75, 0.25]
    assert shares[0] | {} == {**one, "confidence": 0.75}


def tree(edges, d=5):
    marks = np.zeros((d, d), dtype=bool)
    for i, j in edges:
        marks[i, j] = marks[j, i] = True
    return marks


def rooted(marks, root):
    """The member of a tree's class with this root."""
    directed, done = np.zeros_like(marks), [root]
    for i in done:
        for j in np.flatnonzero(marks[i]):
            if j not in done:
                directed[i, j] = True
                done.append(int(j))
    return directed


TREES = {
    "chain": [(0, 1), (1, 2), (2, 3), (3, 4)],
    "star": [(2, 0), (2, 1), (2, 3), (2, 4)],
    "tree": [(1, 0), (1, 2), (2, 3), (2, 4)],
}


def rows_of_tree(rng, dag, n, target=None, spread=3.0, level=0.0):
    noise = rng.standard_normal((n, len(dag)))
    if target is not None:
        noise[:, target] = level + spread * noise[:, target]
    return np.linalg.solve((np.eye(len(dag)) - 1.1 * dag).T, noise.T).T


@pytest.mark.few(15)
@pytest.mark.parametrize("edges", TREES.values(), ids=TREES)
@pytest.mark.parametrize("target", range(5))
@pytest.mark.parametrize("change", [{"spread": 3.0}, {"spread": 0.3}, {"spread": 1.0, "level": 2}])
def test_a_change_at_one_variable_of_a_class_is_found_there_and_never_directs_wrongly(
    edges, target, change
):
    marks, rng = tree(edges), np.random.default_rng(target)
    dag = rooted(marks, 0)
    parties = [rows_of_tree(rng, dag, 600) for _ in range(4)]
    parties.append(rows_of_tree(rng, dag, 600, target, **change))
    products = products_of(parties)
    acted = own_mechanisms(products, marks)
    assert pairs(acted) == [(4, target)]
    told = told_directions(products, marks, acted)
    assert (told >= dag).all()
    np.testing.assert_array_equal(told | told.T, marks)
    # The member at hand does not matter: neither does the order of the variables.
    order = np.array([3, 0, 4, 2, 1])
    both, moved = np.ix_(order, order), products[:, np.r_[0, 1 + order]][:, :, np.r_[0, 1 + order]]
    assert pairs(own_mechanisms(moved, marks[both])) == [(4, order.tolist().index(target))]
    np.testing.assert_array_equal(told_directions(moved, marks[both], acted[:, order]), told[both])


def test_the_member_is_the_one_in_which_gains_are_largest():
    """On trees, whose members are told by their roots; two targets at once."""
    from flwr_causal.core.interventions.targets import _columns, _Members, comparable

    for seed in range(6):
        rng = np.random.default_rng(seed)
        marks = tree(list(TREES.values())[seed % 3])
        dag = rooted(marks, int(rng.integers(5)))
        one, two = rng.choice(5, 2, replace=False)
        parties = [rows_of_tree(rng, dag, 300) for _ in range(4)]
        parties += [rows_of_tree(rng, dag, 300, one), rows_of_tree(rng, dag, 300, two, 0.3, 1.0)]
        products = comparable(products_of(parties))
        none = np.zeros((6, 5), dtype=bool)
        members = _Members(products, _columns(marks, None), marks, none)
        best, total = members.fewest(marks)
        totals = [members.fewest(rooted(marks, root))[1] for root in range(5)]
        assert total == pytest.approx(max(totals))
        assert consistent_extension(best) is not None
        np.testing.assert_array_equal(cpdag(best), marks)


def test_nothing_is_told_where_no_party_acts():
    marks, rng = tree(TREES["star"]), np.random.default_rng(0)
    products = products_of([rows_of_tree(rng, rooted(marks, 0), 200) for _ in range(5)])
    acted = own_mechanisms(products, marks)
    assert not acted.any()
    assert told_directions(products, marks, acted) is marks
