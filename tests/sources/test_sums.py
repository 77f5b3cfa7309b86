"""Exact sums: what the server has is what the rows of all parties in one place give."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from federations import losing, make_federation
from pooled import pooled, products

from flwr_causal.core.blocks.design import Category, Design
from flwr_causal.core.folds import split_rows, stretches
from flwr_causal.core.series.design import lagged_rows
from flwr_causal.data.read import pieces

FED = make_federation(d=3, n=120, parties=3, seed=2)
#: In other units, and with other means, than those of the simulation.
TABLES = [table * (1.0, 20.0, 0.1) + (k, 0.0, 5.0) for k, table in enumerate(FED.tables)]
TABLES = [one.iloc[: 40 - 7 * k] for k, one in enumerate(TABLES)]
ROWS = np.concatenate([one.to_numpy() for one in TABLES])
N = len(ROWS)


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


def in_pieces(monkeypatch):
    """Let tables be read in pieces of some rows."""
    monkeypatch.setattr(pieces, "PIECE", 30)


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("center", ["global", "party"])
def test_numbers(center, standardize, small, monkeypatch):
    if small:
        in_pieces(monkeypatch)
    found = pooled(TABLES, center=center, standardize=standardize)
    level = [ROWS if center == "global" else one.to_numpy() for one in TABLES]
    z = np.concatenate([one - own.mean(axis=0) for one, own in zip(TABLES, level, strict=True)])
    # With center="party" the variances are those within parties, a row less for each but one.
    rows = N if center == "global" else N - len(TABLES) + 1
    z = z * np.sqrt(N / rows)
    z = z / z.std(axis=0) if standardize else z
    assert found.values.shape == (1, 4, 4)
    close(found.values[0], products(z) / N)
    assert found.agreement.n == rows
    close(found.moments.second, np.cov(z, rowvar=False, bias=True))


@pytest.mark.parametrize(
    ("model", "functions", "center"),
    [("curved", 3, "global"), ("additive", 5, "global"), ("additive", 5, "party")],
)
def test_functions_of_standardised_numbers(model, functions, center):
    found = pooled(TABLES, model=model, center=center)
    level = [ROWS if center == "global" else one.to_numpy() for one in TABLES]
    z = np.concatenate([one - own.mean(axis=0) for one, own in zip(TABLES, level, strict=True)])
    z /= z.std(axis=0)
    every = [z, np.tanh(1.5 * z), np.exp(-(z**2) / 2), np.tanh(2 * (z - 1)), np.tanh(2 * (z + 1))]
    rows = np.stack(every[:functions], axis=2).reshape(N, 3 * functions)
    close(found.values[0], products(rows) / N)
    assert found.design.widths == [functions] * 3


MIXED = [
    one.assign(k=np.array(["u", "v", "w"])[(np.arange(len(one)) * (j + 1)) % 3])
    for j, one in enumerate(TABLES)
]


@pytest.mark.parametrize("small", [False, True])
def test_categories_beside_numbers(small, monkeypatch):
    if small:
        in_pieces(monkeypatch)
    found = pooled(MIXED, text_columns="keep", center="global")
    z = (ROWS - ROWS.mean(axis=0)) / ROWS.std(axis=0)
    k = pd.concat(MIXED)["k"].to_numpy()
    close(found.values[0], products(np.column_stack([z, k == "u", k == "v"])) / N)
    assert found.design.columns == ("x0", "x1", "x2", "k=u", "k=v")
    assert found.design.variables[3] == Category("k", ("u", "v", "w"), "str")


@pytest.mark.parametrize("small", [False, True])
def test_held_out_rows_are_the_second_set(small, monkeypatch):
    if small:
        in_pieces(monkeypatch)
    found = pooled(TABLES, sparsity="held-out", solver="dagma", seed=5)
    seen = np.zeros((2, 4, 4))
    for one in TABLES:
        z = one.to_numpy() - ROWS.mean(axis=0)
        for fold, rows in enumerate(split_rows(len(z), 5)):
            seen[fold] += products(z[rows]) / N
    close(found.values, seen)
    assert seen[0, 0, 0] > 0.7


TARGETED = [
    one.assign(on=np.array(["", "x0", "x2; x1"])[(np.arange(len(one)) + j) % 3])
    for j, one in enumerate(TABLES)
]
TARGETED[2] = TARGETED[2][TARGETED[2]["on"] != "x0"]


@pytest.fixture
def as_stated(monkeypatch):
    """Leave the targets as they are stated, though here the causes of most still act."""
    name = "flwr_causal.strategies.moments.moments.with_kept_mechanisms"
    monkeypatch.setattr(name, lambda pooled, options: pooled)


@pytest.mark.usefixtures("as_stated")
@pytest.mark.parametrize("small", [False, True])
def test_a_set_for_each_set_of_targets(small, monkeypatch):
    if small:
        in_pieces(monkeypatch)
    found = pooled(TARGETED, intervention_column="on")
    every = pd.concat(TARGETED)
    z = every[["x0", "x1", "x2"]].to_numpy()
    z = z - z.mean(axis=0)
    sets = {"": (), "x0": ("x0",), "x2; x1": ("x1", "x2")}
    assert set(found.agreement.targets) == set(sets.values())
    for own, targets in zip(found.values, found.agreement.targets, strict=True):
        close(own, products(z[(every["on"].map(sets) == targets).to_numpy()]) / len(z))


@pytest.mark.usefixtures("as_stated")
def test_a_set_that_only_dropped_rows_have_is_none():
    lacking = [one.assign(x0=one["x0"].where(one["on"] != "x2; x1")) for one in TARGETED]
    found = pooled(lacking, intervention_column="on", missing_values="drop")
    assert set(found.agreement.targets) == {(), ("x0",)}
    every = pd.concat(lacking).dropna()
    z = every[["x0", "x1", "x2"]].to_numpy()
    z = z - z.mean(axis=0)
    for own, targets in zip(found.values, found.agreement.targets, strict=True):
        close(own, products(z[(every["on"] == "".join(targets)).to_numpy()]) / len(z))


@pytest.mark.usefixtures("as_stated")
def test_few_rows_of_a_set_are_withheld():
    """A party with too few rows of a set sends none of them, and the others' still count."""
    options = {"intervention_column": "on", "minimum_count": 12, "small_counts": "suppress"}
    counts = [table["on"].value_counts() for table in TARGETED]
    assert counts[1]["x0"] < 12 <= counts[0]["x0"]
    found = pooled(TARGETED, **options)
    place = found.agreement.targets.index(("x0",))
    rows = sum(map(len, TARGETED))
    assert found.values[place, 0, 0] * rows == pytest.approx(counts[0]["x0"])


