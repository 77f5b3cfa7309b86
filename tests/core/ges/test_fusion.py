"""Fusion of DAGs: against a plain implementation, d-separation on small graphs, and invariances."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import dags, matrix

from flwr_causal.core.ges import fusion
from flwr_causal.core.ges.fusion import fuse, needed
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.errors import ConfigError, DataError


def edges_of(dag):
    return np.argwhere(dag)


def dag_of(edges, size):
    return matrix(size, *edges)


def random_dag(rng, size, num_edges):
    """A DAG with exactly so many edges along a random order, as edges in random sequence."""
    pairs = np.argwhere(np.triu(np.ones((size, size), bool), 1))
    chosen = pairs[rng.choice(len(pairs), num_edges, replace=False)]
    return rng.permutation(size)[chosen]


def directed_imap(dag, order):
    """The minimal I-map of one DAG: its fusion, with ``before`` allowing this order only."""
    rank = np.argsort(order)
    before = rank[:, None] < rank[None, :]
    return fuse([dag], len(rank), before=before).edges


def follows(edges, order):
    rank = np.argsort(order)
    return bool(np.all(rank[edges[:, 0]] < rank[edges[:, 1]]))


def fifo_order(dag):
    """Kahn's algorithm with a queue: which of several topological orders the kernels use."""
    size = len(dag)
    order = [v for v in range(size) if not dag[:, v].any()]
    for node in order:
        done = np.isin(np.arange(size), order)
        for child in np.flatnonzero(dag[node]):
            parents = np.flatnonzero(dag[:, child])
            last = max(order.index(p) if done[p] else size for p in parents)
            if last == order.index(node):
                order.append(int(child))
    return order


def reference_cost(dag, v):
    """Puerta et al. (2021): edges to reverse, and to add on either side, for ``v`` to be a sink."""
    children, parents = set(np.flatnonzero(dag[v])), set(np.flatnonzero(dag[:, v]))
    to_children = sum(not dag[p, c] for c in children for p in parents)
    met = set().union(*(np.flatnonzero(dag[:, c]) for c in children))
    return len(children) + to_children + len(met - parents - children - {v})


def reference_removal(dag, v, rank):
    """Make ``v`` a sink by single covered-edge reversals, each checked, then isolate it."""
    dag = dag.copy()
    while dag[v].any():
        child = min(np.flatnonzero(dag[v]), key=lambda c: rank[c])
        dag[:, child] |= dag[:, v]
        others = dag[:, child].copy()
        others[v] = False
        dag[:, v] |= others
        assert is_acyclic(dag)
        class_before = cpdag(dag)
        dag[v, child], dag[child, v] = False, True
        assert is_acyclic(dag)
        np.testing.assert_array_equal(cpdag(dag), class_before)
    dag[:, v] = False
    return dag


def reference_order(graphs, before):
    graphs = [np.array(dag) for dag in graphs]
    ranks = [np.argsort(fifo_order(dag)) for dag in graphs]
    left, order = set(range(len(before))), []
    while left:
        free = [v for v in sorted(left) if not before[v, sorted(left)].any()]
        costs = [sum(reference_cost(dag, v) for dag in graphs) for v in free]
        sink = free[int(np.argmin(costs))]
        graphs = [
            reference_removal(dag, sink, rank) for dag, rank in zip(graphs, ranks, strict=True)
        ]
        left.remove(sink)
        order.insert(0, sink)
    return order


def separations(dag):
    """Every (i, j, S) with i and j d-separated by S."""
    graph = nx.from_numpy_array(dag, create_using=nx.DiGraph)
    nodes = range(len(dag))
    return {
        (i, j, given_)
        for i, j in combinations(nodes, 2)
        for size in range(len(dag) - 1)
        for given_ in combinations([v for v in nodes if v not in (i, j)], size)
        if nx.is_d_separator(graph, {i}, {j}, set(given_))
    }


several_dags = st.integers(1, 7).flatmap(lambda size: st.lists(dags(size), min_size=1, max_size=4))


# ---------------------------------------------------------------------------------- identity


@given(st.integers(1, 12).flatmap(dags), st.integers(1, 4), st.randoms(use_true_random=False))
def test_equal_dags_are_their_own_fusion(dag, copies, random):
    size = len(dag)
    ties = random.sample(range(size), size)
    fusion = fuse([dag] * copies, size, ties=ties)
    np.testing.assert_array_equal(fusion.edges, edges_of(dag))
    np.testing.assert_array_equal(fusion.support, np.full(dag.sum(), copies))
    np.testing.assert_array_equal(fusion.keep(1.0), edges_of(dag))
    assert fusion.num_dags == copies
    assert fusion.edges.dtype == np.int32
    assert follows(edges_of(dag), fusion.order)


