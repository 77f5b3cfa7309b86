"""Worlds whose parties differ: only in what their kind says."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.baselines import pooled, with_normal_scores
from benchmarks.differ import (
    CAUSES,
    CLINICS,
    PARTIES,
    differing_clinics,
    differing_parties,
)
from benchmarks.scores import measured
from benchmarks.world import LineResult, World
from flwr_causal import ConfigError
from flwr_causal.core.graphs.metrics import compare


def residuals(table, truth):
    """What the causes by their true weights leave of each column."""
    return table.to_numpy() @ (np.eye(len(truth.names)) - truth.weights)


def far_apart(one, other):
    """By column, how far two means are apart, in standard errors."""
    errors = np.sqrt(one.var(axis=0) / len(one) + other.var(axis=0) / len(other))
    return np.abs(one.mean(axis=0) - other.mean(axis=0)) / errors


@pytest.mark.parametrize("kind", PARTIES)
def test_tables_follow_the_seed_and_have_one_truth(kind):
    world, again = (differing_parties(1, kind, 12, 3000, 5) for _ in range(2))
    assert len(world.parties) == 5 + (kind == "large")
    for table, twin in zip(world.parties, again.parties, strict=True):
        pd.testing.assert_frame_equal(table, twin)
        assert tuple(table.columns) == world.truth.names
        assert np.isfinite(table.to_numpy()).all()
    assert world.truth.num_edges == 20
    rows = [len(table) for table in world.parties[:5]]
    assert abs(sum(rows) - 3000) <= 2
    assert max(rows) == 4 * min(rows)


def test_clean_parties_do_not_differ():
    world = differing_parties(2, "clean", 12, 60_000, 3)
    left = [residuals(table, world.truth) for table in world.parties]
    assert far_apart(*left[:2]).max() < 4.5
    deviations = np.array([own.std(axis=0) for own in left])
    np.testing.assert_allclose(deviations, deviations[:1].repeat(3, 0), rtol=0.05)


def test_levels_differ_in_half_of_the_columns_and_roots_in_what_has_no_causes():
    tables = differing_parties(2, "levels", 12, 60_000, 3).parties
    assert (far_apart(tables[0], tables[1]) > 10).sum() == 6
    world = differing_parties(2, "roots", 12, 60_000, 3)
    left = [residuals(table, world.truth) for table in world.parties]
    roots = ~world.truth.adjacency.any(axis=0)
    assert (far_apart(*left[:2])[roots] > 4.5).all()
    assert (far_apart(*left[:2])[~roots] < 4.5).all()


@pytest.mark.parametrize(("kind", "others"), [("renamed", 1), ("redrawn", 2), ("large", 1)])
def test_the_last_parties_have_other_mechanisms(kind, others):
    """The residuals by the true weights are independent of each other at all other parties."""
    world = differing_parties(3, kind, 12, 60_000, 6)
    off = []
    for table in world.parties:
        correlations = np.corrcoef(residuals(table, world.truth), rowvar=False)
        off.append(np.abs(correlations - np.eye(12)).max() * np.sqrt(len(table)))
    assert max(off[:-others]) < 5 < 20 < min(off[-others:])


def test_values_of_single_columns_are_changed_as_the_kind_says():
    skewed = pd.concat(differing_parties(4, "skewed", 12, 9000, 3).parties)
    assert (skewed.skew() > 1).all()
    assert np.abs(np.log(skewed).skew()).max() < 0.3
    mistyped = pd.concat(differing_parties(4, "mistyped", 12, 9000, 3).parties)
    middle = (mistyped.quantile(0.9) - mistyped.quantile(0.1)) / 2.56
    far = (mistyped - mistyped.median()).abs() > 5.0 * middle
    assert 0.006 < far.to_numpy().mean() < 0.012
    zeros = pd.concat(differing_parties(4, "zeros", 12, 9000, 3).parties)
    shares = (zeros == 0).mean()
    assert sorted(np.round(shares, 2)) == [0.0] * 6 + [0.6] * 6
    swapped = differing_parties(4, "swapped", 12, 60_000, 3).parties
    spread = [table.std() for table in swapped]
    (pair,) = np.nonzero((spread[-1] / spread[0] - 1).abs() > 0.5)
    assert len(pair) == 2
    assert sorted(np.round(spread[0].iloc[pair])) == sorted(np.round(spread[-1].iloc[pair]))
    np.testing.assert_allclose(spread[0].iloc[pair], spread[-1].iloc[pair[::-1]], rtol=0.03)


@pytest.mark.parametrize("kind", CLINICS)
def test_clinics_have_the_effect_that_is_asked_for(kind):
    """Within each clinic, a regression on the causes of the outcome gives it, or its opposite."""
    world = differing_clinics(5, kind, 60_000, 4)
    found = []
    for table in world.parties:
        causes = [np.ones(len(table)), table["drug"] == "new", table["pain"], table["age"]]
        fitted = np.linalg.lstsq(np.column_stack(causes).astype(float), table["life"], rcond=None)
        found.append(fitted[0][1])
    largest = int(np.argmax([len(table) for table in world.parties]))
    signs = np.ones(4)
    signs[largest] = -1 if kind in ("reversed", "flipped") else 1
    np.testing.assert_allclose(signs * found, world.asked.value, atol=0.3)
    assert world.asked.value == (3 if kind == "confounded" else 6)
    edges = {(a, b) for b, own in CAUSES.items() for a in own}
    edges -= {("severity", "drug")} if kind == "confounded" else set()
    assert {(cause, effect) for cause, effect, _ in world.truth.edges()} == edges


def test_an_unknown_kind_is_an_error():
    with pytest.raises(ConfigError, match="clean, levels"):
        differing_parties(1, "none", 12, 100, 3)
    with pytest.raises(ConfigError, match="alike, reversed"):
        differing_clinics(1, "none", 100, 3)


class Model:
    """Gives two effects, one of which is right."""

    def total_effect(self, cause, effect, state, reference):
        assert (cause, effect, state, reference) == ("drug", "life", "new", "old")
        return [Effect(6.2, (5.8, 6.6)), Effect(0.0, (0.0, 0.0))]


class Effect:
    def __init__(self, value, interval):
        self.value, self.interval = value, interval


def test_the_effect_and_its_coverage_are_means_over_what_a_class_allows():
    world = differing_clinics(5, "alike", 100, 2)
    found = measured(world, LineResult(model=Model()), ["asked_effect", "asked_covered"])
    assert found == {"asked_effect": 3.1, "asked_covered": 0.5}


def test_normal_scores_undo_any_rising_function():
    world = differing_parties(6, "clean", 6, 400, 2)
    raw = [np.exp(table) for table in world.parties]
    scored = with_normal_scores(pd.concat(raw))
    pd.testing.assert_frame_equal(scored, with_normal_scores(world.pooled.set_axis(scored.index)))
    np.testing.assert_allclose(scored.mean(), 0, atol=1e-9)
    found = [
        pooled(World(tables, world.truth), solver="orders", normal_scores=True).graph
        for tables in (world.parties, raw)
    ]
    assert found[0].equals(found[1])
    assert compare(world.truth, found[0])["extra"] == 0
