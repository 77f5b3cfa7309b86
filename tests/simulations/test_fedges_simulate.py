"""FedGES over whole federations: against GES on all rows, naive searches, and itself turned about.

"exact" must be GES on the pooled rows, "scores" GES on sums over the parties (BDeu: of their own
scores; BIC and qNML: of their likelihoods, with one penalty), and how
far the server looks ahead, how rows and columns lie, and what columns are called must not matter.
"""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from category_federations import (
    alike,
    coded,
    in_order,
    make_tables,
    plain_search,
    pooled,
    pooled_search,
    refined_search,
    same_class,
    scored_search,
    uneven,
)
from federations import once
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_causal.core.discrete.bayesian_network import fit
from flwr_causal.core.discrete.discrete import DiscreteTable, as_discrete
from flwr_causal.core.discrete.scores import TableGains, score_graph
from flwr_causal.core.ges.ges import ges
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.data.read.bif import read_bif
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate

SCORES = ["bdeu", "bic", "qnml"]
TABLES, NETWORK = make_tables(d=8, n=900, parties=3, seed=4)
# On the first of these qNML is chosen, on the second one BDeu, on the third one BIC.
CHOICES = [make_tables(d=5, n=60, parties=2, seed=s, num_states=(2, 4))[0] for s in (0, 14, 16)]
MODES = {
    "scores": {"mode": "scores"},
    "exact": {"mode": "exact"},
    "driven": {"mode": "fusion"},
    "fuse": {"mode": "fusion", "start": "fuse"},
    "overwrite": {"mode": "fusion", "start": "overwrite", "keep": "last"},
}


@once
def run_of(tables, mode, **options) -> Run:
    return simulate("fedges", tables, **MODES[mode], **options)


# Equal to GES on the rows.


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("score", SCORES)
def test_exact_is_ges_on_the_pooled_rows(score, seed):
    tables, _ = make_tables(d=6 + seed, n=700, parties=1, seed=seed)
    parties = uneven(tables[0], seed)
    assert min(map(len, parties)) == 1
    assert len({tuple(party.columns) for party in parties}) > 1
    run = run_of(parties, "exact", score=score, parameters=False)
    assert alike(run.graph, pooled_search(parties, score))
    assert run.graph.names == tuple(tables[0].columns)
    assert run.graph.num_edges > 0


@pytest.mark.slow
@settings(max_examples=12)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 120), min_size=1, max_size=5))
def test_exact_does_not_depend_on_who_has_which_rows(seed, sizes):
    rng = np.random.default_rng(seed)
    whole = make_tables(d=5, n=sum(sizes) + 2, parties=1, seed=7)[0][0]
    # Sorted by a column, so that the parties see different states of it.
    whole = whole.sort_values(f"x{rng.integers(5)}", ignore_index=True)
    bounds = np.cumsum([0, *sizes[:-1], sizes[-1] + 2])
    parties = [whole.iloc[a:b] for a, b in pairwise(bounds)]
    run = run_of(parties, "exact", parameters=False)
    assert same_class(run.graph, ges(whole, score="bic"))


def test_states_that_a_party_never_saw():
    whole = pooled(TABLES).sort_values(["x0", "x3"], ignore_index=True)
    parties = np.array_split(np.arange(len(whole)), 3)
    tables = [whole.iloc[rows] for rows in parties]
    states = [{name: set(table[name]) for name in table} for table in tables]
    assert states[0]["x0"] != states[2]["x0"]
    for score in SCORES:
        run = run_of(tables, "exact", score=score)
        assert alike(run.graph, pooled_search(tables, score))
    # A party that reported its own states only would have other scores.
    assert alike(run_of(tables, "scores", score="bdeu").graph, scored_search(tables, "bdeu"))


@pytest.mark.few(2)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("seed", [1, 2])
def test_scores_is_a_search_on_sums(score, seed):
    parties = uneven(make_tables(d=7, n=800, parties=1, seed=seed)[0][0], seed)
    run = run_of(parties, "scores", score=score, parameters=False)
    assert alike(run.graph, scored_search(parties, score))


