"""Normal scores from counts up to the points of a grid."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import rankdata

from flwr_causal.core.blocks.normal_scores import (
    CELLS,
    NormalScores,
    cell_scores,
    counts_up_to,
    grid_points,
    maps_of,
    scores_from_plain,
)

N = 2500
RNG = np.random.default_rng(0)
Z = RNG.normal(size=N)


def maps(rows):
    points = grid_points(rows.mean(axis=0), rows.var(axis=0))
    return maps_of(points, cell_scores(counts_up_to(rows, points)))


def by_ranks(values):
    """Scores of middle ranks, with mean 0 and variance 1."""
    found = ndtri((rankdata(values) - 0.5) / len(values))
    return (found - found.mean()) / found.std()


#: By column, its values and the largest root mean square of the differences from scores of ranks.
COLUMNS = {
    "normal": (Z, 0.02),
    "far from zero": (1e4 + Z, 0.02),
    "log-normal": (np.exp(Z), 0.02),
    "wide log-normal": (np.exp(2 * Z), 0.07),
    "cube": (Z**3, 0.02),
    "heavy tails": (RNG.standard_cauchy(N), 0.02),
    "60 % zero": (np.where(Z < 0.25, 0.0, np.exp(Z)), 0.02),
    "counts": (RNG.poisson(3, N).astype(float), 0.03),
    "five steps": (RNG.integers(1, 6, N).astype(float), 0.03),
    "mistyped": (np.where(RNG.random(N) < 0.01, Z + 10, Z), 0.02),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_scores_are_those_of_ranks(name):
    values, most = COLUMNS[name]
    (found,) = maps(values[:, None])
    assert np.sqrt(np.mean((found.of(values) - by_ranks(values)) ** 2)) < most


def test_scores_of_cells_ascend_with_mean_0_and_variance_1():
    rows = np.column_stack([Z, np.exp(Z), np.where(Z < 0.25, 0.0, Z)])
    points = grid_points(rows.mean(axis=0), rows.var(axis=0))
    counts = counts_up_to(rows, points)
    assert counts.shape == (3, CELLS)
    scores = cell_scores(counts)
    assert (np.diff(scores, axis=1) >= 0).all()
    shares = np.diff(counts, axis=1, prepend=0) / N
    np.testing.assert_allclose((shares * scores).sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose((shares * scores**2).sum(axis=1), 1, rtol=1e-12)


def test_counts_of_parties_add_up_and_missing_cells_count_nowhere():
    rows = np.column_stack([Z, np.exp(Z)])
    rows[::7, 0] = np.nan
    points = grid_points(np.nanmean(rows, axis=0), np.nanvar(rows, axis=0))
    whole = counts_up_to(rows, points)
    parts = [counts_up_to(part, points) for part in np.split(rows, [100, 900])]
    np.testing.assert_array_equal(sum(parts), whole)
    assert whole[:, -1].tolist() == [np.isfinite(rows[:, 0]).sum(), N]
    assert np.isnan(maps_of(points, cell_scores(whole))[0].of(rows[:7, 0])[0])
    none = counts_up_to(np.full((5, 2), np.nan), points)
    assert (none == 0).all()
    assert (cell_scores(none) == 0).all()


def test_scores_do_not_depend_on_units():
    own, other = maps(Z[:, None])[0], maps(1000 * Z[:, None])[0]
    np.testing.assert_allclose(own.of(Z), other.of(1000 * Z), atol=0.15)


def test_scores_lead_back_to_values():
    (found,) = maps(np.exp(Z)[:, None])
    inner = np.exp(Z[np.abs(Z) < 1.5])
    np.testing.assert_allclose(found.back(found.of(inner)), inner, rtol=0.02)
    # Beyond the rows there is nothing to lead back to.
    assert found.back(np.array(-50.0)) < np.exp(Z).min() * 1.5
    assert found.back(np.array(50.0)) > np.exp(Z).max() / 1.5


def test_plain_values_are_read_back():
    own = NormalScores((0.0, 1.0), (-1.0, 1.0))
    assert scores_from_plain({"values": [0, 1], "scores": [-1, 1]}) == own
