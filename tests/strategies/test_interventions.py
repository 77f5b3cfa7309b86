"""Known interventions in NOTEARS-ADMM and 2Dbn: which rows each variable is fitted to."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from federations import app_of
from sweeps import sweep

from flwr_causal.errors import ConfigError, DataError
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.strategies import Lingam, Moments, NotearsADMM, run

NAMES = list("abc")
WEIGHTS = np.array([[0, 0.9, 0.0], [0, 0, -0.8], [0, 0, 0]])
LAGGED = np.diag([0.4, 0.3, 0.3])
STATED = {1: ["a"], "party 2": ["b", "c"]}


def rows(n, seed, targets=(), level=2.0):
    """A chain whose intercepts are 1; targets are set to another level, by noise of their own."""
    noise = np.random.default_rng(seed).normal(size=(n, 3)) + 1.0
    weights = WEIGHTS.copy()
    weights[:, list(targets)] = 0.0
    noise[:, list(targets)] += level
    return pd.DataFrame(noise @ np.linalg.inv(np.eye(3) - weights), columns=NAMES)


def series(length, seed, targets=(), level=2.0):
    """The same chain at each step, with an effect of each variable on its own next value."""
    noise = np.random.default_rng(seed).normal(size=(length, 3)) + 1.0
    weights, lagged = WEIGHTS.copy(), LAGGED.copy()
    weights[:, list(targets)] = lagged[:, list(targets)] = 0.0
    noise[:, list(targets)] += level
    values = np.zeros((length, 3))
    for t in range(1, length):
        values[t] = (values[t - 1] @ lagged + noise[t]) @ np.linalg.inv(np.eye(3) - weights)
    return pd.DataFrame(values, columns=NAMES)


PARTIES = [rows(150, 0), rows(120, 1, (0,)), rows(130, 2, (1, 2), level=-3.0)]
SERIES = [series(200, 0), series(150, 1, (0,)), series(160, 2, (1, 2), level=-3.0)]


def marked(tables, targets=((), ("a",), ("c", "b"))):
    """The tables, with a column of targets."""
    pairs = zip(tables, targets, strict=True)
    return [table.assign(on=",".join(own) or np.nan) for table, own in pairs]


def same(one, other, atol=1e-9):
    assert np.array_equal(one.graph.adjacency, other.graph.adjacency)
    for name in ("weights", "intercepts", "noise_variances"):
        np.testing.assert_allclose(
            getattr(one.model, name), getattr(other.model, name), atol=atol, err_msg=name
        )


def regressions(designs, adjacency, targets):
    """Least squares of each variable on its causes and 1, on the rows in which it is no target."""
    stacked, intercepts, noise = np.zeros(adjacency.shape), np.zeros(3), np.zeros(3)
    for j, name in enumerate(NAMES):
        own = np.concatenate([x for x, on in zip(designs, targets, strict=True) if name not in on])
        causes = np.flatnonzero(adjacency[:, j])
        design = np.column_stack([own[:, causes], np.ones(len(own))])
        solution = np.linalg.lstsq(design, own[:, j], rcond=None)[0]
        stacked[causes, j], intercepts[j] = solution[:-1], solution[-1]
        noise[j] = np.mean((own[:, j] - design @ solution) ** 2)
    return stacked, intercepts, noise


def check_model(model, designs, stacked, targets=((), ("a",), ("b", "c"))):
    expected = regressions(designs, stacked != 0, targets)
    found = stacked, model.intercepts, model.noise_variances
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


@pytest.fixture(scope="module")
def stated():
    return simulate("notears-admm", PARTIES, interventions=STATED)


OF_SERIES = {
    "2dbn": {},
    "moments": {"order": 1, "solver": "order"},
    "class": {"order": 1, "solver": "ges"},
}


def of_series(name, parties=SERIES, **options):
    method = "2dbn" if name == "2dbn" else "moments"
    return simulate(method, parties, **OF_SERIES[name], **options)


@pytest.fixture(scope="module", params=OF_SERIES)
def stated_series(request):
    return request.param, of_series(request.param, interventions=STATED)


def test_admm_fits_each_variable_to_the_rows_in_which_it_is_no_target(stated):
    assert np.array_equal(stated.graph.adjacency, WEIGHTS != 0)
    check_model(stated.model, [table.to_numpy() for table in PARTIES], stated.graph.weights)
    np.testing.assert_allclose(stated.model.intercepts, 1.0, atol=0.3)
    assert not stated.warnings
    # The same rows, all taken to be observed, give other mechanisms.
    naive = simulate("notears-admm", PARTIES)
    assert not np.array_equal(naive.graph.adjacency, WEIGHTS != 0)


@pytest.mark.parametrize(
    "options",
    sweep(
        [{}, {"search": False}, {"search": False, "refit": False}, {"sparsity": "bic"}],
        kept=[{}, {"search": False, "refit": False}],
    ),
    ids=str,
)
def test_the_rounds_alone_find_the_chain(options):
    found = simulate("notears-admm", PARTIES, interventions=STATED, **options).graph
    assert np.array_equal(found.adjacency, WEIGHTS != 0)
    np.testing.assert_allclose(found.weights, WEIGHTS, atol=0.2)
    assert found.raw_weights.shape == (3, 3)


def test_steps_at_which_a_variable_is_a_target_do_not_count_for_its_causes(stated_series):
    name, found = stated_series
    graph = found.graph
    assert np.array_equal(graph.adjacency, WEIGHTS != 0)
    assert np.array_equal(graph.lagged[0] != 0, LAGGED != 0)
    designs = [np.column_stack([x[1:], x[:-1]]) for x in (one.to_numpy() for one in SERIES)]
    check_model(found.model, designs, np.vstack([graph.weights, graph.lagged[0]]))
    naive = of_series(name)
    assert not np.allclose(naive.graph.weights, graph.weights, atol=0.05)


@pytest.mark.parametrize("name", OF_SERIES)
def test_a_column_states_the_targets_of_each_step(name):
    """The value of a target still is a cause at later steps, also of itself."""
    on = np.array(["", "a", "b; c", ""] * 60)
    values, noise = np.zeros((240, 3)), np.random.default_rng(3).normal(size=(240, 3))
    for t in range(1, 240):
        acted = [NAMES.index(name) for name in on[t].split("; ") if name]
        weights, lagged = WEIGHTS.copy(), LAGGED.copy()
        weights[:, acted] = lagged[:, acted] = 0.0
        noise[t, acted] += 2.0
        values[t] = (values[t - 1] @ lagged + noise[t]) @ np.linalg.inv(np.eye(3) - weights)
    table = pd.DataFrame(values, columns=NAMES).assign(on=on, who="x")
    found = of_series(name, [table], intervention_column="on", series_column="who")
    np.testing.assert_allclose(found.graph.weights, WEIGHTS, atol=0.25)
    np.testing.assert_allclose(found.graph.lagged[0], LAGGED, atol=0.25)
    design = np.column_stack([values[1:], values[:-1]])
    by_set = [design[on[1:] == one] for one in ("", "a", "b; c")]
    check_model(found.model, by_set, np.vstack([found.graph.weights, found.graph.lagged[0]]))


def check_other_statements(run_of, tables, whole):
    same(run_of(marked(tables), intervention_column="on"), whole)
    text = '{"party 1": ["a"], "party 2": ["b", "c"]}'
    same(run_of(tables, interventions=text), whole)
    # The model is in the units of the data.
    same(run_of(tables, interventions=STATED, standardize=True), whole, atol=1e-6)


def test_columns_and_parties_state_the_same(stated):
    check_other_statements(partial(simulate, "notears-admm"), PARTIES, stated)


@pytest.mark.slow
def test_columns_and_parties_state_the_same_of_series(stated_series):
    name, whole = stated_series
    check_other_statements(partial(of_series, name), SERIES, whole)


def test_k_parties_equal_one(stated):
    together = pd.concat(marked(PARTIES))
    same(simulate("notears-admm", [together], intervention_column="on"), stated)
    mixed = together.sample(frac=1.0, random_state=1)
    parts = [mixed.iloc[:100], mixed.iloc[100:130], mixed.iloc[130:]]
    same(simulate("notears-admm", parts, intervention_column="on"), stated)


def test_nodes_state_the_targets_of_their_own_rows(stated):
    configs = [{"partition-id": k, "num-partitions": 3} for k in range(3)]
    configs[1]["interventions"], configs[2]["interventions"] = "a", "b, c"
    same(run(NotearsADMM(), LocalGrid(app_of(PARTIES), 3, node_configs=configs)), stated)
    message = "set sparsity='auto', 'bic' or a number"
    with pytest.raises(ConfigError, match=message):
        run(
            NotearsADMM(sparsity="held-out"),
            LocalGrid(app_of(PARTIES), 3, node_configs=configs),
        )
    with pytest.raises(ConfigError, match="set hidden_causes=False, or take 'interventions' out"):
        run(Moments(hidden_causes=True), LocalGrid(app_of(PARTIES), 3, node_configs=configs))
    with pytest.raises(DataError, match="'lingam' does not use"):
        run(Lingam(), LocalGrid(app_of(PARTIES), 3, node_configs=configs))


@pytest.mark.parametrize("method", ["notears-admm", "2dbn"])
def test_without_targets_nothing_changes(method):
    tables = (PARTIES if method == "notears-admm" else SERIES)[:1]
    plain = simulate(method, tables)
    stated = simulate(method, marked(tables, [()]), intervention_column="on", interventions={})
    assert np.array_equal(plain.graph.weights, stated.graph.weights)
    assert np.array_equal(plain.graph.raw_weights, stated.graph.raw_weights)


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("target", [0, 1])
def test_interventions_reveal_what_observations_of_unequal_noise_hide(target):
    """x -> y with so little noise of y that y seems to cause x."""
    right, naive = 0, 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x, noise = rng.normal(size=200), 0.4 * rng.normal(size=200)
        parties = [np.column_stack([x, 0.8 * x + noise])[:100]]
        acted = [x + 1, 0.8 * (x + 1) + noise] if target == 0 else [x, rng.normal(size=200)]
        parties.append(np.column_stack(acted)[100:])
        given = {1: [f"x{target}"]}
        expected = np.array([[False, True], [False, False]])
        found = simulate("notears-admm", parties, interventions=given).graph
        right += np.array_equal(found.adjacency, expected)
        naive += np.array_equal(simulate("notears-admm", parties[:1]).graph.adjacency, expected)
    assert right == 6
    assert naive <= 2


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("notears-admm", {"model": "mlp"}, "'model' is 'mlp'; it must be 'linear' with interv"),
        ("notears-admm", {"center": "party"}, "'center' is 'party'; it must be 'auto' or"),
        ("notears-admm", {"aggregation": "median"}, "'aggregation'.*must be 'mean' with"),
        ("notears-admm", {"sparsity": "held-out"}, "'sparsity'.*'bic' or a number with"),
        ("2dbn", {"center": "series"}, "'center' is 'series'; it must be 'auto' or 'global' with"),
        ("2dbn", {"select_order": True}, "'select_order' is True; it must be False, or"),
        ("2dbn", {"interventions": {1: ["z"]}}, "party 1: 'z' is stated"),
        ("2dbn", {"intervention_column": "on"}, "no column 'on'"),
        ("lingam", {}, "no option 'interventions'. It is for the methods 'moments', 'notears"),
    ],
)
def test_what_cannot_be_used_is_refused(method, options, message):
    tables = SERIES if method == "2dbn" else PARTIES
    with pytest.raises((ConfigError, DataError), match=message):
        simulate(method, tables, **{"interventions": STATED, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "notears"}, "'order' is 1; it must be 0 with the solvers"),
        ({"solver": "order", "instantaneous": "auto"}, "'instantaneous'.*must be True or False"),
        ({"solver": "order", "select_order": True}, "'select_order'.*must be False with interv"),
        (
            {"solver": "order", "center": "series"},
            "'center'.*must be 'auto' or 'global' with interv",
        ),
    ],
)
def test_moments_of_series_refuse_what_does_not_fit(options, message):
    with pytest.raises(ConfigError, match=message):
        Moments(order=1, intervention_column="on", **options)