@pytest.mark.parametrize("size", [0.1, 20.0])
def test_the_equivalent_sample_size_is_used(size):
    exact = run_of(TABLES, "exact", score="bdeu", equivalent_sample_size=size)
    assert alike(exact.graph, pooled_search(TABLES, "bdeu", size))
    scores = run_of(TABLES, "scores", score="bdeu", equivalent_sample_size=size)
    assert alike(scores.graph, scored_search(TABLES, "bdeu", size))
    default = run_of(TABLES, "exact", score="bdeu")
    assert not alike(default.graph, exact.graph)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("mode", ["scores", "exact"])
def test_a_federation_of_one_is_ges(mode, score):
    table = pooled(TABLES)
    run = run_of([table], mode, score=score)
    assert alike(run.graph, ges(table, score=score))


@pytest.mark.few(4)
@pytest.mark.parametrize("keep", ["best", "last"])
@pytest.mark.parametrize("start", ["fuse", "overwrite"])
@pytest.mark.parametrize("score", SCORES)
def test_a_fusion_of_one_ends_where_ges_finds_nothing_more(start, keep, score):
    """The loop goes on from the last graph, so that its end is one that GES leaves as it is."""
    table = pooled(TABLES)
    run = simulate(
        "fedges", [table], mode="fusion", start=start, keep=keep, score=score, max_edges=10**4
    )
    assert alike(run.graph, ges(table, score=score))
    assert alike(run.graph, ges(table, score=score, start=run.graph))


def test_few_edges_a_round_only_take_longer_with_one_party():
    table = pooled(TABLES)
    few, many = (
        simulate("fedges", [table], mode="fusion", start="overwrite", keep="last", max_edges=m)
        for m in (1, 1000)
    )
    assert few.rounds > many.rounds
    one_by_one = CausalGraph.from_array(np.zeros((8, 8)), tuple(table.columns))
    for _ in range(few.rounds):
        one_by_one = ges(table, start=one_by_one, max_edges=1)
    assert alike(few.graph, one_by_one)


@pytest.mark.few(2)
@pytest.mark.parametrize(("mode", "seed"), [("scores", 13), ("scores", 60), ("exact", 20)])
def test_turning_finds_what_the_other_phases_do_not(mode, seed):
    tables, _ = make_tables(d=8, n=400, seed=seed, edges_per_variable=2.0, num_states=(2, 3))
    search = pooled_search if mode == "exact" else scored_search
    run = run_of(tables, mode, score="bdeu", turn=True)
    assert alike(run.graph, search(tables, "bdeu", turn=True))
    assert not alike(run.graph, search(tables, "bdeu"))
    assert not alike(run.graph, run_of(tables, mode, score="bdeu").graph)


@pytest.mark.slow
def test_the_default_is_the_best_of_three_scores_by_held_out_likelihood():
    chosen = set()
    for tables in CHOICES:
        run = simulate("fedges", tables)
        found = {score: refined_search(tables, "qnml", score) for score in ("qnml", "bic", "bdeu")}
        held_out = {score: held_out_one_by_one(tables, graph) for score, graph in found.items()}
        best = max(held_out, key=held_out.get)
        assert alike(run.graph, found[best])
        last = run.history[-1]
        assert last["score"] == best
        assert last["held_out"] == pytest.approx(held_out)
        chosen.add(best)
        # Without tables there is nothing to choose by.
        unrefined = simulate("fedges", tables, parameters=False)
        assert alike(unrefined.graph, scored_search(tables, "qnml"))
        assert "counts" not in {record["exchange"] for record in unrefined.history}
    assert chosen == {"qnml", "bic", "bdeu"}


def test_the_search_on_counts_adds_no_adjacency():
    """It removes those that the rows of all parties do not support."""
    fewer = 0
    for seed in (0, 6):
        tables = make_tables(d=8, n=900, parties=6, seed=seed, edges_per_variable=2.0)[0]
        run = simulate("fedges", tables, score="qnml")
        exchanges = [record["exchange"] for record in run.history]
        assert exchanges[-1] == "fit"
        assert "counts" in exchanges[:-1]
        marks = run.graph.adjacency | run.graph.adjacency.T
        _, before = plain_search(tables, sources=None, score="qnml", noise=5.0)
        screened = in_order(before.marks | before.marks.T, run.graph.names)
        assert not (marks & ~screened).any()
        fewer += int((screened & ~marks).sum())
        assert alike(run.graph, refined_search(tables, "qnml", "qnml"))
    assert fewer > 0


