"""Moments of numbers and categories under known interventions."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from worlds_of_blocks import intervened_table

from flwr_causal import Knowledge, simulate

TABLE, TRUTH, TARGETS = intervened_table(7, 1500, seed=1)
MARKED = TABLE.assign(on=[",".join(own) for own in TARGETS])


def dealt(table=MARKED, parties=3):
    return [table.iloc[k::parties].reset_index(drop=True) for k in range(parties)]


def found(parties=None, **options):
    given = {"text_columns": "keep", "intervention_column": "on"} | options
    return simulate("moments", dealt() if parties is None else parties, **given)


def same(one, two):
    np.testing.assert_array_equal(one.graph.adjacency, two.graph.adjacency)
    np.testing.assert_allclose(one.graph.weights, two.graph.weights, atol=1e-9)
    np.testing.assert_allclose(one.model.moments.second, two.model.moments.second, atol=1e-9)
    np.testing.assert_allclose(one.model.moments.mean, two.model.moments.mean, atol=1e-9)


@pytest.fixture(scope="module")
def marked():
    return found()


@pytest.mark.parametrize("seed", range(3))
def test_numbers_alone_have_the_class_of_the_solver_class(seed):
    table, _, targets = intervened_table(6, 900, seed=seed, kinds=(0,))
    parties = dealt(table.assign(on=[",".join(own) for own in targets]))
    blocks = found(parties)
    columns = found(parties, text_columns="fail", solver="class")
    assert blocks.graph.kind == columns.graph.kind == "cpdag"
    np.testing.assert_array_equal(blocks.graph.adjacency, columns.graph.adjacency)
    assert blocks.history[0]["target sets"] == columns.history[0]["target sets"] == 3
    # The systems are the same, too: moments without interventions, effects with their units.
    np.testing.assert_allclose(
        blocks.model.moments.second * np.outer(*[scales(blocks)] * 2),
        columns.model.covariance(),
        atol=1e-9,
    )
    names = list(table)
    for cause, effect in pairwise(names):
        ours, theirs = (run.model.total_effect(cause, effect) for run in (blocks, columns))
        if not isinstance(ours, list) and not isinstance(theirs, list):
            assert ours.value == pytest.approx(theirs.value, abs=1e-9)


def scales(run):
    return [one.scale for one in run.model.variables]


def test_directions_at_targets_are_found(marked):
    names, adjacency = list(TABLE), marked.graph.adjacency
    hit = {name for own in TARGETS for name in own}
    assert any(TABLE[name].dtype.kind not in "iuf" for name in hit)
    for name in hit:
        j = names.index(name)
        both = adjacency[j] & adjacency[:, j]
        assert not both.any()
        known = (TRUTH[j] + TRUTH[:, j] > 0) & (adjacency[j] | adjacency[:, j])
        np.testing.assert_array_equal(adjacency[j][known], TRUTH[j][known] > 0)
    assert (found(dealt(TABLE), intervention_column="").graph.adjacency != adjacency).any()


@pytest.mark.slow
def test_curved_effects_replicates_and_knowledge(marked):
    curved = found(model="curved", replicates=3)
    assert curved.graph.adjacency_confidence.shape == (7, 7)
    same(curved, found(dealt(parties=1), model="curved"))
    i, j = np.argwhere(marked.graph.adjacency)[0]
    names = list(TABLE)
    known = Knowledge(forbidden=[(names[i], names[j]), (names[j], names[i])])
    assert not found(knowledge=known).graph.adjacency[[i, j], [j, i]].any()


def test_answers_of_a_set_category():
    rng = np.random.default_rng(0)
    n = 3000
    drug = rng.choice(["new", "old"], n)
    set_to = rng.random(n) < 0.5
    age = rng.normal(50, 10, n)
    drug = np.where(~set_to, np.where(age + rng.normal(0, 5, n) > 50, "new", "old"), drug)
    pain = 2.0 * (drug == "new") + 0.05 * (age - 50) + rng.normal(size=n)
    table = pd.DataFrame(
        {"age": age, "drug": drug, "pain": pain, "on": np.where(set_to, "drug", "")}
    )
    run = found(dealt(table))
    assert run.graph.adjacency.astype(int).tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    # A regression is of the rows in which nothing has set the category.
    fitted = found(dealt(table), parameters="likelihood")
    np.testing.assert_array_equal(fitted.graph.adjacency, run.graph.adjacency)
    ages = pd.DataFrame({"age": [35.0, 45.0, 50.0, 55.0, 65.0]})
    theirs = LogisticRegression(C=1e6).fit(table[["age"]][~set_to], table["drug"][~set_to] == "new")
    level, slopes = np.vsplit(fitted.model.parameters["drug"], [1])
    age = fitted.model.variables[0]
    log_odds = (level + (ages.to_numpy() - age.mean) / age.scale @ slopes).ravel()
    wanted = theirs.decision_function(ages)
    np.testing.assert_allclose(log_odds, wanted, atol=0.05 * np.abs(wanted).max())
    effect = run.total_effect("drug", "pain", state="new", reference="old")
    assert effect.value == pytest.approx(2.0, abs=4 * effect.standard_error)
    # Where nothing is set, who gets the drug depends on age.
    drawn = run.model.sample(20_000, seed=0)
    observed = table[~set_to]
    gaps = [
        part[part["drug"] == "new"]["age"].mean() - part[part["drug"] == "old"]["age"].mean()
        for part in (drawn, observed, table)
    ]
    assert gaps[0] == pytest.approx(gaps[1], abs=1.0)
    assert abs(gaps[2] - gaps[1]) > 3
