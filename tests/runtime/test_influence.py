"""False replies: what the graph owes to a single party, and medians that they cannot move."""

import pickle

import numpy as np
import pytest
from federations import disturbed, make_federation, raising, spy
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.synthetic.discrete import federated_discrete
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import records
from flwr_causal.reports.run import Run
from flwr_causal.runtime.influence import LeaveOneOut, change_between
from flwr_causal.runtime.training import Training
from flwr_causal.simulations import simulate
from flwr_causal.simulations.relay import KilledError, Relay
from flwr_causal.strategies import Moments, NotearsADMM, run

HONEST = make_federation(d=6, n=750, parties=5, seed=3)


def relabelled(table, order):
    """The table of a party whose columns have the names of others."""
    return table.iloc[:, order].set_axis(table.columns, axis=1)


def federation_with_false_columns(party):
    order = np.roll(np.arange(6), 3)
    tables = list(HONEST.tables)
    tables[party] = relabelled(tables[party], order)
    return tables


FALSE = federation_with_false_columns(2)


class Lying(Relay):
    """A grid in which the replies of some parties are others than they sent."""

    def __init__(self, grid, parties, lie) -> None:
        super().__init__(grid)
        self._parties, self._lie = set(parties), lie

    def after(self, messages, replies):
        nodes = sorted(self.grid.get_node_ids())
        for reply in replies:
            false = nodes.index(reply.metadata.src_node_id) in self._parties
            if false and records.ARRAYS in reply.content:
                arrays = records.arrays_of(reply.content)
                changed = {name: self._lie(name, np.array(a)) for name, a in arrays.items()}
                reply.content[records.ARRAYS] = records.pack_arrays(changed)
        return replies


def noise(name, array):
    """Weights that say nothing; moments are left as they are."""
    if name == "moments":
        return array
    return 3 * array.std() * np.random.default_rng(0).normal(size=array.shape)


def differs(graph, other):
    different = graph.adjacency != other.adjacency
    return int(np.triu(different | different.T).sum())


# Influence.


def test_it_is_the_difference_from_the_run_of_the_others():
    options = {"sparsity": 0.05, "center": "party", "threshold": 0.1}
    found = simulate("moments", FALSE, **options)
    assert list(found.influence) == list(found.parties)
    for k, (party, change) in enumerate(found.influence.items()):
        others = simulate("moments", FALSE[:k] + FALSE[k + 1 :], **options).graph
        assert change["changed_edges"] == differs(found.graph, others)
        largest = np.abs(found.graph.weights - others.weights).max()
        assert change["largest_change"] == pytest.approx(largest, abs=1e-6), party


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("moments", {"center": "party"}),
        ("notears-admm", {"center": "party", "max_rounds": 6}),
        ("fedges", {"mode": "scores"}),
        ("fedges", {"mode": "exact", "replicates": 1}),
    ],
)
def test_trainings_without_a_party_are_the_runs_of_the_others(method, options):
    """They travel in the exchanges of the main training, which stays as it is."""
    parts = FALSE[:3]
    if method == "fedges":
        parts, _ = federated_discrete(5, 600, 3, seed=2)
    alone = simulate(method, parts, **options)
    run = simulate(method, parts, leave_one_out=True, **options)
    np.testing.assert_array_equal(run.graph.weights, alone.graph.weights)
    assert list(run.influence) == list(run.parties)
    for k, change in enumerate(run.influence.values()):
        others = simulate(method, [*parts[:k], *parts[k + 1 :]], **options).graph
        assert change["changed_edges"] == len(change["changes"]) == differs(run.graph, others)
        largest = np.abs(run.graph.weights - others.weights).max()
        assert change["largest_change"] == pytest.approx(largest, abs=1e-6)
    assert any(change["changed_edges"] for change in run.influence.values())


def test_changes_are_said_in_words():
    names, before = tuple("xyz"), np.array([[0, 1, 0], [0, 0, 2], [0, 0, 0.0]])
    after = np.array([[0, 1, 0], [0, 0, 0], [0, 1, 0.0]])
    after[0, 1], after[0, 2] = 0, 3
    found = change_between(CausalGraph(names, before), CausalGraph(names, after))
    assert found["changed_edges"] == 3
    assert found["changes"] == ["x -> y vanishes", "y -> z becomes z -> y", "x -> z appears"]
    assert (found["largest_change"], found["distance"]) == (3, None)


