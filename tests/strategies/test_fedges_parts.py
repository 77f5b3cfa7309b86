"""The loops of fusion against slow transcriptions, and the parts that a FedGES run is made of."""

from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from category_federations import alike, coded, in_order, make_tables
from federations import spy
from sweeps import sweep

from flwr_causal.clients.fedges import FedGESClient
from flwr_causal.contract.answers import answers
from flwr_causal.core.discrete.contingency_tables import ContingencyCounts, sets_of, tables_of
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.ges.fusion import fuse, needed
from flwr_causal.core.ges.greedy_search import prepared_search
from flwr_causal.core.ges.min_cut import supported_by_cuts
from flwr_causal.core.graphs.edge_lists import edges_of, matrix_of
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.protocol import records
from flwr_causal.protocol.fedges import FIT, GRAPH, GRAPHS, JUDGED_GRAPH
from flwr_causal.protocol.replies import Fold
from flwr_causal.simulations import simulate
from flwr_causal.strategies import FedGES
from flwr_causal.strategies.fedges.fedges import DRIVEN
from flwr_causal.strategies.fedges.paper import FusedGraph
from flwr_causal.strategies.fedges.problem import CountedTables, Found
from flwr_causal.strategies.fedges.rounds import Best, Fuser, shares_for
from flwr_causal.strategies.fedges.searches import chosen

SEEDS = range(2)
FEDERATIONS = [make_tables(d=7, n=500, parties=4, seed=seed)[0] for seed in range(4)]


class Plain(NamedTuple):
    """The parties' own searches and scores, at once."""

    names: tuple
    sources: list

    @classmethod
    def of(cls, tables, score="bdeu"):
        parts = coded(tables)
        return cls(parts[0].names, [TableGains(part, score) for part in parts])

    def search(self, k, start, limit):
        search = prepared_search(self.sources[k], self.names, start=matrix_of(start, self.d))
        search.run(limit)
        return edges_of(search.dag)

    @property
    def d(self):
        return len(self.names)

    def score(self, dag):
        return sum(source.graph_score(dag) for source in self.sources)

    def union(self, *graphs):
        return fuse(list(graphs), self.d).keep("union")


def paper_loop(plain, start, share, limit=10):
    """Algorithm 1 of Torrijos et al. 2024; yield the fused graph of each round."""
    parties = range(len(plain.sources))
    fused = np.zeros((0, 2), dtype=np.uint16)
    own = [fused for _ in parties]
    before = [set() for _ in parties]
    while True:
        begins = [plain.union(fused, own[k]) if start == "fuse" else fused for k in parties]
        own = [plain.search(k, begins[k], limit) for k in parties]
        fusion = fuse(own, plain.d)
        if share == "min-cut":
            fusion = supported_by_cuts(fusion, own)
        fused = fusion.keep(share)
        yield matrix_of(fused, plain.d), fusion
        if all(own[k].tobytes() in before[k] for k in parties):
            return
        for k in parties:
            before[k].add(own[k].tobytes())


NOTHING = np.zeros((0, 2), dtype=np.uint16)


def driven_loop(plain, shares, patience=3, limit=10, begin=NOTHING):
    """Both starts, several shares, the best by the sum of scores; yield what is proposed."""
    parties = range(len(plain.sources))
    current, own, best, since = begin, [NOTHING for _ in parties], -np.inf, 0
    while since < patience:
        sets = {
            "overwrite": [plain.search(k, current, limit) for k in parties],
            "fuse": [plain.search(k, plain.union(current, own[k]), limit) for k in parties],
        }
        proposed = []
        for graphs in sets.values():
            fusion = fuse(graphs, plain.d)
            levels = {needed(share, len(graphs)): share for share in shares}
            proposed += [(fusion.keep(share), graphs) for share in levels.values()]
        if best == -np.inf:
            proposed.append((begin, [NOTHING for _ in parties]))
        totals = [plain.score(matrix_of(edges, plain.d)) for edges, _ in proposed]
        index = int(np.flatnonzero(np.array(totals) >= max(totals) - 1e-6)[0])
        current, own = proposed[index]
        since = 0 if totals[index] > best + 1e-6 else since + 1
        best = max(best, totals[index])
        yield [matrix_of(edges, plain.d) for edges, _ in proposed], totals


