"""Moments under known interventions: how they are stated, what is sent, what is refused."""

import numpy as np
import pandas as pd
import pytest
from federations import app_of

from flwr_causal.errors import ConfigError, DataError
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.strategies import Moments, run

WEIGHTS = np.array([[0, 0.9, 0.0], [0, 0, -0.8], [0, 0, 0]])


def rows(n, seed, targets=()):
    noise = np.random.default_rng(seed).normal(size=(n, 3))
    weights = WEIGHTS.copy()
    weights[:, list(targets)] = 0.0
    level = np.array([1.0 * (j in targets) for j in range(3)])
    return pd.DataFrame((noise + level) @ np.linalg.inv(np.eye(3) - weights), columns=list("abc"))


OBSERVED, ON_A, ON_B = rows(300, 0), rows(200, 1, (0,)), rows(250, 2, (1,))
PARTIES = [OBSERVED, ON_A, ON_B]
STATED = {1: ["a"], "party 2": ["b"]}


def found(parties=PARTIES, **options):
    return simulate("moments", parties, solver="ges", **options)


def same(one, two):
    assert np.array_equal(one.graph.adjacency, two.graph.adjacency)
    np.testing.assert_allclose(one.graph.weights, two.graph.weights, atol=1e-9)
    np.testing.assert_allclose(one.model.intercepts, two.model.intercepts, atol=1e-9)
    np.testing.assert_allclose(one.model.noise_variances, two.model.noise_variances, atol=1e-9)


@pytest.fixture(scope="module")
def stated():
    return found(interventions=STATED)


def test_interventions_direct_a_chain(stated):
    assert not np.array_equal(found([OBSERVED]).graph.adjacency, WEIGHTS != 0)
    assert np.array_equal(stated.graph.adjacency, WEIGHTS != 0)
    np.testing.assert_allclose(stated.graph.weights, WEIGHTS, atol=0.15)
    np.testing.assert_allclose(stated.model.weights, stated.graph.weights, atol=1e-9)
    assert stated.rounds == 1
    assert stated.history[0]["target sets"] == 3
    assert not stated.warnings
    assert not stated.influence


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "order"},
        {"solver": "dagma"},
        pytest.param({"solver": "notears"}, marks=pytest.mark.slow),
        pytest.param({"solver": "dagma", "sparsity": "bic"}, marks=pytest.mark.slow),
    ],
)
def test_solvers_of_dags_use_them_too(stated, options):
    naive = simulate("moments", PARTIES, **options)
    options = {**options, "interventions": STATED}
    searched = simulate("moments", PARTIES, **options)
    same(searched, stated)
    assert searched.graph.kind == "dag"
    assert searched.history[0]["target sets"] == 3
    np.testing.assert_allclose(searched.graph.weights, searched.model.weights, atol=1e-9)
    mixed = pd.concat([OBSERVED.assign(on=""), ON_A.assign(on="a"), ON_B.assign(on="b")])
    parts = [mixed.iloc[::2], mixed.iloc[1::2]]
    marked = {**options, "interventions": None, "intervention_column": "on"}
    same(simulate("moments", parts, **marked), searched)
    # The model is in the units of the data, the graph in standard deviations.
    standardised = simulate("moments", PARTIES, standardize=True, **options)
    same_model = standardised.model
    np.testing.assert_allclose(same_model.weights, stated.model.weights, atol=1e-9)
    # Where all rows are taken to be observed, what was set seems to have causes.
    assert not np.allclose(naive.model.weights, stated.model.weights, atol=0.02)


def test_a_column_that_an_intervention_held_fixed():
    fixed = ON_A.assign(a=2.0)
    for solver in ("ges", "order"):
        found = simulate("moments", [OBSERVED, fixed], solver=solver, interventions={1: ["a"]})
        assert found.graph.adjacency[0, 1]
        assert not found.graph.adjacency[1, 0]