def test_methods_without_a_graph_refuse_to_leave_parties_out():
    with pytest.raises(ConfigError, match="leave_one_out"):
        simulate("fedpc", FALSE, leave_one_out=True)


def test_a_median_needs_three_parties_without_the_one_that_is_left_out():
    """Otherwise the run would fail when the replies have come."""
    with pytest.raises(ConfigError, match=r"'leave_one_out'.*at least 4 parties"):
        simulate("moments", FALSE[:3], aggregation="median", leave_one_out=True)


def test_of_series_the_lagged_edges_count():
    rng = np.random.default_rng(0)
    tables = []
    for k in range(4):
        x = np.zeros((200, 3))
        for t in range(1, 200):
            x[t] = (0.6 if k else -0.6) * x[t - 1][[1, 2, 0]] + rng.normal(size=3)
        tables.append(x)
    influence = simulate("moments", tables, order=1).influence
    by_change = max(influence, key=lambda party: influence[party]["largest_change"])
    assert by_change == "party 0"
    assert influence["party 0"]["distance"] > 4


def test_a_party_that_decides_much_is_named():
    found = simulate("moments", FALSE)
    assert differs(found.graph, HONEST.truth) > 2
    influence = found.influence
    assert max(influence, key=lambda party: influence[party]["changed_edges"]) == "party 2"
    warnings = [text for text in found.warnings if "decide much of the graph" in text]
    assert len(warnings) == 1
    assert "without party 2" in warnings[0]
    assert all(f"without party {k}" not in warnings[0] for k in range(5) if k != 2)


@pytest.mark.few(2)
@pytest.mark.parametrize("sizes", [(10, 30, 10), (10, 256, 8)])
@pytest.mark.parametrize("seed", range(2))
def test_no_party_of_the_papers_simulations_is_named(sizes, seed):
    found = simulate("moments", federated_linear(*sizes, seed=seed)[0])
    assert not any("decide much" in text for text in found.warnings)
    assert max(change["distance"] for change in found.influence.values()) < 3


def test_it_is_computed_when_it_is_read(monkeypatch):
    calls = []
    give = Training.give
    monkeypatch.setattr(Training, "give", lambda *args: calls.append(1) or give(*args))
    found = simulate("moments", HONEST.tables)
    assert len(calls) == 1
    assert found.influence is found.influence
    assert len(calls) == 1 + 5


def test_of_many_variables_those_that_stand_out_are_left_out(monkeypatch):
    monkeypatch.setattr("flwr_causal.runtime.influence.VARIABLES_TIMES_PARTIES", 16)
    influence = simulate("moments", FALSE).influence
    assert len(influence) == 3
    assert "party 2" in influence


@pytest.mark.slow
def test_it_is_saved_and_a_resumed_run_has_it(tmp_path, monkeypatch):
    def killed(*args):
        raise KilledError

    whole = simulate("moments", FALSE, output_dir=tmp_path / "whole")
    loaded = Run.load(tmp_path / "whole")
    assert loaded.influence == whole.influence
    assert whole.influence == simulate("moments", FALSE).influence
    with monkeypatch.context() as patched:
        patched.setattr(Moments, "_disagreement", killed)
        with pytest.raises(KilledError):
            simulate("moments", FALSE, output_dir=tmp_path / "killed")
    resumed = simulate("moments", FALSE, output_dir=tmp_path / "killed", resume=True)
    assert resumed.influence == whole.influence
    # Single replies are not kept, by which what differs at a party is said in words.
    (said,) = [text for text in whole.warnings if " differs from the others" in text]
    assert resumed.warnings == [text for text in whole.warnings if text != said]


CHANGE = {"changed_edges": 0, "changes": [], "largest_change": 0.0, "distance": 1.0}


