"""The strategy of FedGES: parties that fail, runs that go on, options that fit together."""

import numpy as np
import pandas as pd
import pytest
from category_federations import alike, coded, in_order, make_tables, plain_search, pooled
from federations import ShufflingGrid, app_of, disturbed, raising, spy
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from sweeps import sweep

from flwr_causal.core.discrete.bayesian_network import fit
from flwr_causal.core.discrete.discrete import as_discrete
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.ges.fusion import fuse
from flwr_causal.core.graphs.edge_lists import edges_of, matrix_of
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.party import cache
from flwr_causal.protocol import records
from flwr_causal.runtime import loop
from flwr_causal.simulations import simulate
from flwr_causal.strategies import FedGES, run
from flwr_causal.strategies.fedges.options import ROWS
from flwr_causal.strategies.fedges.paper import PaperRounds
from flwr_causal.strategies.fedges.rounds import DrivenRounds, FixedRounds
from flwr_causal.strategies.fedges.searches import PooledSearch, ScoredSearch

TABLES, _ = make_tables(d=7, n=700, parties=4, seed=2)
MODES = {
    "scores": {"mode": "scores", "score": "bdeu"},
    "exact": {"mode": "exact", "score": "bdeu"},
    "driven": {"mode": "fusion"},
    "fuse": {"mode": "fusion", "start": "fuse"},
    "overwrite": {"mode": "fusion", "start": "overwrite", "keep": "last"},
}


def run_on(grid, mode, **options):
    return run(FedGES(**MODES[mode], **options), grid)


@pytest.fixture(scope="module")
def whole():
    """Undisturbed runs, by mode."""
    return {mode: run_on(spy(TABLES), mode) for mode in MODES}


def without(lost, mode, tables=TABLES, score="bdeu"):
    """The search on the others' rows, in the states of all."""
    parts = [part for k, part in enumerate(coded(tables)) if k != lost]
    if mode == "exact":
        together = np.concatenate([part.codes for part in parts], axis=1)
        parts = [type(parts[0])(parts[0].names, parts[0].states, together)]
    _, search = plain_search(tables, sources=[TableGains(part, score) for part in parts])
    return in_order(search.marks, tuple(tables[0].columns))


# Parties that fail.


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", sweep(MODES, kept=["scores", "driven"]))
def test_a_party_that_fails_once_is_asked_again(mode, whole):
    outcome = run_on(disturbed(TABLES, raising(2, range(1, 99))), mode)
    assert outcome.failures == ()
    assert outcome.graph.equals(whole[mode].graph)
    assert outcome.rounds == whole[mode].rounds


FUSIONS = ("driven", "fuse", "overwrite")


@pytest.fixture(scope="module")
def fused_without():
    """Fusions without the last party, whose states the others have too."""
    return {mode: run_on(spy(TABLES[:3]), mode) for mode in FUSIONS}


@pytest.mark.parametrize("mode", FUSIONS)
def test_a_fusion_without_a_party_is_that_of_the_others(mode, fused_without):
    outcome = run_on(disturbed(TABLES, raising(3, range(1, 99), attempts=2)), mode)
    assert outcome.graph.equals(fused_without[mode].graph)
    assert outcome.rounds == fused_without[mode].rounds


@pytest.mark.parametrize("mode", FUSIONS)
@pytest.mark.parametrize("lost", sweep([{1}, {2}, {3}, range(2, 99)], kept=[{2}]), ids=str)
def test_a_fusion_with_a_party_for_some_exchanges_lies_between(mode, lost, whole, fused_without):
    """No farther from either than the fusion of all parties and that of the others are apart."""

    def pairs(one, other):
        different = one.graph.adjacency != other.graph.adjacency
        return int(np.triu(different | different.T).sum())

    outcome = run_on(disturbed(TABLES, raising(3, lost, attempts=2)), mode)
    assert {failure.party for failure in outcome.failures} == {"party 3"}
    bound = pairs(whole[mode], fused_without[mode])
    assert pairs(outcome, whole[mode]) <= bound
    assert pairs(outcome, fused_without[mode]) <= bound