def is_class_of(graph, dag):
    return np.array_equal(graph.adjacency, in_order(cpdag(dag), graph.names))


# The paper's loop.


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", sweep(SEEDS, kept=[0]))
@pytest.mark.parametrize("start", ["fuse", "overwrite"])
@pytest.mark.parametrize(
    ("share", "limit"), [("c50", None), ("union", 2), (0.75, 3), ("min-cut", 4)]
)
def test_the_papers_loop(seed, start, share, limit):
    tables = FEDERATIONS[seed]
    options = {} if limit is None else {"max_edges": limit}
    options |= {} if share == "c50" else {"fusion": share}
    run = simulate("fedges", tables, mode="fusion", start=start, keep="last", **options)
    compared(run, tables, start, share, limit)


@pytest.mark.parametrize("seed", sweep(SEEDS, kept=[1]))
@pytest.mark.parametrize("start", ["fuse", "overwrite"])
@pytest.mark.parametrize("share", ["union", "c25", "c50"])
def test_algorithm_1(seed, start, share):
    run = simulate("fedges", FEDERATIONS[seed], variant="paper", start=start, fusion=share)
    compared(run, FEDERATIONS[seed], start, share, 10)


def compared(run, tables, start, share, limit):
    """Compare a run with the transcription of Algorithm 1."""
    rounds = list(paper_loop(Plain.of(tables), start, share, limit or 10))
    assert run.rounds == len(rounds) > 1
    dag, fusion = rounds[-1]
    assert is_class_of(run.graph, dag)
    assert [record["num_edges"] for record in run.history] == [d.sum() for d, _ in rounds]
    assert "found before" in run.stop_reason
    # The share of the parties' transformed graphs that have each edge.
    support = np.zeros(dag.shape)
    support[fusion.edges[:, 0], fusion.edges[:, 1]] = fusion.support / 4
    support = in_order(support, run.graph.names)
    np.testing.assert_allclose(run.scores, support)
    either = np.maximum(support, support.T)
    np.testing.assert_allclose(run.graph.party_agreement, np.where(run.graph.adjacency, either, 0))


