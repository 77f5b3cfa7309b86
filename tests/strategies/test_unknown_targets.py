"""Moments with ``unknown_targets``: who acts on what, the graph, refusals, reports."""

import numpy as np
import pandas as pd
import pytest
from federations import spy
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

from benchmarks.hard import interventions
from flwr_causal import ConfigError, Run, simulate
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.reports.page.payload import payload_of
from flwr_causal.reports.summary import describe_run
from flwr_causal.strategies import run as run_strategy
from flwr_causal.strategies.moments import Moments

WORLD = interventions(6001, 20, 1000, 5)
TARGETS = {(f"party {k}", *names) for k, names in WORLD.options["interventions"].items()}


def chain(rng, n, acts=()):
    """a -> b -> c, where b and c are categories if they end with 1; some of them are set."""
    a = rng.normal(size=n) + 2.5 * ("a" in acts)
    b = rng.normal(size=n) + (1.5 * a if "b" not in acts else 2.5)
    c = rng.normal(size=n) + (1.5 * b if "c" not in acts else 2.5)
    return pd.DataFrame({"a": a, "b": b, "c": c})


def parties(acts=("", "", "b", ""), n=250, seed=1, like=chain):
    rng = np.random.default_rng(seed)
    return [like(rng, n, own) for own in acts]


def acted(run):
    return {(one["party"], one["variable"]) for one in run.targets}


@pytest.mark.slow
def test_the_targets_of_twenty_variables_and_a_better_graph():
    run = simulate("moments", WORLD.parties, truth=WORLD.truth, unknown_targets=True)
    assert acted(run) == TARGETS
    assert run.rounds == 1
    # What they set has levels of its own, which center="auto" takes out.
    plain = simulate("moments", WORLD.parties, truth=WORLD.truth, center="global")
    known = simulate("moments", WORLD.parties, truth=WORLD.truth, **WORLD.options)
    assert run.metrics["shd"] == known.metrics["shd"] == 0 < plain.metrics["shd"]
    gains = [one["gain"] for one in run.targets]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 100


def test_the_class_is_that_of_known_interventions():
    options = {"solver": "class"}
    run = simulate("moments", parties(), unknown_targets=True, **options)
    assert acted(run) == {("party 2", "b")}
    assert [edge[:3] for edge in run.graph.marked_edges()] == [("a", "->", "b"), ("b", "->", "c")]
    known = simulate("moments", parties(), interventions={2: ["b"]}, **options)
    np.testing.assert_array_equal(run.graph.adjacency, known.graph.adjacency)
    np.testing.assert_allclose(run.graph.weights, known.graph.weights, atol=1e-9)


@pytest.mark.few(2)
@pytest.mark.parametrize("scale", [3.0, 0.3])
@pytest.mark.parametrize("columns", [list("abc"), list("cba"), list("bca")], ids="".join)
def test_changed_noise_directs_edges_of_the_class_as_they_are(scale, columns):
    """A change of a's noise, and of nothing else: b given a, and c given b, are the same."""
    rng = np.random.default_rng(0)
    tables = []
    for k in range(4):
        a, b, c = rng.normal(size=(3, 400))
        a = a * scale if k == 2 else a
        b = b + 1.2 * a
        tables.append(pd.DataFrame({"a": a, "b": b, "c": c + 1.2 * b})[columns])
    run = simulate("moments", tables, unknown_targets=True, solver="class")
    assert acted(run) == {("party 2", "a")}
    assert {edge[:3] for edge in run.graph.marked_edges()} == {("a", "->", "b"), ("b", "->", "c")}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "options",
    [{}, {"solver": "class"}, {"solver": "dagma"}, {"order": 1}, {"model": "curved"}],
    ids=str,
)
def test_nothing_changes_where_no_party_acts(options):
    tables, _ = federated_linear(6, 600, 4, seed=3)
    plain = simulate("moments", tables, **options)
    run = simulate("moments", tables, unknown_targets=True, **options)
    assert run.targets == []
    assert plain.targets is None
    np.testing.assert_array_equal(run.graph.adjacency, plain.graph.adjacency)
    np.testing.assert_allclose(run.graph.weights, plain.graph.weights, atol=1e-8)
    np.testing.assert_allclose(run.scores, plain.scores, atol=1e-8)


def test_order_of_the_parties_and_other_units_do_not_matter():
    tables = parties(("", "b", "", "c"))
    run = simulate("moments", tables, unknown_targets=True)
    assert acted(run) == {("party 1", "b"), ("party 3", "c")}
    turned = [1000 * table + 5 for table in tables[::-1]]
    other = simulate("moments", turned, unknown_targets=True)
    assert acted(other) == {("party 2", "b"), ("party 0", "c")}


def test_categories_beside_numbers():
    def mixed(rng, n, acts):
        table = chain(rng, n, acts)
        return table.assign(b=np.where(table["b"] > 0.5, "high", "low"))

    def effects_of_states(rng, n, acts):
        table = mixed(rng, n, "")
        own = 2.0 * (table["b"] == "high") if "c" not in acts else 3.0
        return table.assign(c=rng.normal(size=n) + own)

    tables = parties(("", "", "c", ""), n=400, like=effects_of_states)
    run = simulate("moments", tables, unknown_targets=True, text_columns="keep")
    assert acted(run) == {("party 2", "c")}
    assert run.graph.adjacency[1, 2]
    assert not run.graph.adjacency[2, 1]


