"""The party's side of FedGES, message by message, against its own rows."""

import numpy as np
import pandas as pd
import pytest
from category_federations import coded, make_tables, random_rows
from federations import app_of, ask, spy, stating

from flwr_causal.clients.fedges import FedGESClient
from flwr_causal.core.discrete.contingency_tables import sets_of, tables_of, tabulate
from flwr_causal.core.discrete.cut_points import count_up_to
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.ges.fusion import fuse
from flwr_causal.core.ges.greedy_search import prepared_search
from flwr_causal.core.ges.speculative_search import Questions, answer
from flwr_causal.core.graphs.edge_lists import edges_of, matrix_of
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.party import cache
from flwr_causal.protocol import records
from flwr_causal.runtime.schema import exchange_schema
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import FedGES

TABLES, _ = make_tables(d=6, n=300, parties=2, seed=4)
PART = coded(TABLES)[0]
D = 6
NODE = 2
NOTHING = np.zeros((0, 2), dtype=np.uint16)
GRAPH = np.array([[0, 1], [3, 1], [4, 5]], dtype=np.uint16)
OTHER = np.array([[1, 2], [5, 4]], dtype=np.uint16)


def opened(tables=TABLES, **options):
    """A grid and the agreement that its nodes came to."""
    grid = LocalGrid(app_of(tables), len(tables))
    federation, _, _ = exchange_schema(FedGES(**options), grid)
    return grid, federation.setup


#: Runs that have an exchange, where those of a test have another one.
RUNS = {
    "graph": FedGES(mode="fusion", keep="last"),
    "judged graph": FedGES(mode="fusion", start="fuse"),
    "pooled counts": FedGES(mode="exact", secure_aggregation=True),
    "likelihoods": FedGES(mode="scores"),
}


def message(grid, setup, arrays, exchange, **config):
    if exchange in RUNS:
        setup = stating(setup, RUNS[exchange])
    reply = ask(grid, NODE, arrays, setup=setup, exchange=exchange, method="fedges", **config)
    if reply.has_error():
        raise RuntimeError(reply.error.reason)
    metrics = dict(reply.content["metrics"])
    del metrics["num-examples"], metrics["round"]
    return records.arrays_of(reply.content), metrics


def own_search(start, score="bdeu", limit=10, *, turn=False, **options):
    search = prepared_search(
        TableGains(PART, score), PART.names, start=matrix_of(start, D), **options
    )
    search.run(limit, turn=turn)
    return edges_of(search.dag)


def own_score(graph, score="bdeu"):
    return TableGains(PART, score).graph_score(matrix_of(graph, D))


# Graphs.


@pytest.mark.few(3)
@pytest.mark.parametrize("limit", [None, 1, 3])
@pytest.mark.parametrize(
    ("received", "own"), [(NOTHING, NOTHING), (GRAPH, NOTHING), (GRAPH, OTHER)]
)
def test_a_search_goes_on_from_the_fused_graph_or_from_that_and_the_own(received, own, limit):
    grid, setup = opened(mode="fusion", max_edges=limit)
    starts = {"overwrite": received, "fuse": fuse([received, own], D).keep("union")}
    for start, begin in starts.items():
        arrays, numbers = message(
            grid, setup, {"received": received, "own": own}, "graph", start=start
        )
        assert set(arrays) == {"edges"}
        assert numbers == {}
        assert np.array_equal(arrays["edges"], own_search(begin, limit=limit or 10))
    both, numbers = message(grid, setup, {"received": received, "own": own}, "graphs")
    assert numbers == {}
    assert np.array_equal(both["overwritten"], own_search(received, limit=limit or 10))
    assert np.array_equal(both["fused"], own_search(starts["fuse"], limit=limit or 10))


@pytest.mark.parametrize(
    "options",
    [
        {"max_parents": 1},
        {"turn": True},
        {"score": "bic"},
        {"score": "qnml", "turn": True, "max_parents": 2},
    ],
)
def test_the_options_reach_the_search(options):
    _, setup = opened(mode="fusion", max_edges=50, **options)
    grid = LocalGrid(app_of(TABLES), 2)
    arrays, _ = message(grid, setup, {"received": NOTHING, "own": NOTHING}, "graphs")
    expected = own_search(NOTHING, **{"score": "bdeu", "limit": 50, **options})
    assert np.array_equal(arrays["fused"], expected)


