"""Moments of time series with missing cells: ``missing_values="em"`` with an order."""

import numpy as np
import pandas as pd
import pytest
from worlds_of_blocks import mixed_series

from flwr_causal import DataError, simulate
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.series.design import lagged_rows
from flwr_causal.data.synthetic.series import federated_dynamic

EM = {"missing_values": "em"}
COMPLETE, TRUTH = federated_dynamic(5, 600, 3, series_per_party=2, seed=1)


def with_gaps(parties, share, seed=0):
    rng = np.random.default_rng(seed)
    return [[one.mask(rng.random(one.shape) < share) for one in party] for party in parties]


def found(parties, order=1, **options):
    return simulate("moments", parties, order=order, **options)


def estimated(series, order, steps=400):
    """Mean and covariance of the pooled rows by textbook steps, row by row."""
    rows = lagged_rows([one.to_numpy() for one in series], order)
    mean, second = np.nanmean(rows, axis=0), np.diag(np.nanvar(rows, axis=0))
    for _ in range(steps):
        sums, products = np.zeros(len(mean)), np.zeros_like(second)
        for row in rows:
            lacking = np.isnan(row)
            seen = ~lacking
            full, spread = row.copy(), np.zeros_like(second)
            if lacking.any():
                pull = second[np.ix_(lacking, seen)] @ np.linalg.inv(second[np.ix_(seen, seen)])
                full[lacking] = mean[lacking] + pull @ (row[seen] - mean[seen])
                spread[np.ix_(lacking, lacking)] = (
                    second[np.ix_(lacking, lacking)] - pull @ second[np.ix_(seen, lacking)]
                )
            sums += full
            products += np.outer(full, full) + spread
        before = second
        mean = sums / len(rows)
        second = products / len(rows) - np.outer(mean, mean)
        if np.abs(second - before).max() < 1e-9:
            break
    return mean, second


def test_the_moments_are_those_of_textbook_steps_on_the_pooled_rows():
    parties = with_gaps([[one[:60] for one in party] for party in COMPLETE], 0.1)
    run = found(parties, solver="order", **EM)
    moments = run.model.sample_moments
    names = list(run.graph.names)
    mean, second = estimated([one[names] for party in parties for one in party], 1)
    units = np.sqrt(np.diagonal(second))
    # An exchange is a step: the steps end once nothing changes by .001.
    np.testing.assert_allclose((moments.mean - mean) / units, 0, atol=4e-3)
    np.testing.assert_allclose((moments.second - second) / np.outer(units, units), 0, atol=4e-3)
    assert moments.together is not None
    assert moments.together.shape == (10, 10)


def test_gaps_cost_little_where_dropped_steps_cost_much():
    """At 15 % missing cells of five columns a fifth of the steps have all cells of two steps."""
    parties = with_gaps(COMPLETE, 0.15, seed=3)
    names = list(TRUTH.names)
    truth = np.concatenate([TRUTH.weights, *TRUTH.lagged])

    def error(run):
        order = [run.graph.names.index(name) for name in names]
        both = np.ix_(order, order)
        weights = [run.graph.weights[both], *[part[both] for part in run.graph.lagged]]
        return np.abs(np.concatenate(weights) - truth).mean()

    kept, dropped = found(parties, **EM), found(parties, missing_values="drop")
    complete = found(COMPLETE)
    assert kept.num_rows > 3 * dropped.model.sample_moments.n
    assert error(complete) <= error(kept) * 1.2
    assert error(kept) < 0.7 * error(dropped)


def test_categories_take_part():
    table, now, past = mixed_series(6, 1500, seed=1)
    holes = table.astype(object).mask(np.random.default_rng(0).random(table.shape) < 0.1)
    numbers = table.select_dtypes("number").columns
    holes[numbers] = holes[numbers].astype(float)
    series = [holes.iloc[k : k + 500].reset_index(drop=True) for k in range(0, 1500, 500)]
    run = found(series, text_columns="keep", **EM)
    assert run.graph.kind == "cpdag"
    assert ((run.graph.lagged[0] != 0) != (past > 0)).sum() <= 3
    assert (run.graph.adjacency != (now > 0)).sum() <= 2


def test_longer_steps_begin_new_series_as_without_gaps():
    (one,), *_ = with_gaps([[COMPLETE[0][0]]], 0.1)
    time = np.arange(len(one), dtype=float)
    middle = len(one) // 2
    time[middle:] += 7
    timed = one.assign(time=time)
    run = found([timed], time_column="time", gaps="split", **EM)
    cut = [part.reset_index(drop=True) for part in (one.iloc[:middle], one.iloc[middle:])]
    other = found([cut], **EM)
    np.testing.assert_allclose(run.graph.lagged, other.graph.lagged, atol=1e-8)
    with pytest.raises(DataError, match="later than the previous row"):
        found([timed], time_column="time", **EM)


def test_moments_of_the_lagged_design_know_their_rows():
    parties = with_gaps(COMPLETE, 0.2, seed=5)
    run = found(parties, **EM)
    rows = sum(len(one) - 1 for party in parties for one in party)
    names = list(run.graph.names)
    stacked = lagged_rows([one[names].to_numpy() for party in parties for one in party], 1)
    seen = (~np.isnan(stacked)).astype(float)
    np.testing.assert_allclose(run.model.sample_moments.together, seen.T @ seen)
    assert run.num_rows <= rows
    assert isinstance(run.model.sample_moments, SampleMoments)
    assert isinstance(parties[0][0], pd.DataFrame)
