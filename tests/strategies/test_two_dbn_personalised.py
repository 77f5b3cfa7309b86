"""2Dbn with ``variant="personalised"`` (PFDBNL): a network of each party near the common one."""

import numpy as np
import pandas as pd
import pytest
from federations import disturbed, raising, spy

from benchmarks.scores import measured
from benchmarks.simulators import differing_series
from benchmarks.world import LineResult
from flwr_causal import ConfigError, FederationError, Run, simulate
from flwr_causal.core.series.design import lagged_rows
from flwr_causal.data.synthetic.series import simulate_series
from flwr_causal.protocol import records
from flwr_causal.strategies import TwoDBN, run

NAMES = tuple("abcd")
NOW = np.diag([0.9, 0.9, 0.9], k=1)
LAGGED = np.zeros((1, 4, 4))
LAGGED[0, 0, 0], LAGGED[0, 1, 3] = 0.5, -0.6
COMMON = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "a", 1), ("b", "d", 1)]
OWN = {"variant": "personalised"}


def series(k, steps=301, unlike=(), seed=0):
    weights = np.concatenate([NOW[None], LAGGED])
    for edge in unlike:
        weights[edge] = 0.0 if weights[edge] else 0.7
    (own,) = simulate_series(weights[0], weights[1:], [steps], seed=[seed, k])
    return pd.DataFrame(own, columns=list(NAMES))


#: The second party lacks b[t-1] -> d, and the fourth has a -> d.
PARTIES = [series(k, unlike={1: [(1, 1, 3)], 3: [(0, 0, 3)]}.get(k, ())) for k in range(4)]


def arrows(graph):
    return {edge[:2] for edge in graph.edges()} | {edge[:3] for edge in graph.lagged_edges()}


@pytest.fixture(scope="module")
def found():
    return simulate("2dbn", PARTIES, **OWN)


def test_networks_of_the_parties_beside_the_common_one(found):
    assert arrows(found.graph) == set(COMMON)
    assert arrows(found.local_graphs["party 0"]) == set(COMMON)
    assert arrows(found.local_graphs["party 1"]) == set(COMMON[:-1])
    assert arrows(found.local_graphs["party 3"]) == {*COMMON, ("a", "d")}
    table = found.heterogeneity
    unlike = table[table["own"] != "same"].set_index("party")
    assert unlike["own"].to_dict() == {"party 1": "absent", "party 3": "additional"}
    assert unlike.loc["party 1", ["cause", "effect"]].tolist() == ["b[t-1]", "d"]
    assert unlike.loc["party 1", "support"] < -20
    assert unlike.loc["party 3", "support"] > 20
    assert found.rounds == 26
    assert found.model is None


@pytest.mark.slow
def test_the_common_weights_are_the_mean_of_the_parties(found):
    grid = spy(PARTIES)
    outcome = run(TwoDBN(min_available_nodes=4, **OWN), grid)
    asked = grid.of_exchange("own networks")
    number = int(asked[0].metadata.group_id)
    before = [one for one in grid.replies if one.metadata.group_id == str(number - 1)]
    sent = [records.arrays_of(one.content)["weights"] for one in before]
    assert len(sent) == 4
    np.testing.assert_allclose(
        records.arrays_of(asked[0].content)["weights"], np.mean(sent, axis=0), atol=1e-12
    )
    np.testing.assert_allclose(outcome.graph.raw_weights, np.mean(sent, axis=0)[:4], atol=1e-12)
    # They have nearly come to rest.
    assert outcome.history[-2]["change"] < 0.02


