"""2Dbn as a whole: against the paper's iteration written out, and what its options promise."""

import re

import numpy as np
import pandas as pd
import paper_admm
import pytest
from federations import once, spy
from server_states import states_of

from flwr_causal.core.consensus import admm
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.data.read.tables import read_table
from flwr_causal.data.synthetic.series import federated_dynamic, simulate_series
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.simulations import simulate
from flwr_causal.strategies import run
from flwr_causal.strategies.moments import Moments
from flwr_causal.strategies.two_dbn import TwoDBN

PARTIES, TRUTH = federated_dynamic(5, 400, 3, series_per_party=2, seed=1)
NAMES = TRUTH.names
NOW = TRUTH.weights != 0


@once
def dbn(parties=PARTIES, grid=None, **options):
    method = TwoDBN(min_available_nodes=len(parties), **options)
    return run(method, grid or spy([read_table(party) for party in parties]))


def same(one, other, atol=1e-9):
    assert one.graph.names == other.graph.names
    for field in ("weights", "lagged", "raw_weights", "raw_lagged"):
        np.testing.assert_allclose(
            getattr(one.graph, field), getattr(other.graph, field), atol=atol, err_msg=field
        )


def distance(graph, truth=TRUTH):
    metrics = compare(truth, graph)
    return metrics["shd"] + metrics["lagged_shd"]


def design(series, p):
    """The rows [x_t, ..., x_{t-p}], one after the other."""
    return np.array(
        [
            np.concatenate([values[t - lag] for lag in range(p + 1)])
            for values in map(np.asarray, series)
            for t in range(p, len(values))
        ]
    )


def centred(parties, p, center):
    """Each party's design; the global mean is that of the steps that have a past."""
    if center == "series":
        parties = [[np.asarray(s) - np.asarray(s).mean(axis=0) for s in own] for own in parties]
    designs = [design(own, p) for own in parties]
    d = designs[0].shape[1] // (p + 1)
    mean = np.concatenate(designs)[:, :d].mean(axis=0)
    return designs if center == "series" else [Z - np.tile(mean, p + 1) for Z in designs]


def paper_two_dbn(designs, d, rounds, sparsity, iterations=3000):
    """Chen, Ma & Yue (2024), sections 3 and 4: W over A_1, ..., A_p."""
    m = designs[0].shape[1]
    S = [Z.T @ Z / len(Z) for Z in designs]
    stacked, alpha, rho1, rho2 = np.zeros((m, d)), 0.0, 1.0, 1.0
    betas = [np.zeros((m, d)) for _ in designs]
    for _ in range(rounds):
        Bs = [
            np.linalg.solve(s + rho2 * np.eye(m), rho2 * stacked - beta + s[:, :d])
            for s, beta in zip(S, betas, strict=True)
        ]
        mean = np.mean([B + beta / rho2 for B, beta in zip(Bs, betas, strict=True)], axis=0)
        # Nothing holds the lagged block but its L1 norm: soft thresholding.
        cut = sparsity / (len(S) * rho2)
        A = np.sign(mean[d:]) * np.maximum(np.abs(mean[d:]) - cut, 0.0)
        W = paper_admm.server_step(
            stacked[:d],
            [B[:d] for B in Bs],
            [beta[:d] for beta in betas],
            sparsity,
            alpha,
            rho1,
            rho2,
            max_iterations=iterations,
        )
        stacked = np.vstack([W, A])
        alpha += rho1 * paper_admm.h_function(W)[0]
        betas = [beta + rho2 * (B - stacked) for B, beta in zip(Bs, betas, strict=True)]
        rho1, rho2 = 1.6 * rho1, 1.1 * rho2
    return stacked