@pytest.mark.few(3)
@pytest.mark.parametrize("mode", ["scores", "exact"])
@pytest.mark.parametrize("lost", [0, 3])
@pytest.mark.parametrize("since", [1, 2])
def test_without_a_lost_party_the_search_is_that_of_the_others(mode, lost, since, whole):
    assert whole[mode].rounds > since, "the case must lose it while it searches"
    outcome = run_on(disturbed(TABLES, raising(lost, range(since, 99), attempts=2)), mode)
    assert np.array_equal(outcome.graph.adjacency, without(lost, mode))
    again = [record["round"] for record in outcome.history if "started_again" in record]
    assert again == [since]
    assert {failure.party for failure in outcome.failures} == {f"party {lost}"}
    if lost == 3:
        assert not alike(outcome.graph, whole[mode].graph), "the case must need its rows"
    # The last exchange too is the others'.
    others = [table for k, table in enumerate(TABLES) if k != lost]
    rest = as_discrete(pooled(others), list(TABLES[0].columns), outcome.model.states)
    expected = fit(rest, outcome.model.graph.adjacency)
    for one, two in zip(outcome.model.tables, expected.tables, strict=True):
        np.testing.assert_allclose(one, two)
    thirds = 3 * outcome.graph.party_agreement
    np.testing.assert_allclose(thirds, np.round(thirds))


@pytest.mark.parametrize("mode", ["scores", "exact"])
def test_a_party_that_comes_back_does_not_mix_its_sums_in(mode):
    outcome = run_on(disturbed(TABLES, raising(1, [2], attempts=2)), mode, parameters=False)
    assert np.array_equal(outcome.graph.adjacency, without(1, mode))


@pytest.mark.few(2)
@pytest.mark.parametrize("since", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_the_penalty_is_that_of_the_rows_that_are_left(seed, since):
    table = make_tables(d=7, n=3000, parties=1, seed=seed)[0][0]
    tables = [table.iloc[:50], table.iloc[50:100], table.iloc[100:150], table.iloc[150:]]
    grid = disturbed(tables, raising(3, range(since, 99), attempts=2))
    outcome = run(FedGES(mode="exact", score="bic"), grid)
    assert np.array_equal(outcome.graph.adjacency, without(3, "exact", tables, "bic"))


@pytest.mark.parametrize("mode", ["scores", "exact"])
def test_two_parties_lost_one_after_the_other(mode):
    first, second = raising(1, range(2, 99), attempts=2), raising(3, range(3, 99), attempts=2)

    def fault(*arguments):
        first(*arguments)
        second(*arguments)

    outcome = run_on(disturbed(TABLES, fault), mode, parameters=False)
    assert np.array_equal(outcome.graph.adjacency, without(1, mode, [*TABLES[:3]]))
    assert [r["round"] for r in outcome.history if "started_again" in r] == [2, 3]


@pytest.mark.parametrize("mode", ["scores", "exact"])
def test_a_party_lost_in_the_last_exchange_lacks_in_the_tables_only(mode, whole):
    last = whole[mode].rounds
    outcome = run_on(disturbed(TABLES, raising(1, [last], attempts=2)), mode)
    assert alike(outcome.graph, whole[mode].graph)
    assert outcome.rounds == last
    others = pooled([TABLES[0], *TABLES[2:]])
    rest = as_discrete(others, list(TABLES[0].columns), outcome.model.states)
    expected = fit(rest, outcome.model.graph.adjacency)
    np.testing.assert_allclose(outcome.model.tables[0], expected.tables[0])


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", ["driven", "fuse", "overwrite"])
def test_fusion_goes_on_without_a_lost_party(mode, whole):
    outcome = run_on(disturbed(TABLES, raising(1, range(2, 99), attempts=2)), mode)
    assert outcome.graph.is_acyclic()
    assert outcome.graph.num_edges > 0
    assert [record["parties"] for record in outcome.history][:2] == [4, 3]
    assert "exchanges" not in outcome.stop_reason
    # It never came: the run of the others, but for states that it alone has.
    never = run_on(disturbed(TABLES, raising(1, range(1, 99), attempts=2)), mode)
    others = [TABLES[0], *TABLES[2:]]
    assert as_discrete(pooled(others)).states == as_discrete(pooled(TABLES)).states
    assert never.graph.equals(run_on(spy(others), mode).graph)


def test_a_party_that_was_away_goes_on_from_its_own_graph_of_before():
    grid = disturbed(TABLES, raising(1, [2], attempts=2))
    run_on(grid, "fuse", fusion="union", max_edges=2, max_rounds=4)
    sent, replies = {}, {}
    for message in grid.of_exchange("judged graph"):
        key = (int(message.metadata.group_id), message.metadata.dst_node_id)
        sent[key] = records.arrays_of(message.content)
    for reply in grid.replies[4:]:
        if reply.has_content() and "edges" in records.arrays_of(reply.content):
            key = (int(reply.metadata.group_id), reply.metadata.src_node_id)
            replies[key] = records.arrays_of(reply.content)["edges"]
    away, there = 3, 2
    assert (2, away) not in replies
    assert np.array_equal(sent[2, away]["own"], replies[1, away])
    assert np.array_equal(sent[3, away]["own"], replies[1, away])
    assert np.array_equal(sent[3, there]["own"], replies[2, there])
    # Its graph of before is not fused a second time.
    second = [replies[2, node] for node in (2, 4, 5)]
    assert np.array_equal(sent[3, away]["received"], fuse(second, 7).keep("union"))


@pytest.mark.parametrize("mode", sweep(MODES, kept=["scores", "driven"]))
def test_too_few_parties_end_the_run_with_what_there_is(mode):
    def fault(partition, config, context):
        if config["round"] >= 3 and partition != 0:
            raise OSError("power cut")

    with pytest.raises(FederationError, match=r"only 1 parties.*power cut") as caught:
        run_on(disturbed(TABLES, fault), mode)
    outcome = caught.value.outcome
    assert outcome.rounds == 2
    assert outcome.graph is not None
    assert outcome.model is None
    assert not any("no Bayesian network" in text for text in outcome.warnings)


@pytest.mark.parametrize("mode", sweep(MODES, kept=["scores", "driven"]))
def test_a_run_goes_on_from_where_another_ended(mode, whole):
    def fault(partition, config, context):
        if config["round"] == 3:
            raise OSError("power cut")

    with pytest.raises(FederationError) as caught:
        run_on(disturbed(TABLES, fault), mode)
    state = caught.value.outcome.state
    rest = run(FedGES(**MODES[mode]), spy(TABLES), state=state)
    assert rest.graph.equals(whole[mode].graph)
    assert rest.rounds == whole[mode].rounds - 2


# Memory.


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("mode", "lost"),
    [("exact", "both"), ("driven", "both"), ("scores", "cache"), ("fuse", "state")],
)
def test_a_client_that_forgets_is_none_the_worse(mode, lost, whole):
    def fault(partition, config, context):
        if lost != "state":
            cache._cache.clear()
        if lost != "cache" and config["round"] > 1:
            context.state.clear()

    outcome = run_on(disturbed(TABLES, fault), mode)
    assert outcome.graph.equals(whole[mode].graph)
    assert outcome.rounds == whole[mode].rounds
    assert outcome.failures == ()


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", sweep(MODES, kept=["scores", "driven"]))
def test_two_runs_over_the_same_nodes_do_not_know_of_each_other(mode):
    grid = spy(TABLES)
    options = {key: value for key, value in MODES[mode].items() if key != "score"}
    for score in ("bic", "bdeu"):
        outcome = run(FedGES(**options, score=score), grid)
        fresh = run(FedGES(**options, score=score), spy(TABLES))
        assert outcome.graph.equals(fresh.graph)


