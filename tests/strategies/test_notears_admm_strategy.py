"""NOTEARS-ADMM as a whole: against the paper's iteration, and what its options promise."""

import functools

import numpy as np
import paper_admm
import pytest
from federations import make_federation, once, spy
from server_states import states_of

from flwr_causal.core.consensus import admm as admm_core
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.notears import notears
from flwr_causal.simulations import simulate
from flwr_causal.strategies import NotearsADMM, run

FED = make_federation(d=5, n=240, parties=3)
TABLES = FED.tables
NAMES = tuple(TABLES[0].columns)
TRUE = FED.weights != 0


def admm(**options):
    return NotearsADMM(**{"max_rounds": 20, **options})


@once
def graph_of(tables=None, **options):
    return run(admm(**options), spy(TABLES if tables is None else tables)).graph


@pytest.fixture
def paper(monkeypatch):
    """The plain iteration, whose generic solver would creep on for ever at the tightest setting."""
    step = functools.partial(paper_admm.server_step, max_iterations=300)
    monkeypatch.setattr(paper_admm, "server_step", step)
    return paper_admm.notears_admm


@pytest.mark.slow
def test_the_papers_variant_is_the_papers_iteration(paper):
    tables = make_federation(d=4, n=90, parties=3, seed=3).tables
    uneven = [tables[0], tables[1].iloc[:12], tables[2]]
    outcome = run(NotearsADMM(variant="paper"), spy(uneven))
    expected, rounds = paper([table.to_numpy() for table in uneven])
    assert outcome.rounds == rounds == 197
    np.testing.assert_allclose(outcome.graph.raw_weights, expected, atol=1e-5)
    assert np.array_equal(outcome.graph.adjacency, np.abs(expected) > 0.3)
    assert outcome.model is None
    assert "197 rounds" in outcome.stop_reason


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_single_rounds_of_the_papers_iteration(rounds, paper):
    with states_of(admm_core) as states:
        run(NotearsADMM(variant="paper", max_rounds=rounds), spy(TABLES))
    seen = []
    paper(
        [table.to_numpy() for table in TABLES],
        max_rounds=rounds,
        on_round=lambda t, W, *rest: seen.append(W),
    )
    np.testing.assert_allclose(states[-1].weights[0], seen[-1], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"max_rounds": 6},
        {"max_rounds": 20},
        {"max_rounds": 20, "refit": False},
        {"max_rounds": 20, "sparsity": "bic"},
        {"max_rounds": None},
        {"variant": "paper", "max_rounds": 9},
        {"variant": "paper"},
    ],
    ids=str,
)
def test_no_more_exchanges_than_allowed(options):
    method = NotearsADMM(**options)
    grid = spy(TABLES)
    outcome = run(method, grid)
    assert outcome.rounds <= method.options.max_rounds <= 200
    assert len(grid.training_messages) == 3 * outcome.rounds
    assert outcome.graph.is_acyclic()


def test_a_shorter_schedule_is_made_and_not_cut():
    histories = [run(admm(max_rounds=r), spy(TABLES)).history[:-1] for r in (20, 40)]
    penalties = [[record["acyclicity_penalty"] for record in history] for history in histories]
    assert len(penalties[0]) == 19
    assert penalties[0] != penalties[1][:19]
    assert penalties[0][-1] > 100 * penalties[1][18] or penalties[0][-1] > 1e3


def test_the_easy_case_is_solved():
    for rounds in (12, 20, None):
        assert np.array_equal(graph_of(max_rounds=rounds).adjacency, TRUE)


@pytest.mark.slow
def test_early_stop():
    patient, hasty = (
        run(NotearsADMM(max_rounds=120, early_stop=early), spy(TABLES)) for early in (False, True)
    )
    assert patient.rounds == 120
    assert hasty.rounds < 100
    assert "converged after" in hasty.stop_reason
    assert np.array_equal(hasty.graph.adjacency, patient.graph.adjacency)
    np.testing.assert_allclose(hasty.graph.weights, patient.graph.weights, atol=1e-9)