@pytest.mark.few(2)
@pytest.mark.parametrize("center", ["global", "series"])
@pytest.mark.parametrize("p", [1, 2])
def test_the_papers_variant_is_the_papers_iteration(p, center):
    parties, _ = federated_dynamic(3, 90, 3, order=p, series_per_party=2, lagged_degree=2.0, seed=2)
    uneven = [[parties[0][0] + 3.0], [parties[1][0].iloc[:9], parties[1][1]], parties[2]]
    options = {"variant": "paper", "sparsity": 0.05, "max_rounds": 25}
    with states_of(admm) as states:
        outcome = dbn(uneven, order=p, center=center, **options)
    expected = paper_two_dbn(centred(uneven, p, center), 3, 25, 0.05)
    found = states[-1].weights
    assert outcome.rounds == 25
    assert found.shape == (1, 3 * (1 + p), 3)
    assert np.abs(expected[3:]).max() > 0.1
    np.testing.assert_allclose(found[0], expected, atol=2e-6)
    assert np.array_equal(outcome.graph.raw_lagged, found[0][3:].reshape(p, 3, 3))


@pytest.mark.slow
def test_the_papers_whole_run():
    parties, _ = federated_dynamic(4, 90, 3, seed=3)
    outcome = dbn(parties, variant="paper", sparsity=0.1, max_rounds=80)
    designs = centred([[s] for s in parties], 1, "global")
    expected = paper_two_dbn(designs, 4, 80, 0.1, iterations=300)
    assert outcome.rounds == 80
    np.testing.assert_allclose(outcome.graph.raw_weights, expected[:4], atol=1e-5)
    np.testing.assert_allclose(outcome.graph.raw_lagged[0], expected[4:], atol=1e-5)
    assert np.array_equal(outcome.graph.lagged[0] != 0, np.abs(expected[4:]) > 0.3)
    assert outcome.model is None


def test_the_order_of_parties_and_series_does_not_matter():
    one = dbn()
    same(one, dbn(PARTIES[::-1]))
    same(one, dbn([party[::-1] for party in PARTIES]))


def interleaved(party):
    """One table with an id column, rows of different series in turns."""
    tagged = [s.assign(id=f"s{k}", step=range(len(s))) for k, s in enumerate(party)]
    return pd.concat(tagged).sort_values(["step", "id"]).drop(columns="step")


@pytest.mark.few(2)
@pytest.mark.parametrize("options", [{}, {"center": "series"}, {"order": 2}], ids=str)
def test_a_list_of_series_is_a_table_with_an_id_column(options):
    as_tables = [interleaved(party) for party in PARTIES]
    assert as_tables[0]["id"].iloc[:2].tolist() == ["s0", "s1"]
    same(dbn(**options), dbn(as_tables, series_column="id", **options))


def test_rows_never_cross_series():
    joined = [pd.concat(party, ignore_index=True) for party in PARTIES]
    apart, across = dbn(), dbn(joined)
    assert not np.allclose(apart.graph.raw_lagged, across.graph.raw_lagged, atol=1e-9)
    assert sum(p.num_rows for p in across.parties) == 400 + 3
    assert sum(p.num_rows for p in apart.parties) == 400


def test_who_holds_a_series_hardly_matters():
    """The sums are the same; the iteration towards them is not."""
    series = [s for party in PARTIES for s in party]
    graphs = [dbn(p).graph for p in (PARTIES, [series], series)]
    assert all(g.adjacency.tolist() == graphs[0].adjacency.tolist() for g in graphs)
    for g in graphs[1:]:
        np.testing.assert_allclose(g.weights, graphs[0].weights, atol=1e-9)
        np.testing.assert_allclose(g.lagged, graphs[0].lagged, atol=1e-9)


# How good.


@pytest.mark.parametrize(
    ("setting", "bound"),
    [
        pytest.param((10, 256, 8), 12, marks=pytest.mark.slow),
        pytest.param((20, 256, 8), 12, marks=pytest.mark.nightly),
    ],
    ids=["d=10", "d=20"],
)
def test_accuracy_on_the_papers_simulations(setting, bound):
    """Three systems together: 9 and 8 errors when measured."""
    total = 0
    for seed in range(3):
        parties, truth = federated_dynamic(*setting, seed=seed)
        outcome = dbn(parties)
        assert outcome.rounds <= 25
        total += distance(outcome.graph, truth)
    assert total <= bound


@pytest.mark.slow
def test_fewer_rounds_and_more_rounds():
    for rounds in (12, 21, 41):
        outcome = dbn(max_rounds=rounds)
        assert outcome.rounds <= rounds
        assert distance(outcome.graph) <= 1