def test_the_equivalent_sample_size_reaches_the_scores():
    found = []
    for size in (0.1, 1.0, 30.0):
        grid, setup = opened(mode="fusion", equivalent_sample_size=size)
        lengths = np.array([len(GRAPH)])
        arrays, _ = message(grid, setup, {"edges": GRAPH, "lengths": lengths}, "judge")
        found.append(arrays["scores"].item())
        expected = TableGains(PART, "bdeu", size).graph_score(matrix_of(GRAPH, D))
        assert found[-1] == pytest.approx(expected)
    assert len(set(found)) == 3


def test_knowledge_reaches_the_search_and_mends_the_start():
    knowledge = Knowledge(
        required=[("x5", "x0")], forbidden=[("x0", "x1"), ("x1", "x0")], tiers=[("x4",), ("x3",)]
    )
    grid, setup = opened(mode="fusion", knowledge=knowledge)
    assert setup.options.knowledge == knowledge
    for received in (NOTHING, GRAPH):
        arrays, _ = message(grid, setup, {"received": received, "own": OTHER}, "graphs")
        masks = knowledge.masks(PART.names)
        for edges in arrays.values():
            dag = matrix_of(edges, D)
            assert not (dag & ~masks.allowed).any()
            assert dag[masks.required].all()
    begin = matrix_of(NOTHING, D) | masks.required
    arrays, _ = message(grid, setup, {"received": NOTHING, "own": NOTHING}, "graph", start="fuse")
    expected = own_search(edges_of(begin), knowledge=knowledge)
    assert np.array_equal(arrays["edges"], expected)


def test_graphs_are_judged_by_the_own_score():
    grid, setup = opened(mode="fusion", score="bic")
    _, numbers = message(
        grid, setup, {"received": GRAPH, "own": OTHER}, "judged graph", start="fuse"
    )
    assert numbers == {"score": pytest.approx(own_score(GRAPH, "bic"))}
    graphs = [GRAPH, NOTHING, OTHER, GRAPH]
    lengths = np.array([len(graph) for graph in graphs])
    arrays, numbers = message(
        grid, setup, {"edges": np.concatenate(graphs), "lengths": lengths}, "judge"
    )
    expected = [own_score(graph, "bic") for graph in graphs]
    np.testing.assert_allclose(arrays["scores"], expected)
    assert numbers == {}


# Sums.

# What x = 1 and 3 gain as parents of 0, and x = 2 as a further parent of 1 beside 0 and 3.
QUESTIONS = Questions(
    *(np.array(numbers, dtype=np.uint16) for numbers in ([0, 1], [0, 2], [0, 3], [2, 1], [1, 3, 2]))
)


def test_gains_are_those_of_the_own_rows():
    grid, setup = opened(mode="scores", score="bdeu")
    arrays, numbers = message(grid, setup, QUESTIONS._asdict(), "scores")
    np.testing.assert_allclose(arrays["gains"], answer(QUESTIONS, TableGains(PART), D))
    assert numbers == {}
    nothing = Questions(*[np.zeros(0, dtype=np.uint16)] * 5)
    arrays, _ = message(grid, setup, nothing._asdict(), "scores")
    assert arrays["gains"].shape == (0,)


def test_likelihoods_are_those_of_the_own_rows():
    grid, setup = opened(mode="scores")
    arrays, numbers = message(grid, setup, QUESTIONS._asdict(), "likelihoods")
    assert numbers == {}
    # BIC's gain with its penalty given back.
    bic = answer(QUESTIONS, TableGains(PART, "bic"), D)
    r = PART.cardinalities
    added = np.array([r[0] - 1] * 2 + [(r[1] - 1) * r[0] * r[3]]) * (r[[1, 3, 2]] - 1)
    np.testing.assert_allclose(arrays["gains"], bic + 0.5 * np.log(PART.num_rows) * added)
    expected = answer(QUESTIONS, TableGains(PART).means(), D)
    np.testing.assert_allclose(arrays["means"], expected)