def test_columns_rows_and_nodes_state_the_same(stated):
    marked = [
        OBSERVED.assign(on=np.nan),
        ON_A.assign(on="a"),
        ON_B.assign(on=" b "),
    ]
    same(found(marked, intervention_column="on"), stated)
    mixed = pd.concat(marked).sample(frac=1.0, random_state=1)
    parts = [mixed.iloc[:100], mixed.iloc[100:500], mixed.iloc[500:]]
    same(found(parts, intervention_column="on"), stated)
    same(found([mixed], intervention_column="on"), stated)
    same(found(interventions='{"party 1": ["a"], "party 2": ["b"]}'), stated)
    same(
        found(
            [*marked[:2], ON_B.assign(on="")], intervention_column="on", interventions={2: ["b"]}
        ),
        stated,
    )


def run_on_nodes(strategy, *stated_by_nodes):
    configs = [
        {"partition-id": k, "num-partitions": 3} | ({"interventions": text} if text else {})
        for k, text in enumerate(stated_by_nodes)
    ]
    return run(strategy, LocalGrid(app_of(PARTIES), 3, node_configs=configs))


def test_nodes_state_the_targets_of_their_own_rows(stated):
    same(run_on_nodes(Moments(solver="ges"), "", "a", "b"), stated)
    same(run_on_nodes(Moments(solver="ges", interventions={"party 1": ["a"]}), "", "", "b"), stated)
    # The default solver uses them too.
    default = simulate("moments", PARTIES, interventions={1: ["a"], 2: ["b"]})
    same(run_on_nodes(Moments(), "", "a", "b"), default)
    same(simulate("moments", PARTIES, solver="order", interventions=STATED), default)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (Moments(aggregation="median"), "set aggregation='mean'"),
        (Moments(solver="ges", center="party"), "center='auto' or 'global'"),
    ],
)
def test_a_method_that_does_not_use_what_nodes_state_refuses_it(strategy, message):
    with pytest.raises((ConfigError, DataError), match=message):
        run_on_nodes(strategy, "", "a", "")


def test_two_targets_of_a_row():
    both = rows(300, 5, (0, 1)).assign(on="b; a")
    result = found([OBSERVED.assign(on=None), both], intervention_column="on")
    assert result.history[0]["target sets"] == 2
    # a and b are never told apart: their edge stays open.
    assert result.graph.adjacency[[0, 1, 1], [1, 0, 2]].all()
    assert not result.graph.adjacency[2, 1]


def test_rows_with_missing_values_lose_their_targets_too(stated):
    holes = [table.copy() for table in PARTIES]
    extra = pd.DataFrame({"a": [np.nan, 1.0], "b": [5.0, np.inf], "c": [1.0, 2.0]})
    marked = [
        pd.concat([table.assign(on=on), extra.assign(on="c")], ignore_index=True)
        for table, on in zip(holes, ("", "a", "b"), strict=True)
    ]
    result = found(marked, intervention_column="on", missing_values="drop")
    same(result, stated)
    assert result.history[0]["target sets"] == 3


def test_standardising_changes_units_alone(stated):
    result = found(interventions=STATED, standardize=True)
    assert np.array_equal(result.graph.adjacency, stated.graph.adjacency)
    np.testing.assert_allclose(result.model.weights, stated.model.weights, atol=1e-9)
    np.testing.assert_allclose(result.model.intercepts, stated.model.intercepts, atol=1e-9)


@pytest.mark.parametrize(
    ("method", "options", "error", "message"),
    [
        (
            "moments",
            {"solver": "dagma", "interventions": STATED, "sparsity": "held-out"},
            ConfigError,
            "'sparsity'.*'auto', 'bic' or a number with interventions",
        ),
        (
            "moments",
            {"model": "additive", "intervention_column": "on"},
            ConfigError,
            "'model'.*must be 'linear' or 'curved' with interventions",
        ),
        ("ges", {"interventions": {7: ["a"]}}, ConfigError, "'party 7'; there are party 0"),
        ("ges", {"interventions": {1: ["z"]}}, DataError, "party 1: 'z' is stated"),
        ("ges", {"interventions": {1: "a"}}, ConfigError, "lists of columns"),
        ("ges", {"interventions": {1: [3]}}, ConfigError, "lists of columns"),
        ("ges", {"interventions": "party 1"}, ConfigError, "must be a mapping"),
        ("ges", {"interventions": {0: ["a"], 1: ["a"], 2: ["a"]}}, DataError, "'a' is the target"),
        ("ges", {"intervention_column": "on"}, DataError, "no column 'on'"),
        ("ges", {"interventions": STATED, "center": "party"}, ConfigError, "'center'"),
        (
            "moments",
            {"interventions": STATED, "order": 1, "solver": "dagma"},
            ConfigError,
            "'order' is 1; it must be 0 with the solvers 'dagma' and 'notears' with interventions",
        ),
        ("ges", {"interventions": STATED, "aggregation": "median"}, ConfigError, "'aggregation'"),
    ],
)
def test_what_cannot_be_used_is_refused(method, options, error, message):
    solver = {"solver": "ges"} if method == "ges" else {}
    with pytest.raises(error, match=message):
        simulate("moments" if solver else method, PARTIES, **solver, **options)