def test_known_pairs_are_a_share_of_all_columns_and_lags():
    rng = np.random.default_rng(0)
    parties = [rng.normal(size=(60, 3)) for _ in range(3)]
    for order in (1, 2):
        last = simulate("2dbn", parties, order=order, max_rounds=6).history[-1]
        assert 0 < last["known_pairs"] <= 1


def test_three_lags():
    parties, truth = federated_dynamic(5, 900, 4, order=3, seed=2)
    with states_of(admm) as states:
        outcome = dbn(parties, order=3)
    assert outcome.graph.lagged.shape == (3, 5, 5)
    assert (truth.lagged != 0).any(axis=(1, 2)).all()
    # 5 when measured.
    assert distance(outcome.graph, truth) <= 6
    d = 5
    assert [p.num_rows for p in outcome.parties] == [225] * 4
    assert states[-1].weights.shape == (1, 4 * d, d)


# Options.


@pytest.mark.slow
def test_a_threshold_for_each_block():
    outcome = dbn(threshold=0.2, lagged_threshold=0.35, refit=False)
    graph = outcome.graph
    assert np.array_equal(graph.lagged != 0, np.abs(graph.raw_lagged) > 0.35)
    assert np.array_equal(graph.weights != 0, np.abs(graph.raw_weights) > 0.2)
    one = dbn(threshold=0.2, refit=False).graph
    assert np.array_equal(one.lagged != 0, np.abs(one.raw_lagged) > 0.2)
    assert (one.lagged != 0).sum() > (graph.lagged != 0).sum() > 0
    refitted = dbn(lagged_threshold=0.35).graph.lagged
    assert np.abs(refitted[refitted != 0]).min() > 0.35


@pytest.mark.slow
def test_sparsity_of_the_lags():
    none, auto, strong = (dbn(lagged_sparsity=f, refit=False).graph for f in (0.0, 1.0, 1e3))
    assert np.all(none.raw_lagged != 0)
    assert np.any(auto.raw_lagged == 0)
    assert not strong.raw_lagged.any()
    assert strong.raw_weights.any()


@pytest.mark.few(1)
@pytest.mark.parametrize("sparsity", ["bic", "held-out"])
def test_chosen_sparsity(sparsity):
    grid = spy([read_table(party) for party in PARTIES])
    with states_of(admm) as states:
        outcome = dbn(grid=grid, sparsity=sparsity)
    assert distance(outcome.graph) <= 2
    assert outcome.rounds <= 25
    sets = 6 if sparsity == "bic" else 12
    assert states[-1].weights.shape == (sets, 10, 5)
    sent = grid.replies[-1].content["arrays"].to_numpy_ndarrays()[0]
    assert sent.shape == (1 if sparsity == "bic" else 2, 11, 11)


def test_sparsity_by_number():
    graph = dbn(sparsity=20.0).graph
    assert graph.num_edges == 0
    assert not graph.lagged.any()


def test_refit():
    fitted, plain = dbn(), dbn(refit=False)
    assert {record["exchange"] for record in plain.history} == {"round"}
    assert np.array_equal(
        plain.graph.weights[plain.graph.adjacency], plain.graph.raw_weights[plain.graph.adjacency]
    )
    rows = np.concatenate(centred(PARTIES, 1, "global"))
    rows = rows - rows.mean(axis=0)  # of the lags too
    stacked = np.vstack([fitted.graph.weights, *fitted.graph.lagged])
    for j in range(5):
        parents = np.flatnonzero(stacked[:, j])
        expected, *_ = np.linalg.lstsq(rows[:, parents], rows[:, j], rcond=None)
        np.testing.assert_allclose(stacked[parents, j], expected, atol=1e-9)


def test_scores_are_sums_over_lags():
    outcome = dbn(order=2, search=False)
    expected = np.abs(outcome.graph.raw_weights) + np.abs(outcome.graph.raw_lagged).sum(axis=0)
    np.testing.assert_allclose(outcome.scores, expected, atol=1e-12)
    linked = NOW | (TRUTH.lagged != 0).any(axis=0)
    assert outcome.scores[linked].mean() > 5 * outcome.scores[~linked].mean()