@pytest.mark.parametrize("secure", [False, True])
def test_rows_of_a_party_that_is_lost_are_in_no_sum(secure):
    tables = [*TABLES, 2 * TABLES[0]]
    options = {"secure_aggregation": True, "min_parties": 3} if secure else {}
    found = pooled(tables, center="global", grid=losing({(1, False): [2]}), **options)
    kept = np.concatenate([tables[k].to_numpy() for k in (0, 1, 3)])
    # Those of the others are centred by what was agreed on before.
    z = kept - found.agreement.mean
    np.testing.assert_allclose(found.values[0], products(z) / len(z), atol=1e-6)
    assert found.agreement.n == len(kept)


# -- series ----------------------------------------------------------------------------------------

SERIES_ROWS = np.cumsum(np.random.default_rng(0).normal(size=(110, 2)), axis=0) * (1.0, 30.0)
#: Three parties, of which the first two have two series.
STEPS = [
    pd.DataFrame(SERIES_ROWS[i:j], columns=["a", "b"]).assign(
        ward=k, pulse=np.arange(j - i) % 7 > 4
    )
    for k, (i, j) in enumerate(pairwise((0, 20, 45, 70, 85, 110)))
]
PARTIES = [pd.concat(STEPS[i:j], ignore_index=True) for i, j in pairwise((0, 2, 4, 5))]
ROLES = {"series_column": "ward", "phase_column": "pulse"}
OPTIONS = {"order": 2, "phase_column": "pulse", "series_column": "ward"}


