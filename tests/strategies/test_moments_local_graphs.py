"""Moments with ``local_graphs``: each party's own graph beside the common one."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal import ConfigError, Knowledge, Run, simulate
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.reports.summary import describe_run

COMMON = [("a", "b"), ("b", "c"), ("c", "d")]


def rows(rng, n, weights):
    """Rows of a linear system of a, b, c and d with these weights, by pair of names."""
    matrix = np.zeros((4, 4))
    for (cause, effect), weight in weights.items():
        matrix["abcd".index(cause), "abcd".index(effect)] = weight
    noise = rng.normal(size=(n, 4))
    return pd.DataFrame(np.linalg.solve((np.eye(4) - matrix).T, noise.T).T, columns=list("abcd"))


def parties(seed=0, n=200, **unlike):
    rng = np.random.default_rng(seed)
    usual = dict.fromkeys(COMMON, 1.2)
    return [rows(rng, n, {**usual, **dict(unlike.get(f"party_{k}", []))}) for k in range(5)]


def pairs(graph):
    return [edge[:2] for edge in graph.edges()]


def unlike(run):
    table = run.heterogeneity
    return [
        (row["party"], row["cause"], row["effect"], row["own"])
        for row in table[table["own"] != "same"].to_dict("records")
    ]


def test_an_edge_that_one_party_lacks_and_one_that_only_one_has():
    tables = parties(n=600, party_1=[(("b", "c"), 0.0)], party_3=[(("a", "d"), 0.45)])
    run = simulate("moments", tables, local_graphs=True)
    assert run.rounds == 1
    assert sorted(pairs(run.graph)) == COMMON
    assert unlike(run) == [
        ("party 1", "b", "c", "absent"),
        ("party 3", "a", "d", "additional"),
    ]
    assert sorted(pairs(run.local_graphs["party 1"])) == [COMMON[0], COMMON[2]]
    assert sorted(pairs(run.local_graphs["party 3"])) == [("a", "b"), ("a", "d"), *COMMON[1:]]
    table = run.heterogeneity
    assert (table[table["own"] != "same"]["disagreement"] > 0).all()
    assert (table[table["own"] == "same"]["support"] > 20).all()
    # Effects of a party are those of its own rows.
    design = np.column_stack([np.ones(600), tables[0]["a"]])
    expected = np.linalg.lstsq(design, tables[0]["b"], rcond=None)[0][1]
    assert run.local_graphs["party 0"].weights[0, 1] == pytest.approx(expected)


def test_the_common_graph_is_that_without_the_option():
    tables = parties(party_1=[(("b", "c"), 0.0)])
    run = simulate("moments", tables, local_graphs=True)
    plain = simulate("moments", tables)
    np.testing.assert_allclose(run.graph.weights, plain.graph.weights, atol=1e-9)
    assert plain.local_graphs == {}


def test_graphs_differ_beyond_sampling_error_only():
    differ = 0
    for seed in range(20):
        tables, _ = federated_linear(10, 800, 5, seed=seed)
        run = simulate("moments", tables, local_graphs=True)
        differ += len({row[0] for row in unlike(run)})
    # Of 100 parties, 5 % would be 5.
    assert differ <= 2


def test_with_unknown_targets_a_variable_that_is_set_has_no_causes_there():
    tables = parties(n=250)
    tables[2]["c"] = 3 + np.random.default_rng(9).normal(size=250)
    tables[2]["d"] = 1.2 * tables[2]["c"] + np.random.default_rng(10).normal(size=250)
    run = simulate("moments", tables, local_graphs=True, unknown_targets=True)
    assert [(one["party"], one["variable"]) for one in run.targets] == [("party 2", "c")]
    assert unlike(run) == [("party 2", "b", "c", "absent")]


def test_groups_that_add_up_securely_have_graphs():
    tables = parties() + parties(seed=1)
    options = {"secure_aggregation": True, "groups": "auto"}
    run = simulate("moments", tables, local_graphs=True, **options)
    assert list(run.local_graphs) == list(run.groups)
    with pytest.raises(ConfigError, match="local_graphs"):
        simulate("moments", tables, local_graphs=True, secure_aggregation=True)


def test_a_run_is_shown_saved_and_resumed_and_has_replicates(tmp_path):
    tables = parties(party_1=[(("b", "c"), 0.0)])
    options = {"local_graphs": True, "replicates": 3, "output_dir": str(tmp_path)}
    run = simulate("moments", tables, **options)
    assert run.graph.confidence is not None
    loaded = Run.load(tmp_path)
    assert loaded.local_graphs["party 1"].equals(run.local_graphs["party 1"])
    pd.testing.assert_frame_equal(loaded.heterogeneity, run.heterogeneity)
    assert loaded.targets is None
    again = simulate("moments", tables, resume=True, **options)
    assert again.local_graphs["party 1"].equals(run.local_graphs["party 1"])
    assert any("without b -> c" in line for line in describe_run(run))


def test_knowledge_is_kept():
    tables = parties(party_1=[(("b", "c"), 0.0)], party_3=[(("a", "d"), 1.0)])
    known = Knowledge(required=[("b", "c")], forbidden=[("a", "d")])
    run = simulate("moments", tables, local_graphs=True, knowledge=known)
    for graph in run.local_graphs.values():
        assert ("b", "c") in pairs(graph)
        assert ("a", "d") not in pairs(graph)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"solver": "class"}, "solver"),
        ({"text_columns": "keep"}, "text_columns"),
        ({"model": "curved"}, "model"),
        ({"order": 1}, "order"),
        ({"missing_values": "em"}, "missing_values"),
        ({"epsilon": 1.0, "delta": 1e-5}, "epsilon"),
        ({"hidden_causes": True}, "hidden_causes"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_name(options, said):
    with pytest.raises(ConfigError, match=said):
        simulate("moments", parties(), local_graphs=True, **options)


def test_one_party_is_refused():
    with pytest.raises(ConfigError, match="'local_graphs' is True, and party 0 is the only"):
        simulate("moments", parties()[:1], local_graphs=True)