@pytest.mark.parametrize("most", [1, 4, 10**6])
def test_a_fused_graph_keeps_the_edges_that_most_parties_have(most):
    plain = Plain.of(FEDERATIONS[1])
    nothing = np.zeros((0, 2), dtype=np.uint16)
    own = {str(k): plain.search(k, nothing, 10) for k in range(len(plain.sources))}
    step = partial(FedGES().fuse, names=plain.names)
    free, capped = (
        Fuser(FedGES(mode="fusion", max_fused_edges=limit).options, step) for limit in (None, most)
    )
    fusion = free.fuse(own)
    for share in ("union", "c50"):
        whole, part = (fuser.limited(fusion, share, own) for fuser in (free, capped))
        assert part.dag.sum() == min(most, whole.dag.sum())
        assert not (part.dag & ~whole.dag).any()
        left_out = whole.support[whole.dag & ~part.dag]
        assert (left_out.max(initial=0.0) <= part.support[part.dag]).all()
    run = simulate("fedges", FEDERATIONS[1], start="fuse", keep="last", max_fused_edges=most)
    assert run.graph.num_edges <= most


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("start", ["fuse", "overwrite"])
def test_the_best_round_is_kept(seed, start):
    tables, plain = FEDERATIONS[seed], Plain.of(FEDERATIONS[seed])
    run = simulate("fedges", tables, mode="fusion", start=start, fusion="union", max_edges=3)
    dags = [np.zeros((7, 7), dtype=bool)]
    dags += [dag for dag, _ in paper_loop(plain, start, "union", 3)]
    totals = [plain.score(dag) for dag in dags]
    assert is_class_of(run.graph, dags[int(np.argmax(totals))])
    # The last graph is judged in an exchange of its own.
    assert [record["exchange"] for record in run.history] == ["judged graph"] * (len(dags) - 1) + [
        "judge"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("start", sweep(["fuse", "overwrite"], kept=["fuse"]))
def test_an_early_end_returns_the_best_that_was_judged(start):
    tables, plain = FEDERATIONS[1], Plain.of(FEDERATIONS[1])
    dags = [np.zeros((7, 7), dtype=bool)]
    dags += [dag for dag, _ in paper_loop(plain, start, "c50", 1)]
    totals = [plain.score(dag) for dag in dags]
    for rounds in range(2, len(dags)):
        run = simulate("fedges", tables, start=start, max_edges=1, max_rounds=rounds)
        # A graph is judged when it is received: one round after it was fused.
        assert is_class_of(run.graph, dags[int(np.argmax(totals[:rounds]))])
        assert run.rounds == rounds
        last = simulate("fedges", tables, start=start, keep="last", max_edges=1, max_rounds=rounds)
        assert is_class_of(last.graph, dags[rounds])


@pytest.mark.parametrize("start", ["fuse", "overwrite"])
def test_with_keep_last_only_edges_leave_a_party(start):
    tables = FEDERATIONS[2]
    grid = spy(tables)
    simulate_on(grid, start=start, keep="last")
    replies = [one for one in grid.replies if one.metadata.message_type == "train"]
    assert len(replies) == len(grid.training_messages) > 0
    for reply in replies:
        (name, edges), *others = records.arrays_of(reply.content).items()
        assert (name, others) == ("edges", [])
        assert edges.ndim == 2
        assert edges.shape[1] == 2
        assert edges.dtype == np.uint16
        assert edges.max(initial=0) < 7
        assert set(reply.content["metrics"]) == {"num-examples", "round"}
    judging = spy(tables)
    simulate_on(judging, start=start)
    metrics = [set(r.content["metrics"]) for r in judging.replies if r.content.array_records]
    assert all(names <= {"score", "num-examples", "round"} for names in metrics)
    assert any("score" in names for names in metrics)


def simulate_on(grid, **options):
    from flwr_causal.strategies import FedGES, run

    return run(FedGES(mode="fusion", min_available_nodes=1, **options), grid)


# Cycles and convergence, by parties that answer as they are told.


class Scripted(FedGESClient):
    """Finds the graphs of a script, by party and round, and scores by the number of edges."""

    graphs = ()
    scores = ()

    @answers(GRAPH, JUDGED_GRAPH)
    def graph(self, asked):
        self.round = asked.number
        return super().graph(asked)

    def search(self, cache, start):
        script = self.graphs[int(self.context.node_config["partition-id"])]
        return script[(self.round - 1) % len(script)]

    def _score(self, cache, edges):
        return float(self.scores[len(edges)])


def scripted(*graphs, scores=(0.0,) * 99):
    return type("Client", (Scripted,), {"graphs": graphs, "scores": scores})


def graph(*edges):
    return matrix_of(np.array(edges, dtype=np.int64).reshape(-1, 2), 7)


A, B, C = graph((0, 1)), graph((0, 1), (1, 2)), graph((3, 4), (4, 5), (5, 6))
NEW = [graph((i, j)) for i in range(7) for j in range(7) if i != j]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("scripts", "rounds"),
    [
        ([[A], [A]], 2),
        ([[A], [B]], 2),
        # The graphs go round: each was there before, though none is that of the round before.
        ([[A, B], [B, A]], 3),
        ([[A, B], [A, B, C]], 4),
        ([[A], [A, B, C]], 4),
        # One party always has a new one.
        ([[A], NEW], 30),
    ],
)
def test_it_ends_once_every_partys_graph_is_an_old_one(scripts, rounds):
    run = simulate(
        "fedges",
        FEDERATIONS[0][:2],
        client=scripted(*scripts),
        mode="fusion",
        start="overwrite",
        keep="last",
        max_rounds=30,
    )
    assert run.rounds == rounds
    assert ("found before" in run.stop_reason) == (rounds < 30)
    assert ("30 exchanges were used" in run.stop_reason) == (rounds == 30)


def test_a_graph_that_another_party_had_before_is_new():
    run = simulate(
        "fedges",
        FEDERATIONS[0][:2],
        client=scripted([A, A, B, B], [B, B, A, A]),
        start="overwrite",
        keep="last",
    )
    assert run.rounds == 2
    run = simulate(
        "fedges",
        FEDERATIONS[0][:2],
        client=scripted([A, B, B], [B, A, A]),
        start="overwrite",
        keep="last",
    )
    assert run.rounds == 3