def values_of(steps):
    return [one[["a", "b"]].to_numpy() for one in steps]


def lagged(order, level):
    """The rows of each series with their lags, less a level of the variables at t."""
    return [lagged_rows([one - level], order) for one in values_of(STEPS)]


def level_and_spread(order):
    """The mean and the deviations of the steps with all their lags."""
    now = np.concatenate([one[order:] for one in values_of(STEPS)])
    return now.mean(axis=0), now.std(axis=0)


@pytest.mark.parametrize("standardize", [False, True])
def test_lags_lie_lag_by_lag(standardize):
    found = pooled(
        PARTIES, order=2, series_column="ward", phase_column="pulse", standardize=standardize
    )
    level, spread = level_and_spread(2)
    z = np.concatenate(lagged(2, level)) / (np.tile(spread, 3) if standardize else 1)
    close(found.values[0], products(z) / len(z))
    assert found.design.columns == ("a", "b", "a[t-1]", "b[t-1]", "a[t-2]", "b[t-2]")


def test_folds_are_stretches_of_each_series():
    found = pooled(PARTIES, sparsity="held-out", solver="dagma", **OPTIONS)
    rows = lagged(2, level_and_spread(2)[0])
    # Folds are those of each party's series.
    folds = [
        stretches([len(one) for one in rows[i:j]], len(found.values))
        for i, j in pairwise((0, 2, 4, 5))
    ]
    z, folds = np.concatenate(rows), np.concatenate(folds)
    expected = [products(z[folds == k]) / len(z) for k in range(len(found.values))]
    close(found.values, np.array(expected))


def test_fewer_lags_have_further_rows():
    found = pooled(PARTIES, select_order=True, **{**OPTIONS, "order": 3})
    level = level_and_spread(3)[0]
    n = sum(len(one) - 3 for one in STEPS)
    close(found.values.sum(axis=0), products(np.concatenate(lagged(3, level))) / n)
    assert found.of_fewer_lags.shape == (2, 9, 9)
    for lags, own in enumerate(found.of_fewer_lags, 1):
        z = np.concatenate(lagged(lags, level))
        expected = np.zeros((9, 9))
        size = 1 + 2 * (1 + lags)
        expected[:size, :size] = products(z) / n
        close(own, expected)


def test_series_about_their_own_means():
    found = pooled(PARTIES, center="series", **OPTIONS)
    z = np.concatenate([lagged_rows([one - one.mean(axis=0)], 2) for one in values_of(STEPS)])
    close(found.values[0], products(z) / len(z))


def test_perturbed_rows_have_no_mark():
    found = pooled(PARTIES, center="phase", **OPTIONS)
    pulse = np.concatenate([one["pulse"].to_numpy()[2:] for one in STEPS])
    now = np.concatenate([one[2:] for one in values_of(STEPS)])
    rows = lagged(2, now[~pulse].mean(axis=0))
    for own, one in zip(rows, STEPS, strict=True):
        hit = one["pulse"].to_numpy()[2:]
        own[hit] -= own[hit].mean(axis=0)
    z = np.concatenate(rows)
    close(found.values[0], products(np.column_stack([~pulse, z])) / len(z))
    assert found.design.marked
    # Of the marked rows about their own mean, of the others about theirs: an intercept for each.
    z[~pulse] -= z[~pulse].mean(axis=0)
    close(found.moments.second, z.T @ z / len(z))


def test_marks_are_drawn_with_their_rows():
    """In a replicate too: of a variable that stands still while it is perturbed."""
    tables = [
        one.assign(a=np.where(one["pulse"], 9.0, np.where(np.arange(len(one)) % 2, 1.0, 2.5)))
        for one in PARTIES
    ]
    for replicate in (0, 1):
        found = pooled(tables, center="phase", replicates=1, replicate=replicate, **OPTIONS)
        # The mark is 0 where a is 0: products with the mark are those with the ones.
        assert found.values[0, 1, 2] == pytest.approx(found.values[0, 0, 2], abs=1e-12)
        assert 0.2 < found.values[0, 1, 1] < 0.95


