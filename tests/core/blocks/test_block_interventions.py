"""Blocks of columns under known interventions: which rows count, which directions follow."""

import numpy as np
import pandas as pd
import pytest
from worlds_of_blocks import intervened_table

from flwr_causal.core.blocks.design import Category, column_names, design
from flwr_causal.core.blocks.search import BlockProblem, edge_costs, independent
from flwr_causal.core.ges.linear_class import linear_class
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.interventions.moments import distinguished_pairs, moments_by_variable
from flwr_causal.core.linear.moments import SampleMoments, columns_of
from flwr_causal.core.linear.order_search import order_score
from flwr_causal.core.systems.blocks import BlockModel, implied_moments
from flwr_causal.errors import DataError


def free(d):
    return EdgeMasks(~np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool))


def fitted(table, targets, functions=1):
    """Variables, each variable's moments where it is no target, and the groups' targets."""
    variables, columns = design(table, functions)
    names = [one.name for one in variables]
    sets = sorted(set(targets))
    acted = np.array([[name in one for name in names] for one in sets])
    rows = np.column_stack([np.ones(len(columns)), columns])
    parts = [rows[[own == one for own in targets]] for one in sets]
    products = np.array([part.T @ part for part in parts]) / len(rows)
    own = moments_by_variable(products, acted, len(rows), column_names(variables), names)
    return variables, own, acted


def searched(table, targets, functions=1, **options):
    variables, own, acted = fitted(table, targets, functions)
    problem = BlockProblem.of(
        own,
        [one.width for one in variables],
        tuple(one.name for one in variables),
        free(len(variables)),
        distinguished=distinguished_pairs(acted),
        **options,
    )
    return problem.best()


def test_numbers_alone_have_the_class_of_columns():
    agreed = 0
    for seed in range(6):
        table, _, targets = intervened_table(7, 900, seed=seed, kinds=(0,))
        variables, own, acted = fitted(table, targets)
        apart = distinguished_pairs(acted)
        found = BlockProblem.of(
            own, [1] * 7, tuple(table), free(7), distinguished=apart, least_effect=0.05
        ).best()
        columns = linear_class(own, free(7), distinguished=apart, least_effect=0.05, by_orders=True)
        agreed += np.array_equal(found.graph.adjacency, columns.marks)
        assert all(isinstance(one.width, int) for one in variables)
    assert agreed == 6


@pytest.mark.parametrize("functions", [1, 3])
def test_rows_in_which_a_variable_is_a_target_say_nothing_of_its_causes(functions):
    table, _, targets = intervened_table(6, 1200, seed=2)
    name = targets[-1][0]
    on = np.array([name in own for own in targets])
    _, own, _ = fitted(table, targets, functions)
    other = table.copy()
    # Its values in these rows change, and with them what they say about it, but no more.
    other.loc[on, name] = other.loc[on, name].sample(frac=1.0, random_state=0).to_numpy()
    variables, changed, _ = fitted(other, targets, functions)
    j = list(table).index(name)
    np.testing.assert_allclose(own[j].second, changed[j].second, atol=1e-12)
    assert all(
        np.abs(own[k].second - changed[k].second).max() > 1e-6
        for k in range(len(variables))
        if k != j and own[k].n != own[j].n
    )


def test_a_category_that_was_set_shows_its_direction():
    rng = np.random.default_rng(0)
    n = 800

    def rows(setting):
        drug = rng.choice(list("abc"), n)
        cell = rng.normal(size=n) + 1.2 * (drug == "a") - 0.8 * (drug == "b")
        if setting == "drug":
            drug = rng.choice(list("ab"), n)
            cell = rng.normal(size=n) + 1.2 * (drug == "a") - 0.8 * (drug == "b")
        if setting == "cell":
            cell = rng.normal(size=n)
        return pd.DataFrame({"drug": drug, "cell": cell})

    observed = rows("")
    none = [()] * n
    assert searched(observed, none).graph.adjacency.sum() == 2
    for setting in ("drug", "cell"):
        table = pd.concat([observed, rows(setting)], ignore_index=True)
        found = searched(table, [*none, *[(setting,)] * n]).graph
        np.testing.assert_array_equal(found.adjacency, [[False, True], [False, False]])


