"""The operators against all members of the class, and the search against the plain definitions."""

import numpy as np
import pytest
from reference_search import (
    Enough,
    SlowScore,
    all_classes,
    all_dags,
    best_of,
    changed,
    plain_search,
    random_classes,
    random_dag,
    random_table,
    sampled_table,
    search_on,
    told_apart,
)
from sweeps import sweep

from flwr_causal.core.discrete.families import empty_families
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.ges import greedy_search, operators
from flwr_causal.core.ges.cpdag import NO_PAIRS, graph_of
from flwr_causal.core.ges.ges import ges
from flwr_causal.core.ges.greedy_search import Search, knowing_member
from flwr_causal.core.ges.operators import nothing_best
from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.errors import DataError


def wanted_operators(insert, graph, families, max_parents=99):
    """Which (row, x) the kernel asks for at all nodes."""
    d = len(graph.degrees)
    status, count = operators.choose(
        insert,
        graph,
        families,
        np.arange(d),
        np.ones((d, d), dtype=bool),
        max_parents,
        np.zeros((0, 2), dtype=np.int64),
        nothing_best(d),
        room := operators.room_for(d, 4096, 64),
    )
    assert status in (operators.CHOSEN, operators.MISSING)
    if status == operators.MISSING:
        for row, mask in zip(room.rows[:count], room.wanted[:count], strict=True):
            yield from ((int(row), int(x)) for x in np.flatnonzero(mask))


def valid_inserts(marks, max_parents=99, pairs=NO_PAIRS):
    """Yield (y, given, x, class) of every Insert that the kernels call valid."""
    graph, families = graph_of(marks, pairs), empty_families(len(marks), 1024)
    d = len(marks)
    for row, x in wanted_operators(True, graph, families, max_parents):
        y = int(families.owners[row])
        best = nothing_best(d)
        best.gains[y], best.others[y], best.rows[y] = 1.0, x, row
        nothing = np.zeros(0, dtype=np.int64), np.ones((d, d), dtype=bool), max_parents
        status, chosen = operators.choose(
            True,
            graph,
            families,
            *nothing,
            np.zeros((0, 2), dtype=np.int64),
            best,
            operators.room_for(d, 4096, 64),
        )
        # After a blocked operator, the others of y are looked at, whose gains are not known.
        assert (status == operators.CHOSEN) == (best.num_blocked[y] == 0)
        if status == operators.CHOSEN:
            assert chosen == y
            after = graph.copy()
            assert operators.apply_insert(after, families, x, y, row)
            yield y, families.members[row, : families.sizes[row]].tolist(), x, after


def valid_deletes(marks, pairs=NO_PAIRS):
    """Yield (y, given, x, class) of every Delete."""
    graph, families = graph_of(marks, pairs), empty_families(len(marks), 1024)
    for row, x in wanted_operators(False, graph, families):
        y, after = int(families.owners[row]), graph.copy()
        assert operators.apply_delete(after, families, x, y, row)
        yield y, families.members[row, : families.sizes[row]].tolist(), x, after


def check_state(graph):
    """The lists, the member and the marks say the same."""
    np.testing.assert_array_equal(class_among(graph.dag, graph.distinguished), graph.marks)
    for node, degree in enumerate(graph.degrees):
        beside = np.flatnonzero(graph.marks[node] | graph.marks[:, node])
        np.testing.assert_array_equal(graph.lists[node, :degree], beside)


def class_among(dag, pairs):
    """The class of the DAGs that also agree on the edges between distinguished pairs."""
    marks = equivalence.cpdag(dag)
    return equivalence.meek(marks & ~(dag.T & pairs)) if len(pairs) else marks


def longer(members, pairs=NO_PAIRS):
    """The classes of the members with one edge more."""
    return {
        class_among(more, pairs).tobytes()
        for dag in members
        for edge in np.argwhere(~(dag | dag.T | np.eye(len(dag), dtype=bool))).tolist()
        if is_acyclic(more := changed(dag, add=[tuple(edge)]))
    }


def shorter(members, pairs=NO_PAIRS):
    """The classes of the members with one edge less."""
    return {
        class_among(changed(dag, drop=[tuple(edge)]), pairs).tobytes()
        for dag in members
        for edge in np.argwhere(dag).tolist()
    }


