"""``local_graphs`` of the ADMM methods: each party's own graph beside the common one."""

import numpy as np
import pandas as pd
import pytest
from federations import disturbed, raising, spy
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

from flwr_causal import ConfigError, FederationError, Knowledge, Run, simulate
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.data.synthetic.series import simulate_series
from flwr_causal.protocol import consensus, records
from flwr_causal.reports.summary import describe_run
from flwr_causal.strategies import NotearsADMM, TwoDBN, run
from flwr_causal.strategies.local_graphs import local_graphs

NAMES = tuple("abcd")
NOW = np.diag([1.0, 1.0, 1.0], k=1)
LAGGED = np.zeros((1, 4, 4))
LAGGED[0, 0, 0], LAGGED[0, 1, 3] = 0.5, -0.6
FAST = {"max_rounds": 12}


def rows(k, n=200, seed=0, unlike=()):
    """Rows of a -> b -> c -> d, without some edges."""
    weights = NOW.copy()
    for edge in unlike:
        weights[edge] = 0.0
    noise = np.random.default_rng([seed, k]).normal(size=(n, 4))
    return pd.DataFrame(noise @ np.linalg.inv(np.eye(4) - weights), columns=list(NAMES))


def series(k, steps=201, seed=0, unlike=()):
    """Steps of the same with a[t-1] -> a and b[t-1] -> d, without some edges (lag, i, j)."""
    weights = np.concatenate([NOW[None], LAGGED])
    for edge in unlike:
        weights[edge] = 0.0
    (own,) = simulate_series(weights[0], weights[1:], [steps], seed=[seed, k])
    return pd.DataFrame(own, columns=list(NAMES))


TABLES = [rows(k, unlike=[(1, 2)] if k == 2 else ()) for k in range(5)]
SERIES = [series(k, unlike=[(1, 1, 3)] if k == 3 else ()) for k in range(5)]
OF_ROWS = ("notears-admm", TABLES, {})
OF_SERIES = ("2dbn", SERIES, {"order": 1})
METHODS = pytest.mark.parametrize(
    ("method", "parties", "options"), [OF_ROWS, OF_SERIES], ids=["notears-admm", "2dbn"]
)


def unlike(found):
    table = found.heterogeneity
    return [
        (row["party"], row["cause"], row["effect"], row["own"])
        for row in table[table["own"] != "same"].to_dict("records")
    ]


def arrows(graph):
    return [edge[:2] for edge in graph.edges()] + [edge[:3] for edge in graph.lagged_edges()]


def test_the_edge_that_one_party_lacks():
    found = simulate("notears-admm", TABLES, local_graphs=True, **FAST)
    assert arrows(found.graph) == [("a", "b"), ("b", "c"), ("c", "d")]
    assert unlike(found) == [("party 2", "b", "c", "absent")]
    assert arrows(found.local_graphs["party 2"]) == [("a", "b"), ("c", "d")]
    assert any("party 2" in line and "without b -> c" in line for line in describe_run(found))


def test_the_lagged_edge_that_one_party_lacks():
    found = simulate("2dbn", SERIES, local_graphs=True, **FAST)
    assert unlike(found) == [("party 3", "b[t-1]", "d", "absent")]
    common = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "a", 1), ("b", "d", 1)]
    assert arrows(found.graph) == common
    for name, own in found.local_graphs.items():
        assert arrows(own) == (common[:-1] if name == "party 3" else common)
        assert own.lagged.shape == (1, 4, 4)


@METHODS
def test_own_graphs_are_those_of_the_moments_of_all_rows(method, parties, options):
    """The parties' weights are those of least squares in their own rows, about their own means."""
    found = simulate(method, parties, local_graphs=True, **options, **FAST)
    graph, order = found.graph, options.get("order", 0)
    level = np.concatenate([one.to_numpy()[order:] for one in parties]).mean(axis=0)
    parts = {}
    for k, one in enumerate(parties):
        values = one.to_numpy() - level
        past = [values[order - lag : len(values) - lag] for lag in range(order + 1)]
        design = np.column_stack([np.ones(len(past[0])), *past])
        parts[f"party {k}"] = design.T @ design
    m = 4 * (1 + order)
    allowed = np.zeros((m, m), bool)
    allowed[:, :4] = True
    np.fill_diagonal(allowed, False)
    own = local_graphs(parts, graph, EdgeMasks(allowed, np.zeros((m, m), bool)))
    for name, expected in own.graphs.items():
        np.testing.assert_allclose(found.local_graphs[name].weights, expected.weights, atol=1e-9)
    pd.testing.assert_frame_equal(found.heterogeneity, own.edges, atol=1e-6)