@pytest.mark.slow
def test_standardised_columns_forget_their_own_units():
    units = np.array([1.0, 10.0, 0.1, 1e3, 1e-3])
    scaled = [[units * s + 5.0 for s in party] for party in PARTIES]
    same(dbn(standardize=True), dbn(scaled, standardize=True), atol=1e-5)
    # W' = D^-1 W D in standard deviations.
    stds = np.concatenate(centred(PARTIES, 1, "global"))[:, :5].std(axis=0)
    graph = dbn(standardize=True, refit=True).graph
    rows = np.concatenate(centred(PARTIES, 1, "global")) / np.tile(stds, 2)
    rows = rows - rows.mean(axis=0)
    stacked = np.vstack([graph.weights, *graph.lagged])
    for j in range(5):
        parents = np.flatnonzero(stacked[:, j])
        expected, *_ = np.linalg.lstsq(rows[:, parents], rows[:, j], rcond=None)
        np.testing.assert_allclose(stacked[parents, j], expected, atol=1e-9)


def test_units_do_not_matter():
    same(dbn(), run_scaled(1.0), atol=1e-12)
    one, other = dbn(), run_scaled(1000.0)
    assert np.array_equal(one.graph.adjacency, other.graph.adjacency)
    same(one, other, atol=1e-6)


def run_scaled(factor):
    return dbn([[factor * s for s in party] for party in PARTIES])


def test_levels_of_series_do_not_matter_where_each_is_centred():
    rng = np.random.default_rng(0)
    shifted = [[s + rng.normal(0, 20, 5) for s in party] for party in PARTIES]
    same(dbn(center="series"), dbn(shifted, center="series"), atol=1e-6)
    assert distance(dbn(shifted, center="series").graph) <= 1
    assert distance(dbn(shifted).graph) <= 1  # "auto"
    assert distance(dbn(shifted, center="global").graph) > 5


def test_a_constant_level_of_all_never_matters():
    same(dbn(), dbn([[s + 1e4 for s in party] for party in PARTIES]), atol=1e-6)


# A known perturbation: from step 40 to 70 of every series of its own kind.


@pytest.fixture(scope="module")
def perturbed():
    rng = np.random.default_rng(5)
    values = simulate_series(TRUTH.weights, TRUTH.lagged, [120] * 6, seed=7)
    tables = []
    for one in values:
        frame = pd.DataFrame(one, columns=list(NAMES))
        frame["t"] = np.arange(120.0)
        frame["pulse"] = frame["t"].between(40, 70)
        frame.loc[frame["pulse"], list(NAMES)] += rng.normal(0, 8, 5)
        tables.append(frame)
    return tables


@pytest.mark.slow
def test_centring_by_phase_recovers_what_global_centring_loses(perturbed):
    by_phase = dbn(perturbed, center="phase", phase_column="pulse", time_column="t")
    overall = dbn(perturbed, phase_column="pulse", time_column="t")
    assert set(by_phase.graph.names) == set(NAMES)
    assert distance(by_phase.graph) <= 1
    assert distance(overall.graph) > 5
    without = [frame.drop(columns="pulse") for frame in perturbed]
    again = dbn(without, center="phase", time_column="t", perturbed_from=40.0, perturbed_to=70.0)
    same(by_phase, again)


def test_the_agreed_mean_is_that_of_unperturbed_steps(perturbed):
    outcome = dbn(perturbed, center="phase", phase_column="pulse", time_column="t")
    quiet = np.mean(
        [frame.iloc[1:].loc[~frame["pulse"], list(NAMES)].mean() for frame in perturbed], axis=0
    )
    np.testing.assert_allclose(outcome.state.agreement.mean, quiet, atol=1e-12)


# Background knowledge.

PRESENT = tuple(NAMES[i] for i in np.argwhere(NOW)[0])