def check_operators(marks, members, slow, pairs=NO_PAIRS):
    before = slow.total(members[0])
    for valid, expected, sign in (
        (valid_inserts(marks, pairs=pairs), longer(members, pairs), 1),
        (valid_deletes(marks, pairs), shorter(members, pairs), -1),
    ):
        reached = set()
        for y, given, x, after in valid:
            check_state(after)
            reached.add(after.marks.tobytes())
            gain = sign * (slow.local(y, {*given, x}) - slow.local(y, given))
            assert gain == pytest.approx(slow.total(after.dag) - before, abs=1e-8)
        assert reached == expected


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_operators_reach_what_one_edge_of_any_member_reaches(size):
    slow = SlowScore(random_table(size, 50, seed=size))
    for marks, members in all_classes(size):
        check_operators(marks, members, slow)


@pytest.mark.slow
@pytest.mark.parametrize(
    "targets", sweep([[{0}], [{1, 2}], [{0}, {0, 3}], [{0}, {1}, {2}, {3}]], [[{0}, {0, 3}]])
)
def test_operators_among_classes_of_interventions(targets):
    pairs = told_apart(4, targets)
    slow = SlowScore(random_table(4, 50, seed=4))
    for marks, members in all_classes(4, pairs):
        check_operators(marks, members, slow, pairs)


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [5, 6])
def test_operators_of_larger_classes(size):
    slow = SlowScore(random_table(size, 60, seed=size), "bic")
    for marks, members in random_classes(size, 12, seed=size):
        check_operators(marks, members, slow)


def test_a_limit_on_parents_keeps_the_inserts_within_it():
    for marks, _ in random_classes(5, 20, seed=7):
        assert {
            (y, tuple(given), x) for y, given, x, _ in valid_inserts(marks) if len(given) < 2
        } == {(y, tuple(given), x) for y, given, x, _ in valid_inserts(marks, max_parents=2)}


# --- the search -----------------------------------------------------------------------------------

TABLES = {
    "plenty": lambda seed: sampled_table(7, 800, seed),
    "few rows": lambda seed: sampled_table(9, 60, seed, num_states=(2, 3)),
    "many states": lambda seed: sampled_table(6, 300, seed, num_states=(2, 7)),
    "strongly dependent": lambda seed: sampled_table(
        8, 250, seed, edges_per_variable=2.5, concentration=0.15
    ),
    "one hidden cause": lambda seed: random_table(8, 200, seed, states=(2, 3)),
}
SCORES = [("bdeu", 1.0), ("bdeu", 10.0), ("bic", 1.0), ("qnml", 1.0)]


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", TABLES)
def test_the_search_is_that_of_the_plain_definitions(kind, monkeypatch):
    """Keeping the best operator of each node, and the blocked ones, changes nothing."""
    blocked = []
    choose = operators.choose

    def counted(*arguments):
        result = choose(*arguments)
        blocked.append(arguments[-2].num_blocked.any())
        return result

    monkeypatch.setattr(operators, "choose", counted)
    moved = 0
    for seed in range(12):
        score, ess = SCORES[seed % len(SCORES)]
        table = TABLES[kind](seed)
        slow = SlowScore(table, score, ess)
        d = len(table.names)
        start = np.zeros((d, d), dtype=bool)
        if seed % 3 == 2:
            # A start with much to delete and, afterwards, much to insert.
            start = random_dag(d, np.random.default_rng(seed), 0.3)
        search = search_on(table, score, ess, start)
        search.run()
        expected, gain = plain_search(equivalence.cpdag(start), slow.local)
        np.testing.assert_array_equal(search.marks, expected, err_msg=f"{kind} {seed}")
        assert search.gain == pytest.approx(gain, abs=1e-6)
        assert slow.total(search.dag) - slow.total(start) == pytest.approx(gain, abs=1e-6)
        check_state(search.graph)
        moved += search.num_operators
    assert moved > 50
    assert any(blocked)


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("score", ["bdeu", "bic"])
@pytest.mark.parametrize("known", [False, True])
def test_looking_at_every_node_again_after_each_operator_changes_nothing(score, known, monkeypatch):
    """The same on larger graphs, where the plain search would take too long."""
    notice = greedy_search.affected

    def everywhere(graph):
        return np.arange(len(graph.degrees))

    settings = [(20, 300, 2.0), (25, 100, 1.5), (30, 2000, 1.0), (15, 500, 3.0)]
    for seed in range(24):
        size, num_rows, density = settings[seed % len(settings)]
        table = sampled_table(
            size, num_rows, seed, edges_per_variable=density, concentration=0.3, num_states=(2, 3)
        )
        rng = np.random.default_rng(seed)
        start = random_dag(size, rng, 2 / size) if seed % 3 else np.zeros((size, size), dtype=bool)
        masks = None
        if known:
            allowed = start | ((rng.random((size, size)) < 0.8) & ~np.eye(size, dtype=bool))
            masks = EdgeMasks(allowed, np.zeros((size, size), dtype=bool))
        found = []
        for look in (notice, everywhere):
            monkeypatch.setattr(greedy_search, "affected", look)
            search = search_on(table, score, 10.0, start, masks=masks)
            search.run(turn=seed % 2 == 1)
            found.append(search)
        np.testing.assert_array_equal(found[0].marks, found[1].marks)
        assert found[0].num_operators == found[1].num_operators > 5
        check_state(found[0].graph)