def test_a_federation_of_one_equals_the_centralised_method():
    whole = [make_federation(d=5, n=240, parties=1).tables[0]]
    alone = simulate("notears-admm", whole)
    central = notears(whole[0], refit=True)
    assert np.array_equal(alone.graph.adjacency, central.adjacency)
    np.testing.assert_allclose(alone.graph.weights, central.weights, atol=1e-9)


def test_unequal_parties():
    rows = make_federation(d=5, n=240, parties=1).tables[0]
    parties = [rows.iloc[:2], rows.iloc[2:9], rows.iloc[9:]]
    assert np.array_equal(graph_of(parties).adjacency, TRUE)


@pytest.mark.slow
def test_parties_with_fewer_rows_than_variables():
    parties = make_federation(d=5, n=240, parties=80).tables
    assert len(parties[0]) == 3
    assert np.array_equal(graph_of(parties).adjacency, TRUE)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1000.0, 2.0**-20])
def test_units_do_not_matter(factor):
    scaled = [factor * table for table in TABLES]
    for options in ({}, {"sparsity": "bic"}, {"center": "party"}):
        one, other = graph_of(**options), graph_of(scaled, **options)
        assert np.array_equal(one.adjacency, other.adjacency)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)


def test_standardised_columns_forget_their_own_units():
    units = np.array([1.0, 10.0, 0.1, 1e3, 1e-3])
    one = graph_of(standardize=True)
    other = graph_of([units * table + 5.0 for table in TABLES], standardize=True)
    assert np.array_equal(one.adjacency, other.adjacency)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)


def test_levels_of_the_parties_do_not_matter_when_each_centres_its_own():
    shifted = [table + 20.0 * index for index, table in enumerate(TABLES)]
    one, other = graph_of(center="party"), graph_of(shifted, center="party")
    assert np.array_equal(one.adjacency, TRUE)
    assert np.array_equal(one.adjacency, other.adjacency)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
    np.testing.assert_allclose(graph_of(shifted).weights, other.weights, atol=1e-6)
    assert not np.array_equal(graph_of(shifted, center="global").adjacency, TRUE)


def test_a_constant_level_of_all_never_matters():
    one, other = graph_of(), graph_of([table + 1e4 for table in TABLES])
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)


def test_float32_costs_little():
    wide, narrow = graph_of(), graph_of(precision="float32")
    assert np.array_equal(wide.adjacency, narrow.adjacency)
    difference = np.abs(wide.weights - narrow.weights).max()
    assert 0 < difference < 1e-5


def test_refit():
    fitted, plain = graph_of(refit=True), graph_of(refit=False)
    assert np.array_equal(plain.weights[plain.adjacency], plain.raw_weights[plain.adjacency])
    rows = FED.pooled - FED.pooled.mean(axis=0)
    for j in range(5):
        parents = np.flatnonzero(fitted.adjacency[:, j])
        expected, *_ = np.linalg.lstsq(rows[:, parents], rows[:, j], rcond=None)
        np.testing.assert_allclose(fitted.weights[parents, j], expected, atol=1e-9)
    outcome = run(admm(refit=False), spy(TABLES))
    assert outcome.model is None
    assert {record["exchange"] for record in outcome.history} == {"round"}


def test_the_threshold():
    middle = float(np.median(np.abs(graph_of().raw_weights[TRUE]))) + 1e-3
    loose, tight = graph_of(threshold=0.0), graph_of(threshold=middle)
    assert loose.is_acyclic()
    assert loose.num_edges >= TRUE.sum() > tight.num_edges
    strengths = np.abs(tight.raw_weights)
    assert np.array_equal(tight.adjacency, strengths > middle)
    assert np.array_equal(loose.threshold(middle).adjacency, tight.adjacency)


def test_scores_are_the_weights_before_the_threshold():
    outcome = run(admm(search=False), spy(TABLES))
    assert np.array_equal(outcome.scores, np.abs(outcome.graph.raw_weights))
    assert outcome.scores[TRUE].min() > outcome.scores[~TRUE].max()


