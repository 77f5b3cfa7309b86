"""Known interventions in FedCausal: which rows each variable's mechanism is fitted to."""

import numpy as np
import pandas as pd
import pytest
from federations import app_of
from server_states import states_of

from flwr_causal.core.fedcausal import evidence, evidence_search, group, linear
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.nonlinear.basis import basis_moments
from flwr_causal.errors import ConfigError
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.strategies import FedCausal, run

NAMES = list("abc")
CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
FREE = Knowledge().masks(tuple(NAMES))


def rows(seed, targets=(), n=120):
    """A linear Gaussian chain a -> b -> c whose variances fall, of weights of the party's own."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(n, 3)) * [4.0, 1.0, 0.25]
    weights = CHAIN * rng.uniform(0.6, 1.2, (3, 3)) * rng.choice([-1, 1], (3, 3)) * [1, 0.5, 0.5]
    weights[:, list(targets)] = 0.0
    return pd.DataFrame(noise @ np.linalg.inv(np.eye(3) - weights), columns=NAMES)


PARTIES = [rows(0), rows(1, (0,)), rows(2, (1,)), rows(3, (2,)), rows(4, (0, 2)), rows(5, (1,))]
STATED = {1: ["a"], "party 2": ["b"], 3: ["c"], 4: ["a", "c"], 5: ["b"]}
MARKS = ["", "a", "b", "c", "c; a", "b"]


def marked():
    return [table.assign(on=mark) for table, mark in zip(PARTIES, MARKS, strict=True)]


def found(tables=PARTIES, configs=None, **options):
    grid = LocalGrid(app_of(tables), len(tables), node_configs=configs)
    return run(FedCausal(min_available_nodes=len(tables), **options), grid)


@pytest.fixture(scope="module")
def stated():
    return simulate("fedcausal", PARTIES, interventions=STATED)


def test_only_interventions_tell_the_directions(stated):
    assert not np.array_equal(simulate("fedcausal", PARTIES).graph.adjacency, CHAIN)
    assert np.array_equal(stated.graph.adjacency, CHAIN)
    assert not stated.warnings


def test_columns_nodes_and_parties_state_the_same(stated):
    by_row = simulate("fedcausal", marked(), intervention_column="on")
    np.testing.assert_array_equal(by_row.graph.raw_weights, stated.graph.raw_weights)
    configs = [
        {"partition-id": k, "num-partitions": 6, **({"interventions": mark} if mark else {})}
        for k, mark in enumerate(MARKS)
    ]
    by_node = found(configs=configs).graph
    np.testing.assert_array_equal(by_node.raw_weights, stated.graph.raw_weights)
    with pytest.raises(ConfigError, match="set local_graphs=False"):
        found(configs=configs, local_graphs=True)


def test_the_evidence_is_that_of_the_rows_that_inform_about_a_variable():
    tables = [pd.concat(marked()[:3]), pd.concat(marked()[3:])]
    with states_of(evidence_search) as states:
        outcome = found(tables, intervention_column="on")
    total = 0.0
    for table in tables:
        for j, name in enumerate(NAMES):
            own = table[~table["on"].str.contains(name)][NAMES].to_numpy()
            causes = np.flatnonzero(outcome.graph.adjacency[:, j])
            total += evidence.log_evidence(evidence.evidence_problem(own), j, causes)
    best = next(
        one for one in reversed(states) if np.array_equal(one.graph, outcome.graph.adjacency)
    )
    assert best.evidence.sum() == pytest.approx(total, rel=1e-9)


def test_the_linear_model_uses_them_too():
    """x -> y with so little noise of y that y seems to cause x."""
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=300), 0.4 * rng.normal(size=300)
    tables = [np.column_stack([x, 0.8 * x + noise])[:150]]
    tables.append(np.column_stack([x, rng.normal(size=300)])[150:])
    forward = np.array([[False, True], [False, False]])
    naive = simulate("fedcausal", tables[:1], model="linear").graph
    assert not np.array_equal(naive.adjacency, forward)
    used = simulate("fedcausal", tables, model="linear", sparsity=0.0, interventions={1: ["x1"]})
    assert np.array_equal(used.graph.adjacency, forward)
    # The weight is that of the first party, as if the other one were not there.
    alone = linear.party_problem(tables[0] - tables[0].mean(axis=0), Knowledge().masks(("x", "y")))
    second = alone.seconds[0]
    assert used.graph.weights[0, 1] == pytest.approx(second[0, 1] / second[0, 0], abs=0.03)
    assert not used.warnings


def test_a_party_without_rows_for_a_variable_stands_by_the_mean():
    table = PARTIES[0].to_numpy()
    centred = table - table.mean(axis=0)
    acted = np.zeros(table.shape, dtype=bool)
    acted[:, 1] = True
    acted[:40, 2] = True
    received = np.random.default_rng(0).normal(size=(3, 3)) * ~np.eye(3, dtype=bool) * 0.1
    problem = linear.party_problem(centred, FREE, acted=acted)
    part = centred[40:] - centred[40:].mean(axis=0)
    np.testing.assert_allclose(problem.seconds[problem.second_of[0]], centred.T @ centred / 120)
    np.testing.assert_allclose(problem.seconds[problem.second_of[2]], part.T @ part / 80)
    assert not problem.seconds[problem.second_of[1]].any()
    np.testing.assert_allclose(problem.counted, [1.0, 0.0, 2 / 3])
    exact = {"max_steps": 200, "tolerance": 1e-10}
    sent = linear.party_step(problem, received, 0.0, 0.0, **exact).weights
    np.testing.assert_array_equal(sent[:, 1], received[:, 1])
    for j, own in ((0, centred), (2, part)):
        alone = linear.party_problem(own, FREE)
        weights = linear.party_step(alone, received, 0.0, 0.0, **exact).weights[:, j]
        share = problem.counted[j]
        expected = share * weights + (1 - share) * received[:, j]
        np.testing.assert_allclose(sent[:, j], expected, atol=1e-7)


def test_blocks_of_the_group_lasso_are_fitted_to_own_rows():
    table = PARTIES[0].to_numpy()
    whole, part = basis_moments(table), basis_moments(table[40:])
    problems = [
        group.local_problem(whole, np.array([0])),
        group.local_problem(part, np.array([2])),
    ]
    factors = np.full((3, 3), 0.7)
    state = group.client_step(problems, None, factors, 0.2, 2)
    for moments, j in ((whole, 0), (part, 2)):
        alone = group.client_step([group.local_problem(moments)], None, factors, 0.2, 2)
        np.testing.assert_allclose(state.formed[..., j], alone.formed[..., j], atol=1e-10)
    assert not state.formed[..., 1].any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "mlp"}, "'group' or 'linear' with interventions"),
        ({"center": "global"}, "'party' with interventions"),
        ({"local_graphs": True}, "False with interventions"),
        ({"interventions": {9: ["a"]}}, "party 9"),
    ],
)
def test_what_does_not_go_with_interventions(options, words):
    with pytest.raises(ConfigError, match=words):
        simulate("fedcausal", PARTIES, **{"interventions": STATED, **options})