def test_members_of_a_class_have_one_score_and_imply_the_same_moments():
    table, _truth, targets = intervened_table(6, 900, seed=1)
    variables, own, acted = fitted(table, targets)
    widths, d = [one.width for one in variables], len(variables)
    marks = searched(table, targets).graph.adjacency
    kept = independent(own, widths, list(table))
    costs = edge_costs(float(np.mean([part.n for part in own])), kept.sizes)
    options = {"edge_cost": costs, "widths": kept.widths}
    assert (marks & marks.T).any()
    members = {dag.tobytes(): dag for dag in extensions(marks)}
    assert len(members) > 1
    scores = [order_score(kept.moments, dag, free(d), **options) for dag in members.values()]
    assert np.ptp(scores) < 1e-7
    implied = [implied_moments(own, widths, dag) for dag in members.values()]
    for one in implied[1:]:
        np.testing.assert_allclose(one.second, implied[0].second, atol=1e-9)
        np.testing.assert_allclose(one.mean, implied[0].mean, atol=1e-9)
    # A distinguished pair has another score the other way round.
    dag = next(iter(members.values()))
    i, j = next((i, j) for i, j in np.argwhere(dag) if distinguished_pairs(acted)[i, j])
    turned = np.zeros_like(dag)
    turned[j, i] = True
    alone = np.zeros_like(dag)
    alone[i, j] = True
    two = [order_score(kept.moments, one, free(d), **options) for one in (alone, turned)]
    assert abs(two[0] - two[1]) > 1


def extensions(marks):
    """All DAGs of a class, by every direction of its undirected edges."""
    pairs = np.argwhere(np.triu(marks & marks.T))
    joined = marks | marks.T

    def colliders(dag):
        return {
            (i, k, j)
            for j in range(len(dag))
            for i in np.flatnonzero(dag[:, j])
            for k in np.flatnonzero(dag[:, j])
            if i < k and not joined[i, k]
        }

    known = colliders(marks & ~marks.T)
    for code in range(2 ** len(pairs)):
        dag = marks & ~marks.T
        for bit, (i, j) in enumerate(pairs):
            dag[(i, j) if code >> bit & 1 else (j, i)] = True
        acyclic = not np.linalg.matrix_power(dag.astype(float), len(dag)).any()
        if acyclic and colliders(dag) == known:
            yield dag


def test_implied_moments_are_those_of_regressions_along_the_graph():
    table, truth, targets = intervened_table(6, 900, seed=3)
    variables, own, _ = fitted(table, targets)
    widths, dag = [one.width for one in variables], truth.astype(bool)
    implied = implied_moments(own, widths, dag)
    columns = columns_of(widths)
    for j, part in enumerate(own):
        parents = [int(c) for i in np.flatnonzero(dag[:, j]) for c in columns[i]]
        for child in columns[j]:
            ours, theirs = (
                np.linalg.lstsq(
                    m.second[np.ix_(parents, parents)], m.second[parents, child], rcond=None
                )[0]
                for m in (implied, part)
            )
            np.testing.assert_allclose(ours, theirs, atol=1e-8)
            left = [
                m.second[child, child] - m.second[child, parents] @ theirs for m in (implied, part)
            ]
            assert left[0] == pytest.approx(left[1])
            gaps = [m.mean[child] - m.mean[parents] @ theirs for m in (implied, part)]
            assert gaps[0] == pytest.approx(gaps[1])
    assert np.linalg.eigvalsh(implied.second)[0] > 0
    # Every independence of the graph holds exactly.
    observed = fitted(table, [()] * len(table))[1]
    full = np.triu(np.ones((6, 6), dtype=bool), 1)
    whole = implied_moments(observed, widths, full)
    np.testing.assert_allclose(whole.second, observed[0].second, atol=1e-9)
    np.testing.assert_allclose(whole.mean, observed[0].mean, atol=1e-9)
    assert whole.n == len(table)