@pytest.mark.few(2)
@METHODS
@pytest.mark.parametrize(
    "more",
    [
        {},
        pytest.param({"search": False}, marks=pytest.mark.nightly),
        {"variant": "paper", "max_rounds": 30, "sparsity": 0.02},
    ],
    ids=str,
)
def test_the_common_graph_is_that_without_the_option(method, parties, options, more):
    if method == "notears-admm" and "variant" in more:
        more = {"variant": "paper", "max_rounds": 30}
    given = {**options, **FAST, **more}
    without = simulate(method, parties, **given)
    given["max_rounds"] += 1
    found = simulate(method, parties, local_graphs=True, **given)
    assert found.graph.equals(without.graph)
    assert found.rounds == without.rounds + 1
    assert found.stop_reason == without.stop_reason
    assert list(found.local_graphs) == [f"party {k}" for k in range(5)]
    assert without.heterogeneity is None


@METHODS
def test_parties_that_are_alike_have_the_common_graph(method, parties, options):
    draw = rows if method == "notears-admm" else series
    alike = [draw(k, seed=7) for k in range(6)]
    found = simulate(method, alike, local_graphs=True, **options, **FAST)
    assert not unlike(found)
    for own in found.local_graphs.values():
        assert np.array_equal(own.adjacency, found.graph.adjacency)


def test_neither_breaks_of_series_nor_their_division_matter():
    """Several series of a party are rows that span none of the breaks."""
    parts = [[one[:90], one[90:]] for one in SERIES]
    split = simulate("2dbn", parts, local_graphs=True, **FAST)
    broken = []
    for first, second in parts:
        table = pd.concat([first.assign(day=range(90)), second.assign(day=range(200, 311))])
        broken.append(table)
    found = simulate("2dbn", broken, local_graphs=True, time_column="day", gaps="split", **FAST)
    for name, own in found.local_graphs.items():
        assert own.equals(split.local_graphs[name])
    assert unlike(found) == [("party 3", "b[t-1]", "d", "absent")]


def test_fewer_lags_than_were_asked_for():
    found = simulate("2dbn", SERIES, order=2, select_order=True, local_graphs=True, **FAST)
    assert len(found.graph.lagged) == 1
    assert ("party 3", "b[t-1]", "d", "absent") in unlike(found)


@pytest.mark.few(1)
@METHODS
def test_the_order_of_the_parties_does_not_matter(method, parties, options):
    found = simulate(method, parties, local_graphs=True, **options, **FAST)
    other = simulate(method, parties[::-1], local_graphs=True, **options, **FAST)
    for k in range(5):
        own, same = found.local_graphs[f"party {k}"], other.local_graphs[f"party {4 - k}"]
        np.testing.assert_allclose(own.weights, same.weights, atol=1e-9)


def test_knowledge_is_kept():
    known = Knowledge(required=[("b", "c")], forbidden=[("a", "d")])
    found = simulate("notears-admm", TABLES, local_graphs=True, knowledge=known, **FAST)
    assert all(("b", "c") in arrows(own) for own in found.local_graphs.values())
    lagged = Knowledge(required_lagged=[("b", "d", 1)])
    found = simulate("2dbn", SERIES, local_graphs=True, knowledge=lagged, **FAST)
    assert all(("b", "d", 1) in arrows(own) for own in found.local_graphs.values())


# Failures, files and sums.


@pytest.mark.parametrize(
    ("make", "parties"), [(NotearsADMM, TABLES), (TwoDBN, SERIES)], ids=["notears-admm", "2dbn"]
)
class TestFaults:
    def method(self, make, **options):
        return make(local_graphs=True, min_available_nodes=5, **FAST, **options)

    @pytest.mark.few(1)
    def test_a_party_that_is_lost_in_the_last_exchange_is_left_out(self, make, parties):
        whole = run(self.method(make), spy(parties))
        last = whole.rounds
        grid = disturbed(parties, raising(1, {last}, attempts=2))
        found = run(self.method(make), grid)
        assert found.graph.equals(whole.graph)
        assert list(found.heterogeneity.graphs) == [f"party {k}" for k in (0, 2, 3, 4)]
        assert [(one.server_round, one.party) for one in found.failures] == [(last, "party 1")]

    @pytest.mark.few(1)
    def test_the_graph_stands_where_the_last_exchange_fails(self, make, parties):
        whole = run(self.method(make), spy(parties))
        grid = disturbed(parties, raising(1, {whole.rounds}, attempts=2))
        with pytest.raises(FederationError, match="quorum") as raised:
            run(self.method(make, quorum=1.0), grid)
        assert raised.value.outcome.graph.equals(whole.graph)
        assert raised.value.outcome.heterogeneity is None
        again = run(self.method(make), spy(parties), state=raised.value.outcome.state)
        assert again.rounds == 1
        assert again.heterogeneity.edges.equals(whole.heterogeneity.edges)

    @pytest.mark.few(1)
    def test_what_leaves_a_party(self, make, parties):
        grid = spy(parties)
        found = run(self.method(make), grid)
        asked = grid.of_exchange("sums by party")
        assert len(asked) == 5
        assert {one.metadata.group_id for one in asked} == {str(found.rounds)}
        replies = [one for one in grid.replies if one.metadata.group_id == str(found.rounds)]
        m = 4 if make is NotearsADMM else 8
        for reply in replies:
            sent = records.arrays_of(reply.content)
            assert {name: one.shape for name, one in sent.items()} == {"moments": (1 + m, 1 + m)}
        plain = spy(parties)
        run(make(min_available_nodes=5, **FAST), plain)
        assert not plain.of_exchange("sums by party")

    def test_privacy_wrappers_are_refused(self, make, parties):
        method = self.method(make)
        wrapper = DifferentialPrivacyServerSideFixedClipping(method, 1.0, 1.0, 5)
        with pytest.raises(ConfigError, match="sums by party"):
            run(method, spy(parties), strategy=wrapper)


