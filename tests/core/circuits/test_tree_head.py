import numpy as np
import pytest
from circuit_cases import domain_of

from flwr_causal.core.circuits.exchanges import add
from flwr_causal.core.circuits.trees.features import FoldedRows, log_cells
from flwr_causal.core.circuits.trees.head import (
    NUM_FOLDS,
    Options,
    Request,
    fitted,
    init,
    request,
    step,
    sums,
    train,
)
from flwr_causal.core.circuits.trees.pair_sums import Layout
from flwr_causal.core.circuits.trees.rows import codes_of, plan_for
from flwr_causal.core.circuits.trees.sums import pair_sums_of
from flwr_causal.errors import ConfigError, DataError, FederationError

STATES = (2, 3, 2, 2)
DOMAIN = domain_of(STATES)


def rows_of_a_pair(rng, n):
    """Rows whose class, the last column, is told by whether the first and third are equal."""
    values = np.stack([rng.integers(k, size=n) for k in STATES], axis=1).astype(float)
    values[:, 3] = (values[:, 0] == values[:, 2]) ^ (rng.random(n) < 0.1)
    return values


def test_the_head_sees_what_no_single_column_tells():
    rng = np.random.default_rng(0)
    rows, held_out = rows_of_a_pair(rng, 1000), rows_of_a_pair(rng, 2000)
    plan = plan_for(DOMAIN, "d")
    found = fitted(train([rows], plan), DOMAIN).predict_proba(held_out)[:, 1]
    truth = np.where(held_out[:, 0] == held_out[:, 2], 0.9, 0.1)
    assert np.abs(found - truth).max() < 0.08
    single = fitted(train([rows], plan, Options(most_pairs=0)), DOMAIN).predict_proba(held_out)
    assert np.abs(single[:, 1] - truth).mean() > 0.3


def test_of_many_pairs_the_most_dependent_have_a_feature():
    rows = rows_of_a_pair(np.random.default_rng(1), 500)
    state = train([rows], plan_for(DOMAIN, "d"), Options(most_pairs=1))
    assert state.final.pairs.tolist() == [[0, 2]]


def test_the_posterior_is_the_head_on_the_features_also_where_values_are_missing():
    rows = rows_of_a_pair(np.random.default_rng(2), 400)
    plan = plan_for(DOMAIN, "d")
    state = train([rows], plan)
    asked = np.array([[0, 1, 1, 0], [np.nan, 2, 1, 0], [1, np.nan, np.nan, 0], [np.nan] * 4])
    features = state.final.of(codes_of(asked, plan))
    expected = np.exp(state.head.head.log_posterior(features))
    found = fitted(state, DOMAIN).predict_proba(asked)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(features[3], 0.0)


def test_it_makes_little_difference_how_rows_are_split():
    rows = rows_of_a_pair(np.random.default_rng(3), 1000)
    plan = plan_for(DOMAIN, "d", seed=5)
    whole = fitted(train([rows], plan), DOMAIN).predict_proba(rows)
    ordered = rows[np.argsort(rows[:, 3], kind="stable")]
    split = fitted(train([ordered[:1], ordered[1:140], ordered[140:]], plan), DOMAIN)
    assert np.abs(split.predict_proba(rows) - whole).mean() < 0.025  # .014 was measured


def test_a_row_is_seen_by_features_that_were_made_without_its_fold():
    rows = rows_of_a_pair(np.random.default_rng(4), 200)
    plan = plan_for(DOMAIN, "d")
    folded = FoldedRows.of(rows, plan, NUM_FOLDS)
    state = init(plan)
    made = step(state, sums(rows, plan, request(state))).by_fold
    layout = Layout(STATES[:3], complete=False)
    for fold, features in enumerate(made):
        others = rows[folded.folds != fold]
        groups = [codes_of(others[others[:, 3] == c], plan) for c in (0, 1)]
        counts = np.stack([layout.pair_counts(one) for one in pair_sums_of(groups, plan)])
        np.testing.assert_allclose(features.logs, log_cells(layout, counts, 0.03 * 200))
    seen = folded.features(list(made))
    np.testing.assert_array_equal(seen[7], made[folded.folds[7]].of(codes_of(rows[7:8], plan))[0])


def test_exchanges_are_finite_and_named():
    rows = rows_of_a_pair(np.random.default_rng(5), 100)
    plan = plan_for(domain_of((2, 3, 2, 3)), "d")  # nobody has a row of the last class
    state, phases = init(plan), []
    while (asked := request(state)) is not None:
        reply = add([sums(rows, plan, asked)])
        for array in (*asked.arrays.values(), *reply.values()):
            assert np.isfinite(array).all()
        phases.append(asked.phase)
        state = step(state, reply)
    assert phases[0] == "fold-pairs"
    assert set(phases[1:]) == {"head"}
    assert state.threshold is None
    assert fitted(state, domain_of((2, 3, 2, 3))).predict_proba(rows)[:, 2].max() == 0.0


def test_errors_name_the_thing():
    plan = plan_for(DOMAIN, "d")
    with pytest.raises(ConfigError, match="target"):
        init(plan_for(DOMAIN, None))
    with pytest.raises(ConfigError, match="strength"):
        Options(strength=0.0)
    with pytest.raises(ConfigError, match="not complete"):
        fitted(init(plan), DOMAIN)
    with pytest.raises(FederationError, match="phase"):
        sums(np.zeros((1, 4)), plan, Request("other", {}))
    with pytest.raises(DataError, match="no 1 rows"):
        train([np.zeros((0, 4))], plan)