def test_effects_are_those_without_interventions():
    """a -> b -> c; b is a target in half of the rows, with another mean and no cause."""
    rng = np.random.default_rng(4)
    n = 20_000
    a = rng.choice(["low", "high"], 2 * n)
    high = a == "high"
    on = np.arange(2 * n) >= n
    b = np.where(on, 3.0 + rng.normal(size=2 * n), 1.0 * high + rng.normal(size=2 * n))
    c = rng.random(2 * n) < 1 / (1 + np.exp(1 - 0.8 * b))
    table = pd.DataFrame({"a": a, "b": b, "c": np.where(c, "yes", "no")})
    targets = [("b",) if own else () for own in on]
    variables, own, _acted = fitted(table, targets)
    marks = np.zeros((3, 3), dtype=bool)
    marks[0, 1] = marks[1, 2] = True
    model = BlockModel.of(variables, own, marks)
    found = model.total_effect("a", "b", state="high", reference="low")
    assert found.value == pytest.approx(1.0, abs=0.05)
    plain = BlockModel(
        variables, SampleMoments.from_rows(design(table)[1], model.moments.names), marks
    )
    naive = plain.total_effect("a", "b", state="high", reference="low")
    assert naive.value == pytest.approx(0.5, abs=0.1)
    drawn = model.do({"a": "high"}).sample(20_000, seed=0)
    assert drawn["b"].mean() == pytest.approx(1.0, abs=0.05)
    assert model.sample(20_000, seed=0)["b"].mean() == pytest.approx(0.5, abs=0.05)
    # Of a -> c the mediator's rows without interventions count: no more rows than those.
    assert model.moments.n == n
    assert found.standard_error == pytest.approx(2 / np.sqrt(n), rel=0.05)
    # The rows agree with the graph; a wrong one is found by the rows of each variable.
    assert model.fit_check().independencies["p_value"].min() > 1e-3
    wrong = np.zeros((3, 3), dtype=bool)
    wrong[0, 1] = wrong[0, 2] = True
    assert BlockModel.of(variables, own, wrong).fit_check().independencies["p_value"].min() < 1e-6


def test_models_under_interventions_are_kept(tmp_path):
    table, truth, targets = intervened_table(5, 400, seed=5)
    variables, own, _ = fitted(table, targets)
    model = BlockModel.of(variables, own, truth.astype(bool))
    model.save(tmp_path / "model.json")
    again = BlockModel.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.moments.second, model.moments.second)
    assert [one.n for one in again.own_moments] == [one.n for one in own]
    assert len({id(one) for one in again.own_moments}) == len({id(one) for one in own})
    assert again.edge_tests() == model.edge_tests()


def test_states_that_occur_under_an_intervention_alone():
    rng = np.random.default_rng(6)
    n = 600
    a = np.r_[rng.choice(["x", "y"], n), np.full(n, "z")]
    b = rng.normal(size=2 * n) + 1.5 * (a == "y") + 3.0 * (a == "z")
    table = pd.DataFrame({"b": b, "a": a})
    targets = [()] * n + [("a",)] * n
    variables, own, _ = fitted(table, targets)
    assert variables[1] == Category("a", ("x", "y", "z"))
    kept = independent(own, [1, 2], ["b", "a"])
    # x and y are complements in the rows without interventions; b's rows tell all three apart.
    assert kept.widths == [1, 2]
    np.testing.assert_array_equal(kept.sizes, [[1, 2], [1, 1]])
    found = searched(table, targets)
    np.testing.assert_array_equal(found.graph.adjacency, [[False, False], [True, False]])
    full = np.corrcoef(np.column_stack([b, a == "x", a == "y"]).T)
    strength = np.sqrt(1 - np.linalg.det(full) / np.linalg.det(full[1:, 1:]))
    assert found.graph.weights[1, 0] == pytest.approx(strength)


def test_a_variable_without_variation_in_its_own_rows_is_named():
    table = pd.DataFrame({"a": list("xxxxyz"), "b": [1.0, 2, 3, 4, 5, 7]})
    targets = [()] * 4 + [("a",)] * 2
    variables, own, _ = fitted(table, targets)
    with pytest.raises(DataError, match="'a' has one value in the rows in which it is no target"):
        independent(own, [one.width for one in variables], ["a", "b"])