def test_support_and_strength_are_those_of_regressions_in_the_partys_rows(found):
    centred = PARTIES[1] - np.concatenate([one[1:] for one in PARTIES]).mean(axis=0)
    rows = lagged_rows([centred.to_numpy()], 1)
    table = found.heterogeneity.set_index(["party", "cause", "effect"])
    row = table.loc[("party 1", "b[t-1]", "d")]
    weight = found.graph.lagged[0, 1, 3]

    def left(causes, effect, moved=None):
        target = rows[:, effect] if moved is None else moved
        return np.linalg.lstsq(rows[:, causes], target, rcond=None)[1][0]

    given = left([2], 3, rows[:, 3] - weight * rows[:, 5])
    assert row["support"] == pytest.approx(len(rows) / 2 * np.log(left([2], 3) / given))
    assert row["strength"] ** 2 == pytest.approx(1 - left([2, 5], 3) / left([2], 3), abs=1e-6)


@pytest.mark.nightly
def test_without_proximity_every_party_is_alone():
    apart = simulate("2dbn", PARTIES, proximity=0.0, sparsity=0.05, **OWN)
    for k, party in enumerate(PARTIES):
        level = np.concatenate([one[1:] for one in PARTIES]).mean(axis=0)
        alone = simulate("2dbn", [party - level], proximity=0.0, sparsity=0.05, **OWN)
        own = apart.local_graphs[f"party {k}"]
        assert arrows(own) == arrows(alone.local_graphs["party 0"])
        np.testing.assert_allclose(own.lagged, alone.graph.lagged, atol=0.05)


def test_one_party_has_the_common_network():
    alone = simulate("2dbn", PARTIES[:1], **OWN)
    (own,) = alone.local_graphs.values()
    assert arrows(own) == arrows(alone.graph) == set(COMMON)
    np.testing.assert_allclose(own.weights, alone.graph.weights, atol=0.02)


@pytest.mark.slow
def test_with_much_proximity_all_have_the_common_network():
    found = simulate("2dbn", PARTIES, proximity=100.0, max_rounds=60, **OWN)
    for own in found.local_graphs.values():
        np.testing.assert_allclose(own.weights, found.graph.weights, atol=0.05)


@pytest.mark.slow
def test_parties_that_are_alike_have_the_common_network():
    found = simulate("2dbn", [series(k, seed=3) for k in range(4)], **OWN)
    assert arrows(found.graph) == set(COMMON)
    assert set(found.heterogeneity["own"]) == {"same"}


@pytest.mark.slow
def test_units_of_all_columns_and_the_order_of_parties_and_variables_do_not_matter(found):
    scaled = simulate("2dbn", [100.0 * one for one in PARTIES], **OWN)
    turned = simulate("2dbn", [one[[*"dbca"]] for one in PARTIES[::-1]], **OWN)
    for k in range(4):
        own = arrows(found.local_graphs[f"party {k}"])
        assert arrows(scaled.local_graphs[f"party {k}"]) == own
        assert arrows(turned.local_graphs[f"party {3 - k}"]) == own


@pytest.mark.slow
def test_breaks_of_series():
    parts = [[one[:140], one[140:]] for one in PARTIES]
    found = simulate("2dbn", parts, **OWN)
    assert arrows(found.local_graphs["party 1"]) == set(COMMON[:-1])


@pytest.mark.slow
def test_two_lags():
    found = simulate("2dbn", PARTIES, order=2, **OWN)
    assert found.graph.lagged.shape == (2, 4, 4)
    assert arrows(found.local_graphs["party 1"]) == set(COMMON[:-1])


