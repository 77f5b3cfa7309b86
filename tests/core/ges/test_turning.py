"""The turning operators against all members of the class, and the phase that applies them."""

import numpy as np
import pytest
from reference_search import (
    Enough,
    SlowScore,
    all_classes,
    changed,
    members_of,
    random_classes,
    random_table,
    sampled_table,
    search_on,
    told_apart,
)

from flwr_causal.core.discrete.families import empty_families
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.ges.cpdag import NO_PAIRS, class_of, graph_of
from flwr_causal.core.ges.greedy_search import Search, knowing_member
from flwr_causal.core.ges.operators import (
    is_valid,
    possible_turns,
    turn_gains,
    turned,
    unknown_gains,
)
from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.knowledge import EdgeMasks


def with_one_edge_reversed(members, pairs=NO_PAIRS):
    """The other classes of the members with one edge reversed, where that makes no cycle."""
    return {
        other.tobytes()
        for dag in members
        for i, j in np.argwhere(dag).tolist()
        if is_acyclic(reverse := changed(dag, add=[(j, i)], drop=[(i, j)]))
        and not np.array_equal(other := class_of(reverse, pairs), class_of(dag, pairs))
    }


def check_turns(marks, members, table, score, pairs=NO_PAIRS):
    d = len(marks)
    slow, before = score, score.total(members[0])
    graph = graph_of(marks, pairs)
    found, families = possible_turns(graph, empty_families(d, 4, 2), d)
    rows, wanted = unknown_gains(families, found)
    TableGains(table, slow.kind, slow.ess).fill(families, rows, wanted)
    assert len(unknown_gains(families, found)[0]) == 0
    reached = set()
    for turn, gain in zip(found, turn_gains(families, found), strict=True):
        if not is_valid(graph, turn):
            continue
        after = turned(graph, turn)
        reached.add(after.marks.tobytes())
        assert gain == pytest.approx(slow.total(after.dag) - before, abs=1e-8)
        np.testing.assert_array_equal(after.marks, class_of(after.dag, pairs))
        np.testing.assert_array_equal(after.marks | after.marks.T, marks | marks.T)
    assert reached == with_one_edge_reversed(members, pairs)
    np.testing.assert_array_equal(graph.marks, marks)
    return len(found) - len(reached)


