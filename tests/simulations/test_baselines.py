"""The suites of the FedCausal paper: their settings, their data and baselines."""

import sys

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.errors import ConfigError
from flwr_causal.simulations import nonlinear_scenarios as scenarios
from flwr_causal.simulations.nonlinear_scenarios import NonlinearSetting
from flwr_causal.simulations.scenarios.baselines import average, pooled
from flwr_causal.simulations.scenarios.world import World

PAPER = {"lg", "anm-mlp", "add-gp", "mim"}


def compared(parties, truth, solver="dagma-by-party"):
    world = World(parties, truth)
    both = pooled(world, solver), average(world, solver, weighted=True)
    graphs = (found.graphs[0] for found in both)
    return dict(zip(("NO-ALL", "NO-Avg"), (compare(truth, g) for g in graphs), strict=True))


def test_the_settings_are_those_of_the_paper():
    for mechanism in ("lg", "anm-mlp"):
        same = scenarios.same_functions(mechanism)
        assert [s.num_variables for s in same] == [10, 20, 40, 80]
        assert {(s.num_rows, s.num_parties, s.iid, s.sizes) for s in same} == {
            (2000, 10, True, "even")
        }
        assert {s.mechanisms for s in same} == {(mechanism,)}
    different = scenarios.different_mechanisms(graph="sf")
    assert [s.num_variables for s in different] == [10, 20, 40, 80]
    assert {(s.num_rows, s.num_parties, s.iid, s.graph) for s in different} == {
        (2000, 10, False, "sf")
    }
    assert all(set(s.mechanisms) == PAPER for s in different)
    (uneven,) = scenarios.uneven_parties()
    assert uneven == NonlinearSetting(40, sizes="uneven")
    growing = scenarios.growing_parties()
    assert [s.num_parties for s in growing] == [2, 4, 8, 16, 32]
    assert [s.num_rows // s.num_parties for s in growing] == [1024, 512, 256, 128, 64]
    assert all(s.iid and s.num_variables == 40 for s in growing)


@pytest.mark.parametrize(
    "setting",
    [
        NonlinearSetting(5, 60, 3, ("lg",), iid=True),
        NonlinearSetting(6, 60, 3, graph="sf"),
        NonlinearSetting(6, 300, 4, sizes="uneven"),
    ],
)
def test_the_data_follow_the_setting(setting):
    parties, truth = setting.data(seed=2)
    assert len(parties) == setting.num_parties
    assert sum(map(len, parties)) == setting.num_rows
    assert len(truth.names) == setting.num_variables
    assert truth.num_edges == setting.num_variables - (setting.graph == "sf")
    assert all(len(party) % 50 == 0 for party in parties) == (setting.sizes == "uneven")
    again, _ = setting.data(seed=2)
    pd.testing.assert_frame_equal(parties[0], again[0])


def test_all_suites_have_the_same_truths():
    settings = (
        scenarios.same_functions()[0],
        scenarios.different_mechanisms()[0],
        *scenarios.uneven_parties((10,)),
        scenarios.growing_parties(num_variables=10)[3],
    )
    first, *others = (setting.data(seed=4)[1] for setting in settings)
    assert all(first.equals(other) for other in others)


@pytest.mark.slow
def test_linear_rows_are_solved_and_different_mechanisms_are_not():
    linear = compared(*scenarios.same_functions()[0].data(seed=0))
    assert list(linear) == ["NO-ALL", "NO-Avg"]
    assert linear["NO-ALL"]["shd"] == 0
    mixed = compared(*scenarios.different_mechanisms()[0].data(seed=0))
    assert mixed["NO-ALL"]["shd"] >= 5


@pytest.mark.parametrize("solver", ["dagma-by-party", "notears-by-party"])
def test_with_one_party_both_baselines_solve_the_same_problem(solver):
    parties, truth = NonlinearSetting(5, 2000, 1, ("lg",), iid=True).data(seed=0)
    metrics = compared(parties, truth, solver=solver)
    assert metrics["NO-ALL"]["shd"] == metrics["NO-Avg"]["shd"] == 0


def test_rows_are_centred_by_their_own_party():
    """Shifts between parties, of all variables alike, would tie them all together."""
    parties, truth = NonlinearSetting(6, 2000, 4, ("lg",), iid=True).data(seed=0)
    moved = [party + 50.0 * k for k, party in enumerate(parties)]
    for name, metrics in compared(parties, truth).items():
        assert metrics == compared(moved, truth)[name]
        assert metrics["shd"] == 0


def edge(forward, n, seed):
    rng = np.random.default_rng(seed)
    cause = rng.standard_normal(n)
    effect = 1.5 * cause + rng.standard_normal(n)
    return pd.DataFrame({"a": cause, "b": effect} if forward else {"a": effect, "b": cause})


def test_the_average_is_weighted_by_rows_and_keeps_its_cycles():
    truth = CausalGraph.from_array(np.array([[0, 1], [0, 0]]), names=("a", "b"))
    half = compared([edge(True, 400, 0), edge(False, 400, 1)], truth)["NO-Avg"]
    assert not half["acyclic"]
    most = compared([edge(True, 4000, 0), edge(False, 200, 1)], truth)["NO-Avg"]
    assert most["acyclic"]
    assert most["shd"] == 0
    assert nx.is_directed_acyclic_graph(truth.to_networkx())


def waves(*signs, rows=300, shift=0.0):
    """Parties with ``b = 2 sign sin(2a) + noise``, and the true graph."""
    parties = []
    for k, sign in enumerate(signs):
        rng = np.random.default_rng(k)
        cause = rng.standard_normal(rows)
        effect = 2 * sign * np.sin(2 * cause) + 0.5 * rng.standard_normal(rows)
        parties.append(pd.DataFrame({"a": cause, "b": effect}) + shift * k)
    return parties, CausalGraph.from_array(np.array([[0, 1], [0, 0]]), names=("a", "b"))


def test_perceptrons_find_a_wave_whatever_its_level():
    pytest.importorskip("torch", reason="NOTEARS-MLP needs torch")
    metrics = compared(*waves(1, 1), solver="notears-mlp")
    assert metrics["NO-ALL"]["shd"] == metrics["NO-Avg"]["shd"] == 0
    assert metrics == compared(*waves(1, 1, shift=50.0), solver="notears-mlp")


def test_strengths_of_perceptrons_do_not_cancel_on_average():
    """Opposite effects cancel in the rows of all, and linear weights in their mean."""
    pytest.importorskip("torch", reason="NOTEARS-MLP needs torch")
    metrics = compared(*waves(1, -1), solver="notears-mlp")
    assert metrics["NO-ALL"]["num_edges"] == 0
    assert metrics["NO-Avg"]["shd"] == 0
    assert compared(*waves(1, -1))["NO-Avg"]["num_edges"] == 0


def test_perceptrons_of_a_party_with_a_constant_column():
    pytest.importorskip("torch", reason="NOTEARS-MLP needs torch")
    parties, truth = waves(1, 1)
    parties[1]["b"] = 3.0
    metrics = compared(parties, truth, solver="notears-mlp")
    assert metrics["NO-ALL"]["shd"] == metrics["NO-Avg"]["shd"] == 0


@pytest.mark.slow
def test_with_one_party_both_baselines_have_the_same_perceptrons():
    pytest.importorskip("torch", reason="NOTEARS-MLP needs torch")
    parties, truth = NonlinearSetting(4, 300, 1, ("mim",)).data(seed=3)
    metrics = compared(parties, truth, solver="notears-mlp")
    assert metrics["NO-ALL"] == metrics["NO-Avg"]
    assert metrics["NO-ALL"]["shd"] <= 1


def test_torch_is_needed_by_perceptrons_only(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert compared(*waves(1))["NO-ALL"]["num_edges"] == 1
    with pytest.raises(ConfigError, match=r'pip install "flwr-causal\[torch\]"'):
        compared(*waves(1), solver="notears-mlp")


def test_an_unknown_solver_is_refused():
    parties, truth = NonlinearSetting(3, 20, 1).data(seed=0)
    with pytest.raises(ConfigError, match="no solver 'gess' of baselines: choose of notears"):
        compared(parties, truth, solver="gess")