@pytest.mark.slow
def test_a_run_is_saved_and_resumed_and_has_replicates(tmp_path, found):
    given = {**OWN, "max_rounds": 12, "replicates": 2, "output_dir": str(tmp_path)}
    first = simulate("2dbn", PARTIES, **given)
    assert first.graph.confidence is not None
    loaded = Run.load(tmp_path)
    pd.testing.assert_frame_equal(loaded.heterogeneity, first.heterogeneity)
    again = simulate("2dbn", PARTIES, resume=True, **given)
    for name, own in first.local_graphs.items():
        assert loaded.local_graphs[name].equals(own)
        assert again.local_graphs[name].equals(own)
    page = tmp_path / "page.html"
    first.report(page)
    assert "b[t-1]" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_party_that_is_lost_in_the_last_exchange_is_left_out():
    def method(**options):
        return TwoDBN(min_available_nodes=4, max_rounds=12, **OWN, **options)

    whole = run(method(), spy(PARTIES))
    lost = run(method(), disturbed(PARTIES, raising(1, {12}, attempts=2)))
    assert lost.graph.equals(whole.graph)
    assert list(lost.heterogeneity.graphs) == ["party 0", "party 2", "party 3"]
    with pytest.raises(FederationError, match="quorum") as raised:
        run(method(quorum=1.0), disturbed(PARTIES, raising(1, {12}, attempts=2)))
    assert raised.value.outcome.graph.equals(whole.graph)
    assert raised.value.outcome.heterogeneity is None


@pytest.mark.slow
def test_a_party_that_lost_its_memory_goes_on_from_the_common_weights():
    def forgets(partition, config, context):
        if partition == 1 and config["round"] == 20:
            context.state.clear()

    outcome = run(TwoDBN(min_available_nodes=4, **OWN), disturbed(PARTIES, forgets))
    assert not outcome.failures
    assert arrows(outcome.heterogeneity.graphs["party 1"]) == set(COMMON[:-1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sparsity": "bic"}, "'auto' or a number"),
        ({"refit": True}, "refit"),
        ({"search": True}, "search"),
        ({"early_stop": False}, "early_stop"),
        ({"select_order": True, "order": 2}, "select_order"),
        ({"knowledge": {"required": [["a", "b"]]}}, "knowledge"),
        ({"interventions": {"party 1": ["a"]}}, "interventions"),
        ({"aggregation": "median"}, "aggregation"),
        ({"fraction_train": 0.5}, "fraction_train"),
        ({"secure_aggregation": True}, "'variant' is 'personalised'.*secure_aggregation"),
        ({"proximity": -1.0}, "proximity"),
        ({"max_rounds": 6}, "'max_rounds' is 6; it must be 7 or more"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_name(options, said):
    with pytest.raises(ConfigError, match=said):
        simulate("2dbn", PARTIES, **OWN, **options)


def test_proximity_is_for_this_variant():
    with pytest.raises(ConfigError, match=r"proximity.*variant='personalised'"):
        simulate("2dbn", PARTIES, proximity=0.5)


def errors(world, *graphs, local=()):
    """Mean number of wrong edges of the parties' graphs, with a lag and without."""
    found = measured(world, LineResult(graphs, local=tuple(local)), ("own_shd", "own_lagged_shd"))
    return sum(found.values())


@pytest.mark.nightly
def test_networks_are_better_than_those_of_the_parties_alone_and_the_common_one():
    """Measured: 1.0 wrong edges a party; 2.4 of each alone, 2.1 of the common graph."""
    near, alone, common = [], [], []
    for seed in range(5):
        world = differing_series(seed, 8, 100, 5, "each")
        found = simulate("2dbn", world.parties, **OWN)
        near.append(errors(world, found.graph, local=found.local_graphs.values()))
        alone.append(errors(world, *(simulate("2dbn", [one]).graph for one in world.parties)))
        common.append(errors(world, simulate("2dbn", world.parties).graph))
    assert np.mean(near) < 0.8 * min(np.mean(alone), np.mean(common))


@pytest.mark.nightly
def test_local_graphs_are_better_than_the_common_one_where_few_parties_differ():
    """Measured: 0.6 wrong edges a party; 1.2 of the common graph."""
    own, common = [], []
    for seed in range(8):
        world = differing_series(seed, 5, 500, 4, "some")
        found = simulate("2dbn", world.parties, local_graphs=True)
        own.append(errors(world, found.graph, local=found.local_graphs.values()))
        common.append(errors(world, found.graph))
    assert np.mean(own) < 0.8 * np.mean(common)
