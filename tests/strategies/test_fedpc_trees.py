"""FedPC on mixed tables: categories, counts and measurements with missing values, as trees."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal import simulate
from flwr_causal.core.circuits.learners.trees.learner import ChowLiuMixture
from flwr_causal.data.partition import split
from flwr_causal.errors import DataError


def mixed(rows=1500, seed=0, holes=0.0):
    """Return a table in which everything depends on a class, and age on income beside it."""
    rng = np.random.default_rng(seed)
    outcome = rng.random(rows) < 0.3
    age = np.round(rng.normal(40 + 15 * outcome, 8)).astype(int)
    income = np.exp(rng.normal(1 + 0.02 * age, 0.4))
    job = np.array(["farm", "office", "shop"])[
        np.minimum(rng.poisson(0.4 + 0.8 * outcome, rows), 2)
    ]
    smokes = rng.random(rows) < 0.2 + 0.5 * outcome
    frame = pd.DataFrame({"age": age, "income": income, "job": job, "smokes": smokes})
    if holes:
        for name in ("income", "job"):
            frame[name] = frame[name].astype(object).where(rng.random(rows) > holes)
        frame["income"] = frame["income"].astype(float)
    return frame.assign(target=np.where(outcome, "ill", "well"))


@pytest.fixture(scope="module")
def table():
    return mixed()


def test_a_mixed_table_is_learned_by_trees(table):
    """AUROC .945 when measured, .91 with columns taken as independent given the class."""
    from sklearn.metrics import roc_auc_score

    test = mixed(seed=1)
    run = simulate("fedpc", split(table, 3, seed=0))
    shares = run.model.predict_proba(test)[:, list(run.model.classes()).index("ill")]
    assert roc_auc_score(test["target"] == "ill", shares) > 0.9
    assert [record["exchange"] for record in run.history][-1] == "trees: choice"
    assert "cuts" in {record["exchange"] for record in run.history}


def test_it_is_the_learner_on_all_rows_to_the_last_bit(table):
    one = simulate("fedpc", [table]).model
    several = simulate("fedpc", split(table, 4, "uneven", seed=3), minimum_count=1).model
    skewed = simulate("fedpc", split(table, 2, "sorted", column="target"), minimum_count=1).model
    test = mixed(200, seed=2)
    assert np.array_equal(one.log_likelihood(test), several.log_likelihood(test))
    assert np.array_equal(one.log_likelihood(test), skewed.log_likelihood(test))
    domain = one.domain
    learned = ChowLiuMixture(target="target").learn(domain, domain.encode(table))
    np.testing.assert_allclose(one.log_likelihood(test), learned.log_likelihood(test), rtol=1e-12)


@pytest.mark.slow
def test_that_a_value_is_missing_is_a_state():
    table, test = mixed(holes=0.2), mixed(300, seed=1, holes=0.2)
    run = simulate("fedpc", split(table, 3, seed=0), missing_values="keep")
    states = {one.name: one.missing_state for one in run.model.domain.variables}
    assert states == {"age": False, "income": True, "job": True, "smokes": False, "target": False}
    assert np.isfinite(run.model.log_likelihood(test)).all()
    # A fifth of the rows lack an income: that state has a fifth of the mass.
    j = run.model.domain.index("income")
    values = np.full((1, 5), np.nan)
    shares = run.model.density.state_probabilities(values, j)[0]
    assert abs(shares[-1] - 0.2) < 0.03
    assert shares[:-1].std() < 0.02  # intervals of equally many rows
    one = simulate("fedpc", [table], missing_values="keep").model
    again = simulate("fedpc", split(table, 3, seed=0), missing_values="keep", minimum_count=1).model
    assert np.array_equal(one.log_likelihood(test), again.log_likelihood(test))


def test_missing_values_fail_or_are_left_out():
    table = mixed(holes=0.05)
    with pytest.raises(DataError, match=r"'income'.*missing_values='drop'"):
        simulate("fedpc", [table], missing_values="fail")
    dropped = simulate("fedpc", [table], missing_values="drop")
    assert sum(dropped.parties.values()) == len(table.dropna())
    nothing = table.assign(job=np.nan)
    with pytest.raises(DataError, match="'job': no value at all"):
        simulate("fedpc", [nothing], missing_values="keep")


def test_options_of_trees_matter(table):
    test = mixed(300, seed=1)
    few = simulate("fedpc", [table], bins=4).model
    assert max(one.num_states for one in few.domain.variables) <= 4
    default = simulate("fedpc", [table], components=1).model.log_likelihood(test)
    more = simulate("fedpc", [table], components=5).model.log_likelihood(test)
    assert not np.array_equal(default, more)


def test_a_label_that_one_party_never_saw(table):
    parties = [table[table["target"] == "well"], table[table["target"] == "ill"]]
    parties = [part.reset_index(drop=True) for part in parties]
    model = simulate("fedpc", parties).model
    assert set(model.predict(mixed(200, seed=3))) == {"ill", "well"}


def test_a_category_that_nobody_had_counts_as_missing(table):
    model = simulate("fedpc", [table]).model
    rows = mixed(20, seed=4)
    strange = rows.assign(job=rows["job"].where(rows.index > 2, "mine"))
    empty = rows.assign(job=rows["job"].where(rows.index > 2))
    with pytest.warns(UserWarning, match="'job': 3 rows hold values that no party had"):
        given = model.log_likelihood(strange)
    np.testing.assert_array_equal(given, model.log_likelihood(empty))
    with pytest.raises(DataError, match="none of its states"):
        model.conditional({"job": "mine"})


def test_constant_columns(table):
    odd = table.assign(same=1, still=2.5)
    with pytest.raises(DataError, match=r"'same': constant.*\n.*'still'"):
        simulate("fedpc", [odd], strict=True)
    dropped = simulate("fedpc", [odd], constant_columns="drop").model
    kept = simulate("fedpc", [odd], constant_columns="keep").model
    assert set(kept.names) - set(dropped.names) == {"same", "still"}
    rows = odd.iloc[:50]
    # What is the same in all rows says nothing; other columns draw other starts.
    assert abs(kept.log_likelihood(rows).mean() - dropped.log_likelihood(rows).mean()) < 0.05


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize(
    "options",
    [{}, {"target": "target"}, {"components": 3}, {"learner": "class-conditional"}],
    ids=str,
)
def test_the_order_of_columns_decides_nothing(table, options):
    """Roots of trees, draws of components and folds of rows follow the names."""
    rows, few = mixed(50, seed=5), table.iloc[:400]
    columns = list(table.columns)
    first, *others = (
        simulate("fedpc", split(few[order], 2, seed=0), **options).model.log_likelihood(rows)
        for order in (columns, columns[::-1], columns[2:] + columns[:2])
    )
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-9)