def stands(graph, edge):
    return bool(graph.adjacency[NAMES.index(edge[0]), NAMES.index(edge[1])])


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "options", [{}, {"sparsity": "bic"}, {"refit": False}, {"order": 2}], ids=str
)
def test_required_edges_stand(options):
    graph = dbn(knowledge=Knowledge(required=(PRESENT[::-1],)), **options).graph
    assert stands(graph, PRESENT[::-1])
    assert not stands(graph, PRESENT)
    assert graph.is_acyclic()


def test_forbidden_edges_never_stand_and_lags_stay_free():
    everything = tuple((a, b) for a in NAMES for b in NAMES if a != b)
    graph = dbn(knowledge=Knowledge(forbidden=everything), threshold=0.0).graph
    assert not graph.weights.any()
    assert not graph.raw_weights.any()
    assert np.all(np.abs(graph.lagged[TRUTH.lagged != 0]) > 0)
    one = dbn(knowledge=Knowledge(forbidden=(PRESENT,))).graph
    assert not stands(one, PRESENT)
    assert stands(dbn().graph, PRESENT)


def test_tiers():
    cause, effect = PRESENT
    others = tuple(name for name in NAMES if name not in PRESENT)
    graph = dbn(knowledge=Knowledge(tiers=((effect,), (cause,)))).graph
    assert not stands(graph, PRESENT)
    assert any(stands(graph, (a, b)) for a in others for b in NAMES if a != b)


LAGGED = tuple(NAMES[k] for k in np.argwhere(TRUTH.lagged[0])[0])
ABSENT = tuple(NAMES[k] for k in np.argwhere(TRUTH.lagged[0] == 0)[0])


def effect(graph, lag, edge):
    return graph.lagged[lag - 1, NAMES.index(edge[0]), NAMES.index(edge[1])]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sparsity": "bic"},
        {"refit": False},
    ],
    ids=str,
)
def test_lagged_knowledge(options):
    known = Knowledge(required_lagged=[(*ABSENT, 2)], forbidden_lagged=[LAGGED])
    graph = dbn(order=2, knowledge=known, **options).graph
    assert effect(graph, 2, ABSENT) != 0
    assert effect(graph, 1, LAGGED) == effect(graph, 2, LAGGED) == 0
    assert effect(dbn(order=2, **options).graph, 1, LAGGED) != 0
    assert effect(dbn(order=2, **options).graph, 2, ABSENT) == 0
    # forbidden at one lag only
    known = Knowledge(forbidden_lagged=[(*LAGGED, 2)])
    assert effect(dbn(order=2, knowledge=known, **options).graph, 1, LAGGED) != 0
    with pytest.raises(ConfigError, match="set the order to 2 or more"):
        dbn(knowledge=known, **options)


def test_lagged_knowledge_from_a_file(tmp_path):
    path = tmp_path / "known.toml"
    Knowledge(forbidden_lagged=[LAGGED]).save(path)
    assert effect(dbn(knowledge=str(path)).graph, 1, LAGGED) == 0


# What comes out.


