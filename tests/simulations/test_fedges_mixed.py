"""FedGES on numbers and categories, by the conditional Gaussian score."""

import numpy as np
import pandas as pd
import pytest
from category_federations import alike

from flwr_causal.errors import ConfigError, DataError
from flwr_causal.simulations import simulate
from flwr_causal.solvers import ges

SCORE = {"score": "conditional-gaussian"}


def table_of(n=900, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, n)
    size = np.array([0.0, 2.0, -1.5])[group] + rng.normal(size=n)
    weight = np.where(group == 1, 2.0, -1.0) * size + rng.normal(size=n)
    answer = (rng.random(n) < np.where(group == 2, 0.8, 0.2)).astype(int)
    return pd.DataFrame(
        {
            "weight": 1e6 + 50 * weight,
            "group": np.array(["a", "b", "c"])[group],
            "answer": answer,
            "size": size,
            "noise": rng.normal(size=n),
        }
    )


TABLE = table_of()
PARTS = [TABLE.iloc[:100], TABLE.iloc[100:101], TABLE.iloc[101:]]


@pytest.fixture(scope="module")
def found():
    return simulate("fedges", PARTS, **SCORE)


def test_the_graph_is_that_of_the_pooled_rows(found):
    assert alike(found.graph, ges(TABLE, **SCORE))
    assert {record["exchange"] for record in found.history} == {"moments"}
    one = simulate("fedges", [TABLE], **SCORE)
    assert alike(one.graph, found.graph)
    rows = TABLE.iloc[:40]
    np.testing.assert_allclose(
        one.model.log_likelihood(rows), found.model.log_likelihood(rows), rtol=1e-8
    )
    pairs = found.graph.adjacency | found.graph.adjacency.T
    names = list(TABLE.columns)
    joined = {frozenset((names[i], names[j])) for i, j in np.argwhere(pairs)}
    assert joined == {
        frozenset(pair) for pair in (("weight", "group"), ("weight", "size"), ("group", "size"))
    } | {frozenset(("group", "answer"))}


def test_units_and_the_order_of_columns_do_not_matter(found):
    other = TABLE.assign(size=7 - 1000 * TABLE["size"], weight=TABLE["weight"] / 1e4)
    run = simulate("fedges", [other.iloc[:500], other.iloc[500:]], **SCORE)
    assert alike(run.graph, found.graph)
    turned = TABLE[list(reversed(TABLE.columns))]
    run = simulate("fedges", [turned.iloc[:500], turned.iloc[500:]], **SCORE)
    back = [run.graph.names.index(name) for name in TABLE.columns]
    assert np.array_equal(run.graph.adjacency[np.ix_(back, back)], found.graph.adjacency)


def test_the_model_is_saved_with_the_run(found, tmp_path):
    found.save(tmp_path)
    again = type(found).load(tmp_path)
    rows = TABLE.iloc[:5]
    np.testing.assert_array_equal(
        again.model.log_likelihood(rows), found.model.log_likelihood(rows)
    )
    assert simulate("fedges", PARTS, parameters=False, **SCORE).model is None


def test_isolated_and_single_variables_have_a_model():
    alone = [part[["noise"]] for part in PARTS]
    run = simulate("fedges", alone, **SCORE)
    assert run.graph.num_edges == 0
    density = run.model.log_likelihood(TABLE).mean()
    assert density == pytest.approx(
        -0.5 * np.log(2 * np.pi * np.e * TABLE["noise"].var()), abs=0.01
    )


@pytest.mark.parametrize(("share", "warned"), [(0.45, False), (0.6, True)])
def test_a_value_that_most_rows_have_is_warned_of(share, warned):
    """The column and the parties are named; as a category it gives no warning."""
    rng = np.random.default_rng(3)
    gain = np.where(rng.random(len(TABLE)) < share, 0.0, rng.normal(size=len(TABLE)) ** 2)
    tables = [TABLE.assign(gain=gain).iloc[:400], TABLE.assign(gain=gain + 1.5).iloc[400:]]
    run = simulate("fedges", tables, max_rounds=1, **SCORE)
    found = [text for text in run.warnings if "one value in more than half" in text]
    assert len(found) == warned
    if warned:
        assert "'gain' (at parties 'party 0', 'party 1')" in found[0]
        assert "'size'" not in found[0]
    table = TABLE.assign(gain=np.where(gain == 0, "none", "some"))
    again = simulate("fedges", [table.iloc[:400], table.iloc[400:]], max_rounds=1, **SCORE)
    assert not any("one value in more" in text for text in again.warnings)


def test_bad_options_and_tables_are_named():
    with pytest.raises(ConfigError, match="mode='exact'"):
        simulate("fedges", PARTS, mode="scores", **SCORE)
    with pytest.raises(ConfigError, match="discretize"):
        simulate("fedges", PARTS, discretize=4, **SCORE)
    with pytest.raises(DataError, match="conditional-gaussian"):
        simulate("fedges", PARTS)
    bad = TABLE.assign(size=np.where(TABLE.index == 3, np.nan, TABLE["size"]))
    with pytest.raises(DataError, match="'size'"):
        simulate("fedges", [bad.iloc[:500], bad.iloc[500:]], missing_values="fail", **SCORE)
