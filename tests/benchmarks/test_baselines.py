"""Baselines of the papers: what they find on simulated systems, and what they have in common."""

import sys

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from benchmarks.baselines import BASELINES, average, pooled
from benchmarks.world import World
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.data.synthetic.nonlinear import federated_nonlinear
from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.errors import ConfigError, DataError


def found_by(world, names, **settings):
    """Metrics of baselines by name."""
    graphs = {name: BASELINES[name](world, **settings).graphs[0] for name in names}
    return {name: compare(world.truth, graph) for name, graph in graphs.items()}


def of_linear(parties, weights):
    world = World(parties, CausalGraph.from_array(weights))
    return found_by(world, ("pooled", "voting", "average", "best"), solver="notears")


def of_series(parties, truth, **settings):
    names = ("pooled", "average", "best")
    return found_by(World(parties, truth), names, solver="dynotears", **settings)


def compared(parties, truth, solver="dagma-by-party"):
    world = World(parties, truth)
    both = pooled(world, solver), average(world, solver, weighted=True)
    graphs = (found.graphs[0] for found in both)
    return dict(zip(("NO-ALL", "NO-Avg"), (compare(truth, g) for g in graphs), strict=True))


@pytest.mark.nightly
def test_the_pooled_rows_show_what_parties_of_four_rows_cannot():
    metrics = of_linear(*federated_linear(5, 48, 12, seed=2))
    assert metrics["pooled"]["shd"] < min(metrics["voting"]["shd"], metrics["best"]["shd"])
    assert {m["num_true"] for m in metrics.values()} == {5}


@pytest.mark.slow
def test_with_one_party_all_baselines_are_the_same():
    metrics = of_linear(*federated_linear(6, 120, 1, seed=0))
    assert metrics["voting"] == metrics["best"] == metrics["pooled"]


@pytest.mark.slow
def test_linear_rows_are_solved_and_different_mechanisms_are_not():
    linear = compared(*federated_nonlinear(10, 2000, 10, mechanisms="lg", iid=True))
    assert list(linear) == ["NO-ALL", "NO-Avg"]
    assert linear["NO-ALL"]["shd"] == 0
    mixed = compared(*federated_nonlinear(10, 2000, 10))
    assert mixed["NO-ALL"]["shd"] >= 5


@pytest.mark.few(1)
@pytest.mark.parametrize("solver", ["dagma-by-party", "notears-by-party"])
def test_with_one_party_both_baselines_solve_the_same_problem(solver):
    parties, truth = federated_nonlinear(5, 2000, 1, mechanisms="lg", iid=True)
    metrics = compared(parties, truth, solver=solver)
    assert metrics["NO-ALL"]["shd"] == metrics["NO-Avg"]["shd"] == 0


@pytest.mark.slow
def test_rows_are_centred_by_their_own_party():
    """Shifts between parties, of all variables alike, would tie them all together."""
    parties, truth = federated_nonlinear(6, 2000, 4, mechanisms="lg", iid=True)
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


@pytest.mark.slow
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


@pytest.mark.nightly
def test_with_one_party_both_baselines_have_the_same_perceptrons():
    pytest.importorskip("torch", reason="NOTEARS-MLP needs torch")
    parties, truth = federated_nonlinear(4, 300, 1, mechanisms="mim", seed=3)
    metrics = compared(parties, truth, solver="notears-mlp")
    assert metrics["NO-ALL"] == metrics["NO-Avg"]
    assert metrics["NO-ALL"]["shd"] <= 1


def test_torch_is_needed_by_perceptrons_only(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert compared(*waves(1))["NO-ALL"]["num_edges"] == 1
    with pytest.raises(ConfigError, match=r'pip install "flwr-causal\[torch\]"'):
        compared(*waves(1), solver="notears-mlp")


def test_an_unknown_solver_is_refused():
    parties, truth = federated_nonlinear(3, 20, 1)
    with pytest.raises(ConfigError, match="no solver 'gess' of baselines: choose of notears"):
        compared(parties, truth, solver="gess")


def test_baselines_need_a_truth_with_lags():
    plain = CausalGraph.from_array(np.array([[0, 0.5], [0, 0]]))
    with pytest.raises(DataError, match="truth has no lags"):
        of_series([], plain)


def total(metrics):
    return metrics["shd"] + metrics["lagged_shd"]


@pytest.mark.slow
def test_pooled_rows_show_what_short_series_cannot():
    parties, truth = federated_dynamic(6, 160, 20, seed=0)
    metrics = of_series(parties, truth)
    assert total(metrics["pooled"]) < min(total(metrics["average"]), total(metrics["best"]))


@pytest.mark.parametrize("solver", ["dagma", "notears"])
def test_with_one_party_all_baselines_are_the_same_and_find_the_system(solver):
    parties, truth = federated_dynamic(5, 2000, 1, seed=4)
    metrics = of_series(parties, truth, path=solver)
    assert metrics["average"] == metrics["best"] == metrics["pooled"]
    assert total(metrics["pooled"]) == 0


@pytest.mark.slow
def test_several_series_of_a_party_are_never_joined_end_to_start():
    parties, truth = federated_dynamic(4, 240, 60, order=2, seed=3)
    as_one = of_series([parties], truth)
    each = of_series(parties, truth)
    assert as_one["pooled"] == each["pooled"] == as_one["best"]


def test_sparsity_and_threshold_reach_the_solver():
    parties, truth = federated_dynamic(4, 200, 2, seed=0)
    for options in ({"sparsity": 100.0}, {"threshold": 10.0}):
        metrics = of_series(parties, truth, **options)
        for graph in metrics.values():
            assert (graph["shd"], graph["tpr"], graph["fdr"]) == (truth.num_edges, 0, 0)
            assert (graph["lagged_shd"], graph["lagged_tpr"]) == (truth.num_lagged_edges, 0)


@pytest.mark.slow
def test_the_best_party_is_best_by_both_blocks():
    parties, truth = federated_dynamic(5, 60, 4, seed=1)
    alone = [total(of_series([p], truth)["best"]) for p in parties]
    assert total(of_series(parties, truth)["best"]) == min(alone)
    assert len(set(alone)) > 1