def test_empty_graphs_and_a_single_variable():
    fusion = fuse([np.empty((0, 2), int), [], matrix(3)], 3)
    assert fusion.edges.shape == (0, 2)
    assert fusion.support.shape == (0,)
    assert fusion.order.tolist() == [2, 1, 0]  # all are sinks: the smallest is removed first
    assert fuse([[]], 1).order.tolist() == [0]


# ------------------------------------------------------------------------------- the I-maps


@given(st.data())
def test_the_imap_claims_only_what_holds_and_is_minimal(data):
    size = data.draw(st.integers(2, 5))
    dag = data.draw(dags(size))
    order = data.draw(st.permutations(range(size)))
    edges = directed_imap(edges_of(dag), order)
    assert follows(edges, order)
    assert sorted(map(tuple, edges.tolist())) == [tuple(edge) for edge in edges.tolist()]
    holds = separations(dag)
    imap = dag_of(edges, size)
    assert separations(imap) <= holds
    for i, j in edges:
        fewer = imap.copy()
        fewer[i, j] = False
        assert not separations(fewer) <= holds


def test_the_imap_of_a_collider_against_its_order():
    # 0 -> 2 <- 1 with the effect first: the causes become dependent given it.
    assert directed_imap([[0, 2], [1, 2]], [2, 0, 1]).tolist() == [[0, 1], [2, 0], [2, 1]]
    assert directed_imap([[0, 1], [1, 2]], [2, 1, 0]).tolist() == [[1, 0], [2, 1]]


@given(several_dags)
def test_the_union_counts_the_imaps_edges(graphs):
    size = len(graphs[0])
    fusion = fuse(graphs, size)
    assert sorted(fusion.order.tolist()) == list(range(size))
    expected = sum(dag_of(directed_imap(dag, fusion.order), size).astype(int) for dag in graphs)
    np.testing.assert_array_equal(fusion.edges, np.argwhere(expected))
    np.testing.assert_array_equal(fusion.support, expected[expected > 0])
    assert is_acyclic(dag_of(fusion.edges, size))
    assert follows(fusion.edges, fusion.order)


# ----------------------------------------------------------------------------- greedy order


@given(several_dags, st.data())
def test_the_order_is_that_of_the_plain_implementation(graphs, data):
    size = len(graphs[0])
    before = data.draw(st.one_of(st.none(), dags(size)))
    expected = reference_order(graphs, np.zeros((size, size), bool) if before is None else before)
    assert fuse(graphs, size, before=before).order.tolist() == expected


