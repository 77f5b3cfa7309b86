"""Region graphs: partitions of the columns, halves, rectangles of images."""

import numpy as np
import pytest

from flwr_causal.core.circuits.learners.einsum import random_regions
from flwr_causal.errors import ConfigError


@pytest.mark.parametrize("columns", [[0, 1, 2, 3, 4], [3], list(range(2, 39)), [7, 1]])
def test_leaf_regions_of_a_replica_partition_the_columns(columns):
    regions = random_regions(columns, 3, 4, np.random.default_rng(0))
    for replica in regions.transpose(1, 0, 2):
        held = replica[replica >= 0]
        assert sorted(held.tolist()) == sorted(columns)


def test_every_split_halves():
    regions = random_regions(range(32), 3, 5, np.random.default_rng(1))
    assert regions.shape == (8, 5, 4)
    odd = random_regions(range(37), 3, 50, np.random.default_rng(1))
    assert set((odd >= 0).sum(axis=2).ravel().tolist()) <= {4, 5}


def test_no_more_splits_than_columns():
    assert len(random_regions(range(5), 9, 1, np.random.default_rng(0))) == 4
    assert len(random_regions([4], 9, 1, np.random.default_rng(0))) == 2


def test_replicas_and_seeds_differ_and_a_seed_repeats():
    first = random_regions(range(20), 2, 2, np.random.default_rng(3))
    assert not np.array_equal(first[:, 0], first[:, 1])
    assert np.array_equal(first, random_regions(range(20), 2, 2, np.random.default_rng(3)))


def test_regions_of_an_image_are_rectangles():
    height, width = 6, 9
    regions = random_regions(range(54), 4, 6, np.random.default_rng(5), (height, width))
    for region in regions.reshape(-1, regions.shape[2]):
        held = region[region >= 0]
        assert len(held)  # 54 pixels are enough for 16 regions
        rows, columns = np.unique(held // width), np.unique(held % width)
        assert len(held) == len(rows) * len(columns)
        assert len(rows) == np.ptp(rows) + 1
        assert len(columns) == np.ptp(columns) + 1


def test_columns_of_an_image_need_not_start_at_the_first():
    regions = random_regions(range(1, 7), 1, 20, np.random.default_rng(0), (2, 3))
    halves = {tuple(region[region >= 0].tolist()) for region in regions[0]}
    assert halves <= {(1, 2, 3), (1, 4), (1, 2, 4, 5)}
    assert (1, 2, 3) in halves


@pytest.mark.parametrize(
    ("depth", "replicas", "image", "message"),
    [
        (0, 1, None, "at least 1"),
        (1, 0, None, "at least 1"),
        (1, 1, (2, 2), "2 x 2 has not 6 pixels"),
    ],
)
def test_what_cannot_be_split_is_refused(depth, replicas, image, message):
    with pytest.raises(ConfigError, match=message):
        random_regions(range(6), depth, replicas, np.random.default_rng(0), image)