def test_scores_choose_among_the_rounds_of_a_cycle():
    """Two edges score best: the second graph of four, which is neither the first nor the last."""
    script = [A, B, C, A]
    for scores, best in (((0, 1, 5, 2), B), ((0, 1, 2, 5), C), ((9, 1, 2, 5), graph())):
        run = simulate(
            "fedges",
            FEDERATIONS[0][:2],
            client=scripted(script, script, scores=scores),
            start="overwrite",
        )
        assert is_class_of(run.graph, best)
        assert run.rounds == 5


def test_graphs_that_run_away_are_not_followed():
    tables = make_tables(d=10, n=300, parties=2, seed=0)[0]
    full = np.triu(np.ones((10, 10), dtype=bool), 1)
    one = matrix_of(np.array([[0, 1]]), 10)

    class Runaway(FedGESClient):
        both = False

        @answers(GRAPHS)
        def graphs(self, asked):
            overwritten, fused = (full if self.both else one), full
            return {"overwritten": edges_of(overwritten), "fused": edges_of(fused)}

    run = simulate("fedges", tables, client=Runaway, mode="fusion", patience=1)
    # Of a start of one edge a share cannot matter: it is proposed once, with the graph of none.
    assert run.history[0]["candidates"] == 2
    assert run.graph.num_edges <= 2
    both = simulate(
        "fedges", tables, client=type("Both", (Runaway,), {"both": True}), mode="fusion"
    )
    # In the first round there is the graph without edges still.
    assert both.graph.num_edges == 0
    assert "grew to more than three edges" in both.stop_reason


# The loop that scores drive.


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", sweep(SEEDS, kept=[1]))
@pytest.mark.parametrize(
    "options", [{}, {"max_edges": 2}, {"patience": 1, "fusion": "union"}, {"score": "bic"}], ids=str
)
def test_the_driven_loop(seed, options, grids):
    tables = FEDERATIONS[seed]
    run = simulate("fedges", tables, mode="fusion", **options)
    plain = Plain.of(tables, options.get("score", "bdeu"))
    shares = (options["fusion"],) if "fusion" in options else shares_for(len(tables))
    limit = options.get("max_edges", 10)
    rounds = list(driven_loop(plain, shares, options.get("patience", 3), limit))
    assert run.rounds == 2 * len(rounds)
    judged = [record for record in run.history if record["exchange"] == "judge"]
    for (_, totals), record in zip(rounds, judged, strict=True):
        assert record["score"] == pytest.approx(max(totals))
    # What the parties were asked to judge, seen on the wire, has no better graph.
    proposed = []
    for message in grids[0].of_exchange("judge"):
        arrays = records.arrays_of(message.content)
        ends = np.cumsum(arrays["lengths"])[:-1]
        proposed += [matrix_of(part, 7) for part in np.split(arrays["edges"], ends)]
    assert len(proposed) >= 4 * 2
    assert any(dag.sum() == 0 for dag in proposed)
    best = max(plain.score(dag) for dag in proposed)
    found = run.graph.to_dag()
    order = [found.names.index(name) for name in plain.names]
    assert plain.score(found.adjacency[np.ix_(order, order)]) == pytest.approx(best, abs=1e-6)
    assert run.stop_reason == f"no better graph in {options.get('patience', 3)} rounds"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("rows", "seed", "kept"), [(400, 2, "driven"), (240, 0, "searched"), (120, 0, "same")]
)
def test_driven_rounds_from_the_graph_of_scores(rows, seed, kept, grids):
    """The loop starts from the graph of the search, and the tables of both graphs decide."""
    tables = make_tables(d=6, n=rows, parties=3, seed=seed, num_states=(2, 4))[0]
    alone = simulate("fedges", tables)
    run = simulate("fedges", tables, mode="scores", start="driven", patience=1)
    plain = Plain.of(tables)
    names = [record["exchange"] for record in run.history]
    assert names[: alone.rounds] == [record["exchange"] for record in alone.history]
    first = next(iter(grids[1].of_exchange("graphs"))).content
    begin = records.arrays_of(first)["received"]
    order = [plain.names.index(name) for name in alone.graph.names]
    searched = cpdag(matrix_of(begin, 6))
    assert np.array_equal(searched[np.ix_(order, order)], alone.graph.adjacency)
    rounds = list(driven_loop(plain, shares_for(3), patience=1, begin=begin))
    judged = [record for record in run.history if record["exchange"] == "judge"]
    assert len(judged) == len(rounds)
    for (_, totals), record in zip(rounds, judged, strict=True):
        assert record["score"] == pytest.approx(max(totals))
    proposed = [dag for dags, _ in rounds for dag in dags]
    best = cpdag(max(proposed, key=plain.score))
    further = ["graphs", "judge"] * len(rounds)
    if kept == "same":
        assert np.array_equal(best, searched)
        assert names[alone.rounds :] == further
    else:
        assert names[alone.rounds :] == [*further, "fit"]
        held_out = run.history[-1]["held_out"]
        assert set(held_out) == {alone.history[-1]["score"], DRIVEN}
        assert (max(held_out, key=held_out.__getitem__) == DRIVEN) == (kept == "driven")
    chosen = best if kept == "driven" else searched
    assert np.array_equal(run.graph.adjacency, chosen[np.ix_(order, order)])
    assert run.model.graph.to_cpdag().equals(run.graph.to_dag().to_cpdag())
    assert run.scores is None