def test_counts_are_those_of_the_own_rows_in_the_states_of_all():
    few = [TABLES[0].iloc[:9], TABLES[1]]
    grid, setup = opened(few, mode="exact")
    part = coded(few)[0]
    assert any(len(set(few[0][name])) < len(set(few[1][name])) for name in few[0])
    sets = sets_of([[0], [1, 4], [2, 3, 5]])
    arrays, _ = message(grid, setup, sets._asdict(), "counts")
    for name, expected in tabulate(part, sets)._asdict().items():
        assert np.array_equal(arrays[name], expected)
    whole = tables_of(sets, tabulate(part, sets), part.cardinalities)
    assert [table.sum() for table in whole] == [9, 9, 9]


@pytest.mark.parametrize("sizes", [[40_000], [1, 1], [2]])
@pytest.mark.parametrize("member", [1, 40_000, -1])
def test_sets_of_other_variables_are_refused_before_compiled_code_reads_them(sizes, member):
    grid, setup = opened(mode="exact")
    sets = {"sizes": np.array(sizes), "members": np.array([member])}
    for exchange in ("counts", "pooled counts", "likelihoods"):
        zeros = np.zeros(len(sizes), dtype=np.int64)
        asked = {**sets, "owners": zeros, "num_others": zeros + 1, "others": zeros}
        wanted = sets if "counts" in exchange else asked
        with pytest.raises(RuntimeError, match=r"RefusedError: '(members|sizes)'"):
            message(grid, setup, wanted, exchange, num_cells=8)


def test_edges_of_other_variables_are_refused():
    grid, setup = opened(mode="fusion")
    for edges in ([[0, 40_000]], [[0, -1]], [[0, 1], [1, 0]]):
        for name in ("received", "own"):
            graphs = {"received": NOTHING, "own": NOTHING, name: np.array(edges)}
            with pytest.raises(RuntimeError, match=f"RefusedError: '{name}'"):
                message(grid, setup, graphs, "graph", start="overwrite")


def test_the_last_exchange_tells_tables_and_votes():
    grid, setup = opened(mode="exact", score="bic")
    dag = matrix_of(GRAPH, D)
    sets = sets_of([[0], [0, 1, 3], [2], [3], [4], [4, 5]])
    request = {"sizes": sets.sizes, "members": sets.members, "edges": edges_of(dag)}
    request["lengths"] = np.array([3])
    arrays, numbers = message(grid, setup, request, "fit")
    gains = TableGains(PART, "bic")
    # By child and then by parent.
    votes = [
        gains.family_score(1, [0, 3]) > gains.family_score(1, [3]),
        gains.family_score(1, [0, 3]) > gains.family_score(1, [0]),
        gains.family_score(5, [4]) > gains.family_score(5, []),
    ]
    assert arrays["votes"].tolist() == votes
    two = {**request, "edges": np.concatenate([GRAPH, OTHER]), "lengths": np.array([3, 2])}
    more = message(grid, setup, two, "fit")[0]["votes"].tolist()
    assert more[:3] == votes
    assert more[3:] == [
        gains.family_score(2, [1]) > gains.family_score(2, []),
        gains.family_score(4, [5]) > gains.family_score(4, []),
    ]
    counts = tabulate(PART, sets)
    assert np.array_equal(arrays["dense"], counts.dense)
    assert numbers == {"small": ((counts.dense > 0) & (counts.dense < 5)).sum()}


