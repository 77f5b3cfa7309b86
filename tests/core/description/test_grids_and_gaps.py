"""Grids, quantiles on them, and patterns of gaps, against numpy and counting by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.description.description import (
    NumberSums,
    likely_patterns,
    of_numbers,
    of_states,
    pattern_counts,
)
from flwr_causal.core.description.grids import (
    NUM_PLACES,
    StepGrid,
    grid_of,
    place_edges,
    quantile,
    rows_below,
    rows_below_steps,
)

BINS = 256
NOTHING = (np.zeros(0), np.zeros(0, dtype=np.int64))


def gridded(values, bins=BINS, *, whole=False):
    edges = place_edges(np.array([values.mean()]), np.array([values.std()]))[0]
    grid = grid_of(edges, rows_below(values, edges), bins, whole=whole)
    return grid, rows_below_steps(values, grid, bins)


COLUMNS = {
    "normal": lambda rng: rng.normal(size=4000),
    "far from 0": lambda rng: 1e6 + rng.normal(size=4000),
    "tiny": lambda rng: 1e-9 * rng.normal(size=4000),
    "lognormal": lambda rng: np.exp(1.5 * rng.normal(size=4000)),
    "cauchy": lambda rng: rng.standard_cauchy(4000),
    "uniform": lambda rng: rng.uniform(3, 4, 4000),
    "with codes": lambda rng: np.where(rng.random(4000) < 0.03, -999, rng.normal(170, 10, 4000)),
    "with one huge value": lambda rng: np.append(rng.normal(170, 10, 3999), 1e9),
    "two groups": lambda rng: rng.normal(size=4000) + 50 * (rng.random(4000) < 0.5),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("seed", range(3))
def test_quantiles_are_numpys_to_a_step(name, seed):
    values = COLUMNS[name](np.random.default_rng(seed))
    grid, below = gridded(values)
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        found = quantile(grid, below, NOTHING, len(values), share, whole=False)
        near = np.quantile(values, [share - 1 / len(values), share + 1 / len(values)])
        assert near[0] - grid.width <= found <= near[1] + grid.width, (share, grid)


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "cauchy"])
def test_the_grid_is_not_wider_than_a_few_times_the_rows_within(name):
    """A far code, a huge value or an offset costs no resolution."""
    values = COLUMNS[name](np.random.default_rng(1))
    grid, _ = gridded(values)
    low, high = np.quantile(values, [0.06, 0.94])
    tail = 40 if name == "lognormal" else 8
    assert BINS * grid.width <= tail * (high - low)


@given(
    st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=60), st.floats(-1e9, 1e9), st.booleans()
)
def test_counts_below_edges_are_those_of_counting(values, mean, whole):
    values = np.array(values)
    edges = place_edges(np.array([mean]), np.array([abs(mean) / 3]))[0]
    assert edges.shape == (NUM_PLACES,)
    assert (np.diff(edges) >= 0).all()
    below = rows_below(values, edges)
    assert below.tolist() == [(values < edge).sum() for edge in edges]
    grid = grid_of(edges, below, 16, whole=whole)
    assert grid.width > 0
    counted = rows_below_steps(values, grid, 16)
    assert (np.diff(counted) >= 0).all()
    step = np.floor((values - grid.lowest) / grid.width)
    assert counted.tolist() == [(step < k).sum() for k in range(17)]


def test_whole_numbers_have_a_step_each_and_exact_quantiles():
    values = np.random.default_rng(0).poisson(4, 999).astype(float)
    grid, below = gridded(values, whole=True)
    assert grid.width == 1.0
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert quantile(grid, below, NOTHING, 999, share, whole=True) == np.quantile(
            values, share, method="inverted_cdf"
        )


def test_a_quantile_outside_the_grid_is_not_known():
    below = np.array([10, 60, 90])
    grid = StepGrid(0.0, 1.0)
    assert quantile(grid, below, NOTHING, 100, 0.05, whole=False) is None
    assert quantile(grid, below, NOTHING, 100, 0.95, whole=False) is None
    assert quantile(grid, below, NOTHING, 100, 0.35, whole=False) == pytest.approx(0.5)
    assert quantile(grid, np.array([0, 0, 0]), NOTHING, 0, 0.5, whole=False) is None


def test_patterns_of_blocks_of_pairs_and_of_single_columns_are_found_and_counted():
    rng = np.random.default_rng(0)
    missing = np.zeros((500, 12), dtype=bool)
    missing[:40, [1, 2, 3]] = True  # a questionnaire that was not filled in
    missing[40:70, 5] = True
    missing[70:75, [5, 7]] = True
    missing = missing[rng.permutation(500)]
    both = missing.astype(int).T @ missing.astype(int)
    patterns = likely_patterns(both)
    assert len(np.unique(patterns, axis=0)) == len(patterns)
    counts = {
        tuple(np.flatnonzero(one)): count
        for one, count in zip(patterns, pattern_counts(missing, patterns), strict=True)
        if count
    }
    assert counts == {(): 425, (1, 2, 3): 40, (5,): 30, (5, 7): 5}


def test_differences_are_effects_and_not_chance():
    rng = np.random.default_rng(0)

    def sums(values):
        squares = ((values - values.mean()) ** 2).sum()
        return NumberSums(rows=len(values), mean=values.mean(), squares=squares)

    rows = {f"p{k}": rng.normal(10, 2, 400) for k in range(4)}
    assert of_numbers("x", {party: sums(own) for party, own in rows.items()}) == []
    rows["p3"] = 2 * rows["p3"] - 7
    found = of_numbers("x", {party: sums(own) for party, own in rows.items()})
    of_p3 = {one.what: one for one in found if one.party == "p3"}
    others = np.concatenate([rows[f"p{k}"] for k in range(3)])
    pooled = np.sqrt((sums(rows["p3"]).squares + sums(others).squares) / (1600 - 2))
    assert of_p3["mean"].effect == pytest.approx((rows["p3"].mean() - others.mean()) / pooled)
    assert of_p3["mean"].others == pytest.approx(others.mean())
    assert of_p3["deviation"].others == pytest.approx(others.std(ddof=1))
    assert of_p3["deviation"].effect == pytest.approx(
        np.log(rows["p3"].std(ddof=1) / others.std(ddof=1))
    )
    counts = {"a": np.array([90, 10]), "b": np.array([50, 50]), "c": np.array([49, 51])}
    unlike = {one.party: one.effect for one in of_states("sex", counts)}
    assert unlike["a"] == pytest.approx(0.9 - 99 / 200)
    assert of_states("sex", {"a": np.array([5, 5]), "b": np.array([6, 4])}) == []


def test_a_coarse_grid_tells_where_in_a_step_most_rows_are():
    """Of a skewed column most rows are in the first step."""
    values = np.random.default_rng(0).lognormal(8, 2.5, 20_000)
    edges = place_edges(np.array([values.mean()]), np.array([values.std()]))[0]
    places = rows_below(values, edges)
    grid = grid_of(edges, places, 256, whole=False)
    below = rows_below_steps(values, grid, 256)
    for share in (0.05, 0.25, 0.5):
        right = np.quantile(values, share)
        assert right < grid.lowest + grid.width
        found = quantile(grid, below, (edges, places), len(values), share, whole=False)
        assert found == pytest.approx(right, rel=0.1)
        # Counts that are rounded down, each on its own, need not rise.
        rounded = places // 50 * 50
        found = quantile(grid, below // 50 * 50, (edges, rounded), len(values), share, whole=False)
        assert found == pytest.approx(right, rel=0.15)
    # A quantile outside of the grid of steps stays unknown.
    few = StepGrid(float(np.median(values)), grid.width)
    below = rows_below_steps(values, few, 256)
    assert quantile(few, below, (edges, places), len(values), 0.25, whole=False) is None