@pytest.mark.parametrize(("size", "num_dags"), [(70, 2), (130, 2)])
def test_the_order_is_that_of_the_plain_implementation_beyond_one_word(size, num_dags):
    rng = np.random.default_rng(size)
    graphs = [dag_of(random_dag(rng, size, 2 * size // 3), size) for _ in range(num_dags)]
    expected = reference_order(graphs, np.zeros((size, size), bool))
    assert fuse(graphs, size).order.tolist() == expected


@given(st.integers(2, 8).flatmap(dags), st.data())
def test_a_removal_is_a_sequence_of_covered_reversals(dag, data):
    """The graph that is left, not only the order: positions are variables here."""
    order = fifo_order(dag)
    dag = dag[np.ix_(order, order)]
    size = len(dag)
    v = data.draw(st.integers(0, size - 1))
    weights = np.uint64(1) << np.arange(size, dtype=np.uint64)
    parents = (dag.T * weights).sum(axis=1, dtype=np.uint64)[:, None]
    children = (dag * weights).sum(axis=1, dtype=np.uint64)[:, None]
    fusion.remove_as_sink(parents, children, v, np.empty(1, np.uint64))
    left = (parents & weights > 0).T
    np.testing.assert_array_equal(left, children & weights > 0)
    np.testing.assert_array_equal(left, reference_removal(dag, v, np.arange(size)))


def test_the_cheapest_sink_is_taken_and_ties_decide_between_equal_ones():
    # Over both chains 2 costs nothing; then 1 is a sink of both, and 0 remains.
    chain = [[0, 1], [1, 2]]
    assert fuse([chain, chain], 3).order.tolist() == [0, 1, 2]
    # One edge either way: both cost 1.
    opposite = [[[0, 1]], [[1, 0]]]
    assert fuse(opposite, 2).order.tolist() == [1, 0]
    assert fuse(opposite, 2, ties=[7, 3]).order.tolist() == [0, 1]


@given(several_dags, st.data())
def test_before_is_respected(graphs, data):
    size = len(graphs[0])
    before = data.draw(dags(size))
    fusion = fuse(graphs, size, before=before, ties=data.draw(st.permutations(range(size))))
    assert follows(edges_of(before), fusion.order)
    assert follows(fusion.edges, fusion.order)
    holds = [separations(dag) for dag in graphs] if size <= 4 else []
    for truth in holds:
        assert separations(dag_of(fusion.edges, size)) <= truth


def test_before_that_the_order_meets_anyway_changes_nothing():
    rng = np.random.default_rng(5)
    graphs = [random_dag(rng, 20, 30) for _ in range(3)]
    order = fuse(graphs, 20).order
    rank = np.argsort(order)
    before = rank[:, None] < rank[None, :]
    np.testing.assert_array_equal(fuse(graphs, 20, before=before).order, order)


# ------------------------------------------------------------------------------ invariances


@given(several_dags, st.data())
def test_neither_the_sequence_of_parties_nor_that_of_columns_matters(graphs, data):
    size = len(graphs[0])
    names = data.draw(st.permutations(range(size)))
    before = data.draw(dags(size))
    fusion = fuse(graphs, size, ties=names, before=before)
    new = np.array(data.draw(st.permutations(range(size))))  # old column new[c] stands at c
    old_to_new = np.argsort(new)
    shuffled = data.draw(st.permutations(graphs))
    relabelled = [old_to_new[data.draw(st.permutations(edges_of(g).tolist()))] if g.any() else []
                  for g in shuffled]  # fmt: skip
    other = fuse(relabelled, size, ties=np.array(names)[new], before=before[np.ix_(new, new)])
    np.testing.assert_array_equal(new[other.order], fusion.order)
    back = new[other.edges]
    by_edge = np.lexsort(back.T[::-1])
    np.testing.assert_array_equal(back[by_edge], fusion.edges)
    np.testing.assert_array_equal(other.support[by_edge], fusion.support)


def test_matrices_lists_and_repeated_edges_are_the_same_input():
    rng = np.random.default_rng(2)
    first, second = (random_dag(rng, 15, 25) for _ in range(2))
    expected = fuse([first, second], 15)
    for form in (
        [dag_of(first, 15), second.astype(np.uint8)],
        [first.tolist(), np.concatenate([second, second])],
    ):
        fusion = fuse(form, 15)
        np.testing.assert_array_equal(fusion.edges, expected.edges)
        np.testing.assert_array_equal(fusion.support, expected.support)


def test_the_input_is_left_as_it_was_and_may_be_read_only():
    graphs = [dag_of(random_dag(np.random.default_rng(k), 9, 14), 9) for k in range(2)]
    before = matrix(9, (0, 8))
    copies = [dag.copy() for dag in graphs]
    for array in (*graphs, before):
        array.flags.writeable = False
    fuse(graphs, 9, before=before)
    np.testing.assert_array_equal(graphs, copies)


def test_every_kernel_is_compiled_once():
    """Another type or memory layout would be compiled anew, on a client in the midst of a round."""
    dag = random_dag(np.random.default_rng(0), 8, 12)
    before = np.asfortranarray(np.tri(8, k=-1, dtype=bool))
    fuse([dag, dag.astype(np.int32)], 8, ties=np.arange(8)[::-1], before=before)
    fuse([np.asfortranarray(dag_of(dag, 8)), []], 8, ties=np.arange(8.0))
    fuse([dag[::-1]], 8)
    for name in ("_order_by_sinks", "count_imap_edges"):
        kernel = getattr(fusion, name)
        assert len(kernel.signatures) == 1, kernel


# ------------------------------------------------------------------------------------ shares


def test_shares_of_the_paper_round_down_and_numbers_up():
    assert [needed(word, 5) for word in ("union", "c25", "c50")] == [1, 1, 2]
    assert [needed(word, 20) for word in ("union", "c25", "c50")] == [1, 5, 10]
    assert [needed(word, 1) for word in ("union", "c25", "c50")] == [1, 1, 1]
    assert [needed(share, 5) for share in (0.01, 0.2, 0.25, 0.35, 0.5, 1.0)] == [1, 1, 2, 2, 3, 5]
    assert needed(0.1, 30) == 3  # 0.1 * 30 is 3.0000000000000004
    assert needed(1, 7) == 7


@given(st.integers(1, 200), st.integers(1, 200))
def test_a_share_of_exactly_k_dags_asks_for_k(num_dags, k):
    if k <= num_dags:
        assert needed(k / num_dags, num_dags) == k


@given(several_dags, st.lists(st.floats(0.001, 1), min_size=2, max_size=2).map(sorted))
def test_a_larger_share_keeps_fewer_edges(graphs, shares):
    fusion = fuse(graphs, len(graphs[0]))
    few, many = (set(map(tuple, fusion.keep(share).tolist())) for share in reversed(shares))
    assert few <= many
    np.testing.assert_array_equal(fusion.keep("union"), fusion.edges)
    np.testing.assert_array_equal(fusion.keep(1.0), fusion.edges[fusion.support == len(graphs)])


@pytest.mark.parametrize("share", [0, 0.0, -0.5, 1.01, float("nan"), "c75", "0.5"])
def test_other_shares_are_refused(share):
    with pytest.raises(ConfigError, match=r"\(0, 1\]"):
        needed(share, 5)


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([[0, 1], [1, 2], [2, 0], [2, 3]], r"dags\[1\] has the cycle (0 -> 1|1 -> 2|2 -> 0)"),
        (matrix(4, (1, 3), (3, 1)), r"dags\[1\] has the cycle (1 -> 3 -> 1|3 -> 1 -> 3)"),
        ([[2, 2]], r"dags\[1\] has the cycle 2 -> 2:"),
        ([[0, 4]], r"dags\[1\] names the variable 4: there are only 0 to 3"),
        ([[-1, 2]], r"dags\[1\] names the variable -1"),
        (matrix(3, (0, 1)), r"dags\[1\] has shape \(3, 3\)"),
        ([[0, 1, 2]], r"dags\[1\] has shape \(1, 3\)"),
        ([[0.0, 1.0]], r"dags\[1\] .* float64"),
    ],
)
def test_a_bad_graph_is_named(bad, message):
    with pytest.raises(DataError, match=message):
        fuse([[[0, 1]], bad], 4)


def test_a_cycle_is_named_in_the_callers_numbers():
    with pytest.raises(DataError, match=r"cycle (0 -> 2 -> 0|2 -> 0 -> 2)"):
        fuse([[[0, 2], [2, 0], [0, 1]]], 3, ties=[2, 0, 1])


def test_bad_arguments_are_refused():
    with pytest.raises(DataError, match="at least one"):
        fuse([], 3)
    with pytest.raises(ConfigError, match="at least one"):
        fuse([[]], 0)
    with pytest.raises(ConfigError, match=r"ties must be 3 .* shape \(2,\)"):
        fuse([[]], 3, ties=[0, 1])
    with pytest.raises(ConfigError, match="2 distinct entries"):
        fuse([[]], 3, ties=[0, 1, 1])
    with pytest.raises(ConfigError, match=r"before has shape \(2, 2\)"):
        fuse([[]], 3, before=matrix(2))
    with pytest.raises(ConfigError, match=r"before .* type int64"):
        fuse([[]], 3, before=np.zeros((3, 3), np.int64))
    with pytest.raises(ConfigError, match=r"the cycle (0 -> 2 -> 0|2 -> 0 -> 2)"):
        fuse([[]], 3, before=matrix(3, (0, 2), (2, 0), (2, 1)))


# ------------------------------------------------------------------------------------- scale


@pytest.mark.slow
def test_three_hundred_variables_from_ten_parties():
    rng = np.random.default_rng(0)
    graphs = [random_dag(rng, 300, 450) for _ in range(10)]
    fusion = fuse(graphs, 300)
    assert follows(fusion.edges, fusion.order)
    imaps = [directed_imap(dag, fusion.order) for dag in graphs]
    assert fusion.support.sum() == sum(map(len, imaps))
    # Far fewer edges than along an arbitrary order, which is what the search for one is for.
    assert len(fusion.edges) < 0.8 * len(
        np.unique(np.concatenate([directed_imap(dag, np.arange(300)) for dag in graphs]), axis=0)
    )