@pytest.mark.parametrize("gaps", [False, True])
def test_categories_of_series(gaps):
    """Their states before the first row of the design are lags of others."""
    tables = [
        one.assign(k=np.array(["u", "v", "w"])[(np.arange(len(one)) // 2 + j) % 3])
        for j, one in enumerate(PARTIES)
    ]
    options = {**OPTIONS}
    if gaps:
        # A step without a value splits a series, and a series of two steps has no row.
        tables[0].loc[7, "a"] = np.nan
        short = tables[0].iloc[:2].assign(ward=9, a=[50.0, -60.0])
        tables[0] = pd.concat([short, tables[0]], ignore_index=True)
        options |= {"missing_values": "drop", "gaps": "split"}
    found = pooled(tables, text_columns="keep", **options)
    series = []
    for table in tables:
        for _, one in table.groupby("ward"):
            whole = one["a"].notna().to_numpy()
            cut = np.flatnonzero(~whole)
            parts = np.split(np.arange(len(one)), cut)
            series += [one.iloc[part[whole[part]]] for part in parts if len(part) > 2]
    now = pd.concat([one.iloc[2:] for one in series])[["a", "b"]]
    z = []
    for one in series:
        numbers = (one[["a", "b"]] - now.mean()) / now.std(ddof=0)
        own = np.column_stack([numbers, one["k"] == "u", one["k"] == "v"])
        z.append(lagged_rows([own.astype(float)], 2))
    z = np.concatenate(z)
    close(found.values[0], products(z) / len(z))
    assert found.design.widths == [1, 1, 2] * 3
    assert isinstance(found.design, Design)


@pytest.mark.usefixtures("as_stated")
def test_targets_of_series_are_those_of_the_step_itself():
    tables = [one.assign(on=np.where(np.arange(len(one)) % 5 == 0, "b", "")) for one in PARTIES]
    found = pooled(tables, intervention_column="on", **OPTIONS)
    hit = np.concatenate(
        [one["on"].to_numpy()[2:] == "b" for table in tables for _, one in table.groupby("ward")]
    )
    z = np.concatenate(lagged(2, level_and_spread(2)[0]))
    for own, targets in zip(found.values, found.agreement.targets, strict=True):
        close(own, products(z[hit if targets else ~hit]) / len(z))


@pytest.mark.usefixtures("as_stated")
def test_replicates_draw_as_many_rows_of_each_set():
    found = [pooled(TARGETED, intervention_column="on", replicates=1, replicate=k) for k in (0, 1)]
    counts = [one.values[:, 0, 0] for one in found]
    close(*counts)
    assert np.abs(found[0].values - found[1].values).max() > 1e-3


@pytest.mark.parametrize("kept", [False, True])
def test_replicates_draw_steps_with_their_lags(kept):
    """In every row a is larger by 1 than a step earlier; which rows are drawn differs."""
    tables = [one.assign(a=np.arange(len(one)) + 7.0) for one in PARTIES]
    tables = [one.assign(k=np.where(one["pulse"], "u", "v")) if kept else one for one in tables]
    options = {**OPTIONS, "replicates": 1, **({"text_columns": "keep"} if kept else {})}
    first, drawn = (pooled(tables, replicate=k, **options) for k in (0, 1))
    s = len(first.values[0]) // 3
    # The product of a row [1, z] and this is a at t, less a one step earlier.
    steps = np.zeros(1 + 3 * s)
    steps[[1, 1 + s]] = np.array([1, -1]) * first.design.scale[0]
    for own in (first, drawn):
        assert steps @ own.values[0, 0] == pytest.approx(1)
        assert steps @ own.values[0] @ steps == pytest.approx(1)
    assert np.abs(first.values - drawn.values).max() > 1e-3