def test_driven_rounds_that_are_cut_short_leave_an_exchange_for_the_tables():
    tables = make_tables(d=6, n=400, parties=3, seed=2, num_states=(2, 4))[0]
    alone = simulate("fedges", tables)
    for further, names in ((1, []), (2, ["graphs", "fit"]), (3, ["graphs", "judge", "fit"])):
        most = alone.rounds + further
        run = simulate("fedges", tables, mode="scores", start="driven", max_rounds=most)
        assert [record["exchange"] for record in run.history[alone.rounds :]] == names
        assert run.model is not None
        if not names:
            assert run.graph.adjacency.tolist() == alone.graph.adjacency.tolist()


def test_patience_is_counted_in_rounds_without_a_better_graph():
    runs = [simulate("fedges", FEDERATIONS[3], mode="fusion", patience=p) for p in (1, 2, 4)]
    rounds = [run.rounds for run in runs]
    assert rounds[0] < rounds[1] < rounds[2]


def test_what_travels_in_the_driven_loop():
    grid = spy(FEDERATIONS[0])
    simulate_on(grid)
    for reply in grid.replies[4:]:
        arrays = records.arrays_of(reply.content)
        assert set(reply.content["metrics"]) == {"num-examples", "round"}
        if "scores" in arrays:
            assert set(arrays) == {"scores"}
            # At most two starts of four shares, and the graph without edges.
            assert arrays["scores"].ndim == 1
            assert len(arrays["scores"]) <= 9
        else:
            assert set(arrays) == {"overwritten", "fused"}
            for edges in arrays.values():
                assert edges.dtype == np.uint16
                assert edges.shape[1:] == (2,)


# Smaller parts.


def test_better_is_decided_by_the_parties_that_judged_both():
    nothing = FusedGraph(graph(), np.zeros((7, 7)), {})
    assert Best(nothing).beaten_by({"a": -100.0})
    best = Best(nothing, {"a": -10.0, "b": -10.0})
    assert best.beaten_by({"a": -9.0, "b": -10.5})
    assert not best.beaten_by({"a": -10.0, "b": -10.0})
    assert not best.beaten_by({"a": -9.0, "b": -11.5})
    # Without b the sum is larger, and the graph worse.
    assert not best.beaten_by({"a": -11.0})
    assert best.beaten_by({"a": -9.0})
    # Nobody judged both: nothing speaks for the new one.
    assert not best.beaten_by({"c": 0.0})