def test_tables_that_are_too_small_grow_without_a_trace(monkeypatch):
    """Room for one blocked operator, three families and sets of one."""
    grown = []
    with_room, small = operators.with_room, operators.nothing_best
    for seed in range(6):
        table = TABLES["strongly dependent"](seed)
        ample = Search(graph_of(np.zeros((8, 8), dtype=bool)), TableGains(table), empty_families(8))
        ample.run()
        with monkeypatch.context() as patch:
            patch.setattr(operators, "nothing_best", lambda d: small(d, 1))
            patch.setattr(operators, "with_room", lambda best: grown.append(1) or with_room(best))
            tight = Search(
                graph_of(np.zeros((8, 8), dtype=bool)), TableGains(table), empty_families(8, 3, 1)
            )
            tight.run()
        np.testing.assert_array_equal(tight.marks, ample.marks)
        assert tight.gain == pytest.approx(ample.gain)
        assert len(tight.families.owners) >= 24
    assert grown


@pytest.mark.slow
def test_limits_are_those_of_the_plain_search():
    for seed in range(8):
        table = TABLES["strongly dependent"](seed)
        slow = SlowScore(table)
        empty = np.zeros((8, 8), dtype=bool)
        for edges, parents in ((5, None), (None, 2), (9, 1)):
            search = search_on(table, max_parents=parents)
            search.run(edges)
            expected, _ = plain_search(empty, slow.local, edges, parents)
            np.testing.assert_array_equal(search.marks, expected)
            assert parents is None or search.dag.sum(axis=0).max() <= parents


def test_the_search_goes_on_where_a_limit_on_edges_stopped_it():
    table = TABLES["plenty"](3)
    whole, steps = search_on(table), search_on(table)
    whole.forward()
    assert [steps.forward(2) for _ in range(3)] == [2, 2, 2]
    assert steps.graph.marks.sum() > 0
    steps.forward()
    np.testing.assert_array_equal(steps.graph.marks, whole.graph.marks)
    assert steps.gain == pytest.approx(whole.gain)


@pytest.mark.parametrize("most", [0, 1, 4])
def test_a_source_can_end_the_search(most):
    table = TABLES["plenty"](0)
    search = Search(graph_of(np.zeros((7, 7), dtype=bool)), Enough(table, most), empty_families(7))
    search.source.search = search
    assert search.forward() == most
    assert search.backward() == 0
    assert search.turning() == 0
    whole = search_on(table)
    whole.forward(most)
    np.testing.assert_array_equal(search.graph.marks, whole.graph.marks)


def test_every_gain_is_asked_for_once():
    table = TABLES["strongly dependent"](1)
    asked = set()

    class Counting(TableGains):
        def fill(self, families, rows, wanted):
            for row, mask in zip(rows, wanted, strict=True):
                members = families.members[row, : families.sizes[row]].tolist()
                for x in np.flatnonzero(mask).tolist():
                    key = int(families.owners[row]), tuple(members), x
                    assert key not in asked
                    asked.add(key)
            super().fill(families, rows, wanted)

    search = Search(graph_of(np.zeros((8, 8), dtype=bool)), Counting(table), empty_families(8, 2))
    search.run(turn=True)
    assert len(asked) > 100
    assert all(x != y and x not in given for y, given, x in asked)