@pytest.mark.few(1)
@METHODS
def test_a_run_is_saved_and_resumed_and_has_replicates(method, parties, options, tmp_path):
    given = {**options, **FAST, "local_graphs": True, "replicates": 2}
    found = simulate(method, parties, output_dir=str(tmp_path), **given)
    assert found.graph.confidence is not None
    loaded = Run.load(tmp_path)
    pd.testing.assert_frame_equal(loaded.heterogeneity, found.heterogeneity)
    again = simulate(method, parties, resume=True, output_dir=str(tmp_path), **given)
    for name, own in found.local_graphs.items():
        assert loaded.local_graphs[name].equals(own)
        assert again.local_graphs[name].equals(own)
    page = tmp_path / "page.html"
    found.report(page)
    assert "party 3" in page.read_text(encoding="utf-8")


@pytest.mark.few(1)
@METHODS
def test_groups_that_add_up_securely_have_graphs(method, parties, options):
    draw = rows if method == "notears-admm" else series
    many = [draw(k) for k in range(9)]
    given = {**options, **FAST, "local_graphs": True, "secure_aggregation": True}
    found = simulate(method, many, groups=3, **given)
    assert list(found.local_graphs) == list(found.groups)
    with pytest.raises(ConfigError, match=r"'local_graphs'.*groups given"):
        simulate(method, many, **given)


def test_weights_are_in_the_units_of_the_common_graph():
    found = simulate("notears-admm", TABLES, local_graphs=True, standardize=True, **FAST)
    assert unlike(found) == [("party 2", "b", "c", "absent")]
    for own in found.local_graphs.values():
        same = own.adjacency & found.graph.adjacency
        np.testing.assert_allclose(own.weights[same], found.graph.weights[same], atol=0.2)


def test_levels_of_the_parties_are_no_difference_where_each_has_its_own():
    moved = [table + 3.0 * k for k, table in enumerate(TABLES)]
    found = simulate("notears-admm", moved, local_graphs=True, center="party", **FAST)
    assert unlike(found) == [("party 2", "b", "c", "absent")]
    moved = [table + 3.0 * k for k, table in enumerate(SERIES)]
    found = simulate("2dbn", moved, local_graphs=True, center="series", **FAST)
    assert unlike(found) == [("party 3", "b[t-1]", "d", "absent")]


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("notears-admm", {"model": "mlp"}, "'local_graphs'.*model='mlp'"),
        ("notears-admm", {"epsilon": 1.0, "delta": 1e-5}, "local_graphs"),
        ("notears-admm", {"interventions": {"party 1": ["a"]}}, "local_graphs"),
        ("notears-admm", {"aggregation": "median"}, "aggregation"),
        ("notears-admm", {"fraction_train": 0.6}, "fraction_train"),
        ("notears-admm", {"max_rounds": 6}, "'max_rounds' is 6; it must be 7 or more"),
        ("2dbn", {"interventions": {"party 1": ["a"]}}, "local_graphs"),
        ("2dbn", {"aggregation": "median"}, "aggregation"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_name(method, options, said):
    parties = TABLES if method == "notears-admm" else SERIES
    with pytest.raises(ConfigError, match=said):
        simulate(method, parties, local_graphs=True, **options)


@METHODS
def test_one_party_is_refused(method, parties, options):
    with pytest.raises(ConfigError, match="'local_graphs' is True, and party 0 is the only party"):
        simulate(method, parties[:1], local_graphs=True, **options)


def test_the_exchange_is_declared_once():
    (own,) = consensus.PARTS.returns
    assert own.combine == "mean"
    assert consensus.PARTS in consensus.NOTEARS_ADMM.exchanges
    assert consensus.PARTS in consensus.TWO_DBN.exchanges