def test_series_with_lags():
    def steps(rng, n, acts):
        rows = np.zeros((n, 3))
        for t in range(1, n):
            a = 0.5 * rows[t - 1, 0] + rng.normal()
            b = 0.8 * rows[t - 1, 0] + rng.normal() if "b" not in acts else 3 + rng.normal()
            rows[t] = a, b, 1.2 * b + rng.normal()
        return pd.DataFrame(rows[5:], columns=list("abc"))

    tables = parties(like=steps, n=300)
    run = simulate("moments", tables, unknown_targets=True, order=1)
    assert acted(run) == {("party 2", "b")}
    assert run.graph.lagged[0, 0, 1] == pytest.approx(0.8, abs=0.15)
    assert run.graph.weights[1, 2] == pytest.approx(1.2, abs=0.1)


def test_groups_that_add_up_securely_are_compared():
    # With this seed they are a group.
    together = ("party 3", "party 5", "party 7")
    tables = parties(["b" if f"party {k}" in together else "" for k in range(12)], n=80)
    options = {"secure_aggregation": True, "groups": 4, "seed": 2}
    run = simulate("moments", tables, unknown_targets=True, **options)
    ((group, variable),) = acted(run)
    assert variable == "b"
    assert tuple(run.groups[group]) == together
    # Sums of groups are those of their rows.
    pooled = [pd.concat([tables[int(name[6:])] for name in own]) for own in run.groups.values()]
    open_run = simulate("moments", pooled, unknown_targets=True)
    np.testing.assert_allclose(run.graph.weights, open_run.graph.weights, atol=1e-6)
    assert run.targets[0]["gain"] == pytest.approx(open_run.targets[0]["gain"], rel=1e-6)


def test_replicates_say_how_often_a_target_is_found():
    run = simulate("moments", parties(), unknown_targets=True, replicates=4)
    assert [one["confidence"] for one in run.targets] == [1.0]
    assert run.graph.confidence[0, 1] == 1
    assert any("100% of replicates" in line for line in describe_run(run))


def test_a_run_is_shown_saved_and_resumed(tmp_path):
    options = {"unknown_targets": True, "output_dir": str(tmp_path)}
    run = simulate("moments", parties(), **options)
    loaded = Run.load(tmp_path)
    assert loaded.targets == run.targets
    assert loaded.targets[0].keys() == {"party", "variable", "gain", "causes"}
    assert simulate("moments", parties(), resume=True, **options).targets == run.targets
    assert any("party 2 acts on b" in line for line in describe_run(run))
    assert "Targets: 1, of 1 parties" in str(run)
    (section,) = [one for one in payload_of(run)["sections"] if one["id"] == "parties"]
    (table,) = [one for one in section["blocks"] if one.get("caption") == "What parties act on"]
    assert table["rows"][0][:2] == ["party 2", "b"]
    none = simulate("moments", parties(("", "", "")), unknown_targets=True)
    assert "No party acts on a variable" in describe_run(none)


def test_what_leaves_a_party_is_one_array_of_products():
    method = Moments(unknown_targets=True, min_available_nodes=4)
    assert [exchange.name for exchange in method._exchanges] == ["sums by party"]
    (item,) = method._exchanges[0].returns
    assert (item.name, item.shape, item.combine) == ("moments", ("s", "s"), "mean")


def test_of_two_parties_it_is_open_which_one_acts():
    run = simulate("moments", parties(("", "b")), unknown_targets=True)
    assert {one["variable"] for one in run.targets} == {"b"}
    assert any("it is not known which of the two acts" in text for text in run.warnings)


def test_one_party_is_refused():
    with pytest.raises(ConfigError, match="'unknown_targets' is True, and party 0 is the only"):
        simulate("moments", parties(("",)), unknown_targets=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"interventions": {1: ["a"]}}, "interventions"),
        ({"intervention_column": "on"}, "intervention_column"),
        ({"hidden_causes": True}, "hidden_causes"),
        ({"missing_values": "em"}, "missing_values"),
        ({"epsilon": 1.0, "delta": 1e-5}, "epsilon"),
        ({"center": "party"}, "center"),
        ({"aggregation": "median"}, "aggregation"),
        ({"model": "additive"}, "model"),
        ({"sparsity": "held-out"}, "sparsity"),
        ({"secure_aggregation": True}, "unknown_targets"),
        ({"text_columns": "keep", "parameters": "likelihood"}, "parameters"),
        ({"order": 1, "instantaneous": "auto"}, "instantaneous"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_name(options, said):
    with pytest.raises(ConfigError, match=said):
        simulate("moments", parties(), unknown_targets=True, **options)


def test_a_privacy_wrapper_is_refused():
    method = Moments(unknown_targets=True, min_available_nodes=4)
    wrapped = DifferentialPrivacyServerSideFixedClipping(method, 1.0, 1.0, 4)
    with pytest.raises(ConfigError, match="clips"):
        run_strategy(method, spy(parties()), strategy=wrapped)


def test_parties_of_different_columns_are_refused():
    tables = [
        table[columns].assign(row=[f"p{i}" for i in range(len(table))])
        for table, columns in zip(parties(("", "")), (["a", "b"], ["c"]), strict=True)
    ]
    with pytest.raises(ConfigError, match="unknown_targets"):
        simulate("moments", tables, unknown_targets=True, row_id="row")