@pytest.mark.parametrize("mode", sweep(MODES, kept=["scores", "driven"]))
def test_the_order_in_which_replies_come_does_not_matter(mode, whole):
    for seed in range(2):
        outcome = run_on(ShufflingGrid(app_of(TABLES), 4, seed), mode)
        assert outcome.graph.equals(whole[mode].graph)


# Flower's ways in.


def test_start_returns_flowers_result():
    seen = []

    def watch(server_round, arrays):
        seen.append((server_round, len(arrays)))

    found = FedGES(mode="exact", score="bdeu").start(grid=spy(TABLES), evaluate_fn=watch)
    graph = found.outcome.graph
    np.testing.assert_array_equal(found.arrays["weights"].numpy(), graph.weights)
    assert seen == [(0, 0), *((k + 1, 1) for k in range(found.outcome.rounds))]
    assert {"num_edges", "questions"} <= set(found.train_metrics_clientapp[1])
    short = FedGES(mode="fusion").start(grid=spy(TABLES), num_rounds=4)
    assert short.outcome.rounds == 4


def test_noise_is_refused():
    method = FedGES()
    wrapper = DifferentialPrivacyServerSideFixedClipping(method, 1.0, 1.0, 4)
    with pytest.raises(ConfigError, match="without the wrapper"):
        loop.run(method, spy(TABLES), strategy=wrapper)


# Options.


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, "scores"),
        ({"mode": "exact"}, "exact"),
        ({"fusion": 0.5}, "fusion"),
        ({"start": "driven"}, "fusion"),
        ({"max_edges": 3}, "fusion"),
        ({"keep": "last"}, "fusion"),
        ({"mode": "fusion"}, "fusion"),
    ],
)
def test_the_mode_that_is_chosen(options, mode):
    strategy = FedGES(**options)
    assert strategy.options.chosen_mode == mode
    assert strategy.options.asks_for_tables == (mode != "fusion")
    assert FedGES(**options, parameters=True).options.asks_for_tables
    assert not FedGES(**options, parameters=False).options.asks_for_tables