@pytest.mark.parametrize(
    "sparsity",
    [
        "auto",
        pytest.param("bic", marks=pytest.mark.nightly),
        pytest.param("held-out", marks=pytest.mark.slow),
    ],
)
def test_the_order_is_chosen(sparsity):
    parties, truth = federated_dynamic(4, 900, 3, order=2, seed=3)
    with states_of(admm) as states:
        outcome = dbn(parties, order=3, select_order=True, sparsity=sparsity)
    assert outcome.graph.lagged.shape == (2, 4, 4)
    assert outcome.graph.raw_lagged.shape == (2, 4, 4)
    assert distance(outcome.graph, truth) <= 2
    assert outcome.model.lagged.shape == (2, 4, 4)
    sets = {"auto": 3 * 2, "bic": 3 * 6, "held-out": 3 * 6 * 2}[sparsity]
    assert states[-1].weights.shape == (sets, 16, 4)
    # the candidate of one lag has nothing beyond
    one = states[-1].weights[sets // 3 * 3 - 1]
    assert not one[8:].any()
    # a required edge at lag 3 leaves order 3 only
    known = Knowledge(required_lagged=[(truth.names[0], truth.names[1], 3)])
    kept = dbn(parties, order=3, select_order=True, sparsity=sparsity, knowledge=known)
    assert kept.graph.lagged[2, 0, 1] != 0


@pytest.mark.slow
def test_a_choice_by_held_out_rows_is_one_by_their_sums():
    """The chosen order's weights are those of a run with that order on the same rows."""
    cut = [[series.iloc[:-1] for series in party] for party in PARTIES]
    later = [[series.iloc[1:] for series in party] for party in PARTIES]
    chosen = dbn(order=2, select_order=True)
    assert chosen.graph.lagged.shape == (1, 5, 5)
    # with order 2 the first step of each series is nobody's target
    again = dbn(later)
    assert sum(p.num_rows for p in again.parties) == sum(p.num_rows for p in chosen.parties)
    assert np.array_equal(chosen.graph.adjacency, again.graph.adjacency)
    np.testing.assert_allclose(chosen.graph.weights, again.graph.weights, atol=1e-4)
    assert not np.allclose(dbn(cut).graph.weights, again.graph.weights, atol=1e-4)


def test_the_model_is_in_the_units_of_the_data():
    shifted = [[10.0 * one + 3.0 for one in party] for party in PARTIES]
    outcome = dbn(shifted, standardize=True, threshold=0.1)
    model = outcome.model
    rows = design([one for party in shifted for one in party], 1)
    weights = np.vstack([model.weights, *model.lagged])
    assert np.array_equal(model.lagged != 0, outcome.graph.lagged != 0)
    for j in range(5):
        parents = np.flatnonzero(weights[:, j])
        given = np.column_stack([np.ones(len(rows)), rows[:, parents]])
        intercept, *expected = np.linalg.lstsq(given, rows[:, j], rcond=None)[0]
        np.testing.assert_allclose(weights[parents, j], expected, atol=1e-8)
        np.testing.assert_allclose(model.intercepts[j], intercept, atol=1e-7)
    assert dbn(refit=False).model is None


def test_a_graph_with_lags_comes_back_from_a_file(tmp_path):
    graph = dbn(order=2).graph
    graph.save(tmp_path / "graph.json")
    again = CausalGraph.load(tmp_path / "graph.json")
    assert again.equals(graph)
    assert np.array_equal(again.lagged, graph.lagged)
    assert np.array_equal(again.raw_lagged, graph.raw_lagged)


@pytest.mark.few(1)
@pytest.mark.parametrize("method", [TwoDBN, Moments])
def test_random_walks_and_trends_are_warned_of(method):
    def warned(parties):
        outcome = run(method(order=1), spy([read_table(party) for party in parties]))
        return [text for text in outcome.warnings if "stationary" in text]

    rng = np.random.default_rng(0)
    noise = [rng.normal(size=(200, 3)) for _ in range(3)]
    for parties in (
        [steps.cumsum(axis=0) for steps in noise],
        [steps + 0.2 * np.arange(200)[:, None] for steps in noise],
    ):
        (text,) = warned(parties)
        assert re.search(r"spectral radius (0\.99|1\.0)\d", text)
        assert "Take differences" in text
        assert warned([np.diff(series, axis=0) for series in parties]) == []
    explosive = [series.cumsum(axis=0) for series in (steps.cumsum(axis=0) for steps in noise)]
    assert "not stationary" in warned(explosive)[0]
    assert warned(PARTIES) == []


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "options",
    [{"max_rounds": 6}, {"refit": False}, {"sparsity": "bic"}, {}, {"max_rounds": 60}],
    ids=str,
)
def test_no_more_exchanges_than_allowed(options):
    method = TwoDBN(**options)
    grid = spy([read_table(party) for party in PARTIES])
    outcome = run(method, grid)
    assert outcome.rounds <= method.options.max_rounds
    assert len(grid.training_messages) == 3 * outcome.rounds


def test_a_column_that_varies_between_series_only_is_refused():
    rng = np.random.default_rng(0)
    flat = [np.column_stack([rng.normal(size=40), np.full(40, float(k))]) for k in range(3)]
    with pytest.raises(DataError, match=r"'x1' does not vary within any series.*center='global'"):
        dbn([[party] for party in flat], center="series")