def test_an_output_directory_needs_no_more_solutions(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(LeaveOneOut, "_without", lambda *args: calls.append(args) or CHANGE)
    found = simulate("moments", HONEST.tables, output_dir=tmp_path / "run")
    assert (calls, Run.load(tmp_path / "run").influence) == ([], {})
    found.save(tmp_path / "run")
    assert len(calls) == 5
    assert Run.load(tmp_path / "run").influence == found.influence
    assert len(found.influence) == 5


def test_it_survives_a_pickle():
    found = pickle.loads(pickle.dumps(simulate("moments", HONEST.tables)))
    assert len(found.influence) == 5


@pytest.mark.parametrize("method", ["notears-admm", "fedcausal"])
def test_where_it_is_not_known_it_is_empty(method):
    options = {"model": "linear"} if method == "fedcausal" else {}
    assert simulate(method, HONEST.tables[:3], max_rounds=8, **options).influence == {}


def test_one_party_has_no_others():
    assert simulate("moments", HONEST.tables[:1]).influence == {}


# Medians.


def test_moments_without_false_parties_are_as_good():
    found = simulate("moments", HONEST.tables, aggregation="median")
    assert differs(found.graph, HONEST.truth) == 0


def test_moments_with_a_false_party():
    found = simulate("moments", FALSE, aggregation="median")
    assert differs(found.graph, HONEST.truth) == 0
    assert not any("decide much" in text for text in found.warnings)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("notears-admm", {"max_rounds": 16, "search": False}),
        ("fedcausal", {"model": "linear", "max_rounds": 10}),
    ],
)
def test_rounds_with_a_party_that_sends_noise(method, options):
    clean = simulate(method, HONEST.tables, **options).graph

    def changed(aggregation):
        found = simulate(
            method,
            HONEST.tables,
            aggregation=aggregation,
            wrap_grid=lambda grid: Lying(grid, (1,), noise),
            **options,
        )
        return differs(found.graph, clean)

    assert changed("median") == 0
    assert changed("mean") > 2


def test_groups_of_other_mechanisms():
    options = {"refine": "none", "aggregation": "median", "max_rounds": 8}
    found = simulate("fedcausal", HONEST.tables, **options)
    assert found.graph.num_edges > 0


def test_series_by_consensus():
    rng = np.random.default_rng(1)
    tables = []
    for _ in range(4):
        x = np.zeros((150, 3))
        for t in range(1, 150):
            x[t] = 0.6 * x[t - 1] + rng.normal(size=3)
            x[t, 1] += 0.8 * x[t, 0]
        tables.append(x)
    found = simulate("2dbn", tables, aggregation="median", max_rounds=12)
    assert found.graph.adjacency.sum() == 1
    assert found.graph.adjacency[0, 1]


@pytest.mark.parametrize(
    ("method", "options"),
    [("moments", {}), ("notears-admm", {}), ("fedcausal", {}), ("2dbn", {})],
)
def test_two_parties_have_no_median(method, options):
    with pytest.raises(ConfigError, match=r"'aggregation' is 'median'.*at least 3 parties"):
        simulate(method, HONEST.tables[:2], aggregation="median", **options)


def test_nor_has_a_sample_of_two():
    with pytest.raises(ConfigError, match="'aggregation'"):
        simulate("notears-admm", HONEST.tables, aggregation="median", fraction_train=0.25)


def test_a_party_that_is_lost_of_three():
    grid = disturbed(HONEST.tables[:3], raising(1, rounds={2}, attempts=2))
    method = NotearsADMM(max_rounds=8, aggregation="median")
    with pytest.raises(FederationError, match=r"Exchange 2: only 2 parties.*median.*party 1: "):
        run(method, grid)


def test_other_methods_have_no_such_option():
    with pytest.raises(ConfigError, match="aggregation"):
        simulate("fedges", HONEST.tables, aggregation="median")


def test_privacy_wrappers_add_noise_to_means_only():
    grid = spy(HONEST.tables)
    method = NotearsADMM(max_rounds=8, refit=False, aggregation="median")
    wrapper = DifferentialPrivacyServerSideFixedClipping(method, 0.1, 1.0, 5)
    with pytest.raises(ConfigError, match="'aggregation' of NotearsADMM is 'median'"):
        run(method, grid, strategy=wrapper)
    assert not grid.sent
