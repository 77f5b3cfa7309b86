"""Moments with ``local_graphs``: each party's own graph beside the common one."""

import numpy as np
import pandas as pd
import pytest
from sweeps import sweep
from worlds_of_blocks import differing_tables

from flwr_causal import ConfigError, Knowledge, Run, simulate
from flwr_causal.core.blocks.search import block_search
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


@pytest.mark.slow
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


def test_one_party_is_refused():
    with pytest.raises(ConfigError, match="'local_graphs' is True, and party 0 is the only"):
        simulate("moments", parties()[:1], local_graphs=True)


def mixed(rng, n, lacks=False, states=("u", "v")):
    """a -> b -> c -> d, where b and d are categories; e is alone."""
    a, e = rng.normal(size=(2, n))
    b = np.where(1.5 * a + rng.logistic(size=n) > 0, "high", "low")
    c = rng.normal(size=n) + (0.0 if lacks else 1.5 * (b == "high"))
    d = np.where(1.5 * c + rng.logistic(size=n) > 0.5, *states)
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": d, "e": e})


def steps(rng, n, lacks=False):
    """a[t-1] -> a, a[t-1] -> b -> c."""
    rows = np.zeros((n + 5, 3))
    for t in range(1, n + 5):
        a = 0.5 * rows[t - 1, 0] + rng.normal()
        b = (0.0 if lacks else 0.9) * rows[t - 1, 0] + rng.normal()
        rows[t] = a, b, 1.2 * b + rng.normal()
    return pd.DataFrame(rows[5:], columns=list("abc"))


def chain(rng, n, lacks=False):
    return rows(rng, n, {**dict.fromkeys(COMMON, 1.2), ("b", "c"): 0.0 if lacks else 1.2})


KINDS = {
    "class": (chain, {"solver": "class"}, ("b", "c")),
    "ges": (chain, {"solver": "ges"}, ("b", "c")),
    "mixed": (mixed, {"text_columns": "keep"}, ("b", "c")),
    "curved": (chain, {"model": "curved"}, ("b", "c")),
    "order": (steps, {"order": 1}, ("a[t-1]", "b")),
    "order, class": (steps, {"order": 1, "solver": "class"}, ("a[t-1]", "b")),
    "order, curved": (steps, {"order": 1, "model": "curved"}, ("a[t-1]", "b")),
    "order, dagma": (steps, {"order": 1, "solver": "dagma"}, ("a[t-1]", "b")),
}


def tables_of(make, count=5, lacks=None, n=300, seed=0):
    rng = np.random.default_rng(seed)
    return [make(rng, n, k == lacks) for k in range(count)]


def same_edges(one, other):
    lagged = [None if graph.lagged is None else graph.lagged != 0 for graph in (one, other)]
    assert one.kind == other.kind
    np.testing.assert_array_equal(one.adjacency, other.adjacency)
    np.testing.assert_array_equal(*lagged)


@pytest.mark.parametrize("kind", sweep(KINDS, kept=["ges", "mixed", "order, curved"]))
def test_parties_that_are_alike_have_the_common_graph(kind):
    make, options, _ = KINDS[kind]
    tables = tables_of(make)
    run = simulate("moments", tables, local_graphs=True, **options)
    plain = simulate("moments", tables, **options)
    same_edges(run.graph, plain.graph)
    np.testing.assert_allclose(run.graph.weights, plain.graph.weights, atol=1e-7)
    assert run.rounds == 1
    assert unlike(run) == []
    assert len(run.local_graphs) == 5
    for graph in run.local_graphs.values():
        same_edges(graph, run.graph)


@pytest.mark.parametrize("kind", KINDS)
def test_the_party_that_lacks_an_edge_is_found(kind):
    make, options, edge = KINDS[kind]
    tables = tables_of(make, lacks=2)
    run = simulate("moments", tables, local_graphs=True, **options)
    ((party, *pair, own),) = unlike(run)
    assert (party, own) == ("party 2", "absent")
    assert set(pair) == set(edge)
    table = run.heterogeneity
    assert table[table["own"] == "absent"]["support"].max() < -10
    assert table[table["own"] == "same"]["support"].min() > 10
    for name, graph in run.local_graphs.items():
        if name != "party 2":
            same_edges(graph, run.graph)


@pytest.mark.parametrize("kind", ["class", "mixed", "order, class"])
def test_neither_the_order_of_the_parties_nor_that_of_the_columns_matters(kind):
    make, options, _ = KINDS[kind]
    tables = tables_of(make, lacks=1)
    run = simulate("moments", tables, local_graphs=True, **options)
    turned = [table[table.columns[::-1]] for table in tables[::-1]]
    other = simulate("moments", turned, local_graphs=True, **options)
    for k in range(5):
        one, same = run.local_graphs[f"party {k}"], other.local_graphs[f"party {4 - k}"]
        np.testing.assert_array_equal(one.adjacency, same.adjacency[::-1, ::-1])
        np.testing.assert_allclose(one.weights, same.weights[::-1, ::-1], atol=1e-7)
    first, second = (
        table.sort_values(["party", "cause", "effect"]).reset_index(drop=True)
        for table in (
            run.heterogeneity,
            other.heterogeneity.assign(
                party=other.heterogeneity["party"].map(lambda name: f"party {4 - int(name[6:])}")
            ),
        )
    )
    pd.testing.assert_frame_equal(first, second, atol=1e-6)