def test_possible_effects_are_those_of_the_dags_that_the_interventions_leave_open():
    """a -> b -> c -> d with rows in which d was set: c -> d is decided, a - b - c is open."""
    names, size = list("abcd"), 4000
    weights = np.zeros((4, 4))
    weights[0, 1], weights[1, 2], weights[2, 3] = 0.9, -0.8, 0.7

    def table(seed, target=None):
        own = weights.copy()
        if target is not None:
            own[:, target] = 0.0
        noise = np.random.default_rng(seed).normal(size=(size, 4))
        return pd.DataFrame(noise @ np.linalg.inv(np.eye(4) - own), columns=names)

    parties = [table(0), table(1, 3), table(2)]
    model = simulate("moments", parties, solver="class", interventions={1: ["d"]}).model
    open_edges = model.marks & model.marks.T
    assert open_edges.sum() == 4
    total = np.linalg.inv(np.eye(4) - weights)
    found = {}
    for cause, effect in (("a", "c"), ("a", "d"), ("c", "a"), ("c", "d"), ("d", "a")):
        effects = model.total_effect(cause, effect)
        assert effects == model.possible_effects(cause, effect)
        found[cause, effect] = [one.value for one in effects]
    # a has no parent, or b; c has d for no parent.
    np.testing.assert_allclose(found["a", "c"], [total[0, 2], 0.0], atol=0.05)
    np.testing.assert_allclose(found["a", "d"], [total[0, 3], 0.0], atol=0.05)
    assert sorted(np.round(found["c", "d"], 1)) == [0.7, 0.7]
    assert found["d", "a"] == [0.0]
    intervals = model.possible_effects("a", "d")[0].interval
    assert intervals[0] < total[0, 3] < intervals[1]
    assert model.possible_effects("c", "a")[0].value == pytest.approx(
        np.cov(parties[0]["a"], parties[0]["c"])[0, 1] / parties[0]["c"].var(), abs=0.06
    )


def quieter(n, seed, target):
    """Rows in which a variable has less noise, and its causes still act."""
    noise = np.random.default_rng(seed).normal(size=(n, 3))
    noise[:, target] *= 0.3
    return pd.DataFrame(noise @ np.linalg.inv(np.eye(3) - WEIGHTS), columns=list("abc"))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"solver": "class"},
        {"solver": "ges"},
        {"solver": "dagma"},
        {"model": "curved"},
    ],
    ids=str,
)
def test_rows_whose_causes_still_act_count_and_are_named(options):
    parties = [OBSERVED, quieter(300, 5, 1), quieter(300, 6, 2)]
    run = simulate("moments", parties, interventions={1: ["b"], 2: ["c"]}, **options)
    # These rows direct no edge: a class has both directions, where no curve excludes one.
    right, either = WEIGHTS != 0, (WEIGHTS != 0) | (WEIGHTS != 0).T
    assert np.array_equal(
        run.graph.adjacency, either if "class" in str(options) or "ges" in str(options) else right
    )
    assert run.history[-1]["kept targets"] == 2
    assert any("causes of b, c still act" in warning for warning in run.warnings)
    if run.graph.kind == "dag":
        # The noise is that of all rows that count.
        assert run.model.noise_variances[1] < 0.8