def test_the_last_exchange_chooses_and_adds_tables_and_votes():
    chain, empty = graph((0, 1), (2, 1))[:3, :3], np.zeros((3, 3), dtype=bool)
    graphs = [Found(dag, dag, "", score=score) for dag, score in ((empty, "one"), (chain, "two"))]
    sets = sets_of([[0], [1], [2], [0, 1, 2]])
    fold, nothing = Fold(FIT), np.zeros(0, dtype=np.int64)
    # Of variable 1, who says what 0 and 2 say together; the others are as independent as can be.
    whole = {"a": [9, 0, 0, 5, 0, 5, 9, 0], "b": [5, 0, 0, 9, 0, 9, 5, 0]}
    for name, votes, small in (("a", [1, 0], 1), ("b", [1, 1], 2)):
        table = np.array(whole[name]).reshape(2, 2, 2)
        axes = [(1, 2), (0, 2), (0, 1)]
        dense = np.concatenate([*(table.sum(axis=own) for own in axes), table.ravel()])
        counts = ContingencyCounts(dense, nothing, nothing, nothing)._asdict()
        votes = np.array(votes, dtype=np.uint8)
        fold.add(name, {**counts, "votes": votes, "small": np.array(small)})
    replies = fold.close()
    source = CountedTables(np.array([2, 2, 2]), secure=False)
    asking = source.ask(sets, so_far=lambda: None, further={})
    assert next(asking).exchange is FIT
    with pytest.raises(StopIteration) as end:
        asking.send(replies)
    assert dict(source.small) == {"a": 1, "b": 2}
    tables = tables_of(sets, end.value.value[0], source.cardinalities)
    tables = dict(zip(map(tuple, sets.lists()), tables, strict=True))
    shares = replies["votes"] / 2
    fitted = chosen(graphs, tables, shares, 1.0)
    assert fitted.found is graphs[1]
    assert fitted.held_out[1] > fitted.held_out[0]
    assert fitted.tables[0, 1, 2].ravel().tolist() == [14, 0, 0, 14, 0, 14, 14, 0]
    assert fitted.support[chain].tolist() == [1.0, 0.5]
    assert fitted.support.sum() == 1.5
    # The graph without edges is chosen if it comes alone, with no votes.
    assert chosen(graphs[:1], tables, shares, 1.0).support.sum() == 0


def test_small_cells_are_those_of_some_rows_but_few():
    counts = ContingencyCounts(np.array([0, 1, 4, 5]), np.zeros(2), np.array([3, 8]), np.array([2]))
    assert [counts.num_small(minimum) for minimum in (0, 1, 2, 5, 9)] == [0, 0, 1, 3, 5]


def test_knowledge_of_the_fused_graph_is_put_right():
    """What parties find is corrected: required edges come in, forbidden ones go."""
    from flwr_causal.core.graphs.knowledge import Knowledge

    knowledge = Knowledge(required=[("x6", "x5")], forbidden=[("x0", "x1"), ("x1", "x0")])
    run = simulate(
        "fedges",
        FEDERATIONS[0][:2],
        client=scripted([B], [B]),
        start="overwrite",
        keep="last",
        knowledge=knowledge,
    )
    edges = {(cause, effect) for cause, effect, _ in run.graph.edges()}
    assert edges == {("x6", "x5"), ("x1", "x2"), ("x2", "x1")}


def test_one_loop_is_the_other_where_only_its_start_is_new():
    """In the first round there is nothing to fuse with."""
    tables = FEDERATIONS[0]
    one, two = (
        simulate("fedges", tables, start=start, keep="last", max_rounds=1)
        for start in ("fuse", "overwrite")
    )
    assert alike(one.graph, two.graph)


def test_low_shares_are_tried_where_they_mean_two_parties_at_most():
    assert [len(shares_for(num)) for num in (2, 5, 13, 14, 20)] == [5, 5, 5, 4, 4]


@pytest.mark.parametrize("keep", ["best", "last"])
def test_a_loop_whose_graphs_run_away_ends(keep):
    """Independent variables and a huge prior weight: every party adds what chance offers."""
    rng = np.random.default_rng(0)
    tables = [rng.integers(0, 2, (12, 12)) for _ in range(4)]
    options = {"start": "fuse", "fusion": "union", "equivalent_sample_size": 50.0, "keep": keep}
    run = simulate("fedges", tables, **options)
    assert "grew to more than three edges" in run.stop_reason
    assert run.rounds < 100
    assert run.graph.to_dag().is_acyclic()


def test_the_papers_loop_goes_on_however_large_the_graphs_grow():
    """Section 3: until no party's graph is new."""
    rng = np.random.default_rng(0)
    tables = [rng.integers(0, 2, (12, 12)) for _ in range(4)]
    options = {"variant": "paper", "equivalent_sample_size": 50.0, "max_rounds": 30}
    run = simulate("fedges", tables, **options)
    assert "found before" in run.stop_reason
    ours = {"variant": "default", "start": "fuse", "fusion": "union", "keep": "last"}
    ended = simulate("fedges", tables, **options | ours)
    assert "grew" in ended.stop_reason
    assert run.rounds > ended.rounds