@pytest.mark.parametrize("size", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_turns_reach_what_one_reversed_edge_of_any_member_reaches(size):
    table = random_table(size, 50, seed=size)
    slow = SlowScore(table)
    for marks, members in all_classes(size):
        check_turns(marks, members, table, slow)


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("targets", [[{1, 2}], [{0}, {0, 3}]])
def test_turns_among_classes_of_interventions(targets):
    pairs = told_apart(4, targets)
    table = random_table(4, 50, seed=4)
    slow = SlowScore(table)
    for marks, members in all_classes(4, pairs):
        check_turns(marks, members, table, slow, pairs)


@pytest.mark.parametrize(
    "size", [pytest.param(5, marks=pytest.mark.slow), pytest.param(6, marks=pytest.mark.nightly)]
)
def test_turns_of_larger_classes(size):
    table = random_table(size, 60, seed=size)
    slow = SlowScore(table, "qnml")
    assert sum(check_turns(*pair, table, slow) for pair in random_classes(size, 60, seed=size)) > 50


def reversals(dag, masks=None, most=99):
    """Every class that one reversed edge of a member of the class of ``dag`` reaches."""
    for key in with_one_edge_reversed(list(members_of(equivalence.cpdag(dag)))):
        marks = np.frombuffer(key, dtype=bool).reshape(dag.shape)
        member = equivalence.consistent_extension(marks)
        known = masks is None or knowing_member(marks, masks) is not None
        if known and member.sum(axis=0).max() <= most:
            yield member


@pytest.mark.slow
def test_each_turn_is_the_best_one_and_the_phase_ends_where_none_improves():
    applied = 0
    for seed in range(25):
        table = sampled_table(6, 150, seed, edges_per_variable=2.0, concentration=0.3)
        slow = SlowScore(table)
        start = np.triu(np.random.default_rng(seed).random((6, 6)) < 0.4, 1)
        search = Search(graph_of(start), Enough(table, 1), empty_families(6))
        search.source.search = search
        gains = [0.0]
        while True:
            here = slow.total(search.dag)
            best = max((slow.total(member) - here for member in reversals(search.dag)), default=0.0)
            search.source.most = search.num_operators + 1
            if best <= 1e-6:
                break
            assert search.turning() == 1
            gains.append(gains[-1] + best)
            assert search.gain == pytest.approx(gains[-1], abs=1e-6)
        assert search.turning() == 0
        phase = search_on(table, start=start)
        assert phase.turning() == len(gains) - 1 == phase.num_operators
        np.testing.assert_array_equal(phase.graph.marks, search.graph.marks)
        applied += phase.num_operators
    assert applied > 20


def test_with_turning_no_phase_can_improve_the_result():
    turned_further = 0
    for seed in range(30):
        table = sampled_table(7, 200, seed, edges_per_variable=2.0, concentration=0.3)
        plain, turning = search_on(table), search_on(table)
        plain.run()
        turning.run(turn=True)
        assert turning.gain >= plain.gain - 1e-6
        turned_further += turning.gain > plain.gain + 1e-3
        slow = SlowScore(table)
        assert turning.gain == pytest.approx(
            slow.total(turning.dag) - slow.total(np.zeros((7, 7), dtype=bool)), abs=1e-6
        )
        again = search_on(table, start=turning.graph.marks)
        assert (again.forward(), again.backward(), again.turning()) == (0, 0, 0)
    assert turned_further >= 3


@pytest.mark.slow
def test_limits_hold_for_all_phases_together():
    stopped = 0
    for seed in range(10):
        table = sampled_table(7, 300, seed, edges_per_variable=2.0, concentration=0.3)
        limited = search_on(table, max_parents=2)
        limited.run(turn=True)
        assert limited.dag.sum(axis=0).max() <= 2
        slow = SlowScore(table)
        assert all(
            slow.total(member) <= slow.total(limited.dag) + 1e-6
            for member in reversals(limited.dag, most=2)
        )
        few = search_on(table)
        few.run(4, turn=True)
        assert few.dag.sum() <= 4
        stopped += few.dag.sum() == 4
    assert stopped > 5


@pytest.mark.slow
def test_turns_respect_knowledge():
    rng = np.random.default_rng(3)
    applied = 0
    for seed in range(20):
        table = sampled_table(6, 300, seed, edges_per_variable=2.5, concentration=0.3)
        order = rng.permutation(6)
        start = np.zeros((6, 6), dtype=bool)
        start[np.ix_(order, order)] = np.triu(rng.random((6, 6)) < 0.5, 1)
        allowed = start | ((rng.random((6, 6)) < 0.6) & ~np.eye(6, dtype=bool))
        masks = EdgeMasks(allowed, np.zeros((6, 6), dtype=bool))
        search = search_on(table, start=start, masks=masks)
        applied += search.turning()
        assert not (search.dag & ~allowed).any()
        slow = SlowScore(table)
        assert all(
            slow.total(member) <= slow.total(search.dag) + 1e-6
            for member in reversals(search.dag, masks)
        )
    assert applied > 10


class Contradictory:
    """Gains of no score: whatever turns an edge pays, so that turning could go on for ever."""

    def fill(self, families, rows, wanted):
        for row, mask in zip(rows, wanted, strict=True):
            families.gains[row, mask] = 1.0 + families.sizes[row]

    def must_stop(self):
        return False


def test_estimates_that_contradict_each_other_do_not_turn_for_ever():
    chain = np.diag(np.ones(4, dtype=bool), 1)
    search = Search(graph_of(chain), Contradictory(), empty_families(5))
    assert search.turning() > 0
    search.run(turn=True)