def test_a_search_that_is_cut_short_among_counts_keeps_what_it_had():
    tables = make_tables(d=8, n=900, parties=6, seed=1, edges_per_variable=2.0)[0]
    whole = simulate("fedges", tables)
    first = 1 + [record["exchange"] for record in whole.history].index("counts")
    run = simulate("fedges", tables, max_rounds=first)
    assert "used up" in run.stop_reason
    assert run.model is not None
    assert run.graph.num_edges >= whole.graph.num_edges


def held_out_one_by_one(tables, graph):
    """The mean log-likelihood of each row under a network that is fitted to all other rows."""
    rows = as_discrete(pooled(tables))
    dag = graph.to_dag().adjacency
    total = 0.0
    for i in range(rows.num_rows):
        others = np.delete(rows.codes, i, axis=1)
        network = fit(DiscreteTable(rows.names, rows.states, others), dag)
        one = DiscreteTable(rows.names, rows.states, rows.codes[:, [i]])
        total += network.log_likelihood(one)[0]
    return total / rows.num_rows


def test_the_default_mode_and_scores():
    assert alike(run_of(TABLES, "exact").graph, pooled_search(TABLES, "bic"))
    bdeu = run_of(TABLES, "driven", score="bdeu")
    assert alike(run_of(TABLES, "driven").graph, bdeu.graph)
    # One of fusion's own options makes it the mode.
    assert {r["exchange"] for r in simulate("fedges", TABLES, start="fuse").history} >= {
        "judged graph"
    }


@pytest.mark.nightly
def test_twenty_parties_are_about_as_accurate_as_all_rows_in_one_table():
    """With a penalty for every party weak edges are missed: many times the errors."""
    pooled_errors = federated = party_penalties = 0
    for seed in (11, 12, 13):
        tables, network = make_tables(d=40, n=5000, parties=20, seed=seed, edges_per_variable=1.4)
        own = [TableGains(part, "qnml") for part in coded(tables)]
        _, search = plain_search(tables, sources=own)
        marks = in_order(search.marks, tuple(tables[0].columns))
        summed = CausalGraph.from_array(marks, tuple(tables[0].columns), kind="cpdag")
        better = min(
            compare(network.graph, pooled_search(tables, score))["smhd"]
            for score in ("bdeu", "bic")
        )
        pooled_errors += better
        federated += simulate("fedges", tables, truth=network.graph).metrics["smhd"]
        party_penalties += compare(network.graph, summed)["smhd"]
    assert federated <= 1.5 * pooled_errors
    assert federated <= party_penalties / 4


# The speculative search.


@pytest.mark.few(3)
@pytest.mark.parametrize("mode", ["scores", "exact"])
@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("limited", [False, True])
def test_estimates_of_gains_change_the_exchanges_only(mode, turn, limited):
    knowledge = Knowledge(
        required=[("x5", "x1")], forbidden=[("x0", "x2")], tiers=[("x3",), ("x4", "x6")]
    )
    options = {"turn": turn, "score": "bic", "parameters": False}
    if limited:
        options |= {"knowledge": knowledge, "max_parents": 2}
    run = run_of(TABLES, mode, **options)
    options = {key: options[key] for key in ("turn", "knowledge", "max_parents") if key in options}
    search = pooled_search if mode == "exact" else scored_search
    assert alike(run.graph, search(TABLES, "bic", **options))


@pytest.mark.parametrize("mode", ["scores", "exact"])
def test_a_search_takes_fewer_exchanges_than_operators(mode):
    tables = make_tables(d=8, n=900, parties=3, seed=5)[0]
    run = run_of(tables, mode, score="bic", parameters=False)
    sources = [TableGains(coded([pooled(tables)])[0], "bic")] if mode == "exact" else None
    naive, search = plain_search(tables, "bic", sources=sources)
    assert run.rounds <= min(naive.needed, search.num_operators) / 2
    # The first exchange asks about all pairs.
    pairs = 8 * 7 // 2
    assert run.history[0]["bytes_received"] >= 3 * pairs


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["scores", "exact"])
def test_few_exchanges_on_a_network_as_large_as_alarm(mode):
    tables, _ = make_tables(
        d=37, n=3000, parties=4, seed=1, edges_per_variable=1.25, num_states=(2, 3)
    )
    run = run_of(tables, mode, parameters=False)
    assert run.rounds <= 12
    reference = pooled_search(tables, "bic") if mode == "exact" else scored_search(tables, "qnml")
    assert alike(run.graph, reference)


