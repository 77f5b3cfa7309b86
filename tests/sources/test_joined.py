"""Parties that hold different columns: what the server has is what the joined rows give."""

import numpy as np
import pandas as pd
import pytest
from pooled import pooled, products

from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.sources.joined import _products

NAMES = list("abcd")
N = 90
RNG = np.random.default_rng(8)
ROWS = RNG.normal(size=(N, 4)) @ (np.eye(4) + np.triu(np.full((4, 4), 0.5), 1))
ROWS = (ROWS + np.arange(4)) * (1.0, 30.0, 0.2, 5.0)
TABLE = pd.DataFrame(ROWS, columns=NAMES).assign(row=[f"p{k}" for k in range(N)])
VERTICAL = [TABLE[["row", "a", "b"]], TABLE[["row", "c", "d"]][::-1]]
#: All cells are known, some of them to two parties: their rows count twice in what they report.
OVERLAPPING = [*VERTICAL, TABLE[["row", "b", "c"]][60:]]


def close(found, expected, spread):
    own = np.append(1.0, spread)
    np.testing.assert_allclose(found / np.outer(own, own), expected / np.outer(own, own), atol=1e-5)


@pytest.mark.parametrize("tables", [VERTICAL, OVERLAPPING], ids=["two", "overlapping"])
@pytest.mark.parametrize("standardize", [False, True])
def test_numbers(tables, standardize):
    found = pooled(tables, row_id="row", standardize=standardize)
    order = [NAMES.index(name) for name in found.agreement.names]
    rows = ROWS[:, order]
    z = rows - rows.mean(axis=0)
    z = z / z.std(axis=0) if standardize else z
    close(found.values[0], products(z) / N, z.std(axis=0))
    np.testing.assert_allclose(found.agreement.mean, rows.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.agreement.variance, rows.var(axis=0), rtol=1e-5)
    np.testing.assert_allclose(
        found.design.scale, rows.std(axis=0) if standardize else 1, rtol=1e-5
    )
    assert found.agreement.n == found.num_rows == N


def test_each_product_has_the_rows_that_know_both_columns():
    """The number of rows is that of the pair that is known in the fewest; others are more."""
    tables = [TABLE[["row", "a", "b"]], TABLE[["row", "c"]][20:], TABLE[["row", "d"]][:80]]
    found = pooled(tables, row_id="row")
    assert (found.agreement.n, found.num_rows) == (60, N)
    assert found.values[0, 0, 0] == 1
    both = np.cov(ROWS[20:, [0, 2]], rowvar=False, bias=True)[0, 1]
    assert found.moments.second[0, 2] == pytest.approx(both, rel=1e-4)


def test_categories_and_functions_have_their_holders():
    states = np.array(["u", "v", "w"])[np.arange(N) * 5 % 3]
    tables = [VERTICAL[0].assign(k=states), VERTICAL[1]]
    found = pooled(tables, row_id="row", text_columns="keep")
    z = (ROWS - ROWS.mean(axis=0)) / ROWS.std(axis=0)
    by_name = {**dict(zip(NAMES, z.T, strict=True)), "k=u": states == "u", "k=v": states == "v"}
    assert set(found.design.columns) == set(by_name)
    rows = np.column_stack([by_name[name] for name in found.design.columns])
    close(found.values[0], products(rows) / N, np.ones(6))
    found = pooled(VERTICAL, row_id="row", model="curved")
    curved = np.stack([z, np.tanh(1.5 * z), np.exp(-(z**2) / 2)], axis=2).reshape(N, 12)
    close(found.values[0], products(curved) / N, np.ones(12))


# -- series ----------------------------------------------------------------------------------------

STEPS = np.array_split(np.cumsum(RNG.normal(size=(120, 4)), axis=0) * (1.0, 30.0, 0.2, 5.0), 3)
SERIES = pd.concat(
    [
        pd.DataFrame(one, columns=NAMES).assign(
            ward=k, day=np.arange(40), row=np.arange(40) + 99 * k
        )
        for k, one in enumerate(STEPS)
    ]
)
ROLES = ["ward", "day", "row"]
LAYOUT = {"order": 2, "series_column": "ward", "time_column": "day", "row_id": "row"}
OF_SERIES = [SERIES[[*ROLES, *own]] for own in (["a", "b"], ["c", "d"])]
#: The steps of the third series count twice in the means and variances that parties report.
TWICE = [*OF_SERIES, SERIES.loc[SERIES["ward"] == 2, [*ROLES, "a", "b", "d"]]]


def lagged(center):
    """The rows of the pooled series with their lags, series by series."""
    now = np.concatenate([one[2:] for one in STEPS])
    level = [one.mean(axis=0) if center == "series" else now.mean(axis=0) for one in STEPS]
    return [
        np.column_stack([(one - own)[2 - lag : 40 - lag] for lag in range(3)])
        for one, own in zip(STEPS, level, strict=True)
    ]


@pytest.mark.few(3)
@pytest.mark.parametrize("tables", [OF_SERIES, TWICE], ids=["two", "overlapping"])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("center", ["global", "series"])
def test_lags_are_about_the_level_of_their_variables(center, standardize, tables):
    found = pooled(tables, center=center, standardize=standardize, **LAYOUT)
    z = np.concatenate(lagged(center))
    # The scale is the root mean square of a variable's centred steps.
    scale = np.sqrt((z[:, :4] ** 2).mean(axis=0)) if standardize else np.ones(4)
    z = z / np.tile(scale, 3)
    close(found.values[0], products(z) / len(z), np.sqrt((z**2).mean(axis=0)))
    np.testing.assert_allclose(found.design.scale, scale, rtol=1e-5)
    assert found.agreement.n == len(z)
    assert found.design.columns[4] == "a[t-1]"


@pytest.mark.parametrize("center", ["global", "series"])
def test_folds_add_up_to_all_rows(center):
    found = pooled(OF_SERIES, sparsity="held-out", solver="dagma", center=center, **LAYOUT)
    assert len(found.values) == 5
    z = np.concatenate(lagged(center))
    spread = np.sqrt((z**2).mean(axis=0))
    close(found.values.sum(axis=0), products(z) / len(z), spread)
    assert (found.values[:, 0, 0] * 114 > 20).all()


def test_a_replicate_is_drawn_from_all_folds():
    options = {"sparsity": "held-out", "solver": "dagma", "replicates": 1, **LAYOUT}
    found = pooled(OF_SERIES, replicate=1, **options)
    assert found.agreement.n == 114
    assert found.values.shape == (1, 13, 13)
    assert found.values[0, 0, 0] == pytest.approx(1)


def test_products_of_a_fold_by_hand():
    x = RNG.normal(size=(6, 2)) + 3
    level, units = np.array([1.0, 2.0]), np.array([0.5, 4.0])
    found = _products(SampleMoments.from_rows(x), 15, level, units)
    np.testing.assert_allclose(found, products((x - level) * units) / 15, atol=1e-12)
