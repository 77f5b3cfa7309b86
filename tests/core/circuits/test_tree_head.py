from dataclasses import replace

import numpy as np
import pytest
from circuit_cases import domain_of
from trainings_by_sums import check_arrays, names_of, reached, walked

from flwr_causal.core.arrays import symmetric
from flwr_causal.core.circuits.learners.trees.learner import (
    NUM_FOLDS,
    ChowLiuMixture,
    FoldedRows,
    PairFeatures,
    TreesHead,
    log_cells,
    pair_sums_of,
)
from flwr_causal.core.circuits.learners.trees.pair_sums import StateLayout, encode
from flwr_causal.errors import ConfigError, DataError

STATES = (2, 3, 2, 2)
DOMAIN = domain_of(STATES)
LEARNER = ChowLiuMixture(target="d", components=1, head=True, head_penalty=3.0)


def rows_of_a_pair(rng, n):
    """Rows whose class, the last column, is told by whether the first and third are equal."""
    values = np.stack([rng.integers(k, size=n) for k in STATES], axis=1).astype(float)
    values[:, 3] = (values[:, 0] == values[:, 2]) ^ (rng.random(n) < 0.1)
    return values


def codes_of(rows, plan):
    return encode(rows[:, plan.columns], plan.sizes)


def trained(rows, learner=LEARNER):
    return learner.learn_model(DOMAIN, rows)


def test_the_head_sees_what_no_single_column_tells():
    rng = np.random.default_rng(0)
    rows, held_out = rows_of_a_pair(rng, 1000), rows_of_a_pair(rng, 2000)
    found = trained(rows).posterior.predict_proba(held_out)[:, 1]
    truth = np.where(held_out[:, 0] == held_out[:, 2], 0.9, 0.1)
    assert np.abs(found - truth).max() < 0.08
    single = trained(rows, replace(LEARNER, most_pairs=0)).posterior.predict_proba(held_out)
    assert np.abs(single[:, 1] - truth).mean() > 0.3


def test_of_many_pairs_the_most_dependent_have_a_feature():
    rows = rows_of_a_pair(np.random.default_rng(1), 500)
    learner = replace(LEARNER, most_pairs=1)
    assert learner.train([rows], learner.plan(DOMAIN)).features.pairs.tolist() == [[0, 2]]


def test_the_posterior_is_the_head_on_the_features_also_where_values_are_missing():
    rows = rows_of_a_pair(np.random.default_rng(2), 400)
    plan = LEARNER.plan(DOMAIN)
    state = LEARNER.train([rows], plan)
    asked = np.array([[0, 1, 1, 0], [np.nan, 2, 1, 0], [1, np.nan, np.nan, 0], [np.nan] * 4])
    features = state.features.of(codes_of(asked, plan))
    expected = np.exp(state.head.log_posterior(features))
    found = state.model(DOMAIN).posterior.predict_proba(asked)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(features[3], 0.0)


def test_it_makes_little_difference_how_rows_are_split():
    rows = rows_of_a_pair(np.random.default_rng(3), 1000)
    plan = LEARNER.plan(DOMAIN, seed=5)
    ordered = rows[np.argsort(rows[:, 3], kind="stable")]
    whole, split = (
        LEARNER.train(parties, plan).model(DOMAIN).posterior.predict_proba(rows)
        for parties in ([rows], [ordered[:1], ordered[1:140], ordered[140:]])
    )
    assert np.abs(split - whole).mean() < 0.025  # .014 was measured


def test_a_row_is_seen_by_features_that_were_made_without_its_fold():
    rows = rows_of_a_pair(np.random.default_rng(4), 200)
    plan = LEARNER.plan(DOMAIN)
    folded = FoldedRows.of(rows, plan, NUM_FOLDS)
    asked = reached(LEARNER.training(plan), plan, [rows], TreesHead).arrays
    layout = StateLayout(STATES[:3], complete=False)
    pairs = asked["pairs"].astype(np.int64)
    made = [PairFeatures(plan, logs, pairs) for logs in symmetric(asked["logs"], layout.total)]
    for fold, features in enumerate(made):
        others = rows[folded.folds != fold]
        groups = [codes_of(others[others[:, 3] == c], plan) for c in (0, 1)]
        counts = np.stack([layout.pair_counts(one) for one in pair_sums_of(groups, plan)])
        np.testing.assert_allclose(features.logs, log_cells(layout, counts, 0.03 * 200))
    seen = folded.features(made)
    np.testing.assert_array_equal(seen[7], made[folded.folds[7]].of(codes_of(rows[7:8], plan))[0])


def test_a_class_of_which_nobody_has_a_row():
    rows, domain = rows_of_a_pair(np.random.default_rng(5), 100), domain_of((2, 3, 2, 3))
    learner = replace(LEARNER, decision="macro-f1")
    plan = learner.plan(domain)
    found, seen = walked(learner.training(plan), plan, [rows])
    check_arrays(seen)
    steps = names_of(seen)
    assert steps[7] == "fold-pairs"
    assert set(steps[8:]) == {"head"}
    assert found.threshold is None
    assert found.model(domain).posterior.predict_proba(rows)[:, 2].max() == 0.0


def test_errors_name_the_thing():
    with pytest.raises(ConfigError, match="strength"):
        ChowLiuMixture(head_strength=0.0)
    with pytest.raises(DataError, match="no 1 rows"):
        trained(np.zeros((0, 4)))