def test_each_row_of_the_table_of_searches_is_chosen():
    found = [
        ({"variant": "paper"}, PaperRounds, None),
        ({"mode": "exact"}, PooledSearch, None),
        ({"mode": "scores", "start": "driven"}, ScoredSearch, DrivenRounds),
        ({}, ScoredSearch, None),
        ({"mode": "fusion"}, DrivenRounds, None),
        ({"start": "fuse"}, FixedRounds, None),
    ]
    rows = [FedGES(**options).options.row for options, *_ in found]
    assert [(row.search, row.then) for row in rows] == [tuple(classes) for _, *classes in found]
    assert rows == list(ROWS)
    assert FedGES(keep="last").options.row == ROWS[-1]


def test_the_scores_that_are_searched_by():
    assert FedGES().options.chosen_score == "qnml"
    assert FedGES().options.refined_by == ("qnml", "bic", "bdeu")
    assert FedGES(parameters=False).options.refined_by == ()
    assert FedGES(score="bic").options.refined_by == ("bic",)
    assert FedGES(mode="exact").options.chosen_score == "bic"
    assert FedGES(mode="fusion").options.chosen_score == "bdeu"
    for mode in ("scores", "exact", "fusion"):
        assert FedGES(mode=mode, score="bdeu").options.chosen_score == "bdeu"
        assert FedGES(mode=mode, score="bdeu").options.refined_by == ()


def test_without_scores_it_is_the_papers_loop():
    assert FedGES(mode="fusion").options.chosen_start == "driven"
    assert FedGES(keep="last").options.chosen_start == "fuse"
    assert FedGES(keep="last", start="overwrite").options.chosen_start == "overwrite"
    assert FedGES(keep="best").options.chosen_start == "driven"
    paper, last = (run(FedGES(keep="last", **o), spy(TABLES)) for o in ({"start": "fuse"}, {}))
    assert last.graph.equals(paper.graph)


def test_the_option_start_does_not_hide_the_method():
    assert FedGES(start="fuse").options.start == "fuse"
    assert callable(FedGES(start="fuse").start)
    assert FedGES(fusion=1).options.fusion == 1.0
    assert isinstance(FedGES(fusion="c25").options.fusion, str)


def test_rounds_of_some_parties_only():
    outcome = run_on(spy(TABLES), "overwrite", fraction_train=0.5, seed=1)
    assert {record["parties"] for record in outcome.history} == {2}
    again = run_on(spy(TABLES), "overwrite", fraction_train=0.5, seed=1)
    assert again.graph.equals(outcome.graph)


def test_what_the_parties_are_told():
    grid = spy(TABLES)
    run_on(grid, "scores", max_parents=3, turn=True)
    first = records.config_of(grid.training_messages[0].content)
    told = {k.removeprefix("setup-option-"): v for k, v in first.items() if "setup-option" in k}
    assert told == {
        "score": "bdeu",
        "equivalent_sample_size": 1.0,
        "max_edges": 10,
        "max_parents": 3,
        "turn": True,
        "seed": 0,
        "row_id": "",
    }
    assert len(first["setup-states"]) == sum(len(s) for s in as_discrete(pooled(TABLES)).states)
    for message in grid.training_messages[4:]:
        config = records.config_of(message.content)
        assert set(config) == {"exchange", "method", "round"}


def test_a_single_graph_is_fused_to_itself():
    """One party of four answers: the graph of the others does not linger in the fused one."""
    outcome = simulate(
        "fedges", TABLES, start="overwrite", keep="last", max_rounds=1, fraction_train=0.25
    )
    parts = coded(TABLES)
    names = tuple(TABLES[0].columns)
    classes = []
    for part in parts:
        _, search = plain_search(TABLES, sources=[TableGains(part)])
        classes.append(in_order(cpdag(matrix_of(edges_of(search.dag), 7)), names))
    assert any(np.array_equal(outcome.graph.adjacency, each) for each in classes)


def test_multiples_and_sums_are_named_where_numbers_are_cut():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 300))
    table = pd.DataFrame({"x": x, "half": x / 2, "y": y, "sum": x + y})
    table["group"] = np.where(x > 0, "a", "b")
    found = run(FedGES(discretize=3), spy([table[k::3].reset_index(drop=True) for k in range(3)]))
    named = [text for text in found.warnings if "in all rows" in text]
    assert any("'x' is a multiple of 'half'" in text for text in named)
    assert any("'y' is a linear combination of 'half', 'sum'" in text for text in named)
    assert len(named) == 2