def test_rows_up_to_thresholds_are_counted():
    rng = np.random.default_rng(0)
    tables = [pd.DataFrame(rng.normal(size=(40, 3)), columns=list("abc")) for _ in range(2)]
    tables = [table.assign(d=rng.choice(["u", "v"], 40)) for table in tables]
    grid, setup = opened(tables, mode="exact", discretize=3)
    assert setup.continuous == ("a", "b", "c")
    asked = np.sort(rng.normal(size=(3, 7)))
    arrays, _ = message(grid, setup, {"thresholds": asked}, "cuts")
    assert np.array_equal(arrays["counts"], count_up_to(tables[0][list("abc")].to_numpy(), asked))
    # Once they are agreed, the cut points make the states; the last column has two of its own.
    sets = sets_of([[0], [1], [2], [3], [0, 3]])
    cuts = {"cuts": np.array([0.1, -0.5, 0.5, 0.0]), "num-cuts": np.array([1, 2, 1])}
    arrays, _ = message(grid, setup, sets._asdict() | cuts, "counts")
    found = tables_of(sets, tabulate(random_rows((2, 3, 2, 2), 1), sets), np.array([2, 3, 2, 2]))
    sizes = [table.size for table in found]
    parts = np.split(arrays["dense"], np.cumsum(sizes)[:-1])
    own = tables[0]
    assert parts[0].tolist() == [(own["a"] <= 0.1).sum(), (own["a"] > 0.1).sum()]
    middle = ((own["b"] > -0.5) & (own["b"] <= 0.5)).sum()
    assert parts[1].tolist() == [(own["b"] <= -0.5).sum(), middle, (own["b"] > 0.5).sum()]
    both = ((own["a"] <= 0.1) & (own["d"] == "v")).sum()
    assert parts[4][1] == both


# What is kept, and what is not.


def test_rows_are_read_once_and_scores_computed_once(monkeypatch):
    grid, setup = opened(mode="fusion")
    made, scored = [], []
    prepare, family = FedGESClient._cache_of, TableGains.family_score
    monkeypatch.setattr(
        FedGESClient, "_cache_of", lambda *a: made.append(1) or prepare(*a), raising=True
    )
    monkeypatch.setattr(TableGains, "family_score", lambda *a: scored.append(1) or family(*a))
    request = {"edges": GRAPH, "lengths": np.array([3])}
    first, _ = message(grid, setup, request, "judge")
    assert len(scored) == D
    second, _ = message(grid, setup, request, "judge")
    assert np.array_equal(first["scores"], second["scores"])
    assert (len(made), len(scored)) == (1, D)
    cache._cache.clear()
    third, _ = message(grid, setup, request, "judge")
    assert len(made) == 2
    assert np.array_equal(first["scores"], third["scores"])


def test_gains_are_counted_once(monkeypatch):
    grid, setup = opened(mode="fusion")
    counted, fill = [], TableGains.fill

    def watched(self, families, rows, wanted):
        counted.append(int(wanted.sum()))
        fill(self, families, rows, wanted)

    monkeypatch.setattr(TableGains, "fill", watched)
    request = {"received": NOTHING, "own": NOTHING}
    message(grid, setup, request, "graphs")
    assert sum(counted) > 0
    counted.clear()
    message(grid, setup, request, "graphs")
    assert sum(counted) == 0


def test_a_message_delivered_twice_is_answered_alike():
    grid, setup = opened(mode="fusion")
    request = {"received": GRAPH, "own": OTHER}
    one, _ = message(grid, setup, request, "graphs")
    two, _ = message(grid, setup, request, "graphs")
    fresh, _ = message(LocalGrid(app_of(TABLES), 2), setup, request, "graphs")
    for name, edges in one.items():
        assert np.array_equal(edges, two[name])
        assert np.array_equal(edges, fresh[name])


def test_another_agreement_is_another_cache():
    grid, setup = opened(mode="scores", score="bdeu")
    questions = QUESTIONS
    message(grid, setup, questions._asdict(), "scores")
    other = FedGES(mode="scores", score="bdeu", equivalent_sample_size=9.0)
    federation, _, _ = exchange_schema(other, grid)
    arrays, _ = message(grid, federation.setup, questions._asdict(), "scores")
    np.testing.assert_allclose(arrays["gains"], answer(questions, TableGains(PART, "bdeu", 9.0), D))


def test_without_an_agreement_there_is_no_answer():
    grid = spy(TABLES)
    reply = ask(
        grid, NODE, {"received": NOTHING, "own": NOTHING}, exchange="graphs", method="fedges"
    )
    assert reply.has_error()
    assert "no agreement" in reply.error.reason


def test_a_table_that_changed_meanwhile_is_noticed():
    tables = [TABLES[0].copy(), TABLES[1]]
    grid, setup = opened(tables, mode="exact")
    tables[0].loc[3, "x2"] = "surprise"
    with pytest.raises(RuntimeError, match=r"x2.*must not change"):
        message(grid, setup, sets_of([[0]])._asdict(), "counts")