def test_sparsity_by_number():
    assert graph_of(sparsity=20.0).num_edges == 0
    assert np.array_equal(graph_of(sparsity=0.02).adjacency, TRUE)
    history = run(admm(sparsity=0.02), spy(TABLES)).history
    assert {record["sparsity"] for record in history[:-1]} == {0.02}


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [4, 7])
def test_the_bic_is_at_least_as_good_as_the_automatic_sparsity(seed):
    tables = make_federation(d=8, n=48, parties=3, seed=seed).tables
    rows = np.concatenate([table.to_numpy() for table in tables])
    pooled = SampleMoments.from_rows(rows, tuple(tables[0].columns))
    chosen, auto = (
        gaussian_bic(pooled, graph_of(tables, sparsity=s, early_stop=False, search=False).adjacency)
        for s in ("bic", "auto")
    )
    assert chosen <= auto + 1e-9


@pytest.mark.slow
def test_held_out_rows():
    grid = spy(TABLES)
    outcome = run(admm(sparsity="held-out", seed=1), grid)
    assert np.array_equal(outcome.graph.adjacency, TRUE)
    again = run(admm(sparsity="held-out", seed=1), spy(TABLES))
    assert outcome.graph.equals(again.graph)
    # All rows count in the end.
    rows = FED.pooled - FED.pooled.mean(axis=0)
    j = int(np.flatnonzero(TRUE.any(axis=0))[0])
    parents = np.flatnonzero(TRUE[:, j])
    expected, *_ = np.linalg.lstsq(rows[:, parents], rows[:, j], rcond=None)
    np.testing.assert_allclose(outcome.graph.weights[parents, j], expected, atol=1e-9)


def test_diagnostics_go_to_zero():
    history = run(admm(max_rounds=40), spy(TABLES)).history[:-1]
    assert history[-1]["h"] < 1e-3
    assert history[-1]["consensus"] < 0.1 * max(record["consensus"] for record in history)
    assert history[-1]["num_edges"] == TRUE.sum()


# Background knowledge.

REACH = np.linalg.matrix_power(np.eye(5) + TRUE, 5) > 0
PRESENT = tuple(NAMES[i] for i in np.argwhere(TRUE)[0])
UNRELATED = next(
    (NAMES[i], NAMES[j]) for i in range(5) for j in range(5) if not REACH[i, j] and not REACH[j, i]
)


def stands(graph, edge):
    return bool(graph.adjacency[NAMES.index(edge[0]), NAMES.index(edge[1])])


@pytest.mark.few(2)
@pytest.mark.parametrize("options", [{}, {"sparsity": "bic"}, {"refit": False}], ids=str)
def test_required_edges_stand(options):
    """Whatever the data say: an edge that is not there, and one against its direction."""
    for edge in (UNRELATED, PRESENT[::-1]):
        graph = graph_of(knowledge=Knowledge(required=(edge,)), **options)
        assert stands(graph, edge)
        assert not stands(graph, edge[::-1])
        assert graph.is_acyclic()
        assert stands(graph.threshold(100.0), edge)


def test_required_edges_are_refitted_without_shrinkage():
    graph = graph_of(knowledge=Knowledge(required=(UNRELATED,)), refit=False)
    rows = FED.pooled - FED.pooled.mean(axis=0)
    j = NAMES.index(UNRELATED[1])
    parents = np.flatnonzero(graph.adjacency[:, j])
    expected, *_ = np.linalg.lstsq(rows[:, parents], rows[:, j], rcond=None)
    np.testing.assert_allclose(graph.weights[parents, j], expected, atol=1e-9)


def test_forbidden_edges_never_stand():
    for threshold in (0.0, 0.3):
        knowledge = Knowledge(forbidden=(PRESENT,))
        graph = graph_of(knowledge=knowledge, threshold=threshold)
        assert not stands(graph, PRESENT)
        assert graph.raw_weights[tuple(map(NAMES.index, PRESENT))] == 0.0
    assert stands(graph_of(), PRESENT)


def test_tiers_from_a_file(tmp_path):
    cause, effect = PRESENT
    path = tmp_path / "knowledge.toml"
    path.write_text(f'tiers = [["{effect}"], ["{cause}"]]\n')
    for graph in (
        graph_of(knowledge=str(path)),
        simulate("moments", TABLES, knowledge=str(path)).graph,
    ):
        assert not stands(graph, PRESENT)
