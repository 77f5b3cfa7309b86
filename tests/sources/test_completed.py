"""Rows with missing cells: the sums of one step, and the estimate of all rows in one place."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from federations import losing
from pooled import pooled, products

from flwr_causal import Knowledge
from flwr_causal.core.blocks import lacking
from flwr_causal.core.linear.moments import mean_and_second
from flwr_causal.core.series.design import lagged_rows
from flwr_causal.errors import FederationError
from flwr_causal.sources.completed import (
    estimate_of,
    expected_products,
    own_products,
    sums_of_seen,
)

EM = {"missing_values": "em"}


def step(z, mean, second):
    """The expected sums of products of the rows [1, z], row by row; NaN are missing."""
    s = z.shape[1]
    found = np.zeros((1 + s, 1 + s))
    for row in z:
        seen = ~np.isnan(row)
        if not seen.any():
            continue
        lacking, full = ~seen, row.copy()
        pull = second[np.ix_(lacking, seen)] @ np.linalg.inv(second[np.ix_(seen, seen)])
        full[lacking] = mean[lacking] + pull @ (row - mean)[seen]
        found += products(full[None])
        left = second[np.ix_(lacking, lacking)] - pull @ second[np.ix_(seen, lacking)]
        found[1:, 1:][np.ix_(lacking, lacking)] += left
    return found


def estimated(z):
    """Mean and second moments of maximum likelihood, by plain steps."""
    mean, second = np.nanmean(z, axis=0), np.diag(np.nanvar(z, axis=0))
    for _ in range(60):
        before = second
        mean, second = mean_and_second(step(z, mean, second))
        if np.abs(second - before).max() < 1e-5 * np.abs(second).max():
            break
    return mean, second


def chain(n, seed, scales):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    x[:, 1] += x[:, 0]
    x[:, 2] += x[:, 1]
    return (x + 1) * scales


def with_gaps(rows, share, seed=0):
    return np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)


ROWS = with_gaps(chain(150, 0, (1.0, 20.0, 0.1)), 0.2)
ROWS[[3, 90]] = np.nan  # of these no cell is seen
SEEN = ~np.isnan(ROWS)
TABLES = [pd.DataFrame(ROWS[i:j], columns=list("abc")) for i, j in pairwise((0, 40, 90, 150))]
FOUND = pooled(TABLES, **EM)
MEAN, SECOND = estimated(ROWS)
SPREAD = np.sqrt(np.diagonal(SECOND))


def close(found, expected, spread):
    """Within 2e-3 of the units of the columns [1, z]."""
    own = np.append(1.0, spread)
    np.testing.assert_allclose(found / np.outer(own, own), expected / np.outer(own, own), atol=2e-3)


@pytest.mark.parametrize("standardize", [False, True])
def test_products_are_those_of_the_estimate_of_all_rows(standardize):
    found = pooled(TABLES, standardize=True, **EM) if standardize else FOUND
    scale = SPREAD if standardize else np.ones(3)
    level = (MEAN - np.nanmean(ROWS, axis=0)) / scale
    expected = np.pad(SECOND / np.outer(scale, scale), (1, 0))
    expected += np.outer(np.append(1, level), np.append(1, level))
    close(found.values[0], expected, SPREAD / scale)
    assert found.values[0, 0, 0] == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(found.agreement.variance, SPREAD**2, rtol=4e-3)
    np.testing.assert_allclose(found.design.scale, scale, rtol=2e-3)


def test_rows_are_counted_in_two_ways():
    """Those of which a cell is seen, and the mean number of rows that have two columns."""
    assert FOUND.num_rows == SEEN.any(axis=1).sum() == 148
    together = SEEN.T.astype(int) @ SEEN
    assert FOUND.agreement.n == round(together[~np.eye(3, dtype=bool)].mean())
    told = FOUND.adapted(SimpleNamespace(with_rows_together=lambda counts: counts))
    for own in told:
        np.testing.assert_allclose(own, together, atol=1e-6)


def test_rows_of_a_party_that_is_lost_are_not_counted():
    tables = [*TABLES, TABLES[0]]
    options = {"secure_aggregation": True, "min_parties": 3, **EM}
    found = pooled(tables, grid=losing({(1, False): [1]}), **options)
    kept = np.concatenate([tables[k].to_numpy() for k in (0, 2, 3)])
    assert found.num_rows == (~np.isnan(kept)).any(axis=1).sum()
    mean, second = estimated(kept)
    own_mean, own_second = mean_and_second(found.values[0])
    close(own_second, second, np.sqrt(np.diagonal(second))[1:])
    np.testing.assert_allclose(own_mean + found.agreement.mean, mean, atol=2e-3 * SPREAD.max())


def test_lags_have_the_units_of_their_variables():
    series = [chain(60, seed, (1.0, 20.0, 0.1)).cumsum(axis=0) / 5 for seed in range(2)]
    series = [with_gaps(own, 0.1, seed) for seed, own in enumerate(series)]
    tables = [pd.DataFrame(own, columns=list("abc")) for own in series]
    found = pooled(tables, order=1, **EM)
    now = np.concatenate([own[1:] for own in series])
    z = lagged_rows([own - np.nanmean(now, axis=0) for own in series], 1)
    mean, second = estimated(z)
    spread = np.sqrt(np.diagonal(second))
    own_mean, own_second = mean_and_second(found.values[0])
    np.testing.assert_allclose(
        own_second / np.outer(spread, spread), second / np.outer(spread, spread), atol=5e-3
    )
    np.testing.assert_allclose(own_mean / spread, mean / spread, atol=5e-3)


def test_categories_take_part():
    states = np.array(["u", "v", None, "w", "u"], dtype=object)[np.arange(150) * 7 % 5]
    tables = [
        one.assign(k=states[one_rows])
        for one, one_rows in zip(TABLES, np.split(np.arange(150), (40, 90)), strict=True)
    ]
    found = pooled(tables, text_columns="keep", **EM)
    numbers = (ROWS - np.nanmean(ROWS, axis=0)) / np.nanstd(ROWS, axis=0)
    known = np.array([state is not None for state in states])
    marks = np.column_stack([states == "u", states == "v"]).astype(float)
    marks[~known] = np.nan
    mean, second = estimated(np.column_stack([numbers, marks]))
    expected = np.pad(second, (1, 0)) + np.outer(np.append(1, mean), np.append(1, mean))
    close(found.values[0], expected, np.ones(5))


def test_parties_that_lack_columns_count_by_their_rows(monkeypatch):
    """Their own products are sums over their rows, of which a cell is seen."""
    told = []

    def kept(own, *given):
        told.extend(own := list(own))
        return original(own, *given)

    original = lacking.column_sets
    monkeypatch.setattr(lacking, "column_sets", kept)
    tables = [TABLES[0], TABLES[1][["a", "b"]], TABLES[2][["b", "c"]]]
    found = pooled(tables, unshared_columns="keep", **EM)
    rows = [table.notna().any(axis=1).sum() for table in tables]
    np.testing.assert_allclose([own[0, 0] for own in told], rows)
    assert found.num_rows == sum(rows)
    # Of the columns that a party lacks there are none.
    assert not told[1][3].any()
    assert not told[2][1].any()


def few_together():
    """Two columns that no more than some rows have together."""
    rows = chain(150, 1, (1.0, 1.0, 1.0))
    rows[:70, 0], rows[80:, 2] = np.nan, np.nan
    return [pd.DataFrame(rows[i::2], columns=list("abc")) for i in range(2)]


@pytest.mark.parametrize("required", [False, True])
def test_required_edges_stay_where_few_rows_have_both(required):
    known = {"knowledge": Knowledge(required=[("a", "c")])} if required else {}
    found = pooled(few_together(), **known, **EM)
    assert found.masks.allowed[0, 2] == required
    assert not found.masks.allowed[2, 0]
    assert found.masks.allowed[0, 1]
    assert any("have both columns of 1 pairs: 'a' and 'c'" in one for one in found.warnings)


def test_pairs_with_few_rows_are_those_of_variables():
    """Whose columns are further on where a category has several."""
    states = np.array(["u", "v", "w"])[np.arange(75) % 3]
    tables = [one.assign(k=states)[["k", "a", "b", "c"]] for one in few_together()]
    found = pooled(tables, text_columns="keep", **EM)
    expected = ~np.eye(4, dtype=bool)
    expected[1, 3] = expected[3, 1] = False
    np.testing.assert_array_equal(found.masks.allowed, expected)


ON = np.array(["", "a", "c; b"])[np.arange(150) % 3]
TARGETED = [one.assign(on=own) for one, own in zip(TABLES, np.split(ON, (40, 90)), strict=True)]


def test_rows_together_are_those_in_which_a_variable_is_no_target():
    found = pooled(TARGETED, intervention_column="on", **EM)
    targets = found.agreement.targets
    told = found.adapted(SimpleNamespace(with_rows_together=lambda counts: counts))
    for own, outside in zip(told, (ON != "a", ON != "c; b", ON != "c; b"), strict=True):
        marks = SEEN[outside].astype(int)
        np.testing.assert_allclose(own, marks.T @ marks, atol=1e-6)
    stated = [{(): "", ("a",): "a"}.get(own, "c; b") for own in targets]
    rows = [(SEEN.any(axis=1) & np.equal(ON, one)).sum() for one in stated]
    np.testing.assert_allclose(found.values[:, 0, 0], np.array(rows) / 148)


# -- a party's answers -----------------------------------------------------------------------------

SETS = [with_gaps(chain(12, 5 + k, np.ones(3)) - k, 0.2, k) for k in range(2)]
#: In two pieces; 30 rows, of which some are in no set.
PARTY = SimpleNamespace(
    num_rows=30,
    setup=SimpleNamespace(num_rows=99, targets=(), options=SimpleNamespace(levels=False)),
    rows_by_targets=lambda: iter([[one[:5] for one in SETS], [one[5:] for one in SETS]]),
    sum_rows=lambda: iter([SETS[0][:5], SETS[0][5:]]),
)
ESTIMATE = {
    "mean": np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 0.5]]),
    "second": np.array([np.eye(3) + 0.5, 2 * np.eye(3) - 0.3]),
}


def test_a_step_has_an_estimate_for_each_set():
    sent = expected_products(PARTY, {**ESTIMATE, "levels": 0})["expected"]
    for own, rows, mean, second in zip(sent, SETS, *ESTIMATE.values(), strict=True):
        np.testing.assert_allclose(own, step(rows, mean, second) / 30, atol=1e-12)


def test_seen_cells_are_counted_by_set():
    sent = sums_of_seen(PARTY, {})
    for k, rows in enumerate(SETS):
        seen, filled = (~np.isnan(rows)).astype(float), np.nan_to_num(rows)
        np.testing.assert_allclose(sent["counts"][k], seen.T @ seen / 30)
        # At [i, j] the sum of the column i over the rows that have both.
        np.testing.assert_allclose(sent["sums"][k], filled.T @ seen / 30)
        np.testing.assert_allclose(sent["products"][k], filled.T @ filled / 30)


def test_products_of_a_party_are_by_its_own_estimate():
    """Where it has rows enough; of fewer it is one step from the common estimate."""
    few = SimpleNamespace(num_rows=12, sum_rows=PARTY.sum_rows)
    one = {name: own[:1] for name, own in ESTIMATE.items()}
    sent = own_products(few, one)["expected"]
    np.testing.assert_allclose(
        sent, step(SETS[0], one["mean"][0], one["second"][0]) / 12, atol=1e-12
    )
    many = SimpleNamespace(num_rows=200, sum_rows=lambda: iter([ROWS[:75], ROWS[75:]]))
    start = {"mean": MEAN[None] + 0.1, "second": SECOND[None] * 2}
    sent = own_products(many, start)["expected"]
    assert sent[0, 0] == pytest.approx(148 / 200)
    mean, second = mean_and_second(sent)
    np.testing.assert_allclose(mean / SPREAD, MEAN / SPREAD, atol=2e-3)
    close(second, SECOND, SPREAD[1:])


@pytest.mark.parametrize("wrong", ["not symmetric", "not positive"])
def test_an_estimate_that_is_none_is_refused(wrong):
    second = np.eye(3)[None].repeat(2, axis=0)
    if wrong == "not symmetric":
        second[1, 0, 2] = 0.1
    else:
        second[1, 2, 2] = 0.0
    with pytest.raises(FederationError, match="none of any rows"):
        estimate_of({"mean": np.zeros((2, 3)), "second": second})
    found = estimate_of(ESTIMATE)
    np.testing.assert_array_equal(found.second, ESTIMATE["second"])