# --- knowledge ------------------------------------------------------------------------------------


def test_a_class_has_a_knowing_member_where_one_of_its_members_respects_the_masks():
    rng = np.random.default_rng(5)
    outcomes = []
    for marks, members in all_classes(4):
        for _ in range(6):
            allowed = (rng.random((4, 4)) < 0.8) & ~np.eye(4, dtype=bool)
            required = marks & allowed & (rng.random((4, 4)) < 0.1)
            required &= ~required.T
            allowed &= ~required.T
            respecting = [
                dag for dag in members if not (dag & ~allowed).any() and (dag | ~required).all()
            ]
            found = knowing_member(marks, EdgeMasks(allowed, required))
            assert (found is not None) == bool(respecting)
            if found is not None:
                assert any(np.array_equal(found, dag) for dag in respecting)
            outcomes.append(found is None)
    assert 0.2 < np.mean(outcomes) < 0.8


@pytest.mark.slow
def test_banned_operators_are_those_whose_class_nobody_knows():
    """Against the plain search with the same rule, from scratch at every step."""
    rng = np.random.default_rng(1)
    banned = 0
    for seed in range(15):
        table = sampled_table(6, 300, seed, edges_per_variable=2.0, concentration=0.3)
        allowed = (rng.random((6, 6)) < 0.7) & ~np.eye(6, dtype=bool)
        masks = EdgeMasks(allowed, np.zeros((6, 6), dtype=bool))
        search = search_on(table, masks=masks)
        search.run()
        expected, number = plain_knowing_search(SlowScore(table), masks)
        np.testing.assert_array_equal(search.graph.marks, expected)
        assert not (search.dag & ~allowed).any()
        np.testing.assert_array_equal(
            equivalence.cpdag(search.dag), search.graph.marks, err_msg="another class"
        )
        banned += number
    assert banned > 20


def plain_knowing_search(slow, masks):
    """Like `plain_search` with every operator applied before it is judged."""
    marks = np.zeros_like(masks.allowed)
    banned = 0
    for valid, sign in ((valid_inserts, 1), (valid_deletes, -1)):
        while True:
            found = []
            for y, given, x, after in valid(marks):
                gain = sign * (slow.local(y, {*given, x}) - slow.local(y, given))
                if knowing_member(after.marks, masks) is not None:
                    found.append((gain, y, after.marks))
                else:
                    banned += gain > 0
            best = best_of(found)
            if best is None:
                break
            marks = best[2]
    return marks, banned


def test_all_small_graphs_are_found_from_the_exact_covariances():
    """Every DAG of four variables, from moments of very many rows of a random linear system."""
    rng = np.random.default_rng(0)
    for dag in all_dags(4):
        weights = dag * rng.uniform(0.4, 1.5, (4, 4)) * rng.choice([-1, 1], (4, 4))
        mixing = np.linalg.inv(np.eye(4) - weights)
        covariance = mixing.T @ np.diag(rng.uniform(0.5, 2, 4)) @ mixing
        graph = ges(SampleMoments(10**11, np.zeros(4), covariance, tuple("abcd")), "gaussian-bic")
        np.testing.assert_array_equal(graph.adjacency, equivalence.cpdag(dag))


def search_from_all_edges(d):
    table = random_table(d, 60, 0, states=(2, 3))
    complete = np.triu(np.ones((d, d), dtype=bool), 1)
    return Search(graph_of(complete), TableGains(table), empty_families(d))


def test_a_graph_too_dense_to_search_is_refused():
    with pytest.raises(DataError, match="max_parents"):
        search_from_all_edges(19).run()


def test_a_search_with_too_many_families_is_refused(monkeypatch):
    monkeypatch.setattr(greedy_search, "MOST_ENTRIES", 20_000)
    dense = search_from_all_edges(10)
    with pytest.raises(DataError, match="max_parents"):
        dense.run()
    assert sum(part.size for part in dense.families) <= 20_000
    empty, table = np.zeros((10, 10), dtype=bool), random_table(10, 60, 0, states=(2, 3))
    Search(graph_of(empty), TableGains(table), empty_families(10)).run()