@pytest.mark.parametrize("kind", sweep(["class", "mixed", "order"], kept=["mixed"]))
def test_groups_resume_replicates_and_files(kind, tmp_path):
    make, options, _ = KINDS[kind]
    tables = tables_of(make, count=10, n=150)
    secure = {"secure_aggregation": True, "groups": "auto", **options}
    run = simulate("moments", tables, local_graphs=True, **secure)
    assert list(run.local_graphs) == list(run.groups)
    kept = {"replicates": 2, "output_dir": str(tmp_path), "local_graphs": True, **options}
    run = simulate("moments", tables[:5], **kept)
    loaded = Run.load(tmp_path)
    again = simulate("moments", tables[:5], resume=True, **kept)
    for name, graph in run.local_graphs.items():
        assert loaded.local_graphs[name].equals(graph)
        assert again.local_graphs[name].equals(graph)
    pd.testing.assert_frame_equal(loaded.heterogeneity, run.heterogeneity)
    assert run.graph.confidence is not None


def test_a_party_may_lack_states_and_hold_constant_columns():
    rng = np.random.default_rng(5)
    tables = [mixed(rng, 300, states=("u", "v")) for _ in range(4)]
    tables[0].loc[:9, "d"] = "w"
    tables[3] = tables[3].assign(e=1.0, d="u")
    run = simulate("moments", tables, local_graphs=True, text_columns="keep")
    assert np.isfinite(run.heterogeneity["support"]).all()
    assert np.isfinite(run.heterogeneity["strength"]).all()
    assert not run.local_graphs["party 3"].adjacency[:, 4].any()


@pytest.mark.parametrize("options", [{}, {"solver": "class"}, {"model": "curved"}])
def test_rows_in_which_a_cause_is_constant_say_nothing_of_its_effects(options):
    """Sums of functions of a constant number are constant up to rounding only."""
    rng = np.random.default_rng(0)
    tables = parties(n=400)
    fixed = rng.normal(size=(3, 400))
    tables[2] = pd.DataFrame(
        {
            "a": 1.0,
            "b": (b := 1.2 + fixed[0]),
            "c": (c := 1.2 * b + fixed[1]),
            "d": 1.2 * c + fixed[2],
        }
    )
    run = simulate("moments", tables, local_graphs=True, **options)
    table = run.heterogeneity
    own = table[table["party"] == "party 2"].set_index(["cause", "effect"])
    assert own.loc[[("a", "b")], "support"].tolist() == [0]
    assert own.loc[[("b", "c"), ("c", "d")], "support"].min() > 20


def test_knowledge_is_kept_in_own_classes():
    known = Knowledge(required=[("b", "c")], forbidden=[("d", "a"), ("a", "d")])
    for kind in ("class", "mixed"):
        make, options, _ = KINDS[kind]
        tables = tables_of(make, lacks=1)
        run = simulate("moments", tables, local_graphs=True, knowledge=known, **options)
        for graph in run.local_graphs.values():
            assert graph.adjacency[1, 2]
            assert not graph.adjacency[2, 1]


def test_a_changed_mechanism_of_a_class_leaves_the_others_alone():
    """Another noise of b changes neither skeleton nor the common class, whatever its member."""
    rng = np.random.default_rng(1)
    tables = tables_of(chain)
    noisy = rng.normal(size=(4, 300))
    tables[3] = pd.DataFrame(
        {
            "a": noisy[0],
            "b": (b := 1.2 * noisy[0] + 0.4 * noisy[1]),
            "c": (c := 1.2 * b + noisy[2]),
            "d": 1.2 * c + noisy[3],
        }
    )
    run = simulate("moments", tables, local_graphs=True, solver="class")
    assert unlike(run) == []


def distance(marks, dag):
    """Pairs that are adjacent in one of a class and a DAG."""
    return int(np.triu((marks | marks.T) != (dag | dag.T)).sum())


@pytest.mark.nightly
def test_own_graphs_of_mixed_tables_are_nearer_than_the_common_one_and_never_differ_falsely():
    errors, falsely = {"own": 0, "common": 0, "alone": 0}, 0
    for seed in range(9100, 9112):
        tables, graphs = differing_tables(seed)
        run = simulate("moments", tables, local_graphs=True, text_columns="keep")
        for k, (table, graph) in enumerate(zip(tables, graphs, strict=True)):
            own = run.local_graphs[f"party {k}"].adjacency
            alone = block_search(table, least_effect=0.1).adjacency
            if np.array_equal(graph, graphs[0]):
                falsely += not np.array_equal(own, run.graph.adjacency)
                continue
            found = {"own": own, "common": run.graph.adjacency, "alone": alone}
            for name, marks in found.items():
                errors[name] += distance(marks, graph)
    assert falsely <= 1
    assert errors["own"] < 0.85 * errors["common"]
    assert errors["own"] < errors["alone"]