# Cut short.


@pytest.mark.parametrize("mode", ["scores", "exact"])
def test_a_search_cut_short_is_a_prefix_of_the_naive_one(mode):
    tables = make_tables(d=8, n=900, parties=3, seed=5)[0]
    one = [TableGains(coded([pooled(tables)])[0], "bic")] if mode == "exact" else None
    naive, _ = plain_search(tables, "bic", sources=one)
    names = tuple(tables[0].columns)
    path = [in_order(marks, names).tobytes() for marks in naive.path]
    whole = run_of(tables, mode, score="bic", parameters=False)
    places = []
    for rounds in range(1, whole.rounds):
        run = run_of(tables, mode, score="bic", parameters=False, max_rounds=rounds)
        assert run.rounds == rounds
        assert "used up" in run.stop_reason
        places.append(path.index(run.graph.adjacency.tobytes()))
    assert places == sorted(places)
    assert len(set(places)) > 1
    assert "used up" not in whole.stop_reason


@pytest.mark.few(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rounds", [2, 3])
def test_max_rounds_is_kept(mode, rounds):
    run = run_of(TABLES, mode, max_rounds=rounds)
    assert run.rounds <= rounds
    assert run.graph.is_acyclic()
    assert run.stop_reason
    if mode == "driven":
        assert run.stop_reason == f"all of the {rounds} exchanges were used"


@pytest.mark.few(5)
@pytest.mark.parametrize("parameters", [None, True, False])
@pytest.mark.parametrize("mode", MODES)
def test_one_exchange_gives_a_graph(mode, parameters):
    run = run_of(TABLES, mode, max_rounds=1, parameters=parameters)
    assert run.rounds == 1
    assert run.graph.num_edges > 0
    assert "exchanges were used" in run.stop_reason
    # There was none left for the tables of probabilities.
    assert run.model is None
    wanted = mode in ("scores", "exact") if parameters is None else parameters
    assert any("no Bayesian network" in text for text in run.warnings) == wanted


# Turned about.


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", MODES)
def test_order_of_parties_rows_and_columns(mode):
    run = run_of(TABLES, mode)
    rng = np.random.default_rng(0)
    backwards = run_of(TABLES[::-1], mode)
    assert same_class(run.graph, backwards.graph)
    assert backwards.rounds == run.rounds
    rows = [t.iloc[rng.permutation(len(t))] for t in TABLES]
    assert alike(run_of(rows, mode).graph, run.graph)
    columns = [t[rng.permutation(t.columns)] for t in TABLES]
    turned = run_of(columns, mode)
    assert turned.graph.names == tuple(columns[0].columns)
    assert same_class(turned.graph, run.graph)
    for (cause, effect), share in shares(run.graph).items():
        assert shares(turned.graph)[cause, effect] == pytest.approx(share)


def shares(graph):
    found = {}
    for cause, effect, _ in graph.edges():
        i, j = graph.names.index(cause), graph.names.index(effect)
        found[cause, effect] = graph.party_agreement[i, j]
    return found


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", MODES)
def test_what_states_are_called_does_not_matter(mode):
    run = run_of(TABLES, mode)
    renamed = [t.map({f"s{k}": name for k, name in enumerate("dcba")}.get) for t in TABLES]
    assert alike(run_of(renamed, mode).graph, run.graph)
    numbers = [t.map(lambda state: int(state[1:])) for t in TABLES]
    assert alike(run_of(numbers, mode).graph, run.graph)


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", MODES)
def test_the_same_run_twice(mode):
    one, two = (run_of(TABLES, mode, seed=s, parameters=True) for s in (0, 1))
    assert alike(one.graph, two.graph)
    np.testing.assert_array_equal(one.graph.party_agreement, two.graph.party_agreement)
    assert (one.bytes_sent, one.bytes_received) == (two.bytes_sent, two.bytes_received)


def test_half_precision_travels_half_the_bytes_and_finds_the_graph():
    wide, narrow = (
        run_of(TABLES, "scores", parameters=False, precision=p) for p in ("float64", "float32")
    )
    assert alike(narrow.graph, wide.graph)
    assert narrow.bytes_received < 0.7 * wide.bytes_received


# What a run holds.


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", MODES)
def test_a_run_holds_what_is_promised(mode):
    truth = NETWORK.graph
    run = run_of(TABLES, mode, truth=truth)
    assert run.graph.kind == "cpdag"
    assert run.graph.names == tuple(TABLES[0].columns)
    assert np.array_equal(run.graph.to_dag().to_cpdag().adjacency, run.graph.adjacency)
    assert run.rounds == len(run.history)
    rest = {name: value for name, value in run.metrics.items() if name != "bdeu"}
    assert rest == compare(truth, run.graph)
    assert run.metrics["bdeu"] == pytest.approx(score_graph(run.graph, pooled(TABLES)))
    assert {"shd", "smhd", "cpdag_shd", "adjacency_recall"} <= set(run.metrics)
    assert run.config["method"] == "fedges"
    assert run.parties == {f"party {k}": 300 for k in range(3)}
    assert run.failures == []
    phases = [record["exchange"] for record in run.history]
    assert (phases[-1] == "fit") == (mode in ("scores", "exact")) == (run.model is not None)
    assert run.graph.confidence is None  # which is of replicates
    agreement = run.graph.party_agreement
    assert ((agreement >= 0) & (agreement <= 1)).all()
    assert not agreement[~run.graph.adjacency].any()
    assert np.isin(np.round(3 * agreement, 9), [0, 1, 2, 3]).all()
    if mode in ("scores", "exact"):
        assert run.scores is None
    else:
        assert run.scores.shape == (8, 8)


@pytest.mark.parametrize("mode", ["scores", "exact", "fuse"])
def test_the_network_is_that_of_the_pooled_rows(mode, tmp_path):
    size = 3.0
    run = run_of(TABLES, mode, parameters=True, equivalent_sample_size=size)
    whole = pooled(TABLES)
    network = run.model
    assert network.names == tuple(whole.columns)
    assert same_class(network.graph.to_cpdag(), run.graph)
    states = as_discrete(whole).states
    assert network.states == states
    for j, name in enumerate(network.names):
        parents = [network.names[k] for k in network.parents[j]]
        counts = np.zeros([len(states[k]) for k in (*network.parents[j], j)])
        for row in whole[[*parents, name]].itertuples(index=False):
            axes = zip((*network.parents[j], j), row, strict=True)
            counts[tuple(states[k].index(state) for k, state in axes)] += 1
        expected = counts + size / counts.size
        expected /= expected.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(network.tables[j], expected, rtol=1e-12)
    centralised = fit(as_discrete(whole), network.graph.adjacency, equivalent_sample_size=size)
    np.testing.assert_allclose(network.log_likelihood(whole), centralised.log_likelihood(whole))
    sample = network.sample(4000, seed=1)
    assert list(sample.columns) == list(network.names)
    for name in sample:
        shares_there = whole[name].value_counts(normalize=True)
        shares_here = sample[name].value_counts(normalize=True).reindex(shares_there.index)
        assert np.abs(shares_here.fillna(0) - shares_there).max() < 0.06
    loaded = Run.load(run.save(tmp_path))
    assert loaded.graph.equals(run.graph)
    np.testing.assert_array_equal(loaded.graph.party_agreement, run.graph.party_agreement)
    assert all(map(np.array_equal, loaded.model.tables, network.tables))
    assert loaded.model.states == network.states
    assert loaded.history == run.history
    written = read_bif(tmp_path / "model.bif")
    assert written.names == network.names
    np.testing.assert_allclose(written.log_likelihood(whole), network.log_likelihood(whole))


def test_no_network_is_no_file(tmp_path):
    run = run_of(TABLES, "driven")
    run_of(TABLES, "scores").save(tmp_path)
    assert (tmp_path / "model.bif").exists()
    assert Run.load(run.save(tmp_path)).model is None
    assert not (tmp_path / "model.bif").exists()
    np.testing.assert_array_equal(Run.load(tmp_path).scores, run.scores)


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", ["scores", "exact"])
@pytest.mark.parametrize("score", SCORES)
def test_the_agreement_is_the_share_of_parties_that_gain_by_an_edge(mode, score):
    few = [table.iloc[:n] for table, n in zip(TABLES, (20, 60, 300), strict=True)]
    run = run_of(few, mode, score=score)
    dag, parts = run.model.graph, coded(few)
    names = parts[0].names
    gains = [TableGains(part, score) for part in parts]
    expected = np.zeros((8, 8))
    for cause, effect, _ in dag.edges():
        y = names.index(effect)
        parents = sorted(names.index(c) for c, e, _ in dag.edges() if e == effect)
        without = [p for p in parents if p != names.index(cause)]
        votes = [s.family_score(y, parents) > s.family_score(y, without) for s in gains]
        i, j = run.graph.names.index(cause), run.graph.names.index(effect)
        expected[i, j] = np.mean(votes)
        if run.graph.adjacency[j, i]:
            expected[j, i] = expected[i, j]
    np.testing.assert_allclose(run.graph.party_agreement, expected, atol=1e-12)
    assert len(np.unique(expected[run.graph.adjacency])) > 1, "the case must tell parties apart"


@pytest.mark.parametrize(("mode", "score", "expected"), [("exact", "bdeu", "bic")])
def test_a_score_that_is_given_is_used(mode, score, expected):
    given_score, default = run_of(TABLES, mode, score=score), run_of(TABLES, mode)
    assert not alike(given_score.graph, default.graph)
    assert alike(default.graph, pooled_search(TABLES, expected))


def test_the_score_of_the_parties_searches_is_used():
    runs = [run_of(TABLES, "fuse", score=score) for score in SCORES]
    assert any(not alike(run.graph, runs[0].graph) for run in runs[1:])


# Knowledge and limits.


# Against what every mode finds without it: x7 -> x6 -> x0, x4 and x0 -> x5.
KNOWN = Knowledge(
    required=[("x5", "x0")],
    forbidden=[("x6", "x7"), ("x7", "x6")],
    tiers=[("x4",), ("x2", "x6"), ("x1",)],
)


@pytest.mark.few(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("turn", [False, True])
def test_knowledge_is_respected_by_every_mode(mode, turn):
    free = run_of(TABLES, mode, turn=turn)
    run = run_of(TABLES, mode, turn=turn, knowledge=KNOWN)
    masks = KNOWN.masks(run.graph.names)
    for graph in (run.graph, run.graph.to_dag()):
        directed = graph.adjacency & ~graph.adjacency.T
        assert not (directed & ~masks.allowed).any()
        assert directed[masks.required].all()
    assert not alike(run.graph, free.graph)
    assert not (run.graph.adjacency | run.graph.adjacency.T)[6, 7]
    if run.model is not None:
        assert not (run.model.graph.adjacency & ~masks.allowed).any()
    if mode in ("scores", "exact"):
        search = pooled_search if mode == "exact" else scored_search
        score = "bic" if mode == "exact" else "qnml"
        assert alike(run.graph, search(TABLES, score, knowledge=KNOWN, turn=turn))


def test_knowledge_may_be_a_file(tmp_path):
    path = tmp_path / "known.toml"
    path.write_text(
        'required = [["x5", "x0"]]\nforbidden = [["x6", "x7"], ["x7", "x6"]]\n'
        'tiers = [["x4"], ["x2", "x6"], ["x1"]]\n'
    )
    run = run_of(TABLES, "exact", knowledge=str(path))
    assert alike(run.graph, run_of(TABLES, "exact", knowledge=KNOWN).graph)


@pytest.mark.parametrize("mode", ["scores", "exact"])
def test_max_parents_limits_the_search(mode):
    run = run_of(TABLES, mode, max_parents=1)
    free = run_of(TABLES, mode)
    assert run.graph.to_dag().adjacency.sum(axis=0).max() == 1
    assert free.graph.to_dag().adjacency.sum(axis=0).max() > 1
    search = pooled_search if mode == "exact" else scored_search
    score = "bic" if mode == "exact" else "qnml"
    assert alike(run.graph, search(TABLES, score, max_parents=1))


@pytest.mark.parametrize("mode", ["driven", "fuse", "overwrite"])
def test_max_edges_is_a_limit_for_each_party_and_round(mode):
    free = run_of(TABLES, mode, max_rounds=2)
    run = run_of(TABLES, mode, max_rounds=2, max_edges=1)
    # The second round of "driven" is the parties' judgement.
    assert 0 < run.graph.num_edges <= (3 if mode == "driven" else 6) < free.graph.num_edges + 3
    assert run.graph.num_edges < free.graph.num_edges


def test_shares_of_parties():
    """More parties needed, fewer edges: union, c25, c50, all."""
    tables = make_tables(d=8, n=1000, parties=5, seed=4)[0]
    runs = [
        simulate("fedges", tables, start="fuse", keep="last", fusion=fusion, max_rounds=1)
        for fusion in ("union", "c25", 0.2, 0.4, "c50", 1.0, 1)
    ]
    edges = [run.graph.num_edges for run in runs]
    # Of five parties c25 asks for one as union does, c50 for two.
    assert alike(runs[0].graph, runs[1].graph)
    assert alike(runs[0].graph, runs[2].graph)
    assert alike(runs[3].graph, runs[4].graph)
    assert alike(runs[5].graph, runs[6].graph)
    assert edges[0] > edges[3] > edges[5]


# Discretisation.


def numeric_tables(parties=3, n=600, seed=2):
    frames, _ = federated_linear(5, n, parties, seed=seed)
    return [
        frame.assign(site=np.where(frame["x0"] > 0, "in", "out"), half=frame["x1"].round() % 3)
        for frame in frames
    ]


def cut_as(run, table, bins):
    """The rows in the states that a run agreed on."""
    names = run.graph.names
    result = {}
    for j, name in enumerate(names):
        states = run.model.state_names[j]
        if not any(state.startswith("<") for state in states):
            result[name] = table[name].map(lambda v: str(int(v)) if isinstance(v, float) else v)
            continue
        ends = [float(s.rpartition("to ")[2].removeprefix("<= ")) for s in states[:-1]]
        assert len(ends) == bins - 1
        result[name] = np.array(states)[np.searchsorted(ends, table[name], side="left")]
    return pd.DataFrame(result)


@pytest.mark.parametrize("bins", [2, 4])
def test_numbers_are_cut_alike_by_all(bins):
    tables = numeric_tables()
    run = run_of(tables, "exact", discretize=bins, parameters=True)
    assert run.history[0]["exchange"] == "cuts"
    cut = cut_as(run, pooled(tables), bins)
    for name in ("x0", "x4"):
        assert cut[name].value_counts().min() > 0.95 * len(cut) / bins
    assert alike(run.graph, ges(cut, score="bic"))
    assert run.graph.num_edges >= 5
    scores = run_of(tables, "scores", discretize=bins, score="bic")
    parts = [cut_as(scores, table, bins) for table in tables]
    assert alike(scores.graph, refined_search(parts, "bic", "bic"))


def test_the_cuts_do_not_depend_on_who_has_which_rows():
    tables = numeric_tables()
    whole = pooled(tables).sort_values("x2", ignore_index=True)
    other = [whole.iloc[:5], whole.iloc[5:320], whole.iloc[320:]]
    one, two = (run_of(parties, "exact", discretize=4) for parties in (tables, other))
    assert alike(one.graph, two.graph)
    assert one.model.states == two.model.states


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", MODES)
def test_discretisation_in_every_mode(mode):
    tables = numeric_tables()
    run = run_of(tables, mode, discretize=3)
    cuts = sum(record["exchange"] == "cuts" for record in run.history)
    assert 1 <= cuts <= 8
    assert run.graph.num_edges >= 4


# What the user is told.


def test_constant_columns_stay_alone():
    tables = [table.assign(same="always") for table in TABLES]
    for mode in MODES:
        run = run_of(tables, mode)
        assert "same" in run.graph.names
        k = run.graph.names.index("same")
        assert not run.graph.adjacency[k].any()
        assert not run.graph.adjacency[:, k].any()
        assert any("'same'" in text and "isolated" in text for text in run.warnings)
        plain = run_of(TABLES, mode).graph
        assert np.array_equal(run.graph.adjacency[:8, :8], plain.adjacency)
    dropped = run_of(tables, "exact", constant_columns="drop")
    assert dropped.graph.names == tuple(TABLES[0].columns)


def test_a_column_that_is_constant_at_one_party_only():
    tables = [table.copy() for table in TABLES]
    tables[1]["x2"] = "s0"
    for mode in MODES:
        run = run_of(tables, mode)
        assert any("'x2'" in text for text in run.warnings)
    exact = run_of(tables, "exact")
    assert alike(exact.graph, pooled_search(tables))


def test_counts_of_few_rows_are_pointed_out():
    def small(run):
        return [text for text in run.warnings if "fewer than" in text]

    (text,) = small(run_of(TABLES, "exact"))
    assert "3 of 3 parties" in text
    assert "mode='scores'" in text
    assert not small(run_of(TABLES, "exact", minimum_count=0))
    assert not small(run_of(TABLES, "exact", minimum_count=1))
    assert not small(run_of(TABLES, "scores", parameters=False))
    assert not small(run_of(TABLES, "driven"))
    assert small(run_of(TABLES, "driven", parameters=True))
    balanced = [pd.DataFrame({"a": list("uvuv") * 5, "b": list("uuvv") * 5})] * 3
    assert not small(run_of(balanced, "exact"))
    assert "cells" in small(run_of(balanced, "exact", minimum_count=11))[0]


def test_the_small_cells_are_counted():
    tables = [pd.DataFrame({"a": ["u"] * 9 + ["v"], "b": ["u"] * 8 + ["v"] * 2})] * 2
    tables = [*tables, pd.DataFrame({"a": list("uuuuuvvvvv"), "b": list("uvuvuvuvuv")})]
    run = run_of(tables, "exact", minimum_count=3)
    assert {record["exchange"] for record in run.history} == {"counts", "fit"}
    (text,) = [text for text in run.warnings if "fewer than" in text]
    # Of the search's table the cells uv: 1 or 2, vv: 1 or 2; of the last exchange a: 1, b: 2 rows.
    assert "2 of 3 parties" in text or "3 of 3 parties" in text


def test_two_parties_are_warned():
    two = TABLES[:2]
    for mode, warned in (("scores", True), ("exact", True), ("driven", False)):
        run = run_of(two, mode)
        assert any("two parties" in text for text in run.warnings) == warned
        assert not any("two parties" in text for text in run_of(TABLES, mode).warnings)
    assert any("two parties" in text for text in run_of(two, "fuse", parameters=True).warnings)


def test_a_table_that_would_be_too_large_is_not_asked_for(monkeypatch):
    from flwr_causal.strategies.fedges import searches

    monkeypatch.setattr(searches, "MOST_CELLS", 3)
    run = simulate("fedges", TABLES, mode="exact")
    assert run.model is None
    assert any("no Bayesian network" in text and "max_parents" in text for text in run.warnings)
    assert alike(run.graph, pooled_search(TABLES))


# How good.


def test_driven_is_never_below_no_edges_at_all():
    rng = np.random.default_rng(0)
    noise = [pd.DataFrame(rng.choice(list("ab"), (40, 5)), columns=list("vwxyz")) for _ in range(3)]
    run = run_of(noise, "driven")
    empty = CausalGraph.from_array(np.zeros((5, 5)), run.graph.names)
    total = [
        sum(score_graph(graph, coded([*noise])[k]) for k in range(3))
        for graph in (run.graph, empty)
    ]
    assert total[0] >= total[1] - 1e-9


@pytest.mark.slow
def test_federation_beats_being_alone():
    tables, network = make_tables(d=8, n=2400, parties=8, seed=2)
    alone = np.mean([compare(network.graph, ges(t, score="bic"))["smhd"] for t in tables])
    for mode in ("exact", "scores"):
        run = run_of(tables, mode, truth=network.graph)
        assert run.metrics["smhd"] < alone / 2
